"""One cluster of three nodes for all tests here, started at first use; they are skipped where it cannot be had."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_kit.java import JavaReader
from kafka_kit.racks import Racks
from servers.pool import ServerPool

from segreader.broker.client import BrokerClient
from segreader.broker.settings import ClientSettings


@pytest.fixture(scope="session")
def racks(servers: ServerPool) -> Racks:
    """The cluster, for this test process. Mark the tests ``xdist_group("cluster")``: one cluster."""
    cluster: Racks = servers.get("kafka-racks")
    return cluster


@pytest.fixture(scope="session")
def java(servers: ServerPool) -> JavaReader:
    """The Java consumer."""
    reader: JavaReader = servers.get("kafka-java")
    return reader


@pytest.fixture
def client(racks: Racks) -> Iterator[BrokerClient]:
    """A client that may do everything."""
    with BrokerClient(racks.bootstrap, ClientSettings()) as opened:
        yield opened


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    name: str = request.node.name.removeprefix("test_")
    return "".join(letter if letter.isalnum() else "-" for letter in name)[:120]
