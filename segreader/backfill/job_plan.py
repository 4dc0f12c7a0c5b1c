"""The plan of a job: what was asked for, and every split that it takes. Written once, then only read.

A run that finds a plan takes it, and lists nothing again: what was uploaded meanwhile belongs to the next job.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from segreader.backfill.done import learnt, parsed
from segreader.backfill.job_splits import (
    MOST_OFFSETS,
    JobSplit,
    LostOffsets,
    PartitionRange,
    from_version_1,
    job_splits,
    live_splits,
    split_from_json,
    splits_from_json,
    splits_to_json,
)
from segreader.backfill.lake.table import Offsets, TableEnd, copied, merged
from segreader.backfill.output import (
    DONE,
    MANIFESTS,
    PLANS,
    REPLACED,
    STAGING,
    SUCCESS,
    OutputOptions,
    plan_name,
    round_of,
    split_of_file,
)
from segreader.errors import (
    DivergedPositionError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    OptionError,
    RecreatedTopicError,
    UnsupportedVersionError,
)
from segreader.isolation import IsolationLevel
from segreader.plan.cut import SplitOffsets
from segreader.plan.live import LivePart
from segreader.plan.log import LogEnd
from segreader.plan.request import Bounds, Policy
from segreader.plan.split import ReadPlan, Split
from segreader.segment import TopicIdPartition
from segreader.spark.option_values import EARLIEST
from segreader.spark.options import EARLIER, SparkOptions, parse_options, require_batch
from segreader.spark.planning import plan_splits
from segreader.spark.typed_values import require_columns, with_schemas
from segreader.storage.target.store import TargetStore
from segreader.stored.log import StoredLog
from segreader.typed.decoding import save_decodings, saved_decodings
from segreader.values import dataclass

if TYPE_CHECKING:
    from segreader.live.cluster import Cluster

DEFAULT_SPLIT_BYTES: Final = 256 << 20
DEFAULT_COMMIT_BYTES: Final = 16 << 30

_VERSION = 2
_TYPED = 3
"""The version of a plan with schemas: one that passed over them would write columns of other types."""
_SHOWN = 5
_KNOWN = ("topic_id", "epoch", "log_end", "log_epoch")
_OF_TABLES = ("table", "partition_by", "field_ids")
learnt(OutputOptions)
learnt(TableEnd)
learnt(PartitionRange)
_OF_THE_TARGET = ("isolation", "layout", "hive", "sink", "to", "partition-by")
"""What all rounds of a target have in common; what is read, and how much at a time, may change."""
_OF_A_ROUND = ("start", "end", "offsets", "split-bytes", "file-bytes", "codec")
"""What decides how far a round goes and how it is cut."""
_SHOWN_AS = {
    "layout": "output-layout",
    "segment-layout": "layout",
    "tail": "bootstrap-servers",
    "start": "since",
    "end": "until",
}
"""The request in a plan has the names of version 1; where flags differ, their names of today."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """What a user asks for.

    Args:
        wanted: every choice that decides what is written, as the user wrote it; two runs with the same are one job.
        options: those of the data source.
        output: how records become files.
        split_bytes: target size of a split, in stored bytes.
        on_missing: ``fail`` or ``skip`` where a segment vanishes between plan and read.
        on_corrupt: ``fail`` or ``skip`` at a damaged batch.
        threads, read_ahead_bytes: of each task, as of ``SplitTask``; they change nothing that is written.
        bounds: the same offsets for every partition; ``None`` where the options bound each, or nothing does.
        commit_bytes: stored bytes after which what was written is committed to a table.
        join_bytes: splits that follow each other are one up to so many stored bytes; ``None``: up to ``split_bytes``.
    """

    wanted: Mapping[str, str]
    options: Mapping[str, str]
    output: OutputOptions
    split_bytes: int = DEFAULT_SPLIT_BYTES
    on_missing: Policy = Policy.FAIL
    on_corrupt: Policy = Policy.FAIL
    threads: int | None = None
    read_ahead_bytes: int | None = None
    bounds: Bounds | None = None
    commit_bytes: int = DEFAULT_COMMIT_BYTES
    join_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class JobPlan:
    """Everything that one round of a job will do.

    Args:
        wanted, options, output: as in the request that it was made for.
        location: where is read, as people may see it.
        isolation: which records.
        partitions: what is planned of each, in order.
        splits: in order of partition and offset.
        notes: what was noticed while planning.
        round: 1 for the first one of a target.
        start: where the target ended before; ``None`` where it had nothing.
        begins: the earliest offset that was there of each partition when the target began with it, where it was to
            begin with the earliest: what appears below later is in no round.
        table_id: of the table that it was made for: one of its name may be another by now. Nothing for files, and in
            plans of earlier versions.
    """

    wanted: Mapping[str, str]
    options: Mapping[str, str]
    output: OutputOptions
    location: str
    isolation: str
    partitions: tuple[PartitionRange, ...]
    splits: tuple[JobSplit, ...]
    notes: tuple[str, ...] = ()
    round: int = 1
    start: TableEnd | None = None
    begins: Offsets = field(default_factory=dict)
    table_id: str = ""

    @property
    def size(self) -> int:
        """Stored bytes of all splits."""
        return sum(split.size for split in self.splits)

    @property
    def asks_brokers(self) -> bool:
        """Whether brokers were asked for the plan, so that some of it may come from them."""
        return any(isinstance(split.read, LivePart) for split in self.splits)

    @property
    def segments(self) -> tuple[Split, ...]:
        """What is read of segments in a store."""
        return tuple(one for split in self.splits for one in split.segments)

    @property
    def next_offsets(self) -> dict[str, dict[str, int]]:
        """Where the next round, or a stream, continues: the JSON of Spark's kafka source."""
        return {topic: dict(some) for topic, some in self.end.offsets.items()}

    @property
    def end(self) -> TableEnd:
        """Where the target ends once all is done; a partition that is not in the plan stays where it was."""
        return self.end_after({(one.topic, one.partition): one.stop for one in self.partitions})

    def end_after(self, stops: Mapping[tuple[str, int], int]) -> TableEnd:
        """Where the target ends when it has offsets of some partitions up to these, and of no other."""
        before = self.start or TableEnd()
        offsets, epochs, ends = copied(before.offsets), copied(before.epochs), copied(before.log_ends)
        ids = dict(before.topic_ids)
        for one in self.partitions:
            stop = stops.get((one.topic, one.partition))
            if stop is None:
                continue
            key = str(one.partition)
            offsets.setdefault(one.topic, {})[key] = stop
            if one.topic_id is not None:
                ids[one.topic] = one.topic_id
            for there, known in (
                (epochs, one.epoch if stop == one.stop and one.epoch >= 0 else None),
                (ends, [one.log_end, one.log_epoch] if one.log_end >= 0 else None),
            ):
                there.setdefault(one.topic, {}).pop(key, None)
                if known is not None:
                    there[one.topic][key] = known
        begins = {
            topic: {key: begin for key, begin in some.items() if key in offsets.get(topic, {})}
            for topic, some in self.begins.items()
        }
        begins = {topic: some for topic, some in begins.items() if some}
        return TableEnd(offsets=offsets, topic_ids=ids, epochs=epochs, log_ends=ends, begins=begins, commit=self.name)

    @cached_property
    def data(self) -> bytes:
        """The plan as the object that is put into the target."""
        document = {
            "version": _TYPED if self.output.decodings else _VERSION,
            "wanted": dict(self.wanted),
            "options": dict(self.options),
            "output": _saved_output(self.output),
            "location": self.location,
            "isolation": self.isolation,
            "partitions": [_saved_range(one) for one in self.partitions],
            "notes": list(self.notes),
            **({} if self.round == 1 else {"round": self.round}),
            **({} if self.start is None else {"start": self.start.to_json()}),
            **({"begins": copied(self.begins)} if self.begins else {}),
            **({"table_id": self.table_id} if self.table_id else {}),
            "next_splits_follow": True,
            "splits": splits_to_json(self.splits),
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @property
    def sha256(self) -> str:
        """Of ``data``: a name for the plan."""
        return sha256(self.data).hexdigest()

    @property
    def name(self) -> str:
        """The same, short: each entry has it."""
        return self.sha256[:16]


def make_plan(
    request: JobRequest, *, number: int = 1, start: TableEnd | None = None, begins: Offsets | None = None
) -> JobPlan:
    """Decide what a round of a job will do. Segments are listed, and where they end is read; no record is. Schemas are
    learnt here; running the plan needs no registry.

    Args:
        number: of the round.
        start: where the target ends: what is there since is planned, and new partitions from their earliest offset.
        begins: those of the plan before, where ``start`` says none: what appeared below since is an error, or lost if
            the options allow it.

    Raises:
        OffsetOutOfRangeError: segments have come to be there below where the target begins.
        RecreatedTopicError, DivergedPositionError: what the target has is of another topic, or of another history.
        SegreaderError: as ``plan_splits``; or damage hides where a partition ends, or what was committed.
        OptionError, SchemaRegistryError: schemas cannot be had.
    """
    options = parse_options(request.options, on_missing=request.on_missing)
    require_batch(options)
    options = with_schemas(options)
    require_columns(options.read_options)
    _require_fields(replace(request.output, decodings=options.read_options.decodings).records)
    options = replace(options, bounds=request.bounds, split_bytes=request.split_bytes, may_shrink_splits=False)
    if options.starting_times is not None:
        options = replace(options, starts_at_latest=True)  # nothing new is no error of a job
    if start is not None:
        begins = merged(begins or {}, start.begins)
        start = replace(start, begins={})  # the plan has them
        known = start.offsets.items()
        options = replace(
            options,
            starting_offsets={topic: {int(key): at for key, at in some.items()} for topic, some in known},
            starting_offsets_default=EARLIEST,
            starting_times=None,
            skips_unknown=True,
        )
    history = _TargetHistory(options, start, begins or {})
    if options.brokers is not None:
        from segreader.spark.live import plan_live_read  # loads the Kafka client, which other plans do without

        # it pins where each partition ends
        live = plan_live_read(options, most_unsized=MOST_OFFSETS, check=history.check_live)
        splits, partitions = live_splits(live, _epochs_of(start))
        partitions = tuple(history.known_of_live(one) for one in partitions)
        return replace(_plan_of(request, options, live.plan, splits, partitions, number, start), begins=history.begins)
    planned = plan_splits(options, split_offsets=SplitOffsets.INDEXED, check=history.check)
    read = planned.plan
    try:
        for end in read.ends:
            if end.damage is not None:  # it is behind what is planned: no task would meet it
                raise end.damage.located(hint=f"Read what is decided, with --offsets below {end.offset}")
        joined = request.split_bytes if request.join_bytes is None else request.join_bytes
        ends = {one: history.log_end(one) for one in planned.starts}
        starts = planned.starts
        if options.starting_times is not None:  # one that begins at the end goes on before damage that hides it
            starts = {one: min(start, ends[one]) for one, start in starts.items()}
        splits, partitions = job_splits(
            read, planned.store, planned.lost, starts=starts, log_ends=ends, join_bytes=joined
        )
        partitions = tuple(history.known_of(one) for one in partitions)
    finally:
        planned.store.close()
    return replace(_plan_of(request, options, read, splits, partitions, number, start), begins=history.begins)


@dataclass(frozen=True, slots=True)
class _LivePosition:
    """Where a target ends in a log of brokers.

    Args:
        ends: the offsets up to which the log must be the same, and by which epoch each was written: that of the target,
            and what its markers were below.
    """

    partition: TopicIdPartition
    ends: Mapping[int, int]


class _TargetHistory:
    """Holds what a target has of each partition against its log, and keeps where the log ends.

    Args:
        start: where the target ends.
        begins: as of ``JobPlan``; what is learnt here is added.
    """

    def __init__(self, options: SparkOptions, start: TableEnd | None, begins: Offsets) -> None:
        self._options, self._start = options, start or TableEnd()
        self._logs: dict[tuple[str, int], StoredLog] = {}
        self._late: dict[tuple[str, int], LostOffsets] = {}
        self.begins = copied(begins)

    def check(self, log: StoredLog) -> None:
        """Refuse a log that is not the continuation of what the target has.

        Raises:
            RecreatedTopicError, DivergedPositionError: with what to do.
            OffsetOutOfRangeError: it has less of the same history, or more below.
        """
        one, start = log.partition, self._start
        self._logs[one.topic, one.partition] = log
        if (at := self._stop_of(one)) is None:
            self.begins.get(one.topic, {}).pop(str(one.partition), None)  # of what the target had and has no more
            how = self._options
            is_earliest = how.starting_times is None and (how.bounds is None or how.bounds.start is None)
            if is_earliest and how.start_of(one.topic, one.partition) == EARLIEST:
                self.begins.setdefault(one.topic, {})[str(one.partition)] = log.earliest
            return
        require_same_topic(one, start)
        epoch = start.epochs.get(one.topic, {}).get(str(one.partition))
        if self._has_nothing_of(one):
            return
        level = self._options.isolation_level
        held = [LogEnd(at, epoch)]
        if level is IsolationLevel.READ_COMMITTED and str(one.partition) in start.log_ends.get(one.topic, {}):
            end, by = start.log_ends[one.topic][str(one.partition)]
            held.append(LogEnd(end, None if by < 0 else by))
        for known in held:
            lost = log.diverged_from(known, level)
            if lost is None or lost.decided >= at:
                continue
            if _is_behind(log.whole, known):
                raise OffsetOutOfRangeError(
                    f"the log of {one} ends before the target does",
                    source=self._options.location,
                    offset=log.latest,
                    found=f"an end at {log.latest}",
                    expected=f"{known.offset} or more",
                    hint="What is there is of the target's history. If the target has records from brokers, run it "
                    "again when their segments are uploaded, or with kafka.bootstrap.servers; else it is an older copy",
                )
            raise DivergedPositionError(
                f"what the target has of {one} is not its history any more",
                source=self._options.location,
                offset=lost.decided,
                found=f"a log that has offsets up to {lost.common} in common",
                expected=f"everything below {at}",
                hint="An unclean leader election took records or markers away, or this is an older copy: take back "
                f"what the target has from offset {lost.decided} on, or fill a new one",
            )
        self._require_nothing_below(log)

    def check_live(self, cluster: Cluster, partitions: Iterable[TopicIdPartition]) -> None:
        """The same of logs that brokers have. Where one begins for them is what nothing is missing below.

        Raises:
            RecreatedTopicError, DivergedPositionError: with what to do.
            BrokerError: they cannot be asked.
        """
        from segreader.broker.messages import EpochWanted
        from segreader.live.marks import read_bounds

        positions: dict[str, list[_LivePosition]] = {}
        for one in partitions:
            topic, key = one.topic, str(one.partition)
            if (at := self._stop_of(one)) is None:
                self.begins.get(topic, {}).pop(key, None)
                continue
            require_same_topic(one, self._start)
            if self._has_nothing_of(one):
                continue
            epoch = self._start.epochs.get(topic, {}).get(key, -1)
            ends = {at: epoch}
            if self._options.isolation_level is IsolationLevel.READ_COMMITTED:
                end, by = self._start.log_ends.get(topic, {}).get(key, (at, epoch))
                if end > at:
                    ends[end] = by
            positions.setdefault(topic, []).append(_LivePosition(one, ends))
        for topic, some in positions.items():
            bounds = read_bounds(cluster, topic, [known.partition.partition for known in some])
            asked = [
                EpochWanted(topic, known.partition.partition, epoch)
                for known in some
                for epoch in known.ends.values()
                if epoch >= 0
            ]
            try:
                answers = iter(cluster.epoch_ends(asked) if asked else ())
            except UnsupportedVersionError:
                answers = None  # too old to say where an epoch ends: only the end of the log is compared
            for known in some:
                earliest, latest = bounds[known.partition.partition]
                for end, epoch in known.ends.items():
                    common = latest
                    if answers is not None and epoch >= 0:
                        common = min(latest, max(0, next(answers).end_offset))
                    if common < end:
                        raise self._diverged_live(known, common, cluster.shown)
                self._require_none_below(known.partition, earliest, "records")

    def _diverged_live(self, known: _LivePosition, common: int, source: str) -> DivergedPositionError:
        is_committed = self._options.isolation_level is IsolationLevel.READ_COMMITTED
        also = " and what belongs to transactions that were open there" if is_committed else ""
        return DivergedPositionError(
            f"what the target has of {known.partition} is not its history any more",
            source=source,
            offset=None if is_committed else common,
            found=f"a log that has offsets up to {common} in common",
            expected=f"everything below {max(known.ends)}",
            hint="An unclean leader election took records or markers away: take back what the target has from offset "
            f"{common} on{also}, or fill a new one",
        )

    def _require_nothing_below(self, log: StoredLog) -> None:
        """Refuse segments that came to be there below where the target begins, or note them as lost."""
        one = log.partition
        begins = self.begins.get(one.topic, {}).get(str(one.partition))
        if begins is not None and log.earliest < begins:
            self._require_none_below(one, log.whole.earliest, "segments")

    def _require_none_below(self, one: TopicIdPartition, earliest: int, what: str) -> None:
        """The same, by the first offset that is there and what there is of it."""
        begins = self.begins.get(one.topic, {}).get(str(one.partition))
        if begins is None or earliest >= begins:
            return
        if self._options.fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"{what} of {one} have appeared below where the target begins, and it is only added to at its end",
                source=self._options.location,
                found=f"offsets from {earliest} on",
                expected=f"none below {begins}",
                hint=f"Write all of them to a new target, or continue without those below {begins} by "
                "failOnDataLoss=false",
            )
        self._late[one.topic, one.partition] = LostOffsets(
            earliest, begins, "their segments appeared after the target had begun behind them"
        )
        self.begins[one.topic][str(one.partition)] = earliest

    def _stop_of(self, one: TopicIdPartition | PartitionRange) -> int | None:
        """Where the target ends in a partition; ``None`` if it has nothing of it."""
        return self._start.offsets.get(one.topic, {}).get(str(one.partition))

    def _has_nothing_of(self, one: TopicIdPartition) -> bool:
        """Whether the target is to begin behind where the log ended: then no history is its own."""
        topic, key = one.topic, str(one.partition)
        at, known = self._stop_of(one), self._start.log_ends.get(topic, {}).get(key)
        return at is not None and known is not None and known[0] < at and key not in self._start.epochs.get(topic, {})

    def log_end(self, one: TopicIdPartition) -> int:
        """One more than the last offset of a log that was checked; where damage hides it, one before."""
        return self._logs[one.topic, one.partition].latest

    def known_of_live(self, one: PartitionRange) -> PartitionRange:
        """The same, with what is known of it from before."""
        if (late := self._late.get((one.topic, one.partition))) is not None:
            one = replace(one, lost=(late, *one.lost))
        if self._stop_of(one) != one.stop or one.splits:
            return one
        return replace(one, epoch=self._start.epochs.get(one.topic, {}).get(str(one.partition), -1))

    def known_of(self, one: PartitionRange) -> PartitionRange:
        """The same, with what its log says of where it ends."""
        log = self._logs.get((one.topic, one.partition))
        if (late := self._late.get((one.topic, one.partition))) is not None:
            one = replace(one, lost=(late, *one.lost))
        if (at := self._stop_of(one)) is not None and not one.splits:
            one = replace(one, start=at, stop=at)  # whatever hides the end of the log, that of the target stays
        if log is None:
            return one
        end = log.end
        epoch = None if one.stop > end.offset and not one.splits else log.epoch_before(one.stop)
        by = -1 if end.leader_epoch is None else end.leader_epoch
        return replace(one, epoch=-1 if epoch is None else epoch, log_end=end.offset, log_epoch=by)


