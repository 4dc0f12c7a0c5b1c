"""Joins small data files of an Iceberg table into larger ones: which of them, how, and whether they are still there."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask, Table

from segreader.backfill.lake.iceberg_rows import JOINED, bounds_of, offsets_of, rows_of
from segreader.backfill.lake.iceberg_schema import arrow_schema_of
from segreader.backfill.writer import write_joined
from segreader.errors import ConcurrentWriteError


def groups_to_join(table: Table, file_bytes: int) -> list[list[FileScanTask]]:
    """Small data files that become one file each: of one partition of the table and one of Kafka, in offset order.

    Left alone are files that have deleted rows, were written under another partition spec, hold several partitions of
    Kafka, or are no Parquet. None is joined with another across a file that stays.

    Args:
        file_bytes: what a file aims at; less than half of it is small.
    """
    places: dict[object, list[FileScanTask]] = defaultdict(list)
    for task in table.scan().plan_files():
        if task.file.file_format is not FileFormat.PARQUET or task.file.spec_id != table.spec().spec_id:
            continue
        if (place := _place(table, task.file, file_bytes)) is not None:
            places[(task.file.partition, *place)].append(task)
    groups = []
    for tasks in places.values():
        tasks.sort(key=lambda task: (offsets_of(table, task.file), task.file.file_path))
        groups += [group for group in _runs(tasks, file_bytes) if len(group) > 1]
    return groups


def _runs(tasks: Sequence[FileScanTask], file_bytes: int) -> Iterator[list[FileScanTask]]:
    run: list[FileScanTask] = []
    for task in tasks:
        if not _is_small(task.file, file_bytes) or task.delete_files:
            yield run
            run = []
            continue
        run.append(task)
        if sum(one.file.file_size_in_bytes for one in run) >= file_bytes:
            yield run
            run = []
    yield run


def _is_small(file: DataFile, file_bytes: int) -> bool:
    return 2 * file.file_size_in_bytes < file_bytes


def _place(table: Table, file: DataFile, file_bytes: int) -> tuple[object, object] | None:
    """Topic and partition that all rows of a file have; ``None`` where they have several, or it is unknown."""
    found = []
    for column in ("topic", "partition"):
        bounds = bounds_of(table, file, column)
        if bounds is not None and bounds[0] != bounds[1]:
            bounds = _stored_bounds(table, file, column)  # those of the table are cut where a topic's name is long
        if bounds is None or bounds[0] != bounds[1]:
            return None
        found.append(bounds[0])
    return found[0], found[1]


def _stored_bounds(table: Table, file: DataFile, column: str) -> tuple[object, object] | None:
    with table.io.new_input(file.file_path).open() as opened:
        footer = pq.ParquetFile(opened).metadata
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    chunks = [chunk for group in groups if (chunk := _chunk(group, column)) is not None]
    if (
        not chunks
        or len(chunks) < len(groups)
        or not all(one.is_stats_set and one.statistics.has_min_max for one in chunks)
    ):
        return None
    return min(one.statistics.min for one in chunks), max(one.statistics.max for one in chunks)


def _chunk(group: Any, column: str) -> Any:
    chunks = (group.column(at) for at in range(group.num_columns))
    return next((one for one in chunks if one.path_in_schema == column), None)


def join(table: Table, tasks: Sequence[FileScanTask]) -> DataFile:
    """Write the rows of small files as one, beside the first of them.

    The file is no part of the table yet; where this raises, nothing of it is left that a reader sees.
    """
    first, last = offsets_of(table, tasks[0].file)[0], max(offsets_of(table, task.file)[1] for task in tasks)
    directory = tasks[0].file.file_path.rpartition("/")[0]
    path = f"{directory}/{JOINED}{first:020d}-{last + 1:020d}-{uuid.uuid4().hex[:12]}.parquet"
    output = table.io.new_output(path)
    try:
        with output.create() as file:
            footer = write_joined(file, arrow_schema_of(table.schema(), with_ids=True), rows_of(table, tasks))
    except BaseException:
        remove(table, [path])
        raise
    schema = table.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        footer, compute_statistics_plan(schema, table.properties), parquet_path_to_id_mapping(schema)
    )
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=tasks[0].file.partition,
        file_size_in_bytes=len(table.io.new_input(path)),
        key_metadata=None,
        equality_ids=None,
        sort_order_id=None,
        **statistics.to_serialized_dict(),
    )
    made.spec_id = table.spec().spec_id
    return made


def require_untouched(table: Table, tasks: Sequence[FileScanTask], name: str) -> None:
    """Make sure that files are still part of a table that others have changed, and that no row of them was deleted.

    Args:
        table: as it is now.
        name: of the table, for errors.

    Raises:
        ConcurrentWriteError: one of them is not, or has deleted rows.
    """
    now = {task.file.file_path: task for task in table.scan().plan_files()}
    for task in tasks:
        found = now.get(task.file.file_path)
        if found is None or found.delete_files:
            raise ConcurrentWriteError(
                "somebody else has rewritten data files while they were joined",
                source=name,
                found="deleted rows" if found else f"no {task.file.file_path.rpartition('/')[2]}",
                hint="Nothing was changed: join them again",
            )


def remove(table: Table, paths: Sequence[str]) -> None:
    """Delete files that no snapshot names; those that cannot be deleted stay, and no reader sees them."""
    for path in paths:
        try:
            table.io.delete(path)
        except Exception:  # the error that led here is raised
            continue
