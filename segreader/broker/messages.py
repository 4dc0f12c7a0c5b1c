"""What is asked of a broker, and what it answers: values that know nothing of versions, bytes or libraries.

One value serves all versions of an API: what a version does not carry has its default. Error codes stay numbers, for
later releases may send unknown ones; ``protocol.ErrorCode`` has their names. Source: the message schemas of
Apache Kafka 4.3 and the KIPs named at the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from segreader.isolation import IsolationLevel
from segreader.values import dataclass

APACHE_KAFKA_V1 = "ApacheKafkaV1"
"""The storage format in which the object's bytes are the segment's bytes. Source: KIP-1248."""


OFFSET_INDEX, TRANSACTION_INDEX = 0, 3
"""Of ``IndexLocation.index_type``."""


@dataclass(frozen=True, slots=True)
class IndexLocation:
    """The location of one index of a segment.

    Args:
        index_type: 0 offset, 1 time, 2 producer snapshot, 3 transaction, 4 leader epoch.
        start, stop: bytes of the index within its object; ``stop`` ``None`` for its end.
    """

    index_type: int
    object_location: str | None = None
    signed_url: str | None = field(default=None, repr=False)
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentLocation:
    """One remote segment and the part of it to begin with.

    Args:
        segment_id: the remote log segment's id, as Kafka's tools show it.
        first_offset, last_offset: of the segment; the last one lowered to what belongs to the leader's history.
        size: bytes of the segment's log.
        storage_format: what the object's bytes are.
        custom_metadata: as in the remote log metadata; ``None`` for null.
        start: a position at or before the batch that holds the offset asked for; ``None``: not looked up.
        stop: the first byte behind what is to be read; ``None``: to the end.
        object_location: an unsigned name such as ``s3://bucket/key``.
        signed_url: a secret: who has it may read the object until ``expiry_ms``.
        expiry_ms: of all signed URLs, in ms since 1970 UTC; ``None`` for none.
        is_transaction_index_empty: ``True``: no aborted transaction is indexed in this segment; ``False``: unknown.
        leader_epochs: (epoch, first offset), ascending; empty if not given.
        transaction_index: the bytes of the segment's whole transaction index; ``None`` if not given.
    """

    segment_id: str
    first_offset: int
    last_offset: int
    size: int
    storage_format: str = APACHE_KAFKA_V1
    custom_metadata: bytes | None = field(default=None, repr=False)
    start: int | None = None
    stop: int | None = None
    object_location: str | None = None
    signed_url: str | None = field(default=None, repr=False)
    expiry_ms: int | None = None
    is_transaction_index_empty: bool = False
    leader_epochs: tuple[tuple[int, int], ...] = ()
    indexes: tuple[IndexLocation, ...] = ()
    transaction_index: bytes | None = field(default=None, repr=False)


NO_EPOCH = -1
"""A leader epoch that is not known."""

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
"""Special timestamps of ListOffsets. ``LATEST_TIERED`` answers with an inclusive offset, all others with the next."""


@dataclass(frozen=True, slots=True)
class Node:
    """A broker and its address on the listener that was asked."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """Who leads a partition since which leader epoch; -1 where it is not known."""

    leader_id: int = -1
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class ApiVersionRange:
    """The versions of an API that a broker offers, both ends included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """What a broker speaks.

    Args:
        error: 35 where the request's own version is not known there.
        ranges: API key -> versions.
        extension_version: of the location extension, where the peer announces it (tag 12480); else ``None``.
    """

    error: int
    ranges: Mapping[int, ApiVersionRange]
    throttle_ms: int = 0
    extension_version: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition as Metadata has it."""

    partition: int
    error: int = 0
    leader: LeaderAndEpoch = field(default_factory=LeaderAndEpoch)
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic as Metadata has it; ``topic_id`` as in Kafka's tools, ``None`` where none is given."""

    error: int
    name: str | None
    topic_id: str | None = None
    is_internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """Brokers, topics and leaders as one broker knows them."""

    nodes: tuple[Node, ...]
    topics: tuple[TopicMetadata, ...]
    cluster_id: str | None = None
    controller_id: int = -1
    error: int = 0
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class FetchPartition:
    """One partition of a Fetch request.

    Args:
        topic, topic_id: both, for which one is sent depends on the version (ids from 13 on).
        fetch_offset: the first offset wanted.
        current_leader_epoch: as Metadata said; -1 turns fencing off.
        max_bytes: of its records; the first batch of the answer comes whole.
        stop_offset: where a location may end, for the offsets from there on are not wanted; ``None``: all are.
    """

    topic: str
    topic_id: str | None
    partition: int
    fetch_offset: int
    current_leader_epoch: int = NO_EPOCH
    max_bytes: int = 1 << 20
    stop_offset: int | None = None


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Records of partitions, from one broker; without a session.

    Args:
        wants_locations: the flag of the location extension, for which ``storage_formats`` can be read.
        most_segments: that may be located of each partition.
    """

    partitions: tuple[FetchPartition, ...]
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    rack: str = ""
    wants_locations: bool = False
    storage_formats: tuple[str, ...] = ("ApacheKafkaV1",)
    most_segments: int = 1


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """One partition of a Fetch answer.

    Args:
        topic, topic_id: one of both, as the version has it.
        records: whole and cut record batches in the memory of the frame, which is not copied; ``None`` for null.
        aborted: (producer id, first offset) of the aborted transactions, in the broker's order; ``None`` for null.
        diverging: (epoch, end offset), where the broker says so.
        preferred_read_replica: a broker to ask instead, or -1 (KIP-392).
        current_leader: who leads now, with errors 6 and 74 from version 16 on (KIP-951).
        location: of the remote segment that holds the offset asked for (the location extension).
        location_error: why a location in the answer cannot be read; it counts as one that was not given.
        following: locations of the segments behind that one, each from where the one before ends.
        throttle_ms: how long a broker asks to wait that gave nothing at all, because a quota is used up (KIP-219).
    """

    topic: str | None
    topic_id: str | None
    partition: int
    error: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: memoryview | None = None
    aborted: tuple[tuple[int, int], ...] | None = None
    diverging: tuple[int, int] | None = None
    preferred_read_replica: int = -1
    current_leader: LeaderAndEpoch | None = None
    location: RemoteLogSegmentLocation | None = None
    location_error: str | None = None
    following: tuple[RemoteLogSegmentLocation, ...] = ()
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """What one broker answered to a Fetch.

    Args:
        extension_version: of the location extension, if the peer understood the flag; else ``None``.
        nodes: addresses of the brokers that ``current_leader`` names (KIP-951).
    """

    partitions: tuple[FetchedPartition, ...]
    error: int = 0
    session_id: int = 0
    throttle_ms: int = 0
    nodes: tuple[Node, ...] = ()
    extension_version: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetWanted:
    """One offset to look up: a time in ms since 1970 UTC, or one of the special timestamps."""

    topic: str
    partition: int
    timestamp: int
    current_leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """What was found: ``offset`` -1 where there is none, ``timestamp_ms`` -1 unless it was found by time."""

    topic: str
    partition: int
    error: int
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class ListOffsetsAnswer:
    """The offsets asked for, and how long to wait before the next request."""

    offsets: tuple[ListedOffset, ...]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class EpochWanted:
    """Where does ``leader_epoch`` end in the leader's log?"""

    topic: str
    partition: int
    leader_epoch: int
    current_leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The largest epoch of the leader that is not above the one asked for, and where it ends: the start of the next
    one, or the log end; -1 and -1 without an error where the leader knows no such epoch."""

    topic: str
    partition: int
    error: int
    leader_epoch: int = NO_EPOCH
    end_offset: int = -1


@dataclass(frozen=True, slots=True)
class EpochEndsAnswer:
    """OffsetForLeaderEpoch's answer."""

    ends: tuple[EpochEnd, ...]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The broker that keeps a group's offsets, or why there is none now."""

    group: str
    error: int
    node: Node | None = None
    error_message: str | None = None
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset that a group is to read; -1 where nothing is committed."""

    topic: str
    partition: int
    error: int
    offset: int = -1
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class CommittedOffsets:
    """OffsetFetch's answer for one group; ``error`` is the group's."""

    group: str
    error: int
    offsets: tuple[CommittedOffset, ...] = ()
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class TopicConfigs:
    """Configuration values of one topic by name; ``error`` 29 where this user may not see them."""

    topic: str
    error: int
    values: Mapping[str, str | None] = field(default_factory=dict)
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class SaslHandshakeAnswer:
    """Whether the broker takes the mechanism, and those it offers."""

    error: int
    mechanisms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SaslAuthenticateAnswer:
    """One step of an authentication; ``session_lifetime_ms`` 0 where it never ends (KIP-368)."""

    error: int
    data: bytes = field(repr=False)
    session_lifetime_ms: int = 0
    error_message: str | None = field(default=None, repr=False)
