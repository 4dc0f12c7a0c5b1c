"""The processes of ``benchmarks.published``: those who read a tiered topic, and a pair that writes and reads another.

``python -m benchmarks.published_readers NAME`` is one of them. It reads lines of JSON, and answers each with one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

import segreader
from benchmarks.broker_kit import open_consumer, read_to_ends
from benchmarks.published_page import (
    CONFLUENT,
    CONFLUENT_LARGE,
    SEGREADER,
    SPARK_KAFKA,
    SPARK_LARGE,
    SPARK_SEGREADER,
)

WRITER, FOLLOWER = "writer", "follower"
FETCH_BYTES, LARGE_FETCH_BYTES = 1 << 20, 16 << 20
"""``max.partition.fetch.bytes``: Kafka's default, and what asks the broker less often."""

_FOLLOW_S = 0.02
_LEAD = 20

Answer = Callable[[Mapping[str, Any]], object]
"""From what a line asks for to what is answered: of a read, how many records there were."""


@contextlib.contextmanager
def segreader_read(_: Mapping[str, Any]) -> Iterator[Answer]:
    """Every record from the bucket, as Arrow batches; it knows no broker."""

    def read(asked: Mapping[str, Any]) -> int:
        scan = segreader.scan(asked["location"], topic=asked["topic"])
        return sum(batch.num_rows for batch in scan.to_batches())

    yield read


@contextlib.contextmanager
def confluent_read(given: Mapping[str, Any], fetch_bytes: int = FETCH_BYTES) -> Iterator[Answer]:
    """Every record by one consumer, ten thousand at a time; what is in them is not looked at."""

    def read(asked: Mapping[str, Any]) -> int:
        consumer = open_consumer(given["bootstrap"], max_partition_fetch_bytes=fetch_bytes)
        return read_to_ends(consumer, asked["topic"], dict.fromkeys(range(asked["partitions"]), 0))

    yield read


@contextlib.contextmanager
def spark_kafka_read(given: Mapping[str, Any], fetch_bytes: int = FETCH_BYTES) -> Iterator[Answer]:
    """Every row by Spark's own source, made and dropped; it raises where offsets are missing."""
    with _spark({"spark.jars": given["connector"]}) as spark:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", given["bootstrap"])
        reader = reader.option("kafka.max.partition.fetch.bytes", str(fetch_bytes))

        def read(asked: Mapping[str, Any]) -> int:
            return _drain(reader.option("subscribe", asked["topic"]).load(), asked)

        yield read


@contextlib.contextmanager
def spark_segreader_read(_: Mapping[str, Any]) -> Iterator[Answer]:
    """Every row by ``segreader.spark.read``, made and dropped."""
    from segreader.spark import read as frame

    with _spark({}) as spark:
        yield lambda asked: _drain(frame(spark, asked["location"], subscribe=asked["topic"]), asked)


@contextlib.contextmanager
def _spark(settings: Mapping[str, str]) -> Iterator[Any]:
    from benchmarks.spark import MASTER, SETTINGS
    from spark_jobs.session import job_session

    with job_session("segreader benchmark", master=MASTER, settings={**SETTINGS, **settings}) as session:
        yield session.spark


def _drain(frame: Any, asked: Mapping[str, Any]) -> int:
    """Have every row made; they are counted where that is asked for, which takes a second read."""
    frame.write.format("noop").mode("overwrite").save()
    return int(frame.count()) if asked["is_counted"] else int(asked["records"])


@contextlib.contextmanager
def writer(given: Mapping[str, Any]) -> Iterator[Answer]:
    """Writes at a steady rate, whatever becomes of earlier records; each has the time at which it was handed over."""
    producer = Producer({"bootstrap.servers": given["bootstrap"], "linger.ms": 0, "acks": "all"})
    until = threading.Event()
    sent = 0

    def write() -> None:
        nonlocal sent
        began = time.monotonic()
        while not until.wait(max(0.0, began + sent / given["rate"] - time.monotonic())):
            stamp = time.monotonic_ns().to_bytes(8, "big")
            producer.produce(given["topic"], stamp + bytes(given["record_bytes"] - len(stamp)), partition=0)
            producer.poll(0)
            sent += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield lambda _: sent
    finally:
        until.set()
        thread.join()
        producer.flush(10)


@contextlib.contextmanager
def follower(given: Mapping[str, Any]) -> Iterator[Answer]:
    """Reads what the writer writes as it comes; answers the milliseconds that each took since the last answer."""
    consumer = Consumer(
        {"bootstrap.servers": given["bootstrap"], "group.id": "none", "enable.auto.commit": False, "fetch.min.bytes": 1}
    )
    consumer.assign([TopicPartition(given["topic"], 0, 0)])
    took: list[float] = []
    until = threading.Event()

    def follow() -> None:
        while not until.is_set():
            message = consumer.poll(_FOLLOW_S)
            if message is not None and message.error() is None:
                value = message.value()
                assert isinstance(value, bytes)
                took.append((time.monotonic_ns() - int.from_bytes(value[:8], "big")) / 1e6)

    def taken(_: Mapping[str, Any]) -> list[float]:
        count = len(took)
        found = took[:count]
        del took[:count]
        return found

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield taken
    finally:
        until.set()
        thread.join()
        consumer.close()


KINDS: Mapping[str, Callable[[Mapping[str, Any]], contextlib.AbstractContextManager[Answer]]] = {
    SPARK_KAFKA: spark_kafka_read,
    SPARK_LARGE: partial(spark_kafka_read, fetch_bytes=LARGE_FETCH_BYTES),
    CONFLUENT: confluent_read,
    CONFLUENT_LARGE: partial(confluent_read, fetch_bytes=LARGE_FETCH_BYTES),
    SEGREADER: segreader_read,
    SPARK_SEGREADER: spark_segreader_read,
    WRITER: writer,
    FOLLOWER: follower,
}


def hasten() -> None:
    """Give the pair priority on its core, where this user may: its clients would run on other machines."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -_LEAD)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published_readers", description="A reader by lines.")
    parser.add_argument("name", choices=tuple(KINDS))
    name = parser.parse_args().name
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    if name in (WRITER, FOLLOWER):
        hasten()
    with KINDS[name](json.loads(sys.stdin.readline())) as answer:
        answers.write("null\n")
        for line in sys.stdin:
            began = time.perf_counter()
            found = answer(json.loads(line))
            answers.write(json.dumps([time.perf_counter() - began, found]) + "\n")


if __name__ == "__main__":
    main()
