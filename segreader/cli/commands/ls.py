"""``segreader ls``: which topics, partitions and segments lie at a location."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.exit_codes import ExitCode
from segreader.cli.options import Selection, selection_options
from segreader.cli.output import (
    debug_option,
    output_option,
    print_rows,
    printable,
    say,
    shown_number,
    shown_time,
)
from segreader.cli.table import ByteUnit, Cell, Marked, Screen, TableColumn, fixed, number, print_table
from segreader.errors import shown_count

if TYPE_CHECKING:
    from segreader.inspect import PartitionOverview, SegmentOverview, SegmentsOverview, TopicOverview
    from segreader.segment import SegmentState, TopicIdPartition
    from segreader.stored.source import LocationSource, UrlSource


Row = dict[str, Any]

_TIMED_PARTITIONS = 1_000
_ALL_PARTITIONS = 1 << 62
_DAY_MS = 86_400_000

_EPILOG = """\b
Examples:
  segreader ls /mnt/tiered
  segreader ls /mnt/tiered orders
  segreader ls s3://logs/tiered --sort growth
  segreader ls s3://logs/tiered orders/3 --all
  segreader ls /mnt/tiered orders --metadata /var/lib/kafka -o json
  segreader ls --rsm-config server.properties --topic orders
"""


@click.command(epilog=_EPILOG, short_help="List topics, partitions of a topic, or segments of a partition.")
@selection_options
@click.option(
    "--all",
    "has_all",
    is_flag=True,
    help="Also show incomplete sets of objects, and objects that belong to no segment.",
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(["name", "size", "growth", "segments", "time"]),
    default="name",
    show_default=True,
    help="What comes first: the largest, what grows fastest, has most segments, or has the newest records.",
)
@click.option(
    "--times/--no-times",
    "has_times",
    default=None,
    help="Read the time range of each topic: two small objects a partition. Default: with up to 1,000 partitions, or "
    "where --sort needs it.",
)
@output_option("table", "json", "ndjson")
@debug_option
def ls(select: Callable[[], Selection], has_all: bool, order: str, has_times: bool | None, form: str) -> int:
    """List the topics at LOCATION, the partitions of TOPIC, or the segments of TOPIC/PARTITION.

    LOCATION is a directory, a prefix in a bucket, @FILE or a place by its name, as for segreader cat; leave it out if
    --rsm-config names the bucket, or SEGREADER_AT a place.

    Fast: only listings and small files are read, and of a log at most its end. Times come from the catalogue and time
    indexes, so they include transaction markers; segreader inspect shows those of records and of markers separately.
    Growth is the bytes that are there, divided by the time from the first to the last of them.

    If a partition cannot be read, the others are still listed: exit code 1.
    """
    selection = select()
    if selection.partitions is not None and order in ("growth", "segments"):
        raise click.UsageError(f"A segment has no {order}: sort segments by name, size or time")
    if has_times is None:
        timed = _ALL_PARTITIONS if order in ("growth", "time") else _TIMED_PARTITIONS
    else:
        timed = _ALL_PARTITIONS if has_times else 0
    source = selection.open()
    try:
        listing = _Listing(source, selection, has_all, order, timed)
        rows, tables = listing.rows()
        print_rows(rows, form, _TABLES[tables])
        listing.tell()
    finally:
        source.store.close()
    return ExitCode.FINDINGS if listing.has_errors else ExitCode.OK


class _Listing:
    """The rows of one call, and the notes beside them."""

    def __init__(
        self, source: LocationSource | UrlSource, selection: Selection, has_all: bool, order: str, timed: int
    ) -> None:
        self._source, self._selection, self._has_all = source, selection, has_all
        self._order, self._timed = order, timed
        self._notes: list[str] = []
        self._hidden = 0
        self.has_errors = False

    def rows(self) -> tuple[Iterator[Row], str]:
        """The rows, and what they are of."""
        if self._selection.partitions is not None:
            return self._sorted(self._segments()), "segments"
        if self._selection.topic is not None or self._selection.topic_id is not None:
            return self._sorted(self._partitions()), "partitions"
        return self._sorted(self._topics()), "topics"

    def _sorted(self, rows: Iterator[Row]) -> Iterator[Row]:
        """The rows in the order that was asked for; those that do not tell it are the last ones."""
        if self._order == "name":
            return rows
        name = _SORTED_BY[self._order]
        return iter(sorted(rows, key=lambda row: -1 if row[name] is None else row[name], reverse=True))

    def tell(self) -> None:
        """Tell what is worth knowing and in no row."""
        for note in dict.fromkeys(self._notes):
            say(f"note: {note}")
        if self._hidden:
            hidden = shown_count(
                self._hidden, "incomplete set or foreign object is", "incomplete sets and foreign objects are"
            )
            say(f"note: {hidden} not shown; --all shows everything")

    def _topics(self) -> Iterator[Row]:
        from segreader.inspect import read_topics

        partitions = 0
        for row in read_topics(self._source, timed_partitions=self._timed):
            partitions += row.partitions
            for error in row.errors:
                self._found(error)
            if row.layouts or self._has_all:
                yield _topic_row(row)
        if _TIMED_PARTITIONS == self._timed < partitions:
            self._notes.append(f"times of {partitions:,} partitions are not read; --times reads them")

    def _partitions(self) -> Iterator[Row]:
        from segreader.inspect import read_partitions

        for row in read_partitions(self._source, self._selection.wanted):
            self._notes += row.notes
            if row.error is not None:
                self._found(row.error)
            yield _partition_row(row)

    def _segments(self) -> Iterator[Row]:
        from segreader.inspect import read_segments

        for one in read_segments(self._source, self._selection.wanted):
            self._notes += one.notes
            yield from self._shown(one)

    def _shown(self, one: SegmentsOverview) -> Iterator[Row]:
        for segment in one.segments:
            if "log" in segment.missing and not self._has_all:
                self._hidden += 1
            else:
                yield _segment_row(segment)
        if not self._has_all:
            self._hidden += len(one.foreign)
            return
        for url in one.foreign:
            yield _foreign_row(one.partition, url)

    def _found(self, error: str) -> None:
        self.has_errors = True
        say(f"error: {error}")


def _topic_row(row: TopicOverview) -> Row:
    return {
        "topic": row.topic,
        "topic_id": row.topic_id,
        "partitions": row.partitions,
        "segments": row.segments,
        "size": row.size,
        "bytes_per_day": _growth(row.size, row.first_indexed_ms, row.max_timestamp_ms),
        "first_indexed_timestamp": row.first_indexed_ms,
        "max_timestamp": row.max_timestamp_ms,
        "layouts": list(row.layouts),
        "is_experimental": row.is_experimental,
        "states": _states(row.states),
    }


def _partition_row(row: PartitionOverview) -> Row:
    return _named(row.partition) | {
        "layout": row.layout,
        "is_experimental": row.is_experimental,
        "segments": None if row.error is not None else row.segments,
        "size": row.size,
        "bytes_per_day": _growth(row.size, row.first_indexed_ms, row.max_timestamp_ms),
        "start_offset": row.start_offset,
        "stop_offset": row.stop_offset,
        "first_indexed_timestamp": row.first_indexed_ms,
        "max_timestamp": row.max_timestamp_ms,
        "incomplete": row.incomplete,
        "foreign": row.foreign,
        "states": _states(row.states),
        "error": row.error,
    }


def _segment_row(row: SegmentOverview) -> Row:
    from segreader.stored.segment_ends import OPEN_END

    return (
        {"kind": "incomplete" if "log" in row.missing else "segment"}
        | _named(row.partition)
        | {
            "base_offset": row.base_offset,
            "last_offset": row.last_offset,
            "size": row.size,
            "max_timestamp": row.max_timestamp_ms,
            "leader_epochs": [{"epoch": entry.epoch, "first_offset": entry.start_offset} for entry in row.epochs or ()],
            "segment_id": row.segment_id,
            "is_active": row.is_active,
            "missing": list(row.missing),
            "state": row.state.name if row.state is not None else None,
            "dropped": [
                {
                    "start_offset": one.start,
                    "stop_offset": one.stop if one.stop <= OPEN_END else None,
                    "reason": one.reason.value,
                }
                for one in row.dropped
            ],
            "object": row.source,
        }
    )


def _foreign_row(partition: TopicIdPartition, url: str) -> Row:
    from segreader.inspect import SegmentOverview

    return _segment_row(SegmentOverview(partition, url, None)) | {"kind": "foreign"}


_SORTED_BY = {"size": "size", "growth": "bytes_per_day", "segments": "segments", "time": "max_timestamp"}


def _growth(size: int | None, first_ms: int | None, last_ms: int | None) -> int | None:
    """Bytes a day; ``None`` where there is no time between the first and the last record."""
    if size is None or first_ms is None or last_ms is None or last_ms <= first_ms:
        return None
    return size * _DAY_MS // (last_ms - first_ms)


def _named(partition: TopicIdPartition) -> Row:
    return {"topic": partition.topic, "partition": partition.partition, "topic_id": partition.topic_id}


def _states(states: Mapping[SegmentState, int] | None) -> dict[str, int] | None:
    return None if states is None else {state.name: states[state] for state in sorted(states)}


def _print_topics(rows: Sequence[Row]) -> None:
    """A line for each topic."""
    sizes, growths = _units(rows)
    print_table(
        (
            TableColumn("topic"),
            number("partitions"),
            number("segments"),
            number(f"size ({sizes.name})"),
            number(f"growth ({growths.name}/day)"),
            fixed("from"),
            fixed("to"),
            TableColumn("states"),
            TableColumn("layout"),
            TableColumn("topic id"),
        ),
        [
            (
                row["topic"],
                f"{row['partitions']:,}",
                _count(row["segments"]),
                sizes.text(row["size"]),
                growths.text(row["bytes_per_day"]),
                *_times(row),
                _shown_states(row["states"]),
                _layout(", ".join(row["layouts"]), row["is_experimental"]),
                row["topic_id"] or "",
            )
            for row in rows
        ],
        total=(
            f"{len(rows):,} topics",
            _count(_sum(rows, "partitions")),
            _count(_sum(rows, "segments")),
            sizes.text(_sum(rows, "size")),
            growths.text(_sum(rows, "bytes_per_day")),
            *_times(_range(rows)),
        )
        if len(rows) > 1
        else (),
    )


def _print_partitions(rows: Sequence[Row]) -> None:
    """A line for each partition."""
    sizes, growths = _units(rows)
    print_table(
        (
            TableColumn("partition"),
            number("segments"),
            number("incomplete"),
            number(f"size ({sizes.name})"),
            number(f"growth ({growths.name}/day)"),
            number("start"),
            number("stop"),
            fixed("from"),
            fixed("to"),
            TableColumn("states"),
            TableColumn("layout"),
            TableColumn("topic id"),
        ),
        [
            (
                f"{row['topic']}-{row['partition']}",
                _count(row["segments"]),
                Marked(_count(row["incomplete"] or None), "yellow"),
                sizes.text(row["size"]),
                growths.text(row["bytes_per_day"]),
                shown_number(row["start_offset"]),
                shown_number(row["stop_offset"]),
                *_times(row),
                Marked("cannot be read", "red") if row["error"] else _shown_states(row["states"]),
                _layout(row["layout"], row["is_experimental"]),
                row["topic_id"] or "",
            )
            for row in rows
        ],
        total=(
            f"{len(rows):,} partitions",
            _count(_sum(rows, "segments")),
            _count(_sum(rows, "incomplete") or None),
            sizes.text(_sum(rows, "size")),
            growths.text(_sum(rows, "bytes_per_day")),
            "",
            "",
            *_times(_range(rows)),
        )
        if len(rows) > 1
        else (),
    )


def _print_segments(rows: Sequence[Row]) -> None:
    """A line for each segment; where their objects lie is said once."""
    objects = [row["object"] or "" for row in rows]
    places = {name.rpartition("/")[0] + "/" for name in objects if name}
    place = places.pop() if len(places) == 1 else ""
    screen, sizes = Screen.of(), ByteUnit.of(row["size"] for row in rows)
    if place:
        screen.line(f"in {printable(place, None)}", "dim")
    names = {(row["topic"], row["partition"]) for row in rows}
    print_table(
        (
            TableColumn("partition"),
            number("base"),
            number("last"),
            number(f"size ({sizes.name})"),
            fixed("to"),
            number("epochs"),
            TableColumn("state"),
            TableColumn("object"),
        ),
        [
            (
                f"{row['topic']}-{row['partition']}" if len(names) > 1 else "",
                shown_number(row["base_offset"]),
                shown_number(row["last_offset"]),
                sizes.text(row["size"]),
                shown_time(row["max_timestamp"]),
                _epochs([entry["epoch"] for entry in row["leader_epochs"]]),
                Marked(_shown_state(row), "" if _is_sound(row) else "yellow"),
                printable(name.removeprefix(place), None),
            )
            for row, name in zip(rows, objects, strict=True)
        ],
        total=("", "total", "", sizes.text(_sum(rows, "size")), "", "", f"{len(rows):,} segments")
        if len(rows) > 1
        else (),
        screen=screen,
    )


def _units(rows: Sequence[Row]) -> tuple[ByteUnit, ByteUnit]:
    """Of the sizes, and of what comes a day."""
    return ByteUnit.of(row["size"] for row in rows), ByteUnit.of(row["bytes_per_day"] for row in rows)


def _count(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _sum(rows: Sequence[Row], name: str) -> int | None:
    """Of those that tell; ``None`` where none does."""
    known = [row[name] for row in rows if row[name] is not None]
    return sum(known) if known else None


def _range(rows: Sequence[Row]) -> Row:
    """The times from the first of all to the last of all."""
    first, last = "first_indexed_timestamp", "max_timestamp"
    return {
        first: min((row[first] for row in rows if row[first] is not None), default=None),
        last: max((row[last] for row in rows if row[last] is not None), default=None),
    }


def _times(row: Row) -> tuple[Cell, Cell]:
    return shown_time(row["first_indexed_timestamp"], "seconds"), shown_time(row["max_timestamp"], "seconds")


def _is_sound(row: Row) -> bool:
    return row["kind"] == "segment" and not row["missing"] and not row["dropped"]


def _epochs(epochs: Sequence[int]) -> str:
    return f"{epochs[0]}..{epochs[-1]}" if len(epochs) > 1 else "".join(map(str, epochs))


def _shown_state(row: Row) -> str:
    """What a segment is, and what is not read of it."""
    if row["kind"] == "foreign":
        return "belongs to no segment"
    said = []
    if row["state"] is not None:
        said.append(row["state"].replace("_SEGMENT_", " ").lower())
    elif not row["missing"]:
        said.append("active" if row["is_active"] else "finished")
    if row["missing"]:
        said.append(f"no {', '.join(row['missing'])}")
    said += [f"{one['reason']} from {one['start_offset']}" + _until(one["stop_offset"]) for one in row["dropped"]]
    return "; ".join(said)


def _until(stop: int | None) -> str:
    return "" if stop is None else f" to {stop - 1}"


def _layout(name: str, is_experimental: bool) -> str:
    return f"{name} (experimental)" if is_experimental else name


def _shown_states(states: Mapping[str, int] | None) -> str:
    return ", ".join(f"{number} {name.replace('_SEGMENT_', ' ').lower()}" for name, number in (states or {}).items())


_TABLES: dict[str, Callable[[Sequence[Row]], None]] = {
    "topics": _print_topics,
    "partitions": _print_partitions,
    "segments": _print_segments,
}
