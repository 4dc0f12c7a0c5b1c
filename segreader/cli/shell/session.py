"""One DuckDB in which statements over topics run, and what each of them cost."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from segreader.cli.exit_codes import ExitCode
from segreader.cli.output import is_terminal, progress, say, stdout
from segreader.cli.shell.explain import QueryCost, print_cost, rehearse
from segreader.cli.sql_statements import Statement, StatementKind, split
from segreader.cli.sql_values import JSON_MARK
from segreader.errors import OptionError, install_hint, shown_count
from segreader.values import dataclass

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from duckdb.sqltypes import DuckDBPyType

    from segreader.cli.sql_topics import QueryTables, TopicsAt
    from segreader.plan.cost import PriceTable

_T = TypeVar("_T")
_GRACE_S: Final = 3.0
"""So long DuckDB has to hear of an interrupt."""

_TICK_S: Final = 0.2
_ROWS: Final = 8192
_NO_TABLE: Final = re.compile(r"Catalog Error: Table with name (.+?) does not exist")
_OF_DUCKDB: Final = re.compile(r"(?:[A-Z][A-Za-z-]* ){1,4}Error: ")
_UNITS: Final = ("kB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class RowForm:
    """How rows are printed.

    Args:
        name: one of the formats of ``row_writer``.
        encoding: how bytes become text, one of ``ENCODINGS``.
    """

    name: str
    encoding: str = "auto"


@dataclass(frozen=True, slots=True)
class StatementOutcome:
    """What a statement gave and cost.

    Args:
        rows: how many were printed. seconds: wall time.
        size: stored bytes that were read.
        is_whole: whether nothing is missing of what it read.
    """

    rows: int = 0
    seconds: float = 0.0
    size: int = 0
    is_whole: bool = True

    def __add__(self, other: StatementOutcome) -> StatementOutcome:
        return StatementOutcome(
            self.rows + other.rows,
            self.seconds + other.seconds,
            self.size + other.size,
            self.is_whole and other.is_whole,
        )

    def __str__(self) -> str:
        seconds = f"{self.seconds:.2g}" if self.seconds < 1 else f"{self.seconds:.1f}"
        return f"{shown_count(self.rows, 'row')}, {seconds} s, read {_shown_bytes(self.size)}"


def _shown_bytes(size: int) -> str:
    """Bytes for people, in units of a thousand."""
    if size < 1000:
        return f"{size} B"
    number, power = size / 1000, 0
    while number >= 999.5 and power + 1 < len(_UNITS):
        number, power = number / 1000, power + 1
    return f"{number:.1f} {_UNITS[power]}" if number < 9.95 else f"{number:,.0f} {_UNITS[power]}"


class DuckEngine:
    """DuckDB at work in a thread of its own, so that this one hears of an interrupt.

    Some of its steps hear of none, and last for minutes: then the program leaves without it.

    Args:
        thread: where it works: a pool of one.
        spill: the directory that it writes to.
    """

    def __init__(self, connection: DuckDBPyConnection, thread: ThreadPoolExecutor, spill: str) -> None:
        self.connection, self._thread, self._spill = connection, thread, spill
        self.stays = False
        """Whether only a second interrupt has the program leave."""

    def run(self, work: Callable[[], _T], tick: Callable[[], None] | None = None) -> _T:
        """What it makes of some work; an interrupt ends both.

        Args:
            tick: called now and then while it works.
        """
        try:
            future = self._thread.submit(work)
            while tick is not None and not wait([future], _TICK_S).done:
                tick()
            return future.result()
        except KeyboardInterrupt:
            self._end()
            raise

    def _end(self) -> None:
        """Wait until interrupted work has ended, but not for ever."""
        deadline = time.monotonic() + _GRACE_S
        try:
            # Its turn comes after the work's, which may have begun though this thread does not know its future yet.
            ended = self._thread.submit(lambda: None)
            while not ended.done():
                self.connection.interrupt()  # in vain before a query has begun
                wait([ended], 0.1)
                if time.monotonic() > deadline:
                    if not self.stays:
                        self._leave()
                    say("the query has not ended yet: Ctrl-C again leaves the shell")
                    deadline = float("inf")
        except KeyboardInterrupt:
            self._leave()

    def _leave(self) -> None:
        shutil.rmtree(self._spill, ignore_errors=True)
        os._exit(ExitCode.INTERRUPTED)


class SqlSession:
    """Runs statements, one after the other, in one DuckDB.

    Args:
        tables: of its connection.
        rehearsal: opens a DuckDB like this one, in which topics have no rows.
        prices: to tell in money what a query costs.
    """

    def __init__(
        self,
        engine: DuckEngine,
        tables: QueryTables,
        rehearsal: Callable[[], AbstractContextManager[DuckDBPyConnection]],
        prices: PriceTable | None = None,
    ) -> None:
        self._engine, self.tables, self._rehearsal, self._prices = engine, tables, rehearsal, prices

    def stay(self) -> None:
        """Go on after an interrupt, even where a query hears of it late."""
        self._engine.stays = True

    def split(self, text: str) -> list[Statement]:
        """The statements of a text.

        Raises:
            OptionError: it is not SQL, or a statement is not a query.
        """
        with self._typed(text):
            return split(self._engine.connection, text)

    def run(self, statement: Statement, form: RowForm, file: IO[bytes]) -> StatementOutcome:
        """Print the rows of a statement.

        Raises:
            OptionError: DuckDB refuses it. SegreaderError: a topic cannot be read.
        """
        if statement.is_estimate:
            self.explain(statement.text, form, file)
            return StatementOutcome()
        began = time.monotonic()
        self._forget_reads()
        rows = 0
        is_whole = False
        with self._typed(statement.text):
            text = self._prepare(statement)
            try:
                rows = self._print(text, form, file)
            finally:
                is_whole = self._tell()
        return StatementOutcome(rows, time.monotonic() - began, self._look()[0], is_whole)

    def columns_of(self, name: str) -> list[tuple[str, str]]:
        """The columns of a topic and their types in SQL; raises as ``run``."""
        from segreader.cli.sql_topics import quoted

        with self._typed(name):
            text = self.tables.prepare(f"describe {quoted(name)}")
            rows = self._engine.run(lambda: self._engine.connection.execute(text).fetchall())
        return [(str(row[0]), str(row[1])) for row in rows]

    def explain(self, text: str, form: RowForm, file: IO[bytes], *, has_engine: bool = True) -> None:
        """Print what a query would read, and read nothing; raises as ``run``.

        Args:
            has_engine: also print DuckDB's own plan.
        """
        queries = self.split(text)
        if len(queries) != 1 or queries[0].kind is StatementKind.EXPLAIN:
            raise OptionError("not one query to explain", expected="a SELECT, FROM or PIVOT")
        cost = self._cost(queries[0])
        print_cost(cost if has_engine else replace(cost, engine=""), self._prices, form.name, file)

    def _cost(self, query: Statement) -> QueryCost:
        self._forget_reads()
        is_pivot = query.kind is StatementKind.PIVOT
        with self._typed(query.text):
            text = self._prepare(query)
            used, prices = self.tables.used, self._prices
            return self._engine.run(lambda: rehearse(used, text, self._rehearsal, is_pivot=is_pivot, prices=prices))

    def _prepare(self, statement: Statement) -> str:
        """The text that DuckDB is given, with views in place of topics."""
        match statement.kind:
            case StatementKind.QUERY:
                return self.tables.prepare(statement.text)
            case StatementKind.PIVOT:
                return self.tables.prepare_pivot(statement.text)
        [query] = self.split(statement.text)
        return f"{statement.prefix} {self._prepare(query)}"

    def _print(self, text: str, form: RowForm, file: IO[bytes]) -> int:
        """Write the rows that DuckDB gives; returns how many.

        A bar tells how far it is. On a terminal it ends with the first row, or they would stand in each other's way.
        """
        from segreader.cli.row_writer import ValueTexts, distinct, row_writer

        run, count = self._engine.run, 0
        with ExitStack() as bar:
            tick = bar.enter_context(progress(self._look))
            found = run(lambda: self._engine.connection.sql(text), tick)
            types = found.types
            with closing(run(lambda: found.to_arrow_reader(_ROWS), tick)) as reader:
                schema = distinct(reader.schema)
                batch = run(lambda: next(reader, None), tick)
                if file is stdout() and is_terminal():
                    bar.close()
                with row_writer(form.name, file, schema, ValueTexts(_marked(schema, types), form.encoding)) as write:
                    while batch is not None:
                        write(batch.rename_columns(schema.names))
                        count += batch.num_rows
                        batch = run(lambda: next(reader, None), tick)
        return count

    def _look(self) -> tuple[int, int, int | None]:
        """Bytes that the statement has read and that it has planned to read, up to now."""
        reads = [read for dataset in self.tables.datasets for read in dataset.reads]
        return sum(metrics.bytes_read for _, metrics in reads), sum(plan.size for plan, _ in reads), None

    def _forget_reads(self) -> None:
        for dataset in self.tables.datasets:
            dataset.forget_reads()

    def _tell(self) -> bool:
        """Tell on stderr what topics lack, once what several reads of one met; returns whether nothing does."""
        from segreader.read.metrics import lacks, texts_of

        is_whole = True
        for dataset in self.tables.datasets:
            for line in dict.fromkeys(text for plan, metrics in dataset.reads for text in texts_of(plan, metrics)):
                say(line)
            is_whole = is_whole and not any(lacks(plan, metrics) for plan, metrics in dataset.reads)
        return is_whole

    @contextmanager
    def _typed(self, text: str) -> Iterator[None]:
        """What DuckDB raises, as errors of segreader: those that it met while reading topics come back as they were."""
        import duckdb

        try:
            yield
        except (duckdb.Error, OSError) as error:
            for dataset in self.tables.datasets:
                if dataset.last_error is not None:
                    raise dataset.last_error from None
            if not isinstance(error, duckdb.Error) and not _is_of_duckdb(error):
                raise
            if isinstance(error, duckdb.InterruptException) or str(error).startswith("INTERRUPT "):
                raise KeyboardInterrupt from None
            raise self._refused(error, text) from None

    def _refused(self, error: BaseException, text: str) -> OptionError:
        from segreader.cli.sql_topics import hint_for, parts_of

        if "Failure in decode" in str(error):
            return OptionError("a key or value is not UTF-8 text", hint="Ask for bytes: topic(…, decode := 'blob')")
        message, proposal = parts_of(error)
        hint = proposal or hint_for(message, text, self.tables)
        if missing := _NO_TABLE.match(message):
            near = difflib.get_close_matches(missing[1], self.tables.names, 1)
            others = f"Name the bucket with --at LOCATION, or write topic('LOCATION', '{missing[1]}')"
            if self.tables.names:
                others = f"There are {', '.join(self.tables.names[:20])}"
            return OptionError(missing[0], hint=f'Did you mean "{near[0]}"?' if near else others)
        return OptionError(message, hint=hint)


def _is_of_duckdb(error: OSError) -> bool:
    """Whether DuckDB raised it while its rows came: pyarrow's reader of them makes an error without a number of it."""
    return error.errno is None and _OF_DUCKDB.match(str(error)) is not None


