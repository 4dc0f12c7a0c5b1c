"""Returns what there is to load as splits: each offset once, across repeated looks and restored states."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NoReturn, Self

from segreader.catalog.listing import Wanted
from segreader.errors import (
    AmbiguousTopicError,
    ClosedError,
    CorruptBatchError,
    DeletedPositionError,
    DivergedPositionError,
    ForeignPositionError,
    ObjectNotFoundError,
    OptionError,
    UnknownLayoutError,
)
from segreader.isolation import IsolationLevel
from segreader.loader.query import LoadQuery
from segreader.loader.saved import SavedFields, save_log_end, saved_log_end, write_saved
from segreader.loader.splits import LoaderSplit, Position, recreated
from segreader.plan.cut import Cutting, SplitOffsets
from segreader.plan.log import LogEnd
from segreader.plan.request import Policy, TimeRange
from segreader.plan.split import EndReason, ReadEnd, Split
from segreader.ranges import OffsetRange
from segreader.segment import TopicIdPartition
from segreader.stored.log import Follower, StoredLog, log_at_end
from segreader.stored.planner import PartitionPlanner
from segreader.stored.source import SourceLog
from segreader.stored.times import note_if_older
from segreader.values import dataclass

_SAVED_KIND: Final = "enumerator"
_EVERYTHING: Final = (OffsetRange(), TimeRange())


def sorted_positions(positions: Iterable[Position]) -> list[Position]:
    """Positions by topic, partition and offset.

    Raises:
        OptionError: one is something else.
    """
    given = list(positions) if isinstance(positions, Iterable) else None
    wrong = [positions] if given is None else [one for one in given if not isinstance(one, Position)]
    if given is None or wrong:
        raise OptionError("not positions of a load", found=type(wrong[0]).__name__, expected="several Position")
    return sorted(given, key=lambda one: (one.topic, one.partition, one.next_offset, one.stop or 0))


class SplitEnumerator:
    """Finds the records of a query and returns them as splits. It remembers the next offset of each partition.

    Use one from one thread; splits and positions may be used anywhere. ``notes`` lists offsets that were skipped with
    ``on_gap='skip'``: those in no segment, and those deleted before they were read. They are skipped for good, even if
    they are uploaded later. ``notes`` also mentions damage that hides the next records (the next ``discover`` raises),
    and the newest timestamp if the first ``discover`` finds no record as new as ``since``.

    Args:
        query: what is loaded.
        storage_options: credentials and the like of the location, as ``segreader.scan`` takes them.
        state: the ``state()`` of an earlier enumerator: continue after the splits that it returned.

    Raises:
        OptionError, ObjectNotFoundError: the location cannot be opened.
        PositionFormatError, PositionVersionError, ForeignPositionError: the state is not valid, or belongs to another
            query.
    """

    def __init__(
        self,
        query: LoadQuery,
        *,
        storage_options: Mapping[str, object] | None = None,
        state: str | None = None,
    ) -> None:
        self.query = query
        self._frontiers: dict[TopicIdPartition, Frontier] = {} if state is None else read_frontiers(state, query)
        self._source = query.open(storage_options)
        self._follower = Follower(self._see)
        self._is_closed = False
        self._has_discovered = state is not None
        self.notes: list[str] = []

    def discover(self) -> list[LoaderSplit]:
        """Splits that were not returned before: at first all, later what was uploaded or decided since.

        If it raises, nothing counts as returned.

        Returns:
            Splits by topic, partition and offset.

        Raises:
            ObjectNotFoundError: the topic or partition never existed.
            RecreatedTopicError: the topic was deleted, and its name now belongs to another one.
            DeletedPositionError: offsets were deleted before they were returned (``on_gap='fail'``).
            DivergedPositionError: returned splits are no longer part of the log's history.
            SegmentGapError: what comes next is in no segment (``on_gap='fail'``).
            CorruptBatchError: damage hides what comes next (``on_corrupt='fail'``).
            ClosedError: the enumerator is closed.
            CatalogError, StorageError: as for ``Scan.plan``.
        """
        planner = self._planner()
        there = self._look()
        frontiers = dict(self._frontiers)
        hidden: list[str] = []
        bound = self.query.offset_range.stop
        for log in there.values():
            key = log.partition
            offsets = self._next_of(log, frontiers.get(key))
            if offsets is None:
                continue
            if offsets.stop is not None and offsets.start < offsets.stop:
                planner.add(log, offsets, to_end=self._ends_with(log, offsets.stop))
            elif _lacks(log, offsets.start) and self.query.on_gap == Policy.FAIL:
                planner.add(log, OffsetRange(offsets.start, bound))  # raises
            if self._end_of(log).reason is EndReason.DAMAGE:
                hidden.append(f"{key}: damage hides what comes behind offset {offsets.stop}")
            frontiers[key] = _frontier(log, offsets.stop or 0)
        plan = planner.plan(self._source.shown)
        for end in plan.ends:
            if end.reason.is_early and end.offset is not None:
                frontiers[end.partition] = _frontier(there[end.partition], end.offset)
        splits = self._with_ends(plan.splits)
        self.notes += [*plan.notes, *(gap.text for gap in plan.gaps), *(one for one in hidden if one not in self.notes)]
        if not splits and not plan.gaps and not self._has_discovered:
            logs = (log.source.segments for log in there.values())
            note = note_if_older(self._source.store, logs, self.query.times, self.query.offset_range)
            self.notes += [] if note is None else [note]
        self._has_discovered = True
        self._frontiers = frontiers
        return splits

    def splits_from(self, positions: Iterable[Position]) -> list[LoaderSplit]:
        """New splits for what is left after positions: for hosts whose splits no longer match the stored segments.

        For a position with a ``stop`` that is the rest of its split, for others everything up to the last returned
        split. An enumerator without a state continues after the last of these.

        Raises:
            ForeignPositionError: a position belongs to another partition or isolation level.
            RecreatedTopicError, DeletedPositionError, DivergedPositionError: what was read no longer exists.
            OptionError: two positions have the same offsets before them.
            ClosedError: the enumerator is closed.
            CatalogError, StorageError: as for ``Scan.plan``.
        """
        given = sorted_positions(positions)
        logs = self._look()
        planner = self._planner()
        frontiers = dict(self._frontiers)
        planned: dict[TopicIdPartition, int] = {}
        for position in given:
            own = TopicIdPartition(position.topic, position.partition, position.topic_id)
            key = _same(own, logs) or next((one for one in logs if str(one) == str(own)), own)
            log = logs.get(key)
            if log is None and _same(own, self._frontiers) is not None:
                raise DeletedPositionError(
                    f"offsets of {position.topic}-{position.partition} were deleted before they were read",
                    source=self._source.shown,
                    found="a partition of which nothing is left",
                    expected=f"offset {position.next_offset}",
                    hint="Go on where it begins again, or find another copy",
                )
            if log is None:
                raise ForeignPositionError(
                    "the position is of a partition that does not exist, or was not requested",
                    source=self._source.shown,
                    found=f"{position.topic}-{position.partition}",
                    expected=", ".join(map(str, list(logs)[:8])) or "none is here",
                    hint="Use the query and the location that the position was taken with",
                )
            self._refuse(position, log)
            before, end = self._frontiers.get(key), self._end_of(log).offset or 0
            stop = position.stop if position.stop is not None else end if before is None else before.next_offset
            stop = min(stop, end)
            if position.next_offset < stop:
                if position.next_offset < planned.get(key, 0):
                    raise OptionError(
                        f"offsets of {log.partition} would come twice",
                        offset=position.next_offset,
                        found=f"two positions that both have offset {position.next_offset} before them",
                        expected="one position a split",
                        hint="Give the last position of each split",
                    )
                planned[key] = stop
                wanted = OffsetRange(position.next_offset, stop)
                planner.add(log, wanted, to_end=self._ends_with(log, stop))
            if before is None:
                reached = max(stop, position.next_offset, frontiers[key].next_offset if key in frontiers else 0)
                frontiers[key] = _frontier(log, reached)
        plan = planner.plan(self._source.shown)
        splits = self._with_ends(plan.splits)
        self.notes += [*plan.notes, *(gap.text for gap in plan.gaps)]
        self._frontiers = frontiers
        return splits

    def state(self) -> str:
        """The progress of this enumerator, as short JSON for a checkpoint."""
        return write_frontiers(self._frontiers, self.query)

    def end_positions(self) -> list[Position]:
        """The position of each partition after all splits returned so far, by topic and partition."""
        return [
            Position(
                topic=partition.topic,
                topic_id=one.topic_id,
                partition=partition.partition,
                next_offset=one.next_offset,
                isolation_level=self.query.isolation_level,
                leader_epoch=one.leader_epoch,
                log_end=one.log_end,
            )
            for partition, one in sorted(self._frontiers.items(), key=lambda item: item[0].order)
        ]

    @property
    def is_finished(self) -> bool:
        """Whether all splits were returned: every partition has reached the end that the query gives."""
        logs = self._follower.logs.values()
        return bool(logs) and all(self._is_finished(log) for log in logs)

    def close(self) -> None:
        """Close connections and threads."""
        if not self._is_closed:
            self._is_closed = True
            self._source.store.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an enumerator holds clients and credentials: what travels is its query and its state()")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _planner(self) -> PartitionPlanner:
        if self._is_closed:
            raise ClosedError("the enumerator is closed", hint="Open another one with its state()")
        query = self.query
        return PartitionPlanner(
            self._source.store,
            query.read_options(),
            isolation_level=query.isolation_level,
            cutting=Cutting(split_bytes=query.split_bytes, offsets=SplitOffsets.BATCHES),
        )

    def _look(self) -> Mapping[TopicIdPartition, StoredLog]:
        """The partitions of the query as they are now."""
        sources = [source for source in self._logs() if source.is_present]
        self._find_frontiers([source.log.partition for source in sources])
        return self._follower.look(sources)

    def _see(self, source: SourceLog) -> StoredLog:
        query = self.query
        is_read_whole = source.log.partition not in self._frontiers and (query.offset_range, query.times) == _EVERYTHING
        see = StoredLog if is_read_whole else log_at_end
        log = see(self._source.store, source, max_batch_bytes=query.max_batch_bytes)
        self._end_of(log)  # partitions are looked at several at a time
        return log

    def _end_of(self, log: StoredLog) -> ReadEnd:
        """Where the query ends in a partition, and why."""
        query, stop, reason = self.query, log.latest, EndReason.END_OF_DATA
        if log.is_end_hidden:
            reason = EndReason.DAMAGE
        elif query.isolation_level is IsolationLevel.READ_COMMITTED:
            stop, reason = log.stable, log.reason
        bound = query.offset_range.stop
        if query.times.until_ms is not None and log.resolved.parts:
            found = log.offset_for(query.times.until_ms, counts_markers=False)
            bound = found if bound is None else bound if found is None else min(bound, found)
        if bound is not None and bound <= stop and log.resolved.parts:
            stop, reason = bound, EndReason.REQUESTED
        return ReadEnd(log.partition, stop, reason)

    def _ends_with(self, log: StoredLog, stop: int) -> bool:
        """Whether offsets that stop here stop only because the log does."""
        return stop == log.latest and self._end_of(log).reason is EndReason.END_OF_DATA

    def _is_finished(self, log: StoredLog) -> bool:
        end, known = self._end_of(log), self._frontiers.get(log.partition)
        return end.reason is EndReason.REQUESTED and known is not None and known.next_offset >= (end.offset or 0)

    def _logs(self) -> Iterator[SourceLog]:
        query, source = self.query, self._source
        wanted = Wanted(query.topic, query.topic_id, query.partitions)
        if not self._frontiers:
            yield from source.logs(wanted)
            return
        topic_id = query.topic_id
        if query.topic is not None and topic_id is None:  # the one that the load began with
            topic_id = next((one.topic_id for one in self._frontiers.values()), None)
        try:
            yield from source.logs(replace(wanted, topic_id=topic_id))
        except (ObjectNotFoundError, UnknownLayoutError):
            try:
                for log in source.logs(replace(wanted, partitions=None)):
                    if query.partitions is None or log.log.partition.partition in query.partitions:
                        yield log
            except (ObjectNotFoundError, UnknownLayoutError, AmbiguousTopicError):
                return  # retention has taken everything

    def _find_frontiers(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Give each frontier the name that its partition has now: one layout may give an id where another gave none.

        Raises:
            RecreatedTopicError: the topic asked for is another one now. Where every topic is asked for, it is one more.
        """
        for partition in partitions:
            known = _same(partition, self._frontiers)
            if known is not None:
                self._frontiers[partition] = self._frontiers.pop(known)
            elif self.query.topic is not None or self.query.topic_id is not None:
                for other in self._frontiers:
                    if str(other) == str(partition):
                        raise recreated(partition.topic, partition.topic_id, other.topic_id, self._source.shown)

    def _next_of(self, log: StoredLog, before: Frontier | None) -> OffsetRange | None:
        """The next offsets; ``None`` if it is not known yet where they begin."""
        end = self._end_of(log)
        if before is None:
            found: int | None = 0
            if self.query.times.since_ms is not None:
                found = log.offset_for(self.query.times.since_ms, counts_markers=False)
            if found is None:
                return None
            start = max(log.earliest, self.query.offset_range.start, found)
        else:
            start = before.next_offset
            self._refuse_diverged(log, before)
            if start < log.earliest:
                if self.query.on_gap == Policy.FAIL:
                    raise deleted(log, start, self._source.shown)
                self.notes.append(f"{log.partition}: offsets {start} to {log.earliest - 1} were deleted unread")
                start = log.earliest
        stop = end.offset or 0
        if start >= stop and end.reason is EndReason.DAMAGE and self.query.on_corrupt == Policy.FAIL:
            raise CorruptBatchError(
                f"damage hides what comes next in {log.partition}",
                source=self._source.shown,
                offset=start,
                hint="See what is damaged with segreader verify; with on_corrupt='skip' it is waited for",
            )
        return OffsetRange(start, max(start, stop))

    def _refuse_diverged(self, log: StoredLog, reached: Frontier | Position) -> None:
        """Raise if what was read, or the markers that decided it, belong to another history.

        Raises:
            DivergedPositionError: the lineage gives an epoch an earlier end, or the log ends before.
        """
        next_offset, level, log_end = reached.next_offset, self.query.isolation_level, reached.log_end
        lost = log.diverged_from(LogEnd(next_offset, reached.leader_epoch), level)
        is_decided_by_end = level is IsolationLevel.READ_COMMITTED and self._end_of(log).reason is not EndReason.DAMAGE
        if lost is None and log_end is not None and is_decided_by_end:
            lost = log.diverged_from(log_end, level)
        if lost is None or next_offset <= lost.decided:
            return  # what was lost, if anything, decided nothing that was read
        common, again, epoch = lost.common, lost.decided, lost.leader_epoch
        raise DivergedPositionError(
            f"what was read of {log.partition} is not its history any more",
            source=self._source.shown,
            offset=again,
            found=f"offsets up to {common} in common"
            + ("" if epoch is None else f" with epoch {epoch}")
            + (f", and a log that ends at {log.latest}" if common == log.latest else "")
            + (f", where a transaction is open since offset {again}" if again < common else ""),
            expected=f"everything below {next_offset}"
            if next_offset > common or log_end is None
            else f"everything below {next_offset}, and the markers below {log_end.offset} that decided it",
            hint=f"An unclean leader election, or an older copy: take back what was loaded from offset {again} on and "
            "begin there",
        )

    def _with_ends(self, splits: Sequence[Split]) -> list[LoaderSplit]:
        """The splits, each with the end of the log by which it was planned: markers up to there decided it."""
        is_committed = self.query.isolation_level is IsolationLevel.READ_COMMITTED
        return [LoaderSplit(one, self._follower.logs[one.partition].end if is_committed else None) for one in splits]

    def _refuse(self, position: Position, log: StoredLog) -> None:
        """Raise if a position does not fit the partition as it is."""
        shown = self._source.shown
        if position.isolation_level is not self.query.isolation_level:
            raise ForeignPositionError(
                "the position is of a reader of the other isolation level",
                found=position.isolation_level.value,
                expected=self.query.isolation_level.value,
                hint="Ask with the isolation level that the load was begun with, or begin it anew with offsets",
            )
        if None not in (position.topic_id, log.partition.topic_id) and position.topic_id != log.partition.topic_id:
            raise recreated(position.topic, log.partition.topic_id, position.topic_id, shown)
        self._refuse_diverged(log, position)
        if position.next_offset < log.earliest:
            raise deleted(log, position.next_offset, shown)


