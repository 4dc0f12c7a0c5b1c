"""What a client asks, whom, and how often: a cluster of brokers that say what they are told to."""

from __future__ import annotations

import contextlib
import pickle
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from fake_broker import (
    CLOSE,
    SILENCE,
    FakeBroker,
    FakeKafka,
    Handler,
    Heard,
    Raw,
    Reply,
    fetched,
    new_topic_id,
    one_broker,
)
from hand_clock import HandClock

from segreader.broker.client import BrokerClient
from segreader.broker.connection_pool import parse_bootstrap
from segreader.broker.messages import EARLIEST, LATEST, EpochEnd, EpochWanted, LeaderAndEpoch, OffsetWanted
from segreader.broker.partition_fetcher import PartitionFetcher
from segreader.broker.settings import ClientSettings
from segreader.errors import (
    AuthorizationError,
    BrokerError,
    ConnectionFailedError,
    OptionError,
    ProtocolError,
    UnsupportedVersionError,
)
from segreader.isolation import IsolationLevel
from segreader.storage.retry import Clock

# Sockets wait in real time: a machine that stops for a second or two makes no answer late.
SETTINGS = ClientSettings(request_timeout_ms=4000, connect_timeout_ms=4000, operation_timeout_ms=4000)


@dataclass
class Three:
    """Three brokers, topic ``t`` with three partitions, each led by another one, in epoch 5."""

    kafka: FakeKafka
    clock: HandClock = field(default_factory=HandClock)

    def client(self, **changes: Any) -> BrokerClient:
        return BrokerClient(self.kafka.bootstrap, SETTINGS, clock=self.clock, jitter=lambda: 0.5, **changes)


@pytest.fixture
def three() -> Iterator[Three]:
    brokers = [FakeBroker(each) for each in (1, 2, 3)]
    leaders = {("t", number): LeaderAndEpoch(number + 1, 5) for number in range(3)}
    made = Three(
        FakeKafka(brokers, {"t": new_topic_id(1), "u": new_topic_id(2)}, leaders | {("u", 0): LeaderAndEpoch(1, 0)})
    )
    for broker in brokers:
        broker.handlers["ListOffsets"] = offsets({EARLIEST: 10, LATEST: 90})
    yield made
    for broker in brokers:
        broker.close()
        assert not broker.errors


def offsets(by_time: dict[int, int], *, errors: dict[int, int] | None = None) -> Callable[[Heard], Reply]:
    """ListOffsets by timestamp; ``errors`` by partition."""

    def answer(heard: Heard) -> Reply:
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": each.partition_index,
                            "error_code": (errors or {}).get(each.partition_index, 0),
                            "offset": by_time.get(each.timestamp, -1),
                            "timestamp": -1,
                            "leader_epoch": each.current_leader_epoch,
                        }
                        for each in topic.partitions
                    ],
                }
                for topic in heard.message.topics
            ]
        }

    return answer


def ends(error: int = 0, epoch: int = 4, end: int = 43) -> Callable[[Heard], Reply]:
    def answer(heard: Heard) -> Reply:
        return {
            "topics": [
                {
                    "topic": topic.topic,
                    "partitions": [
                        {"error_code": error, "partition": each.partition, "leader_epoch": epoch, "end_offset": end}
                        for each in topic.partitions
                    ],
                }
                for topic in heard.message.topics
            ]
        }

    return answer


def test_several_timestamps_of_a_partition_go_as_requests_that_follow_each_other(three: Three) -> None:
    wanted = [OffsetWanted("t", number, time) for number in range(3) for time in (LATEST, EARLIEST)]
    with three.client() as client:
        found = client.list_offsets(wanted)

    assert [(each.partition, each.offset) for each in found] == [(0, 90), (0, 10), (1, 90), (1, 10), (2, 90), (2, 10)]
    assert client.metrics.requests == {"ApiVersions": 3, "Metadata": 1, "ListOffsets": 6}
    for broker in three.kafka.brokers:
        asked = [each.message for each in broker.requests if each.api == "ListOffsets"]
        assert [len(each.topics[0].partitions) for each in asked] == [1, 1]
        assert all(each.topics[0].partitions[0].current_leader_epoch == 5 for each in asked)


