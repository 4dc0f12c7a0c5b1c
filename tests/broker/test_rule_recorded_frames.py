"""What real brokers answered, taken through the rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from frames import body, frames

from segreader.broker.api import decode_epoch_ends, decode_fetch, decode_list_offsets, decode_metadata
from segreader.broker.messages import EpochEnd, FetchAnswer, FetchedPartition, LeaderAndEpoch, OffsetWanted
from segreader.broker.rules.fetch_errors import FetchErrorKind, OutOfRange, judge, kind_of
from segreader.broker.rules.leader import Hint, KnownCluster, LeaderDecision, LeaderFinder, LeaderStep
from segreader.broker.rules.list_offsets import LatestTold, Look, OffsetLookup
from segreader.broker.rules.preferred_replica import FetchSource, KnownEnds, PreferredReplica, ReplicaStep
from segreader.broker.rules.truncation import (
    BatchFacts,
    EpochHistory,
    FetchPosition,
    LiveBatches,
    PositionState,
    ReadPosition,
    Validation,
    judge_epoch_end,
    parse_batch_facts,
)
from segreader.errors import BrokerError
from segreader.isolation import IsolationLevel

DECODERS = {
    "Fetch": decode_fetch,
    "ListOffsets": decode_list_offsets,
    "Metadata": decode_metadata,
    "OffsetForLeaderEpoch": decode_epoch_ends,
}
LEADER = LeaderAndEpoch(1, 2)


def recorded(name: str) -> Any:
    """The answer of that name, decoded."""
    (one,) = [each for file in ("cluster", "frames") for each in frames(file) if each.name == name]
    assert one.response is not None
    return DECODERS[one.api](one.version, body(one.response))


def fetched(name: str) -> FetchedPartition:
    (one,) = recorded(name).partitions
    assert isinstance(one, FetchedPartition)
    return one


def epoch_end(name: str) -> EpochEnd:
    (one,) = recorded(name).ends
    assert isinstance(one, EpochEnd)
    return one


def cluster() -> KnownCluster:
    known = KnownCluster()
    known.merge(recorded("metadata-v12-cluster"))
    return known


# --- KIP-392


@pytest.mark.parametrize("version", [12, 17])
def test_the_leader_names_the_replica_of_the_rack_and_the_reader_goes_there_and_stays(version: int) -> None:
    known, replica, ends = cluster(), PreferredReplica("r2"), KnownEnds()
    named = fetched(f"fetch-v{version}-preferred-read-replica")
    assert replica.answered(named, by=1, now_ms=0) is ReplicaStep.FETCH_AT_ONCE
    ends.told(named, by_leader=True, leader_epoch=2)
    there = FetchSource(2, "r2", is_preferred=True)
    assert replica.choose(known.leader("moved", 0), 0, alive=known.nodes) == there

    for name in ("fetch-v17-from-follower", "fetch-v17-remote-from-follower"):
        answer = fetched(name)
        assert replica.answered(answer, by=2, now_ms=10) is ReplicaStep.TAKE
        ends.told(answer, by_leader=False, leader_epoch=2)
        assert answer.records
        replica.delivered()
    assert replica.choose(known.leader("moved", 0), 20, alive=known.nodes) == there
    assert (ends.high_watermark, ends.last_stable_offset) == (110, 110)


def test_a_rack_without_a_replica_is_served_by_the_leader() -> None:
    replica = PreferredReplica("r9")

    assert replica.answered(fetched("fetch-v17-no-such-rack"), by=1, now_ms=0) is ReplicaStep.TAKE
    assert replica.choose(LEADER, 0, alive=(1, 2, 3)).node_id == 1


# --- KIP-951


@pytest.mark.parametrize("version", [16, 17, 18])
def test_a_broker_without_a_replica_names_the_leader_from_version_16_on(version: int) -> None:
    known = cluster()
    before = recorded("metadata-v12-cluster")
    assert known.leader("diverged", 0) == LeaderAndEpoch(1, 4)
    older = KnownCluster()
    older.merge(with_epoch(before, 3))
    answer: FetchAnswer = recorded(f"fetch-v{version}-not-leader")
    (one,) = answer.partitions
    finder = LeaderFinder(older, "diverged", 0, jitter=lambda: 0.5, topic_id=one.topic_id)

    assert kind_of(one.error) is FetchErrorKind.LEADER
    assert finder.refused(one.error, by=3, sent_epoch=3, hint=one.current_leader, nodes=answer.nodes) == LeaderDecision(
        LeaderStep.ASK_NEW_LEADER, 0, Hint.TAKEN
    )
    assert older.leader("diverged", 0) == LeaderAndEpoch(1, 4)


@pytest.mark.parametrize("version", [16, 17, 18])
def test_who_knows_that_leader_already_refreshes(version: int) -> None:
    known = cluster()
    answer: FetchAnswer = recorded(f"fetch-v{version}-not-leader")
    (one,) = answer.partitions
    finder = LeaderFinder(known, "diverged", 0, jitter=lambda: 0.5, topic_id=one.topic_id)

    assert finder.refused(one.error, by=3, sent_epoch=4, hint=one.current_leader, nodes=answer.nodes) == (
        LeaderDecision(LeaderStep.REFRESH_METADATA, 100, Hint.STALE)
    )


@pytest.mark.parametrize("version", [12, 15])
def test_before_version_16_there_is_no_hint(version: int) -> None:
    answer: FetchAnswer = recorded(f"fetch-v{version}-not-leader")
    (one,) = answer.partitions
    decision = LeaderFinder(cluster(), "diverged", 0, jitter=lambda: 0.5).refused(
        one.error, by=3, sent_epoch=4, hint=one.current_leader, nodes=answer.nodes
    )

    assert decision == LeaderDecision(LeaderStep.REFRESH_METADATA, 100, Hint.ABSENT)


def with_epoch(metadata: Any, epoch: int) -> Any:
    """The same metadata as it was when partitions still had leader 2 of that epoch."""
    return replace(
        metadata,
        topics=tuple(
            replace(
                topic,
                partitions=tuple(replace(each, leader=LeaderAndEpoch(2, epoch)) for each in topic.partitions),
            )
            for topic in metadata.topics
        ),
    )


@pytest.mark.parametrize("name", ["listoffsets-v11-from-follower", "offsetforleaderepoch-v4-from-follower"])
def test_a_follower_that_only_the_leader_could_answer_for_gives_no_hint(name: str) -> None:
    answer = recorded(name)
    (one,) = answer.offsets if name.startswith("list") else answer.ends

    decision = LeaderFinder(cluster(), "moved", 0, jitter=lambda: 0.5).refused(one.error, by=2, sent_epoch=2)
    assert decision.step is LeaderStep.REFRESH_METADATA


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("fetch-v17-fenced-leader-epoch", LeaderStep.REFRESH_METADATA),
        ("fetch-v17-unknown-leader-epoch", LeaderStep.ASK_AGAIN_THERE),
    ],
)
def test_an_older_epoch_refreshes_and_a_newer_one_waits(name: str, step: LeaderStep) -> None:
    answer: FetchAnswer = recorded(name)
    (one,) = answer.partitions
    known = cluster()
    decision = LeaderFinder(known, "moved", 0, jitter=lambda: 0.5).refused(
        one.error, by=1, sent_epoch=2, hint=LeaderAndEpoch(-1, -1) if one.error == 74 else None, nodes=answer.nodes
    )

    assert decision.step is step


# --- KIP-320


@pytest.mark.parametrize(
    ("epoch", "offset", "validation", "common"),
    [
        (0, 30, Validation.VALID, None),
        (0, 31, Validation.TRUNCATED, FetchPosition(30, 0)),
        (1, 31, Validation.TRUNCATED, FetchPosition(30, 0)),
        (2, 114, Validation.VALID, None),
        (3, 120, Validation.TRUNCATED, FetchPosition(114, 2)),
        (4, 168, Validation.VALID, None),
        (5, 10, Validation.NO_COMMON_HISTORY, None),
    ],
)
def test_after_two_unclean_elections_positions_are_good_up_to_the_end_of_their_epoch(
    epoch: int, offset: int, validation: Validation, common: FetchPosition | None
) -> None:
    verdict = judge_epoch_end(
        FetchPosition(offset, epoch), epoch_end(f"offsetforleaderepoch-v4-diverged-epoch-{epoch}")
    )

    assert (verdict.validation, verdict.common) == (validation, common)


def test_a_follower_cannot_validate() -> None:
    position = ReadPosition("moved", 0, FetchPosition(50, 1), LEADER)
    question = position.question()
    assert question is not None

    end = epoch_end("offsetforleaderepoch-v4-from-follower")
    assert position.answered(question, end).validation is Validation.REPEAT
    assert position.state is PositionState.AWAIT_VALIDATION


def test_batches_of_a_dead_epoch_in_a_brokers_answer_are_dropped_and_the_live_ones_read_from_there() -> None:
    told = EpochHistory(4)
    answer = facts("fetch-v17-diverged-mid-at-12")
    assert told.unknown(each.leader_epoch for each in answer) == (0,)
    told.learn(0, epoch_end("offsetforleaderepoch-v4-diverged-mid-epoch-0"))
    live = told.live(12, answer)

    assert live.resume_at == 15
    assert all(each.last_offset < 15 for each in answer[: live.count])
    assert all(each.base_offset >= 15 and each.leader_epoch == 0 for each in answer[live.count :])

    again = facts("fetch-v17-diverged-mid-at-15")
    told.learn(2, epoch_end("offsetforleaderepoch-v4-diverged-mid-epoch-2"))
    assert told.live(15, again) == LiveBatches(len(again))
    assert {each.leader_epoch for each in again if each.last_offset >= 15} == {2}


@pytest.mark.parametrize("start", [15, 16])
def test_behind_the_end_of_the_epoch_the_broker_answers_from_the_live_segment(start: int) -> None:
    told = EpochHistory(4)
    for epoch in (0, 2):
        told.learn(epoch, epoch_end(f"offsetforleaderepoch-v4-diverged-mid-epoch-{epoch}"))
    answer = facts(f"fetch-v17-diverged-mid-at-{start}")

    assert told.live(start, answer) == LiveBatches(len(answer))


def facts(name: str) -> list[BatchFacts]:
    records = fetched(name).records
    assert records is not None
    return [each for each, _ in parse_batch_facts(records)]


# --- ranges and offsets


def test_below_the_log_start_and_beyond_the_end_a_broker_says_the_same_and_tells_no_offsets() -> None:
    for name in ("fetch-v17-offset-out-of-range-low", "fetch-v13-offset-out-of-range-high"):
        one = fetched(name)
        assert (one.high_watermark, one.last_stable_offset, one.log_start_offset) == (-1, -1, -1)
        assert kind_of(one.error) is FetchErrorKind.OUT_OF_RANGE


def test_after_delete_records_the_listed_start_tells_that_records_are_gone() -> None:
    (listed,) = recorded("listoffsets-v11-deleted").offsets

    assert judge(FetchPosition(listed.offset - 1), earliest=listed.offset, latest=100).reason is OutOfRange.GONE


@pytest.mark.parametrize(
    ("name", "version", "look", "error"),
    [
        ("listoffsets-v10-not-allowed", 10, Look.DONE, 35),
        ("listoffsets-v6-not-allowed", 6, Look.DONE, 35),
        ("listoffsets-v11-fenced", 11, Look.REFRESH_THEN_ASK, None),
        ("listoffsets-v11-from-follower", 11, Look.REFRESH_THEN_ASK, None),
        ("listoffsets-v11-time-far-future-txn-open", 11, Look.DONE, 0),
        ("listoffsets-v11-latest-committed", 11, Look.DONE, 0),
    ],
)
def test_what_brokers_list_is_taken_repeated_or_left_to_the_caller(
    name: str, version: int, look: Look, error: int | None
) -> None:
    (listed,) = recorded(name).offsets
    wanted = OffsetWanted(listed.topic, listed.partition, -1)
    lookup = OffsetLookup([wanted], IsolationLevel.READ_COMMITTED, latest=LatestTold(), jitter=lambda: 0.5)
    lookup.answered(wanted, listed, version=version)

    assert lookup.next_step().look is look
    if error is not None:
        assert lookup.results() == (listed,)


def test_the_same_partition_twice_in_one_request_is_a_mistake_that_is_raised() -> None:
    listed = recorded("listoffsets-v11-duplicate").offsets[0]
    wanted = OffsetWanted(listed.topic, listed.partition, -1)
    lookup = OffsetLookup([wanted], IsolationLevel.READ_COMMITTED, latest=LatestTold(), jitter=lambda: 0.5)

    with pytest.raises(BrokerError) as caught:
        lookup.answered(wanted, listed, version=11)
    assert caught.value.code == 42


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fetch-v17-unknown-topic-id", FetchErrorKind.REFRESH),
        ("fetch-v12-unknown-topic", FetchErrorKind.REFRESH),
    ],
)
def test_a_topic_that_is_not_there_is_looked_up_anew(name: str, kind: FetchErrorKind) -> None:
    one = fetched(name)

    assert kind_of(one.error) is kind
    assert PreferredReplica("r2").answered(one, by=1, now_ms=0) is ReplicaStep.REFRESH_METADATA
