"""CPU time that this process's threads and Chromium's processes have taken, as Linux counts it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
ENGINE_THREADS = ("dspark-engine", "load-sensor")  # they work the same without any page


def _taken_s(stat: Path) -> float:
    """User and system time of a process or thread; 0.0 when it is gone."""
    try:
        fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _kind(pid: int) -> str | None:
    """What a process of Chromium's is for; None for other programs'."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").split(" ")
    except OSError:
        return None
    if "chrom" not in words[0]:
        return None
    named = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
    return named.get("utility-sub-type", named.get("type", "browser")).split(".")[0]


def _descendants() -> list[int]:
    """All processes below this one."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def cpu_s() -> dict[str, float]:
    """Seconds so far: ``page threads`` of this process (all but the engine's and the main thread, which measures), and
    each kind of Chromium's processes below it.

    Threads that Python does not know are torch's, and count as the engine's.
    """
    me = Path("/proc/self")
    known = {thread.native_id: thread for thread in threading.enumerate()}
    apart = 0.0
    for task in (me / "task").iterdir():
        thread = known.get(int(task.name))
        if thread is None or thread is threading.main_thread() or thread.name in ENGINE_THREADS:
            apart += _taken_s(task / "stat")
    seconds = {"page threads": _taken_s(me / "stat") - apart}
    for pid in _descendants():
        kind = _kind(pid)
        if kind is not None:
            seconds[kind] = seconds.get(kind, 0.0) + _taken_s(Path(f"/proc/{pid}/stat"))
    return seconds


def cpu_since(before: dict[str, float]) -> dict[str, float]:
    """What `cpu_s` has grown by, the largest first."""
    grown = {kind: seconds - before.get(kind, 0.0) for kind, seconds in cpu_s().items()}
    return dict(sorted(grown.items(), key=lambda item: -item[1]))
