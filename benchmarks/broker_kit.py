"""A broker with a topic, a gateway before it and a file server behind it, and what each process costs.

The test kit starts them; this module knows how to fill a topic, and where CPU and bytes can be read off.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from benchmarks.inputs import BATCH_BYTES, Batch, Shape, make_batches
from benchmarks.rows import MIB
from benchmarks.storage import serve_fast

PARTITIONS = 4
SEGMENT_BYTES = 128 * MIB
SHAPE = Shape("1 KiB", 1024)
CODEC = "lz4"

_TICKS = os.sysconf("SC_CLK_TCK")
_UPLOADS_S = 5
_JVM = ("-Xmx1g", "-Xms1g", "-XX:+UseG1GC")
_CALM = {
    "remote.log.manager.task.interval.ms": str(_UPLOADS_S * 1000),
    "log.retention.check.interval.ms": "5000",
    "log.cleaner.backoff.ms": "15000",
}
"""The test kit looks for something to upload or to delete twice a second, which shows in the broker's CPU."""

Offsets = Mapping[int, tuple[int, int]]


def open_consumer(bootstrap: str, **settings: object) -> Consumer:
    """confluent-kafka as a bulk reader sets it: no commits, events at the ends, and no pause when its queue is full.

    Args:
        settings: others of librdkafka, with ``_`` in place of each dot.
    """
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.queue.backoff.ms": 1,  # by default a second
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def read_to_ends(consumer: Consumer, topic: str, starts: Mapping[int, int]) -> int:
    """Read partitions from offsets to their ends, ten thousand records at a time, and close the consumer.

    Returns:
        How many records there were.
    """
    count = ended = 0
    try:
        consumer.assign([TopicPartition(topic, partition, first) for partition, first in starts.items()])
        while ended < len(starts):
            for message in consumer.consume(10_000, 1.0):
                error = message.error()
                if error is None:
                    count += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended += 1
                else:
                    raise RuntimeError(str(error))
    finally:
        consumer.close()
    return count


@dataclass(frozen=True, slots=True)
class Kit:
    """The test kit's ways to real components, which lie outside of any package."""

    cluster: Callable[..., Any]
    producer: Callable[..., Any]
    gateway: Callable[..., Any]
    leaders: Callable[..., Any]
    free_port: Callable[[], int]
    jars: Callable[[], Path]

    @staticmethod
    def load() -> Kit:
        """Import it."""
        sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
        from kafka_kit.clients import producer
        from kafka_kit.cluster import cluster
        from kafka_kit.gateway import gateway
        from kafka_kit.jars import BROKER, fetch_jars
        from kafka_kit.leaders import Leaders
        from servers.process import free_port

        return Kit(cluster, producer, gateway, Leaders, free_port, lambda: fetch_jars(BROKER))


@dataclass(frozen=True, slots=True)
class Bench:
    """What runs.

    Args:
        kafka: a cluster of one node.
        gateway: before it.
        config: of the gateway, but for its ports and files.
        served: the endpoint of the file server that holds the remote tier.
        jmx: the URL at which the broker tells its own counters.
    """

    kafka: Any
    gateway: Any
    config: Mapping[str, object]
    served: str
    jmx: str

    @property
    def broker(self) -> int:
        """The broker's process."""
        pid: int = self.kafka.nodes[0].pid
        return pid

    @property
    def storage_options(self) -> dict[str, object]:
        """What lets a reader follow URLs on loopback."""
        return {"allow_hosts": (self.served,), "allow_private": True, "allow_http": True}

    def stored_bytes(self, topic: str) -> int:
        """Bytes of a topic's logs on the broker's disk."""
        logs = (self.kafka.nodes[0].config.directory / "data").glob(f"{topic}-*/*.log")
        return sum(file.stat().st_size for file in logs)

    def bytes_out(self, topic: str) -> int:
        """Bytes of records of a topic that the broker has sent, by its own ``BytesOutPerSec``; takes a JVM a second."""
        name = f"kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec,topic={topic}"
        wanted = ("--jmx-url", self.jmx, "--object-name", name, "--attributes", "Count", "--one-time")
        lines = self.kafka.tool("org.apache.kafka.tools.JmxTool", *wanted).splitlines()
        for line in reversed(lines):
            _, _, count = line.rpartition(",")
            if count.strip().isdigit():
                return int(count)
        raise RuntimeError(f"the broker does not tell {name}: {lines}")


