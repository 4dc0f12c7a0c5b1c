from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from written_splits import TOKEN, records_of, rows, write

from segreader.backfill.done import DoneEntry, parse_done
from segreader.backfill.output import (
    SCHEMA,
    STAGING,
    OutputLayout,
    OutputOptions,
    PartitionField,
    parse_partition_by,
    split_of_file,
)
from segreader.backfill.read_back import SplitFiles, TableRecords
from segreader.backfill.writer import ColumnFacts, WrittenFile
from segreader.errors import ObjectNotFoundError, OptionError, StorageError
from segreader.storage.target.store import open_target

TABLE = OutputOptions(table="iceberg")
NESTED = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field(
            "value",
            pa.struct(
                [
                    pa.field("number", pa.int64()),
                    pa.field("price", pa.decimal128(38, 4)),
                    pa.field("ratio", pa.float64()),
                    pa.field("is_new", pa.bool_()),
                    pa.field("day", pa.date32()),
                    pa.field("raw", pa.binary()),
                    pa.field("never", pa.string()),
                    pa.field("list", pa.list_(pa.struct([pa.field("element", pa.int32())]))),
                    pa.field("tags", pa.map_(pa.string(), pa.int64())),
                ]
            ),
        ),
        *(SCHEMA.field(name) for name in SCHEMA.names[2:]),
    ]
)


def ids_of(schema: pa.Schema) -> dict[str, int]:
    """A field id for each path, as a table gives them."""
    found: dict[str, int] = {}

    def add(one: pa.Field, path: str) -> None:
        found[path] = len(found) + 1
        kind = one.type
        if pa.types.is_struct(kind):
            for below in kind:
                add(below, f"{path}.{below.name}")
        elif pa.types.is_map(kind):
            add(kind.key_field, f"{path}.key")
            add(kind.item_field, f"{path}.value")
        elif pa.types.is_list(kind):
            add(kind.value_field, f"{path}.element")

    for one in schema:
        add(one, one.name)
    return found


class Typed(OutputOptions):
    """Options whose records are decoded, without a schema registry to learn from."""

    @property
    def records(self) -> pa.Schema:
        return NESTED


def facts_of(file: WrittenFile) -> dict[str, ColumnFacts]:
    return {one.path: one for one in file.columns}


def test_a_tables_files_lie_below_data_and_are_never_staged(tmp_path: Path) -> None:
    (file,) = write(tmp_path, TABLE, rows(3), partition=7)

    assert file.name.startswith("data/topic=orders/partition=7/part-7-")
    assert (tmp_path / file.name).stat().st_size == file.size
    assert not (tmp_path / STAGING).exists()
    assert split_of_file(file.name) == f"orders-7-{0:020d}-{1000:020d}"
    assert (TABLE.staging(True), OutputOptions().staging(True), OutputOptions().staging(False)) == ("", STAGING, "")


@pytest.mark.parametrize("topic", ["orders", "data", "_schemas", ".x", "2024-10-04"])
def test_a_topic_called_data_is_not_mistaken_for_a_table(topic: str) -> None:
    by_day = replace(TABLE, partition_by=parse_partition_by("day(timestamp)"))
    part = f"part-0-{1:020d}-{2:020d}-{TOKEN}-0.parquet"
    layouts = [OutputOptions(layout=layout, is_hive=is_hive) for layout in OutputLayout for is_hive in (False, True)]
    for output, values in [
        (TABLE, ()),
        (by_day, (19_000,)),
        *((one, () if one.layout is OutputLayout.PARTITION else (19_000,)) for one in layouts),
    ]:
        assert split_of_file(output.directory(topic, 0, values) + part) == f"{topic}-0-{1:020d}-{2:020d}"


