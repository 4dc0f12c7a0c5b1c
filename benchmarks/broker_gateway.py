"""What a gateway adds to a single request, and how many locations it gives in a CPU second."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.broker_kit import Bench, Offsets, cpu_s
from benchmarks.rows import Row
from segreader.broker import api
from segreader.broker.client import BrokerClient
from segreader.broker.connection import Call
from segreader.broker.connection_pool import OpenConnection
from segreader.broker.messages import ClusterMetadata, FetchAnswer, FetchPartition, FetchRequest
from segreader.broker.rules.backoff import Deadline
from segreader.isolation import IsolationLevel

_FOR_MS = 600_000
_REQUESTS = 500
_CLIENTS = 8


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
def lane(bootstrap: str, topic: str) -> Iterator[Lane]:
    """A connection to the only broker, or to the gateway before it."""
    with BrokerClient(bootstrap) as client:
        leader = client.leader(topic, 0).leader_id
        lent = client.connections.lend(leader, Deadline.after(client.now_ms(), _FOR_MS))
        try:
            yield Lane(client, lent, topic)
        finally:
            client.connections.give_back(lent)


def measure_latency(bench: Bench, topic: str, offsets: Offsets, rounds: int) -> Iterator[Row]:
    """One request at a time, each sent direct and through the gateway in turn; medians of each round."""
    end = offsets[0][1]
    with lane(bench.kafka.bootstrap, topic) as direct, lane(bench.gateway.bootstrap, topic) as through:
        for name in ("Fetch at the high watermark", "Metadata"):
            added, plain = [], []
            for index in range(-1, rounds):
                times: dict[str, list[float]] = {"direct": [], "through": []}
                for _ in range(_REQUESTS):
                    for side, way in (("direct", direct), ("through", through)):
                        call = way.metadata() if name == "Metadata" else way.fetch(0, end)
                        times[side].append(way.timed(call))
                if index >= 0:
                    added.append(median(times["through"]) - median(times["direct"]))
                    plain.append(median(times["direct"]))
            note = f"direct {median(plain):.2f} ms; {_REQUESTS} pairs a round"
            yield Row(f"added to p50 of {name}", tuple(added), 1.0, " ms", note)


def measure_locations(bench: Bench, topic: str, offsets: Offsets, rounds: int, answers: int) -> Iterator[Row]:
    """Fetches with the flag at offsets drawn at random, a partition each; by the CPU that the gateway used for them."""
    draw = random.Random(7)
    with contextlib.ExitStack() as stack:
        lanes = [stack.enter_context(lane(bench.gateway.bootstrap, topic)) for _ in range(_CLIENTS)]
        for clients, target in ((_CLIENTS, 2000.0), (1, None)):
            rates, walls = [], []
            for index in range(-1, rounds):
                before, began = cpu_s(bench.gateway.pid), time.perf_counter()
                for _ in range(answers // clients):
                    _ask(lanes[:clients], offsets, draw)
                rate = answers // clients * clients / (cpu_s(bench.gateway.pid) - before)
                if index >= 0:
                    rates.append(rate)
                    walls.append(answers / (time.perf_counter() - began))
            note = f"{median(walls):.0f} a second of wall, with client and broker on the same cores"
            shown = f"{clients} clients at a time" if clients > 1 else "one client"
            yield Row(f"locations by gateway CPU second, {shown}", tuple(rates), target, "", note, is_least=True)


def _ask(lanes: list[Lane], offsets: Offsets, draw: random.Random) -> None:
    pending = []
    for one in lanes:
        partition = draw.choice(list(offsets))
        call = one.fetch(partition, draw.randrange(*offsets[partition]), wants_locations=True)
        pending.append((one, one.lent.connection.send(call)))
    for one, sent in pending:
        answer = one.lent.connection.receive(sent)
        if answer.partitions[0].location is None:
            raise RuntimeError(f"no location: {answer}")
