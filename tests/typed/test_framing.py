from __future__ import annotations

import uuid
import zlib
from array import array
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.common.serde import SchemaId
from random_programs import damaged, encode_varint

from segreader.format.kernel import load_twin
from segreader.typed import framing
from segreader.typed.decoding import ANY_ID, Side
from segreader.typed.framing import Frame, FrameFinder, MessageName, NamedSchema, read_frame, read_message
from segreader.typed.ops import Bad
from segreader.typed.schema import Framing, Schema, SchemaFormat, SchemaSet

AVRO, OTHER = Schema(SchemaFormat.AVRO, '"long"'), Schema(SchemaFormat.AVRO, '"string"')
PROTOBUF = Schema(SchemaFormat.PROTOBUF, 'syntax = "proto3"; message A {}')
GUID = uuid.UUID("12345678-9abc-def0-1234-56789abcdef0")
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
KERNELS = ["native", "reference"]
Headers = Sequence[Sequence[tuple[str, bytes | None]] | None]


class Roots:
    """Numbers schemas as they come, and refuses some messages."""

    def __init__(self) -> None:
        self.asked: list[tuple[Schema, MessageName | None]] = []

    def __call__(self, schema: Schema, message: MessageName | None) -> int | Bad:
        if message is not None and message.index == (9,):
            return Bad.MESSAGE
        self.asked.append((schema, message))
        return len(self.asked) - 1


def finder(kernel: str, schemas: SchemaSet, roots: Callable[..., int | Bad], side: Side = Side.VALUE) -> FrameFinder:
    twin = load_twin("segreader.typed._values", "segreader.typed.reference", kernel)
    return FrameFinder(schemas, side, roots, twin if kernel == "native" else None)


def headers_of(rows: Headers) -> pa.Array:
    named = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows]
    return pa.array(named, HEADERS)


def found(
    of: FrameFinder, values: Sequence[bytes | None] | pa.Array, headers: Headers | pa.Array | None = None
) -> list[Any]:
    """For each row its root, or Bad, and its payload."""
    column = values if isinstance(values, pa.Array) else pa.array(values, pa.binary())
    if headers is not None and not isinstance(headers, pa.Array):
        headers = headers_of(headers)
    rows = of.find(column, headers)
    data = bytes(rows.data)
    return [
        None if root == -1 else Bad(-2 - root) if root < 0 else (root, data[rows.starts[k] : rows.stops[k]])
        for k, root in enumerate(rows.roots[: rows.rows])
    ]


def confluent(id: int = 7) -> bytes:
    return b"\0" + id.to_bytes(4, "big")


@pytest.mark.parametrize("kernel", KERNELS)
def test_confluent_ids_choose_the_schema(kernel: str) -> None:
    roots = Roots()
    of = finder(kernel, SchemaSet(ids=(("7", AVRO), ("8", OTHER), ("9", AVRO))), roots)
    values = [
        confluent(7) + b"a",
        confluent(8),
        None,
        confluent(9) + b"b",
        confluent(7),
        b"",
        confluent(10),
        b"\1",
        b"\0\0\0\0",
    ]

    expected = [(0, b"a"), (1, b""), None, (0, b"b"), (0, b""), Bad.NO_FRAME, Bad.UNKNOWN_SCHEMA, *[Bad.NO_FRAME] * 2]

    for _ in range(2):
        assert found(of, values) == expected
    assert roots.asked == [(AVRO, None), (OTHER, None)]


@pytest.mark.parametrize("kernel", KERNELS)
def test_parts_of_a_column_are_framed_where_they_begin(kernel: str) -> None:
    values = [None if k % 7 == 3 else confluent(7 + k % 2) + b"x" * k for k in range(40)]
    of = finder(kernel, SchemaSet(ids=(("7", AVRO), ("8", OTHER))), Roots())
    whole = found(of, values)
    column = pa.array(values, pa.binary())
    for start, length in ((0, 40), (1, 9), (3, 1), (8, 17), (39, 1), (40, 0)):
        assert found(of, column.slice(start, length)) == whole[start : start + length]


