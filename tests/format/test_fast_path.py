"""What the native kernel's fast path takes itself, how much memory it asks for, and whom it believes.

Whatever it leaves to ``decode_record`` or ``Decompressor`` comes to the same, only slower: so it is counted here. The
functions of the codecs' libraries are played by others that do what the true ones never do.
"""

from __future__ import annotations

import ctypes
import mmap
from array import array
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest
from framings import XERIAL, gzip_member, lz4_block, lz4_frame, snappy_raw, zstd_stream, zstd_with_size

from segreader.errors import FormatError
from segreader.format import native_codecs
from segreader.format.batch import decode_java_utf8
from segreader.format.columns import BUFFERS_OF, Buffer, BufferPool, ColumnBuffers, Outcome, Spent, State, batch_table
from segreader.format.compression import Codec, Decompressor
from segreader.format.kernel import load_kernel
from segreader.format.records import iter_records
from segreader.testing.batches import Lies
from segreader.testing.builder import SegmentBuilder
from segreader.testing.compressors import JAVA_COMPRESSORS
from segreader.testing.records import ProducerRecord

kernel: Any = pytest.importorskip("segreader.format._kernel")

FIRST, LARGEST = 64 << 10, 2 << 20
LZ4_HEADER = lz4_frame(b"")[:7]
ZSTD_HEADER = b"\x28\xb5\x2f\xfd\0\x00"  # a window of 1 KiB
END = bytes(4)


FAR = b"\xf4\xa2\x04\xf8\x6f\x11\x01" + bytes(range(250)) * 280 + b"\x0f\x70\x11\x01\x00"
"""70,000 bytes and, in 4 bytes of offset, the first 4 of them again."""


def zstd_block(kind: int, size: int, data: bytes, *, is_last: bool = True) -> bytes:
    return (size << 3 | kind << 1 | is_last).to_bytes(3, "little") + data


# How much memory a body asks for.


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.GZIP, gzip_member(bytes(FIRST))),
        (Codec.SNAPPY, snappy_raw(bytes(FIRST))),
        (Codec.LZ4, lz4_frame(bytes(FIRST))),
        (Codec.LZ4, LZ4_HEADER + lz4_block(bytes(FIRST), stored=True) + END),
        (Codec.ZSTD, zstd_with_size(bytes(FIRST))),
        (Codec.ZSTD, zstd_stream(bytes(FIRST))),
    ],
)
def test_a_body_that_just_fits_asks_for_no_more_room(codec: Codec, data: bytes) -> None:
    codecs = kernel.Codecs(LARGEST)
    assert codecs.decompress(codec, data) == bytes(FIRST)
    assert codecs.capacity == FIRST


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.LZ4, LZ4_HEADER + (9).to_bytes(4, "little") + b"\xff" * 9 + END),
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\x80\x00" + (100_000).to_bytes(4, "little") + zstd_block(1, 9, b"x")),
    ],
)
def test_a_body_that_no_room_would_help_asks_for_none(codec: Codec, data: bytes) -> None:
    codecs = kernel.Codecs(LARGEST)
    assert codecs.decompress(codec, data) is None
    assert codecs.capacity == FIRST


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.LZ4, lz4_frame(bytes(FIRST + 1), block_size=5)),
        (Codec.LZ4, LZ4_HEADER + lz4_block(bytes(FIRST), stored=True) + lz4_block(b"\0") + END),
        (Codec.ZSTD, zstd_with_size(bytes(FIRST + 1))),
        (Codec.ZSTD, zstd_stream(bytes(FIRST + 1))),
    ],
)
def test_a_body_that_is_longer_than_the_room_doubles_it(codec: Codec, data: bytes) -> None:
    codecs = kernel.Codecs(LARGEST)
    assert codecs.decompress(codec, data) == bytes(FIRST + 1)
    assert codecs.capacity == 2 * FIRST


@pytest.mark.parametrize(
    ("codec", "compress"), [(Codec.GZIP, gzip_member), (Codec.SNAPPY, snappy_raw), (Codec.ZSTD, zstd_with_size)]
)
def test_a_body_that_tells_its_length_gets_that_room_at_once(codec: Codec, compress: Callable[[bytes], bytes]) -> None:
    body = bytes(200_000)
    for limit in (LARGEST, len(body)):
        codecs = kernel.Codecs(limit)
        assert codecs.decompress(codec, compress(body)) == body
        assert codecs.capacity == len(body)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_no_more_room_is_asked_for_than_the_limit(codec: Codec) -> None:
    codecs = kernel.Codecs(FIRST)
    assert codecs.decompress(codec, JAVA_COMPRESSORS[codec](bytes(200_000))) is None
    assert codecs.capacity == FIRST


