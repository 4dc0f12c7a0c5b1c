"""The metadata topic against the objects that are there: segments, their states, sizes and offsets."""

from __future__ import annotations

from dataclasses import replace

from segreader.catalog.layouts.base import PartitionPlace
from segreader.catalog.listing import PartitionLog
from segreader.catalog.metadata_log import RemoteLogMetadata, RemoteLogSegmentMetadata
from segreader.evidence.codes import Code
from segreader.evidence.findings import Findings
from segreader.evidence.listing_checks import check_incomplete
from segreader.segment import Segment, SegmentState, TopicIdPartition
from segreader.storage.base import ObjectStore

_LIVE = (
    SegmentState.COPY_SEGMENT_STARTED,
    SegmentState.COPY_SEGMENT_FINISHED,
    SegmentState.DELETE_SEGMENT_STARTED,
)


class MetadataAudit:
    """Holds one partition's objects against what the metadata topic says of it."""

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
            text = f"{len(log.segments)} segments are here, and {len(self._deleted)} were deleted: all there were"
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
