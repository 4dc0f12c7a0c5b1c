"""A topic as a pyarrow ``Dataset``, which DuckDB, pyarrow and others ask for columns and filters."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

from segreader.errors import OptionError
from segreader.isolation import IsolationLevel
from segreader.plan.split import ReadPlan
from segreader.read.base_scan import BaseScan
from segreader.read.metrics import ScanMetrics, texts_of
from segreader.scans import Scan, scan, takes_places
from segreader.storage.metrics import metrics_of
from segreader.tables.plans import FilteredPlans
from segreader.tables.rows import Columns, LiveRows, NoRows, PartOfRows, Rows, StoredRows, TopicScanner, sum_of

_BATCH_ROWS = 1 << 16
_LOCAL_SPLIT_BYTES = 16 << 20
"""Where a file costs no round trip, splits are small, so that few of their batches wait for those before them."""


class _Scannable(ABC):
    """What pyarrow's datasets and fragments have in common: one scan, taken in several ways."""

    @abstractmethod
    def scanner(self, *arguments: Any, **options: Any) -> TopicScanner:
        """A scan of some columns of the rows that a filter matches."""

    def to_batches(self, *arguments: Any, **options: Any) -> Any:
        """Batches of ``scanner`` with the same arguments."""
        return self.scanner(*arguments, **options).to_batches()

    def to_table(self, *arguments: Any, **options: Any) -> pa.Table:
        """The table of ``scanner`` with the same arguments."""
        return self.scanner(*arguments, **options).to_table()

    def head(self, num_rows: int, *arguments: Any, **options: Any) -> pa.Table:
        """The first rows of ``scanner`` with the same arguments; reading ends with them."""
        return self.scanner(*arguments, **options).head(num_rows)

    def count_rows(self, filter: pc.Expression | None = None, **_: Any) -> int:
        """How many rows a filter matches."""
        return self.scanner(columns=[], filter=filter).count_rows()


class TopicFragment(_Scannable):
    """Rows of one split of a topic, for engines that share the work: what a pyarrow ``Fragment`` is to a ``Dataset``.

    Any thread may read it, at the same time as others. One of a location pickles, without a secret: another process
    opens the location when it first reads, with credentials that it finds for itself.

    Raises:
        OptionError: when it is pickled, if a secret was given as a storage option, or it is of URLs or a live topic.
    """

    def __init__(
        self, schema: pa.Schema, rows: PartOfRows, keep: Callable[[BaseException], None] = lambda error: None
    ) -> None:
        self.physical_schema = schema
        self.partition_expression = pc.scalar(True)
        self._rows, self._keep = rows, keep

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: Columns = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **_: Any,
    ) -> TopicScanner:
        """A scan of some columns of the rows that a filter matches, as of ``TopicDataset.scanner``.

        Args:
            schema: of the dataset; others are refused.
        """
        if schema is not None and not schema.equals(self.physical_schema):
            raise OptionError(
                "a fragment has the columns of its topic",
                found=", ".join(schema.names),
                expected=", ".join(self.physical_schema.names),
            )
        return TopicScanner(self.physical_schema, self._rows, columns, filter, batch_size, self._keep)

    @property
    def metrics(self) -> ScanMetrics:
        """What reads of it have met and cost in this process: damage that was left out, too."""
        return self._rows.metrics

    def __reduce__(self) -> tuple[Any, ...]:
        return TopicFragment, (self.physical_schema, self._rows)


