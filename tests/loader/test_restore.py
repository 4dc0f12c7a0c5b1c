"""Stopped at every record, saved, and restored elsewhere: a load gives what one uninterrupted read gives."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from corpus import Case, NormalRecord, cases
from loading import (
    all_splits,
    from_log_start,
    has_segments_in_a_row,
    is_transactional,
    load,
    positions_in,
    query_of,
    read_rest,
    records_of,
    remote_cases,
    split_of,
    truth_of,
    without_last_segment,
)
from sample import at_each_edge_once, at_edges, edges_once, sampled

from segreader.errors import DivergedPositionError
from segreader.loader import LoaderSplit, LoadQuery, Position, ReaderPool, SplitEnumerator

CASES = remote_cases()
TRANSACTIONAL = [case for case in CASES if is_transactional(case)]
GROWING = [  # the growth of diverged-mid takes records back
    case for case in TRANSACTIONAL if case.topic != "diverged-mid" and has_segments_in_a_row(case)
]
OTHERS = [case for case in CASES if not is_transactional(case) and case.set_name in ("tv2", "aiven-zstd")]
EDGES = edges_once(TRANSACTIONAL)
BY_REFERENCE = ("txn-interleaved", "txn-span", "epochs-txn", "diverged-txn")
LOCAL = [case for case in cases() if case.local and (is_transactional(case) or case.set_name == "legacy")]


def test_the_cases_are_those_that_the_claim_is_about() -> None:
    assert len(TRANSACTIONAL) >= 40
    assert len(GROWING) >= 35
    assert {case.set_name for case in TRANSACTIONAL} == {case.set_name for case in CASES}


def saved(position: Position) -> Position:
    text = position.to_json()
    assert len(text) < 2000
    return Position.from_json(text)


def behind(records: list[NormalRecord], position: Position) -> list[NormalRecord]:
    return [record for record in records if record.offset >= position.next_offset]


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize(
    ("case", "kernel"),
    sampled(
        [(case, "native") for case in TRANSACTIONAL]
        + [(case, "reference") for case in TRANSACTIONAL if case.set_name in ("tv2", "cluster")],
        lambda pair: pair[0] in EDGES and (pair[1] == "native" or pair[0].topic in BY_REFERENCE),
    ),
    ids=str,
)
def test_a_new_reader_goes_on_at_every_offset(case: Case, isolation: str, kernel: str) -> None:
    query = query_of(case, isolation, kernel=kernel, batch_rows=7 if kernel == "reference" else 10_000)
    seen: list[NormalRecord] = []
    with ReaderPool(query) as pool:
        for split in all_splits(query):
            whole = read_rest(pool.open(split))
            stops = list(positions_in(pool.open(split)))
            assert len(stops) == whole.num_rows + 2
            assert stops[-1].next_offset == split.stop
            carried = LoaderSplit.from_json(split.to_json())
            for number, stop in enumerate(stops):
                if kernel == "reference" and number % 9:
                    continue
                with pool.open(carried, saved(stop)) as reader:
                    assert reader.position == saved(stop)
                    assert read_rest(reader).equals(whole.slice(number))
                    assert reader.position.next_offset == split.stop
            seen += records_of(whole)
    assert from_log_start(case, isolation, seen) == truth_of(case, isolation)


def read_in_a_chain(query: LoadQuery, max_rows: int) -> list[NormalRecord]:
    """All records, each few of them by a reader of its own that was told where the one before stood."""
    seen: list[NormalRecord] = []
    with ReaderPool(query) as pool:
        for split in all_splits(query):
            position = split.position
            while position.next_offset < split.stop:
                with pool.open(split, saved(position)) as reader:
                    batch = reader.read(max_rows=max_rows)
                    seen += [] if batch is None else records_of(batch)
                    position = reader.position
    return seen


@pytest.mark.parametrize("case", at_edges(OTHERS), ids=str)
def test_a_chain_of_readers_each_of_some_records_gives_the_truth(case: Case) -> None:
    isolation = "uncommitted"
    query = query_of(case, isolation, batch_rows=300)
    seen = read_in_a_chain(query, max_rows=211)
    assert from_log_start(case, isolation, seen) == truth_of(case, isolation)


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize("case", at_edges(LOCAL), ids=str)
def test_a_brokers_own_log_and_old_formats_are_gone_on_with_as_well(case: Case, isolation: str) -> None:
    """A log that is still written, and message sets, whose headers tell the last offset and not the first."""
    query = query_of(case, isolation, case.root / "local", topic_id=None, leader_epochs=None, batch_rows=50)
    first = {int(one.name.rpartition("-")[2]): min(int(file.stem) for file in one.glob("*.log")) for one in case.local}
    seen = read_in_a_chain(query, max_rows=1)
    assert seen == [record for record in case.truth(isolation) if record.offset >= first[record.partition]]


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize("case", at_each_edge_once(GROWING), ids=str)
def test_a_load_goes_on_in_a_tier_that_has_grown_meanwhile(case: Case, isolation: str, tmp_path: Path) -> None:
    """Positions of every offset of the smaller tier, in splits of an enumerator that knows only the larger."""
    query = query_of(case, isolation)
    small = without_last_segment(case, tmp_path / "remote")
    before = query_of(case, isolation, small)
    with SplitEnumerator(before) as enumerator:
        first = enumerator.discover()
        state = enumerator.state()
    with SplitEnumerator(query, state=state) as enumerator:
        added = enumerator.discover()
    seen = load(query, [*first, *added])
    assert from_log_start(case, isolation, seen) == truth_of(case, isolation)

    anew = all_splits(query_of(case, isolation, split_bytes=3000))
    with ReaderPool(before) as pool, ReaderPool(query) as grown:
        whole = {split.id: read_rest(grown.open(split)) for split in anew}
        for split in first:
            for stop in map(saved, positions_in(pool.open(split))):
                goes_on = split_of(anew, stop)
                if goes_on is None:
                    assert stop.next_offset == split.stop
                    continue
                all_of_it = whole[goes_on.id]
                first_left = bisect_left(all_of_it["offset"].to_pylist(), stop.next_offset)
                with grown.open(goes_on, stop) as reader:
                    assert read_rest(reader).equals(all_of_it.slice(first_left))


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize(
    "case", at_each_edge_once(case for case in GROWING if case.set_name in ("tv2", "cluster", "aiven-zstd")), ids=str
)
def test_what_is_left_from_positions_is_planned_anew(case: Case, isolation: str, tmp_path: Path) -> None:
    query = query_of(case, isolation)
    small = without_last_segment(case, tmp_path / "remote")
    before = query_of(case, isolation, small)
    whole = load(query, all_splits(query))
    with ReaderPool(before) as pool:
        stops = [stop for split in all_splits(before) for stop in positions_in(pool.open(split))]
    for stop in stops[:: max(1, len(stops) // 3)]:
        with SplitEnumerator(query) as enumerator:
            rest = enumerator.splits_from([saved(stop)])
            assert all(one.stop <= two.start for one, two in pairwise(rest))
            seen = load(query, [*rest, *enumerator.discover()])
        mine = [record for record in whole if record.partition == stop.partition]
        assert [one for one in seen if one.partition == stop.partition] == behind(mine, stop)


def test_positions_of_a_branch_that_growth_shows_to_be_dead_are_refused_with_where_it_parts(tmp_path: Path) -> None:
    """A segment of the surviving leader is uploaded last: what was read of offsets 47 to 87 never was, by its word."""
    (some,) = (case for case in CASES if case.topic == "diverged-mid")
    before = query_of(some, "uncommitted", without_last_segment(some, tmp_path / "remote"))
    with SplitEnumerator(before) as enumerator:
        splits = enumerator.discover()
        state = enumerator.state()
    with ReaderPool(before) as pool:
        stops = [stop for split in splits for stop in positions_in(pool.open(split))]
    with SplitEnumerator(query_of(some, "uncommitted"), state=state) as enumerator:
        with pytest.raises(DivergedPositionError) as caught:
            enumerator.discover()
        assert caught.value.offset == 47
        for stop in stops:
            if stop.next_offset <= 47:
                assert enumerator.splits_from([saved(replace(stop, stop=47))]) or stop.next_offset == 47
                continue
            with pytest.raises(DivergedPositionError) as caught:
                enumerator.splits_from([saved(stop)])
            assert caught.value.offset == 47
