"""What to read, as values: small, picklable, printable, and without a client or a secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import TopicIdPartition


@dataclass(frozen=True, slots=True)
class Split:
    """What one worker reads: some whole batches of one segment, and the offsets wanted of them.

    Args:
        partition: whose records.
        log: name of the log object in its store.
        log_size: bytes of that object when it was planned.
        positions: the bytes to read; they begin and end at batch boundaries.
        offsets: the offsets wanted; records outside are dropped.
        isolation_level: which records a reader may see.
        aborted: the aborted transactions that reach into this split.
        is_active: a broker may still be appending to the segment.
        base_offset: of the segment: no batch of it begins below.
        next_base_offset: where the next segment begins; a batch at or past it means that two segments overlap.
        offset_index: name of the offset index, to find a batch again after damage.
        offset_bound: every batch of the split lies below it, where the index says so.
    """

    partition: TopicIdPartition
    log: str
    log_size: int
    positions: ByteRange
    offsets: OffsetRange
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    aborted: AbortedTransactions = field(default_factory=AbortedTransactions)
    is_active: bool = False
    base_offset: int = 0
    next_base_offset: int | None = None
    offset_index: str | None = None
    offset_bound: int | None = None

    @property
    def is_last_of_segment(self) -> bool:
        """Whether the split ends where the segment does."""
        return self.positions.stop >= self.log_size


@dataclass(frozen=True, slots=True)
class Undecided:
    """Where the decided part of a partition ends: from ``offset`` on, the files do not say what is committed.

    ``producer_id`` has the earliest transaction that is open at the end of what is there; ``DAMAGED`` stands for none:
    damage hides the markers.
    """

    DAMAGED: ClassVar[int] = -1

    partition: TopicIdPartition
    offset: int
    producer_id: int


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Everything a read will do, decided before any record is read.

    ``splits`` are ordered by topic, partition and position. ``undecided`` names the partitions of which
    ``read_committed`` can return only a part; reading them to their end raises ``UndecidedTransactionError``.
    """

    location: str
    splits: tuple[Split, ...]
    undecided: tuple[Undecided, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Stored bytes of all splits."""
        return sum(split.positions.size for split in self.splits)

    @property
    def partitions(self) -> tuple[TopicIdPartition, ...]:
        """The partitions with something to read, in order."""
        return tuple(dict.fromkeys(split.partition for split in self.splits))
