"""DSpark: one parallel backbone pass, then tokens drawn left to right with a Markov bias and a confidence each.

The same class without the sequential bias is DFlash. Symbols: γ drafts, H hidden size, m tapped layers, V vocabulary,
K candidates a position, r Markov rank, g key/value heads, d head size. Source: DSpark §3; modules/ holds the networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial

import torch

from dspark_core.calibration.calibration import Calibration
from dspark_core.checkpoint import LoadedDrafter
from dspark_core.drafters.base import EMPTY_BLOCK, DraftBlock, GoesOn
from dspark_core.errors import NumericsError, ResourceError
from dspark_core.modules.backbone import KeysValues
from dspark_core.modules.confidence import ConfidenceHead
from dspark_core.modules.drafter import Drafter as DraftModel
from dspark_core.params import SamplingParams
from dspark_core.penalties import biased
from dspark_core.sampling import Dice, law
from dspark_core.target.base import Target
from dspark_core.target.linear import Linear, make_linear, pack_linears

# The sequential bias is added, and tokens are drawn, among the K most likely base candidates. Few of them are cheap,
# but what follows x_{k-1} is often far down in base logits that do not know it (README, "Results": 64 against 1,024).
CANDIDATES = 1024

_BORROWED = "No weights of its own yet: this is DSpark's backbone with the sequential head switched off."


class DSparkDrafter:
    """A drafter over a target's features.

    Args:
        loaded: trained backbone and heads, on the target's device.
        target: gives the embeddings and the LM head that the checkpoint leaves out, both frozen.
        candidates: K; the draft law has no mass elsewhere (drawn from and accepted with the same law: exact).
        draft_vocabulary: the only token ids to draft, in rising order; None for all.
        calibration: temperatures of the confidences by sampling setting; None leaves them as the head gives them.
        note: what a reader should know about this drafter, or ''.
    """

    def __init__(
        self,
        loaded: LoadedDrafter,
        target: Target,
        *,
        candidates: int = CANDIDATES,
        draft_vocabulary: Sequence[int] | None = None,
        calibration: Calibration | None = None,
        note: str = "",
    ) -> None:
        model, config = loaded.modules, loaded.config
        config.check_fits(hidden_size=target.hidden_size, vocab_size=target.vocab_size, num_layers=target.num_layers)
        self.name = "dflash" if model.markov_head is None else "dspark"
        self.note = note
        self.calibration = calibration
        self.num_draft_tokens = config.block_size
        self.tapped_layers = config.target_layer_ids
        self.model = pack_linears(model, skip=("markov_head", "confidence_head"))
        self.target = target
        self.has_confidence = model.confidence_head is not None
        self.dtype = model.norm.weight.dtype
        self._embed = partial(_target_rows, target, self.dtype)
        if loaded.embed_tokens is not None:
            self._embed = partial(_rows, loaded.embed_tokens)
        self._lm_head: Linear = partial(_cast_logits, target.lm_head, target.dtype)
        if loaded.lm_head is not None:
            self._lm_head = make_linear(loaded.lm_head)
        self._vocabulary: torch.Tensor | None = None
        if draft_vocabulary is not None:
            self._vocabulary = torch.tensor(draft_vocabulary, device=target.device)
            if loaded.lm_head is not None:
                self._lm_head = make_linear(loaded.lm_head[self._vocabulary])
            else:
                self._lm_head = partial(_cast_logits, target.narrow_head(self._vocabulary), target.dtype)
        self.candidates = min(candidates, target.vocab_size if draft_vocabulary is None else len(draft_vocabulary))
        self._masks = self._embed(torch.full((config.block_size - 1,), config.mask_token_id, device=target.device))
        self._sequential = SequentialStage(model, biased=True)

    def without_head(self) -> DSparkDrafter:
        """The same drafter as DFlash: its tables are shared, the sequential bias is left out.

        So is the calibration, which was fitted to what the target accepts of drafts drawn with the bias.
        """
        dflash = copy(self)
        dflash.name, dflash.note, dflash.calibration = "dflash", _BORROWED, None
        dflash._sequential = SequentialStage(self.model, biased=False)
        return dflash

    def open(self, capacity: int) -> DSparkState:
        """Context keys and values for a request of at most ``capacity`` tokens. Raises ResourceError."""
        return DSparkState(self, capacity)

    def hidden_states(self, anchor: int, position: int, context: list[KeysValues], count: int) -> torch.Tensor:
        """One backbone pass: h_1 … h_n [n, H] of a block of n = ``count`` after ``anchor``, which is at ``position``.

        A block looks both ways, so h_k of a shorter one is not h_k of the whole one; training varies the length, so
        that either will do.
        """
        anchor_embedding = self._embed(torch.tensor([anchor], device=self.target.device))
        positions = torch.arange(position, position + count, device=self.target.device)
        return self.model.forward_block(torch.cat((anchor_embedding, self._masks[: count - 1])), positions, context)

    def draft_block(
        self, hidden: torch.Tensor, anchor: int, sampling: SamplingParams, dice: Dice, goes_on: GoesOn | None = None
    ) -> DraftBlock:
        """Base logits U_k, their K best candidates, then the sequential stage; up to n drafts of ``hidden`` [n, H]."""
        every = biased(self._lm_head(hidden), sampling, self._vocabulary)
        base_logits, candidate_ids = every.topk(self.candidates, dim=-1)
        if self._vocabulary is not None:
            candidate_ids = self._vocabulary[candidate_ids]
        temperatures = None if self.calibration is None else self.calibration.temperatures_for(sampling.temperature)
        return self._sequential.draw(hidden, base_logits, candidate_ids, anchor, sampling, dice, temperatures, goes_on)


class DSparkState:
    """One request's context: the draft layers' keys and values of every token in the target's cache."""

    def __init__(self, drafter: DSparkDrafter, capacity: int) -> None:
        config, target = drafter.model.config, drafter.target
        shape = (config.num_hidden_layers, 2, config.num_key_value_heads, capacity, config.head_dim)
        self._drafter = drafter
        try:
            self._cache: torch.Tensor | None = torch.empty(shape, dtype=drafter.dtype, device=target.device)
        except (RuntimeError, MemoryError) as error:
            raise ResourceError(
                f"There is no memory for the drafter's context of {capacity} tokens ({error}). "
                "Ask for fewer new tokens, or try again when other answers have ended."
            ) from error
        self._length = 0

    def observe(self, token_ids: tuple[int, ...], features: torch.Tensor) -> None:
        """Append the context of ``token_ids``: computed once a token from its features [n, m·H]."""
        if self._cache is None:
            raise RuntimeError("A released drafter state was used.")
        end = self._length + len(token_ids)
        positions = torch.arange(self._length, end, device=features.device)
        features = features.to(self._drafter.dtype)
        for layer, (keys, values) in enumerate(self._drafter.model.context_keys_values(features, positions)):
            self._cache[layer, 0, :, self._length : end] = keys
            self._cache[layer, 1, :, self._length : end] = values
        self._length = end

    def draft(
        self, anchor: int, count: int, sampling: SamplingParams, dice: Dice, goes_on: GoesOn | None = None
    ) -> DraftBlock:
        """Draft ``count`` tokens, or as many as ``goes_on`` wants.

        The block's own keys and values are never stored, so nothing has to be cropped.
        """
        if self._cache is None:
            raise RuntimeError("A released drafter state was used.")
        if count <= 0:
            return EMPTY_BLOCK
        context = [(layer[0, :, : self._length], layer[1, :, : self._length]) for layer in self._cache]
        hidden = self._drafter.hidden_states(anchor, self._length, context, count)
        return self._drafter.draft_block(hidden, anchor, sampling, dice, goes_on)

    def release(self) -> None:
        """Give the memory back."""
        self._cache = None


