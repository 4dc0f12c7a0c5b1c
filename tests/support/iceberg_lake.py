"""Iceberg tables of tests: a catalog in SQLite beside them, and files of records that are made up."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from segreader.backfill.lake.iceberg import IcebergTable, open_iceberg
from segreader.backfill.lake.table import LakeTable, TableEnd
from segreader.backfill.output import SCHEMA, OutputOptions, parse_partition_by
from segreader.backfill.writer import SplitWriter, WrittenFile
from segreader.storage.target.store import open_target

FIRST_US = 1_700_000_000_000_000
"""Of the record at offset 0; each has a second more than the one before."""


def sql_catalog(root: Path) -> dict[str, str]:
    """Properties of a catalog in a SQLite file, with its tables below the same directory."""
    return {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/lake"}


def opened(root: Path, name: str = "db.orders") -> IcebergTable:
    """A table of the directory's catalog; a second call gives a second writer."""
    return open_iceberg(name, "lake", sql_catalog(root))


def records(start: int, stop: int, *, topic: str = "orders", partition: int = 0) -> pa.RecordBatch:
    """Records with these offsets, every seventh a tombstone and every fifth with a header."""
    offsets = range(start, stop)
    columns: dict[str, list[Any]] = {
        "key": [f"key {one}".encode() for one in offsets],
        "value": [None if one % 7 == 0 else f"value {one} of {partition}".encode() for one in offsets],
        "topic": [topic] * len(offsets),
        "partition": [partition] * len(offsets),
        "offset": list(offsets),
        "timestamp": [FIRST_US + one * 1_000_000 for one in offsets],
        "timestampType": [0] * len(offsets),
        "headers": [[{"key": "h", "value": b"1"}] if one % 5 == 0 else None for one in offsets],
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def written(
    table: LakeTable,
    ids: Mapping[str, int],
    start: int,
    stop: int,
    *,
    topic: str = "orders",
    partition: int = 0,
    partition_by: str = "",
    storage_options: Mapping[str, object] | None = None,
) -> tuple[WrittenFile, ...]:
    """Files of these records below the table's location, as a task writes them."""
    options = OutputOptions(table="iceberg", partition_by=parse_partition_by(partition_by), field_ids=ids)
    target = open_target(table.location, storage_options)
    token = uuid.uuid4().hex[:12]
    writer = SplitWriter(target, options, partition=partition, start=start, stop=stop, token=token)
    writer.write(records(start, stop, topic=topic, partition=partition))
    return writer.finish()


def ending(offset: int, *, commit: str = "", **others: int) -> TableEnd:
    """An end of orders-0 at this offset, and of orders-1 at that of ``p1``."""
    offsets = {"0": offset} | {name.removeprefix("p"): one for name, one in others.items()}
    return TableEnd(offsets={"orders": offsets}, commit=commit or uuid.uuid4().hex)


def offsets_in(table: LakeTable, *, partition: int = 0, stop: int = 1 << 40) -> list[int]:
    """Those that the table has of a partition of orders, as it gives them."""
    found: list[int] = []
    for batch in table.records("orders", partition, 0, stop):
        found += batch.column("offset").to_pylist()
    return found


def filled(
    table: IcebergTable,
    stops: Sequence[int],
    *,
    partition_by: str = "",
    storage_options: Mapping[str, object] | None = None,
) -> TableEnd:
    """Commits one after the other, of the offsets up to each of these."""
    ids = table.prepare(SCHEMA, parse_partition_by(partition_by))
    end: TableEnd | None = table.end()
    start = 0 if end is None else end.offsets["orders"]["0"]
    for stop in stops:
        files = written(table, ids, start, stop, partition_by=partition_by, storage_options=storage_options)
        following = ending(stop)
        table.commit(files, end, following)
        end, start = following, stop
    assert end is not None
    return end
