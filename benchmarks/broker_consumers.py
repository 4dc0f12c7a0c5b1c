"""Consumers in processes of their own that read partitions when they are asked to, as fast as they can or held back.

``python -m benchmarks.broker_consumers NAME`` is such a process; ``others/Consume.java`` is another. Both read lines
``bootstrap topic rate partition:first:end …`` and answer with the records and the nanoseconds that they took.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import TopicPartition as ConfluentPartition

from benchmarks.broker_kit import Offsets, open_consumer

NAMES = ("confluent-kafka", "aiokafka", "Java")

_SOURCE = Path(__file__).with_name("others") / "Consume.java"
_JVM = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")


@dataclass(frozen=True, slots=True)
class Asked:
    """What one line asks for; ``rate`` is of records a second, 0: as fast as it can."""

    bootstrap: str
    topic: str
    rate: float
    offsets: Offsets

    @property
    def records(self) -> int:
        """How many there are."""
        return sum(end - first for first, end in self.offsets.values())

    def line(self) -> str:
        """As it goes to a process."""
        parts = (f"{partition}:{first}:{end}" for partition, (first, end) in self.offsets.items())
        return " ".join((self.bootstrap, self.topic, str(self.rate), *parts))

    @staticmethod
    def parse(line: str) -> Asked:
        """What ``line`` wrote."""
        bootstrap, topic, rate, *parts = line.split()
        numbers = [tuple(map(int, one.split(":"))) for one in parts]
        return Asked(bootstrap, topic, float(rate), {number: (first, end) for number, first, end in numbers})

    def ahead_s(self, count: int, began: float) -> float:
        """Seconds to wait, so that no more than ``rate`` records a second have come."""
        return max(0.0, began + count / self.rate - time.perf_counter()) if self.rate else 0.0


def by_confluent(asked: Asked) -> float:
    """Seconds that confluent-kafka takes, ten thousand records at a time."""
    consumer = open_consumer(asked.bootstrap)
    count = 0
    try:
        began = time.perf_counter()
        consumer.assign([ConfluentPartition(asked.topic, number, one[0]) for number, one in asked.offsets.items()])
        while count < asked.records:
            count += sum(one.error() is None for one in consumer.consume(10_000, 0.1))
            time.sleep(asked.ahead_s(count, began))
        return time.perf_counter() - began
    finally:
        consumer.close()


async def by_aiokafka(asked: Asked) -> float:
    """Seconds that aiokafka takes, what it has fetched at a time."""
    consumer = AIOKafkaConsumer(bootstrap_servers=asked.bootstrap, enable_auto_commit=False)
    await consumer.start()
    count = 0
    try:
        began = time.perf_counter()
        firsts = {TopicPartition(asked.topic, number): one[0] for number, one in asked.offsets.items()}
        consumer.assign(list(firsts))
        for partition, first in firsts.items():
            consumer.seek(partition, first)
        while count < asked.records:
            count += sum(map(len, (await consumer.getmany(timeout_ms=100)).values()))
            await asyncio.sleep(asked.ahead_s(count, began))
        return time.perf_counter() - began
    finally:
        await consumer.stop()


class Reader:
    """A process with one kind of consumer."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self, asked: Asked) -> float:
        """Seconds from the assignment to the last record.

        Raises:
            RuntimeError: it gave another number of records, or ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(asked.line() + "\n")
        self._process.stdin.flush()
        records, nanoseconds = map(int, self._process.stdout.readline().split() or (0, 0))
        if records != asked.records:
            raise RuntimeError(f"{records} of {asked.records} records")
        return nanoseconds / 1e9

    def close(self) -> None:
        """End it."""
        self._process.communicate()


@contextlib.contextmanager
def reader(name: str, place: Path, jars: Path) -> Iterator[Reader]:
    """One of ``NAMES`` at hand until the block ends.

    Args:
        place: for compiled classes.
        jars: Kafka's.
    """
    if name == "Java":
        compiler, java = shutil.which("javac"), shutil.which("java")
        if not (compiler and java):
            raise RuntimeError("the Java consumer is driven by a program in Java, and no javac is here")
        subprocess.run([compiler, "-cp", f"{jars}/*", "-d", str(place), str(_SOURCE)], check=True)
        made = Reader([java, *_JVM, "-cp", f"{place}:{jars}/*", "Consume"])
    else:
        made = Reader([sys.executable, "-m", "benchmarks.broker_consumers", name])
    try:
        yield made
    finally:
        made.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker_consumers", description="A consumer by lines.")
    parser.add_argument("name", choices=("confluent-kafka", "aiokafka"))
    name = parser.parse_args().name
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        asked = Asked.parse(line)
        took = by_confluent(asked) if name == "confluent-kafka" else asyncio.run(by_aiokafka(asked))
        answers.write(f"{asked.records} {int(took * 1e9)}\n")


if __name__ == "__main__":
    main()
