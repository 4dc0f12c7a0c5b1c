from __future__ import annotations

import pickle
import struct
import tracemalloc
import zlib

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder

from segreader.errors import (
    CorruptBatchError,
    CorruptRecordError,
    FormatError,
    LimitExceededError,
    TruncatedError,
    UnsupportedCodecError,
    UnsupportedMagicError,
)
from segreader.format.batch import Record, TimestampType
from segreader.format.compression import Codec, Decompressor
from segreader.format.message_set import (
    MessageHeader,
    iter_messages,
    parse_message_header,
    parse_message_set_entry,
)
from segreader.testing.compressors import JAVA_COMPRESSORS

T = 1_700_000_000_000
NO_TIME = TimestampType.NO_TIMESTAMP_TYPE
CREATE_TIME = TimestampType.CREATE_TIME
LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME

PLAIN_1 = bytes.fromhex("000000000000000a 00000019 3e731674 01 00 0000018bcfe56800 00000001 6b 00000002 7631")
PLAIN_0 = bytes.fromhex("000000000000000b 00000010 3b986b54 00 00 ffffffff 00000002 7630")
GZIP_1 = bytes.fromhex(
    "0000000000000033 00000050 0f2d0b96 01 01 0000018bcfe56805 ffffffff 0000003a"
    "1f8b08000000000002ff6360800371a72deb99 18810cc6eef34f3318fe030188930895"
    "06c988db4e31fd0357c20a5392 0400f994902c46000000"
)
GZIP_1_APPEND = GZIP_1[:12] + bytes.fromhex("645daed3 01 09 0000018bcfe58f0f") + GZIP_1[26:]
LZ4_0 = bytes.fromhex(
    "000000000000003d 0000004f 4c9b9cac 00 03 ffffffff 00000041"
    "04224d1860401a 32000000 120001 00f2053c0000000f3b6f1ac00000ffffffff00000001701a"
    "0020003d1b00f0004c682a560000ffffffff0000000171 00000000"
)
GOLDEN = {"plain 1": PLAIN_1, "plain 0": PLAIN_0, "gzip 1": GZIP_1, "append": GZIP_1_APPEND, "lz4 0": LZ4_0}
EACH_GOLDEN = pytest.mark.parametrize("entry", GOLDEN.values(), ids=GOLDEN)


def sealed(offset: int, covered: bytes) -> bytes:
    """An entry with a good CRC-32 over ``covered``, which begins with the magic byte."""
    return struct.pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered)) + covered


def message(
    offset: int, magic: int, key: bytes | None, value: bytes | None, *, timestamp_ms: int = T, attributes: int = 0
) -> bytes:
    covered = struct.pack(">bb", magic, attributes)
    if magic > 0:
        covered += struct.pack(">q", timestamp_ms)
    for field in (key, value):
        covered += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return sealed(offset, covered)


def wrapper(
    offset: int, magic: int, inner: bytes, *, codec: int = Codec.GZIP, timestamp_ms: int = T, append_time: bool = False
) -> bytes:
    attributes = codec | 8 * append_time
    value = JAVA_COMPRESSORS[codec](inner)
    return message(offset, magic, None, value, timestamp_ms=timestamp_ms, attributes=attributes)


def parse(entry: bytes, *, check_crcs: bool = True, limit: int = 1 << 20) -> list[Record]:
    return parse_message_set_entry(memoryview(entry), Decompressor(limit), check_crcs=check_crcs)


# Golden bytes


@pytest.mark.parametrize(
    ("entry", "records"),
    [
        (PLAIN_1, [Record(10, T, CREATE_TIME, b"k", b"v1")]),
        (PLAIN_0, [Record(11, -1, NO_TIME, None, b"v0")]),
        (GZIP_1, [Record(50, T, CREATE_TIME, None, b"a"), Record(51, T + 5, CREATE_TIME, None, b"b")]),
        (
            GZIP_1_APPEND,
            [Record(50, T + 9999, LOG_APPEND_TIME, None, b"a"), Record(51, T + 9999, LOG_APPEND_TIME, None, b"b")],
        ),
        (LZ4_0, [Record(60, -1, NO_TIME, None, b"p"), Record(61, -1, NO_TIME, None, b"q")]),
    ],
    ids=GOLDEN,
)
def test_golden_entries_give_their_records(entry: bytes, records: list[Record]) -> None:
    assert parse(entry) == records


def test_the_lz4_header_of_magic_0_may_have_the_right_checksum_too() -> None:
    covered = LZ4_0[16:].replace(bytes.fromhex("60401a"), bytes.fromhex("604082"))

    assert parse(sealed(61, covered)) == parse(LZ4_0)


