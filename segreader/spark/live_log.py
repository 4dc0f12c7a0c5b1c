"""What a stream finds each time it asks brokers: the partitions, where each begins, and where it ends by now.

A look asks for metadata and for two offsets of each partition; no store is looked at before there is something to
plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from segreader.broker.messages import EARLIEST, LATEST, OffsetWanted
from segreader.isolation import IsolationLevel
from segreader.live.cluster import Cluster
from segreader.plan.log import Piece
from segreader.ranges import OffsetRange
from segreader.segment import TopicIdPartition
from segreader.spark.checkpoint import TopicPartition
from segreader.spark.live_planning import LivePlanner, LiveRead
from segreader.spark.options import SparkOptions


@dataclass(frozen=True, slots=True)
class LiveLog:
    """One partition at the time of a look, by its leader.

    Args:
        earliest: the first offset that is there.
        latest: one more than the last offset that is there for anyone: the high watermark.
        stable: the last stable offset; ``latest`` where the stream reads uncommitted records.
        ask: the first offset that is not older than a time, from its leader; below zero if all are.
    """

    partition: TopicIdPartition
    earliest: int
    latest: int
    stable: int
    ask: Callable[[int], int]

    def offset_for(self, time_ms: int) -> int | None:
        """The first offset that is not older; ``None`` if all are."""
        found = self.ask(time_ms)
        return None if found < 0 else found

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """All of it as one: a broker does not tell bytes, and limits by bytes are refused."""
        return [Piece(stop, 0)] if start < stop else []


class LiveStreamSource:
    """The live log that a stream follows.

    Args:
        options: what to read.
        connect: makes the client; by default that of the options.
    """

    look_every_s: Final = 0.1
    """While nothing is new brokers are not asked more often."""

    def __init__(
        self,
        options: SparkOptions,
        *,
        connect: Callable[[], Cluster] | None = None,
    ) -> None:
        assert options.brokers is not None
        self._options, self._connect = options, connect or options.brokers.connect
        self._open = ExitStack()
        self._planner: LivePlanner | None = None
        self._known: dict[TopicPartition, LiveLog] = {}

    def look(self) -> Mapping[TopicPartition, LiveLog]:
        """The chosen partitions, by topic and number, as they are now.

        Raises:
            ObjectNotFoundError: a topic that is subscribed to, or an assigned partition, was never there.
            BrokerError: brokers cannot be asked, or refuse.
        """
        with self._asked() as planner:
            topics = planner.topics(passes_over_missing=bool(self._known))  # the stream knows what is gone
            names = planner.partitions(topics)
            first = planner.listed([OffsetWanted(*name, EARLIEST) for name in names])
            stable = planner.listed([OffsetWanted(*name, LATEST) for name in names])
            last = stable
            if self._options.isolation_level is IsolationLevel.READ_COMMITTED:
                wanted = [OffsetWanted(*name, LATEST) for name in names]
                last = planner.listed(wanted, IsolationLevel.READ_UNCOMMITTED)
        self._known = {
            name: LiveLog(
                TopicIdPartition(*name, topics[name[0]].topic_id),
                first[name].offset,
                max(last[name].offset, stable[name].offset, first[name].offset),
                max(stable[name].offset, first[name].offset),
                partial(self._first_at, name),
            )
            for name in names
        }
        return self._known

    def decided_end(self, before: LiveLog, log: LiveLog) -> int | None:
        """``None``: leaders are not asked for their lineage between two looks."""
        return None

    def plan(self, look: Mapping[TopicPartition, LiveLog], wanted: Mapping[TopicPartition, OffsetRange]) -> LiveRead:
        """The parts of these offsets.

        Args:
            wanted: of each partition, with an end.

        Raises:
            OffsetOutOfRangeError: retention has just taken some (``failOnDataLoss``).
            SegreaderError: as ``plan_live``.
        """
        with self._asked() as planner:
            return LiveRead(planner.plan({name: (offsets.start, offsets.stop) for name, offsets in wanted.items()}))

    def _first_at(self, name: TopicPartition, time_ms: int) -> int:
        with self._asked() as planner:
            return planner.listed([OffsetWanted(*name, time_ms)])[name].offset

    def close(self) -> None:
        """Close connections and threads."""
        self._open.close()
        self._planner = None

    @contextmanager
    def _asked(self) -> Iterator[LivePlanner]:
        if self._planner is None:
            with ExitStack() as opening:
                cluster = self._connect()
                opening.callback(cluster.close)
                self._planner = LivePlanner(cluster, self._options)
                opening.callback(self._planner.close)
                self._open = opening.pop_all()
        yield self._planner
