"""What stands in the files beside a ``.log``, as rows with the facts and names of ``kafka-dump-log``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

from segreader.errors import OptionError
from segreader.format.side_files.leader_epochs import parse_leader_epochs
from segreader.format.side_files.offset_index import parse_offset_index
from segreader.format.side_files.partition_metadata import parse_partition_metadata
from segreader.format.side_files.producer_snapshot import ProducerSnapshotEntry, parse_producer_snapshot
from segreader.format.side_files.time_index import parse_time_index
from segreader.format.side_files.transaction_index import parse_transaction_index

Row = dict[str, Any]


class FileKind(StrEnum):
    """What a file of a partition holds."""

    LOG = "log"
    INDEX = "index"
    TIME_INDEX = "timeindex"
    TRANSACTION_INDEX = "txnindex"
    SNAPSHOT = "snapshot"
    LEADER_EPOCHS = "leader-epochs"
    PARTITION_METADATA = "partition-metadata"


_SUFFIXES = {
    "log": FileKind.LOG,
    "checkpoint": FileKind.LOG,  # a snapshot of a KRaft quorum is a log of one segment
    "index": FileKind.INDEX,
    "timeindex": FileKind.TIME_INDEX,
    "txnindex": FileKind.TRANSACTION_INDEX,
    "snapshot": FileKind.SNAPSHOT,
    "leader_epoch_checkpoint": FileKind.LEADER_EPOCHS,
}
_NAMES = {
    "leader-epoch-checkpoint": FileKind.LEADER_EPOCHS,
    "partition.metadata": FileKind.PARTITION_METADATA,
}
_IN_TRANSIT = re.compile(r"\.(deleted|cleaned|swap)$")
_BASE_OFFSET = re.compile(r"(\d{20})(?!\d)")


def file_kind(name: str) -> FileKind:
    """What a file holds, as its name says.

    Raises:
        OptionError: the name is none that Kafka gives.
    """
    plain = _IN_TRANSIT.sub("", name)
    kind = next((kind for ending, kind in _NAMES.items() if plain.endswith(ending)), None)
    kind = kind or _SUFFIXES.get(plain.rpartition(".")[2])
    if kind is None:
        raise OptionError(
            "the name does not say what the file holds", found=repr(name), hint="Say it: --kind log, --kind index …"
        )
    return kind


def base_offset_of(name: str) -> int | None:
    """The base offset in a file's name, plain or as in the remote tier; ``None`` where there is none."""
    match = _BASE_OFFSET.match(name)
    return int(match[1]) if match else None


def side_file_rows(kind: FileKind, data: bytes, base_offset: int) -> Iterator[Row]:
    """A row for each entry, and one for the end.

    Raises:
        FormatError: the file contradicts itself; ``position`` counts from its start.
    """
    return _READERS[kind](data, base_offset)


def _index(data: bytes, base_offset: int) -> Iterator[Row]:
    index = parse_offset_index(data, base_offset)
    for entry in index:
        yield {"kind": "entry", "offset": entry.offset, "position": entry.position}
    yield _end(len(index), index.trailing_bytes, index.zero_tail) | {"entry_size": index.entry_size}


def _time_index(data: bytes, base_offset: int) -> Iterator[Row]:
    index = parse_time_index(data, base_offset)
    for entry in index:
        yield {"kind": "entry", "timestamp": entry.timestamp_ms, "offset": entry.offset}
    yield _end(len(index), index.trailing_bytes, index.zero_tail)


def _transaction_index(data: bytes, base_offset: int) -> Iterator[Row]:
    index = parse_transaction_index(data, base_offset)
    for entry in index:
        yield {
            "kind": "entry",
            "version": 0,
            "producer_id": entry.producer_id,
            "first_offset": entry.first_offset,
            "last_offset": entry.last_offset,
            "last_stable_offset": entry.last_stable_offset,
        }
    yield _end(len(index), index.trailing_bytes)


def _snapshot(data: bytes, base_offset: int) -> Iterator[Row]:
    snapshot = parse_producer_snapshot(data)
    for entry in snapshot:
        yield _producer(entry)
    yield _end(len(snapshot), snapshot.trailing_bytes)


def _producer(entry: ProducerSnapshotEntry) -> Row:
    batch = entry if entry.has_batch else None
    return {
        "kind": "entry",
        "producer_id": entry.producer_id,
        "producer_epoch": entry.producer_epoch,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_first_offset": entry.current_txn_first_offset,
        "last_timestamp": entry.timestamp_ms,
        "first_sequence": batch and batch.first_sequence,
        "last_sequence": batch and batch.last_sequence,
        "last_offset": batch and batch.last_offset,
        "offset_delta": batch and batch.offset_delta,
        "timestamp": batch and batch.timestamp_ms,
    }


def _leader_epochs(data: bytes, base_offset: int) -> Iterator[Row]:
    epochs = parse_leader_epochs(data)
    for entry in epochs:
        yield {"kind": "entry", "epoch": entry.epoch, "start_offset": entry.start_offset}
    yield _end(len(epochs))


def _partition_metadata(data: bytes, base_offset: int) -> Iterator[Row]:
    metadata = parse_partition_metadata(data)
    yield {"kind": "entry", "version": metadata.version, "topic_id": metadata.topic_id}
    yield _end(1)


def _end(entries: int, trailing_bytes: int = 0, zero_tail: int = 0) -> Row:
    return {"kind": "end", "entries": entries, "trailing_bytes": trailing_bytes, "zero_tail": zero_tail}


_READERS: dict[FileKind, Callable[[bytes, int], Iterator[Row]]] = {
    FileKind.INDEX: _index,
    FileKind.TIME_INDEX: _time_index,
    FileKind.TRANSACTION_INDEX: _transaction_index,
    FileKind.SNAPSHOT: _snapshot,
    FileKind.LEADER_EPOCHS: _leader_epochs,
    FileKind.PARTITION_METADATA: _partition_metadata,
}
