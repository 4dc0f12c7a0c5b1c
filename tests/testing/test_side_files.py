"""The files beside a log: byte for byte, and against what real brokers wrote."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from corpus import cases

from segreader.testing.producer_states import ProducerStates
from segreader.testing.side_files import (
    AbortedEntry,
    IndexRecorder,
    ProducerEntry,
    encode_leader_epochs,
    encode_offset_index,
    encode_partition_metadata,
    encode_producer_snapshot,
    encode_time_index,
    encode_transaction_index,
)

T = 1_700_000_000_000
INTERVALS = (0, 300, 400, 600, 4096)
"""``index.interval.bytes`` of the corpus' topics; which one a topic had is not recorded."""

APPENDED_ELSEWHERE = ("compacted-then-tiered",)  # the cleaner appends many batches at once
RESTARTED = ("epochs", "epochs-txn")  # a start forgets bytes since the last index entry, and old producers
CUT_OFF = ("delete-records", "retention")  # the log begins above offset 0


def remote_directories(*without: str) -> list[Path]:
    brokers = cases("tv2", "tv1", "k39", remote=True)
    return [path for case in brokers if case.topic not in without for path in case.remote]


def directory_id(directory: Path) -> str:
    return f"{directory.parents[2].name}/{directory.name[:-23]}"


def test_an_offset_index_holds_offsets_from_the_base_and_positions() -> None:
    assert encode_offset_index(100, [(107, 4200), (119, 8400)]).hex(" ", 4) == "00000007 00001068 00000013 000020d0"


def test_a_time_index_holds_times_and_offsets_from_the_base() -> None:
    assert encode_time_index(100, [(T, 107), (T + 250, 119)]) == bytes.fromhex(
        "0000018bcfe56800 00000007 0000018bcfe568fa 00000013"
    )


def test_a_transaction_index_holds_a_version_and_four_numbers_a_row() -> None:
    rows = [AbortedEntry(4001, 180, 206, 201), AbortedEntry(4002, 201, 230, 231)]

    assert encode_transaction_index(rows) == bytes.fromhex(
        "0000 0000000000000fa1 00000000000000b4 00000000000000ce 00000000000000c9"
        "0000 0000000000000fa2 00000000000000c9 00000000000000e6 00000000000000e7"
    )


def test_a_producer_snapshot_has_a_crc_over_its_count_and_rows() -> None:
    rows = [
        ProducerEntry(4000, 8, -1, -1, 0, T + 300, 5, -1),
        ProducerEntry(4005, 1, 11, 219, 11, T + 350, -1, 208),
    ]

    assert encode_producer_snapshot(rows) == bytes.fromhex(
        "0001 3f5bedb0 00000002"
        "0000000000000fa0 0008 ffffffff ffffffffffffffff 00000000 0000018bcfe5692c 00000005 ffffffffffffffff"
        "0000000000000fa5 0001 0000000b 00000000000000db 0000000b 0000018bcfe5695e ffffffff 00000000000000d0"
    )


def test_text_files_end_their_lines_as_the_broker_does() -> None:
    assert encode_leader_epochs([(2, 0), (5, 1500)]) == b"0\n2\n2 0\n5 1500\n"
    assert encode_partition_metadata("LWgrMmVrT0a__7a4SasuPA") == b"version: 0\ntopic_id: LWgrMmVrT0a__7a4SasuPA"


def test_a_snapshot_can_lie_about_version_crc_and_count() -> None:
    assert encode_producer_snapshot([], version=2, crc=7, count=3).hex(" ", 2) == "0002 0000 0007 0000 0003"


@pytest.mark.parametrize("directory", remote_directories(*APPENDED_ELSEWHERE, *RESTARTED), ids=directory_id)
def test_index_entries_are_those_of_the_broker(directory: Path) -> None:
    logs = sorted(directory.glob("*.log"))

    assert any(
        all(
            (log.with_suffix(".index").read_bytes(), log.with_suffix(".timeindex").read_bytes())
            == _indexes(log, interval)
            for log in logs
        )
        for interval in INTERVALS
    )


@pytest.mark.parametrize("directory", remote_directories(*APPENDED_ELSEWHERE, *RESTARTED, *CUT_OFF), ids=directory_id)
def test_aborted_rows_and_snapshots_are_those_of_the_broker(directory: Path) -> None:
    logs = sorted(directory.glob("*.log"))
    states = ProducerStates()
    for log in logs:
        aborted = _replay(log.read_bytes(), states)
        index = log.with_suffix(".txnindex")
        assert encode_transaction_index(aborted) == (index.read_bytes() if index.exists() else b"")
        assert _rows(encode_producer_snapshot(states.entries)) == _rows(log.with_suffix(".snapshot").read_bytes())


def _indexes(log: Path, interval: int) -> tuple[bytes, bytes]:
    recorder = IndexRecorder(int(log.name[:20]), interval)
    for at, batch in _batches(log.read_bytes()):
        recorder.append(at, len(batch), _int(batch[0:8]) + _int(batch[23:27]), _int(batch[35:43]))
    return recorder.offset_index(), recorder.time_index()


def _replay(log: bytes, states: ProducerStates) -> list[AbortedEntry]:
    aborted = []
    for _, batch in _batches(log):
        base, attributes, delta = _int(batch[0:8]), _int(batch[21:23]), _int(batch[23:27])
        max_timestamp, producer_id, epoch, sequence = struct.unpack_from(">qqhi", batch, 35)
        if producer_id < 0:
            continue
        if attributes & 0x20:
            entry = states.append_marker(
                producer_id,
                epoch,
                offset=base,
                timestamp_ms=max_timestamp,
                coordinator_epoch=_int(batch[-5:-1]),
                abort=batch[61 + 8] == 0,
            )
            aborted += [entry] if entry else []
        else:
            states.append_data(
                producer_id,
                epoch,
                base_sequence=sequence,
                base_offset=base,
                last_offset=base + delta,
                max_timestamp_ms=max_timestamp,
                transactional=bool(attributes & 0x10),
            )
    return aborted


def _batches(log: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at < len(log):
        size = _int(log[at + 8 : at + 12]) + 12
        found.append((at, log[at : at + size]))
        at += size
    return found


def _rows(snapshot: bytes) -> set[bytes]:
    return {snapshot[at : at + 46] for at in range(10, len(snapshot), 46)}


def _int(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)
