from __future__ import annotations

import gzip
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import cramjam
import pyarrow as pa
import pytest
import zstandard
from framings import (
    XERIAL,
    gzip_member,
    lz4_block,
    lz4_frame,
    snappy_raw,
    snappy_xerial,
    zstd_stream,
    zstd_with_size,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from segreader.errors import (
    CorruptBatchError,
    FormatError,
    LimitExceededError,
    UnsupportedCodecError,
)
from segreader.format.compression import DEFAULT_LIMIT, Codec, Decompressor

BODY = bytes.fromhex("1000000002610231000e00f40308010100")
"""Two records of a batch, uncompressed."""

TEXT = b"".join(b'{"id":%d,"amount":%d}' % (n, n * n % 997) for n in range(40))
NOISE = random.Random(1).randbytes(200)

LZ4_HEADER = bytes.fromhex("04224d18604082")
ZSTD_HEADER = bytes.fromhex("28b52ffd0038")  # no content size, window of 128 KiB
END_MARK = bytes(4)


def zstd_runs(blocks: int, window: int = 0x38) -> bytes:
    """A frame of ``blocks`` times 128 KiB zeros, at four bytes each."""
    block = (2 | 131072 << 3).to_bytes(3, "little") + b"\0"
    return ZSTD_HEADER[:5] + bytes([window]) + block * blocks + b"\x03\0\0\0"


SKIPPABLE = bytes.fromhex("532a4d18 05000000") + b"hello"

WRITERS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: gzip_member,
    Codec.SNAPPY: snappy_xerial,
    Codec.LZ4: lz4_frame,
    Codec.ZSTD: zstd_stream,
}
COMPRESSED = pytest.mark.parametrize("codec", list(WRITERS), ids=lambda codec: codec.label)

# What producers write and Java's client reads: each of these is TEXT.
EXAMPLES = {
    "gzip": (Codec.GZIP, gzip_member(TEXT)),
    "gzip with every optional field": (Codec.GZIP, gzip_member(TEXT, 0x1F, b"\x02\0ab" + b"name\0note\0")),
    "gzip with reserved flags": (Codec.GZIP, gzip_member(TEXT, 0xE0)),
    "gzip of three members": (Codec.GZIP, gzip_member(TEXT[:9]) + gzip.compress(b"") + gzip_member(TEXT[9:])),
    "snappy raw": (Codec.SNAPPY, snappy_raw(TEXT)),
    "snappy xerial": (Codec.SNAPPY, snappy_xerial(TEXT)),
    "snappy xerial of small blocks": (Codec.SNAPPY, snappy_xerial(TEXT, 100)),
    "snappy xerial with a second header": (Codec.SNAPPY, snappy_xerial(TEXT[:9]) + snappy_xerial(TEXT[9:])),
    "lz4": (Codec.LZ4, lz4_frame(TEXT)),
    "lz4 with content size and checksum": (
        Codec.LZ4,
        lz4_frame(TEXT, store_size=True, content_checksum=True, block_size=7),
    ),
    "lz4 with block checksums": (Codec.LZ4, lz4_frame(TEXT, block_checksum=True, block_size=5)),
    "lz4 of stored and empty blocks": (
        Codec.LZ4,
        LZ4_HEADER + lz4_block(TEXT[:9], stored=True) + b"\1\0\0\0\0" + lz4_block(TEXT[9:]) + END_MARK,
    ),
    "zstd": (Codec.ZSTD, zstd_stream(TEXT)),
    "zstd with content size and checksum": (Codec.ZSTD, zstd_with_size(TEXT)),
    "zstd of two frames": (Codec.ZSTD, zstd_with_size(TEXT[:9]) + zstd_stream(TEXT[9:])),
    "zstd between skippable frames": (Codec.ZSTD, SKIPPABLE + zstd_stream(TEXT) + SKIPPABLE),
}
EACH_EXAMPLE = pytest.mark.parametrize(("codec", "data"), EXAMPLES.values(), ids=EXAMPLES)


@pytest.fixture
def decompressor() -> Decompressor:
    return Decompressor()


