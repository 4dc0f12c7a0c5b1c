from __future__ import annotations

import errno
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest
from engine_tasks import (
    CleansUp,
    Counts,
    DiesAt,
    FailsAtItsEnd,
    FailsBeside,
    Heavy,
    HoldsOn,
    Journal,
    Large,
    Meets,
    Processes,
    Raises,
    RaisesAt,
    Squares,
    Surroundings,
    UnpicklableError,
    UsesArrow,
    WontTravelError,
    Yields,
)

from segreader.backfill import engine
from segreader.backfill.engine import LocalEngine, WorkerDiedError, allowed_cores, may_pass
from segreader.errors import (
    AccessDeniedError,
    BrokerError,
    ConnectionFailedError,
    CorruptBatchError,
    ObjectNotFoundError,
    OptionError,
    SchemaRegistryError,
    SegreaderError,
    StorageError,
    ThrottledError,
)

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
GROUPS = [[0, 1, 2], [3, 4], [5, 6, 7], [8]]
EVERY = list(range(9))
PATIENCE_S = 15.0


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_PAUSE_S", 0.01)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody kills a worker that is asked to stop and comes to it late, on a machine that is busy."""
    monkeypatch.setattr(engine, "_GRACE_S", PATIENCE_S)


@pytest.fixture(autouse=True)
def no_process_stays() -> Iterator[None]:
    before = set(_children(os.getpid()))
    yield
    assert set(_children(os.getpid())) <= before


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_every_index_has_one_result_and_those_of_a_group_are_in_order(processes: int) -> None:
    results = [square for square, _ in LocalEngine(processes).run(Squares(), GROUPS)]

    assert sorted(results) == [index * index for index in EVERY]
    for group in GROUPS:
        assert [result for result in results if result in {index * index for index in group}] == [
            index * index for index in group
        ]


def test_one_process_or_one_group_needs_no_other_process() -> None:
    for processes, groups in ((1, GROUPS), (4, [EVERY]), (4, [[], EVERY, []])):
        made_by = {process for _, process in LocalEngine(processes).run(Squares(), groups)}
        assert made_by == {os.getpid()}


def test_there_are_no_more_processes_than_groups(tmp_path: Path) -> None:
    assert sorted(LocalEngine(8).run(Meets(tmp_path, 2), [[0, 1], [2]])) == [0, 1, 2]
    assert len(list(tmp_path.glob("*.here"))) == 2


def test_nothing_to_do_gives_nothing() -> None:
    assert list(LocalEngine(2).run(Squares(), [])) == []
    assert list(LocalEngine(2).run(Squares(), [[], []])) == []


def test_two_processes_work_at_the_same_time(tmp_path: Path) -> None:
    assert sorted(LocalEngine(2).run(Meets(tmp_path, 2), [[0], [1]])) == [0, 1]


def test_each_process_begins_groups_in_their_order() -> None:
    by_process: dict[int, list[int]] = defaultdict(list)
    for square, process in LocalEngine(2).run(Squares(0.002), [[index] for index in range(60)]):
        by_process[process].append(square)
    assert all(squares == sorted(squares) for squares in by_process.values())


def test_a_task_may_be_larger_than_a_socket_holds() -> None:
    assert set(LocalEngine(2).run(Heavy(bytes(20 << 20)), GROUPS)) == {20 << 20}


@pytest.mark.parametrize(("processes", "attempts"), [(0, 4), (-1, 4), (2, 0)])
def test_numbers_below_one_are_refused(processes: int, attempts: int) -> None:
    with pytest.raises(OptionError, match=r"must be at least 1; found (0|-1)"):
        LocalEngine(processes, attempts)


def test_as_many_processes_as_cores_by_default() -> None:
    assert 1 <= allowed_cores() <= len(os.sched_getaffinity(0))
    assert repr(LocalEngine()) == f"LocalEngine(processes={allowed_cores()}, attempts=4)"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"cpu.max": "1000 100000\n"}, 1),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "max 100000\n"}, 64),
        ({"cpu.max": "what"}, 64),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 64),
        ({}, 64),
    ],
)
def test_a_container_may_have_fewer_cores(
    files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "usable_cores", lambda: 64)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert allowed_cores(tmp_path) == cores


