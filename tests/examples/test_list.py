"""examples/README.md lists what is there, and each of it is run by tests."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
THERE = {path.name for path in (ROOT / "examples").glob("*.py")}


def test_every_example_is_listed_and_every_one_listed_is_there() -> None:
    listed = re.findall(r"^\| `([a-z_]+\.py)` \|", (ROOT / "examples" / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(THERE)


def test_every_example_is_run_by_a_test() -> None:
    tests = "".join(path.name + path.read_text() for path in (ROOT / "tests" / "examples").glob("test_*.py"))
    assert {name for name in THERE if name not in tests} == set()