@contextlib.contextmanager
def bench(kit: Kit, directory: Path) -> Iterator[Bench]:
    """One broker, a file server over its remote tier, and a gateway that gives unsigned URLs of it."""
    port = kit.free_port()
    jmx = (
        f"-Dcom.sun.management.jmxremote.port={port}",
        "-Dcom.sun.management.jmxremote.host=127.0.0.1",
        "-Dcom.sun.management.jmxremote.authenticate=false",
        "-Dcom.sun.management.jmxremote.ssl=false",
        "-Djava.rmi.server.hostname=127.0.0.1",
    )
    with contextlib.ExitStack() as stack:
        kafka = stack.enter_context(kit.cluster(directory / "kafka", settings=_CALM, jvm=(*_JVM, *jmx)))
        files = directory / "files"
        files.mkdir()
        endpoint, root, name = stack.enter_context(serve_fast(files))
        Path(kafka.location).mkdir(parents=True, exist_ok=True)
        (root / "tier").symlink_to(kafka.location)
        config = {
            "bootstrap_servers": kafka.bootstrap,
            "location": kafka.location,
            "url_base": f"{endpoint}/tier",
            "allow_http": True,
        }
        gateway = stack.enter_context(kit.gateway(directory, config))
        print(f"one broker, its remote tier behind {name}")
        yield Bench(kafka, gateway, config, endpoint, f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi")


def write_topic(
    kit: Kit, kafka: Any, name: str, stored_bytes: int, codec: str = CODEC, segment_bytes: int = SEGMENT_BYTES
) -> Offsets:
    """A topic of about so many bytes as they are stored; all of it on the broker's disk, closed segments copied too.

    Returns:
        Of each partition its first offset and its end.
    """
    kafka.create_topic(name, PARTITIONS, segment_bytes=segment_bytes)
    batches = make_batches(SHAPE, 8 * MIB, BATCH_BYTES)
    logs = kafka.nodes[0].config.directory / "data"
    with kit.producer(kafka.bootstrap, codec=codec, batch_size=BATCH_BYTES, linger_ms=50) as out:
        produce(out, name, batches, 1)
        once = sum(file.stat().st_size for file in logs.glob(f"{name}-*/*.log"))
        produce(out, name, batches, max(0, round(stored_bytes / once) - 1))
    offsets = _settled(kafka, name)
    return {partition: (one.earliest, one.latest) for partition, one in offsets.items()}


def produce(out: Any, topic: str, batches: Sequence[Batch], times: int) -> None:
    """Send the records of the batches so often, each batch to the next partition."""
    for number, batch in enumerate(chain.from_iterable(repeat(batches, times))):
        for key, value, _headers in batch.records:
            while True:
                try:
                    out.produce(topic, value, key, number % PARTITIONS)
                    break
                except BufferError:
                    out.poll(0.1)
        out.poll(0)
    if out.flush(300):
        raise RuntimeError("the broker does not take all records")


def _settled(kafka: Any, topic: str) -> Any:
    """What lies where, once the broker copies no more of it."""
    while True:
        before = kafka.offsets(topic)
        time.sleep(2 * _UPLOADS_S)
        if kafka.offsets(topic) == before:
            return before


def cpu_s(pid: int) -> float:
    """CPU seconds, user and system, that a process has used, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@dataclass(frozen=True, slots=True)
class Spent:
    """What a piece of work took: wall seconds, and CPU seconds by the process that was asked about."""

    wall: float
    cpu: Mapping[str, float]


def spent(work: Callable[[], object], **pids: int) -> Spent:
    """Wall of some work and CPU of some processes meanwhile."""
    before, began = {name: cpu_s(pid) for name, pid in pids.items()}, time.perf_counter()
    work()
    wall = time.perf_counter() - began
    return Spent(wall, {name: cpu_s(pid) - before[name] for name, pid in pids.items()})
