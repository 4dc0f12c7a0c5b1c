"""SASL with a broker that checks, one that lies, and one whose sessions end; and what no error may show."""

from __future__ import annotations

import logging
import pickle
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from canaries import everything_logged
from fake_broker import CLOSE, SILENCE, FakeBroker, FakeKafka, Heard, Reply, one_broker
from hand_clock import HandClock
from kafka.net.sasl.scram import ScramClient
from scram_server import ScramServer

from segreader.broker import api
from segreader.broker.authentication import ScramExchange
from segreader.broker.connection import ClientMetrics
from segreader.broker.connection_pool import Address, OpenConnection, Opener
from segreader.broker.rules.backoff import Deadline
from segreader.broker.settings import ClientSettings, SaslMechanism, SecurityProtocol
from segreader.errors import AuthenticationError, BrokerError, ConnectionFailedError
from segreader.storage.retry import Clock
from segreader.storage.signed_url import Secret

PASSWORD = "c4naryP4ssword"
TOKEN = "c4nary.token.0123456789"


def settings(mechanism: str = "PLAIN", **changes: Any) -> ClientSettings:
    values: dict[str, Any] = {"security_protocol": SecurityProtocol.SASL_PLAINTEXT, "request_timeout_ms": 10_000}
    values |= {"sasl_mechanism": SaslMechanism(mechanism)}
    if mechanism == "OAUTHBEARER":
        values |= {"token_provider": lambda: TOKEN}
    else:
        values |= {"sasl_username": "al,ice=", "sasl_password": Secret(PASSWORD)}
    return ClientSettings(**(values | changes))


def with_sasl(
    broker: FakeBroker,
    answer: Callable[[bytes], bytes | None],
    *,
    mechanisms: tuple[str, ...] = tuple(SaslMechanism),
    lifetime_ms: int = 0,
    message: str | None = "no",
) -> None:
    """Let a broker authenticate: ``answer`` takes what the client says; ``None`` refuses it."""

    def handshake(heard: Heard) -> Reply:
        error = 0 if heard.message.mechanism in mechanisms else 33
        return {"error_code": error, "mechanisms": list(mechanisms)}

    def authenticate(heard: Heard) -> Reply:
        said = answer(bytes(heard.message.auth_bytes))
        if said is None:
            return {"error_code": 58, "error_message": message, "auth_bytes": b"", "session_lifetime_ms": 0}
        return {"error_code": 0, "error_message": None, "auth_bytes": said, "session_lifetime_ms": lifetime_ms}

    broker.handlers |= {"SaslHandshake": handshake, "SaslAuthenticate": authenticate}


def plain_server(said: bytes) -> bytes | None:
    return b"" if said == f"\0al,ice=\0{PASSWORD}".encode() else None


def open_to(kafka: FakeKafka, of: ClientSettings, clock: Clock | None = None) -> OpenConnection:
    opener = Opener(of, clock=clock or Clock(), metrics=ClientMetrics(), stopped=threading.Event())
    return opener.open(Address("127.0.0.1", kafka.brokers[0].port), deadline=Deadline(1 << 60))


def test_plain_comes_after_versions_and_before_all_else() -> None:
    with one_broker() as kafka:
        with_sasl(kafka.brokers[0], plain_server)
        opened = open_to(kafka, settings())
        assert kafka.asked() == ["ApiVersions", "SaslHandshake", "SaslAuthenticate"]
        opened.connection.ask(api.metadata(settings(), opened.versions, ["t"]))
        opened.connection.close()


def test_a_wrong_password_is_told_at_once_with_user_and_mechanism_and_without_the_password() -> None:
    with one_broker() as kafka, everything_logged() as lines:
        with_sasl(kafka.brokers[0], plain_server, message=f"password {PASSWORD} is wrong")
        wrong = settings(sasl_password=Secret(PASSWORD + "x"))
        with pytest.raises(AuthenticationError, match=r"user 'al,ice=' is refused with PLAIN: SASL_AUTHENT") as caught:
            open_to(kafka, wrong)
        assert kafka.asked("SaslAuthenticate") == ["SaslAuthenticate"]
        assert caught.value.code == 58
        assert caught.value.source == kafka.bootstrap
        for shown in (str(caught.value), repr(caught.value), repr(vars(caught.value)), repr(wrong), "\n".join(lines)):
            assert PASSWORD not in shown
        assert PASSWORD.encode() not in pickle.dumps(caught.value) + pickle.dumps(wrong)


