"""How a job is called and how it ends: what its two programs have in common."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from segreader.cli.exit_codes import ExitCode, describe, drop_stdout, exit_code
from segreader.errors import SegreaderError
from segreader.values import collect_seldom


def run(
    command: click.Command,
    name: str,
    arguments: Sequence[str] | None,
    *,
    can_resume: bool = False,
    words: Callable[[Exception], str] = describe,
) -> int:
    """Run a command; its exit code. What goes wrong is one line on stderr.

    Args:
        name: of the program, for its help and messages.
        arguments: without the program's name; those of this process by default.
        can_resume: whether a run that was cut off goes on when it is started again.
        words: the text for an error.
    """
    try:
        if arguments is None:
            collect_seldom()
        with command.make_context(name, list(sys.argv[1:] if arguments is None else arguments)) as context:
            return int(command.invoke(context) or ExitCode.OK)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except BrokenPipeError:  # the reader of the output has gone; the work is done
        drop_stdout()
        return ExitCode.PIPE_CLOSED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        again = "; run it again with the same arguments to finish" if can_resume else ""
        click.echo(f"Interrupted{again}", err=True)
        return ExitCode.INTERRUPTED
    except _spark_errors() as error:
        again = ". Run it again with the same arguments to finish" if can_resume else ""
        click.echo(f"{name}: {_session().describe_failure(error)}{again}", err=True)
        return ExitCode.INTERNAL
    except (SegreaderError, OSError) as error:
        click.echo(f"{name}: {words(error)}", err=True)
        return exit_code(error)


def _session() -> Any:
    """The module of Spark's sessions, if this run has come to need Spark."""
    return sys.modules.get("spark_jobs.session")


def _spark_errors() -> tuple[type[Exception], ...]:
    errors: tuple[type[Exception], ...] = getattr(_session(), "SPARK_ERRORS", ())
    return errors


def require_report_place(report: str | None) -> None:
    """Refuse a report that cannot be written, before the work begins.

    Raises:
        click.UsageError: its directory is not there, or it is one itself.
    """
    if report is not None and (Path(report).is_dir() or not Path(report).absolute().parent.is_dir()):
        raise click.UsageError(f"--report {report}: name a file in a directory that is there")


def takes_spark(given: dict[str, Any]) -> bool:
    """Whether Spark does the work, by the flags ``--engine`` and ``--master`` and by where this process runs.

    Raises:
        click.UsageError: the two contradict each other.
    """
    if given["engine"] == "local" and given["master"]:
        raise click.UsageError("--master belongs to --engine spark")
    if given["engine"] is not None:
        return bool(given["engine"] == "spark")
    return bool(given["master"] or os.environ.get("SPARK_REMOTE") or _is_driver())


def _is_driver() -> bool:
    """Whether ``spark-submit`` started this process, or it has a session."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return True
    module = sys.modules.get("pyspark.sql")
    return module is not None and module.SparkSession.getActiveSession() is not None


engine_flag = click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    help="Who does the work: processes of this machine, without Java, or Spark. Default: spark under spark-submit, "
    "with --master or with SPARK_REMOTE, otherwise local.",
)
master_flag = click.option(
    "--master",
    help="Spark master, or sc://host:port; default: that of spark-submit or SPARK_REMOTE, otherwise this machine.",
)
