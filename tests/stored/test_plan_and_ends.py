"""What is decided before anything is read: lineage, gaps, ends, and what is given beside a location."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from corpus import cases, normal
from loading import from_log_start, truth_of

import segreader
from segreader.errors import CorruptBatchError, CorruptIndexError, ObjectNotFoundError, OptionError, SegmentGapError
from segreader.format.scanner import Batch
from segreader.plan.lineage import DropReason
from segreader.plan.split import EndReason
from segreader.segment import Segment, SegmentFiles, TopicIdPartition
from segreader.storage.base import ObjectStore
from segreader.stored import lineage
from segreader.stored.segment_ends import read_batches_at, with_ends
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import local_tiered_files, write_broker_log, write_local_tiered
from segreader.testing.stores import MemoryStore


def offsets(scan: segreader.Scan | segreader.LiveScan) -> list[int]:
    return [record.offset for record in scan.records()]


def three_segments() -> list[SegmentBuilder]:
    first = SegmentBuilder(0).batch([b"0", b"1"]).batch([b"2", b"3"])
    second = first.roll().batch([b"4", b"5"])
    return [first, second, second.roll().batch([b"6", b"7"])]


def without(place: Path, base: int, *kinds: str) -> None:
    for kind in kinds or ("*",):
        for file in place.glob(f"{base:020d}-*.{kind}"):
            file.unlink()


def uploaded_at_once(place: Path) -> None:
    """Leave nothing in the times of the files that tells which segment is the newest."""
    for file in place.iterdir():
        os.utime(file, (0, 0))


def test_offsets_that_no_segment_has_are_an_error_before_anything_is_read(tmp_path: Path) -> None:
    without(write_local_tiered(tmp_path, "orders", three_segments()), 4, "log")
    with pytest.raises(SegmentGapError, match="no segment with 4 to 5") as caught:
        segreader.scan(tmp_path).plan()
    assert caught.value.offset == 4
    assert "--on-gap skip" in str(caught.value)
    scan = segreader.scan(tmp_path, on_gap="skip")
    assert offsets(scan) == [0, 1, 2, 3, 6, 7]
    (gap,) = scan.plan().gaps
    assert (gap.start, gap.stop) == (4, 6)
    for bounded in (":4", "6:"):
        assert segreader.scan(tmp_path, offsets=bounded).plan().gaps == ()


def test_report_is_the_earlier_word_for_skip_and_warns_where_it_is_written(tmp_path: Path) -> None:
    without(write_local_tiered(tmp_path, "orders", three_segments()), 4, "log")
    with pytest.warns(DeprecationWarning, match="use on_gap='skip'") as caught:
        scan = segreader.scan(tmp_path, on_gap="report")
    assert [one.filename for one in caught] == [__file__]
    assert offsets(scan) == [0, 1, 2, 3, 6, 7]
    with pytest.raises(OptionError, match=r"unknown on_gap.*expected fail or skip"):
        segreader.scan(tmp_path, on_gap="ignore")


def test_a_transaction_that_is_open_where_a_gap_begins_is_not_shown(tmp_path: Path) -> None:
    first = SegmentBuilder(0).batch([b"0"]).batch([b"?"], producer_id=7, transactional=True).batch([b"2"])
    second = first.roll().marker(7, abort=True)
    third = second.roll().batch([b"4"])
    without(write_local_tiered(tmp_path, "orders", [first, second, third]), 3)
    side_file_only = write_local_tiered(tmp_path / "b", "orders", [first, second, third])
    without(side_file_only, 3, "log", "txnindex")
    scan = segreader.scan(tmp_path / "b", on_gap="skip")
    assert offsets(scan) == [0, 4]
    (gap,) = scan.plan().gaps
    assert (gap.held_back, gap.start, gap.stop) == (1, 3, 4)
    assert offsets(segreader.scan(tmp_path / "b", on_gap="skip", isolation_level="read_uncommitted")) == [0, 1, 2, 4]


def test_a_copy_that_was_uploaded_again_is_read_once_and_the_whole_one_of_both(tmp_path: Path) -> None:
    place = write_local_tiered(tmp_path, "orders", three_segments())
    log = next(place.glob(f"{4:020d}-*.log"))
    for file in place.glob(f"{4:020d}-*"):
        (place / (file.name[:21] + "B" * 22 + file.name[43:])).write_bytes(file.read_bytes())
    (place / (log.name[:21] + "B" * 22 + ".log")).write_bytes(log.read_bytes()[:40])
    scan = segreader.scan(tmp_path)
    assert offsets(scan) == list(range(8))
    assert "B" * 22 not in "".join(split.log for split in scan.plan().splits)


def test_records_of_a_history_that_was_given_up_are_dropped_with_the_reason(tmp_path: Path) -> None:
    old = SegmentBuilder(0).batch([b"0"]).batch([b"1"]).batch([b"dead 2"]).batch([b"dead 3"])
    new = SegmentBuilder(2, leader_epoch=3).batch([b"live 2"]).batch([b"live 3"]).batch([b"4"])
    new.leader_epochs = [*old.leader_epochs, *new.leader_epochs]
    write_local_tiered(tmp_path, "orders", [old, new])
    scan = segreader.scan(tmp_path)
    assert [record.value for record in scan.records()] == [b"0", b"1", b"live 2", b"live 3", b"4"]
    (dropped,) = scan.plan().dropped
    assert (dropped.start, dropped.stop, dropped.reason) == (2, 4, DropReason.DIVERGED)
    assert "its epochs here: 0" in dropped.text


@pytest.mark.parametrize("left", [None, b"", b"0\n0\n"])
def test_a_lost_branch_without_its_checkpoint_stays_lost(left: bytes | None, tmp_path: Path) -> None:
    old = SegmentBuilder(0).batch([b"0"]).batch([b"1"]).batch([b"dead 2"]).batch([b"dead 3"])
    new = SegmentBuilder(2, leader_epoch=3).batch([b"live 2"])
    new.leader_epochs = [*old.leader_epochs, *new.leader_epochs]
    place = write_local_tiered(tmp_path, "orders", [old, new])
    (checkpoint,) = place.glob(f"{0:020d}-*.leader_epoch_checkpoint")
    checkpoint.unlink() if left is None else checkpoint.write_bytes(left)

    scan = segreader.scan(tmp_path)

    assert [record.value for record in scan.records()] == [b"0", b"1", b"live 2"]
    (dropped,) = scan.plan().dropped
    assert (dropped.start, dropped.stop, dropped.reason) == (2, 4, DropReason.DIVERGED)
    no_checkpoint, not_read = scan.plan().notes
    assert (
        no_checkpoint == "orders-0: 1 segment has no sound leader-epoch checkpoint: the epochs come from their batches"
    )
    assert not_read.startswith("orders-0: offsets 3 to 3 are in ")
    assert not_read.endswith("their leader epoch 0 did not write them")


def test_a_false_first_epoch_in_an_old_checkpoint_takes_no_records_away(tmp_path: Path) -> None:
    old = SegmentBuilder(0).batch([b"0"]).batch([b"1"])
    new = SegmentBuilder(2, leader_epoch=2).batch([b"2"])
    new.leader_epochs = [*old.leader_epochs, *new.leader_epochs]
    place = write_local_tiered(tmp_path, "orders", [old, new])
    (checkpoint,) = place.glob(f"{0:020d}-*.leader_epoch_checkpoint")
    checkpoint.write_bytes(b"0\n1\n1 0\n")

    scan = segreader.scan(tmp_path)

    assert [record.value for record in scan.records()] == [b"0", b"1", b"2"]
    assert any("bear other leader epochs than its checkpoint says" in note for note in scan.plan().notes)


def test_first_offsets_that_the_newest_checkpoint_disowns_are_named_in_a_note(tmp_path: Path) -> None:
    old = SegmentBuilder(0).batch([b"0"]).batch([b"1"])
    new = SegmentBuilder(2, leader_epoch=2).batch([b"2"])
    new.leader_epochs = [*old.leader_epochs, *new.leader_epochs]
    place = write_local_tiered(tmp_path, "orders", [old, new])
    (checkpoint,) = place.glob(f"{2:020d}-*.leader_epoch_checkpoint")
    checkpoint.write_bytes(b"0\n2\n1 0\n2 2\n")

    (note,) = segreader.scan(tmp_path).plan().notes

    assert note.startswith(f"orders-0: offsets 0 to 1 are in {place}/{0:020d}-")
    assert note.endswith(f"{checkpoint}, their leader epoch 0 did not write them")


@pytest.mark.parametrize(("kind", "left"), [("log", None), ("snapshot", None), ("log", b"")])
def test_a_lost_branch_stays_lost_where_only_the_checkpoint_of_its_survivor_is_whole(
    tmp_path: Path, kind: str, left: bytes | None
) -> None:
    old = SegmentBuilder(0).batch([b"0"]).batch([b"1"]).batch([b"dead 2"]).batch([b"dead 3"])
    new = SegmentBuilder(2, leader_epoch=3).batch([b"live 2"])
    new.leader_epochs = [*old.leader_epochs, *new.leader_epochs]
    place = write_local_tiered(tmp_path, "orders", [old, new])
    (file,) = place.glob(f"{2:020d}-*.{kind}")
    file.unlink() if left is None else file.write_bytes(left)

    scan = segreader.scan(tmp_path)

    assert [record.value for record in scan.records()] == [b"0", b"1"]
    assert any(
        "its leader epoch 3 is the newest, and no log beside it can be read" in note for note in scan.plan().notes
    )


def test_a_checkpoint_of_an_upload_that_goes_on_changes_nothing(tmp_path: Path) -> None:
    old = SegmentBuilder(0).batch([b"0"]).batch([b"1"])
    new = SegmentBuilder(2, leader_epoch=3).batch([b"2"])
    new.leader_epochs = [*old.leader_epochs, *new.leader_epochs]
    without(write_local_tiered(tmp_path, "orders", [old, new]), 2, "snapshot")
    scan = segreader.scan(tmp_path)
    assert [record.value for record in scan.records()] == [b"0", b"1"]
    assert [note for note in scan.plan().notes if "leader epoch" in note] == []


def test_a_manifest_with_too_low_an_end_is_an_error_and_not_a_shorter_log(tmp_path: Path) -> None:
    case = next(one for one in cases(remote=True) if str(one) == "aiven-plain/txn-interleaved")
    shutil.copytree(case.root / "remote", tmp_path / "remote")
    manifest = max((tmp_path / "remote").rglob(f"{case.topic}-*/0/*.rsm-manifest"))
    text = manifest.read_text()
    (end,) = re.findall(r'"endOffset":(\d+)', text)
    manifest.write_text(text.replace(f'"endOffset":{end}', f'"endOffset":{int(end) - 1}'))
    for level in ("read_committed", "read_uncommitted"):
        with pytest.raises(CorruptBatchError):
            list(segreader.scan(tmp_path / "remote", topic=case.topic, isolation_level=level).records())


def test_a_stale_checkpoint_does_not_take_the_newest_records_away(tmp_path: Path) -> None:
    old = SegmentBuilder(0).batch([b"0"]).batch([b"1"])
    dead = SegmentBuilder(2, leader_epoch=1).batch([b"dead 2"])
    dead.leader_epochs = [*old.leader_epochs, (1, 2)]
    live = SegmentBuilder(2, leader_epoch=2).batch([b"live 2"]).batch([b"live 3"])
    live.leader_epochs = list(old.leader_epochs)  # as before the election, though its batches bear epoch 2
    write_local_tiered(tmp_path, "orders", [old])
    write_local_tiered(tmp_path, "orders", [live])
    for path, data in local_tiered_files("orders", [dead]).items():
        (tmp_path / path).with_name(f"{2:020d}-{'A' * 22}.{path.rpartition('.')[2]}").write_bytes(data)

    scan = segreader.scan(tmp_path)

    assert [record.value for record in scan.records()] == [b"0", b"1", b"live 2", b"live 3"]
    assert any("its batches bear other leader epochs" in note for note in scan.plan().notes)


def test_epochs_above_the_last_checkpoint_continue_the_lineage(tmp_path: Path) -> None:
    segments = three_segments()
    segments[2] = SegmentBuilder(6, leader_epoch=4).batch([b"6"]).batch([b"7"])
    segments[2].leader_epochs = [*segments[0].leader_epochs, (4, 6)]
    place = write_local_tiered(tmp_path, "orders", segments)
    without(place, 6, "leader_epoch_checkpoint")

    scan = segreader.scan(tmp_path)

    assert offsets(scan) == list(range(8))
    assert scan.plan().splits[-1].epochs == ((4, 6),)
    assert "4 from no checkpoint" in scan.plan().notes[0]
    since = max(record.timestamp_ms for record in segreader.scan(tmp_path).records())
    assert offsets(segreader.scan(tmp_path, since=since)) == [7]


def test_no_lost_checkpoint_changes_a_record_of_real_elections(tmp_path: Path) -> None:
    """Of each segment in turn, and of all, gone or empty; the truth is the Java consumer's."""
    for which in cases("cluster", remote=True):
        (directory,) = which.remote
        place = tmp_path / which.topic / directory.name
        shutil.copytree(directory, place)
        lineage = which.root / "local" if which.topic == "diverged-hanging" else None
        names = sorted(place.glob("*.leader_epoch_checkpoint"))
        for chosen in ([], *([name] for name in names), names):
            for left in (None, b"", b"0\n0\n"):
                kept = {name: name.read_bytes() for name in chosen}
                for name in chosen:
                    name.unlink() if left is None else name.write_bytes(left)
                scan = segreader.scan(tmp_path / which.topic, isolation_level="read_committed", leader_epochs=lineage)
                records = from_log_start(which, "committed", [normal(record) for record in scan.records()])
                assert records == truth_of(which, "committed"), f"{which}: {[name.name for name in chosen]} {left!r}"
                for name, data in kept.items():
                    name.write_bytes(data)


