"""Both executors over the same rows: what each gives, in values that can be compared."""

from __future__ import annotations

import importlib
import struct
from array import array
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import pyarrow as pa

from segreader.format.columns import BufferPool
from segreader.typed import reference
from segreader.typed.arrow import array_of_values
from segreader.typed.decoder import NativeColumns
from segreader.typed.framing import FramedRows
from segreader.typed.ops import Program
from segreader.typed.reference import Executed

NATIVE: ModuleType | None
try:
    NATIVE = importlib.import_module("segreader.typed._values")
except ImportError:
    NATIVE = None


class Rows(NamedTuple):
    """Payloads side by side in one buffer, with bytes between them that belong to none."""

    data: bytes
    starts: array[int]
    stops: array[int]
    roots: array[int]


def rows_of(payloads: Sequence[bytes | None], *, between: bytes = b"") -> Rows:
    """The payloads as rows of the first tree; ``None`` is a null row."""
    data = bytearray(between)
    starts, stops, roots = array("q"), array("q"), array("i")
    for one in payloads:
        starts.append(len(data))
        data += one or b""
        stops.append(len(data))
        roots.append(-1 if one is None else 0)
        data += between
    return Rows(bytes(data), starts, stops, roots)


def run_reference(program: Program, rows: Rows, *, stop_at_first: bool = False) -> Executed:
    """What the executor in plain Python gives."""
    return reference.execute(program, *rows, stop_at_first=stop_at_first)


def run_native(program: Program, rows: Rows, *, stop_at_first: bool = False) -> tuple[pa.Array, list[tuple[int, ...]]]:
    """What the native executor gives: a valid array, and the undecodable rows."""
    assert NATIVE is not None
    columns = NativeColumns(program.layout, NATIVE, BufferPool())
    for root in program.roots:
        columns.add_root(root)
    framed = FramedRows(*rows[:3], array("i", rows.roots), len(rows.roots))
    found, bad = columns.execute(framed, stop_at_first=stop_at_first)
    found.validate(full=True)
    return found, [tuple(one) for one in bad]


def assert_twins_agree(program: Program, rows: Rows, executed: Executed, *, stop_at_first: bool = False) -> None:
    """Fail where the native executor gives something else than ``executed``; without it there is nothing to compare."""
    if NATIVE is None:
        return
    found, bad = run_native(program, rows, stop_at_first=stop_at_first)
    by_reference = array_of_values(program.layout.columns[0].type, executed.values)
    assert bad == executed.bad
    assert found.type == by_reference.type
    assert entries_of(found) == entries_of(by_reference)


def entries_of(column: pa.Array) -> list[Any]:
    """What is in a column: floats by their bits, dates and times as integers, structs as tuples, maps as pairs."""
    type_ = column.type
    if pa.types.is_struct(type_):
        fields = [entries_of(column.field(k)) for k in range(type_.num_fields)]
        return [tuple(one[k] for one in fields) if valid else None for k, valid in enumerate(_valid(column))]
    if pa.types.is_list(type_) or pa.types.is_map(type_):
        parts = (column.values,) if pa.types.is_list(type_) else (column.keys, column.items)
        items = list(zip(*map(entries_of, parts), strict=True))
        offsets = column.offsets.to_pylist()
        return [items[offsets[k] : offsets[k + 1]] if valid else None for k, valid in enumerate(_valid(column))]
    if pa.types.is_dictionary(type_):
        column = column.dictionary_decode()
    elif pa.types.is_floating(type_):
        return [None if one is None else "nan" if one != one else struct.pack("<d", one) for one in column.to_pylist()]
    elif pa.types.is_temporal(type_) and not pa.types.is_interval(type_):
        column = column.cast(pa.int32() if type_.bit_width == 32 else pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _valid(column: pa.Array) -> list[bool]:
    valid: list[bool] = column.is_valid().to_pylist()
    return valid
