"""``segreader inspect``: what a segment, a partition or a whole directory holds, in numbers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.exit_codes import ExitCode
from segreader.cli.options import TIMES_HELP, Selection, ahead_options, selection_options
from segreader.cli.output import (
    debug_option,
    output_option,
    print_rows,
    printable,
    progress,
    shown_partitions,
    shown_size,
    shown_time,
)
from segreader.cli.table import ByteUnit, Marked, Screen, TableColumn, fixed, number, print_facts, print_table
from segreader.errors import shown_count

if TYPE_CHECKING:
    from segreader.cli.summary import LogSummary
    from segreader.plan.request import ReadOptions, TimeRange
    from segreader.segment import Segment
    from segreader.storage.base import ObjectStore
    from segreader.stored.source import LocationSource, UrlSource


Row = dict[str, Any]

_EPILOG = """\b
Examples:
  segreader inspect /var/lib/kafka/orders-0
  segreader inspect /mnt/tiered orders/3 --since -1d
  segreader inspect 00000000000000000000.log -o json
"""


@click.command(epilog=_EPILOG, short_help="Summarise a segment, a partition or a directory.")
@selection_options
@click.option(
    "--since",
    metavar="T",
    help=f"Only segments with records from the first one on that is not older than T: {TIMES_HELP}.",
)
@click.option("--until", metavar="T", help="Only segments with records before the first one that is not older than T.")
@ahead_options("logs")
@output_option("table", "json", "ndjson")
@debug_option
def inspect(
    select: Callable[[], Selection],
    since: str | None,
    until: str | None,
    threads: int | None,
    read_ahead_bytes: int | None,
    form: str,
) -> int:
    """Summarise what LOCATION holds: batches, records, offsets, times, codecs, producers, transactions.

    LOCATION is one .log file, or whatever segreader cat takes: a directory, a prefix in a bucket (s3://, abfss://,
    gs://), @FILE. Each partition is summarised apart. Every batch is read, its CRC checked and its records
    decompressed, but not decoded one by one; index files are checked too. Damage is listed, and makes the exit code 1.

    With --since or --until only segments of the live log with such records are read, each as a whole.
    """
    from segreader.plan.request import ReadOptions, parse_time_range

    selection, times = select(), parse_time_range(since, until)
    path = Path(selection.location) if selection.location is not None else None
    if path is not None and path.is_file():
        if selection.is_narrowed or times is not None:
            raise click.UsageError("--topic and the like choose in a directory, and this is a file. Leave them out")
        store, logs = _of_file(path.absolute())
    else:
        source = selection.open()
        found = _of_location(source, selection) if times is None else _of_times(source, selection, times)
        store, logs = source.store, [(place, segments) for place, segments in found if segments]
    summaries = _Summaries(store, logs, ReadOptions(threads=threads, read_ahead_bytes=read_ahead_bytes))
    with closing(summaries.rows()) as rows:
        print_rows(rows, form, _print_summaries)
    return ExitCode.OK if summaries.is_sound else ExitCode.FINDINGS


class _Summaries:
    """One summary a partition, and whether all of them are free of damage."""

    def __init__(self, store: ObjectStore, logs: Sequence[tuple[str, Sequence[Segment]]], options: ReadOptions) -> None:
        self._store, self._logs, self._options = store, logs, options
        self.is_sound = True

    def rows(self) -> Generator[dict[str, Any], None, None]:
        from segreader.cli.summary import read_summaries
        from segreader.read.ahead import ReadAhead

        segments = [segment for _, some in self._logs for segment in some]
        whole = sum(segment.log_size for segment in segments)
        done = 0
        seen = read_summaries(self._store, segments, ReadAhead.of(self._store, self._options))
        with progress(lambda: (done, whole, None)) as tick, closing(seen):

            def tell(size: int) -> None:
                nonlocal done
                done += size
                tick()

            for source, some in self._logs:
                yield self._row(source, some, seen, tell)

    def _row(
        self,
        source: str,
        segments: Sequence[Segment],
        seen: Iterator[int | LogSummary],
        tell: Callable[[int], None],
    ) -> dict[str, Any]:
        """The summary of a partition, from those of its segments, which come next."""
        from segreader.cli.summary import LogSummary

        summary = LogSummary(self._store)
        for _ in segments:
            while isinstance(one := next(seen), int):
                tell(one)
            summary.join(one)
        self.is_sound &= summary.is_sound
        partition = segments[0].partition
        return {
            "source": source,
            "topic": partition.topic or None,
            "partition": partition.partition if partition.topic else None,
            "topic_id": partition.topic_id,
        } | summary.to_json()


_Logs = Iterator[tuple[str, Sequence["Segment"]]]
"""Partitions: the place of each, and its segments by base offset."""


def _of_location(source: LocationSource | UrlSource, selection: Selection) -> _Logs:
    """All stored segments, even those that leader epochs drop; with the metadata topic only finished ones."""
    from segreader.catalog.metadata_log import join
    from segreader.inspect import places_of, read_log
    from segreader.stored.source import UrlSource

    wanted = selection.wanted
    if isinstance(source, UrlSource):
        for known in source.logs(wanted):
            yield source.shown, known.log.segments
        return
    metadata = source.read_metadata(wanted)
    for place in places_of(source, wanted, metadata):
        log = read_log(source, place, metadata)
        if metadata is not None and source.catalog.segments_from != "metadata":
            log = join(log, metadata)
        yield source.store.url(place.prefixes[0].removesuffix("/")), log.segments


def _of_times(source: LocationSource | UrlSource, selection: Selection, times: TimeRange) -> _Logs:
    """The segments of the live log that hold records of these times."""
    from segreader.plan.cut import overlapping
    from segreader.ranges import OffsetRange
    from segreader.stored.log import StoredLog

    for one in source.logs(selection.wanted):
        log = StoredLog(source.store, one)
        wanted = log.offsets_between(times, OffsetRange())
        segments = [part.segment for part, _ in overlapping(log.resolved.parts, wanted)]
        if segments:
            yield source.store.url(segments[0].files.log.rpartition("/")[0]), segments


def _of_file(path: Path) -> tuple[ObjectStore, list[tuple[str, Sequence[Segment]]]]:
    """One segment: with the files beside it where its name and place are Kafka's, alone otherwise."""
    from segreader.catalog.layouts import local_tiered, log_directory
    from segreader.catalog.layouts.base import REMOTE_FILE
    from segreader.cli.file_rows import FileKind, base_offset_of, file_kind
    from segreader.errors import OptionError
    from segreader.segment import Segment, SegmentFiles, TopicIdPartition
    from segreader.storage.local import LocalStore

    if file_kind(path.name) is not FileKind.LOG:
        raise OptionError("not a .log", source=str(path), hint="Look at the file with segreader dump")
    store = LocalStore(path.parent.parent)
    name = f"{path.parent.name}/{path.name}"
    listed = list(store.list(f"{path.parent.name}/"))
    found = list(local_tiered.sort_files(listed).segments)
    if partition := log_directory.LogDirectoryLayout().partition_of(f"{path.parent.name}/"):
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


_SHOWN = 10
_BAR_WIDTH = 30


def _print_summaries(rows: Sequence[Row]) -> None:
    """Print the summaries of some partitions."""
    screen = Screen.of()
    if len(rows) == 1:
        _print_one(screen, rows[0])
    else:
        _print_many(screen, rows)
    for row in rows:
        for damage in row["damage"]:
            screen.line(f"damage: {printable(damage['error'], None)}", "red")
        for note in row["notes"]:
            screen.line(f"note: {printable(note, None)}", "yellow")


def _print_many(screen: Screen, rows: Sequence[Row]) -> None:
    unit = ByteUnit.of(row["size"] for row in rows)
    names = shown_partitions((_name(row), row["topic_id"]) for row in rows)
    print_table(
        (
            TableColumn("partition"),
            number("segments"),
            number(f"size ({unit.name})"),
            number("batches"),
            number("records"),
            number("first"),
            number("last"),
            number("damage"),
            fixed("latest timestamp"),
            number("ratio"),
            TableColumn("codecs"),
            TableColumn("transactions"),
        ),
        [
            [
                Marked(text, "red" if row["damage"] else "")
                for text in (
                    name,
                    f"{row['segments']:,}",
                    unit.text(row["size"]),
                    f"{row['batches']:,}",
                    f"{row['records']:,}",
                    "" if row["first_offset"] is None else str(row["first_offset"]),
                    "" if row["last_offset"] is None else str(row["last_offset"]),
                    f"{len(row['damage']):,}" if row["damage"] else "",
                    shown_time(row["max_timestamp"]),
                    _ratio(row["codecs"]),
                    ", ".join(codec["codec"] for codec in row["codecs"]),
                    _transactions(row),
                )
            ]
            for row, name in zip(rows, names, strict=True)
        ],
        total=(
            f"{len(rows):,} partitions",
            _sum(rows, "segments"),
            unit.text(sum(row["size"] for row in rows)),
            _sum(rows, "batches"),
            _sum(rows, "records"),
        ),
        screen=screen,
    )


def _print_one(screen: Screen, row: Row) -> None:
    epochs = ", ".join(f"{epoch['epoch']} from {epoch['first_offset']}" for epoch in row["leader_epochs"][:_SHOWN])
    markers = f", markers up to {shown_time(last)}" if (last := row["max_marker_timestamp"]) is not None else ""
    controls = shown_count(row["control_batches"], "control batch", "control batches")
    print_facts(
        (
            ("source", row["source"]),
            ("partition", _name(row) + (f" (topic id {row['topic_id']})" if row["topic_id"] else "")),
            ("segments", f"{row['segments']:,}, {shown_size(row['size'])}"),
            ("batches", f"{row['batches']:,}, of these {controls}"),
            ("records", f"{row['records']:,}"),
            ("offsets", _offsets(row)),
            ("timestamps", f"{shown_time(row['first_timestamp'])} .. {shown_time(row['max_timestamp'])}{markers}"),
            ("timestamp types", ", ".join(row["timestamp_types"])),
            ("magic", ", ".join(row["magics"])),
            ("leader epochs", epochs + _more(row["leader_epochs"])),
            ("transactions", _transactions(row) or "none"),
        ),
        screen,
    )
    _print_codecs(screen, row["codecs"])
    _print_producers(screen, row["producers"])


def _print_codecs(screen: Screen, codecs: Sequence[Row]) -> None:
    if not codecs:
        return
    screen.line("")
    largest = max(codec["stored_bytes"] for codec in codecs) or 1
    unit = ByteUnit.of(codec["stored_bytes"] for codec in codecs)
    print_table(
        (
            fixed("codec"),
            number("batches"),
            number("records"),
            number("ratio"),
            number(f"stored ({unit.name})"),
            TableColumn(""),
        ),
        [
            (
                codec["codec"],
                f"{codec['batches']:,}",
                f"{codec['records']:,}",
                "" if codec["ratio"] is None else f"{codec['ratio']:.2f}",
                unit.text(codec["stored_bytes"]),
                Marked("█" * round(_BAR_WIDTH * codec["stored_bytes"] / largest), "cyan"),
            )
            for codec in codecs
        ],
        screen=screen,
    )


def _print_producers(screen: Screen, producers: Sequence[Row]) -> None:
    if not producers:
        return
    screen.line("")
    most = sorted(producers, key=lambda producer: -producer["records"])
    print_table(
        (number("producer"), number("epoch"), number("batches"), number("records"), TableColumn("kind")),
        [
            (
                str(producer["producer_id"]),
                str(producer["producer_epoch"]),
                f"{producer['batches']:,}",
                f"{producer['records']:,}",
                "transactional" if producer["is_transactional"] else "idempotent",
            )
            for producer in most[:_SHOWN]
        ],
        screen=screen,
    )
    if more := _more(producers):
        screen.line(more.strip(), "dim")


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
    return f"{sum(row[name] for row in rows):,}"


def _more(rows: Sequence[Row]) -> str:
    return f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
