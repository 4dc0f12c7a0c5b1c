"""Cases of the corpus as loaders read them: queries, whole reads, and the same tier before it had grown."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from corpus import FIXTURES, Case, NormalRecord, cases, normal

from segreader.loader import LoaderSplit, LoadQuery, Position, ReaderPool, ResumableReader, SplitEnumerator
from segreader.read.arrow import schema
from segreader.read.records import RECORD_COLUMNS, iter_consumer_records

SETS = ("tv2", "tv1", "k39", "cluster", "aiven-plain", "aiven-zstd", "aiven-encrypted")
HANGING = "diverged-hanging"  # remote files alone do not show its dead branch


def is_transactional(case: Case) -> bool:
    """Whether producers of the case used transactions, or its history parts ways."""
    return "txn" in case.topic or "diverged" in case.topic or "epochs" in case.topic


def remote_cases() -> list[Case]:
    """Every case with a truth and a remote tier."""
    return cases(*SETS, remote=True)


def query_of(case: Case, isolation: str, location: Path | None = None, **more: Any) -> LoadQuery:
    """What a user must say to load a case; ``committed`` or ``uncommitted``."""
    given: dict[str, Any] = {
        "location": str(location or case.root / "remote"),
        "topic": case.topic,
        "topic_id": case.topic_id,
        "isolation_level": f"read_{isolation}",
        "columns": RECORD_COLUMNS,
    }
    if case.set_name == "aiven-encrypted":
        given["rsm_config"] = str(FIXTURES / "aiven-encrypted.properties")
    if case.topic == HANGING:
        given["leader_epochs"] = str(case.root / "local")
    return LoadQuery(**given | more)


@cache
def truth_of(case: Case, isolation: str) -> list[NormalRecord]:
    """What the Java consumer was given of what the remote tier has and decides, by partition."""
    found = []
    for record in case.truth(isolation):
        stop = case.remote_stop(record.partition)
        if isolation == "committed":
            stop = min(stop, case.offline_lso(record.partition))
        if record.offset < stop:
            found.append(record)
    return found


def from_log_start(case: Case, isolation: str, records: Sequence[NormalRecord]) -> list[NormalRecord]:
    """Without those below what DeleteRecords left: segments may begin below it."""
    start = case.facts[isolation]["start"]
    return [record for record in records if record.offset >= start[str(record.partition)]]


def read_rest(reader: ResumableReader, **limits: Any) -> pa.Table:
    """What a reader still gives."""
    found = []
    while (batch := reader.read(**limits)) is not None:
        found.append(batch)
    assert reader.is_finished
    return pa.Table.from_batches(found, schema=schema(reader.columns))


def records_of(read: pa.Table | pa.RecordBatch) -> list[NormalRecord]:
    """The records of what was read, in the form of the truth."""
    batches = read.to_batches() if isinstance(read, pa.Table) else [read]
    return [normal(record) for batch in batches for record in iter_consumer_records(batch)]


def load(query: LoadQuery, splits: Sequence[LoaderSplit], pool: ReaderPool | None = None) -> list[NormalRecord]:
    """All records of splits."""
    with pool or ReaderPool(query) as shared:
        return [record for split in splits for record in records_of(read_rest(shared.open(split)))]


def positions_in(reader: ResumableReader) -> Iterator[Position]:
    """Where a reader stands before its first record, after each, and at its end."""
    yield reader.position
    while reader.read(max_rows=1) is not None:
        yield reader.position
    yield reader.position


def has_segments_in_a_row(case: Case) -> bool:
    """Whether a partition of the case has a segment before its last one."""
    begins: dict[Path, set[str]] = {}
    for log in (file for one in case.remote for file in one.rglob("*.log")):
        begins.setdefault(log.parent, set()).add(log.name[:20])
    return any(len(some) > 1 for some in begins.values())


def without_last_segment(case: Case, copy: Path) -> Path:
    """The case's remote tier as it was before the last segment of each of its partitions was uploaded.

    Files are links to the corpus. Copies of one segment count as one.
    """
    root = case.root / "remote"
    for directory, _, names in os.walk(root):
        here = Path(directory)
        if not any(here == one or one in here.parents or here in one.parents for one in case.remote):
            continue
        (copy / here.relative_to(root)).mkdir(parents=True, exist_ok=True)
        begins = sorted({name[:20] for name in names if name[:20].isdecimal()})
        for name in names:
            if name[:20] not in begins[-1:]:
                os.link(here / name, copy / here.relative_to(root) / name)
    return copy


def at(split: LoaderSplit, offset: int) -> Position:
    """A position that knows nothing but the offset, as one that a person writes."""
    bare = replace(split.position, log=None, log_size=None, batch_position=None)
    return replace(bare, next_offset=offset)


def split_of(splits: Sequence[LoaderSplit], position: Position) -> LoaderSplit | None:
    """The split that a position goes on in; ``None`` if all of them end before it."""
    for split in splits:
        if split.partition.partition == position.partition and position.next_offset < split.stop:
            return split if split.start <= position.next_offset else None
    return None


def all_splits(query: LoadQuery) -> list[LoaderSplit]:
    """What a new enumerator hands out first."""
    with SplitEnumerator(query) as enumerator:
        return enumerator.discover()


def rot(path: Path, data: bytes | bytearray) -> None:
    """Other bytes in a file, as a disk's damage leaves them: no time of a change tells."""
    status = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