@pytest.mark.parametrize("compress", [zstd_stream, lambda body: lz4_frame(body, block_size=7)])
def test_the_longest_body_is_taken_and_no_longer_one(compress: Callable[[bytes], bytes]) -> None:
    codec = Codec.ZSTD if compress is zstd_stream else Codec.LZ4
    codecs = kernel.Codecs(1 << 30)
    assert codecs.decompress(codec, compress(bytes(LARGEST))) == bytes(LARGEST)
    assert codecs.capacity == LARGEST
    assert codecs.decompress(codec, compress(bytes(LARGEST + 1))) is None


# What else is ordinary.


@pytest.mark.parametrize(
    ("codec", "data", "body"),
    [
        (Codec.LZ4, LZ4_HEADER + END, b""),
        (Codec.SNAPPY, XERIAL, b""),
        (Codec.SNAPPY, b"\x81\x80\x80\x80\x00\x00x", b"x"),
        (Codec.SNAPPY, FAR, bytes(range(250)) * 280 + bytes(range(4))),
        (Codec.LZ4, LZ4_HEADER + lz4_block(b"") + lz4_block(b"x") + END, b"x"),
        (Codec.LZ4, b"\x04\x22\x4d\x18\x60\x70\x73" + lz4_block(bytes(1_500_000)) + END, bytes(1_500_000)),
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\x20\0" + zstd_block(0, 0, b""), b""),
        (Codec.ZSTD, ZSTD_HEADER + zstd_block(0, 1, b"x", is_last=False) + zstd_block(0, 0, b""), b"x"),
        (Codec.ZSTD, zstd_stream(b"x", window_log=25), b"x"),
    ],
)
def test_rare_bodies_are_decompressed_natively(codec: Codec, data: bytes, body: bytes) -> None:
    assert kernel.Codecs(LARGEST).decompress(codec, data) == body == bytes(Decompressor().decompress(codec, data))


@pytest.mark.parametrize(
    "size", [b"\x81\x80\x80\x80\x80\x00", b"\x81" + b"\x80" * 8 + b"\x00", b"\x81\x80\x80\x80\x80"]
)
def test_a_length_of_snappy_that_takes_more_than_five_bytes_is_left_to_the_decompressor(size: bytes) -> None:
    assert kernel.Codecs(LARGEST).decompress(Codec.SNAPPY, size + b"\x00x") is None


FIELDS = (b"", None, b"x", b"y" * 31, b"z" * 33, b"long" * 40)


def ordinary(**options: Any) -> SegmentBuilder:
    """A batch with every mix of null, empty, short and longer fields and headers."""
    built = [
        ProducerRecord(value, key, headers=headers)
        for key, value in product(FIELDS, repeat=2)
        for headers in ((), (("", b""),), (("n", None), ("h", b"v"), ("e", b"")), (("name" * 9, b"datum" * 20),))
    ]
    return SegmentBuilder(50).batch(built, **options)


def one_by_one(data: bytes, names: Iterable[str], **state: int) -> int:
    """How many records are not decoded by ``decode_ordinary``; the rest comes to what the reference makes of it."""
    seen, decompressor = [], Decompressor()
    for name in ("reference", "native"):
        columns, table = ColumnBuffers(frozenset(names)), batch_table()
        for index, value in state.items():
            columns.state[State[index]] = value
        one = load_kernel(name)
        rows, _ = one.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
        assert one.decode_batches(columns, memoryview(data), 0, table, rows, True, decompressor) == Outcome.DONE
        seen.append(list(columns.state))
    assert seen[0] == seen[1]
    codecs: Any = decompressor.codecs
    return int(codecs.one_by_one)


COLUMNS = [
    {"key"},
    {"value"},
    {"headers"},
    {"offset", "timestamp"},
    {"timestamp_ms", "sequence"},
    {"key", "value", "headers", "offset", "timestamp", "sequence"},
    set(BUFFERS_OF) - {"timestamp"},
]


