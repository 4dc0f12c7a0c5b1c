"""The turns of ``benchmarks.published`` as they are kept, what they come to, and the page that says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

SPARK_KAFKA, CONFLUENT, SEGREADER, SPARK_SEGREADER = (
    "Spark's kafka source",
    "confluent-kafka",
    "segreader",
    "segreader in Spark",
)
SPARK_LARGE, CONFLUENT_LARGE = (f"{side}, 16 MiB" for side in (SPARK_KAFKA, CONFLUENT))
"""The same with larger fetches of a partition than Kafka's 1 MiB."""

NOBODY = "nobody"
SIDES = (SPARK_KAFKA, SPARK_LARGE, CONFLUENT, CONFLUENT_LARGE, SPARK_SEGREADER, SEGREADER)
QUIET_CORES = 0.1
"""Other work on more than this many cores: wall times and latencies are shown, and nothing is claimed of them."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn of one side took.

    Args:
        round: from 0.
        side: who read; ``nobody`` for the broker and the pair alone.
        wall_s: from the request to the last record.
        client_cpu_s: of the reader's processes, user and system.
        broker_cpu_s: of the broker meanwhile, the pair's part in it.
        hot_records: how many of the pair's records came meanwhile.
        hot_p50_ms: from the writer's hand to the reader's, the middle of them; likewise ``hot_p99_ms``, ``hot_max_ms``.
        other_cores: how many cores other work kept busy.
        load: mean of the last minute as the turn began.
    """

    round: int
    side: str
    records: int
    wall_s: float
    client_cpu_s: float
    broker_cpu_s: float
    hot_records: int
    hot_p50_ms: float
    hot_p99_ms: float
    hot_max_ms: float
    other_cores: float
    load: float


@dataclass(frozen=True, slots=True)
class Range:
    """A figure's middle over the rounds, its least and its most."""

    middle: float
    least: float
    most: float

    @staticmethod
    def of(values: Sequence[float]) -> Range:
        """Of at least one value."""
        return Range(median(values), min(values), max(values))

    def __str__(self) -> str:
        digits = 0 if self.most >= 100 else 1 if self.most >= 10 else 2
        shown = [f"{round(value, digits) + 0.0:.{digits}f}" for value in (self.middle, self.least, self.most)]
        return f"{shown[0]} ({shown[1]} to {shown[2]})"


@dataclass(frozen=True, slots=True)
class Published:
    """One run: its facts, and its turns."""

    facts: dict[str, Any]
    turns: tuple[Turn, ...]

    @staticmethod
    def parse(text: str) -> Published:
        """The lines that ``python -m benchmarks.published`` leaves."""
        facts, *turns = map(json.loads, text.splitlines())
        return Published(facts, tuple(Turn(**one) for one in turns))

    @property
    def stored_gb(self) -> float:
        """What each side reads, 1e9 bytes as stored."""
        return float(self.facts["stored_bytes"]) / 1e9

    @property
    def sides(self) -> list[str]:
        """Those that read, in the order of the page."""
        found = {turn.side for turn in self.turns}
        return [side for side in SIDES if side in found]

    @property
    def is_quiet(self) -> bool:
        """Whether nothing else used the machine, so that times of the clock can be claimed."""
        return all(turn.other_cores <= QUIET_CORES for turn in self.turns)

    def of(self, side: str, value: Callable[[Turn], float]) -> Range:
        """A figure of one side."""
        return Range.of([value(turn) for turn in self.turns if turn.side == side])

    def client_cpu(self, turn: Turn) -> float:
        """CPU seconds of the reader for each GB."""
        return turn.client_cpu_s / self.stored_gb

    def broker_cpu(self, turn: Turn) -> float:
        """CPU seconds of the broker for each GB, above its idle load."""
        return (turn.broker_cpu_s - self.idle_rate * turn.wall_s) / self.stored_gb

    def wall(self, turn: Turn) -> float:
        """Seconds of the clock for each GB."""
        return turn.wall_s / self.stored_gb

    @property
    def idle_rate(self) -> float:
        """CPU seconds a second of a broker that has the pair alone."""
        return self.of(NOBODY, lambda turn: turn.broker_cpu_s / turn.wall_s).middle


def newest(results: Path) -> Path:
    """The lines of the last run that is kept."""
    return max(results.glob("*-published.jsonl"))


