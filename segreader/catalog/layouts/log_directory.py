"""A broker's own log directory: ``<topic>-<partition>/<20 digits>.{log,index,timeindex,txnindex,snapshot}``.

Directories and files in transit (``-delete``, ``-future``, ``-stray``; ``.deleted``, ``.cleaned``, ``.swap``) are
passed over by their names. A local snapshot named N is the state *at* offset N, so the one that belongs to a
segment's end bears the name of the next segment. Source: ``LogFileUtils``, ``UnifiedLog`` (4.0).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from segreader.catalog.layouts.names import LOG_DIRECTORY, LOG_FILE
from segreader.segment import Segment, SegmentFiles, TopicIdPartition
from segreader.storage.base import ObjectInfo

NAME = "log-directory"

_CHECKPOINT = "leader-epoch-checkpoint"


def find_segments(objects: Iterable[ObjectInfo]) -> list[Segment]:
    """The segments among the listed objects, in any order; objects of other layouts are passed over."""
    directories: dict[str, dict[tuple[int, str], ObjectInfo]] = defaultdict(dict)
    checkpoints: set[str] = set()
    for info in objects:
        directory, _, file = info.name.rpartition("/")
        if match := LOG_FILE.fullmatch(file):
            directories[directory][int(match["base"]), match["kind"]] = info
        elif file == _CHECKPOINT:
            checkpoints.add(directory)
    segments: list[Segment] = []
    for directory, files in directories.items():
        place = LOG_DIRECTORY.fullmatch(directory.rpartition("/")[2])
        if place is None:
            continue
        partition = TopicIdPartition(place["topic"], int(place["partition"]))
        bases = sorted(base for base, kind in files if kind == "log")
        for index, base in enumerate(bases):

            def name(kind: str, base: int = base, files: dict[tuple[int, str], ObjectInfo] = files) -> str | None:
                info = files.get((base, kind))
                return info.name if info else None

            is_last = index + 1 == len(bases)
            segments.append(
                Segment(
                    partition=partition,
                    base_offset=base,
                    log_size=files[base, "log"].size,
                    files=SegmentFiles(
                        log=files[base, "log"].name,
                        offset_index=name("index"),
                        time_index=name("timeindex"),
                        transaction_index=name("txnindex"),
                        producer_snapshot=None if is_last else name("snapshot", bases[index + 1]),
                        leader_epochs=f"{directory}/{_CHECKPOINT}" if directory in checkpoints else None,
                        sizes={} if is_last else _sizes(files, base),
                    ),
                    is_active=is_last,
                )
            )
    return segments


def _sizes(files: dict[tuple[int, str], ObjectInfo], base: int) -> dict[str, int]:
    """What was listed of a finished segment; the files of an active one grow."""
    listed = (files.get((base, kind)) for kind in ("log", "index", "timeindex", "txnindex"))
    return {info.name: info.size for info in listed if info is not None and info.size >= 0}