@pytest.mark.parametrize("names", COLUMNS, ids=lambda names: "-".join(sorted(names))[:40])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"producer_id": 7, "base_sequence": 2**31 - 9},
        {"log_append_time_ms": 1_700_000_000_000},
        {"codec": Codec.LZ4},
    ],
    ids=["plain", "idempotent", "log-append", "lz4"],
)
def test_ordinary_records_are_not_decoded_one_by_one(names: set[str], options: dict[str, Any]) -> None:
    data = ordinary(**options).to_bytes()
    assert one_by_one(data, names) == 0
    assert one_by_one(data, names, CURSOR_MOVES=0) == 0
    assert one_by_one(data, names, NEXT_OFFSET=50) == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_the_first_and_the_last_time_of_a_timestamp_are_ordinary(sign: int) -> None:
    last = sign * ((2**63 - 1) // 1000)
    data = SegmentBuilder(0).batch([b"a"], lies=Lies(base_timestamp=last)).to_bytes()
    assert one_by_one(data, {"timestamp"}) == one_by_one(data, {"timestamp_ms"}) == 0
    beyond = SegmentBuilder(0).batch([b"a"], lies=Lies(base_timestamp=last + sign)).to_bytes()
    assert one_by_one(beyond, {"timestamp_ms"}) == one_by_one(beyond, {"value"}) == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_the_first_and_the_last_time_are_read_where_a_record_is_not_ordinary(sign: int) -> None:
    last = sign * ((2**63 - 1) // 1000)
    lies = Lies(body=record(b"\0\0", WIDE, b"\1\1\0"), record_count=1, last_offset_delta=0, base_timestamp=last)
    assert one_by_one(SegmentBuilder(0).batch([], lies=lies).to_bytes(), {"timestamp"}) == 1
    beyond = Lies(body=lies.body, record_count=1, last_offset_delta=0, base_timestamp=last + sign)
    assert one_by_one(SegmentBuilder(0).batch([], lies=beyond).to_bytes(), {"value"}) == 1


def test_only_records_that_are_not_wanted_are_decoded_one_by_one() -> None:
    data = SegmentBuilder(0).batch([b"a"] * 9).to_bytes()
    assert one_by_one(data, {"value"}, NEXT_OFFSET=4) == 4
    assert one_by_one(data, {"value"}, STOP_OFFSET=7) == 2
    assert one_by_one(data, {"value"}, NEXT_OFFSET=4, STOP_OFFSET=7) == 6


def test_numbers_of_up_to_four_bytes_are_ordinary_and_five_are_not() -> None:
    """Those that are longer than needed included."""
    for width, left in ((1, 0), (2, 0), (3, 0), (4, 0), (5, 1)):

        def wide(number: int, width: int = width) -> bytes:
            value = number << 1
            return bytes((value >> 7 * at & 127) | 128 * (at < width - 1) for at in range(width))

        body = b"\0\0" + wide(0) + wide(1) + b"k" + wide(1) + b"v" + wide(1) + wide(1) + b"h" + wide(1) + b"d"
        framed = (len(body) << 1).to_bytes(1, "big") + body
        data = SegmentBuilder(0).batch([], lies=Lies(body=framed, record_count=1, last_offset_delta=0)).to_bytes()
        for names in ({"key", "value", "headers", "offset"}, {"offset"}):
            assert one_by_one(data, names) == left, width


def record(*parts: bytes) -> bytes:
    return bytes((2 * sum(map(len, parts)),)) + b"".join(parts)


def batch_of(body: bytes, count: int = 1) -> bytes:
    lies = Lies(body=body, record_count=count, last_offset_delta=count - 1)
    return SegmentBuilder(0).batch([], lies=lies).to_bytes()


def test_times_that_are_far_from_the_first_are_ordinary() -> None:
    times = [0, *(sign << width for width in range(62) for sign in (1, -1)), 2**63 - 1, -(2**63), 0x2040810204081]
    data = SegmentBuilder(0).batch([ProducerRecord(b"v", timestamp_ms=time) for time in times]).to_bytes()
    assert one_by_one(data, {"timestamp_ms", "offset"}) == 0
    assert one_by_one(batch_of(record(b"\0", b"\x80" * 9 + b"\0", b"\0\1\1\0")), {"timestamp_ms"}) == 0


def test_a_number_of_five_bytes_is_not_taken_for_one_of_four() -> None:
    """Its fifth byte would be an empty key, and the rest another whole record."""
    data = batch_of(record(b"\0\0", b"\x80\x80\x80\x80\0", b"\0", b"\2\0", b"\0"))
    assert one_by_one(data, {"offset", "key", "value", "headers"}) == 1


WIDE = b"\x80\x80\x80\x80\0"


@pytest.mark.parametrize(
    "records",
    [
        (record(b"\0\0\0", b"\x0a12345", b"\1\0"), record(b"\0\0\0", WIDE, b"\1\0")),
        (record(b"\0\0\0\1", b"\x0a12345", b"\0"), record(b"\0\0\0\1", WIDE, b"\0")),
        (record(b"\0\0\0", b"\6abc", b"\1\0"), b"\x8c" + WIDE[1:] + b"\0\1\0\0\1\0", record(b"\0\0\0\1\1\0")),
        (record(b"\0\0\0\1\1\4\2h\x0a12345", WIDE, b"\1"), record(b"\0\0\0\1\1\0")),
    ],
    ids=["key", "value", "record", "header"],
)
def test_a_length_of_five_bytes_is_not_taken_for_the_one_before(records: tuple[bytes, ...]) -> None:
    data = batch_of(b"".join(records), len(records))
    for names in ({"offset", "key", "value", "headers"}, {"offset"}):
        assert one_by_one(data, names, CURSOR_MOVES=0) == 1


@pytest.mark.parametrize("before", [b"\0\0", b"\0\0\0", b"\0\0\0\1"], ids=["delta", "key", "value"])
def test_a_number_of_six_bytes_is_the_same_damage_to_both(before: bytes) -> None:
    data, seen = batch_of(record(before, b"\x80" * 5 + b"\0", b"\1\1\0\0")), []
    for name in ("reference", "native"):
        columns, table, one = ColumnBuffers(frozenset({"value"})), batch_table(), load_kernel(name)
        one.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
        assert one.decode_batches(columns, memoryview(data), 0, table, 1, True, Decompressor()) == Outcome.DAMAGED
        seen.append(list(columns.state))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("width", range(9, 13))
def test_a_time_of_more_than_ten_bytes_is_damage(width: int) -> None:
    data, seen = batch_of(record(b"\0", b"\x80" * (width - 1) + b"\0", b"\0\1\1\0")), []
    for name in ("reference", "native"):
        columns, table, one = ColumnBuffers(frozenset({"timestamp"})), batch_table(), load_kernel(name)
        one.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
        outcome = one.decode_batches(columns, memoryview(data), 0, table, 1, True, Decompressor())
        seen.append((outcome, list(columns.state)))
    assert seen[0] == seen[1]
    assert seen[0][0] == (Outcome.DONE if width <= 10 else Outcome.DAMAGED)


@pytest.mark.parametrize("key", [b"\xc3", b"\xe2\x82", b"\xf0\x9f\x92", b"a\xed\xa0", b"\xe0"])
def test_a_header_key_that_is_cut_within_a_character_is_not_read_on(key: bytes) -> None:
    """The length behind it begins like the rest of the character."""
    headers = ((key.decode("utf-8", "surrogateescape"), bytes(64)), ("n", None))
    data = SegmentBuilder(0).batch([ProducerRecord(b"v", headers=headers)]).to_bytes()
    (found,) = iter_records(data, Decompressor(), kernel=load_kernel("native"))
    assert found.headers[0] == (decode_java_utf8(key), bytes(64))


def test_a_table_that_is_full_is_not_written_on() -> None:
    built = SegmentBuilder(0)
    for _ in range(4):
        built.batch([b"a"])
    data = built.to_bytes()
    for room in range(6):
        table = batch_table(room)
        rows, at = kernel.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
        assert (rows, at) == (min(room, 4), min(room, 4) * len(data) // 4)


# What it says of its time.


def spent(codec: Codec, batches: int, *, check_crcs: bool = True) -> list[int]:
    """The times of a run whose records cost little beside their bodies."""
    built = SegmentBuilder(0)
    for _ in range(batches):
        built.batch([bytes(16_000)], codec=codec)
    data, table, columns = built.to_bytes(), batch_table(), ColumnBuffers(frozenset({"offset"}))
    rows, _ = kernel.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    assert rows == batches
    outcome = kernel.decode_batches(columns, memoryview(data), 0, table, rows, check_crcs, Decompressor())
    assert outcome == Outcome.DONE
    return list(columns.spent)


@pytest.mark.parametrize("batches", [1, 7, 64])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY, Codec.ZSTD])
def test_the_times_of_parts_are_no_longer_than_that_of_the_whole(codec: Codec, batches: int) -> None:
    """One of eight is timed, for all of them, and the first is the slowest; the least of 20 is free of other work."""
    runs = [spent(codec, batches) for _ in range(20)]
    assert all(run[Spent.CRC] > 0 and (run[Spent.BODY] > 0) == (codec > 0) for run in runs)
    assert min((run[Spent.CRC] + run[Spent.BODY]) / run[Spent.ALL] for run in runs) < 2
    assert spent(codec, batches, check_crcs=False)[Spent.CRC] == 0


def test_the_time_of_a_body_begins_where_that_of_its_checksum_ends() -> None:
    data = memoryview(SegmentBuilder(0).batch([bytes(8 << 20)], lies=Lies(attributes=Codec.LZ4)).to_bytes())
    shares = []
    for _ in range(5):
        table, columns = batch_table(), ColumnBuffers(frozenset({"offset"}))
        rows, _ = kernel.scan_batches(data, 0, 0, table, 1 << 30)
        with pytest.raises(FormatError):  # by the first bytes of the body, of which the checksum took all
            kernel.decode_batches(columns, data, 0, table, rows, True, Decompressor())
        shares.append(columns.spent[Spent.BODY] / columns.spent[Spent.CRC])

    assert min(shares) < 0.5


# What is written behind the room, or read behind the body.


def flood(first: bytes, times: bytes) -> bytes:
    """A raw block that tells of 100 bytes, and holds many MiB."""
    return b"\x64" + first + times * (24 << 20 >> 5)


@pytest.mark.parametrize(
    "data",
    [
        flood(b"\x3c" + bytes(16), b"\xfe\x10\0"),  # copies of 64 bytes
        flood(b"\xec" + bytes(60), b"\xfe\x10\0"),
        flood(b"", b"\x7c" + bytes(32)),  # literals
        flood(b"\x00x", b"\x7c" + bytes(32)),
    ],
    ids=["copies", "copies behind a long literal", "literals", "literals behind a short one"],
)
def test_a_body_that_tells_of_less_than_it_holds_is_not_written(data: bytes) -> None:
    """The process would end: there is no memory for so much behind a scratch."""
    assert kernel.Codecs(LARGEST).decompress(Codec.SNAPPY, data) is None


def guarded(data: bytes) -> memoryview:
    """The data, and behind it memory that cannot be read."""
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    second = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + mmap.PAGESIZE
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(second), mmap.PAGESIZE, 0) == 0
    place = memoryview(pages)[mmap.PAGESIZE - len(data) : mmap.PAGESIZE]
    place[:] = data
    return place


