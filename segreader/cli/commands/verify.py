"""``segreader verify``: what is wrong at a location, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from segreader.cli.exit_codes import ExitCode
from segreader.cli.options import Selection, ahead_options, selection_options
from segreader.cli.output import (
    debug_option,
    output_option,
    printable,
    progress,
    say,
    shown_size,
    write_json_rows,
)
from segreader.cli.table import Screen, cells
from segreader.errors import OptionError, shown_count

if TYPE_CHECKING:
    from segreader.evidence.findings import Finding
    from segreader.plan.request import ReadOptions
    from segreader.stored.source import LocationSource
    from segreader.verify.verify import SeenPartition

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

    At the end it says what was checked: how many topics, partitions, segments and bytes, and how deep.
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
                write_json_rows(chain(({"kind": "finding", **one.as_row()} for one in shown), findings.checked()), form)
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
        self._topics: set[tuple[str, str | None]] = set()
        self._partitions = self._segments = self._size = 0

    def shown(self) -> Generator[Finding, None, None]:
        """Those to print, as they are found."""
        from segreader.verify.verify import Reading
        from segreader.verify.verify import verify as find

        wanted, reading = self._selection, Reading(saw=self._saw)
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

    def _saw(self, seen: SeenPartition) -> None:
        self._topics.add((seen.log.partition.topic, seen.log.partition.topic_id))
        self._partitions += 1
        self._segments += len(seen.log.segments)
        self._size += sum(segment.log_size for segment in seen.log.segments)

    @property
    def place(self) -> str:
        """Where it is looked."""
        return self._source.shown

    @property
    def are_findings(self) -> bool:
        """Whether something is wrong."""
        return bool(self._counts["error"] or self._counts["warning"])

    def checked(self) -> Iterator[Row]:
        """One row: what was looked at, how deep, and how many findings of each severity there were."""
        yield {
            "kind": "checked",
            "topics": len(self._topics),
            "partitions": self._partitions,
            "segments": self._segments,
            "size": self._size,
            "depth": "deep" if self._deep else "shallow",
            "errors": self._counts["error"],
            "warnings": self._counts["warning"],
            "info": self._counts["info"],
        }

    @property
    def summary(self) -> str:
        """The same in one line."""
        counts = self._counts
        errors, warnings = shown_count(counts["error"], "error"), shown_count(counts["warning"], "warning")
        text = f"{errors}, {warnings}, {counts['info']} info"
        if counts["info"] and not self._has_all:
            text += " (shown with --all)"
        what = ", ".join(
            (
                shown_count(len(self._topics), "topic"),
                shown_count(self._partitions, "partition"),
                shown_count(self._segments, "segment"),
                shown_size(self._size),
            )
        )
        depth = "every byte was read" if self._deep else "logs were not read: --deep does"
        return f"{text}; checked {what}; {depth}"


def _print_table(findings: list[Finding], place: str) -> None:
    """A line for each finding, and one below it that says what was found; then what to do about each code."""
    screen = Screen.of()
    severity = max((cells(one.severity.value) for one in findings), default=0)
    code = max((cells(one.code.value) for one in findings), default=0)
    for finding in findings:
        where = [printable(finding.object.removeprefix(place).lstrip("/") or ".", None)]
        where += [f"byte {finding.position}"] if finding.position is not None else []
        where += [f"offset {finding.offset}"] if finding.offset is not None else []
        style = _COLOURS[finding.severity.value]
        shown = screen.styled(finding.severity.value, style) + " " * (severity - cells(finding.severity.value))
        screen.line(f"{shown}  {finding.code.value:<{code}}  {', '.join(where)}")
        screen.line(f"{' ' * severity}  {printable(finding.explanation, None)}")
    if findings:
        screen.line("")
    for name, action in {finding.code.value: finding.action for finding in findings}.items():
        screen.line(f"{screen.styled(name, 'bold')}: {action}")
