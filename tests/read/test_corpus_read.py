"""Every case of the corpus through the library, both kernels, against what the Java consumer returned."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from corpus import FIXTURES, Case, NormalRecord, cases, normal
from sample import at_each_edge_once, edges_once, exhaustive, is_first_of_its_topic, sampled

import segreader
from segreader.errors import AmbiguousTopicError
from segreader.format import native_codecs

KERNELS = ["native", "reference"]
SETS = ("tv2", "tv1", "k39", "cluster", "aiven-plain", "aiven-zstd", "aiven-encrypted")
REMOTE = cases(*SETS, remote=True)
EDGES = edges_once(REMOTE)
LOCAL = [case for case in cases() if case.local]


def by_kernels(chosen: list[Case]) -> list[Any]:
    """Every case by the native kernel; by the reference, which tests/format holds equal to it, one of each shape."""
    by_reference = [(case, "reference") for case in chosen]
    return [(case, "native") for case in chosen] + sampled(by_reference, lambda pair: is_first_of_its_topic(pair[0]))


HANGING = "diverged-hanging"
"""Remote files alone do not show that its newest segments are dead: a checkpoint of the live log must be given."""


def options(case: Case) -> dict[str, Any]:
    """What a user must say of a case besides its location."""
    given: dict[str, Any] = {"topic": case.topic, "topic_id": case.topic_id}
    if case.set_name == "aiven-encrypted":
        given["rsm_config"] = FIXTURES / "aiven-encrypted.properties"
    if case.topic == HANGING:
        given["leader_epochs"] = case.root / "local"
    return given


def root(case: Case) -> Path:
    return case.root / "remote"


def stop_of(case: Case, isolation: str, partition: int) -> int:
    """First offset that remote files alone cannot give."""
    stop = case.remote_stop(partition)
    return stop if isolation == "uncommitted" else min(stop, case.offline_lso(partition))


def truth(case: Case, isolation: str) -> list[NormalRecord]:
    return [record for record in case.truth(isolation) if record.offset < stop_of(case, isolation, record.partition)]


def from_log_start(case: Case, isolation: str, records: list[NormalRecord]) -> list[NormalRecord]:
    """Without those below the log start offset that DeleteRecords set: segments may begin below it."""
    start = case.facts[isolation]["start"]
    return [record for record in records if record.offset >= start[str(record.partition)]]


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize(("case", "kernel"), by_kernels(REMOTE), ids=str)
def test_remote_segments_give_the_java_consumers_records(case: Case, isolation: str, kernel: str) -> None:
    scan = segreader.scan(root(case), isolation_level=f"read_{isolation}", kernel=kernel, **options(case))
    seen = [normal(record) for record in scan.records()]
    assert scan.metrics.kernel == kernel
    assert scan.metrics.records == len(seen)
    assert from_log_start(case, isolation, seen) == truth(case, isolation)
    assert not scan.plan().gaps
    for end in scan.plan().ends:
        partition = end.partition.partition
        is_early = isolation == "committed" and case.offline_lso(partition) < case.remote_stop(partition)
        assert end.reason.is_early == is_early
        if is_early:
            assert end.offset == case.offline_lso(partition)


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize("case", sampled(REMOTE, lambda case: "codec" in case.topic), ids=str)
def test_without_native_codecs_the_same_records_come(
    case: Case, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(native_codecs.VARIABLE, "none")
    scan = segreader.scan(root(case), isolation_level=f"read_{isolation}", kernel="native", **options(case))
    assert from_log_start(case, isolation, list(map(normal, scan.records()))) == truth(case, isolation)


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize(
    ("case", "segments_from"),
    sampled(((case, "both") for case in REMOTE), lambda pair: pair[0] in EDGES)
    + sampled(((case, "metadata") for case in REMOTE), lambda pair: pair[0].set_name in ("cluster", "aiven-zstd")),
    ids=str,
)
def test_with_the_metadata_topic_the_same_records_come(case: Case, isolation: str, segments_from: str) -> None:
    given = options(case) | {"metadata": case.root / "metadata", "segments_from": segments_from, "topic_id": None}
    scan = segreader.scan(root(case), isolation_level=f"read_{isolation}", **given)
    assert from_log_start(case, isolation, list(map(normal, scan.records()))) == truth(case, isolation)


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize("case", at_each_edge_once(case for case in REMOTE if case.local), ids=str)
def test_a_brokers_log_directory_beside_the_remote_tier_completes_it(case: Case, isolation: str) -> None:
    given = options(case) | {"log_directory": case.root / "local"}
    scan = segreader.scan(root(case), isolation_level=f"read_{isolation}", **given)
    assert from_log_start(case, isolation, list(map(normal, scan.records()))) == case.truth(isolation)


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize(("case", "kernel"), by_kernels(LOCAL), ids=str)
def test_a_brokers_own_directory_gives_the_java_consumers_records(case: Case, isolation: str, kernel: str) -> None:
    scan = segreader.scan(case.root / "local", topic=case.topic, isolation_level=f"read_{isolation}", kernel=kernel)
    seen = [normal(record) for record in scan.records()]
    first = {int(d.name.rpartition("-")[2]): min(int(f.stem) for f in d.glob("*.log")) for d in case.local}
    assert seen == [record for record in case.truth(isolation) if record.offset >= first[record.partition]]
    for end in scan.plan().ends:
        if end.reason.is_early:
            stop = case.facts["committed"]["stop"]
            assert end.offset == int(stop["0"]) < int(case.facts["uncommitted"]["stop"]["0"])


@pytest.mark.parametrize("split_bytes", [1, exhaustive(1000), 5000])
@pytest.mark.parametrize("case", at_each_edge_once(REMOTE), ids=str)
def test_splits_of_any_size_give_the_same_records(case: Case, split_bytes: int) -> None:
    for level in ("read_uncommitted", "read_committed"):
        whole, cut = (
            segreader.scan(root(case), isolation_level=level, split_bytes=size, **options(case))
            for size in (1 << 30, split_bytes)
        )
        assert len(cut.plan().splits) >= len(whole.plan().splits)
        assert list(map(normal, cut.records())) == list(map(normal, whole.records()))
        assert cut.plan().ends == whole.plan().ends


@pytest.mark.parametrize(
    ("threads", "read_ahead_bytes"), [exhaustive(2, 1 << 28), exhaustive(2, 1), exhaustive(8, 20_000), (8, 1 << 28)]
)
@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize("case", at_each_edge_once(REMOTE), ids=str)
def test_several_threads_give_the_java_consumers_records(
    case: Case, isolation: str, threads: int, read_ahead_bytes: int
) -> None:
    given = {"isolation_level": f"read_{isolation}", "split_bytes": 1, "batch_rows": 3, **options(case)}
    with segreader.scan(root(case), threads=threads, read_ahead_bytes=read_ahead_bytes, **given) as scan:
        seen = list(map(normal, scan.records()))
    assert from_log_start(case, isolation, seen) == truth(case, isolation)
    with segreader.scan(root(case), threads=1, **given) as alone:
        assert list(map(normal, alone.records())) == seen
    assert scan.metrics == alone.metrics


@pytest.mark.parametrize(
    ("threads", "read_ahead_bytes"), [exhaustive(1, 1 << 28), exhaustive(2, 1), exhaustive(8, 20_000), (8, 1 << 28)]
)
@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize("set_name", SETS)
def test_partitions_in_any_order_are_each_what_the_java_consumer_returned(
    set_name: str, isolation: str, threads: int, read_ahead_bytes: int
) -> None:
    chosen = [case for case in REMOTE if case.set_name == set_name]
    given: dict[str, Any] = {"split_bytes": 1, "batch_rows": 3, "order": "partition", **options(chosen[0])}
    given |= {"isolation_level": f"read_{isolation}", "threads": threads, "read_ahead_bytes": read_ahead_bytes}
    seen: dict[str, list[NormalRecord]] = {case.topic: [] for case in chosen}
    with segreader.scan(root(chosen[0]), **{**given, "topic": None, "topic_id": None}) as scan:
        for record in scan.records():
            seen[record.topic].append(normal(record))
    for case in chosen:
        if case.topic not in (HANGING, "recreated"):  # of the latter there are two, by their ids
            rows = sorted(seen[case.topic], key=lambda record: record.partition)
            assert from_log_start(case, isolation, rows) == truth(case, isolation)


@pytest.mark.parametrize("case", at_each_edge_once(REMOTE), ids=str)
def test_any_range_of_offsets_is_what_the_whole_holds_there(case: Case) -> None:
    chance = random.Random(str(case))
    for isolation in ("uncommitted", "committed"):
        whole = from_log_start(case, isolation, truth(case, isolation))
        last = max((record.offset for record in case.truth("uncommitted")), default=0)
        first = min(case.facts[isolation]["start"].values())
        for _ in range(6):
            start = chance.randint(first, last + 1)
            stop = chance.choice([start, start + 1, chance.randint(start, last + 2)])
            scan = segreader.scan(
                root(case), offsets=(start, stop), isolation_level=f"read_{isolation}", **options(case)
            )
            assert [normal(r) for r in scan.records()] == [r for r in whole if start <= r.offset < stop]


@pytest.mark.parametrize("kernel", KERNELS)
def test_ranges_give_no_record_that_a_whole_scan_drops(kernel: str) -> None:
    """Producers gave two records one offset, and a consumer is given the first of them."""
    case = next(case for case in REMOTE if case.topic == "odd-offsets")
    whole = truth(case, "uncommitted")
    for start in range(14):
        for stop in range(start, 15):
            scan = segreader.scan(root(case), offsets=(start, stop), kernel=kernel, **options(case))
            assert [normal(r) for r in scan.records()] == [r for r in whole if start <= r.offset < stop]


def test_without_the_live_lineage_nothing_shows_that_the_newest_segments_are_dead() -> None:
    """The limit that docs/reference/layouts/local-tiered.md names: the survivor has uploaded nothing of its own yet."""
    (case,) = [case for case in REMOTE if case.topic == HANGING]
    scan = segreader.scan(root(case), topic=case.topic, isolation_level="read_uncommitted")
    assert len(list(scan.records())) > len(truth(case, "uncommitted"))


def test_one_name_with_two_topic_ids_is_refused_unless_one_is_chosen() -> None:
    case = next(c for c in cases("tv2") if c.topic == "recreated")
    old = case.facts["old_topic_id"]
    with pytest.raises(AmbiguousTopicError) as caught:
        segreader.scan(case.remote_root, topic="recreated").plan()
    assert old in str(caught.value)
    assert case.topic_id in str(caught.value)
    assert segreader.scan(case.remote_root, topic="recreated", topic_id=old).to_arrow().num_rows > 0