@pytest.mark.parametrize("behind", range(8))
def test_nothing_is_read_behind_a_body_of_snappy_that_ends_in_copies_or_literals(behind: int) -> None:
    start = b"\x3c" + bytes(16)
    copies, literals = b"\xfe\x10\0" * 25, (b"\xec" + bytes(range(60))) * 2 + b"\xfe\x10\0" * behind
    for body, size in ((start + copies, 16 + 25 * 64), (start + literals, 16 + 120 + 64 * behind)):
        data = bytes((size & 127 | 128, size >> 7)) + body
        expected = bytes(Decompressor().decompress(Codec.SNAPPY, data))
        assert len(expected) == size
        assert kernel.Codecs(LARGEST).decompress(Codec.SNAPPY, guarded(data)) == expected


@pytest.mark.parametrize(
    ("codec", "whole"),
    [
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\xc0\0" + (300).to_bytes(8, "little") + zstd_block(1, 300, b"x")),
        (Codec.ZSTD, zstd_with_size(bytes(300))),
        (Codec.ZSTD, ZSTD_HEADER + zstd_block(0, 9, bytes(9), is_last=False) * 3 + zstd_block(1, 9, b"x")),
        (Codec.SNAPPY, b"\x05\xfc\x04\0\0\0hello"),
        (Codec.SNAPPY, b"\x05\x00h\x0f\x01\0\0\0"),
    ],
)
def test_nothing_is_read_behind_a_header_that_is_cut(codec: Codec, whole: bytes) -> None:
    for size in range(len(whole)):
        assert kernel.Codecs(LARGEST).decompress(codec, guarded(whole[:size])) is None, size


