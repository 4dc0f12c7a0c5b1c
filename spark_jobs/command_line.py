"""How a job is called and how it ends: what its two programs have in common."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from segreader.cli.exit_codes import ExitCode
from segreader.values import collect_seldom


def call(command: click.Command, name: str, arguments: Sequence[str] | None) -> int:
    """Run a command; the exit code that it returns.

    Args:
        name: of the program, for its help.
        arguments: without the program's name; those of this process by default.

    Raises:
        click.ClickException: it was called wrongly.
    """
    if arguments is None:
        collect_seldom()
    try:
        with command.make_context(name, list(sys.argv[1:] if arguments is None else arguments)) as context:
            return int(command.invoke(context) or ExitCode.OK)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except BrokenPipeError:  # who reads what is told has gone; the work is done
        _drop_output()
        return ExitCode.PIPE_CLOSED


def require_report_place(report: str | None) -> None:
    """Refuse a report that cannot be written, before the work begins.

    Raises:
        click.UsageError: its directory is not there, or it is one itself.
    """
    if report is not None and (Path(report).is_dir() or not Path(report).absolute().parent.is_dir()):
        raise click.UsageError(f"--report {report}: name a file in a directory that is there")


def _drop_output() -> None:
    """Let what is still buffered go nowhere, or the interpreter complains about the pipe when it leaves."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass
