"""The front of speed against waste."""

from __future__ import annotations

from collections.abc import Sequence


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points (gain, cost) that no other point beats, by falling gain.

    A point is beaten by one that gains at least as much at no more cost, and is better in one of them. Equal points
    stand or fall together.
    """
    order = sorted(range(len(points)), key=lambda at: (-points[at][0], points[at][1]))
    kept: list[int] = []
    cheapest = float("inf")
    for at in order:
        gain, cost = points[at]
        equal = bool(kept) and points[kept[-1]] == (gain, cost)
        if cost < cheapest or equal:
            kept.append(at)
            cheapest = min(cheapest, cost)
    return kept
