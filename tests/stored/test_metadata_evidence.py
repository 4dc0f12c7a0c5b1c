"""What the metadata topic says of objects counts against objects that are missing, empty or short."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from corpus import case, normal
from planted import FINISHED, Told

import segreader
from segreader.errors import CorruptIndexError, ObjectChangedError, SegmentGapError, TruncatedError
from segreader.evidence.rules import Code
from segreader.format.batch import check_common
from segreader.stored.source import Catalog, LocationSource
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_files
from segreader.verify.verify import verify


def scan_of(told: Told, **options: str) -> segreader.Scan:
    write_files(told.planted.root, told.planted.files)
    scan = segreader.scan(told.planted.root, metadata=told.write_metadata(), **options)  # type: ignore[arg-type]
    assert isinstance(scan, segreader.Scan)
    return scan


def offsets(scan: segreader.Scan | segreader.LiveScan) -> list[int]:
    return [record.offset for record in scan.records()]


def before_the_last_batch(log: bytes) -> bytes:
    position = last = 0
    while position < len(log):
        last = position
        position += check_common(log, position)[1]
    return log[:last]


@pytest.mark.parametrize("number", range(3))
def test_a_log_without_the_bytes_that_the_metadata_counts_is_a_gap(tmp_path: Path, number: int) -> None:
    told = Told(tmp_path)
    segment = told.planted.segments[number]
    for log, start in (
        (b"", segment.base_offset),
        (before_the_last_batch(segment.to_bytes()), segment.next_offset - 2),
    ):
        told.planted.put(number, "log", log)
        assert "log-too-short" in told.codes()
        with pytest.raises(SegmentGapError, match=f"no segment with {start} to {segment.next_offset - 1}") as caught:
            scan_of(told).plan()
        assert caught.value.offset == start
        scan = scan_of(told, on_gap="skip", isolation_level="read_uncommitted")
        read = offsets(scan)
        (gap,) = scan.plan().gaps
        assert (gap.start, gap.stop) == (start, segment.next_offset)
        assert not [offset for offset in read if gap.start <= offset < gap.stop]
        assert max([offset for offset in read if offset < start], default=-1) >= start - 2  # a marker may stand between
        assert any("bytes, and" in note for note in scan.plan().notes)
        with pytest.raises(ObjectChangedError, match="is not the one that was listed"):
            offsets(scan_of(told, segments_from="metadata"))


def test_a_log_that_the_metadata_calls_longer_is_read_up_to_its_cut(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.planted.put(2, "log", told.planted.data(2, "log")[:-5])
    scan = scan_of(told, isolation_level="read_uncommitted")
    read = []
    with pytest.raises(TruncatedError):
        for record in scan.records():
            read.append(record.offset)
    assert read[-1] == 88


def test_a_segment_that_the_metadata_calls_empty_is_the_cleaners(tmp_path: Path) -> None:
    segments = [SegmentBuilder(0).batch([b"0", b"1"])]
    segments.append(segments[0].roll())
    segments[1].next_offset = 4
    segments.append(segments[1].roll().batch([b"4"]))
    told = Told(tmp_path, segments=segments)
    assert told.codes() == set()
    assert offsets(scan_of(told)) == [0, 1, 4]
    assert scan_of(told).plan().notes == ()


def test_a_finished_segment_that_lacks_its_snapshot_is_read(tmp_path: Path) -> None:
    told = Told(tmp_path)
    expected = offsets(scan_of(told))
    for number in range(3):
        told = Told(tmp_path / str(number))
        told.planted.remove(number, "snapshot")
        scan = scan_of(told)
        assert offsets(scan) == expected
        assert any("its .snapshot, which is written last, is not there" in note for note in scan.plan().notes)


def calm_log() -> list[SegmentBuilder]:
    """Nothing is aborted in the first segment; in each of the others something is that has its data there, too."""
    first = SegmentBuilder(0).batch([b"0"]).batch([b"1"])
    second = first.roll().batch([b"2"], producer_id=7, transactional=True).marker(7, abort=True)
    return [first, second, second.roll().batch([b"4"], producer_id=7, transactional=True).marker(7, abort=True)]


@pytest.mark.parametrize("segments_from", ["both", "metadata"])
@pytest.mark.parametrize("is_empty", [False, True])
def test_a_transaction_index_that_has_rows_by_the_metadata_must_have_them(
    tmp_path: Path, segments_from: str, is_empty: bool
) -> None:
    told = Told(tmp_path, segments=calm_log(), calls_empty=True)
    assert told.codes() == set()
    assert offsets(scan_of(told, segments_from=segments_from)) == [0, 1]
    if is_empty:
        told.planted.put(2, "txnindex", b"")
    else:
        told.planted.remove(2, "txnindex")
        (told.planted.root / told.planted.name(2, "log")).with_suffix(".txnindex").unlink()
    assert told.codes() == {"missing-transaction-index"}
    with pytest.raises(
        CorruptIndexError, match="a transaction index that has rows according to the metadata topic"
    ) as caught:
        scan_of(told, segments_from=segments_from).plan()
    assert str(caught.value.source).endswith(".txnindex")
    assert offsets(scan_of(told, segments_from=segments_from, isolation_level="read_uncommitted")) == [0, 1, 2, 4]


def test_metadata_of_brokers_that_never_call_an_index_empty_proves_nothing(tmp_path: Path) -> None:
    told = Told(tmp_path, segments=calm_log())
    told.planted.remove(2, "txnindex")
    assert scan_of(told).plan().notes == ()
    assert told.planted.codes(catalog=Catalog(metadata=told.write_metadata())) == set()


def test_an_index_of_which_the_metadata_knows_nothing_is_noted(tmp_path: Path) -> None:
    told = Told(tmp_path, (FINISHED, FINISHED, FINISHED), segments=calm_log(), calls_empty=True)
    told.planted.files[told.planted.name(0, "log")[:-3] + "txnindex"] = bytes(told.planted.data(1, "txnindex"))
    scan = scan_of(told)
    assert offsets(scan) == [0, 1]
    (note,) = scan.plan().notes
    assert "by the metadata topic there is no such index; read without it" in note


DIVERGED = case("cluster", "diverged-mid")
DIVERGED_BASES = (0, 15, 47)


@pytest.mark.parametrize("bases", [(0,), (15,), (47,), (15, 47), DIVERGED_BASES], ids=str)
@pytest.mark.parametrize("is_gone", [False, True])
def test_epochs_that_the_metadata_states_count_without_their_checkpoint(
    tmp_path: Path, bases: tuple[int, ...], is_gone: bool
) -> None:
    (remote,) = DIVERGED.remote
    shutil.copytree(remote, tmp_path / remote.name)
    for base in bases:
        (name,) = (tmp_path / remote.name).glob(f"{base:020d}-*.leader_epoch_checkpoint")
        if is_gone:
            name.unlink()
        else:
            name.write_bytes(b"")
    metadata = DIVERGED.root / "metadata"

    scan = segreader.scan(tmp_path, topic=DIVERGED.topic, metadata=metadata, isolation_level="read_uncommitted")
    source = LocationSource(str(tmp_path), catalog=Catalog(metadata=metadata))
    findings = list(verify(source, topic=DIVERGED.topic))

    assert [normal(record) for record in scan.records()] == DIVERGED.truth()
    assert any("has the leader epochs" in note for note in scan.plan().notes) == (
        47 in bases and bases != DIVERGED_BASES
    )
    assert [one.offset for one in findings if one.code is Code.DIVERGED_OFFSETS] == [15, 47]


def test_a_newest_segment_of_which_only_the_metadata_knows_is_a_gap(tmp_path: Path) -> None:
    (remote,) = DIVERGED.remote
    shutil.copytree(remote, tmp_path / remote.name, ignore=lambda _, names: [one for one in names if "047-" in one])

    with pytest.raises(SegmentGapError, match="no segment with 47 to 63"):
        segreader.scan(tmp_path, topic=DIVERGED.topic, metadata=DIVERGED.root / "metadata").plan()
