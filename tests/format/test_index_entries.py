"""Rows to columns, for any byte order and any field."""

from __future__ import annotations

import struct
from array import array

import pytest

from segreader.format.index_files import column, count_rising, written_size
from segreader.format.kernel import VARIABLE, load_kernel


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


@pytest.mark.parametrize("kernel", ["reference", "native"])
@pytest.mark.parametrize("typecode", ["i", "q"])
@pytest.mark.parametrize(
    ("values", "strictly", "count"),
    [
        ([], True, 0),
        ([-1, 5], True, 0),
        ([0, 5, 6], True, 3),
        ([0, 5, 5, 9], True, 2),
        ([0, 5, 5, 9], False, 4),
        ([4, 3], False, 1),
        ([0, (1 << 31) - 1, -(1 << 31)], True, 2),
        ([0, (1 << 31) - 1, -1], False, 2),
    ],
)
def test_values_count_until_one_does_not_rise(
    values: list[int], strictly: bool, count: int, typecode: str, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, kernel)
    assert count_rising(array(typecode, values), strictly=strictly) == count


@pytest.mark.parametrize("kernel", ["reference", "native"])
@pytest.mark.parametrize("strictly", [True, False])
def test_the_largest_numbers_rise_without_overflow(kernel: str, strictly: bool) -> None:
    largest, least = (1 << 63) - 1, -(1 << 63)
    rising = load_kernel(kernel).count_rising

    assert rising(array("q", [0, largest, largest, least]), strictly) == (2 if strictly else 3)
    assert rising(array("q", [least, 0]), strictly) == 0