@pytest.mark.parametrize("server", ["refuses", "closes", "is silent"])
@pytest.mark.parametrize(("mechanism", "secret"), [("PLAIN", PASSWORD), ("OAUTHBEARER", TOKEN)])
def test_no_variable_of_a_traceback_holds_the_secret(mechanism: str, secret: str, server: str) -> None:
    """Reporters of crashes print the variables of every frame that an error came through."""
    with one_broker() as kafka:
        with_sasl(kafka.brokers[0], lambda said: None, message=f"{secret} is wrong")
        if server != "refuses":
            kafka.brokers[0].say("SaslAuthenticate", CLOSE if server == "closes" else SILENCE)
        with pytest.raises(BrokerError) as caught:
            open_to(kafka, settings(mechanism, request_timeout_ms=200))
    for each in traceback.walk_tb(caught.value.__traceback__):
        frame = each[0]
        if frame.f_code.co_filename != __file__:
            assert secret not in repr(frame.f_locals), frame.f_code.co_qualname


def test_a_scram_server_that_tells_the_password_is_not_quoted() -> None:
    exchange = ScramExchange("u", PASSWORD, "sha256")
    exchange.first()
    with pytest.raises(AuthenticationError, match="SCRAM was refused") as caught:
        exchange.next(f"e=not {PASSWORD}".encode())
    assert PASSWORD not in str(caught.value)


def test_a_mechanism_that_is_not_offered_is_told_with_those_that_are() -> None:
    with one_broker() as kafka:
        with_sasl(kafka.brokers[0], plain_server, mechanisms=("SCRAM-SHA-512",))
        with pytest.raises(AuthenticationError, match=r"PLAIN is refused.*expected SCRAM-SHA-512.*sasl\.mechanism"):
            open_to(kafka, settings())


