"""What every store keeps: the same objects, ranges and errors, whatever lies behind it."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import urllib3
from sample import sampled
from servers.objects import tiered_topics
from servers.pool import ServerPool
from servers.swift import PAGE

from segreader.errors import AccessDeniedError, ObjectChangedError, ObjectNotFoundError, ShortReadError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo, ObjectStore
from segreader.storage.cache import CachingStore, DiskCache
from segreader.storage.cloud.fsspec_store import FsspecStore
from segreader.storage.http.settings import HttpSettings
from segreader.storage.http.store import HttpStore, UrlList, UrlListStore
from segreader.storage.local import LocalStore
from segreader.storage.location import open_store
from segreader.storage.metrics import StorageMetrics
from segreader.storage.signed_url import SignedUrl

pytestmark = pytest.mark.xdist_group("servers")

ROOT = "kept/"
MISSING = "kept/odd/not-there.index"
REPLACED = "replaced.log"
PIECE = 64 << 10
SETTINGS = HttpSettings(range_size=PIECE, in_flight=2, hedge_share=0, allow_http=True)
CANARY = "canary-4711"


@cache
def objects() -> dict[str, bytes]:
    """Everything that every store of these tests holds."""
    large = bytes(range(251)) * 2000
    return {
        **{f"{ROOT}tiered/{name}": data for name, data in tiered_topics("txn-span", "nulls").items()},
        "kept/odd/empty.log": b"",
        "kept/odd/large.log": large,
        "kept/odd/one +%41é=~:@()'!*.log": b"0123456789",
        "kept/odd/three/deep/er.log": b"x" * 3000,
    }


@dataclass(frozen=True)
class Kept:
    """One kind of store with all objects in it."""

    open: Callable[[str], tuple[ObjectStore, str]]
    """The store of a location below its root, and the prefix."""
    put: Callable[[Mapping[str, bytes]], None]
    is_listed: bool = True
    """Whether it lists what lies there; a list of URLs lists itself."""


def in_directory(root: Path) -> Kept:
    def put(things: Mapping[str, bytes]) -> None:
        for name, data in things.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / "new").write_bytes(data)
            (root / "new").replace(root / name)

    return Kept(lambda place: open_store(root / place), put)


def in_memory(_: Path) -> Kept:
    import fsspec

    def put(things: Mapping[str, bytes]) -> None:
        for name, data in things.items():
            fsspec.filesystem("memory").pipe_file(f"/contract/{name}", data)

    return Kept(lambda place: open_store(f"memory://contract/{place}", settings=SETTINGS), put)


def in_bucket(server: Any) -> Kept:
    scheme = "abfs" if hasattr(server, "container") else "s3"
    bucket = getattr(server, "container", None) or server.bucket
    return Kept(
        lambda place: open_store(
            f"{scheme}://{bucket}/{place}", storage_options=server.storage_options, settings=SETTINGS
        ),
        server.upload,
    )


def through_fsspec(server: Any) -> Kept:
    def open_(place: str) -> tuple[ObjectStore, str]:
        store, prefix = in_bucket(server).open(place)
        store.close()
        filesystem = store._signing.bucket._filesystem  # type: ignore[attr-defined]
        bucket = getattr(server, "container", None) or server.bucket
        return FsspecStore(filesystem, f"test://{bucket}/", root=f"{bucket}/", piece_size=PIECE), prefix

    return Kept(open_, server.upload)


def by_urls(server: Any) -> Kept:
    def open_(place: str) -> tuple[ObjectStore, str]:
        urls = [SignedUrl(server.signed_url(name)) for name in (*objects(), MISSING, REPLACED)]
        root = next(UrlList(urls[:1]).names()).name.removesuffix(next(iter(objects())))
        return UrlListStore(UrlList(urls), settings=SETTINGS), f"{root}{place}".rstrip("/") + "/"

    return Kept(open_, server.upload, is_listed=False)


KINDS = (
    "local",
    "memory",
    *(f"{how}{name}" for name in ("swift", "moto", "rclone", "azurite") for how in ("", "urls of ", "fsspec over ")),
    "urls of nginx",
)
FURTHER = {f"{how} {name}" for how in ("urls of", "fsspec over") for name in ("swift", "rclone")}
"""They go the ways of moto's, to the same servers as the buckets."""


@pytest.fixture(scope="module")
def filled() -> set[str]:
    """The servers that hold the objects."""
    return set()


