"""The location of a remote segment in a Fetch response of a broker or a gateway: the value, whatever encodes it.

KIP-1248 asks for such an answer and no broker gives it yet. ``location_codec`` has the encoding in tagged fields that
works with the Fetch versions of today; the one of the final KIP will be another codec of the same value.
"""

from __future__ import annotations

from dataclasses import dataclass, field

APACHE_KAFKA_V1 = "ApacheKafkaV1"
"""The storage format in which the object's bytes are the segment's bytes. Source: KIP-1248."""


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
