from __future__ import annotations

import base64
import json
import os
import struct
import time
import tracemalloc
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, unknown_fields
from google.protobuf.message import DecodeError, Message
from random_programs import TEXTS, damaged, encode_varint
from random_protobuf import microseconds, split_fields
from twins import NATIVE, entries_of

from segreader.typed.decoder import UndecodableRow, ValueDecoder
from segreader.typed.decoding import Decoding, Side
from segreader.typed.formats.protobuf import described, message_names, type_of
from segreader.typed.merge import merge_types
from segreader.typed.ops import Bad
from segreader.typed.schema import Framing, Reference, Schema, SchemaFormat, SchemaSet
from segreader.typed.types import Type

ROWS = int(os.environ.get("SEGREADER_PROTOBUF_ROWS", "400"))
"""How many random messages of each schema are compared with upb; a search at large sets it, and the seed."""

SEED = int(os.environ.get("SEGREADER_PROTOBUF_SEED", "0"))
KERNELS = ["reference", *(["native"] if NATIVE is not None else [])]

PROTO3 = """
syntax = "proto3";
package p3;
import "google/protobuf/duration.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/any.proto";
message Order {
  int64 id = 1; string customer = 2; Status status = 3; Address address = 4; repeated Item items = 5;
  map<string, string> tags = 6; optional string note = 7; google.protobuf.Timestamp at = 8; double total = 9;
  bool paid = 10; bytes signature = 11; repeated sint32 codes = 12; repeated Status history = 13 [packed = false];
  oneof payment { string card = 14; Address invoice = 15; uint32 voucher = 16; Status promise = 17; }
  map<int32, Item> by_place = 2000; repeated google.protobuf.Duration waits = 20; google.protobuf.Any any = 536870911;
  google.protobuf.Int64Value limit = 21; repeated google.protobuf.StringValue names = 22;
  map<bool, google.protobuf.Timestamp> times = 23; map<sint64, Status> states = 24; repeated double prices = 25;
  fixed32 f32 = 26; fixed64 f64 = 27; sfixed32 s32 = 28; sfixed64 s64 = 29; float f = 30;
  uint64 u64 = 31; sint64 z = 32;
  repeated string words = 33; map<fixed64, bytes> blobs = 34; optional bool flag = 35; optional Status seen = 36;
}
message Address { string street = 1; Place place = 2; int32 zip = 3; repeated fixed32 flags = 4; }
message Place {
  string name = 1; google.protobuf.Timestamp since = 2; google.protobuf.BoolValue big = 3; Place2 deeper = 4;
}
message Place2 { repeated Item items = 1; optional float x = 2; map<string, int32> m = 3; }
message Item { string sku = 1; int32 quantity = 2; double price = 3; }
enum Status { UNKNOWN = 0; NEW = 1; PAID = 2; SHIPPED = 300; LOST = -1; }
"""
PROTO2 = """
syntax = "proto2";
package p2;
message Order {
  required int64 id = 1; optional bytes name = 2 [default = "x"]; optional Kind kind = 3 [default = B];
  optional group Part = 4 {
    optional int32 a = 1; optional Inner inner = 2; repeated group Bit = 3 { optional bool b = 1; }
  }
  repeated Kind kinds = 5; repeated Kind packed_kinds = 6 [packed = true]; map<int32, Kind> by_kind = 7;
  oneof choice { Kind one = 8; Inner two = 9; int32 three = 10; group Four = 11 { optional sint32 s = 1; } }
  optional Inner inner = 12; repeated Inner inners = 13; extensions 100 to 200; repeated float floats = 14;
  map<string, Inner> named = 15; optional bool yes = 16 [default = true];
  message Inner {
    optional Kind kind = 1; optional int32 n = 2; repeated bytes parts = 3; oneof o { bool x = 4; Kind y = 5; }
  }
  enum Kind { A = 0; B = 2; C = 2147483647; D = -2147483648; option allow_alias = true; BB = 2; }
}
extend Order { optional int32 extra = 100; }
"""
EDITION = """
edition = "2023";
package ed;
option features.message_encoding = DELIMITED;
message Order {
  int64 id = 1 [features.field_presence = IMPLICIT]; string name = 2; Closed closed = 3; Open open = 4;
  Inner inner = 5; Inner sized = 6 [features.message_encoding = LENGTH_PREFIXED]; repeated Inner inners = 7;
  map<string, Inner> named = 8; repeated int32 spread = 9 [features.repeated_field_encoding = EXPANDED];
  oneof choice { Inner a = 10; Closed b = 11; } repeated Closed many = 12;
  string text = 13 [features.utf8_validation = NONE];
  message Inner { Inner2 more = 1; Closed kind = 2; int32 n = 3; }
  message Inner2 { repeated Inner3 all = 1; } message Inner3 { int64 x = 1; string s = 2; }
}
enum Closed { option features.enum_type = CLOSED; A = 1; B = 2; }
enum Open { X = 0; Y = 1; }
"""
WIDE = (
    'syntax = "proto3"; package w; message Order { oneof o { int32 x = 5000; Order2 y = 5001; }'
    + " ".join(
        f"{('int32', 'optional string', 'Order2', 'optional double', 'bytes')[k % 5]} f{k} = {k * 7 + 1};"
        for k in range(150)
    )
    + " } message Order2 { int32 a = 1; repeated int32 b = 2; }"
)
SCHEMAS = {"proto3": PROTO3, "proto2": PROTO2, "edition": EDITION, "wide": WIDE}


