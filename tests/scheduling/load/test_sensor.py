"""The sensor: it answers at once, whatever its driver does."""

import threading
import time

import pytest

from dspark_core.events import LoadSample
from dspark_core.scheduling.load import open_load_sensor
from dspark_core.scheduling.load.card import GpuChoice
from dspark_core.scheduling.load.nvml import NvmlProbe
from dspark_core.scheduling.load.sensor import SampledSensor
from tests.scheduling.load.fake_nvml import OTHER, Clock, installed


@pytest.fixture
def nvml(monkeypatch):
    return installed(monkeypatch)


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
    sensor = SampledSensor(NvmlProbe(GpuChoice(), retry_after_s=0.01), interval_s=0.001)
    _wait_until(lambda: sensor.sample().utilisation == 0.37)
    nvml.dead = "GPU is lost"
    _wait_until(lambda: sensor.sample().utilisation is None)
    assert "GPU is lost" in sensor.sample().note
    nvml.dead = None
    _wait_until(lambda: sensor.sample().utilisation == 0.37)
    sensor.close()


def test_a_probe_that_breaks_its_promise_takes_only_its_own_figures(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    class Broken(SlowProbe):
        def read(self):
            raise RuntimeError("a fault of ours")

    clock = Clock()
    sensor = SampledSensor(Broken(), interval_s=0.001, stale_after_s=2, clock=clock)
    clock.now += 3
    assert sensor.sample().note == "not available: no answer for 3 s"
    sensor.close()


@pytest.mark.parametrize(
    ("device", "source", "note"),
    [
        ("cpu", "CPU", ""),
        ("cuda", "GPU 0 (Card X)", ""),
        ("cuda:1", "GPU 1 (Card X)", ""),
        ("mps", "CPU", "no load sensor for mps: this is the CPU's load"),
    ],
)
def test_the_device_chooses_what_is_measured(nvml, device, source, note):
    sensor = open_load_sensor(device)
    _wait_until(lambda: sensor.sample().note != "not measured yet")
    assert sensor.sample().source == source
    assert note in sensor.sample().note
    assert nvml.opened_with == ([int(device == "cuda:1")] if device.startswith("cuda") else [])
    sensor.close()


def test_a_known_uuid_goes_before_the_number(nvml):
    sensor = open_load_sensor("cuda:0", uuid=OTHER.removeprefix("GPU-"))
    _wait_until(lambda: sensor.sample().utilisation == 0.37)
    assert nvml.opened_with == [OTHER]
    sensor.close()
