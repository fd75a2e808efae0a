"""The CPU probe: how busy the whole machine is, through psutil."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

from dspark_core.events import LoadSample
from dspark_core.scheduling.load.sensor import reason_of


class CpuProbe:
    """Utilisation and memory of the whole machine, through psutil."""

    def __init__(self, note: str = "") -> None:
        self._note = note or "power and energy are not measured on a CPU"
        self._last_times: tuple[float, float] | None = None

    def idle(self) -> LoadSample:
        """The label alone."""
        return LoadSample(source="CPU", kind="cpu", note=self._note)

    def read(self) -> LoadSample:
        """Utilisation since the reading before (None the first time), and the memory now."""
        try:
            psutil = importlib.import_module("psutil")
            utilisation = self._utilisation(psutil.cpu_times())
            memory = psutil.virtual_memory()
            return replace(
                self.idle(),
                note=self._note if utilisation is not None else f"utilisation not available yet; {self._note}",
                utilisation=utilisation,
                memory_used_bytes=int(memory.total - memory.available),
                memory_total_bytes=int(memory.total),
            )
        except Exception as error:
            return replace(self.idle(), note=f"not available: {reason_of(error)}")

    def close(self) -> None:
        """Nothing is held."""

    def _utilisation(self, times: Any) -> float | None:
        waiting: float = times.idle + getattr(times, "iowait", 0.0)
        counted_elsewhere = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # in user and nice too
        total: float = sum(times) - counted_elsewhere
        before, self._last_times = self._last_times, (total, waiting)
        if before is None or total <= before[0]:
            return None
        return min(1.0, max(0.0, 1.0 - (waiting - before[1]) / (total - before[0])))
