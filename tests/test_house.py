"""What keeps the code easy to find one's way in, as far as it can be counted."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_class_of_the_library_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.glob("segreader/**/*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")

    assert len(places) > 500
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
