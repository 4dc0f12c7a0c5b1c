"""KIP-951 on a real cluster: a partition's new leader is found in the old one's answer."""

from __future__ import annotations

from functools import partial

import pytest
from kafka_kit.clients import Sent, producer, send
from kafka_kit.fetched import take
from kafka_kit.racks import Racks

from segreader.broker.client import BrokerClient
from segreader.broker.messages import LATEST, OffsetWanted
from segreader.broker.partition_fetcher import PartitionFetcher
from segreader.broker.settings import ClientSettings
from segreader.errors import BrokerError, SegreaderError
from segreader.isolation import IsolationLevel

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]


def write(racks: Racks, topic: str, value: bytes) -> None:
    with producer(racks.steady) as made:
        send(made, topic, [Sent(value=value)])


def fetcher_of(client: BrokerClient, topic: str, offset: int = 0) -> PartitionFetcher:
    isolation = IsolationLevel.READ_UNCOMMITTED
    return PartitionFetcher(client, topic, 0, offset, isolation_level=isolation, rack="", max_bytes=1 << 20)


def has_asked_again(client: BrokerClient, asked: int) -> bool:
    return client.metrics.requests["Metadata"] > asked


def test_the_first_record_after_a_move_comes_without_metadata_which_is_asked_for_beside_the_next(
    racks: Racks, client: BrokerClient, topic: str
) -> None:
    racks.cluster.create_topic(topic, replicas=[[2, 3, 1]])
    write(racks, topic, b"before")
    fetcher = fetcher_of(client, topic)
    assert take(fetcher, 1) == [(0, b"before")]

    for number, leader in enumerate((3, 2, 1, 2), 1):
        asked = client.metrics.requests["Metadata"]
        racks.leaders.move(topic, leader)
        write(racks, topic, b"after-%d" % number)

        assert take(fetcher, 1) == [(number, b"after-%d" % number)]
        assert client.metrics.requests["Metadata"] == asked
        assert take(fetcher, 0) == []
        racks.cluster.wait_until(partial(has_asked_again, client, asked), 10.0, "Metadata is not asked for")
        assert client.leader(topic, 0).leader_id == leader


def test_a_leader_that_died_is_followed_by_asking_others(racks: Racks, client: BrokerClient, topic: str) -> None:
    racks.cluster.create_topic(topic, replicas=[[3, 2]])
    write(racks, topic, b"before")
    fetcher = fetcher_of(client, topic)
    assert take(fetcher, 1) == [(0, b"before")]

    node = racks.cluster.node(3)
    node.kill()
    try:
        racks.leaders.wait_for(topic, lambda led: led.leader == 2)
        write(racks, topic, b"after")
        assert take(fetcher, 1) == [(1, b"after")]
    finally:
        node.start()
        racks.cluster.wait_ready()


def test_the_error_at_a_deadline_says_with_its_code_that_nobody_leads(racks: Racks, topic: str) -> None:
    racks.cluster.create_topic(topic, replicas=[[3]])
    node = racks.cluster.node(3)
    with BrokerClient(racks.steady, ClientSettings(operation_timeout_ms=8_000)) as client:
        assert client.leader(topic, 0).leader_id == 3
        node.kill()
        try:
            racks.leaders.wait_for(topic, lambda led: led.leader == -1)
            with pytest.raises(BrokerError, match=r"LEADER_NOT_AVAILABLE \(5\)") as caught:
                client.list_offsets([OffsetWanted(topic, 0, LATEST)])
            assert caught.value.code == 5
        finally:
            node.start()
            racks.cluster.wait_ready()


def test_a_topic_made_anew_under_the_same_name_is_not_read_on(racks: Racks, client: BrokerClient, topic: str) -> None:
    racks.cluster.create_topic(topic, replicas=[[1]])
    write(racks, topic, b"old")
    fetcher = fetcher_of(client, topic)
    assert take(fetcher, 1) == [(0, b"old")]

    racks.cluster.admin.delete_topics([topic])
    racks.cluster.wait_until(lambda: topic not in racks.cluster.admin.list_topics(), 30.0, "it is not deleted")
    racks.cluster.create_topic(topic, replicas=[[1]])
    for _ in range(3):
        write(racks, topic, b"new")

    with pytest.raises(SegreaderError):
        take(fetcher, 1)
