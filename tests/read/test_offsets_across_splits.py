"""Base offsets that are wrong where a segment is cut into splits: seen whether these are read together or apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import Planted, sound_log

import segreader
from segreader.errors import FormatError
from segreader.read.options import ReadOptions
from segreader.read.split_reader import read_split
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_files


def every_batch_indexed() -> SegmentBuilder:
    """Batches of five records, with an index entry for each."""
    segment = SegmentBuilder(0, index_interval_bytes=1)
    for _ in range(8):
        segment.batch([b"x" * 20] * 5)
    return segment


def planted(root: Path, shift: int, batch: int) -> Planted:
    one = Planted(root, [every_batch_indexed()])
    data = one.data(0, "log")
    at = one.segments[0].batch_positions[batch]
    data[at : at + 8] = (int.from_bytes(data[at : at + 8], "big") + shift).to_bytes(8, "big")
    one.put(0, "log", data)
    write_files(one.root, one.files)
    return one


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("shift", [-4, -1, 1, 4])
@pytest.mark.parametrize("batch", range(1, 8))
def test_a_shifted_batch_is_refused_in_splits_of_one_batch(tmp_path: Path, batch: int, shift: int, apart: bool) -> None:
    one = planted(tmp_path, shift, batch)
    scan = segreader.scan(one.root, split_bytes=1)
    seen: list[int] = []
    with pytest.raises(FormatError) as caught:
        if not apart:
            seen += [record.offset for record in scan.records()]
        else:
            for split in scan.plan().splits:
                for rows in read_split(split, scan.store, ReadOptions()):
                    seen += rows.column("offset").to_pylist()
    assert caught.value.source is not None
    assert seen == list(range(len(seen)))


@pytest.mark.parametrize("apart", [False, True])
def test_splits_of_sound_segments_are_read_alike_together_and_apart(tmp_path: Path, apart: bool) -> None:
    one = Planted(tmp_path, sound_log(3))
    write_files(one.root, one.files)
    scan = segreader.scan(one.root, split_bytes=1, isolation_level="read_uncommitted")
    whole = [r.offset for r in segreader.scan(one.root, isolation_level="read_uncommitted").records()]
    if not apart:
        assert [r.offset for r in scan.records()] == whole
    else:
        rows = [rows for split in scan.plan().splits for rows in read_split(split, scan.store, ReadOptions())]
        assert [offset for some in rows for offset in some.column("offset").to_pylist()] == whole


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_a_batch_farther_above_its_segment_than_an_index_reaches_is_damage(tmp_path: Path, level: str) -> None:
    one = Planted(tmp_path, [SegmentBuilder(7).batch([b"a"]).batch([b"b"])])
    data = one.data(0, "log")
    at = one.segments[0].batch_positions[1]
    data[at : at + 8] = (8 + (1 << 31)).to_bytes(8, "big")
    one.put(0, "log", data)
    for kind in ("index", "timeindex"):
        one.put(0, kind, b"")
    assert one.codes_of_both() >= {"batch-outside-segment"}
    with pytest.raises(FormatError, match=r"no segment from 7 on reaches farther"):
        list(segreader.scan(one.root, isolation_level=level).records())
