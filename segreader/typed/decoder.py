"""Keys or values of record batches, decoded into one Arrow column.

``framing.py`` finds the schema of each value and its payload. A schema that occurs for the first time is compiled for
the reader's columns, and an executor runs what was compiled: the native one, or ``reference``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Final

import pyarrow as pa

from segreader.errors import OptionError
from segreader.format.columns import BufferPool
from segreader.format.kernel import load_kernel, load_twin
from segreader.typed.arrow import array_of, array_of_values, arrow_type
from segreader.typed.decoding import Decoding
from segreader.typed.framing import FramedRows, FrameFinder, MessageName
from segreader.typed.ops import Bad, ColumnLayout, Op, Program
from segreader.typed.packed import PackedProgram
from segreader.typed.schema import Schema, SchemaFormat
from segreader.typed.types import ValueKind
from segreader.values import dataclass

_NATIVE: Final = "segreader.typed._values"
_REFERENCE: Final = "segreader.typed.reference"

_SENTENCES: Final = {
    Bad.UNKNOWN_SCHEMA: "its schema is not among those that are known",
    Bad.NO_FRAME: "it does not begin with the id of a schema",
    Bad.SHORT: "it ends too early",
    Bad.LEFT_OVER: "bytes are left over behind it",
    Bad.VARINT: "a number in it does not end, or is too long",
    Bad.RANGE: "a number in it is too large for its column",
    Bad.UTF8: "a text in it is not UTF-8",
    Bad.SYMBOL: "an enum in it has a symbol that the schema lacks",
    Bad.BRANCH: "a union in it has a branch that the schema lacks",
    Bad.COUNT: "a length or number of items in it is impossible",
    Bad.DEPTH: "it has too many values within values",
    Bad.TAG: "it has a Protobuf tag that cannot be",
    Bad.SYNTAX: "it is not JSON",
    Bad.TYPE: "it has JSON of another type than the schema says",
    Bad.MISSING: "a field that must be there is missing",
    Bad.MESSAGE: "it names a message type that the schema lacks",
    Bad.LIMIT: "it is larger decoded than the limit",
    Bad.BOOL: "a boolean in it is neither true nor false",
    Bad.MISMATCH: "its schema cannot be read as the reader's schema",
    Bad.COMPRESSION: "its compressed bytes are damaged",
    Bad.PARTS: "a google.protobuf.Struct in it comes in parts",
}


def sentence(bad: Bad) -> str:
    """Why a value is undecodable, in plain words that show nothing of it."""
    return _SENTENCES[bad]


@dataclass(frozen=True, slots=True)
class UndecodableRow:
    """A value that is not what its schema says.

    Args:
        row: index of it among the values.
        position: byte of the value where that was found.
        schema_id: what it names as its schema, if it does.
        detail: what does not fit, where that is its schema.
    """

    row: int
    bad: Bad
    position: int
    schema_id: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DecodedValues:
    """What values hold.

    Args:
        array: one entry a value; null where it is null or undecodable. It has fewer entries where the caller wants it
            to end before the first undecodable value, or where a column is full: then the rest is for another call.
        undecodable: by row. The one that ended the array is the last.
    """

    array: pa.Array
    undecodable: list[UndecodableRow]


class ValueDecoder:
    """Decodes the keys or the values of one read. Use it from one thread.

    Args:
        kernel: ``native`` or ``reference``; by default as ``load_kernel`` chooses.
        pool: where memory of columns comes from.

    Raises:
        OptionError: a field that is asked for contains its own type; or the kernel is not there.
    """

    def __init__(self, decoding: Decoding, *, kernel: str | None = None, pool: BufferPool | None = None) -> None:
        self._decoding = decoding
        self._layout = ColumnLayout.of(decoding.selected)
        self.type: pa.DataType = arrow_type(decoding.selected)
        twin = load_twin(_NATIVE, _REFERENCE, kernel)
        is_native = twin.NAME == "native"
        self._executor: NativeColumns | ReferenceColumns
        if is_native:
            self._executor = NativeColumns(
                self._layout, twin, pool or BufferPool(_POOL_BYTES, load_kernel(kernel).allocate)
            )
        else:
            self._executor = ReferenceColumns(self._layout, twin)
        self._finder = FrameFinder(decoding.schemas, decoding.side, self._root_of, twin if is_native else None)
        self._mismatches: dict[Schema, str] = {}

    def decode(
        self, values: pa.Array, headers: pa.Array | None = None, *, stop_at_first: bool = False
    ) -> DecodedValues:
        """The values as a column.

        Args:
            values: keys or values of records.
            headers: of the same records, where they may name schemas.
            stop_at_first: end before the first undecodable value.
        """
        if not pa.types.is_binary(values.type):
            values = values.cast(pa.binary())
        found = self._finder.find(values, headers)
        column, bads = self._executor.execute(found, stop_at_first=stop_at_first)
        return DecodedValues(column, [self._undecodable(values, headers, found, *one) for one in bads])

    def _undecodable(
        self, values: pa.Array, headers: pa.Array | None, found: FramedRows, row: int, bad: int, position: int
    ) -> UndecodableRow:
        named = self._finder.named_by(values, headers, row)
        detail = self._mismatches.get(named.schema, "") if bad == Bad.MISMATCH and named.schema else ""
        if found.roots[row] >= 0:
            position += named.size
        return UndecodableRow(row, Bad(bad), position, named.name, detail)

    def _root_of(self, schema: Schema, message: MessageName | None) -> int | Bad:
        """Compile a schema that occurs for the first time."""
        try:
            root = self._compiled(schema, message)
            return Bad.MESSAGE if root is None else self._executor.add_root(root)
        except OptionError as error:
            self._mismatches[schema] = str(error)
            return Bad.MISMATCH

    def _compiled(self, schema: Schema, message: MessageName | None) -> Op | None:
        if schema.format is SchemaFormat.AVRO:
            from segreader.typed.formats import avro

            return avro.compile_schema(schema, self._layout, whole=self._decoding.type)
        if schema.format is SchemaFormat.JSON:
            from segreader.typed.formats import json_schema

            return json_schema.compile_schema(schema, self._layout)
        from segreader.typed.formats import protobuf

        if message is None:
            return protobuf.compile_schema(schema, self._layout, self._decoding.schemas.message)
        name = _message_of(protobuf.message_names(schema), message)
        return None if name is None else protobuf.compile_schema(schema, self._layout, name)


def _message_of(names: Mapping[tuple[int, ...], str], wanted: MessageName) -> str | None:
    """The full name of the message that a frame names, of those of the schema by index."""
    if wanted.index:
        return names.get(wanted.index)
    if wanted.name:
        fitting = [name for name in names.values() if name == wanted.name or name.endswith("." + wanted.name)]
        return fitting[0] if len(fitting) == 1 else None
    in_order = sorted(set(names.values()))
    return in_order[wanted.sorted_index] if wanted.sorted_index < len(in_order) else None


_Bads = list[tuple[int, int, int]]
"""Row, reason and position in the payload of each undecodable row."""


class ReferenceColumns:
    """Runs trees of steps in plain Python."""

    def __init__(self, layout: ColumnLayout, twin: ModuleType) -> None:
        self._layout, self._twin = layout, twin
        self._roots: list[Op] = []

    def add_root(self, root: Op) -> int:
        """The number by which rows choose the tree from now on."""
        self._roots.append(root)
        return len(self._roots) - 1

    def execute(self, found: FramedRows, *, stop_at_first: bool) -> tuple[pa.Array, _Bads]:
        """The root column, and what is undecodable."""
        rows = found.rows
        done = self._twin.execute(
            Program(self._layout, self._roots),
            memoryview(found.data),
            found.starts[:rows],
            found.stops[:rows],
            found.roots[:rows],
            stop_at_first=stop_at_first,
        )
        return array_of_values(self._layout.columns[0].type, done.values), done.bad


# The native executor

_POOL_BYTES: Final = 48 << 20
_MOST_SYMBOLS: Final = 4096
"""Symbols of one enum in one array beyond those of its type."""

_MOST_BYTES: Final = 0x7FFF_FFFF
_FULL: Final = 256 << 20
"""Bytes of a column's buffer that end an array, if it has rows."""