def test_a_stale_checkpoint_does_not_make_the_newest_segment_a_duplicate(tmp_path: Path) -> None:
    dead = SegmentBuilder(2, leader_epoch=1)
    live = SegmentBuilder(3, leader_epoch=2).batch([b"live 3"]).batch([b"live 4"])
    for value in (b"2", b"dead 3", b"dead 4", b"dead 5"):
        dead.batch([value])
    dead.leader_epochs = live.leader_epochs = [(0, 0), (1, 2)]  # the live one's lacks (2, 3)
    place = write_local_tiered(tmp_path, "orders", [SegmentBuilder(0).batch([b"0"]).batch([b"1"]), dead, live])
    uploaded_at_once(place)

    scan = segreader.scan(tmp_path)

    assert [record.value for record in scan.records()] == [b"0", b"1", b"2", b"live 3", b"live 4"]
    assert any("its batches bear other leader epochs" in note for note in scan.plan().notes)


def test_a_border_moved_in_a_checkpoint_gives_no_dead_record_to_a_reader(tmp_path: Path) -> None:
    dead = SegmentBuilder(0, leader_epoch=1)
    for value in (b"0", b"1", b"dead 2", b"dead 3"):
        dead.batch([value])
    dead.leader_epochs = [(1, 0)]
    live = SegmentBuilder(1, leader_epoch=1).batch([b"1"])
    live.leader_epoch = 2
    live.batch([b"live 2"]).batch([b"live 3"]).batch([b"live 4"])
    live.leader_epochs = [(1, 0), (2, 3)]  # it began at offset 2
    uploaded_at_once(write_local_tiered(tmp_path, "orders", [dead, live]))

    scan = segreader.scan(tmp_path)

    with contextlib.suppress(CorruptBatchError):
        for record in scan.records():
            assert not (record.value or b"").startswith(b"dead")
    assert any("its batches bear other leader epochs" in note for note in scan.plan().notes)


