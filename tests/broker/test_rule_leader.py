"""Finding a new leader: every row of KIP-951's table, what Metadata may change, and that epochs never go back."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from segreader.broker.messages import (
    ClusterMetadata,
    LeaderAndEpoch,
    Node,
    PartitionMetadata,
    TopicMetadata,
)
from segreader.broker.rules.leader import (
    Hint,
    KnownCluster,
    LeaderDecision,
    LeaderFinder,
    LeaderStep,
    MetadataChange,
    TopicReplaced,
)
from segreader.errors import BrokerError

NODES = (Node(1, "b1", 9092), Node(2, "b2", 9092))
OLD, NEW = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


def metadata(
    leader: int = 1,
    epoch: int = 5,
    *,
    error: int = 0,
    topic_id: str | None = OLD,
    nodes: tuple[Node, ...] = NODES,
    topic_error: int = 0,
) -> ClusterMetadata:
    partition = PartitionMetadata(0, error, LeaderAndEpoch(leader, epoch), (1, 2), (1, 2))
    return ClusterMetadata(nodes, (TopicMetadata(topic_error, "t", topic_id, partitions=(partition,)),), "c")


def known(leader: int = 1, epoch: int = 5) -> KnownCluster:
    cluster = KnownCluster()
    cluster.merge(metadata(leader, epoch))
    return cluster


def finder(cluster: KnownCluster) -> LeaderFinder:
    return LeaderFinder(cluster, "t", 0, jitter=lambda: 0.5, topic_id=OLD)


# --- the table of 4.2


@pytest.mark.parametrize("hint", [None, LeaderAndEpoch(-1, 6), LeaderAndEpoch(2, -1)])
def test_without_a_whole_hint_metadata_is_refreshed_after_the_usual_wait(hint: LeaderAndEpoch | None) -> None:
    cluster = known()

    assert finder(cluster).refused(6, by=1, sent_epoch=5, hint=hint) == LeaderDecision(
        LeaderStep.REFRESH_METADATA, 100, Hint.ABSENT
    )
    assert cluster.leader("t", 0) == LeaderAndEpoch(1, 5)


@pytest.mark.parametrize("epoch", [4, 5])
def test_a_hint_that_is_not_newer_than_what_is_known_is_ignored(epoch: int) -> None:
    cluster = known()

    assert finder(cluster).refused(74, by=1, sent_epoch=5, hint=LeaderAndEpoch(2, epoch), nodes=NODES) == (
        LeaderDecision(LeaderStep.REFRESH_METADATA, 100, Hint.STALE)
    )
    assert cluster.leader("t", 0) == LeaderAndEpoch(1, 5)


def test_a_hint_to_a_broker_whose_address_nobody_told_is_ignored() -> None:
    cluster = known()

    assert finder(cluster).refused(6, by=1, sent_epoch=5, hint=LeaderAndEpoch(9, 6)) == LeaderDecision(
        LeaderStep.REFRESH_METADATA, 100, Hint.UNKNOWN_NODE
    )
    assert cluster.leader("t", 0) == LeaderAndEpoch(1, 5)


def test_a_hint_for_a_partition_that_is_not_known_any_more_stops_its_reader() -> None:
    cluster = known()
    reader = finder(cluster)
    cluster.merge(metadata(topic_error=3))

    assert reader.refused(6, by=1, sent_epoch=5, hint=LeaderAndEpoch(2, 6), nodes=NODES) == LeaderDecision(
        LeaderStep.STOP, 0, Hint.UNKNOWN_PARTITION
    )
    assert cluster.leader("t", 0) == LeaderAndEpoch()


def test_a_hint_for_a_topic_that_was_made_again_is_not_taken() -> None:
    cluster = known()
    reader = finder(cluster)
    cluster.merge(metadata(1, 0, topic_id=NEW))

    assert reader.refused(6, by=1, sent_epoch=5, hint=LeaderAndEpoch(2, 6), nodes=NODES).hint is Hint.UNKNOWN_PARTITION
    assert cluster.leader("t", 0) == LeaderAndEpoch(1, 0)


@pytest.mark.parametrize("error", [6, 74])
def test_a_newer_leader_is_taken_over_and_asked_at_once(error: int) -> None:
    cluster = known()

    assert finder(cluster).refused(error, by=1, sent_epoch=5, hint=LeaderAndEpoch(2, 6)) == LeaderDecision(
        LeaderStep.ASK_NEW_LEADER, 0, Hint.TAKEN
    )
    assert cluster.leader("t", 0) == LeaderAndEpoch(2, 6)


def test_a_leader_that_was_unknown_before_is_reached_at_the_address_in_the_answer() -> None:
    cluster = known()
    finder(cluster).refused(6, by=1, sent_epoch=5, hint=LeaderAndEpoch(9, 6), nodes=(Node(9, "b9", 9999, "z"),))

    assert cluster.nodes[9] == Node(9, "b9", 9999, "z")


def test_the_address_in_the_answer_replaces_the_one_that_was_known() -> None:
    cluster = known()
    finder(cluster).refused(6, by=1, sent_epoch=5, hint=LeaderAndEpoch(2, 6), nodes=(Node(2, "moved", 9092),))

    assert cluster.nodes[2] == Node(2, "moved", 9092)


def test_addresses_of_brokers_that_are_not_the_leader_are_left_alone() -> None:
    cluster = known()
    foreign = (Node(1, "elsewhere", 1), Node(2, "b2", 9092))
    finder(cluster).refused(6, by=1, sent_epoch=5, hint=LeaderAndEpoch(2, 6), nodes=foreign)

    assert cluster.nodes[1] == NODES[0]


def test_a_hinted_leader_that_has_not_heard_of_its_election_is_asked_again_after_10_ms_doubling() -> None:
    reader = finder(known())
    reader.refused(74, by=1, sent_epoch=5, hint=LeaderAndEpoch(2, 6))

    waits = [reader.refused(75, by=2, sent_epoch=6) for _ in range(9)]
    assert {each.step for each in waits} == {LeaderStep.ASK_AGAIN_THERE}
    assert [each.wait_ms for each in waits] == [10, 20, 40, 80, 160, 320, 640, 1000, 1000]


def test_75_from_a_broker_that_no_hint_named_is_repeated_there_after_the_usual_wait_without_metadata() -> None:
    reader = finder(known())

    assert reader.refused(75, by=1, sent_epoch=5) == LeaderDecision(LeaderStep.ASK_AGAIN_THERE, 100)


def test_75_from_another_broker_than_the_hinted_one_waits_as_usual() -> None:
    reader = finder(known())
    reader.refused(74, by=1, sent_epoch=5, hint=LeaderAndEpoch(2, 6))

    assert reader.refused(75, by=1, sent_epoch=6).wait_ms == 100


def test_a_second_refusal_of_the_same_epoch_waits_as_usual_even_with_a_newer_hint() -> None:
    cluster = known()
    reader = finder(cluster)
    reader.refused(74, by=1, sent_epoch=5, hint=LeaderAndEpoch(2, 6))

    assert reader.refused(74, by=1, sent_epoch=5, hint=LeaderAndEpoch(1, 7)) == LeaderDecision(
        LeaderStep.ASK_NEW_LEADER, 100, Hint.TAKEN
    )


def test_a_second_refusal_with_the_same_hint_refreshes_metadata() -> None:
    reader = finder(known())
    reader.refused(74, by=1, sent_epoch=5, hint=LeaderAndEpoch(2, 6))

    assert reader.refused(74, by=1, sent_epoch=5, hint=LeaderAndEpoch(2, 6)) == LeaderDecision(
        LeaderStep.REFRESH_METADATA, 100, Hint.STALE
    )


def test_a_leader_that_moves_on_twice_is_followed_twice_at_once() -> None:
    cluster = known()
    reader = finder(cluster)
    first = reader.refused(74, by=1, sent_epoch=5, hint=LeaderAndEpoch(2, 6))
    second = reader.refused(74, by=2, sent_epoch=6, hint=LeaderAndEpoch(1, 7))

    assert [first.wait_ms, second.wait_ms] == [0, 0]
    assert cluster.leader("t", 0) == LeaderAndEpoch(1, 7)


def test_brokers_that_name_ever_newer_leaders_do_not_make_the_reader_spin() -> None:
    reader = finder(known())
    waits = [
        reader.refused(74, by=1, sent_epoch=epoch, hint=LeaderAndEpoch(2, epoch + 1)).wait_ms for epoch in range(5, 20)
    ]

    assert waits[:5] == [0] * 5
    assert min(waits[5:]) >= 100


def test_after_an_answer_without_an_error_the_next_refusal_is_the_first_one_again() -> None:
    reader = finder(known())
    reader.refused(74, by=1, sent_epoch=5, hint=LeaderAndEpoch(2, 6))
    reader.refused(6, by=2, sent_epoch=6)
    reader.answered()

    assert reader.refused(6, by=2, sent_epoch=6).wait_ms == 100
    assert reader.refused(74, by=2, sent_epoch=5, hint=LeaderAndEpoch(1, 7)).wait_ms == 0


def test_a_former_leader_may_refuse_with_74_where_a_broker_without_a_replica_refuses_with_6() -> None:
    for error in (6, 74):
        reader = finder(known())
        assert reader.refused(error, by=1, sent_epoch=5, hint=LeaderAndEpoch(2, 6)).step is LeaderStep.ASK_NEW_LEADER


def test_list_offsets_never_has_a_hint_and_so_refreshes() -> None:
    assert finder(known()).refused(74, by=1, sent_epoch=4).step is LeaderStep.REFRESH_METADATA


def test_an_error_that_says_nothing_of_leaders_is_not_decided_here() -> None:
    with pytest.raises(ValueError, match="error 78"):
        finder(known()).refused(78, by=1, sent_epoch=5)


# --- Metadata


def test_metadata_with_a_lower_epoch_of_the_same_topic_is_older_news() -> None:
    cluster = known(2, 6)

    assert cluster.merge(metadata(1, 5)) == MetadataChange()
    assert cluster.leader("t", 0) == LeaderAndEpoch(2, 6)


@pytest.mark.parametrize("epoch", [6, 7])
def test_metadata_with_the_same_or_a_higher_epoch_is_taken(epoch: int) -> None:
    cluster = known(2, 6)

    assert cluster.merge(metadata(1, epoch)).moved == {("t", 0)}
    assert cluster.leader("t", 0) == LeaderAndEpoch(1, epoch)


def test_another_topic_id_is_taken_whatever_its_epoch_and_ends_reads_of_the_old_one() -> None:
    cluster = known(2, 6)
    change = cluster.merge(metadata(1, 0, topic_id=NEW))

    assert change.replaced == (TopicReplaced("t", OLD, NEW),)
    assert cluster.leader("t", 0) == LeaderAndEpoch(1, 0)
    cluster.require_same_topic("t", NEW)
    with pytest.raises(BrokerError, match="deleted and made again") as caught:
        cluster.require_same_topic("t", OLD)
    assert caught.value.code == 103


def test_metadata_without_topic_ids_ends_no_read() -> None:
    cluster = KnownCluster()
    cluster.merge(metadata(topic_id=None))

    cluster.require_same_topic("t", OLD)
    cluster.require_same_topic("t", None)


@pytest.mark.parametrize("told", [metadata(1, -1), metadata(1, 7, error=5), metadata(-1, 3, error=72)])
def test_an_entry_without_an_epoch_or_with_an_error_makes_the_epoch_unknown(told: ClusterMetadata) -> None:
    cluster = known(2, 6)
    cluster.merge(told)

    assert cluster.leader("t", 0).leader_epoch == -1


def test_an_unknown_epoch_is_replaced_by_any() -> None:
    cluster = known(2, 6)
    cluster.merge(metadata(1, -1))
    cluster.merge(metadata(1, 5))

    assert cluster.leader("t", 0) == LeaderAndEpoch(1, 5)


def test_a_topic_with_an_error_is_no_longer_known_and_the_error_is_told() -> None:
    cluster = known()
    change = cluster.merge(metadata(topic_error=29))

    assert change == MetadataChange(frozenset({("t", 0)}), (), {"t": 29})
    assert cluster.partitions("t") == ()


def test_a_topic_that_comes_back_with_another_id_after_an_error_still_ends_reads_of_the_old_one() -> None:
    cluster = known()
    cluster.merge(metadata(topic_error=3))
    cluster.merge(metadata(1, 0, topic_id=NEW))

    with pytest.raises(BrokerError, match="made again"):
        cluster.require_same_topic("t", OLD)


def test_topics_of_which_an_answer_is_silent_stay_as_they_are() -> None:
    cluster = known()

    assert cluster.merge(ClusterMetadata(NODES, ())) == MetadataChange()
    assert cluster.leader("t", 0) == LeaderAndEpoch(1, 5)


def test_brokers_that_metadata_does_not_list_are_gone_but_for_known_leaders() -> None:
    cluster = known()
    finder(cluster).refused(6, by=1, sent_epoch=5, hint=LeaderAndEpoch(9, 6), nodes=(Node(9, "b9", 9999),))
    cluster.merge(metadata(1, 5, nodes=(Node(1, "b1", 9092),)))

    assert sorted(cluster.nodes) == [1, 9]
    assert cluster.leader("t", 0) == LeaderAndEpoch(9, 6)


def test_an_answer_that_lists_no_broker_takes_none_away() -> None:
    cluster = known()
    cluster.merge(ClusterMetadata((), ()))

    assert sorted(cluster.nodes) == [1, 2]


def test_129_forgets_every_broker_and_keeps_what_reads_have_pinned() -> None:
    cluster = known()

    assert cluster.merge(ClusterMetadata((), (), error=129)) == MetadataChange(rebootstrap=True)
    assert (dict(cluster.nodes), cluster.leader("t", 0)) == ({}, LeaderAndEpoch())
    assert cluster.topic_id("t") == OLD


def test_partitions_come_in_the_order_of_their_numbers() -> None:
    cluster = KnownCluster()
    told = tuple(PartitionMetadata(number, leader=LeaderAndEpoch(1, 0)) for number in (2, 0, 1))
    cluster.merge(ClusterMetadata(NODES, (TopicMetadata(0, "t", partitions=told),)))

    assert [each.partition for each in cluster.partitions("t")] == [0, 1, 2]


EPOCHS = st.integers(-1, 12)


class EpochsOfOneTopic(RuleBasedStateMachine):
    """Metadata, Fetch and Produce answers in any order, old ones too: the epoch only rises, or becomes unknown."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = known(1, 0)
        self.reader = finder(self.cluster)
        self.epoch = 0
        self.topic_id = OLD

    @rule(leader=st.integers(-1, 3), epoch=EPOCHS, error=st.sampled_from([0, 0, 0, 5]))
    def metadata_says(self, leader: int, epoch: int, error: int) -> None:
        self.cluster.merge(metadata(leader, epoch, error=error))
        self.rises(may_be_unknown=error != 0 or epoch == -1)

    @rule(leader=st.integers(-1, 9), epoch=EPOCHS, error=st.sampled_from([6, 74]), sent=EPOCHS, tells=st.booleans())
    def an_answer_names_a_leader(self, leader: int, epoch: int, error: int, sent: int, tells: bool) -> None:
        nodes = (Node(leader, "b", 1),) if tells else ()
        decision = self.reader.refused(error, by=1, sent_epoch=sent, hint=LeaderAndEpoch(leader, epoch), nodes=nodes)
        if decision.step is LeaderStep.ASK_NEW_LEADER:
            assert self.cluster.leader("t", 0) == LeaderAndEpoch(leader, epoch)
        self.rises(may_be_unknown=False)

    @invariant()
    def a_leader_taken_from_a_hint_has_an_address(self) -> None:
        leader = self.cluster.leader("t", 0).leader_id
        assert leader < 4 or leader in self.cluster.nodes

    def rises(self, *, may_be_unknown: bool) -> None:
        now = self.cluster.leader("t", 0).leader_epoch
        assert now >= self.epoch or (may_be_unknown and now == -1)
        self.epoch = now


TestEpochsOfOneTopic = EpochsOfOneTopic.TestCase


def test_what_was_given_out_does_not_change_under_its_reader() -> None:
    cluster = known()
    nodes, partitions = cluster.nodes, cluster.partitions("t")
    finder(cluster).refused(6, by=1, sent_epoch=5, hint=LeaderAndEpoch(9, 6), nodes=(Node(9, "b9", 9999),))
    cluster.merge(metadata(9, 7))

    assert dict(nodes) == {node.node_id: node for node in NODES}
    assert [each.leader for each in partitions] == [LeaderAndEpoch(1, 5)]
