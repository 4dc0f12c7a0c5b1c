"""The splits of a job as JSON, and back: in ``_job/plan.json``, and on their way to tasks."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

from segreader.format.transaction_index import AbortedTransaction
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.plan.live import LivePart, ReadFrom
from segreader.plan.split import LOOK_AHEAD, MOST_LOGS_AHEAD, LogsAhead, Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import TopicIdPartition
from segreader.spark.backfill.exact import JobSplit


def splits_to_json(splits: Sequence[JobSplit]) -> list[dict[str, Any]]:
    """All splits of a plan, in order. One that the next splits follow names no log behind it: these name them."""
    documents = [_to_json(split, lambda following: following) for split in splits]
    pairs = [(one, _tells(one.get("following", ()), behind)) for one, behind in _backwards(documents)]
    for one, is_told in pairs:
        if is_told:
            one.pop("following", None)
        else:
            one["following"] = _listed(one.get("following", ()))
    return documents


def splits_from_json(documents: Sequence[dict[str, Any]]) -> tuple[JobSplit, ...]:
    """The splits that ``splits_to_json`` wrote; errors are those of ``split_from_json``."""
    _name_logs(documents)
    return tuple(split_from_json(one) for one in documents)


class SplitTexts(Sequence[JobSplit]):
    """Splits in any order, each as text: a task that needs one of a hundred thousand does not build the others."""

    def __init__(self, splits: Sequence[JobSplit]) -> None:
        order = sorted(range(len(splits)), key=lambda at: (splits[at].partition.order, splits[at].start))
        self._places = array("i", bytes(4 * len(order)))
        for place, at in enumerate(order):
            self._places[at] = place
        documents = splits_to_json([splits[at] for at in order])
        self._texts = [json.dumps(document, separators=(",", ":")) for document in documents]

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, index: int) -> JobSplit: ...
    @overload
    def __getitem__(self, index: slice) -> list[JobSplit]: ...
    def __getitem__(self, index: int | slice) -> JobSplit | list[JobSplit]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        place = self._places[index]
        documents = [json.loads(self._texts[place])]
        own, ahead = _segments_of(documents[0])[-1:], dict[str, int]()
        while own and "following" not in own[0] and own[0]["positions"][1] + LOOK_AHEAD >= own[0]["log_size"]:
            place += 1
            if place == len(self._texts) or len(ahead) > MOST_LOGS_AHEAD or sum(ahead.values()) >= LOOK_AHEAD:
                break
            documents.append(json.loads(self._texts[place]))
            more = _segments_of(documents[-1])
            if not more or more[0]["partition"] != own[0]["partition"] or more[0]["topic"] != own[0]["topic"]:
                break
            ahead |= {one["log"]: one["log_size"] for one in more if one["log"] != own[0]["log"]}
        _name_logs(documents)
        return split_from_json(documents[0])


def _name_logs(documents: Sequence[dict[str, Any]]) -> None:
    """Have each document name the logs behind it that the next ones tell."""
    for one, behind in _backwards(documents):
        if "following" in one:
            one["following"] = tuple((log, size, stop) for log, size, stop in one["following"])
        elif behind is not None:
            then = behind.get("following", ())
            one["following"] = LogsAhead(behind["log"], behind["log_size"], behind["stop_of_part"], then)


def _segments_of(document: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """The splits of segments that a document has: itself, or those of a part of a live log."""
    return document["segments"] if "from" in document else (document,)


def _backwards(documents: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Each split of a segment, the last first, with the last one of the log that follows, where a reader may go on."""
    own: dict[str, Any] | None = None
    behind: dict[str, Any] | None = None
    for document in reversed(documents):
        for one in reversed(_segments_of(document)):
            if own is None or own["log"] != one["log"]:
                own, behind = one, own
            goes_on = (
                behind is not None
                and "stop_of_part" in behind
                and one["positions"][1] + LOOK_AHEAD >= one["log_size"]
                and one["isolation"] == IsolationLevel.READ_COMMITTED.value
                and one["partition"] == behind["partition"]
                and one["topic"] == behind["topic"]
                and one.get("topic_id") == behind.get("topic_id")
            )
            yield one, behind if goes_on else None


def _tells(following: Sequence[tuple[str, int, int]], behind: dict[str, Any] | None) -> bool:
    """Whether another split says all that one has to say of the logs behind it."""
    if behind is None or not isinstance(following, LogsAhead):
        return behind is None and not following
    then = behind.get("following", ())
    return (
        (following.log, following.size, following.stop) == (behind["log"], behind["log_size"], behind["stop_of_part"])
        and (following.then is then or not (following.then or then))
    )  # fmt: skip


def split_to_json(split: JobSplit) -> dict[str, Any]:
    """Everything that a task needs to read the split: names and numbers, no client and no secret."""
    return _to_json(split, _listed)


def _listed(following: Sequence[tuple[str, int, int]]) -> list[list[Any]]:
    return [list(one) for one in following]


def _to_json(split: JobSplit, name_logs: Callable[[Sequence[tuple[str, int, int]]], Any]) -> dict[str, Any]:
    if isinstance(split.read, LivePart):
        return _part_to_json(split, split.read, name_logs)
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
        "following": name_logs(read.following) if read.following else None,
    }
    return {name: value for name, value in document.items() if value is not None and value is not False and value != []}


def split_from_json(document: dict[str, Any]) -> JobSplit:
    """The split that ``split_to_json`` wrote; ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
    if "from" in document:
        return _part_from_json(document)
    partition = TopicIdPartition(document["topic"], document["partition"], document.get("topic_id"))
    read = Split(
        partition=partition,
        log=document["log"],
        log_size=document["log_size"],
        positions=ByteRange(*document["positions"]),
        offsets=OffsetRange(*document["offsets"]),
        isolation_level=IsolationLevel(document["isolation"]),
        aborted=_aborted(document.get("aborted", ())),
        is_active=document.get("is_active", False),
        base_offset=document.get("base_offset", 0),
        offset_index=document.get("offset_index"),
        offset_bound=document.get("offset_bound"),
        epochs=tuple((epoch, start) for epoch, start in document.get("epochs", ())),
        is_padded=document.get("is_padded", False),
        stop_of_part=document.get("stop_of_part"),
        first_bound=document.get("first_bound"),
        log_tag=document.get("log_tag"),
        timed=document.get("timed"),
        reaches=document.get("reaches"),
        following=_logs(document.get("following", ())),
    )
    return JobSplit(document["start"], document["stop"], read)


def _logs(following: Sequence[Any]) -> Sequence[tuple[str, int, int]]:
    return following if isinstance(following, LogsAhead) else tuple((log, size, stop) for log, size, stop in following)


def _part_to_json(
    split: JobSplit, part: LivePart, name_logs: Callable[[Sequence[tuple[str, int, int]]], Any]
) -> dict[str, Any]:
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
        "segments": [_to_json(JobSplit(split.start, split.stop, one), name_logs) for one in part.splits],
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
