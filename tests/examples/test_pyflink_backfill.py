"""The PyFlink example on Flink's mini-cluster: two task slots, killed with all its processes, and begun again."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from corpus import Case, NormalRecord, case, normal
from quick_jvm import QUICK

from segreader.loader import LoaderSplit

if importlib.util.find_spec("pyflink") is None:
    pytest.skip(
        "apache-flink is not installed here: it wants an older pyarrow than the rest; make test-flink runs these",
        allow_module_level=True,
    )

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
LIMIT_S = 600.0
"""Far more than anything here takes; a machine may be busy with other things."""


@dataclass
class Watched:
    """Runs of the example over one topic, one after another, with what they left behind.

    Args:
        place: a directory of this test's own.
        location: where the segments are.
        topic: which one.
    """

    place: Path
    location: Path
    topic: str

    @property
    def output(self) -> Path:
        return self.place / "output"

    @property
    def work(self) -> Path:
        return self.place / "work"

    @property
    def seen(self) -> Path:
        return self.place / "slices.ndjson"

    def begin(self, *, rows: int, checkpoint_ms: int, pause: float = 0) -> subprocess.Popen[str]:
        """Start the example in a process group of its own."""
        self.seen.unlink(missing_ok=True)
        scratch = self.place / "scratch"
        scratch.mkdir(exist_ok=True)
        environ = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "examples"), str(SUPPORT)]),
            "WATCHED_SLICES": str(self.seen),
            "WATCHED_PAUSE": str(pause),
            "TMPDIR": str(scratch),
            "JVM_ARGS": f"-Xmx512m {' '.join(QUICK)} -Djava.io.tmpdir={scratch}",
        }
        arguments = [
            *("--location", self.location, "--topic", self.topic, "--output", self.output, "--work", self.work),
            *("--rows", str(rows), "--checkpoint-ms", str(checkpoint_ms)),
        ]
        return subprocess.Popen(
            [sys.executable, str(SUPPORT / "pyflink_watched.py"), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
            start_new_session=True,
        )

    def run(self, *, rows: int, checkpoint_ms: int) -> list[dict[str, Any]]:
        """Run it to its end; the offsets that it prints."""
        process = self.begin(rows=rows, checkpoint_ms=checkpoint_ms)
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        finally:
            kill_group(process)
        assert process.returncode == 0, err
        offsets: list[dict[str, Any]] = json.loads(out.splitlines()[-1])
        return offsets

    def run_until(self, happened: Callable[[], bool], *, checkpoint_ms: int) -> None:
        """Run it slowly, and kill every process of it when something has happened."""
        process = self.begin(rows=3, checkpoint_ms=checkpoint_ms, pause=0.3)
        until = time.monotonic() + LIMIT_S
        try:
            while not happened():
                assert process.poll() is None, "".join(process.communicate())
                assert time.monotonic() < until, f"nothing of the kind: {self.read_slices()[-3:]}"
                time.sleep(0.02)
        finally:
            kill_group(process)

    def read_slices(self) -> list[dict[str, Any]]:
        """What the workers of the run that is under way, or was the last, have read."""
        lines = self.seen.read_text().splitlines(keepends=True) if self.seen.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def checkpoints(self) -> list[int]:
        """When the checkpoints were complete that are there, in ns. Flink removes old ones while one looks."""
        times = []
        for path in self.work.glob("checkpoints/*/*/chk-*/_metadata"):
            with contextlib.suppress(FileNotFoundError):
                times.append(path.stat().st_mtime_ns)
        return sorted(times)

    def torn(self) -> set[int]:
        """Offsets that Flink was given after the last checkpoint, of splits whose first records that one committed."""
        complete = self.checkpoints()
        if not complete:
            return set()
        committed = {record.offset for record in self.committed()}
        splits = [LoaderSplit.from_json(one) for one in json.loads((self.work / "round.json").read_text())["splits"]]
        begun = {one.id for one in splits if not committed.isdisjoint(range(one.start, one.stop))}
        later = [one for one in self.read_slices() if one["begun_ns"] > complete[-1]]
        found = set()
        for at, one in enumerate(later):
            has_left = any(one["slot"] == next_one["slot"] for next_one in later[at + 1 :])  # else: perhaps not yet
            if has_left and one["split_id"] in begun:
                found.update(one["offsets"])
        return found

    def committed(self) -> list[NormalRecord]:
        """The records of all files that are no longer being written, by partition and offset."""
        lines = [json.loads(line) for file in self.output.glob("[!.]*") for line in file.read_text().splitlines()]
        records = [normal(line | {"timestamp": line["timestamp_ms"]}) for line in lines]
        return sorted(records, key=lambda record: (record.partition, record.offset))


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a process and all that it started, at once and with no chance to tidy up, and wait until they are gone."""
    group = process.pid
    until = time.monotonic() + 30
    while alive := members(group):
        assert time.monotonic() < until, alive
        with contextlib.suppress(ProcessLookupError):  # the last of them ended meanwhile
            os.killpg(group, signal.SIGKILL)
        process.poll()
        time.sleep(0.05)
    process.communicate()