def test_a_tables_files_have_its_field_ids_and_the_records_in_memory_have_none(tmp_path: Path) -> None:
    ids = {path: 100 + at for path, at in ids_of(NESTED).items()}
    output = Typed(table="iceberg", field_ids=ids)
    value = {"number": 1, "list": [{"element": 3}], "tags": [("a", 1)]}
    (file,) = write(tmp_path, output, rows(1, schema=NESTED, key=["a"], value=[value]))
    read = pq.ParquetFile(tmp_path / file.name).schema_arrow

    def found(one: pa.Field, path: str) -> Iterator[tuple[str, int]]:
        yield path, int((one.metadata or {})[b"PARQUET:field_id"])
        kind = one.type
        if pa.types.is_struct(kind):
            for below in kind:
                yield from found(below, f"{path}.{below.name}")
        elif pa.types.is_map(kind):
            yield from found(kind.key_field, f"{path}.key")
            yield from found(kind.item_field, f"{path}.value")
        elif pa.types.is_list(kind):
            yield from found(kind.value_field, f"{path}.element")

    assert dict(pair for one in read for pair in found(one, one.name)) == ids
    assert {"headers.element.key", "value.list.element.element", "value.tags.key", "value.tags.value"} < set(ids)
    assert all(one.metadata is None for one in output.records)
    with pytest.raises(ValueError, match=r"no field id of value\.tags\.value"):
        _ = replace(output, field_ids={name: at for name, at in ids.items() if name != "value.tags.value"}).schema


def test_the_facts_of_a_tables_file_are_those_of_its_records(tmp_path: Path) -> None:
    batches = records_of("nulls")
    (file,) = write(tmp_path, TABLE, *batches)
    table, facts = pa.Table.from_batches(batches), facts_of(file)

    assert [one.path for one in file.columns] == [
        *SCHEMA.names[:-1],
        "headers.element.key",
        "headers.element.value",
    ]
    assert {one.values for one in file.columns[:7]} == {table.num_rows}
    keys = [key for key in table["key"].to_pylist() if key is not None]
    assert facts["key"].nulls == table["key"].null_count > 0
    assert isinstance(facts["key"].lower, str)
    assert isinstance(facts["key"].upper, str)
    assert bytes.fromhex(facts["key"].lower) <= min(keys)
    assert bytes.fromhex(facts["key"].upper) >= max(keys)
    times = table["timestamp"].cast(pa.int64()).to_pylist()
    assert (facts["timestamp"].lower, facts["timestamp"].upper) == (min(times), max(times))
    assert (facts["offset"].lower, facts["offset"].upper) == (file.first_offset, file.last_offset)
    assert (facts["topic"].lower, facts["topic"].upper, facts["topic"].nulls) == ("nulls", "nulls", 0)
    assert (facts["value"].lower, facts["value"].nulls) == (None, None)
    metadata = pq.ParquetFile(tmp_path / file.name).metadata
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    assert sum(one.size for one in file.columns) == sum(
        group.column(at).total_compressed_size for group in groups for at in range(group.num_columns)
    )
    assert file.row_groups == (4,)


def test_plain_files_say_nothing_of_their_columns(tmp_path: Path) -> None:
    (file,) = write(tmp_path, OutputOptions(layout=OutputLayout.DATE), rows(3))

    assert (file.partition, file.columns, file.row_groups) == ((), (), ())


def test_each_row_group_begins_where_its_file_says(tmp_path: Path) -> None:
    output = replace(TABLE, row_group_bytes=20_000)
    batches = [rows(10, start=at, value=[os.urandom(500) for _ in range(10)]) for at in range(0, 200, 10)]
    (file,) = write(tmp_path, output, *batches)
    metadata = pq.ParquetFile(tmp_path / file.name).metadata

    assert len(file.row_groups) == metadata.num_row_groups > 3
    for at, start in enumerate(file.row_groups):
        first = metadata.row_group(at).column(0)
        assert start in (first.dictionary_page_offset, first.data_page_offset)
    assert (facts_of(file)["offset"].lower, facts_of(file)["offset"].upper) == (0, 199)


