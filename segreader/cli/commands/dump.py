"""``segreader dump``: the contents of a partition's files, as stored."""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.exit_codes import ExitCode
from segreader.cli.options import parse_options, storage_option
from segreader.cli.output import (
    debug_option,
    encoding_options,
    output_option,
    printable,
    say,
    shown_time,
    write_json_rows,
)
from segreader.cli.table import Cell, Marked, Screen, StreamedTable, TableColumn, bytes_cell, fixed, number, text_cell
from segreader.errors import shown_count

if TYPE_CHECKING:
    from segreader.storage.base import ObjectStore


Row = dict[str, Any]

_DIRECTORIES = 3
"""How many directories above a file a layout may have to see."""

_KINDS = ("log", "index", "timeindex", "txnindex", "snapshot", "leader-epochs", "partition-metadata")

_EPILOG = """\b
Examples:
  segreader dump 00000000000000000000.log
  segreader dump 00000000000000000000.log --records --value-encoding hex
  segreader dump orders-0/*.index orders-0/leader-epoch-checkpoint
  segreader dump s3://logs/tiered/orders-…/3/00000000000000000042-….log --rsm-config server.properties
  segreader dump damaged.bin --kind log -o ndjson | jq 'select(.is_valid == false)'
"""


@click.command(epilog=_EPILOG, short_help="Print the contents of a file: batches, records, index entries.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--records", "has_records", is_flag=True, help="Show the records of each batch, control records too.")
@click.option("--kind", type=click.Choice(_KINDS), help="What the files hold. Default: by their names.")
@click.option(
    "--layout",
    metavar="NAME",
    help="Read the files as segments of this layout: aiven shows what is in compressed chunks and index objects.",
)
@click.option(
    "--rsm-config", metavar="FILE", help="The broker's properties file, for the keys of segments that are encrypted."
)
@storage_option
@encoding_options
@output_option("table", "json", "ndjson")
@debug_option
def dump(
    files: tuple[str, ...],
    has_records: bool,
    kind: str | None,
    layout: str | None,
    rsm_config: str | None,
    storage_options: tuple[str, ...],
    key_encoding: str | None,
    value_encoding: str | None,
    form: str,
) -> int:
    """Print the contents of each FILE: every batch of a .log, every entry of an index or snapshot.

    FILE is a local file, or an object in a bucket as segreader ls names it (s3://, abfss://, gs://). If a layout
    stores no plain files, use plain names: <object without .log>.index and so on.

    Knows .log, .index, .timeindex, .txnindex, .snapshot, leader-epoch-checkpoint and partition.metadata, under a
    broker's names and those of the remote tier. Nothing is filtered: aborted, control and damaged batches are shown.

    Rows have a kind: file, then batch (and record) or entry, then end, with the reason why the data ends: its last
    batch (end), a cut batch (cut) or zeros (zero). docs/reference/cli-objects.md lists the fields.

    A batch that fails its CRC has is_valid false and its records are not shown: exit code 1. Damage that hides where
    the next batch begins ends the command: exit code 5.
    """
    places = _Places(layout, rsm_config, storage_options)
    rows = _Rows(places, has_records, kind, key_encoding or "auto", value_encoding or "auto")
    if form == "table":
        print_dump(rows.of(files))
    else:
        write_json_rows(rows.of(files), form)
    return ExitCode.FINDINGS if rows.has_findings else ExitCode.OK


class _Places:
    """Where files lie: in directories as they are, in buckets, and as a layout sees them."""

    def __init__(self, layout: str | None, rsm_config: str | None, storage_options: tuple[str, ...]) -> None:
        self._layout, self._rsm_config, self._options = layout, rsm_config, storage_options

    def find(self, file: str) -> tuple[ObjectStore, str]:
        """The store of a file, and its name there."""
        from segreader.errors import ObjectNotFoundError, OptionError
        from segreader.storage.local import LocalStore
        from segreader.stored.source import Catalog, LocationSource

        if file.lower().startswith(("http://", "https://")):
            raise OptionError("dump reads no signed URLs", found=file, hint="Use segreader cat or inspect")
        is_local, has_layout = "://" not in file, (self._layout, self._rsm_config) != (None, None)
        path = Path(file)
        if is_local and path.is_dir():
            raise OptionError("a file is needed", source=file, hint="For a directory use segreader inspect")
        if is_local and not has_layout:
            if not path.exists():
                raise ObjectNotFoundError("no such file", source=file, hint="Check the path")
            return LocalStore(path.parent), path.name
        if is_local:  # a layout knows a segment by the directories above it, too
            above = path.absolute().parents[:_DIRECTORIES][-1]
            place, name = str(above), path.absolute().relative_to(above).as_posix()
        else:
            place, _, name = file.rpartition("/")
        catalog = Catalog(layout=self._layout, rsm_config=self._rsm_config)
        source = LocationSource(place, parse_options(self._options), catalog=catalog)
        return source.store, source.prefix + name


