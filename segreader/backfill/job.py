"""A job from its target's end to a target that has what is there since: which round is next, and its commits.

Files end where the plan of their last round ends. A table says itself where it ends: what of a plan is in it already,
or whether somebody else has written to it, is known even where the ledger is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final, Protocol

from segreader.backfill.commit import Entries, collect, commit, forget_unfinished, put_manifest, read_manifest
from segreader.backfill.done import DoneEntry, parse_done
from segreader.backfill.engine import LocalEngine, allowed_cores
from segreader.backfill.job_plan import (
    JobPlan,
    JobRequest,
    clear,
    make_plan,
    read_plan,
    reads_otherwise,
    require_free,
    require_last,
    require_no_table,
    require_readable_together,
    require_same,
    require_unplanned,
    rounds_of,
)
from segreader.backfill.job_splits import JobSplit
from segreader.backfill.lake.table import LakeTable, Offsets, TableEnd
from segreader.backfill.output import (
    DONE,
    STAGING,
    SUCCESS,
    PartitionField,
    done_name,
    manifest_name,
    plan_name,
    split_of_file,
)
from segreader.backfill.report import Completeness, complete
from segreader.backfill.task import Destination, SplitTask
from segreader.errors import ManifestError, ObjectNotFoundError, OptionError
from segreader.storage.target.store import TargetStore
from segreader.values import dataclass

_DATA: Final = "data/"
_DELTA_LOG: Final = "_delta_log/"
_WORTH_A_PROCESS: Final = 16 << 20


class Runner(Protocol):
    """What does units of work: processes of this machine, or Spark."""

    def run(self, task: SplitTask, groups: Sequence[Sequence[int]]) -> Iterator[bytes]:
        """What the task makes of each index of these groups, as it comes."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a job, as far as it is.

    Args:
        target: its ledger, and its files.
        entries: of the splits that are done.
        committed: ids of the splits that a table has already.
        is_resumed: whether it was planned by an earlier run.
        has_nothing: whether there is nothing new: its plan is nowhere but here.
        end: where the table ends.
    """

    plan: JobPlan
    target: TargetStore
    destination: Destination
    entries: Mapping[str, DoneEntry]
    committed: frozenset[str] = frozenset()
    is_resumed: bool = False
    has_nothing: bool = False
    end: TableEnd | None = None

    @property
    def pending(self) -> list[JobSplit]:
        """The splits that are not done, in the order of the plan."""
        return [split for split in self.plan.splits if split.id not in self.entries and split.id not in self.committed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request, and the target that it is for.

    Args:
        destination: of files; of a table, its credentials and settings, for the location is the table's to say.
        table: ``None`` for files.
        goes_on: add what is there since the target was written; otherwise a target has one round.
        is_forced: replace the files that are there.
    """

    request: JobRequest
    destination: Destination
    table: LakeTable | None = None
    goes_on: bool = False
    is_forced: bool = False

    def preview(self) -> JobPlan:
        """What the next round would do, or one that was not finished; nothing is written.

        Raises:
            SegreaderError: as ``make_plan``; or the existing target cannot be read.
        """
        if self.table is not None:
            end = self.table.end() if self.table.exists else None
            begins = self._begins_of(self.table) if end is not None and self.goes_on else None
            plan = self._plan_for_table(1, end if self.goes_on else None, begins)
            self.table.check(plan.output.records, plan.output.partition_by)
            return plan
        with closing(self.destination.open()) as target:
            numbers = [] if self.is_forced else rounds_of(target)
            last = read_plan(target, numbers[-1]) if numbers else None
            is_finished = last is not None and _is_finished(target, last)
        if last is None:
            return make_plan(self.request)
        require_no_table(last, self.destination.location)
        if self.goes_on:
            require_same(last, self.request.wanted, self.destination.location, goes_on=True)
            if not is_finished:
                return last
            plan = make_plan(self.request, number=last.round + 1, start=last.end, begins=last.begins)
            require_readable_together(last, plan, self.destination.location)
            return plan
        return last if dict(last.wanted) == dict(self.request.wanted) else make_plan(self.request)

    def begin(self) -> Round:
        """The round that is to be worked on: one that was not finished, or else a new one, whose plan is put into the
        target if there is anything new.

        Raises:
            OptionError: the target belongs to another job, or holds something else.
            SegreaderError: as ``make_plan``.
        """
        return self._begin_files() if self.table is None else self._begin_table(self.table)

    def _begin_files(self) -> Round:
        target = self.destination.open()
        numbers = rounds_of(target, is_replaced=self.is_forced)
        if self.is_forced or not numbers:
            require_free(target)
            if not numbers:
                require_unplanned(target)
            plan = make_plan(self.request)
            if self.is_forced:
                clear(target)
            return self._put(target, plan)
        last = _required_plan(target, numbers[-1])
        require_no_table(last, target.url(""))
        require_same(last, self.request.wanted, target.url(""), goes_on=self.goes_on)
        if not self.goes_on or not _is_finished(target, last):
            return Round(last, target, self.destination, _entries_of_files(target, last), is_resumed=True)
        plan = make_plan(self.request, number=last.round + 1, start=last.end, begins=last.begins)
        if not plan.splits:
            return Round(plan, target, self.destination, {}, has_nothing=True)
        require_readable_together(last, plan, target.url(""))
        require_last(target, last)
        target.delete([SUCCESS])
        return self._put(target, plan)

    def _begin_table(self, table: LakeTable) -> Round:
        is_there = table.exists
        end = table.end() if is_there else None
        number, begins = 1, None
        destination, target = self.destination, None
        if is_there:
            destination, target = self._ledger_of(table)
            left: list[str] = []
            if not (numbers := rounds_of(target)):
                left = [info.name for info in target.list(DONE)]
                numbers = rounds_of(target)  # so none of these is of a driver that has begun meanwhile
            last = _required_plan(target, numbers[-1]) if numbers else None
            if last is not None and last.table_id not in ("", table.id):  # of a table that was dropped
                number, last = last.round + 1, None
            if last is not None:
                end = table.end((one.topic, one.partition) for one in last.partitions)
                number, begins = last.round + 1, last.begins
                done = committed(last, end)
                if self.goes_on:
                    require_same(last, self.request.wanted, table.name, goes_on=True)
                is_ours = self.goes_on or dict(last.wanted) == dict(self.request.wanted)
                is_behind = self.goes_on and done is not None and len(done) == len(last.splits)
                is_finished = is_behind and read_manifest(target, last.round) is not None
                is_other = reads_otherwise(last, self.request.wanted) or last.output.partition_by != _fields_of(table)
                is_replanned = self.goes_on and not is_behind and is_other
                if is_ours and done is not None and not is_finished and not is_replanned:
                    entries = _usable(target, last, done)
                    if not is_behind or len(entries) == len(last.splits):  # what has lost its entries goes on as it is
                        return Round(last, target, destination, entries, done, is_resumed=True, end=end)
                if is_replanned:  # it may begin elsewhere
                    begins = _of_those_in(begins, {} if end is None else end.offsets)
            # a driver that was killed before it had a plan leaves a table with nothing in it
            is_empty = last is None and end is None and next(iter(table.files()), None) is None
            if not self.goes_on and not is_empty:
                there = "what no job wrote" if last is None else "an unfinished job with other options"
                raise OptionError(
                    "the table is there already",
                    source=table.name,
                    found=there if end is None else f"a table that ends at {json.dumps(end.offsets)}",
                    hint="Add what is there since with --continue, or name another table",
                )
            target.delete(left)  # entries without their plan say nothing
        plan = self._plan_for_table(number, end, begins)
        if not plan.splits:
            return Round(plan, target or destination.open(), destination, {}, has_nothing=True, end=end)
        table.check(plan.output.records, plan.output.partition_by)
        if not is_there and table.kind == "delta":  # of Iceberg the catalog gives the place when it makes the table
            _require_no_files(self.destination)
        ids = table.prepare(plan.output.records, plan.output.partition_by)
        destination, target = self._ledger_of(table)
        if not is_there and (numbers := rounds_of(target)):  # a table of this name was dropped, or is made by two
            of_another = _required_plan(target, numbers[-1]).table_id != table.id
            number = numbers[-1] + 1 if of_another else numbers[-1]
        plan = replace(plan, round=number, table_id=table.id, output=replace(plan.output, field_ids=dict(ids)))
        one = self._put(target, plan, destination)
        return replace(one, end=end)

    def _plan_for_table(self, number: int, end: TableEnd | None, begins: Offsets | None) -> JobPlan:
        assert self.table is not None
        output = replace(self.request.output, table=self.table.kind)
        if not output.partition_by and self.table.exists:
            output = replace(output, partition_by=self.table.partition_fields())
        return make_plan(replace(self.request, output=output), number=number, start=end, begins=begins)

    def _begins_of(self, table: LakeTable) -> Offsets | None:
        """Where the partitions of a table begin, by its ledger; ``OptionError`` if that is of another kind of job."""
        with closing(self._ledger_of(table)[1]) as target:
            numbers = rounds_of(target)
            last = read_plan(target, numbers[-1]) if numbers else None
        if last is None or last.table_id not in ("", table.id):
            return None
        require_same(last, self.request.wanted, table.name, goes_on=True)
        return last.begins

    def _ledger_of(self, table: LakeTable) -> tuple[Destination, TargetStore]:
        destination = self.destination.of_table(table)
        return destination, destination.open()

    def _put(self, target: TargetStore, plan: JobPlan, destination: Destination | None = None) -> Round:
        is_resumed = False
        if not target.put_if_absent(plan_name(plan.round), plan.data):  # another driver was first
            plan, is_resumed = _required_plan(target, plan.round), True
            require_same(plan, self.request.wanted, target.url(""), goes_on=self.goes_on)
        else:
            target.delete([manifest_name(plan.round)])  # of a plan that was lost
        entries = collect(target, plan) if self.table is None else _usable(target, plan, frozenset())
        return Round(plan, target, destination or self.destination, entries, is_resumed=is_resumed)

    def write(self, one: Round, runner: Runner, tell: Callable[[DoneEntry], None] = lambda entry: None) -> Entries:
        """Write what is pending, and commit it to the table, a group after another; the entries of all splits.

        Args:
            tell: called with each entry when its split is done.

        Raises:
            ConcurrentWriteError: the table does not end where this job left it.
            SegreaderError: while reading or writing.
        """
        entries = dict(one.entries)
        left = [split for split in one.plan.splits if split.id not in one.committed]
        if self.table is None:
            self._run(one, left, entries, runner, tell)
            return entries
        end, stops = one.end, self._stops(one)
        count = len(one.committed)
        for group in commit_groups(left, self.request.commit_bytes):
            self._run(one, group, entries, runner, tell)
            missing = [split.id for split in group if split.id not in entries]
            if missing:
                text = ", ".join(missing[:5])
                raise ManifestError("splits of a job are not done", source=self.table.name, found=text)
            stops |= {(split.partition.topic, split.partition.partition): split.stop for split in group}
            is_last = group[-1].id == left[-1].id
            after = one.plan.end if is_last else one.plan.end_after(stops)
            count += len(group)  # a driver that groups otherwise has no commit of the same name and other splits
            after = replace(after, commit=f"{one.plan.name}-{count}")
            files = [file for split in group for file in entries[split.id].files]
            self.table.commit(files, end, after)
            end = after
        return entries

    def _run(
        self,
        one: Round,
        group: Sequence[JobSplit],
        entries: dict[str, DoneEntry],
        runner: Runner,
        tell: Callable[[DoneEntry], None],
    ) -> None:
        pending = sorted((split for split in group if split.id not in entries), key=lambda split: -split.size)
        if not pending:
            return
        request = self.request
        task = SplitTask(
            request.options,
            one.plan.output,
            one.destination,
            pending,
            one.plan.name,
            on_missing=request.on_missing,
            on_corrupt=request.on_corrupt,
            threads=request.threads,
            read_ahead_bytes=request.read_ahead_bytes,
        )
        for data in runner.run(task, task.groups):
            entry = parse_done(data, "a task")
            entries[entry.split] = entry
            tell(entry)

    def _stops(self, one: Round) -> dict[tuple[str, int], int]:
        """The ends of the partitions of which a table has something of this round."""
        found: dict[tuple[str, int], int] = {}
        for split in one.plan.splits:
            if split.id in one.committed:
                found[split.partition.topic, split.partition.partition] = split.stop
        return found

    def finish(self, one: Round, entries: Entries, *, cleans: bool = True) -> Completeness:
        """Complete the target, or report what it lacks.

        Args:
            cleans: whether what killed attempts left is removed.
        """
        if self.table is None:
            return commit(one.target, one.plan, entries, cleans=cleans)
        if one.destination.is_vended:  # what gave access when the round began may have expired
            one = replace(one, target=one.destination.open())
        if one.committed:  # their entries are not needed to finish, only for the report
            entries = {**collect(one.target, one.plan), **entries}
        found = complete(one.plan, entries)
        if found.is_complete:
            if cleans:
                _remove_orphans(one.target, self.table, one.plan, entries)
                forget_unfinished(one.target, one.plan.round, entries)
            put_manifest(one.target, one.plan, entries, found)  # last: it says that nothing is left to do
        return found


