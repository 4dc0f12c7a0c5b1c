"""The plan of a job: what was asked for, and every split that it takes. Written once, then only read.

A run that finds a plan takes it, and lists nothing again: what was uploaded meanwhile belongs to the next job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cached_property
from hashlib import sha256
from itertools import islice
from typing import Any, Final

import msgspec
import pyarrow as pa

from segreader.backfill.done import learnt, parsed
from segreader.backfill.job_splits import (
    MOST_OFFSETS,
    JobSplit,
    PartitionRange,
    from_version_1,
    job_splits,
    live_splits,
    split_from_json,
    splits_from_json,
    splits_to_json,
)
from segreader.backfill.output import (
    DONE,
    MANIFEST,
    PLAN,
    STAGING,
    SUCCESS,
    OutputOptions,
    split_of_file,
)
from segreader.errors import ObjectNotFoundError, OptionError
from segreader.plan.cut import SplitOffsets
from segreader.plan.live import LivePart
from segreader.plan.request import Bounds, Policy
from segreader.plan.split import ReadPlan, Split
from segreader.spark.live import plan_live_read
from segreader.spark.options import EARLIER, SparkOptions, parse_options, require_batch
from segreader.spark.planning import plan_splits
from segreader.spark.typed_values import require_columns, with_schemas
from segreader.storage.target.store import TargetStore
from segreader.typed.decoding import save_decodings, saved_decodings
from segreader.values import dataclass

DEFAULT_SPLIT_BYTES: Final = 128 << 20

_VERSION = 2
_TYPED = 3
"""The version of a plan with schemas: one that passed over them would write columns of other types."""
_SHOWN = 5
learnt(OutputOptions)
learnt(PartitionRange)
_SHOWN_AS = {"layout": "output-layout", "segment-layout": "layout", "tail": "bootstrap-servers"}
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


@dataclass(frozen=True, kw_only=True)
class JobPlan:
    """Everything that a job will do.

    Args:
        wanted, options, output: as in the request that it was made for.
        location: where is read, as people may see it.
        isolation: which records.
        partitions: what is planned of each, in order.
        splits: in order of partition and offset.
        notes: what was noticed while planning.
    """

    wanted: Mapping[str, str]
    options: Mapping[str, str]
    output: OutputOptions
    location: str
    isolation: str
    partitions: tuple[PartitionRange, ...]
    splits: tuple[JobSplit, ...]
    notes: tuple[str, ...] = ()

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
        reads = (split.read for split in self.splits)
        return tuple(one for read in reads for one in ([read] if isinstance(read, Split) else read.splits))

    @property
    def next_offsets(self) -> dict[str, dict[str, int]]:
        """Where the next job, or a stream, continues: the JSON of Spark's kafka source."""
        offsets: dict[str, dict[str, int]] = {}
        for one in self.partitions:
            offsets.setdefault(one.topic, {})[str(one.partition)] = one.stop
        return offsets

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
            "partitions": [asdict(one) for one in self.partitions],
            "notes": list(self.notes),
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


def make_plan(request: JobRequest) -> JobPlan:
    """Decide what a job will do. Segments are listed, and where they end is read; no record is. Schemas are learnt:
    whoever runs the plan asks for none.

    Raises:
        SegreaderError: as ``plan_splits``; or damage hides where a partition ends, or what was committed.
        OptionError, SchemaRegistryError: schemas cannot be had.
    """
    options = parse_options(request.options, on_missing=request.on_missing)
    require_batch(options)
    options = with_schemas(options)
    require_columns(options.read_options)
    _require_fields(replace(request.output, decodings=options.read_options.decodings).records)
    options = replace(options, bounds=request.bounds, split_bytes=request.split_bytes, may_shrink_splits=False)
    if options.brokers is not None:
        live = plan_live_read(options, most_unsized=MOST_OFFSETS)  # it pins where each partition ends
        return _plan_of(request, options, live.plan, *live_splits(live))
    planned = plan_splits(options, split_offsets=SplitOffsets.INDEXED)
    read = planned.plan
    try:
        for end in read.ends:
            if end.damage is not None:  # it is behind what is planned: no task would meet it
                raise end.damage.located(hint=f"Read what is decided, with --offsets below {end.offset}")
        splits, partitions = job_splits(read, planned.store, planned.lost)
    finally:
        planned.store.close()
    return _plan_of(request, options, read, splits, partitions)


