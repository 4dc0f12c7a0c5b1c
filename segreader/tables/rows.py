"""Rows of a table: batches of the columns asked for, of the records that a filter matches."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from threading import Lock
from typing import Protocol

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from segreader.plan.split import ReadEnd, ReadPlan, Split
from segreader.read.metrics import ScanMetrics
from segreader.read.scan import Scan
from segreader.read.scan_face import ScanFace
from segreader.read.split_counter import COUNTED_COLUMNS, SplitCounter
from segreader.read.split_reader import SplitReader
from segreader.tables.plans import FilteredPlans
from segreader.tables.stream import ReadSplit, read_in_order

Shape = Callable[[pa.RecordBatch], pa.RecordBatch]
"""What becomes of each batch before it is given: filtered, projected."""

TellPlan = Callable[[ReadPlan, Sequence[ScanMetrics]], None]
"""Is told what a read does: its plan, and what its readers count while they read."""


class Rows(Protocol):
    """Where rows come from."""

    def batches(
        self, columns: tuple[str, ...], predicate: pc.Expression | None, shape: Shape, rows: int | None
    ) -> Generator[pa.RecordBatch, None, None]:
        """Batches of these columns that hold at least every record that ``predicate`` matches, in order, ``shape``\\ d.

        Args:
            columns: what ``shape`` needs.
            rows: of a batch at most, where the caller minds.
        """

    def parts(self, predicate: pc.Expression | None) -> list[Rows]:
        """The rows that ``predicate`` may match in pieces, in order: each can be read by itself, by any thread."""

    def close(self) -> None:
        """Give back connections and threads."""


class StoredRows:
    """Rows of segments that lie somewhere: planned for the filter, decoded by several threads.

    Args:
        threads: that decode one query.
        tell: is told of each read.
    """

    def __init__(self, scan: Scan, plans: FilteredPlans, *, threads: int | None, tell: TellPlan) -> None:
        self._scan, self._plans, self._tell = scan, plans, tell
        self._threads = threads or min(4, _cores())

    def batches(
        self, columns: tuple[str, ...], predicate: pc.Expression | None, shape: Shape, rows: int | None
    ) -> Generator[pa.RecordBatch, None, None]:
        plan = self._plans.plan(predicate)
        counts = [ScanMetrics(notes=list(plan.notes))]
        self._tell(plan, counts)
        return self._read(plan, counts, columns, shape, rows)

    def parts(self, predicate: pc.Expression | None) -> list[Rows]:
        plan = self._plans.plan(predicate)
        counts = [ScanMetrics(notes=list(plan.notes))]
        self._tell(plan, counts)
        return [_PartOfRows(partial(self._read, part, counts), self.close) for part in _parts(plan)]

    def _read(
        self, plan: ReadPlan, counts: list[ScanMetrics], columns: tuple[str, ...], shape: Shape, rows: int | None
    ) -> Generator[pa.RecordBatch, None, None]:
        """What is planned.

        Args:
            counts: is given what each reader counts.
        """
        scan, options = self._scan, replace(self._scan.options, columns=columns)
        if rows is not None:
            options = replace(options, batch_rows=min(rows, options.batch_rows))
        reader_of = SplitCounter if COUNTED_COLUMNS.issuperset(columns) else SplitReader

        def open_reader() -> ReadSplit:
            reader = reader_of(scan.store, options)
            counts.append(reader.metrics)

            def read(split: Split) -> Iterator[pa.RecordBatch]:
                with closing(reader.read(split)) as batches:  # type: ignore[type-var]
                    for batch in batches:
                        yield shape(batch)

            return read

        for splits, end in _runs(plan, options.on_corrupt == "fail"):
            yield from read_in_order(splits, open_reader, self._threads)
            if end is not None and end.damage is not None:
                raise copy(end.damage)

    def close(self) -> None:
        self._scan.close()


def _cores() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _runs(plan: ReadPlan, fails: bool) -> Iterator[tuple[list[Split], ReadEnd | None]]:
    """The splits of a plan in order, up to each end that is to raise, and up to the last."""
    of_partition = {partition: list(some) for partition, some in groupby(plan.splits, attrgetter("partition"))}
    splits: list[Split] = []
    for end in plan.ends:
        splits += of_partition.get(end.partition, ())
        if fails and end.damage is not None:
            yield splits, end
            splits = []
    yield splits, None


def _parts(plan: ReadPlan) -> Iterator[ReadPlan]:
    """A plan for each split; only the last one of a partition ends in the damage in which the partition does."""
    of_partition = {partition: list(some) for partition, some in groupby(plan.splits, attrgetter("partition"))}
    for end in plan.ends:
        splits: Sequence[Split] = of_partition.get(end.partition, ())
        sound = replace(end, damage=None)
        yield from (ReadPlan(plan.location, (split,), (sound,)) for split in splits[:-1])
        if splits or end.damage is not None:
            yield ReadPlan(plan.location, tuple(splits[-1:]), (end,))


class _PartOfRows:
    """Rows of one split.

    Args:
        read: reads it, given columns, shape and rows of a batch.
    """

    def __init__(
        self,
        read: Callable[[tuple[str, ...], Shape, int | None], Generator[pa.RecordBatch, None, None]],
        close: Callable[[], None],
    ) -> None:
        self._read, self.close = read, close

    def batches(
        self, columns: tuple[str, ...], predicate: pc.Expression | None, shape: Shape, rows: int | None
    ) -> Generator[pa.RecordBatch, None, None]:
        return self._read(columns, shape, rows)

    def parts(self, predicate: pc.Expression | None) -> list[Rows]:
        return [self]


class LiveRows:
    """Rows of a live topic: one snapshot, read by whoever asks.

    One reader at a time steps: they share the connections of the scan.
    """

    def __init__(self, scan: ScanFace, tell: TellPlan) -> None:
        self._scan, self._tell, self._lock = scan, tell, Lock()

    def batches(
        self, columns: tuple[str, ...], predicate: pc.Expression | None, shape: Shape, rows: int | None
    ) -> Generator[pa.RecordBatch, None, None]:
        scan = self._scan
        options = replace(scan.options, columns=columns)
        if rows is not None:
            options = replace(options, batch_rows=min(rows, options.batch_rows))
        with self._lock:
            self._tell(scan.plan(), [])
        with closing(scan._batches(options)) as batches:  # type: ignore[type-var]
            while True:
                with self._lock:
                    batch = next(batches, None)
                self._tell(scan.plan(), [scan.metrics])
                if batch is None:
                    return
                yield shape(batch)

    def parts(self, predicate: pc.Expression | None) -> list[Rows]:
        return [self]  # the connections are one reader's at a time

    def close(self) -> None:
        self._scan.close()


def shaped(predicate: pc.Expression | None, names: list[str], values: list[pc.Expression]) -> Shape:
    """Makes of a batch the rows that a filter matches, and of these the columns of a projection, exactly.

    Args:
        names, values: of the projection.
    """

    def shape(batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch if predicate is None else _matching(batch, predicate, batch.schema.names)
        return _computed(rows, names, values)

    return shape


def chosen(predicate: pc.Expression | None, names: list[str]) -> Shape:
    """As ``shaped``, for columns that are there as they are."""

    def shape(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(names) if predicate is None else _matching(batch, predicate, names)

    return shape


def _matching(batch: pa.RecordBatch, predicate: pc.Expression, names: list[str]) -> pa.RecordBatch:
    """Some columns of the rows for which a predicate is true; rows that lie together are not copied."""
    mask = _computed(batch, ["it"], [predicate]).column(0).fill_null(False)
    count = mask.true_count
    first = pc.index(mask, True).as_py() if count else 0
    if mask.slice(first, count).true_count == count:
        return batch.select(names).slice(first, count)
    return batch.select(names).filter(mask)


def _computed(batch: pa.RecordBatch, names: list[str], values: list[pc.Expression]) -> pa.RecordBatch:
    source = acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))
    steps = [
        acero.Declaration("table_source", source),
        acero.Declaration("project", acero.ProjectNodeOptions(values, names)),
    ]
    table = acero.Declaration.from_sequence(steps).to_table(use_threads=False).combine_chunks()
    if batches := table.to_batches():
        return batches[0]
    return pa.RecordBatch.from_arrays([pa.array([], one.type) for one in table.schema], schema=table.schema)