def test_metadata_is_asked_for_once_and_again_when_it_is_old(three: Three) -> None:
    with three.client() as client:
        for _ in range(3):
            client.leader("t", 0)
        assert client.metrics.requests["Metadata"] == 1
        three.clock.at_s += 301
        client.leader("t", 0)
        assert client.metrics.requests["Metadata"] == 2


def test_a_leader_that_moved_is_found_after_74(three: Three) -> None:
    with three.client() as client:
        client.leader("t", 0)
        three.kafka.leaders["t", 0] = LeaderAndEpoch(2, 6)
        three.kafka.broker(1).handlers["ListOffsets"] = offsets({}, errors={0: 74})
        (found,) = client.list_offsets([OffsetWanted("t", 0, LATEST)])

    assert (found.offset, found.leader_epoch) == (90, 6)
    assert client.metrics.requests["Metadata"] == 2
    assert three.clock.waits == [0.1]


def test_78_is_asked_again_at_the_same_broker_without_metadata(three: Three) -> None:
    three.kafka.broker(1).say("ListOffsets", *[offsets({}, errors={0: 78})] * 3)
    with three.client() as client:
        (found,) = client.list_offsets([OffsetWanted("t", 0, LATEST)])

    assert found.offset == 90
    assert client.metrics.requests["Metadata"] == 1
    assert three.clock.waits == [0.1, 0.2, 0.4]


def test_an_error_that_stays_is_told_by_its_name_when_the_time_is_over(three: Three) -> None:
    three.kafka.broker(1).handlers["ListOffsets"] = offsets({}, errors={0: 78})
    with three.client() as client, pytest.raises(BrokerError, match=r"t-0: OFFSET_NOT_AVAILABLE \(78\)$") as caught:
        client.list_offsets([OffsetWanted("t", 0, LATEST)])
    assert caught.value.code == 78
    assert sum(three.clock.waits) <= 4


@pytest.mark.parametrize(
    ("api", "code"),
    [("ListOffsets", 6), ("OffsetForLeaderEpoch", 6), ("FindCoordinator", 15), ("OffsetFetch", 16), ("Metadata", 5)],
)
def test_a_broker_that_fell_silent_is_told_with_the_error_that_it_answered_before(
    three: Three, api: str, code: int
) -> None:
    for broker in three.kafka.brokers:
        broker.handlers["FindCoordinator"] = coordinator(three)
    settings = replace(SETTINGS, request_timeout_ms=300, operation_timeout_ms=1200)
    with BrokerClient(three.kafka.bootstrap, settings, jitter=lambda: 0.5) as client:
        client.leader("t", 0)
        replies: dict[str, Handler] = {
            "ListOffsets": offsets({}, errors={0: code}),
            "OffsetForLeaderEpoch": ends(error=code),
            "FindCoordinator": coordinator(three, error=code),
            "OffsetFetch": lambda heard: committed(code),
            "Metadata": three.kafka.metadata,
        }
        three.kafka.leaders["t", 9] = LeaderAndEpoch(-1, 5)
        for broker in three.kafka.brokers:
            broker.say(api, once_then_silence(broker, replies[api]))
        asking: dict[str, Callable[[], object]] = {
            "ListOffsets": lambda: client.list_offsets([OffsetWanted("t", 0, LATEST)]),
            "OffsetForLeaderEpoch": lambda: client.epoch_ends([EpochWanted("t", 0, 5)]),
            "FindCoordinator": lambda: client.committed_offsets("g"),
            "OffsetFetch": lambda: client.committed_offsets("g"),
            "Metadata": lambda: (client.metadata(["t"]), client.leader("t", 9)),
        }
        with pytest.raises(BrokerError, match=rf"[A-Z_]+ \({code}\)") as caught:
            asking[api]()
    assert caught.value.code == code


def once_then_silence(broker: FakeBroker, reply: Handler) -> Handler:
    """This reply, and from then on none to any request."""

    def answer(heard: Heard) -> Reply:
        given = reply(heard)
        for api in ("ListOffsets", "OffsetForLeaderEpoch", "FindCoordinator", "OffsetFetch", "Metadata"):
            broker.handlers[api] = lambda heard: SILENCE
            broker.script.pop(api, None)
        return given

    return answer


