"""A broker's own log directory: ``<topic>-<partition>/<20 digits>.{log,index,timeindex,txnindex,snapshot}``.

Directories and files in transit (``-delete``, ``-future``, ``-stray``; ``.deleted``, ``.cleaned``, ``.swap``) are
skipped by their names. A local snapshot named N is the state *at* offset N, so the one that belongs to a
segment's end is named after the next segment. Source: ``LogFileUtils``, ``UnifiedLog`` (4.0).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from segreader.catalog.layouts.base import (
    LOG_FILE,
    PARTITION_PATH,
    IncompleteSegment,
    Layout,
    Names,
    PartitionFiles,
    PartitionPlace,
)
from segreader.segment import Segment, SegmentFiles, TopicIdPartition
from segreader.storage.base import ObjectInfo, ObjectStore

NAME = "log-directory"
CHECKPOINT = "leader-epoch-checkpoint"

_INDEXES = ("index", "timeindex", "txnindex")
_OTHER_FILES = {CHECKPOINT, "partition.metadata"}


class LogDirectoryLayout(Layout):
    """A broker's ``log.dirs``, or a copy of one; the last segment of a partition is the active one."""

    name = NAME
    names = Names(PARTITION_PATH, re.compile(r"\d{20}\.log"))

    def find(self, store: ObjectStore, place: PartitionPlace) -> PartitionFiles:
        """The segments of one partition."""
        (prefix,) = place.prefixes
        return sort_files(place.partition, prefix, store.list_level(prefix))


def sort_files(partition: TopicIdPartition, prefix: str, objects: Iterable[ObjectInfo]) -> PartitionFiles:
    """The listed objects of one directory as segments, by base offset."""
    files: dict[tuple[int, str], ObjectInfo] = {}
    foreign: list[str] = []
    checkpoint: str | None = None
    for info in objects:
        file = info.name.removeprefix(prefix)
        if match := LOG_FILE.fullmatch(file):
            files[int(match["base"]), match["kind"]] = info
        elif file == CHECKPOINT:
            checkpoint = info.name
        elif file not in _OTHER_FILES:
            foreign.append(info.name)
    bases = sorted(base for base, kind in files if kind == "log")

    def name(kind: str, base: int) -> str | None:
        info = files.get((base, kind))
        return info.name if info else None

    segments = []
    for index, base in enumerate(bases):
        is_last = index + 1 == len(bases)
        segments.append(
            Segment(
                partition=partition,
                base_offset=base,
                log_size=files[base, "log"].size,
                files=SegmentFiles(
                    log=files[base, "log"].name,
                    offset_index=name("index", base),
                    time_index=name("timeindex", base),
                    transaction_index=name("txnindex", base),
                    producer_snapshot=None if is_last else name("snapshot", bases[index + 1]),
                    leader_epochs=checkpoint,
                    sizes={} if is_last else _sizes(files, base),
                ),
                is_active=is_last,
                version=files[base, "log"].modified_ms or 0,
                log_tag=files[base, "log"].tag,
            )
        )
    indexes = {base: info.name for (base, kind), info in sorted(files.items()) if kind in _INDEXES}
    lacking = [IncompleteSegment(base, indexes[base], ("log",)) for base in sorted(indexes.keys() - {*bases})]
    return PartitionFiles(segments, lacking, foreign, start_snapshot=name("snapshot", bases[0]) if bases else None)


def _sizes(files: dict[tuple[int, str], ObjectInfo], base: int) -> dict[str, int]:
    """What was listed of a finished segment; the files of an active one grow."""
    listed = (files.get((base, kind)) for kind in ("log", *_INDEXES))
    return {info.name: info.size for info in listed if info is not None and info.size >= 0}