def _is_behind(log: StoredLog, known: LogEnd) -> bool:
    """Whether a log that lacks offsets below a known end has merely less of the same: no later leader wrote to it."""
    epoch = known.leader_epoch
    return (
        epoch is not None
        and log.latest < known.offset
        and all(one.epoch <= epoch for one in log.resolved.lineage or ())
    )


def _epochs_of(start: TableEnd | None) -> dict[tuple[str, int], int]:
    epochs: Offsets = {} if start is None else start.epochs
    return {(topic, int(key)): epoch for topic, some in epochs.items() for key, epoch in some.items()}


def require_same_topic(partition: TopicIdPartition, start: TableEnd) -> None:
    """Refuse a topic that was deleted and created again since.

    Raises:
        RecreatedTopicError: its id is not that of what the target has.
    """
    there = start.topic_ids.get(partition.topic)
    if there is not None and partition.topic_id is not None and there != partition.topic_id:
        raise RecreatedTopicError(
            f"topic {partition.topic} was deleted and created again since the target was written",
            found=f"topic id {partition.topic_id}",
            expected=there,
            hint="Write the new topic to a target of its own, or name the old one with --topic-id",
        )


def _plan_of(
    request: JobRequest,
    options: SparkOptions,
    read: ReadPlan,
    splits: tuple[JobSplit, ...],
    partitions: tuple[PartitionRange, ...],
    number: int,
    start: TableEnd | None,
) -> JobPlan:
    return JobPlan(
        wanted=dict(request.wanted),
        options=dict(request.options),
        output=replace(request.output, decodings=options.read_options.decodings),
        location=read.location,
        isolation=options.isolation_level.value,
        partitions=partitions,
        splits=splits,
        notes=tuple(dict.fromkeys(read.notes)),
        round=number,
        start=start,
    )


