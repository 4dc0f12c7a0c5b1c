from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from segreader.format.index_files import OffsetIndex, parse_offset_index
from segreader.plan.cut import Cutting, SplitOffsets, cut, cut_positions, needs_index, overlapping
from segreader.plan.lineage import Part
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import Segment, SegmentFiles, TopicIdPartition
from segreader.testing.builder import SegmentBuilder

PARTITION = TopicIdPartition("orders", 0)
ALL = OffsetRange(100, 280)


def segment(base: int, size: int = 1000, last: int | None = None) -> Segment:
    return Segment(PARTITION, base, size, SegmentFiles(f"{base}.log"), last_offset=last)


def part(base: int, stop: int) -> Part:
    return Part(segment(base, last=stop - 1), base, stop)


def indexed() -> tuple[Segment, SegmentBuilder]:
    """Sixty batches of three records from offset 100 on, and an index entry about every 500 bytes."""
    built = SegmentBuilder(100, index_interval_bytes=500)
    for _ in range(60):
        built.batch([b"0123456789"] * 3)
    return segment(100, len(built.to_bytes())), built


def split_of(whole: Segment, stop: int | None = None, offsets: OffsetRange = ALL) -> Split:
    """All of a segment; or of its first bytes."""
    return Split(
        partition=PARTITION,
        log="100.log",
        log_size=whole.log_size,
        positions=ByteRange(0, whole.log_size if stop is None else stop),
        offsets=offsets,
        base_offset=100,
    )


def ranges_of(whole: Segment, index: OffsetIndex | None, offsets: OffsetRange, split_bytes: int) -> list[ByteRange]:
    """The bytes of the pieces."""
    return [one.positions for one in cut(split_of(whole, None, offsets), index, Cutting(split_bytes=split_bytes))]


def exactly(split: Split, index: OffsetIndex | None, split_bytes: int) -> list[Split]:
    return list(cut(split, index, Cutting(split_bytes=split_bytes, offsets=SplitOffsets.INDEXED)))


def test_only_segments_that_can_hold_the_offsets_are_chosen() -> None:
    parts = [part(0, 10), part(10, 20), part(20, 30)]
    for offsets, bases in [
        (OffsetRange(), [0, 10, 20]),
        (OffsetRange(10), [10, 20]),
        (OffsetRange(9, 10), [0]),
        (OffsetRange(9, 11), [0, 10]),
        (OffsetRange(25), [20]),
        (OffsetRange(30), []),
    ]:
        chosen = overlapping(parts, offsets)
        assert [one.segment.base_offset for one, _ in chosen] == bases
        for one, wanted in chosen:
            assert wanted == OffsetRange(max(one.start, offsets.start), min(one.stop, offsets.stop or 99))


def test_only_the_edges_of_a_range_need_an_index() -> None:
    assert needs_index(part(0, 10), OffsetRange(5, 10), Cutting(split_bytes=1 << 20))
    assert not needs_index(part(10, 20), OffsetRange(10, 20), Cutting(split_bytes=1 << 20))
    assert needs_index(part(20, 30), OffsetRange(20, 25), Cutting(split_bytes=1 << 20))
    assert needs_index(part(10, 20), OffsetRange(10, 20), Cutting(split_bytes=999))


def test_pieces_begin_at_batches_and_cover_the_segment_without_a_gap() -> None:
    whole, built = indexed()
    index = parse_offset_index(built.index(), 100)
    for size in (1, 700, 2000, 10**9):
        pieces = ranges_of(whole, index, OffsetRange(), size)
        assert pieces[0].start == 0
        assert pieces[-1].stop == whole.log_size
        assert all(one.stop == two.start for one, two in pairwise(pieces))
        assert {piece.start for piece in pieces} <= set(built.batch_positions)
        assert all(piece.size >= size for piece in pieces[:-1])


def test_a_range_of_offsets_keeps_every_batch_that_holds_some_of_them_and_few_others() -> None:
    whole, built = indexed()
    index = parse_offset_index(built.index(), 100)
    ends = [*built.batch_positions[1:], whole.log_size]
    for start in range(95, 285, 7):
        for stop in (start + 1, start + 40, 400):
            pieces = ranges_of(whole, index, OffsetRange(start, stop), 10**9)
            for number, (at, end) in enumerate(zip(built.batch_positions, ends, strict=True)):
                base = 100 + 3 * number
                if base < stop and base + 3 > start:
                    assert any(piece.start <= at and end <= piece.stop for piece in pieces)
            wanted = max(0, min(stop, 280) - max(start, 100))
            assert sum(piece.size for piece in pieces) <= wanted * 60 + 2500


def test_without_an_index_the_segment_is_one_piece() -> None:
    assert ranges_of(segment(100), None, OffsetRange(150, 160), 1) == [ByteRange(0, 1000)]


