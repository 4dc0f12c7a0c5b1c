"""Aborted transactions as few bytes, for splits that travel."""

from __future__ import annotations

import zlib
from array import array
from itertools import accumulate, pairwise

from segreader.format.transaction_index import AbortedTransaction
from segreader.isolation import AbortedTransactions


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
    """The transactions that ``pack_aborted`` took."""
    differences = array("q")
    differences.frombytes(zlib.decompress(packed))
    count = len(differences) // 4
    first, last, producer, stable = (list(accumulate(differences[at * count : (at + 1) * count])) for at in range(4))
    return AbortedTransactions(map(AbortedTransaction, producer, first, last, stable))
