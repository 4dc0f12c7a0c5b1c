"""What real brokers uploaded, read as a stream in small batches: the Java consumer's records, each once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from corpus import FIXTURES, Case, NormalRecord, cases, normal
from sample import is_edge, sampled
from thousand import near_always

from segreader.format.batch import TimestampType
from segreader.spark.options import parse_stream_options
from segreader.spark.rate_limits import ReadMaxBytes, ReadMaxRows
from segreader.spark.stream import SegmentStreamReader
from segreader.stored import near

COMMITTED = cases("tv2", "cluster", "aiven-plain", "aiven-encrypted", remote=True)
UNCOMMITTED = cases("tv1", "k39", remote=True)
RUNS = [
    (case, isolation)
    for isolation, chosen in (("committed", COMMITTED), ("uncommitted", UNCOMMITTED))
    for case in chosen
]
IDS = [f"{case}-{isolation}" for case, isolation in RUNS]
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def stream_of(case: Case, isolation: str) -> SegmentStreamReader:
    options = {"location": str(case.root / "remote"), "subscribe": case.topic, "isolationLevel": f"read_{isolation}"}
    if case.set_name == "aiven-encrypted":
        options["rsmConfig"] = str(FIXTURES / "aiven-encrypted.properties")
    if case.topic == "diverged-hanging":  # a location alone does not tell that a segment is dead
        options["leaderEpochs"] = str(case.root / "local")
    if case.topic == "recreated":
        options["topicId"] = case.topic_id
    return SegmentStreamReader(parse_stream_options(options), COLUMNS, wait=lambda _: None)


def rows(stream: SegmentStreamReader, limit: Any) -> Iterator[dict[str, Any]]:
    """Every row, batch after batch, as ``AvailableNow`` does it."""
    stream.prepareForTriggerAvailableNow()
    start = stream.initialOffset()
    while (end := stream.latestOffset(start, limit)) != start:
        for partition in stream.partitions(start, end):
            for batch in stream.read(partition):
                yield from batch.to_pylist()
        start = end


def record(row: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        timestamp_ms=round(row["timestamp"].timestamp() * 1000),
        timestamp_type=TimestampType(row["timestampType"]),
        leader_epoch=None,
        key=row["key"],
        value=row["value"],
        headers=[(header["key"], header["value"]) for header in row["headers"] or ()],
    )


@pytest.mark.parametrize("is_near", [False, True])
@pytest.mark.parametrize(("case", "isolation"), sampled(RUNS, lambda run: is_edge(run[0])), ids=IDS)
def test_a_stream_in_small_batches_gives_the_java_consumers_records(
    case: Case, isolation: str, is_near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_near:
        near_always(monkeypatch)
        monkeypatch.setattr(near, "_LEAST_SPAN_MS", 0)
    stop = case.offline_lso if isolation == "committed" else case.remote_stop
    truth = [one for one in case.truth(isolation) if one.offset < stop(one.partition)]
    by_rows = isolation == "committed" and case.topic != "odd-offsets"  # there offsets fall: no cut inside a batch
    limit = ReadMaxRows(max(1, len(truth) // 3)) if by_rows else ReadMaxBytes(50_000)
    found = [normal(record(row)) for row in rows(stream_of(case, isolation), limit)]
    log_start = case.facts[isolation]["start"]  # of DeleteRecords, which segments do not show

    assert sorted((one for one in found if one.offset >= log_start[str(one.partition)]), key=order) == [
        replace(one, leader_epoch=None) for one in truth
    ]


def order(one: NormalRecord) -> tuple[int, int]:
    return one.partition, one.offset