def members(group: int) -> list[int]:
    """The processes of a group that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, process_group = stat.read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue  # it is gone
        if int(process_group) == group and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


def upload(tier: Path, case: Case, *, below: int) -> Path:
    """What had been uploaded when the log ended at an offset: the segments that begin below it."""
    for directory in case.remote:
        target = tier / "kafka-tiered-storage" / directory.name
        target.mkdir(parents=True, exist_ok=True)
        for file in directory.iterdir():
            if int(file.name[:20]) < below:
                shutil.copy2(file, target)
    return tier


@pytest.fixture(scope="module")
def span() -> Case:
    return case("tv2", "txn-span")


def test_a_load_that_is_killed_twice_ends_with_each_committed_record_once(tmp_path: Path, span: Case) -> None:
    watched = Watched(tmp_path, span.root / "remote", span.topic)

    watched.run_until(lambda: bool(watched.torn()), checkpoint_ms=1_500)
    slots = {one["slot"] for one in watched.read_slices()}
    watched.run_until(lambda: bool(watched.torn()), checkpoint_ms=600_000)  # it goes on, and takes no checkpoint itself
    assert any(one["restored"] is not None and one["inside_aborted"] for one in watched.read_slices())
    torn = watched.torn()
    assert not torn & {record.offset for record in watched.committed()}

    ends = watched.run(rows=3, checkpoint_ms=500)
    after = watched.read_slices()
    assert torn <= {offset for one in after for offset in one["offsets"]}  # they were read again
    assert slots == {0, 1}
    assert watched.committed() == span.truth("committed")
    assert ends == [{"topic": span.topic, "partition": 0, "offset": span.remote_stop(0)}]
    assert not watched.checkpoints()  # a load that has ended cannot be gone on with by mistake


def test_a_load_that_had_ended_reads_only_what_was_uploaded_since(tmp_path: Path) -> None:
    interleaved = case("tv2", "txn-interleaved")
    watched = Watched(tmp_path, upload(tmp_path / "tier", interleaved, below=110), interleaved.topic)

    (end,) = watched.run(rows=10, checkpoint_ms=500)
    first = watched.read_slices()
    truth = interleaved.truth("committed")
    assert watched.committed() == [record for record in truth if record.offset < end["offset"]]
    assert watched.run(rows=10, checkpoint_ms=500) == [end]
    assert watched.read_slices() == []  # nothing was new, so no job was started

    upload(watched.location, interleaved, below=1000)
    (end,) = watched.run(rows=10, checkpoint_ms=500)
    assert end["offset"] == interleaved.remote_stop(0)
    assert watched.committed() == truth
    again = {one["split_id"] for one in watched.read_slices()} & {one["split_id"] for one in first}
    assert not again


def test_a_round_with_files_and_without_its_checkpoints_is_not_read_again(tmp_path: Path, span: Case) -> None:
    watched = Watched(tmp_path, span.root / "remote", span.topic)
    watched.output.mkdir()
    (watched.output / "round-1-a-0.ndjson").write_text("")

    process = watched.begin(rows=3, checkpoint_ms=500)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert err.startswith("There are files of this round, and no checkpoint")
