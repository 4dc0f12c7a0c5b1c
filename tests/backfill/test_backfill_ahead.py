"""A task that reads ahead of its Parquet writer: the same bytes, errors and entries as one that does both in turn."""

from __future__ import annotations

import json
import os
import threading
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from uuid import UUID

import pyarrow as pa
import pytest
from backfill_runs import plan_into, request
from held_bodies import Hung, RemoteStore, interrupted, threads, until

from segreader.backfill import task as backfill_task
from segreader.backfill.job_plan import JobPlan
from segreader.backfill.output import OutputLayout, OutputOptions
from segreader.backfill.source import ahead_of_writer
from segreader.backfill.task import Destination, SplitTask, do_split
from segreader.backfill.writer import SplitWriter
from segreader.errors import SegreaderError, StorageError
from segreader.plan.request import Policy, ReadOptions
from segreader.spark.locations import Locations
from segreader.spark.options import parse_options
from segreader.storage.base import ObjectStore
from segreader.storage.target.store import open_target
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.records import FIRST_TIMESTAMP_MS, ProducerRecord
from segreader.testing.stores import FaultyStore

KIB, MIB = 1 << 10, 1 << 20
DAY_MS = 86_400_000
READER = "segreader-backfill"
GRACE_S = 0.3
WAYS = [(1, None), (2, None), (8, None), (2, 1), (8, 24 * MIB)]
"""Threads, and bytes that are read ahead."""

OUTPUTS = {
    "small": OutputOptions(row_group_bytes=64 * KIB, file_bytes=96 * KIB, codec="none"),
    "by date": OutputOptions(layout=OutputLayout.DATE, row_group_bytes=96 * KIB, is_hive=True),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three segments of 300 records: keys, headers, nulls, several days, and transactions, some of them aborted."""
    segments = [SegmentBuilder(index_interval_bytes=4096)]
    for number in range(3):
        segments += [segments[-1].roll()] if number else []
        one = segments[-1]
        for batch in range(30):
            at = FIRST_TIMESTAMP_MS + (number * 30 + batch) * DAY_MS // 20
            records = [
                ProducerRecord(
                    None if row == 3 else bytes([batch]) * (row * 300),
                    b"%d" % row if row % 2 else None,
                    (("from", b"x"),) if row == 5 else (),
                    at + row,
                )
                for row in range(10)
            ]
            if batch % 7 == 3:
                one.batch(records, producer_id=7, producer_epoch=0, transactional=True)
                one.marker(7, abort=batch % 2 == 0)
            else:
                one.batch(records)
    write_local_tiered(tmp_path / "tier", "orders", segments)
    return tmp_path / "tier"


@pytest.fixture
def plan(root: Path, tmp_path: Path) -> JobPlan:
    return plan_into(open_target(tmp_path / "plan"), request(root, subscribe="orders", split_bytes=1 << 18))


def how(number: int, most_bytes: int | None = None, *, on_corrupt: Policy = Policy.FAIL) -> ReadOptions:
    return ReadOptions(threads=number, read_ahead_bytes=most_bytes, batch_rows=7, on_corrupt=on_corrupt)


def store_of(plan: JobPlan) -> ObjectStore:
    return Locations(parse_options(plan.options)).store


def write_all(plan: JobPlan, out: Path, options: ReadOptions, output: OutputOptions) -> dict[str, bytes]:
    """Every file that tasks make, entries without their times, by name; and the errors of splits that fail."""
    target, store, found = open_target(out), store_of(plan), dict[str, bytes]()
    for split in plan.splits:
        try:
            do_split(split, store, target, output, options=options, plan=plan.name)
        except SegreaderError as error:
            found[f"error of {split.id}"] = f"{type(error).__name__}: {error}".encode()
    for path in sorted(out.rglob("*")):
        if path.is_file():
            name, data = path.relative_to(out).as_posix(), path.read_bytes()
            if name.startswith("_job/done/"):
                data = json.dumps({**json.loads(data), "seconds": 0}).encode()
            found[name] = data
    assert threads(READER) == []
    return found


@pytest.fixture
def same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every attempt has the same token: outputs go to different places."""
    monkeypatch.setattr(backfill_task, "uuid4", lambda: UUID(int=0x12345678_9ABC << 80))


@pytest.mark.usefixtures("same_names")
@pytest.mark.parametrize("output", OUTPUTS)
def test_files_and_entries_are_the_same_bytes_for_any_number_of_threads(
    plan: JobPlan, tmp_path: Path, output: str
) -> None:
    first, *others = (
        write_all(plan, tmp_path / f"out-{at}", how(*way), OUTPUTS[output]) for at, way in enumerate(WAYS)
    )
    assert len([name for name in first if name.endswith(".parquet")]) > len(plan.splits)
    assert all(other == first for other in others)


@pytest.mark.usefixtures("same_names")
@pytest.mark.parametrize("on_corrupt", [Policy.FAIL, Policy.SKIP])
def test_damage_is_met_and_left_out_the_same_for_any_number_of_threads(
    plan: JobPlan, root: Path, tmp_path: Path, on_corrupt: Policy
) -> None:
    log = sorted(root.rglob("*.log"))[1]
    data, times = bytearray(log.read_bytes()), log.stat()
    for part in (3, 7):
        data[len(data) * part // 10] ^= 1
    log.write_bytes(data)
    os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns))
    first, *others = (
        write_all(plan, tmp_path / f"out-{at}", how(*way, on_corrupt=on_corrupt), OUTPUTS["small"])
        for at, way in enumerate(WAYS)
    )
    errors = [name for name in first if name.startswith("error")]
    assert bool(errors) is (on_corrupt is Policy.FAIL)
    assert all(other == first for other in others)


