"""Offset and time indexes: each defect is planted into a sound partition, and nothing else is found."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from planted import Planted, sound_log

from segreader.testing.builder import SegmentBuilder
from segreader.testing.side_files import encode_offset_index, encode_time_index


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return Planted(tmp_path)


def offset_entries(planted: Planted, number: int) -> list[tuple[int, int]]:
    """The entries of an offset index: offset and position."""
    base, data = planted.segments[number].base_offset, planted.data(number, "index")
    return [(base + offset, position) for offset, position in struct.iter_unpack(">ii", bytes(data))]


def put_offsets(planted: Planted, number: int, entries: list[tuple[int, int]]) -> None:
    planted.put(number, "index", encode_offset_index(planted.segments[number].base_offset, entries))


def time_entries(planted: Planted, number: int) -> list[tuple[int, int]]:
    """The entries of a time index: timestamp and offset."""
    base, data = planted.segments[number].base_offset, planted.data(number, "timeindex")
    return [(time, base + offset) for time, offset in struct.iter_unpack(">qi", bytes(data))]


def put_times(planted: Planted, number: int, entries: list[tuple[int, int]]) -> None:
    planted.put(number, "timeindex", encode_time_index(planted.segments[number].base_offset, entries))


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("extra", [1, 3, 7])
def test_an_offset_index_that_ends_inside_an_entry(planted: Planted, number: int, extra: int) -> None:
    planted.put(number, "index", planted.data(number, "index")[:-extra])

    assert planted.codes_of_both() == {"cut-offset-index"}


def test_offset_index_entries_that_do_not_rise(planted: Planted) -> None:
    entries = offset_entries(planted, 1)
    entries[3], entries[4] = entries[4], entries[3]
    put_offsets(planted, 1, entries)

    assert planted.codes_of_both() == {"offset-index-not-rising"}


def test_an_offset_index_that_was_not_trimmed(planted: Planted) -> None:
    planted.put(1, "index", planted.data(1, "index") + bytes(80))

    assert planted.codes_of_both() == {"offset-index-zero-tail"}


def test_an_offset_index_that_points_beyond_its_log(planted: Planted) -> None:
    put_offsets(planted, 1, [*offset_entries(planted, 1), (60, 1_000_000)])

    assert planted.codes_of_both() == {"index-beyond-log"}


@pytest.mark.parametrize("entry", [0, 3, 6])
@pytest.mark.parametrize("shift", [1, -5, 60])
def test_an_entry_that_points_into_a_batch(planted: Planted, entry: int, shift: int) -> None:
    entries = offset_entries(planted, 1)
    entries[entry] = (entries[entry][0], entries[entry][1] + shift)
    put_offsets(planted, 1, entries)

    assert planted.codes_of_both() == {"index-not-at-batch"}


def test_an_entry_in_a_long_index_that_is_not_sampled_is_found_by_deep_only(tmp_path: Path) -> None:
    segment = SegmentBuilder(0, index_interval_bytes=1)
    for value in range(200):
        segment.batch([b"%d" % value])
    planted = Planted(tmp_path, [segment])
    entries = offset_entries(planted, 0)
    entries[100] = (entries[100][0], entries[100][1] + 3)
    put_offsets(planted, 0, entries)

    assert planted.codes() == set()
    assert planted.codes(deep=True) == {"index-not-at-batch"}


@pytest.mark.parametrize("shift", [-2, 1])
def test_an_entry_with_an_offset_that_no_batch_ends_with(planted: Planted, shift: int) -> None:
    entries = offset_entries(planted, 1)
    entries[2] = (entries[2][0] + shift, entries[2][1])
    put_offsets(planted, 1, entries)

    assert planted.codes(deep=True) == {"index-wrong-offset"}


def test_an_entry_may_name_the_last_offset_of_several_batches_appended_together(planted: Planted) -> None:
    entries = offset_entries(planted, 1)
    entries[2] = (entries[2][0] + 2, entries[2][1])
    put_offsets(planted, 1, entries)

    assert planted.codes(deep=True) == set()


def test_an_entry_that_is_left_out_is_no_defect(planted: Planted) -> None:
    entries = offset_entries(planted, 1)
    put_offsets(planted, 1, entries[:2] + entries[3:])

    assert planted.codes(deep=True) == set()


@pytest.mark.parametrize("extra", [1, 5, 11])
def test_a_time_index_that_ends_inside_an_entry(planted: Planted, extra: int) -> None:
    planted.put(1, "timeindex", planted.data(1, "timeindex") + b"\1" * extra)

    assert planted.codes_of_both() == {"cut-time-index"}


def test_time_index_entries_that_do_not_rise(planted: Planted) -> None:
    entries = time_entries(planted, 1)
    entries[3], entries[4] = entries[4], entries[3]
    put_times(planted, 1, entries)

    assert planted.codes_of_both() == {"time-index-not-rising"}


def test_a_time_index_that_was_not_trimmed(planted: Planted) -> None:
    planted.put(1, "timeindex", planted.data(1, "timeindex") + bytes(120))

    assert planted.codes_of_both() == {"time-index-zero-tail"}


def test_a_time_index_with_an_offset_beyond_its_segment(planted: Planted) -> None:
    entries = time_entries(planted, 1)
    put_times(planted, 1, [*entries[:-1], (entries[-1][0], 70)])

    assert planted.codes_of_both() == {"time-index-outside-segment"}


@pytest.mark.parametrize("shift", [-1, 1])
@pytest.mark.parametrize("entry", [0, 4])
def test_a_time_index_entry_that_is_not_the_largest_up_to_there(planted: Planted, entry: int, shift: int) -> None:
    entries = time_entries(planted, 1)
    entries[entry] = (entries[entry][0] + shift, entries[entry][1])
    put_times(planted, 1, entries)

    assert planted.codes(deep=True) == {"time-index-wrong-timestamp"}


def test_a_time_index_without_its_last_entry(planted: Planted) -> None:
    put_times(planted, 1, time_entries(planted, 1)[:-1])

    assert planted.codes(deep=True) == {"time-index-wrong-end"}


def test_an_empty_time_index_of_a_finished_segment(planted: Planted) -> None:
    planted.put(1, "timeindex", b"")

    assert planted.codes(deep=True) == {"time-index-wrong-end"}


def test_two_defects_are_two_findings(tmp_path: Path) -> None:
    planted = Planted(tmp_path, sound_log(4))
    planted.put(0, "index", planted.data(0, "index")[:-1])
    planted.put(3, "timeindex", planted.data(3, "timeindex")[:-1])

    assert planted.codes_of_both() == {"cut-offset-index", "cut-time-index"}
