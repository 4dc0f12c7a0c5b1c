"""``segreader dump``: the contents of a partition's files, as stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.exit_codes import ExitCode
from segreader.cli.options import parse_options, storage_option
from segreader.cli.output import (
    console,
    debug_option,
    encoding_options,
    new_table,
    output_option,
    printable,
    say,
    shown_time,
    styled,
    write_json_rows,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

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
        if kind is FileKind.LOG:
            key_encoding, value_encoding = self._encodings
            yield from SegmentRows(
                store, has_records=self._records, key_encoding=key_encoding, value_encoding=value_encoding
            ).of(name, size)
            return
        data = store.read_ranges(name, [ByteRange(0, size)])[0] if size else b""
        try:
            yield from side_file_rows(kind, data, base_offset or 0)
        except FormatError as error:
            raise error.located(source=shown) from error


def _place(row: dict[str, Any]) -> str:
    return f"byte {row['position']}" if "position" in row else f"offset {row['offset']}"


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
        self._out, self._table, self._kind = out, new_table(), ""

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
            self._kind, self._table = kind, new_table(*columns)
        self._table.add_row(*_CELLS[kind](row), style="red" if row.get("is_valid") is False else None)

    def flush(self) -> None:
        """Print what is held."""
        if self._kind:
            self._out.print(self._table)
        self._kind = ""


def _file(row: Row) -> Text:
    return styled(f"{row['file']}  {row['type']}, {row['size']} bytes", "bold")


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
    return styled("; ".join(said) + "\n", "dim")


_LINES: dict[str, Callable[[Row], Text]] = {
    "file": _file,
    "end": _end,
    "damage": lambda row: styled(f"damage: {printable(row['error'], 1000)}", "red"),
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
        key, value = styled("control", "dim"), styled(", ".join(f"{n} {printable(str(v))}" for n, v in said.items()))
    names = ", ".join(printable(name, 20) for name in row.get("header_keys", ()))
    return [styled(str(row["offset"])), styled(shown_time(row["timestamp"])), key, value, styled(names)]


_IN_EVERY_RECORD = frozenset(
    {"kind", "offset", "timestamp_type", "timestamp", "key_size", "value_size", "sequence", "header_keys"}
)


def _payload(text: str | None) -> Text:
    return styled("null", "dim") if text is None else styled(printable(text))


def _entry(row: Row) -> list[str]:
    return [
        "" if value is None else shown_time(value) if name in _TIMES else str(value)
        for name, value in row.items()
        if name != "kind"
    ]


_CELLS: dict[str, Callable[[Row], Sequence[str | Text]]] = {"batch": _batch, "record": _record, "entry": _entry}
