"""KIP-320 on a real cluster: records that were read and then lost are told, though the log grew past them."""

from __future__ import annotations

import pytest
from kafka_kit.clients import Sent, producer, send
from kafka_kit.fetched import take
from kafka_kit.racks import Racks

from segreader.broker.client import BrokerClient
from segreader.broker.partition_fetcher import PartitionFetcher
from segreader.broker.settings import ClientSettings
from segreader.errors import TruncatedLogError
from segreader.isolation import IsolationLevel

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]

COMMON, LOST, REWRITTEN = 30, 20, 40


def write(racks: Racks, topic: str, count: int, text: bytes) -> None:
    with producer(racks.steady) as made:
        send(made, topic, [Sent(value=text) for _ in range(count)])


def test_an_unclean_election_is_seen_before_a_record_of_the_other_history(racks: Racks, topic: str) -> None:
    racks.cluster.create_topic(topic, replicas=[[2, 3]])
    write(racks, topic, COMMON, b"common")
    client = BrokerClient(racks.bootstrap, ClientSettings(request_timeout_ms=2000))
    isolation = IsolationLevel.READ_UNCOMMITTED
    fetcher = PartitionFetcher(client, topic, 0, 0, isolation_level=isolation, rack="", max_bytes=1 << 20)
    try:
        with racks.leaders.frozen(3):
            racks.leaders.wait_for(topic, lambda led: led.in_sync == {2})
            write(racks, topic, LOST, b"lost")
            assert len(take(fetcher, COMMON + LOST)) == COMMON + LOST
            racks.cluster.node(2).freeze()
            racks.leaders.wait_for(topic, lambda led: led.leader == -1)
        racks.leaders.let_lag_lead(topic, 3)
        write(racks, topic, REWRITTEN, b"rewritten")

        with pytest.raises(TruncatedLogError) as seen:
            take(fetcher, 1)
        assert seen.value.offset == COMMON
    finally:
        racks.cluster.node(2).thaw()
        racks.cluster.wait_ready()
        client.close()
    racks.leaders.wait_for(topic, lambda led: led.in_sync == {2, 3})
