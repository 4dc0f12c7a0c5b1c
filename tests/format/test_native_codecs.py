"""The native kernel's own decompression: what it takes is what ``Decompressor`` gives, and what it leaves is known."""

from __future__ import annotations

import ctypes
import mmap
import random
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import crc32c
import lz4.frame
import pytest
import zstandard
from framings import gzip_member, lz4_block, lz4_frame, snappy_raw, snappy_xerial, zstd_stream, zstd_with_size

from segreader.errors import FormatError, OptionError
from segreader.format import native_codecs
from segreader.format.columns import TABLE_WIDTH, ColumnBuffers, Decision, Outcome, State, Table, batch_table
from segreader.format.compression import Codec, Decompressor, parse_lz4_frame_header
from segreader.format.kernel import load_kernel
from segreader.format.records import iter_records
from segreader.testing.batches import Lies
from segreader.testing.builder import SegmentBuilder
from segreader.testing.compressors import JAVA_COMPRESSORS
from segreader.testing.records import ProducerRecord

kernel: Any = pytest.importorskip("segreader.format._kernel")

LARGEST = 2 << 20
COMPRESSED = [codec for codec in Codec if codec]


def words(size: int, seed: int = 0) -> bytes:
    """Text that every codec makes shorter, with references far and near."""
    chance = random.Random(seed)
    known = [chance.randbytes(chance.randrange(1, 12)) for _ in range(300)]
    made = bytearray()
    while len(made) < size:
        made += chance.choice(known) * chance.choice((1, 1, 1, 2, 9))
    return bytes(made[:size])


def guarded_page() -> mmap.mmap:
    """Two pages, of which the second cannot be read."""
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    second = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + mmap.PAGESIZE
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(second), mmap.PAGESIZE, 0) == 0
    return pages


def page_end(pages: mmap.mmap, data: bytes) -> memoryview:
    """The data, put where the first page ends."""
    assert len(data) <= mmap.PAGESIZE
    place = memoryview(pages)[mmap.PAGESIZE - len(data) : mmap.PAGESIZE]
    place[:] = data
    return place


def sizes() -> list[int]:
    return [1, 2, 15, 16, 17, 60, 61, 300, 4000, 16384, 65535, 65536, 65537, 200_000, 1_500_000]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_ordinary_bodies_are_decompressed_natively(codec: Codec) -> None:
    codecs = kernel.Codecs(LARGEST)
    for size in sizes():
        for body in (words(size), random.Random(size).randbytes(size), bytes(size)):
            assert codecs.decompress(codec, JAVA_COMPRESSORS[codec](body)) == body, size


