"""What schemas compile to: a tree of steps that read one value and put what they read into columns.

Each writer's schema gives a tree of its own (``Op``), all for the same columns (``ColumnLayout``), so values of several
schemas fill one Arrow array. ``reference.py`` executes trees; ``_values.pyx`` executes the same, packed into numbers.

A step reads bytes at the cursor and appends exactly one entry to its column, or reads and drops them
(``column == DROPPED``). A struct's entry is one entry in each of its fields. ``SET_NULL`` and ``CONSTANT`` read
nothing. Whatever a step meets that it cannot read makes the whole value undecodable (``Bad``): the columns get one
null for it, at the root, and what was appended before is taken back.

A value has one error, the first in the order of its bytes (of JSON: first those of its syntax, then those of its
types). Its position is the first byte of what cannot be read, or is refused: a number, a tag, the length of an Avro
string, the content of a Protobuf field. A dropped step reads only as far as it must to find its end: it looks at no
UTF-8, symbol, range, or type of JSON, and a number of Avro may have 10 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import IntEnum
from typing import Final

from segreader.typed.types import Type, ValueKind
from segreader.values import dataclass

DROPPED: Final = -1
"""In place of a column: what is read is not kept."""

MOST_DEPTH: Final = 100
"""Values within values: Protobuf's own limit, for all formats. Avro: records, arrays and maps; JSON: arrays and
objects. Protobuf: messages (map entries, timestamps and the like are some) and skipped groups, the outermost message
not counted, as upb does."""

FREE_ITEMS: Final = 1 << 16
"""Items of Avro arrays that take no bytes (nulls, empty records), at most in one value. Others are bounded by the
bytes that are left."""


class OpCode(IntEnum):
    """What a step does."""

    # any format
    SET_NULL = 0  # append a null; of a struct, and what may not be null in it gets a placeholder
    CONSTANT = 1  # run children[0] over the bytes ``text`` instead of the value's: Avro, JSON, or what comes behind the
    #               tag and the length of a Protobuf field

    # Avro: binary encoding, "Specification 1.12", in the writer's order. An int has at most 5 bytes and 32 bits, a long
    # 10 and 64. A negative length is COUNT, one beyond the end SHORT
    AVRO_BOOL = 10  # a byte, 0 or 1
    AVRO_INT = 11  # zigzag varint of 32 bits -> INT32, INT64, FLOAT, DOUBLE, DATE, TIME_MS; what a long fills, too
    AVRO_LONG = 12  # zigzag varint of 64 bits -> INT64, FLOAT, DOUBLE (rounded once), TIME_US, TIMESTAMP
    #               ``a`` of both, if not 0: into TIME_US and TIMESTAMP, times ``a`` (ms as us); past 64 bits: RANGE
    AVRO_FLOAT = 13  # -> FLOAT, DOUBLE
    AVRO_DOUBLE = 14
    AVRO_BYTES = 15  # long length, bytes -> BINARY, STRING (UTF-8), DECIMAL (big-endian two's complement; none: 0)
    AVRO_STRING = 16  # the same -> STRING, BINARY
    AVRO_FIXED = 17  # ``a`` bytes -> FIXED, DECIMAL, INTERVAL (12 bytes), STRING (16 bytes of a UUID, as 36 characters)
    AVRO_ENUM = 18  # int -> ENUM: ``table[symbol]`` is the index, -1 an error
    AVRO_ARRAY = 19  # blocks of children[0] -> LIST. The size of a block says only where a dropped one ends
    AVRO_MAP = 20  # blocks of a string (children[0]) and children[1] -> MAP, with its entries as written
    AVRO_RECORD = 21  # children one after another -> STRUCT. Each child has its own column or DROPPED;
    #                   SET_NULL and CONSTANT children fill fields that the writer does not have
    AVRO_UNION = 22  # long: which child; each child fills the same column, which is the union's. ``table``, where it is
    #                  not empty, has the child of each branch; -1: the reader's schema has no place for it

    # Protobuf: wire format. Tags and lengths have at most 5 bytes and 32 bits; other varints have 10, and bits past the
    # 64th fall off
    PROTO_MESSAGE = 30  # fields in any order -> STRUCT; children are PROTO_FIELD, SET_NULL or CONSTANT. Unknown fields
    #                     are skipped. One that comes twice is merged, as the concatenation of its bytes would read.
    #                     A dropped one with a child that is not (google.protobuf.*Value) fills the child's column
    PROTO_FIELD = 31  # number ``a``; children[0] reads one occurrence, without tag and length; children[1] runs where
    #                   there is none (MISSING without it). ``flags``: PROTO_*. ``b``: number of the oneof, -1 without
    #                   (a dropped member, its content unseen, unsets the others, too). The column is that of
    #                   children[0], or, of a repeated field, the LIST or MAP whose items children[0] fills. A wire
    #                   type that the field cannot have: an unknown field
    PROTO_INT32 = 32  # varint, truncated to 32 bits as protobuf does -> INT32
    PROTO_INT64 = 33
    PROTO_UINT32 = 34
    PROTO_UINT64 = 35
    PROTO_SINT32 = 36  # zigzag
    PROTO_SINT64 = 37
    PROTO_FIXED32 = 38  # -> UINT32
    PROTO_FIXED64 = 39  # -> UINT64
    PROTO_SFIXED32 = 40
    PROTO_SFIXED64 = 41
    PROTO_FLOAT = 42
    PROTO_DOUBLE = 43
    PROTO_BOOL = 44
    PROTO_ENUM = 45  # varint -> ENUM: index of the number in ``table`` (sorted pairs: number, index). One that is not
    #                  there: ``a`` 0 (open): its decimal text becomes a symbol; ``a`` 1 (closed): as an unknown field,
    #                  and so is a map entry with such a value
    PROTO_STRING = 46  # valid UTF-8 -> STRING
    PROTO_BYTES = 47
    PROTO_TIMESTAMP = 48  # google.protobuf.Timestamp -> TIMESTAMP us, UTC; nanoseconds are rounded down
    PROTO_DURATION = 49  # google.protobuf.Duration -> DURATION us; nanoseconds are rounded towards zero
    PROTO_MAP_ENTRY = 50  # children: PROTO_FIELD of the key (1) and of the value (2). Of equal keys the last counts,
    #                       in the place of the first
    PROTO_JSON = 52  # google.protobuf.Struct (``a`` 0), Value (1), ListValue (2): as JSON text -> STRING

    # JSON: RFC 8259, UTF-8, one value with white space around it
    JSON_OBJECT = 60  # children are JSON_FIELD, SET_NULL or CONSTANT -> STRUCT. Members with other names are skipped,
    #                   of two the last counts. ``table``: the JSON_FIELDs, by the length of their names, then by them
    JSON_FIELD = 61  # name ``text``; children[0] reads the value; children[1] runs where the member is missing
    JSON_ARRAY = 62  # children[0] for each item -> LIST
    JSON_MAP = 63  # name (children[0], a JSON_STRING) and value (children[1]) of each member -> MAP. Of equal names the
    #                last value counts, in the place of the first
    JSON_STRING = 64  # -> STRING, BINARY (base64, with or without padding), DATE, TIME_US, TIMESTAMP us (RFC 3339),
    #                   DECIMAL, ENUM (symbols: ColumnLayout). Anything else in the string is an error
    #                   For an ENUM ``text`` has its symbols sorted by length, then by bytes; ``table`` has for each the
    #                   index and where it ends in ``text``. For a DECIMAL ``a`` is its scale, here and in numbers
    JSON_INTEGER = 65  # a number without a fraction that is not 0 -> INT32, INT64, UINT64, DECIMAL, DATE, TIME_MS;
    #                    TIME_US and TIMESTAMP, multiplied by ``a`` if that is not 0
    JSON_NUMBER = 66  # -> FLOAT, DOUBLE (beyond both: RANGE), DECIMAL
    JSON_BOOL = 67
    JSON_ANY = 68  # any value: its own text, without white space around it -> STRING
    JSON_OR_NULL = 69  # ``null``: a null; else children[0]
    JSON_CHOICE = 70  # by the value's first character: table[0..5] is the child for object, array, string, number,
    #                   true/false, null; -1: an error. Each child fills the same column


PROTO_REPEATED: Final = 1
PROTO_PACKABLE: Final = 2
PROTO_GROUP: Final = 4
"""Flags of ``PROTO_FIELD``: a repeated field; one of numbers, which may come packed or not; a message that comes as a
group (wire type 3): children[0] reads what is before its end."""


JSON_BASE64: Final = 1
"""Flag of ``JSON_STRING`` into a DECIMAL: base64 of a big-endian two's complement, not decimal text."""

