"""Queries of a real session over history and live data: tasks in workers of Spark's, a broker on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_cluster import ServedLog, served
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from served_cluster import ServedCluster, served_cluster, tiered_log

from segreader.spark import read, register
from segreader.testing.builder import SegmentBuilder

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

TOPIC = "orders"
LAST = SegmentBuilder(60)


@pytest.fixture
def cluster(tmp_path: Path, spark: SparkSession) -> Iterator[ServedCluster]:
    """Partition 0 has 40 offsets in the store and 20 on the broker, partition 1 has five, which are not uploaded."""
    register(spark)
    segments = [SegmentBuilder().batch([b"v"] * 20)]
    for _ in range(2):
        segments.append(segments[-1].roll().batch([b"v"] * 20))
    first = tiered_log(tmp_path / "tier", TOPIC, segments, uploaded=2, local_from=2)
    second = ServedLog(served(SegmentBuilder().batch([b"w"] * 5).to_bytes()), [(0, 0)])
    with served_cluster({TOPIC: {0: first, 1: second}}) as made:
        yield made


def given(cluster: ServedCluster, tmp_path: Path) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "location": str(tmp_path / "tier"),
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
    }


def test_a_frame_has_all_of_it_however_often_it_is_used(
    spark: SparkSession, cluster: ServedCluster, tmp_path: Path
) -> None:
    frame = spark.read.format("segreader").options(**given(cluster, tmp_path)).load()

    assert {row["partition"]: row["count"] for row in frame.groupBy("partition").count().collect()} == {0: 60, 1: 5}
    assert frame.where("partition = 0 and offset >= 38").count() == 22
    assert frame.schema["value"].dataType.typeName() == "binary"


def test_read_gives_what_the_data_source_gives(spark: SparkSession, cluster: ServedCluster, tmp_path: Path) -> None:
    theirs = spark.read.format("segreader").options(**given(cluster, tmp_path)).load()
    frame = read(spark, options=given(cluster, tmp_path))

    assert frame.schema == theirs.schema
    assert sorted(frame.collect(), key=str) == sorted(theirs.collect(), key=str)
    assert (frame.count(), frame.where("partition = 1").count()) == (65, 5)


def test_a_query_follows_the_log_from_one_run_to_the_next(
    spark: SparkSession, cluster: ServedCluster, tmp_path: Path
) -> None:
    def run() -> list[tuple[int, int]]:
        reader = spark.readStream.format("segreader").options(**given(cluster, tmp_path)).load()
        writer = reader.select("partition", "offset").writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.option("path", str(tmp_path / "out")).start().awaitTermination(300)
        rows = spark.read.schema("partition int, offset bigint").parquet(str(tmp_path / "out")).collect()
        return sorted((row["partition"], row["offset"]) for row in rows)

    before = [(0, n) for n in range(60)] + [(1, n) for n in range(5)]
    assert run() == before
    more = SegmentBuilder(5).batch([b"w"] * 7)
    cluster.cluster.logs[TOPIC][1].batches += served(more.to_bytes())
    assert run() == [*before, *((1, n) for n in range(5, 12))]


def test_what_retention_takes_from_a_planned_task_is_told_by_name(
    spark: SparkSession, cluster: ServedCluster, tmp_path: Path
) -> None:
    options = given(cluster, tmp_path) | {"assign": '{"orders":[1]}'}
    del options["subscribe"]
    frame = spark.read.format("segreader").options(**options).load()
    assert frame.rdd.getNumPartitions() == 1
    cluster.cluster.logs[TOPIC][1].log_start = 3
    with pytest.raises(PythonException, match="Deleted after the plan was made"):
        frame.collect()
