"""The splits that travel: how many, how large, in which order, and what they carry."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from corpus import CORPUS
from sample import exhaustive
from spark_rows import read_offsets, split_partitions

from segreader.errors import ObjectChangedError, ObjectNotFoundError
from segreader.plan.split import ReadPlan
from segreader.spark.batch import SegmentReader, SplitPartition
from segreader.spark.options import parse_options
from segreader.spark.planning import LightSplit, plan_splits
from segreader.storage.base import ObjectInfo
from segreader.storage.local import LocalStore
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_broker_log, write_local_tiered
from segreader.testing.side_files import AbortedEntry, encode_transaction_index

REMOTE = str(CORPUS / "tv2" / "remote")
MIB = 1 << 20
LARGEST_SPLIT = 2048
"""Bytes of a pickled split are fewer."""


def plan(location: str | Path, cores: int | None = None, **options: str) -> ReadPlan:
    return plan_splits(parse_options({"location": str(location)} | options), cores=cores).plan


def wide_segment(batches: int = 400, base_offset: int = 0) -> SegmentBuilder:
    """Batches of ten records and 1 KiB, an index entry each."""
    segment = SegmentBuilder(base_offset, index_interval_bytes=1)
    for _ in range(batches):
        segment.batch([b"v" * 90] * 10)
    return segment


@pytest.mark.parametrize("least", [1, 2, 7, 40, 399])
def test_there_are_at_least_as_many_tasks_as_asked_for_and_they_read_the_same(tmp_path: Path, least: int) -> None:
    write_local_tiered(tmp_path, "t", [wide_segment()])
    splits = split_partitions(tmp_path, subscribe="t", minPartitions=str(least))

    assert least <= len(splits) <= 2 * least
    assert read_offsets(tmp_path, subscribe="t", minPartitions=str(least)) == list(range(4000))


def rows_and_bytes(location: str | Path, **options: str) -> tuple[list[int], int]:
    """The rows of each task, and the stored bytes that all of them read."""
    reader = SegmentReader(parse_options({"location": str(location)} | options), ("offset",))
    opened = [reader._open(one) for one in reader.partitions() if isinstance(one, SplitPartition)]
    rows = [sum(batch.num_rows for batch in batches) for _, batches in opened]
    return rows, sum(metrics.bytes_read for metrics, _ in opened)


@pytest.mark.parametrize(("most", "least"), [(1500, 1), (999, 1), (200, 5)])
def test_no_task_has_more_records_than_allowed_and_they_read_the_same(tmp_path: Path, most: int, least: int) -> None:
    write_local_tiered(tmp_path, "t", [wide_segment(100)])
    options = {"subscribe": "t", "maxRecordsPerPartition": str(most), "startingOffsets": '{"t":{"0":13}}'}
    rows, _ = rows_and_bytes(tmp_path, **options)

    assert max(rows) <= most
    assert len(rows) >= least
    assert read_offsets(tmp_path, **options) == list(range(13, 1000))


@pytest.mark.parametrize("per_batch", [1, 10, 100, 1000])
@pytest.mark.parametrize("most", [3000, 500, 100, 7])
def test_few_records_for_a_task_do_not_mean_that_bytes_are_read_twice(
    tmp_path: Path, per_batch: int, most: int
) -> None:
    segment = SegmentBuilder()
    for _ in range(10_000 // per_batch):
        segment.batch([b"v" * 100] * per_batch)
    write_local_tiered(tmp_path, "t", [segment, segment.roll().batch([b"v"] * 10)])
    _, whole = rows_and_bytes(tmp_path, subscribe="t")
    rows, read = rows_and_bytes(tmp_path, subscribe="t", maxRecordsPerPartition=str(most))

    assert sum(rows) == 10_010
    assert read <= 1.2 * whole
    assert max(rows) <= max(most, 2 * per_batch, 60)  # one step of the index has 4 KiB, and a batch
    assert len(rows) >= 10_000 // max(2 * most, per_batch, 60)


@pytest.mark.parametrize("topic", ["multi", "small-many", "codec-zstd", "txn-span"])
@pytest.mark.parametrize("most", ["500", "100", "1"])
def test_of_the_corpus_no_bytes_are_read_twice_for_few_records_a_task(topic: str, most: str) -> None:
    whole_rows, whole = rows_and_bytes(REMOTE, subscribe=topic)
    rows, read = rows_and_bytes(REMOTE, subscribe=topic, maxRecordsPerPartition=most)

    assert sum(rows) == sum(whole_rows)
    assert read <= 1.2 * whole


def test_a_segment_without_an_offset_index_is_one_task_however_few_records_are_asked_for(tmp_path: Path) -> None:
    directory = write_local_tiered(tmp_path, "t", [wide_segment(100)])
    for index in directory.glob("*.index"):
        index.unlink()

    assert rows_and_bytes(tmp_path, subscribe="t", maxRecordsPerPartition="10")[0] == [1000]


def test_splits_are_cut_smaller_only_where_cores_would_be_idle_and_nobody_said_a_size(tmp_path: Path) -> None:
    segment = SegmentBuilder()
    for _ in range(96):
        segment.batch([bytes(MIB)])
    write_local_tiered(tmp_path, "t", [segment])

    assert len(plan(tmp_path, cores=1, subscribe="t").splits) == 3
    assert all(split.positions.size <= 33 * MIB for split in plan(tmp_path, cores=1, subscribe="t").splits)
    assert len(plan(tmp_path, cores=1, subscribe="t", splitBytes="128m").splits) == 1
    assert len(plan(tmp_path, cores=1, subscribe="t", splitBytes="16m").splits) == 6


def test_a_partition_ten_times_the_others_makes_no_long_task(tmp_path: Path) -> None:
    write_local_tiered(tmp_path, "t", [wide_segment(1000)])
    for partition in (1, 2, 3):
        write_local_tiered(tmp_path, "t", [wide_segment(100)], partition=partition)
    splits = [one.split for one in split_partitions(tmp_path, subscribe="t", splitBytes="64k")]
    sizes = [split.positions.size for split in splits]

    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) < 66 * 1024
    assert sum(split.partition.partition == 0 for split in splits) > 15


@pytest.mark.parametrize("options", [{}, {"splitBytes": "4k"}, {"maxRecordsPerPartition": "50"}])
def test_every_split_of_the_corpus_is_small_when_pickled(options: dict[str, str]) -> None:
    chosen = {"subscribePattern": "codec-.*|multi|txn-.*|nulls", **options}
    for one in split_partitions(REMOTE, **chosen):
        assert len(pickle.dumps(one)) < LARGEST_SPLIT
        assert REMOTE.encode() not in pickle.dumps(one)


def many_aborted(root: Path, count: int) -> None:
    """Topic ``t``: offset 2n was aborted by the marker at 2n + 1, as an index of a broker says it."""
    segment = SegmentBuilder(index_interval_bytes=1)
    for _ in range(50):
        segment.batch([b"v"], producer_id=7, producer_epoch=0, transactional=True).marker(7, abort=True).skip(998)
    segment.skip(2 * count)
    segment.batch([b"kept"])
    directory = write_local_tiered(root, "t", [segment])
    rows = [AbortedEntry(7 + n % 97, 2 * n, 2 * n + 1, 2 * n + 2) for n in range(count)]
    rows[0] = AbortedEntry(7, 0, 1, 2)
    told = set(segment.aborted)
    rows = [row for row in rows if row.first_offset % 1000 or row.first_offset >= 50_000] + sorted(told)
    rows.sort(key=lambda row: row.last_offset)
    for file in directory.glob("*.txnindex"):
        file.write_bytes(encode_transaction_index(rows))


@pytest.mark.parametrize("count", [exhaustive(10), 1000, exhaustive(100_000)])
def test_a_split_is_small_whatever_was_aborted_in_it(tmp_path: Path, count: int) -> None:
    many_aborted(tmp_path, count)
    options = parse_options({"location": str(tmp_path), "subscribe": "t", "splitBytes": "2k"})
    planned = plan_splits(options)
    lights = planned.light_splits()
    whole = {split.positions: split for split in planned.plan.splits}
    assert max(len(split.aborted) for split in planned.plan.splits) >= count

    for light in lights:
        assert len(pickle.dumps(light)) < LARGEST_SPLIT
        found = pickle.loads(pickle.dumps(light)).open(planned.store, None)
        wanted = whole[light.split.positions]
        bound = wanted.offset_bound
        mine = wanted.aborted if bound is None else wanted.aborted.within(wanted.offsets.start, bound + 1)
        assert found == replace(wanted, aborted=mine)
    assert read_offsets(tmp_path, subscribe="t", splitBytes="2k") == [50_000 + 2 * count]


def test_aborted_transactions_that_no_index_has_are_found_again_by_the_task(tmp_path: Path) -> None:
    segment = SegmentBuilder()
    for producer in range(1, 400):
        at = segment.next_offset * 7919 % 1_000_003
        segment.batch([b"v"], producer_id=producer * at + 1, producer_epoch=0, transactional=True)
        segment.marker(producer * at + 1, abort=True)
    segment.batch([b"kept"])
    directory = write_broker_log(tmp_path, "t", [segment])
    for file in directory.glob("*.txnindex"):
        file.unlink()
    (one,) = split_partitions(tmp_path, subscribe="t")

    assert one.value.is_replayed
    assert len(pickle.dumps(one)) < LARGEST_SPLIT
    assert read_offsets(tmp_path, subscribe="t") == [798]


def test_a_transaction_index_that_vanished_is_named(tmp_path: Path) -> None:
    many_aborted(tmp_path, 5000)
    planned = plan_splits(parse_options({"location": str(tmp_path), "subscribe": "t"}))
    (light,) = planned.light_splits()
    assert light.indexes
    for file in tmp_path.rglob("*.txnindex"):
        file.unlink()
    with pytest.raises(ObjectNotFoundError, match=r"\.txnindex"):
        light.open(planned.store, lambda partition: pytest.fail("not asked"))


def test_a_plan_lists_each_directory_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for partition in range(5):
        write_local_tiered(tmp_path, "t", [wide_segment(20)], partition=partition)
        write_local_tiered(tmp_path, "other", [wide_segment(20)], partition=partition)
    listed: list[str] = []
    levels: list[str] = []
    original, original_level = LocalStore.list, LocalStore.list_level

    def list_noted(self: LocalStore, prefix: str = "") -> Iterator[ObjectInfo]:
        listed.append(prefix)
        return original(self, prefix)

    def list_level_noted(self: LocalStore, prefix: str = "") -> Iterator[ObjectInfo]:
        levels.append(prefix)
        return original_level(self, prefix)

    monkeypatch.setattr(LocalStore, "list", list_noted)
    monkeypatch.setattr(LocalStore, "list_level", list_level_noted)
    starts = {str(partition): partition for partition in range(5)}
    plan(tmp_path, subscribe="t", startingOffsets=f'{{"t":{starts}}}'.replace("'", '"'))

    read = listed + levels
    assert not [prefix for prefix in read if "other-" in prefix]
    for partition in range(5):
        assert sum(f"/t-{partition}-" in prefix for prefix in read) <= 2  # seen to be one, and listed


def test_a_split_that_travels_names_the_version_of_its_log(tmp_path: Path) -> None:
    directory = write_local_tiered(tmp_path, "t", [wide_segment(20)])
    splits = split_partitions(tmp_path, subscribe="t", minPartitions="3")
    (log,) = directory.glob("*.log")
    assert len(splits) >= 3
    for one in splits:
        assert one.split.log_tag == f"mtime:{log.stat().st_mtime_ns}"
        untagged = SplitPartition(LightSplit(replace(one.split, log_tag=None)))
        assert len(pickle.dumps(one)) < len(pickle.dumps(untagged)) + 40


def test_tasks_of_one_plan_do_not_read_two_versions_of_a_log(tmp_path: Path) -> None:
    directory = write_local_tiered(tmp_path, "t", [wide_segment(20)])
    options = parse_options(
        {"location": str(tmp_path), "subscribe": "t", "minPartitions": "3", "failOnDataLoss": "false"}
    )
    reader = SegmentReader(options, ("offset",))
    first, second, *_ = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(first)) > 0
    (log,) = directory.glob("*.log")
    os.utime(log, ns=(0, log.stat().st_mtime_ns + 10**9))
    with pytest.raises(ObjectChangedError, match="plan again"):
        list(reader.read(second))
