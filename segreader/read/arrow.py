"""The one Arrow schema, and column buffers wrapped as record batches without a copy.

Spark's schema is derived from this one. A timestamp keeps its milliseconds exactly, as microseconds.
"""

from __future__ import annotations

import struct
from array import array
from functools import lru_cache
from typing import Any

import pyarrow as pa

from segreader.format.batch import TRANSACTIONAL_FLAG
from segreader.format.columns import Buffer, ColumnBuffers, State
from segreader.plan.request import ReadOptions
from segreader.segment import TopicIdPartition
from segreader.typed.decoding import Decoding

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

FIELDS: dict[str, pa.Field] = {
    field.name: field
    for field in (
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestamp_type", pa.int32()),
        pa.field("headers", HEADERS),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("producer_id", pa.int64()),
        pa.field("producer_epoch", pa.int32()),
        pa.field("sequence", pa.int32()),
        pa.field("is_transactional", pa.bool_()),
        pa.field("compression", pa.string()),
        pa.field("batch_base_offset", pa.int64()),
        pa.field("position", pa.int64()),
        pa.field("is_control", pa.bool_()),  # deprecated, and always false
    )
}
"""Every column by name. What Kafka writes as -1 for "none" is null, except the timestamp: there -1 stays -1 ms."""

ZERO, MINUS_ONE = pa.Array.from_buffers(pa.int32(), 2, [None, pa.py_buffer(struct.pack("=ii", 0, -1))])
"""Numbers of Arrow, made of bytes: given its first number of Python's, Arrow imports pandas, for 0.3 s of CPU."""

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "unknown", "unknown", "unknown")
_FIXED = {
    "offset": Buffer.OFFSET,
    "timestamp": Buffer.TIMESTAMP,
    "timestamp_ms": Buffer.TIMESTAMP,
    "timestamp_type": Buffer.TIMESTAMP_TYPE,
    "leader_epoch": Buffer.LEADER_EPOCH,
    "producer_id": Buffer.PRODUCER_ID,
    "producer_epoch": Buffer.PRODUCER_EPOCH,
    "sequence": Buffer.SEQUENCE,
    "batch_base_offset": Buffer.BATCH_BASE_OFFSET,
    "position": Buffer.POSITION,
}
_MINUS_ONE_IS_NULL = frozenset({"leader_epoch", "producer_id", "producer_epoch", "sequence"})


@lru_cache(maxsize=64)
def schema(columns: tuple[str, ...]) -> pa.Schema:
    """The schema of these columns, in this order."""
    return pa.schema([FIELDS[name] for name in columns])


def schema_of(options: ReadOptions) -> pa.Schema:
    """The schema of what a read with these options gives."""
    fields = dict(FIELDS)
    for decoding in options.decodings:
        fields |= typed_fields(decoding)
    return pa.schema([fields[name] for name in options.columns])


def typed_fields(decoding: Decoding) -> dict[str, pa.Field]:
    """The columns that decoding makes of the one of its side, by name."""
    from segreader.typed.arrow import arrow_type

    name = decoding.side.value
    return {
        name: pa.field(name, arrow_type(decoding.selected)),
        f"{name}_raw": pa.field(f"{name}_raw", pa.binary()),
        f"{name}_error": pa.field(f"{name}_error", pa.string()),
    }


def to_record_batch(columns: ColumnBuffers, names: tuple[str, ...], partition: TopicIdPartition) -> pa.RecordBatch:
    """The rows decoded so far as one record batch that shares their memory.

    The caller resets ``columns`` afterwards; the buffers stay with the batch until it is dropped.
    """
    arrays = [_array(name, columns, partition) for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema(names))