def until_late(three: Three) -> Callable[[Heard], Reply]:
    """Metadata whose second answer takes 3.95 of the 4 seconds of an operation."""
    heard_before: list[Heard] = []

    def answer(heard: Heard) -> Reply:
        three.clock.at_s += 3.95 if heard_before else 0
        heard_before.append(heard)
        return three.kafka.metadata(heard)

    return answer


@pytest.mark.parametrize("api", ["ListOffsets", "OffsetForLeaderEpoch", "Fetch"])
def test_no_wait_reaches_beyond_the_deadline(three: Three, api: str) -> None:
    started_s, metadata = three.clock.at_s, until_late(three)
    for broker in three.kafka.brokers:
        broker.handlers["Metadata"] = metadata
    three.kafka.broker(1).handlers["ListOffsets"] = offsets({}, errors={0: 6})
    three.kafka.broker(1).handlers["OffsetForLeaderEpoch"] = ends(error=78)
    three.kafka.broker(1).handlers["Fetch"] = lambda heard: fetched(three.kafka.topics["t"], error=78)
    settings = replace(SETTINGS, request_timeout_ms=8000)
    with (
        BrokerClient(three.kafka.bootstrap, settings, clock=three.clock, jitter=lambda: 0.5) as client,
        pytest.raises(BrokerError, match=r"t-0.*: [A-Z_]+ \((6|78)\)$"),
    ):
        if api == "ListOffsets":
            client.list_offsets([OffsetWanted("t", 0, LATEST)])
        elif api == "OffsetForLeaderEpoch":
            client.epoch_ends([EpochWanted("t", 0, 5)])
        else:
            PartitionFetcher(client, "t", 0, 0).poll()

    assert three.clock.waits == []
    assert three.clock.at_s - started_s <= 4


def test_list_offsets_waits_as_the_settings_say(three: Three) -> None:
    three.kafka.broker(1).say("ListOffsets", *[offsets({}, errors={0: 78})] * 3)
    settings = replace(SETTINGS, retry_backoff_ms=10, retry_backoff_max_ms=20)
    with BrokerClient(three.kafka.bootstrap, settings, clock=three.clock, jitter=lambda: 0.5) as client:
        client.list_offsets([OffsetWanted("t", 0, LATEST)])

    assert three.clock.waits == [0.01, 0.02, 0.02]


def test_the_latest_offset_is_never_told_lower_in_the_same_epoch(three: Three) -> None:
    with three.client() as client:
        wanted = [OffsetWanted("t", 0, LATEST)]
        client.list_offsets(wanted)
        three.kafka.broker(1).handlers["ListOffsets"] = offsets({LATEST: 80})
        assert client.list_offsets(wanted)[0].offset == 90


def test_a_missing_right_names_every_topic_and_is_not_tried_again(three: Three) -> None:
    three.kafka.broker(1).handlers["ListOffsets"] = offsets({}, errors={0: 29})
    wanted = [OffsetWanted("t", 0, LATEST), OffsetWanted("u", 0, LATEST)]
    with three.client() as client, pytest.raises(AuthorizationError, match="no right to DESCRIBE topic t, u"):
        client.list_offsets(wanted)
    assert client.metrics.retries == {}


def test_a_topic_that_may_not_be_described_is_told_at_once(three: Three) -> None:
    three.kafka.errors["t"] = 29
    with three.client() as client, pytest.raises(AuthorizationError, match="no right to DESCRIBE topic t"):
        client.leader("t", 0)
    assert three.clock.waits == []


def test_a_topic_that_is_not_there_is_told_after_some_tries(three: Three) -> None:
    with (
        three.client() as client,
        pytest.raises(BrokerError, match="topic nope cannot be read: UNKNOWN_TOPIC") as caught,
    ):
        client.list_offsets([OffsetWanted("nope", 0, LATEST)])
    assert caught.value.code == 3
    assert sum(three.clock.waits) < 2


def test_a_partition_that_is_not_there_is_told_with_those_that_are(three: Three) -> None:
    with three.client() as client, pytest.raises(BrokerError, match="topic t has no partition 7, expected 0 to 2"):
        client.leader("t", 7)