def parse_plan(data: bytes, source: str) -> JobPlan:
    """The plan whose ``data`` this is.

    Raises:
        ManifestError: it is something else, or of another version.
    """
    plan = parsed(data, source, _from_json)
    # Its name is that of the existing plan, even if this version would write it otherwise.
    vars(plan)["data"] = bytes(data)
    return plan


def _from_json(document: dict[str, Any]) -> JobPlan:
    version, splits = document["version"], document["splits"]
    if version not in (1, _VERSION, _TYPED):
        raise ValueError(version)
    if version == 1:
        splits = [from_version_1(one) for one in splits]
    follow = document.get("next_splits_follow", False)  # an earlier version names no log behind a split
    return JobPlan(
        wanted=dict(document["wanted"]),
        options={EARLIER.get(name, name): text for name, text in document["options"].items()},
        output=_output_of(document["output"]),
        location=document["location"],
        isolation=document["isolation"],
        partitions=msgspec.convert(document["partitions"], tuple[PartitionRange, ...]),
        splits=splits_from_json(splits) if follow else tuple(map(split_from_json, splits)),
        notes=tuple(document["notes"]),
        round=document.get("round", 1),
        start=None if "start" not in document else msgspec.convert(document["start"], TableEnd),
        begins=msgspec.convert(document.get("begins", {}), dict[str, dict[str, int]]),
        table_id=msgspec.convert(document.get("table_id", ""), str),
    )


