"""One partition of a location at one moment: its ends as a broker's ``ListOffsets`` gives them, its times, its history.

Source: ``OffsetsForLeaderEpoch`` (KIP-320) for where two histories part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

from segreader.errors import CatalogError, FormatError, StorageError
from segreader.format.compression import DEFAULT_LIMIT
from segreader.isolation import IsolationLevel
from segreader.plan.cut import overlapping, wanted_size
from segreader.plan.lineage import Part, ResolvedLog
from segreader.plan.log import LogEnd, Piece
from segreader.plan.request import TimeRange
from segreader.plan.split import EndReason
from segreader.ranges import OffsetRange
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectStore, read_each
from segreader.storage.cancellation import WaitEnded
from segreader.stored.lineage import ReadableLog, read_lineage
from segreader.stored.near import Near, neighbourhoods, range_of_times
from segreader.stored.segment_ends import OPEN_END, read_log_end
from segreader.stored.source import SourceLog
from segreader.stored.times import OffsetAndTimestamp, offset_for_time, offsets_between
from segreader.stored.transactions import read_transaction_state, snapshot_at_start
from segreader.values import dataclass

_Value = TypeVar("_Value")


class _kept(Generic[_Value]):
    """``cached_property`` as of Python 3.12: before, all instances share a lock, and one log is read at a time."""

    def __init__(self, read: Callable[[StoredLog], _Value]) -> None:
        self._read = read
        self.__doc__ = read.__doc__

    def __get__(self, log: StoredLog, owner: object = None) -> _Value:
        value = log.__dict__[self._read.__name__] = self._read(log)
        return value


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """The ends of one partition, as far as its files tell.

    Args:
        earliest: the first offset; ``None`` where there is none.
        latest: one more than the last offset; ``None`` where there is none, or damage hides it.
        stable_end: ``read_committed`` readers read up to here.
        reason: why the stable end is where it is.
        is_from_start: the log was replayed from its start, for no snapshot says what is open at its end.
    """

    earliest: int | None
    latest: int | None
    stable_end: int | None
    reason: EndReason
    is_from_start: bool = False


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a log stops being the one that was read before.

    Args:
        common: both have the same records below this offset.
        decided: and a reader got the same ones below this one: no transaction is open there at ``common``.
        leader_epoch: of the end that the log of before had.
    """

    common: int
    decided: int
    leader_epoch: int | None


