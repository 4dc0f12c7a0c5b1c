"""The asyncio example: its output, the records that it reads, and how it ends when something is wrong."""

from __future__ import annotations

import asyncio
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from corpus import case

ROOT = Path(__file__).parents[2]
LOCATION = "fixtures/corpus/tv2/remote"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "examples/asyncio_batches.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )


def test_it_prints_how_many_records_the_corpus_has() -> None:
    done = run(LOCATION, "txn-span", "multi")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{topic}: {len(case('tv2', topic).truth('committed'))} records in {count} partitions"
        for topic, count in (("txn-span", 1), ("multi", 4))
    ]


def test_it_reads_the_records_of_all_its_topics_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names = runpy.run_path("examples/asyncio_batches.py")
    topics = ["txn-interleaved", "nulls", "txn-span"]

    async def read() -> dict[str, list[tuple[int, bytes | None]]]:
        found: Any = asyncio.Queue()
        await asyncio.gather(*(names["read"](LOCATION, topic, found) for topic in topics))
        rows: dict[str, list[tuple[int, bytes | None]]] = {topic: [] for topic in topics}
        while not found.empty():
            topic, batch = found.get_nowait()
            for row in [] if batch is None else batch.select(["offset", "key"]).to_pylist():
                rows[topic].append((row["offset"], row["key"]))
        return rows

    rows = asyncio.run(read())
    for topic in topics:
        assert rows[topic] == [(record.offset, record.key) for record in case("tv2", topic).truth("committed")]


@pytest.mark.parametrize(("arguments", "said"), [([LOCATION, "multi", "none"], "none"), ([], "usage")])
def test_it_says_what_is_wrong_without_a_traceback(arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
