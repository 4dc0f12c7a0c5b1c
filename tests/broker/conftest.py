"""One broker for all tests here, started at first use; they are skipped where it cannot be had."""

from __future__ import annotations

import pytest
from kafka_kit.cluster import Cluster
from servers.pool import ServerPool


@pytest.fixture(scope="session")
def kafka(servers: ServerPool) -> Cluster:
    """A cluster of one node with tiered storage. Mark the tests ``xdist_group("broker")``: one broker."""
    cluster: Cluster = servers.get("kafka")
    return cluster
