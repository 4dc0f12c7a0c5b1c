"""Sets of files that lack one, and logs that lack bytes: what a plan says of them, and what is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import Planted, sound_log

import segreader
from segreader.errors import SegmentGapError
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_broker_log, write_files

INDEXES = ("index", "timeindex", "txnindex")


def offsets(scan: segreader.Scan | segreader.LiveScan) -> list[int]:
    return [record.offset for record in scan.records()]


def whole(root: Path) -> list[int]:
    planted = Planted(root)
    write_files(root, planted.files)
    return offsets(segreader.scan(root, isolation_level="read_uncommitted"))


def emptied(root: Path, number: int, *, with_indexes: bool) -> Planted:
    """A log whose objects say nothing of a cleaner, with one of them cut to no byte."""
    planted = Planted(root)
    planted.put(number, "log", b"")
    for kind in INDEXES if with_indexes else ():
        planted.put(number, kind, b"")
    return planted


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("with_indexes", [False, True])
def test_an_empty_log_that_no_cleaner_left_is_a_gap(tmp_path: Path, number: int, with_indexes: bool) -> None:
    expected = whole(tmp_path / "whole")
    planted = emptied(tmp_path / "here", number, with_indexes=with_indexes)
    assert planted.codes_of_both() == {"empty-log" if with_indexes else "truncated-log"}
    with pytest.raises(SegmentGapError, match=r"log is empty, and ") as caught:
        segreader.scan(planted.root).plan()
    assert caught.value.offset == planted.segments[number].base_offset
    scan = segreader.scan(planted.root, on_gap="skip", isolation_level="read_uncommitted")
    first = planted.segments[number].base_offset
    stop = planted.segments[number].next_offset
    assert offsets(scan) == [offset for offset in expected if not first <= offset < stop]
    assert any("is empty, and" in note for note in scan.plan().notes)
    (gap,) = scan.plan().gaps
    assert gap.start == first
    assert gap.stop == (stop if number < 2 or not with_indexes else first + 1)


def test_offsets_beside_an_empty_log_are_read_when_asked_for(tmp_path: Path) -> None:
    planted = emptied(tmp_path, 0, with_indexes=True)
    planted.codes()
    assert offsets(segreader.scan(tmp_path, offsets="30:"))[0] == 30


def test_a_log_that_is_lost_beside_an_empty_one_is_a_gap_of_both(tmp_path: Path) -> None:
    planted = Planted(tmp_path, sound_log(4))
    planted.put(0, "log", b"")
    planted.remove(1, "log")
    write_files(tmp_path, planted.files)
    with pytest.raises(SegmentGapError, match="no segment with 0 to 60"):
        segreader.scan(tmp_path).plan()


def test_an_empty_log_without_other_segments_is_a_gap(tmp_path: Path) -> None:
    planted = Planted(tmp_path, sound_log(1))
    planted.put(0, "log", b"")
    write_files(tmp_path, planted.files)
    with pytest.raises(SegmentGapError, match="is empty, and"):
        segreader.scan(tmp_path).plan()


@pytest.mark.parametrize("number", range(3))
def test_the_cleaner_may_empty_a_log_where_another_one_was_compacted(tmp_path: Path, number: int) -> None:
    segments = [SegmentBuilder(0).batch([b"0", b"1"])]
    segments.append(segments[0].roll().batch([b"2", b"3"]))
    segments.append(segments[1].roll().batch([b"4", b"5"]))
    seen = (number + 1) % 3
    base = segments[seen].base_offset
    empty = segments[seen - 1].roll() if seen else SegmentBuilder(0)
    segments[seen] = empty.batch([b"kept"], last_offset=base + 1)
    planted = Planted(tmp_path, segments)
    for kind in ("log", "index", "timeindex"):
        planted.put(number, kind, b"")
    assert planted.codes_of_both() == set()
    scan = segreader.scan(tmp_path)
    assert offsets(scan) == sorted({0, 1, 2, 3, 4, 5} - {2 * number, 2 * number + 1, 2 * seen + 1})
    assert scan.plan().gaps == ()
    assert [
        note for note in scan.plan().notes if f"offsets {2 * number} to {2 * number + 1} are in no batch" not in note
    ] == []
    planted.put(number, "timeindex", bytes(11) + b"\1")
    assert planted.codes_of_both() == {"truncated-log"}
    with pytest.raises(SegmentGapError, match="timeindex beside it has entries"):
        segreader.scan(tmp_path).plan()


def test_the_empty_log_of_a_broker_that_has_just_rolled_is_no_gap(tmp_path: Path) -> None:
    first = SegmentBuilder(0).batch([b"0"]).batch([b"1"])
    write_broker_log(tmp_path, "orders", [first, first.roll()])
    scan = segreader.scan(tmp_path)
    assert offsets(scan) == [0, 1]
    assert scan.plan().notes == ()


def test_a_set_without_its_log_is_noted_at_either_end(tmp_path: Path) -> None:
    for number, why in ((0, "it is the oldest here"), (2, "its upload goes on or was given up")):
        planted = Planted(tmp_path / str(number))
        planted.remove(number, "log")
        write_files(planted.root, planted.files)
        (note,) = segreader.scan(planted.root).plan().notes
        assert f"the segment at offset {planted.segments[number].base_offset} has no log; not read: {why}" in note


def test_a_first_segment_without_its_snapshot_is_read_where_its_log_is_whole(tmp_path: Path) -> None:
    expected = whole(tmp_path / "whole")
    planted = Planted(tmp_path / "here")
    planted.remove(0, "snapshot")
    write_files(planted.root, planted.files)
    scan = segreader.scan(planted.root, isolation_level="read_uncommitted")
    assert offsets(scan) == expected
    (note,) = scan.plan().notes
    assert "the segment has no snapshot; read without, for its log is whole" in note
    planted.put(0, "log", planted.data(0, "log")[:-10])
    write_files(planted.root, planted.files)
    scan = segreader.scan(planted.root, isolation_level="read_uncommitted")
    assert offsets(scan) == [offset for offset in expected if offset >= 30]
    (note,) = scan.plan().notes
    assert "has no snapshot; not read: it is the oldest here" in note


def test_a_first_segment_that_lacks_more_than_its_snapshot_was_given_up(tmp_path: Path) -> None:
    """What was uploaded in its place may have been read, and deleted by retention."""
    expected = whole(tmp_path / "whole")
    planted = Planted(tmp_path / "here")
    planted.remove(0, "snapshot")
    planted.remove(0, "leader_epoch_checkpoint")
    write_files(planted.root, planted.files)
    scan = segreader.scan(planted.root, isolation_level="read_uncommitted")
    assert offsets(scan) == [offset for offset in expected if offset >= 30]
    (note,) = scan.plan().notes
    assert "has no snapshot and no leader_epoch_checkpoint; not read: it is the oldest here" in note


def test_an_unfinished_upload_is_a_note_and_a_repeated_one_is_none(tmp_path: Path) -> None:
    planted = Planted(tmp_path)
    planted.remove(2, "snapshot")
    write_files(tmp_path, planted.files)
    scan = segreader.scan(tmp_path)
    assert offsets(scan)[-1] < 61
    (note,) = scan.plan().notes
    assert "the segment at offset 61 has no snapshot; not read: its upload goes on" in note
    again = Planted(tmp_path / "again")
    log = again.name(2, "log")
    again.files[log[:-26] + "B" * 22 + ".log"] = again.files[log]
    write_files(again.root, again.files)
    assert segreader.scan(again.root).plan().notes == ()


def test_an_unfinished_set_behind_the_only_segment_is_noted(tmp_path: Path) -> None:
    planted = Planted(tmp_path, sound_log(2))
    planted.remove(1, "snapshot")
    write_files(tmp_path, planted.files)
    plan = segreader.scan(tmp_path, isolation_level="read_uncommitted").plan()
    assert [note for note in plan.notes if "has no snapshot" in note]


def test_a_log_directory_without_its_first_or_newest_log_says_so(tmp_path: Path) -> None:
    for number in range(2):
        place = write_broker_log(tmp_path / str(number), "orders", sound_log())
        log = sorted(place.glob("*.log"))[-number]
        log.unlink()
        (note,) = segreader.scan(tmp_path / str(number)).plan().notes
        assert f"the segment at offset {int(log.stem)} has no log; not read" in note