def test_codecs_have_kafkas_ids_and_names() -> None:
    assert [(codec.value, codec.label) for codec in Codec] == [
        (0, "none"),
        (1, "gzip"),
        (2, "snappy"),
        (3, "lz4"),
        (4, "zstd"),
    ]


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.NONE, BODY.hex()),
        (Codec.GZIP, "1f8b08000000000002ff13606060604a643264e063f8c2ccc1c8c800005fed0cd311000000"),
        (Codec.SNAPPY, "11401000000002610231000e00f40308010100"),
        (Codec.SNAPPY, "82534e41505059000000000100000001 00000013 11401000000002610231000e00f40308010100"),
        (
            Codec.SNAPPY,
            "82534e41505059000000000100000001 0000000b 0920100000000261023100 0000000a 081c0e00f40308010100",
        ),
        (Codec.LZ4, "04224d18604082 11000080 1000000002610231000e00f40308010100 00000000"),
        (Codec.ZSTD, "28b52ffd0058890000 1000000002610231000e00f40308010100"),
    ],
)
def test_golden_bytes_of_every_codec_give_the_body(decompressor: Decompressor, codec: Codec, data: str) -> None:
    assert decompressor.decompress(codec, bytes.fromhex(data)) == BODY


@EACH_EXAMPLE
def test_every_framing_that_java_reads_is_read(decompressor: Decompressor, codec: Codec, data: bytes) -> None:
    assert decompressor.decompress(codec, memoryview(data)) == TEXT


@COMPRESSED
def test_bodies_larger_than_the_buffer_come_out_whole(decompressor: Decompressor, codec: Codec) -> None:
    for body in (bytes(range(256)) * 20_000, NOISE * 3_000, b"small", b"z" * (3 << 20)):
        assert decompressor.decompress(codec, WRITERS[codec](body)) == body


@settings(max_examples=tries(60))
@given(codec=st.sampled_from(list(WRITERS)), body=st.binary(max_size=2000), repeats=st.integers(1, 40))
def test_what_was_compressed_comes_out(codec: Codec, body: bytes, repeats: int) -> None:
    if codec != Codec.SNAPPY or body:  # an empty xerial stream has no block; see below
        assert Decompressor().decompress(codec, WRITERS[codec](body * repeats)) == body * repeats


@COMPRESSED
def test_an_empty_body_is_empty(decompressor: Decompressor, codec: Codec) -> None:
    assert bytes(decompressor.decompress(codec, WRITERS[codec](b""))) == b""


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_no_bytes_at_all_are_corrupt(decompressor: Decompressor, codec: Codec) -> None:
    with pytest.raises(CorruptBatchError):
        decompressor.decompress(codec, b"")


def test_no_bytes_at_all_are_no_zstd_frames_as_in_java(decompressor: Decompressor) -> None:
    assert bytes(decompressor.decompress(Codec.ZSTD, b"")) == b""


@pytest.mark.parametrize(("codec", "magic"), [(5, 2), (6, 2), (7, 2), (-1, 2), (4, 0), (4, 1), (5, 1)])
def test_a_codec_that_the_format_lacks_is_unsupported(decompressor: Decompressor, codec: int, magic: int) -> None:
    with pytest.raises(UnsupportedCodecError, match=f"codec {codec} is not part of message format {magic}"):
        decompressor.decompress(codec, zstd_stream(BODY), magic)


# The buffer


@COMPRESSED
def test_the_next_call_ends_the_last_view(decompressor: Decompressor, codec: Codec) -> None:
    first = decompressor.decompress(codec, WRITERS[codec](TEXT))
    decompressor.decompress(codec, WRITERS[codec](BODY))

    with pytest.raises(ValueError, match="released memoryview"):
        bytes(first)


def test_a_view_that_arrow_holds_keeps_its_bytes(decompressor: Decompressor) -> None:
    held = pa.py_buffer(decompressor.decompress(Codec.LZ4, lz4_frame(TEXT)))
    decompressor.decompress(Codec.LZ4, lz4_frame(bytes(len(TEXT))))

    assert held.to_pybytes() == TEXT


@COMPRESSED
def test_a_slice_left_alive_does_not_stop_the_buffer_from_growing(decompressor: Decompressor, codec: Codec) -> None:
    part = decompressor.decompress(codec, WRITERS[codec](TEXT))[3:7]
    large = NOISE * 9_000

    assert decompressor.decompress(codec, WRITERS[codec](large)) == large
    assert len(part) == 4


