"""Records as Python objects, for people and small jobs; large ones stay in Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa

from segreader.format.batch import Headers, TimestampType
from segreader.format.rows import RECORD_COLUMNS as RECORD_COLUMNS
from segreader.format.rows import Epochs, RowColumns, Texts, load_row_maker
from segreader.values import dataclass


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """One record as a consumer is given it. Source: ``ConsumerRecord`` of the Java client (4.0).

    ``leader_epoch`` is ``None`` where the format has none (magic 0 and 1); ``timestamp_ms`` is -1 where it has none
    (magic 0). A null key or value is ``None``, an empty one ``b""``. Where a scan has schemas, key and value are what
    ``to_pylist`` of their columns gives: a ``dict`` for a record.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    leader_epoch: int | None
    key: Any
    value: Any
    headers: Headers


def iter_consumer_records(batch: pa.RecordBatch, kernel: str | None = None) -> Iterator[ConsumerRecord]:
    """The rows of a batch that has ``RECORD_COLUMNS``; ``kernel`` as in ``load_kernel``."""
    plain, typed = split_typed(batch)
    made = load_row_maker(kernel).make_records(row_columns(plain), ConsumerRecord)
    records: Iterator[ConsumerRecord] = chain.from_iterable(made)
    for side, column in typed.items():
        records = _with(records, side, python_values(column))
    return records


def _with(records: Iterator[ConsumerRecord], side: str, values: list[Any]) -> Iterator[ConsumerRecord]:
    for record, value in zip(records, values, strict=True):
        yield replace(record, **{side: value})


def split_typed(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[str, pa.Array]]:
    """The batch with nulls in place of typed keys and values, and these columns."""
    typed = {side: batch.column(side) for side in ("key", "value") if batch.column(side).type != pa.binary()}
    for side in typed:
        at = batch.schema.names.index(side)
        batch = batch.set_column(at, pa.field(side, pa.binary()), pa.nulls(batch.num_rows, pa.binary()))
    return batch, typed


def python_values(column: pa.Array) -> list[Any]:
    """The values of a column as Python has them; if one of its times is beyond Python's calendar, all are numbers."""
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return list(column.cast(_with_numbers(column.type)).to_pylist())


def _with_numbers(kind: pa.DataType) -> pa.DataType:
    """The type with whole numbers in place of times."""
    if pa.types.is_struct(kind):
        return pa.struct(
            [kind.field(at).with_type(_with_numbers(kind.field(at).type)) for at in range(kind.num_fields)]
        )
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_numbers(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_with_numbers(kind.item_type)))
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_temporal(kind) and kind != pa.month_day_nano_interval() else kind


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
