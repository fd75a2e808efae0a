"""How busy the hardware is. A background thread asks the driver; whoever asks the sensor never waits or fails."""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dspark_core.events import LoadSample

INTERVAL_S = 0.2
STALE_AFTER_S = 2.0
RETRY_AFTER_S = 10.0


class LoadSensor(Protocol):
    """A source of load samples."""

    def sample(self) -> LoadSample:
        """The latest sample, at once. Never raises: what is not available is None, and ``note`` says why."""

    def close(self) -> None:
        """Stop measuring; may be called twice."""


class Probe(Protocol):
    """Measures once, in the sensor's thread; it may wait for a driver, but it never raises."""

    def idle(self) -> LoadSample:
        """What to show before anything was measured: the source, without figures."""

    def read(self) -> LoadSample:
        """Measure now."""

    def close(self) -> None:
        """Let go of the driver."""


class NoSensor:
    """Measures nothing and says why."""

    def __init__(self, why: str = "no load sensor") -> None:
        self._sample = LoadSample(source="none", kind="none", note=why)

    def sample(self) -> LoadSample:
        """Always the same sample without figures."""
        return self._sample

    def close(self) -> None:
        """Nothing to stop."""


class SampledSensor:
    """Reads a probe about five times a second in a daemon thread and hands out the latest sample.

    Args:
        probe: what to read.
        interval_s: seconds between two readings.
        stale_after_s: a sample older than that is no longer shown: the driver hangs.
        clock: seconds that only ever rise.
    """

    def __init__(
        self,
        probe: Probe,
        *,
        interval_s: float = INTERVAL_S,
        stale_after_s: float = STALE_AFTER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._probe = probe
        self._interval_s = interval_s
        self._stale_after_s = stale_after_s
        self._clock = clock
        self._latest = (clock(), replace(probe.idle(), note="not measured yet"))
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load-sensor", daemon=True)
        self._thread.start()

    def sample(self) -> LoadSample:
        """The latest sample; without figures when it is too old or the sensor is closed."""
        taken_at, sample = self._latest
        age_s = self._clock() - taken_at
        if self._closed.is_set():
            return replace(self._probe.idle(), note="not available: the sensor is closed")
        if age_s > self._stale_after_s:
            return replace(self._probe.idle(), note=f"not available: no answer for {age_s:.0f} s")
        return sample

    def close(self) -> None:
        """Stop the thread; a driver that hangs is left behind after a second."""
        self._closed.set()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        while not self._closed.is_set():
            sample = self._probe.read()
            self._latest = (self._clock(), sample)
            self._closed.wait(self._interval_s)
        self._probe.close()


class CpuProbe:
    """Utilisation and memory of the whole machine, through psutil."""

    def __init__(self, note: str = "") -> None:
        self._note = note or "power is not measured on a CPU"
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
                utilisation=utilisation,
                memory_used_bytes=int(memory.total - memory.available),
                memory_total_bytes=int(memory.total),
            )
        except Exception as error:
            return replace(self.idle(), note=f"not available: {_reason(error)}")

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


class CpuSensor(SampledSensor):
    """The CPU's load, labelled "CPU"."""

    def __init__(self, note: str = "", **options: Any) -> None:
        super().__init__(CpuProbe(note), **options)


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """Which card to measure.

    Attributes:
        index: number of the card as CUDA counts it in this process.
        uuid: the card's UUID if known ("GPU-…", or bare), which NVML and CUDA agree on whatever their order.
    """

    index: int = 0
    uuid: str | None = None

    def nvml_key(self, environment: Mapping[str, str]) -> str | int:
        """The UUID, or else NVML's number of the card, as CUDA_VISIBLE_DEVICES maps it.

        Numbers agree only when CUDA counts in bus order (one card, or CUDA_DEVICE_ORDER=PCI_BUS_ID); so a known UUID
        goes first. Raises LookupError when CUDA_VISIBLE_DEVICES has no such card.
        """
        if self.uuid:
            return self.uuid if self.uuid.startswith(("GPU-", "MIG-")) else f"GPU-{self.uuid}"
        visible = environment.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            return self.index
        cards = [card.strip() for card in visible.split(",") if card.strip()]
        if self.index >= len(cards):
            raise LookupError(f"CUDA_VISIBLE_DEVICES={visible!r} has no card {self.index}")
        card = cards[self.index]
        return int(card) if card.lstrip("-").isdigit() else card


class NvmlProbe:
    """One NVIDIA card through NVML: utilisation, memory, power. Survives a driver that is missing, dies or returns.

    NVML's utilisation is the share of time in which *some* kernel ran: one busy stream shows nearly 100 %.

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

    def idle(self) -> LoadSample:
        """The card's label alone."""
        return LoadSample(source=self._source, kind="gpu")

    def read(self) -> LoadSample:
        """Measure; single figures that the card does not give are None with a note."""
        if self._handle is None and self._clock() < self._retry_at:
            return self._lost
        try:
            if self._handle is None:
                self._open()
            return self._measure()
        except Exception as error:  # a driver's binding raises anything: missing symbols, library errors, its own
            self.close()
            self._retry_at = self._clock() + self._retry_after_s
            self._lost = replace(self.idle(), note=f"not available: {_reason(error)}")
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
        key = self._choice.nvml_key(os.environ)
        by_uuid = isinstance(key, str)
        handle = nvml.nvmlDeviceGetHandleByUUID(key) if by_uuid else nvml.nvmlDeviceGetHandleByIndex(key)
        name = nvml.nvmlDeviceGetName(handle)
        self._source = f"GPU {self._choice.index} ({name.decode() if isinstance(name, bytes) else name})"
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
        if not figures:
            raise missing["utilisation"]  # nothing answers: the driver is lost, not a single figure unsupported
        note = "; ".join(f"{what} not available: {_reason(error)}" for what, error in missing.items())
        return replace(self.idle(), note=note, **figures)


class NvmlSensor(SampledSensor):
    """One NVIDIA card's load."""

    def __init__(self, choice: GpuChoice, *, retry_after_s: float = RETRY_AFTER_S, **options: Any) -> None:
        super().__init__(NvmlProbe(choice, retry_after_s=retry_after_s), **options)


def open_load_sensor(device: str, *, uuid: str | None = None) -> LoadSensor:
    """The sensor for a torch device given as text ("cpu", "cuda", "cuda:1", …).

    Args:
        device: where the model runs. Devices without a sensor of their own get the CPU's, and the note says so.
        uuid: the CUDA card's UUID where the caller knows it (``torch.cuda.get_device_properties(i).uuid``).
    """
    kind, _, number = device.partition(":")
    if kind == "cuda":
        return NvmlSensor(GpuChoice(int(number) if number.isdigit() else 0, uuid))
    return CpuSensor("" if kind == "cpu" else f"no load sensor for {kind}: this is the CPU's load")


def _reason(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"the Python module {error.name} is not installed"
    return str(error) or type(error).__name__
