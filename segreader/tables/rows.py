"""Rows of a table: batches of the columns asked for, of the records that a filter matches, and scans of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from threading import Lock
from typing import Any, NoReturn, Protocol

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc
import pyarrow.dataset as ds

from segreader.errors import OptionError
from segreader.plan.request import ReadOptions
from segreader.plan.split import ReadPlan, Split
from segreader.read.arrow import chosen_rows
from segreader.read.base_scan import BaseScan
from segreader.read.decoders import counter_of
from segreader.read.metrics import ScanMetrics, Stopwatch, timed
from segreader.read.plan_reader import PlanReader, Shape
from segreader.scans import Scan
from segreader.storage.base import ObjectStore
from segreader.storage.metrics import metrics_of
from segreader.stored.source import SourceAddress
from segreader.tables.plans import FilteredPlans

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

    def plan(self, predicate: pc.Expression | None) -> ReadPlan:
        """What reading the rows that ``predicate`` may match takes."""

    def close(self) -> None:
        """Close connections and threads."""


class StoredRows:
    """Rows of stored segments: planned for the filter, decoded by several threads.

    Args:
        threads: that decode one query.
        tell: called for each read.
    """

    def __init__(self, scan: Scan, plans: FilteredPlans, *, threads: int | None, tell: TellPlan) -> None:
        self._scan, self._plans, self._tell = scan, plans, tell
        self._options = scan.options if threads is None else replace(scan.options, threads=threads)

    def batches(
        self, columns: tuple[str, ...], predicate: pc.Expression | None, shape: Shape, rows: int | None
    ) -> Generator[pa.RecordBatch, None, None]:
        plan, counts = self._begin(predicate)
        return _read(self._scan.store, self._options, plan, columns, shape, rows, count=counts.append)

    def parts(self, predicate: pc.Expression | None) -> Sequence[PartOfRows]:
        plan, counts = self._begin(predicate)
        return [SplitRows(self._scan, self._scan.options, part, counts.append) for part in _parts(plan)]

    def plan(self, predicate: pc.Expression | None) -> ReadPlan:
        return self._plans.plan(predicate)

    def _begin(self, predicate: pc.Expression | None) -> tuple[ReadPlan, list[ScanMetrics]]:
        plan = self._plans.plan(predicate)
        counts = [ScanMetrics(notes=list(plan.notes))]
        self._tell(plan, counts)
        return plan, counts

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
) -> Generator[pa.RecordBatch, None, None]:
    """What is planned.

    Args:
        count: is given what is counted.
    """
    options = _with(options, columns, rows)
    reader = PlanReader(store, options, decoder=counter_of(options), shape=shape)
    count(reader.metrics)
    return timed(reader.read(plan), reader.metrics, metrics_of(store), Stopwatch())


def _with(options: ReadOptions, columns: tuple[str, ...], rows: int | None) -> ReadOptions:
    """The options of one read.

    Args:
        rows: of a batch at most, where the caller minds.
    """
    return replace(options, columns=columns, batch_rows=min(rows or options.batch_rows, options.batch_rows))


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
        options = replace(self._options, threads=1)
        return _read(self._place.store, options, self._plan, columns, shape, rows, count=self._count)

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

    def plan(self, predicate: pc.Expression | None) -> ReadPlan:
        with self._lock:
            return self._scan.plan()

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


class NoRows:
    """No rows, in place of others: for a query that is only to say what it would ask of them."""

    def __init__(self, others: Rows) -> None:
        self._others = others

    def batches(
        self, columns: tuple[str, ...], predicate: pc.Expression | None, shape: Shape, rows: int | None
    ) -> Generator[pa.RecordBatch, None, None]:
        yield from ()

    def parts(self, predicate: pc.Expression | None) -> Sequence[PartOfRows]:
        return []

    def plan(self, predicate: pc.Expression | None) -> ReadPlan:
        return self._others.plan(predicate)

    def close(self) -> None:
        self._others.close()


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
    return chosen_rows(batch.select(names), mask)


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


Columns = Sequence[str] | Mapping[str, pc.Expression] | None
"""Columns by name, or new ones by what they are computed from; ``None`` is all."""


class TopicScanner:
    """Rows of a topic that a filter matches. Each way to take them reads anew.

    Args:
        schema: of the table.
        rows: where its rows come from.
        keep: is given each error that a read raises: some engines keep no more than its text.

    Raises:
        OptionError: a column, or one that the filter needs, is not in the table.
    """

    def __init__(
        self,
        schema: pa.Schema,
        rows: Rows | PartOfRows,
        columns: Columns,
        predicate: pc.Expression | None,
        batch_size: int | None,
        keep: Callable[[BaseException], None],
    ) -> None:
        self.dataset_schema = schema
        self._rows, self._predicate, self._batch_size, self._keep = rows, predicate, batch_size, keep
        if isinstance(columns, Mapping):
            names, values = list(columns), list(columns.values())
            self._shape = shaped(predicate, names, values)
            self.projected_schema = self._shape(_empty(schema)).schema
        else:
            names = schema.names if columns is None else list(columns)
            _refuse_unknown(names, schema)
            values = []
            self._shape = chosen(predicate, names)
            self.projected_schema = pa.schema([schema.field(name) for name in names])
        used = [*values] if predicate is None else [predicate, *values]
        needed = {name for name in schema.names if any(_needs(one, schema, name) for one in used)}
        if not values:
            needed |= set(names)
        self._columns = tuple(name for name in schema.names if name in needed)

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """The rows, in the order of the scan; what they stand on is let go of when they are closed.

        Raises:
            FormatError: data is damaged, after the rows before it.
            StorageError: bytes cannot be had.
        """
        # Rows cannot be counted where no column is: the cheapest of all stands in, and is projected away.
        columns = self._columns or ("partition",)
        try:
            with closing(self._rows.batches(columns, self._predicate, self._shape, self._batch_size)) as batches:
                for batch in batches:
                    if batch.num_rows:
                        yield batch
        except GeneratorExit:
            raise
        except BaseException as error:
            self._keep(error)
            raise

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as an Arrow stream; raises as ``to_batches``."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """All rows; raises as ``to_batches``."""
        return pa.Table.from_batches(self.to_batches(), self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """The first rows; reading ends with them."""
        return pa.Table.from_batches(_first(self.to_batches(), num_rows), self.projected_schema)

    def count_rows(self) -> int:
        """How many rows there are; columns that only the projection needs are not built."""
        counting = TopicScanner(self.dataset_schema, self._rows, [], self._predicate, self._batch_size, self._keep)
        return sum(batch.num_rows for batch in counting.to_batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """The Arrow C stream of ``to_reader``. Source: the Arrow PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


def _first(batches: Generator[pa.RecordBatch, None, None], rows: int) -> Iterator[pa.RecordBatch]:
    with closing(batches):
        while rows > 0 and (batch := next(batches, None)) is not None:
            yield batch.slice(0, rows)
            rows -= batch.num_rows


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _needs(expression: pc.Expression, schema: pa.Schema, name: str) -> bool:
    """Whether an expression uses a column: without one it cannot be bound."""
    rest = pa.schema([field for field in schema if field.name != name])
    try:
        ds.dataset(rest.empty_table()).scanner(columns={"it": expression})
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return True
    return False


def _refuse_unknown(names: Sequence[str], schema: pa.Schema) -> None:
    for name in names:
        if name not in schema.names:
            raise OptionError(
                f"the table has no column {name!r}",
                expected=", ".join(schema.names),
                hint="Ask for more with columns=[…] where the table is made",
            )
