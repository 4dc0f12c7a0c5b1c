"""A listing and the metadata topic together: which segments are finished, where they lie, and what is disputed."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from segreader.catalog.collector import collector_at_rest
from segreader.catalog.layouts.base import PartitionPlace
from segreader.catalog.listing import PartitionLog
from segreader.catalog.metadata_log import RemoteLogMetadata
from segreader.catalog.remote_segment import RemoteLogSegmentMetadata
from segreader.segment import Segment, SegmentState, StemFiles

_LIVE = (
    SegmentState.COPY_SEGMENT_STARTED,
    SegmentState.COPY_SEGMENT_FINISHED,
    SegmentState.DELETE_SEGMENT_STARTED,
)


def from_metadata(place: PartitionPlace, metadata: RemoteLogMetadata) -> PartitionLog:
    """The finished segments of a partition without listing it: their objects have the names that plugins give them."""
    prefix = place.prefixes[0]
    with collector_at_rest():
        segments = []
        for known in metadata.segments(place.partition):
            started = known.started
            stem = f"{prefix}{started.start_offset:020d}-{started.segment_id}"
            segments.append(known.to_segment(StemFiles(stem, not started.transaction_index_is_empty)))
        return PartitionLog(place.partition, _ordered(segments), place.layout, notes=tuple(metadata.notes))


def join(listed: PartitionLog, metadata: RemoteLogMetadata) -> PartitionLog:
    """The segments that are finished by the metadata and whose objects are there; the rest is told in notes.

    What only the metadata knows is taken from it: last offset, leader epochs, times, which copy was finished later.
    """
    states = {one.segment_id: one for one in metadata.segments(listed.partition, _LIVE)}
    deleted = metadata.deleted(listed.partition)
    notes = [*listed.notes, *metadata.notes]
    segments = []
    for segment in listed.segments:
        known = states.pop(segment.segment_id or "", None)
        why = _why_not(segment, known, segment.segment_id in deleted)
        if why is None and known is not None:
            segments.append(_completed(segment, known))
        else:
            notes.append(f"{segment.files.log}: {why}; not read")
    missing = []
    for known in states.values():
        if known.state is SegmentState.COPY_SEGMENT_FINISHED:
            missing.append(replace(known.to_segment(StemFiles(known.segment_id)), version=-1))
            notes.append(
                f"{listed.partition}: segment {known.segment_id} with offsets {known.base_offset} to "
                f"{known.last_offset} is finished by the metadata topic, and its log is not there"
            )
    return replace(listed, segments=_ordered(segments), notes=tuple(notes), missing=tuple(missing))


def _why_not(segment: Segment, known: RemoteLogSegmentMetadata | None, is_deleted: bool) -> str | None:
    """Why a listed segment is none by the metadata; ``None`` if it is one."""
    if is_deleted:
        return "the metadata topic says that it was deleted"
    if known is None:
        return "the metadata topic does not know it"
    if known.state is not SegmentState.COPY_SEGMENT_FINISHED:
        return f"its state in the metadata topic is {known.state.name}"
    if segment.log_size < known.log_size:
        return f"its log has {segment.log_size} bytes, and {known.log_size} by the metadata topic"
    return None


def _completed(segment: Segment, known: RemoteLogSegmentMetadata) -> Segment:
    return replace(
        segment,
        log_size=known.log_size,
        last_offset=known.last_offset,
        epochs=known.epochs,
        max_timestamp_ms=known.max_timestamp_ms,
        version=known.version,
        files=replace(segment.files, transaction_index=None)
        if known.transaction_index_is_empty and not isinstance(segment.files, StemFiles)
        else segment.files,
    )


def _ordered(segments: list[Segment]) -> tuple[Segment, ...]:
    segments.sort(key=attrgetter("version"))
    segments.sort(key=attrgetter("base_offset"))
    return tuple(segments)
