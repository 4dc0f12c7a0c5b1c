"""Redpanda's batches: header conversion, offsets, and what is refused."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from crc32c import crc32c

from segreader.catalog.layouts.redpanda.batches import RedpandaSegment, StoredBatch, iter_batches, to_kafka
from segreader.errors import CorruptBatchError, FormatError, TruncatedError
from segreader.format.batch import parse_batch_header
from segreader.format.compression import Codec, Decompressor
from segreader.format.records import iter_records
from segreader.testing.builder import SegmentBuilder
from segreader.testing.redpanda import ARCHIVAL_METADATA, RAFT_CONFIGURATION, TX_FENCE, internal_batch, to_stored

GOLDEN = bytes.fromhex(
    "377b5553"  # header_crc, over what follows
    "44000000"  # size_bytes: 68
    "0c00000000000000"  # base_offset 12
    "01"  # type: raft_data
    "7f8528c4"  # crc, as Kafka computes it
    "0000"  # attributes
    "00000000"  # last_offset_delta
    "0068e5cf8b010000"  # first_timestamp 1700000000000
    "0068e5cf8b010000"  # max_timestamp
    "ffffffffffffffff"  # producer_id
    "ffff"  # producer_epoch
    "ffffffff"  # base_sequence
    "01000000"  # record_count
    "0c000000010100"  # a record of neither key nor value
)


def pieces(data: bytes, size: int) -> Iterator[memoryview]:
    """The bytes in pieces of one size."""
    return (memoryview(data)[at : at + size] for at in range(0, len(data), size))


def converted(data: bytes, *, delta: int = 0, base: int = 0, last: int | None = None, piece: int = 1 << 20) -> bytes:
    """What a reader of Kafka gets."""
    segment = RedpandaSegment(len(data), base, delta, last)
    return b"".join(bytes(part) for part in to_kafka(pieces(data, piece), segment, 0))


def stored(kafka: bytes, delta: int) -> bytes:
    """A log of Kafka's as Redpanda stores it."""
    out, at = b"", 0
    while at < len(kafka):
        size = parse_batch_header(kafka, at).size
        out, at = out + to_stored(kafka[at : at + size], delta), at + size
    return out


def test_every_field_of_a_stored_header_is_read() -> None:
    segment = RedpandaSegment(len(GOLDEN), 10, 2)
    batch, *records = iter_batches([memoryview(GOLDEN)], segment)

    assert batch == StoredBatch(
        0, 68, 12, 10, 1, (0xC428857F, 0, 0, 1_700_000_000_000, 1_700_000_000_000, -1, -1, -1, 1)
    )
    assert [bytes(part) for part in records if isinstance(part, memoryview)] == [GOLDEN[61:]]


def test_a_converted_batch_is_kafkas_with_the_size_and_crc_it_was_stored_with() -> None:
    (part,) = to_kafka([memoryview(GOLDEN)], RedpandaSegment(len(GOLDEN), 10, 2), 7)
    header = parse_batch_header(part)

    assert (header.base_offset, header.size, header.partition_leader_epoch) == (10, 68, 7)
    assert header.crc == 0xC428857F == crc32c(bytes(part[21:]))


@pytest.mark.parametrize("codec", list(Codec))
def test_kafka_to_redpanda_and_back_is_the_same_bytes(codec: Codec) -> None:
    kafka = (
        SegmentBuilder(5)
        .batch([b"a", b"b"], codec=codec, producer_id=4, transactional=True)
        .marker(4)
        .batch([b"c"], codec=codec, log_append_time_ms=1_700_000_000_123)
        .to_bytes()
    )

    assert converted(stored(kafka, 30), delta=30, base=35) == kafka


@pytest.mark.parametrize("piece", [1, 7, 60, 61, 62, 500])
def test_pieces_of_any_size_give_the_same_log(piece: int) -> None:
    kafka = SegmentBuilder().batch([b"a" * 100]).batch([b"b", b"c"]).to_bytes()
    data = internal_batch(RAFT_CONFIGURATION, 0) + stored(kafka, 1) + internal_batch(ARCHIVAL_METADATA, 4)

    assert converted(data, piece=piece) == kafka


def test_batches_without_an_offset_of_kafkas_shift_the_rest_and_others_leave_a_gap() -> None:
    one, two = SegmentBuilder(10).batch([b"a", b"b"]), SegmentBuilder(13).batch([b"c"])
    data = (
        internal_batch(RAFT_CONFIGURATION, 14, offsets=2)
        + to_stored(one.to_bytes(), 6)  # 16 and 17
        + internal_batch(ARCHIVAL_METADATA, 18)
        + internal_batch(TX_FENCE, 19)  # offset 12 of Kafka's, which no consumer is given
        + to_stored(two.to_bytes(), 7)
    )

    assert converted(data, delta=4, base=14) == one.to_bytes() + two.to_bytes()


