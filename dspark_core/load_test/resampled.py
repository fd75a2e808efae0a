"""Figures of all lanes at one number of users, with 95 % intervals over the choice of repeats and of questions.

Source of the intervals: `bootstrap.clustered_weights`, with the repeats as clusters and their answers as items. Every
resample takes the same repeats and questions in all lanes, so ratios of lanes are paired.

Symbols: W resamples, K places in the repeats' orders of questions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dspark_core.bench.bootstrap import clustered_weights, interval_95
from dspark_core.load_test.figures import NOTHING, Array, Share, Sums, counted, quantile, shares, starting
from dspark_core.load_test.trace import AnswerTrace, CellTrace


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure and its 95 % interval; None where nothing, or too little, was observed."""

    value: float | None
    interval: tuple[float, float] | None

    @classmethod
    def of(cls, value: Array, resampled: Array) -> Figure:
        """From the figure [1] and what it came to in the resamples [W]."""
        measured = float(value[0])
        if not np.isfinite(measured):
            return cls(None, None)
        return cls(measured, interval_95(resampled) if len(resampled) and np.isfinite(resampled).all() else None)


class Level:
    """All lanes at one number of users.

    Args:
        cells: lane → its cells, one a repeat; all lanes have the same repeats.
        kind: only the answers to prompts of that set; None for all. The window is that of all either way.
    """

    def __init__(self, cells: Mapping[str, Sequence[CellTrace]], kind: str | None = None) -> None:
        self._cells = cells
        self._by_lane = {lane: [_shares_of(cell, kind) for cell in of] for lane, of in cells.items()}
        repeats = range(max(map(len, cells.values())))
        everywhere = [sorted({i for of in self._by_lane.values() for i in of[repeat]}) for repeat in repeats]
        self._places = [(repeat, index) for repeat in repeats for index in everywhere[repeat]]
        self._column = {place: column for column, place in enumerate(self._places)}
        one_item = len(self._places) < 2
        self._draws = np.zeros((0, len(self._places))) if one_item else clustered_weights(list(map(len, everywhere)))
        self._all = np.ones((1, len(self._places)))

    def figure(self, lane: str, name: str) -> Figure:
        """One of `figures.SUM_FIGURES` of a lane."""
        return self.combined([lane], lambda sums: getattr(sums[0], name))

    def combined(self, lanes: Sequence[str], figure: Callable[[list[Sums]], Array]) -> Figure:
        """A figure made of several lanes' sums, which come in the order of ``lanes``."""
        return Figure.of(figure(self._sums(lanes, self._all)), figure(self._sums(lanes, self._draws)))

    def of_answers(self, lane: str, value: Callable[[AnswerTrace], float | None], q: float) -> Figure:
        """The quantile q of a value of the lane's counted answers (`figures.counted`) that have it."""
        return self._quantile(
            [
                (self._column[repeat, answer.index], seconds)
                for repeat, cell in enumerate(self._cells[lane])
                for answer in counted(cell)
                if (seconds := value(answer)) is not None and (repeat, answer.index) in self._column
            ],
            q,
        )

    def first_of_all(self, lane: str, q: float) -> float | None:
        """The quantile q of the time to first token when all users ask at the same moment (`figures.starting`)."""
        times = [
            answer.first_token_s
            for cell in self._cells[lane]
            for answer in starting(cell)
            if answer.first_token_s is not None
        ]
        found = float(quantile(np.array(times), np.ones((1, len(times))), q)[0])
        return found if np.isfinite(found) else None

    def _quantile(self, values: Sequence[tuple[int, float]], q: float) -> Figure:
        columns = [column for column, _ in values]
        known = np.array([value for _, value in values])
        return Figure.of(
            quantile(known, self._all[:, columns], q),
            quantile(known, self._draws[:, columns], q),
        )

    def _sums(self, lanes: Sequence[str], weights: Array) -> list[Sums]:
        return [Sums(weights @ self._matrix(lane)) for lane in lanes]

    def _matrix(self, lane: str) -> Array:
        """The lane's shares [K, 8]; nothing where it had no answer."""
        rows = [self._by_lane[lane][repeat].get(index, NOTHING) for repeat, index in self._places]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(NOTHING))


def _shares_of(cell: CellTrace, kind: str | None) -> dict[int, Share]:
    kinds = {answer.index: answer.kind for answer in cell.answers}
    return {index: share for index, share in shares(cell).items() if kind in (None, kinds[index])}
