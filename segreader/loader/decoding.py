"""Decodes the rest of a split, one record batch at a time, each with the places of its batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from segreader.errors import (
    DivergedPositionError,
    FormatError,
    ObjectChangedError,
    ObjectNotFoundError,
    ShortReadError,
    UndecodableValueError,
)
from segreader.format.columns import NO_STOP, BufferPool
from segreader.loader.splits import LoaderSplit, Position, known_byte, rest_of, without_byte
from segreader.plan.request import ReadOptions
from segreader.plan.split import Split
from segreader.read.batch_positions import BatchPositions, KnownBatches
from segreader.read.decoders import decoder_of
from segreader.read.metrics import ScanMetrics
from segreader.read.split_reader import SplitReader
from segreader.storage.base import Fetched, ObjectStore


class Decoded(NamedTuple):
    """A record batch, the offset after its last record, and the places of its batches."""

    batch: pa.RecordBatch
    next_offset: int
    batches: KnownBatches


class SplitDecoding:
    """Decodes the rest of a split. Use it from one thread at a time.

    The byte that a position names is checked: the batch there must begin at or below the offset that is next, else
    records might be passed over. If it does not, reading begins where the index says, as if no byte had been named.

    Args:
        options: how; of columns that headers tell, ``offset`` is one.
        split: what is read.
        position: where in it.
        rest: what is left of it, as ``rest_of`` gave it for the position.
        buffers: where columns are written.
        fetched: bytes of ranges that are held, as of ``fetching``.
    """

    def __init__(
        self,
        store: ObjectStore,
        options: ReadOptions,
        split: LoaderSplit,
        position: Position,
        rest: Split,
        metrics: ScanMetrics,
        buffers: BufferPool,
        fetched: Fetched = None,
    ) -> None:
        self._store, self._whole, self._position = store, split, position
        self._reader = SplitReader(store, options, metrics=metrics, pool=buffers, decoder=decoder_of(options))
        self._reader.limit_fetched(fetched)
        self._offsets_at = options.columns.index("offset") if "offset" in options.columns else None
        self._is_checked = known_byte(split.split, position) is None
        self._is_at_start = rest.positions.start == split.split.positions.start  # before it nothing is passed over
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._begin(rest)

    def next(self) -> Decoded | None:
        """The next record batch; ``None`` at the end.

        Raises:
            DivergedPositionError: another batch is where reading began.
            UndecodableValueError: a key or value is not what its schema says, after the records before it.
            FormatError, StorageError: while reading.
        """
        try:
            batch = self._next()
        except FormatError:
            if self._is_checked or self._is_at_start or self._positions.first is not None:
                raise
            batch = None  # no batch begins at the byte named; or it is damaged, which will show again
        except UndecodableValueError:
            if self._is_checked or not self._is_misled():
                raise
            batch = None  # it may be behind the records that are next
        if not self._is_checked:
            self._is_checked = True
            if self._is_misled():
                self.close()
                rest = rest_of(self._whole, without_byte(self._position), self._store)
                if rest is None:
                    return None
                self._begin(rest)
                batch = self._next()
        if batch is None:
            return None
        at = self._offsets_at
        next_offset = self._reader.next_offset if at is None else batch.column(at)[-1].as_py() + 1
        return Decoded(batch, next_offset, self._positions.cut(next_offset))

    @property
    def end(self) -> KnownBatches:
        """What follows the last record."""
        return self._positions.cut(NO_STOP)

    def close(self) -> None:
        """Release buffers and connections."""
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()  # type: ignore[attr-defined]

    def _begin(self, rest: Split) -> None:
        self._reader.batch_positions = self._positions = BatchPositions()
        self._batches = self._reader.read(rest)

    def _next(self) -> pa.RecordBatch | None:
        try:
            return None if self._batches is None else next(self._batches, None)
        except (ObjectNotFoundError, ObjectChangedError, ShortReadError) as error:
            error.hint = (
                "The segment was deleted, or replaced, since its split was made: ask an enumerator for "
                "splits_from([position]) of this reader"
            )
            raise

    def _is_misled(self) -> bool:
        """Whether the byte named is no place to begin."""
        start, expected = self._position.batch_position, self._position.batch_offset
        found, base_offset = self._positions.first or (None, 0)
        if found == start and expected is not None and base_offset != expected:
            raise DivergedPositionError(
                "the position points to another batch",
                source=self._store.url(self._whole.split.log),
                position=found,
                found=f"one with base offset {base_offset}",
                expected=f"base offset {expected}",
                hint="The log was replaced by one of another history: ask an enumerator for splits_from([position])",
            )
        return not self._is_at_start and (found != start or base_offset > self._position.next_offset)
