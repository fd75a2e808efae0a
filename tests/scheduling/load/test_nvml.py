"""The NVML probe: labelled figures, reasons instead of exceptions, and drivers that misbehave."""

import sys

import pytest

from dspark_core.events import LoadSample
from dspark_core.scheduling.load.card import GpuChoice
from dspark_core.scheduling.load.nvml import NvmlProbe
from tests.scheduling.load.fake_nvml import CARD, OTHER, Clock, FakeNvml, installed


@pytest.fixture
def nvml(monkeypatch):
    return installed(monkeypatch)


def test_a_healthy_card_gives_all_figures_with_its_name(nvml):
    sample = NvmlProbe(GpuChoice()).read()
    assert sample == LoadSample("GPU 0 (Card X)", "gpu", 0.37, 3, 8, 123.0, "", energy_j=0.0)
    assert nvml.opened_with == [0]


def test_the_card_is_asked_for_by_its_uuid_also_where_cuda_counts_otherwise(nvml, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert NvmlProbe(GpuChoice(0, CARD)).read().utilisation == 0.37
    assert NvmlProbe(GpuChoice(0)).read().utilisation == 0.37
    assert nvml.opened_with == [CARD, 1]
    assert OTHER not in nvml.opened_with


def test_energy_counts_from_the_first_reading_and_over_a_driver_that_came_up_again(nvml):
    probe = NvmlProbe(GpuChoice())
    assert probe.read().energy_j == 0
    nvml.energy_mj += 2500
    assert probe.read().energy_j == 2.5
    nvml.energy_mj = 1000  # the driver was loaded again: its counter began anew
    assert probe.read().energy_j == 3.5
    nvml.energy_mj += 500
    assert probe.read().energy_j == 4.0


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


FIGURES = {
    "utilisation": ("utilisation", "nvmlDeviceGetUtilizationRates"),
    "memory": ("memory_used_bytes", "nvmlDeviceGetMemoryInfo"),
    "power": ("power_w", "nvmlDeviceGetPowerUsage"),
    "energy": ("energy_j", "nvmlDeviceGetTotalEnergyConsumption"),
}


def without(sample):
    return [name for name, (field, _) in FIGURES.items() if getattr(sample, field) is None]


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_the_card_does_not_give_is_none_with_a_note_and_the_others_stay(nvml, name):
    nvml.unsupported = {name}
    sample = NvmlProbe(GpuChoice()).read()
    assert sample.note == f"{name} not available: Not Supported"
    assert without(sample) == [name]


@pytest.mark.parametrize("name", FIGURES)
def test_a_driver_of_a_version_without_a_function_gives_the_other_figures(nvml, monkeypatch, name):  # noqa: ARG001
    function = FIGURES[name][1]
    monkeypatch.delattr(FakeNvml, function)
    sample = NvmlProbe(GpuChoice()).read()
    assert without(sample) == [name]
    assert function in sample.note


def test_a_driver_without_the_cards_name_gives_its_figures(nvml):
    nvml.unsupported = {"name"}
    sample = NvmlProbe(GpuChoice()).read()
    assert (sample.source, sample.utilisation, sample.note) == ("GPU 0", 0.37, "")


def test_any_other_exception_of_the_binding_is_a_reason_too(nvml, monkeypatch):
    monkeypatch.delattr(FakeNvml, "nvmlInit")
    sample = NvmlProbe(GpuChoice()).read()
    assert "nvmlInit" in sample.note
    assert nvml.inits == 0


def test_a_hidden_card_is_a_reason(nvml, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES" in NvmlProbe(GpuChoice()).read().note
    assert nvml.opened_with == []
