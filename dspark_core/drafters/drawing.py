"""The blocks of several requests while they are drawn, position by position: what all drawing drafters share.

Symbols: A requests that still draft, C tokens that may be drafted, K candidates a position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import torch

from dspark_core.drafters.base import EMPTY_BLOCK, DraftAsk, DraftBlock, DraftLogits
from dspark_core.errors import NumericsError
from dspark_core.params import SamplingParams
from dspark_core.penalties import biased
from dspark_core.sampling import law, law_params
from dspark_core.suffix_index import SuffixIndex


class Drawing:
    """One request's x_1 … x_n with their laws and confidences, growing from left to right.

    Attributes:
        ask: whose it is.
        count: most drafts to draw.
        previous: x_{k-1}, the anchor at first.
        temperatures: T_1 … T_γ that divide the confidences' logits, or None.
        text: the text that drafts may be copied from; anchor and drafts stand at its end until `forget_drafts`. None
            where nothing is copied.
        failure: what ended this request's drafting, if something did.
    """

    def __init__(
        self, ask: DraftAsk, count: int, temperatures: Sequence[float] | None, text: SuffixIndex | None = None
    ) -> None:
        self.ask = ask
        self.count = count
        self.previous = ask.anchor
        self.temperatures = temperatures
        self.text = text
        self._committed = 0 if text is None else len(text)
        self._match: tuple[int, int] | None = None  # of the position that comes next, once it is asked for
        if text is not None:
            text.push(ask.anchor)
        self.failure: Exception | None = None
        self._token_ids: list[int] = []
        self._raw: list[float] = []
        self._confidences: list[float] = []
        self._shown: list[float] = []
        self._ids: list[torch.Tensor] = []
        self._laws: list[torch.Tensor] = []
        self._kept: list[DraftLogits] = []
        self._stopped_at: float | None = None

    @cached_property
    def law(self) -> SamplingParams:
        """Requests for which this is equal draw by the same law."""
        return law_params(self.ask.sampling)

    def judge(self, raw: float, confidence: float) -> bool:
        """Take c_k, raw and as it counts, before x_k is drawn; False: drafting stops here, at c_k."""
        goes_on = self.ask.goes_on
        if goes_on is not None and not goes_on((*self._confidences, confidence)):
            self._stopped_at = confidence
            return False
        self._raw.append(raw)
        self._confidences.append(confidence)
        return True

    def choose(self, probs: torch.Tensor) -> int:
        """The place of x_k among the candidates, by this request's dice; any, with `failure` set, where they fail."""
        try:
            return self.ask.dice.choose(probs)
        except Exception as error:  # the others' dice are not to stop for it
            self.failure = error
            return 0

    def take(self, token_id: int, shown: float, candidate_ids: torch.Tensor, probs: torch.Tensor) -> None:
        """x_k is drawn: its id, the probability to show, the candidates [K] and their law [K]."""
        self.previous = token_id
        if self.text is not None:
            self.text.push(token_id)
            self._match = None
        self._token_ids.append(token_id)
        self._shown.append(shown)
        self._ids.append(candidate_ids)
        self._laws.append(probs)

    @property
    def match(self) -> tuple[int, int]:
        """(n, token) that followed the longest match of the text before x_k; (0, 0) without one."""
        if self._match is None:  # the confidence and the law both ask
            n, place = (0, 0) if self.text is None else self.text.match()
            self._match = (n, self.text.tokens[place]) if self.text is not None and n else (0, 0)
        return self._match

    def forget_drafts(self) -> None:
        """The text is what is committed again: what becomes of the drafts is not known yet."""
        if self.text is not None:
            self.text.cut(self._committed)

    def keep(self, logits: DraftLogits) -> None:
        """What the law of x_k, drawn next, is made from."""
        self._kept.append(logits)

    def outcome(self, *, has_confidence: bool = True) -> DraftBlock | Exception:
        """The block as far as it was drawn, or the failure."""
        if self.failure is not None:
            return self.failure
        drafted = bool(self._token_ids)
        return DraftBlock(
            token_ids=tuple(self._token_ids),
            confidences=tuple(self._confidences) if has_confidence else None,
            candidate_ids=torch.stack(self._ids) if drafted else EMPTY_BLOCK.candidate_ids,
            candidate_probs=torch.stack(self._laws) if drafted else EMPTY_BLOCK.candidate_probs,
            shown_probs=tuple(self._shown),
            raw_confidences=tuple(self._raw) if has_confidence and self.temperatures is not None else None,
            stopped_at=self._stopped_at,
            kept=tuple(self._kept),
        )


