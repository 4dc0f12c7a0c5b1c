"""What a store is asked for when a reader goes on at a position, beside what is needed."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.inputs import BATCH_BYTES, SHAPES, write_inputs
from benchmarks.rows import MIB, Row
from segreader.format.batch import HEADER_SIZE, parse_batch_header
from segreader.loader import LoaderSplit, LoadQuery, Position, ReaderPool, SplitEnumerator
from segreader.ranges import ByteRange

INDEX_INTERVAL = 4096
_WHOLE_READS = 3


@dataclass(slots=True)
class RecordingStore:
    """A store, and what was asked of it.

    Args:
        inner: what answers.
        asked: each request, by name and range.
        given: bytes that came.
    """

    inner: Any
    asked: list[tuple[str, ByteRange | None]] = field(default_factory=list)
    given: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def size(self, name: str) -> int:
        self.asked.append((name, None))
        size: int = self.inner.size(name)
        return size

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        self.asked += [(name, one) for one in ranges]
        self.given += sum(one.size for one in ranges)
        found: Sequence[bytes] = self.inner.read_ranges(name, ranges)
        return found

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        self.asked.append((name, ByteRange(start, start + len(buffer))))
        self.given += len(buffer)
        self.inner.read_into(name, start, buffer)

    def read_pieces(self, name: str, wanted: ByteRange, **options: Any) -> Generator[memoryview, None, None]:
        self.asked.append((name, wanted))
        for piece in self.inner.read_pieces(name, wanted, **options):
            self.given += len(piece)
            yield piece


@dataclass(frozen=True, slots=True)
class Restore:
    """What one restore took.

    Args:
        indexes: reads of anything but the log.
        sizes: questions for the size of something.
        ranges: reads of the log.
        more: bytes of the log that were asked for before the batch with the next record.
        is_aligned: whether the range begins where a batch does.
    """

    indexes: int
    sizes: int
    ranges: int
    more: int
    is_aligned: bool


def measure_restore(place: Path, mib: int, restores: int) -> Iterator[Row]:
    """Restore at random offsets of one segment that is one split, with the byte of the position and without."""
    source = write_inputs(place, SHAPES[1], ["none"], mib << 20)["none"]
    starts = list(_batch_starts(source.log))
    query = LoadQuery(location=str(source.location), split_bytes=4 * source.stored_bytes)
    with SplitEnumerator(query) as enumerator, ReaderPool(query) as pool:
        (split,) = enumerator.discover()
        store = pool.store = RecordingStore(pool.store)
        rng = random.Random(mib)
        offsets = rng.sample(range(split.start + 1, split.stop), restores)
        for name, has_byte in (("with its byte", True), ("without it", False)):
            found = []
            for offset in offsets:
                position = _position(split, starts, offset, has_byte=has_byte)
                found.append(_restore(pool, store, split, position, starts))
            note = f"its size is asked for {max(one.sizes for one in found)} times"
            yield Row(
                f"reads of an index, position {name}", _most(one.indexes for one in found), not has_byte, note=note
            )
            yield Row(f"reads of the log, position {name}", _most(one.ranges for one in found), 1)
            if not all(one.is_aligned for one in found):
                raise RuntimeError("a range of the log does not begin where a batch does")
            allowed = 0 if has_byte else INDEX_INTERVAL + BATCH_BYTES + HEADER_SIZE
            more = _most(one.more / 1024 for one in found)
            note = f"{restores} offsets"
            yield Row(f"log before the batch, position {name}", more, allowed / 1024, " KiB", note)
        for name, has_byte in (("with its byte", True), ("without it", False)):
            shares = []
            for offset in offsets[:_WHOLE_READS]:
                position = _position(split, starts, offset, has_byte=has_byte)
                shares.append(_whole(pool, store, split, position, starts) / 1024)
            note = f"an index is {source.log.with_suffix('.index').stat().st_size / MIB:.2f} MiB"
            yield Row(f"more than needed, to the end, {name}", _most(shares), None, " KiB", note)
    source.remove()


def _most(values: Iterator[float] | Sequence[float]) -> tuple[float, ...]:
    """The worst one: a bound on each is not one on their median."""
    return (float(max(values)),)


def _batch_starts(log: Path) -> Iterator[tuple[int, int, int]]:
    """Of each batch its first offset, the one behind its last, and its first byte."""
    position, size = 0, log.stat().st_size
    with log.open("rb") as file:
        while position < size:
            file.seek(position)
            header = parse_batch_header(memoryview(file.read(HEADER_SIZE)))
            yield header.base_offset, header.last_offset + 1, position
            position += header.size


def _batch_of(starts: Sequence[tuple[int, int, int]], offset: int) -> tuple[int, int, int]:
    low, high = 0, len(starts) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if starts[middle][0] <= offset else (low, middle - 1)
    return starts[low]


def _position(split: LoaderSplit, starts: Sequence[tuple[int, int, int]], offset: int, *, has_byte: bool) -> Position:
    """The position of a reader that has read all below an offset; it has gone through its JSON."""
    base, _, byte = _batch_of(starts, offset)
    if has_byte:
        position = replace(split.position, next_offset=offset, batch_position=byte, batch_offset=base, aborted=())
    else:
        position = replace(split.position, next_offset=offset, log=None, log_size=None, batch_position=None)
    return Position.from_json(position.to_json())


def _restore(
    pool: ReaderPool,
    store: RecordingStore,
    split: LoaderSplit,
    position: Position,
    starts: Sequence[tuple[int, int, int]],
) -> Restore:
    store.asked.clear()
    with pool.open(split, position) as reader:
        first = reader.read(max_rows=1)
    if first is None or first.column("offset")[0].as_py() != position.next_offset:
        raise RuntimeError(f"reading does not go on at offset {position.next_offset}")
    asked = [one for name, one in store.asked if name == split.split.log and one is not None]
    sizes = sum(one is None for _, one in store.asked)
    begin = min(one.start for one in asked)
    needed = _batch_of(starts, position.next_offset)[2]
    is_aligned = any(byte == begin for _, _, byte in starts)
    return Restore(len(store.asked) - len(asked) - sizes, sizes, len(asked), needed - begin, is_aligned)


def _whole(
    pool: ReaderPool,
    store: RecordingStore,
    split: LoaderSplit,
    position: Position,
    starts: Sequence[tuple[int, int, int]],
) -> float:
    """Bytes that came, of everything, over those from the batch with the next record to the end of the split."""
    store.given = 0
    with pool.open(split, position) as reader:
        while reader.read() is not None:
            pass
    return store.given - (split.split.positions.stop - _batch_of(starts, position.next_offset)[2])
