"""How busy the hardware and the engine are. Whoever asks never waits and never fails."""

from __future__ import annotations

from dspark_core.scheduling.load.card import GpuChoice
from dspark_core.scheduling.load.cpu import CpuProbe
from dspark_core.scheduling.load.nvml import NvmlProbe
from dspark_core.scheduling.load.sensor import LoadSensor, SampledSensor

__all__ = ["LoadSensor", "open_load_sensor"]


def open_load_sensor(device: str, *, uuid: str | None = None) -> LoadSensor:
    """The sensor for a torch device given as text ("cpu", "cuda", "cuda:1", …).

    Args:
        device: where the model runs. Devices without a sensor of their own get the CPU's, and the note says so.
        uuid: the CUDA card's UUID where the caller knows it (``torch.cuda.get_device_properties(i).uuid``).
    """
    kind, _, number = device.partition(":")
    if kind == "cuda":
        return SampledSensor(NvmlProbe(GpuChoice(int(number) if number.isdigit() else 0, uuid)))
    return SampledSensor(CpuProbe("" if kind == "cpu" else f"no load sensor for {kind}: this is the CPU's load"))