def _plan_of(
    request: JobRequest,
    options: SparkOptions,
    read: ReadPlan,
    splits: tuple[JobSplit, ...],
    partitions: tuple[PartitionRange, ...],
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
    )


def _require_fields(schema: pa.Schema) -> None:
    """Refuse decoded columns that Parquet cannot have.

    Raises:
        OptionError: a struct has no fields.
    """
    for field in schema:
        if (path := _empty_struct_in(field.type, field.name)) is not None:
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


def _saved_output(output: OutputOptions) -> dict[str, Any]:
    saved = asdict(replace(output, decodings=()))
    del saved["decodings"]
    return saved | {"decodings": save_decodings(output.decodings)} if output.decodings else saved


def _output_of(saved: dict[str, Any]) -> OutputOptions:
    decodings = saved_decodings(saved.pop("decodings", {"schemas": {}}))
    return replace(msgspec.convert(saved, OutputOptions), decodings=tuple(decodings.values()))


def read_plan(target: TargetStore) -> JobPlan | None:
    """The plan of the job that writes to this target; ``None`` if there is none yet.

    Raises:
        ManifestError: the existing file is not a plan.
    """
    try:
        data = target.read(PLAN)
    except ObjectNotFoundError:
        return None
    return parse_plan(data, target.url(PLAN))


def require_same(plan: JobPlan, wanted: Mapping[str, str], source: str) -> None:
    """Refuse a target that another job writes to.

    Args:
        source: the target, for the message.

    Raises:
        OptionError: the plan was made for something else; it names the differences.
    """
    differences = [
        f"{_SHOWN_AS.get(name, name)} {plan.wanted.get(name, 'not given')} there, {wanted.get(name, 'not given')} here"
        for name in dict.fromkeys((*plan.wanted, *wanted))
        if plan.wanted.get(name) != wanted.get(name)
    ]
    if differences:
        raise OptionError(
            "the target belongs to another job",
            source=source,
            found="; ".join(differences),
            hint="Choose another target, or replace its contents with --force",
        )


def require_free(target: TargetStore) -> None:
    """Refuse a target that has anything that no job writes.

    Raises:
        OptionError: it names what is there.
    """
    foreign = list(islice((info.name for info in target.list() if not _is_ours(info.name)), _SHOWN))
    if foreign:
        raise OptionError(
            "the target holds something that this job did not write",
            source=target.url(""),
            found=", ".join(foreign),
            hint="Name a directory of its own for the output",
        )


def require_unplanned(target: TargetStore) -> None:
    """Refuse a target that has the output of a job but not its plan: nothing says which records these are.

    Raises:
        OptionError: it names some of it.
    """
    there = [info.name for info in islice(target.list(), _SHOWN)]
    if there and read_plan(target) is None:  # another driver may have put one there meanwhile
        raise OptionError(
            "the target holds the output of a job whose plan is gone",
            source=target.url(""),
            found=", ".join(there),
            hint="Choose another target, or replace its contents with --force",
        )


def _is_ours(name: str) -> bool:
    """Whether an object of a target has a name that only this job gives."""
    return name in (PLAN, MANIFEST, SUCCESS) or name.startswith(DONE) or split_of_file(name) is not None


def clear(target: TargetStore) -> None:
    """Remove what a job left in a target: first what marks it as complete, last its plan.

    Killed in between, no entry names a file that is gone, and the plan can be run again.

    Raises:
        OptionError: there is something else, too; nothing is removed then.
    """
    require_free(target)
    names = [info.name for info in target.list()]
    target.delete([SUCCESS, MANIFEST])
    target.delete([name for name in names if name.startswith(DONE)])
    target.delete([name for name in names if name.startswith(STAGING) or split_of_file(name) is not None])
    target.delete([PLAN])
