"""Entries of fixed size, as Kafka's memory-mapped indexes hold them: rows to columns, and the end of the
entries.

``offset_index`` and ``time_index`` define what the columns mean.
"""

from __future__ import annotations

import sys
from array import array

from segreader.format.kernel import load_kernel

_TYPECODES = {4: "i", 8: "q"}


def written_size(data: bytes, entry_size: int) -> int:
    """Bytes from the start to the end of the last entry that is not all zeros.

    A broker preallocates the index of its active segment; the zeros that follow the entries are room, not
    entries. Source: ``AbstractIndex`` (4.0).
    """
    return -(-len(data.rstrip(b"\0")) // entry_size) * entry_size


def column(data: bytes, entry_size: int, first: int, width: int) -> array[int]:
    """One big-endian signed field of every entry, in the order of the file.

    Args:
        data: whole entries.
        entry_size: bytes of one entry.
        first: where the field begins in its entry, in bytes.
        width: bytes of the field, 4 or 8.
    """
    packed = bytearray(len(data) // entry_size * width)
    for byte in range(width):
        packed[byte::width] = data[first + byte :: entry_size]
    values = array(_TYPECODES[width], bytes(packed))
    if sys.byteorder == "little":
        values.byteswap()
    return values


def count_rising(values: array[int], *, strictly: bool = True) -> int:
    """How many leading values are not negative and rise; if not ``strictly``, equal neighbours do as well."""
    return load_kernel().count_rising(values, strictly)
