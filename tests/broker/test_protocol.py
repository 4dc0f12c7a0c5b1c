"""Which version is spoken, and which header goes with it; error codes as the Java client judges them.

The judge of error codes is kio, which has Kafka's own table.
"""

from __future__ import annotations

import pytest
from frames import body, frames
from kio.schema.errors import ErrorCode as KafkaErrorCode

from segreader.broker import api as wire
from segreader.broker.codec import is_flexible, response_header_version
from segreader.broker.messages import ApiVersionRange, ApiVersions
from segreader.broker.protocol import (
    SUPPORTED,
    Api,
    ErrorCode,
    choose_version,
    describe,
    is_retriable,
    makes_metadata_stale,
    name_of,
)
from segreader.errors import UnsupportedVersionError

BROKER_4_3 = next(one for one in frames("frames") if one.name == "apiversions-v3")
assert BROKER_4_3.response is not None
OFFERED = wire.decode_api_versions(3, body(BROKER_4_3.response))
BROKER_3_9 = ApiVersions(
    0,
    {
        Api.FETCH: ApiVersionRange(0, 17),
        Api.LIST_OFFSETS: ApiVersionRange(0, 9),
        Api.METADATA: ApiVersionRange(0, 12),
        Api.OFFSET_FETCH: ApiVersionRange(0, 9),
        Api.API_VERSIONS: ApiVersionRange(0, 4),
    },
)


def offering(first: int, last: int) -> ApiVersions:
    return ApiVersions(0, {Api.FETCH: ApiVersionRange(first, last)})


@pytest.mark.parametrize("api", SUPPORTED)
def test_the_newest_version_that_both_speak_is_chosen(api: Api) -> None:
    assert choose_version(api, OFFERED) == min(SUPPORTED[api].last, OFFERED.ranges[api].last)


def test_an_older_broker_is_spoken_to_as_it_speaks() -> None:
    chosen = [choose_version(api, BROKER_3_9) for api in (Api.FETCH, Api.LIST_OFFSETS, Api.METADATA, Api.OFFSET_FETCH)]

    assert chosen == [17, 9, 12, 9]


def test_a_fetch_is_never_newer_than_18_for_19_may_be_kip_1248() -> None:
    assert choose_version(Api.FETCH, offering(4, 25)) == 18


def test_bounds_of_a_request_are_kept() -> None:
    assert choose_version(Api.FETCH, offering(4, 18), at_most=12) == 12
    with pytest.raises(UnsupportedVersionError):
        choose_version(Api.FETCH, offering(13, 18), at_most=12)


@pytest.mark.parametrize(("first", "last"), [(0, 11), (19, 30)])
def test_no_common_version_is_an_error_that_names_both_ranges(first: int, last: int) -> None:
    with pytest.raises(
        UnsupportedVersionError, match=rf"Fetch .*found versions {first} to {last}, expected one of 12 to 18"
    ):
        choose_version(Api.FETCH, offering(first, last))


def test_an_api_that_is_not_offered_is_named() -> None:
    with pytest.raises(
        UnsupportedVersionError, match=r"OffsetForLeaderEpoch .*found none at all, expected one of 4 to 4"
    ):
        choose_version(Api.OFFSET_FOR_LEADER_EPOCH, offering(4, 18))


@pytest.mark.parametrize(
    ("api", "first_flexible"),
    [
        (Api.PRODUCE, 9),
        (Api.FETCH, 12),
        (Api.LIST_OFFSETS, 6),
        (Api.METADATA, 9),
        (Api.OFFSET_FETCH, 6),
        (Api.FIND_COORDINATOR, 3),
        (Api.API_VERSIONS, 3),
        (Api.OFFSET_FOR_LEADER_EPOCH, 4),
        (Api.DESCRIBE_CONFIGS, 4),
        (Api.SASL_AUTHENTICATE, 2),
    ],
)
def test_headers_have_tagged_fields_from_the_first_flexible_version_on(api: Api, first_flexible: int) -> None:
    assert [is_flexible(api, first_flexible - 1), is_flexible(api, first_flexible)] == [False, True]
    newest = 0 if api is Api.API_VERSIONS else 1
    assert [response_header_version(api, one) for one in (first_flexible - 1, first_flexible)] == [0, newest]


def test_sasl_handshake_is_never_flexible() -> None:
    assert not is_flexible(Api.SASL_HANDSHAKE, 100)


def test_names_are_those_of_kafka() -> None:
    assert [one.label for one in (Api.FETCH, Api.LIST_OFFSETS, Api.OFFSET_FOR_LEADER_EPOCH, Api.SASL_AUTHENTICATE)] == [
        "Fetch",
        "ListOffsets",
        "OffsetForLeaderEpoch",
        "SaslAuthenticate",
    ]


KAFKAS = {int(one.value): one for one in KafkaErrorCode}


@pytest.mark.parametrize("code", [one for one in ErrorCode if one in KAFKAS])
def test_a_code_has_kafkas_name_and_is_tried_again_where_the_java_client_does(code: ErrorCode) -> None:
    kafkas = KAFKAS[code]

    assert code.name.lower().replace("_exception", "") == kafkas.name.replace("_exception", "")
    assert is_retriable(code) == kafkas.retriable


def test_every_retriable_code_of_ours_is_one_of_kafkas() -> None:
    assert {one.value for one in KafkaErrorCode if one.retriable} >= {one for one in range(200) if is_retriable(one)}


def test_codes_that_make_metadata_stale_are_retriable() -> None:
    stale = {one for one in range(-5, 200) if makes_metadata_stale(one)}

    assert stale == {3, 5, 6, 9, 13, 56, 72, 74, 100, 103}
    assert all(is_retriable(one) for one in stale)


@pytest.mark.parametrize("code", [-1, 75, 78, 70, 7])
def test_a_refresh_does_not_help_where_the_broker_is_only_behind(code: int) -> None:
    assert not makes_metadata_stale(code)


@pytest.mark.parametrize("code", [137, 9999, -77])
def test_a_code_of_a_later_release_is_shown_as_its_number_and_not_tried_again(code: int) -> None:
    assert name_of(code) == describe(code) == f"error {code}"
    assert not is_retriable(code)
    assert not makes_metadata_stale(code)


def test_a_known_code_is_shown_with_its_number() -> None:
    assert describe(29) == "TOPIC_AUTHORIZATION_FAILED (29)"
