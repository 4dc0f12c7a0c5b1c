"""Values into the bytes of the files beside a ``.log``. Source: the class named at each function (4.0)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from crc32c import crc32c


class AbortedEntry(NamedTuple):
    """One row of a ``.txnindex``."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerEntry(NamedTuple):
    """One row of a ``.snapshot``; -1 means "none"."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode_offset_index(base_offset: int, entries: Iterable[tuple[int, int]]) -> bytes:
    """An ``.index`` from (offset, position) pairs. Source: ``OffsetIndex``."""
    return b"".join(struct.pack(">ii", offset - base_offset, position) for offset, position in entries)


def encode_time_index(base_offset: int, entries: Iterable[tuple[int, int]]) -> bytes:
    """A ``.timeindex`` from (timestamp in ms, offset) pairs. Source: ``TimeIndex``."""
    return b"".join(struct.pack(">qi", timestamp_ms, offset - base_offset) for timestamp_ms, offset in entries)


def encode_transaction_index(entries: Iterable[AbortedEntry]) -> bytes:
    """A ``.txnindex``. Source: ``AbortedTxn``."""
    return b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries)


def encode_producer_snapshot(
    entries: Sequence[ProducerEntry], *, version: int = 1, crc: int | None = None, count: int | None = None
) -> bytes:
    """A ``.snapshot``; ``crc`` and ``count`` may be false. Source: ``ProducerStateManager``."""
    covered = struct.pack(">i", len(entries) if count is None else count)
    covered += b"".join(struct.pack(">qhiqiqiq", *entry) for entry in entries)
    return struct.pack(">hI", version, crc32c(covered) if crc is None else crc) + covered


def encode_leader_epochs(epochs: Sequence[tuple[int, int]]) -> bytes:
    """A leader epoch checkpoint from (epoch, start offset) pairs. Source: ``LeaderEpochCheckpointFile``."""
    lines = ["0", str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs)]
    return "".join(f"{line}\n" for line in lines).encode()


def encode_partition_metadata(topic_id: str) -> bytes:
    """A ``partition.metadata``. Source: ``PartitionMetadataFile``."""
    return f"version: 0\ntopic_id: {topic_id}".encode()


class IndexRecorder:
    """Decides, as a broker does while it appends, which batches get an index entry.

    Args:
        base_offset: of the segment.
        interval_bytes: ``index.interval.bytes``.

    Source: ``LogSegment.append`` and ``TimeIndex.maybeAppend`` (4.1: one batch is one unit).
    """

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.offset_entries: list[tuple[int, int]] = []
        self.time_entries: list[tuple[int, int]] = []
        self._since_entry = 0
        self._max_timestamp = -1
        self._offset_of_max = base_offset

    def append(self, position: int, size: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Note a batch of ``size`` bytes at ``position``."""
        if max_timestamp_ms > self._max_timestamp:
            self._max_timestamp, self._offset_of_max = max_timestamp_ms, last_offset
        if self._since_entry > self.interval_bytes:
            self.offset_entries.append((last_offset, position))
            self._note_time(self.time_entries)
            self._since_entry = 0
        self._since_entry += size

    def offset_index(self) -> bytes:
        """The ``.index`` so far."""
        return encode_offset_index(self.base_offset, self.offset_entries)

    def time_index(self, *, rolled: bool = True) -> bytes:
        """The ``.timeindex`` so far, with the last entry that a segment gets when it is rolled."""
        entries = list(self.time_entries)
        if rolled:
            self._note_time(entries)
        return encode_time_index(self.base_offset, entries)

    def _note_time(self, entries: list[tuple[int, int]]) -> None:
        if self._max_timestamp > (entries[-1][0] if entries else -1):
            entries.append((self._max_timestamp, self._offset_of_max))
