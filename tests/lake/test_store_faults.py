"""Backfills into a bucket whose store throttles, breaks off, loses its answers and fills up, while files are written
and while a commit is made: each record once in the end, in bounded time, and what went wrong in one line."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from growing_bucket import GrowingBucket
from lake_targets import Key
from s3fs import S3FileSystem
from sample import exhaustive
from servers.faults import CANARY, Fault, FaultyS3, Rule, faulty
from servers.pool import ServerPool
from servers.s3 import S3Server

from segreader import scan
from segreader.backfill.lake.delta import open_delta
from segreader.backfill.output import SCHEMA
from segreader.errors import StorageError, ThrottledError
from segreader.storage.target.bucket import PART_SIZE
from segreader.storage.target.store import TargetStore, open_target
from spark_jobs.backfill import main
from spark_jobs.verify import main as verify

pytestmark = pytest.mark.xdist_group("servers")

KINDS = ("parquet", "delta", "iceberg")
TOPICS = ("codec-zstd", "txn-interleaved")
PASSING = (Fault.SLOW_DOWN, Fault.RESET, Fault.LOST_ANSWER, Fault.ERROR_AFTER, Fault.CUT_ANSWER)
LOST = [Fault.LOST_ANSWER, Fault.RESET, exhaustive(Fault.ERROR_AFTER), exhaustive(Fault.CUT_ANSWER)]

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
            return DeltaTable(f"{self.url}/out", storage_options=_of_delta_rs(self.server)).to_pyarrow_table()
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


def _of_delta_rs(server: S3Server) -> dict[str, str]:
    return {
        "aws_access_key_id": server.key,
        "aws_secret_access_key": server.secret,
        "aws_endpoint_url": server.endpoint,
        "aws_region": "us-east-1",
        "allow_http": "true",
    }


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
    return _lake(request.param, server, store, tmp_path, monkeypatch)


def _lake(kind: str, server: S3Server, store: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    for name, value in (server.storage_options | {"endpoint_url": store.endpoint}).items():
        monkeypatch.setenv(f"LAKE_{name.upper()}", str(value))
    bucket = GrowingBucket(tmp_path / "bucket", *TOPICS)
    bucket.upload()
    return Lake(kind, server, store, uuid.uuid4().hex, bucket)


def told(capfd: pytest.CaptureFixture[str], lake: Lake) -> str:
    """The one line that says what went wrong, and no secret in all that was printed."""
    printed = "".join(capfd.readouterr())
    assert CANARY not in printed
    assert lake.server.secret not in printed
    assert "Traceback" not in printed, printed
    (line,) = [line for line in printed.splitlines() if line.startswith("segreader-backfill: ")]
    return line


# Faults that pass


@pytest.mark.parametrize("lake", KINDS, indirect=True)
def test_faults_that_pass_at_each_write_cost_no_record_and_no_second_commit(
    lake: Lake, capfd: pytest.CaptureFixture[str]
) -> None:
    for number, more in enumerate(((), ("--continue",))):
        rules = [
            Rule(PASSING[(number + at) % len(PASSING)], pattern, times=1)
            for at, pattern in enumerate(WRITES[lake.kind])
        ]
        _run_and_require_exact(lake, capfd, rules, more)
        if lake.kind != "parquet":
            assert lake.commits() == number + 1
        lake.bucket.upload(9)


def _run_and_require_exact(
    lake: Lake, capfd: pytest.CaptureFixture[str], rules: Sequence[Rule], more: Sequence[str]
) -> None:
    with lake.store.failing(*rules) as seen:
        assert lake.run(*more) == 0, capfd.readouterr().err
    assert [rule.hit for rule in seen.rules] == [rule.times for rule in rules], seen
    lake.require_exact(capfd)


@pytest.mark.parametrize("lake", ["delta", "iceberg"], indirect=True)
@pytest.mark.parametrize("fault", LOST)
def test_a_commit_whose_answer_is_lost_is_there_once_and_nobody_elses(
    lake: Lake, fault: Fault, capfd: pytest.CaptureFixture[str]
) -> None:
    lake.bucket.upload(9)
    rule = Rule(fault, COMMITS[lake.kind][-1], times=2, after=2)  # the first one makes the table

    with lake.store.failing(rule) as seen:
        assert lake.run("--commit-bytes", "1", "--split-bytes", "4k") == 0, capfd.readouterr().err
    assert seen.rules[0].hit == 2
    assert "another" not in capfd.readouterr().err
    splits = len([line for _, line, _ in seen.requests if "PUT" in line and "_job/done/" in line])
    assert lake.commits() == splits > 3
    lake.require_exact(capfd)


@pytest.mark.parametrize("fault", LOST)
@pytest.mark.parametrize("request_of", ["POST.*big.*uploads", "PUT.*big.*partNumber=2", "POST.*big.*uploadId="])
def test_a_large_file_is_written_though_an_answer_to_one_of_its_requests_is_lost(
    server: S3Server, store: FaultyS3, fault: Fault, request_of: str
) -> None:
    data = Random(4).randbytes(PART_SIZE + 1000)
    target = _target(server, store)

    with store.failing(Rule(fault, request_of, times=1)) as seen, target.create("big") as file:
        file.write(data)
    assert seen.rules[0].hit == 1
    assert target.read("big") == data


def test_a_large_file_of_another_writer_is_not_taken_for_ones_own(server: S3Server, store: FaultyS3) -> None:
    target = _target(server, store)
    data = bytes(PART_SIZE + 1)
    with target.create("big") as file:
        file.write(data)

    with (
        store.failing(Rule(Fault.QUOTA, "POST.*big.*uploadId=")),
        pytest.raises(StorageError, match="the store is full"),
        target.create("big") as file,
    ):
        file.write(data + b"more")
    assert target.read("big") == data


def _target(server: S3Server, store: FaultyS3) -> TargetStore:
    return open_target(
        f"s3://{server.bucket}/{uuid.uuid4().hex}", server.storage_options | {"endpoint_url": store.endpoint}
    )


def test_a_store_that_throttles_the_trial_of_its_conditions_is_not_said_to_lack_them(
    server: S3Server, store: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    target = _target(server, store)

    with store.failing(Rule(Fault.SLOW_DOWN, r"PUT.*\.segreader-", times=8)):  # all rivals, not the late one
        assert target.put_if_absent("one", b"data")
    with (
        store.failing(Rule(Fault.SLOW_DOWN, r"PUT.*\.segreader-")),
        pytest.raises(ThrottledError, match="503 SlowDown"),
    ):
        _target(server, store).put_if_absent("one", b"data")


@pytest.mark.parametrize("fault", LOST)
def test_columns_of_a_delta_table_are_added_once_though_an_answer_is_lost(
    server: S3Server, store: FaultyS3, fault: Fault
) -> None:
    table = open_delta(
        f"s3://{server.bucket}/{uuid.uuid4().hex}", server.storage_options | {"endpoint_url": store.endpoint}
    )
    table.prepare(SCHEMA, ())

    with store.failing(Rule(fault, r"PUT.*_delta_log/0+1\.json", times=1)) as seen:
        table.prepare(SCHEMA.append(pa.field("price", pa.float64())), ())
    assert seen.rules[0].hit == 1
    there = DeltaTable(table.location, storage_options=_of_delta_rs(server))
    assert there.version() == 1
    assert [field.name for field in there.schema().fields][-1] == "price"


def test_a_listing_of_a_delta_table_that_breaks_off_is_asked_for_again(server: S3Server, store: FaultyS3) -> None:
    table = open_delta(
        f"s3://{server.bucket}/{uuid.uuid4().hex}", server.storage_options | {"endpoint_url": store.endpoint}
    )
    table.prepare(SCHEMA, ())

    with store.failing(Rule(Fault.CUT_ANSWER, "GET.*list-type", times=2)) as seen:
        assert table.exists
        assert table.end() is None
    assert seen.rules[0].hit == 2


def _seeded(seed: int) -> tuple[str, list[list[Rule]]]:
    """A kind of target, and what fails in each of three runs."""
    random = Random(seed)
    kind = KINDS[seed % len(KINDS)]
    patterns = [*WRITES[kind], "GET", "list-type", "DELETE", r"PUT.*\.segreader-"]
    return kind, [
        [
            Rule(random.choice(PASSING), pattern, times=random.randint(1, 2), after=random.randint(0, 3))
            for pattern in random.sample(patterns, random.randint(1, 4))
        ]
        for _ in range(3)
    ]


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(12))
def test_any_faults_that_pass_leave_each_record_there_once(
    seed: int,
    server: S3Server,
    store: FaultyS3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    kind, runs = _seeded(seed)
    lake = _lake(kind, server, store, tmp_path, monkeypatch)
    for rules in runs:
        with store.failing(*rules):
            assert lake.run("--continue") == 0, capfd.readouterr().err
        lake.require_exact(capfd)
        lake.bucket.upload()


# Faults that last

SAID = {
    Fault.SLOW_DOWN: (4, "the store throttles requests; found status 503"),
    Fault.RESET: (4, "no connection to the store; found "),
    Fault.LOST_ANSWER: (4, "no connection to the store; found "),
    Fault.FULL: (4, "the store is full, or a quota is used up; found status 507 XMinioStorageFull. Make room there, "),
    Fault.QUOTA: (3, "the store is full, or a quota is used up; found status 403 QuotaExceeded. Make room there, "),
}
"""The exit code, and what the line says."""


def _require_recovery(lake: Lake, fault: Fault, pattern: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Show that a run ends where the store fails for good, and that the next one makes it exact; twice."""
    for more, again in (((), ()), (("--continue",), ("--continue",))):
        capfd.readouterr()
        with lake.store.failing(Rule(fault, pattern)) as seen:
            code = lake.run(*more)
        assert seen.rules[0].hit > 0
        wanted, text = SAID[fault]
        if code != 0 or fault is not Fault.LOST_ANSWER:  # what was written is looked for where no answer comes
            line = told(capfd, lake)
            assert (code, text in line) == (wanted, True), line
            assert "run it again" in line.replace("Run", "run"), line
        assert lake.run(*again) == 0, capfd.readouterr().err
        lake.require_exact(capfd)
        lake.bucket.upload(9)