def test_two_decompressors_share_nothing() -> None:
    first, second = Decompressor(), Decompressor()
    bodies = [d.decompress(Codec.ZSTD, zstd_stream(text)) for d, text in ((first, TEXT), (second, BODY))]

    assert bodies == [TEXT, BODY]


def test_a_large_buffer_is_given_back_after_a_while() -> None:
    large, small = zstd_stream(bytes(40 << 20)), zstd_stream(TEXT)
    tracemalloc.start()
    try:
        decompressor = Decompressor()
        decompressor.decompress(Codec.ZSTD, large)
        kept = tracemalloc.get_traced_memory()[0]
        for _ in range(100):
            decompressor.decompress(Codec.ZSTD, small)
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert kept >= 40 << 20
    assert left < 1 << 20


def test_a_failure_leaves_nothing_behind(decompressor: Decompressor) -> None:
    for codec, data in EXAMPLES.values():
        for broken in (data[:-1], data[: len(data) // 2]):
            try:
                decompressor.decompress(codec, memoryview(broken))
            except FormatError:
                assert decompressor.decompress(codec, data) == TEXT


# Damage


@EACH_EXAMPLE
def test_a_cut_at_any_byte_gives_a_beginning_or_a_format_error(
    decompressor: Decompressor, codec: Codec, data: bytes
) -> None:
    for size in range(len(data)):
        try:
            assert TEXT.startswith(decompressor.decompress(codec, data[:size]))
        except FormatError as error:
            assert error.position is None or 0 <= error.position <= size


@pytest.mark.parametrize(
    "name",
    [
        "gzip",
        "gzip with every optional field",
        "snappy raw",
        "lz4",
        "lz4 with content size and checksum",
        "lz4 with block checksums",
        "zstd",
        "zstd with content size and checksum",
        "zstd between skippable frames",
    ],
)
def test_a_single_frame_cut_anywhere_is_refused(decompressor: Decompressor, name: str) -> None:
    codec, data = EXAMPLES[name]
    whole = {len(data), len(data) - len(SKIPPABLE), len(SKIPPABLE), 0} if SKIPPABLE in data else {len(data)}
    whole |= {0} if codec == Codec.ZSTD else set()
    for size in set(range(len(data))) - whole:
        with pytest.raises(CorruptBatchError):
            decompressor.decompress(codec, data[:size])


@EACH_EXAMPLE
def test_a_flipped_bit_gives_a_value_or_a_format_error(codec: Codec, data: bytes) -> None:
    decompressor = Decompressor(limit=4 << 20)
    broken = bytearray(data)
    for bit in range(8 * len(data)):
        broken[bit // 8] ^= 1 << bit % 8
        try:
            assert len(decompressor.decompress(codec, memoryview(broken))) <= 4 << 20
        except FormatError as error:
            assert error.message
            assert error.found is not None
        broken[bit // 8] ^= 1 << bit % 8


@settings(max_examples=tries(200))
@given(codec=st.sampled_from(list(WRITERS)), magic=st.sampled_from([0, 1, 2]), data=st.binary(max_size=60))
def test_any_bytes_give_a_value_or_a_format_error(codec: Codec, magic: int, data: bytes) -> None:
    starts = {Codec.GZIP: b"\x1f\x8b\x08", Codec.SNAPPY: XERIAL, Codec.LZ4: LZ4_HEADER, Codec.ZSTD: ZSTD_HEADER}
    decompressor = Decompressor(limit=1 << 20)
    for candidate in (data, starts[codec] + data):
        try:
            decompressor.decompress(codec, candidate, magic)
        except FormatError:
            continue


@pytest.mark.parametrize(
    ("codec", "data", "cause"),
    [
        (Codec.GZIP, gzip_member(TEXT)[:-1] + b"\1", Exception),
        (Codec.SNAPPY, snappy_raw(TEXT) + b"\0", cramjam.DecompressionError),
        (Codec.LZ4, LZ4_HEADER + b"\5\0\0\0\xff\xff\xff\xff\xff" + END_MARK, cramjam.DecompressionError),
        (Codec.ZSTD, ZSTD_HEADER + b"\x1d\0\0\xff\xff\xff", zstandard.ZstdError),
    ],
)
def test_what_the_library_says_is_kept_as_cause_and_text(
    decompressor: Decompressor, codec: Codec, data: bytes, cause: type[Exception]
) -> None:
    with pytest.raises(CorruptBatchError, match=r"is damaged; found \w+") as caught:
        decompressor.decompress(codec, data)

    assert isinstance(caught.value.__cause__, cause)


# gzip


@pytest.mark.parametrize("byte", range(-8, 0))
def test_a_gzip_trailer_with_a_wrong_byte_is_refused(decompressor: Decompressor, byte: int) -> None:
    data = bytearray(gzip_member(TEXT))
    data[byte] ^= 0x10
    with pytest.raises(CorruptBatchError, match="gzip data is damaged"):
        decompressor.decompress(Codec.GZIP, memoryview(data))


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(bytes(30), id="zeros"),
        pytest.param(b"\x1f", id="half a magic"),
        pytest.param(b"\x1f\x8b\x08\0" + bytes(5), id="a cut header"),
        pytest.param(b"\x1f\x8b\x07\0" + bytes(30), id="another method"),
        pytest.param(b"\x1f\x8b\x08\x08" + bytes(6) + b"a name without end", id="an endless name"),
        pytest.param(b"\x1f\x8b\x08\x04" + bytes(6) + b"\xff\xff", id="a field longer than the data"),
        pytest.param(b"\x1f\x8b\x08\x02" + bytes(8), id="a header with a wrong checksum"),
    ],
)
def test_what_follows_a_gzip_member_and_begins_no_other_is_ignored(decompressor: Decompressor, rest: bytes) -> None:
    assert decompressor.decompress(Codec.GZIP, gzip_member(TEXT) + rest) == TEXT
    with pytest.raises(CorruptBatchError, match="no gzip header"):
        decompressor.decompress(Codec.GZIP, rest)


def test_a_second_gzip_member_must_be_whole(decompressor: Decompressor) -> None:
    with pytest.raises(CorruptBatchError, match="gzip data ends too early"):
        decompressor.decompress(Codec.GZIP, gzip_member(TEXT) + gzip_member(BODY)[:-1])


def test_many_gzip_members_take_time_in_proportion(decompressor: Decompressor) -> None:
    members = gzip_member(b"ab") * 20_000 + gzip_member(NOISE * 400) * 3

    assert decompressor.decompress(Codec.GZIP, members) == b"ab" * 20_000 + NOISE * 1_200


# snappy


@pytest.mark.parametrize("rest", [b"", b"\0", b"\0\0\0"])
def test_fewer_bytes_than_a_length_after_xerial_blocks_are_ignored(decompressor: Decompressor, rest: bytes) -> None:
    assert decompressor.decompress(Codec.SNAPPY, snappy_xerial(TEXT) + rest) == TEXT


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (b"\xff\xff\xff\xff", "negative length; found -1"),
        (b"\0\0\0\x05abcd", "snappy data ends too early"),
        (b"\0\0\0\0", "snappy block is damaged"),
        (XERIAL[:15], "negative length"),
        (XERIAL[:8] + bytes(8), "negative length"),
    ],
)
def test_xerial_blocks_that_cannot_be_are_refused(decompressor: Decompressor, rest: bytes, message: str) -> None:
    with pytest.raises(CorruptBatchError, match=message) as caught:
        decompressor.decompress(Codec.SNAPPY, snappy_xerial(TEXT) + rest)

    assert caught.value.position is not None
    assert caught.value.position >= len(snappy_xerial(TEXT))


