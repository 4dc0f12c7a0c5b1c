"""Records as Python objects, for people and small jobs; large ones stay in Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

from segreader.format.batch import Headers, TimestampType
from segreader.format.rows import RECORD_COLUMNS as RECORD_COLUMNS
from segreader.format.rows import Epochs, RowColumns, Texts, load_row_maker
from segreader.values import dataclass


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """One record as a consumer is given it. Source: ``ConsumerRecord`` of the Java client (4.0).

    ``leader_epoch`` is ``None`` where the format has none (magic 0 and 1); ``timestamp_ms`` is -1 where it has none
    (magic 0). A null key or value is ``None``, an empty one ``b""``.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    leader_epoch: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


def iter_consumer_records(batch: pa.RecordBatch, kernel: str | None = None) -> Iterator[ConsumerRecord]:
    """The rows of a batch that has ``RECORD_COLUMNS``; ``kernel`` as in ``load_kernel``."""
    return chain.from_iterable(load_row_maker(kernel).make_records(row_columns(batch), ConsumerRecord))


def row_columns(batch: pa.RecordBatch) -> RowColumns:
    """The buffers of ``RECORD_COLUMNS`` in a batch, which may have been sliced; they share its memory."""
    rows = batch.num_rows
    headers = batch.column("headers")
    pairs = headers.values
    return RowColumns(
        rows=rows,
        topic=_texts(batch.column("topic")),
        partition=_fixed(batch.column("partition"), 4),
        offset=_fixed(batch.column("offset"), 8),
        timestamp_ms=_fixed(batch.column("timestamp_ms"), 8),
        timestamp_type=_fixed(batch.column("timestamp_type"), 4),
        leader_epoch=_epochs(batch.column("leader_epoch")),
        key=_texts(batch.column("key")),
        value=_texts(batch.column("value")),
        header_offsets=_ends(headers),
        headers=len(pairs),
        header_key=_texts(pairs.field(0)),
        header_value=_texts(pairs.field(1)),
    )


def _view(buffer: pa.Buffer | None) -> memoryview:
    return memoryview(b"" if buffer is None else buffer)


def _fixed(column: pa.Array, width: int) -> memoryview:
    start = column.offset * width
    return _view(column.buffers()[1])[start : start + len(column) * width]


def _ends(column: pa.Array) -> memoryview:
    """The offsets of a column of bytes or lists; Arrow may leave them out where it has no rows."""
    start, rows = column.offset, len(column)
    return _view(column.buffers()[1])[4 * start : 4 * (start + rows + 1)] if rows else memoryview(bytes(4))


def _texts(column: pa.Array) -> Texts:
    validity, _, data = column.buffers()
    return Texts(_ends(column), _view(data), None if validity is None else _view(validity), column.offset)


def _epochs(column: pa.Array) -> Epochs:
    validity = column.buffers()[0]
    return Epochs(_fixed(column, 4), None if validity is None else _view(validity), column.offset)
