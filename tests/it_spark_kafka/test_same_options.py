"""Options that both know choose the same records, and what one refuses the other refuses, too."""

from __future__ import annotations

import json

import pytest
from kafka_kit.clients import Sent, producer, send
from kafka_kit.judge import Judge, checksum
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("broker")]

PARTITIONS = 3
EACH = 400
START_MS = 1_700_000_000_000
STEP_MS = 1000
LATER_MS = START_MS + 10 * EACH * STEP_MS
"""Later than all records."""


def _time(offset: int) -> int:
    """Of a record that is not late; the same in all partitions."""
    return START_MS + offset * STEP_MS


@pytest.fixture(scope="module")
def judged(judge: Judge) -> Judge:
    """``rows-a`` and ``rows-b``, whose times go up, and ``late``, where they go up and down."""
    kafka, topics = judge.kafka, ("rows-a", "rows-b", "late")
    for topic in topics:
        kafka.create_topic(topic, PARTITIONS, segment_bytes=10_000)
        with producer(kafka.bootstrap, codec="lz4", batch_size=1000) as out:
            for start in range(0, EACH, 100):
                records = [
                    Sent(
                        value=b"%05d" % offset * 20,
                        partition=partition,
                        timestamp_ms=_time(offset if topic != "late" else offset * 37 % EACH),
                    )
                    for offset in range(start, start + 100)
                    for partition in range(PARTITIONS)
                ]
                send(out, topic, records)
    kafka.upload(*topics)
    return judge


def _of(topic: str, *numbers: int) -> str:
    """A number for each partition, in Spark's JSON."""
    return json.dumps({topic: {str(partition): number for partition, number in enumerate(numbers)}})


A = {"subscribe": "rows-a"}
ALL = PARTITIONS * EACH


def _first_late(moment: int) -> int:
    """The first offset of ``late`` with that time or a later one."""
    return next(offset for offset in range(EACH) if offset * 37 % EACH >= moment)


LATE = PARTITIONS * (_first_late(398) - _first_late(390))

SAME: dict[str, tuple[dict[str, str], int]] = {
    "two topics": ({"subscribe": "rows-a, rows-b"}, 2 * ALL),
    "pattern": ({"subscribePattern": "rows-[ab]|late"}, 3 * ALL),
    "pattern is somewhere in the name": ({"subscribePattern": "ate|s-a$"}, 2 * ALL),
    "pattern of the whole name": ({"subscribePattern": "^late$|^ows-a$"}, ALL),
    "assign": ({"assign": '{"rows-a":[0,2],"late":[1]}'}, ALL),
    "words": (A | {"startingOffsets": "earliest", "endingOffsets": "latest"}, ALL),
    "offsets": (A | {"startingOffsets": _of("rows-a", 7, -2, 399), "endingOffsets": _of("rows-a", 250, 3, -1)}, 247),
    "an empty range": (A | {"startingOffsets": _of("rows-a", 7, 0, 400), "endingOffsets": _of("rows-a", 7, 0, -1)}, 0),
    "assigned offsets": ({"assign": '{"rows-a":[1]}', "startingOffsets": '{"rows-a":{"1":399}}'}, 1),
    "a time": (A | {"startingTimestamp": str(_time(123) - 1)}, ALL - 3 * 123),
    "a time before all": (A | {"startingTimestamp": "0"}, ALL),
    "an end by time": (A | {"endingTimestamp": str(_time(123))}, 3 * 123),
    "an end by a future time": (A | {"endingTimestamp": str(LATER_MS)}, ALL),
    "an end before all": (A | {"endingTimestamp": "1"}, 0),
    "late records": (
        {"subscribe": "late", "startingTimestamp": str(_time(390)), "endingTimestamp": str(_time(398))},
        LATE,
    ),
    "a time for each": (
        A | {"startingOffsetsByTimestamp": _of("rows-a", _time(1), _time(20), 0), "startingOffsets": "earliest"},
        ALL - 21,
    ),
    "an end by a time for each": (A | {"endingOffsetsByTimestamp": _of("rows-a", _time(1), _time(20), LATER_MS)}, 421),
    "a time weighs more than times": (
        A | {"startingTimestamp": str(_time(300)), "startingOffsetsByTimestamp": _of("rows-a", 0, 0, 0)},
        300,
    ),
    "times weigh more than offsets": (
        A | {"endingOffsetsByTimestamp": _of("rows-a", *[_time(9)] * 3), "endingOffsets": _of("rows-a", 1, 1, 1)},
        27,
    ),
    "a future time with the strategy latest": (
        A | {"startingTimestamp": str(LATER_MS), "startingOffsetsByTimestampStrategy": "latest"},
        0,
    ),
    "headers": (A | {"includeHeaders": "TRUE"}, ALL),
    "many tasks": (A | {"minPartitions": "11"}, ALL),
    "few records for a task": (A | {"maxRecordsPerPartition": "90"}, ALL),
    "both": (A | {"minPartitions": "5", "maxRecordsPerPartition": "150", "startingTimestamp": str(_time(10))}, 1170),
    "names in any case": ({"SUBSCRIBE": "rows-a", "STARTINGOFFSETS": "Earliest", "ENDINGoffsets": "LATEST"}, ALL),
    "options of a consumer": (
        A | {"kafka.max.poll.records": "70", "groupIdPrefix": "x", "failOnDataLoss": "false"},
        ALL,
    ),
}

REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "no topic": ({}, "subscribe is missing"),
    "two ways": (A | {"assign": '{"rows-a":[0]}'}, "exclude each other"),
    "a topic that is not there": ({"subscribe": "rows-z"}, "rows-z"),
    "a start beyond its end": (
        A | {"startingOffsets": _of("rows-a", 9, 0, 0), "endingOffsets": _of("rows-a", 8, 9, 9)},
        "startingOffsets 9 of rows-a-0 is beyond endingOffsets 8",
    ),
    "a start beyond the data": (A | {"startingOffsets": _of("rows-a", 0, 401, 0)}, "beyond the end"),
    "an end beyond the data": (A | {"endingOffsets": _of("rows-a", 5, 401, 5)}, "beyond the end of the data"),
    "a time start beyond its time end": (
        A | {"startingTimestamp": str(_time(9)), "endingTimestamp": str(_time(8))},
        "is beyond endingTimestamp",
    ),
    "a future time": (A | {"startingTimestamp": str(LATER_MS)}, "as new as"),
    "a future time for one": (A | {"startingOffsetsByTimestamp": _of("rows-a", 0, LATER_MS, 0)}, "as new as"),
    "too few offsets": (A | {"startingOffsets": _of("rows-a", 0, 0)}, "it lacks rows-a-2"),
    "too many offsets": (A | {"endingOffsets": _of("rows-a", 1, 1, 1, 1)}, "rows-a-3"),
    "too few times": (A | {"startingOffsetsByTimestamp": _of("rows-a", 0)}, "it lacks rows-a-1"),
    "offsets of another topic": (A | {"startingOffsets": _of("rows-b", 0, 0, 0)}, "rows-b"),
    "a start at the end": (A | {"startingOffsets": "latest"}, "latest"),
    "a partition's start at its end": (A | {"startingOffsets": _of("rows-a", 0, -1, 0)}, "-1"),
    "an end at the start": (A | {"endingOffsets": "earliest"}, "earliest"),
    "a partition's end at its start": (A | {"endingOffsets": _of("rows-a", 0, -2, 0)}, "-2"),
    "offsets that are no JSON": (A | {"startingOffsets": "{rows-a"}, "startingOffsets"),
    "an assignment that is no JSON": ({"assign": "rows-a"}, "assign"),
    "an empty list": ({"subscribe": " , "}, "subscribe"),
    "an unknown strategy": (A | {"startingOffsetsByTimestampStrategy": "newest"}, "newest"),
    "no number of tasks": (A | {"minPartitions": "few"}, "minPartitions"),
    "no task at all": (A | {"minPartitions": "0"}, "minPartitions"),
    "no record for a task": (A | {"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition"),
    "no boolean": (A | {"includeHeaders": "maybe"}, "includeHeaders"),
    "an unknown isolation level": (A | {"isolation": "read_all"}, "read_all"),
    "a start for a consumer": (A | {"kafka.auto.offset.reset": "latest"}, "auto.offset.reset"),
    "another deserialiser": (A | {"kafka.value.deserializer": "x.Y"}, "deserializer"),
}


@pytest.mark.parametrize(("options", "records"), SAME.values(), ids=SAME.keys())
def test_both_read_the_same(judged: Judge, options: dict[str, str], records: int) -> None:
    assert judged.agreed(**options).records == records


@pytest.mark.parametrize(
    "options",
    [{"minPartitions": "24"}, {"minPartitions": "4", "maxRecordsPerPartition": "50"}],
    ids=["many tasks", "few records for a task"],
)
def test_both_cut_what_is_read_into_tasks(judged: Judge, options: dict[str, str]) -> None:
    ours, theirs = (read(**A, **options).rdd.getNumPartitions() for read in (judged.ours, judged.theirs))

    assert ours >= theirs >= 24


@pytest.mark.parametrize(("options", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_both_refuse(judged: Judge, options: dict[str, str], text: str) -> None:
    with pytest.raises((PySparkException, Py4JJavaError)):
        checksum(judged.theirs(**options, **{"kafkaConsumer.pollTimeoutMs": "2000"}))
    with pytest.raises(PySparkException, match=rf"(?s)(Option|ObjectNotFound|OffsetOutOfRange)Error: .*{text}"):
        checksum(judged.ours(**options))


def test_a_partition_that_is_not_there_is_refused_here_and_left_out_there(judged: Judge) -> None:
    options = {"assign": '{"rows-a":[0,3]}'}

    assert checksum(judged.theirs(**options)) == checksum(judged.ours(**options, failOnDataLoss="false"))
    with pytest.raises(PySparkException, match="partition 3 of rows-a is not here; found partitions 0-2"):
        checksum(judged.ours(**options))


def test_a_time_below_zero_is_refused_here_and_a_word_of_the_protocol_there(judged: Judge) -> None:
    assert checksum(judged.theirs(**A, startingTimestamp="-2")).records == ALL
    with pytest.raises(PySparkException, match="startingTimestamp is not a time"):
        judged.ours(**A, startingTimestamp="-2")
