"""What there is to load, handed out in splits: each offset once, however often one looks and wherever one goes on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NoReturn, Self

from segreader.errors import (
    AmbiguousTopicError,
    ClosedError,
    CorruptBatchError,
    DeletedPositionError,
    ForeignPositionError,
    ObjectNotFoundError,
    OptionError,
    UnknownLayoutError,
)
from segreader.isolation import IsolationLevel
from segreader.loader.frontier import Frontier, read_frontiers, write_frontiers
from segreader.loader.history import recreated, refuse_diverged
from segreader.loader.position import Position
from segreader.loader.query import LoadQuery
from segreader.loader.seen_log import SeenLog, see
from segreader.loader.splits import LoaderSplit
from segreader.plan.cut import Cutting, SplitOffsets
from segreader.plan.request import Policy
from segreader.plan.split import EndReason, Split
from segreader.ranges import OffsetRange
from segreader.segment import TopicIdPartition
from segreader.storage.base import read_each
from segreader.stored.indexed_times import note_if_older
from segreader.stored.partition_planner import PartitionPlanner
from segreader.stored.source import SourceLog


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
        self._seen: dict[TopicIdPartition, SeenLog] = {}
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
        wanted: dict[TopicIdPartition, SeenLog] = {}
        bound = self.query.offset_range.stop
        for seen in there:
            key = seen.partition
            offsets = self._next_of(seen, frontiers.get(key))
            if offsets is None:
                continue
            if offsets.stop is not None and offsets.start < offsets.stop:
                planner.add(seen.source, offsets, readable=seen.readable, to_end=seen.ends_with(offsets.stop))
            elif seen.lacks(offsets.start) and self.query.on_gap == Policy.FAIL:
                planner.add(seen.source, OffsetRange(offsets.start, bound), readable=seen.readable)  # raises
            if seen.reason is EndReason.DAMAGE:
                hidden.append(f"{seen.partition}: damage hides what comes behind offset {offsets.stop}")
            wanted[key] = seen
            frontiers[key] = seen.frontier(offsets.stop or 0)
        plan = planner.plan(self._source.shown)
        for end in plan.ends:
            if end.reason.is_early and end.offset is not None:
                frontiers[end.partition] = wanted[end.partition].frontier(end.offset)
        splits = self._with_ends(plan.splits)
        self.notes += [*plan.notes, *(gap.text for gap in plan.gaps), *(one for one in hidden if one not in self.notes)]
        if not splits and not plan.gaps and not self._has_discovered:
            logs = [seen.source.segments for seen in there]
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
        given = sorted(positions, key=lambda one: (one.topic, one.partition, one.next_offset))
        logs = {one.partition: one for one in self._look()}
        planner = self._planner()
        frontiers = dict(self._frontiers)
        planned: dict[TopicIdPartition, int] = {}
        for position in given:
            own = TopicIdPartition(position.topic, position.partition, position.topic_id)
            key = _same(own, logs) or next((one for one in logs if str(one) == str(own)), own)
            seen = logs.get(key)
            if seen is None and _same(own, self._frontiers) is not None:
                raise DeletedPositionError(
                    f"offsets of {position.topic}-{position.partition} were deleted before they were read",
                    source=self._source.shown,
                    found="a partition of which nothing is left",
                    expected=f"offset {position.next_offset}",
                    hint="Go on where it begins again, or find another copy",
                )
            if seen is None:
                raise ForeignPositionError(
                    "the position is of a partition that does not exist, or was not requested",
                    source=self._source.shown,
                    found=f"{position.topic}-{position.partition}",
                    expected=", ".join(map(str, list(logs)[:8])) or "none is here",
                    hint="Use the query and the location that the position was taken with",
                )
            self._refuse(position, seen)
            before = self._frontiers.get(key)
            stop = position.stop if position.stop is not None else seen.stop if before is None else before.next_offset
            stop = min(stop, seen.stop)
            if position.next_offset < stop:
                if position.next_offset < planned.get(key, 0):
                    raise OptionError(
                        f"offsets of {seen.partition} would come twice",
                        offset=position.next_offset,
                        found=f"two positions that both have offset {position.next_offset} before them",
                        expected="one position a split",
                        hint="Give the last position of each split",
                    )
                planned[key] = stop
                wanted = OffsetRange(position.next_offset, stop)
                planner.add(seen.source, wanted, readable=seen.readable, to_end=seen.ends_with(stop))
            if before is None:
                reached = max(stop, position.next_offset, frontiers[key].next_offset if key in frontiers else 0)
                frontiers[key] = seen.frontier(reached)
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
        return bool(self._seen) and all(
            one.reason is EndReason.REQUESTED
            and (known := self._frontiers.get(one.partition)) is not None
            and known.next_offset >= one.stop
            for one in self._seen.values()
        )

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

    def _look(self) -> Sequence[SeenLog]:
        """The partitions of the query as they are now; of one whose listing is as before nothing is read."""
        planner = self._planner()
        logs = [log for log in self._logs() if log.has_segments or log.log.missing]
        self._find_frontiers([log.log.partition for log in logs])

        def look(log: SourceLog) -> SeenLog:
            before = self._seen.get(log.log.partition)
            if before is not None and before.source == log:
                return before
            return see(self._source.store, planner, log, self.query)

        seen = [one for one in read_each(look, logs) if one.readable.resolved.parts or one.readable.resolved.holes]
        self._seen = {one.partition: one for one in seen}
        return seen

    def _logs(self) -> Iterator[SourceLog]:
        query, source = self.query, self._source
        if not self._frontiers:
            yield from source.logs(topic=query.topic, topic_id=query.topic_id, partitions=query.partitions)
            return
        topic_id = query.topic_id
        if query.topic is not None and topic_id is None:  # the one that was begun with, whoever bears its name now
            topic_id = next((one.topic_id for one in self._frontiers.values()), None)
        try:
            yield from source.logs(topic=query.topic, topic_id=topic_id, partitions=query.partitions)
        except (ObjectNotFoundError, UnknownLayoutError):
            try:
                for log in source.logs(topic=query.topic, topic_id=query.topic_id, partitions=None):
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

    def _next_of(self, seen: SeenLog, before: Frontier | None) -> OffsetRange | None:
        """The offsets that are next; ``None`` where it is not known yet where they begin."""
        if before is None:
            start = seen.first(self._source.store, self.query)
            if start is None:
                return None
        else:
            start = before.next_offset
            self._refuse_diverged(seen, before)
            if start < seen.start:
                if self.query.on_gap == Policy.FAIL:
                    raise deleted(seen, start, self._source.shown)
                self.notes.append(f"{seen.partition}: offsets {start} to {seen.start - 1} were deleted unread")
                start = seen.start
        if start >= seen.stop and seen.reason is EndReason.DAMAGE and self.query.on_corrupt == Policy.FAIL:
            raise CorruptBatchError(
                f"damage hides what comes next in {seen.partition}",
                source=self._source.shown,
                offset=start,
                hint="See what is damaged with segreader verify; with on_corrupt='skip' it is waited for",
            )
        return OffsetRange(start, max(start, seen.stop))

    def _refuse_diverged(self, seen: SeenLog, reached: Frontier | Position) -> None:
        refuse_diverged(
            seen,
            reached.next_offset,
            reached.leader_epoch,
            reached.log_end,
            store=self._source.store,
            query=self.query,
            source=self._source.shown,
        )

    def _with_ends(self, splits: Sequence[Split]) -> list[LoaderSplit]:
        """The splits, each with the end of the log by which it was planned: markers up to there decided it."""
        is_committed = self.query.isolation_level is IsolationLevel.READ_COMMITTED
        return [LoaderSplit(one, self._seen[one.partition].end if is_committed else None) for one in splits]

    def _refuse(self, position: Position, seen: SeenLog) -> None:
        """Raise if a position does not fit the partition as it is."""
        shown = self._source.shown
        if position.isolation_level is not self.query.isolation_level:
            raise ForeignPositionError(
                "the position is of a reader of the other isolation level",
                found=position.isolation_level.value,
                expected=self.query.isolation_level.value,
                hint="Ask with the isolation level that the load was begun with, or begin it anew with offsets",
            )
        if None not in (position.topic_id, seen.partition.topic_id) and position.topic_id != seen.partition.topic_id:
            raise recreated(position.topic, seen.partition.topic_id, position.topic_id, shown)
        self._refuse_diverged(seen, position)
        if position.next_offset < seen.start:
            raise deleted(seen, position.next_offset, shown)


def _same(partition: TopicIdPartition, among: Collection[TopicIdPartition]) -> TopicIdPartition | None:
    """The one of these that is this partition: of its topic id, or without one where a layout tells none."""
    if partition in among:
        return partition
    same = [one for one in among if one.partition == partition.partition and one.topic == partition.topic]
    return next((one for one in same if None in (one.topic_id, partition.topic_id)), None)


def deleted(seen: SeenLog, offset: int, source: str | None) -> DeletedPositionError:
    """The error for offsets that retention has taken."""
    return DeletedPositionError(
        f"offsets of {seen.partition} were deleted before they were read",
        source=source,
        offset=seen.start,
        found=f"offsets from {seen.start} on",
        expected=f"offset {offset}",
        hint=f"Go on at offset {seen.start} and pass over {seen.start - offset} offsets, or find another copy; "
        "on_gap='skip' goes on by itself",
    )
