from __future__ import annotations

import random

import pytest

from segreader.errors import CorruptBatchError, FormatError
from segreader.format.batch import RecordBatchHeader
from segreader.format.columns import TABLE_WIDTH, Table
from segreader.format.kernel import load_kernel
from segreader.format.scanner import READ_SIZE, BatchReady, BatchRun, Done, NeedData, SegmentScanner, Tail
from segreader.ranges import ByteRange, PieceBuffer
from segreader.testing.builder import SegmentBuilder


def segment(batches: int = 12) -> SegmentBuilder:
    built = SegmentBuilder(40)
    for index in range(batches):
        built.batch([b"x" * (index * 7 % 50)] * (index % 5 + 1))
    return built


def drive(
    scanner: SegmentScanner, data: bytes, piece: int | None = None
) -> tuple[list[tuple[int, bytes]], Done, list[ByteRange]]:
    """Feed what is asked for, in pieces of at most ``piece`` bytes; every batch, the end, and the requests."""
    batches, requests = [], []
    while True:
        answer = scanner.next()
        if isinstance(answer, NeedData):
            requests.append(answer.range)
            stop = min(answer.range.stop, answer.range.start + (piece or len(data) + 1))
            scanner.feed(data[answer.range.start : stop])
        elif isinstance(answer, BatchReady):
            batches.append((answer.position, bytes(answer.data)))
        else:
            return batches, answer, requests