def test_decoded_columns_have_bounds_of_their_kind(tmp_path: Path) -> None:
    values = [
        {
            "number": -5,
            "price": Decimal("-12345678901234567890123456789012.0001"),
            "ratio": 1.5,
            "is_new": True,
            "day": date(1969, 12, 30),
            "raw": b"\x01",
            "never": None,
            "list": [{"element": 3}, None],
            "tags": [("a", 1)],
        },
        {
            "number": 7,
            "price": Decimal("0.5"),
            "ratio": float("nan"),
            "is_new": True,
            "day": date(2024, 1, 1),
            "raw": b"",
        },
        None,
    ]
    (file,) = write(tmp_path, Typed(table="delta"), rows(3, schema=NESTED, key=["b", "é", None], value=values))
    facts = facts_of(file)

    def told(path: str) -> tuple[Any, ...]:
        one = facts[path]
        return one.nulls, one.lower, one.upper

    assert told("key") == (1, "b", "é")
    assert told("value.number") == (1, -5, 7)
    assert told("value.price") == (1, "-12345678901234567890123456789012.0001", "0.5000")
    assert told("value.is_new") == (1, True, True)
    assert told("value.day") == (1, -2, 19723)
    assert told("value.raw") == (1, "", "01")
    assert told("value.never") == (3, None, None)
    assert told("value.ratio") == (1, None, None), "NaN is above all, and a footer leaves it out"
    assert told("value.list.element.element")[1:] == (None, None), "those of elements are not those of lists"
    assert told("value.tags.key")[1:] == (None, None)
    entry = json.loads(json.dumps(asdict(file)))
    assert [ColumnFacts(**one) for one in entry["columns"]] == list(file.columns)


@pytest.mark.parametrize(
    ("lowest", "highest", "expected"),
    [
        (b"a" * 40, b"b" * 40, ("61" * 32, "62" * 31 + "63")),
        (b"a" * 32, b"b" * 32, ("61" * 32, "62" * 32)),
        (b"", b"b" + b"\xff" * 39, ("", "63")),
        (b"\xff" * 40, b"\xff" * 41, ("ff" * 32, None)),
        ("a" * 40, "b" * 40, ("a" * 32, "b" * 31 + "c")),
        ("é" * 40, "é" * 41, ("é" * 32, "é" * 31 + "ê")),
        ("a", "\ud7ff" * 33, ("a", "\ud7ff" * 31 + "\ue000")),
        ("a", "z" + "\U0010ffff" * 40, ("a", "{")),
        ("\U0010ffff" * 40, "\U0010ffff" * 41, ("\U0010ffff" * 32, None)),
    ],
)
def test_long_bounds_are_cut_and_hold(
    tmp_path: Path, lowest: bytes | str, highest: bytes | str, expected: tuple[str, str | None]
) -> None:
    if isinstance(lowest, bytes):
        (file,) = write(tmp_path, TABLE, rows(2, key=[highest, lowest]))
    else:
        (file,) = write(tmp_path, Typed(table="iceberg"), rows(2, schema=NESTED, key=[highest, lowest]))
    key = facts_of(file)["key"]

    assert (key.lower, key.upper) == expected
    for bound, is_above in ((key.lower, False), (key.upper, True)):
        if isinstance(bound, str):
            data = bytes.fromhex(bound) if isinstance(lowest, bytes) else bound.encode()
            ends = [one if isinstance(one, bytes) else one.encode() for one in (lowest, highest)]
            assert data >= max(ends) if is_above else data <= min(ends)


