"""What a ``read_committed`` reader may see: rules over batch facts, without bytes and without I/O.

Data and markers are matched by producer id alone: a marker may carry another epoch than the data it ends
(KIP-890).
"""

from __future__ import annotations

import heapq
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate, pairwise
from typing import Any, Final, Protocol

from segreader.errors import shown_count
from segreader.format.index_files import AbortedTransaction


class IsolationLevel(StrEnum):
    """Which records a reader is given. Names as in a consumer's ``isolation.level``."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


CoveredBatches = Callable[[Sequence[int], Sequence[int], Sequence[int]], list[int]]
"""Of the batches with these numbers those that were aborted; producer ids and base offsets are by number."""


class AbortedTransactions:
    """Aborted transactions with their ends, for any order of reading and any number of readers at once.

    Takes entries in any order, repeated ones too, as transaction indexes of several segments give them. They are kept
    once each, by rising first offset, in four arrays: a plan may hold a hundred thousand of them. A value: equal by
    content, and never changed.
    """

    __slots__ = ("_columns", "_maxima", "_packed", "_reach", "_rows_of")

    def __init__(self, entries: Iterable[AbortedTransaction] = ()) -> None:
        rows = sorted({(one.first_offset, one.last_offset, one.producer_id, one.last_stable_offset) for one in entries})
        self._hold(tuple(array("q", column) for column in zip(*rows, strict=True)) or _NOTHING)

    def _hold(self, columns: tuple[array[int], ...]) -> None:
        self._columns = columns
        self._maxima: list[array[int]] | None = None
        self._packed: bytes | None = None
        self._rows_of: dict[int, list[int]] | None = None

    @property
    def entries(self) -> tuple[AbortedTransaction, ...]:
        """Each once, by rising first offset."""
        return tuple(self)

    def __len__(self) -> int:
        return len(self._columns[0])

    def __iter__(self) -> Iterator[AbortedTransaction]:
        for first, last, producer_id, last_stable in zip(*self._columns, strict=True):
            yield AbortedTransaction(producer_id, first, last, last_stable)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbortedTransactions) and self._columns == other._columns

    def __hash__(self) -> int:
        return hash(tuple(column.tobytes() for column in self._columns))

    def __repr__(self) -> str:
        return f"<{shown_count(len(self), 'aborted transaction')}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return AbortedTransactions.from_bytes, (self.to_bytes(),)

    def to_bytes(self) -> bytes:
        """All of them in few bytes: each column as differences, which are small, compressed. They are kept."""
        packed = self._packed
        if packed is None:
            differences = array("q")
            for column in self._columns if len(self) else ():
                differences.extend([column[0], *(two - one for one, two in pairwise(column))])
            packed = self._packed = zlib.compress(differences.tobytes(), 9)
        return packed

    @classmethod
    def from_bytes(cls, packed: bytes) -> AbortedTransactions:
        """The transactions that ``to_bytes`` packed.

        Raises:
            ValueError, zlib.error: the bytes are none of its, or unpack to more than 64 MiB.
        """
        unpacker = zlib.decompressobj()
        differences = array("q")
        differences.frombytes(unpacker.decompress(packed, _MOST_BYTES))
        if not unpacker.eof or len(differences) % 4:
            raise ValueError(f"{len(packed)} bytes are no packed transactions")
        count = len(differences) // 4
        columns = (list(accumulate(differences[at * count : (at + 1) * count])) for at in range(4))
        first, last, producer_id, last_stable = columns
        return cls(map(AbortedTransaction, producer_id, first, last, last_stable))

    def covers(self, producer_id: int, base_offset: int) -> bool:
        """Whether the transactional data batch of this producer at ``base_offset`` was aborted.

        Ask only for batches that are transactional and no control batch: a producer may also write outside of
        transactions.
        """
        rows_of = self._rows_of
        if rows_of is None:
            rows_of = self._rows_of = self._by_producer()
        if (rows := rows_of.get(producer_id)) is None:
            return False
        at = bisect_left(rows, bisect_right(self._columns[0], base_offset)) - 1
        return at >= 0 and base_offset <= self._reach[rows[at]]

    def _by_producer(self) -> dict[int, list[int]]:
        """Which rows each producer has; and how far it has aborted up to each of them.

        Transactions of one producer never overlap in one log; with running maxima the answer is right even if entries
        of two diverged logs meet here.
        """
        _, lasts, producer_ids, _ = self._columns
        reach = lasts[:]
        rows_of: dict[int, list[int]] = {}
        for row, producer_id in enumerate(producer_ids):
            if (rows := rows_of.get(producer_id)) is None:
                rows_of[producer_id] = [row]
            else:
                reach[row] = max(reach[row], reach[rows[-1]])
                rows.append(row)
        self._reach = reach
        return rows_of

    def in_order(self) -> CoveredBatches:
        """As ``covers``, for one reader whose batches come by rising offset: many at once, and without a search."""
        entries = zip(*self._columns[:3], strict=True)
        end = (1 << 63, 0, 0)
        first, last, owner = next(entries, end)
        reach: dict[int, int] = {}

        def covered(numbers: Sequence[int], producer_ids: Sequence[int], base_offsets: Sequence[int]) -> list[int]:
            nonlocal first, last, owner, reach
            found, reach_of, base_offset = [], reach.get, -1
            for number in numbers:
                base_offset = base_offsets[number]
                while first <= base_offset:
                    if reach_of(owner, -1) < last:
                        reach[owner] = last
                    first, last, owner = next(entries, end)
                if reach_of(producer_ids[number], -1) >= base_offset:
                    found.append(number)
            reach = {
                producer_id: last for producer_id, last in reach.items() if last > base_offset
            }  # a small one is quick
            return found

        return covered

    def within(self, start: int, stop: int) -> AbortedTransactions:
        """Those that touch offsets ``start <= offset < stop``: all that a reader of these offsets needs.

        Costs as many steps as there are of them, however many others there are.
        """
        begun = bisect_left(self._columns[0], stop)
        maxima = self._maxima
        if maxima is None:
            maxima = self._maxima = _maxima(self._columns[1])
        found = list(range(len(maxima[-1])))
        for height in range(len(maxima) - 1, -1, -1):
            level, width = maxima[height], _FAN_OUT**height
            found = [at for at in found if at * width < begun and level[at] >= start]
            if height:
                below = len(maxima[height - 1])
                found = [child for at in found for child in range(at * _FAN_OUT, min((at + 1) * _FAN_OUT, below))]
        if len(found) == len(self):
            return self
        some = AbortedTransactions.__new__(AbortedTransactions)
        some._hold(tuple(array("q", [column[at] for at in found]) for column in self._columns))
        return some


_NOTHING: Final = (array("q"), array("q"), array("q"), array("q"))
_FAN_OUT: Final = 32
_MOST_BYTES: Final = 64 << 20
"""Of two million transactions. Zeros are packed by a factor of a thousand: a small text must not fill the memory."""


def _maxima(values: array[int]) -> list[array[int]]:
    """The values, the largest of each 32 of them, the largest of each 32 of these, and so on up to a single one."""
    levels = [values]
    while len(levels[-1]) > 1:
        below = levels[-1]
        levels.append(array("q", [max(below[at : at + _FAN_OUT]) for at in range(0, len(below), _FAN_OUT)]))
    return levels


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
        """A transactional data batch with records; ignored without a producer id.

        Leave out one that compaction emptied: its transaction is decided, and its marker may be gone.
        """
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


class TransactionFacts(Protocol):
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
    Where the ends are known use ``AbortedTransactions``. A row whose marker is before the first batch
    given here would hide committed data, because nothing would end it; a broker sends none.

    Source: KIP-98; ``CompletedFetch`` (4.0).
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """Args: aborted: (producer id, first offset) in any order, repeated ones too."""
        self._ahead = [(first_offset, producer_id) for producer_id, first_offset in aborted]
        heapq.heapify(self._ahead)
        self._open: set[int] = set()

    def admits(self, batch: TransactionFacts, *, ends_in_abort: bool = False) -> bool:
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
