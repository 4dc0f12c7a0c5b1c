"""How soon the first record comes after a partition's leader has moved: told by the old leader, and found without.

Two readers follow the same moves. The second one is deaf to what KIP-951 brought: it asks for Metadata and waits the
usual time, as clients did before.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.broker_kit import Kit
from benchmarks.rows import Row
from segreader.broker.client import BrokerClient
from segreader.broker.messages import LeaderAndEpoch, Node
from segreader.broker.partition_fetcher import PartitionFetcher
from segreader.broker.rules.leader import LeaderDecision, LeaderFinder
from segreader.format.batch import parse_batch_header
from segreader.isolation import IsolationLevel

_TOPIC = "moves"
_NODES = 3
_BATCHES = 200
_PAUSE_S = 0.002
_PATIENCE_S = 10.0


class DeafLeaderFinder(LeaderFinder):
    """Decides as if no answer named a leader."""

    __slots__ = ()

    def refused(
        self, error: int, *, by: int, sent_epoch: int, hint: LeaderAndEpoch | None = None, nodes: Iterable[Node] = ()
    ) -> LeaderDecision:
        return super().refused(error, by=by, sent_epoch=sent_epoch)


@dataclass(frozen=True, slots=True)
class Seen:
    """A call that met a move.

    Args:
        ms: from the call, whose answer was under way, to the first record.
        metadata: requests for Metadata meanwhile.
        waits_75: answers of a new leader that had not heard of its election.
    """

    ms: float
    metadata: int
    waits_75: int


@dataclass(slots=True)
class Reader:
    """Reads a partition batch by batch, over and over, in a thread of its own, and notes each call that met a move."""

    bootstrap: str
    is_deaf: bool
    seen: list[Seen] = field(default_factory=list)
    failure: BaseException | None = None
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        try:
            with BrokerClient(self.bootstrap) as client:
                self._read(client)
        except BaseException as error:
            self.failure = error

    def stop(self) -> None:
        self._stopped.set()

    def _read(self, client: BrokerClient) -> None:
        isolation = IsolationLevel.READ_UNCOMMITTED
        with PartitionFetcher(client, _TOPIC, 0, 0, isolation_level=isolation, max_bytes=1) as fetcher:
            if self.is_deaf:
                course = fetcher._state
                course._finder = DeafLeaderFinder(
                    client.cluster, _TOPIC, 0, jitter=client.jitter, topic_id=course.topic_id
                )
            while not self._stopped.wait(_PAUSE_S):
                moved = _count_moves(client)
                late = client.metrics.errors["UNKNOWN_LEADER_EPOCH"]
                asked, began = client.metrics.requests["Metadata"], time.perf_counter()
                answer = fetcher.poll()
                while not answer.records:
                    answer = fetcher.poll()
                if _count_moves(client) > moved:
                    self.seen.append(
                        Seen(
                            (time.perf_counter() - began) * 1000,
                            client.metrics.requests["Metadata"] - asked,
                            client.metrics.errors["UNKNOWN_LEADER_EPOCH"] - late,
                        )
                    )
                header = parse_batch_header(answer.records)
                fetcher.advance(header.next_offset, header.partition_leader_epoch)
                if header.next_offset >= answer.high_watermark:
                    fetcher.seek(0)


def _count_moves(client: BrokerClient) -> int:
    errors = client.metrics.errors
    return errors["NOT_LEADER_OR_FOLLOWER"] + errors["FENCED_LEADER_EPOCH"]


def measure_moves(kit: Kit, directory: Path, moves: int) -> Iterator[Row]:
    """Moves of one partition's leader round three brokers, as an operator does them."""
    settings = {"leader.imbalance.check.interval.seconds": "100000"}
    with kit.cluster(directory, nodes=_NODES, controllers=1, replication=1, settings=settings) as kafka:
        _fill(kit, kafka)
        leaders = kit.leaders(kafka)
        readers = [Reader(kafka.bootstrap, False), Reader(kafka.bootstrap, True)]
        with contextlib.ExitStack() as stack:
            for reader in readers:
                thread = threading.Thread(target=reader.run, daemon=True)
                thread.start()
                stack.callback(thread.join)
                stack.callback(reader.stop)
            time.sleep(2)
            for number in range(2 * moves):
                before = [len(reader.seen) for reader in readers]
                leaders.move(_TOPIC, (number + 1) % _NODES + 1)
                _wait_for_all(readers, before)
                if all(len(reader.seen) >= moves for reader in readers):
                    break
    yield from _rows(*(reader.seen[:moves] for reader in readers))


def _fill(kit: Kit, kafka: Any) -> None:
    kafka.create_topic(_TOPIC, replicas=[[1, 2, 3]])
    with kit.producer(kafka.bootstrap) as out:
        for number in range(_BATCHES):
            out.produce(_TOPIC, b"record %d" % number, partition=0)
            out.flush(30)


def _wait_for_all(readers: Sequence[Reader], before: Sequence[int]) -> None:
    """Until each has met a move; one that happened to ask for Metadata in that moment will not."""
    until = time.monotonic() + _PATIENCE_S
    while any(len(one.seen) == seen for one, seen in zip(readers, before, strict=True)):
        for reader in readers:
            if reader.failure:
                raise reader.failure
        if time.monotonic() > until:
            break
        time.sleep(0.02)
    time.sleep(0.5)


def _rows(told: list[Seen], deaf: list[Seen]) -> Iterator[Row]:
    asked = max(one.metadata for one in told)
    yield Row(
        "Metadata requests before the first record", (asked,), 0, "", f"the most of {len(told)} moves, leader told"
    )
    mine, theirs = median(one.ms for one in told), median(one.ms for one in deaf)
    note = (
        f"{mine:.1f} ms ({min(one.ms for one in told):.1f}-{max(one.ms for one in told):.1f},"
        f" {sum(one.waits_75 > 0 for one in told)} met a 75) and {theirs:.1f} ms"
        f" ({min(one.ms for one in deaf):.1f}-{max(one.ms for one in deaf):.1f},"
        f" {sum(one.waits_75 > 0 for one in deaf)} met a 75); medians of {len(told)}"
    )
    yield Row("first record after a move, leader told / found", (mine / theirs,), 0.5, "x", note)
