"""Whom the broker took a client for: the name of each mechanism, once the broker has accepted it."""

from __future__ import annotations

import base64
import json

import pytest
from gateway_upstream import SaslBroker, authenticate, handshake, relayed, run

from segreader.broker import api
from segreader.gateway.identity import name_in

SECRET = "c4naryP4ssword"


def bearer(claims: object) -> bytes:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=")
    return b"n,,\x01auth=Bearer e30." + body + b"." + SECRET.encode() + b"\x01\x01"


def nested() -> bytes:
    """A token that is nothing but brackets."""
    return b"n,,\x01auth=Bearer e30." + base64.urlsafe_b64encode(b"[" * 48_000).rstrip(b"=") + b".c\x01\x01"


@pytest.mark.parametrize(
    ("mechanism", "token", "name"),
    [
        ("PLAIN", b"\0alice\0" + SECRET.encode(), "alice"),
        ("PLAIN", b"alice\0alice\0x", "alice"),
        ("PLAIN", b"alice", None),
        ("PLAIN", b"\0\xff\0x", None),
        ("PLAIN", b"\0\0x", None),
        ("SCRAM-SHA-256", b"n,,n=bob,r=nonce", "bob"),
        ("SCRAM-SHA-512", b"n,,n=a=2Cb=3Dc,r=nonce", "a,b=c"),
        ("SCRAM-SHA-256", b"n,,n=tokenid,r=nonce,tokenauth=true", "token:tokenid"),
        ("SCRAM-SHA-256", b"n,,r=nonce", None),
        ("SCRAM-SHA-256", b"", None),
        ("OAUTHBEARER", bearer({"sub": "carol"}), "carol"),
        ("OAUTHBEARER", bearer({"sub": 7}), None),
        ("OAUTHBEARER", bearer([]), None),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer opaque\x01\x01", None),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer a.\xff\xff.c\x01\x01", None),
        pytest.param("OAUTHBEARER", nested(), None, id="nested"),
        ("GSSAPI", b"\0alice\0", None),
        ("PLAIN", b"\0" + b"x" * 2000 + b"\0", None),
    ],
)
def test_the_first_message_names_the_user(mechanism: str, token: bytes, name: str | None) -> None:
    assert name_in(mechanism, token) == name


@pytest.mark.parametrize(
    ("mechanism", "exchange", "principals"),
    [
        ("PLAIN", [(b"\0alice\0x", 0, b"")], ["User:alice"]),
        ("PLAIN", [(b"\0alice\0x", 58, b"")], [None]),
        (
            "SCRAM-SHA-256",
            [(b"n,,n=bob,r=1", 0, b"r=12,s=,i=4096"), (b"c=biws,r=12,p=", 0, b"v=x")],
            [None, "User:bob"],
        ),
        ("SCRAM-SHA-256", [(b"n,,n=bob,r=1", 0, b"r=12,s=,i=4096"), (b"n,,n=eve,r=1", 58, b"")], [None, None]),
        ("OAUTHBEARER", [(bearer({"sub": "carol"}), 0, b"")], ["User:carol"]),
        ("OAUTHBEARER", [(bearer({"sub": "carol"}), 0, b'{"status":"invalid_token"}')], [None]),
        ("OAUTHBEARER", [(b"n,,\x01auth=Bearer opaque\x01\x01", 0, b"")], [None]),
    ],
)
def test_a_name_counts_when_the_broker_has_accepted_the_login(
    mechanism: str, exchange: list[tuple[bytes, int, bytes]], principals: list[str | None]
) -> None:
    async def test() -> None:
        broker = SaslBroker(*[(code, data) for _, code, data in exchange])
        async with relayed(broker) as around:
            await around.client.ask(handshake(mechanism))
            (relay,) = around.relays
            for (token, code, data), principal in zip(exchange, principals, strict=True):
                answer = await around.client.ask(authenticate(token))
                told = api.decode_sasl_authenticate(2, memoryview(answer)[4:])
                assert (told.error, told.data) == (code, data)
                assert relay.login.principal == principal
                assert relay.login.mechanism == (mechanism if code == 0 and _is_over(mechanism, data) else None)
            assert broker.requests[1:] == [authenticate(token)[4:] for token, _, _ in exchange]
            assert SECRET not in repr(vars(relay.login))

    run(test)


def _is_over(mechanism: str, data: bytes) -> bool:
    return data.startswith(b"v=") if mechanism.startswith("SCRAM") else not data


def test_a_login_that_is_sent_ahead_does_not_lend_its_name_to_the_one_before() -> None:
    async def test() -> None:
        broker = SaslBroker((0, b""), (58, b""))
        async with relayed(broker) as around:
            ahead = [handshake("PLAIN"), authenticate(b"\0alice\0x"), handshake("PLAIN"), authenticate(b"\0eve\0x", 3)]
            await around.client.send(b"".join(ahead))
            for _ in ahead:
                await around.client.receive()
            assert around.relays[0].login.principal == "User:alice"

    run(test)


def test_a_token_that_is_too_large_passes_without_a_name() -> None:
    async def test() -> None:
        async with relayed(SaslBroker((0, b""))) as around:
            await around.client.ask(handshake("PLAIN"))
            await around.client.ask(authenticate(b"\0alice\0" + bytes(100_000)))
            assert around.relays[0].login.principal is None

    run(test)