def _require_fields(schema: pa.Schema) -> None:
    """Refuse decoded columns that Parquet cannot have.

    Raises:
        OptionError: a struct has no fields.
    """
    for one in schema:
        if (path := _empty_struct_in(one.type, one.name)) is not None:
            side, _, rest = path.partition(".")
            raise OptionError(
                f"{path} has no fields, and Parquet has no such columns",
                hint=f"Leave it out: name the other fields with {side}Fields" if rest else None,
            )


def _empty_struct_in(kind: pa.DataType, path: str) -> str | None:
    if pa.types.is_struct(kind):
        below = [(one.type, f"{path}.{one.name}") for one in kind]
        if not below:
            return path
    elif pa.types.is_map(kind):
        below = [(kind.key_type, path), (kind.item_type, path)]
    else:
        below = [(kind.value_type, path)] if pa.types.is_list(kind) else []
    return next((found for one in below if (found := _empty_struct_in(*one)) is not None), None)


def _saved_range(one: PartitionRange) -> dict[str, Any]:
    """Without what is not known of it: so a plan is as that of an earlier version, which knew none of these."""
    return {name: value for name, value in asdict(one).items() if name not in _KNOWN or value not in (None, -1)}


def _saved_output(output: OutputOptions) -> dict[str, Any]:
    saved = asdict(replace(output, decodings=()))
    del saved["decodings"]
    if not output.table:
        saved = {name: value for name, value in saved.items() if name not in _OF_TABLES}
    return saved | {"decodings": save_decodings(output.decodings)} if output.decodings else saved


