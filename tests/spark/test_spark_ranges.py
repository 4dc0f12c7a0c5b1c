"""What a Spark read of some offsets or times costs, and that plans by the segments near them give the same records."""

from __future__ import annotations

import random

import pytest
from corpus import Case, cases
from sample import edges_once, is_first_of_its_topic, sampled
from thousand import OFFSETS, SEGMENTS, files_in, near_always, next_segment, thousand_segments

from segreader.plan.request import ReadOptions
from segreader.plan.split import EndReason
from segreader.read.split_reader import read_split
from segreader.spark import locations
from segreader.spark.options import SparkOptions, parse_options, parse_stream_options
from segreader.spark.planning import SparkPlan, plan_splits
from segreader.spark.rate_limits import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from segreader.spark.stream import SegmentStreamReader
from segreader.testing.records import FIRST_TIMESTAMP_MS as T0
from segreader.testing.stores import MemoryStore

LEVELS = ("read_committed", "read_uncommitted")
CASES = [
    case
    for case in cases(remote=True)
    if case.topic != "diverged-hanging" and case.set_name != "aiven-encrypted" and len(case.facts["offline"]) == 1
]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore({}, tells_tags=True)

    def opened(options: SparkOptions, location: str) -> tuple[MemoryStore, str]:
        return store, ""

    monkeypatch.setattr(locations, "open_location", opened)
    return store


def planned(level: str, **options: str) -> SparkPlan:
    return plan_splits(parse_options({"location": "s3://bucket/", "isolationLevel": level} | options), cores=2)


def read(plan: SparkPlan) -> list[tuple[int, bytes | None]]:
    store, options = plan.store, ReadOptions(columns=("offset", "value"))
    rows: list[tuple[int, bytes | None]] = []
    for light in plan.light_splits():
        split = light.open(store, lambda partition: plan.logs[partition])
        for batch in read_split(split, store, options):
            rows += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
    return sorted(rows)


def requests_of(store: MemoryStore) -> list[str]:
    return [one for one in store.requests if one.startswith(("GET", "SIZE"))]


def each(topic: str, number: int) -> str:
    return f'{{"{topic}":{{"0":{number}}}}}'


@pytest.mark.parametrize("level", LEVELS)
def test_some_offsets_of_a_thousand_segments_cost_a_dozen_requests(bucket: MemoryStore, level: str) -> None:
    bucket.objects = dict(thousand_segments())
    for number in (0, 300, 777, 990):
        first = number * OFFSETS + 3
        bucket.requests.clear()
        plan = planned(
            level,
            subscribe="orders",
            startingOffsets=each("orders", first),
            endingOffsets=each("orders", first + 2),
        )
        assert len(requests_of(bucket)) <= 16, number
        assert [offset for offset, _ in read(plan)] == [first, first + 1]


@pytest.mark.parametrize("level", LEVELS)
def test_the_end_of_a_thousand_segments_costs_little(bucket: MemoryStore, level: str) -> None:
    bucket.objects = dict(thousand_segments())
    first = 995 * OFFSETS + 3
    plan = planned(level, subscribe="orders", startingOffsets=each("orders", first))
    assert len(requests_of(bucket)) <= 60
    (end,) = plan.plan.ends
    whole = planned(level, subscribe="orders")
    assert plan.plan.ends == whole.plan.ends
    assert end.reason is (EndReason.OPEN_TRANSACTION if level == LEVELS[0] else EndReason.END_OF_DATA)
    assert read(plan) == [row for row in read(whole) if row[0] >= first]


def test_a_range_of_times_reads_the_ends_of_time_indexes_and_what_is_near(bucket: MemoryStore) -> None:
    bucket.objects = dict(thousand_segments())
    plan = planned(
        LEVELS[1],
        subscribe="orders",
        startingTimestamp=str(T0 + 700 * OFFSETS),
        endingTimestamp=str(T0 + 701 * OFFSETS),
    )
    rest = [one for one in requests_of(bucket) if ".timeindex" not in one]
    assert len(rest) <= 24
    assert len(requests_of(bucket)) <= SEGMENTS + 40
    assert len(read(plan)) >= OFFSETS - 1


