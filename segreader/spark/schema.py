"""The columns as Spark sees them: names of its kafka source, types derived from the one Arrow schema.

Spark 4.2 and later demand that a batch has exactly the expected schema; 4.0 and 4.1 match columns by position
alone. So the order and every type are settled here, once.
"""

from __future__ import annotations

import difflib
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from segreader.errors import OptionError
from segreader.read.arrow import FIELDS, HEADERS

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

READ_NAMES = KAFKA_NAMES | RAW_NAMES
"""Every column, and what ``read`` calls it."""

_SPARK_TYPES: dict[pa.DataType, DataType] = {
    pa.binary(): BinaryType(),
    pa.string(): StringType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.bool_(): BooleanType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    HEADERS: ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


def spark_schema(*, include_headers: bool, raw_columns: bool = False) -> StructType:
    """The schema of a read without a schema of the user's: that of Spark's kafka source, and then ours.

    Source: ``KafkaRecordToRowConverter`` (Spark 4).
    """
    names = [name for name in KAFKA_NAMES if include_headers or name != "headers"]
    names += RAW_NAMES if raw_columns else ()
    return StructType([StructField(name, _spark_type(name)) for name in names])


def project(schema: StructType) -> tuple[str, ...]:
    """The names of the columns that a schema of the user's asks for.

    It may have any of the columns in any order, with their own types. Columns left out are not decoded.

    Raises:
        OptionError: a column is unknown, has another type, appears twice or may not be null; or there is none.
    """
    names = tuple(schema.names)
    if not names:
        raise OptionError("the schema has no column", expected=", ".join(READ_NAMES))
    if len(set(names)) < len(names):
        raise OptionError("the schema names a column twice", found=", ".join(names))
    for field in schema.fields:
        if field.name not in READ_NAMES:
            near = difflib.get_close_matches(field.name, READ_NAMES, n=1, cutoff=0.5)
            raise OptionError(
                f"the schema has an unknown column {field.name}",
                expected=", ".join(READ_NAMES),
                hint=f"Did you mean {near[0]}?" if near else None,
            )
        expected = _spark_type(field.name)
        if field.dataType != expected:
            raise OptionError(
                f"the schema gives {field.name} another type",
                found=field.dataType.simpleString(),
                expected=expected.simpleString(),
                hint="Cast the column after reading",
            )
        if not field.nullable:
            raise OptionError(f"the schema says that {field.name} is never null", hint="Take NOT NULL away")
    return names


def arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    """The Arrow schema of record batches for Spark with these columns."""
    return pa.schema([FIELDS[READ_NAMES[name]].with_name(name) for name in names])


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same columns under Spark's names, in the same order; nothing is copied.

    Spark's kafka source gives a record without headers a null, not an empty list.
    """
    arrays = [
        _null_where_empty(array) if field.name == "headers" else array
        for array, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _spark_type(name: str) -> DataType:
    return _SPARK_TYPES[FIELDS[READ_NAMES[name]].type]


def _null_where_empty(lists: pa.ListArray) -> pa.ListArray:
    """The lists with a null for each empty one: their own memory under a new bitmap."""
    if not len(lists.values):
        return _no_headers(1 << len(lists).bit_length()).slice(0, len(lists))
    is_empty = pc.equal(pc.list_value_length(lists), 0)
    if not is_empty.true_count:
        return lists
    return pa.ListArray.from_arrays(lists.offsets, lists.values, type=lists.type, mask=is_empty)


@lru_cache(maxsize=16)
def _no_headers(rows: int) -> pa.ListArray:
    """So many nulls, of which others are cut."""
    return pa.nulls(rows, HEADERS)