def test_a_sound_copy_costs_one_look_at_its_index_and_adds_no_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def look(store: ObjectStore, segment: Segment, wanted: Sequence[int], limit: int) -> list[Batch]:
        looked.append(segment.files.log)
        return read_batches_at(store, segment, wanted, limit)

    monkeypatch.setattr(lineage, "read_batches_at", look)
    place = write_local_tiered(tmp_path, "orders", three_segments())
    assert offsets(segreader.scan(tmp_path)) == list(range(8))
    assert looked == []
    for file in place.glob(f"{4:020d}-*"):
        (place / (file.name[:21] + "B" * 22 + file.name[43:])).write_bytes(file.read_bytes())

    scan = segreader.scan(tmp_path)

    assert offsets(scan) == list(range(8))
    assert looked == [one.log for one in scan.plan().dropped]
    assert scan.plan().notes == ()


def test_no_checkpoint_of_another_segment_changes_real_elections_silently(tmp_path: Path) -> None:
    """Each segment's in place of each other one's, and two exchanged, in all topics with elections."""
    for which in cases("cluster", remote=True):
        (directory,) = which.remote
        place = tmp_path / which.topic / directory.name
        shutil.copytree(directory, place)
        sound = [
            normal(record) for record in segreader.scan(place.parent, isolation_level="read_uncommitted").records()
        ]
        own = {name: name.read_bytes() for name in sorted(place.glob("*.leader_epoch_checkpoint"))}
        taken = [{one: own[other]} for one, other in itertools.permutations(own, 2)]
        exchanged = [{one: own[other], other: own[one]} for one, other in itertools.combinations(own, 2)]
        for left in (*taken, *exchanged):
            for name, data in left.items():
                name.write_bytes(data)
            with contextlib.suppress(CorruptBatchError, SegmentGapError):
                found = [
                    normal(record)
                    for record in segreader.scan(place.parent, isolation_level="read_uncommitted").records()
                ]
                assert found == sound, f"{which}: {[name.name for name in left]}"
            for name in left:
                name.write_bytes(own[name])


