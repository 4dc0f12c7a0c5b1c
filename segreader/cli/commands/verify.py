"""``segreader verify``: what is wrong at a location, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.exit_codes import ExitCode
from segreader.cli.options import Selection, ahead_options, selection_options
from segreader.cli.output import (
    console,
    debug_option,
    new_table,
    output_option,
    progress,
    say,
    shown_number,
    styled,
    write_json_rows,
)
from segreader.errors import OptionError

if TYPE_CHECKING:
    from segreader.evidence.findings import Finding
    from segreader.plan.request import ReadOptions
    from segreader.stored.source import LocationSource

Row = dict[str, Any]

_EPILOG = """\b
Examples:
  segreader verify /mnt/tiered
  segreader verify s3://logs/tiered orders/3 --deep
  segreader verify /mnt/tiered --metadata /var/lib/kafka -o json
  segreader verify s3://logs/tiered --rsm-config server.properties --deep
  segreader verify s3://logs/tiered --metrics :9405 --every 5m
"""

_COLOURS = {"error": "red", "warning": "yellow", "info": "dim"}


@click.command(epilog=_EPILOG, short_help="Find what is wrong with segments, their indexes and their names.")
@selection_options
@click.option(
    "--deep",
    is_flag=True,
    help="Read every log: checksums, records, and whether indexes, snapshots and markers agree with the batches.",
)
@ahead_options("logs")
@click.option("--all", "has_all", is_flag=True, help="Also show info: states of a healthy cluster.")
@click.option(
    "--metrics",
    "metrics_address",
    metavar="[HOST]:PORT",
    help="Verify again and again until SIGTERM, and serve what was seen as metrics of Prometheus: last uploaded offset "
    "and its age, orphan bytes, findings by code. Prints no findings.",
)
@click.option("--every", metavar="TIME", help="With --metrics: wait so long between two runs, as 300s or 5m.  [300s]")
@output_option("table", "json", "ndjson")
@debug_option
def verify(
    select: Callable[[], Selection],
    deep: bool,
    threads: int | None,
    read_ahead_bytes: int | None,
    has_all: bool,
    metrics_address: str | None,
    every: str | None,
    form: str,
) -> int:
    """Print what is wrong at LOCATION, or with one topic or partition of it, and what to do.

    Without --deep the listing, indexes, snapshots, and some batch headers of each log are checked; with it every byte
    is read, --threads logs at a time. --metadata also compares the objects with the metadata topic.

    Each finding has a code (docs/reference/findings.md) and a severity: an error if records are lost, unreadable or
    would be returned wrongly, a warning if something is not as Kafka leaves it. Either makes the exit code 1. info is
    shown with --all only. An object that cannot be read is a finding, and verification goes on.
    """
    from segreader.plan.request import ReadOptions
    from segreader.stored.source import LocationSource

    if every is not None and metrics_address is None:
        raise click.UsageError("--every says how often --metrics verifies. Give both, or neither")
    selection = select()
    source = selection.open()
    try:
        if not isinstance(source, LocationSource):
            raise OptionError(
                "a list of URLs cannot be verified: other objects cannot be listed",
                hint="Give a directory or a prefix in a bucket",
            )
        options = ReadOptions(threads=threads, read_ahead_bytes=read_ahead_bytes)
        if metrics_address is not None:
            _serve(selection, deep, options, metrics_address, every or "300s")
            return ExitCode.OK
        findings = _Findings(selection, source, deep, options, has_all)
        with closing(findings.shown()) as shown:  # before the store is, also where it is interrupted
            if form == "table":
                _print_table(list(shown), findings.place)
            else:
                write_json_rows(map(_row, shown), form)
        say(findings.summary)
    finally:
        source.store.close()
    return ExitCode.FINDINGS if findings.are_findings else ExitCode.OK


def _serve(selection: Selection, deep: bool, options: ReadOptions, address: str, every: str) -> None:
    """Verify until SIGTERM, with a source of its own for each run: what it remembers of the bucket is of that run."""
    import signal
    import threading

    from segreader.gateway.config import parse_address, parse_life
    from segreader.report.exporter import VerifyExporter
    from segreader.report.model import BucketReport, read_report
    from segreader.stored.source import LocationSource

    host, port = parse_address(address, "--metrics")
    every_s = parse_life(every, "--every")

    def look() -> BucketReport:
        source = selection.open()
        try:
            assert isinstance(source, LocationSource)
            return read_report(source, selection.wanted, deep=deep, options=options, tick=stop_early)
        finally:
            source.store.close()

    def stop_early(_: object) -> None:
        if exporter.is_stopped:
            raise _StoppedError

    exporter = VerifyExporter(look, every_s)
    end = exporter.serve(host, port)
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, lambda *_: exporter.stop()) if is_main else None
    try:
        say(f"metrics at http://{host}:{port}/metrics, verified every {every_s} s")
        exporter.run(say)
    except _StoppedError:
        pass
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)
        end()


class _StoppedError(Exception):
    """SIGTERM came during a run."""


class _Findings:
    """The findings of one call, and how many there were of each severity."""

    def __init__(
        self, selection: Selection, source: LocationSource, deep: bool, options: ReadOptions, has_all: bool
    ) -> None:
        self._selection, self._source, self._deep, self._has_all = selection, source, deep, has_all
        self._options = options
        self._counts: Counter[str] = Counter()

    def shown(self) -> Generator[Finding, None, None]:
        """Those to print, as they are found."""
        from segreader.verify.verify import Reading
        from segreader.verify.verify import verify as find

        wanted, reading = self._selection, Reading()
        findings = find(
            self._source,
            topic=wanted.topic,
            topic_id=wanted.topic_id,
            partitions=wanted.partitions,
            deep=self._deep,
            options=self._options,
            reading=reading,
        )
        with progress(lambda: (reading.done, reading.whole, None)) as tick, closing(findings):
            reading.tick = tick
            for finding in findings:
                self._counts[finding.severity.value] += 1
                if self._has_all or finding.severity.value != "info":
                    yield finding

    @property
    def place(self) -> str:
        """Where it is looked."""
        return self._source.shown

    @property
    def are_findings(self) -> bool:
        """Whether something is wrong."""
        return bool(self._counts["error"] or self._counts["warning"])

    @property
    def summary(self) -> str:
        """How many there were, in one line."""
        counts = self._counts
        text = f"{_number(counts['error'], 'error')}, {_number(counts['warning'], 'warning')}, {counts['info']} info"
        if counts["info"] and not self._has_all:
            text += " (shown with --all)"
        return text if self._deep else f"{text}; logs were not read: --deep does"


def _number(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _row(finding: Finding) -> Row:
    partition = finding.partition
    return {
        "code": finding.code.value,
        "severity": finding.severity.value,
        "topic": partition.topic if partition is not None else None,
        "partition": partition.partition if partition is not None else None,
        "topic_id": partition.topic_id if partition is not None else None,
        "object": finding.object,
        "position": finding.position,
        "offset": finding.offset,
        "explanation": finding.explanation,
        "action": finding.action,
    }


def _print_table(findings: list[Finding], place: str) -> None:
    out = console()
    if not findings:
        return
    table = new_table()
    for name in ("severity", "code", "object", "byte", "offset", "what"):
        table.add_column(name, overflow="fold", no_wrap=name in ("severity", "code"))
    for finding in findings:
        table.add_row(
            styled(finding.severity.value, style=_COLOURS[finding.severity.value]),
            finding.code.value,
            finding.object.removeprefix(place).lstrip("/") or ".",
            shown_number(finding.position),
            shown_number(finding.offset),
            finding.explanation,
        )
    out.print(table)
    for code, action in {finding.code.value: finding.action for finding in findings}.items():
        out.print(f"{code}: {action}")