class StoredLog:
    """One partition, as it was listed. Each answer is read when it is first asked for, and then kept.

    Args:
        store: has its objects.
        source: its listing, and what was given beside it.
        max_batch_bytes: largest batch to hold.
        at_end: the segments at its end, where they alone tell where it ends: see ``log_at_end``.

    Raises:
        FormatError, StorageError: while last batches and transaction indexes are read.
    """

    def __init__(
        self,
        store: ObjectStore,
        source: SourceLog,
        *,
        max_batch_bytes: int = DEFAULT_LIMIT,
        at_end: Near | None = None,
    ) -> None:
        self.source = source
        self._at_end = at_end
        self._store, self._max_batch_bytes = store, max_batch_bytes
        self._times: dict[tuple[int, bool], OffsetAndTimestamp | None] = {}

    @_kept
    def readable(self) -> ReadableLog:
        """Which segment delivers which offset, with what was found out about the others; those at the end, if only
        these were read."""
        source = self._read
        return read_lineage(
            self._store,
            source.log,
            local=source.local,
            given=source.leader_epochs,
            max_batch_bytes=self._max_batch_bytes,
        )

    @property
    def resolved(self) -> ResolvedLog:
        """The segments that count, by offset."""
        return self.readable.resolved

    @property
    def _read(self) -> SourceLog:
        """The segments that are read, and what was given beside them."""
        return self.source if self._at_end is None else self._at_end.source

    @_kept
    def whole(self) -> StoredLog:
        """The same by all of its segments."""
        if self._at_end is None:
            return self
        return StoredLog(self._store, self.source, max_batch_bytes=self._max_batch_bytes)

    @property
    def is_whole(self) -> bool:
        """Whether it is known by all of its segments."""
        return self._at_end is None

    @property
    def partition(self) -> TopicIdPartition:
        """Which one."""
        return self.source.log.partition

    @_kept
    def offsets(self) -> LogOffsets:
        """Its ends, as far as the files tell."""
        return read_log_offsets(
            self._store,
            self.resolved,
            start_snapshot=self.start_snapshot,
            max_batch_bytes=self._max_batch_bytes,
            first=None if self.is_whole else self.earliest,  # a transaction may be open since before what was read
        )

    @property
    def earliest(self) -> int:
        """The first offset that is there, or in a segment that is missing."""
        if self._at_end is None or self._at_end.is_first:
            return self.resolved.first
        log, lineage = self.source.log, self.resolved.lineage  # no offset is in two segments, or of another lineage
        first = lineage.entries[0].start_offset if lineage else 0
        return max(log.segments[0].base_offset, log.log_start or 0, first)

    @property
    def latest(self) -> int:
        """One more than the last offset; where damage hides it, where the last segment begins."""
        if not self.resolved.parts:
            return self.earliest
        return self.resolved.parts[-1].start if self.offsets.latest is None else self.offsets.latest

    @property
    def stable(self) -> int:
        """``read_committed`` readers read up to here."""
        offsets = self.offsets
        return self.latest if offsets.latest is None or offsets.stable_end is None else offsets.stable_end

    @property
    def reason(self) -> EndReason:
        """Why ``stable`` is where it is."""
        return EndReason.DAMAGE if self.is_end_hidden else self.offsets.reason

    @property
    def is_end_hidden(self) -> bool:
        """Whether damage hides where it ends."""
        return bool(self.resolved.parts) and self.offsets.latest is None

    @_kept
    def open_end(self) -> int:
        """One more than the last offset, without reading transactions; where damage hides it, one certainly beyond."""
        log = self.resolved
        end = read_log_end(self._store, log, self._max_batch_bytes) if log.parts else None
        return log.stop if end is None else end

    @property
    def end(self) -> LogEnd:
        """Where it ends, and by which epoch."""
        return LogEnd(self.latest, self.epoch_before(self.latest))

    @property
    def start_snapshot(self) -> str | None:
        """A producer snapshot of where it starts, if there is one."""
        source = self._read
        return snapshot_at_start(source.log if source.local is None else source.local, self.resolved)

    def epoch_before(self, offset: int) -> int | None:
        """The leader epoch of the offset before this one; ``None`` if it is not known."""
        lineage = self.resolved.lineage
        return None if lineage is None or offset < 1 else lineage.epoch_for(offset - 1)

    def first_at(self, time_ms: int, *, counts_markers: bool) -> OffsetAndTimestamp | None:
        """The first record that is not older than a time; see ``offset_for_time``."""
        key = (time_ms, counts_markers)
        if key not in self._times and self._at_end is not None:
            log = self._from_time(time_ms) or self.whole
            self._times[key] = log.first_at(time_ms, counts_markers=counts_markers)
        if key not in self._times:
            self._times[key] = offset_for_time(
                self._store,
                self.resolved,
                time_ms,
                counts_markers=counts_markers,
                max_batch_bytes=self._max_batch_bytes,
            )
        return self._times[key]

    def _from_time(self, time_ms: int) -> StoredLog | None:
        """The segments from the one that has the first record which is not older; ``None`` if all must be read."""
        around = range_of_times(self._store, self.source, TimeRange(time_ms))
        for near in () if around is None else neighbourhoods(self._store, self.source, around, self._max_batch_bytes):
            log = StoredLog(self._store, near.source, max_batch_bytes=self._max_batch_bytes)
            return log if not log.readable.notes and near.is_whole(log.resolved) else None
        return None

    def offset_for(self, time_ms: int, *, counts_markers: bool = True) -> int | None:
        """The offset of ``first_at``."""
        found = self.first_at(time_ms, counts_markers=counts_markers)
        return None if found is None else found.offset

    def offsets_between(self, times: TimeRange, offsets: OffsetRange) -> OffsetRange:
        """The offsets of these that are within the times; see ``offsets_between`` of ``stored.times``."""
        return offsets_between(self._store, self.whole.resolved, times, offsets, max_batch_bytes=self._max_batch_bytes)

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """The segments that hold these offsets; of one that is wanted in part, as much of its size."""
        pieces = []
        for part, wanted in overlapping([*self._before_end(), *self.resolved.parts], OffsetRange(start, stop)):
            last = min(part.stop, self.latest)
            end = last if wanted.stop is None else min(wanted.stop, last)
            pieces.append(Piece(end, wanted_size(part, wanted, self.latest)))
        return pieces

    def _before_end(self) -> Iterator[Part]:
        """The segments before those that were read: each has the offsets up to the next one."""
        if self._at_end is None:
            return
        for segment, following in pairwise(self.source.segments):
            if segment.base_offset >= self.resolved.start:
                return
            yield Part(segment, segment.base_offset, following.base_offset)

    def diverged_from(self, known: LogEnd, isolation_level: IsolationLevel) -> Divergence | None:
        """Where it stops being the log that ended so; ``None`` if it has everything below.

        An unclean election gives an epoch an earlier end. For ``read_committed`` what counts is where the first
        transaction begins that is open there: its marker may have been lost. Finding it costs a snapshot, and the
        batches behind it.
        """
        common = self._common_end(known.leader_epoch)
        if known.offset <= common:
            return None
        if self._at_end is not None:
            return self.whole.diverged_from(known, isolation_level)
        is_committed = isolation_level is IsolationLevel.READ_COMMITTED
        return Divergence(common, self._decided_end(common) if is_committed else common, known.leader_epoch)

    def _common_end(self, leader_epoch: int | None) -> int:
        """The end of the largest epoch that is not larger; its own end if the epoch is not known."""
        lineage = self.resolved.lineage
        if leader_epoch is None or not lineage:
            return self.latest
        known = [one.epoch for one in lineage if one.epoch <= leader_epoch]
        end = lineage.end_offset(known[-1]) if known else lineage.entries[0].start_offset
        return self.latest if end is None else min(self.latest, end)

    def _decided_end(self, stop: int) -> int:
        """Where the first transaction begins that is open at ``stop``, by the log below it; ``stop`` if none is."""
        log = self.resolved
        parts = tuple(Part(one.segment, one.start, min(one.stop, stop)) for one in log.parts if one.start < stop)
        if not parts:
            return stop
        holes = tuple(one for one in log.holes if one.stop <= stop)
        below = ResolvedLog(log.partition, log.lineage, parts, holes, (), log.is_assumed)
        ends = read_log_offsets(
            self._store, below, start_snapshot=self.start_snapshot, max_batch_bytes=self._max_batch_bytes
        )
        return stop if ends.stable_end is None else min(stop, ends.stable_end)


