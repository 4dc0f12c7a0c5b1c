"""Measures the decoding of keys and values with schemas, on one core.

python -m benchmarks.values [--quick] [--json FILE]

Records are orders with a nested record, an array of records, a map, an enum, a nullable union and a timestamp, each
another one, in batches as a scan gives them. MB are bytes of values in; seconds are CPU seconds of the process. Each
round runs all contenders, one after another; rows show the median of the rounds, so ratios are of the same moments.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pyarrow as pa

import segreader
from benchmarks.rows import Row, parse_options, print_machine, run
from segreader.format.compression import Codec
from segreader.format.kernel import kernel_name
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.typed.decoder import ValueDecoder
from segreader.typed.decoding import Decoding, Side
from segreader.typed.formats import protobuf
from segreader.typed.framing import FrameFinder
from segreader.typed.reader_schema import type_of
from segreader.typed.schema import Schema, SchemaFormat, SchemaSet

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "created", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "customer",
            "type": {
                "type": "record",
                "name": "Customer",
                "fields": [
                    {"name": "name", "type": "string"},
                    {"name": "email", "type": ["null", "string"]},
                    {"name": "age", "type": "int"},
                ],
            },
        },
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID", "SENT", "DONE"]}},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [
                        {"name": "sku", "type": "string"},
                        {"name": "quantity", "type": "int"},
                        {"name": "price", "type": "double"},
                    ],
                },
            },
        },
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "total", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "weight", "type": "float"},
    ],
}
FRAME = b"\0\0\0\0\7"
BATCH = 8192
FASTAVRO_ROWS = 4096
"""Of each round: it needs a hundred times as long."""

TWO_FIELDS = ("id", "total")


def main() -> None:
    """Print the figures as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parse_options(parser, records=50_000, rounds=3)
    if kernel_name() != "native":
        sys.exit("the native kernel is not built")
    print_machine("pyarrow", "fastavro")
    with tempfile.TemporaryDirectory() as place:
        rows = chain(
            figures(options.records, options.rounds),
            other_formats(options.records, options.rounds),
            scans(options.records, options.rounds, Path(place)),
        )
        run(rows, options.json, records=options.records, rounds=options.rounds)


def orders(count: int) -> Iterator[dict[str, Any]]:
    """Records, each another one, the same every time."""
    random = Random(1)
    for number in range(count):
        customer = random.randrange(10_000)
        yield {
            "id": 1_000_000 + number * 7919,
            "created": 1_700_000_000_000 + number * 37,
            "customer": {
                "name": f"customer-{customer}",
                "email": None if random.random() < 0.3 else f"c{customer}@example.com",
                "age": random.randrange(18, 99),
            },
            "status": random.choice(("NEW", "PAID", "SENT", "DONE")),
            "items": [
                {
                    "sku": f"SKU-{random.randrange(99_999):05}",
                    "quantity": random.randrange(1, 9),
                    "price": random.random(),
                }
                for _ in range(random.choice((1, 2, 2, 3)))
            ],
            "tags": {"channel": random.choice(("web", "app"))},
            "total": random.random() * 1000,
            "paid": random.random() < 0.5,
            "note": None if random.random() < 0.7 else "please ring twice",
            "weight": random.random(),
        }


