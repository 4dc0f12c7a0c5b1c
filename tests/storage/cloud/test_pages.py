"""Listings cost the pages of what was asked for, and the memory of one page."""

from __future__ import annotations

import tracemalloc
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from fsspec import AbstractFileSystem
from servers.google import GoogleServer, google
from servers.pool import ServerPool
from servers.swift import PAGE

from segreader.errors import AccessDeniedError, StorageError
from segreader.storage.base import ObjectInfo, ObjectStore
from segreader.storage.cloud.fsspec_store import FsspecStore
from segreader.storage.cloud.pages import entries, modified_ms
from segreader.storage.cloud.signing import BucketStore, S3Bucket
from segreader.storage.location import open_store

pytestmark = pytest.mark.xdist_group("servers")

TOPICS, FILES = 40, 1000


class S3FileSystem:
    """As much of s3fs as lists: names are made when they are asked for, a thousand a page."""

    def __init__(self) -> None:
        self.req_kw: dict[str, str] = {}
        self.asked: list[str] = []

    def call_s3(
        self, _: str, *, Bucket: str, Prefix: str, Delimiter: str = "", ContinuationToken: str = ""
    ) -> dict[str, Any]:
        self.asked.append(Prefix)
        if len(self.asked) > 1 and "denied" in Prefix:
            raise PermissionError("denied: https://b/?X-Amz-Signature=canary-4711")
        start = bisect_left(NUMBERS, Prefix, key=key_of)
        stop = bisect_left(NUMBERS, Prefix + "\uffff", key=key_of)
        more: dict[str, Any] = {}
        if Delimiter and "/" not in Prefix:
            return {"CommonPrefixes": [{"Prefix": f"t{number:03}/"} for number in range(start // FILES, stop // FILES)]}
        start = int(ContinuationToken or start)
        if start + 1000 < stop:
            more = {"IsTruncated": True, "NextContinuationToken": str(start + 1000)}
        numbers = NUMBERS[start : min(start + 1000, stop)]
        return {"Contents": [{"Key": key_of(number), "Size": number} for number in numbers], **more}


NUMBERS = range(TOPICS * FILES)


def key_of(number: int) -> str:
    return f"t{number // FILES:03}/{number % FILES:020}.log"


def signed(filesystem: Any) -> ObjectStore:
    return BucketStore(S3Bucket(filesystem, "b"))


def through_fsspec(filesystem: Any) -> ObjectStore:
    return FsspecStore(filesystem, "s3://b/", root="b/")


@pytest.fixture(params=[signed, through_fsspec])
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[ObjectStore, S3FileSystem]]:
    filesystem = S3FileSystem()
    with closing(request.param(filesystem)) as store:
        yield store, filesystem


def test_a_level_asks_for_the_pages_of_its_directory_alone(opened: tuple[ObjectStore, S3FileSystem]) -> None:
    store, filesystem = opened
    assert sum(1 for _ in store.list_level("t007/")) == FILES
    assert filesystem.asked == ["t007/"]
    assert [info.name for info in store.list_level("t01")] == [f"t{number:03}/" for number in range(10, 20)]
    assert filesystem.asked == ["t007/", "t01"]


def test_a_narrowed_listing_asks_for_what_begins_so(opened: tuple[ObjectStore, S3FileSystem]) -> None:
    store, filesystem = opened
    assert len(list(store.list("t007/0000000000000000099"))) == 10
    assert len(list(store.list("t01"))) == 10 * FILES
    assert filesystem.asked == ["t007/0000000000000000099"] + ["t01"] * 10


def test_a_listing_asks_for_a_page_when_the_one_before_is_used_up(opened: tuple[ObjectStore, S3FileSystem]) -> None:
    store, filesystem = opened
    listed = store.list()
    for _ in range(1000):
        next(listed)
    assert len(filesystem.asked) == 1
    next(listed)
    assert len(filesystem.asked) == 2


def test_a_whole_bucket_is_listed_in_the_memory_of_a_page(opened: tuple[ObjectStore, S3FileSystem]) -> None:
    store, _ = opened
    list(store.list("t000/"))  # what the first call imports and keeps
    tracemalloc.start()
    try:
        assert sum(1 for _ in store.list()) == len(NUMBERS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000  # all 40 000 would be 13 MB


def test_a_page_that_is_refused_is_our_error_without_the_secret(opened: tuple[ObjectStore, S3FileSystem]) -> None:
    store, _ = opened
    assert list(store.list_level("nothing")) == []
    for attempt in (store.list, store.list_level):
        with pytest.raises(AccessDeniedError) as caught:
            list(attempt("denied"))
        assert "canary" not in str(caught.value)


def test_a_directory_that_ends_one_page_and_begins_the_next_is_given_once() -> None:
    pages: list[list[ObjectInfo]] = [
        [ObjectInfo("a/", -1), ObjectInfo("b", 1)],
        [],
        [ObjectInfo("b/", -1)],
        [ObjectInfo("b/", -1), ObjectInfo("b/", 0), ObjectInfo("c", 1)],
    ]
    assert [info.name for info in entries(iter(pages), nullcontext)] == ["a/", "b", "b/", "c"]


def test_a_listing_that_does_not_go_on_is_an_error() -> None:
    class Stuck(S3FileSystem):
        def call_s3(self, _: str, **__: str) -> dict[str, Any]:
            return {"IsTruncated": True, "NextContinuationToken": "1"}

    with closing(signed(Stuck())) as store, pytest.raises(StorageError, match="same page"):
        list(store.list())


def test_levels_of_several_pages_are_whole_and_in_order_at_swift(servers: ServerPool) -> None:
    server = servers.get("swift")
    directories = [f"paged/{number:04}/" for number in range(PAGE + 5)]
    server.upload({f"{name}x": b"1" for name in directories} | {"paged/0002": b"", "paged/0002.a": b""})
    store, prefix = open_store("s3://segments/paged", storage_options=server.storage_options)
    with closing(store):
        assert [info.name for info in store.list_level(prefix)] == sorted([*directories, "paged/0002", "paged/0002.a"])


class SmallPages:
    """An object whose methods that list give small pages; everything else is as it was."""

    def __init__(self, inner: Any, counts: list[str]) -> None:
        self._inner = inner
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "service_client":
            return SmallPages(found, self._counts)
        if name == "get_container_client":
            return lambda container: SmallPages(found(container), self._counts)
        if name in ("walk_blobs", "list_blobs"):
            return lambda **given: self._counted(found(**given, results_per_page=3))
        if name == "call_s3":

            def call(method: str, **given: Any) -> Any:
                self._counts.append(given["Prefix"])
                return found(method, **given, MaxKeys=3)

            return call
        return found

    def _counted(self, paged: Any) -> Any:
        self._counts.append("")
        return paged


@pytest.mark.parametrize("name", ["moto", "azurite", "rclone"])
def test_small_pages_give_what_one_large_page_gives(servers: ServerPool, name: str) -> None:
    server = servers.get(name)
    names = [f"small/{directory}{file}" for directory in ("", "a/", "a.b/", "b/c/", "d/") for file in range(4)]
    server.upload(dict.fromkeys(names, b"1"))
    scheme, bucket = ("abfs", server.container) if name == "azurite" else ("s3", server.bucket)
    store, prefix = open_store(f"{scheme}://{bucket}/small", storage_options=server.storage_options)
    with closing(store):
        before = list(store.list(prefix)), list(store.list_level(prefix))
        counts: list[str] = []
        signing = store._signing.bucket  # type: ignore[attr-defined]
        signing._filesystem = SmallPages(signing._filesystem, counts)
        assert (list(store.list(prefix)), list(store.list_level(prefix))) == before
        assert [info.name for info in before[0]] == sorted(names)
        assert [info.name for info in before[1]] == sorted(
            [*(f"small/{file}" for file in range(4)), "small/a/", "small/a.b/", "small/b/", "small/d/"]
        )
        assert counts


def google_stores(server: GoogleServer) -> Iterator[ObjectStore]:
    store, _ = open_store(
        "gs://segments", storage_options={"token": server.service_account_key(), "endpoint_url": server.endpoint}
    )
    yield store
    filesystem = store._signing.bucket._filesystem  # type: ignore[attr-defined]
    yield FsspecStore(filesystem, "gs://segments/", root="segments/")


def test_google_is_asked_for_the_pages_of_one_level() -> None:
    with google() as server:
        small = ["t/1.log", "t/2.log", "t/3.log", "t/d/x", "t/e/y", "t.a"]
        server.objects = dict.fromkeys((*small, *(f"big/{number}" for number in range(50))), b"0123456789")
        for store in google_stores(server):
            with closing(store):
                server.prefixes.clear()
                found = list(store.list_level("t/"))
                assert [info.name for info in found] == ["t/1.log", "t/2.log", "t/3.log", "t/d/", "t/e/"]
                assert [info.size for info in found] == [10, 10, 10, -1, -1]
                assert found[0].modified_ms == 1767323045678
                assert server.prefixes == ["t/"] * 3
                assert [info.name for info in store.list("t")] == sorted(small)
                assert [info.name for info in store.list_level()] == ["big/", "t.a", "t/"]
                assert server.prefixes == ["t/"] * 3 + ["t"] * 3 + [""] * 2


class Walked(AbstractFileSystem):  # type: ignore[misc]
    """A filesystem of directories that keeps what it has listed, as hdfs and sftp are."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.tree = {
            "": ["/a", "/a-b", "/a.b", "/b"],
            "/a": ["/a/1", "/a/2"],
            "/b": ["/b/c"],
            "/b/c": ["/b/c/3"],
        }
        self.asked: list[str] = []

    def ls(self, path: str, detail: bool = True, **_: Any) -> Sequence[Any]:
        path = path.rstrip("/")
        self.asked.append(path)
        if path == "/closed":
            raise PermissionError("closed")
        if path not in self.tree:
            raise FileNotFoundError(path)
        self.dircache[path] = [
            {"name": name, "size": 0, "type": "directory"}
            if name in self.tree
            else {"name": name, "size": 7, "type": "file", "mtime": 1.5}
            for name in self.tree[path]
        ]
        return list(self.dircache[path])

    def invalidate_cache(self, path: str | None = None) -> None:
        self.dircache.clear()


def test_directories_of_fsspec_are_walked_level_by_level_and_not_kept() -> None:
    filesystem = Walked()
    with closing(FsspecStore(filesystem, "walked:///", root="/")) as store:
        listed = store.list()
        assert next(listed) == ObjectInfo("a-b", 7, 1500, "mtime:1500")
        assert filesystem.asked == [""]
        assert [info.name for info in listed] == ["a.b", "a/1", "a/2", "b/c/3"]
        assert [info.name for info in store.list_level()] == ["a-b", "a.b", "a/", "b/"]
        filesystem.asked.clear()
        assert [info.name for info in store.list("b/")] == ["b/c/3"]
        assert [info.name for info in store.list_level("a/")] == ["a/1", "a/2"]
        assert list(store.list("no/such/")) == list(store.list_level("a/1/")) == []
        assert filesystem.asked == ["/b", "/b/c", "/a", "/no/such", "/a/1"]
        assert not filesystem.dircache
        with pytest.raises(AccessDeniedError):
            list(store.list("closed/"))


class Found(Walked):
    """As hdfs's, but it lists everything at once, as other clouds' do."""

    def find(self, path: str, **_: Any) -> dict[str, Any]:
        self.asked.append(f"find {path}")
        self.dircache["all"] = []
        return {
            name: {"name": name, "size": None, "type": "file", "LastModified": datetime(2026, 1, 1)}
            for names in self.tree.values()
            for name in [*names, "/b/marker/"]
            if name not in self.tree
        }


def test_a_filesystem_that_finds_all_at_once_is_asked_once() -> None:
    filesystem = Found()
    with closing(FsspecStore(filesystem, "found:///", root="/")) as store:
        listed = list(store.list("b/"))
        assert listed == [ObjectInfo("b/c/3", -1, 1767225600000, "LastModified:1767225600000")]
        assert filesystem.asked == ["find /b"]
        assert not filesystem.dircache


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), 1767225600000),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 1767225600000),
        (datetime(2026, 1, 1, microsecond=1999), 1767225600001),
        ("2026-01-01T00:00:00.5Z", 1767225600500),
        (1.25, 1250),
        ("yesterday", None),
        (float("nan"), None),
        (float("inf"), None),
        (None, None),
        (b"1", None),
    ],
)
def test_times_of_clients_are_milliseconds_or_nothing(value: object, expected: int | None) -> None:
    assert modified_ms(value) == expected
