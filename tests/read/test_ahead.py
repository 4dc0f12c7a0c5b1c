"""The one executor: in order, bounded, errors behind the items before them, and no thread left."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest

from segreader.errors import CorruptBatchError
from segreader.read.ahead import Ahead, make_each, one_lane

NAME = "segreader-test"


class Parts:
    """Parts of numbered items, a part a list of sizes; notes which were read and given up."""

    def __init__(self, parts: list[list[int]], error_in: int | None = None, is_slow: bool = False) -> None:
        self.parts = parts
        self.error_in = error_in
        self.is_slow = is_slow
        self.read: list[tuple[int, int]] = []
        self.open = 0
        self.readers = 0
        self.most_waiting = self.waiting = 0
        self._lock = threading.Lock()

    def reader(self) -> Callable[[int], Iterator[tuple[int, int, int]]]:
        with self._lock:
            self.readers += 1
        return self._items

    def _items(self, part: int) -> Iterator[tuple[int, int, int]]:
        with self._lock:
            self.open += 1
        try:
            for at, size in enumerate(self.parts[part]):
                if self.is_slow and random.random() < 0.3:
                    time.sleep(0.0005)
                with self._lock:
                    self.read.append((part, at))
                    self.waiting += size
                    self.most_waiting = max(self.most_waiting, self.waiting)
                yield part, at, size
            if part == self.error_in:
                raise CorruptBatchError("damaged", offset=part)
        finally:
            with self._lock:
                self.open -= 1

    def take(self, item: tuple[int, int, int]) -> tuple[int, int]:
        with self._lock:
            self.waiting -= item[2]
        return item[:2]

    @property
    def all(self) -> list[tuple[int, int]]:
        return [(part, at) for part, sizes in enumerate(self.parts) for at in range(len(sizes))]


def ahead_of(parts: Parts) -> Ahead[int, tuple[int, int, int]]:
    return Ahead(range(len(parts.parts)), parts.reader, name=NAME, size_of=lambda item: item[2])


def threads() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


def until(is_so: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not is_so() and time.monotonic() < end:
        time.sleep(0.002)
    return is_so()


def taken(ahead: Ahead[int, tuple[int, int, int]], parts: Parts) -> Iterator[tuple[int, int]]:
    while found := ahead.next():
        yield parts.take(found.pop())


@pytest.mark.parametrize("most_bytes", [1, 7, 100, 1 << 30])
def test_items_come_in_the_order_of_the_parts_whatever_the_bound(most_bytes: int) -> None:
    source = random.Random(most_bytes)
    for count in (1, 2, 5):
        parts = Parts([[source.randint(0, 9) for _ in range(source.randint(0, 9))] for _ in range(40)], is_slow=True)
        ahead = ahead_of(parts)
        found = [parts.take(item) for item in ahead.next()]
        ahead.hurry(most_bytes, count)
        found += taken(ahead, parts)
        assert found == parts.all
        assert ahead.next() == []
        ahead.close()
        assert (threads(), parts.open, parts.readers) == (0, 0, count + 1)


def test_no_more_waits_than_the_bound_and_an_item_a_thread() -> None:
    parts = Parts([[10] * 20] * 20)
    ahead = ahead_of(parts)
    ahead.hurry(100, 3)
    until(lambda: parts.waiting >= 100)
    time.sleep(0.05)
    assert 100 <= parts.waiting <= 100 + 3 * 10
    assert list(taken(ahead, parts)) == parts.all
    assert parts.most_waiting <= 100 + 4 * 10  # one more is counted as taken only when it has been
    ahead.close()


def test_unhurried_one_thread_reads_one_item_ahead_of_the_part_that_is_taken() -> None:
    parts = Parts([[1] * 3] * 3)
    ahead = ahead_of(parts)
    assert (threads(), parts.read) == (0, [])
    for count in range(1, 10):
        assert ahead.next()
        expected = min(count + 1, 3 * ((count + 2) // 3))  # the next part begins when it is asked for
        assert until(lambda expected=expected: len(parts.read) >= expected)  # type: ignore[misc]
        time.sleep(0.002)
        assert len(parts.read) == expected
    assert parts.read == parts.all
    ahead.close()


@pytest.mark.parametrize("error_in", [0, 3, 19])
def test_an_error_comes_after_the_items_before_it(error_in: int) -> None:
    parts = Parts([[1] * 3] * 20, error_in=error_in, is_slow=True)
    ahead = ahead_of(parts)
    ahead.hurry(5, 3)
    found: list[tuple[int, int]] = []
    with pytest.raises(CorruptBatchError):
        found.extend(taken(ahead, parts))
    assert found == parts.all[: 3 * (error_in + 1)]
    assert ahead.next() == []  # what is behind damage is not given
    ahead.close()
    assert (threads(), parts.open) == (0, 0)


def test_an_error_where_a_reader_is_opened_is_raised() -> None:
    def fails() -> Callable[[int], Iterator[int]]:
        raise CorruptBatchError("no reader")

    ahead: Ahead[int, int] = Ahead([1, 2], fails, name=NAME)
    with pytest.raises(CorruptBatchError, match="no reader"):
        ahead.next()
    ahead.close()
    assert threads() == 0


@pytest.mark.parametrize("most_bytes", [0, 5, 1 << 30])
def test_closing_in_the_middle_leaves_no_thread_and_nothing_open(most_bytes: int) -> None:
    parts = Parts([[1] * 100] * 20, is_slow=True)
    ahead = ahead_of(parts)
    ahead.hurry(most_bytes, 3)
    for _ in range(5):
        parts.take(ahead.next().pop())
    ahead.close()
    assert (threads(), parts.open) == (0, 0)
    assert ahead.next() == []


def test_threads_end_when_what_takes_from_them_is_garbage() -> None:
    parts = Parts([[1] * 100] * 20)
    ahead = ahead_of(parts)
    ahead.hurry(5, 3)
    assert ahead.next()
    assert threads() == 3
    del ahead
    gc.collect()
    assert until(lambda: threads() == 0)
    assert parts.open == 0


def test_an_item_that_was_taken_is_held_by_nothing_else() -> None:
    class Large:
        pass

    ahead: Ahead[Callable[[], Iterator[Large]], Large]
    ahead = Ahead([lambda: (Large() for _ in range(3))], make_each, name=NAME)
    items = [weakref.ref(ahead.next().pop()) for _ in range(3)]
    assert until(lambda: [item() for item in items] == [None] * 3)
    ahead.close()


def test_one_lane_is_one_lane_and_ends_with_who_takes() -> None:
    given: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(10):
            given.append(number)
            yield number

    items = one_lane(numbers, name=NAME)
    assert given == []
    assert next(items) == 0
    assert until(lambda: given == [0, 1])
    assert next(items) == 1
    assert until(lambda: given == [0, 1, 2])
    time.sleep(0.01)
    assert given == [0, 1, 2]
    items.close()
    assert threads() == 0
    assert list(one_lane(numbers, name=NAME)) == list(range(10))
