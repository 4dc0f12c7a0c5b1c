"""The audit's lines: written by a thread, refused where they cannot be, and none lost without a count."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from segreader.gateway.audit import AuditLog, LocationGiven
from segreader.gateway.metrics import GatewayMetrics

GIVEN = LocationGiven(
    time_ms=1_700_000_000_000,
    client_id="reader",
    principal="User:alice",
    mechanism="PLAIN",
    peer="10.0.0.1:4711",
    topic="orders",
    topic_id="id",
    partition=0,
    fetch_offset=142,
    segment_id="segment",
    first_offset=100,
    last_offset=199,
    first_byte=4096,
    last_byte=8191,
    object_name="s3://bucket/orders-0.log",
    expiry_ms=1_700_000_900_000,
)


def line_of(offset: int) -> LocationGiven:
    return replace(GIVEN, fetch_offset=offset)


def offsets(file: Path) -> list[int]:
    return [json.loads(line)["fetch_offset"] for line in file.read_text().splitlines()]


def test_a_line_says_who_got_what_and_until_when(tmp_path: Path) -> None:
    audit = AuditLog(str(tmp_path / "audit.jsonl"), GatewayMetrics())
    audit.write(GIVEN)
    audit.close()
    assert json.loads((tmp_path / "audit.jsonl").read_text()) == {
        "time": "2023-11-14T22:13:20.000Z",
        "client_id": "reader",
        "principal": "User:alice",
        "mechanism": "PLAIN",
        "peer": "10.0.0.1:4711",
        "topic": "orders",
        "topic_id": "id",
        "partition": 0,
        "fetch_offset": 142,
        "segment_id": "segment",
        "first_offset": 100,
        "last_offset": 199,
        "first_byte": 4096,
        "last_byte": 8191,
        "object": "s3://bucket/orders-0.log",
        "expiry_ms": 1_700_000_900_000,
    }


def test_a_disk_that_hangs_holds_no_caller_up_and_a_full_queue_refuses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    metrics = GatewayMetrics()
    audit = AuditLog(str(pipe), metrics, most=1000)
    started, taken = time.monotonic(), 0
    with pytest.raises(OSError, match="takes no lines"):
        while True:  # what a pipe and the writer hold comes on top of the queue
            audit.write(line_of(taken))
            taken += 1
            assert taken < 10_000
    assert time.monotonic() - started < 5
    assert taken >= 1000
    assert "the audit queue is full" in caplog.text
    found = b""
    while found.count(b"\n") < taken:
        try:
            found += os.read(reader, 1 << 20)
        except BlockingIOError:
            time.sleep(0.01)
    assert [json.loads(one)["fetch_offset"] for one in found.splitlines()] == list(range(taken))
    assert audit.flush()
    assert (metrics.audit_lines, metrics.audit_lost) == (taken, 0)
    audit.write(GIVEN)
    audit.close()
    os.close(reader)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_a_failing_disk_is_counted_logged_and_refuses_until_another_file_takes_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = GatewayMetrics()
    audit = AuditLog("/dev/full", metrics)
    audit.write(line_of(1))
    deadline = time.monotonic() + 30
    while not audit._is_failing:  # it is logged a moment before
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "the audit file cannot be written" in caplog.text
    assert metrics.audit_errors
    with pytest.raises(OSError, match="takes no lines"):
        audit.write(line_of(2))
    audit.reopen(str(tmp_path / "audit.jsonl"))
    assert audit.flush()
    audit.write(line_of(3))
    audit.close()
    assert offsets(tmp_path / "audit.jsonl") == [1, 3]
    assert (metrics.audit_lines, metrics.audit_lost) == (2, 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_what_is_lost_at_the_end_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    metrics = GatewayMetrics()
    audit = AuditLog("/dev/full", metrics)
    audit.write(GIVEN)
    audit.close()
    assert metrics.audit_lost == 1
    assert "1 audit lines are lost" in [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    with pytest.raises(OSError, match="closed"):
        audit.write(GIVEN)


def test_a_file_that_was_moved_is_left_when_the_log_is_reopened(tmp_path: Path) -> None:
    file, moved = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    audit = AuditLog(str(file), GatewayMetrics())
    audit.write(line_of(1))
    assert audit.flush()
    file.rename(moved)
    audit.write(line_of(2))
    assert audit.flush()
    audit.reopen(str(file))
    audit.write(line_of(3))
    with pytest.raises(OSError, match="none"):
        audit.reopen(str(tmp_path / "none" / "audit.jsonl"))
    audit.write(line_of(4))
    audit.close()
    assert (offsets(moved), offsets(file)) == ([1, 2], [3, 4])


def write_audit(number: int, first: int, count: int) -> None:
    """Append lines to an open file from a process of its own; some are longer than what a pipe takes whole."""
    audit = AuditLog(f"/proc/self/fd/{number}", GatewayMetrics(), is_shared=True)
    for offset in range(first, first + count):
        audit.write(replace(line_of(offset), client_id="c" * (offset % 50) * 400))
        if not offset % 100:
            audit.flush()
    audit.close()


@pytest.mark.parametrize("is_pipe", [False, True])
def test_lines_of_several_processes_in_one_audit_file_stay_whole(tmp_path: Path, is_pipe: bool) -> None:
    number, write_number = os.pipe() if is_pipe else (-1, os.open(tmp_path / "audit", os.O_WRONLY | os.O_CREAT))
    children = []
    for first in (0, 10_000, 20_000):
        if not (child := os.fork()):
            try:
                write_audit(write_number, first, 1000)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    os.close(write_number)
    text = ""
    if is_pipe:
        with os.fdopen(number) as stream:
            text = stream.read()
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    lines = (text or (tmp_path / "audit").read_text()).splitlines()
    found = [json.loads(line)["fetch_offset"] for line in lines]
    assert sorted(found) == [first + one for first in (0, 10_000, 20_000) for one in range(1000)]
