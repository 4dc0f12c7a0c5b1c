"""What the same records cost from a broker's tiered topic by Spark's kafka source, and from the tier by ours.

Needs PySpark 4.0.0, whose connector is complete in Maven Central. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.backfill_sides import LocalJob
from benchmarks.inputs import BATCH_BYTES, Shape, make_batches
from benchmarks.native import demand_native
from benchmarks.rows import MIB, Row, parse_options, print_machine, run
from benchmarks.spark import KINDS, MASTER, SETTINGS, TINY, cpu, note, ratios, wall
from benchmarks.spark_cost import Cost, Work, whole_and_marginal
from benchmarks.spark_inputs import (
    COLUMNS,
    PARTITIONS,
    SEGMENT_BYTES,
    SPARK_CODECS,
    SPARK_SHAPES,
    Topic,
    column_bytes_of,
)
from benchmarks.spark_sides import Sides, write_nothing, write_parquet
from segreader import scan
from spark_jobs.session import job_session

BROKER_JVM = ("-Xmx1g", "-Xms1g", "-XX:+UseG1GC")

PARTITION_FETCH_BYTES = 16 * MIB
"""``max.partition.fetch.bytes`` of Spark's consumers: with Kafka's 1 MiB they would ask the broker more often."""

LOCAL = {"100 B": 5.0, "1 KiB": 4.0}
SPARK = {"100 B": 4.5, "1 KiB": 3.0}
READ = {"100 B": 3.0, "1 KiB": 2.5}
CPU_TARGETS: Mapping[str, Mapping[str, float]] = {
    "local engine -> Parquet": LOCAL,
    "local engine -> Iceberg": LOCAL,
    "local engine -> Delta": LOCAL,
    "Spark engine -> Parquet": SPARK,
    "read() -> noop": READ,
}
"""Times the CPU of each way that Spark's kafka source and the broker need, at least."""


@dataclass(frozen=True, slots=True)
class Kit:
    """The test kit's ways to a broker, which lie outside of any package."""

    cluster: Callable[..., Any]
    producer: Callable[..., Any]
    connector: str

    @staticmethod
    def load(pom: Path | None = None) -> Kit:
        """Import it, and fetch the connector, or what else a POM names."""
        sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
        from kafka_kit.clients import producer
        from kafka_kit.cluster import cluster
        from kafka_kit.jars import CONNECTOR, fetch_jars

        return Kit(cluster, producer, ",".join(map(str, sorted(fetch_jars(pom or CONNECTOR).glob("*.jar")))))


def write_topic(kit: Kit, kafka: Any, shape: Shape, codec: str, column_bytes: int) -> Topic:
    """A topic whose records lie in the remote tier alone, in segments of 32 MiB."""
    name = f"{shape.name.replace(' ', '')}-{codec}-{column_bytes}".lower()
    kafka.create_topic(name, PARTITIONS, segment_bytes=SEGMENT_BYTES)
    batches = make_batches(shape, 8 * MIB, BATCH_BYTES)
    with kit.producer(kafka.bootstrap, codec=codec, batch_size=BATCH_BYTES, linger_ms=50) as out:
        made = number = 0
        while made < column_bytes:
            batch = batches[number % len(batches)]
            for key, value, _headers in batch.records:
                while True:
                    try:
                        out.produce(name, value, key, number % PARTITIONS)
                        break
                    except BufferError:
                        out.poll(0.1)
            made += column_bytes_of(batch)
            number += 1
            out.poll(0)
        if out.flush(120):
            raise RuntimeError("the broker does not take all records")
    kafka.upload(name)
    location = Path(kafka.location)
    sizes = [(batch.num_rows, batch.nbytes) for batch in scan(location, topic=name, columns=COLUMNS).to_batches()]
    stored = sum(file.stat().st_size for file in location.glob(f"{name}-*/*.log"))
    return Topic(
        name, shape.name, codec, location, sum(one for one, _ in sizes), stored, sum(size for _, size in sizes)
    )


@dataclass(frozen=True, slots=True)
class KafkaSides:
    """The ways of one topic through the broker."""

    spark: SparkSession
    kafka: Any
    topic: Topic
    scratch: Path

    def frame(self) -> DataFrame:
        """By Spark's own source, all that is there."""
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.kafka.bootstrap)
        reader = reader.option("kafka.max.partition.fetch.bytes", str(PARTITION_FETCH_BYTES))
        return reader.option("subscribe", self.topic.name).load()

    def noop(self) -> None:
        write_nothing(self.frame())

    def parquet(self) -> None:
        write_parquet(self.frame(), self.scratch / self.topic.name / "kafka")

    def check(self) -> int:
        """Bytes of its Parquet files, which must hold each record."""
        return Sides(self.spark, self.topic, self.scratch).check("kafka")


