"""How much of the machine other processes use while something is measured."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


class OtherWork:
    """Counts from when it is made: CPU of the machine that neither this process nor any below it used."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._before = _busy_ticks() - _own_ticks()

    @property
    def elapsed_s(self) -> float:
        """Wall seconds since then."""
        return time.perf_counter() - self._began

    def cores(self) -> float:
        """How many cores it kept busy, in the mean."""
        return max(0.0, (_busy_ticks() - _own_ticks() - self._before) / _TICKS / max(self.elapsed_s, 0.01))


def _busy_ticks() -> int:
    user, nice, system, _idle, _waiting, *rest = map(int, Path("/proc/stat").read_text().split(None, 9)[1:9])
    return user + nice + system + sum(rest)


def _own_ticks() -> int:
    """CPU of this process and all below it, and of what these have waited for."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            pid = int(entry.name)
            parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    return sum(ticks[pid] for pid in ticks if _is_ours(pid, parents))


def _is_ours(pid: int, parents: dict[int, int]) -> bool:
    while pid != os.getpid():
        if pid not in parents:
            return False
        pid = parents[pid]
    return True
