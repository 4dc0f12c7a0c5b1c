"""Frames through a relay: every byte of what needs no change, in order, from streams cut anywhere."""

from __future__ import annotations

import asyncio
import itertools
import random
import struct

import pytest
from frames import Frame, frames
from gateway_upstream import HOST, relayed, run

from segreader.broker import api
from segreader.broker.codec import read_request_head
from segreader.broker.protocol import Api
from segreader.errors import ProtocolError
from segreader.gateway.config import Limits

RECORDED = [
    one
    for file in ("frames", "cluster", "java-client")
    for one in frames(file)
    if one.request is not None and one.response is not None and one.version < 99
]
REWRITTEN = {"ApiVersions", "Metadata", "FindCoordinator", "DescribeCluster"}
UNCHANGED = [
    one
    for one in RECORDED
    if one.api not in REWRITTEN and not (one.api == "Fetch" and b"127.0.0.1" in one.response[-60:])  # type: ignore[index]
]


def answer_of(one: Frame) -> bytes:
    assert one.response is not None
    return one.response


def request_of(one: Frame) -> bytes:
    assert one.request is not None
    return one.request


def produce(acks: int, *, version: int = 9, correlation_id: int = 7, size: int = 10) -> bytes:
    body = b"\x00" + struct.pack(">h", acks) + bytes(size) if version >= 9 else b"\xff\xff" + struct.pack(">h", acks)
    head = struct.pack(">hhi", 0, version, correlation_id) + b"\x00\x01c" + (b"\x00" if version >= 9 else b"")
    return struct.pack(">i", len(head + body)) + head + body


def plain_answer(request: bytes, payload: bytes = b"payload") -> bytes:
    data = request[4:8] + payload
    return struct.pack(">i", len(data)) + data


def list_groups(correlation_id: int) -> bytes:
    data = struct.pack(">hhi", 16, 0, correlation_id) + b"\x00\x01c"
    return struct.pack(">i", len(data)) + data


def test_frames_without_addresses_pass_byte_for_byte() -> None:
    async def test() -> None:
        expected = iter(UNCHANGED)
        async with relayed(lambda request: answer_of(next(expected))) as around:
            for one in UNCHANGED:
                assert await around.client.ask(request_of(one)) == one.response, one.name
            assert list(around.upstream.requests) == [request_of(one)[4:] for one in UNCHANGED]

    assert len(UNCHANGED) > 80
    run(test)


@pytest.mark.parametrize("seed", range(6))
def test_streams_cut_anywhere_give_the_same_frames(seed: int) -> None:
    chosen = random.Random(seed)
    some = [chosen.choice(RECORDED) for _ in range(60)]

    async def whole() -> list[bytes]:
        replies = iter(some)
        async with relayed(lambda request: answer_of(next(replies))) as around:
            return [await around.client.ask(request_of(one)) for one in some]

    async def cut() -> list[bytes]:
        replies = iter(some)
        async with relayed(lambda request: answer_of(next(replies)), pieces=chosen) as around:
            sent = b"".join(request_of(one) for one in some)
            cuts = sorted({0, len(sent), *(chosen.randrange(len(sent)) for _ in range(200))})

            async def send() -> None:
                for start, stop in itertools.pairwise(cuts):
                    await around.client.send(sent[start:stop])
                    await asyncio.sleep(0)

            sending = asyncio.ensure_future(send())
            got = [await around.client.receive() for _ in some]
            await sending
            return got

    assert asyncio.run(cut()) == asyncio.run(whole())


def test_brokers_become_ports_of_the_gateway_and_get_listeners_first() -> None:
    metadata = next(one for one in frames("cluster") if one.api == "Metadata")

    async def test() -> None:
        async with relayed(lambda request: answer_of(metadata)) as around:
            got = await around.client.ask(request_of(metadata))
            before = api.decode_metadata(metadata.version, memoryview(answer_of(metadata))[4:])
            after = api.decode_metadata(metadata.version, memoryview(got)[4:])
            assert after.topics == before.topics
            assert [(one.node_id, one.rack) for one in after.nodes] == [(one.node_id, one.rack) for one in before.nodes]
            assert {(one.host, one.port - one.node_id) for one in after.nodes} == {(HOST, 10_000)}
            assert sorted(around.opened) == sorted((one.node_id, 10_000 + one.node_id) for one in before.nodes)
            assert around.addresses.nodes == {one.node_id: (one.host, one.port) for one in before.nodes}

    run(test)


