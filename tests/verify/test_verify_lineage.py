"""Segments together: holes, overlaps, copies, leader epochs. Each is planted into a sound partition."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from planted import TOPIC, TOPIC_ID, Planted, sound_log

import segreader
from segreader.errors import SegreaderError
from segreader.stored.source import Catalog
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid, write_files
from segreader.testing.side_files import encode_leader_epochs


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return Planted(tmp_path, sound_log(4))


def remove_segment(planted: Planted, number: int) -> None:
    start = f"{planted.segments[number].base_offset:020d}-"
    for path in [path for path in planted.files if path.rpartition("/")[2].startswith(start)]:
        del planted.files[path]


def add_copy(planted: Planted, segment: SegmentBuilder, name: str = "again") -> None:
    """Put another upload of a segment beside the others."""
    other = Planted(planted.root, [segment])
    for path, data in other.files.items():
        own = kafka_uuid(TOPIC, 0, TOPIC_ID, segment.base_offset)
        planted.files[path.replace(own, kafka_uuid(name, segment.base_offset))] = data


@pytest.mark.parametrize("number", [1, 2])
def test_a_segment_that_is_gone_leaves_a_hole(planted: Planted, number: int) -> None:
    remove_segment(planted, number)

    assert planted.codes() == {"hole"}
    (finding,) = planted.find()
    assert finding.offset == planted.segments[number].base_offset


def test_a_first_segment_that_is_gone_is_retention(planted: Planted) -> None:
    remove_segment(planted, 0)

    assert planted.codes_of_both() == set()


def test_a_gap_in_a_compacted_log_is_no_finding(tmp_path: Path) -> None:
    first = SegmentBuilder(0).batch([b"a"]).skip(2).batch([b"b"])
    second = first.roll().skip(5).batch([b"c"])
    planted = Planted(tmp_path, [first, second])

    assert planted.codes_of_both() == set()
    first_of_all = first.roll()
    first_of_all.skip(5)
    planted = Planted(tmp_path / "other", [first, first_of_all.roll().batch([b"c"])])
    assert planted.codes_of_both() == set()
    assert planted.codes(with_info=True) == {"compaction-gap"}


def test_a_second_upload_of_a_segment_is_told_and_is_no_finding(planted: Planted) -> None:
    add_copy(planted, planted.segments[1])

    assert planted.codes_of_both() == set()
    assert planted.codes(with_info=True) == {"duplicate-offsets"}


def test_two_copies_that_differ_are_told(planted: Planted) -> None:
    changed = SegmentBuilder(30, leader_epoch=4)
    changed.leader_epochs = [(0, 0)]
    for value in range(31):
        changed.batch([b"%d" % value])
    add_copy(planted, changed)

    assert "conflicting-copies" in planted.codes(deep=True)


def without_a_batch(planted: Planted, number: int, batch: int) -> bytes:
    """A log from which a batch was taken; its indexes, whose positions would tell, are gone."""
    data, positions = planted.data(number, "log"), planted.segments[number].batch_positions
    for kind in ("index", "timeindex"):
        planted.remove(number, kind)
    return bytes(data[: positions[batch]] + data[positions[batch + 1] :])


def test_of_two_copies_the_fuller_one_is_named(planted: Planted) -> None:
    planted.put(1, "log", without_a_batch(planted, 1, 3))
    add_copy(planted, planted.segments[1])
    (copy,) = (
        path for path in planted.files if path.endswith(f"{kafka_uuid('again', planted.segments[1].base_offset)}.log")
    )

    (found,) = (one for one in planted.find(deep=True) if one.code.value == "conflicting-copies")

    assert "the fuller copy is " in found.explanation
    assert found.explanation.endswith(copy)
    assert "31 of these offsets, and that one 29" in found.explanation


@pytest.mark.parametrize("number", [1, 2, 3])
def test_copies_are_compared_behind_a_hole(number: int, planted: Planted) -> None:
    changed = planted.segments[number]
    other = SegmentBuilder(changed.base_offset, leader_epoch=changed.leader_epoch)
    other.leader_epochs = list(changed.leader_epochs)
    other.batch([b"%d" % value for value in range(changed.next_offset - changed.base_offset)])
    add_copy(planted, other)
    planted.put(0, "log", without_a_batch(planted, 0, 3))

    assert "conflicting-copies" in planted.codes(deep=True)


def test_a_copy_that_is_damaged_names_the_one_that_it_is_not_compared_with(planted: Planted) -> None:
    add_copy(planted, planted.segments[1])
    (copy,) = (
        path for path in planted.files if path.endswith(f"{kafka_uuid('again', planted.segments[1].base_offset)}.log")
    )
    data = bytearray(planted.files[copy])
    data[100] ^= 1
    planted.files[copy] = bytes(data)

    (found,) = (one for one in planted.find(deep=True) if one.code.value == "unchecked")

    assert found.object.endswith(copy)
    assert found.explanation.endswith(f"{planted.name(1, 'log')}, which has them, too")


def test_a_segment_of_a_history_that_was_given_up_is_told_and_is_no_finding(planted: Planted) -> None:
    dead = SegmentBuilder(61, leader_epoch=2)
    dead.leader_epochs = [(0, 0)]
    dead.batch([b"lost"]).batch([b"lost, too"])
    add_copy(planted, dead, "dead")

    assert planted.codes_of_both() == set()
    assert "diverged-offsets" in planted.codes(with_info=True)


def test_a_lost_branch_whose_checkpoint_is_gone_hides_no_hole_and_conflicts_with_no_copy(tmp_path: Path) -> None:
    old = SegmentBuilder(0).batch([b"0"]).batch([b"1"]).batch([b"dead"]).batch([b"dead"]).batch([b"dead"])
    new = SegmentBuilder(2, leader_epoch=3).batch([b"live"])
    new.leader_epochs = [*old.leader_epochs, *new.leader_epochs]
    planted = Planted(tmp_path, [old, new])
    planted.remove(0, "leader_epoch_checkpoint")

    assert planted.codes_of_both() == {"missing-leader-epochs"}
    assert "diverged-offsets" in planted.codes(with_info=True)


@pytest.mark.parametrize("data", [b"1\n0\n", b"0\n2\n0 0\n", b"\xff\xfe", b"0\n1\nzero 0\n"])
def test_a_checkpoint_that_cannot_be_read(planted: Planted, data: bytes) -> None:
    planted.put(1, "leader_epoch_checkpoint", data)

    assert planted.codes_of_both() == {"bad-leader-epochs"}


@pytest.mark.parametrize("bit", [0, 12, 63])
@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("checkpoint", ["whole", "empty", "missing"])
def test_a_base_offset_that_lies_makes_no_lineage_of_what_batches_bear(
    tmp_path: Path, checkpoint: str, batch: int, bit: int
) -> None:
    segment = SegmentBuilder(17, leader_epoch=2, index_interval_bytes=1).batch([b"0"]).batch([b"1"])
    segment.new_leader(4).batch([b"2"]).batch([b"3"])
    planted = Planted(tmp_path, [segment, segment.roll().batch([b"4"])])
    data, at = planted.data(0, "log"), segment.batch_positions[batch]
    data[at + 7 - bit // 8] ^= 1 << bit % 8
    planted.put(0, "log", data)
    if checkpoint == "empty":
        planted.put(0, "leader_epoch_checkpoint", b"")
    elif checkpoint == "missing":
        planted.remove(0, "leader_epoch_checkpoint")

    shallow, deep = planted.codes(), planted.codes(deep=True)

    assert deep - {"bad-leader-epochs", "missing-leader-epochs"}
    assert shallow or checkpoint == "whole"
    source = segreader.scan(tmp_path)
    with suppress(SegreaderError):  # nothing else may come of it
        assert [record.offset for record in source.records()] == [17, 18, 19, 20, 21]


def test_a_checkpoint_that_is_empty_though_batches_have_epochs(planted: Planted) -> None:
    planted.put(1, "leader_epoch_checkpoint", b"0\n0\n")

    assert planted.codes_of_both() == {"bad-leader-epochs"}


def test_a_checkpoint_that_contradicts_the_batches_beside_it(planted: Planted) -> None:
    planted.put(1, "leader_epoch_checkpoint", encode_leader_epochs([(0, 0), (4, 45)]))

    assert planted.codes_of_both() == {"epoch-mismatch"}


def test_a_lineage_may_begin_inside_a_batch(tmp_path: Path) -> None:
    segment = SegmentBuilder(0).batch([b"a", b"b", b"c"]).batch([b"d"])
    segment.leader_epochs = [(0, 2)]

    planted = Planted(tmp_path, [segment])

    assert planted.codes_of_both() == set()
    assert planted.codes(with_info=True) == {"below-log-start"}


def test_a_lineage_that_is_given_decides_what_is_diverged(planted: Planted, tmp_path: Path) -> None:
    given = {"live/orders-0/leader-epoch-checkpoint": encode_leader_epochs([(0, 0), (5, 61)])}
    write_files(tmp_path / "beside", given)

    catalog = Catalog(leader_epochs=tmp_path / "beside" / "live" / "orders-0" / "leader-epoch-checkpoint")

    assert "diverged-offsets" in {one.code for one in planted.find(catalog=catalog)}
