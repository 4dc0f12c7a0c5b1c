"""Plans of plain logs in a list of URLs, made before these are read.

Nothing beside such logs shows where they end and which of their transactions are open, so a plan that knows has read
them all. Here their names, sizes, first and last batches are believed; the reader of the plan proves it. At the first
batch of a transaction it stops, the rest of that partition is replayed, and a plan of the rest goes on there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from typing import Final, Self

from segreader.errors import CatalogError, FormatError, StorageError
from segreader.format.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, parse_batch_header
from segreader.isolation import IsolationLevel
from segreader.plan.split import Assumed, ReadPlan, Split, join_plans
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import Segment, SegmentFiles, TopicIdPartition
from segreader.storage.base import ObjectStore, read_each
from segreader.stored.planner import PartitionPlanner
from segreader.stored.segment_ends import read_assumed_end
from segreader.stored.source import SourceLog
from segreader.stored.transactions import NOWHERE
from segreader.values import dataclass

_FIRST_LOOK: Final = 4 << 10
"""Bytes at the beginning of a log: a list of URLs has them already."""

_MARKED: Final = CONTROL_FLAG | TRANSACTIONAL_FLAG


@dataclass(frozen=True, slots=True)
class PlainLogs:
    """One partition of plain logs that follow each other by what their last batches say.

    Args:
        source: their segments, with these ends.
        ends: those that only reading proves: the last offset, by the name of the log.
        offsets: those asked for; they begin with the first log.
        has_transactions: a first or a last batch belongs to one.
    """

    source: SourceLog
    ends: Mapping[str, int]
    offsets: OffsetRange
    has_transactions: bool

    @classmethod
    def of(cls, store: ObjectStore, source: SourceLog, offsets: OffsetRange, max_batch_bytes: int) -> Self | None:
        """The partition of a listing; ``None`` where its logs are not plain or do not follow each other."""
        log, segments = source.log, source.log.segments
        if source.local is not None or log.missing or log.too_short or log.incomplete or not segments:
            return None
        if not all(map(_is_plain, segments)) or offsets.start > segments[0].base_offset:
            return None
        lasts = read_each(lambda one: read_assumed_end(store, one, max_batch_bytes), segments)
        ended: list[Segment] = []
        for segment, last in zip(segments, lasts, strict=True):
            if last is None or last.last_offset < segment.base_offset:
                return None
            ended.append(replace(segment, last_offset=last.last_offset))
        if any((one.last_offset or 0) + 1 != two.base_offset for one, two in pairwise(ended)):
            return None
        if len(ended) == 1:
            ended = list(segments)  # only reading tells its end
        bare = [one for one in ended if one.last_offset is not None and one.files.offset_index is None]
        return cls(
            replace(source, log=replace(log, segments=tuple(ended))),
            {one.files.log: one.last_offset for one in bare if one.last_offset is not None},
            offsets,
            any(last is not None and last.attributes & _MARKED for last in lasts)
            or any(read_each(lambda one: _begins_in_transaction(store, one), segments)),
        )

    def plan(
        self,
        planner: PartitionPlanner,
        location: str,
        replay_from: tuple[str, int] | None = None,
        offsets: OffsetRange | None = None,
    ) -> ReadPlan | None:
        """The plan of some offsets; ``None`` where only that of the whole listing will do.

        Args:
            planner: a new one.
            replay_from: the log and the byte from which on there are transactions; ``NOWHERE`` if there are none.
            offsets: all by default.
        """
        wanted = offsets or self.offsets
        try:
            stored = planner.log(self.source)
            log = stored.resolved
            if log.holes or log.dropped or len(log.parts) != len(self.source.log.segments):
                return None
            state = planner.read_state(stored, wanted, replay_from)
            if state.damage is not None or (replay_from == NOWHERE and (len(state.aborted) or state.notes)):
                return None
            planner.add(stored, wanted, transactions=state)
            return planner.plan(location)
        except (FormatError, CatalogError, StorageError):
            return None


class DraftPlan:
    """The plans of some partitions, of which reading proves some.

    Args:
        plans: of each partition, in order.
        assumed: what those are made of that are to be proven, and whether they are taken to have no transactions.
        open_planner: gives a new planner.
    """

    def __init__(
        self,
        location: str,
        plans: Mapping[TopicIdPartition, ReadPlan],
        assumed: Mapping[TopicIdPartition, tuple[PlainLogs, bool]],
        open_planner: Callable[[], PartitionPlanner],
    ) -> None:
        self._location, self._plans, self._assumed, self._open_planner = location, plans, assumed, open_planner

    @property
    def plan(self) -> ReadPlan:
        """All of them, as far as they are known."""
        return join_plans(self._location, self._plans.values())

    @property
    def assumed(self) -> Assumed:
        """What is still to be proven."""
        ends = {name: last for logs, _ in self._assumed.values() for name, last in logs.ends.items()}
        return Assumed(ends, frozenset(partition for partition, (_, is_plain) in self._assumed.items() if is_plain))

    def replayed(self, split: Split, position: int, base_offset: int) -> tuple[DraftPlan, ReadPlan] | None:
        """This with the transactions of a partition from the first one on, and the plan of what is left to read.

        ``None`` where a replay does not tell it.

        Args:
            split: in which it was met; what is before it was read.
            position, base_offset: of that batch.
        """
        partition = split.partition
        (logs, _), before = self._assumed[partition], self._plans[partition]
        offsets = OffsetRange(base_offset, logs.offsets.stop)
        rest = logs.plan(self._open_planner(), self._location, (split.log, position), offsets)
        if rest is None:
            return None
        rest = replace(rest, splits=tuple(_from(one, split.log, position) for one in rest.splits))
        done = list(before.splits[: before.splits.index(split)])
        if position > split.positions.start:
            done.append(
                replace(
                    split,
                    positions=ByteRange(split.positions.start, position),
                    offsets=OffsetRange(split.offsets.start, base_offset),
                    offset_bound=None,
                    reaches=None,
                )
            )
        order = list(self._plans)
        behind = [self._plans[one] for one in order[order.index(partition) + 1 :]]
        plans = {**self._plans, partition: replace(rest, splits=(*done, *rest.splits))}
        draft = DraftPlan(self._location, plans, {**self._assumed, partition: (logs, False)}, self._open_planner)
        return draft, join_plans(self._location, [rest, *behind])


def plan_plain_logs(
    logs: PlainLogs, open_planner: Callable[[], PartitionPlanner], location: str, isolation_level: IsolationLevel
) -> tuple[ReadPlan, bool] | None:
    """The first plan of a partition, and whether it takes it to have no transactions; ``None`` as of ``plan``."""
    is_committed = isolation_level is IsolationLevel.READ_COMMITTED
    if is_committed and not logs.has_transactions and (found := logs.plan(open_planner(), location, NOWHERE)):
        return found, True
    found = logs.plan(open_planner(), location) if logs.ends else None  # else nothing is assumed
    return None if found is None else (found, False)


def _is_plain(segment: Segment) -> bool:
    files = segment.files
    is_bare = isinstance(files, SegmentFiles) and files.producer_snapshot is None and files.leader_epochs is None
    is_known = segment.last_offset is not None or segment.epochs is not None
    is_odd = segment.is_active or segment.is_padded or segment.chunk_size is not None
    return is_bare and segment.log_size > 0 and not is_known and not is_odd


def _begins_in_transaction(store: ObjectStore, segment: Segment) -> bool:
    """Whether one of the first batches belongs to a transaction."""
    with closing(store.read_pieces(segment.files.log, ByteRange(0, min(_FIRST_LOOK, segment.log_size)))) as pieces:
        data = b"".join(pieces)
    at = 0
    try:
        while True:
            header = parse_batch_header(memoryview(data), at)
            if header.attributes & _MARKED:
                return True
            at += header.size
    except FormatError:  # reading says so
        return False


def _from(split: Split, log: str, position: int) -> Split:
    """A split without the bytes of a log before a position."""
    if split.log != log or not split.positions.start < position < split.positions.stop:
        return split
    return replace(split, positions=ByteRange(position, split.positions.stop), first_bound=None)