def test_a_header_keeps_every_field() -> None:
    header = parse_message_header(b"??" + GZIP_1_APPEND, 2)

    assert header == MessageHeader(51, 80, 0x645DAED3, 1, 9, T + 9999)
    assert (header.size, header.codec, header.timestamp_type) == (92, Codec.GZIP, LOG_APPEND_TIME)
    assert pickle.loads(pickle.dumps(header)) == header


def test_a_header_of_magic_0_has_no_time() -> None:
    header = parse_message_header(PLAIN_0)

    assert (header.timestamp_ms, header.timestamp_type, header.codec) == (-1, NO_TIME, Codec.NONE)


def test_messages_say_how_they_are_stored() -> None:
    messages = list(iter_messages(LZ4_0, Decompressor()))

    assert [(m.magic, m.crc, m.is_crc_valid) for m in messages] == [(0, 0x3B6F1AC0, True), (0, 0x4C682A56, True)]
    assert [m.record for m in messages] == parse(LZ4_0)


def test_messages_with_a_wrong_crc_are_shown_as_such_unless_they_are_to_be_refused() -> None:
    entry = PLAIN_1[:-1] + b"2"
    (shown,) = iter_messages(entry, Decompressor())

    assert (shown.record.value, shown.crc, shown.is_crc_valid) == (b"v2", 0x3E731674, False)
    with pytest.raises(CorruptBatchError, match="fails its CRC-32"):
        list(iter_messages(entry, Decompressor(), check_crcs=True))


# What others write

RECORDS = [(b"k1", b"one" * 50), (None, b"two" * 50), (b"k3", None), (b"", b""), (b"k5", b"five")]


FOREIGN = [
    (builder, magic, codec)
    for builder in (AiokafkaBuilder, KafkaPythonBuilder)
    for magic in (0, 1)
    for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
    if (builder, magic, codec) != (AiokafkaBuilder, 0, Codec.LZ4)  # aiokafka refuses to write it
]


@pytest.mark.parametrize(("builder", "magic", "codec"), FOREIGN)
def test_what_foreign_producers_encode_is_read_back(
    builder: type[AiokafkaBuilder] | type[KafkaPythonBuilder], magic: int, codec: Codec
) -> None:
    encoder = builder(magic, codec.value, 1 << 16)
    for offset, (key, value) in enumerate(RECORDS):
        encoder.append(offset, T + offset, key, value)
    data = bytes(encoder.build())

    records, position = [], 0
    while position < len(data):
        size = parse_message_header(data, position).size
        records += parse(data[position : position + size])
        position += size

    assert records == [
        Record(offset, T + offset if magic else -1, CREATE_TIME if magic else NO_TIME, key, value)
        for offset, (key, value) in enumerate(RECORDS)
    ]


# Offsets and times


def offsets(entry: bytes) -> list[int]:
    return [record.offset for record in parse(entry)]


def run(magic: int, *inner_offsets: int) -> bytes:
    return b"".join(message(offset, magic, None, b"v") for offset in inner_offsets)


def test_inner_offsets_are_absolute_in_magic_0_and_relative_to_the_last_in_magic_1() -> None:
    assert offsets(wrapper(42, 0, run(0, 40, 41, 42))) == [40, 41, 42]
    assert offsets(wrapper(42, 1, run(1, 0, 1, 2))) == [40, 41, 42]


def test_inner_offsets_keep_the_gaps_of_compaction() -> None:
    assert offsets(wrapper(42, 1, run(1, 0, 5, 7))) == [35, 40, 42]


def test_a_wrapper_with_offset_zero_shifts_nothing() -> None:
    assert offsets(wrapper(0, 1, run(1, 0, 1, 2))) == [0, 1, 2]


def test_a_wrapper_below_its_last_message_is_refused() -> None:
    assert offsets(wrapper(2, 1, run(1, 0, 1, 2))) == [0, 1, 2]
    with pytest.raises(CorruptBatchError, match="found 1, expected 0, or at least 2"):
        parse(wrapper(1, 1, run(1, 0, 1, 2)))


@pytest.mark.parametrize("inner", [run(1, -(1 << 63), 7), run(1, -8, 0)])
def test_an_offset_that_no_log_can_hold_is_refused(inner: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="impossible offset"):
        parse(wrapper(7, 1, inner))


def test_the_layout_follows_the_inner_magic_and_the_time_type_the_wrapper() -> None:
    inner = message(0, 0, b"k", b"old") + message(1, 1, b"k", b"new", timestamp_ms=T + 1)

    assert parse(wrapper(9, 1, inner)) == [
        Record(8, -1, NO_TIME, b"k", b"old"),
        Record(9, T + 1, CREATE_TIME, b"k", b"new"),
    ]
    assert parse(wrapper(9, 1, inner, timestamp_ms=T + 7, append_time=True)) == [
        Record(8, -1, NO_TIME, b"k", b"old"),
        Record(9, T + 7, LOG_APPEND_TIME, b"k", b"new"),
    ]
    assert parse(wrapper(1, 0, inner)) == [
        Record(0, -1, NO_TIME, b"k", b"old"),
        Record(1, T + 1, NO_TIME, b"k", b"new"),
    ]


