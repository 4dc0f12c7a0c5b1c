"""The ways out of a scan beside librdkafka's tools, and the first record: ``make bench-out``.

What is measured is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.broker_kit import PARTITIONS, Kit, produce
from benchmarks.clients import cpu_of
from benchmarks.debian import NotAvailableError, unpack
from benchmarks.inputs import BATCH_BYTES, SHAPES, Shape, make_batches, write_inputs
from benchmarks.native import demand_native
from benchmarks.rows import MIB, Row, parse_options, print_machine, run

FIGURES = ("first", "text", "objects")
FIRST_MS = {"library": 200.0, "cat --limit 1": 250.0}
TIMES_KCAT, TIMES_CONFLUENT = 0.5, 1.0
_CAT = (sys.executable, "-c", "import sys; from segreader.cli.main import main; sys.exit(main())", "cat")

_OURS = """
import sys, segreader
looked_at = 0
for record in segreader.scan(sys.argv[1], topic=sys.argv[2]).records():
    record.key, record.value, record.offset
    looked_at += 1
    if looked_at == int(sys.argv[3]):
        break
assert looked_at == int(sys.argv[3]), looked_at
"""

_CONFLUENT = """
import sys
from confluent_kafka import Consumer, TopicPartition
bootstrap, topic, wanted, partitions = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
consumer = Consumer({
    "bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "check.crcs": True,
    "auto.offset.reset": "error", "fetch.queue.backoff.ms": 1,
})
consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
looked_at = 0
while looked_at < wanted:
    for message in consumer.consume(min(1000, wanted - looked_at), 1.0):
        assert message.error() is None, message.error()
        message.key(), message.value(), message.offset()
        looked_at += 1
