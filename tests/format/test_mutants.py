"""What ``make mutants`` makes of the native kernel's sources."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mutants import SOURCES, Source, known_to_live, write_sources


def changes(language: str, text: str) -> list[str]:
    source = Source(language, "source", iter(range(99)))
    source.rewritten(text)
    return [mutant.change for mutant in source.mutants]


def test_each_part_of_a_condition_is_left_out_and_each_bound_is_moved() -> None:
    assert changes("c", "int f(int a) { if (a < 1 && g(a)) return a; }") == [
        "a < 1 && g(a) => true",
        "a < 1 && g(a) => false",
        "a < 1 => true",
        "a < 1 => a <= 1",
        "g(a) => true",
    ]
    assert changes("py", "def f(a):\n    if not a or (a >= <int64_t>b):\n        pass\n") == [
        "not a or (a >= <int64_t>b) => true",
        "not a or (a >= <int64_t>b) => false",
        "not a => false",
        "a >= <int64_t>b => false",
        "a >= <int64_t>b => a > <int64_t>b",
    ]
    assert changes("c", "int f(int a) { return a & 8 ? a : 0; }") == ["a & 8 => true", "a & 8 => false"]
    assert changes("py", "if not (a and b):\n    pass\n") == [
        "not (a and b) => true",
        "not (a and b) => false",
        "a => true",
        "b => true",
    ]
    assert changes("py", "x = a + 1\n") == []


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc looks which conditions are compiled")
def test_every_mutant_that_may_live_is_one_and_has_a_reason(tmp_path: Path) -> None:
    mutants = list(map(str, write_sources(tmp_path)))
    assert len(set(mutants)) == len(mutants)
    assert {mutant.split()[0] for mutant in mutants} == {name for names in SOURCES.values() for name in names}
    known = known_to_live()
    assert not set(known) - set(mutants)
    assert all(known.values())
