"""``segreader report``: what a bucket holds, as one page for a browser, and as JSON."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.exit_codes import ExitCode
from segreader.cli.options import Selection, ahead_options, price_options, selection_options
from segreader.cli.output import debug_option, progress, say, shown_size, stdout
from segreader.errors import OptionError, shown_count

if TYPE_CHECKING:
    from segreader.report.model import BucketReport
    from segreader.verify.verify import Reading

_EPILOG = """\b
Examples:
  segreader report s3://logs/tiered -o report.html
  segreader report s3://logs/tiered orders -o orders.html --deep
  segreader report s3://logs/tiered -o report.html --json monday.json
  segreader report s3://logs/tiered -o report.html --diff monday.json
  segreader report s3://logs/tiered -o report.html --prices prices.toml
"""


@click.command(epilog=_EPILOG, short_help="Draw a bucket as one HTML page: topics, partitions over time, findings.")
@selection_options
@click.option(
    "-o",
    "--output",
    "page_file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write the page to FILE.html, or to stdout (-); with a name that ends in .json, the same facts as JSON.",
)
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False), metavar="FILE", help="Also write the facts as JSON."
)
@click.option(
    "--diff",
    "diff_file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Also say what has changed since a report that --json wrote: topics, segments, findings.",
)
@click.option("--deep", is_flag=True, help="Read every log, as segreader verify --deep does.")
@ahead_options("logs")
@price_options
@debug_option
def report(
    select: Callable[[], Selection],
    page_file: str | None,
    json_file: str | None,
    diff_file: str | None,
    deep: bool,
    threads: int | None,
    read_ahead_bytes: int | None,
    price_file: str | None,
    price_texts: tuple[str, ...],
) -> int:
    """Write one HTML file about LOCATION, or about one topic of it: findings and what to do about them, totals and
    what they cost, topics by size and growth, and a lane for each partition with its segments over time.

    The file is self-contained and has no JavaScript: mail it, print it, keep it.

    What is read is what segreader verify reads, one more listing for the sizes as they are stored, and the first batch
    of up to three segments of each partition for how well they compress. Exit code 1 if there are errors or warnings.
    """
    if page_file is None and json_file is None:
        raise click.UsageError("Say where the report goes: -o report.html, or --json report.json")
    if page_file is not None:
        _require_ending(page_file)
    from segreader.cli.plan_rows import parse_price_options
    from segreader.plan.request import ReadOptions
    from segreader.report.as_json import change_row, changes_since, read_saved, report_row
    from segreader.report.model import read_report
    from segreader.stored.source import LocationSource

    prices = parse_price_options(price_file, price_texts)
    before = None if diff_file is None else read_saved(diff_file)
    selection = select()
    source = selection.open()
    try:
        if not isinstance(source, LocationSource):
            raise OptionError(
                "a list of URLs has no report: other objects cannot be listed",
                hint="Give a directory or a prefix in a bucket",
            )
        options = ReadOptions(threads=threads, read_ahead_bytes=read_ahead_bytes)
        at: list[Reading] = []
        with progress(lambda: (at[-1].done, at[-1].whole, None) if at else (0, 0, None)) as tick:

            def show(reading: Reading) -> None:
                at[:] = [reading]
                tick()

            made = read_report(source, selection.wanted, deep=deep, options=options, prices=prices, tick=show)
    finally:
        source.store.close()
    row: dict[str, Any] = report_row(made)
    changes = None if before is None else changes_since(before, row)
    if changes is not None:
        row["changes"] = change_row(changes)
    for name in dict.fromkeys(one for one in (page_file, json_file) if one is not None):
        if name == json_file or name.lower().endswith(".json"):
            import json

            _write(name, (json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n").encode())
        else:
            from segreader.report.page import page_of

            _write(name, page_of(made, changes).encode())
        say(f"{'stdout' if name == '-' else name}: {_summary(made)}")
    return ExitCode.FINDINGS if made.has_findings else ExitCode.OK


def _summary(made: BucketReport) -> str:
    errors, warnings = made.severities.get("error", 0), made.severities.get("warning", 0)
    segments = sum(1 for topic in made.topics for _ in topic.segments())
    return (
        f"{shown_count(len(made.topics), 'topic')}, {shown_count(segments, 'segment')}, {shown_size(made.bill.size)}; "
        f"{shown_count(errors, 'error')}, {shown_count(warnings, 'warning')}"
    )


def _require_ending(name: str) -> None:
    """Refuse a file whose name says that it holds something else.

    Raises:
        OptionError: it says what to write.
    """
    is_pipe = name == "-" or (os.path.exists(name) and not os.path.isfile(name))
    if not is_pipe and not name.lower().endswith((".html", ".htm", ".json")):
        raise OptionError(
            "the file's name does not say its format",
            found=name,
            expected=".html, .htm or .json",
            hint="Write -o report.html, or -o - for stdout",
        )


def _write(name: str, data: bytes) -> None:
    """Write a file whole or not at all: an earlier one stays until the new one is there.

    Raises:
        OptionError: it cannot be written.
    """
    if name == "-":
        stdout().write(data)
        return
    partial = f"{name}.{os.getpid()}.part"
    try:
        if not os.path.lexists(name) or (os.path.isfile(name) and not os.path.islink(name)):
            try:
                with open(partial, "wb") as file:
                    file.write(data)
                os.replace(partial, name)
            except BaseException:
                if os.path.exists(partial):
                    os.unlink(partial)
                raise
        else:  # a pipe, or a link, such as /dev/stdout, which stays one
            with open(name, "wb") as file:
                file.write(data)
    except OSError as error:
        raise OptionError(
            "the report cannot be written", source=name, found=error.strerror, hint="Name another file"
        ) from None
