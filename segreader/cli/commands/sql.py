"""``segreader sql``: questions about topics, in SQL."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from segreader.cli.exit_codes import ExitCode
from segreader.cli.options import parse_options, storage_option
from segreader.cli.output import debug_option, output_file_option, output_option, require_place, say
from segreader.errors import OptionError, install_hint
from segreader.format.rows import ENCODINGS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from segreader.cli.sql_topics import QueryTables
    from segreader.tables.dataset import TopicDataset

_T = TypeVar("_T")
_GRACE_S: Final = 3.0
"""So long DuckDB has to hear of an interrupt."""

_EPILOG = """\b
Examples:
  segreader sql "select partition, count(*) from topic('s3://logs/tiered', 'orders') group by 1 order by 1"
  segreader sql "select * from topic('/mnt/tiered', 'orders/3') where \\"offset\\" between 4711 and 4720"
  segreader sql "select value->>'$.customer' as customer, sum((value->>'$.total')::decimal(18, 2)) as total
      from topic('/mnt/tiered', 'orders', since := '-1d') group by all order by total desc limit 10"
  segreader sql "select o.key, p.value->>'$.state' from topic('/mnt/tiered', 'orders') o
      join topic('/mnt/tiered', 'payments') p using (key)" -o parquet > joined.parquet
  segreader sql "select hex(value) from topic('/mnt/tiered', 'avro', decode := 'blob') limit 3"
"""


@click.command(epilog=_EPILOG, short_help="Ask questions about topics, in SQL.")
@click.argument("query")
@storage_option
@click.option(
    "--broker-option",
    "broker_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of the Kafka client, for topics with bootstrap_servers := …; can be repeated. NAME=@FILE and "
    "NAME=env:VARIABLE keep a secret out of the process list.",
)
@click.option("--allow-files", is_flag=True, help="Also let the query read files, such as 'lookup.parquet'.")
@click.option(
    "--bytes",
    "encoding",
    type=click.Choice(list(ENCODINGS)),
    help="How a BLOB becomes text. auto, the default: UTF-8 where it is printable text, else base64 with a field that "
    "says so.",
)
@output_file_option
@output_option("ndjson", "json", "csv", "table", "parquet", "arrow")
@debug_option
def sql(
    query: str,
    storage_options: tuple[str, ...],
    broker_options: tuple[str, ...],
    allow_files: bool,
    encoding: str | None,
    output_file: str | None,
    form: str,
) -> int:
    """Run QUERY, one SELECT in DuckDB's SQL, over topics where they are stored.

    A topic is a table: topic('LOCATION', 'TOPIC') or topic('LOCATION', 'TOPIC/PARTITION'), with the columns key, value,
    topic, partition, "offset" (in double quotes: OFFSET is a word of SQL), timestamp, timestamp_type and headers.
    In the query its name is the topic's, unless it has an alias.

    Key and value are text, so that value->>'$.id' works on JSON; decode := 'blob' gives the bytes. Other arguments are
    those of segreader.scan, constants all: partitions := [0, 1], since := '-1h', until := …, offsets := '100:200',
    isolation_level := 'read_uncommitted', columns := ['offset', 'leader_epoch'], on_corrupt := 'skip',
    bootstrap_servers := 'b1:9092', layout := …

    Only what the query needs is read: its columns, and by its conditions on topic, partition, "offset" and timestamp.
    The query sees topics and nothing else: no files, unless they are allowed, and no variables of the environment.
    """
    require_place(form, output_file, has_encoding=bool(encoding))
    from segreader.cli.row_writer import ValueTexts, distinct, opened, row_writer

    with _tables(storage_options, broker_options, allow_files) as (engine, tables), _typed(tables):
        text = tables.prepare(query)
        reader = engine.run(lambda: engine.connection.sql(text).to_arrow_reader(8192))
        schema = distinct(reader.schema)
        texts = ValueTexts(schema, encoding or "auto")
        with opened(output_file) as file, row_writer(form, file, schema, texts) as write:
            try:
                while (batch := engine.run(lambda: next(reader, None))) is not None:
                    write(batch.rename_columns(schema.names))
            finally:
                is_whole = not [one for one in tables.datasets if not _tell(one)]
    return ExitCode.OK if is_whole else ExitCode.FINDINGS


class _Engine:
    """DuckDB at work in a thread of its own, so that this one hears of an interrupt.

    Some of its steps hear of none, and last for minutes: then the program leaves without it.

    Args:
        thread: where it works.
        spill: the directory that it writes to.
    """

    def __init__(self, connection: DuckDBPyConnection, thread: ThreadPoolExecutor, spill: str) -> None:
        self.connection, self._thread, self._spill = connection, thread, spill

    def run(self, work: Callable[[], _T]) -> _T:
        """What it makes of some work; an interrupt ends both."""
        future = self._thread.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            deadline = time.monotonic() + _GRACE_S
            while not future.done():
                self.connection.interrupt()  # in vain before a query has begun
                wait([future], 0.1)
                if time.monotonic() > deadline:
                    shutil.rmtree(self._spill, ignore_errors=True)
                    os._exit(ExitCode.INTERRUPTED)
            raise


@contextmanager
def _tables(
    storage_options: tuple[str, ...], broker_options: tuple[str, ...], allow_files: bool
) -> Iterator[tuple[_Engine, QueryTables]]:
    """A DuckDB of this query alone, and what makes its tables."""
    import tempfile

    try:
        import duckdb
    except ImportError:
        raise OptionError(
            "SQL needs DuckDB, which is not installed",
            hint=install_hint("sql"),
        ) from None
    from segreader.cli.sql_topics import QueryTables

    with tempfile.TemporaryDirectory(prefix="segreader-sql-") as spill:
        config: dict[str, Any] = {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
            "temp_directory": spill,
        }
        with (
            duckdb.connect(":memory:", config=config) as connection,
            ThreadPoolExecutor(1, "segreader-sql") as thread,
        ):
            connection.execute("set TimeZone = 'UTC'")
            if not allow_files:
                connection.execute("set enable_external_access = false")
            connection.execute("set lock_configuration = true")
            tables = QueryTables(connection, parse_options(storage_options), parse_options(broker_options))
            try:
                yield _Engine(connection, thread, spill), tables
            finally:
                tables.close()


@contextmanager
def _typed(tables: QueryTables) -> Iterator[None]:
    """What DuckDB raises, as errors of segreader: those that it met while reading topics come back as they were."""
    import duckdb

    from segreader.cli.sql_topics import first_line

    try:
        yield
    except (duckdb.Error, OSError) as error:
        for dataset in tables.datasets:
            if dataset.last_error is not None:
                raise dataset.last_error from None
        if not isinstance(error, duckdb.Error):
            raise
        if isinstance(error, duckdb.InterruptException):
            raise KeyboardInterrupt from None
        if "Failure in decode" in str(error):
            raise OptionError(
                "a key or value is not UTF-8 text", hint="Ask for bytes: topic(…, decode := 'blob')"
            ) from None
        hint = "Other files are read with --allow-files" if "disabled by configuration" in str(error) else None
        raise OptionError(first_line(error), hint=hint or "See segreader sql --help for what a topic has") from None


def _tell(dataset: TopicDataset) -> bool:
    """Tell on stderr what a topic lacks, once what several reads of it met; returns whether nothing does."""
    from segreader.read.metrics import lacks, texts_of

    for line in dict.fromkeys(text for plan, metrics in dataset.reads for text in texts_of(plan, metrics)):
        say(line)
    return not any(lacks(plan, metrics) for plan, metrics in dataset.reads)
