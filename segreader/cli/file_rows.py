"""The files of a partition as rows, with the facts and names of ``kafka-dump-log``: batches, records, index entries."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import asdict
from enum import StrEnum
from typing import Any

from segreader.errors import FormatError, OptionError
from segreader.format.batch import CRC_START, Record, RecordBatchHeader, crc32c
from segreader.format.checkpoints import (
    ProducerSnapshotEntry,
    parse_leader_epochs,
    parse_partition_metadata,
    parse_producer_snapshot,
)
from segreader.format.compression import Codec, Decompressor
from segreader.format.index_files import parse_offset_index, parse_time_index, parse_transaction_index
from segreader.format.message_set import MessageHeader, iter_messages
from segreader.format.records import ControlRecordType, EndTxnMarker, iter_records, parse_control_record
from segreader.format.rows import ENCODINGS, Encode
from segreader.format.scanner import BatchReady, Done, NeedData, SegmentScanner
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectStore

Row = dict[str, Any]

_MESSAGE_CRC_START = 16
_CONTROL_FIELDS = {
    ControlRecordType.LEADER_CHANGE: "leader_change",
    ControlRecordType.SNAPSHOT_HEADER: "snapshot_header",
    ControlRecordType.SNAPSHOT_FOOTER: "snapshot_footer",
    ControlRecordType.KRAFT_VERSION: "kraft_version",
    ControlRecordType.KRAFT_VOTERS: "kraft_voters",
}


class SegmentRows:
    """The rows of segments, one after another.

    Args:
        store: where they lie.
        has_records: whether records are shown below their batch.
        key_encoding, value_encoding: how their bytes become text.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        has_records: bool = False,
        key_encoding: str = "auto",
        value_encoding: str = "auto",
    ) -> None:
        self._store = store
        self._has_records = has_records
        self._key = _Payload("key", key_encoding)
        self._value = _Payload("value", value_encoding)
        self._decompressor = Decompressor()

    def of(self, name: str, size: int) -> Iterator[Row]:
        """A row for each batch (and record, and damage that can be passed), and one for the end.

        Args:
            size: bytes of the object.

        Raises:
            FormatError: what follows cannot be located. StorageError: bytes cannot be had.
        """
        scanner = SegmentScanner(stop=size)
        source = self._store.url(name)
        batches = 0
        try:
            with closing(pieces_of(self._store, name, size)) as pieces:
                while not isinstance(answer := scanner.next(), Done):
                    if isinstance(answer, NeedData):
                        scanner.feed(next(pieces, b""))
                        continue
                    batches += 1
                    row = batch_row(answer)
                    yield row
                    if self._has_records and row["is_valid"]:
                        yield from self._records(answer, source)
            yield {
                "kind": "end",
                "tail": answer.tail.value,
                "position": answer.position,
                "batches": batches,
                "trailing_bytes": answer.trailing_bytes,
                "missing_bytes": answer.missing_bytes,
            }
        except FormatError as error:
            raise error.located(source=source) from error

    def _records(self, batch: BatchReady, source: str) -> Iterator[Row]:
        header = batch.header
        try:
            if isinstance(header, MessageHeader):
                for message in iter_messages(batch.data, self._decompressor):
                    row = self._record_row(message.record)
                    row |= {"is_valid": message.is_crc_valid, "crc": message.crc}
                    yield row | self._texts(message.record)
                return
            for record in iter_records(batch.data, self._decompressor, check_crcs=False):
                sequence = header.base_sequence
                if sequence >= 0:
                    sequence = (sequence + record.offset - header.base_offset) & 0x7FFFFFFF
                row = self._record_row(record)
                row |= {"sequence": sequence, "header_keys": [name for name, _ in record.headers]}
                yield row | (_control_fields(record) if header.is_control else self._texts(record))
        except FormatError as error:
            error.located(position_shift=batch.position, source=source)
            error.located(position=batch.position, base_offset=_first_known_offset(header))
            yield {"kind": "damage", "position": batch.position, "error": str(error)}

    @staticmethod
    def _record_row(record: Record) -> Row:
        return {
            "kind": "record",
            "offset": record.offset,
            "timestamp_type": record.timestamp_type.java_name,
            "timestamp": record.timestamp_ms,
            "key_size": -1 if record.key is None else len(record.key),
            "value_size": -1 if record.value is None else len(record.value),
        }

    def _texts(self, record: Record) -> Row:
        return self._key.fields(record.key) | self._value.fields(record.value)


