"""Segments outside any layout: files that were copied by hand, or URLs that name objects one by one.

What names leave out comes from the request, or from the first batch of the log.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from segreader.catalog.layouts import local_tiered
from segreader.catalog.layouts.base import LOG_DIRECTORY, REMOTE_DIRECTORY, IncompleteSegment
from segreader.errors import FormatError
from segreader.format.batch import COMMON_SIZE, check_common
from segreader.format.compression import DEFAULT_LIMIT, Decompressor
from segreader.format.message_set import parse_message_set_entry
from segreader.ranges import ByteRange
from segreader.segment import Segment, SegmentFiles, TopicIdPartition
from segreader.storage.base import ObjectInfo, ObjectStore

UNKNOWN_TOPIC = "unknown"
"""The topic of logs whose names and request have none."""

_FILE = re.compile(r"(?P<stem>.+)\.(?P<kind>log|index|timeindex|txnindex)")
_BASE_OFFSET = re.compile(r"(\d{20})(?!\d)")


def find_listed_segments(store: ObjectStore, *, topic: str | None, partition: int | None) -> list[Segment]:
    """The segments of a store that is only a list of objects: those a layout explains, and the loose ones."""
    objects = list(store.list())
    known = list(local_tiered.sort_files(objects).segments)
    stems = {segment.files.log.removesuffix("log") for segment in known}
    rest = [info for info in objects if info.name.rpartition(".")[0] + "." not in stems]
    return known + find_loose_segments(store, rest, topic=topic, partition=partition)


def find_loose_segments(
    store: ObjectStore, objects: Iterable[ObjectInfo], *, topic: str | None, partition: int | None
) -> list[Segment]:
    """One segment for each ``<stem>.log`` among the objects, with the indexes of the same stem.

    Producer snapshots are ignored: a name outside any layout does not show whether one is the state at a segment's
    start or at its end. Open transactions are found by replaying the logs instead.

    Args:
        store: where to look into a log whose name has no base offset.
        topic, partition: of logs whose directory does not name them.

    Raises:
        FormatError: a log's first batch is needed for its base offset, and it does not begin with one.
    """
    stems: dict[str, dict[str, ObjectInfo]] = defaultdict(dict)
    for info in objects:
        if match := _FILE.fullmatch(info.name):
            stems[match["stem"]][match["kind"]] = info
    segments = []
    for stem, files in stems.items():
        if "log" not in files:
            continue
        log = files["log"]
        names = {kind: info.name for kind, info in files.items()}
        named = _BASE_OFFSET.match(log.name.rpartition("/")[2])
        # offsets in indexes count from the segment's base, which may be below the first batch
        indexes = (names.get("index"), names.get("timeindex")) if named else (None, None)
        segments.append(
            Segment(
                partition=_partition(stem, topic, partition),
                base_offset=int(named[1]) if named else _first_offset(store, log),
                log_size=log.size,
                files=SegmentFiles(log.name, *indexes, names.get("txnindex")),
                log_tag=log.tag,
            )
        )
    return segments


def find_sets_without_log(
    store: ObjectStore, segments: Iterable[Segment], *, topic: str | None, partition: int | None
) -> list[tuple[TopicIdPartition, IncompleteSegment]]:
    """The indexes whose log is not in the list, one of each set, and whose they are; see ``find_loose_segments``."""
    stems = {segment.files.log.removesuffix(".log") for segment in segments}
    lacking: dict[str, IncompleteSegment] = {}
    for info in store.list():
        match = _FILE.fullmatch(info.name)
        named = _BASE_OFFSET.match(info.name.rpartition("/")[2])
        if match and named and match["kind"] != "log" and match["stem"] not in stems:
            lacking.setdefault(match["stem"], IncompleteSegment(int(named[1]), info.name, ("log",)))
    return [(_partition(stem, topic, partition), one) for stem, one in lacking.items()]


def _partition(stem: str, topic: str | None, partition: int | None) -> TopicIdPartition:
    directory = stem.rpartition("/")[0].rpartition("/")[2]
    if match := REMOTE_DIRECTORY.fullmatch(directory):
        return TopicIdPartition(match["topic"], int(match["partition"]), match["topic_id"])
    if match := LOG_DIRECTORY.fullmatch(directory):
        return TopicIdPartition(match["topic"], int(match["partition"]))
    return TopicIdPartition(topic or UNKNOWN_TOPIC, partition or 0)


def _first_offset(store: ObjectStore, log: ObjectInfo) -> int:
    """Offset of the first record that a log can hold, read from its first batch."""
    if log.size < COMMON_SIZE:
        return 0
    try:
        offset, size, magic = check_common(store.read_ranges(log.name, [ByteRange(0, COMMON_SIZE)])[0], 0)
        if magic == 2 or size > min(log.size, DEFAULT_LIMIT):
            return offset
        entry = memoryview(store.read_ranges(log.name, [ByteRange(0, size)])[0])
        return parse_message_set_entry(entry, Decompressor())[0].offset  # a wrapper has its last offset
    except FormatError as error:
        raise error.located(source=store.url(log.name)) from None
