"""Logs in chunks that can only be had whole: how often the splits of all tasks fetch each."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from fake_cluster import FakeCluster, ServedLog

from segreader.backfill.job_plan import JobRequest, make_plan
from segreader.backfill.output import OutputOptions
from segreader.catalog.layouts.aiven.manifest import read_manifest
from segreader.isolation import IsolationLevel
from segreader.live.planner import plan_live
from segreader.plan.cut import Cutting, SplitOffsets
from segreader.plan.live import ReadFrom
from segreader.plan.request import ReadOptions, Request
from segreader.plan.split import Split
from segreader.ranges import ByteRange
from segreader.read.split_reader import read_split
from segreader.spark.options import parse_options
from segreader.spark.planning import plan_splits
from segreader.storage.local import LocalStore
from segreader.storage.location import open_store
from segreader.stored.source import LocationSource
from segreader.testing.aiven import aiven_files
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_files

CHUNK = 4 << 10
BATCHES = 1000


class Fetches(LocalStore):
    """Remembers which bytes of logs were read."""

    def __init__(self, store: LocalStore) -> None:
        super().__init__(store.root)
        self.read: list[tuple[str, ByteRange]] = []

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        self.read += [(name, one) for one in ranges if name.endswith(".log")]
        return super().read_ranges(name, ranges)

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        self.read += [(name, wanted)] if name.endswith(".log") else []
        yield from super().read_pieces(name, wanted, expected_size=expected_size, expected_tag=expected_tag)


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One segment of 1000 batches, about 90 bytes each, in compressed chunks of 4 KiB."""
    segment = SegmentBuilder(index_interval_bytes=500)
    for number in range(BATCHES):
        segment.batch([b"%d" % number * (number % 5), b"v"])
    return write_files(
        tmp_path_factory.mktemp("aiven"), aiven_files("orders", [segment], chunk_size=CHUNK, compression=True)
    )


def chunks_fetched(location: Path, splits: Sequence[Split]) -> tuple[int, Counter[int]]:
    """How many chunks there are, and how often each is fetched by tasks that share nothing; each record comes once."""
    store, prefix = open_store(location)
    assert isinstance(store, LocalStore)
    counts: Counter[int] = Counter()
    offsets: list[int] = []
    starts: Sequence[int] = ()
    for split in splits:
        fetches = Fetches(store)
        source = LocationSource(str(location), opened=(fetches, prefix))
        offsets += offsets_of(source, split)
        starts = read_manifest(store, split.log.removesuffix(".log")).chunks.starts
        for _, span in fetches.read:
            counts.update(range(bisect_right(starts, span.start) - 1, bisect_right(starts, span.stop - 1)))
    assert offsets == list(range(2 * BATCHES))
    return len(starts), counts


def offsets_of(source: LocationSource, split: Split) -> Iterator[int]:
    for batch in read_split(split, source.store, ReadOptions(columns=("offset",))):
        yield from batch.column(0).to_pylist()


def of_the_source(location: Path, split_bytes: int) -> Sequence[Split]:
    return plan_splits(
        parse_options({"location": str(location), "subscribe": "orders", "splitBytes": str(split_bytes)})
    ).plan.splits


def of_a_live_read(location: Path, split_bytes: int) -> Sequence[Split]:
    end = 2 * BATCHES
    log = ServedLog([], [(0, 0)], local_start=end, last_tiered=end - 1, high_watermark=end)
    plan = plan_live(
        FakeCluster({"orders": {0: log}}),
        Request(topic="orders", isolation_level=IsolationLevel.READ_UNCOMMITTED),
        source=LocationSource(str(location)),
        cutting=Cutting(split_bytes=split_bytes, offsets=SplitOffsets.INDEXED),
    )
    assert [(part.read_from, len(part.splits)) for part in plan.parts] == [(ReadFrom.STORE, 1)] * len(plan.splits)
    return plan.splits


def of_the_job(location: Path, split_bytes: int) -> Sequence[Split]:
    options = {"location": str(location), "subscribe": "orders"}
    request = JobRequest(wanted={}, options=options, output=OutputOptions(), split_bytes=split_bytes)
    splits = make_plan(request).splits
    found = [split.read for split in splits if isinstance(split.read, Split)]
    assert len(found) == len(splits)
    return found


@pytest.mark.parametrize("cut", [of_the_source, of_a_live_read, of_the_job])
@pytest.mark.parametrize("split_bytes", [1, 3000, CHUNK, 20_000])
def test_two_splits_share_one_chunk_at_most(location: Path, cut: object, split_bytes: int) -> None:
    assert callable(cut)
    splits = cut(location, split_bytes)
    chunks, fetched = chunks_fetched(location, splits)

    assert chunks > 15
    assert len(splits) > 2
    assert set(fetched) == set(range(chunks))
    assert max(fetched.values()) <= 2
    assert fetched.total() <= chunks + len(splits) - 1
    assert all(one.positions.size >= split_bytes for one in splits[:-1])


def test_where_a_batch_begins_a_chunk_nothing_is_fetched_twice(tmp_path: Path) -> None:
    segment = SegmentBuilder(index_interval_bytes=1)
    segment.batch([b"x" * 100])
    size = len(segment.to_bytes())
    for _ in range(63):
        segment.batch([b"x" * 100])
    location = write_files(tmp_path, aiven_files("orders", [segment], chunk_size=4 * size, compression=True))
    splits = of_the_source(location, 4 * size)

    assert [one.positions.size for one in splits] == [8 * size] * 8
    assert all(before.positions.stop == after.positions.start for before, after in pairwise(splits))


def test_a_log_that_is_stored_as_it_is_is_cut_anywhere(tmp_path: Path) -> None:
    segment = SegmentBuilder(index_interval_bytes=1)
    for _ in range(20):
        segment.batch([b"x" * 100])
    location = write_files(tmp_path, aiven_files("orders", [segment], chunk_size=CHUNK))
    splits = of_the_source(location, 1)

    assert len(splits) == 20
    assert {replace(one, positions=ByteRange(0, 1)).chunk_size for one in splits} == {None}
