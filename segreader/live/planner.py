"""A plan for live partitions: asks their leaders, finds what the object store has, and cuts it all into parts.

A driver plans; workers read parts, each with a client of its own. Of three ways to the remote records the plan takes
the one that is there: the segments at a location that was given, locations from the cluster, or the broker itself. What
the store does not have (yet, or any more) is left to the broker. So is what only the broker can tell: which
transactions were aborted by markers behind everything in the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from itertools import groupby

from segreader.broker.messages import FetchPartition
from segreader.catalog.listing import Wanted
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
from segreader.live.fetching import NOT_OF_THE_DATA, FetchedAnswer, aborted_at_either
from segreader.live.locations import UrlCache, locate_remote, plan_locations
from segreader.live.marks import (
    choose_partitions,
    find_topic,
    offsets_for_time,
    read_lineage_of_leader,
    read_marks,
    read_stable_ends,
    require_history,
)
from segreader.plan.cut import Cutting
from segreader.plan.lineage import DropReason, ResolvedLog
from segreader.plan.live import (
    LivePart,
    LivePartition,
    LivePlan,
    LogMarks,
    ReadFrom,
    Seam,
    covered,
    cut_by_offsets,
    epoch_before,
    epochs_from,
    joined,
    narrowed,
    place_seam,
    uncovered,
)
from segreader.plan.request import LiveEnd, Policy, ReadOptions, Request
from segreader.plan.split import EndReason, Gap, PlannedDrop, ReadEnd
from segreader.ranges import OffsetRange
from segreader.read.metrics import LiveMetrics
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectStore, read_each
from segreader.stored.planner import PartitionPlanner
from segreader.stored.source import Source, SourceLog
from segreader.stored.transactions import TransactionState, read_aborted
from segreader.values import dataclass


def plan_live(
    cluster: Cluster,
    request: Request,
    options: ReadOptions | None = None,
    *,
    source: Source | None = None,
    located: tuple[UrlCache, ObjectStore] | None = None,
    metrics: LiveMetrics | None = None,
    cutting: Cutting | None = None,
) -> LivePlan:
    """Decide what to read and where. The plan is a value: it pickles and holds no client and no secret.

    Args:
        source: the remote tier, if it can be read directly.
        located: URLs and store of located segments, for who may not: then the cluster is asked for locations.
        cutting: how segments are cut. By default a part is a whole segment, with splits by bytes; where splits have
            offsets of their own, a part is one split, and others than those of the store are cut by offsets.

    Raises:
        OffsetOutOfRangeError: offsets are deleted (``on_gap='fail'``), or begin behind the end.
        TruncatedLogError: the group's committed offset is of a lost branch.
        ObjectNotFoundError: the topic or a partition is not there.
        BrokerError: the cluster cannot be asked, or refuses.
    """
    return plan_topics(cluster, [request], options, source=source, located=located, metrics=metrics, cutting=cutting)


def plan_topics(
    cluster: Cluster,
    requests: Sequence[Request],
    options: ReadOptions | None = None,
    *,
    source: Source | None = None,
    located: tuple[UrlCache, ObjectStore] | None = None,
    metrics: LiveMetrics | None = None,
    cutting: Cutting | None = None,
) -> LivePlan:
    """As ``plan_live``, of several topics, or partitions with bounds of their own, that are cut as one read."""
    options, metrics = options or ReadOptions(), metrics or LiveMetrics()
    cutting = cutting or Cutting(split_bytes=options.split_bytes)
    planners = [_TopicPlanner(cluster, one, options, source, located, metrics, cutting) for one in requests]
    found = [one for some in read_each(_TopicPlanner.find, planners) for one in some]
    found.sort(key=lambda one: one.told.partition.order)
    cutting = cutting.by_offsets(sum(one.told.seam.stop - one.told.seam.start for one in found))
    cutting = cutting.of_all([size for one in found for size in one.sizes])
    notes = [note for one in planners for note in one.notes]
    dropped: list[PlannedDrop] = []
    parts = [part for one in found for part in one.cut(cutting, notes, dropped)]
    return LivePlan(
        cluster.shown if source is None else f"{source.shown} and {cluster.shown}",
        tuple(split for part in parts for split in part.splits),
        tuple(one.end for one in found),
        tuple(
            Gap(one.told.partition, lost.start, lost.stop)
            for one in found
            if (lost := one.told.seam.lost) is not None and lost.stop is not None
        ),
        tuple(dropped),
        tuple(notes),
        tuple(parts),
        tuple(one.told for one in found),
    )


_FAILURES = (ObjectNotFoundError, ObjectChangedError, FormatError, CatalogError)
"""What a store fails with where the broker may still have the records."""


@dataclass(slots=True)
class _UncutPartition:
    """One partition, before it is cut.

    Args:
        parts: of the broker and by location, in order.
        remote: with a store, all offsets below the seam as one part of the broker.
        stored: what the store has of these; the others are in ``parts``.
    """

    told: LivePartition
    end: ReadEnd
    parts: list[LivePart] = field(default_factory=list)
    remote: LivePart | None = None
    stored: PartitionPlanner | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def sizes(self) -> list[int]:
        """Stored bytes of what would be one part each if nothing were cut; 0 where they are not known."""
        return [part.size or 0 for part in self.parts] + ([] if self.stored is None else self.stored.sizes)

    def cut(self, cutting: Cutting, notes: list[str], dropped: list[PlannedDrop]) -> Iterator[LivePart]:
        """The parts, in order; what is remarkable about them is added to ``notes`` and ``dropped``."""
        parts = self.parts
        notes += self.notes
        if self.remote is not None:
            parts = self._with_store(self.remote, cutting, notes, dropped)
            if self.told.marks.local_start is not None:
                lacking = [one for one in parts if one.read_from is ReadFrom.BROKER and one.stop <= self.remote.stop]
                notes += [
                    f"{one.partition}: {_shown(one.offsets)} are not in the store: from the broker" for one in lacking
                ]
        for part in joined(parts):
            if part.read_from is ReadFrom.STORE:
                yield part
            else:
                yield from cut_by_offsets(part, cutting)

    def _with_store(
        self, remote: LivePart, cutting: Cutting, notes: list[str], dropped: list[PlannedDrop]
    ) -> list[LivePart]:
        if self.stored is None:
            return self.parts
        try:
            plan = self.stored.plan("", cutting)
        except _FAILURES as error:
            notes.append(_left(remote.partition, error))
            local = [part for part in self.parts if part.offsets.start >= remote.stop]
            return [replace(remote, hole=str(error)), *local]
        notes += dict.fromkeys(plan.notes)
        dropped += dict.fromkeys(one for one in plan.dropped if one.reason is not DropReason.BELOW_LOG_START)
        splits = [replace(split, partition=remote.partition) for split in plan.splits]
        stored = []
        for _, some in groupby(splits, lambda split: (split.log, split.offsets)):
            same = tuple(some)
            part = narrowed(remote, same[0].offsets)
            size = sum(split.positions.size for split in same)
            stored.append(replace(part, read_from=ReadFrom.STORE, splits=same, size=size))
        return sorted([*stored, *self.parts], key=lambda part: part.offsets.start)


class _TopicPlanner:
    """Asks the leaders of one topic, and finds what the store has of it or where the cluster locates it."""

    def __init__(
        self,
        cluster: Cluster,
        request: Request,
        options: ReadOptions,
        source: Source | None,
        located: tuple[UrlCache, ObjectStore] | None,
        metrics: LiveMetrics,
        cutting: Cutting,
    ) -> None:
        self._cluster, self._request, self._options, self._cutting = cluster, request, options, cutting
        self._name = request.topic or ""
        self._source, self._located, self._metrics = source, located, metrics
        self._topic_id: str | None = None
        self.notes: list[str] = []

    def find(self) -> list[_UncutPartition]:
        """The partitions asked for, in order."""
        name, level, bounds = self._name, self._request.isolation_level, self._request.bounds
        topic = find_topic(self._cluster, name, self._request.topic_id)
        partitions = choose_partitions(topic, self._request.partitions, self._cluster.shown)
        self._topic_id = topic.topic_id
        marks = read_marks(self._cluster, name, partitions, level)
        if bounds.end is LiveEnd.LATEST_STABLE and level is IsolationLevel.READ_UNCOMMITTED:
            stable = read_stable_ends(self._cluster, name, partitions)
            marks = {one: replace(mark, end=min(mark.end, stable[one])) for one, mark in marks.items()}
        wanted = self._wanted(partitions, marks)
        leaders = {one.partition: one.leader.leader_epoch for one in topic.partitions}
        seams = {number: self._seam(number, marks[number], *wanted[number]) for number in partitions}
        remote = [number for number, seam in seams.items() if seam.start < seam.seam]
        store = None
        if self._source is not None and remote:
            store = StorePlanner(self._cluster, self._source, topic.topic_id, self._options, self._cutting)
            store.find(name, remote)
        answers: dict[int, list[FetchedAnswer]] = {}
        if store is None and self._located is not None and remote:
            places = [
                FetchPartition(
                    name, topic.topic_id, number, seams[number].start, max_bytes=1, stop_offset=seams[number].seam
                )
                for number in remote
            ]
            answers = locate_remote(self._cluster, places, level)
        return [
            self._uncut(
                number, marks[number], seam, leaders.get(number, -1), wanted[number][1], store, answers.get(number, ())
            )
            for number, seam in seams.items()
        ]

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
            self.notes += [
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
        return TopicIdPartition(self._name, number, self._topic_id)

    def _uncut(
        self,
        number: int,
        marks: LogMarks,
        seam: Seam,
        leader_epoch: int,
        stop: int | None,
        store: StorePlanner | None,
        answers: Sequence[FetchedAnswer],
    ) -> _UncutPartition:
        partition, level = self._partition(number), self._request.isolation_level
        end = ReadEnd(partition, seam.stop, self._reason(stop, seam.stop))
        if seam.start >= seam.stop:
            return _UncutPartition(LivePartition(partition, marks, seam), end)
        newest = max(marks.leader_epoch, leader_epoch)
        below = max(marks.log_start, seam.start - 1)  # the record before shows whether a position is of this history
        lineage = read_lineage_of_leader(self._cluster, self._name, number, newest, below)
        epochs = epochs_from(lineage, seam.start)
        whole = LivePart(
            partition,
            OffsetRange(seam.start, seam.stop),
            ReadFrom.BROKER,
            level,
            epochs,
            epoch_before(lineage, seam.start),
        )
        found = _UncutPartition(LivePartition(partition, marks, seam, epochs), end)
        remote = narrowed(whole, OffsetRange(seam.start, seam.seam))
        if seam.start < seam.seam and store is not None:
            store.plan(found, remote, lineage)
        elif seam.start < seam.seam and self._located is not None:
            found.parts = plan_locations(
                self._cluster,
                remote,
                marks,
                self._located,
                self._metrics,
                max_batch_bytes=self._options.max_batch_bytes,
                answers=answers,
            )
        elif seam.start < seam.seam:
            found.parts = [remote]
        if seam.seam < seam.stop:
            found.parts = [*found.parts, narrowed(whole, OffsetRange(seam.seam, seam.stop))]
        return found

    def _reason(self, wanted: int | None, stop: int) -> EndReason:
        if wanted is not None and stop >= wanted:
            return EndReason.REQUESTED
        is_stable = self._request.isolation_level is IsolationLevel.READ_COMMITTED
        return (
            EndReason.LATEST_STABLE
            if is_stable or self._request.bounds.end is LiveEnd.LATEST_STABLE
            else EndReason.LATEST
        )


class StorePlanner:
    """Finds the remote parts of one topic's partitions.

    Args:
        topic_id: of the live topic: segments of a deleted one of that name are none of it.
    """

    def __init__(
        self,
        cluster: Cluster,
        source: Source,
        topic_id: str | None,
        options: ReadOptions,
        cutting: Cutting,
    ) -> None:
        self._cluster, self._source, self._topic_id, self._cutting = cluster, source, topic_id, cutting
        self._options = replace(options, on_gap=Policy.SKIP, on_missing=Policy.FAIL)  # the broker may have it
        self._logs: dict[int, SourceLog] = {}

    def find(self, topic: str, partitions: Sequence[int]) -> None:
        """Look for these partitions in one listing; ``plan`` looks for one by one that is not found so."""
        try:
            for one in self._source.logs(Wanted(topic, self._topic_id, partitions)):
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
                found = list(self._source.logs(Wanted(topic, topic_id, [number])))
            except (ObjectNotFoundError, AmbiguousTopicError) as error:
                if isinstance(error, ObjectNotFoundError):
                    failure = failure or error
                continue
            for one in found:
                if one.log.partition.topic_id in (None, self._topic_id) or self._topic_id is None:
                    return one
        raise failure or ObjectNotFoundError("the store has only segments of another topic of that name")

    def plan(self, found: _UncutPartition, whole: LivePart, lineage: LeaderEpochs) -> None:
        """Find what the store has of the offsets below the seam; what is left is the broker's.

        Args:
            whole: these offsets, as one part of the broker.
            lineage: of the live log: what is of another branch is not read.
        """
        partition, remote, marks = whole.partition, whole.offsets, found.told.marks
        found.remote = whole
        try:
            source = self._find(partition.topic, partition.partition)
        except ObjectNotFoundError as error:
            found.notes.append(f"{partition}: {error}; its remote part comes from the broker")
            found.parts = [replace(whole, hole=str(error))]
            return
        log_start = max(marks.log_start, source.log.log_start or 0)
        source = replace(
            source, log=replace(source.log, log_start=log_start), leader_epochs=lineage if lineage else None
        )
        level = whole.isolation_level
        planner = PartitionPlanner(
            self._source.store, self._options, isolation_level=level, cutting=self._cutting, ends_log=False
        )
        try:
            log = planner.log(source)
            runs = covered(log.resolved, remote)
            read: list[OffsetRange] = []
            for run in runs:
                try:
                    aborted = self._aborted(partition, log.resolved, run, marks, level)
                except BrokerError as error:
                    if isinstance(error, NOT_OF_THE_DATA):
                        raise
                    found.notes.append(f"{partition}: {_shown(run)} come from the broker: {error}")
                    continue
                planner.add(log, run, transactions=TransactionState(aborted))
                read.append(run)
        except _FAILURES as error:
            found.notes.append(_left(partition, error))
            found.parts = [replace(whole, hole=str(error))]
            return
        found.stored = planner
        found.parts = [
            replace(narrowed(whole, one), hole=None if one in runs else self._lack(source, log.resolved, one))
            for one in uncovered(remote, read)
        ]

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


def _shown(offsets: OffsetRange) -> str:
    return f"offsets {offsets.start} to {(offsets.stop or offsets.start) - 1}"


def _left(partition: TopicIdPartition, error: Exception) -> str:
    return f"{error}; the remote part of {partition} comes from the broker"
