"""A scan over remote and live data, served by a simulated cluster, against what the Java consumer returned."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from corpus import Case, NormalRecord, case, cases, normal
from fake_cluster import FakeCluster, of_corpus
from sample import at_each_edge_once, exhaustive

import segreader
from segreader.broker.messages import EARLIEST, LATEST, ListedOffset, OffsetWanted
from segreader.errors import OffsetOutOfRangeError, OptionError, ProtocolError, TruncatedLogError
from segreader.isolation import IsolationLevel
from segreader.live.scan import LiveScan
from segreader.plan.live import ReadFrom
from segreader.plan.request import ReadOptions, Request, parse_bounds
from segreader.plan.split import EndReason
from segreader.stored.source import Source, open_source

LIVE = [one for one in cases("tv2", "tv1", "k39", "cluster") if one.local]
TIERED = [one for one in LIVE if one.remote]
ODD = "odd-offsets"
"""A record lies behind the end of its batch's header there: a broker asked at its offset begins with the next batch."""


def cluster_of(one: Case, **arguments: Any) -> FakeCluster:
    numbers = [int(path.name.rpartition("-")[2]) for path in one.local]
    logs = {one.topic: {number: of_corpus(one, number) for number in numbers}}
    return FakeCluster(logs, topic_ids={one.topic: one.topic_id}, **arguments)


def live(
    cluster: FakeCluster, topic: str, *, source: Source | None = None, offsets: Any = None, **arguments: Any
) -> LiveScan:
    how = {one.name for one in fields(ReadOptions)} & arguments.keys()
    options = ReadOptions(**{name: arguments.pop(name) for name in how})
    group = arguments.pop("group", None)
    request = Request(topic=topic, bounds=parse_bounds(offsets, group=group), **arguments)
    return LiveScan(lambda: cluster, request, source=source, options=options)


def level_of(isolation: str) -> IsolationLevel:
    return IsolationLevel(f"read_{isolation}")


def records_of(scan: LiveScan) -> list[NormalRecord]:
    with scan:
        return [normal(record) for record in scan.records()]


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize("one", at_each_edge_once(LIVE), ids=str)
def test_a_broker_alone_gives_the_java_consumers_records(one: Case, isolation: str) -> None:
    chance = random.Random(f"{one} {isolation}")
    cluster = cluster_of(one, chance=chance, largest=chance.choice([300, 5000, 1 << 20]))
    scan = live(cluster, one.topic, isolation_level=level_of(isolation))

    assert records_of(scan) == one.truth(isolation)
    assert {part.read_from for part in scan.plan().parts} <= {ReadFrom.BROKER}
    assert scan.metrics.sources["broker"].records == scan.metrics.records == len(one.truth(isolation))


@pytest.mark.parametrize(
    ("isolation", "prefers_store"),
    [("committed", False), ("committed", True), ("uncommitted", True), exhaustive("uncommitted", False)],
)
@pytest.mark.parametrize("one", at_each_edge_once(TIERED), ids=str)
def test_the_store_and_a_broker_give_them_together(one: Case, isolation: str, prefers_store: bool) -> None:
    cluster = cluster_of(one, chance=random.Random(str(one)))
    scan = live(
        cluster,
        one.topic,
        source=open_source(one.root / "remote"),
        isolation_level=level_of(isolation),
        prefers_store=prefers_store,
    )

    assert records_of(scan) == one.truth(isolation)
    assert scan.metrics.fallbacks == {}
    sources = scan.metrics.sources
    assert sources["store"].records + sources["broker"].records == len(one.truth(isolation))
    for told in scan.plan().partitions_asked:
        assert (told.seam.seam > told.seam.start) == any(
            part.read_from is ReadFrom.STORE and part.partition == told.partition for part in scan.plan().parts
        )


@pytest.mark.parametrize("one", at_each_edge_once(one for one in TIERED if one.topic != ODD), ids=str)
def test_any_range_of_offsets_is_what_the_whole_holds_there(one: Case) -> None:
    chance = random.Random(str(one))
    source = open_source(one.root / "remote")
    for isolation in ("uncommitted", "committed"):
        whole = one.truth(isolation)
        starts, stops = (one.facts[isolation][name] for name in ("start", "stop"))
        for _ in range(4):
            number = chance.choice(sorted(map(int, stops)))
            start = chance.randint(starts[str(number)], stops[str(number)])
            stop = chance.choice([start, start + 1, chance.randint(start, stops[str(number)] + 2)])
            scan = live(
                cluster_of(one, chance=chance),
                one.topic,
                source=source,
                offsets=(start, stop),
                partitions=(number,),
                isolation_level=level_of(isolation),
            )
            found = records_of(scan)
            assert found == [r for r in whole if r.partition == number and start <= r.offset < stop]


