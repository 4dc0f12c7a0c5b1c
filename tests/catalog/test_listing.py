from __future__ import annotations

from pathlib import Path

import pytest

from segreader.catalog.listing import list_partitions
from segreader.errors import AmbiguousLineageError, AmbiguousTopicError, UnknownLayoutError
from segreader.storage.local import LocalStore
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid, write_broker_log, write_local_tiered


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


def test_two_copies_of_one_segment_are_not_chosen_between(tmp_path: Path) -> None:
    place = write_local_tiered(tmp_path, "orders", two_segments())
    log = next(place.glob("*.log"))
    (place / (log.name[:21] + "B" * 22 + ".log")).write_bytes(log.read_bytes())
    with pytest.raises(AmbiguousLineageError, match="two segments of orders-0 begin"):
        list_partitions(LocalStore(tmp_path))


def test_an_empty_place_is_named_as_one(tmp_path: Path) -> None:
    with pytest.raises(UnknownLayoutError, match="no files"):
        list_partitions(LocalStore(tmp_path))