def proto(text: str, *references: Reference) -> Schema:
    return Schema(SchemaFormat.PROTOBUF, text, references)


@cache
def schema_of(text: str) -> Schema:
    return described(proto(text))


@cache
def class_of(schema: Schema, name: str | None = None) -> type[Message]:
    """upb's class of a message, by default the first one of the schema."""
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(schema.text)).file
    for file in files:
        pool.Add(file)
    name = name or message_names(schema)[0,]
    made: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return made


def decoded(
    schema: Schema,
    values: list[bytes],
    kernel: str | None = None,
    *paths: str,
    type_: Type | None = None,
    message: str | None = None,
) -> tuple[list[Any], dict[int, UndecodableRow]]:
    schemas = SchemaSet(framing=Framing.BARE, bare=schema, message=message)
    whole = type_ or type_of(schema, message)
    decoder = ValueDecoder(
        Decoding(side=Side.VALUE, schemas=schemas, type=whole, paths=paths or ("",)), kernel=kernel or KERNELS[-1]
    )
    found = decoder.decode(pa.array(values, pa.binary()))
    found.array.validate(full=True)
    return entries_of(found.array), {one.row: one for one in found.undecodable}


# What upb says


def value_of(message: Any) -> tuple[Any, ...]:
    """What a message of upb is as an entry of a column."""
    return tuple(field_of(message, one) for one in message.DESCRIPTOR.fields)


