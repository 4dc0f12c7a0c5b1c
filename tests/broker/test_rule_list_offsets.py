"""Answers of ListOffsets: which are repeated where, what is raised, and that the end never goes back (KIP-207)."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from segreader.broker.messages import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    ListedOffset,
    OffsetWanted,
)
from segreader.broker.rules.list_offsets import (
    LatestTold,
    ListedStep,
    Look,
    LookStep,
    OffsetLookup,
    step_of,
)
from segreader.errors import AuthorizationError, BrokerError
from segreader.isolation import IsolationLevel

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
END = OffsetWanted("t", 0, LATEST)


def lookup(*wanted: OffsetWanted, latest: LatestTold | None = None) -> OffsetLookup:
    return OffsetLookup(wanted, COMMITTED, latest=latest or LatestTold(), jitter=lambda: 0.5)


def found(offset: int, epoch: int = 5, *, topic: str = "t", error: int = 0) -> ListedOffset:
    return ListedOffset(topic, 0, error, offset, leader_epoch=epoch)


# --- which errors do what


@pytest.mark.parametrize("error", [78, 75, 7])
def test_a_broker_that_does_not_know_yet_is_asked_again_without_metadata(error: int) -> None:
    one = lookup(END)
    one.answered(END, found(-1, error=error), version=11)

    assert one.next_step() == LookStep(Look.ASK, 100)
    assert one.requests() == ((END,),)


def test_below_version_5_error_5_stands_for_78_and_from_there_on_it_refreshes() -> None:
    assert step_of(5, 4) is ListedStep.ASK_AGAIN_THERE
    assert step_of(5, 5) is ListedStep.REFRESH_METADATA


@pytest.mark.parametrize("error", [6, 9, 56, 5, 74, 3, 100, -1, 4711])
def test_other_errors_refresh_metadata_first_also_those_that_nobody_knows(error: int) -> None:
    one = lookup(END)
    one.answered(END, found(-1, error=error), version=11)

    assert one.next_step() == LookStep(Look.REFRESH_THEN_ASK, 100)


def test_one_partition_that_needs_metadata_makes_the_whole_round_refresh() -> None:
    other = OffsetWanted("u", 0, LATEST)
    one = lookup(END, other)
    one.answered(END, found(-1, error=78), version=11)
    one.answered(other, found(-1, error=6, topic="u"), version=11)

    assert one.next_step().look is Look.REFRESH_THEN_ASK


def test_a_refresh_is_asked_for_once() -> None:
    one = lookup(END)
    one.answered(END, found(-1, error=6), version=11)
    one.next_step()
    one.answered(END, found(-1, error=78), version=11)

    assert one.next_step() == LookStep(Look.ASK, 200)


def test_waits_double_until_the_offset_is_there() -> None:
    one = lookup(END)
    waits = []
    for _ in range(5):
        one.answered(END, found(-1, error=78), version=11)
        waits.append(one.next_step().wait_ms)
    one.answered(END, found(7), version=11)

    assert waits == [100, 200, 400, 800, 1000]
    assert one.next_step() == LookStep(Look.DONE)
    assert one.results() == (found(7),)


def test_a_failed_connection_refreshes_metadata() -> None:
    one = lookup(END)
    one.not_answered(END)

    assert one.next_step().look is Look.REFRESH_THEN_ASK


def test_a_server_error_is_repeated_five_times_and_then_raised() -> None:
    one = lookup(END)
    for _ in range(5):
        one.answered(END, found(-1, error=-1), version=11)

    with pytest.raises(BrokerError, match="t-0") as caught:
        one.answered(END, found(-1, error=-1), version=11)
    assert caught.value.code == -1


def test_topics_that_may_not_be_described_are_raised_together_when_all_answers_are_there() -> None:
    topics = [OffsetWanted(name, 0, LATEST) for name in ("b", "t", "a")]
    one = lookup(*topics)
    one.answered(topics[0], found(-1, error=29, topic="b"), version=11)
    one.answered(topics[1], found(3), version=11)
    one.answered(topics[2], found(-1, error=29, topic="a"), version=11)
    assert one.next_step().look is Look.DONE

    with pytest.raises(AuthorizationError, match="DESCRIBE topic a, b") as caught:
        one.results()
    assert caught.value.code == 29


def test_43_means_that_there_is_no_offset() -> None:
    one = lookup(END)
    one.answered(END, found(-1, error=43), version=11)

    assert one.next_step().look is Look.DONE
    assert one.results() == (ListedOffset("t", 0, 0),)


def test_35_is_an_answer_for_brokers_that_do_not_know_a_timestamp() -> None:
    tiered = OffsetWanted("t", 0, LATEST_TIERED)
    one = lookup(tiered)
    one.answered(tiered, found(-1, error=35), version=8)

    assert one.next_step().look is Look.DONE
    assert one.results()[0].error == 35


def test_42_is_raised_for_it_is_our_own_mistake() -> None:
    with pytest.raises(BrokerError) as caught:
        lookup(END).answered(END, found(-1, error=42), version=11)
    assert caught.value.code == 42


def test_a_deadline_raises_the_last_error_of_what_is_open() -> None:
    one = lookup(OffsetWanted("t", 0, EARLIEST), END)
    one.answered(OffsetWanted("t", 0, EARLIEST), found(0), version=11)
    one.answered(END, found(-1, error=78), version=11)

    assert one.timed_out().code == 78
    assert "t-0" in str(one.timed_out())


def test_a_deadline_before_any_answer_has_no_code() -> None:
    assert lookup(END).timed_out().code is None


# --- one timestamp of a partition per request


def test_no_request_has_a_partition_twice() -> None:
    marks = [OffsetWanted("t", part, mark) for part in (0, 1) for mark in (EARLIEST, EARLIEST_LOCAL, LATEST)]
    requests = lookup(*marks).requests()

    assert requests == tuple(
        (OffsetWanted("t", 0, mark), OffsetWanted("t", 1, mark)) for mark in (EARLIEST, EARLIEST_LOCAL, LATEST)
    )


def test_the_same_wish_twice_is_asked_once_and_answered_twice() -> None:
    one = lookup(END, END)
    assert one.requests() == ((END,),)
    one.answered(END, found(7), version=11)

    assert one.results() == (found(7), found(7))


def test_what_was_answered_is_not_asked_again() -> None:
    start = OffsetWanted("t", 0, EARLIEST)
    one = lookup(start, END)
    one.answered(start, found(0), version=11)
    one.answered(END, found(-1, error=78), version=11)

    assert one.requests() == ((END,),)


def test_results_come_in_the_order_of_the_wishes() -> None:
    start = OffsetWanted("t", 0, EARLIEST)
    one = lookup(END, start)
    one.answered(start, found(1), version=11)
    one.answered(END, found(9), version=11)

    assert [each.offset for each in one.results()] == [9, 1]


# --- never going backwards


def test_a_lower_end_of_the_same_epoch_is_not_told() -> None:
    latest = LatestTold()
    latest.tell(found(100, 5), COMMITTED)

    assert latest.tell(found(90, 5), COMMITTED) == found(100, 5)


def test_a_lower_end_of_an_older_or_unknown_epoch_is_not_told() -> None:
    latest = LatestTold()
    latest.tell(found(100, 5), COMMITTED)

    assert latest.tell(found(90, 4), COMMITTED).offset == 100
    assert latest.tell(found(90, -1), COMMITTED).offset == 100


def test_a_lower_end_of_a_newer_epoch_is_told_for_the_election_may_have_been_unclean() -> None:
    latest = LatestTold()
    latest.tell(found(100, 5), COMMITTED)

    assert latest.tell(found(90, 6), COMMITTED) == found(90, 6)


def test_a_higher_end_of_an_older_epoch_does_not_make_the_epoch_older() -> None:
    latest = LatestTold()
    latest.tell(found(100, 6), COMMITTED)

    assert latest.tell(found(110, 5), COMMITTED) == found(110, 6)


def test_the_two_ends_of_the_isolation_levels_are_told_apart() -> None:
    latest = LatestTold()
    latest.tell(found(100, 5), UNCOMMITTED)

    assert latest.tell(found(90, 5), COMMITTED).offset == 90


def test_a_topic_that_was_made_again_begins_anew() -> None:
    latest = LatestTold()
    latest.tell(found(100, 5), COMMITTED)
    latest.tell(found(100, 5, topic="u"), COMMITTED)
    latest.forget("t")

    assert latest.tell(found(1, 0), COMMITTED).offset == 1
    assert latest.tell(found(1, 0, topic="u"), COMMITTED).offset == 100


def test_an_error_is_told_as_it_is_and_remembered_as_nothing() -> None:
    latest = LatestTold()
    latest.tell(found(100, 5), COMMITTED)

    assert latest.tell(found(-1, error=78), COMMITTED).error == 78
    assert latest.tell(found(99, 5), COMMITTED).offset == 100


def test_all_look_ups_of_a_client_share_what_was_told() -> None:
    latest = LatestTold()
    first, second = lookup(END, latest=latest), lookup(END, latest=latest)
    first.answered(END, found(100, 5), version=11)
    second.answered(END, found(90, 5), version=11)

    assert second.results() == (found(100, 5),)


def test_only_the_end_is_kept_from_going_back() -> None:
    start = OffsetWanted("t", 0, EARLIEST)
    latest = LatestTold()
    first, second = lookup(start, latest=latest), lookup(start, latest=latest)
    first.answered(start, found(10), version=11)
    second.answered(start, found(5), version=11)

    assert second.results()[0].offset == 5


def test_the_last_tiered_offset_may_lie_below_the_log_start() -> None:
    start, tiered = OffsetWanted("t", 0, EARLIEST), OffsetWanted("t", 0, LATEST_TIERED)
    one = lookup(start, tiered)
    one.answered(start, found(50), version=11)
    one.answered(tiered, found(20, -1), version=11)

    assert [each.offset for each in one.results()] == [50, 20]


def test_no_tiered_offset_is_an_answer_for_a_new_leader_may_not_have_learnt_it() -> None:
    tiered = OffsetWanted("t", 0, LATEST_TIERED)
    one = lookup(tiered)
    one.answered(tiered, found(-1, -1), version=11)

    assert one.next_step().look is Look.DONE


class EndsThatAreTold(RuleBasedStateMachine):
    """Within a leader epoch nobody is ever told less than somebody was before."""

    def __init__(self) -> None:
        super().__init__()
        self.latest = LatestTold()
        self.told = (-1, -1)

    @rule(offset=st.integers(0, 50), epoch=st.integers(-1, 5), error=st.sampled_from([0, 0, 0, 78]))
    def a_broker_says(self, offset: int, epoch: int, error: int) -> None:
        told = self.latest.tell(found(-1 if error else offset, epoch, error=error), COMMITTED)
        if error:
            return
        assert told.leader_epoch >= self.told[0]
        assert told.offset >= self.told[1] or epoch > self.told[0]
        self.told = (told.leader_epoch, told.offset)


TestEndsThatAreTold = EndsThatAreTold.TestCase
