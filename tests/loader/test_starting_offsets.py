"""The offsets at which live consumers go on after a load, in their own words; and what a cluster has against them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from canaries import CANARIES, leaks
from corpus import Case, cases
from fake_cluster import ServedLog, of_corpus, served
from sample import at_edges
from served_cluster import ServedCluster, served_cluster

import segreader
from segreader.errors import (
    AuthenticationError,
    ConnectionFailedError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    OptionError,
    RecreatedTopicError,
    SegreaderError,
    TruncatedLogError,
)
from segreader.isolation import IsolationLevel
from segreader.loader import LoadQuery, Position, ReaderPool, SplitEnumerator, StartingOffsets
from segreader.plan.log import LogEnd
from segreader.spark.option_values import parse_offsets
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid

TOPIC = "orders"


def at(offset: int, partition: int = 0, topic: str = TOPIC, **fields: Any) -> Position:
    return Position(topic=topic, partition=partition, next_offset=offset, topic_id=kafka_uuid(topic), **fields)


def log(records: int, lineage: list[tuple[int, int]] | None = None, log_start: int = 0) -> ServedLog:
    """A log of one record a batch, of these epochs and their first offsets."""
    lineage = lineage or [(0, 0)]
    segment = SegmentBuilder(leader_epoch=lineage[0][0])
    for offset in range(records):
        for epoch, start in lineage[1:]:
            if offset == start:
                segment.new_leader(epoch)
        segment.batch([b"%d" % offset])
    return ServedLog(served(segment.to_bytes()), lineage, log_start)


@pytest.fixture
def cluster() -> Iterator[ServedCluster]:
    """Partition 0 has 100 records in epochs 0, 2 and 5; 1 has 10 in one epoch; 2 begins at 40."""
    logs = {0: log(100, [(0, 0), (2, 30), (5, 80)]), 1: log(10), 2: log(60, log_start=40)}
    with served_cluster({TOPIC: logs}) as serving:
        yield serving


def test_spark_takes_the_json_as_its_starting_offsets() -> None:
    starting = StartingOffsets.of([at(7, 10), at(1 << 40, 2), at(0, 0, 'we"ird.tö')])
    text = starting.to_spark_json()
    assert text == '{"orders":{"2":1099511627776,"10":7},"we\\"ird.t\\u00f6":{"0":0}}'
    assert parse_offsets(text, "startingOffsets", keyword="earliest") == {
        TOPIC: {2: 1 << 40, 10: 7},
        'we"ird.tö': {0: 0},
    }


def test_flink_takes_a_mapping_of_topic_and_partition_to_offset_also_as_json() -> None:
    starting = StartingOffsets.of([at(7, 10), at(5, 2)])
    assert starting.to_flink() == {(TOPIC, 2): 5, (TOPIC, 10): 7}
    rows = json.loads(starting.to_flink_json())
    assert rows == [{"topic": TOPIC, "partition": 2, "offset": 5}, {"topic": TOPIC, "partition": 10, "offset": 7}]


def test_the_value_survives_pickle_and_says_with_which_isolation_a_consumer_must_go_on() -> None:
    starting = StartingOffsets.of([at(5, isolation_level=IsolationLevel.READ_UNCOMMITTED)])
    assert pickle.loads(pickle.dumps(starting)) == starting
    assert starting.isolation_level is IsolationLevel.READ_UNCOMMITTED


def test_of_several_splits_of_a_partition_the_last_position_counts_once_those_before_are_finished() -> None:
    splits = [at(20, stop=20), at(10, stop=10), at(25, stop=30), at(3, 1)]
    assert StartingOffsets.of(splits).offsets == {(TOPIC, 0): 25, (TOPIC, 1): 3}


@pytest.mark.parametrize(
    ("positions", "said"),
    [
        ([], "no position"),
        ([at(5, stop=10), at(20, stop=20)], "records of orders-0 would be missed"),
        ([at(5), at(20)], "records of orders-0 would be missed"),
        ([at(5), replace(at(6, 1), topic_id=kafka_uuid("other"))], "different ids of topic orders"),
        ([at(5), at(6, 1, isolation_level=IsolationLevel.READ_UNCOMMITTED)], "different isolation levels"),
    ],
)
def test_positions_that_are_not_the_end_of_one_load_are_refused(positions: list[Position], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        StartingOffsets.of(positions)


def test_the_same_position_given_twice_counts_once() -> None:
    assert StartingOffsets.of([at(5), at(5)]).offsets == {(TOPIC, 0): 5}


def test_offsets_that_the_cluster_has_are_let_through_with_the_partitions_that_it_has_besides(
    cluster: ServedCluster,
) -> None:
    starting = StartingOffsets.of([at(85, leader_epoch=5), at(10, 1, leader_epoch=0)])
    checked = starting.check(cluster.bootstrap)
    assert checked.positions == starting.positions
    assert checked.added == (at(40, 2),)
    assert checked.offsets == {(TOPIC, 0): 85, (TOPIC, 1): 10, (TOPIC, 2): 40}
    assert parse_offsets(checked.to_spark_json(), "startingOffsets", keyword="earliest") == {
        TOPIC: {0: 85, 1: 10, 2: 40}
    }
    assert checked.check(cluster.bootstrap) == checked


def test_a_check_costs_the_same_requests_for_one_partition_and_for_all(cluster: ServedCluster) -> None:
    asked = []
    for positions in ([at(85, leader_epoch=5)], [at(85, leader_epoch=5), at(1, 1, leader_epoch=0), at(50, 2)]):
        before = {api: cluster.asked(api) for api in ("Metadata", "ListOffsets", "OffsetForLeaderEpoch")}
        StartingOffsets.of(positions).check(cluster.bootstrap)
        asked.append([cluster.asked(api) - count for api, count in before.items()])
    assert asked[0] == asked[1]
    assert asked[0][1:] == [2, 1]  # ListOffsets takes one timestamp a partition


@pytest.mark.parametrize("position", [at(0), at(30, leader_epoch=0), at(80, leader_epoch=2), at(100, leader_epoch=5)])
def test_every_offset_that_can_be_read_next_passes(cluster: ServedCluster, position: Position) -> None:
    assert StartingOffsets.of([position]).check(cluster.bootstrap).positions == (position,)


def test_offsets_below_the_earliest_one_are_refused_with_the_earliest_one_and_what_to_do(
    cluster: ServedCluster,
) -> None:
    with pytest.raises(OffsetOutOfRangeError) as caught:
        StartingOffsets.of([at(85), at(39, 2)]).check(cluster.bootstrap)
    assert caught.value.offset == 40
    assert "Load on from the store" in str(caught.value)
    assert cluster.bootstrap in str(caught.value)


def test_offsets_above_the_end_are_records_that_the_cluster_lost(cluster: ServedCluster) -> None:
    with pytest.raises(TruncatedLogError) as caught:
        StartingOffsets.of([at(11, 1)]).check(cluster.bootstrap)
    assert caught.value.offset == 10


@pytest.mark.parametrize(("position", "common"), [(at(31, leader_epoch=0), 30), (at(90, leader_epoch=4), 80)])
def test_records_that_another_leader_wrote_over_are_told_though_the_log_grew_past_them(
    cluster: ServedCluster, position: Position, common: int
) -> None:
    with pytest.raises(TruncatedLogError) as caught:
        StartingOffsets.of([position]).check(cluster.bootstrap)
    assert caught.value.offset == common


def test_an_epoch_that_the_cluster_does_not_know_is_another_history(cluster: ServedCluster) -> None:
    with pytest.raises(TruncatedLogError) as caught:
        StartingOffsets.of([at(90, leader_epoch=9)]).check(cluster.bootstrap)
    assert caught.value.offset is None


def test_a_topic_that_was_created_again_is_refused_by_both_ids(cluster: ServedCluster) -> None:
    old = replace(at(5), topic_id=kafka_uuid("another"))
    with pytest.raises(RecreatedTopicError) as caught:
        StartingOffsets.of([old]).check(cluster.bootstrap)
    assert kafka_uuid("another") in str(caught.value)
    assert kafka_uuid(TOPIC) in str(caught.value)


def test_a_load_that_knows_no_topic_id_is_checked_by_offsets_alone(cluster: ServedCluster) -> None:
    assert StartingOffsets.of([replace(at(5), topic_id=None)]).check(cluster.bootstrap).positions


def test_a_topic_or_partition_that_is_not_there_is_told_by_name(cluster: ServedCluster) -> None:
    with pytest.raises(ObjectNotFoundError, match="no topic none"):
        StartingOffsets.of([at(5, 0, "none")]).check(cluster.bootstrap)
    with pytest.raises(ObjectNotFoundError, match="no partition 3, 9"):
        StartingOffsets.of([at(5, 3), at(5), at(5, 9)]).check(cluster.bootstrap)


def test_errors_of_a_check_survive_pickle_and_show_no_secret(cluster: ServedCluster) -> None:
    cluster.require("reader", CANARIES["secret"])
    good = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "reader"}
    told: list[SegreaderError] = []
    for position, password in ((at(39, 2), CANARIES["secret"]), (at(1), CANARIES["secret"] + "x")):
        with pytest.raises(SegreaderError) as caught:
            StartingOffsets.of([position]).check(cluster.bootstrap, good | {"sasl.password": password})
        told.append(pickle.loads(pickle.dumps(caught.value)))
        assert not leaks(str(caught.value) + repr(caught.value.__dict__))
    assert isinstance(told[0], OffsetOutOfRangeError)
    assert isinstance(told[1], AuthenticationError)


def test_a_cluster_that_does_not_answer_is_an_error_of_the_connection() -> None:
    with pytest.raises(ConnectionFailedError):
        StartingOffsets.of([at(1)]).check("127.0.0.1:9", {"retry.backoff.ms": 1})


def test_a_bounded_scan_and_the_live_rest_from_its_end_are_the_whole_topic_once(tmp_path: Path) -> None:
    from served_cluster import tiered_log

    first = SegmentBuilder(0).batch([b"a"] * 10).batch([b"x"] * 5, producer_id=7, transactional=True)
    second = first.roll().marker(7, abort=True).batch([b"b"] * 10)
    segments = [first, second, second.roll().batch([b"c"] * 10)]
    logs = tiered_log(tmp_path, TOPIC, segments, uploaded=2, local_from=2)
    with served_cluster({TOPIC: {0: logs}}) as cluster:
        load = segreader.scan(tmp_path, topic=TOPIC)
        loaded = [record.offset for record in load.records()]
        (end,) = load.plan().ends
        position = at(end.offset or 0, leader_epoch=0)
        ((_, offset),) = StartingOffsets.of([position]).check(cluster.bootstrap).offsets.items()
        live = segreader.scan(f"kafka://{cluster.bootstrap}", topic=TOPIC, offsets=(offset, None))
        with live:
            rest = [record.offset for record in live.records()]
    assert loaded + rest == [*range(10), *range(16, 36)]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize(
    "case",
    at_edges(one for one in cases("tv2", "cluster", remote=True) if one.local and one.topic != "diverged-hanging"),
    ids=str,
)
def test_a_load_of_the_remote_tier_is_gone_on_with_at_the_broker_that_wrote_it(case: Case, isolation: str) -> None:
    """However leaders changed, and whatever was left out: the epochs of positions are those of the broker's log."""
    numbers = {int(path.name.rpartition("-")[2]) for path in case.local}
    query = LoadQuery(
        location=str(case.root / "remote"),
        topic=case.topic,
        topic_id=case.topic_id,
        isolation_level=IsolationLevel(isolation),
        split_bytes=2000,
        columns=("offset",),
    )
    with SplitEnumerator(query) as enumerator, ReaderPool(query) as pool:
        splits = enumerator.discover()
        ends = StartingOffsets.of(enumerator.end_positions())
        read = []
        for split in splits:
            with pool.open(split) as reader:
                while reader.read() is not None:
                    pass
                read.append(reader.position)
    assert StartingOffsets.of(read).offsets.items() <= ends.offsets.items()
    with served_cluster({case.topic: {number: of_corpus(case, number) for number in sorted(numbers)}}) as serving:
        serving.cluster.topic_ids[case.topic] = case.topic_id
        for starting in (ends, StartingOffsets.of(read)):
            checked = starting.check(serving.bootstrap)
            assert checked.positions == starting.positions


def test_a_consumer_does_not_go_on_where_the_cluster_lost_what_decided_the_load(cluster: ServedCluster) -> None:
    decided = at(40, leader_epoch=2, log_end=LogEnd(90, 5))
    assert StartingOffsets.of([decided]).check(cluster.bootstrap).offsets[TOPIC, 0] == 40
    for lost in (LogEnd(90, 2), LogEnd(101), LogEnd(101, 5)):
        with pytest.raises(TruncatedLogError, match="markers that decided what was loaded of orders-0"):
            StartingOffsets.of([replace(decided, log_end=lost)]).check(cluster.bootstrap)
    uncommitted = replace(decided, isolation_level=IsolationLevel.READ_UNCOMMITTED, log_end=LogEnd(101, 5))
    assert StartingOffsets.of([uncommitted]).check(cluster.bootstrap).offsets[TOPIC, 0] == 40
