"""Every row of the table of options: its default, what a value does, what is refused, and by which name it is found.

A new option without a row here fails. What rows do beyond values is in ``test_spark_bounds``, ``test_spark_splits``,
``test_spark_locations`` and ``test_spark_stream``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from spark_rows import read_offsets, split_partitions

from segreader.errors import OptionError
from segreader.isolation import IsolationLevel
from segreader.spark.batch import SegmentReader
from segreader.spark.credentials import Brokers
from segreader.spark.option_values import EARLIEST, LATEST
from segreader.spark.options import (
    NAMES,
    SparkOptions,
    parse_options,
    parse_stream_options,
    require_batch,
)
from segreader.spark.rate_limits import ReadMaxBytes, ReadMaxRows, TriggerDelay, read_limit, trigger_delay
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.records import FIRST_TIMESTAMP_MS as T0

Value = Callable[[SparkOptions], Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One option.

    Args:
        value: what it becomes, among the options of a read.
        default: without it.
        given: a text that is taken, and what that becomes.
        wrong: a text that is refused.
        without: other options that it excludes.
        beside: other options without which it is refused.
    """

    value: Value
    default: Any
    given: tuple[str, Any]
    wrong: str | None
    without: tuple[str, ...] = ()
    beside: Mapping[str, str] = field(default_factory=dict)


def _stream(field: str) -> Value:
    return lambda options: field in options.limits


_UNCOMMITTED = ("READ_UNCOMMITTED", IsolationLevel.READ_UNCOMMITTED)
_COMMITTED = IsolationLevel.READ_COMMITTED
_EACH = '{"orders":{"0":7}}'
_ONE = {"orders": {0: 7}}