@pytest.mark.parametrize("kernel", ["native", "reference"])
def test_both_kernels_read_fetched_records(kernel: str) -> None:
    one = case("tv2", "txn-interleaved")

    assert records_of(live(cluster_of(one, largest=500), one.topic, kernel=kernel)) == one.truth("committed")


def test_parts_of_a_plan_pickle_and_are_read_one_by_one() -> None:
    one = case("tv2", "txn-span")
    scan = live(cluster_of(one), one.topic, source=open_source(one.root / "remote"))
    plan = pickle.loads(pickle.dumps(scan.plan()))

    assert plan == scan.plan()
    assert len(plan.parts) > 1
    assert [part.offsets.stop for part in plan.parts[:-1]] == [part.offsets.start for part in plan.parts[1:]]


def test_the_end_is_a_snapshot_taken_once() -> None:
    one = case("tv2", "codec-none")
    cluster = cluster_of(one)
    log = cluster.logs[one.topic][0]
    last = log.batches[-1]
    log.high_watermark = last.base_offset
    scan = live(cluster, one.topic)
    (end,) = scan.plan().ends
    log.high_watermark = log.end

    assert (end.offset, end.reason) == (last.base_offset, EndReason.LATEST_STABLE)
    assert max(record.offset for record in scan.records()) < last.base_offset


def test_bounds_are_numbers_or_names_of_ends() -> None:
    one = case("tv2", "txn-open")
    log = of_corpus(one)
    assert log.stable < log.readable

    def end_of(offsets: str, isolation: str) -> tuple[int | None, EndReason]:
        (end,) = live(cluster_of(one), one.topic, offsets=offsets, isolation_level=level_of(isolation)).plan().ends
        return end.offset, end.reason

    assert end_of(":", "uncommitted") == (log.readable, EndReason.LATEST)
    assert end_of("earliest:latest", "uncommitted") == (log.readable, EndReason.LATEST)
    assert end_of(":latest-stable", "uncommitted") == (log.stable, EndReason.LATEST_STABLE)
    assert end_of(":latest", "committed") == (log.stable, EndReason.LATEST_STABLE)
    assert end_of(f"0:{log.stable - 1}", "committed") == (log.stable - 1, EndReason.REQUESTED)
    assert end_of(f"0:{log.readable + 9}", "committed") == (log.stable, EndReason.LATEST_STABLE)
    with pytest.raises(OptionError):
        parse_bounds("latest:5")


def test_offsets_below_the_log_start_are_refused_or_reported() -> None:
    one = case("tv2", "delete-records")
    start = one.facts["uncommitted"]["start"]["0"]
    assert start > 0

    with pytest.raises(OffsetOutOfRangeError) as caught:
        live(cluster_of(one), one.topic, offsets="0:").plan()
    assert f"begins at {start}" in str(caught.value)
    scan = live(cluster_of(one), one.topic, offsets="0:", on_gap="skip")
    assert records_of(scan) == one.truth("committed")
    assert [(gap.start, gap.stop) for gap in scan.plan().gaps] == [(0, start)]


def test_offsets_behind_the_end_are_refused() -> None:
    one = case("tv2", "codec-none")
    end = of_corpus(one).end

    assert live(cluster_of(one), one.topic, offsets=(end, None)).plan().parts == ()
    with pytest.raises(OffsetOutOfRangeError):
        live(cluster_of(one), one.topic, offsets=(end + 1, None)).plan()


def test_a_groups_committed_offsets_are_where_to_begin() -> None:
    one = case("tv2", "multi")
    cluster = cluster_of(one)
    cluster.committed["readers", one.topic, 1] = (3, 0)
    scan = live(cluster, one.topic, group="readers")

    assert records_of(scan) == [r for r in one.truth("committed") if r.partition != 1 or r.offset >= 3]
    assert sum("has committed nothing" in note for note in scan.plan().notes) == len(one.local) - 1
    with pytest.raises(OptionError):
        parse_bounds("5:", group="readers")


def test_a_committed_offset_of_a_lost_branch_is_refused() -> None:
    one = case("cluster", "diverged")
    cluster = cluster_of(one)
    lost_epoch, _ = cluster.logs[one.topic][0].lineage[0]
    end = cluster.logs[one.topic][0].lineage[1][1]
    cluster.committed["readers", one.topic, 0] = (end + 1, lost_epoch)

    with pytest.raises(TruncatedLogError) as caught:
        live(cluster, one.topic, group="readers").plan()
    assert caught.value.offset == end


def test_brokers_that_do_not_tell_the_local_start_are_read_from_all_the_same() -> None:
    one = case("k39", "txn-interleaved")
    for source in (None, open_source(one.root / "remote")):
        assert records_of(live(cluster_of(one, version=7), one.topic, source=source)) == one.truth("committed")


