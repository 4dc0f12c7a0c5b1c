"""Columns, partitions, statistics and files of a Delta table: made, added to, refused, joined; on disk and in S3."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_lake import PARTITIONINGS, day_of, end_at, filled, log_of, made, read, split_files
from deltalake.schema import Field, PrimitiveType
from growing_bucket import GrowingBucket
from servers.pool import ServerPool
from servers.s3 import S3Server

from segreader import lake
from segreader.backfill.lake.delta import DeltaLakeTable, open_delta
from segreader.backfill.lake.table import Compacted
from segreader.backfill.output import SCHEMA, PartitionField, parse_partition_by
from segreader.errors import (
    AccessDeniedError,
    ConcurrentWriteError,
    ManifestError,
    ObjectNotFoundError,
    OptionError,
    RecreatedTopicError,
    SegreaderError,
    StorageError,
)
from segreader.testing.directory import kafka_uuid

CANARY = "canary-4711"


@pytest.fixture
def table(tmp_path: Path) -> DeltaLakeTable:
    return open_delta(str(tmp_path / "orders"))


def opened(table: DeltaLakeTable) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(table.location)


def with_value(kind: pa.DataType) -> pa.Schema:
    """The columns of files whose values are decoded."""
    return SCHEMA.set(SCHEMA.get_field_index("value"), pa.field("value", kind))


def with_values(values: list[Any], kind: pa.DataType, start: int = 0) -> pa.RecordBatch:
    """Records with these values."""
    batch = made(start, start + len(values))
    at = SCHEMA.get_field_index("value")
    return batch.set_column(at, pa.field("value", kind), pa.array(values, kind))


# Columns

TYPES: dict[pa.DataType, list[Any]] = {
    pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))]): [{"a": 1, "b": {"c": "x"}}, None],
    pa.list_(pa.field("item", pa.int32(), nullable=False)): [[1, 2], [], None],
    pa.map_(pa.string(), pa.int32()): [[("a", 1), ("b", None)], [], None],
    pa.decimal128(10, 2): [Decimal("1.25"), Decimal("-7.10"), None],
    pa.date32(): [date(2024, 2, 29), None],
    pa.float32(): [1.5, float("nan"), None],
    pa.float64(): [1.5, float("inf"), None],
    pa.bool_(): [True, False, None],
    pa.string(): ["x", "", None],
    pa.int64(): [-(2**63), 2**63 - 1, None],
    pa.timestamp("us"): [datetime(2024, 1, 1), None],
}
WIDER: dict[pa.DataType, tuple[pa.DataType, list[Any]]] = {
    pa.uint32(): (pa.int64(), [2**32 - 1, None]),
    pa.binary(4): (pa.binary(), [b"abcd", None]),
    pa.dictionary(pa.int32(), pa.string()): (pa.string(), ["RED", "BLUE", None]),
    pa.timestamp("ms", "UTC"): (pa.timestamp("us", "UTC"), [1_700_000_000_123, None]),
}
REFUSED = [
    pa.time64("us"),
    pa.time32("ms"),
    pa.duration("us"),
    pa.month_day_nano_interval(),
    pa.uint64(),
    pa.decimal256(40, 2),
    pa.timestamp("ns", "UTC"),
    pa.null(),
    pa.struct([]),
]


@pytest.mark.parametrize("kind", [*TYPES, *WIDER], ids=str)
def test_values_of_a_type_that_delta_has_are_read_as_they_were_written(
    table: DeltaLakeTable, kind: pa.DataType
) -> None:
    there, values = WIDER[kind] if kind in WIDER else (kind, TYPES[kind])
    batch = with_values(values, kind)
    assert table.prepare(batch.schema, ()) == {}
    table.commit(split_files(table, batch), None, end_at(len(values)))

    rows = pa.Table.from_batches(list(table.records("orders", 0, 0, 9)))
    plain = pa.list_(pa.int32()) if pa.types.is_list(kind) else there
    assert rows.schema == with_value(plain)
    assert str(rows.column("value").to_pylist()) == str(batch.column("value").cast(plain).to_pylist())
    theirs = opened(table).to_pyarrow_dataset().to_table()
    assert str(theirs.column("value").to_pylist()) == str(rows.column("value").to_pylist())


@pytest.mark.parametrize("kind", REFUSED, ids=str)
def test_types_that_delta_lacks_are_refused_by_name_before_anything_is_there(
    table: DeltaLakeTable, kind: pa.DataType
) -> None:
    schema = with_value(pa.struct([("good", pa.int32()), ("items", pa.list_(pa.struct([("bad", kind)])))]))
    for ask in (table.check, table.prepare):
        with pytest.raises(OptionError, match=r"no such column: value\.items\.element\.bad") as caught:
            ask(schema, ())
        assert str(kind) in str(caught.value)
    assert not os.path.exists(table.location)


@pytest.mark.parametrize("names", [("a b",), ("a;b",), ("",), ("total", "Total")])
def test_names_that_delta_does_not_take_are_refused(table: DeltaLakeTable, names: tuple[str, ...]) -> None:
    with pytest.raises(OptionError, match="Delta has no such column"):
        table.prepare(with_value(pa.struct([(name, pa.int32()) for name in names])), ())
    assert not table.exists


def test_columns_that_a_table_lacks_are_added_also_in_structs_lists_and_maps(table: DeltaLakeTable) -> None:
    old = pa.struct(
        [
            ("a", pa.int32()),
            ("in", pa.struct([("x", pa.int32())])),
            ("l", pa.list_(pa.struct([("x", pa.int32())]))),
            ("m", pa.map_(pa.string(), pa.struct([("x", pa.int32())]))),
        ]
    )
    below = pa.struct([("y", pa.string()), ("x", pa.int32())])
    new = pa.struct([("b", pa.date32()), ("in", below), ("l", pa.list_(below)), ("m", pa.map_(pa.string(), below))])
    first = {"a": 1, "in": {"x": 1}, "l": [{"x": 1}], "m": [("k", {"x": 1})]}
    second = {
        "b": date(2024, 1, 1),
        "in": {"x": 2, "y": "z"},
        "l": [{"x": 2, "y": "z"}],
        "m": [("k", {"x": 2, "y": "z"})],
    }
    table.prepare(with_value(old), ())
    table.commit(split_files(table, with_values([first, None], old)), None, one := end_at(2))

    wanted = pa.schema([*with_value(new), pa.field("value_error", pa.string())])
    added = table.check(wanted, ())
    assert [text.partition(":")[0] for text in added] == [
        "value.b",
        "value.in.y",
        "value.l.element.y",
        "value.m.value.y",
        "value_error",
    ]
    assert opened(table).version() == 1, "nothing is changed by looking"
    table.prepare(wanted, ())
    assert table.check(wanted, ()) == table.check(with_value(old), ()) == ()
    batch = with_values([second], new, 2)
    batch = pa.RecordBatch.from_arrays([*batch.columns, pa.array(["bad"])], schema=wanted)
    table.commit(split_files(table, batch), one, end_at(3))

    theirs = opened(table).to_pyarrow_dataset().to_table().sort_by("offset")
    ours = pa.Table.from_batches(list(table.records("orders", 0, 0, 9)))
    assert ours.column("value").to_pylist() == theirs.column("value").to_pylist()
    assert ours.column("value_error").to_pylist() == [None, None, "bad"]
    older, _, newer = ours.column("value").to_pylist()
    assert older["in"] == {"x": 1, "y": None}
    assert (newer["a"], newer["b"], newer["in"]) == (None, date(2024, 1, 1), {"x": 2, "y": "z"})
    ours.validate(full=True)


@pytest.mark.parametrize(
    ("there", "here", "named"),
    [
        (pa.binary(), pa.string(), "value, .*found binary there, expected string here"),
        (pa.int32(), pa.int64(), "value, .*found integer there, expected long here"),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.string())]), r"value\.a, .*integer there"),
        (pa.struct([("a", pa.int32())]), pa.struct([("A", pa.int32())]), r"value\.A, .*called a there"),
        (pa.list_(pa.int32()), pa.list_(pa.date32()), r"value\.element, .*integer there"),
        (pa.list_(pa.int32()), pa.int32(), "value, .*array<integer> there"),
        (pa.decimal128(10, 2), pa.decimal128(12, 2), r"value, .*decimal\(10,2\) there"),
    ],
)
def test_a_column_of_another_type_is_refused_and_nothing_is_changed(
    table: DeltaLakeTable, there: pa.DataType, here: pa.DataType, named: str
) -> None:
    table.prepare(with_value(there), ())
    for ask in (table.check, table.prepare):
        with pytest.raises(OptionError, match=named):
            ask(pa.schema([*with_value(here), pa.field("value_error", pa.string())]), ())
    assert opened(table).version() == 0


def test_a_table_that_somebody_else_made_is_taken_if_it_fits(tmp_path: Path) -> None:
    ours = deltalake.Schema.from_arrow(SCHEMA).fields
    ours[4] = Field("offset", PrimitiveType("long"), nullable=False)
    theirs = [*ours, Field("comment", PrimitiveType("string"))]
    made_by_user = deltalake.DeltaTable.create(tmp_path / "t", deltalake.Schema(theirs), partition_by=["topic"])
    table = DeltaLakeTable.of(made_by_user)
    assert table.partition_fields() == parse_partition_by("topic")

    filled(table, 10, partition_by="topic")
    assert opened(table).to_pyarrow_dataset().to_table().column("comment").to_pylist() == [None] * 10

    strict = deltalake.Schema([*ours, Field("audit", PrimitiveType("string"), nullable=False)])
    other = DeltaLakeTable.of(deltalake.DeltaTable.create(tmp_path / "strict", strict))
    with pytest.raises(OptionError, match=r"audit, .*NOT NULL"):
        other.prepare(SCHEMA, ())


def map_columns(kind: Any, ids: Iterator[int]) -> None:
    """Give each column a number and another name in the files, as a table with column mapping has them."""
    if isinstance(kind, dict):
        for field in kind.get("fields", ()):
            number = next(ids)
            field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
            map_columns(field["type"], ids)
        map_columns(kind.get("elementType"), ids)


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"delta.columnMapping.mode": "name"}, "columnMapping"),
        ({"delta.enableDeletionVectors": "true"}, "deletionVectors"),
        ({"delta.constraints.positive": "offset > 0"}, "checkConstraints"),
    ],
)
def test_a_table_that_needs_what_a_job_does_not_write_is_refused(
    table: DeltaLakeTable, settings: dict[str, str], found: str
) -> None:
    table.prepare(SCHEMA, ())
    path = Path(table.location) / "_delta_log" / f"{0:020d}.json"
    feature = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    lines = []
    for action in log_of(Path(table.location)):
        if "protocol" in action:
            is_mapped = "columnMapping" in str(settings)
            action["protocol"] = {"minReaderVersion": 1 + is_mapped, "minWriterVersion": 5 if is_mapped else 3}
            if "Vectors" in str(settings):
                action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **feature}
        if "metaData" in action:
            action["metaData"]["configuration"] = settings
            columns = json.loads(action["metaData"]["schemaString"])
            if "columnMapping" in str(settings):
                map_columns(columns, iter(range(1, 99)))
            action["metaData"]["schemaString"] = json.dumps(columns)
        lines.append(json.dumps(action))
    path.write_text("\n".join(lines))

    for ask in (lambda: table.prepare(SCHEMA, ()), lambda: table.commit((), None, end_at(1))):
        with pytest.raises(OptionError, match=found):
            ask()


# Partitions


@pytest.mark.parametrize("partition_by", PARTITIONINGS)
def test_records_of_a_table_with_partitions_are_all_there_in_their_order(
    table: DeltaLakeTable, partition_by: str
) -> None:
    fields = parse_partition_by(partition_by)
    end = filled(table, 30, 100, partition_by=partition_by)
    other = made(0, 40, partition=1)
    table.commit(split_files(table, other, partition_by), end, end_at(40, partition=1))

    assert table.partition_fields() == fields
    assert open_delta(table.location).partition_fields() == fields
    assert opened(table).metadata().partition_columns == [field.name for field in fields]
    assert read(table) == pa.Table.from_batches([made(0, 100)])
    assert read(table, partition=1) == pa.Table.from_batches([other])
    assert read(table, start=13, stop=71) == pa.Table.from_batches([made(13, 71)])
    assert read(table, topic="others").num_rows == 0
    for extra in table.records("orders", 0, 0, 5):
        assert extra.schema == SCHEMA

    rows = opened(table).to_pyarrow_dataset().to_table().sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert rows.select(SCHEMA.names).cast(SCHEMA).equals(pa.Table.from_batches([made(0, 100), other]))
    for field in fields:
        values = rows.column(field.name).to_pylist()[:100]
        if field.transform == "day":
            assert values == [day_of(offset) for offset in range(100)]
        if field.transform == "hour":
            assert values[:3] == ["2023-11-14-22", "2023-11-14-23", "2023-11-15-00"]
            assert len(set(values)) == 100
        if field.transform == "bucket":
            assert set(values) <= {None, 0, 1, 2}
            assert [value is None for value in values] == [offset % 5 == 0 for offset in range(100)]


@pytest.mark.parametrize(
    ("there", "here"),
    [("", "topic"), ("topic", ""), ("day(timestamp)", "hour(timestamp)"), ("bucket(3, key)", "bucket(4, key)")],
)
def test_a_table_that_is_partitioned_in_another_way_is_refused(table: DeltaLakeTable, there: str, here: str) -> None:
    table.prepare(SCHEMA, parse_partition_by(there))
    for ask in (table.check, table.prepare):
        with pytest.raises(OptionError, match="partitioned in another way"):
            ask(SCHEMA, parse_partition_by(here))


def test_partitions_that_a_job_cannot_fill_are_refused(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, ("country", pa.string())])
    theirs = deltalake.DeltaTable.create(tmp_path / "t", schema, partition_by=["country", "topic"])
    for ask in (DeltaLakeTable.of(theirs).partition_fields, lambda: DeltaLakeTable.of(theirs).prepare(SCHEMA, ())):
        with pytest.raises(OptionError, match="found country"):
            ask()


def test_files_that_are_not_of_the_partitions_are_refused(table: DeltaLakeTable) -> None:
    table.prepare(SCHEMA, (PartitionField("day", "timestamp"),))
    with pytest.raises(OptionError, match="not written for the partitions"):
        table.commit(split_files(table, made(0, 10)), None, end_at(10))


# Statistics


def test_statistics_hold_for_each_record_and_let_readers_skip_files(table: DeltaLakeTable) -> None:
    kind = pa.struct(
        [
            ("n", pa.int32()),
            ("s", pa.string()),
            ("t", pa.timestamp("ms", "UTC")),
            ("f", pa.float64()),
            ("d", pa.date32()),
        ]
    )
    values = [
        {"n": 3, "s": "b" * 100, "t": 1_700_000_000_123, "f": 1.0, "d": date(2024, 1, 2)},
        {"n": -3, "s": "a", "t": None, "f": None, "d": None},
    ]
    batch = with_values(values, kind)
    table.prepare(batch.schema, parse_partition_by("topic"))
    table.commit(split_files(table, batch, "topic"), None, end_at(2))

    (add,) = [action["add"] for action in log_of(Path(table.location)) if "add" in action]
    stats = json.loads(add["stats"])
    lower, upper, nulls = stats["minValues"], stats["maxValues"], stats["nullCount"]
    assert stats["numRecords"] == 2
    assert (lower["offset"], upper["offset"], nulls["offset"]) == (0, 1, 0)
    assert lower["timestamp"] == "2023-11-14T22:13:20.123Z", "123,456 microseconds, rounded down"
    assert upper["timestamp"] == "2023-11-14T23:13:20.124Z", "and up"
    assert (lower["value"]["n"], upper["value"]["n"]) == (-3, 3)
    assert lower["value"]["s"] == "a"
    assert upper["value"]["s"] >= "b" * 100
    assert lower["value"]["t"] == upper["value"]["t"] == "2023-11-14T22:13:20.123Z"
    assert lower["value"]["d"] == "2024-01-02"
    assert nulls["value"] == {"n": 0, "s": 0, "t": 1, "f": 1, "d": 1}
    assert "f" not in lower["value"], "a file with NaN would be skipped for what is less than NaN"
    assert {"key", "headers", "topic"}.isdisjoint(lower)

    files = opened(table).file_uris
    assert len(files(file_pruning_predicate="offset = 1")) == 1
    assert len(files(file_pruning_predicate="offset = 2")) == 0


# Joining files


@pytest.mark.parametrize("partition_by", PARTITIONINGS)
def test_small_files_are_joined_and_nothing_else_changes(table: DeltaLakeTable, partition_by: str) -> None:
    end = filled(table, *range(10, 101, 10), partition_by=partition_by)
    other = made(0, 40, partition=1)
    table.commit(split_files(table, other, partition_by), end, end_at(40, partition=1))
    before = list(table.files())
    said = table.end()

    joined = table.compact(1 << 20)

    files = list(table.files())
    made_anew = {*files} - {*before}
    assert joined == Compacted(
        len({*before} - {*files}),
        len(made_anew),
        sum(os.path.getsize(f"{table.location}/{one}") for one in made_anew),
    )
    assert len(files) == 2 if not partition_by else len(files) <= len(before)
    assert table.end() == said
    assert read(table) == pa.Table.from_batches([made(0, 100)])
    assert read(table, partition=1) == pa.Table.from_batches([other])
    for name in files:
        offsets = pq.read_table(f"{table.location}/{name}", partitioning=None).column("offset").to_pylist()
        assert offsets == sorted(offsets)
    assert table.compact(1 << 20) == Compacted(0, 0, 0), "there is nothing left to join"
    changes = [action["add"]["dataChange"] for action in log_of(Path(table.location)) if "add" in action]
    assert changes.count(False) == len(set(files) - set(before))
    assert all(os.path.exists(f"{table.location}/{name}") for name in before), "readers may be at them"
    theirs = opened(table).to_pyarrow_dataset().to_table()
    assert theirs.num_rows == 140
    assert opened(table).count() == 140, "by the statistics"
    assert len(opened(table).file_uris(file_pruning_predicate="partition = 1 AND offset = 39")) >= 1


def test_files_that_are_large_or_have_other_columns_stay(table: DeltaLakeTable) -> None:
    end = filled(table, 10, 20)
    size = max(os.path.getsize(f"{table.location}/{name}") for name in table.files())
    assert table.compact(2 * size - 2) == Compacted(0, 0, 0)
    wider = pa.schema([*SCHEMA, ("value_error", pa.string())])
    table.prepare(wider, ())
    batch = pa.RecordBatch.from_arrays([*made(20, 30).columns, pa.nulls(10, pa.string())], schema=wider)
    table.commit(split_files(table, batch), end, end_at(30))

    there = {*table.files()}
    done = table.compact(1 << 20)
    (made_anew,) = {*table.files()} - there
    assert done == Compacted(2, 1, os.path.getsize(f"{table.location}/{made_anew}"))
    rows = pa.Table.from_batches(list(table.records("orders", 0, 0, 99)))
    assert rows.schema == wider
    assert rows.column("offset").to_pylist() == list(range(30))


def test_joining_does_not_lose_what_is_appended_or_deleted_meanwhile(
    table: DeltaLakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = filled(table, 10, 20)
    rival = open_delta(table.location)
    send = deltalake.DeltaTable.create_write_transaction
    happens = [lambda: filled(rival, 30, start=end)]

    def after_others(*arguments: Any, **named: Any) -> None:
        if happens:
            happens.pop()()
        send(*arguments, **named)

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", after_others)
    table.compact(1 << 20)
    assert read(table) == pa.Table.from_batches([made(0, 30)])
    assert len(list(table.files())) == 2

    happens.append(lambda: opened(table).delete("offset < 5"))  # type: ignore[arg-type, return-value]
    with pytest.raises(ConcurrentWriteError, match="not in the table any more"):
        table.compact(1 << 20)
    assert read(table).column("offset").to_pylist() == list(range(5, 30))
    on_disk = {str(path.relative_to(table.location)) for path in Path(table.location).glob("data/**/joined-*.parquet")}
    assert len(on_disk) == 1, "what the failed one wrote is removed"


def test_a_table_of_joined_files_whose_log_was_cleaned_up_knows_its_topic(tmp_path: Path) -> None:
    """Retention takes the commits before the compaction, which said the ids of topics first."""
    bucket, place = GrowingBucket(tmp_path / "bucket", "codec-none"), tmp_path / "table"
    for _ in range(2):
        bucket.upload()
        assert lake.append(place, bucket.root, topic="codec-none").records > 0
    table = open_delta(str(place))
    said = table.end()
    assert said is not None
    assert said.topic_ids
    assert table.compact(1 << 20).files_after == 1
    assert table.end() == said
    forty_days_ago = time.time() - 40 * 86_400
    for commit in sorted((place / "_delta_log").glob("*.json"))[:-1]:
        os.utime(commit, (forty_days_ago, forty_days_ago))
    opened(table).create_checkpoint()
    opened(table).cleanup_metadata()
    assert len(list((place / "_delta_log").glob("*.json"))) == 1

    assert table.end() == said
    (log,) = (bucket.root / "kafka-tiered-storage").iterdir()
    log.rename(log.with_name(f"codec-none-0-{kafka_uuid('another')}"))
    with pytest.raises(RecreatedTopicError):
        lake.append(place, bucket.root, topic="codec-none")


def test_files_are_joined_in_a_table_that_was_replaced_and_its_end_stays_unknown(table: DeltaLakeTable) -> None:
    filled(table, 10, 20)
    rows = opened(table).to_pyarrow_dataset().to_table()
    deltalake.write_deltalake(table.location, rows, mode="overwrite")
    with pytest.raises(ManifestError):
        table.end()

    table.compact(1 << 20)
    with pytest.raises(ManifestError):
        table.end()


# Where it is


@pytest.fixture
def bucket(servers: ServerPool) -> S3Server:
    server: S3Server = servers.get("moto")
    server.upload({})
    return server


@pytest.mark.xdist_group("servers")
@pytest.mark.parametrize("partition_by", ["", "day(timestamp), topic"])
def test_a_table_in_a_bucket_is_as_one_on_disk(bucket: S3Server, partition_by: str) -> None:
    options = bucket.storage_options
    table = open_delta(f"s3://{bucket.bucket}/lake/{uuid.uuid4().hex}/orders", options)
    assert table.end() is None
    table.prepare(SCHEMA, parse_partition_by(partition_by))
    end = None
    for first in (0, 10, 20):
        files = split_files(table, made(first, first + 10), partition_by, options)
        following = end_at(first + 10)
        with pytest.raises(ConcurrentWriteError):
            table.commit(files, end_at(first + 1), following)
        table.commit(files, end, following)
        end = following
    assert table.end() == end
    table.compact(1 << 20)
    assert read(table) == pa.Table.from_batches([made(0, 30)])
    assert table.end() == end


@pytest.mark.xdist_group("servers")
def test_of_two_processes_at_once_one_wins_in_a_bucket_too(bucket: S3Server) -> None:
    options = bucket.storage_options
    table = open_delta(f"s3://{bucket.bucket}/lake/{uuid.uuid4().hex}", options)
    table.prepare(SCHEMA, ())
    program = """