def test_processes_are_kept_from_run_to_run_in_a_block(tmp_path: Path) -> None:
    with LocalEngine(2) as local:
        first = set(local.run(Processes(), [[0], [1], [2]]))
        assert sorted(local.run(Meets(tmp_path, 2), [[0], [1]])) == [0, 1]
        workers = {int(path.stem) for path in tmp_path.glob("*.here")}
        assert first <= workers
        assert all(map(_is_alive, workers))
        assert set(local.run(Processes(), [[0], [1], [2]])) <= workers

        for process in workers:
            _kill(process)
        assert not workers & set(local.run(Processes(), [[0], [1], [2]]))
        with pytest.raises(ZeroDivisionError):
            list(local.run(Raises(ZeroDivisionError, "a bug"), GROUPS))
        assert sorted(s for s, _ in local.run(Squares(), GROUPS)) == [index * index for index in EVERY]


# --- what a worker is


def test_a_worker_has_our_path_and_nothing_else_of_ours() -> None:
    found = {int(str(one["process"])): one for one in LocalEngine(2).run(Surroundings(), [[0], [1], [2], [3]])}

    for one in found.values():
        assert one["modules"] == []
        assert one["path"] == [os.path.abspath(entry) for entry in sys.path]
        assert one["main"] is None
        assert one["sigint"] is True
        assert one["blocked"] == []
        assert one["threads"] == 2
        assert one["arrow_threads"] == os.environ.get("OMP_NUM_THREADS", str(max(1, allowed_cores() // 2)))
        assert one["stdin"] == b""
        assert one["sockets"] == 1


def test_arrow_imports_neither_pandas_nor_numpy_in_a_worker_but_a_task_may() -> None:
    needed = () if int(pa.__version__.partition(".")[0]) >= 18 else ("numpy",)
    assert set(LocalEngine(2).run(UsesArrow(), GROUPS)) == {(True, needed, 6)}


def test_a_task_imports_no_client_of_brokers_or_buckets_before_it_needs_one() -> None:
    found = "print(*(name for name in sys.modules if name.startswith(('segreader.broker', 'segreader.live'))))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, segreader.backfill.task; {found}; print('urllib3' in sys.modules)"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("\nFalse\n", "")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_job_imports_neither_spark_nor_pandas_in_any_process(processes: int, tmp_path: Path) -> None:
    for package in ("pyspark", "py4j", "pandas"):
        (tmp_path / f"{package}.py").write_text("raise RuntimeError(f'{__name__} is imported')\n")
    location = ROOT / "fixtures" / "corpus" / "aiven-plain" / "remote"
    job = ["--location", str(location), "--pattern", ".*", "--target", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "spark_jobs.backfill", *job, "--engine", "local", "--processes", str(processes)],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PATH": "", "JAVA_HOME": ""},
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("out/**/*.parquet"))) == 7


def test_a_script_without_main_guard_is_not_run_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"print('once', flush=True)\n{_program()}")
    assert _run(str(script)).splitlines() == ["once", "[0, 1, 4, 9]"]


def test_it_runs_from_a_command_and_from_a_prompt() -> None:
    assert _run("-c", _program()) == "[0, 1, 4, 9]\n"
    assert _run("-", stdin=_program()) == "[0, 1, 4, 9]\n"
    assert _run("-i", "-q", stdin=_program()).splitlines()[-1] == "[0, 1, 4, 9]"


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_it_runs_where_standard_streams_are_closed(closed: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_program(f"open({str(tmp_path / 'out')!r}, 'w').write(repr(%s))"))
    subprocess.run(["sh", "-c", f"exec {sys.executable} {script} {closed}"], check=True, cwd=ROOT, timeout=60)
    assert (tmp_path / "out").read_text() == "[0, 1, 4, 9]"


def test_it_runs_in_a_thread() -> None:
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.extend(s for s, _ in LocalEngine(2).run(Squares(), GROUPS)))
    thread.start()
    thread.join()
    assert sorted(results) == [index * index for index in EVERY]


def test_a_task_of_main_says_where_it_must_be(tmp_path: Path) -> None:
    text = _run(
        "-c",
        "from segreader.backfill.engine import LocalEngine\n"
        "def task(indexes): yield from indexes\n"
        "try: list(LocalEngine(2).run(task, [[0], [1]]))\n"
        "except Exception as error: print(type(error).__name__, error)",
    )
    assert text.startswith("OptionError a worker process cannot load the task; found AttributeError")
    assert text.endswith("must be in modules that can be imported, not in __main__\n")


# --- workers that die


def test_the_group_of_a_worker_that_was_killed_goes_on_where_it_was(journal: Journal) -> None:
    local = LocalEngine(2)

    assert sorted(local.run(DiesAt(journal, index=6), GROUPS)) == EVERY

    assert [journal.attempts(index) for index in EVERY] == [1, 1, 1, 1, 1, 1, 2, 1, 1]
    assert len(local.notes) == 1
    assert local.notes[0].startswith(f"orders-0/{6:020d}: attempt 1 failed, another follows: ")
    assert "signal 9 (SIGKILL)" in local.notes[0]