def test_what_the_store_lacks_comes_from_the_broker(tmp_path: Any) -> None:
    one = case("tv2", "txn-span")
    folder = tmp_path / one.remote[0].name
    folder.mkdir()
    files = sorted(one.remote[0].glob("*.log"))
    for kept in files[1:]:
        for path in one.remote[0].glob(f"{kept.stem}.*"):
            (folder / path.name).write_bytes(path.read_bytes())
    scan = live(cluster_of(one), one.topic, source=open_source(tmp_path))

    assert records_of(scan) == one.truth("committed")
    assert [part.read_from for part in scan.plan().parts][:2] == [ReadFrom.BROKER, ReadFrom.STORE]
    assert any("are not in the store" in note for note in scan.plan().notes)


def test_a_damaged_segment_is_read_from_the_broker_and_counted(tmp_path: Any) -> None:
    one = case("tv2", "codec-none")
    folder = tmp_path / one.remote[0].name
    folder.mkdir()
    for path in one.remote[0].iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    log = sorted(folder.glob("*.log"))[0]
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    scan = live(cluster_of(one), one.topic, source=open_source(tmp_path))

    assert records_of(scan) == one.truth("committed")
    assert dict(scan.metrics.fallbacks) == {"segment_corrupt": 1}
    assert scan.metrics.sources["broker"].records > 0


def test_a_store_of_another_topic_of_that_name_is_not_read() -> None:
    one = case("tv2", "recreated")
    source = open_source(one.root / "remote")

    assert records_of(live(cluster_of(one), one.topic, source=source)) == one.truth("committed")


@pytest.mark.parametrize("topic", ["diverged", "diverged-txn", "diverged-hanging", "diverged-mid"])
@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
def test_lost_branches_in_the_store_are_not_read_and_what_it_lacks_comes_from_the_broker(
    topic: str, isolation: str
) -> None:
    one = case("cluster", topic)
    cluster = cluster_of(one)
    for log in cluster.logs[topic].values():
        log.local_start, log.last_tiered = log.end, log.end - 1
    source = open_source(one.root / "remote")
    scan = live(cluster, topic, source=source, isolation_level=level_of(isolation))

    assert records_of(scan) == one.truth(isolation)
    assert scan.metrics.fallbacks == {}


@pytest.mark.parametrize("set_name", ["tv2", "tv1", "k39"])
def test_a_transaction_whose_marker_is_not_uploaded_is_judged_by_the_broker(set_name: str) -> None:
    one = case(set_name, "txn-marker-active")
    cluster = cluster_of(one)
    (log,) = cluster.logs[one.topic].values()
    log.local_start = log.last_tiered + 1
    assert any(first < log.local_start <= marker for _, first, marker in log.aborted())
    scan = live(cluster, one.topic, source=open_source(one.root / "remote"))

    assert records_of(scan) == one.truth("committed")
    assert scan.metrics.sources["store"].records > 0


def test_plans_are_told_in_words() -> None:
    one = case("tv2", "txn-open")
    text = str(live(cluster_of(one), one.topic, source=open_source(one.root / "remote")).plan())

    assert "from the object store, to" in text
    assert "the last stable one of the live log" in text


@pytest.mark.parametrize("mark", [EARLIEST, LATEST], ids=["earliest", "latest"])
def test_a_broker_that_lists_no_end_is_a_protocol_error(mark: int) -> None:
    cluster = cluster_of(case("tv2", "txn-span"))
    told = cluster.list_offsets

    def listed(wanted: Sequence[OffsetWanted], isolation_level: IsolationLevel) -> Sequence[ListedOffset]:
        answers = told(wanted, isolation_level)
        return [replace(a, offset=-1) if w.timestamp == mark else a for w, a in zip(wanted, answers, strict=True)]

    cluster.list_offsets = listed  # type: ignore[method-assign]
    with pytest.raises(ProtocolError, match="lists no offset"):
        live(cluster, case("tv2", "txn-span").topic).plan()


@pytest.mark.parametrize(
    "servers", ["u:SuperSecret123@h:1", "b:9092,u:SuperSecret123@h:1", "SASL_SSL://u:SuperSecret123@h:1"]
)
def test_brokers_are_named_without_a_user_and_a_password_is_not_shown(servers: str) -> None:
    given: list[dict[str, Any]] = [
        {"location": f"kafka://{servers}"},
        {"bootstrap_servers": servers},
        {"bootstrap_servers": servers, "location": "kafka://b:9092"},
        {"bootstrap_servers": servers.split(",")},
    ]
    for arguments in given:
        with pytest.raises(OptionError, match=r"named by its brokers alone.*a user with broker options") as refused:
            segreader.scan(topic="t", **arguments)
        assert "SuperSecret123" not in str(refused.value)
