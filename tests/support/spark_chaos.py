"""Backfills on a real cluster in which a driver, an executor, a Python worker or a task is killed.

A driver lives for many backfills (see ``spark_chaos_driver``) and is started anew when it was the victim. What is
killed and when follows from a seed: after a share of the splits is done, and a moment more. A kill counts where it hit.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lake_chaos_hook import DEATHS
from servers.process import dies_with_us
from spark_chaos_hook import DAWDLE, TRAIL
from spark_chaos_plan import VICTIMS, SparkBackfill, Strike, Tally, Victim
from spark_jvm import spark_options
from spark_standalone import environment, standalone_cluster

from segreader.backfill.job_plan import read_plan
from segreader.storage.target.local import LocalTarget

HOSTS = ("127.0.0.1", "127.0.0.2")
SUPPORT = Path(__file__).parent
FAILED = 70

_EXECUTOR, _WORKER = "CoarseGrainedExecutorBackend", "pyspark.daemon"
_LONGEST = 240.0
_MOST_RUNS = 12
_MOST_DRAWS = 8


class Driver:
    """One driver program in a session of its own."""

    def __init__(self, master: str, told: Path, conf: Mapping[str, str], environ: Mapping[str, str]) -> None:
        asked, self._ask = os.pipe()
        self._answers, answer = os.pipe()
        submit = shlex.join(part for name, value in conf.items() for part in ("--conf", f"{name}={value}"))
        line = [sys.executable, str(SUPPORT / "spark_chaos_driver.py"), master, str(asked), str(answer)]
        with told.open("ab") as log:
            self._process = subprocess.Popen(
                line,
                env={**environ, "PYSPARK_SUBMIT_ARGS": f"{submit} pyspark-shell"},
                stdout=log,
                stderr=log,
                pass_fds=(asked, answer),
                start_new_session=True,
                preexec_fn=dies_with_us,
            )
        os.close(asked)
        os.close(answer)
        self._told = told
        self._is_killed = False
        self._buffer = b""
        self._heard: dict[int, dict[str, Any]] = {}
        self._last = 0
        started = self.answer(0, _LONGEST)
        assert started is not None, f"no driver: {told.read_text(errors='replace')[-3000:]}"
        self.app = str(started["app"])

    def ask(self, **request: Any) -> int:
        """Send a request; its number."""
        self._last += 1
        with suppress(BrokenPipeError):
            os.write(self._ask, json.dumps({"id": self._last, **request}).encode() + b"\n")
        return self._last

    def answer(self, number: int, seconds: float = _LONGEST) -> dict[str, Any] | None:
        """The answer to a request; ``None`` if the driver died before.

        Raises:
            AssertionError: it lives, and takes longer than that.
        """
        until = time.monotonic() + seconds
        while (found := self.heard(number)) is None and self._hears(max(0.0, until - time.monotonic())):
            assert time.monotonic() < until, f"no answer: {self._told.read_text(errors='replace')[-3000:]}"
        return found

    def heard(self, number: int) -> dict[str, Any] | None:
        """The answer to a request if it is there."""
        while select.select([self._answers], [], [], 0)[0] and self._hears(0):
            pass
        return self._heard.get(number)

    @property
    def is_alive(self) -> bool:
        """Whether it may be asked for more: one that was killed as its run ended may yet have answered."""
        return not self._is_killed and self._process.poll() is None

    def kill(self, way: int) -> None:
        """Kill all of the driver, its Python or its JVM; executors are left to themselves."""
        self._is_killed = True
        every = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
        jvms = [pid for pid in every if parent(pid) == self._process.pid]
        with suppress(ProcessLookupError):
            if way == 0:
                os.killpg(self._process.pid, signal.SIGKILL)
            elif way == 1:
                self._process.kill()
            else:
                for pid in jvms:
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._ask)
        os.close(self._answers)

    def _hears(self, seconds: float) -> bool:
        """Wait for something to read; whether there may be more."""
        if not select.select([self._answers], [], [], seconds)[0]:
            return True
        data = os.read(self._answers, 1 << 16)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            document = json.loads(line)
            self._heard[document["id"]] = document
        return bool(data)


class SparkChaos:
    """A cluster, the driver that runs on it, and what was killed so far."""

    def __init__(self, master: str, directory: Path, trail: Path) -> None:
        self.tally = Tally()
        self.deaths = _deaths_of(trail)
        self._master, self._directory, self._trail = master, directory, trail
        self._driver: Driver | None = None
        self._has_speculation = False

    def torment(self, job: SparkBackfill, directory: Path) -> tuple[Path, Tally]:
        """Run a backfill, kill, and run it again until it ends well; its output, and what happened.

        Where the first victim was not hit, since the job had ended, another output is begun.
        """
        wanted = VICTIMS[job.seed % len(VICTIMS)]
        tally = Tally()
        for draw in range(_MOST_DRAWS):
            out = directory / f"out-{draw}"
            self._torment(job, out, job.strikes(draw), tally)
            if tally.hits[wanted]:
                self.tally.add(tally)
                return out, tally
        raise AssertionError(f"seed {job.seed}: no {wanted} was hit in {_MOST_DRAWS} backfills")

    def verify(self, out: Path, *, with_spark: bool) -> dict[str, Any]:
        """What the product's own check says of an output, held against the segments."""
        more = () if with_spark else ("--local",)
        arguments = ["--target", str(out), "--source", "--credentials", "default", "-o", "json", *more]
        driver = self._started(self._has_speculation)
        told = driver.answer(driver.ask(program="verify", arguments=arguments))
        assert told is not None, "the driver died"
        found: dict[str, Any] = json.loads(told["printed"])
        assert (told["code"] == 0) == found["is_exact"]
        return found

    def run_again(self, job: SparkBackfill, out: Path) -> None:
        """Once more, when no attempt of before is at work any more."""
        _wait(lambda: not list(self._busy()), "tasks of killed drivers go on")
        driver = self._started(self._has_speculation)
        told = driver.answer(driver.ask(program="backfill", arguments=job.arguments(out)))
        assert told is not None, "the driver died"
        assert told["code"] == 0, self.told

    @contextmanager
    def another_driver(self) -> Iterator[Driver]:
        """One beside the driver that is there."""
        driver = self._new_driver(has_speculation=False)
        try:
            yield driver
        finally:
            driver.close()

    def driver(self, *, has_speculation: bool) -> Driver:
        """The driver; a new one where there is none, or where it was started with other settings."""
        return self._started(has_speculation)

    @property
    def told(self) -> str:
        """The last that drivers have printed."""
        return (self._directory / "driver.log").read_text(errors="replace")[-3000:]

    def settle(self) -> None:
        """Wait until nothing goes on whose driver or executor was killed."""
        _wait(lambda: not any(map(self._is_left, map(int, filter(str.isdigit, os.listdir("/proc"))))), "they go on")

    def _is_left(self, pid: int) -> bool:
        """Whether a process is an executor of another driver of this cluster than the one that is there, or a worker
        that does not belong to one that is.
        """
        is_worker = _is(pid, _WORKER)
        if not is_worker and not _is(pid, _EXECUTOR):
            return False
        with suppress(OSError):
            if f"{DEATHS}={self.deaths}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                above = parent(pid) if is_worker else pid
                above = parent(above) if _is(above, _WORKER) else above
                return self._driver is None or not _is(above, _EXECUTOR, self._driver.app)
        return False

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _torment(self, job: SparkBackfill, out: Path, strikes: list[Strike], tally: Tally) -> None:
        for _ in range(_MOST_RUNS):
            driver = self._started(job.has_speculation)
            run = driver.ask(program="backfill", arguments=job.arguments(out))
            tally.runs += 1
            while strikes and driver.is_alive and self._has_come(driver, run, out, strikes[0]):
                strike = strikes.pop(0)
                if self._strike(driver, run, out, strike):
                    tally.hits[strike.victim] += 1
                else:
                    tally.missed += 1
            told = driver.answer(run)
            if told is None or told["code"] == FAILED:
                self.close()  # its JVM, or all of it, is gone; or a task failed too often
                continue
            assert told["code"] == 0, f"seed {job.seed}: {told}; {self.told}"
            tally.attempts.update(told["ended"])
            tally.attempts["speculative"] += told["copies"]
            return
        raise AssertionError(f"seed {job.seed}: not done after {_MOST_RUNS} runs")

    def _has_come(self, driver: Driver, run: int, out: Path, strike: Strike) -> bool:
        """Wait for the moment of a strike; false if the run ended before."""
        plan, until = None, time.monotonic() + _LONGEST
        while strike.share > 0.05 or strike.victim is not Victim.DRIVER:  # else from the very beginning
            if driver.heard(run) is not None or not driver.is_alive:
                return False
            plan = plan or read_plan(LocalTarget(out))
            if plan is not None and done_in(out) >= int(strike.share * (len(plan.splits) + 1)):
                break
            assert time.monotonic() < until, "the run neither goes on nor ends"
            time.sleep(0.005)
        time.sleep(strike.seconds)
        return driver.heard(run) is None

    def _strike(self, driver: Driver, run: int, out: Path, strike: Strike) -> bool:
        """Kill; whether it hit something that was at work, for whom it waits."""
        if strike.victim is Victim.DRIVER:
            driver.kill(strike.way)
            is_hit = not (out / "_SUCCESS").exists()
            told = driver.answer(run)
            print(f"killed driver {driver.app}, way {strike.way}")
            return is_hit and (told is None or told["code"] == FAILED)
        until = time.monotonic() + _LONGEST
        while driver.heard(run) is None and driver.is_alive:
            if self._hits(driver, run, strike):
                return True
            assert time.monotonic() < until, "the run neither goes on nor ends"
            time.sleep(0.005)
        return False

    def _hits(self, driver: Driver, run: int, strike: Strike) -> bool:
        if strike.victim is Victim.TASK:
            told = driver.answer(driver.ask(of=str(run), aim=strike.aim, interrupts=strike.way > 0))
            return told is not None and told["killed"]
        at_work = sorted(self._busy(driver.app))
        if not at_work:
            return False
        worker, executor = at_work[int(strike.aim * len(at_work))]
        if strike.victim is Victim.EXECUTOR:
            return _killed(executor)
        return _killed(worker) and (self._trail / str(worker)).exists()  # it died at its split

    def _busy(self, app: str | None = None) -> Iterator[tuple[int, int]]:
        """Python workers that are at a split, each with its executor.

        Args:
            app: of this application; of all by default.
        """
        for trail in self._trail.iterdir():
            worker = int(trail.name)
            executor = parent(parent(worker))
            if not _is(worker, _WORKER):
                trail.unlink(missing_ok=True)  # of one that was killed
            elif app is None or _is(executor, _EXECUTOR, app):
                yield worker, executor

    def _started(self, has_speculation: bool) -> Driver:
        if self._driver is not None and (not self._driver.is_alive or self._has_speculation != has_speculation):
            self.close()
        if self._driver is None:
            self._driver = self._new_driver(has_speculation)
            self._has_speculation = has_speculation
        return self._driver

    def _new_driver(self, has_speculation: bool) -> Driver:
        conf = {
            "spark.cores.max": "2",
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.liveUpdate.period": "10ms",
            "spark.executor.extraJavaOptions": spark_options(),
            # Python of a task that was killed: it is killed at once, or goes on for as long as Spark lets it.
            "spark.python.task.killTimeout": "2s" if has_speculation else "20ms",
        }
        if has_speculation:
            conf |= {
                "spark.speculation": "true",
                "spark.speculation.interval": "50ms",
                "spark.speculation.quantile": "0.2",
                "spark.speculation.multiplier": "1.5",
                "spark.speculation.task.duration.threshold": "700ms",
                f"spark.executorEnv.{DAWDLE}": "1.5",
            }
        return Driver(self._master, self._directory / "driver.log", conf, _environment(self._trail))


