"""What a restore costs: asserted, not hoped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from loading import all_splits, at, read_rest

from segreader.loader import LoaderSplit, LoadQuery, ReaderPool, SplitEnumerator
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.stores import MemoryStore

_BATCHES, _PER_BATCH = 400, 5
_INDEX_INTERVAL = 4096


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tier") / "tier"
    segment = SegmentBuilder()
    for number in range(_BATCHES):
        segment.batch([b"%d" % number * 100] * _PER_BATCH)
    write_local_tiered(root, "orders", [segment])
    return root


def query(tier: Path) -> LoadQuery:
    return LoadQuery(location=str(tier), topic="orders", batch_rows=37)


def recording(pool: ReaderPool, tier: Path) -> MemoryStore:
    """The pool's store, replaced by one that notes what it is asked."""
    files = {str(path.relative_to(tier.parent)): path.read_bytes() for path in tier.rglob("*") if path.is_file()}
    store = MemoryStore(files)
    pool.store = store
    return store


def first_byte(request: str) -> int:
    return int(request.rpartition("bytes=")[2].partition("-")[0])


def asked(store: MemoryStore) -> tuple[list[str], list[str]]:
    """The requests since the last time: for the index, and for anything else."""
    requests, store.requests = store.requests, []
    return [one for one in requests if ".index" in one], [one for one in requests if ".index" not in one]


def test_a_restore_in_its_own_log_reads_no_index_and_begins_at_the_batch(tier: Path) -> None:
    (split,) = all_splits(query(tier))
    with ReaderPool(query(tier)) as pool:
        store = recording(pool, tier)
        reader = pool.open(split)
        while reader.read(max_rows=173) is not None and not reader.is_finished:
            here = reader.position
            asked(store)
            with pool.open(LoaderSplit.from_json(split.to_json()), here) as other:
                batch = other.read(max_rows=1)
            index, rest = asked(store)
            if batch is None:
                assert rest == []
                break
            assert index == []
            assert len(rest) == 1
            assert first_byte(rest[0]) == here.batch_position
            base = here.next_offset - here.next_offset % _PER_BATCH
            assert here.batch_offset == base


def test_elsewhere_a_restore_reads_one_index_and_one_range_that_begins_at_a_batch(tier: Path) -> None:
    (split,) = all_splits(query(tier))
    with ReaderPool(query(tier)) as pool:
        places = [pool.open(split, at(split, 0)).position]
        reader = pool.open(split)
        starts = {}
        while reader.read(max_rows=1) is not None:
            places.append(reader.position)
            starts[reader.position.next_offset] = reader.position.batch_position
        store = recording(pool, tier)
        size = split.size // _BATCHES
        for offset in (3, 500, 777, 1999):
            with pool.open(split, at(split, offset)) as other:
                batch = other.read(max_rows=1)
            assert batch is not None
            assert batch["offset"][0].as_py() == offset
            index, rest = asked(store)
            assert len({one.split()[1] for one in index}) == 1
            assert len(rest) == 1
            begin = first_byte(rest[0])
            assert begin == 0 or begin in starts.values()
            wanted = starts.get(offset - offset % _PER_BATCH, 0) or 0
            assert wanted - _INDEX_INTERVAL - 2 * size <= begin <= wanted


def test_a_position_of_another_log_object_or_size_is_not_believed(tier: Path) -> None:
    (split,) = all_splits(query(tier))
    with ReaderPool(query(tier)) as pool:
        with pool.open(split) as reader:
            reader.read(max_rows=34)
            here = reader.position
        store = recording(pool, tier)
        for other in (replace(here, log="elsewhere.log"), replace(here, log_size=17)):
            with pool.open(split, other) as reader:
                assert read_rest(reader)["offset"][0].as_py() == 34
            index, _ = asked(store)
            assert index


def test_splits_planned_from_a_position_need_no_index_to_be_read(tier: Path) -> None:
    whole = all_splits(query(tier))
    with SplitEnumerator(query(tier)) as enumerator:
        (rest,) = enumerator.splits_from([at(whole[0], 1234)])
    with ReaderPool(query(tier)) as pool:
        store = recording(pool, tier)
        with pool.open(rest) as reader:
            assert read_rest(reader)["offset"][0].as_py() == 1234
        index, bodies = asked(store)
        assert index == []
        assert len(bodies) == 1
        assert first_byte(bodies[0]) > 0


def test_a_look_at_an_unchanged_listing_reads_nothing(tier: Path) -> None:
    with SplitEnumerator(query(tier)) as enumerator:
        assert enumerator.discover()
        files = {str(path.relative_to(tier.parent)): path.read_bytes() for path in tier.rglob("*") if path.is_file()}
        store = MemoryStore(files)
        enumerator._source.store = store
        enumerator.discover()
        store.requests.clear()
        assert enumerator.discover() == []
        assert all(one.startswith(("LIST", "LEVEL")) for one in store.requests)