@pytest.mark.parametrize("fault", [Fault.FULL, exhaustive(Fault.QUOTA), exhaustive(Fault.SLOW_DOWN)])
@pytest.mark.parametrize("lake", KINDS, indirect=True)
def test_a_store_that_fails_for_good_while_it_is_committed_to_is_one_line_and_the_next_run_finishes(
    lake: Lake, fault: Fault, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    _require_recovery(lake, fault, COMMITS[lake.kind][-1], capfd)


@pytest.mark.parametrize("fault", [Fault.FULL, Fault.QUOTA])
@pytest.mark.parametrize("lake", ["parquet"], indirect=True)
def test_a_store_that_fails_for_good_while_files_are_written_is_one_line_and_the_next_run_finishes(
    lake: Lake, fault: Fault, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    _require_recovery(lake, fault, DATA, capfd)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("lake", "fault", "pattern"),
    [
        pytest.param(kind, fault, pattern, id=f"{kind}-{fault}-{number}")
        for kind in KINDS
        for number, pattern in enumerate(WRITES[kind])
        for fault in Random(f"{kind}-{number}").sample(sorted(SAID), 1)
    ],
    indirect=["lake"],
)
def test_whatever_fails_for_good_is_one_line_and_the_next_run_finishes(
    lake: Lake, fault: Fault, pattern: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    _require_recovery(lake, fault, pattern, capfd)


@pytest.mark.exhaustive
@pytest.mark.parametrize("lake", ["parquet"], indirect=True)
def test_no_request_is_tried_more_than_twenty_times_where_the_store_throttles_for_good(
    lake: Lake, capfd: pytest.CaptureFixture[str]
) -> None:
    with lake.store.failing(Rule(Fault.SLOW_DOWN, DATA)) as seen:
        assert lake.run() == 4
    assert seen.rules[0].hit == 20  # 5 by botocore, 4 by the engine
    assert "found status 503 SlowDown" in told(capfd, lake)