consumer.close()
"""


@dataclass(frozen=True, slots=True)
class Side:
    """A program that gives all records, and the same program for one of them."""

    whole: Sequence[str]
    first: Sequence[str]


def measure_first(place: Path, rounds: int) -> Iterator[Row]:
    """CPU of processes that give the first record of a local segment, from start to end."""
    source = write_inputs(place, SHAPES[1], ["lz4"], 64 * MIB)["lz4"]
    commands = {
        "library": [sys.executable, "-c", _OURS, str(source.location), "bench", "1"],
        "cat --limit 1": [*_CAT, str(source.location), "--limit", "1"],
    }
    for name, command in commands.items():
        seconds = tuple(1000 * cpu_of(command) for _ in range(rounds + 1))[1:]  # the first one warms the page cache
        yield Row(f"first local record: {name}", seconds, FIRST_MS[name], " ms")
    python = tuple(1000 * cpu_of([sys.executable, "-c", "import pyarrow"]) for _ in range(rounds))
    yield Row("for comparison: python -c 'import pyarrow'", python, None, " ms")
    source.remove()


def measure_shape(kit: Kit, place: Path, shape: Shape, wanted: Sequence[str], mib: int, rounds: int) -> Iterator[Row]:
    """A topic of lz4 that a broker has on its disk, where segreader reads it."""
    batches = make_batches(shape, 8 * MIB, BATCH_BYTES)
    times = mib // 8
    records = times * sum(len(batch.records) for batch in batches)
    with kit.cluster(place / "kafka") as kafka:
        kafka.create_topic("out", PARTITIONS, segment_bytes=1 << 30, remote_storage_enable="false")
        with kit.producer(kafka.bootstrap, codec="lz4", batch_size=BATCH_BYTES, linger_ms=50) as out:
            produce(out, "out", batches, times)
        logs = str(kafka.nodes[0].config.directory / "data")
        megabytes = times * sum(batch.payload_bytes for batch in batches) / 1e6
        if "text" in wanted:
            yield from _measure_text(shape, kafka.bootstrap, logs, records, megabytes, rounds)
        if "objects" in wanted:
            ours = (sys.executable, "-c", _OURS, logs, "out")
            theirs = (sys.executable, "-c", _CONFLUENT, kafka.bootstrap, "out")
            sides = {
                "records()": Side((*ours, str(records)), (*ours, "1")),
                "confluent-kafka": Side(
                    (*theirs, str(records), str(PARTITIONS)), (*theirs, str(PARTITIONS), str(PARTITIONS))
                ),
            }
            yield from _take_turns(shape, sides, {"records()": TIMES_CONFLUENT}, megabytes, rounds)


def _measure_text(
    shape: Shape, bootstrap: str, logs: str, records: int, megabytes: float, rounds: int
) -> Iterator[Row]:
    cat = (*_CAT, logs, "--topic", "out")
    sides = {
        f"cat -o {form}": Side((*cat, "-o", form), (*cat, "-o", form, "--limit", "1")) for form in ("ndjson", "csv")
    }
    try:
        options = ("-C", "-q", "-e", "-J", "-b", bootstrap, "-t", "out", "-o", "beginning", "-X", "check.crcs=true")
        kcat = (str(_kcat()), *options)
        sides["kcat -J"] = Side(kcat, (*kcat, "-c", "1"))
    except NotAvailableError as error:
        print(f"not measured: {error}")
    for name, side in sides.items():
        lines = subprocess.run(side.whole, stdout=subprocess.PIPE, check=True).stdout.count(b"\n") - name.endswith(
            "csv"
        )
        if lines != records:
            raise ValueError(f"{name} gives {lines} of {records} records")
    yield from _take_turns(shape, sides, {"cat -o ndjson": TIMES_KCAT, "cat -o csv": None}, megabytes, rounds)


def _take_turns(
    shape: Shape, sides: Mapping[str, Side], ours: Mapping[str, float | None], megabytes: float, rounds: int
) -> Iterator[Row]:
    """Each of ours by the last of the sides: all records but one, for start-up is in both."""
    wholes: dict[str, list[float]] = {name: [] for name in sides}
    firsts: dict[str, list[float]] = {name: [] for name in sides}
    for index in range(rounds):
        for name in sides if index % 2 else reversed(list(sides)):
            wholes[name].append(cpu_of(sides[name].whole))
            firsts[name].append(cpu_of(sides[name].first))
    seconds = {name: [whole - median(firsts[name]) for whole in wholes[name]] for name in sides}
    other = list(sides)[-1]
    for name, target in ours.items():
        rate = megabytes / median(seconds[name])
        if other in ours:
            yield Row(f"{shape.name}: {name}", (rate,), None, " MB/s", "of records in a CPU second")
            continue
        ratios = tuple(one / two for one, two in zip(seconds[name], seconds[other], strict=True))
        note = f"{rate:.0f} and {megabytes / median(seconds[other]):.0f} MB/s of records"
        yield Row(f"{shape.name}: {name} / {other}", ratios, target, "x", note)


def _kcat() -> Path:
    """kcat with the librdkafka of the same Debian.

    Raises:
        NotAvailableError: it cannot be fetched.
    """
    place = unpack("kcat", "librdkafka1", "libyajl2")
    libraries = ":".join(str(path) for path in place.glob("usr/lib/*") if path.is_dir())
    os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, (libraries, os.environ.get("LD_LIBRARY_PATH"))))
    return place / "usr" / "bin" / "kcat"


def measure(place: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    if "first" in arguments.only:
        yield from measure_first(place, 2 * arguments.rounds + 1)
    if set(arguments.only) - {"first"}:
        kit = Kit.load()
        for shape in (SHAPES[0], Shape("1 KiB", 1024), SHAPES[2]):
            with tempfile.TemporaryDirectory(dir=place) as name:
                yield from measure_shape(kit, Path(name), shape, arguments.only, arguments.size, arguments.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.out", description="The ways out of a scan.")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side has its turn (5)")
    parser.add_argument("--size", type=int, default=128, metavar="MIB", help="of the topic before compression (128)")
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=FIGURES, help="only these figures")
    arguments = parse_options(parser, rounds=3)
    demand_native()
    print_machine("confluent-kafka", "pyarrow")
    with tempfile.TemporaryDirectory(prefix="segreader-bench-") as place:
        run(measure(Path(place), arguments), arguments.json)


if __name__ == "__main__":
    main()
