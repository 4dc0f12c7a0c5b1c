"""Frames that librdkafka's mock brokers read and write: another author's protocol, in this process, without Java.

Its Metadata answers end with a byte too many, which our decoder refuses; so each broker is asked by its address.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kafka_kit.clients import Sent, send

from segreader.broker import api
from segreader.broker.connection import ClientMetrics
from segreader.broker.connection_pool import Address, OpenConnection, Opener
from segreader.broker.messages import EARLIEST, LATEST, FetchAnswer, FetchPartition, FetchRequest, OffsetWanted
from segreader.broker.rules.backoff import Deadline
from segreader.broker.settings import ClientSettings
from segreader.format.batch import parse_batch_header
from segreader.format.compression import Decompressor
from segreader.format.records import iter_records
from segreader.isolation import IsolationLevel
from segreader.storage.retry import Clock

TOPIC = "mock"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 100
ALL = COUNT * len(CODECS)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Where a mock broker listens; a hundred records of each codec are there."""
    made = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = made.list_topics(timeout=30).brokers.values()
    found = f"{broker.host}:{broker.port}"
    for codec in CODECS:
        writer = Producer({"bootstrap.servers": found, "compression.type": codec, "linger.ms": 50, "log_level": 0})
        send(writer, TOPIC, [Sent(value=b"value-%d" % number) for number in range(COUNT)])
    yield found
    made.purge()  # the cluster ends with the one that made it


@pytest.fixture
def opened(bootstrap: str) -> Iterator[OpenConnection]:
    """Our connection to it."""
    host, port = bootstrap.split(":")
    opener = Opener(ClientSettings(), clock=Clock(), metrics=ClientMetrics(), stopped=threading.Event())
    found = opener.open(Address(host, int(port)), deadline=Deadline.after(int(Clock().monotonic() * 1000), 30_000))
    yield found
    found.connection.close()


def fetch(opened: OpenConnection, offset: int, max_bytes: int = 1 << 20) -> FetchAnswer:
    wanted = FetchPartition(TOPIC, None, 0, offset, max_bytes=max_bytes)
    return opened.connection.ask(api.fetch(ClientSettings(), opened.versions, FetchRequest((wanted,))))


def read(opened: OpenConnection, offset: int, max_bytes: int = 1 << 20) -> list[tuple[int, bytes | None]]:
    """The records of answer after answer, up to the end."""
    found: list[tuple[int, bytes | None]] = []
    while offset < ALL:
        (partition,) = fetch(opened, offset, max_bytes).partitions
        assert partition.error == 0
        assert partition.records
        data, at = partition.records, 0
        while at < len(data):
            header = parse_batch_header(data, at)
            batch = data[at : at + header.size]
            found += [(one.offset, one.value) for one in iter_records(batch, Decompressor()) if one.offset >= offset]
            offset, at = header.next_offset, at + header.size
    return found


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_its_records_come_in_every_codec_however_they_are_cut(opened: OpenConnection, max_bytes: int) -> None:
    assert read(opened, 7, max_bytes) == [(number, b"value-%d" % (number % COUNT)) for number in range(7, ALL)]


def test_an_offset_behind_its_end_is_out_of_range(opened: OpenConnection) -> None:
    (partition,) = fetch(opened, ALL + 1).partitions
    assert partition.error == 1
    assert not partition.records


@pytest.mark.parametrize(("timestamp", "offset"), [(EARLIEST, 0), (LATEST, ALL)])
def test_its_log_begins_and_ends_where_it_says(opened: OpenConnection, timestamp: int, offset: int) -> None:
    wanted = [OffsetWanted(TOPIC, 0, timestamp)]
    answer = opened.connection.ask(
        api.list_offsets(ClientSettings(), opened.versions, wanted, IsolationLevel.READ_COMMITTED)
    )
    assert [(one.topic, one.partition, one.error, one.offset) for one in answer.offsets] == [(TOPIC, 0, 0, offset)]
