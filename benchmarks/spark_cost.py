"""What work costs in all processes of this one's tree: the JVM, Python's daemons and workers, a broker."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median

_TICKS = os.sysconf("SC_CLK_TCK")
_AWAKE_S = 30.0
_TINY_ROUNDS = 3


Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds, user and system, and wall seconds of one piece of work.

    Args:
        jvm: of processes called ``java``, the broker apart.
        python: of all others, this one and its workers.
        broker: of the broker, where there is one.
    """

    jvm: float
    python: float
    wall: float
    broker: float = 0.0

    @property
    def cpu(self) -> float:
        return self.jvm + self.python + self.broker

    def above(self, other: Cost) -> Cost:
        """The CPU that this took more than the other; its own wall."""
        return Cost(self.jvm - other.jvm, self.python - other.python, self.wall, self.broker - other.broker)


@dataclass(frozen=True, slots=True)
class Process:
    """One process as ``/proc`` tells of it; the second number of its key is when it started."""

    key: tuple[int, int]
    parent: int
    name: str
    cpu: float


def tree(root: int) -> dict[tuple[int, int], Process]:
    """A process and all below it.

    Times of children that ended are left out: Spark's Python daemon ignores their end, so the kernel forgets them.
    """
    found: dict[int, Process] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:  # it has ended meanwhile
            continue
        name = text[text.index("(") + 1 : text.rindex(")")]
        fields = text[text.rindex(")") + 2 :].split()
        pid, cpu = int(entry.name), sum(map(int, fields[11:13])) / _TICKS
        found[pid] = Process((pid, int(fields[19])), int(fields[1]), name, cpu)
    return {one.key: one for pid, one in found.items() if _is_below(pid, root, found)}


def _is_below(pid: int, root: int, found: Mapping[int, Process]) -> bool:
    while pid != root:
        if pid not in found:
            return False
        pid = found[pid].parent
    return True


def cost_of(work: Work, broker: int | None = None) -> Cost:
    """What the work costs this process and all that it started; one of these may be a broker.

    A process that is there at the end counts from the beginning or from its own, and a child of this one whose end it
    waited for counts with all that it waited for. What another used that ended meanwhile is not seen: Spark ends
    workers after a minute without work.
    """
    before, ended, began = tree(os.getpid()), _ended_cpu(), time.perf_counter()
    work()
    wall = time.perf_counter() - began
    spent = {"jvm": 0.0, "python": _ended_cpu() - ended, "broker": 0.0}
    for key, one in tree(os.getpid()).items():
        kind = "broker" if key[0] == broker else "jvm" if one.name == "java" else "python"
        spent[kind] += one.cpu - (before[key].cpu if key in before else 0.0)
    return Cost(spent["jvm"], spent["python"], wall, spent["broker"])


def _ended_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def settle(broker: int | None) -> None:
    """Wait until this tree rests: a JVM compiles and collects for a while after the work that made it do so."""
    for _ in range(20):
        cost = cost_of(lambda: time.sleep(0.2), broker)
        if cost.jvm + cost.python <= 0.04:
            return


def take_turns(
    sides: Mapping[str, Work], rounds: int, *, wake: Work, broker: int | None = None
) -> dict[str, list[Cost]]:
    """The costs of each side, round by round: forwards and backwards, after a round that warms up.

    Args:
        wake: done before a turn now and then, and not counted: Python workers with nothing to do for a minute are gone.
        broker: its process, if one is asked.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in sides}
    woken = -_AWAKE_S
    for index in range(-1, rounds):
        names: Iterable[str] = sides if index % 2 else reversed(list(sides))
        for name in names:
            if time.monotonic() - woken >= _AWAKE_S:
                wake()
                woken = time.monotonic()
            settle(broker)
            cost = cost_of(sides[name], broker)
            if index >= 0:
                costs[name].append(cost)
    return costs


def marginal(
    big: Mapping[str, Work], tiny: Mapping[str, Work], rounds: int, *, wake: Work, broker: int | None = None
) -> dict[str, list[Cost]]:
    """What the records cost on each side, round by round: without the CPU of a job that has hardly any.

    Args:
        tiny: the same sides with a small topic; the middle of a few turns is taken off. Wall is of the whole job.
    """
    return whole_and_marginal(big, tiny, rounds, wake=wake, broker=broker)[1]


def whole_and_marginal(
    big: Mapping[str, Work], tiny: Mapping[str, Work], rounds: int, *, wake: Work, broker: int | None = None
) -> tuple[dict[str, list[Cost]], dict[str, list[Cost]]]:
    """What the jobs cost on each side, and what the records do; as ``marginal``."""
    costs = take_turns(big, rounds, wake=wake, broker=broker)
    few = take_turns(tiny, min(rounds, _TINY_ROUNDS), wake=wake, broker=broker)
    middles = {
        name: Cost(*(median(values) for values in zip(*map(astuple, some), strict=True))) for name, some in few.items()
    }
    return costs, {name: [one.above(middles[name]) for one in some] for name, some in costs.items()}
