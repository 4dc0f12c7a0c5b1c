"""Commits to an Iceberg table: two writers, lost answers, rollbacks, expired snapshots, what is known of files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_lake import ending, filled, offsets_in, opened, records, sql_catalog, written
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.table import Table

from segreader.backfill.lake.iceberg import IcebergTable, open_iceberg
from segreader.backfill.lake.table import TableEnd
from segreader.backfill.output import SCHEMA, parse_partition_by
from segreader.errors import ConcurrentWriteError, ManifestError, ObjectNotFoundError, OptionError, StorageError


def of_pyiceberg(table: IcebergTable) -> Table:
    """The table as pyiceberg has it now."""
    return table._load()


def before_commit(table: IcebergTable, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Have something happen when the table has been looked at and the commit is sent, each time."""
    catalog = table._catalog
    send = catalog.commit_table

    def commit_table(*arguments: Any) -> Any:
        happens()
        return send(*arguments)

    monkeypatch.setattr(catalog, "commit_table", commit_table)


def once(happens: Callable[[], object]) -> Callable[[], None]:
    left = [happens]

    def call() -> None:
        if left:
            left.pop()()

    return call


def test_a_commit_adds_the_records_and_says_where_the_table_ends(tmp_path: Path) -> None:
    table = opened(tmp_path)
    assert not table.exists
    assert table.end() is None
    ids = table.prepare(SCHEMA, ())
    assert table.exists
    assert table.end() is None
    end = TableEnd(
        offsets={"orders": {"0": 100}},
        topic_ids={"orders": "AAAAAAAAAAAAAAAAAAAAAQ"},
        epochs={"orders": {"0": 3}},
        log_ends={"orders": {"0": (120, 4)}},
        commit="c1",
    )
    table.commit(written(table, ids, 0, 100), None, end)

    found = opened(tmp_path).end()
    assert found is not None
    assert found.to_json() == end.to_json()
    got = pa.Table.from_batches(table.records("orders", 0, 0, 1000))
    assert got.schema.equals(SCHEMA)
    assert got.equals(pa.Table.from_batches([records(0, 100)]))
    snapshot = of_pyiceberg(table).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert json.loads(snapshot.summary["segreader.offsets"] or "") == {"orders": {"0": 100}}
    assert of_pyiceberg(table).properties["segreader.commit"] == "c1"


def test_a_table_that_a_caller_holds_takes_commits(tmp_path: Path) -> None:
    end = filled(opened(tmp_path), [10])
    table = IcebergTable.of(of_pyiceberg(opened(tmp_path)))

    assert table.name == "db.orders"
    assert (found := table.end()) is not None
    assert found.offsets == end.offsets
    filled(table, [20])
    assert offsets_in(opened(tmp_path)) == list(range(20))


def test_of_two_writers_at_once_one_wins_and_the_other_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    end = filled(one, [10])
    ids = one.prepare(SCHEMA, ())
    mine, theirs = written(one, ids, 10, 20), written(other, ids, 10, 30)
    before_commit(one, monkeypatch, once(lambda: other.commit(theirs, end, ending(30))))

    with pytest.raises(ConcurrentWriteError, match="orders-0 at 30, expected orders-0 at 10"):
        one.commit(mine, end, ending(20))
    assert offsets_in(one) == list(range(30))
    assert len(of_pyiceberg(one).snapshots()) == 2


def test_a_commit_that_starts_elsewhere_than_the_table_ends_adds_nothing(tmp_path: Path) -> None:
    table = opened(tmp_path)
    filled(table, [10])
    ids = table.prepare(SCHEMA, ())
    files = written(table, ids, 20, 30)
    for start in (None, ending(20), ending(9), ending(10, p1=4)):
        with pytest.raises(ConcurrentWriteError, match="the table does not end where this job left it"):
            table.commit(files, start, ending(30))
    assert len(of_pyiceberg(table).snapshots()) == 1


