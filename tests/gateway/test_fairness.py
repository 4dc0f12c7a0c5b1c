"""One client that asks for much at once: the others have their turn after each short step of the gateway's work."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest
from gateway_process import connected, list_groups, running
from gateway_upstream import Client, relayed, run
from hand_clock import held_loop_time
from located_broker import TOPIC_ID

from segreader.broker.codec import decode_answer, encode_request, read_request_head
from segreader.broker.location import request_tags
from segreader.broker.primitives import Writer
from segreader.broker.protocol import Api
from segreader.gateway import admission
from segreader.gateway.admission import Turns
from segreader.gateway.config import Limits
from segreader.gateway.fetch_messages import STEP, STEP_OF_ABORTS, TOO_LONG, FlaggedFetch, TooLong, flagged_fetch_steps
from segreader.gateway.listening import listen
from segreader.gateway.relay import Relay
from segreader.gateway.rewriting import rewrite_whole
from segreader.testing.directory import kafka_uuid

_LONGEST_STEP_S = 0.02
"""CPU time of this thread: whole requests took 45 to 1,280 ms at once, steps take less than 1 ms."""

_ROUNDS = 4
"""What a machine does beside, or where it stops, may count for a step once: a round within the bound shows what holds.
Each round does everything anew."""


def fetch(
    topics: int, partitions: int, *, tags: int = 0, forgotten: int = 0, version: int = 17, is_flagged: bool = True
) -> bytes:
    """A Fetch of many topics with partitions each, which may have tagged fields."""
    own = [(20_000 + number, b"") for number in range(tags)]
    of_topic = [
        {
            "partition": number,
            "current_leader_epoch": 5,
            "fetch_offset": 42,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
            "tags": own,
        }
        for number in range(partitions)
    ]
    message = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 1,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": f"t{number}",
                "topic_id": kafka_uuid(f"t{number}") if number else TOPIC_ID,
                "partitions": of_topic,
            }
            for number in range(topics)
        ],
        "forgotten_topics_data": [
            {"topic": f"t{number}", "topic_id": TOPIC_ID, "partitions": ()} for number in range(forgotten)
        ],
        "rack_id": "",
        "tags": request_tags() if is_flagged else (),
    }
    return encode_request(Api.FETCH, version, message, correlation_id=9, client_id="greedy")


def read(frame: bytes, most: int = 1000) -> tuple[FlaggedFetch | TooLong | None, int]:
    """What the request holds, and in how many steps that was found."""
    data, steps = frame[4:], 0
    reading = flagged_fetch_steps(data, read_request_head(memoryview(data)), most)
    while True:
        try:
            next(reading)
        except StopIteration as end:
            return end.value, steps
        steps += 1


async def _spent_on_each(other: Client, steps: list[float]) -> list[float]:
    """The CPU time of the event loop while each of 200 requests goes to and fro."""
    spent = []
    for number in range(200):
        before = len(steps)
        assert (await other.ask(ping(number)))[8:] == b"pong"
        spent.append(sum(steps[before:]))
    return spent


@pytest.mark.parametrize(("topics", "partitions"), [(1, 1000), (1000, 1), (20, 50)])
@pytest.mark.parametrize("version", [12, 13, 18])
def test_a_flagged_fetch_is_read_in_steps_of_few_partitions(topics: int, partitions: int, version: int) -> None:
    frame = fetch(topics, partitions, version=version)
    request, steps = read(frame)
    assert isinstance(request, FlaggedFetch)
    assert len(request.partitions) == 1000
    assert steps >= 1000 // STEP
    assert request.encode(request.partitions, 9) == fetch(topics, partitions, version=version, is_flagged=False)


@pytest.mark.parametrize(
    "frame",
    [
        fetch(1, 1001),
        fetch(1001, 1),
        fetch(1001, 0),
        fetch(1, 28_000),
        fetch(1, 300, tags=1024),
        fetch(1, 1, tags=1),
        fetch(1, 1, forgotten=5_000),
    ],
    ids=["partitions", "topics", "empty topics", "many", "tags", "a tag", "forgotten"],
)
def test_what_is_long_to_read_is_left_to_the_broker(frame: bytes) -> None:
    request, steps = read(frame)
    assert request is TOO_LONG
    assert steps <= 1000 // STEP


def test_a_request_without_the_flag_is_not_read() -> None:
    assert read(fetch(1, 1, is_flagged=False)) == (None, 0)


def test_a_request_of_too_many_partitions_reaches_the_broker_as_it_is() -> None:
    frame = fetch(1, 5)

    class Never:
        async def answer(self, link: Relay, request: FlaggedFetch) -> None:
            raise AssertionError

    async def test() -> None:
        async with relayed(
            lambda request: struct.pack(">i", 7) + request[4:8] + b"abc",
            locating=Never(),
            limits=Limits(flagged_partitions=4),
        ) as around:
            await around.client.send(frame)
            while not around.upstream.requests:
                await asyncio.sleep(0.01)
            assert around.upstream.requests == [frame[4:]]
            assert around.metrics.limits_reached == {"flagged_partitions": 1}

    run(test)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """CPU seconds of each turn that the event loop gave, without what Python's collector does in one of them."""
    found: list[float] = []
    run_one = asyncio.events.Handle._run

    def timed(handle: Any) -> None:
        began = time.thread_time()
        run_one(handle)
        found.append(time.thread_time() - began)

    monkeypatch.setattr(asyncio.events.Handle, "_run", timed)
    gc.collect()
    gc.disable()
    yield found
    gc.enable()


