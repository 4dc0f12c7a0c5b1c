"""What an output has of each partition, held against the plan. Pure: plan and entries in, findings out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

from segreader.backfill.done import DoneEntry
from segreader.backfill.job_plan import JobPlan
from segreader.backfill.job_splits import LostOffsets, PartitionRange, without_lost
from segreader.errors import shown_count
from segreader.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCoverage:
    """What the output has of offsets ``start <= offset < stop`` of one partition.

    Each of them is a record, was a control or aborted record, is a hole, which holds nothing, or is missing.

    Args:
        size, written_bytes: of the splits that are done: stored, and as files.
        end: why the partition ends there.
        missing: offsets ``start <= offset < stop`` of splits that are not done.
        lost: offsets that were asked for and that no segment has, or had any more when it was to be read, or that
            damaged batches had.
        sources: records by where they came from: ``store``, ``location``, ``broker``.
        undecodable: keys and values of records that are there, but are not what their schemas say.
    """

    topic: str
    partition: int
    start: int
    stop: int
    records: int
    control_records: int
    aborted_records: int
    holes: int
    files: int
    size: int
    written_bytes: int
    end: str
    is_early: bool
    missing: tuple[tuple[int, int], ...] = ()
    lost: tuple[LostOffsets, ...] = ()
    sources: Mapping[str, int] = field(default_factory=dict)
    undecodable: int = 0

    @property
    def missing_offsets(self) -> int:
        """How many offsets the output lacks."""
        return sum(stop - start for start, stop in self.missing) + sum(one.stop - one.start for one in self.lost)


@dataclass(frozen=True, slots=True)
class Completeness:
    """The state of an output.

    Args:
        findings: what keeps it from being complete, as sentences.
        next_offsets: the JSON of Spark's kafka source: where the next read goes on.
    """

    partitions: tuple[PartitionCoverage, ...]
    next_offsets: Mapping[str, Mapping[str, int]]
    findings: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether every available offset of the plan is covered once, and every file exists."""
        return not self.findings

    @property
    def losses(self) -> tuple[str, ...]:
        """The requested offsets that are not available, and what could not be decoded, as sentences."""
        return tuple(
            f"{one.topic}-{one.partition}: {text}"
            for one in self.partitions
            for text in (
                *(lost.text for lost in one.lost),
                *(
                    [shown_count(one.undecodable, "key or value is undecodable", "keys or values are undecodable")]
                    if one.undecodable
                    else []
                ),
            )
        )

    @property
    def sources(self) -> dict[str, int]:
        """Records of all partitions by where they came from."""
        found: Counter[str] = Counter()
        for one in self.partitions:
            found.update(one.sources)
        return dict(found)

    def total(self, name: str) -> int:
        """The sum of one number of all partitions."""
        return sum(getattr(one, name) for one in self.partitions)

    def to_json(self) -> dict[str, Any]:
        """For ``json.dumps``."""
        return {
            "is_complete": self.is_complete,
            "findings": list(self.findings),
            "losses": list(self.losses),
            "sources": self.sources,
            "next_offsets": {topic: dict(offsets) for topic, offsets in self.next_offsets.items()},
            "partitions": [asdict(one) for one in self.partitions],
        }


def complete(plan: JobPlan, entries: Mapping[str, DoneEntry], sizes: Mapping[str, int] | None = None) -> Completeness:
    """Hold the entries against the plan: is each offset covered, and once?

    Args:
        entries: by the id of their split.
        sizes: bytes of every file that is there; ``None`` leaves files out of account.
    """
    of_partition: dict[tuple[str, int], list[DoneEntry]] = defaultdict(list)
    for entry in entries.values():
        of_partition[entry.topic, entry.partition].append(entry)
    planned, name = {split.id for split in plan.splits}, plan.name
    findings = [f"{split_id} is done, and not in the plan" for split_id in sorted(entries) if split_id not in planned]
    findings += [
        f"{entry.split}: was written by a job that was replaced and still ran; end it, and begin anew with --force"
        for entry in entries.values()
        if entry.plan not in ("", name)
    ]
    partitions = []
    for wanted in plan.partitions:
        mine = sorted(of_partition[wanted.topic, wanted.partition], key=lambda entry: entry.start)
        uncovered, wrong = _uncovered(wanted, mine)
        missing = without_lost(uncovered, wanted.lost)
        findings += wrong
        findings += [f"{_name(wanted)}: offsets {start} to {stop - 1} are not written" for start, stop in missing]
        for entry in mine:
            findings += _contradictions(entry)
        partitions.append(_coverage(wanted, mine, missing))
    if sizes is not None:
        for entry in entries.values():
            for file in entry.files:
                if sizes.get(file.name) != file.size:
                    there = f"has {sizes[file.name]} bytes" if file.name in sizes else "is not there"
                    findings.append(f"{file.name}, a file of {file.size} bytes, {there}")
    return Completeness(tuple(partitions), plan.next_offsets, tuple(findings))


