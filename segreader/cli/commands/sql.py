"""``segreader sql``: questions about topics, in SQL."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from segreader.cli.exit_codes import ExitCode
from segreader.cli.options import at_option, parse_options, query_options
from segreader.cli.output import debug_option, named_output, output_file_option, output_option, require_place, say
from segreader.cli.sql_statements import not_text, require_text, stdin
from segreader.errors import ObjectNotFoundError, OptionError

if TYPE_CHECKING:
    from segreader.stored.source import Catalog

_LONGEST_FILE = 16 << 20
_ONE_RESULT = ("parquet", "arrow")

_EPILOG = """\b
Examples:
  segreader sql --at s3://logs/tiered "select partition, count(*) from orders group by 1 order by 1"
  segreader sql --at /mnt/tiered "show tables; describe orders"
  segreader sql --at /mnt/tiered -f report.sql -o csv --output-file report.csv
  segreader sql "select * from topic('/mnt/tiered', 'orders/3') where \\"offset\\" between 4711 and 4720"
  segreader sql "select value->>'$.customer' as customer, sum((value->>'$.total')::decimal(18, 2)) as total
      from topic('/mnt/tiered', 'orders', since := '-1d') group by all order by total desc limit 10"
  segreader sql "select o.key, p.value->>'$.state' from topic('/mnt/tiered', 'orders') o
      join topic('/mnt/tiered', 'payments') p using (key)" -o parquet > joined.parquet
  segreader sql "select hex(value) from topic('/mnt/tiered', 'avro', decode := 'blob') limit 3"
"""


@click.command(epilog=_EPILOG, short_help="Ask questions about topics, in SQL.")
@click.argument("query", required=False)
@click.option("-f", "--file", "query_file", metavar="FILE", help="Read the statements from FILE; - is stdin.")
@at_option
@query_options
@click.option("-q", "--quiet", is_flag=True, help="Do not print rows, seconds and bytes on stderr at the end.")
@output_file_option
@output_option("ndjson", "json", "csv", "table", "parquet", "arrow")
@debug_option
def sql(
    query: str | None,
    query_file: str | None,
    location: str | None,
    schemas: str | None,
    bootstrap_servers: str | None,
    make_catalog: Callable[[], Catalog],
    storage_options: tuple[str, ...],
    broker_options: tuple[str, ...],
    allow_files: bool,
    encoding: str | None,
    price_file: str | None,
    price_texts: tuple[str, ...],
    quiet: bool,
    output_file: str | None,
    form: str,
) -> int:
    """Run QUERY, in DuckDB's SQL, over topics where they are stored. Several statements are separated by semicolons;
    QUERY is - to read them from stdin.

    With --at each topic there is a table by its name: orders, or "orders/3" for one partition. Without, a table is
    topic('LOCATION', 'TOPIC') or topic('LOCATION', 'TOPIC/PARTITION'). It has the columns key, value, topic, partition,
    "offset" (in double quotes: OFFSET is a word of SQL), timestamp, timestamp_type and headers. timestamp_type is a
    number, printed by its name: 0 is CreateTime, 1 is LogAppendTime. In the query the table's name is the topic's,
    unless it has an alias.

    SELECT, FROM, WITH, PIVOT, UNPIVOT, SHOW TABLES, DESCRIBE and SUMMARIZE are run. EXPLAIN prints what a query
    would read, and what that costs, without reading a record.

    Key and value are text, so that value->>'$.id' works on JSON; decode := 'blob' gives the bytes. Other arguments are
    those of segreader.scan, constants all: partitions := [0, 1], since := '-1h', until := …, offsets := '100:200',
    isolation_level := 'read_uncommitted', columns := ['offset', 'leader_epoch'], on_corrupt := 'skip',
    bootstrap_servers := 'b1:9092', layout := …

    Only what the query needs is read: its columns, and by its conditions on topic, partition, "offset" and timestamp.
    The query sees topics and nothing else: no files, unless they are allowed, and no variables of the environment.
    """
    require_place(form, output_file, has_encoding=bool(encoding))
    text = _statements(query, query_file)
    from segreader.cli.plan_rows import parse_price_options
    from segreader.cli.row_writer import opened
    from segreader.cli.shell.places import topics_at
    from segreader.cli.shell.session import RowForm, StatementOutcome, sql_session

    prices = parse_price_options(price_file, price_texts)
    given = parse_options(storage_options), parse_options(broker_options)
    at = None if location is None else topics_at(location, *given, make_catalog(), bootstrap_servers, schemas)
    whole = StatementOutcome()
    with sql_session(*given, at=at, prices=prices, allow_files=allow_files) as session:
        statements = session.split(text)
        if not statements:
            raise OptionError("no statement", expected="such as select 1")
        if form in _ONE_RESULT and len(statements) > 1:
            raise OptionError(
                f"{form} holds one result", found=f"{len(statements)} statements", hint="Run one at a time"
            )
        with named_output(output_file), opened(output_file) as file:
            for statement in statements:
                whole += session.run(statement, RowForm(form, encoding or "auto"), file)
    if not quiet and not all(statement.is_estimate for statement in statements):
        sys.stdout.flush()
        say(str(whole))
    return ExitCode.OK if whole.is_whole else ExitCode.FINDINGS


def _statements(query: str | None, file: str | None) -> str:
    """The text of the statements: given, of a file, or of stdin."""
    if (query is None) == (file is None):
        raise click.UsageError("Give statements as QUERY or with --file, one of the two")
    if file is None and query != "-":
        return require_text(query or "")
    name = "stdin" if file in (None, "-") else str(file)
    try:
        if name == "stdin":
            data = stdin().buffer.read(_LONGEST_FILE + 1)
        else:
            with open(name, "rb") as opened:
                data = opened.read(_LONGEST_FILE + 1)
        if len(data) > _LONGEST_FILE:
            raise OptionError("the statements are too long", source=name, expected="at most 16 MiB")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ObjectNotFoundError(
            "the statements cannot be read", source=name, found=error.strerror, hint="Check the path"
        ) from None
    except UnicodeDecodeError:
        raise not_text(name) from None
