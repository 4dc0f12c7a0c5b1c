"""Damaged segments of every codec: the native kernel, with its codecs and without, answers as the reference does."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import thread_time
from typing import Any

import lz4.frame
import pyarrow as pa
import pytest
import zstandard
from crc32c import crc32c
from framings import gzip_member, lz4_frame, snappy_raw, snappy_xerial, zstd_stream, zstd_with_size

from segreader.errors import SegreaderError
from segreader.format.batch import CRC_START, HEADER_SIZE, LOG_OVERHEAD, Record, TimestampType
from segreader.format.columns import BUFFERS_OF, BufferPool, ColumnBuffers, Decision, Outcome, State, Table, batch_table
from segreader.format.compression import Codec, Decompressor
from segreader.format.kernel import damage_error, load_kernel
from segreader.read.arrow import to_record_batch
from segreader.segment import TopicIdPartition
from segreader.testing.batches import Lies, encode_varint
from segreader.testing.builder import SegmentBuilder
from segreader.testing.compressors import JAVA_COMPRESSORS
from segreader.testing.records import ProducerRecord

native: Any = pytest.importorskip("segreader.format._kernel")

CORPUS = Path(__file__).parents[2] / "fixtures" / "corpus"
WAYS = ["native", "native without codecs", "reference"]
LARGEST = 1 << 30
PARTITION = TopicIdPartition("t", 0)

FRAMINGS: dict[int, list[Callable[[bytes], bytes]]] = {
    Codec.NONE: [bytes],
    Codec.GZIP: [JAVA_COMPRESSORS[Codec.GZIP], gzip_member, lambda body: gzip_member(body[:9]) + gzip_member(body[9:])],
    Codec.SNAPPY: [JAVA_COMPRESSORS[Codec.SNAPPY], snappy_raw, lambda body: snappy_xerial(body, 50)],
    Codec.LZ4: [
        JAVA_COMPRESSORS[Codec.LZ4],
        lambda body: lz4_frame(body, content_checksum=True),
        lambda body: lz4_frame(body, block_checksum=True),
        lambda body: lz4_frame(body, block_size=lz4.frame.BLOCKSIZE_MAX1MB),
    ],
    Codec.ZSTD: [
        JAVA_COMPRESSORS[Codec.ZSTD],
        zstd_with_size,
        lambda body: zstd_stream(body, window_log=10),
        zstandard.ZstdCompressor(19).compress,
        lambda body: zstd_stream(body[:20]) + b"\x50\x2a\x4d\x18\0\0\0\0" + zstd_stream(body[20:]),
    ],
}


@cache
def sources() -> dict[int, list[bytes]]:
    """Batches of Kafka 3.9 and of our own, by their codec."""
    found: dict[int, list[bytes]] = {codec: [] for codec in Codec}
    for path in sorted(CORPUS.glob("k39/local/*/*.log")):
        data, seen = path.read_bytes(), 0
        for batch in batches(data):
            if batch[16] == 2 and seen < 6 and len(batch) < 20_000:
                found[batch[22] & 7].append(batch)
                seen += 1
    for codec in Codec:
        found[codec] += batches(made_here(codec).to_bytes())
    return found


def made_here(codec: Codec) -> SegmentBuilder:
    """Null and empty fields, header keys beyond ASCII, long fields, and more of each than the buffers first hold."""
    chance = random.Random(codec)

    def field(most: int) -> bytes | None:
        return chance.choice(
            (None, b"", b"x", chance.randbytes(chance.randrange(most)), b"ab" * chance.randrange(most))
        )

    def one(offset: int) -> Record:
        headers = tuple(
            (chance.choice(("", "h", "ключ", "k" * 40)), field(60)) for _ in range(chance.choice((0, 0, 2, 9)))
        )
        return Record(offset, 1_700_000_000_000 + offset, TimestampType.CREATE_TIME, field(40), field(300), headers)

    built, offset = SegmentBuilder(0), 0
    for count in (1, 3, 40, 200):
        built.batch([one(offset + step) for step in range(count)], codec=codec, producer_id=chance.choice((-1, 7)))
        offset += count
    return built.batch([ProducerRecord(b"k" * 9000, b"v" * 70_000)] * 3, codec=codec)


def batches(data: bytes) -> list[bytes]:
    cut, at = [], 0
    while at + LOG_OVERHEAD < len(data):
        stop = at + LOG_OVERHEAD + int.from_bytes(data[at + 8 : at + 12], "big")
        cut.append(data[at:stop])
        at = stop
    return cut


def sealed(batch: bytes | bytearray) -> bytes:
    """With the size and the CRC of what it holds now."""
    whole = bytearray(batch)
    struct.pack_into(">i", whole, 8, len(whole) - LOG_OVERHEAD)
    struct.pack_into(">I", whole, 17, crc32c(bytes(whole[CRC_START:])))
    return bytes(whole)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """With bits flipped, bytes left out, repeated or put in, numbers made extreme, or the end cut off."""
    made = bytearray(data or b"\0")
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(len(made) + 1)
        if chance.random() < 0.4:
            at = min(at, chance.randrange(40))  # where the lengths of frames and fields are
        match chance.randrange(8):
            case 0 | 1 | 2 if at < len(made):
                made[at] ^= 1 << chance.randrange(8)
            case 3 if at < len(made):
                made[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            case 4:
                del made[at : at + chance.choice((1, 2, 4, 30))]
            case 5:
                made[at:at] = chance.randbytes(chance.randrange(1, 6))
            case 6:
                start = chance.randrange(len(made) + 1)
                made[at:at] = made[start : start + chance.randrange(60)]
            case _:
                made[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x7f\xff\xff\xff", bytes(4)))
    return bytes(made[: chance.randrange(len(made) + 1)]) if chance.random() < 0.1 else bytes(made)


def damaged_batch(chance: random.Random) -> bytes:
    codec = chance.choice(list(Codec))
    batch = chance.choice(sources()[codec])
    head, body = bytearray(batch[:HEADER_SIZE]), batch[HEADER_SIZE:]
    match chance.randrange(8):
        case 0:
            pass
        case 1 | 2:
            body = mutated(body, chance)
        case 3 | 4:  # damage behind the codec, in any framing
            try:
                plain = bytes(Decompressor(1 << 20).decompress(codec, body))
            except SegreaderError:
                plain = body
            codec = chance.choice(list(Codec))
            head[22] = head[22] & 0xF8 | codec
            body = chance.choice(FRAMINGS[codec])(mutated(plain, chance) if chance.random() < 0.8 else plain)
            if chance.random() < 0.3:
                body = mutated(body, chance)
        case 5:  # another's body
            other = chance.choice(sources()[codec])[HEADER_SIZE:]
            body = body[: chance.randrange(len(body) + 1)] + other[chance.randrange(len(other) + 1) :]
        case 6:  # its header
            at = chance.randrange(21, HEADER_SIZE)
            head[at] ^= 1 << chance.randrange(8)
        case _:
            struct.pack_into(">i", head, 57, chance.choice((-1, 0, 1, 2, 5, 41, 1 << 30)))
    if chance.random() < 0.05:
        return mutated(sealed(head + body), chance)
    return sealed(head + body)


@dataclass(frozen=True)
class Case:
    """A segment and how it is read."""

    data: bytes
    columns: tuple[str, ...]
    max_rows: int
    max_bytes: int
    first: int
    stop: int
    cursor_moves: bool
    check_crcs: bool
    limit: int
    decisions: tuple[int, ...]


def case_of(seed: int) -> Case:
    chance = random.Random(seed)
    names = sorted(BUFFERS_OF)
    if chance.random() < 0.5:
        names = chance.sample(names, chance.randrange(1, len(names)))
    names = [name for name in names if name != chance.choice(("timestamp", "timestamp_ms"))] or ["value"]
    return Case(
        b"".join(damaged_batch(chance) for _ in range(chance.choice((1, 1, 2, 5)))),
        tuple(names),
        chance.choice((1, 2, 7, 50, 10_000)),
        chance.choice((1, 300, 20_000, 4 << 20)),
        chance.choice((0, 0, 0, 2, 30, 1 << 40)),
        chance.choice(((1 << 63) - 1, (1 << 63) - 1, 5, 60)),
        chance.random() < 0.8,
        chance.random() < 0.9,
        chance.choice((256 << 20, 256 << 20, 1 << 20, 3000, 100)),
        tuple(chance.choice((Decision.DECODE,) * 8 + (Decision.SKIP, Decision.DROP)) for _ in range(8)),
    )


def answer(case: Case, way: str, decompressor: Decompressor | None = None) -> tuple[pa.Table, list[object]]:
    """The rows, and what else a caller sees: errors to the letter, and counters."""
    kernel, decompressor = load_kernel(way.split()[0]), decompressor or Decompressor(case.limit)
    if way.endswith("without codecs"):
        decompressor.codecs = native.Codecs(case.limit, lambda codec: None)
    pool = BufferPool(0, lambda size: bytearray(b"\xa5") * size)  # unwritten bytes are seen
    columns = ColumnBuffers(frozenset(case.columns), pool, max_rows=case.max_rows, max_bytes=case.max_bytes)
    state, table, view = columns.state, batch_table(), memoryview(case.data)
    state[State.NEXT_OFFSET], state[State.STOP_OFFSET] = case.first, case.stop
    state[State.CURSOR_MOVES] = case.cursor_moves
    names = tuple(name for name in case.columns)
    parts, seen, at = [], list[object](), 0
    scanned, calls, began = 0, 0, thread_time()
    while True:
        count, at = kernel.scan_batches(view, at, 0, table, LARGEST)
        scanned += count
        for row in range(count):
            table[16 * row + Table.DECISION] = case.decisions[row % len(case.decisions)]
        state[State.BATCH_ROW], state[State.RECORDS_LEFT] = 0, -1
        outcome = Outcome.DONE
        while count:
            calls += 1
            try:
                outcome = Outcome(kernel.decode_batches(columns, view, 0, table, count, case.check_crcs, decompressor))
                error: SegreaderError | None = damage_error(state, table) if outcome is Outcome.DAMAGED else None
                if outcome is Outcome.GROW and columns.make_room():
                    continue
            except SegreaderError as raised:
                outcome, error = Outcome.DAMAGED, raised
            part = to_record_batch(columns, names, PARTITION)
            part.validate(full=True)
            parts.append(part)
            columns.reset()
            if outcome in (Outcome.DAMAGED, Outcome.LEGACY):
                seen.append((outcome, type(error), str(error), state[State.BATCH_ROW], state[State.NEXT_OFFSET]))
                state[State.BATCH_ROW] += 1
                state[State.RECORDS_LEFT] = -1
            elif outcome not in (Outcome.FULL, Outcome.GROW):
                break
        if outcome is not Outcome.DONE or not count:
            break
    counters = (State.NEXT_OFFSET, State.BATCH_ROW, State.RECORDS_LEFT, State.DECODED_BATCHES, State.BODY_BYTES)
    rows = pa.Table.from_batches(parts).combine_chunks() if parts else None
    assert_bounded(case, way, state[State.BODY_BYTES], rows, scanned, calls, thread_time() - began)
    return rows, [*seen, outcome, at, *(state[counter] for counter in counters), state[State.DROPPED_RECORDS]]


def assert_bounded(
    case: Case, way: str, body_bytes: int, rows: pa.Table | None, batches: int, calls: int, seconds: float
) -> None:
    """Work and time are bounded by the bytes of a segment and its bodies.

    A record takes 7 bytes at least. Each call of a kernel ends a batch or a record batch, or makes one of 22 buffers
    larger by half at least, up to 2 GiB. The time is that of the CPU, and some 30 times what it takes.
    """
    count = 0 if rows is None else rows.num_rows
    assert 7 * count <= body_bytes <= batches * max(case.limit, len(case.data))
    assert calls <= 2 * batches + count + 500
    assert seconds < 2 + (len(case.data) + body_bytes) * (30e-6 if way == "reference" else 1e-6) + 1e-3 * calls


def assert_same(seed: int) -> None:
    case = case_of(seed)
    (rows, rest), *others = (answer(case, way) for way in reversed(WAYS))
    for way, (other_rows, other_rest) in zip(WAYS[-2::-1], others, strict=True):
        assert other_rest == rest, (seed, way)
        assert (rows is None and other_rows is None) or rows.equals(other_rows), (seed, way)


@pytest.mark.parametrize(
    "seeds", [range(200), pytest.param(range(200, 20_000), marks=pytest.mark.exhaustive)], ids=["some", "many"]
)
def test_damaged_segments_come_to_the_same_with_and_without_native_code(seeds: range) -> None:
    for seed in seeds:
        assert_same(seed)


def test_threads_that_read_damaged_segments_do_not_see_each_other() -> None:
    cases = [case_of(seed) for seed in range(1000, 1060)]
    expected = [answer(case, "native") for case in cases]
    wrong: list[int] = []
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        order = list(range(len(cases)))
        random.Random(number).shuffle(order)
        barrier.wait()
        for at in order:
            rows, rest = answer(cases[at], "native")
            if rest != expected[at][1] or rows != expected[at][0]:
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


MOST = 1 << 20
ZEROS = bytes(64 << 20)


def framed(record: bytes) -> bytes:
    return encode_varint(len(record)) + record


def headers_of(count: int, told: int | None = None, end: bytes = b"") -> bytes:
    """A record with so many headers of 60 bytes, perhaps with another count, and bytes behind them."""
    return framed(b"\0\0\0\x01\x01" + encode_varint(told or count) + (b"\x08name\x70" + b"v" * 56) * count + end)


def bomb(body: bytes, count: int = 1, codec: Codec = Codec.NONE, compressed: bytes | None = None) -> bytes:
    batch = bytearray(
        SegmentBuilder(0).batch([], lies=Lies(body=body, record_count=count, last_offset_delta=0)).to_bytes()
    )
    batch[22] = codec
    return sealed(bytes(batch[:HEADER_SIZE]) + (body if compressed is None else compressed))


def zeros(codec: Codec) -> bytes:
    return bomb(b"", 2**31 - 1, codec, JAVA_COMPRESSORS[codec](ZEROS))


BOMBS: dict[str, Callable[[], bytes]] = {
    "64 MiB of zeros in gzip": lambda: zeros(Codec.GZIP),
    "64 MiB of zeros in snappy": lambda: zeros(Codec.SNAPPY),
    "64 MiB of zeros in lz4": lambda: zeros(Codec.LZ4),
    "64 MiB of zeros in zstd": lambda: zeros(Codec.ZSTD),
    "64 MiB of zeros in one zstd frame": lambda: bomb(b"", 1, Codec.ZSTD, zstd_with_size(ZEROS)),
    "a length of 4 GiB in snappy": lambda: bomb(b"", 1, Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(100)),
    "empty members of gzip": lambda: bomb(b"", 1, Codec.GZIP, gzip_member(b"") * 20_000),
    "empty frames of zstd": lambda: bomb(b"", 1, Codec.ZSTD, zstd_with_size(b"") * 20_000),
    "two billion records": lambda: bomb(b"\x0e\0\0\0\x01\x01\0\0"[:8] * 20_000, 2**31 - 1),
    "two billion empty records": lambda: bomb(bytes(200_000), 2**31 - 1),
    "two billion headers": lambda: bomb(headers_of(3, 2**31 - 1)),
    "a header for each byte": lambda: bomb(framed(b"\0\0\0\x01\x01" + encode_varint(30_000) + b"\0\x01" * 30_000)),
    "more headers than there are": lambda: bomb(headers_of(5000, 300_000)),
    "many headers, and the last is cut": lambda: bomb(headers_of(5000, 5001, b"\x02h\x7e")),
    "one record of long headers": lambda: bomb(headers_of(16_000)),
    "records of long headers": lambda: bomb(headers_of(200) * 80, 80),
    "a record within a record": lambda: bomb(
        b"".join(encode_varint(7 * (20_000 - step)) + b"\0\0\0\x01\x01\0" for step in range(20_000)), 20_000
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_takes_work_and_time_for_its_bytes_only(name: str, way: str) -> None:
    data = BOMBS[name]()
    for max_rows, max_bytes in ((10_000, 4 << 20), (10_000, 1), (1, 300)):
        case = Case(
            data, ("key", "value", "headers", "offset"), max_rows, max_bytes, 0, 1 << 62, False, True, MOST, (0,) * 8
        )
        _, rest = answer(case, way)
        assert rest[-2] <= MOST, "of a body no more is decompressed than the limit"  # type: ignore[operator]
