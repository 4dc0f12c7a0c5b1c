"""A Fetch with the flag: a location where the broker lets this client read now, and else what a plain broker says."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_cluster import served
from gateway_upstream import HOST, relayed, run
from located_broker import (
    CANARY,
    TOPIC,
    TOPIC_ID,
    Leader,
    Located,
    Log,
    asked,
    flagged,
    located_over,
    locations,
    segment_of,
)

from segreader.broker.location import check_location
from segreader.broker.messages import EpochEnd, EpochWanted, LeaderAndEpoch, Node
from segreader.errors import AccessDeniedError, StorageError
from segreader.gateway.metrics import Refused
from segreader.gateway.remote.catalogue import PlacedIndex
from segreader.isolation import IsolationLevel
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered

OURS = Node(2, HOST, 10_002, "r")


@pytest.mark.parametrize("list_offsets", [11, 9])
@pytest.mark.parametrize("version", [12, 13, 15, 16, 17, 18])
def test_a_remote_offset_gets_its_segment_and_the_broker_reads_nothing(
    tmp_path: Path, version: int, list_offsets: int
) -> None:
    made, leader = located_over(tmp_path), Leader(list_offsets=list_offsets)

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            answer = await asked(around, flagged((0, 142), version=version))
            (one,) = answer.partitions
            location = one.location
            assert location is not None
            assert answer.extension_version == 1
            assert (one.topic if version == 12 else one.topic_id) == (TOPIC if version == 12 else TOPIC_ID)
            assert (one.high_watermark, one.log_start_offset, one.aborted) == (300, 0, None)
            assert (location.first_offset, location.last_offset) == (100, 199)
            assert location.size == len(made.builders[1].to_bytes())
            assert location.leader_epochs == ((5, 100),)
            index = made.builders[1].index()
            assert location.start in {struct.unpack_from(">i", index, at + 4)[0] for at in range(0, len(index), 8)}
            assert location.signed_url is not None
            assert location.signed_url.startswith("https://bucket.example/remote/orders-0-")
            assert check_location(location, one, 142, ("ApacheKafkaV1",), 1_000) is None
            assert leader.remote_reads == 0
            assert leader.flags_seen == 0

    run(test)


@pytest.mark.parametrize("interval", [1, 300])
def test_a_location_ends_behind_the_last_offset_that_is_wanted(tmp_path: Path, interval: int) -> None:
    made, leader = located_over(tmp_path, index_interval_bytes=interval), Leader()
    builder = made.builders[1]
    data = builder.to_bytes()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            for first, stop in [(100, 101), (142, 143), (142, 150), (149, 151), (145, 200), (190, 199), (100, 1 << 40)]:
                location = locations(await asked(around, flagged((0, first), stop=stop)))[0]
                assert location is not None
                assert location.start is not None
                assert location.stop is not None
                batches = served(data[location.start : location.stop])  # whole ones
                assert batches[0].base_offset <= first
                assert batches[-1].stop >= min(stop, 200)
                assert interval > 1 or location.stop == len(data) or batches[-1].base_offset <= stop - 1 + 10
                index = location.indexes[0]
                assert (index.start, index.stop) == (0, len(builder.index()))
            assert leader.flags_seen == 0

    run(test)


def test_without_an_end_a_location_ends_by_the_bytes_that_are_asked_for(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()
    data = made.builders[1].to_bytes()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            for most in (2, 100, 500, len(data), 1 << 30):
                location = locations(await asked(around, flagged((0, 142), max_bytes=most)))[0]
                assert location is not None
                assert location.start is not None
                assert location.stop is not None
                batches = served(data[location.start : location.stop])
                assert batches[-1].stop > 142
                assert location.stop - location.start <= most + 2 * len(batches[-1].data) or most < 500
                assert location.stop - location.start >= most or location.stop == len(data)
            location = locations(await asked(around, flagged((0, 142), max_bytes=1)))[0]
            assert location is not None
            assert location.stop == len(data)  # who asks for no bytes wants to know the place

    run(test)


def test_the_end_of_a_request_reaches_no_broker(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path, partitions=2), Leader({0: Log(), 1: Log()})

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            answer = await asked(around, flagged((0, 42), (1, 250), stop=290))
            assert {number: one is not None for number, one in locations(answer).items()} == {0: True, 1: False}
            assert not any(b"\xc2\x61" in request for request in around.upstream.requests)
        async with relayed(leader) as around:  # a broker, and a proxy that knows nothing of it
            answer = await asked(around, flagged((0, 42), stop=290))
            assert answer.extension_version is None
            assert bytes(answer.partitions[0].records or b"") == b"R" * 1000

    run(test)


@pytest.mark.parametrize("list_offsets", [11, 9])
def test_several_segments_of_several_partitions_come_in_one_answer(tmp_path: Path, list_offsets: int) -> None:
    made = located_over(tmp_path, partitions=4)
    logs = {0: Log(), 1: Log(), 2: Log(), 3: Log(local_start=150)}
    leader = Leader(logs, list_offsets=list_offsets)
    wanted = ((0, 42), (1, 142), (2, 0), (3, 10))

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            answer = await asked(around, flagged(*wanted, stop=160, most_segments=9))
            assert leader.asked["Fetch"] == 1
            assert leader.remote_reads == leader.flags_seen == 0
            assert not any(tag in request for request in around.upstream.requests for tag in (b"\xc2\x61", b"\xc3\x61"))
            first = {one.partition: one.location for one in answer.partitions}
            assert {number: one and one.first_offset for number, one in first.items()} == {0: 0, 1: 100, 2: 0, 3: 0}
            following = {one.partition: [each.first_offset for each in one.following] for one in answer.partitions}
            assert following == {0: [100], 1: [], 2: [100], 3: [100]}
            for one in answer.partitions:
                for each in one.following:
                    assert check_location(each, one, 100, ("ApacheKafkaV1",), 1_000) is None
                    assert (each.start, each.last_offset) == (0, 199)
                    data = made.builders[1].to_bytes()
                    assert [batch.base_offset for batch in served(data[: each.stop])][-1] in (150, 160)
            assert made.metrics.locations_given == 7
            assert made.fetch._audit.flush()
            assert len(made.audit.read_text().splitlines()) == 7

            for stop, most in ((100, 9), (160, 1)):  # the first ones hold what is wanted; a client of before
                answer = await asked(around, flagged(*wanted, stop=stop, most_segments=most))
                assert [one.following for one in answer.partitions] == [()] * 4
                assert all(one.location for one in answer.partitions if one.partition != 1)

    run(test)


def test_following_segments_are_of_the_leaders_history_and_below_what_may_be_read(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path, partitions=2), Leader({0: Log(), 1: Log()})
    leader.logs[0].epochs = ((5, 0), (7, 100))  # the second segment was uploaded by a leader that lost
    leader.logs[1].end = 100

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            answer = await asked(around, flagged((0, 42), epoch=7, most_segments=9))
            assert [(one.location is not None, one.following) for one in answer.partitions] == [(True, ())]
            answer = await asked(around, flagged((1, 42), most_segments=9))
            assert [(one.location is not None, one.following) for one in answer.partitions] == [(True, ())]

    run(test)


def test_locations_of_one_answer_are_bounded_and_shared_out_evenly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segreader.gateway.remote.plans.MOST_LOCATIONS", 5)
    made = located_over(tmp_path, partitions=4)
    leader = Leader({number: Log() for number in range(4)})

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            wanted = [(number, 0) for number in range(4)]
            answer = await asked(around, flagged(*wanted, most_segments=1 << 30))
            assert [len(one.following) for one in answer.partitions] == [1, 0, 0, 0]
            assert all(one.location for one in answer.partitions)

    run(test)


def test_a_following_segment_that_cannot_be_given_ends_those_of_its_partition(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path, partitions=2), Leader({0: Log(), 1: Log()})
    (lost,) = (tmp_path / "remote").glob(f"{TOPIC}-1-*/*100-*.log")
    lost.unlink()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            answer = await asked(around, flagged((0, 0), (1, 0), most_segments=9))
            assert {one.partition: len(one.following) for one in answer.partitions} == {0: 1, 1: 0}
            assert all(one.location for one in answer.partitions)

    run(test)


def test_the_second_request_costs_the_broker_one_probe_and_the_store_nothing(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            await asked(around, flagged((0, 142)))
            before = leader.asked.copy()
            for number in range(10):
                answer = await asked(around, flagged((0, 100 + number), number=number))
                assert locations(answer)[0] is not None
            assert leader.asked - before == {"Fetch": 10}
            assert made.metrics.index_reads == 1
            assert set(leader.waits) == {0}

    run(test)


def test_who_may_not_read_gets_29_and_no_location_and_nothing_is_signed_for_him(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader(may_read=False)

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            answer = await asked(around, flagged((0, 42)))
            assert [(one.error, one.location, bytes(one.records or b"")) for one in answer.partitions] == [
                (29, None, b"")
            ]
            assert made.signer.signed == []
            assert made.metrics.index_reads == 0
            assert not made.audit.read_text()

    run(test)


def test_who_lost_the_right_gets_nothing_from_the_next_request_on(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            assert locations(await asked(around, flagged((0, 42))))[0] is not None
            leader.may_read = False
            answer = await asked(around, flagged((0, 42)))
            assert [(one.error, one.location) for one in answer.partitions] == [(29, None)]
            leader.may_read = True
            assert locations(await asked(around, flagged((0, 42))))[0] is not None
            assert made.metrics.locations_given == 2

    run(test)


def test_the_right_of_one_client_is_none_of_another(tmp_path: Path) -> None:
    made = located_over(tmp_path)

    async def test() -> None:
        async with (
            relayed(Leader(), locating=made.fetch) as may,
            relayed(Leader(may_read=False), locating=made.fetch) as may_not,
        ):
            first, second = await asyncio.gather(asked(may, flagged((0, 42))), asked(may_not, flagged((0, 42))))
            assert locations(first)[0] is not None
            assert [(one.error, one.location) for one in second.partitions] == [(29, None)]

    run(test)


def test_without_the_flag_nothing_of_the_extension_is_in_the_answer(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            frame = flagged((0, 42), is_flagged=False)
            answer = await asked(around, frame)
            assert answer.extension_version is None
            assert bytes(answer.partitions[0].records or b"") == b"R" * 1000
            assert around.upstream.requests[-1] == frame[4:]

    run(test)


@pytest.mark.parametrize("list_offsets", [11, 9])
@pytest.mark.parametrize("size", [1000, 400_000])
def test_local_and_remote_partitions_share_one_answer(tmp_path: Path, list_offsets: int, size: int) -> None:
    made = located_over(tmp_path, partitions=3)
    leader = Leader({0: Log(), 1: Log(), 2: Log()}, list_offsets=list_offsets, records_size=size)

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            answer = await asked(around, flagged((0, 42), (1, 250), (2, 150)))
            found = locations(answer)
            assert answer.extension_version == 1
            assert {number: one is not None for number, one in found.items()} == {0: True, 1: False, 2: True}
            (plain,) = (one for one in answer.partitions if one.partition == 1)
            assert bytes(plain.records or b"") == b"L" * size
            assert leader.remote_reads == 0
            assert leader.flags_seen == 0

    run(test)


def test_a_flag_for_local_offsets_alone_is_a_plain_fetch_that_may_wait(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            answer = await asked(around, flagged((0, 300)))
            assert answer.extension_version == 1
            assert leader.waits == [500]
            assert made.metrics.refused == {Refused.NO_SEGMENT: 1}

    run(test)


@pytest.mark.parametrize("version", [12, 17])
def test_an_old_leader_epoch_gets_the_brokers_error_with_its_hint_at_the_gateway(tmp_path: Path, version: int) -> None:
    made, leader = located_over(tmp_path, partitions=2), Leader({0: Log(), 1: Log()})

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            assert locations(await asked(around, flagged((0, 42))))[0] is not None
            leader.logs[0].epochs = ((5, 0), (6, 300))
            for wanted in (((0, 42),), ((0, 42), (1, 250))):
                answer = await asked(around, flagged(*wanted, version=version))
                one = next(one for one in answer.partitions if one.partition == 0)
                assert (one.error, one.location) == (74, None)
                assert one.current_leader == LeaderAndEpoch(2, 6)
                assert answer.nodes == ((OURS,) if version >= 16 else ())

    run(test)


def test_a_segment_of_another_history_is_not_given_and_one_that_fits_is(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()
    leader.logs[0].epochs = ((5, 0), (7, 100))  # offsets from 100 on were written by the leader of epoch 7
    lost = segment_of(made.builders[1], epochs=((5, 100), (6, 150)), last_offset=199, version=9)

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            made.known.all = [made.known.all[0], lost]
            answer = await asked(around, flagged((0, 142), epoch=7))
            assert locations(answer)[0] is None
            assert bytes(answer.partitions[0].records or b"") == b"R" * 1000
            assert made.metrics.refused == {Refused.OTHER_HISTORY: 1}

            own = segment_of(made.builders[1], epochs=((7, 100),), last_offset=199, version=1)
            made.known.all, made.known.version = [made.known.all[0], lost, own], 1
            location = locations(await asked(around, flagged((0, 142), epoch=7)))[0]
            assert location is not None
            assert location.leader_epochs == ((7, 100),)

    run(test)


def test_a_segment_that_is_good_only_at_its_start_ends_where_the_history_does(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()
    leader.logs[0].epochs = ((5, 0), (7, 150))
    made.known.all = [segment_of(made.builders[1], epochs=((5, 100), (6, 180)), last_offset=199)]

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            location = locations(await asked(around, flagged((0, 142), epoch=7)))[0]
            assert location is not None
            assert (location.last_offset, location.leader_epochs) == (149, ((5, 100),))
            assert locations(await asked(around, flagged((0, 150), epoch=7)))[0] is None

    run(test)


def test_what_was_common_with_one_leader_is_not_taken_for_common_with_the_next(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            for offset in (100, 160, 142):
                location = locations(await asked(around, flagged((0, offset))))[0]
                assert location is not None
                assert location.last_offset == 199
            assert leader.asked["OffsetForLeaderEpoch"] == 1
            leader.logs[0].epochs = ((5, 0), (6, 150))
            assert locations(await asked(around, flagged((0, 160), epoch=6)))[0] is None
            location = locations(await asked(around, flagged((0, 142), epoch=6)))[0]
            assert location is not None
            assert location.last_offset == 149

    run(test)


def test_what_a_follower_cannot_say_of_epochs_is_asked_of_the_leader(tmp_path: Path) -> None:
    wanted: list[EpochWanted] = []

    def elsewhere(some: Sequence[EpochWanted]) -> list[EpochEnd]:
        wanted.extend(some)
        return [EpochEnd(one.topic, one.partition, 0, 5, 300) for one in some]

    made, follower = located_over(tmp_path, elsewhere=elsewhere), Leader(epoch_error=6)

    async def test() -> None:
        async with relayed(follower, locating=made.fetch) as around:
            assert locations(await asked(around, flagged((0, 42))))[0] is not None
            assert wanted == [EpochWanted(TOPIC, 0, 5, 5)]

    run(test)


@pytest.mark.parametrize("error", [6, 74, 75, 29, -1])
def test_a_history_that_is_not_told_makes_a_plain_fetch(tmp_path: Path, error: int) -> None:
    made, leader = located_over(tmp_path), Leader(epoch_error=error)

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            answer = await asked(around, flagged((0, 42)))
            assert bytes(answer.partitions[0].records or b"") == b"R" * 1000
            assert made.metrics.refused == {Refused.UNKNOWN_HISTORY: 1}

    run(test)


def test_without_a_leader_epoch_the_history_is_asked_each_time(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            for _ in range(3):
                assert locations(await asked(around, flagged((0, 42), epoch=-1)))[0] is not None
            assert leader.asked["OffsetForLeaderEpoch"] == 3

    run(test)


def test_a_catalogue_that_is_behind_gives_nothing(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            made.known.lag = 31.0
            answer = await asked(around, flagged((0, 42)))
            assert bytes(answer.partitions[0].records or b"") == b"R" * 1000
            assert made.metrics.refused == {Refused.NOT_CAUGHT_UP: 1}

    run(test)


def test_a_deleted_segment_is_not_given_from_then_on(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            assert locations(await asked(around, flagged((0, 42))))[0] is not None
            made.known.all, made.known.version = made.known.all[1:], 1
            assert locations(await asked(around, flagged((0, 42))))[0] is None

    run(test)


def test_an_object_of_another_size_is_not_the_segment(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()
    for log in (tmp_path / "remote").rglob("*.log"):
        log.write_bytes(log.read_bytes() + b"\0")

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            answer = await asked(around, flagged((0, 42)))
            assert bytes(answer.partitions[0].records or b"") == b"R" * 1000
            assert made.metrics.refused == {Refused.FORMAT: 1}

    run(test)


def test_objects_that_are_gone_and_a_signer_that_fails_make_plain_fetches(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            made.signer.error = AccessDeniedError(f"no {CANARY}")
            answer = await asked(around, flagged((0, 42)))
            assert bytes(answer.partitions[0].records or b"") == b"R" * 1000
            made.signer.error = RuntimeError(CANARY)
            assert locations(await asked(around, flagged((0, 42))))[0] is None
            for file in (tmp_path / "remote").rglob("*.log"):
                file.unlink()
            assert locations(await asked(around, flagged((0, 142))))[0] is None
            assert made.metrics.refused == {Refused.SIGNER: 2, Refused.STORE: 1}
            assert around.errors == []

    run(test)


def test_a_format_that_the_client_does_not_read_is_not_given(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            assert locations(await asked(around, flagged((0, 42), formats=("Other", "v2"))))[0] is None
            assert made.metrics.refused == {Refused.FORMAT: 1}

    run(test)


def test_segments_that_hold_deleted_records_can_be_refused(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path, refuses_below_log_start=True), Leader({0: Log(log_start=30)})

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            assert locations(await asked(around, flagged((0, 42))))[0] is None
            assert locations(await asked(around, flagged((0, 142))))[0] is not None
            assert made.metrics.refused == {Refused.BELOW_LOG_START: 1}

    run(test)


@pytest.mark.parametrize("list_offsets", [11, 9])
def test_an_offset_below_the_log_start_gets_the_brokers_own_error(tmp_path: Path, list_offsets: int) -> None:
    made, leader = located_over(tmp_path), Leader({0: Log(log_start=60)}, list_offsets=list_offsets)

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            answer = await asked(around, flagged((0, 42)))
            assert [(one.error, one.location) for one in answer.partitions] == [(1, None)]

    run(test)


def test_a_tail_probe_beyond_the_end_makes_a_plain_fetch_at_the_true_offset(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader(list_offsets=9)

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            assert locations(await asked(around, flagged((0, 42))))[0] is not None
            leader.logs[0].end = 250  # an unclean election took records away
            answer = await asked(around, flagged((0, 42)))
            assert (answer.partitions[0].error, locations(answer)[0]) == (0, None)
            assert bytes(answer.partitions[0].records or b"") == b"R" * 1000

    run(test)


def test_who_is_over_his_quota_gets_the_brokers_empty_answer(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            assert locations(await asked(around, flagged((0, 42))))[0] is not None
            leader.throttle_ms = 900
            answer = await asked(around, flagged((0, 42)))
            assert (answer.partitions, answer.throttle_ms, answer.extension_version) == ((), 900, 1)

    run(test)


def test_a_flag_within_a_session_is_taken_out_and_answered_plainly(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            frame = bytearray(flagged((0, 42)))
            at = frame.index(struct.pack(">ii", 0, -1))
            frame[at : at + 8] = struct.pack(">ii", 77, 3)
            answer = await asked(around, bytes(frame))
            assert answer.extension_version is None
            assert bytes(answer.partitions[0].records or b"") == b"R" * 1000
            assert leader.flags_seen == 0
            assert struct.pack(">ii", 77, 3) in around.upstream.requests[-1]

            frame[at : at + 8] = struct.pack(">ii", 0, 0)  # asks for a session: there is none
            answer = await asked(around, bytes(frame))
            assert (answer.session_id, locations(answer)[0] is not None) == (0, True)

    run(test)


def test_requests_behind_a_flagged_one_are_answered_after_it(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            frames = [flagged((0, number), number=number, is_flagged=number % 3 == 0) for number in range(60)]
            await around.client.send(b"".join(frames))
            for number in range(60):
                assert (await around.client.receive())[4:8] == struct.pack(">i", number)

    run(test)


def test_a_partition_that_is_asked_for_twice_gets_one_location_at_most(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            answer = await asked(around, flagged((0, 42), (0, 43)))
            assert [one.location is not None for one in answer.partitions] == [True, False]

    run(test)


def test_many_clients_that_ask_for_one_segment_at_once_read_its_index_once(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as one, relayed(leader, locating=made.fetch) as other:
            await asyncio.gather(*(asked(around, flagged((0, 42))) for around in (one, other)))
            assert made.metrics.index_reads == 1

    run(test)


@pytest.mark.parametrize("isolation_level", list(IsolationLevel))
def test_both_isolation_levels_get_locations_and_no_list_of_aborted_transactions(
    tmp_path: Path, isolation_level: IsolationLevel
) -> None:
    made, leader = located_over(tmp_path), Leader()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            answer = await asked(around, flagged((0, 42), isolation_level=isolation_level))
            assert locations(answer)[0] is not None
            assert answer.partitions[0].aborted is None

    run(test)


def with_aborts(root: Path, count: int = 1) -> Located:
    """As ``located_over``: the second of two segments aborts transactions that began in the first one."""
    made = located_over(root)
    first = SegmentBuilder(leader_epoch=5)
    for number in range(count):
        first.batch([b"aborted"], producer_id=number, transactional=True)
    first.batch([b"value"] * (200 - count))
    second = first.roll()
    for number in range(count):
        second.marker(number, abort=True)
    write_local_tiered(root / "remote", TOPIC, [first, second])
    made.builders[:] = [first, second]
    made.known.all = [segment_of(first, last_offset=199), segment_of(second, last_offset=199 + count)]
    return made


def test_the_rows_of_transaction_indexes_come_with_locations_for_who_reads_what_is_committed(tmp_path: Path) -> None:
    made, leader = with_aborts(tmp_path, 120), Leader({0: Log(local_start=320, end=400)})
    rows = made.builders[1].transaction_index()
    assert len(rows) == 120 * 34

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            for level, told, reads in (
                (IsolationLevel.READ_UNCOMMITTED, None, 2),
                (IsolationLevel.READ_COMMITTED, rows, 3),
                (IsolationLevel.READ_COMMITTED, rows, 3),  # it is kept
                (IsolationLevel.READ_UNCOMMITTED, None, 3),
            ):
                answer = await asked(around, flagged((0, 42), isolation_level=level, most_segments=2))
                first, (second,) = locations(answer)[0], answer.partitions[0].following
                assert first is not None
                assert (first.is_transaction_index_empty, first.transaction_index) == (True, None)
                assert (second.is_transaction_index_empty, second.transaction_index) == (False, told)
                assert answer.partitions[0].aborted is None
                assert [one.index_type for one in second.indexes] == [0, 3]  # for readers that know no rows
                assert made.metrics.index_reads == reads
            assert leader.remote_reads == 0

    run(test)


def test_a_transaction_index_that_is_large_or_lost_is_left_to_the_reader(tmp_path: Path) -> None:
    leader = Leader({0: Log(local_start=320, end=400)})
    large, lost = with_aborts(tmp_path / "large", 121), with_aborts(tmp_path / "lost")
    (index,) = (tmp_path / "lost").rglob("*.txnindex")
    index.unlink()

    async def test() -> None:
        for made in (large, lost):
            async with relayed(leader, locating=made.fetch) as around:
                for _ in range(2):
                    location = locations(await asked(around, flagged((0, 200))))[0]
                    assert location is not None
                    assert (location.is_transaction_index_empty, location.transaction_index) == (False, None)
                assert made.metrics.index_reads == 1

    run(test)


def test_a_store_that_fails_to_read_a_transaction_index_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, leader = with_aborts(tmp_path), Leader({0: Log(local_start=320, end=400)})
    read_index, faults = made.catalogue.finder.read_index, 1

    def failing(place: PlacedIndex, most: int) -> bytes:
        nonlocal faults
        if place.name.endswith(".txnindex") and faults:
            faults -= 1
            raise StorageError("the store is away")
        return read_index(place, most)

    monkeypatch.setattr(made.catalogue.finder, "read_index", failing)

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            told = [locations(await asked(around, flagged((0, 200))))[0] for _ in range(2)]
            assert [one and one.transaction_index for one in told] == [None, made.builders[1].transaction_index()]

    run(test)


def test_a_topic_that_came_back_with_another_id_gets_nothing_by_its_name(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            assert locations(await asked(around, flagged((0, 42), version=12)))[0] is not None
            leader.topic_id = "AAAAAAAAAAAAAAAAAAAABQ"
            assert locations(await asked(around, flagged((0, 42), version=12)))[0] is None

    run(test)


def test_a_segment_without_an_index_is_read_from_its_start(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()
    for file in (tmp_path / "remote").rglob("*.index"):
        file.write_bytes(b"")

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            location = locations(await asked(around, flagged((0, 42))))[0]
            assert location is not None
            assert location.start == 0

    run(test)


def test_a_line_is_written_for_each_location_and_no_secret_is_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, leader = located_over(tmp_path, partitions=2), Leader({0: Log(), 1: Log()})

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            await asked(around, flagged((0, 42), (1, 142)))
            told = f"{around.metrics!r}{made.metrics!r}{vars(around.relays[0])}{around.errors}"
            assert "c4nary" not in told

    with caplog.at_level(0):
        run(test)
    assert made.fetch._audit.flush()
    text = made.audit.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(one["partition"], one["fetch_offset"], one["first_offset"], one["last_offset"]) for one in lines] == [
        (0, 42, 0, 99),
        (1, 142, 100, 199),
    ]
    assert {(one["client_id"], one["topic"], one["topic_id"]) for one in lines} == {("reader", TOPIC, TOPIC_ID)}
    assert "c4nary" not in text + caplog.text
    assert "?" not in text


def test_where_no_audit_line_can_be_written_no_location_is_given(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()
    made.fetch._audit.close()

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            assert locations(await asked(around, flagged((0, 42))))[0] is None
            assert made.metrics.refused == {Refused.AUDIT: 1}

    run(test)


def test_a_frozen_broker_costs_a_connection_no_longer_than_patience_lasts(tmp_path: Path) -> None:
    made = located_over(tmp_path)

    async def test() -> None:
        async with relayed(lambda request: None, locating=made.fetch) as around:
            while not around.relays:
                await asyncio.sleep(0.01)
            around.relays[0].patience_s = 0.05
            await around.client.send(flagged((0, 42)))
            assert await around.client.is_closed()
            assert "ApiVersions 3 request in time" in str(around.errors[0])

    run(test)


def test_an_epoch_without_records_is_not_told(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()
    leader.logs[0].epochs = ((5, 0), (6, 150), (8, 150))
    made.known.all = [segment_of(made.builders[1], epochs=((5, 100), (6, 150), (8, 150)), last_offset=199)]

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            location = locations(await asked(around, flagged((0, 142), epoch=8)))[0]
            assert location is not None
            assert (location.last_offset, location.leader_epochs) == (199, ((5, 100), (8, 150)))

    run(test)


def test_a_segment_of_no_bytes_is_never_given(tmp_path: Path) -> None:
    made, leader = located_over(tmp_path), Leader()
    empty = SegmentBuilder()
    write_local_tiered(tmp_path / "remote", TOPIC, [empty])
    made.known.all = [segment_of(empty, last_offset=99)]

    async def test() -> None:
        async with relayed(leader, locating=made.fetch) as around:
            assert locations(await asked(around, flagged((0, 42))))[0] is None

    run(test)