class Many:
    """A broker's answer to a Fetch of so many partitions: each is empty."""

    def __init__(self, partitions: int) -> None:
        one = struct.pack(">ihqqqBiBB", 0, 0, 9, 9, 0, 1, -1, 1, 0)
        raw = struct.pack(">iBihi", 9, 0, 0, 0, 0)
        count = bytes((partitions + 1 & 0x7F | 0x80, partitions + 1 >> 7 & 0x7F | 0x80, partitions + 1 >> 14))
        raw += b"\x02" + bytes(16) + count + one * partitions + b"\x00" + b"\x00"
        self.frame = struct.pack(">i", len(raw)) + raw


def ping(number: int) -> bytes:
    data = struct.pack(">hhi", 16, 0, number) + b"\0\1c"
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize("is_flagged", [True, False])
def test_others_do_not_wait_for_a_client_with_28_000_partitions(is_flagged: bool, steps: list[float]) -> None:
    greedy, many = fetch(1, 28_000, is_flagged=is_flagged), Many(28_000)

    class Never:
        async def answer(self, link: Relay, request: FlaggedFetch) -> None:
            raise AssertionError

    def handler(request: bytes) -> bytes:
        if request[:2] == b"\0\1":
            return many.frame
        return struct.pack(">i", 8) + request[4:8] + b"pong"

    async def test() -> None:
        async with relayed(handler, locating=Never()) as around:
            other = Client(*await asyncio.open_connection(*around.front))

            async def attack() -> None:
                while True:
                    assert await around.client.ask(greedy) == many.frame

            await around.client.ask(greedy)
            attacking = asyncio.ensure_future(attack())
            longest: list[float] = []
            while not longest or min(longest) >= _LONGEST_STEP_S:
                assert len(longest) < _ROUNDS, longest
                steps.clear()
                turns = await _spent_on_each(other, steps)
                longest.append(max(steps))
                assert median(turns) < 0.01, "CPU time of all others while one request goes to and fro"
            attacking.cancel()
            other.writer.close()

    run(test)


@pytest.mark.parametrize(("topics", "partitions"), [(1, 20_000), (10_000, 1)])
def test_an_answer_to_produce_is_read_in_short_steps(topics: int, partitions: int, steps: list[float]) -> None:
    writer = Writer(flexible=True)
    writer.int32(7)
    writer.tags()
    writer.count(topics)
    for _ in range(topics):
        writer.raw(bytes(16))
        writer.count(partitions)
        for number in range(partitions):
            writer.raw(struct.pack(">ihqqqBBB", number, 3, -1, -1, -1, 1, 0, 0))
        writer.tags()
    writer.int32(0)
    writer.tags()

    class Nowhere:
        def translate(self, node_id: int, host: str, port: int) -> None: ...

    async def test() -> None:
        frame = memoryview(writer.data)
        shares: list[float] = []
        while not shares or min(shares) >= 1 / 4:
            assert len(shares) < _ROUNDS, shares
            steps.clear()
            began = time.thread_time()
            assert await asyncio.ensure_future(rewrite_whole(frame, Api.PRODUCE, 13, Nowhere())) == frame
            shares.append(max(steps) / (time.thread_time() - began))
            assert len(steps) >= topics * partitions // 32

    run(test)


