"""What reading a tiered topic costs its broker, the others at that broker, and who reads: ``make bench-published``.

Spark's kafka source, confluent-kafka, segreader and an idle turn follow each other, in another order each round, while
a pair of clients writes and reads another topic of the broker at a steady rate. Leaves every turn as a line of JSON and
a page of medians in ``benchmarks/results``, from which ``docs.make_chart`` draws.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import quantiles
from typing import Any

from benchmarks.broker_kit import CODEC, PARTITIONS, SEGMENT_BYTES, SHAPE, cpu_s, produce
from benchmarks.broker_kit import Kit as BrokerKit
from benchmarks.inputs import BATCH_BYTES, make_batches
from benchmarks.load import OtherWork
from benchmarks.native import demand_native
from benchmarks.published_page import NOBODY, SIDES, Published, Turn, page
from benchmarks.published_readers import FOLLOWER, WRITER
from benchmarks.rows import MIB
from benchmarks.spark_cost import tree
from benchmarks.spark_kafka import BROKER_JVM
from benchmarks.spark_kafka import Kit as SparkKit

RESULTS = Path(__file__).with_name("results")
HOT_RATE, HOT_BYTES = 200, 1024
WAKE_GB = 0.05

_TOPIC, _WAKE, _HOT = "history", "wake", "hot"
_CALM = {
    "remote.log.manager.task.interval.ms": "5000",
    "log.retention.check.interval.ms": "5000",
    "log.cleaner.backoff.ms": "15000",
}
"""As of ``broker_kit``: the test kit's broker looks for work twice a second, which shows in its CPU."""


class Served:
    """A process of ``benchmarks.published_readers``, on one core."""

    def __init__(self, name: str, core: int, **given: object) -> None:
        command = [sys.executable, "-m", "benchmarks.published_readers", name]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._name, self._core = name, core
        self._say(given)

    def ask(self, **asked: object) -> Any:
        """Seconds that it took, and the answer.

        Raises:
            RuntimeError: it has ended; its stderr says why.
        """
        self.pin()
        self._say(asked)
        return self.heard()

    def heard(self) -> Any:
        """The next line that it answers."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._name} ended with {self._process.wait()}")
        return json.loads(line)

    def cpu_s(self) -> float:
        """CPU seconds of it and all below it."""
        return sum(one.cpu for one in tree(self._process.pid).values())

    def pin(self) -> None:
        """Keep it and all below it on its core; threads that they start stay there, too."""
        pin(self._process.pid, self._core)

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate(timeout=30)

    def _say(self, what: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()


def pin(root: int, core: int) -> None:
    """Keep a process and all below it on one core."""
    for pid, _ in tree(root):
        for task in Path(f"/proc/{pid}/task").glob("*"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), {core})


@contextlib.contextmanager
def served(name: str, core: int, **given: object) -> Iterator[Served]:
    """One of the processes until the block ends; it is ready once it is heard."""
    one = Served(name, core, **given)
    try:
        yield one
    finally:
        one.close()


@dataclass(frozen=True, slots=True)
class Stage:
    """What is there while sides take turns: the broker, who reads, and the pair."""

    broker: int
    readers: Mapping[str, Served]
    follower: Served
    asked: Mapping[str, object]
    wake: Mapping[str, object]
    rest_s: float

    def turn(self, number: int, side: str) -> Turn:
        """One side's turn, after a small read that wakes it up and is not counted."""
        if side != NOBODY:
            self.readers[side].ask(**self.wake, is_counted=False)
        time.sleep(1)
        load, other = os.getloadavg()[0], OtherWork()
        self.follower.ask()
        broker, client = cpu_s(self.broker), self._client_cpu_s(side)
        wall, records = self._read(side)
        client, broker = self._client_cpu_s(side) - client, cpu_s(self.broker) - broker
        busy, (_, took) = other.cores(), self.follower.ask()
        p50, p99 = (quantiles(took, n=100)[at] for at in (49, 98))
        return Turn(
            number, side, records, wall, client, broker, len(took), p50, p99, max(took), round(busy, 3), round(load, 2)
        )

    def _read(self, side: str) -> tuple[float, int]:
        if side == NOBODY:
            time.sleep(self.rest_s)
            return self.rest_s, 0
        wall, records = self.readers[side].ask(**self.asked, is_counted=False)
        if records != self.asked["records"]:
            raise RuntimeError(f"{side}: {records} of {self.asked['records']} records")
        return wall, records

    def _client_cpu_s(self, side: str) -> float:
        return 0.0 if side == NOBODY else self.readers[side].cpu_s()


def fill(kit: BrokerKit, kafka: Any, topic: str, stored_bytes: int) -> int:
    """Write a topic of about so many bytes as they are stored.

    Returns:
        How many records it has.
    """
    kafka.create_topic(topic, PARTITIONS, segment_bytes=SEGMENT_BYTES)
    batches = make_batches(SHAPE, 8 * MIB, BATCH_BYTES)
    with kit.producer(kafka.bootstrap, codec=CODEC, batch_size=BATCH_BYTES, linger_ms=50) as out:
        produce(out, topic, batches, 1)
        more = max(0, round(stored_bytes / stored_in(kafka.nodes[0].config.directory / "data", topic)) - 1)
        produce(out, topic, batches, more)
    return (1 + more) * sum(len(batch.records) for batch in batches)


def stored_in(directory: Path, topic: str) -> int:
    """Bytes of a topic's logs there."""
    return sum(file.stat().st_size for file in directory.glob(f"{topic}-*/*.log"))


