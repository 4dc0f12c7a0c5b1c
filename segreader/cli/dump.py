"""``segreader dump``: what stands in the files of a partition, as it is stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from segreader.cli.encoding import encoding_options
from segreader.cli.exit_codes import ExitCode
from segreader.cli.output import debug_option, output_option, say, write_json_rows

_KINDS = ("log", "index", "timeindex", "txnindex", "snapshot", "leader-epochs", "partition-metadata")

_EPILOG = """\b
Examples:
  segreader dump 00000000000000000000.log
  segreader dump 00000000000000000000.log --records --value-encoding hex
  segreader dump orders-0/*.index orders-0/leader-epoch-checkpoint
  segreader dump damaged.bin --kind log -o ndjson | jq 'select(.is_valid == false)'
"""


@click.command(epilog=_EPILOG, short_help="Print what stands in a file: batches, records, index entries.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--records", "has_records", is_flag=True, help="Show the records of each batch, control records too.")
@click.option("--kind", type=click.Choice(_KINDS), help="What the files hold. Default: what their names say.")
@encoding_options
@output_option("table", "json", "ndjson")
@debug_option
def dump(
    files: tuple[str, ...],
    has_records: bool,
    kind: str | None,
    key_encoding: str | None,
    value_encoding: str | None,
    form: str,
) -> int:
    """Print what stands in each FILE: every batch of a .log, every entry of what lies beside it.

    Knows .log, .index, .timeindex, .txnindex, .snapshot, leader-epoch-checkpoint and partition.metadata, under a
    broker's names and those of the remote tier. Nothing is filtered: aborted, control and damaged batches are shown.

    Rows have a kind: file, then batch (and record) or entry, then end, which says why the data ends: its last batch
    (end), a cut batch (cut) or zeros (zero). The facts are those of kafka-dump-log; docs/cli.md lists the names.

    A batch that fails its CRC has is_valid false and its records are not shown: exit code 1. Damage that hides where
    the next batch begins ends the command: exit code 5.
    """
    rows = _Rows(has_records, kind, key_encoding or "auto", value_encoding or "auto")
    if form == "table":
        from segreader.cli.dump_tables import print_dump

        print_dump(rows.of(files))
    else:
        write_json_rows(rows.of(files), form)
    return ExitCode.FINDINGS if rows.has_findings else ExitCode.OK


class _Rows:
    """All rows of all files, and whether one of them tells of damage."""

    def __init__(self, has_records: bool, kind: str | None, key_encoding: str, value_encoding: str) -> None:
        self._records, self._kind = has_records, kind
        self._encodings = (key_encoding, value_encoding)
        self.has_findings = False

    def of(self, files: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        for file in files:
            if "://" in file:
                from segreader.errors import OptionError

                raise OptionError(
                    "dump reads local files", found=file, hint="For a bucket use segreader cat or inspect"
                )
            for row in self._of_file(Path(file)):
                if row["kind"] == "damage":
                    self._found(row["error"])
                elif row.get("is_valid") is False:
                    self._found(f"{file}: the {row['kind']} at {_place(row)} fails its CRC; its content is not shown")
                yield row

    def _found(self, what: str) -> None:
        self.has_findings = True
        say(f"damage: {what}")

    def _of_file(self, path: Path) -> Iterator[dict[str, Any]]:
        from segreader.cli.segment_rows import SegmentRows
        from segreader.cli.side_file_rows import FileKind, base_offset_of, file_kind, side_file_rows
        from segreader.errors import FormatError, ObjectNotFoundError, OptionError
        from segreader.ranges import ByteRange
        from segreader.storage.local import LocalStore

        if path.is_dir():
            raise OptionError("a file is needed", source=str(path), hint="For a directory use segreader inspect")
        if not path.exists():
            raise ObjectNotFoundError("no such file", source=str(path), hint="Check the path")
        kind = FileKind(self._kind) if self._kind else file_kind(path.name)
        store = LocalStore(path.parent)
        size = store.size(path.name)
        base_offset = base_offset_of(path.name)
        yield {"kind": "file", "file": str(path), "type": kind.value, "base_offset": base_offset, "size": size}
        if kind is FileKind.LOG:
            key_encoding, value_encoding = self._encodings
            yield from SegmentRows(
                store, has_records=self._records, key_encoding=key_encoding, value_encoding=value_encoding
            ).of(path.name, size)
            return
        data = store.read_ranges(path.name, [ByteRange(0, size)])[0] if size else b""
        try:
            yield from side_file_rows(kind, data, base_offset or 0)
        except FormatError as error:
            raise error.located(source=str(path)) from error


def _place(row: dict[str, Any]) -> str:
    return f"byte {row['position']}" if "position" in row else f"offset {row['offset']}"
