from __future__ import annotations

import uuid

from layout_walk import found_below, places_below, stored_in, three_segments

from segreader.catalog.layouts.early_s3 import EarlyS3Layout
from segreader.segment import TopicIdPartition
from segreader.testing.directory import broker_log_files, kafka_uuid, local_tiered_files
from segreader.testing.layouts import early_s3_files
from segreader.testing.stores import MemoryStore

LAYOUT = EarlyS3Layout()


def test_the_id_behind_the_extension_binds_a_set() -> None:
    built = three_segments()
    store = MemoryStore(early_s3_files("a-1.x_2", built, partition=3))
    (found,) = found_below(store, LAYOUT)
    assert found.place.partition == TopicIdPartition("a-1.x_2", 3)
    assert found.bases == [100, 143, 185]
    for segment, one in zip(found.segments, built, strict=True):
        assert segment.segment_id == kafka_uuid("a-1.x_2", 3, one.base_offset)
        assert stored_in(store, segment.files.log) == one.to_bytes()
        assert stored_in(store, segment.files.offset_index) == one.index()
        assert stored_in(store, segment.files.time_index) == one.time_index()
        assert (segment.files.producer_snapshot, segment.is_active) == (None, False)


def test_two_copies_of_one_segment_are_two_segments() -> None:
    files = early_s3_files("t", three_segments()[:1])
    copy = {name.rpartition(".")[0] + "." + kafka_uuid("again"): data for name, data in files.items()}
    times = dict.fromkeys(files, 5) | dict.fromkeys(copy, 9)
    (found,) = found_below(MemoryStore(files | copy, times), LAYOUT)
    assert [(one.base_offset, one.version) for one in found.segments] == [(100, 5), (100, 9)]


def test_an_id_with_dashes_is_the_same_id() -> None:
    one = uuid.UUID("43aeca7f-a684-4b60-bff8-9b3b783691bb")
    (found,) = found_below(MemoryStore({f"t-0/{5:020d}.log.{one}": b"x"}), LAYOUT)
    assert found.segments[0].segment_id == "Q67Kf6aES2C_-Js7eDaRuw"


def test_a_set_without_its_log_is_incomplete_and_other_names_are_foreign() -> None:
    segment_id = kafka_uuid("s")
    names = [f"{5:020d}.log.{segment_id}", f"{9:020d}.index.{segment_id}", f"{9:020d}.txnindex.{segment_id}", "x"]
    (found,) = found_below(MemoryStore({f"t-0/{name}": b"x" for name in names}), LAYOUT)
    assert found.bases == [5]
    assert [(one.base_offset, one.missing) for one in found.files.incomplete] == [(9, ("log",))]
    assert sorted(found.files.foreign) == sorted(f"t-0/{name}" for name in names[2:])
    assert found.files.notes[0].startswith("1 of 1 segment has no offset index")


def test_other_layouts_are_not_this_one() -> None:
    built = three_segments()
    for files in (broker_log_files("t", built), local_tiered_files("t", built)):
        assert places_below(MemoryStore(files), LAYOUT) == []
