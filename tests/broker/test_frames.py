"""Frames of real brokers, of the Java client, and written by hand, against every decoder and encoder."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from calls_again import DECODERS, request_again
from codecs_of_others import kafka_python_answer, kafka_python_request, kio_answer
from frames import RECORDED, Frame, body, encode_fetch_answer, expected, frames, plain, snake, without_defaults

from segreader.broker import api as wire
from segreader.broker.api import decode_fetch
from segreader.broker.messages import (
    ApiVersionRange,
    ApiVersions,
    ClusterMetadata,
    CommittedOffset,
    CommittedOffsets,
    Coordinator,
    EpochEnd,
    EpochEndsAnswer,
    FetchAnswer,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    LeaderAndEpoch,
    ListedOffset,
    ListOffsetsAnswer,
    Node,
    PartitionMetadata,
    RemoteLogSegmentLocation,
    SaslAuthenticateAnswer,
    SaslHandshakeAnswer,
    TopicMetadata,
)
from segreader.broker.protocol import Api

T_ID = "P2wqEH1LTg6belocji9NYA"
EVERY = [one for file in (*RECORDED, "java-client", "by_hand") for one in frames(file)]
ANSWERS = [one for one in EVERY if one.response and one.api in DECODERS and one.version != 99]
NOT_OURS = {
    "fetch-v17-session-open",  # a fetch session
    "describeconfigs-v4",  # asks for synonyms
}


def decode(one: Frame) -> Any:
    assert one.response is not None
    return DECODERS[one.api](min(one.version, 4) if one.api == "ApiVersions" else one.version, body(one.response))


def with_lengths(answer: FetchAnswer) -> FetchAnswer:
    """Records as their length, as ``decoded`` of the fixtures has them."""
    partitions = tuple(
        dataclasses.replace(one, records=None if one.records is None else len(one.records))  # type: ignore[arg-type]
        for one in answer.partitions
    )
    return dataclasses.replace(answer, partitions=partitions)


@pytest.mark.parametrize("one", [one for file in RECORDED for one in frames(file)], ids=str)
def test_a_recorded_answer_has_the_recorded_facts(one: Frame) -> None:
    answer = decode(one)

    assert (with_lengths(answer) if isinstance(answer, FetchAnswer) else answer) == expected(one.api, one.decoded)


@pytest.mark.parametrize("one", ANSWERS, ids=str)
def test_every_answer_is_what_kafka_python_reads(one: Frame) -> None:
    assert one.response is not None
    theirs = expected(one.api, plain(kafka_python_answer(one.api, one.version, body(one.response))))
    ours = decode(one)
    if isinstance(ours, FetchAnswer):
        assert all(each.location_error is None for each in ours.partitions)
        without = tuple(dataclasses.replace(each, location=None) for each in ours.partitions)
        ours = dataclasses.replace(ours, partitions=without, extension_version=None)

    assert ours == theirs


@pytest.mark.parametrize("one", [one for one in ANSWERS if one.name != "fetch-v17-location"], ids=str)
def test_every_answer_is_what_kio_reads(one: Frame) -> None:
    """But for the extension's: kio refuses tags that it does not know."""
    assert one.response is not None
    message = kio_answer(Api[snake(one.api).upper()], one.version, body(one.response))

    assert decode(one) == expected(one.api, without_defaults(plain(message)))


@pytest.mark.parametrize("one", [one for one in EVERY if one.response and one.api == "Fetch"], ids=str)
def test_a_fetch_answer_is_written_as_it_was_read(one: Frame) -> None:
    assert one.response is not None
    answer = decode_fetch(one.version, body(one.response))

    again = encode_fetch_answer(
        one.version, answer, correlation_id=int.from_bytes(body(one.response)[:4], "big", signed=True)
    )

    assert again == one.response


def is_ours(one: Frame) -> bool:
    """Whether a reader asks such a thing at all: sessions, and topics made on the way, are for others."""
    return bool(one.request) and one.version != 99 and one.name not in NOT_OURS and one.api in DECODERS


ASKED = [one for file in (*RECORDED, "by_hand") for one in frames(file) if is_ours(one)]
JAVA = [one for one in frames("java-client") if one.api in ("ApiVersions", "ListOffsets")]


