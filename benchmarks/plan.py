"""What it costs to know what to read, and to read no more than that: ``make bench-plan``.

What is measured, and how to read the table, is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import plan_aborted
from benchmarks.plan_bucket import Bucket, BucketSource, Topic
from benchmarks.plan_forms import BATCH_MS, BATCH_RECORDS, BATCH_SIZE, CHUNK_SIZE, FIRST_TIME_MS, SMALL, WHOLE
from benchmarks.plan_metadata import write_topic
from benchmarks.rows import MIB, Row, parse_options, print_machine, run
from segreader.format.compression import Codec
from segreader.plan.request import Bounds, Request, TimeRange
from segreader.scans import Scan

FIGURES = ("listed", "metadata", "listing", "times", "aborted")
SEGMENTS = 100_000
OBJECTS = 1_000_000
TRANSACTIONS = 100_000
GIB_OF_BATCHES = (1 << 30) // BATCH_SIZE
HTTP_RANGE = 16 * MIB


def alone(module: str, *arguments: object) -> dict[str, Any]:
    """What a module prints as JSON, from a process of its own."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    facts: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return facts


def measure_metadata(place: Path, rounds: int) -> Iterator[Row]:
    """A partition of 100,000 segments by the metadata topic, in both isolation levels."""
    write_topic(place, SEGMENTS)
    for level in ("read_committed", "read_uncommitted"):
        facts = [alone("benchmarks.plan_metadata", place, level) for _ in range(rounds)]
        if any(fact["splits"] != SEGMENTS for fact in facts):
            raise ValueError("a segment was not planned")
        planning = tuple(fact["planning_s"] for fact in facts)
        yield Row(f"plan, {level}", planning, 2, " s", "from what the records say")
        yield Row(
            f"plan with the topic, {level}", tuple(fact["seconds"] for fact in facts), 2, " s", "raw log read, too"
        )
        peaks = tuple(fact["peak"] / 1e6 for fact in facts)
        note = f"{facts[0]['imports'] / 1e6:.0f} MB of it are imports"
        yield Row(f"peak of that process, {level}", peaks, 300, " MB", note)


