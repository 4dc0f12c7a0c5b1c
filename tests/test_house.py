"""What keeps the code easy to find one's way in, as far as it can be counted."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_ENTRIES = 15
LARGER = {
    "segreader": 31,  # the packages are the table of contents
    "segreader/cli/commands": 18,  # a module for each command
}
"""Folders that show more than is easily looked over, and how many entries they may show: fewer with every change."""


def test_every_class_of_the_library_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.glob("segreader/**/*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")

    assert len(places) > 500
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_folders_show_few_entries_or_are_named_here() -> None:
    folders = [ROOT / "segreader", *(path.parent for path in ROOT.glob("segreader/*/**/__init__.py"))]
    found = {str(folder.relative_to(ROOT)): _entries(folder) for folder in folders}
    large = {name: count for name, count in found.items() if count > LARGER.get(name, MOST_ENTRIES)}

    assert large == {}


def _entries(folder: Path) -> int:
    """Modules and packages in a folder, itself not counted."""
    modules = [path for path in folder.iterdir() if path.suffix in (".py", ".pyx") and path.name != "__init__.py"]
    return len(modules) + sum((path / "__init__.py").exists() for path in folder.iterdir() if path.is_dir())
