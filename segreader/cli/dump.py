"""``segreader dump``: what stands in the files of a partition, as it is stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.encoding import encoding_options
from segreader.cli.exit_codes import ExitCode
from segreader.cli.location import parse_options, storage_option
from segreader.cli.output import debug_option, output_option, say, write_json_rows

if TYPE_CHECKING:
    from segreader.storage.base import ObjectStore

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


@click.command(epilog=_EPILOG, short_help="Print what stands in a file: batches, records, index entries.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--records", "has_records", is_flag=True, help="Show the records of each batch, control records too.")
@click.option("--kind", type=click.Choice(_KINDS), help="What the files hold. Default: what their names say.")
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
    """Print what stands in each FILE: every batch of a .log, every entry of what lies beside it.

    FILE is a local file, or an object in a bucket as segreader ls names it (s3://, abfss://, gs://). A layout that
    stores no plain files has them under plain names: <object without .log>.index and so on.

    Knows .log, .index, .timeindex, .txnindex, .snapshot, leader-epoch-checkpoint and partition.metadata, under a
    broker's names and those of the remote tier. Nothing is filtered: aborted, control and damaged batches are shown.

    Rows have a kind: file, then batch (and record) or entry, then end, which says why the data ends: its last batch
    (end), a cut batch (cut) or zeros (zero). The facts are those of kafka-dump-log;
    docs/reference/cli-objects.md lists the names.

    A batch that fails its CRC has is_valid false and its records are not shown: exit code 1. Damage that hides where
    the next batch begins ends the command: exit code 5.
    """
    places = _Places(layout, rsm_config, storage_options)
    rows = _Rows(places, has_records, kind, key_encoding or "auto", value_encoding or "auto")
    if form == "table":
        from segreader.cli.dump_tables import print_dump

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
        from segreader.read.source import Catalog, LocationSource
        from segreader.storage.local import LocalStore

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
    """All rows of all files, and whether one of them tells of damage."""

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
        from segreader.cli.segment_rows import SegmentRows
        from segreader.cli.side_file_rows import FileKind, base_offset_of, file_kind, side_file_rows
        from segreader.errors import FormatError
        from segreader.ranges import ByteRange

        store, name = self._places.find(file)
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
