"""Reading on while producers write, segments roll and are uploaded, leaders move and brokers restart.

``SOAK`` is how many seconds it takes, 20 by default; ``make soak`` takes five minutes.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kafka_kit.clients import Received, Sent, producer, send
from kafka_kit.java import JavaReader
from kafka_kit.racks import Racks
from kafka_kit.scanned import scanned

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("cluster")]

SECONDS = float(os.environ.get("SOAK", "20"))
PARTITIONS = 2


class Soak:
    """A topic with writers and readers, each in a thread, until it is told to end."""

    def __init__(self, racks: Racks, topic: str) -> None:
        self.racks, self.topic = racks, topic
        self.is_enough, self.is_written = threading.Event(), threading.Event()
        racks.cluster.create_topic(
            topic, PARTITIONS, replicas=[[2, 3, 1], [3, 2, 1]], segment_bytes=30_000, local_retention_bytes=40_000
        )

    def write_plain(self) -> int:
        """Records that say their partition and their turn."""
        with producer(self.racks.steady, acks="all", batch_num_messages=20) as made:
            for turn in itertools.count():
                if self.is_enough.is_set():
                    return turn
                send(made, self.topic, self._records(b"plain-%d" % turn, 20))
                time.sleep(0.02)
        raise AssertionError

    def write_transactions(self) -> int:
        """Transactions, every other one aborted."""
        with producer(self.racks.steady, transactional_id=self.topic, batch_num_messages=20) as made:
            for turn in itertools.count():
                if self.is_enough.is_set():
                    return turn
                made.begin_transaction()
                send(made, self.topic, self._records(b"transaction-%d" % turn, 20))
                made.abort_transaction(60) if turn % 2 else made.commit_transaction(60)
                time.sleep(0.02)
        raise AssertionError

    def read(self, location: str, partition: int, **options: str) -> list[Received]:
        """Everything, in one scan after the other, each from where the last one ended; one more after the end."""
        found: list[Received] = []
        while True:
            is_last = self.is_written.is_set()
            start = found[-1].offset + 1 if found else 0
            found += scanned(location, self.topic, partitions=partition, offsets=(start, None), **options)
            if is_last:
                return found
            time.sleep(0.05)

    def _records(self, text: bytes, count: int) -> list[Sent]:
        return [
            Sent(value=text + b"-%d" % number, key=b"k%d" % number, partition=number % PARTITIONS)
            for number in range(count)
        ]


def disturb(racks: Racks, topic: str, until: float) -> None:
    """Move leaders and restart brokers in turn; every kind once at least."""
    for node, is_crash in itertools.cycle(((2, False), (3, True))):
        racks.leaders.move(topic, 1, partition=node - 2)
        racks.leaders.move(topic, node, partition=node - 2)
        one = racks.cluster.node(node)
        one.kill() if is_crash else one.stop()
        one.start()
        racks.cluster.wait_ready()
        racks.leaders.wait_for(topic, lambda led: led.in_sync == {1, 2, 3}, partition=node - 2)
        if is_crash and time.monotonic() > until:
            return


def test_no_record_is_lost_or_given_twice_and_all_keep_their_order(racks: Racks, java: JavaReader, topic: str) -> None:
    soak = Soak(racks, topic)
    places: list[tuple[str, dict[str, Any]]] = [
        (f"kafka://{racks.bootstrap}", {}),
        (racks.cluster.location, {"bootstrap_servers": racks.bootstrap}),
    ]
    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor(2 + 2 * PARTITIONS) as threads:
        writers = [threads.submit(work) for work in (soak.write_plain, soak.write_transactions)]
        readers = [
            threads.submit(soak.read, location, number, **options)
            for location, options in places
            for number in range(PARTITIONS)
        ]
        try:
            disturb(racks, topic, until)
        finally:
            soak.is_enough.set()
            turns = [one.result() for one in writers]
            soak.is_written.set()
        found = [one.result() for one in readers]

    truth = java.read(racks.bootstrap, topic)
    assert all(turns)
    assert any(offsets.latest_tiered > 0 for offsets in racks.cluster.offsets(topic).values())
    for number in range(PARTITIONS):
        expected = [one for one in truth if one.partition == number]
        assert found[number] == expected
        assert found[PARTITIONS + number] == expected
        for location, options in places:  # all of it at once, through every epoch and segment
            assert scanned(location, topic, partitions=number, **options) == expected
