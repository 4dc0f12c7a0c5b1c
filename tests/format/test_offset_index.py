"""The offset index: both entry sizes, lookups, and files that end in something else."""

from __future__ import annotations

import pickle
import struct

import pytest

from segreader.errors import CorruptIndexError
from segreader.format.index_files import OffsetPosition, parse_offset_index

EIGHT = bytes.fromhex(
    "00000007 00001068"  # offset 107 at position 4200
    "00000013 000020d0"  # offset 119 at position 8400
)
TWELVE = bytes.fromhex("00000007 0000000000001068 00000013 00000000000020d0")
ENTRIES = [OffsetPosition(107, 4200), OffsetPosition(119, 8400)]


def entries(*pairs: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *pair) for pair in pairs)


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        (0, OffsetPosition(100, 0)),
        (100, OffsetPosition(100, 0)),
        (106, OffsetPosition(100, 0)),
        (107, OffsetPosition(107, 4200)),
        (118, OffsetPosition(107, 4200)),
        (119, OffsetPosition(119, 8400)),
        (500, OffsetPosition(119, 8400)),
        (1 << 62, OffsetPosition(119, 8400)),
    ],
)
@pytest.mark.parametrize("zeros", [0, 16])
def test_a_lookup_finds_the_last_entry_at_or_below_the_offset(offset: int, found: OffsetPosition, zeros: int) -> None:
    assert parse_offset_index(EIGHT + bytes(zeros), 100).lookup(offset) == found


@pytest.mark.parametrize(
    ("offset", "start", "stop"),
    [(0, 0, 8400), (106, 0, 8400), (107, 4200, 9000), (118, 4200, 9000), (119, 8400, 9000), (1 << 62, 8400, 9000)],
)
def test_the_bytes_around_an_offset_reach_over_the_batch_of_the_next_entry(offset: int, start: int, stop: int) -> None:
    assert parse_offset_index(EIGHT, 100).around(offset, 9000) == (start, stop)


def test_an_index_lists_its_entries_in_order() -> None:
    index = parse_offset_index(memoryview(EIGHT), 100, log_size=8401)

    assert list(index) == ENTRIES
    assert (index.entry_size, index.trailing_bytes, index.zero_tail) == (8, 0, 0)


def test_an_empty_index_starts_every_reader_at_the_beginning() -> None:
    index = parse_offset_index(b"", 100, log_size=0)

    assert list(index) == []
    assert index.lookup(105) == OffsetPosition(100, 0)
    assert list(index.positions()) == [0]


def test_splits_may_begin_at_zero_and_at_every_entry() -> None:
    assert list(parse_offset_index(EIGHT, 100).positions()) == [0, 4200, 8400]
    assert list(parse_offset_index(entries((0, 0), (5, 70)), 100).positions()) == [0, 70]


def test_the_zeros_of_a_preallocated_index_are_no_entries() -> None:
    index = parse_offset_index(EIGHT + bytes(1 << 20), 100, log_size=9000)

    assert list(index) == ENTRIES
    assert (index.zero_tail, index.trailing_bytes) == (1 << 20, 0)
    assert len(parse_offset_index(bytes(64), 100, log_size=0)) == 0


@pytest.mark.parametrize(
    "left_over",
    [(0, 0, 30, 9000), (18, 9000), (19, 9000), (30, 8400), (-1, 9000)],
    ids=["zeros and more", "offset falls", "offset stays", "position stays", "negative"],
)
def test_reading_stops_where_entries_stop_rising_and_reports_what_follows(left_over: tuple[int, ...]) -> None:
    tail = struct.pack(f">{len(left_over)}i", *left_over)
    index = parse_offset_index(EIGHT + tail + bytes(8), 100, log_size=10_000)

    assert list(index) == ENTRIES
    assert (index.trailing_bytes, index.zero_tail) == (len(tail), 8)


@pytest.mark.parametrize("size", [1, 7, 9, 15])
def test_an_index_cut_inside_an_entry_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptIndexError) as caught:
        parse_offset_index(EIGHT[:size], 100)

    assert caught.value.position == size - size % 8
    assert caught.value.base_offset == 100


def test_an_entry_outside_its_log_is_corrupt() -> None:
    with pytest.raises(CorruptIndexError, match="position 8400, expected below 8400") as caught:
        parse_offset_index(EIGHT, 100, log_size=8400)

    assert caught.value.position == 8


@pytest.mark.parametrize("zeros", [0, 24])
def test_twelve_byte_entries_are_read_where_eight_byte_ones_do_not_rise(zeros: int) -> None:
    index = parse_offset_index(TWELVE + bytes(zeros), 100, log_size=8401)

    assert list(index) == ENTRIES
    assert index.entry_size == 12


def test_twelve_byte_entries_reach_beyond_two_gib() -> None:
    data = struct.pack(">iqiq", 7, 1 << 20, 19, 5 << 30)
    index = parse_offset_index(data, 100, log_size=6 << 30)

    assert index.lookup(119) == OffsetPosition(119, 5 << 30)
    assert list(index.positions()) == [0, 1 << 20, 5 << 30]


def test_entries_that_rise_both_ways_are_read_as_eight_bytes() -> None:
    data = entries((1, 100), (2, 200), (3, 300))

    assert parse_offset_index(data, 0).entry_size == 8


def test_entries_that_only_leave_the_log_as_eight_bytes_are_read_as_twelve() -> None:
    data = struct.pack(">iqiq", 1, 5, 6 << 20, 7 << 20)

    assert list(parse_offset_index(data, 0)) == [
        OffsetPosition(1, 5),
        OffsetPosition(6 << 20, 7 << 20),
    ]
    assert parse_offset_index(data, 0, log_size=8 << 20).entry_size == 12


def test_an_index_survives_pickle() -> None:
    index = parse_offset_index(EIGHT, 100)

    assert pickle.loads(pickle.dumps(index)) == index
