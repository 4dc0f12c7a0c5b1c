"""From a split and a position in it to what is left to read, with as little reading as can be."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from segreader.errors import DivergedPositionError, ForeignPositionError, FormatError, ObjectNotFoundError
from segreader.format.index_files import AbortedTransaction, parse_offset_index
from segreader.isolation import IsolationLevel
from segreader.loader.history import recreated
from segreader.loader.position import Position
from segreader.loader.splits import LoaderSplit
from segreader.plan.cut import offset_at
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.storage.base import ObjectStore, read_whole

_WORTH_AN_INDEX: Final = 64 << 10
"""Of a split with fewer bytes the index is not asked: reading them costs less."""


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
    """The same place, told by its offset alone."""
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
    """Where the index says to begin, and an offset that the batch there begins at or below."""
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
    """The leader epoch of the offset before this one, as the split's history tells it."""
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