def test_an_inner_time_type_is_ignored() -> None:
    inner = message(0, 1, None, b"v", timestamp_ms=T + 3, attributes=8)

    assert parse(wrapper(5, 1, inner)) == [Record(5, T + 3, CREATE_TIME, None, b"v")]


def test_a_plain_message_with_append_time_keeps_its_own_time() -> None:
    assert parse(message(5, 1, None, b"v", attributes=8)) == [Record(5, T, LOG_APPEND_TIME, None, b"v")]


def test_a_negative_length_is_null_and_bytes_after_the_value_are_ignored() -> None:
    covered = struct.pack(">bbiii", 0, 0, -7, 1, 0)[:-4] + b"v" + b"rest"

    assert parse(sealed(3, covered)) == [Record(3, -1, NO_TIME, None, b"v")]


# What a wrapper may not hold


def test_a_cut_message_at_the_end_of_a_wrapper_is_dropped() -> None:
    inner = run(0, 3, 4)
    for size in range(len(inner) // 2, len(inner)):
        assert offsets(wrapper(9, 0, inner[:size])) == [3]


@pytest.mark.parametrize("inner", [b"", run(0, 3)[:-1], bytes(11)])
def test_a_wrapper_without_a_whole_message_is_refused(inner: bytes) -> None:
    with pytest.raises(CorruptBatchError, match="wraps no message"):
        parse(wrapper(9, 0, inner))


def test_a_wrapper_without_a_value_is_refused() -> None:
    with pytest.raises(CorruptBatchError, match="has no value"):
        parse(message(9, 1, None, None, attributes=Codec.GZIP))


def test_a_wrapper_may_have_a_key() -> None:
    entry = message(9, 0, b"key", JAVA_COMPRESSORS[Codec.GZIP](run(0, 9)), attributes=Codec.GZIP)

    assert offsets(entry) == [9]


def test_a_wrapper_in_a_wrapper_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match=r"itself compressed \(byte 17 of the inner messages\)"):
        parse(wrapper(9, 1, wrapper(0, 1, run(1, 0))))


@pytest.mark.parametrize("size", [-1, 0, 13])
def test_an_inner_size_below_the_smallest_message_is_refused(size: int) -> None:
    inner = run(0, 3) + struct.pack(">qi", 4, size)
    with pytest.raises(CorruptBatchError, match=f"impossible size .*; found size {size}, expected at least 14"):
        parse(wrapper(9, 0, inner))


@pytest.mark.parametrize("magic", [-1, 2, 3])
def test_an_inner_magic_that_is_not_0_or_1_is_unsupported(magic: int) -> None:
    with pytest.raises(UnsupportedMagicError, match=f"found magic {magic}"):
        parse(wrapper(9, 1, sealed(0, struct.pack(">bbqii", magic, 0, T, -1, -1))))


def test_an_inner_crc_is_checked_unless_told_otherwise() -> None:
    inner = bytearray(run(1, 0, 1))
    inner[-1] ^= 1
    entry = wrapper(9, 1, bytes(inner))

    assert [record.value for record in parse(entry, check_crcs=False)] == [b"v", b"w"]
    with pytest.raises(CorruptBatchError, match="fails its CRC-32") as caught:
        parse(entry)
    assert (caught.value.position, caught.value.base_offset) == (0, 9)
    assert f"byte {len(inner) // 2} of the inner messages" in str(caught.value)


def test_the_crc_of_a_wrapper_is_checked_before_its_value_is_decompressed() -> None:
    with pytest.raises(CorruptBatchError, match=r"found 0f2d0b96 computed .*, expected 0f2d0b97"):
        parse(GZIP_1[:15] + b"\x97" + GZIP_1[16:])


@pytest.mark.parametrize("codec", [4, 5, 6, 7])
@pytest.mark.parametrize("magic", [0, 1])
def test_later_codecs_are_unsupported(magic: int, codec: int) -> None:
    with pytest.raises(UnsupportedCodecError, match=f"found {codec}, expected 0 to 3") as caught:
        parse(message(9, magic, None, b"v", attributes=codec))
    assert caught.value.base_offset == 9


def test_damage_inside_a_value_is_located_in_the_entry() -> None:
    entry = message(9, 0, None, bytes.fromhex("04224d18604083") + bytes(4), attributes=Codec.LZ4)
    magic_1 = message(9, 1, None, bytes.fromhex("04224d18604083") + bytes(4), attributes=Codec.LZ4)

    assert parse_message_header(entry).codec == Codec.LZ4
    with pytest.raises(CorruptBatchError, match="found 83, expected 82") as caught:
        parse(magic_1)
    assert caught.value.position is not None
    assert magic_1[caught.value.position] == 0x83


