"""Two segments of the same records: in one lie a hundred thousand aborted transactions, in the other none.

Between the batches of a producer that commits stand a batch and a marker of others. In the one log the batch is data
and the marker aborts it; in the other the same bytes are marked as control batches, which no reader is given either. So
both are read, checked and passed over alike, the same records come out, and what differs is the look-up.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from benchmarks.plan_bucket import Topic
from segreader.format.batch import Record, TimestampType
from segreader.format.compression import Codec
from segreader.plan.cut import DEFAULT_SPLIT_BYTES
from segreader.scans import scan
from segreader.testing.batches import ABORT, COMMIT, control_key, encode_batch, end_marker_value
from segreader.testing.directory import write_files
from segreader.testing.side_files import (
    AbortedEntry,
    IndexRecorder,
    encode_leader_epochs,
    encode_producer_snapshot,
    encode_transaction_index,
)

FIRST_TIME_MS = 1_700_000_000_000
COMMITTING, FIRST_ABORTING = 7, 1000
RECORDS = 10
CONTROL = 0x20


def batch(producer_id: int, values: Sequence[bytes], *, codec: int = Codec.NONE, ends: int | None = None) -> bytes:
    """A transactional batch but for its base offset, which no CRC covers; with ``ends`` a marker of that type."""
    is_marker = ends is not None
    records = [
        Record(at, FIRST_TIME_MS, TimestampType.CREATE_TIME, b"key" if ends is None else control_key(ends), value)
        for at, value in enumerate(values)
    ]
    last = len(values) - 1
    made = encode_batch(
        records, base_offset=0, last_offset=last, codec=codec, producer_id=producer_id, producer_epoch=0,
        base_sequence=0, transactional=True, control=is_marker,
    )  # fmt: skip
    return made[8:]


def as_control(made: bytes) -> bytes:
    """The same batch, marked as a control batch."""
    covered = made[13:14] + bytes([made[14] | CONTROL]) + made[15:]
    return made[:9] + struct.pack(">I", crc32c(covered)) + covered


@dataclass(frozen=True, slots=True)
class Pair:
    """Where the two lie; each is a location."""

    aborted: Path
    none: Path
    records: int
    stored_bytes: int


def write_pair(place: Path, transactions: int, producers: int, value_size: int, codec: int = Codec.NONE) -> Pair:
    """Segments with so many transactions of so many producers, each behind ten records of ``value_size`` bytes.

    The records are hexadecimal digits, of which a codec makes about half.
    """
    digits = random.Random(405)
    committed = batch(
        COMMITTING, [digits.randbytes(value_size // 2).hex().encode() for _ in range(RECORDS)], codec=codec
    )
    ids = range(FIRST_ABORTING, FIRST_ABORTING + producers)
    data = [batch(one, [b"x" * 100]) for one in ids]
    markers = [batch(one, [end_marker_value(0)], ends=ABORT) for one in ids]
    size = _write(place / "aborted", transactions, committed, data, markers, is_aborted=True)
    hidden = [as_control(one) for one in data]
    if _write(place / "none", transactions, committed, hidden, markers, is_aborted=False) != size:
        raise ValueError("the two segments are not alike")
    return Pair(place / "aborted", place / "none", transactions * RECORDS, size)


def _write(
    place: Path, transactions: int, committed: bytes, data: list[bytes], markers: list[bytes], *, is_aborted: bool
) -> int:
    topic = Topic("orders", 1, 1)
    stem = f"{topic.name}-0-{topic.topic_id}/{topic.stem(0, 0)}"
    index = IndexRecorder(0, 4096)
    pieces: list[bytes] = []
    rows: list[AbortedEntry] = []
    offset = position = 0
    for number in range(transactions):
        producer = number % len(data)
        first = offset + RECORDS
        for made, count in ((committed, RECORDS), (data[producer], 1), (markers[producer], 1)):
            index.append(position, len(made) + 8, offset + count - 1, FIRST_TIME_MS)
            pieces += (struct.pack(">q", offset), made)
            offset, position = offset + count, position + len(made) + 8
        rows.append(AbortedEntry(FIRST_ABORTING + producer, first, first + 1, first + 2))
    commit = batch(COMMITTING, [end_marker_value(0)], ends=COMMIT)
    index.append(position, len(commit) + 8, offset, FIRST_TIME_MS)
    pieces += (struct.pack(">q", offset), commit)
    position += len(commit) + 8
    files = {
        f"{stem}.index": index.offset_index(),
        f"{stem}.timeindex": index.time_index(),
        f"{stem}.snapshot": encode_producer_snapshot([]),
        f"{stem}.leader_epoch_checkpoint": encode_leader_epochs([(0, 0)]),
        f"{stem}.txnindex": encode_transaction_index(rows) if is_aborted else b"",
        f"{stem}.log": b"",
    }
    write_files(place, files)
    with (place / f"{stem}.log").open("wb") as log:
        log.writelines(pieces)
    return position


@dataclass(frozen=True, slots=True)
class Times:
    """CPU seconds of planning and of reading what was planned."""

    planning: float
    reading: float
    records: int


def measure(place: Path, split_bytes: int = DEFAULT_SPLIT_BYTES) -> Times:
    """Plan and read a location."""
    asked = scan(place, split_bytes=split_bytes)
    began = time.process_time()
    asked.plan()
    planned = time.process_time()
    records = sum(made.num_rows for made in asked.to_batches())
    return Times(planned - began, time.process_time() - planned, records)


def measure_pair(pair: Pair, rounds: int) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """CPU seconds of reading, and of planning, with and without aborted transactions: the two take turns."""
    times: dict[Path, list[Times]] = {pair.aborted: [], pair.none: []}
    for index in range(-1, rounds):
        for place in times if index % 2 else reversed(times):
            taken = measure(place)
            if taken.records != pair.records:
                raise ValueError("the two segments do not return the same records")
            if index >= 0:  # the first round warms up
                times[place].append(taken)
    pairs = list(zip(*times.values(), strict=True))
    return [(one.reading, two.reading) for one, two in pairs], [(one.planning, two.planning) for one, two in pairs]