def page(run: Published, name: str) -> str:
    """Markdown of a run whose lines are in the file ``name``."""
    facts = run.facts
    middle, most = (f"{some([turn.other_cores for turn in run.turns]):.1f}" for some in (median, max))
    loads = Range.of([turn.load for turn in run.turns])
    lines = [
        f"# What reading a tiered topic costs, {facts['at'][:10]}",
        "",
        f"`make bench-published BENCH='--gb {run.stored_gb:.1f} --rounds {facts['rounds']}'`, {facts['at']},"
        f" segreader at {facts['commit']}.",
        f"Every turn is a line of [{name}]({name}).",
        "",
        f"**{run.stored_gb:.2f} GB as stored** in the remote tier alone: {facts['records']:,} records of"
        f" {facts['record']}, {facts['codec']}, {facts['partitions']} partitions, segments of"
        f" {facts['segment_bytes'] >> 20} MiB; all figures are for a GB (1e9 bytes) as stored.",
        f"{facts['rounds']} rounds: median (least to most).",
        "",
        "| who reads | broker CPU s/GB | client CPU s/GB | both | wall s/GB | hot p50 ms | hot p99 ms | hot max ms |"
        " other work, cores |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *_rows(run),
        "",
        *(_QUIET if run.is_quiet else _busy(middle, most, loads)),
        *(["", facts["note"]] if facts.get("note") else []),
        "",
        *_method(facts, run),
        "",
        "## Every turn",
        "",
        "| round | who reads | wall s | client CPU s | broker CPU s | hot records | p50 | p99 | max ms | load |"
        " other work, cores |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *_turns(run.turns),
    ]
    return "\n".join(lines) + "\n"


_QUIET = ("No other work used more than a tenth of a core during any turn.",)


def _busy(middle: str, most: str, loads: Range) -> list[str]:
    return [
        f"**The machine was not quiet.** Other work kept {middle} cores busy in the median turn, {most} in the worst,"
        f" at loads of {loads.least:.0f} to {loads.most:.0f}.",
        "",
        "- CPU is counted for each process. On a busy machine it is higher than on an idle one, for every reader,",
        "  and a young JVM still compiles: look at the spread, and at the single turns.",
        "- **Do not rely on the wall times and latencies.** A latency here includes the wait for a core;",
        "  the row `nobody` shows it without a reader.",
    ]


def _rows(run: Published) -> Iterable[str]:
    for side in [*run.sides, NOBODY]:
        latencies = [
            str(run.of(side, value))
            for value in (lambda turn: turn.hot_p50_ms, lambda turn: turn.hot_p99_ms, lambda turn: turn.hot_max_ms)
        ]
        costs = ["", "", "", ""]
        if side != NOBODY:
            costs = [
                str(run.of(side, value))
                for value in (
                    run.broker_cpu,
                    run.client_cpu,
                    lambda turn: run.broker_cpu(turn) + run.client_cpu(turn),
                    run.wall,
                )
            ]
        busy = str(run.of(side, lambda turn: turn.other_cores))
        yield f"| {' | '.join([side, *costs, *latencies, busy])} |"


def _turns(turns: Iterable[Turn]) -> Iterable[str]:
    for turn in turns:
        yield (
            f"| {turn.round + 1} | {turn.side} | {turn.wall_s:.1f} | {turn.client_cpu_s:.2f} | {turn.broker_cpu_s:.2f}"
            f" | {turn.hot_records} | {turn.hot_p50_ms:.1f} | {turn.hot_p99_ms:.1f} | {turn.hot_max_ms:.0f}"
            f" | {turn.load:.1f} | {turn.other_cores:.2f} |"
        )


def _method(facts: dict[str, Any], run: Published) -> list[str]:
    return [
        "## Method",
        "",
        f"- {facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']}; Python {facts['python']}, PySpark"
        f" {facts['pyspark']} (`local[2]`),",
        f"  confluent-kafka {facts['confluent-kafka']}, pyarrow {facts['pyarrow']}, Apache Kafka {facts['broker']} with"
        " 1 GiB of heap, segreader's native kernel.",
        "- The remote tier is a directory (Kafka's `LocalTieredStorage`): the broker and segreader read the same files",
        "  from the page cache. The network, TLS and the CPU of a real bucket are in the figures of neither.",
        "- A turn is one whole read. Readers take turns in random order, each in a process that keeps running. A turn",
        "  begins with a read of 50 MB that is not counted. No figure includes the start of a JVM or of Python.",
        *(["- The first round only warms up, and is not kept."] if facts.get("warm_rounds") else []),
        "- Spark's kafka source: makes every row and drops it (`noop`).",
        "- confluent-kafka: one consumer, 10,000 messages at a time, their contents not touched,",
        "  `fetch.queue.backoff.ms` 1 (by default it pauses for a second when its queue is full).",
        "- Both have Kafka's `max.partition.fetch.bytes` of 1 MiB, and 16 MiB where that is said.",
        "- segreader: `scan(...).to_batches()`, every column as Arrow. segreader in Spark: `segreader.spark.read`,",
        "  which makes every row and drops it. Both read the bucket and contact no broker.",
        "- The broker and the hot pair share one core, and the reader has the other; most readers could use more.",
        f"- The hot pair: a writer of {facts['hot_rate']} records of {facts['hot_bytes']} B a second to another topic"
        " (`acks=all`, no linger), whether or not",
        "  earlier ones have arrived, and a reader. They have priority on their core where the system allows it.",
        "  A latency is the time from produce to poll, by one clock.",
        f"- Broker CPU is what exceeds {run.idle_rate:.3f} s a second, the median with the pair alone.",
        "  For readers that send it no requests the rest is noise, and may be below zero.",
        "- CPU is user and system time of the processes, from `/proc`; other work is what everything else used.",
    ]
