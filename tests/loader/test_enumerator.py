"""What an enumerator hands out: each offset once, over any growth, also if it is saved and restored on the way."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from corpus import case
from growing_log import GrowingLog, LostMarker
from histories import ELECTION, ELECTIONS, FAILED_UPLOAD, ORDINARY, Event, examples, histories
from histories import seen as seen_of
from hypothesis import given
from hypothesis import strategies as st
from loading import all_splits, at, from_log_start, load, query_of, read_rest, truth_of
from simulator import SimulatedPartition
from thousand import near_always

import segreader
from segreader.errors import (
    CorruptBatchError,
    DivergedPositionError,
    ForeignPositionError,
    ObjectNotFoundError,
    OptionError,
    PositionFormatError,
    SegmentGapError,
    TruncatedError,
)
from segreader.isolation import IsolationLevel
from segreader.loader import (
    LoaderSplit,
    LoadQuery,
    Position,
    ReaderPool,
    ResumableReader,
    SplitEnumerator,
    StartingOffsets,
)
from segreader.read.records import RECORD_COLUMNS, ConsumerRecord, iter_consumer_records
from segreader.stored import near
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered

WHOLE = Position(topic="orders", partition=0, next_offset=30)


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    return GrowingLog(tmp_path / "tier")


def query(log: GrowingLog, **more: object) -> LoadQuery:
    return LoadQuery(location=str(log.root), **({"topic": "orders"} | more))  # type: ignore[arg-type]


def bounds(splits: list[LoaderSplit]) -> list[tuple[str, int, int]]:
    return [(str(one.partition), one.start, one.stop) for one in splits]


def offsets_in(query: LoadQuery, splits: list[LoaderSplit]) -> list[int]:
    with ReaderPool(query) as pool:
        return [offset for split in splits for offset in read_rest(pool.open(split))["offset"].to_pylist()]


def test_what_is_uploaded_later_is_handed_out_once(log: GrowingLog) -> None:
    log.upload("orders", 0, 30)
    log.upload("orders", 1, 20)
    with SplitEnumerator(query(log)) as enumerator:
        assert bounds(enumerator.discover()) == [("orders-0", 0, 30), ("orders-1", 0, 20)]
        assert enumerator.discover() == []
        log.upload("orders", 1, 10)
        log.upload("orders", 2, 10)
        assert bounds(enumerator.discover()) == [("orders-1", 20, 30), ("orders-2", 0, 10)]
        assert enumerator.discover() == []
        assert [(str(one), one.leader_epoch) for one in enumerator.end_positions()] == [
            ("orders-0@30", 0), ("orders-1@30", 0), ("orders-2@10", 0),
        ]  # fmt: skip
        assert not enumerator.is_finished


def test_a_bounded_query_is_finished_at_its_end(log: GrowingLog) -> None:
    log.upload("orders", 0, 30)
    with SplitEnumerator(query(log, offsets=(5, 40))) as enumerator:
        assert bounds(enumerator.discover()) == [("orders-0", 5, 30)]
        assert not enumerator.is_finished
        log.upload("orders", 0, 30)
        assert bounds(enumerator.discover()) == [("orders-0", 30, 40)]
        assert enumerator.is_finished
        log.upload("orders", 0, 30)
        assert enumerator.discover() == []


def test_times_are_looked_up_as_a_scan_does(log: GrowingLog) -> None:
    log.upload("orders", 0, 30)
    times = segreader.scan(log.root, topic="orders", columns=["timestamp_ms"]).to_arrow()["timestamp_ms"].to_pylist()
    for since, until in ((times[7], times[22]), (times[15], None), (None, times[9]), (times[-1] + 1, None)):
        wanted = segreader.scan(log.root, topic="orders", since=since, until=until).to_arrow()["offset"].to_pylist()
        given = query(log, since=since, until=until)
        with SplitEnumerator(given) as enumerator:
            assert offsets_in(given, enumerator.discover()) == wanted


@pytest.mark.parametrize("more", [{}, {"until": "2200-01-01T00:00Z"}, {"offsets": "5:"}])
def test_a_load_of_nothing_as_new_as_asked_has_the_note_of_a_scan(log: GrowingLog, more: dict[str, Any]) -> None:
    log.upload("orders", 0, 30)
    given = query(log, since="2199-01-01T00:00Z", **more)
    (note,) = segreader.scan(log.root, topic="orders", since=given.since, **more).plan().notes
    assert "no record that can be read is as new as 2199-01-01" in note
    with SplitEnumerator(given) as enumerator:
        assert enumerator.discover() == []
        assert enumerator.notes == [note]
        assert enumerator.discover() == []
        assert enumerator.notes == [note]
        state = enumerator.state()
    with SplitEnumerator(given, state=state) as enumerator, SplitEnumerator(query(log, since=0)) as full:
        assert enumerator.discover() == []
        assert len(full.discover()) > 0
        assert enumerator.notes == full.notes == []


def test_records_of_an_open_transaction_are_held_back_until_they_are_decided(log: GrowingLog) -> None:
    log.upload("orders", 0, 30, open_transaction=True)
    committed, uncommitted = query(log), query(log, isolation_level="read_uncommitted")
    with SplitEnumerator(committed) as enumerator, SplitEnumerator(uncommitted) as impatient:
        assert bounds(enumerator.discover()) == [("orders-0", 0, 20)]
        assert bounds(impatient.discover()) == [("orders-0", 0, 30)]
        assert enumerator.discover() == []
        state = enumerator.state()
    end = log.end_transaction("orders", 0)
    with SplitEnumerator(committed, state=state) as enumerator:
        added = enumerator.discover()
        assert (added[0].start, added[-1].stop) == (20, end)
        assert offsets_in(committed, added) == list(range(20, 30))


@pytest.mark.parametrize("is_near", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_each_offset_comes_once_over_random_growth_saved_at_random_moments(
    log: GrowingLog, seed: int, is_near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_near:
        near_always(monkeypatch)
        monkeypatch.setattr(near, "_LEAST_SPAN_MS", 0)
    chance = random.Random(seed)
    isolation = chance.choice(["read_committed", "read_uncommitted"])
    asked = query(log, isolation_level=isolation, split_bytes=chance.choice([1 << 20, 400]))
    log.upload("orders", 0, 10)
    enumerator = SplitEnumerator(asked)
    splits: list[LoaderSplit] = []
    has_open = [False, False, False]
    for _ in range(25):
        partition = chance.randrange(3)
        match chance.randrange(4):
            case 0 | 1 if not has_open[partition]:
                has_open[partition] = chance.random() < 0.3
                log.upload("orders", partition, chance.randint(1, 40), open_transaction=has_open[partition])
            case 2 if has_open[partition]:
                has_open[partition] = False
                log.end_transaction("orders", partition)
            case _:
                splits += enumerator.discover()
                if chance.random() < 0.5:
                    state = enumerator.state()
                    assert len(state) < 500
                    enumerator.close()
                    enumerator = SplitEnumerator(asked, state=state)
    for partition, is_open in enumerate(has_open):
        if is_open:
            log.end_transaction("orders", partition)
    splits += enumerator.discover()
    for partition in range(3):
        mine = [one for one in splits if one.partition.partition == partition]
        assert all(one.stop == two.start for one, two in pairwise(mine))
    assert len({one.id for one in splits}) == len(splits)
    whole = segreader.scan(log.root, topic="orders", isolation_level=isolation).to_arrow()
    expected = sorted(zip(whole["partition"].to_pylist(), whole["offset"].to_pylist(), strict=True))
    with ReaderPool(asked) as pool:
        read = [read_rest(pool.open(LoaderSplit.from_json(one.to_json()))) for one in splits]
    seen = [
        pair for table in read for pair in zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    ]
    assert sorted(seen) == expected
    enumerator.close()


@pytest.mark.parametrize("is_near", [False, True])
@examples(25)
@given(events=histories(*ORDINARY, ELECTION, FAILED_UPLOAD), level=st.sampled_from(IsolationLevel), data=st.data())
def test_random_histories_looked_at_while_they_go_on_give_what_a_consumer_sees(
    is_near: bool, events: Sequence[Event], level: IsolationLevel, data: st.DataObject
) -> None:
    """Transactions open and end, uploads fail and come again, leaders change without loss; and it looks in between."""
    partition, state, found = SimulatedPartition(), None, []
    looks = data.draw(st.sets(st.integers(0, len(events) - 1), max_size=8), "looks") | {len(events) - 1}
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        if is_near:
            near_always(patched)
            patched.setattr(near, "_LEAST_SPAN_MS", 0)
        asked = LoadQuery(location=name, isolation_level=level, columns=RECORD_COLUMNS)
        for number, (verb, arguments) in enumerate(events):
            getattr(partition, verb)(*arguments)
            if number not in looks or not any(segment.is_whole for segment in partition.remote):
                continue
            partition.write(Path(name))
            with SplitEnumerator(asked, state=state) as enumerator:
                for split in enumerator.discover():
                    with ResumableReader(split, asked) as reader:
                        found += [
                            one for batch in read_rest(reader).to_batches() for one in iter_consumer_records(batch)
                        ]
                state = enumerator.state()
        if state is None:
            return
        truth = partition.truth()
    expected = truth.committed if level is IsolationLevel.READ_COMMITTED else truth.uncommitted
    assert seen_of(found) == seen_of(expected)


@examples(20)
@given(events=histories(*ORDINARY, *ELECTIONS), level=st.sampled_from(IsolationLevel), data=st.data())
def test_what_an_election_takes_from_a_load_is_told_with_where_to_begin_again(
    events: Sequence[Event], level: IsolationLevel, data: st.DataObject
) -> None:
    """Leaders change with loss between looks, and the lineage is that of the leader. What is refused is taken back."""
    partition, found = SimulatedPartition(), list[ConsumerRecord]()
    state: str | None = None
    asked: LoadQuery | None = None
    looks = data.draw(st.sets(st.integers(0, len(events) - 1), max_size=8), "looks") | {len(events) - 1}
    with TemporaryDirectory() as name, TemporaryDirectory() as beside:
        checkpoint = Path(beside) / "leader-epoch-checkpoint"
        for number, (verb, arguments) in enumerate(events):
            getattr(partition, verb)(*arguments)
            if number not in looks or not any(segment.is_whole for segment in partition.remote):
                continue
            partition.write(Path(name))
            checkpoint.write_bytes(partition.leader_epoch_checkpoint())
            asked = asked or LoadQuery(
                location=name,
                isolation_level=level,
                columns=RECORD_COLUMNS,
                leader_epochs=str(checkpoint),
                on_gap="skip",
            )
            for _ in range(2):
                with SplitEnumerator(asked, state=state) as enumerator:
                    try:
                        splits = enumerator.discover()
                    except DivergedPositionError as error:
                        assert error.offset is not None
                        asked, state = replace(asked, offsets=(error.offset, None)), None
                        found = [record for record in found if record.offset < error.offset]
                        continue
                    state = enumerator.state()
                for split in splits:
                    with ResumableReader(split, asked) as reader:
                        batches = read_rest(reader).to_batches()
                    found += [one for batch in batches for one in iter_consumer_records(batch)]
                break
        if asked is None:
            return
        truth = partition.truth(told_by_leader=True)
    if not truth.has_hole:
        expected = truth.committed if level is IsolationLevel.READ_COMMITTED else truth.uncommitted
        assert seen_of(found) == seen_of(expected)


def test_cut_segments_have_splits_with_bounds_of_their_own(log: GrowingLog) -> None:
    from segreader.testing.builder import SegmentBuilder
    from segreader.testing.directory import write_local_tiered

    segment = SegmentBuilder()
    for _ in range(50):
        segment.batch([b"x" * 300] * 5)
    write_local_tiered(log.root, "orders", [segment])
    asked = query(log, split_bytes=10_000)
    with SplitEnumerator(asked) as enumerator:
        splits = enumerator.discover()
    assert len(splits) > 4
    assert splits[0].start == 0
    assert splits[-1].stop == 250
    assert all(one.stop == two.start for one, two in pairwise(splits))
    with ReaderPool(asked) as pool:
        for split in splits:
            assert read_rest(pool.open(split))["offset"].to_pylist() == list(range(split.start, split.stop))


@pytest.mark.parametrize("start", [0, 1, 4, 9, 13])
def test_no_split_is_empty_or_bears_the_name_of_another_wherever_it_begins(log: GrowingLog, start: int) -> None:
    from segreader.testing.builder import SegmentBuilder
    from segreader.testing.directory import write_local_tiered

    segment = SegmentBuilder(index_interval_bytes=1)
    for number in range(12):
        if number % 3 == 2:
            segment.batch([b"t"], producer_id=7, producer_epoch=0, transactional=True).marker(7)
        else:
            segment.batch([b"v"] * (1 + number % 4))
    write_local_tiered(log.root, "orders", [segment])
    for stop in (start + 1, start + 2, 19, 30):
        asked = query(log, split_bytes=1, offsets=(start, stop))
        with SplitEnumerator(asked) as enumerator:
            splits = enumerator.discover()
        assert all(one.start < one.stop for one in splits)
        assert len({one.id for one in splits}) == len(splits)


def test_what_is_left_of_several_splits_is_planned_up_to_their_ends(log: GrowingLog) -> None:
    for _ in range(3):
        log.upload("orders", 0, 30)
    with SplitEnumerator(query(log)) as enumerator:
        one, two, _ = enumerator.discover()
        rest = enumerator.splits_from([at(two, 44), at(one, 11)])
        assert bounds(rest) == [("orders-0", 11, 30), ("orders-0", 44, 60)]
        assert enumerator.discover() == []
    with SplitEnumerator(query(log)) as enumerator:
        assert bounds(enumerator.splits_from([at(one, 11), at(two, 44)])) == bounds(rest)
        assert bounds(enumerator.discover()) == [("orders-0", 60, 90)]
    end = Position(topic="orders", partition=0, next_offset=70)
    with SplitEnumerator(query(log)) as enumerator:
        assert bounds(enumerator.splits_from([end])) == [("orders-0", 70, 90)]
        assert enumerator.discover() == []


def test_positions_whose_rests_overlap_are_refused(log: GrowingLog) -> None:
    for _ in range(2):
        log.upload("orders", 0, 30)
    with SplitEnumerator(query(log)) as enumerator:
        one, two = enumerator.discover()
        everything = Position(topic="orders", partition=0, next_offset=3)
        for wrong in ([at(one, 11), at(one, 20)], [at(one, 11), at(one, 11)], [everything, at(two, 44)]):
            with pytest.raises(OptionError, match="would come twice") as caught:
                enumerator.splits_from(wrong)
            assert caught.value.offset == wrong[1].next_offset
        assert bounds(enumerator.splits_from([at(one, 30), at(one, 11)])) == [("orders-0", 11, 30)]


@pytest.mark.parametrize(
    ("wrong", "found"), [(5, "int"), ([5], "int"), ("text", "str"), ([None], "NoneType"), (WHOLE, "Position")]
)
def test_what_is_no_list_of_positions_is_refused(log: GrowingLog, wrong: Any, found: str) -> None:
    log.upload("orders", 0, 30)
    said = f"not positions of a load; found {found}, expected several Position"
    with SplitEnumerator(query(log)) as enumerator, pytest.raises(OptionError, match=said):
        enumerator.splits_from(wrong)
    with pytest.raises(OptionError, match=said):
        StartingOffsets.of(wrong)


def test_a_topic_that_is_not_there_is_told_and_one_that_vanishes_later_is_not(log: GrowingLog) -> None:
    log.upload("payments", 0, 10)
    with SplitEnumerator(query(log)) as enumerator, pytest.raises(ObjectNotFoundError):
        enumerator.discover()
    log.upload("orders", 0, 10)
    with SplitEnumerator(query(log)) as enumerator:
        assert len(enumerator.discover()) == 1
        log.delete("orders", 0)
        assert enumerator.discover() == []
        assert [one.next_offset for one in enumerator.end_positions()] == [10]


def test_offsets_that_are_missing_in_the_middle_stop_it_until_they_come(log: GrowingLog) -> None:
    log.upload("orders", 0, 10)
    with SplitEnumerator(query(log)) as enumerator:
        assert len(enumerator.discover()) == 1
        for _ in range(2):
            log.upload("orders", 0, 10)
        middle = {path: path.read_bytes() for path in log.root.glob("*/*0010-*")}
        for path in middle:
            path.unlink()
        with pytest.raises(SegmentGapError):
            enumerator.discover()
        for path, data in middle.items():
            path.write_bytes(data)
        assert bounds(enumerator.discover()) == [("orders-0", 10, 20), ("orders-0", 20, 30)]


def test_offsets_that_are_missing_in_the_middle_are_told_where_they_are_passed_over(log: GrowingLog) -> None:
    for _ in range(3):
        log.upload("orders", 0, 10)
    middle = {path: path.read_bytes() for path in log.root.glob("*/*0010-*")}
    for path in middle:
        path.unlink()
    with SplitEnumerator(query(log, on_gap="skip")) as enumerator:
        assert bounds(enumerator.discover()) == [("orders-0", 0, 10), ("orders-0", 20, 30)]
        assert any("offsets 10 to 19" in note for note in enumerator.notes)
        for path, data in middle.items():
            path.write_bytes(data)
        assert enumerator.discover() == []


def test_a_state_that_is_none_or_of_the_other_level_is_refused(log: GrowingLog) -> None:
    log.upload("orders", 0, 10)
    with SplitEnumerator(query(log)) as enumerator:
        enumerator.discover()
        state = enumerator.state()
    with pytest.raises(PositionFormatError):
        SplitEnumerator(query(log), state="{}")
    broken = json.loads(state) | {"partitions": [{"topic": "orders"}]}
    with pytest.raises(PositionFormatError):
        SplitEnumerator(query(log), state=json.dumps(broken))
    with pytest.raises(ForeignPositionError, match="other isolation level"):
        SplitEnumerator(query(log, isolation_level="read_uncommitted"), state=state)


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize("name", ["diverged", "diverged-txn", "diverged-mid", "diverged-hanging"])
def test_after_unclean_elections_only_the_surviving_history_is_handed_out(name: str, isolation: str) -> None:
    some = case("cluster", name)
    asked = query_of(some, isolation)
    with SplitEnumerator(asked) as enumerator:
        splits = enumerator.discover()
        assert enumerator.discover() == []
        for position in enumerator.end_positions():
            assert position.leader_epoch is not None
    assert from_log_start(some, isolation, load(asked, splits)) == truth_of(some, isolation)


def test_a_history_that_parts_from_what_was_handed_out_is_refused(log: GrowingLog) -> None:
    log.upload("orders", 0, 30)
    with SplitEnumerator(query(log)) as enumerator:
        enumerator.discover()
        state = json.loads(enumerator.state())
    state["partitions"][0] |= {"next_offset": 35, "leader_epoch": 4}
    with (
        SplitEnumerator(query(log), state=json.dumps(state)) as enumerator,
        pytest.raises(DivergedPositionError) as caught,
    ):
        enumerator.discover()
    assert caught.value.offset == 30
    assert "offset 30" in (caught.value.hint or "")


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(("position", "value"), [(0, 0x40), (16, 9)])
def test_where_damage_hides_the_end_it_is_told_at_once_and_raised_by_the_next_look(
    position: int, value: int, level: str, log: GrowingLog
) -> None:
    """The last batch has another magic, or begins at an offset that no log reaches."""
    log.upload("orders", 0, 10)
    log.upload("orders", 0, 10)
    last = list(log.logs())[-1]
    data = bytearray(last.read_bytes())
    data[position] = value
    last.write_bytes(data)
    with SplitEnumerator(query(log, isolation_level=level)) as enumerator:
        assert bounds(enumerator.discover()) == [("orders-0", 0, 10)]
        assert enumerator.notes == ["orders-0: damage hides what comes behind offset 10"]
        with pytest.raises(CorruptBatchError):
            enumerator.discover()


@pytest.mark.parametrize("abort", [True, False], ids=["abort", "commit"])
def test_a_load_is_refused_where_an_election_took_the_marker_that_decided_it(tmp_path: Path, abort: bool) -> None:
    log = LostMarker(tmp_path / "tier")
    asked = LoadQuery(location=str(log.root), topic="orders")
    with SplitEnumerator(asked) as enumerator:
        splits = enumerator.discover()
        assert offsets_in(asked, splits) == [0, 1, 2, 3, 4]
        state, ends = enumerator.state(), enumerator.end_positions()
        log.elect(abort=abort)
        with pytest.raises(DivergedPositionError):
            enumerator.discover()
    assert [one.next_offset for one in ends] == [5]
    with SplitEnumerator(asked, state=state) as restored:
        with pytest.raises(DivergedPositionError, match="a transaction is open since offset 0") as caught:
            restored.discover()
        assert caught.value.offset == 0
        with pytest.raises(DivergedPositionError):
            restored.splits_from([Position.from_json(one.to_json()) for one in ends])


def test_a_reader_stopped_inside_a_transaction_is_refused_where_its_marker_was_lost(tmp_path: Path) -> None:
    log = LostMarker(tmp_path / "tier")
    asked = LoadQuery(location=str(log.root), topic="orders")
    with SplitEnumerator(asked) as enumerator, ReaderPool(asked) as pool:
        reader = pool.open(LoaderSplit.from_json(enumerator.discover()[0].to_json()))
        reader.read(max_rows=2)
        stopped = Position.from_json(reader.position.to_json())
    log.elect()
    with SplitEnumerator(asked) as fresh, pytest.raises(DivergedPositionError) as caught:
        fresh.splits_from([stopped])
    assert (stopped.next_offset, caught.value.offset) == (2, 0)


def test_an_end_that_was_lost_and_decided_nothing_is_no_reason_to_refuse(tmp_path: Path) -> None:
    log = LostMarker(tmp_path / "tier", decided=True)  # the COMMIT that counts is at offset 5
    asked = LoadQuery(location=str(log.root), topic="orders")
    with SplitEnumerator(asked) as enumerator:
        enumerator.discover()
        state, ends = enumerator.state(), enumerator.end_positions()
    assert [one.next_offset for one in ends] == [6]
    log.elect()
    with SplitEnumerator(asked, state=state) as restored:
        assert offsets_in(asked, restored.discover()) == [11, 12, 13, 14]
    with SplitEnumerator(asked) as fresh:
        assert [(one.start, one.stop) for one in fresh.splits_from(ends)][-1][1] == 15


def test_a_state_of_an_earlier_version_knows_no_end_and_goes_on(tmp_path: Path) -> None:
    log = LostMarker(tmp_path / "tier", decided=True)
    asked = LoadQuery(location=str(log.root), topic="orders")
    with SplitEnumerator(asked) as enumerator:
        enumerator.discover()
        saved = json.loads(enumerator.state())
    for row in saved["partitions"]:
        assert row.pop("log_end") == 12
        assert row.pop("log_end_epoch") == 5
    with SplitEnumerator(asked, state=json.dumps(saved)) as restored:
        assert restored.discover() == []
        assert json.loads(restored.state())["partitions"][0]["log_end"] == 12


def test_what_is_read_uncommitted_asks_for_no_marker(tmp_path: Path) -> None:
    log = LostMarker(tmp_path / "tier")
    asked = LoadQuery(location=str(log.root), topic="orders", isolation_level="read_uncommitted", offsets=":5")  # type: ignore[arg-type]
    with SplitEnumerator(asked) as enumerator:
        enumerator.discover()
        state = enumerator.state()
    log.elect()
    with SplitEnumerator(asked, state=state) as restored:
        assert restored.discover() == []


@pytest.mark.parametrize("count", [1, 2])
def test_a_load_ends_with_an_error_where_the_newest_log_is_cut_between_batches(tmp_path: Path, count: int) -> None:
    log = [SegmentBuilder(0).batch([b"0"]).batch([b"1"])]
    log = [*log, log[0].roll().batch([b"2"]).batch([b"3"])][:count]
    place = write_local_tiered(tmp_path, "orders", log)
    newest = max(place.glob("*.log"))
    newest.write_bytes(newest.read_bytes()[: len(newest.read_bytes()) // 2])
    query = LoadQuery(location=str(tmp_path), topic="orders")
    with ReaderPool(query) as pool:
        read = []
        with pytest.raises(TruncatedError, match="the log ends before an offset that a file beside it names"):
            for split in all_splits(query):
                reader = pool.open(LoaderSplit.from_json(split.to_json()))
                while (batch := reader.read()) is not None:
                    read += batch.column("offset").to_pylist()
    assert read == list(range(2 * count - 1))