_ALLOWED: Final = 64 << 20
"""Bytes that a buffer may need for one value, however small it is; and its size times ``_ALLOWED_TIMES`` beyond."""

_ALLOWED_TIMES: Final = 64
_TOGETHER: Final = 4
"""As many times as much may all columns need together."""


class NativeColumns:
    """Runs packed steps, in columns over leased buffers."""

    def __init__(self, layout: ColumnLayout, twin: ModuleType, pool: BufferPool) -> None:
        self._layout, self._twin, self._pool = layout, twin, pool
        self._program = PackedProgram(layout)
        self._executor = twin.NativeExecutor(self._program)
        self._types = [arrow_type(column.type) for column in layout.columns]
        self._grown = 0  # bytes that columns have needed beyond what was planned
        self._symbols = {
            column.index: pa.array(column.type.symbols or ("",), pa.string())
            for column in layout.columns
            if column.type.kind is ValueKind.ENUM
        }

    def add_root(self, root: Op) -> int:
        """The number by which rows choose the tree from now on."""
        step = self._program.add(root)
        self._executor.extend(self._program)
        number: int = self._executor.add_root(step)
        return number

    def execute(self, found: FramedRows, *, stop_at_first: bool) -> tuple[pa.Array, _Bads]:
        """The root column, and what is undecodable: fewer rows than given where a buffer becomes too large."""
        executor = self._executor
        executor.begin(self._pool.lease(_rounded(executor.plan(found.rows))))
        self._grown = 0
        twin, row = self._twin, 0
        bads: _Bads = []
        arguments = found.data, found.starts, found.stops, found.roots
        try:
            while True:
                outcome, row = executor.run(*arguments, row, found.rows, stop_at_first, _MOST_SYMBOLS, bads)
                if outcome in (twin.DONE, twin.BAD):
                    break
                if outcome == twin.MORE or self._make_room(outcome, found.stops[row] - found.starts[row], row):
                    continue
                if row:
                    break
                found.roots[row] = -2 - Bad.LIMIT
            return array_of(self._layout, self._types, executor.filled(), self._all_symbols()), bads
        finally:
            executor.let_go()

    def _make_room(self, outcome: int, size: int, row: int) -> bool:
        """Do what the executor needs for a value of so many bytes; ``False``: it is too much for this array."""
        executor = self._executor
        index, what, need = executor.need
        allowed = min(max(_ALLOWED, size * _ALLOWED_TIMES), _MOST_BYTES)
        if outcome == self._twin.SYMBOL:
            return False
        if outcome == self._twin.SCRATCH:
            if 8 * need > allowed:
                return False
            executor.grow_scratch(2 * need)
            return True
        needed, most = executor.size_of(index, what, need), _FULL if row else allowed
        if needed < 0 or needed > most or self._grown + needed > _TOGETHER * most:
            return False
        self._grow(index, what, need)
        for other, kind, used in executor.crowded():  # or each would have the value decoded once more
            if (other, kind) != (index, what) and executor.size_of(other, kind, 2 * used) <= _FULL:
                self._grow(other, kind, used)
        return True

    def _grow(self, index: int, what: int, room: int) -> None:
        """Go on in a buffer for twice as much, or as much as a column may have."""
        executor = self._executor
        needed = executor.size_of(index, what, room)
        if needed <= _FULL < 2 * needed:
            room = room * _FULL // max(needed, 1)
        elif executor.size_of(index, what, 2 * room) >= 0:
            room *= 2
        size = executor.size_of(index, what, room)
        executor.grow(index, what, room, self._pool.lease(_rounded(size)))
        self._grown += size

    def _all_symbols(self) -> dict[int, pa.Array]:
        """The symbols of each enum, those that came up included."""
        found = self._symbols
        for index in self._symbols:
            if new := self._executor.new_symbols(index):
                texts = pa.array(map(str, new), pa.string())
                found = found | {index: pa.concat_arrays([self._symbols[index], texts])}
        return found


def _rounded(size: int) -> int:
    """A size that few others differ from: the pool finds a buffer sooner."""
    step = max(1 << max(size.bit_length() - 4, 0), 64)
    return -(-size // step) * step
