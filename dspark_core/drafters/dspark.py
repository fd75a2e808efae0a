"""DSpark: one parallel backbone pass, then tokens drawn left to right with a Markov bias and a confidence each.

The same class without the sequential bias is DFlash. All requests of a round share the pass; `sequential` draws.
Symbols: γ drafts, N tokens of all blocks in a pass, H hidden size, m tapped layers, V vocabulary, K candidates a
position, g key/value heads, d head size. Source: DSpark §3; modules/ holds the networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial

import torch

from dspark_core.calibration.calibration import Calibration
from dspark_core.checkpoint import LoadedDrafter
from dspark_core.drafters.base import (
    EMPTY_BLOCK,
    DraftAsk,
    DraftBlock,
    DrafterState,
    GoesOn,
    Observation,
    block_or_raise,
)
from dspark_core.drafters.drawing import Drawing
from dspark_core.drafters.sequential import SequentialStage
from dspark_core.errors import ResourceError
from dspark_core.modules.backbone import KeysValues
from dspark_core.params import SamplingParams
from dspark_core.sampling import Dice
from dspark_core.suffix_index import SuffixIndex
from dspark_core.target.base import Target
from dspark_core.target.linear import Linear, make_linear, pack_linears

# The sequential bias is added, and tokens are drawn, among the K most likely base candidates. Few of them are cheap,
# but what follows x_{k-1} is often far down in base logits that do not know it (README, "Results": 64 against 1,024).
CANDIDATES = 1024

# Tokens whose features may wait for their keys and values: a few kilobytes each, and so many that an answer that rests
# from drafts hardly ever has them read for nothing.
COLLECTED = 512

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
        self._sequential = self._stage(biased=True)

    def without_head(self) -> DSparkDrafter:
        """The same drafter as DFlash: its tables are shared, the sequential bias is left out.

        So is the calibration, which was fitted to what the target accepts of drafts drawn with the bias.
        """
        dflash = copy(self)
        dflash.name, dflash.note, dflash.calibration = "dflash", _BORROWED, None
        dflash._sequential = self._stage(biased=False)
        return dflash

    def open(self, capacity: int) -> DSparkState:
        """Context keys and values for a request of at most ``capacity`` tokens. Raises ResourceError."""
        return DSparkState(self, capacity)

    def draft_all(self, asks: Sequence[DraftAsk]) -> list[DraftBlock | Exception]:
        """One backbone pass over all blocks, then the sequential stage for all of them, position by position."""
        wanted = [ask for ask in asks if ask.count > 0]
        if not wanted:
            return [EMPTY_BLOCK for _ in asks]
        try:
            hidden = self.hidden_states(wanted)
        except Exception as error:  # nothing is drawn yet: each alone shows whose failure it is
            return [error] if len(asks) == 1 else [outcome for ask in asks for outcome in self.draft_all([ask])]
        drawings: list[Drawing] = []
        try:
            drawings.extend(map(self._drawing, wanted))
            outcomes = iter(self._sequential.draw(hidden, drawings))
        finally:
            for drawing in drawings:
                drawing.forget_drafts()
        return [next(outcomes) if ask.count > 0 else EMPTY_BLOCK for ask in asks]

    def observe_all(self, observations: Sequence[Observation]) -> list[Exception | None]:
        """Keep the features of all requests' new tokens; `_read` them before they are drafted from, or become many."""
        return [self._observe(told) for told in observations]

    def _observe(self, told: Observation) -> Exception | None:
        try:
            if _own(told.state).collect(told.token_ids, told.features) > COLLECTED:
                self._read([_own(told.state)])
        except Exception as error:  # that request's failure, not the others'
            return error
        return None

    def _read(self, states: Sequence[DSparkState]) -> None:
        """The keys and values of all tokens that were collected, in one go: a token's depend on that token alone.

        Reading the matrices costs much more than what a few tokens more do, and a request that rests from drafts asks
        for nothing between.
        """
        waiting = [state for state in states if state.collected]
        if not waiting:
            return
        device = self.target.device
        positions = torch.cat([torch.arange(s.length, s.length + s.num_collected, device=device) for s in waiting])
        features = torch.cat([kept for state in waiting for kept in state.collected])
        context = self.model.context_keys_values(features, positions)
        first = 0
        for state in waiting:
            rows = slice(first, first + state.num_collected)
            state.append([(keys[:, rows], values[:, rows]) for keys, values in context])
            first = rows.stop

    def hidden_states(self, asks: Sequence[DraftAsk]) -> torch.Tensor:
        """One backbone pass over all requests' blocks, one after the other: h_1 … h_n of each, n its ``count``, [N, H].

        A block looks both ways, so h_k of a shorter one is not h_k of the whole one; training varies the length, so
        that either will do.
        """
        states = [_own(ask.state) for ask in asks]
        self._read(states)
        masked = self.model.config.mask_token_id
        ids = [token_id for ask in asks for token_id in (ask.anchor, *[masked] * (ask.count - 1))]
        places = [place for ask, s in zip(asks, states, strict=True) for place in range(s.length, s.length + ask.count)]
        embeddings = self._embed(torch.tensor(ids, device=self.target.device))
        positions = torch.tensor(places, device=self.target.device)
        lengths, contexts = [ask.count for ask in asks], [state.context() for state in states]
        return self.model.forward_ragged(embeddings, positions, lengths, contexts)

    def _stage(self, *, biased: bool) -> SequentialStage:
        return SequentialStage(self.model, self._lm_head, self.candidates, self._vocabulary, biased=biased)

    def _drawing(self, ask: DraftAsk) -> Drawing:
        calibration = self.calibration
        temperatures = None if calibration is None else calibration.temperatures_for(ask.sampling.temperature)
        return Drawing(ask, ask.count, temperatures, _own(ask.state).text if self._sequential.copies else None)