def _entries_of_files(target: TargetStore, plan: JobPlan) -> Entries:
    """The entries of a round of files that hold: those of its manifest, or those whose files are there, staged or not.

    The others are deleted, so that their splits are written again.
    """
    manifest = read_manifest(target, plan.round)
    if manifest is not None and manifest.plan == plan.sha256:
        return {entry.split: entry for entry in manifest.entries}
    found = collect(target, plan)
    there: dict[str, int] = {}
    for place in (STAGING, "") if found else ():  # in this order: another driver may be moving them
        there |= {info.name.removeprefix(STAGING): info.size for info in target.list(place)}
    usable = {key: entry for key, entry in found.items() if all(there.get(one.name) == one.size for one in entry.files)}
    target.delete([done_name(key) for key in found.keys() - usable.keys()])
    return usable


def _fields_of(table: LakeTable) -> tuple[PartitionField, ...] | None:
    """What a table is partitioned by; ``None`` where files cannot be divided so."""
    try:
        return table.partition_fields()
    except OptionError:
        return None


def local_engine(one: Round, processes: int | None = None) -> LocalEngine:
    """The processes of this machine that a round is worth: one that is started costs as much as decoding some MiB.

    Args:
        processes: as many as that, if given.
    """
    if processes is None and all(split.size for split in one.pending):
        worth = sum(split.size for split in one.pending) // _WORTH_A_PROCESS
        processes = max(1, min(allowed_cores(), worth))
    return LocalEngine(processes)


