"""The sequential stage: tokens drawn left to right with a Markov bias and a confidence each, for all blocks of a round.

Position by position: at each of them the requests that still draft share every product, and one that stops leaves.
Symbols: N rows (positions of all blocks), A requests that still draft, H hidden size, V vocabulary, C tokens that may
be drafted (V, or the draft vocabulary's), K candidates a position, r Markov rank. Source: DSpark §3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import torch

from dspark_core.drafters.base import DraftBlock
from dspark_core.drafters.drawing import Drawing, draw_next, still_drawing, with_bias
from dspark_core.errors import NumericsError
from dspark_core.modules.confidence import ConfidenceHead, LawConfidence, log_odds_of_best
from dspark_core.modules.copy_head import CopyHead
from dspark_core.modules.drafter import Drafter as DraftModel
from dspark_core.modules.sequential import MarkovHead
from dspark_core.target.linear import Linear, make_linear, packing_works

# Rows that go through the LM head at a time: few enough that little is computed for positions that are never drawn,
# enough that a request by itself reads the head's table once for several positions.
HEAD_ROWS = 8
# Gathering a row of W2 costs about as much as this many rows of a product with the whole table (measured on CPUs).
_GATHERED_ROW = 8


class SequentialStage:
    """Draws x_1 … x_n left to right: p_k ∝ exp(U_k + B_k(x_{<k})) over K candidates, c_k before x_k.

    But for the LM head it runs on the CPU whatever the device: n tiny dependent steps cost more in launches than in
    sums.

    Args:
        model: the networks.
        lm_head: h [n, H] → U [n, C].
        candidates: K.
        vocabulary: the ids of the C tokens; None where they are all.
        biased: whether the Markov head takes part (without it, the drafter is DFlash).
    """

    def __init__(
        self, model: DraftModel, lm_head: Linear, candidates: int, vocabulary: torch.Tensor | None, *, biased: bool
    ) -> None:
        markov, confidence = model.markov_head, model.confidence_head
        self._lm_head, self._candidates = lm_head, candidates
        self._vocabulary, self._ids = vocabulary, None if vocabulary is None else vocabulary.cpu()
        self._markov = MarkovStage(markov, self._ids) if biased and markov is not None else None
        self._copying = CopyStage(model.copy_head, self._ids) if biased and model.copy_head is not None else None
        self._confidence = None
        if confidence is not None:
            embeddings = markov.markov_w1.weight if markov is not None and reads_markov(model) else None
            self._confidence = ConfidenceStage(confidence, model.config.hidden_size, embeddings, model.law_confidence)

    @property
    def copies(self) -> bool:
        """Whether drafts may be copied from the text."""
        return self._copying is not None

    def draw(self, hidden: torch.Tensor, drawings: Sequence[Drawing]) -> list[DraftBlock | Exception]:
        """Draw every request's block; h [N, H] has ``drawing.count`` rows of each, in the same order."""
        head = _RowsAhead(self._lm_head, hidden)
        rows = hidden.float().cpu() if self._markov is not None else None
        scores = None if self._confidence is None else self._confidence.hidden_scores(hidden)
        gates = None if self._copying is None else self._copying.hidden_gates(hidden)
        # A confidence that reads the law waits for it; any other one spares the law of where drafting stops.
        early, late = (None, scores) if self._reads_law else (scores, None)
        still = _Still(drawings)
        for k in range(max((drawing.count for drawing in drawings), default=0)):
            still.keep(still_drawing(still.active, k, partial(self._judge, still, k, early)))
            if not still.active:
                break
            logits = head.at(still.rows, still.ends)
            whole = with_bias(logits, still.active, self._vocabulary)
            logits, places = whole.topk(self._candidates)
            logits, places, base = logits.float().cpu(), places.cpu(), None
            copies = None
            if self._copying is not None and gates is not None:
                copies = self._copying.among(whole, logits, places, still.active, [gates[row] for row in still.rows])
            if self._markov is not None and rows is not None:
                previous = [drawing.previous for drawing in still.active]
                bias, still.state = self._markov.bias(previous, rows[still.rows], still.state, places)
                base, logits = logits, logits + bias
            if copies is not None:
                base = logits if base is None else base
                logits = logits + copies
            if late is not None:
                odds = log_odds_of_best(logits).tolist()
                kept = still.keep(still_drawing(still.active, k, partial(self._judge, still, k, late, odds=odds)))
                if not kept:
                    break
                if len(kept) < len(odds):
                    logits, places, base = logits[kept], places[kept], None if base is None else base[kept]
            draw_next(still.active, logits, places if self._ids is None else self._ids[places], base=base)
            still.advance()
        return [drawing.outcome(has_confidence=self._confidence is not None) for drawing in drawings]

    @property
    def _reads_law(self) -> bool:
        return self._confidence is not None and self._confidence.law is not None

    def _judge(
        self,
        still: _Still,
        k: int,
        scores: Sequence[float] | None,
        place: int,
        *,
        odds: Sequence[float] | None = None,
    ) -> bool:
        if self._confidence is None or scores is None:
            return True
        drawing = still.active[place]
        logit = self._confidence.logit(scores[still.rows[place]], drawing.previous)
        if self._copying is not None:
            logit += self._copying.confidence_shift(drawing)
        if odds is not None:
            logit = self._confidence.with_law(logit, odds[place])
        temperatures = drawing.temperatures
        return drawing.judge(_sigmoid(logit), _sigmoid(logit if temperatures is None else logit / temperatures[k]))


