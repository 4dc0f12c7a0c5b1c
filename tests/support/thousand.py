"""A partition of a thousand small segments, and plans that take the way of so many for a few: by those near a range."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from segreader.stored import near
from segreader.stored.log import StoredLog
from segreader.stored.planner import PartitionPlanner
from segreader.testing.aiven import aiven_files
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import local_tiered_files

SEGMENTS = 1000
RECORDS = 10
OFFSETS = 2 * RECORDS + 1
"""Of a segment, its marker included."""

PRODUCER = 7
MINUTE_MS = 60_000


def near_always(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Plan ranges by near segments however few there are; returns whether that was enough, range by range."""
    answers: list[bool] = []
    add_near = PartitionPlanner.add_near

    def add(*arguments: Any, **options: Any) -> StoredLog | None:
        found = add_near(*arguments, **options)
        answers.append(found is not None)
        return found

    monkeypatch.setattr(near, "LEAST_SEGMENTS", 2)
    monkeypatch.setattr(near, "LARGEST_SHARE", 1.0)
    monkeypatch.setattr(PartitionPlanner, "add_near", add)
    return answers


def thousand_segments() -> dict[str, bytes]:
    """Of three leaders; each segment ends inside a transaction that the next one aborts."""
    return in_layout("local-tiered")


@cache
def in_layout(layout: str) -> dict[str, bytes]:
    """The same in this layout."""
    return files_in(layout, thousand_builders())


def files_in(layout: str, segments: list[SegmentBuilder]) -> dict[str, bytes]:
    if layout == "aiven":
        return aiven_files("orders", segments, compression=True, chunk_size=256)
    return local_tiered_files("orders", segments)


@cache
def thousand_builders() -> list[SegmentBuilder]:
    segments = [SegmentBuilder()]
    while True:
        builder = segments[-1]
        if len(segments) > 1:
            builder.marker(PRODUCER, abort=True)
        builder.batch([b"%d" % at for at in range(RECORDS)])
        if len(segments) in (300, 600):
            builder.new_leader(builder.leader_epoch + 1)
        builder.batch([b"%d" % at for at in range(RECORDS)], producer_id=PRODUCER, transactional=True)
        if len(segments) == SEGMENTS:
            return segments
        segments.append(builder.roll())


def times_of_uploads(objects: dict[str, bytes]) -> dict[str, int]:
    """A minute from one segment to the next, in order of offset."""
    stems = sorted({name.rpartition(".")[0] for name in objects})
    return {name: (1 + stems.index(name.rpartition(".")[0])) * MINUTE_MS for name in objects}


def next_segment() -> SegmentBuilder:
    """The one that is uploaded next: it ends the transaction that is open."""
    return thousand_builders()[-1].roll().marker(PRODUCER, abort=True).batch([b"new"] * 5)
