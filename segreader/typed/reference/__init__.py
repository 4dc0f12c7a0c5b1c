"""The executor in plain Python: the specification of every step in ``ops.py``, which ``_values.pyx`` repeats for speed.

A step is a function that reads one value at the reader's cursor and gives it as ``pa.array`` takes it: a struct as
dict, a map as list of pairs, an enum as text, dates and times as integers, an interval as (months, days, nanoseconds).
Of a dropped step the value means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from segreader.typed.ops import DROPPED, Bad, Op, OpCode, Program
from segreader.typed.reference import avro, json, protobuf
from segreader.typed.reference.reader import BadValueError, ReadStep, ValueReader
from segreader.values import dataclass

NAME: Final = "reference"


@dataclass(frozen=True, slots=True)
class Executed:
    """What rows of bytes hold.

    Args:
        values: one a row; ``None`` is a null row or an undecodable one.
        bad: row, reason and position in the payload of each undecodable row, by row.
    """

    values: list[Any]
    bad: list[tuple[int, Bad, int]]


def execute(
    program: Program,
    data: bytes | memoryview,
    starts: Sequence[int],
    stops: Sequence[int],
    roots: Sequence[int],
    *,
    stop_at_first: bool = False,
) -> Executed:
    """The values of rows whose payloads are ``starts[row] <= position < stops[row]`` of ``data``.

    Args:
        roots: for each row which of the program's trees reads it; -1: the row is null; ``-2 - bad``: it is undecodable.
        stop_at_first: end before the first undecodable row, which is in ``bad``.
    """
    reader = ValueReader(program, _STEPS)
    values: list[Any] = []
    bad: list[tuple[int, Bad, int]] = []
    for row, root in enumerate(roots):
        value = None
        try:
            if root >= 0:
                value = _read_payload(reader, program.roots[root], bytes(data[starts[row] : stops[row]]))
            elif root < -1:
                raise BadValueError(Bad(-2 - root), 0)
        except BadValueError as error:
            bad.append((row, error.bad, error.at))
            if stop_at_first:
                break
        values.append(value)
    return Executed(values, bad)


def _read_payload(reader: ValueReader, op: Op, payload: bytes) -> Any:
    """The value that all of a payload is."""
    reader.data, reader.at, reader.stop, reader.depth, reader.free_items = payload, 0, len(payload), 0, 0
    try:
        if op.code in json.STEPS:
            return json.read_document(reader, op)
        value = reader.read(op)
    except RecursionError:  # of a tree with a cycle that takes no bytes
        raise BadValueError(Bad.DEPTH, reader.at) from None
    if reader.at < reader.stop:
        raise BadValueError(Bad.LEFT_OVER, reader.at)
    return value


def _set_null(reader: ValueReader, op: Op) -> None:
    """Nothing is read."""


def _constant(reader: ValueReader, op: Op) -> Any:
    if op.column == DROPPED:
        return None
    outside = reader.data, reader.at, reader.stop, reader.ends
    reader.data, reader.at, reader.stop = op.text, 0, len(op.text)
    child = op.children[0]
    try:
        return json.read_document(reader, child) if child.code in json.STEPS else reader.read(child)
    except BadValueError as error:
        raise BadValueError(error.bad, outside[1]) from None
    finally:
        reader.data, reader.at, reader.stop, reader.ends = outside


_STEPS: Final[dict[OpCode, ReadStep]] = {
    OpCode.SET_NULL: _set_null,
    OpCode.CONSTANT: _constant,
    **avro.STEPS,
    **protobuf.STEPS,
    **json.STEPS,
}