import json, sys
sys.path.insert(0, sys.argv[1])
from delta_lake import end_at, made, split_files
from segreader.backfill.lake.delta import open_delta
from segreader.errors import ConcurrentWriteError
location, options, stop = sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
table = open_delta(location, options)
files = split_files(table, made(0, stop), storage_options=options)
print("ready", flush=True)
sys.stdin.readline()
try:
    table.commit(files, None, end_at(stop))
    print("won")
except ConcurrentWriteError:
    print("lost")
"""
    support = str(Path(__file__).parents[1] / "support")
    lines = [
        [sys.executable, "-c", program, support, table.location, json.dumps(options), str(stop)] for stop in (10, 20)
    ]
    writers = [subprocess.Popen(one, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for one in lines]
    for one in writers:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in writers:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    told = [one.communicate(timeout=60)[0].strip() for one in writers]
    assert sorted(told) == ["lost", "won"]
    assert read(table).num_rows == (10, 20)[told.index("won")]


@pytest.mark.xdist_group("servers")
def test_what_the_store_refuses_or_lacks_is_told_without_secrets(bucket: S3Server) -> None:
    options = {**bucket.storage_options, "secret": CANARY}
    nowhere = open_delta("s3://no-such-bucket-4711/orders", options)
    with pytest.raises(ObjectNotFoundError, match="no such bucket: no-such-bucket-4711") as caught:
        nowhere.prepare(SCHEMA, ())
    assert CANARY not in str(caught.value) + repr(caught.value) + repr(nowhere)
    closed = open_delta("s3://bucket/orders", {**options, "endpoint_url": "http://127.0.0.1:9"})
    assert CANARY not in repr(closed)
    with pytest.raises(TypeError):
        pickle.dumps(closed)


def test_a_refusal_is_told_as_one(table: DeltaLakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.prepare(SCHEMA, ())
    text = (
        "Generic S3 error: Error performing PUT in 1s - Server returned non-2xx status code: 403 Forbidden: "
        f"<Code>AccessDenied</Code> {CANARY}"
    )

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(text)

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", refuse)
    with pytest.raises(AccessDeniedError) as caught:
        table.commit((), None, end_at(1))
    assert CANARY not in str(caught.value)
    assert "403 AccessDenied" in str(caught.value)


def test_a_log_that_deltalake_cannot_read_is_told_in_its_words(table: DeltaLakeTable) -> None:
    table.prepare(SCHEMA, ())
    path = Path(table.location) / "_delta_log" / f"{0:020d}.json"
    actions = list(log_of(Path(table.location)))
    named = {"readerFeatures": ["fromTheFuture"], "writerFeatures": ["fromTheFuture"]}
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **named}} if "protocol" in one else one
        for one in actions
    ]
    path.write_text("\n".join(map(json.dumps, actions)))

    with pytest.raises(SegreaderError, match="fromTheFuture"):
        table.prepare(SCHEMA, ())


def test_a_full_disk_is_told(table: DeltaLakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.prepare(SCHEMA, ())

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("Generic LocalFileSystem error: Unable to write: No space left on device (os error 28)")

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", fail)
    with pytest.raises(StorageError, match="No space left on device"):
        table.commit((), None, end_at(1))


def test_a_table_that_is_not_there_is_told(table: DeltaLakeTable) -> None:
    with pytest.raises(ObjectNotFoundError, match="there is no Delta table"):
        table.partition_fields()
    with pytest.raises(ObjectNotFoundError):
        list(table.files())


@pytest.mark.parametrize("location", ["http://host/x", "memory://x"])
def test_locations_that_hold_no_tables_are_refused(location: str) -> None:
    with pytest.raises(OptionError, match="cannot be at this kind of location"):
        open_delta(location, {})


def test_without_deltalake_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(OptionError, match=r"pip install 'deltalake"):
        open_delta(str(tmp_path), {})


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_directory_may_be_a_url(tmp_path: Path, scheme: str) -> None:
    table = open_delta(f"{scheme}{tmp_path}/orders", {})
    filled(table, 10)
    assert table.location == str(tmp_path / "orders")
    assert read(DeltaLakeTable.of(deltalake.DeltaTable(f"file://{tmp_path}/orders"))).num_rows == 10


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="Linux has a directory that takes no other")
def test_a_directory_that_cannot_be_made_is_no_table_that_is_missing() -> None:
    with pytest.raises(
        StorageError, match=r"^/proc/table: the table's directory cannot be made; found No such file"
    ) as caught:
        open_delta("/proc/table").prepare(SCHEMA, ())
    assert not isinstance(caught.value, ObjectNotFoundError)
