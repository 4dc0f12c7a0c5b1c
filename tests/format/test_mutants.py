"""What ``make mutants`` makes of the native kernel's sources."""

from __future__ import annotations

import shutil
from pathlib import Path

import mutants
import pytest
from mutants import SOURCES, Mutant, Source, Verdicts, known_to_live, write_sources


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
    found = list(map(str, write_sources(tmp_path)))
    assert len(set(found)) == len(found)
    assert {mutant.split()[0] for mutant in found} == {name for names in SOURCES.values() for name in names}
    known = known_to_live()
    assert not set(known) - set(found)
    assert all(known.values())


@pytest.mark.parametrize(
    ("changed", "death_holds", "life_holds"),
    [
        ("nothing", True, True),
        ("_rows.h", True, True),
        ("_codecs.h", False, False),
        ("a.py", False, False),
        ("b.py", True, False),
    ],
)
def test_a_verdict_holds_while_the_files_that_it_rests_on_are_what_they_were(
    changed: str, death_holds: bool, life_holds: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ROOT", "FORMAT", "BUILD"):
        monkeypatch.setattr(mutants, name, tmp_path)
    monkeypatch.setattr(mutants, "VERDICTS", tmp_path / "verdicts")
    for name in (*(one for names in SOURCES.values() for one in names), "a.py", "b.py"):
        (tmp_path / name).write_text(name)
    dead, alive = (Mutant(0, "_codecs.h f", change) for change in ("a => true", "a => false"))
    before = Verdicts(["a.py::test", "b.py"])
    before.add(dead, "a.py::test[x]")
    before.add(alive, None)
    (tmp_path / changed).write_text("changed")

    after = Verdicts(["a.py::test", "b.py"])

    assert (after.holds(dead), after.holds(alive)) == (death_holds, life_holds)
    assert (after.killer(dead), after.killer(alive)) == ("a.py::test[x]", None)
    assert not after.holds(Mutant(0, "_codecs.h f", "b => true"))