def _require_no_files(destination: Destination) -> None:
    """Refuse to make a table of a directory that holds anything else: VACUUM would remove it.

    Raises:
        OptionError: the target has files that no job wrote to a table there.
    """
    with closing(destination.open()) as target:
        require_free(target, beside=_DELTA_LOG)  # of two jobs at once the other one may have made it
        require_unplanned(target, beside=_DELTA_LOG)
        numbers = rounds_of(target)
        last = read_plan(target, numbers[-1]) if numbers else None
    if last is not None and "to" not in last.wanted:
        raise OptionError(
            "the target holds the files of a job that writes no table",
            source=target.url(""),
            hint="Choose another target, or go on with these files: leave out --to",
        )


def committed(plan: JobPlan, end: TableEnd | None) -> frozenset[str] | None:
    """The ids of the splits of a plan that a table has already; ``None`` if the table ends where this plan never does:
    somebody else has written to it.
    """
    before = {} if plan.start is None else plan.start.offsets
    now = {} if end is None else end.offsets
    splits: dict[tuple[str, int], list[JobSplit]] = {}
    for split in plan.splits:
        splits.setdefault((split.partition.topic, split.partition.partition), []).append(split)
    found: set[str] = set()
    for one in plan.partitions:
        key = str(one.partition)
        at, was = now.get(one.topic, {}).get(key), before.get(one.topic, {}).get(key)
        if at == was:
            continue
        mine = splits.get((one.topic, one.partition), [])
        if at is None or at not in {one.stop, *(split.stop for split in mine)}:
            return None
        found |= {split.id for split in mine if split.stop <= at}
    return frozenset(found)


