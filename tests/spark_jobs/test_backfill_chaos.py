"""Killed backfills. ``make chaos`` runs very many, with seeds that nobody chose; ``CHAOS_SEED=N`` runs one again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import SystemRandom

import pytest
from chaos import DONE, REMOTE, Backfill, chosen, prove, torment

from segreader.spark.backfill.job_plan import read_plan
from segreader.spark.backfill.output import OutputOptions
from segreader.storage.target_local import LocalTarget

TOPICS = ("multi", "txn-interleaved")


def seeds() -> list[int]:
    if (one := os.environ.get("CHAOS_SEED")) is not None:
        return [int(one)]
    if (many := os.environ.get("CHAOS")) is not None:
        return [SystemRandom().getrandbits(32) for _ in range(int(many))]
    return list(range(30))


@pytest.mark.parametrize("seed", seeds())
def test_a_backfill_that_is_killed_at_random_ends_exact(tmp_path: Path, seed: int) -> None:
    job = chosen(seed, tmp_path / "out")
    assert torment(job) >= 1
    prove(job.out, job.topics, job.isolation)


@pytest.mark.parametrize("has_moves", [True, False])
def test_two_drivers_at_once_end_in_one_output(tmp_path: Path, has_moves: bool) -> None:
    out = tmp_path / "out"
    job = Backfill(0, out, TOPICS, 8_000, OutputOptions(), has_moves, "committed")
    drivers = [job.start(order) for order in range(2)]
    for driver in drivers:
        driver.join(60)

    assert [driver.exitcode for driver in drivers] == [DONE, DONE]
    prove(out, TOPICS, "committed")


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_spark_driver_killed_with_speculation_on_is_finished_by_the_next_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with spark_driver(out, "--conf", "spark.speculation=true") as driver:
        wait_until(lambda: done_in(out) >= 5, driver)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert not (out / "_SUCCESS").exists()

    with spark_driver(out) as driver:
        assert driver.wait(300) == 0, (tmp_path / "told").read_text()
    prove(out, TOPICS, "committed")


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_python_worker_that_is_killed_costs_an_attempt_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with spark_driver(out) as driver:
        wait_until(lambda: done_in(out) >= 5, driver)
        workers = python_workers(driver.pid)
        os.kill(workers[0], signal.SIGKILL)
        assert driver.wait(300) == 0, (tmp_path / "told").read_text()
    prove(out, TOPICS, "committed")


@contextmanager
def spark_driver(out: Path, *submit: str) -> Iterator[subprocess.Popen[bytes]]:
    """The job as a program in a session of its own, which is gone after the block."""
    topics = [argument for topic in TOPICS for argument in ("--topic", topic)]
    line = ["-m", "spark_jobs.backfill", "--location", str(REMOTE), "--target", str(out), *topics]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    environ |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    if submit:
        environ["PYSPARK_SUBMIT_ARGS"] = " ".join([*submit, "pyspark-shell"])
    with (out.parent / "told").open("ab") as told:
        driver = subprocess.Popen(
            [sys.executable, *line, "--split-bytes", "2000", "--master", "local[2,4]"],
            env=environ,
            start_new_session=True,
            stdout=told,
            stderr=told,
        )
    try:
        yield driver
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()


def wait_until(holds: Callable[[], bool], driver: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 300
    while not holds():
        assert driver.poll() is None, f"the job ended with {driver.returncode} before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.002)


def done_in(out: Path) -> int:
    """How many splits of a job are done."""
    plan = read_plan(LocalTarget(out))
    done = out / "_job" / "done"
    return sum(path.suffix == ".json" for path in done.iterdir()) if plan and done.is_dir() else 0


def python_workers(driver: int) -> list[int]:
    """The processes that Spark's Python daemons of a driver forked for its tasks."""
    parents, daemons = {}, set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            pid, parent = int(path.name), int((path / "stat").read_text().rpartition(")")[2].split()[1])
            parents[pid] = parent
            if b"pyspark.daemon" in (path / "cmdline").read_bytes() and os.getsid(pid) == os.getsid(driver):
                daemons.add(pid)
        except OSError:
            continue  # it has ended
    return [pid for pid, parent in parents.items() if pid in daemons and parent in daemons]
