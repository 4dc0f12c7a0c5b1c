"""Redpanda's batches and lists of aborted transactions, as Kafka's logs and indexes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from crc32c import crc32c

from segreader.catalog.layouts.redpanda.files import (
    RedpandaSegment,
    StoredBatch,
    TransactionRange,
    aborted_in_segment,
    encode_entries,
    iter_batches,
    parse_transaction_ranges,
    to_kafka,
)
from segreader.errors import CorruptBatchError, FormatError, ManifestError, TruncatedError
from segreader.format.batch import parse_batch_header
from segreader.format.compression import Codec, Decompressor
from segreader.format.index_files import AbortedTransaction, parse_transaction_index
from segreader.format.records import iter_records
from segreader.isolation import AbortedTransactions
from segreader.testing.builder import SegmentBuilder
from segreader.testing.redpanda import (
    ARCHIVAL_METADATA,
    RAFT_CONFIGURATION,
    TX_FENCE,
    encode_transaction_ranges,
    internal_batch,
    redpanda_files,
    to_stored,
)

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


def entries(data: bytes, *ranges: TransactionRange, base: int = 0, delta: int = 0) -> list[AbortedTransaction]:
    """Kafka's entries for a segment and what is listed beside it."""
    return aborted_in_segment(iter_batches([memoryview(data)], RedpandaSegment(len(data), base, delta)), sorted(ranges))


def batches(builder: SegmentBuilder) -> list[bytes]:
    """What was appended, one by one."""
    data = builder.to_bytes()
    return [data[a:b] for a, b in zip(builder.batch_positions, [*builder.batch_positions[1:], len(data)], strict=True)]


def test_a_list_is_read_and_each_transaction_counted_once() -> None:
    data = encode_transaction_ranges([(20, 25, 8), (10, 12, 7), (20, 25, 8)])

    assert parse_transaction_ranges(data) == (TransactionRange(10, 12, 7), TransactionRange(20, 25, 8))


def test_a_list_without_ranges_is_empty() -> None:
    assert parse_transaction_ranges(b'{"version":1,"compat_version":1}') == ()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"version":2,"compat_version":2,"ranges":[]}',
        b'{"version":1,"compat_version":1,"ranges":7}',
        b'{"version":1,"compat_version":1,"ranges":[7]}',
        b'{"version":1,"compat_version":1,"ranges":[{}]}',
        b'{"version":1,"compat_version":1,"ranges":[{"pid.id":1,"pid.epoch":0,"first":9,"last":8}]}',
        b'{"version":1,"compat_version":1,"ranges":[{"pid.id":-1,"pid.epoch":0,"first":7,"last":8}]}',
        b'{"version":1,"compat_version":1,"ranges":[{"pid.id":1,"pid.epoch":0,"first":7,"last":9223372036854775808}]}',
    ],
)
def test_a_list_that_cannot_be_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_transaction_ranges(data, source="b/x.tx")

    assert caught.value.source == "b/x.tx"


def test_offsets_are_translated_where_the_batches_lie_and_the_marker_is_the_end() -> None:
    builder = SegmentBuilder(1).batch([b"a"], producer_id=7, transactional=True)
    builder.batch([b"b"], producer_id=7, transactional=True).marker(7, abort=True)
    one, two, marker = batches(builder)
    data = (
        internal_batch(TX_FENCE, 0, producer_id=7)
        + to_stored(one, 0)
        + internal_batch(ARCHIVAL_METADATA, 2)
        + to_stored(two, 1)
        + internal_batch(ARCHIVAL_METADATA, 4)
        + to_stored(marker, 2)
    )

    assert entries(data, TransactionRange(0, 3, 7)) == [AbortedTransaction(7, 1, 3, 4)]


def test_a_transaction_that_goes_on_ends_at_its_last_batch_here() -> None:
    builder = SegmentBuilder(10).batch([b"a"]).batch([b"b"], producer_id=7, transactional=True)
    builder.batch([b"c"], producer_id=7, transactional=True).batch([b"d"])
    data = b"".join(to_stored(batch, 0) for batch in batches(builder))

    assert entries(data, TransactionRange(11, 40, 7)) == [AbortedTransaction(7, 11, 12, 13)]
    assert entries(data, TransactionRange(2, 40, 7)) == [AbortedTransaction(7, 11, 12, 13)]


def test_a_single_offset_makes_an_entry_that_kafkas_index_can_hold() -> None:
    builder = SegmentBuilder(10).batch([b"a"]).batch([b"b"], producer_id=7, transactional=True)
    data = b"".join(to_stored(batch, 0) for batch in batches(builder))
    made = entries(data, TransactionRange(11, 40, 7))

    assert parse_transaction_index(encode_entries(made), 10).entries == tuple(made)
    assert AbortedTransactions(made).covers(7, 11)


def test_a_transaction_at_offset_0_is_covered_or_refused() -> None:
    alone = SegmentBuilder().batch([b"a"], producer_id=7, transactional=True)
    followed = SegmentBuilder().batch([b"a"], producer_id=7, transactional=True).batch([b"b"])

    with pytest.raises(ManifestError, match="records at offset 0"):
        entries(to_stored(alone.to_bytes(), 0), TransactionRange(0, 9, 7))
    assert entries(b"".join(to_stored(batch, 0) for batch in batches(followed)), TransactionRange(0, 9, 7)) == [
        AbortedTransaction(7, 0, 1, 2)
    ]


def test_a_transaction_that_has_no_batch_here_makes_no_entry() -> None:
    data = b"".join(to_stored(batch, 0) for batch in batches(SegmentBuilder(10).batch([b"a"])))

    assert entries(data, TransactionRange(2, 40, 7)) == []


def test_a_committed_transaction_after_an_aborted_one_is_not_covered() -> None:
    builder = SegmentBuilder(10)
    for abort in (True, False, True):
        builder.batch([b"a"], producer_id=7, transactional=True).marker(7, abort=abort)
    data = b"".join(to_stored(batch, 0) for batch in batches(builder))
    made = AbortedTransactions(entries(data, TransactionRange(10, 10, 7), TransactionRange(14, 14, 7)))

    assert made.entries == (AbortedTransaction(7, 10, 11, 12), AbortedTransaction(7, 14, 15, 16))
    assert [made.covers(7, offset) for offset in (10, 12, 14)] == [True, False, True]


def test_the_stable_offset_of_an_entry_is_where_a_later_one_begins() -> None:
    builder = SegmentBuilder(10).batch([b"a"], producer_id=7, transactional=True)
    builder.batch([b"b"], producer_id=8, transactional=True).marker(8, abort=True).marker(7, abort=True)
    data = b"".join(to_stored(batch, 0) for batch in batches(builder))
    made = entries(data, TransactionRange(10, 10, 7), TransactionRange(11, 11, 8))

    assert made == [AbortedTransaction(8, 11, 12, 10), AbortedTransaction(7, 10, 13, 14)]
    assert parse_transaction_index(encode_entries(made), 10).collect(10, 12) == (made, True)


def test_the_list_of_a_segment_names_transactions_that_reach_into_it() -> None:
    first = SegmentBuilder().batch([b"a"]).batch([b"b"], producer_id=7, transactional=True)
    second = first.roll().batch([b"c"], producer_id=7, transactional=True).marker(7, abort=True)
    third = second.roll().batch([b"d"])
    lists = {name: data for name, data in redpanda_files("t", [first, second, third]).items() if name.endswith(".tx")}

    assert len(lists) == 2
    assert {parse_transaction_ranges(data) for data in lists.values()} == {(TransactionRange(2, 5, 7),)}
