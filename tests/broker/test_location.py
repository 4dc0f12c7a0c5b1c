"""The location extension: its bytes, what damage does to it, and each rule that a location must keep."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from frames import body, encode_fetch_answer, frames
from hypothesis import given
from hypothesis import strategies as st

from segreader.broker import api as wire
from segreader.broker.api import decode_fetch
from segreader.broker.location import (
    EXTENSION_VERSION,
    LOCATION_TAG,
    MOST_SEGMENTS_TAG,
    RESERVED_TAGS,
    STOPS_TAG,
    check_location,
    decode_following,
    decode_location,
    encode_following,
    encode_location,
    extension_tag,
    extension_version,
    request_tags,
    requested_formats,
    wanted_segments,
    wanted_stops,
)
from segreader.broker.messages import (
    FetchAnswer,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    IndexLocation,
    RemoteLogSegmentLocation,
)
from segreader.broker.primitives import Reader, Writer
from segreader.errors import ProtocolError

EXAMPLE = next(one for one in frames("by_hand") if one.name == "fetch-v17-location")
assert EXAMPLE.response is not None
GOLDEN = EXAMPLE.response[77:203]
FORMATS = ("ApacheKafkaV1",)
NOW_MS = 1_700_000_000_000


def of(data: bytes) -> Reader:
    return Reader(data, flexible=True, what="Fetch 17 answer")


LOCATION = decode_location(of(GOLDEN))
(PARTITION,) = decode_fetch(17, body(EXAMPLE.response)).partitions

int64s = st.integers(0, 2**63 - 1)
texts = st.none() | st.text(max_size=20)
locations = st.builds(
    RemoteLogSegmentLocation,
    segment_id=st.just("nh8MUkprTD2PJ2DRsqPE5Q"),
    first_offset=st.integers(-(2**63), 2**63 - 1),
    last_offset=st.integers(-(2**63), 2**63 - 1),
    size=st.integers(-(2**31), 2**31 - 1),
    storage_format=st.text(max_size=20),
    custom_metadata=st.none() | st.binary(max_size=200),
    start=st.none() | int64s,
    stop=st.none() | int64s,
    object_location=texts,
    signed_url=texts,
    expiry_ms=st.none() | int64s,
    is_transaction_index_empty=st.booleans(),
    leader_epochs=st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), int64s), max_size=4).map(tuple),
    indexes=st.lists(
        st.builds(IndexLocation, st.integers(-128, 127), texts, texts, int64s, st.none() | int64s), max_size=5
    ).map(tuple),
    transaction_index=st.none() | st.binary(max_size=40),
)


def test_the_example_of_the_specification_is_decoded_and_encoded_byte_for_byte() -> None:
    assert (
        RemoteLogSegmentLocation(
            segment_id="nh8MUkprTD2PJ2DRsqPE5Q",
            first_offset=40,
            last_offset=49,
            size=700,
            start=140,
            stop=700,
            signed_url="https://s3.example/b/t.log?sig=x",
            expiry_ms=1_700_000_900_000,
            is_transaction_index_empty=True,
            leader_epochs=((5, 40),),
        )
        == LOCATION
    )
    assert encode_location(LOCATION) == GOLDEN


def test_a_transaction_index_is_a_tagged_field_that_who_does_not_know_it_skips() -> None:
    with_rows = encode_location(dataclasses.replace(LOCATION, transaction_index=b"rows"))
    assert with_rows == GOLDEN[:-1] + b"\x01" + b"\x00\x05" + b"\x05rows"
    later = GOLDEN[:-1] + b"\x01" + b"\x01\x05" + b"\x05rows"
    assert decode_location(of(later)) == LOCATION
    assert decode_location(of(with_rows)).transaction_index == b"rows"
    assert "rows" not in repr(decode_location(of(with_rows)))


@given(locations)
def test_every_location_comes_back(location: RemoteLogSegmentLocation) -> None:
    assert decode_location(of(encode_location(location))) == location


@given(locations, st.sampled_from(range(12, 19)))
def test_a_location_comes_back_in_an_answer_of_every_version(location: RemoteLogSegmentLocation, version: int) -> None:
    name = {"topic": "t", "topic_id": None} if version == 12 else {"topic": None, "topic_id": "P2wqEH1LTg6belocji9NYA"}
    partition = FetchedPartition(**name, partition=0, records=memoryview(b""), location=location)  # type: ignore[arg-type]
    answer = FetchAnswer((partition,), extension_version=EXTENSION_VERSION)

    again = decode_fetch(version, body(encode_fetch_answer(version, answer, correlation_id=1)))

    assert again == answer


@pytest.mark.parametrize("version", range(12, 19))
def test_the_ends_of_partitions_go_with_the_flag_alone(version: int) -> None:
    def encoded(*stops: int | None, wants: bool) -> bytes:
        topic_id = "P2wqEH1LTg6belocji9NYA"
        wanted = tuple(
            FetchPartition("t", topic_id, number, 42, 5, stop_offset=stop) for number, stop in enumerate(stops)
        )
        request = FetchRequest(wanted, wants_locations=wants)
        return wire.encode_fetch(version, request, correlation_id=1, client_id="c")[4:]

    assert encoded(50, None, wants=False) == encoded(None, None, wants=False)
    ends = b"\xc2\x61\x11\x03" + (50).to_bytes(8, "big") + b"\x7f" + 7 * b"\xff"
    plain = encoded(None, None, wants=True)
    at = plain.rindex(b"\x02\xc0\x61")
    assert encoded(50, None, wants=True) == plain[:at] + b"\x03" + plain[at + 1 :] + ends


@given(st.lists(st.integers(-(2**63), 2**63 - 2), min_size=1, max_size=300))
def test_every_end_comes_back(stops: list[int]) -> None:
    tags = request_tags(FORMATS, stops)
    assert wanted_stops([(tag, of(value)) for tag, value in tags]) == tuple(stops)
    assert requested_formats([(tag, of(value)) for tag, value in tags]) == FORMATS
    assert wanted_stops([(tag, of(value)) for tag, value in request_tags(FORMATS)]) == ()


@pytest.mark.parametrize(
    "damaged", [b"", b"\0", b"\x02", b"\x02" + bytes(7), b"\x02" + bytes(9), b"\xff\xff\xff\xff\x07"]
)
def test_damaged_ends_are_refused(damaged: bytes) -> None:
    with pytest.raises(ProtocolError):
        wanted_stops([(STOPS_TAG, of(damaged))])


@given(st.lists(locations, max_size=4))
def test_every_following_location_comes_back(some: list[RemoteLogSegmentLocation]) -> None:
    assert decode_following(of(encode_following([encode_location(one) for one in some]))) == tuple(some)


def test_damaged_following_locations_are_left_out_and_the_first_one_is_not() -> None:
    data = encode_following([GOLDEN, GOLDEN])
    for size in (0, 1, 60, len(data) - 1):
        with pytest.raises(ProtocolError):
            decode_following(of(data[:size]))
    one = FetchedPartition("t", None, 0, records=memoryview(b""), location=LOCATION, following=(LOCATION,))
    frame = encode_fetch_answer(12, FetchAnswer((one,), extension_version=1), correlation_id=1)
    at = frame.rindex(b"\xc1\x61")
    assert decode_fetch(12, body(frame)).partitions == (one,)
    damaged = bytearray(frame)
    damaged[at + 3] ^= 0x40  # the count of locations
    (told,) = decode_fetch(12, body(bytes(damaged))).partitions
    assert told == dataclasses.replace(one, following=())


def test_how_many_segments_are_wanted_comes_back() -> None:
    for most in (1, 2, 500):
        tags = request_tags(FORMATS, [None], most)
        assert wanted_segments([(tag, of(value)) for tag, value in tags]) == most
    with pytest.raises(ProtocolError):
        wanted_segments([(MOST_SEGMENTS_TAG, of(b"\0\0\0"))])


def test_a_location_cut_anywhere_is_refused() -> None:
    for size in range(len(GOLDEN)):
        with pytest.raises(ProtocolError) as refused:
            decode_location(of(GOLDEN[:size]))
        assert "https" not in str(refused.value)


def test_a_location_with_any_bit_flipped_is_a_value_or_refused() -> None:
    for bit in range(len(GOLDEN) * 8):
        damaged = bytearray(GOLDEN)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            decode_location(of(bytes(damaged)))
        except ProtocolError as refused:
            assert "s3.example" not in str(refused)


def test_a_location_with_tags_of_a_later_version_is_read_and_one_with_bytes_left_over_is_not() -> None:
    assert decode_location(of(GOLDEN[:-1] + bytes.fromhex("01" + "05" + "02" + "abcd"))) == LOCATION
    with pytest.raises(ProtocolError, match="left over"):
        decode_location(of(GOLDEN + b"\0"))


def test_a_location_of_no_segment_is_refused() -> None:
    with pytest.raises(ProtocolError, match="names no segment"):
        decode_location(of(bytes(16) + GOLDEN[16:]))


@pytest.mark.parametrize("at", [51, 59, 101])
def test_a_position_or_time_below_none_is_refused(at: int) -> None:
    with pytest.raises(ProtocolError, match="is negative") as refused:
        decode_location(of(GOLDEN[:at] + (-2).to_bytes(8, "big", signed=True) + GOLDEN[at + 8 :]))

    assert refused.value.position == at


def test_a_damaged_location_does_not_spoil_the_answer_it_came_in() -> None:
    assert EXAMPLE.response is not None
    frame = bytearray(body(EXAMPLE.response))
    frame[73:89] = bytes(16)

    (partition,) = decode_fetch(17, bytes(frame)).partitions

    assert partition.location is None
    assert partition.location_error == "Fetch 17 answer: a location names no segment (byte 73)"
    assert partition.high_watermark == 50


def test_a_signed_url_is_in_no_text_of_an_answer() -> None:
    assert LOCATION.signed_url is not None
    assert "sig=x" not in repr(PARTITION)
    assert "sig=x" not in repr(FetchAnswer((PARTITION,)))


def tags_of(tags: tuple[tuple[int, bytes], ...]) -> tuple[tuple[int, Reader], ...]:
    writer = Writer(flexible=True)
    writer.tags(tags)
    return of(bytes(writer.data)).tags()


def test_a_request_says_which_formats_it_takes() -> None:
    assert requested_formats(tags_of(request_tags(("ApacheKafkaV1", "Other")))) == ("ApacheKafkaV1", "Other")
    assert requested_formats(tags_of(((LOCATION_TAG, b"\x01"),))) == ("ApacheKafkaV1",)


def test_a_request_without_the_flag_asks_for_nothing() -> None:
    assert requested_formats(()) is None
    assert requested_formats(tags_of(((LOCATION_TAG, b"\x00"),))) is None
    assert requested_formats(tags_of(request_tags()[1:])) is None


@pytest.mark.parametrize("tags", [((LOCATION_TAG, b""),), ((LOCATION_TAG, b"\1\1"),), ((LOCATION_TAG + 1, b"\x7f"),)])
def test_a_damaged_flag_is_refused(tags: tuple[tuple[int, bytes], ...]) -> None:
    with pytest.raises(ProtocolError):
        requested_formats(tags_of(tags))


def test_the_flag_of_our_requests_is_read_on_the_other_side() -> None:
    request = FetchRequest((FetchPartition("t", "P2wqEH1LTg6belocji9NYA", 0, 42, 5),), wants_locations=True)
    frame = wire.encode_fetch(17, request, correlation_id=13, client_id="segreader")

    assert requested_formats(of(frame[99:]).tags()) == FORMATS


def test_a_later_version_of_the_extension_is_told() -> None:
    assert extension_version(tags_of((extension_tag(),))) == 1
    assert extension_version(tags_of(((LOCATION_TAG, b"\0\2"),))) == 2
    assert extension_version(()) is None


def test_tags_lie_far_above_kafkas_own() -> None:
    assert (RESERVED_TAGS[0], RESERVED_TAGS[-1]) == (12480, 12495)


def check(
    fetch_offset: int = 42, formats: tuple[str, ...] = FORMATS, now_ms: int = NOW_MS, **changes: Any
) -> str | None:
    return check_location(dataclasses.replace(LOCATION, **changes), PARTITION, fetch_offset, formats, now_ms)


def test_a_good_location_is_not_rejected() -> None:
    assert check() is None
    assert check(start=None, stop=None) is None
    assert check(40) is None
    assert check(49) is None
    assert check(signed_url=None, object_location="s3://b/t.log", expiry_ms=None) is None
    assert check(leader_epochs=((3, 40), (5, 45))) is None
    assert check(indexes=(IndexLocation(0, "s3://b/t.index"), IndexLocation(3, None, "https://x", 10, 20))) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fetch_offset": 39}, "the offset is not in the segment"),
        ({"fetch_offset": 50}, "the offset is not in the segment"),
        ({"first_offset": 43}, "the offset is not in the segment"),
        ({"first_offset": -1}, "the offset is not in the segment"),
        ({"size": 0}, "size is 0"),
        ({"size": -700}, "size is -700"),
        ({"formats": ("Other",)}, "was not requested"),
        ({"start": 700}, "starts at 700 of 700"),
        ({"start": 140, "stop": 140}, "bytes 140 to 140 of 700"),
        ({"start": None, "stop": 0}, "bytes 0 to 0 of 700"),
        ({"stop": 701}, "bytes 140 to 701 of 700"),
        ({"signed_url": None}, "neither an object nor a URL"),
        ({"signed_url": "", "object_location": ""}, "neither an object nor a URL"),
        ({"now_ms": 1_700_000_900_000}, "has expired"),
        ({"leader_epochs": ((5, 40), (5, 45))}, "do not ascend"),
        ({"leader_epochs": ((5, 45), (6, 40))}, "do not ascend"),
        ({"leader_epochs": ((5, 50),)}, "do not ascend"),
        ({"leader_epochs": ((-1, 40),)}, "do not ascend"),
        ({"indexes": (IndexLocation(0, "o", None, -5),)}, "impossible bounds"),
        ({"indexes": (IndexLocation(0, "o", None, 5, 4),)}, "impossible bounds"),
    ],
)
def test_a_location_that_breaks_a_rule_is_rejected_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    rejected = check(**changes)

    assert rejected is not None
    assert reason in rejected
    assert "sig=x" not in rejected


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"error": 6}, "with NOT_LEADER_OR_FOLLOWER"),
        ({"records": memoryview(b"x")}, "with records"),
        ({"preferred_read_replica": 2}, "preferred replica"),
        ({"log_start_offset": 43}, "below the log start"),
    ],
)
def test_a_location_in_an_answer_that_has_no_place_for_one_is_rejected(changes: dict[str, Any], reason: str) -> None:
    rejected = check_location(LOCATION, dataclasses.replace(PARTITION, **changes), 42, FORMATS, NOW_MS)

    assert rejected is not None
    assert reason in rejected


def test_transactions_that_were_not_looked_up_are_no_reason_to_reject() -> None:
    assert check_location(LOCATION, dataclasses.replace(PARTITION, aborted=None), 42, FORMATS, NOW_MS) is None