def measure(kit: Kit, spark: SparkSession, kafka: Any, place: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    done = []
    for shape in SPARK_SHAPES:
        for codec in SPARK_CODECS:
            if f"{shape.name} {codec}" in (arguments.kind or KINDS):
                topic, tiny = (write_topic(kit, kafka, shape, codec, size) for size in (int(arguments.gb * 1e9), TINY))
                print(
                    f"\n{shape.name} {codec}: {topic.records} records, {topic.gb:.2f} GB of columns,"
                    f" {topic.stored_bytes / 1e6:.0f} MB stored in the remote tier"
                )
                yield from measure_topic(
                    spark, kafka, topic, tiny, place, arguments.rounds, arguments.only or tuple(_GOALS)
                )
                done.append(topic)
    yield from check_alone(spark, kafka, done, place)


def measure_topic(
    spark: SparkSession, kafka: Any, topic: Topic, tiny: Topic, place: Path, rounds: int, goals: Sequence[str]
) -> Iterator[Row]:
    ours = [Sides(spark, one, place) for one in (topic, tiny)]
    local = [_local(one, place) for one in (topic, tiny)]
    theirs = [KafkaSides(spark, kafka, one, place) for one in (topic, tiny)]
    counts = ours[0].frame().count(), theirs[0].frame().count()
    if counts != (topic.records, topic.records):
        raise RuntimeError(f"{topic.records} records, but the two sources count {counts}")
    for goal in goals:
        big, small = (_GOALS[goal](*sides) for sides in zip(ours, local, theirs, strict=True))
        costs = whole_and_marginal(big, small, rounds, wake=ours[1].noop, broker=kafka.nodes[0].pid)
        said = note(topic, costs[1])
        for name in list(big)[:-1]:
            yield from _compare(f"{topic.shape} {topic.codec}: kafka / {name}", topic, name, costs, said)
            said = ""
    if "Parquet" in goals:
        sizes = {
            "Spark's writer": theirs[0].check(),
            "Spark engine": ours[0].check("sink-zstd"),
            **{f"local {to}": sum(local[0].check(to)) for to in ("parquet", "iceberg", "delta")},
        }
        print("    written, MB: " + ", ".join(f"{name} {size / 1e6:.0f}" for name, size in sizes.items()))
    shutil.rmtree(place, ignore_errors=True)


def _compare(
    title: str, topic: Topic, name: str, costs: tuple[Mapping[str, list[Cost]], Mapping[str, list[Cost]]], said: str
) -> Iterator[Row]:
    """CPU of the records and of the whole job, and the wall of that, on kafka's side by ours."""
    target = CPU_TARGETS.get(name, {}).get(topic.shape)
    for kind, some in zip(("whole job", "marginal"), costs, strict=True):
        asked_nothing = [replace(one, broker=0.0) for one in some[name]]  # it works without a broker, too
        found = ratios(some["kafka"], asked_nothing, cpu)
        yield Row(f"{title}, CPU, {kind}", found, target, "x", said if kind == "marginal" else "", is_least=True)
    yield Row(f"{title}, wall", ratios(costs[0]["kafka"], costs[0][name], wall), None, "x")


def _noops(ours: Sides, local: LocalJob, theirs: KafkaSides) -> dict[str, Work]:
    return {"read() -> noop": ours.read_noop, "source -> noop": ours.noop, "kafka": theirs.noop}


def _files(ours: Sides, local: LocalJob, theirs: KafkaSides) -> dict[str, Work]:
    return {
        "local engine -> Parquet": local.parquet,
        "local engine -> Iceberg": local.iceberg,
        "local engine -> Delta": local.delta,
        "Spark engine -> Parquet": ours.sink,
        "kafka": theirs.parquet,
    }


_GOALS: Mapping[str, Callable[[Sides, LocalJob, KafkaSides], dict[str, Work]]] = {"noop": _noops, "Parquet": _files}


def _local(topic: Topic, place: Path) -> LocalJob:
    return LocalJob(topic.location, topic.name, topic.records, place)


def check_alone(spark: SparkSession, kafka: Any, topics: list[Topic], place: Path) -> Iterator[Row]:
    """Our reads with the broker stopped: they would fail if they asked it for anything."""
    for node in kafka.nodes:
        node.stop()
    for topic in topics:
        ours = Sides(spark, topic, place)
        ours.sink()
        ours.check("sink-zstd")
        local = _local(topic, place)
        for to in ("parquet", "iceberg", "delta"):
            local.run(to)
            local.check(to)
        if ours.frame().count() != topic.records:
            raise RuntimeError("without a broker there are fewer records")
    yield Row("topics read with the broker stopped", (len(topics),), len(topics), is_least=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark_kafka", description="Beside Spark's kafka source."
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each side has its turn (5)")
    parser.add_argument("--gb", type=float, default=1.0, help="columns of a topic in 1e9 bytes (1)")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this topic; may be repeated")
    parser.add_argument("--only", action="append", choices=tuple(_GOALS), help="only these rows; may be repeated")
    arguments = parse_options(parser)
    demand_native()
    kit = Kit.load()
    print_machine("pyspark", "pyarrow")
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segreader-bench-")))
        kafka = stack.enter_context(kit.cluster(place / "kafka", jvm=BROKER_JVM))
        settings = {**SETTINGS, "spark.jars": kit.connector}
        session = stack.enter_context(job_session("segreader benchmark", master=MASTER, settings=settings))
        run(measure(kit, session.spark, kafka, place / "out", arguments), arguments.json)


if __name__ == "__main__":
    main()
