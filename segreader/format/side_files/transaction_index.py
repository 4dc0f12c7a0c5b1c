"""The transaction index (``.txnindex``): transactions whose ABORT marker is in this segment.

It does not show which data *in* this segment was aborted: the marker of that data may be segments later. A
segment without aborts has no such file. Byte table: docs/reference/formats.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from segreader.errors import CorruptIndexError

_ENTRY = struct.Struct(">hqqqq")


@dataclass(frozen=True, slots=True, order=True)
class AbortedTransaction:
    """One aborted transaction of one producer in one partition.

    ``first_offset`` is the base offset of its first batch and may be in an earlier segment;
    ``last_offset`` is its ABORT marker. ``last_stable_offset`` is the first offset that was undecided right
    after the abort.

    Source: ``AbortedTxn`` (4.0).
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class TransactionIndex:
    """The aborted transactions of one ``.txnindex``, by rising ``last_offset`` (first offsets have no order).

    ``trailing_bytes`` counts a last entry that is cut, which Kafka ignores.
    """

    entries: tuple[AbortedTransaction, ...] = ()
    trailing_bytes: int = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return iter(self.entries)

    def collect(self, start: int, upper: int) -> tuple[list[AbortedTransaction], bool]:
        """The aborted transactions that touch offsets ``start <= offset < upper``, and whether these are all.

        Returns:
            The transactions in the order of the file; and ``False`` where the next segment's index must be
            asked as well. It is ``True`` once an abort found everything below ``upper`` decided: whatever
            else was aborted there comes before it.

        Source: ``TransactionIndex.collectAbortedTxns`` (4.0).
        """
        collected = []
        for entry in self.entries:
            if entry.last_offset >= start and entry.first_offset < upper:
                collected.append(entry)
            if entry.last_stable_offset >= upper:
                return collected, True
        return collected, False


def parse_transaction_index(data: bytes | bytearray | memoryview, base_offset: int = 0) -> TransactionIndex:
    """Read a whole ``.txnindex``.

    The file has no checksum and a wrong entry shows aborted records as committed, so an entry that no
    broker can have written is refused.

    Args:
        data: the whole file.
        base_offset: base offset of the segment; no marker in it is below.

    Raises:
        CorruptIndexError: an unknown version, offsets that cannot be, or markers out of order.

    Source: ``TransactionIndex``, ``AbortedTxn`` (4.0), which look at the first byte of the version only.
    """
    raw = bytes(data)
    size = _ENTRY.size
    trailing = len(raw) % size
    entries: list[AbortedTransaction] = []
    previous = base_offset - 1
    for position in range(0, len(raw) - trailing, size):
        if raw[position]:
            raise CorruptIndexError(
                "a transaction index has an unknown version",
                found=f"version {raw[position]}",
                expected="version 0",
                position=position,
                base_offset=base_offset,
            )
        _, *fields = _ENTRY.unpack_from(raw, position)
        entry = AbortedTransaction(*fields)
        if not (
            entry.producer_id >= 0
            and 0 <= entry.first_offset < entry.last_offset
            and 0 <= entry.last_stable_offset <= entry.last_offset + 1
            and previous < entry.last_offset
        ):
            raise CorruptIndexError(
                "an aborted transaction contradicts itself or the one before",
                found=entry,
                expected=f"first < last > {previous}, and a last stable offset up to last + 1",
                position=position,
                base_offset=base_offset,
            )
        previous = entry.last_offset
        entries.append(entry)
    return TransactionIndex(tuple(entries), trailing)