def test_a_snappy_block_that_declares_the_impossible_is_refused_unallocated(decompressor: Decompressor) -> None:
    with pytest.raises(CorruptBatchError, match="found 4294967295, expected at most 2310"):
        decompressor.decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(100))


# lz4


def test_what_follows_the_end_mark_of_lz4_is_ignored(decompressor: Decompressor) -> None:
    assert decompressor.decompress(Codec.LZ4, lz4_frame(TEXT) + lz4_frame(TEXT)) == TEXT


def test_a_wrong_content_checksum_of_lz4_is_ignored_but_a_cut_one_is_not(decompressor: Decompressor) -> None:
    data = bytearray(lz4_frame(TEXT, content_checksum=True))
    data[-1] ^= 1

    assert decompressor.decompress(Codec.LZ4, memoryview(data)) == TEXT
    with pytest.raises(CorruptBatchError, match="lz4 data ends too early"):
        decompressor.decompress(Codec.LZ4, memoryview(data)[:-1])


def test_a_wrong_block_checksum_of_lz4_is_refused(decompressor: Decompressor) -> None:
    data = bytearray(lz4_frame(NOISE, block_checksum=True))
    data[-5] ^= 1
    with pytest.raises(CorruptBatchError, match="lz4 block is damaged") as caught:
        decompressor.decompress(Codec.LZ4, memoryview(data))

    assert caught.value.position == 11


