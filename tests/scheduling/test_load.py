"""The load sensors: labelled figures, reasons instead of exceptions, and drivers that misbehave."""

import sys
import threading
import time
from types import SimpleNamespace

import pytest

from dspark_core.events import LoadSample
from dspark_core.scheduling.load import (
    CpuProbe,
    CpuSensor,
    GpuChoice,
    NoSensor,
    NvmlProbe,
    NvmlSensor,
    SampledSensor,
    open_load_sensor,
)


class FakeNvml:
    """A stand-in for the module ``pynvml`` with one switch per way to fail."""

    class NVMLError(Exception):
        pass

    def __init__(self):
        self.init_error = None
        self.dead = None
        self.unsupported = set()
        self.opened_with = []
        self.inits = 0
        self.shutdowns = 0

    def nvmlInit(self):  # noqa: N802  (NVML's own spelling, here and below)
        self.inits += 1
        if self.init_error:
            raise self.NVMLError(self.init_error)

    def nvmlShutdown(self):  # noqa: N802
        self.shutdowns += 1
        self._answer("shutdown", None)

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        self.opened_with.append(uuid)
        return "handle"

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        self.opened_with.append(index)
        return "handle"

    def nvmlDeviceGetName(self, handle):  # noqa: ARG002, N802
        return b"Card X"

    def nvmlDeviceGetUtilizationRates(self, handle):  # noqa: ARG002, N802
        return self._answer("utilisation", SimpleNamespace(gpu=37))

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: ARG002, N802
        return self._answer("memory", SimpleNamespace(used=3, total=8))

    def nvmlDeviceGetPowerUsage(self, handle):  # noqa: ARG002, N802
        return self._answer("power", 123_000)

    def _answer(self, what, value):
        if self.dead:
            raise self.NVMLError(self.dead)
        if what in self.unsupported:
            raise self.NVMLError("Not Supported")
        return value


@pytest.fixture
def nvml(monkeypatch):
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_healthy_card_gives_all_figures_with_its_name(nvml):
    sample = NvmlProbe(GpuChoice()).read()
    assert sample == LoadSample("GPU 0 (Card X)", "gpu", 0.37, 3, 8, 123.0, "")
    assert nvml.opened_with == [0]


