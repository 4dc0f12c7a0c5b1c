"""Segments read where a cluster says that they lie: the same records, and what is done when they cannot be had."""

from __future__ import annotations

import pickle
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from corpus import Case, NormalRecord, case, cases, normal
from fake_cluster import FakeCluster, Locate, ServedLog, ServedSegment, of_corpus, served
from located_store import CANARY, HOST, LocatedStore, locations
from sample import at_each_edge_once, exhaustive

from segreader.broker.messages import RemoteLogSegmentLocation
from segreader.broker.primitives import uuid_text
from segreader.broker.rules.fallback import RemoteReads
from segreader.errors import (
    AccessDeniedError,
    FormatError,
    LocationExpiredError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    ProtocolError,
    StorageError,
)
from segreader.isolation import IsolationLevel
from segreader.live.locations import UrlCache, open_located
from segreader.live.reader import LiveReader
from segreader.live.scan import LiveScan
from segreader.plan.live import ReadFrom, narrowed
from segreader.plan.request import Bounds, ReadOptions, Request
from segreader.ranges import OffsetRange
from segreader.read.records import RECORD_COLUMNS, iter_consumer_records
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid

TIERED = [one for one in cases("tv2", "tv1", "k39", "cluster") if one.local and one.remote]
ONE = case("tv2", "txn-span")
BOUNDED = [one for one in TIERED if one.topic != "odd-offsets"]
"""Where two batches have the same offset, a read that begins at it may not see that the first one has it."""

COMPACTED = "compacted-then-tiered"
"""The cleaner emptied segments there, which no location can name."""
Fault = Callable[[str, str], bytes | None]
LONG_AGO = "segreader.live.locations.TOLD_FOR_MS"
"""Below zero: whatever a plan was told, it was too long ago."""


def clusters(one: Case, locate: Locate | None, **arguments: Any) -> FakeCluster:
    numbers = [int(path.name.rpartition("-")[2]) for path in one.local]
    logs = {one.topic: {number: of_corpus(one, number) for number in numbers}}
    for log in logs[one.topic].values():  # as after local retention: what is uploaded is remote alone
        log.local_start = max(log.log_start, min(log.last_tiered + 1, log.end))
    return FakeCluster(logs, topic_ids={one.topic: one.topic_id}, locate=locate, **arguments)


def by_locations(
    cluster: FakeCluster,
    topic: str,
    level: str = "committed",
    fault: Fault = lambda name, url: None,
    bounds: Bounds | None = None,
) -> LiveScan:
    request = Request(topic=topic, bounds=bounds or Bounds(), isolation_level=IsolationLevel(f"read_{level}"))

    def opened(on_refresh: Callable[[], None]) -> tuple[UrlCache, LocatedStore]:
        urls = UrlCache(on_refresh)
        return urls, LocatedStore(urls, list(cluster.logs[topic].values()), fault)

    return LiveScan(lambda: cluster, request, open_located=opened)


def records_of(scan: LiveScan) -> list[NormalRecord]:
    with scan:
        return [normal(record) for record in scan.records()]


def fetched(scan: LiveScan) -> Counter[str]:
    """Bytes that the scan took from the store, by what they are of."""
    if scan._located is None:
        return Counter()
    store = scan._located[1]
    assert isinstance(store, LocatedStore)
    return store.fetched


@pytest.mark.parametrize(  # an uncommitted read asks for no index
    ("isolation", "told"),
    [
        ("committed", "aborted"),
        ("committed", "index"),
        ("committed", "rows"),
        ("uncommitted", "aborted"),
        exhaustive("uncommitted", "index"),
    ],
)
@pytest.mark.parametrize("one", at_each_edge_once(TIERED), ids=str)
def test_segments_by_location_give_the_java_consumers_records(one: Case, isolation: str, told: str) -> None:
    with_index, with_rows = told == "index", told == "rows"
    cluster = clusters(one, locations(with_index=with_index, with_rows=with_rows), chance=random.Random(str(one)))
    cluster.lists_aborted = told == "aborted"
    scan = by_locations(cluster, one.topic, isolation)

    assert records_of(scan) == one.truth(isolation)
    assert with_index or fetched(scan)["txnindex"] == 0
    assert scan.metrics.fallbacks == {}
    assert scan.metrics.locations_rejected == 0 or one.topic == COMPACTED
    remote = sum(r.offset < cluster.logs[one.topic][r.partition].local_start for r in one.truth(isolation))
    if one.topic != COMPACTED:
        assert scan.metrics.sources["location"].records == remote
        assert scan.metrics.sources["broker"].records == len(one.truth(isolation)) - remote
    assert not remote or scan.metrics.sources["location"].records > 0


