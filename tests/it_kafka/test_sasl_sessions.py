"""Sessions that end (KIP-368) and bearer tokens, with a real broker that gives each client two seconds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest
from kafka_kit.cluster import Cluster, cluster
from kafka_kit.rights import BEARER_JAAS, User, bearer_token, plain_jaas
from servers.pool import skip_or_fail
from servers.process import NotAvailableError

from segreader.broker.client import BrokerClient
from segreader.broker.settings import ClientSettings, SaslMechanism, SecurityProtocol
from segreader.errors import AuthenticationError

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]

ALICE = User("alice", "c4nary-alice-Pa55word")
SESSION_MS = 2000


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    listener = "listener.name.sasl_plaintext"
    settings = {
        "connections.max.reauth.ms": str(SESSION_MS),
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        f"{listener}.plain.sasl.jaas.config": plain_jaas((ALICE,)),
        f"{listener}.oauthbearer.sasl.jaas.config": BEARER_JAAS,
    }
    directory = tmp_path_factory.mktemp("sessions")
    with contextlib.ExitStack() as stack:
        try:
            running = stack.enter_context(cluster(directory, listeners=("SASL_PLAINTEXT",), settings=settings))
        except NotAvailableError as error:
            skip_or_fail("kafka", error.message)
        yield running


def by_password(mechanism: str = "PLAIN") -> ClientSettings:
    return ClientSettings.from_options(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": ALICE.name,
            "sasl.password": ALICE.password,
        }
    )


def bearer(provider: Callable[[], str]) -> ClientSettings:
    return ClientSettings(
        security_protocol=SecurityProtocol.SASL_PLAINTEXT,
        sasl_mechanism=SaslMechanism.OAUTHBEARER,
        token_provider=provider,
    )


@pytest.mark.parametrize(
    "settings", [by_password(), bearer(lambda: bearer_token(ALICE.name, 3600))], ids=["PLAIN", "OAUTHBEARER"]
)
def test_a_session_goes_on_over_its_end_on_the_same_connection(sessions: Cluster, settings: ClientSettings) -> None:
    def attempt() -> bool:
        with BrokerClient(sessions.bootstrap_by("SASL_PLAINTEXT"), settings) as client:
            client.metadata([])
            logins = client.metrics.requests["SaslHandshake"]
            until = time.monotonic() + 30 * SESSION_MS / 1000
            while client.metrics.requests["SaslHandshake"] < logins + 2:
                assert time.monotonic() < until
                client.metadata([])
                time.sleep(0.05)
            client.metadata([])
            return client.metrics.connections == 1 and client.metrics.retries == {}

    assert any(attempt() for _ in range(3))  # a machine that stands still may bring a request after the session's end


def test_a_token_that_is_over_is_refused_and_not_shown(sessions: Cluster) -> None:
    old = bearer_token(ALICE.name, -5)
    settings = bearer(lambda: old)
    refused = pytest.raises(AuthenticationError, match="the token is refused with OAUTHBEARER")
    with BrokerClient(sessions.bootstrap_by("SASL_PLAINTEXT"), settings) as client, refused as seen:
        client.metadata([])
    assert old not in str(seen.value)


def test_a_mechanism_that_the_broker_does_not_offer_is_told_with_those_it_does(sessions: Cluster) -> None:
    offered = pytest.raises(AuthenticationError, match="OAUTHBEARER")
    settings = by_password("SCRAM-SHA-512")
    with BrokerClient(sessions.bootstrap_by("SASL_PLAINTEXT"), settings) as client, offered as seen:
        client.metadata([])
    assert "PLAIN" in str(seen.value)
    assert ALICE.password not in str(seen.value)