def test_a_log_directory_says_how_a_transaction_ended_that_the_remote_tier_leaves_open(tmp_path: Path) -> None:
    first = SegmentBuilder(0).batch([b"0"]).batch([b"gone"], producer_id=7, transactional=True)
    second = first.roll().marker(7, abort=True).batch([b"3"])
    write_local_tiered(tmp_path / "remote", "orders", [first])
    write_broker_log(tmp_path / "local", "orders", [first, second])
    alone = segreader.scan(tmp_path / "remote")
    assert offsets(alone) == [0]
    assert alone.plan().ends[0].reason is EndReason.OPEN_TRANSACTION
    both = segreader.scan(tmp_path / "remote", log_directory=tmp_path / "local")
    assert offsets(both) == [0, 3]
    assert not both.plan().ends[0].reason.is_early
    assert both.plan().dropped == ()


def test_a_checkpoint_of_the_live_log_decides_against_the_newest_segment(tmp_path: Path) -> None:
    write_local_tiered(tmp_path / "remote", "orders", [SegmentBuilder(0).batch([b"0"]).batch([b"dead"])])
    (tmp_path / "checkpoint").write_text("0\n2\n0 0\n5 1\n")
    scan = segreader.scan(tmp_path / "remote", leader_epochs=tmp_path / "checkpoint")
    assert offsets(scan) == [0]
    write_local_tiered(tmp_path / "remote", "orders", [SegmentBuilder(0).batch([b"0"])], partition=1)
    with pytest.raises(OptionError, match="for several partitions"):
        segreader.scan(tmp_path / "remote", leader_epochs=tmp_path / "checkpoint").plan()
    with pytest.raises(ObjectNotFoundError, match="no leader-epoch-checkpoint of these partitions"):
        segreader.scan(tmp_path / "remote", leader_epochs=tmp_path).plan()