def coordinators(count: int) -> bytes:
    """An answer to FindCoordinator, version 6."""
    writer = Writer(flexible=True)
    writer.int32(7)
    writer.tags()
    writer.int32(0)
    writer.count(count)
    for number in range(count):
        writer.string(f"group-{number}")
        writer.int32(1)
        writer.string("broker.example")
        writer.int32(9092)
        writer.raw(bytes(4))  # no error, null, no tagged fields
    writer.tags()
    return bytes(writer.data)


def test_an_answer_to_find_coordinator_is_written_anew_in_short_steps(steps: list[float]) -> None:
    class Moved:
        def translate(self, node_id: int, host: str, port: int) -> tuple[str, int]:
            return "gateway.example", port + node_id

    async def test() -> None:
        frame = memoryview(coordinators(10_000))
        shares: list[float] = []
        while not shares or min(shares) >= 1 / 4:
            assert len(shares) < _ROUNDS, shares
            steps.clear()
            began = time.thread_time()
            got = await asyncio.ensure_future(rewrite_whole(frame, Api.FIND_COORDINATOR, 6, Moved()))
            shares.append(max(steps) / (time.thread_time() - began))
            assert len(steps) >= 10_000 // 8
        told = decode_answer(Api.FIND_COORDINATOR, 6, memoryview(got)).coordinators
        assert [one.key for one in told] == [f"group-{number}" for number in range(10_000)]
        assert {(one.host, one.port) for one in told} == {("gateway.example", 9093)}

    run(test)


def with_aborts(count: int, records: bytes = b"") -> bytes:
    """An answer to Fetch, version 17, of one partition with so many aborted transactions."""
    writer = Writer(flexible=True)
    writer.raw(struct.pack(">iBihi", 9, 0, 0, 0, 0))
    writer.count(1)
    writer.raw(bytes(16))
    writer.count(1)
    writer.raw(struct.pack(">ihqqq", 0, 0, 9, 9, 0))
    writer.count(count)
    writer.raw(b"".join(struct.pack(">qqx", number, number) for number in range(count)))
    writer.int32(-1)
    writer.blob(records)
    writer.raw(bytes(3))
    return writer.framed()


@pytest.mark.parametrize("count", [0, 126, 127, 300, 100_000, 300_000])
def test_aborted_transactions_pass_in_short_steps(count: int, steps: list[float]) -> None:
    answer = with_aborts(count, b"records")

    async def test() -> None:
        async with relayed(lambda request: answer) as around:
            assert await around.client.ask(fetch(1, 1, is_flagged=False)) == answer
            longest: list[float] = []
            while not longest or min(longest) >= _LONGEST_STEP_S:
                assert len(longest) < _ROUNDS, longest
                steps.clear()
                assert await around.client.ask(fetch(1, 1, is_flagged=False)) == answer
                longest.append(max(steps))
                assert len(steps) >= count // STEP_OF_ABORTS

    run(test)


@pytest.mark.parametrize("api", [Api.API_VERSIONS, 16])
def test_a_client_that_asks_ahead_has_one_request_looked_at_in_a_turn(api: int, steps: list[float]) -> None:
    body = b"\0\2a\2b\0" if api == Api.API_VERSIONS else b""
    data = struct.pack(">hhi", api, 3 if body else 0, 1) + b"\0\1c" + body
    ahead = 64 * (struct.pack(">i", len(data)) + data)
    offers = Writer(flexible=True)
    offers.int16(0)
    offers.count(60)
    for number in range(60):
        offers.raw(struct.pack(">hhhx", number, 0, 3))
    offers.int32(0)
    offers.tags()

    def handler(request: bytes) -> bytes:
        answer = request[4:8] + (bytes(offers.data) if request[:2] == b"\0\x12" else b"pong")
        return struct.pack(">i", len(answer)) + answer

    async def test() -> None:
        async with relayed(handler) as around:
            other = Client(*await asyncio.open_connection(*around.front))
            await other.ask(ping(1))

            async def attack() -> None:
                while True:
                    await around.client.send(ahead)
                    for _ in range(64):
                        await around.client.receive()

            attacking = asyncio.ensure_future(attack())
            turns = await _spent_on_each(other, steps)
            attacking.cancel()
            assert median(turns) < 0.005, "CPU time of all, the client and the broker, too"
            other.writer.close()

    run(test)