# Functions that do what those of the libraries do not.

SIZE, POINTER = ctypes.c_size_t, ctypes.c_void_p
ZSTD_WHOLE = ctypes.CFUNCTYPE(SIZE, POINTER, POINTER, SIZE, POINTER, SIZE)
ZSTD_STATE = ctypes.CFUNCTYPE(SIZE, POINTER)
ZSTD_CREATE = ctypes.CFUNCTYPE(POINTER)
LZ4 = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER, ctypes.c_int, ctypes.c_int)


class IsalState(ctypes.Structure):
    """The fields that the kernel knows of it."""

    _fields_ = (
        ("next_out", POINTER),
        ("avail_out", ctypes.c_uint32),
        ("total_out", ctypes.c_uint32),
        ("next_in", POINTER),
        ("read_in", ctypes.c_uint64),
        ("avail_in", ctypes.c_uint32),
    )


ISAL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(IsalState))


def address(function: Any) -> int:
    return ctypes.cast(function, POINTER).value or 0


def played(codec: Codec, **others: Any) -> Any:
    """Codecs with the true functions of a library but for these."""
    names = native_codecs._FUNCTIONS[codec][1]
    true = native_codecs.find(codec)
    assert true is not None
    addresses = [address(others[name]) if name in others else one for name, one in zip(names, true, strict=True)]
    codecs = kernel.Codecs(1 << 30, lambda _: addresses)
    assert not set(others) - set(names)
    return codecs