def test_transaction_indexes_that_do_not_come_with_locations_are_loaded_many_at_a_time() -> None:
    builder, segments = SegmentBuilder(), list[ServedSegment]()
    for number in range(12):
        builder.batch([b"aborted"], producer_id=7, transactional=True).marker(7, abort=True).batch([b"%d" % number])
        batches, rows = tuple(served(builder.to_bytes())), builder.transaction_index()
        segment_id = kafka_uuid("aborts", number)
        segments.append(ServedSegment(segment_id, batches, builder.base_offset, transaction_index=rows))
        builder = builder.roll()
    every = [batch for segment in segments for batch in segment.batches]
    log = ServedLog(every, [(0, 0)], 0, every[-1].stop, every[-1].stop - 1, segments)
    at_once, most, lock = 0, 0, threading.Lock()

    def slow(name: str, url: str) -> bytes | None:
        nonlocal at_once, most
        if name.endswith("txnindex"):
            with lock:
                at_once += 1
                most = max(most, at_once)
            time.sleep(0.05)
            with lock:
                at_once -= 1
        return None

    for with_rows, expected in ((False, 12), (True, 0)):
        locate = locations(with_index=True, with_rows=with_rows)
        cluster = FakeCluster({"aborts": {0: log}}, topic_ids={"aborts": kafka_uuid("aborts")}, locate=locate)
        cluster.lists_aborted = False
        scan = by_locations(cluster, "aborts", fault=slow)
        assert [record.value for record in records_of(scan)] == [b"%d" % number for number in range(12)]
        assert fetched(scan)["txnindex"] == 34 * expected
    assert most > 2


@pytest.mark.parametrize("rows", [b"x", b"\0\1" + bytes(32), b"\0\0" + 32 * b"\xff"])
def test_a_transaction_index_in_an_answer_that_cannot_be_leaves_its_segments_to_the_broker(rows: bytes) -> None:
    good = locations()

    def locate(segment: ServedSegment, at: int, last: int) -> RemoteLogSegmentLocation | None:
        location = good(segment, at, last)
        return location and replace(location, transaction_index=rows, is_transaction_index_empty=False)

    cluster = clusters(ONE, locate)
    cluster.lists_aborted = False
    scan = by_locations(cluster, ONE.topic)
    assert records_of(scan) == ONE.truth("committed")
    assert scan.metrics.sources["location"].records == 0


def test_where_nothing_lies_behind_the_segments_no_record_is_asked_of_a_broker() -> None:
    cluster = clusters(ONE, locations(with_index=True))
    cluster.lists_aborted = False
    for log in cluster.logs[ONE.topic].values():
        log.batches = [batch for batch in log.batches if batch.stop <= log.last_tiered + 1]
        log.local_start = log.end
    end = {number: log.stable for number, log in cluster.logs[ONE.topic].items()}
    scan = by_locations(cluster, ONE.topic)

    assert records_of(scan) == [record for record in ONE.truth("committed") if record.offset < end[record.partition]]
    fetches = [one for one in cluster.requests if one.startswith("Fetch")]
    assert fetches
    assert [one for one in fetches if not one.endswith("with locations")] == []


