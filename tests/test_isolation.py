"""Replay, lookup and queue, against a simulator that only looks ahead for a producer's next marker."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from segreader.format.index_files import AbortedTransaction, TransactionIndex
from segreader.isolation import (
    AbortedTransactionFilter,
    AbortedTransactions,
    IsolationLevel,
    TransactionReplay,
)

PLAIN = -1


@dataclass(frozen=True)
class Batch:
    """A batch as a filter sees it."""

    base_offset: int
    producer_id: int = PLAIN
    last_offset_delta: int = 0
    is_transactional: bool = False
    is_control: bool = False
    is_abort: bool = False

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


def data(base_offset: int, producer_id: int, last_offset: int | None = None) -> Batch:
    delta = 0 if last_offset is None else last_offset - base_offset
    return Batch(base_offset, producer_id, delta, is_transactional=True)


def marker(offset: int, producer_id: int, *, abort: bool) -> Batch:
    return Batch(offset, producer_id, is_transactional=True, is_control=True, is_abort=abort)


def replayed(log: list[Batch], replay: TransactionReplay) -> list[AbortedTransaction]:
    found = []
    for batch in log:
        if batch.is_control:
            if aborted := replay.marker(batch.producer_id, batch.base_offset, batch.is_abort):
                found.append(aborted)
        elif batch.is_transactional:
            replay.data(batch.producer_id, batch.base_offset)
    return found


def seen_with_lookup(log: list[Batch], aborted: AbortedTransactions) -> list[int]:
    return [
        batch.base_offset
        for batch in log
        if not batch.is_control
        and not (batch.is_transactional and aborted.covers(batch.producer_id, batch.base_offset))
    ]


def seen_in_order(log: list[Batch], aborted: AbortedTransactions) -> list[int]:
    """As ``seen_with_lookup``, one batch after another."""
    covered = aborted.in_order()
    producer_ids, bases = [batch.producer_id for batch in log], [batch.base_offset for batch in log]
    hidden = {
        number
        for row, batch in enumerate(log)
        if batch.is_transactional and not batch.is_control
        for number in covered([row], producer_ids, bases)
    }
    return [batch.base_offset for row, batch in enumerate(log) if not batch.is_control and row not in hidden]


def seen_with_queue(log: list[Batch], rows: list[tuple[int, int]]) -> list[int]:
    queue = AbortedTransactionFilter(rows)
    return [batch.base_offset for batch in log if queue.admits(batch, ends_in_abort=batch.is_abort)]


# Two segments, 0..7 and 8..13, as docs/reference/formats.md draws them.
SCENARIO = [
    Batch(0),
    data(1, 1, 2),
    data(3, 2),
    marker(4, 1, abort=False),
    data(5, 1),
    data(6, 2, 7),
    marker(8, 1, abort=True),
    data(9, 3),
    marker(10, 2, abort=True),
    Batch(11, producer_id=1),
    marker(12, 1, abort=False),
    data(13, 1),
]
ROWS = [AbortedTransaction(1, 5, 8, 3), AbortedTransaction(2, 3, 10, 9)]


def test_isolation_levels_are_named_as_in_a_consumers_configuration() -> None:
    assert [str(level) for level in IsolationLevel] == ["read_committed", "read_uncommitted"]
    assert IsolationLevel("read_committed") is IsolationLevel.READ_COMMITTED


def test_a_replay_gives_the_rows_a_broker_writes() -> None:
    replay = TransactionReplay()

    assert replayed(SCENARIO, replay) == ROWS
    assert replay.open_transactions == {3: 9, 1: 13}
    assert replay.first_unstable_offset(14) == 9


def test_a_replay_goes_on_from_the_open_transactions_of_a_snapshot() -> None:
    replay = TransactionReplay({2: 3, 1: 5})

    assert replay.first_unstable_offset(8) == 3
    assert replayed(SCENARIO[6:], replay) == ROWS


def test_once_all_is_decided_the_end_is_stable() -> None:
    replay = TransactionReplay({3: 9, 1: 13})

    assert replay.marker(3, 14, is_abort=False) is None
    assert replay.marker(1, 15, is_abort=True) == AbortedTransaction(1, 13, 15, 16)
    assert replay.first_unstable_offset(16) == 16


def test_stray_and_repeated_markers_change_nothing() -> None:
    replay = TransactionReplay({7: 100})

    assert replay.marker(8, 110, is_abort=True) is None
    assert replay.marker(7, 111, is_abort=True) == AbortedTransaction(7, 100, 111, 112)
    assert replay.marker(7, 112, is_abort=True) is None
    assert replay.open_transactions == {}


def test_a_transactional_batch_without_a_producer_opens_nothing() -> None:
    replay = TransactionReplay()
    replay.data(-1, 5)

    assert replay.open_transactions == {}


def test_a_replay_does_not_change_what_it_was_started_with() -> None:
    snapshot = {1: 5}
    TransactionReplay(snapshot).marker(1, 9, is_abort=True)

    assert snapshot == {1: 5}


def test_committed_offsets_of_the_scenario_once_all_is_decided() -> None:
    log = [*SCENARIO, marker(14, 3, abort=False), marker(15, 1, abort=False)]

    assert seen_with_lookup(log, AbortedTransactions(ROWS)) == [0, 1, 9, 11, 13]
    assert seen_with_queue(log, [(row.producer_id, row.first_offset) for row in ROWS]) == [0, 1, 9, 11, 13]


def test_the_index_of_the_first_segment_alone_shows_aborted_data() -> None:
    assert seen_with_lookup(SCENARIO[:6], AbortedTransactions()) == [0, 1, 3, 5, 6]
    assert seen_with_lookup(SCENARIO[:6], AbortedTransactions(ROWS)) == [0, 1]


@pytest.mark.parametrize(
    ("producer_id", "base_offset", "covered"),
    [(1, 4, False), (1, 5, True), (1, 8, True), (1, 9, False), (2, 5, True), (3, 5, False), (-1, 5, False)],
)
def test_a_transaction_covers_from_its_first_batch_to_its_marker(
    producer_id: int, base_offset: int, covered: bool
) -> None:
    assert AbortedTransactions(ROWS).covers(producer_id, base_offset) is covered


def test_order_and_repeats_of_entries_do_not_matter() -> None:
    aborted = AbortedTransactions([ROWS[1], ROWS[0], ROWS[1]])

    assert aborted == AbortedTransactions(ROWS)
    assert list(aborted) == [ROWS[1], ROWS[0]]
    assert (len(aborted), hash(aborted)) == (2, hash(AbortedTransactions(ROWS)))


def test_entries_of_two_diverged_logs_may_overlap() -> None:
    aborted = AbortedTransactions([AbortedTransaction(1, 0, 100, 101), AbortedTransaction(1, 10, 20, 21)])

    assert aborted.covers(1, 50)


def test_a_part_of_the_log_needs_only_what_touches_it() -> None:
    aborted = AbortedTransactions(ROWS)

    assert list(aborted.within(0, 4)) == [ROWS[1]]
    assert list(aborted.within(8, 9)) == [ROWS[1], ROWS[0]]
    assert list(aborted.within(9, 99)) == [ROWS[1]]
    assert list(aborted.within(0, 3)) == list(aborted.within(11, 99)) == []


@given(st.lists(st.tuples(*[st.integers(0, 400)] * 2), max_size=150), st.tuples(*[st.integers(0, 450)] * 2))
@settings(max_examples=tries(150), deadline=None)
def test_what_touches_a_part_of_the_log_is_found_among_many(
    spans: list[tuple[int, int]], part: tuple[int, int]
) -> None:
    entries = [AbortedTransaction(7, first, first + length + 1, 0) for first, length in spans]
    start, stop = sorted(part)

    found = AbortedTransactions(entries).within(start, stop)

    assert found == AbortedTransactions(
        entry for entry in entries if entry.last_offset >= start and entry.first_offset < stop
    )
    assert [found.covers(7, offset) for offset in range(start, stop)] == [
        AbortedTransactions(entries).covers(7, offset) for offset in range(start, stop)
    ]


def test_a_hundred_thousand_aborted_transactions_take_a_few_mebibytes_in_a_plan() -> None:
    aborted = AbortedTransactions(AbortedTransaction(at % 7, 3 * at, 3 * at + 2, 3 * at + 3) for at in range(100_000))

    assert len(pickle.dumps(aborted)) < 100_000 * 33
    assert len(aborted.within(150_000, 150_300)) == 100


def test_aborted_transactions_survive_pickle() -> None:
    aborted = pickle.loads(pickle.dumps(AbortedTransactions(ROWS)))

    assert aborted == AbortedTransactions(ROWS)
    assert aborted.covers(1, 5)


def test_a_queue_takes_rows_in_any_order() -> None:
    log = [data(0, 2), data(1, 1), marker(2, 2, abort=True), marker(3, 1, abort=True), data(4, 1)]

    assert seen_with_queue(log, [(1, 1), (2, 0)]) == seen_with_queue(log, [(2, 0), (1, 1)]) == [4]


def test_a_queue_opens_a_transaction_up_to_the_last_offset_of_a_batch() -> None:
    assert seen_with_queue([data(10, 1, 19)], [(1, 15)]) == []
    assert seen_with_queue([data(10, 1, 14)], [(1, 15)]) == [10]


def test_a_queue_shows_batches_outside_of_transactions() -> None:
    log = [data(0, 1), Batch(1), Batch(2, producer_id=1), marker(3, 1, abort=True)]

    assert seen_with_queue(log, [(1, 0)]) == [1, 2]


def test_a_control_batch_without_a_producer_is_hidden_and_moves_nothing() -> None:
    log = [Batch(0, is_control=True), data(1, 1), Batch(2, is_control=True), data(3, 1)]

    assert seen_with_queue(log, [(1, 1)]) == []
    assert seen_with_queue(log, []) == [1, 3]


def test_a_commit_does_not_end_an_aborted_transaction_of_the_queue() -> None:
    log = [data(0, 1), marker(1, 1, abort=False), data(2, 1), marker(3, 1, abort=True), data(4, 1)]

    assert seen_with_queue(log, [(1, 0)]) == [4]


@st.composite
def logs(draw: st.DrawFn) -> list[Batch]:
    """A log of three transactional producers, one of them idempotent at times, and a plain one."""
    log, offset = [], draw(st.integers(0, 3))
    kinds = st.sampled_from(["data", "data", "data", "idempotent", "plain", "abort", "abort", "commit"])
    for kind in draw(st.lists(kinds, max_size=30)):
        producer_id, size = draw(st.integers(0, 2)), draw(st.integers(1, 3))
        if kind == "data":
            log.append(data(offset, producer_id, offset + size - 1))
        elif kind == "idempotent":
            log.append(Batch(offset, producer_id, size - 1))
        elif kind == "plain":
            log.append(Batch(offset, PLAIN, size - 1))
        else:
            log.append(marker(offset, producer_id, abort=kind == "abort"))
        offset = log[-1].last_offset + draw(st.integers(1, 2))
    return log


def outcome(log: list[Batch], index: int) -> str:
    """What became of a transactional data batch: the next marker of its producer says it."""
    later = (b for b in log[index:] if b.is_control and b.producer_id == log[index].producer_id)
    return next(("aborted" if b.is_abort else "committed" for b in later), "open")


def truth(log: list[Batch], start: int) -> list[int]:
    """Base offsets a reader sees that starts at batch number ``start``, were open transactions to commit."""
    return [
        batch.base_offset
        for index, batch in enumerate(log)
        if index >= start and not batch.is_control and not (batch.is_transactional and outcome(log, index) == "aborted")
    ]


@given(logs())
@settings(max_examples=tries(150), deadline=None)
def test_lookup_and_queue_agree_with_the_simulator_from_any_starting_point(log: list[Batch]) -> None:
    rows = replayed(log, TransactionReplay())

    for start in range(len(log)):
        first_offset = log[start].base_offset
        ahead = [(r.producer_id, r.first_offset) for r in reversed(rows) if r.last_offset >= first_offset]
        assert seen_with_lookup(log[start:], AbortedTransactions(rows)) == truth(log, start)
        assert seen_in_order(log[start:], AbortedTransactions(rows)) == truth(log, start)
        assert seen_with_queue(log[start:], ahead) == truth(log, start)


@given(logs(), st.data())
@settings(max_examples=tries(150), deadline=None)
def test_a_replay_from_a_snapshot_goes_on_as_one_from_the_beginning(log: list[Batch], draw: st.DataObject) -> None:
    cut = draw.draw(st.integers(0, len(log)))
    whole, before = TransactionReplay(), TransactionReplay()
    rows = replayed(log, whole)
    earlier = replayed(log[:cut], before)
    after = TransactionReplay(before.open_transactions)

    assert earlier + replayed(log[cut:], after) == rows
    assert after.open_transactions == whole.open_transactions


@given(logs())
@settings(max_examples=tries(150), deadline=None)
def test_the_first_unstable_offset_is_the_first_batch_still_open(log: list[Batch]) -> None:
    replay = TransactionReplay()
    replayed(log, replay)
    undecided = [
        batch.base_offset
        for index, batch in enumerate(log)
        if batch.is_transactional and not batch.is_control and outcome(log, index) == "open"
    ]

    assert replay.first_unstable_offset(1_000) == min(undecided, default=1_000)


@given(logs(), st.data())
@settings(max_examples=tries(150), deadline=None)
def test_walking_indexes_until_complete_finds_all_a_range_needs(log: list[Batch], draw: st.DataObject) -> None:
    replay, segments, length = TransactionReplay(), [], draw.draw(st.integers(1, 6))
    for first in range(0, len(log), length):
        rows = replayed(log[first : first + length], replay)
        segments.append(TransactionIndex(tuple(rows)))
    stable = replay.first_unstable_offset(log[-1].last_offset + 1 if log else 0)
    for number, start in enumerate(range(0, len(log), length)):
        wanted = [batch for batch in log[start : start + length] if batch.base_offset < stable]
        if not wanted:
            continue
        upper = min(stable, wanted[-1].last_offset + 1)
        collected = []
        for index in segments[number:]:
            found, is_complete = index.collect(wanted[0].base_offset, upper)
            collected += found
            if is_complete:
                break
        visible = [offset for offset in truth(log, start) if offset <= wanted[-1].base_offset]
        assert seen_with_lookup(wanted, AbortedTransactions(collected)) == visible
