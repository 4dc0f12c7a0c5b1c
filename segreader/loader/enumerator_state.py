"""The progress of an enumerator, as values that it saves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from segreader.errors import ForeignPositionError
from segreader.loader.query import LoadQuery
from segreader.loader.saved import SavedFields, save_log_end, saved_log_end, write_saved
from segreader.plan.log import LogEnd
from segreader.segment import TopicIdPartition

_KIND = "enumerator"


@dataclass(frozen=True, slots=True)
class Frontier:
    """The progress in one partition.

    Args:
        topic_id: which topic of the name it is; ``None`` if the layout has none.
        next_offset: the first offset not handed out.
        leader_epoch: of the offset before it, where it is known.
        log_end: where the log ended by which it was planned; earlier versions did not save it.
    """

    topic_id: str | None
    next_offset: int
    leader_epoch: int | None = None
    log_end: LogEnd | None = None


def write_frontiers(frontiers: Mapping[TopicIdPartition, Frontier], query: LoadQuery) -> str:
    """The frontiers as text, partitions in order, with where the query begins."""
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "topic_id": one.topic_id,
            "next_offset": one.next_offset,
            "leader_epoch": one.leader_epoch,
            **save_log_end(one.log_end),
        }
        for partition, one in sorted(frontiers.items(), key=lambda item: item[0].order)
    ]
    return write_saved(
        _KIND,
        {
            "isolation_level": query.isolation_level.value,
            "first_offset": query.offset_range.start or None,
            "since_ms": query.times.since_ms,
            "partitions": rows,
        },
    )


def read_frontiers(text: str, query: LoadQuery) -> dict[TopicIdPartition, Frontier]:
    """The frontiers that ``write_frontiers`` wrote for such a query, or for a narrower one, such as fewer partitions.

    Raises:
        PositionFormatError, PositionVersionError: they are none, or a newer version's.
        ForeignPositionError: they are of the other isolation level, or of a query that would leave other offsets out.
    """
    fields = SavedFields(_KIND, text)
    saved, wanted = fields.text("isolation_level"), query.isolation_level.value
    if saved != wanted:
        raise ForeignPositionError(
            "the state is of an enumerator of the other isolation level",
            found=saved,
            expected=wanted,
            hint="Ask with the isolation level that the load was begun with, or begin it anew",
        )
    first, since_ms = fields.integer_or_none("first_offset") or 0, fields.integer_or_none("since_ms")
    if first > query.offset_range.start:
        raise _foreign(f"offsets from {first} on", f"offsets from {query.offset_range.start} on")
    if since_ms is not None and (query.times.since_ms is None or since_ms > query.times.since_ms):
        raise _foreign(f"times from {since_ms} on", f"times from {query.times.since_ms or 'the beginning'} on")
    found: dict[TopicIdPartition, Frontier] = {}
    for row in fields.objects("partitions"):
        one = SavedFields.of(fields.kind, row)
        topic, number = one.text("topic"), one.integer("partition", bits=31)
        key = TopicIdPartition(topic, number, one.text_or_none("topic_id"))
        if key in found:
            raise fields.wrong(ValueError(f"{topic}-{number} is in it twice"))
        frontier = Frontier(
            key.topic_id,
            one.integer("next_offset"),
            one.integer_or_none("leader_epoch", bits=31),
            saved_log_end(one),
        )
        if query.topic not in (None, topic):
            raise _foreign(f"topic {topic}", f"topic {query.topic}")
        if frontier.next_offset < query.offset_range.start:
            raise _foreign(f"{topic}-{number} at offset {frontier.next_offset}", f"{query.offset_range.start} or above")
        found[key] = frontier
    return found


def _foreign(found: str, expected: str) -> ForeignPositionError:
    return ForeignPositionError(
        "the state is of another query",
        found=found,
        expected=expected,
        hint="Ask for what the load was begun with, or begin it anew without a state",
    )
