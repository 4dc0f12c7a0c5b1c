"""KIP-207 on a real cluster: the end of a partition never goes backwards, whoever has just begun to lead it."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_kit.clients import Sent, producer, send
from kafka_kit.racks import Racks

from segreader.broker.client import BrokerClient
from segreader.broker.messages import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    EpochWanted,
    OffsetWanted,
)
from segreader.broker.settings import ClientSettings
from segreader.isolation import IsolationLevel

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]

START_MS = 1_700_000_000_000


def write(racks: Racks, topic: str, count: int, **settings: Any) -> None:
    with producer(racks.steady, **settings) as made:
        send(made, topic, [Sent(value=b"value", timestamp_ms=START_MS + number) for number in range(count)])


def listed(client: BrokerClient, topic: str, timestamp: int) -> int:
    (found,) = client.list_offsets([OffsetWanted(topic, 0, timestamp)], IsolationLevel.READ_UNCOMMITTED)
    return found.offset


def test_the_end_that_a_new_leader_does_not_know_yet_is_waited_for(racks: Racks, topic: str) -> None:
    racks.cluster.create_topic(topic, replicas=[[2, 1, 3]])
    with BrokerClient(racks.bootstrap, ClientSettings(request_timeout_ms=2000)) as client:
        for _ in range(6):  # the new leader may have learnt the end before it is asked
            racks.leaders.wait_for(topic, lambda led: led.in_sync == {1, 2, 3})
            racks.leaders.move(topic, 2)
            write(racks, topic, 10)
            end = listed(client, topic, LATEST)
            with racks.leaders.frozen(3):
                write(racks, topic, 10, acks=1, enable_idempotence="false")  # above what all in-sync replicas have
                racks.leaders.move(topic, 1)
                assert listed(client, topic, LATEST) >= end
            if client.metrics.errors["OFFSET_NOT_AVAILABLE"]:
                break
        assert client.metrics.errors["OFFSET_NOT_AVAILABLE"] > 0


def test_the_end_never_goes_backwards_while_leaders_change(racks: Racks, client: BrokerClient, topic: str) -> None:
    racks.cluster.create_topic(topic, replicas=[[1, 2, 3]])
    ends = []
    for leader in (2, 3, 1, 3, 2):
        write(racks, topic, 5)
        racks.leaders.move(topic, leader)
        ends += [listed(client, topic, LATEST) for _ in range(3)]

    assert ends == sorted(ends)
    assert ends[-1] == 25


def test_every_special_offset_is_what_kafkas_own_tool_says(racks: Racks, client: BrokerClient, topic: str) -> None:
    racks.cluster.create_topic(topic, replicas=[[1, 2]], segment_bytes=1000)
    write(racks, topic, 100, batch_size=500)
    racks.cluster.upload(topic)
    write(racks, topic, 5)
    racks.cluster.admin.delete_records({racks.cluster.partitions(topic)[0]: 7})
    truth = racks.cluster.offsets(topic)[0]

    assert listed(client, topic, EARLIEST) == truth.earliest == 7
    assert listed(client, topic, LATEST) == truth.latest == 105
    assert listed(client, topic, EARLIEST_LOCAL) == truth.earliest_local == 100
    assert listed(client, topic, LATEST_TIERED) == truth.latest_tiered == 99
    assert listed(client, topic, MAX_TIMESTAMP) == 104  # of what is local: the broker does not look into the store
    assert listed(client, topic, START_MS + 50) == 50
    assert listed(client, topic, START_MS + 1000) == -1


def test_an_epoch_ends_where_the_next_leader_began(racks: Racks, client: BrokerClient, topic: str) -> None:
    racks.cluster.create_topic(topic, replicas=[[1, 2]])
    write(racks, topic, 10)
    old = racks.leaders.of(topic).epoch
    new = racks.leaders.move(topic, 2).epoch
    write(racks, topic, 10)

    ends = client.epoch_ends([EpochWanted(topic, 0, old)])
    assert [(one.leader_epoch, one.end_offset) for one in ends] == [(old, 10)]
    ends = client.epoch_ends([EpochWanted(topic, 0, new)])
    assert [(one.leader_epoch, one.end_offset) for one in ends] == [(new, 20)]
