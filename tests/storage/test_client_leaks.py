"""The clouds' own clients log and quote what they send; what comes out of a store that uses them holds no canary."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator

import pytest
from canaries import CANARIES, everything_logged, leaks, refusing_server, shown

from segreader.ranges import ByteRange
from segreader.storage.location import open_store


@pytest.fixture(scope="module")
def refusing() -> Iterator[str]:
    with refusing_server() as url:
        yield url


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
