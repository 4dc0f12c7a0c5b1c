"""What Spark and the jobs keep of reads, writes, streams and backfills, good and bad, holds no credential.

One driver does it all against an S3 server whose every request is signed with canaries, with Spark's event log, UI and
log files on. A marker that is no secret went the same ways, so a place where it is not found was not searched.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from base64 import b64encode
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest
from canaries import ACCESS_KEY, CANARIES, leaks, refusing_server
from fake_cluster import ServedBatch, ServedLog, served
from history_driver import MARKER
from served_cluster import served_cluster
from servers.moto import moto

from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import local_tiered_files

pytestmark = [pytest.mark.exhaustive, pytest.mark.spark, pytest.mark.xdist_group("spark-history")]

ROOT = Path(__file__).parents[2]
PLACE = f"{MARKER}-place"
SECRETS = {
    "KEY": CANARIES["key"],
    "SECRET": CANARIES["secret"],
    "TOKEN": CANARIES["token"],
    "SASL_PASSWORD": CANARIES["password"],
}


@dataclass(frozen=True, slots=True)
class History:
    """Everything that is left: files by the place they are found in, and the signatures that requests had."""

    places: dict[str, list[Path]]
    signatures: frozenset[str]
    told: str


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """What one driver leaves."""
    place = tmp_path_factory.mktemp("history")
    out, temporary = place / "out", place / "tmp"
    out.mkdir()
    temporary.mkdir()
    with ExitStack() as stack:
        server = stack.enter_context(moto(place))
        refusing = stack.enter_context(refusing_server())
        objects, gone = _objects()
        server.upload({f"{PLACE}/{name}": data for name, data in objects.items()})
        log = ServedLog(_live(), [(0, 0)])
        log.local_start = 20
        cluster = stack.enter_context(served_cluster({MARKER: {0: log}}))
        cluster.require(MARKER, CANARIES["password"])
        facts = {"out": str(out), "endpoint": server.endpoint, "bucket": server.bucket}
        config = place / "config.json"
        facts["bootstrap"] = cluster.bootstrap
        config.write_text(json.dumps(facts | {"place": PLACE, "gone": [f"{PLACE}/{name}" for name in gone]}))
        with (out / "stdout").open("wb") as stdout, (out / "stderr").open("wb") as stderr:
            line = [sys.executable, str(ROOT / "tests" / "support" / "history_driver.py"), str(config)]
            variables = _environment(place) | {"HISTORY_REFUSING": refusing, "HISTORY_ENDPOINT": server.endpoint}
            subprocess.run(line, env=variables, stdout=stdout, stderr=stderr, check=False, timeout=900)
        for listed in server.client().list_objects_v2(Bucket=server.bucket, Prefix="target-")["Contents"]:
            file = out / "bucket" / listed["Key"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(server.client().get_object(Bucket=server.bucket, Key=listed["Key"])["Body"].read())
        asked = (place / "moto.log").read_text(errors="replace")
    assert "X-Amz-Security-Token=c4nary" in asked
    return History(
        {
            "event log": _files(out / "events"),
            "pages": _files(out / "ui"),
            "REST API": _files(out / "rest"),
            "stdout": [out / "stdout"],
            "stderr": [out / "stderr"],
            "Spark's log": [out / "driver.log"],
            "executors' output": _files(place / "spark-home" / "work"),
            "explain": _files(out / "explain"),
            "pickles": _files(out / "pickles"),
            "checkpoints": _files(out / "checkpoint"),
            "target in a bucket": _files(out / "bucket"),
            "target": [*_files(out / "target"), *_files(out / "live")],
            "targets of what failed": [*_files(out / "refused"), *_files(out / "damaged")],
            "written by Spark": [*_files(out / "written"), *_files(out / "streamed")],
        },
        frozenset(re.findall(r"X-Amz-Signature=([0-9a-f]{64})", asked)),
        (out / "stdout").read_text() + (out / "stderr").read_text(),
    )


def _objects() -> tuple[dict[str, bytes], list[str]]:
    """Topics that are whole, that are damaged, and that will vanish; and the objects that will."""
    first = SegmentBuilder().batch([b"v"] * 20)
    good = local_tiered_files(MARKER, [first, first.roll().batch([b"v"] * 20)])
    broken = local_tiered_files(f"{MARKER}-broken", [SegmentBuilder().batch([b"v"] * 20).batch([b"v"] * 20)])
    name = next(name for name in broken if name.endswith(".log"))
    data = bytearray(broken[name])
    data[100] ^= 1
    broken[name] = bytes(data)
    gone = local_tiered_files(f"{MARKER}-gone", [SegmentBuilder().batch([b"v"] * 20)])
    return good | broken | gone, [name for name in gone if name.endswith(".log")]


def _live() -> list[ServedBatch]:
    """What brokers have of the topic that is whole: more than was uploaded."""
    first = SegmentBuilder().batch([b"v"] * 20)
    second = first.roll().batch([b"v"] * 20)
    more = second.roll().batch([b"v"] * 20)
    return served(first.to_bytes() + second.to_bytes() + more.to_bytes())


def _environment(place: Path) -> dict[str, str]:
    """The driver's variables; executors' files go below a home of Spark's that is ours."""
    home = place / "spark-home"
    home.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        if path.name != "work":
            (home / path.name).symlink_to(path)
    ours = {
        "SPARK_HOME": str(home),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support"), *filter(None, sys.path)]),
        "TMPDIR": str(place / "tmp"),
    }
    return {**os.environ, **ours, **{f"LAKE_SECRET_{name}": value for name, value in SECRETS.items()}}


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


