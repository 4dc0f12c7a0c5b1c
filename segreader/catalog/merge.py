"""Merges a partition's listing with the metadata topic: the finished segments, and a note on every disagreement."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

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
    states = {one.segment_id: one for one in metadata.segments(listed.partition, _LIVE)}
    deleted = metadata.deleted(listed.partition)
    with_aborts = metadata.ids_with_aborts(listed.partition)
    notes = [*listed.notes, *metadata.notes]
    segments = []
    too_short: dict[str, int] = {}
    incomplete = []
    for one in listed.incomplete:
        state = states[one.segment_id].state if one.segment_id in states else None
        if one.segment is None or state is not SegmentState.COPY_SEGMENT_FINISHED:
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
        if known.state is SegmentState.COPY_SEGMENT_FINISHED:
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
    if known.state is not SegmentState.COPY_SEGMENT_FINISHED:
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