def _output_of(saved: dict[str, Any]) -> OutputOptions:
    decodings = saved_decodings(saved.pop("decodings", {"schemas": {}}))
    return replace(msgspec.convert(saved, OutputOptions), decodings=tuple(decodings.values()))


def read_plan(target: TargetStore, number: int = 1) -> JobPlan | None:
    """The plan of one round of the job that writes to this target; ``None`` if there is none yet.

    Raises:
        ManifestError: the existing file is not a plan.
    """
    name = plan_name(number)
    try:
        data = target.read(name)
    except ObjectNotFoundError:
        return None
    return parse_plan(data, target.url(name))


def rounds_of(target: TargetStore, *, is_replaced: bool = False) -> list[int]:
    """The numbers of the rounds that have a plan, in order.

    Args:
        is_replaced: whether they are asked for in order to clear the target.

    Raises:
        OptionError: a run that cleared the target was killed, so that what is left is no output.
    """
    names = [info.name for info in target.list(PLANS)]
    if REPLACED in names and not is_replaced:
        raise OptionError(
            "a run with --force was killed while it removed what was there",
            source=target.url(""),
            hint="Run it again with --force",
        )
    return sorted(number for number in map(round_of, names) if number is not None)


def require_same(plan: JobPlan, wanted: Mapping[str, str], source: str, *, goes_on: bool = False) -> None:
    """Refuse a target that another job writes to.

    Args:
        source: the target, for the message.
        goes_on: whether a round is added: only what shapes the target must be the same then.

    Raises:
        OptionError: the plan was made for something else; it names the differences.
    """
    names = [*dict.fromkeys((*plan.wanted, *wanted))]
    if goes_on:
        names = [name for name in names if name in _OF_THE_TARGET and name in plan.wanted and name in wanted]
    if found := "; ".join(differences(plan, wanted, names)):
        raise OptionError(
            "the target belongs to another job",
            source=source,
            found=found,
            hint="Give the same" if goes_on else _to_do_otherwise(plan, wanted),
        )