PLACES = (
    *("event log", "pages", "REST API", "stdout", "stderr", "Spark's log", "executors' output", "explain", "pickles"),
    *("checkpoints", "target in a bucket", "target", "targets of what failed", "written by Spark"),
)


@pytest.mark.parametrize("name", PLACES)
def test_nothing_that_is_left_holds_a_credential_or_a_signature(history: History, name: str) -> None:
    found = [
        (str(path), leak)
        for path in history.places[name]
        for data in (path.read_bytes(),)
        for leak in [*leaks(data), *_traces(data, history.signatures)]
    ]
    assert found == []


def _traces(data: bytes, signatures: frozenset[str]) -> list[str]:
    """What only a signed request holds, and any part of a canary, also in the midst of base64."""
    text = data.decode(errors="replace")
    pieces = [piece for piece in ("X-Amz-Signature=", "X-Amz-Security-Token=", "AWS4-HMAC-SHA256") if piece in text]
    pieces += [match[0] for match in re.finditer(r".{0,30}c4nary.{0,30}", text, re.IGNORECASE)]
    pieces += [one for one in _in_base64(*SECRETS.values(), CANARIES["password"]) if one in text]
    return pieces + [one for one in signatures if one in text]


def _in_base64(*values: str) -> list[str]:
    """What base64 makes of a text within a longer one, wherever it begins there."""
    return [b64encode(b"\0" * shift + value.encode()).decode()[4:-4] for value in values for shift in range(3)]


@pytest.mark.parametrize("name", PLACES)
def test_a_marker_that_is_no_secret_is_found_in_each_place(history: History, name: str) -> None:
    assert any(MARKER.encode() in path.read_bytes() for path in history.places[name]), history.told[-3000:]


@pytest.mark.parametrize("page", ["jobs", "stages-stage", "SQL", "environment", "executors", "StreamingQuery"])
def test_the_pages_and_the_api_were_walked(history: History, page: str) -> None:
    assert any(page in path.name for path in [*history.places["pages"], *history.places["REST API"]])


@pytest.mark.parametrize(
    ("place", "page"),
    [
        *(("pages", page) for page in ("jobs-job", "stages", "SQL-execution")),
        *(("REST API", page) for page in ("jobs", "stages-", "sql", "environment", "allexecutors", "taskList")),
    ],
)
def test_the_marker_is_on_pages_of_each_kind(history: History, place: str, page: str) -> None:
    pages = [path for path in history.places[place] if page in path.name]
    assert any(MARKER in path.read_text() for path in pages), [path.name for path in history.places[place]]


def test_what_was_done_went_well_or_wrong_as_it_should(history: History) -> None:
    told = history.told
    for name in ("backfill env", "read env", "stream env", "backfill module", "read module", "stream module"):
        assert f"== {name}: done" in told
    assert "== live env: done" in told
    assert "== live module: done" in told
    assert told.count("exit code 0") == 5
    for name, error in {
        "read of damage": "CorruptBatchError",
        "stream of damage": "CorruptBatchError",
        "read denied": "Failed to generate(?:(?!\n== ).)*AccessDeniedError",
        "stream denied": "AccessDeniedError",
        "read refused": "the Python worker(?:(?!\n== ).)*AccessDeniedError",
        "stream refused": "AccessDeniedError",
        "read fails": "credentials=history_keys:fails failed: RuntimeError",
        "read nonsense": "anon is neither true nor false",
        "read crashes": "Python worker exited unexpectedly",
        "live refused": "AuthenticationError",
        "live fails": "brokerCredentials=history_keys:broker_fails failed: RuntimeError",
        "read of what vanished": "ObjectNotFoundError",
    }.items():
        assert re.search(rf"== {name}: failed(?:(?!\n== ).)*{error}", told, re.DOTALL), name
    assert {"exit code 5", "exit code 3"} <= set(told.splitlines())


@pytest.mark.parametrize("name", ["KEY", "SECRET", "TOKEN", "ACCOUNT_KEY", "CONNECTION_STRING", "SAS_KEY"])
def test_a_prefix_with_secret_in_it_hides_each_variable_by_sparks_own_rule(history: History, name: str) -> None:
    default = "(?i)secret|password|token|access[.]?key"
    assert re.search(default, f"spark.executorEnv.LAKE_SECRET_{name}")
    if name in SECRETS:
        pages = [path.read_text() for path in history.places["REST API"] if "environment" in path.name]
        assert any(f'spark.executorEnv.LAKE_SECRET_{name}", "*********(redacted)' in page for page in pages)


def test_the_search_would_find_what_it_searches() -> None:
    assert leaks(f"x{ACCESS_KEY}x") == ["key"]
    assert _traces(b"https://h/?X-Amz-Signature=" + b"a" * 64, frozenset(["a" * 64])) == ["X-Amz-Signature=", "a" * 64]
    for shift in range(3):
        assert len(_traces(b64encode(b"x" * shift + CANARIES["secret"].encode() + b"xyz"), frozenset())) == 1