def test_a_topic_without_errors_in_metadata_is_given_as_it_is(three: Three) -> None:
    with three.client() as client:
        told = client.metadata(["t", "nope"])
    assert [(each.name, each.error, len(each.partitions)) for each in told.topics] == [("t", 0, 3), ("nope", 3, 0)]
    assert [each.message.allow_auto_topic_creation for each in three.kafka.brokers[0].requests[1:]] == [False]


def test_the_bootstrap_list_is_asked_in_turn(three: Three) -> None:
    three.kafka.brokers[0].close()
    with three.client() as client:
        assert client.leader("t", 1) == LeaderAndEpoch(2, 5)


def test_a_cluster_where_nobody_listens_is_told_soon(three: Three) -> None:
    for broker in three.kafka.brokers:
        broker.close()
    with three.client() as client, pytest.raises(ConnectionFailedError, match="Connection refused"):
        client.metadata()
    assert three.clock.waits == [0.1, 0.2]


def test_a_connection_that_was_closed_while_idle_is_opened_again(three: Three) -> None:
    with three.client() as client:
        client.metadata()
        three.kafka.brokers[0].hang_up()
        client.metadata()
    assert client.metrics.connections == 2
    assert client.metrics.retries == {}


@pytest.mark.parametrize("ask", ["ListOffsets", "OffsetForLeaderEpoch"])
def test_where_nobody_leads_any_more_the_error_at_the_deadline_has_that_code(three: Three, ask: str) -> None:
    with three.client() as client:
        leader = client.leader("t", 0).leader_id
        three.kafka.broker(leader).close()
        three.kafka.leaders["t", 0] = LeaderAndEpoch(-1, 6)
        with pytest.raises(BrokerError, match=r"t-0: LEADER_NOT_AVAILABLE \(5\)") as caught:
            if ask == "ListOffsets":
                client.list_offsets([OffsetWanted("t", 0, LATEST)])
            else:
                client.epoch_ends([EpochWanted("t", 0, 5)])
    assert caught.value.code == 5


def test_a_broker_that_goes_down_within_a_question_is_asked_again(three: Three) -> None:
    three.kafka.broker(1).say("ListOffsets", CLOSE)
    with three.client() as client:
        assert client.list_offsets([OffsetWanted("t", 0, LATEST)])[0].offset == 90
    assert client.metrics.retries == {"ListOffsets": 1}


def test_a_frozen_leader_costs_the_request_timeout_and_then_the_operation(three: Three) -> None:
    three.kafka.broker(1).handlers["ListOffsets"] = lambda heard: SILENCE
    client = BrokerClient(three.kafka.bootstrap, ClientSettings(request_timeout_ms=150, operation_timeout_ms=500))
    with client, pytest.raises(BrokerError, match="ListOffsets had no answer in time"):
        client.list_offsets([OffsetWanted("t", 0, LATEST)])


def test_where_one_broker_throttles_for_ever_another_is_asked(three: Three) -> None:
    throttling = three.kafka.brokers[0]
    throttling.say("Metadata", lambda heard: {**three.kafka.metadata(heard), "throttle_time_ms": (1 << 31) - 1})
    settings = ClientSettings(request_timeout_ms=30_000, operation_timeout_ms=60_000)
    with BrokerClient(three.kafka.bootstrap, settings) as client:
        client.metadata(["t"])
        client.metadata(["t"])
    assert throttling.asked("Metadata") == ["Metadata"]


def test_a_leader_that_cannot_be_reached_is_told_with_its_address(three: Three) -> None:
    settings = ClientSettings(request_timeout_ms=150, operation_timeout_ms=500)
    with BrokerClient(three.kafka.bootstrap, settings) as client:
        client.leader("t", 0)
        three.kafka.broker(1).close()
        with pytest.raises(BrokerError, match=rf"{three.kafka.broker(1).address}: .*refused.*is this its port") as seen:
            client.list_offsets([OffsetWanted("t", 0, LATEST)])
        assert "ListOffsets had no answer in time" in str(seen.value)
        with pytest.raises(BrokerError, match=three.kafka.broker(1).address):
            client.epoch_ends([EpochWanted("t", 0, 5)])


