"""Rows as JSON, CSV and objects: both twins, the same tests, and Python's own codecs and readers as the judges."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import random
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from segreader.format.batch import TimestampType
from segreader.format.rows import (
    ENCODINGS,
    RECORD_COLUMNS,
    RECORDS_AT_ONCE,
    RowColumns,
    RowMaker,
    Texts,
    load_row_maker,
)
from segreader.read.arrow import schema
from segreader.read.records import ConsumerRecord, row_columns
from segreader.testing.strategies import headers, payloads, timestamps

TWINS = ["reference", "native"]
BLOCK = 16
MARKS = [*range(0x23), 0x2C, 0x5C, 0x7E, 0x7F, 0x80, 0xC2, 0xFF]


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> RowMaker:
    return load_row_maker(request.param)


def record(value: bytes | None = b"v", *, offset: int = 0, key: bytes | None = b"k", **more: Any) -> ConsumerRecord:
    facts: dict[str, Any] = {
        "topic": "t",
        "partition": 3,
        "timestamp_ms": 1,
        "timestamp_type": TimestampType.CREATE_TIME,
        "leader_epoch": 0,
        "headers": (),
    } | more
    return ConsumerRecord(offset=offset, key=key, value=value, **facts)


def batch_of(records: Sequence[ConsumerRecord]) -> pa.RecordBatch:
    columns = {name: [getattr(one, name) for one in records] for name in RECORD_COLUMNS}
    columns["headers"] = [[{"key": key, "value": value} for key, value in one] for one in columns["headers"]]
    return pa.RecordBatch.from_pydict(columns, schema=schema(RECORD_COLUMNS))


def columns_of(records: Sequence[ConsumerRecord]) -> RowColumns:
    return row_columns(batch_of(records))


def text_like() -> st.SearchStrategy[bytes]:
    """Bytes that are text almost everywhere: marks, control characters, beyond ASCII, and broken sequences."""
    parts = [st.text(max_size=40).map(str.encode), st.sampled_from([bytes([mark]) for mark in MARKS])]
    broken = st.sampled_from([b"\xe4\xb8", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xf4\x90\x80\x80"])
    return st.lists(st.one_of(*parts, broken, st.just(b"plain text, long enough")), max_size=6).map(b"".join)


def records() -> st.SearchStrategy[ConsumerRecord]:
    data = st.one_of(payloads(), text_like())
    return st.builds(
        ConsumerRecord,
        topic=st.sampled_from(["orders", "a.b_c-1"]),
        partition=st.integers(0, 2**31 - 1),
        offset=st.integers(0, 2**63 - 1),
        timestamp_ms=st.one_of(timestamps(), st.integers(-(2**63), 2**63 - 1)),
        timestamp_type=st.sampled_from(TimestampType),
        leader_epoch=st.one_of(st.none(), st.integers(0, 2**31 - 1)),
        key=data,
        value=data,
        headers=headers(),
    )


def shown(data: bytes, encoding: str) -> tuple[str, str]:
    """The text of some bytes and its encoding, as the documentation has it."""
    if encoding == "hex":
        return data.hex(), "hex"
    if encoding == "utf8":
        return data.decode(errors="replace"), "utf8"
    if encoding == "auto":
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = "\x00"
        if not re.search("[^\t\n\r\x20-\x7e\xa0-\U0010ffff]", text):
            return text, "utf8"
    return base64.b64encode(data).decode(), "base64"


def fields(name: str, data: bytes | None, encoding: str) -> dict[str, Any]:
    text, used = (None, "") if data is None else shown(data, encoding)
    return {name: text} | ({f"{name}_encoding": used} if encoding == "auto" and used == "base64" else {})


def expected(one: ConsumerRecord, key: str, value: str) -> dict[str, Any]:
    row = {
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "timestamp": one.timestamp_ms,
        "timestamp_type": one.timestamp_type.java_name,
        "leader_epoch": one.leader_epoch,
        "headers": [{"key": name, **fields("value", data, value)} for name, data in one.headers],
    }
    return row | fields("key", one.key, key) | fields("value", one.value, value)


def json_of(twin: RowMaker, columns: RowColumns, key: str = "auto", value: str = "auto", end: bytes = b"\n") -> bytes:
    return b"".join(twin.json_rows(columns, key, value, end))


def csv_of(twin: RowMaker, columns: RowColumns, key: str = "auto", value: str = "auto") -> bytes:
    return b"".join(twin.csv_rows(columns, key, value))


def values(twin: RowMaker, encoding: str, *data: bytes) -> list[str]:
    """What JSON readers see of some values."""
    out = json_of(twin, columns_of([record(one) for one in data]), "auto", encoding)
    return [json.loads(line)["value"] for line in out.decode().splitlines()]


encodings = st.sampled_from(list(ENCODINGS))


@settings(max_examples=tries(300))
@given(st.lists(records(), max_size=6), encodings, encodings, st.integers(0, 6), st.integers(0, 6))
def test_any_rows_are_what_json_and_csv_readers_get(
    rows: list[ConsumerRecord], key: str, value: str, start: int, count: int
) -> None:
    chosen = rows[start : start + count]
    columns = row_columns(batch_of(rows).slice(min(start, len(rows)), count))
    texts = set()
    for name in TWINS:
        twin = load_row_maker(name)
        lines, cells = json_of(twin, columns, key, value), csv_of(twin, columns, key, value)
        array = json_of(twin, columns, key, value, b",\n")
        assert [one for some in twin.make_records(columns, ConsumerRecord) for one in some] == chosen
        texts.add((lines, cells, array))

    assert len(texts) == 1
    ((lines, cells, array),) = texts
    assert [json.loads(line) for line in lines.split(b"\n")[:-1]] == [expected(one, key, value) for one in chosen]
    assert array == lines.replace(b"}\n", b"},\n")
    assert list(csv.reader(io.StringIO(cells.decode(), newline=""))) == [csv_cells(one, key, value) for one in chosen]


def csv_cells(one: ConsumerRecord, key: str, value: str) -> list[str]:
    row = expected(one, key, value)
    start = [row["topic"], row["partition"], row["offset"], row["timestamp"], row["timestamp_type"]]
    epoch = "" if one.leader_epoch is None else one.leader_epoch
    texts: list[str] = []
    for data, encoding in ((one.key, key), (one.value, value)):
        texts += ("", "") if data is None else shown(data, encoding)
    headers = json.dumps(row["headers"], ensure_ascii=False, separators=(",", ":"))
    return [*map(str, (*start, epoch)), *texts, headers]


def test_a_row_is_written_to_the_letter(twin: RowMaker) -> None:
    rows = [
        record(b'say "hi"\\\n\t\x7f', offset=7, headers=(("h\x01", b"\xff"), ("h", None), ("", b""))),
        record(None, key=None, timestamp_ms=-1, timestamp_type=TimestampType.NO_TIMESTAMP_TYPE, leader_epoch=None),
        record(b"", key=b"\xc2\x80", timestamp_type=TimestampType.LOG_APPEND_TIME),
    ]
    columns = columns_of(rows)

    assert json_of(twin, columns, "auto", "utf8").decode().splitlines() == [
        '{"topic":"t","partition":3,"offset":7,"timestamp":1,"timestamp_type":"CreateTime","leader_epoch":0,"key":"k",'
        '"value":"say \\"hi\\"\\\\\\n\\t\x7f","headers":[{"key":"h\\u0001","value":"\ufffd"},{"key":"h","value":null},'
        '{"key":"","value":""}]}',
        '{"topic":"t","partition":3,"offset":0,"timestamp":-1,"timestamp_type":"NoTimestampType","leader_epoch":null,'
        '"key":null,"value":null,"headers":[]}',
        '{"topic":"t","partition":3,"offset":0,"timestamp":1,"timestamp_type":"LogAppendTime","leader_epoch":0,'
        '"key":"woA=","value":"","headers":[],"key_encoding":"base64"}',
    ]
    assert csv_of(twin, columns).decode() == (
        't,3,7,1,CreateTime,0,k,utf8,c2F5ICJoaSJcCgl/,base64,"[{""key"":""h\\u0001"",""value"":""/w=="",'
        '""value_encoding"":""base64""},{""key"":""h"",""value"":null},{""key"":"""",""value"":""""}]"\n'
        "t,3,0,-1,NoTimestampType,,,,,,[]\n"
        't,3,0,1,LogAppendTime,0,woA=,base64,"",utf8,[]\n'
    )


def test_broken_utf8_becomes_what_python_makes_of_it(twin: RowMaker) -> None:
    edges = [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4]
    broken = [bytes(some) for size in (1, 2, 3) for some in product([*edges, 0xF5, 0xFF], repeat=size)]
    broken += [bytes((first, second, 0x80, last)) for first in (0xEF, *range(0xF0, 0xF6))
               for second in edges for last in (0x41, 0x80, 0xBF, 0xC0)]  # fmt: skip

    assert values(twin, "utf8", *broken) == [one.decode(errors="replace") for one in broken]
    assert values(twin, "auto", *broken) == [shown(one, "auto")[0] for one in broken]


def test_every_mark_is_seen_wherever_it_stands(twin: RowMaker) -> None:
    placed = [
        b"a" * before + bytes([mark]) + b"z" * after
        for mark in MARKS
        for before in range(2 * BLOCK + 2)
        for after in (0, 1, BLOCK)
    ]
    columns = columns_of([record(one) for one in placed])
    cells = csv.reader(io.StringIO(csv_of(twin, columns).decode(), newline=""))

    assert values(twin, "auto", *placed) == [shown(one, "auto")[0] for one in placed]
    assert [tuple(row[8:10]) for row in cells] == [shown(one, "auto") for one in placed]


@pytest.mark.parametrize("form", ["json", "csv"])
def test_large_rows_and_many_rows_come_whole_and_in_pieces(form: str) -> None:
    rng = random.Random(7)
    sizes = [3 << 20, *[rng.randrange(3000) for _ in range(1500)], (1 << 20) + 1]
    rows = [record(rng.randbytes(size) if size % 3 else b'"' * size, offset=at) for at, size in enumerate(sizes)]
    columns = columns_of(rows)
    pieces: dict[str, list[bytes]] = {}
    for name in TWINS:
        twin = load_row_maker(name)
        if form == "json":
            pieces[name] = list(twin.json_rows(columns, "auto", "utf8", b"\n"))
        else:
            pieces[name] = list(twin.csv_rows(columns, "auto", "hex"))

    assert b"".join(pieces["native"]) == b"".join(pieces["reference"])
    assert all(piece.endswith(b"\n") for piece in pieces["native"])
    assert len(pieces["native"]) > 10
    assert sorted(map(len, pieces["native"]))[-3] < 300 << 10  # but for the two large rows


def test_records_come_a_few_at_a_time(twin: RowMaker) -> None:
    rows = [record(offset=at, headers=(("h", b"x"),) * (at % 3)) for at in range(2 * RECORDS_AT_ONCE + 1)]

    found = list(twin.make_records(columns_of(rows), ConsumerRecord))

    assert [len(some) for some in found] == [RECORDS_AT_ONCE, RECORDS_AT_ONCE, 1]
    assert [one for some in found for one in some] == rows
    assert all(type(one) is ConsumerRecord for one in found[0])
    assert len({hash(one) for one in found[0]}) == RECORDS_AT_ONCE


def test_records_have_their_own_topic_and_partition_and_share_those_of_the_record_before(twin: RowMaker) -> None:
    places = [("", 0), ("", 300), ("ab", 300), ("cd", 300), ("cd", 300), ("cde", 70_000), ("cde", 300), ("ab", 300)]
    rows = [record(topic=topic, partition=partition, offset=at) for at, (topic, partition) in enumerate(places)]

    found = [one for some in twin.make_records(columns_of(rows), ConsumerRecord) for one in some]

    assert found == rows
    if twin.NAME == "native":
        assert found[3].topic is found[4].topic
        assert found[3].partition is found[4].partition


def test_no_rows_are_no_text_and_no_records(twin: RowMaker) -> None:
    for columns in (columns_of([]), row_columns(batch_of([record()]).slice(1))):
        assert json_of(twin, columns) == b""
        assert csv_of(twin, columns) == b""
        assert list(twin.make_records(columns, ConsumerRecord)) == []


def test_text_that_is_left_early_gives_its_memory_back() -> None:
    batch = batch_of([record(b"x" * 1000) for _ in range(1000)])
    pieces = load_row_maker("native").json_rows(row_columns(batch), "auto", "auto", b"\n")
    next(pieces)
    before = pa.total_allocated_bytes()
    del pieces, batch

    assert pa.total_allocated_bytes() < before


def test_a_piece_ends_with_the_row_that_makes_it_256_kib() -> None:
    native = load_row_maker("native")
    for write, encoding in ((native.csv_rows, ()), (native.json_rows, (b"\n",))):
        empty = len(b"".join(write(columns_of([record(b"x")]), "utf8", "utf8", *encoding))) - 1
        for missing, pieces in ((1, 1), (0, 2)):
            full = columns_of([record(b"x" * ((256 << 10) - empty - missing)), record()])
            assert len(list(write(full, "utf8", "utf8", *encoding))) == pieces


def int32s(*numbers: int) -> memoryview:
    return memoryview(b"".join(number.to_bytes(4, "little", signed=True) for number in numbers))


def one_row(name: str, data: bytes, **more: Any) -> RowColumns:
    """A row with a header whose column ``name`` is some bytes, however many."""
    texts: dict[str, Any] = {name: Texts(int32s(0, len(data)), memoryview(data))}
    return replace(columns_of([record(**({"headers": (("h", b"v"),)} | more))]), **texts)


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_row_that_just_fills_its_memory_is_whole(form: str) -> None:
    """What is written behind the room that was asked for is seen under AddressSanitizer, and here by its text."""
    least: dict[str, Any] = {
        "timestamp_ms": -(2**63),
        "timestamp_type": TimestampType.NO_TIMESTAMP_TYPE,
        "partition": -(2**31),
    }
    least |= {"key": None, "value": None, "offset": -(2**63), "leader_epoch": -(2**31), "headers": (("", None),)}
    shares = {"auto": 1, "utf8": 1, "hex": 1 / 2, "base64": 3 / 4}
    places = [("topic", "auto"), ("key", "auto"), ("value", "utf8"), ("key", "hex"), ("value", "base64")]
    for (name, encoding), left in product(
        [*places, ("header_key", "auto"), ("header_value", "hex")], range(0, 1024, 23)
    ):
        data = b"x" * int(((320 << 10) - left) * shares[encoding])
        columns = one_row(name, data, **least)
        write = json_of if form == "json" else csv_of
        native, reference = (write(load_row_maker(twin), columns, encoding, encoding) for twin in TWINS)
        assert native == reference


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
@pytest.mark.parametrize(
    ("name", "encoding", "size"),
    [
        ("topic", "auto", 1 << 30),
        *product(["key", "value", "header_key", "header_value"], ["utf8"], [256 << 20]),
        *product(["key", "value", "header_value"], ["base64", "hex"], [1 << 30]),
    ],
)
def test_a_row_takes_no_more_memory_than_there_is(name: str, encoding: str, size: int) -> None:
    assert_too_large_for_memory(one_row(name, bytes(size)), encoding)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_text_beyond_ascii_takes_no_more_memory_than_there_is() -> None:
    for data in ("\u0100".encode() * (128 << 20), b"\x80" * (256 << 20)):
        assert_too_large_for_memory(one_row("value", data), "utf8")


def assert_too_large_for_memory(columns: RowColumns, encoding: str) -> None:
    native = load_row_maker("native")
    for rows in (native.json_rows(columns, encoding, encoding, b"\n"), native.csv_rows(columns, encoding, encoding)):
        with little_memory(), pytest.raises(MemoryError):
            next(rows)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_many_headers_or_a_long_end_takes_no_more_memory_than_there_is() -> None:
    count = 12 << 20
    empty = Texts(memoryview(bytes(4 * (count + 1))), memoryview(b""))
    row = columns_of([record()])
    many = replace(row, header_offsets=int32s(0, count), headers=count, header_key=empty, header_value=empty)
    native = load_row_maker("native")
    for rows in (
        native.json_rows(many, "auto", "auto", b"\n"),
        native.csv_rows(many, "auto", "auto"),
        native.json_rows(row, "auto", "auto", bytes(1 << 30)),
    ):
        with little_memory(), pytest.raises(MemoryError):
            next(rows)


LARGE_ROW_THEN_A_SMALL_ONE = """
from tests.format.test_rows import addresses, columns_of, load_row_maker, record
rows = load_row_maker("native").json_rows(columns_of([record(bytes(48 << 20)), record()]), "hex", "hex", b"\\n")
large = len(next(rows))
before = addresses()
next(rows)
print(large, before - addresses())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the figure is Linux's")
def test_what_follows_a_large_row_takes_no_more_memory_than_without_it() -> None:
    """In a process of its own: what other tests have freed could hold the row."""
    command = [sys.executable, "-c", LARGE_ROW_THEN_A_SMALL_ONE]
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, env=paths, capture_output=True, text=True, check=True)
    large, freed = map(int, ended.stdout.split())
    assert large > 96 << 20
    assert freed > 96 << 20