class SequentialStage:
    """Draws x_1 … x_n left to right: p_k ∝ exp(U_k + B_k(x_{<k})) over K candidates, c_k before x_k.

    Runs on the CPU on K-wide rows whatever the device: n tiny dependent steps cost more in launches than in sums.
    """

    def __init__(self, model: DraftModel, *, biased: bool) -> None:
        markov, confidence = model.markov_head, model.confidence_head
        self._head = markov.without_tables() if biased and markov is not None else None
        if self._head is not None and markov is not None:
            self._w1 = markov.markov_w1.weight.detach().cpu()
            self._w2 = markov.markov_w2.weight.detach()
        self._confidence = None
        if confidence is not None:
            embeddings = markov.markov_w1.weight if markov is not None and reads_markov(model) else None
            self._confidence = ConfidenceStage(confidence, model.config.hidden_size, embeddings)

    def draw(
        self,
        hidden: torch.Tensor,
        base_logits: torch.Tensor,
        candidate_ids: torch.Tensor,
        anchor: int,
        sampling: SamplingParams,
        dice: Dice,
        temperatures: Sequence[float] | None = None,
        goes_on: GoesOn | None = None,
    ) -> DraftBlock:
        """n drafts from h [n, H], base logits [n, K] and their ids [n, K]; T_1 … T_n divide the confidences' logits.

        Before x_k is drawn, ``goes_on`` is asked about c_1 … c_k; a no ends the block there, with k − 1 drafts.
        """
        w2_rows = None if self._head is None else self._w2_rows(candidate_ids)
        rows = hidden.float().cpu()
        hidden_scores = None if self._confidence is None else self._confidence.hidden_scores(hidden)
        base_logits, candidate_ids = base_logits.float().cpu(), candidate_ids.cpu()
        previous, state, stopped_at = anchor, None, None
        token_ids, raw, shown, laws = [], [], [], []
        calibrated: list[float] = []
        for k in range(len(candidate_ids)):
            if self._confidence is not None and hidden_scores is not None:
                logit = self._confidence.logit(hidden_scores[k], previous)
                confidence = _sigmoid(logit if temperatures is None else logit / temperatures[k])
                if goes_on is not None and not goes_on((*calibrated, confidence)):
                    stopped_at = confidence
                    break
                raw.append(_sigmoid(logit))
                calibrated.append(confidence)
            logits = base_logits[k]
            if self._head is not None and w2_rows is not None:
                mixed, state = self._head.mix(state, self._w1[previous].float(), rows[k])
                logits = logits + w2_rows(k) @ mixed
            probs = law(logits[None], sampling)[0]
            index = int(probs.argmax()) if sampling.greedy else dice.choose(probs)
            previous = int(candidate_ids[k, index])
            token_ids.append(previous)
            shown.append(float((logits.softmax(-1) if sampling.greedy else probs)[index]))
            laws.append(probs)
        return DraftBlock(
            token_ids=tuple(token_ids),
            confidences=None if self._confidence is None else tuple(calibrated),
            candidate_ids=candidate_ids[: len(laws)],
            candidate_probs=torch.stack(laws) if laws else base_logits[:0],
            shown_probs=tuple(shown),
            raw_confidences=None if self._confidence is None or temperatures is None else tuple(raw),
            stopped_at=stopped_at,
        )

    def _w2_rows(self, candidate_ids: torch.Tensor) -> Callable[[int], torch.Tensor]:
        """W2's rows [K, r] for position k: on a GPU fetched for all at once, on a CPU only for those that are drawn."""
        if self._w2.is_cuda:
            every = self._w2[candidate_ids].float().cpu()
            return lambda k: every[k]
        return lambda k: self._w2[candidate_ids[k]].float()


