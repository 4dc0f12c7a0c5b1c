"""docs/reference/api.md is what the code says, and the code says something of every public name."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
from pathlib import Path

import pytest
from pages import generator

API = generator("make_api")
MODULES = API.public_modules()
NAMES = [(module.__name__, name, one) for module in MODULES for name, one in API.public_names(module).items()]


def test_the_page_is_what_the_generator_makes() -> None:
    assert API.PAGE.read_text(encoding="utf-8") == API.page(), "run: make api"


def test_the_modules_that_users_import_are_on_it() -> None:
    assert {"segreader", "segreader.loader", "segreader.spark", "segreader.testing"} <= {
        one.__name__ for one in MODULES
    }


@pytest.mark.parametrize(("module", "name", "one"), NAMES, ids=[f"{module}.{name}" for module, name, _ in NAMES])
def test_a_public_name_and_its_members_have_docstrings(module: str, name: str, one: object) -> None:
    assert API.docstring(one), f"{module}.{name}"
    if inspect.isclass(one) and not issubclass(one, enum.Enum):
        without = [member for member, value in API.members(one) if not API.docstring(value)]
        assert not without, f"{module}.{name}: {without}"


def test_every_public_name_has_a_place_on_the_page() -> None:
    page = API.page()
    for _, name, _ in NAMES:
        assert f"### {name}\n" in page or f"| `{name}` |" in page, name


@pytest.mark.parametrize("package", ["segreader", "segreader.loader"])
def test_type_checkers_see_every_lazy_name_from_where_it_comes(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__file__ is not None
    for_checkers = {
        f"{node.module}.{alias.asname}"
        for block in ast.parse(Path(module.__file__).read_bytes()).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    lazy = {name for name in module.__all__ if not name.startswith("_")}
    assert {one.rpartition(".")[2] for one in for_checkers} == lazy
    for one in for_checkers:
        home, _, name = one.rpartition(".")
        assert getattr(importlib.import_module(home), name) is getattr(module, name), one


def test_a_name_without_a_docstring_is_seen() -> None:
    from dataclasses import dataclass

    @dataclass
    class Bare:
        x: int

    class Error(ValueError):
        pass

    assert API.docstring(Bare) is None
    assert API.docstring(Error) is None
