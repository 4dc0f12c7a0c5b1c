"""A flagged Fetch that comes again, and a probe's answer that does: read by what changed, with the same meaning."""

from __future__ import annotations

import asyncio
import random
import struct
from pathlib import Path

import pytest
from gateway_upstream import relayed, run
from located_broker import TOPIC, TOPIC_ID, Leader, Log, asked, flagged, located_over, locations

from segreader.broker.codec import encode_request, read_request_head
from segreader.broker.location import request_tags
from segreader.broker.protocol import Api
from segreader.errors import ProtocolError
from segreader.gateway.fetch_messages import FlaggedFetch, flagged_fetch_steps


def frame(
    version: int = 17, offset: int = 42, number: int = 9, *, client_id: str | None = "reader", **other: object
) -> bytes:
    """A flagged Fetch of one partition, without its size."""
    one = {
        "partition": 3,
        "current_leader_epoch": 5,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    message = {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 1,
        "session_id": 0,
        "session_epoch": 0,
        "topics": [{"topic": TOPIC, "topic_id": TOPIC_ID, "partitions": [one]}],
        "forgotten_topics_data": (),
        "rack_id": "r",
        "tags": request_tags(),
        **other,
    }
    return encode_request(Api.FETCH, version, message, correlation_id=number, client_id=client_id)[4:]


def read(data: bytes) -> FlaggedFetch | None:
    """What a request says when it is read as a whole; ``None`` for one that gets no location."""
    reading = flagged_fetch_steps(data, read_request_head(memoryview(data)))
    try:
        while True:
            next(reading)
    except StopIteration as end:
        return end.value if isinstance(end.value, FlaggedFetch) else None
    except ProtocolError:
        return None


FORGOTTEN = [{"topic": "old", "topic_id": TOPIC_ID, "partitions": (1, 2)}]
SHAPES: list[dict[str, object]] = [
    {},
    {"client_id": None},
    {"client_id": "ü" * 60},
    {"session_id": 7, "session_epoch": 2, "forgotten_topics_data": FORGOTTEN},
    {"tags": (*request_tags(stops=(100,), most_segments=3), (20_000, b"other"))},
]


@pytest.mark.parametrize("version", range(12, 19))
@pytest.mark.parametrize("shape", SHAPES)
def test_a_request_that_comes_again_is_read_as_if_it_were_the_first(version: int, shape: dict[str, object]) -> None:
    first = read(frame(version, **shape))  # type: ignore[arg-type]
    assert first is not None
    for offset, number in ((0, 10), (42, 11), ((1 << 63) - 1, (1 << 31) - 1)):
        data = frame(version, offset, number, **shape)  # type: ignore[arg-type]
        again, anew = first.again(data, read_request_head(memoryview(data))), read(data)
        assert again is not None
        assert anew is not None
        assert again._replace(tags=(), around=None) == anew._replace(tags=(), around=None)
        probes = [one.zero_probe() for one in again.partitions]
        for _ in range(2):
            assert again.probe(probes, 77) == again.encode(probes, 77, waits=False)
            assert again.probe(probes, 78) == anew.encode(probes, 78, waits=False)


@pytest.mark.parametrize("version", [12, 17])
def test_no_byte_of_a_request_is_taken_for_what_another_one_said(version: int) -> None:
    data = frame(version)
    first = read(data)
    assert first is not None
    remembered = 0
    for at in range(4, len(data)):
        for other in (0x00, 0x01, 0x7F, 0x80, 0xFF):
            changed = data[:at] + bytes((other,)) + data[at + 1 :]
            try:
                head = read_request_head(memoryview(changed))
            except ProtocolError:
                continue
            if (again := first.again(changed, head)) is not None:
                remembered += 1
                anew = read(changed)
                assert anew is not None
                assert again._replace(tags=(), around=None) == anew._replace(tags=(), around=None)
    assert remembered >= 5 * 32
    for cut in (data[:-1], data + b"\0", data[:40]):
        assert first.again(cut, read_request_head(memoryview(cut))) is None


def test_long_requests_and_those_of_several_partitions_are_not_remembered() -> None:
    for data in (frame(client_id="c" * 2000), flagged((0, 1), (1, 1))[4:]):
        request = read(data)
        assert request is not None
        assert request.around is None
        assert request.again(data, request.head) is None
        assert request.probe(request.partitions, 5) == request.encode(request.partitions, 5, waits=False)


@pytest.mark.parametrize("list_offsets", [11, 9])
def test_what_a_broker_says_anew_counts_at_once_in_requests_that_come_again(tmp_path: Path, list_offsets: int) -> None:
    made, leader = located_over(tmp_path, partitions=2), Leader({0: Log(), 1: Log()}, list_offsets=list_offsets)

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            for number in range(40):
                partition, offset = number % 2, 5 * number % 200
                leader.may_read = number % 3 > 0
                leader.logs[partition].log_start = 50 if number % 5 == 0 else 0
                leader.logs[partition].end = 300 + number
                answer = await asked(around, flagged((partition, offset), number=number))
                is_given = leader.may_read and offset >= leader.logs[partition].log_start
                assert (locations(answer)[partition] is not None) == is_given
                (one,) = answer.partitions
                assert one.partition == partition
                if is_given:
                    assert (one.high_watermark, one.error) == (300 + number, 0)
                else:
                    assert one.error == (1 if leader.may_read else 29)
                await asyncio.sleep(0)
            fetches = [request for request in around.upstream.requests if request[:2] == b"\0\1"]
            assert len({struct.unpack_from(">i", request, 4) for request in fetches}) >= 40

    run(test)


def answered(rows: list[bytes]) -> bytes:
    """An answer to Fetch, version 17, of partitions as they are on the wire, with its size."""
    topics = b"\x02" + bytes(16) + bytes((len(rows) + 1,)) + b"".join(rows) + b"\x00"
    data = struct.pack(">iBihi", 9, 0, 0, 0, 0) + topics + b"\x00"
    return struct.pack(">i", len(data)) + data


def partition(number: int, aborted: bytes = b"\x01", records: bytes = b"\x01", tags: bytes = b"\x00") -> bytes:
    return struct.pack(">ihqqq", number, 0, 9, 9, 0) + aborted + struct.pack(">i", -1) + records + tags


def test_empty_partitions_pass_as_they_are_with_any_others_between() -> None:
    kinds: tuple[list[dict[str, bytes]], ...] = (
        [{}] * 6,
        [{"records": b"\x00"}, {"aborted": b"\x00"}],
        [{"aborted": b"\x02" + bytes(17)}, {"records": b"\x04abc"}, {"tags": b"\x01\x05\x02hi"}],
    )
    draw = random.Random(5)
    for round_ in range(60):
        some = draw.choices([one for kind in kinds for one in kind], k=draw.randrange(1, 120))
        answer = answered([partition(number, **one) for number, one in enumerate(some)])

        async def test(answer: bytes = answer, pieces: bool = bool(round_ % 2)) -> None:
            async with relayed(lambda _: answer, pieces=draw if pieces else None) as around:
                assert await around.client.ask(frame_of_plain_fetch()) == answer

        run(test)


def frame_of_plain_fetch() -> bytes:
    data = frame(tags=())
    return struct.pack(">i", len(data)) + data
