"""Streaming queries in Spark: every offset once, whatever the limit and however often the query is stopped."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from corpus import CORPUS
from growing_log import GrowingLog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader
from sample import exhaustive

from segreader.cli.main import main
from segreader.spark import register
from segreader.spark.rate_limits import HAS_LIMITS

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

LONGEST_S = 300
"""A query on a busy machine: each batch starts Python workers, some seconds apiece there."""
SCHEMA = "topic string, partition int, offset bigint, value binary"

limits_needed = pytest.mark.skipif(not HAS_LIMITS, reason="Spark 4.0 and 4.1 do not ask how much to read")


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    return GrowingLog(tmp_path / "tier")


class Run:
    """Queries with one checkpoint and one output directory, one after another."""

    def __init__(self, spark: SparkSession, log: GrowingLog, tmp_path: Path) -> None:
        self.spark, self.log = spark, log
        self.checkpoint, self.output = tmp_path / "checkpoint", tmp_path / "output"

    def reader(self, **options: str) -> DataStreamReader:
        given = {"location": str(self.log.root), "subscribe": "orders"} | options
        return self.spark.readStream.format("segreader").schema(SCHEMA).options(**given)

    def start(self, *, available_now: bool = True, **options: str) -> StreamingQuery:
        writer = self.reader(**options).load().writeStream.format("parquet").option("path", str(self.output))
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def run(self, **options: Any) -> list[dict[str, Any]]:
        """Read all that is there; what each batch says of its progress."""
        query = self.start(**options)
        assert query.awaitTermination(LONGEST_S)
        return [json.loads(progress.json) for progress in query.recentProgress]

    def rows(self) -> Counter[tuple[int, int]]:
        """How often each offset of each partition is in the output."""
        frame = self.spark.read.schema(SCHEMA).parquet(str(self.output))
        rows = [(row["partition"], row["offset"], row["value"]) for row in frame.collect()]
        assert all(bytes(value) == b"%d" % offset for _, offset, value in rows)
        return Counter((partition, offset) for partition, offset, _ in rows)


@pytest.fixture
def run(spark: SparkSession, log: GrowingLog, tmp_path: Path) -> Iterator[Run]:
    yield Run(spark, log, tmp_path)
    for query in spark.streams.active:
        query.stop()


def at_most(offsets: int) -> dict[str, str]:
    """Options that make several batches of what is there, in a Spark that lets a source do so."""
    return {"maxOffsetsPerTrigger": str(offsets)} if HAS_LIMITS else {}


def once(*ends: int) -> Counter[tuple[int, int]]:
    return Counter((partition, offset) for partition, end in enumerate(ends) for offset in range(end))


@pytest.mark.parametrize(
    ("limit", "least"),
    [
        ({}, 1),
        pytest.param({"maxOffsetsPerTrigger": "40"}, 3, marks=limits_needed),
        pytest.param({"maxBytesPerTrigger": "100"}, 4, marks=[limits_needed, pytest.mark.exhaustive]),
        pytest.param({"minOffsetsPerTrigger": "1000"}, 1, marks=[limits_needed, pytest.mark.exhaustive]),
    ],
    ids=["all", "rows", "bytes", "least"],
)
def test_available_now_reads_every_row_once(run: Run, limit: dict[str, str], least: int) -> None:
    for _ in range(3):
        run.log.upload("orders", 0, 30)
    run.log.upload("orders", 1, 20)
    progress = run.run(**limit)

    assert run.rows() == once(90, 20)
    assert len([one for one in progress if one["numInputRows"]]) >= least
    (source,) = progress[-1]["sources"]
    assert source["endOffset"] == source["latestOffset"] == {"orders": {"0": 90, "1": 20}}


@pytest.mark.parametrize("stops", [3, exhaustive(10)])
def test_a_stream_that_is_stopped_often_delivers_each_offset_once(run: Run, stops: int) -> None:
    ends = [0, 0]
    for number in range(stops):
        ends[number % 2] = run.log.upload("orders", number % 2, 20)
        query = run.start(available_now=False, **at_most(7))
        for _ in range(200):
            if query.lastProgress and query.lastProgress.batchId >= number and query.lastProgress.numInputRows:
                break
            query.awaitTermination(0.05)  # type: ignore[arg-type]  # Spark takes fractions of a second
        query.stop()
    run.run(**at_most(50))

    assert run.rows() == once(*ends)


def test_a_batch_that_failed_comes_again_with_the_same_offsets(run: Run, tmp_path: Path) -> None:
    run.log.upload("orders", 0, 40)
    run.log.upload("orders", 1, 40)
    run.run(**at_most(20))
    run.log.upload("orders", 1, 40)
    end = run.log.upload("orders", 1, 10)
    broken = [path for path in run.log.logs() if "orders-1-" in str(path)][-2]
    shutil.copy(broken, tmp_path / "whole")
    data = bytearray(broken.read_bytes())
    data[len(data) // 2] ^= 1
    broken.write_bytes(data)

    with pytest.raises(PySparkException, match=r"Corrupt\w+Error: .*\.log: .*base offset"):
        run.run(**at_most(60))
    shutil.copy(tmp_path / "whole", broken)
    run.log.upload("orders", 0, 10)
    run.run(**at_most(60))
    if not HAS_LIMITS:
        run.run()  # the one before ended with the batch that came again

    assert run.rows() == once(50, end)


def test_segments_that_come_between_triggers_are_read(run: Run) -> None:
    run.log.upload("orders", 0, 10)
    query = run.start(available_now=False)
    query.processAllAvailable()
    assert run.rows() == once(10)
    run.log.upload("orders", 0, 10)
    query.processAllAvailable()
    query.stop()

    assert run.rows() == once(20)


def test_the_checkpoint_holds_the_offsets_that_another_query_goes_on_with(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run.log.upload("orders", 0, 30)
    run.log.upload("orders", 1, 30)
    run.run(**at_most(20))
    run.log.upload("orders", 1, 10)
    capfd.readouterr()
    assert main(["spark", "offsets", str(run.checkpoint)]) == 0
    line = capfd.readouterr().out

    assert line == '{"orders":{"0":30,"1":30}}\n'
    first = run.rows()
    run.checkpoint, run.output = tmp_path / "other checkpoint", tmp_path / "other output"
    run.run(startingOffsets=line)
    assert first + run.rows() == once(30, 40)


@pytest.mark.exhaustive
def test_a_stream_of_real_topics_gives_the_rows_of_a_batch_read(spark: SparkSession, run: Run) -> None:
    given = {
        "location": str(CORPUS / "tv2" / "remote"),
        "subscribePattern": "codec-.*|multi|nulls|headers|txn-abort",
        "includeHeaders": "true",
    }
    stream = spark.readStream.format("segreader").options(**given, **at_most(5000)).load()
    query = stream.writeStream.option("checkpointLocation", str(run.checkpoint)).trigger(availableNow=True)
    assert query.format("parquet").option("path", str(run.output)).start().awaitTermination(LONGEST_S)
    batch = spark.read.format("segreader").options(**given).load()
    checksum = ["count(*)", "sum(offset)", f"bit_xor(xxhash64({', '.join(batch.columns)}))"]

    assert (
        spark.read.schema(stream.schema).parquet(str(run.output)).selectExpr(*checksum).collect()
        == batch.selectExpr(*checksum).collect()
    )


def test_options_are_checked_at_load(run: Run) -> None:
    with pytest.raises(PySparkException, match="maxOffsetsPerTrigger is not a number"):
        run.spark.readStream.format("segreader").options(
            location=str(run.log.root), subscribe="orders", maxOffsetsPerTrigger="many"
        ).load()


@pytest.mark.skipif(HAS_LIMITS, reason="this Spark asks how much to read")
@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("maxOffsetsPerTrigger", "5"),
        ("maxBytesPerTrigger", "5m"),
        ("minOffsetsPerTrigger", "5"),
        ("maxTriggerDelay", "5m"),
    ],
)
def test_an_older_spark_makes_no_stream_of_a_limit_that_it_would_leave_out(run: Run, limit: str, value: str) -> None:
    given = {"location": str(run.log.root), "subscribe": "orders", limit: value}
    with pytest.raises(PySparkException, match=rf"{limit} needs Spark 4\.2 or later"):
        run.spark.readStream.format("segreader").options(**given).load()


def test_what_a_stream_finds_wrong_is_told_in_words(run: Run) -> None:
    run.log.upload("orders", 0, 10)
    run.log.upload("orders", 0, 10)
    run.run(**at_most(5))
    run.log.upload("orders", 0, 10)
    for _ in range(2):
        run.log.delete_oldest("orders", 0)
    run.log.upload("orders", 0, 10)
    run.log.delete_oldest("orders", 0)

    with pytest.raises(PySparkException, match=r"OffsetOutOfRangeError: .*offsets of orders-0 are gone"):
        run.run()
