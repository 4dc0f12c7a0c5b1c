"""The proof that an output is exact: its manifest against its plan, its files against the manifest, and both against
the segments.

Each split is checked on its own, in this process or in a task of Spark's. Nothing is written.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from segreader.backfill.commit import Manifest, collect, read_manifest
from segreader.backfill.digest import RecordDigest
from segreader.backfill.done import DoneEntry, learnt
from segreader.backfill.job import committed
from segreader.backfill.job_plan import JobPlan, read_plan, require_no_table, rounds_of
from segreader.backfill.job_splits import JobSplit, SplitTexts
from segreader.backfill.lake.place import TablePlace
from segreader.backfill.lake.table import LakeTable, TableEnd, flat_offsets
from segreader.backfill.output import PLAN, SUCCESS, OutputOptions, manifest_name, plan_name
from segreader.backfill.read_back import OffsetRuns, OutputFinding, SplitFiles, SplitRecords, TableRecords
from segreader.backfill.report import complete
from segreader.backfill.source import (
    FellBackError,
    JobSource,
    Readable,
    Remains,
    around_damage,
    from_brokers,
    kept_source,
    metrics_for,
    read_records,
)
from segreader.backfill.task import Destination
from segreader.errors import (
    FormatError,
    ObjectChangedError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    UndecodableValueError,
    shown_count,
)
from segreader.plan.request import ReadOptions
from segreader.read.ahead import in_order
from segreader.read.metrics import ScanMetrics
from segreader.spark.columns import to_spark
from segreader.spark.options import parse_options
from segreader.spark.worker import READ_BYTES, without_locals
from segreader.storage.cancellation import require_wanted
from segreader.storage.target.store import TargetStore
from segreader.values import dataclass

DDL: Final = "verdict string"
"""Spark's schema of what ``VerifyTask`` yields."""

_SCHEMA = pa.schema([("verdict", pa.string())])
_LAST: Final = (1 << 63) - 1