# Shapes


@pytest.mark.parametrize("field", ["key", "value"])
@pytest.mark.parametrize("length", [2, 1 << 20, (1 << 31) - 1])
def test_a_length_past_the_end_of_its_message_is_refused_also_inside_a_wrapper(field: str, length: int) -> None:
    lengths = (length, -1) if field == "key" else (-1, length)
    bad = sealed(0, struct.pack(">bbii", 0, 0, *lengths))
    for entry in (bad, wrapper(9, 0, bad + run(0, 1))):
        with pytest.raises(CorruptRecordError):
            parse(entry)


def test_a_magic_1_message_of_14_bytes_is_refused_inside_a_wrapper() -> None:
    bad = sealed(0, struct.pack(">bbii", 1, 0, -1, -1))
    for inner in (bad, bad + run(1, 1)):
        with pytest.raises(CorruptRecordError, match="ends before its key and value"):
            parse(wrapper(9, 1, inner))


def test_an_entry_must_be_given_whole_and_alone() -> None:
    with pytest.raises(TruncatedError, match="found 36 bytes, expected 37 bytes"):
        parse(PLAIN_1[:-1])
    with pytest.raises(CorruptBatchError, match="found 38 bytes, expected 37 bytes"):
        parse(PLAIN_1 + b"?")


def test_a_record_batch_is_no_message() -> None:
    for data in (PLAIN_1[:16] + b"\x02" + PLAIN_1[17:], PLAIN_1[:16] + b"\xff" + PLAIN_1[17:]):
        with pytest.raises(UnsupportedMagicError, match="expected magic 0 or 1") as caught:
            parse_message_header(b"?" + data, 1)
        assert caught.value.position == 17


def test_records_outlive_the_decompressors_buffer() -> None:
    decompressor = Decompressor()
    records = parse_message_set_entry(LZ4_0, decompressor)
    decompressor.decompress(Codec.LZ4, JAVA_COMPRESSORS[Codec.LZ4](bytes(1000)))

    assert [record.value for record in records] == [b"p", b"q"]


# Damage and limits


def outcome(entry: bytearray | bytes, *, check_crcs: bool) -> list[Record] | FormatError:
    try:
        return parse(bytes(entry), check_crcs=check_crcs)
    except FormatError as error:
        return error


@EACH_GOLDEN
def test_an_entry_cut_at_any_byte_is_truncated(entry: bytes) -> None:
    for size in range(len(entry)):
        with pytest.raises(TruncatedError) as caught:
            parse(entry[:size], check_crcs=False)
        assert caught.value.position == 0


@EACH_GOLDEN
def test_every_flipped_bit_under_the_crc_is_found_by_it(entry: bytes) -> None:
    broken = bytearray(entry)
    for bit in range(8 * 12, 8 * len(entry)):
        broken[bit // 8] ^= 1 << bit % 8
        assert isinstance(outcome(broken, check_crcs=True), FormatError)
        broken[bit // 8] ^= 1 << bit % 8


@EACH_GOLDEN
def test_every_flipped_bit_is_a_value_or_a_format_error_without_the_crc(entry: bytes) -> None:
    broken = bytearray(entry)
    for bit in range(8 * len(entry)):
        broken[bit // 8] ^= 1 << bit % 8
        result = outcome(broken, check_crcs=False)
        if isinstance(result, FormatError):
            assert result.position is None or 0 <= result.position <= len(entry)
            assert result.found is not None
        broken[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("magic", [0, 1])
def test_every_flipped_bit_inside_a_wrapper_is_a_value_or_a_format_error(magic: int) -> None:
    broken = bytearray(run(magic, 0, 1, 2))
    for bit in range(8 * len(broken)):
        broken[bit // 8] ^= 1 << bit % 8
        for check_crcs in (False, True):
            result = outcome(wrapper(9, magic, bytes(broken)), check_crcs=check_crcs)
            assert isinstance(result, FormatError) or 0 < len(result) <= 3
        broken[bit // 8] ^= 1 << bit % 8


def test_inner_messages_may_not_pass_the_limit() -> None:
    entry = wrapper(9, 1, message(0, 1, None, bytes(5000)))

    assert len(parse(entry, limit=6000)) == 1
    with pytest.raises(LimitExceededError, match="the decompressed body is too long") as caught:
        parse(entry, limit=5000)
    assert caught.value.base_offset == 9


def test_many_small_messages_are_refused_before_they_become_records() -> None:
    entry = wrapper(9, 0, run(0, 3) * 100_000)
    decompressor = Decompressor(limit=4 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceededError, match="too much memory as records"):
            parse_message_set_entry(entry, decompressor)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 8 << 20
