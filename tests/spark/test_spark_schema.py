from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, StringType, StructType

from segreader.errors import OptionError
from segreader.read.arrow import HEADERS, schema
from segreader.spark.columns import READ_NAMES, arrow_schema, to_spark
from segreader.spark.source import project, spark_schema

HEADERS_TYPE = ArrayType(StructType().add("key", "string").add("value", "binary"))


def struct(*fields: tuple[str, str | DataType]) -> StructType:
    """A schema of these names and types, all of them nullable."""
    wanted = StructType()
    for name, kind in fields:
        wanted = wanted.add(name, kind)
    return wanted


KAFKA = (
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "integer"),
    ("offset", "long"),
    ("timestamp", "timestamp"),
    ("timestampType", "integer"),
)


def test_the_schema_is_that_of_sparks_kafka_source() -> None:
    assert spark_schema(include_headers=False) == struct(*KAFKA)
    assert spark_schema(include_headers=True) == struct(*KAFKA, ("headers", HEADERS_TYPE))


def test_every_arrow_type_is_the_one_spark_expects() -> None:
    ours = arrow_schema(tuple(READ_NAMES))
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    expected = to_arrow_schema(spark_schema(include_headers=True, raw_columns=True), **zone)

    assert ours.names == expected.names
    for name in ours.names:
        assert ours.field(name).equals(expected.field(name)) or name == "headers"
    assert ours.field("headers").type == HEADERS
    assert ours.field("headers").type.value_type == expected.field("headers").type.value_type


def test_a_schema_may_have_any_of_the_columns_in_any_order() -> None:
    wanted = struct(("timestampType", "integer"), ("offset", "long"), ("headers", HEADERS_TYPE))

    assert project(wanted) == ("timestampType", "offset", "headers")
    assert arrow_schema(project(wanted)).names == ["timestampType", "offset", "headers"]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (struct(("offsets", "long")), r"unknown column offsets.*Did you mean offset\?"),
        (struct(("payload", "binary")), "unknown column payload.*expected key, value"),
        (struct(("offset", "integer")), "gives offset another type; found int, expected bigint"),
        (struct(("value", "string")), "gives value another type; found string, expected binary"),
        (struct(("headers", ArrayType(StringType()))), "gives headers another type"),
        (StructType().add("offset", "long", nullable=False), "offset is never null"),
        (struct(("offset", "long"), ("offset", "long")), "twice"),
        (struct(), "no column"),
    ],
)
def test_a_schema_that_cannot_be_met_is_refused_by_name(wanted: StructType, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        project(wanted)


def test_a_record_without_headers_has_null_and_not_an_empty_list() -> None:
    lists = pa.array([[("a", b"1"), ("a", None)], [], [("", b"")], []], HEADERS)
    batch = pa.RecordBatch.from_arrays([lists], schema=schema(("headers",)))
    out = to_spark(batch, arrow_schema(("headers",)))

    assert out.column(0).to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        None,
        [{"key": "", "value": b""}],
        None,
    ]
    out.validate(full=True)


def test_columns_keep_their_memory_under_their_new_names() -> None:
    read = pa.RecordBatch.from_arrays(
        [pa.array([0, 1], pa.int32()), pa.array([b"k", None], pa.binary())], schema=schema(("timestamp_type", "key"))
    )
    out = to_spark(read, arrow_schema(("timestampType", "key")))

    assert out.schema.names == ["timestampType", "key"]
    assert out.column(1).buffers()[2].address == read.column(1).buffers()[2].address
