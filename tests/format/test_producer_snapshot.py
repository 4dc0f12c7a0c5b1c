"""The producer snapshot: every field, and each check in its turn."""

from __future__ import annotations

import pickle
import struct

import pytest
from crc32c import crc32c

from segreader.errors import CorruptIndexError
from segreader.format.checkpoints import (
    ProducerSnapshot,
    ProducerSnapshotEntry,
    parse_producer_snapshot,
)

T = 1_700_000_000_000
DATA = bytes.fromhex(
    "0001 3f5bedb0 00000002"
    "0000000000000fa0 0008 ffffffff ffffffffffffffff 00000000 0000018bcfe5692c 00000005 ffffffffffffffff"
    "0000000000000fa5 0001 0000000b 00000000000000db 0000000b 0000018bcfe5695e ffffffff 00000000000000d0"
)
AFTER_A_MARKER = ProducerSnapshotEntry(
    producer_id=4000,
    producer_epoch=8,
    last_sequence=-1,
    last_offset=-1,
    offset_delta=0,
    timestamp_ms=T + 300,
    coordinator_epoch=5,
    current_txn_first_offset=None,
)
IN_A_TRANSACTION = ProducerSnapshotEntry(
    producer_id=4005,
    producer_epoch=1,
    last_sequence=11,
    last_offset=219,
    offset_delta=11,
    timestamp_ms=T + 350,
    coordinator_epoch=-1,
    current_txn_first_offset=208,
)


def sealed(body: bytes) -> bytes:
    """A snapshot with a good CRC over any body."""
    return struct.pack(">hI", 1, crc32c(body)) + body


def test_entries_keep_every_field() -> None:
    snapshot = parse_producer_snapshot(memoryview(DATA))

    assert tuple(snapshot) == (AFTER_A_MARKER, IN_A_TRANSACTION)
    assert (len(snapshot), snapshot.trailing_bytes) == (2, 0)
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot


def test_open_transactions_are_those_with_a_first_offset() -> None:
    assert parse_producer_snapshot(DATA).open_transactions() == {4005: 208}


def test_a_transaction_open_since_offset_zero_is_open() -> None:
    data = bytearray(DATA)
    data[-8:] = bytes(8)

    assert parse_producer_snapshot(data, check_crc=False).open_transactions() == {4005: 0}


def test_a_producer_without_a_batch_has_no_first_sequence() -> None:
    assert (AFTER_A_MARKER.has_batch, AFTER_A_MARKER.first_sequence) == (False, -1)
    assert (IN_A_TRANSACTION.has_batch, IN_A_TRANSACTION.first_sequence) == (True, 0)


def test_a_batch_at_offset_zero_is_a_batch() -> None:
    first = ProducerSnapshotEntry(1, 0, 0, 0, 0, T, -1, None)

    assert (first.has_batch, first.first_sequence) == (True, 0)


def test_a_batch_may_wrap_its_sequence() -> None:
    wrapped = ProducerSnapshotEntry(1, 0, 2, 100, 4, T, -1, None)

    assert wrapped.first_sequence == (1 << 31) - 2


def test_a_snapshot_without_producers_is_empty() -> None:
    assert parse_producer_snapshot(sealed(struct.pack(">i", 0))) == ProducerSnapshot()


def test_bytes_after_the_last_entry_are_reported() -> None:
    assert parse_producer_snapshot(sealed(DATA[6:] + b"??")).trailing_bytes == 2


@pytest.mark.parametrize("version", [-1, 0, 2])
def test_another_version_is_corrupt(version: int) -> None:
    with pytest.raises(CorruptIndexError, match=f"version {version}, expected version 1"):
        parse_producer_snapshot(struct.pack(">h", version) + DATA[2:])


def test_every_flipped_bit_is_found_by_the_version_or_the_crc() -> None:
    for bit in range(len(DATA) * 8):
        data = bytearray(DATA)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptIndexError):
            parse_producer_snapshot(data)


def test_a_crc_error_names_both_sums() -> None:
    with pytest.raises(CorruptIndexError, match="found CRC 3f5bedb0, expected 3f5bedb1"):
        parse_producer_snapshot(DATA[:5] + b"\xb1" + DATA[6:])


@pytest.mark.parametrize("count", [-1, 3, -(1 << 31), (1 << 31) - 1])
def test_a_count_that_does_not_fit_is_corrupt(count: int) -> None:
    with pytest.raises(CorruptIndexError, match=f"{count} entries"):
        parse_producer_snapshot(sealed(struct.pack(">i", count) + DATA[10:]))
