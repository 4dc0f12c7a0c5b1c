"""KIP-392 on a real cluster: a reader is served by the replica of its rack, and leaves one that has nothing to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kafka_kit.clients import Sent, producer, send
from kafka_kit.fetched import take
from kafka_kit.racks import RACKS, Racks

from segreader.broker.client import BrokerClient
from segreader.broker.messages import LATEST, OffsetWanted
from segreader.broker.partition_fetcher import PartitionFetcher
from segreader.broker.settings import ClientSettings
from segreader.isolation import IsolationLevel

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]

Reader = tuple[BrokerClient, PartitionFetcher]


@pytest.fixture
def reader(racks: Racks) -> Iterator[Callable[[str, str], Reader]]:
    """Makes a reader in a rack, from the start of a topic, that waits for no broker longer than six seconds.

    One that leaves a broker sooner may do so because the machine stood still.
    """
    opened: list[BrokerClient] = []

    def make(topic: str, rack: str) -> Reader:
        settings = ClientSettings(rack=rack, request_timeout_ms=6000, fetch_max_wait_ms=200)
        client = BrokerClient(racks.bootstrap, settings)
        opened.append(client)
        isolation = IsolationLevel.READ_UNCOMMITTED
        return client, PartitionFetcher(client, topic, 0, 0, isolation_level=isolation, rack=rack, max_bytes=1 << 20)

    yield make
    for client in opened:
        client.close()


def values(start: int, stop: int) -> list[bytes]:
    return [b"value-%d" % number for number in range(start, stop)]


def write(racks: Racks, topic: str, start: int, stop: int) -> None:
    with producer(racks.steady, batch_num_messages=10) as made:
        send(made, topic, [Sent(value=value) for value in values(start, stop)])


@pytest.mark.parametrize("node", [1, 2, 3])
def test_a_reader_is_served_by_the_replica_of_its_rack(
    racks: Racks, reader: Callable[[str, str], Reader], topic: str, node: int
) -> None:
    racks.cluster.create_topic(topic, replicas=[[1, 2, 3]])
    write(racks, topic, 0, 100)
    client, fetcher = reader(topic, RACKS[node])

    found = take(fetcher, 100)

    assert found == list(enumerate(values(0, 100)))
    assert {number for number, size in client.metrics.fetched_bytes.items() if size} == {node}


def test_what_is_in_the_remote_tier_comes_from_the_replica_of_the_rack_too(
    racks: Racks, reader: Callable[[str, str], Reader], topic: str
) -> None:
    racks.cluster.create_topic(topic, replicas=[[1, 2, 3]], segment_bytes=1000)
    write(racks, topic, 0, 200)
    racks.cluster.upload(topic)
    client, fetcher = reader(topic, "b")

    assert take(fetcher, 200) == list(enumerate(values(0, 200)))
    assert {number for number, size in client.metrics.fetched_bytes.items() if size} == {2}


def test_a_follower_that_is_behind_gives_the_rest_later(
    racks: Racks, reader: Callable[[str, str], Reader], topic: str
) -> None:
    racks.cluster.create_topic(topic, replicas=[[1, 2, 3]])
    client, fetcher = reader(topic, "c")
    found = []
    for start in range(0, 100, 10):  # each time the leader's end is ahead of what the follower gives out
        write(racks, topic, start, start + 10)
        (end,) = client.list_offsets([OffsetWanted(topic, 0, LATEST)], IsolationLevel.READ_UNCOMMITTED)
        assert end.offset == start + 10
        found += take(fetcher, 10)

    assert found == list(enumerate(values(0, 100)))
    assert client.metrics.fetched_bytes[3] > 0


def test_a_replica_that_says_nothing_is_left_for_the_leader(
    racks: Racks, reader: Callable[[str, str], Reader], topic: str
) -> None:
    racks.cluster.create_topic(topic, replicas=[[1, 2, 3]])
    write(racks, topic, 0, 10)
    client, fetcher = reader(topic, "c")
    found = take(fetcher, 10)
    assert set(client.metrics.fetched_bytes) == {3}

    with racks.leaders.frozen(3):
        write(racks, topic, 10, 20)  # returns when the cluster has given the frozen one up
        found += take(fetcher, 10)

    assert found == list(enumerate(values(0, 20)))
    assert client.metrics.fetched_bytes[1] > 0
