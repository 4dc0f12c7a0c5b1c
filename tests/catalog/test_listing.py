from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from segreader.catalog.layouts.registry import choose_layouts
from segreader.catalog.listing import (
    UNKNOWN_TOPIC,
    PartitionLog,
    Wanted,
    find_listed_segments,
    find_sets_without_log,
    list_places,
    read_file,
    read_place,
)
from segreader.errors import AmbiguousTopicError, FormatError, LimitExceededError, UnknownLayoutError
from segreader.segment import SegmentFiles
from segreader.storage.local import LocalStore
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid, write_broker_log, write_local_tiered


def list_partitions(store: LocalStore, topic: str | None = None, topic_id: str | None = None) -> list[PartitionLog]:
    layouts = choose_layouts(None)
    return [read_place(store, place, layouts) for place in list_places(store, "", layouts, Wanted(topic, topic_id))]


def two_segments() -> list[SegmentBuilder]:
    first = SegmentBuilder(0).batch([b"a"])
    return [first, first.roll().batch([b"b"], producer_id=3, transactional=True).marker(3, abort=True)]


def test_partitions_come_in_order_with_their_segments_and_files(tmp_path: Path) -> None:
    for topic, partition in (("b", 10), ("b", 2), ("a-1", 0)):
        write_local_tiered(tmp_path, topic, two_segments(), partition=partition)
    logs = list_partitions(LocalStore(tmp_path))
    assert [(log.partition.topic, log.partition.partition) for log in logs] == [("a-1", 0), ("b", 2), ("b", 10)]
    first, second = logs[0].segments
    assert (first.base_offset, second.base_offset) == (0, 1)
    assert first.files.transaction_index is None
    assert second.files.transaction_index
    assert second.files.producer_snapshot == second.files.log.replace(".log", ".snapshot")
    assert first.segment_id != second.segment_id
    assert not second.is_active


def test_a_brokers_snapshot_belongs_to_the_segment_it_ends(tmp_path: Path) -> None:
    write_broker_log(tmp_path, "orders", two_segments())
    (log,) = list_partitions(LocalStore(tmp_path))
    first, second = log.segments
    assert (first.files.producer_snapshot or "").endswith(f"{1:020d}.snapshot")
    assert second.files.producer_snapshot is None
    assert [first.is_active, second.is_active] == [False, True]
    assert second.files.leader_epochs == "orders-0/leader-epoch-checkpoint"


def test_directories_and_files_in_transit_are_passed_over(tmp_path: Path) -> None:
    place = write_broker_log(tmp_path, "orders", two_segments())
    for name in ("orders-1.0123456789abcdef0123456789abcdef-delete", "orders-2.x-future", "orders-3.y-stray"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}.log").write_bytes(b"")
    for suffix in (".deleted", ".cleaned", ".swap"):
        (place / f"{7:020d}.log{suffix}").write_bytes(b"")
    (log,) = list_partitions(LocalStore(tmp_path))
    assert len(log.segments) == 2


def test_one_name_with_two_ids_is_refused_until_one_is_chosen(tmp_path: Path) -> None:
    ids = [kafka_uuid("one"), kafka_uuid("two")]
    for topic_id in ids:
        write_local_tiered(tmp_path, "orders", two_segments(), topic_id=topic_id)
    store = LocalStore(tmp_path)
    with pytest.raises(AmbiguousTopicError, match="created again"):
        list_partitions(store, topic="orders")
    (log,) = list_partitions(store, topic="orders", topic_id=ids[1])
    assert log.partition.topic_id == ids[1]


def test_a_set_without_its_log_is_incomplete_and_a_file_of_nobody_is_foreign(tmp_path: Path) -> None:
    place = write_local_tiered(tmp_path, "orders", two_segments())
    next(place.glob("00000000000000000001-*.log")).unlink()
    (place / "notes.txt").write_text("?")
    (log,) = list_partitions(LocalStore(tmp_path))
    assert [segment.base_offset for segment in log.segments] == [0]
    assert [(one.base_offset, one.missing) for one in log.incomplete] == [(1, ("log",))]
    assert [name.rpartition("/")[2] for name in log.foreign] == ["notes.txt"]


