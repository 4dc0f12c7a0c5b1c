"""Limits of clients: each is counted, logged with who reached it, and hurts nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import trustme
from gateway_process import connected, echo, list_groups, running
from gateway_upstream import Client, SaslBroker, authenticate, handshake, run
from hand_clock import held_loop_time

from segreader.broker.codec import encode_request
from segreader.broker.location import request_tags
from segreader.broker.protocol import Api
from segreader.broker.settings import ClientSettings
from segreader.gateway.admission import Arrivals, LimitReports
from segreader.gateway.config import Limits
from segreader.gateway.metrics import GatewayMetrics
from segreader.gateway.relay import Relay
from segreader.gateway.server import Gateway
from segreader.gateway.wire import SLICE

WITH_LOGIN = ClientSettings.from_options(
    {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "gateway",
        "sasl.password": "x",
    }
)
ALICE, BOB = b"\0alice\0x", b"\0bob\0x"


def sized(size: int) -> bytes:
    """A request of so many bytes behind its size."""
    data = struct.pack(">hhi", 16, 0, 1) + b"\0\1c"
    return struct.pack(">i", size) + data + bytes(size - len(data))


async def logged_in(gateway: Gateway, token: bytes = ALICE) -> Client:
    client = await connected(gateway.config.listen_port)
    await client.ask(handshake("PLAIN"))
    await client.ask(authenticate(token))
    return client


async def is_hung_up_on(client: Client) -> bool:
    try:
        return await client.is_closed()
    except ConnectionError:  # bytes of it were not read
        return True


async def too_many(gateway: Gateway) -> None:
    for _ in range(2):
        client = await connected(gateway.config.listen_port)
        with contextlib.suppress(ConnectionError):
            await client.send(list_groups())
    assert await is_hung_up_on(client)


async def silent(gateway: Gateway) -> None:
    assert await is_hung_up_on(await connected(gateway.config.listen_port))


async def half_a_login(gateway: Gateway) -> None:
    client = await connected(gateway.config.listen_port)
    await client.ask(handshake("PLAIN"))
    assert await is_hung_up_on(client)


async def two_logins(gateway: Gateway) -> None:
    await logged_in(gateway)
    client = await connected(gateway.config.listen_port)
    await client.ask(handshake("PLAIN"))
    await client.send(authenticate(ALICE))
    assert await is_hung_up_on(client)


async def large(gateway: Gateway) -> None:
    client = await connected(gateway.config.listen_port)
    await client.send(sized(2000))
    assert await is_hung_up_on(client)


async def asks_for_much(gateway: Gateway) -> None:
    client = await connected(gateway.config.listen_port)
    await client.send(list_groups())
    assert await is_hung_up_on(client)


async def asks_for_versions(gateway: Gateway) -> None:
    client = await connected(gateway.config.listen_port)
    data = struct.pack(">hhi", Api.API_VERSIONS, 0, 1) + b"\0\1c"
    await client.send(struct.pack(">i", len(data)) + data)
    assert await is_hung_up_on(client)


async def asks_often(gateway: Gateway) -> None:
    client = await connected(gateway.config.listen_port)
    await client.send(b"".join(list_groups(number) for number in range(9)))
    for _ in range(9):
        await client.receive()


async def comes_often(gateway: Gateway) -> None:
    clients = [await connected(gateway.config.listen_port) for _ in range(18)]
    for client in clients:
        assert (await client.ask(list_groups()))[8:] == b"payload"


async def reads_nothing(gateway: Gateway) -> None:
    client = await connected(gateway.config.listen_port)
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await client.send(list_groups())
    while not gateway.metrics.failed:
        await asyncio.sleep(0.01)


async def asks_for_locations(gateway: Gateway) -> None:
    message: dict[str, Any] = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1,
        "isolation_level": 1,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": f"t{number}",
                "topic_id": None,
                "partitions": [
                    {
                        "partition": 0,
                        "current_leader_epoch": 5,
                        "fetch_offset": 42,
                        "last_fetched_epoch": -1,
                        "log_start_offset": -1,
                        "partition_max_bytes": 1,
                    }
                ],
            }
            for number in range(2)
        ],
        "forgotten_topics_data": [],
        "rack_id": "",
        "tags": request_tags(),
    }
    client = await connected(gateway.config.listen_port)
    frame = encode_request(Api.FETCH, 12, message, correlation_id=1, client_id="c")
    assert (await client.ask(frame))[8:] == b"payload"


def much(request: bytes) -> bytes:
    return struct.pack(">i", 64 << 20) + request[4:8] + bytes((64 << 20) - 4)


def slow(request: bytes) -> Awaitable[bytes]:
    async def answer() -> bytes:
        await asyncio.sleep(0.05)
        return echo(request)

    return answer()


REACHED: dict[str, tuple[int, Callable[[Gateway], Awaitable[None]], dict[str, Any]]] = {
    "connections": (1, too_many, {}),
    "connections_per_address": (1, too_many, {}),
    "connections_per_principal": (1, two_logins, {"client": WITH_LOGIN, "handler": SaslBroker()}),
    "connections_per_s": (1, comes_often, {}),
    "handshake_s": (1, silent, {"proxy_protocol": True}),
    "first_request_s": (1, silent, {}),
    "login_s": (1, half_a_login, {"client": WITH_LOGIN, "handler": SaslBroker()}),
    "request_bytes_before_login": (1000, large, {"client": WITH_LOGIN}),
    "request_bytes": (1000, large, {}),
    "answer_bytes": (10, asks_for_much, {}),
    "flagged_request_bytes": (100, asks_for_locations, {}),
    "flagged_partitions": (1, asks_for_locations, {}),
    "held_bytes": (1000, asks_for_versions, {"handler": much}),
    "in_flight": (4, asks_often, {"handler": slow}),
    "unread_s": (1, reads_nothing, {"handler": much}),
}
"""A limit, and a client that reaches it."""

BROKER = "a bootstrap server"

_OF_THE_CATALOGUE = {"index_downloads", "index_cache_bytes"}
"""Beside it, in ``test_catalogue.py``."""


class Never:
    """Answers no flag: it must not be asked."""

    async def answer(self, link: Relay, request: object) -> None:
        raise AssertionError


class _Backend:
    locating = Never()

    @staticmethod
    def catalogue_facts() -> dict[str, float]:
        return {}

    @staticmethod
    def close() -> None: ...


@pytest.mark.parametrize("name", REACHED)
def test_a_limit_that_is_reached_is_counted_and_logged_with_who_it_was(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    value, client, settings = REACHED[name]
    settings = dict(settings)
    handler = settings.pop("handler", echo)

    async def test() -> None:
        async with running(handler, limits=Limits(**{name: value}), **settings) as (gateway, _):
            gateway._backend = _Backend  # type: ignore[assignment]
            await client(gateway)
            assert set(gateway.metrics.limits_reached) == {name}

    run(test)
    (said,) = [one for one in caplog.records if one.getMessage().startswith("limit ")]
    who = {"connections_per_principal": "User:alice", "answer_bytes": BROKER, "held_bytes": BROKER}.get(
        name, "127.0.0.1"
    )
    assert said.levelname == "WARNING"
    assert said.getMessage().startswith(f"limit {name} ({value}) reached by {who}")


def test_every_limit_of_clients_is_reached_here() -> None:
    assert {one.name for one in fields(Limits)} - _OF_THE_CATALOGUE == set(REACHED)


def test_a_login_that_is_not_finished_in_time_is_hung_up_on_and_others_go_on() -> None:
    async def test() -> None:
        async with running(SaslBroker(), client=WITH_LOGIN, limits=Limits(login_s=1)) as (gateway, upstream):
            done = await logged_in(gateway)
            asking, trickling = [await connected(gateway.config.listen_port) for _ in range(2)]
            await trickling.ask(handshake("PLAIN"))
            await trickling.send(authenticate(ALICE)[:-1])
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                for _ in range(500):
                    await asking.ask(handshake("PLAIN"))  # again and again
                    await asyncio.sleep(0.02)
            assert await is_hung_up_on(trickling)
            assert (await done.ask(list_groups()))[8:] == b"payload"
            assert gateway.metrics.limits_reached == {"login_s": 2}
            assert len(gateway._relays) == 1
            assert authenticate(ALICE)[4:] in upstream.requests

    run(test)


def test_a_user_has_so_many_connections_and_others_have_theirs() -> None:
    broker = SaslBroker()

    async def test() -> None:
        limits = Limits(connections_per_principal=2)
        async with running(broker, client=WITH_LOGIN, limits=limits) as (gateway, _):
            first, second = [await logged_in(gateway) for _ in range(2)]
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await logged_in(gateway)
            other = await logged_in(gateway, BOB)
            assert (await second.ask(authenticate(ALICE)))[4:] == (await second.ask(authenticate(ALICE)))[4:]
            assert gateway.metrics.limits_reached == {"connections_per_principal": 1}
            first.writer.close()
            while gateway.metrics.open_connections == 3:
                await asyncio.sleep(0.01)
            third = await logged_in(gateway)
            for client in (second, third, other):
                assert (await client.ask(list_groups()))[8:] == b"payload"

    run(test)


def test_a_login_that_the_broker_refuses_counts_for_nobody() -> None:
    async def test() -> None:
        broker = SaslBroker(*[(58, b"")] * 3)
        limits = Limits(connections_per_principal=1)
        async with running(broker, client=WITH_LOGIN, limits=limits) as (gateway, _):
            for _ in range(3):
                await logged_in(gateway)
            assert gateway.metrics.limits_reached == {}
            assert (await (await logged_in(gateway)).ask(list_groups()))[8:] == b"payload"

    run(test)


def test_a_certificate_has_so_many_connections_where_there_is_no_login(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
    files: dict[str, Any] = {"certificate": str(tmp_path / "own.pem"), "key": str(tmp_path / "own.pem")}

    def context(name: str) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        authority.issue_cert(f"{name}.example", common_name=name).configure_cert(made)
        return made

    async def test() -> None:
        limits = Limits(connections_per_principal=1)
        async with running(limits=limits, client_ca=str(tmp_path / "ca.pem"), **files) as (gateway, _):
            alice, bob = context("alice"), context("bob")
            for one in (alice, bob):
                assert (await (await connected(gateway.config.listen_port, one)).ask(list_groups()))[8:] == b"payload"
            assert await is_hung_up_on(await connected(gateway.config.listen_port, alice))
            assert gateway.metrics.limits_reached == {"connections_per_principal": 1}

    run(test)


@pytest.mark.parametrize(
    "request_",
    [list_groups(), b"\0\0\0\x0c" + struct.pack(">hhi", Api.METADATA, 0, 1) + bytes(4)],
    ids=["ListGroups", "Metadata"],
)
def test_before_a_login_nothing_else_reaches_a_broker(request_: bytes) -> None:
    async def test() -> None:
        async with running(SaslBroker(), client=WITH_LOGIN) as (gateway, upstream):
            client = await connected(gateway.config.listen_port)
            await client.send(request_)
            assert await is_hung_up_on(client)
            assert upstream.requests == []
            assert gateway.metrics.failed == {"ProtocolError": 1}

    run(test)


def test_before_a_login_no_fetch_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*given: object) -> None:
        raise AssertionError

    monkeypatch.setattr("segreader.gateway.relay.flagged_fetch_steps", looked)

    async def test() -> None:
        async with running(SaslBroker(), client=WITH_LOGIN) as (gateway, upstream):
            gateway._backend = _Backend  # type: ignore[assignment]
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await asks_for_locations(gateway)
            assert upstream.requests == []
            assert gateway.metrics.failed == {"ProtocolError": 1}

    run(test)


def test_requests_of_a_login_go_on_when_they_are_whole_and_one_by_one() -> None:
    go = asyncio.Event()
    broker = SaslBroker()

    async def slow_broker(request: bytes) -> bytes:
        await go.wait()
        return broker(request)

    async def test() -> None:
        async with running(slow_broker, client=WITH_LOGIN) as (gateway, upstream):
            client = await connected(gateway.config.listen_port)
            login = authenticate(ALICE)
            await client.send(handshake("PLAIN") + login[:-1])
            while not upstream.requests:
                await asyncio.sleep(0.01)
            await client.send(login[-1:] + list_groups())
            await asyncio.sleep(0.1)
            assert len(upstream.requests) == 1
            go.set()
            for _ in range(2):
                await client.receive()
            assert (await client.receive())[8:] == b"payload"
            assert upstream.requests == [handshake("PLAIN")[4:], login[4:], list_groups()[4:]]

    run(test)


def test_a_part_of_a_request_of_a_login_never_reaches_a_broker() -> None:
    async def test() -> None:
        async with running(SaslBroker(), client=WITH_LOGIN) as (gateway, _):
            client = await connected(gateway.config.listen_port)
            await client.ask(handshake("PLAIN"))
            arrived: list[bytes] = []
            relay = next(iter(gateway._relays))
            monkey = relay.to_broker.send

            async def send(data: Any) -> None:
                arrived.append(bytes(data))
                await monkey(data)

            relay.to_broker = type("Spied", (), {"send": staticmethod(send), "flush": relay.to_broker.flush})()
            token = authenticate(b"\0alice\0" + bytes(50_000))
            await client.send(token[:-1])
            await asyncio.sleep(0.1)
            assert arrived == []
            await client.send(token[-1:])
            await client.receive()
            assert b"".join(arrived) == token

    run(test)


def test_what_is_too_large_before_a_login_passes_after_it() -> None:
    async def test() -> None:
        limits = Limits(request_bytes_before_login=1000)
        async with running(SaslBroker(), client=WITH_LOGIN, limits=limits) as (gateway, upstream):
            client = await logged_in(gateway)
            assert (await client.ask(sized(3 * SLICE)))[8:] == b"payload"
            early = await connected(gateway.config.listen_port)
            await early.ask(handshake("PLAIN"))
            await early.send(authenticate(bytes(1000)))
            assert await is_hung_up_on(early)
            assert gateway.metrics.limits_reached == {"request_bytes_before_login": 1}
            assert len(upstream.requests) == 4

    run(test)


def test_a_client_that_reads_nothing_is_hung_up_on_and_holds_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segreader.gateway.wire._LINGER_S", 1.0)

    async def test() -> None:
        async with running(much, limits=Limits(unread_s=1)) as (gateway, _):
            client = await connected(gateway.config.listen_port)
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await client.send(list_groups())
            while not gateway._relays:
                await asyncio.sleep(0.01)
            wire = next(iter(gateway._relays))._from_client
            while gateway._relays:
                await asyncio.sleep(0.01)
            assert wire.unsent
            assert not wire._is_lost
            while not wire._is_lost:
                await asyncio.sleep(0.01)

    run(test, timeout_s=20)  # it would linger for longer than that if nobody had it set


def test_connections_beyond_those_of_a_second_begin_later_and_addresses_take_turns() -> None:
    async def test() -> None:
        arrivals = Arrivals(LimitReports(GatewayMetrics()))
        order: list[str] = []

        async def arrive(address: str) -> None:
            await arrivals.turn("connections_per_s", 100, address)
            order.append(address)

        begun = asyncio.get_running_loop().time()
        with held_loop_time():  # more of them would begin at once if the machine took its time
            storm = [asyncio.ensure_future(arrive("storm")) for _ in range(46)]
            await asyncio.sleep(0)
        await asyncio.gather(arrive("one"), arrive("other"))
        assert order[:16] == ["storm"] * 16
        assert {"one", "other"} <= set(order[16:20])
        await asyncio.gather(*storm)
        assert asyncio.get_running_loop().time() - begun >= 0.3

    run(test)


def test_a_connection_that_gives_up_its_turn_takes_none() -> None:
    async def test() -> None:
        metrics = GatewayMetrics()
        arrivals = Arrivals(LimitReports(metrics))
        with held_loop_time():
            waiting = [asyncio.ensure_future(arrivals.turn("connections_per_s", 10, "a")) for _ in range(20)]
            await asyncio.sleep(0)
        for one in waiting[16:19]:
            one.cancel()
        await waiting[19]
        assert metrics.limits_reached == {"connections_per_s": 4}
        await asyncio.sleep(0.1)
        await asyncio.gather(*[arrivals.turn("connections_per_s", 10, "a") for _ in range(14)])
        assert metrics.limits_reached == {"connections_per_s": 4}

    run(test)