def figures(records: int, rounds: int) -> Iterator[Row]:
    """The rows of the table."""
    parsed = fastavro.parse_schema(SCHEMA)
    values = [written(parsed, one) for one in orders(records)]
    batches = [pa.array(values[start : start + BATCH], pa.binary()) for start in range(0, records, BATCH)]
    size = sum(map(len, values))
    few = values[:FASTAVRO_ROWS]
    few_size = sum(map(len, few))
    whole, part = decoder(("",)), decoder(TWO_FIELDS)
    bad = broken(batches)
    contenders: dict[str, tuple[int, Callable[[], object]]] = {
        "whole": (size, lambda: [whole.decode(one) for one in batches]),
        "part": (size, lambda: [part.decode(one) for one in batches]),
        "frames": (size, frames_of(batches)),
        "bad": (size, lambda: [whole.decode(one) for one in bad]),
        "dicts": (few_size, lambda: by_fastavro(parsed, few)),
        "rows": (few_size, lambda: pa.Table.from_pylist(by_fastavro(parsed, few))),
    }
    for _, work in contenders.values():  # a round to warm up
        work()
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds):
        for name in list(contenders)[:: 1 if turn % 2 else -1]:
            of, work = contenders[name]
            rates[name].append(of / cpu_seconds(work) / 1e6)
    kept = {name: tuple(found) for name, found in rates.items()}
    note = f"{size / records:.0f} bytes a record, batches of {BATCH:,} rows"
    yield Row("Avro, whole records", kept["whole"], 400, " MB/s", note, is_least=True)
    yield Row("Avro, 2 of 10 fields", kept["part"], 800, " MB/s", ", ".join(TWO_FIELDS), is_least=True)
    ratios = tuple(ours / theirs for ours, theirs in zip(kept["whole"], kept["rows"], strict=True))
    yield Row("Avro, whole records: times fastavro and from_pylist", ratios, 50, "x", is_least=True)
    yield Row("frames and grouping", kept["frames"], 2000, " MB/s", "of what is stepped over", is_least=True)
    yield Row("Avro, whole records, one of 100 cut", kept["bad"], None, " MB/s")
    yield Row("fastavro, dicts", kept["dicts"], None, " MB/s")
    yield Row("fastavro and from_pylist", kept["rows"], None, " MB/s")


def written(parsed: Any, order: dict[str, Any]) -> bytes:
    """A value as Confluent's serializer writes it."""
    stream = io.BytesIO()
    stream.write(FRAME)
    fastavro.schemaless_writer(stream, parsed, order)
    return stream.getvalue()


def decoder(paths: tuple[str, ...], schema: Schema | None = None) -> ValueDecoder:
    """What decodes some fields of the records."""
    schema = schema or Schema(SchemaFormat.AVRO, json.dumps(SCHEMA))
    schemas = SchemaSet(ids=(("7", schema),))
    decoding = Decoding(side=Side.VALUE, schemas=schemas, type=type_of(schema), paths=paths)
    return ValueDecoder(decoding, kernel="native")


PROTO = """
syntax = "proto3";
message Order {
  int64 id = 1;
  int64 created = 2;
  message Customer { string name = 1; optional string email = 2; int32 age = 3; }
  Customer customer = 3;
  enum Status { NEW = 0; PAID = 1; SENT = 2; DONE = 3; }
  Status status = 4;
  message Item { string sku = 1; int32 quantity = 2; double price = 3; }
  repeated Item items = 5;
  map<string, string> tags = 6;
  double total = 7;
  bool paid = 8;
  optional string note = 9;
  float weight = 10;
}
"""
JSON_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["id", "created", "customer", "status", "items", "tags", "total", "paid", "weight"],
    "properties": {
        "id": {"type": "integer"},
        "created": {"type": "integer"},
        "customer": {
            "type": "object",
            "required": ["name", "age"],
            "properties": {
                "name": {"type": "string"},
                "email": {"type": ["null", "string"]},
                "age": {"type": "integer"},
            },
        },
        "status": {"enum": ["NEW", "PAID", "SENT", "DONE"]},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["sku", "quantity", "price"],
                "properties": {
                    "sku": {"type": "string"},
                    "quantity": {"type": "integer"},
                    "price": {"type": "number"},
                },
            },
        },
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "total": {"type": "number"},
        "paid": {"type": "boolean"},
        "note": {"type": ["null", "string"]},
        "weight": {"type": "number"},
    },
}


def protobuf_values(records: int) -> tuple[Schema, list[bytes]]:
    """The same orders as Protobuf messages, as Confluent's serializer writes them, and their schema."""
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

    schema = protobuf.described(Schema(SchemaFormat.PROTOBUF, PROTO))
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(schema.text))
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
    return schema, [FRAME + b"\0" + json_format.ParseDict(one, kind()).SerializeToString() for one in orders(records)]


def other_formats(records: int, rounds: int) -> Iterator[Row]:
    """Protobuf and JSON of the same orders."""
    schema, values = protobuf_values(records)
    yield from rates_of("Protobuf", schema, values, rounds, (300, None))
    texts = [FRAME + json.dumps(one, separators=(",", ":")).encode() for one in orders(records)]
    yield from rates_of("JSON", Schema(SchemaFormat.JSON, json.dumps(JSON_SCHEMA)), texts, rounds, (None, None))


