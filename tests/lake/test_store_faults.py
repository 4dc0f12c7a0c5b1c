"""Backfills into a bucket whose store throttles, breaks off, loses its answers and fills up, while files are written
and while a commit is made: each record once in the end, in bounded time, and what went wrong in one line."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from growing_bucket import GrowingBucket
from lake_targets import Key
from s3fs import S3FileSystem
from servers.faults import CANARY, Fault, FaultyS3, Rule, faulty
from servers.pool import ServerPool
from servers.s3 import S3Server

from segreader import scan
from spark_jobs.backfill import main
from spark_jobs.verify import main as verify

pytestmark = pytest.mark.xdist_group("servers")

KINDS = ("parquet", "delta", "iceberg")
TOPICS = ("codec-zstd", "txn-interleaved")
PASSING = (Fault.SLOW_DOWN, Fault.RESET, Fault.LOST_ANSWER, Fault.ERROR_AFTER, Fault.CUT_ANSWER)
LASTING = (Fault.SLOW_DOWN, Fault.RESET, Fault.LOST_ANSWER, Fault.FULL, Fault.QUOTA)

DATA, PLAN, DONE, MANIFEST = "PUT.*/part-", "PUT.*_job/plan", "PUT.*_job/done", "PUT.*/_manifest"
DELTA_LOG = r"PUT.*_delta_log/\d+\.json"
ICEBERG_FILES, ICEBERG_METADATA = r"PUT.*metadata/.*\.avro", r"PUT.*metadata/\d+-.*\.metadata\.json"
COMMITS = {"parquet": [MANIFEST], "delta": [DELTA_LOG], "iceberg": [ICEBERG_FILES, ICEBERG_METADATA]}
WRITES = {
    "parquet": [DATA, PLAN, DONE, MANIFEST],
    "delta": [DATA, PLAN, DONE, DELTA_LOG],
    "iceberg": [DATA, PLAN, DONE, ICEBERG_FILES, ICEBERG_METADATA],
}


@dataclass(frozen=True, slots=True)
class Lake:
    """A target in the bucket, behind the proxy that fails."""

    kind: str
    server: S3Server
    store: FaultyS3
    place: str
    bucket: GrowingBucket

    def flags(self, endpoint: str) -> list[str]:
        """The flags that name it, of a backfill and of its verification."""
        if self.kind != "iceberg":
            return ["--to", self.kind, "--target", f"{self.url}/out"]
        options = self.catalog(endpoint) | {
            "s3.access-key-id": "env:LAKE_KEY",
            "s3.secret-access-key": "env:LAKE_SECRET",
        }
        return ["--to", "iceberg", "--table", "db.records"] + [
            word for name, text in options.items() for word in ("--catalog-option", f"{name}={text}")
        ]

    @property
    def url(self) -> str:
        return f"s3://{self.server.bucket}/{self.place}"

    def catalog(self, endpoint: str) -> dict[str, str]:
        """Of pyiceberg: SQLite beside the bucket that is read."""
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.bucket.root.parent}/catalog.db",
            "warehouse": f"{self.url}/lake",
            "s3.endpoint": endpoint,
            "s3.region": "us-east-1",
        }

    def run(self, *more: str) -> int:
        """A backfill with the local engine, in this process; the exit code."""
        pattern = f"^({'|'.join(TOPICS)})$"
        where = ["--location", str(self.bucket.root), "--pattern", pattern, *self.flags(self.store.endpoint)]
        return main([*where, "--engine", "local", "--processes", "1", "--target-credentials", "env:LAKE", *more])

    def read(self) -> pa.Table:
        """What a reader of this kind of target sees."""
        options = self.server.storage_options
        if self.kind == "parquet":
            filesystem = S3FileSystem(**_of_s3fs(options), skip_instance_cache=True)
            names = filesystem.find(f"{self.server.bucket}/{self.place}/out")
            files = [name for name in names if name.endswith(".parquet")]
            return ds.dataset(files, filesystem=filesystem).to_table() if files else None
        if self.kind == "delta":
            from deltalake import DeltaTable

            given = {
                "aws_access_key_id": self.server.key,
                "aws_secret_access_key": self.server.secret,
                "aws_endpoint_url": self.server.endpoint,
                "aws_region": "us-east-1",
                "allow_http": "true",
            }
            return DeltaTable(f"{self.url}/out", storage_options=given).to_pyarrow_table()
        from pyiceberg.catalog import load_catalog

        keys = {"s3.access-key-id": self.server.key, "s3.secret-access-key": self.server.secret}
        table = load_catalog("default", **self.catalog(self.server.endpoint), **keys).load_table("db.records")
        return table.scan().to_arrow()

    def commits(self) -> int:
        """How many commits of ours a table has."""
        if self.kind == "delta":
            prefix = f"{self.place}/out/_delta_log/"
            found = self.server.client().list_objects_v2(Bucket=self.server.bucket, Prefix=prefix)["Contents"]
            return len([one for one in found if one["Key"].endswith(".json")]) - 1  # the first one makes the table
        from pyiceberg.catalog import load_catalog

        keys = {"s3.access-key-id": self.server.key, "s3.secret-access-key": self.server.secret}
        table = load_catalog("default", **self.catalog(self.server.endpoint), **keys).load_table("db.records")
        return len(table.snapshots())

    def require_exact(self, capfd: pytest.CaptureFixture[str]) -> None:
        """Show that it has each record of the bucket once, as its readers see it and byte by byte."""
        found = Counter(_key(row) for row in self.read().select(["topic", "partition", "offset"]).to_pylist())
        wanted = Counter(
            _key(row)
            for topic in TOPICS
            for row in scan(str(self.bucket.root), topic=topic, columns=["topic", "partition", "offset"])
            .to_arrow()
            .to_pylist()
        )
        assert found == wanted, f"too many: {found - wanted}, too few: {wanted - found}"
        capfd.readouterr()
        flags = [*self.flags(self.server.endpoint), "--target-credentials", "env:LAKE", "--source", "--engine", "local"]
        assert verify(flags) == 0, capfd.readouterr().err


def _key(row: dict[str, Any]) -> Key:
    return row["topic"], row["partition"], row["offset"]


def _of_s3fs(options: dict[str, object]) -> dict[str, object]:
    return {
        "key": options["key"],
        "secret": options["secret"],
        "client_kwargs": {"endpoint_url": options["endpoint_url"], "region_name": "us-east-1"},
    }


@pytest.fixture(scope="module")
def server(servers: ServerPool) -> S3Server:
    server: S3Server = servers.get("moto")
    server.upload({})
    return server


@pytest.fixture(scope="module")
def store(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyS3]:
    with faulty(server.endpoint, tmp_path_factory.mktemp("faults")) as store:
        yield store


@pytest.fixture
def lake(
    request: pytest.FixtureRequest,
    server: S3Server,
    store: FaultyS3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Lake:
    for name, value in (server.storage_options | {"endpoint_url": store.endpoint}).items():
        monkeypatch.setenv(f"LAKE_{name.upper()}", str(value))
    bucket = GrowingBucket(tmp_path / "bucket", *TOPICS)
    bucket.upload()
    return Lake(request.param, server, store, uuid.uuid4().hex, bucket)


def told(capfd: pytest.CaptureFixture[str], lake: Lake) -> str:
    """The one line that says what went wrong, and no secret in all that was printed."""
    printed = "".join(capfd.readouterr())
    assert CANARY not in printed
    assert lake.server.secret not in printed
    assert "Traceback" not in printed, printed
    (line,) = [line for line in printed.splitlines() if line.startswith("segreader-backfill: ")]
    return line


@pytest.mark.parametrize("lake", KINDS, indirect=True)
def test_faults_that_pass_at_each_write_cost_no_record_and_no_second_commit(
    lake: Lake, capfd: pytest.CaptureFixture[str]
) -> None:
    for number, more in enumerate(((), ("--continue",))):
        rules = [
            Rule(PASSING[(number + at) % len(PASSING)], pattern, times=1)
            for at, pattern in enumerate(WRITES[lake.kind])
        ]
        with lake.store.failing(*rules) as seen:
            assert lake.run(*more) == 0, capfd.readouterr().err
        assert [rule.hit for rule in seen.rules] == [1] * len(rules)
        lake.require_exact(capfd)
        if lake.kind != "parquet":
            assert lake.commits() == number + 1
        lake.bucket.upload(9)
