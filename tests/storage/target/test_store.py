"""What every target keeps, whatever lies behind it: one winner, nothing half, and what was written.

Swift is no target here: it looks and then writes, so that two writers win now and then.
"""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import pytest
from sample import exhaustive
from servers.google import google
from servers.pool import ServerPool

from segreader.errors import AccessDeniedError, ObjectNotFoundError, OptionError, PlanError, StorageError
from segreader.storage.target.bucket import PART_SIZE
from segreader.storage.target.store import TargetStore, open_target

pytestmark = pytest.mark.xdist_group("servers")

ODD = "_job/done/a é%+41=~:@()'!*#?&.json"
CANARY = "canary-4711"


@dataclass(frozen=True)
class Place:
    """Where targets are opened, and with which options."""

    location: str
    options: dict[str, object]
    is_bucket: bool = True

    def open(self, below: str = "") -> TargetStore:
        return open_target(self.location + below, self.options)


@pytest.fixture(scope="module", params=["local", "moto", "azurite", "google"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    kind: str = request.param
    if kind == "local":
        yield Place(str(tmp_path_factory.mktemp("target")), {}, is_bucket=False)
    elif kind == "google":
        with google() as server:
            options: dict[str, object] = {"token": server.service_account_key(), "endpoint_url": server.endpoint}
            yield Place(f"gs://{server.bucket}", options)
    else:
        servers: ServerPool = request.getfixturevalue("servers")
        server = servers.get(kind)
        server.upload({})
        bucket = f"abfs://{server.container}" if kind == "azurite" else f"s3://{server.bucket}"
        yield Place(bucket, server.storage_options)


@pytest.fixture
def below() -> str:
    """A prefix that no other test writes to."""
    return f"/out {uuid.uuid4().hex[:8]}/x"


@pytest.fixture
def target(place: Place, below: str) -> Iterator[TargetStore]:
    with closing(place.open(below)) as target:
        yield target


def names(target: TargetStore, prefix: str = "") -> list[str]:
    return [info.name for info in target.list(prefix)]


def test_the_first_writer_wins_and_the_second_is_told_and_changes_nothing(target: TargetStore) -> None:
    assert target.put_if_absent(ODD, b"first")
    assert not target.put_if_absent(ODD, b"second")
    assert target.read(ODD) == b"first"
    assert target.put_if_absent(ODD, b"first")
    assert names(target) == [ODD]


def test_of_writers_at_the_same_time_one_wins(place: Place, below: str) -> None:
    targets = [place.open(below) for _ in range(2)]
    for target in targets:
        target.put_if_absent("warm", b"")
    barrier = threading.Barrier(len(targets))

    def write(number: int, name: str) -> bool:
        barrier.wait()
        return targets[number].put_if_absent(name, b"%d" % number)

    with ThreadPoolExecutor(len(targets)) as writers:
        for turn in range(5):
            won = list(writers.map(write, range(len(targets)), [f"done/{turn}"] * len(targets)))
            assert won.count(True) == 1
            assert targets[0].read(f"done/{turn}") == b"%d" % won.index(True)


def test_an_empty_object_is_one(target: TargetStore) -> None:
    assert target.put_if_absent("a/_SUCCESS", b"")
    assert not target.put_if_absent("a/_SUCCESS", b"1")
    target.put("b", b"")
    with target.create("c"):
        pass
    assert [(info.name, info.size) for info in target.list()] == [("a/_SUCCESS", 0), ("b", 0), ("c", 0)]
    assert [target.read(name) for name in names(target)] == [b"", b"", b""]


def test_a_put_replaces(target: TargetStore) -> None:
    for data in (b"first", b"2"):
        target.put(ODD, data)
        assert target.read(ODD) == data


@pytest.mark.parametrize("size", [7, PART_SIZE, exhaustive(PART_SIZE + 1), 2 * PART_SIZE + 11])
def test_what_is_created_holds_all_bytes_and_is_there_at_the_end_alone(target: TargetStore, size: int) -> None:
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    with target.create(ODD) as file:
        for start in range(0, size, 5_000_000):
            assert file.write(memoryview(data)[start : start + 5_000_000]) == min(5_000_000, size - start)
        assert file.tell() == size
        file.flush()
        assert names(target) == []
        with pytest.raises(ObjectNotFoundError):
            target.read(ODD)
    assert [(info.name, info.size) for info in target.list()] == [(ODD, size)]
    assert target.read(ODD) == data


@pytest.mark.parametrize("size", [0, 7, PART_SIZE + 7])
def test_a_create_that_fails_leaves_nothing(target: TargetStore, size: int) -> None:
    with pytest.raises(KeyboardInterrupt), target.create("a/b") as file:
        file.write(bytes(size))
        raise KeyboardInterrupt
    del file  # some files of fsspec write when they are forgotten
    assert names(target) == []
    with pytest.raises(ObjectNotFoundError):
        target.read("a/b")


def test_a_file_that_its_writer_closed_is_created_all_the_same(target: TargetStore) -> None:
    with target.create("a") as file:
        file.write(b"0123456789")
        file.close()
        assert names(target) == []
    assert target.read("a") == b"0123456789"


def test_parquet_is_written_through_it(target: TargetStore) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"offset": list(range(1000))})
    with target.create("a.parquet") as file:
        pq.write_table(table, file)
    assert pq.read_table(pa.BufferReader(target.read("a.parquet"))).equals(table)