@pytest.mark.parametrize("number", [1 << 31, 1 << 32, 9_999_999_999])
def test_a_number_that_no_partition_can_have_names_no_partition(number: int, tmp_path: Path) -> None:
    write_local_tiered(tmp_path, "orders", two_segments(), partition=(1 << 31) - 1)
    write_local_tiered(tmp_path, "orders", two_segments(), partition=number)
    write_broker_log(tmp_path, "local", two_segments(), partition=number)
    store = LocalStore(tmp_path)

    assert [str(log.partition) for log in list_partitions(store)] == ["orders-2147483647"]
    with pytest.raises(UnknownLayoutError, match="no segments here"):
        list_partitions(store, "local")
    found = find_listed_segments(store, topic="mine", partition=2)
    assert {str(segment.partition) for segment in found} == {"orders-2147483647", "mine-2"}


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize(
    ("kind", "most"),
    [
        ("offset_index", 256 << 20),
        ("time_index", 256 << 20),
        ("transaction_index", 128 << 20),
        ("producer_snapshot", 128 << 20),
        ("leader_epochs", 4 << 20),
    ],
)
def test_a_file_larger_than_any_of_its_kind_is_refused_by_its_size(
    kind: str, most: int, is_listed: bool, tmp_path: Path
) -> None:
    write_local_tiered(tmp_path, "orders", two_segments())
    store = LocalStore(tmp_path)
    name = getattr(list_partitions(store)[0].segments[1].files, kind)
    os.truncate(tmp_path / name, most + 1)
    segment = list_partitions(store)[0].segments[1]
    assert isinstance(segment.files, SegmentFiles)
    if not is_listed:
        segment = replace(segment, files=replace(segment.files, sizes={}))

    with pytest.raises(LimitExceededError, match=f"found {most + 1} bytes, expected at most {most}") as caught:
        read_file(store, segment, name)
    assert caught.value.source == str(tmp_path / name)


def test_an_empty_place_is_named_as_one(tmp_path: Path) -> None:
    with pytest.raises(UnknownLayoutError, match="no files"):
        list_partitions(LocalStore(tmp_path))


def test_a_log_without_a_name_takes_its_offset_from_its_first_batch(tmp_path: Path) -> None:
    (tmp_path / "part-a.log").write_bytes(SegmentBuilder(4711).batch([b"x"]).to_bytes())
    (tmp_path / "part-a.txnindex").write_bytes(b"")
    (segment,) = find_listed_segments(LocalStore(tmp_path), topic=None, partition=None)
    assert (segment.base_offset, segment.partition.topic, segment.partition.partition) == (4711, UNKNOWN_TOPIC, 0)
    assert segment.files.transaction_index == "part-a.txnindex"


def test_names_that_say_topic_and_offset_are_believed(tmp_path: Path) -> None:
    place = tmp_path / "orders-3"
    place.mkdir()
    (place / f"{12:020d}.log").write_bytes(b"")
    (segment,) = find_listed_segments(LocalStore(tmp_path), topic="other", partition=9)
    assert (segment.base_offset, str(segment.partition)) == (12, "orders-3")


def test_a_list_may_hold_segments_of_a_layout_and_loose_ones(tmp_path: Path) -> None:
    write_local_tiered(tmp_path, "orders", [SegmentBuilder(0).batch([b"a"])])
    (tmp_path / "copy.log").write_bytes(SegmentBuilder(50).batch([b"x"]).to_bytes())
    found = find_listed_segments(LocalStore(tmp_path), topic="mine", partition=2)
    assert sorted(str(segment.partition) for segment in found) == ["mine-2", "orders-0"]


def test_a_loose_log_that_begins_with_no_batch_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "what.log").write_bytes(b"<html>not a log at all</html>")
    with pytest.raises(FormatError) as caught:
        find_listed_segments(LocalStore(tmp_path), topic=None, partition=None)
    assert caught.value.source == str(tmp_path / "what.log")


def test_an_index_whose_base_is_not_known_is_not_used(tmp_path: Path) -> None:
    built = SegmentBuilder(0, index_interval_bytes=1).skip(100).batch([b"x"])
    (tmp_path / "seg.log").write_bytes(built.to_bytes())
    (tmp_path / "seg.index").write_bytes(built.index())
    (segment,) = find_listed_segments(LocalStore(tmp_path), topic=None, partition=None)
    assert (segment.base_offset, segment.files.offset_index) == (100, None)


def test_a_wrapper_of_old_messages_tells_its_first_offset_only_from_inside(tmp_path: Path) -> None:
    built = SegmentBuilder(20).message_set([b"x"] * 10, magic=1, codec=1)
    (tmp_path / "seg.log").write_bytes(built.to_bytes())
    (segment,) = find_listed_segments(LocalStore(tmp_path), topic=None, partition=None)
    assert segment.base_offset == 20


def test_indexes_whose_log_is_not_in_the_list_are_named(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    for name in ("00000000000000000000.log", "00000000000000000000.index", "00000000000000000007.index"):
        (directory / name).write_bytes(b"")
    store = LocalStore(tmp_path)
    segments = find_listed_segments(store, topic=None, partition=None)
    ((partition, one),) = find_sets_without_log(store, segments, topic=None, partition=None)
    assert (str(partition), one.base_offset, one.missing) == ("orders-0", 7, ("log",))
    assert one.name == "orders-0/00000000000000000007.index"