def test_what_only_makes_sense_together_is_refused_apart(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="needs the metadata topic"):
        segreader.scan(tmp_path, segments_from="metadata")
    with pytest.raises(OptionError, match="unknown catalog"):
        segreader.scan(tmp_path, segments_from="guess")
    with pytest.raises(OptionError, match="cannot be used with URLs"):
        segreader.scan(urls=["https://host/a.log"], layout="uber")
    with pytest.raises(OptionError, match=r"unknown layout.*Did you mean 'aiven'"):
        segreader.scan(tmp_path, layout="aivn")
    with pytest.raises(OptionError, match="on_gap"):
        segreader.scan(tmp_path, on_gap="ignore")
    with pytest.raises(OptionError, match="since is after until"):
        segreader.scan(tmp_path, since="now", until="-1h")


def test_a_segment_that_vanishes_after_the_plan_is_retention_or_a_reported_hole(tmp_path: Path) -> None:
    place = write_local_tiered(tmp_path, "orders", three_segments())
    scans = [segreader.scan(tmp_path, on_missing=choice) for choice in ("fail", "skip")]
    for scan in scans:
        scan.plan()
    without(place, 4)
    with pytest.raises(ObjectNotFoundError, match="Retention may have removed it") as caught:
        offsets(scans[0])
    assert caught.value.offset == 4
    assert offsets(scans[1]) == [0, 1, 2, 3, 6, 7]
    (missing,) = scans[1].metrics.missing
    assert (missing.start, missing.stop) == (4, 6)


