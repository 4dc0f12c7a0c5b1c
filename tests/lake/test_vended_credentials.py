"""Access to a table's store as the catalog gives it: to tasks, too, and nowhere else."""

from __future__ import annotations

import pickle
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from growing_bucket import GrowingBucket
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config
from servers.pool import ServerPool
from servers.s3 import REGION, S3Server
from servers.vending_catalog import TOKEN, VendingCatalog, vending_catalog

from segreader import lake, scan
from segreader.backfill.lake.iceberg_schema import iceberg_schema
from segreader.backfill.lake.iceberg_store import store_options, vended_options
from segreader.backfill.lake.place import TablePlace
from segreader.backfill.output import SCHEMA
from segreader.backfill.task import Destination
from segreader.errors import OptionError
from spark_jobs.backfill import main
from spark_jobs.verify import main as verify

TOPICS = ("multi", "txn-span")


@pytest.fixture
def server(servers: ServerPool, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """A bucket of which this process, and those it starts, know nothing by themselves."""
    found: S3Server = servers.get("moto")
    found.upload({})
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return found


@pytest.fixture
def catalog(tmp_path: Path, server: S3Server) -> Iterator[VendingCatalog]:
    access = {
        "s3.endpoint": server.endpoint,
        "s3.access-key-id": server.key,
        "s3.secret-access-key": server.secret,
        "s3.region": REGION,
    }
    behind = {"warehouse": f"s3://{server.bucket}/{uuid.uuid4().hex}", **access}
    with vending_catalog(tmp_path, behind, access) as found:
        yield found


def _target(catalog: VendingCatalog) -> list[str]:
    options = {"type": "rest", "uri": catalog.uri, "token": "env:TOKEN_OF_TESTS"}
    flags = [word for name, text in options.items() for word in ("--catalog-option", f"{name}={text}")]
    return ["--to", "iceberg", "--table", "db.orders", *flags]


@pytest.mark.xdist_group("servers")
def test_tasks_write_with_what_the_catalog_gives_with_the_table_and_it_is_told_to_nobody(
    tmp_path: Path,
    catalog: VendingCatalog,
    server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TOKEN_OF_TESTS", TOKEN)
    bucket = GrowingBucket(tmp_path / "bucket", *TOPICS)
    target = _target(catalog)
    source = ["--location", str(bucket.root), "--pattern", "|".join(TOPICS), "--engine", "local", "--processes", "2"]
    while bucket:
        bucket.upload(2)
        assert main([*source, *target, "--continue"]) == 0
    assert verify([*target, "--source"]) == 0

    wanted: Counter[tuple[str, int, int]] = Counter()
    for topic in TOPICS:
        for one in scan(str(bucket.root), topic=topic, columns=["partition", "offset"]).to_arrow().to_pylist():
            wanted[topic, one["partition"], one["offset"]] += 1
    rows = catalog.catalog.load_table("db.orders").scan().to_arrow().to_pylist()
    assert Counter((one["topic"], one["partition"], one["offset"]) for one in rows) == wanted

    told = "".join(capfd.readouterr())
    client = server.client()
    place = catalog.catalog.load_table("db.orders").location().removeprefix(f"s3://{server.bucket}/")
    for entry in client.list_objects_v2(Bucket=server.bucket, Prefix=f"{place}/_job")["Contents"]:
        told += client.get_object(Bucket=server.bucket, Key=entry["Key"])["Body"].read().decode("latin-1")
    assert not [one for one in (server.secret, TOKEN, "session-canary") if one in told]


@pytest.mark.xdist_group("servers")
def test_a_destination_asks_the_catalog_each_time_and_travels_without_a_secret(
    catalog: VendingCatalog, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_TESTS", TOKEN)
    options = {"type": "rest", "uri": catalog.uri, "token": "env:TOKEN_OF_TESTS"}
    place = TablePlace(kind="iceberg", name="db.orders", catalog="vending", options=options)
    table = place.open()
    table.prepare(SCHEMA, ())
    destination = Destination(".", table=place).of_table(table)
    assert destination.is_vended
    assert destination.location == table.location
    given = [destination._storage() for _ in range(2)]
    assert [one["token"] for one in given] == catalog.given[-2:]
    assert len({str(one["token"]) for one in given}) == 2
    for text in (pickle.dumps(destination).decode("latin-1"), repr(destination)):
        assert not [one for one in (server.secret, TOKEN, "session-canary") if one in text]

    monkeypatch.delenv("TOKEN_OF_TESTS")
    with pytest.raises(OptionError, match="TOKEN_OF_TESTS"):
        pickle.loads(pickle.dumps(destination)).open()


@pytest.mark.xdist_group("servers")
@pytest.mark.parametrize("is_known", [True, False], ids=["by name", "of this process"])
def test_append_has_processes_ask_a_catalog_that_they_know_by_its_name(
    tmp_path: Path,
    catalog: VendingCatalog,
    server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_known: bool,
) -> None:
    if is_known:
        monkeypatch.setenv("PYICEBERG_CATALOG__VENDING__TOKEN", TOKEN)
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it is read at the first import
    opened = load_catalog("vending", type="rest", uri=catalog.uri, token=TOKEN)
    opened.create_namespace("db")
    table = opened.create_table("db.orders", iceberg_schema(SCHEMA))
    bucket = GrowingBucket(tmp_path / "bucket", "multi")
    bucket.upload()
    if not is_known:  # what the cloud's client finds, then
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret)
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    done = lake.append(table, bucket.root, topic="multi", processes=1)
    assert done.records == scan(str(bucket.root), topic="multi").to_arrow().num_rows
    assert table.refresh().scan().count() == done.records
    assert ("cannot open the catalog vending by its name" in caplog.text) is not is_known
    assert TOKEN not in caplog.text


def test_settings_of_the_catalog_itself_are_those_of_tasks_without_asking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"s3.endpoint": "http://127.0.0.1:1", "s3.access-key-id": "env:KEY", "s3.secret-access-key": "env:SECRET"}
    monkeypatch.setenv("KEY", "AKIA")
    monkeypatch.setenv("SECRET", "canary")
    place = TablePlace(kind="iceberg", name="db.orders", options={"uri": "http://127.0.0.1:1", **options})
    assert place.storage("s3://bucket/t", is_vended=False) == {
        "endpoint_url": "http://127.0.0.1:1",
        "key": "AKIA",
        "secret": "canary",
    }
    assert place.storage("/lake/t", is_vended=False) == {}
    assert vended_options("s3://bucket/t", {"uri": "x", "s3.endpoint": "e"}, {"uri": "x", "s3.endpoint": "e"}) == {}


@pytest.mark.parametrize(
    ("location", "properties", "expected"),
    [
        (
            "s3://b/t",
            {
                "client.region": "eu-west-1",
                "s3.access-key-id": "k",
                "s3.secret-access-key": "s",
                "s3.session-token": "t",
            },
            {"region": "eu-west-1", "key": "k", "secret": "s", "token": "t"},
        ),
        ("s3://b/t", {"s3.force-virtual-addressing": "true"}, {"addressing_style": "virtual"}),
        (
            "abfss://c@acme.dfs.core.windows.net/t",
            {"adls.sas-token.acme.dfs.core.windows.net": "sig"},
            {"sas_token": "sig", "account_name": "acme"},
        ),
        ("abfss://c@acme.dfs.core.windows.net/t", {"s3.access-key-id": "k"}, {}),
        ("gs://b/t", {"gcs.project-id": "p"}, {"project": "p"}),
    ],
    ids=["s3", "virtual", "azure", "other", "google"],
)
def test_properties_of_a_store_have_our_names(
    location: str, properties: dict[str, str], expected: dict[str, object]
) -> None:
    assert store_options(location, properties) == expected


@pytest.mark.parametrize(
    ("location", "properties"),
    [
        ("s3://b/t", {"s3.remote-signing-enabled": "true", "s3.endpoint": "http://127.0.0.1:1"}),
        ("s3://b/t", {"client.role-arn": "arn:aws:iam::1:role/canary"}),
        ("abfss://c@acme.dfs.core.windows.net/t", {"adls.token": "canary"}),
        ("gs://b/t", {"gcs.oauth2.token": "canary"}),
    ],
    ids=["signer", "role", "azure", "google"],
)
def test_access_that_tasks_cannot_use_is_refused_with_what_to_give_instead(
    location: str, properties: dict[str, str]
) -> None:
    with pytest.raises(OptionError, match="storage_options in Python; for a job --target-option") as caught:
        vended_options(location, properties, {})
    assert "canary" not in str(caught.value)