def _to_do_otherwise(plan: JobPlan, wanted: Mapping[str, str]) -> str:
    """What a user may want who gives a target other options than it was written with."""
    ways = ["choose another target"]
    if not differences(plan, wanted, _OF_THE_TARGET):
        ways.insert(0, "add what is new with --continue")
    if not plan.output.table:
        ways.append("replace its files with --force")
    text = ", ".join(ways[:-1]) + (", or " if len(ways) > 1 else "") + ways[-1]
    return text[0].upper() + text[1:]


def differences(plan: JobPlan, wanted: Mapping[str, str], names: Iterable[str] | None = None) -> list[str]:
    """What a plan was made with and what is wanted now, where they differ, by today's flags.

    Args:
        names: of the choices that are compared; all of them unless given.
    """
    return [
        f"--{_SHOWN_AS.get(name, name)} {plan.wanted.get(name, '(not given)')} there, "
        f"{wanted.get(name, '(not given)')} here"
        for name in (dict.fromkeys((*plan.wanted, *wanted)) if names is None else names)
        if plan.wanted.get(name) != wanted.get(name)
    ]


def reads_otherwise(plan: JobPlan, wanted: Mapping[str, str]) -> bool:
    """Whether other topics or another place are wanted, or values decoded otherwise, than a plan was made with: where
    one cannot be read the other may.
    """
    same = {*_OF_A_ROUND, *_OF_THE_TARGET}
    names = (plan.wanted.keys() | wanted.keys()) - same
    # The bounds of ``lake.append`` have the names of the data source's options.
    return any(
        plan.wanted.get(name) != wanted.get(name) for name in names if not name.startswith(("starting", "ending"))
    )