def test_pieces_cut_exactly_have_offsets_that_follow_each_other_and_all_their_batches() -> None:
    whole, built = indexed()
    index = parse_offset_index(built.index(), 100)
    for size in (1, 700, 2000):
        pieces = exactly(split_of(whole), index, size)
        assert len(pieces) > 2
        assert [piece.offsets.start for piece in pieces] == [100, *(piece.offsets.stop for piece in pieces[:-1])]
        assert pieces[-1].offsets.stop == 280
        for number, at in enumerate(built.batch_positions):
            for offset in range(100 + 3 * number, 103 + 3 * number):
                (owner,) = (piece for piece in pieces if offset in piece.offsets)
                assert owner.positions.start <= at < owner.positions.stop
    assert exactly(split_of(whole), None, 1) == [split_of(whole)]


def test_a_split_that_ends_at_an_entry_is_cut_exactly_into_pieces_of_one_byte_or_more() -> None:
    whole, built = indexed()
    index = parse_offset_index(built.index(), 100)
    for stop in index.entry_positions[1:]:
        pieces = exactly(split_of(whole, stop), index, 1)
        assert pieces[-1].positions.stop == stop


def test_pieces_by_bytes_share_the_range_of_offsets() -> None:
    whole, built = indexed()
    index = parse_offset_index(built.index(), 100)
    for size in (1, 700, 2000):
        pieces = list(cut(split_of(whole), index, Cutting(split_bytes=size)))
        assert [piece.positions for piece in pieces] == ranges_of(whole, index, OffsetRange(), size)
        assert {piece.offsets for piece in pieces} == {ALL}


def test_pieces_cut_at_batches_have_offsets_and_bytes_that_adjoin() -> None:
    whole, built = indexed()
    index, cutting = parse_offset_index(built.index(), 100), Cutting(split_bytes=700, offsets=SplitOffsets.BATCHES)
    bases = {at: 100 + 3 * number for number, at in enumerate(built.batch_positions)}
    places = cut_positions(index, ALL, cutting, whole)
    assert [0, *places] == [one.start for one in ranges_of(whole, index, OffsetRange(), 700)]

    pieces = list(cut(split_of(whole), index, cutting, bases))
    assert [one.positions.start for one in pieces] == [0, *places]
    assert all(one.positions.stop == two.positions.start for one, two in pairwise(pieces))
    assert [one.offsets.start for one in pieces] == [bases[one.positions.start] for one in pieces]
    assert [one.offsets.stop for one in pieces] == [*(one.offsets.start for one in pieces[1:]), 280]

    for unknown in (None, 100, 280):  # a header that does not tell, or leaves nothing on one side
        some = list(cut(split_of(whole), index, cutting, bases | {places[1]: unknown}))
        joined = replace(pieces[1], positions=ByteRange(places[0], places[2]), offset_bound=pieces[2].offset_bound)
        joined = replace(joined, offsets=OffsetRange(bases[places[0]], bases[places[2]]), reaches=pieces[2].reaches)
        assert some == [pieces[0], joined, *pieces[3:]]


@pytest.mark.parametrize("offsets", SplitOffsets)
def test_no_piece_has_more_offsets_than_it_may(offsets: SplitOffsets) -> None:
    whole, built = indexed()
    index = parse_offset_index(built.index(), 100)
    for most in (1, 7, 100, 180, 500):
        pieces = list(cut(split_of(whole), index, Cutting(most_offsets=most, offsets=offsets)))
        assert [piece.offsets.start for piece in pieces] == [100, *(piece.offsets.stop for piece in pieces[:-1])]
        assert max((piece.offsets.stop or 0) - piece.offsets.start for piece in pieces) == min(most, 180)
        for number, at in enumerate(built.batch_positions):
            for offset in range(100 + 3 * number, 103 + 3 * number):
                (owner,) = (piece for piece in pieces if offset in piece.offsets)
                assert owner.positions.start <= at < owner.positions.stop


@pytest.mark.parametrize("cutting", [Cutting(split_bytes=700), Cutting(split_bytes=700, offsets=SplitOffsets.INDEXED)])
def test_a_piece_has_the_bounds_that_the_index_names(cutting: Cutting) -> None:
    whole, built = indexed()
    index = parse_offset_index(built.index(), 100)
    named = {one.position: one.offset for one in index}
    pieces = list(cut(replace(split_of(whole), offset_bound=280, reaches=279), index, cutting))
    assert [one.first_bound for one in pieces] == [None, *(named[one.positions.start] for one in pieces[1:])]
    assert [one.offset_bound for one in pieces] == [*(named[one.positions.stop] for one in pieces[:-1]), 280]
    assert [one.reaches for one in pieces] == [
        *((one.offsets.stop or 0) - 1 if cutting.offsets is SplitOffsets.INDEXED else None for one in pieces[:-1]),
        279,
    ]
