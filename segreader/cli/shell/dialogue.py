"""What is typed into the shell, statement by statement and command by command, from a terminal or a pipe."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from segreader.cli.exit_codes import ExitCode, describe
from segreader.cli.output import Row, named_output, say, shown_partitions, stdout, write_json_rows
from segreader.cli.shell.completion import COMMANDS, MODES, file_and_query
from segreader.cli.shell.session import RowForm, SqlSession
from segreader.cli.sql_statements import Statement, StatementKind, is_complete, not_text, require_text
from segreader.cli.table import ByteUnit, Screen, TableColumn, number, print_facts, print_table
from segreader.errors import OptionError, SegreaderError
from segreader.format.rows import csv_cell
from segreader.storage.signed_url import redact

_FORMATS: Final = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".csv": "csv",
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
}
_LEAVING: Final = (".quit", ".exit", ".q")


class Dialogue:
    """Does what is typed, and prints what comes of it.

    Args:
        form: how rows are printed at first.
    """

    def __init__(self, session: SqlSession, form: RowForm) -> None:
        self.session, self._form = session, form
        self._has_timer = True
        self.code = ExitCode.OK

    def take(self, text: str) -> bool:
        """Do what a command or some statements say; returns whether the shell goes on.

        Raises:
            SegreaderError: as ``SqlSession.run``. OSError: a file cannot be written.
        """
        require_text(text)
        if text.lstrip().startswith("."):
            return self._command(text.strip().rstrip(";").rstrip())
        for statement in self.session.split(text):
            self._run(statement)
        return True

    def _run(self, statement: Statement) -> None:
        if statement.is_estimate:
            self._explain(statement.text, has_engine=True)
            return
        outcome = self.session.run(statement, self._form, stdout())
        sys.stdout.flush()
        if not outcome.is_whole:
            self.code = ExitCode.FINDINGS
        if self._has_timer:
            say(str(outcome))

    def _explain(self, text: str, *, has_engine: bool) -> None:
        form = RowForm("table") if self._form.name == "csv" else self._form
        self.session.explain(text, form, stdout(), has_engine=has_engine)
        sys.stdout.flush()

    def _command(self, text: str) -> bool:
        name, _, rest = text.partition(" ")
        rest = rest.strip()
        match name:
            case ".topics" | ".tables":
                self._topics()
            case ".schema":
                self._schema(rest)
            case ".plan":
                self._explain(_one(rest, "QUERY", name), has_engine=False)
            case ".mode":
                self._form = RowForm(_choice(rest, MODES, name), self._form.encoding)
            case ".timer":
                self._has_timer = _choice(rest, ("on", "off"), name) == "on"
            case ".export":
                self._export(rest)
            case ".help":
                self._help()
            case _ if name in _LEAVING:
                return False
            case _:
                near = difflib.get_close_matches(name, COMMANDS, 1)
                raise OptionError(
                    f"unknown command {name}", hint=f"Did you mean {near[0]}?" if near else ".help lists the commands"
                )
        sys.stdout.flush()
        return True

    def _topics(self) -> None:
        rows = self.session.tables.sizes()
        if self._form.name != "table":
            self._print({"topic": name, **known} for name, known in rows)
            return
        names = shown_partitions((name, known.get("topic_id")) for name, known in rows)
        unit = ByteUnit.of(known.get("size") for _, known in rows)
        print_table(
            (TableColumn("topic"), number("partitions"), number("segments"), number(f"size ({unit.name})")),
            [
                (name, str(known.get("partitions", "")), str(known.get("segments") or ""), unit.text(known.get("size")))
                for name, (_, known) in zip(names, rows, strict=True)
            ],
        )

    def _schema(self, name: str) -> None:
        tables = self.session.tables
        names = [name.strip('"')] if name else list(tables.names)
        # To open every topic of a large bucket takes long, and where none is typed, it tells nothing.
        alike = self.session.columns_of(names[0]) if names and not tables.are_typed else None
        rows = [(one, column, kind) for one in names for column, kind in alike or self.session.columns_of(one)]
        titles = ("table", "column", "type")
        if self._form.name != "table":
            self._print(dict(zip(titles, row, strict=True)) for row in rows)
            return
        print_table([TableColumn(title) for title in titles], rows)

    def _print(self, rows: Iterable[Row]) -> None:
        """Print rows that stand in no table, in the mode of the shell."""
        if self._form.name != "csv":
            write_json_rows(rows, self._form.name)
            return
        found = list(rows)
        for line in (*found[:1], *(row.values() for row in found)):
            cells = ("" if value is None else csv_cell(str(value)) for value in line)
            stdout().write(f"{','.join(cells)}\n".encode())

    def _export(self, rest: str) -> None:
        path, query = file_and_query(rest)
        form = _FORMATS.get(os.path.splitext(path)[1].lower())
        if form is None:
            raise OptionError(
                "the file's name does not say its format",
                found=path or "nothing",
                expected=", ".join(_FORMATS),
                hint='Write it as in .export rows.csv SELECT … or .export "my rows.csv" SELECT …',
            )
        statements = self.session.split(_one(query or "", "QUERY", ".export"))
        if len(statements) != 1 or statements[0].kind is StatementKind.EXPLAIN:
            raise OptionError("not a query to export", expected="one SELECT, FROM or PIVOT")
        part = f"{path}.part"
        try:
            with named_output(path), open(part, "wb") as file:
                outcome = self.session.run(statements[0], RowForm(form, self._form.encoding), file)
            os.replace(part, path)
        finally:
            with suppress(FileNotFoundError):
                os.remove(part)
        if not outcome.is_whole:
            self.code = ExitCode.FINDINGS
        say(f"{path}: {outcome}")

    def _help(self) -> None:
        screen = Screen.of()
        commands = [(name, *text.rpartition("  ")) for name, text in COMMANDS.items()]
        print_facts([(f"{name} {words}", what) for name, words, _, what in commands], screen)
        screen.line(
            "Every topic is a table with its name. A statement ends with a semicolon and may take several lines."
        )


def _one(text: str, what: str, name: str) -> str:
    if not text.strip():
        raise OptionError(f"{name} lacks its {what}", hint=f"{name} {COMMANDS[name].partition('  ')[0]}")
    return text.strip()


def _choice(text: str, choices: Iterable[str], name: str) -> str:
    if text not in choices:
        raise OptionError(
            f"not a value of {name}",
            found=text or "nothing",
            expected=" or ".join(choices),
            hint=".help lists the commands",
        )
    return text


def pieces(lines: Iterable[str]) -> Iterator[str]:
    """Commands and statements of some lines, each as soon as it is whole; at the end also one without a semicolon."""
    held = ""
    for line in lines:
        if not held and line.lstrip().startswith("."):
            yield line
            continue
        if not held and (not line.strip() or line.lstrip().startswith("--")):
            continue  # or a comment would make the command behind it part of a statement
        held += line
        if ";" in line and is_complete(held):
            yield held
            held = ""
    if held.strip():
        yield held


def run_piped(dialogue: Dialogue, lines: Iterable[str]) -> ExitCode:
    """Do what lines say, up to the first error, which is raised."""
    for piece in pieces(_of_stdin(lines)):
        if not dialogue.take(piece):
            break
    return dialogue.code


def _of_stdin(lines: Iterable[str]) -> Iterator[str]:
    try:
        for line in lines:
            yield require_text(line, "stdin")
    except UnicodeDecodeError:
        raise not_text("stdin") from None


def one_line(error: BaseException) -> str:
    """An error in one line, without secrets."""
    return redact(" ".join(describe(error).split()))


def run_typed(dialogue: Dialogue, prompt: Iterator[str]) -> None:
    """Do what a person types; an error or an interrupt ends what it came of, and nothing more."""
    for text in prompt:
        try:
            if text.strip() and not dialogue.take(text):
                return
        except BrokenPipeError:
            raise
        except (SegreaderError, OSError) as error:
            say(f"error: {one_line(error)}")
        except KeyboardInterrupt:
            say("interrupted")
