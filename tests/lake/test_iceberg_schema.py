"""Columns and partitions of an Iceberg table: made from ours, evolved where Iceberg allows it, refused where not."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from iceberg_lake import ending, opened, written
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, NestedField, PrimitiveType, StringType, TimestamptzType

from segreader.backfill.lake.iceberg import IcebergTable
from segreader.backfill.lake.iceberg_schema import changes_for, columns_of, iceberg_schema
from segreader.backfill.output import SCHEMA, OutputOptions, PartitionField, parse_partition_by
from segreader.backfill.writer import SplitWriter, WrittenFile
from segreader.errors import OptionError
from segreader.storage.target.store import open_target

ITEM = pa.struct([pa.field("sku", pa.string()), pa.field("price", pa.decimal128(10, 2))])
TYPED = pa.struct(
    [
        pa.field("yes", pa.bool_()),
        pa.field("count", pa.int32()),
        pa.field("total", pa.int64()),
        pa.field("ratio", pa.float32()),
        pa.field("score", pa.float64()),
        pa.field("name", pa.string()),
        pa.field("data", pa.binary()),
        pa.field("four", pa.binary(4)),
        pa.field("day", pa.date32()),
        pa.field("time", pa.time64("us")),
        pa.field("local", pa.timestamp("us")),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("large", pa.decimal128(38, 9)),
        pa.field("items", pa.list_(pa.field("element", ITEM))),
        pa.field("tags", pa.map_(pa.string(), ITEM)),
    ]
)


def typed(value: pa.DataType, key: pa.DataType | None = None) -> pa.Schema:
    """Our columns with a decoded value."""
    fields = {"value": value, "key": key or pa.binary()}
    return pa.schema([one.with_type(fields.get(one.name, one.type)) for one in SCHEMA])


def of_pyiceberg(table: IcebergTable) -> Table:
    return table._load()


class Typed(OutputOptions):
    """Files of records that are decoded in some way, as no decoder of ours would."""

    __slots__ = ()
    kind: pa.DataType = TYPED

    @property
    def records(self) -> pa.Schema:
        return typed(self.kind)


def typed_files(
    table: IcebergTable, ids: Any, kind: pa.DataType, values: list[Any], start: int
) -> tuple[WrittenFile, ...]:
    options = type("TypedAs", (Typed,), {"__slots__": (), "kind": kind})(table="iceberg", field_ids=ids)
    target = open_target(table.location)
    writer = SplitWriter(target, options, partition=0, start=start, stop=start + len(values), token=f"{start:012x}")
    count = len(values)
    columns = {
        "key": [None] * count,
        "value": values,
        "topic": ["orders"] * count,
        "partition": [0] * count,
        "offset": range(start, start + count),
        "timestamp": [0] * count,
        "timestampType": [0] * count,
        "headers": [None, []] * (count // 2) + [None] * (count % 2),
    }
    schema = typed(kind)
    writer.write(pa.RecordBatch.from_arrays([pa.array(columns[one.name], one.type) for one in schema], schema=schema))
    return writer.finish()


def values_in(table: IcebergTable) -> list[Any]:
    rows = pa.Table.from_batches(table.records("orders", 0, 0, 100))
    found: list[Any] = rows.column("value").to_pylist(maps_as_pydicts="strict")
    return found


def test_a_table_has_the_columns_of_sparks_kafka_source(tmp_path: Path) -> None:
    table = opened(tmp_path)
    ids = table.prepare(SCHEMA, ())

    schema = of_pyiceberg(table).schema()
    assert [one.name for one in schema.fields] == SCHEMA.names
    assert {path: one.field_id for path, one in columns_of(schema).items()} == ids
    assert "headers.element.value" in ids
    assert not any(one.required for one in schema.fields)
    assert of_pyiceberg(table).format_version == 2


def test_every_type_of_a_decoded_value_comes_back_as_it_was(tmp_path: Path) -> None:
    table = opened(tmp_path)
    ids = table.prepare(typed(TYPED), ())
    item = {"sku": "a", "price": Decimal("3.50")}
    full = {
        "yes": True,
        "count": -7,
        "total": 1 << 40,
        "ratio": 0.5,
        "score": 0.1,
        "name": "ü" * 50,
        "data": b"\xff\x00" * 40,
        "four": b"abcd",
        "day": date(2026, 11, 24),
        "time": datetime(2026, 1, 1, 12, 30, 0, 5).time(),
        "local": datetime(1960, 1, 1, 0, 0, 0, 1),
        "at": datetime(2026, 11, 24, 16, 0, 0, 1, tzinfo=UTC),
        "price": Decimal("-12345678.90"),
        "large": Decimal("12345678901234567890123456789.123456789"),
        "items": [item, None, {"sku": None, "price": None}],
        "tags": {"x": item, "y": None},
    }
    values = [full, None, dict.fromkeys(full), full | {"items": [], "tags": {}, "count": 5, "price": Decimal("0.01")}]
    files = typed_files(table, ids, TYPED, values, 0)
    table.commit(files, None, ending(4))

    rows = pa.Table.from_batches(table.records("orders", 0, 0, 10))
    assert values_in(table) == values
    assert rows.schema.field("value").type.equals(TYPED)
    assert rows.column("headers").to_pylist() == [None, [], None, []]
    (task,) = of_pyiceberg(table).scan().plan_files()
    schema = of_pyiceberg(table).schema()
    for path in ("yes", "count", "total", "four", "day", "time", "local", "at", "price", "large"):
        column = columns_of(schema)[f"value.{path}"]
        assert isinstance(column.type, PrimitiveType)
        there: list[Any] = [one[path] for one in (values[0], values[3]) if one is not None]
        assert task.file.lower_bounds[column.field_id] == to_bytes(column.type, min(there)), path
        assert task.file.upper_bounds[column.field_id] == to_bytes(column.type, max(there)), path
        assert task.file.null_value_counts[column.field_id] == 2
    assert list(of_pyiceberg(table).scan("value.count > 5").plan_files()) == []


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (pa.struct([pa.field("took", pa.duration("us"))]), "value.took (duration"),
        (pa.struct([pa.field("at", pa.list_(pa.timestamp("ns")))]), "value.at.element (timestamp"),
        (pa.map_(pa.string(), pa.uint64()), "value.value (uint64)"),
        (pa.decimal256(40, 2), "value (decimal256"),
        (pa.struct([pa.field("none", pa.struct([]))]), "value.none (a struct without fields)"),
        (pa.null(), "value (null)"),
    ],
)
def test_a_type_that_iceberg_lacks_is_refused_before_anything_is_written(
    tmp_path: Path, kind: pa.DataType, named: str
) -> None:
    table = opened(tmp_path)
    for ask in (table.check, table.prepare):
        with pytest.raises(OptionError, match="Iceberg has no type for these columns") as caught:
            ask(typed(kind), ())
        assert named in str(caught.value)
    assert not table.exists
    assert not (tmp_path / "lake").exists()


def test_names_that_iceberg_cannot_tell_apart_are_refused(tmp_path: Path) -> None:
    below = pa.struct([pa.field("a.b", pa.int32()), pa.field("a", pa.struct([pa.field("b", pa.int32())]))])
    with pytest.raises(OptionError, match="the same name in Iceberg"):
        opened(tmp_path).prepare(typed(below), ())


def test_columns_that_a_table_lacks_are_added_at_any_depth_and_types_widened(tmp_path: Path) -> None:
    table = opened(tmp_path)
    before = pa.struct(
        [
            pa.field("count", pa.int32()),
            pa.field("ratio", pa.float32()),
            pa.field("items", pa.list_(pa.field("element", ITEM))),
            pa.field("tags", pa.map_(pa.string(), ITEM)),
        ]
    )
    wider = pa.struct([*list(ITEM)[:1], pa.field("price", pa.decimal128(12, 2)), pa.field("unit", pa.string())])
    after = pa.struct(
        [
            pa.field("count", pa.int64()),
            pa.field("ratio", pa.float64()),
            pa.field("buyer", pa.struct([pa.field("name", pa.string())])),
            pa.field("items", pa.list_(pa.field("element", wider))),
            pa.field("tags", pa.map_(pa.string(), wider)),
        ]
    )
    old_ids = table.prepare(typed(before), ())
    item = {"sku": "a", "price": Decimal("3.50")}
    old = {"count": 1, "ratio": 0.5, "items": [item], "tags": {"x": item}}
    table.commit(typed_files(table, old_ids, before, [old, None], 0), None, ending(2))
    changes = table.check(typed(after), ())
    assert set(changes) == {
        "widens column value.count from int to long",
        "widens column value.ratio from float to double",
        "adds column value.buyer (struct)",
        "widens column value.items.element.price from decimal(10, 2) to decimal(12, 2)",
        "adds column value.items.element.unit (string)",
        "widens column value.tags.value.price from decimal(10, 2) to decimal(12, 2)",
        "adds column value.tags.value.unit (string)",
    }
    ids = table.prepare(typed(after), ())
    assert {path: ids[path] for path in old_ids} == old_ids
    assert table.check(typed(after), ()) == ()
    new = old | {"count": 1 << 40, "buyer": {"name": "b"}, "items": [item | {"unit": "kg"}], "tags": {}}
    table.commit(typed_files(table, ids, after, [new], 2), ending(2), ending(3))

    evolved = {**item, "unit": None}
    assert values_in(table) == [{**old, "buyer": None, "items": [evolved], "tags": {"x": evolved}}, None, new]
    assert of_pyiceberg(table).scan("value.count > 1").to_arrow().num_rows == 1
    table.compact(1 << 20)
    assert values_in(table) == [{**old, "buyer": None, "items": [evolved], "tags": {"x": evolved}}, None, new]


@pytest.mark.parametrize(
    ("there", "asked", "found", "expected"),
    [
        (pa.string(), pa.int32(), "value.n string", "value.n int"),
        (pa.int64(), pa.int32(), "value.n long", "value.n int"),
        (pa.float64(), pa.float32(), "value.n double", "value.n float"),
        (pa.int32(), pa.float64(), "value.n int", "value.n double"),
        (pa.decimal128(10, 2), pa.decimal128(10, 3), "value.n decimal(10, 2)", "value.n decimal(10, 3)"),
        (pa.decimal128(10, 2), pa.decimal128(9, 2), "value.n decimal(10, 2)", "value.n decimal(9, 2)"),
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC"), "value.n timestamp", "value.n timestamptz"),
        (ITEM, pa.string(), "value.n struct", "value.n string"),
        (pa.list_(pa.string()), pa.list_(pa.int64()), "value.n.element string", "value.n.element long"),
        (pa.map_(pa.int32(), pa.string()), pa.map_(pa.int64(), pa.string()), "value.n.key int", "value.n.key long"),
    ],
)
def test_a_change_that_iceberg_does_not_allow_is_refused_and_nothing_changes(
    tmp_path: Path, there: pa.DataType, asked: pa.DataType, found: str, expected: str
) -> None:
    table = opened(tmp_path)
    table.prepare(typed(pa.struct([pa.field("n", there)])), ())
    before = of_pyiceberg(table).metadata_location
    wanted = typed(pa.struct([pa.field("n", asked), pa.field("more", pa.string())]))
    for ask in (table.check, table.prepare):
        with pytest.raises(OptionError, match="the table does not take these columns") as caught:
            ask(wanted, ())
        assert f"found {found}, expected {expected}" in str(caught.value)
    assert of_pyiceberg(table).metadata_location == before


def test_a_column_that_a_table_demands_is_refused_where_files_would_lack_it() -> None:
    there = Schema(
        NestedField(1, "offset", LongType(), required=True),
        NestedField(2, "timestampType", IntegerType(), required=True),
        NestedField(3, "value", StringType(), required=True),
        NestedField(4, "theirs", StringType(), required=True),
        NestedField(5, "mine", StringType(), required=False),
    )
    asked = pa.schema([("offset", pa.int64()), ("timestampType", pa.int32()), ("value", pa.string())])
    with pytest.raises(OptionError) as caught:
        changes_for(there, iceberg_schema(asked), "db.orders")
    assert "columns: value, theirs" in str(caught.value)
    assert "value which is never null" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["topic", "partition", "day(timestamp)", "hour(timestamp)", "bucket(16, key)", "topic, day(timestamp)"]
)
def test_a_table_says_what_it_is_partitioned_by(tmp_path: Path, text: str) -> None:
    table, fields = opened(tmp_path), parse_partition_by(text)
    ids = table.prepare(SCHEMA, fields)
    assert table.partition_fields() == fields
    assert table.prepare(SCHEMA, ()) == table.prepare(SCHEMA, fields) == ids
    table.commit(written(table, ids, 0, 100, partition_by=text), None, ending(100))
    paths = [task.file.file_path for task in of_pyiceberg(table).scan().plan_files()]
    assert len(paths) == len(list(table.files())) > 0
    other = (PartitionField("bucket", "key", 3),)
    for ask in (table.check, table.prepare):
        with pytest.raises(OptionError, match="the table is partitioned by something else") as caught:
            ask(SCHEMA, other)
        assert ", ".join(map(str, fields)) in str(caught.value)
        assert "bucket(3, key)" in str(caught.value)


@pytest.mark.parametrize(("column", "transform"), [("timestamp", "month"), ("topic", "truncate[3]"), ("offset", "")])
def test_a_partition_spec_that_files_cannot_follow_is_refused(tmp_path: Path, column: str, transform: str) -> None:
    table = opened(tmp_path)
    table.prepare(SCHEMA, ())
    with of_pyiceberg(table).update_spec() as update:
        if transform:
            update.add_field(column, transform)
        else:
            update.add_identity(column)
    for ask in (lambda: table.prepare(SCHEMA, ()), table.partition_fields):
        with pytest.raises(OptionError, match="files cannot be divided by here") as caught:
            ask()
        assert f"({column})" in str(caught.value)


def test_a_decoded_key_without_buckets_cannot_partition_a_table(tmp_path: Path) -> None:
    table = opened(tmp_path)
    with pytest.raises(OptionError, match="cannot be partitioned by bucket"):
        table.prepare(typed(pa.binary(), key=ITEM), parse_partition_by("bucket(4, key)"))
    assert not table.exists


@pytest.mark.parametrize("version", [1, 3])
def test_a_table_of_another_format_version_is_refused(tmp_path: Path, version: int) -> None:
    table = opened(tmp_path)
    table._catalog.create_namespace("db")
    made = table._catalog.create_table("db.made", SCHEMA, properties={"format-version": str(min(version, 2))})
    metadata = Path(made.metadata_location.removeprefix("file://"))
    document = json.loads(metadata.read_bytes()) | {"format-version": version, "next-row-id": 0}
    metadata.write_text(json.dumps(document))  # pyiceberg writes no tables of version 3
    table._catalog.register_table("db.orders", made.metadata_location)
    with pytest.raises(OptionError, match=f"found version {version}, expected version 2"):
        table.prepare(SCHEMA, ())


def test_a_table_that_somebody_else_made_takes_records(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table._catalog.create_namespace("db")
    theirs = Schema(
        NestedField(7, "note", StringType(), required=False),
        NestedField(3, "offset", LongType(), required=True),
        NestedField(9, "timestamp", TimestamptzType(), required=True),
    )
    table._catalog.create_table("db.orders", theirs)
    ids = table.prepare(SCHEMA, ())
    table.commit(written(table, ids, 0, 10), None, ending(10))
    got = pa.Table.from_batches(table.records("orders", 0, 2, 5))
    assert got.column("offset").to_pylist() == [2, 3, 4]
    assert got.column("note").null_count == 3
