"""The two ways of Spark to the records: a Python data source that it finds by name, and a frame, which costs less.

Both plan the same splits of the same options, with the same columns. A data source hands its rows to the JVM by way of
a scan that Spark plans itself; ``read_frame`` maps a frame of numbers to the record batches of splits with
``mapInArrow``, which takes 0.7 to 0.8 of the CPU. Streams, SQL and ``spark.read.format`` need the source.

The source has no ``pushFilters``: with pushdown on, Spark 4.1 to 4.3 return wrong rows when a DataFrame is used twice
(the pruned plan sticks to the relation). Rows are chosen by options, columns by a schema of the user's.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from segreader.errors import OptionError
from segreader.plan.request import ReadOptions
from segreader.spark.batch import FrameTask, SegmentReader, pack
from segreader.spark.columns import (
    AS_BYTES,
    KEPT_NAMES,
    RAW_NAMES,
    READ_NAMES,
    arrow_schema,
    column_names,
    kept_names,
)
from segreader.spark.options import SparkOptions, parse_options, parse_stream_options, require_batch
from segreader.spark.worker import show_log, without_locals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "segreader"
Location = str | os.PathLike[str]

_ROWS: Final = "rows bigint"

_AS_THEY_ARE: Final[dict[pa.DataType, DataType]] = {
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.timestamp("us"): TimestampNTZType(),
    pa.duration("us"): DayTimeIntervalType(),
}


class SegmentSource(DataSource):
    """``spark.read.format("segreader")``: segments as rows with the columns of Spark's kafka source."""

    @without_locals
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        show_log()
        self._parsed = parse_options(options)
        if self._parsed.schemas.is_any:  # what is learnt here travels: with this source, its readers and their tasks
            from segreader.spark.typed_values import with_schemas

            self._parsed = with_schemas(self._parsed)
        if self._parsed.limits:  # a batch read does without
            from segreader.spark.rate_limits import require_limits

            require_limits(self._parsed)

    @classmethod
    def name(cls) -> str:
        """The name for ``format()`` and ``USING``."""
        return NAME

    @without_locals
    def schema(self) -> StructType:
        """The columns without a schema of the user's.

        Raises:
            OptionError: a decoded key or value has a field that no column can hold.
        """
        return _whole_schema(self._parsed)

    @without_locals
    def reader(self, schema: StructType) -> SegmentReader:
        """A reader of these columns.

        Raises:
            OptionError: the schema has other columns, or the options are those of a stream.
        """
        require_batch(self._parsed)
        return SegmentReader(*_narrowed(self._parsed, schema))

    @without_locals
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of these columns that goes on with what is uploaded."""
        from segreader.spark.stream import SegmentStreamReader  # a batch read does without

        learnt = replace(parse_stream_options(self.options), read_options=self._parsed.read_options)
        return SegmentStreamReader(*_narrowed(learnt, schema))


def read_frame(
    spark: SparkSession,
    location: Location | Sequence[Location] | None,
    options: Mapping[str, object],
    *,
    schema: StructType | str | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """What ``segreader.spark.read`` gives."""
    given = _given(location, options)
    parsed = parse_options(given)
    require_batch(parsed)
    if parsed.schemas.is_any:
        from segreader.spark.typed_values import with_schemas

        parsed = with_schemas(parsed)
    wanted = _wanted_schema(parsed, schema, columns)
    reader = SegmentReader(*_narrowed(parsed, wanted))
    cores = _cores_of(spark)
    groups = pack(reader.plan(cores=cores), parsed, cores=cores)
    numbers = spark.range(0, len(groups), 1, max(len(groups), 1))
    frame = numbers.mapInArrow(FrameTask(reader, groups).records, wanted)
    counting = FrameTask(SegmentReader(parsed, ("offset",)), groups)
    counts = numbers.mapInArrow(counting.counts, _ROWS)

    def count() -> int:
        level = frame.storageLevel
        if level.useMemory or level.useDisk:  # what is cached is counted there; or it is being filled by this
            return type(frame).count(frame)
        return sum(row[0] for row in counts.collect())

    frame.count = count  # type: ignore[method-assign]
    return frame


def _given(location: Location | Sequence[Location] | None, options: Mapping[str, object]) -> dict[str, str]:
    """The options as Spark hands them on: texts."""
    given = {name: _text(value) for name, value in options.items() if value is not None}
    if location is not None:
        if any(name.lower() in ("location", "path", "paths") for name in given):
            raise OptionError("location is given twice: as an argument and as an option")
        if isinstance(location, str | os.PathLike):
            given["location"] = os.fspath(location)
        else:
            given["location"] = json.dumps([os.fspath(one) for one in location])
    return given


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _wanted_schema(options: SparkOptions, schema: StructType | str | None, columns: Sequence[str] | None) -> StructType:
    if schema is not None and columns is not None:
        raise OptionError("schema and columns exclude each other; give one")
    if schema is not None:
        return cast(StructType, StructType.fromDDL(schema)) if isinstance(schema, str) else schema
    if columns is None:
        return _whole_schema(options)
    if isinstance(columns, str):
        raise OptionError("columns is a text", found=repr(columns), expected="a list of names")
    kept = [name for decoding in options.read_options.decodings for name in kept_names(decoding)]
    known = _types_of([*READ_NAMES, *kept], options.read_options)
    return StructType([StructField(name, known.get(name, StringType())) for name in columns])


def _whole_schema(options: SparkOptions) -> StructType:
    """The columns without a schema of the user's; raises ``OptionError`` as ``require_columns``."""
    if options.schemas.is_any:
        from segreader.spark.typed_values import require_columns

        require_columns(options.read_options)
    return spark_schema(
        include_headers=options.include_headers, raw_columns=options.raw_columns, options=options.read_options
    )


