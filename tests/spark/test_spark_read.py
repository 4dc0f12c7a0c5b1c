"""``segreader.spark.read`` gives what ``format("segreader")`` gives; a count of its frame decodes nothing."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path

import pytest
from corpus import CORPUS
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from spark_rows import split_partitions

from segreader.errors import ObjectNotFoundError, OptionError
from segreader.spark import read, register
from segreader.spark.batch import FrameTask, SegmentReader, pack
from segreader.spark.options import parse_options
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered

REMOTE = str(CORPUS / "tv2" / "remote")
TOPICS = "multi,codec-zstd,txn-span,nulls"


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def by_format(spark: SparkSession, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.read.format("segreader").option("location", REMOTE).options(**options)
    return (reader.schema(schema) if schema else reader).load()


def rows(frame: DataFrame) -> list[dict[str, object]]:
    table = frame.toArrow()
    found: list[dict[str, object]] = table.sort_by(
        [(n, "ascending") for n in ("topic", "partition", "offset")]
    ).to_pylist()
    return found


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
class TestWithSpark:
    @pytest.mark.parametrize(
        "options",
        [
            {"subscribe": TOPICS},
            {"subscribe": TOPICS, "includeHeaders": "true", "rawColumns": "true"},
            {"assign": '{"multi":[3,1]}', "startingOffsets": '{"multi":{"1":100,"3":-2}}'},
            {"subscribe": "multi", "maxRecordsPerPartition": "100"},
            {"subscribe": "small-many", "isolationLevel": "read_uncommitted", "splitBytes": "4k"},
        ],
    )
    def test_schema_and_records_are_those_of_the_data_source(
        self, spark: SparkSession, options: dict[str, str]
    ) -> None:
        ours, theirs = read(spark, REMOTE, options), by_format(spark, **options)

        assert ours.schema == theirs.schema
        assert rows(ours) == rows(theirs)
        assert ours.count() == theirs.count() > 0

    def test_options_may_be_keywords_and_have_values_of_python(self, spark: SparkSession) -> None:
        frame = read(
            spark, Path(REMOTE), assign={"multi": [0]}, startingOffsets={"multi": {"0": 100}}, includeHeaders=True
        )

        assert frame.columns[-1] == "headers"
        assert frame.agg({"offset": "min"}).first()[0] == 100  # type: ignore[index]

    def test_several_locations_are_read_as_one(self, spark: SparkSession, tmp_path: Path) -> None:
        for name, topic in (("a", "orders"), ("b", "audit")):
            write_local_tiered(tmp_path / name, topic, [SegmentBuilder().batch([b"v"] * 5)])
        frame = read(spark, [tmp_path / "a", tmp_path / "b"], subscribePattern=".*")

        assert sorted(frame.groupBy("topic").count().collect()) == [("audit", 5), ("orders", 5)]

    def test_columns_and_a_schema_choose_the_same(self, spark: SparkSession) -> None:
        by_name = read(spark, REMOTE, subscribe="nulls", columns=["offset", "key"])
        by_schema = read(spark, REMOTE, subscribe="nulls", schema="offset bigint, key binary")

        assert by_name.schema == by_schema.schema
        assert by_name.orderBy("offset").collect() == by_schema.orderBy("offset").collect()
        for wrong in ({"columns": ["ofset"]}, {"schema": "ofset bigint"}):
            with pytest.raises(OptionError, match=r"unknown column ofset.*Did you mean offset"):
                read(spark, REMOTE, subscribe="nulls", **wrong)
        with pytest.raises(OptionError, match="exclude each other"):
            read(spark, REMOTE, subscribe="nulls", columns=["offset"], schema="offset bigint")

    def test_decoded_values_have_the_columns_of_the_data_source(self, spark: SparkSession, tmp_path: Path) -> None:
        schema = tmp_path / "orders.avsc"
        record = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
        schema.write_text(json.dumps(record))
        write_local_tiered(tmp_path / "data", "orders", [SegmentBuilder().batch([b"\x02", b"\x04"])])
        options = {"subscribe": "orders", "valueSchema": str(schema)}
        ours = read(spark, tmp_path / "data", options)
        theirs = spark.read.format("segreader").options(location=str(tmp_path / "data"), **options).load()

        assert ours.schema == theirs.schema
        assert [row.value.id for row in ours.orderBy("offset").collect()] == [1, 2]
        assert read(spark, tmp_path / "data", options, schema="value struct<id:int>").count() == 2

    def test_a_count_reads_no_value(self, spark: SparkSession, tmp_path: Path) -> None:
        schema = tmp_path / "orders.avsc"
        schema.write_text('"string"')
        write_local_tiered(tmp_path / "data", "orders", [SegmentBuilder().batch([b"\xff", b"\xff"])])
        frame = read(spark, tmp_path / "data", subscribe="orders", valueSchema=schema)

        with pytest.raises(PythonException, match="UndecodableValueError"):
            frame.collect()
        assert frame.count() == 2
        with pytest.raises(PythonException, match="UndecodableValueError"):
            frame.cache().count()  # that fills the cache
        frame.unpersist()

    def test_a_plan_is_made_once_and_when_asked_for(
        self, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        segments = [SegmentBuilder().batch([b"v"] * 5)]
        write_local_tiered(tmp_path, "orders", segments)
        with caplog.at_level(logging.INFO, logger="segreader"):
            frame = read(spark, tmp_path, subscribe="orders")
        write_local_tiered(tmp_path, "orders", [segments[-1].roll().batch([b"v"] * 5)])

        assert [line for line in caplog.messages if "1 partitions, 1 splits" in line]
        assert (frame.count(), frame.where("offset >= 0").count()) == (5, 5)
        assert read(spark, tmp_path, subscribe="orders").count() == 10

    def test_nothing_to_read_is_an_empty_frame(self, spark: SparkSession) -> None:
        starts = {"startingTimestamp": "2090-01-01T00:00Z", "startingOffsetsByTimestampStrategy": "latest"}
        frame = read(spark, REMOTE, {"subscribe": "nulls", **starts})

        assert (frame.count(), frame.collect()) == (0, [])

    def test_errors_are_raised_by_the_call(self, spark: SparkSession) -> None:
        with pytest.raises(OptionError, match=r"unknown option startingoffset\. Did you mean startingOffsets"):
            read(spark, REMOTE, subscribe="nulls", startingOffset="earliest")
        with pytest.raises(ObjectNotFoundError, match="topic 'nope' is not here"):
            read(spark, REMOTE, subscribe="nope")
        with pytest.raises(OptionError, match="location is given twice"):
            read(spark, REMOTE, {"path": REMOTE, "subscribe": "nulls"})
        with pytest.raises(OptionError, match="cannot be latest"):
            read(spark, REMOTE, subscribe="nulls", startingOffsets="latest")


def test_small_splits_are_packed_and_a_task_carries_no_more_than_names_and_numbers() -> None:
    options = parse_options({"location": REMOTE, "subscribe": TOPICS, "splitBytes": "4k"})
    reader = SegmentReader(options, ("offset",))
    splits = reader.plan(cores=2)
    groups = pack(splits, options, cores=2)
    task = pickle.loads(pickle.dumps(FrameTask(reader, groups)))

    assert sum(map(len, groups)) == len(splits) > len(groups) >= 6
    assert [id(one) for group in groups for one in group] == [id(one) for one in splits]
    assert len(task) == len(groups)
    assert len(pickle.dumps(task)) < 1000 * len(splits) + 8000


def test_splits_that_were_cut_by_offsets_stay_alone() -> None:
    options = parse_options({"location": REMOTE, "subscribe": "multi", "maxRecordsPerPartition": "50"})
    splits = SegmentReader(options, ("offset",)).plan()

    assert len(pack(splits, options, cores=1)) == len(splits)


def test_min_partitions_are_kept() -> None:
    options = parse_options({"location": REMOTE, "subscribe": "small-many", "minPartitions": "9"})
    splits = SegmentReader(options, ("offset",)).plan()

    assert len(splits) >= len(pack(splits, options, cores=1)) >= 9
    assert len(split_partitions(REMOTE, subscribe="small-many", minPartitions="9")) >= 9
