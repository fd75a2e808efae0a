"""A stand-in for the module ``pynvml`` with one switch for each way to fail, and a clock that tests move."""

import sys
from types import SimpleNamespace

CARD = "GPU-11112222-3333-4444-5555-666677778888"
OTHER = "GPU-1111ffff-3333-4444-5555-666677778888"
SLICE = "MIG-9999aaaa-3333-4444-5555-666677778888"


class FakeNvml:
    """Two cards, and a MIG slice that is found by its UUID only."""

    class NVMLError(Exception):
        pass

    def __init__(self):
        self.init_error = None
        self.dead = None
        self.unsupported = set()
        self.uuids = [CARD, OTHER]
        self.opened_with = []
        self.inits = 0
        self.shutdowns = 0
        self.energy_mj = 5_000_000

    def nvmlInit(self):  # noqa: N802  (NVML's own spelling, here and below)
        self.inits += 1
        if self.init_error:
            raise self.NVMLError(self.init_error)

    def nvmlShutdown(self):  # noqa: N802
        self.shutdowns += 1
        self._answer("shutdown", None)

    def nvmlDeviceGetCount(self):  # noqa: N802
        return len(self.uuids)

    def nvmlDeviceGetUUID(self, handle):  # noqa: N802
        return handle

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        if uuid not in (*self.uuids, SLICE):
            raise self.NVMLError("Not Found")
        self.opened_with.append(uuid)
        return uuid

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        if not 0 <= index < len(self.uuids):
            raise self.NVMLError("Invalid Argument")
        self.opened_with.append(index)
        return self.uuids[index]

    def nvmlDeviceGetName(self, handle):  # noqa: ARG002, N802
        return self._answer("name", b"Card X")

    def nvmlDeviceGetUtilizationRates(self, handle):  # noqa: ARG002, N802
        return self._answer("utilisation", SimpleNamespace(gpu=37))

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: ARG002, N802
        return self._answer("memory", SimpleNamespace(used=3, total=8))

    def nvmlDeviceGetPowerUsage(self, handle):  # noqa: ARG002, N802
        return self._answer("power", 123_000)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: ARG002, N802
        return self._answer("energy", self.energy_mj)

    def _answer(self, what, value):
        if self.dead:
            raise self.NVMLError(self.dead)
        if what in self.unsupported:
            raise self.NVMLError("Not Supported")
        return value


def installed(monkeypatch):
    """A fake driver in place of the real one, with no card hidden."""
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


class Clock:
    """Seconds that only tests move."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now
