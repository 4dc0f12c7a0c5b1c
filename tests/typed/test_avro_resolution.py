"""Avro values read as another schema: fastavro, given both schemas, is the judge."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import pytest
from avro_pairs import PRIMITIVES, WIDER, Maker, check, judged, read, record, resolved, run, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import tries

from segreader.errors import OptionError
from segreader.typed.ops import Bad


@settings(max_examples=tries(300), suppress_health_check=[HealthCheck.large_base_example, HealthCheck.data_too_large])
@given(st.randoms(use_true_random=False))
def test_random_records_are_what_fastavro_reads_with_both_schemas(random: Random) -> None:
    run(random, 4)


# "Schema Resolution", rule by rule


def agrees(writer: Any, reader: Any, *values: Any) -> list[Any]:
    """What the values of a field are when read, after the judge has said the same of each."""
    outer, inner = record("R", ("f", writer)), record("R", ("f", reader))
    payloads = [written(outer, {"f": one}) for one in values]
    check(outer, inner, payloads)
    return [one if isinstance(one, Bad) else one["f"] for one in read(outer, inner, *payloads)]


def refuses(writer: Any, reader: Any, value: Any) -> str:
    """The error of a schema that no value can be read by; the judge refuses the value."""
    outer, inner = record("R", ("f", writer)), record("R", ("f", reader))
    payload = written(outer, {"f": value})
    with pytest.raises(Exception):  # noqa: B017, PT011  fastavro raises whatever its C code meets
        judged(outer, inner, payload)
    with pytest.raises(OptionError) as caught:
        read(outer, inner, payload)
    return str(caught.value)


def test_a_primitive_type_is_read_as_itself_and_what_it_is_promotable_to() -> None:
    values = {
        "null": None,
        "boolean": True,
        "int": 7,
        "long": 7,
        "float": 7.5,
        "double": 7.5,
        "bytes": b"x",
        "string": "x",
    }
    for writer in PRIMITIVES:
        for reader in PRIMITIVES:
            if reader == writer or reader in WIDER.get(writer, ()):
                assert agrees(writer, reader, values[writer])[0] in (values[writer], b"x", "x")
            else:
                assert "cannot be read as the reader's: f; found" in refuses(writer, reader, values[writer])


def test_promoted_numbers_are_the_nearest_ones() -> None:
    assert agrees("int", "float", 16_777_217, -(1 << 31)) == [16_777_216.0, -2147483648.0]
    assert agrees("long", "double", (1 << 53) + 1, -(1 << 63)) == [9007199254740992.0, -9223372036854775808.0]
    assert agrees("float", "double", 0.10000000149011612) == [0.10000000149011612]
    assert agrees("bytes", "string", "é".encode(), b"\xff") == ["é", Bad.UTF8]
    assert agrees("string", "bytes", "é") == ["é".encode()]


def test_fields_are_matched_by_name_whatever_their_order() -> None:
    writer = record("A", ("x", "int"), ("y", "string"), ("z", "double"))
    reader = record("A", ("z", "double"), ("x", "long"), ("y", "string"))
    assert agrees(writer, reader, {"x": 1, "y": "a", "z": 2.5}) == [{"z": 2.5, "x": 1, "y": "a"}]


def test_fields_that_the_reader_does_not_have_are_skipped() -> None:
    every = [*PRIMITIVES, {"type": "array", "items": "string"}, {"type": "map", "values": ["null", "long"]},
             {"type": "enum", "name": "E", "symbols": ["A", "B"]}, {"type": "fixed", "name": "F", "size": 3},
             record("S", ("a", "string"), ("b", ["null", "string"]))]  # fmt: skip
    value = [None, False, -5, 1 << 40, 1.5, 2.5, b"xy", "zé", ["p", "q"], {"k": ("long", 5), "l": ("null", None)}, "B",
             b"abc", {"a": "s", "b": ("string", "t")}]  # fmt: skip
    for one, kept in zip(every, value, strict=True):
        again = one["name"] if isinstance(one, dict) and "name" in one else one
        writer = record("A", ("before", one), ("x", "int"), ("after", again))
        assert agrees(writer, record("A", ("x", "int")), {"before": kept, "x": 300, "after": kept}) == [{"x": 300}]


def test_a_field_that_the_writer_does_not_have_has_its_default() -> None:
    inner = record("I", ("a", "int"), ("b", ["null", "string"], {"default": None}), ("c", "long", {"default": 9}))
    lists = {"type": "array", "items": inner}
    defaults: list[tuple[Any, Any, Any]] = [
        ("null", None, None),
        ("boolean", True, True),
        ("int", -3, -3),
        ("long", 1 << 50, 1 << 50),
        ("float", 0.1, 0.10000000149011612),
        ("double", 3, 3.0),
        ("bytes", "\u00ff\u0000", b"\xff\x00"),
        ("string", "é\0", "é\0"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u00fe\u0001", b"\xfe\x01"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "array", "items": "int"}, [], []),
        ({"type": "array", "items": ["null", "int"]}, [None, 1], [None, 1]),
        ({"type": "map", "values": "double"}, {"x": 1.5, "é": 2}, [("x", 1.5), ("é", 2.0)]),
        (inner, {"a": 1}, {"a": 1, "b": None, "c": 9}),
        (lists, [{"a": 1}, {"a": 2, "c": 3}], [{"a": 1, "b": None, "c": 9}, {"a": 2, "b": None, "c": 3}]),
        ({"type": "map", "values": lists}, {"k": [{"a": 5}]}, [("k", [{"a": 5, "b": None, "c": 9}])]),
        (["null", "int"], None, None),
        (["int", "null"], 5, 5),
        (["string", "int", "null"], "x", {"string": "x", "int": None}),
        (["int", "string"], "x", {"string": "x", "int": None}),
        ([inner, "null", "int"], {"a": 1}, {"I": {"a": 1, "b": None, "c": 9}, "int": None}),
    ]
    for schema, default, expected in defaults:
        writer, reader = record("A", ("x", "int")), record("A", ("new", schema, {"default": default}), ("x", "int"))
        assert agrees(writer, reader, {"x": 5}) == [{"new": expected, "x": 5}], schema


def test_a_default_of_a_logical_type_has_its_meaning() -> None:
    defaults: list[tuple[dict[str, Any], Any, Any]] = [
        ({"type": "int", "logicalType": "date"}, 19_000, 19_000),
        ({"type": "long", "logicalType": "timestamp-millis"}, -5, -5),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, "\u00ff\u0085", Decimal("-1.23")),
        ({"type": "fixed", "name": "D", "size": 2, "logicalType": "decimal", "precision": 4}, "\u0000\u0005",
         Decimal(5)),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, "\u0000" * 15 + "\u00ab",
         "00000000-0000-0000-0000-0000000000ab"),
        ({"type": "fixed", "name": "P", "size": 12, "logicalType": "duration"}, "\u0001" + "\u0000" * 11, (1, 0, 0)),
    ]  # fmt: skip
    for schema, default, expected in defaults:
        reader = record("A", ("new", schema, {"default": default}))
        assert agrees(record("A"), reader, {}) == [{"new": expected}], schema


def test_a_field_without_a_default_is_null_if_it_may_be_and_else_an_error() -> None:
    writer = record("A", ("x", "int"))
    assert resolved(writer, record("A", ("x", "int"), ("new", ["null", "int"])), {"x": 1}) == {"x": 1, "new": None}
    assert resolved(writer, record("A", ("x", "int"), ("new", ["int", "string", "null"])), {"x": 1})["new"] is None
    message = refuses(writer, record("A", ("x", "int"), ("new", "int")), {"x": 1})
    assert "f.new; found no such field, and no default for it, expected int32" in message
    assert "schema_version=" in message


def test_symbols_are_matched_by_name_and_unknown_ones_are_the_default() -> None:
    writer = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
    reader = {"type": "enum", "name": "E", "symbols": ["C", "X", "A"]}
    assert agrees(writer, reader, "A", "B", "C") == ["A", Bad.SYMBOL, "C"]
    assert agrees(writer, {**reader, "default": "X"}, "A", "B", "C") == ["A", "X", "C"]
    assert agrees({**writer, "default": "A"}, reader, "B") == [Bad.SYMBOL]  # the writer's default is no matter here


def test_items_and_values_are_resolved_too() -> None:
    assert agrees({"type": "array", "items": "int"}, {"type": "array", "items": ["null", "double"]}, [1, 2]) == [
        [1.0, 2.0]
    ]
    writer = {"type": "map", "values": record("V", ("a", "int"), ("b", "int"))}
    reader = {"type": "map", "values": record("V", ("c", "int", {"default": 7}), ("b", "long"))}
    assert agrees(writer, reader, {"k": {"a": 1, "b": 2}}) == [[("k", {"c": 7, "b": 2})]]
    assert "f; found string, expected int32" in refuses(
        {"type": "array", "items": "string"}, {"type": "array", "items": "int"}, ["x"]
    )
    assert "found map, expected list" in refuses(
        {"type": "map", "values": "int"}, {"type": "array", "items": "int"}, {"k": 1}
    )


def test_fixed_types_of_other_sizes_are_refused() -> None:
    writer = {"type": "fixed", "name": "F", "size": 4}
    assert agrees(writer, writer, b"abcd") == [b"abcd"]
    assert "found fixed F, expected fixed_size_binary[5]" in refuses(writer, {**writer, "size": 5}, b"abcd")
    assert "found fixed F, expected binary" in refuses(writer, "bytes", b"abcd")


def test_of_two_unions_each_branch_is_read_as_the_first_that_matches_it() -> None:
    writer = ["null", "int", "string", {"type": "array", "items": "int"}]
    reader = ["string", {"type": "array", "items": "long"}, "null", "long"]
    values: list[Any] = [("null", None), ("int", 5), ("string", "x"), ("array", [1])]
    nothing: dict[str, Any] = {"string": None, "array": None, "long": None}
    assert agrees(writer, reader, *values) == [
        None,
        {**nothing, "long": 5},
        {**nothing, "string": "x"},
        {**nothing, "array": [1]},
    ]
    assert agrees(writer, ["null", "string"], *values) == [None, Bad.BRANCH, "x", Bad.BRANCH]
    assert agrees(writer, ["null", "double"], *values) == [None, 5.0, Bad.BRANCH, Bad.BRANCH]


def test_a_branch_is_read_as_its_own_type_before_one_it_is_promotable_to() -> None:
    """As Java does: else the same schema would move a value into another branch."""
    schema = ["double", "int", "bytes", "string", "null"]
    nothing: dict[str, Any] = dict.fromkeys(("double", "int", "bytes", "string"))
    assert resolved(schema, schema, ("int", 5)) == {**nothing, "int": 5}
    assert resolved(schema, schema, ("string", "x")) == {**nothing, "string": "x"}
    assert resolved(["int", "string"], ["float", "long", "bytes"], ("int", 5)) == {
        "float": 5.0,
        "long": None,
        "bytes": None,
    }


def test_a_reader_with_a_union_reads_what_was_none() -> None:
    assert agrees("int", ["null", "int"], 5) == [5]
    assert agrees("int", ["string", "long", "null"], 5) == [{"string": None, "long": 5}]
    assert agrees("null", ["string", "null"], None) == [None]
    assert agrees(record("A", ("x", "int")), ["string", record("A", ("x", "int"))], {"x": 1}) == [
        {"string": None, "A": {"x": 1}}
    ]
    assert "found boolean, expected int, string" in refuses("boolean", ["int", "string"], True)
    assert "found null, expected union" in refuses("null", ["int", "string"], None)


def test_a_reader_without_a_union_reads_the_branches_that_match() -> None:
    assert agrees(["null", "int", "string"], "long", ("int", 5), ("null", None), ("string", "x")) == [
        5,
        Bad.BRANCH,
        Bad.BRANCH,
    ]
    assert agrees(["int"], "int", ("int", 5)) == [5]
    assert "found string, expected int32" in refuses(["boolean", "string"], "int", ("string", "x"))


def test_records_of_a_union_are_matched_by_their_names() -> None:
    a, b = record("A", ("x", "int")), record("B", ("x", "int"))
    assert agrees(["null", a, b], ["null", a], ("A", {"x": 1}), ("B", {"x": 2})) == [{"x": 1}, Bad.BRANCH]
    assert agrees([a, b], a, ("A", {"x": 1}), ("B", {"x": 2})) == [{"x": 1}, Bad.BRANCH]
    assert agrees([a, b], [b, a], ("A", {"x": 1}), ("B", {"x": 2})) == [
        {"B": None, "A": {"x": 1}},
        {"B": {"x": 2}, "A": None},
    ]
    assert agrees([a, b], [b, "null", "int"], ("A", {"x": 1}), ("B", {"x": 2})) == [
        Bad.BRANCH,
        {"B": {"x": 2}, "int": None},
    ]
    first, second = record("x.A", ("x", "int")), record("y.A", ("x", "int"))
    made = [resolved([first, second], [second, first], ("x.A", {"x": 1}))]
    assert made == [{"y.A": None, "x.A": {"x": 1}}]
    third = record("z.A", ("x", "int"))
    assert resolved(third, [second, "int"], {"x": 1}) == {"A": {"x": 1}, "int": None}
    assert resolved(third, [first, second], {"x": 1}) == {"x.A": {"x": 1}, "y.A": None}
    renamed = record("New", ("x", "int"), aliases=["x.A"])
    assert resolved(third, [renamed, "int"], {"x": 1}) == {"New": {"x": 1}, "int": None}


def test_a_field_is_found_by_the_readers_alias() -> None:
    writer = record("A", ("old", "int"), ("other", "int"))
    reader = record("A", ("new", "long", {"aliases": ["older", "old"]}), ("other", "int"))
    assert agrees(writer, reader, {"old": 1, "other": 2}) == [{"new": 1, "other": 2}]
    both = record("A", ("new", "int", {"aliases": ["old"], "default": 0}), ("old", "int"), ("other", "int"))
    assert agrees(writer, both, {"old": 1, "other": 2}) == [{"new": 0, "old": 1, "other": 2}]
    twice = record("A", ("a", "int", {"aliases": ["old", "other"]}), ("b", "int", {"aliases": ["old"], "default": 3}))
    assert resolved(writer, twice, {"old": 1, "other": 2}) == {"a": 1, "b": 3}


def test_records_enums_and_fixed_types_are_found_by_the_readers_alias() -> None:
    record_ = (record("A", ("x", "int")), record("New", ("x", "int"), aliases=["A"]), {"x": 1})
    enum = {"type": "enum", "name": "A", "symbols": ["S"]}
    fixed = {"type": "fixed", "name": "A", "size": 1}
    for old, new, value in [
        record_,
        (enum, {**enum, "name": "New", "aliases": ["A"]}, "S"),
        (fixed, {**fixed, "name": "New", "aliases": ["A"]}, b"x"),
    ]:
        assert agrees(old, new, value) == [value]
        assert agrees(old, ["null", new], value) == [value]
        assert agrees(old, ["int", new], value) == [{"int": None, "New": value}]
        assert agrees(["null", old], ["int", "null", new], ("A", value)) == [{"int": None, "New": value}]
        # Without the alias it is another type.
        assert agrees(["null", old], ["int", "null", {**new, "aliases": []}], ("A", value)) == [Bad.BRANCH]


def logical(name: str, kind: str, **rest: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **rest}


def test_a_logical_type_may_come_and_go() -> None:
    millis, date = logical("timestamp-millis", "long"), logical("date", "int")
    assert agrees("long", millis, 5) == agrees(millis, "long", 5) == agrees("int", millis, 5) == [5]
    assert agrees("int", date, 5) == agrees(date, "int", 5) == agrees(date, "long", 5) == [5]
    assert agrees("long", logical("local-timestamp-nanos", "long"), -1) == [-1]
    decimal = logical("decimal", "bytes", precision=4, scale=2)
    assert agrees("bytes", decimal, b"\x01\x00") == [Decimal("2.56")]
    assert agrees(decimal, "bytes", b"\x01\x00") == [b"\x01\x00"]
    fixed = {"type": "fixed", "name": "F", "size": 16}
    assert agrees(fixed, {**fixed, "logicalType": "uuid"}, bytes(16)) == ["00000000-0000-0000-0000-000000000000"]
    assert agrees({**fixed, "logicalType": "uuid"}, fixed, bytes(16)) == [bytes(16)]
    assert "found fixed F, expected string" in refuses(fixed, "string", bytes(16))


def test_a_finer_unit_of_the_readers_is_converted_to() -> None:
    millis, micros, nanos = (logical(f"timestamp-{one}", "long") for one in ("millis", "micros", "nanos"))
    assert resolved(millis, micros, -5) == -5_000
    assert resolved(millis, nanos, 7) == 7_000_000
    assert resolved(["null", micros], nanos, ("long", 7)) == 7_000
    assert resolved(millis, nanos, 1 << 60) is Bad.RANGE
    assert resolved(logical("time-millis", "int"), logical("time-micros", "long"), 86_399_999) == 86_399_999_000
    for writer, reader in [(micros, millis), (millis, logical("date", "int")), (logical("date", "int"), millis)]:
        with pytest.raises(OptionError, match="cannot be read as the reader's: f; found"):
            resolved(writer, reader, 0)


def test_decimals_of_another_scale_are_refused_and_of_another_precision_read() -> None:
    two, wide = logical("decimal", "bytes", precision=4, scale=2), logical("decimal", "bytes", precision=9, scale=2)
    assert agrees(two, wide, b"\x01\x00") == [Decimal("2.56")]
    assert resolved(wide, two, (99_999).to_bytes(4)) is Bad.RANGE
    with pytest.raises(OptionError, match=r"found bytes \(decimal\(4, 2\)\), expected decimal\(9, 3\)"):
        resolved(two, logical("decimal", "bytes", precision=9, scale=3), b"\x01")


LISTS = record("LongList", ("value", "long"), ("next", ["null", "LongList"], {"default": None}))


def linked(*values: int) -> dict[str, Any]:
    made: dict[str, Any] | None = None
    for one in reversed(values):
        made = {"value": one, "next": ("null", None) if made is None else ("LongList", made)}
    assert made is not None
    return made


def test_a_recursive_field_that_is_left_out_is_skipped() -> None:
    payloads = [written(LISTS, linked(*range(count))) for count in (1, 2, 90)]
    assert read(LISTS, LISTS, *payloads, paths=("value",)) == [{"value": 0}] * 3
    assert (
        read(LISTS, record("LongList", ("value", "int")) | {"fields": LISTS["fields"][:1]}, *payloads)
        == [{"value": 0}] * 3
    )
    tree = record(
        "Tree", ("kids", {"type": "array", "items": "Tree"}), ("by", {"type": "map", "values": "Tree"}), ("x", "int")
    )
    leaf: dict[str, Any] = {"kids": [], "by": {}, "x": 1}
    value = {"kids": [leaf, {"kids": [leaf], "by": {"k": leaf}, "x": 2}], "by": {"l": leaf}, "x": 77}
    assert read(tree, tree, written(tree, value), paths=("x",)) == [{"x": 77}]


def test_recursion_beyond_the_most_levels_is_an_error_of_the_value() -> None:
    deep = b"\x02\x02" * 10_000 + b"\x02\x00"
    endless = record("Loop", ("again", "Loop"))
    assert read(LISTS, LISTS, deep, paths=("value",)) == [Bad.DEPTH]
    assert read(record("R", ("l", endless), ("x", "int")), record("R", ("x", "int")), b"\x02") == [Bad.DEPTH]


def test_of_a_union_in_part_the_other_branches_are_dropped() -> None:
    a, b = record("A", ("x", "int"), ("y", "string")), record("B", ("z", "int"))
    schema = record("R", ("u", ["null", a, b, "int"]), ("after", "int"))
    values: list[Any] = [("null", None), ("A", {"x": 1, "y": "é"}), ("B", {"z": 2}), ("int", 3)]
    payloads = [written(schema, {"u": one, "after": 9}) for one in values]
    assert read(schema, schema, *payloads, paths=("u.A.x", "after")) == [
        {"u": None, "after": 9},
        {"u": {"A": {"x": 1}}, "after": 9},
        {"u": {"A": None}, "after": 9},
        {"u": {"A": None}, "after": 9},
    ]
    assert read(schema, schema, *payloads, paths=("after",)) == [{"after": 9}] * 4


def test_a_value_that_is_no_record_is_a_column_by_itself() -> None:
    assert read("string", "string", b"\x02x") == ["x"]
    assert read("int", ["null", "double"], b"\x0a") == [5.0]
    assert read(["null", "int"], ["null", "int"], b"\0", b"\x02\x0a", b"\x04") == [None, 5, Bad.BRANCH]
    assert read({"type": "array", "items": "int"}, {"type": "array", "items": "int"}, b"\x02\x0a\0") == [[5]]
    assert read(["int", "string"], ["string", "int"], b"\x02\x02x") == [{"string": "x", "int": None}]
    assert read([], [], b"\0") == [Bad.BRANCH]
    assert read("null", "null", b"", b"\0") == [None, Bad.LEFT_OVER]


def test_a_thousand_fields_and_ninety_levels_are_read() -> None:
    wide = record("R", *((f"f{index}", ["null", "int"]) for index in range(1000)))
    payload = written(wide, {f"f{index}": ("int", index) if index % 3 else ("null", None) for index in range(1000)})
    assert read(wide, wide, payload) == [{f"f{index}": index if index % 3 else None for index in range(1000)}]
    deep: Any = "int"
    value: Any = 5
    for level in range(90):
        deep = record(f"R{level}", ("f", ["null", deep] if level else deep))
        value = {"f": (f"R{level - 1}", value) if level else value}
    (found,) = read(deep, deep, written(deep, value))
    for _ in range(90):
        found = found["f"]
    assert found == 5


def test_any_bytes_are_a_value_or_undecodable() -> None:
    """Each byte of a record changed, and each cut of it: both executors must say the same."""
    random = Random(5)
    maker = Maker(random)
    writer = maker.record()
    for value in [maker.value(writer) for _ in range(3)]:
        payload = written(writer, value)[:60]
        hostile = [payload[:stop] for stop in range(len(payload))]
        for at in range(len(payload)):
            for other in (0, 1, 0x7F, 0x80, 0xFF, payload[at] ^ 0x10):
                hostile.append(payload[:at] + bytes([other]) + payload[at + 1 :])
        assert len(read(writer, maker.evolved(writer), *hostile)) == len(hostile)
