"""A plan for live partitions: asks their leaders, finds what the object store has, and cuts it all into parts.

A driver plans; workers read parts, each with a client of its own. Of three ways to the remote records the plan takes
the one that is there: the segments at a location that was given, locations from the cluster, or the broker itself. What
the store does not have (yet, or any more) is left to the broker. So is what only the broker can tell: which
transactions were aborted by markers behind everything in the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from segreader.broker.messages import TopicMetadata
from segreader.errors import (
    AmbiguousTopicError,
    BrokerError,
    CatalogError,
    FormatError,
    ObjectChangedError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
)
from segreader.format.checkpoints import LeaderEpochs
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.live.cluster import Cluster
from segreader.live.fetching import NOT_OF_THE_DATA, aborted_at_either
from segreader.live.locations import UrlCache, plan_locations
from segreader.live.marks import (
    choose_partitions,
    find_topic,
    offsets_for_time,
    read_ends,
    read_lineage_of_leader,
    read_marks,
    require_history,
)
from segreader.live.metrics import LiveMetrics
from segreader.plan.lineage import DropReason, ResolvedLog
from segreader.plan.live import (
    LivePart,
    LivePartition,
    LivePlan,
    LogMarks,
    ReadFrom,
    Seam,
    covered,
    epoch_before,
    epochs_from,
    place_seam,
    uncovered,
)
from segreader.plan.request import LiveEnd, Policy, Request
from segreader.plan.split import EndReason, Gap, PlannedDrop, ReadEnd, Split
from segreader.ranges import OffsetRange
from segreader.read.options import ReadOptions
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectStore
from segreader.stored.lineage import ReadableLog
from segreader.stored.partition_planner import PartitionPlanner
from segreader.stored.source import Source, SourceLog
from segreader.stored.transactions import TransactionState, read_aborted


def plan_live(
    cluster: Cluster,
    request: Request,
    options: ReadOptions | None = None,
    *,
    source: Source | None = None,
    located: tuple[UrlCache, ObjectStore] | None = None,
    metrics: LiveMetrics | None = None,
) -> LivePlan:
    """Decide what to read and where. The plan is a value: it pickles and holds no client and no secret.

    Args:
        source: the remote tier, if it can be read directly.
        located: URLs and store of located segments, for who may not: then the cluster is asked for locations.

    Raises:
        OffsetOutOfRangeError: offsets are deleted (``on_gap='fail'``), or begin behind the end.
        TruncatedLogError: the group's committed offset is of a lost branch.
        ObjectNotFoundError: the topic or a partition is not there.
        BrokerError: the cluster cannot be asked, or refuses.
    """
    topic = find_topic(cluster, request.topic or "", request.topic_id)
    partitions = choose_partitions(topic, request.partitions, cluster.shown)
    planner = _Planner(cluster, request, options or ReadOptions(), topic, source, located, metrics or LiveMetrics())
    return planner.plan(partitions)


class _Planner:
    def __init__(
        self,
        cluster: Cluster,
        request: Request,
        options: ReadOptions,
        topic: TopicMetadata,
        source: Source | None,
        located: tuple[UrlCache, ObjectStore] | None,
        metrics: LiveMetrics,
    ) -> None:
        self._cluster, self._request, self._options, self._topic = cluster, request, options, topic
        self._name = request.topic or ""
        self._source, self._located, self._metrics = source, located, metrics
        self._store = None
        if source is not None:
            self._store = StorePlanner(cluster, source, topic.topic_id, options)
        self._parts: list[LivePart] = []
        self._ends: list[ReadEnd] = []
        self._gaps: list[Gap] = []
        self._dropped: list[PlannedDrop] = []
        self._notes: list[str] = []
        self._told: list[LivePartition] = []

    def plan(self, partitions: Sequence[int]) -> LivePlan:
        name, level, bounds = self._name, self._request.isolation_level, self._request.bounds
        marks = read_marks(self._cluster, name, partitions, level)
        if bounds.end is LiveEnd.LATEST_STABLE and level is IsolationLevel.READ_UNCOMMITTED:
            stable = read_ends(self._cluster, name, partitions, IsolationLevel.READ_COMMITTED)
            marks = {one: replace(mark, end=min(mark.end, stable[one])) for one, mark in marks.items()}
        wanted = self._wanted(partitions, marks)
        leaders = {one.partition: one.leader.leader_epoch for one in self._topic.partitions}
        seams = {number: self._seam(number, marks[number], *wanted[number]) for number in partitions}
        remote = [number for number, seam in seams.items() if seam.start < seam.seam]
        if self._store is not None and remote:
            self._store.find(name, remote)
        for number, seam in seams.items():
            self._add(number, marks[number], seam, leaders.get(number, -1), wanted[number][1])
        shown = self._cluster.shown if self._source is None else f"{self._source.shown} and {self._cluster.shown}"
        splits = tuple(split for part in self._parts for split in part.splits)
        return LivePlan(
            shown,
            splits,
            tuple(self._ends),
            tuple(self._gaps),
            tuple(self._dropped),
            tuple(self._notes),
            tuple(self._parts),
            tuple(self._told),
        )

    def _wanted(
        self, partitions: Sequence[int], marks: dict[int, LogMarks]
    ) -> dict[int, tuple[int | None, int | None]]:
        """Of each partition the first offset and the stop asked for.

        Raises:
            TruncatedLogError: what the group has read of a partition is no longer in the log.
        """
        bounds, name, level = self._request.bounds, self._name, self._request.isolation_level
        starts: dict[int, int | None] = dict.fromkeys(partitions, bounds.start)
        stops: dict[int, int | None] = dict.fromkeys(partitions, bounds.stop)
        if bounds.group is not None:
            for one in self._cluster.committed_offsets(bounds.group, {name: partitions}):
                if one.topic == name and one.partition in starts and one.offset >= 0:
                    require_history(self._cluster, self._partition(one.partition), one.offset, one.leader_epoch)
                    starts[one.partition] = min(one.offset, marks[one.partition].end)
            self._notes += [
                f"{name}-{number}: group {bounds.group} has committed nothing: from the log start"
                for number in partitions
                if starts[number] is None
            ]
        times = bounds.times
        if times is not None and times.since_ms is not None:
            for number, since in offsets_for_time(self._cluster, name, partitions, times.since_ms, level).items():
                last = marks[number].end
                starts[number] = max(starts[number] or 0, last if since is None else min(since, last))
        if times is not None and times.until_ms is not None:
            for number, until in offsets_for_time(self._cluster, name, partitions, times.until_ms, level).items():
                asked = stops[number]
                stops[number] = until if asked is None or (until is not None and until < asked) else asked
        return {number: (starts[number], stops[number]) for number in partitions}

    def _seam(self, number: int, marks: LogMarks, start: int | None, stop: int | None) -> Seam:
        first = marks.log_start if start is None else start
        try:
            return place_seam(
                marks,
                self._partition(number),
                start=start,
                stop=stop if stop is None else max(stop, first),
                prefers_store=self._request.prefers_store,
                may_have_lost=self._options.on_gap is Policy.SKIP,
            )
        except OffsetOutOfRangeError as error:
            raise error.located(source=self._cluster.shown) from None

    def _partition(self, number: int) -> TopicIdPartition:
        return TopicIdPartition(self._name, number, self._topic.topic_id)

    def _add(self, number: int, marks: LogMarks, seam: Seam, leader_epoch: int, stop: int | None) -> None:
        partition = self._partition(number)
        lineage = LeaderEpochs()
        if seam.start < seam.stop:
            below = max(
                marks.log_start, seam.start - 1
            )  # the record before tells whether a position is of this history
            newest = max(marks.leader_epoch, leader_epoch)
            lineage = read_lineage_of_leader(self._cluster, self._name, number, newest, below)
        if seam.lost is not None and seam.lost.stop is not None:
            self._gaps.append(Gap(partition, seam.lost.start, seam.lost.stop))
        self._told.append(LivePartition(partition, marks, seam, epochs_from(lineage, seam.start)))
        self._ends.append(ReadEnd(partition, seam.stop, self._reason(stop, seam.stop)))
        if seam.start >= seam.stop:
            return
        remote = OffsetRange(seam.start, seam.seam)
        if seam.start < seam.seam:
            for part in self._remote_parts(partition, remote, marks, lineage):
                self._append(part)
        if seam.seam < seam.stop:
            self._append(self._part(partition, OffsetRange(seam.seam, seam.stop), ReadFrom.BROKER, lineage))

    def _append(self, part: LivePart) -> None:
        """Add a part; one of the broker to the one before, if that is one and ends here."""
        last = self._parts[-1] if self._parts else None
        is_same = last is not None and (last.partition, last.offsets.stop) == (part.partition, part.offsets.start)
        if last is not None and is_same and last.read_from is part.read_from is ReadFrom.BROKER:
            offsets = OffsetRange(last.offsets.start, part.offsets.stop)
            self._parts[-1] = replace(last, offsets=offsets, hole=last.hole or part.hole)
        else:
            self._parts.append(part)

    def _remote_parts(
        self,
        partition: TopicIdPartition,
        remote: OffsetRange,
        marks: LogMarks,
        lineage: LeaderEpochs,
    ) -> list[LivePart]:
        if self._store is not None:
            found = self._store.plan(partition, remote, marks, lineage, self._request.isolation_level)
            self._notes += found.notes
            self._dropped += found.dropped
            parts = [
                replace(self._part(partition, one, ReadFrom.BROKER, lineage), hole=found.lacks.get(one.start))
                if isinstance(one, OffsetRange)
                else self._part(partition, one[0].offsets, ReadFrom.STORE, lineage, splits=one)
                for one in found.pieces
            ]
            missing = [part for part in parts if part.read_from is ReadFrom.BROKER]
            self._notes += [
                f"{partition}: offsets {part.offsets.start} to {part.stop - 1} are not in the store: from the broker"
                for part in missing
                if marks.local_start is not None
            ]
            return parts
        whole = self._part(partition, remote, ReadFrom.BROKER, lineage)
        if self._located is None:
            return [whole]
        return plan_locations(
            self._cluster, whole, marks, self._located, self._metrics, max_batch_bytes=self._options.max_batch_bytes
        )

    def _part(
        self,
        partition: TopicIdPartition,
        offsets: OffsetRange,
        read_from: ReadFrom,
        lineage: LeaderEpochs,
        *,
        splits: tuple[Split, ...] = (),
    ) -> LivePart:
        return LivePart(
            partition,
            offsets,
            read_from,
            self._request.isolation_level,
            epochs_from(lineage, offsets.start),
            epoch_before(lineage, offsets.start),
            splits,
            size=sum(split.positions.size for split in splits) if splits else None,
        )

    def _reason(self, wanted: int | None, stop: int) -> EndReason:
        if wanted is not None and stop >= wanted:
            return EndReason.REQUESTED
        is_stable = self._request.isolation_level is IsolationLevel.READ_COMMITTED
        return (
            EndReason.LATEST_STABLE
            if is_stable or self._request.bounds.end is LiveEnd.LATEST_STABLE
            else EndReason.LATEST
        )


@dataclass(frozen=True, slots=True)
class StoreParts:
    """Of one partition, in order: the splits of one segment each, and offsets left to the broker.

    ``lacks`` says what the store lacks of some of these, by their first offset.
    """

    pieces: tuple[tuple[Split, ...] | OffsetRange, ...]
    lacks: Mapping[int, str] = field(default_factory=dict)
    dropped: tuple[PlannedDrop, ...] = ()
    notes: tuple[str, ...] = ()


class StorePlanner:
    """Plans the remote parts of one topic's partitions.

    Args:
        topic_id: of the live topic: segments of a deleted one of that name are none of it.
    """

    def __init__(
        self,
        cluster: Cluster,
        source: Source,
        topic_id: str | None,
        options: ReadOptions,
    ) -> None:
        self._cluster, self._source, self._topic_id = cluster, source, topic_id
        self._options = replace(options, on_gap=Policy.SKIP, on_missing=Policy.FAIL)  # the broker may have it
        self._logs: dict[int, SourceLog] = {}

    def find(self, topic: str, partitions: Sequence[int]) -> None:
        """Look for these partitions in one listing; ``plan`` looks for one by one that is not found so."""
        try:
            for one in self._source.logs(topic=topic, topic_id=self._topic_id, partitions=partitions):
                self._logs[one.log.partition.partition] = one
        except (ObjectNotFoundError, AmbiguousTopicError):
            return

    def _find(self, topic: str, number: int) -> SourceLog:
        """One partition's log: of the live topic's id, or without an id where the layout knows none."""
        if (known := self._logs.pop(number, None)) is not None:
            return known
        failure: ObjectNotFoundError | None = None
        for topic_id in dict.fromkeys((self._topic_id, None)):
            try:
                found = list(self._source.logs(topic=topic, topic_id=topic_id, partitions=[number]))
            except (ObjectNotFoundError, AmbiguousTopicError) as error:
                if isinstance(error, ObjectNotFoundError):
                    failure = failure or error
                continue
            for one in found:
                if one.log.partition.topic_id in (None, self._topic_id) or self._topic_id is None:
                    return one
        raise failure or ObjectNotFoundError("the store has only segments of another topic of that name")

    def plan(
        self,
        partition: TopicIdPartition,
        remote: OffsetRange,
        marks: LogMarks,
        lineage: LeaderEpochs,
        isolation_level: IsolationLevel,
    ) -> StoreParts:
        """The remote offsets of one partition as splits, and what is left.

        Args:
            remote: offsets below the seam.
            lineage: of the live log: what is of another branch is not read.
        """
        notes: list[str] = []
        try:
            source = self._find(partition.topic, partition.partition)
        except ObjectNotFoundError as error:
            lacks = {remote.start: str(error)}
            return StoreParts((remote,), lacks, notes=(f"{partition}: {error}; its remote part comes from the broker",))
        log_start = max(marks.log_start, source.log.log_start or 0)
        source = replace(
            source, log=replace(source.log, log_start=log_start), leader_epochs=lineage if lineage else None
        )
        planner = _RunPlanner(self._source.store, self._options, isolation_level=isolation_level)
        try:
            readable = planner.resolve(source)
            runs = covered(readable.resolved, remote)
            read: list[OffsetRange] = []
            for run in runs:
                try:
                    planner.aborted = self._aborted(partition, readable.resolved, run, marks, isolation_level)
                except BrokerError as error:
                    if isinstance(error, NOT_OF_THE_DATA):
                        raise
                    stop = run.stop or run.start
                    notes.append(f"{partition}: offsets {run.start} to {stop - 1} come from the broker: {error}")
                    continue
                planner.add(source, run, readable=readable)
                read.append(run)
        except (ObjectNotFoundError, ObjectChangedError, FormatError, CatalogError) as error:
            notes.append(f"{error}; the remote part of {partition} comes from the broker")
            return StoreParts((remote,), {remote.start: str(error)}, notes=tuple(notes))
        plan = planner.plan("")
        splits = [replace(split, partition=partition) for split in plan.splits]
        rest = uncovered(remote, read)
        lacks = {one.start: self._lack(source, readable.resolved, one) for one in rest if one not in runs}
        pieces: list[tuple[Split, ...] | OffsetRange] = [*rest]
        pieces += [tuple(some) for _, some in groupby(splits, lambda split: (split.log, split.offsets))]
        pieces.sort(key=_place)
        dropped = tuple(one for one in plan.dropped if one.reason is not DropReason.BELOW_LOG_START)
        return StoreParts(tuple(pieces), lacks, tuple(dict.fromkeys(dropped)), (*notes, *dict.fromkeys(plan.notes)))

    def _lack(self, source: SourceLog, log: ResolvedLog, offsets: OffsetRange) -> str:
        """What the store lacks of offsets that no segment has."""
        start, stop = offsets.start, offsets.stop or offsets.start
        found = [
            f"{self._source.store.url(one.name)} is there without its {' and '.join(one.missing)}"
            for one in source.log.incomplete
            if start <= one.base_offset < stop
        ]
        found += [
            f"segment {one.segment_id} with offsets {one.base_offset} to {one.last_offset} is not there"
            for one in source.log.missing
            if one.base_offset < stop and (one.last_offset is None or one.last_offset >= start)
        ]
        before = [part.segment.files.log for part in log.parts if part.stop <= start]
        behind = f" behind {self._source.store.url(before[-1])}" if before else ""
        return "; ".join(found) or f"no segment of the store has offsets {start} to {stop - 1}{behind}"

    def _aborted(
        self,
        partition: TopicIdPartition,
        log: ResolvedLog,
        run: OffsetRange,
        marks: LogMarks,
        isolation_level: IsolationLevel,
    ) -> AbortedTransactions:
        """The aborted transactions that reach into a run: of the transaction indexes from it on, and of the broker
        where these do not say that all is decided, because a marker may lie behind them."""
        if isolation_level is not IsolationLevel.READ_COMMITTED or run.stop is None:
            return AbortedTransactions()
        reach = run.stop
        for part in log.parts:
            if part.start <= reach < part.stop:
                reach = part.stop
        parts = [part for part in log.parts if part.start < reach]
        rows, is_decided = read_aborted(self._source.store, log, parts, run)
        if not is_decided:
            at = max(run.start, min(reach, marks.end - 1))
            rows += aborted_at_either(self._cluster, partition, at, max(run.start, run.stop - 1), rows)
        return AbortedTransactions(rows)


class _RunPlanner(PartitionPlanner):
    """Plans runs of segments whose transactions are known already."""

    aborted = AbortedTransactions()
    behind_last = ()  # the broker has more

    def _read_state(self, source: SourceLog, readable: ReadableLog, wanted: OffsetRange) -> TransactionState:
        return TransactionState(self.aborted)


def _place(piece: tuple[Split, ...] | OffsetRange) -> int:
    return piece.start if isinstance(piece, OffsetRange) else piece[0].offsets.start
