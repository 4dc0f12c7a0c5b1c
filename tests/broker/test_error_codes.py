"""Error codes as the Java client judges them. The judge here is kio, which has Kafka's own table."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode as KafkaErrorCode

from segreader.broker.error_codes import (
    ErrorCode,
    describe,
    is_retriable,
    makes_metadata_stale,
    name_of,
)

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
