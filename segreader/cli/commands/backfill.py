"""``segreader backfill`` and ``segreader backfill verify``: start the jobs, which are programs beside this library.

Nothing of them is imported before one of them runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import click

from segreader.errors import OptionError, install_hint

_VERIFY = "verify"
_OF_SPARK = ("pyspark", "py4j", "pandas")


class JobCommand(click.Command):
    """Hands its arguments to a job as they are; the job has the options, the help and the exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.args = list(args)
        return ctx.args

    def invoke(self, ctx: click.Context) -> int:
        name, module, rest = self.choose(ctx.args)
        code: int = _load(module).main(rest, name=name)
        return code

    def choose(self, arguments: Sequence[str]) -> tuple[str, str, list[str]]:
        """The name of the job that arguments begin, its module, and the arguments that are left to it."""
        if list(arguments[:1]) == [_VERIFY]:
            return "segreader backfill verify", "spark_jobs.verify", list(arguments[1:])
        return "segreader backfill", "spark_jobs.backfill", list(arguments)


def _load(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _OF_SPARK:
            raise
        raise OptionError(
            "a backfill needs Spark, which is not installed",
            found=f"no {error.name}",
            hint=install_hint("spark"),
        ) from None


backfill = JobCommand(
    "backfill",
    add_help_option=False,
    short_help="Write topics to Parquet, Iceberg or Delta; backfill verify proves the output.",
)
