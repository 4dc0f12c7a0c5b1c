"""TLS to a broker: verified by default, and every failure names the next step."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from fake_broker import SILENCE, FakeBroker, one_broker

from segreader.broker.client import BrokerClient
from segreader.broker.connection import ClientMetrics
from segreader.broker.connection_pool import Address, Opener
from segreader.broker.rules.backoff import Deadline
from segreader.broker.settings import ClientSettings, SecurityProtocol
from segreader.errors import AuthenticationError, ConnectionFailedError, OptionError, ProtocolError
from segreader.storage.retry import Clock
from segreader.storage.signed_url import Secret

TIMES: dict[str, Any] = {"request_timeout_ms": 10_000, "connect_timeout_ms": 10_000}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


def server_context(authority: trustme.CA, *names: str, asks: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*(names or ("127.0.0.1",))).configure_cert(context)
    if asks:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def settings(**changes: Any) -> ClientSettings:
    return ClientSettings(security_protocol=SecurityProtocol.SSL, **(TIMES | changes))


def open_to(broker: FakeBroker, of: ClientSettings) -> None:
    opener = Opener(of, clock=Clock(), metrics=ClientMetrics(), stopped=threading.Event())
    opener.open(Address("127.0.0.1", broker.port), deadline=Deadline(1 << 60)).connection.close()


@pytest.fixture
def broker(authority: trustme.CA) -> Iterator[FakeBroker]:
    with FakeBroker(context=server_context(authority)) as made:
        yield made


def test_a_broker_that_the_ca_file_vouches_for_is_asked(authority: trustme.CA, ca_file: str) -> None:
    with one_broker(context=server_context(authority)) as kafka:
        with BrokerClient(kafka.bootstrap, settings(ca_file=ca_file)) as client:
            assert client.leader("t", 0).leader_epoch == 5
        assert kafka.asked() == ["ApiVersions", "Metadata"]


def test_the_authority_may_be_given_as_text(broker: FakeBroker, authority: trustme.CA) -> None:
    open_to(broker, settings(ca_data=authority.cert_pem.bytes().decode()))


def test_a_certificate_of_nobody_known_is_refused_and_not_tried_again(authority: trustme.CA) -> None:
    with one_broker(context=server_context(authority)) as kafka, BrokerClient(kafka.bootstrap, settings()) as client:
        with pytest.raises(AuthenticationError, match=r"certificate is not accepted.*ssl\.ca\.location"):
            client.metadata()
        assert client.metrics.retries == {}


def test_a_certificate_of_another_host_is_refused_unless_told_otherwise(authority: trustme.CA, ca_file: str) -> None:
    with FakeBroker(context=server_context(authority, "elsewhere.example")) as broker:
        with pytest.raises(AuthenticationError, match=r"ssl\.endpoint\.identification\.algorithm"):
            open_to(broker, settings(ca_file=ca_file))
        open_to(broker, settings(ca_file=ca_file, verify_hostname=False))


def test_any_certificate_is_taken_only_if_that_is_said(broker: FakeBroker) -> None:
    with pytest.raises(AuthenticationError):
        open_to(broker, settings())
    open_to(broker, settings(verify=False))


def test_a_broker_that_wants_a_certificate_says_so(authority: trustme.CA, ca_file: str, tmp_path: Path) -> None:
    with FakeBroker(context=server_context(authority, asks=True)) as broker:
        with pytest.raises((AuthenticationError, ConnectionFailedError)):
            open_to(broker, settings(ca_file=ca_file))
        own = authority.issue_cert("client.example")
        own.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
        open_to(broker, settings(ca_file=ca_file, certificate_file=str(tmp_path / "own.pem")))


def test_the_refusal_of_our_certificate_names_the_options(authority: trustme.CA, ca_file: str) -> None:
    context = server_context(authority, asks=True)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with FakeBroker(context=context) as broker, pytest.raises((AuthenticationError, ConnectionFailedError)) as caught:
        open_to(broker, settings(ca_file=ca_file))
    if isinstance(caught.value, AuthenticationError):
        assert "ssl.certificate.location" in str(caught.value)


def test_a_listener_without_tls_is_named(ca_file: str) -> None:
    with FakeBroker() as broker:
        broker.say("ApiVersions", SILENCE)
        with pytest.raises(ConnectionFailedError, match=r"TLS.*security\.protocol"):
            open_to(broker, settings(ca_file=ca_file, connect_timeout_ms=1000))


def test_a_listener_with_tls_is_named(broker: FakeBroker) -> None:
    with pytest.raises((ProtocolError, ConnectionFailedError), match=r"security\.protocol"):
        open_to(broker, ClientSettings(**TIMES))


@pytest.mark.parametrize("content", [None, b"", b"\xfe\xed\xfe\xed", b"-----BEGIN CERTIFICATE-----\nx\n"])
def test_a_trust_store_that_is_none_is_an_option_error(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "store.jks"
    if content is not None:
        path.write_bytes(content)
    with FakeBroker() as broker:
        with pytest.raises(OptionError, match=r"cannot be loaded from .*store\.jks.*expected PEM"):
            open_to(broker, settings(ca_file=str(path)))
        assert broker.requests == []


def test_a_wrong_passphrase_is_told_without_it(authority: trustme.CA, ca_file: str, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    own = authority.issue_cert("client.example")
    key = serialization.load_pem_private_key(own.private_key_pem.bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"right passphrase"),
    )
    (tmp_path / "key.pem").write_bytes(locked)
    (tmp_path / "own.pem").write_bytes(b"".join(each.bytes() for each in own.cert_chain_pems))
    files = {"certificate_file": str(tmp_path / "own.pem"), "key_file": str(tmp_path / "key.pem"), "ca_file": ca_file}

    with FakeBroker(context=server_context(authority, asks=True)) as broker:
        with pytest.raises(OptionError, match=r"ssl\.key\.password") as caught:
            open_to(broker, settings(key_password=Secret("c4naryP4ssword"), **files))
        assert "c4nary" not in str(caught.value)
        with pytest.raises(OptionError, match=r"ssl\.key\.password"):
            open_to(broker, settings(**files))
        open_to(broker, settings(key_password=Secret("right passphrase"), **files))
