"""Keys and values that schemas describe, as Spark reads them: types, pruning, what travels to tasks."""

from __future__ import annotations

import inspect
import pickle
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from live_topic import COMMITTED, TOPIC, segments
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType
from served_cluster import served_cluster, tiered_log
from typed_orders import REMOTE, SAVED, truth

from segreader.errors import OptionError, UndecodableValueError
from segreader.spark import register, typed_values
from segreader.spark.batch import SegmentReader
from segreader.spark.columns import arrow_schema
from segreader.spark.options import SparkOptions, parse_options
from segreader.spark.source import SegmentSource, data_type, form_of, paths_in, project, spark_schema
from segreader.spark.typed_values import (
    for_spark,
    in_microseconds,
    spark_form,
    with_schemas,
)
from segreader.spark.worker import this_worker
from segreader.storage.signed_url import Secret
from segreader.typed.decoding import Decoding
from segreader.typed.schema import SchemaSet
from segreader.typed.sources import load
from segreader.typed.types import Type, TypeField, ValueKind

BIG = 2**64 - 1
LONG_DECIMAL = Decimal("12345678901234567890123456789012345678901.5")
EARLY = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)

TYPES: list[tuple[pa.DataType, str, list[Any], list[Any]]] = [
    (pa.bool_(), "boolean", [True, None], [True, None]),
    (pa.int32(), "int", [-1, None], [-1, None]),
    (pa.int64(), "bigint", [-1, None], [-1, None]),
    (pa.uint32(), "bigint", [2**32 - 1, None], [2**32 - 1, None]),
    (pa.uint64(), "decimal(20,0)", [BIG, None], [Decimal(BIG), None]),
    (pa.float32(), "float", [0.5, None], [0.5, None]),
    (pa.float64(), "double", [0.1, None], [0.1, None]),
    (pa.string(), "string", ["é", "", None], ["é", "", None]),
    (pa.binary(), "binary", [b"\0", b"", None], [b"\0", b"", None]),
    (pa.binary(4), "binary", [b"abcd", None], [b"abcd", None]),
    (pa.decimal128(10, 2), "decimal(10,2)", [Decimal("1.50"), None], [Decimal("1.50"), None]),
    (pa.decimal256(50, 1), "string", [LONG_DECIMAL, None], [str(LONG_DECIMAL), None]),
    (pa.date32(), "date", [date(2026, 2, 1), None], [date(2026, 2, 1), None]),
    (pa.time32("ms"), "bigint", [1, None], [1000, None]),
    (pa.time64("us"), "bigint", [1, None], [1, None]),
    (pa.timestamp("us", "UTC"), "timestamp", [EARLY, None], [EARLY, None]),
    (pa.timestamp("us"), "timestamp_ntz", [EARLY.replace(tzinfo=None), None], [EARLY.replace(tzinfo=None), None]),
    (pa.timestamp("ms", "UTC"), "timestamp", [-1], [datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)]),
    (pa.timestamp("ns", "UTC"), "timestamp", [-1, 1999, None], [EARLY, EARLY + timedelta(microseconds=2), None]),
    (pa.duration("us"), "interval day to second", [timedelta(microseconds=-1)], [timedelta(microseconds=-1)]),
    (
        pa.month_day_nano_interval(),
        "struct<months:int,days:int,nanoseconds:bigint>",
        [pa.MonthDayNano([1, -2, 3]), None],
        [{"months": 1, "days": -2, "nanoseconds": 3}, None],
    ),
    (pa.dictionary(pa.int32(), pa.string()), "string", ["a", "b", "a", None], ["a", "b", "a", None]),
    (pa.null(), "string", [None, None], [None, None]),
    (pa.list_(pa.field("item", pa.uint32(), nullable=False)), "array<bigint>", [[1], [], None], [[1], [], None]),
    (pa.map_(pa.string(), pa.time32("ms")), "map<string,bigint>", [[("a", 1)], [], None], [[("a", 1000)], [], None]),
    (
        pa.struct([pa.field("a", pa.binary(1), nullable=False), pa.field("b", pa.list_(pa.null()))]),
        "struct<a:binary,b:array<string>>",
        [{"a": b"x", "b": [None]}, {"a": b"y", "b": None}, None],
        [{"a": b"x", "b": [None]}, {"a": b"y", "b": None}, None],
    ),
]
"""Arrow's type of a decoded value, Spark's, values, and what they are in Spark."""