def _lacks(log: StoredLog, offset: int) -> bool:
    """Whether the next offsets are in missing segments."""
    return offset >= log.latest and any(hole.stop > offset for hole in log.resolved.holes)


def _frontier(log: StoredLog, next_offset: int) -> Frontier:
    """The frontier once everything below an offset was returned."""
    return Frontier(log.partition.topic_id, next_offset, log.epoch_before(next_offset), log.end)


def _same(partition: TopicIdPartition, among: Collection[TopicIdPartition]) -> TopicIdPartition | None:
    """The one of these that is this partition: of its topic id, or without one if the layout has none."""
    if partition in among:
        return partition
    same = [one for one in among if one.partition == partition.partition and one.topic == partition.topic]
    return next((one for one in same if None in (one.topic_id, partition.topic_id)), None)


def deleted(log: StoredLog, offset: int, source: str | None) -> DeletedPositionError:
    """The error for offsets that retention has taken."""
    return DeletedPositionError(
        f"offsets of {log.partition} were deleted before they were read",
        source=source,
        offset=log.earliest,
        found=f"offsets from {log.earliest} on",
        expected=f"offset {offset}",
        hint=f"Go on at offset {log.earliest} and pass over {log.earliest - offset} offsets, or find another copy; "
        "on_gap='skip' goes on by itself",
    )


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
        _SAVED_KIND,
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
    fields = SavedFields(_SAVED_KIND, text)
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
