from __future__ import annotations

import pytest
from layout_walk import directory_at, found_below, places_below, stored_in, three_segments

from segreader.catalog.layouts.base import Directory
from segreader.catalog.layouts.linkedin import LinkedInLayout
from segreader.errors import FormatError, TruncatedError
from segreader.segment import TopicIdPartition
from segreader.testing.builder import SegmentBuilder
from segreader.testing.layouts import linkedin_files
from segreader.testing.stores import MemoryStore

LAYOUT = LinkedInLayout()
TOPIC = "43aeca7f-a684-4b60-bff8-9b3b783691bb"
TOPIC_ID = "Q67Kf6aES2C_-Js7eDaRuw"


def files_of(partition: int = 0, prefix: str = "") -> dict[str, bytes]:
    return linkedin_files("orders", three_segments(), partition=partition, topic_id=TOPIC_ID, container_prefix=prefix)


@pytest.mark.parametrize("prefix", ["", "kafka", "kafka-rsm-1"])
def test_a_topic_bears_the_id_of_its_container(prefix: str) -> None:
    built = three_segments()
    store = MemoryStore(files_of(4, prefix))
    (found,) = found_below(store, LAYOUT)
    assert found.place.partition == TopicIdPartition(TOPIC, 4, TOPIC_ID)
    assert found.bases == [100, 143, 185]
    for segment, one in zip(found.segments, built, strict=True):
        files = segment.files
        assert stored_in(store, files.log) == one.to_bytes()
        assert stored_in(store, files.producer_snapshot) == one.snapshot()
        assert stored_in(store, files.leader_epochs) == one.leader_epoch_checkpoint()
        assert len(segment.segment_id or "") == 22
        assert not segment.is_active
    assert stored_in(store, found.segments[0].files.transaction_index) == built[0].transaction_index()
    assert stored_in(store, found.segments[0].files.offset_index) == built[0].index()
    assert stored_in(store, found.segments[0].files.time_index) == built[0].time_index()


def test_partitions_beyond_the_blobs_that_a_walk_looks_at_are_found() -> None:
    store = MemoryStore(files_of(0) | files_of(1) | files_of(10))
    shown = directory_at(store, f"{TOPIC}/")
    sample = Directory(shown.path, shown.files[:2])
    assert [place.partition.partition for place in LAYOUT.places(sample)] == [0]
    places = LAYOUT.places(sample, store)
    assert [place.partition.partition for place in places] == [0, 1, 10]
    store.requests.clear()
    assert len(LAYOUT.find(store, places[1]).segments) == 3
    assert store.requests[0] == f"LEVEL {TOPIC}/1."


def test_a_store_that_is_one_container_takes_the_topic_from_its_url() -> None:
    class Container(MemoryStore):
        def url(self, name: str) -> str:
            return f"https://account.blob.core.windows.net/kafka-{TOPIC}/{name}"

    files = {name.partition("/")[2]: data for name, data in files_of(2).items()}
    (found,) = found_below(Container(files), LAYOUT)
    assert found.place.partition == TopicIdPartition(TOPIC, 2, TOPIC_ID)
    assert found.bases == [100, 143, 185]


def test_blobs_in_a_directory_of_another_name_have_that_name_as_topic_and_no_id() -> None:
    files = {name.replace(TOPIC, "copy of orders"): data for name, data in files_of().items()}
    (found,) = found_below(MemoryStore(files), LAYOUT)
    assert found.place.partition == TopicIdPartition("copy of orders", 0)


def test_a_first_batch_costs_61_bytes() -> None:
    (name, data) = next((n, d) for n, d in files_of().items() if n.endswith(".SEGMENT"))
    store = MemoryStore({name: data})
    (found,) = found_below(store, LAYOUT)
    assert found.bases == [100]
    assert [one for one in store.requests if one.startswith("GET")] == [f"GET {name} bytes=0-60"]


def test_an_upload_that_is_not_done_is_incomplete_and_its_offset_unknown() -> None:
    files = files_of()
    gone = next(name for name in files if name.endswith(".SEGMENT"))
    del files[gone]
    (found,) = found_below(MemoryStore(files), LAYOUT)
    assert len(found.bases) == 2
    (broken,) = found.files.incomplete
    assert (broken.base_offset, broken.missing) == (-1, ("log",))


def test_a_blob_that_vanishes_meanwhile_is_a_note() -> None:
    class Retention(MemoryStore):
        def list_level(self, prefix: str = ""):  # type: ignore[no-untyped-def]
            listed = list(super().list_level(prefix))
            if prefix.endswith("."):
                self.objects.pop(next(name for name in self.objects if name.endswith(".SEGMENT")), None)
            return iter(listed)

    (found,) = found_below(Retention(files_of()), LAYOUT)
    assert len(found.segments) == 2
    assert "vanished" in found.files.notes[0]


def test_sizes_that_a_listing_does_not_tell_are_asked_for() -> None:
    store = MemoryStore(files_of(), tells_sizes=False)
    (found,) = found_below(store, LAYOUT)
    assert [one.log_size for one in found.segments] == [len(one.to_bytes()) for one in three_segments()]
    assert found.segments[0].files.sizes == {}


@pytest.mark.parametrize(
    "data", [b"x", b"<html>no log at all, but longer than a header of a batch is</html>", b"\0" * 90]
)
def test_a_log_that_begins_with_no_batch_is_refused_by_name(data: bytes) -> None:
    files = files_of()
    name = next(name for name in files if name.endswith(".SEGMENT"))
    with pytest.raises(FormatError) as caught:
        found_below(MemoryStore(files | {name: data}), LAYOUT)
    assert caught.value.source == f"memory://bucket/{name}"


def test_a_compressed_set_of_old_messages_that_is_cut_is_refused() -> None:
    built = SegmentBuilder(5).message_set([b"x"] * 9, codec=1)
    files = linkedin_files("t", [built])
    name = next(name for name in files if name.endswith(".SEGMENT"))
    with pytest.raises(TruncatedError):
        found_below(MemoryStore({name: files[name][:-1]}), LAYOUT)


def test_an_empty_blob_is_a_note() -> None:
    files = linkedin_files("t", [SegmentBuilder(9)])
    (found,) = found_below(MemoryStore(files), LAYOUT)
    assert found.segments == []
    assert "is empty" in found.files.notes[0]


def test_foreign_blobs_are_named_and_numbers_that_kafka_does_not_write_are_no_partitions() -> None:
    files = files_of(1)
    other = {name.replace("/1.", "/01."): b"" for name in files}
    foreign = f"{TOPIC}/1.not-a-uuid.SEGMENT"
    (found,) = found_below(MemoryStore(files | other | {foreign: b"", f"{TOPIC}/readme": b""}), LAYOUT)
    assert found.place.partition.partition == 1
    assert found.files.foreign == [foreign]


def test_a_directory_without_such_blobs_costs_no_request() -> None:
    store = MemoryStore({f"{TOPIC}/photo.jpg": b""})
    shown = directory_at(store, f"{TOPIC}/")
    store.requests.clear()
    assert LAYOUT.places(shown, store) == ()
    assert store.requests == []
    assert places_below(store, LAYOUT) == []
    assert LAYOUT.is_experimental
