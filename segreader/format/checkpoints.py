"""What a broker writes down of a partition: leader-epoch checkpoint, producer snapshot and partition.metadata.

Byte tables: docs/reference/formats.md.
"""

from __future__ import annotations

import base64
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final

from segreader.errors import CorruptIndexError, shown_count
from segreader.format.batch import crc32c
from segreader.ranges import OffsetRange
from segreader.values import dataclass

MOST_OF_LEADER_EPOCHS: Final = 4 << 20
"""Bytes of a leader-epoch checkpoint: 200,000 changes of the leader, at 20 bytes each."""

MOST_OF_SNAPSHOT: Final = 128 << 20
"""Bytes of a producer snapshot: 2.9 million producers."""

_EPOCHS_VERSION = 0
_MAX_INT = (1 << 31) - 1
_MAX_LONG = (1 << 63) - 1
_LINE_END = re.compile(rb"\r\n|\r|\n")
_NUMBER = re.compile(rb"\+?0*([0-9]{1,19})")
_SPACES = re.compile(rb"[ \t\x0b\x0c]+")


@dataclass(frozen=True, slots=True, order=True)
class LeaderEpoch:
    """``epoch`` begins at ``start_offset``."""

    epoch: int
    start_offset: int


_BEFORE = LeaderEpoch(-1, 0)


@dataclass(frozen=True, slots=True)
class LeaderEpochs:
    """A lineage: epochs rise strictly, their start offsets do not fall.

    An epoch covers the offsets from its start to the start of the next one; it covers none where both are
    equal.

    Source: ``LeaderEpochFileCache`` (4.0).
    """

    entries: tuple[LeaderEpoch, ...] = ()

    def __post_init__(self) -> None:
        previous = _BEFORE
        for entry in self.entries:
            if entry.epoch <= previous.epoch or entry.start_offset < previous.start_offset:
                raise ValueError(f"not a lineage: {entry} after {previous}")
            previous = entry

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[LeaderEpoch]:
        return iter(self.entries)

    def epoch_for(self, offset: int) -> int | None:
        """The epoch that wrote ``offset``; ``None`` below the first epoch."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset) - 1
        return self.entries[index].epoch if index >= 0 else None

    def offsets_of(self, epoch: int) -> OffsetRange | None:
        """The offsets that ``epoch`` covers, open for the last one; ``None`` for an epoch not listed."""
        index = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch) - 1
        if index < 0 or self.entries[index].epoch != epoch:
            return None
        return OffsetRange(self.entries[index].start_offset, self._start_after(index))

    def end_offset(self, epoch: int) -> int | None:
        """Where the next higher epoch begins, so no offset from there on is ``epoch``'s; ``None``: no end."""
        return self._start_after(bisect_right(self.entries, epoch, key=lambda entry: entry.epoch) - 1)

    def _start_after(self, index: int) -> int | None:
        return self.entries[index + 1].start_offset if index + 1 < len(self.entries) else None


def parse_leader_epochs(data: bytes | bytearray | memoryview) -> LeaderEpochs:
    """Read a whole leader-epoch checkpoint: version, count, and a line ``<epoch> <start offset>`` for each entry.

    An empty file, or one that ends before the count, has no entries.

    Raises:
        CorruptIndexError: another version, a line that is no entry, a wrong count, entries that do not
        rise, or more than ``MOST_OF_LEADER_EPOCHS`` bytes.

    Source: ``CheckpointFile``, ``LeaderEpochCheckpointFile`` (4.0).
    """
    _refuse_large("a leader-epoch checkpoint", len(data), MOST_OF_LEADER_EPOCHS)
    return _parsed(bytes(data))


@lru_cache(maxsize=64)
def _parsed(data: bytes) -> LeaderEpochs:
    """Those of one partition's segments are mostly the same bytes."""
    lines = _LINE_END.split(data)
    if not lines[-1]:
        lines.pop()
    if lines and (version := _parse_number(lines[0], 1, _MAX_INT)) != _EPOCHS_VERSION:
        raise CorruptIndexError(
            "a leader-epoch checkpoint has an unknown version",
            found=f"version {version}",
            expected="version 0",
        )
    if len(lines) < 2:
        return LeaderEpochs()
    entries = tuple(_parse_entry(line, number) for number, line in enumerate(lines[2:], start=3))
    if len(entries) != (count := _parse_number(lines[1], 2, _MAX_INT)):
        raise CorruptIndexError(
            "a leader-epoch checkpoint has not the entries it counts",
            found=shown_count(len(entries), "entry", "entries"),
            expected=f"{count}",
        )
    try:
        return LeaderEpochs(entries)
    except ValueError as error:
        raise CorruptIndexError(f"a leader-epoch checkpoint is {error}") from error


def _refuse_large(what: str, size: int, most: int) -> None:
    if size > most:
        raise CorruptIndexError(f"{what} is too large", found=f"{size} bytes", expected=f"at most {most}")


def _parse_entry(line: bytes, number: int) -> LeaderEpoch:
    match _SPACES.split(line.rstrip(b" \t\x0b\x0c")):
        case [epoch, start_offset]:
            return LeaderEpoch(_parse_number(epoch, number, _MAX_INT), _parse_number(start_offset, number, _MAX_LONG))
        case _:
            raise _malformed(line, number, "an epoch and a start offset")


def _parse_number(text: bytes, number: int, largest: int) -> int:
    match = _NUMBER.fullmatch(text)
    if match is None or (value := int(match[1])) > largest:
        raise _malformed(text, number, f"a whole number up to {largest}")
    return value