@pytest.mark.parametrize(
    ("number", "exit_code", "found", "hint"),
    [
        (signal.SIGKILL, None, "signal 9 (SIGKILL)", "fewer --processes, or a smaller --read-ahead-bytes"),
        (signal.SIGSEGV, None, "signal 11 (SIGSEGV)", "native library"),
        (signal.SIGTERM, None, "signal 15 (SIGTERM)", "stderr"),
        (signal.SIGKILL, 3, "exit code 3", "stderr"),
    ],
)
def test_a_split_that_kills_every_worker_is_named(
    number: int, exit_code: int | None, found: str, hint: str, journal: Journal
) -> None:
    task = DiesAt(journal, index=4, attempts=99, signal=number, exit_code=exit_code)
    with pytest.raises(WorkerDiedError) as caught:
        list(LocalEngine(2, attempts=2).run(task, GROUPS))

    error = caught.value
    assert str(error).startswith(f"orders-0/{4:020d}: the worker process that was at this split died in each of 2")
    assert found in str(error)
    assert hint in str(error)
    assert (error.index, error.exit_code) == (4, exit_code if exit_code is not None else -number)
    assert journal.attempts(4) == 2
    assert journal.attempts(3) == 1
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)


def test_workers_that_are_killed_at_random_lose_nothing() -> None:
    chance = random.Random(19)
    results, killed = [], 0
    for square, process in LocalEngine(2, attempts=50).run(
        Squares(0.005), [[3 * n, 3 * n + 1, 3 * n + 2] for n in range(40)]
    ):
        results.append(square)
        if chance.random() < 0.08:
            _kill(process)
            killed += 1

    assert sorted(results) == [index * index for index in range(120)]
    assert killed > 3


def test_workers_that_cannot_begin_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_START", "import os; os._exit(7)")
    with pytest.raises(WorkerDiedError, match=r"end before they have begun \(4 in a row\); found exit code 7"):
        list(LocalEngine(2).run(Squares(), GROUPS))


# --- tasks that raise


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    "error",
    [
        CorruptBatchError("the CRC is wrong", source="a.log", position=7, base_offset=3, found="9f", hint="Fetch it"),
        AccessDeniedError("no", source="s3://b/a"),
        ObjectNotFoundError("gone"),
        OptionError("unknown"),
        ZeroDivisionError("a bug"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_stays_is_raised_at_once_as_it_was(processes: int, error: Exception, journal: Journal) -> None:
    with pytest.raises(type(error)) as caught:
        list(LocalEngine(processes).run(RaisesAt(journal, 4, error, attempts=99), GROUPS))

    assert str(caught.value) == str(error)
    assert vars(caught.value) == vars(error)
    assert journal.attempts(4) == 1
    if processes > 1:
        assert "engine_tasks.py" in str(caught.value.__cause__)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_that_may_pass_is_tried_again(processes: int, journal: Journal) -> None:
    local = LocalEngine(processes)
    task = RaisesAt(journal, 4, ThrottledError("slow down", source="s3://b/a"), attempts=3)

    assert sorted(local.run(task, GROUPS)) == EVERY

    assert journal.attempts(4) == 4
    assert local.notes == [f"split 4: attempt {n} failed, another follows: s3://b/a: slow down" for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("processes", "error"),
    [(1, ThrottledError("slow down")), (2, ThrottledError("slow down")), (2, None)],
    ids=["here", "in a worker", "killed"],
)
def test_a_task_is_told_which_attempt_at_its_group_it_is(processes: int, error: Exception | None) -> None:
    found = dict(LocalEngine(processes).run(Counts(4, 2, error), GROUPS))

    assert found == {index: 2 if index == 4 else 0 for index in EVERY}  # of its group what was done before stays


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_that_does_not_pass_is_raised_after_the_last_attempt(processes: int, journal: Journal) -> None:
    with pytest.raises(StorageError, match="the network is down"):
        list(LocalEngine(processes, 3).run(RaisesAt(journal, 4, StorageError("the network is down"), 99), GROUPS))
    assert journal.attempts(4) == 3


def test_a_full_disk_is_not_tried_again(journal: Journal) -> None:
    error = StorageError("cannot write", source="/data")
    cause = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(StorageError, match="cannot write"):
        list(LocalEngine(2).run(RaisesAt(journal, 4, error, attempts=99, cause=cause), GROUPS))
    assert journal.attempts(4) == 1


@pytest.mark.parametrize(
    "kind", [WontTravelError, UnpicklableError, SystemExit, KeyboardInterrupt], ids=lambda kind: kind.__name__
)
def test_an_error_that_cannot_travel_is_told(kind: type[BaseException]) -> None:
    with pytest.raises(SegreaderError) as caught:
        list(LocalEngine(2).run(Raises(kind, "of a provider"), GROUPS))
    assert type(caught.value) is SegreaderError
    assert str(caught.value) == f"{kind.__name__}: of a provider"


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_task_with_another_number_of_results_is_a_bug(processes: int, count: int) -> None:
    with pytest.raises(RuntimeError, match="one result for each index: 2 indexes"):
        list(LocalEngine(processes).run(Yields(count), [[0, 1], [2, 3]]))


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (StorageError("x"), True),
        (AccessDeniedError("x"), False),
        (ConnectionFailedError("x"), True),
        (BrokerError("x", code=6), True),  # NOT_LEADER_OR_FOLLOWER
        (BrokerError("x", code=3), True),  # UNKNOWN_TOPIC_OR_PARTITION
        (BrokerError("x", code=29), False),  # TOPIC_AUTHORIZATION_FAILED
        (BrokerError("x"), False),
        (SchemaRegistryError("x", status=503), True),
        (SchemaRegistryError("x", status=404), False),
        (OSError("x"), False),
    ],
)
def test_what_may_pass(error: Exception, passes: bool) -> None:
    assert may_pass(error) is passes


