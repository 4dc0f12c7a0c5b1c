"""Which broker is asked: every row of the table of KIP-392's client rules, and peers that send a reader in circles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from segreader.broker.messages import FetchedPartition, LeaderAndEpoch
from segreader.broker.rules.preferred_replica import (
    FORGETTING_ERRORS,
    FetchSource,
    KnownEnds,
    PreferredReplica,
    ReplicaStep,
)

LEADER = LeaderAndEpoch(1, 5)
ALIVE = (1, 2, 3)
LEASE = 300_000


def answer(error: int = 0, *, preferred: int = -1, records: bytes = b"", ends: int = 100) -> FetchedPartition:
    return FetchedPartition("t", None, 0, error, ends, ends, 0, memoryview(records), preferred_read_replica=preferred)


def sent_to_2(rack: str = "b", now_ms: int = 0) -> PreferredReplica:
    """A reader whom the leader sent to broker 2."""
    replica = PreferredReplica(rack)
    assert replica.answered(answer(preferred=2), by=1, now_ms=now_ms) is ReplicaStep.FETCH_AT_ONCE
    return replica


def asked(replica: PreferredReplica, now_ms: int = 0) -> int:
    return replica.choose(LEADER, now_ms, alive=ALIVE).node_id


def test_without_a_preferred_replica_the_leader_is_asked_with_the_readers_rack() -> None:
    assert PreferredReplica("b").choose(LEADER, 0, alive=ALIVE) == FetchSource(1, "b")


def test_the_replica_that_the_leader_names_is_asked_next() -> None:
    assert sent_to_2().choose(LEADER, 0, alive=ALIVE) == FetchSource(2, "b", is_preferred=True)


def test_a_lease_ends_when_it_is_older_than_metadata_may_be() -> None:
    replica = sent_to_2()

    assert asked(replica, LEASE) == 2
    assert asked(replica, LEASE + 1) == 1


def test_the_same_name_again_does_not_extend_the_lease() -> None:
    replica = sent_to_2()
    assert replica.answered(answer(preferred=2), by=1, now_ms=200_000) is ReplicaStep.FETCH_AT_ONCE

    assert asked(replica, LEASE) == 2
    assert asked(replica, LEASE + 1) == 1


def test_another_name_begins_a_lease_of_its_own() -> None:
    replica = sent_to_2()
    replica.answered(answer(preferred=3), by=1, now_ms=200_000)

    assert asked(replica, 200_000 + LEASE) == 3
    assert asked(replica, 200_001 + LEASE) == 1


def test_a_replica_that_metadata_does_not_list_is_forgotten_and_metadata_asked_for() -> None:
    replica = sent_to_2()

    assert replica.choose(LEADER, 0, alive=(1, 3)) == FetchSource(1, "b", refresh_metadata=True)
    assert replica.choose(LEADER, 0, alive=ALIVE) == FetchSource(1, "b")


def test_an_offline_replica_is_forgotten_and_metadata_asked_for() -> None:
    assert sent_to_2().choose(LEADER, 0, alive=ALIVE, offline=(2,)) == FetchSource(1, "b", refresh_metadata=True)


def test_an_answer_without_a_name_leaves_the_choice_alone() -> None:
    replica = sent_to_2()

    assert replica.answered(answer(records=b"r"), by=2, now_ms=1) is ReplicaStep.TAKE
    replica.delivered()
    assert asked(replica, 1) == 2


def test_out_of_range_from_the_preferred_replica_is_repeated_at_the_leader_who_must_answer_itself() -> None:
    replica = sent_to_2()

    assert replica.answered(answer(1), by=2, now_ms=0) is ReplicaStep.FETCH_AT_ONCE
    assert replica.choose(LEADER, 0, alive=ALIVE) == FetchSource(1, "")


def test_out_of_range_from_the_leader_is_not_a_matter_of_replicas() -> None:
    assert PreferredReplica("b").answered(answer(1), by=1, now_ms=0) is ReplicaStep.TAKE


def test_two_brokers_that_send_a_reader_back_and_forth_end_at_the_leader() -> None:
    replica = sent_to_2()
    replica.answered(answer(1), by=2, now_ms=0)

    assert replica.answered(answer(preferred=2), by=1, now_ms=1) is ReplicaStep.FETCH_AFTER_BACKOFF
    assert asked(replica, 1) == 1


def test_a_broker_whose_connection_failed_is_forgotten_for_as_long_as_the_leader_may_go_on_naming_it() -> None:
    replica = sent_to_2()

    assert replica.connection_failed(2, 0)
    assert replica.choose(LEADER, 29_999, alive=ALIVE) == FetchSource(1, "")
    assert replica.choose(LEADER, 30_000, alive=ALIVE) == FetchSource(1, "b")


def test_another_brokers_connection_changes_nothing() -> None:
    replica = sent_to_2()

    assert not replica.connection_failed(3, 0)
    assert asked(replica) == 2


def test_another_leader_or_epoch_forgets_the_replica_and_what_it_did() -> None:
    replica = sent_to_2()
    replica.connection_failed(2, 0)
    replica.leader_changed()

    assert replica.choose(LEADER, 0, alive=ALIVE) == FetchSource(1, "b")


@pytest.mark.parametrize("error", [6, 9, 56, 74, 78, 100, 103, 3])
def test_errors_that_forget_the_replica_also_refresh_metadata(error: int) -> None:
    replica = sent_to_2()

    assert replica.answered(answer(error), by=2, now_ms=0) is ReplicaStep.REFRESH_METADATA
    assert asked(replica) == 1


@pytest.mark.parametrize("error", [-1, 2, 7, 29, 75, 76, 5000])
def test_other_errors_leave_the_choice_alone(error: int) -> None:
    replica = sent_to_2()

    assert replica.answered(answer(error), by=2, now_ms=0) is ReplicaStep.TAKE
    assert asked(replica) == 2


def test_no_other_errors_than_those_of_the_table_forget_the_replica() -> None:
    assert {int(code) for code in FORGETTING_ERRORS} == {6, 9, 56, 74, 78, 100, 103, 3}


def test_after_two_seconds_without_progress_the_leader_is_asked_itself() -> None:
    replica = sent_to_2()
    for now in (0, 500, 1_000, 1_500, 1_999):
        assert asked(replica, now) == 2
        replica.answered(answer(), by=2, now_ms=now)

    assert replica.choose(LEADER, 2_000, alive=ALIVE) == FetchSource(1, "")


def test_a_replica_that_never_hears_of_the_new_epoch_is_left_after_two_seconds() -> None:
    replica = sent_to_2()
    replica.answered(answer(75), by=2, now_ms=0)

    assert asked(replica, 1_999) == 2
    assert asked(replica, 2_000) == 1


def test_progress_begins_the_two_seconds_anew() -> None:
    replica = sent_to_2()
    replica.answered(answer(), by=2, now_ms=0)
    replica.answered(answer(records=b"r"), by=2, now_ms=1_900)
    replica.delivered()
    replica.answered(answer(), by=2, now_ms=2_400)

    assert asked(replica, 4_399) == 2
    assert asked(replica, 4_400) == 1


def test_a_caller_that_pauses_does_not_make_the_replica_look_stuck() -> None:
    replica = sent_to_2()
    replica.answered(answer(records=b"r"), by=2, now_ms=0)
    replica.delivered()

    assert asked(replica, 60_000) == 2


def test_a_leader_that_has_nothing_either_may_name_the_replica_again() -> None:
    replica = sent_to_2()
    replica.answered(answer(), by=2, now_ms=0)
    assert replica.choose(LEADER, 2_000, alive=ALIVE) == FetchSource(1, "")
    replica.answered(answer(), by=1, now_ms=2_500)

    assert replica.choose(LEADER, 2_500, alive=ALIVE) == FetchSource(1, "b")


def test_a_leader_that_has_records_goes_on_giving_them_for_two_seconds() -> None:
    replica = sent_to_2()
    replica.answered(answer(), by=2, now_ms=0)
    asked(replica, 2_000)
    replica.answered(answer(records=b"r"), by=1, now_ms=2_001)

    assert replica.choose(LEADER, 3_999, alive=ALIVE) == FetchSource(1, "")
    assert replica.choose(LEADER, 4_000, alive=ALIVE) == FetchSource(1, "b")


def test_an_empty_leader_does_not_shorten_the_time_of_a_replica_that_cannot_be_reached() -> None:
    replica = sent_to_2()
    replica.connection_failed(2, 0)
    replica.answered(answer(), by=1, now_ms=1)

    assert replica.choose(LEADER, 2, alive=ALIVE) == FetchSource(1, "")


def test_a_leader_that_names_itself_does_not_make_the_reader_spin() -> None:
    replica = PreferredReplica("b")
    steps = [replica.answered(answer(preferred=1), by=1, now_ms=0) for _ in range(5)]

    assert steps[3:] == [ReplicaStep.FETCH_AFTER_BACKOFF] * 2
    assert replica.preferred == -1


def test_brokers_that_name_each_other_do_not_make_the_reader_spin() -> None:
    replica = PreferredReplica("b")
    steps = []
    for _ in range(3):
        steps.append(replica.answered(answer(preferred=3), by=2, now_ms=0))
        steps.append(replica.answered(answer(preferred=2), by=3, now_ms=0))

    assert steps[3:] == [ReplicaStep.FETCH_AFTER_BACKOFF] * 3


def test_a_replica_that_nobody_lists_does_not_make_the_reader_spin() -> None:
    replica = PreferredReplica("b")
    steps = []
    for _ in range(5):
        steps.append(replica.answered(answer(preferred=99), by=1, now_ms=0))
        assert asked(replica) == 1

    assert ReplicaStep.FETCH_AFTER_BACKOFF in steps


def test_without_a_known_leader_no_broker_is_chosen() -> None:
    assert PreferredReplica("b").choose(LeaderAndEpoch(), 0, alive=ALIVE).node_id == -1


def test_a_follower_never_lowers_a_known_end() -> None:
    ends = KnownEnds()
    ends.told(answer(ends=100), by_leader=True, leader_epoch=5)
    ends.told(answer(ends=90), by_leader=False, leader_epoch=5)

    assert (ends.high_watermark, ends.last_stable_offset) == (100, 100)


def test_a_follower_may_raise_a_known_end() -> None:
    ends = KnownEnds()
    ends.told(answer(ends=100), by_leader=True, leader_epoch=5)
    ends.told(answer(ends=110), by_leader=False, leader_epoch=5)

    assert ends.high_watermark == 110


def test_a_leader_of_a_newer_epoch_may_lower_a_known_end_and_one_of_the_same_epoch_may_not() -> None:
    ends = KnownEnds()
    ends.told(answer(ends=100), by_leader=True, leader_epoch=5)
    ends.told(answer(ends=90), by_leader=True, leader_epoch=5)
    assert ends.high_watermark == 100
    ends.told(answer(ends=80), by_leader=True, leader_epoch=6)

    assert ends.high_watermark == 80


def test_an_answer_with_an_error_has_no_ends() -> None:
    ends = KnownEnds()
    ends.told(answer(ends=100), by_leader=True, leader_epoch=5)
    ends.told(answer(1, ends=-1), by_leader=True, leader_epoch=6)

    assert ends.high_watermark == 100


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans(), st.integers(-1, 5))))
def test_within_one_epoch_known_ends_never_go_back(told: list[tuple[int, bool, int]]) -> None:
    ends = KnownEnds()
    newest = -1
    for end, by_leader, epoch in told:
        before = ends.high_watermark
        ends.told(answer(ends=end), by_leader=by_leader, leader_epoch=epoch)
        assert ends.high_watermark >= before or (by_leader and epoch > newest)
        newest = max(newest, epoch) if by_leader else newest


class ChoosingBrokers(RuleBasedStateMachine):
    """Whatever happens, a replica is only asked while its lease lasts and Metadata lists it, and nobody spins."""

    def __init__(self) -> None:
        super().__init__()
        self.replica = PreferredReplica("b")
        self.now = 0
        self.at_once_in_a_row = 0
        self.named_at = 0
        self.alive = set(ALIVE)

    @rule(ms=st.integers(0, 400_000))
    def time_goes_by(self, ms: int) -> None:
        self.now += ms

    @rule(node=st.sampled_from([2, 3]), up=st.booleans())
    def a_broker_comes_or_goes(self, node: int, up: bool) -> None:
        self.alive = self.alive | {node} if up else self.alive - {node}

    @rule(error=st.sampled_from([0, 0, 0, 0, 1, 6, 75, 78]), preferred=st.sampled_from([-1, 1, 2, 3, 99]))
    def a_fetch_is_answered(self, error: int, preferred: int) -> None:
        source = self.replica.choose(LEADER, self.now, alive=self.alive)
        assert source.node_id == 1 or source.node_id in self.alive
        assert source.is_preferred == (source.node_id == self.replica.preferred)
        before = self.replica.preferred
        step = self.replica.answered(answer(error, preferred=preferred), by=source.node_id, now_ms=self.now)
        if self.replica.preferred not in (before, -1):
            self.named_at = self.now
        self.at_once_in_a_row = self.at_once_in_a_row + 1 if step is ReplicaStep.FETCH_AT_ONCE else 0

    @rule(node=st.sampled_from(ALIVE))
    def a_connection_fails(self, node: int) -> None:
        self.replica.connection_failed(node, self.now)

    @invariant()
    def a_lease_is_never_longer_than_it_may_be(self) -> None:
        if (source := self.replica.choose(LEADER, self.now, alive=self.alive)).is_preferred:
            assert self.now <= self.named_at + LEASE
            assert source.node_id in self.alive

    @invariant()
    def nobody_spins(self) -> None:
        assert self.at_once_in_a_row <= 6


TestChoosingBrokers = ChoosingBrokers.TestCase