def stream(level: str, **options: str) -> SegmentStreamReader:
    given = {"location": "s3://bucket/", "subscribe": "orders", "isolationLevel": level} | options
    return SegmentStreamReader(parse_stream_options(given), ("offset",), wait=lambda _: None)


@pytest.mark.parametrize("level", LEVELS)
def test_a_stream_reads_what_is_new_at_its_end_and_what_is_near_each_batch(bucket: MemoryStore, level: str) -> None:
    bucket.objects = dict(thousand_segments())
    later = next_segment()
    reader = stream(level)
    (start,) = reader.initialOffset().values()
    assert start == {"0": 0}
    assert len(requests_of(bucket)) <= 32
    for limit, first in ((ReadMaxRows(50), 500 * OFFSETS), (ReadMaxBytes(2000), 700 * OFFSETS)):
        bucket.requests.clear()
        begin = {"orders": {"0": first}}
        end = reader.latestOffset(begin, limit)
        assert 0 < end["orders"]["0"] - first < 200
        splits = reader.partitions(begin, end)
        assert splits
        assert len(requests_of(bucket)) <= 32
    ends = reader.latestOffset({"orders": {"0": 990 * OFFSETS}}, ReadAllAvailable())
    bucket.requests.clear()
    bucket.objects |= files_in("local-tiered", [later])
    again = reader.latestOffset(ends, ReadAllAvailable())
    assert again == {"orders": {"0": later.next_offset}}
    assert reader.partitions(ends, again)
    assert len(requests_of(bucket)) <= 48
    bucket.requests.clear()
    assert stream(level).latestOffset(again, ReadAllAvailable()) == again  # a query that begins where it was stopped
    assert len(requests_of(bucket)) <= 32


@pytest.mark.parametrize(
    "case", sampled(CASES, lambda case: is_first_of_its_topic(case) or case in edges_once(CASES)), ids=str
)
def test_a_range_by_near_segments_is_what_a_consumer_reads(
    case: Case, bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = case.root / "remote"
    bucket.objects = {one.relative_to(root).as_posix(): one.read_bytes() for one in root.rglob("*") if one.is_file()}
    dice = random.Random(str(case))
    (partition,) = case.facts["offline"]
    chosen = {"assign": f'{{"{case.topic}":[{partition}]}}', "topicId": case.topic_id}
    for level in LEVELS:
        whole = planned(level, **chosen)
        (log,) = whole.logs.values()
        truth = [one.offset for one in case.truth("committed" if level == LEVELS[0] else "uncommitted")]
        first = max(log.start, min(truth, default=0))  # DeleteRecords leaves no trace in the remote tier
        end = case.offline_lso(int(partition)) if level == LEVELS[0] else case.remote_stop(int(partition))
        everything = read(whole)
        expected = [offset for offset in truth if log.start <= offset < end]
        assert [offset for offset, _ in everything if first <= offset] == expected
        with monkeypatch.context() as patched:
            near_always(patched)
            for _ in range(6):
                start = dice.randint(log.start, max(end - 1, log.start))
                stop = min(start + dice.choice((1, 1, 2, 10, 100)), end)
                bounds = {
                    "startingOffsets": f'{{"{case.topic}":{{"{partition}":{start}}}}}',
                    "endingOffsets": f'{{"{case.topic}":{{"{partition}":{stop}}}}}',
                }
                if start < stop:
                    plan = planned(level, **chosen, **bounds)
                    assert read(plan) == [row for row in everything if start <= row[0] < stop], (start, stop)
                del bounds["endingOffsets"]
                rows = read(planned(level, **chosen, **bounds))
                assert rows == [row for row in everything if start <= row[0]], start