class Overlap:
    """How many bodies are in flight while the writer writes its first records.

    Bodies behind the first ones wait for the writer, and the writer for one of them; both only for a while.
    """

    def __init__(self, patience: float) -> None:
        self.held = self.most = self.bodies = 0
        self._patience = patience
        self._is_seen = threading.Event()

    def read(self, request: str) -> None:
        if not request.startswith("GET") or ".log" not in request:
            return
        self.bodies += 1
        if self.bodies > 8 and not self._is_seen.is_set():
            self.held += 1
            self._is_seen.wait(self._patience)
            self.held -= 1

    def write(self) -> None:
        if not self._is_seen.is_set():
            until(lambda: self.held > 0, self._patience)
            self.most = self.held
            self._is_seen.set()


class InPieces(RemoteStore):
    """A store that asks for each 4 KiB of a log by itself."""

    def read_pieces(self, name, wanted, *, expected_size=None, expected_tag=None):  # type: ignore[no-untyped-def]
        for start in range(wanted.start, wanted.stop, 4 * KIB):
            part = type(wanted)(start, min(start + 4 * KIB, wanted.stop))
            yield from super().read_pieces(name, part, expected_size=expected_size, expected_tag=expected_tag)


@pytest.mark.parametrize(("number", "most"), [(1, 0), (2, 1), (8, 1)])
def test_a_body_is_in_flight_while_the_task_writes(
    plan: JobPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, most: int
) -> None:
    overlap = Overlap(patience=10 if number > 1 else 0.01)
    write = SplitWriter.write

    def held(self: SplitWriter, batch: pa.RecordBatch) -> None:
        overlap.write()
        write(self, batch)

    monkeypatch.setattr(SplitWriter, "write", held)
    store = InPieces(store_of(plan), overlap.read)
    entry, _ = do_split(plan.splits[0], store, open_target(tmp_path / "out"), plan.output, options=how(number))
    assert entry.records > 0
    assert overlap.most == most


def test_batches_that_wait_have_a_bound() -> None:
    made, batch = 0, pa.record_batch({"value": [bytes(MIB)]})

    def make():  # type: ignore[no-untyped-def]
        nonlocal made
        for _ in range(100):
            made += 1
            yield batch

    with closing(ahead_of_writer(make, threads=2, most_bytes=24 * MIB)) as batches:
        for taken in range(1, 40):
            next(batches)
            assert until(lambda at=taken: made - at >= 6)  # type: ignore[misc]
            assert made - taken <= 12
    assert threads(READER) == []


