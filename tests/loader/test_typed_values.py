"""Loads of keys and values that schemas describe: their types are known before a byte is read, and saved with it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typed_orders import REMOTE, SAVED, truth

import segreader
from segreader.errors import ObjectNotFoundError, OptionError, PositionFormatError, UndecodableValueError
from segreader.loader import (
    LoaderSplit,
    LoadQuery,
    PartitionConsumer,
    Position,
    ReaderPool,
    ResumableReader,
    SplitEnumerator,
)
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.records import ProducerRecord
from segreader.typed.decoding import Decoding, Side
from segreader.typed.schema import Framing, Schema, SchemaFormat, SchemaSet

LONGS = SchemaSet(framing=Framing.BARE, bare=Schema(SchemaFormat.AVRO, '"long"'))
GOOD, BAD = b"\x0e", b"\x80"
"""Seven, and a number that ends too early."""


def orders(topic: str = "orders-avro", **more: Any) -> LoadQuery:
    given: dict[str, Any] = {"location": str(REMOTE), "topic": topic, "value": SAVED}
    return LoadQuery(**given | more)


def splits_of(query: LoadQuery) -> list[LoaderSplit]:
    with SplitEnumerator(query) as enumerator:
        return enumerator.discover()


def rows(query: LoadQuery) -> list[dict[str, Any]]:
    with ReaderPool(query) as pool:
        return [row for split in splits_of(query) for row in _rest(pool.open(split))]


def _rest(reader: ResumableReader) -> Iterator[dict[str, Any]]:
    for batch in iter(reader.read, None):
        batch.validate(full=True)
        yield from batch.to_pylist()


@dataclass(slots=True)
class Counted:
    """A source of schemas that counts how often it is asked."""

    known: SchemaSet
    asked: list[str | None] = field(default_factory=list)

    def learn(self, topic: str | None) -> SchemaSet:
        self.asked.append(topic)
        return self.known


def test_the_types_are_known_before_a_byte_is_read(tmp_path: Path) -> None:
    nowhere = orders(location=str(tmp_path / "nothing"), columns=("offset", "value", "key"), key=SAVED)
    there = segreader.scan(REMOTE, topic="orders-avro", value=SAVED, key=SAVED, columns=("offset", "value", "key"))

    assert nowhere.schema == there.schema
    assert pa.types.is_struct(nowhere.schema.field("value").type)
    assert nowhere.schema.field("key").type == pa.struct([pa.field("id", pa.int64(), nullable=False)])
    with pytest.raises(ObjectNotFoundError):
        splits_of(nowhere)


def test_a_load_gives_what_a_scan_gives_and_what_was_written() -> None:
    query = orders(columns=("partition", "offset", "value"), on_undecodable="null")
    scanned = segreader.scan(REMOTE, topic="orders-avro", value=SAVED, columns=query.columns).to_arrow()

    found = rows(query)
    assert found == scanned.to_pylist()
    for row, true in zip(found, truth("orders-avro"), strict=True):
        assert (row["partition"], row["offset"]) == (true.partition, true.offset)
        wanted = true.value and {name: true.value[name] for name in ("id", "total", "status", "trace")}
        assert (row["value"] and {name: row["value"][name] for name in wanted}) == wanted


def test_schemas_are_asked_for_once_and_never_for_what_was_saved() -> None:
    source = Counted(LONGS)
    query = LoadQuery(location="/tier", topic="orders", value=source)
    text = query.to_json()

    assert source.asked == ["orders"]
    assert query == LoadQuery.from_json(text) == pickle.loads(pickle.dumps(query)) == replace(query)
    assert LoadQuery.from_json(text).schema == query.schema
    assert LoadQuery.from_json(text).schema.field("value").type == pa.int64()
    assert source.asked == ["orders"]


def test_a_saved_query_has_each_schema_once_and_no_word_of_where_they_came_from() -> None:
    text = orders(key=SAVED).to_json()
    schemas = json.loads(text)["decodings"]["schemas"]

    assert json.loads(text)["version"] == 2
    assert len(schemas) == len({one["text"] for one in schemas.values()})
    assert all(text.count(json.dumps(one["text"])) == 1 for one in schemas.values())
    assert str(SAVED) not in text
    assert json.loads(LoadQuery(location="/tier").to_json())["version"] == 1


def test_what_a_saved_query_says_beside_its_schemas_is_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    document = json.loads(orders().to_json()) | {"key": "http://registry.invalid:1", "schema_version": 9}
    assert LoadQuery.from_json(json.dumps(document)) == orders()
    del document["decodings"]
    document["value"] = "http://registry.invalid:1"
    assert LoadQuery.from_json(json.dumps(document)).value is None
    wrongs: list[Any] = [[], {"value": {}}, {"schemas": {}, "value": {"schemas": 7}}, {"schemas": [], "value": {}}]
    for wrong in wrongs:
        with pytest.raises((OptionError, PositionFormatError), match="not"):
            LoadQuery.from_json(json.dumps(document | {"decodings": wrong}))


def test_a_query_can_be_changed_and_keeps_its_schemas() -> None:
    source = Counted(LONGS)
    query = LoadQuery(location="/tier", topic="orders", columns=("value",), value=source)
    kept = replace(query, on_undecodable="keep", columns=("value",))

    assert kept.columns == ("value", "value_raw", "value_error")
    assert replace(kept, partitions=(1,)).columns == kept.columns
    assert source.asked == ["orders"]
    narrow = replace(orders(), columns=("offset", "value.id"))
    assert narrow.schema.field("value").type == pa.struct([pa.field("id", pa.int64(), nullable=False)])
    assert replace(narrow, partitions=(1,)) == replace(orders(columns=("offset", "value.id")), partitions=(1,))
    first = replace(orders(), schema_version=1)
    assert first.schema.field("value").type.get_field_index("currency") < 0
    assert isinstance(first.value, Decoding)
    with pytest.raises(OptionError, match="schemas of keys are not those of values"):
        LoadQuery(location="/tier", key=first.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"columns": ("value.price",)}, r"no such field: value\.price"),
        ({"columns": ("key.id",)}, r"unknown column 'key\.id'.*key=…"),
        ({"columns": ("value_raw",)}, "unknown column 'value_raw'"),
        ({"on_undecodable": "skip"}, "unknown on_undecodable"),
        ({"schema_version": 9}, "no such version"),
        ({"value": None, "on_undecodable": "keep"}, "Give schemas"),
    ],
)
def test_what_cannot_be_decoded_is_refused_when_the_query_is_made(more: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        orders(**more)


def test_a_new_reader_goes_on_at_every_record() -> None:
    query = orders(columns=("value.id",), partitions=0)
    whole = [row["value"] and row["value"]["id"] for row in rows(query)]

    found = []
    for split in splits_of(query):
        position = split.position
        while position.next_offset < split.stop:
            with ResumableReader(split, query, position=Position.from_json(position.to_json())) as reader:
                batch = reader.read(max_rows=1)
                assert batch is None or batch.schema == query.schema
                found += [] if batch is None else [one and one["id"] for one in batch["value"].to_pylist()]
                position = reader.position
    assert found == whole == [one.value and one.value["id"] for one in truth("orders-avro") if one.partition == 0]


def bad_log(root: Path, *batches: list[bytes | None]) -> LoadQuery:
    """A load of one partition of longs with these batches."""
    segment = SegmentBuilder(index_interval_bytes=1)
    for values in batches:
        segment = segment.batch([ProducerRecord(value) for value in values])
    write_local_tiered(root, "orders", [segment])
    return LoadQuery(location=str(root), topic="orders", value=LONGS, columns=("value", "offset"))


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("columns", [("value", "offset"), ("value",), ("timestamp", "value", "headers")])
def test_what_is_undecodable_ends_a_split_behind_the_records_before_it(
    tmp_path: Path, columns: tuple[str, ...], timeout: float | None
) -> None:
    query = replace(bad_log(tmp_path, [GOOD, None], [GOOD, BAD, GOOD], [GOOD]), columns=columns)
    (split,) = splits_of(query)

    with ResumableReader(split, query) as reader:
        values = []
        with pytest.raises(UndecodableValueError) as caught:
            while (batch := reader.read(timeout=timeout)) is not None:
                values += batch["value"].to_pylist()
        assert values == [7, None, 7]
        assert (caught.value.source, caught.value.offset, caught.value.position) == ("orders-0", 3, 0)
        assert reader.position.next_offset == 3 == reader.next_offset
        assert not reader.is_finished
        position = Position.from_json(reader.position.to_json())
        with pytest.raises(UndecodableValueError):
            reader.read(timeout=timeout)
    with ResumableReader(split, query, position=position) as again, pytest.raises(UndecodableValueError) as once_more:
        again.read(timeout=timeout)
    assert (once_more.value.offset, str(once_more.value)) == (3, str(caught.value))
    passed_over = replace(position, next_offset=4)
    with ResumableReader(split, query, position=passed_over) as behind:
        assert [row["value"] for row in _rest(behind)] == [7, 7]


def test_a_misled_reader_does_not_blame_a_record_behind_the_next_one(tmp_path: Path) -> None:
    query = bad_log(tmp_path, [GOOD, GOOD], [GOOD], [BAD], [GOOD])
    (split,) = splits_of(query)
    with ResumableReader(split, replace(query, on_undecodable="null")) as reader:
        places = [reader.position for _ in iter(lambda: reader.read(max_rows=1), None)]
    beyond = replace(places[2], next_offset=1, batch_offset=None, leader_epoch=None)  # the byte of the bad batch
    assert beyond.batch_position == places[2].batch_position != places[0].batch_position

    with ResumableReader(split, query, position=beyond) as reader:
        batch = reader.read()
        assert batch is not None
        assert batch["offset"].to_pylist() == [1, 2]
        with pytest.raises(UndecodableValueError) as caught:
            reader.read()
    assert caught.value.offset == 3


@pytest.mark.parametrize("policy", ["null", "keep"])
def test_a_load_goes_on_behind_what_is_undecodable(tmp_path: Path, policy: str) -> None:
    query = replace(bad_log(tmp_path, [GOOD, None, BAD], [GOOD]), on_undecodable=policy, columns=("offset", "value"))
    (split,) = splits_of(query)
    with ResumableReader(split, query) as reader:
        found = pa.Table.from_batches(list(iter(reader.read, None)))
        assert reader.metrics.undecodable == 1

    assert found.schema == query.schema
    assert found["value"].to_pylist() == [7, None, None, 7]
    if policy == "keep":
        assert found["value_raw"].to_pylist() == [None, None, BAD, None]
        assert found["value_error"].to_pylist() == [None, None, "it ends too early, at byte 0", None]


def test_a_consumer_of_one_partition_gives_the_same_types_with_and_without_records() -> None:
    query = orders(columns=("value.total", "offset"))
    with PartitionConsumer(query, 1) as consumer:
        first = consumer.fetch(0, timeout=60, max_rows=3)
        last = consumer.fetch(sum(one.partition == 1 for one in truth("orders-avro")), timeout=60)

    assert first.records.schema == last.records.schema == query.schema
    assert (first.records.num_rows, first.next_offset) == (3, 3)
    assert (last.records.num_rows, last.end_of_partition) == (0, True)


def test_a_decoding_is_taken_in_place_of_schemas() -> None:
    query = orders()
    decoding = query.value
    assert isinstance(decoding, Decoding)
    assert decoding.side is Side.VALUE
    assert orders(value=decoding) == query
