"""What every scan looks like from outside: record batches, a table, objects, an Arrow stream; whatever it reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from segreader.isolation import IsolationLevel
from segreader.plan.request import ReadOptions
from segreader.plan.split import ReadPlan
from segreader.ranges import OffsetRange
from segreader.read.arrow import schema_of
from segreader.read.metrics import ScanMetrics, Seconds
from segreader.storage.base import ObjectStore

if TYPE_CHECKING:
    from segreader.read.records import ConsumerRecord

Offsets = OffsetRange | tuple[int | None, int | None] | str | None
"""Which offsets, as people say it."""


class BaseScan(ABC):
    """Records that are read when they are asked for, and can be read more than once.

    It is an Arrow stream (``__arrow_c_stream__``): pyarrow, Polars, DuckDB and pandas take it as it is. ``metrics``
    counts the last read.
    """

    isolation_level: IsolationLevel

    def __init__(self, options: ReadOptions, metrics: ScanMetrics) -> None:
        self.options = options
        self.metrics = metrics
        self._planning_at_once = Lock()
        self._plan_took = Seconds()

    @property
    @abstractmethod
    def store(self) -> ObjectStore | None:
        """The store that segments are read from, if there is one."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of what is returned."""
        return schema_of(self.options)

    @abstractmethod
    def plan(self) -> ReadPlan:
        """What a read will do, decided before any record is read; made once."""

    def prepare(self) -> ReadPlan:
        """What a read will do, as far as it must be known before it begins; raises as ``plan``."""
        return self.plan()

    @abstractmethod
    def _batches(self, options: ReadOptions) -> Iterator[pa.RecordBatch]:
        """The record batches, with other columns perhaps."""

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches; each holds rows of one partition. They are ordered by topic, partition and offset, or, with
        the order ``partition``, those of each partition by offset.

        Records end where the files do not show which transactions were committed; ``plan().ends`` gives the place and
        the reason.

        Raises:
            FormatError: data is damaged, after the records before it (``on_corrupt='fail'``).
            StorageError: bytes cannot be had.
        """
        return self._batches(self.options)

    def aiter_batches(self) -> AsyncGenerator[pa.RecordBatch, None]:
        """As ``to_batches``, for asyncio: ``async for batch in scan.aiter_batches()``.

        A thread takes them from ``to_batches``, at most one ahead; nothing is read before the first one is asked for.
        ``aclose()``, leaving the loop, cancellation and the end of the event loop end the thread and give back what the
        read holds. Each call is a read of its own; several may run at once. Raises as ``to_batches``.
        """
        from segreader.read.async_batches import iter_in_thread

        return iter_in_thread(self._planned_batches)

    def _planned_batches(self) -> Iterator[pa.RecordBatch]:
        with self._planning_at_once:  # of several reads that begin together one makes the plan
            self.prepare()
        return self.to_batches()

    def to_arrow(self) -> pa.Table:
        """Everything as one table; raises as ``to_batches``."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def records(self) -> Iterator[ConsumerRecord]:
        """Everything as Python objects, in the same order; raises as ``to_batches``."""
        from segreader.read.records import RECORD_COLUMNS, iter_consumer_records

        for batch in self._batches(replace(self.options, columns=RECORD_COLUMNS)):
            yield from iter_consumer_records(batch, self.options.kernel)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """The Arrow C stream of ``to_batches``. Source: the Arrow PyCapsule interface."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self.to_batches())
        return reader.__arrow_c_stream__(requested_schema)

    @abstractmethod
    def close(self) -> None:
        """Give back connections and threads; without this they go with the process."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