def addresses() -> int:
    """How many bytes of them the process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@contextmanager
def little_memory() -> Iterator[None]:
    """32 MiB more of addresses than the process has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (addresses() + (32 << 20), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def refusals(columns: RowColumns) -> set[str]:
    """What the native twin says of some rows, each way out."""
    native, found = load_row_maker("native"), set()
    ways: list[Callable[[], Iterator[Any]]] = [
        lambda: native.json_rows(columns, "auto", "auto", b"\n"),
        lambda: native.csv_rows(columns, "auto", "auto"),
        lambda: native.make_records(columns, ConsumerRecord),
    ]
    for rows in ways:
        with pytest.raises(ValueError, match=r"^(row|a column)") as error:
            list(rows())
        found.add(str(error.value))
    return found


def test_offsets_that_leave_their_buffer_are_refused_by_the_native_twin() -> None:
    good = columns_of([record(headers=(("h", b"v"),)), record()])
    spoiled = [
        replace(good, **{name: replace(getattr(good, name), offsets=int32s(*offsets))})
        for name in ("topic", "key", "value", "header_key", "header_value")
        for offsets in ((0, 2, 99), (-1, 1, 2), (5, 1, 2), (0, 2**31 - 1, 2))
    ]
    spoiled += [replace(good, header_offsets=int32s(*offsets)) for offsets in ((0, 2, 2), (-1, 1, 1), (1, 0, 0))]
    two = Texts(int32s(0, 1, 1), memoryview(b"h"))  # of which the second is not among the headers
    spoiled.append(replace(good, header_offsets=int32s(0, 2, 2), header_key=two, header_value=two))
    for columns in spoiled:
        (said,) = refusals(columns)
        assert re.fullmatch("row [01] has offsets that leave its buffers", said)


def test_unknown_timestamp_types_are_refused_by_the_native_twin() -> None:
    good = columns_of([record(), record()])

    assert refusals(replace(good, timestamp_type=int32s(2, 0))) == {"row 0 has an unknown timestamp type"}
    assert refusals(replace(good, timestamp_type=int32s(0, -2))) == {"row 1 has an unknown timestamp type"}


def test_columns_shorter_than_their_rows_are_refused_by_the_native_twin() -> None:
    good = columns_of([record(headers=(("h", b"v"),)), record()])
    spoiled = [replace(good, rows=3), replace(good, rows=1 << 40), replace(good, headers=9)]
    spoiled += [
        replace(good, key=replace(good.key, validity=memoryview(b""))),
        replace(good, partition=memoryview(b"")),
    ]
    for columns in spoiled:
        (said,) = refusals(columns)
        assert re.fullmatch("a column has [0-9]+ bytes, its rows need [0-9]+", said)


def test_records_are_made_of_classes_with_slots_only() -> None:
    class Loose:
        topic = "no slot"

    with pytest.raises(TypeError, match="not a slot"):
        list(load_row_maker("native").make_records(columns_of([record()]), Loose))
