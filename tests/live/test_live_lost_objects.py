"""An object of the remote tier that is lost: neither the store nor the broker, which reads the same store, has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_cluster import FakeCluster, ServedSegment
from live_topic import COMMITTED, TOPIC, segments
from located_store import CANARY, LocatedStore, locations
from served_cluster import served_cluster, tiered_log

from segreader.cli.main import main
from segreader.errors import (
    AuthorizationError,
    BrokerError,
    ObjectNotFoundError,
    SegmentGapError,
    SegreaderError,
    WrongAnswerError,
)
from segreader.isolation import IsolationLevel
from segreader.live.locations import UrlCache
from segreader.live.scan import LiveScan
from segreader.plan.live import ReadFrom
from segreader.plan.request import ReadOptions, Request
from segreader.stored.source import open_source
from segreader.testing.directory import kafka_uuid

BOUNDS = [(0, 20), (20, 40), (40, 60), (60, 80)]
"""The offsets of the four segments."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "remote"


@pytest.fixture
def cluster(root: Path) -> FakeCluster:
    """The topic, all of it remote; the broker has the last segment, too."""
    log = tiered_log(root, TOPIC, segments(), uploaded=4, local_from=3)
    for builder, segment in zip(segments(), log.segments, strict=True):
        segment.transaction_index = builder.transaction_index()
    return FakeCluster({TOPIC: {0: log}}, topic_ids={TOPIC: kafka_uuid(TOPIC)})


def lose(root: Path, cluster: FakeCluster, number: int, suffix: str = "log") -> Path:
    """Remove an object of a segment; the broker does not find it either."""
    (found,) = root.glob(f"*/{BOUNDS[number][0]:020d}-*.{suffix}")
    found.unlink()
    cluster.lost.add(f"segment-{number}")
    return found


def by_store(
    cluster: FakeCluster, root: Path, *, level: IsolationLevel = IsolationLevel.READ_COMMITTED, **options: Any
) -> LiveScan:
    wanted = Request(topic=TOPIC, prefers_store=True, isolation_level=level)
    return LiveScan(lambda: cluster, wanted, source=open_source(root), options=ReadOptions(**options))


def by_locations(cluster: FakeCluster, *, fault: Callable[[str], None] = lambda name: None, **options: Any) -> LiveScan:
    def opened(on_refresh: Callable[[], None]) -> tuple[UrlCache, LocatedStore]:
        urls = UrlCache(on_refresh)
        return urls, LocatedStore(
            urls, list(cluster.logs[TOPIC].values()), lambda name, url: fault(url.partition("?")[0])
        )

    wanted = Request(topic=TOPIC)
    return LiveScan(lambda: cluster, wanted, open_located=opened, options=ReadOptions(**options))


def read(scan: LiveScan) -> tuple[list[int], SegreaderError | None]:
    """The offsets that came, and the error that ended the read."""
    found: list[int] = []
    with scan:
        try:
            for record in scan.records():
                found.append(record.offset)
        except SegreaderError as error:
            return found, error
    return found, None


def below(stop: int) -> list[int]:
    return [offset for offset in COMMITTED if offset < stop]


def without(number: int) -> list[int]:
    start, stop = BOUNDS[number]
    return [offset for offset in COMMITTED if not start <= offset < stop]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_what_lies_before_a_lost_log_is_delivered_and_the_error_names_it(
    cluster: FakeCluster, root: Path, number: int
) -> None:
    lost = lose(root, cluster, number)
    start = BOUNDS[number][0]
    offsets, error = read(by_store(cluster, root))

    assert offsets == below(start)
    assert isinstance(error, SegmentGapError)
    assert error.offset == start
    assert lost.stem in str(error)
    assert "without its log" in str(error)
    assert "UNKNOWN_SERVER_ERROR (-1)" in str(error)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_read_that_may_have_gaps_goes_on_behind_a_lost_log(cluster: FakeCluster, root: Path, number: int) -> None:
    lost = lose(root, cluster, number)
    scan = by_store(cluster, root, on_gap="skip")

    assert read(scan) == (without(number), None)
    (missing,) = scan.metrics.missing
    assert (missing.start, missing.stop) == BOUNDS[number]
    assert lost.stem in missing.error


