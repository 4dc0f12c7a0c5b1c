"""Reads the metadata topic from a broker's raw log directories.

Any copy of ``__remote_log_metadata-<n>`` directories will do: only their ``.log`` files count. The newest one of each
directory may be cut or end in zeros, as a running broker's does; anything else that is not whole is an error.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import closing
from itertools import pairwise
from operator import ge
from typing import Literal

from segreader.catalog.metadata_log import METADATA_TOPIC, RemoteLogMetadata
from segreader.errors import (
    CorruptBatchError,
    FormatError,
    ObjectNotFoundError,
    SegmentGapError,
    TruncatedError,
    UnsupportedMagicError,
    shown_count,
)
from segreader.format.batch import CONTROL_FLAG
from segreader.format.columns import (
    TABLE_WIDTH,
    Buffer,
    BufferPool,
    ColumnBuffers,
    Decision,
    Outcome,
    State,
    Table,
)
from segreader.format.compression import Decompressor
from segreader.format.kernel import damage_error, load_kernel
from segreader.format.scanner import BatchRun, Done, NeedData, SegmentScanner, Tail
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo, ObjectStore

_LOG = re.compile(rf"(?:.*/)?{METADATA_TOPIC}-(?P<partition>\d{{1,9}})/(?P<base>\d{{20}})\.log")
_COLUMNS = frozenset({"offset", "value", "position"})
_MAX_ROWS = 4096


def read_remote_log_metadata(
    store: ObjectStore,
    prefix: str = "",
    *,
    topic: str | None = None,
    topic_id: str | None = None,
    partitions: Collection[int] | None = None,
    keep_deleted: bool = True,
) -> RemoteLogMetadata:
    """The contents of the metadata topic, from the raw log directories of its partitions.

    Args:
        store: holds them.
        prefix: the directory that holds the ``__remote_log_metadata-<n>`` directories, or one of these.
        topic, topic_id, partitions: keep only what is about these; the rest is skipped undecoded.
        keep_deleted: see ``RemoteLogMetadata``.

    Raises:
        ObjectNotFoundError: there is no such directory.
        FormatError: a batch or a value is damaged; with the object and where in it.
        SegmentGapError: a log is missing between two others.
        StorageError: as the store raises.
    """
    metadata = RemoteLogMetadata(topic=topic, topic_id=topic_id, partitions=partitions, keep_deleted=keep_deleted)
    logs = _find_logs(store, prefix)
    for number in sorted(logs):
        _MetadataPartitionReader(store, number, metadata).read(logs[number])
    if missing := sorted(set(range(max(logs))) - set(logs)):
        metadata.notes.append(
            f"{store.url(prefix)}: no directory of metadata partition {', '.join(map(str, missing))}: "
            "segments of the partitions that go there are not known"
        )
    return metadata


def _find_logs(store: ObjectStore, prefix: str) -> dict[int, dict[int, ObjectInfo]]:
    place = f"{prefix}/" if prefix and not prefix.endswith("/") else prefix
    is_one = re.fullmatch(rf"(?:.*/)?{METADATA_TOPIC}-\d+/", place)
    logs: dict[int, dict[int, ObjectInfo]] = defaultdict(dict)
    for info in store.list(place if is_one else f"{place}{METADATA_TOPIC}-"):
        match = _LOG.fullmatch(info.name)
        if match and info.name.count("/") == place.count("/") + (not is_one):
            logs[int(match["partition"])][int(match["base"])] = info
    if not logs:
        raise ObjectNotFoundError(
            "no logs of the remote log metadata topic here",
            source=store.url(prefix),
            expected=f"{METADATA_TOPIC}-<n>/<20 digits>.log",
            hint="Give the directory that holds the metadata topic's partition directories",
        )
    return logs


class MetadataBatches:
    """Takes the batches of one metadata partition in order, and hands their records to ``metadata``.

    Args:
        next_offset: below which no batch may begin.
    """

    def __init__(self, number: int, metadata: RemoteLogMetadata, *, next_offset: int = 0) -> None:
        self._number, self._metadata = number, metadata
        self._kernel = load_kernel()
        self._decompressor = Decompressor()
        pool = BufferPool(allocate=self._kernel.allocate)
        self._columns = ColumnBuffers(_COLUMNS, pool, max_rows=_MAX_ROWS, max_bytes=1 << 20)
        self._next = next_offset  # offset behind the last batch

    @property
    def next_offset(self) -> int:
        """One more than the last offset that was read."""
        return self._next

    def apply_batches(self, data: memoryview) -> None:
        """Take the next batches as a broker gives them; of a last one that is cut nothing is taken.

        Raises:
            FormatError: a batch or a value is damaged; what comes before it was applied, and the next call must begin
                with the same batches again.
        """
        scanner, start = SegmentScanner(stop=len(data), kernel=self._kernel), self._next
        try:
            while not isinstance(answer := scanner.next_run(), Done):
                if isinstance(answer, NeedData):
                    scanner.feed(data)
                else:
                    self._check_run(answer)
                    self._apply_run(answer)
        except FormatError:
            self._next = start
            raise

    def _check_run(self, run: BatchRun) -> None:
        """The CRC does not cover offsets of batches: their only check is that they rise."""
        table, stop = run.table, run.rows * TABLE_WIDTH
        bases = table[Table.BASE_OFFSET : stop : TABLE_WIDTH]
        ends = [last + 1 for last in table[Table.LAST_OFFSET : stop : TABLE_WIDTH]]
        magics = table[Table.MAGIC : stop : TABLE_WIDTH]
        if min(magics) < 2:
            row = next(row for row, magic in enumerate(magics) if magic < 2)
            raise UnsupportedMagicError(
                "a batch of the remote log metadata topic has an old format",
                found=f"magic {magics[row]}",
                expected="magic 2",
                position=table[row * TABLE_WIDTH + Table.POSITION],
            )
        expected = [self._next, *ends[:-1]]
        if not all(map(ge, bases, expected)):
            row = next(row for row, base in enumerate(bases) if base < expected[row])
            raise CorruptBatchError(
                "the offsets of batches do not rise",
                found=f"base offset {bases[row]}",
                expected=f"{expected[row]} or more",
                position=table[row * TABLE_WIDTH + Table.POSITION],
                base_offset=bases[row],
                hint="A base offset is not under the CRC: copy the directory from another replica",
            )
        self._next = ends[-1]
        for row, attributes in enumerate(table[Table.ATTRIBUTES : stop : TABLE_WIDTH]):
            if attributes & CONTROL_FLAG:
                table[row * TABLE_WIDTH + Table.DECISION] = Decision.SKIP

    def _apply_run(self, run: BatchRun) -> None:
        columns, state = self._columns, self._columns.state
        state[State.BATCH_ROW], state[State.RECORDS_LEFT] = 0, -1
        while True:
            try:
                outcome = self._kernel.decode_batches(
                    columns,
                    run.data,
                    run.data_position,
                    run.table,
                    run.rows,
                    True,
                    self._decompressor,
                )
            except FormatError as error:  # counted from the start of the batch, if at all
                self._apply_rows()
                row = state[State.BATCH_ROW] * TABLE_WIDTH
                error.located(position_shift=run.table[row + Table.POSITION])
                raise error.located(
                    position=run.table[row + Table.POSITION], base_offset=run.table[row + Table.BASE_OFFSET]
                ) from None
            if outcome == Outcome.GROW and columns.make_room():
                continue
            self._apply_rows()
            if outcome == Outcome.DAMAGED:
                raise damage_error(state, run.table)
            if outcome == Outcome.DONE:
                return

    def _apply_rows(self) -> None:
        columns = self._columns
        offsets = _numbers(columns, Buffer.OFFSET, "q", columns.rows)
        try:
            self._metadata.apply_each(self._number, zip(offsets, _values(columns), strict=True))
        except FormatError as error:
            at = "" if error.position is None else f" (byte {error.position} of the value)"
            error.message, error.source = error.message + at, None
            row = offsets.index(error.offset) if error.offset in offsets else 0
            error.position = _numbers(columns, Buffer.POSITION, "q", columns.rows)[row]
            raise
        columns.reset()


class _MetadataPartitionReader(MetadataBatches):
    """Reads the logs of one metadata partition in order."""

    def __init__(self, store: ObjectStore, number: int, metadata: RemoteLogMetadata) -> None:
        super().__init__(number, metadata)
        self._store = store

    def read(self, logs: dict[int, ObjectInfo]) -> None:
        bases = sorted(logs)
        if bases[0] > 0:
            self._metadata.notes.append(
                f"{self._store.url(logs[bases[0]].name)}: the records before offset {bases[0]} are gone: "
                "segments uploaded before are not known"
            )
        self._next = bases[0]
        for base in bases:
            source = self._store.url(logs[base].name)
            if base > self._next:
                raise SegmentGapError(
                    "a log of the remote log metadata topic is missing",
                    source=source,
                    found=f"offset {base} after {self._next - 1}",
                    expected=f"offset {self._next}",
                    hint="Copy the directory again",
                )
            try:
                self._read_log(logs[base], source, is_last=base == bases[-1])
            except FormatError as error:
                raise error.located(source=source) from None
        self._metadata.consumed[self._number] = max(self._next, self._metadata.consumed.get(self._number, 0))

    def _read_log(self, log: ObjectInfo, source: str, *, is_last: bool) -> None:
        size = log.size if log.size >= 0 else self._store.size(log.name)
        if not size:
            return
        scanner = SegmentScanner(stop=size, kernel=self._kernel)
        expected_size = None if is_last else size
        with closing(self._store.read_pieces(log.name, ByteRange(0, size), expected_size=expected_size)) as pieces:
            while not isinstance(answer := scanner.next_run(), Done):
                if isinstance(answer, NeedData):
                    scanner.feed(next(pieces, b""))
                else:
                    self._check_run(answer)
                    self._apply_run(answer)
        if answer.tail is Tail.CUT and not is_last:
            raise TruncatedError(
                "a log of the remote log metadata topic ends inside a batch, and another one follows",
                position=answer.position,
                base_offset=answer.base_offset,
                found=f"{shown_count(answer.trailing_bytes, 'byte')} after the last whole batch",
                hint="The copy is incomplete: copy the directory again",
            )
        if answer.tail is not Tail.END:
            what = "ends inside a batch" if answer.tail is Tail.CUT else "ends in zeros"
            self._metadata.notes.append(
                f"{source}: {what}: {shown_count(answer.trailing_bytes, 'byte')} after byte {answer.position}"
            )


def _values(columns: ColumnBuffers) -> Iterable[bytes | None]:
    bounds = _numbers(columns, Buffer.VALUE_OFFSETS, "i", columns.rows + 1)
    data = _bytes(columns, Buffer.VALUE_DATA, bounds[-1])
    values = [data[start:stop] for start, stop in pairwise(bounds)]
    if not columns.state[State.VALUE_NULLS]:
        return values
    validity = _bytes(columns, Buffer.VALUE_VALIDITY, (columns.rows + 7) // 8)
    return [value if validity[row >> 3] & (1 << (row & 7)) else None for row, value in enumerate(values)]


def _numbers(columns: ColumnBuffers, buffer: Buffer, form: Literal["i", "q"], count: int) -> list[int]:
    size = count * (4 if form == "i" else 8)
    return memoryview(_bytes(columns, buffer, size)).cast(form).tolist()


def _bytes(columns: ColumnBuffers, buffer: Buffer, size: int) -> bytes:
    return bytes(memoryview(columns.buffers[buffer] or b"")[:size])
