"""``segreader inspect``: what a segment, a partition or a whole directory holds, in numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.exit_codes import ExitCode
from segreader.cli.location import parse_options, storage_option
from segreader.cli.output import debug_option, output_option, write_json_rows
from segreader.cli.progress import progress

if TYPE_CHECKING:
    from segreader.segment import Segment
    from segreader.storage.base import ObjectStore

_EPILOG = """\b
Examples:
  segreader inspect /var/lib/kafka/orders-0
  segreader inspect /mnt/tiered --topic orders
  segreader inspect 00000000000000000000.log -o json
"""


@click.command(epilog=_EPILOG, short_help="Summarise a segment, a partition or a directory.")
@click.argument("location", metavar="FILE|DIR")
@click.option("--topic", help="Only this topic of a directory. Default: every topic there.")
@storage_option
@output_option("table", "json", "ndjson")
@debug_option
def inspect(location: str, topic: str | None, storage_options: tuple[str, ...], form: str) -> int:
    """Summarise what FILE (a .log) or DIR holds: batches, records, offsets, times, codecs, producers, transactions.

    DIR may be a prefix in a bucket, too (s3://, abfss://, gs://). In a directory each partition is summarised apart.
    Every batch is read, its CRC checked and its records decompressed, but not decoded one by one; index files are
    checked too. Damage is listed, and makes the exit code 1.
    """
    if topic is not None and Path(location).is_file():
        raise click.UsageError("--topic chooses in a directory, and this is a file. Leave it out")
    summaries = _Summaries(location, topic, storage_options)
    if form == "table":
        from segreader.cli.summary_tables import print_summaries

        print_summaries(list(summaries.rows()))
    else:
        write_json_rows(summaries.rows(), form)
    return ExitCode.OK if summaries.is_sound else ExitCode.FINDINGS


class _Summaries:
    """One summary a partition, and whether all of them are free of damage."""

    def __init__(self, location: str, topic: str | None, storage_options: tuple[str, ...]) -> None:
        self._location, self._topic, self._options = location, topic, storage_options
        self.is_sound = True

    def rows(self) -> Iterator[dict[str, Any]]:
        path = Path(self._location)
        store, logs = (
            _of_file(path.absolute()) if path.is_file() else _of_location(self._location, self._topic, self._options)
        )
        whole = sum(segment.log_size for _, segments in logs for segment in segments)
        done = 0
        with progress(lambda: (done, whole, None)) as tick:

            def tell(size: int) -> None:
                nonlocal done
                done += size
                tick()

            yield from self._each(store, logs, tell)

    def _each(
        self, store: ObjectStore, logs: list[tuple[str, list[Segment]]], tell: Callable[[int], None]
    ) -> Iterator[dict[str, Any]]:
        from segreader.cli.summary import LogSummary

        for source, segments in logs:
            summary = LogSummary(store, tell)
            for segment in segments:
                summary.add(segment)
            self.is_sound &= summary.is_sound
            partition = segments[0].partition
            yield {
                "source": source,
                "topic": partition.topic or None,
                "partition": partition.partition if partition.topic else None,
                "topic_id": partition.topic_id,
            } | summary.to_json()


def _of_location(
    location: str, topic: str | None, storage_options: tuple[str, ...]
) -> tuple[ObjectStore, list[tuple[str, list[Segment]]]]:
    """The partitions of a directory or bucket, each with its segments by base offset."""
    from segreader.catalog.listing import read_place
    from segreader.catalog.walk import Wanted, find_all, find_places
    from segreader.errors import ObjectNotFoundError
    from segreader.read.source import LocationSource

    source = LocationSource(location, parse_options(storage_options))
    places = find_places(source.store, source.prefix, source.layouts, Wanted(topic))
    if not places:
        there = sorted({one.partition.topic for one in find_all(source.store, source.prefix, source.layouts)})
        raise ObjectNotFoundError(f"topic {topic!r} is not here", source=source.shown, found=", ".join(there))
    logs = []
    for place in places:
        segments = list(read_place(source.store, place, source.layouts).segments)
        if segments:
            logs.append((source.store.url(place.prefixes[0].removesuffix("/")), segments))
    return source.store, logs


def _of_file(path: Path) -> tuple[ObjectStore, list[tuple[str, list[Segment]]]]:
    """One segment: with the files beside it where its name and place are Kafka's, alone otherwise."""
    from segreader.catalog.layouts import local_tiered, log_directory
    from segreader.catalog.layouts.names import REMOTE_FILE
    from segreader.cli.side_file_rows import FileKind, base_offset_of, file_kind
    from segreader.errors import OptionError
    from segreader.segment import Segment, SegmentFiles, TopicIdPartition
    from segreader.storage.local import LocalStore

    if file_kind(path.name) is not FileKind.LOG:
        raise OptionError("not a .log", source=str(path), hint="Look at the file with segreader dump")
    store = LocalStore(path.parent.parent)
    name = f"{path.parent.name}/{path.name}"
    listed = list(store.list(f"{path.parent.name}/"))
    found = list(local_tiered.sort_files(listed).segments)
    if partition := log_directory.LogDirectoryLayout().partition_of(path.parent.name):
        found += log_directory.sort_files(partition, f"{path.parent.name}/", listed).segments
    for segment in found:
        if segment.files.log == name:
            return store, [(str(path), [segment])]
    alone = Segment(
        partition=TopicIdPartition("", 0),
        base_offset=base_offset_of(path.name) or 0,
        log_size=store.size(name),
        files=SegmentFiles(name),
        is_active=REMOTE_FILE.fullmatch(path.name) is None,
    )
    return store, [(str(path), [alone])]