def test_a_missing_module_is_a_reason_and_no_exception(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    sample = NvmlProbe(GpuChoice(1)).read()
    assert (sample.source, sample.kind, sample.utilisation) == ("GPU 1", "gpu", None)
    assert sample.note.startswith("not available: ")
    assert "pynvml" in sample.note


@pytest.mark.parametrize("error", ["NVML Shared Library Not Found", "RM has detected an NVML/RM version mismatch."])
def test_a_driver_that_does_not_start_is_a_reason_and_is_tried_again_later(nvml, error):
    nvml.init_error = error
    clock = Clock()
    probe = NvmlProbe(GpuChoice(), retry_after_s=10, clock=clock)
    assert probe.read().note == f"not available: {error}"
    clock.now += 9
    probe.read()
    assert nvml.inits == 1
    nvml.init_error = None
    clock.now += 2
    assert probe.read().utilisation == 0.37
    assert nvml.inits == 2


def test_a_driver_that_dies_in_mid_run_is_let_go_and_recovers(nvml):
    clock = Clock()
    probe = NvmlProbe(GpuChoice(), retry_after_s=10, clock=clock)
    assert probe.read().utilisation == 0.37
    nvml.dead = "GPU is lost"
    sample = probe.read()
    assert sample == LoadSample("GPU 0 (Card X)", "gpu", note="not available: GPU is lost")
    assert nvml.shutdowns == 1
    clock.now += 5
    assert probe.read() == sample
    nvml.dead = None
    assert probe.read() == sample, "a lost driver is not hammered"
    clock.now += 6
    assert probe.read().utilisation == 0.37


@pytest.mark.parametrize(
    ("unsupported", "lost_field"),
    [("power", "power_w"), ("utilisation", "utilisation"), ("memory", "memory_used_bytes")],
)
def test_a_figure_the_card_does_not_give_is_none_with_a_note_and_the_others_stay(nvml, unsupported, lost_field):
    nvml.unsupported = {unsupported}
    sample = NvmlProbe(GpuChoice()).read()
    assert sample.note == f"{unsupported} not available: Not Supported"
    figures = {name: getattr(sample, name) for name in ("utilisation", "memory_used_bytes", "power_w")}
    assert [name for name, value in figures.items() if value is None] == [lost_field]


def test_any_other_exception_of_the_binding_is_a_reason_too(nvml, monkeypatch):
    monkeypatch.delattr(FakeNvml, "nvmlInit")
    sample = NvmlProbe(GpuChoice()).read()
    assert "nvmlInit" in sample.note
    assert nvml.inits == 0


@pytest.mark.parametrize(
    ("choice", "visible", "key"),
    [
        (GpuChoice(2), None, 2),
        (GpuChoice(0), "3,1", 3),
        (GpuChoice(1), "3, 1", 1),
        (GpuChoice(0), "GPU-abc", "GPU-abc"),
        (GpuChoice(0), "MIG-abc", "MIG-abc"),
        (GpuChoice(0, "abc"), "3", "GPU-abc"),
        (GpuChoice(0, "GPU-abc"), "3", "GPU-abc"),
    ],
)
def test_the_card_is_found_by_uuid_or_through_cuda_visible_devices(nvml, monkeypatch, choice, visible, key):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert NvmlProbe(choice).read().utilisation == 0.37
    assert nvml.opened_with == [key]


def test_a_hidden_card_is_a_reason(nvml, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES" in NvmlProbe(GpuChoice()).read().note
    assert nvml.opened_with == []


def test_the_cpu_is_labelled_and_needs_two_readings_for_a_utilisation(monkeypatch):
    times = iter(
        [
            SimpleTimes(user=10.0, idle=10.0, iowait=0.0),
            SimpleTimes(user=13.0, idle=10.5, iowait=0.5),
            SimpleTimes(user=13.0, idle=10.5, iowait=0.5),
        ]
    )
    monkeypatch.setattr("psutil.cpu_times", lambda: next(times))
    probe = CpuProbe()
    first, second, third = probe.read(), probe.read(), probe.read()
    assert (first.source, first.kind, first.utilisation, first.power_w) == ("CPU", "cpu", None, None)
    assert second.utilisation == 0.75
    assert third.utilisation is None
    assert 0 < second.memory_used_bytes <= second.memory_total_bytes


class SimpleTimes(tuple):
    """Like psutil's named tuple: sums over its parts, and names them."""

    def __new__(cls, **parts):
        made = super().__new__(cls, parts.values())
        made.__dict__.update(parts)
        return made


def test_a_broken_psutil_is_a_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    sample = CpuProbe().read()
    assert (sample.source, sample.utilisation) == ("CPU", None)
    assert sample.note.startswith("not available: ")


class SlowProbe:
    """Hangs in its second reading until told otherwise."""

    def __init__(self):
        self.go_on = threading.Event()
        self.readings = 0
        self.closed = threading.Event()

    def idle(self):
        return LoadSample("GPU 0", "gpu")

    def read(self):
        self.readings += 1
        if self.readings > 1:
            self.go_on.wait(10)
        return LoadSample("GPU 0", "gpu", utilisation=0.5)

    def close(self):
        self.closed.set()


def _wait_until(condition):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "nothing happened in 5 s"
        time.sleep(0.002)


def test_a_hanging_driver_never_makes_the_reader_wait_and_its_last_figures_expire():
    probe, clock = SlowProbe(), Clock()
    sensor = SampledSensor(probe, interval_s=0.001, stale_after_s=2, clock=clock)
    _wait_until(lambda: probe.readings == 2)
    started = time.perf_counter()
    assert sensor.sample().utilisation == 0.5
    clock.now += 3
    stale = sensor.sample()
    assert (stale.utilisation, stale.note) == (None, "not available: no answer for 3 s")
    assert time.perf_counter() - started < 0.5
    probe.go_on.set()
    _wait_until(lambda: sensor.sample().utilisation == 0.5)
    sensor.close()
    assert probe.closed.is_set()
    sensor.close()
    assert sensor.sample().note == "not available: the sensor is closed"


def test_the_sensor_follows_a_card_that_dies_without_an_exception(nvml):
    sensor = NvmlSensor(GpuChoice(), interval_s=0.001, retry_after_s=0.01)
    _wait_until(lambda: sensor.sample().utilisation == 0.37)
    nvml.dead = "GPU is lost"
    _wait_until(lambda: sensor.sample().utilisation is None)
    assert "GPU is lost" in sensor.sample().note
    nvml.dead = None
    _wait_until(lambda: sensor.sample().utilisation == 0.37)
    sensor.close()


@pytest.mark.parametrize(
    ("device", "kind", "note"),
    [("cpu", CpuSensor, ""), ("cuda", NvmlSensor, ""), ("cuda:1", NvmlSensor, ""), ("mps", CpuSensor, "mps")],
)
def test_the_device_chooses_the_sensor(nvml, device, kind, note):
    sensor = open_load_sensor(device)
    assert isinstance(sensor, kind)
    _wait_until(lambda: sensor.sample().note != "not measured yet")
    assert note in sensor.sample().note
    if kind is NvmlSensor:
        assert nvml.opened_with == [1 if device == "cuda:1" else 0]
    sensor.close()


def test_no_sensor_says_why():
    sensor = NoSensor("the engine of a test")
    assert sensor.sample() == LoadSample("none", "none", note="the engine of a test")
    sensor.close()