def _marked(schema: pa.Schema, types: Sequence[DuckDBPyType]) -> pa.Schema:
    """The schema with the mark of Arrow's own JSON type on what is JSON to DuckDB, which gives it as text."""
    return pa.schema([_marked_field(field, kind) for field, kind in zip(schema, types, strict=True)])


def _marked_field(field: pa.Field, kind: DuckDBPyType) -> pa.Field:
    if str(kind) == "JSON":
        return field.with_metadata(JSON_MARK)
    arrow: pa.DataType = field.type
    inner: dict[str, Any] = dict(kind.children) if kind.id in ("struct", "list", "map") else {}
    if pa.types.is_struct(arrow):
        parts = [arrow.field(at) for at in range(arrow.num_fields)]
        return field.with_type(pa.struct([_marked_field(one, inner[one.name]) for one in parts]))
    if pa.types.is_list(arrow):
        return field.with_type(pa.list_(_marked_field(arrow.value_field, inner["child"])))
    if pa.types.is_map(arrow):
        return field.with_type(pa.map_(arrow.key_type, _marked_field(arrow.item_field, inner["value"])))
    return field


@contextmanager
def sql_session(
    storage_options: Mapping[str, object],
    broker_options: Mapping[str, object],
    *,
    at: TopicsAt | None = None,
    prices: PriceTable | None = None,
    allow_files: bool = False,
) -> Iterator[SqlSession]:
    """A DuckDB of its own.

    Args:
        storage_options, broker_options: of every ``topic(…)``.
        at: where topics are that are named without a location.
        prices: to tell in money what a query costs.
        allow_files: whether queries may read files.

    Raises:
        OptionError: DuckDB is not installed.
    """
    import tempfile

    try:
        import duckdb
    except ImportError:
        raise OptionError("SQL needs DuckDB, which is not installed", hint=install_hint("sql")) from None
    from segreader.cli.sql_topics import QueryTables

    with tempfile.TemporaryDirectory(prefix="segreader-sql-") as spill:

        @contextmanager
        def opened(*settings: str) -> Iterator[DuckDBPyConnection]:
            config: dict[str, Any] = {
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "python_enable_replacements": False,
                "temp_directory": spill,
            }
            with duckdb.connect(":memory:", config=config) as connection:
                connection.execute("set TimeZone = 'UTC'")
                for setting in settings:
                    connection.execute(setting)
                if not allow_files:
                    connection.execute("set enable_external_access = false")
                connection.execute("set lock_configuration = true")
                yield connection

        # What a join finds in a topic without rows would rule out rows of the other.
        rehearsal = partial(opened, "set disabled_optimizers = 'join_filter_pushdown'")
        with opened() as connection, ThreadPoolExecutor(1, "segreader-sql") as thread:
            tables = QueryTables(connection, storage_options, broker_options, at)
            try:
                yield SqlSession(DuckEngine(connection, thread, spill), tables, rehearsal, prices)
            finally:
                tables.close()
