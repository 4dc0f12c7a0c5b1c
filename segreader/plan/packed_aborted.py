"""Aborted transactions as few bytes, for splits that travel."""

from __future__ import annotations

import zlib
from array import array
from itertools import accumulate, pairwise
from typing import Final

from segreader.format.transaction_index import AbortedTransaction
from segreader.isolation import AbortedTransactions

_MOST_BYTES: Final = 64 << 20
"""Of two million transactions. Zeros are packed by a factor of a thousand: a small text must not fill the memory."""


def pack_aborted(aborted: AbortedTransactions) -> bytes:
    """The transactions in few bytes: each column as differences, which are small, and all of it compressed."""
    columns = zip(
        *((row.first_offset, row.last_offset, row.producer_id, row.last_stable_offset) for row in aborted), strict=True
    )
    differences = array("q")
    for column in columns:
        differences.extend([column[0], *(two - one for one, two in pairwise(column))])
    return zlib.compress(differences.tobytes(), 9)


def unpack_aborted(packed: bytes) -> AbortedTransactions:
    """The transactions that ``pack_aborted`` took.

    Raises:
        ValueError, zlib.error: the bytes are none of its, or unpack to more than 64 MiB.
    """
    unpacker = zlib.decompressobj()
    differences = array("q")
    differences.frombytes(unpacker.decompress(packed, _MOST_BYTES))
    if not unpacker.eof or len(differences) % 4:
        raise ValueError(f"{len(packed)} bytes are no packed transactions")
    count = len(differences) // 4
    first, last, producer, stable = (list(accumulate(differences[at * count : (at + 1) * count])) for at in range(4))
    return AbortedTransactions(map(AbortedTransaction, producer, first, last, stable))
