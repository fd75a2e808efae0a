"""A toy target and toy drafters with exactly known probabilities, and dice that enumerate every random branch.

The toy's law of the next token is a table indexed by the last two tokens, so any confusion about what is in the
cache (one token too many, a rejected draft left behind) changes the law and is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from dspark_core.calibration.calibration import Calibration, FittedOn, Setting
from dspark_core.checkpoint import LoadedDrafter
from dspark_core.drafters.base import EMPTY_BLOCK, DraftBlock, Drafter, GoesOn, OneByOne
from dspark_core.events import LoadSample
from dspark_core.modules.config import DraftConfig
from dspark_core.modules.drafter import Drafter as DraftModel
from dspark_core.params import SamplingParams
from dspark_core.sampling import Dice, law
from dspark_core.target.base import TargetOutput
from dspark_core.target.llama import LlamaTarget
from tests.conftest import TINY_CONFIG, make_tiny_state
from tests.laws import law_by_hand

NUM_TOKENS = 3
HIDDEN = 8
NUM_LAYERS = 4


class ToySlot:
    """Holds the token ids themselves."""

    def __init__(self, capacity: int) -> None:
        self.tokens: list[int] = []
        self.capacity = capacity
        self.released = False

    @property
    def length(self) -> int:
        return len(self.tokens)

    def crop(self, length: int) -> None:
        assert 0 <= length <= len(self.tokens)
        del self.tokens[length:]

    def copy_from(self, other: ToySlot, length: int) -> None:
        assert length <= min(other.length, self.capacity)
        self.tokens = other.tokens[:length]

    def release(self) -> None:
        self.released = True


class ToyTarget:
    """Logits by the last two tokens; features and embeddings random but fixed; float64 throughout."""

    name = "toy"
    hidden_size = HIDDEN
    num_layers = NUM_LAYERS
    device = torch.device("cpu")
    dtype = torch.float64

    def __init__(
        self, vocab_size: int = NUM_TOKENS, stop_token_ids: frozenset[int] = frozenset(), max_context: int = 64
    ) -> None:
        generator = torch.Generator().manual_seed(7)
        self.vocab_size = vocab_size
        self.stop_token_ids = stop_token_ids
        self.max_context = max_context
        self.table = torch.randn(vocab_size + 1, vocab_size, vocab_size, generator=generator, dtype=self.dtype) * 1.5
        self._features = torch.randn(vocab_size, NUM_LAYERS, HIDDEN, generator=generator, dtype=self.dtype)
        self._embedding = torch.randn(vocab_size, HIDDEN, generator=generator, dtype=self.dtype)
        self.slots: list[ToySlot] = []

    def next_logits(self, tokens: Sequence[int]) -> torch.Tensor:
        before = tokens[-2] if len(tokens) > 1 else self.vocab_size
        return self.table[before, tokens[-1]]

    def open_slot(self, capacity: int) -> ToySlot:
        self.slots.append(ToySlot(capacity))
        return self.slots[-1]

    def forward(
        self,
        slots: Sequence[ToySlot],
        token_ids: Sequence[Sequence[int]],
        *,
        tapped_layers: tuple[int, ...],
        want_logits: bool = True,
    ) -> list[TargetOutput]:
        outputs = []
        for slot, ids in zip(slots, token_ids, strict=True):
            rows = []
            for token in ids:
                slot.tokens.append(token)
                assert len(slot.tokens) <= slot.capacity, "written past the slot's end"
                rows.append(self.next_logits(slot.tokens))
            logits = torch.stack(rows) if want_logits else torch.empty(0, self.vocab_size, dtype=self.dtype)
            features = self._features[list(ids)][:, list(tapped_layers)].flatten(1)
            outputs.append(TargetOutput(logits, features, self._embedding[list(ids)]))
        return outputs

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        return self._embedding[token_ids]

    def lm_head(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ self._embedding.T

    def narrow_head(self, token_ids: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda hidden: hidden @ self._embedding[token_ids].T


class TableDrafter(OneByOne):
    """Draft laws and confidences from tables; checks that it is told exactly the tokens of the target's cache."""

    note = ""
    has_confidence = True
    tapped_layers = (0, 2)

    def __init__(self, vocab_size: int = NUM_TOKENS, num_draft_tokens: int = 2, name: str = "table") -> None:
        generator = torch.Generator().manual_seed(11)
        self.name = name
        self.num_draft_tokens = num_draft_tokens
        self.logits = torch.randn(num_draft_tokens, vocab_size, vocab_size, generator=generator, dtype=torch.float64)
        self.confidence = torch.rand(num_draft_tokens, vocab_size, generator=generator).tolist()
        self.vocab_size = vocab_size
        self.states: list[TableState] = []

    def open(self, capacity: int) -> TableState:  # noqa: ARG002
        self.states.append(TableState(self))
        return self.states[-1]


