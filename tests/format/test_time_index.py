"""The time index: lookups, the largest time, and files that end in something else."""

from __future__ import annotations

import pickle
import struct

import pytest

from segreader.errors import CorruptIndexError
from segreader.format.index_files import TimestampOffset, parse_time_index

T = 1_700_000_000_000
DATA = bytes.fromhex(
    "0000018bcfe56800 00000007"  # T, offset 107
    "0000018bcfe568fa 00000013"  # T + 250, offset 119
)
ENTRIES = [TimestampOffset(T, 107), TimestampOffset(T + 250, 119)]


@pytest.mark.parametrize(
    ("timestamp_ms", "found"),
    [
        (-1, TimestampOffset(-1, 100)),
        (1, TimestampOffset(-1, 100)),
        (T - 1, TimestampOffset(-1, 100)),
        (T, TimestampOffset(T, 107)),
        (T + 249, TimestampOffset(T, 107)),
        (T + 250, TimestampOffset(T + 250, 119)),
        (1 << 62, TimestampOffset(T + 250, 119)),
    ],
)
@pytest.mark.parametrize("zeros", [0, 24])
def test_a_lookup_finds_the_last_entry_at_or_before_the_time(
    timestamp_ms: int, found: TimestampOffset, zeros: int
) -> None:
    assert parse_time_index(DATA + bytes(zeros), 100).lookup(timestamp_ms) == found


def test_the_last_entry_holds_the_largest_time() -> None:
    index = parse_time_index(memoryview(DATA), 100)

    assert list(index) == ENTRIES
    assert index.max_timestamp_ms == T + 250
    assert (index.trailing_bytes, index.zero_tail) == (0, 0)


@pytest.mark.parametrize("data", [b"", bytes(120)])
def test_an_index_without_entries_knows_no_time(data: bytes) -> None:
    index = parse_time_index(data, 100)

    assert index.max_timestamp_ms is None
    assert index.lookup(T) == TimestampOffset(-1, 100)
    assert index.zero_tail == len(data)


def test_a_first_entry_at_time_zero_counts() -> None:
    index = parse_time_index(bytes(12) + struct.pack(">qi", 5, 0), 100)

    assert list(index) == [TimestampOffset(0, 100), TimestampOffset(5, 100)]


@pytest.mark.parametrize(
    "left_over",
    [(T + 250, 20), (T + 100, 20), (T + 300, 18), (-1, 20)],
    ids=["time stays", "time falls", "offset falls", "negative"],
)
def test_reading_stops_where_entries_stop_rising_and_reports_what_follows(left_over: tuple[int, int]) -> None:
    index = parse_time_index(DATA + struct.pack(">qi", *left_over) + bytes(36), 100)

    assert list(index) == ENTRIES
    assert (index.trailing_bytes, index.zero_tail) == (12, 36)


@pytest.mark.parametrize("size", [1, 11, 13, 23])
def test_an_index_cut_inside_an_entry_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptIndexError) as caught:
        parse_time_index(DATA[:size], 100)

    assert caught.value.position == size - size % 12


def test_an_index_survives_pickle() -> None:
    index = parse_time_index(DATA, 100)

    assert pickle.loads(pickle.dumps(index)) == index
