"""The pages of documentation: their code runs, their commands exist, their links lead somewhere, none is too long.

A block's language decides how it is tested. ``python`` and ``sh`` run on the fixtures; ``console`` runs and prints what
is shown. ``py`` and ``bash`` need a cluster, a bucket or Spark: ``py`` must parse, ``bash`` use options that exist.
"""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import chdir
from glob import glob
from pathlib import Path

import click
import pytest
from pages import DOCS, ROOT, blocks, run

from segreader.cli.commands.backfill import JobCommand
from segreader.cli.exit_codes import ExitCode
from segreader.cli.main import cli, main

PAGES = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *DOCS.glob("**/*.md")])
GENERATED = {Path("docs/reference/api.md")}
ELSEWHERE = {Path("docs/how-to/loader.md"), Path("docs/how-to/asyncio.md")}
"""Their code runs in tests of their own."""
LONGEST = 300
TOLD = {
    "segreader cat fixtures/corpus/tv2/remote txn-marker-active": "ends at offset 11, the last stable one",
    "segreader cat fixtures/corpus/tv2/remote multi --key user-00932": "only partition 0 is read",
    "segreader cat fixtures/corpus/tv2/remote multi --grep 'birch ocean' --last 1": "records read match",
}
"""What a command says on stderr besides those of ``ENDS``; the others say nothing there."""
ENDS = {"segreader verify": "0 errors, 0 warnings", "segreader sql": " s, read "}
"""What every one of these says in the end; an EXPLAIN reads nothing, and says nothing."""
Shell = Callable[[str], tuple[int, str, str]]


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


@pytest.mark.parametrize(("page", "code"), of("python", without=ELSEWHERE | GENERATED))
def test_the_python_of_a_page_runs(page: Path, code: str) -> None:
    done = run([sys.executable, "-c", code])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Shell:
    """Runs a command of segreader in this process: exit code, stdout, stderr."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "140")

    def called(command: str) -> tuple[int, str, str]:
        words = [path for word in shlex.split(command)[1:] for path in sorted(glob(word)) or [word]]
        code = main(words)
        out, err = capsysbinary.readouterr()
        return int(code), out.decode(errors="replace"), err.decode()

    return called


def _writes(command: str) -> bool:
    return command.startswith(("segreader backfill ", "segreader report "))


WRITING = {page: [line for where, line in commands("sh") if where == page and _writes(line)] for page in PAGES}
"""The commands of each page that write files, in the order in which someone types them."""


@pytest.mark.parametrize("page", [page for page, lines in WRITING.items() if lines], ids=str)
def test_the_commands_of_a_page_that_write_files_run_one_after_another(
    page: Path, shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    for command in WRITING[page]:
        with chdir(tmp_path):
            code, out, err = shell(command)
        assert code == ExitCode.OK, (command, err)
        assert out or command.startswith("segreader report ")


READING = [one for one in commands("sh", without=ELSEWHERE | GENERATED) if not _writes(one[1])]


@pytest.mark.parametrize(("page", "command"), READING)
def test_the_commands_of_a_page_run(page: Path, command: str, shell: Shell) -> None:
    ours, into, _ = command.partition(" > ")
    code, out, err = shell(ours)
    assert code in (ExitCode.OK, ExitCode.FINDINGS), err
    assert out or ours.startswith("segreader verify")
    assert out.startswith("PAR1") == bool(into)
    if code == ExitCode.OK:
        told = None if '"explain ' in ours else ENDS.get(" ".join(ours.split()[:2]), TOLD.get(ours))
        assert err == "" if told is None else told in err


@pytest.mark.parametrize(("page", "code"), of("console"))
def test_the_output_on_a_page_is_what_the_command_prints(page: Path, code: str, shell: Shell) -> None:
    command, _, shown = code.partition("\n")
    left, out, err = shell(command.removeprefix("$ "))
    assert left == ExitCode.OK, err
    assert [line.rstrip() for line in out.splitlines()] == shown.splitlines()


@pytest.mark.parametrize(("page", "code"), of("py"))
def test_the_python_that_needs_more_than_the_fixtures_compiles(page: Path, code: str) -> None:
    ast.parse(code.replace("…", "..."))


@pytest.mark.parametrize(("page", "command"), commands("bash"))
def test_the_options_of_a_command_on_a_page_exist(page: Path, command: str) -> None:
    words = shlex.split(command)[1:]
    found: click.Command | None = cli
    while isinstance(found, click.Group):
        found = found.get_command(click.Context(found), words.pop(0))
    if isinstance(found, JobCommand):
        job = importlib.import_module(found.choose(words)[1])
        found = getattr(job, job.__name__.rpartition(".")[2])
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


def test_the_page_of_variables_has_each_that_is_read() -> None:
    texts = [path.read_text() for path in (ROOT / "segreader").rglob("*.py")]
    read = {name for text in texts for name in re.findall(r"""["'](SEGREADER_[A-Z_]+)["']""", text)}
    page = (DOCS / "reference/environment.md").read_text()

    assert read
    assert {name for name in read if f"`{name}" not in page} == set()


def test_no_page_installs_the_package_from_an_index_that_does_not_have_it() -> None:
    named = re.compile(r"pip install [^\n]*'segreader\[|pip install segreader")
    assert [str(page) for page in PAGES if named.search((ROOT / page).read_text())] == []
