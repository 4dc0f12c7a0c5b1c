"""Reading ahead over HTTP: faults come after what is good, and neither ending nor the first rows wait for bodies."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from sample import exhaustive

import segreader
from segreader.errors import SegreaderError
from segreader.storage.http.pacing import HedgePolicy
from segreader.storage.http.settings import HttpSettings
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import local_tiered_files

GRACE_S = 0.3


class Bucket(ThreadingHTTPServer):
    """Serves files by range; logs named in ``stuck`` end with the head, or after so many bytes, and wait."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.stuck: dict[str, int] = {}
        self.broken: set[str] = set()
        self.stuck_small = ""
        self.let_go = threading.Event()
        self.bodies = 0

    def handle_error(self, *_: object) -> None:
        """Clients that go away are no fault."""

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{self.server_address[1]}/{name}" for name in self.files]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bucket

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        name = self.path[1:]
        data = self.server.files[name]
        if self.server.stuck_small and name.endswith(self.server.stuck_small):
            self.server.bodies += 1
            self.server.let_go.wait(30)
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last) + 1, len(data))
        is_body = name.endswith(".log") and stop - start > 1000
        if is_body and name in self.server.broken:
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206)
        self.send_header("Content-Length", str(stop - start))
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        self.send_header("ETag", f'"{len(data)}"')
        self.end_headers()
        if is_body and name in self.server.stuck:
            self.server.bodies += 1
            self.wfile.write(data[start : start + self.server.stuck[name]])
            self.wfile.flush()
            self.server.let_go.wait(30)
            self.close_connection = True
            return
        self.wfile.write(data[start:stop])


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    files: dict[str, bytes] = {}
    segment, some = SegmentBuilder(0), []
    for _ in range(6):
        for _ in range(30):
            segment.batch([b"x" * 10_000] * 10)
        some.append(segment)
        segment = segment.roll()
    files |= dict(local_tiered_files("orders", some))
    server = Bucket(files)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.let_go.set()
    server.shutdown()
    server.server_close()


def open_scan(bucket: Bucket, **arguments: Any) -> Any:
    port = bucket.server_address[1]
    options = {"allow_hosts": f"http://127.0.0.1:{port}", "allow_private": True, "allow_http": True}
    return segreader.scan(urls=bucket.urls, storage_options=options, batch_rows=50, threads=6, **arguments)


def logs(bucket: Bucket) -> list[str]:
    return sorted(name for name in bucket.files if name.endswith(".log"))


def readers() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("segreader-read")]


def until(is_so: Any) -> None:
    deadline = time.monotonic() + 10
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert is_so()


@pytest.mark.parametrize("sent", [0, 1_500_000])
@pytest.mark.parametrize("by", ["close", "drop"])
def test_ending_a_read_does_not_wait_for_bodies(bucket: Bucket, by: str, sent: int) -> None:
    def end_one() -> float:
        bucket.stuck, bucket.bodies = {}, 0
        with open_scan(bucket) as scan:
            scan.plan()
            bucket.stuck = dict.fromkeys(logs(bucket)[1:], sent)
            batches = scan.to_batches()
            for _ in range(4):
                next(batches)
            until(lambda: bucket.bodies >= 5)
            began = time.monotonic()
            if by == "close":
                batches.close()
            del batches
            until(lambda: not readers())
            return time.monotonic() - began

    assert median(end_one() for _ in range(3)) < GRACE_S  # the machine may be busy with something else once


@pytest.mark.parametrize("stuck", [".snapshot", ".leader_epoch_checkpoint", ".log"])
def test_an_interrupt_ends_planning_at_once(bucket: Bucket, stuck: str) -> None:
    main_thread = threading.main_thread().ident
    assert main_thread is not None

    def end_one() -> float:
        interrupted = [0.0]
        bucket.bodies = 0

        def interrupt() -> None:
            until(lambda: bucket.bodies > 0)
            time.sleep(0.1)
            interrupted[0] = time.monotonic()
            signal.pthread_kill(main_thread, signal.SIGINT)

        killer = threading.Thread(target=interrupt)
        with open_scan(bucket) as scan:
            killer.start()
            try:
                with pytest.raises(KeyboardInterrupt):
                    scan.plan()
                return time.monotonic() - interrupted[0]
            finally:
                killer.join()

    bucket.stuck_small = stuck
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert median(end_one() for _ in range(3)) < GRACE_S
    finally:
        signal.signal(signal.SIGINT, before)


