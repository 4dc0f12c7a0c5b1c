"""Foreign clients in Python: confluent-kafka (librdkafka), kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterable
from itertools import islice
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from foreign_clients.conversation import MECHANISM, PARTITIONS, Conversation, record_line
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

_PATIENCE_S = 90.0


def confluent(wanted: Conversation) -> list[str]:
    """librdkafka, with the classic group protocol and that of KIP-848."""
    login = {**wanted.librdkafka(), "log_level": 0}
    reads = {**login, "isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    lines = []
    for kind, protocol in (("read", None), ("group", "classic"), ("group-848", "consumer")):
        group = {"group.id": wanted.group if kind != "group-848" else f"{wanted.group}-848"}
        consumer = Consumer(reads | group | ({"group.protocol": protocol} if protocol else {}))
        if protocol is None:
            consumer.assign([TopicPartition(wanted.topic, number, 0) for number in range(PARTITIONS)])
        else:
            consumer.subscribe([wanted.topic])
        until = time.monotonic() + _PATIENCE_S
        left = wanted.count
        while left > 0 and time.monotonic() < until:
            for message in consumer.consume(left, 1.0):
                if (error := message.error()) is not None:
                    raise RuntimeError(str(error))
                lines.append(_librdkafka_line(kind, message))
                left -= 1
        if protocol is not None:
            consumer.commit(asynchronous=False)
        consumer.close()

    made = Producer({**login, "enable.idempotence": True})

    def acked(error: Any, message: Message) -> None:
        lines.append(f"acked {message.partition()} {message.offset()}" if error is None else f"refused {error}")

    for number in range(wanted.written):
        made.produce(
            wanted.into, f"written-{number}", "key", number % PARTITIONS, headers=[("h", b"1")], on_delivery=acked
        )
        made.poll(0)
    made.flush(_PATIENCE_S)
    return lines


def _librdkafka_line(kind: str, message: Message) -> str:
    headers: Any = message.headers() or ()
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return record_line(kind, partition, offset, message.timestamp()[1], message.key(), message.value(), headers)


def kafka_python(wanted: Conversation) -> list[str]:
    """kafka-python."""
    login: dict[str, Any] = {
        "bootstrap_servers": wanted.bootstrap.split(","),
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": wanted.user.name,
        "sasl_plain_password": wanted.user.password,
        "ssl_cafile": str(wanted.authority),
    }
    reads = {
        **login,
        "isolation_level": "read_committed",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "consumer_timeout_ms": _PATIENCE_S * 1000,
    }
    alone = KafkaConsumer(**reads)
    alone.assign([KafkaPythonPartition(wanted.topic, number) for number in range(PARTITIONS)])
    alone.seek_to_beginning()
    lines = _taken("read", alone, wanted.count)
    alone.close()
    member = KafkaConsumer(wanted.topic, group_id=wanted.group, **reads)
    lines += _taken("group", member, wanted.count)
    member.commit()
    member.close()

    made = KafkaProducer(**login)
    sent = [
        made.send(wanted.into, b"written-%d" % number, b"key", [("h", b"1")], partition=number % PARTITIONS)
        for number in range(wanted.written)
    ]
    lines += [f"acked {one.partition} {one.offset}" for one in (future.get(_PATIENCE_S) for future in sent)]
    made.close()
    return lines


def _taken(kind: str, records: Iterable[Any], count: int) -> list[str]:
    return [_python_line(kind, one) for one in islice(records, count)]


def _python_line(kind: str, one: Any) -> str:
    return record_line(kind, one.partition, one.offset, one.timestamp, one.key, one.value, one.headers)


def aiokafka(wanted: Conversation) -> list[str]:
    """aiokafka, in an event loop of its own."""
    return asyncio.run(asyncio.wait_for(_aiokafka(wanted), _PATIENCE_S))


async def _aiokafka(wanted: Conversation) -> list[str]:
    login: dict[str, Any] = {
        "bootstrap_servers": wanted.bootstrap,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": wanted.user.name,
        "sasl_plain_password": wanted.user.password,
        "ssl_context": ssl.create_default_context(cafile=str(wanted.authority)),
    }
    reads = {
        **login,
        "isolation_level": "read_committed",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    alone = AIOKafkaConsumer(**reads)
    alone.assign([AiokafkaPartition(wanted.topic, number) for number in range(PARTITIONS)])
    member = AIOKafkaConsumer(wanted.topic, group_id=wanted.group, **reads)
    lines = []
    for kind, consumer in (("read", alone), ("group", member)):
        await consumer.start()
        try:
            for _ in range(wanted.count):
                lines.append(_python_line(kind, await consumer.getone()))
            if kind == "group":
                await consumer.commit()
        finally:
            await consumer.stop()

    made = AIOKafkaProducer(**login)
    await made.start()
    try:
        for number in range(wanted.written):
            one = await made.send_and_wait(
                wanted.into, b"written-%d" % number, b"key", number % PARTITIONS, headers=[("h", b"1")]
            )
            lines.append(f"acked {one.partition} {one.offset}")
    finally:
        await made.stop()
    return lines
