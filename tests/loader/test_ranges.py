"""What a load of a range, and each later look, asks of a partition of many segments; and that it loads what a consumer
reads."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from corpus import Case
from loading import from_log_start, load, query_of, remote_cases, truth_of
from sample import edges_once, is_first_of_its_topic, sampled
from thousand import MINUTE_MS, OFFSETS, files_in, near_always, next_segment, thousand_segments, times_of_uploads

from segreader.loader import LoadQuery, SplitEnumerator
from segreader.stored import near
from segreader.stored.source import LocationSource
from segreader.testing.records import FIRST_TIMESTAMP_MS
from segreader.testing.stores import MemoryStore

LEVELS = ("read_committed", "read_uncommitted")
CASES = [case for case in remote_cases() if case.topic != "diverged-hanging"]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A thousand segments, where every location is."""
    store = MemoryStore(thousand_segments(), tells_tags=True)

    def opened(query: LoadQuery, storage_options: Mapping[str, object] | None = None) -> LocationSource:
        return LocationSource("", catalog=query.catalog(), opened=(store, ""))

    monkeypatch.setattr(LoadQuery, "open", opened)
    return store


def query(level: str, **more: object) -> LoadQuery:
    return LoadQuery(location="s3://bucket/", topic="orders", isolation_level=level, **more)  # type: ignore[arg-type]


def cost(store: MemoryStore, enumerator: SplitEnumerator) -> tuple[int, list[tuple[int, int]]]:
    """What a look reads, and the offsets that it hands out."""
    store.requests.clear()
    splits = enumerator.discover()
    return sum(one.startswith(("GET", "SIZE")) for one in store.requests), [(one.start, one.stop) for one in splits]


@pytest.mark.parametrize("level", LEVELS)
def test_a_load_of_some_offsets_reads_what_is_near_them_and_at_the_end(bucket: MemoryStore, level: str) -> None:
    for number in (0, 300, 777, 990):
        first = number * OFFSETS + 3
        with SplitEnumerator(query(level, offsets=(first, first + 2))) as enumerator:
            gets, offsets = cost(bucket, enumerator)
            assert offsets == [(first, first + 2)]
            assert gets <= 32, number
            assert enumerator.is_finished
            assert cost(bucket, enumerator) == (0, [])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("has_digests", [True, False])
def test_a_later_look_reads_what_is_new(bucket: MemoryStore, level: str, has_digests: bool) -> None:
    later = next_segment()
    bucket.tells_tags = has_digests
    bucket.modified_ms = {} if has_digests else times_of_uploads(bucket.objects)
    with SplitEnumerator(query(level)) as enumerator:
        _, offsets = cost(bucket, enumerator)
        assert offsets[0][0] == 0
        reached = offsets[-1][1]
        state = enumerator.state()
        added = files_in("local-tiered", [later])
        bucket.objects |= added
        bucket.modified_ms |= {} if has_digests else dict.fromkeys(added, 1001 * MINUTE_MS)
        gets, offsets = cost(bucket, enumerator)
        assert (offsets[0][0], offsets[-1][1]) == (reached, later.next_offset)
        assert gets <= 32
        assert cost(bucket, enumerator) == (0, [])
        at_end = enumerator.state()
    with SplitEnumerator(query(level), state=state) as restored:
        gets, of_restored = cost(bucket, restored)
        assert of_restored == offsets
        assert gets <= 32
        assert restored.state() == at_end


def test_a_load_that_begins_at_a_time_finds_it_by_the_ends_of_time_indexes(bucket: MemoryStore) -> None:
    with SplitEnumerator(query(LEVELS[1], since=FIRST_TIMESTAMP_MS + 995 * OFFSETS)) as enumerator:
        gets, offsets = cost(bucket, enumerator)
        assert gets <= 1000 + 64
        assert offsets[0][0] > 990 * OFFSETS
        assert offsets[-1][1] == next_segment().base_offset


@pytest.mark.parametrize(
    "case", sampled(CASES, lambda case: is_first_of_its_topic(case) or case in edges_once(CASES)), ids=str
)
def test_a_load_of_a_range_by_near_segments_is_what_a_consumer_reads(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    near_always(monkeypatch)
    monkeypatch.setattr(near, "_LEAST_SPAN_MS", 0)
    dice = random.Random(str(case))
    for isolation in ("committed", "uncommitted"):
        truth = truth_of(case, isolation)
        last = max((record.offset for record in truth), default=0)
        for length in (None, dice.choice((1, 2)), None, dice.choice((10, 100))):
            start = dice.randint(0, last + 1)
            stop = None if length is None else start + length
            asked = query_of(case, isolation, offsets=(start, stop))
            with SplitEnumerator(asked) as enumerator:
                splits = enumerator.discover()
            found = from_log_start(case, isolation, load(asked, splits))
            key = [record for record in truth if start <= record.offset and (stop is None or record.offset < stop)]
            assert found == key, (isolation, start, stop)