ROWS: dict[str, Row] = {
    "location": Row(lambda o: o.locations, ("/data",), ('["/a","s3://b/c"]', ("/a", "s3://b/c")), "s3://k:secret@b"),
    "path": Row(lambda o: o.locations, ("/data",), ("/a", ("/a",)), "https://b.s3.amazonaws.com/a", ("location",)),
    "subscribe": Row(lambda o: o.choice.topics, ("orders",), ("a, b", ("a", "b")), ","),
    "assign": Row(
        lambda o: o.choice.assigned, None, ('{"a":[1,0],"b":[2]}', {"a": (0, 1), "b": (2,)}), "{}", ("subscribe",)
    ),
    "subscribePattern": Row(lambda o: o.choice.pattern, None, ("or.*s", "or.*s"), "(", ("subscribe",)),
    "topicId": Row(lambda o: o.topic_ids, (), ("x, NEWEST", ("x", "newest")), ","),
    "startingOffsets": Row(
        lambda o: o.starting_offsets, None, ('{"orders":{"0":-2}}', {"orders": {0: EARLIEST}}), "-2"
    ),
    "startingOffsetsDefault": Row(
        lambda o: o.starting_offsets_default,
        None,
        ("Earliest", EARLIEST),
        "latest",
        beside={"startingOffsets": '{"orders":{"0":7}}'},
    ),
    "endingOffsets": Row(
        lambda o: o.ending_offsets, None, ('{"orders":{"0":-1}}', {"orders": {0: LATEST}}), '{"orders":{"0":-2}}'
    ),
    "startingTimestamp": Row(lambda o: o.starting_times, None, ("7", 7), "2026-11-01"),
    "endingTimestamp": Row(lambda o: o.ending_times, None, ("7", 7), "-1"),
    "startingOffsetsByTimestamp": Row(lambda o: o.starting_times, None, (_EACH, _ONE), "7"),
    "endingOffsetsByTimestamp": Row(lambda o: o.ending_times, None, (_EACH, _ONE), '{"orders":{"0":-1}}'),
    "startingOffsetsByTimestampStrategy": Row(lambda o: o.starts_at_latest, False, ("error", False), "earliest"),
    "includeHeaders": Row(lambda o: o.include_headers, False, ("TRUE", True), "yes"),
    "rawColumns": Row(lambda o: o.raw_columns, False, ("true", True), "1"),
    "schemas": Row(lambda o: o.schemas.both, None, ("/s.json", "/s.json"), "https://me:hunter2@registry"),
    "valueSchema": Row(lambda o: o.schemas.value, None, ("/s.avsc", "/s.avsc"), "https://me:hunter2@registry"),
    "keySchema": Row(lambda o: o.schemas.key, None, ("http://r:8081", "http://r:8081"), "http://r?token=hunter2"),
    "valueFields": Row(
        lambda o: o.schemas.value_fields, ("",), ("id, a.b", ("id", "a.b")), ",", beside={"valueSchema": "/s.avsc"}
    ),
    "keyFields": Row(lambda o: o.schemas.key_fields, ("",), ("id", ("id",)), " ", beside={"keySchema": "/s.avsc"}),
    "schemaVersion": Row(lambda o: o.schemas.version, None, ("LATEST", "latest"), "0", beside={"keySchema": "/s.avsc"}),
    "onUndecodable": Row(
        lambda o: o.schemas.on_undecodable, "fail", ("Keep", "keep"), "skip", beside={"valueSchema": "/s.avsc"}
    ),
    "schemaRegistryCredentials": Row(
        lambda o: o.schemas.credentials, "default", ("env:REGISTRY_SECRET", "env:REGISTRY_SECRET"), "me:hunter2!"
    ),
    "isolationLevel": Row(lambda o: o.isolation_level, _COMMITTED, _UNCOMMITTED, "serializable"),
    "kafka.isolation.level": Row(lambda o: o.isolation_level, _COMMITTED, _UNCOMMITTED, ""),
    "kafka.bootstrap.servers": Row(lambda o: o.brokers, None, ("h:9092,i", Brokers("h:9092,i")), "hunter2@h:9092"),
    "brokerCredentials": Row(lambda o: None, None, ("env:BROKER_SECRET", None), "sasl.password=hunter2"),
    "failOnDataLoss": Row(lambda o: o.fail_on_data_loss, True, ("false", False), "no"),
    "layout": Row(lambda o: o.catalog.layout, None, ("local-tiered", "local-tiered"), None),
    "rsmConfig": Row(lambda o: o.catalog.rsm_config, None, ("/etc/server.properties", "/etc/server.properties"), None),
    "metadata": Row(lambda o: o.catalog.metadata, None, ("/m", "/m"), "https://b.s3.amazonaws.com/metadata"),
    "segmentsFrom": Row(lambda o: o.catalog.segments_from, None, ("LISTING", "listing"), "metadata"),
    "logDirectory": Row(lambda o: o.catalog.log_directory, None, ("/logs", "/logs"), "s3://k:hunter2@b/logDirectory"),
    "leaderEpochs": Row(lambda o: o.catalog.leader_epochs, None, ("/e", "/e"), "s3://k:hunter2@b/leaderEpochs"),
    "credentials": Row(lambda o: o.credentials, "default", ("env:LAKE_SECRET", "env:LAKE_SECRET"), "key=hunter2"),
    "verify": Row(lambda o: o.read_options.check_crcs, True, ("none", False), "false"),
    "splitBytes": Row(lambda o: o.split_bytes, 128 << 20, ("1m", 1 << 20), "0"),
    "minPartitions": Row(lambda o: o.min_partitions, None, ("7", 7), "0"),
    "maxRecordsPerPartition": Row(lambda o: o.max_records_per_partition, None, ("7", 7), "-7"),
    "batchBytes": Row(lambda o: o.read_options.batch_bytes, 4 << 20, ("16m", 16 << 20), "1g"),
    "batchRecords": Row(lambda o: o.read_options.batch_rows, 65536, ("100", 100), "0"),
    "maxOffsetsPerTrigger": Row(_stream("maxOffsetsPerTrigger"), False, ("5", True), "all"),
    "minOffsetsPerTrigger": Row(_stream("minOffsetsPerTrigger"), False, ("5", True), "0"),
    "maxTriggerDelay": Row(_stream("maxTriggerDelay"), False, ("10m", True), "soon"),
    "maxBytesPerTrigger": Row(_stream("maxBytesPerTrigger"), False, ("1g", True), "much"),
    "readBudget": Row(lambda o: o.read_budget, None, ("8m", 8 << 20), "fast"),
}
"""By name."""


def parse(name: str | None = None, text: str = "") -> SparkOptions:
    """The smallest read with this option."""
    given = {"location": "/data", "subscribe": "orders"}
    if name is not None:
        given = {key: value for key, value in given.items() if key not in ROWS[name].without}
        given |= {**ROWS[name].beside, name: text}
    return parse_options(given)


