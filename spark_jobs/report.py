"""What a backfill will do, how far it is, and what it did, as text for a person who sees it for the first time."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, Literal, Self
from urllib.parse import unquote, urlsplit

from segreader.backfill.done import DoneEntry, read_done
from segreader.backfill.job_plan import JobPlan
from segreader.backfill.output import DONE, OutputLayout, done_name
from segreader.backfill.report import Completeness, PartitionCoverage
from segreader.errors import SegreaderError, shown_count
from segreader.plan.cost import CostEstimate
from segreader.storage.target.store import TargetStore

_SHOWN = 50
_PRINTED: Final = '; print(*{}.to_pylist(), sep="\\n")'
_LONGEST = 2000


@dataclass(frozen=True, slots=True)
class RunReport:
    """What one run did, and what is in the target now.

    Args:
        found: the state of the output.
        totals: of all splits that are done; see ``segreader.backfill.report.totals``.
        reused: how many of them were done before this run.
        seconds: that this run took.
        table: which kind of table the target is; ``None`` for files.
        name: of the table in its catalog.
        catalog: what else that is found by, such as ``uri``; a secret among it is ``env:VARIABLE``.
    """

    plan: JobPlan
    target: str
    found: Completeness
    totals: dict[str, Any]
    reused: int
    seconds: float
    table: Literal["iceberg", "delta"] | None = None
    name: str = ""
    catalog: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_nothing_new(self) -> bool:
        """Whether the target ended where the log ends, so that this round had nothing to add."""
        return self.plan.start is not None and all(one.start == one.stop for one in self.plan.partitions)

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
        f"Reading {shown_bytes(plan.size)} of segments in {plan.location}: {shown_count(topics, 'topic')}, "
        f"{shown_count(len(plan.partitions), 'partition')}, {shown_count(len(plan.splits), 'split')}"
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
    counted = f"{cost.requests:,} GET requests over HTTP, {cost.size:,} bytes of {shown_count(cost.objects, 'object')}"
    return f"{counted}\n{cost.money_text or 'give your prices with --prices to see them in money'}"


def describe_report(report: RunReport) -> str:
    """The summary that ends a job: what the target has of each partition, and where the next read goes on."""
    found, totals, plan = report.found, report.totals, report.plan
    command = look_command(
        report.target, is_hive=plan.output.is_hive, table=report.table, name=report.name, catalog=report.catalog
    )
    look = f"look     {command}"
    output = f"output   {_output(report)}"
    if report.has_nothing_new and found.is_complete:
        ends = f"nothing new: the target ends at {_next_offsets(found)}"
        return "\n".join([ends, *_lost_line(found), output, look])
    rows = [_row(part) for part in found.partitions]
    hidden = len(rows) - _SHOWN
    reused = f", {report.reused:,} of them before this run" if report.reused else ""
    lines = [
        *_table(("topic", "partition", "offsets", "records", "control", "aborted", "holes", "missing"), rows[:_SHOWN]),
        *([f"… and {shown_count(hidden, 'partition')} more"] if hidden > 0 else []),
        "",
        f"read     {shown_bytes(found.total('size'))} of segments in {plan.location}",
        f"         in {shown_count(totals['splits'], 'split')}{reused}, {totals['kernel'] or 'no'} kernel",
        f"         {_meaning(plan.isolation)}",
        *([f"from     {_sources(found)}"] if plan.asks_brokers else []),
        f"wrote    {shown_count(found.total('records'), 'record')}"
        f" of {shown_count(len(found.partitions), 'partition')},"
        f" {shown_bytes(found.total('written_bytes'))} of Parquet in {shown_count(found.total('files'), 'file')}",
        *([f"after    what the {plan.round - 1:,} rounds before this one wrote"] if plan.round > 2 else []),
        *(["after    what the round before this one wrote"] if plan.round == 2 else []),
        f"took     {report.seconds:.1f} s",
        f"next     {_next_offsets(found)}",
        output,
        *_lost_line(found),
    ]
    if found.is_complete:
        lines.append(look)
    else:
        lines.append(f"missing  {shown_count(len(found.findings), 'finding')}; run it again to finish what is missing")
    return "\n".join(lines)


def _output(report: RunReport) -> str:
    if report.table is None:
        return f"{report.target}/{_directories(report.plan)}"
    kind = "Iceberg" if report.table == "iceberg" else "Delta"
    return f"the {kind} table {report.name or report.target}"


def _lost_line(found: Completeness) -> list[str]:
    lost = sum(one.stop - one.start for part in found.partitions for one in part.lost)
    if not lost:  # nothing is, or only undecodable values, which are told on their own
        return []
    return [
        f"lost     {shown_count(lost, 'offset')} that no segment has or that damage hides; the output is what there is"
    ]


def look_command(
    target: str,
    *,
    is_hive: bool = False,
    table: Literal["iceberg", "delta"] | None = None,
    name: str = "",
    catalog: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """A line that shows the first records of the output: for the shell where this Python can, otherwise for DuckDB
    and pyspark; for pyspark alone in Azure, whose account no URL here names.

    Args:
        target: of the files, or the location of the table.
        is_hive: whether directories of files are ``topic=…``.
        table: what kind of table it is; ``None`` for files.
        name: of the table, ``catalog.namespace.table``; a Delta table may have none.
        catalog: what else an Iceberg catalog is found by, as ``uri``; no secret, for it is shown.
    """
    if table == "iceberg":
        found, _, below = name.partition(".")
        options = f", **{dict(catalog)!r}" if catalog else ""
        code = f"from pyiceberg.catalog import load_catalog as c; t = c({found!r}{options}).load_table({below!r})"
        line = f"{_python()} -c {shlex.quote(code + _PRINTED.format('t.scan(limit=3).to_arrow()'))}"
        return f"{line}    # or in pyspark: spark.table({_quoted(name)}).show(3)"
    parts = urlsplit(target)
    if parts.scheme not in ("", "file"):
        place, needs = _for_spark(target)
        # of directories that name no column, Spark takes files only where it is told to
        deep = "" if is_hive or table else '.option("recursiveFileLookup", "true")'
        kind = '.format("delta").load' if table else f"{deep}.parquet"
        jars = " and ".join(["delta-spark"] * (table == "delta") + [needs])
        in_spark = f"spark.read{kind}({_quoted(place)}).show(3)"
        if place.startswith("abfss:"):
            return f"{in_spark}    (in pyspark, with {jars})"
        url = f"{parts.scheme.rstrip('an')}://{target.partition('://')[2]}"
        rows = (
            f"delta_scan({_quoted_in_sql(url)})" if table else f"read_parquet({_quoted_in_sql(url + '/**/*.parquet')})"
        )
        return f"FROM {rows} LIMIT 3    (in DuckDB, with a secret for the bucket; in pyspark, with {jars}: {in_spark})"
    path = unquote(parts.path) if parts.scheme else target
    if table == "delta":
        rows = f"t({_quoted(path)}).to_pyarrow_dataset().head(3)"
        code = f"from deltalake import DeltaTable as t{_PRINTED.format(rows)}"
        also = f"delta_scan({_quoted_in_sql(path)})"
    else:
        partitioning = ', partitioning="hive"' if is_hive else ""
        rows = f"d.dataset({_quoted(path)}{partitioning}).head(3)"
        code = f"import pyarrow.dataset as d{_PRINTED.format(rows)}"
        also = f"read_parquet({_quoted_in_sql(path + '/**/*.parquet')})"
    return f"{_python()} -c {shlex.quote(code)}    # or in DuckDB: FROM {also} LIMIT 3"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _quoted_in_sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _for_spark(target: str) -> tuple[str, str]:
    """A URL as Spark's file systems take it, and what they need for it, in few words."""
    scheme, _, rest = target.partition("://")
    bucket, slash, path = rest.partition("/")
    if scheme in ("s3", "s3a", "s3n"):
        return f"s3a://{rest}", "the package hadoop-aws of its Hadoop version"
    if scheme in ("abfs", "abfss", "az"):
        host = bucket if "@" in bucket else f"{bucket}@ACCOUNT.dfs.core.windows.net"
        return f"abfss://{host}{slash}{path}", "the package hadoop-azure of its Hadoop version"
    return f"gs://{rest}", "Google's gcs-connector"


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
    return "; ".join(f"{where}: {shown_count(records, 'record')}" for where, records in there) or "nothing"


