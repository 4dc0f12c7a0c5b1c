"""An object that is read whole: no byte of it, if it is too large."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from segreader.errors import LimitExceededError
from segreader.ranges import ByteRange
from segreader.storage.base import MOST_WHOLE, StoreView, read_whole
from segreader.testing.stores import MemoryStore


class Unread(StoreView):
    """A store of one object, of which only the size may be asked for."""

    def __init__(self, size: int) -> None:
        super().__init__(MemoryStore({}))
        self._size = size

    def size(self, name: str) -> int:
        return self._size

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        raise AssertionError(f"{name} was read")


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize(("limit", "most"), [({}, MOST_WHOLE), ({"most": 100}, 100)])
def test_an_object_above_the_limit_is_refused_before_it_is_read(
    is_listed: bool, limit: dict[str, int], most: int
) -> None:
    store = Unread(most + 1)

    with pytest.raises(LimitExceededError) as caught:
        read_whole(store, "a.index", most + 1 if is_listed else None, **limit)

    error = caught.value
    assert (error.source, error.found, error.expected) == (store.url("a.index"), f"{most + 1} bytes", f"at most {most}")
    assert "put a sound copy in its place" in str(error)


def test_an_object_at_the_limit_is_read() -> None:
    assert read_whole(MemoryStore({"a": b"1234"}), "a", most=4) == b"1234"
