"""The builder against batches worked out by hand, two foreign decoders, and a log of known answers."""

from __future__ import annotations

import lz4.frame
import pytest
from foreign import aiokafka_records, kafka_python_records
from hypothesis import given, settings
from profiles import tries

from segreader.format.batch import TimestampType
from segreader.format.compression import Codec
from segreader.testing import Lies, ProducerRecord, SegmentBuilder
from segreader.testing.compressors import snappy_raw
from segreader.testing.strategies import History, histories

T = 1_700_000_000_000

VECTORS = {
    "A": (
        "00000000000000640000004600000003 02d3b1b712 0000 00000000 0000018bcfe56800 0000018bcfe56800"
        "ffffffffffffffff ffff ffffffff 00000001 28 00 00 00 046b31 0a68656c6c6f 04 02680276 026e01"
    ),
    "B": (
        "00000000000000c80000004200000003 024c65bf95 0010 00000004 0000018bcfe56800 0000018bcfe568fa"
        "0000000000000fa0 0007 00000000 00000002 100000000261023100 0e00f40308010100"
    ),
    "C": (
        "00000000000000cd0000004200000003 02ed31fee6 0030 00000000 0000018bcfe5692c 0000018bcfe5692c"
        "0000000000000fa0 0008 ffffffff 00000001 20000000 0800000001 0c000000000005 00"
    ),
    "D": (
        "00000000000000ce0000004200000003 027133c5dc 0030 00000000 0000018bcfe56990 0000018bcfe56990"
        "0000000000000fa1 0002 ffffffff 00000001 20000000 0800000000 0c000000000005 00"
    ),
    "E": (
        "000000000000012c0000003100000004 0230c65322 0010 00000009 ffffffffffffffff 0000018bcfe56b84"
        "0000000000000fa0 0009 0000000a 00000000"
    ),
    "F": (
        "00000000000001900000003d00000004 02c7209745 0040 00000000 0000018bd50bc400 0000018bcfe56be8"
        "ffffffffffffffff ffff ffffffff 00000001 1600 afe0b252 00 046b31 01 00"
    ),
    "G": (
        "00000000000001f40000004100000004 0259223c86 0008 00000001 0000018bcfe56800 0000018bcfe57b88"
        "ffffffffffffffff ffff ffffffff 00000002 0e00000001027800 0e000e0201027900"
    ),
    "H": "000000000000000a00000019 3e731674 01 00 0000018bcfe56800 000000016b 000000027631",
    "I": "000000000000000b00000010 3b986b54 00 00 ffffffff 000000027630",
    "J": (
        "000000000000003300000050 0f2d0b96 01 01 0000018bcfe56805 ffffffff 0000003a"
        "1f8b08000000000002ff63608003 71a72deb9918 810cc6eef34f3318fe03018893089506c988db4e31fd0357"
        "c20a539204 00f994902c46000000"
    ),
    "J2": (
        "000000000000003300000050 645daed3 01 09 0000018bcfe58f0f ffffffff 0000003a"
        "1f8b08000000000002ff63608003 71a72deb9918 810cc6eef34f3318fe03018893089506c988db4e31fd0357"
        "c20a539204 00f994902c46000000"
    ),
    "K": (
        "000000000000003d0000004f 4c9b9cac 00 03 ffffffff 00000041"
        "04224d186040 1a 3200000012000100f2053c0000000f3b6f1ac00000ffffffff00000001701a"
        "0020003d1b00f0004c682a560000ffffffff000000017100000000"
    ),
    "L": (
        "00000000000000c80000004b00000003 027ba2a02c 0014 00000004 0000018bcfe56800 0000018bcfe568fa"
        "0000000000000fa0 0007 00000000 00000002 28b52ffd0058890000 100000000261023100 0e00f40308010100"
    ),
}
"""Batches and messages worked out field by field; the streams in J and K come from other compressors."""


def record(
    value: bytes | None, key: bytes | None = None, after_ms: int = 0, offset: int | None = None
) -> ProducerRecord:
    return ProducerRecord(value, key, timestamp_ms=T + after_ms, offset=offset)


def vector(name: str) -> bytes:
    return bytes.fromhex(VECTORS[name])


