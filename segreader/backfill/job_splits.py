"""The splits of a job: cut from a plan, and written as JSON for ``_job/plan.json`` and for tasks.

The planner gives each split offsets of its own. Here those between two splits belong to one of them or are lost, and
the last one of a partition has an end: splits follow each other without a gap or an overlap, so coverage can be proved.
"""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, overload

from segreader.isolation import IsolationLevel
from segreader.plan.codec import PART, SPLIT, Form, read_logs, write_logs
from segreader.plan.live import LivePart
from segreader.plan.request import ReadOptions
from segreader.plan.split import LOOK_AHEAD, MOST_LOGS_AHEAD, EndReason, Gap, LogsAhead, ReadEnd, ReadPlan, Split
from segreader.ranges import OffsetRange
from segreader.read.split_reader import SplitReader
from segreader.segment import Segment, SegmentFiles, TopicIdPartition
from segreader.storage.base import ObjectStore
from segreader.stored.segment_ends import read_last_offset
from segreader.values import dataclass

if TYPE_CHECKING:  # loads the Kafka client, which other workers do without
    from segreader.spark.live import LiveRead

_LONE_SPLIT: Final = SPLIT.without("following")
_LONE_PART: Final = PART.without("segments")
_NAMED_OTHERWISE: Final = ("start", "stop", "offsets", "isolation", "positions", "segments", "position_epoch")

MOST_JOINED: Final = 4096
"""Segments of one split at most: so its description stays below a few MB."""

MOST_OFFSETS: Final = 1 << 22
"""Size of a split whose bytes are unknown: finished parts of a partition that brokers have are not repeated."""


@dataclass(frozen=True, slots=True)
class SplitRun:
    """Small splits of one partition that follow each other, read one after another as one unit of work."""

    splits: tuple[Split, ...]

    @property
    def partition(self) -> TopicIdPartition:
        """Whose records."""
        return self.splits[0].partition

    @property
    def offsets(self) -> OffsetRange:
        """From the first to the last offset wanted; between them there are only holes beside."""
        return OffsetRange(self.splits[0].offsets.start, self.splits[-1].offsets.stop)

    @property
    def size(self) -> int:
        """Stored bytes."""
        return sum(split.positions.size for split in self.splits)


@dataclass(frozen=True, slots=True)
class JobSplit:
    """One unit of work that is done once: offsets ``start <= offset < stop``, and how to read their records.

    ``read.offsets`` may be narrower: offsets before or behind that hold nothing belong to the split, too. What is read
    is a piece of a segment, a run of small segments, or, where brokers are asked, a part of a live log.
    """

    start: int
    stop: int
    read: Split | SplitRun | LivePart

    def __post_init__(self) -> None:
        wanted = self.read.offsets
        if wanted.stop is None or not self.start <= wanted.start < wanted.stop <= self.stop:
            raise ValueError(f"not the offsets of a split: {self.start} to {self.stop} around {wanted}")

    @property
    def partition(self) -> TopicIdPartition:
        """Whose records."""
        return self.read.partition

    @property
    def id(self) -> str:
        """A name for it that is the same in every run of the plan."""
        return f"{self.partition}-{self.start:020d}-{self.stop:020d}"

    @property
    def size(self) -> int:
        """Stored bytes; 0 for records of brokers, whose size is unknown."""
        return self.read.positions.size if isinstance(self.read, Split) else self.read.size or 0

    @property
    def segments(self) -> tuple[Split, ...]:
        """What is read of segments in a store."""
        return (self.read,) if isinstance(self.read, Split) else self.read.splits


@dataclass(frozen=True, slots=True, order=True)
class LostOffsets:
    """Offsets ``start <= offset < stop`` of one partition, and why they are not there."""

    start: int
    stop: int
    why: str

    def __post_init__(self) -> None:
        if not self.start < self.stop:
            raise ValueError(f"no offsets are lost: {self.start} to {self.stop}")

    @property
    def text(self) -> str:
        """For people, without the partition."""
        return f"offsets {self.start} to {self.stop - 1} are lost: {self.why}"


def lost_between(stop: int, start: int, known: Iterable[LostOffsets]) -> LostOffsets | None:
    """What is lost of the offsets ``stop <= offset < start`` that lie between two splits, as one range.

    Args:
        known: what is lost of the partition.
    """
    here = sorted(one for one in known if max(stop, one.start) < min(start, one.stop))
    if not here:
        return None
    whys = dict.fromkeys(one.why for one in here)
    return LostOffsets(max(stop, here[0].start), min(start, max(one.stop for one in here)), "; ".join(whys))


def lost_outside(start: int, stop: int, known: Iterable[LostOffsets]) -> list[LostOffsets]:
    """What is lost before ``start`` and from ``stop`` on."""
    sides = [
        side
        for one in known
        for side in ((one.start, min(one.stop, start), one), (max(one.start, stop), one.stop, one))
    ]
    return [LostOffsets(first, after, one.why) for first, after, one in sides if first < after]


