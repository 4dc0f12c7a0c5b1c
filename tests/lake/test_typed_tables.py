"""Typed values into tables by runs that go on: new fields are new columns, and what does not fit is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from lake_targets import Target
from typed_orders import REMOTE, SAVED, truth

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

    rows = {(row["partition"], row["offset"]): row["value"] for row in target.read().to_pylist()}
    wanted = {(one.partition, one.offset): one.value for one in truth(TOPIC)}
    assert rows.keys() == wanted.keys()
    assert any(offset >= 30 for _, offset in rows)
    for (partition, offset), value in rows.items():
        true = wanted[partition, offset]
        if true is None:
            assert value is None
            continue
        assert value["id"] == true["id"]
        assert value["status"] == (None if offset < 30 else true["status"])
        if offset < 30:
            assert value["items"] is None
            assert value["shipping"] is None or value["shipping"]["city"] is None
        elif true["shipping"] is not None:
            assert value["shipping"]["city"] == true["shipping"]["city"]
    assert verify([*target.flags, "--source"]) == 0


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
