"""Typed values into tables by runs that go on: new fields are new columns, and what does not fit is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from backfill_runs import files_of
from deltalake import DeltaTable
from lake_targets import Target
from pyiceberg.catalog import load_catalog
from typed_orders import REMOTE, SAVED, truth

from segreader import lake
from segreader.errors import OptionError, UndecodableValueError
from spark_jobs.backfill import main
from spark_jobs.verify import main as verify

TABLES = ("delta", "iceberg")
TOPIC = "orders-avro"
FEW, MORE = "id,shipping.street", "id,status,shipping.street,shipping.city,items.sku"


def _run(target: Target, *more: str, topic: str = TOPIC) -> int:
    where = ["--location", str(REMOTE), "--topic", topic, "--engine", "local", "--processes", "1"]
    return main([*where, *target.flags, *more])


def _typed(target: Target, *more: str, topic: str = TOPIC) -> int:
    return _run(target, "--schemas", str(SAVED), *more, topic=topic)


def _files(target: Target) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in target.place.rglob("*") if path.is_file()}


@pytest.fixture(params=TABLES)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return Target(request.param, tmp_path / "target")


def test_fields_that_a_later_run_asks_for_are_new_columns_and_earlier_records_have_null(target: Target) -> None:
    assert _typed(target, "--value-fields", FEW, "--offsets", ":30") == 0
    assert _typed(target, "--value-fields", MORE, "--continue") == 0

    require_true(target.read().to_pylist())
    assert verify([*target.flags, "--source"]) == 0


def require_true(rows: list[dict[str, Any]], since: int = 30) -> None:
    """Every record of the topic once, with few fields below an offset of each partition and with more from there on."""
    values = {(row["partition"], row["offset"]): row["value"] for row in rows}
    wanted = {(one.partition, one.offset): one.value for one in truth(TOPIC)}
    assert values.keys() == wanted.keys()
    assert len(rows) == len(values)
    assert any(offset >= since for _, offset in values)
    for (partition, offset), value in values.items():
        true = wanted[partition, offset]
        if true is None:
            assert value is None
            continue
        assert value["id"] == true["id"]
        assert value.get("status") == (None if offset < since else true["status"])
        shipping = value["shipping"]
        if offset < since:
            assert value.get("items") is None
            assert shipping is None or shipping.get("city") is None
        elif true["shipping"] is not None:
            assert shipping["city"] == true["shipping"]["city"]


def test_files_of_a_later_run_may_have_more_fields(tmp_path: Path) -> None:
    """Each file has its own columns; readers that merge them, such as DuckDB by name, have null for earlier records."""
    target = Target("parquet", tmp_path / "target")
    assert _typed(target, "--value-fields", FEW, "--offsets", ":20") == 0
    assert _typed(target, "--value-fields", FEW, "--offsets", ":30", "--continue") == 0
    assert len(target.read()) == 60  # two partitions
    assert _typed(target, "--value-fields", MORE, "--continue") == 0

    require_true([row for path in files_of(target.files) for row in pq.read_table(path).to_pylist()])
    files = str(target.files / "**" / "*.parquet")
    merged = duckdb.read_parquet(files, union_by_name=True).to_arrow_table()
    require_true(merged.to_pylist())
    assert verify([*target.flags, "--source"]) == 0


def test_files_that_no_reader_takes_together_are_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = Target("parquet", tmp_path / "target")
    assert _typed(target, "--value-fields", "id", "--offsets", ":30") == 0
    before = _files(target)

    assert _run(target, "--continue") == 2  # values as bytes
    told = capsys.readouterr().err
    assert "the files of the target have another column key" in told
    assert "found struct there, expected binary here" in told
    assert "Write to another target, or choose fields with --value-fields" in told
    assert _run(target, "--continue", "--dry-run") == 2
    assert _files(target) == before
    assert _typed(target, "--value-fields", "id", "--continue") == 0
    assert len(target.read()) == len(truth(TOPIC))


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["run", "dry-run"])
def test_keys_of_a_type_that_has_no_buckets_are_refused_before_anything_is_written(
    target: Target, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _typed(target, "--partition-by", "bucket(4, key)", *more) == 2
    assert "struct" in capsys.readouterr().err
    assert not target.files.exists()
    assert _typed(target, "--partition-by", "topic") == 0


def _up_to(stop: int) -> dict[str, str]:
    return {"endingOffsets": json.dumps({TOPIC: {"0": stop, "1": stop}})}


@pytest.mark.parametrize(("kind", "is_new"), [("delta", True), ("delta", False), ("iceberg", False)])
def test_append_adds_typed_values_and_the_fields_that_a_later_one_asks_for(
    tmp_path: Path, kind: str, is_new: bool
) -> None:
    target = Target(kind, tmp_path / "target")
    typed = {"schemas": str(SAVED)}
    if not is_new:
        assert _typed(target, "--value-fields", FEW, "--offsets", ":10") == 0

    def table() -> Any:
        if kind == "iceberg":
            return load_catalog("default", **target.catalog_options).load_table("db.records")
        return target.files if is_new else DeltaTable(str(target.files))

    first = lake.append(table(), REMOTE, topic=TOPIC, options=typed | {"valueFields": FEW} | _up_to(30))
    assert first.records == (60 if is_new else 40)
    assert first.offsets == {TOPIC: {"0": 30, "1": 30}}
    with pytest.raises(OptionError, match="columns="):
        lake.append(table(), REMOTE, topic=TOPIC)  # as bytes
    then = lake.append(table(), REMOTE, topic=TOPIC, options=typed | {"valueFields": MORE})
    assert then.records == len(truth(TOPIC)) - 60
    assert lake.append(table(), REMOTE, topic=TOPIC, options=typed | {"valueFields": MORE}).files == 0

    require_true(target.read().to_pylist())
    assert verify([*target.flags, "--source"]) == 0


def test_append_says_what_it_lost_of_values_that_are_not_what_their_schema_says(tmp_path: Path) -> None:
    asked = {"schemas": str(SAVED), "valueFields": "id"}
    with pytest.raises(UndecodableValueError):
        lake.append(tmp_path / "strict", REMOTE, topic="orders-bad", options=asked)

    done = lake.append(tmp_path / "kept", REMOTE, topic="orders-bad", options=asked | {"onUndecodable": "keep"})
    assert done.records == len(truth("orders-bad"))
    assert any("undecodable" in text for text in done.losses)


@pytest.mark.parametrize("topic", [TOPIC, "orders-json"])
def test_a_change_that_the_table_does_not_allow_ends_before_anything_is_written(
    target: Target, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _typed(target, "--value-fields", "id", "--offsets", ":30") == 0
    before = _files(target)

    assert _run(target, "--continue", topic=topic) == 2  # values as bytes
    assert "Write to another table, or choose fields with --value-fields" in capsys.readouterr().err
    assert _run(target, "--continue", "--dry-run", topic=topic) == 2
    assert _files(target) == before


def test_joined_files_have_the_dictionaries_and_statistics_of_those_that_they_replace(target: Target) -> None:
    asked = ("--value-fields", "id,status,shipping.street")
    assert _typed(target, *asked, "--offsets", ":30") == 0
    assert _typed(target, *asked, "--continue") == 0
    before = [_forms(path) for path in files_of(target.files / "data")]
    assert main(["--compact", *target.flags]) == 0

    joined = [path for path in files_of(target.files / "data") if path.name.startswith("joined-")]
    assert len(joined) == 2  # of two partitions
    for path in joined:
        form = _forms(path)
        del form["timestampType"]  # it has statistics now
        assert before[0] | form == before[0]
    there = {(row["partition"], row["offset"]) for row in target.read().to_pylist()}
    assert there == {(one.partition, one.offset) for one in truth(TOPIC)}
    assert verify([*target.flags, "--source"]) == 0


def _forms(path: Path) -> dict[str, tuple[bool, bool]]:
    """Of each column of a file, whether it has a dictionary, and whether statistics."""
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    return {one.path_in_schema: (one.has_dictionary_page, one.is_stats_set) for one in columns}


@pytest.mark.parametrize("how", ["null", "keep"])
def test_values_that_are_not_what_their_schema_says_are_counted_and_the_job_goes_on(
    target: Target, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--on-undecodable", how, "--value-fields", "id")
    assert _typed(target, *flags, topic="orders-bad") == 1
    assert "undecodable" in capsys.readouterr().err
    assert _typed(target, *flags, "--continue", topic="orders-bad") == 0
    assert verify([*target.flags, "--source"]) == 0

    rows = target.read().to_pylist()
    assert len(rows) == len(truth("orders-bad"))
    bad = {(one.partition, one.offset) for one in truth("orders-bad") if one.bad is not None}
    nulls = {(row["partition"], row["offset"]) for row in rows if row["value"] is None}
    assert nulls & bad
    if how == "keep":
        assert {(row["partition"], row["offset"]) for row in rows if row["valueError"] is not None} <= bad
