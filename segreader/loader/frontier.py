"""How far an enumerator has handed out, as values that it saves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from segreader.errors import ForeignPositionError
from segreader.isolation import IsolationLevel
from segreader.loader.saved import SavedFields, write_saved

_KIND = "enumerator"

TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Frontier:
    """Up to where a partition was handed out.

    Args:
        topic_id: which topic of the name it is; ``None`` where the layout tells none.
        next_offset: the first offset not handed out.
        leader_epoch: of the offset before it, where it is known.
    """

    topic_id: str | None
    next_offset: int
    leader_epoch: int | None = None


def write_frontiers(frontiers: Mapping[TopicPartition, Frontier], isolation_level: IsolationLevel) -> str:
    """The frontiers as text, partitions in order."""
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "topic_id": one.topic_id,
            "next_offset": one.next_offset,
            "leader_epoch": one.leader_epoch,
        }
        for (topic, partition), one in sorted(frontiers.items())
    ]
    return write_saved(_KIND, {"isolation_level": isolation_level.value, "partitions": rows})


def read_frontiers(text: str, isolation_level: IsolationLevel) -> dict[TopicPartition, Frontier]:
    """The frontiers that ``write_frontiers`` gave.

    Raises:
        PositionFormatError, PositionVersionError: they are none, or a newer version's.
        ForeignPositionError: they are of the other isolation level.
    """
    fields = SavedFields(_KIND, text)
    saved = fields.text("isolation_level")
    if saved != isolation_level.value:
        raise ForeignPositionError(
            "the state is of an enumerator of the other isolation level",
            found=saved,
            expected=isolation_level.value,
            hint="Ask with the isolation level that the load was begun with, or begin it anew",
        )
    found: dict[TopicPartition, Frontier] = {}
    for row in fields.objects("partitions"):
        one = SavedFields.of(fields.kind, row)
        found[one.text("topic"), one.integer("partition", bits=31)] = Frontier(
            one.text_or_none("topic_id"), one.integer("next_offset"), one.integer_or_none("leader_epoch", bits=31)
        )
    return found
