"""The parts of a Fetch or ShareFetch answer between its records: parsed one after another, as the bytes come.

Each function reads one part from a reader that may hold too little; it then raises, and is called again with more.
Source: FetchResponse 12-18, ShareFetchResponse 1-2 of Apache Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from segreader.broker.primitives import Reader

_TOP = Struct(">ihi")
_PARTITION = Struct(">ihqqq")


@dataclass(frozen=True, slots=True)
class FetchTop:
    """How a Fetch answer begins: ``body`` is where it does so, behind the header."""

    throttle_ms: int
    error: int
    session_id: int
    topics: int
    body: int
    counted_at: int


@dataclass(frozen=True, slots=True)
class PartitionHead:
    """A partition of a Fetch answer up to its records.

    Args:
        head_size: bytes up to the length of the records.
        records_size: bytes of the records, which follow; ``None`` for null.
    """

    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    preferred_read_replica: int
    head_size: int
    records_size: int | None


def fetch_top(reader: Reader) -> FetchTop:
    """The head of a Fetch answer of a flexible version; ``reader`` stands behind the response header."""
    body = reader.position
    throttle_ms, error, session_id = reader.unpack(_TOP)
    counted_at = reader.position
    return FetchTop(throttle_ms, error, session_id, _count(reader), body, counted_at)


def _count(reader: Reader) -> int:
    """A count of elements, most of which may not have come yet: it is bounded by the frame, not by what is held."""
    start = reader.position
    if (count := reader.uvarint() - 1) < 0:
        raise reader.error("an array is null that must not be", position=start)
    return count


def topic_head(reader: Reader, has_ids: bool) -> tuple[bytes, int]:
    """A topic's key as it stands on the wire, id or name, and the count of its partitions."""
    if has_ids:
        key = bytes(reader.take(16))
    else:
        start = reader.position
        size = reader.uvarint() - 1
        if size < 0:
            raise reader.error("a topic's name is null", position=start)
        key = bytes(reader.take(size))
    return key, _count(reader)


def partition_head(reader: Reader) -> PartitionHead:
    """A partition of a Fetch answer up to where its records begin."""
    start = reader.position
    partition, error, high, stable, first = reader.unpack(_PARTITION)
    aborted = reader.uvarint() - 1
    for _ in range(aborted):
        reader.take(16)
        reader.tags()
    preferred = reader.int32()
    head_size = reader.position - start
    size = reader.uvarint() - 1
    return PartitionHead(partition, error, high, stable, first, preferred, head_size, None if size < 0 else size)


def share_top(reader: Reader) -> int:
    """The head of a ShareFetch answer: how many topics follow."""
    reader.take(6)
    reader.nullable_string()
    reader.take(4)
    return _count(reader)


def share_partition_head(reader: Reader) -> int:
    """A partition of a ShareFetch answer up to its records: their size."""
    reader.take(6)
    reader.nullable_string()
    reader.take(2)
    reader.nullable_string()
    reader.take(8)
    reader.tags()
    return max(reader.uvarint() - 1, 0)


def share_partition_tail(reader: Reader) -> None:
    """What follows the records of a partition in a ShareFetch answer."""
    for _ in range(reader.count(19)):
        reader.take(18)
        reader.tags()
    reader.tags()