def test_a_plan_survives_pickling_with_all_it_says(tmp_path: Path) -> None:
    without(write_local_tiered(tmp_path, "orders", three_segments()), 4, "log")
    plan = segreader.scan(tmp_path, on_gap="skip").plan()
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert all(len(pickle.dumps(split)) < 2048 for split in plan.splits)


def test_an_incomplete_set_in_a_compacted_log_is_a_gap_and_not_the_cleaners_work(tmp_path: Path) -> None:
    first = SegmentBuilder(0).batch([b"0", b"1"], last_offset=4)
    second = first.roll().batch([b"5", b"6"])
    place = write_local_tiered(tmp_path, "orders", [first, second, second.roll().batch([b"7"])])
    without(place, 5, "snapshot")
    with pytest.raises(SegmentGapError, match="no segment with 5 to 6"):
        segreader.scan(tmp_path).plan()
    assert offsets(segreader.scan(tmp_path, on_gap="skip")) == [0, 1, 7]


def test_a_damaged_checkpoint_does_not_rule_out_the_other_segments(tmp_path: Path) -> None:
    place = write_local_tiered(tmp_path, "orders", three_segments())
    next(place.glob(f"{4:020d}-*.leader_epoch_checkpoint")).write_text("0\n1\n1 0\n")
    scan = segreader.scan(tmp_path)
    assert offsets(scan) == list(range(8))
    assert "no batch of the segment bears" in scan.plan().notes[0]


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_transaction_index_that_a_marker_contradicts_is_an_error(tmp_path: Path, is_lost: bool) -> None:
    built = SegmentBuilder(0).batch([b"0"]).batch([b"no"], producer_id=7, transactional=True).marker(7, abort=True)
    built.batch([b"yes"], producer_id=8, transactional=True).marker(8).batch([b"5"])
    place = write_local_tiered(tmp_path, "orders", [built])
    index = next(place.glob("*.txnindex"))
    if is_lost:
        index.unlink()
    else:
        data = bytearray(index.read_bytes())
        data[9] = 8  # the producer
        data[25], data[17] = 4, 3  # its offsets
        index.write_bytes(data)
    seen: list[bytes | None] = []
    with pytest.raises(CorruptIndexError, match="contradict a marker") as caught:
        seen.extend(record.value for record in segreader.scan(tmp_path).records())
    assert seen == [b"0"]
    assert caught.value.offset == 2
    assert offsets(segreader.scan(tmp_path, isolation_level="read_uncommitted")) == [0, 1, 3, 5]


class Counted(int):
    """An offset that counts how often one is compared."""

    comparisons = 0

    def _counted(self) -> int:
        Counted.comparisons += 1
        return int(self)

    def __le__(self, other: int) -> bool:
        return self._counted() <= int(other)

    def __lt__(self, other: int) -> bool:
        return self._counted() < int(other)

    def __ge__(self, other: int) -> bool:
        return self._counted() >= int(other)

    def __gt__(self, other: int) -> bool:
        return self._counted() > int(other)

    __hash__ = int.__hash__


def test_each_of_many_empty_logs_is_not_held_against_all_others() -> None:
    partition, many = TopicIdPartition("orders", 0), 500

    def segment(base: int, last: int | None) -> Segment:
        name, size = ("log", 100) if last is not None else ("empty", 0)
        return Segment(partition, Counted(base), size, SegmentFiles(f"{base}.{name}"), last_offset=last)

    whole = [segment(base, base) for base in range(0, 2 * many, 2)]
    empty = [segment(base, None) for base in range(1, 2 * many, 2)]
    Counted.comparisons = 0
    ended = with_ends(MemoryStore({}), [*whole, *empty, segment(0, 2 * many)], [], 1 << 20, too_short={})
    assert not ended.lost
    assert 0 < Counted.comparisons < 100 * many
