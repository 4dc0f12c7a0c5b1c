"""What work costs in all processes of this one's tree: the JVM, Python's daemon and workers, and those that ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds, user and system, and wall seconds of one piece of work.

    Args:
        jvm: of processes called ``java``.
        python: of all others, this one and its workers.
    """

    jvm: float
    python: float
    wall: float

    @property
    def cpu(self) -> float:
        return self.jvm + self.python

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.jvm - other.jvm, self.python - other.python, self.wall - other.wall)


def cpu_of_tree(root: int) -> tuple[float, float]:
    """CPU seconds of a process and all below it, Java's and others': also of children that ended and were waited for.

    A child's time is in its parent's once the parent has waited for it, and in its own entry, be it a zombie's, up to
    then: the sum over the tree neither loses nor repeats any.
    """
    parents: dict[int, int] = {}
    times: dict[int, tuple[str, float]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:  # it ended meanwhile, and its parent is asked instead or has been
            continue
        name = text[text.index("(") + 1 : text.rindex(")")]
        fields = text[text.rindex(")") + 2 :].split()
        parents[int(entry.name)] = int(fields[1])
        times[int(entry.name)] = name, sum(map(int, fields[11:13])) / _TICKS
        # What a JVM waited for are the Python daemons that it started.
        times[-int(entry.name)] = "waited for", sum(map(int, fields[13:15])) / _TICKS
    jvm = others = 0.0
    for pid in parents:
        if _is_below(pid, root, parents):
            name, seconds = times[pid]
            jvm += seconds if name == "java" else 0.0
            others += (0.0 if name == "java" else seconds) + times[-pid][1]
    return jvm, others


def _is_below(pid: int, root: int, parents: Mapping[int, int]) -> bool:
    while pid != root:
        if pid not in parents:
            return False
        pid = parents[pid]
    return True


def cost_of(work: Callable[[], object]) -> Cost:
    """What the work costs this process and all that it started."""
    before, began = cpu_of_tree(os.getpid()), time.perf_counter()
    work()
    wall = time.perf_counter() - began
    after = cpu_of_tree(os.getpid())
    return Cost(after[0] - before[0], after[1] - before[1], wall)


def settle() -> None:
    """Wait until this tree rests: a JVM compiles and collects for a while after the work that made it do so."""
    for _ in range(20):
        before = cpu_of_tree(os.getpid())
        time.sleep(0.2)
        after = cpu_of_tree(os.getpid())
        if sum(after) - sum(before) <= 0.03:
            return


def take_turns(sides: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[Cost]]:
    """The costs of each side, round by round: forwards and backwards, after a round that warms up."""
    costs: dict[str, list[Cost]] = {name: [] for name in sides}
    for index in range(-1, rounds):
        names: Iterable[str] = sides if index % 2 else reversed(list(sides))
        for name in names:
            settle()
            cost = cost_of(sides[name])
            if index >= 0:
                costs[name].append(cost)
    return costs
