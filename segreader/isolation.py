"""What a ``read_committed`` reader may see: rules over batch facts, without bytes and without I/O.

Data and markers are matched by producer id alone: a marker may carry another epoch than the data it ends
(KIP-890).
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Any, Protocol

from segreader.format.transaction_index import AbortedTransaction


class IsolationLevel(StrEnum):
    """Which records a reader is given. Names as in a consumer's ``isolation.level``."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


@dataclass(frozen=True, slots=True, init=False)
class AbortedTransactions:
    """Aborted transactions with their ends, for any order of reading and any number of readers at once.

    Takes entries in any order, repeated ones too, as transaction indexes of several segments give them.
    ``entries`` are kept once each, by rising first offset.
    """

    entries: tuple[AbortedTransaction, ...]
    _spans: dict[int, tuple[list[int], list[int]]] = field(repr=False, compare=False)

    def __init__(self, entries: Iterable[AbortedTransaction] = ()) -> None:
        ordered = tuple(sorted(set(entries), key=_by_offset))
        spans: dict[int, tuple[list[int], list[int]]] = {}
        for entry in ordered:
            firsts, lasts = spans.setdefault(entry.producer_id, ([], []))
            firsts.append(entry.first_offset)
            lasts.append(entry.last_offset)
        # Transactions of one producer never overlap in one log; with running maxima the answer is right
        # even if entries of two diverged logs meet here.
        spans = {producer_id: (firsts, list(accumulate(lasts, max))) for producer_id, (firsts, lasts) in spans.items()}
        object.__setattr__(self, "entries", ordered)
        object.__setattr__(self, "_spans", spans)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return iter(self.entries)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.entries,))

    def covers(self, producer_id: int, base_offset: int) -> bool:
        """Whether the transactional data batch of this producer at ``base_offset`` was aborted.

        Ask only for batches that are transactional and no control batch: a producer may also write outside of
        transactions.
        """
        if (span := self._spans.get(producer_id)) is None:
            return False
        firsts, last_so_far = span
        index = bisect_right(firsts, base_offset) - 1
        return index >= 0 and base_offset <= last_so_far[index]

    def within(self, start: int, stop: int) -> AbortedTransactions:
        """Those that touch offsets ``start <= offset < stop``: all that a reader of these offsets needs."""
        return AbortedTransactions(
            entry for entry in self.entries if entry.last_offset >= start and entry.first_offset < stop
        )


def _by_offset(entry: AbortedTransaction) -> tuple[int, int, int, int]:
    return (entry.first_offset, entry.last_offset, entry.producer_id, entry.last_stable_offset)


class TransactionReplay:
    """Remembers which transactions are open while batches go by in offset order.

    Start it at the beginning of the log, or with the open transactions of a producer snapshot. It gives the
    ``.txnindex`` entries a broker would write.

    Source: ``ProducerStateManager``, ``ProducerAppendInfo`` (4.0).
    """

    def __init__(self, open_transactions: Mapping[int, int] | None = None) -> None:
        """Args: open_transactions: first offset of each transaction open at the start, by producer id."""
        self._open = dict(open_transactions or {})

    @property
    def open_transactions(self) -> dict[int, int]:
        """First offset of each open transaction, by producer id."""
        return dict(self._open)

    def first_unstable_offset(self, default: int) -> int:
        """The first offset still undecided; if all is decided, ``default``, the end of what was replayed."""
        return min(self._open.values(), default=default)

    def data(self, producer_id: int, base_offset: int) -> None:
        """A transactional data batch, even one that compaction emptied; ignored without a producer id."""
        if producer_id >= 0:
            self._open.setdefault(producer_id, base_offset)

    def marker(self, producer_id: int, offset: int, is_abort: bool) -> AbortedTransaction | None:
        """An ABORT or COMMIT marker; gives the transaction if this aborted one.

        A marker without an open transaction is legal (empty transaction, marker written again) and changes
        nothing.
        """
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None or not is_abort:
            return None
        return AbortedTransaction(producer_id, first_offset, offset, self.first_unstable_offset(offset + 1))


class BatchFacts(Protocol):
    """What a filter must know of a batch; every batch header fits."""

    @property
    def producer_id(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...


class AbortedTransactionFilter:
    """Remembers which producers are inside an aborted transaction while batches of a fetch go by in offset
    order.

    For the rows of a FetchResponse, which lack the end of the transaction: there the ABORT marker ends it.
    Where the ends are known use ``AbortedTransactions``. A row whose marker lies before the first batch
    given here would hide committed data, because nothing would end it; a broker sends none.

    Source: KIP-98; ``CompletedFetch`` (4.0).
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """Args: aborted: (producer id, first offset) in any order, repeated ones too."""
        self._ahead = [(first_offset, producer_id) for producer_id, first_offset in aborted]
        heapq.heapify(self._ahead)
        self._open: set[int] = set()

    def admits(self, batch: BatchFacts, *, ends_in_abort: bool = False) -> bool:
        """Whether a ``read_committed`` reader sees the records of this batch.

        Args:
            batch: the next batch in offset order. All of them must be given, markers too.
            ends_in_abort: whether this is a control batch whose first record is an ABORT.
        """
        if batch.producer_id >= 0:
            while self._ahead and self._ahead[0][0] <= batch.last_offset:
                self._open.add(heapq.heappop(self._ahead)[1])
            if batch.is_control and ends_in_abort:
                self._open.discard(batch.producer_id)
            elif batch.is_transactional and batch.producer_id in self._open:
                return False
        return not batch.is_control
