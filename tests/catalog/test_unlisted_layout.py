from __future__ import annotations

from pathlib import Path

import pytest

from segreader.catalog.unlisted_layout import UNKNOWN_TOPIC, find_listed_segments, find_sets_without_log
from segreader.errors import FormatError
from segreader.storage.local import LocalStore
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered


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
