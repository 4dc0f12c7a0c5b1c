"""Whole backfills between buckets, by the command line: killed between data and entry, and run again."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from growing_log import GrowingLog
from pyspark.sql import SparkSession
from sample import exhaustive
from servers.google import google
from servers.pool import ServerPool

from segreader.backfill.job_plan import read_plan
from segreader.backfill.output import MANIFEST, SUCCESS, split_of_file
from segreader.backfill.task import Destination, do_split
from segreader.spark.locations import Locations
from segreader.spark.options import parse_options
from segreader.storage.target.bucket import PART_SIZE, BucketTarget
from segreader.storage.target.store import TargetStore
from spark_jobs import backfill, verify

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-jobs")]

CREDENTIALS = ("--credentials", "env:LAKE")


@dataclass(frozen=True)
class Bucket:
    """A bucket of a server, with a prefix for one test, and its storage options."""

    url: str
    server: Any
    options: Mapping[str, object]

    def upload(self, root: Path, below: str) -> None:
        prefix = self.url.partition("://")[2].partition("/")[2]
        objects = {
            f"{prefix}/{below}/{path.relative_to(root)}": path.read_bytes()
            for path in root.rglob("*")
            if path.is_file()
        }
        if hasattr(self.server, "upload"):
            self.server.upload(objects)
        else:
            self.server.objects |= objects


@pytest.fixture(scope="module", params=["moto", exhaustive("azurite"), exhaustive("google")])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any, Mapping[str, object]]]:
    kind: str = request.param
    if kind == "google":
        with google() as server:
            yield (
                f"gs://{server.bucket}",
                server,
                {
                    "token": server.service_account_key(),
                    "endpoint_url": server.endpoint,
                },
            )
        return
    servers: ServerPool = request.getfixturevalue("servers")
    server = servers.get(kind)
    server.upload({})
    url = f"abfs://{server.container}" if kind == "azurite" else f"s3://{server.bucket}"
    yield url, server, server.storage_options


@pytest.fixture
def bucket(
    served: tuple[str, Any, Mapping[str, object]], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Bucket:
    """The bucket; its credentials are ``env:LAKE`` in this process, and in those of tasks, as by ``executorEnv``."""
    url, server, options = served
    for name, value in options.items():
        monkeypatch.setenv(f"LAKE_{name.upper()}", str(value))
        monkeypatch.setitem(spark.sparkContext.environment, f"LAKE_{name.upper()}", str(value))
    return Bucket(f"{url}/{uuid.uuid4().hex[:8]}", server, options)


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    """Five segments of 100 records each."""
    log = GrowingLog(tmp_path / "tier")
    for _ in range(5):
        log.upload("orders", 0, 100)
    return log.root


@contextmanager
def killed(name: str, **_: Any) -> Iterator[None]:
    """In place of a session: the driver dies when its plan is written and Spark is about to start."""
    raise KeyboardInterrupt
    yield


def die(name: str, data: bytes) -> bool:
    raise KeyboardInterrupt


def offsets_in(target: TargetStore) -> list[int]:
    """The offsets of every Parquet file that lies there, in order of name."""
    files = [info.name for info in target.list() if split_of_file(info.name) is not None]
    tables = [pq.read_table(io.BytesIO(target.read(name)), columns=["offset"]) for name in sorted(files)]
    return [offset for table in tables for offset in table["offset"].to_pylist()]


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_local", [True, False], ids=["from a directory", "from the bucket"])
def test_a_backfill_into_a_bucket_that_was_killed_is_finished_and_exact(
    bucket: Bucket, tier: Path, is_local: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not is_local:
        bucket.upload(tier, "tier")
    location = str(tier) if is_local else f"{bucket.url}/tier"
    alone = ("--engine", "spark", "--split-bytes", "1")  # no two segments share a split
    arguments = ["--location", location, "--topic", "orders", "--target", f"{bucket.url}/out", *alone, *CREDENTIALS]
    with monkeypatch.context() as patch:
        patch.setattr("spark_jobs.session.job_session", killed)
        assert backfill.main(arguments) == 130

    with closing(Destination(f"{bucket.url}/out", "env:LAKE").open()) as target:
        assert isinstance(target, BucketTarget)
        plan = read_plan(target)
        assert plan is not None
        assert len(plan.splits) == 5
        store = Locations(parse_options(plan.options)).store
        do_split(plan.splits[0], store, target, plan.output)
        for split in plan.splits[:2]:  # of one that is done, the loser; and of one that is not
            with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
                patch.setattr(target, "put_if_absent", die)
                patch.setattr("segreader.backfill.task.read_done", lambda target, split: None)
                do_split(split, store, target, plan.output)
        orphan = next(name for info in target.list() if split_of_file(name := info.name) == plan.splits[1].id)
        target._bucket.upload(target._prefix + orphan).add(bytes(PART_SIZE))  # killed in the middle of a large file
        assert offsets_in(target) == [*range(100), *range(100), *range(100, 200)]

        assert backfill.main(arguments) == 0
        assert "1 of 5 splits are done already" in capsys.readouterr().err
        assert offsets_in(target) == list(range(500))
        assert {MANIFEST, SUCCESS} <= {info.name for info in target.list()}
        assert list(target._bucket.begun(target._prefix)) == []

    checked = ["--target", f"{bucket.url}/out", "--target-credentials", "env:LAKE", "--source"]
    assert verify.main([*checked, "--local"]) == 0
    assert "exact    500 records in 5 files" in capsys.readouterr().out


def test_tasks_prove_an_output_in_a_bucket_with_credentials_of_their_own(
    bucket: Bucket, tier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = f"{bucket.url}/out"
    assert backfill.main(["--location", str(tier), "--topic", "orders", "--target", target, *CREDENTIALS]) == 0
    assert verify.main(["--target", target, "--target-credentials", "env:LAKE"]) == 0
    told = capsys.readouterr()
    assert "exact    500 records" in told.out
    for secret in (str(value) for name, value in bucket.options.items() if name not in ("region", "endpoint_url")):
        assert secret not in told.out + told.err
