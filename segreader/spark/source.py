"""The Python data source that Spark finds: its name, its columns, and a reader for a batch or a stream.

It has no ``pushFilters``: with pushdown on, Spark 4.1 to 4.3 return wrong rows when a DataFrame is used twice
(the pruned plan sticks to the relation). Rows are chosen by options, columns by a schema of the user's.
"""

from __future__ import annotations

import difflib
from collections.abc import MutableMapping

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
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
from segreader.spark.batch import KAFKA_NAMES, RAW_NAMES, READ_NAMES, SegmentReader
from segreader.spark.options import parse_options, parse_stream_options, require_batch
from segreader.spark.worker import show_log, without_locals

NAME = "segreader"

_SPARK_TYPES: dict[pa.DataType, DataType] = {
    pa.binary(): BinaryType(),
    pa.string(): StringType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.bool_(): BooleanType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    HEADERS: ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


class SegmentSource(DataSource):
    """``spark.read.format("segreader")``: segments as rows with the columns of Spark's kafka source."""

    @without_locals
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        show_log()
        self._parsed = parse_options(options)
        if self._parsed.limits:  # a batch read does without
            from segreader.spark.rate_limits import require_limits

            require_limits(self._parsed)

    @classmethod
    def name(cls) -> str:
        """The name for ``format()`` and ``USING``."""
        return NAME

    def schema(self) -> StructType:
        """The columns without a schema of the user's."""
        return spark_schema(include_headers=self._parsed.include_headers, raw_columns=self._parsed.raw_columns)

    def reader(self, schema: StructType) -> SegmentReader:
        """A reader of these columns.

        Raises:
            OptionError: the schema has other columns, or the options are those of a stream.
        """
        require_batch(self._parsed)
        return SegmentReader(self._parsed, project(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of these columns that goes on with what is uploaded."""
        from segreader.spark.stream import SegmentStreamReader  # a batch read does without

        return SegmentStreamReader(parse_stream_options(self.options), project(schema))


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


def _spark_type(name: str) -> DataType:
    return _SPARK_TYPES[FIELDS[READ_NAMES[name]].type]
