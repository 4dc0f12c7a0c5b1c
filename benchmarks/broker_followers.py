"""What reading from a follower costs (KIP-392, KAFKA-9731): how late a record is there, and how fast a scan is.

A follower learns the high watermark from the answer to its own next fetch, which the leader holds back until there are
new records or ``replica.fetch.wait.max.ms`` is over. So a record may be given out at the leader and not yet at the
follower. Two readers follow the same records here, one at the leader, one by ``client.rack`` at a follower.
"""

from __future__ import annotations

import contextlib
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import segreader
from benchmarks.broker_kit import CODEC, SHAPE, Kit
from benchmarks.inputs import BATCH_BYTES, make_batches
from benchmarks.rows import MIB, Row
from segreader.broker.client import BrokerClient
from segreader.broker.messages import LATEST, OffsetWanted
from segreader.broker.partition_fetcher import PartitionFetcher
from segreader.broker.settings import ClientSettings
from segreader.format.batch import parse_batch_header
from segreader.format.compression import Decompressor
from segreader.format.records import iter_records
from segreader.isolation import IsolationLevel
from segreader.live.cluster import KafkaCluster
from segreader.live.scan import LiveScan

_RACKS = {1: "a", 2: "b", 3: "c"}
_LEADER, _FOLLOWER = 1, 2
_WAITS_MS = (500, 50)
_TAIL, _NEIGHBOUR, _ENDS, _BULK = "tail", "neighbour", "ends", "bulk"
_STAMP = struct.Struct(">d")
_PATIENCE_S = 30.0
_WARM_SCANS = 4  # the follower has served nobody before
_JVM = ("-Xmx512m", "-XX:+UseSerialGC")


@dataclass(slots=True)
class Tail:
    """Reads the end of a partition in a thread of its own, and notes when each record came."""

    bootstrap: str
    rack: str
    came: dict[int, float] = field(default_factory=dict)
    sources: set[int] = field(default_factory=set)
    failure: BaseException | None = None
    _is_ready: threading.Event = field(default_factory=threading.Event)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        try:
            with BrokerClient(self.bootstrap, ClientSettings(rack=self.rack)) as client:
                self._read(client)
                self.sources = {node for node, size in client.metrics.fetched_bytes.items() if size}
        except BaseException as error:
            self.failure = error
        finally:
            self._is_ready.set()

    def _read(self, client: BrokerClient) -> None:
        isolation = IsolationLevel.READ_UNCOMMITTED
        (end,) = client.list_offsets([OffsetWanted(_TAIL, 0, LATEST)], isolation)
        with PartitionFetcher(client, _TAIL, 0, end.offset, isolation_level=isolation) as fetcher:
            self._is_ready.set()
            while not self._stopped.is_set():
                data, at = fetcher.poll().records, 0
                while data is not None and at < len(data):
                    header = parse_batch_header(data, at)
                    now = time.perf_counter()
                    for record in iter_records(data[at : at + header.size], Decompressor()):
                        self.came.setdefault(record.offset, now)
                    fetcher.advance(header.next_offset, header.partition_leader_epoch)
                    at += header.size

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The thread, at the end of the partition."""
        thread = threading.Thread(target=self.run, daemon=True)
        thread.start()
        self._is_ready.wait(_PATIENCE_S)
        time.sleep(1)  # the first fetch names the follower
        try:
            yield
        finally:
            self._stopped.set()
            thread.join(_PATIENCE_S)
        if self.failure is not None:
            raise self.failure


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often a record is written, and whether another topic of the same leader is written to meanwhile."""

    name: str
    seconds: float
    records: int
    neighbour_s: float | None = None


_RHYTHMS = (
    Rhythm("1 a second", 1.0, 20),
    Rhythm("10 a second", 0.1, 100),
    Rhythm("100 a second", 0.01, 500),
    Rhythm("1 a second, 50 beside", 1.0, 20, 0.02),
)


