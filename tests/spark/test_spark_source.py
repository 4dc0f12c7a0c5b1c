from __future__ import annotations

import gc
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from corpus import CORPUS, Case, NormalRecord, cases, normal
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition

from segreader.errors import CorruptBatchError, ObjectNotFoundError
from segreader.format.batch import TimestampType
from segreader.spark import register
from segreader.spark.batch import SegmentReader, SplitPartition
from segreader.spark.columns import RAW_NAMES
from segreader.spark.options import parse_options
from segreader.spark.source import SegmentSource
from segreader.spark.stream import SegmentStreamReader
from segreader.spark.worker import freeze_imports
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_broker_log, write_local_tiered
from segreader.testing.records import FIRST_TIMESTAMP_MS

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

REMOTE = str(CORPUS / "tv2" / "remote")
READABLE = [case for case in cases("tv2", remote=True) if case.topic != "recreated"]
DECIDED = [case for case in READABLE if case.topic != "txn-marker-active"]


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def load(spark: SparkSession, location: str | Path = REMOTE, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.read.format("segreader").option("location", str(location)).options(**options)
    return (reader.schema(schema) if schema else reader).load()


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in frame.select("offset").collect())


def normal_rows(frame: DataFrame) -> dict[str, list[NormalRecord]]:
    """What Spark read, by topic, in the form of the truth, but without the leader epoch that it does not have."""
    by_topic: dict[str, list[NormalRecord]] = defaultdict(list)
    table = frame.toArrow().sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")])
    for row in table.to_pylist():
        assert row["headers"] != []
        by_topic[row["topic"]].append(normal(_record(row)))
    return by_topic


def _record(row: dict[str, Any]) -> SimpleNamespace:
    time = row["timestamp"]
    return SimpleNamespace(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        timestamp_ms=round(time.timestamp() * 1000),
        timestamp_type=TimestampType(row["timestampType"]),
        leader_epoch=None,
        key=row["key"],
        value=row["value"],
        headers=[(header["key"], header["value"]) for header in row["headers"] or ()],
    )


def truth(case: Case, isolation: str) -> list[NormalRecord]:
    """The Java consumer's records that remote segments hold; Spark has no column for the leader epoch."""
    stop = case.remote_stop if isolation == "uncommitted" else case.offline_lso
    return [
        replace(record, leader_epoch=None) for record in case.truth(isolation) if record.offset < stop(record.partition)
    ]


@pytest.mark.parametrize(("isolation", "chosen"), [("uncommitted", READABLE), ("committed", DECIDED)])
def test_rows_are_the_java_consumers_records(spark: SparkSession, isolation: str, chosen: list[Case]) -> None:
    topics = ",".join(case.topic for case in chosen)
    read = normal_rows(load(spark, subscribe=topics, includeHeaders="true", isolationLevel=f"read_{isolation}"))
    for case in chosen:
        start = case.facts[isolation]["start"]
        seen = [record for record in read[case.topic] if record.offset >= int(start[str(record.partition)])]
        assert seen == truth(case, isolation), case


@pytest.mark.parametrize(
    ("set_name", "topic", "beside"),
    [
        ("cluster", "diverged-hanging", {"leaderEpochs": CORPUS / "cluster" / "local"}),
        ("tv2", "txn-marker-active", {"logDirectory": CORPUS / "tv2" / "local"}),
    ],
)
def test_rows_are_the_consumers_with_what_lies_beside_the_segments(
    spark: SparkSession, set_name: str, topic: str, beside: dict[str, Path]
) -> None:
    (some,) = (case for case in cases(set_name) if case.topic == topic)
    given = {name: str(path) for name, path in beside.items()}
    read = normal_rows(load(spark, some.root / "remote", subscribe=topic, includeHeaders="true", **given))
    assert read[topic] == [replace(record, leader_epoch=None) for record in some.truth("committed")]


def test_the_schema_has_headers_only_on_request(spark: SparkSession) -> None:
    plain = load(spark, subscribe="nulls")
    assert plain.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert load(spark, subscribe="nulls", includeHeaders="true").columns == [*plain.columns, "headers"]


