"""The records of one split as its files or its table hold them, in offset order, and what is wrong with these.

Knows the entry of the split, and nothing of where the records came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from segreader.backfill.done import DoneEntry
from segreader.backfill.lake.table import LakeTable
from segreader.backfill.output import OutputOptions, split_of_file
from segreader.backfill.writer import Values, WrittenFile, parted
from segreader.errors import ObjectNotFoundError, SegreaderError, shown_count
from segreader.storage.cancellation import left_alone
from segreader.storage.target.store import TargetStore
from segreader.values import dataclass

_ROWS: Final = 16384
"""Records of each file that are held at a time."""

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class OutputFinding:
    """One difference between an output and what it should be.

    Args:
        kind: ``manifest``, ``coverage``, ``unlisted``, ``file``, ``offsets``, ``digest`` or ``source``.
        where: the file, split or partition.
        text: what was found, and what was expected.
    """

    kind: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


@dataclass(slots=True)
class OffsetRuns:
    """Offsets for people: runs of them, the first few, and how many more; it takes no more memory than that."""

    runs: list[list[int]] = field(default_factory=list)
    more: int = 0
    _last: int | None = None

    def add(self, offsets: pa.Array) -> None:
        """Take in offsets, in the order in which they shall be told."""
        if not len(offsets):
            return
        following, before = offsets.slice(1), offsets.slice(0, len(offsets) - 1)
        begins = pc.indices_nonzero(pc.not_equal(following, pc.add(before, 1)))
        starts = [0, *(index + 1 for index in begins.to_pylist())]
        for start, stop in zip(starts, [*starts[1:], len(offsets)], strict=True):
            self._add_run(offsets[start].as_py(), offsets[stop - 1].as_py())

    def __bool__(self) -> bool:
        return bool(self.runs)

    def __str__(self) -> str:
        shown = [str(first) if first == last else f"{first}-{last}" for first, last in self.runs]
        return f"offsets {', '.join(shown)}" + (f" and {shown_count(self.more, 'more run')}" if self.more else "")

    def _add_run(self, first: int, last: int) -> None:
        follows = self._last is not None and first == self._last + 1
        self._last = last
        if follows and not self.more:
            self.runs[-1][1] = last
        elif not follows:
            if len(self.runs) < _SHOWN:
                self.runs.append([first, last])
            else:
                self.more += 1


def checked(
    batches: Iterable[pa.RecordBatch], entry: DoneEntry, findings: list[OutputFinding]
) -> Iterator[pa.RecordBatch]:
    """The same batches; which of their offsets are repeated or of another split is in ``findings`` after the last.

    Args:
        batches: records of one split, none of them empty.
    """
    at: int | None = None
    repeated, foreign = OffsetRuns(), OffsetRuns()
    for batch in batches:
        offsets = batch.column("offset")
        if at is not None and offsets[0].as_py() <= at:
            repeated.add(offsets.slice(0, 1))
        following = offsets.slice(1)
        repeated.add(following.filter(pc.less_equal(following, offsets.slice(0, len(following)))))
        outside = pc.or_(pc.less(offsets, entry.start), pc.greater_equal(offsets, entry.stop))
        foreign.add(offsets.filter(outside))
        at = offsets[-1].as_py()
        yield batch
    if repeated:
        findings.append(OutputFinding("offsets", entry.split, f"{repeated} are there twice, or out of order"))
    if foreign:
        findings.append(OutputFinding("offsets", entry.split, f"{foreign} belong to another split"))


class SplitRecords(Protocol):
    """The records of one split in an output, read as often as wanted, and what the last reading met."""

    findings: list[OutputFinding]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The records in offset order with all columns; what is wrong is in ``findings`` once all of them were taken.

        Raises:
            StorageError: the target or the table's catalog fails.
        """


@dataclass(slots=True)
class TableRecords:
    """``SplitRecords`` of a table, as its readers see them.

    Args:
        entry: what is known of the split.
        output: how its records became files.
        findings: what the last reading met.
    """

    table: LakeTable
    entry: DoneEntry
    output: OutputOptions
    findings: list[OutputFinding] = field(default_factory=list)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See ``SplitRecords``. A file of the table that is missing or damaged ends the records, with no error.

        Raises:
            StorageError: the table's catalog or store fails.
        """
        self.findings.clear()
        yield from checked(self._read(), self.entry, self.findings)

    def _read(self) -> Iterator[pa.RecordBatch]:
        entry, rows = self.entry, 0
        try:
            for batch in self.table.records(entry.topic, entry.partition, entry.start, entry.stop):
                try:
                    batch = _as_written(batch, self.output.records)
                except (KeyError, pa.ArrowException):
                    self._find(f"shows other columns: {', '.join(batch.schema.names)}")
                    return
                if not batch.num_rows:
                    continue
                if batch.column("offset").null_count or batch.column("timestamp").null_count:
                    self._find(f"has records without an offset or a time behind the first {rows} of {entry.split}")
                    return
                rows += batch.num_rows
                yield batch
        except ObjectNotFoundError as error:
            self._find(f"lacks a file of {entry.split}: {error}")
        except SegreaderError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            of = f"{rows} of {shown_count(entry.records, 'record')} of {entry.split}"
            self._find(f"cannot be read after {of}: {_first_line(error)}")

    def _find(self, text: str) -> None:
        self.findings.append(OutputFinding("file", self.table.name, text))


def _as_written(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns that a round wrote, of a table to which others have added theirs or wider types.

    Raises:
        KeyError, pa.ArrowException: the table lacks one, or has one that does not fit.
    """
    if batch.schema.equals(schema):
        return batch
    batch = batch.select(schema.names)
    if not all(_has(there.type, wanted.type) for there, wanted in zip(batch.schema, schema, strict=True)):
        raise KeyError("a field")
    return batch.cast(schema)


