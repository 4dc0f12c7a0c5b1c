"""``segreader dump`` on a terminal: the facts a person looks for first, in tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from segreader.cli.encoding import printable
from segreader.cli.output import console, shown_time

Row = dict[str, Any]

_PAGE_ROWS = 200
_TAILS = {"end": "ends with its last batch", "cut": "ends inside a batch", "zero": "ends in zeros"}
_BATCH = ("position", "offsets", "records", "size", "codec", "latest time (UTC)", "epoch", "producer", "flags")
_RECORD = ("offset", "time (UTC)", "key", "value", "header keys")
_TIMES = frozenset({"timestamp", "last_timestamp"})


def print_dump(rows: Iterable[Row]) -> None:
    """Print rows as they come, some hundred to a table."""
    pages = _Pages(console())
    try:
        for row in rows:
            pages.add(row)
    finally:
        pages.flush()


class _Pages:
    """Rows of one kind are held until there is a table of them."""

    def __init__(self, out: Console) -> None:
        self._out, self._table, self._kind = out, Table(), ""

    def add(self, row: Row) -> None:
        kind = row["kind"]
        if kind not in ("batch", "record", "entry"):
            self.flush()
            self._out.print(_LINES[kind](row), soft_wrap=True)
            return
        if kind != self._kind or self._table.row_count >= _PAGE_ROWS:
            self.flush()
            columns = {"batch": _BATCH, "record": _RECORD}.get(kind) or [
                name.replace("_", " ") for name in row if name != "kind"
            ]
            self._kind, self._table = kind, Table(*columns, box=None, pad_edge=False, header_style="dim")
        self._table.add_row(*_CELLS[kind](row), style="red" if row.get("is_valid") is False else None)

    def flush(self) -> None:
        """Print what is held."""
        if self._kind:
            self._out.print(self._table)
        self._kind = ""


def _file(row: Row) -> Text:
    return Text(f"{row['file']}  {row['type']}, {row['size']} bytes", "bold")


def _end(row: Row) -> Text:
    said = [f"{row['batches']} batches" if "batches" in row else f"{row['entries']} entries"]
    if "tail" in row:
        said.append(f"{_TAILS[row['tail']]} at byte {row['position']}")
    if row["trailing_bytes"]:
        said.append(f"{row['trailing_bytes']} bytes follow")
    if row.get("missing_bytes"):
        said.append(f"{row['missing_bytes']} bytes are missing")
    if row.get("zero_tail"):
        said.append(f"{row['zero_tail']} zeros at the end")
    return Text("; ".join(said) + "\n", "dim")


_LINES: dict[str, Callable[[Row], Text]] = {
    "file": _file,
    "end": _end,
    "damage": lambda row: Text(f"damage: {printable(row['error'], 1000)}", "red"),
}


def _batch(row: Row) -> list[str]:
    is_new = "base_offset" in row
    offsets = f"{row['base_offset']}..{row['last_offset']}" if is_new else f"..{row['offset']}"
    flags = [
        name
        for name, is_set in (
            (f"magic {row['magic']}", not is_new),
            ("transactional", row.get("is_transactional")),
            ("control", row.get("is_control")),
            ("append time", row["timestamp_type"] == "LogAppendTime"),
            ("delete horizon", row.get("delete_horizon_ms") is not None),
            ("BAD CRC", not row["is_valid"]),
        )
        if is_set
    ]
    producer = ""
    if row.get("producer_id", -1) >= 0:
        producer = f"{row['producer_id']}/{row['producer_epoch']}"
        if row["base_sequence"] >= 0:
            producer += f" seq {row['base_sequence']}..{row['last_sequence']}"
    return [
        str(row["position"]),
        offsets,
        str(row["count"]) if is_new else "",
        str(row["size"]),
        row["compress_codec"],
        shown_time(row["max_timestamp"]),
        str(row["partition_leader_epoch"]) if is_new else "",
        producer,
        ", ".join(flags),
    ]


def _record(row: Row) -> list[Text]:
    if "key" in row:
        key, value = _payload(row["key"]), _payload(row["value"])
    else:
        said = {name: value for name, value in row.items() if name not in _IN_EVERY_RECORD}
        key, value = Text("control", "dim"), Text(", ".join(f"{n} {printable(str(v))}" for n, v in said.items()))
    names = ", ".join(printable(name, 20) for name in row.get("header_keys", ()))
    return [Text(str(row["offset"])), Text(shown_time(row["timestamp"])), key, value, Text(names)]


_IN_EVERY_RECORD = frozenset(
    {"kind", "offset", "timestamp_type", "timestamp", "key_size", "value_size", "sequence", "header_keys"}
)


def _payload(text: str | None) -> Text:
    return Text("null", "dim") if text is None else Text(printable(text))


def _entry(row: Row) -> list[str]:
    return [
        "" if value is None else shown_time(value) if name in _TIMES else str(value)
        for name, value in row.items()
        if name != "kind"
    ]


_CELLS: dict[str, Callable[[Row], Sequence[str | Text]]] = {"batch": _batch, "record": _record, "entry": _entry}