@contextmanager
def spark_chaos(directory: Path) -> Iterator[SparkChaos]:
    """A cluster of two workers to kill things on, for the time of the block. Skips where there can be none."""
    trail = directory / "trail"
    trail.mkdir(parents=True)
    _deaths_of(trail).mkdir()
    with standalone_cluster(directory, hosts=HOSTS, cores=3, more=_environment(trail)) as master:
        chaos = SparkChaos(master, directory, trail)
        try:
            yield chaos
        finally:
            chaos.close()


def _environment(trail: Path) -> dict[str, str]:
    environ = environment()
    path = os.pathsep.join([str(SUPPORT), environ["PYTHONPATH"]])
    return environ | {
        TRAIL: str(trail),
        DEATHS: str(_deaths_of(trail)),
        "PYTHONPATH": path,
        "SPARK_DAEMON_MEMORY": "256m",
    }


def _deaths_of(trail: Path) -> Path:
    return trail.with_name("deaths")


def leftovers(out: Path) -> list[str]:
    """Files of an output that neither readers nor another run need: staged ones, and those that have no name yet."""
    return sorted(
        path.relative_to(out).as_posix()
        for path in out.rglob("*")
        if path.is_file() and (path.name.startswith(".") or path.relative_to(out).parts[0] == "_staging")
    )


def done_in(out: Path) -> int:
    """How many splits of a job are done."""
    with suppress(FileNotFoundError):
        return sum(name.endswith(".json") and not name.startswith(".") for name in os.listdir(out / "_job" / "done"))
    return 0


def parent(pid: int) -> int:
    """The process that started another one; 0 where that has ended."""
    with suppress(OSError):
        state, above = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        return int(above) if state != "Z" else 0
    return 0


def _is(pid: int, *arguments: str) -> bool:
    """Whether a process runs and was started with arguments that end in these."""
    with suppress(OSError):
        line = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        return all(any(one.endswith(argument) for one in line) for argument in arguments)
    return False


def _killed(pid: int) -> bool:
    """Kill a process, and wait until it has ended; false if it had before."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    print(f"killed process {pid}")
    _wait(lambda: not parent(pid), f"process {pid} lives on")
    return True


def _wait(holds: Callable[[], bool], otherwise: str) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until, otherwise
        time.sleep(0.01)
