"""Many small objects at once: how many, in which order, and what becomes of errors."""

from __future__ import annotations

import os
import threading
import time

import pytest

from segreader.storage import base
from segreader.storage.base import read_each


class Counted:
    """Counts the reads that are under way."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.now, self.most = seconds, 0, 0
        self._lock = threading.Lock()

    def read(self, item: int) -> int:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(self.seconds)
        with self._lock:
            self.now -= 1
        return -item


def test_slow_reads_are_sixty_four_at_once_and_quick_ones_sixteen() -> None:
    slow, quick = Counted(0.02), Counted(0.0001)
    assert read_each(slow.read, range(1000)) == [-item for item in range(1000)]
    assert read_each(quick.read, range(1000)) == [-item for item in range(1000)]
    assert slow.most == 64
    assert quick.most <= 64


def test_calls_at_once_share_the_places_and_each_goes_on() -> None:
    slow = Counted(0.01)

    def outer(item: int) -> list[int]:
        return read_each(slow.read, range(item, item + 20))

    threads = [threading.Thread(target=outer, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert slow.most <= 64 + len(threads)


def test_a_call_that_found_no_place_takes_those_that_come_back() -> None:
    slow = Counted(0.02)
    taken = [base._places.acquire(blocking=False) for _ in range(64)]
    back = threading.Timer(0.2, lambda: base._places.release(sum(taken)))
    back.start()
    began = time.monotonic()
    try:
        assert read_each(slow.read, range(500)) == [-item for item in range(500)]
    finally:
        back.join()
    assert slow.most > 32
    assert time.monotonic() - began < 0.02 * 500 / 2


def test_calls_inside_of_calls_end_though_no_place_is_left() -> None:
    def inner(item: int) -> int:
        time.sleep(0.002)
        return item

    def outer(item: int) -> int:
        return sum(read_each(inner, [item] * 5))

    assert read_each(outer, range(200)) == [5 * item for item in range(200)]


def test_the_first_error_in_order_is_raised_and_all_places_come_back() -> None:
    def read(item: int) -> int:
        time.sleep(0.01)
        if item in (3, 5):
            raise ValueError(item)
        return item

    for _ in range(10):
        with pytest.raises(ValueError, match="3"):
            read_each(read, range(500))
    places = [base._places.acquire(blocking=False) for _ in range(65)]
    for _ in range(sum(places)):
        base._places.release()
    assert sum(places) == 64


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_all_places() -> None:
    taken = [base._places.acquire(blocking=False) for _ in range(64)]
    try:
        child = os.fork()
        if not child:
            slow = Counted(0.01)
            read_each(slow.read, range(300))
            os._exit(0 if slow.most > 32 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        for _ in range(sum(taken)):
            base._places.release()
