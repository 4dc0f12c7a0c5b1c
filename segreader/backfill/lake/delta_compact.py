"""Small data files of a Delta table joined into larger ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from segreader.backfill.lake.delta_log import ActiveFile
from segreader.backfill.lake.delta_rows import batch_rows, column_statistics
from segreader.backfill.output import DATA
from segreader.backfill.writer import write_joined
from segreader.errors import StorageError

Json = dict[str, Any]


def runs_to_join(
    store: pa_fs.FileSystem, active: Sequence[ActiveFile], file_bytes: int
) -> Iterator[tuple[ActiveFile, ...]]:
    """Files to join: small neighbours of one partition of a topic and of the table, by their offsets."""
    by_place: dict[tuple[Any, ...], list[ActiveFile]] = {}
    for file in active:
        place = _place(store, file) if file.name.startswith(DATA) else None
        if place is not None and file.bounds("offset") is not None:
            by_place.setdefault((*place, *sorted(file.partition.items())), []).append(file)
    for files in by_place.values():
        run: list[ActiveFile] = []
        schema: pa.Schema | None = None
        for file in sorted(files, key=lambda one: one.first_offset):
            is_small = file.size < file_bytes // 2
            here = _schema(store, file) if is_small else None
            goes_on = (
                run
                and is_small
                and here == schema
                and run[-1].last_offset < file.first_offset
                and sum(one.size for one in run) + file.size <= file_bytes * 5 // 4
            )
            if not goes_on:
                if len(run) > 1:
                    yield tuple(run)
                run = []
            if is_small:
                run.append(file)
                schema = here
        if len(run) > 1:
            yield tuple(run)


def _schema(store: pa_fs.FileSystem, file: ActiveFile) -> pa.Schema:
    with store.open_input_file(file.name) as source:
        return pq.read_schema(source).remove_metadata()


def _place(store: pa_fs.FileSystem, file: ActiveFile) -> tuple[str, int] | None:
    """The one partition of a topic that a file is of; ``None`` where it may be of several."""
    topic, partition = file.bounds("topic"), file.bounds("partition")
    if topic is None or partition is None or partition[0] != partition[1]:
        return None
    if topic[0] != topic[1]:  # the statistics have a long one cut; the footer has it whole
        with store.open_input_file(file.name) as source, pq.ParquetFile(source) as opened:
            groups = [opened.metadata.row_group(at) for at in range(opened.num_row_groups)]
        found = [column_statistics(group, "topic") for group in groups]
        topics = {value for one in found if one is not None for value in (one.min, one.max)}
        if None in found or len(topics) != 1:
            return None
        return (topics.pop(), partition[0])
    return (topic[0], partition[0])


def join_files(store: pa_fs.FileSystem, run: Sequence[ActiveFile], token: str, number: int) -> ActiveFile:
    """Write the records of files, in their order, as one; returns it."""
    directory = run[0].name.rpartition("/")[0]
    first, last = run[0].first_offset, run[-1].last_offset
    name = f"{directory}/joined-{first:020d}-{last + 1:020d}-{token}-{number}.parquet"
    with store.open_input_file(run[0].name) as source:
        schema = pq.read_schema(source)
    with store.open_output_stream(name) as sink:
        rows = write_joined(sink, schema, _records(store, run)).num_rows
    counted = [file.rows for file in run]
    if None not in counted and sum(one or 0 for one in counted) != rows:
        raise StorageError(
            "data files have another number of records than the log of the table says",
            source=name,
            found=rows,
            expected=sum(one or 0 for one in counted),
        )
    size = store.get_file_info(name).size
    bounds = [(one.lower, one.upper, one.nulls) for one in run]
    return replace(
        run[0],
        name=name,
        size=size,
        rows=rows,
        lower=_folded([one[0] for one in bounds], min),
        upper=_folded([one[1] for one in bounds], max),
        nulls=_folded([one[2] for one in bounds], lambda values: sum(values)),
    )


def _records(store: pa_fs.FileSystem, files: Sequence[ActiveFile]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with store.open_input_file(file.name) as source, pq.ParquetFile(source) as opened:
            yield from opened.iter_batches(batch_rows(opened.metadata), use_threads=False)


def _folded(trees: Sequence[Mapping[str, Any]], fold: Callable[[Sequence[Any]], Any]) -> Json:
    """Statistics of several files as those of one; none of a column that one of them has none of."""
    found: Json = {}
    for name in trees[0]:
        values = [tree.get(name) for tree in trees]
        if any(value is None for value in values):
            continue
        if isinstance(values[0], Mapping):
            found[name] = _folded([value for value in values if value is not None], fold)
        else:
            found[name] = fold(values)
    return found