def _array(name: str, columns: ColumnBuffers, partition: TopicIdPartition) -> pa.Array:
    rows, state = columns.rows, columns.state
    if name == "topic":
        return constant(partition.topic, rows)
    if name == "partition":
        return constant(partition.partition, rows)
    if name == "key":
        return _binary(columns, Buffer.KEY_OFFSETS, rows, state[State.KEY_BYTES], state[State.KEY_NULLS])
    if name == "value":
        return _binary(columns, Buffer.VALUE_OFFSETS, rows, state[State.VALUE_BYTES], state[State.VALUE_NULLS])
    if name == "headers":
        return _headers(columns, rows)
    if name in _FIXED:
        kind = FIELDS[name].type
        width = kind.bit_width // 8
        buffer = columns.buffers[_FIXED[name]] or bytearray()
        fixed = pa.Array.from_buffers(kind, rows, [None, _buffer(columns, _FIXED[name], rows * width)], 0)
        if name not in _MINUS_ONE_IS_NULL:
            return fixed
        return _without_minus_one(fixed, memoryview(buffer)[: rows * width].cast("q" if width == 8 else "i"))
    if name == "is_control":
        return pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(bytes((rows + 7) // 8))], 0)
    import pyarrow.compute as pc  # takes 40 ms of CPU to import, and few need it

    attributes = pa.Array.from_buffers(pa.uint8(), rows, [None, _buffer(columns, Buffer.ATTRIBUTES, rows)], 0)
    if name == "compression":
        return pc.take(pa.array(_CODECS, pa.string()), pc.bit_wise_and(attributes, pa.scalar(7, pa.uint8())))
    flag = pa.scalar(TRANSACTIONAL_FLAG, pa.uint8())
    return pc.not_equal(pc.bit_wise_and(attributes, flag), pa.scalar(0, pa.uint8()))


def _without_minus_one(fixed: pa.Array, values: memoryview) -> pa.Array:
    """Null where Kafka writes -1 for "none". Most batches have no -1 at all, or nothing else."""
    nones = values.tolist().count(-1) if -1 in values else 0
    if nones == 0:
        return fixed
    if nones == len(values):
        return pa.Array.from_buffers(
            fixed.type, len(fixed), [pa.py_buffer(bytes((nones + 7) // 8)), fixed.buffers()[1]]
        )
    import pyarrow.compute as pc

    return pc.if_else(pc.equal(fixed, -1), pa.scalar(None, fixed.type), fixed)


def _buffer(columns: ColumnBuffers, index: int, size: int) -> Any:
    buffer = columns.buffers[index]
    return pa.py_buffer(memoryview(buffer if buffer is not None else b"")[:size])


def _binary(columns: ColumnBuffers, offsets: Buffer, rows: int, size: int, nulls: int) -> pa.Array:
    validity = _buffer(columns, offsets + 2, (rows + 7) // 8) if nulls else None
    buffers = [validity, _buffer(columns, offsets, 4 * (rows + 1)), _buffer(columns, offsets + 1, size)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, nulls)


def _headers(columns: ColumnBuffers, rows: int) -> pa.Array:
    state = columns.state
    count, nulls = state[State.HEADERS], state[State.HEADER_VALUE_NULLS]
    keys = pa.Array.from_buffers(
        pa.string(),
        count,
        [
            None,
            _buffer(columns, Buffer.HEADER_KEY_OFFSETS, 4 * (count + 1)),
            _buffer(columns, Buffer.HEADER_KEY_DATA, state[State.HEADER_KEY_BYTES]),
        ],
        0,
    )
    values = _binary(columns, Buffer.HEADER_VALUE_OFFSETS, count, state[State.HEADER_VALUE_BYTES], nulls)
    pairs = pa.Array.from_buffers(HEADERS.value_type, count, [None], 0, children=[keys, values])
    return pa.Array.from_buffers(
        HEADERS, rows, [None, _buffer(columns, Buffer.HEADER_OFFSETS, 4 * (rows + 1))], 0, children=[pairs]
    )


def chosen_rows(batch: pa.RecordBatch, mask: pa.BooleanArray) -> pa.RecordBatch:
    """The rows for which a mask without nulls is true; rows that lie together are not copied."""
    import pyarrow.compute as pc

    count = mask.true_count
    first = pc.index(mask, True).as_py() if count else 0
    if mask.slice(first, count).true_count == count:
        return batch.slice(first, count)
    return batch.filter(mask)


def constant(value: str | int, rows: int) -> pa.Array:
    """The same value in every row, cut from one array that is kept: the columns ``topic`` and ``partition``."""
    size = 1024
    while size < rows:
        size *= 2
    return _repeated(value, size).slice(0, rows)


@lru_cache(maxsize=32)
def _repeated(value: str | int, rows: int) -> pa.Array:
    # from buffers, as everything here: pa.scalar and pa.array would import pandas where it is installed
    if isinstance(value, int):
        return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(array("i", [value]) * rows)], 0)
    text = value.encode()
    ends = array("i", range(0, len(text) * rows + 1, len(text)) if text else [0] * (rows + 1))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(text * rows)], 0)