def test_a_broker_whose_port_cannot_be_had_is_left_out_of_metadata() -> None:
    metadata = next(one for one in frames("cluster") if one.api == "Metadata")

    async def test() -> None:
        async with relayed(lambda request: answer_of(metadata), refused_nodes=frozenset({2})) as around:
            for _ in range(2):
                got = await around.client.ask(request_of(metadata))
                after = api.decode_metadata(metadata.version, memoryview(got)[4:])
                assert 2 not in {one.node_id for one in after.nodes}
                assert len(after.nodes) == 2

    run(test)


def test_produce_without_acks_is_not_waited_for() -> None:
    async def test() -> None:
        def handler(request: bytes) -> bytes | None:
            return None if read_request_head(memoryview(request)).api == 0 else plain_answer(request)

        async with relayed(handler) as around:
            for version in (3, 8, 9, 11):
                await around.client.send(produce(0, version=version))
            got = await around.client.ask(list_groups(99))
            assert got == plain_answer(list_groups(99)[4:])

    run(test)


def test_answers_keep_the_order_of_requests_that_are_sent_at_once() -> None:
    async def test() -> None:
        async with relayed(plain_answer) as around:
            await around.client.send(b"".join(list_groups(number) for number in range(500)))
            for number in range(500):
                assert (await around.client.receive())[4:8] == struct.pack(">i", number)

    run(test)


def test_a_client_that_reads_nothing_stops_its_broker_and_not_the_memory() -> None:
    size = 64 << 20

    async def test() -> None:
        sent = 0

        async def handler(request: bytes) -> list[bytes]:
            nonlocal sent
            writer = around.upstream.writers[0]
            writer.transport.set_write_buffer_limits(high=0)
            writer.write(struct.pack(">i", size + 4) + request[4:8])
            while sent < size:
                writer.write(bytes(1 << 16))
                await writer.drain()
                sent += 1 << 16
            return []

        async with relayed(handler) as around:
            await around.client.send(list_groups(1))
            reached = -1
            while reached != sent or not sent:
                reached = sent
                await asyncio.sleep(0.3)
            assert sent < 24 << 20  # what sockets hold between, and little more
            relay = around.relays[0]
            assert relay._from_broker.waiting <= 1 << 20
            assert relay._from_client.unsent <= 1 << 20
            got = 0
            while got < size + 8:
                got += len(await around.client.reader.read(1 << 20))
            assert got == size + 8

    run(test)


def test_a_broker_that_reads_nothing_stops_its_client() -> None:
    async def test() -> None:
        async with relayed(lambda request: None) as around:
            await around.client.send(list_groups(1))
            while not around.relays:
                await asyncio.sleep(0.01)
            around.relays[0].limits = Limits(in_flight=4)
            sent = 1
            for _ in range(100):
                await around.client.send(list_groups(1))
                sent += 1
            await asyncio.sleep(0.2)
            assert len(around.relays[0]._pending) <= 4
            assert len(around.upstream.requests) <= 4

    run(test)


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (struct.pack(">ii", 3, 1), "impossible size"),
        (struct.pack(">ii", -1, 1), "impossible size"),
        (struct.pack(">ii", 0x7FFFFFFF, 1), "impossible size"),
        (struct.pack(">ii", 8, 2) + bytes(4), "another request"),
    ],
)
def test_a_broker_that_breaks_the_protocol_is_left(data: bytes, cause: str) -> None:
    async def test() -> None:
        async with relayed(lambda request: data) as around:
            await around.client.send(list_groups(1))
            assert await around.client.is_closed()
            (error,) = around.errors
            assert isinstance(error, ProtocolError)
            assert cause in str(error)

    run(test)


