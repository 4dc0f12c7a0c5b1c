"""Where the bytes of some offsets end, by a window of an offset index: the same as the whole index says."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from segreader.broker.messages import IndexLocation, RemoteLogSegmentLocation
from segreader.live.index_ends import end_in_index
from segreader.ranges import ByteRange
from segreader.testing.side_files import encode_offset_index

BASE = 1_000
BEFORE = b"#" * 40  # an index may be a part of its object


class OneObject:
    """A store with one object, that counts what is read of it."""

    def __init__(self, data: bytes) -> None:
        self.data, self.ranges = data, list[ByteRange]()

    def size(self, name: str) -> int:
        return len(self.data)

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        self.ranges += ranges
        return [self.data[one.start : one.stop] for one in ranges]

    @property
    def fetched(self) -> int:
        return sum(one.stop - one.start for one in self.ranges)


def entries_of(chance: random.Random, count: int, *, is_even: bool) -> list[tuple[int, int]]:
    offset, position, found = BASE, 0, []
    for _ in range(count):
        skew = 1 if is_even or chance.random() < 0.9 else 400
        offset += chance.randint(1, 40) * skew
        position += chance.randint(4096, 6000)
        found.append((offset, position))
    return found


def by_whole_index(entries: Sequence[tuple[int, int]], stop: int, size: int) -> int:
    at = next((at for at, (offset, _) in enumerate(entries) if offset >= stop - 1), len(entries))
    return entries[at + 1][1] if at + 1 < len(entries) else size


def looked_up(entries: Sequence[tuple[int, int]], stop: int, *, has_stop: bool = True) -> tuple[int | None, OneObject]:
    size, last = entries[-1][1] + 5000, entries[-1][0] + 10
    data = encode_offset_index(BASE, entries)
    store = OneObject(BEFORE + data)
    index = IndexLocation(0, None, "https://x", len(BEFORE), len(BEFORE) + len(data) if has_stop else None)
    location = RemoteLogSegmentLocation("id", BASE, last, size)
    return end_in_index(store, "i", index, location, stop), store  # type: ignore[arg-type]


@pytest.mark.parametrize("is_even", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3, 1023, 1024, 1025, 1026, 20_000])
def test_a_window_says_what_the_whole_index_says(count: int, is_even: bool) -> None:
    chance = random.Random(count)
    entries = entries_of(chance, count, is_even=is_even)
    size = entries[-1][1] + 5000
    wanted = [BASE + 1, entries[0][0], entries[0][0] + 1, entries[-1][0], entries[-1][0] + 1, entries[-1][0] + 2]
    wanted += [chance.choice(entries)[0] + chance.randint(-1, 2) for _ in range(60)]
    wanted += [entries[at][0] + 1 for at in (1023, 1024, 1025, 1026) if at < count]
    for stop in wanted:
        found, store = looked_up(entries, stop, has_stop=chance.random() < 0.5)
        assert found == by_whole_index(entries, stop, size)
        assert store.ranges[0].stop - store.ranges[0].start <= 8 * 1025


def test_of_a_large_even_index_one_small_range_is_read() -> None:
    entries = entries_of(random.Random(3), 15_000, is_even=True)
    for stop in (BASE + 110, entries[7_000][0], entries[14_000][0]):
        _, store = looked_up(entries, stop)
        assert len(store.ranges) == 1
        assert store.fetched <= 8 * 1025


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-3],
        lambda data: bytes(len(data)),
        lambda data: b"\xff" * len(data),
        lambda data: data[8:16] + data[:8] + data[16:],
        lambda data: b"",
    ],
)
def test_an_index_that_cannot_be_gives_no_end_that_is_less_than_the_log(damage: object) -> None:
    entries = entries_of(random.Random(5), 300, is_even=True)
    data = damage(encode_offset_index(BASE, entries))  # type: ignore[operator]
    size = entries[-1][1] + 5000
    location = RemoteLogSegmentLocation("id", BASE, entries[-1][0] + 10, size)
    index = IndexLocation(0, None, "https://x", 0, len(data))
    assert end_in_index(OneObject(data), "i", index, location, BASE + 100) in (None, size)  # type: ignore[arg-type]