NAMES = {data_type(form).simpleString(): data_type(form) for form in {spark_form(one[0]) for one in TYPES}}


def struct(**fields: Any) -> StructType:
    """A struct: of a name a type, of a list of one an array, of a pair a map. (Spark's own DDL needs a JVM.)"""
    return StructType([StructField(name, _kind(given)) for name, given in fields.items()])


def _kind(given: Any) -> DataType:
    if isinstance(given, list):
        return ArrayType(_kind(given[0]))
    if isinstance(given, tuple):
        return MapType(_kind(given[0]), _kind(given[1]))
    return given if isinstance(given, DataType) else NAMES[given]


ORDER = struct(
    id="bigint",
    items=[struct(sku="string", price="double")],
    labels=("string", "string"),
    a=struct(b="int", c="int"),
)


def given(**options: str) -> dict[str, str]:
    return {"location": str(REMOTE), "subscribe": "orders-avro", "valueSchema": str(SAVED)} | options


def learnt(**options: str) -> SparkOptions:
    return with_schemas(parse_options(given(**options)))


def rows(reader: Any) -> list[dict[str, Any]]:
    """What tasks give, after everything has travelled to them, by partition and offset where these are there."""
    carried: SegmentReader = pickle.loads(pickle.dumps(reader))
    found = []
    for partition in pickle.loads(pickle.dumps(reader.partitions())):
        for batch in carried.read(partition):
            batch.validate(full=True)
            assert batch.schema.equals(carried.schema)
            found += batch.to_pylist()
    return sorted(found, key=lambda row: (row.get("partition", 0), row.get("offset", 0)))


def source(**options: str) -> SegmentSource:
    return SegmentSource(given(**options))


@pytest.mark.parametrize(("kind", "shown", "values", "wanted"), TYPES, ids=[str(one[0])[:40] for one in TYPES])
def test_a_type_of_arrow_is_the_one_that_the_table_of_the_docs_says(
    kind: pa.DataType, shown: str, values: list[Any], wanted: list[Any]
) -> None:
    form = spark_form(kind)
    array = pa.array(values, kind)
    assert data_type(form).simpleString() == shown
    assert form_of(data_type(form)).equals(form)
    for sent in (array, pa.concat_arrays([pa.nulls(3, kind), array]).slice(3), array.slice(0, 1)):
        found = for_spark(sent, form)
        found.validate(full=True)
        assert found.type.equals(form)
        assert found.to_pylist() == wanted[: len(sent)]
    nested = pa.StructArray.from_arrays([array], ["x"])
    assert for_spark(nested, spark_form(nested.type)).field(0).to_pylist() == wanted


