"""Any bytes give a value or a ``ProtocolError`` that names API, version and position, in bounded time and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import groupby
from random import Random
from typing import Any

import pytest
from calls_again import DECODERS
from frames import body, frames
from hypothesis import given
from hypothesis import strategies as st
from random_messages import random_answer

from segreader.broker import api as wire
from segreader.broker import codec
from segreader.broker.messages import ApiVersions
from segreader.broker.primitives import Writer
from segreader.broker.protocol import SUPPORTED
from segreader.errors import ProtocolError

EVERY = [(api.label, version) for api, of in SUPPORTED.items() for version in range(of.first, of.last + 1)]
NOT_FETCH = [(api, version) for api, version in EVERY if api != "Fetch"]
LONG_VARINT = b"\x80" * (1 << 20)


def value_or_error(api: str, version: int, frame: bytes | memoryview) -> Any:
    """The value, or the error if it says all it should."""
    try:
        return DECODERS[api](version, frame)
    except ProtocolError as refused:
        assert f"{api} {version} answer" in refused.message
        assert refused.position is None or 0 <= refused.position <= len(frame)
        return refused


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_an_answer_cut_anywhere_is_refused(api: str, version: int) -> None:
    frame = random_answer(api, version, 3)
    if len(frame) > 500:
        frame = min((random_answer(api, version, seed) for seed in range(20)), key=lambda one: abs(len(one) - 200))
    for size in range(len(frame)):
        refused = value_or_error(api, version, frame[:size])

        if not isinstance(refused, ProtocolError):
            assert isinstance(refused, ApiVersions)
            assert refused.error
        else:
            assert refused.position is not None


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_bytes_left_over_are_refused(api: str, version: int) -> None:
    """A tag section more would pass kafka-python in silence."""
    for seed in range(4):
        refused = value_or_error(api, version, random_answer(api, version, seed) + b"\0")

        assert isinstance(refused, ProtocolError)


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_flipped_and_replaced_bytes_give_a_value_or_an_error(api: str, version: int) -> None:
    random = Random(f"{api} {version}")
    for seed in range(6):
        frame = bytearray(random_answer(api, version, seed)[:2000])
        for _ in range(40):
            damaged = bytearray(frame)
            for _ in range(random.choice((1, 1, 2, 5))):
                damaged[random.randrange(len(damaged))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
            value_or_error(api, version, bytes(damaged))


RECORDED = [one for file in ("frames", "cluster", "by_hand") for one in frames(file) if one.response]
SMALLEST = {
    key: min(group, key=lambda one: len(one.response or b""))
    for key, group in groupby(
        sorted(RECORDED, key=lambda one: (one.api, one.version)), lambda one: (one.api, one.version)
    )
    if key[1] != 99
}


@given(st.sampled_from(sorted(SMALLEST)), st.data())
def test_a_recorded_answer_with_a_part_replaced_is_a_value_or_an_error(
    key: tuple[str, int], data: st.DataObject
) -> None:
    response = SMALLEST[key].response
    assert response is not None
    frame = bytes(body(response))[:3000]
    start = data.draw(st.integers(0, len(frame)))
    stop = data.draw(st.integers(start, min(len(frame), start + 20)))
    part = data.draw(st.binary(max_size=20))

    value_or_error(*key, frame[:start] + part + frame[stop:])


@given(st.sampled_from(EVERY), st.binary(max_size=120))
def test_any_bytes_at_all_give_a_value_or_an_error(key: tuple[str, int], data: bytes) -> None:
    value_or_error(*key, data)


@pytest.mark.parametrize(("api", "version"), NOT_FETCH)
def test_counts_of_two_billion_allocate_nothing(api: str, version: int) -> None:
    """At each place where a length or count could stand."""
    frame = min((random_answer(api, version, seed) for seed in range(20)), key=lambda one: abs(len(one) - 120))[:300]
    tracemalloc.start()
    for at in range(len(frame)):
        for huge in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x80\x00\x00\x00"):
            value_or_error(api, version, frame[:at] + huge + frame[at + len(huge) :])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 4 << 20


@pytest.mark.parametrize(("api", "version"), [("Metadata", 12), ("OffsetFetch", 9), ("ApiVersions", 3), ("Fetch", 17)])
def test_a_varint_without_an_end_is_refused_at_its_sixth_byte(api: str, version: int) -> None:
    """kafka-python would shift a number of a million bits a million times."""
    for start in range(4, 30):
        frame = random_answer(api, version, 1)[:start] + LONG_VARINT
        refused = value_or_error(api, version, frame)

        if isinstance(refused, ProtocolError):
            assert refused.position is not None


@pytest.mark.parametrize(
    ("api", "limit"), [("ApiVersions", 1 << 20), ("SaslHandshake", 1 << 20), ("Metadata", 32 << 20)]
)
def test_an_answer_larger_than_any_is_refused_before_it_is_looked_at(api: str, limit: int) -> None:
    version = 12 if api == "Metadata" else 1

    with pytest.raises(ProtocolError, match=rf"it is too large; found {limit + 1} bytes, expected {limit} at most"):
        DECODERS[api](version, memoryview(bytes(limit + 1)))


def test_more_elements_than_a_cluster_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_ELEMENTS", 10)
    writer = Writer(flexible=False)
    writer.int32(1)
    writer.int16(0)
    writer.count(11)
    for _ in range(11):
        writer.string("PLAIN")

    with pytest.raises(ProtocolError, match="SaslHandshake 1 answer: Mechanisms has too many elements"):
        wire.decode_sasl_handshake(1, bytes(writer.data))


@pytest.mark.parametrize("decode", [wire.decode_find_coordinator, wire.decode_offset_fetch])
def test_an_answer_for_no_group_is_refused(decode: Callable[[int, bytes], object]) -> None:
    version = 4 if decode is wire.decode_find_coordinator else 9
    with pytest.raises(ProtocolError, match="one group was asked for; found 0, expected 1"):
        decode(version, b"\0\0\0\1\0" + b"\0\0\0\0" + b"\x01" + b"\0")


def test_null_where_the_schema_has_none_is_refused() -> None:
    """kafka-python gives ``None`` for a string, and what follows fails far from here."""
    head = b"\0\0\0\1" + b"\0" + b"\0\0\0\0"
    broker = b"\0\0\0\1" + b"\0" + b"\0\0\x23\x84" + b"\0" + b"\0"

    with pytest.raises(ProtocolError, match=r"Metadata 12 answer: Host is null \(byte 14\)"):
        wire.decode_metadata(12, head + b"\x02" + broker + b"\0" + b"\0\0\0\1" + b"\x01" + b"\0")


def test_a_negative_count_other_than_null_is_refused() -> None:
    """kafka-python takes it for an empty array."""
    with pytest.raises(ProtocolError, match="negative"):
        wire.decode_list_offsets(5, b"\0\0\0\1" + b"\0\0\0\0" + b"\xff\xff\xff\xfe")


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ProtocolError, match=r"SaslHandshake 1 answer: a string is not UTF-8 \(byte 12\)"):
        wire.decode_sasl_handshake(1, b"\0\0\0\1" + b"\0\0" + b"\0\0\0\1" + b"\0\2\xff\xfe")


def test_a_frame_without_a_correlation_id_is_refused() -> None:
    with pytest.raises(ProtocolError, match="Metadata 12 answer"):
        wire.decode_metadata(12, b"\0\0\7")


TAGS = bytes.fromhex("02" + "0003ffffff" + "c06102abcd")


def test_unknown_tags_at_every_level_are_skipped() -> None:
    """kafka-python fails on them within tagged fields, and believes a known one's size not at all."""
    partition = b"\0\0" + b"\0\0\0\0" + b"\0\0\0\5" + b"\0\0\0\0\0\0\0\x2b" + TAGS
    frame = b"\0\0\0\7" + TAGS + b"\0\0\0\0" + b"\x02" + b"\x02t" + b"\x02" + partition + TAGS + TAGS

    (end,) = wire.decode_epoch_ends(4, frame).ends

    assert (end.topic, end.partition, end.leader_epoch, end.end_offset) == ("t", 0, 5, 43)


