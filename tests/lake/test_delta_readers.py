"""Tables as their readers have them: Polars, DuckDB and Spark see each record once, by each partition too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from delta_lake import PARTITIONINGS, day_of, end_at, made, split_files
from delta_lake import filled as in_parts
from duckdb_lake import DuckDB
from kafka_kit.jars import fetch_jars
from servers.pool import ServerPool, skip_or_fail
from servers.process import NotAvailableError

from segreader.backfill.lake.delta import DeltaLakeTable, open_delta
from segreader.backfill.output import SCHEMA, parse_partition_by

ROWS = 100
BY = "day(timestamp), bucket(3, key)"
NESTED = pa.struct([("a", pa.int32()), ("items", pa.list_(pa.struct([("price", pa.decimal128(9, 2))])))])
WIDER = pa.struct(
    [
        ("a", pa.int32()),
        ("items", pa.list_(pa.struct([("price", pa.decimal128(9, 2)), ("currency", pa.string())]))),
        ("unsigned", pa.uint32()),
        ("fixed", pa.binary(4)),
        ("colour", pa.dictionary(pa.int32(), pa.string())),
        ("ms", pa.timestamp("ms", "UTC")),
        ("local", pa.timestamp("us")),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)


def filled(place: Path, partition_by: str) -> DeltaLakeTable:
    """A table of two commits, joined or not, of 100 records."""
    table = open_delta(str(place), {})
    table.prepare(SCHEMA, parse_partition_by(partition_by))
    half, end = end_at(ROWS // 2), end_at(ROWS)
    table.commit(split_files(table, made(0, ROWS // 2), partition_by), None, half)
    table.commit(split_files(table, made(ROWS // 2, ROWS), partition_by), half, end)
    return table


def evolved(place: Path) -> DeltaLakeTable:
    """A table whose values have more fields in its second commit than in its first one."""
    table = open_delta(str(place), {})
    at = SCHEMA.get_field_index("value")
    end = None
    for first, kind in ((0, NESTED), (2, WIDER)):
        value = {"a": first, "items": [{"price": 1, "currency": "EUR"}], "unsigned": 2**32 - 1, "fixed": b"abcd"}
        value |= {"colour": "RED", "ms": 1_700_000_000_123, "local": 1_700_000_000_000_000, "tags": [("x", 1)]}
        named = {name: value[name] for name in (one.name for one in kind)}
        batch = made(first, first + 2)
        batch = batch.set_column(at, pa.field("value", kind), pa.array([named, None], kind))
        table.prepare(batch.schema, ())
        following = end_at(first + 2)
        table.commit(split_files(table, batch), end, following)
        end = following
    return table


@pytest.mark.parametrize("is_joined", [False, True], ids=["as it is", "joined"])
@pytest.mark.parametrize("partition_by", PARTITIONINGS)
def test_polars_reads_each_record_and_finds_it_by_its_partition(
    tmp_path: Path, partition_by: str, is_joined: bool
) -> None:
    table = filled(tmp_path / "t", partition_by)
    if is_joined:
        table.compact(1 << 20)
    frame = pl.scan_delta(table.location)

    rows = frame.sort("offset").select(SCHEMA.names).collect().to_arrow().cast(SCHEMA)
    assert rows.equals(pa.Table.from_batches([made(0, ROWS)]))
    names = [field.name for field in table.partition_fields()]
    found = frame.sort("offset").select("offset", *names).collect()
    if "timestamp_day" in names:
        assert found["timestamp_day"].to_list() == [day_of(offset) for offset in range(ROWS)]
    for name in names:
        for value in found[name].unique().to_list():
            same = pl.col(name).eq_missing(pl.lit(value, dtype=found.schema[name]))
            wanted = found.filter(same)["offset"].to_list()
            assert frame.filter(same).sort("offset").collect()["offset"].to_list() == wanted, (name, value)
    some = frame.filter(pl.col("offset") == 77).select("timestamp", "topic").collect()
    assert some.height == 1
    when = some["timestamp"][0]
    assert frame.filter(pl.col("timestamp") == when, pl.col("topic") == "orders").collect().height == 1


def test_polars_reads_values_that_got_more_fields(tmp_path: Path) -> None:
    table = evolved(tmp_path / "t")
    ours = pa.Table.from_batches(list(table.records("orders", 0, 0, 9)))
    theirs = pl.scan_delta(table.location).sort("offset").collect()

    expected = ours.column("value").to_pylist()
    for value in expected:
        if value is not None and value["tags"] is not None:
            value["tags"] = dict(value["tags"])
    assert theirs["value"].to_list() == expected


def of_duckdb(duckdb: DuckDB, table: DeltaLakeTable) -> pa.Table:
    """The records as DuckDB reads them, in the order of their offsets."""
    columns = ", ".join(f'"{name}"' for name in SCHEMA.names)
    rows = duckdb.rows(f'SELECT {columns} FROM delta_scan(?) ORDER BY "offset"', table.location)
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


@pytest.mark.parametrize("partition_by", PARTITIONINGS)
def test_duckdb_reads_each_record_and_finds_it_by_its_partition(
    tmp_path: Path, partition_by: str, duckdb: DuckDB
) -> None:
    table = filled(tmp_path / "t", partition_by)
    names = [field.name for field in table.partition_fields()]
    for _ in range(2):
        assert of_duckdb(duckdb, table).equals(pa.Table.from_batches([made(0, ROWS)]))
        for name in names:
            rows = duckdb.rows(f'SELECT "offset", "{name}" FROM delta_scan(?) ORDER BY 1', table.location)
            if name == "timestamp_day":
                assert rows == [(offset, day_of(offset)) for offset in range(ROWS)]
            for value in {value for _, value in rows}:
                query = f'SELECT "offset" FROM delta_scan(?) WHERE "{name}" IS NOT DISTINCT FROM ? ORDER BY 1'
                wanted = [offset for offset, other in rows if other == value]
                assert duckdb.column(query, table.location, value) == wanted, (name, value)
        point = 'SELECT "offset" FROM delta_scan(?) WHERE "offset" >= 90 AND epoch_us("timestamp") = ?'
        assert duckdb.column(point, table.location, _micros(91)) == [91]
        table.compact(1 << 20)


def test_duckdb_reads_values_that_got_more_fields(tmp_path: Path, duckdb: DuckDB) -> None:
    table = evolved(tmp_path / "t")
    expected = pa.Table.from_batches(list(table.records("orders", 0, 0, 9))).column("value").to_pylist()
    for value in expected:
        if value is not None and value["tags"] is not None:
            value["tags"] = dict(value["tags"])
    assert duckdb.column('SELECT value FROM delta_scan(?) ORDER BY "offset"', table.location) == expected
    query = "SELECT \"offset\" FROM delta_scan(?) WHERE value.items[1].currency = 'EUR'"
    assert duckdb.column(query, table.location) == [2]


@pytest.mark.xdist_group("servers")
def test_duckdb_reads_a_table_in_a_bucket(servers: ServerPool, duckdb: DuckDB) -> None:
    server = servers.get("moto")
    server.upload({})
    duckdb.may_read(server)
    table = open_delta(f"s3://{server.bucket}/{uuid.uuid4().hex}", server.storage_options)
    end = in_parts(table, 50, ROWS, partition_by=BY, storage_options=server.storage_options)
    assert of_duckdb(duckdb, table).equals(pa.Table.from_batches([made(0, ROWS)]))
    table.compact(1 << 20)
    in_parts(table, ROWS + 20, partition_by=BY, start=end, storage_options=server.storage_options)
    assert of_duckdb(duckdb, table).equals(pa.Table.from_batches([made(0, ROWS + 20)]))


DRIVER = """
import json, sys
from pyspark.sql import SparkSession
jars, tables = sys.argv[1], json.loads(sys.argv[2])
spark = (
    SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.session.timeZone", "America/New_York").config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
told = {}
for name, queries in tables.items():
    told[name] = [[list(row) for row in spark.sql(query).collect()] for query in queries]
print("TOLD" + json.dumps(told, default=str))
"""


def spark_told(tables: dict[str, list[str]], place: Path) -> dict[str, list[list[Any]]]:
    """What Spark with Delta answers to queries, by the name of the table."""
    pyspark = pytest.importorskip("pyspark")
    if not pyspark.__version__.startswith("4.0."):
        pytest.skip(f"Delta is fetched for Spark 4.0, this is {pyspark.__version__}: make test-oldest")
    try:
        jars = fetch_jars(Path(__file__).parents[1] / "support" / "table_formats.xml")
    except NotAvailableError as error:
        skip_or_fail("maven", error.message)
    found = ",".join(str(jar) for jar in sorted(jars.glob("delta*.jar")))
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    line = [sys.executable, "-c", DRIVER, found, json.dumps(tables)]
    done = subprocess.run(line, cwd=place, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, list[list[Any]]] = json.loads(done.stdout.partition("TOLD")[2])
    return told


@pytest.mark.spark
@pytest.mark.xdist_group("spark-jobs")
def test_spark_reads_each_record_and_finds_it_by_its_partition(tmp_path: Path) -> None:
    tables: dict[str, list[str]] = {}
    for number, partition_by in enumerate(PARTITIONINGS):
        table = filled(tmp_path / f"t{number}", partition_by)
        if number % 2:
            table.compact(1 << 20)
        source = f"delta.`{table.location}`"
        tables[partition_by] = [
            "SELECT offset, topic, partition, hex(key), hex(value), unix_micros(timestamp), timestampType, "
            f"size(headers) FROM {source} ORDER BY offset",
            f"SELECT offset FROM {source} WHERE offset >= 90 AND timestamp = timestamp_micros({_micros(91)})",
        ]
        if "day" in partition_by:
            tables[partition_by].append(f"SELECT count(*) FROM {source} WHERE timestamp_day = DATE'2023-11-16'")
        if "hour" in partition_by:
            tables[partition_by].append(f"SELECT offset FROM {source} WHERE timestamp_hour = '2023-11-15-00'")
        if "bucket" in partition_by:
            tables[partition_by].append(f"SELECT count(*) FROM {source} WHERE key_bucket IS NULL")
    wide = f"delta.`{evolved(tmp_path / 'wide').location}`"
    tables["wide"] = [
        "SELECT value.a, value.items[0].price, value.items[0].currency, value.unsigned, decode(value.fixed, 'UTF-8'), "
        f"value.colour, unix_millis(value.ms), value.local, value.tags['x'] FROM {wide} ORDER BY offset"
    ]
    told = spark_told(tables, tmp_path)

    records = made(0, ROWS).to_pylist()
    truth = [
        [
            one["offset"],
            one["topic"],
            one["partition"],
            None if one["key"] is None else one["key"].hex().upper(),
            None if one["value"] is None else one["value"].hex().upper(),
            _micros(one["offset"]),
            one["timestampType"],
            None if one["headers"] is None else 2,
        ]
        for one in records
    ]
    on_day = sum(day_of(one) == date(2023, 11, 16) for one in range(ROWS))
    for partition_by in PARTITIONINGS:
        rows, point, *others = told[partition_by]
        assert rows == truth, partition_by
        assert point == [[91]], partition_by
        expected = [[[on_day]]] if "day" in partition_by else []
        expected += [[[2]]] if "hour" in partition_by else []
        expected += [[[ROWS // 5]]] if "bucket" in partition_by else []
        assert others == expected, partition_by
    assert told["wide"][0] == [
        [0, "1.00", None, None, None, None, None, None, None],
        [None] * 9,
        [2, "1.00", "EUR", 2**32 - 1, "abcd", "RED", 1_700_000_000_123, "2023-11-14 22:13:20", 1],
        [None] * 9,
    ]


def _micros(offset: int) -> int:
    value: int = made(offset, offset + 1).column("timestamp").cast(pa.int64())[0].as_py()
    return value
