"""One partition as an ingester asks for it: from this offset on, within this time. The shape is Apache Pinot's.

Source: ``PartitionGroupConsumer.fetchMessages``, ``MessageBatch`` (Pinot 1.x): an empty batch if nothing came in time,
the offset to ask for next, and whether no more can come for good.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Self

import pyarrow as pa

from segreader.errors import (
    ClosedError,
    DeletedPositionError,
    ForeignPositionError,
    ObjectChangedError,
    ObjectNotFoundError,
    OptionError,
)
from segreader.loader.enumerator import SplitEnumerator
from segreader.loader.query import LoadQuery
from segreader.loader.reader import ReaderPool, ResumableReader, deadline_of
from segreader.loader.splits import LoaderSplit, without_byte
from segreader.plan.request import Policy
from segreader.values import dataclass

_AT_ONCE: Final = 8
"""Splits of a store on the network that are read at a time, unless the query has ``threads``."""


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """The result of a fetch.

    Args:
        records: the query's columns; no rows if nothing arrived in time.
        next_offset: the offset to fetch next. It may be larger than the requested one even without records, because
            markers and aborted records were skipped.
        end_of_partition: nothing more will ever come.
    """

    records: pa.RecordBatch
    next_offset: int
    end_of_partition: bool


class PartitionConsumer:
    """Fetches the records of one partition from any offset on; it is quickest where each fetch follows the last.

    It holds no position: two of them that are asked the same give the same. Use one from one thread; ``close`` may be
    called from another, and ends a fetch that waits.

    Args:
        query: of one topic.
        partition: which.
        storage_options: credentials and the like of the location, as ``segreader.scan`` takes them.
        follows: whether to look for what was uploaded since where the records end. Without it they end for good with
            what was there at first.

    Raises:
        OptionError: the query names no topic. ObjectNotFoundError: the location cannot be opened.
    """

    def __init__(
        self,
        query: LoadQuery,
        partition: int,
        *,
        storage_options: Mapping[str, object] | None = None,
        follows: bool = False,
    ) -> None:
        if query.topic is None:
            raise OptionError("a partition's consumer needs its topic", hint="Name it in the query")
        self.query = replace(query, partitions=(partition,))
        self._follows = follows
        self._splits: list[LoaderSplit] = []
        self._reader: ResumableReader | None = None
        self._at = 0  # which split the reader has
        self._next = 0  # the offset that it stands before
        self._has_looked = False
        self._is_closed = False
        self._enumerator = SplitEnumerator(self.query, storage_options=storage_options)
        self._pool = ReaderPool(self.query, storage_options=storage_options, max_open=query.threads or _AT_ONCE)
        self._ahead: dict[int, ResumableReader] = {}  # of the splits behind that one

    def fetch(
        self,
        start_offset: int,
        timeout: float | None = None,
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
    ) -> MessageBatch:
        """The first records at or after an offset.

        Args:
            start_offset: of the first record wanted.
            timeout: seconds to wait for records; ``None`` waits until there are some, or all were read. Listing the
                store may take longer.
            max_rows, max_bytes: at most so much; one record is given however large it is.

        Raises:
            DeletedPositionError: the offset was deleted (``on_gap='fail'``; otherwise the fetch continues after it).
            ForeignPositionError: the offset is before the start of the query, or behind the end of what is there.
            ClosedError: the consumer is closed.
            SegreaderError: as raised by ``ResumableReader.read`` and ``SplitEnumerator.discover``.
        """
        deadline = deadline_of(timeout)
        replanned_at: int | None = None
        if self._is_closed:
            raise ClosedError("the consumer is closed", hint="Open another one; it takes the same offsets")
        if not self._has_looked:
            self._look()
        if self._reader is None or start_offset != self._next:
            self._seek(start_offset)
        else:
            self._begin_ahead()  # not where offsets are asked for in any order
        while True:
            if self._reader is None:
                if not (self._follows and self._look()):
                    return self._empty(is_at_end=not self._follows or self._enumerator.is_finished)
                self._seek(self._next)
                continue
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                records = self._reader.read(max_rows, max_bytes, left)
            except (ObjectNotFoundError, ObjectChangedError):
                if replanned_at == self._next:  # what is listed now is not there either
                    raise
                replanned_at = self._next
                self._look_anew()
                continue
            if records is not None:
                self._next = self._reader.next_offset
                return MessageBatch(records, self._next, False)
            if not self._reader.is_finished:
                return self._empty(is_at_end=False)
            self._next = self._splits[self._at].stop
            self._open(self._at + 1)

    def close(self) -> None:
        """Release everything. Closing twice is not an error."""
        self._is_closed = True
        self._pool.close()
        self._enumerator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _look(self) -> bool:
        """Ask what is new; whether there is something."""
        found = self._enumerator.discover()
        self._has_looked = True
        self._splits += found
        return bool(found)

    def _look_anew(self) -> None:
        """Plan again what was found so far, by the segments of now, and keep the position."""
        self._let_go()
        (end,) = self._enumerator.end_positions()
        first = replace(end, next_offset=self._splits[0].start, leader_epoch=None)
        try:
            self._splits = self._enumerator.splits_from([first, end])
        except DeletedPositionError as error:
            if error.offset is None:
                raise
            first = replace(first, next_offset=min(error.offset, end.next_offset))
            self._splits = self._enumerator.splits_from([first, end])
        self._seek(self._next)

    def _seek(self, offset: int) -> None:
        """Move to the first record at or after an offset."""
        (end,) = [one.next_offset for one in self._enumerator.end_positions()] or [offset]
        first = self._splits[0].start if self._splits else end
        if offset < first and self.query.on_gap == Policy.FAIL:
            self._refuse_before(offset, first)
        if offset > end and not self._follows:
            raise ForeignPositionError(
                "the offset is beyond the end of the data",
                source=self.query.location,
                found=offset,
                expected=f"offset {first} to {end}",
                hint="It was taken from a longer log: an older copy, or an unclean election",
            )
        self._next = max(offset, first)
        self._open(bisect_right(self._splits, self._next, key=lambda split: split.stop))

    def _refuse_before(self, offset: int, first: int) -> None:
        asked = self.query.offset_range.start
        if offset < asked or self.query.since is not None:
            raise ForeignPositionError(
                "the offset is before the start of the query",
                found=offset,
                expected=f"offset {first} or above",
                hint="Fetch from there on, or widen the query",
            )
        raise DeletedPositionError(
            "the offset was deleted",
            source=self.query.location,
            offset=first,
            found=f"offsets from {first} on",
            expected=f"offset {offset}",
            hint=f"Fetch from offset {first} on; on_gap='skip' does so by itself",
        )

    def _open(self, at: int) -> None:
        """A reader of the split with this number, or none behind the last."""
        is_next = self._reader is not None and at == self._at + 1
        begun = self._ahead.pop(at, None)
        self._let_go(keeps_ahead=is_next)
        self._at = at
        if at < len(self._splits):
            split = self._splits[at]
            self._next = max(self._next, split.start)
            is_inside = self._next > split.start
            here = without_byte(replace(split.position, next_offset=self._next))
            if begun is not None and (is_inside or not is_next):
                begun.close()
                begun = None
            self._reader = begun or self._pool.open(split, here if is_inside else None)

    def _begin_ahead(self) -> None:
        """Begin the splits behind the one that is read, as many as the pool has threads for."""
        for at in range(self._at + 1, min(self._at + self._pool.splits_at_once, len(self._splits))):
            if at not in self._ahead:
                self._ahead[at] = self._pool.open(self._splits[at])
            self._ahead[at].begin()

    def _let_go(self, *, keeps_ahead: bool = False) -> None:
        readers = [] if self._reader is None else [self._reader]
        self._reader = None
        if not keeps_ahead:
            readers += self._ahead.values()
            self._ahead = {}
        for reader in readers:
            reader.close()

    def _empty(self, *, is_at_end: bool) -> MessageBatch:
        names = self.query.schema
        nothing = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in names], schema=names)
        return MessageBatch(nothing, self._next, is_at_end)