def api_versions(tags: bytes) -> bytes:
    return b"\0\0\0\1" + b"\0\0" + b"\x02" + b"\0\1\0\4\0\x12\0" + b"\0\0\0\0" + tags


def test_features_may_have_tags_of_a_later_version() -> None:
    feature = b"\x02" + b"\x02x" + b"\0\1\0\2" + b"\x01\x05\x01z"

    assert wire.decode_api_versions(3, api_versions(b"\x01\x00" + bytes([len(feature)]) + feature)).ranges[1].last == 18


@pytest.mark.parametrize(
    ("tags", "announced"), [(b"\0", None), (b"\x01\xc0\x61\x02\0\1", 1), (b"\x01\xc0\x61\x02\0\7", 7)]
)
def test_a_peer_may_announce_the_location_extension(tags: bytes, announced: int | None) -> None:
    assert wire.decode_api_versions(3, api_versions(tags)).extension_version == announced


def test_a_damaged_announcement_is_refused() -> None:
    with pytest.raises(ProtocolError, match="ApiVersions 3 answer"):
        wire.decode_api_versions(3, api_versions(b"\x01\xc0\x61\x01\1"))


@pytest.mark.parametrize("version", [0, 3, 4])
def test_whatever_stands_behind_error_35_is_not_read(version: int) -> None:
    assert wire.decode_api_versions(version, b"\0\0\0\1" + b"\0\x23" + b"\xff" * 9) == ApiVersions(35, {})