@pytest.mark.parametrize("kernel", KERNELS)
def test_an_id_in_a_header_counts_and_leaves_the_value_bare(kernel: str) -> None:
    schemas = SchemaSet(ids=(("7", AVRO), (GUID.hex, OTHER)))
    name, guid, id_ = "__value_schema_id", b"\1" + GUID.bytes, confluent(7)
    cases: list[tuple[list[tuple[str, bytes | None]] | None, Any]] = [
        ([], (0, b"payload")),
        (None, (0, b"payload")),
        ([(name, guid)], (1, id_ + b"payload")),
        ([("a", None), (name, id_), ("b", b"")], (0, id_ + b"payload")),
        ([(name, id_), (name, guid)], (1, id_ + b"payload")),
        ([("__key_schema_id", guid), ("__value_schema_ie", guid), ("__value_schema", guid)], (0, b"payload")),
        ([(name, None)], (0, b"payload")),
        ([(name, b"")], Bad.NO_FRAME),
        ([(name, guid[:-1])], Bad.NO_FRAME),
        ([(name, confluent(8))], Bad.UNKNOWN_SCHEMA),
    ]
    values = [id_ + b"payload"] * len(cases)
    of = finder(kernel, schemas, Roots())

    headers = headers_of([one for one, _ in cases])
    for _ in range(2):
        assert found(of, values, headers) == [expected for _, expected in cases]
    assert found(of, values[3:6], headers.slice(3, 3)) == [expected for _, expected in cases[3:6]]
    assert found(finder(kernel, schemas, Roots(), Side.KEY), values[:1], [[(name, guid)]]) == [(0, b"payload")]
    assert found(of, [None], [[(name, guid)]]) == [None]
    assert of.named_by(pa.array(values), headers, 2) == NamedSchema(str(GUID), OTHER, 0)
    assert of.named_by(pa.array(values), headers, 0) == NamedSchema("7", AVRO, 5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_protobuf_frames_name_a_message(kernel: str) -> None:
    roots = Roots()
    of = finder(kernel, SchemaSet(ids=(("7", PROTOBUF), (str(GUID), PROTOBUF))), roots)
    indexes = [b"\0", b"\2\0", b"\4\2\2", b"\2\x86\1", b"\4\0\0"]
    values = [confluent() + one + b"\x08" for one in indexes]
    values += [
        confluent() + one
        for one in (b"", b"\1", b"\2", b"\2\1", b"\x80", b"\xff\xff\xff\xff\xff\1", b"\xca\1", b"\2\x12")
    ]
    bads = [Bad.NO_FRAME, Bad.MESSAGE, Bad.NO_FRAME, Bad.MESSAGE, Bad.NO_FRAME, Bad.NO_FRAME, Bad.MESSAGE, Bad.MESSAGE]

    for _ in range(2):
        assert found(of, values) == [*((k if k < 1 else max(k - 1, 0), b"\x08") for k in range(5)), *bads]

    assert [message.index for _, message in roots.asked if message] == [(0,), (1, 1), (67,), (0, 0)]
    header = b"\1" + GUID.bytes
    in_headers = [[("__value_schema_id", header + one)] for one in (b"\4\2\2", b"\0", b"\1", b"")]
    assert found(of, [b"\0\0"] * 4, in_headers) == [(1, b"\0\0"), (0, b"\0\0"), Bad.MESSAGE, Bad.NO_FRAME]
    assert of.named_by(pa.array(values), None, 2) == NamedSchema("7", PROTOBUF, 8)
    assert of.named_by(pa.array(values), None, 6) == NamedSchema("7", PROTOBUF, 5)


def test_frames_are_those_of_confluents_own_client() -> None:
    for index in ([0], [1], [0, 0], [3, 200, 5], [70_000]):
        for made in (SchemaId("PROTOBUF", 123_456_789, None, index), SchemaId("PROTOBUF", None, str(GUID), index)):
            data = (made.id_to_bytes() if made.id is not None else made.guid_to_bytes()) + b"rest"
            frame = read_frame(data, Framing.CONFLUENT)
            assert isinstance(frame, Frame)
            assert frame.names[0] == str(made.id or made.guid)
            assert read_message(data, frame.size, Framing.CONFLUENT) == (MessageName(index=tuple(index)), len(data) - 4)


@pytest.mark.parametrize("kernel", KERNELS)
def test_apicurio_has_ids_of_eight_bytes_and_names_messages(kernel: str) -> None:
    roots = Roots()
    id_ = b"\0" + (2**40).to_bytes(8, "big")
    of = finder(kernel, SchemaSet(framing=Framing.APICURIO, ids=((str(2**40), AVRO),)), roots)
    assert found(of, [id_ + b"x", id_[:8], b"\1" + id_[1:]]) == [(0, b"x"), Bad.NO_FRAME, Bad.NO_FRAME]

    roots = Roots()
    of = finder(kernel, SchemaSet(framing=Framing.APICURIO, ids=((str(2**40), PROTOBUF),)), roots)
    values = [
        id_ + b"\7\x0a\5Orderx",
        id_ + b"\7\x0a\6Order",
        id_ + b"\7\x12\5Order",
        id_ + b"\3\x0a\1",
        id_ + b"\3\x0a\1\xff",
        id_,
    ]
    assert found(of, values) == [(0, b"x"), *[Bad.NO_FRAME] * 5]
    assert roots.asked == [(PROTOBUF, MessageName(name="Order"))]


@pytest.mark.parametrize("kernel", KERNELS)
def test_single_objects_name_a_fingerprint(kernel: str) -> None:
    start = b"\xc3\1"
    eight = bytes(range(1, 9))
    for name in ("0807060504030201", "0102030405060708"):
        of = finder(kernel, SchemaSet(framing=Framing.SINGLE_OBJECT, ids=((name, AVRO),)), Roots())
        assert found(of, [start + eight + b"x", start + eight[:7], b"\xc3\2" + eight, start + eight[1:] + b"x"]) == [
            (0, b"x"),
            Bad.NO_FRAME,
            Bad.NO_FRAME,
            Bad.UNKNOWN_SCHEMA,
        ]


@pytest.mark.parametrize("kernel", KERNELS)
def test_values_without_frames_have_one_schema(kernel: str) -> None:
    roots = Roots()
    of = finder(kernel, SchemaSet(framing=Framing.BARE, bare=PROTOBUF), roots)
    assert found(of, [b"", None, b"abc"]) == [(0, b""), None, (0, b"abc")]
    assert roots.asked == [(PROTOBUF, None)]
    assert found(finder(kernel, SchemaSet(framing=Framing.BARE), roots), [b"x", None]) == [Bad.UNKNOWN_SCHEMA, None]


@pytest.mark.parametrize("kernel", KERNELS)
def test_any_id_is_the_schema_of_those_that_are_not_known(kernel: str) -> None:
    of = finder(kernel, SchemaSet(ids=(("7", AVRO), (ANY_ID, OTHER))), Roots())
    assert found(of, [confluent(7), confluent(8), confluent(9)]) == [(0, b""), (1, b""), (1, b"")]
    assert of.named_by(pa.array([confluent(8)]), None, 0) == NamedSchema("8", OTHER, 5)


def glue(payload: bytes, compression: int = 0) -> bytes:
    return bytes([3, compression]) + GUID.bytes + payload


@pytest.mark.parametrize("kernel", KERNELS)
def test_glue_values_may_be_compressed(kernel: str) -> None:
    of = finder(kernel, SchemaSet(framing=Framing.GLUE, ids=((str(GUID), AVRO),)), Roots())
    packed = zlib.compress(b"payload" * 9)
    values = [
        glue(b"plain"),
        None,
        glue(packed, 5),
        glue(zlib.compress(b""), 5),
        glue(packed[:-1], 5),
        glue(packed[:5] + b"\xff" + packed[6:], 5),
        glue(packed + b"\0", 5),
        glue(b"", 5),
        glue(b"x", 4),
        b"\4" + glue(b"")[1:],
    ]
    expected = [
        (0, b"plain"),
        None,
        (0, b"payload" * 9),
        (0, b""),
        Bad.SHORT,
        Bad.COMPRESSION,
        Bad.LEFT_OVER,
        Bad.SHORT,
    ]

    for _ in range(2):
        assert found(of, values) == [*expected, Bad.NO_FRAME, Bad.NO_FRAME]
    assert of.find(pa.array(values, pa.binary()), None).inflated == {2, 3, 4, 5, 6, 7}


@pytest.mark.parametrize("kernel", KERNELS)
def test_glue_names_messages_by_their_order(kernel: str) -> None:
    roots = Roots()
    of = finder(kernel, SchemaSet(framing=Framing.GLUE, ids=((GUID.hex, PROTOBUF),)), roots)
    values = [glue(b"\2x"), glue(zlib.compress(b"\2y"), 5), glue(b""), glue(zlib.compress(b"\x80"), 5)]
    assert found(of, values) == [(0, b"x"), (0, b"y"), Bad.NO_FRAME, Bad.NO_FRAME]
    assert roots.asked == [(PROTOBUF, MessageName(sorted_index=2))]


@pytest.mark.parametrize("kernel", KERNELS)
def test_compressed_bombs_are_bounded(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "MOST_INFLATED", 1 << 20)
    monkeypatch.setattr(framing, "_INFLATED_AT_ONCE", 1 << 21)
    of = finder(kernel, SchemaSet(framing=Framing.GLUE, ids=((str(GUID), AVRO),)), Roots())
    bomb, large = glue(zlib.compress(bytes(1 << 26)), 5), glue(zlib.compress(bytes(1 << 20)), 5)

    assert found(of, [bomb, glue(b"x")]) == [Bad.LIMIT, (0, b"x")]
    rows = of.find(pa.array([glue(b"x"), *[large] * 5, glue(b"y")]), None)
    assert (rows.rows, len(rows.data)) == (3, (2 << 20) + 1)
    assert of.find(pa.array([large] * 5), None).rows == 2


def test_a_topic_of_many_ids_is_framed_with_few_looks_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("segreader.typed._values")
    monkeypatch.setattr(framing, "_MOST_FRAMES", 50)
    looks = []
    real = framing.read_frame

    def read(value: bytes, one: Framing) -> Frame | Bad:
        looks.append(value[:5])
        return real(value, one)

    monkeypatch.setattr(framing, "read_frame", read)
    of = finder("native", SchemaSet(ids=tuple((str(k), AVRO if k % 2 else OTHER) for k in range(45))), Roots())
    values = [confluent(k % 45) + b"x" for k in range(2000)]

    assert found(of, values) == [(k % 45 % 2, b"x") for k in range(2000)]
    assert len(looks) == 45
    looks.clear()
    unknown = [confluent(k) for k in range(45, 2000)]
    assert found(of, unknown) == [Bad.UNKNOWN_SCHEMA] * len(unknown)
    assert found(of, values) == [(k % 45 % 2, b"x") for k in range(2000)]
    assert len(of._frames) <= 50


@pytest.mark.parametrize("framing_", [one for one in Framing if one is not Framing.BARE])
@pytest.mark.parametrize("schema", [AVRO, PROTOBUF])
def test_the_twins_agree_on_any_frames(framing_: Framing, schema: Schema) -> None:
    random = Random(1)
    heads = {
        Framing.CONFLUENT: [confluent(7), confluent(8), b"\1" + GUID.bytes],
        Framing.APICURIO: [b"\0" + bytes(7) + bytes([k]) for k in (7, 8)],
        Framing.GLUE: [glue(b""), glue(b"", 5)],
        Framing.SINGLE_OBJECT: [b"\xc3\1" + GUID.bytes[:8]],
    }[framing_]
    names = ["7", str(GUID), f"{int.from_bytes(GUID.bytes[:8], 'little'):016x}"]
    schemas = SchemaSet(framing=framing_, ids=tuple((name, schema) for name in names))
    messages = [b"", b"\0", b"\2\2", b"\4\2\4", b"\7\x0a\5Order", encode_varint(300)]
    twins = [finder(kernel, schemas, Roots()) for kernel in KERNELS]
    for _ in range(40):
        whole = [random.choice(heads) + random.choice(messages) + random.randbytes(3) for _ in range(30)]
        values = [
            None if random.random() < 0.1 else damaged(random, one) if random.random() < 0.4 else one for one in whole
        ]
        headers = None
        if framing_ is Framing.CONFLUENT and random.random() < 0.5:
            one = [("__value_schema_id", damaged(random, random.choice(heads) + random.choice(messages)))]
            headers = [one if random.random() < 0.3 else [] for _ in values]
        assert found(twins[0], values, headers) == found(twins[1], values, headers)


def test_headers_that_leave_their_buffers_are_refused() -> None:
    native = pytest.importorskip("segreader.typed._values")
    frames, of_headers = native.NativeFrames(5), native.NativeFrames()
    offsets = b"\0\0\0\0\xff\0\0\0"
    with pytest.raises(ValueError, match="its rows need"):
        native.FramedValues(2, (None, offsets, b"", 0), None, b"")
    framed = native.FramedValues(1, (None, offsets, b"abc", 0), None, b"")
    results = array("i", [0]), array("q", [0]), array("q", [0])
    with pytest.raises(ValueError, match="leave its buffers"):
        framed.find(frames, of_headers, 0, *results)
    with pytest.raises(ValueError, match="no rows"):
        framed.find(frames, of_headers, 0, array("i"), *results[1:])
