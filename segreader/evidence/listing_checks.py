"""What a listing shows, by itself and against the metadata topic: sets not whole, odd names, strays, wrong sizes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from segreader.catalog.layouts import log_directory
from segreader.catalog.layouts.base import IncompleteSegment, PartitionPlace
from segreader.catalog.listing import PartitionLog
from segreader.catalog.metadata_log import RemoteLogMetadata, RemoteLogSegmentMetadata
from segreader.errors import SegreaderError, shown_count
from segreader.evidence.findings import Findings
from segreader.evidence.rules import Code
from segreader.plan.lineage import DropReason, ResolvedLog
from segreader.segment import Segment, SegmentState, TopicIdPartition
from segreader.storage.base import ObjectInfo, ObjectStore, StoreView

_MISSING: Final = {
    "log": Code.MISSING_LOG,
    "rsm-manifest": Code.MISSING_MANIFEST,
    "indexes": Code.MISSING_INDEXES,
    "index": Code.MISSING_OFFSET_INDEX,
    "timeindex": Code.MISSING_TIME_INDEX,
    "snapshot": Code.MISSING_SNAPSHOT,
    "leader_epoch_checkpoint": Code.MISSING_LEADER_EPOCHS,
    "leader-epoch-checkpoint": Code.MISSING_LEADER_EPOCHS,
}
_UPLOAD_ORDERS: Final = (
    ("log", "index", "timeindex", "leader_epoch_checkpoint", "snapshot"),
    ("log", "indexes", "rsm-manifest"),
)
"""In which plugins write the files of a segment. Source: ``LocalTieredStorage`` (4.3), Aiven's plugin (1.0)."""

_UPLOAD_TAKES_MS: Final = 3_600_000
_MAX_OFFSET: Final = (1 << 63) - 1
_MOST_DIRECTORIES: Final = 1000

_LIKE_A_SEGMENT: Final = re.compile(
    r"\w{10,}([-._][\w-]+)?\.(log|index|timeindex|txnindex|snapshot|leader_epoch_checkpoint|rsm-manifest|indexes)"
)
_IN_TRANSIT: Final = re.compile(r".+\.(deleted|cleaned|swap|tmp)")
_OF_BROKERS: Final = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint|\.kafka_cleanshutdown|remote_log_snapshot")
"""What brokers write beside the segments, and no layout needs. Source: ``LogFileUtils``, KIP-630; 3.6."""


