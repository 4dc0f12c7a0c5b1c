"""Values of ``__remote_log_metadata``: what brokers publish about the segments in the remote tier.

A value is a frame (its version, which message, the message's version) and one message in Kafka's flexible encoding.
This module knows the messages, and which metadata partition a user partition's records go to; what a sequence of them
means is known to ``catalog/metadata_log.py``. The messages are named tuples and not dataclasses because there are
hundreds of thousands of them: they take a third of the time.

Source: ``RemoteLogMetadataSerde``, ``BytesApiMessageSerde``, ``storage/src/main/resources/message`` (4.3).
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from binascii import b2a_base64
from struct import Struct
from typing import Final, NamedTuple

from segreader.errors import CorruptRecordError, FormatError, OptionError, TruncatedError
from segreader.format.checkpoints import LeaderEpoch, LeaderEpochs

FRAME_VERSION: Final = 1
SEGMENT_METADATA, SEGMENT_UPDATE, PARTITION_DELETE, SEGMENT_SNAPSHOT = range(4)
"""Kinds of messages (Kafka's ``apiKey``)."""

MAX_STATE: Final = 3
"""Largest id of a ``RemoteLogSegmentState``."""

_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")

_KNOWN_VERSIONS = {SEGMENT_METADATA: 1, SEGMENT_UPDATE: 0, PARTITION_DELETE: 0, SEGMENT_SNAPSHOT: 1}
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_TXN_INDEX_EMPTY = 0  # tag
_TOPIC = re.compile(rb"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_AFTER_NAME = 16 + 4 + 1  # topic id, partition, no tags

_INT8, _INT32, _INT64 = Struct(">b"), Struct(">i"), Struct(">q")
_EPOCH = Struct(">iq")
# What follows the partition in nearly every message. Segment: id, tags, offsets, broker, times, a list of one epoch,
# size, no custom metadata, state, count of tags. Update: id, tags, broker, time, length of the custom metadata.
_USUAL_SEGMENT = Struct(">16sBqqiqqBiqBiBBB")
_USUAL_UPDATE = Struct(">16sBiqB")
_USUAL_SEGMENT_SIZE, _USUAL_UPDATE_SIZE = _USUAL_SEGMENT.size, _USUAL_UPDATE.size
_IS_EMPTY = b"\0\1\1"  # the tagged field TxnIndexEmpty = true
_new = tuple.__new__  # a named tuple of fields that are all given: half the time of calling its class


class TopicIdPartitionEntry(NamedTuple):
    """Whose segment: ``topic_id`` is the 22-character form of a ``Uuid``."""

    topic: str
    topic_id: str
    partition: int


class RemoteLogSegmentMetadataRecord(NamedTuple):
    """A segment whose upload begins. ``segment_id`` is drawn anew for every attempt.

    Args:
        start_offset, end_offset: the offsets of the segment, both inclusive.
        epochs: each leader epoch and its first offset in this segment; at least one.
        log_size: bytes of the ``.log`` alone.
        custom_metadata: what the storage plugin keeps here; opaque.
        state: id of a ``RemoteLogSegmentState``, 0 to 3.
        transaction_index_is_empty: true: there is no ``.txnindex``; false means nothing.
        trailing_bytes: bytes behind the message, which Java would refuse.
    """

    partition: TopicIdPartitionEntry
    segment_id: str
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    epochs: LeaderEpochs
    log_size: int
    custom_metadata: bytes | None
    state: int
    transaction_index_is_empty: bool = False
    trailing_bytes: int = 0


class RemoteLogSegmentMetadataUpdateRecord(NamedTuple):
    """A segment's new state, and the custom metadata that goes with it (none takes the old one away)."""

    partition: TopicIdPartitionEntry
    segment_id: str
    broker_id: int
    event_timestamp_ms: int
    custom_metadata: bytes | None
    state: int
    trailing_bytes: int = 0


class RemotePartitionDeleteMetadataRecord(NamedTuple):
    """A partition that is deleted: ``state`` is 0 (marked), 1 (started) or 2 (finished)."""

    partition: TopicIdPartitionEntry
    broker_id: int
    event_timestamp_ms: int
    state: int
    trailing_bytes: int = 0


class RemoteLogSegmentMetadataSnapshotRecord(NamedTuple):
    """A segment in a snapshot file that old brokers kept on disk: without its partition. Not expected in the topic."""

    segment_id: str
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    epochs: LeaderEpochs
    log_size: int
    custom_metadata: bytes | None
    state: int
    transaction_index_is_empty: bool = False
    trailing_bytes: int = 0


class UnknownMetadataRecord(NamedTuple):
    """A kind of message that is newer than this reader."""

    api_key: int
    version: int


MetadataRecord = (
    RemoteLogSegmentMetadataRecord
    | RemoteLogSegmentMetadataUpdateRecord
    | RemotePartitionDeleteMetadataRecord
    | RemoteLogSegmentMetadataSnapshotRecord
    | UnknownMetadataRecord
)


def partition_key(value: bytes) -> bytes:
    """The bytes that identify the record's partition: equal bytes, equal partition. Empty if the record has none.

    They cost a slice. ``parse_partition_key`` decodes them; remember the answer.

    Raises:
        FormatError: as ``parse_remote_log_metadata``.
    """
    if value[:1] == b"\1" and len(value) > 3 and value[1] <= PARTITION_DELETE and value[2] < 0x80:
        stop = 3 + value[3] + _AFTER_NAME
        if 0 < value[3] < 0x80 and stop <= len(value) and not value[stop - 1]:
            return value[3:stop]
    cursor = _Cursor(value)
    api_key, _ = cursor.frame()
    if api_key > PARTITION_DELETE:
        return b""
    start = cursor.at
    cursor.partition()
    return value[start : cursor.at]


def parse_partition_key(key: bytes) -> TopicIdPartitionEntry:
    """The partition that ``partition_key`` cut out.

    Raises:
        TruncatedError: the bytes end too early.
        CorruptRecordError: no legal topic name, or a negative partition.
    """
    return _Cursor(key).partition()


def parse_remote_log_metadata(value: bytes, partition: TopicIdPartitionEntry | None = None) -> MetadataRecord:
    """Decode one value.

    A message version above the known ones is decoded as the newest known one if that explains every byte: new fields
    are tagged, and unknown tags are skipped.

    Args:
        value: all its bytes.
        partition: what ``parse_partition_key`` made of this value's ``partition_key``: not decoded again.

    Raises:
        TruncatedError: the bytes end before the message does.
        CorruptRecordError: another frame version, a version or state that is not known, or impossible numbers.

    Source: ``BytesApiMessageSerde``, ``RemoteLogSegmentMetadata`` (4.3).
    """
    if partition is not None and value[:1] == b"\1" and (usual := _parse_usual(value, partition)) is not None:
        return usual
    cursor = _Cursor(value)
    api_key, version = cursor.frame()
    if api_key not in _KNOWN_VERSIONS:
        return UnknownMetadataRecord(api_key, version)
    known = _KNOWN_VERSIONS[api_key]
    try:
        record = _parse_message(cursor, api_key)
        if version > known and cursor.at < len(value):
            raise CorruptRecordError("bytes follow the message", position=cursor.at)
    except FormatError as error:
        if version <= known:
            raise
        raise CorruptRecordError(
            "a remote log metadata message has an unknown version",
            found=f"version {version} of message {api_key}",
            expected=f"at most version {known}, or one that adds nothing but tagged fields",
            position=2,
            hint="A newer broker wrote it: use a newer segreader",
        ) from error
    return record


def _parse_usual(
    value: bytes, partition: TopicIdPartitionEntry
) -> RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord | None:
    """The two messages that nearly all values are, in the form that nearly all have; ``None`` for any other."""
    if len(value) < _USUAL_UPDATE_SIZE or value[2] or value[3] > 0x7F:
        return None
    at = value[3] + 3 + _AFTER_NAME
    left = len(value) - at
    if left < _USUAL_UPDATE_SIZE or value[at - 1]:
        return None
    if value[1] == SEGMENT_UPDATE:
        identity, tags, broker, event_ms, custom_size = _USUAL_UPDATE.unpack_from(value, at)
        state, fields = value[-2:]
        if tags or fields or state > MAX_STATE or left != (custom_size or 1) + _USUAL_UPDATE_SIZE + 1:
            return None
        if custom_size > 0x7F:
            return None
        custom = value[at + _USUAL_UPDATE_SIZE : -2] if custom_size else None
        return _new(
            RemoteLogSegmentMetadataUpdateRecord, (partition, _text(identity), broker, event_ms, custom, state, 0)
        )
    is_empty = left == _USUAL_SEGMENT_SIZE + 3
    if value[1] != SEGMENT_METADATA or not (left == _USUAL_SEGMENT_SIZE or (is_empty and value.endswith(_IS_EMPTY))):
        return None
    (identity, tags, first, last, broker, max_ms, event_ms, counted, epoch, start, epoch_tags, size, custom_size, state,
     fields) = _USUAL_SEGMENT.unpack_from(value, at)  # fmt: skip
    if counted != 2 or tags or epoch_tags or custom_size or state > MAX_STATE or fields != is_empty:
        return None
    if epoch < 0 or start < 0 or size < 0 or not 0 <= first <= last:
        return None
    epochs = LeaderEpochs((LeaderEpoch(epoch, start),))
    return _new(
        RemoteLogSegmentMetadataRecord,
        (partition, _text(identity), first, last, broker, max_ms, event_ms, epochs, size, None, state, is_empty, 0),
    )


def _parse_message(cursor: _Cursor, api_key: int) -> MetadataRecord:
    if api_key == PARTITION_DELETE:
        partition = cursor.partition()
        broker, event_ms, state = cursor.int32(), cursor.int64(), cursor.state(2)
        cursor.tagged()
        return RemotePartitionDeleteMetadataRecord(partition, broker, event_ms, state, cursor.left)
    if api_key == SEGMENT_SNAPSHOT:
        return RemoteLogSegmentMetadataSnapshotRecord(cursor.uuid(), *_parse_segment(cursor), cursor.left)
    partition = cursor.partition()
    segment_id = cursor.uuid()
    cursor.tagged()
    if api_key == SEGMENT_METADATA:
        return RemoteLogSegmentMetadataRecord(partition, segment_id, *_parse_segment(cursor), cursor.left)
    broker, event_ms, custom, state = cursor.int32(), cursor.int64(), cursor.nullable_bytes(), cursor.state(MAX_STATE)
    cursor.tagged()
    return RemoteLogSegmentMetadataUpdateRecord(partition, segment_id, broker, event_ms, custom, state, cursor.left)


def _parse_segment(cursor: _Cursor) -> tuple[int, int, int, int, int, LeaderEpochs, int, bytes | None, int, bool]:
    """The fields after the ids of a segment, to the end."""
    at = cursor.at
    first, last = cursor.int64(), cursor.int64()
    if not 0 <= first <= last:
        raise CorruptRecordError(
            "a segment's offsets are impossible", found=f"{first} to {last}", expected="0 <= start <= end", position=at
        )
    broker, max_ms, event_ms = cursor.int32(), cursor.int64(), cursor.int64()
    epochs = cursor.leader_epochs()
    at = cursor.at
    size = cursor.int32()
    if size < 0:
        raise CorruptRecordError("a segment has a negative size", found=size, expected="0 or more", position=at)
    custom, state = cursor.nullable_bytes(), cursor.state(MAX_STATE)
    is_empty = any(cursor.tagged().get(_TXN_INDEX_EMPTY, b""))
    return first, last, broker, max_ms, event_ms, epochs, size, custom, state, is_empty


class _Cursor:
    """A place in a value; each method reads one field and moves past it."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise TruncatedError(
                "a remote log metadata value ends too early",
                found=f"{self.left} bytes",
                expected=f"{size}",
                position=self.at,
            )
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, form: Struct) -> int:
        value: int = form.unpack(self.take(form.size))[0]
        return value

    def int32(self) -> int:
        return self.number(_INT32)

    def int64(self) -> int:
        return self.number(_INT64)

    def uvarint(self) -> int:
        start, value = self.at, 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise CorruptRecordError("a number does not end", found="5 bytes or more", expected="at most 5", position=start)

    def frame(self) -> tuple[int, int]:
        """Which message, and its version."""
        if (version := self.uvarint()) != FRAME_VERSION:
            raise CorruptRecordError(
                "a remote log metadata value has an unknown frame version",
                found=f"version {version}",
                expected=f"version {FRAME_VERSION}",
                position=0,
            )
        return self.uvarint(), self.uvarint()

    def nullable_bytes(self) -> bytes | None:
        size = self.uvarint()
        return self.take(size - 1) if size else None

    def uuid(self) -> str:
        return _text(self.take(16))

    def state(self, largest: int) -> int:
        state = self.number(_INT8)
        if not 0 <= state <= largest:
            raise CorruptRecordError(
                "a state is none of those known", found=state, expected=f"0 to {largest}", position=self.at - 1
            )
        return state

    def tagged(self) -> dict[int, bytes]:
        """The tagged fields at the end of a struct."""
        fields = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            fields[tag] = self.take(self.uvarint())
        return fields

    def partition(self) -> TopicIdPartitionEntry:
        start = self.at
        name, topic_id, partition = self.nullable_bytes(), self.uuid(), self.int32()
        if name is None or not _TOPIC.fullmatch(name) or partition < 0:
            raise CorruptRecordError(
                "a remote log metadata value names no possible partition",
                found=f"topic {name!r:.80}, partition {partition}",
                position=start,
            )
        self.tagged()
        return TopicIdPartitionEntry(name.decode("ascii"), topic_id, partition)

    def leader_epochs(self) -> LeaderEpochs:
        """By epoch, whatever the order on the wire; of a repeated epoch the last entry counts, as in Java's map."""
        start, found = self.at, dict[int, int]()
        for _ in range(self.uvarint() - 1):
            epoch, offset = _EPOCH.unpack(self.take(_EPOCH.size))
            found[epoch] = offset
            self.tagged()
        try:
            epochs = LeaderEpochs(tuple(LeaderEpoch(*entry) for entry in sorted(found.items())))
        except ValueError as error:
            raise CorruptRecordError(f"the leader epochs of a segment are {error}", position=start) from error
        if not found:
            raise CorruptRecordError("a segment has no leader epochs", expected="at least one", position=start)
        return epochs


def _text(uuid: bytes) -> str:
    return b2a_base64(uuid)[:22].translate(_URL_SAFE).decode("ascii")


def metadata_partition(topic_id: str, partition: int, count: int) -> int:
    """The partition of the metadata topic that holds the records of this partition.

    Args:
        topic_id: 22 characters.
        count: partitions that the metadata topic really has, which a broker's configuration need not match.

    Source: ``RemoteLogMetadataTopicPartitioner`` (4.3).
    """
    if not _TOPIC_ID.fullmatch(topic_id) or count < 1 or not 0 <= partition < 1 << 31:
        raise OptionError(
            "not a partition of a topic id, or no metadata partitions",
            found=f"topic id {topic_id!r}, partition {partition}, {count} metadata partitions",
        )
    raw = urlsafe_b64decode(topic_id + "==")
    hashed = 1
    for number in (_fold(raw[8:]), _fold(raw[:8]), partition):
        hashed = (31 * hashed + number) & 0xFFFFFFFF
    return (_murmur2(hashed.to_bytes(4, "big")) & 0x7FFFFFFF) % count


def _fold(half: bytes) -> int:
    """``Long.hashCode``."""
    return int.from_bytes(half[:4], "big") ^ int.from_bytes(half[4:], "big")


def _murmur2(four: bytes) -> int:
    """``Utils.murmur2`` of exactly four bytes."""
    word = int.from_bytes(four, "little") * 0x5BD1E995 & 0xFFFFFFFF
    word = (word ^ word >> 24) * 0x5BD1E995 & 0xFFFFFFFF
    hashed = (0x9747B28C ^ 4) * 0x5BD1E995 & 0xFFFFFFFF ^ word
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return hashed ^ hashed >> 15
