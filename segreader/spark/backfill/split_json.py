"""A split of a job as JSON, and back: in ``_job/plan.json``, and on its way to a task."""

from __future__ import annotations

from typing import Any

from segreader.format.transaction_index import AbortedTransaction
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import TopicIdPartition
from segreader.spark.backfill.exact import JobSplit


def split_to_json(split: JobSplit) -> dict[str, Any]:
    """Everything that a task needs to read the split: names and numbers, no client and no secret."""
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
        "aborted": [
            [one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset] for one in read.aborted
        ],
        "is_active": read.is_active,
        "base_offset": read.base_offset,
        "offset_index": read.offset_index,
        "offset_bound": read.offset_bound,
        "epochs": [list(epoch) for epoch in read.epochs],
        "is_padded": read.is_padded,
        "stop_of_part": read.stop_of_part,
        "first_bound": read.first_bound,
    }
    return {name: value for name, value in document.items() if value is not None and value is not False and value != []}


def split_from_json(document: dict[str, Any]) -> JobSplit:
    """The split that ``split_to_json`` wrote; ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
    partition = TopicIdPartition(document["topic"], document["partition"], document.get("topic_id"))
    read = Split(
        partition,
        document["log"],
        document["log_size"],
        ByteRange(*document["positions"]),
        OffsetRange(*document["offsets"]),
        IsolationLevel(document["isolation"]),
        AbortedTransactions(AbortedTransaction(*one) for one in document.get("aborted", ())),
        document.get("is_active", False),
        document.get("base_offset", 0),
        document.get("offset_index"),
        document.get("offset_bound"),
        tuple((epoch, start) for epoch, start in document.get("epochs", ())),
        document.get("is_padded", False),
        document.get("stop_of_part"),
        document.get("first_bound"),
    )
    return JobSplit(document["start"], document["stop"], read)