def test_a_commit_of_somebody_else_that_leaves_the_end_is_committed_upon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(tmp_path)
    end = filled(table, [5, 10])
    ids = table.prepare(SCHEMA, ())
    before_commit(table, monkeypatch, once(lambda: opened(tmp_path).compact(1 << 20)))
    table.commit(written(table, ids, 10, 20), end, ending(20))

    assert offsets_in(table) == list(range(20))
    assert len(list(table.files())) == 2


def test_a_table_that_others_never_leave_alone_ends_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segreader.backfill.lake.iceberg._pause", lambda attempt: None)
    table = opened(tmp_path)
    end = filled(table, [10])
    files = written(table, table.prepare(SCHEMA, ()), 10, 20)
    others: list[int] = []

    def append() -> None:
        of_pyiceberg(opened(tmp_path)).append(pa.Table.from_batches([], SCHEMA))
        others.append(1)

    before_commit(table, monkeypatch, append)
    with pytest.raises(StorageError, match="others committed to the table at each of 10 tries"):
        table.commit(files, end, ending(20))
    assert len(others) == 10
    assert offsets_in(table) == list(range(10))


@pytest.mark.parametrize("error", [ConnectionError("reset"), CommitFailedException("lost answer, tried again")])
def test_a_commit_whose_answer_is_lost_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    table = opened(tmp_path)
    end = filled(table, [10])
    ids = table.prepare(SCHEMA, ())
    send = table._catalog.commit_table

    def commit_table(*arguments: Any) -> Any:
        send(*arguments)
        raise error

    monkeypatch.setattr(table._catalog, "commit_table", commit_table)
    table.commit(written(table, ids, 10, 20), end, ending(20))
    assert offsets_in(table) == list(range(20))


def test_a_commit_that_was_not_made_can_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(tmp_path)
    end = filled(table, [10])
    files = written(table, table.prepare(SCHEMA, ()), 10, 20)

    def fail() -> None:
        raise ConnectionError("http://user:canary@host refuses")

    with monkeypatch.context() as patch:
        before_commit(table, patch, fail)
        with pytest.raises(StorageError, match=r"db\.orders") as caught:
            table.commit(files, end, ending(20))
    assert "canary" not in str(caught.value)
    assert (found := table.end()) is not None
    assert found.offsets == end.offsets
    table.commit(files, end, ending(20))
    assert offsets_in(table) == list(range(20))


def test_a_commit_is_not_repeated_however_often_it_is_asked_for(tmp_path: Path) -> None:
    table = opened(tmp_path)
    first = filled(table, [10])
    files = written(table, table.prepare(SCHEMA, ()), 10, 20)
    end = ending(20)
    table.commit(files, first, end)
    table.commit(files, first, end)
    filled(table, [30])
    table.commit(files, first, end)
    assert offsets_in(table) == list(range(30))


