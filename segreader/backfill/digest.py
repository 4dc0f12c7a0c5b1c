"""A checksum of records: equal for outputs with equal records, wherever their batches begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from segreader.format.batch import crc32c
from segreader.read.arrow import MINUS_ONE

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""What the checksum is taken over, under Spark's names; and over what a decoded key or value has beside it."""

_DECODED = ("key", "value")
_KEPT = ("keyRaw", "keyError", "valueRaw", "valueError")

NAME = "crc32c"


class RecordDigest:
    """CRC-32C of each column of records in offset order: lengths and bytes of what varies, -1 for null.

    A decoded key or value has one for each column below it, and one of where that is null, for any number may be there.
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
        for name in (*COLUMNS, *_KEPT):
            if name in names:
                column = batch.column(name)
                is_decoded = name in _DECODED and not pa.types.is_binary(column.type)
                (self._feed_decoded if is_decoded else self._feed)(name, column)

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

    def _feed_decoded(self, name: str, array: pa.Array) -> None:
        kind, types = array.type, pa.types
        self._take(f"{name}?", _plain(pc.cast(array.is_null(), pa.uint8())))
        if types.is_struct(kind):
            for field, below in zip(kind, array.flatten(), strict=True):  # null where the struct is
                self._feed_decoded(f"{name}.{field.name}", below)
        elif types.is_list(kind) or types.is_map(kind):
            lists = _as_lists(array) if types.is_map(kind) else array
            self._take(f"{name}.length", _plain(pc.list_value_length(lists)))
            self._feed_decoded(f"{name}[]", lists.flatten())
        elif types.is_binary(kind) or types.is_string(kind):
            self._feed(name, array.drop_null() if array.null_count else array)
        elif types.is_boolean(kind):
            self._take(name, _plain(pc.cast(pc.fill_null(array, False), pa.uint8())))
        else:
            self._take(name, _plain(_zero_where_null(array)))

    def _take(self, name: str, data: memoryview) -> None:
        self._streams[name] = crc32c(data, self._streams.get(name, 0))


def _as_lists(maps: pa.MapArray) -> pa.ListArray:
    """The same, each a list of its entries."""
    keys, items = maps.keys, maps.items
    entry = pa.struct([maps.type.key_field, maps.type.item_field])
    entries = pa.Array.from_buffers(entry, len(keys), [None], 0, 0, [keys, items])
    return pa.Array.from_buffers(
        pa.list_(entry), len(maps), maps.buffers()[:2], maps.null_count, maps.offset, [entries]
    )


def _zero_where_null(array: pa.Array) -> pa.Array:
    """Values of fixed width, with zeros in place of what is behind a null."""
    if pa.types.is_decimal(array.type):
        zero = pa.scalar(Decimal(0), array.type)
    else:
        array, zero = array.view(pa.int64() if array.type.bit_width == 64 else pa.int32()), 0
    return pc.fill_null(array, zero) if array.null_count else array


def _plain(array: pa.Array) -> memoryview:
    """The values of an array of fixed width, -1 where it is null."""
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    if array.null_count:
        array = pc.fill_null(array, MINUS_ONE.cast(array.type))
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