def test_a_segment_of_which_nothing_is_left_is_named_by_its_offsets(cluster: FakeCluster, root: Path) -> None:
    lost = lose(root, cluster, 1)
    for other in lost.parent.glob(f"{lost.stem}*"):
        other.unlink()
    offsets, error = read(by_store(cluster, root))

    assert offsets == below(20)
    assert "no segment of the store has offsets 20 to 39 behind" in str(error)


def test_an_index_that_leaves_all_to_a_broker_is_named_where_that_one_fails(cluster: FakeCluster, root: Path) -> None:
    (index,) = root.glob(f"*/{40:020d}-*.txnindex")
    index.write_bytes(index.read_bytes()[:-1])
    cluster.lost.add("segment-1")
    offsets, error = read(by_store(cluster, root))

    assert offsets == below(20)
    assert isinstance(error, SegmentGapError)
    assert error.offset == 20
    assert index.name in str(error)


def test_two_lost_logs_are_two_gaps(cluster: FakeCluster, root: Path) -> None:
    lose(root, cluster, 0)
    lose(root, cluster, 2)
    scan = by_store(cluster, root, on_gap="skip")

    assert read(scan) == ([*range(20, 30), *range(60, 80)], None)
    assert [(one.start, one.stop) for one in scan.metrics.missing] == [BOUNDS[0], BOUNDS[2]]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_log_that_vanishes_behind_the_plan_is_named_with_its_offset(
    cluster: FakeCluster, root: Path, number: int
) -> None:
    scan = by_store(cluster, root)
    assert {part.read_from for part in scan.plan().parts} == {ReadFrom.STORE}
    lost = lose(root, cluster, number)
    offsets, error = read(scan)

    start, stop = BOUNDS[number]
    assert offsets == below(start)
    assert isinstance(error, ObjectNotFoundError)
    assert (error.source, error.offset) == (str(lost), start)
    assert f"Offsets {start} to {stop - 1} cannot be read from the broker either" in str(error)
    assert "UNKNOWN_SERVER_ERROR" in str(error)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_log_that_vanishes_behind_the_plan_may_be_passed_over(cluster: FakeCluster, root: Path, number: int) -> None:
    scan = by_store(cluster, root, on_missing="skip")
    scan.plan()
    lost = lose(root, cluster, number)

    assert read(scan) == (without(number), None)
    (missing,) = scan.metrics.missing
    assert (missing.start, missing.stop) == BOUNDS[number]
    assert lost.name in missing.error


def test_a_lost_log_that_the_broker_can_still_read_costs_nothing_but_a_note(cluster: FakeCluster, root: Path) -> None:
    lose(root, cluster, 1)
    cluster.lost.clear()
    scan = by_store(cluster, root)

    assert read(scan) == (COMMITTED, None)
    assert scan.metrics.missing == []


def test_uncommitted_records_before_a_lost_log_are_delivered(cluster: FakeCluster, root: Path) -> None:
    lose(root, cluster, 2)
    offsets, error = read(by_store(cluster, root, level=IsolationLevel.READ_UNCOMMITTED))

    assert offsets == list(range(40))
    assert isinstance(error, SegmentGapError)


@pytest.mark.parametrize("lists_aborted", [False, True])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_broker_that_fails_and_tells_no_location_ends_a_read_where_it_fails(
    cluster: FakeCluster, number: int, lists_aborted: bool
) -> None:
    lost_by_gateway(cluster, number, lists_aborted=lists_aborted)
    offsets, error = read(by_locations(cluster))

    assert offsets == below(BOUNDS[number][0])
    assert isinstance(error, BrokerError)
    assert error.offset == BOUNDS[number][0]
    assert error.code == -1
    assert "on_gap='skip'" in str(error)