def require_readable_together(before: JobPlan, plan: JobPlan, source: str) -> None:
    """Refuse a round of files that no reader takes together with those that are there: a column has another type.

    Fields that are new or left out are no matter: readers take them for null.

    Args:
        before: the round before.
        source: the target, for the message.

    Raises:
        OptionError: it names the first such column, and both types.
    """
    there, here = pa.struct(list(before.output.records)), pa.struct(list(plan.output.records))
    if (found := _differing(there, here, "")) is not None:
        path, old, new = found
        raise OptionError(
            f"the files of the target have another column {path}",
            source=source,
            found=f"{_shown(old)} there",
            expected=f"{_shown(new)} here",
            hint="Write to another target, or select what fits with columns=",
        )


def _differing(there: pa.DataType, here: pa.DataType, path: str) -> tuple[str, pa.DataType, pa.DataType] | None:
    """The first path at which two types are none that a reader could merge, and what they are there."""
    if pa.types.is_struct(there) and pa.types.is_struct(here):
        old = {one.name: one.type for one in there}
        pairs = [(old[one.name], one.type, f".{one.name}") for one in here if one.name in old]
    elif pa.types.is_map(there) and pa.types.is_map(here):
        pairs = [(there.key_type, here.key_type, ".key"), (there.item_type, here.item_type, ".value")]
    elif pa.types.is_list(there) and pa.types.is_list(here):
        pairs = [(there.value_type, here.value_type, ".element")]
    else:
        return None if there == here else (path.removeprefix("."), there, here)
    return next((found for one, two, name in pairs if (found := _differing(one, two, path + name)) is not None), None)


