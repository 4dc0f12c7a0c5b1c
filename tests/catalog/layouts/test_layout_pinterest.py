from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from layout_walk import directory_at, found_below, places_below, three_segments

from segreader.catalog.layouts.pinterest import PinterestLayout, entropy_bits
from segreader.catalog.layouts.registry import open_view
from segreader.segment import TopicIdPartition
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import broker_log_files
from segreader.testing.layouts import pinterest_files
from segreader.testing.stores import MemoryStore

LAYOUT = PinterestLayout()
FOLDER = "tiered/my-cluster/orders-7"


def store_of(**changed: object) -> MemoryStore:
    return MemoryStore(pinterest_files("orders", three_segments(), partition=7, **changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cluster", "topic", "partition", "bits"),
    [
        ("my-cluster", "my-topic", 0, "111"),
        ("my-cluster", "orders", 7, "101001"),
        ("my_test_cluster", "my_test_topic", 0, "00001000"),
        ("test-cluster", "test_topic_a", 0, "01010"),
    ],
)
def test_entropy_is_the_beginning_of_an_md5(cluster: str, topic: str, partition: int, bits: str) -> None:
    assert entropy_bits(cluster, topic, partition, len(bits)) == bits
    whole = entropy_bits(cluster, topic, partition, 128)
    assert len(whole) == 128
    assert whole.startswith(bits)


@pytest.mark.parametrize("count", [0, 1, 8, 16, 128])
@pytest.mark.parametrize("topic", ["orders", "a-1", "my.topic_x-2-3", "0", "-", "x-0"])
def test_a_partition_is_found_under_any_prefix_and_topic(count: int, topic: str) -> None:
    files = pinterest_files(topic, three_segments(), partition=12, entropy_bits=count, base_prefix="a/b")
    (found,) = found_below(MemoryStore(files), LAYOUT)
    assert found.place.partition == TopicIdPartition(topic, 12)
    assert found.bases == [100, 143, 185]
    assert [found.files.incomplete, found.files.foreign, found.files.notes] == [[], [], []]


def test_segments_are_closed_plain_and_know_their_files_and_sizes() -> None:
    built = three_segments()
    (found,) = found_below(store_of(), LAYOUT)
    first = found.segments[0]
    assert first.files.log == f"{FOLDER}/{100:020d}.log"
    assert first.files.offset_index == f"{FOLDER}/{100:020d}.index"
    assert first.files.time_index == f"{FOLDER}/{100:020d}.timeindex"
    assert (first.files.producer_snapshot, first.files.transaction_index, first.files.leader_epochs) == (None,) * 3
    assert (first.log_size, first.files.sizes[first.files.log]) == (len(built[0].to_bytes()),) * 2
    assert not any(segment.is_active or segment.last_offset is not None for segment in found.segments)


def test_a_brokers_directory_is_none_of_this_layout() -> None:
    files = broker_log_files("orders", three_segments(), partition=7)
    assert places_below(MemoryStore({f"tiered/my-cluster/{name}": data for name, data in files.items()}), LAYOUT) == []


def test_in_doubt_a_directory_is_a_brokers() -> None:
    store = store_of(hints=False)
    assert places_below(store, LAYOUT) == []
    assert LAYOUT.places(directory_at(store, FOLDER + "/")) == ()
    (found,) = found_below(store, replace(LAYOUT, is_forced=True))
    assert found.bases == [100, 143, 185]


def test_bits_that_the_hash_confirms_decide_without_a_watermark() -> None:
    store = store_of(hints=False, entropy_bits=6)
    (found,) = found_below(store, LAYOUT)
    assert found.place.prefixes == ("tiered/101001/my-cluster/orders-7/",)
    wrong = {name.replace("101001", "101000"): data for name, data in store.objects.items()}
    assert places_below(MemoryStore(wrong), LAYOUT) == []


def test_bits_that_were_asked_for_must_be_there() -> None:
    store = store_of(entropy_bits=6)
    assert len(places_below(store, PinterestLayout(entropy_bits=6))) == 1
    assert places_below(store, PinterestLayout(entropy_bits=5)) == []
    assert places_below(store_of(base_prefix="a/b"), PinterestLayout(entropy_bits=5)) == []
    assert len(places_below(store_of(), PinterestLayout(entropy_bits=-1))) == 1


def test_a_watermark_beyond_the_files_that_a_walk_looks_at_is_asked_for() -> None:
    store = store_of()
    shown = directory_at(store, FOLDER + "/")
    sample = replace(shown, files=tuple(info for info in shown.files if info.name.endswith("index"))[:3])
    assert LAYOUT.places(sample) == ()
    store.requests.clear()
    (place,) = LAYOUT.places(sample, store)
    assert place.partition == TopicIdPartition("orders", 7)
    assert store.requests == [f"LEVEL {FOLDER}/offset.wm"]


def test_a_directory_of_another_kind_costs_no_request() -> None:
    store = MemoryStore({"orders-7/readme.txt": b"", "photos/00000000000000000000.log": b""})
    for path in ("orders-7/", "photos/"):
        shown = directory_at(store, path)
        store.requests.clear()
        assert LAYOUT.places(shown, store) == ()
        assert store.requests == []


def test_a_log_without_its_indexes_is_a_segment_and_a_note() -> None:
    (found,) = found_below(store_of(kinds=("log",)), LAYOUT)
    assert found.bases == [100, 143, 185]
    assert found.segments[0].files.offset_index is None
    assert found.files.incomplete == []
    assert [note.partition(" have")[0] for note in found.files.notes] == ["3 of 3 segments"] * 2


def test_indexes_without_their_log_are_an_incomplete_segment() -> None:
    store = store_of()
    del store.objects[f"{FOLDER}/{143:020d}.log"]
    (found,) = found_below(store, replace(LAYOUT, use_metadata=False))
    assert found.bases == [100, 185]
    (broken,) = found.files.incomplete
    assert (broken.base_offset, broken.missing, broken.name) == (143, ("log",), f"{FOLDER}/{143:020d}.index")
    assert found.files.notes == []


def test_foreign_objects_are_named_and_disturb_nothing() -> None:
    store = store_of()
    names = ["0.log", f"{7:020d}.log.deleted", f"{7:020d}.snapshot.x", "old/x.log", "9" * 20 + ".log", f"{7:019d}٣.log"]
    store.objects |= {f"{FOLDER}/{name}": b"x" for name in names}
    (found,) = found_below(store, LAYOUT)
    assert found.bases == [100, 143, 185]
    assert sorted(found.files.foreign) == sorted(f"{FOLDER}/{n}" for n in [*names[:3], "old/", *names[4:]])


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("offset.wm", b""),
        ("offset.wm", b"143"),
        ("offset.wm", b"\xff" * 20),
        ("offset.wm", b"9" * 20),
        ("_metadata", b""),
        ("_metadata", b"null"),
        ("_metadata", b"[" * 100_000),
        ("_metadata", b'{"topicPartition":{"topic":1,"partition":2}}'),
        ("_metadata", b'{"topicPartition":{"topic":"orders","partition":7},"metadata":{"timeindex":{"entries":[3]}}}'),
        (
            "_metadata",
            b'{"topicPartition":{"topic":"orders","partition":true},"metadata":{"timeindex":{"entries":[]}}}',
        ),
        ("_metadata", b"9" * 5000),
        ("_metadata", b"\xff\xfe"),
    ],
)
def test_a_hint_that_cannot_be_read_is_a_note_and_no_error(file: str, content: bytes) -> None:
    store = store_of()
    store.objects[f"{FOLDER}/{file}"] = content
    (found,) = found_below(store, LAYOUT)
    assert found.bases == [100, 143, 185]
    (note,) = found.files.notes
    assert note == f"{FOLDER}/{file} is not what the uploader writes; segments are taken from the listing"