JSON_RAW_NAME: Final = 1
"""Flag of ``JSON_FIELD``: nothing in its name needs a backslash, so its bytes can be compared as they come."""


class Bad(IntEnum):
    """Why a value is undecodable. ``decoder.py`` has the sentence for each."""

    UNKNOWN_SCHEMA = 1  # the id is none that the plan knows
    NO_FRAME = 2  # it does not begin as its framing says
    SHORT = 3  # it ends too early
    LEFT_OVER = 4  # bytes follow it
    VARINT = 5  # a number does not end, or has too many bits
    RANGE = 6  # a number does not fit its column
    UTF8 = 7
    SYMBOL = 8  # an enum has no such symbol
    BRANCH = 9  # a union has no such branch, or the reader's schema has no place for it
    COUNT = 10  # an impossible number of items or length
    DEPTH = 11  # more than MOST_DEPTH values within values
    TAG = 12  # a Protobuf tag or wire type that cannot be
    SYNTAX = 13  # no JSON
    TYPE = 14  # JSON of another type than the schema says
    MISSING = 15  # a member, or a field, that must be there is not
    MESSAGE = 16  # no message type at the message index
    LIMIT = 17  # larger than the caller's limit
    BOOL = 18  # a byte that is neither 0 nor 1
    MISMATCH = 19  # its schema cannot be read as the reader's
    COMPRESSION = 20  # compressed bytes are damaged
    PARTS = 21  # a google.protobuf.Struct, Value or ListValue comes in parts that would have to be merged


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One step. A tree may have cycles only below steps whose column is ``DROPPED`` (recursive schemas): those who make
    them set ``children`` afterwards with ``close_cycle``."""

    code: OpCode
    column: int = DROPPED
    children: tuple[Op, ...] = ()
    a: int = 0
    b: int = 0
    flags: int = 0
    table: tuple[int, ...] = ()
    text: bytes = b""
    name: str = ""  # of the field that it reads, for messages

    def close_cycle(self, children: tuple[Op, ...]) -> None:
        """Set the children of a step that was made before they were."""
        object.__setattr__(self, "children", children)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a layout.

    Args:
        index: its place in the layout.
        parent: the column that it is below; -1 of the root.
        children: the columns below it: of a struct its fields, of a list its item, of a map its key and its value.
    """

    index: int
    type: Type
    parent: int = -1
    children: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The columns of a type, each above those below it. The root is column 0, and may be null whatever its type is."""

    columns: tuple[Column, ...] = field(default=())

    @classmethod
    def of(cls, root: Type) -> ColumnLayout:
        """The columns of this type."""
        columns: list[Column] = []
        _add(columns, root, -1)
        return cls(tuple(columns))

    def child(self, column: int, name: str) -> int:
        """The column of a field of a struct; ``DROPPED`` where the struct is dropped, or has no such field."""
        if column == DROPPED:
            return DROPPED
        one = self.columns[column]
        for index, below in zip(one.children, one.type.fields, strict=True):
            if below.name == name:
                return index
        return DROPPED

    def item(self, column: int) -> int:
        """The column of a list's items; ``DROPPED`` where the list is dropped."""
        return DROPPED if column == DROPPED else self.columns[column].children[0]

    def entry(self, column: int) -> tuple[int, int]:
        """The columns of a map's keys and values; both ``DROPPED`` where the map is dropped."""
        if column == DROPPED:
            return DROPPED, DROPPED
        key, value = self.columns[column].children
        return key, value


_NESTED: Final = (ValueKind.STRUCT, ValueKind.LIST, ValueKind.MAP)


def _add(columns: list[Column], type_: Type, parent: int) -> int:
    index = len(columns)
    columns.append(Column(index=index, type=type_, parent=parent))
    if type_.kind in _NESTED:
        below = tuple(_add(columns, one.type, index) for one in type_.fields)
        columns[index] = Column(index=index, type=type_, parent=parent, children=below)
    return index


@dataclass(frozen=True, slots=True)
class Program:
    """What decodes values of several schemas into one layout.

    Args:
        layout: of the columns.
        roots: the tree of each schema and message; a value's frame chooses one by its index.
    """

    layout: ColumnLayout
    roots: Sequence[Op] = ()


Layout, Code = ColumnLayout, OpCode  # the names of the first hour: to be replaced by those above
