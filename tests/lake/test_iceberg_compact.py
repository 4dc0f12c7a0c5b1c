"""Small data files of an Iceberg table joined into larger ones: which, in what order, and beside whom."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_lake import ending, filled, offsets_in, opened, records, written
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record

from segreader.backfill.lake.iceberg import IcebergTable
from segreader.backfill.lake.table import Compacted
from segreader.backfill.output import SCHEMA, parse_partition_by
from segreader.errors import ConcurrentWriteError, StorageError

LARGE = 1 << 20


def of_pyiceberg(table: IcebergTable) -> Table:
    return table._load()


def parquet_in(root: Path) -> set[str]:
    return {path.name for path in root.rglob("*.parquet")}


def rows_of(table: IcebergTable, partition: int = 0) -> pa.Table:
    return pa.Table.from_batches(table.records("orders", partition, 0, 1 << 40), SCHEMA).combine_chunks()


class _Deletes(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def delete_row(table: IcebergTable, file: DataFile, position: int) -> None:
    """Delete a row as Spark does it, by its position in a file; pyiceberg writes no such deletes."""
    theirs = of_pyiceberg(table)
    path = f"{theirs.location()}/data/deletes-{position}-{time.monotonic_ns()}.parquet"
    deletes = pa.table(
        {"file_path": [file.file_path], "pos": [position]},
        pa.schema(
            [
                pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
                pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
            ]
        ),
    )
    pq.write_table(deletes, path.removeprefix("file://"))
    made = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=Path(path.removeprefix("file://")).stat().st_size,
        lower_bounds={2147483546: file.file_path.encode()},
        upper_bounds={2147483546: file.file_path.encode()},
    )
    made.spec_id = 0
    producer = theirs.transaction().update_snapshot().fast_append()
    producer.append_data_file(made)
    producer.new_manifest_writer = lambda spec: _Deletes(  # type: ignore[method-assign]
        spec, theirs.schema(), producer.new_manifest_output(), producer.snapshot_id, "deflate"
    )
    updates, requirements = producer._commit()
    theirs.catalog.commit_table(theirs, requirements, updates)


def test_small_files_become_one_with_the_same_rows_in_the_same_order(tmp_path: Path) -> None:
    table = opened(tmp_path)
    end = filled(table, [10, 20, 35, 40])
    before = rows_of(table)
    held = of_pyiceberg(opened(tmp_path))
    done = table.compact(LARGE)

    (name,) = table.files()
    stored = pq.ParquetFile(f"{table.location.removeprefix('file://')}/{name}")
    assert done == Compacted(4, 1, Path(f"{table.location.removeprefix('file://')}/{name}").stat().st_size)
    assert rows_of(table).equals(before)
    assert stored.read(["offset"]).column("offset").to_pylist() == list(range(40))
    assert stored.schema_arrow.field("offset").metadata[b"PARQUET:field_id"] == b"5"
    assert (now := table.end()) is not None
    assert now.to_json() == end.to_json()
    snapshot = of_pyiceberg(table).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.REPLACE
    assert snapshot.summary["total-records"] == "40"
    assert snapshot.summary["total-data-files"] == "1"
    # a reader that had begun goes on
    assert held.scan().to_arrow().num_rows == 40
    assert table.compact(LARGE) == Compacted(0, 0, 0)
    assert len(of_pyiceberg(table).snapshots()) == 5
    filled(table, [50])
    assert offsets_in(table) == list(range(50))


@pytest.mark.parametrize("by", ["", "partition", "topic, partition", "day(timestamp)", "bucket(3, key)"])
def test_files_are_joined_within_a_partition_of_the_table_and_of_kafka(tmp_path: Path, by: str) -> None:
    table = opened(tmp_path)
    ids = table.prepare(SCHEMA, parse_partition_by(by))
    end = None
    for number in range(4):
        following = ending((number + 1) * 3000, p1=(number + 1) * 3000)
        span = (number * 3000, (number + 1) * 3000)
        files = [
            one for partition in (0, 1) for one in written(table, ids, *span, partition=partition, partition_by=by)
        ]
        table.commit(files, end, following)
        end = following
    before = [rows_of(table, partition) for partition in (0, 1)]
    field_id = of_pyiceberg(table).schema().find_field("partition").field_id
    files_before = [task.file for task in of_pyiceberg(table).scan().plan_files()]
    places = {(one.partition, one.lower_bounds[field_id]) for one in files_before}
    done = table.compact(LARGE)

    tasks = list(of_pyiceberg(table).scan().plan_files())
    assert done.files_before > done.files_after
    assert len(tasks) == len(places)
    assert {(task.file.partition, task.file.lower_bounds[field_id]) for task in tasks} == places
    assert [rows_of(table, partition) for partition in (0, 1)] == before
    late = of_pyiceberg(table).scan("offset >= 11000 and partition = 1").to_arrow()
    assert sorted(late.column("offset").to_pylist()) == list(range(11000, 12000))


def test_files_that_are_large_stay_and_none_is_joined_across_them(tmp_path: Path) -> None:
    table = opened(tmp_path)
    filled(table, [10, 20, 4000, 4010, 4020, 4030])
    sizes = {task.file.file_path: task.file.file_size_in_bytes for task in of_pyiceberg(table).scan().plan_files()}
    aim = max(sizes.values()) * 2
    done = table.compact(aim)
    assert (done.files_before, done.files_after) == (5, 2)
    assert max(sizes, key=lambda path: sizes[path]).rpartition("/")[2] in {
        name.rpartition("/")[2] for name in table.files()
    }
    assert offsets_in(table) == list(range(4030))


def test_files_are_joined_up_to_what_a_file_aims_at(tmp_path: Path) -> None:
    table = opened(tmp_path)
    filled(table, range(100, 1300, 100))
    size = max(task.file.file_size_in_bytes for task in of_pyiceberg(table).scan().plan_files())
    done = table.compact(4 * size)
    assert (done.files_before, done.files_after) == (12, 3)
    assert offsets_in(table) == list(range(1200))


def test_topics_with_long_names_are_joined_each_by_itself(tmp_path: Path) -> None:
    table = opened(tmp_path)
    ids = table.prepare(SCHEMA, ())
    topics = ["t" * 200, "t" * 201]
    files = [one for topic in topics for at in (0, 10) for one in written(table, ids, at, at + 10, topic=topic)]
    table.commit(files, None, ending(0))
    assert table.compact(LARGE).files_after == 2
    for topic in topics:
        rows = pa.Table.from_batches(table.records(topic, 0, 0, 100))
        assert rows.equals(pa.Table.from_batches([records(0, 20, topic=topic)]))


def test_a_file_with_deleted_rows_is_left_alone_and_the_rows_stay_deleted(tmp_path: Path) -> None:
    table = opened(tmp_path)
    filled(table, [10, 20, 30, 40, 50])
    tasks = {task.file.file_path: task.file for task in of_pyiceberg(table).scan().plan_files()}
    (middle,) = [file for path, file in tasks.items() if f"{20:020d}-{30:020d}" in path]
    delete_row(table, middle, 3)
    left = [one for one in range(50) if one != 23]
    assert of_pyiceberg(table).scan().to_arrow().num_rows == 49
    assert offsets_in(table) == left
    done = table.compact(LARGE)

    assert (done.files_before, done.files_after) == (4, 2)
    assert offsets_in(table) == left
    assert sorted(of_pyiceberg(table).scan().to_arrow().column("offset").to_pylist()) == left


def meanwhile(table: IcebergTable, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    left = [happens]
    send = table._catalog.commit_table

    def commit_table(*arguments: Any) -> Any:
        if left:
            left.pop()()
        return send(*arguments)

    monkeypatch.setattr(table._catalog, "commit_table", commit_table)


def test_what_another_writer_adds_meanwhile_is_there_with_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(tmp_path)
    filled(table, [10, 20])
    meanwhile(table, monkeypatch, lambda: filled(opened(tmp_path), [30]))
    assert table.compact(LARGE).files_before == 2
    assert offsets_in(table) == list(range(30))
    assert (end := table.end()) is not None
    assert end.offsets == {"orders": {"0": 30}}
    assert len(list(table.files())) == 2


def test_files_that_somebody_else_rewrites_meanwhile_are_not_joined_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(tmp_path)
    filled(table, [10, 20])
    meanwhile(table, monkeypatch, lambda: opened(tmp_path).compact(LARGE))
    with pytest.raises(ConcurrentWriteError, match="rewritten data files while they were joined"):
        table.compact(LARGE)
    assert offsets_in(table) == list(range(20))
    assert len([name for name in parquet_in(tmp_path) if name.startswith("joined-")]) == 1


def test_a_row_that_is_deleted_meanwhile_does_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(tmp_path)
    filled(table, [10, 20])
    (file, _) = [task.file for task in of_pyiceberg(table).scan().plan_files()]
    meanwhile(table, monkeypatch, lambda: delete_row(opened(tmp_path), file, 3))
    before = parquet_in(tmp_path)
    with pytest.raises(ConcurrentWriteError, match="deleted rows"):
        table.compact(LARGE)
    assert len(offsets_in(table)) == 19
    assert not {name for name in parquet_in(tmp_path) - before if name.startswith("joined-")}


def test_a_store_that_fails_while_files_are_joined_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(tmp_path)
    filled(table, [10, 20])
    before = parquet_in(tmp_path)
    for where in ("segreader.backfill.writer._write_group", "segreader.backfill.lake.iceberg_rows._as"):
        with monkeypatch.context() as patch:

            def fail(*_: Any) -> Any:
                raise OSError(28, "No space left on device")

            patch.setattr(where, fail)
            with pytest.raises(StorageError, match="No space left on device"):
                table.compact(LARGE)
        assert parquet_in(tmp_path) == before
    assert offsets_in(table) == list(range(20))


def test_files_of_another_order_are_read_in_that_of_offsets(tmp_path: Path) -> None:
    table = opened(tmp_path)
    filled(table, [10])
    mixed = pa.Table.from_batches([records(10, 40)]).take(list(range(29, -1, -1)))
    of_pyiceberg(table).append(mixed)
    of_pyiceberg(table).append(pa.Table.from_batches([records(40, 50), records(0, 5, partition=1)]))
    assert offsets_in(table) == list(range(50))
    assert offsets_in(table, partition=1) == list(range(5))
    done = table.compact(LARGE)  # the last one holds two partitions of Kafka
    assert (done.files_before, done.files_after) == (2, 1)
    assert offsets_in(table) == list(range(50))
    assert offsets_in(table, partition=1) == list(range(5))