def test_a_function_of_lz4_that_gives_more_than_it_has_room_for_is_not_believed() -> None:
    for more, body in ((0, FIRST), (1, None)):
        codecs = played(Codec.LZ4, LZ4_decompress_safe=LZ4(lambda _, __, ___, room, more=more: room + more))
        made = codecs.decompress(Codec.LZ4, LZ4_HEADER + lz4_block(b"x") + END)
        assert (made and len(made)) == body


TWO_BLOCKS = ZSTD_HEADER + zstd_block(1, 5, b"x", is_last=False) + zstd_block(1, 6, b"y")


def test_a_library_of_zstd_that_cannot_begin_is_left_alone() -> None:
    assert played(Codec.ZSTD).decompress(Codec.ZSTD, TWO_BLOCKS) == b"x" * 5 + b"y" * 6
    true = native_codecs.find(Codec.ZSTD)
    assert true is not None
    truly_begin = ZSTD_STATE(true[3])

    def begin(context: int) -> int:
        truly_begin(context)
        return 2**64 - 1

    codecs = played(Codec.ZSTD, ZSTD_decompressBegin=ZSTD_STATE(begin))
    assert codecs.decompress(Codec.ZSTD, TWO_BLOCKS) is None
    codecs = played(Codec.ZSTD, ZSTD_createDCtx=ZSTD_CREATE(lambda: None))
    assert codecs.decompress(Codec.ZSTD, TWO_BLOCKS) is None


@pytest.mark.parametrize("asked", [[0], [6, 0], [6, 3, 0], [len(TWO_BLOCKS) + 1, 0], [6, len(TWO_BLOCKS) - 5, 0]])
def test_a_library_of_zstd_that_asks_for_other_bytes_than_there_are_is_not_believed(asked: list[int]) -> None:
    """It asks for none when the body is whole, and never for more than are left."""
    steps, given = iter(asked), list[int]()

    def block(_: int, __: int, room: int, ___: int, size: int) -> int:
        given.append(size)
        return 0

    codecs = played(
        Codec.ZSTD,
        ZSTD_decompressBegin=ZSTD_STATE(lambda _: 0),
        ZSTD_nextSrcSizeToDecompress=ZSTD_STATE(lambda _: next(steps)),
        ZSTD_decompressContinue=ZSTD_WHOLE(block),
    )
    assert codecs.decompress(Codec.ZSTD, TWO_BLOCKS) is None
    assert sum(given) <= len(TWO_BLOCKS)


@pytest.mark.parametrize("made", [1025, FIRST + 1, (128 << 10) + 1, 2**63, 2**64 - 1, 2**64 - 2, 2**64 - 20])
def test_a_library_of_zstd_that_says_that_it_made_too_much_is_not_believed(made: int) -> None:
    window = b"\0" if made == 1025 else b"\x50"
    codecs = played(Codec.ZSTD, ZSTD_decompressDCtx=ZSTD_WHOLE(lambda *_: made))
    frame = ZSTD_HEADER[:-1] + window + zstd_block(1, 5, b"x")
    assert codecs.decompress(Codec.ZSTD, frame) is None
    if made == (128 << 10) + 1:
        codecs.decompress(Codec.SNAPPY, snappy_raw(bytes(LARGEST)))
        assert codecs.decompress(Codec.ZSTD, frame) is None


