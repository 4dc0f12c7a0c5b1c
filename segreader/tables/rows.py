"""Rows of a table: batches of the columns asked for, of the records that a filter matches."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from copy import copy
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from threading import Lock
from typing import Any, NoReturn, Protocol

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from segreader.errors import OptionError
from segreader.plan.request import Policy
from segreader.plan.split import ReadEnd, ReadPlan, Split
from segreader.read.ahead import ReadSplit, read_splits_ahead
from segreader.read.base_scan import BaseScan
from segreader.read.decoders import counter_of
from segreader.read.metrics import ScanMetrics
from segreader.read.options import ReadOptions
from segreader.read.split_reader import SplitReader
from segreader.scans import Scan
from segreader.storage.base import ObjectStore
from segreader.stored.source import SourceAddress
from segreader.tables.plans import FilteredPlans

Shape = Callable[[pa.RecordBatch], pa.RecordBatch]
"""What becomes of each batch before it is given: filtered, projected."""

TellPlan = Callable[[ReadPlan, Sequence[ScanMetrics]], None]
"""Called with what a read does: its plan, and what its readers count while they read."""


Count = Callable[[ScanMetrics], None]
"""Is given what a reader counts while it reads, before it does."""


class PartOfRows(Protocol):
    """Rows that are read by one reader at a time."""

    def batches(
        self, columns: tuple[str, ...], predicate: pc.Expression | None, shape: Shape, rows: int | None
    ) -> Generator[pa.RecordBatch, None, None]:
        """Batches of these columns that hold at least every record that ``predicate`` matches, in order, ``shape``\\ d.

        Args:
            columns: what ``shape`` needs.
            rows: of a batch at most, where the caller minds.
        """

    @property
    def metrics(self) -> ScanMetrics:
        """What reads of it have met and cost up to now, in this process."""


class Rows(Protocol):
    """Where rows come from."""

    def batches(
        self, columns: tuple[str, ...], predicate: pc.Expression | None, shape: Shape, rows: int | None
    ) -> Generator[pa.RecordBatch, None, None]:
        """As ``PartOfRows.batches``."""

    def parts(self, predicate: pc.Expression | None) -> Sequence[PartOfRows]:
        """The rows that ``predicate`` may match in pieces, in order: each can be read by itself, by any thread."""

    def close(self) -> None:
        """Close connections and threads."""


class StoredRows:
    """Rows of segments that lie somewhere: planned for the filter, decoded by several threads.

    Args:
        threads: that decode one query.
        tell: called for each read.
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
        store, options = self._scan.store, self._scan.options
        return _read(store, options, plan, columns, shape, rows, count=counts.append, threads=self._threads)

    def parts(self, predicate: pc.Expression | None) -> Sequence[PartOfRows]:
        plan = self._plans.plan(predicate)
        counts = [ScanMetrics(notes=list(plan.notes))]
        self._tell(plan, counts)
        return [SplitRows(self._scan, self._scan.options, part, counts.append) for part in _parts(plan)]

    def close(self) -> None:
        self._scan.close()


def _read(
    store: ObjectStore,
    options: ReadOptions,
    plan: ReadPlan,
    columns: tuple[str, ...],
    shape: Shape,
    rows: int | None,
    *,
    count: Count,
    threads: int,
) -> Generator[pa.RecordBatch, None, None]:
    """What is planned.

    Args:
        count: is given what each reader counts.
    """
    options = _with(options, columns, rows)

    def open_reader() -> ReadSplit:
        reader = SplitReader(store, options, decoder=counter_of(columns))
        count(reader.metrics)

        def read(split: Split) -> Iterator[pa.RecordBatch]:
            with closing(reader.read(split)) as batches:  # type: ignore[type-var]
                for batch in batches:
                    yield shape(batch)

        return read

    for splits, end in _runs(plan, options.on_corrupt is Policy.FAIL):
        yield from read_splits_ahead(splits, open_reader, threads)
        if end is not None and end.damage is not None:
            raise copy(end.damage)


def _with(options: ReadOptions, columns: tuple[str, ...], rows: int | None) -> ReadOptions:
    """The options of one read.

    Args:
        rows: of a batch at most, where the caller minds.
    """
    return replace(options, columns=columns, batch_rows=min(rows or options.batch_rows, options.batch_rows))


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


class SplitRows:
    """Rows of one split. They pickle: another process opens the store with its own credentials, when it first reads.

    Args:
        place: whose store has the split.
        options: how it is read.
        plan: of this split.
        count: is given what each reader counts.
    """

    def __init__(
        self, place: Scan | SourceAddress, options: ReadOptions, plan: ReadPlan, count: Count | None = None
    ) -> None:
        self._place, self._options, self._plan, self._tell_count = place, options, plan, count
        self._counts: list[ScanMetrics] = []

    def batches(
        self, columns: tuple[str, ...], predicate: pc.Expression | None, shape: Shape, rows: int | None
    ) -> Generator[pa.RecordBatch, None, None]:
        return _read(self._place.store, self._options, self._plan, columns, shape, rows, count=self._count, threads=1)

    @property
    def metrics(self) -> ScanMetrics:
        return sum_of(self._counts)

    def _count(self, metrics: ScanMetrics) -> None:
        self._counts.append(metrics)
        if self._tell_count is not None:
            self._tell_count(metrics)

    def __reduce__(self) -> tuple[Any, ...]:
        address = self._place.address if isinstance(self._place, Scan) else self._place
        if address is None:
            raise OptionError(
                "a fragment of signed URLs, or of a store that the program opened, cannot travel to another process",
                hint="Give a location, and credentials that each machine finds for itself; or read it in this process",
            )
        return SplitRows, (address, self._options, self._plan)


class LiveRows:
    """Rows of a live topic: one snapshot, shared by all queries.

    One reader at a time steps: they share the connections of the scan.
    """

    def __init__(self, scan: BaseScan, tell: TellPlan) -> None:
        self._scan, self._tell, self._lock = scan, tell, Lock()

    def batches(
        self, columns: tuple[str, ...], predicate: pc.Expression | None, shape: Shape, rows: int | None
    ) -> Generator[pa.RecordBatch, None, None]:
        scan, options = self._scan, _with(self._scan.options, columns, rows)
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

    def parts(self, predicate: pc.Expression | None) -> Sequence[PartOfRows]:
        return [self]  # the connections are one reader's at a time

    @property
    def metrics(self) -> ScanMetrics:
        return self._scan.metrics

    def close(self) -> None:
        self._scan.close()

    def __reduce__(self) -> NoReturn:
        raise OptionError(
            "a fragment of a live topic holds connections to brokers, and cannot travel to another process",
            hint="Read it in this process, or give the location alone: what is in the store is read by any process",
        )


def sum_of(counts: Sequence[ScanMetrics]) -> ScanMetrics:
    """What some readers have met and cost together."""
    whole = ScanMetrics()
    for one in counts:
        whole.add(one)
    return whole


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
