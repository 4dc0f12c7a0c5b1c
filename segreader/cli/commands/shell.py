"""``segreader shell``: a place to ask questions about the topics of one location."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from segreader.cli.options import at_argument, catalog_options, parse_options, storage_option
from segreader.cli.output import debug_option, output_option, say
from segreader.format.rows import ENCODINGS

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
@click.option("--schemas", metavar="FILE|URL", help="Schemas that decode keys and values.")
@click.option("--bootstrap-servers", metavar="HOST:PORT,…", help="Brokers, to read topics up to their live end.")
@catalog_options
@storage_option
@click.option(
    "--broker-option",
    "broker_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of the Kafka client; can be repeated. NAME=@FILE and NAME=env:VARIABLE keep a secret out of the "
    "process list.",
)
@click.option("--allow-files", is_flag=True, help="Also let queries read files, such as 'lookup.parquet'.")
@click.option(
    "--bytes",
    "encoding",
    type=click.Choice(list(ENCODINGS)),
    default="auto",
    help="How a BLOB becomes text. auto, the default: UTF-8 where it is printable text, else base64 with a field that "
    "says so.",
)
@click.option("--prices", "price_file", metavar="FILE", help="A price table for .plan, as of segreader plan.")
@click.option(
    "--price", "price_texts", multiple=True, metavar="NAME=VALUE", help="One entry of the price table; can be repeated."
)
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
    encoding: str,
    price_file: str | None,
    price_texts: tuple[str, ...],
    form: str,
) -> int:
    """Ask questions in SQL about the topics at AT: a directory, a bucket, a place of segreader.toml, or kafka://….

    Every topic is a table by its name. A statement ends with a semicolon, on as many lines as it takes; .help lists the
    commands. Tab completes tables, columns and fields. Ctrl-C ends a query, Ctrl-D the shell. Statements are remembered
    in $XDG_STATE_HOME/segreader/history, but for those that seem to hold a secret.

    From a pipe it reads the same, prints without a prompt, and ends at the first error with its exit code.
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
        dialogue = Dialogue(session, RowForm(form, encoding))
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            return run_piped(dialogue, sys.stdin)
        session.stay()
        count = len(session.tables.names)
        say(f"{count} topic{'s' * (count != 1)}. Statements end with ;  .help lists commands")
        run_typed(dialogue, typed_texts(session))
        return dialogue.code