def test_a_schema_of_the_users_chooses_and_orders_the_columns(spark: SparkSession) -> None:
    whole = load(spark, subscribe="nulls").orderBy("offset").select("offset", "key").collect()
    chosen = load(spark, subscribe="nulls", schema="offset bigint, key binary").orderBy("offset")

    assert chosen.columns == ["offset", "key"]
    assert chosen.collect() == whole


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("offset int", "OptionError: the schema gives offset another type; found int, expected bigint"),
        ("ofset bigint", r"OptionError: the schema has an unknown column ofset.*Did you mean offset\?"),
    ],
)
def test_a_schema_that_cannot_be_met_is_told(spark: SparkSession, ddl: str, message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        load(spark, subscribe="nulls", schema=ddl).count()


def test_an_unknown_option_is_told_at_load(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"unknown option startingoffset\. Did you mean startingOffsets\?"):
        load(spark, subscribe="nulls", startingOffset="earliest")


def test_a_topic_ends_at_its_last_stable_offset(spark: SparkSession) -> None:
    (active,) = [one for one in cases("tv2") if one.topic == "txn-marker-active"]
    wanted = [record for record in active.truth("committed") if record.offset < active.offline_lso(0)]
    assert load(spark, subscribe="txn-marker-active").count() == len(wanted)


def test_offsets_bound_each_partition_by_itself(spark: SparkSession) -> None:
    frame = load(
        spark,
        assign='{"multi":[0,2]}',
        startingOffsets='{"multi":{"0":100,"2":2900}}',
        endingOffsets='{"multi":{"0":105,"2":-1}}',
    )
    rows = sorted((row["partition"], row["offset"]) for row in frame.select("partition", "offset").collect())

    assert [offset for partition, offset in rows if partition == 0] == [100, 101, 102, 103, 104]
    assert [offset for partition, offset in rows if partition == 2] == list(range(2900, 2957))


def test_an_empty_range_is_an_empty_frame(spark: SparkSession) -> None:
    frame = load(spark, subscribe="nulls", startingOffsets='{"nulls":{"0":5}}', endingOffsets='{"nulls":{"0":5}}')
    assert frame.collect() == []


def test_small_splits_make_more_tasks_and_the_same_rows(spark: SparkSession) -> None:
    whole = load(spark, assign='{"multi":[0]}', schema="offset bigint")
    pieces = load(spark, assign='{"multi":[0]}', schema="offset bigint", splitBytes="64k", batchRecords="100")

    assert pieces.rdd.getNumPartitions() > whole.rdd.getNumPartitions()
    assert offsets(pieces) == offsets(whole)


def test_several_locations_times_and_raw_columns_work_together(spark: SparkSession, tmp_path: Path) -> None:
    first = SegmentBuilder(leader_epoch=4).batch([b"a"] * 20)
    write_local_tiered(tmp_path / "old", "t", [first])
    write_local_tiered(tmp_path / "new", "t", [first.roll().batch([b"b"] * 20)])
    reader = spark.read.format("segreader").options(subscribe="t", rawColumns="true", includeHeaders="true")
    frame = reader.option("startingTimestamp", str(FIRST_TIMESTAMP_MS + 15)).load(
        [str(tmp_path / "old"), str(tmp_path / "new")]
    )

    assert frame.columns[-9:] == ["headers", *RAW_NAMES]
    rows = frame.select("offset", "value", "leaderEpoch", "baseOffset").orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [
        (n, bytearray(b"a" if n < 20 else b"b"), 4, 0 if n < 20 else 20) for n in range(15, 40)
    ]


def test_what_is_gone_is_named_to_the_driver_or_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    first = SegmentBuilder().batch([b"a"] * 20)
    second = first.roll().batch([b"b"] * 20)
    write_local_tiered(tmp_path, "t", [first, second, second.roll().batch([b"c"] * 20)])
    for file in tmp_path.rglob(f"{20:020d}-*"):
        file.unlink()

    with pytest.raises(PySparkException, match=r"SegmentGapError: .*no segment with 20 to 39"):
        load(spark, tmp_path, subscribe="t").count()
    assert load(spark, tmp_path, subscribe="t", failOnDataLoss="false").count() == 40


def test_a_batch_read_that_would_start_at_the_end_is_refused(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="startingOffsets cannot be latest, or -1, in a batch read"):
        load(spark, subscribe="nulls", startingOffsets="latest").count()


def test_a_filter_on_one_use_of_a_frame_leaves_the_other_whole(spark: SparkSession) -> None:
    frame = load(spark, subscribe="nulls", schema="partition int, offset bigint")

    assert frame.where("offset < 10").union(frame).count() == 10 + 56
    assert frame.where("offset < 10").count() == 10
    assert frame.count() == 56


def test_a_limit_does_not_read_to_the_end(spark: SparkSession) -> None:
    assert len(load(spark, subscribe="multi", batchRecords="1").take(3)) == 3


def test_spark_finds_the_source_by_itself(spark: SparkSession) -> None:
    (case,) = [case for case in READABLE if case.topic == "nulls"]
    nulls = sum(record.key is None for record in case.truth())
    other = spark.newSession()  # knows nothing that was registered in ours
    other.sql(f"CREATE TEMPORARY VIEW nulls USING segreader OPTIONS (location '{REMOTE}', subscribe 'nulls')")
    assert other.sql("SELECT count(*) AS n FROM nulls WHERE key IS NULL").collect()[0]["n"] == nulls


def test_damage_is_told_with_its_place(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "kafka-tiered-storage"
    (directory,) = next(case for case in READABLE if case.topic == "nulls").remote
    shutil.copytree(directory, root / directory.name)
    log = min((root / directory.name).glob("*.log"))
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)

    with pytest.raises(PySparkException, match=r"CorruptBatchError: .*\.log: .*\(byte \d+, base offset \d+"):
        load(spark, tmp_path, subscribe="nulls").count()


def test_a_segment_deleted_after_planning_is_named(tmp_path: Path) -> None:
    (directory,) = next(case for case in READABLE if case.topic == "nulls").remote
    shutil.copytree(directory, tmp_path / directory.name)
    reader = SegmentReader(parse_options({"location": str(tmp_path), "subscribe": "nulls"}), ("offset",))
    planned = reader.partitions()
    gone = min((tmp_path / directory.name).glob("*.log"))
    gone.unlink()

    with pytest.raises(ObjectNotFoundError, match=f"{gone.name}: no such file"):
        [list(reader.read(partition)) for partition in planned]


def test_damage_that_hides_what_was_committed_fails_before_any_task(tmp_path: Path) -> None:
    built = SegmentBuilder().batch([b"a"]).batch([b"b"], producer_id=1, transactional=True).marker(1)
    log = next(write_broker_log(tmp_path, "orders", [built]).glob("*.log"))
    data = bytearray(log.read_bytes())
    data[built.batch_positions[2] + 69] ^= 1
    log.write_bytes(data)
    reader = SegmentReader(parse_options({"location": str(tmp_path), "subscribe": "orders"}), ("offset",))

    with pytest.raises(CorruptBatchError, match="it hides what was committed from offset 1 on"):
        reader.partitions()


def test_the_source_offers_no_filters_because_spark_would_return_wrong_rows() -> None:
    assert not any("pushFilters" in vars(kind) for kind in (SegmentReader, SegmentStreamReader))
    assert getattr(SegmentReader, "pushFilters", None) is getattr(DataSourceReader, "pushFilters", None)
    assert SegmentSource.name() == "segreader"


def test_spark_may_ask_for_a_partition_where_there_is_none() -> None:
    reader = SegmentReader(parse_options({"location": REMOTE, "subscribe": "nulls"}), ("offset",))

    assert list(reader.read(InputPartition(None))) == []


def test_the_largest_splits_come_first() -> None:
    reader = SegmentReader(parse_options({"location": REMOTE, "subscribePattern": "codec-.*"}), ("offset",))
    partitions = reader.partitions()
    sizes = [one.split.positions.size for one in partitions if isinstance(one, SplitPartition)]
    assert len(sizes) == len(partitions)

    assert sizes == sorted(sizes, reverse=True)


def test_imports_leave_garbage_collection_once() -> None:
    gc.unfreeze()
    freeze_imports.cache_clear()
    try:
        freeze_imports()
        frozen = gc.get_freeze_count()
        keep: list[list[object]] = [[] for _ in range(1000)]
        freeze_imports()
        assert 0 < gc.get_freeze_count() <= frozen
        assert len(keep) == 1000
    finally:
        gc.freeze()  # as tests/conftest.py leaves it: later tests would wait for looks at all that is there
