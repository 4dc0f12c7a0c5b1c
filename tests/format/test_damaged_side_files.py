"""Cut and flip: whatever happened to the bytes, each parser gives a value that works or a ``FormatError``."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from segreader.errors import CorruptIndexError, FormatError
from segreader.format.checkpoints import (
    MOST_OF_LEADER_EPOCHS,
    MOST_OF_SNAPSHOT,
    parse_leader_epochs,
    parse_partition_metadata,
    parse_producer_snapshot,
)
from segreader.format.index_files import parse_offset_index, parse_time_index, parse_transaction_index
from segreader.format.records import parse_control_record


def use_offset_index(data: bytes) -> None:
    for log_size in (None, 20_000):
        index = parse_offset_index(data, 100, log_size=log_size)
        assert [index.lookup(entry.offset) for entry in index] == list(index)
        assert list(index.positions()) == sorted(set(index.positions()))
        assert len(index) * index.entry_size + index.trailing_bytes + index.zero_tail == len(data)


def use_time_index(data: bytes) -> None:
    index = parse_time_index(data, 100)
    assert [index.lookup(entry.timestamp_ms) for entry in index] == list(index)
    assert len(index) * 12 + index.trailing_bytes + index.zero_tail == len(data)


def use_transaction_index(data: bytes) -> None:
    index = parse_transaction_index(data, 100)
    assert set(index.collect(0, 1 << 62)[0]) <= set(index)
    assert len(index) * 34 + index.trailing_bytes == len(data)


def use_producer_snapshot(data: bytes) -> None:
    snapshot = parse_producer_snapshot(data, check_crc=False)
    assert len(snapshot.open_transactions()) <= len(snapshot)
    assert all(entry.first_sequence >= -1 for entry in snapshot)


def use_leader_epochs(data: bytes) -> None:
    epochs = parse_leader_epochs(data)
    assert all(epochs.offsets_of(entry.epoch) is not None for entry in epochs)


def use_partition_metadata(data: bytes) -> None:
    assert len(parse_partition_metadata(data).topic_id) == 22


def use_control_record(data: bytes) -> None:
    parse_control_record(data[:4], data[4:])


OFFSET_INDEX = struct.pack(">6i", 7, 4200, 19, 8400, 40, 13000)
WIDE_OFFSET_INDEX = struct.pack(">iqiqiq", 7, 4200, 19, 8400, 40, 13000)
VOTERS = bytes.fromhex(
    "00000006 0000 02 00000001 2d682b32656b4f46bfffb6b849ab2e3c02 03 4343 04 686f73 bfc5 00 00000001 00 00 00"
)
CASES: dict[str, tuple[Callable[[bytes], None], bytes]] = {
    "offset index": (use_offset_index, OFFSET_INDEX),
    "offset index with zeros": (use_offset_index, OFFSET_INDEX + bytes(24)),
    "wide offset index": (use_offset_index, WIDE_OFFSET_INDEX),
    "time index": (use_time_index, struct.pack(">qiqiqi", 1_000, 7, 1_250, 19, 9_000, 40)),
    "time index with zeros": (use_time_index, struct.pack(">qiqi", 1_000, 7, 1_250, 19) + bytes(24)),
    "transaction index": (
        use_transaction_index,
        struct.pack(">hqqqqhqqqq", 0, 4001, 180, 206, 201, 0, 4002, 201, 230, 231),
    ),
    "producer snapshot": (
        use_producer_snapshot,
        struct.pack(">hIiqhiqiqiq", 1, 0, 1, 4005, 1, 11, 219, 11, 1_000, -1, 208),
    ),
    "leader epochs": (use_leader_epochs, b"0\n3\n2 0\n5 1500\n11 1500\n"),
    "partition metadata": (use_partition_metadata, b"version: 0\ntopic_id: LWgrMmVrT0a__7a4SasuPA"),
    "marker": (use_control_record, bytes.fromhex("00000001 000000000005")),
    "leader change": (
        use_control_record,
        bytes.fromhex("00000002 0000 00000001 03 00000001 00 0000012c 00 02 00000001 00 00"),
    ),
    "kraft voters": (use_control_record, VOTERS),
}


def damaged(data: bytes) -> Iterator[bytes]:
    """The data cut at every byte, and with every bit flipped."""
    for size in range(len(data)):
        yield data[:size]
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)


@pytest.mark.parametrize(("use", "data"), CASES.values(), ids=CASES)
def test_damage_gives_a_working_value_or_a_format_error(use: Callable[[bytes], None], data: bytes) -> None:
    use(data)
    for wrong in damaged(data):
        with suppress(FormatError):
            use(wrong)


@pytest.mark.parametrize("use", dict.fromkeys(use for use, _ in CASES.values()))
@given(data=st.binary(max_size=200))
@settings(max_examples=tries(50), deadline=None)
def test_any_bytes_give_a_working_value_or_a_format_error(use: Callable[[bytes], None], data: bytes) -> None:
    with suppress(FormatError):
        use(data)


def test_a_file_with_more_bytes_than_any_of_its_kind_is_refused_before_it_is_parsed() -> None:
    line = b"%d %d\n"
    count = MOST_OF_LEADER_EPOCHS // 14
    lines = b"".join(line % (one, one) for one in range(1_000_000, 1_000_000 + count))
    epochs = b"0\n%d\n" % count + lines
    assert len(epochs) > MOST_OF_LEADER_EPOCHS
    with pytest.raises(CorruptIndexError, match=f"too large; found {len(epochs)} bytes, expected at most"):
        parse_leader_epochs(epochs)
    with pytest.raises(CorruptIndexError, match="a producer snapshot is too large"):
        parse_producer_snapshot(bytes(MOST_OF_SNAPSHOT + 1))
