"""Backfills into every kind of target that are killed while they begin and while they go on, without Spark.

A seed chooses the job, who is killed (the driver at a step or at a moment of the clock, or a worker at a step)
and how the user calls it again. An undisturbed twin tells how many steps a run has, so that each is died at as often as
the others, and which commits. What there is in the end is held against a scan of the bucket.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any

import lake_chaos_hook
from backfill_runs import files_of
from growing_bucket import GrowingBucket
from lake_chaos_hook import DEATHS, DRIVER
from lake_targets import Key, Target

from segreader import scan
from segreader.backfill.lake.delta import open_delta
from segreader.backfill.lake.iceberg import open_iceberg
from spark_jobs.verify import main as verify

KINDS = ("parquet", "delta", "iceberg")
TOPICS = ("txn-span", "nulls", "codec-zstd", "txn-interleaved", "small-many", "txn-abort", "codec-none")
DIVIDED = ((), ("--partition-by", "day(timestamp)"), ("--partition-by", "topic, bucket(3, key)"))
"""How a table is partitioned."""
CREDENTIALS = ("--credentials", "lake_chaos_hook:mortal")
_LONGEST = 90.0
_MOST_RUNS = 25

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    [
        *("pyarrow.dataset", "pyarrow.parquet", "segreader.spark.locations", "spark_jobs.backfill"),
        *("segreader.backfill.task", "deltalake", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow"),
        *("segreader.backfill.lake.delta", "segreader.backfill.lake.iceberg_commit"),
    ]
)


class Victim(StrEnum):
    """What is killed."""

    DRIVER_AT_STEP = "driver at a step"
    DRIVER_AT_MOMENT = "driver at a moment"
    WORKER = "worker"
    EXECUTOR = "executor"  # Spark's


ALONE = (Victim.DRIVER_AT_STEP, Victim.DRIVER_AT_MOMENT, Victim.WORKER)
"""What there is to kill without Spark."""

_COMMIT_BYTES = {
    Victim.DRIVER_AT_STEP: ("1", "8k", "1g"),
    Victim.DRIVER_AT_MOMENT: ("1", "8k", "1g"),
    Victim.WORKER: ("12k", "1g"),  # a commit of one split has no workers
}


@dataclass(frozen=True, slots=True)
class LakeJob:
    """A job and what happens to it, all chosen by a seed."""

    seed: int
    kind: str
    victim: Victim
    topics: tuple[str, ...]
    settings: tuple[str, ...]

    def arguments(self, bucket: Path, target: Target) -> list[str]:
        """Of the program."""
        where = ["--location", str(bucket), "--pattern", f"^({'|'.join(self.topics)})$"]
        return [*where, *target.flags, *self.settings, *CREDENTIALS]


def chosen(seed: int) -> LakeJob:
    """The job of a seed; nine seeds in a row have each kind of target with each kind of victim."""
    random = Random(seed)
    kind, victim = KINDS[seed % 3], ALONE[seed // 3 % 3]
    divided = random.choice(DIVIDED)
    settings = (
        *("--engine", "local", "--processes", "2" if victim is Victim.WORKER else "1"),
        *("--split-bytes", random.choice(("4k", "9k", "1m") if victim is not Victim.WORKER else ("4k", "9k"))),
        *("--file-bytes", random.choice(("2k", "1m"))),
        *(() if kind == "parquet" else (*divided, "--commit-bytes", random.choice(_COMMIT_BYTES[victim]))),
    )
    return LakeJob(seed, kind, victim, tuple(random.sample(TOPICS, random.randint(2, 3))), settings)


def drive(arguments: Sequence[str], place: Path, name: str) -> BaseProcess:
    """A driver in a process of its own, which begins at once.

    Args:
        place: gets what it prints, how many steps it made, and has the deaths.
        name: of the run.
    """
    process = _processes.Process(target=_drive, args=(list(arguments), place, name))
    process.start()
    return process


def _drive(arguments: list[str], place: Path, name: str) -> None:
    os.environ[DEATHS] = str(place / "deaths")
    os.environ[DRIVER] = str(os.getpid())
    sys.path[:0] = [str(Path(__file__).parent)]
    lake_chaos_hook.arm()
    from segreader.backfill import task
    from spark_jobs.backfill import main

    if "2" in arguments[arguments.index("--processes") + 1 :][:1]:
        vars(task)["_LEAST_TASK_BYTES"] = 1 << 11  # so little data would be one unit of work, and have no workers
    with (place / f"{name}.log").open("w", buffering=1) as log, redirect_stdout(log), redirect_stderr(log):
        code = main(arguments)
    (place / f"{name}.steps").write_text(str(lake_chaos_hook.steps_so_far()))
    sys.exit(code)


class LakeChaos:
    """One job that is killed and called again, beside its twin that nobody disturbs.

    Args:
        place: an empty directory for the bucket, both targets and what runs print.
    """

    def __init__(self, job: LakeJob, place: Path) -> None:
        self.job, self.place = job, place
        self.bucket = GrowingBucket(place / "bucket", *job.topics)
        self.target = Target(job.kind, place / "target")
        self.twin = Target(job.kind, place / "twin")
        self._random = Random(job.seed ^ 0xC4A05)
        self._runs = 0
        self.killed = 0
        (place / "deaths").mkdir()

    def torment(self, phases: int = 3) -> None:
        """Upload, and backfill with kills, so often; after each phase the target has what the bucket has."""
        for phase in range(phases):
            self.bucket.upload(99 if phase == phases - 1 else self._random.randint(1, 2))
            self._phase(phase)
            require_exact(self.target, self.bucket, self.job.topics)
        self._settle()
        require_clean(self.target)
        commits, wanted = self.target.commits(), self.twin.commits()
        assert wanted
        assert commits == wanted, f"a commit too many, too few, or of something else: {commits}, not {wanted}"

    def _phase(self, phase: int) -> None:
        steps, seconds = self._undisturbed()
        deaths = self._deaths(phase)
        goes_on = phase > 0  # a first run that is killed is called again as it was, or with --continue
        for _ in range(_MOST_RUNS):
            share = deaths.pop(0) if deaths else None
            code = self._run(goes_on, share, steps, seconds)
            if code == -signal.SIGKILL:
                self.killed += 1
                goes_on = self._random.random() < 0.5
                continue
            assert code == 0, f"{self.job}: ended with {code}: {self.told}"
            if goes_on and not deaths:
                return
            goes_on = True
        raise AssertionError(f"{self.job}: not done after {_MOST_RUNS} runs")

    def _deaths(self, phase: int) -> list[float]:
        """When somebody is killed in this phase: after which share of the steps, or of the time."""
        return [self._random.random() for _ in range(self._random.choice((1, 1, 2)))]

    def _settle(self) -> None:
        """Wait for what goes on although its driver was killed: nothing, without Spark."""

    def _undisturbed(self) -> tuple[int, float]:
        """How many steps the driver has in this phase, or each worker about, and how long it takes."""
        idle = _processes.Process(target=int)  # the first one waits for the server of processes to load what it needs
        idle.start()
        idle.join()
        began = time.monotonic()
        process = drive([*self.job.arguments(self.bucket.root, self.twin), "--continue"], self.place, "twin")
        assert _ended(process) == 0, f"{self.job}: {(self.place / 'twin.log').read_text()}"
        return int((self.place / "twin.steps").read_text()), time.monotonic() - began

    @property
    def told(self) -> str:
        """What the last run printed."""
        return (self.place / f"run-{self._runs}.log").read_text()

    def _run(self, goes_on: bool, share: float | None, steps: int, seconds: float) -> int | None:
        """One run, in which the victim dies if there is a share: of the steps, or of the time."""
        self._runs += 1
        victim = self.job.victim
        deaths = self.place / "deaths"
        if share is not None and victim is Victim.DRIVER_AT_STEP:
            (deaths / f"driver-{int(share * steps)}-{self._runs}").touch()
        if share is not None and victim is Victim.WORKER:
            (deaths / f"worker-{int(share * 6)}-{self._runs}").touch()
        arguments = self.job.arguments(self.bucket.root, self.target)
        process = drive([*arguments, *(["--continue"] if goes_on else [])], self.place, f"run-{self._runs}")
        if share is not None and victim is Victim.DRIVER_AT_MOMENT:
            process.join(share * seconds)
            process.kill()
        code = _ended(process)
        if share is not None and victim is Victim.WORKER and not any(deaths.iterdir()):
            self.killed += 1
        for left in deaths.iterdir():
            left.unlink(missing_ok=True)
        return code


def _ended(process: BaseProcess) -> int | None:
    process.join(_LONGEST)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError("a run does not end")
    return process.exitcode


def keys_in(bucket: GrowingBucket, topics: Sequence[str]) -> Counter[Key]:
    """What a scan finds: each record's place, and how often."""
    found: Counter[Key] = Counter()
    for topic in topics:
        rows: list[dict[str, Any]] = (
            scan(str(bucket.root), topic=topic, columns=["topic", "partition", "offset"]).to_arrow().to_pylist()
        )
        found.update((row["topic"], row["partition"], row["offset"]) for row in rows)
    return found


