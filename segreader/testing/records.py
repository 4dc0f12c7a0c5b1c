"""The records that go into the builder, and how a consumer gets them back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from segreader.format.batch import Headers, Record, TimestampType, decode_java_utf8
from segreader.values import dataclass

FIRST_TIMESTAMP_MS = 1_700_000_000_000
"""Time of offset 0 where a test names none; each later offset is 1 ms later."""


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record to be written; the builder gives it an offset and a time where it has none.

    ``offset`` is absolute, for gaps and for offsets that a producer got wrong. Header keys may hold lone
    surrogates (``surrogateescape``) for bytes that are not UTF-8.
    """

    value: bytes | None = None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    offset: int | None = None


Writable = ProducerRecord | Record | bytes
"""What the builder writes; bytes stand for a value without a key."""


def timestamp_at(offset: int) -> int:
    """The time of a record or marker that was given none, in ms."""
    return FIRST_TIMESTAMP_MS + offset


def resolve(records: Sequence[Writable], base_offset: int, kind: TimestampType) -> list[Record]:
    """The records with offsets from ``base_offset`` on, and with times."""
    return [_resolve_one(record, base_offset + index, kind) for index, record in enumerate(records)]


def as_consumed(records: Iterable[Record], log_append_time_ms: int | None) -> list[Record]:
    """The records as a consumer gets them: at the broker's time if it set one, header keys as in Java."""
    shown = []
    for record in records:
        headers = tuple((_as_text(name), value) for name, value in record.headers)
        shown.append(replace(record, headers=headers))
        if log_append_time_ms is not None:
            kind = TimestampType.LOG_APPEND_TIME
            shown[-1] = replace(shown[-1], timestamp_ms=log_append_time_ms, timestamp_type=kind)
    return shown


def _resolve_one(record: Writable, offset: int, kind: TimestampType) -> Record:
    if isinstance(record, bytes):
        record = ProducerRecord(record)
    at = offset if record.offset is None else record.offset
    time = -1 if kind is TimestampType.NO_TIMESTAMP_TYPE else record.timestamp_ms
    time = timestamp_at(at) if time is None else time
    return Record(at, time, kind, record.key, record.value, tuple(record.headers))


def _as_text(name: str) -> str:
    return decode_java_utf8(name.encode("utf-8", "surrogateescape"))