def test_every_option_has_a_row() -> None:
    assert list(ROWS) == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_without_an_option_its_default_holds(name: str) -> None:
    assert ROWS[name].value(parse()) == ROWS[name].default


@pytest.mark.parametrize("name", NAMES)
def test_an_option_is_what_its_text_says_in_any_case_of_its_name(name: str) -> None:
    text, wanted = ROWS[name].given
    for spelling in (name, name.upper(), name.lower()):
        given = {"location": "/data", "subscribe": "orders", **ROWS[name].beside, spelling: text}
        for other in ROWS[name].without:
            given.pop(other)
        if spelling != name:
            given.pop(name, None)
        assert ROWS[name].value(parse_options(given)) == wanted


@pytest.mark.parametrize("name", [name for name in NAMES if ROWS[name].wrong is not None])
def test_a_text_that_makes_no_sense_is_refused_with_the_options_name(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(name, ROWS[name].wrong or "")
    assert name in str(caught.value) or "location" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in NAMES if ROWS[name].beside])
def test_an_option_is_refused_without_the_one_that_it_is_about(name: str) -> None:
    with pytest.raises(OptionError, match=rf"{name} needs .*(value|key)Schema|{name} is of .* startingOffsets"):
        parse_options({"location": "/data", "subscribe": "orders", name: ROWS[name].given[0]})


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("path", "kafka.isolation.level")])
def test_an_option_that_lacks_a_letter_is_refused_with_the_name_that_was_meant(name: str) -> None:
    misspelt = name[:2] + name[3:]
    with pytest.raises(OptionError, match=rf"unknown option {misspelt.lower()}\. Did you mean {name}\?"):
        parse_options({"location": "/data", "subscribe": "orders", misspelt: "1"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kafka.key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer"),
        ("kafka.value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer"),
        ("kafka.auto.offset.reset", "earliest"),
        ("kafka.enable.auto.commit", "true"),
        ("kafka.interceptor.classes", "a.B"),
    ],
)
@pytest.mark.parametrize("place", [{"location": "/data"}, {"kafka.bootstrap.servers": "h:9092"}])
def test_options_of_a_consumer_that_spark_refuses_are_refused(name: str, text: str, place: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=f"{name} has no place here"):
        parse_options(place | {"subscribe": "orders", name: text})


@pytest.mark.parametrize("place", [{"location": "/data"}, {"kafka.bootstrap.servers": "h:9092"}])
@pytest.mark.parametrize("text", ["none", "broker"])
def test_the_tail_is_no_option_any_more_and_what_says_it_is_named(text: str, place: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"tail has no place here: with kafka\.bootstrap\.servers a read goes on"):
        parse_options(place | {"subscribe": "orders", "tail": text})


