"""The program ``segreader``: its commands, and what every one of them shares."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext

import click

from segreader.cli.exit_codes import ExitCode, describe, drop_stdout, exit_code
from segreader.cli.output import debug_option, ignored_stderr, named_output, replace_closed_stdout, say, stdout

_VERBS = (
    "backfill",
    "broker",
    "cat",
    "completion",
    "dump",
    "gateway",
    "inspect",
    "ls",
    "offsets",
    "places",
    "plan",
    "report",
    "schemas",
    "shell",
    "spark",
    "sql",
    "verify",
    "version",
)

_HELP = """Read Kafka topics straight from tiered storage or a broker's log directory, with no broker.

\b
See what exists, what a read would cost, and what is wrong:
  segreader ls s3://logs/tiered
  segreader ls s3://logs/tiered orders/3
  segreader plan s3://logs/tiered orders --since -1d
  segreader verify s3://logs/tiered orders --deep
  segreader report s3://logs/tiered -o report.html

\b
Name a bucket once, in ~/.config/segreader.toml, and read it by that name:
  segreader places
  segreader cat prod:orders/3
  SEGREADER_AT=prod segreader ls orders

\b
Look inside a file or a directory:
  segreader inspect /var/lib/kafka/orders-0
  segreader dump 00000000000000000000.log --records

\b
Print records as JSON, one per line, as a consumer would get them:
  segreader cat /mnt/tiered orders/0 --offsets 100:200
  segreader cat /mnt/tiered orders --since 2026-11-01T00:00Z --until -1h
  segreader cat /mnt/tiered --topic orders | jq .value

\b
With a cluster, read up to now: old data from the bucket, new data from brokers:
  segreader cat kafka://gateway:9092 orders
  segreader cat s3://logs/tiered orders --bootstrap-servers b1:9092 --prefer store
  segreader broker describe --bootstrap-servers b1:9092

\b
See which schemas values name, and save those of a registry:
  segreader schemas ls s3://logs/tiered orders
  segreader schemas pull https://registry:8081 orders -o schemas.json

\b
Write Parquet:
  segreader cat /mnt/tiered --topic orders -o parquet > orders.parquet
  segreader backfill --location s3://logs/tiered --topic orders --target s3://lake/orders

\b
Ask questions in SQL (needs DuckDB), once or one after the other:
  segreader sql --at s3://logs/tiered "select partition, count(*) from orders group by 1"
  segreader shell s3://logs/tiered

Results go to stdout, everything else to stderr. Exit codes: 0 fine, 1 findings (damage was skipped or shown),
2 usage, 3 not found or denied, 4 storage failed, 5 data cannot be decoded, 130 interrupted, 141 pipe closed.
"""


class _Verbs(click.Group):
    """Commands that are imported when they are asked for; each has the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        command = getattr(importlib.import_module(f"segreader.cli.commands.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with the names that may have been meant: click before 8.4 does not say them."""
        name = args[0]
        if name not in _VERBS and not name.startswith("-"):
            from segreader.errors import nearest_hint

            hint = nearest_hint(name, _VERBS) or "segreader --help lists the commands"
            raise click.UsageError(f"No such command {name!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)


def _print_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from segreader import __version__

        click.echo(f"segreader {__version__}")
        context.exit()


@click.group(cls=_Verbs, help=_HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version and exit; the command version prints more.",
)
@debug_option
def cli() -> None: ...


class _Notes(logging.Handler):
    """Prints what a user should know of what is logged, and nothing else of it."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "segreader.storage.cache":
            say(_cleaned(f"note: {record.getMessage()}"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Args:
        arguments: without the program's name; those of this process by default.
    """
    if arguments is None:
        from segreader.values import collect_seldom

        collect_seldom()
        # pyarrow imports numpy, whose OpenBLAS starts a thread for each core that nothing here uses.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        if asked := os.environ.get("_SEGREADER_COMPLETE"):
            from segreader.cli.completing import complete

            return complete(cli, asked)
        if sys.argv[1:2] == ["backfill"]:  # Arrow's row groups come and go, and their pages need not
            os.environ.setdefault("MIMALLOC_PURGE_DELAY", "-1")
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if "--debug" not in arguments and arguments[:1] != ["backfill"]:
        logging.lastResort = _Notes()  # or Python prints what libraries log as warnings, with their tracebacks
    replace_closed_stdout()
    try:
        code = _run(arguments)
        with named_output(None):
            stdout().flush()
    except BrokenPipeError:
        drop_stdout()
        return ExitCode.PIPE_CLOSED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except OSError as error:  # of what was still buffered
        drop_stdout()
        say(f"segreader: {describe(error)}")
        return exit_code(error)
    return code


def _run(arguments: list[str]) -> int:
    meta: dict[str, object] = {}
    try:
        # The files of a backfill are no output of the command line; every other command names those that it writes.
        with (
            nullcontext() if arguments[:1] == ["backfill"] else named_output(None),
            cli.make_context("segreader", arguments) as context,
        ):
            meta = context.meta
            result = cli.invoke(context)
            return result if isinstance(result, int) else ExitCode.OK
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.Abort:
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        vars(error)["message"] = _cleaned(error.message)
        if sys.stderr is not None:  # else click would show it on stdout
            with ignored_stderr():
                error.show()
        return ExitCode.USAGE
    except BrokenPipeError:
        raise
    except Exception as error:
        try:
            stdout().flush()
        except BrokenPipeError:
            raise
        except OSError:
            drop_stdout()
        if meta.get("segreader.debug"):
            import traceback

            say(_cleaned(traceback.format_exc().rstrip()))
        say(_cleaned(f"segreader: {describe(error)}"))
        return exit_code(error)


def _cleaned(text: str) -> str:
    """A text without the signatures and passwords of URLs in it: a location may be one, and arguments are quoted."""
    from segreader.storage.signed_url import redact

    return redact(text)


if __name__ == "__main__":
    sys.exit(main())