def commit_groups(splits: Sequence[JobSplit], commit_bytes: int) -> Iterator[list[JobSplit]]:
    """Splits in the order of the plan, in groups that are committed at once: of each partition a table then has
    everything up to some offset.

    Args:
        commit_bytes: stored bytes of a group; one of less ends the plan.
    """
    group: list[JobSplit] = []
    size = 0
    for split in splits:
        group.append(split)
        size += split.size
        if size >= commit_bytes:
            yield group
            group, size = [], 0
    if group:
        yield group


def _of_those_in(offsets: Offsets, there: Offsets) -> Offsets:
    """What is said of the partitions that are in both."""
    return {
        topic: {key: at for key, at in some.items() if key in there.get(topic, {})} for topic, some in offsets.items()
    }


def _is_finished(target: TargetStore, plan: JobPlan) -> bool:
    """Whether a round of files has its manifest, and its end has been cleaned up."""
    if read_manifest(target, plan.round) is None:
        return False
    try:
        target.read(SUCCESS)
    except ObjectNotFoundError:
        return False
    return True


def _required_plan(target: TargetStore, number: int) -> JobPlan:
    plan = read_plan(target, number)
    if plan is None:
        raise ManifestError("the plan of a round has gone", source=target.url(plan_name(number)))
    return plan


