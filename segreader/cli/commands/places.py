"""``segreader places``: which places have a name, and where they are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click

from segreader.cli.output import debug_option, output_option, print_rows, say
from segreader.cli.table import TableColumn, print_table

_EPILOG = """\b
A place is a section of ~/.config/segreader.toml:
  [prod]
  location = "s3://logs/tiered"
  storage_options = {region = "eu-west-1", key = "AKIA…", secret = "env:PROD_SECRET"}

\b
Then:
  segreader ls prod
  segreader cat prod:orders/3
  SEGREADER_AT=prod segreader cat orders
"""


@click.command(epilog=_EPILOG, short_help="List the places that have a name in ~/.config/segreader.toml.")
@output_option("table", "json", "ndjson")
@debug_option
def places(form: str) -> None:
    """List the places of ~/.config/segreader.toml ($XDG_CONFIG_HOME, or the file that SEGREADER_CONFIG names).

    Every command takes a place as its LOCATION: prod, prod:orders or prod:orders/3. The whole file is checked; no store
    is asked and no secret read. docs/how-to/places.md lists the keys.
    """
    from segreader.places import config_file
    from segreader.places import places as read_places

    at = os.environ.get("SEGREADER_AT")
    rows = [
        {
            "place": one.name,
            "location": one.shown,
            "bootstrap_servers": one.bootstrap_servers,
            "layout": one.layout,
            "schemas": one.schemas or one.schema_registry,
            "options": sorted([*one.storage_options, *one.broker_options]),
            "is_default": one.name == at,
        }
        for one in read_places()
    ]
    print_rows(iter(rows), form, _print_table)
    if not rows:
        say(f"note: no places in {config_file()}; segreader places --help shows how to write one")


def _print_table(rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    print_table(
        (TableColumn("place"), TableColumn("location"), TableColumn("brokers"), TableColumn("schemas")),
        [
            (
                f"{row['place']} (SEGREADER_AT)" if row["is_default"] else row["place"],
                row["location"] or "",
                row["bootstrap_servers"] or "",
                row["schemas"] or "",
            )
            for row in rows
        ],
    )