def measure_followers(kit: Kit, directory: Path, bulk_bytes: int, rounds: int) -> Iterator[Row]:
    """Three nodes in three racks; all partitions are led by the first one."""
    for wait_ms in _WAITS_MS:
        settings = {
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "replica.fetch.wait.max.ms": str(wait_ms),
            "leader.imbalance.check.interval.seconds": "100000",
        }
        with kit.cluster(
            directory / str(wait_ms),
            nodes=len(_RACKS),
            controllers=1,
            replication=1,
            settings=settings,
            node_settings={number: {"broker.rack": rack} for number, rack in _RACKS.items()},
            jvm=_JVM,
        ) as kafka:
            for topic in (_TAIL, _NEIGHBOUR, _ENDS):
                kafka.create_topic(topic, replicas=[[_LEADER, _FOLLOWER, 3]], segment_bytes=64 * MIB)
            print(f"replica.fetch.wait.max.ms {wait_ms}")
            for rhythm in _RHYTHMS if wait_ms == _WAITS_MS[0] else _RHYTHMS[:1]:
                yield from _tail_rows(kit, kafka.bootstrap, rhythm, wait_ms)
            yield from _end_rows(kit, kafka.bootstrap, 3 * rounds, wait_ms)
            if wait_ms == _WAITS_MS[0]:
                yield from _bulk_rows(kit, kafka, bulk_bytes, 4 * rounds)


def _tail_rows(kit: Kit, bootstrap: str, rhythm: Rhythm, wait_ms: int) -> Iterator[Row]:
    """Milliseconds from the call that writes a record to its arrival, at both readers."""
    tails = Tail(bootstrap, ""), Tail(bootstrap, _RACKS[_FOLLOWER])
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(kit.producer(bootstrap, linger_ms=0))
        _write_stamped(out, 5, 0.1)  # connections and the JVM
        for tail in tails:
            stack.enter_context(tail.running())
        if rhythm.neighbour_s is not None:
            stack.enter_context(_busy(out, rhythm.neighbour_s))
        sent = _write_stamped(out, rhythm.records, rhythm.seconds)
        until = time.monotonic() + _PATIENCE_S
        while any(not sent.keys() <= tail.came.keys() for tail in tails):
            if time.monotonic() > until:
                raise RuntimeError("records did not come to both readers")
            time.sleep(0.05)
    if (found := [tail.sources for tail in tails]) != [{_LEADER}, {_FOLLOWER}]:
        raise RuntimeError(f"the records came from {found}")
    late = [[1000 * (tail.came[offset] - at) for offset, at in sent.items()] for tail in tails]
    shown = f"{rhythm.name}, wait {wait_ms}"
    for name, values in zip(("leader", "follower"), late, strict=True):
        yield Row(f"delivery, {name}: {shown}", tuple(values), None, " ms", f"p99 {_at(values, 0.99):.0f} ms")
    more = tuple(theirs - ours for ours, theirs in zip(*late, strict=True))
    yield Row(
        f"delivery, follower - leader: {shown}", more, None, " ms", f"p90 {_at(more, 0.9):.0f}, {len(more)} records"
    )


