"""What the Spark source and the backfill's direct sink cost beside Spark's own writer and reader, and beside pyarrow.

``make bench-spark``. Sides take turns in one session on ``local[2]``. What is measured, and how to read the table,
is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from benchmarks.native import demand_native
from benchmarks.rows import Row, parse_options, print_machine, run
from benchmarks.spark_cost import Cost, Work, marginal
from benchmarks.spark_inputs import SPARK_CODECS, SPARK_SHAPES, Topic, write_topics
from benchmarks.spark_sides import Sides, worker_pool
from spark_jobs.session import job_session

MASTER = "local[2]"
TINY = 2_000_000
SETTINGS = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}
KINDS = tuple(f"{shape.name} {codec}" for shape in SPARK_SHAPES for codec in SPARK_CODECS)

SINK_OVER_SPARK = {"100 B": 3.0, "1 KiB": 1.7}  # times the CPU of Spark's Parquet writer, at least
SINK_JVM = 0.5  # CPU seconds per GB, at most
SINK_OVER_PYARROW = 0.85  # of pyarrow's throughput, at least
READ_OVER_SOURCE = 0.85  # of the CPU of the data source, at most

Measure = Callable[[Sides, Sides, int], Iterator[Row]]


def ratios(of: list[Cost], by: list[Cost], value: Callable[[Cost], float]) -> tuple[float, ...]:
    return tuple(value(one) / value(other) for one, other in zip(of, by, strict=True))


def per_gb(costs: list[Cost], topic: Topic) -> str:
    """CPU and wall seconds per GB of columns."""
    jvm, python, broker, wall = (
        median(value) / topic.gb
        for value in zip(*((one.jvm, one.python, one.broker, one.wall) for one in costs), strict=True)
    )
    apart = f" + broker {broker:.2f}" if any(one.broker for one in costs) else ""
    return f"{jvm + python:.2f} ({jvm:.2f} JVM){apart}, wall {wall:.2f}"


def note(topic: Topic, costs: Mapping[str, list[Cost]]) -> str:
    return "; ".join(f"{name} {per_gb(of, topic)}" for name, of in costs.items()) + " s/GB"


def measure_sinks(sides: Sides, tiny: Sides, rounds: int) -> Iterator[Row]:
    """The direct sink, Spark's writer behind our source, and pyarrow with no Spark: all to zstd."""
    topic = sides.topic
    costs = marginal(_sinks(sides), _sinks(tiny), rounds, wake=tiny.sink)
    sizes = {name: sides.check(place) / 1e6 for name, place in _PLACES.items()}
    written = ", ".join(f"{name} {size:.0f}" for name, size in sizes.items())
    sink, spark, pyarrow = costs.values()
    yield Row(
        f"{_kind(topic)}: Spark's writer / sink, CPU",
        ratios(spark, sink, cpu),
        SINK_OVER_SPARK[topic.shape],
        "x",
        f"{note(topic, costs)}; {written} MB",
        is_least=True,
    )
    yield Row(f"{_kind(topic)}: Spark's writer / sink, wall", ratios(spark, sink, wall), None, unit="x")
    extra = tuple(one.jvm / topic.gb for one in sink)
    yield Row(f"{_kind(topic)}: JVM of the sink per GB", extra, SINK_JVM, unit=" s")
    for name, value in (("CPU", cpu), ("wall", wall)):
        found = ratios(pyarrow, sink, value)
        yield Row(f"{_kind(topic)}: sink's speed / pyarrow's, {name}", found, SINK_OVER_PYARROW, "x", is_least=True)


def measure_reads(sides: Sides, tiny: Sides, rounds: int) -> Iterator[Row]:
    """Our source, ``segreader.spark.read``, and Spark's own reader of uncompressed Parquet with the same rows: all to
    nothing."""
    for one in (sides, tiny):
        one.sink("none")
        one.check("sink-none")
    costs = marginal(_reads(sides), _reads(tiny), rounds, wake=tiny.noop)
    ours, mapped, parquet = costs.values()
    yield Row(f"{_kind(sides.topic)}: read() / source, CPU", ratios(mapped, ours, cpu), READ_OVER_SOURCE, unit="x")
    yield Row(f"{_kind(sides.topic)}: read() / source, wall", ratios(mapped, ours, wall), None, unit="x")
    found = ratios(ours, parquet, cpu)
    yield Row(f"{_kind(sides.topic)}: source / Parquet, CPU", found, None, unit="x", note=note(sides.topic, costs))
    yield Row(f"{_kind(sides.topic)}: source / Parquet, wall", ratios(ours, parquet, wall), None, unit="x")


def _sinks(sides: Sides) -> dict[str, Work]:
    return {"sink": sides.sink, "Spark": sides.spark_writer, "pyarrow": sides.pyarrow_writer}


def _reads(sides: Sides) -> dict[str, Work]:
    return {"source": sides.noop, "read()": sides.read_noop, "Parquet": sides.parquet_noop}


_PLACES = {"sink": "sink-zstd", "Spark": "spark", "pyarrow": "pyarrow"}
_MEASURES: dict[str, Measure] = {"sinks": measure_sinks, "reads": measure_reads}


def _kind(topic: Topic) -> str:
    return f"{topic.shape} {topic.codec}"


def cpu(cost: Cost) -> float:
    return cost.cpu


def wall(cost: Cost) -> float:
    return cost.wall


def measure(spark: SparkSession, place: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    size = int(arguments.gb * 1e9)
    with worker_pool() as pool:
        for topic in write_topics(place / "topics", arguments.kind or KINDS, size):
            print(
                f"\n{_kind(topic)}: {topic.records} records, {topic.gb:.2f} GB of columns,"
                f" {topic.stored_bytes / 1e6:.0f} MB stored"
            )
            small = next(write_topics(place / "tiny", [_kind(topic)], TINY))
            sides = Sides(spark, topic, place / "out", pool)
            tiny = Sides(spark, small, place / "tiny-out", pool)
            for name in arguments.only or _MEASURES:
                yield from _MEASURES[name](sides, tiny, arguments.rounds)
            for used in ("topics", "tiny", "out", "tiny-out"):
                shutil.rmtree(place / used, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description="The Spark source and its sink.")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side has its turn (5)")
    parser.add_argument("--gb", type=float, default=0.5, help="columns of a topic in 1e9 bytes (0.5)")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this topic; may be repeated")
    parser.add_argument("--only", action="append", choices=tuple(_MEASURES), help="only these rows; may be repeated")
    arguments = parse_options(parser)
    demand_native()
    print_machine("pyspark", "pyarrow", "crc32c")
    with (
        tempfile.TemporaryDirectory(prefix="segreader-bench-") as place,
        job_session("segreader benchmark", master=MASTER, settings=SETTINGS) as session,
    ):
        run(measure(session.spark, Path(place), arguments), arguments.json)


if __name__ == "__main__":
    main()