@pytest.fixture(scope="module", params=sampled(KINDS, lambda kind: kind not in FURTHER))
def kept(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, servers: ServerPool, filled: set[str]
) -> Kept:
    kind: str = request.param
    how, _, name = kind.rpartition(" ")
    if kind in ("local", "memory"):
        kept = {"local": in_directory, "memory": in_memory}[kind](tmp_path_factory.mktemp("kept"))
    else:
        server = servers.get(name)
        kept = {"": in_bucket, "urls of": by_urls, "fsspec over": through_fsspec}[how](server)
    if name not in filled:
        filled.add(name)
        kept.put(objects())
    return kept


@pytest.fixture(scope="module")
def opened(kept: Kept) -> Iterator[tuple[ObjectStore, str]]:
    """One store for all tests of a kind, and what stands before the names of ``objects``."""
    store, prefix = kept.open(ROOT)
    with closing(store):
        yield store, prefix.removesuffix(ROOT)


def test_every_object_is_listed_in_order_of_name_with_its_size(kept: Kept, opened: tuple[ObjectStore, str]) -> None:
    store, prefix = opened
    listed = [info for info in store.list(prefix + ROOT) if not info.name.endswith(MISSING)]
    assert [info.name.removeprefix(prefix) for info in listed] == sorted(objects())
    if kept.is_listed:
        sizes = [(prefix + name, len(objects()[name])) for name in sorted(objects())]
        assert [(info.name, info.size) for info in listed] == sizes


def test_a_prefix_lists_what_begins_with_it(opened: tuple[ObjectStore, str]) -> None:
    store, prefix = opened
    assert [info.name.removeprefix(prefix) for info in store.list(prefix + "kept/odd/th")] == [
        "kept/odd/three/deep/er.log"
    ]
    assert list(store.list(prefix + "kept/odd/no such")) == []


def level(opened: tuple[ObjectStore, str], prefix: str) -> list[str]:
    store, before = opened
    return [info.name.removeprefix(before) for info in store.list_level(before + prefix)]


def test_a_level_has_the_objects_and_directories_that_lie_there_and_nothing_deeper(
    opened: tuple[ObjectStore, str],
) -> None:
    assert [name for name in level(opened, "kept/odd/") if name != MISSING] == [
        "kept/odd/empty.log",
        "kept/odd/large.log",
        "kept/odd/one +%41é=~:@()'!*.log",
        "kept/odd/three/",
    ]
    tiered = sorted({name.removeprefix("kept/tiered/").partition("/")[0] for name in objects() if "/tiered/" in name})
    assert level(opened, "kept/tiered/") == [f"kept/tiered/{name}/" for name in tiered]
    assert level(opened, "kept/odd/three/deep/") == ["kept/odd/three/deep/er.log"]


def test_a_level_is_narrowed_by_a_part_of_a_name(opened: tuple[ObjectStore, str]) -> None:
    assert level(opened, "kept/o") == ["kept/odd/"]
    assert level(opened, "kept/odd/t") == ["kept/odd/three/"]
    assert level(opened, "kept/odd/three") == ["kept/odd/three/"]
    assert level(opened, "kept/odd/l") == ["kept/odd/large.log"]
    assert level(opened, "kept/odd/large.log") == ["kept/odd/large.log"]


def test_a_level_that_is_not_there_is_empty(opened: tuple[ObjectStore, str]) -> None:
    for prefix in ("kept/no such/", "kept/no such", "kept/odd/large.log/", "kept/odd/three/deep/er.log/", "no/such/"):
        assert level(opened, prefix) == [], prefix
        store, before = opened
        assert list(store.list(before + prefix)) == [], prefix


def test_the_root_is_a_level_too(opened: tuple[ObjectStore, str]) -> None:
    store, before = opened
    top = (before + ROOT).partition("/")[0] + "/"
    found = [info.name for info in store.list_level()]
    assert found.count(top) == 1
    assert all(name.find("/") in (-1, len(name) - 1) for name in found)


def test_levels_one_after_the_other_give_what_a_whole_listing_gives(opened: tuple[ObjectStore, str]) -> None:
    store, before = opened

    def walk(prefix: str) -> Iterator[ObjectInfo]:
        for info in store.list_level(prefix):
            if info.name.endswith("/"):
                assert info.size == -1
                yield from walk(info.name)
            else:
                yield info

    assert list(walk(before + ROOT)) == list(store.list(before + ROOT))


