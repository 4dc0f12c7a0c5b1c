"""Real clients for a broker: records written as a test says, and what a consumer is given."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Message, Producer, TopicPartition

_WAIT_S = 60.0

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A record to write. Without a time it is the producer's clock."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int | None = None
    headers: Headers = ()


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Received:
    """A record as a consumer gives it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    is_log_append_time: bool
    headers: Headers


@contextlib.contextmanager
def producer(
    bootstrap: str, *, codec: str = "none", transactional_id: str | None = None, **settings: str | int
) -> Iterator[Producer]:
    """A producer whose batches end where the test flushes, or at their full size.

    Args:
        codec: ``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``.
        transactional_id: makes transactions possible; they are initialised.
        settings: others, ``batch_size=4096``.
    """
    given: dict[str, str | int] = {
        "bootstrap.servers": bootstrap,
        "compression.type": codec,
        "linger.ms": 1000,
        "enable.idempotence": True,  # keeps the order
        "queue.buffering.max.messages": 10_000_000,
        "log_level": 0,  # a broker that was stopped is no news here
    }
    if transactional_id is not None:
        given["transactional.id"] = transactional_id
    made = Producer(given | {name.replace("_", "."): value for name, value in settings.items()})
    if transactional_id is not None:
        made.init_transactions(_WAIT_S)
    yield made
    made.flush(_WAIT_S)


def send(to: Producer, topic: str, records: Iterable[Sent]) -> None:
    """Write the records; returns when the broker has all of them.

    Raises:
        RuntimeError: it refused one.
    """
    refused: list[KafkaError] = []

    def note(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    for one in records:
        to.produce(
            topic,
            value=one.value,
            key=one.key,
            partition=one.partition,
            timestamp=one.timestamp_ms or 0,
            headers=list(one.headers),
            on_delivery=note,
        )
        to.poll(0)
    if left := to.flush(_WAIT_S):
        raise RuntimeError(f"{left} records were not delivered")
    if refused:
        raise RuntimeError(f"{len(refused)} records were refused: {refused[0]}")


@contextlib.contextmanager
def transaction(
    bootstrap: str, topic: str, records: Iterable[Sent], *, name: str, is_kept: bool, **settings: Any
) -> Iterator[Callable[[Iterable[Sent]], None]]:
    """A transaction that has written the records, and is open until the block ends.

    Args:
        name: of the producer; a later one of the same name would end this one's transaction.
        is_kept: whether it ends with a commit; its markers may be written a moment after the block.
        settings: as of ``producer``.

    Yields:
        what writes more into it.
    """
    with producer(bootstrap, transactional_id=name, transaction_timeout_ms=600_000, **settings) as made:
        made.begin_transaction()
        send(made, topic, records)
        yield lambda more: send(made, topic, more)
        made.commit_transaction(_WAIT_S) if is_kept else made.abort_transaction(_WAIT_S)


def consume(bootstrap: str, topic: str, partitions: int = 1, *, isolation: str = "read_committed") -> list[Received]:
    """All records of a topic, by partition and offset.

    Raises:
        RuntimeError: the broker refuses to give them.
    """
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "none",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "log_level": 0,
    }
    found: list[Received] = []
    ended: set[int | None] = set()
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        while len(ended) < partitions:
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    found.append(_received(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    raise RuntimeError(str(error))
    finally:
        consumer.close()
    return sorted(found, key=lambda one: (one.partition, one.offset))


def _received(message: Message) -> Received:
    kind, timestamp_ms = message.timestamp()
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    headers: Any = message.headers() or ()  # pairs; its type says more than it gives
    return Received(
        partition=partition,
        offset=offset,
        key=message.key(),
        value=message.value(),
        timestamp_ms=timestamp_ms,
        is_log_append_time=kind == TIMESTAMP_LOG_APPEND_TIME,
        headers=tuple(headers),
    )
