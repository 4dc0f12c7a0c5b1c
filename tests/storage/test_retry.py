from __future__ import annotations

import pytest

from segreader.storage.retry import BackOff, RetryBudget, parse_retry_after


def test_the_bound_doubles_and_the_jitter_is_full() -> None:
    back_off = BackOff(0.1, 1.0)

    assert [back_off.seconds(n, jitter=lambda: 1.0) for n in range(1, 7)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert back_off.seconds(5, jitter=lambda: 0.0) == 0.0
    assert back_off.seconds(5000, jitter=lambda: 1.0) == 1.0


def test_a_wait_that_the_server_asks_for_is_kept_and_spread() -> None:
    assert BackOff(0.1, 1.0).seconds(1, 7.0, jitter=lambda: 0.5) == pytest.approx(7.05)


def test_a_wait_that_is_too_long_ends_the_tries() -> None:
    assert BackOff(retry_after_max_s=60).seconds(1, 61.0) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        (" 0 ", 0.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
        ("9" * 400, 999999999999.0),
        ("Thu, 99 Jan 1970", None),
        ("٣", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str | None, seconds: float | None) -> None:
    assert parse_retry_after(text, now=10.0) == seconds


@pytest.mark.parametrize(("ranges", "retries"), [(0, 2), (8, 2), (24, 3), (80, 10)])
def test_a_budget_is_a_share_of_the_ranges_or_a_few(ranges: int, retries: int) -> None:
    budget = RetryBudget(share=0.125, at_least=2)
    for _ in range(ranges):
        budget.earn()

    assert sum(budget.spend() for _ in range(100)) == retries