def _usable(target: TargetStore, plan: JobPlan, done: frozenset[str]) -> Entries:
    """The entries of a table's round that still hold. Stale ones are deleted, so that their splits are written again.

    An entry is stale after a rollback of the table, and when VACUUM has removed its files, which no commit named yet.

    Args:
        done: ids of the splits that the table has; their entries are kept.
    """
    found = collect(target, plan)
    there: dict[str, int] = {}
    if found.keys() - done:
        there = {info.name: info.size for info in target.list(_DATA)}
    usable = {
        key: entry
        for key, entry in found.items()
        if entry.plan == plan.name and (key in done or all(there.get(one.name) == one.size for one in entry.files))
    }
    target.delete([done_name(key) for key in found.keys() - usable.keys() - done])
    return usable


def _remove_orphans(target: TargetStore, table: LakeTable, plan: JobPlan, entries: Entries) -> None:
    """Remove the files of killed attempts at these splits; no commit names them, which the table itself confirms.

    Older ones than the plan stay: another version of the table may name them, or a table that had its place before.
    """
    listed = {file.name for entry in entries.values() for file in entry.files}
    planned_ms = next((info.modified_ms for info in target.list(plan_name(plan.round))), None)
    left = [
        info.name
        for info in target.list(_DATA)
        if info.name not in listed
        and split_of_file(info.name) in entries
        and planned_ms is not None
        and info.modified_ms is not None
        and info.modified_ms >= planned_ms
    ]
    if left:
        listed.update(table.files())
        target.delete([name for name in left if name not in listed])