@pytest.mark.parametrize("number", [1, 2, 8])
@pytest.mark.parametrize("fails_at", [1, 5, 20])
def test_an_error_of_the_store_leaves_nothing_behind(plan: JobPlan, tmp_path: Path, number: int, fails_at: int) -> None:
    begun = 0

    def fault(request: str) -> None:
        nonlocal begun
        begun += ".log" in request
        if begun == fails_at:
            raise StorageError("out of order")

    store, target = InPieces(store_of(plan), fault), open_target(tmp_path / "out")
    output = OUTPUTS["small"]
    with pytest.raises(StorageError, match=r"^out of order$"):
        do_split(plan.splits[0], store, target, output, options=how(number))
    assert list(target.list()) == []
    assert threads(READER) == []
    entry, is_reused = do_split(plan.splits[0], store_of(plan), target, output, options=how(number))
    assert (entry.records > 0, is_reused) == (True, False)


@pytest.mark.parametrize("number", [1, 2, 8])
def test_an_error_of_the_target_ends_the_reading(
    plan: JobPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def broken(*_: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(SplitWriter, "write", broken)
    requests: list[str] = []
    store = FaultyStore(store_of(plan), requests.append)
    with pytest.raises(StorageError, match=r"^the disk is full$"):
        do_split(plan.splits[0], store, open_target(tmp_path / "out"), plan.output, options=how(number))
    assert threads(READER) == []
    seen = len(requests)
    assert not until(lambda: len(requests) > seen, 0.05)


def test_a_task_gets_the_threads_and_bytes_of_its_job(
    plan: JobPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ReadOptions] = []

    def do(*arguments: object, options: ReadOptions, **more: object) -> object:
        seen.append(options)
        return do_split(*arguments, options=options, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(backfill_task, "do_split", do)
    place = Destination(str(tmp_path / "out"))
    for more in ({}, {"threads": 3, "read_ahead_bytes": 4}):
        task = SplitTask(plan.options, plan.output, place, plan.splits, **more)  # type: ignore[arg-type]
        assert len(list(task([0]))) == 1
    assert [(one.threads, one.read_ahead_bytes) for one in seen] == [(None, None), (3, 4)]


def test_a_number_of_the_environment_is_taken_and_checked(
    plan: JobPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[str] = []

    def note(request: str) -> None:
        began.extend(threads(READER))

    def do(at: int, options: ReadOptions) -> int:
        began.clear()
        target = open_target(tmp_path / f"out-{at}")
        do_split(plan.splits[0], FaultyStore(store_of(plan), note), target, plan.output, options=options)
        return len(began)

    plain = replace(how(1), threads=None)
    assert do(0, plain) > 0
    monkeypatch.setenv("SEGREADER_THREADS", "1")
    assert do(1, plain) == 0
    assert do(2, how(2)) > 0
    monkeypatch.setenv("SEGREADER_THREADS", "few")
    with pytest.raises(SegreaderError, match="SEGREADER_THREADS must be a positive number"):
        do(3, plain)


@pytest.mark.parametrize("first", [0, 30])
@pytest.mark.parametrize("number", [1, 2, 8])
def test_an_interrupt_ends_a_task_at_once_and_leaves_nothing_behind(
    plan: JobPlan, tmp_path: Path, number: int, first: int
) -> None:
    target, split = open_target(tmp_path / "out"), plan.splits[0]

    def end_one() -> float:
        hung = Hung(first=first)
        store = InPieces(store_of(plan), hung)
        work = partial(do_split, split, store, target, OUTPUTS["small"], options=how(number))
        took = interrupted(work, lambda: hung.waits >= 1)
        assert threads(READER) == []
        assert list(target.list()) == []
        return took

    assert median(end_one() for _ in range(3)) < GRACE_S