def _shown(kind: pa.DataType) -> str:
    return "struct" if pa.types.is_struct(kind) else str(kind)


def require_free(target: TargetStore, *, beside: str | None = None) -> None:
    """Refuse a target that has anything that no job writes.

    Args:
        beside: the beginning of names that may be there.

    Raises:
        OptionError: it names what is there.
    """
    foreign = list(islice((name for name in _names(target, beside) if not _is_ours(name)), _SHOWN))
    if foreign:
        raise OptionError(
            "the target holds something that this job did not write",
            source=target.url(""),
            found=", ".join(foreign),
            hint="Name a directory of its own for the output",
        )


def require_no_table(plan: JobPlan, source: str) -> None:
    """Refuse the ledger of a table where that of files is wanted.

    Args:
        source: the target, for the message.

    Raises:
        OptionError: it says how to name the table.
    """
    if kind := plan.output.table:
        is_delta = kind == "delta"
        raise OptionError(
            f"the target holds the files of {'a Delta' if is_delta else 'an Iceberg'} table",
            source=source,
            hint=f"Name the table: --to {kind}{'' if is_delta else ' with its --catalog and --table'}",
        )


def require_last(target: TargetStore, plan: JobPlan) -> None:
    """Refuse to add to a target of files whose last plan is lost: the next round would have its records again.

    Args:
        plan: the last one that is there.

    Raises:
        OptionError: there are files behind its end; it names one.
    """
    ends = plan.end.offsets
    for name in (info.name for info in target.list()):
        if (split := split_of_file(name)) is not None:
            topic, partition, start, _ = split.rsplit("-", 3)
            if int(start) >= ends.get(topic, {}).get(partition, 0):
                if rounds_of(target)[-1] > plan.round:
                    return  # another driver has begun it meanwhile
                raise OptionError(
                    "the target has files of a round whose plan is lost",
                    source=target.url(""),
                    found=name,
                    expected=f"no offsets of {topic}-{partition} behind {ends.get(topic, {}).get(partition, 0)}",
                    hint="Restore _job and the manifests, or choose another target",
                )


def require_unplanned(target: TargetStore, *, beside: str | None = None) -> None:
    """Refuse a target that has the output of a job but not its plan: nothing says which records these are.

    Args:
        beside: as of ``require_free``.

    Raises:
        OptionError: it names some of it.
    """
    there = list(islice(_names(target, beside), _SHOWN))
    if there and read_plan(target) is None:  # another driver may have put one there meanwhile
        raise OptionError(
            "the target holds files of a backfill, but no plan: it is a part of another target, or has lost its plan",
            source=target.url(""),
            found=", ".join(there),
            hint="Choose another target",
        )


def _names(target: TargetStore, beside: str | None) -> Iterator[str]:
    return (info.name for info in target.list() if beside is None or not info.name.startswith(beside))


def _is_ours(name: str) -> bool:
    """Whether an object of a target has a name that only this job gives."""
    is_ledger = name in (SUCCESS, REPLACED) or round_of(name) is not None or name.startswith(DONE)
    return is_ledger or split_of_file(name) is not None


def clear(target: TargetStore) -> None:
    """Remove what a job left in a target: first what marks it as complete, last its plan.

    Killed in between, no entry names a file that is gone, and the plan can be run again; where there are several, none
    can before they have been cleared.

    Raises:
        OptionError: there is something else, too; nothing is removed then.
    """
    require_free(target)
    plans = [plan_name(number) for number in rounds_of(target, is_replaced=True)]
    if len(plans) > 1:
        target.put_if_absent(REPLACED, b"")
    names = [info.name for info in target.list()]
    manifests = sorted((name for name in names if name.startswith(MANIFESTS)), reverse=True)
    target.delete([SUCCESS])
    target.delete(manifests)
    target.delete([name for name in names if name.startswith(DONE)])
    target.delete([name for name in names if name.startswith(STAGING) or split_of_file(name) is not None])
    target.delete([*plans[:0:-1], REPLACED, *plans[:1]])