def test_dependent_blocks_of_lz4_are_refused(decompressor: Decompressor) -> None:
    with pytest.raises(CorruptBatchError, match="options that Kafka does not read"):
        decompressor.decompress(Codec.LZ4, lz4_frame(TEXT * 300, block_linked=True))


def test_a_block_of_lz4_may_hold_as_much_as_its_frame_says_and_no_more(decompressor: Decompressor) -> None:
    for stored in (False, True):
        full = LZ4_HEADER + lz4_block(bytes(65536), stored=stored) + END_MARK
        over = LZ4_HEADER + lz4_block(bytes(65537), stored=stored) + END_MARK

        assert decompressor.decompress(Codec.LZ4, full) == bytes(65536)
        with pytest.raises(CorruptBatchError, match="too long" if stored else "damaged"):
            decompressor.decompress(Codec.LZ4, over)


@pytest.mark.parametrize("checksum", [0x82, 0x1A])
def test_in_magic_0_both_header_checksums_of_lz4_are_read(decompressor: Decompressor, checksum: int) -> None:
    data = LZ4_HEADER[:6] + bytes([checksum]) + lz4_block(TEXT) + END_MARK

    assert decompressor.decompress(Codec.LZ4, data, magic=0) == TEXT


@pytest.mark.parametrize("magic", [1, 2])
def test_later_magics_need_the_right_header_checksum_of_lz4(decompressor: Decompressor, magic: int) -> None:
    data = LZ4_HEADER[:6] + b"\x1a" + lz4_block(TEXT) + END_MARK
    with pytest.raises(CorruptBatchError, match="found 1a, expected 82"):
        decompressor.decompress(Codec.LZ4, data, magic)


# zstd


@pytest.mark.parametrize("rest", [b"\x28", b"\x28\xb5\x2f", SKIPPABLE[:-1], b"\0\0\0\0", zstd_stream(TEXT)[:-1]])
def test_zstd_frames_must_be_whole_to_the_last_byte(decompressor: Decompressor, rest: bytes) -> None:
    with pytest.raises(CorruptBatchError):
        decompressor.decompress(Codec.ZSTD, zstd_stream(TEXT) + rest)


def test_a_wrong_checksum_of_zstd_is_refused(decompressor: Decompressor) -> None:
    data = bytearray(zstd_with_size(TEXT))
    data[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="zstd data is damaged"):
        decompressor.decompress(Codec.ZSTD, memoryview(data))


def test_a_content_size_that_lies_is_refused(decompressor: Decompressor) -> None:
    header = bytes.fromhex("28b52ffd e0") + (100 << 20).to_bytes(8, "little")
    with pytest.raises(CorruptBatchError, match="zstd data is damaged"):
        decompressor.decompress(Codec.ZSTD, header + zstd_runs(2)[6:])


@pytest.mark.parametrize("window_log", [10, 17, 24, 27])
def test_every_window_that_java_allows_is_read(decompressor: Decompressor, window_log: int) -> None:
    assert decompressor.decompress(Codec.ZSTD, zstd_stream(TEXT * 300, window_log=window_log)) == TEXT * 300


def test_a_window_that_java_refuses_is_refused(decompressor: Decompressor) -> None:
    with pytest.raises(CorruptBatchError, match="too much memory"):
        decompressor.decompress(Codec.ZSTD, zstd_runs(1, window=28 - 10 << 3))