class ConfidenceStage:
    """The logit w·[h_k; W1[x_{k−1}]] + b of c_k, known before x_k is drawn: it reads nothing later than x_{k−1}.

    Args:
        head: the trained head.
        hidden_size: H.
        embeddings: W1 [V, r], or None when the head was trained without it.
    """

    def __init__(self, head: ConfidenceHead, hidden_size: int, embeddings: torch.Tensor | None) -> None:
        weight = head.proj.weight.detach().float()[0]
        self._hidden_weight = weight[:hidden_size]
        self._bias = float(head.proj.bias.detach().float())
        # One number a token: the Markov part of the logit needs no product at run time.
        self._token_scores = None
        if embeddings is not None:
            self._token_scores = (embeddings.detach().float() @ weight[hidden_size:]).cpu()

    def hidden_scores(self, hidden: torch.Tensor) -> list[float]:
        """w_h·h_k + b of n positions, from h [n, H]."""
        return [float(x) for x in (hidden.float() @ self._hidden_weight + self._bias).tolist()]

    def logit(self, hidden_score: float, previous: int) -> float:
        """c_k's logit from its position's score and x_{k−1}. Raises NumericsError when it is not a finite number."""
        token_score = 0.0 if self._token_scores is None else float(self._token_scores[previous])
        if not math.isfinite(hidden_score + token_score):
            raise NumericsError("The drafter's confidence is not a finite number; its weights are damaged.")
        return hidden_score + token_score


def _sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, logit))))


def _target_rows(target: Target, dtype: torch.dtype, ids: torch.Tensor) -> torch.Tensor:
    return target.embed(ids).to(dtype)


def _cast_logits(head: Linear, dtype: torch.dtype, hidden: torch.Tensor) -> torch.Tensor:
    return head(hidden.to(dtype))


def _rows(table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return table[ids]


def reads_markov(model: DraftModel) -> bool:
    """Whether the confidence head was trained on [h; W1] rather than on h alone."""
    return model.config.confidence_head_with_markov and model.config.markov_rank > 0
