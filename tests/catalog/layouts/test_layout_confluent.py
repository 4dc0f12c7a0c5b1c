from __future__ import annotations

import pytest
from layout_walk import directory_at, found_below, places_below, stored_in, three_segments

from segreader.catalog.layouts.base import PartitionPlace
from segreader.catalog.layouts.confluent import ConfluentLayout
from segreader.segment import TopicIdPartition
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid
from segreader.testing.layouts import confluent_files
from segreader.testing.stores import MemoryStore

LAYOUT = ConfluentLayout()
TOPIC_ID = "e-RG-7KYTD22ym0zvWaCDA"


@pytest.mark.parametrize("prefix", ["", "cluster-a/", "a/0/"])
def test_objects_under_random_ids_make_up_partitions(prefix: str) -> None:
    built = three_segments()
    files = confluent_files("orders", built, topic_id=TOPIC_ID, prefix=prefix)
    files |= confluent_files("orders", built[:1], topic_id=TOPIC_ID, partition=12, prefix=prefix)
    files |= confluent_files("other", built[:2], prefix=prefix)
    store = MemoryStore(files)
    found = {str(one.place.partition): one for one in found_below(store, LAYOUT)}
    assert sorted(found) == sorted([f"{TOPIC_ID}-0", f"{TOPIC_ID}-12", f"{kafka_uuid('other')}-0"])
    first = found[f"{TOPIC_ID}-0"]
    assert first.place.partition == TopicIdPartition(TOPIC_ID, 0, TOPIC_ID)
    assert first.bases == [100, 143, 185]
    for segment, one in zip(first.segments, built, strict=True):
        files_of = segment.files
        assert stored_in(store, files_of.log) == one.to_bytes()
        assert stored_in(store, files_of.offset_index) == one.index()
        assert stored_in(store, files_of.time_index) == one.time_index()
        assert stored_in(store, files_of.producer_snapshot) == one.snapshot()
        assert stored_in(store, files_of.leader_epochs) == one.leader_epoch_checkpoint()
        assert segment.segment_id == kafka_uuid("object", "orders", 0, one.base_offset, 0)
    assert stored_in(store, first.segments[0].files.transaction_index) == built[0].transaction_index()


def test_names_of_a_published_listing_are_read() -> None:
    folder = f"0/-9twBPT1TWmFRZr_cKeDTA/{TOPIC_ID}/1"
    kinds = ("segment", "offset-index", "timestamp-index", "producer-state", "epoch-state")
    (found,) = found_below(MemoryStore({f"{folder}/{0:020d}_0_v0.{kind}": b"" for kind in kinds}), LAYOUT)
    assert found.place.partition == TopicIdPartition(TOPIC_ID, 1, TOPIC_ID)
    (segment,) = found.segments
    assert (segment.base_offset, segment.segment_id) == (0, "-9twBPT1TWmFRZr_cKeDTA")
    assert (found.files.incomplete, found.files.foreign, found.files.notes) == ([], [], [])


def test_of_two_copies_the_later_leaders_is_preferred_whenever_it_was_written() -> None:
    built = three_segments()[:1]
    old, new = confluent_files("t", built, tier_epoch=4), confluent_files("t", built, tier_epoch=11)
    store = MemoryStore(old | new, dict.fromkeys(old, 9_000_000_000_000) | dict.fromkeys(new, 5))
    (found,) = found_below(store, LAYOUT)
    assert [one.segment_id for one in found.segments] == [
        kafka_uuid("object", "t", 0, 100, 4),
        kafka_uuid("object", "t", 0, 100, 11),
    ]


def test_of_two_tries_of_one_leader_the_later_one_is_preferred() -> None:
    names = [f"0/{kafka_uuid(n)}/{TOPIC_ID}/0/{5:020d}_3_v0.segment" for n in (1, 2)]
    (found,) = found_below(MemoryStore(dict.fromkeys(names, b""), {names[0]: 8, names[1]: 7}), LAYOUT)
    assert [one.files.log for one in found.segments] == [names[1], names[0]]