@learnt
@dataclass(frozen=True, slots=True)
class SplitVerdict:
    """What one split has in the output.

    Args:
        records: read from its files.
        digest: of these records.
        findings: nothing where the split is exact.
    """

    split: str
    records: int
    digest: str
    findings: tuple[OutputFinding, ...] = ()

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> SplitVerdict:
        """The verdict that ``to_json`` wrote."""
        return msgspec.convert(document, cls)

    def to_json(self) -> dict[str, Any]:
        """For ``json.dumps``."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class OutputRound:
    """What one round of a job left in the output.

    Args:
        entries: of its splits, by the split's id.
        is_committed: whether there is a manifest; only then are its files where they belong. A table says by itself
            which splits it has: the others have no entry here.
        again: ids of splits that a table has not, of offsets that it has by another round: a restore took them out.
    """

    plan: JobPlan
    entries: Mapping[str, DoneEntry]
    is_committed: bool
    again: frozenset[str] = frozenset()

    @property
    def losses(self) -> tuple[str, ...]:
        """What was asked for and could not be had when the job ran, as sentences: the output never had it."""
        if len(self.again) == len(self.plan.splits) > 0:  # other rounds say what could not be had
            return ()
        return complete(self.plan, self.entries).losses

    @property
    def pairs(self) -> list[tuple[JobSplit, DoneEntry]]:
        """The splits whose files can be checked, in the order of the plan."""
        if not self.is_committed:
            return []
        return [(split, self.entries[split.id]) for split in self.plan.splits if split.id in self.entries]


@dataclass(frozen=True, slots=True)
class Output:
    """An output before its records are read.

    Args:
        url: its place, without secrets.
        rounds: in order; there is one at least.
        findings: what the ledger, the list of files and the table tell.
    """

    url: str
    rounds: tuple[OutputRound, ...]
    findings: tuple[OutputFinding, ...]

    @property
    def losses(self) -> tuple[str, ...]:
        """Those of all rounds."""
        return tuple(text for one in self.rounds for text in one.losses)

    @property
    def entries(self) -> list[DoneEntry]:
        """Those of all rounds."""
        return [entry for one in self.rounds for entry in one.entries.values()]


@dataclass(frozen=True, slots=True)
class Verification:
    """The result: an output is exact when every offset of its plans is there once, with the bytes it was read with.

    Args:
        has_read_source: whether segments were read again, and not only the checksums of the manifest compared.
    """

    output: Output
    verdicts: tuple[SplitVerdict, ...]
    has_read_source: bool

    @property
    def findings(self) -> tuple[OutputFinding, ...]:
        """Every difference: first those of the whole, then those of the splits in order."""
        return (*self.output.findings, *(one for verdict in self.verdicts for one in verdict.findings))

    @property
    def is_exact(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """For ``json.dumps``."""
        rounds = self.output.rounds
        files = [file for entry in self.output.entries for file in entry.files]
        return {
            "is_exact": self.is_exact,
            "target": self.output.url,
            "plan": rounds[-1].plan.sha256,
            "rounds": len(rounds),
            "has_read_source": self.has_read_source,
            "splits": sum(len(one.plan.splits) - len(one.again) for one in rounds),
            "splits_checked": len(self.verdicts),
            "records": sum(verdict.records for verdict in self.verdicts),
            "files": len(files),
            "written_bytes": sum(file.size for file in files),
            "next_offsets": rounds[-1].plan.next_offsets,
            "losses": list(self.output.losses),
            "findings": [asdict(one) for one in self.findings],
        }


def read_output(target: TargetStore, table: LakeTable | None = None) -> Output:
    """Compare the manifests of an output with its plans, and with the files in the target or with what the table says.

    Args:
        target: the ledger, and the files.
        table: whose location this is; ``None`` where the files are all there is.

    Raises:
        ObjectNotFoundError: there is no plan: this is no output of the job.
        OptionError: these are files of a table, which is not given.
        ManifestError: plan, manifest or a done entry cannot be read.
    """
    plans = [plan for number in rounds_of(target) if (plan := read_plan(target, number)) is not None]
    if table is not None:
        plans = _of_this_table(plans, table.id)
    if not plans:
        raise ObjectNotFoundError(
            "there is no plan of a backfill", source=target.url(PLAN), hint="Name the target of a segreader backfill"
        )
    findings: list[OutputFinding] = []
    rounds: list[OutputRound] = []
    if table is None:
        require_no_table(plans[-1], target.url(""))
        for plan, following in zip(plans, [*plans[1:], None], strict=True):
            if following is not None and following.start is not None and following.start.offsets != plan.end.offsets:
                text = f"ends at {plan.next_offsets}, and the next round begins at {following.start.offsets}"
                findings.append(OutputFinding("coverage", plan_name(plan.round), text))
            rounds.append(_round_of_files(target, plan, findings))
        entries = {entry.split: entry for one in rounds for entry in one.entries.values()}
        findings += _listed(target, entries, is_committed=rounds[-1].is_committed)
    else:
        end = table.end(
            {(one.topic, one.partition) for plan in plans for one in plan.partitions}
            | {(topic, int(key)) for plan in plans for topic, key in flat_offsets(plan.start)}
        )
        shares = _shares(plans, end)
        rounds += [_round_of_table(target, one, findings) for one in shares]
        findings += _beside(table, shares, end)
    return Output(target.url("") if table is None else table.name, tuple(rounds), tuple(findings))


def _of_this_table(plans: Sequence[JobPlan], table_id: str) -> list[JobPlan]:
    """The plans that were not made for a table that had its place before."""
    found: list[JobPlan] = []
    for plan in plans:
        if plan.table_id == table_id and plan.start is None:
            found = [one for one in found if one.table_id]  # plans of earlier versions name no table
        if plan.table_id in ("", table_id):
            found.append(plan)
    return found


def _round_of_files(target: TargetStore, plan: JobPlan, findings: list[OutputFinding]) -> OutputRound:
    name = manifest_name(plan.round)
    entries, manifest = _entries_of(target, plan, findings)
    if manifest is None:
        findings.append(OutputFinding("manifest", name, "is not there: the job has not finished; run it again"))
    findings += [OutputFinding("coverage", "plan", text) for text in complete(plan, entries).findings]
    return OutputRound(plan, entries, manifest is not None)


@dataclass(frozen=True, slots=True)
class _Share:
    """What of a round a table has.

    Args:
        there: ids of the splits that it has; ``None`` if it ends where the round never does.
        again: ids of splits that it has not, of offsets that it has by other rounds.
        is_out: whether a restore took the table back to before the round.
    """

    plan: JobPlan
    there: frozenset[str] | None
    again: frozenset[str]
    is_out: bool

    @property
    def partitions(self) -> set[tuple[str, int]]:
        """Those in which the table has something of the round, as far as that is known."""
        found = [split for split in self.plan.splits if self.there is None or split.id in self.there]
        return {(split.partition.topic, split.partition.partition) for split in found}


def _shares(plans: Sequence[JobPlan], end: TableEnd | None) -> list[_Share]:
    """What a table has of each round, by where it ends now, and by where it ended when each later round began that it
    still has: one goes on where the other ended.
    """
    names = [plan.name for plan in plans]
    stops = flat_offsets(end)
    starts: dict[tuple[str, str], int] = {}  # of the rounds that it has
    found: list[tuple[JobPlan, frozenset[str] | None, bool]] = []
    now = end
    for number, plan in reversed(list(enumerate(plans))):
        is_out = _is_before(now, plan, names[:number])
        found.append((plan, frozenset() if is_out else committed(plan, now), is_out))
        if not is_out:
            for one in plan.partitions:
                key = one.topic, str(one.partition)
                starts[key] = min(one.start, starts.get(key, one.start))
            now = plan.start

    def is_covered(split: JobSplit) -> bool:
        key = split.partition.topic, str(split.partition.partition)
        return key in starts and starts[key] <= split.start and split.stop <= stops.get(key, 0)

    shares: list[_Share] = []
    for plan, there, is_out in reversed(found):
        absent = [] if there is None else [split for split in plan.splits if split.id not in there]
        shares.append(_Share(plan, there, frozenset(split.id for split in absent if is_covered(split)), is_out))
    return shares


def _is_before(now: TableEnd | None, plan: JobPlan, earlier: Sequence[str]) -> bool:
    """Whether a table ends before a plan began: with a commit of an earlier one, or with less than there was.

    Args:
        earlier: the names of the earlier plans.
    """
    if now is not None and now.commit.partition("-")[0] in earlier:
        return True
    at = flat_offsets(now)
    return any(at.get(key, -1) < offset for key, offset in flat_offsets(plan.start).items())


def _round_of_table(target: TargetStore, share: _Share, findings: list[OutputFinding]) -> OutputRound:
    """What a table has of a round, with the entries of these splits."""
    plan, there = share.plan, share.there
    if there is None:
        text = "ends where no commit of this round ended: somebody else has written to it"
        findings.append(OutputFinding("coverage", plan_name(plan.round), f"the table {text}"))
        return OutputRound(plan, {}, False)
    entries, _ = _entries_of(target, plan, findings)
    if lacking := sorted(there - entries.keys()):
        text = f"has no entry of {shown_count(len(lacking), 'split')} that the table has, such as {lacking[0]}"
        findings.append(OutputFinding("manifest", plan_name(plan.round), text))
    if lacking_splits := len(plan.splits) - len(there) - len(share.again):
        splits = shown_count(len(plan.splits), "split is", "splits are")
        text = f"{lacking_splits} of {splits} not committed: run the job again"
        findings.append(OutputFinding("coverage", plan_name(plan.round), text))
    return OutputRound(plan, {key: entry for key, entry in entries.items() if key in there}, True, share.again)


def _entries_of(
    target: TargetStore, plan: JobPlan, findings: list[OutputFinding]
) -> tuple[dict[str, DoneEntry], Manifest | None]:
    """The entries of a round: those of its manifest, or else those that are done."""
    manifest = read_manifest(target, plan.round)
    if manifest is None:
        return collect(target, plan), None
    entries: dict[str, DoneEntry] = {}
    name = manifest_name(plan.round)
    for entry in manifest.entries:
        if entry.split in entries:
            findings.append(OutputFinding("manifest", entry.split, "is in the manifest twice"))
        entries[entry.split] = entry
    if manifest.plan != plan.sha256:
        findings.append(OutputFinding("manifest", name, f"belongs to plan {manifest.plan}, expected {plan.sha256}"))
    return entries, manifest


def _beside(table: LakeTable, shares: Sequence[_Share], end: TableEnd | None) -> Iterator[OutputFinding]:
    """Records of the table outside of what the rounds wrote, of their partitions and of those that it says it has."""
    shares = sorted(shares, key=lambda one: one.is_out)  # of the rounds that it has, the first counts
    begun: dict[tuple[str, str], int] = {}
    planned: dict[tuple[str, str], int] = {}
    for share in shares:
        there = share.partitions
        for one in share.plan.partitions:
            if one.splits:
                found = begun if (one.topic, one.partition) in there else planned
                found.setdefault((one.topic, str(one.partition)), one.start)
    first, stops = planned | begun, flat_offsets(end)
    earlier = flat_offsets(shares[0].plan.start)  # where the first round that is left went on
    for (topic, key), start in (stops | first).items():
        stop = stops.get((topic, key), start)
        for low, high, where in ((0, start, f"before offset {start}"), (stop, _LAST, f"from offset {stop} on")):
            count = sum(batch.num_rows for batch in table.records(topic, int(key), low, high)) if low < high else 0
            if count:
                is_lost = low == 0 and (topic, key) in earlier
                why = "of rounds whose ledger is lost: they were not checked" if is_lost else "which no round wrote"
                text = f"has {shown_count(count, 'record')} of {topic}-{key} {where}, {why}"
                yield OutputFinding("unlisted", table.name, text)


def check_split(
    split: JobSplit, entry: DoneEntry, files: SplitRecords, output: OutputOptions, source: JobSource | None = None
) -> SplitVerdict:
    """Compare the records of a split with its entry, and with the segments.

    Args:
        files: the records as its files, or the readers of its table, have them.
        source: what the segments are read from; ``None`` compares with the entry's checksum only.

    Raises:
        StorageError: the target or the source fails, other than by an object that is not there, or was replaced.
    """
    digest = _digest_of(files.batches())
    findings = list(files.findings)
    if digest.value() != entry.digest:
        findings.append(OutputFinding("digest", split.id, _difference(digest.value(), entry.digest)))
    if source is not None:
        try:
            again = _read_again(split, source, output)
            expected = again.digest
            if again.damaged is not None and again.damaged.lost and not entry.damaged:
                raise again.damaged.error
            findings += _of_damage(entry, again)
            if expected.value() != digest.value():
                text = _first_difference(files.batches(), again.batches(source))
                findings.append(OutputFinding("source", split.id, text))
            if expected.value() != entry.digest:
                text = f"of the manifest is not that of the segments: {_difference(entry.digest, expected.value())}"
                findings.append(OutputFinding("manifest", split.id, f"the checksum {text}"))
            findings += _miscounted(entry, again.metrics)
        except (
            ObjectNotFoundError,
            ObjectChangedError,
            OffsetOutOfRangeError,
            FormatError,
            UndecodableValueError,
        ) as error:
            findings.append(OutputFinding("source", split.id, f"the segment cannot be read again: {error}"))
    return SplitVerdict(split.id, digest.records, digest.value(), tuple(findings))


class VerifyTask:
    """``frame.mapInArrow(VerifyTask(…).__call__, DDL)``: each row of the frame is the index of a split.

    Args:
        options: those of the data source; ``None`` where segments are not read again.
        table: the one that the files belong to; ``None`` where they are all there is.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[JobSplit, DoneEntry]],
        target: Destination,
        output: OutputOptions,
        options: Mapping[str, str] | None,
        table: TablePlace | None = None,
    ) -> None:
        self._splits = SplitTexts([split for split, _ in pairs])
        self._entries = [json.dumps(entry.to_json()) for _, entry in pairs]
        self._sizes = [sum(file.size for file in entry.files) for _, entry in pairs]
        self._target = target
        self._output = output
        self._options = dict(options) if options is not None else None
        self._table = table

    def __len__(self) -> int:
        return len(self._entries)

    @without_locals
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for each split; see ``DDL``."""
        for verdict in self.verdicts(index for batch in batches for index in batch.column(0).to_pylist()):
            yield pa.RecordBatch.from_pydict({"verdict": [json.dumps(verdict.to_json())]}, _SCHEMA)

    def verdicts(
        self, indexes: Iterable[int], options: ReadOptions | None = None
    ) -> Generator[SplitVerdict, None, None]:
        """Check some of the splits; the verdicts come in their order.

        Args:
            options: how many splits are checked at a time, and how many bytes their files may have; one by default.

        Raises:
            SegreaderError: as ``check_split``.
        """
        options = options or ReadOptions(threads=1)
        with ExitStack() as stack:
            target = stack.enter_context(self._target.kept())
            table = None if self._table is None else self._table.open()
            source: JobSource | None = None
            if self._options is not None:
                source = stack.enter_context(kept_source(parse_options(self._options)))

            def check(index: int) -> Iterator[SplitVerdict]:
                entry = DoneEntry.from_json(json.loads(self._entries[index]))
                files: SplitRecords = SplitFiles(target, entry, self._output)
                if table is not None:
                    files = TableRecords(table, entry, self._output)
                yield check_split(self._splits[index], entry, files, self._output, source)

            most_bytes = options.most_bytes_ahead(is_remote=True)  # a split's files are held whole
            most_fetched = 0 if source is None else max(1, most_bytes // 4)
            yield from in_order(
                list(indexes),
                lambda: check,
                name="segreader-check",
                threads=options.threads_for(is_remote="://" in self._target.location),
                most_bytes=most_bytes - most_fetched,
                fetched_of=lambda index: self._sizes[index] + READ_BYTES * (source is not None),
                most_fetched=most_fetched or None,
            )


def _listed(target: TargetStore, entries: Mapping[str, DoneEntry], *, is_committed: bool) -> Iterator[OutputFinding]:
    """Compare the files in the target with the list of files that count."""
    listed = {file.name for entry in entries.values() for file in entry.files}
    has_success = False
    for info in target.list():
        has_success = has_success or info.name == SUCCESS
        if info.name not in listed and not any(map(_is_hidden, info.name.split("/"))):
            yield OutputFinding(
                "unlisted", info.name, "is a file that the manifest does not list; readers would see it"
            )
    if is_committed and not has_success:
        yield OutputFinding("manifest", SUCCESS, "is not there: the job was killed at its end; run it again")


def _is_hidden(part: str) -> bool:
    """Whether Spark passes over what has this part in its name; it reads any other file, whatever its name ends with.

    Source: ``HadoopFSUtils.shouldFilterOutPathName`` (Spark 4).
    """
    return part.startswith(".") or (part.startswith("_") and "=" not in part)


@dataclass(frozen=True, slots=True)
class _Again:
    """A split whose segments were read again.

    Args:
        read: how they could be read.
        damaged: what is left of them, where batches are damaged.
    """

    read: Readable
    output: OutputOptions
    digest: RecordDigest
    metrics: ScanMetrics
    damaged: Remains | None = None

    def batches(self, source: JobSource) -> Iterator[pa.RecordBatch]:
        """Their records once more."""
        return _records(self.read, source, self.output, metrics_for(self.read), self.damaged)


def _read_again(split: JobSplit, source: JobSource, output: OutputOptions) -> _Again:
    """The checksum of the records as the job reads them, how they could be read, and what was counted."""
    read, remains = split.read, None
    while True:
        metrics = metrics_for(read)
        try:
            digest = _digest_of(_records(read, source, output, metrics, remains))
            return _Again(read, output, digest, metrics, remains)
        except FellBackError:
            read = from_brokers(read)
        except FormatError as error:
            if remains is not None:
                raise
            remains = around_damage(read, source, ReadOptions(**output.reading), error)


def _records(
    read: Readable, source: JobSource, output: OutputOptions, metrics: ScanMetrics, remains: Remains | None
) -> Iterator[pa.RecordBatch]:
    options, schema = ReadOptions(**output.reading), output.records
    for batch in read_records(read, source, options, metrics, remains=remains):
        require_wanted()
        yield to_spark(batch, schema)


def _of_damage(entry: DoneEntry, again: _Again) -> Iterator[OutputFinding]:
    """Whether the offsets that damage hides are those that the manifest names."""
    there = [(one.start, one.stop) for one in entry.damaged]
    found = [] if again.damaged is None else [(one.start, one.stop) for one in again.damaged.lost]
    if there != found:
        text = f"the manifest says that damage hides {_ranges(there)}, in the segments it hides {_ranges(found)}"
        yield OutputFinding("manifest", entry.split, text)


def _ranges(ranges: Sequence[tuple[int, int]]) -> str:
    return f"offsets {', '.join(f'{start} to {stop - 1}' for start, stop in ranges)}" if ranges else "nothing"


def _digest_of(batches: Iterable[pa.RecordBatch]) -> RecordDigest:
    digest = RecordDigest()
    for batch in batches:
        require_wanted()
        digest.update(batch)
    return digest


def _difference(found: str, expected: str) -> str:
    """How two checksums differ: in the number of records, or in columns."""
    there, wanted = _parts(found), _parts(expected)
    records = f"{there.pop('records')} records, expected {wanted.pop('records')}"
    names = sorted({name.partition(".")[0] for name in there.keys() | wanted if there.get(name) != wanted.get(name)})
    return f"{records}; checksums differ in {', '.join(names) or 'nothing'}"


def _parts(digest: str) -> dict[str, str]:
    _, records, _, columns = [*digest.split(":", 3), "", "", ""][:4]
    return {"records": records} | dict(one.partition("=")[::2] for one in columns.split(",") if one)


def _first_difference(found: Iterator[pa.RecordBatch], expected: Iterator[pa.RecordBatch]) -> str:
    """How the records of files and segments differ: in offsets, or in the first record that is not the same.

    Both sides are walked side by side; a batch of each is held.
    """
    missing, foreign = OffsetRuns(), OffsetRuns()
    wrong = ""
    ours, theirs = next(found, None), next(expected, None)
    while ours is not None and theirs is not None:
        mine, wanted = ours.column("offset"), theirs.column("offset")
        count = min(len(ours), len(theirs))
        if mine.slice(0, count).equals(wanted.slice(0, count)):
            wrong = wrong or _first_row(ours.slice(0, count), theirs.slice(0, count))
            taken = (count, count)
        else:
            bound = min(mine[-1].as_py(), wanted[-1].as_py())
            taken = tuple(pc.sum(pc.less_equal(side, bound)).as_py() for side in (mine, wanted))
            here, there = mine.slice(0, taken[0]), wanted.slice(0, taken[1])
            missing.add(there.filter(pc.invert(pc.is_in(there, here))))
            foreign.add(here.filter(pc.invert(pc.is_in(here, there))))
        ours = ours.slice(taken[0]) if taken[0] < len(ours) else next(found, None)
        theirs = theirs.slice(taken[1]) if taken[1] < len(theirs) else next(expected, None)
    for side, left, batches in ((foreign, ours, found), (missing, theirs, expected)):
        while left is not None:
            side.add(left.column("offset"))
            left = next(batches, None)
    told = [wrong] if wrong else []
    if missing:
        told.append(f"{missing} are missing")
    if foreign:
        told.append(f"{foreign} are not in the segments")
    return "; ".join(told) or "records are there twice, or out of order"


def _first_row(found: pa.RecordBatch, expected: pa.RecordBatch) -> str:
    """The first of two rows of records that differ, without their values."""
    differing = [name for name in found.schema.names if not found.column(name).equals(expected.column(name))]
    if not differing:
        return ""
    low, high = 0, len(found)  # the first difference is in low <= row < high
    while high - low > 1:
        middle = (low + high) // 2
        same = all(found.column(name)[low:middle].equals(expected.column(name)[low:middle]) for name in differing)
        low, high = (middle, high) if same else (low, middle)
    names = [name for name in differing if found.column(name)[low] != expected.column(name)[low]]
    return f"the record at offset {found.column('offset')[low]} has another {', '.join(names)} than the segments"


def _miscounted(entry: DoneEntry, metrics: ScanMetrics) -> Iterator[OutputFinding]:
    counts = {"control_records": "control records", "aborted_records": "aborted records"}
    counts["undecodable"] = "undecodable keys and values"
    for name, shown in counts.items():
        there, wanted = getattr(entry, name), getattr(metrics, name)
        if there != wanted:
            text = f"the manifest counts {there} {shown}, the segments have {wanted}"
            yield OutputFinding("manifest", entry.split, text)
