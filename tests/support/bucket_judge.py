"""Reads a damaged bucket in several ways and judges each: are records wrong or lost, and does the reader say so?"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bucket_plants import Bucket

from segreader.errors import SegreaderError
from segreader.evidence.rules import Severity
from segreader.isolation import IsolationLevel
from segreader.plan.request import ReadOptions, Request, parse_bounds
from segreader.plan.split import ReadPlan
from segreader.read.metrics import ScanMetrics
from segreader.read.split_reader import SplitReader
from segreader.scans import Scan
from segreader.stored.source import Catalog, LocationSource
from segreader.testing.stores import MemoryStore
from segreader.verify.verify import verify

Row = tuple[Any, ...]

_COLUMNS = ("partition", "offset", "timestamp_ms", "key", "value")
LEVELS = ("read_committed", "read_uncommitted")
LONG_LATER_MS = 4_000_000_000_000
_SILENT = ("wrong untold", "lost untold", "crashed")


@dataclass(frozen=True, slots=True)
class Way:
    """One way to read: a level, a range, whole or in splits that are read apart."""

    level: str
    offsets: tuple[int, int | None] = (0, None)
    split_bytes: int = 1 << 30
    is_apart: bool = False

    def __str__(self) -> str:
        stop = "" if self.offsets[1] is None else self.offsets[1]
        how = "" if self.split_bytes == 1 << 30 else f" by {self.split_bytes} bytes"
        return f"{self.level} {self.offsets[0]}:{stop}{how}{' apart' if self.is_apart else ''}"


@dataclass(slots=True)
class Answer:
    """What one read gave."""

    rows: list[Row] = field(default_factory=list)
    error: BaseException | None = None
    notes: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()
    touched: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a partition is, as a scan is asked for it."""

    topic: str
    topic_id: str | None = None
    catalog: Catalog = field(default_factory=Catalog)


def read(bucket: Bucket, place: Place, way: Way) -> Answer:
    """Read the bucket; whatever it raises is in the answer."""
    store, answer = MemoryStore(bucket), Answer()
    metrics: list[ScanMetrics] = []
    plan: ReadPlan | None = None
    try:
        source = LocationSource("", opened=(store, ""), catalog=place.catalog)
        scan = Scan(
            source,
            Request(
                topic=place.topic,
                topic_id=place.topic_id,
                bounds=parse_bounds(way.offsets),
                isolation_level=IsolationLevel(way.level),
            ),
            ReadOptions(columns=_COLUMNS, split_bytes=way.split_bytes),
        )
        plan = scan.plan()
        if not way.is_apart:
            for batch in scan.to_batches():
                answer.rows += _rows(batch)
            metrics.append(scan.metrics)
        else:
            for split in reversed(plan.splits):
                reader = SplitReader(source.store, ReadOptions(columns=_COLUMNS))
                metrics.append(reader.metrics)
                found = [row for batch in reader.read(split) for row in _rows(batch)]
                answer.rows = found + answer.rows
            for end in plan.ends:
                if end.damage is not None:
                    raise end.damage
    except Exception as error:  # a crash is a verdict, too
        answer.error = error
    if plan is not None:
        told = [*plan.notes, *(gap.text for gap in plan.gaps)]
        for one in metrics:
            told += [*one.notes, *map(str, one.holes), *map(str, one.missing)]
        answer.notes = frozenset(told)
        answer.ends = frozenset(end.text for end in plan.ends if end.reason.is_early)
    answer.touched = frozenset(request.split()[1] for request in store.requests if request.startswith("GET"))
    return answer


def _rows(batch: Any) -> list[Row]:
    return list(zip(*(batch.column(name).to_pylist() for name in _COLUMNS), strict=True))


def judge(sound: Answer, damaged: Answer, way: Way) -> str:
    """``exact``, ``lost and told``, ``refused``, or one of the verdicts that must not be."""
    error = damaged.error
    if error is not None and not isinstance(error, SegreaderError):
        return "crashed"
    is_told = error is not None or bool(damaged.notes - sound.notes) or bool(damaged.ends - sound.ends)
    if damaged.rows == sound.rows:
        return "exact"
    if _is_part(damaged.rows, sound.rows):
        return "lost and told" if is_told else "lost untold"
    if error is not None:
        return "refused" if way.is_apart else "wrong before the error"
    return "wrong but noted" if is_told else "wrong untold"


def is_silent(verdict: str) -> bool:
    """Whether records are wrong or lost and nothing says so, or the reader does not end with an error of its own."""
    return verdict in _SILENT


def _is_part(some: Sequence[Row], whole: Sequence[Row]) -> bool:
    """Whether rows are among others, in their order."""
    rest = iter(whole)
    return all(any(row == one for one in rest) for row in some)


def ways(rows: Sequence[Row], dice: random.Random, ranges: int = 2) -> list[Way]:
    """Whole, in splits of one batch, each split apart, and some ranges."""
    found = [Way(level) for level in LEVELS]
    found += [Way("read_committed", split_bytes=1), Way("read_committed", split_bytes=1, is_apart=True)]
    last = max((row[1] for row in rows), default=0)
    for _ in range(ranges):
        start = dice.randint(0, last)
        found.append(Way("read_committed", (start, dice.randint(start, last + 2))))
    return found


def verify_errors(bucket: Bucket, place: Place, *, deep: bool = False) -> dict[str, set[str]]:
    """The codes of what verify calls errors, by object."""
    found: dict[str, set[str]] = {}
    source = LocationSource("", opened=(MemoryStore(bucket), ""), catalog=place.catalog)
    for one in verify(source, topic=place.topic, topic_id=place.topic_id, deep=deep, now_ms=LONG_LATER_MS):
        if one.severity is Severity.ERROR:
            found.setdefault(one.object.removeprefix("memory://bucket/"), set()).add(one.code.value)
    return found