def test_the_table_of_the_docs_has_each_type() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "spark.md").read_text()
    section = page.partition("## Decoded keys and values")[2].partition("\n### ")[0]
    rows = dict(line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `"))
    for kind, shown, *_ in TYPES:
        name, wanted = re.split(r"[\[<(]", str(kind))[0], re.split(r"[<(]", shown)[0]
        found = [spark for arrow, spark in rows.items() if f"`{name}`" in arrow]
        assert any(re.search(rf"`{wanted}\b", spark) for spark in found), (name, wanted)


def test_each_type_is_exactly_what_spark_expects() -> None:
    schema = StructType([StructField(str(at), data_type(spark_form(one[0]))) for at, one in enumerate(TYPES)])
    ours = pa.schema([pa.field(str(at), spark_form(one[0])) for at, one in enumerate(TYPES)])
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    assert to_arrow_schema(schema, **zone).equals(ours)


def test_columns_that_are_the_same_in_spark_keep_their_memory() -> None:
    array = pa.array(
        [{"a": "x", "b": 1}, None], pa.struct([pa.field("a", pa.string(), nullable=False), ("b", pa.int64())])
    )
    found = for_spark(array, spark_form(array.type))
    assert found.field(0).buffers()[2].address == array.field(0).buffers()[2].address
    assert found.field(1).buffers()[1].address == array.field(1).buffers()[1].address


@pytest.mark.parametrize(
    ("wanted", "paths"),
    [
        (struct(id="bigint"), ("id",)),
        (struct(a=struct(c="int"), id="bigint"), ("a.c", "id")),
        (struct(items=[struct(price="double")]), ("items.price",)),
        (struct(labels=("string", "string")), ("labels",)),
        (struct(a=struct(c="int", b="int")), ("a.c", "a.b")),
    ],
)
def test_a_struct_of_the_users_names_the_fields_that_are_decoded(wanted: StructType, paths: tuple[str, ...]) -> None:
    assert paths_in(ORDER, wanted, "value") == paths


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (struct(idd="bigint"), r"unknown field value\.idd, expected id, items, labels, a\. Did you mean id\?"),
        (struct(a=struct(d="int")), r"unknown field value\.a\.d"),
        (struct(id="int"), r"gives value\.id another type; found int, expected bigint"),
        (struct(items=struct(sku="string")), r"gives value\.items another type"),
        (struct(labels=("string", "binary")), r"gives value\.labels another type"),
        (StructType().add("id", "long", nullable=False), r"value\.id is never null"),
        (StructType().add("id", "long").add("id", "long"), "names a field of value twice"),
        (StructType(), "has no field of value"),
        (StructType().add("items", ArrayType(struct(sku="string"), containsNull=False)), "the items of value.items"),
        (StructType().add("labels", MapType(struct(a="int"), struct(b="int"))), "another type"),
    ],
)
def test_a_struct_that_cannot_be_met_is_refused_by_the_name_of_its_field(wanted: DataType, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        paths_in(ORDER, wanted, "value")


def test_the_schema_has_the_types_of_the_topic_and_is_known_before_a_segment_is_looked_for(tmp_path: Path) -> None:
    read = source(location=str(tmp_path / "nothing"), keySchema=str(SAVED), onUndecodable="keep")
    schema = read.schema()

    names = ["key", "keyRaw", "keyError", "value", "valueRaw", "valueError", "topic", "partition", "offset"]
    assert schema.names == [*names, "timestamp", "timestampType"]
    assert schema["key"].dataType == struct(id="bigint")
    value = schema["value"].dataType
    assert isinstance(value, StructType)
    assert value["placed_at"].dataType.simpleString() == "timestamp"
    assert value["status"].dataType.simpleString() == "string"
    assert value["total"].dataType.simpleString() == "decimal(10,2)"
    assert (schema["valueRaw"].dataType.simpleString(), schema["valueError"].dataType.simpleString()) == (
        "binary",
        "string",
    )
    assert all(field.nullable for one in (schema, value) for field in one.fields)
    assert source(keySchema=str(SAVED)).schema().names[:3] == ["key", "value", "topic"]


def test_rows_have_the_values_that_were_written() -> None:
    read = source(includeHeaders="true")
    schema = read.schema()
    found = rows(read.reader(schema))

    for row, true in zip(found, truth("orders-avro"), strict=True):
        assert (row["partition"], row["offset"]) == (true.partition, true.offset)
        for name in ("id", "total", "status", "placed_at", "items", "trace", "due"):
            assert (row["value"] and row["value"][name]) == (true.value and true.value[name]), name


class CountedSource:
    """What ``schemas.json`` has, counting how often it is asked."""

    asked: ClassVar[list[str | None]] = []

    def __init__(self, place: str, credentials: str) -> None:
        pass

    def learn(self, topic: str | None) -> SchemaSet:
        self.asked.append(topic)
        return load(SAVED).learn(topic)


def test_no_task_asks_for_schemas_and_a_load_asks_once_for_each_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    monkeypatch.setattr(CountedSource, "asked", asked)
    monkeypatch.setattr(typed_values, "_source", CountedSource)
    read = source(keySchema=str(SAVED), subscribe="orders-avro")
    assert asked == ["orders-avro"]
    reader = read.reader(read.schema())
    read.streamReader(read.schema())
    assert len(rows(reader)) == len(truth("orders-avro"))
    assert asked == ["orders-avro"]
    assert str(SAVED).encode() not in pickle.dumps(reader.options.read_options)


def test_schemas_of_both_sides_decode_keys_where_these_have_some() -> None:
    for topic, has_keys in (("orders-avro", True), ("orders-json", False)):
        given = {"location": str(REMOTE), "subscribe": topic, "schemas": str(SAVED)}
        schema = SegmentSource(given).schema()
        assert isinstance(schema["key"].dataType, StructType) is has_keys
        assert isinstance(schema["value"].dataType, StructType)
    mixed = SegmentSource(given | {"keySchema": str(SAVED), "subscribe": "orders-avro", "valueFields": "id"}).schema()
    assert (mixed["key"].dataType, mixed["value"].dataType) == (struct(id="bigint"), struct(id="bigint"))


def test_fields_that_an_option_leaves_out_are_not_decoded() -> None:
    read = source(valueFields="id, items.price")
    value = read.schema()["value"].dataType
    assert value.simpleString() == "struct<id:bigint,items:array<struct<price:double>>>"
    reader = read.reader(read.schema())
    assert isinstance(reader.options.read_options.value, Decoding)
    assert reader.options.read_options.value.paths == ("id", "items.price")
    assert [row["value"] and row["value"]["id"] for row in rows(reader)] == [
        one.value and one.value["id"] for one in truth("orders-avro")
    ]


def test_a_schema_of_the_users_prunes_orders_and_leaves_out_columns() -> None:
    value = struct(items=[struct(price="double", sku="string")], id="bigint")
    wanted = struct(offset="bigint", value=value, partition="int")
    reader = source().reader(wanted)

    assert reader.options.read_options.value is not None
    assert reader.options.read_options.value.paths == ("items.price", "items.sku", "id")
    found = rows(reader)
    for row, true in zip(found, truth("orders-avro"), strict=True):
        assert list(row) == ["offset", "value", "partition"]
        if true.value is None:
            assert row["value"] is None
            continue
        assert list(row["value"]) == ["items", "id"]
        assert row["value"]["id"] == true.value["id"]
        assert row["value"]["items"] == [{"price": one["price"], "sku": one["sku"]} for one in true.value["items"]]
    assert source().reader(struct(offset="bigint")).columns == ("offset",)
    whole = source(valueFields="items.price,id")
    assert whole.reader(whole.schema()).options.read_options.value == whole._parsed.read_options.value


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({}, struct(value="binary"), "gives value another type; found binary, expected struct<"),
        ({}, struct(valueError="string"), "unknown column valueError"),
        ({"onUndecodable": "keep"}, struct(valueError="string"), "has valueError without value"),
        ({}, struct(value=struct(price="double")), r"unknown field value\.price"),
        (
            {"valueFields": "id"},
            struct(value=struct(total="decimal(10,2)")),
            r"unknown field value\.total, expected id",
        ),
    ],
)
def test_columns_that_no_schema_gives_are_refused(options: dict[str, str], schema: StructType, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        source(**options).reader(schema)


def test_what_is_undecodable_fails_is_null_or_is_kept() -> None:
    bad = {"subscribe": "orders-bad"}
    true = truth("orders-bad")
    read = source(**bad)
    with pytest.raises(UndecodableValueError, match="offset 1"):
        rows(read.reader(read.schema()))
    read = source(**bad, onUndecodable="null")
    ids = [row["value"] and row["value"]["id"] for row in rows(read.reader(read.schema()))]
    assert ids == [one.value and one.value["id"] for one in true]
    read = source(**bad, onUndecodable="keep")
    for row, one in zip(rows(read.reader(read.schema())), true, strict=True):
        assert (row["valueRaw"] is None) == (row["valueError"] is None) == (one.bad is None)
        assert row["value"] is None or row["valueError"] is None


def test_a_version_may_give_the_columns() -> None:
    first, newest = (source(schemaVersion=version).schema()["value"].dataType for version in ("1", "latest"))
    assert isinstance(first, StructType)
    assert isinstance(newest, StructType)
    assert ("customer" in first.names, "buyer" in first.names) == (True, False)
    assert ("customer" in newest.names, "buyer" in newest.names) == (False, True)


def test_several_topics_are_read_by_what_all_of_their_schemas_give() -> None:
    read = source(subscribe="orders-avro,orders-bad", onUndecodable="null", valueFields="id,currency")
    found = rows(read.reader(read.schema()))
    assert len(found) == len(truth("orders-avro")) + len(truth("orders-bad"))
    assert {row["topic"] for row in found if row["value"] is not None} == {"orders-avro", "orders-bad"}
    with pytest.raises(OptionError, match=r"do not agree on a type.*Read each topic by itself"):
        source(subscribe="orders-avro,orders-json")


def test_topics_of_a_pattern_are_those_that_have_subjects(tmp_path: Path) -> None:
    place = {"location": str(REMOTE), "schemas": str(SAVED), "subscribePattern": "^orders-(avro|bad)$"}
    options = SegmentSource(place | {"onUndecodable": "null"})._parsed.read_options
    assert options.key is None  # only one of them has schemas of keys
    assert options.value is not None
    subjects = {name for name, _ in options.value.schemas.subjects}
    assert subjects == {"orders-avro-value", "orders-avro-key", "orders-bad-value"}
    one = SegmentSource(place | {"subscribePattern": "avro$"})._parsed.read_options
    assert one.key is not None
    assert one.value == learnt().read_options.value
    schema = tmp_path / "long.avsc"
    schema.write_text('"long"')
    for_all = SegmentSource({"location": "/data", "subscribePattern": "a.*", "valueSchema": str(schema)})
    assert for_all.schema()["value"].dataType.simpleString() == "bigint"


def test_a_field_that_contains_its_own_type_can_be_left_out_by_an_option_or_a_schema(tmp_path: Path) -> None:
    schema = tmp_path / "tree.avsc"
    fields = '[{"name":"a","type":"int"},{"name":"t","type":["null",{"type":"array","items":"T"}]}]'
    schema.write_text('{"type":"record","name":"T","fields":' + fields + "}")
    with pytest.raises(OptionError, match=r"value\.t contains its own type.*with valueFields"):
        source(valueSchema=str(schema)).schema()
    assert source(valueSchema=str(schema), valueFields="a").schema()["value"].dataType == struct(a="int")
    reader = source(valueSchema=str(schema)).reader(struct(value=struct(a="int")))
    assert reader.options.read_options.value is not None
    assert reader.options.read_options.value.paths == ("a",)
    with pytest.raises(OptionError, match=r"unknown field value\.t"):
        source(valueSchema=str(schema)).reader(struct(value=struct(t="int")))


MS = Type(kind=ValueKind.TIMESTAMP, unit="ms", is_utc=True)
US = Type(kind=ValueKind.TIMESTAMP, unit="us", is_utc=True)


def test_milliseconds_become_microseconds_with_their_defaults() -> None:
    below = Type(kind=ValueKind.STRUCT, fields=(TypeField("at", MS), TypeField("n", Type(kind=ValueKind.INT64))))
    whole = Type(
        kind=ValueKind.STRUCT,
        fields=(
            TypeField("at", MS, default="7"),
            TypeField("all", Type(kind=ValueKind.LIST, fields=(TypeField("item", MS),)), default="[1, 2]"),
            TypeField(
                "by",
                Type(kind=ValueKind.MAP, fields=(TypeField("key", US), TypeField("value", MS))),
                default='{"a": 1}',
            ),
            TypeField("in", below, default='{"at": 3, "n": 4}'),
            TypeField("none", MS, default="null"),
            TypeField("us", US, default="5"),
        ),
    )
    changed = in_microseconds(whole)
    assert [one.default for one in changed.fields] == [
        "7000",
        "[1000, 2000]",
        '{"a": 1000}',
        '{"at": 3000, "n": 4}',
        "null",
        "5",
    ]
    assert changed.fields[0].type == US
    assert changed.fields[3].type.fields[0].type == US
    assert in_microseconds(changed) == changed


def test_a_registry_is_asked_with_what_a_provider_gives_and_no_secret_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, dict[str, Any]]] = []

    class Registry:
        def __init__(self, url: str, **arguments: Any) -> None:
            made.append((url, arguments))

        def learn(self, topic: str | None) -> SchemaSet:
            return SchemaSet.from_json(SAVED.read_bytes())

    monkeypatch.setattr("segreader.typed.registry.SchemaRegistry", Registry)
    monkeypatch.setenv("LAKE_AUTH", "me:hunter2")
    monkeypatch.setenv("LAKE_CA_FILE", "/ca.pem")
    monkeypatch.setattr("segreader.spark.credentials.call_provider", lambda *what: {"token": "hunter2"})
    options = learnt(valueSchema="https://registry:8081", schemaRegistryCredentials="env:LAKE")
    learnt(valueSchema="https://registry:8081", schemaRegistryCredentials="somewhere:secrets")

    (_, by_variables), (url, by_provider) = made
    assert (url, by_provider) == ("https://registry:8081", {"token": "hunter2"})
    assert by_variables == {"auth": by_variables["auth"], "ca_file": "/ca.pem"}
    assert isinstance(by_variables["auth"], Secret)
    assert by_variables["auth"].reveal() == "me:hunter2"
    assert b"hunter2" not in pickle.dumps(SegmentReader(options, ("value",)))
    monkeypatch.setattr("segreader.spark.credentials.call_provider", lambda *what: {"sasl.password": "hunter2"})
    with pytest.raises(OptionError, match="gives no arguments of a registry") as caught:
        learnt(valueSchema="https://registry:8081", schemaRegistryCredentials="somewhere:secrets")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(OptionError, match="schemaRegistryCredentials=env:NOWHERE finds no variable"):
        learnt(valueSchema="https://registry:8081", schemaRegistryCredentials="env:NOWHERE")


