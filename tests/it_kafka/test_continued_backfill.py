"""Ten backfills that go on, beside brokers that write, upload and elect: what each target has is what the Java
consumer returns up to where the target ends."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from backfill_runs import files_of as parquet_files
from backfill_runs import offsets_in
from confluent_kafka import Producer
from kafka_kit.clients import Received, Sent, producer, send
from kafka_kit.java import JavaReader
from kafka_kit.racks import Racks
from lake_targets import Target
from servers.process import free_port
from servers.rclone import rclone
from servers.s3 import S3Server

from segreader.stored.near import LEAST_SEGMENTS
from spark_jobs.backfill import main
from spark_jobs.verify import main as verify

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]

ROUNDS = 10
LIVE_ROUNDS = 4
PARTITIONS = 3
SEGMENT = 2000
"""Bytes of a segment: about thirty of the records here, in batches of ten."""
START_MS = 1_700_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FLAGS: dict[str, tuple[str, ...]] = {
    "parquet": (),
    "delta": (),
    "iceberg": ("--partition-by", "partition, bucket(3, key)"),
}


class CountedBucket:
    """A bucket behind a listener that notes what is asked of it.

    Args:
        server: has the bucket.
    """

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self._listener = socket.create_server(("127.0.0.1", free_port()))
        self._asked: list[str] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def endpoint(self) -> str:
        """Where clients find it."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def taken(self) -> list[str]:
        """The requests since the last call: ``GET /bucket/name``."""
        taken, self._asked = self._asked, []
        return taken

    def close(self) -> None:
        """Take no more connections; returns when those that are open have ended, as they do with the server."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        upstream = urlsplit(self.server.endpoint)
        assert upstream.hostname is not None
        assert upstream.port is not None
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((upstream.hostname, upstream.port))
                for way in ((client, server, True), (server, client, False)):
                    self._threads.append(threading.Thread(target=self._pass_on, args=way))
                    self._threads[-1].start()

    def _pass_on(self, one: socket.socket, other: socket.socket, counts: bool) -> None:
        with contextlib.suppress(OSError), one:
            while data := one.recv(1 << 16):
                if counts:  # a client sends its next request when it has the answer: each begins what is received
                    self._asked += [line.decode() for line in re.findall(rb"\A([A-Z]+ \S+) HTTP/1\.1\r\n", data)]
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)


@dataclass
class Writer:
    """What a topic's producers do: plain records, and transactions that end soon, late, or on another leader.

    Args:
        topic: of ``PARTITIONS`` partitions.
    """

    racks: Racks
    topic: str
    number: int = 0
    _open: dict[str, tuple[contextlib.ExitStack, Producer]] = field(default_factory=dict)

    def write(self, count: int, *partitions: int, name: str | None = None, text: bytes = b"plain") -> None:
        """Records for these partitions, of an open transaction or of none."""
        fresh = self._records(count, partitions or tuple(range(PARTITIONS)), text)
        if name is not None:
            send(self._open[name][1], self.topic, fresh)
            return
        with producer(self.racks.steady, batch_num_messages=10) as made:
            send(made, self.topic, fresh)

    def begin(self, name: str) -> None:
        """Open a transaction."""
        stack, whose = contextlib.ExitStack(), f"{self.topic}-{name}"
        fresh = producer(
            self.racks.steady, transactional_id=whose, transaction_timeout_ms=600_000, batch_num_messages=10
        )
        made = stack.enter_context(fresh)
        made.begin_transaction()
        self._open[name] = stack, made

    def end(self, name: str, *, is_kept: bool) -> None:
        """Commit it or abort it."""
        stack, made = self._open.pop(name)
        with stack:
            made.commit_transaction(60.0) if is_kept else made.abort_transaction(60.0)

    def end_all(self) -> None:
        """Abort what is open."""
        for name in list(self._open):
            self.end(name, is_kept=False)

    @contextlib.contextmanager
    def going_on(self, elects: int) -> Iterator[None]:
        """Write in a thread until the block ends, and let the other node lead a partition meanwhile.

        Args:
            elects: which one.
        """
        is_over = threading.Event()
        failed: list[BaseException] = []

        def go_on() -> None:
            try:
                with producer(self.racks.steady, batch_num_messages=10) as made:
                    for turn in itertools.count():
                        send(made, self.topic, self._records(10, range(PARTITIONS), b"meanwhile"))
                        if turn == 3:
                            self.elect(elects)
                        if is_over.wait(0.1):
                            return
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
        assert failed == []

    def elect(self, partition: int) -> None:
        """Let the node lead that does not."""
        (other,) = {2, 3} - {self.racks.leaders.of(self.topic, partition).leader}
        self.racks.leaders.move(self.topic, other, partition)

    def _records(self, count: int, partitions: Sequence[int], text: bytes) -> Iterator[Sent]:
        for _ in range(count):
            for partition in partitions:
                self.number += 1
                number = self.number
                yield Sent(
                    value=None if number % 11 == 0 else text + b"-%d" % number,
                    key=None if number % 3 == 0 else b"key-%d" % number,
                    partition=partition,
                    timestamp_ms=START_MS + number,
                    headers=(("a", b"1"), ("a", None), ("b", b"")) if number % 5 == 0 else (),
                )


@pytest.fixture
def writer(racks: Racks, topic: str) -> Iterator[Writer]:
    """Of a topic that nodes 2 and 3 have."""
    replicas = [[2, 3], [3, 2], [2, 3]][:PARTITIONS]
    racks.cluster.create_topic(topic, replicas=replicas, segment_bytes=SEGMENT)
    made = Writer(racks, topic)
    yield made
    made.end_all()


@pytest.fixture
def bucket(racks: Racks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountedBucket]:
    """The cluster's remote tier, by S3's protocol; its key pair is ``env:TIER``."""
    (tmp_path / "rclone").mkdir()
    with contextlib.ExitStack() as behind, rclone(tmp_path / "rclone", racks.cluster.remote) as server:
        counted = CountedBucket(server)
        behind.callback(counted.close)
        for name, value in server.storage_options.items():
            monkeypatch.setenv(f"TIER_{name.upper()}", counted.endpoint if name == "endpoint_url" else str(value))
        yield counted


@pytest.fixture
def targets(tmp_path: Path) -> list[Target]:
    """One of each kind."""
    return [Target(kind, tmp_path / kind) for kind in FLAGS]


BUCKET = ("--location", "s3://kafka-tiered-storage", "--credentials", "env:TIER")


def run(topic: str, target: Target, *where: str) -> Mapping[int, int]:
    """Let a target go on from there; where each partition of it ends."""
    report = target.place / "report.json"
    how = ["--engine", "local", "--processes", "1", "--continue", "--report", str(report)]
    assert main([*where, "--topic", topic, *target.flags, *FLAGS[target.kind], *how]) == 0
    ends = json.loads(report.read_text())["next_offsets"].get(topic, {})
    return {int(partition): end for partition, end in ends.items()}


def proved(target: Target, *more: str) -> bool:
    """Whether its verification finds nothing: against its ledger, or its segments, too, with ``--source``."""
    return verify([*target.flags, "--engine", "local", *more]) == 0


def records_of(target: Target) -> list[Received]:
    """What a reader of the target sees, by partition and offset: twice what is there twice."""
    found = [
        Received(
            partition=row["partition"],
            offset=row["offset"],
            key=row["key"],
            value=row["value"],
            timestamp_ms=(row["timestamp"] - EPOCH) // (EPOCH.resolution * 1000),
            is_log_append_time=row["timestampType"] == 1,
            headers=tuple((one["key"], one["value"]) for one in row["headers"] or ()),
        )
        for row in target.read().to_pylist()
    ]
    return sorted(found, key=lambda one: (one.partition, one.offset))


def files_of(target: Target) -> dict[str, int]:
    """All that the target is made of, its catalog too, with the times of its files."""
    return {
        str(path): path.stat().st_mtime_ns
        for path in target.place.rglob("*")
        if path.is_file() and path.name != "report.json"
    }


def below(records: list[Received], ends: Mapping[int, int]) -> list[Received]:
    """The records before these offsets."""
    return [one for one in records if one.offset < ends.get(one.partition, 0)]


def segments_of(racks: Racks, topic: str) -> dict[int, list[int]]:
    """The first offset of each segment in the bucket, by partition; a segment that was uploaded twice counts twice."""
    found: dict[int, list[int]] = {}
    for place in Path(racks.cluster.location).glob(f"{topic}-*"):
        partition = int(place.name.removeprefix(f"{topic}-").partition("-")[0])
        found[partition] = sorted(int(log.name[:20]) for log in place.glob("*.log"))
    return found


def most_requests(racks: Racks, topic: str, start: Mapping[int, int]) -> int:
    """How many requests a run may need that goes on from these offsets: so many for a partition whatever its history,
    and so many for each segment that has something new. A short partition is read whole, one whose history is short of
    a proof (see ``segreader.stored.near``), too. One request in twenty may be sent twice, as the store was late.
    """
    most = 2
    for partition, bases in segments_of(racks, topic).items():
        at = start.get(partition, 0)
        new = sum(1 for following in [*bases[1:], at + 1] if following > at)
        is_whole = len(bases) < LEAST_SEGMENTS or len(set(bases)) < len(bases) or 2 * new >= len(bases)
        most += 12 + 3 * new + (2 * len(bases) if is_whole else 0)
    return most + 2 + most // 20


def disturb(writer: Writer, turn: int) -> None:
    """One round of a busy topic: transactions that end at once and some that stay open, and other leaders."""
    one, other = turn % PARTITIONS, (turn + 1) % PARTITIONS
    writer.begin(f"kept-{turn}")
    writer.begin(f"aborted-{turn}")
    writer.write(20, one, other, name=f"kept-{turn}", text=b"kept")
    writer.write(40)
    writer.write(20, one, name=f"aborted-{turn}", text=b"aborted")
    writer.elect(other)
    writer.end(f"kept-{turn}", is_kept=True)
    writer.write(20, one, other)
    writer.end(f"aborted-{turn}", is_kept=False)
    if turn % 3 == 1:  # open until the round after the next, wherever its partition is led then
        writer.begin("long")
        writer.write(15, one, name="long", text=b"long")
    elif turn % 3 == 0:
        writer.write(15, one, name="long", text=b"longer")
        writer.end("long", is_kept=turn % 2 == 0)
    writer.write(60)
    writer.racks.cluster.upload_closed(writer.topic)


def test_ten_continued_runs_have_what_a_consumer_returns(
    writer: Writer, bucket: CountedBucket, targets: list[Target], java: JavaReader, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, racks = writer.topic, writer.racks
    ends: dict[str, Mapping[int, int]] = {target.kind: {} for target in targets}
    for turn in range(1, ROUNDS + 1):
        disturb(writer, turn)
        with writer.going_on(elects=turn % PARTITIONS) if turn % 2 else contextlib.nullcontext():
            for target in targets:
                before = ends[target.kind]
                bucket.taken()
                ends[target.kind] = run(topic, target, *BUCKET)
                asked = bucket.taken()
                assert len(asked) <= most_requests(racks, topic, before), asked
        if not turn % 4:  # nothing is written
            for target in targets:
                there = files_of(target)
                capsys.readouterr()
                assert run(topic, target, *BUCKET) == ends[target.kind]
                assert "nothing new" in capsys.readouterr().out
                assert files_of(target) == there
        truth = java.read(racks.steady, topic)
        for target in targets:
            assert records_of(target) == below(truth, ends[target.kind])
        assert proved(targets[turn % len(targets)])
    assert all(proved(target, "--source") for target in targets)
    assert min(ends["delta"].values()) > 1000
    assert all(offsets == sorted(offsets) for offsets in map(offsets_in, parquet_files(targets[0].files)))


def test_continued_runs_with_brokers_have_what_a_consumer_returned_when_they_began(
    writer: Writer, racks: Racks, targets: list[Target], java: JavaReader
) -> None:
    """Two targets in turn: what one has to catch up with is uploaded in part, and the brokers have the rest."""
    topic, stored = writer.topic, ("--location", racks.cluster.location)
    targets = [target for target in targets if target.kind != "delta"]
    for turn in range(1, LIVE_ROUNDS + 1):
        disturb(writer, turn)
        writer.write(15)
        target, before = targets[turn % len(targets)], java.read(racks.steady, topic)
        with writer.going_on(elects=turn % PARTITIONS):
            ends = run(topic, target, *stored, "--bootstrap-servers", racks.bootstrap)
        records = records_of(target)
        assert records == below(java.read(racks.steady, topic), ends)
        assert set(before) <= set(records)
    writer.end_all()
    racks.cluster.upload(topic)
    truth = java.read(racks.steady, topic)
    for target in targets:  # from brokers or not, they end alike
        run(topic, target, *stored)
        assert records_of(target) == truth
        assert proved(target, "--source")


def test_a_target_whose_history_an_unclean_election_took_away_is_told_and_stays_as_it_is(
    racks: Racks, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One target from the bucket alone, one that has the lost records from the leader that was lost."""
    racks.cluster.create_topic(topic, replicas=[[2, 3]], segment_bytes=SEGMENT)
    writer, stored = Writer(racks, topic), ("--location", racks.cluster.location)
    live = (*stored, "--bootstrap-servers", racks.steady)
    by_bucket, by_brokers = Target("delta", tmp_path / "bucket"), Target("parquet", tmp_path / "brokers")
    writer.write(50, 0)
    try:
        with racks.leaders.frozen(3):
            racks.leaders.wait_for(topic, lambda led: led.in_sync == {2})
            writer.write(200, 0, text=b"lost")
            racks.cluster.upload_closed(topic)
            run(topic, by_bucket, *stored)
            run(topic, by_brokers, *live)
            racks.cluster.node(2).freeze()
            racks.leaders.wait_for(topic, lambda led: led.leader == -1)
        racks.leaders.let_lag_lead(topic, 3)
        writer.write(300, 0, text=b"other")
    finally:
        racks.cluster.node(2).thaw()
        racks.cluster.wait_ready()
    racks.leaders.wait_for(topic, lambda led: led.in_sync == {2, 3})

    def refused(target: Target, where: tuple[str, ...]) -> str:
        there = files_of(target)
        capsys.readouterr()
        arguments = [*where, "--topic", topic, *target.flags, "--engine", "local", "--processes", "1", "--continue"]
        assert main(arguments) == 2
        assert files_of(target) == there
        return capsys.readouterr().err

    history = "is not its history any more; found a log that has offsets up to 50 in common"
    assert history in refused(by_brokers, live)  # the new leader's records are nowhere else yet
    racks.cluster.upload_closed(topic)
    for where in (stored, live):
        for target in (by_bucket, by_brokers):
            assert history in refused(target, where)
