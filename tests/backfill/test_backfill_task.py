from __future__ import annotations

import gc
import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from backfill_runs import do, finish, plan_into, request, table_of
from growing_log import GrowingLog

from segreader.backfill import engine
from segreader.backfill.done import parse_done
from segreader.backfill.engine import LocalEngine
from segreader.backfill.output import done_name
from segreader.backfill.report import totals
from segreader.backfill.task import Destination, SplitTask
from segreader.errors import OptionError, ThrottledError
from segreader.spark.worker import freeze_imports
from segreader.storage.target.local import LocalTarget
from segreader.storage.target.store import open_target
from spark_jobs.report import ProgressWatch, shown_seconds


def test_a_task_takes_its_split_by_index_and_gives_its_entry(tmp_path: Path) -> None:
    root = tmp_path / "tier"
    log = GrowingLog(root)
    for _ in range(4):
        log.upload("orders", 0, 20)
    other = GrowingLog(tmp_path / "other")
    other.upload("orders", 1, 20)
    target = open_target(tmp_path / "out")
    asked = request(json.dumps([str(root), str(tmp_path / "other")]), subscribe="orders")
    plan = plan_into(target, asked)
    task = SplitTask(plan.options, plan.output, Destination(str(tmp_path / "out")), plan.splits)
    gc.unfreeze()
    freeze_imports.cache_clear()
    sent = pickle.dumps(task)
    frozen = gc.get_freeze_count()
    entries = [parse_done(data, "a task") for index in (4, 0, 1, 2, 3, 3) for data in pickle.loads(sent)([index])]
    of_spark = pickle.loads(sent).of_spark(iter([pa.RecordBatch.from_pydict({"id": [0]})]))
    rows = [row for batch in of_spark for row in batch.to_pylist()]
    gc.freeze()  # as tests/conftest.py leaves it: later tests would wait for looks at all that is there

    assert len(sent) < 600 * len(plan.splits) + 1500
    assert not frozen
    assert [entry.split for entry in entries] == [plan.splits[index].id for index in (4, 0, 1, 2, 3, 3)]
    assert entries[4] == entries[5]
    assert sorted(row["split"] for row in rows) == sorted(split.id for split in plan.splits)  # all are one small unit
    assert all(row["is_reused"] for row in rows)
    assert list(SplitTask(plan.options, plan.output, Destination("x"), ()).of_spark(iter([]))) == []
    assert finish(plan, target).is_complete
    assert table_of(tmp_path / "out")["offset"].to_pylist() == [*range(80), *range(20)]


def test_entries_count_the_attempts_of_the_local_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = GrowingLog(tmp_path / "tier")
    for _ in range(3):
        log.upload("orders", 0, 20)
    target = open_target(tmp_path / "out")
    plan = plan_into(target, request(str(tmp_path / "tier"), subscribe="orders"))
    task = SplitTask(plan.options, plan.output, Destination(str(tmp_path / "out")), plan.splits)
    put, failures = LocalTarget.put_if_absent, iter([ThrottledError("slow down")])

    def fails_once(store: LocalTarget, name: str, data: bytes) -> bool:
        if name == done_name(plan.splits[1].id) and (error := next(failures, None)):
            raise error
        return put(store, name, data)

    monkeypatch.setattr(LocalTarget, "put_if_absent", fails_once)
    monkeypatch.setattr(engine, "_PAUSE_S", 0.01)

    entries = [parse_done(data, "a task") for data in LocalEngine(1).run(task, [[0, 1], [2]])]

    assert [entry.attempt for entry in entries] == [0, 1, 0]
    assert totals(entries)["retried"] == 1


def test_a_destination_names_who_gives_credentials_and_holds_none() -> None:
    for settings in ({"secret": "s3cr3t"}, {"sas_token": "s3cr3t"}):
        with pytest.raises(OptionError) as raised:
            Destination("s3://bucket/out", settings=settings)
        assert "s3cr3t" not in str(raised.value)
    with pytest.raises(OptionError, match="not the name of a provider"):
        Destination("s3://bucket/out", "AKIA 123")
    with pytest.raises(OptionError, match="holds a credential") as raised:
        Destination("https://host/out?sig=s3cr3t")
    assert "s3cr3t" not in str(raised.value)


def test_progress_tells_splits_bytes_records_rate_and_time_left(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path)
    for _ in range(4):
        log.upload("orders", 0, 20)
    target = open_target(tmp_path / "out")
    plan = plan_into(target, request(tmp_path, subscribe="orders"))
    times = iter([0.0, 2.0, 14.0])
    watch = ProgressWatch(target, plan, {}, print, clock=lambda: next(times))
    assert watch.look().startswith("0 of 4 splits, 0 bytes of ")

    do(plan, target, *plan.splits[:2])
    line = watch.look()
    assert line.startswith("2 of 4 splits, ")
    assert "40 records" in line
    assert line.endswith("/s, 14 s left")
    assert set(watch.entries) == {split.id for split in plan.splits[:2]}
    assert [shown_seconds(one) for one in (5, 65, 3700)] == ["5 s", "1 min 05 s", "1 h 01 min"]
