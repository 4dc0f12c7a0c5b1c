"""``segreader ls``: which topics, partitions and segments lie at a location."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.exit_codes import ExitCode
from segreader.cli.options import Selection, selection_options
from segreader.cli.output import (
    console,
    debug_option,
    new_table,
    output_option,
    print_rows,
    printable,
    say,
    shown_number,
    shown_size,
    shown_time,
    styled,
)

if TYPE_CHECKING:
    from rich.text import Text

    from segreader.inspect import PartitionOverview, SegmentOverview, SegmentsOverview, TopicOverview
    from segreader.segment import SegmentState, TopicIdPartition
    from segreader.stored.source import LocationSource, UrlSource


Row = dict[str, Any]

_EPILOG = """\b
Examples:
  segreader ls /mnt/tiered
  segreader ls /mnt/tiered orders
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
@output_option("table", "json", "ndjson")
@debug_option
def ls(select: Callable[[], Selection], has_all: bool, form: str) -> int:
    """List the topics at LOCATION, the partitions of TOPIC, or the segments of TOPIC/PARTITION.

    LOCATION is a directory, a prefix in a bucket or @FILE, as for segreader cat; leave it out if --rsm-config
    names the bucket.

    Fast: only listings and small files are read, and of a log at most its end. Times come from the catalogue and time
    indexes, so they include transaction markers; segreader inspect shows those of records and of markers separately.

    If a partition cannot be read, the others are still listed: exit code 1.
    """
    selection = select()
    source = selection.open()
    try:
        listing = _Listing(source, selection, has_all)
        rows, tables = listing.rows()
        print_rows(rows, form, _TABLES[tables])
        listing.tell()
    finally:
        source.store.close()
    return ExitCode.FINDINGS if listing.has_errors else ExitCode.OK


class _Listing:
    """The rows of one call, and the notes beside them."""

    def __init__(self, source: LocationSource | UrlSource, selection: Selection, has_all: bool) -> None:
        self._source, self._selection, self._has_all = source, selection, has_all
        self._notes: list[str] = []
        self._hidden = 0
        self.has_errors = False

    def rows(self) -> tuple[Iterator[Row], str]:
        """The rows, and what they are of."""
        if self._selection.partitions is not None:
            return self._segments(), "segments"
        if self._selection.topic is not None or self._selection.topic_id is not None:
            return self._partitions(), "partitions"
        return self._topics(), "topics"

    def tell(self) -> None:
        """Tell what is worth knowing and in no row."""
        for note in dict.fromkeys(self._notes):
            say(f"note: {note}")
        if self._hidden:
            say(f"note: {self._hidden} incomplete sets and foreign objects are not shown; --all shows them")

    def _topics(self) -> Iterator[Row]:
        from segreader.inspect import read_topics

        for row in read_topics(self._source):
            for error in row.errors:
                self._found(error)
            if row.layouts or self._has_all:
                yield _topic_row(row)

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


def _named(partition: TopicIdPartition) -> Row:
    return {"topic": partition.topic, "partition": partition.partition, "topic_id": partition.topic_id}


def _states(states: Mapping[SegmentState, int] | None) -> dict[str, int] | None:
    return None if states is None else {state.name: states[state] for state in sorted(states)}


def _print_topics(rows: Sequence[Row]) -> None:
    """A line for each topic."""
    _print_rows(
        ("topic", "topic id", "partitions", "segments", "size", "layout", "states"),
        [
            (
                row["topic"],
                row["topic_id"] or "",
                str(row["partitions"]),
                shown_number(row["segments"]),
                _size(row["size"]),
                _layout(", ".join(row["layouts"]), row["is_experimental"]),
                _shown_states(row["states"]),
            )
            for row in rows
        ],
    )


def _print_partitions(rows: Sequence[Row]) -> None:
    """A line for each partition."""
    _print_rows(
        ("partition", "topic id", "offsets", "times (UTC)", "size", "segments", "incomplete", "layout", "states"),
        [
            (
                f"{row['topic']}-{row['partition']}",
                row["topic_id"] or "",
                _span(shown_number(row["start_offset"]), shown_number(row["stop_offset"])),
                _span(shown_time(row["first_indexed_timestamp"])[:19], shown_time(row["max_timestamp"])[:19]),
                _size(row["size"]),
                shown_number(row["segments"]),
                shown_number(row["incomplete"] or None),
                _layout(row["layout"], row["is_experimental"]),
                styled("cannot be read", "red") if row["error"] else _shown_states(row["states"]),
            )
            for row in rows
        ],
    )


def _print_segments(rows: Sequence[Row]) -> None:
    """A line for each segment; where their objects lie is said once."""
    objects = [row["object"] or "" for row in rows]
    places = {name.rpartition("/")[0] + "/" for name in objects if name}
    place = places.pop() if len(places) == 1 else ""
    if place:
        console().print(styled(f"in {printable(place, 1000)}", "dim"), soft_wrap=True)
    _print_rows(
        ("base", "last", "size", "latest time (UTC)", "epochs", "state", "object"),
        [
            (
                shown_number(row["base_offset"]),
                shown_number(row["last_offset"]),
                _size(row["size"]),
                shown_time(row["max_timestamp"]),
                _epochs([entry["epoch"] for entry in row["leader_epochs"]]),
                styled(_shown_state(row), "" if _is_sound(row) else "yellow"),
                styled(printable(name.removeprefix(place), 1000), overflow="fold"),
            )
            for row, name in zip(rows, objects, strict=True)
        ],
    )


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


def _print_rows(columns: Sequence[str], lines: Sequence[Sequence[str | Text]]) -> None:
    """Print a table without the columns in which no line says anything."""
    used = [index for index in range(len(columns)) if any(line[index] for line in lines)]
    table = new_table(*(columns[index] for index in used))
    for line in lines:
        table.add_row(*(line[index] for index in used))
    console().print(table)


def _until(stop: int | None) -> str:
    return "" if stop is None else f" to {stop - 1}"


def _layout(name: str, is_experimental: bool) -> str:
    return f"{name} (experimental)" if is_experimental else name


def _shown_states(states: Mapping[str, int] | None) -> str:
    return ", ".join(f"{number} {name.replace('_SEGMENT_', ' ').lower()}" for name, number in (states or {}).items())


def _span(first: str, last: str) -> str:
    return f"{first}..{last}" if first or last else ""


def _size(size: int | None) -> str:
    return "" if size is None else shown_size(size)


_TABLES: dict[str, Callable[[Sequence[Row]], None]] = {
    "topics": _print_topics,
    "partitions": _print_partitions,
    "segments": _print_segments,
}
