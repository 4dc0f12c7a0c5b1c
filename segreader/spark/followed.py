"""What a stream follows: uploads at a location, or a log that brokers serve. What it needs to know of either."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from segreader.ranges import OffsetRange
from segreader.segment import TopicIdPartition
from segreader.spark.admission import Piece
from segreader.spark.options import SparkOptions
from segreader.spark.planning import SparkPlan
from segreader.spark.stream_log import StreamLog
from segreader.spark.stream_offsets import TopicPartition

if TYPE_CHECKING:
    from segreader.spark.live_planning import LiveRead


class SeenPartition(Protocol):
    """One partition at the time of a look."""

    @property
    def partition(self) -> TopicIdPartition:
        """Which one."""

    @property
    def earliest(self) -> int:
        """The first offset that is there."""

    @property
    def latest(self) -> int:
        """One more than the last offset that is there."""

    @property
    def stop(self) -> int:
        """Readers of this isolation level read up to here."""

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """The records between two offsets, in pieces that are read as a whole."""


Look = Mapping[TopicPartition, SeenPartition]


class FollowedLog(Protocol):
    """The partitions that a stream reads."""

    @property
    def look_every_s(self) -> float:
        """While nothing is new it is not looked at more often."""

    def look(self) -> Look:
        """The partitions as they are now."""

    def decided_end(self, before: Any, seen: Any) -> int | None:
        """Below which offset a partition is what an earlier look saw; ``None`` if all of that is, or it is unknown.

        Args:
            before, seen: of two looks.
        """

    def plan(self, look: Any, wanted: Mapping[TopicPartition, OffsetRange]) -> SparkPlan | LiveRead:
        """How these offsets are read; ``look`` is one of ``look``."""

    def first_at(self, name: TopicPartition, seen: Any, time_ms: int) -> int | None:
        """The first offset of a partition that is not older; ``seen`` is of a look."""

    def close(self) -> None:
        """Close connections and threads."""


def open_log(options: SparkOptions, clock: Callable[[], float] = time.monotonic) -> FollowedLog:
    """What a stream with these options follows."""
    if options.brokers is None:
        return cast(FollowedLog, StreamLog(options, clock))
    from segreader.spark.live_log import LiveLog

    return cast(FollowedLog, LiveLog(options))
