"""The options that say which records are wanted: of ``cat``, and of ``plan``, which says what ``cat`` would read."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from segreader.cli.catalog_options import TIMES_HELP
from segreader.cli.output import say

_F = TypeVar("_F", bound=Callable[..., Any])


class _OnGap(click.Choice):  # type: ignore[type-arg]
    """``fail`` or ``skip``; ``report`` is the earlier name of ``skip``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "report":
            say("warning: --on-gap report is deprecated, give --on-gap skip")
            return "skip"
        return super().convert(value, param, ctx)


_OPTIONS = (
    click.option("--offsets", metavar="A:B", help="Only offsets from A on and below B; either may be left out."),
    click.option(
        "--since",
        metavar="T",
        help=f"Only from the offset of the first record on that is not older than T: {TIMES_HELP}.",
    ),
    click.option(
        "--until",
        metavar="T",
        help="Only below the offset of the first record that is not older than T. Both are looked up in each partition "
        "and are offsets from then on: where times are out of order, records between them may lie outside the times.",
    ),
    click.option(
        "--isolation",
        "isolation_level",
        type=click.Choice(["read_committed", "read_uncommitted"]),
        default="read_committed",
        show_default=True,
        help="Which records a reader is given, as isolation.level of a consumer.",
    ),
    click.option(
        "--on-gap",
        type=_OnGap(["fail", "skip"]),
        default="fail",
        show_default=True,
        help="Where offsets between two segments are in none: fail (exit code 5), or go on behind them and say so on "
        "stderr (exit code 1).",
    ),
    click.option(
        "--on-corrupt",
        type=click.Choice(["fail", "skip"]),
        default="fail",
        show_default=True,
        help="At damage: print the records before it and fail (exit code 5), or pass over it, say so on stderr and go "
        "on (exit code 1).",
    ),
)


def scan_options(command: _F) -> Callable[..., Any]:
    """The command gets these options together, as ``asked``: arguments of ``segreader.scan``."""

    @wraps(command)
    def with_asked(
        *arguments: Any,
        offsets: str | None,
        since: str | None,
        until: str | None,
        isolation_level: str,
        on_gap: str,
        on_corrupt: str,
        **others: Any,
    ) -> Any:
        asked = {
            "offsets": offsets,
            "since": since,
            "until": until,
            "isolation_level": isolation_level,
            "on_gap": on_gap,
            "on_corrupt": on_corrupt,
        }
        return command(*arguments, asked=asked, **others)

    decorated: Callable[..., Any] = with_asked
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