@pytest.mark.parametrize(
    ("codec", "compress"),
    [
        (Codec.SNAPPY, snappy_raw),
        (Codec.LZ4, lambda body: lz4_frame(body, content_checksum=True)),
        (Codec.LZ4, lambda body: lz4_frame(body, block_size=lz4.frame.BLOCKSIZE_MAX256KB)),
        (Codec.LZ4, lambda body: lz4_frame(body, block_size=lz4.frame.BLOCKSIZE_MAX1MB, content_checksum=True)),
        (Codec.LZ4, lambda body: lz4_frame(body, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
        (Codec.LZ4, lambda body: lz4_frame(body) + b"what follows the end mark"),
        (Codec.ZSTD, zstd_with_size),
        (Codec.ZSTD, lambda body: zstandard.ZstdCompressor(level=19).compress(body)),
        (Codec.ZSTD, lambda body: zstandard.ZstdCompressor(level=1, write_content_size=False).compress(body)),
    ],
)
def test_bodies_of_other_producers_are_decompressed_natively(codec: Codec, compress: Callable[[bytes], bytes]) -> None:
    codecs = kernel.Codecs(LARGEST)
    for size in (1, 300, 16384, 65537, 200_000, 400_000):
        body = words(size, size)
        assert codecs.decompress(codec, compress(body)) == body


UNUSUAL: list[tuple[str, Codec, bytes]] = [
    ("nothing", Codec.SNAPPY, b""),
    ("two members", Codec.GZIP, gzip_member(b"one") + gzip_member(b"two")),
    ("a name", Codec.GZIP, gzip_member(b"one", 8, b"name\0")),
    ("bytes behind", Codec.GZIP, gzip_member(b"one") + b"x"),
    ("a wrong length", Codec.GZIP, gzip_member(b"one")[:-4] + b"\2\0\0\0"),
    ("a wrong checksum", Codec.GZIP, gzip_member(b"one")[:-8] + b"\0\0\0\0\3\0\0\0"),
    ("cut", Codec.GZIP, gzip_member(words(900))[:-30]),
    ("block checksums", Codec.LZ4, lz4_frame(words(900), block_checksum=True)),
    ("a content size", Codec.LZ4, lz4_frame(words(900), store_size=True)),
    ("linked blocks", Codec.LZ4, lz4_frame(words(90_000), block_linked=True, block_size=4)),
    ("a wrong header checksum", Codec.LZ4, b"\x04\x22\x4d\x18\x60\x40\x83" + lz4_block(b"x") + bytes(4)),
    ("no end mark", Codec.LZ4, lz4_frame(words(900))[:-4]),
    ("no content checksum", Codec.LZ4, lz4_frame(words(900), content_checksum=True)[:-1]),
    ("a block of too many bytes", Codec.LZ4, lz4_frame(b"")[:7] + lz4_block(bytes(70_000)) + bytes(4)),
    (
        "a stored block of too many bytes",
        Codec.LZ4,
        lz4_frame(b"")[:7] + lz4_block(bytes(65_537), stored=True) + bytes(4),
    ),
    ("two frames", Codec.ZSTD, zstd_stream(b"one") + zstd_stream(b"two")),
    ("a skippable frame", Codec.ZSTD, b"\x50\x2a\x4d\x18\0\0\0\0" + zstd_stream(b"one")),
    ("a window of 64 MiB", Codec.ZSTD, zstd_stream(b"one", window_log=26)),
    (
        "a window of 64 MiB, and a content size",
        Codec.ZSTD,
        bytes.fromhex("28b52ffd4080") + (300 - 256).to_bytes(2, "little") + (300 << 3 | 3).to_bytes(3, "little") + b"x",
    ),
    ("a body longer than its window", Codec.ZSTD, zstd_stream(words(90_000), window_log=14)),
    ("cut", Codec.ZSTD, zstd_stream(words(900))[:-1]),
    ("bytes behind", Codec.ZSTD, zstd_stream(words(900)) + b"x"),
    ("a wrong checksum", Codec.ZSTD, zstd_with_size(words(900))[:-1] + b"x"),
    ("another version of xerial", Codec.SNAPPY, b"\x82SNAPPY\0\0\0\0\2\0\0\0\1" + snappy_xerial(b"one")[16:]),
    ("an empty block", Codec.SNAPPY, snappy_xerial(b"one") + bytes(4)),
    ("a header inside", Codec.SNAPPY, snappy_xerial(b"one") + snappy_xerial(b"two")),
    ("cut", Codec.SNAPPY, snappy_xerial(words(900))[:-1]),
    ("too short", Codec.SNAPPY, b"\x05\x00x"),
    ("too long", Codec.SNAPPY, b"\x01\x04xy"),
    ("a reference before its begin", Codec.SNAPPY, b"\x08\x00x\x09\x02\x00"),
    ("a reference to nothing", Codec.SNAPPY, b"\x08\x00x\x09\x00\x00"),
    ("too long a body", Codec.ZSTD, zstd_with_size(bytes(LARGEST + 1))),
    ("too long a body", Codec.GZIP, gzip_member(bytes(LARGEST + 1))),
    ("too long a body", Codec.SNAPPY, snappy_xerial(bytes(LARGEST + 1))),
    ("too long a body", Codec.LZ4, lz4_frame(bytes(LARGEST + 1))),
    ("far too long a body", Codec.LZ4, lz4_frame(bytes(LARGEST + 70_000))),
    ("no such codec", 5, b"x"),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("what", "codec", "data"), UNUSUAL, ids=[f"{codec}-{what}" for what, codec, _ in UNUSUAL])
def test_what_is_not_ordinary_is_left_to_the_decompressor(what: str, codec: Codec, data: bytes) -> None:
    cold, warm = kernel.Codecs(1 << 30), kernel.Codecs(1 << 30)
    warm.decompress(Codec.SNAPPY, snappy_raw(bytes(LARGEST)))
    assert (cold.capacity, warm.capacity) == (0, LARGEST)
    assert cold.decompress(codec, data) is warm.decompress(codec, data) is None
    assert_same_records(codec, data)


def assert_same_records(codec: int, data: bytes) -> None:
    """A batch of these bytes comes to the same with the kernel's own codecs and without them."""
    whole = SegmentBuilder(5).batch(
        [], codec=Codec(codec & 3), lies=Lies(body=data, record_count=1, last_offset_delta=0)
    )
    batch = bytearray(whole.to_bytes())
    batch[22] = codec
    answers = []
    for name in ("native", "reference"):
        columns, table = ColumnBuffers(frozenset({"value", "offset"})), batch_table()
        chosen = load_kernel(name)
        rows, _ = chosen.scan_batches(memoryview(batch), 0, 0, table, 1 << 30)
        try:
            outcome: object = chosen.decode_batches(columns, memoryview(batch), 0, table, rows, False, Decompressor())
        except FormatError as error:
            outcome = (type(error), str(error))
        answers.append((outcome, list(columns.state[: State.NEED_BUFFER]), list(columns.state[State.DAMAGE :])))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_no_body_passes_the_limit(codec: Codec) -> None:
    compressed = JAVA_COMPRESSORS[codec](words(5000))
    assert kernel.Codecs(5000).decompress(codec, compressed) == words(5000)
    assert kernel.Codecs(4999).decompress(codec, compressed) is None


@pytest.mark.parametrize(("codec", "compress"), [(Codec.SNAPPY, snappy_raw), (Codec.ZSTD, zstd_with_size)])
def test_no_small_body_passes_the_limit(codec: Codec, compress: Callable[[bytes], bytes]) -> None:
    for size in (1, 2, 100, 255, 256, 300):
        compressed = compress(words(size))
        assert kernel.Codecs(size).decompress(codec, compressed) == words(size)
        assert kernel.Codecs(size - 1).decompress(codec, compressed) is None


def snappy_of_all_tags() -> bytes:
    """A raw block with every kind of tag: literals of 0 to 4 length bytes, copies of 1, 2 and 4 offset bytes."""
    literals = [(b"", 30), (b"\xf0", 1), (b"\xf4", 2), (b"\xf8", 3), (b"\xfc", 4)]
    made, size = bytearray(), 0
    for tag, width in literals:
        count = width if not tag else 61 + width
        made += bytes(((count - 1) << 2,)) if not tag else tag + (count - 1).to_bytes(width, "little")
        made += words(count, count)
        size += count
    for length, offset in ((4, 7), (11, 40), (9, 300), (60, 5), (64, 100), (1, 1)):
        if 4 <= length < 12:
            made += bytes((1 | (length - 4) << 2 | offset >> 8 << 5, offset & 255))
            size += length
        for kind, width in ((2, 2), (3, 4)):
            made += bytes((kind | (length - 1) << 2,)) + offset.to_bytes(width, "little")
            size += length
    return bytes((size & 127 | 128, size >> 7)) + bytes(made)


def framed(codec: Codec) -> Iterator[bytes]:
    for body in (words(20), words(200, 1), words(700, 2)):
        yield JAVA_COMPRESSORS[codec](body)
        if codec is Codec.SNAPPY:
            yield from (snappy_raw(body), snappy_xerial(body, 64))
            yield snappy_xerial(body) + b"\0\0\0\1\0" + snappy_xerial(body)[16:]  # a block of nothing
        if codec is Codec.LZ4:
            yield lz4_frame(body, content_checksum=True)
            yield lz4_frame(b"")[:7] + lz4_block(body, stored=True) + lz4_block(body, stored=True) + bytes(4)
        if codec is Codec.ZSTD:
            yield from (zstd_with_size(body), zstd_stream(body, window_log=10), zstd_stream(body[:50]))
            yield zstd_frame(zstd_block(0, len(body), body, is_last=False), zstd_block(1, 40, b"x"))
    if codec is Codec.SNAPPY:
        yield snappy_of_all_tags()


@pytest.mark.parametrize("codec", COMPRESSED)
def test_nothing_is_read_behind_a_body_that_is_cut_anywhere(codec: Codec) -> None:
    """Behind its last byte there is memory that cannot be read."""
    codecs, decompressor, page = kernel.Codecs(1 << 20), Decompressor(1 << 20), guarded_page()
    for data in framed(codec):
        whole = bytes(decompressor.decompress(codec, data))
        assert codecs.decompress(codec, page_end(page, data)) == whole
        for size in range(len(data)):
            made = codecs.decompress(codec, page_end(page, data[:size]))
            assert made is None or made == bytes(decompressor.decompress(codec, data[:size])), size


def test_nothing_is_read_behind_batches_that_are_damaged_anywhere() -> None:
    page, names = guarded_page(), frozenset({"key", "value", "headers", "offset", "timestamp"})
    headers = (("name", b"datum"), ("n", None), ("k", b""))
    records = [ProducerRecord(b"value" * 9, b"key", headers=headers), ProducerRecord(None, timestamp_ms=1 << 50)]
    body = SegmentBuilder(0).batch(records).to_bytes()[61:]
    for size in range(len(body) + 1):
        for change in (0, 1, 0x40, 0x80, 0xFF):
            spoiled = bytearray(body[:size])
            if change and size:
                spoiled[-1] ^= change
            lies = Lies(body=bytes(spoiled), record_count=2, last_offset_delta=1)
            data = SegmentBuilder(0).batch([], lies=lies).to_bytes()
            answers = []
            for name, given in (("native", page_end(page, data)), ("reference", memoryview(data))):
                columns, table = ColumnBuffers(names), batch_table()
                one = load_kernel(name)
                rows, _ = one.scan_batches(given, 0, 0, table, 1 << 30)
                outcome = one.decode_batches(columns, given, 0, table, rows, True, Decompressor())
                answers.append((outcome, rows, list(columns.state)))
            assert answers[0] == answers[1], (size, change)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """With some bytes changed, left out, repeated or cut off."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(len(made) + 1)
        match chance.randrange(6):
            case 0 | 1 if at < len(made):
                made[at] ^= 1 << chance.randrange(8)
            case 2 if at < len(made):
                made[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            case 3:
                del made[at : at + chance.randrange(1, 5)]
            case 4:
                made[at:at] = chance.randbytes(chance.randrange(1, 5))
            case _:
                start = chance.randrange(len(made) + 1)
                made[at:at] = made[start : start + chance.randrange(40)]
        if not made:
            made = bytearray(b"\0")
    return bytes(made[: chance.randrange(len(made) + 1)]) if chance.random() < 0.05 else bytes(made)


def seeds(codec: Codec) -> Iterator[bytes]:
    for size in (30, 200, 3000):
        body = words(size, size)
        yield JAVA_COMPRESSORS[codec](body)
        if codec is Codec.ZSTD:
            yield from (
                zstd_with_size(body),
                zstd_stream(body, window_log=10),
                zstandard.ZstdCompressor(19).compress(body),
            )
        if codec is Codec.SNAPPY:
            yield from (snappy_raw(body), snappy_xerial(body, 64))
        if codec is Codec.LZ4:
            yield from (lz4_frame(body, content_checksum=True), lz4_frame(body, block_size=7))


def without_checksums(codec: Codec, data: bytes) -> bytes:
    """A gzip body with the trailer of what it holds, so that mutations are not all found by it."""
    if codec is not Codec.GZIP:
        return data
    try:
        return gzip_member(zlib_body(data[10:-8]))[:10] + data[10:-8] + gzip_member(zlib_body(data[10:-8]))[-8:]
    except Exception:
        return data


def zlib_body(data: bytes) -> bytes:
    return zlib.decompressobj(-15).decompress(data, 1 << 20)


@pytest.mark.parametrize("rounds", [400, pytest.param(20_000, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("codec", COMPRESSED)
def test_of_damaged_bodies_only_those_are_taken_that_the_decompressor_takes(codec: Codec, rounds: int) -> None:
    chance = random.Random(codec)
    codecs, decompressor = kernel.Codecs(1 << 20), Decompressor(1 << 20)
    taken = 0
    sources = list(seeds(codec))
    for _ in range(rounds):
        data = without_checksums(codec, mutated(chance.choice(sources), chance))
        made = codecs.decompress(codec, data)
        if made is not None:
            taken += 1
            assert made == bytes(decompressor.decompress(codec, data)), data.hex()
    assert taken > rounds // 100


def test_checksums_are_those_of_the_package() -> None:
    data = random.Random(3).randbytes(40_000)
    for size in [*range(300), *(767, 768, 769, 3071, 12287, 12288, 12289, 13500, 16384, 40_000)]:
        for start in (0, 1, 7) if size > 290 else (0,):
            part = data[start:size]
            assert kernel.checksum(part) == kernel.checksum_by_tables(part) == crc32c.crc32c(part), size


def test_the_headers_of_lz4_that_are_known_are_right() -> None:
    codecs, end = kernel.Codecs(99), bytes(8)
    for flags in (0x60, 0x64):
        for code in range(8):
            starts = [bytes((4, 0x22, 0x4D, 0x18, flags, code << 4, check)) for check in range(256)]
            known = [start for start in starts if codecs.decompress(Codec.LZ4, start + end) is not None]
            assert len(known) == (code >= 4)  # smaller blocks do not exist
            assert not any(parse_lz4_frame_header(memoryview(start)).has_block_checksums for start in known)


def test_all_codecs_are_native_here() -> None:
    assert native_codecs.found() == ("gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("value", ["none", "lz4", "zstd, gzip", "snappy"])
def test_the_environment_chooses_the_codecs(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native_codecs.VARIABLE, value)
    assert sorted(native_codecs.found()) == sorted(name.strip() for name in value.split(",") if name != "none")
    for codec in COMPRESSED:
        body = kernel.Codecs(9999).decompress(codec, JAVA_COMPRESSORS[codec](b"body"))
        assert body == (b"body" if codec.label in value else None)
        built = SegmentBuilder(0).batch([b"a", b"b"], codec=codec)
        assert list(iter_records(built.to_bytes(), Decompressor(), kernel=load_kernel("native"))) == built.records


def test_another_name_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native_codecs.VARIABLE, "lz4,brotli")
    with pytest.raises(OptionError, match="brotli"):
        native_codecs.find(Codec.GZIP)


@pytest.mark.parametrize(
    "functions",
    [
        ("no_such_package", ("LZ4_decompress_safe",)),
        ("lz4.no_such_module", ("LZ4_decompress_safe",)),
        ("lz4.block._block", ("LZ4_no_such_function",)),
        ("lz4.block", ("LZ4_decompress_safe",)),  # not a library
        ("lz4.block._block", ("LZ4_compressBound",)),  # another function
    ],
)
def test_a_codec_that_is_not_there_or_not_right_is_left_alone(
    functions: tuple[str, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(native_codecs._FUNCTIONS, Codec.LZ4, functions)
    native_codecs._proved.cache_clear()
    try:
        assert native_codecs.found() == ("gzip", "snappy", "zstd")
        built = SegmentBuilder(0).batch([b"a", b"b"], codec=Codec.LZ4)
        assert list(iter_records(built.to_bytes(), Decompressor(), kernel=load_kernel("native"))) == built.records
    finally:
        native_codecs._proved.cache_clear()


def decoded(data: bytes, decompressor: Decompressor, rows: int = 700) -> bytes:
    """The values of a segment, one behind the other."""
    columns, table, seen = ColumnBuffers(frozenset({"value"}), max_rows=rows), batch_table(), bytearray()
    native = load_kernel("native")
    count, _ = native.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    while True:
        outcome = native.decode_batches(columns, memoryview(data), 0, table, count, True, decompressor)
        if outcome == Outcome.GROW and columns.make_room():
            continue
        assert outcome in (Outcome.DONE, Outcome.FULL, Outcome.GROW)
        seen += (columns.buffers[7] or b"")[: columns.state[State.VALUE_BYTES]]
        columns.reset()
        if outcome == Outcome.DONE:
            return bytes(seen)


@pytest.mark.parametrize("codec", list(Codec))
def test_threads_decode_at_once_and_each_gets_its_own(codec: Codec) -> None:
    segments = []
    for number in range(4):
        values = [words(900, 1000 * number + one) for one in range(300)]
        built = SegmentBuilder(0)
        for at in range(0, 300, 30):
            built.batch(values[at : at + 30], codec=codec)
        segments.append((built.to_bytes(), b"".join(values)))
    wrong: list[int] = []
    barrier = threading.Barrier(len(segments))

    def work(number: int) -> None:
        data, expected = segments[number]
        decompressor = Decompressor()
        barrier.wait()
        for _ in range(25):
            if decoded(data, decompressor, 70) != expected:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(segments))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_lock_is_released_once_for_a_run() -> None:
    """Another thread runs on while a run is decoded, and the run does not wait for it at every batch."""
    values = [words(1000, one) for one in range(16)]
    built = SegmentBuilder(0)
    for _ in range(256):
        built.batch(values, codec=Codec.LZ4)
    data, table, native = built.to_bytes(), batch_table(), load_kernel("native")
    rows, _ = native.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    columns = ColumnBuffers(frozenset({"value"}), max_bytes=1 << 30)
    columns.buffers[7] = bytearray(8 << 20)
    asked: list[object] = []
    decompressor = Decompressor()
    decompressor.decompress = lambda *given: asked.append(given)  # type: ignore[assignment, method-assign]
    assert native.decode_batches(columns, memoryview(data), 0, table, rows, True, decompressor) == Outcome.DONE
    assert (rows, columns.rows, asked) == (256, 4096, [])


def test_a_body_that_another_took_the_place_of_cannot_be_read_on() -> None:
    data = SegmentBuilder(0).batch([b"%d" % one for one in range(25)], codec=Codec.LZ4).to_bytes()
    table, decompressor, native = batch_table(), Decompressor(), load_kernel("native")
    rows, _ = native.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    first, second = (ColumnBuffers(frozenset({"value"}), max_rows=10) for _ in range(2))
    assert native.decode_batches(first, memoryview(data), 0, table, rows, True, decompressor) == Outcome.FULL
    assert native.decode_batches(second, memoryview(data), 0, table, rows, True, decompressor) == Outcome.FULL
    first.reset()
    with pytest.raises(ValueError, match="released"):
        native.decode_batches(first, memoryview(data), 0, table, rows, True, decompressor)


def zstd_block(kind: int, size: int, data: bytes, is_last: bool = True) -> bytes:
    return (size << 3 | kind << 1 | is_last).to_bytes(3, "little") + data


def zstd_frame(*blocks: bytes, window_log: int = 20) -> bytes:
    return b"\x28\xb5\x2f\xfd\0" + bytes(((window_log - 10) << 3,)) + b"".join(blocks)


def zstd_repeated(size: int) -> bytes:
    """A compressed block: a literal and one match, of 65540 to 131075 bytes together."""
    bits = int(f"100{size - 65_540:016b}", 2).to_bytes(3, "little")
    block = bytes(((1 << 3) | 1, 0x7A, 1, 0x54, 1, 2, 52)) + bits
    return zstd_block(2, len(block), block)


def test_zstd_blocks_longer_than_a_stream_takes_are_left_to_the_decompressor() -> None:
    """The function that decompresses a frame at once takes them; a stream, and Java with it, refuses them."""
    most, codecs = 128 << 10, kernel.Codecs(1 << 30)
    for size in (most, most + 1):
        raw, rle = zstd_block(0, size, bytes(size)), zstd_block(1, size, b"x")
        frames = [zstd_frame(raw), zstd_frame(rle), zstd_frame(zstd_repeated(size))]
        frames += [
            zstd_frame(zstd_block(1, 5, b"y", is_last=False), block) for block in (raw, rle, zstd_repeated(size))
        ]
        for frame in frames:
            body = codecs.decompress(Codec.ZSTD, frame)
            if size == most:
                assert body == bytes(Decompressor().decompress(Codec.ZSTD, frame)), frame[:20].hex()
            else:
                assert body is None, frame[:20].hex()
                with pytest.raises(FormatError):
                    Decompressor().decompress(Codec.ZSTD, frame)
                assert_same_records(Codec.ZSTD, frame)
    small = zstd_frame(zstd_block(1, 1025, b"x"), window_log=10)
    assert codecs.decompress(Codec.ZSTD, small) is None


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4])
def test_a_body_of_many_small_blocks_does_not_begin_anew_for_each(codec: Codec) -> None:
    codecs, first = kernel.Codecs(1 << 30), 64 << 10
    body = bytes(first + 1)
    if codec is Codec.SNAPPY:
        data = snappy_xerial(body[:-1]) + snappy_xerial(body[-1:])[16:]
    else:
        data = lz4_frame(b"")[:7] + lz4_block(body[:-1], stored=True) + lz4_block(body[-1:], stored=True) + bytes(4)
    assert codecs.decompress(codec, data) == body
    assert codecs.capacity == 2 * first


def test_a_small_body_leaves_little_memory_behind() -> None:
    codecs = kernel.Codecs(1 << 30)
    codecs.decompress(Codec.LZ4, JAVA_COMPRESSORS[Codec.LZ4](words(10)))
    assert codecs.capacity <= 64 << 10
    codecs.decompress(Codec.LZ4, lz4_frame(words(70_000), block_size=lz4.frame.BLOCKSIZE_MAX256KB))
    assert codecs.capacity <= 256 << 10
    codecs.decompress(Codec.ZSTD, zstd_with_size(bytes(50 << 20)))
    for size in (1_200_000, 1_300_000):
        assert codecs.decompress(Codec.SNAPPY, snappy_raw(bytes(size))) == bytes(size)
    assert codecs.capacity == LARGEST


BOTH = pytest.mark.parametrize("kernel_name", ["native", "reference"])


def decoded_run(
    kernel_name: str, data: bytes, columns: ColumnBuffers, change: Callable[[Any], None] = lambda _: None
) -> tuple[int, Any]:
    """The outcome of a run whose table was changed before, and the state after it."""
    table, one = batch_table(), load_kernel(kernel_name)
    rows, _ = one.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    change(table)
    return one.decode_batches(columns, memoryview(data), 0, table, rows, True, Decompressor()), columns.state


@BOTH
def test_a_batch_that_begins_where_the_wanted_offsets_end_is_not_decompressed(kernel_name: str) -> None:
    data = SegmentBuilder(0).batch([b"a"] * 3, codec=Codec.LZ4).batch([b"b"] * 3, codec=Codec.LZ4).to_bytes()
    columns = ColumnBuffers(frozenset({"value"}))
    columns.state[State.STOP_OFFSET] = 3
    outcome, state = decoded_run(kernel_name, data, columns)
    assert (outcome, columns.rows, state[State.DECODED_BATCHES], state[State.BATCH_ROW]) == (Outcome.STOPPED, 3, 1, 1)


@BOTH
def test_a_batch_that_is_left_out_moves_the_position_behind_it(kernel_name: str) -> None:
    data = SegmentBuilder(0).batch([b"a"] * 3).batch([b"b"] * 3).to_bytes()
    columns = ColumnBuffers(frozenset({"value"}))

    def leave_out_the_last(table: Any) -> None:
        table[TABLE_WIDTH + Table.DECISION] = Decision.SKIP

    outcome, state = decoded_run(kernel_name, data, columns, leave_out_the_last)
    assert (outcome, columns.rows, state[State.NEXT_OFFSET]) == (Outcome.DONE, 3, 6)


@pytest.mark.parametrize(
    ("index", "value"),
    [(Table.SIZE, 60), (Table.SIZE, 0), (Table.SIZE, 1 << 40), (Table.POSITION, -1), (Table.POSITION, 1 << 40)],
)
def test_a_table_that_does_not_describe_the_bytes_is_refused(index: int, value: int) -> None:
    def change(table: Any) -> None:
        table[index] = value

    data = SegmentBuilder(0).batch([b"a"] * 3).to_bytes()
    with pytest.raises(ValueError, match="does not describe"):
        decoded_run("native", data, ColumnBuffers(frozenset({"value"})), change)


@pytest.mark.parametrize("rows", [-1, 2])
def test_a_table_with_too_few_rows_is_refused(rows: int) -> None:
    columns, table = ColumnBuffers(frozenset({"value"})), batch_table(1)
    with pytest.raises(ValueError, match="too small"):
        load_kernel("native").decode_batches(columns, memoryview(b""), 0, table, rows, True, Decompressor())


def test_bodies_without_compression_are_read_where_they_are() -> None:
    data = SegmentBuilder(0).batch([b"a"] * 3).to_bytes()
    table, decompressor, native = batch_table(), Decompressor(), load_kernel("native")
    rows, _ = native.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    decompressor.decompress = lambda *given: pytest.fail("asked")  # type: ignore[method-assign]
    columns = ColumnBuffers(frozenset({"value"}))
    assert native.decode_batches(columns, memoryview(data), 0, table, rows, True, decompressor) == Outcome.DONE
    assert columns.rows == 3


def test_what_was_read_of_a_body_is_let_go_of_before_the_next_one() -> None:
    built = SegmentBuilder(0)
    for _ in range(3):
        built.batch([b"%d" % one for one in range(25)], codec=Codec.LZ4)
    data, table, decompressor, native = built.to_bytes(), batch_table(), Decompressor(), load_kernel("native")
    rows, _ = native.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    columns = ColumnBuffers(frozenset({"value"}), max_rows=10)
    counts = []
    while native.decode_batches(columns, memoryview(data), 0, table, rows, True, decompressor) == Outcome.FULL:
        counts.append(columns.rows)
        columns.reset()
    assert [*counts, columns.rows] == [10] * 7 + [5]


def test_the_memory_of_a_body_is_let_go_of_when_a_run_returns() -> None:
    """A bytearray cannot change its size while anything looks into it."""
    data = SegmentBuilder(0).batch([b"%d" % one for one in range(25)], codec=Codec.GZIP).to_bytes()
    table, decompressor, native = batch_table(), Decompressor(), load_kernel("native")
    body = bytearray(decompressor.decompress(Codec.GZIP, data[61:]))
    decompressor.codecs = kernel.Codecs(1 << 20, lambda codec: None)
    decompressor.decompress = lambda *given: body  # type: ignore[assignment, method-assign]
    rows, _ = native.scan_batches(memoryview(data), 0, 0, table, 1 << 30)
    columns = ColumnBuffers(frozenset({"value"}), max_rows=10)
    outcomes: list[object] = []
    while not outcomes or outcomes[-1] == Outcome.FULL:
        outcomes.append(native.decode_batches(columns, memoryview(data), 0, table, rows, True, decompressor))
        body.append(0)
        body.pop()
        columns.reset()
    assert outcomes == [Outcome.FULL, Outcome.FULL, Outcome.DONE]


def test_content_sizes_of_every_width_are_read() -> None:
    codecs = kernel.Codecs(1 << 20)
    for size, field, high in ((300, 2, 0), (70_000, 4, 0), (70_000, 8, 0), (70_000, 8, 1)):
        told = size - 256 if field == 2 else size + (high << 32)
        flags = {2: 0x40, 4: 0x80, 8: 0xC0}[field]
        frame = b"\x28\xb5\x2f\xfd" + bytes((flags, 10 << 3)) + told.to_bytes(field, "little")
        frame += zstd_block(1, size, b"x")
        assert codecs.decompress(Codec.ZSTD, frame) == (None if high else b"x" * size)
        if high:
            with pytest.raises(FormatError):
                Decompressor().decompress(Codec.ZSTD, frame)