def test_a_row_group_of_nulls_does_not_hide_the_bounds_of_the_others(tmp_path: Path) -> None:
    output = replace(TABLE, row_group_bytes=20_000)
    empty = [rows(10, start=at, value=[os.urandom(500) for _ in range(10)]) for at in range(0, 100, 10)]
    some = [
        rows(10, start=at, key=[b"k"] * 10, value=[os.urandom(500) for _ in range(10)]) for at in range(100, 200, 10)
    ]
    (file,) = write(tmp_path, output, *empty, *some)

    assert len(file.row_groups) > 2
    assert (facts_of(file)["key"].nulls, facts_of(file)["key"].lower) == (100, b"k".hex())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"table": "hudi"}, "iceberg, delta"),
        ({"table": "iceberg", "is_hive": True}, "--partition-by"),
        ({"table": "delta", "layout": OutputLayout.HOUR}, "--partition-by"),
        ({"partition_by": (PartitionField("identity", "topic"),)}, "--to iceberg"),
    ],
)
def test_what_is_for_plain_files_and_what_for_tables_is_told(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        OutputOptions(**given)


# Read back


def entry_of(files: list[WrittenFile], *, stop: int = 1000) -> DoneEntry:
    split = f"orders-0-{0:020d}-{stop:020d}"
    return DoneEntry(
        split=split,
        topic="orders",
        partition=0,
        start=0,
        stop=stop,
        token=TOKEN,
        records=sum(one.rows for one in files),
        files=tuple(files),
        digest="",
        control_batches=0,
        control_records=0,
        aborted_batches=0,
        aborted_records=0,
        size=0,
        bytes_read=0,
        requests=0,
        seconds=0.0,
        attempt=0,
        kernel="",
    )


def test_files_of_a_table_are_read_back_in_order_whatever_parts_them(tmp_path: Path) -> None:
    fields = parse_partition_by("hour(timestamp), bucket(4, key)")
    output = replace(TABLE, partition_by=fields, field_ids=ids_of(SCHEMA))
    times = [(at % 5) * 3_600_000_000 for at in range(100)]
    files = write(tmp_path, output, rows(100, key=[b"%d" % (at % 9) for at in range(100)], timestamp=times))
    split = SplitFiles(open_target(tmp_path), entry_of(files), output)

    assert len(files) == 10
    assert [offset for one in split.batches() for offset in one.column("offset").to_pylist()] == list(range(100))
    assert split.findings == []
    moved = replace(files[0], name=files[0].name.replace("_hour=1970-01-01-0", "_hour=1970-01-02-0"))
    (tmp_path / moved.name).parent.mkdir(parents=True)
    (tmp_path / files[0].name).rename(tmp_path / moved.name)
    split = SplitFiles(open_target(tmp_path), entry_of([moved, *files[1:]]), output)
    assert sum(one.num_rows for one in split.batches()) == 100
    assert ["holds records that belong to" in one.text for one in split.findings] == [True]


class ShownTable:
    """A table that shows its readers these batches, and then fails, or not."""

    kind = "iceberg"
    name = "db.orders"

    def __init__(self, *batches: pa.RecordBatch, error: Exception | None = None) -> None:
        self.batches, self.error = batches, error

    def records(self, topic: str, partition: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        assert (topic, partition, start, stop) == ("orders", 0, 0, 1000)
        yield from self.batches
        if self.error is not None:
            raise self.error


def shown(*batches: pa.RecordBatch, error: Exception | None = None) -> tuple[list[int], list[str]]:
    table: Any = ShownTable(*batches, error=error)
    records = TableRecords(table, entry_of([]), TABLE)
    offsets = [offset for one in records.batches() for offset in one.column("offset").to_pylist()]
    assert [offset for one in records.batches() for offset in one.column("offset").to_pylist()] == offsets
    return offsets, [str(one) for one in records.findings]


def test_the_records_of_a_table_are_checked_as_a_reader_sees_them() -> None:
    assert shown(rows(5), rows(0), rows(5, start=5)) == (list(range(10)), [])
    offsets, (twice,) = shown(rows(5), rows(5, start=4))
    assert (len(offsets), "offsets 4 are there twice, or out of order" in twice) == (10, True)
    _, (foreign,) = shown(rows(5, start=998))
    assert "offsets 1000-1002 belong to another split" in foreign
    _, (other,) = shown(rows(5).drop_columns(["headers"]))
    assert other.startswith("db.orders: shows other columns: key, value")
    _, (missing,) = shown(rows(5), error=ObjectNotFoundError("no such object", source="data/x.parquet"))
    assert "db.orders: lacks a file of orders-0-" in missing
    _, (damaged,) = shown(rows(5), error=pa.ArrowInvalid("not a Parquet file"))
    assert "cannot be read after 5 of 0 records" in damaged
    with pytest.raises(StorageError, match="is down"):
        shown(rows(5), error=StorageError("the catalog is down"))


def test_an_entry_of_a_table_says_the_same_after_it_was_stored(tmp_path: Path) -> None:
    output = replace(TABLE, partition_by=parse_partition_by("day(timestamp), topic, bucket(4, key)"))
    entry = entry_of(write(tmp_path, output, rows(4, key=[None, b"a", b"b", b"c"])))

    assert parse_done(entry.to_bytes(), "here") == entry
    assert {file.partition[:2] for file in entry.files} == {(19675, "orders")}