@pytest.fixture(params=["reference", "native"])
def kernel(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("piece", [1, 2, 16, 17, 18, 60, 61, 100, 1000, None])
def test_pieces_of_any_size_give_the_same_batches(kernel: str, piece: int | None) -> None:
    built = segment()
    data = built.to_bytes()
    scanner = SegmentScanner(stop=len(data), kernel=load_kernel(kernel))
    batches, done, _ = drive(scanner, data, piece)
    assert [position for position, _ in batches] == built.batch_positions
    assert b"".join(batch for _, batch in batches) == data
    assert done == Done(Tail.END, len(data))


@pytest.mark.parametrize("piece", [1, 16, 17, 61, 100, 1000, 5000])
@pytest.mark.parametrize("extra", [0, 30])
def test_pieces_with_room_in_front_of_them_give_the_same_batches(kernel: str, piece: int, extra: int) -> None:
    """Two buffers by turns, as a store reads; the last piece may reach behind the wanted bytes."""
    built = segment()
    data, runs = built.to_bytes(), 0
    scanner = SegmentScanner(stop=len(data), kernel=load_kernel(kernel))
    buffers = [PieceBuffer(piece) for _ in range(2)]
    fed, at, found = data + b"z" * extra, 0, []
    while not isinstance(answer := scanner.next_run(), Done):
        if isinstance(answer, NeedData):
            assert answer.range.start == at
            buffers.reverse()
            part = buffers[0].piece(len(fed[at : at + piece]))
            part[:] = fed[at : at + piece]
            at += piece
            scanner.feed(part)
            continue
        runs += 1
        for row in range(answer.rows):
            position, size = answer.table[row * TABLE_WIDTH], answer.table[row * TABLE_WIDTH + Table.SIZE]
            start = position - answer.data_position
            found.append((position, bytes(answer.data[start : start + size])))
    assert [position for position, _ in found] == built.batch_positions
    assert b"".join(batch for _, batch in found) == data
    assert runs <= -(-len(data) // piece)  # a batch that straddles two pieces is no run of its own
    assert answer == Done(Tail.END, len(data))


def test_a_part_of_a_piece_with_room_is_taken_as_any_bytes() -> None:
    """Nothing shows where it begins."""
    data = segment().to_bytes()
    scanner, buffer = SegmentScanner(stop=len(data)), PieceBuffer(len(data))
    batches = []
    for start, stop in ((0, 200), (200, len(data))):
        buffer.piece(len(data))[:] = data
        scanner.feed(buffer.piece(len(data))[start:stop])
        while isinstance(answer := scanner.next(), BatchReady):
            batches.append(bytes(answer.data))
    assert b"".join(batches) == data


def test_a_batch_longer_than_the_room_is_put_together_elsewhere(kernel: str) -> None:
    built = SegmentBuilder(0)
    for size in (100, 300_000, 100, PieceBuffer.ROOM + 5000, 100):
        built.batch([bytes(size)])
    data, whole = built.to_bytes(), b""
    scanner = SegmentScanner(stop=len(data), kernel=load_kernel(kernel))
    at, buffers = 0, [PieceBuffer(50_000) for _ in range(2)]
    while not isinstance(answer := scanner.next_run(), Done):
        if isinstance(answer, BatchRun):
            whole += bytes(answer.data)[answer.table[0] - answer.data_position :][: _size_of(answer)]
            continue
        buffers.reverse()
        part = buffers[0].piece(min(50_000, len(data) - at))
        part[:] = data[at : at + len(part)]
        at += len(part)
        scanner.feed(part)
    assert whole == data


def _size_of(run: BatchRun) -> int:
    return sum(run.table[row * TABLE_WIDTH + Table.SIZE] for row in range(run.rows))


def test_a_segment_of_unknown_size_ends_with_empty_bytes(kernel: str) -> None:
    data = segment().to_bytes()
    batches, done, _ = drive(SegmentScanner(kernel=load_kernel(kernel)), data, 333)
    assert len(batches) == 12
    assert done.tail is Tail.END


def test_a_small_segment_costs_one_request_and_no_byte_beyond_its_end() -> None:
    data = segment().to_bytes()
    _, _, requests = drive(SegmentScanner(stop=len(data)), data)
    assert requests == [ByteRange(0, len(data))]


def test_a_large_segment_is_asked_for_a_mebibyte_at_a_time() -> None:
    built = SegmentBuilder(0)
    for _ in range(40):
        built.batch([b"y" * 60_000])
    data = built.to_bytes()
    _, _, requests = drive(SegmentScanner(stop=len(data)), data)
    assert [request.size for request in requests] == [READ_SIZE, READ_SIZE, len(data) - 2 * READ_SIZE]


def test_it_starts_in_the_middle_at_a_batch(kernel: str) -> None:
    built = segment()
    data, start = built.to_bytes(), built.batch_positions[5]
    batches, done, requests = drive(SegmentScanner(start=start, stop=len(data), kernel=load_kernel(kernel)), data, 50)
    assert [position for position, _ in batches] == built.batch_positions[5:]
    assert requests[0].start == start
    assert done.position == len(data)


def test_a_cut_at_any_byte_is_told_with_what_is_missing(kernel: str) -> None:
    built = segment(4)
    data = built.to_bytes()
    for size in range(len(data)):
        whole = [p for p in [*built.batch_positions[1:], len(data)] if p <= size]
        for known in (True, False):
            scanner = SegmentScanner(stop=size if known else None, kernel=load_kernel(kernel))
            batches, done, _ = drive(scanner, data[:size], 40)
            at = whole[-1] if whole else 0
            assert len(batches) == len(whole)
            assert (done.position, done.trailing_bytes) == (at, size - at)
            assert done.tail is (Tail.END if size == at else Tail.CUT if any(data[at:size]) else Tail.ZERO)
            if size - at >= 17:
                later = next(p for p in [*built.batch_positions[1:], len(data)] if p > at)
                assert done.missing_bytes == later - size


@pytest.mark.parametrize("zeros", [1, 16, 17, 18, 100, 3_000_000])
def test_a_tail_of_zeros_is_told_from_a_cut(kernel: str, zeros: int) -> None:
    data = segment(3).to_bytes()
    for piece in (None, 5000):
        scanner = SegmentScanner(stop=len(data) + zeros, kernel=load_kernel(kernel))
        batches, done, _ = drive(scanner, data + bytes(zeros), piece)
        assert len(batches) == 3
        assert done == Done(Tail.ZERO, len(data), zeros)


@pytest.mark.parametrize("piece", [1, 7, 30, None])
def test_zeros_between_batches_are_damage(piece: int | None) -> None:
    built = segment(3)
    data = built.to_bytes() + bytes(64) + segment(1).to_bytes()
    scanner = SegmentScanner(stop=len(data))
    with pytest.raises(CorruptBatchError, match="there are zeros between") as caught:
        drive(scanner, data, piece)
    assert caught.value.position == len(built.to_bytes())


def test_an_impossible_size_is_refused_after_the_batches_before_it(kernel: str) -> None:
    built = segment(3)
    data = bytearray(built.to_bytes())
    at = built.batch_positions[2]
    data[at + 8 : at + 12] = (13).to_bytes(4, "big")
    for piece in (1, 64, None):
        scanner = SegmentScanner(stop=len(data), kernel=load_kernel(kernel))
        seen = []
        with pytest.raises(CorruptBatchError, match="size 13") as caught:
            while True:
                answer = scanner.next()
                if isinstance(answer, NeedData):
                    stop = min(answer.range.stop, answer.range.start + (piece or len(data)))
                    scanner.feed(bytes(data[answer.range.start : stop]))
                elif isinstance(answer, BatchReady):
                    seen.append(answer.position)
        assert seen == built.batch_positions[:2]
        assert caught.value.position == at + 8


def test_a_size_of_two_gigabytes_is_refused_without_holding_it() -> None:
    data = bytearray(segment(1).to_bytes())
    data[8:12] = (0x7FFFFF00).to_bytes(4, "big")
    scanner = SegmentScanner(max_batch_size=1 << 20)
    scanner.feed(data)
    with pytest.raises(CorruptBatchError, match="limit"):
        scanner.next()


def test_every_flipped_bit_gives_batches_or_a_format_error_from_both_kernels() -> None:
    data = bytearray(segment(3).to_bytes())
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        answers: list[object] = []
        for name in ("reference", "native"):
            try:
                answers.append(drive(SegmentScanner(stop=len(data), kernel=load_kernel(name)), bytes(data), 100)[:2])
            except FormatError as error:
                answers.append((type(error), error.position))
        assert answers[0] == answers[1]
        data[bit // 8] ^= 1 << bit % 8


def test_random_bytes_end_quickly() -> None:
    chance = random.Random(3)
    for _ in range(300):
        data = chance.randbytes(chance.randrange(1, 400))
        for name in ("reference", "native"):
            try:
                drive(SegmentScanner(stop=len(data), kernel=load_kernel(name)), data, 64)
            except FormatError as error:
                assert error.position is not None


def test_a_batch_says_its_header_and_its_place() -> None:
    built = segment(3)
    data = built.to_bytes()
    scanner = SegmentScanner(stop=len(data))
    scanner.feed(data)
    answer = scanner.next()
    assert isinstance(answer, BatchReady)
    assert isinstance(answer.header, RecordBatchHeader)
    assert (answer.header.base_offset, answer.position, len(answer.data)) == (40, 0, built.batch_positions[1])


def test_what_is_fed_is_not_copied() -> None:
    data = bytearray(segment(3).to_bytes())
    scanner = SegmentScanner(stop=len(data))
    scanner.feed(data)
    answer = scanner.next()
    assert isinstance(answer, BatchReady)
    assert answer.data.obj is data
