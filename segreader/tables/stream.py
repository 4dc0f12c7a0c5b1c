"""Many splits read at once and given in order: a bounded read-ahead that ends with whoever takes from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from threading import Condition, Thread
from typing import Final

import pyarrow as pa

from segreader.plan.split import Split

ReadSplit = Callable[[Split], Iterator[pa.RecordBatch]]
"""Reads one split after another; of one thread."""

_AHEAD_BYTES: Final = 64 << 20
"""Of batches that wait to be taken; who reads the split that is taken from now may always put one more."""

_UNHURRIED: Final = 2
"""Batches that are taken before other splits are read ahead: who wants a few rows costs no more than these."""


def read_in_order(
    splits: Sequence[Split], open_reader: Callable[[], ReadSplit], threads: int
) -> Generator[pa.RecordBatch, None, None]:
    """The batches of the splits in their order, read by some threads.

    Args:
        splits: what to read.
        open_reader: called once in each thread.
        threads: how many at most; with one, or one split, the caller's own thread reads.

    Raises:
        whatever a reader raises, after the batches before it.
    """
    if threads < 2 or len(splits) < 2:
        read = open_reader()
        for split in splits:
            yield from read(split)
        return
    ahead = _ReadAhead(splits, open_reader)
    try:
        for taken, batch in enumerate(ahead.batches()):
            if taken == _UNHURRIED:
                ahead.hurry(min(threads, len(splits)) - 1)
            yield batch
            del batch  # its buffers are free while the next one is waited for
    finally:
        ahead.close()


class _ReadAhead:
    """Readers and what they have read. Everything that changes is under ``_changed``.

    Splits are handed out in order, so the one that is taken from is always read, or has been: nobody waits for a
    reader that waits itself.
    """

    def __init__(self, splits: Sequence[Split], open_reader: Callable[[], ReadSplit]) -> None:
        self._splits, self._open_reader = splits, open_reader
        self._changed = Condition()
        self._read: dict[int, deque[pa.RecordBatch]] = {}
        self._ended: dict[int, BaseException | None] = {}
        self._begun = self._taking = self._waiting_bytes = 0
        self._most_bytes = 0
        self._is_closed = False
        self._threads: list[Thread] = []
        self._start(1)

    def hurry(self, count: int) -> None:
        """Read ahead from now on, with some more readers."""
        with self._changed:
            self._most_bytes = _AHEAD_BYTES
            self._changed.notify_all()
        self._start(count)

    def _start(self, count: int) -> None:
        for _ in range(count):
            thread = Thread(target=self._work, name="segreader-table", daemon=True)
            self._threads.append(thread)
            thread.start()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Everything that was read, in order."""
        for at in range(len(self._splits)):
            with self._changed:
                self._taking = at
                self._changed.notify_all()
            while (batch := self._take(at)) is not None:
                yield batch
                del batch

    def _take(self, at: int) -> pa.RecordBatch | None:
        with self._changed:
            self._changed.wait_for(lambda: self._read.get(at) or at in self._ended)
            if waiting := self._read.get(at):
                batch = waiting.popleft()
                self._waiting_bytes -= batch.nbytes
                self._changed.notify_all()
                return batch
            if (error := self._ended[at]) is not None:
                raise error
            return None

    def _work(self) -> None:
        at = -1
        try:
            read = self._open_reader()
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closed or self._most_bytes or self._begun <= self._taking)
                    if self._is_closed or self._begun == len(self._splits):
                        return
                    at, self._begun = self._begun, self._begun + 1
                    self._read[at] = deque()
                batches = read(self._splits[at])
                try:
                    for batch in batches:
                        if not self._put(at, batch):
                            return
                        del batch
                finally:
                    batches.close()  # type: ignore[attr-defined]
                self._end(at, None)
        except BaseException as error:
            self._end(max(at, 0), error)

    def _put(self, at: int, batch: pa.RecordBatch) -> bool:
        """Let a batch be taken, when there is room; returns whether to go on."""

        def has_room() -> bool:
            if self._is_closed or (at == self._taking and not self._read[at]):
                return True
            return bool(self._waiting_bytes + batch.nbytes <= self._most_bytes)

        with self._changed:
            self._changed.wait_for(has_room)
            if self._is_closed:
                return False
            self._read[at].append(batch)
            self._waiting_bytes += batch.nbytes
            self._changed.notify_all()
            return True

    def _end(self, at: int, error: BaseException | None) -> None:
        with self._changed:
            self._ended[at] = error
            self._changed.notify_all()

    def close(self) -> None:
        """End the readers, and wait until they have."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._read.clear()
