"""Random histories of a partition, its remote tier and its live log: a live scan against the history itself.

``SEGREADER_EXAMPLES=15000`` makes every property here run that many examples, other ones each time.
"""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fake_cluster import FakeCluster, ServedLog, of_simulation
from histories import ELECTIONS, KERNELS, ORDINARY, SPLITS, TROUBLE, Event, examples, histories, play, seen
from hypothesis import assume, given
from hypothesis import strategies as st
from located_store import LocatedStore, locations
from simulator import TOPIC, SimulatedPartition

from segreader.errors import AccessDeniedError, LocationExpiredError, ObjectNotFoundError, StorageError
from segreader.format.batch import Record
from segreader.isolation import IsolationLevel
from segreader.live.locations import UrlCache
from segreader.live.planner import plan_live
from segreader.live.reader import LiveReader
from segreader.live.scan import LiveScan
from segreader.plan.request import ReadOptions, Request, parse_bounds
from segreader.read.records import RECORD_COLUMNS, iter_consumer_records
from segreader.stored.source import open_source
from segreader.testing.batches import COMMIT


def truth(partition: SimulatedPartition, level: IsolationLevel, start: int, stop: int) -> list[Record]:
    """What a consumer of the leader's log is given of these offsets, by brute force."""
    found: list[Record] = []
    stable = partition.last_stable_offset
    for place, batch in enumerate(partition.batches):
        if batch.marker is not None:
            continue
        if level is IsolationLevel.READ_COMMITTED:
            if batch.base_offset >= stable:
                break
            if batch.is_transactional and _fate(partition, place) != COMMIT:
                continue
        found += [record for record in batch.records if start <= record.offset < stop]
    return found


def _fate(partition: SimulatedPartition, place: int) -> int | None:
    producer_id = partition.batches[place].producer_id
    behind = partition.batches[place + 1 :]
    return next((b.marker for b in behind if b.marker is not None and b.producer_id == producer_id), None)


def local_starts(partition: SimulatedPartition, log: ServedLog) -> list[int]:
    """Where the leader's own disk may begin: at one of its segments, and nothing below it may be on it alone."""
    reach = log.log_start
    live = {id(batch) for batch in partition.batches}
    for batch in partition.batches:
        has_copy = any(b is batch for s in partition.remote if s.is_whole for b in s.batches)
        if id(batch) not in live or batch.stop <= reach:
            continue
        if batch.base_offset > reach or not has_copy:
            break
        reach = batch.stop
    return [log.log_start, *(roll for roll in partition.rolls if log.log_start < roll <= reach)]


def drawn(partition: SimulatedPartition, data: st.DataObject) -> tuple[ServedLog, IsolationLevel, int, int]:
    """The log as a cluster serves it, an isolation level, and a range of offsets."""
    assume(partition.batches)
    log = of_simulation(partition)
    assume(log.log_start < log.end)
    starts = local_starts(partition, log)
    log.local_start = data.draw(st.sampled_from([*starts, starts[-1], starts[-1]]), "local start")
    level = data.draw(st.sampled_from(list(IsolationLevel)), "level")
    end = log.stable if level is IsolationLevel.READ_COMMITTED else log.end
    assume(end > log.log_start)
    start = data.draw(st.sampled_from([log.log_start, data.draw(st.integers(log.log_start, end))]), "start")
    stop = data.draw(st.sampled_from([log.end, data.draw(st.integers(start, log.end + 2))]), "stop")
    return log, level, start, max(start, stop)


def judge(partition: SimulatedPartition, data: st.DataObject, *, from_store: bool) -> None:
    """Read a random range and hold it against the truth."""
    log, level, start, stop = drawn(partition, data)
    chance = random.Random(data.draw(st.integers(0, 1 << 16), "chance"))
    prefers_store = data.draw(st.booleans(), "prefers store")
    cluster = FakeCluster({TOPIC: {0: log}}, chance=chance)
    with TemporaryDirectory() as name:
        arguments: dict[str, Any] = {}
        if from_store and any(one.is_whole for one in partition.remote):
            partition.write(Path(name, "remote"))
            arguments["source"] = open_source(Path(name, "remote"))
        request = Request(
            topic=TOPIC,
            bounds=parse_bounds((start, stop)),
            isolation_level=level,
            prefers_store=prefers_store,
        )
        split_bytes = data.draw(st.sampled_from(SPLITS), "split_bytes")
        options = ReadOptions(split_bytes=split_bytes, kernel=data.draw(st.sampled_from(KERNELS), "kernel"))
        with LiveScan(lambda: cluster, request, options=options, **arguments) as scan:
            assert seen(list(scan.records())) == seen(truth(partition, level, start, stop))
            assert scan.metrics.fallbacks == {}
            _check_seams(scan)


def _check_seams(scan: LiveScan) -> None:
    """Parts follow each other without overlap or gap, from the first offset to the end."""
    plan = scan.plan()
    (told,) = plan.partitions_asked
    edges = [told.seam.start]
    for part in plan.parts:
        assert part.offsets.start == edges[-1]
        edges.append(part.stop)
    assert edges[-1] == (told.seam.stop if plan.parts else told.seam.start)


@examples(150)
@given(histories(*ORDINARY), st.data())
def test_a_live_scan_from_the_store_gives_what_a_consumer_sees(events: list[Event], data: st.DataObject) -> None:
    judge(play(events), data, from_store=True)


@examples(150)
@given(histories(*ORDINARY, *ORDINARY, *TROUBLE, *ELECTIONS), st.data())
def test_elections_retention_and_deletion_change_no_record(events: list[Event], data: st.DataObject) -> None:
    judge(play(events), data, from_store=True)


@examples(150)
@given(histories(*ORDINARY, *ORDINARY, *TROUBLE, *ELECTIONS), st.data())
def test_brokers_that_read_remote_segments_themselves_give_the_same(events: list[Event], data: st.DataObject) -> None:
    judge(play(events), data, from_store=False)


@examples(150)
@given(histories(*ORDINARY, *ORDINARY, *TROUBLE, *ELECTIONS), st.data())
def test_locations_that_fail_at_random_change_no_record(events: list[Event], data: st.DataObject) -> None:
    partition = play(events)
    log, level, start, stop = drawn(partition, data)
    chance = random.Random(data.draw(st.integers(0, 1 << 16), "chance"))
    share = data.draw(st.sampled_from([0, 0, 0.2, 0.7]), "share of reads that fail")
    cluster = FakeCluster({TOPIC: {0: log}}, chance=chance, locate=locations(with_index=True))
    cluster.lists_aborted = data.draw(st.booleans(), "lists aborted")

    def fault(name: str, url: str) -> bytes | None:
        if chance.random() < share:
            raise chance.choice([StorageError, AccessDeniedError, ObjectNotFoundError, LocationExpiredError])("fault")
        return None

    urls = UrlCache()
    store = LocatedStore(urls, [log], fault)
    request = Request(topic=TOPIC, bounds=parse_bounds((start, stop)), isolation_level=level)
    plan = plan_live(cluster, request, located=(urls, store))
    options = ReadOptions(columns=RECORD_COLUMNS, kernel=data.draw(st.sampled_from(KERNELS), "kernel"))
    reader = LiveReader(cluster, options, located=(urls, store), sleep=lambda seconds: None)
    found = [r for part in plan.parts for batch in reader.read(part) for r in iter_consumer_records(batch)]

    assert seen(found) == seen(truth(partition, level, start, stop))
    if not share:
        assert set(reader.metrics.fallbacks) <= {"no_location"}
