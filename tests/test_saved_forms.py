"""What earlier versions saved is read as the same values: plans of jobs, and what a host keeps for a loader.

The files in ``tests/saved`` were written by the version that their name says; they are never written again.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from segreader.backfill.job_plan import JobPlan, parse_plan
from segreader.backfill.job_splits import JobSplit, LostOffsets, PartitionRange
from segreader.backfill.output import OutputLayout, OutputOptions
from segreader.format.index_files import AbortedTransaction
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.loader import LoaderSplit, LoadQuery, Position
from segreader.loader.enumerator import Frontier, read_frontiers
from segreader.plan.live import BEYOND, LivePart, ReadFrom
from segreader.plan.log import LogEnd
from segreader.plan.split import END_OF_LOG, LogsAhead, Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import TopicIdPartition
from segreader.typed.decoding import Decoding, Side, Undecodable
from segreader.typed.schema import Framing, Reference, Schema, SchemaFormat, SchemaSet, Version
from segreader.typed.types import Type, TypeField, ValueKind

SAVED = Path(__file__).parent / "saved"

ORDERS = TopicIdPartition("orders", 3, "AAAAAAAAAAAAAAAAAAAAAQ")
BARE = TopicIdPartition("été", 0)
EPOCHS = ((0, 0), (4, 50), (5, 80))
ABORTED = AbortedTransactions(
    [AbortedTransaction(7, 12, 15, 16), AbortedTransaction(8, 20, 31, 30), AbortedTransaction(9, 90, BEYOND, BEYOND)]
)

LAST: dict[str, Any] = {
    "partition": ORDERS, "log": "tier/orders-3/0200.log", "log_size": 700, "positions": ByteRange(0, 700),
    "offsets": OffsetRange(200, 300), "base_offset": 200, "stop_of_part": 300, "following": (END_OF_LOG,),
}  # fmt: skip
MIDDLE: dict[str, Any] = LAST | {
    "log": "tier/orders-3/0100.log", "offsets": OffsetRange(100, 200), "base_offset": 100, "stop_of_part": 200,
    "following": LogsAhead("tier/orders-3/0200.log", 700, 300, LAST["following"]),
}  # fmt: skip
WHOLE: dict[str, Any] = {
    "partition": ORDERS,
    "log": "tier/orders-3/0010.log",
    "log_size": 900,
    "positions": ByteRange(61, 900),
    "offsets": OffsetRange(10, 100),
    "isolation_level": IsolationLevel.READ_COMMITTED,
    "aborted": ABORTED,
    "is_active": True,
    "base_offset": 5,
    "offset_index": "tier/orders-3/0010.index",
    "offset_bound": 99,
    "epochs": EPOCHS,
    "is_padded": True,
    "stop_of_part": 100,
    "first_bound": 12,
    "log_tag": "etag:0123",
    "timed": 42,
    "reaches": 98,
    "following": LogsAhead("tier/orders-3/0100.log", 700, 200, MIDDLE["following"]),
}
"""Of a plan in which each log follows the one before."""

SPLITS = tuple(Split(**one) for one in (WHOLE, MIDDLE, LAST))
PLAIN = Split(
    partition=BARE,
    log="a/été-0/0.log",
    log_size=100,
    positions=ByteRange(0, 100),
    offsets=OffsetRange(0, 7),
    isolation_level=IsolationLevel.READ_UNCOMMITTED,
)
BROKER = LivePart(ORDERS, OffsetRange(10, 100), ReadFrom.BROKER, epochs=EPOCHS, position_epoch=0)
LOCATED = replace(BROKER, read_from=ReadFrom.LOCATION, aborted=ABORTED, segment_id="s", size=900)
STORED = replace(BROKER, read_from=ReadFrom.STORE, splits=SPLITS[:1], size=839)
PARTS = (BROKER, LOCATED, replace(LOCATED, aborted=AbortedTransactions()), STORED)

PLAN = JobPlan(
    wanted={"topic": "orders", "layout": "date"},
    options={"subscribe": "orders", "location": "tier"},
    output=OutputOptions(layout=OutputLayout.DATE, codec="lz4", file_bytes=256 << 20),
    location="tier",
    isolation="read_committed",
    partitions=(
        PartitionRange("orders", 3, 8, 300, 2239, 3, "ends", True, (LostOffsets(0, 8, "no segment has them"),)),
        PartitionRange("été", 0, 0, 7),
    ),
    splits=(
        JobSplit(8, 100, SPLITS[0]),
        JobSplit(100, 200, SPLITS[1]),
        JobSplit(200, 300, SPLITS[2]),
        JobSplit(0, 7, PLAIN),
    ),
    notes=("a note",),
)
LIVE_PLAN = replace(PLAN, splits=tuple(JobSplit(part.offsets.start, part.stop, part) for part in PARTS))

LOADED = LoaderSplit(replace(SPLITS[0], chunk_size=4096, following=tuple(SPLITS[0].following)), LogEnd(300, 5))
POSITION = Position(
    topic="orders", topic_id="x" * 22, partition=3, next_offset=7, stop=9, leader_epoch=2, log_end=LogEnd(300, 5),
    aborted=tuple(ABORTED), log="a.log", log_size=100, batch_position=61, batch_offset=5, log_tag="etag:0123",
)  # fmt: skip
QUERY = LoadQuery(
    location="/tier", topic="orders", partitions=(3, 4), offsets="5:", isolation_level=IsolationLevel.READ_COMMITTED
)
ADDRESS = Schema(SchemaFormat.AVRO, '{"type":"record","name":"Address","fields":[{"name":"city","type":"string"}]}')
ORDERS_SCHEMAS = SchemaSet(
    framing=Framing.CONFLUENT,
    ids=(
        ("3", Schema(SchemaFormat.AVRO, '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}')),
        (
            "4",
            Schema(
                SchemaFormat.AVRO, '{"type":"record","name":"Order","fields":[…]}', (Reference("Address", ADDRESS),)
            ),
        ),
        ("5", Schema(SchemaFormat.AVRO, '"long"')),
    ),
    subjects=(("orders-value", (Version(1, 3), Version(2, 4))), ("orders-key", (Version(1, 5),))),
)
LONG, TEXT = Type(kind=ValueKind.INT64), Type(kind=ValueKind.STRING, is_nullable=True)
ORDER = Type(
    kind=ValueKind.STRUCT,
    name="Order",
    fields=(
        TypeField("id", LONG, ("number",)),
        TypeField("at", Type(kind=ValueKind.TIMESTAMP, unit="us", is_utc=True), default="0"),
        TypeField("state", Type(kind=ValueKind.ENUM, name="State", symbols=("NEW", "PAID"), default_symbol="NEW")),
        TypeField("total", Type(kind=ValueKind.DECIMAL, precision=10, scale=2), number=7),
        TypeField("trace", Type(kind=ValueKind.FIXED, size=4, name="Trace")),
        TypeField("items", Type(kind=ValueKind.LIST, fields=(TypeField("item", LONG),))),
        TypeField("either", Type(kind=ValueKind.STRUCT, is_union=True, fields=(TypeField("long", LONG, ("l",)),))),
        TypeField("note", TEXT, default="null"),
    ),
)
DECODINGS = (
    Decoding(side=Side.KEY, schemas=ORDERS_SCHEMAS, type=LONG),
    Decoding(
        side=Side.VALUE,
        schemas=ORDERS_SCHEMAS,
        type=ORDER,
        paths=("id", "state"),
        on_undecodable=Undecodable.KEEP,
    ),
)
TYPED_QUERY = LoadQuery(location="/tier", topic="orders", key=DECODINGS[0], value=DECODINGS[1])
TYPED_PLAN = replace(PLAN, output=replace(PLAN.output, decodings=DECODINGS))
FRONTIERS = {
    ORDERS: Frontier(ORDERS.topic_id, 100, 5, LogEnd(300, 5)),
    TopicIdPartition("orders", 4): Frontier(None, 7),
}


def saved(name: str) -> str:
    return (SAVED / name).read_text()


@pytest.mark.parametrize(("name", "plan"), [("job_plan_0_1.json", PLAN), ("live_job_plan_0_1.json", LIVE_PLAN)])
def test_the_plan_of_a_job_that_0_1_wrote_is_read(name: str, plan: JobPlan) -> None:
    data = saved(name).encode()

    assert parse_plan(data, name) == plan
    assert parse_plan(data, name).data == data
    assert parse_plan(plan.data, name) == plan


def test_schemas_that_were_saved_with_a_query_and_a_plan_are_read_as_the_same_types() -> None:
    query, plan = saved("loader_query_typed.json"), saved("job_plan_typed.json").encode()

    assert LoadQuery.from_json(query) == TYPED_QUERY
    assert LoadQuery.from_json(query).schema.names[:4] == ["key", "value", "value_raw", "value_error"]
    assert parse_plan(plan, "plan") == TYPED_PLAN
    assert json.loads(TYPED_QUERY.to_json()) == json.loads(query)
    assert json.loads(TYPED_PLAN.data) == json.loads(plan)


def test_a_plan_that_lists_the_logs_behind_each_split_is_read() -> None:
    assert parse_plan(saved("job_plan_listed.json").encode(), "plan") == PLAN


def test_the_split_of_a_loader_that_0_1_saved_is_read() -> None:
    assert LoaderSplit.from_json(saved("loader_split_0_1.json")) == LOADED == LoaderSplit.from_json(LOADED.to_json())


def test_the_position_of_a_loader_that_0_1_saved_is_read() -> None:
    assert Position.from_json(saved("loader_position_0_1.json")) == POSITION


def test_the_query_of_a_loader_that_0_1_saved_is_read() -> None:
    assert LoadQuery.from_json(saved("loader_query_0_1.json")) == QUERY


def test_the_state_of_an_enumerator_that_0_1_saved_is_read() -> None:
    found = read_frontiers(saved("loader_state_0_1.json"), QUERY)

    assert {str(partition): one for partition, one in found.items()} == {str(one): at for one, at in FRONTIERS.items()}


def test_a_loader_split_keeps_the_field_names_that_hosts_have_saved() -> None:
    assert json.loads(LOADED.to_json()) == json.loads(saved("loader_split_0_1.json"))