def field_of(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if is_map(field):
        key, item = (field.message_type.fields_by_name[one] for one in ("key", "value"))
        return [(one_of(one, key), one_of(value[one], item)) for one in value]
    if field.is_repeated:
        return [(one_of(one, field),) for one in value]
    return None if field.has_presence and not message.HasField(field.name) else one_of(value, field)


def one_of(value: Any, field: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type is None:
        if isinstance(value, float):
            return "nan" if value != value else struct.pack("<d", value)
        return value
    name = field.message_type.full_name
    if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        return microseconds(value, name.endswith("Timestamp"))
    if name.startswith("google.protobuf.") and name.endswith("Value"):
        return one_of(value.value, value.DESCRIPTOR.fields_by_name["value"])
    return value_of(value)


def is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def without_order(value: Any) -> Any:
    """The value with maps in an order of their own, for upb has none."""
    if isinstance(value, tuple):
        return tuple(map(without_order, value))
    if isinstance(value, list):
        items = [without_order(one) for one in value]
        return sorted(items, key=repr) if value and len(value[0]) == 2 else items
    return value


def is_unlike(message: Any) -> bool:
    """Whether upb put an entry of a map among what it does not know, as it has a field that it did not know: C++ and
    Java read the entry without that, and so do we."""
    maps = {one.number for one in message.DESCRIPTOR.fields if is_map(one)}
    if any(one.field_number in maps and one.wire_type == 2 for one in unknown_fields.UnknownFieldSet(message)):
        return True
    for field, value in message.ListFields():
        if field.message_type is not None:
            values = value.values() if is_map(field) else value if field.is_repeated else (value,)
            if any(isinstance(one, Message) and is_unlike(one) for one in values):
                return True
    return False


# Random messages


def fill(random: Random, message: Any, depth: int = 0) -> None:
    for field in message.DESCRIPTOR.fields:
        if random.random() < 0.45 + 0.1 * depth and not is_required(field):
            continue
        if is_map(field):
            fill_map(random, getattr(message, field.name), field, depth)
        elif field.is_repeated:
            values = getattr(message, field.name)
            for _ in range(random.choice((0, 1, 2, 5))):
                if field.message_type is None:
                    values.append(scalar(random, field))
                else:
                    fill(random, values.add(), depth + 1)
        elif field.message_type is None:
            setattr(message, field.name, scalar(random, field))
        else:
            getattr(message, field.name).SetInParent()
            fill(random, getattr(message, field.name), depth + 1)


def fill_map(random: Random, values: Any, field: Any, depth: int) -> None:
    key, item = (field.message_type.fields_by_name[one] for one in ("key", "value"))
    for _ in range(random.choice((0, 1, 2, 5, 30 if depth == 0 else 3))):
        if item.message_type is None:
            values[scalar(random, key)] = scalar(random, item)
        else:
            fill(random, values[scalar(random, key)], depth + 1)


def is_required(field: Any) -> bool:
    return bool(field.is_required)


def scalar(random: Random, field: Any) -> Any:
    kind = field.cpp_type
    if kind == field.CPPTYPE_ENUM:
        known = [one.number for one in field.enum_type.values]
        return random.choice(known if field.enum_type.is_closed else [*known, 77, 2**31 - 1])
    if kind == field.CPPTYPE_STRING:
        return random.choice((b"", b"\xff\0", random.randbytes(9)) if field.type == field.TYPE_BYTES else TEXTS)
    if kind == field.CPPTYPE_BOOL:
        return random.random() < 0.5
    if kind in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        return random.choice((0.0, -0.0, 1.5, float("nan"), float("-inf"), random.uniform(-1e6, 1e6)))
    if field.name == "seconds":  # of a time; others do not fit microseconds
        return random.choice((0, -1, 1_700_000_000, 253_402_300_799, -62_135_596_800))
    bits = 32 if kind in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
    value = random.choice((0, 1, 127, 128, 2 ** (bits - 1) - 1, -1, -(2 ** (bits - 1)), random.getrandbits(bits - 1)))
    is_unsigned = kind in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64)
    return value % 2**bits if is_unsigned else value


def payloads(random: Random, made: type[Message]) -> Iterator[bytes]:
    """Messages as serializers write them, in parts, in another order, with fields of nobody; and what faults leave."""
    while True:
        parts: list[bytes] = []
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            message = made()
            fill(random, message)
            parts += split_fields(message.SerializePartialToString())
        while random.random() < 0.3:
            tag = random.choice((99, 100, 2**29 - 2)) << 3
            inner = encode_varint(tag | 3) + b"\x08\x96\x01" + encode_varint(tag | 4)
            parts.append(
                random.choice(
                    (
                        encode_varint(tag) + b"\x96\x01",
                        encode_varint(tag | 1) + bytes(8),
                        encode_varint(tag | 2) + b"\2ab",
                        inner,
                    )
                )
            )
        if random.random() < 0.4:
            random.shuffle(parts)
        yield b"".join(parts)
        if random.random() < 0.5:
            yield damaged(random, b"".join(parts))


# A value equal to upb's, or an error


def compare(name: str, schema: Schema, values: list[bytes], kernel: str) -> tuple[int, int]:
    """Compare with upb; gives how many values there are, and how many of them nobody can read."""
    found, bad = decoded(schema, values, kernel)
    made = class_of(schema)
    for row, data in enumerate(values):
        where = f"{name}, {kernel}: {data.hex()}"
        try:
            message = made()
            message.MergeFromString(data)
        except DecodeError:
            assert row in bad, where
            continue
        if row in bad:
            assert is_ours(bad[row], data, name), (where, bad[row])
        elif not is_unlike(message):
            assert without_order(found[row]) == without_order(value_of(message)), where
    return len(values), len(bad)


def is_ours(row: UndecodableRow, data: bytes, name: str) -> bool:
    """Whether upb leaves such an error to who looks at the field; a field 0 in an unknown group C++ and Java refuse."""
    if row.bad is Bad.TAG:
        return data[row.position] < 8
    return row.bad is Bad.RANGE or (row.bad is Bad.UTF8 and name != "proto3")


@pytest.mark.parametrize("name", SCHEMAS)
def test_messages_are_read_as_upb_reads_them(name: str) -> None:
    random = Random(SEED)
    schema = schema_of(SCHEMAS[name])
    source = payloads(random, class_of(schema))
    for kernel in KERNELS:
        values = [next(source) for _ in range(ROWS if kernel == "native" else ROWS // 8)]
        rows, bad = compare(name, schema, values, kernel)
        assert rows * 0.05 < bad < rows * 0.5


@pytest.mark.parametrize("name", ["proto3", "proto2", "edition"])
def test_every_cut_and_every_changed_byte_gives_what_upb_gives_or_an_error(name: str) -> None:
    random = Random(SEED)
    schema = schema_of(SCHEMAS[name])
    data = b""
    while not 150 < len(data) < 400:
        message = class_of(schema)()
        fill(random, message)
        data = message.SerializePartialToString()
    values = [data[:at] for at in range(len(data))]
    values += [data[:at] + bytes((changed,)) + data[at + 1 :] for at in range(len(data))
               for changed in {data[at] ^ 1, data[at] ^ 0x80, data[at] ^ 7, 0, 0xFF}]  # fmt: skip
    compare(name, schema, values, KERNELS[-1])


@pytest.mark.parametrize("kernel", KERNELS)
def test_fields_that_are_not_asked_for_change_nothing(kernel: str) -> None:
    schema = schema_of(PROTO3)
    names = [one.name for one in type_of(schema).fields]
    source = payloads(Random(SEED + 1), class_of(schema))
    values = [next(source) for _ in range(150 if kernel == "native" else 40)]
    whole, bad = decoded(schema, values, kernel)
    for wanted in (["id"], ["card"], ["by_place", "at"], ["voucher", "payment", "invoice"], ["note", "items"]):
        paths = [one for one in wanted if one in names]
        found, more_bad = decoded(schema, values, kernel, *paths)
        for row in set(range(len(values))) - bad.keys():
            assert row not in more_bad
            assert repr(found[row]) == repr(tuple(whole[row][k] for k, one in enumerate(names) if one in paths))


def test_parts_of_fields_below_a_message_are_read_alone() -> None:
    schema = schema_of(PROTO3)
    made = class_of(schema)
    message: Any = made()
    message.address.place.name = "Bonn"
    message.address.place.deeper.items.add(sku="a", price=2.5)
    message.items.add(sku="b", quantity=3)
    data = message.SerializeToString()
    found, _ = decoded(schema, [data, b""], None, "address.place.deeper.items.price", "items.sku")

    assert found == [(((([((struct.pack("<d", 2.5),),)],),),), [(("b",),)]), (None, [])]


# Merging


def order(**given: Any) -> bytes:
    return bytes(class_of(schema_of(PROTO3))(**given).SerializePartialToString())


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_message_in_parts_is_their_concatenation(kernel: str) -> None:
    schema = schema_of(PROTO3)
    names = [one.name for one in type_of(schema).fields]
    parts = [
        order(address={"street": "a", "flags": [1, 2], "place": {"since": {"seconds": 5, "nanos": 7000}}}, id=1),
        order(items=[{"sku": "x"}], tags={"a": "1", "b": "2"}, limit={"value": 3}, codes=[1]),
        order(address={"zip": 3, "flags": [9], "place": {"name": "n", "since": {"nanos": 9000}, "big": {}}}, id=2),
        order(items=[{"sku": "y"}], tags={"b": "3", "c": "4"}, limit={}, codes=[2, 3], card="c"),
        order(invoice={"street": "s"}),
        order(voucher=3),
        order(invoice={"zip": 1}),
    ]
    values = [b"".join(one) for one in (parts, parts * 3, reversed(parts))]
    found, bad = decoded(schema, values, kernel)
    one = dict(zip(names, found[0], strict=True))

    assert not bad
    assert one["id"] == 2
    assert one["address"] == ("a", ("n", 5_000_009, False, None), 3, [(1,), (2,), (9,)])
    assert dict(one["tags"]) == {"a": "1", "b": "3", "c": "4"}
    assert (one["limit"], one["codes"]) == (3, [(1,), (2,), (3,)])
    assert (one["card"], one["voucher"], one["invoice"]) == (None, None, ("", None, 1, []))
    for data, value in zip(values, found, strict=True):
        message = class_of(schema).FromString(data)
        assert without_order(value) == without_order(value_of(message))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_message_in_parts_has_the_fields_of_the_reader_once(kernel: str) -> None:
    fields = (
        "int32 x = 1; E e = 2;",
        "int32 x = 1; E e = 2; repeated string more = 3; optional bool flag = 4; N n = 5;",
    )
    writer, reader = (
        schema_of(
            'syntax = "proto3"; enum E { A = 0; B = 7; }'
            " message M { N n = 1; repeated N r = 2; oneof o { N a = 3; N b = 4; } }"
            f" message N {{ {one} }}"
        )
        for one in fields
    )
    type_ = type_of(reader)
    part, other = b"\x08\x05", b"\x10\x07"  # x = 5; e = B
    paths = ("n.x", "n.e", "n.more", "n.flag", "r.x", "r.flag", "a.x", "a.e", "a.more")
    values = [
        b"\x0a\2" + part + b"\x0a\2" + other,
        b"\x1a\2" + part + b"\x22\0" + b"\x1a\2" + other,
        b"\x22\0\x1a\0\x1a\0",
    ]
    found, bad = decoded(writer, values, kernel, *paths, type_=type_)

    assert not bad
    assert found == [
        ((5, "B", [], None), [], None),
        (None, [], (0, "B", [])),
        (None, [], (0, "A", [])),
    ]


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_well_known_type_may_be_the_value_itself(kernel: str) -> None:
    imports = "".join(f'import "google/protobuf/{one}.proto"; ' for one in ("timestamp", "wrappers", "struct"))
    kinds = ("Timestamp", "Int64Value", "Struct", "ListValue", "StringValue")
    fields = " ".join(f"google.protobuf.{one} f{k} = {k + 1};" for k, one in enumerate(kinds))
    schema = schema_of(f'syntax = "proto3"; {imports} message M {{ {fields} }}')
    cases = [
        (b"\x08\x05\x10\xe8\x07", 5_000_001),
        (b"\x08\x07", 7),
        (b"\x0a\x03\x0a\x01a", '{"a":null}'),
        (b"\x0a\x02\x08\0", "[null]"),
        (b"\x0a\x01a", "a"),
    ]
    for kind, (data, value) in zip(kinds, cases, strict=True):
        found, bad = decoded(schema, [data, b"", b"\x07"], kernel, message=f"google.protobuf.{kind}")
        assert found[0] == value
        assert found[1] == {"Timestamp": 0, "Int64Value": 0, "Struct": "{}", "ListValue": "[]", "StringValue": ""}[kind]
        assert [one.bad for one in bad.values()] == [Bad.TAG]


def test_large_maps_keep_the_last_value_of_a_key_in_the_place_of_the_first() -> None:
    schema = schema_of(PROTO3)
    random = Random(3)
    keys = [random.randrange(60) for _ in range(200)]
    data = b"".join(order(by_place={key: {"sku": f"s{k}", "quantity": k}}) for k, key in enumerate(keys))
    data += b"".join(order(tags={f"k{key}": str(k)}) for k, key in enumerate(keys))
    data += b"".join(order(times={key % 2 == 0: {"seconds": k}}) for k, key in enumerate(keys))
    data += b"".join(order(blobs={key: bytes((k,))}) for k, key in enumerate(keys))
    expected = {key: k for k, key in enumerate(keys)}
    last = {key % 2 == 0: k for k, key in enumerate(keys)}
    for kernel in KERNELS:
        found, _ = decoded(schema, [b"", data], kernel, "by_place", "tags", "times", "blobs")

        assert found[1] == (
            [(f"k{key}", str(k)) for key, k in expected.items()],
            [(key, (f"s{k}", k, struct.pack("<d", 0))) for key, k in expected.items()],
            [(key, k * 1_000_000) for key, k in last.items()],
            [(key, bytes((k,))) for key, k in expected.items()],
        )


# JSON text of google.protobuf.Struct and the like

JSON = """
syntax = "proto3";
import "google/protobuf/struct.proto";
message M { google.protobuf.Struct s = 1; google.protobuf.Value v = 2; google.protobuf.ListValue l = 3;
  repeated google.protobuf.Value r = 4; map<string, google.protobuf.Value> m = 5;
  oneof o { google.protobuf.Value a = 6; int32 b = 7; } }
"""


def any_json(random: Random, depth: int = 3) -> Any:
    match random.randrange(7 if depth else 5):
        case 0:
            return None
        case 1:
            return random.random() < 0.5
        case 2:
            return random.choice((0.0, -5.0, 1e15, 1e16, 0.1, 1 / 3, 5e-324, 1.7976931348623157e308, 2.0**53, 1e-5))
        case 3:
            return random.uniform(-1e9, 1e9)
        case 4:
            return random.choice((*TEXTS, 'q"\\/\b\t\n\r\f\x01\x1f\x7f\u2028', ""))
        case 5:
            return [any_json(random, depth - 1) for _ in range(random.randrange(4))]
    return {random.choice((*TEXTS, f"k{k}")): any_json(random, depth - 1) for k in range(random.choice((0, 2, 40)))}


def test_struct_value_and_list_are_json_text() -> None:
    random = Random(SEED)
    schema = schema_of(JSON)
    given, values = [], []
    for _ in range(60):
        message: Any = class_of(schema)()
        document = {
            "s": {f"k{k}": any_json(random) for k in range(random.randrange(4))},
            "v": any_json(random),
            "l": [any_json(random) for _ in range(3)],
            "r": [any_json(random) for _ in range(2)],
            "m": {f"k{k}": any_json(random) for k in range(2)},
            "a": any_json(random),
            "b": None,
        }
        message.s.SetInParent()
        for name in ("s", "v", "l", "a"):
            json_format.ParseDict(document[name], getattr(message, name))
        for one in document["r"]:
            json_format.ParseDict(one, message.r.add())
        for key, one in document["m"].items():
            json_format.ParseDict(one, message.m[key])
        given.append(document)
        values.append(message.SerializeToString(deterministic=True))
    for kernel in KERNELS:
        found, bad = decoded(schema, values, kernel)

        assert not bad
        for document, (s, v, items, r, m, a, b) in zip(given, found, strict=True):
            assert [json.loads(one) for one in (s, v, items, a)] == [document[one] for one in ("s", "v", "l", "a")]
            assert [json.loads(one) for (one,) in r] == document["r"]
            assert {key: json.loads(one) for key, one in m} == document["m"]
            assert b is None


@pytest.mark.parametrize("kernel", KERNELS)
def test_json_text_is_compact_and_says_nothing_twice(kernel: str) -> None:
    schema = schema_of(JSON)
    entry = b"\x0a\x0a\x0a\x01a\x12\x05\x1a\x03"  # {"a": of three letters}
    cases = {
        b"": (None, None, None),
        b"\x0a\0\x12\0\x1a\0": ("{}", "null", "[]"),
        b"\x12\x02\x08\x05": (None, "null", None),
        b"\x12\x04\x20\x01\x20\x00": (None, "false", None),
        b"\x0a\x18" + entry + b"xyz" + entry + b"\xc3\xa9!": ('{"a":"é!"}', None, None),
        b"\x0a\x02\x0a\x00": ('{"":null}', None, None),
        b"\x12\x09\x11" + struct.pack("<d", 1e21): (None, "1e+21", None),
        b"\x12\x09\x11" + struct.pack("<d", -0.0): (None, "-0", None),
        b"\x12\x09\x11" + struct.pack("<d", 123456789012345.0): (None, "123456789012345", None),
    }
    found, bad = decoded(schema, list(cases), kernel, "s", "v", "l")
    broken = {
        b"\x0a\0\x0a\0": Bad.PARTS,
        b"\x12\x04\x2a\x00\x2a\x00": Bad.PARTS,
        b"\x0a\x06\x0a\x04\x12\0\x12\0": Bad.PARTS,
        b"\x12\x09\x11" + struct.pack("<d", float("inf")): Bad.RANGE,
        b"\x12\x09\x11" + struct.pack("<d", float("nan")): Bad.RANGE,
        b"\x12\x03\x1a\x01\xff": Bad.UTF8,
        b"\x0a\x05\x0a\x03\x0a\x01\xff": Bad.UTF8,
        b"\x12\x02\x11\0": Bad.SHORT,
    }

    assert not bad
    assert found == list(cases.values())
    assert [one.bad for one in decoded(schema, list(broken), kernel)[1].values()] == list(broken.values())


# Bombs


def nested(field: int, depth: int) -> bytes:
    data = b""
    for _ in range(depth):
        data = encode_varint(field << 3 | 2) + encode_varint(len(data)) + data
    return data


RECURSIVE = """
syntax = "proto3"; import "google/protobuf/struct.proto";
message M { int32 a = 1; M m = 2; google.protobuf.Value v = 3; repeated string s = 4; map<string, string> t = 5; }
"""


@pytest.mark.parametrize("kernel", KERNELS)
def test_bombs_are_errors_in_little_time_and_memory(kernel: str) -> None:
    group = encode_varint(99 << 3 | 3)
    lists = b""  # a Value that is a list of a Value that is a list …
    for k in range(6001):
        lists = (b"\x0a" if k % 2 else b"\x32") + encode_varint(len(lists)) + lists
    bombs = {
        "groups": group * 10_000 + encode_varint(99 << 3 | 4) * 10_000,
        "open groups": group * 1_000_000,
        "length": b"\x22\x80\x80\x80\x80\x08",
        "long length": b"\x22\xff\xff\xff\xff\x0f",
        "endless number": b"\x08" + b"\xff" * 100_000,
        "long tag": b"\x88\x80\x80\x80\x80\x00\x05",
        "lists": b"\x1a" + encode_varint(len(lists)) + lists,
    }
    began = time.process_time()
    tracemalloc.start()
    found, bad = decoded(schema_of(RECURSIVE), list(bombs.values()), kernel, "a", "v", "s")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found == [None] * len(bombs)
    assert dict(zip(bombs, (one.bad for one in bad.values()), strict=True)) == {
        "groups": Bad.DEPTH,
        "open groups": Bad.DEPTH,
        "length": Bad.SHORT,
        "long length": Bad.SHORT,
        "endless number": Bad.VARINT,
        "long tag": Bad.VARINT,
        "lists": Bad.DEPTH,
    }
    assert peak < 64 << 20
    assert time.process_time() - began < 5


def test_a_message_of_10000_levels_is_read_where_it_is_not_asked_for_and_else_too_deep() -> None:
    chain = "".join(f"message M{k} {{ M{k + 1} m = 1; int32 a = 2; }} " for k in range(110))
    schema = schema_of(f'syntax = "proto3"; {chain} message M110 {{ int32 a = 1; }}')
    deep = nested(1, 10_000)
    path = ".".join(["m"] * 98 + ["a"])
    for kernel in KERNELS:
        found, bad = decoded(schema, [deep, nested(1, 98), nested(1, 101)], kernel, "a", path)
        assert not bad
        assert found[0][1] == 0
        values = [nested(2, 10_000), nested(2, 100)]
        assert decoded(schema_of(RECURSIVE), values, kernel, "a")[0] == [(0,), (0,)]


def test_what_comes_again_and_again_costs_no_more_than_once() -> None:
    many = 60_000
    values = [
        order(tags={"a": "b"}) * many,
        order(address={"street": "abc"}) * many,
        order(at={"seconds": 1}) * many,
        order(card="a") * many + order(invoice={}) * many,
        (order(card="a") + order(invoice={"zip": 1}) + order(voucher=1)) * (many // 3),
        order(customer="abc") * many,
        b"".join(order(tags={str(k): "x"}) for k in range(many)),
    ]
    began = time.process_time()
    found, bad = decoded(schema_of(PROTO3), values)

    assert not bad
    assert [len(one[5]) for one in found] == [1, 0, 0, 0, 0, 0, many]
    assert time.process_time() - began < 10


def test_a_column_may_be_larger_than_the_values() -> None:
    schema = schema_of(
        'syntax = "proto3"; message M { repeated int64 n = 1; repeated E e = 2; }'
        " message E { int64 a = 1; bytes b = 2; }"
    )
    values = [b"\x0a\x90\x4e" + bytes(10_000), b"\x12\0" * 10_000, b"\x08\1" * 5000]
    found, bad = decoded(schema, values)

    assert not bad
    assert [(len(n), len(e)) for n, e in found] == [(10_000, 0), (0, 10_000), (5000, 0)]


# Evolution


def test_values_of_several_versions_fill_the_columns_of_all() -> None:
    old = schema_of(
        'syntax = "proto3"; package a; message Order { int32 id = 1; string name = 2; Status s = 3; bool gone = 4;'
        " Inner inner = 5; float f = 6; bytes raw = 7; }"
        " enum Status { NEW = 0; OLD = 1; } message Inner { uint32 x = 1; }"
    )
    new = schema_of(
        'syntax = "proto3"; package b; message Order { int64 id = 1; string title = 2; Status s = 3; Inner inner = 5;'
        " double f = 6; string raw = 7; optional int32 added = 8; repeated string list = 9; }"
        " enum Status { NEW = 0; DONE = 2; } message Inner { uint64 x = 1; string y = 2; }"
    )
    type_ = merge_types([type_of(old), type_of(new)])
    first: Any = class_of(old)(id=-5, name="n", s=1, gone=True, inner={"x": 7}, f=1.5, raw=b"\xff")
    second: Any = class_of(new)(id=2**40, title="t", s=2, inner={"x": 2**40, "y": "y"}, f=2.5, raw="r", list=["a"])
    half = [struct.pack("<d", one) for one in (1.5, 2.5)]

    assert [one.name for one in type_.fields] == ["id", "title", "s", "inner", "f", "raw", "added", "list", "gone"]
    for kernel in KERNELS:
        ((one,), bad), ((two,), more_bad) = (
            decoded(schema, [message.SerializeToString()], kernel, type_=type_)
            for schema, message in ((old, first), (new, second))
        )
        assert not bad
        assert not more_bad
        assert one == (-5, "n", "OLD", (7, None), half[0], b"\xff", None, None, True)
        assert two == (2**40, "t", "DONE", (2**40, "y"), half[1], b"r", None, [("a",)], None)


def test_columns_are_read_as_protobuf_reads_the_bytes_of_other_types() -> None:
    pairs = [("int64", "int32"), ("int32", "uint64"), ("int32", "bool"), ("uint32", "int32"), ("fixed32", "sfixed32")]
    pairs += [
        ("sfixed32", "int64"),
        ("fixed32", "uint64"),
        ("string", "repeated string"),
        ("repeated string", "string"),
    ]
    pairs += [("int32", "repeated int32"), ("E", "int32")]
    writer, reader = (
        schema_of(
            'syntax = "proto3"; enum E { A = 0; B = 7; } '
            f"message M {{ {' '.join(f'{one[side]} f{k} = {k + 1};' for k, one in enumerate(pairs))} }}"
        )
        for side in (0, 1)
    )
    message: Any = class_of(writer)(
        f0=2**40 + 5, f1=-1, f2=256, f3=2**32 - 1, f4=2**32 - 1, f5=-3, f6=2**32 - 1, f7="a"
    )
    message.f8.extend(["a", "b"])
    message.f9, message.f10 = 4, 7
    for kernel in KERNELS:
        found, bad = decoded(writer, [message.SerializeToString(), b""], kernel, type_=type_of(reader))
        assert not bad
        assert found[0] == (5, 2**64 - 1, True, -1, -1, -3, 2**32 - 1, [("a",)], "b", [(4,)], 7)
        assert found[1] == (0, 0, False, 0, 0, 0, 0, [], "", [], 0)


# confluent-kafka's own serializer


def test_values_of_confluents_serializer_are_read_with_nested_messages_and_references() -> None:
    whole = schema_of_files(
        {
            "s/money.proto": 'syntax = "proto3"; package s; message Money { string unit = 1; int64 cents = 2; }',
            "o/orders.proto": 'syntax = "proto3"; package o; import "s/money.proto";'
            ' import "google/protobuf/timestamp.proto";'
            " message First { int32 a = 1; } message Outer { map<string, s.Money> prices = 1;"
            " message Skipped { int32 b = 1; } message Inner { s.Money total = 1; repeated s.Money parts = 2;"
            " google.protobuf.Timestamp at = 3; } }",
        }
    )
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(whole.text)).file:
        pool.Add(file)
    context = SerializationContext("orders", MessageField.VALUE)
    values = []
    for name, given in (
        (
            "o.Outer.Inner",
            {"total": {"unit": "EUR", "cents": 5}, "parts": [{"cents": 2}, {"cents": 3}], "at": {"seconds": 9}},
        ),
        ("o.First", {"a": 3}),
        ("o.Outer", {"prices": {"x": {"cents": 1}}}),
    ):
        made = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        values.append(ProtobufSerializer(made, client, {"use.deprecated.format": False})(made(**given), context))
    ids = {int.from_bytes(one[1:5], "big") for one in values}
    schemas = SchemaSet(ids=tuple((str(one), learnt(client, one)) for one in sorted(ids)), message="o.Outer.Inner")
    type_ = type_of(schemas.ids[0][1], "o.Outer.Inner")
    for kernel in KERNELS:
        decoder = ValueDecoder(Decoding(side=Side.VALUE, schemas=schemas, type=type_), kernel=kernel)
        found = decoder.decode(pa.array(values, pa.binary()))

        assert [one[5:].hex()[:6] for one in values] == ["040204", "000803", "020204"[:4] + "0a"]
        assert entries_of(found.array)[0] == (("EUR", 5), [(("", 2),), (("", 3),)], 9_000_000)
        assert [(one.row, one.bad) for one in found.undecodable] == [(1, Bad.MISMATCH), (2, Bad.MISMATCH)]


def schema_of_files(files: dict[str, str]) -> Schema:
    """The last of these files, with the others as references."""
    *others, last = files.values()
    return described(proto(last, *(Reference(name, proto(text)) for name, text in zip(files, others, strict=False))))


def learnt(client: Any, id: int) -> Schema:
    """A schema as a registry gives it: with its references, by their subjects and versions."""
    found = client.get_schema(id)
    references = [
        Reference(one.name, learnt(client, client.get_version(one.subject, one.version).schema_id))
        for one in found.references or ()
    ]
    return proto(found.schema_str, *references)
