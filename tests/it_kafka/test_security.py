"""Who a client is and what it may do, decided by real brokers: passwords, certificates, rights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from kafka_kit.clients import Sent, producer, send
from kafka_kit.fetched import take
from kafka_kit.racks import MECHANISMS, READER, STRANGER, WRITER, Racks
from kafka_kit.rights import User

from segreader.broker.client import BrokerClient
from segreader.broker.messages import LATEST, OffsetWanted
from segreader.broker.partition_fetcher import PartitionFetcher
from segreader.broker.settings import ClientSettings
from segreader.errors import AuthenticationError, AuthorizationError, BrokerError
from segreader.isolation import IsolationLevel

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]

SECRET = "c4nary-wrong-Pa55word"
TOPIC = "security"


@pytest.fixture(scope="module", autouse=True)
def topic(racks: Racks) -> Iterator[None]:
    """Ten records that READER may read."""
    racks.cluster.create_topic(TOPIC, replicas=[[1, 2]])
    with producer(racks.steady) as made:
        send(made, TOPIC, [Sent(value=b"%d" % number) for number in range(10)])
    with racks.rights.allowed(READER, "READ", TOPIC):
        yield


def read(bootstrap: str, options: Mapping[str, object]) -> int:
    """How many records a client with these options gets, at most ten."""
    with BrokerClient(bootstrap, ClientSettings.from_options(options)) as client:
        isolation = IsolationLevel.READ_COMMITTED
        fetcher = PartitionFetcher(client, TOPIC, 0, 0, isolation_level=isolation, rack="", max_bytes=1 << 20)
        return len(take(fetcher, 10))


def login(user: User, mechanism: str, password: str | None = None) -> dict[str, object]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user.name,
        "sasl.password": password or user.password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_user_reads_what_it_may_read(racks: Racks, mechanism: str) -> None:
    assert read(racks.cluster.bootstrap_by("SASL_PLAINTEXT"), login(READER, mechanism)) == 10


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told_as_such_and_not_shown(racks: Racks, mechanism: str) -> None:
    with pytest.raises(AuthenticationError) as seen:
        read(racks.cluster.bootstrap_by("SASL_PLAINTEXT"), login(READER, mechanism, SECRET))
    assert SECRET not in str(seen.value)
    assert "127.0.0.1" in str(seen.value)


def test_a_user_without_the_right_is_told_which_topic_it_may_not_read(racks: Racks) -> None:
    with pytest.raises(AuthorizationError, match=TOPIC):
        read(racks.cluster.bootstrap_by("SASL_PLAINTEXT"), login(STRANGER, "PLAIN"))


def test_who_may_only_describe_sees_the_end_and_no_record(racks: Racks) -> None:
    bootstrap = racks.cluster.bootstrap_by("SASL_PLAINTEXT")
    with racks.rights.allowed(STRANGER, "DESCRIBE", TOPIC):
        with BrokerClient(bootstrap, ClientSettings.from_options(login(STRANGER, "SCRAM-SHA-256"))) as client:
            (end,) = client.list_offsets([OffsetWanted(TOPIC, 0, LATEST)], IsolationLevel.READ_COMMITTED)
        assert end.offset == 10
        with pytest.raises(AuthorizationError, match=TOPIC):
            read(bootstrap, login(STRANGER, "SCRAM-SHA-256"))


def test_tls_with_the_brokers_authority_reads(racks: Racks) -> None:
    ours = {"security.protocol": "SSL", "ssl.ca.location": str(racks.certificates.authority)}
    assert read(racks.cluster.bootstrap_by("SSL"), ours) == 10


def test_tls_with_another_authority_is_refused(racks: Racks) -> None:
    strange = {"security.protocol": "SSL", "ssl.ca.location": str(racks.certificates.stranger)}
    with pytest.raises(BrokerError, match="certificate"):
        read(racks.cluster.bootstrap_by("SSL"), strange)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_password_over_tls_reads(racks: Racks, mechanism: str) -> None:
    secure = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(racks.certificates.authority)}
    assert read(racks.cluster.bootstrap_by("SASL_SSL"), login(WRITER, mechanism) | secure) == 10


def test_tls_to_a_port_without_it_ends_with_an_error_that_says_so(racks: Racks) -> None:
    options: dict[str, object] = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(racks.certificates.authority),
        "request.timeout.ms": 2000,
    }
    with pytest.raises(BrokerError):
        read(racks.bootstrap, options)
