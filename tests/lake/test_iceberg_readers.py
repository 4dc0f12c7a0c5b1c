"""Iceberg tables as other readers see them: pyiceberg, Polars, DuckDB, Spark; in a directory and in a bucket."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from duckdb_lake import DuckDB
from iceberg_lake import FIRST_US, ending, filled, offsets_in, opened, records, sql_catalog, written
from kafka_kit.jars import fetch_jars
from lake_targets import Target
from servers.pool import ServerPool, skip_or_fail
from servers.process import NotAvailableError, free_port, running
from servers.s3 import REGION, S3Server
from typed_orders import REMOTE, SAVED, truth

from segreader.backfill.lake.iceberg import IcebergTable, open_iceberg
from segreader.backfill.lake.table import TableEnd
from segreader.backfill.output import SCHEMA, parse_partition_by
from segreader.errors import AccessDeniedError, ConcurrentWriteError, StorageError
from spark_jobs.backfill import main

ROOT = Path(__file__).parents[2]
SPARK = "4.0.0"
BY = "day(timestamp), bucket(4, key)"
QUERY = """
import json, sys
from pyspark.sql import SparkSession

jars, metadata = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.driver.memory", "1g")
    .config("spark.ui.enabled", "false").getOrCreate()
)
table = spark.read.format("iceberg").load(metadata)
table.createOrReplaceTempView("orders")
rows = spark.sql("SELECT partition, offset, hex(key), hex(value), headers[0].key FROM orders ORDER BY offset")
some = spark.sql("SELECT count(*) FROM orders WHERE timestamp >= '2023-11-15T00:00:00Z' AND key = X'6B65792037303030'")
types = {field.name: field.dataType.simpleString() for field in table.schema}
print("TOLD" + json.dumps([[list(row) for row in rows.collect()], some.collect()[0][0], types]))
spark.stop()
"""


def in_bucket(root: Path, server: S3Server) -> dict[str, str]:
    """Properties of a catalog in a directory, with its tables in a bucket."""
    return sql_catalog(root) | {
        "warehouse": f"s3://{server.bucket}/{uuid.uuid4().hex}",
        "s3.endpoint": server.endpoint,
        "s3.access-key-id": server.key,
        "s3.secret-access-key": server.secret,
        "s3.region": REGION,
    }


def latest(table: IcebergTable) -> str:
    return table._load().metadata_location


def test_pyiceberg_and_polars_read_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import polars as pl

    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # it warns where its own is not installed
    table = opened(tmp_path)
    filled(table, [4000, 8000], partition_by=BY)
    want = pa.Table.from_batches([records(0, 8000)])
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    for _ in range(2):
        theirs = table._load().scan().to_arrow().sort_by("offset")
        assert theirs.select(columns).cast(want.select(columns).schema).equals(want.select(columns))
        frame = pl.scan_iceberg(latest(table)).sort("offset").collect()
        assert frame["value"].to_list() == want.column("value").to_pylist()
        assert frame["headers"].to_list() == want.column("headers").to_pylist()
        late = pl.scan_iceberg(latest(table)).filter(pl.col("offset") >= 7990).select("offset").collect()
        assert sorted(late["offset"].to_list()) == list(range(7990, 8000))
        table.compact(1 << 20)


def plain(location: str) -> str:
    """As DuckDB takes it: files by their paths."""
    return location.removeprefix("file://")


def of_duckdb(duckdb: DuckDB, metadata: str, where: str = "true", *values: Any) -> pa.Table:
    """The records as DuckDB reads them, in the order of their offsets."""
    columns = ", ".join(f'"{name}"' for name in SCHEMA.names)
    query = f'SELECT {columns} FROM iceberg_scan(?) WHERE {where} ORDER BY "offset"'
    rows = duckdb.rows(query, plain(metadata), *values)
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


@pytest.mark.parametrize("partition_by", ["", "topic, partition", "day(timestamp)", "hour(timestamp), topic", BY])
def test_duckdb_reads_each_record_and_finds_it_by_its_partition(
    tmp_path: Path, partition_by: str, duckdb: DuckDB
) -> None:
    table = opened(tmp_path)
    filled(table, [4000, 8000], partition_by=partition_by)
    midnight, all_of_them = datetime(2023, 11, 15, tzinfo=UTC), pa.Table.from_batches([records(0, 8000)])
    late = (midnight - datetime.fromtimestamp(FIRST_US // 1_000_000, UTC)) // timedelta(seconds=1)
    for _ in range(2):
        metadata = latest(table)
        assert of_duckdb(duckdb, metadata).equals(all_of_them)
        assert of_duckdb(duckdb, metadata, '"timestamp" >= ?', midnight).equals(all_of_them.slice(late))
        assert of_duckdb(duckdb, metadata, '"timestamp" < ?', midnight).equals(all_of_them.slice(0, late))
        assert of_duckdb(duckdb, metadata, "key = ?", b"key 7000").equals(all_of_them.slice(7000, 1))
        assert of_duckdb(duckdb, metadata, "topic = ? AND partition = 0", "orders").equals(all_of_them)
        assert of_duckdb(duckdb, metadata, "topic = ? OR partition = 1", "other").num_rows == 0
        assert of_duckdb(duckdb, metadata, '"offset" >= ?', 7990).equals(all_of_them.slice(7990))
        table.compact(1 << 20)


def test_duckdb_reads_values_that_got_more_fields(tmp_path: Path, duckdb: DuckDB) -> None:
    target = Target("iceberg", tmp_path / "target")
    where = ["--location", str(REMOTE), "--topic", "orders-avro", "--engine", "local", "--processes", "1"]
    few, more = "id,shipping.street", "id,status,shipping.street,shipping.city,items.sku"
    one = [*where, *target.flags, "--schemas", str(SAVED)]
    assert main([*one, "--value-fields", few, "--offsets", ":30"]) == 0
    assert main([*one, "--value-fields", more, "--continue"]) == 0

    wanted = {}
    for record in truth("orders-avro"):
        if (value := record.value) is not None:
            is_first = record.offset < 30
            shipping = value["shipping"] and {
                "street": value["shipping"]["street"],
                "city": None if is_first else value["shipping"]["city"],
            }
            items = None if is_first else [{"sku": item["sku"]} for item in value["items"]]
            status = None if is_first else value["status"]
            value = {"id": value["id"], "shipping": shipping, "status": status, "items": items}
        wanted[record.partition, record.offset] = value
    table = open_iceberg("db.records", "default", target.catalog_options)
    for _ in range(2):
        rows = duckdb.rows('SELECT partition, "offset", value FROM iceberg_scan(?)', plain(latest(table)))
        assert len(rows) == len(wanted)
        assert {(partition, offset): value for partition, offset, value in rows} == wanted
        table.compact(1 << 20)


@pytest.mark.xdist_group("servers")
def test_duckdb_reads_a_table_in_a_bucket(tmp_path: Path, servers: ServerPool, duckdb: DuckDB) -> None:
    server = servers.get("moto")
    server.upload({})
    duckdb.may_read(server)
    table = open_iceberg("db.orders", "lake", in_bucket(tmp_path, server))
    for stops in ([100, 200], [300]):
        filled(table, stops, partition_by=BY, storage_options=server.storage_options)
        metadata = latest(table)
        assert metadata.startswith("s3://")
        assert of_duckdb(duckdb, metadata).equals(pa.Table.from_batches([records(0, stops[-1])]))
        table.compact(1 << 20)


@pytest.mark.spark
@pytest.mark.xdist_group("spark-jobs")
def test_spark_reads_the_records(tmp_path: Path) -> None:
    if pyspark.__version__ != SPARK:
        pytest.skip(f"Iceberg is fetched for Spark {SPARK}, this is {pyspark.__version__}")
    try:
        jars = ",".join(map(str, fetch_jars(ROOT / "tests" / "support" / "table_formats.xml").glob("*.jar")))
    except NotAvailableError as error:
        skip_or_fail("maven", error.message)
    table = opened(tmp_path)
    filled(table, [100, 8000], partition_by=BY)
    table.compact(1 << 20)
    filled(table, [8010], partition_by=BY)
    line = [sys.executable, "-c", QUERY, jars, latest(table)]
    done = subprocess.run(line, cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    rows, some, types = json.loads(done.stdout.partition("TOLD")[2])

    want = records(0, 8010).to_pylist()
    assert rows == [
        [
            one["partition"],
            one["offset"],
            one["key"].hex().upper(),
            None if one["value"] is None else one["value"].hex().upper(),
            one["headers"][0]["key"] if one["headers"] else None,
        ]
        for one in want
    ]
    assert some == 1
    assert types["timestamp"] == "timestamp"
    assert types["headers"] == "array<struct<key:string,value:binary>>"


@pytest.mark.xdist_group("servers")
def test_a_table_in_a_bucket_takes_commits_and_is_compacted(tmp_path: Path, servers: ServerPool) -> None:
    server = servers.get("moto")
    server.upload({})
    options = in_bucket(tmp_path, server)
    one, other = (open_iceberg("db.orders", "lake", options) for _ in range(2))
    ids = one.prepare(SCHEMA, parse_partition_by(BY))

    def files(start: int, stop: int) -> Any:
        return written(one, ids, start, stop, partition_by=BY, storage_options=server.storage_options)

    one.commit(files(0, 100), None, ending(100))
    other.commit(files(100, 200), ending(100), ending(200))
    with pytest.raises(ConcurrentWriteError):
        one.commit(files(100, 300), ending(100), ending(300))
    assert one.location.startswith("s3://")
    assert all(name.startswith("data/topic=orders/") for name in one.files())
    assert one.compact(1 << 20).files_before == 8
    assert offsets_in(one) == list(range(200))

    for wrong, kind in (({"s3.endpoint": "http://127.0.0.1:1"}, StorageError),):
        with pytest.raises(kind) as caught:
            open_iceberg("db.orders", "lake", options | wrong).end()
        assert not isinstance(caught.value, AccessDeniedError)
        assert server.secret not in str(caught.value)


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Properties of Iceberg's own REST catalog, with its tables in a directory."""
    java = shutil.which("java")
    if java is None:
        skip_or_fail("maven", "Iceberg's REST catalog needs Java")
    try:
        jars = fetch_jars(ROOT / "tests" / "support" / "iceberg_rest.xml")
    except NotAvailableError as error:
        skip_or_fail("maven", error.message)
    root, port = tmp_path_factory.mktemp("rest"), free_port()
    settings = {
        "CATALOG_URI": f"jdbc:sqlite:{root}/rest.db",
        "CATALOG_WAREHOUSE": f"file://{root}/lake",
        "CATALOG_REST_PORT": str(port),
    }
    command = [java, "-Xmx256m", "-cp", f"{jars}/*", "org.apache.iceberg.rest.RESTCatalogServer"]
    with running(command, root / "rest.log", f"http://127.0.0.1:{port}/v1/config", env=os.environ | settings):
        yield {"uri": f"http://127.0.0.1:{port}"}


