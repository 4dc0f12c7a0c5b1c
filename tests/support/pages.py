"""The pages of documentation, and the code on them."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CLI = ("reference/cli", "reference/cli-records", "reference/cli-objects")
"""The pages of the commands."""


def page(*names: str) -> str:
    """The text of pages by their names below ``docs``, one after another."""
    return "\n".join((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in names)


def blocks(text: str, language: str) -> list[str]:
    """The blocks of one language in a page's text, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def documented(after: str) -> list[str]:
    """The names in the first table of fields after some text on the pages of the commands."""
    text = page(*CLI)
    table = text[text.index(after) :].split("| field | type | meaning |\n", 1)[1].split("\n\n", 1)[0]
    return re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)


def names(value: Any, path: str = "") -> Iterator[str]:
    """The names in a row, those of nested objects with their path."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield path + name
            yield from names(inner, f"{path}{name}.")
    elif isinstance(value, list):
        for inner in value:
            yield from names(inner, f"{path[:-1]}[].")


def run(command: list[str] | str, directory: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """What a command prints, as someone sees it who has installed this tree."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=directory,
        shell=isinstance(command, str),
        executable="/bin/bash" if isinstance(command, str) else None,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "140", **variables},
    )


def generator(name: str) -> ModuleType:
    """A program in ``docs`` that writes a page or a picture."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
