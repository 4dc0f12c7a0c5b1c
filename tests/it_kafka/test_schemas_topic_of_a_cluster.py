"""The topic ``_schemas``, read from a real cluster while the log cleaner works on it."""

from __future__ import annotations

import pytest
from kafka_kit.clients import Sent, producer, send
from kafka_kit.racks import Racks
from typed_orders import HERE

from segreader.scans import scan
from segreader.schemas import survey, topic

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]


def test_schemas_are_read_from_a_cluster_as_from_its_log_directory(racks: Racks) -> None:
    racks.cluster.create_topic("_schemas", cleanup_policy="compact", remote_storage_enable="false")
    rows = list(scan(HERE / "log", topic="_schemas", isolation_level="read_uncommitted").records())
    with producer(racks.steady) as made:
        send(made, "_schemas", [Sent(key=one.key, value=one.value) for one in rows])

    source = topic(f"kafka://{racks.bootstrap}")

    for name in ("orders-avro", "orders-protobuf", "orders-json", None):
        assert source.learn(name) == topic(HERE / "log").learn(name), name
    assert topic(bootstrap_servers=racks.bootstrap, subject="address").learn(None).ids


def test_a_live_topic_is_surveyed_as_its_files_are(racks: Racks) -> None:
    racks.cluster.create_topic("orders-avro", partitions=2)
    with producer(racks.steady) as made:
        for partition in (0, 1):
            rows = scan(HERE / "remote", topic="orders-avro", partitions=partition).records()
            sent = [
                Sent(key=one.key, value=one.value, timestamp_ms=one.timestamp_ms, partition=partition) for one in rows
            ]
            send(made, "orders-avro", sent)
    of_files = survey(HERE / "remote", topic="orders-avro", schemas=HERE / "schemas.json")
    of_cluster = survey(f"kafka://{racks.bootstrap}", topic="orders-avro", schemas=HERE / "schemas.json")
    assert of_cluster.uses == of_files.uses