def totals(entries: Iterable[DoneEntry]) -> dict[str, int | float | str]:
    """What an output took, by its entries: bytes and requests of the attempts that won."""
    listed = list(entries)
    return {
        "splits": len(listed),
        "records": sum(entry.records for entry in listed),
        "files": sum(len(entry.files) for entry in listed),
        "stored_bytes": sum(entry.size for entry in listed),
        "bytes_read": sum(entry.bytes_read for entry in listed),
        "requests": sum(entry.requests for entry in listed),
        "written_bytes": sum(entry.written_bytes for entry in listed),
        "task_seconds": round(sum(entry.seconds for entry in listed), 3),
        "retried": sum(entry.attempt > 0 for entry in listed),
        "kernel": ", ".join(sorted({entry.kernel for entry in listed})),
    }


def _uncovered(wanted: PartitionRange, entries: Sequence[DoneEntry]) -> tuple[list[tuple[int, int]], list[str]]:
    """The offsets that no entry covers; and what is covered twice, or was not asked for."""
    missing, wrong = [], []
    at = wanted.start
    for entry in entries:
        if entry.start > at:
            missing.append((at, entry.start))
        elif entry.start < at:
            wrong.append(
                f"{_name(wanted)}: offsets {entry.start} to {min(at, entry.stop) - 1} are there twice, or early"
            )
        at = max(at, entry.stop)
    if at < wanted.stop:
        missing.append((at, wanted.stop))
    elif at > wanted.stop:
        wrong.append(f"{_name(wanted)}: offsets {wanted.stop} to {at - 1} are there, and not planned")
    return missing, wrong


def _contradictions(entry: DoneEntry) -> list[str]:
    in_files = sum(file.rows for file in entry.files)
    wrong = []
    if in_files != entry.records:
        wrong.append(
            f"{entry.split}: {shown_count(entry.records, 'record is', 'records are')} done, and {in_files} in its files"
        )
    if entry.holes < 0:
        wrong.append(f"{entry.split}: more records than offsets")
    if any(not entry.start <= file.first_offset <= file.last_offset < entry.stop for file in entry.files):
        wrong.append(f"{entry.split}: a file holds other offsets")
    return wrong


def _coverage(
    wanted: PartitionRange, entries: Sequence[DoneEntry], missing: Iterable[tuple[int, int]]
) -> PartitionCoverage:
    return PartitionCoverage(
        topic=wanted.topic,
        partition=wanted.partition,
        start=wanted.start,
        stop=wanted.stop,
        records=sum(entry.records for entry in entries),
        control_records=sum(entry.control_records for entry in entries),
        aborted_records=sum(entry.aborted_records for entry in entries),
        holes=sum(entry.holes for entry in entries),
        files=sum(len(entry.files) for entry in entries),
        size=sum(entry.size for entry in entries),
        written_bytes=sum(entry.written_bytes for entry in entries),
        end=wanted.end,
        is_early=wanted.is_early,
        missing=tuple(missing),
        lost=tuple(sorted([*wanted.lost, *(one for entry in entries for one in (*entry.lost, *entry.damaged))])),
        sources=_sources(entries),
        undecodable=sum(entry.undecodable for entry in entries),
    )


def _sources(entries: Iterable[DoneEntry]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for entry in entries:
        found.update(entry.sources or {"store": entry.records})
    return dict(found)


def _name(wanted: PartitionRange) -> str:
    return f"{wanted.topic}-{wanted.partition}"
