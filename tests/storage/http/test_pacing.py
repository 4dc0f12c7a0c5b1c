from __future__ import annotations

import threading
import time

import pytest

from segreader.storage.http.pacing import ConcurrencyLimiter


def take(limiter: ConcurrencyLimiter, count: int) -> list[int]:
    places = [limiter.acquire() for _ in range(count)]
    return [place for place in places if place is not None]


def test_a_refused_round_halves_the_limit_once() -> None:
    limiter = ConcurrencyLimiter(8)
    places = take(limiter, 8)
    for place in places:
        limiter.release(place, is_throttled=True)

    assert limiter.limit == 4
    assert limiter.is_lowered


def test_the_limit_never_falls_below_one() -> None:
    limiter = ConcurrencyLimiter(4)
    for _ in range(10):
        limiter.release(take(limiter, 1)[0], is_throttled=True)

    assert limiter.limit == 1


def test_good_answers_raise_the_limit_one_at_a_time_up_to_the_maximum() -> None:
    limiter = ConcurrencyLimiter(4)
    limiter.release(take(limiter, 1)[0], is_throttled=True)
    limits = []
    for _ in range(12):
        limiter.release(take(limiter, 1)[0], is_good=True)
        limits.append(limiter.limit)

    assert limits == sorted(limits)
    assert limits[1] == 2
    assert limits[-1] == 4
    assert not limiter.is_lowered


def test_a_failure_that_is_no_throttling_changes_nothing() -> None:
    limiter = ConcurrencyLimiter(4)
    limiter.release(take(limiter, 1)[0])

    assert limiter.limit == 4


def test_a_full_house_waits_for_a_place() -> None:
    limiter = ConcurrencyLimiter(1)
    place = take(limiter, 1)[0]
    got: list[int | None] = []
    waiting = threading.Thread(target=lambda: got.append(limiter.acquire()))
    waiting.start()
    time.sleep(0.02)
    assert not got
    limiter.release(place)
    waiting.join(20)

    assert len(got) == 1


def test_waiting_ends_when_it_is_told_to() -> None:
    limiter = ConcurrencyLimiter(1)
    take(limiter, 1)
    stopped = threading.Event()
    stopped.set()

    assert limiter.acquire(stopped) is None


def test_no_requests_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="maximum"):
        ConcurrencyLimiter(0)
