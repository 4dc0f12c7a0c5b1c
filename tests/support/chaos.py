"""Backfills that are killed: drivers in processes of their own do all splits without Spark, and die at a chosen place.

A driver dies at one of its calls of the target (before it, or after it took effect), or at a moment of the clock, which
also finds the inside of a call. What a run leaves is proved exact by what the files hold, not by what the job says.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, BinaryIO

import pyarrow.parquet as pq
from backfill_runs import do, files_of, finish, request
from corpus import CORPUS, NormalRecord, case, normal

from segreader.backfill.commit import collect
from segreader.backfill.job_plan import JobPlan, make_plan, read_plan, require_same
from segreader.backfill.output import PLAN, OutputLayout, OutputOptions
from segreader.format.batch import TimestampType
from segreader.storage.base import ObjectInfo
from segreader.storage.target.local import LocalTarget

REMOTE = CORPUS / "tv2" / "remote"
TOPICS = ("multi", "nulls", "txn-abort", "txn-interleaved", "codec-lz4")
DONE = 0
_LONGEST = 60.0

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    [
        *("pyarrow.dataset", "pyarrow.parquet", "segreader.testing.builder", "segreader.spark.locations"),
        *("segreader.backfill.task", "segreader.backfill.commit", "segreader.storage.target.store"),
    ]
)


@dataclass(frozen=True, slots=True)
class Death:
    """When a driver is killed: at its n-th call of the target, or so many seconds after it began."""

    call: int | None = None
    seconds: float | None = None


class MortalTarget(LocalTarget):
    """A directory whose user is killed at its n-th call that changes something; each has two places to die at.

    Args:
        death: ``None`` lives.
        has_moves: a directory that cannot move is what a bucket is.
    """

    def __init__(self, root: Path, death: int | None = None, *, has_moves: bool = True) -> None:
        super().__init__(root)
        self.has_atomic_move = has_moves
        self._left = death

    def put_if_absent(self, name: str, data: bytes) -> bool:
        with self._mortal():
            return super().put_if_absent(name, data)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        with self._mortal(), super().create(name) as file:
            yield file
            self._step()

    def move(self, source: str, target: str) -> None:
        assert self.has_atomic_move, "a bucket moves nothing"
        with self._mortal():
            super().move(source, target)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with self._mortal():
                super().delete([name])

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return iter(list(super().list(prefix)))

    @contextmanager
    def _mortal(self) -> Iterator[None]:
        self._step()
        yield
        self._step()

    def _step(self) -> None:
        if self._left is None:
            return
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Backfill:
    """A job and what happens to it, all chosen by a seed."""

    seed: int
    out: Path
    topics: tuple[str, ...]
    split_bytes: int
    output: OutputOptions
    has_moves: bool
    isolation: str

    def drive(self, order: int, death: int | None) -> None:
        """As ``_drive``; what it raises is in a file beside the output."""
        try:
            self._drive(order, death)
        except BaseException:
            (self.out.parent / f"error-{os.getpid()}").write_text(traceback.format_exc())
            raise

    def _drive(self, order: int, death: int | None) -> None:
        """What a driver and its tasks do, from the plan to the commit, with splits in an order of its own."""
        target = MortalTarget(self.out, death, has_moves=self.has_moves)
        options: dict[str, Any] = {"subscribe": ",".join(self.topics), "isolationLevel": f"read_{self.isolation}"}
        asked = request(REMOTE, split_bytes=self.split_bytes, output=self.output, **options)
        plan = read_plan(target)
        if plan is None:
            plan = make_plan(asked)
            if not target.put_if_absent(PLAN, plan.data):
                plan = read_plan(target)
                assert plan is not None
        require_same(plan, asked.wanted, str(self.out))
        before = collect(target, plan)
        pending = [split for split in plan.splits if split.id not in before]
        Random(order).shuffle(pending)
        if pending:
            do(plan, target, *pending)
        assert finish(plan, target).is_complete

    def errors(self) -> list[str]:
        """What drivers have raised."""
        return [path.read_text() for path in self.out.parent.glob("error-*")]

    def start(self, order: int, death: Death | None = None) -> BaseProcess:
        """One driver in a process of its own."""
        process = _processes.Process(target=self.drive, args=(order, death.call if death else None))
        process.start()
        return process


def chosen(seed: int, out: Path) -> Backfill:
    """The job of a seed."""
    random = Random(seed)
    return Backfill(
        seed,
        out,
        tuple(random.sample(TOPICS, random.randint(1, 3))),
        random.choice((8_000, 20_000, 100_000)),
        OutputOptions(
            layout=random.choice(tuple(OutputLayout)),
            file_bytes=random.choice((1, 20_000, 1 << 28)),
            row_group_bytes=10_000,
        ),
        random.random() < 0.6,
        random.choice(("committed", "uncommitted")),
    )


def torment(job: Backfill) -> int:
    """Run drivers, alone or two at once, and kill them, until one ends; how many were killed.

    Those that run beside the one that ends may be killed later than it ends, or end too. The last run is left in peace.
    """
    random = Random(job.seed ^ 0xC4A05)
    killed = 0
    early = [Death(call=random.randint(0, 9))]  # a job of four splits makes more calls: this one dies
    later = [[_some_death(random) for _ in range(random.choice((1, 1, 2)))] for _ in range(random.randint(0, 3))]
    for deaths in [early, *later]:
        codes = _run(job, deaths, random)
        assert set(codes) <= {DONE, -signal.SIGKILL}, f"a driver ended with {codes}: {job.errors()}"
        killed += codes.count(-signal.SIGKILL)
    codes = _run(job, [None] * random.choice((1, 2)), random)
    assert DONE in codes, f"drivers that were left in peace ended with {codes}: {job.errors()}"
    codes = _run(job, [None], random)
    assert codes == [DONE], f"a finished job that was run again ended with {codes}: {job.errors()}"
    return killed


def _some_death(random: Random) -> Death:
    if random.random() < 0.6:
        return Death(call=int(2 ** random.uniform(0, 9)))
    return Death(seconds=random.uniform(0.02, 0.4))


def _run(job: Backfill, deaths: Sequence[Death | None], random: Random) -> list[int | None]:
    began = time.monotonic()
    drivers = [job.start(random.getrandbits(32), death) for death in deaths]
    late = sorted(
        (death.seconds, number)
        for number, death in enumerate(deaths)
        if death is not None and death.seconds is not None
    )
    try:
        for seconds, number in late:
            drivers[number].join(max(0.0, began + seconds - time.monotonic()))
            drivers[number].kill()
        for driver in drivers:
            driver.join(_LONGEST)
        return [driver.exitcode for driver in drivers]
    finally:
        for driver in drivers:
            driver.kill()
            driver.join()


@cache
def truth_of(topic: str, isolation: str) -> dict[tuple[int, int], NormalRecord]:
    """What the Java consumer was given, but for the leader epoch, which an output does not have."""
    found = case("tv2", topic).truth(isolation)
    return {(one.partition, one.offset): _without_epoch(one) for one in found}


def prove(out: Path, topics: Iterable[str], isolation: str, *, is_quiet: bool = True) -> None:
    """Show that an output is exact, from its files.

    Args:
        is_quiet: no attempt that lost is at work any more, so that nothing may lie where files wait for the end.

    Raises:
        AssertionError: a gap, an overlap, a file listed twice or by nobody, a record too many, too few or changed.
    """
    assert (out / "_SUCCESS").exists()
    manifest = json.loads((out / "_manifest.json").read_text())
    plan = read_plan(LocalTarget(out))
    assert plan is not None
    _prove_ranges(plan, manifest)
    listed = Counter(file["name"] for split in manifest["splits"] for file in split["files"])
    assert set(listed.values()) <= {1}, "a file is listed twice"
    assert Counter(name for names in manifest["files"].values() for name in names) == listed
    there = {path.relative_to(out).as_posix() for path in files_of(out)}
    assert there == set(listed), "files that nobody lists, or lists of files that are not there"
    assert not is_quiet or not [*(out / "_staging").rglob("*.parquet")], "orphans were not cleaned"

    written: dict[str, dict[tuple[int, int], NormalRecord]] = {topic: {} for topic in topics}
    for split in manifest["splits"]:
        for file in split["files"]:
            table = pq.ParquetFile(out / file["name"]).read()
            assert table.num_rows == file["rows"]
            told = _told_by(file["name"])
            for row in (record | told for record in table.to_pylist()):
                assert split["start"] <= row["offset"] < split["stop"], "a record of another split"
                assert (row["topic"], row["partition"]) == (split["topic"], split["partition"])
                place = row["partition"], row["offset"]
                assert place not in written[row["topic"]], f"{row['topic']} {place} is there twice"
                written[row["topic"]][place] = _without_epoch(normal(_record(row)))
    for topic, records in written.items():
        assert records == truth_of(topic, isolation), topic


def _told_by(name: str) -> dict[str, Any]:
    """The columns that the directories of a file stand for, where they name them."""
    pairs = dict(part.partition("=")[::2] for part in name.split("/")[:-1] if "=" in part)
    return {column: kind(pairs[column]) for column, kind in (("topic", str), ("partition", int)) if column in pairs}


def _prove_ranges(plan: JobPlan, manifest: dict[str, Any]) -> None:
    assert manifest["plan"] == plan.sha256
    assert len(manifest["splits"]) == len(plan.splits)
    for one in plan.partitions:
        splits = [s for s in manifest["splits"] if (s["topic"], s["partition"]) == (one.topic, one.partition)]
        ranges = sorted((split["start"], split["stop"]) for split in splits)
        edges = [one.start, *(stop for _, stop in ranges)]
        assert [start for start, _ in ranges] == edges[:-1], f"{one.topic}-{one.partition}: not contiguous"
        assert edges[-1] == one.stop


def _record(row: dict[str, Any]) -> SimpleNamespace:
    headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
    return SimpleNamespace(
        partition=row["partition"],
        offset=row["offset"],
        timestamp_ms=round(row["timestamp"].timestamp() * 1000),
        timestamp_type=TimestampType(row["timestampType"]),
        leader_epoch=None,
        key=row["key"],
        value=row["value"],
        headers=headers,
        topic=row["topic"],
    )


def _without_epoch(record: NormalRecord) -> NormalRecord:
    names = [name for name in NormalRecord.__dataclass_fields__ if name != "leader_epoch"]
    return NormalRecord(leader_epoch=None, **{name: getattr(record, name) for name in names})