def _malformed(text: bytes, number: int, expected: str) -> CorruptIndexError:
    return CorruptIndexError(
        f"line {number} of a leader-epoch checkpoint is malformed", found=repr(text[:80]), expected=expected
    )


_HEADER = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1
_CRC_START = 6


@dataclass(frozen=True, slots=True)
class ProducerSnapshotEntry:
    """The state of one producer, every field as it is on the wire but for the open transaction.

    ``last_offset`` below 0 means that no batch is remembered: usual after a marker that bumped the epoch
    (KIP-890). ``offset_delta`` is last minus first offset of the last batch. ``current_txn_first_offset``
    is ``None`` where no transaction is open. ``coordinator_epoch`` is -1 before the first marker.

    Source: ``ProducerStateManager`` (4.0).
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int | None

    @property
    def has_batch(self) -> bool:
        """Whether the producer's last batch is remembered."""
        return self.last_offset >= 0

    @property
    def first_sequence(self) -> int:
        """Sequence of the last batch's first record (wraps from 0 to 2**31-1); -1 without a batch."""
        return (self.last_sequence - self.offset_delta) & 0x7FFFFFFF if self.has_batch else -1


@dataclass(frozen=True, slots=True)
class ProducerSnapshot:
    """All producers of one ``.snapshot``, in the order of the file, which means nothing.

    A broker's own file named N holds the state below offset N, the start of segment N. The copy in remote storage
    that belongs to a segment holds the state at that segment's *end*.
    ``trailing_bytes`` counts what follows the last entry; a broker leaves nothing there.
    """

    entries: tuple[ProducerSnapshotEntry, ...] = ()
    trailing_bytes: int = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[ProducerSnapshotEntry]:
        return iter(self.entries)

    def open_transactions(self) -> dict[int, int]:
        """First offset of each producer's open transaction, by producer id."""
        return {
            entry.producer_id: entry.current_txn_first_offset
            for entry in self.entries
            if entry.current_txn_first_offset is not None
        }


def parse_producer_snapshot(data: bytes | bytearray | memoryview, *, check_crc: bool = True) -> ProducerSnapshot:
    """Read a whole ``.snapshot``.

    Args:
        data: the whole file.
        check_crc: whether to compare the CRC-32C over everything behind it.

    Raises:
        CorruptIndexError: cut, of a version other than 1, its CRC or count is wrong, or it has more than
            ``MOST_OF_SNAPSHOT`` bytes. A broker then falls back to an older snapshot and replays the batches after it.

    Source: ``ProducerStateManager.readSnapshot`` (4.0).
    """
    _refuse_large("a producer snapshot", len(data), MOST_OF_SNAPSHOT)
    raw = bytes(data)
    if len(raw) < _HEADER.size:
        raise CorruptIndexError(
            "a producer snapshot is cut",
            found=f"{len(raw)} bytes",
            expected=f"at least {_HEADER.size}",
            position=len(raw),
        )
    version, crc, count = _HEADER.unpack_from(raw)
    if version != _SNAPSHOT_VERSION:
        raise CorruptIndexError(
            "a producer snapshot has an unknown version",
            found=f"version {version}",
            expected="version 1",
            position=0,
        )
    if check_crc and (computed := crc32c(raw[_CRC_START:])) != crc:
        raise CorruptIndexError(
            "a producer snapshot fails its CRC",
            found=f"CRC {computed:08x}",
            expected=f"{crc:08x}",
            position=2,
        )
    left = len(raw) - _HEADER.size
    if not 0 <= count * _ENTRY.size <= left:
        raise CorruptIndexError(
            "a producer snapshot has not the entries it counts",
            found=f"{left} bytes",
            expected=f"{count} entries of {_ENTRY.size} bytes",
            position=_CRC_START,
        )
    stop = _HEADER.size + count * _ENTRY.size
    entries = tuple(_entry(fields) for fields in _ENTRY.iter_unpack(raw[_HEADER.size : stop]))
    return ProducerSnapshot(entries, len(raw) - stop)


def _entry(fields: tuple[int, ...]) -> ProducerSnapshotEntry:
    entry = ProducerSnapshotEntry(*fields)
    # An open transaction begins at 0 or above; what a broker writes for none is -1.
    return entry if fields[-1] >= 0 else replace(entry, current_txn_first_offset=None)


_PARTITION_METADATA = re.compile(
    rb"version:[ \t]+\+?([0-9]{1,10})[ \t]*(?:\r\n|\r|\n)"
    rb"topic_id:[ \t]+([A-Za-z0-9_-]{22})(?:==)?[ \t]*(?:[\r\n].*)?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class PartitionMetadataFile:
    """The topic of a partition directory; ``topic_id`` in Kafka's text form, 22 characters of base64url."""

    version: int
    topic_id: str


def parse_partition_metadata(data: bytes | bytearray | memoryview) -> PartitionMetadataFile:
    """Read a whole ``partition.metadata``. Versions above 0 are read like 0.

    Raises:
        CorruptIndexError: not these two lines, or a topic id of zeros.

    Source: ``PartitionMetadataFile`` (4.0).
    """
    raw = bytes(data)
    match = _PARTITION_METADATA.fullmatch(raw)
    if match is None or (version := int(match[1])) > _MAX_INT:
        raise CorruptIndexError(
            "a partition.metadata file is malformed",
            found=repr(raw[:80]),
            expected="the lines version and topic_id",
        )
    topic_id = base64.urlsafe_b64decode(match[2] + b"==")
    if not any(topic_id):
        raise CorruptIndexError("a partition.metadata file has a topic id of zeros", position=match.start(2))
    return PartitionMetadataFile(version, base64.urlsafe_b64encode(topic_id)[:22].decode("ascii"))
