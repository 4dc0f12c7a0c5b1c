"""Backfills by the command line without Spark: each is a process of its own, with the workers that it starts."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

COMMAND = Path(sys.executable).with_name("segreader")
_BYTECODE = Path(tempfile.gettempdir()) / f"segreader-bench-bytecode-{os.getuid()}"


@dataclass(frozen=True, slots=True)
class Ended:
    """What one command took, its workers included.

    Args:
        cpu, wall: seconds.
        report: what ``--report`` says; nothing where none was asked for.
        text: its stdout.
    """

    cpu: float
    wall: float
    report: dict[str, Any]
    text: str = ""


@dataclass(frozen=True, slots=True)
class LocalJob:
    """Backfills of one topic with ``--engine local`` into targets that are made anew each time.

    Args:
        location, topic: what is read.
        records: that the target must have in the end.
        scratch: a directory for what is written.
    """

    location: Path
    topic: str
    records: int
    scratch: Path

    def parquet(self) -> None:
        """Plain files."""
        self.run("parquet")

    def iceberg(self) -> None:
        """A table in a catalog of SQLite."""
        self.run("iceberg")

    def delta(self) -> None:
        """A table of Delta."""
        self.run("delta")

    def run(self, to: str, *flags: str, cores: Collection[int] = ()) -> Ended:
        """Do it, and see that the target has each record.

        Args:
            flags: further ones.
            cores: the command and its workers run on these alone.
        """
        place = self.place(to)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        report = place / "report.json"
        arguments = ["--location", str(self.location), "--topic", self.topic, "--engine", "local", "--to", to]
        ended = run_command([*arguments, *target_of(to, place), "--report", str(report), *flags], cores)
        found = json.loads(report.read_text())
        if found["totals"]["records"] != self.records:
            raise RuntimeError(f"{to} has {found['totals']['records']} records of {self.records}")
        return Ended(ended.cpu, ended.wall, found, ended.text)

    def place(self, to: str) -> Path:
        return self.scratch / self.topic / f"local-{to}"

    def check(self, to: str) -> list[int]:
        """Sizes of the Parquet files, which must hold each record."""
        files = sorted((self.place(to) / "out").rglob("*.parquet"))
        rows = sum(pq.read_metadata(file).num_rows for file in files)
        if rows != self.records:
            raise RuntimeError(f"the files of {to} hold {rows} records of {self.records}")
        return [file.stat().st_size for file in files]


def target_of(to: str, place: Path) -> list[str]:
    """The flags that name a target below a directory."""
    if to != "iceberg":
        return ["--target", str(place / "out")]
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{place / 'catalog.db'}",
        "warehouse": f"file://{place / 'out'}",
    }
    options = [text for name, value in catalog.items() for text in ("--catalog-option", f"{name}={value}")]
    return ["--catalog", "bench", "--table", "bench.records", *options]


def run_command(arguments: Sequence[str], cores: Collection[int] = ()) -> Ended:
    """Run ``segreader backfill``; raises ``RuntimeError`` with its stderr where it fails.

    Modules are compiled once, as where a package is installed: an environment that keeps no bytecode (containers say
    ``PYTHONDONTWRITEBYTECODE=1``) would have each process compile all of them anew.
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(_BYTECODE)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, began = _children_cpu(), time.perf_counter()
    with subprocess.Popen(
        [COMMAND, "backfill", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None,
    ) as process:
        out, said = process.communicate()
    if process.returncode:
        raise RuntimeError(f"the backfill ended with {process.returncode}: {said}")
    return Ended(_children_cpu() - before, time.perf_counter() - began, {}, out)


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
