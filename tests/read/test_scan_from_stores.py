"""The same records from every store that the tests can start, and by signed URLs of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from corpus import FIXTURES
from servers.objects import TIERED, tiered_topics
from servers.pool import STARTERS, ServerPool

import segreader
from segreader.storage.location import open_store

pytestmark = pytest.mark.xdist_group("servers")

TOPICS = ("txn-span", "nulls", "codec-zstd")
BUCKETS = [name for name in STARTERS if name != "nginx"]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    root = tmp_path_factory.mktemp("tiered")
    for name, data in tiered_topics(*TOPICS).items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(data)
    table = segreader.scan(root).to_arrow()
    assert table.num_rows > 100
    return table


_filled: set[str] = set()


def stored(servers: ServerPool, name: str) -> tuple[Any, str]:
    """The server with the topics in it, and their location."""
    server = servers.get(name)
    if name not in _filled:
        server.upload({f"records/{key}": data for key, data in tiered_topics(*TOPICS).items()})
        _filled.add(name)
    return server, "abfs://segments/records" if name == "azurite" else "s3://segments/records"


@pytest.mark.parametrize("name", BUCKETS)
def test_a_bucket_gives_the_records_that_the_directory_gives(
    servers: ServerPool, name: str, expected: pa.Table
) -> None:
    server, location = stored(servers, name)
    scan = segreader.scan(location, storage_options=server.storage_options)
    with scan:
        assert scan.to_arrow().equals(expected)
        assert not scan.metrics.notes
        shown = repr(scan.plan()) + repr(scan)
    assert "canary" not in shown
    assert "Signature" not in shown


@pytest.mark.parametrize("name", BUCKETS)
def test_a_partition_of_a_bucket_is_a_location_too(servers: ServerPool, name: str, expected: pa.Table) -> None:
    server, location = stored(servers, name)
    directory = next(iter(TIERED.glob("nulls-0-*"))).name
    scan = segreader.scan(f"{location}/{directory}/", storage_options=server.storage_options)
    with scan:
        table = scan.to_arrow()
    assert table.num_rows > 0
    assert table.equals(expected.filter(pc.equal(expected["topic"], "nulls")))


@pytest.mark.parametrize("name", list(STARTERS))
def test_signed_urls_give_the_records_that_the_directory_gives(
    servers: ServerPool, name: str, expected: pa.Table
) -> None:
    server, _ = stored(servers, name)
    urls = [server.signed_url(f"records/{key}") for key in reversed(tiered_topics(*TOPICS))]
    host = "/".join(server.endpoint.split("/")[:3])
    scan = segreader.scan(urls=urls, storage_options={"allow_hosts": host})
    with scan:
        assert scan.to_arrow().equals(expected)
        assert "ignature" not in repr(scan.plan()) + repr(scan)


def test_a_filesystem_in_memory_gives_the_records_that_the_directory_gives(expected: pa.Table) -> None:
    import fsspec

    for name, data in tiered_topics(*TOPICS).items():
        fsspec.filesystem("memory").pipe_file(f"/records/{name}", data)
    scan = segreader.scan("memory://records")
    with scan:
        assert scan.to_arrow().equals(expected)


def test_a_directory_below_a_file_url_gives_the_records(tmp_path: Path) -> None:
    for name, data in tiered_topics("nulls").items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    store, prefix = open_store(f"file://{tmp_path}")
    assert len(list(store.list(prefix))) == len(tiered_topics("nulls"))
    assert segreader.scan(f"file://{tmp_path}").to_arrow().equals(segreader.scan(tmp_path).to_arrow())


def test_encrypted_segments_come_from_a_bucket_and_by_signed_urls(servers: ServerPool) -> None:
    encrypted = FIXTURES / "corpus" / "aiven-encrypted"
    given: dict[str, Any] = {"rsm_config": FIXTURES / "aiven-encrypted.properties"}
    here = segreader.scan(encrypted / "remote", topic="second-key", **given).to_arrow()
    assert here.num_rows == 64
    server = servers.get("moto")
    files = [file for file in (encrypted / "remote").rglob("second-key*/0/*") if file.is_file()]
    names = {f"aiven/{file.relative_to(encrypted / 'remote').as_posix()}": file.read_bytes() for file in files}
    server.upload(names)
    with segreader.scan("s3://segments/aiven", storage_options=server.storage_options, **given) as scan:
        assert scan.to_arrow().equals(here)
    urls = [server.signed_url(name) for name in names]
    host = "{0.scheme}://{0.netloc}".format(urlsplit(urls[0]))
    with segreader.scan(urls=urls, storage_options={"allow_hosts": host}, **given) as scan:
        assert scan.to_arrow().equals(here)
