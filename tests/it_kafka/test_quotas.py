"""KIP-13 and KIP-219 on a real cluster: a reader over its quota waits as the broker says, and reads everything."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from kafka_kit.clients import Sent, producer, send
from kafka_kit.racks import Racks
from kafka_kit.scanned import scanned

import segreader
from segreader.live.cluster import KafkaCluster
from segreader.live.scan import LiveScan

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]

SLOW = "reader-with-a-quota"
RECORDS = 20_000
BYTES_PER_S = 1_000_000
IMPATIENT = {"client.id": SLOW, "request.timeout.ms": "4000", "default.api.timeout.ms": "4000"}
"""Less than the first waits, of six seconds, and more than a machine may stand still."""


@pytest.fixture
def quota(racks: Racks) -> Iterator[None]:
    """A quota of a megabyte a second for one client id."""
    change = ("--bootstrap-server", racks.steady, "--alter", "--entity-type", "clients", "--entity-name", SLOW)
    command = "kafka.admin.ConfigCommand"
    racks.cluster.tool(command, *change, "--add-config", f"consumer_byte_rate={BYTES_PER_S}")
    yield
    racks.cluster.tool(command, *change, "--delete-config", "consumer_byte_rate")


def write(racks: Racks, topic: str) -> None:
    with producer(racks.steady, batch_size=1 << 17) as made:
        send(made, topic, [Sent(value=b"%8d" % number + bytes(1016)) for number in range(RECORDS)])


@pytest.mark.usefixtures("quota")
def test_a_scan_over_its_quota_with_short_time_outs_gives_every_record(racks: Racks, topic: str) -> None:
    racks.cluster.create_topic(topic, replicas=[[1]], segment_bytes=64 << 20)
    write(racks, topic)

    began = time.monotonic()
    found = scanned(f"kafka://{racks.steady}", topic, broker_options=IMPATIENT)

    assert [one.offset for one in found] == list(range(RECORDS))
    assert [int((one.value or b"")[:8]) for one in found] == list(range(RECORDS))
    assert time.monotonic() - began > 5, "the quota was not in force"


@pytest.mark.usefixtures("quota")
def test_a_scan_over_its_quota_goes_on_at_the_next_leader(racks: Racks, topic: str) -> None:
    racks.cluster.create_topic(topic, replicas=[[1, 2]], segment_bytes=64 << 20)
    write(racks, topic)

    found: list[int] = []
    with segreader.scan(f"kafka://{racks.steady}", topic=topic, broker_options=IMPATIENT) as scan:
        for batch in scan.to_batches():  # the quota holds the rest back at the first leader, each broker has its own
            if not found:
                racks.leaders.move(topic, 2)
            found += batch.column("offset").to_pylist()
        assert isinstance(scan, LiveScan)
        assert isinstance(scan.cluster, KafkaCluster)
        metrics = scan.cluster.client.metrics

    assert found == list(range(RECORDS))
    assert set(metrics.fetched_bytes) == {1, 2}
    assert metrics.errors["FENCED_LEADER_EPOCH"] + metrics.errors["NOT_LEADER_OR_FOLLOWER"] > 0
    assert metrics.requests["Metadata"] > 1