def _at(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _write_stamped(out: Any, records: int, seconds: float) -> dict[int, float]:
    """When each record was written, by its offset; the pauses are spread, not to fall in step with a broker's waits."""
    sent: dict[int, float] = {}

    def noted(at: float) -> Callable[[Any, Any], None]:
        return lambda error, message: sent.__setitem__(message.offset(), at)

    draw = random.Random(records)
    for _ in range(records):
        at = time.perf_counter()
        out.produce(_TAIL, _STAMP.pack(at), partition=0, on_delivery=noted(at))
        pause = seconds * draw.uniform(0.7, 1.3)
        until = at + pause
        while (left := until - time.perf_counter()) > 0:
            out.poll(left)
    if out.flush(30) or len(sent) != records:
        raise RuntimeError("the broker does not take all records")
    return sent


@contextlib.contextmanager
def _busy(out: Any, seconds: float) -> Iterator[None]:
    """Another topic is written to until the block ends."""
    stopped = threading.Event()

    def write() -> None:
        while not stopped.wait(seconds):
            out.produce(_NEIGHBOUR, b"value", partition=0)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _end_rows(kit: Kit, bootstrap: str, pairs: int, wait_ms: int) -> Iterator[Row]:
    """Scans to the live end right after the end was written: the plan takes the end from the leader."""
    took: dict[int, list[float]] = {_LEADER: [], _FOLLOWER: []}
    draw = random.Random(7)
    with kit.producer(bootstrap, linger_ms=0) as out:
        for index in range(-1, pairs):
            for node in (_LEADER, _FOLLOWER) if index % 2 else (_FOLLOWER, _LEADER):
                time.sleep(draw.uniform(0.6, 1.2))
                out.produce(_ENDS, b"the last one", partition=0)
                if out.flush(30):
                    raise RuntimeError("the broker does not take the record")
                seconds = _scan(bootstrap, _ENDS, node)
                if index >= 0:
                    took[node].append(1000 * seconds)
    for node, name in ((_LEADER, "leader"), (_FOLLOWER, "follower")):
        yield Row(f"scan to an end just written, {name}: wait {wait_ms}", tuple(took[node]), None, " ms")


def _bulk_rows(kit: Kit, kafka: Any, bulk_bytes: int, rounds: int) -> Iterator[Row]:
    """Scans of a topic that nobody writes to any more."""
    kafka.create_topic(_BULK, replicas=[[_LEADER, _FOLLOWER, 3]], segment_bytes=256 * MIB)
    batches = make_batches(SHAPE, 8 * MIB, BATCH_BYTES)
    log = kafka.nodes[0].config.directory / "data" / f"{_BULK}-0"
    with kit.producer(kafka.bootstrap, codec=CODEC, batch_size=BATCH_BYTES, linger_ms=50) as out:
        while sum(file.stat().st_size for file in log.glob("*.log")) < bulk_bytes:
            for batch in batches:
                for key, value, _headers in batch.records:
                    out.produce(_BULK, value, key, 0)
            if out.flush(120):
                raise RuntimeError("the broker does not take all records")
    stored = sum(file.stat().st_size for file in log.glob("*.log"))
    time.sleep(2)
    took: dict[int, list[float]] = {_LEADER: [], _FOLLOWER: []}
    for index in range(-_WARM_SCANS, rounds):
        for node in (_LEADER, _FOLLOWER) if index % 2 else (_FOLLOWER, _LEADER):
            seconds = _scan(kafka.bootstrap, _BULK, node)
            if index >= 0:
                took[node].append(seconds)
    ratios = tuple(ours / theirs for ours, theirs in zip(took[_LEADER], took[_FOLLOWER], strict=True))
    speeds = [stored / median(took[node]) / 1e6 for node in (_LEADER, _FOLLOWER)]
    note = f"{speeds[0]:.0f} and {speeds[1]:.0f} MB/s as stored, {stored / MIB:.0f} MiB"
    yield Row("throughput of a scan, follower / leader", ratios, None, "x", note)


def _scan(bootstrap: str, topic: str, node: int) -> float:
    """Seconds from the call of a scan to its last record, all from this node."""
    options = {"client.rack": _RACKS[node]}
    began = time.perf_counter()
    with segreader.scan(f"kafka://{bootstrap}", topic=topic, broker_options=options) as scan:
        rows = sum(batch.num_rows for batch in scan.to_batches())
        seconds = time.perf_counter() - began
        assert isinstance(scan, LiveScan)
        assert isinstance(scan.cluster, KafkaCluster)
        fetched = scan.cluster.client.metrics.fetched_bytes
        if not rows or {number for number, size in fetched.items() if size} != {node}:
            raise RuntimeError(f"{rows} rows came from {dict(fetched)}, not from {node}")
    return seconds
