"""The columns of Spark's tables and of what a job writes: their names, order and Arrow types, settled here once.

Spark 4.2 and later demand that a record batch has exactly the expected schema; 4.0 and 4.1 match columns by position
alone. Nothing here needs Spark: a job without it writes the same columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from segreader.plan.request import ReadOptions
from segreader.read.arrow import FIELDS, HEADERS, ZERO, typed_fields
from segreader.typed.decoding import Decoding

KAFKA_NAMES = {
    "key": "key",
    "value": "value",
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
}
"""Columns of Spark's kafka source, in Spark's order, and what ``read`` calls them."""

RAW_NAMES = {
    "baseOffset": "batch_base_offset",
    "leaderEpoch": "leader_epoch",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "sequence": "sequence",
    "isTransactional": "is_transactional",
    "compression": "compression",
    "position": "position",
}
"""What ``rawColumns`` adds: of the batch that a record is in, but for its sequence; and what ``read`` calls it."""

KEPT_NAMES = {
    "keyRaw": "key_raw",
    "keyError": "key_error",
    "valueRaw": "value_raw",
    "valueError": "value_error",
}
"""What ``onUndecodable=keep`` adds beside a decoded key or value: its bytes, and what is wrong with them."""

READ_NAMES = KAFKA_NAMES | RAW_NAMES
"""Every column of a read that decodes nothing, and what ``read`` calls it."""

ALL_NAMES = READ_NAMES | KEPT_NAMES
"""Every column, and what ``read`` calls it."""

AS_BYTES: Final = ReadOptions()
"""Keys and values are not decoded."""


def column_names(decodings: Sequence[Decoding] = (), *, with_headers: bool = True) -> tuple[str, ...]:
    """The columns of a read without a schema of the user's, in order.

    Args:
        decodings: how keys and values are decoded.
    """
    names = [name for name in KAFKA_NAMES if with_headers or name != "headers"]
    for decoding in decodings:
        at = names.index(decoding.side) + 1
        names[at:at] = kept_names(decoding)
    return tuple(names)


def kept_names(decoding: Decoding) -> list[str]:
    """The columns that are added beside a decoded one."""
    return [name for name, read_name in KEPT_NAMES.items() if read_name in decoding.columns]


def arrow_schema(names: tuple[str, ...], options: ReadOptions = AS_BYTES) -> pa.Schema:
    """The Arrow schema of record batches for Spark with these columns.

    Args:
        options: how keys and values are decoded.
    """
    fields = dict(FIELDS)
    for decoding in options.decodings:
        from segreader.spark.typed_values import spark_form

        fields |= {name: one.with_type(spark_form(one.type)) for name, one in typed_fields(decoding).items()}
    return pa.schema([fields[ALL_NAMES[name]].with_name(name) for name in names])


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same columns under Spark's names, in the same order; nothing is copied but what has another type there.

    Spark's kafka source gives a record without headers a null, not an empty list.
    """
    arrays = [_array_for_spark(array, field) for array, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array_for_spark(array: pa.Array, field: pa.Field) -> pa.Array:
    if field.name == "headers":
        return _null_where_empty(array)
    if array.type.equals(field.type):
        return array
    from segreader.spark.typed_values import for_spark

    return for_spark(array, field.type)


def _null_where_empty(lists: pa.ListArray) -> pa.ListArray:
    """The lists with a null for each empty one: their own memory under a new bitmap."""
    if not len(lists.values):
        return _no_headers(1 << len(lists).bit_length()).slice(0, len(lists))
    is_empty = pc.equal(pc.list_value_length(lists), ZERO)
    if not is_empty.true_count:
        return lists
    return pa.ListArray.from_arrays(lists.offsets, lists.values, type=lists.type, mask=is_empty)


@lru_cache(maxsize=16)
def _no_headers(rows: int) -> pa.ListArray:
    """So many nulls, of which others are cut."""
    return pa.nulls(rows, HEADERS)