class _Still:
    """The requests that still draft, in their order.

    Attributes:
        active: their drawings.
        rows: where the row of each one's next position stands in h.
        ends: where each one's rows end.
        state: the sequential head's, a row for each; None before the first.
    """

    def __init__(self, drawings: Sequence[Drawing]) -> None:
        self.active = list(drawings)
        self.ends = list(accumulate(drawing.count for drawing in drawings))
        self.rows = [end - drawing.count for end, drawing in zip(self.ends, drawings, strict=True)]
        self.state: torch.Tensor | None = None

    def keep(self, places: list[int]) -> list[int]:
        """Only those at these places go on; the places come back."""
        if len(places) < len(self.active):
            self.active = [self.active[place] for place in places]
            self.rows = [self.rows[place] for place in places]
            self.ends = [self.ends[place] for place in places]
            self.state = None if self.state is None else self.state[places]
        return places

    def advance(self) -> None:
        """Every one's next position."""
        self.rows = [row + 1 for row in self.rows]


class _RowsAhead:
    """The LM head's rows, computed for a few positions ahead of those that still draft."""

    def __init__(self, lm_head: Linear, hidden: torch.Tensor) -> None:
        self._lm_head, self._hidden = lm_head, hidden
        self._known: dict[int, int] = {}
        self._logits = hidden[:0]

    def at(self, rows: Sequence[int], ends: Sequence[int]) -> torch.Tensor:
        """U [A, C] of the given rows of h; each request's own rows go on up to its end."""
        if any(row not in self._known for row in rows):
            ahead = max(1, HEAD_ROWS // len(rows))
            if self._hidden.is_cuda:  # a launch costs more than the rows
                ahead = len(self._hidden)
            wanted = [row + k for k in range(ahead) for row, end in zip(rows, ends, strict=True) if row + k < end]
            self._known = {row: place for place, row in enumerate(wanted)}
            self._logits = self._lm_head(self._hidden[wanted])
        if len(self._known) == len(rows):
            return self._logits
        return self._logits[[self._known[row] for row in rows]]


class MarkovStage:
    """B_k = u_k · W2 at the candidates, with the head's own `mix`."""

    def __init__(self, head: MarkovHead, vocabulary: torch.Tensor | None) -> None:
        table = head.markov_w2.weight.detach().cpu()
        # Where the machine has no fast products of the table's own type, float32 is what is fast.
        dtype = table.dtype if packing_works(table.dtype) else torch.float32
        self._head = head.without_tables()
        self._w1 = head.markov_w1.weight.detach().cpu()
        self._w2 = (table if vocabulary is None else table[vocabulary]).to(dtype)
        self._product = make_linear(self._w2)

    def bias(
        self, previous: Sequence[int], hidden: torch.Tensor, state: torch.Tensor | None, places: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """B [A, K] after x_{k−1} of A requests, from h_k [A, H], at the candidates' places [A, K] among the C tokens.

        The head's state comes back beside it.
        """
        mixed, state = self._head.mix(state, self._w1[list(previous)].float(), hidden)
        if places.numel() * _GATHERED_ROW < len(self._w2):
            rows = (self._w2[own].float() @ u for own, u in zip(places, mixed, strict=True))
            return torch.stack(list(rows)), state
        return self._product(mixed.to(self._w2.dtype)).float().gather(-1, places), state


class CopyStage:
    """The copy head on the CPU: what it adds to the candidate that followed the same words before."""

    def __init__(self, head: CopyHead, vocabulary: torch.Tensor | None) -> None:
        self._longest = head.longest
        self._hidden = head.hidden.detach().float()
        lengths = torch.arange(head.longest + 1, device=self._hidden.device)
        with torch.no_grad():
            self._by_length = head.gate(self._hidden.new_zeros(len(lengths), len(self._hidden)), lengths).tolist()
            self._shifts = head.confidence_shift(lengths).tolist()
        self._places = None if vocabulary is None else {token: place for place, token in enumerate(vocabulary.tolist())}

    def hidden_gates(self, hidden: torch.Tensor) -> list[float]:
        """w·h_k of N positions, from h [N, H]."""
        return [float(x) for x in (hidden.float() @ self._hidden).tolist()]

    def confidence_shift(self, drawing: Drawing) -> float:
        """β_n at the position that comes next."""
        return float(self._shifts[min(self._longest, drawing.match[0])])

    def among(
        self,
        whole: torch.Tensor,
        logits: torch.Tensor,
        places: torch.Tensor,
        drawings: Sequence[Drawing],
        gates: Sequence[float],
    ) -> torch.Tensor | None:
        """The bias [A, K] of the copied tokens, or None where nothing is copied.

        A copied token that is not among the K candidates takes the place of the least likely one, in ``logits`` and
        ``places``, with its own logit of ``whole`` [A, C].
        """
        bias = None
        for row, (drawing, gate) in enumerate(zip(drawings, gates, strict=True)):
            n, token = drawing.match
            place = token if self._places is None else self._places.get(token, -1)
            if n == 0 or place < 0:
                continue
            at = (places[row] == place).nonzero()
            if len(at):
                column = int(at[0])
            else:
                column = places.shape[1] - 1
                places[row, column], logits[row, column] = place, float(whole[row, place])
            bias = torch.zeros_like(logits) if bias is None else bias
            bias[row, column] = self._by_length[min(self._longest, n)] + gate
        return bias


class ConfidenceStage:
    """The logit w·[h_k; W1[x_{k−1}]] + b of c_k, known before x_k is drawn: it reads nothing later than x_{k−1}.

    Args:
        head: the trained head.
        hidden_size: H.
        embeddings: W1 [V, r], or None when the head was trained without it.
        law: what the law of x_k itself adds, if anything.
    """

    def __init__(
        self, head: ConfidenceHead, hidden_size: int, embeddings: torch.Tensor | None, law: LawConfidence | None
    ) -> None:
        self.law = law
        self._law_weights = (0.0, 0.0, 0.0) if law is None else law.numbers()
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

    def with_law(self, logit: float, odds: float) -> float:
        """The logit with what s_k = ``odds`` says. Raises NumericsError when that is not a finite number."""
        a, b, d = self._law_weights
        if not math.isfinite(odds):
            raise NumericsError("The drafter's logits are not finite numbers; its weights are damaged.")
        return a * logit + b * odds + d


def reads_markov(model: DraftModel) -> bool:
    """Whether the confidence head was trained on [h; W1] rather than on h alone."""
    return model.config.confidence_head_with_markov and model.config.markov_rank > 0


def _sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, logit))))
