"""Control records: every type's value, and what may be unknown. KRaft values were encoded by Kafka 4.3.1."""

from __future__ import annotations

import struct

import pytest

from segreader.errors import CorruptRecordError
from segreader.format.records import (
    ControlRecord,
    ControlRecordKey,
    ControlRecordType,
    Endpoint,
    EndTxnMarker,
    KRaftVersion,
    KRaftVoter,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    parse_control_key,
    parse_control_record,
)

DIRECTORY_ID = "LWgrMmVrT0a__7a4SasuPA"
COMMIT_BATCH = bytes.fromhex(
    "00000000000000cd 00000042 00000003 02 ed31fee6 0030 00000000 0000018bcfe5692c 0000018bcfe5692c"
    "0000000000000fa0 0008 ffffffff 00000001 20 00 00 00 08 00000001 0c 000000000005 00"
)
ABORT_BATCH = bytes.fromhex(
    "00000000000000ce 00000042 00000003 02 7133c5dc 0030 00000000 0000018bcfe56990 0000018bcfe56990"
    "0000000000000fa1 0002 ffffffff 00000001 20 00 00 00 08 00000000 0c 000000000005 00"
)
LEADER_CHANGE_0 = bytes.fromhex(
    "0000 00000001"
    "03 00000001 00 0000012c 00"  # voters 1 and 300, each with an empty tag section
    "02 00000001 00"
    "00"
)
LEADER_CHANGE_1 = bytes.fromhex(
    "0001 0000000102 00000001 2d682b32656b4f46bfffb6b849ab2e3c 0002 00000001 2d682b32656b4f46bfffb6b849ab2e3c 0000"
)
SNAPSHOT_HEADER = bytes.fromhex("0000 0000018bcfe56800 00")
SNAPSHOT_FOOTER = bytes.fromhex("0000 00")
KRAFT_VERSION = bytes.fromhex("0000 0001 00")
KRAFT_VOTERS = bytes.fromhex(
    "0000"
    "02 00000001 2d682b32656b4f46bfffb6b849ab2e3c"
    "02 0b 434f4e54524f4c4c4552 08 6b61666b612d31 bfc5 00"  # CONTROLLER, kafka-1, port 49093
    "0000 0001 00"
    "00 00"
)


def key(type_id: int, version: int = 0) -> bytes:
    return struct.pack(">hh", version, type_id)


def test_the_marker_of_a_committed_transaction_is_a_commit() -> None:
    record = parse_control_record(COMMIT_BATCH[66:70], COMMIT_BATCH[71:77])

    assert record == ControlRecord(ControlRecordKey(0, 1), EndTxnMarker(version=0, coordinator_epoch=5))
    assert record.key.type is ControlRecordType.COMMIT
    assert (record.key.is_abort, record.key.is_end_of_transaction) == (False, True)


def test_the_marker_of_an_aborted_transaction_is_an_abort() -> None:
    record = parse_control_record(memoryview(ABORT_BATCH)[66:70], memoryview(ABORT_BATCH)[71:77])

    assert record == ControlRecord(ControlRecordKey(0, 0), EndTxnMarker(version=0, coordinator_epoch=5))
    assert (record.key.is_abort, record.key.is_end_of_transaction) == (True, True)


def test_newer_keys_and_markers_only_add_bytes() -> None:
    record = parse_control_record(key(0, version=7) + b"more", bytes.fromhex("000900000005ffff"))

    assert record.key == ControlRecordKey(7, 0)
    assert record.value == EndTxnMarker(version=9, coordinator_epoch=5)


