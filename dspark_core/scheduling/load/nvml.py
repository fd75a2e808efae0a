"""The NVML probe: one NVIDIA card's utilisation, memory, power and energy."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dspark_core.events import LoadSample
from dspark_core.scheduling.load.card import GpuChoice
from dspark_core.scheduling.load.sensor import reason_of

RETRY_AFTER_S = 10.0


class NvmlProbe:
    """Survives a driver that is missing, of another version, dies or returns; what it does not give is None.

    NVML's utilisation is the share of time in which *some* kernel ran: one busy stream shows nearly 100 %. Energy is
    counted from the probe's first reading on.

    Args:
        choice: which card.
        retry_after_s: seconds until a lost driver is tried again.
        clock: seconds that only ever rise.
    """

    def __init__(
        self,
        choice: GpuChoice,
        *,
        retry_after_s: float = RETRY_AFTER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._choice = choice
        self._retry_after_s = retry_after_s
        self._clock = clock
        self._source = f"GPU {choice.index}"
        self._nvml: Any = None
        self._handle: Any = None
        self._lost = LoadSample(self._source, "gpu")
        self._retry_at = -float("inf")
        self._energy_j = 0.0
        self._counter_mj: int | None = None

    def idle(self) -> LoadSample:
        """The card's label alone."""
        return LoadSample(source=self._source, kind="gpu")

    def read(self) -> LoadSample:
        """Measure; single figures that the card or its driver does not give are None with a note."""
        if self._handle is None and self._clock() < self._retry_at:
            return self._lost
        try:
            if self._handle is None:
                self._open()
            return self._measure()
        except Exception as error:  # a driver's binding raises anything: missing symbols, library errors, its own
            self.close()
            self._retry_at = self._clock() + self._retry_after_s
            self._lost = replace(self.idle(), note=f"not available: {reason_of(error)}")
            return self._lost

    def close(self) -> None:
        """Let go of NVML, whatever state it is in."""
        nvml, self._nvml, self._handle = self._nvml, None, None
        if nvml is not None:
            try:
                nvml.nvmlShutdown()
            except Exception:
                return  # it is gone already

    def _open(self) -> None:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        self._nvml = nvml
        handle = self._choice.handle(nvml, os.environ)
        try:
            name = nvml.nvmlDeviceGetName(handle)
            self._source = f"GPU {self._choice.index} ({name.decode() if isinstance(name, bytes) else name})"
        except Exception:  # a driver without names may still give figures
            self._source = f"GPU {self._choice.index}"
        self._handle = handle

    def _measure(self) -> LoadSample:
        nvml, handle = self._nvml, self._handle
        figures: dict[str, Any] = {}
        missing: dict[str, Exception] = {}

        def ask(what: str, question: Callable[[], dict[str, Any]]) -> None:
            try:
                figures.update(question())
            except Exception as error:
                missing[what] = error

        def memory() -> dict[str, Any]:
            info = nvml.nvmlDeviceGetMemoryInfo(handle)
            return {"memory_used_bytes": int(info.used), "memory_total_bytes": int(info.total)}

        ask("utilisation", lambda: {"utilisation": nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100})
        ask("memory", memory)
        ask("power", lambda: {"power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000})
        ask("energy", lambda: {"energy_j": self._energy(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))})
        if not figures:
            raise missing["utilisation"]  # nothing answers: the driver is lost, not a single figure unsupported
        note = "; ".join(f"{what} not available: {reason_of(error)}" for what, error in missing.items())
        return replace(self.idle(), note=note, **figures)

    def _energy(self, counter_mj: int) -> float:
        """Joules since the first reading. The card counts millijoules since its driver came up: then from 0 again."""
        before, self._counter_mj = self._counter_mj, counter_mj
        if before is not None:
            self._energy_j += (counter_mj - before if counter_mj >= before else counter_mj) / 1000
        return self._energy_j
