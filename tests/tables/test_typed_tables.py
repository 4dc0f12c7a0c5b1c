"""Typed topics as tables of DuckDB, Polars and pyarrow."""

from __future__ import annotations

import pickle

import duckdb
import polars
import pyarrow.compute as pc
from typed_orders import REMOTE, SAVED, truth

import segreader.duckdb
import segreader.polars
from segreader.tables.dataset import open_dataset

VALUES = [one.value for one in truth("orders-avro") if one.value is not None]
OPEN = sorted(value["id"] for value in VALUES if value["status"] == "OPEN")


def test_duckdb_sees_structs_lists_and_maps() -> None:
    with duckdb.connect() as connection:
        segreader.duckdb.register(connection, "orders", REMOTE, topic="orders-avro", value=SAVED)
        query = "select value.id, value.labels['label-0'], len(value.items) from orders where value.id is not null"
        found = sorted(connection.sql(query).fetchall())

    assert found == sorted((one["id"], one["labels"].get("label-0"), len(one["items"])) for one in VALUES)


def test_duckdb_filters_by_an_enum() -> None:
    with duckdb.connect() as connection:
        segreader.duckdb.register(connection, "orders", REMOTE, topic="orders-avro", value=SAVED)
        found = connection.sql("select value.id from orders where value.status = 'OPEN' order by 1").fetchall()

    assert [id for (id,) in found] == OPEN


def test_a_view_of_some_fields_has_no_others() -> None:
    with duckdb.connect() as connection:
        columns = ("topic", "value.id", "value.status")
        segreader.duckdb.register(connection, "orders", REMOTE, topic="orders-avro", value=SAVED, columns=columns)
        shown = connection.sql("select value from orders where value is not null limit 1").fetchall()

    assert list(shown[0][0]) == ["id", "status"]


def test_polars_filters_by_fields() -> None:
    frame = segreader.polars.scan(REMOTE, topic="orders-avro", value=SAVED, columns=["value.id", "value.status"])
    status = polars.col("value").struct.field("status")
    found = frame.filter(status == "OPEN").select(polars.col("value").struct.field("id")).collect()

    assert sorted(found["id"].to_list()) == OPEN


def test_pyarrow_filters_by_fields() -> None:
    dataset = open_dataset(REMOTE, topic="orders-avro", value=SAVED)
    with_id = dataset.to_table(columns={"id": pc.field("value", "id")}, filter=pc.field("value", "id") > 0)

    assert sorted(with_id["id"].to_pylist()) == sorted(value["id"] for value in VALUES if value["id"] > 0)


def test_fragments_decode_in_another_process_without_asking_for_schemas() -> None:
    dataset = open_dataset(REMOTE, topic="orders-avro", value=SAVED, columns=["value.id"])
    parts = [pickle.loads(pickle.dumps(part)) for part in dataset.get_fragments()]
    rows = [value for part in parts for value in part.to_table().column("value").to_pylist()]

    assert sorted(value["id"] for value in rows if value is not None) == sorted(value["id"] for value in VALUES)