def _has(there: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a type has every field of another, at any depth; a cast would make what is not there null."""
    if pa.types.is_struct(there) and pa.types.is_struct(wanted):
        known = {one.name: one.type for one in there}
        return all(one.name in known and _has(known[one.name], one.type) for one in wanted)
    if pa.types.is_map(there) and pa.types.is_map(wanted):
        return _has(there.key_type, wanted.key_type) and _has(there.item_type, wanted.item_type)
    if pa.types.is_list(there) and pa.types.is_list(wanted):
        return _has(there.value_type, wanted.value_type)
    return True


@dataclass(slots=True)
class SplitFiles:
    """``SplitRecords`` of plain files.

    Args:
        entry: what is known of the split.
        output: how its records became files.
        findings: what the last reading met.
    """

    target: TargetStore
    entry: DoneEntry
    output: OutputOptions
    findings: list[OutputFinding] = field(default_factory=list)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See ``SplitRecords``.

        A file that is missing or damaged gives fewer records, and no error. The bytes of all files of the split are
        held, and a batch of each.

        Raises:
            StorageError: the target fails.
        """
        self.findings.clear()
        files = sorted(self.entry.files, key=lambda file: (file.first_offset, file.name))
        yield from checked(_in_order([self._read(file) for file in files]), self.entry, self.findings)

    def _find(self, kind: str, where: str, text: str) -> None:
        self.findings.append(OutputFinding(kind, where, text))

    def _read(self, file: WrittenFile) -> Iterator[pa.RecordBatch]:
        """The records of one file, without what cannot be read of it."""
        try:
            with left_alone():
                data = self.target.read(file.name)
        except ObjectNotFoundError:
            self._find("file", file.name, f"is not there: {shown_count(file.rows, 'record')} of {self.entry.split}")
            return
        if len(data) != file.size:
            self._find("file", file.name, f"has {len(data)} bytes, expected {file.size}")
        if split_of_file(file.name) != self.entry.split:
            self._find("file", file.name, f"has not the name of a file of {self.entry.split}")
        rows, first, last = 0, None, None
        seen: set[Values] = set()
        try:
            opened = pq.ParquetFile(pa.BufferReader(data))
            if not opened.schema_arrow.equals(self.output.schema):
                self._find("file", file.name, f"has other columns: {', '.join(opened.schema_arrow.names)}")
                return
            for batch in opened.iter_batches(_ROWS):
                if not batch.num_rows:
                    continue
                if batch.column("offset").null_count or batch.column("timestamp").null_count:
                    self._find("file", file.name, f"has records without an offset or a time behind the first {rows}")
                    return
                offsets = batch.column("offset")
                first = offsets[0].as_py() if first is None else first
                last = offsets[-1].as_py()
                rows += batch.num_rows
                seen |= {values for values, _ in parted(batch, self.output.split_by)}
                yield self._whole(batch)
        except (pa.ArrowException, OSError, ValueError) as error:  # names of columns are decoded, too
            self._find(
                "file",
                file.name,
                f"cannot be read after {rows} of {shown_count(file.rows, 'record')}: {_first_line(error)}",
            )
            return
        if rows != file.rows:
            self._find("file", file.name, f"has {shown_count(rows, 'record')}, expected {file.rows:,}")
        elif rows and (first, last) != (file.first_offset, file.last_offset):
            expected = f"{file.first_offset} to {file.last_offset}"
            self._find("file", file.name, f"has offsets {first} to {last}, expected {expected}")
        directory = file.name[: file.name.rfind("/") + 1]
        wrong = [values for values in seen if self._directory(values) != directory]
        if wrong:
            self._find("file", file.name, f"holds records that belong to {self._directory(wrong[0])}")

    def _directory(self, values: Values) -> str:
        return self.output.directory(self.entry.topic, self.entry.partition, values)

    def _whole(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """With the columns that a directory's name tells."""
        told = {"topic": self.entry.topic, "partition": self.entry.partition}
        names, schema = set(batch.schema.names), self.output.records
        columns = [
            batch.column(one.name) if one.name in names else pa.repeat(pa.scalar(told[one.name], one.type), len(batch))
            for one in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _in_order(files: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """The records of several files, each in offset order, as one sequence in offset order."""
    heads = [(batch, rest) for rest in files if (batch := next(rest, None)) is not None]
    while heads:
        bound = min(batch.column("offset")[-1].as_py() for batch, _ in heads)
        parts, kept = [], []
        for batch, rest in heads:
            left: pa.RecordBatch | None = batch
            count = pc.sum(pc.less_equal(batch.column("offset"), bound)).as_py()
            if count:
                parts.append(batch.slice(0, count))
                left = batch.slice(count) if count < len(batch) else next(rest, None)
            if left is not None:
                kept.append((left, rest))
        heads = kept
        if len(parts) == 1:
            yield parts[0]
        else:
            yield from pa.Table.from_batches(parts).sort_by("offset").combine_chunks().to_batches()


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]
