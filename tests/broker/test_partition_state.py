"""How a reader's way through a partition carries out the rules, with a client that only answers."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from segreader.broker import partition_state
from segreader.broker.client import BrokerClient
from segreader.broker.messages import (
    EARLIEST,
    ClusterMetadata,
    EpochEnd,
    FetchAnswer,
    FetchedPartition,
    LeaderAndEpoch,
    ListedOffset,
    Node,
    OffsetWanted,
    PartitionMetadata,
    TopicMetadata,
)
from segreader.broker.partition_state import PartitionState, Tries
from segreader.broker.rules.backoff import USUAL, Deadline
from segreader.broker.rules.leader import KnownCluster
from segreader.broker.rules.truncation import FetchPosition, PositionState
from segreader.errors import BrokerError, OffsetOutOfRangeError, TruncatedLogError
from segreader.isolation import IsolationLevel

NODES = (Node(1, "b1", 9092), Node(2, "b2", 9092))


class AnsweringClient:
    """A client whose cluster is as told, and whose waits and refreshes are written down."""

    def __init__(self, epoch: int = 5) -> None:
        self.cluster = KnownCluster()
        partition = PartitionMetadata(0, leader=LeaderAndEpoch(1, epoch))
        self.cluster.merge(
            ClusterMetadata(NODES, (TopicMetadata(0, "t", "AAAAAAAAAAAAAAAAAAAAAQ", False, (partition,)),))
        )
        self.settings = SimpleNamespace(metadata_max_age_ms=300_000)
        self.metrics = SimpleNamespace(errors=Counter(), retries=Counter())
        self.backoff_policy = USUAL
        self.bounds = (10, 100)
        self.waits: list[int] = []
        self.refreshes = 0
        self.wanted_refreshes = 0
        self.time_ms = 0

    def jitter(self) -> float:
        return 0.5

    def leader(self, topic: str, partition: int) -> LeaderAndEpoch:
        return self.cluster.leader(topic, partition)

    def now_ms(self) -> int:
        return self.time_ms

    def deadline(self) -> Deadline:
        return Deadline.after(self.time_ms)

    def wait(self, wait_ms: int) -> None:
        self.waits.append(wait_ms)
        self.time_ms += wait_ms

    def refresh(self, topics: list[str], deadline: Deadline) -> None:
        self.refreshes += 1

    wait_to_repeat = BrokerClient.wait_to_repeat

    def want_refresh(self, topic: str) -> None:
        self.wanted_refreshes += 1

    def list_offsets(self, wanted: list[OffsetWanted], isolation_level: IsolationLevel) -> tuple[ListedOffset, ...]:
        return tuple(
            ListedOffset(each.topic, each.partition, 0, self.bounds[each.timestamp != EARLIEST]) for each in wanted
        )


def course(client: AnsweringClient, position: FetchPosition, rack: str = "b") -> PartitionState:
    isolation = IsolationLevel.READ_COMMITTED
    return PartitionState(client, "t", 0, None, position, rack=rack, isolation_level=isolation)  # type: ignore[arg-type]


def tries(client: AnsweringClient) -> Tries:
    return Tries.of(client)  # type: ignore[arg-type]


def takes(reader: PartitionState, one: Tries, error: int, *, by: int = 1, sent_epoch: int = 5, **fields: Any) -> bool:
    told = FetchedPartition("t", None, 0, error, **fields)
    return reader.takes(told, FetchAnswer((told,), nodes=NODES), one, by=by, sent_epoch=sent_epoch)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[EpochEnd]:
    """What the leader will say of epochs, one answer after another."""
    told: list[EpochEnd] = []
    monkeypatch.setattr(partition_state, "ask_epoch_end", lambda client, wanted, deadline: told.pop(0))
    return told


def test_a_lost_position_is_told_every_time_until_the_reader_goes_elsewhere(ends: list[EpochEnd]) -> None:
    client = AnsweringClient()
    reader, one = course(client, FetchPosition(50, 4)), tries(client)
    ends.append(EpochEnd("t", 0, 0, 4, 30))
    for _ in range(3):
        with pytest.raises(TruncatedLogError) as caught:
            reader.is_valid(one)
        assert caught.value.offset == 30

    reader.reading.seek(FetchPosition(30, 4), is_valid=True)
    assert reader.is_valid(one)


def test_a_position_beyond_the_end_is_validated_and_found_truncated(ends: list[EpochEnd]) -> None:
    client = AnsweringClient()
    reader, one = course(client, FetchPosition(150)), tries(client)
    reader.reading.advance(150, 4)
    assert not takes(reader, one, 1)
    assert reader.reading.state is PositionState.AWAIT_VALIDATION
    ends.append(EpochEnd("t", 0, 0, 4, 90))

    with pytest.raises(TruncatedLogError) as caught:
        reader.is_valid(one)
    assert caught.value.offset == 90


def test_beyond_the_end_of_a_leader_without_an_epoch_nothing_can_be_validated_and_the_read_does_not_spin() -> None:
    client = AnsweringClient(epoch=-1)
    reader = course(client, FetchPosition(150, 4))

    with pytest.raises(OffsetOutOfRangeError, match="beyond the end"):
        takes(reader, tries(client), 1, sent_epoch=-1)
    assert client.waits == []


def test_a_valid_position_that_is_still_beyond_the_end_is_out_of_range(ends: list[EpochEnd]) -> None:
    client = AnsweringClient()
    reader, one = course(client, FetchPosition(150, 4)), tries(client)
    ends.append(EpochEnd("t", 0, 0, 4, 150))
    assert reader.is_valid(one)

    with pytest.raises(OffsetOutOfRangeError):
        takes(reader, one, 1)


def test_a_new_leader_is_asked_without_a_wait_and_without_metadata_before() -> None:
    client = AnsweringClient()
    reader, one = course(client, FetchPosition(50)), tries(client)
    assert not takes(reader, one, 74, current_leader=LeaderAndEpoch(2, 6))
    reader.follow_leader()

    assert (client.waits, client.refreshes, client.wanted_refreshes) == ([], 0, 1)
    assert reader.choose().node_id == 2


def test_a_new_leader_that_has_not_heard_of_it_is_asked_again_after_10_ms() -> None:
    client = AnsweringClient()
    reader, one = course(client, FetchPosition(50)), tries(client)
    takes(reader, one, 74, current_leader=LeaderAndEpoch(2, 6))
    reader.follow_leader()
    for _ in range(3):
        takes(reader, one, 75, by=2, sent_epoch=6)

    assert client.waits == [10, 20, 40]
    assert client.refreshes == 0


def test_a_new_leader_validates_a_position_whose_epoch_is_known(ends: list[EpochEnd]) -> None:
    client = AnsweringClient()
    reader, one = course(client, FetchPosition(50)), tries(client)
    reader.reading.advance(51, 5)
    takes(reader, one, 74, current_leader=LeaderAndEpoch(2, 6))
    reader.follow_leader()
    ends += [EpochEnd("t", 0, 75), EpochEnd("t", 0, 0, 5, 60)]

    assert [reader.is_valid(one), reader.is_valid(one)] == [False, True]
    assert client.waits == [10]


def test_a_follower_that_is_behind_sends_the_reader_to_the_leader_without_an_error() -> None:
    client = AnsweringClient()
    reader, one = course(client, FetchPosition(50)), tries(client)
    takes(reader, one, 0, preferred_read_replica=2)
    assert reader.choose().node_id == 2

    assert not takes(reader, one, 1, by=2)
    assert (reader.choose().node_id, reader.choose().rack) == (1, "")
    assert client.waits == []


def test_a_topic_that_was_made_again_ends_the_read() -> None:
    client = AnsweringClient()
    reader = course(client, FetchPosition(50))
    partition = PartitionMetadata(0, leader=LeaderAndEpoch(1, 0))
    again = TopicMetadata(0, "t", "AAAAAAAAAAAAAAAAAAAAAg", False, (partition,))
    client.cluster.merge(ClusterMetadata(NODES, (again,)))

    with pytest.raises(BrokerError, match="made again"):
        reader.follow_leader()


def test_errors_without_end_end_with_the_operations_time() -> None:
    client = AnsweringClient()
    reader, one = course(client, FetchPosition(50)), tries(client)
    with pytest.raises(BrokerError) as caught:
        for _ in range(1_000):
            takes(reader, one, 9)

    assert caught.value.code == 9
    assert client.time_ms <= 60_000
