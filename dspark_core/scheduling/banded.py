"""Banded policy: sure tokens pass, doubtful ones do not, and what lies between has to be worth it under the load.

Symbols: c_k own confidence, a_k survival c_1 · … · c_k, λ load from 0 (idle) to 1 (full).
"""

from __future__ import annotations

from collections.abc import Sequence

from dspark_core.events import LoadReading
from dspark_core.params import ScheduleParams
from dspark_core.scheduling.policy import DraftView, Plan, RoundView, confidences_for, without_drafts


class BandedPolicy:
    """L = min(L_max, max(L_min, f)), with f found by walking k upwards, so that nothing later decides about x_k.

    f is the last k before the first that is not admitted, where

    - c_k > ``band_high`` admits x_k,
    - c_k < ``band_low`` stops before it,
    - between them x_k is admitted while a_k ≥ λ.

    So an idle machine verifies all that is not doubtful, a full one only what is sure, and between the bar on the
    survival rises with the load. λ is what the schedule's ``load_signal`` names. Where that is not available now, the
    round is judged as if the machine were idle, and its reason says so and why: a sensor that fails must not end an
    answer, and idle loses no draft that is not doubtful. The bands act from L_min on. Non-anticipating: λ is known
    before the round, c_k before x_k is drawn.
    """

    name = "banded"
    needs_confidence = True
    needs_curve = False

    def plan(self, views: Sequence[DraftView], around: RoundView) -> list[Plan]:
        """One ℓ a view. Raises ParameterError when a drafter gives no confidences."""
        return [self._plan_one(view, around) for view in views]

    def goes_on(self, confidences: Sequence[float], schedule: ScheduleParams, around: RoundView) -> bool:
        """Up to L_min in any case, then as the bands say, and never beyond L_max."""
        if len(confidences) > schedule.l_max:
            return False
        view = DraftView(len(confidences), tuple(confidences), schedule, len(confidences))
        return _first_cut(view, around) is None

    @staticmethod
    def _plan_one(view: DraftView, around: RoundView) -> Plan:
        nothing = without_drafts(view)
        if nothing is not None:
            return nothing
        confidences_for(BandedPolicy.name, view)
        reading = around.reading(view.schedule)
        cut = _first_cut(view, around)
        if cut is None:
            return Plan(view.upper, f"{_said(reading)}: every x_k is admitted up to {view.upper_reason}", reading)
        length, why = cut
        unknown = f"; {_said(reading)}" if reading.value is None else ""
        return Plan(length, f"cut at {length}: {why}{unknown}", reading)


def _first_cut(view: DraftView, around: RoundView) -> tuple[int, str] | None:
    """ℓ and why x_{ℓ+1} is not admitted; None when everything is."""
    low, high = view.schedule.band_low, view.schedule.band_high
    reading = around.reading(view.schedule)
    bar = 0.0 if reading.value is None else reading.value
    confidences, survivals = view.confidences or (), view.survivals
    for k in range(view.lower, view.num_judged):
        confidence, survival = confidences[k], survivals[k]
        if confidence > high:
            continue
        if not confidence >= low:  # NaN too
            return k, f"c_{k + 1} {confidence:.2f} < {low:.2f}"
        if survival < bar:
            return k, f"c_{k + 1} {confidence:.2f} ≤ {high:.2f} and a_{k + 1} {survival:.2f} < {_said(reading)}"
    return None


def _said(reading: LoadReading) -> str:
    """λ in words, with its name: "simulated" is one."""
    if reading.value is None:
        why = reading.note.removeprefix("not available: ")
        return f"load not available ({reading.signal}: {why}), judged as if idle"
    return f"load {reading.value:.2f} ({reading.signal})"
