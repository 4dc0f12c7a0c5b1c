"""What is compared: segreader, aiokafka's decoder into the same columns, and the bare floor under both.

Each takes an input and reads it from the file, as it would for a user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct

import cramjam
import lz4.frame
import pyarrow as pa
import zstandard
from aiokafka.record.memory_records import MemoryRecords
from crc32c import crc32c
from isal import igzip_lib

import segreader
from benchmarks.inputs import TOPIC, Input
from segreader.read.arrow import HEADERS, schema
from segreader.read.options import DEFAULT_COLUMNS

SCHEMA = schema(DEFAULT_COLUMNS)
_FLUSH_ROWS = 10_000


def segreader_batches(source: Input, kernel: str = "native") -> Iterator[pa.RecordBatch]:
    """The public path with its defaults: all columns, headers, CRC."""
    return segreader.scan(source.location, kernel=kernel).to_batches()


def aiokafka_batches(source: Input) -> Iterator[pa.RecordBatch]:
    """aiokafka's compiled decoder, CRC checked, into record batches of the same schema.

    Of the ways tried (a list comprehension per batch and column, one list of records, headers as dicts) this one is
    the fastest.
    """
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    offsets: list[int] = []
    timestamps: list[int] = []
    timestamp_types: list[int] = []
    headers: list[list[tuple[str, bytes | None]]] = []

    def flush() -> pa.RecordBatch:
        rows = len(keys)
        columns = [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.repeat(pa.scalar(TOPIC, pa.string()), rows),
            pa.repeat(pa.scalar(0, pa.int32()), rows),
            pa.array(offsets, pa.int64()),
            pa.array(timestamps, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
            pa.array(timestamp_types, pa.int32()),
            _headers_array(headers),
        ]
        for column in (keys, values, offsets, timestamps, timestamp_types, headers):
            column.clear()
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    log = MemoryRecords(source.log.read_bytes())
    while (batch := log.next_batch()) is not None:
        if not batch.validate_crc():
            raise ValueError("a batch fails its CRC")
        for record in batch:
            keys.append(record.key)
            values.append(record.value)
            offsets.append(record.offset)
            timestamps.append(record.timestamp)
            timestamp_types.append(record.timestamp_type)
            headers.append(record.headers)
        if len(keys) >= _FLUSH_ROWS:
            yield flush()
    if keys:
        yield flush()


def _headers_array(headers: list[list[tuple[str, bytes | None]]]) -> pa.Array:
    ends = [0]
    names: list[str] = []
    values: list[bytes | None] = []
    for pairs in headers:
        for name, value in pairs:
            names.append(name)
            values.append(value)
        ends.append(len(names))
    pairs_array = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())], fields=list(HEADERS.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs_array, type=HEADERS)


# The floor

_READ_SIZE = 1 << 20
_BUFFER = memoryview(bytearray(2 << 20))
_ROOM = memoryview(bytearray(256 << 10))
_ZSTD = zstandard.ZstdDecompressor()
_COMMON = Struct(">qiibI").unpack_from


def _snappy_size(body: memoryview) -> int:
    position, size = 16, 0
    while position < len(body):
        stop = position + 4 + int.from_bytes(body[position : position + 4], "big")
        size += cramjam.snappy.decompress_raw_into(body[position + 4 : stop], _ROOM)
        position = stop
    return size


_FLOORS: dict[str, Callable[[memoryview], int]] = {
    "none": len,
    "lz4": lambda body: len(lz4.frame.decompress(body)),
    "zstd": lambda body: _ZSTD.stream_reader(body).readinto(_ROOM),
    "snappy": _snappy_size,
    "gzip": lambda body: len(igzip_lib.decompress(body, flag=igzip_lib.DECOMP_GZIP, bufsize=32 << 10)),
}


def floor_bytes(log: Path, codec: str) -> int:
    """Read, check the CRC and decompress, and nothing else, with the quickest call of the packages segreader uses.

    Returns:
        Bytes of all bodies after decompression.
    """
    decompress = _FLOORS[codec.partition("-")[0]]
    buffer, held, size = _BUFFER, 0, 0
    with log.open("rb", buffering=0) as file:
        while got := file.readinto(buffer[held : held + _READ_SIZE]):
            at, end = 0, held + got
            while at + 61 <= end:
                _, length, _, _, crc = _COMMON(buffer, at)
                stop = at + 12 + length
                if stop > end:
                    break
                if crc32c(buffer[at + 21 : stop]) != crc:
                    raise ValueError("a batch fails its CRC")
                size += decompress(buffer[at + 61 : stop])
                at = stop
            held = end - at
            buffer[:held] = buffer[at:end]
    return size