@pytest.mark.parametrize("kind", ["raw", "repeated", "compressed"])
@pytest.mark.parametrize(
    ("window", "size", "is_read_by_java"),
    [  # what zstd-jni 1.5.6-10 answers, 16 KiB at a time; so much is decompressed in one go, whatever the window
        (None, 131_072, True),
        (None, 131_073, False),
        (1 << 20, 131_072, True),
        (1 << 20, 131_073, False),
        (16 << 10, 16_384, True),
        (16 << 10, 16_385, False),
        (1 << 10, 16_384, True),
        (1 << 10, 16_385, False),
    ],
)
def test_zstd_blocks_that_java_refuses_are_refused(
    decompressor: Decompressor, window: int | None, size: int, is_read_by_java: bool, kind: str
) -> None:
    if kind == "compressed":
        size = max(size, 131_072)  # of what zstd_match() can make
        is_read_by_java = size == 131_072 and window in (None, 1 << 20)
        block = 2, len(zstd_match(size)), zstd_match(size)
    else:
        block = (0, size, bytes(size)) if kind == "raw" else (1, size, b"x")
    descriptor = b"\xa0" if window is None else bytes((0x80, window.bit_length() - 11 << 3))
    header = (block[1] << 3 | block[0] << 1 | 1).to_bytes(3, "little")
    frame = b"\x28\xb5\x2f\xfd" + descriptor + size.to_bytes(4, "little") + header + block[2]
    if is_read_by_java:
        assert len(decompressor.decompress(Codec.ZSTD, frame)) == size
    else:
        with pytest.raises(CorruptBatchError, match="zstd data is damaged"):
            decompressor.decompress(Codec.ZSTD, frame)


def zstd_match(size: int) -> bytes:
    """A compressed block of one literal and one match, of 65540 to 131075 bytes together."""
    return bytes(((1 << 3) | 1, 0x7A, 1, 0x54, 1, 2, 52)) + int(f"100{size - 65_540:016b}", 2).to_bytes(3, "little")


# Limits


@COMPRESSED
def test_a_body_may_reach_the_limit_but_not_pass_it(codec: Codec) -> None:
    for limit in (1, 1000, 300_000):
        decompressor = Decompressor(limit)

        assert len(decompressor.decompress(codec, WRITERS[codec](b"q" * limit))) == limit
        with pytest.raises(LimitExceededError, match=f"found more than {limit} bytes"):
            decompressor.decompress(codec, WRITERS[codec](b"q" * (limit + 1)))


def test_what_is_not_compressed_has_no_limit() -> None:
    assert Decompressor(limit=1).decompress(Codec.NONE, TEXT) == TEXT


@pytest.fixture(scope="module")
def bombs() -> dict[Codec, bytes]:
    """For each codec some bytes that would become 2 GiB; for zstd with the widest window, too."""
    snappy, lz4 = snappy_raw(bytes(32 << 10)), lz4_block(bytes(64 << 10))
    return {
        Codec.GZIP: gzip_member(bytes(32 << 20)) * 64,
        Codec.SNAPPY: XERIAL + (len(snappy).to_bytes(4, "big") + snappy) * (64 << 10),
        Codec.LZ4: LZ4_HEADER + lz4 * (32 << 10) + END_MARK,
        Codec.ZSTD: zstd_runs(16 << 10, window=27 - 10 << 3),
    }


@COMPRESSED
def test_a_bomb_is_stopped_at_the_limit(bombs: dict[Codec, bytes], codec: Codec) -> None:
    limit = 6 << 20
    decompressor = Decompressor(limit)
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceededError, match="Raise the limit"):
            decompressor.decompress(codec, bombs[codec])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak <= limit + (8 << 20)


BOMB_SQUAD = """
import sys
from segreader.errors import LimitExceededError
from segreader.format.compression import Decompressor

def memory(name):
    return next(int(line.split()[1]) >> 10 for line in open("/proc/self/status") if line.startswith(name))

data = sys.stdin.buffer.read()
decompressor = Decompressor()
before = memory("VmRSS")
try:
    decompressor.decompress(int(sys.argv[1]), data)
except LimitExceededError:
    print(memory("VmHWM") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell a process's peak memory")
@COMPRESSED
def test_a_bomb_takes_no_more_memory_than_the_limit_and_64_mib(bombs: dict[Codec, bytes], codec: Codec) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", BOMB_SQUAD, str(codec.value)], input=bombs[codec], capture_output=True, check=True
    )

    assert 0 < int(answer.stdout) <= (DEFAULT_LIMIT >> 20) + 64