def _cores_of(spark: SparkSession) -> int:
    """How many tasks run at once; a client of Spark Connect is not told, and takes the cores of its own machine."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        return os.cpu_count() or 1


def spark_schema(*, include_headers: bool, raw_columns: bool = False, options: ReadOptions = AS_BYTES) -> StructType:
    """The schema of a read without a schema of the user's: that of Spark's kafka source, and then ours.

    Source: ``KafkaRecordToRowConverter`` (Spark 4).

    Args:
        options: how keys and values are decoded.
    """
    names = column_names(options.decodings, with_headers=include_headers)
    names += tuple(RAW_NAMES) if raw_columns else ()
    types = _types_of(names, options)
    return StructType([StructField(name, types[name]) for name in names])


def project(schema: StructType, options: ReadOptions = AS_BYTES) -> tuple[str, ...]:
    """The names of the columns that a schema of the user's asks for.

    It may have any of the columns in any order, with their own types; decoded keys and values may lack fields. Columns
    left out are not decoded.

    Args:
        options: how keys and values are decoded.

    Raises:
        OptionError: a column is unknown, has another type, appears twice or may not be null; or there is none.
    """
    names = tuple(schema.names)
    kept = [name for decoding in options.decodings for name in kept_names(decoding)]
    decoded = {decoding.side.value for decoding in options.decodings}
    known = _types_of([*READ_NAMES, *kept], options)
    if not names:
        raise OptionError("the schema has no column", expected=", ".join(known))
    if len(set(names)) < len(names):
        raise OptionError("the schema names a column twice", found=", ".join(names))
    for field in schema.fields:
        if field.name not in known:
            near = difflib.get_close_matches(field.name, known, n=1, cutoff=0.5)
            raise OptionError(
                f"the schema has an unknown column {field.name}",
                expected=", ".join(known),
                hint=f"Did you mean {near[0]}?" if near else None,
            )
        expected = known[field.name]
        if field.name in KEPT_NAMES and (side := KEPT_NAMES[field.name].partition("_")[0]) not in names:
            raise OptionError(f"the schema has {field.name} without {side}", hint=f"Add a field of {side}")
        if field.name in decoded:
            paths_in(expected, field.dataType, field.name)
        elif field.dataType != expected:
            raise OptionError(
                f"the schema gives {field.name} another type",
                found=field.dataType.simpleString(),
                expected=expected.simpleString(),
                hint="Cast the column after reading",
            )
        if not field.nullable:
            raise OptionError(f"the schema says that {field.name} is never null", hint="Take NOT NULL away")
    return names


def _narrowed(options: SparkOptions, schema: StructType) -> tuple[SparkOptions, tuple[str, ...], pa.Schema | None]:
    """What a reader of these columns is made of: of decoded keys and values no more than the schema has."""
    if not options.read_options.decodings:
        return options, project(schema), None
    from segreader.spark.typed_values import with_columns

    there = with_columns(options.read_options)
    names = project(schema, there)
    types = _types_of(names, there)
    narrowed: dict[str, Any] = {}
    fields = dict(zip(names, arrow_schema(names, there), strict=True))
    for decoding in there.decodings:
        name = decoding.side.value
        if name in names:
            wanted = schema[name].dataType
            paths = paths_in(types[name], wanted, name)
            has_all = set(paths) == set(paths_in(types[name], types[name], name))
            narrowed[name] = decoding if has_all else replace(decoding, paths=paths)
            fields[name] = pa.field(name, form_of(wanted))
    read_options = replace(there, **narrowed)
    return replace(options, read_options=read_options), names, pa.schema(list(fields.values()))


def _types_of(names: Sequence[str], options: ReadOptions) -> dict[str, DataType]:
    """Spark's types of columns."""
    return {one.name: data_type(one.type) for one in arrow_schema(tuple(names), options)}


