"""Commits to a Delta table: one of two writers, lost answers, restores, logs that were cleaned up."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from delta_lake import end_at, filled, log_of, made, read, rewrite_commit, split_files
from deltalake.exceptions import CommitFailedError

from segreader.backfill.lake import delta_store
from segreader.backfill.lake.delta import DeltaLakeTable, open_delta
from segreader.backfill.lake.table import TableEnd
from segreader.backfill.output import SCHEMA
from segreader.errors import ConcurrentWriteError, ManifestError, StorageError


@pytest.fixture
def table(tmp_path: Path) -> DeltaLakeTable:
    return open_delta(str(tmp_path / "orders"))


def opened(table: DeltaLakeTable) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(table.location)


def around_commit(monkeypatch: pytest.MonkeyPatch, around: Callable[[Callable[[], None]], None]) -> None:
    """Call this once with what sends the next commit; later ones are sent as they are."""
    send = deltalake.DeltaTable.create_write_transaction
    left = [around]

    def create_write_transaction(*arguments: Any, **named: Any) -> None:
        if not left:
            return send(*arguments, **named)
        return left.pop()(lambda: send(*arguments, **named))

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", create_write_transaction)


def test_a_table_that_no_job_committed_to_has_no_end(table: DeltaLakeTable) -> None:
    assert not table.exists
    assert table.end() is None

    table.prepare(SCHEMA, ())

    assert table.exists
    assert table.end([("orders", 0)]) is None
    assert list(table.files()) == []


def test_the_end_is_what_the_last_commit_said_and_the_records_are_those_of_all(table: DeltaLakeTable) -> None:
    end = filled(table, 10, 25, 26)

    assert table.end() == end
    assert open_delta(table.location).end() == end
    assert read(table) == pa.Table.from_batches([made(0, 26)])
    assert len(list(table.files())) == 3
    assert opened(table).transaction_version("segreader/orders/0") == 26


def test_a_commit_without_files_moves_the_end(table: DeltaLakeTable) -> None:
    end = filled(table, 10)
    following = end_at(17)
    table.commit((), end, following)

    assert table.end() == following
    assert read(table).num_rows == 10


def test_partitions_that_a_commit_does_not_name_keep_their_end(table: DeltaLakeTable) -> None:
    end = filled(table, 10)
    other = end_at(5, topic="payments", partition=3)
    table.commit(split_files(table, made(0, 5, topic="payments", partition=3)), end, other)

    now = table.end()
    assert now is not None
    assert now.offsets == {"orders": {"0": 10}, "payments": {"3": 5}}
    assert now.topic_ids.keys() == now.epochs.keys() == now.log_ends.keys() == {"orders", "payments"}
    assert read(table, topic="payments", partition=3).num_rows == 5


@pytest.mark.parametrize("start", [None, end_at(9), end_at(10, p1=1), end_at(10, topic="other")])
def test_a_commit_whose_start_is_not_the_end_adds_nothing(table: DeltaLakeTable, start: TableEnd | None) -> None:
    filled(table, 10)
    files = split_files(table, made(10, 20))
    before = opened(table).version()

    with pytest.raises(ConcurrentWriteError, match="does not end where this job began"):
        table.commit(files, start, end_at(20))
    assert opened(table).version() == before
    assert read(table).num_rows == 10


def test_of_many_writers_at_once_one_wins_and_the_others_are_told(table: DeltaLakeTable) -> None:
    end = filled(table, 10)
    for _ in range(5):
        first = end.offsets["orders"]["0"]
        writers = [open_delta(table.location) for _ in range(6)]
        ends = [end_at(first + 10) for _ in writers]
        files = [split_files(writer, made(first, first + 10)) for writer in writers]
        ready = threading.Barrier(len(writers))

        def run(at: int, end: TableEnd = end, ready: threading.Barrier = ready) -> bool:
            ready.wait()
            try:
                writers[at].commit(files[at], end, ends[at])  # noqa: B023  all of them end within the loop
            except ConcurrentWriteError:
                return False
            return True

        with ThreadPoolExecutor(len(writers)) as pool:
            won = list(pool.map(run, range(len(writers))))
        assert sum(won) == 1
        now = table.end()
        assert now == ends[won.index(True)]
        end = now
    assert read(table).column("offset").to_pylist() == list(range(60))


def test_another_commit_between_the_look_and_the_commit_is_noticed(
    table: DeltaLakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = filled(table, 10)
    rival = open_delta(table.location)
    theirs, ours = split_files(table, made(10, 12)), split_files(table, made(10, 20))

    def after_rival(send: Callable[[], None]) -> None:
        rival.commit(theirs, end, end_at(12))
        send()

    around_commit(monkeypatch, after_rival)
    with pytest.raises(ConcurrentWriteError, match="orders-0 up to 12, expected up to 10"):
        table.commit(ours, end, end_at(20))
    assert read(table).num_rows == 12


def test_a_commit_of_others_that_leaves_the_end_does_not_stop_ours(
    table: DeltaLakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = filled(table, 10, 12)
    files, following = split_files(table, made(12, 20)), end_at(20)

    def after_optimize(send: Callable[[], None]) -> None:
        opened(table).optimize.compact()
        send()

    around_commit(monkeypatch, after_optimize)
    table.commit(files, end, following)

    assert table.end() == following
    assert {action["commitInfo"]["operation"] for action in log_of(Path(table.location)) if "commitInfo" in action} >= {
        "OPTIMIZE"
    }
    assert read(table) == pa.Table.from_batches([made(0, 20)])


@pytest.mark.parametrize("error", [CommitFailedError("412"), OSError("connection reset"), RuntimeError("x")], ids=repr)
def test_a_commit_whose_answer_is_lost_has_landed(
    table: DeltaLakeTable, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    end = filled(table, 10)
    files, following = split_files(table, made(10, 20)), end_at(20)

    def lose_answer(send: Callable[[], None]) -> None:
        send()
        raise error

    around_commit(monkeypatch, lose_answer)
    table.commit(files, end, following)
    assert table.end() == following

    table.commit(files, end, following)  # by a driver that was started again
    assert read(table).num_rows == 20


def test_a_compaction_whose_commit_arrives_late_keeps_its_files(
    table: DeltaLakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(table, 10, 20)
    on_the_way: list[Callable[[], None]] = []

    def delay(send: Callable[[], None]) -> None:
        on_the_way.append(send)
        raise OSError("Generic S3 error: status 500: <Code>InternalError</Code>")

    def arrive(*_: object) -> bool:
        on_the_way.pop()()
        return True

    around_commit(monkeypatch, delay)
    monkeypatch.setattr(delta_store.Patience, "lasts", arrive)

    assert table.compact(1 << 20).files_before == 2
    assert len(list(table.files())) == 1
    assert read(table) == pa.Table.from_batches([made(0, 20)])


def test_a_commit_that_the_store_refuses_adds_nothing_and_shows_no_secret(
    table: DeltaLakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = filled(table, 10)
    files = split_files(table, made(10, 20))

    def refuse(*_: object, **__: object) -> None:
        raise OSError("Generic S3 error: status 500: <Code>InternalError</Code> token=canary-4711")

    monkeypatch.setattr(delta_store, "_MOST_FAILURES", 2)
    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", refuse)
    with pytest.raises(StorageError) as caught:
        table.commit(files, end, end_at(20))
    assert "canary" not in str(caught.value)
    assert "status 500 InternalError" in str(caught.value)
    assert table.end() == end


def test_after_a_restore_the_table_ends_where_the_restored_version_did(table: DeltaLakeTable) -> None:
    first = filled(table, 10)
    second = filled(table, 20, start=first)
    third = filled(table, 30, start=second)
    opened(table).restore(2)
    assert opened(table).transaction_version("segreader/orders/0") == 30, "it is not what the table holds"
    assert table.end() == second
    assert read(table).num_rows == 20

    with pytest.raises(ConcurrentWriteError):
        table.commit((), third, end_at(40))
    fourth = filled(table, 25, start=second)
    assert table.end() == fourth
    opened(table).restore(4)  # itself a RESTORE
    assert table.end() == second
    opened(table).restore(3)
    assert table.end() == third
    opened(table).restore(0)
    assert table.end() is None


def test_after_a_restore_to_a_time_the_end_is_that_of_the_version_of_then(table: DeltaLakeTable) -> None:
    first = filled(table, 10)
    time = datetime.now(UTC)
    filled(table, 20, start=first)
    opened(table).restore(time)

    assert table.end() == first


def test_a_restore_to_a_time_without_a_zone_is_an_error(table: DeltaLakeTable) -> None:
    filled(table, 10, 20)
    opened(table).restore(1)
    info = json.loads((Path(table.location) / "_delta_log" / f"{3:020d}.json").read_text().splitlines()[0])
    info["commitInfo"]["operationParameters"] = {"version": None, "timestamp": "2024-01-01 00:00:00"}
    rewrite_commit(Path(table.location), 3, [info])

    with pytest.raises(ManifestError, match=r"it is not known what.*TO VERSION AS OF"):
        table.end()


def test_a_table_that_was_overwritten_is_an_error(table: DeltaLakeTable) -> None:
    filled(table, 10)
    deltalake.write_deltalake(table.location, pa.Table.from_batches([made(0, 3)]), mode="overwrite")

    with pytest.raises(ManifestError, match="version 2 replaced what version 1 ends with"):
        table.end()


def test_rows_that_were_deleted_leave_the_end(table: DeltaLakeTable) -> None:
    end = filled(table, 10)
    opened(table).delete("offset < 4")

    assert table.end() == end
    assert read(table).column("offset").to_pylist() == list(range(4, 10))


def cleaned(table: DeltaLakeTable, versions: int) -> None:
    """The table with a checkpoint, and without the commits up to there."""
    opened(table).create_checkpoint()
    for version in range(versions):
        (Path(table.location) / "_delta_log" / f"{version:020d}.json").unlink()


@pytest.mark.parametrize("partition_by", ["", "topic", "topic, partition"])
def test_where_the_log_was_cleaned_up_its_transactions_tell_the_end(table: DeltaLakeTable, partition_by: str) -> None:
    end = filled(table, 10, 20, partition_by=partition_by)
    opened(table).optimize.compact()
    cleaned(table, opened(table).version())

    now = TableEnd(offsets={"orders": {"0": 20}})
    assert table.end() == now
    assert table.end([("orders", 0), ("orders", 7)]) == now
    files = split_files(table, made(20, 30), partition_by)
    with pytest.raises(ConcurrentWriteError):
        table.commit(files, None, end_at(30))
    following = end_at(30)
    table.commit(files, replace(end, topic_ids={}), following)
    assert table.end() == following


def test_a_restore_to_what_was_cleaned_up_is_an_error(table: DeltaLakeTable) -> None:
    filled(table, 10, 20)
    opened(table).restore(1)
    cleaned(table, 3)

    with pytest.raises(ManifestError, match="version 3 restored or replaced it"):
        table.end()


def test_a_commit_that_says_something_else_is_an_error(table: DeltaLakeTable) -> None:
    filled(table, 10)
    path = Path(table.location) / "_delta_log" / f"{1:020d}.json"
    path.write_text(path.read_text().replace('{\\"orders\\":{\\"0\\":10}}', "[1]"))

    with pytest.raises(ManifestError, match="version 1"):
        table.end()
