"""What a group has committed and how a topic is configured, as a real cluster tells it."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka_kit.clients import Sent, producer, send
from kafka_kit.racks import READER, Racks

from segreader.broker.client import BrokerClient
from segreader.broker.settings import ClientSettings
from segreader.errors import AuthorizationError

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]


@pytest.fixture
def read_on(racks: Racks, topic: str) -> str:
    """A topic of two partitions of which the group of the same name has committed 7 and nothing."""
    racks.cluster.create_topic(topic, 2, replicas=3)
    with producer(racks.steady) as made:
        send(made, topic, [Sent(value=b"%d" % number, partition=number % 2) for number in range(20)])
    consumer = Consumer({"bootstrap.servers": racks.bootstrap, "group.id": topic})
    consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    consumer.close()
    return topic


def test_a_groups_offsets_are_those_it_committed(client: BrokerClient, read_on: str) -> None:
    found = client.committed_offsets(read_on, {read_on: (0, 1)})
    assert {(one.topic, one.partition): one.offset for one in found.offsets} == {(read_on, 0): 7, (read_on, 1): -1}


def test_all_that_a_group_committed_is_found_without_naming_it(client: BrokerClient, read_on: str) -> None:
    found = client.committed_offsets(read_on, None)
    assert [(one.topic, one.partition, one.offset) for one in found.offsets] == [(read_on, 0, 7)]


def test_a_group_that_nobody_knows_has_committed_nothing(client: BrokerClient, read_on: str) -> None:
    found = client.committed_offsets("nobody", {read_on: (0,)})
    assert [one.offset for one in found.offsets] == [-1]


def test_a_group_of_others_is_refused_by_its_name(racks: Racks, read_on: str) -> None:
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": READER.name,
        "sasl.password": READER.password,
    }
    settings = ClientSettings.from_options(options)
    bootstrap = racks.cluster.bootstrap_by("SASL_PLAINTEXT")
    with BrokerClient(bootstrap, settings) as client, pytest.raises(AuthorizationError, match=read_on):
        client.committed_offsets(read_on, {read_on: (0,)})


def test_a_topics_configs_are_those_it_was_given(racks: Racks, client: BrokerClient, topic: str) -> None:
    racks.cluster.create_topic(topic, max_message_bytes=12345)
    found = client.topic_configs([topic], ["remote.storage.enable", "max.message.bytes", "local.retention.ms"])
    assert [dict(one.values) for one in found] == [
        {"remote.storage.enable": "true", "max.message.bytes": "12345", "local.retention.ms": "-2"}
    ]