def test_a_time_is_near_the_one_at_which_the_object_was_put(kept: Kept, opened: tuple[ObjectStore, str]) -> None:
    store, before = opened
    (info,) = store.list(before + "kept/odd/large.log")
    if kept.is_listed and not isinstance(store, FsspecStore):
        assert info.modified_ms is not None
    if info.modified_ms is not None:
        assert abs(info.modified_ms / 1000 - time.time()) < 3600


def test_a_location_inside_another_keeps_its_last_directory_in_the_names(kept: Kept) -> None:
    store, prefix = kept.open("kept/odd/three")
    with closing(store):
        assert prefix.endswith("three/")
        names = [info.name for info in store.list(prefix)]
        assert names == [f"{prefix}deep/er.log"]
        assert bytes(store.read_ranges(names[0], [ByteRange(0, 3)])[0]) == b"xxx"


def test_every_byte_of_every_object_is_the_one_that_was_put(opened: tuple[ObjectStore, str]) -> None:
    store, prefix = opened
    for name, data in objects().items():
        assert store.size(prefix + name) == len(data), name
        if data:
            assert store.read_ranges(prefix + name, [ByteRange(0, len(data))]) == [data], name


def test_ranges_come_in_the_order_asked_for_and_may_overlap(opened: tuple[ObjectStore, str]) -> None:
    store, prefix = opened
    data = objects()["kept/odd/large.log"]
    ranges = [ByteRange(len(data) - 1, len(data)), ByteRange(0, 1), ByteRange(100, 200_000), ByteRange(150, 160)]
    assert list(store.read_ranges(prefix + "kept/odd/large.log", ranges)) == [data[r.start : r.stop] for r in ranges]


def test_a_buffer_is_filled(opened: tuple[ObjectStore, str]) -> None:
    store, prefix = opened
    data, buffer = objects()["kept/odd/large.log"], bytearray(150_000)
    store.read_into(prefix + "kept/odd/large.log", 7, memoryview(buffer))
    assert buffer == data[7:150_007]


def test_pieces_follow_each_other_without_a_gap(opened: tuple[ObjectStore, str]) -> None:
    store, prefix = opened
    data, seen = objects()["kept/odd/large.log"], bytearray()
    for piece in store.read_pieces(
        prefix + "kept/odd/large.log", ByteRange(11, len(data) - 3), expected_size=len(data)
    ):
        seen += piece
    assert seen == data[11:-3]


def test_pieces_may_be_left_after_the_first_one(opened: tuple[ObjectStore, str]) -> None:
    store, prefix = opened
    data = objects()["kept/odd/large.log"]
    for _ in range(3):
        with closing(store.read_pieces(prefix + "kept/odd/large.log", ByteRange(0, len(data)))) as pieces:
            assert bytes(next(pieces)) == data[: min(PIECE, len(data))] or len(data) < 1 << 20
    assert store.read_ranges(prefix + "kept/odd/large.log", [ByteRange(5, 8)]) == [data[5:8]]


def test_an_object_that_is_not_there_is_said_to_be_missing(opened: tuple[ObjectStore, str]) -> None:
    store, prefix = opened
    name = prefix + MISSING
    for attempt in (
        lambda: store.size(name),
        lambda: store.read_ranges(name, [ByteRange(0, 1)]),
        lambda: store.read_into(name, 0, memoryview(bytearray(1))),
        lambda: next(store.read_pieces(name, ByteRange(0, 1))),
    ):
        with pytest.raises(ObjectNotFoundError):
            attempt()


@pytest.mark.parametrize("wanted", [ByteRange(8, 12), ByteRange(10, 11), ByteRange(5000, 5001)], ids=str)
def test_a_range_past_the_end_is_a_short_read(opened: tuple[ObjectStore, str], wanted: ByteRange) -> None:
    store, prefix = opened
    name = prefix + "kept/odd/one +%41é=~:@()'!*.log"
    with pytest.raises(ShortReadError):
        store.read_ranges(name, [wanted])
    with pytest.raises(ShortReadError):
        for _ in store.read_pieces(name, wanted):
            pass


def test_an_object_of_another_size_than_listed_is_refused(opened: tuple[ObjectStore, str]) -> None:
    store, prefix = opened
    with pytest.raises(ObjectChangedError):
        next(store.read_pieces(prefix + "kept/odd/large.log", ByteRange(0, 9), expected_size=11))


