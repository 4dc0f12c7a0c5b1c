"""Offsets by time and the ends of a log: against what brokers answered, and against every record looked at."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from corpus import Case, NormalRecord, case, cases
from sample import at_edges, every

from segreader.catalog.layouts.aiven.layout import AivenLayout
from segreader.catalog.layouts.aiven.settings import RsmConfig
from segreader.catalog.layouts.local_tiered import LocalTieredLayout
from segreader.catalog.layouts.log_directory import LogDirectoryLayout
from segreader.catalog.layouts.registry import open_view
from segreader.catalog.listing import Wanted, list_places, read_place
from segreader.errors import CorruptBatchError, TruncatedError
from segreader.format.compression import Codec
from segreader.format.index_files import parse_offset_index, parse_time_index
from segreader.plan.lineage import ResolvedLog
from segreader.plan.request import TimeRange
from segreader.plan.split import EndReason
from segreader.ranges import OffsetRange
from segreader.storage.base import ObjectStore
from segreader.storage.local import LocalStore
from segreader.stored.lineage import read_lineage
from segreader.stored.log import read_log_offsets
from segreader.stored.source import Catalog, SourceLog, open_source
from segreader.stored.times import OffsetAndTimestamp, offset_for_time, offsets_between
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import broker_log_files, local_tiered_files
from segreader.testing.records import ProducerRecord
from segreader.testing.stores import MemoryStore

AIVEN = ("aiven-plain", "aiven-zstd", "aiven-encrypted")
REMOTE = cases("tv2", "tv1", "k39", "cluster", *AIVEN, remote=True)
LOCAL = [case for case in cases() if case.local]

FIRST_SEGMENT_HAS_NO_RECORD = {"compacted", "compacted-then-tiered"}
"""Its only batch is one that the cleaner emptied and left its largest time: a broker looks into the first segment that
has a time as late as the one asked for and nowhere else, so it answers none though later segments have such records."""

DEAD_TAIL = {("cluster", "diverged-mid")}
"""The end of its first remote segment is of another history, and the broker passes over its live part, too."""

LOG_START_IS_NOT_UPLOADED = {("tv2", "delete-records"), ("k39", "delete-records")}
"""DeleteRecords moved the log start into a segment, and nothing was uploaded since then that could tell."""


class Opened:
    """The partitions of a case, each resolved."""

    def __init__(self, store: ObjectStore, logs: Iterable[SourceLog]) -> None:
        self.store = store
        self.logs: dict[int, tuple[SourceLog, ResolvedLog]] = {}
        for one in logs:
            readable = read_lineage(store, one.log, local=one.local, given=one.leader_epochs)
            self.logs[one.log.partition.partition] = one, readable.resolved

    def ends(self, partition: int) -> Any:
        return read_log_offsets(self.store, self.logs[partition][1])

    def find(self, partition: int, timestamp_ms: int, *, markers: bool, start: int = 0) -> OffsetAndTimestamp | None:
        log = self.logs[partition][1]
        return offset_for_time(self.store, log, timestamp_ms, counts_markers=markers, start=start)


@cache
def remote(case: Case) -> Opened:
    """From remote files, and where they alone cannot show which history counts, with the leader's checkpoint."""
    if case.set_name in AIVEN:
        keys = {name: case.root / "keys" / f"{name}.private.pem" for name in ("key1", "key2")}
        layouts = (AivenLayout(RsmConfig(key_files=keys)),)
        store = open_view(LocalStore(case.root / "remote"), layouts)
        places = list_places(store, "", layouts, Wanted(case.topic, case.topic_id))
        return Opened(store, [SourceLog(read_place(store, place, layouts)) for place in places])
    epochs = str(case.local[0]) if case.topic == "diverged-hanging" else None
    source = open_source(str(case.remote_root), catalog=Catalog(leader_epochs=epochs))
    return Opened(source.store, source.logs(Wanted(case.topic, case.topic_id)))


@cache
def local(case: Case) -> Opened:
    source = open_source(str(case.root / "local"))
    return Opened(source.store, source.logs(Wanted(case.topic)))