def test_a_commit_without_files_moves_the_end(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.prepare(SCHEMA, ())
    table.commit([], None, ending(5))
    table.commit([], ending(5), ending(8, p1=0))

    assert (found := table.end()) is not None
    assert found.offsets == {"orders": {"0": 8, "1": 0}}
    assert list(table.files()) == []
    assert offsets_in(table) == []


def test_a_table_that_is_rolled_back_ends_where_that_snapshot_did(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.prepare(SCHEMA, ())
    theirs = of_pyiceberg(table)
    theirs.append(pa.Table.from_batches([records(0, 1, topic="other")]))
    filled(table, [10, 20])
    snapshots = [one.snapshot_id for one in of_pyiceberg(table).snapshots()]
    of_pyiceberg(table).manage_snapshots().rollback_to_snapshot(snapshots[1]).commit()

    assert (end := table.end()) is not None
    assert end.offsets == {"orders": {"0": 10}}
    filled(table, [15])
    assert offsets_in(table) == list(range(15))
    of_pyiceberg(table).manage_snapshots().rollback_to_snapshot(snapshots[0]).commit()
    assert table.end() is None


def test_the_end_outlives_the_snapshots_that_said_it(tmp_path: Path) -> None:
    table = opened(tmp_path)
    filled(table, [10, 20])
    ours = [one.snapshot_id for one in of_pyiceberg(table).snapshots()]
    of_pyiceberg(table).append(pa.Table.from_batches([records(0, 1, topic="other")]))
    of_pyiceberg(table).maintenance.expire_snapshots().by_ids(ours).commit()

    assert len(of_pyiceberg(table).snapshots()) == 1
    assert (end := table.end()) is not None
    assert end.offsets == {"orders": {"0": 20}}
    filled(table, [30])
    assert offsets_in(table) == list(range(30))


def test_an_end_that_was_lost_by_rollback_and_expiry_is_not_guessed(tmp_path: Path) -> None:
    table = opened(tmp_path)
    filled(table, [10])
    first = [one.snapshot_id for one in of_pyiceberg(table).snapshots()]
    of_pyiceberg(table).append(pa.Table.from_batches([records(0, 1, topic="other")]))
    snapshot = of_pyiceberg(table).current_snapshot()
    assert snapshot is not None
    filled(table, [20])
    of_pyiceberg(table).manage_snapshots().rollback_to_snapshot(snapshot.snapshot_id).commit()
    of_pyiceberg(table).maintenance.expire_snapshots().by_ids(first).commit()

    with pytest.raises(ManifestError, match="rolled back"):
        table.end()


@pytest.mark.parametrize("partition_by", ["", "topic, partition", "day(timestamp), bucket(4, key)", "hour(timestamp)"])
def test_files_say_what_they_hold_so_that_readers_pass_over_them(tmp_path: Path, partition_by: str) -> None:
    table = opened(tmp_path)
    filled(table, [4000, 8000], partition_by=partition_by)
    theirs = of_pyiceberg(table)
    every = {task.file.file_path: task.file for task in theirs.scan().plan_files()}
    late = {task.file.file_path for task in theirs.scan("offset >= 4000").plan_files()}
    then = {task.file.file_path for task in theirs.scan("timestamp >= '2023-11-15T00:00:00+00:00'").plan_files()}

    assert 0 < len(late) < len(every)
    assert then
    assert theirs.scan("timestamp >= '2023-11-15T00:00:00+00:00'").to_arrow().num_rows == 8000 - 6400
    assert offsets_in(table) == list(range(8000))
    for path, file in every.items():
        footer = pq.read_metadata(path.removeprefix("file://"))
        judge = data_file_statistics_from_parquet_metadata(
            footer, compute_statistics_plan(theirs.schema(), {}), parquet_path_to_id_mapping(theirs.schema())
        ).to_serialized_dict()
        assert file.record_count == judge["record_count"]
        assert list(file.split_offsets or ()) == judge["split_offsets"]
        assert file.column_sizes == judge["column_sizes"]
        for name in ("offset", "timestamp", "topic", "partition"):
            field_id = theirs.schema().find_field(name).field_id
            assert file.lower_bounds[field_id] == judge["lower_bounds"][field_id]
            assert file.upper_bounds[field_id] == judge["upper_bounds"][field_id]
            assert file.null_value_counts[field_id] == 0


def test_manifests_of_many_commits_are_merged_and_lose_nothing(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.prepare(SCHEMA, ())
    with of_pyiceberg(table).transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "3"})
    filled(table, range(10, 130, 10))

    snapshot = of_pyiceberg(table).current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(of_pyiceberg(table).io)) < 5
    assert offsets_in(table) == list(range(120))


def test_ten_thousand_files_are_one_commit(tmp_path: Path) -> None:
    table = opened(tmp_path)
    by = "day(timestamp), bucket(4, key)"
    ids = table.prepare(SCHEMA, parse_partition_by(by))
    one = written(table, ids, 0, 100, partition_by=by)[0]
    files = [
        replace(one, name=f"data/{number}.parquet", first_offset=number, last_offset=number, partition=(number % 90, 1))
        for number in range(10_000)
    ]
    table.commit(files, None, ending(10_000))
    assert len(list(table.files())) == 10_000


