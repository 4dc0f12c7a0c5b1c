"""Locations as people write them. Nothing here asks a network: signing is local, and stores are opened lazily."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import fsspec
import pytest
from servers.google import GoogleServer, google

from segreader.errors import (
    AccessDeniedError,
    LocationExpiredError,
    ObjectChangedError,
    ObjectNotFoundError,
    OptionError,
    PlanError,
    ShortReadError,
    StorageError,
)
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo
from segreader.storage.cloud.failure import storage_error
from segreader.storage.cloud.fsspec_store import FsspecStore
from segreader.storage.cloud.signing import BucketStore, SigningUrls
from segreader.storage.http.settings import HttpSettings
from segreader.storage.local import LocalStore
from segreader.storage.location import open_store

SECRET = "canary-secret-4711"
KEYS = {"key": "AKIACANARYCANARYCANA", "secret": SECRET, "region": "eu-west-1"}
AZURE_KEY = "Y2FuYXJ5LXNlY3JldC00NzEx"


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "SEGREADER_STORAGE_", "STORAGE_EMULATOR")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def signed(store: Any, name: str) -> str:
    text: str = store._signing.url_for(name).reveal()
    return text


@pytest.mark.parametrize("form", ["{}", "{}/", "file:{}", "file://{}", "file://localhost{}", "FILE://{}"])
def test_a_directory_is_a_store_above_it_and_a_prefix_that_names_it(tmp_path: Path, form: str) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "a").write_bytes(b"12")
    store, prefix = open_store(form.format(tmp_path / "orders-0"))
    assert isinstance(store, LocalStore)
    assert [(info.name, info.size) for info in store.list(prefix)] == [("orders-0/a", 2)]
    assert store.url("orders-0/a") == str(tmp_path / "orders-0" / "a")


def test_a_relative_directory_is_seen_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_bytes(b"")
    store, prefix = open_store(".")
    assert [info.name for info in store.list(prefix)] == [f"{tmp_path.name}/a"]


def test_a_file_and_a_missing_directory_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(PlanError, match="a location is a directory"):
        open_store(tmp_path / "a")
    with pytest.raises(ObjectNotFoundError, match="no such directory"):
        open_store(tmp_path / "no")


@pytest.mark.parametrize("location", ["s3://logs/a/b", "s3a://logs/a/b/", "S3://logs/a/b"])
def test_an_s3_location_is_a_bucket_and_a_prefix(location: str) -> None:
    store, prefix = open_store(location, storage_options=KEYS)
    assert prefix == "a/b/"
    assert store.url("a/b/c d") == "s3://logs/a/b/c d"
    assert signed(store, "a/b/c d").startswith("https://logs.s3.eu-west-1.amazonaws.com/a/b/c%20d?X-Amz-Algorithm=AWS4")
    assert open_store("s3://logs", storage_options=KEYS)[1] == ""


def test_an_endpoint_of_ones_own_is_asked_path_style_and_may_be_http() -> None:
    options = {**KEYS, "endpoint_url": "http://minio.corp:9000"}
    store, _ = open_store("s3://logs/a", storage_options=options)
    assert signed(store, "a/b").startswith("http://minio.corp:9000/logs/a/b?")
    store, _ = open_store("s3://logs/a", storage_options={**options, "addressing_style": "virtual"})
    assert signed(store, "a/b").startswith("http://logs.minio.corp:9000/a/b?")


def test_who_pays_is_signed_and_sent() -> None:
    store, _ = open_store("s3://logs/a", storage_options={**KEYS, "requester_pays": True})
    assert "SignedHeaders=host%3Bx-amz-request-payer&" in signed(store, "a/b")
    assert isinstance(store, BucketStore)
    assert store._settings.extra_headers == {"x-amz-request-payer": "requester"}


def test_aws_own_files_may_choose_an_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("[profile acme]\nendpoint_url = https://minio.corp\nregion = eu-west-1\n")
    (tmp_path / "credentials").write_text(f"[acme]\naws_access_key_id = AK\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    store, _ = open_store("s3://logs/a", storage_options={"profile": "acme", "region": "eu-west-1"})
    assert signed(store, "a/b").startswith("https://minio.corp/logs/a/b?")


def test_a_public_bucket_is_read_by_plain_urls() -> None:
    store, _ = open_store("s3://logs/a", storage_options={"anon": True, "region": "eu-west-1"})
    assert signed(store, "a/b") == "https://logs.s3.eu-west-1.amazonaws.com/a/b"
    store, _ = open_store("abfs://logs/a", storage_options={"anon": True, "account_name": "acme"})
    assert signed(store, "a/b c") == "https://acme.blob.core.windows.net/logs/a/b%20c"
    store, _ = open_store("gs://logs/a", storage_options={"anon": True})
    assert signed(store, "a/b c") == "https://storage.googleapis.com/logs/a/b%20c"


@pytest.mark.parametrize(
    "location",
    [
        "abfss://logs@acme.dfs.core.windows.net/a",
        "wasbs://logs@acme.blob.core.windows.net/a",
        "abfs://acme.dfs.core.windows.net/logs/a",
        "az://logs/a",
    ],
)
def test_an_azure_location_names_container_and_perhaps_account(location: str) -> None:
    options = {"account_key": AZURE_KEY, **({"account_name": "acme"} if location.startswith("az") else {})}
    store, prefix = open_store(location, storage_options=options)
    assert prefix == "a/"
    assert store.url("a/b") == "abfs://logs/a/b"
    assert signed(store, "a/b").startswith("https://acme.blob.core.windows.net/logs/a/b?s")


def test_a_shared_access_signature_is_used_as_it_was_given() -> None:
    sas = "sv=2024-11-04&se=2001-01-01T00%3A00%3A00Z&sp=rl&sig=canary%3D"
    store, _ = open_store("az://logs/a", storage_options={"account_name": "acme", "sas_token": f"?{sas}"})
    assert isinstance(store, BucketStore)
    assert signed(store, "a/b") == f"https://acme.blob.core.windows.net/logs/a/b?{sas}"
    with pytest.raises(LocationExpiredError, match="no others are found") as caught:
        store._signing.refresh("a/b")
    assert "canary" not in str(caught.value)


def test_google_signs_with_a_service_accounts_key_alone() -> None:
    key = GoogleServer().service_account_key()
    store, prefix = open_store("gs://logs/a", storage_options={"service_account_key": key})
    assert prefix == "a/"
    url = signed(store, "a/b c")
    assert url.startswith("https://storage.googleapis.com/logs/a/b%20c?X-Goog-Algorithm=GOOG4-RSA-SHA256")
    assert isinstance(store, BucketStore)
    assert store._signing.url_for("a/b c").expires_at is not None


@pytest.mark.parametrize("is_public", [False, True])
def test_a_google_bucket_is_listed_by_pages_and_read_by_urls(is_public: bool) -> None:
    with google() as server:
        server.is_public = is_public
        server.objects = {f"a/{name}": b"0123456789" for name in ("1 +%é", "2", "3", "dir/", "z")} | {"b": b""}
        options: dict[str, object] = {"anon": True} if is_public else {"token": server.service_account_key()}
        store, prefix = open_store("gs://segments/a", storage_options={**options, "endpoint_url": server.endpoint})
        with closing(store):
            listed = [(info.name, info.size) for info in store.list(prefix)]
            assert listed == [(f"a/{name}", 10) for name in ("1 +%é", "2", "3", "z")]
            assert sum("/o?" in line for line in server.requests) == 3
            assert store.read_ranges("a/1 +%é", [ByteRange(2, 5)]) == [b"234"]
            with pytest.raises(ObjectNotFoundError):
                store.size("a/no")


def test_a_google_bucket_that_is_not_public_is_denied_with_a_hint() -> None:
    with google() as server:
        store, _ = open_store("gs://segments/a", storage_options={"anon": True, "endpoint_url": server.endpoint})
        with closing(store):
            with pytest.raises(AccessDeniedError, match="Set token"):
                list(store.list())
            with pytest.raises(AccessDeniedError):
                store.size("a")


def test_a_bucket_that_cannot_sign_is_read_through_fsspec() -> None:
    store, prefix = open_store(
        "abfs://logs/a",
        storage_options={"account_name": "acme", "tenant_id": "t", "client_id": "c", "client_secret": SECRET},
    )
    assert isinstance(store, FsspecStore)
    assert (store.url("a/b"), prefix) == ("abfs://logs/a/b", "a/")
    store.close()


@pytest.mark.parametrize(
    "location",
    [
        f"s3://AKIA:{SECRET}@logs/a",
        "s3://",
        "s3:///a",
        "abfss://logs@elsewhere.example/a",
        f"https://logs.s3.amazonaws.com/a?X-Amz-Signature={SECRET}",
        "no-such-store://a",
    ],
)
def test_a_location_that_is_none_is_refused_without_its_secrets(location: str) -> None:
    with pytest.raises(OptionError) as caught:
        open_store(location)
    assert SECRET not in str(caught.value)


def test_no_credentials_at_all_are_said_so_with_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    store, prefix = open_store("s3://logs/a", storage_options={"endpoint_url": "http://127.0.0.1:9"})
    with closing(store):
        for attempt in (lambda: list(store.list(prefix)), lambda: store.size("a/b")):
            with pytest.raises(
                AccessDeniedError, match=r"no usable credentials.*storage_options \(--storage-option key="
            ):
                attempt()
    with pytest.raises(AccessDeniedError, match="no-such-profile"):
        open_store("s3://logs/a", storage_options={"profile": "no-such-profile"})[0].size("a")


def test_options_of_another_store_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="account_key is for Azure"):
        open_store("s3://logs/a", storage_options={"account_key": "x"})
    with pytest.raises(OptionError):
        open_store(tmp_path, storage_options={"key": "x", "secret": "y"})


@pytest.mark.parametrize("location", ["s3://logs/a", "abfs://logs/a", "memory://logs/a"])
def test_an_opened_store_is_not_pickled_and_shows_no_secret(location: str) -> None:
    keys = {"s3": KEYS, "ab": {"account_name": "a", "account_key": AZURE_KEY}}
    options = keys.get(location[:2], {})
    store, _ = open_store(location, storage_options=options)
    for part in (store, getattr(store, "_signing", store)):
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(part)
    assert SECRET not in f"{store!r} {getattr(store, '_signing', None)!r} {store.url('a')}"


class Bucket:
    """A bucket whose credentials are counted."""

    base = "s3://logs/"
    headers: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.searches = 0
        self.end: float | None = None

    def pages(self, prefix: str, *, is_level: bool = False) -> Any:
        yield [ObjectInfo("a/", 0), ObjectInfo("a/1", 1)]
        raise PermissionError(f"denied: https://logs/?X-Amz-Signature={SECRET}")

    def sign(self, name: str, life_s: int) -> str:
        return f"https://logs/{name}?X-Amz-Date=20260101T000000Z&X-Amz-Expires={life_s}&n={self.searches}"

    def credentials_end(self) -> float | None:
        return self.end

    def find_credentials(self) -> None:
        self.searches += 1

    def opens_more(self) -> str | None:
        return None

    def hint(self) -> str:
        return "set key and secret"


START = 1767225600.0  # 2026-01-01


def test_a_url_ends_with_its_credentials_if_they_end_first() -> None:
    bucket = Bucket()
    urls = SigningUrls(bucket, life_s=3600, clock=lambda: START)
    assert urls.url_for("a").expires_at == START + 3600
    bucket.end = START + 600
    assert urls.url_for("a").expires_at == START + 600


def test_many_refused_urls_look_for_credentials_once() -> None:
    bucket, now = Bucket(), [START]
    urls = SigningUrls(bucket, clock=lambda: now[0])
    assert {urls.refresh(f"{number}").reveal()[-3:] for number in range(20)} == {"n=1"}
    assert bucket.searches == 1
    now[0] += 11
    urls.refresh("a")
    assert bucket.searches == 2


def test_a_listing_gives_what_a_page_holds_before_the_next_page_fails() -> None:
    listed = SigningUrls(Bucket()).names("a")
    assert next(listed) == ObjectInfo("a/1", 1)
    with pytest.raises(AccessDeniedError, match="set key and secret") as caught:
        next(listed)
    assert SECRET not in str(caught.value)


def test_what_clients_raise_becomes_our_errors() -> None:
    class NoCredentialsError(Exception):
        pass

    class HttpError(Exception):
        code = 403

    kinds = {
        FileNotFoundError("x"): ObjectNotFoundError,
        PermissionError("x"): AccessDeniedError,
        NoCredentialsError(): AccessDeniedError,
        HttpError("x"): AccessDeniedError,
        TimeoutError(): StorageError,
        KeyError(f"https://u:{SECRET}@host/?sig={SECRET}"): StorageError,
    }
    for error, kind in kinds.items():
        ours = storage_error(error, "s3://logs/a", "set key")
        assert type(ours) is kind
        assert SECRET not in str(ours)
        assert ours.source == "s3://logs/a"


class Odd(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A filesystem that does what it is told: wrong lengths, and an object that changes."""

    cachable = False
    protocol = "odd"

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self.reads = 0

    def info(self, path: str, **_: object) -> dict[str, object]:
        tag = self.reads if self.mode == "changing" else 0
        return {"name": path, "size": 100, "type": "file", **({"etag": f"v{tag}"} if self.mode != "plain" else {})}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        self.reads += 1
        assert start is not None
        assert end is not None
        return bytes(end - start - (self.mode == "short"))


