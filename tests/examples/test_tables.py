"""The examples for DuckDB and Polars: what they print is what the corpus says."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from corpus import Digest, case
from sample import exhaustive

ROOT = Path(__file__).parents[2]
LOCATION = "fixtures/corpus/tv2/remote"
EXAMPLES = ["duckdb_tables.py", "polars_tables.py"]


def run(example: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, f"examples/{example}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT), "PATH": ""})


@pytest.mark.parametrize("example", EXAMPLES)
def test_it_prints_what_the_corpus_has(example: str) -> None:
    truth = case("tv2", "multi").truth("committed")
    counts = Counter(record.partition for record in truth)
    expected = [f"multi-{partition}: {count} records" for partition, count in sorted(counts.items())]
    for record in truth:
        if record.partition == 0 and 10 <= record.offset <= 12:
            value = record.value
            size = value.length if isinstance(value, Digest) else len(value or b"")
            expected.append(f"offset {record.offset}: {size} bytes")
    done = run(example, LOCATION, "multi")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [([LOCATION, "none"], "none"), exhaustive(["/nowhere", "t"], "nowhere"), exhaustive([], "usage")],
)
def test_it_says_what_is_wrong_without_a_traceback(example: str, arguments: list[str], said: str) -> None:
    done = run(example, *arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
