"""What a listing asks of a bucket, and what it holds: by the topic that is asked for, whatever else lies there."""

from __future__ import annotations

import gc
import json
import tracemalloc
from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence

import pytest

from segreader.catalog.layouts.registry import choose_layouts
from segreader.catalog.listing import PartitionLog, Wanted, list_places, read_place
from segreader.errors import ObjectNotFoundError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo, level_of
from segreader.testing.directory import kafka_uuid

LAYOUTS = ("local-tiered", "aiven")
PAGE = 100
MANIFEST = json.dumps(
    {
        "version": "1",
        "chunkIndex": {
            "type": "fixed",
            "originalChunkSize": 1000,
            "originalFileSize": 500,
            "transformedChunkSize": 1000,
            "finalTransformedChunkSize": 500,
        },
        "segmentIndexes": {
            kind: {"position": 0, "size": 0} for kind in ("offset", "timestamp", "producerSnapshot", "leaderEpoch")
        },
        "compression": False,
    }
).encode()


def names(layout: str, topic: str, partitions: int, segments: int) -> Iterator[str]:
    """The objects of a topic."""
    for partition in range(partitions):
        place = {
            "local-tiered": f"{topic}-{partition}-{kafka_uuid(topic)}",
            "aiven": f"{topic}-{kafka_uuid(topic)}/{partition}",
        }[layout]
        kinds = {
            "local-tiered": ("index", "leader_epoch_checkpoint", "log", "snapshot", "timeindex"),
            "aiven": ("indexes", "log", "rsm-manifest"),
        }[layout]
        for number in range(segments):
            for kind in kinds:
                yield f"{place}/{number:020d}-{kafka_uuid(topic, partition, number)}.{kind}"


class Bucket:
    """Names in order. ``pages`` counts requests for listings, ``listed`` what they gave, ``reads`` all others."""

    def __init__(self, stored: Iterator[str]) -> None:
        self.names = sorted(stored)
        self.pages = self.listed = self.reads = 0

    def url(self, name: str) -> str:
        return f"memory://{name}"

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._paged(self._from(prefix))

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._paged(level_of(self._from(prefix), prefix))

    def size(self, name: str) -> int:
        raise ObjectNotFoundError("the listing told it", source=name)

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        assert name.endswith(".rsm-manifest")
        self.reads += len(ranges)
        return [MANIFEST[wanted.start : wanted.stop] for wanted in ranges]

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        raise ObjectNotFoundError("nothing else is read", source=name)

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        raise ObjectNotFoundError("nothing else is read", source=name)

    def close(self) -> None:
        pass

    def _from(self, prefix: str) -> Iterator[ObjectInfo]:
        for at in range(bisect_left(self.names, prefix), len(self.names)):
            name = self.names[at]
            if not name.startswith(prefix):
                return
            yield ObjectInfo(name, len(MANIFEST) if name.endswith(".rsm-manifest") else 500)

    def _paged(self, found: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        self.pages += 1
        for count, info in enumerate(found):
            self.pages += bool(count) and count % PAGE == 0
            self.listed += 1
            yield info


def bucket(layout: str, *topics: tuple[str, int, int]) -> Bucket:
    return Bucket(name for topic in topics for name in names(layout, *topic))


def listed(store: Bucket, topic: str, partitions: Sequence[int] | None = None) -> list[PartitionLog]:
    layouts = choose_layouts(None)
    places = list_places(store, "", layouts, Wanted(topic, partitions=partitions))
    return [read_place(store, place, layouts) for place in places]


def cost(store: Bucket) -> tuple[int, int, int]:
    return store.pages, store.listed, store.reads


@pytest.mark.parametrize("layout", LAYOUTS)
def test_other_topics_cost_a_listing_of_one_nothing(layout: str) -> None:
    orders = ("orders", 4, 60)
    alone = bucket(layout, orders)
    among = bucket(layout, orders, *((f"topic-{number}", 4, 30) for number in range(60)), ("order", 9, 9), ("z", 9, 9))

    assert [len(log.segments) for log in listed(alone, "orders")] == [60] * 4
    assert listed(among, "orders") == listed(alone, "orders")
    alone, among = bucket(layout, orders), among
    among.pages = among.listed = among.reads = 0
    listed(alone, "orders")
    listed(among, "orders")

    assert cost(among) == cost(alone)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_topics_that_begin_alike_cost_the_names_of_their_directories(layout: str) -> None:
    orders, others = ("orders", 4, 60), [(f"orders-{number:03d}", 2, 5) for number in range(40)]
    alone, among = bucket(layout, orders), bucket(layout, orders, *others)

    assert listed(among, "orders") == listed(alone, "orders")

    directories = 2 * len(others) if layout == "local-tiered" else len(others)
    assert among.listed - alone.listed == directories
    assert among.pages - alone.pages <= directories // PAGE + 1
    assert among.reads == alone.reads


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_topic_costs_pages_and_manifests_in_proportion_to_its_objects(layout: str) -> None:
    small, large = bucket(layout, ("orders", 4, 60)), bucket(layout, ("orders", 4, 600))
    listed(small, "orders")
    listed(large, "orders")

    assert large.pages <= -(-len(large.names) // PAGE) + 4 * 5 + 4
    assert large.pages <= 10 * small.pages
    assert large.listed <= len(large.names) * 3 // 2
    assert large.reads == (4 * 600 if layout == "aiven" else 0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_partitions_that_are_not_asked_for_are_not_listed(layout: str) -> None:
    one, all_of_them = bucket(layout, ("orders", 8, 60)), bucket(layout, ("orders", 8, 60))
    assert len(listed(one, "orders", [3])) == 1
    listed(all_of_them, "orders")

    assert one.pages <= all_of_them.pages / 8 + 3
    assert one.listed <= all_of_them.listed / 8 + 2 * 8


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_listing_holds_what_is_asked_for_whatever_else_is_there(layout: str) -> None:
    orders = ("orders", 8, 120)

    def peak(store: Bucket, partitions: Sequence[int] | None = None) -> int:
        listed(store, "orders", partitions)  # what is made once and kept
        gc.disable()  # else the peak depends on when the collector happens to run
        tracemalloc.start()
        try:
            kept = listed(store, "orders", partitions)
            return tracemalloc.get_traced_memory()[1] if kept else 0
        finally:
            tracemalloc.stop()
            gc.enable()

    alone = peak(bucket(layout, orders))
    among = peak(bucket(layout, orders, *((f"orders-{number}", 4, 25) for number in range(40))))
    one = peak(bucket(layout, orders), [5])

    assert among < 1.25 * alone
    assert one < 2 * alone / 3  # of eight; the manifests of one are held while they are read
