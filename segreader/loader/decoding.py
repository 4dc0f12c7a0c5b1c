"""What is left of a split, decoded a record batch at a time, each with where its batches lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from segreader.errors import DivergedPositionError
from segreader.format.columns import NO_STOP, BufferPool
from segreader.plan.split import Split
from segreader.read.header_reader import split_reader
from segreader.read.metrics import ScanMetrics
from segreader.read.options import ReadOptions
from segreader.read.trail import Stretch, Trail
from segreader.storage.base import ObjectStore


class Decoded(NamedTuple):
    """A record batch, the offset behind its last record, and where its batches lie."""

    batch: pa.RecordBatch
    next_offset: int
    stretch: Stretch


class Decoding:
    """Decodes one split. Use it from one thread at a time.

    Args:
        split: what is left to read.
        options: how; of columns that headers tell, ``offset`` is one.
        buffers: where columns are written.
        batch_offset: the base offset that its first batch should have; ``None`` if nobody knows.
    """

    def __init__(
        self,
        store: ObjectStore,
        options: ReadOptions,
        split: Split,
        metrics: ScanMetrics,
        buffers: BufferPool,
        batch_offset: int | None,
    ) -> None:
        reader = split_reader(store, options, metrics=metrics, pool=buffers)
        reader.trail = self._trail = Trail()
        self._split, self._source = split, store.url(split.log)
        self._expected = batch_offset
        self._reader = reader
        self._offsets_at = options.columns.index("offset") if "offset" in options.columns else None
        self._batches: Iterator[pa.RecordBatch] | None = reader.read(split)

    def next(self) -> Decoded | None:
        """The next record batch; ``None`` at the end.

        Raises:
            DivergedPositionError: another batch lies where reading began.
            FormatError, StorageError: as reading tells.
        """
        batch = None if self._batches is None else next(self._batches, None)
        self._check_first()
        if batch is None:
            return None
        at = self._offsets_at
        next_offset = self._reader.next_offset if at is None else batch.column(at)[-1].as_py() + 1
        return Decoded(batch, next_offset, self._trail.cut(next_offset))

    @property
    def end(self) -> Stretch:
        """What lies behind the last record."""
        return self._trail.cut(NO_STOP)

    def close(self) -> None:
        """Let go of buffers and connections."""
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()  # type: ignore[attr-defined]

    def _check_first(self) -> None:
        first, expected = self._trail.first, self._expected
        if expected is None or first is None:
            return
        self._expected = None
        if first != (self._split.positions.start, expected):
            raise DivergedPositionError(
                "another batch lies where the position says that reading goes on",
                source=self._source,
                position=first[0],
                found=f"one with base offset {first[1]}",
                expected=f"base offset {expected}",
                hint="The log was replaced by one of another history: ask an enumerator for splits_from([position])",
            )
