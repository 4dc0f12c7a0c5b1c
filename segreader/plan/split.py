"""What to read, as values: small, picklable, printable, and without a client or a secret."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Final, overload

from segreader.errors import FormatError, shown_count
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.plan.lineage import DropReason
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import TopicIdPartition
from segreader.values import dataclass

END_OF_LOG: Final = ("", 0, 0)
"""In ``Split.following``: no log follows."""

LOOK_AHEAD: Final = 1 << 20
"""Bytes behind a split in which a reader looks for the marker of a transaction that it ends in."""

MOST_LOGS_AHEAD: Final = 16
"""Logs that hold them: segments are larger, unless somebody made them small."""


class LogsAhead(Sequence[tuple[str, int, int]]):
    """``Split.following``: a log, and those behind it, as many as may have to be looked into.

    The splits of a partition share their tails: as tuples, those of 100,000 small segments would need 20 MB, and their
    names in JSON 150 MB.
    """

    __slots__ = ("log", "size", "stop", "then")

    def __init__(self, log: str, size: int, stop: int, then: Sequence[tuple[str, int, int]] = ()) -> None:
        self.log = log
        self.size = size
        self.stop = stop
        self.then = then

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        room, count = LOOK_AHEAD, 0
        ahead: Sequence[tuple[str, int, int]] = self
        while isinstance(ahead, LogsAhead):
            if room <= 0 or count == MOST_LOGS_AHEAD:
                return
            yield ahead.log, ahead.size, ahead.stop
            room, count, ahead = room - ahead.size, count + 1, ahead.then
        for one in ahead:
            if one != END_OF_LOG and (room <= 0 or count == MOST_LOGS_AHEAD):
                return
            yield one
            room, count = room - one[1], count + 1

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, index: int) -> tuple[str, int, int]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[tuple[str, int, int], ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._few()[index]

    def __eq__(self, other: object) -> bool:
        return self._few() == tuple(iter(other)) if isinstance(other, LogsAhead | tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._few())

    def __repr__(self) -> str:
        return repr(self._few())

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self._few(),)

    def _few(self) -> tuple[tuple[str, int, int], ...]:
        return tuple(iter(self))


@dataclass(frozen=True, slots=True, kw_only=True)
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
        offset_index: name of the offset index, to find a batch again after damage.
        offset_bound: upper bound of the split's offsets, if the index gives one, or at the end the catalogue.
        epochs: leader epochs of the live log and the first offset of each, starting with the epoch of the first offset
            wanted; empty if the segment's epochs are unknown. A batch with another epoch is damaged.
        is_padded: zeros after the last batch are not damage.
        stop_of_part: another segment is read from this offset on, whatever this one has.
        first_bound: the first batch of the split begins at or before it, if the index gives it.
        chunk_size: of its segment, to cut the split: see ``Segment``.
        log_tag: which version of the log object was planned; a reader that meets another one raises. ``None`` for an
            active segment, and if the store lists none.
        timed: an offset in the time index: a batch of the log has it.
        reaches: the largest offset in a file beside the log: a log that ends before it is truncated. For a range that
            ends inside the segment, the last offset in the index within the range.
        following: the next logs, in which a reader may look for a marker: name, size, and the offset at which the
            following one continues. The last is ``END_OF_LOG`` if the partition ends there.
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
    offset_index: str | None = None
    offset_bound: int | None = None
    epochs: tuple[tuple[int, int], ...] = ()
    is_padded: bool = False
    stop_of_part: int | None = None
    first_bound: int | None = None
    chunk_size: int | None = None
    log_tag: str | None = None
    timed: int | None = None
    reaches: int | None = None
    following: Sequence[tuple[str, int, int]] = ()

    @property
    def is_last_of_segment(self) -> bool:
        """Whether the split ends where the segment does."""
        return self.positions.stop >= self.log_size

    @property
    def is_last_of_part(self) -> bool:
        """Whether no other split has later offsets of the segment."""
        return self.offsets.stop is None or self.offsets.stop == self.stop_of_part

    def is_followed_by(self, other: Split) -> bool:
        """Whether another split of a plan starts with the next batch, and no offset between them is left out.

        Splits of several ranges of offsets may adjoin by their bytes: what is between the ranges, a marker perhaps, is
        read and passed over.
        """
        if self.log == other.log:
            return self.positions.stop == other.positions.start and (
                self.offsets == other.offsets or self.offsets.stop == other.offsets.start
            )
        if not self.is_last_of_part or other.positions.start:
            return False
        stop = other.base_offset if self.offsets.stop is None else self.offsets.stop
        return stop == other.offsets.start and next((log for log, _, _ in self.following), None) == other.log

    def following_from(self, position: int) -> Sequence[tuple[str, int, int]]:
        """``following`` of a piece that ends there: none where a reader looks no farther than this log."""
        return self.following if position + LOOK_AHEAD >= self.log_size else ()


@dataclass(frozen=True, slots=True)
class Assumed:
    """What a plan takes to be true, and only reading proves.

    Args:
        ends: the last offset of logs, by name.
        plain: partitions without a transaction.
    """

    ends: Mapping[str, int] = field(default_factory=dict)
    plain: frozenset[TopicIdPartition] = frozenset()


class EndReason(StrEnum):
    """Why the records of a partition end where they do."""

    END_OF_DATA = "end-of-data"
    REQUESTED = "requested"
    OPEN_TRANSACTION = "open-transaction"
    DAMAGE = "damage"
    LATEST = "latest"
    LATEST_STABLE = "latest-stable"

    @property
    def is_early(self) -> bool:
        """Whether there is more data than can be returned."""
        return self in (EndReason.OPEN_TRANSACTION, EndReason.DAMAGE)


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """Where the records of one partition end, and why.

    Args:
        offset: the first one that is not returned; ``None`` if only reading finds the end of the log.
        reason: ``open-transaction``: from ``offset`` on a transaction is undecided, because its marker is in a segment
            that is missing or not uploaded yet; ``damage``: damage may hide a marker.
        producer_id: the producer of the earliest transaction that is open at the end.
        damage: the error to raise unless damage is skipped.
    """

    partition: TopicIdPartition
    offset: int | None
    reason: EndReason
    producer_id: int | None = None
    damage: FormatError | None = field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The end as a sentence for people."""
        match self.reason:
            case EndReason.OPEN_TRANSACTION:
                return (
                    f"{self.partition}: ends at offset {self.offset}, the last stable one that is known here: producer "
                    f"{self.producer_id} has an open transaction, and its marker is in none of these segments"
                )
            case EndReason.DAMAGE:
                return (
                    f"{self.partition}: ends at offset {self.offset}: damage behind it hides the markers that would "
                    "say what was committed"
                )
            case EndReason.REQUESTED:
                return f"{self.partition}: ends at offset {self.offset}, as asked for"
            case EndReason.LATEST:
                return f"{self.partition}: ends at offset {self.offset}, where the live log ended when this was planned"
            case EndReason.LATEST_STABLE:
                return (
                    f"{self.partition}: ends at offset {self.offset}, the last stable one of the live log when this "
                    "was planned"
                )
            case EndReason.END_OF_DATA:
                return f"{self.partition}: ends with the last segment" + (
                    f" at offset {self.offset}" if self.offset is not None else ""
                )


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets ``start <= offset < stop`` that are in no segment, though some before and after them are.

    ``held_back`` is below ``start`` where a ``read_committed`` reader must stop earlier: a transaction is open where
    the gap begins, and its marker may lie in it. Then nothing from there to ``stop`` is returned.
    """

    partition: TopicIdPartition
    start: int
    stop: int
    held_back: int | None = None

    @property
    def text(self) -> str:
        """The gap as a sentence for people."""
        held = (
            f"; nothing from offset {self.held_back} on is returned, for transactions are undecided there"
            if self.held_back is not None and self.held_back < self.start
            else ""
        )
        return f"{self.partition}: no segment has offsets {self.start} to {self.stop - 1}{held}"


@dataclass(frozen=True, slots=True)
class PlannedDrop:
    """Offsets ``start <= offset < stop`` of a segment that are not read from it, and why."""

    partition: TopicIdPartition
    log: str
    start: int
    stop: int
    reason: DropReason
    detail: str

    @property
    def text(self) -> str:
        """What is left out and why, for people."""
        return f"{self.partition}: {self.log}: {self.detail}"


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Everything a read will do, decided before any record is read.

    ``splits`` are ordered by topic, partition and position. ``ends`` has the end of each partition's records, and the
    reason; ``gaps`` lists missing offsets, ``dropped`` the offsets that are not read.
    """

    location: str
    splits: tuple[Split, ...]
    ends: tuple[ReadEnd, ...] = ()
    gaps: tuple[Gap, ...] = ()
    dropped: tuple[PlannedDrop, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Stored bytes of all splits."""
        return sum(split.positions.size for split in self.splits)

    def __str__(self) -> str:
        """What is read of each partition, where it ends, and what is missing, a line each."""
        splits: Counter[TopicIdPartition] = Counter()
        sizes: Counter[TopicIdPartition] = Counter()
        for split in self.splits:
            splits[split.partition] += 1
            sizes[split.partition] += split.positions.size
        lines = [f"{self.location}: {shown_count(len(self.splits), 'split')}, {self.size} bytes"]
        lines += [
            f"  {end.text}; {shown_count(splits[end.partition], 'split')}, {sizes[end.partition]} bytes"
            for end in self.ends
        ]
        lines += [f"  missing: {gap.text}" for gap in self.gaps]
        if self.dropped:
            parts = shown_count(len(self.dropped), "part of a segment holds", "parts of segments hold")
            lines.append(f"  {parts} nothing of the live log")
        return "\n".join(lines)

    @property
    def partitions(self) -> tuple[TopicIdPartition, ...]:
        """The partitions with something to read, in order."""
        return tuple(dict.fromkeys(split.partition for split in self.splits))


def join_plans(location: str, plans: Iterable[ReadPlan]) -> ReadPlan:
    """The plans of some partitions as one, in the order given."""
    some = list(plans)
    return ReadPlan(
        location,
        tuple(split for plan in some for split in plan.splits),
        tuple(end for plan in some for end in plan.ends),
        tuple(gap for plan in some for gap in plan.gaps),
        tuple(drop for plan in some for drop in plan.dropped),
        tuple(note for plan in some for note in plan.notes),
    )
