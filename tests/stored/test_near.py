"""Plans of a range by the segments around it: as exact as plans of everything, and a dozen requests."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from bucket_judge import LEVELS, Row
from corpus import FIXTURES, Case, cases
from histories import ELECTIONS, FAILED_UPLOAD, ORDINARY, TROUBLE, Event, examples, histories, play
from hypothesis import assume, given
from hypothesis import strategies as st
from sample import edges_once, is_first_of_its_topic, sampled
from simulator import SimulatedPartition
from thousand import (
    MINUTE_MS,
    OFFSETS,
    RECORDS,
    SEGMENTS,
    files_in,
    in_layout,
    near_always,
    thousand_builders,
    thousand_segments,
    times_of_uploads,
)

from segreader.errors import SegreaderError
from segreader.isolation import IsolationLevel
from segreader.plan.request import Bounds, ReadOptions, Request, TimeRange
from segreader.scans import Scan
from segreader.stored import near
from segreader.stored.source import Catalog, LocationSource
from segreader.testing.aiven import aiven_files
from segreader.testing.builder import SegmentBuilder
from segreader.testing.stores import MemoryStore

HANGING = "diverged-hanging"
"""A topic whose remote files do not show that its newest segments are dead."""

CASES = [case for case in cases(remote=True) if case.topic != HANGING]


def scan_of(
    store: MemoryStore,
    start: int,
    stop: int | None,
    level: str,
    case: Case | None = None,
    times: TimeRange | None = None,
) -> Scan:
    is_encrypted = case is not None and case.set_name == "aiven-encrypted"
    catalog = Catalog(rsm_config=FIXTURES / "aiven-encrypted.properties" if is_encrypted else None)
    source = LocationSource("", catalog=catalog, opened=(store, ""))
    topic, topic_id = (case.topic, case.topic_id) if case is not None else (None, None)
    request = Request(
        topic=topic,
        topic_id=topic_id,
        bounds=Bounds(start or None, stop, times=times),
        isolation_level=IsolationLevel(level),
    )
    return Scan(source, request, ReadOptions(columns=("partition", "offset", "timestamp_ms", "key", "value")))


def rows_of(scan: Scan) -> list[Row]:
    return [row for batch in scan.to_batches() for row in zip(*map(list, batch.to_pydict().values()), strict=True)]


def objects_below(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    "case", sampled(CASES, lambda case: is_first_of_its_topic(case) or case in edges_once(CASES)), ids=str
)
def test_ranges_by_near_segments_are_slices_of_the_whole(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(objects_below(case.root / "remote"), tells_tags=True)
    dice = random.Random(str(case))
    for level in LEVELS:
        scan = scan_of(store, 0, None, level, case)
        whole = rows_of(scan)
        ends = {end.partition: end for end in scan.plan().ends}
        with monkeypatch.context() as patched:
            near_always(patched)
            for _ in range(8):
                last = max((row[1] for row in whole), default=0)
                start = dice.randint(0, last + 1)
                stop = start + dice.choice((0, 1, 1, 2, 10, 100))
                scan = scan_of(store, start, stop, level, case)
                assert rows_of(scan) == [row for row in whole if start <= row[1] < stop], (level, start, stop)
                for end in scan.plan().ends:
                    of_whole = ends[end.partition]
                    if end.reason.is_early:
                        assert (end.offset, end.reason) == (max(of_whole.offset or 0, start), of_whole.reason)
                assert not scan.plan().gaps


def requests_of(store: MemoryStore, kind: str) -> list[str]:
    return [one for one in store.requests if one.startswith(kind)]


@pytest.mark.parametrize("level", LEVELS)
def test_one_record_of_a_thousand_segments_costs_a_dozen_requests(level: str) -> None:
    store = MemoryStore(thousand_segments(), tells_tags=True)
    for number in (0, 1, 298, 299, 300, 301, 599, 600, 777, 990):
        offset = number * OFFSETS + 3
        store.requests.clear()
        (row,) = rows_of(scan_of(store, offset, offset + 1, level))
        assert row[1] == offset
        assert len(requests_of(store, "GET")) <= 16, number
        assert not requests_of(store, "SIZE")


def store_of(partition: SimulatedPartition, *, tells_tags: bool) -> MemoryStore:
    """What was uploaded, with the digests of S3 or with the times of the uploads."""
    with TemporaryDirectory() as name:
        root = Path(name)
        partition.write(root)
        objects = objects_below(root)
        modified_ms = {one: (root / one).stat().st_mtime_ns // 1_000_000 for one in objects}
    return MemoryStore(objects, {} if tells_tags else modified_ms, tells_tags=tells_tags)


@pytest.mark.parametrize("tells_tags", [True, False])
@pytest.mark.parametrize("kinds", [ORDINARY, [*ORDINARY, *TROUBLE, FAILED_UPLOAD], [*ORDINARY, *ELECTIONS]])
def test_ranges_by_near_segments_are_what_a_consumer_sees(
    kinds: list[st.SearchStrategy[Event]], tells_tags: bool
) -> None:
    answers: list[bool] = []

    @examples(100)
    @given(histories(*kinds), st.data())
    def check(events: list[Event], data: st.DataObject) -> None:
        partition = play(events)
        truth = partition.truth()
        assume(not partition.is_deceptive and any(segment.is_whole for segment in partition.remote))
        assume(not truth.has_hole and not truth.open_since_unseen)
        store = store_of(partition, tells_tags=tells_tags)
        with pytest.MonkeyPatch.context() as patched:
            asked = near_always(patched)
            patched.setattr(near, "_LEAST_SPAN_MS", 0)
            for level, expected in zip(LEVELS, (truth.committed, truth.uncommitted), strict=True):
                start = data.draw(st.integers(0, truth.end + 1))
                stop = start + data.draw(st.integers(0, 12))
                rows = rows_of(scan_of(store, start, stop, level))
                assert [(row[1], row[4]) for row in rows] == [
                    (one.offset, one.value) for one in expected if start <= one.offset < stop
                ]
                at = data.draw(st.sampled_from([one.timestamp_ms for one in truth.uncommitted] or [0]))
                until = at + data.draw(st.sampled_from([0, 1, 5, 1 << 40]))
                since = next((one.offset for one in truth.uncommitted if one.timestamp_ms >= at), 1 << 62)
                before = next(
                    (one.offset for one in truth.uncommitted if one.offset >= since and one.timestamp_ms >= until),
                    1 << 62,
                )
                rows = rows_of(scan_of(store, 0, None, level, times=TimeRange(at, until)))
                assert [(row[1], row[4]) for row in rows] == [
                    (one.offset, one.value) for one in expected if since <= one.offset < before
                ]
            answers.extend(asked)

    check()
    assert any(answers)


def test_uploads_in_order_of_offset_need_no_digests() -> None:
    objects = thousand_segments()
    store = MemoryStore(objects, times_of_uploads(objects))
    offset = 700 * OFFSETS + 3
    (row,) = rows_of(scan_of(store, offset, offset + 1, LEVELS[0]))
    assert row[1] == offset
    assert len(requests_of(store, "GET")) <= 16


@pytest.mark.parametrize("level", LEVELS)
def test_a_range_of_aivens_layout_needs_the_manifests_around_it(level: str) -> None:
    objects = in_layout("aiven")
    store = MemoryStore(objects, times_of_uploads(objects))
    for number in (0, 1, 299, 300, 777, 990, 999):
        offset = number * OFFSETS + 3
        store.requests.clear()
        (row,) = rows_of(scan_of(store, offset, offset + 1, level))
        assert row[1] == offset
        manifests = {one.split()[1] for one in requests_of(store, "GET") if "manifest" in one}
        assert len(manifests) <= 10, number
        assert len(store.requests) <= 60, number


def test_a_range_of_a_recreated_topic_in_aivens_layout_has_its_note() -> None:
    few = thousand_builders()[:3]
    objects = aiven_files("orders", few) | aiven_files("orders", few, topic_id="A" * 22)
    for modified_ms in ({}, times_of_uploads(objects)):
        plan = scan_of(MemoryStore(objects, modified_ms), 0, 1, LEVELS[0]).plan()
        assert sum("created again" in note for note in plan.notes) == 1, plan.notes


def test_ranges_of_aivens_layout_are_slices_of_the_whole() -> None:
    segments = thousand_builders()[290:330]
    objects = files_in("aiven", segments)
    store = MemoryStore(objects, times_of_uploads(objects))
    dice = random.Random(7)
    for level in LEVELS:
        whole = rows_of(scan_of(store, 0, None, level))
        for _ in range(40):
            start = dice.randint(segments[0].base_offset - 1, segments[-1].next_offset + 1)
            stop = start + dice.choice((0, 1, 2, OFFSETS, 100, 10_000))
            assert rows_of(scan_of(store, start, stop, level)) == [row for row in whole if start <= row[1] < stop]


@pytest.mark.parametrize("damage", ["lost manifest", "lost indexes", "two of one offset", "other topic"])
def test_an_unusual_object_of_aivens_layout_is_read_as_in_a_plan_of_everything(damage: str) -> None:
    objects = dict(in_layout("aiven"))
    at = sorted({name.rpartition(".")[0] for name in objects})[500]
    if damage == "other topic":
        objects = {f"prefix-{name}": data for name, data in objects.items()}
    elif damage == "two of one offset":
        objects |= {name[:-30] + "x" + name[-29:]: data for name, data in objects.items() if name.startswith(at)}
    else:
        del objects[f"{at}.{'rsm-manifest' if 'manifest' in damage else 'indexes'}"]
    offset = 777 * OFFSETS + 3
    for modified_ms in ({}, times_of_uploads(objects)):
        store = MemoryStore(objects, modified_ms)
        try:
            found: object = [row[1] for row in rows_of(scan_of(store, offset, offset + 1, LEVELS[0]))]
        except SegreaderError as error:
            found = (type(error), error.message)
        if not modified_ms:
            expected = found
        assert found == expected


def test_a_copy_in_order_of_name_is_no_upload_in_order_of_offset() -> None:
    objects = thousand_segments()
    store = MemoryStore(objects, {name: ms // 600 for name, ms in times_of_uploads(objects).items()})
    assert rows_of(scan_of(store, 5, 6, LEVELS[0]))
    assert len(requests_of(store, "GET")) > SEGMENTS


LATE = [SEGMENTS + 9, SEGMENTS - 9]


@pytest.mark.parametrize(
    ("layout", "minute"),
    [("local-tiered", None), *product(("local-tiered", "aiven"), LATE)],
)
def test_a_lost_branch_far_from_its_survivor_is_not_read(layout: str, minute: int | None) -> None:
    """Its segments look like any others there: one checkpoint among a thousand, or one late upload, tells of it."""
    tells_tags = minute is None
    objects = in_layout(layout)
    first = SegmentBuilder(500 * OFFSETS + 1, leader_epoch=9)  # the survivor's only upload
    first.leader_epochs = [(0, 0), (1, 299 * OFFSETS + RECORDS + 1), (9, first.base_offset)]
    survivor = files_in(layout, [first.batch([b"alive"])])
    times = times_of_uploads(objects) | dict.fromkeys(survivor, (minute or 0) * MINUTE_MS)
    store = MemoryStore(objects | survivor, {} if tells_tags else times, tells_tags=tells_tags)
    dead = 800 * OFFSETS
    assert not rows_of(scan_of(store, dead, dead + 1, LEVELS[1]))
    (row,) = rows_of(scan_of(store, first.base_offset, first.base_offset + 1, LEVELS[1]))
    assert row[4] == b"alive"


def test_tags_that_are_no_digests_prove_nothing() -> None:
    """All the same, as of a gateway that makes none: then every checkpoint is read."""

    class Untagged(MemoryStore):
        def _tag(self, name: str) -> str:
            return "etag:d41d8cd98f00b204e9800998ecf8427e"

    store = Untagged(thousand_segments(), tells_tags=True)
    (row,) = rows_of(scan_of(store, 5, 6, LEVELS[0]))
    assert row[1] == 5
    read = {one.split()[1] for one in requests_of(store, "GET") if "leader_epoch" in one}
    assert len(read) == SEGMENTS


@pytest.fixture
def cache_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEGREADER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("level", LEVELS)
def test_with_a_cache_the_second_newest_time_costs_few_requests(level: str, cache_place: Path) -> None:
    store = MemoryStore(thousand_segments(), tells_tags=True)
    newest = max(row[2] for row in rows_of(scan_of(store, (SEGMENTS - 1) * OFFSETS, None, level)))
    costs, found = [], []
    for _ in range(2):
        store.requests.clear()
        scan = scan_of(store, 0, None, level, times=TimeRange(newest - 10))
        scan.plan()
        costs.append(len(requests_of(store, "GET")))
        found.append(rows_of(scan))
    assert found[0] == found[1] != []
    assert costs[0] >= SEGMENTS
    assert costs[1] <= 20
    assert 5 < len(list(cache_place.rglob("*"))) < 4 * SEGMENTS


@pytest.mark.parametrize("level", LEVELS)
def test_with_a_cache_the_second_plan_of_a_range_costs_next_to_nothing(level: str, cache_place: Path) -> None:
    store = MemoryStore(thousand_segments(), tells_tags=True)
    offset = 777 * OFFSETS + 3
    costs = []
    for _ in range(2):
        store.requests.clear()
        scan_of(store, offset, offset + 1, level).plan()
        costs.append(requests_of(store, "GET"))
    assert len(costs[1]) <= 3 < len(costs[0])


@pytest.mark.parametrize("case", sampled(CASES, is_first_of_its_topic), ids=str)
def test_reads_with_a_cache_are_those_without(case: Case, cache_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = objects_below(case.root / "remote")
    for level in LEVELS:
        with monkeypatch.context() as patched:
            patched.delenv("SEGREADER_CACHE")
            scan = scan_of(MemoryStore(objects, tells_tags=True), 0, None, level, case)
            expected = rows_of(scan), [(end.offset, end.reason) for end in scan.plan().ends]
        for _ in range(2):
            scan = scan_of(MemoryStore(objects, tells_tags=True), 0, None, level, case)
            assert (rows_of(scan), [(end.offset, end.reason) for end in scan.plan().ends]) == expected
    assert cache_place.is_dir() or case.set_name == "uber"
