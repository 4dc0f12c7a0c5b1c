"""Segments as two other Python libraries read them: judges that share no code with this one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record import MemoryRecords as KafkaPythonRecords

from segreader.format.batch import Record, TimestampType


def aiokafka_records(log: bytes) -> list[Record]:
    """The data records of a segment as aiokafka decodes them. It checks each CRC."""
    batches = []
    records = AiokafkaRecords(log)
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        batches.append(batch)
    return _data_records(batches)


def kafka_python_records(log: bytes) -> list[Record]:
    """The data records of a segment as kafka-python decodes them (no snappy). It checks each CRC."""
    batches = list(KafkaPythonRecords(log))
    assert all(batch.validate_crc() for batch in batches)
    return _data_records(batches)


def _data_records(batches: Iterable[Any]) -> list[Record]:
    data = [batch for batch in batches if not getattr(batch, "is_control_batch", False)]
    return [_record(record) for batch in data for record in batch]


def _record(record: Any) -> Record:
    kind = TimestampType.NO_TIMESTAMP_TYPE if record.timestamp_type is None else record.timestamp_type
    return Record(
        record.offset,
        -1 if record.timestamp is None else record.timestamp,
        TimestampType(kind),
        None if record.key is None else bytes(record.key),
        None if record.value is None else bytes(record.value),
        tuple((name, None if value is None else bytes(value)) for name, value in record.headers or ()),
    )
