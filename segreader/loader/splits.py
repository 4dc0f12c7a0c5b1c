"""What a host spreads, and where a reader of it is: splits and positions as values that travel as JSON.

A split is some offsets of one partition and the bytes that hold them. From a position in it another reader, on another
machine, goes on exactly there: ``rest_of`` finds what is left, with as little reading as can be.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from segreader.errors import (
    DivergedPositionError,
    ForeignPositionError,
    FormatError,
    ObjectNotFoundError,
    PositionFormatError,
    RecreatedTopicError,
)
from segreader.format.index_files import AbortedTransaction, parse_offset_index
from segreader.isolation import IsolationLevel
from segreader.loader.saved import SavedFields, save_log_end, saved_log_end, write_saved
from segreader.plan.codec import SPLIT, WrongValueError
from segreader.plan.cut import offset_at
from segreader.plan.log import LogEnd
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectStore, read_whole
from segreader.values import dataclass

_POSITION = "position"
_SPLIT = "split"
_WORTH_AN_INDEX: Final = 64 << 10
"""Of a split with fewer bytes the index is not asked: reading them costs less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A position in one partition. All records of the query below ``next_offset`` have been returned.

    ``to_json`` returns a few hundred bytes without secrets. The byte in the log only saves reading: it is used for the
    same version of the same log object; otherwise the offset index finds the batch.

    Args:
        topic, topic_id, partition: whose records; the id is ``None`` if the layout has none.
        next_offset: the first offset that was not returned.
        stop: the end of its split; ``None`` if the split has none.
        isolation_level: what was read.
        leader_epoch: of the last batch that was read, to detect a changed history (KIP-320).
        log_end: end of the log when this was planned, for ``read_committed``: markers up to there decided which records
            were returned.
        aborted: the aborted transactions that began before ``next_offset`` and end at or after it: what a
            ``read_committed`` reader must know inside them; ``None`` if they were not looked up.
        log, log_size, log_tag: the log object that was read, and which version of it.
        batch_position: position of the batch with the next record.
        batch_offset: the base offset of that batch, if it was read.
    """

    topic: str
    topic_id: str | None = None
    partition: int
    next_offset: int
    stop: int | None = None
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    leader_epoch: int | None = None
    log_end: LogEnd | None = None
    aborted: tuple[AbortedTransaction, ...] | None = None
    log: str | None = None
    log_size: int | None = None
    batch_position: int | None = None
    batch_offset: int | None = None
    log_tag: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "isolation_level", IsolationLevel(self.isolation_level))
        if min(self.partition, self.next_offset) < 0 or (self.stop is not None and self.stop < self.next_offset):
            raise ValueError(f"not a position: offset {self.next_offset} of {self.partition} before {self.stop}")
        if self.batch_position is not None and (self.log is None or self.log_size is None):
            raise ValueError("a byte without its log")

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.next_offset}"

    def to_json(self) -> str:
        """The position as text, for a checkpoint."""
        aborted = self.aborted
        return write_saved(
            _POSITION,
            {
                "topic": self.topic,
                "topic_id": self.topic_id,
                "partition": self.partition,
                "next_offset": self.next_offset,
                "stop": self.stop,
                "isolation_level": self.isolation_level.value,
                "leader_epoch": self.leader_epoch,
                **save_log_end(self.log_end),
                "aborted": None
                if aborted is None
                else [[one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset] for one in aborted],
                "log": self.log,
                "log_size": self.log_size,
                "batch_position": self.batch_position,
                "batch_offset": self.batch_offset,
                "log_tag": self.log_tag,
            },
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Position:
        """The position from the text that ``to_json`` of this or an earlier version returned.

        Raises:
            PositionFormatError: it is none.
            PositionVersionError: a newer version wrote it.
        """
        fields = SavedFields(_POSITION, text)
        rows = fields.rows_or_none("aborted", 4)
        try:
            aborted = None
            if rows is not None:
                aborted = tuple(AbortedTransaction(one, first, last, stable) for one, first, last, stable in rows)
            return cls(
                topic=fields.text("topic"),
                topic_id=fields.text_or_none("topic_id"),
                partition=fields.integer("partition", bits=31),
                next_offset=fields.integer("next_offset"),
                stop=fields.integer_or_none("stop"),
                isolation_level=IsolationLevel(fields.text("isolation_level")),
                leader_epoch=fields.integer_or_none("leader_epoch", bits=31),
                log_end=saved_log_end(fields),
                aborted=aborted,
                log=fields.text_or_none("log"),
                log_size=fields.integer_or_none("log_size"),
                batch_position=fields.integer_or_none("batch_position"),
                batch_offset=fields.integer_or_none("batch_offset"),
                log_tag=fields.text_or_none("log_tag"),
            )
        except PositionFormatError:
            raise
        except ValueError as error:
            raise fields.wrong(error) from error


@dataclass(frozen=True, slots=True)
class LoaderSplit:
    """Offsets ``start <= offset < stop`` of one partition, from one segment. No two splits of an enumerator overlap.

    It holds names and numbers: no client and no secret.

    Args:
        split: what is read; its offsets have an end.
        log_end: where the log ended when it was planned, of ``read_committed``.
    """

    split: Split
    log_end: LogEnd | None = None

    def __post_init__(self) -> None:
        if self.split.offsets.stop is None:
            raise ValueError("a split without an end")

    @property
    def id(self) -> str:
        """A name for it, one of its own among the splits of an enumerator."""
        partition = self.partition
        topic = partition.topic if partition.topic_id is None else f"{partition.topic}.{partition.topic_id}"
        return f"{topic}-{partition.partition}-{self.start}"

    @property
    def partition(self) -> TopicIdPartition:
        """Whose records."""
        return self.split.partition

    @property
    def start(self) -> int:
        """The first offset of it."""
        return self.split.offsets.start

    @property
    def stop(self) -> int:
        """The first offset behind it."""
        return self.split.offsets.stop or 0

    @property
    def size(self) -> int:
        """Stored bytes to read."""
        return self.split.positions.size

    @property
    def position(self) -> Position:
        """The position of a reader that has read nothing yet."""
        return Position(
            topic=self.partition.topic,
            topic_id=self.partition.topic_id,
            partition=self.partition.partition,
            next_offset=self.start,
            stop=self.stop,
            isolation_level=self.split.isolation_level,
            log_end=self.log_end,
            log=self.split.log,
            log_size=self.split.log_size,
            log_tag=self.split.log_tag,
            batch_position=self.split.positions.start,
        )

    def to_json(self) -> str:
        """The split as text."""
        return write_saved(_SPLIT, SPLIT.to_json(self.split) | save_log_end(self.log_end))

    @classmethod
    def from_json(cls, text: str | bytes) -> LoaderSplit:
        """The split that ``to_json`` of this or an earlier version gave.

        Raises:
            PositionFormatError: it is none.
            PositionVersionError: a newer version wrote it.
        """
        fields = SavedFields(_SPLIT, text)
        try:
            return cls(SPLIT.from_json(fields.mapping()), saved_log_end(fields))
        except WrongValueError as error:
            raise fields.wrong_value(error) from error
        except ValueError as error:
            raise fields.wrong(error) from error


def refuse_other_topic(split: LoaderSplit, topic: str | None) -> None:
    """Raise if a query names a topic, and a split is of another.

    Raises:
        ForeignPositionError: it is.
    """
    if topic not in (None, split.partition.topic):
        raise ForeignPositionError(
            "the split is of another topic than the query",
            found=split.partition.topic,
            expected=topic,
            hint="Read it with the query that it was planned with",
        )


def refuse_foreign(split: LoaderSplit, position: Position) -> None:
    """Raise if a position is not one of a split.

    Raises:
        ForeignPositionError: it is of another topic, partition, isolation level or of offsets that are not in it.
        RecreatedTopicError: it is of another topic of the same name.
        DivergedPositionError: what was read before it, or what was aborted around it, is not what is there.
    """
    own = split.partition
    if (position.topic, position.partition) != (own.topic, own.partition):
        raise _foreign("partition", f"{position.topic}-{position.partition}", str(own))
    if None not in (position.topic_id, own.topic_id) and position.topic_id != own.topic_id:
        raise recreated(own.topic, own.topic_id, position.topic_id, None)
    if position.isolation_level is not split.split.isolation_level:
        raise _foreign("isolation level", position.isolation_level.value, split.split.isolation_level.value)
    if not split.start <= position.next_offset <= split.stop:
        raise _foreign("offset", position.next_offset, f"{split.start} to {split.stop}")
    if position.next_offset == split.stop and position.stop not in (None, split.stop):  # where another split begins
        found = f"{position.next_offset} of a split up to {position.stop}"
        raise _foreign("offset", found, f"{split.start} to {split.stop - 1}")
    _refuse_other_epoch(split, position)
    if position.aborted is not None and position.next_offset < split.stop:
        _refuse_other_transactions(split, position.next_offset, position.aborted)


def open_transactions(split: Split, next_offset: int) -> tuple[AbortedTransaction, ...] | None:
    """The aborted transactions that an offset stands inside of, as the split has them; none are of interest to
    ``read_uncommitted``."""
    if split.isolation_level is not IsolationLevel.READ_COMMITTED:
        return None
    return tuple(one for one in split.aborted.within(next_offset, next_offset + 1) if one.first_offset < next_offset)


def rest_of(split: LoaderSplit, position: Position, store: ObjectStore) -> Split | None:
    """What is left of the split; ``None`` if nothing is.

    Where the position names a byte of this very log, reading begins there. Else at most one offset index is read.

    Args:
        position: one of the split.

    Raises:
        StorageError: the index cannot be had.
    """
    whole = split.split
    if position.next_offset >= split.stop:
        return None
    start, bound = whole.positions.start, whole.first_bound
    if (known := known_byte(whole, position)) is not None:
        start, bound = known, whole.first_bound if known == start else None
    elif position.next_offset > split.start and whole.positions.size > _WORTH_AN_INDEX:
        start, bound = _indexed_byte(whole, position.next_offset, store)
    return replace(
        whole,
        positions=ByteRange(start, whole.positions.stop),
        offsets=OffsetRange(position.next_offset, split.stop),
        first_bound=bound,
    )


def without_byte(position: Position) -> Position:
    """The same place, by its offset alone."""
    return replace(position, log=None, log_size=None, log_tag=None, batch_position=None, batch_offset=None)


def known_byte(split: Split, position: Position) -> int | None:
    """The byte that the position names, if it is of this log and of this split."""
    byte = position.batch_position
    if byte is None or position.log != split.log:
        return None
    if None not in (position.log_tag, split.log_tag) and position.log_tag != split.log_tag:
        return None
    is_same = position.log_size == split.log_size or (split.is_active and (position.log_size or 0) <= split.log_size)
    return byte if is_same and split.positions.start <= byte < split.positions.stop else None


def _indexed_byte(split: Split, offset: int, store: ObjectStore) -> tuple[int, int | None]:
    """Where to begin by the index, and an offset at or after the base offset of the batch there."""
    unknown = split.positions.start, split.first_bound
    if split.offset_index is None:
        return unknown
    try:
        index = parse_offset_index(read_whole(store, split.offset_index), split.base_offset, log_size=split.log_size)
    except (FormatError, ObjectNotFoundError):
        return unknown
    found = index.lookup(offset).position
    return (found, offset_at(index, found)) if split.positions.start < found < split.positions.stop else unknown


def epoch_before(split: LoaderSplit, offset: int, otherwise: int | None = None) -> int | None:
    """The leader epoch of the offset before this one, by the split's history."""
    return next((epoch for epoch, start in reversed(split.split.epochs) if start < offset), otherwise)


