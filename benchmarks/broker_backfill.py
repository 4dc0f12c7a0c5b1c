"""A backfill of a tiered topic: by locations that the gateway gives, through the broker, and by confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import mean, median

import segreader
from benchmarks.broker_kit import Bench, Offsets, Spent, cpu_s, open_consumer, read_to_ends, spent
from benchmarks.rows import Row
from segreader.live.scan import LiveScan

_REST_S = 2.0
_WARM_PLANS = 60
"""A scan asks each thing a few times only, and a JVM that has hardly ever done it takes many times as long for it."""


def consume(bootstrap: str, topic: str, offsets: Offsets) -> int:
    """Records of the partitions as confluent-kafka gives them."""
    starts = {partition: first for partition, (first, _) in offsets.items()}
    return read_to_ends(open_consumer(bootstrap), topic, starts)


@dataclass(frozen=True, slots=True)
class Backfill:
    """Three ways to the same records."""

    bench: Bench
    topic: str
    offsets: Offsets

    @property
    def records(self) -> int:
        """How many there are."""
        return sum(end - first for first, end in self.offsets.values())

    def located(self) -> None:
        """From the file server, by locations."""
        sources = self._scan(self.bench.gateway.bootstrap)
        if sources["location_records"] != self.records:
            raise RuntimeError(f"not all records came by location: {sources}")

    def plan(self) -> None:
        """Ask all that a scan by locations asks, and read nothing."""
        at, options = f"kafka://{self.bench.gateway.bootstrap}", self.bench.storage_options
        with segreader.scan(at, topic=self.topic, storage_options=options) as scan:
            scan.plan()

    def fetched(self) -> None:
        """The same scan, from the broker."""
        sources = self._scan(self.bench.kafka.bootstrap)
        if sources["broker_records"] != self.records:
            raise RuntimeError(f"not all records came from the broker: {sources}")

    def confluent(self) -> None:
        """By confluent-kafka, from the broker."""
        if (count := consume(self.bench.kafka.bootstrap, self.topic, self.offsets)) != self.records:
            raise RuntimeError(f"{count} of {self.records} records")

    def _scan(self, bootstrap: str) -> dict[str, int]:
        options = self.bench.storage_options
        with segreader.scan(f"kafka://{bootstrap}", topic=self.topic, storage_options=options) as scan:
            for _ in scan.to_batches():
                pass
            assert isinstance(scan, LiveScan)
            return scan.metrics.as_dict()


def measure_backfill(backfill: Backfill, stored_bytes: int, rounds: int) -> Iterator[Row]:
    """The three take turns, forwards and backwards, after plans and a round that warm up the broker's JVM.

    What the broker does by itself is measured before each turn, and the mean of it taken off the CPU of all turns.
    """
    bench = backfill.bench
    sides: dict[str, Callable[[], None]] = {
        "located": backfill.located,
        "fetched": backfill.fetched,
        "confluent": backfill.confluent,
    }
    turns: dict[str, list[Spent]] = {name: [] for name in sides}
    for _ in range(_WARM_PLANS):
        backfill.plan()
    rests: list[float] = []
    for index in range(-1, rounds):
        for name in sides if index % 2 else reversed(sides):
            rests.append(_idle_rate(bench.broker))
            turn = spent(sides[name], broker=bench.broker, gateway=bench.gateway.pid)
            if index >= 0:
                turns[name].append(turn)
    idle = mean(rests)
    whole = {name: sum(one.cpu["broker"] for one in turns[name]) / rounds for name in sides}
    alone = {name: idle * sum(one.wall for one in turns[name]) / rounds for name in sides}
    for name, shown in (("fetched", "the same scan"), ("confluent", "confluent-kafka")):
        share = 100 * (whole["located"] - alone["located"]) / (whole[name] - alone[name])
        note = (
            f"{whole['located']:.3f} of {whole[name]:.3f} s a round,"
            f" of which by itself {alone['located']:.3f} and {alone[name]:.3f}"
        )
        yield Row(f"broker CPU by locations / {shown}", (share,), 2.0, " %", note)
    wall = {name: [one.wall for one in turns[name]] for name in sides}
    for name, shown, target in (("confluent", "confluent-kafka", 2.0), ("fetched", "our scan from the broker", None)):
        ratios = tuple(b / a for a, b in zip(wall["located"], wall[name], strict=True))
        note = f"{stored_bytes / median(wall['located']) / 1e6:.0f} and {stored_bytes / median(wall[name]) / 1e6:.0f}"
        yield Row(f"wall, {shown} / by locations", ratios, target, "x", f"{note} MB/s as stored", is_least=True)
    took = median(one.cpu["gateway"] for one in turns["located"])
    yield Row("gateway CPU of a backfill by locations", (took,), None, " s")
    yield from _bytes_served(backfill)


def _idle_rate(pid: int) -> float:
    """CPU seconds a second of a process that nobody asks for anything; waits until it rests."""
    for _ in range(10):
        before = cpu_s(pid)
        time.sleep(_REST_S)
        rate = (cpu_s(pid) - before) / _REST_S
        if rate < 0.1:
            break
    return rate


def _bytes_served(backfill: Backfill) -> Iterator[Row]:
    """Record bytes by the broker's own counter; once for each way, with nothing else that reads the topic."""
    bench, topic = backfill.bench, backfill.topic
    counts = [bench.bytes_out(topic)]
    for way in (backfill.located, backfill.fetched):
        way()
        counts.append(bench.bytes_out(topic))
    by_location, by_broker = counts[1] - counts[0], counts[2] - counts[1]
    note = f"its BytesOutPerSec of the topic; {by_broker / 1e6:.0f} MB for the same scan without locations"
    yield Row("record bytes from the broker, by locations", (by_location,), 0, " B", note)
