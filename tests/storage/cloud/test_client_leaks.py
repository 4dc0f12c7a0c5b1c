"""The clouds' own clients log and quote what they send; what comes out of a store that uses them holds no canary."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import socket
from collections.abc import Iterator

import pytest
from canaries import ACCESS_KEY, CANARIES, everything_logged, leaks, quoting_server, refusing_server, shown

from segreader.errors import AccessDeniedError, ObjectNotFoundError, StorageError
from segreader.ranges import ByteRange
from segreader.storage.http.answer import shown_code
from segreader.storage.location import open_store


@pytest.fixture(scope="module")
def refusing() -> Iterator[str]:
    with refusing_server() as url:
        yield url


SAID = [
    ("s3", 403, "AccessDenied", AccessDeniedError, "the store refuses; found status 403 AccessDenied"),
    ("s3", 403, "InvalidAccessKeyId", AccessDeniedError, "found status 403 InvalidAccessKeyId"),
    ("s3", 403, "RequestTimeTooSkewed", AccessDeniedError, "Set the clock"),
    ("s3", 400, "ExpiredToken", AccessDeniedError, "found status 400 ExpiredToken"),
    ("s3", 400, "NeverHeardOf", StorageError, "found status 400 NeverHeardOf"),
    ("s3", 400, ACCESS_KEY, StorageError, "found status 400"),
    ("s3", 301, "PermanentRedirect", StorageError, "the bucket is in another region"),
    ("s3", 404, "NoSuchBucket", ObjectNotFoundError, "there is no such bucket: bucket"),
    ("azure key", 403, "AuthenticationFailed", AccessDeniedError, "found status 403 AuthenticationFailed"),
    ("azure sas", 403, "AuthorizationFailure", AccessDeniedError, "found status 403 AuthorizationFailure"),
    ("azure key", 400, "InvalidQueryParameterValue", StorageError, "found status 400 InvalidQueryParameterValue"),
    ("azure key", 400, ACCESS_KEY, StorageError, "found status 400"),
    ("azure key", 404, "ContainerNotFound", ObjectNotFoundError, "there is no such container: c"),
    ("gcs", 403, "", AccessDeniedError, "found status 403"),
    ("gcs", 400, "", StorageError, "found status 400"),
    ("gcs", 401, "", AccessDeniedError, "found status 401"),
    ("gcs", 404, "", ObjectNotFoundError, "there is no such bucket: bucket"),
]


def _options(kind: str, endpoint: str) -> tuple[str, str, dict[str, object]]:
    azure = f"DefaultEndpointsProtocol=http;AccountName=a;BlobEndpoint={endpoint}/a"
    key = {"key": CANARIES["key"], "secret": CANARIES["secret"], "token": CANARIES["token"]}
    return {
        "s3": ("s3fs", "s3://bucket/p", {**key, "endpoint_url": endpoint}),
        "azure key": ("adlfs", "az://c/p", {"connection_string": f"{azure};AccountKey={CANARIES['account_key']}"}),
        "azure sas": (
            "adlfs",
            "az://c/p",
            {"connection_string": f"{azure};SharedAccessSignature=sv=1&sig={CANARIES['sas']}"},
        ),
        "gcs": ("gcsfs", "gs://bucket/p", {"token": "anon", "endpoint_url": endpoint}),
    }[kind]  # type: ignore[return-value]


@pytest.mark.parametrize("kind", ["s3", "azure key", "azure sas", "gcs"])
def test_a_cloud_that_refuses_leaks_nothing(kind: str, refusing: str) -> None:
    module, location, options = _options(kind, refusing)
    pytest.importorskip(module)
    out: list[str] = []
    with everything_logged() as logged:
        store, prefix = open_store(location, storage_options=options)
        out += [repr(store), store.url(f"{prefix}k")]
        for read in (
            lambda: list(store.list(prefix)),
            lambda: store.size(f"{prefix}k"),
            lambda: store.read_ranges(f"{prefix}k", [ByteRange(0, 10)]),
            lambda: pickle.dumps(store),
        ):
            with contextlib.suppress(AssertionError), pytest.raises(Exception) as caught:  # noqa: PT011
                read()
            out.append(shown(caught.value))
        store.close()
    assert len(out) == 6
    assert leaks("\n".join(out)) == []
    assert leaks("\n".join(logged)) == []


@pytest.mark.parametrize(("kind", "status", "code", "error", "said"), SAID)
def test_a_listing_shows_the_stores_code_and_none_of_its_text(
    kind: str, status: int, code: str, error: type[StorageError], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with quoting_server(status, code, is_json=kind == "gcs") as quoting:
        module, location, options = _options(kind, quoting)
        pytest.importorskip(module)
        with everything_logged() as logged:
            store, prefix = open_store(location, storage_options=options)
            for listing in (store.list, store.list_level):
                with pytest.raises(StorageError) as caught:
                    list(listing(prefix))
                assert type(caught.value) is error
                assert said in str(caught.value)
                assert "Retention" not in str(caught.value)
                assert leaks(shown(caught.value)) == []
                assert caught.value.__context__ is None
                assert caught.value.__cause__ is None
            store.close()
    assert leaks("\n".join(logged)) == []
    assert leaks("".join(capfd.readouterr())) == []


_sleep = asyncio.sleep


async def _no_sleep(_: float, result: object = None) -> object:
    return await _sleep(0, result)


@pytest.mark.parametrize("kind", ["s3", "azure key", "gcs"])
def test_a_host_without_an_address_may_be_a_mistyped_bucket(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, location, options = _options(kind, "http://typo.invalid:9")
    pytest.importorskip(module)

    def getaddrinfo(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr("asyncio.sleep", _no_sleep)
    store, prefix = open_store(location, storage_options=options)
    with pytest.raises(StorageError, match=r"has no address.*There may be no such account or bucket"):
        list(store.list(prefix))
    store.close()


@pytest.mark.parametrize("code", ["NoSuchKey", "KMS.DisabledException", "InvalidMd5", "OutOfRangeInput"])
def test_a_code_of_a_store_is_shown(code: str) -> None:
    assert shown_code(code) == code


@pytest.mark.parametrize(
    "text",
    [*CANARIES.values(), "AKIAIOSFODNN7EXAMPLE", "FwoGZX9vYXdzEJ", "nosuch", "A b", "No:Key", "A" * 20, "Ab" * 40],
)
def test_a_key_or_a_token_in_place_of_a_code_is_not_shown(text: str) -> None:
    assert shown_code(text) == ""
