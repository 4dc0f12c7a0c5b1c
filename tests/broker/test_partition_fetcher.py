"""One partition, read through moves, replicas, truncations, locations and lies; requests are counted."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from fake_broker import CLOSE, SILENCE, FakeBroker, FakeKafka, Heard, Raw, Reply, fetched, new_topic_id
from hand_clock import HandClock

from segreader.broker.client import BrokerClient
from segreader.broker.messages import (
    EARLIEST,
    FetchAnswer,
    FetchedPartition,
    FetchPartition,
    LeaderAndEpoch,
    Node,
    RemoteLogSegmentLocation,
)
from segreader.broker.partition_fetcher import PartitionFetcher
from segreader.broker.rules.fallback import RemoteReads, RemoteStep
from segreader.broker.rules.truncation import FetchPosition, parse_batch_facts
from segreader.broker.settings import ClientSettings
from segreader.errors import (
    AccessDeniedError,
    AuthorizationError,
    BrokerError,
    ConnectionFailedError,
    OffsetOutOfRangeError,
    ProtocolError,
    TruncatedLogError,
)
from segreader.isolation import IsolationLevel

T = new_topic_id(1)
# Sockets wait in real time: a machine that stops for a second or two makes no answer late.
SETTINGS = ClientSettings(
    request_timeout_ms=4000, connect_timeout_ms=4000, operation_timeout_ms=4000, fetch_max_wait_ms=0, rack="b"
)


def batch(base: int, last: int, epoch: int = 5, size: int = 100) -> bytes:
    """The header of a batch, and zeros for the rest of it."""
    head = struct.pack(">qiibIhi", base, size - 12, epoch, 2, 0, 0, last - base)
    return head + bytes(size - len(head))


def records(*batches: bytes, until: int = 100, **fields: Any) -> FetchAnswer:
    data = memoryview(b"".join(batches))
    return fetched(T, records=data, high_watermark=until, last_stable_offset=until, log_start_offset=0, **fields)


def error(code: int, **fields: Any) -> FetchAnswer:
    return fetched(T, error=code, **fields)


@dataclass
class Two:
    """Brokers 1 and 2; ``t``-0 is led by 1 in epoch 5. A Fetch gets a batch of ten offsets from where it begins."""

    kafka: FakeKafka
    clock: HandClock = field(default_factory=HandClock)
    fetches: list[tuple[int, int, int]] = field(default_factory=list)
    end: int = 100
    hint: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for broker in self.kafka.brokers:
            broker.handlers["Fetch"] = self.serve(broker.node_id)
            broker.handlers["ListOffsets"] = self.listed
            broker.handlers["OffsetForLeaderEpoch"] = self.ended
        self.epochs: dict[int, int] = {5: 1000}

    def serve(self, node_id: int) -> Callable[[Heard], Reply]:
        def answer(heard: Heard) -> Reply:
            asked = heard.message.topics[0].partitions[0]
            self.fetches.append((node_id, asked.fetch_offset, asked.current_leader_epoch))
            leader = self.kafka.leaders["t", 0]
            if asked.current_leader_epoch < leader.leader_epoch:
                return error(74, **self.hint)
            if asked.fetch_offset >= self.end:
                return records(until=self.end)
            base = asked.fetch_offset
            return records(batch(base, base + 9, leader.leader_epoch), until=self.end)

        return answer

    def listed(self, heard: Heard) -> Reply:
        time = heard.message.topics[0].partitions[0].timestamp
        found = {
            "partition_index": 0,
            "offset": 20 if time == EARLIEST else self.end,
            "timestamp": -1,
            "leader_epoch": 5,
        }
        return {"topics": [{"name": "t", "partitions": [found]}]}

    def ended(self, heard: Heard) -> Reply:
        epoch = heard.message.topics[0].partitions[0].leader_epoch
        known = [each for each in sorted(self.epochs) if each <= epoch]
        found = {"partition": 0, "leader_epoch": known[-1] if known else -1}
        found["end_offset"] = self.epochs[known[-1]] if known else -1
        return {"topics": [{"topic": "t", "partitions": [found]}]}

    def move(self, node_id: int, epoch: int, *, hint: bool = True) -> None:
        """Another broker leads; the old one says 74, with a hint."""
        old = self.kafka.leaders["t", 0].leader_id
        new = self.kafka.broker(node_id)
        if hint:
            self.hint = {
                "current_leader": LeaderAndEpoch(node_id, epoch),
                "nodes": (Node(node_id, "127.0.0.1", new.port),),
            }
        self.kafka.leaders["t", 0] = LeaderAndEpoch(node_id, epoch)  # a Fetch that is under way meets it, too
        self.kafka.broker(old).say("Fetch", error(74, **self.hint))

    def client(self, settings: ClientSettings = SETTINGS) -> BrokerClient:
        return BrokerClient(self.kafka.bootstrap, settings, clock=self.clock, jitter=lambda: 0.5)


@pytest.fixture
def two() -> Iterator[Two]:
    brokers = [FakeBroker(each) for each in (1, 2)]
    made = Two(FakeKafka(brokers, {"t": T}, {("t", 0): LeaderAndEpoch(1, 5)}))
    yield made
    for broker in brokers:
        broker.close()
        assert not broker.errors


@pytest.fixture
def client(two: Two) -> Iterator[BrokerClient]:
    with two.client() as made:
        yield made


def read(fetcher: PartitionFetcher) -> tuple[int, int]:
    """First and last offset of the next answer; the position is put behind it."""
    told = fetcher.poll()
    assert told.error == 0
    assert told.records
    facts = [each for each, _ in parse_batch_facts(told.records)]
    fetcher.advance(facts[-1].last_offset + 1, facts[-1].leader_epoch)
    return facts[0].base_offset, facts[-1].last_offset


def test_records_come_from_the_leader_with_its_epoch_and_topic_id(two: Two, client: BrokerClient) -> None:
    with PartitionFetcher(client, "t", 0, 30, reads_ahead=False) as fetcher:
        told = fetcher.poll()
        assert (told.topic, told.topic_id, told.partition) == ("t", T, 0)
        assert fetcher.ends.high_watermark == 100
        assert two.fetches == [(1, 30, 5)]
        assert fetcher.source == two.kafka.broker(1).address
        asked = two.kafka.broker(1).requests[-1]
    assert asked.version == 18
    assert (asked.message.isolation_level, asked.message.rack_id, asked.message.session_epoch) == (1, "b", -1)


def test_the_next_fetch_is_under_way_once_the_position_moved(two: Two, client: BrokerClient) -> None:
    with PartitionFetcher(client, "t", 0, 0) as fetcher:
        assert read(fetcher) == (0, 9)
        assert client.metrics.requests["Fetch"] == 2
        assert read(fetcher) == (10, 19)
        assert client.metrics.requests["Fetch"] == 3
    assert client.metrics.requests["Metadata"] == 1


def test_nothing_is_fetched_ahead_at_the_stop_or_at_the_end(two: Two, client: BrokerClient) -> None:
    with PartitionFetcher(client, "t", 0, 80, stop=90) as fetcher:
        read(fetcher)
    with PartitionFetcher(client, "t", 0, 90) as fetcher:
        read(fetcher)
        assert fetcher.poll().records is not None
    assert [offset for _, offset, _ in two.fetches] == [80, 90, 100]


def test_what_was_fetched_ahead_for_another_offset_is_not_given(two: Two, client: BrokerClient) -> None:
    with PartitionFetcher(client, "t", 0, 0) as fetcher:
        read(fetcher)
        fetcher.advance(15, 5)
        assert read(fetcher) == (15, 24)
        fetcher.seek(70)
        assert read(fetcher) == (70, 79)


def test_positions_never_go_back_but_by_seek(two: Two, client: BrokerClient) -> None:
    with PartitionFetcher(client, "t", 0, 30) as fetcher:
        with pytest.raises(ValueError, match="never go back"):
            fetcher.advance(29, 5)
        fetcher.seek(29)
        assert fetcher.position == FetchPosition(29)


@dataclass
class HeldMetadata:
    """From ``hold`` on Metadata is not answered before ``let_go``."""

    kafka: FakeKafka
    is_over: threading.Event = field(default_factory=threading.Event)

    def hold(self) -> None:
        for broker in self.kafka.brokers:
            broker.handlers["Metadata"] = self._answer

    def let_go(self) -> None:
        self.is_over.set()

    def _answer(self, heard: Heard) -> Reply:
        self.is_over.wait(20)
        return self.kafka.metadata(heard)


@pytest.fixture
def held(two: Two) -> Iterator[HeldMetadata]:
    made = HeldMetadata(two.kafka)
    yield made
    made.let_go()


def until(is_so: Callable[[], bool]) -> None:
    over = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < over
        time.sleep(0.005)


@pytest.mark.parametrize("reads_ahead", [False, True])
def test_a_new_leader_is_read_at_once_and_metadata_is_asked_for_beside_it(
    two: Two, held: HeldMetadata, reads_ahead: bool
) -> None:
    with (
        two.client(replace(SETTINGS, request_timeout_ms=30_000)) as client,
        PartitionFetcher(client, "t", 0, 0, reads_ahead=reads_ahead) as fetcher,
    ):
        read(fetcher)
        held.hold()
        two.move(2, 6)
        two.epochs = {5: 20, 6: 1000}
        while two.fetches[-1][0] == 1:
            read(fetcher)
        assert client.metrics.requests["Metadata"] == 1
        read_to = [read(fetcher) for _ in range(4)][-1]
        assert read_to[0] >= 50
        assert two.fetches[-1][0] == 2
        assert two.clock.waits == []
        until(lambda: len(two.kafka.broker(1).asked("Metadata") + two.kafka.broker(2).asked("Metadata")) == 2)

        two.kafka.leaders["t", 1] = LeaderAndEpoch(1, 0)
        held.let_go()
        until(lambda: len(client.cluster.partitions("t")) == 2)
        read(fetcher)
    assert client.metrics.requests["Metadata"] == 2


def test_metadata_that_is_too_old_is_asked_for_beside_the_reading(two: Two, held: HeldMetadata) -> None:
    with (
        two.client(replace(SETTINGS, request_timeout_ms=30_000)) as client,
        PartitionFetcher(client, "t", 0, 0) as fetcher,
    ):
        read(fetcher)
        held.hold()
        two.clock.at_s += 301
        assert [read(fetcher) for _ in range(2)][-1] == (20, 29)
        until(lambda: client.metrics.requests["Metadata"] == 2)


def test_who_closes_a_client_does_not_wait_for_metadata_under_way_and_its_thread_ends(
    two: Two, held: HeldMetadata
) -> None:
    def is_asking() -> bool:
        return any(thread.name == "segreader-metadata" for thread in threading.enumerate())

    client = two.client(replace(SETTINGS, request_timeout_ms=30_000))
    with PartitionFetcher(client, "t", 0, 0) as fetcher:
        read(fetcher)
        held.hold()
        two.clock.at_s += 301
        read(fetcher)
        until(lambda: client.metrics.requests["Metadata"] == 2)
    began = time.monotonic()
    client.close()
    assert time.monotonic() - began < 10
    assert is_asking()
    held.let_go()
    until(lambda: not is_asking())


def test_metadata_that_cannot_be_had_beside_the_reading_does_not_end_it(two: Two, client: BrokerClient) -> None:
    with PartitionFetcher(client, "t", 0, 0, reads_ahead=False) as fetcher:
        read(fetcher)
        for broker in two.kafka.brokers:
            broker.handlers["Metadata"] = lambda heard: Raw(b"\0\0\0\4\0\0\0\0")
        two.move(2, 6)
        two.epochs = {5: 10, 6: 1000}
        assert [read(fetcher) for _ in range(5)][-1] == (50, 59)


def test_a_new_leader_that_has_not_heard_of_it_is_asked_again_soon(two: Two, client: BrokerClient) -> None:
    with PartitionFetcher(client, "t", 0, 0, reads_ahead=False) as fetcher:
        fetcher.poll()
        two.move(2, 6)
        two.kafka.broker(2).say("Fetch", error(75), error(75))
        read(fetcher)
    assert two.clock.waits == [0.01, 0.02]


def test_without_a_hint_metadata_is_asked_for(two: Two, client: BrokerClient) -> None:
    with PartitionFetcher(client, "t", 0, 0, reads_ahead=False) as fetcher:
        fetcher.poll()
        two.move(2, 6, hint=False)
        read(fetcher)
    assert two.fetches[-1] == (2, 0, 6)
    assert client.metrics.requests["Metadata"] == 2


def test_a_hint_of_an_older_epoch_is_not_followed(two: Two, client: BrokerClient) -> None:
    with PartitionFetcher(client, "t", 0, 0, reads_ahead=False) as fetcher:
        two.kafka.broker(1).say("Fetch", error(74, current_leader=LeaderAndEpoch(2, 4)))
        read(fetcher)
    assert [node for node, *_ in two.fetches] == [1]


def test_brokers_that_name_each_other_for_ever_end_with_the_operations_time(two: Two, client: BrokerClient) -> None:
    epoch = [5]

    def other(node_id: int) -> Callable[[Heard], Reply]:
        def answer(heard: Heard) -> Reply:
            epoch[0] += 1
            return error(6, current_leader=LeaderAndEpoch(node_id, epoch[0]))

        return answer

    two.kafka.broker(1).handlers["Fetch"], two.kafka.broker(2).handlers["Fetch"] = other(2), other(1)
    with PartitionFetcher(client, "t", 0, 0) as fetcher, pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
        fetcher.poll()
    assert client.metrics.requests["Fetch"] < 50


def test_the_preferred_replica_is_asked_and_the_leader_when_it_fails(two: Two, client: BrokerClient) -> None:
    two.kafka.broker(1).say("Fetch", records(preferred_read_replica=2))
    with PartitionFetcher(client, "t", 0, 0, reads_ahead=False) as fetcher:
        read(fetcher)
        two.kafka.broker(2).say("Fetch", CLOSE)
        read(fetcher)
        read(fetcher)
    assert two.fetches == [(2, 0, 5), (1, 10, 5), (1, 20, 5)]
    assert two.clock.waits == []


def test_a_leader_that_always_names_another_is_not_followed_for_ever_without_waiting(
    two: Two, client: BrokerClient
) -> None:
    two.kafka.broker(1).handlers["Fetch"] = lambda heard: records(preferred_read_replica=2)
    two.kafka.broker(2).handlers["Fetch"] = lambda heard: records(preferred_read_replica=1)
    with PartitionFetcher(client, "t", 0, 0) as fetcher, pytest.raises(BrokerError):
        fetcher.poll()
    assert client.metrics.requests["Fetch"] < 50


def test_out_of_range_at_a_replica_is_asked_at_the_leader(two: Two, client: BrokerClient) -> None:
    two.kafka.broker(1).say("Fetch", records(preferred_read_replica=2))
    two.kafka.broker(2).say("Fetch", error(1))
    with PartitionFetcher(client, "t", 0, 30) as fetcher:
        read(fetcher)
    assert two.fetches[0] == (1, 30, 5)
    assert client.metrics.requests["ListOffsets"] == 0


def test_an_offset_that_is_gone_is_told_with_what_is_left(two: Two, client: BrokerClient) -> None:
    two.kafka.broker(1).say("Fetch", error(1))
    with (
        PartitionFetcher(client, "t", 0, 5) as fetcher,
        pytest.raises(OffsetOutOfRangeError, match="20 <= offset < 100"),
    ):
        fetcher.poll()


def test_an_offset_beyond_the_end_is_told(two: Two, client: BrokerClient) -> None:
    two.kafka.broker(1).say("Fetch", error(1))
    with PartitionFetcher(client, "t", 0, 500) as fetcher, pytest.raises(OffsetOutOfRangeError, match="beyond the end"):
        fetcher.poll()


def test_an_offset_beyond_the_end_with_an_epoch_is_validated_first(two: Two, client: BrokerClient) -> None:
    two.kafka.broker(1).handlers["Fetch"] = lambda heard: error(1)
    two.epochs = {5: 40}
    with PartitionFetcher(client, "t", 0, 500, leader_epoch_of_position=5) as fetcher:
        with pytest.raises(TruncatedLogError) as caught:
            fetcher.poll()
        assert caught.value.offset == 40


def test_a_leader_that_says_all_is_well_and_out_of_range_is_not_asked_for_ever(two: Two, client: BrokerClient) -> None:
    two.kafka.broker(1).handlers["Fetch"] = lambda heard: error(1)
    fetcher = PartitionFetcher(client, "t", 0, 500, leader_epoch_of_position=5)
    with fetcher, pytest.raises(OffsetOutOfRangeError, match="beyond the end"):
        fetcher.poll()
    assert client.metrics.requests["Fetch"] == 1
    fetcher = PartitionFetcher(client, "t", 0, 500)
    fetcher.advance(501, 5)
    with fetcher, pytest.raises(OffsetOutOfRangeError, match="beyond the end"):
        fetcher.poll()
    assert client.metrics.requests["Fetch"] == 3


def test_records_that_were_read_and_are_gone_are_told_with_the_common_point(two: Two, client: BrokerClient) -> None:
    with PartitionFetcher(client, "t", 0, 0, reads_ahead=False) as fetcher:
        for _ in range(3):
            read(fetcher)
        two.move(2, 6)
        two.epochs = {5: 17, 6: 1000}
        with pytest.raises(TruncatedLogError, match="epoch 5 ends at 17, expected offset 30 in epoch 5") as caught:
            fetcher.poll()
        assert caught.value.offset == 17
        fetcher.seek(17, 5)
        assert read(fetcher) == (17, 26)


def test_a_history_without_a_common_point_is_told(two: Two, client: BrokerClient) -> None:
    two.epochs = {}
    with PartitionFetcher(client, "t", 0, 30, leader_epoch_of_position=3) as fetcher:
        with pytest.raises(TruncatedLogError) as caught:
            fetcher.poll()
        assert caught.value.offset is None


def test_records_of_a_lost_branch_are_not_given(two: Two, client: BrokerClient) -> None:
    two.epochs = {3: 15, 5: 1000}
    two.kafka.broker(1).say("Fetch", records(batch(0, 9, 3), batch(10, 14, 3), batch(15, 24, 3)))
    with PartitionFetcher(client, "t", 0, 0, reads_ahead=False) as fetcher:
        assert read(fetcher) == (0, 14)
        assert read(fetcher) == (15, 24)
    assert two.fetches == [(1, 15, 5)]
    assert client.metrics.requests["OffsetForLeaderEpoch"] == 1


def test_a_lost_branch_behind_a_compacted_end_is_stepped_over(two: Two, client: BrokerClient) -> None:
    two.epochs = {3: 15, 5: 1000}
    two.kafka.broker(1).say("Fetch", records(batch(0, 9, 3), batch(12, 24, 3)))
    with PartitionFetcher(client, "t", 0, 0, reads_ahead=False) as fetcher:
        assert read(fetcher) == (0, 9)
        assert fetcher.position.offset == 10
        assert read(fetcher) == (15, 24)


def test_a_broker_that_gives_only_a_lost_branch_is_left(two: Two, client: BrokerClient) -> None:
    two.epochs = {3: 0, 5: 1000}
    two.kafka.broker(1).handlers["Fetch"] = lambda heard: records(batch(0, 9, 3))
    with PartitionFetcher(client, "t", 0, 0) as fetcher, pytest.raises(BrokerError):
        fetcher.poll()
    assert client.metrics.requests["Fetch"] < 20


@pytest.mark.parametrize(
    "lie",
    [
        fetched(T, 1, records=memoryview(batch(0, 9))),
        fetched(new_topic_id(2), 0, records=memoryview(batch(0, 9))),
        FetchAnswer((FetchedPartition(None, T, 0), FetchedPartition(None, T, 0))),
        FetchAnswer((FetchedPartition(None, T, 0), FetchedPartition(None, T, 1))),
    ],
)
def test_another_partitions_records_are_refused(two: Two, client: BrokerClient, lie: FetchAnswer) -> None:
    two.kafka.broker(1).say("Fetch", lie)
    with PartitionFetcher(client, "t", 0, 0) as fetcher, pytest.raises(ProtocolError, match="not about the partition"):
        fetcher.poll()


def test_a_topic_that_was_made_again_is_not_read_on(two: Two, client: BrokerClient) -> None:
    with PartitionFetcher(client, "t", 0, 0, reads_ahead=False) as fetcher:
        read(fetcher)
        two.kafka.topics["t"] = new_topic_id(9)
        two.kafka.broker(1).say("Fetch", error(100))
        with pytest.raises(BrokerError, match="deleted and made again"):
            fetcher.poll()


def test_a_read_of_another_topic_id_than_planned_does_not_begin(two: Two, client: BrokerClient) -> None:
    fetcher = PartitionFetcher(client, "t", 0, 0, topic_id=new_topic_id(9))
    with fetcher, pytest.raises(BrokerError, match="deleted and made again"):
        fetcher.poll()
    assert two.fetches == []


def test_a_throttled_answer_without_topics_is_nothing_yet_and_the_wait_is_kept(two: Two, client: BrokerClient) -> None:
    two.kafka.broker(1).say("Fetch", FetchAnswer((), throttle_ms=900))
    with PartitionFetcher(client, "t", 0, 0) as fetcher:
        told = fetcher.poll()
        assert (told.error, told.records, told.topic) == (0, None, "t")
        assert two.clock.waits == []
        assert read(fetcher) == (0, 9)
    assert two.clock.waits == [0.9]
    assert client.metrics.throttled_ms == 900


def test_a_throttle_time_longer_than_an_operation_puts_its_end_off(two: Two) -> None:
    two.kafka.broker(1).say("Fetch", FetchAnswer((), throttle_ms=9000), FetchAnswer((), throttle_ms=5000))
    with (
        two.client(replace(SETTINGS, operation_timeout_ms=1500)) as client,
        PartitionFetcher(client, "t", 0, 0, reads_ahead=False) as fetcher,
    ):
        assert [fetcher.poll().throttle_ms for _ in range(2)] == [9000, 5000]
        assert read(fetcher) == (0, 9)
        assert two.clock.waits == [9.0, 5.0]
        assert client.metrics.connections == 1


def test_what_failed_after_a_throttle_time_still_has_the_time_of_an_operation(two: Two) -> None:
    two.kafka.broker(1).say("Fetch", FetchAnswer((), throttle_ms=9000), error(78), error(78), error(78))
    with (
        two.client(replace(SETTINGS, operation_timeout_ms=1500)) as client,
        PartitionFetcher(client, "t", 0, 0, reads_ahead=False) as fetcher,
    ):
        fetcher.poll()
        assert read(fetcher) == (0, 9)


def test_a_throttle_time_without_end_is_told(two: Two, client: BrokerClient) -> None:
    two.kafka.broker(1).handlers["Fetch"] = lambda heard: FetchAnswer((), throttle_ms=2**31 - 1)
    with PartitionFetcher(client, "t", 0, 0) as fetcher:
        assert fetcher.poll().throttle_ms == 2**31 - 1
        fetcher.poll()
    assert sum(two.clock.waits) < 1


@pytest.mark.parametrize("then", ["metadata is silent", "the leader hangs up", "the leader is silent"])
def test_the_error_at_the_deadline_names_the_last_error_of_a_broker(two: Two, then: str) -> None:
    with (
        BrokerClient(
            two.kafka.bootstrap, replace(SETTINGS, request_timeout_ms=300, operation_timeout_ms=1200)
        ) as client,
        PartitionFetcher(client, "t", 0, 0) as fetcher,
    ):
        two.kafka.broker(1).say("Fetch", error(6))
        if then == "metadata is silent":
            for broker in two.kafka.brokers:
                broker.handlers["Metadata"] = lambda heard: SILENCE
        reply = CLOSE if then == "the leader hangs up" else SILENCE
        two.kafka.broker(1).handlers["Fetch"] = lambda heard: reply
        with pytest.raises(ConnectionFailedError, match=r"NOT_LEADER_OR_FOLLOWER \(6\)") as caught:
            fetcher.poll()
    assert caught.value.code == 6


def test_a_leader_that_cannot_be_asked_for_its_epochs_names_the_error_before(two: Two) -> None:
    with (
        BrokerClient(
            two.kafka.bootstrap, replace(SETTINGS, request_timeout_ms=300, operation_timeout_ms=1200)
        ) as client,
        PartitionFetcher(client, "t", 0, 10, leader_epoch_of_position=5) as fetcher,
    ):
        two.kafka.broker(1).say("OffsetForLeaderEpoch", two.ended)
        two.move(2, 6)
        for broker in two.kafka.brokers:
            broker.handlers["OffsetForLeaderEpoch"] = lambda heard: CLOSE
        with pytest.raises(BrokerError, match=r"FENCED_LEADER_EPOCH \(74\)"):
            fetcher.poll()


def test_answers_without_anything_are_paced(two: Two) -> None:
    two.kafka.broker(1).handlers["Fetch"] = lambda heard: FetchAnswer(())
    with two.client(replace(SETTINGS, fetch_max_wait_ms=500)) as client, PartitionFetcher(client, "t", 0, 0) as fetcher:
        for _ in range(10):
            fetcher.poll()
    assert two.clock.waits[:3] == [0.1, 0.2, 0.4]


def test_an_empty_answer_is_no_end_and_no_error(two: Two, client: BrokerClient) -> None:
    with PartitionFetcher(client, "t", 0, 100) as fetcher:
        assert not fetcher.poll().records
        two.end = 110
        assert read(fetcher) == (100, 109)


def test_a_missing_right_names_topic_and_operation(two: Two, client: BrokerClient) -> None:
    two.kafka.broker(1).say("Fetch", error(29))
    with (
        PartitionFetcher(client, "t", 0, 0) as fetcher,
        pytest.raises(AuthorizationError, match="no right to READ topic t"),
    ):
        fetcher.poll()
    assert two.clock.waits == []


@pytest.mark.parametrize("code", [2, 76, 109, 137])
def test_what_time_does_not_mend_is_raised_with_its_number(two: Two, client: BrokerClient, code: int) -> None:
    two.kafka.broker(1).say("Fetch", error(code))
    with PartitionFetcher(client, "t", 0, 0) as fetcher, pytest.raises(BrokerError, match=str(code)):
        fetcher.poll()


@pytest.mark.parametrize("code", [3, 5, 7, 9, 56, 78, 100, -1])
def test_what_time_mends_is_repeated(two: Two, client: BrokerClient, code: int) -> None:
    two.kafka.broker(1).say("Fetch", error(code), error(code))
    with PartitionFetcher(client, "t", 0, 0) as fetcher:
        assert read(fetcher) == (0, 9)
    assert two.clock.waits == [0.1, 0.2]


def test_a_lost_remote_object_is_told_after_a_few_tries(two: Two, client: BrokerClient) -> None:
    two.kafka.broker(1).handlers["Fetch"] = lambda heard: error(-1)
    with (
        PartitionFetcher(client, "t", 0, 7) as fetcher,
        pytest.raises(BrokerError, match=r"inside the broker.*offset 7"),
    ):
        fetcher.poll()
    assert client.metrics.requests["Fetch"] == 6


def test_a_connection_that_breaks_is_opened_again(two: Two, client: BrokerClient) -> None:
    with PartitionFetcher(client, "t", 0, 0) as fetcher:
        read(fetcher)
        two.kafka.broker(1).hang_up()
        two.kafka.broker(1).say("Fetch", Raw(b"\0\0\1\0half of it"))
        read(fetcher)
        read(fetcher)
        assert fetcher.position.offset == 30


def test_a_cluster_that_is_gone_is_told_when_the_operations_time_is_over(two: Two, client: BrokerClient) -> None:
    with PartitionFetcher(client, "t", 0, 0) as fetcher:
        read(fetcher)
        fetcher.poll()  # was under way
        for broker in two.kafka.brokers:
            broker.close()
        fetcher.advance(20, 5)
        with pytest.raises(ConnectionFailedError):
            fetcher.poll()
    assert 3 <= sum(two.clock.waits) <= 4


def test_brokers_of_before_topic_ids_are_asked_by_name(two: Two, client: BrokerClient) -> None:
    for broker in two.kafka.brokers:
        broker.offers |= {"Fetch": (4, 12), "Metadata": (0, 9)}
    named = FetchAnswer((FetchedPartition("t", None, 0, records=memoryview(batch(0, 9)), high_watermark=10),))
    other = FetchAnswer((FetchedPartition("u", None, 0, records=memoryview(batch(0, 9)), high_watermark=10),))
    two.kafka.broker(1).say("Fetch", named, other)
    with PartitionFetcher(client, "t", 0, 0, reads_ahead=False) as fetcher:
        read(fetcher)
        assert two.kafka.broker(1).requests[-1].version == 12
        with pytest.raises(ProtocolError, match="not about the partition"):
            fetcher.poll()


def location(first: int = 0, last: int = 49, **fields: Any) -> RemoteLogSegmentLocation:
    made = RemoteLogSegmentLocation(
        "nh8MUkprTD2PJ2DRsqPE5Q", first, last, 700, signed_url="https://s3.example/t.log?X-Amz-Signature=c4nary"
    )
    return replace(made, **fields)


def located(value: RemoteLogSegmentLocation, **fields: Any) -> FetchAnswer:
    return records(location=value, extension_version=1, **fields)


def flags(two: Two) -> list[bool]:
    """Whether each Fetch asked for locations: kafka-python keeps tags that it does not know."""
    asked = [each for each in two.kafka.broker(1).requests if each.api == "Fetch"]
    return ["_12480" in (each.message.unknown_tags or {}) for each in asked]


def locate(client: BrokerClient, *numbers: int) -> list[FetchedPartition]:
    client.refresh(["t"], client.deadline())
    wanted = [FetchPartition("t", T, number, 0, stop_offset=90) for number in numbers]
    return list(client.locate(wanted, IsolationLevel.READ_COMMITTED, most_segments=7))


def test_several_locations_come_with_one_request(two: Two, client: BrokerClient) -> None:
    two.kafka.broker(1).say("Fetch", located(location(), following=(location(50, 99),)))
    (told,) = locate(client, 0)
    assert (told.topic, told.partition) == ("t", 0)
    assert told.location is not None
    assert [one.first_offset for one in (told.location, *told.following)] == [0, 50]
    (asked,) = (one for one in two.kafka.broker(1).requests if one.api == "Fetch")
    tags = asked.message.unknown_tags
    assert (tags["_12482"], tags["_12483"]) == (b"\x02" + (90).to_bytes(8, "big"), (7).to_bytes(4, "big"))
    assert asked.message.topics[0].partitions[0].current_leader_epoch == 5
    assert (client.metrics.locations_asked, client.metrics.locations_given) == (1, 2)


@pytest.mark.parametrize("answer", [records(batch(0, 9)), FetchAnswer((), throttle_ms=1), error(6), error(29), CLOSE])
def test_who_gives_no_location_is_left_out_and_a_plain_broker_is_not_asked_again(
    two: Two, client: BrokerClient, answer: Any
) -> None:
    two.kafka.broker(1).say("Fetch", answer)
    assert locate(client, 0) == []
    assert locate(client, 0) == []
    assert len(flags(two)) == (2 if answer is CLOSE else 1)


def test_a_location_is_given_only_if_it_was_asked_for(two: Two, client: BrokerClient) -> None:
    two.kafka.broker(1).say("Fetch", located(location()), located(location()))
    with PartitionFetcher(client, "t", 0, 0, wants_locations=True, reads_ahead=False) as fetcher:
        told = fetcher.poll()
        assert told.location is not None
        assert told.location.last_offset == 49
    with PartitionFetcher(client, "t", 0, 0, reads_ahead=False) as fetcher:
        assert fetcher.poll().location is None
    assert flags(two) == [True, False]
    assert (client.metrics.locations_asked, client.metrics.locations_given) == (1, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"first_offset": 1},
        {"last_offset": -1},
        {"size": 0},
        {"start": 700},
        {"stop": 701},
        {"storage_format": "Other"},
        {"signed_url": None},
        {"expiry_ms": 1},
    ],
)
def test_a_location_that_cannot_be_right_is_counted_and_records_are_asked_for(
    two: Two, client: BrokerClient, wrong: dict[str, Any]
) -> None:
    two.kafka.broker(1).say("Fetch", located(location(**wrong)))
    with PartitionFetcher(client, "t", 0, 0, wants_locations=True, reads_ahead=False) as fetcher:
        assert read(fetcher) == (0, 9)
    assert flags(two) == [True, False]
    assert client.metrics.locations_rejected == 1


def test_a_plain_broker_is_not_asked_for_locations_again(two: Two, client: BrokerClient) -> None:
    with PartitionFetcher(client, "t", 0, 0, wants_locations=True, reads_ahead=False) as fetcher:
        for _ in range(3):
            read(fetcher)
    assert flags(two) == [True, False, False]


def test_a_peer_that_gives_neither_records_nor_location_is_asked_without_the_flag(
    two: Two, client: BrokerClient
) -> None:
    two.kafka.broker(1).say("Fetch", records(extension_version=1))
    with PartitionFetcher(client, "t", 0, 0, wants_locations=True, reads_ahead=False) as fetcher:
        assert not fetcher.poll().records
        assert read(fetcher) == (0, 9)
    assert flags(two) == [True, False]


def test_a_url_that_is_about_to_end_is_renewed_once_and_then_records_are_taken(two: Two, client: BrokerClient) -> None:
    soon = location(expiry_ms=int(two.clock.now() * 1000) + 10_000)
    two.kafka.broker(1).say("Fetch", located(soon), located(soon))
    with PartitionFetcher(client, "t", 0, 0, wants_locations=True, reads_ahead=False) as fetcher:
        assert read(fetcher) == (0, 9)
        read(fetcher)
    assert flags(two) == [True, True, False, False]


def test_fetchers_of_one_partition_share_what_its_reader_remembers(two: Two, client: BrokerClient) -> None:
    soon = location(expiry_ms=int(two.clock.now() * 1000) + 10_000)
    two.kafka.broker(1).say("Fetch", located(location()), located(soon))
    remote = RemoteReads()
    with PartitionFetcher(client, "t", 0, 0, wants_locations=True, remote=remote, reads_ahead=False) as fetcher:
        assert fetcher.poll().location is not None
    assert remote.failed(AccessDeniedError()).step is RemoteStep.RENEW
    with PartitionFetcher(client, "t", 0, 0, wants_locations=True, remote=remote, reads_ahead=False) as fetcher:
        assert read(fetcher) == (0, 9)  # its one renewal is used
    assert flags(two) == [True, True, False]


def test_no_text_of_a_fetcher_shows_a_signed_url(two: Two, client: BrokerClient) -> None:
    two.kafka.broker(1).say("Fetch", located(location()))
    with PartitionFetcher(client, "t", 0, 0, wants_locations=True, reads_ahead=False) as fetcher:
        told = fetcher.poll()
        assert "c4nary" not in f"{fetcher!r} {told!r} {client!r} {client.metrics!r}"


def test_isolation_is_sent_and_the_end_is_that_of_the_isolation(two: Two, client: BrokerClient) -> None:
    answer = fetched(T, records=memoryview(batch(0, 9)), high_watermark=20, last_stable_offset=10)
    for level, ahead in ((IsolationLevel.READ_COMMITTED, 0), (IsolationLevel.READ_UNCOMMITTED, 1)):
        before = client.metrics.requests["Fetch"]
        two.kafka.broker(1).say("Fetch", answer)
        with PartitionFetcher(client, "t", 0, 0, isolation_level=level) as fetcher:
            read(fetcher)
        assert client.metrics.requests["Fetch"] - before == 1 + ahead


@pytest.mark.parametrize("cut", range(0, 301, 7))
def test_facts_are_of_whole_batches_only(cut: int) -> None:
    data = b"".join(batch(10 * each, 10 * each + 9, each) for each in range(3))[:cut]
    facts = parse_batch_facts(memoryview(data))
    assert [(each.base_offset, each.leader_epoch, stop) for each, stop in facts] == [
        (10 * each, each, 100 * each + 100) for each in range(cut // 100)
    ]


@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 5, 2**31 - 1])
def test_damaged_lengths_end_the_walk(length: int) -> None:
    data = bytearray(batch(0, 9))
    struct.pack_into(">i", data, 8, length)
    assert len(parse_batch_facts(memoryview(bytes(data) + batch(10, 19)))) == 0
