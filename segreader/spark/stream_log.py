"""What a stream finds at its location each time it looks: the partitions, their segments, and where they end.

A look costs one listing of each partition. Where partitions lie is looked up once a minute, and of a partition whose
listing is the same as before nothing is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from segreader.catalog.layouts.base import PartitionPlace
from segreader.catalog.listing import PartitionLog
from segreader.catalog.metadata_log import RemoteLogMetadata
from segreader.errors import CorruptBatchError, ObjectNotFoundError, SegmentGapError, UnknownLayoutError
from segreader.isolation import IsolationLevel
from segreader.plan.cut import Cutting, overlapping, wanted_size
from segreader.plan.lineage import ResolvedLog
from segreader.plan.request import Policy
from segreader.ranges import OffsetRange
from segreader.segment import TopicIdPartition
from segreader.spark.admission import Piece
from segreader.spark.locations import Locations
from segreader.spark.options import SparkOptions
from segreader.spark.planning import SparkPlan
from segreader.spark.stream_offsets import TopicPartition
from segreader.storage.base import read_each
from segreader.stored.beside import SourceLog
from segreader.stored.divergence import common_end, decided_end, log_end
from segreader.stored.lineage import ReadableLog, read_lineage
from segreader.stored.log_offsets import read_log_offsets
from segreader.stored.partition_planner import PartitionPlanner
from segreader.stored.time_offsets import offset_for_time
from segreader.stored.transactions import snapshot_at_start

SEARCH_EVERY_S: Final = 60.0
LOOK_EVERY_S: Final = 1.0
"""While nothing is new Spark asks for the latest offset a hundred times a second; the store is not asked that often."""


@dataclass(frozen=True, slots=True)
class SeenStored:
    """One partition at the time of a look.

    Args:
        source: its listing, and what was given beside it.
        readable: which segment delivers which offset.
        earliest: the first offset that is there, or in a segment that is missing.
        latest: one more than the last offset that is there.
        stop: readers of this isolation level read up to here.
    """

    source: SourceLog
    readable: ReadableLog
    earliest: int
    latest: int
    stop: int

    @property
    def partition(self) -> TopicIdPartition:
        """Which one."""
        return self.source.log.partition

    @property
    def resolved(self) -> ResolvedLog:
        """The segments that count, by offset."""
        return self.readable.resolved

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """The segments that hold these offsets; of one that is wanted in part, as much of its size."""
        pieces = []
        for part, wanted in overlapping(self.resolved.parts, OffsetRange(start, stop)):
            last = min(part.stop, self.latest)
            end = last if wanted.stop is None else min(wanted.stop, last)
            pieces.append(Piece(end, wanted_size(part, wanted, self.latest)))
        return pieces


class StreamLog:
    """The log that a stream follows; it remembers what the last look found.

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
        self._seen: dict[TopicPartition, SeenStored] = {}

    @property
    def locations(self) -> Locations:
        """Where is read, opened when it is first needed."""
        if self._locations is None:
            self._locations = Locations(self._options)
        return self._locations

    def look(self) -> Mapping[TopicPartition, SeenStored]:
        """The partitions that have a segment, by topic and number, as they are now.

        What is given beside the location is read anew each time: a lineage of before would drop what follows it.

        Raises:
            ObjectNotFoundError: a topic that is subscribed to, or an assigned partition, was never there.
            AmbiguousTopicError: one name has two topic ids.
            CorruptBatchError: damage hides where a partition ends.
            CatalogError, StorageError: as listing tells.
        """
        now, searched_at = self._clock(), self._searched_at
        metadata = self.locations.read_metadata()
        if searched_at is None or now - searched_at >= SEARCH_EVERY_S:
            self._search(now, metadata)
        logs = self._list(metadata)
        if not all(log.has_segments for log in logs) and self._searched_at == searched_at:
            self._search(now, metadata)  # what has vanished may lie elsewhere now
            logs = self._list(metadata)
        there = [log for log in logs if log.has_segments or log.log.missing]
        self.locations.require_local([log.log.partition for log in there], has_local=any(log.local for log in there))
        seen = read_each(self._see, there)
        self._seen = {_name(one.source.log): one for one in seen if one.resolved.parts or one.resolved.holes}
        return self._seen

    def _list(self, metadata: RemoteLogMetadata | None) -> list[SourceLog]:
        known = self.locations.known(self._places, metadata)
        return list(read_each(lambda places: self.locations.read(places, known), self._places))

    def decided_end(self, before: SeenStored, seen: SeenStored) -> int | None:
        """Below which offset a partition is what an earlier look saw; ``None`` if all of that is.

        An unclean election gives the last epoch of the earlier look an earlier end. For ``read_committed`` what counts
        is where the first transaction begins that is open there: its marker may have been lost.

        Raises:
            FormatError, StorageError: as reading that transaction's batches tells.
        """
        if before is seen:
            return None
        known = log_end(before.resolved, before.latest)
        common = common_end(seen.resolved, seen.latest, known.leader_epoch)
        if known.offset <= common:
            return None
        if self._options.isolation_level is not IsolationLevel.READ_COMMITTED:
            return common
        snapshot = snapshot_at_start(seen.source.local or seen.source.log, seen.resolved)
        return decided_end(self.locations.store, seen.resolved, common, start_snapshot=snapshot)

    def plan(
        self, look: Mapping[TopicPartition, SeenStored], wanted: Mapping[TopicPartition, OffsetRange]
    ) -> SparkPlan:
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
        for name, offsets in sorted(wanted.items()):
            try:
                seen = look[name]
                planner.add(seen.source, offsets, readable=seen.readable, to_end=offsets.stop == seen.latest)
            except SegmentGapError as error:
                error.hint = "With failOnDataLoss=false the stream passes over them"
                raise
        logs = {look[name].partition: look[name].resolved for name in wanted}
        return SparkPlan(planner.plan(self.locations.shown), logs, self.locations.store)

    def first_at(self, name: TopicPartition, seen: SeenStored, time_ms: int) -> int | None:
        """The first offset that is not older, of a partition that was seen; ``None`` if all are. Markers count."""
        found = offset_for_time(self.locations.store, seen.resolved, time_ms, counts_markers=True)
        return None if found is None else found.offset

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

    def _see(self, source: SourceLog) -> SeenStored:
        log = source.log
        before = self._seen.get(_name(log))
        if before is not None and before.source == source:
            return before
        store = self.locations.store
        readable = read_lineage(store, log, local=source.local, given=source.leader_epochs)
        snapshot = snapshot_at_start(log if source.local is None else source.local, readable.resolved)
        ends = read_log_offsets(store, readable.resolved, start_snapshot=snapshot)
        is_committed = self._options.isolation_level is IsolationLevel.READ_COMMITTED
        stop = ends.stable_end if is_committed else ends.latest
        if readable.resolved.parts and (stop is None or ends.latest is None):
            raise CorruptBatchError(
                f"damage hides where {log.partition} ends",
                source=store.url(readable.resolved.parts[-1].segment.files.log),
                hint="See what is damaged with segreader verify",
            )
        first = readable.resolved.first
        return SeenStored(source, readable, first, ends.latest or first, stop or first)


def _name(log: PartitionLog) -> TopicPartition:
    return log.partition.topic, log.partition.partition