class TableState:
    def __init__(self, drafter: TableDrafter) -> None:
        self.drafter = drafter
        self.seen: list[int] = []

    def observe(self, token_ids: tuple[int, ...], features: torch.Tensor) -> None:
        assert features.shape == (len(token_ids), len(self.drafter.tapped_layers) * HIDDEN)
        self.seen.extend(token_ids)

    def draft(
        self, anchor: int, count: int, sampling: SamplingParams, dice: Dice, goes_on: GoesOn | None = None
    ) -> DraftBlock:
        if count <= 0:
            return EMPTY_BLOCK
        previous, ids, laws, confidences, stopped_at = anchor, [], [], [], None
        for k in range(count):
            confidence = self.drafter.confidence[k][previous]  # depends on x_{k-1} only
            if goes_on is not None and not goes_on((*confidences, confidence)):
                stopped_at = confidence
                break
            confidences.append(confidence)
            laws.append(law(self.drafter.logits[k, previous][None], sampling)[0])
            previous = dice.choose(laws[-1])
            ids.append(previous)
        shown = tuple(float(p[i]) for p, i in zip(laws, ids, strict=True))
        every = torch.arange(self.drafter.vocab_size).expand(len(ids), -1)
        probs = torch.stack(laws) if laws else torch.empty(0, self.drafter.vocab_size)
        return DraftBlock(tuple(ids), tuple(confidences), every, probs, shown, stopped_at=stopped_at)

    def release(self) -> None:
        self.seen.clear()


class ToyTokenizer:
    """Token i is the letter a, b, c, … or given bytes."""

    def __init__(self, pieces: dict[int, bytes] | None = None) -> None:
        self.pieces = pieces or {}

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces.get(token_id, bytes([97 + token_id]))

    def token_text(self, token_id: int) -> str:
        return self.token_bytes(token_id).decode("utf-8", "replace")


class FixedLoad:
    """A sensor that always says the same."""

    def sample(self) -> LoadSample:
        return LoadSample("none", "none", note="test")

    def close(self) -> None:
        pass


def toy_copying_model() -> LoadedDrafter:
    """The random drafter with a copy head."""
    return toy_draft_model(copy_longest=3)


def toy_law_model(a: float = 0.8, b: float = 0.6, d: float = -0.2) -> LoadedDrafter:
    """The random drafter whose confidences heed the law of their draft, by these numbers."""
    model = toy_draft_model(confidence_reads_law=True)
    assert model.modules.law_confidence is not None
    model.modules.law_confidence.weights.copy_(torch.tensor([a, b, d]) / 10)
    return model


def toy_draft_model(
    seed: int = 3,
    markov_rank: int = 4,
    head_type: str = "vanilla",
    *,
    hidden_size: int = HIDDEN,
    vocab_size: int = NUM_TOKENS,
    num_draft_tokens: int = 2,
    copy_longest: int = 0,
    confidence_reads_law: bool = False,
) -> LoadedDrafter:
    """A random drafter for the toy target, float64: DSpark with both heads, or without the Markov head (rank 0)."""
    config = DraftConfig(
        hidden_size=hidden_size,
        intermediate_size=12,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        num_hidden_layers=1,
        num_target_layers=NUM_LAYERS,
        target_layer_ids=(0, 2),
        vocab_size=vocab_size,
        block_size=num_draft_tokens,
        mask_token_id=0,
        markov_rank=markov_rank,
        markov_head_type=head_type,
        enable_confidence_head=markov_rank > 0,
        copy_longest=copy_longest,
        confidence_reads_law=confidence_reads_law,
        embed_tokens_from_target=True,
        lm_head_from_target=True,
    )
    torch.manual_seed(seed)
    model = DraftModel(config).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return LoadedDrafter(config, model.requires_grad_(False).eval(), None, None)


def toy_calibration(weights_sha256: str = "0" * 64, num_draft_tokens: int = 2) -> Calibration:
    """Other temperatures at each position and for each way of sampling: greedy, T = 0.7, T = 1."""
    settings = tuple(
        Setting(
            sampling_temperature=sampling,
            confidence_temperatures=tuple(first + 0.5 * k for k in range(num_draft_tokens)),
            fit_rounds=100,
            held_out_rounds=90,
            notes=(),
            before=(),
            after=(),
        )
        for sampling, first in ((0.0, 0.3), (0.7, 2.0), (1.0, 4.0))
    )
    return Calibration(weights_sha256, FittedOn("toy", "float64", "dspark", "prompts.jsonl", 2, 2, 8, 0), settings)


