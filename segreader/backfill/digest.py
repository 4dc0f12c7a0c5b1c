"""A checksum of records: equal for outputs with equal records, wherever their batches begin and end."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from segreader.format.batch import crc32c

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""What the checksum is taken over, in this order, under Spark's names."""

NAME = "crc32c"


class RecordDigest:
    """CRC-32C of each column of records in offset order: lengths and bytes of what varies, -1 for null.

    A record batch is fed as it comes; the value does not depend on how records are batched. It tells accidents and
    lost records, not forgery.
    """

    __slots__ = ("_streams", "records")

    def __init__(self) -> None:
        self.records = 0
        self._streams: dict[str, int] = {}

    def update(self, batch: pa.RecordBatch) -> None:
        """Add the records of a batch; a column of ``COLUMNS`` that it lacks counts as one without bytes."""
        self.records += batch.num_rows
        names = set(batch.schema.names)
        for name in COLUMNS:
            if name in names:
                self._feed(name, batch.column(name))

    def value(self) -> str:
        """The checksum as text."""
        columns = ",".join(f"{name}={value:08x}" for name, value in sorted(self._streams.items()))
        return f"{NAME}:{self.records}:{crc32c(columns.encode()):08x}:{columns}"

    def _feed(self, name: str, array: pa.Array) -> None:
        kind = array.type
        if pa.types.is_list(kind):
            self._take(f"{name}.length", _plain(pc.list_value_length(array)))
            pairs = array.flatten()
            self._feed(f"{name}.key", pairs.field("key"))
            self._feed(f"{name}.value", pairs.field("value"))
        elif pa.types.is_binary(kind) or pa.types.is_string(kind):
            self._take(f"{name}.length", _plain(pc.binary_length(array)))
            self._take(name, _bytes_of(array))
        else:
            self._take(name, _plain(array))

    def _take(self, name: str, data: memoryview) -> None:
        self._streams[name] = crc32c(data, self._streams.get(name, 0))


def _plain(array: pa.Array) -> memoryview:
    """The values of an array of fixed width, -1 where it is null."""
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    if array.null_count:
        array = pc.fill_null(array, -1)
    width = array.type.bit_width // 8
    return _slice(array.buffers(), 1, array.offset * width, (array.offset + len(array)) * width)


def _bytes_of(array: pa.Array) -> memoryview:
    """The bytes of all values, one after another."""
    if not len(array):
        return memoryview(b"")
    buffers = array.buffers()
    ends = memoryview(buffers[1]).cast("B").cast("i")
    return _slice(buffers, 2, ends[array.offset], ends[array.offset + len(array)])


def _slice(buffers: Sequence[pa.Buffer | None], number: int, start: int, stop: int) -> memoryview:
    buffer = buffers[number]
    return memoryview(buffer).cast("B")[start:stop] if buffer is not None else memoryview(b"")
