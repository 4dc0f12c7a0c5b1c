"""The pages of documentation: their code runs, their commands exist, their links lead somewhere, none is too long.

A block's language decides how it is tested. ``python`` and ``sh`` run on the fixtures; ``console`` runs and prints what
is shown. ``py`` and ``bash`` need a cluster, a bucket or Spark: ``py`` must parse, ``bash`` use options that exist.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from pages import DOCS, ROOT, blocks

from segreader.cli.exit_codes import ExitCode
from segreader.cli.main import cli

PAGES = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *DOCS.glob("**/*.md")])
GENERATED = {Path("docs/reference/api.md")}
ELSEWHERE = {Path("README.md"), Path("docs/how-to/loader.md"), Path("docs/how-to/asyncio.md")}
"""Their code runs in tests of their own."""
LONGEST = 300


def of(language: str, *, without: set[Path] = GENERATED) -> list[tuple[Path, str]]:
    """Every block of a language, and its page."""
    texts = {page: (ROOT / page).read_text() for page in PAGES if page not in without}
    return [(page, code) for page, text in texts.items() for code in blocks(text, language)]


def commands(language: str, *, without: set[Path] = GENERATED) -> list[tuple[Path, str]]:
    """Every command of segreader in blocks of a language; a command may go on in the next line."""
    found = []
    for page, code in of(language, without=without):
        lines = code.replace("\\\n", "").splitlines()
        found += [(page, line.split(" #")[0].strip()) for line in lines if line.startswith("segreader ")]
    return found


def run(command: list[str] | str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=ROOT,
        shell=isinstance(command, str),
        executable="/bin/bash" if isinstance(command, str) else None,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "140"},
    )


@pytest.mark.parametrize(("page", "code"), of("python", without=ELSEWHERE | GENERATED))
def test_the_python_of_a_page_runs(page: Path, code: str) -> None:
    done = run([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize(("page", "command"), commands("sh", without=ELSEWHERE | GENERATED))
def test_the_commands_of_a_page_run(page: Path, command: str) -> None:
    done = run(command)
    assert done.returncode in (ExitCode.OK, ExitCode.FINDINGS), done.stderr
    assert done.stdout or command.startswith("segreader verify")


@pytest.mark.parametrize(("page", "code"), of("console"))
def test_the_output_on_a_page_is_what_the_command_prints(page: Path, code: str) -> None:
    command, _, shown = code.partition("\n")
    done = run(command.removeprefix("$ "))
    assert (done.returncode, done.stdout) == (0, shown), done.stderr


@pytest.mark.parametrize(("page", "code"), of("py"))
def test_the_python_that_needs_more_than_the_fixtures_compiles(page: Path, code: str) -> None:
    ast.parse(code.replace("…", "..."))


@pytest.mark.parametrize(("page", "command"), commands("bash"))
def test_the_options_of_a_command_on_a_page_exist(page: Path, command: str) -> None:
    words = shlex.split(command)[1:]
    found: click.Command | None = cli
    while isinstance(found, click.Group):
        found = found.get_command(click.Context(found), words.pop(0))
    assert found is not None
    known = {name for one in found.params if isinstance(one, click.Option) for name in [*one.opts, *one.secondary_opts]}
    assert {word.split("=")[0] for word in words if re.match("--?[a-z]", word)} <= known


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = (ROOT / page).read_text()
    links = re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", re.sub("`[^`]*`", "", text))
    for path, heading in links:
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), path
        if heading:
            titles = re.findall("^#+ (.*)", target.read_text(), re.MULTILINE)
            assert heading in {re.sub("[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [page for page in PAGES if page.parts[0] == "docs" and page not in GENERATED], ids=str)
def test_a_page_can_be_read_in_one_go(page: Path) -> None:
    assert len((ROOT / page).read_text().splitlines()) <= LONGEST


def test_no_page_installs_the_package_from_an_index_that_does_not_have_it() -> None:
    named = re.compile(r"pip install [^\n]*'segreader\[|pip install segreader")
    assert [str(page) for page in PAGES if named.search((ROOT / page).read_text())] == []
