"""One partition at the time of a look: its segments, and between which offsets it can be loaded."""

from __future__ import annotations

from dataclasses import dataclass

from segreader.isolation import IsolationLevel
from segreader.loader.frontier import Frontier
from segreader.loader.query import LoadQuery
from segreader.plan.split import EndReason
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectStore
from segreader.stored.divergence import LogEnd, log_end
from segreader.stored.lineage import ReadableLog
from segreader.stored.log_offsets import read_log_offsets
from segreader.stored.partition_planner import PartitionPlanner
from segreader.stored.segment_ends import OPEN_END
from segreader.stored.source import SourceLog
from segreader.stored.time_offsets import offset_for_time
from segreader.stored.transactions import snapshot_at_start


@dataclass(frozen=True, slots=True)
class SeenLog:
    """A partition as it was seen.

    Args:
        source: its listing, and what was given beside it.
        readable: which segment delivers which offset.
        start: the first offset that is there, or in a segment that is missing.
        latest: one more than the last one that is there, as far as it is known.
        stop: what the query may have of it lies below.
        reason: why it ends there.
    """

    source: SourceLog
    readable: ReadableLog
    start: int
    latest: int
    stop: int
    reason: EndReason

    @property
    def partition(self) -> TopicIdPartition:
        """Which one."""
        return self.source.log.partition

    @property
    def end(self) -> LogEnd:
        """Where it ends, and by which epoch."""
        return log_end(self.readable.resolved, self.latest)

    @property
    def start_snapshot(self) -> str | None:
        """A producer snapshot of where it starts, if there is one."""
        log = self.source.log if self.source.local is None else self.source.local
        return snapshot_at_start(log, self.readable.resolved)

    def first(self, store: ObjectStore, query: LoadQuery) -> int | None:
        """Where the query begins in it; ``None`` if all that is there is older than its ``since``."""
        start = max(self.start, query.offset_range.start)
        if query.times.since_ms is None:
            return start
        found = offset_for_time(
            store,
            self.readable.resolved,
            query.times.since_ms,
            counts_markers=False,
            max_batch_bytes=query.max_batch_bytes,
        )
        return None if found is None else max(start, found.offset)

    def ends_with(self, stop: int) -> bool:
        """Whether offsets that stop here stop for no other reason than that the log does."""
        return stop == self.latest and self.reason is EndReason.END_OF_DATA

    def lacks(self, offset: int) -> bool:
        """Whether what comes next from this offset on is in segments that are missing."""
        return offset >= self.latest and any(hole.stop > offset for hole in self.readable.resolved.holes)

    def frontier(self, next_offset: int) -> Frontier:
        """What is remembered once everything below an offset was handed out."""
        lineage = self.readable.resolved.lineage
        epoch = None if lineage is None or next_offset < 1 else lineage.epoch_for(next_offset - 1)
        return Frontier(self.partition.topic_id, next_offset, epoch, self.end)


def see(store: ObjectStore, planner: PartitionPlanner, source: SourceLog, query: LoadQuery) -> SeenLog:
    """Look at one partition.

    Args:
        planner: resolves it; nothing is added to it.
        source: its listing.

    Raises:
        FormatError, StorageError: as reading its last batches and transaction indexes tells.
    """
    readable = planner.resolve(source)
    log = readable.resolved
    if not log.parts:  # only segments that are missing
        return SeenLog(source, readable, log.first, log.first, log.first, EndReason.END_OF_DATA)
    ends = read_log_offsets(
        store,
        log,
        start_snapshot=snapshot_at_start(source.log if source.local is None else source.local, log),
        max_batch_bytes=query.max_batch_bytes,
    )
    last_start = log.parts[-1].start if log.parts else 0  # where damage hides the end, what is before is still there
    is_known = ends.latest is not None and ends.latest <= OPEN_END
    latest = ends.latest if is_known and ends.latest is not None else last_start
    stop = latest
    reason = EndReason.END_OF_DATA if is_known else EndReason.DAMAGE
    if is_known and query.isolation_level is IsolationLevel.READ_COMMITTED:
        stop, reason = last_start if ends.stable_end is None else ends.stable_end, ends.reason
    bound = query.offset_range.stop
    if query.times.until_ms is not None:
        found = offset_for_time(
            store, log, query.times.until_ms, counts_markers=False, max_batch_bytes=query.max_batch_bytes
        )
        if found is not None:
            bound = found.offset if bound is None else min(bound, found.offset)
    if bound is not None and bound <= stop:
        stop, reason = bound, EndReason.REQUESTED
    return SeenLog(source, readable, log.first, latest, stop, reason)
