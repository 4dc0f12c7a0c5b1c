"""The records of one batch as plain values: for tools that show a batch, and for control records.

The same kernels decode here as for columns; only the last step differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack_from

import crc32c

from segreader.errors import FormatError
from segreader.format.batch import check_common
from segreader.format.columns import (
    Buffer,
    BufferPool,
    ColumnBuffers,
    Outcome,
    State,
    batch_table,
)
from segreader.format.compression import Decompressor
from segreader.format.kernel import Kernel, damage_error, load_kernel
from segreader.format.message_set import parse_message_set_entry
from segreader.format.record import Headers, Record, TimestampType

_COLUMNS = frozenset({"offset", "timestamp_ms", "timestamp_type", "key", "value", "headers"})


def iter_records(
    batch: bytes | memoryview,
    decompressor: Decompressor,
    *,
    check_crcs: bool = True,
    kernel: Kernel | None = None,
) -> Iterator[Record]:
    """The records of one whole batch of any magic, control records included, in the order they are stored.

    Args:
        batch: all its bytes.
        decompressor: used until the iterator is done.

    Raises:
        FormatError: after the records before the damage; ``position`` counts from the start of ``batch``.
    """
    data = memoryview(batch)
    _, _, magic = check_common(data, 0)
    if magic < 2:
        yield from parse_message_set_entry(data, decompressor, check_crcs=check_crcs)
        return
    kernel = kernel or load_kernel()
    table = batch_table()
    rows, _ = kernel.scan_batches(data, 0, 0, table, len(data))
    columns = ColumnBuffers(_COLUMNS, BufferPool(1 << 20), max_rows=1024, max_bytes=1 << 20)
    columns.state[State.NEXT_OFFSET] = -(1 << 63)
    checksum = crc32c.crc32c if check_crcs else None
    columns.state[State.CURSOR_MOVES] = 0
    while True:
        error: FormatError | None = None
        outcome = Outcome(kernel.decode_batches(columns, data, 0, table, rows, checksum, decompressor.decompress))
        if outcome is Outcome.DAMAGED:
            error = damage_error(columns.state, table)
        if outcome is Outcome.GROW and columns.make_room():
            continue
        yield from _rows(columns)
        columns.reset()
        if error is not None:
            raise error
        if outcome in (Outcome.DONE, Outcome.STOPPED):
            return


def _rows(columns: ColumnBuffers) -> Iterator[Record]:
    state, buffers = columns.state, columns.buffers
    for row in range(state[State.ROWS]):
        first, last = _span(buffers[Buffer.HEADER_OFFSETS], row)
        headers: Headers = tuple(
            (
                str(
                    _bytes(buffers[Buffer.HEADER_KEY_OFFSETS], buffers[Buffer.HEADER_KEY_DATA], index),
                    "utf-8",
                ),
                None
                if state[State.HEADER_VALUE_NULLS] and not _bit(buffers[Buffer.HEADER_VALUE_VALIDITY], index)
                else _bytes(buffers[Buffer.HEADER_VALUE_OFFSETS], buffers[Buffer.HEADER_VALUE_DATA], index),
            )
            for index in range(first, last)
        )
        yield Record(
            offset=unpack_from("=q", _there(buffers[Buffer.OFFSET]), 8 * row)[0],
            timestamp_ms=unpack_from("=q", _there(buffers[Buffer.TIMESTAMP]), 8 * row)[0],
            timestamp_type=TimestampType(unpack_from("=i", _there(buffers[Buffer.TIMESTAMP_TYPE]), 4 * row)[0]),
            key=None
            if state[State.KEY_NULLS] and not _bit(buffers[Buffer.KEY_VALIDITY], row)
            else _bytes(buffers[Buffer.KEY_OFFSETS], buffers[Buffer.KEY_DATA], row),
            value=None
            if state[State.VALUE_NULLS] and not _bit(buffers[Buffer.VALUE_VALIDITY], row)
            else _bytes(buffers[Buffer.VALUE_OFFSETS], buffers[Buffer.VALUE_DATA], row),
            headers=headers,
        )


def _there(buffer: bytearray | None) -> bytearray:
    return buffer if buffer is not None else bytearray()


def _span(offsets: bytearray | None, row: int) -> tuple[int, int]:
    first, last = unpack_from("=ii", _there(offsets), 4 * row)
    return first, last


def _bytes(offsets: bytearray | None, data: bytearray | None, row: int) -> bytes:
    first, last = _span(offsets, row)
    return bytes(_there(data)[first:last])


def _bit(bits: bytearray | None, row: int) -> bool:
    return bool(_there(bits)[row >> 3] & (1 << (row & 7)))