@pytest.mark.parametrize("lists_aborted", [False, True])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_read_by_locations_goes_on_behind_what_the_broker_cannot_read(
    cluster: FakeCluster, number: int, lists_aborted: bool
) -> None:
    lost_by_gateway(cluster, number, lists_aborted=lists_aborted)
    scan = by_locations(cluster, on_gap="skip")

    assert read(scan) == (without(number), None)
    (missing,) = scan.metrics.missing
    assert (missing.start, missing.stop) == BOUNDS[number]


def lost_by_gateway(cluster: FakeCluster, number: int, *, lists_aborted: bool) -> None:
    """A gateway that does not find the object tells no location, and its broker fails to read the segment."""
    good, lost = locations(with_index=not lists_aborted), f"segment-{number}"

    def locate(segment: ServedSegment, at: int, last: int) -> Any:
        return None if segment.segment_id == lost else good(segment, at, last)

    cluster.locate_one, cluster.lists_aborted = locate, lists_aborted
    cluster.lost.add(lost)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_located_object_that_is_lost_is_named_without_its_signature(cluster: FakeCluster, number: int) -> None:
    cluster.locate_one = locations()
    cluster.lost.add(f"segment-{number}")
    offsets, error = read(by_locations(cluster, fault=gone(number)))

    assert offsets == below(BOUNDS[number][0])
    assert isinstance(error, ObjectNotFoundError)
    assert (error.source or "").endswith(f"/segment-{number}.log")
    assert error.offset == BOUNDS[number][0]
    assert CANARY not in str(error)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_located_object_that_is_lost_may_be_passed_over(cluster: FakeCluster, number: int) -> None:
    cluster.locate_one = locations()
    cluster.lost.add(f"segment-{number}")
    scan = by_locations(cluster, fault=gone(number), on_missing="skip")

    assert read(scan) == (without(number), None)
    (missing,) = scan.metrics.missing
    assert (missing.start, missing.stop) == BOUNDS[number]
    assert CANARY not in missing.error


def gone(number: int) -> Callable[[str], None]:
    def fault(url: str) -> None:
        if f"segment-{number}." in url:
            raise ObjectNotFoundError("no such object", source=url)

    return fault


def test_a_damaged_object_is_no_missing_one(cluster: FakeCluster) -> None:
    def fault(url: str) -> None:
        if "segment-1." in url:
            raise WrongAnswerError("other bytes", source=url)

    cluster.locate_one = locations()
    cluster.lost.add("segment-1")
    offsets, error = read(by_locations(cluster, fault=fault, on_missing="skip"))

    assert offsets == below(20)
    assert isinstance(error, WrongAnswerError)


def test_a_right_that_is_missing_ends_planning(
    cluster: FakeCluster, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AuthorizationError("no right to READ topic orders", code=29)

    lose(root, cluster, 2)
    monkeypatch.setattr(FakeCluster, "fetcher", refuse)
    with pytest.raises(AuthorizationError):
        by_store(cluster, root).plan()


@pytest.fixture
def served(root: Path) -> Iterator[list[str]]:
    """The options of a command that reads the topic from a store and from a broker over real sockets."""
    log = tiered_log(root, TOPIC, segments(), uploaded=4, local_from=3)
    with served_cluster({TOPIC: {0: log}}) as one:
        lose(root, one.cluster, 1)
        brokers = ["--bootstrap-servers", one.bootstrap, "--prefer", "store", "-o", "ndjson"]
        quick = [f"--broker-option={name}=1" for name in ("retry.backoff.ms", "retry.backoff.max.ms")]
        yield [str(root), TOPIC, *brokers, *quick]


def test_cat_prints_what_lies_before_a_lost_object_and_names_it(
    served: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cat", *served]) == 5
    out, told = capsys.readouterr()

    assert out.count("\n") == 20
    assert "00000000000000000020-" in told
    assert "offset 20" in told
    assert "UNKNOWN_SERVER_ERROR (-1)" in told


def test_cat_goes_on_behind_a_lost_object_if_told_to(served: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cat", *served, "--on-gap", "skip"]) == 1
    out, told = capsys.readouterr()

    assert out.count("\n") == len(without(1))
    assert "offsets 20 to 39" in told