def vector_b(**knobs: object) -> SegmentBuilder:
    return SegmentBuilder(200, leader_epoch=3).batch(
        [record(b"1", b"a"), record(None, None, 250, offset=204)],
        producer_id=4000,
        producer_epoch=7,
        transactional=True,
        **knobs,  # type: ignore[arg-type]
    )


def test_headers_and_a_null_header_are_vector_a() -> None:
    built = SegmentBuilder(100, leader_epoch=3)
    built.batch([ProducerRecord(b"hello", b"k1", (("h", b"v"), ("n", None)), T)])

    assert built.to_bytes() == vector("A")


def test_a_transaction_with_a_gap_and_its_commit_are_vectors_b_and_c() -> None:
    built = vector_b().marker(4000, coordinator_epoch=5, timestamp_ms=T + 300)

    assert built.to_bytes() == vector("B") + vector("C")
    assert built.next_offset == 206


def test_an_abort_marker_is_vector_d() -> None:
    built = SegmentBuilder(206, leader_epoch=3)
    built.marker(4001, abort=True, producer_epoch=2, coordinator_epoch=5, timestamp_ms=T + 400)

    assert built.to_bytes() == vector("D")


def test_a_retained_empty_batch_is_vector_e() -> None:
    built = SegmentBuilder(300, leader_epoch=4)
    built.empty_batch(
        10, producer_id=4000, producer_epoch=9, base_sequence=10, transactional=True, max_timestamp_ms=T + 900
    )

    assert built.to_bytes() == vector("E")
    assert (built.records, built.next_offset) == ([], 310)


def test_a_delete_horizon_leaves_the_time_of_the_tombstone_alone_as_in_vector_f() -> None:
    built = SegmentBuilder(400, leader_epoch=4)
    built.batch([record(None, b"k1", 1000)], delete_horizon_ms=T + 86_400_000)

    assert built.to_bytes() == vector("F")
    assert [r.timestamp_ms for r in built.records] == [T + 1000]


def test_log_append_time_overrides_the_stored_deltas_as_in_vector_g() -> None:
    built = SegmentBuilder(500, leader_epoch=4)
    built.batch([record(b"x"), record(b"y", None, 7)], log_append_time_ms=T + 5000)

    assert built.to_bytes() == vector("G")
    assert {(r.timestamp_ms, r.timestamp_type) for r in built.records} == {(T + 5000, TimestampType.LOG_APPEND_TIME)}


def test_plain_messages_are_vectors_h_and_i() -> None:
    built = SegmentBuilder(10)
    built.message_set([record(b"v1", b"k")], magic=1).message_set([record(b"v0")], magic=0)

    assert built.to_bytes() == vector("H") + vector("I")
    assert [r.timestamp_ms for r in built.records] == [T, -1]


@pytest.mark.parametrize(("name", "log_append_time_ms"), [("J", None), ("J2", T + 9999)])
def test_a_wrapper_around_relative_offsets_is_vector_j(name: str, log_append_time_ms: int | None) -> None:
    stream = vector(name)[34:]
    built = SegmentBuilder(50).message_set(
        [record(b"a"), record(b"b", None, 5)],
        magic=1,
        codec=Codec.GZIP,
        log_append_time_ms=log_append_time_ms,
        compressor=lambda inner: stream,
    )

    assert built.to_bytes() == vector(name)


def test_a_wrapper_around_absolute_offsets_is_vector_k() -> None:
    stream = vector("K")[26:]
    built = SegmentBuilder(60)
    built.message_set([b"p", b"q"], magic=0, codec=Codec.LZ4, compressor=lambda inner: stream)

    assert built.to_bytes() == vector("K")


def test_lz4_in_magic_0_has_the_old_header_checksum_of_vector_k() -> None:
    built = SegmentBuilder(60).message_set([b"p", b"q"], magic=0, codec=Codec.LZ4)

    stream = built.to_bytes()[26:]
    assert stream[:7] == vector("K")[26:33]
    inner = lz4.frame.decompress(stream[:6] + b"\x82" + stream[7:])
    assert aiokafka_records(inner) == built.records


def test_zstd_carries_no_content_size_as_in_vector_l() -> None:
    assert vector_b(codec=Codec.ZSTD).to_bytes() == vector("L")


