"""What a segment is and where its files lie: values every layer above shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    the objects as they were listed, where the listing tells: they need not be asked for again.
    """

    log: str
    offset_index: str | None = None
    time_index: str | None = None
    transaction_index: str | None = None
    producer_snapshot: str | None = None
    leader_epochs: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of a partition.

    Args:
        partition: whose segment.
        base_offset: a lower bound of its offsets; the first batch may start later.
        log_size: bytes of the log object.
        files: where it lies.
        segment_id: the remote log segment id, where the layout has one.
        is_active: a broker may still be appending to it: it may end in a cut batch or in zeros.
    """

    partition: TopicIdPartition
    base_offset: int
    log_size: int
    files: SegmentFiles
    segment_id: str | None = None
    is_active: bool = False
