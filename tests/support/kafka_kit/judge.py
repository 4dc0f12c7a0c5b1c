"""Two DataFrames of the same options, ours and that of Spark's own kafka source, and whether they hold the same."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_kit.cluster import Cluster
from kafka_kit.jars import CONNECTOR, fetch_jars
from pyspark.sql import DataFrame, SparkSession

from segreader.spark import register

SPARK = "4.0.0"
"""The release that the connector is of."""


def load_connector(spark: SparkSession) -> None:
    """Let the session know ``format("kafka")`` and ``format("segreader")``, whoever started it.

    Raises:
        NotAvailableError: the connector cannot be had on this machine.
    """
    for jar in sorted(fetch_jars(CONNECTOR).glob("*.jar")):
        spark.sql(f"ADD JAR '{jar}'")
    register(spark)


@dataclass(frozen=True, slots=True)
class Checksum:
    """A DataFrame in four numbers; the last is of every byte of every column."""

    records: int
    offsets: int | None
    value_bytes: int | None
    columns: int


def checksum(frame: DataFrame) -> Checksum:
    """Read all of it."""
    hashes = f"bit_xor(xxhash64({', '.join(frame.columns)}))"
    row = frame.selectExpr("count(*)", "sum(offset)", "sum(length(value))", hashes).first()
    assert row is not None
    return Checksum(*row)


@dataclass(frozen=True, slots=True)
class Judge:
    """The same read from the broker and from its remote tier."""

    spark: SparkSession
    kafka: Cluster

    def theirs(self, **options: str) -> DataFrame:
        """From the broker, by Spark's source."""
        given = {"kafka.bootstrap.servers": self.kafka.bootstrap} | _named(options)
        return self.spark.read.format("kafka").options(**given).load()

    def ours(self, **options: str) -> DataFrame:
        """From the remote tier, by ours."""
        return self.spark.read.format("segreader").options(**{"location": self.kafka.location} | _named(options)).load()

    def agreed(self, **options: str) -> Checksum:
        """What both give.

        Raises:
            AssertionError: they differ, in their columns or in a row.
        """
        ours, theirs = self.ours(**options), self.theirs(**options)
        assert [(one.name, one.dataType) for one in ours.schema] == [(one.name, one.dataType) for one in theirs.schema]
        found = checksum(ours)
        assert found == checksum(theirs)
        return found


def _named(options: dict[str, str]) -> dict[str, str]:
    """``isolation`` is what both call ``kafka.isolation.level``."""
    isolation = options.get("isolation", "read_committed")
    return {name: text for name, text in options.items() if name != "isolation"} | {"kafka.isolation.level": isolation}
