"""What a backfill without Spark gains by a second core, what its start costs, and what it makes of very many segments.

``make bench-backfill``. No Java and no broker. What is measured, and how to read the table, is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean, median

import pyarrow as pa

from benchmarks.backfill_sides import Ended, LocalJob, run_command
from benchmarks.inputs import BATCH_BYTES, CODECS, Shape, make_batches
from benchmarks.native import demand_native
from benchmarks.rows import MIB, Row, parse_options, print_machine, run
from benchmarks.spark_inputs import SPARK_SHAPES, write_partition, write_topic
from segreader.backfill.lake.place import TablePlace
from segreader.backfill.lake.table import LakeTable, TableEnd
from segreader.backfill.output import OutputOptions
from segreader.backfill.writer import SplitWriter, WrittenFile
from segreader.storage.target.store import open_target
from segreader.testing.directory import kafka_uuid

CORES = 2
SPEED_UP = 1.8  # of the wall of one core, at least
MORE_CPU = 1.1  # of the CPU of one core, at most
START_S = 1.0
MEDIAN_MIB = 100.0
COMMIT_S = 30.0
FILES = 10_000
_TARGETS = ("parquet", "iceberg", "delta")
_PARTITIONS = 10
_RECORDS = 1000


def measure_cores(place: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    """The same job on one core and on two; and by one process and two, both on two cores."""
    allowed = sorted(os.sched_getaffinity(0))[:CORES]
    if len(allowed) < CORES:
        print(f"one core against two: this machine has {len(allowed)}")
        return
    for shape in SPARK_SHAPES:
        topic = write_topic(place, shape, "zstd", int(arguments.gb * 1e9))
        job = LocalJob(topic.location, topic.name, topic.records, place)
        sides: dict[str, Callable[[], Ended]] = {
            "one core": partial(job.run, "parquet", cores=allowed[:1]),
            "two cores": partial(job.run, "parquet", cores=allowed),
            "one process": partial(job.run, "parquet", "--processes", "1", cores=allowed),
        }
        took = _in_turns(sides, arguments.rounds)
        one, two, alone = took.values()
        said = "; ".join(f"{name} {_said(some)}" for name, some in took.items())
        name = f"{shape.name} zstd, {topic.gb:.1f} GB"
        yield Row(f"{name}: one core / two cores, wall", _ratios(one, two, _wall), SPEED_UP, "x", said, is_least=True)
        yield Row(f"{name}: two cores / one core, CPU", _ratios(two, one, _cpu), MORE_CPU, "x")
        yield Row(f"{name}: one process / two on two cores, wall", _ratios(alone, two, _wall), None, "x")


def measure_start(place: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    """A job of one split of some KiB, from the start of its process to its end."""
    encoded = [(batch, CODECS["zstd"](batch)) for batch in make_batches(SPARK_SHAPES[0], BATCH_BYTES, BATCH_BYTES)]
    records = write_partition(place / "start", "start", 0, encoded, 1)
    job = LocalJob(place / "start", "start", records, place)
    took = _in_turns({to: partial(job.run, to) for to in _TARGETS}, arguments.rounds)
    for to, some in took.items():
        bound = START_S if to == "parquet" else None
        yield Row(f"start, and a job of one split, to {to}: CPU", tuple(one.cpu for one in some), bound, " s")


def measure_segments(place: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    """Very many segments of 1 MiB: the plan, and files of a sensible size."""
    for codec in arguments.codec or ["zstd"]:
        topic = f"many-{codec}"
        records, segments = _write_segments(place / topic, topic, SPARK_SHAPES[0], codec, arguments.segments)
        job = LocalJob(place / topic, topic, records, place)
        name = f"{segments:,} segments of 1 MiB, {codec}"
        dry = ["--location", str(job.location), "--topic", topic, "--target", str(place / "none"), "--dry-run"]
        yield Row(f"{name}: plan, CPU", tuple(run_command(dry).cpu for _ in range(arguments.rounds)), None, " s")
        done = job.run("parquet")
        totals = done.report["totals"]
        sizes = [size / MIB for size in job.check("parquet")]
        said = f"{len(sizes)} files of {min(sizes):.0f} to {max(sizes):.0f} MiB, {totals['splits']} splits"
        said = f"{said}, {totals['stored_bytes'] / 1e9:.1f} GB stored; {_said([done])}"
        yield Row(f"{name}: median file", (median(sizes),), MEDIAN_MIB, " MiB", said, is_least=True)
        yield Row(f"{name}: bytes read / stored", (totals["bytes_read"] / totals["stored_bytes"],), 1.0, "x")


def measure_commits(place: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    """One commit of very many files, with the statistics that the writer gives them; the files are not there."""
    for kind in _TARGETS[1:]:
        written = _written(kind, place / f"facts-{kind}")
        files = [
            replace(
                written,
                name=f"data/{number}.parquet",
                first_offset=number * _RECORDS,
                last_offset=(number + 1) * _RECORDS - 1,
            )
            for number in range(FILES)
        ]
        end = TableEnd(offsets={"orders": {"0": FILES * _RECORDS}}, commit="bench")
        walls, cpus = [], []
        for number in range(arguments.rounds):
            table = _table(kind, place / f"table-{kind}-{number}")
            table.prepare(OutputOptions(table=kind).records, ())
            wall, cpu = time.perf_counter(), time.process_time()
            table.commit(files, None, end)
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
            if (found := sum(1 for _ in table.files())) != FILES:
                raise RuntimeError(f"the table has {found} files of {FILES}")
        said = f"CPU {median(cpus):.2f} s"
        yield Row(f"commit of {FILES:,} files to {kind}: wall", tuple(walls), COMMIT_S, " s", said)


def _table(kind: str, place: Path) -> LakeTable:
    place.mkdir(parents=True)
    if kind == "delta":
        return TablePlace(kind=kind, name=str(place)).open()
    options = {"type": "sql", "uri": f"sqlite:///{place / 'catalog.db'}", "warehouse": f"file://{place}"}
    return TablePlace(kind=kind, name="bench.records", catalog="bench", options=options).open()


def _written(kind: str, place: Path) -> WrittenFile:
    """What the writer says of a file of such a table."""
    options = OutputOptions(table=kind)
    rows = [
        {
            "key": b"key-%06d" % number,
            "value": b"value",
            "topic": "orders",
            "partition": 0,
            "offset": number,
            "timestamp": 1_700_000_000_000_000 + number,
            "timestampType": 0,
            "headers": None,
        }
        for number in range(_RECORDS)
    ]
    writer = SplitWriter(open_target(str(place)), options, partition=0, start=0, stop=_RECORDS, token="0" * 12)
    writer.write(pa.RecordBatch.from_pylist(rows, options.records))
    (file,) = writer.finish()
    return file


def _write_segments(location: Path, topic: str, shape: Shape, codec: str, count: int) -> tuple[int, int]:
    """A topic with about so many segments of 1 MiB; of its partitions the later ones are links to the first.

    Returns:
        Records, and segments.
    """
    batches = make_batches(shape, 8 * MIB, BATCH_BYTES)
    encoded = [(batch, CODECS[codec](batch)) for batch in batches]
    by_segment = (MIB - BATCH_BYTES) // mean(len(data) for _, data in encoded) + 1
    records = int(by_segment * mean(len(batch.records) for batch in batches) * count / _PARTITIONS)
    of_each = write_partition(location, topic, 0, encoded, records, MIB)
    (first,) = location.iterdir()
    for partition in range(1, _PARTITIONS):
        folder = location / f"{topic}-{partition}-{kafka_uuid(topic)}"
        folder.mkdir()
        for file in first.iterdir():
            base = int(file.name[:20])
            (folder / f"{base:020d}-{kafka_uuid(topic, partition, base)}{file.suffix}").hardlink_to(file)
    return _PARTITIONS * of_each, _PARTITIONS * sum(1 for _ in first.glob("*.log"))


def _in_turns(sides: Mapping[str, Callable[[], Ended]], rounds: int) -> dict[str, list[Ended]]:
    """What each side took, round by round: forwards and backwards, after a round that warms up."""
    took: dict[str, list[Ended]] = {name: [] for name in sides}
    for index in range(-1, rounds):
        for name in sides if index % 2 else reversed(list(sides)):
            ended = sides[name]()
            if index >= 0:
                took[name].append(ended)
    return took


def _ratios(of: Sequence[Ended], by: Sequence[Ended], value: Callable[[Ended], float]) -> tuple[float, ...]:
    return tuple(value(one) / value(other) for one, other in zip(of, by, strict=True))


def _wall(one: Ended) -> float:
    return one.wall


def _cpu(one: Ended) -> float:
    return one.cpu


def _said(some: Sequence[Ended]) -> str:
    return f"CPU {median(map(_cpu, some)):.2f} s, wall {median(map(_wall, some)):.2f} s"


_MEASURES: Mapping[str, Callable[[Path, argparse.Namespace], Iterator[Row]]] = {
    "start": measure_start,
    "commits": measure_commits,
    "cores": measure_cores,
    "segments": measure_segments,
}


def measure(arguments: argparse.Namespace) -> Iterator[Row]:
    for name in arguments.only or _MEASURES:
        with tempfile.TemporaryDirectory(prefix="segreader-bench-") as place:
            yield from _MEASURES[name](Path(place), arguments)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backfill", description="Backfills without Spark.")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side has its turn (5)")
    parser.add_argument("--gb", type=float, default=2.0, help="columns of the topics for cores in 1e9 bytes (2)")
    parser.add_argument("--segments", type=int, default=10_000, help="of 1 MiB (10,000)")
    parser.add_argument("--codec", action="append", choices=("none", "lz4", "zstd"), help="of these (zstd); repeatable")
    parser.add_argument("--only", action="append", choices=tuple(_MEASURES), help="only these rows; may be repeated")
    arguments = parse_options(parser, rounds=2, gb=0.5, segments=2000)
    demand_native()
    print_machine("pyarrow", "pyiceberg", "deltalake")
    run(measure(arguments), arguments.json)


if __name__ == "__main__":
    main()