def _refuse_other_epoch(split: LoaderSplit, position: Position) -> None:
    """Raise if the split's history says that another leader wrote the offset before."""
    epochs = split.split.epochs
    if not epochs or position.leader_epoch is None:
        return
    told = epoch_before(split, position.next_offset)
    if position.leader_epoch == told or (told is None and position.leader_epoch <= epochs[0][0]):
        return
    raise DivergedPositionError(
        f"what was read of {split.partition} is not the history that is there",
        found=f"leader epoch {epochs[0][0] if told is None else told} at offset {position.next_offset}",
        expected=f"leader epoch {position.leader_epoch} before it",
        hint="An unclean leader election took records away that were loaded: ask splits_from([position]) how far back",
    )


def _refuse_other_transactions(split: LoaderSplit, next_offset: int, aborted: tuple[AbortedTransaction, ...]) -> None:
    """Raise if the split knows other aborted transactions around an offset. Where they begin may be told differently:
    what began them may have been deleted since."""
    there = {(one.producer_id, one.last_offset) for one in split.split.aborted}
    here = {(one.producer_id, one.last_offset) for one in open_transactions(split.split, next_offset) or ()}
    told = {(one.producer_id, one.last_offset) for one in aborted}
    if told <= there and here <= told:
        return
    raise DivergedPositionError(
        f"other transactions of {split.partition} were aborted around the position",
        found=_named(here),
        expected=_named(told),
        hint="Compaction took them, or it is another history, or a .txnindex was lost: where none was lost, ask an "
        "enumerator for splits_from([position]), which tells other histories",
    )


def _named(transactions: set[tuple[int, int]]) -> str:
    some = ", ".join(f"producer {one} up to offset {last}" for one, last in sorted(transactions)[:4])
    return some or "none"


def _foreign(what: str, found: object, expected: object) -> ForeignPositionError:
    return ForeignPositionError(
        f"the position is of another {what} than the split",
        found=found,
        expected=expected,
        hint="Restore it in a reader of its own split, or ask an enumerator for splits_from([position])",
    )


def recreated(topic: str, found: str | None, expected: str | None, source: str | None) -> RecreatedTopicError:
    """The error for a name that belongs to another topic now."""
    return RecreatedTopicError(
        f"topic {topic!r} was deleted, and another one was given its name",
        source=source,
        found=f"topic id {found}",
        expected=f"topic id {expected}",
        hint="What was loaded is of the old topic: begin anew, or choose one of the two by topic_id",
    )
