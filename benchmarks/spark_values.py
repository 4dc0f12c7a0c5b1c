"""What typed rows cost from a broker's tiered topic by Spark's kafka source and ``from_avro``, and by our source.

``make bench-spark-values``. Values are the orders of ``benchmarks.values`` in Avro, framed as Confluent's serializers
do it. Both sides give the same columns, of which ``value`` is a struct; in the end sums of fields are compared. Needs
PySpark 4.0.0, whose connector is complete in Maven Central.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fastavro
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.inputs import BATCH_BYTES
from benchmarks.native import demand_native
from benchmarks.rows import Row, parse_options, print_machine, run
from benchmarks.spark import MASTER, SETTINGS, cpu, note, ratios, wall
from benchmarks.spark_cost import Work, marginal
from benchmarks.spark_inputs import PARTITIONS, SEGMENT_BYTES, Topic
from benchmarks.spark_kafka import BROKER_JVM, Kit
from benchmarks.spark_sides import write_nothing, write_parquet
from benchmarks.values import FRAME, SCHEMA, TWO_FIELDS, orders
from segreader import scan
from segreader.typed.schema import Schema, SchemaFormat, SchemaSet, Version
from spark_jobs.backfill import main as backfill
from spark_jobs.session import job_session

POM = Path(__file__).parent / "others" / "spark_avro.xml"
LEAST = 3.0
"""Times the CPU of ours that Spark's kafka source and ``from_avro`` need, at least; the broker's apart."""

DISTINCT = 100_000
"""Records that differ; they are sent again and again."""

TINY = 20_000
_SCHEMA_ID = int.from_bytes(FRAME[1:])


def write_topic(kit: Kit, kafka: Any, name: str, values: list[bytes], records: int, codec: str) -> Topic:
    """A topic of so many orders, which lie in the remote tier alone, in segments of 32 MiB."""
    kafka.create_topic(name, PARTITIONS, segment_bytes=SEGMENT_BYTES)
    with kit.producer(kafka.bootstrap, codec=codec, batch_size=BATCH_BYTES, linger_ms=50) as out:
        for number, value in enumerate(itertools.islice(itertools.cycle(values), records)):
            while True:
                try:
                    out.produce(name, value, f"order-{number:010}".encode(), number // 1000 % PARTITIONS)
                    break
                except BufferError:
                    out.poll(0.1)
            if not number % 1000:
                out.poll(0)
        if out.flush(300):
            raise RuntimeError("the broker does not take all records")
    kafka.upload(name)
    location = Path(kafka.location)
    sizes = [(batch.num_rows, batch.nbytes) for batch in scan(location, topic=name).to_batches()]
    stored = sum(file.stat().st_size for file in location.glob(f"{name}-*/*.log"))
    if (found := sum(one for one, _ in sizes)) != records:
        raise RuntimeError(f"{records} records were sent, and {found} are in the tier")
    return Topic(name, "orders", codec, location, records, stored, sum(size for _, size in sizes))


@dataclass(frozen=True, slots=True)
class TypedSides:
    """The ways of one topic to typed rows.

    Args:
        schemas: a file of saved schemas.
        scratch: a directory for what is written.
    """

    spark: SparkSession
    kafka: Any
    topic: Topic
    schemas: Path
    scratch: Path

    def ours(self, **options: str) -> DataFrame:
        """By our source."""
        reader = self.spark.read.format("segreader").option("location", str(self.topic.location))
        return reader.option("subscribe", self.topic.name).options(valueSchema=str(self.schemas), **options).load()

    def theirs(self) -> DataFrame:
        """By Spark's source, without the frame, and ``from_avro``."""
        from pyspark.sql.avro.functions import from_avro

        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.kafka.bootstrap)
        frame = reader.option("subscribe", self.topic.name).load()
        payload = F.expr(f"substring(value, {len(FRAME) + 1})")
        return frame.withColumn("value", from_avro(payload, json.dumps(SCHEMA)))

    def noops(self) -> dict[str, Work]:
        """All fields to nothing."""
        return {
            "segreader": lambda: write_nothing(self.ours()),
            "kafka": lambda: write_nothing(self.theirs()),
        }

    def two_fields(self) -> dict[str, Work]:
        """Two of ten fields to nothing."""
        names = [f"value.{name}" for name in TWO_FIELDS]
        return {
            "segreader": lambda: write_nothing(self.ours(valueFields=",".join(TWO_FIELDS))),
            "kafka": lambda: write_nothing(self.theirs().select(*names, "partition", "offset")),
        }

    def files(self) -> dict[str, Work]:
        """All fields to Parquet with zstd: the direct sink, and Spark's writer."""
        return {
            "segreader": self._sink,
            "kafka": lambda: write_parquet(self.theirs(), self.place("kafka")),
        }

    def place(self, name: str) -> Path:
        return self.scratch / self.topic.name / name

    def sums(self) -> list[tuple[Any, ...]]:
        """Records, and the sum of a field, of ours, theirs, and of the files of both."""
        parquet = self.spark.read.option("recursiveFileLookup", "true").parquet
        frames = [self.ours(), self.theirs(), parquet(str(self.place("sink"))), parquet(str(self.place("kafka")))]
        return [
            tuple(one.selectExpr("count(*)", "sum(value.id)", "max(value.created)").first() or ()) for one in frames
        ]

    def _sink(self) -> None:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            arguments = ["--location", str(self.topic.location), "--topic", self.topic.name, "--force"]
            code = backfill([*arguments, "--value-schema", str(self.schemas), "--target", str(self.place("sink"))])
        if code:
            raise RuntimeError(f"the backfill ended with {code}: {said.getvalue()}")