def test_fsspecs_answers_are_checked() -> None:
    with closing(FsspecStore(Odd("short"), "odd://")) as store, pytest.raises(ShortReadError, match="found 9 bytes"):
        store.read_ranges("a", [ByteRange(0, 10)])
    with closing(FsspecStore(Odd("changing"), "odd://", piece_size=10)) as store:
        with pytest.raises(ObjectChangedError, match="etag v"):
            next(store.read_pieces("a", ByteRange(0, 100)))
        with pytest.raises(ObjectChangedError):
            store.read_ranges("a", [ByteRange(0, 10)])


@pytest.mark.parametrize(("mode", "checked"), [("plain", "by its size before"), ("good", "by its size and etag")])
def test_what_cannot_be_checked_is_said_once(caplog: pytest.LogCaptureFixture, mode: str, checked: str) -> None:
    with caplog.at_level(logging.WARNING, "segreader"), closing(FsspecStore(Odd(mode), "odd://")) as store:
        store.read_ranges("a", [ByteRange(0, 10)])
        store.size("a")
    assert len(caplog.messages) == 1
    assert checked in caplog.messages[0]


def test_reading_ahead_is_bounded_and_ends_with_the_reader() -> None:
    filesystem = Odd("good")
    with closing(FsspecStore(filesystem, "odd://", piece_size=1, in_flight=3)) as store:
        with closing(store.read_pieces("a", ByteRange(0, 100))) as pieces:
            next(pieces)
        store.read_ranges("a", [ByteRange(0, 1)])
        assert filesystem.reads <= 1 + 3 + 1


def test_settings_of_tls_reach_the_reader(tmp_path: Path) -> None:
    options = {**KEYS, "ca_file": str(tmp_path / "ca.pem")}
    store, _ = open_store("s3://logs/a", storage_options=options, settings=HttpSettings(tries=2))
    assert isinstance(store, BucketStore)
    assert store._settings.ca_file == str(tmp_path / "ca.pem")
    assert store._settings.tries == 2