@pytest.mark.parametrize(
    "lie",
    [
        {"topics": []},
        {"topics": [{"name": "u", "partitions": [{"partition_index": 0, "offset": 1}]}]},
        {"topics": [{"name": "t", "partitions": [{"partition_index": 1, "offset": 1}]}]},
        {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}] * 2}]},
        {"topics": [{"name": "t", "partitions": [{"partition_index": each, "offset": 1} for each in (0, 1)]}]},
    ],
)
def test_an_answer_about_other_partitions_is_refused(three: Three, lie: dict[str, Any]) -> None:
    three.kafka.broker(1).handlers["ListOffsets"] = lambda heard: lie
    with three.client() as client, pytest.raises(ProtocolError, match="not about the partitions that were asked"):
        client.list_offsets([OffsetWanted("t", 0, LATEST)])


def test_isolation_is_sent(three: Three) -> None:
    with three.client() as client:
        for level in IsolationLevel:
            client.list_offsets([OffsetWanted("t", 0, LATEST)], level)
    asked = [each.message.isolation_level for each in three.kafka.broker(1).requests if each.api == "ListOffsets"]
    assert asked == [1, 0]


def test_the_ends_of_several_epochs_come_in_the_order_asked_for(three: Three) -> None:
    three.kafka.broker(1).handlers["OffsetForLeaderEpoch"] = lambda heard: ends(
        epoch=heard.message.topics[0].partitions[0].leader_epoch,
        end=10 * heard.message.topics[0].partitions[0].leader_epoch,
    )(heard)
    with three.client() as client:
        found = client.epoch_ends([EpochWanted("t", 0, epoch) for epoch in (3, 1, 2)])
    assert found == tuple(EpochEnd("t", 0, 0, epoch, 10 * epoch) for epoch in (3, 1, 2))
    assert client.metrics.requests["OffsetForLeaderEpoch"] == 3


@pytest.mark.parametrize(("error", "metadata"), [(6, 2), (74, 2), (9, 2), (75, 1), (78, 2), (-1, 1)])
def test_errors_of_epoch_ends_are_repeated(three: Three, error: int, metadata: int) -> None:
    three.kafka.broker(1).handlers["OffsetForLeaderEpoch"] = ends()
    three.kafka.broker(1).say("OffsetForLeaderEpoch", ends(error))
    with three.client() as client:
        assert client.epoch_ends([EpochWanted("t", 0, 4)]) == (EpochEnd("t", 0, 0, 4, 43),)
    assert client.metrics.requests["Metadata"] == metadata


def test_a_failure_inside_of_the_broker_is_repeated_a_few_times_only(three: Three) -> None:
    three.kafka.broker(1).handlers["OffsetForLeaderEpoch"] = ends(-1)
    client = BrokerClient(three.kafka.bootstrap, ClientSettings(operation_timeout_ms=10**6), clock=three.clock)
    with client, pytest.raises(BrokerError, match="UNKNOWN_SERVER_ERROR"):
        client.epoch_ends([EpochWanted("t", 0, 4)])
    assert client.metrics.requests["OffsetForLeaderEpoch"] <= 6


def coordinator(three: Three, node_id: int = 2, error: int = 0) -> Callable[[Heard], Reply]:
    def answer(heard: Heard) -> Reply:
        node = {"node_id": -1, "host": "", "port": -1}
        if not error:
            node = {"node_id": node_id, "host": "127.0.0.1", "port": three.kafka.broker(node_id).port}
        return {"coordinators": [{"key": "g", "error_code": error, "error_message": "", **node}]}

    return answer


def committed(error: int = 0, partition_error: int = 0, group: str = "g") -> Reply:
    partitions = [
        {"partition_index": 0, "committed_offset": 42, "committed_leader_epoch": 5, "error_code": partition_error}
    ]
    topics = [{"name": "t", "partitions": partitions}]
    return {"groups": [{"group_id": group, "error_code": error, "topics": [] if error else topics}]}


@pytest.fixture
def group(three: Three) -> Three:
    for broker in three.kafka.brokers:
        broker.handlers["FindCoordinator"] = coordinator(three)
    three.kafka.broker(2).handlers["OffsetFetch"] = lambda heard: committed()
    return three


