"""One scan over the remote tier and a live cluster, against the Java consumer: whatever became of transactions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from kafka_kit.clients import Headers, Sent, producer, send, transaction
from kafka_kit.java import JavaReader
from kafka_kit.racks import Racks
from kafka_kit.scanned import scanned

from segreader.broker.client import BrokerClient
from segreader.broker.partition_fetcher import PartitionFetcher
from segreader.isolation import IsolationLevel

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]

SEGMENT = 4000
"""Bytes of a segment: about sixty of the records here, in batches of ten."""
START_MS = 1_700_000_000_000
HEADERS: tuple[Headers, ...] = ((), (("a", b"1"), ("a", None), ("b", b"")))


def records(count: int, text: bytes = b"value") -> list[Sent]:
    return [
        Sent(
            value=None if number % 11 == 0 else text + b"-%d" % number,
            key=None if number % 3 == 0 else b"key-%d" % number,
            timestamp_ms=START_MS + number,
            headers=HEADERS[number % 5 == 0],
        )
        for number in range(count)
    ]


class Log:
    """One partition that a test writes: each step is in segments of its own size, uploaded when it says so."""

    def __init__(self, racks: Racks, topic: str) -> None:
        self.racks, self.topic = racks, topic
        racks.cluster.create_topic(topic, replicas=[[2, 3]], segment_bytes=SEGMENT)

    def write(self, count: int, text: bytes = b"plain") -> None:
        """Records outside any transaction."""
        with producer(self.racks.steady, batch_num_messages=10) as made:
            send(made, self.topic, records(count, text))

    @contextlib.contextmanager
    def open(self, count: int, *, is_kept: bool, name: str = "one") -> Iterator[Callable[[int], None]]:
        """A transaction that has written the records and is open until the block ends; what it yields writes more."""
        fresh = records(count, b"kept" if is_kept else b"aborted")
        name = f"{self.topic}-{name}"
        with transaction(
            self.racks.steady, self.topic, fresh, name=name, is_kept=is_kept, batch_num_messages=10
        ) as more:
            yield lambda again: more(records(again, b"more"))
        with producer(self.racks.steady, transactional_id=name):
            pass  # let in when the markers are written: before, an upload ends below the transaction

    def end(self, count: int, *, is_kept: bool, name: str = "one") -> None:
        """A transaction that ends at once."""
        with self.open(count, is_kept=is_kept, name=name):
            pass

    def upload(self) -> None:
        """All that can be: closed segments below the last stable offset."""
        self.racks.cluster.upload_closed(self.topic)


@pytest.fixture
def log(racks: Racks, topic: str) -> Log:
    """A topic of one partition."""
    return Log(racks, topic)


@pytest.fixture
def agree(racks: Racks, java: JavaReader) -> Callable[[str], None]:
    """Compares, for both isolation levels, what both kinds of scan give with what the Java consumer gives."""

    def check(topic: str) -> None:
        for isolation in ("read_committed", "read_uncommitted"):
            while True:
                truth = java.read(racks.bootstrap, topic, isolation=isolation)
                live = scanned(f"kafka://{racks.bootstrap}", topic, isolation_level=isolation)
                stored = scanned(
                    racks.cluster.location, topic, bootstrap_servers=racks.bootstrap, isolation_level=isolation
                )
                if live == stored == truth:
                    break
                # A transaction's markers may be written a moment after its end was told.
                if java.read(racks.bootstrap, topic, isolation=isolation) == truth:
                    assert live == truth
                    assert stored == truth

    return check


def test_committed_in_the_remote_tier_and_in_the_local_one(log: Log, agree: Callable[[str], None]) -> None:
    log.end(100, is_kept=True)
    log.write(100)
    log.upload()
    log.end(30, is_kept=True)
    agree(log.topic)


def test_aborted_in_the_remote_tier_with_its_marker_there(log: Log, agree: Callable[[str], None]) -> None:
    log.end(100, is_kept=False)
    log.write(200)
    log.upload()
    log.write(10)
    agree(log.topic)


def test_aborted_in_the_remote_tier_with_its_marker_in_a_later_segment_there(
    log: Log, agree: Callable[[str], None]
) -> None:
    with log.open(10, is_kept=False):
        log.write(300)
    log.write(100)
    log.upload()
    log.write(10)
    agree(log.topic)


def test_aborted_in_the_remote_tier_with_its_marker_in_the_local_one(log: Log, agree: Callable[[str], None]) -> None:
    with log.open(10, is_kept=False):
        log.write(200)
    log.upload()
    agree(log.topic)


def test_aborted_in_the_remote_tier_with_its_marker_above_the_last_stable_offset(
    log: Log, agree: Callable[[str], None]
) -> None:
    with contextlib.ExitStack() as older:
        with log.open(150, is_kept=False, name="aborted"):
            older.enter_context(log.open(1, is_kept=True, name="older"))
        log.upload()
        log.write(10)
        agree(log.topic)


def test_no_fetch_that_reads_nothing_remote_lists_what_was_aborted_there(log: Log) -> None:
    """Why a gateway gives the rows of transaction indexes, and no list: its probes cannot tell one."""
    log.end(10, is_kept=False, name="within")
    with log.open(5, is_kept=False, name="across"):
        log.write(200)
    log.upload()
    marks = log.racks.cluster.offsets(log.topic)[0]
    with BrokerClient(log.racks.bootstrap) as client:

        def first_offsets(at: int, max_bytes: int) -> tuple[bool, list[int] | None]:
            level = IsolationLevel.READ_COMMITTED
            fetcher = PartitionFetcher(client, log.topic, 0, at, isolation_level=level, rack="", max_bytes=max_bytes)
            with fetcher:
                answer = fetcher.poll()
            aborted = answer.aborted
            return bool(answer.records), None if aborted is None else sorted({first for _, first in aborted})

        assert marks.earliest_local > 11
        assert first_offsets(0, 1 << 20) == (True, [0])  # of the records that it reads
        assert first_offsets(0, 0) == (False, None)
        assert first_offsets(marks.latest, 1) == (False, [])
        assert first_offsets(marks.earliest_local, 1) == (True, [11])  # what ended before is not listed


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_transaction_on_both_sides_of_the_seam(log: Log, agree: Callable[[str], None], is_kept: bool) -> None:
    with log.open(100, is_kept=is_kept) as more:
        log.write(50)
        more(10)
    log.upload()
    log.end(5, is_kept=not is_kept)
    agree(log.topic)


def test_an_open_transaction_ends_what_is_committed(log: Log, agree: Callable[[str], None]) -> None:
    log.write(200)
    log.upload()
    with log.open(10, is_kept=True):
        log.write(20)
        agree(log.topic)
    agree(log.topic)


def test_many_producers_at_once(log: Log, agree: Callable[[str], None]) -> None:
    for turn in range(3):
        with contextlib.ExitStack() as several:
            for number in range(4):
                several.enter_context(log.open(20, is_kept=(number + turn) % 2 == 0, name=f"producer-{number}"))
            log.write(5)
        if turn == 1:
            log.upload()
    agree(log.topic)


def test_everything_in_the_remote_tier(log: Log, agree: Callable[[str], None]) -> None:
    log.end(50, is_kept=False)
    log.end(50, is_kept=True)
    log.racks.cluster.upload(log.topic)
    agree(log.topic)


def test_nothing_in_the_remote_tier(log: Log, agree: Callable[[str], None]) -> None:
    log.end(10, is_kept=False)
    log.end(10, is_kept=True)
    agree(log.topic)


def test_records_that_were_deleted_are_not_read_though_they_are_stored(log: Log, agree: Callable[[str], None]) -> None:
    log.end(30, is_kept=False)
    log.write(200)
    log.upload()
    (partition,) = log.racks.cluster.partitions(log.topic)
    log.racks.cluster.admin.delete_records({partition: 77})
    agree(log.topic)


def test_a_compacted_topic(racks: Racks, java: JavaReader, topic: str) -> None:
    racks.cluster.create_topic(
        topic,
        segment_bytes=2000,
        remote_storage_enable="false",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="100",
    )
    with producer(racks.steady, batch_num_messages=10) as made:
        for _ in range(5):
            send(made, topic, [Sent(value=b"%d" % number, key=b"%d" % (number % 20)) for number in range(100)])

    def is_compacted() -> bool:
        return len(java.read(racks.bootstrap, topic)) < 300

    racks.cluster.wait_until(is_compacted, 60.0, "it is not compacted")
    racks.cluster.configure(topic, {"max.compaction.lag.ms": str(1 << 40), "min.cleanable.dirty.ratio": "1.0"})
    while True:
        truth = java.read(racks.bootstrap, topic)
        found = scanned(f"kafka://{racks.bootstrap}", topic)
        if java.read(racks.bootstrap, topic) == truth:  # the cleaner may have been at its last pass
            break
    assert found == truth


def test_what_an_unclean_election_took_away_is_not_read_though_it_is_stored(
    log: Log, agree: Callable[[str], None]
) -> None:
    racks, topic = log.racks, log.topic
    log.write(50, b"common")
    try:
        with racks.leaders.frozen(3):
            racks.leaders.wait_for(topic, lambda led: led.in_sync == {2})
            log.write(200, b"lost")
            log.upload()
            racks.cluster.node(2).freeze()
            racks.leaders.wait_for(topic, lambda led: led.leader == -1)
        racks.leaders.let_lag_lead(topic, 3)
        log.write(300, b"other")
    finally:
        racks.cluster.node(2).thaw()
        racks.cluster.wait_ready()
    racks.leaders.wait_for(topic, lambda led: led.in_sync == {2, 3})
    log.upload()
    log.write(10, b"local")
    agree(topic)