def rates_of(
    name: str, schema: Schema, values: Sequence[bytes], rounds: int, aims: tuple[float | None, float | None]
) -> Iterator[Row]:
    """Whole records of a format, and two of their fields."""
    batches = [pa.array(values[start : start + BATCH], pa.binary()) for start in range(0, len(values), BATCH)]
    size = sum(map(len, values))
    whole, part = decoder(("",), schema), decoder(TWO_FIELDS, schema)
    found: dict[str, list[float]] = {"whole records": [], "2 of 10 fields": []}
    for turn in range(rounds + 1):
        for kind, used in zip(found, (whole, part), strict=True):
            rate = size / cpu_seconds(partial(decode_each, used, batches)) / 1e6
            if turn:
                found[kind].append(rate)
    for (kind, rates), aim in zip(found.items(), aims, strict=True):
        note = f"{size / len(values):.0f} bytes a record"
        yield Row(f"{name}, {kind}", tuple(rates), aim, " MB/s", note, is_least=True)


def decode_each(used: ValueDecoder, batches: Sequence[pa.Array]) -> None:
    """Decode batches one after another."""
    for one in batches:
        used.decode(one)


def scans(records: int, rounds: int, place: Path) -> Iterator[Row]:
    """What a whole scan costs with its values decoded, beside one that leaves them bytes."""
    parsed = fastavro.parse_schema(SCHEMA)
    builder, values = SegmentBuilder(), [written(parsed, one) for one in orders(records)]
    for start in range(0, records, 500):
        builder.batch(values[start : start + 500], codec=Codec.ZSTD)
    write_local_tiered(place, "orders", [builder])
    schemas = SchemaSet(ids=(("7", Schema(SchemaFormat.AVRO, json.dumps(SCHEMA))),))
    read: dict[str, dict[str, Any]] = {
        "bytes": {},
        "whole": {"value": schemas},
        "part": {"value": schemas, "columns": ["offset", *(f"value.{name}" for name in TWO_FIELDS)]},
    }
    spent: dict[str, list[float]] = {name: [] for name in read}
    for turn in range(rounds + 1):
        for name, arguments in read.items():
            found = cpu_seconds(partial(drain, place, arguments))
            if turn:
                spent[name].append(found)
    for name, aim in (("whole", 0.4), ("part", None)):
        ratios = tuple(plain / ours for plain, ours in zip(spent["bytes"], spent[name], strict=True))
        text = "all fields decoded" if name == "whole" else "2 of 10 fields decoded"
        yield Row(f"scan, zstd, {text}: speed beside bytes", ratios, aim, "x", "records a CPU second", is_least=True)


def drain(place: Path, arguments: dict[str, Any]) -> None:
    """Read a topic, one batch at a time."""
    for _ in segreader.scan(place, topic="orders", threads=1, **arguments).to_batches():
        pass


def frames_of(batches: Sequence[pa.Array]) -> Callable[[], object]:
    """Finds the schema and the payload of each value of several ids."""
    from segreader.typed import _values  # type: ignore[attr-defined]

    schemas = [Schema(SchemaFormat.AVRO, json.dumps(SCHEMA)), Schema(SchemaFormat.AVRO, '"long"')]
    ids = tuple((str(id), schemas[id % 2]) for id in (7, 8, 9, 10))
    finder = FrameFinder(SchemaSet(ids=ids), Side.VALUE, lambda schema, _: schemas.index(schema), _values)
    mixed = []
    for batch in batches:
        rows = [value[:4] + bytes([7 + row % 4]) + value[5:] for row, value in enumerate(batch.to_pylist())]
        mixed.append(pa.array(rows, pa.binary()))
    return lambda: [finder.find(one, None) for one in mixed]


def broken(batches: Sequence[pa.Array]) -> list[pa.Array]:
    """The same values, one of a hundred without its last byte."""
    return [
        pa.array([value[:-1] if row % 100 == 50 else value for row, value in enumerate(one.to_pylist())], pa.binary())
        for one in batches
    ]


def by_fastavro(parsed: Any, values: Sequence[bytes]) -> list[Any]:
    """What people write today."""
    return [fastavro.schemaless_reader(io.BytesIO(value[len(FRAME) :]), parsed, None) for value in values]


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of the process for some work."""
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
