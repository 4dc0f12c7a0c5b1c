"""What a filter spares: requests, counted; and what it must not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from segreader.duckdb import register
from segreader.format.compression import Codec
from segreader.plan.request import ReadOptions, Request, parse_bounds
from segreader.polars import lazy_frame
from segreader.scans import Scan
from segreader.stored.source import LocationSource
from segreader.tables.dataset import TopicDataset
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import local_tiered_files, write_files
from segreader.testing.records import FIRST_TIMESTAMP_MS, ProducerRecord
from segreader.testing.stores import MemoryStore

RECORDS = 300


def rising(segments: int = 3, *, codec: int = Codec.NONE) -> list[SegmentBuilder]:
    """Segments of 300 records, ten a batch, each 1 ms later than the one before."""
    segment, built = SegmentBuilder(index_interval_bytes=500), []
    for _ in range(segments):
        for _ in range(RECORDS // 10):
            segment.batch([ProducerRecord(b"v" * 90, b"k") for _ in range(10)], codec=codec)
        built.append(segment)
        segment = segment.roll()
    return built


def files(partitions: int = 3, topic: str = "t") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for partition in range(partitions):
        found |= local_tiered_files(topic, rising(), partition=partition)
    return found


def table(objects: Mapping[str, bytes], *, topic: str | None = "t", **options: Any) -> tuple[TopicDataset, MemoryStore]:
    store = MemoryStore(objects)
    source = LocationSource("memory://bucket/", opened=(store, ""))
    scan = Scan(source, Request(topic=topic), ReadOptions(**options))
    return TopicDataset(scan, threads=1), store


def logs_read(store: MemoryStore) -> list[str]:
    """The requests for what stands in files; finding partitions lists directories."""
    return [request for request in store.requests if request.startswith(("GET", "SIZE"))]


def cost_of_scan(objects: Mapping[str, bytes], offsets: str | None = None) -> list[str]:
    store = MemoryStore(objects)
    request = Request(topic="t", bounds=parse_bounds(offsets))
    scan = Scan(LocationSource("memory://bucket/", opened=(store, "")), request)
    scan.to_arrow()
    return store.requests


def test_a_filter_on_partitions_asks_nothing_of_the_others() -> None:
    dataset, store = table(files())
    assert dataset.count_rows(pc.field("partition") == pa.scalar(1, pa.int32())) == 3 * RECORDS
    asked = [request for request in logs_read(store) if "t-0" in request or "t-2" in request]
    assert asked == []


def test_a_filter_on_topics_asks_nothing_of_the_others() -> None:
    dataset, store = table(files() | files(topic="u"), topic=None)
    assert dataset.count_rows(pc.field("topic") == "u") == 9 * RECORDS
    assert not [request for request in logs_read(store) if "GET t-" in request]


def test_a_filter_on_offsets_costs_what_the_same_offsets_cost_as_an_argument() -> None:
    objects = files(partitions=1)
    dataset, store = table(objects)
    found = dataset.to_table(["offset"], (pc.field("offset") >= 450) & (pc.field("offset") <= 460))
    assert found["offset"].to_pylist() == list(range(450, 461))
    assert sorted(store.requests) == sorted(cost_of_scan(objects, offsets="450:461"))


def test_a_filter_on_offsets_reads_the_small_objects_of_near_segments_alone() -> None:
    objects = local_tiered_files("t", rising(40))
    dataset, store = table(objects)
    found = dataset.to_table(["offset"], (pc.field("offset") >= 4500) & (pc.field("offset") <= 4510))
    assert found["offset"].to_pylist() == list(range(4500, 4511))
    assert sorted(store.requests) == sorted(cost_of_scan(objects, offsets="4500:4511"))
    assert len(logs_read(store)) <= 16


def test_offsets_far_apart_leave_what_lies_between_unread() -> None:
    objects = files(partitions=1)
    dataset, _ = table(objects)
    found = dataset.to_table(["offset"], pc.field("offset").isin(pa.array([5, 890])))
    assert found["offset"].to_pylist() == [5, 890]
    assert dataset.last_plan is not None
    size = sum(len(data) for name, data in objects.items() if name.endswith(".log"))
    assert [(split.offsets.start, split.offsets.stop) for split in dataset.last_plan.splits] == [(5, 6), (890, 891)]
    assert dataset.metrics.bytes_read < size / 20


def test_a_filter_on_times_leaves_segments_unread_that_are_older() -> None:
    dataset, store = table(files(partitions=1))
    since = pa.scalar((FIRST_TIMESTAMP_MS + 700) * 1000, pa.timestamp("us", "UTC"))
    assert dataset.count_rows(pc.field("timestamp") >= since) == 200
    assert dataset.last_plan is not None
    assert [split.base_offset for split in dataset.last_plan.splits] == [600]
    assert store.requests


@pytest.mark.parametrize("change", ["cut", "lower", "empty", "gone"])
def test_a_time_index_that_does_not_fit_its_log_leaves_nothing_unread(change: str) -> None:
    objects = files(partitions=1)
    for name in [name for name in objects if name.endswith(".timeindex")]:
        data = objects[name]
        if change == "gone":
            del objects[name]
            continue
        objects[name] = {
            "cut": data[:24],
            "lower": data[:-12] + (FIRST_TIMESTAMP_MS - 5).to_bytes(8, "big") + data[-4:],
            "empty": b"",
        }[change]
    dataset, _ = table(objects)
    since = pa.scalar((FIRST_TIMESTAMP_MS + 290) * 1000, pa.timestamp("us", "UTC"))
    assert dataset.count_rows(pc.field("timestamp") >= since) == 3 * RECORDS - 290


def test_later_queries_list_nothing_again_and_see_the_same() -> None:
    dataset, store = table(files())
    assert dataset.count_rows() == 9 * RECORDS
    store.objects |= local_tiered_files("t", rising(), partition=7)
    before = len(store.requests)
    assert dataset.count_rows() == 9 * RECORDS
    assert not [request for request in store.requests[before:] if request.startswith(("LIST", "LEVEL"))]


def test_a_dataset_that_refreshes_sees_what_was_uploaded() -> None:
    store = MemoryStore(files())
    dataset = TopicDataset(Scan(LocationSource("memory://b/", opened=(store, "")), Request(topic="t")), refresh=True)
    assert dataset.count_rows() == 9 * RECORDS
    store.objects |= local_tiered_files("t", rising(), partition=7)
    assert dataset.count_rows() == 12 * RECORDS


def test_duckdb_and_polars_push_the_same_filters() -> None:
    objects = files()
    wanted = {(1, 450), (1, 451)}
    dataset, _ = table(objects)
    connection = duckdb.connect(config={"threads": 1})
    connection.register("t", dataset)
    query = 'select partition, "offset" from t where partition = 1 and "offset" between 450 and 451'
    assert set(connection.sql(query).fetchall()) == wanted
    by_duckdb = dataset.last_plan
    frame = lazy_frame(dataset).filter((pl.col("partition") == 1) & pl.col("offset").is_between(450, 451))
    assert set(frame.select("partition", "offset").collect().rows()) == wanted
    assert by_duckdb is not None
    assert by_duckdb == dataset.last_plan
    assert len(by_duckdb.splits) == 1


def test_a_count_decompresses_nothing() -> None:
    dataset, _ = table(local_tiered_files("t", rising(codec=Codec.GZIP)))
    assert dataset.count_rows() == 3 * RECORDS
    assert (dataset.metrics.body_bytes, dataset.metrics.records) == (0, 3 * RECORDS)


def test_the_first_rows_of_polars_cost_one_segment() -> None:
    dataset, store = table(files())
    assert lazy_frame(dataset).head(3).collect().height == 3
    assert dataset.metrics.splits == 1
    assert store.requests


def test_a_count_of_duckdb_decompresses_nothing(tmp_path: Path) -> None:
    write_files(tmp_path, local_tiered_files("t", rising(codec=Codec.GZIP)))
    connection = duckdb.connect(config={"threads": 1})
    dataset = register(connection, "t", tmp_path)
    assert connection.sql("select count(*) from t").fetchall() == [(3 * RECORDS,)]
    assert (dataset.metrics.body_bytes, dataset.metrics.records) == (0, 3 * RECORDS)
