"""Where a read looks: one place or several, in one layout or another."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from corpus import CORPUS
from spark_rows import read_offsets, read_table, split_partitions

from segreader.errors import AmbiguousTopicError, ObjectNotFoundError, OptionError, SegreaderError, UnknownLayoutError
from segreader.spark.columns import RAW_NAMES
from segreader.spark.options import parse_options
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_broker_log, write_local_tiered


def several(*paths: Path) -> str:
    return json.dumps([str(path) for path in paths])


@pytest.fixture
def halves(tmp_path: Path) -> tuple[Path, Path]:
    """Topic ``t``, whose segments lie in two places: offsets 0 to 19 in the first, 20 to 39 in the second."""
    first = SegmentBuilder().batch([b"a"] * 20)
    write_local_tiered(tmp_path / "old", "t", [first])
    write_local_tiered(tmp_path / "new", "t", [first.roll().batch([b"b"] * 20)])
    return tmp_path / "old", tmp_path / "new"


def test_several_locations_are_read_as_one(halves: tuple[Path, Path]) -> None:
    write_local_tiered(halves[1], "t", [SegmentBuilder().batch([b"c"] * 5)], partition=1)
    table = read_table(several(*halves), ("partition", "offset", "value"), subscribe="t")
    rows = sorted((row["partition"], row["offset"], row["value"]) for row in table.to_pylist())

    assert rows == [(0, n, b"a" if n < 20 else b"b") for n in range(40)] + [(1, n, b"c") for n in range(5)]


def test_a_segment_that_lies_in_two_locations_is_read_once(halves: tuple[Path, Path]) -> None:
    shutil.copytree(halves[0], halves[1], dirs_exist_ok=True)
    assert read_offsets(several(*halves), subscribe="t") == list(range(40))


def test_a_topic_may_lie_in_one_of_several_locations(halves: tuple[Path, Path], tmp_path: Path) -> None:
    write_local_tiered(halves[1], "other", [SegmentBuilder().batch([b"c"] * 5)])
    assert len(read_offsets(several(*halves), subscribe="t,other")) == 45
    assert len(read_offsets(several(*halves), subscribePattern="o.*")) == 5
    with pytest.raises(ObjectNotFoundError, match=r"topic 'nope' is not here; found other, t"):
        read_offsets(several(*halves), subscribe="nope")
    with pytest.raises(UnknownLayoutError):
        (tmp_path / "empty").mkdir()
        read_offsets(several(*halves, tmp_path / "empty"), subscribe="t")


def test_a_directory_above_may_bear_a_name_as_a_partitions(tmp_path: Path) -> None:
    write_broker_log(tmp_path / "backup-7", "t", [SegmentBuilder().batch([b"v"] * 3)])
    assert read_offsets(tmp_path, subscribe="t") == [0, 1, 2]


def test_one_name_with_two_ids_in_two_locations_is_an_error(halves: tuple[Path, Path], tmp_path: Path) -> None:
    write_local_tiered(tmp_path / "again", "t", [SegmentBuilder().batch([b"c"])], topic_id="A" * 22)
    with pytest.raises(AmbiguousTopicError, match=f"found {'A' * 22} and"):
        read_offsets(several(*halves, tmp_path / "again"), subscribe="t")


def test_a_layout_that_is_told_is_the_only_one_tried(tmp_path: Path) -> None:
    write_broker_log(tmp_path, "t", [SegmentBuilder().batch([b"v"] * 3)])

    assert read_offsets(tmp_path, subscribe="t", layout="log-directory") == [0, 1, 2]
    with pytest.raises(UnknownLayoutError, match="local-tiered"):
        read_offsets(tmp_path, subscribe="t", layout="local-tiered")
    with pytest.raises(OptionError, match="layout"):
        read_offsets(tmp_path, subscribe="t", layout="no-such-layout")


def test_keys_are_read_from_the_brokers_properties(tmp_path: Path) -> None:
    with pytest.raises(SegreaderError, match="no-such-file"):
        read_offsets(CORPUS / "tv2" / "remote", subscribe="nulls", rsmConfig=str(tmp_path / "no-such-file"))


def test_a_segment_that_vanished_is_passed_over_and_told_if_loss_may_be(
    halves: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    from segreader.spark.batch import SegmentReader

    options = parse_options({"location": several(*halves), "subscribe": "t", "failOnDataLoss": "false"})
    reader = SegmentReader(options, ("offset",))
    planned = reader.partitions()
    next(halves[0].rglob("*.log")).unlink()
    rows = [offset for one in planned for batch in reader.read(one) for offset in batch["offset"].to_pylist()]

    assert sorted(rows) == list(range(20, 40))
    assert "t-0: offsets 0 to 19 are passed over" in caplog.text


def test_raw_columns_say_what_batch_a_record_is_in(tmp_path: Path) -> None:
    segment = SegmentBuilder(leader_epoch=3).batch([b"v"] * 2)
    segment.batch([b"w"] * 2, producer_id=7, producer_epoch=1, transactional=True).marker(7)
    write_local_tiered(tmp_path, "t", [segment])
    rows = read_table(tmp_path, ("offset", *RAW_NAMES), subscribe="t").to_pylist()
    none = {"leaderEpoch": 3, "compression": "none"}
    plain = none | {"baseOffset": 0, "producerId": None, "producerEpoch": None, "isTransactional": False, "position": 0}
    second = {"baseOffset": 2, "producerId": 7, "producerEpoch": 1, "isTransactional": True}

    assert rows[1] == {"offset": 1, "sequence": None} | plain
    assert rows[3] == {"offset": 3, "sequence": 1} | none | second | {"position": segment.batch_positions[1]}


def test_without_checksums_a_flipped_bit_is_delivered(tmp_path: Path) -> None:
    directory = write_local_tiered(tmp_path, "t", [SegmentBuilder().batch([b"v"])])
    log = next(directory.glob("*.log"))
    data = bytearray(log.read_bytes())
    data[data.rindex(b"v")] = ord("w")
    log.write_bytes(data)

    with pytest.raises(SegreaderError, match=r"CRC.*base offset 0"):
        read_offsets(tmp_path, subscribe="t")
    assert read_table(tmp_path, ("value",), subscribe="t", verify="none")["value"].to_pylist() == [b"w"]


def test_a_read_budget_is_kept(halves: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("segreader.spark.batch.time.sleep", slept.append)
    size = sum(one.split.positions.size for one in split_partitions(halves[0], subscribe="t"))
    read_offsets(halves[0], subscribe="t", readBudget=str(size // 4))

    assert sum(slept) == pytest.approx(4, abs=0.5)
