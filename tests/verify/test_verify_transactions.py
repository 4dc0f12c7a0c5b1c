"""Transaction indexes and snapshots: each defect is planted into a sound partition, and nothing else is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import Planted, sound_log

from segreader.format.checkpoints import parse_producer_snapshot
from segreader.testing.builder import SegmentBuilder
from segreader.testing.side_files import (
    AbortedEntry,
    ProducerEntry,
    encode_producer_snapshot,
    encode_transaction_index,
)


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return Planted(tmp_path)


def put_rows(planted: Planted, number: int, rows: list[AbortedEntry]) -> None:
    planted.put(number, "txnindex", encode_transaction_index(rows))


def rows_of(planted: Planted, number: int) -> list[AbortedEntry]:
    return list(planted.segments[number].aborted)


def test_rows_that_are_cut(planted: Planted) -> None:
    planted.put(1, "txnindex", planted.data(1, "txnindex") + b"\0\0\0")

    assert planted.codes_of_both() == {"cut-transaction-index"}


def test_a_row_of_an_unknown_version(planted: Planted) -> None:
    data = planted.data(1, "txnindex")
    data[34] = 9
    planted.put(1, "txnindex", data)

    assert planted.codes_of_both() == {"transaction-index-version"}


@pytest.mark.parametrize("field", ["first_offset", "last_stable_offset", "producer_id"])
def test_a_row_that_contradicts_itself(planted: Planted, field: str) -> None:
    first, second = rows_of(planted, 1)
    wrong = {"first_offset": second.last_offset, "last_stable_offset": second.last_offset + 2, "producer_id": -1}
    put_rows(planted, 1, [first, second._replace(**{field: wrong[field]})])

    assert planted.codes_of_both() == {"transaction-index-impossible-row"}


def test_rows_out_of_order(planted: Planted) -> None:
    first, second = rows_of(planted, 1)
    put_rows(planted, 1, [second, first])

    assert planted.codes_of_both() == {"transaction-index-not-rising"}


@pytest.mark.parametrize("last_offset", [29, 100])
def test_a_row_whose_marker_would_lie_in_another_segment(planted: Planted, last_offset: int) -> None:
    first, second = rows_of(planted, 1)
    moved = AbortedEntry(first.producer_id, 5, last_offset, 6)
    put_rows(planted, 1, [moved, second] if last_offset < second.last_offset else [first, second, moved])

    assert planted.codes_of_both() == {"transaction-index-outside-segment"}


def test_a_row_where_no_marker_stands(planted: Planted) -> None:
    first, second = rows_of(planted, 1)
    put_rows(planted, 1, [AbortedEntry(99, 31, 33, 34), first, second])

    assert planted.codes() == set()
    assert planted.codes(deep=True) == {"row-without-marker"}


def test_a_row_of_another_producer_than_the_marker(planted: Planted) -> None:
    first, second = rows_of(planted, 1)
    put_rows(planted, 1, [first._replace(producer_id=99), second])

    assert planted.codes(deep=True) == {"row-without-marker"}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_abort_that_is_not_indexed(planted: Planted, number: int) -> None:
    put_rows(planted, number, rows_of(planted, number)[1:])

    assert planted.codes(deep=True) == {"marker-without-row"}


def test_a_transaction_index_that_is_not_there(planted: Planted) -> None:
    planted.remove(1, "txnindex")

    assert planted.codes(deep=True) == {"marker-without-row"}


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_row_with_another_first_offset_than_the_log(planted: Planted, shift: int) -> None:
    first, second = rows_of(planted, 1)
    put_rows(planted, 1, [first, second._replace(first_offset=second.first_offset + shift)])

    assert planted.codes(deep=True) == {"transaction-index-mismatch"}


def test_a_row_with_another_stable_offset_than_the_log(planted: Planted) -> None:
    first, second = rows_of(planted, 1)
    put_rows(planted, 1, [first._replace(last_stable_offset=first.last_stable_offset - 1), second])

    assert planted.codes(deep=True) == {"transaction-index-mismatch"}


def test_aborts_of_transactions_that_began_before_the_first_segment_are_believed(tmp_path: Path) -> None:
    planted = Planted(tmp_path, sound_log(4)[1:])

    assert planted.codes_of_both() == set()


def test_rows_of_a_compacted_segment_may_outlive_their_data(tmp_path: Path) -> None:
    segment = SegmentBuilder(0).batch([b"a"]).skip(3).batch([b"b"]).batch([b"c"])
    segment.aborted.append(AbortedEntry(5, 1, 2, 3))

    assert Planted(tmp_path, [segment]).codes(deep=True) == set()


def cut_out(planted: Planted, number: int, batch: int) -> None:
    """Take a batch out of a log, and the indexes, whose positions would tell."""
    data, positions = planted.data(number, "log"), planted.segments[number].batch_positions
    planted.put(number, "log", data[: positions[batch]] + data[positions[batch + 1] :])
    for kind in ("index", "timeindex"):
        planted.remove(number, kind)


MISSING_INDEXES = {"missing-offset-index", "missing-time-index"}


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_hole_in_a_log_leaves_all_other_transactions_checked(number: int, tmp_path: Path) -> None:
    planted = Planted(tmp_path, sound_log(4))
    cut_out(planted, 1, 3)
    assert planted.codes(deep=True) == MISSING_INDEXES

    put_rows(planted, number, rows_of(planted, number)[:-1])

    assert planted.codes(deep=True) == {"marker-without-row", *MISSING_INDEXES}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_damaged_batch_leaves_all_other_transactions_checked(number: int, tmp_path: Path) -> None:
    planted = Planted(tmp_path, sound_log(4))
    data = planted.data(1, "log")
    data[planted.segments[1].batch_positions[5] + 70] ^= 1
    planted.put(1, "log", data)
    put_rows(planted, number, rows_of(planted, number)[:-1])

    assert planted.codes(deep=True) == {"marker-without-row", "crc-mismatch"}


def test_what_a_hole_leaves_unchecked_is_said(planted: Planted) -> None:
    cut_out(planted, 1, 14)  # producer 7's ABORT; the transaction of producer 8 is open there

    found = [one for one in planted.find(deep=True) if one.severity.value != "warning"]

    assert {one.code.value for one in found} == {"unchecked"}
    assert [one.explanation for one in found] == [
        "1 gap between batches, the first at offsets 56-56; not checked: 1 row whose marker would be there, "
        "transactions of producers 7, 8 open there"
    ]


def snapshot_entries(planted: Planted, number: int) -> list[ProducerEntry]:
    return [
        ProducerEntry(
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.last_offset,
            one.offset_delta,
            one.timestamp_ms,
            one.coordinator_epoch,
            -1 if one.current_txn_first_offset is None else one.current_txn_first_offset,
        )
        for one in parse_producer_snapshot(planted.data(number, "snapshot"))
    ]


def test_a_snapshot_that_fails_its_checksum(planted: Planted) -> None:
    data = planted.data(1, "snapshot")
    data[20] ^= 1
    planted.put(1, "snapshot", data)

    assert planted.codes_of_both() == {"snapshot-crc"}


def test_a_snapshot_of_an_unknown_version(planted: Planted) -> None:
    planted.put(1, "snapshot", encode_producer_snapshot(snapshot_entries(planted, 1), version=2))

    assert planted.codes_of_both() == {"snapshot-version"}


@pytest.mark.parametrize("left", [0, 7, 30, 70])
def test_a_snapshot_that_is_cut(planted: Planted, left: int) -> None:
    planted.put(1, "snapshot", planted.data(1, "snapshot")[:left])

    assert planted.codes_of_both() == {"cut-snapshot"}


def test_a_snapshot_with_more_bytes_than_entries(planted: Planted) -> None:
    planted.put(1, "snapshot", encode_producer_snapshot(snapshot_entries(planted, 1), count=1))

    assert "snapshot-trailing-bytes" in planted.codes()


@pytest.mark.parametrize("field", ["last_offset", "current_txn_first_offset"])
def test_a_snapshot_that_knows_what_comes_later(planted: Planted, field: str) -> None:
    first, *others = snapshot_entries(planted, 1)
    planted.put(1, "snapshot", encode_producer_snapshot([first._replace(**{field: 75}), *others]))

    assert "snapshot-contradicts-log" in planted.codes()
    assert planted.codes(deep=True) == {"snapshot-contradicts-log"}


def test_a_snapshot_with_an_open_transaction_that_the_log_has_ended(planted: Planted) -> None:
    entries = [one._replace(current_txn_first_offset=42) for one in snapshot_entries(planted, 1)]
    planted.put(1, "snapshot", encode_producer_snapshot(entries))

    assert planted.codes_of_both() == {"snapshot-contradicts-log"}


def test_a_snapshot_without_a_transaction_that_is_open(planted: Planted) -> None:
    entries = [one._replace(current_txn_first_offset=-1) for one in snapshot_entries(planted, 0)]
    planted.put(0, "snapshot", encode_producer_snapshot(entries))

    assert planted.codes(deep=True) == {"snapshot-contradicts-log"}
    assert planted.codes() == {"transaction-index-mismatch"}  # one of the two is wrong: only the log tells which


@pytest.mark.parametrize("step", [-1, 1])
def test_a_row_that_begins_where_no_transaction_was_open_before_its_segment(planted: Planted, step: int) -> None:
    first, second = rows_of(planted, 1)
    crossing = next(row for row in (first, second) if row.first_offset < planted.segments[1].base_offset)
    moved = crossing._replace(first_offset=crossing.first_offset + step)
    put_rows(planted, 1, [moved if row is crossing else row for row in (first, second)])

    assert planted.codes_of_both() == {"transaction-index-mismatch"}


def test_a_snapshot_that_does_not_know_the_last_batch_of_its_log(tmp_path: Path) -> None:
    first = SegmentBuilder().batch([b"0"])
    second = first.roll().batch([b"1"]).batch([b"2"], producer_id=1, transactional=True)
    planted = Planted(tmp_path, [first, second])
    planted.put(1, "snapshot", planted.data(0, "snapshot"))

    assert planted.codes_of_both() == {"snapshot-contradicts-log"}