@pytest.mark.parametrize(
    ("isolation", "is_damaged"), [("committed", False), ("uncommitted", True), exhaustive("committed", True)]
)
@pytest.mark.parametrize("one", at_each_edge_once(BOUNDED), ids=str)
def test_ranges_that_end_where_an_index_says_give_the_java_consumers_records(
    one: Case, isolation: str, is_damaged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segreader.live.locations._WORTH_AN_INDEX", 0)
    chance = random.Random(str(one))
    cluster = clusters(one, locations(with_index=True))
    cluster.lists_aborted, cluster.gives_ends = chance.random() < 0.5, chance.random() < 0.5
    if is_damaged:
        for log in cluster.logs[one.topic].values():
            for segment in log.segments:
                size = len(segment.offset_index) // 8 * 4
                segment.offset_index = segment.offset_index[:size] + bytes(chance.randbytes(size))
    logs = cluster.logs[one.topic].values()
    first, last = max(log.log_start for log in logs), min(log.stable for log in logs)
    for _ in range(6 if first < last else 0):
        start = chance.randint(first, last - 1)
        stop = min(start + chance.choice([1, 3, 10, 100]), last)
        scan = by_locations(cluster, one.topic, isolation, bounds=Bounds(start, stop))
        assert records_of(scan) == [record for record in one.truth(isolation) if start <= record.offset < stop]


def large_log() -> ServedLog:
    """A remote segment of 6 MiB with 60,000 offsets."""
    builder = SegmentBuilder(index_interval_bytes=4096)
    for number in range(1_500):
        builder.batch([b"%d-%d-" % (number, one) + b"x" * 90 for one in range(40)])
    batches = served(builder.to_bytes())
    segment = ServedSegment(kafka_uuid("large"), tuple(batches), 0, offset_index=builder.index())
    assert len(segment.data) > 6 << 20
    return ServedLog(batches, [(0, 0)], 0, batches[-1].stop, batches[-1].stop - 1, [segment])


@pytest.mark.parametrize("gives_ends", [False, True])
@pytest.mark.parametrize(("start", "stop"), [(100, 110), (0, 1), (30_000, 30_010), (59_990, 60_000), (29_500, 31_000)])
def test_of_a_few_offsets_their_bytes_are_fetched_and_a_range_of_the_index(
    start: int, stop: int, gives_ends: bool
) -> None:
    cluster = FakeCluster({"large": {0: large_log()}}, topic_ids={"large": kafka_uuid("large")}, locate=locations())
    cluster.gives_ends = gives_ends
    scan = by_locations(cluster, "large", bounds=Bounds(start, stop))
    found = records_of(scan)

    assert [record.offset for record in found] == list(range(start, stop))
    assert scan.metrics.fallbacks == {}
    wanted = (stop - start) * 110
    assert fetched(scan)["log"] <= wanted + 4 * 4096 + 2 * 4500
    assert fetched(scan)["index"] <= (0 if gives_ends else 8 * 1025)


@pytest.mark.parametrize("isolation", ["committed", "uncommitted"])
@pytest.mark.parametrize("gives_many", [False, True])
def test_a_wide_plan_takes_few_round_trips(isolation: str, gives_many: bool) -> None:
    partitions, each = 200, 5
    builder, segments = SegmentBuilder(), list[ServedSegment]()
    for number in range(each):
        builder.batch([b"value"] * 10)
        segment_id = kafka_uuid("wide", number)
        segments.append(ServedSegment(segment_id, tuple(served(builder.to_bytes())), builder.base_offset))
        builder = builder.roll()
    batches = [batch for segment in segments for batch in segment.batches]
    log = ServedLog(batches, [(0, 0)], 0, 10 * each, 10 * each - 1, segments)
    topic_ids = {"wide": kafka_uuid("wide")}
    cluster = FakeCluster({"wide": dict.fromkeys(range(partitions), log)}, topic_ids=topic_ids, locate=locations())
    cluster.gives_many, cluster.lists_aborted = gives_many, False
    with by_locations(cluster, "wide", isolation) as scan:
        plan = scan.plan()
        assert len(plan.parts) == partitions * each
        assert {part.read_from for part in plan.parts} == {ReadFrom.LOCATION}
        fetches = [one for one in cluster.requests if one.startswith("Fetch")]
        assert len(fetches) == (3 if gives_many else each)  # without: one segment of each partition at a time


@pytest.mark.parametrize("gives_ends", [False, True])
def test_a_part_of_what_was_planned_is_read_to_its_own_end(gives_ends: bool) -> None:
    cluster = FakeCluster({"large": {0: large_log()}}, topic_ids={"large": kafka_uuid("large")}, locate=locations())
    cluster.gives_ends = gives_ends
    with by_locations(cluster, "large") as scan:
        (part,) = (one for one in scan.plan().parts if one.read_from is ReadFrom.LOCATION)
        located = scan._locations()
        assert located is not None
        reader = LiveReader(cluster, ReadOptions(columns=RECORD_COLUMNS), located=located)
        found = [
            record.offset
            for batch in reader.read(narrowed(part, OffsetRange(0, 500)))
            for record in iter_consumer_records(batch)
        ]
        assert found == list(range(500))
        assert isinstance(located[1], LocatedStore)
        assert located[1].fetched["log"] < 80_000


@pytest.mark.parametrize("is_long_ago", [False, True])
def test_what_planning_was_told_a_moment_ago_is_not_asked_again(
    is_long_ago: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_long_ago:
        monkeypatch.setattr(LONG_AGO, -1)
    cluster = clusters(ONE, locations())
    scan = by_locations(cluster, ONE.topic)
    parts = [part for part in scan.plan().parts if part.read_from is ReadFrom.LOCATION]
    for _ in range(2):  # what was told serves one read
        asked = cluster.metrics.locations_asked
        assert [normal(record) for record in scan.records()] == ONE.truth("committed")
        assert cluster.metrics.locations_asked - asked == (len(parts) if is_long_ago else 0)
        is_long_ago = True
    scan.close()


def test_a_part_by_location_is_read_alone_with_a_location_of_its_own() -> None:
    cluster = clusters(ONE, locations())
    plan = pickle.loads(pickle.dumps(by_locations(cluster, ONE.topic).plan()))
    assert len([part for part in plan.parts if part.read_from is ReadFrom.LOCATION]) > 1
    found: list[NormalRecord] = []
    for part in reversed(plan.parts):
        urls = UrlCache()
        store = LocatedStore(urls, list(cluster.logs[ONE.topic].values()))
        reader = LiveReader(cluster, ReadOptions(columns=RECORD_COLUMNS), located=(urls, store))
        rows = [normal(record) for batch in reader.read(part) for record in iter_consumer_records(batch)]
        found = rows + found

    assert found == ONE.truth("committed")


def test_nothing_that_can_be_kept_or_shown_holds_a_url() -> None:
    def fault(name: str, url: str) -> bytes | None:
        raise AccessDeniedError("denied", source=url.partition("?")[0])

    scan = by_locations(clusters(ONE, locations(with_index=True)), ONE.topic, fault=fault)
    assert records_of(scan) == ONE.truth("committed")
    plan = scan.plan()
    shown = [repr(plan), str(plan), repr(scan.metrics), repr(pickle.dumps(plan)), repr(pickle.dumps(scan.metrics))]

    assert scan.metrics.url_refreshes == 0
    assert not any(CANARY in text for text in shown)


def once(error: StorageError | FormatError) -> tuple[Fault, list[str]]:
    """A store that fails at its first read."""
    seen: list[str] = []

    def fault(name: str, url: str) -> bytes | None:
        seen.append(name)
        if len(seen) == 1:
            raise error
        return None

    return fault, seen


def always(error: StorageError | FormatError) -> Fault:
    def fault(name: str, url: str) -> bytes | None:
        raise error

    return fault


FAULTS = [
    (AccessDeniedError("403"), "access_denied"),
    (LocationExpiredError("expired"), "expired"),
    (ObjectNotFoundError("404"), "not_found"),
    (StorageError("503"), "store_failed"),
    (FormatError("damaged"), "segment_corrupt"),
]
RENEWED = [one for one in FAULTS if one[1] != "store_failed"]
"""Stores try again by themselves what only failed."""


@pytest.mark.parametrize(("error", "cause"), RENEWED, ids=[cause for _, cause in RENEWED])
def test_what_fails_once_is_tried_again_and_not_taken_from_the_broker(error: StorageError, cause: str) -> None:
    fault, seen = once(error)
    scan = by_locations(clusters(ONE, locations()), ONE.topic, fault=fault)

    assert records_of(scan) == ONE.truth("committed")
    assert scan.metrics.fallbacks == {}
    assert len(seen) > 1


@pytest.mark.parametrize(("error", "cause"), FAULTS, ids=[cause for _, cause in FAULTS])
def test_what_fails_always_is_taken_from_the_broker_and_counted(error: StorageError, cause: str) -> None:
    scan = by_locations(clusters(ONE, locations()), ONE.topic, fault=always(error))
    with scan:
        found = [normal(record) for record in _quickly(scan)]

    assert found == ONE.truth("committed")
    assert set(scan.metrics.fallbacks) == {cause}
    assert scan.metrics.sources["location"].records == 0
    assert any("by the broker" in note for note in scan.metrics.notes)


def _quickly(scan: LiveScan) -> Iterator[Any]:
    """The records of a scan whose waits are not waited for."""
    reader = LiveReader(
        scan.cluster,
        ReadOptions(columns=RECORD_COLUMNS),
        located=scan._locations(),
        metrics=scan.metrics,
        sleep=lambda seconds: None,
    )
    for part in scan.plan().parts:
        for batch in reader.read(part):
            yield from iter_consumer_records(batch)


def test_damage_in_the_middle_repeats_no_record_and_loses_none() -> None:
    cluster = clusters(ONE, locations())
    data = {f"{s.segment_id}": s.data for log in cluster.logs[ONE.topic].values() for s in log.segments}

    def fault(name: str, url: str) -> bytes | None:
        whole = bytearray(data[url.removeprefix(f"{HOST}/").partition(".")[0]])
        whole[len(whole) // 2] ^= 1
        return bytes(whole)

    scan = by_locations(cluster, ONE.topic, fault=fault)
    assert records_of(scan) == ONE.truth("committed")
    assert set(scan.metrics.fallbacks) == {"segment_corrupt"}
    assert scan.metrics.sources["location"].records > 0


def test_what_retention_took_away_is_out_of_range() -> None:
    cluster = clusters(ONE, locations())

    def fault(name: str, url: str) -> bytes | None:
        cluster.logs[ONE.topic][0].log_start = cluster.logs[ONE.topic][0].local_start
        raise ObjectNotFoundError("404")

    with pytest.raises(OffsetOutOfRangeError) as caught:
        records_of(by_locations(cluster, ONE.topic, fault=fault))
    assert "were deleted while they were read" in str(caught.value)


Lie = Callable[[RemoteLogSegmentLocation], RemoteLogSegmentLocation]
LIES: dict[str, Lie] = {
    "another segment's offsets": lambda one: replace(one, first_offset=one.last_offset + 1, last_offset=1 << 40),
    "an offset below": lambda one: replace(one, last_offset=one.first_offset - 1),
    "a format that was not requested": lambda one: replace(one, storage_format="Other"),
    "no size": lambda one: replace(one, size=0),
    "a start behind the end": lambda one: replace(one, start=one.size),
    "a stop behind the end": lambda one: replace(one, stop=one.size + 1),
    "an expiry in the past": lambda one: replace(one, expiry_ms=1),
    "no URL": lambda one: replace(one, signed_url=None, object_location="s3://bucket/key"),
    "epochs that fall": lambda one: replace(one, leader_epochs=((5, 0), (4, 1))),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_location_that_cannot_be_is_dropped_and_counted(lie: Lie) -> None:
    good = locations()

    def locate(segment: ServedSegment, at: int, last: int) -> RemoteLogSegmentLocation | None:
        found = good(segment, at, last)
        return None if found is None else lie(found)

    scan = by_locations(clusters(ONE, locate), ONE.topic)

    assert records_of(scan) == ONE.truth("committed")
    assert scan.metrics.locations_rejected > 0
    assert scan.metrics.sources["location"].records == 0


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize("batches", [1, 2])
def test_what_lies_behind_the_bytes_that_a_location_names_is_read_too(batches: int, isolation: str) -> None:
    good = locations()

    def locate(segment: ServedSegment, at: int, last: int) -> RemoteLogSegmentLocation | None:
        found = good(segment, at, last)
        below = [batch for batch in segment.batches if batch.stop <= at]
        stop = sum(len(batch.data) for batch in segment.batches[: len(below) + batches])
        return None if found is None else replace(found, stop=stop)

    scan = by_locations(clusters(ONE, locate), ONE.topic, isolation)

    assert records_of(scan) == ONE.truth(isolation)
    assert scan.metrics.fallbacks == {}


def test_a_location_that_begins_behind_the_batch_asked_for_loses_none_of_its_records() -> None:
    good = locations()

    def locate(segment: ServedSegment, at: int, last: int) -> RemoteLogSegmentLocation | None:
        found = good(segment, at, last)
        below = [batch for batch in segment.batches if batch.stop <= at]
        start = sum(len(batch.data) for batch in segment.batches[: len(below) + 1])
        return replace(found, start=start) if found is not None and start < found.size else found

    scan = by_locations(clusters(ONE, locate), ONE.topic)

    assert records_of(scan) == ONE.truth("committed")
    assert scan.metrics.fallbacks == {}


def test_a_location_that_lies_only_when_it_is_read_is_dropped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LONG_AGO, -1)
    good, lie = locations(), False

    def locate(segment: ServedSegment, at: int, last: int) -> RemoteLogSegmentLocation | None:
        found = good(segment, at, last)
        return replace(found, last_offset=at - 1) if lie and found is not None else found

    scan = by_locations(clusters(ONE, locate), ONE.topic)
    assert any(part.read_from is ReadFrom.LOCATION for part in scan.plan().parts)
    lie = True

    assert records_of(scan) == ONE.truth("committed")
    assert scan.metrics.fallbacks["location_rejected"] > 0


def test_the_bytes_of_another_segment_are_not_delivered() -> None:
    cluster = clusters(ONE, locations())
    segments = [s for log in cluster.logs[ONE.topic].values() for s in log.segments]
    assert len(segments) > 1

    def fault(name: str, url: str) -> bytes | None:
        asked = url.removeprefix(f"{HOST}/").partition(".")[0]
        other = next(s for s in segments if s.segment_id != asked)
        mine = next(s for s in segments if s.segment_id == asked)
        return (other.data * 9)[: len(mine.data)]

    assert records_of(by_locations(cluster, ONE.topic, fault=fault)) == ONE.truth("committed")


@pytest.mark.parametrize(
    "url",
    [
        "http://bucket.s3.amazonaws.com/a.log?X-Amz-Signature=canary-signature",
        "https://127.0.0.1:1/a.log?X-Amz-Signature=canary-signature",
        "https://169.254.169.254/latest/meta-data",
        "https://store.example/a.log",
        "file:///etc/passwd",
    ],
)
def test_a_url_that_must_not_be_asked_is_dropped_before_a_byte_is_sent(url: str) -> None:
    good = locations()

    def locate(segment: ServedSegment, at: int, last: int) -> RemoteLogSegmentLocation | None:
        found = good(segment, at, last)
        return None if found is None else replace(found, signed_url=url)

    cluster = clusters(ONE, locate)
    request = Request(topic=ONE.topic)
    scan = LiveScan(lambda: cluster, request, open_located=lambda on_refresh: open_located(None, on_refresh))

    assert records_of(scan) == ONE.truth("committed")
    assert set(scan.metrics.fallbacks) == {"location_rejected"}
    assert not any(CANARY in note for note in scan.metrics.notes)


def test_a_location_that_nobody_asked_for_is_an_error_and_no_endless_loop() -> None:
    cluster = clusters(ONE, locations())
    request = Request(topic=ONE.topic)
    made = cluster.fetcher
    cluster.fetcher = lambda *a, **k: made(*a, **{**k, "locations": RemoteReads()})  # type: ignore[method-assign]

    with pytest.raises(ProtocolError, match="that was not requested"):
        list(LiveScan(lambda: cluster, request).records())


def test_a_peer_that_names_another_segment_each_time_is_not_asked_for_ever() -> None:
    good = locations()
    given = 0

    def locate(segment: ServedSegment, at: int, last: int) -> RemoteLogSegmentLocation | None:
        nonlocal given
        given += 1
        assert given < 1000, "asked for ever"
        found = good(segment, at, last)
        soon = int(time.time() * 1000) + 10_000
        other = uuid_text(UUID(int=given + (1 << 99)).bytes)
        assert other is not None
        return None if found is None else replace(found, segment_id=other, expiry_ms=soon)

    scan = by_locations(clusters(ONE, locate), ONE.topic)

    assert records_of(scan) == ONE.truth("committed")
    assert set(scan.metrics.fallbacks) == {"expired"}
