"""What a worker keeps between tasks: how often a client is opened, and what a second task still asks for."""

from __future__ import annotations

import gc
import json
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from growing_log import GrowingLog
from servers.google import GoogleServer, google

from segreader.backfill.job_plan import JobPlan, JobRequest, make_plan
from segreader.backfill.output import OutputOptions
from segreader.backfill.task import Destination, SplitTask
from segreader.spark import worker
from segreader.spark.batch import SegmentReader
from segreader.spark.locations import kept_locations
from segreader.spark.options import parse_options
from segreader.spark.worker import Clients, this_worker
from segreader.storage.http import connections
from segreader.storage.http.pacing import HedgePolicy
from segreader.storage.http.store import HttpStore


@dataclass
class Client:
    """One that remembers whether it was closed."""

    is_closed: bool = False
    rests: int = 0

    def close(self) -> None:
        self.is_closed = True

    def rest(self) -> None:
        self.rests += 1


@dataclass
class Maker:
    """Makes clients, and has them all."""

    made: list[Client] = field(default_factory=list)

    def __call__(self) -> Client:
        self.made.append(Client())
        return self.made[-1]


def test_a_client_is_opened_once_for_each_thing_that_it_was_opened_with() -> None:
    clients, make = Clients(4, Client.rest), Maker()
    for secret in ("one", "one", "two"):
        with clients.lend("s3://a", secret, make):
            pass
    first, second = make.made
    assert (first.rests, first.is_closed) == (2, True)
    assert (second.rests, second.is_closed) == (1, False)


def test_a_client_whose_block_failed_is_not_lent_again() -> None:
    clients, make = Clients[Client](4), Maker()
    with pytest.raises(OSError, match="refused"), clients.lend("a", None, make):
        raise OSError("refused")
    with clients.lend("a", None, make) as client:
        assert not client.is_closed
    assert [one.is_closed for one in make.made] == [True, False]


def test_who_wants_no_more_does_no_harm() -> None:
    clients, make = Clients[Client](4), Maker()

    def rows() -> Iterator[int]:
        with clients.lend("a", None, make):
            yield from range(9)

    reading = rows()
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    assert not make.made[0].is_closed
    assert len(clients) == 1


def test_of_too_many_the_one_used_least_recently_is_closed_and_none_that_is_in_use() -> None:
    clients, make = Clients[Client](2), Maker()
    with clients.lend("a", None, make) as in_use:
        for place in ("b", "c", "b", "d"):
            with clients.lend(place, None, make):
                pass
        assert not in_use.is_closed
        assert [client.is_closed for client in make.made] == [False, False, True, False]
    assert in_use.is_closed
    assert len(clients) == 2


def test_two_blocks_at_once_share_a_client_that_forgets_nothing_meanwhile() -> None:
    clients, make = Clients(4, Client.rest), Maker()
    with clients.lend("a", None, make) as client:
        with clients.lend("a", None, make):
            pass
        assert client.rests == 0
    assert client.rests == 1
    assert len(make.made) == 1


def test_a_forked_child_neither_uses_nor_closes_what_its_parent_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, make = this_worker(), Maker()
    with mine.targets.lend("fork", None, make):  # type: ignore[arg-type]
        pass
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    assert this_worker() is not mine
    assert len(this_worker().targets) == 0
    gc.collect()
    monkeypatch.undo()
    assert this_worker() is mine
    assert not make.made[0].is_closed


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GoogleServer]:
    """A bucket with four segments below ``tier``, and its credentials as ``env:LAKE``."""
    log = GrowingLog(tmp_path)
    for _ in range(4):
        log.upload("orders", 0, 100)
    monkeypatch.setattr(worker, "_worker_of", _fresh(worker.Worker()))
    monkeypatch.setattr(HedgePolicy, "delay_s", lambda policy: None)  # requests are counted, on a machine that is busy
    with google() as server:
        server.objects |= {
            f"tier/{path.relative_to(tmp_path)}": path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
        }
        monkeypatch.setenv("LAKE_TOKEN", server.service_account_key())
        monkeypatch.setenv("LAKE_ENDPOINT_URL", server.endpoint)
        yield server


def _fresh(one: worker.Worker) -> Callable[[int], worker.Worker]:
    return lambda process: one


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts of the connections by which bytes are read."""
    hosts: list[str] = []
    connect = connections._PlainConnection.connect

    def counted(self: Any) -> None:
        hosts.append(self.host)
        connect(self)

    monkeypatch.setattr(connections._PlainConnection, "connect", counted)
    return hosts


def options(server: GoogleServer, **more: str) -> dict[str, str]:
    return {"location": f"gs://{server.bucket}/tier", "subscribe": "orders", "credentials": "env:LAKE", **more}


def test_a_second_task_of_a_read_connects_to_nothing_anew(bucket: GoogleServer, connected: list[str]) -> None:
    reader = pickle.loads(pickle.dumps(SegmentReader(parse_options(options(bucket)), ("offset", "value"))))
    splits = reader.partitions()
    asked = []
    del connected[:], bucket.requests[:]
    for split in splits:
        before = len(bucket.requests)
        assert sum(batch.num_rows for batch in reader.read(split)) == 100
        asked.append(len(bucket.requests) - before)
    assert len(connected) == 1
    assert asked == [1] * 4
    assert len(this_worker().stores) == 1


def test_what_a_store_knew_of_an_object_is_not_kept(bucket: GoogleServer) -> None:
    with kept_locations(parse_options(options(bucket))) as locations:
        name = next(info.name for info in locations.store.list("tier/") if info.name.endswith(".log"))
        size = locations.store.size(name)
    bucket.objects[name] += b"more"
    with kept_locations(parse_options(options(bucket))) as locations:
        assert locations.store.size(name) == size + 4


def test_other_credentials_open_another_client(bucket: GoogleServer, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for key in (None, None, bucket.service_account_key()):
        if key is not None:
            monkeypatch.setenv("LAKE_TOKEN", key)
        with kept_locations(parse_options(options(bucket))):
            (kept,) = this_worker().stores._kept.values()
            seen.append(kept.client.store)
    assert seen[0] is seen[1]
    assert seen[1] is not seen[2]
    assert isinstance(seen[0], HttpStore)
    assert seen[0]._is_closed


def plan_of(server: GoogleServer) -> JobPlan:
    chosen = options(server, includeHeaders="true")
    return make_plan(JobRequest(wanted=chosen, options=chosen, output=OutputOptions(), split_bytes=1))


def test_a_second_task_of_a_job_proves_nothing_anew(bucket: GoogleServer, connected: list[str]) -> None:
    plan = plan_of(bucket)
    target = Destination(f"gs://{bucket.bucket}/out", "env:LAKE")
    task: SplitTask = pickle.loads(pickle.dumps(SplitTask(plan.options, plan.output, target, plan.splits)))
    asked = []
    del connected[:]
    for index in range(len(plan.splits)):
        before = len(bucket.requests)
        (entry,) = task([index])
        assert json.loads(entry)["split"] == plan.splits[index].id
        asked.append([line.partition(" ")[0] for line in bucket.requests[before:]])
    # Is it done? The segment; the file; the entry. Before the first entry of a target: does it keep its conditions?
    assert [len(lines) for lines in asked[1:]] == [4, 4, 4]
    assert len(asked[0]) > 4
    assert len(connected) == 1
    assert len([name for name in bucket.objects if name.startswith("out/orders/0/")]) == 4