@pytest.mark.parametrize("one", [*ASKED, *JAVA], ids=str)
def test_a_request_is_written_byte_for_byte(one: Frame) -> None:
    assert one.request is not None
    correlation_id, client_id, message = kafka_python_request(one.api, one.version, body(one.request))
    names: dict[str, Any] = {"correlation_id": correlation_id, "client_id": client_id}
    if one.name == "fetch-v17-location":
        partition = FetchPartition("t", T_ID, 0, 42, 5)
        again = wire.encode_fetch(17, FetchRequest((partition,), wants_locations=True), **names)
    else:
        again = request_again(one.api, one.version, plain(message), names)

    assert again.hex() == one.request.hex()


def test_most_recorded_requests_are_such_as_we_make() -> None:
    assert len(ASKED) > 80
    assert len(JAVA) > 15


BY_HAND = {
    "fetch-v12": None,
    "fetch-v16-leader-moved": FetchAnswer(
        (FetchedPartition(None, T_ID, 0, error=6, records=memoryview(b""), current_leader=LeaderAndEpoch(2, 6)),),
        nodes=(Node(2, "b2", 9092),),
    ),
    "listoffsets-v11-latest-tiered": ListOffsetsAnswer((ListedOffset("t", 0, 0, 99999, -1, 5),)),
    "listoffsets-v5-latest": ListOffsetsAnswer((ListedOffset("t", 0, 78),)),
    "fetch-v17-location": FetchAnswer(
        (
            FetchedPartition(
                None,
                T_ID,
                0,
                high_watermark=50,
                last_stable_offset=50,
                log_start_offset=0,
                records=memoryview(b""),
                aborted=(),
                location=RemoteLogSegmentLocation(
                    segment_id="nh8MUkprTD2PJ2DRsqPE5Q",
                    first_offset=40,
                    last_offset=49,
                    size=700,
                    start=140,
                    stop=700,
                    signed_url="https://s3.example/b/t.log?sig=x",
                    expiry_ms=1700000900000,
                    is_transaction_index_empty=True,
                    leader_epochs=((5, 40),),
                ),
            ),
        ),
        extension_version=1,
    ),
    "apiversions-v3": ApiVersions(0, {1: ApiVersionRange(4, 18), 2: ApiVersionRange(1, 11), 3: ApiVersionRange(0, 13)}),
    "metadata-v12": ClusterMetadata(
        (Node(1, "b1", 9092, "r1"), Node(2, "b2", 9092)),
        (TopicMetadata(0, "t", T_ID, False, (PartitionMetadata(0, 0, LeaderAndEpoch(1, 5), (1, 2), (1, 2)),)),),
        cluster_id="c",
        controller_id=1,
    ),
    "offsetforleaderepoch-v4": EpochEndsAnswer((EpochEnd("t", 0, 0, 5, 43),)),
    "findcoordinator-v4": Coordinator("g", 0, Node(1, "b1", 9092)),
    "offsetfetch-v9": CommittedOffsets("g", 0, (CommittedOffset("t", 0, 0, 42, 5),)),
    "saslhandshake-v1": SaslHandshakeAnswer(0, ("PLAIN",)),
    "saslauthenticate-v2": SaslAuthenticateAnswer(0, b"", 3_600_000),
}


@pytest.mark.parametrize("one", [one for one in frames("by_hand") if one.response], ids=str)
def test_an_answer_written_by_hand_has_the_facts_that_were_written(one: Frame) -> None:
    answer = decode(one)

    if one.name == "fetch-v12":
        (partition,) = answer.partitions
        assert (partition.topic, partition.high_watermark, partition.aborted) == ("t", 43, ())
        assert len(partition.records) == 70
        assert partition.records[:8] == (42).to_bytes(8, "big")
    else:
        assert answer == BY_HAND[one.name]


def test_an_unknown_version_of_api_versions_is_told_in_the_oldest_layout() -> None:
    (one,) = (one for one in frames("frames") if one.version == 99)
    assert one.response is not None

    assert wire.decode_api_versions(4, body(one.response)) == ApiVersions(35, {})
    assert wire.decode_api_versions(3, body(one.response)[:6]) == ApiVersions(35, {})