# --- ends


def test_an_error_after_the_last_result_of_a_group_is_raised() -> None:
    for processes in (1, 2):
        with pytest.raises(ThrottledError, match="at the end"):
            list(LocalEngine(processes).run(FailsAtItsEnd(), GROUPS))


@pytest.mark.usefixtures("patient")
def test_closing_early_lets_workers_remove_what_they_write(tmp_path: Path) -> None:
    results = LocalEngine(2).run(CleansUp(tmp_path), [[0, 1], [2]])
    assert next(results) == 0
    _wait_for(lambda: len(_held_for_long(tmp_path)) == 2)

    began = time.monotonic()
    _close(results)

    assert _held(tmp_path) == []
    assert time.monotonic() - began < 20  # not the minute that a split takes


def test_a_worker_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    results = LocalEngine(2).run(HoldsOn(tmp_path), [[0, 1], [2]])
    next(results)
    _wait_for(lambda: len(list(tmp_path.glob("*.pid"))) == 2)

    _close(results)

    assert not any(_is_alive(int(path.stem)) for path in tmp_path.glob("*.pid"))


@pytest.mark.usefixtures("patient")
def test_an_error_stops_what_others_are_at(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        list(LocalEngine(2).run(FailsBeside(tmp_path), [[0], [1]]))
    assert _held(tmp_path) == []


@pytest.mark.parametrize("task", [CleansUp, HoldsOn], ids=lambda task: task.__name__)
def test_ctrl_c_ends_workers(task: type, tmp_path: Path) -> None:
    driver = _driver(task, tmp_path)
    workers = _wait_for(lambda: _busy(driver.pid, tmp_path))
    for process in (*workers, driver.pid):  # a terminal sends it to all
        os.kill(process, signal.SIGINT)

    output, _ = driver.communicate(timeout=30)

    assert driver.returncode == -signal.SIGINT
    assert output.count("Traceback") == 1
    assert output.rstrip().endswith("KeyboardInterrupt")
    assert not any(map(_is_alive, workers))
    assert _held(tmp_path) == []


@pytest.mark.parametrize("task", [CleansUp, HoldsOn], ids=lambda task: task.__name__)
def test_workers_whose_driver_is_killed_end(task: type, tmp_path: Path) -> None:
    driver = _driver(task, tmp_path)
    workers = _wait_for(lambda: _busy(driver.pid, tmp_path))
    driver.kill()
    driver.communicate(timeout=30)

    _wait_for(lambda: not any(map(_is_alive, workers)), seconds=10)
    assert _held(tmp_path) == []


@pytest.mark.parametrize("end", ["sys.exit(5)", "1 / 0", "os._exit(5)"])
def test_workers_end_with_a_program_that_forgets_the_results(end: str, tmp_path: Path) -> None:
    wait = f"while len(list(Path({str(tmp_path)!r}).glob('[12].held'))) < 2: time.sleep(0.01)\n"
    driver = _driver(CleansUp, tmp_path, before=f"print('going on', flush=True)\n{wait}{end}\n")
    driver.communicate(timeout=30)

    assert driver.returncode in (1, 5)
    _wait_for(lambda: not _held(tmp_path), seconds=10)


@pytest.mark.usefixtures("patient")
def test_results_that_are_forgotten_stop_the_workers(tmp_path: Path) -> None:
    results = LocalEngine(2).run(CleansUp(tmp_path), [[0, 1], [2]])
    next(results)
    _wait_for(lambda: len(_held_for_long(tmp_path)) == 2)

    del results

    assert _held(tmp_path) == []


def test_a_program_that_is_no_python_does_all_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    local = LocalEngine(2)
    assert {process for _, process in local.run(Squares(), GROUPS)} == {os.getpid()}
    assert local.notes == ["All work is done in one process: the program is no Python, so it starts no workers"]


def test_workers_end_when_the_driver_has_a_fork_that_lives_on(tmp_path: Path) -> None:
    driver = _driver(
        CleansUp,
        tmp_path,
        before="import warnings; warnings.simplefilter('ignore')\nif not os.fork(): time.sleep(60); os._exit(0)\n",
    )
    workers = _wait_for(lambda: _busy(driver.pid, tmp_path))
    forks = set(_children(driver.pid)) - set(workers)
    try:
        driver.kill()
        _wait_for(lambda: not any(map(_is_alive, workers)), seconds=10)
    finally:
        for fork in forks:
            _kill(fork)
        driver.communicate(timeout=30)


def test_a_slow_caller_makes_workers_wait(journal: Journal) -> None:
    size, count = 1 << 20, 200
    results = LocalEngine(2).run(Large(journal, size), [[index] for index in range(count)])
    first = next(results)
    time.sleep(1.5)
    made = sum(journal.attempts(index) for index in range(count))

    assert made < 60
    assert len(first) == size
    assert sum(map(len, results)) == (count - 1) * size


def _program(show: str = "print(%s)") -> str:
    """A program without anything that keeps it from being run again."""
    results = "sorted(s for s, _ in LocalEngine(2).run(Squares(), [[0, 1], [2, 3]]))"
    return (
        f"import sys; sys.path.insert(0, {str(SUPPORT)!r})\n"
        "from engine_tasks import Squares\n"
        "from segreader.backfill.engine import LocalEngine\n"
        f"{show % results}\n"
    )


def _run(*arguments: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], input=stdin, stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=60, check=True
    )
    return done.stdout