class DSparkState:
    """One request's context: the draft layers' keys and values of every token in the target's cache."""

    def __init__(self, drafter: DSparkDrafter, capacity: int) -> None:
        config, target = drafter.model.config, drafter.target
        shape = (config.num_hidden_layers, 2, config.num_key_value_heads, capacity, config.head_dim)
        self._drafter = drafter
        self._width = (len(config.target_layer_ids) * target.hidden_size,)
        try:
            self._cache: torch.Tensor | None = torch.empty(shape, dtype=drafter.dtype, device=target.device)
        except (RuntimeError, MemoryError) as error:
            raise ResourceError(
                f"There is no memory for the drafter's context of {capacity} tokens ({error}). "
                "Ask for fewer new tokens, or try again when other answers have ended."
            ) from error
        self.length = 0  # tokens of context
        self.collected: list[torch.Tensor] = []  # features [n, m·H] of the tokens after these
        self.num_collected = 0
        self._collected_ids: list[int] = []
        copying = drafter.model.copy_head
        self.text = None if copying is None else SuffixIndex(copying.longest)

    def observe(self, token_ids: tuple[int, ...], features: torch.Tensor) -> None:
        """Append the context of ``token_ids``: computed once a token from its features [n, m·H]."""
        failure = self._drafter.observe_all([Observation(self, token_ids, features)])[0]
        if failure is not None:
            raise failure

    def collect(self, token_ids: Sequence[int], features: torch.Tensor) -> int:
        """Keep the next tokens and their features. Returns how many are kept; raises when they have no place."""
        count = len(token_ids)
        place, end = self._in_use().shape[-2], self.length + self.num_collected + count
        if end > place:
            raise RuntimeError(f"The drafter's context holds {place} tokens; {end} were observed.")
        if features.shape[0] != count or features.shape[1:] != self._width:
            raise RuntimeError(f"{count} tokens were observed with features of the shape {tuple(features.shape)}.")
        self.collected.append(features.to(self._drafter.dtype, copy=True))  # not a view that keeps a whole pass
        self.num_collected += count
        self._collected_ids.extend(token_ids)
        return self.num_collected

    def append(self, context: Sequence[KeysValues]) -> None:
        """Keep the collected tokens, with their keys and values, each [g, n, d], of every layer."""
        for layer, (keys, values) in zip(self._in_use(), context, strict=True):
            end = self.length + keys.shape[1]
            layer[0, :, self.length : end] = keys
            layer[1, :, self.length : end] = values
        self.length = end
        if self.text is not None:  # only now: a request that rests from drafts looks nothing up
            self.text.extend(self._collected_ids)
        self.collected, self.num_collected, self._collected_ids = [], 0, []

    def context(self) -> list[KeysValues]:
        """Keys and values, each [g, n, d], of every layer."""
        return [(layer[0, :, : self.length], layer[1, :, : self.length]) for layer in self._in_use()]

    def draft(
        self, anchor: int, count: int, sampling: SamplingParams, dice: Dice, goes_on: GoesOn | None = None
    ) -> DraftBlock:
        """Draft ``count`` tokens, or as many as ``goes_on`` wants.

        The block's own keys and values are never stored, so nothing has to be cropped.
        """
        return block_or_raise(self._drafter.draft_all([DraftAsk(self, anchor, count, sampling, dice, goes_on)])[0])

    def release(self) -> None:
        """Give the memory back."""
        self._cache, self.collected = None, []
        self.text = None

    def _in_use(self) -> torch.Tensor:
        if self._cache is None:
            raise RuntimeError("A released drafter state was used.")
        return self._cache


def _own(state: DrafterState) -> DSparkState:
    assert isinstance(state, DSparkState), "a state of another drafter"  # noqa: S101
    return state


def _target_rows(target: Target, dtype: torch.dtype, ids: torch.Tensor) -> torch.Tensor:
    return target.embed(ids).to(dtype)


def _cast_logits(head: Linear, dtype: torch.dtype, hidden: torch.Tensor) -> torch.Tensor:
    return head(hidden.to(dtype))


def _rows(table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return table[ids]
