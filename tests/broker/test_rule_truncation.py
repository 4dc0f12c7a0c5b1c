"""Whether the log still holds what was read: KIP-320's tables, and batches of an epoch that ended before them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from segreader.broker.messages import EpochEnd, EpochWanted, LeaderAndEpoch
from segreader.broker.rules.truncation import (
    BatchFacts,
    EpochHistory,
    FetchPosition,
    LiveBatches,
    PositionState,
    Question,
    ReadPosition,
    Validation,
    Verdict,
    judge_epoch_end,
)

FETCHING, AWAIT_VALIDATION, AWAIT_RESET = (
    PositionState.FETCHING,
    PositionState.AWAIT_VALIDATION,
    PositionState.AWAIT_RESET,
)


def end(epoch: int, offset: int, error: int = 0) -> EpochEnd:
    return EpochEnd("t", 0, error, epoch, offset)


def reading(offset: int = 3000, epoch: int = 0) -> ReadPosition:
    """A reader that fetched from the leader of epoch 0 up to here."""
    position = ReadPosition("t", 0, FetchPosition(offset), LeaderAndEpoch(1, 0))
    position.advance(offset, epoch)
    assert position.state is FETCHING
    return position


def moved(offset: int = 3000, epoch: int = 0) -> tuple[ReadPosition, Question]:
    """The same reader after broker 2 became the leader, and what it asks there."""
    position = reading(offset, epoch)
    assert position.leader_changed(LeaderAndEpoch(2, 1)) is AWAIT_VALIDATION
    question = position.question()
    assert question is not None
    return position, question


# --- states


def test_without_a_position_nothing_is_fetched() -> None:
    position = ReadPosition("t", 0)

    assert position.state is PositionState.INITIALIZING
    assert position.leader_changed(LeaderAndEpoch(1, 5)) is PositionState.INITIALIZING
    assert position.question() is None


def test_a_committed_offset_with_an_epoch_is_validated_before_the_first_fetch() -> None:
    position = ReadPosition("t", 0, leader=LeaderAndEpoch(1, 5))

    assert position.seek(FetchPosition(42, 4)) is AWAIT_VALIDATION


def test_an_offset_that_the_leader_just_listed_is_fetched_at_once() -> None:
    position = ReadPosition("t", 0, leader=LeaderAndEpoch(1, 5))

    assert position.seek(FetchPosition(42, 5), is_valid=True) is FETCHING


def test_a_position_without_an_epoch_cannot_be_validated_and_goes_on() -> None:
    position = reading(epoch=-1)

    assert position.leader_changed(LeaderAndEpoch(2, 1)) is FETCHING
    assert position.question() is None


def test_a_leader_without_an_epoch_cannot_validate_and_the_read_goes_on() -> None:
    position = reading()

    assert position.leader_changed(LeaderAndEpoch(2, -1)) is FETCHING


def test_another_leader_is_asked_where_the_positions_epoch_ends() -> None:
    _, question = moved()

    assert question == Question(2, EpochWanted("t", 0, 0, 1), FetchPosition(3000, 0))


def test_another_epoch_of_the_same_leader_is_reason_enough_to_validate() -> None:
    assert reading().leader_changed(LeaderAndEpoch(1, 1)) is AWAIT_VALIDATION


@pytest.mark.parametrize("leader", [LeaderAndEpoch(1, 0), LeaderAndEpoch(-1, -1), LeaderAndEpoch(-1, 3)])
def test_the_same_leader_again_or_none_changes_nothing(leader: LeaderAndEpoch) -> None:
    assert reading().leader_changed(leader) is FETCHING


def test_a_lost_position_waits_for_a_new_offset() -> None:
    position = reading()
    position.lost()

    assert position.state is AWAIT_RESET
    assert position.leader_changed(LeaderAndEpoch(2, 1)) is AWAIT_RESET
    assert position.seek(FetchPosition(10), is_valid=True) is FETCHING


def test_crossing_the_seam_validates_a_position_whose_epoch_is_known() -> None:
    assert reading().validate() is AWAIT_VALIDATION
    assert reading(epoch=-1).validate() is FETCHING


def test_a_position_never_goes_back_by_itself() -> None:
    with pytest.raises(ValueError, match="never go back"):
        reading(10).advance(9, 0)


def test_no_read_begins_below_offset_0() -> None:
    with pytest.raises(ValueError, match="-1"):
        ReadPosition("t", 0, FetchPosition(-1))


# --- what OffsetForLeaderEpoch answers


@pytest.mark.parametrize("offset", [3000, 3001, 9000])
def test_an_epoch_that_ends_at_or_behind_the_position_lets_the_read_go_on(offset: int) -> None:
    position, question = moved()

    assert position.answered(question, end(0, offset)).validation is Validation.VALID
    assert position.state is FETCHING


def test_an_epoch_that_ends_before_the_position_is_a_truncation_with_the_last_common_point() -> None:
    position, question = moved()

    assert position.answered(question, end(0, 2500)) == Verdict(
        Validation.TRUNCATED, FetchPosition(3000, 0), FetchPosition(2500, 0)
    )
    assert position.state is AWAIT_RESET


def test_after_an_unclean_election_only_the_epochs_end_shows_the_other_history() -> None:
    """Epoch 0 was written to 5500; the new leader had 2500 of it and wrote to 4000: a Fetch at 3000 has records."""
    for offset in (3000, 5500):
        position, question = moved(offset)
        verdict = position.answered(question, end(0, 2500))
        assert verdict.common == FetchPosition(2500, 0)


def test_a_caller_that_allows_it_goes_on_from_the_common_point() -> None:
    position, question = moved()
    verdict = position.answered(question, end(0, 2500))
    assert verdict.common is not None

    assert position.seek(verdict.common, is_valid=True) is FETCHING
    assert position.position == FetchPosition(2500, 0)


@pytest.mark.parametrize(("epoch", "offset"), [(-1, -1), (-1, 2500), (0, -1)])
def test_without_an_epoch_or_an_end_no_common_history_is_known(epoch: int, offset: int) -> None:
    position, question = moved()

    assert position.answered(question, end(epoch, offset)).validation is Validation.NO_COMMON_HISTORY
    assert position.state is AWAIT_RESET


def test_an_epoch_above_the_leaders_newest_is_no_newest_epoch_but_none() -> None:
    """The broker answers -1 and -1 with error 0 then: nothing is common, and nothing is 'still there'."""
    assert judge_epoch_end(FetchPosition(10, 9), end(-1, -1)).validation is Validation.NO_COMMON_HISTORY


@pytest.mark.parametrize("error", [6, 9, 56, 78, 5, 74, 75, 3, -1, 100, 4711])
def test_errors_refresh_back_off_and_ask_again(error: int) -> None:
    position, question = moved()

    assert position.answered(question, end(-1, -1, error)).validation is Validation.REPEAT
    assert position.state is AWAIT_VALIDATION
    assert position.question() == question


def test_29_is_raised() -> None:
    position, question = moved()

    assert position.answered(question, end(-1, -1, 29)).validation is Validation.FORBIDDEN


def test_the_end_may_be_the_log_end_and_is_no_promise_that_records_can_be_read() -> None:
    """The verdict carries no end when the position is valid, so that nobody reads up to it."""
    assert judge_epoch_end(FetchPosition(10, 5), end(5, 4000)) == Verdict(Validation.VALID, FetchPosition(10, 5), None)


def test_an_epoch_without_records_that_no_log_remembers_is_still_valid_at_its_start() -> None:
    """ListOffsets told (100, epoch 5) for the end; nothing was written in epoch 5, so the next leader knows only 4."""
    assert judge_epoch_end(FetchPosition(100, 5), end(4, 100)).validation is Validation.VALID


# --- answers that come too late


def test_an_answer_says_nothing_if_the_position_moved_meanwhile() -> None:
    position, question = moved()
    position.advance(3001, 0)

    assert position.answered(question, end(0, 2500)).validation is Validation.DISCARDED
    assert (position.state, position.position) == (AWAIT_VALIDATION, FetchPosition(3001, 0))


def test_an_answer_says_nothing_if_the_reader_went_elsewhere_meanwhile() -> None:
    position, question = moved()
    position.seek(FetchPosition(1), is_valid=True)

    assert position.answered(question, end(0, 2500)).validation is Validation.DISCARDED
    assert position.state is FETCHING


def test_an_answer_of_a_leader_that_is_none_any_more_says_nothing() -> None:
    position, question = moved()
    position.leader_changed(LeaderAndEpoch(1, 2))

    assert position.answered(question, end(0, 9000)).validation is Validation.DISCARDED
    assert position.state is AWAIT_VALIDATION


def test_the_same_answer_counts_once() -> None:
    position, question = moved()
    position.answered(question, end(0, 9000))

    assert position.answered(question, end(0, 2500)).validation is Validation.DISCARDED
    assert position.state is FETCHING


# --- DivergingEpoch in a Fetch answer


def test_a_diverging_epoch_in_a_fetch_answer_is_a_truncation() -> None:
    position = reading()

    assert position.diverged(3000, (0, 2500)) == Verdict(
        Validation.TRUNCATED, FetchPosition(3000, 0), FetchPosition(2500, 0)
    )
    assert position.state is AWAIT_RESET


def test_a_diverging_epoch_that_ends_behind_the_position_still_says_that_logs_part() -> None:
    assert reading().diverged(3000, (0, 9000)).common == FetchPosition(3000, 0)


def test_a_diverging_epoch_without_an_end_leaves_nothing_in_common() -> None:
    assert reading().diverged(3000, (-1, -1)).validation is Validation.NO_COMMON_HISTORY


def test_a_diverging_epoch_for_another_offset_than_the_position_says_nothing() -> None:
    position = reading()

    assert position.diverged(2999, (0, 1)).validation is Validation.DISCARDED
    assert position.state is FETCHING


# --- batches of an epoch that ended before them


def history(**ends: int) -> EpochHistory:
    """A leader of epoch 4 whose older epochs end as told."""
    told = EpochHistory(4)
    for name, offset in ends.items():
        epoch = int(name.removeprefix("of_"))
        told.learn(epoch, end(epoch, offset))
    return told


def batches(*each: tuple[int, int, int]) -> list[BatchFacts]:
    return [BatchFacts(*one) for one in each]


def test_batches_behind_the_end_of_their_epoch_are_dropped_and_the_read_goes_on_there() -> None:
    answer = batches((12, 12, 0), (13, 14, 0), (15, 17, 0), (18, 20, 0))

    assert history(of_0=15).live(12, answer) == LiveBatches(2, resume_at=15)


def test_all_batches_of_the_live_history_are_delivered() -> None:
    answer = batches((15, 17, 2), (18, 46, 2), (47, 50, 4))

    assert history(of_2=47).live(15, answer) == LiveBatches(3)


def test_an_epoch_that_the_leader_does_not_have_has_no_live_batch() -> None:
    told = EpochHistory(4)
    told.learn(1, end(0, 15))

    assert told.live(10, batches((8, 9, 4), (10, 12, 1))) == LiveBatches(1, resume_at=10, is_stuck=True)


def test_an_answer_that_begins_dead_would_come_again_and_again() -> None:
    assert history(of_0=15).live(16, batches((16, 17, 0))) == LiveBatches(0, resume_at=16, is_stuck=True)


def test_only_epochs_older_than_the_leaders_are_asked_about_and_each_once() -> None:
    told = history(of_0=15)

    assert told.unknown([2, 0, 4, 1, 2, -1]) == (1, 2)


def test_another_leader_epoch_forgets_the_ends() -> None:
    told = history(of_0=15)
    told.leader_changed(4)
    assert told.unknown([0]) == ()
    told.leader_changed(6)

    assert told.unknown([0, 4]) == (0, 4)


def test_an_answer_with_an_error_tells_no_end() -> None:
    with pytest.raises(ValueError, match="error 74"):
        EpochHistory(4).learn(0, end(-1, -1, 74))


def test_batches_of_an_epoch_that_was_not_asked_about_are_not_judged() -> None:
    with pytest.raises(KeyError):
        EpochHistory(4).live(0, batches((0, 1, 0)))


@given(st.integers(0, 60), st.lists(st.integers(1, 5), max_size=20), st.integers(0, 20))
def test_no_batch_behind_its_epochs_end_is_delivered_and_no_offset_is_skipped(
    epoch_end: int, sizes: list[int], start: int
) -> None:
    answer, base = [], start
    for size in sizes:
        answer.append(BatchFacts(base, base + size - 1, 0))
        base += size
    live = history(of_0=epoch_end).live(start, answer)

    assert all(one.last_offset < epoch_end for one in answer[: live.count])
    if live.resume_at is not None:
        delivered_to = answer[live.count - 1].last_offset + 1 if live.count else start
        assert live.resume_at >= delivered_to


class PositionsAndElections(RuleBasedStateMachine):
    """Whatever brokers answer and whenever: a reader fetches only where nothing is left to be validated."""

    def __init__(self) -> None:
        super().__init__()
        self.position = ReadPosition("t", 0, FetchPosition(0), LeaderAndEpoch(1, 0))
        self.epoch = 0
        self.questions: list[Question] = []

    @rule(broker=st.integers(1, 3), newer=st.integers(0, 2))
    def a_leader_is_told(self, broker: int, newer: int) -> None:
        self.epoch += newer
        self.position.leader_changed(LeaderAndEpoch(broker, self.epoch))

    @rule(count=st.integers(1, 10))
    def records_are_delivered(self, count: int) -> None:
        if self.position.state is FETCHING:
            self.position.advance(self.position.position.offset + count, self.epoch)

    @rule()
    def the_leader_is_asked(self) -> None:
        if (question := self.position.question()) is not None:
            self.questions.append(question)

    @rule(which=st.integers(0, 5), offset=st.integers(-1, 100), error=st.sampled_from([0, 0, 6, 75]))
    def an_answer_arrives(self, which: int, offset: int, error: int) -> None:
        if which >= len(self.questions):
            return
        question = self.questions.pop(which)
        is_current = question == self.position.question()
        before = self.position.state
        verdict = self.position.answered(question, end(0, offset, error))
        assert (verdict.validation is Validation.DISCARDED) == (not is_current)
        if verdict.validation is Validation.DISCARDED:
            assert self.position.state is before
        if verdict.validation is Validation.TRUNCATED:
            assert verdict.common is not None
            assert verdict.common.offset < self.position.position.offset

    @rule(offset=st.integers(0, 100))
    def a_lost_position_is_reset(self, offset: int) -> None:
        if self.position.state is AWAIT_RESET:
            self.position.seek(FetchPosition(offset), is_valid=True)

    @invariant()
    def a_question_is_open_exactly_while_validation_is_awaited(self) -> None:
        assert (self.position.question() is not None) == (self.position.state is AWAIT_VALIDATION)


TestPositionsAndElections = PositionsAndElections.TestCase