def test_a_partition_spec_that_changes_meanwhile_ends_the_commit(tmp_path: Path) -> None:
    table = opened(tmp_path)
    end = filled(table, [10])
    files = written(table, table.prepare(SCHEMA, ()), 10, 20)
    with of_pyiceberg(table).update_spec() as update:
        update.add_identity("topic")

    with pytest.raises(ConcurrentWriteError, match="partitioned in another way"):
        table.commit(files, end, ending(20))
    assert table.partition_fields() == parse_partition_by("topic")
    assert offsets_in(table) == list(range(10))


def test_a_table_that_is_gone_is_told(tmp_path: Path) -> None:
    table = opened(tmp_path)
    end = filled(table, [10])
    table._catalog.drop_table("db.orders")
    assert not table.exists
    assert table.end() is None
    for ask in (
        lambda: table.commit([], end, ending(20)),
        lambda: list(table.files()),
        lambda: list(table.records("orders", 0, 0, 1)),
        lambda: table.compact(1 << 20),
    ):
        with pytest.raises(ObjectNotFoundError, match=r"db\.orders: the catalog has no such table"):
            ask()


def test_without_pyiceberg_it_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] == "pyiceberg"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    with pytest.raises(OptionError, match=r"pip install 'pyiceberg\["):
        open_iceberg("db.orders", "lake", sql_catalog(tmp_path))


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("orders", {}, "db.orders"),
        ("db.", {}, "db.orders"),
        ("db.orders", {}, "the catalog lake is not known"),
        ("db.orders", {"uri": "ftp://user:canary@host/"}, "the catalog lake is not known"),
        ("db.orders", {"type": "glue", "uri": "canary"}, ""),
        ("db.orders", {"type": "hive", "uri": "thrift://canary@host"}, ""),
    ],
)
def test_a_catalog_that_cannot_be_opened_is_told_without_its_secrets(
    name: str, options: dict[str, str], told: str
) -> None:
    try:
        table = open_iceberg(name, "lake", options)
        table.end()
    except (OptionError, StorageError) as error:
        assert told in str(error)
        assert "canary" not in str(error)
    else:
        pytest.fail("opened")


def test_a_catalog_that_names_no_place_for_new_tables_is_told_what_it_lacks(tmp_path: Path) -> None:
    table = open_iceberg("db.orders", "lake", {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"})
    with pytest.raises(OptionError, match=r"db\.orders: the catalog has no warehouse.*warehouse"):
        table.prepare(SCHEMA, ())


def test_a_catalog_whose_database_cannot_be_used_is_told_as_its_own_failure(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"the catalog's database cannot be used; found unable to open database"):
        open_iceberg("db.orders", "lake", {"type": "sql", "uri": f"sqlite:///{tmp_path}/none/catalog.db"})


def test_the_statement_of_a_failed_query_of_the_catalog_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"no database" * 100)
    with pytest.raises(StorageError, match="file is not a database") as raised:
        open_iceberg("db.orders", "lake", {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}).end()
    assert "SELECT" not in str(raised.value).upper()


def test_a_catalog_of_aws_without_a_region_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(OptionError, match=r"no region of AWS is set.*glue\.region"):
        open_iceberg("db.orders", "lake", {"type": "glue"}).end()


def test_a_store_that_refuses_writes_leaves_the_table_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(tmp_path)
    end = filled(table, [10])
    files = written(table, table.prepare(SCHEMA, ()), 10, 20)
    before = sorted(tmp_path.rglob("*.avro"))

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pyiceberg.table.update.snapshot.write_manifest_list", full)
        with pytest.raises(StorageError, match="No space left on device"):
            table.commit(files, end, ending(20))
    assert sorted(tmp_path.rglob("*.avro")) == before
    table.commit(files, end, ending(20))
    assert offsets_in(table) == list(range(20))
