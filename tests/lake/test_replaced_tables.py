"""Targets that somebody drops, makes again, alters or clears between two runs: each record once, or an error."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from growing_bucket import GrowingBucket
from lake_targets import Key, Target

from segreader import scan
from segreader.backfill import job as job_module
from segreader.backfill.job_plan import JobPlan, make_plan
from segreader.backfill.lake.iceberg import IcebergTable
from segreader.storage.target.local import LocalTarget
from spark_jobs.backfill import main
from spark_jobs.verify import main as verify

TOPIC = "multi"


@pytest.fixture
def bucket(tmp_path: Path) -> GrowingBucket:
    return GrowingBucket(tmp_path / "bucket", TOPIC)


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return Target(request.param, tmp_path / "target")


@pytest.fixture
def iceberg(tmp_path: Path) -> Target:
    return Target("iceberg", tmp_path / "target")


@pytest.fixture
def files(tmp_path: Path) -> Target:
    return Target("parquet", tmp_path / "target")


def run(bucket: GrowingBucket, target: Target, *more: str) -> int:
    arguments = ["--location", str(bucket.root), "--topic", TOPIC, "--engine", "local", "--processes", "1"]
    return main([*arguments, *target.flags, *more])


def wanted(bucket: GrowingBucket) -> Counter[Key]:
    rows = scan(str(bucket.root), topic=TOPIC, columns=["topic", "partition", "offset"]).to_arrow().to_pylist()
    return Counter((row["topic"], row["partition"], row["offset"]) for row in rows)


def values(rows: list[dict[str, Any]]) -> dict[tuple[int, int], tuple[str, bytes | None, bytes | None]]:
    return {(row["partition"], row["offset"]): (row["topic"], row["key"], row["value"]) for row in rows}


def catalog_of(target: Target) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("default", **target.catalog_options)


def drop(target: Target) -> None:
    """Drop the table as people do; its files and the ledger stay."""
    if target.kind == "iceberg":
        catalog_of(target).drop_table("db.records")
    else:
        shutil.rmtree(target.files / "_delta_log")


def make_otherwise(target: Target) -> None:
    """Make a table of that name by hand: the columns in another order, or partitioned by another one."""
    if target.kind == "iceberg":
        from pyiceberg.schema import Schema

        catalog = catalog_of(target)
        fields = catalog.load_table("db.records").schema().fields
        catalog.drop_table("db.records")
        catalog.create_table("db.records", Schema(*reversed(fields)))
    else:
        from deltalake import DeltaTable

        schema = DeltaTable(str(target.files)).schema()
        shutil.rmtree(target.files / "_delta_log")
        DeltaTable.create(str(target.files), schema, partition_by=["topic"])


@pytest.mark.parametrize("more", [(), ("--continue",), ("--partition-by", "day(timestamp)")])
def test_a_table_that_was_dropped_is_filled_from_the_beginning(
    bucket: GrowingBucket, table: Target, more: Sequence[str]
) -> None:
    bucket.upload()
    assert run(bucket, table) == 0
    bucket.upload()
    assert run(bucket, table, "--continue") == 0
    drop(table)

    assert run(bucket, table, *more) == 0
    assert table.keys() == wanted(bucket)
    assert verify([*table.flags, "--source"]) == 0

    bucket.upload()
    assert run(bucket, table, "--continue") == 0
    assert table.keys() == wanted(bucket)
    assert verify([*table.flags, "--source"]) == 0


def test_records_have_their_values_in_a_table_that_was_made_anew_with_other_columns(
    bucket: GrowingBucket, table: Target
) -> None:
    bucket.upload(2)
    assert run(bucket, table, "--partition-by", "day(timestamp)") == 0
    make_otherwise(table)

    assert run(bucket, table, "--continue") == 0
    expected = scan(str(bucket.root), topic=TOPIC, columns=["topic", "partition", "offset", "key", "value"])
    assert values(table.read().to_pylist()) == values(expected.to_arrow().to_pylist())
    assert table.keys() == wanted(bucket)


def test_a_round_is_planned_anew_when_the_table_is_partitioned_otherwise_than_its_files(
    bucket: GrowingBucket, iceberg: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.upload(4)
    by_day = ["--partition-by", "day(timestamp)", "--commit-bytes", "1", "--split-bytes", "20000", "--continue"]
    with monkeypatch.context() as patch:
        commit, made = IcebergTable.commit, []

        def third_fails(*arguments: Any) -> None:
            made.append(arguments)
            if len(made) == 3:
                raise KeyboardInterrupt
            commit(*arguments)

        patch.setattr(IcebergTable, "commit", third_fails)
        assert run(bucket, iceberg, *by_day) == 130
    assert 0 < len(iceberg.keys()) < len(wanted(bucket))
    with catalog_of(iceberg).load_table("db.records").update_spec() as change:
        change.remove_field("timestamp_day")
        change.add_field("timestamp", "hour", "by_hour")

    run(bucket, iceberg, *by_day[2:])
    found = catalog_of(iceberg).load_table("db.records").scan(row_filter="timestamp >= '2025-01-01T00:00:00+00:00'")
    assert found.to_arrow().num_rows == len(wanted(bucket))
    assert iceberg.keys() == wanted(bucket)


def test_a_table_that_was_renamed_keeps_its_files_when_another_one_takes_its_name(
    bucket: GrowingBucket, iceberg: Target
) -> None:
    bucket.upload(2)
    assert run(bucket, iceberg) == 0
    catalog_of(iceberg).rename_table("db.records", "db.old")

    assert run(bucket, iceberg) == 0
    assert iceberg.keys() == wanted(bucket)
    assert catalog_of(iceberg).load_table("db.old").scan().to_arrow().num_rows == len(wanted(bucket))


def test_a_later_version_of_a_restored_table_keeps_its_files_where_the_ledger_is_lost(
    bucket: GrowingBucket, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    table = Target("delta", tmp_path / "target")
    for _ in range(2):
        bucket.upload()
        assert run(bucket, table, "--continue") == 0
    later = DeltaTable(str(table.files)).version()
    DeltaTable(str(table.files)).restore(later - 1)
    shutil.rmtree(table.files / "_job")

    assert run(bucket, table, "--continue") == 0
    assert table.keys() == wanted(bucket)
    assert DeltaTable(str(table.files), version=later).to_pyarrow_table().num_rows == len(wanted(bucket))


def test_later_rounds_are_verified_where_the_ledger_of_a_table_was_lost(
    bucket: GrowingBucket, table: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.upload()
    assert run(bucket, table, "--continue") == 0
    lost = len(table.keys())
    shutil.rmtree(table.files / "_job")
    bucket.upload()
    assert run(bucket, table, "--continue") == 0
    assert table.keys() == wanted(bucket)

    capsys.readouterr()
    verify([*table.flags, "--source"])
    *findings, total = capsys.readouterr().out.splitlines()
    assert all("of rounds whose ledger is lost: they were not checked" in one for one in findings)
    assert f"in {len(wanted(bucket)) - lost:,} records" in total


@pytest.mark.parametrize("place", ["", "multi", "_job", "_staging"])
def test_no_table_is_made_among_files_of_something_else(
    bucket: GrowingBucket, files: Target, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.upload(2)
    assert run(bucket, files) == 0
    (files.files / "_staging").mkdir(exist_ok=True)
    (files.files / "_staging" / "x").write_bytes(b"x")
    before = sorted(files.place.rglob("*"))

    for directory in (files.files / place, bucket.root, files.place):
        flags = ["--to", "delta", "--target", str(directory)]
        assert main(["--location", str(bucket.root), "--topic", TOPIC, "--engine", "local", *flags]) == 2
        assert "the target holds" in capsys.readouterr().err
    assert sorted(files.place.rglob("*")) == before


@pytest.mark.parametrize("more", [(), ("--force",)])
def test_a_directory_inside_of_another_target_is_not_taken_for_one(
    bucket: GrowingBucket, tmp_path: Path, more: Sequence[str]
) -> None:
    bucket.upload(2)
    for kind, inside in (("delta", "data"), ("parquet", TOPIC)):
        target = Target(kind, tmp_path / kind)
        assert run(bucket, target) == 0
        into = ["--target", str(target.files / inside), "--engine", "local"]
        assert main(["--location", str(bucket.root), "--topic", TOPIC, *into, *more]) == 2
        assert target.keys() == wanted(bucket)


def test_a_killed_force_is_not_taken_for_rounds_that_are_done(
    bucket: GrowingBucket, files: Target, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        bucket.upload()
        assert run(bucket, files, "--continue") == 0
    bucket.upload()
    delete = LocalTarget.delete
    for killed_at in range(5):
        calls: list[object] = []

        def dies(target: LocalTarget, names: Any, calls: list[object] = calls, last: int = killed_at) -> None:
            calls.append(names)
            if len(calls) > last:
                raise KeyboardInterrupt
            delete(target, names)

        with monkeypatch.context() as patch:
            patch.setattr(LocalTarget, "delete", dies)
            assert run(bucket, files, "--force") == 130
        capsys.readouterr()
        assert run(bucket, files, "--continue") == 2
        assert "Run it again with --force" in capsys.readouterr().err
        assert verify(files.flags) == 2

    assert run(bucket, files, "--force") == 0
    assert files.keys() == wanted(bucket)
    bucket.upload()
    assert run(bucket, files, "--continue") == 0
    assert files.keys() == wanted(bucket)


def test_a_finished_job_that_lost_its_entries_has_them_in_its_manifest(bucket: GrowingBucket, files: Target) -> None:
    bucket.upload(2)
    assert run(bucket, files) == 0
    shutil.rmtree(files.files / "_job" / "done")

    assert run(bucket, files) == 0
    assert files.keys() == wanted(bucket)


def test_what_was_staged_and_is_gone_is_written_again(
    bucket: GrowingBucket, files: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    bucket.upload(2)
    with monkeypatch.context() as patch:
        patch.setattr(job_module, "commit", dies)
        assert run(bucket, files) == 130
    shutil.rmtree(files.files / "_staging")

    assert run(bucket, files) == 0
    assert files.keys() == wanted(bucket)
    assert verify([*files.flags, "--source"]) == 0


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_run_that_another_one_with_other_sizes_was_ahead_of_goes_on_behind_it(
    bucket: GrowingBucket, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(kind, tmp_path / "target")
    bucket.upload()
    assert run(bucket, target, "--continue") == 0
    bucket.upload()
    made: list[JobPlan] = []

    def after_another(*arguments: Any, **named: Any) -> JobPlan:
        plan = make_plan(*arguments, **named)
        made.append(plan)
        if len(made) == 1:
            assert run(bucket, target, "--continue", "--split-bytes", "20000") == 0
        return plan

    monkeypatch.setattr(job_module, "make_plan", after_another)
    assert run(bucket, target, "--continue") == 0
    assert target.keys() == wanted(bucket)


@pytest.mark.parametrize("lost", [("_job/plan-000002.json",), ("_job/plan-000002.json", "_manifest-000002.json")])
def test_records_of_a_round_whose_plan_is_lost_are_not_written_again(
    bucket: GrowingBucket, files: Target, lost: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        bucket.upload()
        assert run(bucket, files, "--continue") == 0
    before = files.keys()
    for name in lost:
        (files.files / name).unlink()
    bucket.upload()

    assert run(bucket, files, "--continue") == 2
    assert "files of a round whose plan is lost" in capsys.readouterr().err
    assert files.keys() == before
