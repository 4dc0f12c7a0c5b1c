"""Segments to measure with: text-like records in producer batches, laid out as Kafka's ``LocalTieredStorage``.

aiokafka writes every batch. Its lz4 and zstd frames are not those of a Java producer, though: it puts a checksum
behind every lz4 block, and the body's size into the zstd header. Most data is Java's (and librdkafka's, which
frames alike), so the codecs ``lz4`` and ``zstd`` here are framed Java's way and ``lz4-aiokafka`` and
``zstd-aiokafka`` as that library does it.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate, cycle
from pathlib import Path

import lz4.frame
import zstandard
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from crc32c import crc32c

from segreader.testing.directory import kafka_uuid, write_files
from segreader.testing.side_files import IndexRecorder, encode_leader_epochs, encode_producer_snapshot

TOPIC = "bench"
BATCH_BYTES = 16 << 10
_DISTINCT_BYTES = 8 << 20
_BASE_TIMESTAMP_MS = 1_700_000_000_000
_HEADER_SIZE = 61
_LEADER_EPOCH = struct.pack(">i", 0)

Headers = list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Shape:
    """What the records look like: bytes of a value, and whether it has two headers."""

    name: str
    value_size: int
    has_headers: bool = False


SHAPES = (Shape("100 B", 100), Shape("1 KiB, 2 headers", 1024, True), Shape("10 KiB", 10240))


@dataclass(frozen=True, slots=True)
class Input:
    """One segment on disk.

    Args:
        location: what ``segreader.scan`` is given.
        log: the segment file in it.
        records: how many it holds.
        stored_bytes: its size.
        body_bytes: the records sections after decompression.
        payload_bytes: keys, values, header keys and header values.
        largest_batch: bytes of the largest batch after decompression.
    """

    location: Path
    log: Path
    records: int
    stored_bytes: int
    body_bytes: int
    payload_bytes: int
    largest_batch: int

    def remove(self) -> None:
        """Delete it from the disk."""
        shutil.rmtree(self.location)


def _aiokafka_codec(number: int) -> Callable[[Batch], bytes]:
    return lambda batch: _build(batch, number)


def _java_lz4(body: bytes) -> bytes:
    frame = lz4.frame.compress(body, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False)
    return bytes(frame)


def _java_zstd(body: bytes) -> bytes:
    stream = zstandard.ZstdCompressor(level=3, write_content_size=False).compressobj()
    return stream.compress(body) + stream.flush()


def _reframed(number: int, compress: Callable[[bytes], bytes]) -> Callable[[Batch], bytes]:
    """An uncompressed batch of aiokafka's whose records section is compressed afterwards."""

    def encode(batch: Batch) -> bytes:
        plain = _build(batch, 0)
        covered = struct.pack(">h", number) + plain[23:_HEADER_SIZE] + compress(plain[_HEADER_SIZE:])
        length = struct.pack(">i", 9 + len(covered))
        return plain[:8] + length + plain[12:17] + struct.pack(">I", crc32c(covered)) + covered

    return encode


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of one producer batch."""

    records: tuple[tuple[bytes, bytes, Headers], ...]
    first_timestamp_ms: int
    batch_bytes: int

    @property
    def payload_bytes(self) -> int:
        """Bytes of keys, values, header keys and header values."""
        return sum(
            len(key) + len(value) + sum(len(name) + len(data) for name, data in headers)
            for key, value, headers in self.records
        )


CODECS: dict[str, Callable[[Batch], bytes]] = {
    "none": _aiokafka_codec(0),
    "lz4": _reframed(3, _java_lz4),
    "zstd": _reframed(4, _java_zstd),
    "snappy": _aiokafka_codec(2),
    "gzip": _aiokafka_codec(1),
    "lz4-aiokafka": _aiokafka_codec(3),
    "zstd-aiokafka": _aiokafka_codec(4),
}


def _build(batch: Batch, codec: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, batch.batch_bytes)
    for index, (key, value, headers) in enumerate(batch.records):
        if builder.append(index, batch.first_timestamp_ms + index, key, value, headers) is None:
            raise ValueError("the records do not fit their batch")
    return bytes(builder.build())


def write_inputs(
    directory: Path,
    shape: Shape,
    codecs: Iterable[str],
    body_bytes: int,
    batch_bytes: int = BATCH_BYTES,
    seed: str = "",
) -> dict[str, Input]:
    """The same records in each codec, each below a directory of its own; the same ones every time for a seed."""
    batches = make_batches(shape, max(_DISTINCT_BYTES, 2 * batch_bytes), batch_bytes, seed)
    return {codec: _write_input(directory / codec, batches, codec, body_bytes) for codec in codecs}


def make_batches(shape: Shape, total: int, batch_bytes: int, seed: str = "") -> list[Batch]:
    """Producer batches of ``total`` bytes together, before compression."""
    texts = _Texts(random.Random(shape.name + seed))
    batches, size, count = [], 0, 0
    while size < total:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, batch_bytes)
        records: list[tuple[bytes, bytes, Headers]] = []
        while True:
            record = texts.record(shape)
            if builder.append(len(records), _BASE_TIMESTAMP_MS + count + len(records), *record) is None:
                break
            records.append(record)
        batches.append(Batch(tuple(records), _BASE_TIMESTAMP_MS + count, batch_bytes))
        count += len(records)
        size += builder.size()
    return batches


def _write_input(location: Path, batches: list[Batch], codec: str, wanted_bytes: int) -> Input:
    """One remote segment, below ``location``, of about ``wanted_bytes`` before compression, the batches in turn."""
    bodies = [len(_build(batch, 0)) - _HEADER_SIZE for batch in batches]
    chosen: list[int] = []
    body_bytes = 0
    for index in cycle(range(len(batches))):
        if body_bytes >= wanted_bytes:
            break
        chosen.append(index)
        body_bytes += bodies[index]
    stem = f"{_folder(0)}/{0:020d}-{kafka_uuid(TOPIC, codec)}"
    encoded = [(batch, CODECS[codec](batch)) for batch in batches]
    files, records = _segment_files([encoded[index] for index in chosen], 0)
    write_files(location, {f"{stem}.{suffix}": data for suffix, data in files.items()})
    return Input(
        location=location,
        log=location / f"{stem}.log",
        records=records,
        stored_bytes=len(files["log"]),
        body_bytes=body_bytes,
        payload_bytes=sum(batches[index].payload_bytes for index in chosen),
        largest_batch=_HEADER_SIZE + max(bodies),
    )


def write_partitions(location: Path, partitions: int, segments: int, batches: list[Batch], codec: str) -> int:
    """A topic below ``location``: each segment has a run of the batches, and each partition the same segments.

    Batches are taken in turn, and once more from the first where they do not suffice.

    Returns:
        Records of a partition.
    """
    each = max(1, len(batches) // segments)
    encoded = [(batch, CODECS[codec](batch)) for batch in batches]
    offset = 0
    for number in range(segments):
        start = number * each % len(encoded)
        files, stop = _segment_files(encoded[start : start + each], offset)
        for suffix, data in files.items():
            name = f"{offset:020d}-{{}}.{suffix}"
            first = location / _folder(0) / name.format(kafka_uuid(TOPIC, 0, number))
            write_files(location, {f"{_folder(0)}/{first.name}": data})
            for partition in range(1, partitions):
                copy = location / _folder(partition) / name.format(kafka_uuid(TOPIC, partition, number))
                copy.parent.mkdir(exist_ok=True)
                copy.hardlink_to(first)
        offset = stop
    return offset


def _folder(partition: int) -> str:
    return f"{TOPIC}-{partition}-{kafka_uuid(TOPIC)}"


def _segment_files(encoded: Iterable[tuple[Batch, bytes]], offset: int) -> tuple[dict[str, bytes], int]:
    """What is stored of a segment, by suffix, and the offset after it.

    Its batches have ascending offsets and a leader epoch, as a broker writes them. Both are outside the CRC, so a
    batch stays good wherever it is put.
    """
    pieces: list[bytes] = []
    position, index = 0, IndexRecorder(offset, 4096)
    for batch, data in encoded:
        last = offset + len(batch.records) - 1
        index.append(position, len(data), last, batch.first_timestamp_ms + len(batch.records) - 1)
        pieces += (struct.pack(">q", offset), data[8:12], _LEADER_EPOCH, data[16:])
        offset, position = last + 1, position + len(data)
    files = {
        "log": b"".join(pieces),
        "index": index.offset_index(),
        "timeindex": index.time_index(),
        "snapshot": encode_producer_snapshot([]),
        "leader_epoch_checkpoint": encode_leader_epochs([(0, 0)]),
    }
    return files, offset


class _Texts:
    """JSON lines of made-up words: zstd and gzip make a third of them, lz4 and snappy half."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._words = [self._word() for _ in range(3000)]
        self._word_weights = list(accumulate(1 / (rank + 3) for rank in range(3000)))
        self._phrases = [
            " ".join(rng.choices(self._words, cum_weights=self._word_weights, k=rng.randint(2, 5))) for _ in range(600)
        ]
        self._phrase_weights = list(accumulate(1 / (rank + 4) for rank in range(600)))

    def record(self, shape: Shape) -> tuple[bytes, bytes, Headers]:
        rng = self._rng
        kind = rng.choice(("click", "view", "order", "login"))
        start = f'{{"id":{rng.getrandbits(32)},"user":{rng.randrange(10**5)},"type":"{kind}","text":"'
        value = start + self._text(shape.value_size - len(start) - 2) + '"}'
        headers: Headers = []
        if shape.has_headers:
            headers = [("trace-id", f"{rng.getrandbits(128):032x}".encode()), ("source", b"checkout")]
        return f"key-{rng.randrange(10**6):06d}".encode(), value.encode(), headers

    def _word(self) -> str:
        rng = self._rng
        return "".join(
            rng.choice("bcdfghklmnprstvwz") + rng.choice("aeiou") + (rng.choice("nrstl") if rng.random() < 0.3 else "")
            for _ in range(rng.randint(1, 4))
        )

    def _text(self, size: int) -> str:
        rng = self._rng
        parts: list[str] = []
        length = 0
        while length < size:
            if rng.random() < 0.6:
                part = rng.choices(self._phrases, cum_weights=self._phrase_weights)[0]
            else:
                part = rng.choices(self._words, cum_weights=self._word_weights)[0]
            parts.append(part)
            length += len(part) + 1
        return " ".join(parts)[:size]