def test_a_set_without_its_segment_is_incomplete() -> None:
    files = confluent_files("t", three_segments())
    gone = next(name for name in files if name.endswith("_v0.segment") and f"{143:020d}" in name)
    del files[gone]
    (found,) = found_below(MemoryStore(files), LAYOUT)
    assert found.bases == [100, 185]
    (broken,) = found.files.incomplete
    assert (broken.base_offset, broken.missing) == (143, ("log",))


def test_a_survey_is_one_listing_and_a_partition_one_request_for_each_object() -> None:
    built = three_segments()
    store = MemoryStore(confluent_files("t", built) | confluent_files("u", built))
    shown = directory_at(store, "0/")
    store.requests.clear()
    place, _ = LAYOUT.places(shown, store)
    assert store.requests == ["LIST 0/"]
    store.requests.clear()
    assert len(LAYOUT.find(store, place).segments) == 3
    assert sorted(store.requests) == sorted(f"LEVEL {prefix}" for prefix in place.prefixes)


def test_a_partition_of_very_many_objects_is_listed_as_a_whole() -> None:
    segments = [SegmentBuilder(base) for base in range(501)]
    files = {n: d for n, d in confluent_files("t", segments).items() if n.endswith(".segment")}
    store = MemoryStore(files | confluent_files("u", segments[:1]))
    places = {place.partition.topic: place for place in LAYOUT.places(directory_at(store, "0/"), store)}
    assert places[kafka_uuid("t")].prefixes == ("0/",)
    found = LAYOUT.find(store, places[kafka_uuid("t")])
    assert len(found.segments) == 501
    assert {one.partition.topic for one in found.segments} == {kafka_uuid("t")}


def test_an_objects_own_directory_says_whose_it_is() -> None:
    store = MemoryStore(confluent_files("t", three_segments(), partition=3, prefix="x/"))
    leaf = next(iter(store.objects)).rpartition("/")[0] + "/"
    partition = TopicIdPartition(kafka_uuid("t"), 3, kafka_uuid("t"))
    assert LAYOUT.partition_of(leaf) == partition
    assert LAYOUT.places(directory_at(store, leaf)) == (PartitionPlace(partition, ("x/0/",), "confluent"),)
    assert LAYOUT.partition_of("x/0/") is None
    assert LAYOUT.partition_of("orders-0/") is None


def test_other_data_of_the_bucket_and_foreign_names_are_no_segments() -> None:
    files = confluent_files("t", three_segments()[:1])
    folder = next(iter(files)).rpartition("/")[0]
    foreign = [
        f"{folder}/{5:020d}_0_v0.unknown",
        f"{folder}/{5:020d}_0.segment",
        f"{folder}/{'9' * 20}_0_v0.segment",
        f"0/{kafka_uuid('x')}/short/0/{5:020d}_0_v0.segment",
        f"0/{kafka_uuid('x')}/{TOPIC_ID}/9999999999/{5:020d}_0_v0.segment",
    ]
    other = {f"1/{kafka_uuid('x')}/tier-state-snapshot": b""}
    store = MemoryStore(files | dict.fromkeys(foreign, b"") | other)
    (found,) = found_below(store, LAYOUT)
    assert found.bases == [100]
    whole = LAYOUT.find(store, PartitionPlace(found.place.partition, ("0/",), "confluent"))
    assert sorted(whole.foreign) == sorted(foreign)


def test_a_directory_0_of_something_else_costs_no_request() -> None:
    store = MemoryStore({"0/2024/x": b"", "0/y": b""})
    shown = directory_at(store, "0/")
    store.requests.clear()
    assert LAYOUT.places(shown, store) == ()
    assert store.requests == []
    assert places_below(store, LAYOUT) == []
    assert LAYOUT.is_experimental