def test_lies_stand_under_a_crc_that_fits_them() -> None:
    lied = vector_b(lies=Lies(record_count=3, max_timestamp=7, attributes=0x90, last_offset_delta=9))

    assert lied.to_bytes()[57:61] == b"\0\0\0\3"
    assert lied.to_bytes()[35:43] == b"\0\0\0\0\0\0\0\7"
    assert lied.to_bytes()[21:27] == b"\0\x90\0\0\0\x09"
    assert lied.to_bytes()[17:21] != vector("B")[17:21]
    assert lied.to_bytes()[61:] == vector("B")[61:]


def test_a_false_crc_and_a_false_length_change_nothing_else() -> None:
    lied = vector_b(lies=Lies(crc=0x01020304, batch_length=13, magic=9)).to_bytes()

    assert lied[8:12] + lied[16:21] == b"\0\0\0\x0d\x09\1\2\3\4"
    assert lied[21:] == vector("B")[21:]


@pytest.mark.parametrize("codec", Codec)
def test_every_codec_is_read_by_aiokafka(codec: Codec) -> None:
    wide = [ProducerRecord(b"abc" * 40_000, b"k", (("h", None),)), ProducerRecord(None, b"")]
    built = SegmentBuilder(7).batch(wide, codec=codec).batch([b"v"], codec=codec)

    assert aiokafka_records(built.to_bytes()) == built.records
    if codec != Codec.SNAPPY:
        assert kafka_python_records(built.to_bytes()) == built.records


def test_another_framing_can_be_handed_in() -> None:
    built = SegmentBuilder().batch([b"v"], codec=Codec.SNAPPY, compressor=snappy_raw)

    assert built.to_bytes()[61:] == snappy_raw(SegmentBuilder().batch([b"v"]).to_bytes()[61:])
    assert aiokafka_records(built.to_bytes()) == built.records


@pytest.mark.parametrize(
    ("magic", "codec"),
    [(magic, codec) for magic in (0, 1) for codec in list(Codec)[:4] if (magic, codec) != (0, Codec.LZ4)],
)
def test_the_old_formats_are_read_by_aiokafka(magic: int, codec: Codec) -> None:
    built = SegmentBuilder(30)
    records = [record(b"v", b"k"), record(None, b"", 9), record(b"", None, 4)]

    assert aiokafka_records(built.message_set(records, magic=magic, codec=codec).to_bytes()) == built.records
    assert built.next_offset == 33


def test_the_append_time_of_old_messages_reaches_every_record() -> None:
    built = SegmentBuilder(30)
    built.message_set([record(b"a"), record(b"b", None, 5)], log_append_time_ms=T + 99)
    built.message_set([record(b"c"), record(b"d", None, 5)], codec=Codec.GZIP, log_append_time_ms=T + 199)

    assert aiokafka_records(built.to_bytes()) == built.records
    assert [r.timestamp_ms - T for r in built.records] == [99, 99, 199, 199]


def test_old_messages_take_no_headers() -> None:
    with pytest.raises(ValueError, match="no headers"):
        SegmentBuilder().message_set([ProducerRecord(b"v", headers=(("h", b""),))])


def test_sequences_and_epochs_follow_from_the_batches_before() -> None:
    built = SegmentBuilder(transaction_version=2)
    built.batch([b"a", b"b"], producer_id=5, transactional=True).batch([b"c"], producer_id=5, transactional=True)
    built.marker(5).batch([b"d"], producer_id=5, transactional=True)

    assert _identities(built) == [(0, 0), (0, 2), (1, -1), (1, 0)]


def test_before_transaction_version_2_a_marker_keeps_the_epoch_and_the_sequence_goes_on() -> None:
    built = SegmentBuilder(transaction_version=1)
    built.batch([b"a", b"b"], producer_id=5, transactional=True).marker(5)
    built.batch([b"d"], producer_id=5, transactional=True)

    assert _identities(built) == [(0, 0), (0, -1), (0, 2)]


def test_a_sequence_wraps_at_2_to_the_31() -> None:
    built = SegmentBuilder().batch([b"a", b"b"], producer_id=5, base_sequence=(1 << 31) - 2)

    assert _identities(built.batch([b"c"], producer_id=5))[1] == (0, 0)


