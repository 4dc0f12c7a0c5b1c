"""What every scan looks like from outside: record batches, a table, objects, an Arrow stream; whatever it reads."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn, Self

import pyarrow as pa

from segreader.errors import OptionError, install_hint
from segreader.isolation import IsolationLevel
from segreader.plan.request import LiveEnd, ReadOptions, Request
from segreader.plan.split import ReadPlan
from segreader.ranges import OffsetRange
from segreader.read.arrow import schema_of
from segreader.read.metrics import ScanMetrics, Seconds
from segreader.storage.base import ObjectStore

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from polars import DataFrame

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
    @abstractmethod
    def _asked(self) -> Request:
        """Which records are asked for."""

    @property
    @abstractmethod
    def _shown(self) -> str:
        """Where it reads, for people: without secrets."""

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

    @property
    def looked_at(self) -> int:
        """Records that the last read looked at: with ``with_key`` and ``grep`` those that were left out, too."""
        return self.metrics.records

    def to_arrow(self) -> pa.Table:
        """Everything as one table; raises as ``to_batches``."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """Everything as a pandas ``DataFrame``; raises as ``to_batches``.

        Args:
            options: of pyarrow's ``Table.to_pandas``, such as ``types_mapper``.

        Raises:
            OptionError: pandas is not installed.
        """
        try:
            import pandas  # type: ignore[import-untyped]  # noqa: F401
        except ImportError:
            raise OptionError("to_pandas needs pandas, which is not installed", hint="pip install pandas") from None
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> DataFrame:
        """Everything as a Polars ``DataFrame``; raises as ``to_batches``. ``segreader.polars.scan`` gives a frame that
        reads no more than a query needs.

        Raises:
            OptionError: Polars is not installed.
        """
        try:
            import polars
        except ImportError:
            raise OptionError("to_polars needs Polars, which is not installed", hint=install_hint("polars")) from None
        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_duckdb(self, connection: DuckDBPyConnection | None = None, name: str = "records") -> DuckDBPyRelation:
        """Everything as a new DuckDB table, a batch at a time; raises as ``to_batches``, and then there is no table.
        ``segreader.duckdb.register`` makes a view that reads no more than a query needs.

        Args:
            connection: where the table is made; by default a new database in memory.
            name: the table's name.

        Returns:
            The table, as a relation of the connection.

        Raises:
            OptionError: DuckDB is not installed, or there is a table or view of that name.
        """
        try:
            import duckdb
        except ImportError:
            raise OptionError("to_duckdb needs DuckDB, which is not installed", hint=install_hint("sql")) from None
        if isinstance(connection, str):
            raise OptionError(
                "a text is not a DuckDB connection", hint=f"Name the table: to_duckdb(name={connection!r})"
            )
        if not isinstance(connection, duckdb.DuckDBPyConnection | None):
            raise OptionError(
                "this is not a DuckDB connection",
                found=type(connection).__name__,
                hint="Give what duckdb.connect() gives",
            )
        if not isinstance(name, str) or not name:
            raise OptionError("name is not text, or is empty", found=repr(name), hint="Name the table")
        met: list[BaseException] = []

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                yield from self.to_batches()
            except GeneratorExit:
                raise
            except BaseException as error:
                met.append(error)  # DuckDB keeps no more than its text
                raise

        used = duckdb.connect() if connection is None else connection
        quoted = '"' + name.replace('"', '""') + '"'
        if used.sql(_TAKEN, params=[name]).fetchall():  # the name would be that view's, even if there were a table
            raise OptionError(f"a table or view {name!r} already exists", hint="Give another name, or drop that one")
        try:
            used.from_arrow(pa.RecordBatchReader.from_batches(self.schema, batches())).create(quoted)
        except duckdb.CatalogException as error:
            text = str(error).splitlines()[0].removeprefix("Catalog Error: ").rstrip("!.")
            raise OptionError(text, hint="Give another name, or drop that table") from None
        except duckdb.Error:
            if met:
                raise met[0] from None
            raise
        return used.table(quoted)

    def records(self) -> Iterator[ConsumerRecord]:
        """Everything as Python objects, in the same order; raises as ``to_batches``."""
        from segreader.read.records import RECORD_COLUMNS, iter_consumer_records

        for batch in self._batches(replace(self.options, columns=RECORD_COLUMNS)):
            yield from iter_consumer_records(batch, self.options.kernel)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """The Arrow C stream of ``to_batches``. Source: the Arrow PyCapsule interface."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self.to_batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _facts(self) -> Iterator[tuple[str, str]]:
        """What is read, as names and values for people."""
        asked, options = self._asked, self.options
        yield "location", re.sub(r"\?[^\s,]*", "", self._shown) if "://" in self._shown else self._shown
        yield "topic", "all" if asked.topic is None else asked.topic
        if asked.topic_id is not None:
            yield "topic id", asked.topic_id
        yield "partitions", "all" if asked.partitions is None else ", ".join(map(str, asked.partitions))
        bounds, where = asked.bounds, options.where
        if bounds.start or bounds.stop is not None or bounds.end is not LiveEnd.LATEST:
            end = bounds.end if bounds.end is not LiveEnd.LATEST else ""
            yield "offsets", f"{bounds.start or ''}:{end if bounds.stop is None else bounds.stop}"
        if asked.last is not None:
            yield "last", str(asked.last)
        if bounds.group is not None:
            yield "group", bounds.group
        if bounds.times is not None:
            for name, time_ms in (("since", bounds.times.since_ms), ("until", bounds.times.until_ms)):
                if time_ms is not None:
                    yield name, _time(time_ms)
        if where is not None:
            for name, sought in (("key", where.key), ("contains", where.contains)):
                if sought is not None:
                    yield name, repr(sought if len(sought) <= _MOST_SHOWN else sought[:_MOST_SHOWN] + b"...")
        yield "isolation", self.isolation_level.value

    def __repr__(self) -> str:
        facts = (f"{name} {value if value.isprintable() else repr(value)}" for name, value in self._facts())
        return f"<{type(self).__name__} {', '.join(facts)}>"

    def _repr_html_(self) -> str:
        """The same as a small table, for notebooks; nothing is read for it."""
        from html import escape

        facts = [*self._facts(), ("columns", ", ".join(self.options.columns))]
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>'
            for name, value in facts
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"

    def __reduce__(self) -> NoReturn:
        raise OptionError(
            "a scan holds connections, and cannot travel to another process",
            hint="Send a segreader.loader.LoadQuery, which takes the same arguments, or the splits of plan()",
        )

    @abstractmethod
    def close(self) -> None:
        """Give back connections and threads; without this they go with the process."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_MOST_SHOWN = 60
"""Bytes of a key that are shown."""

_TAKEN = """
    select 1 from information_schema.tables where lower(table_name) = lower(?)
    and (table_catalog = 'temp' or (table_catalog = current_database() and table_schema = current_schema()))
"""
"""Whether a name is one of DuckDB's already: of a table, or of a view, such as ``segreader.duckdb.register`` makes."""


def _time(time_ms: int) -> str:
    """A time in UTC; the number where the calendar does not reach."""
    try:
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