def measure(kit: Kit, spark: SparkSession, kafka: Any, place: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    schemas = place / "schemas.json"
    values = [_framed(one) for one in orders(DISTINCT)]
    size = sum(map(len, values)) / len(values)
    records = int(arguments.gb * 1e9 / size)
    for codec in arguments.codec or ["lz4"]:
        big, tiny = (
            write_topic(kit, kafka, f"orders-{codec}-{count}", values, count, codec) for count in (records, TINY)
        )
        versions = tuple((f"{one.name}-value", (Version(1, _SCHEMA_ID),)) for one in (big, tiny))
        schema = Schema(SchemaFormat.AVRO, json.dumps(SCHEMA))
        schemas.write_text(SchemaSet(ids=((str(_SCHEMA_ID), schema),), subjects=versions).to_json())
        print(f"\n{codec}: {records} orders of {size:.0f} bytes, {big.stored_bytes / 1e6:.0f} MB stored")
        sides = [TypedSides(spark, kafka, one, schemas, place / "out") for one in (big, tiny)]
        yield from _measure_topic(*sides, rounds=arguments.rounds)


def _measure_topic(big: TypedSides, tiny: TypedSides, *, rounds: int) -> Iterator[Row]:
    wake = tiny.noops()["segreader"]
    goals = {"noop": TypedSides.noops, "noop, 2 of 10 fields": TypedSides.two_fields, "Parquet": TypedSides.files}
    for goal, sides in goals.items():
        costs = marginal(sides(big), sides(tiny), rounds, wake=wake, broker=big.kafka.nodes[0].pid)
        ours = [replace(one, broker=0.0) for one in costs["segreader"]]  # it works without a broker, too
        theirs = [replace(one, broker=0.0) for one in costs["kafka"]]
        name = f"{big.topic.codec}: from_avro / ours -> {goal}"
        yield Row(f"{name}, CPU", ratios(theirs, ours, cpu), LEAST, "x", note(big.topic, costs), is_least=True)
        yield Row(f"{name}, CPU with the broker", ratios(costs["kafka"], ours, cpu), None, "x")
        yield Row(f"{name}, wall", ratios(theirs, ours, wall), None, "x")
    if len(set(sums := big.sums())) > 1 or sums[0][0] != big.topic.records:
        raise RuntimeError(f"the sides differ: {sums}")


def _framed(order: dict[str, Any]) -> bytes:
    out = io.BytesIO(FRAME)
    out.seek(len(FRAME))
    fastavro.schemaless_writer(out, _PARSED, order)
    return out.getvalue()


_PARSED = fastavro.parse_schema(SCHEMA)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark_values", description="Typed rows, beside Spark's kafka source and from_avro."
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each side has its turn (5)")
    parser.add_argument("--gb", type=float, default=0.5, help="values of the topic in 1e9 bytes (0.5)")
    parser.add_argument("--codec", action="append", choices=("lz4", "zstd"), help="of the topic (lz4); may be repeated")
    arguments = parse_options(parser)
    demand_native()
    kit = Kit.load(POM)
    print_machine("pyspark", "pyarrow")
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segreader-bench-")))
        kafka = stack.enter_context(kit.cluster(place / "kafka", jvm=BROKER_JVM))
        settings = {**SETTINGS, "spark.jars": kit.connector}
        session = stack.enter_context(job_session("segreader benchmark", master=MASTER, settings=settings))
        run(measure(kit, session.spark, kafka, place, arguments), arguments.json)


if __name__ == "__main__":
    main()