def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    async def test() -> None:
        async with relayed(lambda request: plain_answer(request) * 2) as around:
            await around.client.send(list_groups(1))
            await around.client.receive()
            assert await around.client.is_closed()
            assert "unexpected response" in str(around.errors[0])

    run(test)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 7),
        struct.pack(">i", -5),
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">ihhihx", 11, 16, 0, 1, -2),
        struct.pack(">ihhih", 10, 16, 0, 1, 500),
        struct.pack(">ihhih", 10, 17, 0, 1, -1),  # SaslHandshake 0: bare tokens would follow
        struct.pack(">ihhihB", 11, 55, 2, 1, -1, 0),  # DescribeQuorum: addresses of controllers
        struct.pack(">ihhihB", 11, 1, 19, 1, -1, 0),  # a Fetch that is newer than this
        struct.pack(">ihhihB", 11, 3000, 0, 1, -1, 0),
    ],
)
def test_a_client_that_asks_what_is_not_passed_is_hung_up_on(data: bytes) -> None:
    async def test() -> None:
        async with relayed(plain_answer) as around:
            await around.client.send(data)
            assert await around.client.is_closed()
            assert around.upstream.requests == []
            assert isinstance(around.errors[0], ProtocolError)

    run(test)


def test_a_newer_version_of_api_versions_is_answered_here_in_the_layout_of_version_0() -> None:
    async def test() -> None:
        async with relayed(plain_answer) as around:
            head = struct.pack(">hhi", 18, 6, 5) + b"\xff\xff\x00"
            got = await around.client.ask(struct.pack(">i", len(head)) + head)
            told = api.decode_api_versions(0, memoryview(got)[4:])
            assert told.error == 35
            assert got[8:] == struct.pack(">hihhh", 35, 1, 18, 0, 5)
            assert (await around.client.ask(list_groups(1)))[8:] == b"payload"

    run(test)


def test_api_versions_are_clamped_and_the_extension_is_announced() -> None:
    chosen = next(one for one in frames("frames") if one.name == "apiversions-v4")

    class Locating:
        async def answer(self, link: object, request: object) -> None: ...

    async def test() -> None:
        async with relayed(lambda request: answer_of(chosen), locating=Locating()) as around:
            got = await around.client.ask(request_of(chosen))
            before = api.decode_api_versions(4, memoryview(answer_of(chosen))[4:])
            after = api.decode_api_versions(4, memoryview(got)[4:])
            assert after.extension_version == 1
            assert before.ranges.keys() - after.ranges.keys() == {Api.DESCRIBE_QUORUM}
            assert after.ranges[Api.SASL_HANDSHAKE].first == 1
            assert after.ranges[Api.FETCH] == before.ranges[Api.FETCH]
            assert around.relays[0].offered[Api.DESCRIBE_QUORUM] == before.ranges[Api.DESCRIBE_QUORUM]

    run(test)


def test_a_drained_relay_answers_what_is_under_way_and_takes_no_more() -> None:
    async def test() -> None:
        go = asyncio.Event()

        async def handler(request: bytes) -> bytes:
            await go.wait()
            return plain_answer(request)

        async with relayed(handler) as around:
            await around.client.send(list_groups(1))
            while not around.upstream.requests:
                await asyncio.sleep(0.01)
            around.relays[0].drain()
            await asyncio.sleep(0.05)
            go.set()
            assert (await around.client.receive())[8:] == b"payload"
            assert await around.client.is_closed()
            assert around.errors == []

    run(test)


def test_tokens_of_sasl_pass_and_are_nowhere_in_what_the_gateway_says(caplog: pytest.LogCaptureFixture) -> None:
    secret = b"\x00alice\x00c4naryP4ssword"
    head = struct.pack(">hhi", 36, 1, 3) + b"\x00\x01c" + struct.pack(">i", len(secret)) + secret

    async def test() -> None:
        async with relayed(lambda request: None) as around:
            await around.client.send(struct.pack(">i", len(head)) + head)
            while not around.upstream.requests:
                await asyncio.sleep(0.01)
            assert around.upstream.requests == [head]
            around.upstream.writers[0].close()
            assert await around.client.is_closed()
            told = f"{around.metrics!r}{around.errors}{around.relays[0]!r}{vars(around.relays[0])}"
            assert "c4nary" not in told

    with caplog.at_level(0):
        run(test)
    assert "c4nary" not in caplog.text
