"""The splits of a job as JSON, and back: in ``_job/plan.json``, and on their way to tasks."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final, overload

from segreader.backfill.exact import JobSplit
from segreader.isolation import IsolationLevel
from segreader.plan.codec import PART, SPLIT, Form, read_logs, write_logs
from segreader.plan.split import LOOK_AHEAD, MOST_LOGS_AHEAD, LogsAhead, Split

_LONE_SPLIT: Final = SPLIT.without("following")
_LONE_PART: Final = PART.without("segments")
_NAMED_OTHERWISE: Final = ("start", "stop", "offsets", "isolation", "positions", "segments", "position_epoch")


def splits_to_json(splits: Sequence[JobSplit]) -> list[dict[str, Any]]:
    """All splits of a plan, in order. One that the next splits follow names no log behind it: these name them."""
    documents = [_to_json(split, _LONE_SPLIT) for split in splits]
    for split, document in zip(splits, documents, strict=True):
        reads = (split.read,) if isinstance(split.read, Split) else split.read.splits
        for read, one in zip(reads, _segments_of(document), strict=True):
            if read.following:
                one["following"] = read.following
    pairs = [(one, _tells(one.get("following", ()), behind)) for one, behind in _backwards(documents)]
    for one, is_told in pairs:
        if is_told:
            one.pop("following", None)
        else:
            one["following"] = write_logs(one.get("following", ()))
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
        while own and "following" not in own[0] and own[0]["stop_byte"] + LOOK_AHEAD >= own[0]["log_size"]:
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
            one["following"] = read_logs("following", one["following"])
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
                and one["stop_byte"] + LOOK_AHEAD >= one["log_size"]
                and one["isolation_level"] == IsolationLevel.READ_COMMITTED.value
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
    return _to_json(split, SPLIT)


def _to_json(split: JobSplit, form: Form[Split]) -> dict[str, Any]:
    """The split, with segments in this form."""
    read = split.read
    if isinstance(read, Split):
        document = form.to_json(read)
    else:
        document = _LONE_PART.to_json(read)
        document["segments"] = [form.to_json(one) for one in read.splits]
    if (split.start, split.stop) != (read.offsets.start, read.offsets.stop):
        document["covers"] = [split.start, split.stop]
    return document


def split_from_json(document: dict[str, Any]) -> JobSplit:
    """The split that ``split_to_json`` wrote; ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
    read = PART.from_json(document) if "from" in document else SPLIT.from_json(document)
    start, stop = document.get("covers", (read.offsets.start, read.offsets.stop))
    return JobSplit(start, stop, read)


def from_version_1(document: dict[str, Any]) -> dict[str, Any]:
    """What ``split_to_json`` writes today of a split that it wrote in plans of version 1."""
    now = {name: value for name, value in document.items() if name not in _NAMED_OTHERWISE}
    now["covers"] = document["start"], document["stop"]
    now["start"], now["stop"] = document["offsets"]
    now["isolation_level"] = document["isolation"]
    if "positions" in document:
        now["first_byte"], now["stop_byte"] = document["positions"]
    if "segments" in document:
        now["segments"] = [from_version_1(one) for one in document["segments"]]
    if document.get("position_epoch", 0) >= 0:
        now["position_epoch"] = document.get("position_epoch")
    return now