@pytest.mark.parametrize(
    "frame",
    [
        b"\x29" + ZSTD_HEADER[1:] + zstd_block(1, 5, b"x"),
        b"\x28\xb5\x2f\xfd\x08\0" + zstd_block(1, 5, b"x"),  # the reserved bit
        b"\x28\xb5\x2f\xfd\x01\0\7" + zstd_block(1, 5, b"x"),  # a dictionary
        b"\x28\xb5\x2f\xfd\x01\0\0" + zstd_block(1, 5, b"x") + zstd_block(1, 5, b"x"),
        b"\x28\xb5\x2f\xfd\xc0\0" + ((1 << 32) + 5).to_bytes(8, "little") + zstd_block(1, 5, b"x"),
        ZSTD_HEADER + zstd_block(2, 1025, bytes(1025)),  # a block longer than the window
        ZSTD_HEADER[:-1] + b"\x50" + zstd_block(2, (128 << 10) + 1, bytes((128 << 10) + 1)),  # and than any may be
    ],
)
def test_a_frame_that_is_not_ordinary_is_not_given_to_zstd(frame: bytes) -> None:
    given: list[int] = []

    def whole(*parts: int) -> int:
        given.append(parts[-1])
        return 5

    codecs = played(Codec.ZSTD, ZSTD_decompressDCtx=ZSTD_WHOLE(whole))
    ordinary = ZSTD_HEADER + zstd_block(1, 5, b"x")
    assert codecs.decompress(Codec.ZSTD, ordinary) is not None
    assert codecs.decompress(Codec.ZSTD, frame) is None
    assert given == [len(ordinary)]


def test_what_zstd_decompresses_with_is_given_back_once() -> None:
    freed: list[int] = []
    true = native_codecs.find(Codec.ZSTD)
    assert true is not None
    truly_free = ZSTD_STATE(true[1])

    def free(context: int) -> int:
        freed.append(context)
        return int(truly_free(context))

    codecs = played(Codec.ZSTD, ZSTD_freeDCtx=ZSTD_STATE(free))
    assert codecs.decompress(Codec.ZSTD, TWO_BLOCKS) is not None
    assert not freed
    del codecs
    assert len(freed) == 1


def test_a_frame_of_one_block_takes_one_call() -> None:
    begun: list[int] = []

    def begin(context: int) -> int:
        begun.append(context)
        return 0

    codecs = played(Codec.ZSTD, ZSTD_decompressBegin=ZSTD_STATE(begin))
    assert codecs.decompress(Codec.ZSTD, ZSTD_HEADER + zstd_block(1, 5, b"x")) == b"x" * 5
    assert not begun
    codecs.decompress(Codec.ZSTD, TWO_BLOCKS)
    assert begun


@pytest.mark.parametrize(
    ("outcome", "left", "made", "is_taken"),
    [(0, 8, 5, True), (1, 8, 5, False), (-1, 8, 5, False), (0, 9, 5, False), (0, 7, 5, False), (0, 8, 4, False)],
)
def test_a_library_of_gzip_that_does_not_end_well_is_not_believed(
    outcome: int, left: int, made: int, is_taken: bool
) -> None:
    """The bytes are right, and their checksum is; but it did not end where it should, or says that it did not."""

    def inflate(state: Any) -> int:
        ctypes.memmove(state.contents.next_out, b"hello", 5)
        state.contents.avail_in, state.contents.total_out = left, made
        return outcome

    codecs, member = played(Codec.GZIP, isal_inflate_stateless=ISAL(inflate)), gzip_member(b"hello")
    assert codecs.decompress(Codec.GZIP, member) == (b"hello" if is_taken else None)
    for changed in (b"\x1e" + member[1:], member[:3] + b"\x08" + member[4:]):
        assert codecs.decompress(Codec.GZIP, changed) is None


def test_only_numbers_of_four_and_eight_bytes_are_counted() -> None:
    for typecode in "bh":
        with pytest.raises(ValueError, match="4 or 8 bytes"):
            kernel.count_rising(array(typecode, [1, 2]), True)


def test_no_bytes_have_the_checksum_of_none() -> None:
    assert kernel.checksum(b"") == kernel.checksum_by_tables(b"") == 0


@pytest.mark.parametrize(
    "body",
    [
        *(b"\x40\0" + b"\x80" * width for width in range(1, 10)),  # a time
        *(b"\x40\0\0" + b"\x80" * width for width in range(1, 5)),  # the place in the batch
        *(b"\x40\0\0\0\1\1\2\2h" + b"\x80" * width for width in range(1, 5)),  # the length of a header
    ],
)
def test_nothing_is_read_behind_a_number_that_is_cut(body: bytes) -> None:
    for length in (len(body) - 1, len(body)):
        data = batch_of(bytes((2 * length,)) + body[1:])
        columns, table = ColumnBuffers(frozenset({"offset", "headers"})), batch_table()
        view = guarded(data)
        kernel.scan_batches(view, 0, 0, table, 1 << 30)
        assert kernel.decode_batches(columns, view, 0, table, 1, True, Decompressor()) == Outcome.DAMAGED


