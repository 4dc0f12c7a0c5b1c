"""What stands in a ``.log``, batch by batch, as rows with the facts and names of ``kafka-dump-log``."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import asdict
from typing import Any

import crc32c

from segreader.cli.encoding import ENCODINGS, Encode
from segreader.errors import FormatError
from segreader.format.batch import CRC_START, RecordBatchHeader
from segreader.format.compression import Codec, Decompressor
from segreader.format.control import ControlRecordType, EndTxnMarker, parse_control_record
from segreader.format.message_set import MessageHeader, iter_messages
from segreader.format.record import Record
from segreader.format.records import iter_records
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
        max_timestamp, checksum = header.max_timestamp, crc32c.crc32c(batch.data[CRC_START:])
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
