"""One segment by the records of ``__remote_log_metadata``: its first record, and its last update."""

from __future__ import annotations

from typing import NamedTuple

from segreader.format.checkpoints import LeaderEpochs
from segreader.format.remote_log_metadata import RemoteLogSegmentMetadataRecord
from segreader.segment import Segment, SegmentFiles, SegmentState, StemFiles, TopicIdPartition


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
        """Drawn anew for every attempt, 22 characters."""
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