class EnumeratingDice:
    """Follows a script of branch numbers, then the first possible branch; remembers what else was possible."""

    def __init__(self, script: Sequence[int]) -> None:
        self.script = script
        self.branches: list[list[tuple[object, float]]] = []
        self.weight = 1.0

    def _take(self, options: list[tuple[object, float]]) -> object:
        at = len(self.branches)
        self.branches.append(options)
        value, probability = options[self.script[at] if at < len(self.script) else 0]
        self.weight *= probability
        return value

    def choose(self, probs: torch.Tensor) -> int:
        shares = (probs.double() / probs.double().sum()).tolist()
        chosen = self._take([(i, p) for i, p in enumerate(shares) if p > 0])
        assert isinstance(chosen, int)
        return chosen

    def accept(self, probability: float) -> tuple[bool, float | None]:
        options: list[tuple[object, float]] = [(True, probability), (False, 1 - probability)]
        return bool(self._take([option for option in options if option[1] > 0])), None


def every_branch(run: Callable[[Dice], tuple[int, ...]]) -> Iterator[tuple[tuple[int, ...], float]]:
    """All outcomes of ``run`` with their exact probabilities (an outcome may come up several times)."""
    script: list[int] | None = []
    while script is not None:
        dice = EnumeratingDice(script)
        outcome = run(dice)
        yield outcome, dice.weight
        taken = [*script, *[0] * (len(dice.branches) - len(script))]
        while taken and taken[-1] + 1 >= len(dice.branches[len(taken) - 1]):
            taken.pop()
        script = [*taken[:-1], taken[-1] + 1] if taken else None


def target_law(
    target: ToyTarget, prompt: Sequence[int], length: int, sampling: SamplingParams, start: tuple[int, ...] = ()
) -> dict:
    """Exact law of the first ``length`` tokens of plain sampling: the table and the definition, none of the engine.

    The answer begins with ``start``.
    """
    laws = {start: 1.0}
    for _ in range(length - len(start)):
        laws = {
            (*answer, token): weight * probability
            for answer, weight in laws.items()
            for token, probability in enumerate(
                law_by_hand(target.next_logits((*prompt, *answer)).tolist(), sampling, prompt, answer)
            )
        }
    return laws


def toy_lm_config(vocab_size: int = NUM_TOKENS, max_context: int = 64) -> dict[str, object]:
    """One Llama layer, in Hugging Face's spelling."""
    return TINY_CONFIG | {
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": 12,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 4,
        "max_position_embeddings": max_context,
    }


def toy_lm(vocab_size: int = NUM_TOKENS, max_context: int = 64, seed: int = 5) -> LlamaTarget:
    """A random Llama in float64 that drafts for the toy target; its unused cache memory holds NaN."""
    config = toy_lm_config(vocab_size, max_context)
    return LlamaTarget.from_state(config, make_tiny_state(config, seed), torch.float64, poison=True)


def toy_drafters(target: ToyTarget) -> dict[str, Drafter]:
    """Every drafter of the engine on the toy, and the table drafter."""
    from dspark_core.drafters.dspark import DSparkDrafter
    from dspark_core.drafters.lm import LmDrafter
    from dspark_core.drafters.ngram import NgramDrafter
    from dspark_core.drafters.none import NoneDrafter

    model = toy_draft_model()
    return {
        "none": NoneDrafter(),
        "dspark": DSparkDrafter(model, target),
        "dflash": DSparkDrafter(model, target).without_head(),
        "dspark-part": DSparkDrafter(model, target, draft_vocabulary=(0, 2)),
        "calibrated": DSparkDrafter(model, target, calibration=toy_calibration()),
        "table": TableDrafter(target.vocab_size),
        "dspark-rnn": DSparkDrafter(toy_draft_model(head_type="rnn"), target),
        "dspark-conv": DSparkDrafter(toy_draft_model(head_type="conv"), target),
        "dspark-copy": DSparkDrafter(toy_copying_model(), target),
        "dspark-law": DSparkDrafter(toy_law_model(), target),
        "dspark-gated": DSparkDrafter(toy_draft_model(head_type="gated"), target),
        "ngram": NgramDrafter(num_draft_tokens=2),
        "lm": LmDrafter(toy_lm(), target, num_draft_tokens=2),
        "lm-part": LmDrafter(toy_lm(), target, num_draft_tokens=2, draft_vocabulary=(0, 2)),
        "lm-padded": LmDrafter(toy_lm(5), target, num_draft_tokens=2, used_tokens=3),
        "lm-short": LmDrafter(toy_lm(max_context=4), target, num_draft_tokens=2),
        "lm-calibrated": LmDrafter(toy_lm(), target, num_draft_tokens=2, calibration=toy_calibration()),
    }
