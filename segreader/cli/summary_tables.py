"""``segreader inspect`` on a terminal: one partition in detail, several in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text

from segreader.cli.encoding import printable
from segreader.cli.output import console, shown_partitions, shown_size, shown_time

Row = dict[str, Any]

_SHOWN = 10
_BAR_WIDTH = 30


def print_summaries(rows: Sequence[Row]) -> None:
    """Print the summaries of some partitions."""
    out = console()
    if len(rows) == 1:
        _print_one(out, rows[0])
    else:
        _print_many(out, rows)
    for row in rows:
        for damage in row["damage"]:
            out.print(Text(f"damage: {printable(damage['error'], 1000)}", "red"), soft_wrap=True)
        for note in row["notes"]:
            out.print(Text(f"note: {printable(note, 1000)}", "yellow"), soft_wrap=True)


def _print_many(out: Console, rows: Sequence[Row]) -> None:
    table = Table(
        "partition",
        "segments",
        "size",
        "batches",
        "records",
        "offsets",
        "latest time (UTC)",
        "codecs",
        "ratio",
        "transactions",
        "damage",
        box=None,
        pad_edge=False,
        header_style="dim",
        show_footer=True,
    )
    names = shown_partitions((_name(row), row["topic_id"]) for row in rows)
    for row, name in zip(rows, names, strict=True):
        codecs = row["codecs"]
        table.add_row(
            name,
            str(row["segments"]),
            shown_size(row["size"]),
            str(row["batches"]),
            str(row["records"]),
            _offsets(row),
            shown_time(row["max_timestamp"]),
            ", ".join(codec["codec"] for codec in codecs),
            _ratio(codecs),
            _transactions(row),
            str(len(row["damage"]) or ""),
            style="red" if row["damage"] else None,
        )
    footer = (
        f"{len(rows)} partitions",
        _sum(rows, "segments"),
        shown_size(sum(row["size"] for row in rows)),
        _sum(rows, "batches"),
        _sum(rows, "records"),
    )
    for column, text in zip(table.columns, footer, strict=False):
        column.footer = text
    out.print(table)


def _print_one(out: Console, row: Row) -> None:
    facts = Table.grid(padding=(0, 2))
    epochs = ", ".join(f"{epoch['epoch']} from {epoch['first_offset']}" for epoch in row["leader_epochs"][:_SHOWN])
    markers = f", markers up to {shown_time(last)}" if (last := row["max_marker_timestamp"]) is not None else ""
    for name, text in (
        ("source", row["source"]),
        ("partition", _name(row) + (f" (topic id {row['topic_id']})" if row["topic_id"] else "")),
        ("segments", f"{row['segments']}, {shown_size(row['size'])}"),
        ("batches", f"{row['batches']}, of these {row['control_batches']} control batches"),
        ("records", str(row["records"])),
        ("offsets", _offsets(row)),
        ("times (UTC)", f"{shown_time(row['first_timestamp'])} .. {shown_time(row['max_timestamp'])}{markers}"),
        ("time types", ", ".join(row["timestamp_types"])),
        ("magic", ", ".join(row["magics"])),
        ("leader epochs", epochs + _more(row["leader_epochs"])),
        ("transactions", _transactions(row) or "none"),
    ):
        facts.add_row(Text(name, "dim"), Text(text))
    out.print(facts)
    _print_codecs(out, row["codecs"])
    _print_producers(out, row["producers"])


def _print_codecs(out: Console, codecs: Sequence[Row]) -> None:
    if not codecs:
        return
    out.print()
    table = Table("codec", "stored", "", "batches", "records", "ratio", box=None, pad_edge=False, header_style="dim")
    largest = max(codec["stored_bytes"] for codec in codecs) or 1
    for codec in codecs:
        bar = Bar(largest, 0, codec["stored_bytes"], width=_BAR_WIDTH, color="cyan")
        ratio = "" if codec["ratio"] is None else f"{codec['ratio']:.2f}"
        table.add_row(
            codec["codec"], shown_size(codec["stored_bytes"]), bar, str(codec["batches"]), str(codec["records"]), ratio
        )
    out.print(table)


def _print_producers(out: Console, producers: Sequence[Row]) -> None:
    if not producers:
        return
    out.print()
    table = Table("producer", "epoch", "batches", "records", "", box=None, pad_edge=False, header_style="dim")
    most = sorted(producers, key=lambda producer: -producer["records"])
    for producer in most[:_SHOWN]:
        table.add_row(
            str(producer["producer_id"]),
            str(producer["producer_epoch"]),
            str(producer["batches"]),
            str(producer["records"]),
            "transactional" if producer["is_transactional"] else "idempotent",
        )
    out.print(table)
    if more := _more(producers):
        out.print(Text(more.strip(), "dim"))


def _name(row: Row) -> str:
    return "" if row["topic"] is None else f"{row['topic']}-{row['partition']}"


def _offsets(row: Row) -> str:
    return "" if row["first_offset"] is None else f"{row['first_offset']}..{row['last_offset']}"


def _ratio(codecs: Sequence[Row]) -> str:
    stored = sum(codec["stored_bytes"] for codec in codecs)
    return f"{sum(codec['uncompressed_bytes'] for codec in codecs) / stored:.2f}" if stored else ""


def _transactions(row: Row) -> str:
    counts = row["transactions"]
    numbers = (("committed", counts["committed"]), ("aborted", counts["aborted"]), ("open", len(counts["open"])))
    return ", ".join(f"{number} {name}" for name, number in numbers if number)


def _sum(rows: Sequence[Row], name: str) -> str:
    return str(sum(row[name] for row in rows))


def _more(rows: Sequence[Row]) -> str:
    return f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
