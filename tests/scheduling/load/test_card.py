"""Which card NVML is asked about: by UUID where one is known, else as CUDA_VISIBLE_DEVICES maps CUDA's number."""

import pytest

from dspark_core.scheduling.load.card import GpuChoice
from tests.scheduling.load.fake_nvml import CARD, OTHER, SLICE, installed


@pytest.fixture
def nvml(monkeypatch):
    return installed(monkeypatch)


def handle(nvml, choice, visible=None):
    return choice.handle(nvml, {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})


@pytest.mark.parametrize(
    ("choice", "visible", "card"),
    [
        (GpuChoice(1), None, OTHER),
        (GpuChoice(0), "1,0", OTHER),
        (GpuChoice(1), "1, 0", CARD),
        (GpuChoice(0), "1,-1,0", OTHER),
        (GpuChoice(0), OTHER, OTHER),
        (GpuChoice(1), f"{OTHER},{CARD}", CARD),
        (GpuChoice(0), "GPU-1111f", OTHER),
        (GpuChoice(0), SLICE, SLICE),
        (GpuChoice(0, CARD), "1", CARD),
        (GpuChoice(0, CARD.removeprefix("GPU-")), "1", CARD),
        (GpuChoice(0, SLICE), SLICE, SLICE),
        (GpuChoice(0, SLICE.removeprefix("MIG-")), SLICE, SLICE),
    ],
)
def test_the_card_is_found_by_uuid_or_through_cuda_visible_devices(nvml, choice, visible, card):
    assert handle(nvml, choice, visible) == card


@pytest.mark.parametrize("visible", ["", "1,-1,0", "1,,0"])
def test_a_card_that_cuda_hides_is_not_looked_up(nvml, visible):
    with pytest.raises(LookupError, match="CUDA_VISIBLE_DEVICES="):
        handle(nvml, GpuChoice(1), visible)
    assert nvml.opened_with == []


@pytest.mark.parametrize("choice", [GpuChoice(0, "GPU-none"), GpuChoice(0, "none"), GpuChoice(7)])
def test_a_card_that_the_driver_does_not_know_is_the_drivers_error(nvml, choice):
    with pytest.raises(nvml.NVMLError):
        handle(nvml, choice)


def test_the_beginning_of_two_uuids_names_no_card(nvml):
    with pytest.raises(nvml.NVMLError, match="Not Found"):
        handle(nvml, GpuChoice(0), "GPU-1111")
