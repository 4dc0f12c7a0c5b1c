"""``cat --follow``: in a process of its own, at a broker whose log grows, until Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from fake_cluster import served
from served_cluster import ServedCluster, served_cluster, tiered_log

from segreader.cli.main import main
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered

CAT = [str(Path(sys.executable).with_name("segreader")), "cat"]


@contextmanager
def growing(tmp_path: Path) -> Iterator[tuple[ServedCluster, SegmentBuilder]]:
    built = SegmentBuilder().batch([b"a", b"b", b"c"])
    with served_cluster({"orders": {0: tiered_log(tmp_path, "orders", [built], uploaded=0, local_from=0)}}) as cluster:
        yield cluster, built


def grow(cluster: ServedCluster, built: SegmentBuilder) -> None:
    cluster.cluster.logs["orders"][0].batches[:] = served(built.to_bytes())


def offset(out: IO[bytes]) -> int:
    return int(json.loads(out.readline())["offset"])


def test_it_prints_what_comes_and_ctrl_c_ends_it_well(tmp_path: Path) -> None:
    with growing(tmp_path) as (cluster, built):
        command = [*CAT, f"kafka://{cluster.bootstrap}", "orders", "--follow", "--last", "2", "-o", "jsonl"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            assert running.stdout is not None
            assert running.stderr is not None
            assert [offset(running.stdout), offset(running.stdout)] == [1, 2]
            for expected in (3, 4):
                grow(cluster, built.batch([b"later"]))
                assert offset(running.stdout) == expected
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (0, b"")
    assert "following the live end: Ctrl-C ends" in err.decode()
    assert "Traceback" not in err.decode()


def test_on_a_terminal_rows_show_as_they_come(tmp_path: Path) -> None:
    with growing(tmp_path) as (cluster, built):
        master, terminal = pty.openpty()
        command = [*CAT, f"kafka://{cluster.bootstrap}", "orders", "--follow", "--grep", "needle"]
        with subprocess.Popen(command, stdout=terminal, stderr=terminal, stdin=terminal) as running:
            os.close(terminal)
            seen = until(master, b"following", b"")
            for at in (1, 2):
                grow(cluster, built.batch([b"hay", b"needle %d" % at]))
                seen = until(master, b"needle %d" % at, seen)
            running.send_signal(signal.SIGINT)
            seen = until(master, b"records read match", seen)
            assert running.wait(timeout=60) == 0
        os.close(master)
    assert b"hay" not in seen
    assert b"2 of 7 records read match" in seen


def until(terminal: int, text: bytes, seen: bytes) -> bytes:
    """What a terminal has shown when it shows this."""
    while text not in seen:
        seen += os.read(terminal, 4096)
    return seen


def test_a_limit_ends_it(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with growing(tmp_path) as (cluster, _):
        arguments = ["cat", f"kafka://{cluster.bootstrap}", "orders", "--follow", "--limit", "2", "-o", "csv"]
        assert main(arguments) == 0
    assert len(capsysbinary.readouterr().out.splitlines()) == 3


def test_a_bucket_is_not_followed_and_it_says_what_to_do(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    write_local_tiered(tmp_path, "orders", [SegmentBuilder().batch([b"a"])])
    assert main(["cat", str(tmp_path), "orders", "--follow"]) == 2
    assert b"--bootstrap-servers" in capsysbinary.readouterr().err


@pytest.mark.parametrize(
    ("options", "named"),
    [(["-o", "json"], b"ndjson"), (["--offsets", ":5"], b"--until"), (["--until", "-1h"], b"--until")],
    ids=["json", "offsets", "until"],
)
def test_what_has_an_end_is_refused(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], options: list[str], named: bytes
) -> None:
    with growing(tmp_path) as (cluster, _):
        code = main(["cat", f"kafka://{cluster.bootstrap}", "orders", "--follow", *options])
    out, err = capsysbinary.readouterr()
    assert (code, out) == (2, b"")
    assert named in err
