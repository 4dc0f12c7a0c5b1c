"""Fetch answers: records where they lie, leaders that moved, and what a hostile peer may send."""

from __future__ import annotations

import tracemalloc
from struct import pack

import pytest
from frames import body, encode_fetch_answer, frames

from segreader.broker import api, codec
from segreader.broker.api import decode_fetch
from segreader.broker.messages import FetchAnswer, FetchedPartition, LeaderAndEpoch, Node, RemoteLogSegmentLocation
from segreader.errors import ProtocolError

T_ID = "P2wqEH1LTg6belocji9NYA"
MIB = 1 << 20


def frame_of(version: int, *partitions: FetchedPartition, nodes: tuple[Node, ...] = ()) -> memoryview:
    return body(encode_fetch_answer(version, FetchAnswer(partitions, nodes=nodes), correlation_id=1))


def partition(**facts: object) -> FetchedPartition:
    return FetchedPartition(**{"topic": None, "topic_id": T_ID, "partition": 0, **facts})  # type: ignore[arg-type]


def test_records_are_slices_of_the_frame_and_not_copied() -> None:
    frame = frame_of(17, partition(records=memoryview(bytes(16 * MIB))), partition(partition=1))

    tracemalloc.start()
    first, second = decode_fetch(17, frame).partitions
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert first.records is not None
    assert first.records.obj is frame.obj
    assert len(first.records) == 16 * MIB
    assert second.records is None
    assert peak < 100_000


def test_no_records_and_null_records_are_told_apart() -> None:
    empty, null = decode_fetch(17, frame_of(17, partition(records=memoryview(b"")), partition())).partitions

    assert (empty.records, null.records) == (memoryview(b""), None)


def test_transactions_that_were_not_looked_up_and_none_are_told_apart_and_keep_their_order() -> None:
    answer = frame_of(17, partition(aborted=None), partition(aborted=()), partition(aborted=((9, 5), (1, 7), (4, 2))))

    assert [one.aborted for one in decode_fetch(17, answer).partitions] == [None, (), ((9, 5), (1, 7), (4, 2))]


@pytest.mark.parametrize("version", [16, 17, 18])
def test_a_leader_that_moved_comes_with_its_address(version: int) -> None:
    moved = partition(error=6, current_leader=LeaderAndEpoch(2, 6))

    answer = decode_fetch(version, frame_of(version, moved, nodes=(Node(2, "b2", 9092, "r2"),)))

    assert answer.partitions[0].current_leader == LeaderAndEpoch(2, 6)
    assert answer.nodes == (Node(2, "b2", 9092, "r2"),)


def test_before_version_16_the_tag_of_addresses_means_nothing() -> None:
    frame = bytes(frame_of(16, partition(), nodes=(Node(2, "b2", 9092),)))

    assert decode_fetch(15, frame).nodes == ()
    assert decode_fetch(16, frame).nodes == (Node(2, "b2", 9092),)


def test_an_end_of_what_agrees_is_told() -> None:
    (one,) = decode_fetch(12, frame_of(12, partition(topic="t", diverging=(3, 17)))).partitions

    assert one.diverging == (3, 17)


def test_an_answer_of_a_broker_that_throttles_has_no_topics() -> None:
    answer = FetchAnswer((), throttle_ms=1000)

    assert decode_fetch(17, body(encode_fetch_answer(17, answer, correlation_id=1))) == answer


def test_a_code_of_a_later_release_is_carried() -> None:
    (one,) = decode_fetch(17, frame_of(17, partition(error=4711))).partitions

    assert one.error == 4711


def tagged(version: int, section: bytes) -> bytes:
    """An answer of one bare partition with these tagged fields in it."""
    bare = bytes(frame_of(version, partition()))
    assert bare.endswith(b"\0\0\0")
    return bare[:-3] + section + b"\0\0"


def test_unknown_tags_are_skipped_and_of_a_repeated_one_the_last_counts() -> None:
    leader = b"\x01\x09" + pack(">ii", 1, 5) + b"\0"
    later = b"\x01\x09" + pack(">ii", 2, 6) + b"\0"

    (one,) = decode_fetch(17, tagged(17, b"\x04" + b"\xff\x7f\x02ab" + leader + b"\x07\0" + later)).partitions

    assert one.current_leader == LeaderAndEpoch(2, 6)


def test_a_struct_within_a_tag_may_have_tags_of_a_later_version() -> None:
    (one,) = decode_fetch(17, tagged(17, b"\x01\x01\x0c" + pack(">ii", 2, 6) + b"\x01\x05\x01x")).partitions

    assert one.current_leader == LeaderAndEpoch(2, 6)


@pytest.mark.parametrize(
    "section",
    [
        b"\x01\x01\x08" + pack(">ii", 2, 6),
        b"\x01\x01\x0a" + pack(">ii", 2, 6) + b"\0\0",
        b"\x01\x00\x04" + pack(">i", 3),
    ],
)
def test_a_tag_whose_size_is_not_that_of_its_value_is_refused(section: bytes) -> None:
    with pytest.raises(ProtocolError, match="Fetch 17 answer"):
        decode_fetch(17, tagged(17, section))


def test_the_literal_layout_of_kip_1248_is_refused_and_not_read_as_no_records() -> None:
    """With a null id and empty metadata before Records a Java client reads null records and leaves the rest."""
    bare = bytes(frame_of(18, partition(records=memoryview(b"abc"))))
    at = bare.index(b"\x04abc")

    with pytest.raises(ProtocolError):
        decode_fetch(18, bare[:at] + b"\0\x01" + bare[at:])


@pytest.mark.parametrize("extra", [1, 7])
def test_bytes_left_over_are_refused(extra: int) -> None:
    with pytest.raises(ProtocolError, match=f"left over .*found {extra} bytes"):
        decode_fetch(17, bytes(frame_of(17, partition())) + bytes(extra))


@pytest.mark.parametrize("one", [one for one in frames("cluster") if one.api == "Fetch"], ids=str)
def test_an_answer_cut_anywhere_is_refused_with_the_place(one: object) -> None:
    frame = body(one.response)  # type: ignore[attr-defined]
    for size in range(0, len(frame), 1 if len(frame) < 200 else 37):
        with pytest.raises(ProtocolError, match=f"Fetch {one.version} answer") as refused:  # type: ignore[attr-defined]
            decode_fetch(one.version, frame[:size])  # type: ignore[attr-defined]
        assert refused.value.position is not None
        assert refused.value.position <= size


def test_more_partitions_than_a_broker_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MAX_PARTITIONS", 3)

    with pytest.raises(ProtocolError, match="too many partitions"):
        decode_fetch(17, frame_of(17, *(partition(partition=one) for one in range(4))))


def test_more_aborted_transactions_than_a_segment_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_ELEMENTS", 3)
    two = ((1, 1), (2, 2))

    with pytest.raises(ProtocolError, match="AbortedTransactions has too many elements"):
        decode_fetch(17, frame_of(17, partition(aborted=two), partition(partition=1, aborted=two)))


def test_an_answer_with_a_location_is_written_in_every_version() -> None:
    location = RemoteLogSegmentLocation("nh8MUkprTD2PJ2DRsqPE5Q", 40, 49, 700, object_location="s3://b/t.log")
    for version in range(12, 19):
        given = partition(topic="t", records=memoryview(b""), location=location)

        (one,) = decode_fetch(version, frame_of(version, given)).partitions

        assert one.location == location
