"""How often Python looks for cycles is the host's choice: only programs of this project set it, for themselves."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from corpus import case

from segreader import scan, values
from segreader.catalog.metadata_topic import read_remote_log_metadata
from segreader.storage.local import LocalStore

ONE = case("tv2", "txn-span")
METADATA = ONE.root / "metadata"
ROOT = Path(__file__).parents[1]
TOUCHED = ("disable", "enable", "freeze", "unfreeze", "set_threshold", "collect")


@contextmanager
def watched() -> Iterator[set[tuple[Any, ...]]]:
    """What another thread sees of the collector while the block runs."""
    seen: set[tuple[Any, ...]] = set()
    is_over, has_begun = threading.Event(), threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            seen.add((gc.isenabled(), *gc.get_threshold()))
            has_begun.set()

    thread = threading.Thread(target=watch)
    thread.start()
    has_begun.wait()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


def plan_and_read() -> None:
    with scan(ONE.root / "remote", topic=ONE.topic, log_directory=ONE.local[0].parent) as found:
        found.plan()
        assert sum(1 for _ in found.records())


def read_all_metadata() -> None:
    assert read_remote_log_metadata(LocalStore(METADATA), "").partitions()


def plan_by_metadata() -> None:
    with scan(ONE.root / "remote", topic=ONE.topic, metadata=METADATA, segments_from="metadata") as found:
        assert found.plan().splits


def ask_the_source_of_spark() -> None:
    pytest.importorskip("pyspark")
    from segreader.spark.batch import SegmentReader
    from segreader.spark.options import parse_options

    options = parse_options({"path": str(ONE.root / "remote"), "subscribe": ONE.topic})
    assert SegmentReader(options, ("offset",)).partitions()


def plan_a_backfill() -> None:
    pytest.importorskip("pyspark")
    from segreader.backfill.job_plan import JobRequest, make_plan
    from segreader.backfill.output import OutputOptions

    options = {"path": str(ONE.root / "remote"), "subscribe": ONE.topic}
    assert make_plan(JobRequest(wanted=options, options=options, output=OutputOptions())).data


@pytest.mark.parametrize(
    "use", [plan_and_read, read_all_metadata, plan_by_metadata, ask_the_source_of_spark, plan_a_backfill]
)
def test_a_call_of_the_library_leaves_the_collector_of_its_host_alone(
    use: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (gc.isenabled(), *gc.get_threshold())
    touched: list[str] = []
    for name in TOUCHED:
        monkeypatch.setattr(gc, name, lambda *_, name=name: touched.append(name))
    with watched() as seen:
        use()

    assert touched == []
    assert seen == {before}


@pytest.mark.parametrize("program", ["segreader.cli.main", "spark_jobs.backfill", "spark_jobs.verify"])
def test_a_program_of_ours_has_its_process_collect_seldom(program: str) -> None:
    if program.startswith("spark_jobs"):
        pytest.importorskip("pyspark")
    code = f"import gc, sys; from {program} import main; sys.argv = ['x', '--help']; main(); print(gc.get_threshold())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.splitlines()[-1] == str(values._THRESHOLDS)


def test_a_command_that_is_called_from_python_leaves_the_collector_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from segreader.cli.main import main

    touched: list[str] = []
    for name in TOUCHED:
        monkeypatch.setattr(gc, name, lambda *_, name=name: touched.append(name))
    assert main(["ls", str(ONE.root / "remote")]) == 0

    assert touched == []


@pytest.mark.parametrize(("program", "thresholds"), [("pyspark.daemon", values._THRESHOLDS), ("pytest", None)])
def test_the_source_sets_the_collector_only_in_a_process_that_spark_started(
    program: str, thresholds: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    from segreader.spark.worker import prepare_to_plan

    set_to: list[tuple[int, ...]] = []
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *given: set_to.append(given))
    monkeypatch.setitem(sys.modules, "__main__", _Main(program))
    prepare_to_plan.cache_clear()
    prepare_to_plan()
    prepare_to_plan.cache_clear()

    assert set_to == ([] if thresholds is None else [thresholds])


class _Main:
    def __init__(self, name: str) -> None:
        self.__spec__ = type("Spec", (), {"name": name})()