def test_a_leader_epoch_begins_where_its_first_batch_does() -> None:
    built = SegmentBuilder(10, leader_epoch=2).batch([b"a", b"b"]).new_leader(4).new_leader(5).skip(3).batch([b"c"])

    assert built.leader_epochs == [(2, 10), (5, 15)]
    assert built.roll().batch([b"d"]).leader_epochs == [(2, 10), (5, 15)]


def test_raw_bytes_take_no_offset() -> None:
    built = SegmentBuilder().batch([b"a"]).raw(b"\0" * 64)

    assert (built.next_offset, built.to_bytes()[-64:]) == (1, b"\0" * 64)


def read_committed_scenario() -> tuple[SegmentBuilder, SegmentBuilder]:
    """Three producers, two segments; the ABORT of what producer 2 wrote in the first lies in the second."""
    first = SegmentBuilder().batch([b"0"])
    first.batch([b"1", b"2"], producer_id=1, transactional=True).batch([b"3"], producer_id=2, transactional=True)
    first.marker(1).batch([b"5"], producer_id=1, transactional=True)
    first.batch([b"6", b"7"], producer_id=2, transactional=True)
    second = first.roll().marker(1, abort=True).batch([b"9"], producer_id=3, transactional=True)
    second.marker(2, abort=True).batch([b"11"], producer_id=1).marker(1)
    return first, second.batch([b"13"], producer_id=1, transactional=True)


def test_an_abort_stands_in_the_index_of_the_segment_with_its_marker() -> None:
    first, second = read_committed_scenario()

    assert first.aborted == []
    assert second.aborted == [(1, 5, 8, 3), (2, 3, 10, 9)]


def test_a_snapshot_has_the_transactions_open_at_the_end_of_its_segment() -> None:
    assert [_open_transactions(segment.snapshot()) for segment in read_committed_scenario()] == [
        {2: 3, 1: 5},
        {3: 9, 1: 13},
    ]


def test_the_snapshot_before_a_segment_is_the_one_after_its_predecessor() -> None:
    first, second = read_committed_scenario()

    assert second.snapshot_before() == first.snapshot()
    assert _open_transactions(first.snapshot_before()) == {}


@settings(max_examples=tries(60), deadline=None)
@given(histories())
def test_a_history_is_what_aiokafka_reads_with_or_without_its_aborted_rows(history: History) -> None:
    logs = [segment.to_bytes() for segment in history.segments]
    seen = [record for log in logs for record in aiokafka_records(log)]
    aborted = [entry for segment in history.segments for entry in segment.aborted]
    dead = set()
    for segment in history.segments:
        for offset, producer_id in _transactional_offsets(segment.to_bytes()):
            if any(e.producer_id == producer_id and e.first_offset <= offset <= e.last_offset for e in aborted):
                dead.add(offset)

    assert seen == list(history.uncommitted)
    assert [r for r in seen if r.offset not in dead and r.offset < history.last_stable_offset] == list(
        history.committed
    )


def _batches(log: bytes) -> list[memoryview]:
    found, at = [], 0
    while at < len(log):
        size = int.from_bytes(log[at + 8 : at + 12], "big") + 12
        found.append(memoryview(log)[at : at + size])
        at += size
    return found


def _identities(segment: SegmentBuilder) -> list[tuple[int, int]]:
    return [(_signed(batch[51:53]), _signed(batch[53:57])) for batch in _batches(segment.to_bytes())]


def _transactional_offsets(log: bytes) -> list[tuple[int, int]]:
    """(offset, producer id) of every offset in a transactional batch."""
    return [
        (base + delta, _signed(batch[43:51]))
        for batch in _batches(log)
        if batch[22] & 0x10
        for base in [_signed(batch[0:8])]
        for delta in range(_signed(batch[23:27]) + 1)
    ]


def _open_transactions(snapshot: bytes) -> dict[int, int]:
    rows = [snapshot[at : at + 46] for at in range(10, len(snapshot), 46)]
    return {_signed(row[:8]): _signed(row[38:]) for row in rows if _signed(row[38:]) >= 0}


def _signed(data: memoryview | bytes) -> int:
    return int.from_bytes(data, "big", signed=True)