def test_hints_that_name_what_is_not_there_are_notes() -> None:
    store = store_of()
    for kind in ("log", "index", "timeindex"):
        del store.objects[f"{FOLDER}/{185:020d}.{kind}"]
    (found,) = found_below(store, LAYOUT)
    assert [note.partition(";")[0] for note in found.files.notes] == [
        f"{FOLDER}/offset.wm says that the log of base offset 185 was completed, which is not there",
        f"{FOLDER}/_metadata names 1 segment that is not there, the first of base offset 185",
    ]


def test_a_metadata_object_of_another_partition_is_a_note() -> None:
    store = store_of()
    other = pinterest_files("orders", three_segments(), partition=8)
    store.objects[f"{FOLDER}/_metadata"] = other["tiered/my-cluster/orders-8/_metadata"]
    (found,) = found_below(store, LAYOUT)
    assert found.files.notes == [f"{FOLDER}/_metadata is of another partition; segments are taken from the listing"]


def test_segments_that_no_hint_names_are_found() -> None:
    store = store_of()
    other = pinterest_files("orders", three_segments()[:1], partition=7)
    store.objects |= {name: data for name, data in other.items() if name.endswith(("offset.wm", "_metadata"))}
    (found,) = found_below(store, LAYOUT)
    assert (found.bases, found.files.notes) == ([100, 143, 185], [])


def test_without_metadata_no_object_is_read() -> None:
    store = store_of()
    (place,) = places_below(store, LAYOUT)
    store.requests.clear()
    replace(LAYOUT, use_metadata=False).find(store, place)
    assert store.requests == [f"LEVEL {FOLDER}/"]


def test_overlapping_segments_are_kept_and_the_later_one_has_the_larger_version() -> None:
    log = SegmentBuilder(120).batch([b"other"] * 5)
    files = pinterest_files("orders", [*three_segments(), log], partition=7)
    times = {f"{FOLDER}/{base:020d}.log": 1_000 + base for base in (100, 120, 143, 185)}
    (found,) = found_below(MemoryStore(files, times), LAYOUT)
    assert [(one.base_offset, one.version) for one in found.segments] == [
        (100, 1100),
        (120, 1120),
        (143, 1143),
        (185, 1185),
    ]


def test_a_topic_that_was_made_again_shows_in_the_times_of_its_objects() -> None:
    hour = 3_600_000
    files = pinterest_files("orders", three_segments(), partition=7)
    times = {f"{FOLDER}/{base:020d}.log": at * hour for base, at in ((100, 50), (143, 51), (185, 2))}
    (found,) = found_below(MemoryStore(files, times), LAYOUT)
    (note,) = found.files.notes
    assert note.startswith("1 segment was written before others of smaller offsets")
    assert f"{185:020d}.log" in note


def test_a_partition_number_that_kafka_has_not_is_no_partition() -> None:
    assert LAYOUT.partition_of("tiered/c/orders-2147483648/") is None
    assert LAYOUT.partition_of("tiered/c/orders-2147483647/") == TopicIdPartition("orders", 2147483647)
    assert LAYOUT.partition_of("tiered/c/orders-7.0123abc-delete/") is None
    assert LAYOUT.partition_of("tiered/cluster-01/") is None


def test_the_layout_is_a_value() -> None:
    assert pickle.loads(pickle.dumps(LAYOUT)) == PinterestLayout()
    assert (LAYOUT.name, LAYOUT.is_experimental) == ("pinterest", False)
    store = store_of()
    assert open_view(store, [LAYOUT]) is store