def still_drawing(drawings: Sequence[Drawing], position: int, judged: Callable[[int], bool]) -> list[int]:
    """Places of those that draw x_{position + 1}; ``judged`` is asked with a place, and may set or raise a failure."""
    places = []
    for place, drawing in enumerate(drawings):
        if drawing.failure is not None or position >= drawing.count:
            continue
        try:
            if judged(place):
                places.append(place)
        except Exception as error:  # a confidence that is no number, a policy: this request's failure alone
            drawing.failure = error
    return places


def with_bias(
    logits: torch.Tensor, drawings: Sequence[Drawing], vocabulary: torch.Tensor | None = None
) -> torch.Tensor:
    """The logits [A, C] with each request's own ``logit_bias``; column i is token i, or that of ``vocabulary`` [C]."""
    if not any(drawing.ask.sampling.logit_bias for drawing in drawings):
        return logits
    rows = zip(drawings, logits, strict=True)
    return torch.cat([biased(row[None], drawing.ask.sampling, vocabulary) for drawing, row in rows])


def draw_next(
    drawings: Sequence[Drawing],
    logits: torch.Tensor,
    candidate_ids: torch.Tensor,
    totals: torch.Tensor | None = None,
    base: torch.Tensor | None = None,
) -> None:
    """Draw the next token of every request by its own law and dice, the laws of like requests in one go.

    Args:
        drawings: A requests.
        logits: [A, K] of the candidates.
        candidate_ids: [A, K].
        totals: log Σ exp [A] of all logits, to show probabilities by under greedy decoding; None: of the candidates.
        base: [A, K] the logits without the sequential head's bias, for who asked to see them; None without such a head.
    """
    for row, drawing in enumerate(drawings):
        if drawing.ask.inspect:
            total = None if totals is None else totals[row]
            drawing.keep(DraftLogits(logits[row], total, None if base is None else base[row]))
    if len(drawings) == 1:
        _draw_alike(drawings, logits, candidate_ids, totals)
        return
    alike: dict[SamplingParams, list[int]] = {}
    for place, drawing in enumerate(drawings):
        alike.setdefault(drawing.law, []).append(place)
    if len(alike) == 1:
        _draw_alike(drawings, logits, candidate_ids, totals)
        return
    for places in alike.values():
        some = None if totals is None else totals[places]
        _draw_alike([drawings[place] for place in places], logits[places], candidate_ids[places], some)


def _draw_alike(
    drawings: Sequence[Drawing], logits: torch.Tensor, candidate_ids: torch.Tensor, totals: torch.Tensor | None
) -> None:
    """`draw_next` for requests with the same law."""
    sampling = drawings[0].ask.sampling
    try:
        probs = law(logits, sampling)
    except NumericsError as error:
        if len(drawings) == 1:
            drawings[0].failure = error
            return
        for row, drawing in enumerate(drawings):  # some row is broken: the others have their law
            own = slice(row, row + 1)
            _draw_alike([drawing], logits[own], candidate_ids[own], None if totals is None else totals[own])
        return
    if sampling.greedy:
        at = probs.argmax(-1, keepdim=True)
        totals = logits.logsumexp(-1) if totals is None else totals
        shown = (logits.gather(-1, at)[:, 0] - totals).exp().clamp(max=1)
    else:
        at = torch.tensor([[drawing.choose(row)] for drawing, row in zip(drawings, probs, strict=True)])
        shown = probs.gather(-1, at)[:, 0]
    token_ids = candidate_ids.gather(-1, at)[:, 0]
    rows = zip(drawings, token_ids.tolist(), shown.tolist(), candidate_ids, probs, strict=True)
    for drawing, token_id, probability, ids, own_law in rows:
        if drawing.failure is None:
            drawing.take(token_id, probability, ids, own_law)
