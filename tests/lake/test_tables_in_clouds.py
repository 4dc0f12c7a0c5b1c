"""Tables in the stores of clouds: written, refused to who comes second, gone on with, read and verified."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from delta_lake import end_at, filled, made, read, split_files
from growing_bucket import GrowingBucket
from iceberg_lake import ending, offsets_in, sql_catalog, written
from iceberg_lake import filled as filled_iceberg
from sample import exhaustive
from servers.azurite import AzureServer, as_azure
from servers.google import google_beside
from servers.pool import ServerPool

from segreader import scan
from segreader.backfill.lake.delta import DeltaLakeTable, open_delta
from segreader.backfill.lake.delta_store import options_of_delta_rs
from segreader.backfill.lake.iceberg import open_iceberg
from segreader.backfill.output import SCHEMA
from segreader.errors import ConcurrentWriteError, OptionError
from segreader.storage.options import Kind, find_storage_options
from spark_jobs.backfill import main
from spark_jobs.verify import main as verify

EMULATOR = "AZURITE_BLOB_STORAGE_URL"


@dataclass(frozen=True, slots=True)
class Cloud:
    """Where tables of Delta can be: the options that deltalake is given, and those for writing files."""

    place: str
    options: dict[str, str]
    files: dict[str, str]

    def table(self) -> DeltaLakeTable:
        return open_delta(self.place, self.options)


def _azurite(servers: ServerPool, monkeypatch: pytest.MonkeyPatch) -> AzureServer:
    server: AzureServer = servers.get("azurite")
    server.upload({})
    monkeypatch.setenv(EMULATOR, server.endpoint.removesuffix(f"/{server.account}"))
    return server


@pytest.fixture(params=["azurite", "azure", "google"])
def cloud(
    request: pytest.FixtureRequest, tmp_path: Path, servers: ServerPool, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cloud]:
    name = uuid.uuid4().hex
    with ExitStack() as stack:
        if request.param == "google":
            google = stack.enter_context(google_beside(tmp_path))
            options = {"service_account_key": google.service_account_key(), "endpoint_url": google.endpoint}
            yield Cloud(f"gs://{google.bucket}/{name}", options, options)
            return
        server = _azurite(servers, monkeypatch)
        endpoint = server.endpoint
        if request.param == "azure":
            endpoint = stack.enter_context(as_azure(server, tmp_path))
        account = f"DefaultEndpointsProtocol=http;AccountName={server.account};AccountKey={server.key}"
        options = {"connection_string": f"{account};BlobEndpoint={endpoint}"}
        files = {"connection_string": server.connection_string}
        yield Cloud(f"abfss://{server.container}/{name}", options, files)


@pytest.mark.xdist_group("servers")
def test_a_delta_table_is_refused_to_who_comes_second_and_goes_on(cloud: Cloud) -> None:
    table = cloud.table()
    end = filled(table, 10, 20, storage_options=cloud.files)
    late = split_files(table, made(10, 30), storage_options=cloud.files)
    with pytest.raises(ConcurrentWriteError, match="orders-0 up to 20"):
        cloud.table().commit(late, end_at(10), end_at(30))
    end = filled(cloud.table(), 30, 40, start=end, storage_options=cloud.files)
    assert read(table).equals(pa.Table.from_batches([made(0, 40)]))

    assert table.compact(1 << 20).files_after == 1
    filled(cloud.table(), 50, start=end, storage_options=cloud.files)
    assert read(table).equals(pa.Table.from_batches([made(0, 50)]))


@pytest.mark.xdist_group("servers")
def test_one_of_many_writers_of_a_delta_table_wins_each_time(cloud: Cloud) -> None:
    tables = [cloud.table() for _ in range(4)]
    tables[0].prepare(SCHEMA, ())
    start = None
    for stop in (10, 20, 30):
        first = 0 if start is None else start.offsets["orders"]["0"]
        tries: list[Callable[[], None]] = []
        for table in tables:
            files = split_files(table, made(first, stop), storage_options=cloud.files)
            tries.append(partial(table.commit, files, start, end_at(stop)))

        def has_won(commit: Callable[[], None]) -> bool:
            try:
                commit()
            except ConcurrentWriteError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(has_won, tries)) == 1
        start = tables[0].end()
        assert start is not None
        assert start.offsets == {"orders": {"0": stop}}
    assert read(tables[1]).equals(pa.Table.from_batches([made(0, 30)]))


@pytest.mark.xdist_group("servers")
@pytest.mark.parametrize("cloud", ["azurite", exhaustive("google")], indirect=True)
def test_backfills_into_a_delta_table_go_on_and_are_verified(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = GrowingBucket(tmp_path / "bucket", "multi", "txn-span")
    target = ["--to", "delta", "--target", cloud.place]
    for name, text in cloud.options.items():
        monkeypatch.setenv(f"OF_TESTS_{name}", text)
        target += ["--target-option", f"{name}=env:OF_TESTS_{name}"]
    source = ["--location", str(bucket.root), "--pattern", "multi|txn-span", "--engine", "local", "--processes", "1"]
    while bucket:
        bucket.upload(2)
        assert main([*source, *target, "--continue"]) == 0
    assert verify([*target, "--source"]) == 0

    table = cloud.table()
    for topic in ("multi", "txn-span"):
        wanted = scan(str(bucket.root), topic=topic, columns=["partition", "offset"]).to_arrow().to_pylist()
        found: Counter[tuple[int, int]] = Counter()
        for partition in {one["partition"] for one in wanted}:
            for batch in table.records(topic, partition, 0, 1 << 40):
                found.update((partition, offset) for offset in batch.column("offset").to_pylist())
        assert found == Counter((one["partition"], one["offset"]) for one in wanted)


@pytest.mark.xdist_group("servers")
def test_an_iceberg_table_on_azure_is_refused_to_who_comes_second_and_goes_on(
    tmp_path: Path, servers: ServerPool
) -> None:
    server: AzureServer = servers.get("azurite")
    server.upload({})
    place = f"abfss://{server.container}@{server.account}.dfs.core.windows.net/{uuid.uuid4().hex}"
    properties = {"warehouse": place, "adls.connection-string": server.connection_string}
    _goes_on(sql_catalog(tmp_path) | properties, server.storage_options)


def test_an_iceberg_table_at_google_is_refused_to_who_comes_second_and_goes_on(tmp_path: Path) -> None:
    with google_beside(tmp_path) as server:
        properties = {
            "warehouse": f"gs://{server.bucket}/lake",
            "gcs.service.host": server.endpoint,
            "gcs.oauth2.token": "canary-4711",
            "gcs.oauth2.token-expires-at": "9999999999999",
        }
        options = {"service_account_key": server.service_account_key(), "endpoint_url": server.endpoint}
        _goes_on(sql_catalog(tmp_path) | properties, options)


def _goes_on(properties: dict[str, str], options: Mapping[str, object]) -> None:
    table = open_iceberg("db.orders", "lake", properties)
    filled_iceberg(table, [10, 20], partition_by="day(timestamp)", storage_options=options)
    late = open_iceberg("db.orders", "lake", properties)
    ids = late.prepare(SCHEMA, ())
    files = written(late, ids, 10, 30, partition_by="day(timestamp)", storage_options=options)
    with pytest.raises(ConcurrentWriteError):
        late.commit(files, ending(10), ending(30))
    filled_iceberg(late, [30], partition_by="day(timestamp)", storage_options=options)
    assert offsets_in(table) == list(range(30))
    assert table.compact(1 << 20).files_before == 3
    filled_iceberg(late, [40], partition_by="day(timestamp)", storage_options=options)
    assert offsets_in(table) == list(range(40))


def test_azures_emulator_at_an_address_where_deltalake_does_not_look_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "AccountName=dev;AccountKey=Y2FuYXJ5;BlobEndpoint=http://127.0.0.1:4711/dev;"
    options = find_storage_options("az://segments/t", {"connection_string": text})
    for variable in (None, "http://127.0.0.1:4712"):
        if variable is not None:
            monkeypatch.setenv(EMULATOR, variable)
        with pytest.raises(OptionError, match=rf"expected http://127\.0\.0\.1:4711.*{EMULATOR}") as caught:
            options_of_delta_rs(Kind.AZURE, options)
        assert "Y2FuYXJ5" not in str(caught.value)
    monkeypatch.setenv(EMULATOR, "http://127.0.0.1:4711/")
    found = options_of_delta_rs(Kind.AZURE, options)
    assert {name: text for name, text in found.items() if name.startswith("azure_")} == {
        "azure_storage_account_name": "dev",
        "azure_storage_account_key": "Y2FuYXJ5",
        "azure_storage_use_emulator": "true",
    }


@pytest.mark.parametrize(
    ("more", "endpoint"),
    [
        ("", None),
        ("EndpointSuffix=core.chinacloudapi.cn", "https://acme.blob.core.chinacloudapi.cn"),
        ("BlobEndpoint=https://blobs.acme.example/", "https://blobs.acme.example"),
    ],
    ids=["none", "suffix", "endpoint"],
)
def test_a_connection_string_tells_deltalake_where_azure_is(more: str, endpoint: str | None) -> None:
    text = f"DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=Y2FuYXJ5;{more}"
    options = find_storage_options("az://segments/t", {"connection_string": text})
    assert options_of_delta_rs(Kind.AZURE, options).get("azure_storage_endpoint") == endpoint
