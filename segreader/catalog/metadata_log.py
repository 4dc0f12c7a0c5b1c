"""The segments of each partition in the remote tier, from the records of ``__remote_log_metadata``.

``RemoteLogMetadata`` remembers; it is fed in the order of offsets and does not care where the records come from.
Records of one partition are in one metadata partition, and their order there is the only one that counts: event times
are the clocks of different brokers. ``join`` completes a partition's listing by what is known of it. Source:
``RemoteLogMetadataCache``, ``RemoteLogSegmentState`` (4.3).
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from enum import IntEnum, StrEnum
from operator import attrgetter
from typing import NamedTuple

from segreader.catalog.layouts.base import PartitionPlace
from segreader.catalog.listing import PartitionLog
from segreader.errors import FormatError
from segreader.format.checkpoints import LeaderEpochs
from segreader.format.remote_log_metadata import (
    MetadataRecord,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    TopicIdPartitionEntry,
    parse_partition_key,
    parse_remote_log_metadata,
    partition_key,
)
from segreader.segment import Segment, SegmentFiles, SegmentState, StemFiles, TopicIdPartition
from segreader.values import dataclass

METADATA_TOPIC = "__remote_log_metadata"

_STARTED, _FINISHED = SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED
_DELETING, _DELETED = SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED
_STATES = tuple(SegmentState)
_FOLLOWERS = ((_FINISHED, _DELETING), (_FINISHED, _DELETING), (_DELETING, _DELETED), (_DELETED,))
"""By state, what an update may make of it. Source: ``RemoteLogSegmentState.isValidTransition`` (4.3)."""


class RemoteLogSegmentMetadata(NamedTuple):
    """One attempt to keep one segment in the remote tier, and how far it has come.

    Args:
        started: the record that began it: its offsets, epochs and sizes stay what they are.
        broker_id, event_timestamp_ms, custom_metadata: of the newest record about it.
        version: among the finished ones of a partition the larger number finished later; the event's time in ms,
            raised where clocks went back. 0 until finished.
    """

    partition: TopicIdPartition
    started: RemoteLogSegmentMetadataRecord
    broker_id: int
    event_timestamp_ms: int
    custom_metadata: bytes | None
    state: SegmentState
    version: int = 0

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self.partition.topic

    @property
    def topic_id(self) -> str:
        """Its id, 22 characters."""
        return self.partition.topic_id or ""

    @property
    def segment_id(self) -> str:
        """A new one for every attempt, 22 characters."""
        return self.started.segment_id

    @property
    def base_offset(self) -> int:
        """First offset of the segment."""
        return self.started.start_offset

    @property
    def last_offset(self) -> int:
        """Last offset, inclusive (Kafka's ``endOffset``); the last batch may end earlier."""
        return self.started.end_offset

    @property
    def max_timestamp_ms(self) -> int:
        """Largest timestamp of its records, markers included."""
        return self.started.max_timestamp_ms

    @property
    def epochs(self) -> LeaderEpochs:
        """Each leader epoch and its first offset in this segment."""
        return self.started.epochs

    @property
    def log_size(self) -> int:
        """Bytes of the ``.log`` alone."""
        return self.started.log_size

    @property
    def transaction_index_is_empty(self) -> bool:
        """True: there is no ``.txnindex``; false means nothing."""
        return self.started.transaction_index_is_empty

    def to_segment(self, files: SegmentFiles | StemFiles) -> Segment:
        """The segment as all layers above know it, with its objects."""
        started = self.started
        return Segment(
            self.partition,
            started.start_offset,
            started.log_size,
            files,
            started.segment_id,
            False,
            started.end_offset,
            started.epochs,
            started.max_timestamp_ms,
            self.version,
        )


class Skipped(StrEnum):
    """Why a record changed nothing."""

    NULL_VALUE = "null value"
    UNKNOWN_KIND = "unknown kind of message"
    SNAPSHOT = "segment of a snapshot file"
    NOT_STARTED = "new segment in another state than started"
    STARTED_AGAIN = "segment started again after a later state"
    UNKNOWN_SEGMENT = "update of an unknown segment"
    IMPOSSIBLE_STATE = "impossible state transition"
    APPLIED_BEFORE = "offset applied before"


class PartitionDeleteState(IntEnum):
    """How far the deletion of a partition has come. Source: ``RemotePartitionDeleteState`` (4.3)."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """What is known of one topic id.

    Args:
        partitions: their numbers, those whose segments are all deleted included.
        segments: how many are in each state.
        deleted: how many were deleted for good.
    """

    topic: str
    topic_id: str
    partitions: tuple[int, ...]
    segments: Mapping[SegmentState, int]
    deleted: int


class _Partition:
    """The segments of one partition by id: those that are only started, and those that went on from there."""

    __slots__ = ("delete_state", "deleted", "deleted_count", "entry", "name", "started", "updated", "version")

    def __init__(self, entry: TopicIdPartitionEntry) -> None:
        self.entry = entry
        self.name = TopicIdPartition(entry.topic, entry.partition, entry.topic_id)
        self.started: dict[str, RemoteLogSegmentMetadataRecord] = {}
        self.updated: dict[str, RemoteLogSegmentMetadata] = {}
        self.deleted: set[str] = set()
        self.deleted_count = 0
        self.delete_state: PartitionDeleteState | None = None
        self.version = 0

    def segments(self, states: Collection[SegmentState]) -> list[RemoteLogSegmentMetadata]:
        if self.delete_state not in (None, PartitionDeleteState.DELETE_PARTITION_FINISHED):
            found = self._started() + list(self.updated.values()) if _DELETING in states else []
            return [segment._replace(state=_DELETING) for segment in found]
        started = self._started() if _STARTED in states else []
        return started + [segment for segment in self.updated.values() if segment.state in states]

    def _started(self) -> list[RemoteLogSegmentMetadata]:
        return [
            RemoteLogSegmentMetadata(
                self.name, record, record.broker_id, record.event_timestamp_ms, record.custom_metadata, _STARTED
            )
            for record in self.started.values()
        ]


class RemoteLogMetadata:
    """The remote tier by the metadata topic: feed it with ``apply``, then ask.

    Args:
        topic, topic_id, partitions: keep only what is about these; everything by default.
        keep_deleted: remember the ids of deleted segments; without it they are only counted.

    ``skipped`` counts the records that changed nothing, by reason. ``with_trailing_bytes`` counts values that were
    used though bytes follow their message. ``consumed`` is the next offset of each metadata partition.
    ``notes`` are for people: what a reader of the topic's files found remarkable.
    """

    def __init__(
        self,
        *,
        topic: str | None = None,
        topic_id: str | None = None,
        partitions: Collection[int] | None = None,
        keep_deleted: bool = True,
    ) -> None:
        self.skipped: Counter[Skipped] = Counter()
        self.with_trailing_bytes = 0
        self.consumed: dict[int, int] = {}
        self.notes: list[str] = []
        self._topic, self._topic_id = topic, topic_id
        self._numbers = None if partitions is None else frozenset(partitions)
        self._keep_deleted = keep_deleted
        self._needles = _needles(topic, topic_id)
        self._by_key: dict[bytes, _Partition] = {}
        self._partitions: dict[TopicIdPartition, _Partition] = {}

    def apply_each(self, metadata_partition: int, records: Iterable[tuple[int, bytes | None]]) -> None:
        """Take the next records of a metadata partition, offset and value of each, from ``consumed`` on.

        Raises:
            FormatError: a value is damaged; those before it are applied. ``offset`` is the record's,
                ``position`` a byte of its value.
        """
        following, partition_of = self.consumed.get(metadata_partition, 0), self._by_key.get
        offset = following
        try:
            for offset, value in records:
                if offset < following:
                    self.skipped[Skipped.APPLIED_BEFORE] += 1
                    continue
                key = b"" if value is None else partition_key(value)
                partition = partition_of(key) or self._admit(key)
                if value is not None and partition is not None:
                    reason = self._apply(partition, parse_remote_log_metadata(value, partition.entry))
                else:
                    reason = None if key else self._kind_of(value)
                if reason is not None:
                    self.skipped[reason] += 1
                following = offset + 1
        except FormatError as error:
            raise error.located(source=f"{METADATA_TOPIC}-{metadata_partition}", offset=offset) from None
        finally:
            self.consumed[metadata_partition] = following

    def topics(self) -> list[TopicSummary]:
        """Every topic id that any record was about, by name and id."""
        of_topic: dict[tuple[str, str], list[_Partition]] = {}
        for partition in self._sorted():
            of_topic.setdefault((partition.entry.topic, partition.entry.topic_id), []).append(partition)
        return [
            TopicSummary(
                topic,
                topic_id,
                tuple(found.entry.partition for found in group),
                Counter(segment.state for found in group for segment in found.segments(_STATES)),
                sum(found.deleted_count for found in group),
            )
            for (topic, topic_id), group in sorted(of_topic.items())
        ]

    def partitions(
        self, topic: str | None = None, topic_id: str | None = None, *, with_deleted: bool = False
    ) -> list[TopicIdPartition]:
        """The partitions that have segments in any state, by topic, number and id.

        Args:
            topic, topic_id: only of these.
            with_deleted: those, too, whose segments are all deleted for good.
        """
        return [
            partition.name
            for partition in self._sorted()
            if (topic is None or topic == partition.entry.topic)
            and (topic_id is None or topic_id == partition.entry.topic_id)
            and (with_deleted or partition.started or partition.updated)
        ]

    def segments(
        self, partition: TopicIdPartition, states: Collection[SegmentState] = (_FINISHED,)
    ) -> list[RemoteLogSegmentMetadata]:
        """The segments of a partition that are in one of these states, in any order.

        While a partition is being deleted all its segments count as ``DELETE_SEGMENT_STARTED``.
        """
        known = self._partitions.get(partition)
        return known.segments(states) if known else []

    def ids_with_aborts(self, partition: TopicIdPartition) -> frozenset[str]:
        """Ids of the segments of a partition whose transaction index has rows for certain.

        A record says only that one is empty, and older brokers never do: what a broker does not call empty has rows
        from the first time on that it called another one of the partition empty.
        """
        records = [one.started for one in self.segments(partition, _STATES)]
        since: dict[int, int] = {}
        for record in records:
            if record.transaction_index_is_empty:
                at = record.event_timestamp_ms
                since[record.broker_id] = min(at, since.get(record.broker_id, at))
        if not since:
            return frozenset()
        return frozenset(
            record.segment_id
            for record in records
            if not record.transaction_index_is_empty
            and (first := since.get(record.broker_id)) is not None
            and first <= record.event_timestamp_ms
        )

    def deleted(self, partition: TopicIdPartition) -> frozenset[str]:
        """Ids of the segments whose objects should be gone: those deleted for good (see ``keep_deleted``)."""
        known = self._partitions.get(partition)
        return frozenset(known.deleted) if known else frozenset()

    def delete_state(self, partition: TopicIdPartition) -> PartitionDeleteState | None:
        """How far the deletion of the whole partition has come, if a record has announced one."""
        known = self._partitions.get(partition)
        return known.delete_state if known else None

    def _sorted(self) -> list[_Partition]:
        return sorted(self._partitions.values(), key=lambda partition: partition.name.order)

    def _admit(self, key: bytes) -> _Partition | None:
        """The partition of a key seen for the first time, if it is wanted; those that are not leave no trace."""
        if not key or not all(needle in key for needle in self._needles):
            return None
        entry = parse_partition_key(key)
        if (
            (self._topic is not None and self._topic != entry.topic)
            or (self._topic_id is not None and self._topic_id != entry.topic_id)
            or (self._numbers is not None and entry.partition not in self._numbers)
        ):
            return None
        partition = _Partition(entry)
        partition = self._partitions.setdefault(partition.name, partition)  # tagged fields give it another key
        self._by_key[key] = partition
        return partition

    def _apply(self, partition: _Partition, record: MetadataRecord) -> Skipped | None:
        if isinstance(record, RemoteLogSegmentMetadataUpdateRecord):
            reason = self._update(partition, record)
        elif isinstance(record, RemoteLogSegmentMetadataRecord):
            reason = self._start(partition, record)
        elif isinstance(record, RemotePartitionDeleteMetadataRecord):
            reason = None
            self._delete_partition(partition, PartitionDeleteState(record.state))
        else:
            return Skipped.UNKNOWN_KIND
        if record.trailing_bytes:
            self.with_trailing_bytes += 1
        return reason

    @staticmethod
    def _kind_of(value: bytes | None) -> Skipped:
        """Why a record that names no partition is skipped."""
        if value is None:
            return Skipped.NULL_VALUE
        is_snapshot = isinstance(parse_remote_log_metadata(value), RemoteLogSegmentMetadataSnapshotRecord)
        return Skipped.SNAPSHOT if is_snapshot else Skipped.UNKNOWN_KIND

    @staticmethod
    def _start(partition: _Partition, record: RemoteLogSegmentMetadataRecord) -> Skipped | None:
        if record.state != _STARTED:
            return Skipped.NOT_STARTED
        if record.segment_id in partition.updated:
            return Skipped.STARTED_AGAIN
        if record.segment_id in partition.deleted:
            partition.deleted.remove(record.segment_id)
            partition.deleted_count -= 1
        partition.started[record.segment_id] = record
        return None

    def _update(self, partition: _Partition, record: RemoteLogSegmentMetadataUpdateRecord) -> Skipped | None:
        segment_id, state = record.segment_id, _STATES[record.state]
        known = partition.updated.get(segment_id)
        started = partition.started.get(segment_id) if known is None else known.started
        if started is None:
            return Skipped.UNKNOWN_SEGMENT
        if state not in _FOLLOWERS[_STARTED if known is None else known.state]:
            return Skipped.IMPOSSIBLE_STATE
        partition.started.pop(segment_id, None)
        if state is _DELETED:
            del partition.updated[segment_id]
            self._forget(partition, (segment_id,))
            return None
        version = 0 if known is None else known.version
        if state is _FINISHED:
            version = partition.version = max(record.event_timestamp_ms, partition.version + 1)
        partition.updated[segment_id] = RemoteLogSegmentMetadata(
            partition.name,
            started,
            record.broker_id,
            record.event_timestamp_ms,
            record.custom_metadata,
            state,
            version,
        )
        return None

    def _delete_partition(self, partition: _Partition, state: PartitionDeleteState) -> None:
        partition.delete_state = state
        if state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
            for segments in (partition.started, partition.updated):
                self._forget(partition, segments)
                segments.clear()

    def _forget(self, partition: _Partition, segment_ids: Collection[str]) -> None:
        partition.deleted_count += len(segment_ids)
        if self._keep_deleted:
            partition.deleted.update(segment_ids)


def _needles(topic: str | None, topic_id: str | None) -> list[bytes]:
    """Bytes in the key of every wanted partition: other records are skipped undecoded."""
    needles = [] if topic is None else [topic.encode("utf-8")]
    if topic_id is not None and re.fullmatch("[A-Za-z0-9_-]{22}", topic_id):
        needles.append(urlsafe_b64decode(topic_id + "=="))
    return needles


def from_metadata(place: PartitionPlace, metadata: RemoteLogMetadata) -> PartitionLog:
    """The finished segments of a partition without listing it: their objects have the names that plugins give them."""
    prefix = place.prefixes[0]
    segments = []
    with_aborts = metadata.ids_with_aborts(place.partition)
    for known in metadata.segments(place.partition):
        started = known.started
        stem = f"{prefix}{started.start_offset:020d}-{started.segment_id}"
        segment = known.to_segment(StemFiles(stem, not started.transaction_index_is_empty))
        segments.append(replace(segment, has_aborts=True) if started.segment_id in with_aborts else segment)
    return PartitionLog(place.partition, _ordered(segments), place.layout, notes=tuple(metadata.notes))


def join(listed: PartitionLog, metadata: RemoteLogMetadata) -> PartitionLog:
    """The segments that the metadata calls finished and whose objects exist; notes name the others.

    What only the metadata knows is taken from it: last offset, leader epochs, times, which copy was finished later.
    """
    states = {one.segment_id: one for one in metadata.segments(listed.partition, (_STARTED, _FINISHED, _DELETING))}
    deleted = metadata.deleted(listed.partition)
    with_aborts = metadata.ids_with_aborts(listed.partition)
    notes = [*listed.notes, *metadata.notes]
    segments = []
    too_short: dict[str, int] = {}
    incomplete = []
    for one in listed.incomplete:
        state = states[one.segment_id].state if one.segment_id in states else None
        if one.segment is None or state is not _FINISHED:
            incomplete.append(replace(one, segment=None))  # what is no segment by the metadata is not read
    given_up = {one.segment_id for one in incomplete}
    finished = [one.segment for one in listed.incomplete if one.segment is not None and one.segment_id not in given_up]
    for segment in (*listed.segments, *finished):
        known = states.pop(segment.segment_id or "", None)
        why = _why_not(segment, known, segment.segment_id in deleted)
        if why is None and known is not None:
            completed = _completed(segment, known, has_aborts=known.segment_id in with_aborts)
            index = segment.files.transaction_index
            if index is not None and known.transaction_index_is_empty and segment.files.sizes.get(index):
                notes.append(f"{index}: by the metadata topic there is no such index; read without it")
            if segment.log_size < known.log_size:
                notes.append(
                    f"{segment.files.log}: its log has {segment.log_size} bytes, and {known.log_size} by the metadata "
                    "topic; read as far as it goes"
                )
                too_short[segment.files.log] = known.last_offset
                completed = replace(completed, log_size=segment.log_size, last_offset=None)
            segments.append(completed)
        else:
            notes.append(f"{segment.files.log}: {why}; not read")
    missing = []
    for known in states.values():
        if known.state is _FINISHED:
            missing.append(replace(known.to_segment(StemFiles(known.segment_id)), version=-1))
            notes.append(
                f"{listed.partition}: segment {known.segment_id} with offsets {known.base_offset} to "
                f"{known.last_offset} is finished by the metadata topic, and its log is not there"
            )
    notes += [f"{one.files.log}: its .snapshot, which is written last, is not there; read without" for one in finished]
    return replace(
        listed,
        segments=_ordered(segments),
        incomplete=tuple(incomplete),
        notes=tuple(notes),
        missing=tuple(missing),
        too_short=too_short,
    )


def _why_not(segment: Segment, known: RemoteLogSegmentMetadata | None, is_deleted: bool) -> str | None:
    """Why a listed segment is none by the metadata; ``None`` if it is one."""
    if is_deleted:
        return "the metadata topic says that it was deleted"
    if known is None:
        return "the metadata topic does not know it"
    if known.state is not _FINISHED:
        return f"its state in the metadata topic is {known.state.name}"
    return None


def _completed(segment: Segment, known: RemoteLogSegmentMetadata, *, has_aborts: bool) -> Segment:
    files = segment.files
    if known.transaction_index_is_empty and not isinstance(files, StemFiles):
        files = replace(files, transaction_index=None)
    elif has_aborts and files.transaction_index is None and not isinstance(files, StemFiles):
        files = replace(files, transaction_index=f"{files.log.removesuffix('log')}txnindex")
    return replace(
        segment,
        log_size=known.log_size,
        last_offset=known.last_offset,
        epochs=known.epochs,
        max_timestamp_ms=known.max_timestamp_ms,
        version=known.version,
        files=files,
        has_aborts=has_aborts,
    )


def _ordered(segments: list[Segment]) -> tuple[Segment, ...]:
    segments.sort(key=attrgetter("version"))
    segments.sort(key=attrgetter("base_offset"))
    return tuple(segments)
