"""What a stream reads: uploads at a location, or a log that brokers serve.

A look at a location costs one listing of each partition. Where partitions lie is looked up once a minute, and of a
partition whose listing is the same as before nothing is read. A look at brokers asks for metadata and for two offsets
of each partition; no store is looked at before there is something to plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from segreader.broker.messages import EARLIEST, LATEST, OffsetWanted
from segreader.catalog.layouts.base import PartitionPlace
from segreader.catalog.metadata_log import RemoteLogMetadata
from segreader.errors import CorruptBatchError, ObjectNotFoundError, SegmentGapError, UnknownLayoutError
from segreader.isolation import IsolationLevel
from segreader.plan.cut import Cutting
from segreader.plan.log import Log, Piece
from segreader.plan.request import Policy
from segreader.ranges import OffsetRange
from segreader.segment import TopicIdPartition
from segreader.spark.checkpoint import TopicPartition
from segreader.spark.locations import Locations
from segreader.spark.options import SparkOptions
from segreader.spark.planning import SparkPlan
from segreader.storage.base import read_each
from segreader.stored.log import Follower, StoredLog, log_at_end
from segreader.stored.planner import PartitionPlanner
from segreader.stored.source import SourceLog
from segreader.values import dataclass

if TYPE_CHECKING:  # a stream that asks no broker does not wait for what could
    from segreader.live.cluster import Cluster
    from segreader.spark.live import LivePlanner, LiveRead

SEARCH_EVERY_S: Final = 60.0
LOOK_EVERY_S: Final = 1.0
"""While nothing is new Spark asks for the latest offset a hundred times a second; the store is not asked that often."""

Look = Mapping[TopicPartition, Log]


class StreamSource(Protocol):
    """The partitions that a stream reads."""

    @property
    def look_every_s(self) -> float:
        """While nothing is new it is not looked at more often."""

    def look(self) -> Look:
        """The partitions as they are now."""

    def decided_end(self, before: Any, log: Any) -> int | None:
        """Below which offset a partition is what an earlier look saw; ``None`` if all of that is, or it is unknown.

        Args:
            before, log: of two looks.
        """

    def plan(self, look: Any, wanted: Mapping[TopicPartition, OffsetRange]) -> SparkPlan | LiveRead:
        """How these offsets are read; ``look`` is one of ``look``."""

    def close(self) -> None:
        """Close connections and threads."""


class StoredStreamSource:
    """The uploads that a stream follows.

    Args:
        options: what to read.
        clock: seconds that do not go back.
    """

    look_every_s: Final = LOOK_EVERY_S

    def __init__(self, options: SparkOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._locations: Locations | None = None
        self._places: Sequence[Sequence[PartitionPlace]] = ()
        self._searched_at: float | None = None
        self._follower = Follower(self._see)

    @property
    def locations(self) -> Locations:
        """Where is read, opened when it is first needed."""
        if self._locations is None:
            self._locations = Locations(self._options)
        return self._locations

    def look(self) -> Mapping[TopicPartition, StoredLog]:
        """The partitions that have a segment, by topic and number, as they are now.

        What is given beside the location is read anew each time: a lineage of before would drop what follows it.

        Raises:
            ObjectNotFoundError: a topic that is subscribed to, or an assigned partition, was never there.
            AmbiguousTopicError: one name has two topic ids.
            CorruptBatchError: damage hides where a partition ends.
            CatalogError, StorageError: while listing.
        """
        now, searched_at = self._clock(), self._searched_at
        metadata = self.locations.read_metadata(self.locations.wanted)
        if searched_at is None or now - searched_at >= SEARCH_EVERY_S:
            self._search(now, metadata)
        logs = self._list(metadata)
        if not all(log.has_segments for log in logs) and self._searched_at == searched_at:
            self._search(now, metadata)  # what has vanished may lie elsewhere now
            logs = self._list(metadata)
        there = [log for log in logs if log.is_present]
        self.locations.require_local([log.log.partition for log in there], has_local=any(log.local for log in there))
        return {(one.topic, one.partition): log for one, log in self._follower.look(there).items()}

    def _list(self, metadata: RemoteLogMetadata | None) -> list[SourceLog]:
        known = self.locations.known(self._places, metadata)
        return list(read_each(lambda places: self.locations.read(places, known), self._places))

    def decided_end(self, before: StoredLog, log: StoredLog) -> int | None:
        """Below which offset a partition is what an earlier look saw; ``None`` if all of that is.

        Raises:
            FormatError, StorageError: as ``StoredLog.diverged_from``.
        """
        lost = None if before is log else log.diverged_from(before.end, self._options.isolation_level)
        return None if lost is None else lost.decided

    def plan(self, look: Mapping[TopicPartition, StoredLog], wanted: Mapping[TopicPartition, OffsetRange]) -> SparkPlan:
        """The splits of these offsets.

        Args:
            look: what has them.
            wanted: of each partition; every one is in ``look``.

        Raises:
            as ``PartitionPlanner.add``.
        """
        most = self._most_offsets(wanted.values())
        planner = PartitionPlanner(
            self.locations.store,
            replace(self._options.read_options, on_missing=Policy.FAIL),
            isolation_level=self._options.isolation_level,
            cutting=Cutting(split_bytes=self._options.split_bytes, most_offsets=most),
        )
        logs = {}
        for name, offsets in sorted(wanted.items()):
            log = look[name]
            try:
                logs[log.partition] = planner.add(log, offsets, to_end=offsets.stop == log.latest).resolved
            except SegmentGapError as error:
                error.hint = "With failOnDataLoss=false the stream passes over them"
                raise
        return SparkPlan(planner.plan(self.locations.shown), logs, self.locations.store)

    def close(self) -> None:
        """Close connections and threads."""
        if self._locations is not None:
            self._locations.close()
            self._locations = None

    def _most_offsets(self, wanted: Collection[OffsetRange]) -> int | None:
        """How many offsets a split may have: ``minPartitions`` and ``maxRecordsPerPartition``."""
        least, most = self._options.min_partitions, self._options.max_records_per_partition
        if least is None:
            return most
        total = sum((offsets.stop or offsets.start) - offsets.start for offsets in wanted)
        share = max(1, -(-total // least))
        return share if most is None else min(share, most)

    def _search(self, now: float, metadata: RemoteLogMetadata | None) -> None:
        """Find the places of the partitions. A listing shows which of them are gone."""
        try:
            self._places = self.locations.find(metadata)
        except (ObjectNotFoundError, UnknownLayoutError):
            if self._searched_at is None:
                raise
        self._searched_at = now

    def _see(self, source: SourceLog) -> StoredLog:
        log = log_at_end(self.locations.store, source)
        if log.is_end_hidden:
            raise CorruptBatchError(
                f"damage hides where {log.partition} ends",
                source=self.locations.store.url(log.resolved.parts[-1].segment.files.log),
                hint="See what is damaged with segreader verify",
            )
        return log


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
        from segreader.spark.live import LiveRead

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
            from segreader.spark.live import LivePlanner

            with ExitStack() as opening:
                cluster = self._connect()
                opening.callback(cluster.close)
                self._planner = LivePlanner(cluster, self._options)
                opening.callback(self._planner.close)
                self._open = opening.pop_all()
        yield self._planner


def open_source(options: SparkOptions, clock: Callable[[], float] = time.monotonic) -> StreamSource:
    """What a stream with these options reads."""
    if options.brokers is None:
        return cast(StreamSource, StoredStreamSource(options, clock))
    return cast(StreamSource, LiveStreamSource(options))