def test_connections_that_come_at_once_are_accepted_in_turns() -> None:
    async def test() -> None:
        taken: list[str] = []

        async def take(one: socket.socket, peer: str) -> None:
            taken.append(peer)
            one.close()

        listener = await listen("127.0.0.1", 0, take)
        with contextlib.ExitStack() as opened:
            for _ in range(100):
                opened.enter_context(socket.create_connection(listener.sockets[0].getsockname()[:2]))
            for turns in range(1, 20):
                await asyncio.sleep(0)
                assert len(taken) <= turns
            while len(taken) < 100:
                await asyncio.sleep(0)
        listener.close()

    run(test)


# One client on many connections.


async def _begin_at_once(turns: Turns, who: str) -> bool:
    """Whether many requests of a client begin in one step."""
    begun = [asyncio.ensure_future(turns.turn(who)) for _ in range(50)]
    await asyncio.sleep(0)
    is_each = all(one.done() for one in begun)
    await asyncio.gather(*begun)
    return is_each


async def _begun_by_two(turns: Turns) -> None:
    for who in ("one", "other"):
        await turns.turn(who)


def test_the_requests_of_one_client_begin_in_turns_with_those_of_others() -> None:
    async def test() -> None:
        turns, order = Turns(), list[str]()

        async def begin(who: str) -> None:
            await turns.turn(who)
            order.append(who)

        await _begun_by_two(turns)
        many = [asyncio.ensure_future(begin("many")) for _ in range(50)]
        await asyncio.gather(*[begin("one") for _ in range(3)], begin("other"))

        assert order.index("other") < 5
        assert order.count("many") <= 5
        await asyncio.gather(*many)
        assert order.count("many") == 50

    run(test)


def test_the_requests_of_a_client_that_is_alone_begin_at_once() -> None:
    async def test() -> None:
        assert await _begin_at_once(Turns(), "alone")

    run(test)


def test_a_client_is_alone_again_when_others_ask_no_more() -> None:
    async def test() -> None:
        turns = Turns()
        with held_loop_time() as now:
            await _begun_by_two(turns)
            now.at_s += 0.9 * admission._SHARED_FOR_S
            assert not await _begin_at_once(turns, "other")
            now.at_s += 0.2 * admission._SHARED_FOR_S
            assert await _begin_at_once(turns, "other")

    run(test)


def test_a_request_that_is_gone_takes_no_turn() -> None:
    async def test() -> None:
        turns = Turns()
        await _begun_by_two(turns)
        waiting = [asyncio.ensure_future(turns.turn("many")) for _ in range(20)]
        await asyncio.sleep(0)
        for one in waiting[1:19]:
            one.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert waiting[19].done()
        await asyncio.gather(*waiting, return_exceptions=True)

    run(test)


def test_few_requests_of_a_client_with_many_connections_come_between_two_of_another() -> None:
    async def test() -> None:
        async with running() as (gateway, upstream):
            port = gateway.config.listen_port
            other = Client(*await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0)))
            assert (await other.ask(list_groups()))[8:] == b"payload"
            ahead = [await connected(port) for _ in range(30)]
            upstream.requests.clear()
            for one in ahead:
                one.writer.write(list_groups() * 20)
            between = []
            for _ in range(10):
                before = len(upstream.requests)
                await other.ask(list_groups())
                between.append(len(upstream.requests) - before - 1)
            other.writer.close()

        assert sorted(between)[5] <= 4  # 2 here, 46 where each connection has a turn of its own

    run(test)