def test_committed_offsets_come_from_the_coordinator(group: Three) -> None:
    with group.client() as client:
        answer = client.committed_offsets("g", {"t": [0]})
    assert [(each.topic, each.partition, each.offset, each.leader_epoch) for each in answer.offsets] == [
        ("t", 0, 42, 5)
    ]
    asked = next(each.message for each in group.kafka.broker(2).requests if each.api == "OffsetFetch")
    assert asked.require_stable
    assert asked.groups[0].member_id is None


@pytest.mark.parametrize(("error", "finds"), [(14, 1), (15, 2), (16, 2)])
def test_a_coordinator_that_moves_or_loads_is_waited_for(group: Three, error: int, finds: int) -> None:
    group.kafka.broker(2).say("OffsetFetch", committed(error))
    with group.client() as client:
        assert client.committed_offsets("g").offsets[0].offset == 42
    assert client.metrics.requests["FindCoordinator"] == finds
    assert len(group.clock.waits) == 1


def test_a_coordinator_that_does_not_exist_yet_is_looked_for_again(group: Three) -> None:
    for broker in group.kafka.brokers:
        broker.say("FindCoordinator", coordinator(group, error=15))
    with group.client() as client:
        assert client.committed_offsets("g").offsets[0].offset == 42


def test_pending_commits_are_waited_for(group: Three) -> None:
    group.kafka.broker(2).say("OffsetFetch", committed(partition_error=88), committed(partition_error=88))
    with group.client() as client:
        assert client.committed_offsets("g").offsets[0].offset == 42
    assert len(group.clock.waits) == 2


def test_a_coordinator_that_hangs_up_is_found_again(group: Three) -> None:
    group.kafka.broker(2).say("OffsetFetch", CLOSE)
    with group.client() as client:
        assert client.committed_offsets("g").offsets[0].offset == 42
    assert client.metrics.requests["FindCoordinator"] == 2


@pytest.mark.parametrize("at", ["FindCoordinator", "OffsetFetch"])
def test_a_group_that_may_not_be_described_is_named(group: Three, at: str) -> None:
    for broker in group.kafka.brokers:
        broker.say(at, coordinator(group, error=30) if at == "FindCoordinator" else committed(30))
    with group.client() as client, pytest.raises(AuthorizationError, match="no right to DESCRIBE group g"):
        client.committed_offsets("g")


def test_offsets_of_another_group_are_refused(group: Three) -> None:
    group.kafka.broker(2).say("OffsetFetch", committed(group="h"))
    with group.client() as client, pytest.raises(BrokerError, match="another group"):
        client.committed_offsets("g")


def test_configurations_that_may_not_be_seen_stay_in_the_answer(three: Three) -> None:
    for broker in three.kafka.brokers:
        broker.handlers["DescribeConfigs"] = lambda heard: {
            "results": [
                {"error_code": 29, "resource_type": 2, "resource_name": "u", "configs": []},
                {
                    "error_code": 0,
                    "resource_type": 2,
                    "resource_name": "t",
                    "configs": [{"name": "remote.storage.enable", "value": "true"}],
                },
            ]
        }
    with three.client() as client:
        t, u = client.topic_configs(["t", "u"], ["remote.storage.enable"])
    assert (t.values["remote.storage.enable"], u.error) == ("true", 29)


REBOOTSTRAP: Reply = {"brokers": [], "topics": [], "error_code": 129}


def test_129_sends_us_back_to_the_bootstrap_list(three: Three) -> None:
    with three.client() as client:
        client.metadata()
        three.kafka.broker(1).say("Metadata", REBOOTSTRAP)
        assert len(client.metadata().nodes) == 3
    assert client.metrics.connections == 2


def test_a_cluster_that_sends_us_back_for_ever_is_left(three: Three) -> None:
    for broker in three.kafka.brokers:
        broker.handlers["Metadata"] = lambda heard: REBOOTSTRAP
    with three.client() as client, pytest.raises(BrokerError, match="back to the bootstrap servers"):
        client.metadata()
    assert client.metrics.requests["Metadata"] == 2