class NoticingStore(StoreView):
    """A store that remembers which directories a walk found to hold files that look like those of segments."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.segment_like: dict[str, str] = {}

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """As the store below."""
        for info in self.inner.list_level(prefix):
            directory, _, file = info.name.rpartition("/")
            if (
                file
                and directory not in self.segment_like
                and len(self.segment_like) < _MOST_DIRECTORIES
                and _LIKE_A_SEGMENT.fullmatch(file)
            ):
                self.segment_like[directory] = info.name
            yield info


def check_places(
    found: Findings, prefix: str, places: Sequence[PartitionPlace], seen: NoticingStore, *, are_all: bool
) -> None:
    """Note what the partitions of a location show together.

    Args:
        seen: through which they were looked for.
        are_all: whether no partitions were chosen, so that one can be missing.
    """
    ids: dict[str, set[str]] = defaultdict(set)
    numbers: dict[tuple[str, str], set[int]] = defaultdict(set)
    layouts: dict[str, set[str]] = defaultdict(set)
    spots: dict[tuple[TopicIdPartition, str], list[str]] = defaultdict(list)
    for place in places:
        one = place.partition
        ids[one.topic].add(one.topic_id or "")
        numbers[one.topic, one.topic_id or ""].add(one.partition)
        layouts[one.topic].add(place.layout)
        spots[one, place.layout].append(place.prefixes[0])
    for topic, of_topic in ids.items():
        if len(layouts[topic]) > 1:
            text = f"topic {topic!r} exists in the layouts {' and '.join(sorted(layouts[topic]))}"
            found.add(Code.MIXED_LAYOUTS, prefix, text)
        elif len(of_topic) > 1:
            text = f"topic {topic!r} has the ids {' and '.join(sorted(of_topic))}"
            found.add(Code.RECREATED_TOPIC, prefix, text)
    for (one, _), where in spots.items():
        if len(where) > 1:
            found.add(Code.PARTITION_TWICE, where[1], f"{one} is in {where[0]} as well")
    if are_all:
        for (topic, _), have in numbers.items():
            missing = sorted(set(range(max(have))) - have) if max(have) < 100_000 else []
            if missing:
                shown = ", ".join(map(str, missing[:8])) + (" …" if len(missing) > 8 else "")
                found.add(Code.MISSING_PARTITION, prefix, f"topic {topic!r} has no partition {shown}")
    known = tuple(prefix for place in places for prefix in place.prefixes)
    for directory, name in seen.segment_like.items():
        if not f"{directory}/".startswith(known) and not log_directory_in_transit(directory):
            text = f"{name.rpartition('/')[2]} looks like a segment's, and {directory or '/'} names no partition"
            found.add(Code.STRAY_SEGMENTS, f"{directory}/" if directory else name, text)


def log_directory_in_transit(directory: str) -> bool:
    """Whether a broker is moving or deleting this partition. Source: ``LogFileUtils`` (4.0)."""
    return directory.endswith(("-delete", "-future", "-stray"))


def check_listing(found: Findings, log: PartitionLog, place: PartitionPlace, store: ObjectStore) -> None:
    """Note names that are nearly right, and what is foreign."""
    for name in log.foreign:
        _check_foreign(found, name)
    for segment in log.segments:
        _check_name(found, segment.files.log, segment.base_offset)
    directory = place.prefixes[0]
    if not directory.isascii():
        text = "the directory's name has letters or digits that Kafka does not write"
        found.add(Code.MALFORMED_NAME, directory, text)
    if re.search(r"-0\d+(-[A-Za-z0-9_-]{22})?/$", directory):
        found.add(Code.MALFORMED_NAME, directory, "the number of the partition has zeros before it")
    if log.layout == log_directory.NAME:
        _check_log_directory(found, log, place, store)
    for note in log.notes:
        found.add(Code.NOTE, directory, note)


def check_incomplete(
    found: Findings,
    one: IncompleteSegment,
    segments: Sequence[Segment],
    store: ObjectStore,
    now_ms: int,
    *,
    is_finished: bool = False,
) -> bool:
    """Note what is missing of one set; returns whether that explains a hole.

    Args:
        segments: those that are whole enough to be read, and are not given up themselves.
        now_ms: to tell an upload that is going on from one that was given up.
        is_finished: the metadata topic says that the upload has ended.
    """
    missing = ", ".join(one.missing)
    others = [segment for segment in segments if segment.segment_id != one.segment_id]
    if not is_finished:
        if begins_with_another(one, segments):
            text = f"it lacks {missing}, and another set of files begins at offset {one.base_offset}, too"
            found.add(Code.ABANDONED_UPLOAD, one.name, text, offset=one.base_offset)
            return False
        is_newest = all(segment.base_offset < one.base_offset for segment in others)
        if is_newest and _is_written_last(one.missing) and _is_recent(store, one.name, now_ms):
            text = f"it lacks {missing}, it is the newest, and was written less than an hour ago"
            found.add(Code.UNFINISHED_UPLOAD, one.name, text, offset=one.base_offset)
            return True
        if "log" in one.missing and len(one.missing) > 2:
            text = f"it lacks {missing}: what is left belongs to no log"
            found.add(Code.ORPHAN_SIDE_FILE, one.name, text, offset=one.base_offset)
            return False
    for kind in one.missing:
        code = _MISSING.get(kind, Code.MISSING_FILE)
        found.add(code, one.name, f"the segment at offset {one.base_offset} has no {kind}", offset=one.base_offset)
    return True


def begins_with_another(one: IncompleteSegment, segments: Sequence[Segment]) -> bool:
    """Whether any of the segments begins at the offset of this set, and is not made of it."""
    return any(other.base_offset == one.base_offset and other.segment_id != one.segment_id for other in segments)


def not_given_up(offset: int, segments: Sequence[Segment], resolved: ResolvedLog) -> list[Segment]:
    """The segments without those that begin at an offset and were given up, where nothing is in their place."""

    def is_replaced(at: int) -> bool:
        return any(part.start <= at < part.stop for part in resolved.parts)

    dropped = (one for one in resolved.dropped if one.segment.base_offset == offset)
    given_up = {
        one.segment.files.log for one in dropped if one.reason is DropReason.DIVERGED and not is_replaced(one.start)
    }
    return [one for one in segments if one.files.log not in given_up]


def incomplete_notes(store: ObjectStore, log: PartitionLog, resolved: ResolvedLog) -> list[str]:
    """What a plan says of sets that are not read, where no segment has the offset at which they begin.

    In a hole the hole says so; a set below a log start that is known was deleted.
    """
    unread = [one for one in log.incomplete if one.segment_id is None or one.segment_id not in _ids(log.segments)]
    if not unread:
        return []
    notes = []
    inside = [(part.start, part.start + 1 if part.segment.is_active else part.stop) for part in resolved.parts]
    inside += [(hole.start, hole.stop) for hole in resolved.holes]
    for one in unread:
        is_deleted = log.log_start is not None and one.base_offset < log.log_start
        if is_deleted or any(start <= one.base_offset < stop for start, stop in inside):
            continue
        where = f"the segment at offset {one.base_offset}" if one.base_offset >= 0 else "a segment"
        if resolved.parts and one.base_offset < resolved.start:
            why = "it is the oldest here: part of it was deleted or is lost"
        elif log.layout == log_directory.NAME:
            why = "its log was deleted or is lost"
        else:
            why = "its upload goes on or was given up, or part of it is lost"
        notes.append(f"{store.url(one.name)}: {where} has no {' and no '.join(one.missing)}; not read: {why}")
    return notes


def _ids(segments: Sequence[Segment]) -> set[str | None]:
    return {segment.segment_id for segment in segments}


def _is_written_last(missing: Sequence[str]) -> bool:
    """Whether an upload that is going on would lack just these files, and have its log."""
    return any(set(missing) == set(order[-len(missing) :]) for order in _UPLOAD_ORDERS if 0 < len(missing) < len(order))


def _is_recent(store: ObjectStore, name: str, now_ms: int) -> bool:
    """Whether an object was written a short time ago, or at an unknown time."""
    try:
        info = next((info for info in store.list(name) if info.name == name), None)
    except SegreaderError:
        return False
    written_ms = info.modified_ms if info is not None else None
    return written_ms is None or now_ms - written_ms < _UPLOAD_TAKES_MS


def _check_foreign(found: Findings, name: str) -> None:
    file = name.rpartition("/")[2]
    if _IN_TRANSIT.fullmatch(file):
        found.add(Code.FILE_IN_TRANSIT, name, "its suffix says that a broker is at it")
    elif _LIKE_A_SEGMENT.fullmatch(file):
        found.add(Code.MALFORMED_NAME, name, "it is nearly a segment's name: digits, id or suffix are wrong")
    elif not _OF_BROKERS.fullmatch(file):
        found.add(Code.FOREIGN_OBJECT, name, "it belongs to no segment, and is no other file of this layout")


def _check_name(found: Findings, name: str, base_offset: int) -> None:
    file = name.rpartition("/")[2]
    if not file.isascii():
        text = f"its digits are not those that Kafka writes; read as offset {base_offset}"
        found.add(Code.MALFORMED_NAME, name, text, offset=base_offset)
    elif base_offset > _MAX_OFFSET:
        found.add(Code.MALFORMED_NAME, name, f"no offset is larger than {_MAX_OFFSET}", offset=base_offset)


def _check_log_directory(found: Findings, log: PartitionLog, place: PartitionPlace, store: ObjectStore) -> None:
    """Note side files without a log, and logs without their indexes. Snapshots stand between segments there."""
    for segment in log.segments:
        for kind, name in (("index", segment.files.offset_index), ("timeindex", segment.files.time_index)):
            if name is None:
                text = f"the segment at offset {segment.base_offset} has no {kind}"
                found.add(_MISSING[kind], segment.files.log, text, offset=segment.base_offset)
    stems = {segment.files.log.removesuffix(".log") for segment in log.segments}
    for info in store.list_level(place.prefixes[0]):
        stem, _, kind = info.name.rpartition(".")
        if kind in ("index", "timeindex", "txnindex") and stem not in stems and info.name not in log.foreign:
            found.add(Code.ORPHAN_SIDE_FILE, info.name, "no log of this name is there")


def incomplete_offsets(log: PartitionLog) -> frozenset[int]:
    """Base offsets of the sets that are not read: a hole there is known."""
    read = _ids(log.segments)
    return frozenset(one.base_offset for one in log.incomplete if one.segment_id not in read)


_LIVE = (
    SegmentState.COPY_SEGMENT_STARTED,
    SegmentState.COPY_SEGMENT_FINISHED,
    SegmentState.DELETE_SEGMENT_STARTED,
)


class MetadataAudit:
    """Compares the objects of one partition with the metadata topic."""

    def __init__(self, found: Findings, metadata: RemoteLogMetadata, log: PartitionLog, place: PartitionPlace) -> None:
        self._found, self._log, self._place = found, log, place
        partition = log.partition
        self._known = {one.segment_id: one for one in metadata.segments(partition, _LIVE)}
        self._deleted = metadata.deleted(partition)
        self._with_aborts = metadata.ids_with_aborts(partition)
        self._is_gone = not self._known and bool(self._deleted)
        self._is_complete = not metadata.notes
        self._sizes: dict[str, frozenset[Code]] = {}

    def check(self, store: ObjectStore, now_ms: int) -> None:
        """Note what the metadata topic says of the sets of files, and of those that are not there at all."""
        log, found = self._log, self._found
        if self._is_gone and log.segments:
            left = shown_count(len(log.segments), "segment is", "segments are")
            deleted = shown_count(len(self._deleted), "was", "were")
            text = f"{left} here, and {deleted} deleted: all there were"
            found.add(Code.DELETED_TOPIC_LEFT, self._place.prefixes[0], text)
        for segment in log.segments:
            self._check_segment(segment)
        here = {segment.segment_id for segment in log.segments}
        for one in log.incomplete:
            if one.segment_id in here:
                continue
            here.add(one.segment_id)
            known = self._known.get(one.segment_id or "")
            if known is not None and known.state is not SegmentState.COPY_SEGMENT_FINISHED:
                self._note_unfinished(known, one.name)
            elif known is None:
                self._note_unknown(one.segment_id, one.name, one.base_offset)
        for one in log.incomplete:
            known = self._known.get(one.segment_id or "")
            if known is not None and known.state is SegmentState.COPY_SEGMENT_FINISHED:
                check_incomplete(found, one, log.segments, store, now_ms, is_finished=True)
        for segment_id, known in self._known.items():
            if segment_id in here:
                continue
            if known.state is SegmentState.COPY_SEGMENT_FINISHED:
                text = (
                    f"segment {segment_id} with offsets {known.base_offset} to {known.last_offset} is finished, "
                    "and none of its objects is here"
                )
                place = f"{self._place.prefixes[0]}{known.base_offset:020d}-{segment_id}.log"
                found.add(Code.FINISHED_SEGMENT_MISSING, place, text, offset=known.base_offset)
            else:
                self._note_unfinished(known, self._place.prefixes[0])

    @property
    def missing_offsets(self) -> frozenset[int]:
        """Base offsets of finished segments that are not here: a hole there is known."""
        here = {segment.segment_id for segment in self._log.segments}
        return frozenset(
            one.base_offset
            for one in self._known.values()
            if one.state is SegmentState.COPY_SEGMENT_FINISHED and one.segment_id not in here
        )

    def codes_of(self, segment: Segment) -> frozenset[Code]:
        """What was found about the size of a segment's log: other findings may follow from it."""
        return self._sizes.get(segment.files.log, frozenset())

    def completed(self, segment: Segment) -> Segment | None:
        """The segment with what the metadata topic knows of it; ``None`` if it is not a finished one by that."""
        if self._is_gone:
            return segment
        known = self._known.get(segment.segment_id or "")
        if known is None or known.state is not SegmentState.COPY_SEGMENT_FINISHED:
            return None
        return replace(
            segment,
            log_size=min(segment.log_size, known.log_size),
            last_offset=known.last_offset,
            epochs=known.epochs,
            max_timestamp_ms=known.max_timestamp_ms if segment.log_size else None,
            version=known.version,
            has_aborts=known.segment_id in self._with_aborts,
        )

    def _check_segment(self, segment: Segment) -> None:
        name, found = segment.files.log, self._found
        known = self._known.get(segment.segment_id or "")
        if known is None:
            self._note_unknown(segment.segment_id, name, segment.base_offset)
            return
        if known.state is not SegmentState.COPY_SEGMENT_FINISHED:
            self._note_unfinished(known, name)
            return
        if known.base_offset != segment.base_offset:
            text = f"the name has offset {segment.base_offset}, and the metadata topic {known.base_offset}"
            found.add(Code.METADATA_CONTRADICTS_NAME, name, text, offset=segment.base_offset)
        if segment.log_size != known.log_size:
            code = Code.LOG_TOO_SHORT if segment.log_size < known.log_size else Code.LOG_TOO_LONG
            text = f"it has {segment.log_size} bytes, and {known.log_size} by the metadata topic"
            found.add(code, name, text, position=min(segment.log_size, known.log_size))
            self._sizes[name] = frozenset((code,))

    def _note_unfinished(self, known: RemoteLogSegmentMetadata, name: str) -> None:
        is_upload = known.state is SegmentState.COPY_SEGMENT_STARTED
        code = Code.UNFINISHED_UPLOAD if is_upload else Code.UNFINISHED_DELETE
        text = (
            f"segment {known.segment_id} with offsets {known.base_offset} to {known.last_offset} "
            f"is in state {known.state.name}"
        )
        self._found.add(code, name, text, offset=known.base_offset)

    def _note_unknown(self, segment_id: str | None, name: str, base_offset: int) -> None:
        if self._is_gone:
            return
        if segment_id in self._deleted:
            text = f"segment {segment_id} is in state {SegmentState.DELETE_SEGMENT_FINISHED.name}"
            self._found.add(Code.DELETED_SEGMENT_LEFT, name, text, offset=base_offset)
        elif self._is_complete:
            text = f"the metadata topic has no segment {segment_id}"
            self._found.add(Code.UNKNOWN_SEGMENT, name, text, offset=base_offset)


def check_partitions(
    found: Findings, metadata: RemoteLogMetadata, prefix: str, here: frozenset[TopicIdPartition]
) -> None:
    """Note the finished segments of partitions of which nothing at all is there."""
    for partition in metadata.partitions():
        if partition in here:
            continue
        for known in metadata.segments(partition):
            text = (
                f"segment {known.segment_id} of {partition} (topic id {partition.topic_id}) with offsets "
                f"{known.base_offset} to {known.last_offset} is finished, and its partition is not here"
            )
            found.add(Code.FINISHED_SEGMENT_MISSING, prefix, text, offset=known.base_offset)
    for note in metadata.notes:
        found.add(Code.NOTE, prefix, note)
