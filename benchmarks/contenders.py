"""What is compared: segreader, and aiokafka's decoder into the same columns.

Each takes an input and reads it from the file, as it would for a user.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import pyarrow as pa
from aiokafka.record.memory_records import MemoryRecords

import segreader
from benchmarks.inputs import TOPIC, Input
from segreader.plan.request import DEFAULT_COLUMNS
from segreader.read.arrow import HEADERS, schema

SCHEMA = schema(DEFAULT_COLUMNS)
READ_SIZE = 1 << 20
_FLUSH_ROWS = 10_000
_LENGTH = Struct(">8xi").unpack_from


def segreader_batches(source: Input, kernel: str = "native") -> Iterator[pa.RecordBatch]:
    """The public path with its defaults: all columns, headers, CRC."""
    return segreader.scan(source.location, kernel=kernel).to_batches()


def aiokafka_batches(source: Input, read_size: int | None = READ_SIZE) -> Iterator[pa.RecordBatch]:
    """aiokafka's compiled decoder, CRC checked, into record batches of the same schema.

    Of the ways tried (a list comprehension per batch and column, one list of records, headers as dicts) this one is
    the fastest.

    Args:
        read_size: how much is read at a time, as a consumer fetches; ``None``: the whole file in one go.
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

    for data in _whole_batches(source.log, read_size):
        log = MemoryRecords(data)
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


def _whole_batches(log: Path, read_size: int | None) -> Iterator[bytes]:
    """The file in pieces of about ``read_size``, each of whole batches."""
    if read_size is None:
        yield log.read_bytes()
        return
    held = b""
    with log.open("rb", buffering=0) as file:
        while got := file.read(read_size):
            data, stop = held + got, 0
            while stop + 12 <= len(data) and stop + 12 + (length := _LENGTH(data, stop)[0]) <= len(data):
                stop += 12 + length
            held = data[stop:]
            yield data[:stop]


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