class TopicDataset(_Scannable, ds.UnionDataset):  # type: ignore[misc]
    """The records of a scan as a table that is read for what is asked of it.

    A filter is applied exactly. Before, it chooses what is read: partitions and offsets that it rules out are not,
    nor are segments whose newest record is certainly older than it allows.

    Args:
        face: what to read. Its columns are those of the table.
        refresh: whether each query lists segments again; by default all see the same.
        threads: that decode one query.
    """

    def __init__(self, face: BaseScan, *, refresh: bool = False, threads: int | None = None) -> None:
        super().__init__(face.schema, [_without_files(face.schema)])
        self._schema = face.schema
        self._face = face
        self._filters: list[pc.Expression | None] | None = None
        self._counts: Sequence[ScanMetrics] = ()
        self._reads: dict[tuple[int, int], tuple[ReadPlan, Sequence[ScanMetrics]]] = {}
        self.keeps_reads = False
        self.last_plan: ReadPlan | None = None
        self.last_error: BaseException | None = None
        if isinstance(face, Scan):
            if refresh and face.last is not None:
                raise OptionError("the last records are found once", hint="Register the topic again to list it again")
            plans = FilteredPlans(face, self._schema, refresh=refresh)
            self._rows: Rows = StoredRows(face, plans, threads=threads, tell=self._tell)
        else:
            if refresh:
                raise OptionError("a live topic is read as one snapshot", hint="Register it again to list it again")
            self._rows = LiveRows(face, self._tell)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self._schema

    def scanner(
        self,
        columns: Columns = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **_: Any,
    ) -> TopicScanner:
        """A scan of some columns of the rows that a filter matches.

        Args:
            columns: names, or a mapping from names to expressions; all by default.
            filter: an expression of the table's columns.
            batch_size: rows of a batch at most.

        Raises:
            OptionError: the table has no such column.
        """
        rows = self._rows
        if self._filters is not None:
            self._filters.append(filter)
            rows = NoRows(rows)
        return TopicScanner(self._schema, rows, columns, filter, batch_size, self._keep)

    @contextmanager
    def rehearsed(self) -> Iterator[list[pc.Expression | None]]:
        """Meanwhile queries find no rows, and nothing is read; the filters that they come with are in the list."""
        self._filters = []
        try:
            yield self._filters
        finally:
            self._filters = None

    def plan(self, filter: pc.Expression | None = None) -> ReadPlan:
        """What a query with this filter reads; raises as ``Scan.plan``, for what the filter does not rule out."""
        return self._rows.plan(filter)

    @property
    def isolation_level(self) -> IsolationLevel:
        """Of the records that it gives."""
        return self._face.isolation_level

    @property
    def requests(self) -> int | None:
        """Requests to the store since it was opened; ``None`` where they are not counted."""
        metrics = metrics_of(self._face.store)
        return None if metrics is None else metrics.requests

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """The Arrow C stream of all rows. Source: the Arrow PyCapsule interface."""
        return self.scanner().__arrow_c_stream__(requested_schema)

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[TopicFragment]:
        """The rows that a filter may match in pieces, in order: one for each split, or one for a live topic.

        What reading them meets and costs is in ``metrics``.

        Raises:
            as ``Scan.plan``, for what the filter does not rule out.
        """
        for rows in self._rows.parts(filter):
            yield TopicFragment(self._schema, rows, self._keep)

    def close(self) -> None:
        """Give back connections and threads of the store; without this they go with the process."""
        self._rows.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self._schema.names)}>"

    @property
    def metrics(self) -> ScanMetrics:
        """What the last read has met and cost up to now."""
        return sum_of(self._counts)

    @property
    def notes(self) -> list[str]:
        """What people should know of the last read: what ``segreader cat`` says on stderr."""
        return [] if self.last_plan is None else texts_of(self.last_plan, self.metrics)

    @property
    def reads(self) -> list[tuple[ReadPlan, ScanMetrics]]:
        """What was read, and what was met, by each read since ``keeps_reads`` was set: one query may be several."""
        return [(plan, sum_of(counts)) for plan, counts in list(self._reads.values())]

    def forget_reads(self) -> None:
        """Begin anew with ``reads`` and ``last_error``: the next query is another one."""
        self._reads.clear()
        self.last_error = None

    def _tell(self, plan: ReadPlan, counts: Sequence[ScanMetrics]) -> None:
        self.last_plan, self._counts = plan, counts
        if self.keeps_reads:
            self._reads[id(plan), id(counts[0]) if counts else 0] = plan, counts

    def _keep(self, error: BaseException) -> None:
        self.last_error = error

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse what a topic cannot be asked for."""
        raise OptionError(
            "a topic has no files, and is not joined, sorted or changed by pyarrow",
            hint="Ask for scanner(columns=…, filter=…), and do the rest with its table",
        )

    # What pyarrow's own class would do with a dataset of its making.
    children = filter = take = join = join_asof = sort_by = replace_schema = _refuse
    _get_fragments = _scanner_options = _scan_options = __reduce__ = _refuse

    @property
    def partition_expression(self) -> pc.Expression:
        """What is true of every row: nothing is known."""
        return pc.scalar(True)


def _without_files(schema: pa.Schema) -> ds.Dataset:
    """What code finds that goes past the methods of a ``TopicDataset``, into Arrow: a file that says what to do.

    A dataset with nothing in it would end the process there, and an empty one would seem to be an answer.
    """
    form, files = ds.IpcFileFormat(), pyarrow.fs.LocalFileSystem()
    file = form.make_fragment("a topic has no files: ask its table for scanner(columns=…, filter=…)", files)
    return ds.FileSystemDataset([file], schema, form, files)


@takes_places
def open_dataset(
    location: str | os.PathLike[str] | None = None,
    *,
    refresh: bool = False,
    threads: int | None = None,
    **arguments: Any,
) -> TopicDataset:
    """A topic as a pyarrow dataset.

    Args:
        location: as of ``segreader.scan``.
        refresh: whether each query lists segments again; by default all see the same.
        threads: number of threads that decode one query; by default as for ``segreader.scan``.
        arguments: others of ``segreader.scan``, ``storage_options`` and ``bootstrap_servers`` among them.

    Raises:
        OptionError: an argument is unknown. ObjectNotFoundError: the directory is not there.
    """
    given = {"batch_rows": _BATCH_ROWS, **arguments}
    if location is not None and "://" not in os.fspath(location):
        given.setdefault("split_bytes", _LOCAL_SPLIT_BYTES)
    return TopicDataset(scan(location, **given), refresh=refresh, threads=threads)
