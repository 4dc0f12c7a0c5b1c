"""Addresses in answers: theirs become ours, all else stays; any bytes give an answer or a typed error."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import struct
from typing import Any

import pytest
from frames import Frame, encode_fetch_answer, frames
from gateway_upstream import HOST, PORTS, relayed, run
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from segreader.broker.api import decode_fetch
from segreader.broker.messages import FetchAnswer, FetchedPartition, LeaderAndEpoch, Node
from segreader.broker.primitives import Reader, Writer
from segreader.broker.protocol import Api
from segreader.errors import ProtocolError
from segreader.gateway.relay import rewrite_api_versions
from segreader.gateway.rewriting import (
    FILLER_TAG,
    HEAD_APIS,
    rewrite_end,
    rewrite_start,
    rewrite_whole,
    tag_section,
)

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
LONG = "a-broker-with-a-name-that-is-very-much-longer-than-the-gateways-own.example.internal"


class Table:
    """Every node but those in ``unknown`` has an address."""

    def __init__(self, unknown: frozenset[int] = frozenset(), host: str = HOST) -> None:
        self.unknown, self.host = unknown, host

    def translate(self, node_id: int, host: str, port: int) -> tuple[str, int] | None:
        return None if node_id in self.unknown else (self.host, 10_000 + node_id)


def nodes(*ids: int, host: str = "b") -> bytes:
    """An array of NodeEndpoints."""
    writer = Writer(flexible=True)
    writer.count(len(ids))
    for node_id in ids:
        writer.int32(node_id)
        writer.string(host)
        writer.int32(9092)
        writer.string(f"rack{node_id}")
        writer.tags([(77, b"unknown")])
    return bytes(writer.data)


def read_nodes(data: bytes) -> list[tuple[int, str, int, str | None, dict[int, bytes]]]:
    reader = Reader(data, flexible=True, what="nodes")
    found = []
    for _ in range(reader.count(1)):
        node = reader.int32(), reader.string(), reader.int32(), reader.nullable_string()
        found.append((*node, {tag: bytes(value.take(value.left)) for tag, value in reader.tags()}))
    reader.finish()
    return found


def read_tags(data: bytes) -> dict[int, bytes]:
    reader = Reader(data, flexible=True, what="tags")
    found = {tag: bytes(value.take(value.left)) for tag, value in reader.tags()}
    reader.finish()
    return found


def test_unknown_tags_of_nodes_and_of_the_answer_stay() -> None:
    tail = tag_section([(0, nodes(1, 2)), (9, b"other"), (12480, b"\0\1")])
    found = read_tags(rewrite_end(memoryview(tail), Api.FETCH, 17, Table()))
    assert found.keys() == {0, 9, 12480}
    assert found[9] == b"other"
    assert read_nodes(found[0]) == [
        (1, HOST, 10_001, "rack1", {77: b"unknown"}),
        (2, HOST, 10_002, "rack2", {77: b"unknown"}),
    ]


def test_a_node_without_an_address_here_is_left_out() -> None:
    tail = tag_section([(0, nodes(1, 2, 3))])
    found = read_tags(rewrite_end(memoryview(tail), Api.FETCH, 17, Table(frozenset({2}))))
    assert [one[0] for one in read_nodes(found[0])] == [1, 3]


def test_a_section_of_tags_takes_any_size_it_must() -> None:
    plain = tag_section([(0, b"x")])
    for more in range(400):
        padded = tag_section([(0, b"x")], len(plain) + more)
        assert len(padded) == len(plain) + more, f"{more} more"
        found = read_tags(padded)
        assert found.pop(FILLER_TAG, b"").strip(b"\0") == b"", f"{more} more"
        assert found == {0: b"x"}, f"{more} more"
        if more < 5:
            assert FILLER_TAG not in read_tags(padded), f"{more} more"


@pytest.mark.parametrize("more", [(1 << 14) + n for n in range(-3, 10)])
def test_a_filler_may_be_long(more: int) -> None:
    assert len(tag_section([], 1 + more)) == 1 + more


@pytest.mark.parametrize("host", ["x", HOST, LONG])
def test_where_the_size_was_told_addresses_fit_or_are_left_out(host: str) -> None:
    tail = tag_section([(0, nodes(1, 2, host="broker-name")), (9, b"other")])
    new = rewrite_end(memoryview(tail), Api.FETCH, 17, Table(host=host), size=len(tail))
    assert len(new) == len(tail)
    found = read_tags(new)
    assert found[9] == b"other"
    if host == "x":
        assert [one[1] for one in read_nodes(found[0])] == ["x", "x"]
    elif host == LONG:
        assert 0 not in found


@pytest.mark.parametrize("host", ["x", LONG])
def test_the_array_of_the_share_apis_fits_or_is_empty(host: str) -> None:
    tail = nodes(1, 2, host="broker-name") + tag_section([(9, b"other")])
    new = rewrite_end(memoryview(tail), Api.SHARE_FETCH, 2, Table(host=host), size=len(tail))
    assert len(new) == len(tail)
    array = new[:1] if host == LONG else new[: len(nodes(1, 2, host="x"))]
    assert [one[1] for one in read_nodes(array)] == ([] if host == LONG else ["x", "x"])


def partition(number: int, records: bytes = b"", error: int = 0, leader: int | None = None) -> FetchedPartition:
    return FetchedPartition(
        None,
        TOPIC_ID,
        number,
        error,
        100,
        90,
        5,
        memoryview(records),
        ((1, 2), (3, 4)),
        current_leader=None if leader is None else LeaderAndEpoch(leader, 7),
    )


def fetch_request(correlation_id: int, version: int = 17) -> bytes:
    head = struct.pack(">hhi", 1, version, correlation_id) + b"\0\1c\0"
    return struct.pack(">i", len(head)) + head


@pytest.mark.parametrize("host", ["b", LONG])
@pytest.mark.parametrize("size", [10, 100_000, 3_000_000])
def test_a_fetch_answer_of_any_size_keeps_its_records_and_its_hint_is_ours_or_none(size: int, host: str) -> None:
    records = random.Random(1).randbytes(size)
    node = (Node(2, host, 9092, "r"),)
    answer = FetchAnswer((partition(0, records), partition(1, b"", 6, 2), partition(2, records)), nodes=node)

    async def test() -> None:
        async with relayed(
            lambda request: encode_fetch_answer(17, answer, correlation_id=struct.unpack(">i", request[4:8])[0]),
            pieces=random.Random(size),
        ) as around:
            for number in (1, 2):
                got = await around.client.ask(fetch_request(number))
                found = decode_fetch(17, memoryview(got)[4:])
                assert found.partitions == answer.partitions
                ours = Node(2, HOST, PORTS.base + 2, "r")
                assert found.nodes in ((ours,), ()) if size > 60_000 else found.nodes == (ours,)
                assert found.nodes == (ours,) or len(host) < len(HOST)

    run(test)


def test_fetch_answers_before_version_16_are_not_looked_into() -> None:
    async def test() -> None:
        async with relayed(lambda request: struct.pack(">i", 9) + request[4:8] + b"bytes") as around:
            assert (await around.client.ask(fetch_request(3, 15)))[8:] == b"bytes"

    run(test)


def produce_answer(version: int, *, tags: bytes) -> bytes:
    writer = Writer(flexible=True)
    writer.int32(1)
    writer.tags()
    writer.count(1)
    if version >= 13:
        writer.uuid(TOPIC_ID)
    else:
        writer.string("t")
    writer.count(1)
    writer.raw(struct.pack(">ihqqq", 0, 6, -1, -1, -1))
    writer.count(1)
    writer.int32(3)
    writer.string("bad")
    writer.tags()
    writer.string(None)
    writer.tags([(0, struct.pack(">iib", 2, 7, 0))])
    writer.tags()
    writer.int32(0)
    return bytes(writer.data) + tags


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_produce_answers_name_the_gateway(version: int) -> None:
    frame = produce_answer(version, tags=tag_section([(0, nodes(2)), (5, b"y")]))
    start = len(produce_answer(version, tags=b""))
    new = asyncio.run(rewrite_whole(memoryview(frame), Api.PRODUCE, version, Table()))
    assert new[:start] == frame[:start]
    assert [one[:3] for one in read_nodes(read_tags(new[start:])[0])] == [(2, HOST, 10_002)]


@pytest.mark.parametrize("version", [1, 2])
def test_share_acknowledge_answers_name_the_gateway(version: int) -> None:
    writer = Writer(flexible=True)
    writer.int32(1)
    writer.tags()
    writer.raw(struct.pack(">ih", 0, 0))
    writer.string(None)
    writer.raw(bytes(4) if version >= 2 else b"")
    writer.count(1)
    writer.uuid(TOPIC_ID)
    writer.count(1)
    writer.raw(struct.pack(">ih", 0, 6))
    writer.string("moved")
    writer.raw(struct.pack(">ii", 2, 7))
    for _ in range(3):
        writer.tags()
    start = len(writer.data)
    frame = bytes(writer.data) + nodes(2) + b"\0"
    new = asyncio.run(rewrite_whole(memoryview(frame), Api.SHARE_ACKNOWLEDGE, version, Table()))
    assert new[:start] == frame[:start]
    assert [one[:3] for one in read_nodes(new[start:-1])] == [(2, HOST, 10_002)]


@pytest.mark.parametrize("size", [10, 300_000])
def test_share_fetch_answers_name_the_gateway_and_keep_their_records(size: int) -> None:
    records = random.Random(2).randbytes(size)
    writer = Writer(flexible=True)
    writer.int32(5)
    writer.tags()
    writer.raw(struct.pack(">ih", 0, 0))
    writer.string(None)
    writer.int32(30_000)
    writer.count(1)
    writer.uuid(TOPIC_ID)
    writer.count(1)
    writer.raw(struct.pack(">ih", 0, 6))
    writer.string(None)
    writer.int16(0)
    writer.string(None)
    writer.raw(struct.pack(">ii", 2, 7))
    writer.tags()
    writer.blob(records)
    writer.count(1)
    writer.raw(struct.pack(">qqh", 1, 2, 3))
    for _ in range(3):
        writer.tags()
    start = len(writer.data)
    writer.raw(nodes(2, host=LONG))
    writer.tags()
    frame = writer.framed()

    async def test() -> None:
        async with relayed(lambda request: frame) as around:
            head = struct.pack(">hhi", 78, 1, 5) + b"\0\1c\0"
            got = await around.client.ask(struct.pack(">i", len(head)) + head)
            assert got[4 : 4 + start] == frame[4 : 4 + start]
            assert HOST.encode() in got[4 + start :]
            assert LONG.encode() not in got

    run(test)


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_names_the_gateway_or_says_that_there_is_none(version: int) -> None:
    def answer(node_id: int, host: str, port: int, error: int) -> bytes:
        writer = Writer(flexible=version >= 3)
        writer.int32(1)
        writer.tags()
        if version >= 1:
            writer.int32(0)
        if version < 4:
            writer.int16(error)
            if version >= 1:
                writer.string("")
        else:
            writer.count(1)
            writer.string("g")
        writer.int32(node_id)
        writer.string(host)
        writer.int32(port)
        if version >= 4:
            writer.int16(error)
            writer.string("")
            writer.tags()
        writer.tags()
        return bytes(writer.data)

    def rewritten(frame: bytes) -> bytes:
        start, size = rewrite_start(memoryview(frame), Api.FIND_COORDINATOR, version, Table(frozenset({9})))
        assert size <= len(frame)
        return start + frame[size:]

    assert rewritten(answer(1, LONG, 9092, 0)) == answer(1, HOST, 10_001, 0)
    assert rewritten(answer(9, "b", 9092, 0)) == answer(-1, "", -1, 15)
    assert rewritten(answer(-1, "", -1, 15)) == answer(-1, "", -1, 15)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("endpoint_type", [1, 2])
def test_describe_cluster_names_the_gateway_for_brokers_only(version: int, endpoint_type: int) -> None:
    def answer(host: str, base: int) -> bytes:
        writer = Writer(flexible=True)
        writer.int32(1)
        writer.tags()
        writer.raw(struct.pack(">ih", 0, 0))
        writer.string(None)
        if version >= 1:
            writer.raw(bytes([endpoint_type]))
        writer.string("cluster")
        writer.int32(1)
        writer.count(2)
        for node_id in (1, 2):
            writer.int32(node_id)
            writer.string(host)
            writer.int32(base + node_id)
            writer.string("r")
            if version >= 2:
                writer.boolean(True)
            writer.tags([(3, b"x")])
        writer.int32(-(1 << 31))
        writer.tags()
        return bytes(writer.data)

    frame = answer("b", 9000)
    start, size = rewrite_start(memoryview(frame), Api.DESCRIBE_CLUSTER, version, Table())
    is_of_brokers = version == 0 or endpoint_type == 1
    assert start + frame[size:] == (answer(HOST, 10_000) if is_of_brokers else frame)


def looked_into(api: int, version: int, frame: bytes) -> None:
    data = memoryview(frame)
    if api in HEAD_APIS:
        rewrite_start(data, Api(api), version, Table())
    elif api in (Api.PRODUCE, Api.SHARE_ACKNOWLEDGE):
        asyncio.run(rewrite_whole(data, Api(api), version, Table()))
    elif api == Api.API_VERSIONS:
        rewrite_api_versions(data, version)


LOOKED = [
    *((int(api), version) for api in sorted(HEAD_APIS) for version in range(3)),
    (3, 9),
    (3, 12),
    (3, 13),
    (10, 4),
    (0, 10),
    (0, 13),
    (79, 1),
    (79, 2),
    (18, 0),
    (18, 3),
    (18, 5),
]


@settings(max_examples=tries(400), deadline=None)
@given(st.sampled_from(LOOKED), st.binary(max_size=300))
def test_any_bytes_are_rewritten_or_a_protocol_error(which: tuple[int, int], data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        looked_into(*which, data)


def small(file: str) -> list[Frame]:
    return [one for one in frames(file) if one.response is not None and len(one.response) < 1500]


@pytest.mark.parametrize("one", [*small("cluster"), *small("frames")], ids=str)
def test_a_recorded_answer_cut_or_changed_anywhere_is_passed_or_ends_the_connection(one: Frame) -> None:
    assert one.response is not None
    assert one.request is not None
    if one.version > 90:
        return
    chosen = random.Random(one.name)
    frame, request = one.response, one.request

    async def test() -> None:
        for _ in range(12):
            body = bytearray(frame[8:])
            if chosen.random() < 0.5:
                del body[chosen.randrange(len(body)) :]
            for _ in range(chosen.randrange(1, 6)):
                if body:
                    body[chosen.randrange(len(body))] = chosen.randrange(256)
            data = struct.pack(">i", len(body) + 4) + frame[4:8] + bytes(body)
            async with relayed(lambda _, data=data: data) as around:  # type: ignore[misc]
                await around.client.send(request)
                around.client.writer.write_eof()
                try:
                    got = await asyncio.wait_for(around.client.receive(), 10)
                    assert got[4:8] == data[4:8]
                except asyncio.IncompleteReadError:
                    pass
                assert all(isinstance(error, ProtocolError) for error in around.errors)

    run(test)


def test_the_parsed_versions_are_those_that_the_recorded_broker_offers_or_fewer() -> None:
    chosen: Any = next(one for one in frames("frames") if one.name == "apiversions-v4")
    new, offered = rewrite_api_versions(memoryview(chosen.response)[4:], 4)
    assert len(new) < len(chosen.response)
    assert json.dumps(sorted(offered)) == json.dumps(sorted(one["api_key"] for one in chosen.decoded["api_keys"]))
