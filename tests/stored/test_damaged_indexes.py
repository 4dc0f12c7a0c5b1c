"""Offset indexes that contradict themselves or their logs: they take no record away, and a plan says what is wrong."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from planted import Planted, sound_log

import segreader
from segreader.errors import CorruptIndexError
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_files

LEVELS = ("read_committed", "read_uncommitted")


def packed(rows: list[tuple[int, int]]) -> bytes:
    return b"".join(struct.pack(">ii", *row) for row in rows)


def changed(data: bytes, kind: str) -> bytes:
    """An offset index with one defect."""
    rows: list[tuple[int, int]] = list(struct.iter_unpack(">ii", data))
    offset, position = rows[-1]
    match kind:
        case "cut":
            return data[:-3]
        case "doubled":
            return data + data
        case "not rising":
            return packed([*rows[:2], rows[0], *rows[3:]])
        case "beyond the log":
            return packed([*rows, (offset + 1, 1 << 20)])
        case "inside a batch":
            return packed([*rows[:-1], (offset, position + 1)])
        case "last offset too small":
            return packed([*rows[:-1], (offset - 1, position)])
        case _:
            return packed([*rows[:-1], (offset + 50, position)])


KINDS = {
    "cut": "cut-offset-index",
    "doubled": "offset-index-not-rising",
    "not rising": "offset-index-not-rising",
    "beyond the log": "index-beyond-log",
    "inside a batch": "index-not-at-batch",
}


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_what_verify_says_of_an_offset_index_is_a_note_of_the_plan(tmp_path: Path, number: int, kind: str) -> None:
    sound = Planted(tmp_path / "sound")
    write_files(sound.root, sound.files)
    planted = Planted(tmp_path / "here")
    planted.put(number, "index", changed(bytes(planted.data(number, "index")), kind))
    (finding,) = (one for one in planted.find() if one.severity.value == "error")
    assert finding.code.value == KINDS[kind]
    for level in LEVELS:
        scan = segreader.scan(planted.root, isolation_level=level)
        (note,) = scan.plan().notes
        assert finding.explanation in note
        assert planted.name(number, "index") in note
        whole = segreader.scan(sound.root, isolation_level=level)
        assert [r.offset for r in scan.records()] == [r.offset for r in whole.records()]


@pytest.mark.parametrize("number", range(3))
def test_an_index_that_names_an_offset_beyond_a_sound_log_is_noted(tmp_path: Path, number: int) -> None:
    planted = Planted(tmp_path)
    planted.put(number, "index", changed(bytes(planted.data(number, "index")), "last offset too large"))
    write_files(planted.root, planted.files)
    (note,) = segreader.scan(tmp_path).plan().notes
    assert "an offset index has another offset than the last one of the batch at its position" in note


def test_a_damaged_index_of_a_range_is_noted_once(tmp_path: Path) -> None:
    planted = Planted(tmp_path)
    planted.put(1, "index", changed(bytes(planted.data(1, "index")), "not rising"))
    write_files(planted.root, planted.files)
    (note,) = segreader.scan(tmp_path, offsets="25:27", split_bytes=1).plan().notes
    assert "an offset index has entries that do not increase" in note


def test_many_damaged_indexes_of_a_partition_are_four_notes(tmp_path: Path) -> None:
    planted = Planted(tmp_path, sound_log(9))
    for number in range(9):
        planted.put(number, "index", changed(bytes(planted.data(number, "index")), "doubled"))
    write_files(planted.root, planted.files)
    notes = segreader.scan(tmp_path).plan().notes
    assert len(notes) == 4
    assert notes[-1] == "6 more objects here have such defects: segreader verify names them"


def test_the_log_of_another_partition_is_noted_by_the_index_beside_it(tmp_path: Path) -> None:
    planted = Planted(tmp_path)
    other = SegmentBuilder(0)
    for _ in range(planted.segments[1].base_offset):
        other.batch([b"z" * 90])
    planted.put(0, "log", Planted(tmp_path, [other]).data(0, "log"))
    write_files(planted.root, planted.files)
    note, more = segreader.scan(tmp_path, isolation_level="read_uncommitted").plan().notes
    assert "an offset index points to a byte where no batch starts" in note
    assert "more of this kind" in more
    assert planted.name(0, "index") in note


@pytest.mark.parametrize("level", LEVELS)
def test_an_index_entry_with_a_later_offset_takes_no_record_from_a_range(tmp_path: Path, level: str) -> None:
    log = SegmentBuilder(0, index_interval_bytes=100)
    for _ in range(12):
        log.batch([b"x" * 40, b"y" * 40])
    sound = Planted(tmp_path / "sound", [log])
    write_files(sound.root, sound.files)
    rows: list[tuple[int, int]] = list(struct.iter_unpack(">ii", bytes(sound.data(0, "index"))))
    for number, (offset, position) in enumerate(rows[:-1]):
        planted = Planted(tmp_path / str(number), [log])
        planted.put(0, "index", packed([*rows[:number], (offset + 1, position), *rows[number + 1 :]]))
        write_files(planted.root, planted.files)
        scan = segreader.scan(planted.root, offsets=f"0:{offset + 2}", isolation_level=level)
        with pytest.raises(CorruptIndexError, match=f"expected a batch with offset {offset + 1} ") as caught:
            list(scan.records())
        assert (caught.value.source or "").endswith(".index")
        passed = segreader.scan(planted.root, offsets=f"0:{offset + 2}", isolation_level=level, on_corrupt="skip")
        assert [record.offset for record in passed.records()] == list(range(offset + 1))
        assert any("ends a range too early" in note for note in passed.metrics.notes)