def measure_listed(rounds: int) -> Iterator[Row]:
    """100,000 segments in 100 partitions by listing, in a process of their own."""
    for name, how in (("", ()), (", collector as in the command", ("seldom",))):
        facts = [alone("benchmarks.plan_listed", 100, SEGMENTS // 100, *how) for _ in range(rounds)]
        if any(fact["splits"] != SEGMENTS for fact in facts):
            raise ValueError("a segment was not planned")
        note = f"{facts[0]['pages']} pages, {max(fact['peak'] for fact in facts) / 1e6:.0f} MB"
        cpu = tuple(fact["cpu"] for fact in facts)
        yield Row(f"plan of {SEGMENTS:,} listed segments{name}", cpu, 2, " s CPU", note)


def topics_of(form: str, objects: int) -> list[Topic]:
    """``orders``, ``payments`` that are ten times as large, and others that fill the bucket, many of like names."""
    topics = [Topic("orders", 8, 60), Topic("payments", 8, 600)]
    names = (f"{begin}-{number:04d}" for number in range(9999) for begin in ("orders", "audit", "clicks", "x"))
    left = objects - Bucket(SMALL[form], topics).objects
    each = Bucket(SMALL[form], [Topic("x", 8, 50)]).objects
    return topics + [Topic(name, 8, 50) for name, _ in zip(names, range(left // each), strict=False)]


def plan_topic(bucket: Bucket, name: str) -> tuple[int, int, float]:
    """Plan a topic: pages of listings, reads and CPU seconds."""
    bucket.pages = 0
    bucket.reads.clear()
    began = time.process_time()
    Scan(BucketSource(bucket), Request(topic=name)).plan()
    return bucket.pages, sum(bucket.reads.values()), time.process_time() - began


def measure_listing() -> Iterator[Row]:
    """One topic of a bucket of a million objects, beside the same topic with nothing around it."""
    for form, layout in SMALL.items():
        topics = topics_of(form, OBJECTS)
        bucket = Bucket(layout, topics)
        costs = {}
        for topic in topics[:2]:
            costs[topic.name] = plan_topic(bucket, topic.name)
            own = Bucket(layout, [topic])
            pages, reads, _ = plan_topic(own, topic.name)
            more = costs[topic.name][0] + costs[topic.name][1] - pages - reads
            note = f"{pages} pages, {reads} reads for {own.objects} objects; {costs[topic.name][2]:.2f} s CPU"
            yield Row(f"{form}: requests more than alone, {topic.name}", (more,), 3, "", note)
        grown = sum(costs["payments"][:2]) / sum(costs["orders"][:2])
        yield Row(
            f"{form}: requests for ten times the objects", (grown,), 10, "x", f"of {bucket.objects} in the bucket"
        )
        one, whole = (alone("benchmarks.plan_peak", form, OBJECTS, "payments", count)["peak"] / 1e6 for count in (1, 8))
        little = alone("benchmarks.plan_peak", form, OBJECTS // 10, "payments", 8)["peak"] / 1e6
        yield Row(f"{form}: peak over imports, 8 partitions", (whole,), None, " MB", f"one partition: {one:.1f} MB")
        yield Row(f"{form}: by that of a tenth of the bucket", (whole / little,), 1.1, "x")


def measure_times(rounds: int) -> Iterator[Row]:
    """Reads of 1 % of a topic's time, from different places of it; every byte that the store is asked for counts."""
    topic = Topic("orders", 2, 8, GIB_OF_BATCHES * BATCH_RECORDS)
    batches = topic.segments * GIB_OF_BATCHES
    wanted = batches // 100
    for form, layout in WHOLE.items():
        chunk = HTTP_RANGE if form == "local-tiered" else CHUNK_SIZE
        whole, body, looked = [], [], []
        for index in range(rounds):
            first = batches * (index + 1) // (rounds + 1) + index
            bucket = Bucket(layout, [topic])
            times = TimeRange(FIRST_TIME_MS + first * BATCH_MS, FIRST_TIME_MS + (first + wanted) * BATCH_MS)
            scan = Scan(BucketSource(bucket), Request(topic=topic.name, bounds=Bounds(times=times)))
            scan.plan()
            planned = dict(bucket.read_bytes)
            rows = sum(made.num_rows for made in scan.to_batches())
            if rows != topic.partitions * wanted * BATCH_RECORDS:
                raise ValueError("a time range does not return its records")
            share = topic.partitions * batches * BATCH_SIZE / 100
            beyond = (sum(bucket.read_bytes.values()) - share) / topic.partitions
            whole.append(beyond / chunk)
            body.append((bucket.read_bytes["log"] - planned.get("log", 0) - share) / topic.partitions / chunk)
            looked.append(sum(planned.values()) / topic.partitions / MIB)
        note = f"chunks of {chunk // MIB} MiB; 1 % is {batches * BATCH_SIZE / 100 / MIB:.0f} MiB a partition"
        yield Row(f"{form}: chunks beyond 1 %, by the read", tuple(body), 2, "", note)
        yield Row(f"{form}: chunks beyond 1 %, plan and read", tuple(whole), 2)
        yield Row(f"{form}: MiB of the plan, a partition", tuple(looked), None, "", "indexes, and what look-ups read")


def measure_aborted(place: Path, rounds: int) -> Iterator[Row]:
    """Reading what lies between 100,000 aborted transactions, and planning with them."""
    for name, value_size, codec, producers, target in (
        ("1 GiB", 1000, Codec.NONE, 100, 1.2),
        ("1 GiB", 1000, Codec.NONE, TRANSACTIONS, 1.2),
        ("1 GiB, lz4", 1000, Codec.LZ4, 100, 1.2),
        ("140 MB", 90, Codec.NONE, 100, None),
    ):
        with tempfile.TemporaryDirectory(dir=place) as made:
            pair = plan_aborted.write_pair(Path(made), TRANSACTIONS, producers, value_size, codec)
            reading, planning = plan_aborted.measure_pair(pair, rounds)
        ratios = tuple(one / two for one, two in reading)
        note = " by ".join(f"{median(side):.2f}" for side in zip(*reading, strict=True)) + " s"
        yield Row(f"read of {name}, aborted / none, {producers} producers", ratios, target, "x", note)
        if name == "1 GiB":
            more = tuple(one - two for one, two in planning)
            yield Row(f"plan of it, {producers} producers", more, None, " s more")
    yield from measure_growth(place, rounds)


def measure_growth(place: Path, rounds: int) -> Iterator[Row]:
    """Planning with four times the transactions and four times the splits takes four times as long."""
    seconds: dict[int, list[float]] = {}
    for count in (TRANSACTIONS // 4, TRANSACTIONS):
        with tempfile.TemporaryDirectory(dir=place) as made:
            pair = plan_aborted.write_pair(Path(made), count, 100, 90)
            plan_aborted.measure(pair.aborted, split_bytes=MIB)  # warms up
            seconds[count] = [plan_aborted.measure(pair.aborted, split_bytes=MIB).planning for _ in range(rounds)]
    few, many = seconds.values()
    ratios = tuple(one / two for one, two in zip(many, few, strict=True))
    yield Row("plan in splits of 1 MiB, 100,000 / 25,000 aborted", ratios, 5, "x", f"{median(many):.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan", description="Planning.")
    parser.add_argument("--rounds", type=int, default=5, help="of what is timed (5)")
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=FIGURES, help="only these figures")
    arguments = parse_options(parser, rounds=3, only=["listed"])
    print_machine("pyarrow")
    with tempfile.TemporaryDirectory(prefix="segreader-bench-") as name:
        place, rounds = Path(name), arguments.rounds
        figures = {
            "listed": measure_listed(rounds),
            "metadata": measure_metadata(place, rounds),
            "listing": measure_listing(),
            "times": measure_times(rounds),
            "aborted": measure_aborted(place, rounds),
        }
        run(chain.from_iterable(figures[one] for one in arguments.only), arguments.json)


if __name__ == "__main__":
    main()
