"""``segreader ls``: which topics, partitions and segments lie at a location."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.catalog_options import Selection, selection_options
from segreader.cli.exit_codes import ExitCode
from segreader.cli.output import debug_option, output_option, say, write_json_rows

if TYPE_CHECKING:
    from segreader.read.partition_overview import PartitionOverview
    from segreader.read.segment_overview import SegmentOverview, SegmentsOverview
    from segreader.read.source import LocationSource, UrlSource
    from segreader.read.topic_overview import TopicOverview
    from segreader.segment import SegmentState, TopicIdPartition

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
    help="Show sets of objects that are no whole segment, and objects that belong to none, too.",
)
@output_option("table", "json", "ndjson")
@debug_option
def ls(select: Callable[[], Selection], has_all: bool, form: str) -> int:
    """List what lies at LOCATION: its topics, the partitions of TOPIC, or the segments of TOPIC/PARTITION.

    LOCATION is a directory, a prefix in a bucket or @FILE, as for segreader cat; it may be left out where --rsm-config
    names a bucket.

    No log is read, but for the end of the last segment of a partition where nothing else says its last offset. Nothing
    of topics and partitions that are not asked for is read. Times come from the catalogue and time indexes, so they
    include transaction markers; segreader inspect shows the times of records and of markers separately.

    A partition that cannot be looked at does not keep others from being listed: exit code 1.
    """
    selection = select()
    source = selection.open()
    try:
        listing = _Listing(source, selection, has_all)
        rows, tables = listing.rows()
        if form == "table":
            from segreader.cli import ls_tables

            getattr(ls_tables, f"print_{tables}")(list(rows))
        else:
            write_json_rows(rows, form)
        listing.tell()
    finally:
        source.store.close()
    return ExitCode.FINDINGS if listing.has_errors else ExitCode.OK


class _Listing:
    """The rows of one call, and what is to be told beside them."""

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
        from segreader.read.topic_overview import read_topics

        for row in read_topics(self._source):
            for error in row.errors:
                self._found(error)
            if row.layouts or self._has_all:
                yield _topic_row(row)

    def _partitions(self) -> Iterator[Row]:
        from segreader.read.partition_overview import read_partitions

        wanted = self._selection
        for row in read_partitions(self._source, topic=wanted.topic, topic_id=wanted.topic_id):
            self._notes += row.notes
            if row.error is not None:
                self._found(row.error)
            yield _partition_row(row)

    def _segments(self) -> Iterator[Row]:
        from segreader.read.segment_overview import read_segments

        wanted = self._selection
        for one in read_segments(
            self._source, topic=wanted.topic, topic_id=wanted.topic_id, partitions=wanted.partitions
        ):
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
    from segreader.read.segment_ends import OPEN_END

    return (
        {"kind": "incomplete" if "log" in row.missing else "segment"}
        | _named(row.partition)
        | {
            "base_offset": row.base_offset,
            "last_offset": row.last_offset,
            "size": row.size,
            "max_timestamp": row.max_timestamp_ms,
            "leader_epochs": [
                {"epoch": entry.epoch, "first_offset": entry.start_offset} for entry in _entries(row.epochs)
            ],
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
    return (
        {"kind": "foreign"}
        | _named(partition)
        | {
            "base_offset": None,
            "last_offset": None,
            "size": None,
            "max_timestamp": None,
            "leader_epochs": [],
            "segment_id": None,
            "is_active": False,
            "missing": [],
            "state": None,
            "dropped": [],
            "object": url,
        }
    )


def _named(partition: TopicIdPartition) -> Row:
    return {"topic": partition.topic, "partition": partition.partition, "topic_id": partition.topic_id}


def _states(states: Mapping[SegmentState, int] | None) -> dict[str, int] | None:
    return None if states is None else {state.name: states[state] for state in sorted(states)}


def _entries(epochs: Iterable[Any] | None) -> Iterable[Any]:
    return epochs if epochs is not None else ()
