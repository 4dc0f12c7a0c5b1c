"""Random messages: what kafka-python writes and kio writes again is read here as both read it; and the way back."""

from __future__ import annotations

from hashlib import sha256
from random import Random
from typing import Any

import pytest
from calls_again import DECODERS, request_again
from codecs_of_others import kafka_python_answer, kafka_python_request, kio_answer, kio_request
from frames import body, encode_fetch_answer, expected, plain, without_defaults
from random_messages import random_answer

from segreader.broker import api as wire
from segreader.broker.api import decode_fetch
from segreader.broker.location import FORMATS_TAG, LOCATION_TAG
from segreader.broker.messages import EpochWanted, FetchPartition, FetchRequest, OffsetWanted
from segreader.broker.primitives import uuid_text
from segreader.broker.protocol import SUPPORTED, Api
from segreader.isolation import IsolationLevel

SEEDS = range(12)
ANSWERS = [
    (api.label, version)
    for api, offered in SUPPORTED.items()
    for version in range(1 if api is Api.LIST_OFFSETS else offered.first, offered.last + 1)
]
IDS = ("P2wqEH1LTg6belocji9NYA", "nh8MUkprTD2PJ2DRsqPE5Q")
ID_OF = {topic: uuid_text(sha256(topic.encode()).digest()[:16]) for topic in ("t", "orders", "naïve", "x" * 249)}
NAMES: dict[str, Any] = {"correlation_id": 7, "client_id": "segreader"}


@pytest.mark.parametrize(("api", "version"), ANSWERS)
def test_a_random_answer_is_read_as_two_other_codecs_read_it(api: str, version: int) -> None:
    key = next(one for one in Api if one.label == api)
    for seed in SEEDS:
        frame = memoryview(random_answer(api, version, seed))
        ours = DECODERS[api](version, frame)

        assert ours == expected(api, plain(kafka_python_answer(api, version, frame)))
        theirs = expected(api, without_defaults(plain(kio_answer(key, version, frame))))
        assert ours == theirs


@pytest.mark.parametrize("version", range(12, 19))
def test_a_random_fetch_answer_that_we_write_is_read_by_others(version: int) -> None:
    for seed in SEEDS:
        answer = decode_fetch(version, memoryview(random_answer("Fetch", version, seed)))
        frame = body(encode_fetch_answer(version, answer, correlation_id=9))

        assert bytes(frame[:4]) == b"\0\0\0\x09"
        assert decode_fetch(version, frame) == answer
        assert expected("Fetch", plain(kafka_python_answer("Fetch", version, frame))) == answer
        kio_answer(Api.FETCH, version, frame)


def random_request(api: Api, version: int, random: Random) -> bytes:
    topics = random.sample(list(ID_OF), random.randrange(1, 4))
    epoch = random.choice((-1, 0, 5, 2**31 - 1))
    offset = random.choice((-6, -1, 0, 42, 2**63 - 1))
    level = random.choice(list(IsolationLevel))
    partitions = [(topic, partition) for topic in topics for partition in range(random.randrange(1, 4))]
    if api is Api.FETCH:
        wanted = tuple(
            FetchPartition(topic, ID_OF[topic], partition, abs(offset), epoch, 1 << 20)
            for topic, partition in partitions
        )
        return wire.encode_fetch(
            version, FetchRequest(wanted, level, 100, 1, 1 << 24, random.choice(("", "r1"))), **NAMES
        )
    if api is Api.LIST_OFFSETS:
        listed = [OffsetWanted(topic, partition, offset, epoch) for topic, partition in partitions]
        return wire.encode_list_offsets(version, listed, level, 1234, **NAMES)
    if api is Api.METADATA:
        by_id = version >= 12 and random.random() < 0.5
        every = random.random() < 0.2
        names = None if every else () if by_id else topics
        return wire.encode_metadata(version, names, topic_ids=IDS if by_id and not every else (), **NAMES)
    if api is Api.OFFSET_FOR_LEADER_EPOCH:
        asked = [EpochWanted(topic, partition, 3, epoch) for topic, partition in partitions]
        return wire.encode_epoch_ends(version, asked, **NAMES)
    if api is Api.OFFSET_FETCH:
        return wire.encode_offset_fetch(version, "g", {topic: [0, 3] for topic in topics}, **NAMES)
    if api is Api.FIND_COORDINATOR:
        return wire.encode_find_coordinator(version, random.choice(topics), **NAMES)
    if api is Api.DESCRIBE_CONFIGS:
        keys = random.choice((None, ["retention.ms", "cleanup.policy"]))
        return wire.encode_describe_configs(version, topics, keys, **NAMES)
    if api is Api.SASL_HANDSHAKE:
        return wire.encode_sasl_handshake(version, "SCRAM-SHA-512", **NAMES)
    if api is Api.SASL_AUTHENTICATE:
        return wire.encode_sasl_authenticate(version, random.randbytes(random.choice((0, 1, 127, 70_000))), **NAMES)
    return wire.encode_api_versions(version, "segreader", "0.1.0", **NAMES)


@pytest.mark.parametrize(("api", "version"), ANSWERS)
def test_a_request_of_ours_is_read_by_two_other_codecs(api: str, version: int) -> None:
    key = next(one for one in Api if one.label == api)
    for seed in SEEDS:
        frame = random_request(key, version, Random(seed))

        correlation_id, client_id, theirs = kafka_python_request(api, version, body(frame))
        assert (correlation_id, client_id) == (7, "segreader")
        assert request_again(api, version, plain(theirs), NAMES) == frame
        kio = plain(kio_request(key, version, body(frame)))
        assert {
            name: value for name, value in plain(theirs).items() if value is not None and kio.get(name) != value
        } == {}


def test_the_extensions_tags_change_nothing_before_them() -> None:
    partition = FetchPartition("t", IDS[0], 3, 42, 5)
    for version in range(12, 19):
        bare = body(wire.encode_fetch(version, FetchRequest((partition,)), **NAMES))
        flagged = body(wire.encode_fetch(version, FetchRequest((partition,), wants_locations=True), **NAMES))

        assert flagged[: len(bare) - 1] == bare[:-1]
        _, _, theirs = kafka_python_request("Fetch", version, flagged)
        assert set(theirs.unknown_tags) == {f"_{LOCATION_TAG}", f"_{FORMATS_TAG}"}


def test_a_consumers_fetch_17_and_18_are_the_same_bytes_but_for_the_version() -> None:
    """Tag 1 of a partition exists from 18 on: in an older version it would close the connection."""
    partition = FetchPartition("t", IDS[0], 3, 42, 5)
    older, newer = (wire.encode_fetch(version, FetchRequest((partition,)), **NAMES) for version in (17, 18))

    assert older[:6] + newer[6:8] + older[8:] == newer
    assert newer.endswith(b"\0" * 2 + b"\x01" + b"\x01" + b"\0")
