"""What happens to the backfills of ``spark_chaos``: the job of a seed, who is killed when, and what was hit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Self

from chaos import REMOTE, TOPICS

from segreader.backfill.output import OutputLayout

_SMALL = tuple(topic for topic in TOPICS if topic != "multi")


class Victim(StrEnum):
    """What is killed."""

    DRIVER = "driver"
    EXECUTOR = "executor"
    WORKER = "worker"
    TASK = "task"


VICTIMS = tuple(Victim)


@dataclass(frozen=True, slots=True)
class Strike:
    """One kill.

    Args:
        share: of the splits that are done first.
        seconds: after that.
        aim: which of those that can be hit, from 0 to 1.
        way: how a driver dies (all of it, its Python or its JVM), or whether a task's thread is interrupted.
    """

    victim: Victim
    share: float
    seconds: float
    aim: float
    way: int


@dataclass(frozen=True, slots=True)
class SparkBackfill:
    """A job and what happens to it, all chosen by a seed."""

    seed: int
    topics: tuple[str, ...]
    isolation: str
    settings: tuple[str, ...]
    has_speculation: bool
    is_verified_by_spark: bool

    def arguments(self, out: Path) -> list[str]:
        """Those of the job."""
        topics = [argument for topic in self.topics for argument in ("--topic", topic)]
        fixed = ["--location", str(REMOTE), "--target", str(out), "--credentials", "spark_chaos_hook:slow"]
        return [*fixed, *topics, "--isolation", f"read_{self.isolation}", *self.settings]

    def strikes(self, draw: int) -> list[Strike]:
        """Who is killed, in order: first the kind that the seed stands for, then up to two of any kind.

        Args:
            draw: counts how often none was hit, since the job had ended before.
        """
        random = Random(f"{self.seed}/{draw}")
        first = VICTIMS[self.seed % len(VICTIMS)]
        victims = [first, *random.choices(VICTIMS, k=random.choice((0, 0, 0, 1, 2)))]
        shares = sorted(random.uniform(0, 1 if victim is Victim.DRIVER else 0.9) for victim in victims)
        return [
            Strike(victim, share, random.uniform(0, 0.3), random.random(), random.randrange(3))
            for victim, share in zip(victims, shares, strict=True)
        ]


def chosen_for_spark(seed: int) -> SparkBackfill:
    """The job of a seed; four seeds in a row have a victim of each kind, and four of eight run with speculation."""
    random = Random(seed)
    topics = random.choice((("multi",), ("multi", *random.sample(_SMALL, random.randint(1, 2))), _SMALL))
    sizes = (
        "--split-bytes",
        random.choice(("20000", "60000", "100000")),
        "--file-bytes",
        random.choice(("1", "20k", "1m")),
    )
    layout = ("--output-layout", random.choice([one.value for one in OutputLayout]), *random.choice(((), ("--hive",))))
    return SparkBackfill(
        seed,
        topics,
        random.choice(("committed", "uncommitted")),
        (*sizes, *layout),
        has_speculation=seed // len(VICTIMS) % 2 == 1,
        is_verified_by_spark=random.random() < 0.5,
    )


@dataclass(slots=True)
class Tally:
    """What happened in some backfills."""

    hits: Counter[Victim] = field(default_factory=Counter)
    runs: int = 0
    missed: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    """How attempts at tasks ended, where their driver lived to tell."""

    def add(self, other: Self) -> None:
        self.hits += other.hits
        self.attempts += other.attempts
        self.runs += other.runs
        self.missed += other.missed

    def __str__(self) -> str:
        hits = ", ".join(f"{victim} {self.hits[victim]}" for victim in VICTIMS)
        attempts = ", ".join(f"{name} {number}" for name, number in sorted(self.attempts.items()))
        return f"killed: {hits}; {self.runs} runs, {self.missed} kills missed; attempts: {attempts}"