def test_several_objects_are_created_at_the_same_time(target: TargetStore) -> None:
    def create(number: int) -> None:
        with target.create(f"t/{number}.parquet") as file:
            file.write(bytes([number]) * (PART_SIZE + number))

    with ThreadPoolExecutor(3) as writers:
        list(writers.map(create, range(3)))
    for number in range(3):
        assert target.read(f"t/{number}.parquet") == bytes([number]) * (PART_SIZE + number)


def test_a_listing_has_what_begins_with_the_prefix_in_order(target: TargetStore) -> None:
    for name in ("_job/done/2", "_job/done/1", "_job/plan.json", "t/0/a", "t/0/b"):
        target.put(name, b"1")
    assert names(target, "_job/done/") == ["_job/done/1", "_job/done/2"]
    assert names(target, "t/0/b") == ["t/0/b"]
    assert names(target, "no") == names(target, "no/such/") == []
    assert names(target) == ["_job/done/1", "_job/done/2", "_job/plan.json", "t/0/a", "t/0/b"]


def test_what_lies_beside_the_location_is_not_in_it(place: Place, below: str, target: TargetStore) -> None:
    beside = place.open(f"{below}y")
    beside.put("a", b"1")
    target.put("b", b"1")
    assert names(target) == ["b"]


def test_deleting_twice_is_deleting_once(target: TargetStore) -> None:
    for name in (ODD, "b", "c"):
        target.put(name, b"1")
    target.delete([ODD, "b", ODD, "never", "never/there"])
    target.delete(["b"])
    assert names(target) == ["c"]


def test_a_move_can_be_repeated_and_where_it_is_not_atomic_there_is_none(place: Place, target: TargetStore) -> None:
    target.put("_staging/a", b"1")
    assert target.has_atomic_move is not place.is_bucket
    if place.is_bucket:
        with pytest.raises(StorageError, match="no atomic move"):
            target.move("_staging/a", "t/a")
        assert names(target) == ["_staging/a"]
    else:
        for _ in range(2):
            target.move("_staging/a", "t/a")
        assert names(target) == ["t/a"]


def test_a_name_that_means_another_one_is_refused(target: TargetStore) -> None:
    for name in ("", "/a", "a/", "a//b", "../a", "a/./b", "a\0", "\ud800", "a" * 1025):
        for attempt in (target.read, lambda name: target.delete([name]), lambda name: target.put(name, b"")):
            with pytest.raises(PlanError, match="not a name"):
                attempt(name)
        with pytest.raises(PlanError), target.create(name):
            pass
        assert names(target) == [], name


def test_a_target_shows_its_location_and_no_secret(below: str, target: TargetStore) -> None:
    target.put("a", b"1")
    assert target.url("a").endswith(f"{below}/a")
    shown = [repr(target), target.url("a")]
    try:
        shown.append(repr(pickle.dumps(target)))
    except TypeError as error:
        shown.append(str(error))
    for text in shown:
        assert CANARY not in text
        assert "AccountKey" not in text


def test_only_stores_that_can_say_who_was_first_are_targets() -> None:
    for location in ("memory://a", "https://a/b", "hdfs://a/b"):
        with pytest.raises(OptionError, match="nothing can be written to this kind of location"):
            open_target(location)
    with pytest.raises(OptionError, match="for S3"):
        open_target("/tmp/x", {"region": "eu-west-1"})


def test_a_store_that_ignores_the_condition_is_refused_before_the_first_object(servers: ServerPool) -> None:
    server = servers.get("rclone")
    server.upload({"other": b"1"})
    target = open_target(f"s3://{server.bucket}/lax", server.storage_options)
    for _ in range(2):
        with pytest.raises(StorageError, match=r"lax/: this store does not keep the condition.*Write to a store"):
            target.put_if_absent("plan.json", b"1")
    target.put("a", b"1")
    assert [info.name for info in target.list()] == ["a"]
    listed = server.client().list_objects_v2(Bucket=server.bucket, Prefix="lax")["Contents"]
    names = [item["Key"] for item in listed]  # rclone may still list the trial's object that was deleted
    assert [name for name in names if ".segreader-" not in name] == ["lax/a"]


