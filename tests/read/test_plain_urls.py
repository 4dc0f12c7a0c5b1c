"""Lists of plain URLs, without snapshots: what a Java consumer was given, and each byte of small logs once."""

from __future__ import annotations

import pytest
from corpus import Case, normal
from plain_urls import PLAIN, SHAPES, by_partition, plain_logs, rows_in, serving
from sample import sampled

from segreader.errors import ShortReadError
from segreader.storage.http import store as url_store
from segreader.storage.metrics import metrics_of
from segreader.testing.builder import SegmentBuilder


@pytest.mark.parametrize("kinds", [("log",), ("log", "index", "timeindex", "txnindex")], ids=["logs", "with indexes"])
@pytest.mark.parametrize("case", sampled(PLAIN, lambda case: case.topic in SHAPES), ids=str)
def test_plain_urls_give_what_a_consumer_was_given(case: Case, kinds: tuple[str, ...]) -> None:
    with serving(plain_logs(case, *kinds)) as server:
        for level in ("committed", "uncommitted"):
            stop = case.offline_lso if level == "committed" else case.remote_stop
            expected = by_partition([row for row in case.truth(level) if row.offset < stop(row.partition)])
            for threads in (1, 2, 8):
                with server.scan(isolation_level=f"read_{level}", threads=threads) as scan:
                    assert by_partition([normal(record) for record in scan.records()]) == expected


def bare_logs() -> dict[str, bytes]:
    """Four logs of 300 KB without anything beside them, with a transaction across each border."""
    files, segment = {}, SegmentBuilder(0)
    for number in range(4):
        if number:
            segment.marker(7, abort=bool(number % 2))
        for _ in range(30):
            segment.batch([b"x" * 1000] * 10)
        segment.batch([b"of a transaction"], producer_id=7, transactional=True)
        files[f"orders-0/{segment.base_offset:020d}.log"] = segment.to_bytes()
        segment = segment.roll()
    return files


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_each_byte_of_bare_logs_is_fetched_once(level: str) -> None:
    with serving(bare_logs()) as server, server.scan(isolation_level=level) as scan:
        count = rows_in(scan)
        metrics = metrics_of(scan.store)
    assert count == 4 * 300 + (1 if level == "read_committed" else 4)
    assert metrics is not None
    assert metrics.bytes_got == sum(map(len, server.files.values()))
    repeated = metrics.hedges + metrics.retries  # on a busy machine
    assert metrics.requests - repeated == 2 * 4  # the first bytes of each, which tell its size, and the others


def test_what_is_too_much_to_keep_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_store, "_MOST_KEPT", 500_000)
    with serving(bare_logs()) as server, server.scan() as scan:
        assert scan.plan().ends[0].offset == 1206
        assert rows_in(scan) == 1201
    assert sum(server.sent.values()) > sum(map(len, server.files.values()))


def test_a_log_that_was_replaced_since_it_was_looked_at_is_read_as_it_was() -> None:
    with serving(bare_logs()) as server, server.scan() as scan:
        scan.plan()
        for name, data in server.files.items():
            server.files[name] = data[:-1] + bytes([data[-1] ^ 1])
        assert rows_in(scan) == 1201


def test_small_and_empty_logs_are_whole() -> None:
    files = bare_logs()
    last = SegmentBuilder(1207).batch([b"x"] * 3)
    files[f"orders-0/{last.base_offset:020d}.log"] = last.to_bytes()
    files[f"orders-0/{last.next_offset:020d}.log"] = b""
    with serving(files) as server, server.scan(isolation_level="read_uncommitted", on_gap="skip") as scan:
        assert rows_in(scan) == 1207
        metrics = metrics_of(scan.store)
    assert metrics is not None
    assert metrics.bytes_got == sum(map(len, files.values()))
    assert metrics.requests - metrics.hedges - metrics.retries == 2 * 4 + 1 + 1


def test_an_answer_that_is_cut_is_no_small_log() -> None:
    with serving(bare_logs()) as server, server.scan() as scan:
        server.most = 1000
        with pytest.raises(ShortReadError, match="the answer ends before the range does"):
            rows_in(scan)