@pytest.mark.parametrize(("mechanism", "hash_name"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
def test_scram_is_proven_on_both_sides(mechanism: str, hash_name: str) -> None:
    with one_broker() as kafka:
        with_sasl(kafka.brokers[0], ScramServer("al,ice=", PASSWORD, hash_name).answer)
        opened = open_to(kafka, settings(mechanism))
        assert kafka.asked("SaslAuthenticate") == ["SaslAuthenticate"] * 2
        opened.connection.close()


@pytest.mark.parametrize(
    ("lie", "iterations", "what"),
    [
        ("signature", 4096, "signature is wrong"),
        ("nonce", 4096, "nonce does not start"),
        ("early", 4096, "not made of attributes"),
        (None, 4095, "iteration count is out of bounds; found 4095, expected 4096 to 1048576"),
        (None, 0, "iteration count is out of bounds"),
        (None, 10_000_000, "iteration count is out of bounds"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_not_believed(lie: str | None, iterations: int, what: str) -> None:
    server = ScramServer("al,ice=", PASSWORD, "sha256", iterations=min(iterations, 4096), lie=lie)
    server._iterations = iterations
    with one_broker() as kafka:
        with_sasl(kafka.brokers[0], server.answer)
        with pytest.raises(AuthenticationError, match=what):
            open_to(kafka, settings("SCRAM-SHA-256"))


def test_a_wrong_password_of_scram_is_refused_by_the_server() -> None:
    with one_broker() as kafka:
        with_sasl(kafka.brokers[0], ScramServer("al,ice=", PASSWORD, "sha256").answer)
        with pytest.raises(AuthenticationError, match="user 'al,ice=' is refused with SCRAM-SHA-256"):
            open_to(kafka, settings("SCRAM-SHA-256", sasl_password=Secret("wrong")))


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff",
        b"r=x",
        b"r=NONCEy,s=%%%,i=4096",
        b"r=NONCEy,i=4096",
        b"r=NONCEy,s=AAAA,i=x",
        b"r=NONCEy,s=AAAA,i=4096,i=4097",
        b"m=x,r=NONCEy,s=AAAA,i=4096",
        b"e=unknown-user",
        b"r=NONCEy,s=AAAA,i=\xd9\xa4\xd9\xa0\xd9\xa9\xd9\xa6",
        b"x" * 70_000,
    ],
)
def test_any_bytes_of_a_scram_server_give_a_typed_error(first: bytes) -> None:
    exchange = ScramExchange("u", "p", "sha256", nonce="NONCE")
    exchange.first()
    with pytest.raises(AuthenticationError):
        exchange.next(first)


def test_a_plain_user_says_the_same_as_with_kafka_python() -> None:
    theirs = ScramClient("user", PASSWORD, "SCRAM-SHA-256")
    ours = ScramExchange("user", PASSWORD, "sha256", nonce=theirs.nonce.decode())
    assert ours.first() == theirs.first_message()
    server_first = f"r={theirs.nonce.decode()}more,s=c2FsdA==,i=4096".encode()
    theirs.process_server_first_message(server_first)
    assert ours.next(server_first) == theirs.final_message()


def test_the_example_of_rfc_7677_is_met() -> None:
    exchange = ScramExchange("user", "pencil", "sha256", nonce="rOprNGfwEbeRWgbNEkqO")
    assert exchange.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    answer = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert exchange.next(answer) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert exchange.next(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


def test_a_token_is_shown_as_rfc_7628_says() -> None:
    said: list[bytes] = []

    def server(message: bytes) -> bytes:
        said.append(message)
        return b""

    with one_broker() as kafka:
        with_sasl(kafka.brokers[0], server)
        open_to(kafka, settings("OAUTHBEARER")).connection.close()
    assert said == [f"n,,\x01auth=Bearer {TOKEN}\x01\x01".encode()]


def test_a_refused_token_is_answered_with_one_byte_and_told_without_it() -> None:
    said: list[bytes] = []

    def server(message: bytes) -> bytes | None:
        said.append(message)
        return b'{"status":"invalid_token","scope":"x"}' if len(said) == 1 else None

    with one_broker() as kafka:
        with_sasl(kafka.brokers[0], server, message=f"the token {TOKEN} is old")
        with pytest.raises(AuthenticationError, match="the token is refused with OAUTHBEARER") as caught:
            open_to(kafka, settings("OAUTHBEARER"))
    assert said[1:] == [b"\x01"]
    assert TOKEN not in str(caught.value)


def test_a_token_provider_that_fails_shows_its_errors_type_only() -> None:
    def broken() -> str:
        raise RuntimeError(f"cannot refresh {TOKEN}")

    with one_broker() as kafka:
        with_sasl(kafka.brokers[0], lambda said: b"")
        with pytest.raises(AuthenticationError, match="token provider failed; found RuntimeError") as caught:
            open_to(kafka, settings("OAUTHBEARER", token_provider=broken))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_server_that_goes_on_for_ever_is_left() -> None:
    with one_broker() as kafka:
        with_sasl(kafka.brokers[0], lambda said: b'{"status":"go on"}')
        with pytest.raises(AuthenticationError):
            open_to(kafka, settings("OAUTHBEARER"))
        assert len(kafka.asked("SaslAuthenticate")) <= 4


@pytest.mark.parametrize("lifetime_ms", [10_000, 3_600_000])
def test_a_session_is_renewed_between_85_and_95_percent_of_its_life_with_nothing_in_flight(lifetime_ms: int) -> None:
    clock = HandClock()
    with one_broker() as kafka:
        with_sasl(kafka.brokers[0], plain_server, lifetime_ms=lifetime_ms)
        connection = open_to(kafka, settings(), clock).connection
        assert connection.renew_at_ms is not None
        began_ms = connection.now_ms()
        assert 0.85 * lifetime_ms <= connection.renew_at_ms - began_ms <= 0.95 * lifetime_ms
        offered = open_to(kafka, settings(), clock)
        ask = api.metadata(settings(), offered.versions, ["t"])

        clock.at_s += 0.84 * lifetime_ms / 1000
        early = connection.send(ask)
        clock.at_s += 0.12 * lifetime_ms / 1000
        late = connection.send(ask)
        connection.receive(late)
        connection.receive(early)

        own = [each.api for each in kafka.brokers[0].requests]
        assert own[6:] == ["Metadata", "SaslHandshake", "SaslAuthenticate", "Metadata"]
        assert connection.renew_at_ms > clock.monotonic() * 1000
        connection.close()
        offered.connection.close()


def test_a_session_that_cannot_be_renewed_ends_with_an_authentication_error() -> None:
    clock = HandClock()
    known = [True, False]
    with one_broker() as kafka:
        with_sasl(kafka.brokers[0], lambda said: b"" if known.pop(0) else None, lifetime_ms=10_000)
        opened = open_to(kafka, settings(), clock)
        clock.at_s += 10
        with pytest.raises(AuthenticationError, match="refused"):
            opened.connection.send(api.metadata(settings(), opened.versions, ["t"]))
        assert not opened.connection.is_open


def test_settings_out_of_a_pickle_do_not_connect() -> None:
    again = pickle.loads(pickle.dumps(settings()))
    with one_broker() as kafka:
        with_sasl(kafka.brokers[0], plain_server)
        with pytest.raises(AuthenticationError, match="came from a pickle"):
            open_to(kafka, again)
        open_to(kafka, again.with_secrets(sasl_password=PASSWORD)).connection.close()


def test_no_logger_says_the_password() -> None:
    with one_broker() as kafka, everything_logged() as lines:
        logging.getLogger("segreader.broker").debug("they are listened to")
        with_sasl(kafka.brokers[0], plain_server)
        open_to(kafka, settings()).connection.close()
    assert "they are listened to" in "\n".join(lines)
    assert PASSWORD not in "\n".join(lines)


def test_a_broker_that_hangs_up_at_authentication_is_a_failed_connection() -> None:
    with one_broker() as kafka:
        with_sasl(kafka.brokers[0], plain_server)
        kafka.brokers[0].handlers.pop("SaslAuthenticate")
        with pytest.raises(ConnectionFailedError, match="before it answered SaslAuthenticate v2"):
            open_to(kafka, settings())
