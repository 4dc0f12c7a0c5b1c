"""Topics for Spark to read: four partitions of tiered segments of 32 MiB, with the records of ``inputs``."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from benchmarks.inputs import BATCH_BYTES, CODECS, Batch, Shape, make_batches
from benchmarks.rows import MIB
from segreader import scan
from segreader.testing.directory import kafka_uuid, write_files
from segreader.testing.side_files import IndexRecorder, encode_leader_epochs, encode_producer_snapshot

PARTITIONS = 4
SEGMENT_BYTES = 32 * MIB
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type")
"""The columns of Spark's kafka source; their bytes in Arrow are what costs are divided by."""

SPARK_SHAPES = (Shape("100 B", 100), Shape("1 KiB", 1024))
SPARK_CODECS = ("lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic on disk.

    Args:
        name: its name, and that of its kind.
        shape, codec: what its records look like, and how they are compressed.
        location: the directory that a read is given.
        records: how many it holds.
        stored_bytes: of its logs.
        column_bytes: of ``COLUMNS`` in Arrow.
    """

    name: str
    shape: str
    codec: str
    location: Path
    records: int
    stored_bytes: int
    column_bytes: int

    @property
    def gb(self) -> float:
        return self.column_bytes / 1e9


def write_topic(root: Path, shape: Shape, codec: str, column_bytes: int) -> Topic:
    """A topic with about so many bytes of columns: the same records every time, in whole segments."""
    name = f"{shape.name.replace(' ', '')}-{codec}".lower()
    location = root / name
    batches = make_batches(shape, 8 * MIB, BATCH_BYTES)
    encoded = [(batch, CODECS[codec](batch)) for batch in batches]
    rows = column_bytes // (sum(map(column_bytes_of, batches)) // sum(len(batch.records) for batch in batches))
    share = rows // PARTITIONS
    for partition in range(PARTITIONS):
        write_partition(location, name, partition, encoded, share)
    read = scan(str(location), topic=name, columns=COLUMNS)
    sizes = [(batch.num_rows, batch.nbytes) for batch in read.to_batches()]
    stored = sum(file.stat().st_size for file in location.rglob("*.log"))
    return Topic(
        name, shape.name, codec, location, sum(one for one, _ in sizes), stored, sum(size for _, size in sizes)
    )


def write_partition(
    location: Path,
    topic: str,
    partition: int,
    encoded: list[tuple[Batch, bytes]],
    records: int,
    segment_bytes: int = SEGMENT_BYTES,
) -> int:
    """Segments of these batches, taken again and again, with so many records or a few more; returns how many.

    Args:
        encoded: the batches as they are stored, with base offset 0.
    """
    supply, offset = cycle(encoded), 0
    while offset < records:
        base = offset
        index, pieces, size = IndexRecorder(base, 4096), list[bytes](), 0
        for batch, data in supply:
            last = offset + len(batch.records) - 1
            index.append(size, len(data), last, batch.first_timestamp_ms + len(batch.records) - 1)
            pieces += (struct.pack(">q", offset), data[8:])  # a base offset stands outside of the CRC
            offset, size = last + 1, size + len(data)
            if size + BATCH_BYTES > segment_bytes or offset >= records:
                break
        stem = f"{topic}-{partition}-{kafka_uuid(topic)}/{base:020d}-{kafka_uuid(topic, partition, base)}"
        write_files(
            location,
            {
                f"{stem}.log": b"".join(pieces),
                f"{stem}.index": index.offset_index(),
                f"{stem}.timeindex": index.time_index(),
                f"{stem}.snapshot": encode_producer_snapshot([]),
                f"{stem}.leader_epoch_checkpoint": encode_leader_epochs([(0, 0)]),
            },
        )
    return offset


def column_bytes_of(batch: Batch) -> int:
    """What the records take in Arrow, about."""
    return batch.payload_bytes + 45 * len(batch.records)


def write_topics(root: Path, names: Iterable[str], column_bytes: int) -> Iterator[Topic]:
    """The chosen topics, one after another."""
    wanted = set(names)
    for shape in SPARK_SHAPES:
        for codec in SPARK_CODECS:
            if f"{shape.name} {codec}" in wanted:
                yield write_topic(root, shape, codec, column_bytes)
