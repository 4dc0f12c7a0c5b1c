"""Records that other libraries encoded: aiokafka and kafka-python, every codec and magic that each one writes."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record import MemoryRecordsBuilder

from segreader.format.batch import Record, TimestampType
from segreader.format.compression import Codec, Decompressor
from segreader.format.kernel import load_kernel
from segreader.format.records import iter_records
from segreader.format.scanner import BatchReady, NeedData, SegmentScanner

TIME = 1_700_000_000_000
HEADERS = (("trace", b"\x00\xff"), ("trace", b""), ("none", None))


def records(magic: int) -> list[Record]:
    """What is encoded: null, empty, binary and long keys and values, times out of order."""
    rows = [(b"k", b"v"), (None, b"x" * 3000), (b"", b""), (b"key", None), (bytes(range(256)), b"tail")]
    return [
        Record(
            offset,
            TIME + (offset % 2) * 1000 if magic else -1,
            TimestampType.CREATE_TIME if magic else TimestampType.NO_TIMESTAMP_TYPE,
            key,
            value,
            HEADERS if magic == 2 and offset % 2 else (),
        )
        for offset, (key, value) in enumerate(rows)
    ]


def by_aiokafka(magic: int, codec: Codec) -> bytes:
    if magic == 2:
        builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
        for r in records(2):
            assert builder.append(r.offset, r.timestamp_ms, r.key, r.value, list(r.headers))
    else:
        builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
        for r in records(magic):
            assert builder.append(r.offset, r.timestamp_ms if magic else None, r.key, r.value)
    return bytes(builder.build())


def by_kafka_python(magic: int, codec: Codec) -> bytes:
    builder = MemoryRecordsBuilder(magic, int(codec), 1 << 20)
    for r in records(magic):
        assert builder.append(r.timestamp_ms if magic else None, r.key, r.value, list(r.headers))
    builder.close()
    return bytes(builder.buffer())


def decode(data: bytes, kernel: str) -> list[Record]:
    scanner, decompressor, seen = SegmentScanner(stop=len(data)), Decompressor(), list[Record]()
    while True:
        answer = scanner.next()
        if isinstance(answer, NeedData):
            scanner.feed(data[answer.range.start : answer.range.stop])
        elif isinstance(answer, BatchReady):
            seen += iter_records(answer.data, decompressor, kernel=load_kernel(kernel))
        else:
            return seen


ENCODERS = {"aiokafka": by_aiokafka, "kafka-python": by_kafka_python}
# zstd came with magic 2, and aiokafka refuses to write lz4 in magic 0.
WRITTEN = [
    (library, magic, codec)
    for library in ENCODERS
    for magic in (0, 1, 2)
    for codec in Codec
    if (magic == 2 or codec is not Codec.ZSTD) and (library, magic, codec) != ("aiokafka", 0, Codec.LZ4)
]


@pytest.mark.parametrize("kernel", ["native", "reference"])
@pytest.mark.parametrize(("library", "magic", "codec"), WRITTEN)
def test_what_another_library_encodes_is_decoded_to_the_same_records(
    library: str, magic: int, codec: Codec, kernel: str
) -> None:
    assert decode(ENCODERS[library](magic, codec), kernel) == records(magic)