class _Payload:
    """A key or value as fields: its text, and with ``auto`` a note where that is base64."""

    def __init__(self, name: str, encoding: str) -> None:
        self._name = name
        self._encode: Encode = ENCODINGS[encoding]
        self._is_auto = encoding == "auto"

    def fields(self, data: bytes | None) -> Row:
        if data is None:
            return {self._name: None}
        text, used = self._encode(data)
        if self._is_auto and used == "base64":
            return {self._name: text, f"{self._name}_encoding": used}
        return {self._name: text}


def pieces_of(store: ObjectStore, name: str, size: int) -> Generator[memoryview, None, None]:
    """The bytes of a whole object in pieces, the next ones of which a store fetches ahead. Close it when it is done."""
    if size:
        yield from store.read_pieces(name, ByteRange(0, size))


def batch_row(batch: BatchReady) -> Row:
    """One batch, or one entry of a message set: what its header says, and whether its CRC holds."""
    header = batch.header
    row: Row = {"kind": "batch"}
    if isinstance(header, MessageHeader):
        row["offset"] = header.offset
        max_timestamp, checksum = header.timestamp_ms, zlib.crc32(batch.data[_MESSAGE_CRC_START:])
    else:
        row |= {
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "count": header.record_count,
            "base_sequence": header.base_sequence,
            "last_sequence": header.last_sequence,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "partition_leader_epoch": header.partition_leader_epoch,
            "is_transactional": header.is_transactional,
            "is_control": header.is_control,
            "delete_horizon_ms": header.delete_horizon_ms,
        }
        max_timestamp, checksum = header.max_timestamp, crc32c(batch.data[CRC_START:])
    return row | {
        "position": batch.position,
        "timestamp_type": header.timestamp_type.java_name,
        "max_timestamp": max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compress_codec": codec_name(header.codec),
        "crc": header.crc,
        "is_valid": checksum == header.crc,
    }


def codec_name(codec: int) -> str:
    """The name of a codec as Kafka's tools print it."""
    try:
        return Codec(codec).label
    except ValueError:
        return f"unknown({codec})"


def _first_known_offset(header: RecordBatchHeader | MessageHeader) -> int:
    return header.offset if isinstance(header, MessageHeader) else header.base_offset


def _control_fields(record: Record) -> Row:
    """What a control record says, under the name of its type."""
    control = parse_control_record(record.key, record.value)
    if control.key.is_end_of_transaction and isinstance(control.value, EndTxnMarker):
        return {"end_txn_marker": control.key.type.name, "coordinator_epoch": control.value.coordinator_epoch}
    name = _CONTROL_FIELDS.get(control.key.type)
    if name is None or control.value is None or isinstance(control.value, bytes):
        return {"control_type": control.key.type.name, "control_type_id": control.key.type_id}
    return {name: asdict(control.value)}


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
        known = ", ".join([*(f".{suffix}" for suffix in _SUFFIXES), *_NAMES])
        raise OptionError(
            "the name does not say what the file holds",
            found=repr(name),
            hint=f"segreader dump knows {known} by name; with --kind log, --kind index … it takes any name",
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
    yield _side_file_end(len(index), index.trailing_bytes, index.zero_tail) | {"entry_size": index.entry_size}


def _time_index(data: bytes, base_offset: int) -> Iterator[Row]:
    index = parse_time_index(data, base_offset)
    for entry in index:
        yield {"kind": "entry", "timestamp": entry.timestamp_ms, "offset": entry.offset}
    yield _side_file_end(len(index), index.trailing_bytes, index.zero_tail)


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
    yield _side_file_end(len(index), index.trailing_bytes)


def _snapshot(data: bytes, base_offset: int) -> Iterator[Row]:
    snapshot = parse_producer_snapshot(data)
    for entry in snapshot:
        yield _producer(entry)
    yield _side_file_end(len(snapshot), snapshot.trailing_bytes)


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
    yield _side_file_end(len(epochs))


def _partition_metadata(data: bytes, base_offset: int) -> Iterator[Row]:
    metadata = parse_partition_metadata(data)
    yield {"kind": "entry", "version": metadata.version, "topic_id": metadata.topic_id}
    yield _side_file_end(1)


def _side_file_end(entries: int, trailing_bytes: int = 0, zero_tail: int = 0) -> Row:
    return {"kind": "end", "entries": entries, "trailing_bytes": trailing_bytes, "zero_tail": zero_tail}


_READERS: dict[FileKind, Callable[[bytes, int], Iterator[Row]]] = {
    FileKind.INDEX: _index,
    FileKind.TIME_INDEX: _time_index,
    FileKind.TRANSACTION_INDEX: _transaction_index,
    FileKind.SNAPSHOT: _snapshot,
    FileKind.LEADER_EPOCHS: _leader_epochs,
    FileKind.PARTITION_METADATA: _partition_metadata,
}