def test_waits_of_other_threads_end_when_the_client_is_closed() -> None:
    with one_broker() as kafka:
        kafka.brokers[0].handlers["ListOffsets"] = offsets({}, errors={0: 78})
        client = BrokerClient(
            kafka.bootstrap,
            ClientSettings(retry_backoff_ms=10**6, retry_backoff_max_ms=10**6, operation_timeout_ms=10**8),
        )
        raised: list[BaseException] = []
        asked = threading.Event()

        def list_offsets(heard: Heard) -> Reply:
            asked.set()
            return offsets({}, errors={0: 78})(heard)

        kafka.brokers[0].handlers["ListOffsets"] = list_offsets

        def ask() -> None:
            try:
                client.list_offsets([OffsetWanted("t", 0, LATEST)])
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        assert asked.wait(10)
        client.close()
        thread.join(10)
        assert [type(each) for each in raised] == [ConnectionFailedError]


def test_several_threads_may_ask_at_once(three: Three) -> None:
    found: list[int] = []
    with BrokerClient(three.kafka.bootstrap, ClientSettings(), clock=Clock()) as client:

        def ask() -> None:
            for _ in range(10):
                found.extend(
                    each.offset for each in client.list_offsets([OffsetWanted("t", n, LATEST) for n in range(3)])
                )

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(20)
    assert found == [90] * 120


def test_a_client_shows_its_hosts_only() -> None:
    assert repr(BrokerClient("a:1, b:2")) == "BrokerClient('a:1,b:2')"


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a", "a:9092"),
        ("a:1,b:2,a:1", "a:1 b:2"),
        ("SASL_SSL://a:1", "a:1"),
        ("[::1]:9", "[::1]:9"),
        ("[::1]", "[::1]:9092"),
        (" a:1 , ", "a:1"),
    ],
)
def test_bootstrap_servers_are_read_as_kafka_does(text: str, addresses: str) -> None:
    assert " ".join(map(str, parse_bootstrap(text))) == addresses


@pytest.mark.parametrize("text", ["", ",", "a:", "a:x", "a:0", "a:65536", "::1", "user@a:1", "a/b:1", "a b:1", ":1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(OptionError):
        parse_bootstrap(text)


def test_addresses_that_a_broker_makes_up_are_not_asked(three: Three) -> None:
    def metadata(heard: Heard) -> Reply:
        answer = dict(three.kafka.metadata(heard))
        answer["brokers"] = [
            {"node_id": 1, "host": "", "port": 0},
            {"node_id": 2, "host": "169.254.169.254", "port": 80},
        ]
        return answer

    for broker in three.kafka.brokers:
        broker.handlers["Metadata"] = metadata
    with three.client() as client, pytest.raises(BrokerError):
        client.list_offsets([OffsetWanted("t", 0, LATEST), OffsetWanted("t", 1, LATEST)])
    assert client.metrics.requests["ListOffsets"] == 0


def test_errors_of_a_client_survive_a_pickle(three: Three) -> None:
    three.kafka.broker(1).offers["ListOffsets"] = (0, 1)
    with three.client() as client, pytest.raises(UnsupportedVersionError) as caught:
        client.list_offsets([OffsetWanted("t", 0, LATEST)])
    assert str(caught.value).startswith(f"{three.kafka.broker(1).address}: the broker does not speak")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("api", ["ApiVersions", "Metadata", "ListOffsets", "OffsetForLeaderEpoch"])
def test_any_bytes_of_a_broker_give_a_value_or_a_typed_error(three: Three, api: str) -> None:
    chance = Random(api)
    for broker in three.kafka.brokers:
        broker.handlers["OffsetForLeaderEpoch"] = ends()

    def damaged(heard: Heard) -> Raw:
        size = chance.choice([0, 1, 3, 8, 60, 300])
        body = bytes(chance.choice([0, 0, 1, 2, 127, 255, chance.randrange(256)]) for _ in range(size))
        return Raw(struct.pack(">ii", 4 + size, heard.correlation_id) + body, stays=True)

    for _ in range(60):
        for broker in three.kafka.brokers:
            broker.script[api] = [damaged]
        with three.client() as client, contextlib.suppress(BrokerError):
            client.list_offsets([OffsetWanted("t", 0, LATEST)])
            client.epoch_ends([EpochWanted("t", 0, 5)])