@pytest.mark.parametrize(("kind", "shift"), [(kind, 1) for kind in (2, 19, 23, 25, 34, 37, 38, 40)] + [(9, 0), (29, 0)])
def test_only_some_kinds_take_no_offset(kind: int, shift: int) -> None:
    kafka = SegmentBuilder(1 - shift).batch([b"a"]).to_bytes()

    assert converted(internal_batch(kind, 0) + to_stored(kafka, shift)) == kafka


def test_records_are_kept_as_they_are() -> None:
    builder = SegmentBuilder(3).batch([b"a", b"b", b"c"], codec=Codec.ZSTD)

    records = iter_records(memoryview(converted(stored(builder.to_bytes(), 0), base=3)), Decompressor())

    assert [one.value for one in records] == [b"a", b"b", b"c"]


def test_zeros_end_a_segment() -> None:
    kafka = SegmentBuilder().batch([b"a"]).to_bytes()

    assert converted(stored(kafka, 0) + bytes(300), piece=64) == kafka


def test_zeros_between_batches_are_damage() -> None:
    kafka = SegmentBuilder().batch([b"a"]).to_bytes()
    data = stored(kafka, 0) + bytes(100) + stored(SegmentBuilder(1).batch([b"b"]).to_bytes(), 0)

    for piece in (64, 1000):
        with pytest.raises(CorruptBatchError, match="there are zeros between") as caught:
            converted(data, piece=piece)
        assert caught.value.position == len(kafka)


def test_every_cut_inside_a_segment_is_refused_after_the_batches_before_it() -> None:
    first, second = SegmentBuilder().batch([b"a"]), SegmentBuilder(1).batch([b"b"])
    whole = stored(first.to_bytes() + second.to_bytes(), 0)
    for size in range(len(first.to_bytes()) + 1, len(whole)):
        got = b""
        with pytest.raises(TruncatedError) as caught:
            for part in to_kafka(pieces(whole[:size], 50), RedpandaSegment(size, 0, 0), 0):
                got += bytes(part)
        assert got.startswith(first.to_bytes())
        assert caught.value.position == len(first.to_bytes())


def test_every_flipped_bit_of_a_header_is_refused() -> None:
    for bit in range(61 * 8):
        flipped = bytearray(GOLDEN)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError) as caught:
            converted(bytes(flipped), base=12)
        assert caught.value.position == 0


def sealed(**changes: int) -> bytes:
    """The golden batch with other fields and a header CRC that says so."""
    names = ["size", "base", "type", "crc", "attributes", "delta", "first", "max", "pid", "epoch", "sequence", "count"]
    fields = dict(zip(names, struct.unpack_from("<iqbIhiqqqhii", GOLDEN, 4), strict=True)) | changes
    covered = struct.pack("<iqbIhiqqqhii", *fields.values())
    return struct.pack("<I", crc32c(covered)) + covered + GOLDEN[61:]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 60}, "impossible size"),
        ({"size": -1}, "impossible size"),
        ({"delta": -1}, "impossible size or last offset"),
        ({"base": 9}, "offsets that cannot be here"),
        ({"base": -1}, "offsets that cannot be here"),
        ({"base": (1 << 63) - 1}, "offsets that cannot be here"),
        ({"base": 20, "delta": 30}, "offsets that cannot be here"),
        ({"type": 0}, "of a kind that cannot be read"),
        ({"type": 36}, "of a kind that cannot be read"),
        ({"type": 43}, "of a kind that cannot be read"),
        ({"type": -3}, "of a kind that cannot be read"),
    ],
)
def test_a_header_that_cannot_be_is_refused_though_its_crc_is_right(changes: dict[str, int], message: str) -> None:
    with pytest.raises(CorruptBatchError, match=message) as caught:
        converted(sealed(**changes), base=10, last=40)

    assert caught.value.position == 0


def test_a_batch_before_the_one_before_is_refused() -> None:
    with pytest.raises(CorruptBatchError, match="expected offsets from 13 to") as caught:
        converted(GOLDEN + GOLDEN, base=10)

    assert caught.value.position == 68


def test_a_delta_larger_than_the_offset_is_refused() -> None:
    with pytest.raises(CorruptBatchError, match="offsets that cannot be here"):
        converted(GOLDEN, base=10, delta=13)
