"""Which rule an error of a Fetch belongs to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segreader.broker.rules.fetch_errors import FetchErrorKind, kind_of
from segreader.broker.rules.preferred_replica import FORGETTING_ERRORS


@pytest.mark.parametrize(
    ("kind", "errors"),
    [
        (FetchErrorKind.NONE, [0]),
        (FetchErrorKind.LEADER, [6, 74, 75]),
        (FetchErrorKind.OUT_OF_RANGE, [1]),
        (FetchErrorKind.REFRESH, [3, 5, 9, 56, 78, 100, 103]),
        (FetchErrorKind.BACK_OFF, [7]),
        (FetchErrorKind.REPEAT_BOUNDED, [-1]),
        (FetchErrorKind.FORBIDDEN, [29]),
        (FetchErrorKind.RAISE, [2, 35, 42, 76, 109]),
    ],
)
def test_every_error_that_matters_belongs_to_one_rule(kind: FetchErrorKind, errors: list[int]) -> None:
    assert {kind_of(error) for error in errors} == {kind}


def test_corrupt_messages_are_raised_and_never_skipped_though_java_may_try_again() -> None:
    assert kind_of(2) is FetchErrorKind.RAISE


def test_what_is_for_followers_only_is_raised() -> None:
    assert kind_of(109) is FetchErrorKind.RAISE


@given(st.integers(137, 32767))
def test_errors_of_later_releases_are_raised_with_their_number(error: int) -> None:
    assert kind_of(error) is FetchErrorKind.RAISE


def test_every_error_that_forgets_the_replica_also_refreshes_or_finds_the_leader() -> None:
    assert {kind_of(error) for error in FORGETTING_ERRORS} == {FetchErrorKind.REFRESH, FetchErrorKind.LEADER}
