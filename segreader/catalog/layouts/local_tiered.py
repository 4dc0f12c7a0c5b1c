"""Kafka's ``LocalTieredStorage``: one directory a partition, one set of files a segment.

``<topic>-<partition>-<topicId>/<20 digits>-<segmentId>.<kind>``; the kinds are those of ``names.REMOTE_FILE``.
Source: ``RemoteTopicPartitionDirectory``, ``RemoteLogSegmentFileset`` (4.0).
"""

from __future__ import annotations

from collections.abc import Iterable

from segreader.catalog.layouts.base import (
    REMOTE_FILE,
    REMOTE_KINDS,
    REMOTE_PARTITION_PATH,
    IncompleteSegment,
    Layout,
    Names,
    PartitionFiles,
    PartitionPlace,
    is_offset,
    last_directory,
    segment_files,
)
from segreader.segment import Segment, TopicIdPartition
from segreader.storage.base import ObjectInfo, ObjectStore

NAME = "local-tiered"

_LAST_WRITTEN = "snapshot"
"""Source: ``RemoteLogSegmentFileset.copy`` (4.3)."""

_REQUIRED = dict.fromkeys(("log", "index", "timeindex", "snapshot", "leader_epoch_checkpoint"))


class LocalTieredLayout(Layout):
    """What Kafka's test plugin writes; ``.txnindex`` is the only file that a segment may lack."""

    name = NAME
    names = Names(REMOTE_PARTITION_PATH, REMOTE_FILE)

    def find(self, store: ObjectStore, place: PartitionPlace) -> PartitionFiles:
        """The sets of files of one partition; those without a log, an index or a checkpoint are incomplete."""
        (prefix,) = place.prefixes
        return sort_files(store.list_level(prefix))


def sort_files(objects: Iterable[ObjectInfo]) -> PartitionFiles:
    """The listed objects as segments, in any order.

    A set without its log, or without the file that is written last, is incomplete. One that has these and lacks another
    was once whole: it is read without that, and named as incomplete, too. Where no set is whole, someone copied the
    logs alone, and they are read.
    """
    sets: dict[str, dict[str, ObjectInfo]] = {}
    files: dict[str, ObjectInfo] | None
    foreign: list[str] = []
    begin, files = "", None
    for info in objects:
        name = info.name
        if files is not None and name.startswith(begin) and name[len(begin) :] in REMOTE_KINDS:
            files[name[len(begin) :]] = info  # names are in order, so that those of a set follow each other
            continue
        stem, _, kind = name.rpartition(".")
        begin, files = f"{stem}.", sets.get(stem)
        if files is None and (match := REMOTE_FILE.fullmatch(last_directory(name))) and is_offset(match["base"]):
            files = sets[stem] = {}
        if files is not None and kind in REMOTE_KINDS:
            files[kind] = info
        else:
            foreign.append(name)
    segments: list[Segment] = []
    incomplete: list[IncompleteSegment] = []
    notes: list[str] = []
    partitions: dict[str, TopicIdPartition | None] = {}
    is_written = any(_LAST_WRITTEN in files and "log" in files for files in sets.values())
    for stem, files in sets.items():
        directory, _, name = stem.rpartition("/")
        base, _, segment_id = name.partition("-")
        if directory not in partitions:
            partitions[directory] = LocalTieredLayout().partition_of(f"{directory}/")
        if (partition := partitions[directory]) is None:
            foreign.extend(info.name for info in files.values())
            continue
        segment = None
        if (log := files.get("log")) is not None:
            segment = Segment(
                partition=partition,
                base_offset=int(base),
                log_size=log.size,
                files=segment_files(files),
                segment_id=segment_id,
                version=log.modified_ms or 0,
                log_tag=log.tag,
            )
        is_upload = is_written and _LAST_WRITTEN not in files  # in progress or given up
        if len(files) - ("txnindex" in files) < len(_REQUIRED):
            first = min(info.name for info in files.values())
            missing = tuple(kind for kind in _REQUIRED if kind not in files)
            unread = segment if is_upload else None
            epochs = files.get("leader_epoch_checkpoint")
            incomplete.append(
                IncompleteSegment(int(base), first, missing, segment_id, unread, epochs.name if epochs else None)
            )
        if segment is None or is_upload:
            continue
        if not is_written and not notes:
            notes.append(f"{directory}: no set of files here has a .{_LAST_WRITTEN}, which is written last: logs alone")
        segments.append(segment)
    return PartitionFiles(segments, incomplete, foreign, notes)
