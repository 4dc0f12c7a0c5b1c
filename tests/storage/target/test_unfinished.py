"""What writers that were killed leave, and that it can be removed without touching those that are at work."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from servers.pool import ServerPool

from segreader.storage.target.bucket import PART_SIZE, BucketTarget
from segreader.storage.target.clouds import S3Target
from segreader.storage.target.names import finished_name, is_unfinished, unfinished_name
from segreader.storage.target.store import open_target

pytestmark = pytest.mark.xdist_group("servers")

KILLED = """
import os, signal, sys
from segreader.storage.target.store import open_target
with open_target(sys.argv[1]).create(sys.argv[2]) as file:
    file.write(b"1" * 1_000_000)
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def files(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if path.is_file())


def test_the_name_of_what_is_unfinished_tells_what_it_would_be() -> None:
    for name in ("a.parquet", "a-b-1.json", "x" * 220):
        last = unfinished_name(f"t/0/{name}")
        assert is_unfinished(last)
        assert len(last) <= 255
        assert finished_name(f"t/0/{last}") == f"t/0/{name}"
    assert finished_name(f"t/{unfinished_name()}") is None
    assert finished_name("t/a.parquet") is None


def test_a_name_as_long_as_a_file_can_have_is_written_all_the_same(tmp_path: Path) -> None:
    target = open_target(tmp_path)
    name = "é" * 127
    with target.create(name) as file:
        file.write(b"1")
        (unfinished,) = files(tmp_path)
        assert finished_name(unfinished) is None
    assert target.read(name) == b"1"


def test_a_killed_writers_file_is_removed_and_one_that_is_being_written_is_not(tmp_path: Path) -> None:
    for name in ("t/0/done.parquet", "t/0/other.parquet"):
        subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), name], check=False, timeout=60)
    target = open_target(tmp_path)
    with target.create("t/0/live.parquet") as file:
        file.write(b"2")
        assert target.forget_unfinished(lambda name: name == "t/0/done.parquet") == 1
        assert len(files(tmp_path)) == 2
    assert [name for name in files(tmp_path) if not is_unfinished(name)] == ["live.parquet"]
    assert target.forget_unfinished(lambda name: True) == 1
    assert files(tmp_path) == ["live.parquet"]


def test_a_directory_that_is_not_there_holds_nothing_unfinished(tmp_path: Path) -> None:
    assert open_target(tmp_path / "none").forget_unfinished(lambda name: True) == 0


def test_uploads_that_nobody_finishes_are_aborted_on_s3(servers: ServerPool) -> None:
    server = servers.get("moto")
    server.upload({})
    root = f"out {uuid.uuid4().hex[:8]}"
    target = open_target(f"s3://{server.bucket}/{root}", server.storage_options)
    assert isinstance(target, BucketTarget)
    for key in (f"{root}/a é.parquet", f"{root}/b.parquet", f"{root}x/a.parquet"):
        target._bucket.upload(key).add(bytes(PART_SIZE))

    assert target.forget_unfinished(lambda name: name.startswith("a")) == 1
    left = server.client().list_multipart_uploads(Bucket=server.bucket, Prefix=root)["Uploads"]
    assert {upload["Key"] for upload in left} == {f"{root}/b.parquet", f"{root}x/a.parquet"}
    beside = open_target(f"s3://{server.bucket}/{root}x", server.storage_options)
    assert [one.forget_unfinished(lambda name: True) for one in (target, beside)] == [1, 1]


def test_pages_of_uploads_are_asked_for_until_there_are_no_more() -> None:
    class Pages:
        def __init__(self) -> None:
            self.req_kw: dict[str, Any] = {}
            self.asked: list[dict[str, Any]] = []

        def call_s3(self, method: str, **arguments: Any) -> dict[str, Any]:
            self.asked.append({"method": method, **arguments})
            if "KeyMarker" in arguments:
                return {"IsTruncated": False}
            uploads = [{"Key": "out/a", "UploadId": "1"}]
            return {"IsTruncated": True, "NextKeyMarker": "out/a", "NextUploadIdMarker": "1", "Uploads": uploads}

    pages = Pages()
    assert [key for key, _ in S3Target(pages, "bucket").begun("out/")] == ["out/a"]
    assert pages.asked[1] == {
        "method": "list_multipart_uploads",
        "Bucket": "bucket",
        "Prefix": "out/",
        "KeyMarker": "out/a",
        "UploadIdMarker": "1",
    }
