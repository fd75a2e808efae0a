"""The CPU probe: labelled figures of the whole machine, and a psutil that is not there."""

import sys

from dspark_core.scheduling.load.cpu import CpuProbe


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
    assert (first.source, first.kind, first.utilisation) == ("CPU", "cpu", None)
    assert (second.power_w, second.energy_j, second.note) == (None, None, "power and energy are not measured on a CPU")
    assert first.note.startswith("utilisation not available yet; ")
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
