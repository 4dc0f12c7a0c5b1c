"""Rows to columns, for any byte order and any field."""

from __future__ import annotations

import struct
from array import array

import pytest

from segreader.format.index_entries import column, count_rising, written_size


def test_a_column_holds_the_same_field_of_every_entry() -> None:
    data = struct.pack(">qiqi", 1 << 40, 7, -2, -(1 << 31))

    assert list(column(data, 12, 0, 8)) == [1 << 40, -2]
    assert list(column(data, 12, 8, 4)) == [7, -(1 << 31)]


def test_a_column_of_nothing_is_empty() -> None:
    assert list(column(b"", 8, 4, 4)) == []


@pytest.mark.parametrize(
    ("data", "written"),
    [(b"", 0), (bytes(16), 0), (b"\1" + bytes(15), 8), (bytes(8) + b"\0\0\1\0" + bytes(12), 16)],
)
def test_the_written_part_ends_with_the_entry_of_the_last_byte_that_is_not_zero(data: bytes, written: int) -> None:
    assert written_size(data, 8) == written


@pytest.mark.parametrize(
    ("values", "strictly", "count"),
    [
        ([], True, 0),
        ([-1, 5], True, 0),
        ([0, 5, 6], True, 3),
        ([0, 5, 5, 9], True, 2),
        ([0, 5, 5, 9], False, 4),
        ([4, 3], False, 1),
    ],
)
def test_values_count_until_one_does_not_rise(values: list[int], strictly: bool, count: int) -> None:
    assert count_rising(array("i", values), strictly=strictly) == count