def _meaning(isolation_level: str) -> str:
    if isolation_level == "read_committed":
        return "read_committed: records of aborted transactions are left out"
    return "read_uncommitted: records of aborted transactions are included"


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
_PER_PAGE: Final = 1000
_WINDOW: Final = 30.0
_BAR: Final = 10
_SELDOM: Final = 30.0
_OFTEN: Final = 1.0
_TASK: Final = 8 << 20
"""Bytes that are read in the time that a task takes to start: of small splits all take the same time."""
_TELLING: Final = 0.1
"""The part of all splits that must be done in the first look that finds any: the first split waits for its worker."""
_SHORTEST: Final = 5.0
"""Seconds that are still shown as what is left: an estimate of fewer is wrong more often than right."""


class ProgressWatch:
    """Tells in the background how much is done, for the time of a ``with`` block; ``entries`` is what it has seen.

    A look lists the done entries, and reads at most 200 that are new: it costs a request for each 1,000 entries, and
    one for each that is read. Looks come so seldom that listing takes a request a second at most, however many entries
    there are: S3 takes 2 cents an hour for 3,600. That a split is done, and its bytes, are known by its name; what is
    read tells records and files.

    Args:
        known: entries that were there before: they count as done, and not for the rate.
        tell: is given a line of text; by default stderr is: a terminal has one line with a bar, redrawn each second
            and wiped when all went well; anything else a line each half minute.
        every: seconds between two looks at least.
        clock: seconds, for the rate.
    """

    def __init__(
        self,
        target: TargetStore,
        plan: JobPlan,
        known: dict[str, DoneEntry],
        tell: Callable[[str], None] | None = None,
        *,
        every: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.entries = dict(known)
        self._target, self._plan, self._tell = target, plan, tell
        self._every, self._clock = every, clock
        self._ids = {done_name(split.id): split.id for split in plan.splits}
        self._sizes = {split.id: split.size for split in plan.splits}
        self._done = set(known)
        self._bytes = sum(entry.size for entry in known.values())
        # when how many bytes and how many splits were done: one for each look that found more, and the first
        self._began = clock()
        self._seen = deque([(self._began, self._bytes, len(known))])
        self._told = time.monotonic()
        self._is_open = False
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
        if self._is_open:  # what is told next has a line of its own
            print("\r\x1b[K" if kind is None else "\n", end="", file=sys.stderr, flush=True)

    def look(self) -> str:
        """Look once; the state as a line.

        Raises:
            SegreaderError: the target cannot be read.
        """
        for info in self._target.list(DONE):
            split_id = self._ids.get(info.name)
            if split_id is not None and split_id not in self._done:
                self._done.add(split_id)
                self._bytes += self._sizes[split_id]
        unread = (split_id for split_id in self._sizes if split_id in self._done and split_id not in self.entries)
        for split_id in list(islice(unread, _READ_AT_ONCE)):
            if self._stop.is_set():
                break
            if (entry := read_done(self._target, split_id)) is not None:
                self.entries[split_id] = entry
        return self.line()

    def line(self, width: int | None = None) -> str:
        """Splits, bytes, records, files, the rate of the last half minute, and the time that is left; so far none of
        it is known, the time since the start.

        Args:
            width: characters that there are: where it does not fit, files and records are left out.
        """
        now, total = self._clock(), self._plan.size
        if len(self._done) > self._seen[-1][2]:
            self._seen.append((now, self._bytes, len(self._done)))
        while len(self._seen) > 2 and self._seen[1][0] <= self._seen[-1][0] - _WINDOW:
            self._seen.popleft()
        (began, before, few), (last, done, many) = self._seen[0], self._seen[-1]
        to_come = len(self._plan.splits) - many
        parts = [
            f"{many:,} of {shown_count(len(self._plan.splits), 'split')}",
            f"{shown_bytes(done)} of {shown_bytes(total)}",
        ]
        if not to_come:
            ends = ["finishing"]
        elif many > few and last > began and (len(self._seen) > 2 or many >= _TELLING * len(self._plan.splits)):
            work = (done - before + (many - few) * _TASK) / (last - began)
            # since the last split was done, others have gone on
            left = (total - done + to_come * _TASK) / work - (now - last)
            waits = f"the last {shown_count(to_come, 'split')} to come"
            rate = f"{shown_bytes((done - before) / (last - began))}/s"
            ends = [rate, f"{shown_seconds(left)} left" if left >= _SHORTEST else waits]
        else:
            ends = [f"{shown_seconds(now - self._began)} so far"]
        entries = self.entries.values()
        numbers = {"record": sum(one.records for one in entries), "file": sum(len(one.files) for one in entries)}
        is_all = len(entries) == len(self._done)
        counts = [shown_count(n, noun) if is_all else f"{n:,}+ {noun}s" for noun, n in numbers.items()]
        while width is not None and counts and len(", ".join([*parts, *counts, *ends])) > width:
            counts.pop()
        return ", ".join([*parts, *counts, *ends])

    @property
    def pause(self) -> float:
        """Seconds until the next look: one for each page of the listing, and ``every`` at least."""
        return max(self._every, -(-len(self._done) // _PER_PAGE))

    def _watch(self) -> None:
        is_drawn = self._tell is None and sys.stderr.isatty()
        tell = self._tell or (self._draw if is_drawn else self._tell_seldom)
        next_look = time.monotonic() + self.pause
        while not self._stop.wait(min(_OFTEN, self.pause) if is_drawn else self.pause):
            try:
                if not is_drawn or time.monotonic() >= next_look:
                    next_look = time.monotonic() + self.pause
                    self.look()
                tell(self.line(shutil.get_terminal_size().columns - _BAR - 4 if is_drawn else None))
            except SegreaderError:
                pass  # it only tells: the job itself meets what is wrong

    def _draw(self, line: str) -> None:
        filled = _BAR * self._bytes // self._plan.size if self._plan.size else _BAR
        text = f"[{'#' * filled}{'.' * (_BAR - filled)}] {line}"[: shutil.get_terminal_size().columns - 1]
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        self._is_open = True

    def _tell_seldom(self, line: str) -> None:
        if time.monotonic() - self._told >= _SELDOM:
            self._told = time.monotonic()
            print(line, file=sys.stderr, flush=True)


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
