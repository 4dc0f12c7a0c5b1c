"""What a backfill will do, how far it is, and what it did, as text for a person who sees it for the first time."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from segreader.backfill.done import DoneEntry, read_done
from segreader.backfill.job_plan import JobPlan
from segreader.backfill.output import DONE, OutputLayout, done_name
from segreader.backfill.report import Completeness, PartitionCoverage
from segreader.errors import SegreaderError
from segreader.plan.cost import CostEstimate
from segreader.storage.target.store import TargetStore

_SHOWN = 50
_LONGEST = 2000


@dataclass(frozen=True, slots=True)
class RunReport:
    """What one run did, and what is in the target now.

    Args:
        found: the state of the output.
        totals: of all splits that are done; see ``segreader.backfill.report.totals``.
        reused: how many of them were done before this run.
        seconds: that this run took.
    """

    plan: JobPlan
    target: str
    found: Completeness
    totals: dict[str, Any]
    reused: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """For ``--report``."""
        return {
            "location": self.plan.location,
            "target": self.target,
            "isolation": self.plan.isolation,
            "plan": self.plan.sha256,
            **self.found.to_json(),
            "totals": self.totals | {"reused": self.reused, "seconds": round(self.seconds, 3)},
            "notes": list(self.plan.notes),
        }


def describe_plan(plan: JobPlan, *, in_detail: bool = False) -> str:
    """What will be read: one line, or also one for each partition."""
    topics = len({one.topic for one in plan.partitions})
    summary = (
        f"Reading {shown_bytes(plan.size)} of segments in {plan.location}: {_count(topics, 'topic')}, "
        f"{_count(len(plan.partitions), 'partition')}, {_count(len(plan.splits), 'split')}"
    )
    if not in_detail:
        return summary
    rows = [
        (one.topic, str(one.partition), _offsets(one.start, one.stop), str(one.splits), shown_bytes(one.size))
        for one in plan.partitions
    ]
    return "\n".join([*_table(("topic", "partition", "offsets", "splits", "stored"), rows), "", summary])


def describe_bill(cost: CostEstimate) -> str:
    """What reading costs: requests, bytes, and money where prices are known."""
    counted = f"{cost.requests:,} GET requests over HTTP, {cost.size:,} bytes of {_count(cost.objects, 'object')}"
    return f"{counted}\n{cost.money_text or 'give your prices with --prices to see them in money'}"


def describe_report(report: RunReport) -> str:
    """The summary that ends a job: what the target has of each partition, and where the next read goes on."""
    found, totals = report.found, report.totals
    rows = [_row(part) for part in found.partitions]
    hidden = len(rows) - _SHOWN
    lost = sum(one.stop - one.start for part in found.partitions for one in part.lost)
    reused = f", {report.reused:,} of them before this run" if report.reused else ""
    lines = [
        *_table(("topic", "partition", "offsets", "records", "control", "aborted", "holes", "missing"), rows[:_SHOWN]),
        *([f"… and {_count(hidden, 'partition')} more"] if hidden > 0 else []),
        "",
        f"read     {shown_bytes(found.total('size'))} of segments in {report.plan.location}",
        f"         in {_count(totals['splits'], 'split')}{reused}, {totals['kernel'] or 'no'} kernel",
        f"         {_meaning(report.plan.isolation)}",
        *([f"from     {_sources(found)}"] if report.plan.asks_brokers else []),
        f"wrote    {_count(found.total('records'), 'record')} of {_count(len(found.partitions), 'partition')},"
        f" {shown_bytes(found.total('written_bytes'))} of Parquet in {_count(found.total('files'), 'file')}",
        f"took     {report.seconds:.1f} s",
        f"next     {_next_offsets(found)}",
        f"output   {report.target}/{_directories(report.plan)}",
    ]
    if found.losses:
        lines.append(
            f"lost     {_count(lost, 'offset')} that no segment has or that damage hides; the output is what there is"
        )
    if found.is_complete:
        lines.append(f"look     {look_command(report.target, is_hive=report.plan.output.is_hive)}")
    else:
        lines.append(f"missing  {_count(len(found.findings), 'finding')}; run it again to finish what is missing")
    return "\n".join(lines)


def look_command(target: str, *, is_hive: bool = False) -> str:
    """A command that shows the first records of the output, with what is installed here."""
    if urlsplit(target).scheme not in ("", "file"):
        # of directories that name no column, Spark takes files only where it is told to
        deep = "" if is_hive else '.option("recursiveFileLookup", "true")'
        return f"spark.read{deep}.parquet({target!r}).show()    (in pyspark)"
    path = json.dumps(urlsplit(target).path, ensure_ascii=False)
    partitioning = ', partitioning="hive"' if is_hive else ""
    code = f'import pyarrow.dataset as d; print(*d.dataset({path}{partitioning}).head(3).to_pylist(), sep="\\n")'
    return f"{_python()} -c {shlex.quote(code)}"


def _row(part: PartitionCoverage) -> tuple[str, ...]:
    return (
        part.topic,
        str(part.partition),
        _offsets(part.start, part.stop),
        f"{part.records:,}",
        f"{part.control_records:,}",
        f"{part.aborted_records:,}",
        f"{part.holes:,}",
        f"{part.missing_offsets:,}",
    )


def _offsets(start: int, stop: int) -> str:
    return "none" if start == stop else f"{start} - {stop - 1}"


def _next_offsets(found: Completeness) -> str:
    text = json.dumps(found.next_offsets)
    return text if len(text) <= _LONGEST else "next_offsets in _manifest.json"


def _directories(plan: JobPlan) -> str:
    names = {
        OutputLayout.PARTITION: ("topic", "partition"),
        OutputLayout.DATE: ("topic", "date"),
        OutputLayout.HOUR: ("topic", "date", "hour"),
    }[plan.output.layout]
    return "/".join(f"{name}=…" if plan.output.is_hive else f"<{name}>" for name in names) + "/"


def _python() -> str:
    """This interpreter, as short as it can be said from here."""
    executable = Path(sys.executable)
    here = Path(os.getcwd())
    return str(executable.relative_to(here) if executable.is_relative_to(here) else executable)


def _sources(found: Completeness) -> str:
    names = {"store": "the store", "location": "the store, by locations from brokers", "broker": "brokers"}
    there = [(where, found.sources[name]) for name, where in names.items() if name in found.sources]
    return "; ".join(f"{where}: {_count(records, 'record')}" for where, records in there) or "nothing"


def _meaning(isolation_level: str) -> str:
    if isolation_level == "read_committed":
        return "read_committed: records of aborted transactions are left out"
    return "read_uncommitted: records of aborted transactions are included"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines with the first column to the left and the others to the right."""
    cells = [tuple(head), *map(tuple, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


_READ_AT_ONCE: Final = 200


class ProgressWatch:
    """Tells in the background how much is done, for the time of a ``with`` block; ``entries`` is what it has seen.

    Args:
        known: entries that were there before: they count as done, and not for the rate.
        tell: is given a line of text.
        every: seconds between two looks.
        clock: seconds, for the rate.
    """

    def __init__(
        self,
        target: TargetStore,
        plan: JobPlan,
        known: dict[str, DoneEntry],
        tell: Callable[[str], None],
        *,
        every: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.entries = dict(known)
        self._target, self._plan, self._tell = target, plan, tell
        self._every, self._clock = every, clock
        self._ids = {done_name(split.id): split.id for split in plan.splits}
        self._before = sum(entry.size for entry in known.values())
        self._began = clock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="segreader-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def look(self) -> str:
        """Look once; the state as a line.

        Raises:
            SegreaderError: the target cannot be read.
        """
        new = [
            split_id
            for info in self._target.list(DONE)
            if (split_id := self._ids.get(info.name)) is not None and split_id not in self.entries
        ]
        for split_id in new[:_READ_AT_ONCE]:
            if (entry := read_done(self._target, split_id)) is not None:
                self.entries[split_id] = entry
        return self.line()

    def line(self) -> str:
        """Splits, bytes, records, rate and the time that is left."""
        done = sum(entry.size for entry in self.entries.values())
        records = sum(entry.records for entry in self.entries.values())
        total, seconds = self._plan.size, self._clock() - self._began
        rate = (done - self._before) / seconds if seconds > 0 else 0.0
        parts = [
            f"{len(self.entries):,} of {len(self._plan.splits):,} splits",
            f"{shown_bytes(done)} of {shown_bytes(total)}",
            f"{records:,} records",
        ]
        if rate > 0:
            parts += [f"{shown_bytes(rate)}/s", f"{shown_seconds((total - done) / rate)} left"]
        return ", ".join(parts)

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self._tell(self.look())
            except SegreaderError:
                continue  # it only tells: the job itself meets what is wrong


def shown_bytes(number: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def shown_seconds(seconds: float) -> str:
    """A span of time for people."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
