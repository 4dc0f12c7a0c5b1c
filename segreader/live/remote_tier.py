"""The remote part of a live partition by the store that holds it: segments of the leader's own history, as splits.

What the store does not have (yet, or any more) is left to the broker. So is what only the broker can tell: which
transactions were aborted by markers that lie behind everything in the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import groupby

from segreader.errors import (
    AmbiguousTopicError,
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    CatalogError,
    ConnectionFailedError,
    FormatError,
    ObjectChangedError,
    ObjectNotFoundError,
    TruncatedLogError,
)
from segreader.format.checkpoints import LeaderEpochs
from segreader.format.index_files import AbortedTransaction
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.live.cluster import Cluster
from segreader.plan.lineage import DropReason, ResolvedLog
from segreader.plan.live import BEYOND, LogMarks, covered, uncovered
from segreader.plan.request import Policy
from segreader.plan.split import PlannedDrop, Split
from segreader.ranges import OffsetRange
from segreader.read.options import ReadOptions
from segreader.segment import TopicIdPartition
from segreader.stored.lineage import ReadableLog
from segreader.stored.partition_planner import PartitionPlanner
from segreader.stored.source import Source, SourceLog
from segreader.stored.transactions import TransactionState, read_aborted

_POLLS = 120
NOT_OF_THE_DATA = (AuthenticationError, AuthorizationError, TruncatedLogError)
"""What every request of this reader meets, whichever offset it is about."""


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


def aborted_at_either(
    cluster: Cluster, partition: TopicIdPartition, behind: int, within: int, known: Sequence[AbortedTransaction]
) -> list[AbortedTransaction]:
    """As ``aborted_across``, at the offset behind some segments; at the last one within them where that one cannot be
    read, because its object is lost. Those that are ``known`` are left out.

    Raises:
        BrokerError: neither can be read.
    """
    try:
        found = aborted_across(cluster, partition, behind)
    except BrokerError as error:
        if within >= behind or isinstance(error, NOT_OF_THE_DATA):
            raise
        found = aborted_across(cluster, partition, within)
    ended = {(row.producer_id, row.first_offset) for row in known}
    return [row for row in found if (row.producer_id, row.first_offset) not in ended]


def aborted_across(cluster: Cluster, partition: TopicIdPartition, offset: int) -> list[AbortedTransaction]:
    """The aborted transactions that began at or before ``offset`` and ended at or behind it, asked by a small Fetch.

    The broker tells no ends: here they reach beyond everything that is read. At the last stable offset itself it would
    list none, so that ``offset`` must lie below.

    Raises:
        ConnectionFailedError: it gives no records of that offset.
    """
    fetcher = cluster.fetcher(
        partition.topic,
        partition.partition,
        offset,
        isolation_level=IsolationLevel.READ_COMMITTED,
        topic_id=partition.topic_id,
        max_bytes=1,
    )
    with closing(fetcher):
        for _ in range(_POLLS):
            answer = fetcher.poll()
            if answer.records is not None and len(answer.records) and answer.aborted is not None:
                return [AbortedTransaction(one, first, BEYOND, BEYOND) for one, first in answer.aborted]
    raise ConnectionFailedError(
        "which transactions were aborted cannot be asked",
        source=f"{cluster.shown}/{partition}",
        offset=offset,
        found="empty answers",
        expected="a record batch, and the aborted transactions that overlap it",
    )


def _place(piece: tuple[Split, ...] | OffsetRange) -> int:
    return piece.start if isinstance(piece, OffsetRange) else piece[0].offsets.start
