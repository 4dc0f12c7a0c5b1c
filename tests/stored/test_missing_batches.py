"""Offsets that no batch has, or that a file says no segment has: what reading says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from planted import Planted, sound_log

import segreader
from segreader.live.scan import LiveScan
from segreader.scans import Scan
from segreader.testing.aiven import aiven_files
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_files
from segreader.testing.records import ProducerRecord

LEVELS = ("read_committed", "read_uncommitted")


def notes_of(scan: Scan | LiveScan) -> list[str]:
    for _ in scan.records():
        pass
    return scan.metrics.notes


@pytest.mark.parametrize("split_bytes", [1, 1 << 30])
def test_a_batch_that_was_cut_out_of_a_log_is_noted(tmp_path: Path, split_bytes: int) -> None:
    planted = Planted(tmp_path, [SegmentBuilder(0).batch([b"a"]).batch([b"b", b"c"]).batch([b"d"])])
    first, second = planted.segments[0].batch_positions[1:]
    data = planted.data(0, "log")
    planted.put(0, "log", data[:first] + data[second:])
    write_files(planted.root, planted.files)
    for level in LEVELS:
        (note,) = notes_of(segreader.scan(tmp_path, isolation_level=level, split_bytes=split_bytes))
        assert "offsets 1 to 2 are in no batch of the log" in note
        assert planted.name(0, "log") in note
    assert notes_of(segreader.scan(tmp_path, offsets="0:1")) == []


def test_offsets_that_the_cleaner_took_are_not_noted(tmp_path: Path) -> None:
    segment = SegmentBuilder(0).batch([b"a"]).skip(2).batch([b"d"], last_offset=5).batch([b"e"])
    write_files(tmp_path, Planted(tmp_path, [segment]).files)
    for level in LEVELS:
        assert notes_of(segreader.scan(tmp_path, isolation_level=level)) == []


def test_a_later_log_that_was_cleaned_takes_the_notes_back(tmp_path: Path) -> None:
    first = SegmentBuilder(0).batch([b"a"]).skip(2).batch([b"b"])
    write_files(tmp_path, Planted(tmp_path, [first, first.roll().batch([b"d"], last_offset=9)]).files)
    assert len(notes_of(segreader.scan(tmp_path, offsets="0:4"))) == 1
    assert notes_of(segreader.scan(tmp_path)) == []


def test_many_logs_that_jump_are_four_notes(tmp_path: Path) -> None:
    segments = [SegmentBuilder(0)]
    for _ in range(8):
        segments[-1].batch([b"a"]).skip(1).batch([b"b"])
        segments.append(segments[-1].roll())
    write_files(tmp_path, Planted(tmp_path, segments[:-1]).files)
    notes = notes_of(segreader.scan(tmp_path))
    assert len(notes) == 4
    assert notes[-1] == "orders-0: more logs jump over offsets like that"


@pytest.mark.parametrize("level", LEVELS)
def test_offsets_below_a_checkpoint_that_begins_too_late_are_noted(tmp_path: Path, level: str) -> None:
    planted = Planted(tmp_path, sound_log(1))
    planted.put(0, "leader_epoch_checkpoint", planted.data(0, "leader_epoch_checkpoint").replace(b"0 0", b"0 3"))
    write_files(planted.root, planted.files)
    scan = segreader.scan(tmp_path, isolation_level=level)
    assert next(iter(scan.records())).offset == 3
    (note,) = scan.plan().notes
    assert "orders-0: offsets 0 to 2 are here and are not read" in note
    assert planted.name(0, "leader_epoch_checkpoint") in note


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("more", [1, 1000])
def test_a_manifest_that_claims_offsets_of_the_next_segment_hides_none(tmp_path: Path, more: int, level: str) -> None:
    first = SegmentBuilder(0).batch([b"a", b"b"])
    files = dict(aiven_files("orders", [first, first.roll().batch([ProducerRecord(b"c")]).batch([b"d"])]))
    name = min(name for name in files if name.endswith(".rsm-manifest"))
    manifest = json.loads(files[name])
    manifest["remoteLogSegmentMetadata"]["endOffset"] += more
    files[name] = json.dumps(manifest).encode()
    write_files(tmp_path, files)
    for wanted, expected in ((None, [0, 1, 2, 3]), ("2:3", [2])):
        scan = segreader.scan(tmp_path, isolation_level=level, offsets=wanted)
        assert [record.offset for record in scan.records()] == expected
        assert [note for note in scan.plan().notes if f"and the catalogue has {1 + more}" in note]


def test_offsets_between_segments_of_a_compacted_log_are_one_note(tmp_path: Path) -> None:
    segments = [SegmentBuilder(0).batch([b"a"], last_offset=3)]
    for _ in range(3):
        segments.append(segments[-1].skip(2).roll().batch([b"b"], last_offset=segments[-1].next_offset + 5))
    planted = Planted(tmp_path, segments)
    write_files(planted.root, planted.files)
    (note,) = segreader.scan(tmp_path).plan().notes
    assert note.startswith("orders-0: between segments, offsets 4 to 5, 12 to 13, 20 to 21 are in no batch")
    assert "(--metadata)" in note
