"""The producer snapshot (``.snapshot``): what a broker knew of each producer at one offset.

A broker's own file named N holds the state below offset N, the start of segment N. The copy in remote
storage that belongs to a segment holds the state at that segment's *end*. Byte table: docs/reference/formats.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from crc32c import crc32c

from segreader.errors import CorruptIndexError

_HEADER = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1
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
        CorruptIndexError: cut, of a version other than 1, or its CRC or count is wrong. A broker then falls
        back to
            an older snapshot and replays the batches after it.

    Source: ``ProducerStateManager.readSnapshot`` (4.0).
    """
    raw = bytes(data)
    if len(raw) < _HEADER.size:
        raise CorruptIndexError(
            "a producer snapshot is cut",
            found=f"{len(raw)} bytes",
            expected=f"at least {_HEADER.size}",
            position=len(raw),
        )
    version, crc, count = _HEADER.unpack_from(raw)
    if version != _VERSION:
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