def test_keys_is_the_earlier_name_of_the_rsm_config(caplog: pytest.LogCaptureFixture) -> None:
    given = {"location": "/data", "subscribe": "orders", "Keys": "/etc/server.properties"}
    with pytest.warns(DeprecationWarning, match="the option keys is deprecated, use rsmConfig"):
        assert parse_options(given).catalog.rsm_config == "/etc/server.properties"
    assert "use rsmConfig" in caplog.text
    with pytest.raises(OptionError, match="keys is the earlier name of rsmConfig"):
        parse_options(given | {"rsmConfig": "/etc/server.properties"})


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Topic ``orders``: offsets 0 to 59 in three segments, offset n at ``T0 + n`` ms; partition 1 has 0 to 19."""
    segment = SegmentBuilder(index_interval_bytes=1)
    segments = []
    for _ in range(3):
        segments.append(segment.batch([b"v"] * 10).batch([b"v"] * 10))
        segment = segment.roll()
    write_local_tiered(tmp_path, "orders", segments)
    write_local_tiered(tmp_path, "orders", [SegmentBuilder().batch([b"v"] * 20)], partition=1)
    return tmp_path


def starts(first: int, second: int) -> str:
    return f'{{"orders":{{"0":{first},"1":{second}}}}}'


def test_minus_two_and_minus_one_stand_for_the_ends_of_each_partition(orders: Path) -> None:
    found = read_offsets(orders, subscribe="orders", startingOffsets=starts(-2, 15), endingOffsets=starts(3, -1))
    assert found == [0, 1, 2, 15, 16, 17, 18, 19]


@pytest.mark.parametrize(
    ("chosen", "wanted"),
    [
        ({}, (50, 10)),
        ({"startingOffsetsByTimestamp": starts(T0 + 52, T0 + 11)}, (52, 11)),
        ({"startingOffsetsByTimestamp": starts(T0 + 52, T0 + 11), "startingTimestamp": str(T0 + 13)}, (13, 13)),
    ],
)
def test_the_weightiest_way_to_say_a_start_decides(
    orders: Path, chosen: dict[str, str], wanted: tuple[int, int]
) -> None:
    found = read_offsets(orders, subscribe="orders", startingOffsets=starts(50, 10), **chosen)
    assert found == sorted([*range(wanted[0], 60), *range(wanted[1], 20)])


@pytest.mark.parametrize(
    ("chosen", "wanted"),
    [
        ({}, (5, 10)),
        ({"endingOffsetsByTimestamp": starts(T0 + 8, T0 + 11)}, (8, 11)),
        ({"endingOffsetsByTimestamp": starts(T0 + 8, T0 + 11), "endingTimestamp": str(T0 + 3)}, (3, 3)),
    ],
)
def test_the_weightiest_way_to_say_an_end_decides(
    orders: Path, chosen: dict[str, str], wanted: tuple[int, int]
) -> None:
    found = read_offsets(orders, subscribe="orders", endingOffsets=starts(5, 10), **chosen)
    assert found == sorted([*range(wanted[0]), *range(wanted[1])])


def test_start_and_end_are_weighed_each_for_itself(orders: Path) -> None:
    found = read_offsets(
        orders, assign='{"orders":[0]}', startingTimestamp=str(T0 + 30), endingOffsets='{"orders":{"0":33}}'
    )
    assert found == [30, 31, 32]


@pytest.mark.parametrize(("limit", "most"), [({"batchRecords": "7"}, 7), ({"batchBytes": "1"}, 1)])
def test_a_batch_ends_at_its_records_or_its_bytes(orders: Path, limit: dict[str, str], most: int) -> None:
    options = parse_options({"location": str(orders), "assign": '{"orders":[1]}'} | limit)
    reader = SegmentReader(options, ("offset", "value"))
    sizes = [batch.num_rows for one in reader.partitions() for batch in reader.read(one)]

    assert sum(sizes) == 20
    assert max(sizes) == most


def test_tasks_are_at_least_so_many_or_have_at_most_so_many_offsets(orders: Path) -> None:
    assert len(split_partitions(orders, subscribe="orders", minPartitions="8")) >= 8
    few = SegmentReader(
        parse_options({"location": str(orders), "subscribe": "orders", "maxRecordsPerPartition": "7"}), ("offset",)
    )
    assert sum(batch.num_rows for one in few.partitions() for batch in few.read(one)) == len(
        read_offsets(orders, subscribe="orders")
    )
    both = split_partitions(orders, subscribe="orders", minPartitions="8", maxRecordsPerPartition="7")
    assert max((one.split.offsets.stop or 0) - one.split.offsets.start for one in both) <= 7


def stream(**options: str) -> SparkOptions:
    return parse_stream_options({"location": "/data", "subscribe": "orders"} | options)


def test_limits_of_a_stream_have_their_values() -> None:
    given = stream(maxOffsetsPerTrigger="9", minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    assert (read_limit(given), trigger_delay(given)) == (ReadMaxRows(9), TriggerDelay(5, 10_000))
    assert trigger_delay(stream(minOffsetsPerTrigger="5")) == TriggerDelay(5, 900_000)
    assert (read_limit(stream(maxBytesPerTrigger="1g")), trigger_delay(stream())) == (ReadMaxBytes(1 << 30), None)


@pytest.mark.parametrize("text", ["earliest", "latest", starts(-1, -2)])
def test_a_stream_may_start_at_either_end_and_a_batch_at_the_first_only(text: str) -> None:
    read = stream(startingOffsets=text)
    if "latest" in text or "-1" in text:
        with pytest.raises(OptionError, match="cannot be latest, or -1, in a batch read"):
            require_batch(read)
    else:
        require_batch(read)


@pytest.mark.parametrize(
    "options",
    [
        {"endingOffsets": '{"orders":{"0":5}}'},
        {"endingTimestamp": "7"},
        {"endingOffsetsByTimestamp": _EACH},
        {"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "1m"},
        {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
    ],
)
def test_what_contradicts_itself_in_a_stream_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        stream(**options)
