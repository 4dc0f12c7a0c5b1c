"""Small ranges that are fetched before they are asked for: what is given, how often the store is asked, and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from segreader import scans
from segreader.errors import ObjectNotFoundError
from segreader.isolation import IsolationLevel
from segreader.plan.request import Request
from segreader.plan.split import ReadPlan
from segreader.ranges import ByteRange
from segreader.scans import Scan
from segreader.storage.base import FetchedAtOnce, ObjectStore, StoreView, read_whole
from segreader.storage.location import open_store
from segreader.stored.source import LocationSource
from segreader.testing.stores import MemoryStore

CORPUS = Path(__file__).parents[2] / "fixtures" / "corpus"


class Remote(StoreView):
    """A store that counts what is read of it, and passes for one on the network."""

    range_size = 16 << 20

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.reads: Counter[tuple[str, ByteRange]] = Counter()

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        self.reads.update((name, one) for one in ranges)
        return super().read_ranges(name, ranges)

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        self.reads[name, wanted] += 1
        return super().read_pieces(name, wanted, expected_size=expected_size, expected_tag=expected_tag)


def test_a_range_is_given_once_and_an_error_when_it_is_asked_for() -> None:
    inner = Remote(MemoryStore({"a": b"0123456789", "b": b"xyz"}))
    first, last, gone = ("a", ByteRange(0, 2)), ("a", ByteRange(8, 10)), ("gone", ByteRange(0, 1))
    store = FetchedAtOnce(inner, [first, last, gone])
    assert inner.reads.total() == 3

    assert store.read_ranges("a", [last[1]]) == [b"89"]
    assert store.read_ranges("b", [ByteRange(0, 3)]) == [b"xyz"]
    with pytest.raises(ObjectNotFoundError):
        store.read_ranges("gone", [gone[1]])
    assert inner.reads.total() == 4

    assert store.read_ranges("a", [first[1], last[1]]) == [b"01", b"89"]  # several are asked for anew
    assert read_whole(store, "a") == b"0123456789"


@pytest.mark.parametrize("level", list(IsolationLevel))
@pytest.mark.parametrize("location", ["tv2/remote", "tv1/remote", "aiven-plain/remote", "legacy/local"])
def test_a_plan_is_the_same_and_reads_nothing_more(
    location: str, level: IsolationLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan() -> tuple[ReadPlan, Remote]:
        store, prefix = open_store(CORPUS / location)
        remote = Remote(store)
        scan = Scan(LocationSource(str(CORPUS / location), opened=(remote, prefix)), Request(isolation_level=level))
        return scan.plan_each()[0], remote

    at_once, fetched = plan()
    monkeypatch.setattr(scans, "_MOST_FETCHED", -1)
    one_by_one, asked = plan()
    assert at_once == one_by_one
    assert fetched.reads - asked.reads == Counter()
    assert asked.reads.total() > 0