def broker_offsets(case: Case, partition: int) -> Mapping[str, Any]:
    answers: Mapping[str, Any] = case.facts["offsets"][str(partition)]
    return answers


def by_time(case: Case, partition: int) -> list[Mapping[str, Any]]:
    return list((case.facts["offsets_for_times"] or {}).get(str(partition), ()))


def first_record(records: Iterable[NormalRecord], timestamp_ms: int, offsets: OffsetRange) -> tuple[int, int] | None:
    """The first of the Java consumer's records that is not older."""
    wanted = (record for record in records if record.timestamp_ms >= timestamp_ms and record.offset in offsets)
    return next(((record.offset, record.timestamp_ms) for record in wanted), None)


def is_missed_by_the_broker(
    case: Case, log: ResolvedLog, found: OffsetAndTimestamp | None, answer: Mapping[str, Any]
) -> bool:
    """Whether the broker answers none for ``FIRST_SEGMENT_HAS_NO_RECORD``: ours is then of a later segment."""
    if case.topic not in FIRST_SEGMENT_HAS_NO_RECORD or answer["offset"] is not None or found is None:
        return False
    return log.parts[0].stop <= found.offset


@pytest.mark.parametrize("case", at_edges(REMOTE), ids=str)
def test_a_time_in_the_remote_tier_gives_the_brokers_offset(case: Case) -> None:
    for partition, (_, log) in remote(case).logs.items():
        earliest = broker_offsets(case, partition)["earliest"]["offset"]
        for answer in by_time(case, partition):
            found = remote(case).find(partition, answer["query"], markers=True, start=earliest)
            if is_missed_by_the_broker(case, log, found, answer):
                continue
            if (case.set_name, case.topic) in DEAD_TAIL and found is not None and found.offset < 47:
                # the broker's answer for every time in the live part is the first record behind the dead one
                assert answer["offset"] == 47
                continue
            is_here = answer["offset"] is not None and answer["offset"] < case.remote_stop(partition)
            expected = (answer["offset"], answer["timestamp"], answer["leader_epoch"]) if is_here else None
            assert (found and (found.offset, found.timestamp_ms, found.leader_epoch)) == expected


@pytest.mark.parametrize("case", at_edges(REMOTE), ids=str)
def test_without_markers_the_answer_is_the_first_record_of_the_java_consumer(case: Case) -> None:
    truth = case.truth()
    for partition in remote(case).logs:
        records = [record for record in truth if record.partition == partition]
        earliest = broker_offsets(case, partition)["earliest"]["offset"]
        for answer in by_time(case, partition):
            found = remote(case).find(partition, answer["query"], markers=False, start=earliest)
            expected = first_record(records, answer["query"], OffsetRange(earliest, case.remote_stop(partition)))
            assert (found and (found.offset, found.timestamp_ms)) == expected