def _driver(task: type, folder: Path, before: str = "") -> subprocess.Popen[str]:
    """A driver whose two workers do not end of themselves."""
    patient = f"from segreader.backfill import engine; engine._GRACE_S = {PATIENCE_S}\n" if task is CleansUp else ""
    program = (
        f"import os, sys, time; from pathlib import Path; sys.path.insert(0, {str(SUPPORT)!r})\n"
        f"{patient}"
        f"from engine_tasks import {task.__name__}\n"
        "from segreader.backfill.engine import LocalEngine\n"
        f"results = LocalEngine(2).run({task.__name__}(Path({str(folder)!r})), [[0, 1], [2]])\n"
        "next(results)\n"
        f"{before}"
        "print('going on', flush=True)\n"
        "list(results)\n"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "going on\n"
    return driver


def _busy(driver: int, folder: Path) -> list[int]:
    """The workers of a driver, when both are in a split that does not end."""
    written = [int(file.read_text() or 0) for file in _held_for_long(folder)]
    written += [int(file.stem) for file in folder.glob("*.pid")]
    return written if len(written) == 2 and set(written) <= set(_children(driver)) else []


def _held(folder: Path) -> list[Path]:
    return list(folder.glob("*.held"))


def _held_for_long(folder: Path) -> list[Path]:
    """Those of the splits that do not end, and not that of split 0, which may be about to go."""
    return list(folder.glob("[12].held"))


_V = TypeVar("_V")


def _wait_for(look: Callable[[], _V], seconds: float = 30) -> _V:
    """What is looked for, as soon as it is true."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)
    return found


def _children(process: int) -> list[int]:
    return [int(one) for task in _listed(f"/proc/{process}/task") for one in _text(f"{task}/children").split()]


def _listed(folder: str) -> list[Path]:
    try:
        return list(Path(folder).iterdir())
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _is_alive(process: int) -> bool:
    """Neither gone nor a zombie, which waits only for its parent."""
    return _text(f"/proc/{process}/stat").rpartition(")")[2].split()[:1] not in ([], ["Z"])


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _close(results: Iterator[object]) -> None:
    assert isinstance(results, Generator)
    results.close()
