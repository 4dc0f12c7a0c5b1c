"""Every case of the corpus through the library, both kernels, against what the Java consumer returned."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import Case, NormalRecord, cases, normal

import segreader
from segreader.errors import AmbiguousTopicError

KERNELS = ["native", "reference"]


def read(
    root: Path, case: Case, isolation: str, kernel: str, topic_id: str | None
) -> tuple[list[NormalRecord], int | None]:
    """What a scan gives, and the offset from which on it could not decide, if it says so."""
    scan = segreader.scan(root, topic=case.topic, topic_id=topic_id, isolation_level=f"read_{isolation}", kernel=kernel)
    seen = [normal(record) for record in scan.records()]
    assert scan.metrics.kernel == kernel
    assert scan.metrics.records == len(seen)
    early = [end.offset for end in scan.plan().ends if end.reason.is_early]
    assert not early or isolation == "committed"
    return seen, early[0] if early else None


def log_start(case: Case, isolation: str, partition: int) -> int:
    return int(case.facts[isolation]["start"][str(partition)])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize("case", cases("tv2", "tv1", "k39", remote=True), ids=str)
def test_remote_segments_give_the_java_consumers_records(case: Case, isolation: str, kernel: str) -> None:
    seen, undecided = read(case.remote_root, case, isolation, kernel, case.topic_id)
    stop = case.remote_stop if isolation == "uncommitted" else lambda p: min(case.remote_stop(p), case.offline_lso(p))
    # segments may begin below the log start offset that DeleteRecords set: only a broker knows that one
    seen = [record for record in seen if record.offset >= log_start(case, isolation, record.partition)]
    assert seen == [record for record in case.truth(isolation) if record.offset < stop(record.partition)]
    is_whole = all(case.offline_lso(p) >= case.remote_stop(p) for p in range(len(case.remote)))
    assert (undecided is None) == (isolation == "uncommitted" or is_whole)
    if undecided is not None:
        assert undecided == case.offline_lso(0)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
@pytest.mark.parametrize("case", [case for case in cases() if case.local], ids=str)
def test_a_brokers_own_directory_gives_the_java_consumers_records(case: Case, isolation: str, kernel: str) -> None:
    seen, undecided = read(case.root / "local", case, isolation, kernel, None)
    first = {int(d.name.rpartition("-")[2]): min(int(f.stem) for f in d.glob("*.log")) for d in case.local}
    assert seen == [record for record in case.truth(isolation) if record.offset >= first[record.partition]]
    stop = case.facts["committed"]["stop"]
    if undecided is not None:
        assert undecided == int(stop["0"]) < int(case.facts["uncommitted"]["stop"]["0"])


@pytest.mark.parametrize("split_bytes", [1, 1000, 5000])
@pytest.mark.parametrize("case", cases("tv2", "tv1", "k39", remote=True), ids=str)
def test_splits_of_any_size_give_the_same_records(case: Case, split_bytes: int) -> None:
    for level in ("read_uncommitted", "read_committed"):
        whole, cut = (
            segreader.scan(
                case.remote_root,
                topic=case.topic,
                topic_id=case.topic_id,
                isolation_level=level,
                split_bytes=size,
            )
            for size in (1 << 30, split_bytes)
        )
        assert len(cut.plan().splits) >= len(whole.plan().splits)
        answers = []
        for scan in (whole, cut):
            answers.append((list(map(normal, scan.records())), scan.plan().ends))
        assert answers[0] == answers[1]


@pytest.mark.parametrize("topic", ["txn-span", "codec-zstd", "multi", "compacted-then-tiered"])
def test_any_range_of_offsets_is_what_the_whole_holds_there(topic: str) -> None:
    case = next(c for c in cases("tv2") if c.topic == topic)
    truth = case.truth("committed")
    last = max(record.offset for record in truth)
    step = max(1, last // 23)
    for start in range(0, last + 2, step):
        for stop in (start, start + 1, start + step, last + 1):
            scan = segreader.scan(case.remote_root, topic=topic, topic_id=case.topic_id, offsets=(start, stop))
            assert [normal(r) for r in scan.records()] == [r for r in truth if start <= r.offset < stop]


def test_one_name_with_two_topic_ids_is_refused_unless_one_is_chosen() -> None:
    case = next(c for c in cases("tv2") if c.topic == "recreated")
    old = case.facts["old_topic_id"]
    with pytest.raises(AmbiguousTopicError) as caught:
        segreader.scan(case.remote_root, topic="recreated").plan()
    assert old in str(caught.value)
    assert case.topic_id in str(caught.value)
    assert segreader.scan(case.remote_root, topic="recreated", topic_id=old).to_arrow().num_rows > 0