def test_the_tag_that_is_listed_is_the_tag_that_answers_bear(
    opened: tuple[ObjectStore, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, prefix = opened
    name, data = prefix + "kept/odd/large.log", objects()["kept/odd/large.log"]
    (info,) = store.list(name)
    assert info.tag is not None
    assert [one.tag for one in store.list_level(name)] == [info.tag]
    for module in ("http.range_fetcher", "cloud.fsspec_store"):  # the listing need not be asked again
        monkeypatch.delattr(f"segreader.storage.{module}.find_listed")
    pieces = store.read_pieces(name, ByteRange(1, len(data)), expected_size=len(data), expected_tag=info.tag)
    assert b"".join(map(bytes, pieces)) == data[1:]


def test_an_object_of_the_same_size_that_took_the_name_of_the_listed_one_is_refused(kept: Kept) -> None:
    old, new = bytes(PIECE * 3), b"\1" * (PIECE * 3)
    kept.put({REPLACED: old})
    planner, prefix = kept.open("")
    name = prefix + REPLACED
    with closing(planner):
        (before,) = planner.list(name)
        assert bytes(next(planner.read_pieces(name, ByteRange(0, 9), expected_tag=before.tag))) == old[:9]
        kept.put({REPLACED: new})
        worker, _ = kept.open("")
        with closing(worker):
            (after,) = worker.list(name)
            for wanted in (ByteRange(0, 10), ByteRange(0, len(old))):
                with pytest.raises(ObjectChangedError, match="lan again") as caught:
                    next(worker.read_pieces(name, wanted, expected_size=len(old), expected_tag=before.tag))
                assert (caught.value.found, caught.value.expected) == (after.tag, before.tag)
                seen = bytearray()
                try:
                    for piece in planner.read_pieces(name, wanted, expected_size=len(old), expected_tag=before.tag):
                        seen += piece
                except ObjectChangedError as error:  # perhaps a 412
                    assert "lan again" in (error.hint or "")
                    assert old.startswith(seen)
                else:
                    assert not kept.is_listed  # a list of URLs keeps what it read first
                    assert wanted.size == 10
                    assert seen == old[:10]
            for store in (worker, planner):
                pieces = store.read_pieces(name, ByteRange(0, len(new)), expected_size=len(new), expected_tag=after.tag)
                assert b"".join(map(bytes, pieces)) == new


def test_an_object_replaced_between_two_pieces_is_an_error_or_stays_what_it_was(kept: Kept) -> None:
    old, new = bytes(PIECE * 6), b"\1" * (PIECE * 6)
    kept.put({REPLACED: old})
    store, prefix = kept.open("")
    seen, is_refused = bytearray(), False
    with closing(store):
        try:
            for piece in store.read_pieces(prefix + REPLACED, ByteRange(0, len(old)), expected_size=len(old)):
                seen += piece
                if len(seen) == len(piece):
                    kept.put({REPLACED: new})
        except ObjectChangedError:
            is_refused = True
    assert seen == old[: len(seen)]
    assert is_refused or len(seen) == len(old)


def test_no_store_shows_or_pickles_what_it_signs_with(opened: tuple[ObjectStore, str]) -> None:
    store, prefix = opened
    shown = [repr(store), str(store), store.url(prefix + "kept/odd/large.log")]
    try:
        shown.append(repr(pickle.dumps(store)))
    except TypeError as error:
        shown.append(str(error))
    for text in shown:
        assert CANARY not in text
        assert "Signature" not in text
        assert "sig=" not in text


@pytest.mark.parametrize("name", ["swift", "rclone", "azurite"])
def test_wrong_credentials_are_denied_with_a_hint_and_without_the_secret(servers: ServerPool, name: str) -> None:
    server = servers.get(name)
    server.upload({"denied/one": b"1"})
    if name == "azurite":
        wrong = server.key.replace("Eby8", "AAAA")
        scheme, options = "abfs", {"connection_string": server.connection_string.replace(server.key, wrong)}
    else:
        wrong = "wrong-canary-4711"
        scheme, options = "s3", {**server.storage_options, "secret": wrong}
    store, prefix = open_store(f"{scheme}://segments/denied", storage_options=options, settings=SETTINGS)
    with closing(store):
        for attempt in (
            lambda: list(store.list(prefix)),
            lambda: store.read_ranges(prefix + "one", [ByteRange(0, 1)]),
        ):
            with pytest.raises(AccessDeniedError) as caught:
                attempt()
            assert wrong not in str(caught.value)
            assert wrong not in repr(pickle.dumps(caught.value))
            assert caught.value.hint


class ShortLived:
    """URLs that Swift refuses after a second; each object's next one lives long."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.refreshed: list[str] = []

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return iter(())

    def url_for(self, name: str) -> SignedUrl:
        # Said to live for ever: the store learns of the end by being refused.
        return SignedUrl(self.server.signed_url(name, 1), expires_at=float("inf"))

    def refresh(self, name: str) -> SignedUrl:
        self.refreshed.append(name)
        return SignedUrl(self.server.signed_url(name))


def test_a_url_that_ends_in_the_middle_of_a_read_is_renewed_once_for_all_ranges(servers: ServerPool) -> None:
    server = servers.get("swift")
    data = bytes(range(256)) * 256 * 4
    server.upload({"ends.log": data})
    urls = ShortLived(server)
    settings = HttpSettings(range_size=len(data) // 32, in_flight=16, hedge_share=0, allow_http=True)
    with HttpStore(urls, settings=settings) as store:
        assert store.read_ranges("ends.log", [ByteRange(0, 3)]) == [data[:3]]
        wait_until_refused(server.signed_url("ends.log", 1))
        assert b"".join(store.read_pieces("ends.log", ByteRange(0, len(data)), expected_size=len(data))) == data
    assert urls.refreshed == ["ends.log"]
    assert store.metrics.refreshes == 1


def wait_until_refused(url: str) -> None:
    """Return when a URL that was signed later than another one is refused, and so that one too."""
    until = time.monotonic() + 10
    while urllib3.request("GET", url, retries=False).status != 403:
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_missing_bucket_is_said_so(servers: ServerPool) -> None:
    options = servers.get("moto").storage_options
    store, prefix = open_store("s3://no-such-bucket/x", storage_options=options)
    with closing(store), pytest.raises(ObjectNotFoundError, match="s3://no-such-bucket/x"):
        list(store.list(prefix))


def test_a_listing_longer_than_a_page_is_read_page_by_page_and_can_be_left(servers: ServerPool) -> None:
    server = servers.get("swift")
    names = [f"many/{number:05}" for number in range(PAGE + 5)]
    server.upload(dict.fromkeys(names, b""))
    store, prefix = open_store("s3://segments/many", storage_options=server.storage_options)
    with closing(store):
        listed = store.list(prefix)
        assert next(iter(listed)).name == names[0]
        assert [info.name for info in listed] == names[1:]


def test_a_public_bucket_needs_no_credentials(servers: ServerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    server = servers.get("moto")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    client = server.client()
    client.create_bucket(Bucket="public")
    client.put_object(Bucket="public", Key="a/b c", Body=b"0123456789")
    allow_all = (
        '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"*"}]}'
    )
    client.put_bucket_policy(Bucket="public", Policy=allow_all)
    metrics = StorageMetrics(keep_log=True)
    store, prefix = open_store(
        "s3://public/a",
        storage_options={"anon": True, "endpoint_url": server.endpoint},
        settings=SETTINGS,
        metrics=metrics,
    )
    with closing(store):
        assert [(info.name, info.size) for info in store.list(prefix)] == [("a/b c", 10)]
        assert store.read_ranges("a/b c", [ByteRange(2, 5)]) == [b"234"]
    assert metrics.requests == 1


def test_a_cache_keeps_what_is_listed_with_a_tag(
    kept: Kept, opened: tuple[ObjectStore, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segreader.storage.local._TICK_NS", 3600 * 10**9)  # files of the first test are young, too
    store, prefix = opened
    name = next(name for name in objects() if name.endswith(".timeindex"))
    data = objects()[name]
    for _ in range(2):
        cached = CachingStore(store, DiskCache(tmp_path), lambda _: True)
        listed = {info.name: info for info in cached.list(prefix + ROOT)}
        assert b"".join(cached.read_ranges(prefix + name, [ByteRange(0, len(data))])) == data
        entries = [path for path in tmp_path.rglob("*") if path.is_file()]
        is_young = isinstance(store, LocalStore)
        assert len(entries) == (listed[prefix + name].tag is not None and not is_young)