def test_values_from_brokers_are_decoded_as_those_from_the_store(tmp_path: Path) -> None:
    schema = tmp_path / "long.avsc"
    schema.write_text('"long"')
    log = tiered_log(tmp_path, TOPIC, segments(), uploaded=2, local_from=1)
    with served_cluster({TOPIC: {0: log}}) as cluster:
        place = {"kafka.bootstrap.servers": cluster.bootstrap, "location": str(tmp_path), "subscribe": TOPIC}
        read = SegmentSource(place | {"valueSchema": str(schema)})
        found = rows(read.reader(read.schema()))
        this_worker().clusters._drop(cluster.bootstrap)
    assert [row["offset"] for row in found] == COMMITTED
    assert {row["value"] for row in found} == {59}  # "v" as Avro's number


def test_a_read_without_schemas_is_as_it_was() -> None:
    options = parse_options({"location": "/data", "subscribe": "orders"})
    assert with_schemas(options) is options
    assert spark_schema(include_headers=True).names[:2] == ["key", "value"]
    assert project(struct(value="binary")) == ("value",)
    assert arrow_schema(("value",)).field("value").type == pa.binary()


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_spark_has_the_rows_of_a_batch_and_of_a_stream_by_type(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)

    def frame(stream: bool = False, schema: str | None = None, **options: str) -> DataFrame:
        reader = (spark.readStream if stream else spark.read).format("segreader").options(**given(**options))
        return (reader.schema(schema) if schema else reader).load()

    whole = frame(keySchema=str(SAVED)).orderBy("partition", "offset")
    found = whole.select("key.id", "value.total", "value.status", "value.items.price", "value.placed_at").collect()
    true = truth("orders-avro")
    assert [row["total"] for row in found] == [one.value and one.value["total"] for one in true]
    assert [row["id"] for row in found] == [one.key["id"] for one in true]
    assert [row["price"] for row in found] == [
        one.value and [item["price"] for item in one.value["items"]] for one in true
    ]
    assert whole.where("value.status = 'PAID'").count() == sum(
        one.value is not None and one.value["status"] == "PAID" for one in true
    )

    pruned = frame(schema="value struct<total:decimal(10,2)>, offset bigint")
    assert pruned.columns == ["value", "offset"]
    totals = sum((one.value["total"] for one in true if one.value is not None), Decimal(0))
    assert pruned.selectExpr("sum(value.total)").first()[0] == totals  # type: ignore[index]

    for number in range(2):  # the second run is a restart
        query = (
            frame(stream=True, valueFields="id,total")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
        written = spark.read.parquet(str(tmp_path / "out"))
        assert written.count() == len(true), number
        assert written.schema["value"].dataType.simpleString() == "struct<id:bigint,total:decimal(10,2)>"
        assert written.selectExpr("sum(value.total)").first()[0] == totals  # type: ignore[index]

    every = spark.createDataFrame(
        [], StructType([StructField(str(at), data_type(spark_form(one[0]))) for at, one in enumerate(TYPES)])
    )
    every.write.parquet(str(tmp_path / "every"))  # each type can be written
