"""Random histories of a partition: a scan of the remote tier against what the simulator says a consumer must see.

``SEGREADER_EXAMPLES=15000`` makes every property here run that many examples, other ones each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from histories import (
    ELECTIONS,
    FAILED_UPLOAD,
    KERNELS,
    ORDINARY,
    PLAIN,
    SPLITS,
    TROUBLE,
    TV1,
    TV2,
    WORN_OUT,
    Event,
    examples,
    histories,
    play,
    seen,
)
from hypothesis import assume, given
from hypothesis import strategies as st
from simulator import RemoteSegment, SimulatedPartition, Truth

import segreader
from segreader.errors import CorruptBatchError, SegmentGapError
from segreader.format.batch import Record
from segreader.testing.side_files import AbortedEntry, encode_transaction_index


def read(root: Path, **arguments: Any) -> tuple[list[tuple[object, ...]], int | None]:
    """The records of a scan, and the offset at which its plan says that they end."""
    with segreader.scan(root, **arguments) as scan:
        (end,) = scan.plan().ends
        return seen(list(scan.records())), end.offset


def judge(
    partition: SimulatedPartition,
    truth: Truth,
    data: st.DataObject,
    *,
    told_by_leader: bool = False,
    lost: Sequence[RemoteSegment] = (),
    left: bytes | None = None,
) -> None:
    """Scan what the leaders uploaded, all of it, a random part and since a time, and hold it against the truth.

    Args:
        lost: segments whose leader-epoch checkpoint is not there.
        left: what is in its place.
    """
    assume(any(segment.is_whole for segment in partition.remote))
    assume(not truth.has_hole and not truth.open_since_unseen)
    start = data.draw(st.integers(0, truth.end + 1), "start")
    stop = data.draw(st.integers(start, truth.end + 2), "stop")
    since = data.draw(st.sampled_from([record.timestamp_ms for record in truth.uncommitted] or [0]), "since")
    newer = [record.offset for record in truth.uncommitted if record.timestamp_ms >= since]
    arguments: dict[str, Any] = {
        "split_bytes": data.draw(st.sampled_from(SPLITS), "split_bytes"),
        "kernel": data.draw(st.sampled_from(KERNELS), "kernel"),
        "threads": data.draw(st.sampled_from([1, 2, 8]), "threads"),
        "batch_rows": data.draw(st.sampled_from([1, 10_000]), "batch_rows"),
    }
    with TemporaryDirectory() as name:
        root = Path(name, "remote")
        partition.write(root)
        for segment in lost:
            for path in root.glob(f"*/*{segment.segment_id}.leader_epoch_checkpoint"):
                path.unlink() if left is None else path.write_bytes(left)
        if told_by_leader:
            arguments["leader_epochs"] = Path(name, "leader-epoch-checkpoint")
            arguments["leader_epochs"].write_bytes(partition.leader_epoch_checkpoint())
        for level, expected, end in (
            ("uncommitted", truth.uncommitted, truth.end),
            ("committed", truth.committed, truth.stable_end),
        ):
            arguments["isolation_level"] = f"read_{level}"
            records, said = read(root, **arguments)
            assert records == seen(expected)
            if truth.start < end < truth.end:
                assert said == end
            elif truth.start < end:  # it may not be known yet; what it leaps over, DeleteRecords has deleted
                assert said in (None, end) or end < said <= partition.log_start
            part = [record for record in expected if start <= record.offset < stop]
            assert read(root, offsets=(start, stop), **arguments)[0] == seen(part)
            recent = [record for record in expected if newer and record.offset >= newer[0]]
            assert read(root, since=since, **arguments)[0] == seen(recent)


@examples(150)
@given(histories(*ORDINARY), st.data())
def test_a_scan_gives_what_a_consumer_sees_whatever_producers_do(events: list[Event], data: st.DataObject) -> None:
    partition = play(events)
    judge(partition, partition.truth(), data)


@examples(150)
@given(histories(*ORDINARY, *ORDINARY, *TROUBLE), st.data())
def test_repeated_uploads_retention_and_deletion_change_no_record(events: list[Event], data: st.DataObject) -> None:
    partition = play(events)
    judge(partition, partition.truth(), data)


@examples(150)
@given(histories(*ORDINARY, *ORDINARY, *TROUBLE, FAILED_UPLOAD), st.data())
def test_what_a_failed_upload_left_is_no_segment(events: list[Event], data: st.DataObject) -> None:
    partition = play(events)
    judge(partition, partition.truth(), data)


@examples(150)
@given(histories(*ORDINARY, *ELECTIONS), st.data())
def test_after_any_elections_a_scan_gives_the_branch_that_lives(events: list[Event], data: st.DataObject) -> None:
    partition = play(events)
    assume(not partition.is_deceptive)
    judge(partition, partition.truth(), data)


@examples(150)
@given(histories(*ORDINARY, *ORDINARY, *TROUBLE, FAILED_UPLOAD, *ELECTIONS), st.data())
def test_everything_at_once_changes_no_record(events: list[Event], data: st.DataObject) -> None:
    partition = play(events)
    assume(not partition.is_deceptive)
    judge(partition, partition.truth(), data)


@examples(150)
@given(histories(*ORDINARY, *TROUBLE, *ELECTIONS), st.data())
def test_with_the_leaders_checkpoint_the_survivor_need_not_have_uploaded(
    events: list[Event], data: st.DataObject
) -> None:
    partition = play(events)
    judge(partition, partition.truth(told_by_leader=True), data, told_by_leader=True)


@examples(150)
@given(histories(*ORDINARY, *ELECTIONS), st.data())
def test_segments_that_lost_their_checkpoints_change_no_record(events: list[Event], data: st.DataObject) -> None:
    """Those of lost branches, which would be believed, and the newest ones, whose epochs no other file knows."""
    partition = play(events)
    assume(not partition.is_deceptive)
    dead = [one for one in partition.remote if one.batches[-1] not in partition.batches]
    some = [one for one in partition.remote if data.draw(st.booleans())]
    newest = partition.remote[-data.draw(st.integers(1, 3)) :]
    chosen = data.draw(st.sampled_from([some, dead, newest, partition.remote]))
    judge(partition, partition.truth(), data, lost=chosen, left=data.draw(st.sampled_from([None, b"", b"0\n0\n"])))


@examples(150)
@given(histories(*ORDINARY, *ELECTIONS), st.data())
def test_checkpoints_of_other_segments_give_the_truth_or_an_error(events: list[Event], data: st.DataObject) -> None:
    partition = play(events)
    assume(not partition.is_deceptive)
    assume(any(segment.is_whole for segment in partition.remote))
    truth = partition.truth()
    assume(not truth.has_hole and not truth.open_since_unseen)
    swapped = data.draw(st.lists(st.tuples(*[st.sampled_from(partition.remote)] * 2), min_size=1, max_size=2))
    with TemporaryDirectory() as name:
        partition.write(Path(name))
        for segment, other in swapped:
            (path,) = Path(name).glob(f"*/*{segment.segment_id}.leader_epoch_checkpoint")
            path.write_bytes(other.files["leader_epoch_checkpoint"])
        for level, expected in (("read_uncommitted", truth.uncommitted), ("read_committed", truth.committed)):
            try:
                assert read(Path(name), isolation_level=level)[0] == seen(expected)
            except (CorruptBatchError, SegmentGapError) as error:
                assert error.source is not None


# found by the properties above, made small


def data_of(producer: int, count: int = 1, transactional: int = 1) -> Event:
    return ("append", (producer, count, 0, transactional))


def scanned(partition: SimulatedPartition, folder: Path, **arguments: Any) -> list[int]:
    partition.write(folder / "remote")
    return [record.offset for record in segreader.scan(folder / "remote", **arguments).records()]


def values(records: Sequence[Record]) -> list[int]:
    return [record.offset for record in records]


def test_a_segment_that_begins_before_an_older_one_is_read_to_its_own_end(tmp_path: Path) -> None:
    before = [*[data_of(PLAIN)] * 7, ("roll", ()), data_of(PLAIN), ("roll", ()), ("upload", (2,))]
    partition = play([*before, *[data_of(PLAIN)] * 3, ("elect", (4, 2)), ("upload", (1,))])
    assert [(s.base_offset, s.stop) for s in partition.remote] == [(0, 7), (7, 8), (6, 10)]
    assert scanned(partition, tmp_path) == list(range(10))


@pytest.mark.parametrize("written", range(1, 5))
def test_a_set_that_lacks_a_file_is_no_segment(tmp_path: Path, written: int) -> None:
    first = [data_of(PLAIN), ("roll", ()), ("upload", (1,))]
    partition = play([*first, *[data_of(PLAIN)] * 3, ("roll", ()), ("fail_upload", (written,))])
    assert scanned(partition, tmp_path) == [0]


def test_the_log_starts_where_the_segment_that_reaches_farthest_says(tmp_path: Path) -> None:
    before = [*[data_of(PLAIN)] * 4, ("roll", ()), *[data_of(PLAIN)] * 2, ("roll", ()), ("upload", (2,))]
    partition = play([*before, *[data_of(PLAIN)] * 3, ("delete_records", (34,)), ("elect", (5, 2)), ("upload", (1,))])
    assert [(s.base_offset, s.stop) for s in partition.remote] == [(0, 4), (4, 6), (3, 8)]
    assert partition.remote[-1].lineage == ((0, 3),)
    assert scanned(partition, tmp_path) == [3, 4, 5, 6, 7]


def test_a_transaction_open_since_before_the_log_start_holds_back_what_follows(tmp_path: Path) -> None:
    events = [data_of(TV1), *[data_of(PLAIN)] * 5, ("roll", ()), data_of(PLAIN), ("finish", (TV1, 0))]
    partition = play([*events, ("delete_records", (25,)), ("upload", (1,)), ("elect", (0, 0))])
    assert partition.truth().committed == ()
    checkpoint = tmp_path / "leader-epoch-checkpoint"
    checkpoint.write_bytes(partition.leader_epoch_checkpoint())
    assert scanned(partition, tmp_path) == []
    assert scanned(partition, tmp_path, leader_epochs=checkpoint) == []


def test_what_is_left_of_a_lost_branch_does_not_move_the_end(tmp_path: Path) -> None:
    uploaded = [*[data_of(PLAIN)] * 5, ("roll", ()), *[data_of(PLAIN)] * 4, ("roll", ()), ("upload", (2,))]
    survivor = [
        ("elect_unclean", (7, 0, 0)),
        data_of(PLAIN),
        ("roll", ()),
        data_of(PLAIN),
        ("roll", ()),
        ("upload", (2,)),
    ]
    partition = play([*uploaded, *survivor, ("expire", (1, 1))])
    assert [(s.base_offset, s.stop, s.is_whole) for s in partition.remote] == [(3, 4, True), (5, 9, False)]
    assert scanned(partition, tmp_path) == [3]
    (end,) = segreader.scan(tmp_path / "remote").plan().ends
    assert end.offset in (None, 4)


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(
    "is_dead",
    [
        pytest.param(True, id="a dead copy with the live one's"),
        pytest.param(False, id="the live one with a dead one's"),
    ],
)
def test_a_copy_that_wins_by_a_false_checkpoint_is_held_against_its_batches(
    tmp_path: Path, level: str, is_dead: bool
) -> None:
    """Its open transaction would else end ``read_committed`` before the batch that shows the mistake."""
    dead = [data_of(PLAIN), data_of(TV1), data_of(PLAIN), data_of(PLAIN), ("roll", ()), ("finish", (TV1, 0))]
    live = [("elect_unclean", (4, 0, 0)), *[data_of(PLAIN)] * (2 if is_dead else 4)]
    partition = play([*dead, ("upload", (1,)), *live, ("roll", ()), ("upload", (2,))])
    (one, two), truth = partition.remote, partition.truth()
    partition.write(tmp_path)
    false, other = (one, two) if is_dead else (two, one)
    (path,) = tmp_path.glob(f"*/*{false.segment_id}.leader_epoch_checkpoint")
    path.write_bytes(other.files["leader_epoch_checkpoint"])
    assert read(tmp_path, isolation_level=level)[0] == seen(truth.uncommitted)
    notes = [one for one in segreader.scan(tmp_path).plan().notes if false.segment_id in one]
    assert any("its batches bear other leader epochs than its checkpoint says" in note for note in notes)


def test_an_epoch_that_no_checkpoint_knows_begins_where_its_first_batch_is(tmp_path: Path) -> None:
    """Two segments of the new leader bear the checkpoint of an older one, and a lost branch lies beside the first."""
    lost = [*[data_of(PLAIN)] * 3, ("elect", (2, 0)), ("roll", ()), data_of(PLAIN), ("roll", ()), ("upload", (3,))]
    live = [("elect_unclean", (1, 0, 0)), data_of(PLAIN), ("roll", ()), *[data_of(PLAIN)] * 2, ("roll", ())]
    partition = play([*lost, *live, ("upload", (2,))])
    partition.write(tmp_path)
    for one in partition.remote[-2:]:
        (path,) = tmp_path.glob(f"*/*{one.segment_id}.leader_epoch_checkpoint")
        path.write_bytes(partition.remote[0].files["leader_epoch_checkpoint"])
    assert read(tmp_path)[0] == seen(partition.truth().uncommitted)


def test_a_damaged_epoch_in_one_of_two_equal_copies_does_not_become_history(tmp_path: Path) -> None:
    partition = play([*[data_of(PLAIN)] * 3, ("roll", ()), ("fail_upload", (6,)), ("upload", (1,))])
    assert [(one.base_offset, one.stop) for one in partition.remote] == [(0, 3)] * 2
    partition.write(tmp_path)
    for path in tmp_path.glob("*/*.log"):
        log = bytearray(path.read_bytes())
        at = partition.remote[0].batches[-1].data
        log[len(log) - len(at) + 15] = 9  # of 4 bytes at 12
        sound = path.read_bytes()
        path.write_bytes(log)
        try:
            records = list(segreader.scan(tmp_path).records())
        except CorruptBatchError as error:
            assert error.source is not None
        else:
            assert [(one.offset, one.leader_epoch) for one in records] == [(0, 0), (1, 0), (2, 0)]
        path.write_bytes(sound)


# the judge itself


def test_the_simulator_keeps_to_the_specified_scenario_of_three_interleaved_producers() -> None:
    partition = play(
        [
            data_of(PLAIN),
            data_of(TV1, 2),
            data_of(TV2),
            ("finish", (TV1, 0)),
            data_of(TV1),
            data_of(TV2, 2),
            ("roll", ()),
            ("finish", (TV1, 1)),
            data_of(WORN_OUT),
            ("finish", (TV2, 1)),
            data_of(TV1, 1, 0),
            ("finish", (TV1, 0)),
            data_of(TV1),
            ("roll", ()),
            ("upload", (9,)),
        ]
    )
    (first,) = partition.remote
    assert "txnindex" not in first.files
    open_transactions = {e.producer_id: e.current_txn_first_offset for e in first.batches[-1].producers}
    assert open_transactions == {2000: 5, 3000: 3}
    truth = partition.truth()
    assert (truth.end, truth.stable_end, values(truth.committed)) == (8, 3, [0, 1, 2])

    partition.finish(WORN_OUT, abort=False)
    partition.finish(TV1, abort=False)
    partition.roll()
    partition.upload(9)
    rows = [AbortedEntry(2000, 5, 8, 3), AbortedEntry(3000, 3, 10, 9)]
    assert partition.remote[1].files["txnindex"] == encode_transaction_index(rows)
    assert values(partition.truth().committed) == [0, 1, 2, 9, 11, 13]


def test_the_simulators_survivor_of_an_unclean_election_uploads_from_the_fork_on() -> None:
    partition = play(
        [
            data_of(PLAIN, 3),
            data_of(TV1, 3),
            ("finish", (TV1, 1)),
            ("roll", ()),
            ("upload", (1,)),
            ("elect_unclean", (1, 0, 0)),
        ]
    )
    assert partition.is_deceptive
    told = partition.truth(told_by_leader=True)
    assert (told.end, told.stable_end, values(told.committed)) == (6, 3, [0, 1, 2])

    partition.finish(TV1, abort=False)
    partition.append(PLAIN, 1)
    partition.roll()
    partition.upload()
    assert not partition.is_deceptive
    assert partition.remote[-1].files["leader_epoch_checkpoint"] == b"0\n2\n0 0\n1 6\n"
    assert values(partition.truth().committed) == [0, 1, 2, 3, 4, 5, 7]