@pytest.mark.parametrize(
    ("type_id", "data", "value"),
    [
        (2, LEADER_CHANGE_0, LeaderChange(0, 1, (Voter(1), Voter(300)), (Voter(1),))),
        (2, LEADER_CHANGE_1, LeaderChange(1, 1, (Voter(1, DIRECTORY_ID),), (Voter(1, DIRECTORY_ID),))),
        (3, SNAPSHOT_HEADER, SnapshotHeader(0, 1_700_000_000_000)),
        (4, SNAPSHOT_FOOTER, SnapshotFooter(0)),
        (5, KRAFT_VERSION, KRaftVersion(0, kraft_version=1)),
        (
            6,
            KRAFT_VOTERS,
            KRaftVoters(0, (KRaftVoter(1, DIRECTORY_ID, (Endpoint("CONTROLLER", "kafka-1", 49093),), 0, 1),)),
        ),
    ],
    ids=["leader change 0", "leader change 1", "snapshot header", "footer", "kraft version", "kraft voters"],
)
def test_a_quorum_record_keeps_every_field(type_id: int, data: bytes, value: object) -> None:
    record = parse_control_record(key(type_id), data)

    assert record.value == value
    assert not record.key.is_end_of_transaction


@pytest.mark.parametrize("type_id", [-1, -7, 7, 32767])
@pytest.mark.parametrize("value", [None, b"", b"anything"])
def test_an_unknown_type_is_a_value(type_id: int, value: bytes | None) -> None:
    record = parse_control_record(key(type_id), value)

    assert record.key.type is ControlRecordType.UNKNOWN
    assert record == ControlRecord(ControlRecordKey(0, type_id), value)


def test_a_quorum_record_of_a_newer_version_keeps_its_bytes() -> None:
    newer = b"\0\2" + LEADER_CHANGE_1[2:]

    assert parse_control_record(key(2), newer).value == newer


def test_tagged_fields_are_stepped_over() -> None:
    tagged = SNAPSHOT_HEADER[:-1] + bytes.fromhex("02 00 03 616263 8001 00")

    assert parse_control_record(key(3), tagged).value == SnapshotHeader(0, 1_700_000_000_000)


def test_a_varint_ends_within_five_bytes() -> None:
    with pytest.raises(CorruptRecordError, match="more than five bytes") as caught:
        parse_control_record(key(4), bytes.fromhex("0000 8080808080 00"))

    assert caught.value.position == 2


@pytest.mark.parametrize("wrong", [None, b"", b"\0\0\0", struct.pack(">hh", -1, 0)])
def test_a_key_that_is_short_or_of_a_negative_version_is_corrupt(wrong: bytes | None) -> None:
    with pytest.raises(CorruptRecordError):
        parse_control_key(wrong)


@pytest.mark.parametrize(
    ("type_id", "value"),
    [
        (0, None),
        (1, b"\0\0\0\0\0"),
        (1, b"\xff\xff\0\0\0\5"),
        (2, bytes.fromhex("0000 00000001 00 01 00")),
        (2, bytes.fromhex("0000 00000001 ffffffff0f 00000001 00")),
        (2, bytes.fromhex("0000 00000001 ffffffffff 01")),
        (3, SNAPSHOT_HEADER[:-1] + b"\xff\xff\xff\xff\x0f"),
        (5, b"\xff\xff\0\1\0"),
        (6, bytes.fromhex("0000 02 00000001") + bytes(16) + b"\2\0"),
    ],
    ids=[
        "no value",
        "cut marker",
        "negative version",
        "null array",
        "more voters than bytes",
        "endless varint",
        "more tags than bytes",
        "negative kraft version",
        "null text",
    ],
)
def test_an_impossible_value_of_a_known_type_is_corrupt(type_id: int, value: bytes | None) -> None:
    with pytest.raises(CorruptRecordError):
        parse_control_record(key(type_id), value)


@pytest.mark.parametrize(
    ("type_id", "data"),
    [
        (0, ABORT_BATCH[71:77]),
        (2, LEADER_CHANGE_0),
        (2, LEADER_CHANGE_1),
        (3, SNAPSHOT_HEADER),
        (4, SNAPSHOT_FOOTER),
        (5, KRAFT_VERSION),
        (6, KRAFT_VOTERS),
    ],
)
def test_a_value_cut_anywhere_is_corrupt(type_id: int, data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(CorruptRecordError):
            parse_control_record(key(type_id), data[:size])