@pytest.mark.xdist_group("iceberg-rest")
def test_a_rest_catalog_lets_one_of_many_writers_win_each_time(rest: dict[str, str]) -> None:
    names = [open_iceberg("db.orders", "rest", rest) for _ in range(4)]
    ids = names[0].prepare(SCHEMA, ())
    start = None
    for stop in (10, 20, 30):
        begin = 0 if start is None else start.offsets["orders"]["0"]
        files = [written(one, ids, begin, stop) for one in names]

        def commit(number: int, start: TableEnd | None = start, stop: int = stop, files: Any = files) -> bool:
            try:
                names[number].commit(files[number], start, ending(stop))
            except ConcurrentWriteError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(commit, range(4))) == 1
        start = names[0].end()
        assert start is not None
        assert start.offsets == {"orders": {"0": stop}}
    assert offsets_in(names[1]) == list(range(30))
    assert names[2].compact(1 << 20).files_before == 3
    assert offsets_in(names[3]) == list(range(30))


@pytest.mark.xdist_group("iceberg-rest")
def test_a_rest_catalog_that_is_not_there_is_told() -> None:
    with pytest.raises(StorageError, match=r"db\.orders") as caught:
        open_iceberg("db.orders", "rest", {"uri": f"http://user:canary@127.0.0.1:{free_port()}"}).end()
    assert "canary" not in str(caught.value)
