"""``segreader cat`` over buckets that lost or cut objects: what it prints, what it says, and how it exits."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import Planted, Told

from segreader.cli.main import main
from segreader.format.batch import check_common
from segreader.scans import Scan
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_files


class Cat:
    """Runs the command in this process; the records are only counted."""

    def __init__(self, captured: pytest.CaptureFixture[bytes]) -> None:
        self._captured = captured

    def __call__(self, planted: Planted, *options: str) -> tuple[int, int, str]:
        write_files(planted.root, planted.files)
        code = main(["cat", str(planted.root), *options])
        out, err = self._captured.readouterr()
        return int(code), len(out.splitlines()), err.decode()


@pytest.fixture
def cat(capsysbinary: pytest.CaptureFixture[bytes]) -> Cat:
    return Cat(capsysbinary)


def test_cat_ends_with_an_error_where_a_log_is_empty(tmp_path: Path, cat: Cat) -> None:
    planted = Planted(tmp_path)
    planted.put(2, "log", b"")
    code, count, err = cat(planted)
    assert (code, count) == (5, 0)
    assert "offsets of orders-0 are missing; found no segment with 61 to 91" in err
    assert ".log is empty, and " in err
    code, count, err = cat(planted, "--on-gap", "skip")
    assert (code, count > 0) == (1, True)
    assert "offsets from 61 on are missing" in err


def test_cat_closes_what_it_opened_also_after_an_error(
    tmp_path: Path, cat: Cat, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Scan] = []
    monkeypatch.setattr(Scan, "close", lambda scan: closed.append(scan))
    planted = Planted(tmp_path)
    cat(planted)
    assert len(closed) == 1
    planted.put(2, "log", b"")
    assert cat(planted)[0] == 5
    assert len(closed) == 2


@pytest.mark.parametrize("number", [0, 2])
def test_cat_says_which_sets_lack_their_log(tmp_path: Path, cat: Cat, number: int) -> None:
    planted = Planted(tmp_path)
    planted.remove(number, "log")
    code, count, err = cat(planted)
    assert (code, count > 0) == (0, True)
    assert f"the segment at offset {61 if number else 0} has no log; not read" in err


def test_cat_reads_a_first_segment_that_lacks_its_snapshot(tmp_path: Path, cat: Cat) -> None:
    expected = cat(Planted(tmp_path / "whole"))[1]
    planted = Planted(tmp_path / "here")
    planted.remove(0, "snapshot")
    code, count, err = cat(planted)
    assert (code, count) == (0, expected)
    assert "read without, for its log is whole" in err


def test_cat_ends_with_an_error_behind_what_a_cut_log_has(tmp_path: Path, cat: Cat) -> None:
    planted = Planted(tmp_path)
    log = bytes(planted.data(2, "log"))
    position = last = 0
    while position < len(log):
        last = position
        position += check_common(log, position)[1]
    planted.put(2, "log", log[:last])
    code, count, err = cat(planted)
    assert (code, count) == (5, 80)
    assert "the log ends before an offset that a file beside it names" in err
    code, count, err = cat(planted, "--on-corrupt", "skip")
    assert (code, count) == (1, 80)
    assert "the log ends before an offset that a file beside it names" in err


def test_cat_refuses_a_batch_at_an_offset_that_the_time_index_contradicts(tmp_path: Path, cat: Cat) -> None:
    planted = Planted(tmp_path, [SegmentBuilder(0).batch([b"a", b"b"])])
    log = planted.data(0, "log")
    log[7] ^= 4
    planted.put(0, "log", log)
    code, count, err = cat(planted)
    assert (code, count) == (5, 0)
    assert "a batch's offsets cannot be; found offsets 4 to 5" in err
    assert "expected a batch with offset 1, which the time index names" in err


def test_cat_says_what_is_wrong_with_an_offset_index(tmp_path: Path, cat: Cat) -> None:
    planted = Planted(tmp_path)
    whole = cat(planted)[1]
    planted.put(1, "index", planted.data(1, "index") * 2)
    code, count, err = cat(planted)
    assert (code, count) == (0, whole)
    assert "an offset index has entries that do not increase" in err
    assert planted.name(1, "index") in err


def test_cat_ends_with_an_error_where_the_metadata_topic_counts_more_bytes(tmp_path: Path, cat: Cat) -> None:
    told = Told(tmp_path)
    assert cat(told.planted, "--metadata", str(told.write_metadata()))[0] == 0
    told.planted.put(2, "log", b"")
    options = ("--metadata", str(told.write_metadata()))
    code, count, err = cat(told.planted, *options)
    assert (code, count) == (5, 0)
    assert "found no segment with 61 to 91" in err
    code, count, err = cat(told.planted, "--on-gap", "skip", *options)
    assert (code, count > 0) == (1, True)
    assert "bytes, and" in err


def test_damage_that_leaves_out_no_batch_is_a_finding_if_it_is_skipped(tmp_path: Path, cat: Cat) -> None:
    planted = Planted(tmp_path)
    index = planted.data(2, "index")
    for at in range(0, len(index), 8):
        index[at : at + 4] = (int.from_bytes(index[at : at + 4], "big") + 1).to_bytes(4, "big")
    planted.put(2, "index", index)
    code, count, err = cat(planted, "--offsets", "70:80")
    assert (code, count) == (5, 0)
    assert "the offset index and the batches to which it leads say other offsets" in err
    code, count, err = cat(planted, "--offsets", "70:80", "--on-corrupt", "skip")
    assert (code, count) == (1, 10)
    assert "the offset index and the batches to which it leads say other offsets" in err
