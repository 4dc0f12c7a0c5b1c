"""A directory that is looked at and then listed: which names come, and how often the store is asked."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from segreader.errors import StorageError
from segreader.storage.base import ListedOnce, ObjectInfo
from segreader.testing.stores import MemoryStore

NAMES = [f"a/{number}" for number in range(10)]


class CountedStore(MemoryStore):
    """Counts the listings that were begun, and breaks off where it is asked to."""

    def __init__(self, breaks_at: int | None = None) -> None:
        super().__init__(dict.fromkeys(NAMES, b""))
        self.listings = 0
        self.breaks_at = breaks_at

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self.listings += 1
        for at, info in enumerate(super().list_level(prefix)):
            if at == self.breaks_at:
                raise StorageError("the connection ended")
            yield info


def names(listing: Iterator[ObjectInfo]) -> list[str]:
    return [info.name for info in listing]


@pytest.mark.parametrize("looked_at", [1, 4, 10, 20])
def test_a_listing_goes_on_where_it_was_left(looked_at: int) -> None:
    inner = CountedStore()
    store = ListedOnce(inner)

    assert names(islice(store.list_level("a/"), looked_at)) == NAMES[:looked_at]
    assert names(store.list_level("a/")) == NAMES
    assert inner.listings == 1

    assert names(store.list_level("a/")) == NAMES
    assert inner.listings == 2  # what was kept is given once


def test_a_listing_that_failed_is_begun_again() -> None:
    inner = CountedStore(breaks_at=5)
    store = ListedOnce(inner)
    with pytest.raises(StorageError):
        names(store.list_level("a/"))
    inner.breaks_at = None

    assert names(store.list_level("a/")) == NAMES


def test_a_failure_behind_what_was_looked_at_is_raised() -> None:
    store = ListedOnce(CountedStore(breaks_at=5))
    assert names(islice(store.list_level("a/"), 3)) == NAMES[:3]

    with pytest.raises(StorageError):
        names(store.list_level("a/"))
