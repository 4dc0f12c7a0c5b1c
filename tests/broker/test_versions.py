"""Which version is spoken, and which header goes with it."""

from __future__ import annotations

import pytest
from frames import body, frames

from segreader.broker import api as wire
from segreader.broker.messages import ApiVersionRange, ApiVersions
from segreader.broker.versions import (
    SUPPORTED,
    Api,
    choose_version,
    is_flexible,
    response_header_version,
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
        choose_version(Api.LIST_OFFSETS, BROKER_3_9, at_least=11)


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
