"""What a gateway adds to a single request, and how many locations it gives in a CPU second."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import urllib3

from benchmarks.broker_kit import Bench, Kit, Offsets, cpu_s
from benchmarks.rows import Row
from segreader.broker import api
from segreader.broker.client import BrokerClient
from segreader.broker.connection import Call
from segreader.broker.connection_pool import OpenConnection
from segreader.broker.messages import ClusterMetadata, FetchAnswer, FetchPartition, FetchRequest
from segreader.broker.rules.backoff import Deadline
from segreader.isolation import IsolationLevel

_FOR_MS = 600_000
_REQUESTS = 1000
_CLIENTS = 8
_CONNECTIONS_OF_WORKERS = 64
"""The kernel spreads connections by a hash: of few, one worker may get nearly all."""


@dataclass(slots=True)
class Lane:
    """One connection, and the requests that a benchmark sends over it."""

    client: BrokerClient
    lent: OpenConnection
    topic: str

    def fetch(self, partition: int, offset: int, *, wants_locations: bool = False) -> Call[FetchAnswer]:
        """A Fetch that waits for nothing."""
        known = self.client.cluster.partition(self.topic, partition)
        assert known is not None
        topic_id = self.client.cluster.topic_id(self.topic)
        asked = FetchPartition(self.topic, topic_id, partition, offset, known.leader.leader_epoch, 1 << 20)
        request = FetchRequest(
            (asked,),
            isolation_level=IsolationLevel.READ_COMMITTED,
            max_wait_ms=0,
            wants_locations=wants_locations,
        )
        return self.lent.plan(lambda offered: api.fetch(self.client.settings, offered, request))

    def metadata(self) -> Call[ClusterMetadata]:
        """Metadata of the topic."""
        return self.lent.plan(lambda offered: api.metadata(self.client.settings, offered, [self.topic]))

    def timed(self, call: Call[Any]) -> float:
        """Milliseconds until the answer to a request is decoded."""
        began = time.perf_counter()
        self.lent.connection.ask(call)
        return (time.perf_counter() - began) * 1000


@contextlib.contextmanager
def lanes(bootstrap: str, topic: str, count: int = 1) -> Iterator[list[Lane]]:
    """Connections to the only broker, or to the gateway before it."""
    with BrokerClient(bootstrap) as client:
        leader = client.leader(topic, 0).leader_id
        deadline = Deadline.after(client.now_ms(), _FOR_MS)
        lent = [client.connections.lend(leader, deadline) for _ in range(count)]
        try:
            yield [Lane(client, one, topic) for one in lent]
        finally:
            for one in lent:
                client.connections.give_back(one)


def measure_latency(bench: Bench, topic: str, offsets: Offsets, rounds: int) -> Iterator[Row]:
    """One request at a time, each sent direct and through the gateway in turn; median and p99 of each round."""
    end = offsets[0][1]
    with lanes(bench.kafka.bootstrap, topic) as (direct,), lanes(bench.gateway.bootstrap, topic) as (through,):
        for name in ("Fetch at the high watermark", "Metadata"):
            taken = []
            for _ in range(-1, rounds):
                times: dict[str, list[float]] = {"direct": [], "through": []}
                for _ in range(_REQUESTS):
                    for side, way in (("direct", direct), ("through", through)):
                        call = way.metadata() if name == "Metadata" else way.fetch(0, end)
                        times[side].append(way.timed(call))
                taken.append({side: quantiles(some, n=100) for side, some in times.items()})
            for percent, target in ((50, 1.0), (99, 1.0 if name != "Metadata" else None)):
                added = [one["through"][percent - 1] - one["direct"][percent - 1] for one in taken[1:]]
                plain = median(one["direct"][percent - 1] for one in taken[1:])
                note = f"direct {plain:.2f} ms; {_REQUESTS} pairs a round"
                yield Row(f"added to p{percent} of {name}", tuple(added), target, " ms", note)


def measure_locations(bench: Bench, topic: str, offsets: Offsets, rounds: int, answers: int) -> Iterator[Row]:
    """Fetches with the flag at offsets drawn at random, a partition each; by the CPU that the gateway used for them."""
    draw = random.Random(7)
    with lanes(bench.gateway.bootstrap, topic, _CLIENTS) as every:
        for clients, target in ((_CLIENTS, 8000.0), (1, None)):
            rates, walls = [], []
            for index in range(-1, rounds):
                before, began = cpu_s(bench.gateway.pid), time.perf_counter()
                given = _ask_many(every[:clients], offsets, draw, answers)
                rate = given / (cpu_s(bench.gateway.pid) - before)
                if index >= 0:
                    rates.append(rate)
                    walls.append(given / (time.perf_counter() - began))
            note = f"{median(walls):.0f} a second of wall, with client and broker on the same cores"
            shown = f"{clients} clients at a time" if clients > 1 else "one client"
            yield Row(f"locations by gateway CPU second, {shown}", tuple(rates), target, "", note, is_least=True)


@dataclass(slots=True)
class _Side:
    """A gateway with so many workers, and what its rounds took.

    Args:
        pids: of all its processes; the workers are behind the first one.
        used: CPU seconds of each of them.
    """

    every: list[Lane]
    pids: list[int]
    rates: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)


def measure_workers(
    kit: Kit, bench: Bench, place: Path, topic: str, offsets: Offsets, rounds: int, answers: int
) -> Iterator[Row]:
    """The same over many connections, of a gateway with two workers by the one with a single process, in turns."""
    draw = random.Random(7)
    place.mkdir()
    with contextlib.ExitStack() as stack:
        two = stack.enter_context(kit.gateway(place, {**bench.config, "workers": 2}))
        _wait_until_ready(two.metrics_url)
        sides = []
        for gateway, pids in ((bench.gateway, [bench.gateway.pid]), (two, [two.pid, *_children(two.pid)])):
            every = stack.enter_context(lanes(gateway.bootstrap, topic, _CONNECTIONS_OF_WORKERS))
            sides.append(_Side(every, pids, used=[0.0] * len(pids)))
        for index in range(-1, rounds):
            for side in sides if index % 2 else reversed(sides):
                before = [cpu_s(pid) for pid in side.pids]
                given = _ask_many(side.every, offsets, draw, answers)
                used = [cpu_s(pid) - earlier for pid, earlier in zip(side.pids, before, strict=True)]
                if index >= 0:
                    side.rates.append(given / sum(used))
                    side.used = [a + b for a, b in zip(side.used, used, strict=True)]
        one, both = sides
        ratios = tuple(b / a for a, b in zip(one.rates, both.rates, strict=True))
        shares = " and ".join(f"{100 * used / sum(both.used):.0f}" for used in both.used[1:])
        note = f"{shares} % of its CPU by worker, {median(both.rates):.0f} a CPU second; 0.9 is 1.8 x on free cores"
        name = f"locations by CPU second, two workers / one, {_CONNECTIONS_OF_WORKERS} connections"
        yield Row(name, ratios, 0.9, "", note, is_least=True)


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _wait_until_ready(metrics_url: str) -> None:
    ready = metrics_url.removesuffix("/metrics") + "/readyz"
    while urllib3.request("GET", ready, timeout=10.0).status != 200:
        time.sleep(0.1)


def _ask_many(every: list[Lane], offsets: Offsets, draw: random.Random, answers: int) -> int:
    """Ask for about so many locations, one over each connection at a time; returns how many were given."""
    turns = answers // len(every)
    for _ in range(turns):
        _ask(every, offsets, draw)
    return turns * len(every)


def _ask(every: list[Lane], offsets: Offsets, draw: random.Random) -> None:
    pending = []
    for one in every:
        partition = draw.choice(list(offsets))
        call = one.fetch(partition, draw.randrange(*offsets[partition]), wants_locations=True)
        pending.append((one, one.lent.connection.send(call)))
    for one, sent in pending:
        answer = one.lent.connection.receive(sent)
        if answer.partitions[0].location is None:
            raise RuntimeError(f"no location: {answer}")
