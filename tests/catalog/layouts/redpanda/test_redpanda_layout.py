"""A bucket of Redpanda's, from its keys and manifests to plain Kafka files."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from layout_walk import Found, directory_at, found_below, places_below, stored_in, three_segments

from segreader.catalog.layouts.redpanda.layout import PartitionDirectory, RedpandaLayout, is_label, xxh32
from segreader.catalog.layouts.redpanda.manifest import segment_name
from segreader.errors import CorruptBatchError, ManifestError, ObjectChangedError, ObjectNotFoundError
from segreader.format.batch import RecordBatchHeader
from segreader.format.checkpoints import parse_producer_snapshot
from segreader.format.index_files import AbortedTransaction, parse_transaction_index
from segreader.format.scanner import BatchReady, NeedData, SegmentScanner
from segreader.ranges import ByteRange
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectStore
from segreader.testing.builder import SegmentBuilder
from segreader.testing.redpanda import ARCHIVAL_METADATA, internal_batch, redpanda_files
from segreader.testing.stores import MemoryStore

UUID = "9687f8b0-b81a-4a4c-9811-883fed35c1d8"
LAYOUT = RedpandaLayout()

STYLES: dict[str, dict[str, Any]] = {
    "hashed-bin": {},
    "hashed-json": {"manifest": "json"},
    "labelled": {"cluster_uuid": UUID},
    "spilled": {"cluster_uuid": UUID, "spilled": 2},
    "hashed-spilled": {"spilled": 1, "manifest": "json"},
    "second-names": {"name_format": 2, "manifest": "json"},
    "first-names": {"name_format": 1, "manifest": "json"},
}
CLUSTER = "deadbeef-0000-0000-0000-000000000000"


def settled() -> list[SegmentBuilder]:
    """Three segments at whose end no transaction is open."""
    first, second, third = three_segments(10)
    third.marker(8, abort=True)
    return [first, second, third]


def bucket(segments: list[SegmentBuilder] | None = None, **how: Any) -> MemoryStore:
    return MemoryStore(redpanda_files("orders", settled() if segments is None else segments, first_delta=3, **how))


def only(store: ObjectStore) -> Found:
    (found,) = found_below(store, LAYOUT)
    return found


def manifest_of(store: MemoryStore) -> str:
    return next(name for name in store.objects if name.endswith(("/manifest.bin", "/manifest.json")))


@pytest.mark.parametrize("style", STYLES)
def test_every_segment_is_found_in_kafkas_offsets(style: str) -> None:
    written = settled()
    found = only(bucket(written, **STYLES[style]))
    ends: list[int | None] = [segment.next_offset - 1 for segment in written]

    assert (found.place.partition.topic, found.place.partition.partition) == ("orders", 0)
    assert found.bases == [segment.base_offset for segment in written]
    if style == "first-names":
        ends[-1] = None  # nothing says where the last one ends
    assert [segment.last_offset for segment in found.segments] == ends
    assert all(segment.is_padded and segment.files.offset_index is None for segment in found.segments)
    assert found.files.notes == ()


@pytest.mark.parametrize("style", STYLES)
def test_a_log_is_kafkas_batches_then_zeros_to_the_stored_size(style: str) -> None:
    written = settled()
    store = bucket(written, **STYLES[style])
    view = LAYOUT.view(store)
    for segment, builder in zip(only(store).segments, written, strict=True):
        log = stored_in(view, segment.files.log)

        assert log is not None
        assert len(log) == segment.log_size
        assert log.rstrip(b"\0") == builder.to_bytes().rstrip(b"\0")


def test_a_log_can_be_read_from_anywhere() -> None:
    store = bucket()
    view = LAYOUT.view(store)
    segment = only(store).segments[1]
    whole = stored_in(view, segment.files.log) or b""
    size = segment.log_size

    for start, stop in ((0, 1), (1, 62), (700, 1900), (size - 300, size), (size - 1, size)):
        pieces = view.read_pieces(segment.files.log, ByteRange(start, stop), expected_size=size)
        assert b"".join(map(bytes, pieces)) == whole[start:stop]
    assert view.read_ranges(segment.files.log, [ByteRange(3, 9)]) == [whole[3:9]]


def test_the_scanner_reads_a_converted_log() -> None:
    store, written = bucket(), settled()
    view = LAYOUT.view(store)
    segment = only(store).segments[0]
    scanner = SegmentScanner(stop=segment.log_size)
    pieces = view.read_pieces(segment.files.log, ByteRange(0, segment.log_size))
    offsets = []
    while isinstance(answer := scanner.next(), BatchReady | NeedData):
        if isinstance(answer, NeedData):
            scanner.feed(next(pieces, b""))
        else:
            assert isinstance(answer.header, RecordBatchHeader)
            offsets.append(answer.header.base_offset)

    assert offsets[0] == 10
    assert len(offsets) == len(written[0].batch_positions)


def test_the_index_of_aborted_transactions_is_that_of_kafka_where_they_end_in_their_segment() -> None:
    first = SegmentBuilder(5).batch([b"a"]).skip(1)
    first.batch([b"b", b"c"], producer_id=7, transactional=True).marker(7, abort=True)
    second = first.roll().batch([b"d"], producer_id=7, transactional=True).marker(7)
    store = bucket([first, second])
    one, two = only(store).segments

    assert stored_in(LAYOUT.view(store), one.files.transaction_index) == first.transaction_index()
    assert two.files.transaction_index is None


def test_each_segment_covers_its_part_of_an_aborted_transaction() -> None:
    written = settled()
    store = bucket(written)
    begin = written[1].next_offset - 2
    second, third = only(store).segments[1:]
    data = stored_in(LAYOUT.view(store), second.files.transaction_index)

    assert data is not None
    assert list(parse_transaction_index(data, second.base_offset)) == [
        AbortedTransaction(8, begin - 1, begin, begin + 1)
    ]
    assert third.files.transaction_index is None


def test_a_missing_list_of_aborted_transactions_is_not_found() -> None:
    store = bucket(name_format=2)
    segment = only(store).segments[2]

    with pytest.raises(ObjectNotFoundError):
        stored_in(LAYOUT.view(store), segment.files.transaction_index)


def test_nothing_is_open_where_redpanda_ends() -> None:
    store = bucket()
    snapshot = stored_in(LAYOUT.view(store), only(store).segments[-1].files.producer_snapshot)

    assert snapshot is not None
    assert len(parse_producer_snapshot(snapshot)) == 0


def test_segments_of_old_versions_have_no_snapshot_for_their_lists_may_be_missing() -> None:
    found = only(bucket(name_format=1))

    assert [segment.files.producer_snapshot for segment in found.segments] == [None] * 3


def test_finding_a_partition_costs_one_listing_and_its_manifests() -> None:
    store = bucket(spilled=1)
    place = places_below(store, LAYOUT)[0]
    store.requests.clear()
    LAYOUT.find(store, place)

    assert [request.split(" bytes=")[0].split("/")[0] for request in store.requests] == [
        "LEVEL 70000000",
        "GET 70000000",
        "GET 70000000",
    ]


def test_reading_a_log_asks_for_its_object_once_and_for_no_size() -> None:
    store = bucket()
    segment = only(store).segments[0]
    store.requests.clear()
    stored_in(LAYOUT.view(store), segment.files.log)

    assert [request.partition(" ")[0] for request in store.requests] == ["GET"]


def test_a_bucket_is_surveyed_without_a_look_into_the_directories_of_segments() -> None:
    files = redpanda_files("orders", settled()) | redpanda_files("orders", settled(), partition=1, cluster_uuid=UUID)
    files |= redpanda_files("others", settled(), revision=9) | {"cluster_metadata/x": b""}
    store = MemoryStore(files)
    root = directory_at(store)
    store.requests.clear()
    places = LAYOUT.places(root, store)

    assert {str(place.partition) for place in places} == {"orders-0", "orders-1", "others-0"}
    assert all("/meta/" in request for request in store.requests)
    assert all(LAYOUT.find(store, place).segments for place in places)


def test_a_bucket_with_other_things_in_it_is_not_surveyed() -> None:
    store = MemoryStore(redpanda_files("orders", settled()) | {"backup/x.log": b""})
    root = directory_at(store)
    store.requests.clear()

    assert LAYOUT.places(root, store) == ()
    assert store.requests == []


def test_a_topic_made_again_is_told_by_its_revision() -> None:
    store = MemoryStore(redpanda_files("t", settled(), revision=7) | redpanda_files("t", settled(), revision=30))

    assert [found.place.partition.topic_id for found in found_below(store, LAYOUT)] == ["30", "7"]


def test_the_partition_of_a_directory_is_told_by_its_path() -> None:
    path = f"x/{UUID}/meta/kafka/orders/3_8/"

    assert LAYOUT.partition_of(path) == TopicIdPartition("orders", 3, f"{UUID}_8")
    assert LAYOUT.partition_of("x/orders-3/") is None
    assert LAYOUT.partition_of(path.replace("/3_", "/2147483648_")) is None


def test_a_directory_without_a_manifest_is_no_place() -> None:
    store = MemoryStore({"70000000/meta/kafka/orders/0_21/other": b""})

    assert LAYOUT.places(directory_at(store, "70000000/meta/kafka/orders/0_21/")) == ()


def changed(store: MemoryStore, **fields: Any) -> MemoryStore:
    """The bucket with other fields in its JSON manifest."""
    name = manifest_of(store)
    store.objects[name] = json.dumps(json.loads(store.objects[name]) | fields).encode()
    return store


def test_segments_below_the_start_of_the_log_are_left_out() -> None:
    store = bucket(manifest="json")
    start = json.loads(store.objects[manifest_of(store)])["segments"]
    second = sorted(meta["base_offset"] for meta in start.values())[1]

    assert only(changed(store, start_offset=second)).bases == [segment.base_offset for segment in settled()[1:]]


def test_archived_segments_below_the_start_of_the_archive_are_left_out() -> None:
    store = bucket(manifest="json", spilled=2)
    (spill,) = json.loads(store.objects[manifest_of(store)])["spillover"]
    last = spill["committed_offset"]

    assert only(changed(store, archive_start_offset=last)).bases == [segment.base_offset for segment in settled()[1:]]
    assert only(changed(store, archive_start_offset=last + 1)).bases == [settled()[2].base_offset]


def test_deleted_records_and_stale_objects_are_noted() -> None:
    found = only(changed(bucket(manifest="json"), start_kafka_offset=12, replaced={"3-0-v1.log": {}}))

    assert [note.partition(": ")[2].split(",")[0] for note in found.files.notes] == [
        "1 rewritten object is stale and not read",
    ]
    assert found.files.log_start == 12


def test_a_segment_of_redpandas_own_batches_alone_is_no_segment() -> None:
    first = SegmentBuilder(0).batch([b"a"])
    found = only(bucket([first, first.roll(), first.roll().batch([b"b"])]))

    assert found.bases == [0, 1]
    assert [segment.last_offset for segment in found.segments] == [0, None]


def test_the_next_segments_start_is_believed_more_than_an_end() -> None:
    store = bucket(manifest="json")
    document = json.loads(store.objects[manifest_of(store)])
    for meta in document["segments"].values():
        meta["delta_offset_end"] -= 1  # as older versions under-report it
    found = only(changed(store, segments=document["segments"]))

    assert [segment.last_offset for segment in found.segments[:2]] == [
        segment.base_offset - 1 for segment in found.segments[1:]
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"partition": 4}, "another partition than its directory"),
        ({"revision": 4}, "another partition than its directory"),
        ({"version": 9}, "unknown version"),
    ],
)
def test_a_manifest_of_something_else_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    store = changed(bucket(manifest="json"), **fields)

    with pytest.raises(ManifestError, match=message) as caught:
        only(store)
    assert caught.value.source == store.url(manifest_of(store))


def test_a_mounted_topic_keeps_the_name_of_its_directory() -> None:
    found = only(changed(bucket(manifest="json"), topic="mine"))

    assert found.place.partition.topic == "orders"
    assert "calls the topic 'mine'" in found.files.notes[0]


def test_a_missing_spill_over_manifest_is_named() -> None:
    store = bucket(spilled=1)
    gone = next(name for name in store.objects if "manifest.bin." in name)
    del store.objects[gone]

    with pytest.raises(ManifestError, match="older segments is missing") as caught:
        only(store)
    assert caught.value.source == store.url(gone)


def test_a_spill_over_manifest_with_other_segments_than_its_name_says_is_refused() -> None:
    store = bucket(spilled=1)
    name = next(name for name in store.objects if "manifest.bin." in name)
    store.objects[name] = store.objects[manifest_of(store)]

    with pytest.raises(ManifestError, match="others than its name says"):
        only(store)


def test_a_damaged_header_names_the_stored_object_and_comes_after_what_is_before_it() -> None:
    store, written = bucket(), settled()
    segment = only(store).segments[1]
    key = segment.files.log.partition("@")[0]
    data = bytearray(store.objects[key])
    at = data.index(internal_batch(ARCHIVAL_METADATA, 0)[16:], 1000) - 16
    data[at + 20] ^= 1
    store.objects[key] = bytes(data)
    got = b""
    with pytest.raises(CorruptBatchError) as caught:
        for piece in LAYOUT.view(store).read_pieces(segment.files.log, ByteRange(0, segment.log_size)):
            got += bytes(piece)

    assert (caught.value.source, caught.value.position) == (store.url(key), at)
    assert len(got) > 500
    assert written[1].to_bytes().startswith(got)


def test_damage_does_not_hide_which_transactions_before_it_were_aborted() -> None:
    first = SegmentBuilder(5).batch([b"b", b"c"], producer_id=7, transactional=True).marker(7, abort=True).batch([b"d"])
    store = bucket([first])
    (segment,) = only(store).segments
    key = segment.files.log.partition("@")[0]
    data = bytearray(store.objects[key])
    data[-100] ^= 1  # the header of the last batch
    store.objects[key] = bytes(data)

    assert stored_in(LAYOUT.view(store), segment.files.transaction_index) == first.transaction_index()


def test_a_replaced_object_of_another_size_is_refused() -> None:
    store = bucket()
    segment = only(store).segments[0]
    key = next(name for name in store.objects if name == segment.files.log.partition("@")[0])
    store.objects[key] += b"x"

    with pytest.raises(ObjectChangedError):
        stored_in(LAYOUT.view(store), segment.files.log)


def test_a_log_that_is_not_there_is_not_found() -> None:
    store = bucket()
    segment = only(store).segments[0]
    del store.objects[segment.files.log.partition("@")[0]]

    with pytest.raises(ObjectNotFoundError):
        stored_in(LAYOUT.view(store), segment.files.log)


@pytest.mark.parametrize(
    "name",
    ["a.log", "1-2-v1.log", "x@5@6.log", "1-2-v1.log@5@-6.log", "1-2-v1.log@5@6.index", "1-99999999999-v1.log@5@6.log"],
)
def test_other_names_mean_what_they_mean_in_the_store(name: str) -> None:
    view = LAYOUT.view(MemoryStore({name: b"abc"}))

    assert view.size(name) == 3
    assert stored_in(view, name) == b"abc"
    assert view.url(name) == f"memory://bucket/{name}"


def test_what_is_not_decided_is_not_uploaded() -> None:
    found = only(bucket(three_segments(10)))

    assert [segment.last_offset for segment in found.segments] == [52, 92]


def test_the_layout_is_a_value_that_pickles() -> None:
    assert pickle.loads(pickle.dumps(LAYOUT)) == LAYOUT
    assert (LAYOUT.name, LAYOUT.is_experimental) == ("redpanda", True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0x02CC5D05),
        ("a", 0x550D7456),
        ("Nobody inspects the spammish repetition", 0xE2293B2F),
        ("kafka/tp/5_21/10-11-1048576-12-v1.log", 0xD13F1C8E),
    ],
)
def test_xxh32_gives_the_known_hashes(text: str, expected: int) -> None:
    assert xxh32(text.encode()) == expected


@pytest.mark.parametrize("path", ["kafka/tp", "kafka/tp/5_21"])
def test_the_hash_of_a_manifest_is_that_of_redpandas_path_test(path: str) -> None:
    assert xxh32(path.encode()) & 0xF0000000 == 0xE0000000


def test_a_hashed_directory_is_taken_apart() -> None:
    place = PartitionDirectory.parse("e0000000/meta/kafka/tp/5_21/")

    assert place == PartitionDirectory("", "e0000000", "tp", 5, 21)
    assert place.is_hashed
    assert place.topic_id == "21"


def test_a_labelled_directory_below_other_directories_is_taken_apart() -> None:
    place = PartitionDirectory.parse(f"a/b/{CLUSTER}/meta/kafka/my.topic_1/0_7/")

    assert place == PartitionDirectory("a/b/", CLUSTER, "my.topic_1", 0, 7)
    assert not place.is_hashed
    assert place.topic_id == f"{CLUSTER}_7"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "e0000000/meta/kafka/tp/",
        "e0000000/meta/kafka/tp/5/",
        "e0000000/meta/redpanda/controller/0_1/",
        "e1234567/meta/kafka/tp/5_21/",
        "e0000000/kafka/tp/5_21/",
        "meta/kafka/tp/5_21/",
        "e0000000/meta/kafka/tp/5_21",
        "e0000000/meta/kafka/tp/\u0665_21/",
    ],
)
def test_other_directories_are_no_partition(path: str) -> None:
    assert PartitionDirectory.parse(path) is None


def test_a_hashed_segment_key_begins_with_the_hash_of_the_rest() -> None:
    place = PartitionDirectory.parse("e0000000/meta/kafka/tp/5_21/")
    name = segment_name(10, 12, committed_offset=11, size=1048576, name_format=2)

    assert place is not None
    assert place.segment_key(name, None) == "d13f1c8e/kafka/tp/5_21/10-11-1048576-12-v1.log"
    assert place.segment_key(name, 3) == "d13f1c8e/kafka/tp/5_21/10-11-1048576-12-v1.log.3"


def test_a_labelled_segment_key_begins_with_the_cluster_and_the_bucket_below_it() -> None:
    place = PartitionDirectory.parse(f"a/{CLUSTER}/meta/kafka/tp/5_21/")

    assert place is not None
    assert place.segment_key("10-12-v1.log", 2) == f"a/{CLUSTER}/kafka/tp/5_21/10-12-v1.log.2"


def test_the_first_name_format_tells_neither_end_nor_size() -> None:
    assert segment_name(10, 12, committed_offset=11, size=5, name_format=1) == "10-12-v1.log"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("f0000000", True), (CLUSTER, True), ("f0000001", False), ("meta", False), ("F0000000", False)],
)
def test_a_label_is_a_hash_of_four_bits_or_a_uuid(name: str, expected: bool) -> None:
    assert is_label(name) is expected
