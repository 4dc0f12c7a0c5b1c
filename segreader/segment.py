"""What a segment is and where its files lie: values every layer above shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum

from segreader.format.checkpoints import LeaderEpochs
from segreader.values import dataclass


class SegmentState(IntEnum):
    """How far a remote segment has come. Source: ``RemoteLogSegmentState`` (4.3)."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


@dataclass(frozen=True, slots=True)
class TopicIdPartition:
    """One partition of one topic. A topic is its id: a name can come back with another one.

    ``topic_id`` is the 22-character form of Kafka's ``Uuid``, or ``None`` where a layout does not record it.
    Source: ``org.apache.kafka.common.TopicIdPartition`` (4.0).
    """

    topic: str
    partition: int
    topic_id: str | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def order(self) -> tuple[str, int, str]:
        """By topic, partition, id: the order of all output."""
        return (self.topic, self.partition, self.topic_id or "")


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """Names of a segment's objects in their store; ``None`` where there is none.

    ``producer_snapshot`` is the state at the segment's *end*, whatever the layout calls it: a broker names its
    local snapshot after the offset it stands at, the remote tier after the segment it ends. ``sizes`` are the bytes of
    the objects as they were listed, if the listing has them: they need not be requested again. ``epochs_tag`` is
    ``ObjectInfo.tag`` of the leader-epoch checkpoint.
    """

    log: str
    offset_index: str | None = None
    time_index: str | None = None
    transaction_index: str | None = None
    producer_snapshot: str | None = None
    leader_epochs: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    epochs_tag: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StemFiles:
    """As ``SegmentFiles``, of files that share a stem: named when asked for, for there may be a hundred thousand.

    A file that turns out not to be there counts as one that was never written, but for the log.

    Args:
        stem: everything before the dot.
        has_transaction_index: ``False`` where it is known that there is none.
    """

    stem: str
    has_transaction_index: bool = True

    @property
    def log(self) -> str:
        return self.stem + ".log"

    @property
    def offset_index(self) -> str | None:
        return self.stem + ".index"

    @property
    def time_index(self) -> str | None:
        return self.stem + ".timeindex"

    @property
    def transaction_index(self) -> str | None:
        return self.stem + ".txnindex" if self.has_transaction_index else None

    @property
    def producer_snapshot(self) -> str | None:
        return self.stem + ".snapshot"

    @property
    def leader_epochs(self) -> str | None:
        return self.stem + ".leader_epoch_checkpoint"

    @property
    def epochs_tag(self) -> str | None:
        return None

    @property
    def sizes(self) -> Mapping[str, int]:
        return {}


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of a partition, complete as far as its catalogue can tell.

    Args:
        partition: whose segment.
        base_offset: a lower bound of its offsets; the first batch may start later.
        log_size: bytes of the log object.
        files: its place.
        segment_id: the remote log segment id, where the layout has one.
        is_active: a broker may still be appending to it: it may end in a cut batch or in zeros.
        last_offset: its last offset (inclusive, as Kafka's ``endOffset``; the last batch may end
            earlier), where the catalogue knows it.
        epochs: of its own offsets: each leader epoch and its first offset in this segment, the first one clamped to
            ``base_offset``; where the catalogue knows them.
        max_timestamp_ms: the largest timestamp in it, markers included, where the catalogue knows it.
        version: of two copies the one with the larger number was finished later (a time in ms, where one is known).
        is_padded: zeros after the last batch are no damage: the stored form is longer than the log.
        chunk_size: bytes of the log in each of the pieces that it is stored in, where these can only be had whole:
            compressed or encrypted.
        has_aborts: the catalogue says that its transaction index has rows.
        log_tag: ``ObjectInfo.tag`` of the stored log, where the listing has one.
    """

    partition: TopicIdPartition
    base_offset: int
    log_size: int
    files: SegmentFiles | StemFiles
    segment_id: str | None = None
    is_active: bool = False
    last_offset: int | None = None
    epochs: LeaderEpochs | None = None
    max_timestamp_ms: int | None = None
    version: int = 0
    is_padded: bool = False
    chunk_size: int | None = None
    has_aborts: bool = False
    log_tag: str | None = None

    def ended(self, last_offset: int, epochs: LeaderEpochs | None) -> Segment:
        """This segment with its end and its epochs: ``replace`` in half its time, for a hundred thousand of them."""
        return Segment(
            self.partition,
            self.base_offset,
            self.log_size,
            self.files,
            self.segment_id,
            self.is_active,
            last_offset,
            epochs,
            self.max_timestamp_ms,
            self.version,
            self.is_padded,
            self.chunk_size,
            self.has_aborts,
            self.log_tag,
        )