def require_exact(target: Target, bucket: GrowingBucket, topics: Sequence[str]) -> None:
    """Show that a target has each record of the bucket once, as its readers see it and byte by byte."""
    wanted = keys_in(bucket, topics)
    if not target.files.exists():  # all that was uploaded is of open transactions: nothing to begin with
        assert not wanted
        return
    is_empty = target.kind == "parquet" and not files_of(target.files)  # all that is there was aborted
    there = Counter[Key]() if is_empty else target.keys()
    assert there == wanted, f"too many: {there - wanted}, too few: {wanted - there}"
    with _silent() as told:
        assert verify([*target.flags, "--source", "--engine", "local"]) == 0, told.read_text()


@contextmanager
def _silent() -> Iterator[Path]:
    """Where the block's output goes."""
    path = Path(os.environ.get("TMPDIR", "/tmp"), f"lake-chaos-{os.getpid()}.log")
    with path.open("w") as log, redirect_stdout(log), redirect_stderr(log):
        yield path
    path.unlink()


def require_clean(target: Target) -> None:
    """Show that nothing is left of attempts that were killed: no file that readers do not see."""
    parts = re.compile(r"part-.*\.parquet")
    there = {
        path.relative_to(target.files).as_posix() for path in target.files.rglob("*") if parts.fullmatch(path.name)
    }
    if target.kind == "parquet":
        named = {
            file["name"]
            for path in target.files.glob("_manifest*.json")
            for split in json.loads(path.read_text())["splits"]
            for file in split["files"]
        }
    elif target.kind == "delta":
        named = set(open_delta(str(target.files)).files())
    else:
        named = set(open_iceberg("db.records", "default", target.catalog_options).files())
    assert there == named, f"left: {sorted(there - named)[:3]}, missing: {sorted(named - there)[:3]}"
    hidden = [path for path in target.files.rglob(".*") if path.is_file() and "_delta_log" not in path.parts]
    assert not hidden, f"unfinished files: {hidden[:3]}"