def data_type(form: pa.DataType) -> DataType:
    """Spark's type for one that ``spark_form`` gives."""
    if pa.types.is_struct(form):
        return StructType([StructField(one.name, data_type(one.type)) for one in form])
    if pa.types.is_map(form):
        return MapType(data_type(form.key_type), data_type(form.item_type))
    if pa.types.is_list(form):
        return ArrayType(data_type(form.value_type))
    if pa.types.is_decimal(form):
        return DecimalType(form.precision, form.scale)
    return _AS_THEY_ARE[form]


def form_of(kind: DataType) -> pa.DataType:
    """The other way: the Arrow type that Spark is given for its own one."""
    if isinstance(kind, StructType):
        return pa.struct([pa.field(one.name, form_of(one.dataType)) for one in kind.fields])
    if isinstance(kind, MapType):
        return pa.map_(form_of(kind.keyType), form_of(kind.valueType))
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", form_of(kind.elementType)))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return next(form for form, known in _AS_THEY_ARE.items() if known == kind)


def paths_in(whole: DataType, wanted: DataType, name: str) -> tuple[str, ...]:
    """The fields of a decoded column that a schema of the user's asks for, with dots between; the empty path: itself.

    Structs may lack fields and have them in any order. A map is taken whole, and a struct by its fields.

    Args:
        name: of the column, or of the field, with dots between.

    Raises:
        OptionError: a field is unknown, has another type, appears twice or may not be null; or there is none.
    """
    if isinstance(whole, StructType) and isinstance(wanted, StructType):
        return _paths_of_fields(whole, wanted, name)
    if isinstance(whole, ArrayType) and isinstance(wanted, ArrayType):
        if not wanted.containsNull:
            raise _never_null(f"the items of {name}")
        return paths_in(whole.elementType, wanted.elementType, name)
    if whole.simpleString() != wanted.simpleString():
        raise OptionError(
            f"the schema gives {name} another type",
            found=wanted.simpleString(),
            expected=whole.simpleString(),
            hint="Cast the column after reading",
        )
    if whole != wanted:
        raise _never_null(f"what is in {name}")
    return ("",)


def _paths_of_fields(whole: StructType, wanted: StructType, name: str) -> tuple[str, ...]:
    known = {one.name: one.dataType for one in whole.fields}
    if not wanted.fields and not known:
        return ("",)
    if not wanted.fields:
        raise OptionError(f"the schema has no field of {name}", expected=", ".join(known))
    if len(set(wanted.names)) < len(wanted.names):
        raise OptionError(f"the schema names a field of {name} twice", found=", ".join(wanted.names))
    paths: list[str] = []
    for field in wanted.fields:
        place = f"{name}.{field.name}"
        if field.name not in known:
            near = difflib.get_close_matches(field.name, known, n=1, cutoff=0.5)
            raise OptionError(
                f"the schema has an unknown field {place}",
                expected=", ".join(known),
                hint=f"Did you mean {near[0]}?" if near else None,
            )
        if not field.nullable:
            raise _never_null(place)
        below = paths_in(known[field.name], field.dataType, place)
        paths += [f"{field.name}.{path}" if path else field.name for path in below]
    return tuple(paths)


def _never_null(what: str) -> OptionError:
    return OptionError(f"the schema says that {what} is never null", hint="Take NOT NULL away")