def read_log_offsets(
    store: ObjectStore,
    log: ResolvedLog,
    *,
    start_snapshot: str | None = None,
    max_batch_bytes: int = DEFAULT_LIMIT,
    first: int | None = None,
) -> LogOffsets:
    """The ends of a partition. Nothing of its records is read but the last batches, and what is behind a snapshot.

    Args:
        log: of one partition.
        start_snapshot: a producer snapshot of where the log starts.
        max_batch_bytes: largest batch to hold.
        first: its first offset, if that is before those of ``log``.
    """
    if not log.parts:
        return LogOffsets(None, None, None, EndReason.END_OF_DATA)
    latest = read_log_end(store, log, max_batch_bytes)
    stable, reason = latest, EndReason.END_OF_DATA if latest is not None else EndReason.DAMAGE
    bound = log.stop if latest is None else latest
    state = read_transaction_state(
        store, log, OffsetRange(bound), start_snapshot=start_snapshot, max_batch_bytes=max_batch_bytes
    )
    undecided = min([*(offset for _, offset in state.open), *state.held_back.values()], default=bound)
    if undecided < bound:
        stable, reason = undecided, EndReason.OPEN_TRANSACTION
    if state.unread_from is not None and state.unread_from < (bound if stable is None else stable):
        stable, reason = state.unread_from, EndReason.DAMAGE
    first = log.start if first is None else first
    stable = None if stable is None else max(stable, first)
    return LogOffsets(first, latest, stable, reason, state.is_from_start)


def log_at_end(store: ObjectStore, source: SourceLog, *, max_batch_bytes: int = DEFAULT_LIMIT) -> StoredLog:
    """One partition, for who asks where it ends: known by its last segments, where these are certainly enough.

    Raises:
        FormatError, StorageError: as ``StoredLog``, of a partition that is known by all of its segments.
    """
    for near in neighbourhoods(store, source, OffsetRange(OPEN_END), max_batch_bytes):
        log = StoredLog(store, source, max_batch_bytes=max_batch_bytes, at_end=near)
        try:
            if log.readable.notes or not near.is_whole(log.resolved) or log.offsets.latest is None:
                break
            if log.reason is EndReason.DAMAGE or (log.offsets.is_from_start and not near.is_first):
                break
        except WaitEnded:
            raise
        except (FormatError, CatalogError, StorageError):
            break
        return log
    return StoredLog(store, source, max_batch_bytes=max_batch_bytes)


class Follower:
    """Remembers each partition as it was last listed. Of one whose listing is as before nothing is read.

    A host lists, asks here for the logs, and holds its own state against them: where it is (``StoredLog.latest``,
    ``stable``), and whether what it has read still is the history (``StoredLog.diverged_from``).

    Args:
        see: makes a log of a listing, and reads what the host needs of it; several partitions at a time.
    """

    def __init__(self, see: Callable[[SourceLog], StoredLog]) -> None:
        self._see = see
        self.logs: Mapping[TopicIdPartition, StoredLog] = {}

    def look(self, sources: Sequence[SourceLog]) -> Mapping[TopicIdPartition, StoredLog]:
        """The partitions of these listings that have a segment, or miss one.

        Raises:
            FormatError, StorageError: as ``see``; then what was seen before stays.
        """
        logs = read_each(self._log, sources)
        self.logs = {log.partition: log for log in logs if log.resolved.parts or log.resolved.holes}
        return self.logs

    def _log(self, source: SourceLog) -> StoredLog:
        before = self.logs.get(source.log.partition)
        return before if before is not None and before.source == source else self._see(source)
