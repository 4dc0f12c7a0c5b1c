"""A split as it travels to a task: names and numbers, below 2 KiB however many transactions were aborted in it.

A few aborted transactions travel along, packed. Many stay where the broker wrote them: the split names the transaction
indexes, and for which offsets each of them counts, and the task reads them. Only where no index holds them, as in
batches that had to be replayed, does the task work them out again from the listing.
"""

from __future__ import annotations

import pickle
import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from segreader.errors import FormatError, ObjectNotFoundError
from segreader.evidence.findings import Findings
from segreader.evidence.transaction_checks import check_transaction_index, settle_transaction_index
from segreader.format.index_files import AbortedTransaction
from segreader.isolation import AbortedTransactions
from segreader.plan.codec import pack_split, unpack_split
from segreader.plan.lineage import ResolvedLog
from segreader.plan.split import Split
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectStore
from segreader.storage.read_all import read_each, read_whole
from segreader.stored.transactions import read_transaction_state

_ROOM: Final = 700
"""Bytes that packed transactions, or the names of their indexes, may take."""

_ROOM_FOR_LOGS: Final = 300
"""Bytes that the names of logs behind a split may take."""

_MOST_LOGS: Final = 2
"""Logs behind a split that travel with it."""

_NONE: Final = AbortedTransactions()
_FEW: Final = 2000
_KEPT: Final = 4

ResolveLog = Callable[[TopicIdPartition], ResolvedLog]
"""Which segment delivers which offset of a partition, from its listing."""


@dataclass(frozen=True, slots=True)
class IndexOfPart:
    """A transaction index whose rows count if their marker is at ``start <= offset < stop``."""

    name: str
    base_offset: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class LightSplit:
    """A split with few aborted transactions, or none and where they are.

    Args:
        split: everything else.
        indexes: what holds them, if they are many.
        is_replayed: they must be found again from the listing.
    """

    split: Split
    indexes: tuple[IndexOfPart, ...] = ()
    is_replayed: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Values without the classes around them: a plan has a hundred thousand splits, and each is a pickle."""
        packed = pack_split(self.split, most_logs=_MOST_LOGS, room_for_logs=_ROOM_FOR_LOGS)
        return _unpacked, (*packed, self.indexes, self.is_replayed)

    def open(self, store: ObjectStore, resolve: ResolveLog) -> Split:
        """The whole split.

        Args:
            store: where it is read.
            resolve: asked only if the aborted transactions must be found again.

        Raises:
            FormatError, StorageError: a transaction index cannot be read (any more).
        """
        if self.indexes:
            rows = read_each(lambda one: _rows_of(store, one), self.indexes)
            return replace(self.split, aborted=_touching(self.split, [row for some in rows for row in some]))
        if self.is_replayed:
            state = read_transaction_state(store, resolve(self.split.partition), self.split.offsets)
            return replace(self.split, aborted=_within(self.split, state.aborted))
        return self.split


def _unpacked(*values: Any) -> LightSplit:
    *packed, indexes, is_replayed = values
    return LightSplit(unpack_split(packed), indexes, is_replayed)


class SplitPacker:
    """Makes splits light. It reads the transaction indexes that it names, to be sure that they say the same."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._rows = lru_cache(maxsize=_KEPT)(lambda index: frozenset(_rows_of(store, index)))
        self._named: dict[int, tuple[AbortedTransactions, tuple[IndexOfPart, ...]]] = {}

    def pack(self, split: Split, log: ResolvedLog) -> LightSplit:
        """The split as it travels.

        Args:
            split: of a plan.
            log: the same partition: whose segments hold the markers.
        """
        if not len(split.aborted):
            return LightSplit(split)
        mine = _within(split, split.aborted)
        if len(mine) <= _FEW and len(mine.to_bytes()) <= _ROOM:
            return LightSplit(split if mine is split.aborted else replace(split, aborted=mine))
        indexes = self._indexes_of(split.aborted, log)
        return LightSplit(replace(split, aborted=_NONE), indexes, not indexes)

    def _indexes_of(self, aborted: AbortedTransactions, log: ResolvedLog) -> tuple[IndexOfPart, ...]:
        """The indexes that hold all of them; none if there are none. The splits of one segment share the answer."""
        known = self._named.get(id(aborted))
        if known is None:
            known = self._named[id(aborted)] = aborted, self._find_indexes(aborted, log)
        return known[1]

    def _find_indexes(self, aborted: AbortedTransactions, log: ResolvedLog) -> tuple[IndexOfPart, ...]:
        indexes = _indexes_of(aborted, log)
        if len(zlib.compress(pickle.dumps(indexes), 1)) > _ROOM:
            return ()
        try:
            rows = frozenset().union(*map(self._rows, indexes))
        except (FormatError, ObjectNotFoundError):
            return ()
        return indexes if rows.issuperset(aborted) else ()


def _within(split: Split, aborted: AbortedTransactions) -> AbortedTransactions:
    """The aborted transactions that can touch what the split holds: fewer than those of its whole segment."""
    start = max(split.offsets.start, split.base_offset)
    stop = (1 << 63) if split.offsets.stop is None else split.offsets.stop
    if split.offset_bound is not None:
        stop = min(stop, split.offset_bound + 1)
    return aborted.within(start, max(start, stop))


def _touching(split: Split, rows: Sequence[AbortedTransaction]) -> AbortedTransactions:
    return _within(split, AbortedTransactions(rows))


def _indexes_of(aborted: AbortedTransactions, log: ResolvedLog) -> tuple[IndexOfPart, ...]:
    """The transaction indexes of the parts that have the markers; none if a part has no index."""
    starts = [part.start for part in log.parts]
    found: dict[int, IndexOfPart] = {}
    for row in aborted:
        at = bisect_right(starts, row.last_offset) - 1
        if at < 0 or at in found:
            if at < 0:
                return ()
            continue
        part = log.parts[at]
        name = part.segment.files.transaction_index
        if name is None or row.last_offset >= part.stop:
            return ()
        found[at] = IndexOfPart(name, part.segment.base_offset, part.start, part.stop)
    return tuple(found[at] for at in sorted(found))


def _rows_of(store: ObjectStore, index: IndexOfPart) -> list[AbortedTransaction]:
    found = Findings(store)
    rows = check_transaction_index(found, read_whole(store, index.name), index.name, index.base_offset, None)
    settle_transaction_index(found)
    return [row for row in rows if index.start <= row.last_offset < index.stop]