@pytest.mark.parametrize("case", at_edges(LOCAL), ids=str)
def test_a_brokers_directory_gives_the_first_record_of_what_it_holds(case: Case) -> None:
    truth = case.truth()
    times = sorted({record.timestamp_ms for record in truth})
    for partition, (_, log) in local(case).logs.items():
        records = [record for record in truth if record.partition == partition]
        for timestamp_ms in [0, *times[:: max(1, len(times) // 7)], times[-1], times[-1] + 1]:
            found = local(case).find(partition, timestamp_ms, markers=False)
            expected = first_record(records, timestamp_ms, OffsetRange(log.start, log.stop))
            assert (found and (found.offset, found.timestamp_ms)) == expected


@pytest.mark.parametrize("case", at_edges(LOCAL), ids=str)
def test_a_time_in_a_brokers_directory_gives_the_brokers_offset(case: Case) -> None:
    for partition, (_, log) in local(case).logs.items():
        if log.parts and log.start == broker_offsets(case, partition)["earliest"]["offset"]:
            for answer in by_time(case, partition):
                found = local(case).find(partition, answer["query"], markers=True)
                if not is_missed_by_the_broker(case, log, found, answer):
                    assert (found and found.offset) == answer["offset"]


@pytest.mark.parametrize("case", at_edges(REMOTE), ids=str)
def test_the_ends_of_the_remote_tier_are_the_brokers(case: Case) -> None:
    for partition, (_, log) in remote(case).logs.items():
        ends, answers = remote(case).ends(partition), broker_offsets(case, partition)
        if (case.set_name, case.topic) in LOG_START_IS_NOT_UPLOADED:
            assert log.parts[0].start < answers["earliest"]["offset"] < log.parts[0].stop
        else:
            assert ends.earliest == answers["earliest"]["offset"]
        assert ends.latest == case.remote_stop(partition) == answers["latest_tiered"]["offset"] + 1
        assert ends.latest <= answers["latest"]["offset"]
        assert ends.stable_end == min(case.offline_lso(partition), case.remote_stop(partition))
        assert ends.stable_end <= answers["last_stable"]["offset"]
        is_open = ends.stable_end < ends.latest
        assert ends.reason is (EndReason.OPEN_TRANSACTION if is_open else EndReason.END_OF_DATA)


@pytest.mark.parametrize("case", at_edges(LOCAL), ids=str)
def test_the_ends_of_a_brokers_directory_are_the_brokers(case: Case) -> None:
    for partition in local(case).logs:
        ends, answers = local(case).ends(partition), broker_offsets(case, partition)
        here = "earliest_local" if "offset" in answers["earliest_local"] else "earliest"
        assert ends.earliest == answers[here]["offset"]
        assert ends.latest == answers["latest"]["offset"]
        assert ends.stable_end == answers["last_stable"]["offset"]


def test_the_remote_tier_with_the_brokers_directory_ends_where_the_broker_does() -> None:
    one = case("tv2", "txn-open")
    source = open_source(str(one.remote_root), catalog=Catalog(log_directory=str(one.root / "local")))

    ends = Opened(source.store, source.logs(Wanted(one.topic, one.topic_id))).ends(0)

    assert (ends.earliest, ends.latest, ends.stable_end) == (
        0,
        broker_offsets(one, 0)["latest"]["offset"],
        broker_offsets(one, 0)["last_stable"]["offset"],
    )


def resolved(store: MemoryStore) -> ResolvedLog:
    """The only partition of a store."""
    layouts = (LocalTieredLayout(), LogDirectoryLayout())
    (place,) = list_places(store, "", layouts)
    return read_lineage(store, read_place(store, place, layouts)).resolved


def timed(*times_ms: int) -> list[ProducerRecord]:
    return [ProducerRecord(b"v" * 40, timestamp_ms=time_ms) for time_ms in times_ms]


def random_log(rng: random.Random) -> tuple[list[SegmentBuilder], list[tuple[int, int, bool]]]:
    """Segments whose times are in no order, and every record as offset, time, and whether it is a marker."""
    segment = SegmentBuilder(index_interval_bytes=rng.choice([0, 200, 1000]))
    segments, markers = [segment.batch(timed(rng.randrange(1000)))], []
    for _ in range(rng.randrange(3, 30)):
        near = rng.choice([100, 500, 900])
        times = [rng.randrange(max(0, near - 150), near + 150) for _ in range(rng.randrange(1, 6))]
        match rng.randrange(8):
            case 0:
                segment.batch([b"open"], producer_id=7, transactional=True)
                markers.append((segment.next_offset, time_ms := rng.randrange(1000)))
                segment.marker(7, abort=rng.random() < 0.5, timestamp_ms=time_ms)
            case 1:
                segment.batch(timed(*times), log_append_time_ms=max(times))
            case 2:
                segment.message_set(timed(*times), codec=rng.choice([Codec.NONE, Codec.GZIP]))
            case 3:
                segment.message_set(timed(-1), magic=0)
            case 4:
                segment.skip(3)
            case _:
                segment.batch(timed(*times), codec=rng.choice([Codec.NONE, Codec.LZ4]))
        if rng.random() < 0.25 and segment.to_bytes():
            segment = segment.roll()
            segments.append(segment)
    segment.batch(timed(1))
    data = [(record.offset, record.timestamp_ms, False) for one in segments for record in one.records]
    return segments, sorted(data + [(offset, time_ms, True) for offset, time_ms in markers])


@pytest.mark.parametrize("damage", ["none", "no time index", "no indexes", "cut time index", "catalogue"])
@pytest.mark.parametrize("seed", every(5, range(20)))
def test_times_in_no_order_give_the_first_record_that_any_reader_would_find(seed: int, damage: str) -> None:
    rng = random.Random(f"{seed} {damage}")
    segments, everything = random_log(rng)
    files = local_tiered_files("t", segments)
    for name in list(files):
        if damage in ("no time index", "no indexes") and name.endswith(".timeindex"):
            files[name] = b""
        if damage == "no indexes" and name.endswith(".index"):
            files[name] = b""
        if damage == "cut time index" and name.endswith(".timeindex"):
            files[name] = files[name][:-1]
    store = MemoryStore(files)
    log = resolved(store)
    if damage == "catalogue":
        newest = [max(time for o, time, _ in everything if part.start <= o < part.stop) for part in log.parts]
        log = replace(
            log,
            parts=tuple(
                replace(part, segment=replace(part.segment, max_timestamp_ms=time_ms))
                for part, time_ms in zip(log.parts, newest, strict=True)
            ),
        )
    for _ in range(12):
        time_ms, start = rng.randrange(1100), rng.choice([0, 0, rng.randrange(log.stop + 2)])
        for markers in (True, False):
            found = offset_for_time(store, log, time_ms, counts_markers=markers, start=start)
            expected = next(
                (
                    (offset, time)
                    for offset, time, is_marker in everything
                    if time >= time_ms and offset >= start and (markers or not is_marker)
                ),
                None,
            )
            assert (found and (found.offset, found.timestamp_ms)) == expected


def rising_log(batches: int = 600, *, segments: int = 1, interval: int = 4096) -> list[SegmentBuilder]:
    """A log with rising times: that of a record is its offset."""
    built = [SegmentBuilder(index_interval_bytes=interval)]
    for number in range(batches):
        if number and number % (batches // segments) == 0 and len(built) < segments:
            built.append(built[-1].roll())
        built[-1].batch([ProducerRecord(b"v" * 900, timestamp_ms=built[-1].next_offset)])
    return built


def name_of(store: MemoryStore, end: str) -> str:
    return next(name for name in store.objects if name.endswith(end))


def test_an_index_entry_that_points_anywhere_costs_reading_and_never_the_answer() -> None:
    built = rising_log(60)
    files = local_tiered_files("t", built)
    index = next(name for name in files if name.endswith(".index"))
    entries = list(parse_offset_index(files[index], 0))
    moved, following = entries[5], entries[6]
    data = bytearray(files[index])
    positions = {*range(entries[4].position + 1, following.position, 47), *built[0].batch_positions}

    for position in sorted(one for one in positions if entries[4].position < one < following.position):
        data[5 * 8 + 4 : 6 * 8] = position.to_bytes(4, "big")
        store = MemoryStore({**files, index: bytes(data)})
        found = offset_for_time(store, resolved(store), moved.offset, counts_markers=True)
        assert found == OffsetAndTimestamp(moved.offset, moved.offset, 0)


def test_a_time_in_one_of_many_segments_costs_their_last_entries_and_one_piece_of_one_log() -> None:
    store = MemoryStore(local_tiered_files("t", rising_log(2000, segments=20)))
    log = resolved(store)
    store.requests.clear()

    found = offset_for_time(store, log, 1910, counts_markers=True)

    assert found == OffsetAndTimestamp(1910, 1910, 0)
    logs = [request for request in store.requests if ".log" in request]
    assert len(logs) == 1
    assert sum(_got(request) for request in store.requests) < 80_000
    entries = [request for request in store.requests if ".timeindex bytes" in request and _got(request) == 12]
    assert len(entries) == 20


def test_a_hundredth_of_a_log_by_time_is_found_with_less_than_a_hundredth_of_its_bytes() -> None:
    built = rising_log(24_000, segments=4)
    store = MemoryStore(local_tiered_files("t", built))
    log = resolved(store)
    store.requests.clear()

    times = TimeRange(12_000, 12_240)
    assert offsets_between(store, log, times, OffsetRange()) == OffsetRange(12_000, 12_240)

    assert sum(_got(request) for request in store.requests) < sum(len(one.to_bytes()) for one in built) // 100


def _got(request: str) -> int:
    if " bytes=" not in request:
        return 0
    first, last = request.rpartition("=")[2].split("-")
    return int(last) - int(first) + 1


def test_segments_that_the_catalogue_knows_to_be_older_are_not_touched() -> None:
    store = MemoryStore(local_tiered_files("t", rising_log(100, segments=10)))
    log = resolved(store)
    parts = [replace(part, segment=replace(part.segment, max_timestamp_ms=99)) for part in log.parts]
    store.requests.clear()

    assert offset_for_time(store, replace(log, parts=tuple(parts)), 100, counts_markers=True) is None
    assert store.requests == []


@pytest.mark.parametrize("preallocated", [True, False])
def test_the_tail_of_an_active_segment_is_searched_though_its_time_index_does_not_know_it(preallocated: bool) -> None:
    segment = SegmentBuilder(index_interval_bytes=1000).batch(timed(*range(100, 140))).batch(timed(*range(140, 150)))
    segment.batch(timed(150))
    files = broker_log_files("t", [segment], preallocated=4096)
    name = next(name for name in files if name.endswith(".timeindex"))
    assert parse_time_index(files[name], 0).max_timestamp_ms == 149
    store = MemoryStore(files if preallocated else {**files, name: files[name].rstrip(b"\0")})

    found = offset_for_time(store, resolved(store), 150, counts_markers=True)

    assert found == OffsetAndTimestamp(50, 150, 0)


def test_a_batch_of_another_leader_epoch_does_not_count() -> None:
    dead = SegmentBuilder().batch(timed(1, 2)).batch(timed(5, 9))
    live = SegmentBuilder(2, leader_epoch=3)
    live.leader_epochs = [(0, 0)]
    live.batch(timed(3, 4)).batch(timed(9, 9))
    store = MemoryStore(local_tiered_files("t", [dead, live]))

    log = resolved(store)

    assert offset_for_time(store, log, 5, counts_markers=True) == OffsetAndTimestamp(4, 9, 3)
    assert offset_for_time(store, log, 2, counts_markers=True) == OffsetAndTimestamp(1, 2, 0)


def with_byte(builder: SegmentBuilder, batch: int, at: int, value: int) -> SegmentBuilder:
    """The same segment with one byte of a batch's header changed."""
    data = bytearray(builder.to_bytes())
    data[builder.batch_positions[batch] + at] = value
    changed = copy.copy(builder)
    changed._data = data
    return changed


@pytest.mark.parametrize(
    ("at", "value"), [pytest.param(7, 200, id="ahead"), pytest.param(7, 0, id="back"), pytest.param(15, 9, id="epoch")]
)
@pytest.mark.parametrize("timestamp_ms", [5, 6])
def test_a_batch_whose_offsets_or_epoch_cannot_be_raises_instead_of_hiding_its_records(
    at: int, value: int, timestamp_ms: int
) -> None:
    first = SegmentBuilder().batch(timed(1)).batch(timed(5, 6)).batch(timed(7))
    second = first.roll().batch(timed(8))
    store = MemoryStore(local_tiered_files("t", [with_byte(first, 1, at, value), second]))

    with pytest.raises(CorruptBatchError) as caught:
        offset_for_time(store, resolved(store), timestamp_ms, counts_markers=True)
    assert caught.value.position == first.batch_positions[1]
    assert caught.value.source is not None


def test_a_finished_segment_that_is_cut_before_the_record_raises_instead_of_naming_a_later_one() -> None:
    first = SegmentBuilder().batch(timed(1)).batch(timed(7))
    second = first.roll().batch(timed(8))
    files = local_tiered_files("t", [first, second])
    log_name = next(name for name in files if name.endswith(".log"))
    files[log_name] = files[log_name][:-5]
    store = MemoryStore(files)

    with pytest.raises(TruncatedError) as caught:
        offset_for_time(store, resolved(store), 7, counts_markers=True)
    assert caught.value.source == store.url(log_name)
    assert caught.value.position == first.batch_positions[1]


def test_damage_in_the_batch_that_would_hold_the_record_is_named() -> None:
    segment = SegmentBuilder().batch(timed(1)).batch(timed(7))
    files = local_tiered_files("t", [segment])
    log_name = next(name for name in files if name.endswith(".log"))
    data = bytearray(files[log_name])
    data[-1] ^= 1
    store = MemoryStore({**files, log_name: bytes(data)})

    with pytest.raises(CorruptBatchError) as caught:
        offset_for_time(store, resolved(store), 7, counts_markers=True)
    assert caught.value.source == store.url(log_name)
    assert caught.value.base_offset == 1


UNORDERED = (50, 10, 20, 90, 30, 40, 95, 60)


@pytest.fixture
def unordered() -> tuple[MemoryStore, ResolvedLog]:
    """Offsets 0 to 7 with the times of ``UNORDERED``, and markers far in the future at 8."""
    built = SegmentBuilder()
    for time_ms in UNORDERED:
        built.batch(timed(time_ms))
    built.marker(1, timestamp_ms=1 << 40)
    store = MemoryStore(local_tiered_files("t", [built]))
    return store, resolved(store)


@pytest.mark.parametrize(
    ("since", "until", "offsets", "expected"),
    [
        (None, None, OffsetRange(2, 5), OffsetRange(2, 5)),
        (51, None, OffsetRange(), OffsetRange(3, None)),
        (51, 91, OffsetRange(), OffsetRange(3, 6)),
        (None, 51, OffsetRange(), OffsetRange(0, 3)),
        (51, 91, OffsetRange(4, 5), OffsetRange(4, 5)),
        (51, 91, OffsetRange(0, 2), OffsetRange(2, 2)),
        (51, 91, OffsetRange(7, 8), OffsetRange(7, 7)),
        (51, 52, OffsetRange(), OffsetRange(3, 3)),
        (96, None, OffsetRange(), OffsetRange(9, 9)),
        (96, 99, OffsetRange(0, 4), OffsetRange(4, 4)),
        (None, 99, OffsetRange(), OffsetRange(0, None)),
        (None, 0, OffsetRange(3, None), OffsetRange(3, 3)),
    ],
)
def test_a_range_of_times_is_a_range_of_offsets_inside_the_one_asked_for(
    unordered: tuple[MemoryStore, ResolvedLog],
    since: int | None,
    until: int | None,
    offsets: OffsetRange,
    expected: OffsetRange,
) -> None:
    store, log = unordered
    assert offsets_between(store, log, TimeRange(since, until), offsets) == expected


def test_pieces_of_a_range_of_offsets_give_by_time_what_the_whole_gives(
    unordered: tuple[MemoryStore, ResolvedLog],
) -> None:
    store, log = unordered
    for since in range(0, 100, 7):
        for until in range(since, 100, 7):
            times = TimeRange(since, until)
            whole = offsets_between(store, log, times, OffsetRange(0, 9))
            pieces = [offsets_between(store, log, times, OffsetRange(at, at + 3)) for at in range(0, 9, 3)]
            in_pieces = [offset for one in pieces for offset in range(9) if offset in one]
            assert in_pieces == [offset for offset in range(9) if offset in whole]


def test_an_empty_partition_has_no_ends() -> None:
    store, log = MemoryStore({}), ResolvedLog(None, None, (), (), (), False)  # type: ignore[arg-type]
    ends = read_log_offsets(store, log)
    assert (ends.earliest, ends.latest, ends.stable_end) == (None, None, None)
    assert offset_for_time(store, log, 0, counts_markers=True) is None