def without_lost(ranges: Iterable[tuple[int, int]], lost: Sequence[LostOffsets]) -> list[tuple[int, int]]:
    """Ranges of offsets ``start <= offset < stop`` without those that are lost."""
    left = []
    for start, stop in ranges:
        for one in sorted(lost):
            if start < one.start < stop:
                left.append((start, one.start))
            if one.start < stop and one.stop > start:
                start = max(start, one.stop)
        if start < stop:
            left.append((start, stop))
    return left


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The planned offsets of one partition, ``start <= offset < stop``; equal if there are none.

    Args:
        end: why it ends there, as a sentence.
        is_early: whether there is more that cannot be returned yet.
        lost: offsets that were asked for and that no segment has; those between splits belong to none of them.
        topic_id: of the topic, where it has one.
        epoch: the leader epoch of the last offset; -1 where it is not known.
        log_end, log_epoch: where the log ended when this was planned, and by which epoch; -1 where it is not known.
    """

    topic: str
    partition: int
    start: int
    stop: int
    size: int = 0
    splits: int = 0
    end: str = ""
    is_early: bool = False
    lost: tuple[LostOffsets, ...] = ()
    topic_id: str | None = None
    epoch: int = -1
    log_end: int = -1
    log_epoch: int = -1


def job_splits(
    plan: ReadPlan,
    store: ObjectStore,
    lost: Sequence[Gap] = (),
    *,
    starts: Mapping[TopicIdPartition, int],
    log_ends: Mapping[TopicIdPartition, int],
    join_bytes: int = 0,
) -> tuple[tuple[JobSplit, ...], tuple[PartitionRange, ...]]:
    """The splits of a read plan as units of work, and what they cover of each partition.

    Args:
        plan: made with ``SplitOffsets.INDEXED``.
        store: the one that the plan was made from.
        lost: what was asked for and is in no segment.
        starts: where each partition was to begin.
        log_ends: one more than the last offset of each.
        join_bytes: splits that follow each other are one while they have no more stored bytes.

    Raises:
        FormatError: damage hides where a partition ends.
        StorageError: the end of a log cannot be read.
    """
    parts: dict[TopicIdPartition, list[Split]] = defaultdict(list)
    for split in plan.splits:
        parts[split.partition].append(split)
    splits: list[JobSplit] = []
    ranges = []
    for end in plan.ends:
        planned = parts.get(end.partition, [])
        read = _closed(planned, store)
        gone = _lost(lost, end.partition, "no segment has them")
        mine = list(_joined(_adjoining(read, end, gone), join_bytes))
        splits += mine
        if mine:
            start = mine[0].start
        elif planned and end.offset is None:
            start = planned[0].offsets.start
        else:  # what was asked for may come to be there: nothing ends behind the log, but where it was to begin
            start = max(starts[end.partition], min(end.offset or 0, log_ends[end.partition]))
        stop = mine[-1].stop if mine else start
        between = [lost_between(before.stop, after.start, gone) for before, after in pairwise(mine)]
        ranges.append(_range(mine, start, stop, end, [*lost_outside(start, stop, gone), *filter(None, between)]))
    return tuple(splits), tuple(ranges)


def _closed(splits: Sequence[Split], store: ObjectStore) -> list[Split]:
    """The splits of a partition, the last one with an end; without those that hold nothing that is wanted."""
    closed = list(splits)
    if closed and closed[-1].stop_of_part is None:  # only its last batch tells where the log ends
        last = closed.pop()
        stop = _read_stop(store, last)
        if last.offsets.stop is not None:
            stop = min(stop, last.offsets.stop)
        if last.offsets.start < stop:
            aborted = last.aborted.within(last.offsets.start, stop) if len(last.aborted) else last.aborted
            closed.append(replace(last, offsets=OffsetRange(last.offsets.start, stop), aborted=aborted))
    return [one for one in closed if one.offsets.start != one.offsets.stop]


def _read_stop(store: ObjectStore, part: Split) -> int:
    """The offset after the last one of the log that a split ends with."""
    segment = Segment(
        part.partition,
        part.base_offset,
        part.log_size,
        SegmentFiles(part.log, offset_index=part.offset_index),
        is_active=part.is_active,
        is_padded=part.is_padded,
    )
    last = read_last_offset(store, segment)
    if last is not None:
        return last + 1
    reader = SplitReader(store, ReadOptions(columns=("offset",)))
    for _ in reader.read(part):  # raises where the damage is
        pass
    return reader.next_offset


def _adjoining(pieces: Sequence[Split], end: ReadEnd, lost: Sequence[LostOffsets]) -> Iterator[JobSplit]:
    """The pieces as splits that follow each other: offsets in between hold no record, or are lost."""
    start = pieces[0].offsets.start if pieces else 0
    for number, piece in enumerate(pieces):
        stop = piece.offsets.stop
        assert stop is not None
        following = stop
        if number + 1 < len(pieces):
            following = pieces[number + 1].offsets.start
            gap = lost_between(stop, following, lost)
            stop, following = (following, following) if gap is None else (gap.start, gap.stop)
        elif end.offset is not None and end.reason is EndReason.END_OF_DATA:
            stop = max(stop, end.offset)
        yield JobSplit(start, stop, piece)
        start = following


def _joined(splits: Iterable[JobSplit], join_bytes: int) -> Iterator[JobSplit]:
    """The same offsets in fewer splits: what follows without a gap is joined up to a size."""
    run: list[JobSplit] = []
    size = 0
    for split in splits:
        if run and (size + split.size > join_bytes or split.start != run[-1].stop or len(run) == MOST_JOINED):
            yield _one_of(run)
            run, size = [], 0
        run.append(split)
        size += split.size
    if run:
        yield _one_of(run)


def _one_of(run: Sequence[JobSplit]) -> JobSplit:
    pieces = tuple(piece for split in run for piece in split.segments)
    return run[0] if len(run) == 1 else JobSplit(run[0].start, run[-1].stop, SplitRun(pieces))


def live_splits(
    read: LiveRead, start: Mapping[tuple[str, int], int] | None = None
) -> tuple[tuple[JobSplit, ...], tuple[PartitionRange, ...]]:
    """As ``job_splits``, where brokers are asked: parts of a live log, whose ends are pinned when the plan is made.

    Args:
        start: leader epochs of what was read of partitions before; a broker that knows another history refuses then.
    """
    parts: dict[TopicIdPartition, list[LivePart]] = defaultdict(list)
    for part in read.plan.parts:
        parts[part.partition].append(part)
    ends = {end.partition: end for end in read.plan.ends}
    splits: list[JobSplit] = []
    ranges = []
    for asked in sorted(read.plan.partitions_asked, key=lambda one: one.partition.order):
        known = (start or {}).get((asked.partition.topic, asked.partition.partition))
        if known is not None and parts[asked.partition]:
            parts[asked.partition][0] = replace(parts[asked.partition][0], position_epoch=known)
        mine = [JobSplit(part.offsets.start, part.stop, part) for part in parts[asked.partition]]
        splits += mine
        gone = _lost(read.lost, asked.partition, "no broker and no segment has them")
        one = _range(mine, asked.seam.start, asked.seam.stop, ends[asked.partition], gone)
        epochs = [epoch for epoch, first in asked.leader_epochs if first < one.stop]
        marks, found = asked.marks, read.log_ends.get((one.topic, one.partition))
        end, by = (marks.end, marks.leader_epoch) if found is None else (found.offset, found.leader_epoch)
        ranges.append(replace(one, epoch=epochs[-1] if epochs else -1, log_end=end, log_epoch=by))
    return tuple(splits), tuple(ranges)


def _lost(gaps: Sequence[Gap], partition: TopicIdPartition, why: str) -> list[LostOffsets]:
    return [LostOffsets(gap.start, gap.stop, why) for gap in gaps if gap.partition == partition]


def _range(
    splits: Sequence[JobSplit], start: int, stop: int, end: ReadEnd, lost: Sequence[LostOffsets]
) -> PartitionRange:
    return PartitionRange(
        end.partition.topic,
        end.partition.partition,
        start,
        stop,
        sum(split.size for split in splits),
        len(splits),
        replace(end, offset=stop).text,
        end.reason.is_early,
        tuple(sorted(lost)),
        topic_id=end.partition.topic_id,
    )


def splits_to_json(splits: Sequence[JobSplit]) -> list[dict[str, Any]]:
    """All splits of a plan, in order. One that the next splits follow names no log behind it: these name them."""
    documents = [_to_json(split, _LONE_SPLIT) for split in splits]
    for split, document in zip(splits, documents, strict=True):
        for read, one in zip(split.segments, _segments_of(document), strict=True):
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
    """The splits of segments that a document has: itself, those of a run, or those of a part of a live log."""
    found: Sequence[dict[str, Any]] = document["segments"] if "from" in document else document.get("run", (document,))
    return found


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
    elif isinstance(read, SplitRun):
        return {"run": [form.to_json(one) for one in read.splits], "covers": [split.start, split.stop]}
    else:
        document = _LONE_PART.to_json(read)
        document["segments"] = [form.to_json(one) for one in read.splits]
    if (split.start, split.stop) != (read.offsets.start, read.offsets.stop):
        document["covers"] = [split.start, split.stop]
    return document


def split_from_json(document: dict[str, Any]) -> JobSplit:
    """The split that ``split_to_json`` wrote; ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
    read: Split | SplitRun | LivePart
    if "run" in document:
        read = SplitRun(tuple(map(SPLIT.from_json, document["run"])))
    else:
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