@contextlib.contextmanager
def stage(
    place: Path, stored_bytes: int, sides: Iterable[str], rest_s: float
) -> Iterator[tuple[Stage, dict[str, Any]]]:
    """All of it, warm, with what is to be known of the topic."""
    broker_core, *others = sorted(os.sched_getaffinity(0))[:2]
    reader_core = others[0] if others else broker_core
    kit, connector = BrokerKit.load(), SparkKit.load().connector
    with contextlib.ExitStack() as stack:
        kafka = stack.enter_context(kit.cluster(place / "kafka", settings=_CALM, jvm=BROKER_JVM))
        given = {"bootstrap": kafka.bootstrap, "connector": connector}
        readers = {side: stack.enter_context(served(side, reader_core, **given)) for side in sides}
        topics = {}
        for topic, size in ((_WAKE, int(WAKE_GB * 1e9)), (_TOPIC, stored_bytes)):
            records = fill(kit, kafka, topic, size)
            topics[topic] = {"topic": topic, "records": records, "partitions": PARTITIONS, "location": kafka.location}
        kafka.upload(_WAKE, _TOPIC)
        stored = stored_in(Path(kafka.location), _TOPIC)
        for side, reader in readers.items():
            reader.heard()
            _, count = reader.ask(**topics[_WAKE], is_counted=True)
            if count != topics[_WAKE]["records"]:
                raise RuntimeError(f"{side}: {count} of {topics[_WAKE]['records']} records")
        kafka.create_topic(_HOT, 1, segment_bytes=SEGMENT_BYTES)
        broker = kafka.nodes[0].pid
        pin(broker, broker_core)
        hot = {**given, "topic": _HOT, "rate": HOT_RATE, "record_bytes": HOT_BYTES}
        follower, writer = (stack.enter_context(served(name, broker_core, **hot)) for name in (FOLLOWER, WRITER))
        for one in (follower, writer):
            one.heard()
            one.pin()
        facts = {"stored_bytes": stored, "records": topics[_TOPIC]["records"], "partitions": PARTITIONS}
        yield Stage(broker, readers, follower, topics[_TOPIC], topics[_WAKE], rest_s), facts


def machine() -> dict[str, Any]:
    """What was measured with, and on what."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    (broker,) = (file.stem.removeprefix("kafka_2.13-") for file in BrokerKit.load().jars().glob("kafka_2.13-*.jar"))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": next(names, platform.machine()),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "broker": broker,
        "commit": commit.stdout.strip(),
        **{name: version(name) for name in ("pyspark", "confluent-kafka", "pyarrow")},
        "codec": CODEC,
        "record": SHAPE.name,
        "segment_bytes": SEGMENT_BYTES,
        "hot_rate": HOT_RATE,
        "hot_bytes": HOT_BYTES,
    }


def take_turns(on: Stage, rounds: int, seed: int) -> Iterator[Turn]:
    """Rounds of one turn for each side and an idle one, in random order, after round -1 to warm up."""
    order = random.Random(seed)
    for number in range(-1, rounds):
        for side in order.sample([NOBODY, *on.readers], len(on.readers) + 1):
            yield on.turn(number, side)


def show(turn: Turn, stored_gb: float) -> str:
    """One line of a turn."""
    each = 1 if turn.side == NOBODY else stored_gb
    return (
        f"{turn.round} {turn.side:<22} wall {turn.wall_s:6.1f} s, client {turn.client_cpu_s / each:5.2f} CPU s/GB,"
        f" broker {turn.broker_cpu_s / each:5.2f}{' CPU s' if turn.side == NOBODY else ' CPU s/GB'},"
        f" hot p50 {turn.hot_p50_ms:.1f} p99 {turn.hot_p99_ms:.1f} max {turn.hot_max_ms:.0f} ms of {turn.hot_records},"
        f" load {turn.load}, other work {turn.other_cores:.2f} cores"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published", description="The published figure.")
    parser.add_argument("--gb", type=float, default=2.0, help="bytes of the topic as stored, in 1e9 (2)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each side has its turn (3)")
    parser.add_argument("--rest", type=float, default=15.0, help="seconds of an idle turn (15)")
    parser.add_argument("--side", action="append", choices=SIDES, help="only this side; may be repeated")
    parser.add_argument("--seed", type=int, default=1, help="of the order of turns (1)")
    parser.add_argument("--note", default="", help="a sentence about this run, for its page")
    parser.add_argument("--into", type=Path, default=RESULTS, help="directory of what it leaves (benchmarks/results)")
    arguments = parser.parse_args()
    demand_native()
    facts = machine()
    stem = arguments.into / f"{datetime.now(UTC):%Y-%m-%d}-published"
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segreader-bench-")))
        sides = arguments.side or SIDES
        on, known = stack.enter_context(stage(place, int(arguments.gb * 1e9), sides, arguments.rest))
        facts |= known | {"rounds": arguments.rounds, "warm_rounds": 1, "note": arguments.note}
        print(facts, f"{facts['stored_bytes'] / MIB:.0f} MiB stored", flush=True)
        out = stack.enter_context(stem.with_suffix(".jsonl").open("w", encoding="utf-8"))
        out.write(json.dumps(facts) + "\n")
        for turn in take_turns(on, arguments.rounds, arguments.seed):
            if turn.round >= 0:
                out.write(json.dumps(asdict(turn)) + "\n")
                out.flush()
            print(show(turn, facts["stored_bytes"] / 1e9), flush=True)
    lines = stem.with_suffix(".jsonl")
    stem.with_suffix(".md").write_text(
        page(Published.parse(lines.read_text(encoding="utf-8")), lines.name), encoding="utf-8"
    )
    print(f"{stem}.md")


if __name__ == "__main__":
    main()
