"""Records that are already values, written into column buffers: message sets (magic 0 and 1) go this way."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from segreader.errors import LimitExceededError
from segreader.format._columns import MAX_MICROSECONDS_MS, FullError, fits_timestamp, put_record
from segreader.format.columns import ColumnBuffers, Outcome, State, Table
from segreader.format.record import Record


def append_records(columns: ColumnBuffers, records: Sequence[Record], batch: array[int]) -> Outcome:
    """Write the last ``State.RECORDS_LEFT`` of ``records`` into ``columns``.

    Args:
        batch: the row of the batch table they come from.

    Returns:
        ``DONE``; or ``FULL`` or ``GROW``, then flush or make room and call again.

    Raises:
        LimitExceededError: a timestamp does not fit ``timestamp[us]``.
    """
    state = columns.state
    while state[State.RECORDS_LEFT] > 0:
        record = records[-state[State.RECORDS_LEFT]]
        if state[State.NEXT_OFFSET] <= record.offset < state[State.STOP_OFFSET]:
            if columns.is_full:
                return Outcome.FULL
            if not fits_timestamp(columns, record.timestamp_ms):
                raise LimitExceededError(
                    "a record's timestamp does not fit timestamp[us]",
                    found=f"{record.timestamp_ms} ms",
                    expected=f"at most {MAX_MICROSECONDS_MS} ms",
                    offset=record.offset,
                    base_offset=batch[Table.BASE_OFFSET],
                    hint="Ask for the column timestamp_ms (int64) in place of timestamp",
                )
            try:
                put_record(columns, record, batch)
            except FullError as full:
                state[State.NEED_BUFFER], state[State.NEED_SIZE] = full.buffer, full.need
                return Outcome.GROW
        else:
            state[State.DROPPED_RECORDS] += 1
        state[State.RECORDS_LEFT] -= 1
    return Outcome.DONE
