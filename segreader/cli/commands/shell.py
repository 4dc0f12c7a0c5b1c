"""``segreader shell``: a place to ask questions about the topics of one location."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from segreader.cli.options import at_argument, parse_options, query_options
from segreader.cli.output import debug_option, output_option, say
from segreader.cli.sql_statements import stdin
from segreader.errors import shown_count

if TYPE_CHECKING:
    from segreader.stored.source import Catalog

_EPILOG = """\b
Examples:
  segreader shell s3://logs/tiered
  segreader shell prod
  segreader shell /mnt/tiered --schemas schemas.json
  segreader shell kafka://gateway:9092
  echo "select count(*) from orders;" | segreader shell /mnt/tiered
"""


@click.command(epilog=_EPILOG, short_help="Ask questions about the topics of one place, one after the other.")
@at_argument
@query_options
@output_option("table", "ndjson", "json", "csv")
@debug_option
def shell(
    location: str,
    schemas: str | None,
    bootstrap_servers: str | None,
    make_catalog: Callable[[], Catalog],
    storage_options: tuple[str, ...],
    broker_options: tuple[str, ...],
    allow_files: bool,
    encoding: str | None,
    price_file: str | None,
    price_texts: tuple[str, ...],
    form: str,
) -> int:
    """Ask questions in SQL about the topics at AT: a directory, a bucket, a place of segreader.toml, or kafka://….

    Every topic is a table with its name. A statement ends with a semicolon and may take several lines; .help lists the
    commands. Tab completes tables, columns and fields. Ctrl-C stops a query, Ctrl-D leaves the shell. The history is in
    $XDG_STATE_HOME/segreader/history, without statements that seem to hold a secret.

    From a pipe it reads the same, prints no prompt, and ends at the first error, with its exit code.
    """
    from segreader.cli.plan_rows import parse_price_options
    from segreader.cli.shell.dialogue import Dialogue, run_piped, run_typed
    from segreader.cli.shell.places import topics_at
    from segreader.cli.shell.session import RowForm, sql_session
    from segreader.cli.shell.terminal import typed_texts

    prices = parse_price_options(price_file, price_texts)
    given = parse_options(storage_options), parse_options(broker_options)
    at = topics_at(location, *given, make_catalog(), bootstrap_servers, schemas)
    with sql_session(*given, at=at, prices=prices, allow_files=allow_files) as session:
        dialogue = Dialogue(session, RowForm(form, encoding or "auto"))
        if not (stdin().isatty() and sys.stdout.isatty()):
            return run_piped(dialogue, stdin())
        session.stay()
        count = len(session.tables.names)
        say(f"{shown_count(count, 'topic')}. Statements end with ;  .help lists commands")
        run_typed(dialogue, typed_texts(session))
        return dialogue.code