def test_rows_are_given_while_the_rest_of_their_range_is_under_way(bucket: Bucket) -> None:
    with open_scan(bucket) as scan:
        scan.plan()
        bucket.stuck = dict.fromkeys(logs(bucket), 2 << 20)
        batches = scan.to_batches()
        assert [next(batches).num_rows for _ in range(2)] == [50, 50]
        batches.close()


@pytest.mark.parametrize("broken", range(6))
def test_an_error_of_a_store_comes_after_the_rows_before_it(bucket: Bucket, broken: int) -> None:
    with open_scan(bucket) as scan:
        scan.plan()
        bucket.broken = {logs(bucket)[broken]}
        offsets: list[int] = []
        with pytest.raises(SegreaderError, match="403"):
            for batch in scan.to_batches():
                offsets += batch.column("offset").to_pylist()
        assert offsets == list(range(300 * broken))
        assert scan.metrics.records == 300 * broken
    until(lambda: not readers())  # one that waits for the network may end a moment later


def test_pace_is_an_option_of_the_store(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HedgePolicy, "allow", lambda _: False)  # a second request for what is late counts, too
    port = bucket.server_address[1]
    options = {"allow_hosts": f"http://127.0.0.1:{port}", "allow_private": True, "allow_http": True}
    with segreader.scan(urls=bucket.urls, storage_options=options | {"range_size": "100000", "in_flight": 3}) as scan:
        assert scan.to_arrow().num_rows == 1800
        assert scan.metrics.requests == sum(-(-len(bucket.files[name]) // 100_000) for name in logs(bucket))
    for name, value in (("in_flight", 0), ("in_flight", "many"), ("range_size", -1), ("in_flight", 1000)):
        with pytest.raises(SegreaderError, match=f"{name} must be a number from 1 to"):
            segreader.scan(urls=bucket.urls, storage_options=options | {name: value})


def test_settings_of_the_environment_and_of_options_join() -> None:
    from segreader.storage.options import StorageOptions

    settings = HttpSettings(in_flight=4).with_options(StorageOptions(range_size=5))
    assert (settings.in_flight, settings.range_size) == (4, 5)
    assert HttpSettings(in_flight=4).with_options(StorageOptions(in_flight=9)).in_flight == 9


MIB = 1 << 20
SLACK = 64 * MIB
READ = """
import sys, time
import segreader
from segreader.testing.builder import SegmentBuilder

port, threads, most, is_slow = map(int, sys.argv[1:5])

def peak():
    text = open("/proc/self/status").read()
    return int(text.split("VmHWM:")[1].split()[0]) << 10

def scan(urls):
    options = {"allow_hosts": f"http://127.0.0.1:{port}", "allow_private": True, "allow_http": True}
    options["in_flight"] = threads
    return segreader.scan(urls=urls, storage_options=options, threads=threads, read_ahead_bytes=most)

urls = [f"http://127.0.0.1:{port}/{name}" for name in sys.stdin.read().split()]
for _ in scan([url for url in urls if "/warm-0-" in url]).to_batches():
    pass
before = peak()
rows = 0
for number, batch in enumerate(scan([url for url in urls if "/large-0-" in url]).to_batches()):
    rows += batch.num_rows
    if is_slow and number % 12 == 4:
        time.sleep(0.3)  # what may be read ahead is
print(rows, peak() - before)
"""


@pytest.fixture(scope="module")
def large_bucket() -> Iterator[Bucket]:
    files: dict[str, bytes] = {}
    for topic, segments, batches in (("warm", 2, 2), ("large", 20, 12)):
        segment, some = SegmentBuilder(0), []
        for _ in range(segments):
            for _ in range(batches):
                segment.batch([bytes(100_000)] * 10)
            some.append(segment)
            segment = segment.roll()
        files |= dict(local_tiered_files(topic, some))
    server = Bucket(files)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not give a process's peak memory")
@pytest.mark.parametrize("is_slow", [0, 1])
@pytest.mark.parametrize(("threads", "most"), [exhaustive(2, 32 * MIB), (8, 128 * MIB), exhaustive(16, 128 * MIB)])
def test_reading_ahead_takes_no_more_than_its_bytes(
    large_bucket: Bucket, threads: int, most: int, is_slow: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", READ, str(large_bucket.server_address[1]), str(threads), str(most), str(is_slow)],
        input="\n".join(large_bucket.files),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows, peak = map(int, done.stdout.split())
    assert rows == 2400
    assert peak <= most + SLACK