@pytest.mark.parametrize("kind", ["moto", "azurite", "google"])
def test_a_bucket_that_is_not_there_is_said_so(servers: ServerPool, kind: str) -> None:
    with ExitStack() as stack:
        if kind == "google":
            server = stack.enter_context(google())
            options: dict[str, object] = {"token": server.service_account_key(), "endpoint_url": server.endpoint}
            _not_there(open_target("gs://no-such-bucket/x", options))
        else:
            url = "abfs://no-such-container/x" if kind == "azurite" else "s3://no-such-bucket/x"
            _not_there(open_target(url, servers.get(kind).storage_options))


def _not_there(target: TargetStore) -> None:
    def create(size: int) -> None:
        with target.create("a") as file:
            file.write(bytes(size))

    attempts: list[Callable[[], Any]] = [
        lambda: create(1),
        lambda: create(PART_SIZE + 1),
        lambda: target.put("a", b""),
        lambda: target.put_if_absent("a", b""),
        lambda: list(target.list()),
    ]
    for attempt in attempts:
        with pytest.raises(
            ObjectNotFoundError, match=r"no such (bucket|container): no-such-.*Create the \1 first"
        ) as caught:
            attempt()
        assert ".segreader-" not in str(caught.value)  # no name that nobody asked for


def test_a_part_that_google_keeps_in_part_is_sent_on_from_there() -> None:
    with google() as server:
        server.keeps_of_a_part = PART_SIZE // 2
        options = {"token": server.service_account_key(), "endpoint_url": server.endpoint}
        data = bytes(range(256)) * ((PART_SIZE * 2 + 512) // 256)
        with closing(open_target("gs://segments/x", options)) as target, target.create("a") as file:
            file.write(data)
        assert server.objects == {"x/a": data}
        assert server.sessions == {}


def test_googles_session_is_ended_with_a_failure_and_not_shown() -> None:
    with google() as server:
        options = {"token": server.service_account_key(), "endpoint_url": server.endpoint}
        target = open_target("gs://segments/x", options)
        with pytest.raises(KeyError), target.create("a") as file:
            file.write(bytes(PART_SIZE + 1))
            assert len(server.sessions) == 1
            raise KeyError
        assert server.sessions == {}
        with pytest.raises(StorageError) as caught, target.create("a") as file:
            file.write(bytes(PART_SIZE + 1))
            server.sessions.clear()
        assert CANARY.split("-")[0] not in str(caught.value)
        assert caught.value.source == "gs://segments/x/a"


def test_s3s_parts_are_given_up_with_a_failure(servers: ServerPool) -> None:
    server = servers.get("moto")
    server.upload({})
    target = open_target(f"s3://{server.bucket}/parts", server.storage_options)

    def uploads() -> list[Any]:
        found: list[Any] = (
            server.client().list_multipart_uploads(Bucket=server.bucket, Prefix="parts/").get("Uploads", [])
        )
        return found

    with pytest.raises(KeyError), target.create("a") as file:
        file.write(bytes(PART_SIZE + 1))
        assert [upload["Key"] for upload in uploads()] == ["parts/a"]
        raise KeyError
    assert uploads() == []


@pytest.mark.parametrize("kind", ["swift", "azurite", "google"])
def test_wrong_credentials_are_denied_with_a_hint_and_without_the_secret(servers: ServerPool, kind: str) -> None:
    if kind == "google":
        with google() as server:
            _denied(open_target("gs://segments/x", {"anon": True, "endpoint_url": server.endpoint}), "anon")
        return
    server = servers.get(kind)
    server.upload({})
    if kind == "azurite":
        wrong = server.key.replace("Eby8", "AAAA")
        text = server.connection_string.replace(server.key, wrong)
        _denied(open_target(f"abfs://{server.container}/x", {"connection_string": text}), wrong)
    else:
        wrong = f"wrong-{CANARY}"
        _denied(open_target(f"s3://{server.bucket}/x", {**server.storage_options, "secret": wrong}), wrong)


def _denied(target: TargetStore, secret: str) -> None:
    def create() -> None:
        with target.create("a") as file:
            file.write(b"1")

    for attempt in (create, lambda: target.put("a", b"1"), lambda: target.put_if_absent("a", b"1")):
        with pytest.raises(AccessDeniedError) as caught:
            attempt()
        assert caught.value.hint is not None
        assert secret not in str(caught.value).replace(caught.value.hint, "")
        assert secret not in repr(caught.value.args)