class Watched:
    """Buffers of which nobody knows that there is more memory behind them."""

    def __init__(self) -> None:
        self.buffers: list[bytearray] = []

    def allocate(self, size: int) -> bytearray:
        buffer = bytearray(b"\xa5") * (size + size // 2)
        del buffer[size:]  # which keeps the memory
        self.buffers.append(buffer)
        return buffer

    def assert_untouched(self) -> None:
        for buffer in self.buffers:
            size = len(buffer)
            held = (ctypes.c_char * size).from_buffer(buffer)
            behind = ctypes.string_at(ctypes.addressof(held) + size + 1, size // 2 - 1)  # behind a 0, Python's own
            assert behind == b"\xa5" * len(behind)


DATA = (Buffer.KEY_DATA, Buffer.VALUE_DATA, Buffer.HEADER_KEY_DATA, Buffer.HEADER_VALUE_DATA)
FOR_EACH_HEADER = (Buffer.HEADER_KEY_OFFSETS, Buffer.HEADER_VALUE_OFFSETS, Buffer.HEADER_VALUE_VALIDITY)


def decoded_into_just_enough(fields: list[bytes], scarce: Buffer | None = None) -> tuple[Outcome, ColumnBuffers, int]:
    """Into buffers that hold these fields, each as key, value and header, and not a byte more; one of them less."""
    records = [ProducerRecord(field, field, headers=(("h" * len(field), field), ("", None))) for field in fields]
    data = SegmentBuilder(0).batch(records).to_bytes()
    sizes = dict.fromkeys(DATA, sum(map(len, fields))) | dict.fromkeys(FOR_EACH_HEADER, 4 * (2 * len(fields) + 1))
    sizes[Buffer.HEADER_VALUE_VALIDITY] = 2 * len(fields) // 8
    if scarce is not None:
        sizes[scarce] -= 4 if scarce in FOR_EACH_HEADER[:2] else 1
    watched, names = Watched(), frozenset({"key", "value", "headers", "offset"})
    columns = ColumnBuffers(names, BufferPool(0, watched.allocate), max_rows=len(fields))
    for index, size in sizes.items():
        columns.buffers[index] = buffer = watched.allocate(size)
        if index in FOR_EACH_HEADER[:2]:
            buffer[:4] = bytes(4)
    table, decompressor = batch_table(), Decompressor()
    kernel.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    outcome = Outcome(kernel.decode_batches(columns, memoryview(data), 0, table, 1, True, decompressor))
    watched.assert_untouched()
    codecs: Any = decompressor.codecs
    return outcome, columns, codecs.one_by_one


@pytest.mark.parametrize("size", [1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200])
def test_nothing_is_written_behind_a_buffer_that_just_holds_the_records(size: int) -> None:
    """Long fields and short ones, and the last one ends where the buffer does."""
    fields = [bytes((number + 1,)) * (size + 39 - number) for number in range(40)]
    outcome, columns, left = decoded_into_just_enough(fields)
    assert (outcome, left) == (Outcome.DONE, 0)
    for index in DATA:
        whole = b"".join(fields)
        assert bytes(columns.buffers[index] or b"") == (b"h" * len(whole) if index is DATA[2] else whole)


@pytest.mark.parametrize("scarce", [*DATA, *FOR_EACH_HEADER])
def test_a_buffer_that_lacks_one_place_is_to_grow_and_is_not_passed(scarce: Buffer) -> None:
    outcome, columns, left = decoded_into_just_enough([b"field" * 8] * 40, scarce)
    assert (outcome, left, columns.rows) == (Outcome.GROW, 1, 36 if scarce is Buffer.HEADER_VALUE_VALIDITY else 39)
    assert columns.state[State.NEED_BUFFER] == scarce


def test_a_buffer_that_just_holds_a_record_that_is_not_ordinary_need_not_grow() -> None:
    columns, table = ColumnBuffers(frozenset({"key", "value", "headers"})), batch_table()
    records = [ProducerRecord(b"value", b"key", headers=(("ключ", b"datum"),))]
    data = SegmentBuilder(0).batch(records).to_bytes()
    for index, size in zip(DATA, (3, 5, 8, 5), strict=True):
        columns.buffers[index] = bytearray(size)
    kernel.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    assert kernel.decode_batches(columns, memoryview(data), 0, table, 1, True, Decompressor()) == Outcome.DONE
    assert [bytes(columns.buffers[index] or b"") for index in DATA] == [b"key", b"value", "ключ".encode(), b"datum"]
