"""Measures the decoding of keys and values with schemas, on one core.

python -m benchmarks.values [--quick] [--json FILE]

Records are orders with a nested record, an array of records, a map, an enum, a nullable union and a timestamp, each
another one, in batches as a scan gives them. MB are bytes of values in; seconds are CPU seconds of the process. Each
round runs all contenders, one after another; rows show the median of the rounds, so ratios are of the same moments.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import fastavro
import pyarrow as pa

from benchmarks.rows import Row, parse_options, print_machine, run
from segreader.format.kernel import kernel_name
from segreader.typed.decoder import ValueDecoder
from segreader.typed.decoding import Decoding, Side
from segreader.typed.formats import avro
from segreader.typed.framing import FrameFinder
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
    run(figures(options.records, options.rounds), options.json, records=options.records, rounds=options.rounds)


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


def decoder(paths: tuple[str, ...]) -> ValueDecoder:
    """What decodes some fields of the records."""
    schema = Schema(SchemaFormat.AVRO, json.dumps(SCHEMA))
    schemas = SchemaSet(ids=(("7", schema),))
    decoding = Decoding(side=Side.VALUE, schemas=schemas, type=avro.type_of(schema), paths=paths)
    return ValueDecoder(decoding, kernel="native")


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
