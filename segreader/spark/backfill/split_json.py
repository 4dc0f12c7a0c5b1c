"""A split of a job as JSON, and back: in ``_job/plan.json``, and on its way to a task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from segreader.format.transaction_index import AbortedTransaction
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.plan.live import LivePart, ReadFrom
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import TopicIdPartition
from segreader.spark.backfill.exact import JobSplit


def split_to_json(split: JobSplit) -> dict[str, Any]:
    """Everything that a task needs to read the split: names and numbers, no client and no secret."""
    if isinstance(split.read, LivePart):
        return _part_to_json(split, split.read)
    read = split.read
    document = {
        "topic": read.partition.topic,
        "partition": read.partition.partition,
        "topic_id": read.partition.topic_id,
        "start": split.start,
        "stop": split.stop,
        "log": read.log,
        "log_size": read.log_size,
        "positions": [read.positions.start, read.positions.stop],
        "offsets": [read.offsets.start, read.offsets.stop],
        "isolation": read.isolation_level.value,
        "aborted": _rows(read.aborted),
        "is_active": read.is_active,
        "base_offset": read.base_offset,
        "offset_index": read.offset_index,
        "offset_bound": read.offset_bound,
        "epochs": [list(epoch) for epoch in read.epochs],
        "is_padded": read.is_padded,
        "stop_of_part": read.stop_of_part,
        "first_bound": read.first_bound,
        "log_tag": read.log_tag,
        "timed": read.timed,
        "reaches": read.reaches,
        "following": [list(one) for one in read.following],
    }
    return {name: value for name, value in document.items() if value is not None and value is not False and value != []}


def split_from_json(document: dict[str, Any]) -> JobSplit:
    """The split that ``split_to_json`` wrote; ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
    if "from" in document:
        return _part_from_json(document)
    partition = TopicIdPartition(document["topic"], document["partition"], document.get("topic_id"))
    read = Split(
        partition,
        document["log"],
        document["log_size"],
        ByteRange(*document["positions"]),
        OffsetRange(*document["offsets"]),
        IsolationLevel(document["isolation"]),
        _aborted(document.get("aborted", ())),
        document.get("is_active", False),
        document.get("base_offset", 0),
        document.get("offset_index"),
        document.get("offset_bound"),
        tuple((epoch, start) for epoch, start in document.get("epochs", ())),
        document.get("is_padded", False),
        document.get("stop_of_part"),
        document.get("first_bound"),
        log_tag=document.get("log_tag"),
        timed=document.get("timed"),
        reaches=document.get("reaches"),
        following=tuple((log, size, stop) for log, size, stop in document.get("following", ())),
    )
    return JobSplit(document["start"], document["stop"], read)


def _part_to_json(split: JobSplit, part: LivePart) -> dict[str, Any]:
    """A part of a live log; how the store has it is told as a split within."""
    document = {
        "topic": part.partition.topic,
        "partition": part.partition.partition,
        "topic_id": part.partition.topic_id,
        "start": split.start,
        "stop": split.stop,
        "from": part.read_from.value,
        "offsets": [part.offsets.start, part.offsets.stop],
        "isolation": part.isolation_level.value,
        "epochs": [list(epoch) for epoch in part.epochs],
        "position_epoch": part.position_epoch,
        "segments": [split_to_json(JobSplit(split.start, split.stop, one)) for one in part.splits],
        "aborted": None if part.aborted is None else _rows(part.aborted),
        "segment_id": part.segment_id,
        "size": part.size,
    }
    return {name: value for name, value in document.items() if value is not None}


def _part_from_json(document: dict[str, Any]) -> JobSplit:
    segments = [split_from_json(one).read for one in document["segments"]]
    part = LivePart(
        TopicIdPartition(document["topic"], document["partition"], document.get("topic_id")),
        OffsetRange(*document["offsets"]),
        ReadFrom(document["from"]),
        IsolationLevel(document["isolation"]),
        tuple((epoch, start) for epoch, start in document["epochs"]),
        document["position_epoch"],
        tuple(one for one in segments if isinstance(one, Split)),
        _aborted(document["aborted"]) if "aborted" in document else None,
        document.get("segment_id"),
        document.get("size"),
    )
    return JobSplit(document["start"], document["stop"], part)


def _rows(aborted: AbortedTransactions) -> list[list[int]]:
    return [[one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset] for one in aborted]


def _aborted(rows: Iterable[Sequence[int]]) -> AbortedTransactions:
    return AbortedTransactions(AbortedTransaction(*one) for one in rows)