class _Rows:
    """All rows of all files, and whether one of them is about damage."""

    def __init__(
        self, places: _Places, has_records: bool, kind: str | None, key_encoding: str, value_encoding: str
    ) -> None:
        self._places, self._records, self._kind = places, has_records, kind
        self._encodings = (key_encoding, value_encoding)
        self.has_findings = False

    def of(self, files: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        for file in files:
            for row in self._of_file(file):
                if row["kind"] == "damage":
                    self._found(row["error"])
                elif row.get("is_valid") is False:
                    self._found(f"{file}: the {row['kind']} at {_place(row)} fails its CRC; its content is not shown")
                yield row

    def _found(self, what: str) -> None:
        self.has_findings = True
        say(f"damage: {what}")

    def _of_file(self, file: str) -> Iterator[dict[str, Any]]:
        store, name = self._places.find(file)
        with closing(store):
            yield from self._of_object(file, store, name)

    def _of_object(self, file: str, store: ObjectStore, name: str) -> Iterator[dict[str, Any]]:
        from segreader.cli.file_rows import FileKind, SegmentRows, base_offset_of, file_kind, side_file_rows
        from segreader.errors import FormatError
        from segreader.ranges import ByteRange

        shown, plain_name = store.url(name) if "://" in file else file, name.rpartition("/")[2]
        kind = FileKind(self._kind) if self._kind else file_kind(plain_name)
        size = store.size(name)
        base_offset = base_offset_of(plain_name)
        yield {"kind": "file", "file": shown, "type": kind.value, "base_offset": base_offset, "size": size}
        try:
            if kind is FileKind.LOG:
                key_encoding, value_encoding = self._encodings
                yield from SegmentRows(
                    store, has_records=self._records, key_encoding=key_encoding, value_encoding=value_encoding
                ).of(name, size)
                return
            data = store.read_ranges(name, [ByteRange(0, size)])[0] if size else b""
            yield from side_file_rows(kind, data, base_offset or 0)
        except FormatError as error:
            hint = (
                f"It was read as {kind}, as {'--kind' if self._kind else 'its name'} says: if it is something else, "
                f"give --kind {', '.join(_KINDS[:-1])} or {_KINDS[-1]}; if it is damaged, read another copy"
            )
            raise error.located(source=shown, hint=hint) from error


def _place(row: dict[str, Any]) -> str:
    return f"byte {row['position']}" if "position" in row else f"offset {row['offset']}"


_TAILS = {"end": "ends with its last batch", "cut": "ends inside a batch", "zero": "ends in zeros"}
_BATCH = (
    number("position"),
    number("first"),
    number("last"),
    number("records"),
    number("bytes"),
    fixed("codec"),
    number("epoch"),
    fixed("latest timestamp"),
    TableColumn("flags"),
    fixed("producer"),
    fixed("timestamp type"),
)
_RECORD = (number("offset"), fixed("timestamp"), TableColumn("key"), TableColumn("value"), TableColumn("header keys"))
_TIMES = frozenset({"timestamp", "last_timestamp"})
_TEXTS = frozenset({"topic_id"})


def print_dump(rows: Iterable[Row]) -> None:
    """Print rows as they come, each kind in a table of its own whose head comes once a screenful."""
    printer = _Printer(Screen.of())
    try:
        for row in rows:
            printer.add(row)
    finally:
        printer.flush()


class _Printer:
    """The tables of one dump. Those of batches and of their records take turns; records stand further to the right."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._tables: dict[str, StreamedTable] = {}
        self._held: list[Row] = []

    def add(self, row: Row) -> None:
        if self._held and (row["kind"] != self._held[0]["kind"] or len(self._held) >= _HELD_ROWS):
            self.flush()
        if row["kind"] in _CELLS:
            self._held.append(row)
            return
        text, style = _LINES[row["kind"]](row)
        self._screen.line(text, style)
        if row["kind"] == "end":
            self._screen.line("")
            self._tables.clear()  # another file may hold entries of another kind

    def flush(self) -> None:
        """Print what is held."""
        if not self._held:
            return
        kind = self._held[0]["kind"]
        if kind not in self._tables:
            self._tables[kind] = StreamedTable(
                {"batch": _BATCH, "record": _RECORD}.get(kind) or _columns_of(self._held[0]),
                self._screen,
                indent=4 if kind == "record" else 0,
            )
        table = self._tables[kind]
        table.add([_CELLS[kind](row, table.longest) for row in self._held])
        for other in self._tables.values():
            if other is not table:
                other.passed(len(self._held))
        self._held = []


_HELD_ROWS = 200


def _columns_of(row: Row) -> list[TableColumn]:
    """Of the entries of an index or snapshot."""
    names = [name for name in row if name != "kind"]
    return [(fixed if name in _TIMES or name in _TEXTS else number)(name.replace("_", " ")) for name in names]


def _file(row: Row) -> Marked:
    return Marked(f"{row['file']}  {row['type']}, {shown_count(row['size'], 'byte')}", "bold")


def _end(row: Row) -> Marked:
    said = [
        shown_count(row["batches"], "batch", "batches")
        if "batches" in row
        else shown_count(row["entries"], "entry", "entries")
    ]
    if "tail" in row:
        said.append(f"{_TAILS[row['tail']]} at byte {row['position']}")
    if row["trailing_bytes"]:
        said.append(shown_count(row["trailing_bytes"], "byte follows", "bytes follow"))
    if row.get("missing_bytes"):
        said.append(shown_count(row["missing_bytes"], "byte is missing", "bytes are missing"))
    if row.get("zero_tail"):
        said.append(shown_count(row["zero_tail"], "zero") + " at the end")
    return Marked("; ".join(said), "dim")


_LINES: dict[str, Callable[[Row], Marked]] = {
    "file": _file,
    "end": _end,
    "damage": lambda row: Marked(f"damage: {printable(row['error'], None)}", "red"),
}


def _batch(row: Row, longest: int | None) -> list[Cell]:
    is_new = "base_offset" in row
    style = "" if row["is_valid"] else "red"
    flags = [
        name
        for name, is_set in (
            (f"magic {row['magic']}", not is_new),
            ("transactional", row.get("is_transactional")),
            ("control", row.get("is_control")),
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
    cells = [
        str(row["position"]),
        str(row["base_offset"]) if is_new else "",
        str(row["last_offset"] if is_new else row["offset"]),
        f"{row['count']:,}" if is_new else "",
        f"{row['size']:,}",
        row["compress_codec"],
        str(row["partition_leader_epoch"]) if is_new else "",
        shown_time(row["max_timestamp"]),
        ", ".join(flags),
        producer,
        row["timestamp_type"],
    ]
    return [Marked(cell, style) for cell in cells]


def _record(row: Row, longest: int | None) -> list[Cell]:
    style = "red" if row.get("is_valid") is False else ""
    if "key" in row:
        key, value = _payload(row, "key", longest), _payload(row, "value", longest)
    else:
        said = {name: value for name, value in row.items() if name not in _IN_EVERY_RECORD}
        key = Marked("control", "dim")
        value = ", ".join(f"{name} {printable(str(value), longest)}" for name, value in said.items())
    names = ", ".join(printable(name, longest) for name in row.get("header_keys", ()))
    return [Marked(str(row["offset"]), style), Marked(shown_time(row["timestamp"]), style), key, value, names]


_IN_EVERY_RECORD = frozenset(
    {"kind", "offset", "timestamp_type", "timestamp", "key_size", "value_size", "sequence", "header_keys"}
)


def _payload(row: Row, name: str, longest: int | None) -> Cell:
    """A key or value: what became base64 because it is no text is shown as the other commands show it."""
    text = row[name]
    if text and row.get(f"{name}_encoding") == "base64":
        return bytes_cell(a2b_base64(text), longest=longest)
    return text_cell(text, longest)


def _entry(row: Row, longest: int | None) -> list[Cell]:
    return [
        "" if value is None else shown_time(value) if name in _TIMES else str(value)
        for name, value in row.items()
        if name != "kind"
    ]


_CELLS: dict[str, Callable[[Row, int | None], Sequence[Cell]]] = {"batch": _batch, "record": _record, "entry": _entry}
