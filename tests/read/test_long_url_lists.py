"""Long lists of plain URLs: planned before they are read, and each byte once where no transaction is."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from corpus import Case, normal
from held_bodies import threads as threads_named
from held_bodies import until
from plain_urls import PLAIN, SHAPES, by_partition, plain_logs, rows_in, serving
from sample import every, sampled

from segreader.errors import SegmentGapError, SegreaderError
from segreader.storage.http import store as url_store
from segreader.storage.http.pacing import HedgePolicy
from segreader.storage.http.store import UrlListStore
from segreader.testing.builder import SegmentBuilder

KINDS = [("log",), ("log", "index", "timeindex"), ("log", "index", "timeindex", "txnindex")]


@pytest.fixture
def long_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists are long that are small; and requests are not sent twice, as they are on a busy machine."""
    monkeypatch.setattr(HedgePolicy, "allow", lambda _: False)
    monkeypatch.setattr(UrlListStore, "keeps_all", False)
    monkeypatch.setattr(url_store, "_FIRST_LOOK", 4096)


@pytest.mark.usefixtures("long_lists")
@pytest.mark.parametrize("kinds", KINDS, ids=["logs", "with indexes", "with transactions"])
@pytest.mark.parametrize("case", sampled(PLAIN, lambda case: case.topic in SHAPES), ids=str)
def test_long_lists_give_what_a_consumer_was_given(case: Case, kinds: tuple[str, ...]) -> None:
    files = list(plain_logs(case, *kinds).items())
    random.Random(case.topic).shuffle(files)
    with serving(dict(files)) as server:
        for level in ("committed", "uncommitted"):
            stop = case.offline_lso if level == "committed" else case.remote_stop
            expected = by_partition([row for row in case.truth(level) if row.offset < stop(row.partition)])
            for threads in (1, 2, 8):
                with server.scan(isolation_level=f"read_{level}", threads=threads) as scan:
                    assert by_partition([normal(record) for record in scan.records()]) == expected
                    planned = scan.prepare()
                with server.scan(isolation_level=f"read_{level}", threads=threads) as scan:
                    whole = scan.plan()
                assert [(end.partition, end.offset, end.reason, end.producer_id) for end in planned.ends] == [
                    (end.partition, end.offset, end.reason, end.producer_id) for end in whole.ends
                ]


def mixed_logs(number_of_first: int, at_end: str = "commit") -> dict[str, bytes]:
    """Six logs of 300 KB; transactions begin in the middle of one of them."""
    files, segment = {}, SegmentBuilder(0)
    for number in range(6):
        for batch in range(30):
            segment.batch([b"x" * 1000] * 10)
            if number >= number_of_first and batch == 17:
                segment.batch([b"of a transaction"] * 3, producer_id=7, transactional=True)
            if number >= number_of_first and batch == 20 and (number < 5 or at_end != "open"):
                segment.marker(7, abort=at_end == "abort" or bool(number % 2))
        files[f"orders-0/{segment.base_offset:020d}.log"] = segment.to_bytes()
        segment = segment.roll()
    return files


def outcome(files: dict[str, bytes], threads: int, **arguments: Any) -> tuple[list[Any], str | None, list[str]]:
    """Rows, the error behind them, and the notes."""
    rows: list[Any] = []
    error = None
    with serving(files) as server, server.scan(threads=threads, batch_rows=64, **arguments) as scan:
        place = f"127.0.0.1:{server.server_address[1]}"
        try:
            for batch in scan.to_batches():
                rows += zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
        except SegreaderError as caught:
            error = f"{type(caught).__name__} {caught}".replace(place, "")
        notes = sorted(note.replace(place, "") for note in scan.metrics.notes)
        counts = [f"{scan.metrics.records} {scan.metrics.holes}".replace(place, "")]
    return rows, error, notes + counts


def flipped(at: float) -> Callable[[bytes], bytes]:
    def damage(data: bytes) -> bytes:
        where = int(len(data) * at)
        return data[:where] + bytes([data[where] ^ 0x40]) + data[where + 1 :]

    return damage


def shifted_base(data: bytes) -> bytes:
    return data[:7] + bytes([data[7] ^ 1]) + data[8:]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "body": flipped(0.3),
    "late body": flipped(0.97),
    "length": lambda data: data[:9] + b"\x7f" + data[10:],
    "base": shifted_base,
    "cut": lambda data: data[:-100],
    "cut far": lambda data: data[: len(data) // 2],
    "zeros": lambda data: data[:-5000] + bytes(5000),
    "twice": lambda data: data + data[-70:],
    "magic": lambda data: data[:16] + b"\x01" + data[17:],
    "empty": lambda data: b"",
}


def check_as_when_read_before(
    files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, rows_of_all: list[int], **arguments: Any
) -> None:
    """Hold the rows, error, notes and counts of a long list against those of a short one, which is planned whole."""
    expected = outcome(files, 1, **arguments)
    monkeypatch.setattr(UrlListStore, "keeps_all", False)
    for threads in (1, 8):
        assert outcome(files, threads, **arguments) == expected
    given = [offset for _, offset in expected[0]]
    assert set(given) <= set(rows_of_all)
    assert given == sorted(set(given))
    assert arguments["on_corrupt"] == "skip" or given == rows_of_all[: len(given)]


DAMAGED = [
    (first, which, damage, policy)
    for first in (9, 2)
    for which in (3, 5, 0)
    for damage in DAMAGES
    for policy in ("fail", "skip")
]


@pytest.mark.parametrize(("first", "which", "damage", "policy"), every(7, DAMAGED))
def test_damaged_lists_give_the_same_rows_and_error(
    first: int, which: int, damage: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = mixed_logs(first)
    name = sorted(files)[which]
    files[name] = DAMAGES[damage](files[name])
    check_as_when_read_before(files, monkeypatch, offsets_of(first), on_corrupt=policy, on_gap=policy)


@pytest.mark.parametrize("on_gap", ["fail", "skip"])
@pytest.mark.parametrize("first", [2, 9], ids=["transactions", "none"])
@pytest.mark.parametrize("what", ["gap", "copy", "older copy", "wrong name", "no beginning"])
def test_lists_with_gaps_and_copies_give_the_same_rows_and_error(
    what: str, first: int, on_gap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = mixed_logs(first)
    name = sorted(files)[0 if what == "no beginning" else 3]
    base = int(name[-24:-4])
    if what == "copy":
        files[f"copy/{name}"] = files[name]
    elif what == "older copy":
        files[f"copy/{name}"] = files[name][: files[name].index((base + 100).to_bytes(8, "big"))]
    else:
        data = files.pop(name)
        if what == "wrong name":
            files[f"orders-0/{base + 1:020d}.log"] = data
    check_as_when_read_before(
        files,
        monkeypatch,
        offsets_of(first) if on_gap == "fail" and what != "no beginning" else [*range(3000)],
        on_corrupt="skip" if on_gap == "skip" or what == "no beginning" else "fail",
        on_gap=on_gap,
    )


@pytest.mark.usefixtures("long_lists")
@pytest.mark.parametrize("kept", [0, 1 << 20])
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("threads", [1, 8])
def test_each_byte_of_a_long_list_without_transactions_is_fetched_once(
    level: str, threads: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(url_store, "_MOST_KEPT", kept)
    files = mixed_logs(9)
    with serving(files) as server, server.scan(isolation_level=level, threads=threads) as scan:
        assert rows_in(scan) == 6 * 300
        assert scan.plan().ends[0].offset == 6 * 300
    small = len(files) * ((64 << 10) + (4 << 10) * (2 if not kept else 0))  # the end of each log, and its beginning
    assert sum(server.sent.values()) <= sum(map(len, files.values())) + small
    assert max(server.asked.values()) <= (3 if kept else 4)
    assert min(server.least.values()) > 1


@pytest.mark.usefixtures("long_lists")
@pytest.mark.parametrize("at_end", ["commit", "abort", "open"])
@pytest.mark.parametrize("first", [0, 2, 5])
@pytest.mark.parametrize("threads", [1, 8])
def test_a_long_list_is_replayed_from_the_first_transaction_on(
    first: int, at_end: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(url_store, "_MOST_KEPT", 0)
    files = mixed_logs(first, at_end)
    sizes = [len(files[name]) for name in sorted(files)]
    with serving(files) as server:
        with server.scan(threads=threads) as scan:
            found = [record.offset for record in scan.records()]
            ends = scan.prepare().ends
        sent = sum(server.sent.values())
        with server.scan(threads=threads) as scan:
            expected = scan.plan().ends
    assert ends == expected
    assert found == offsets_of(first, at_end)
    small = len(files) * (76 << 10)
    ahead = sum(sizes[first : first + threads])  # what was fetched of logs before the replay
    assert sent <= sum(sizes) + sum(sizes[first:]) + ahead + small


def offsets_of(first: int, at_end: str = "commit") -> list[int]:
    """The committed records of ``mixed_logs``."""
    found: list[int] = []
    at = 0
    for number in range(6):
        for batch in range(30):
            found += range(at, at + 10)
            at += 10
            if number >= first and batch == 17:
                if number == 5 and at_end == "open":
                    return found
                if not (at_end == "abort" or number % 2):
                    found += range(at, at + 3)
                at += 3
            at += number >= first and batch == 20 and (number < 5 or at_end != "open")
    return found


@pytest.mark.usefixtures("long_lists")
def test_a_long_list_may_be_read_in_part_and_again() -> None:
    with serving(mixed_logs(2)) as server, server.scan(threads=2, batch_rows=100) as scan:
        expected = offsets_of(2, "commit")
        for stop in (1, 8, 12, None):
            rows: list[int] = []
            for count, batch in enumerate(scan.to_batches()):
                if count == stop:
                    break
                rows += batch["offset"].to_pylist()
            assert rows == expected[: len(rows)]
        assert rows == expected


@pytest.mark.usefixtures("long_lists")
@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("filling", [0, 100_000], ids=["beside the last batch", "alone"])
@pytest.mark.parametrize("which", [2, 5])
def test_a_record_that_looks_like_the_last_batch_is_none(which: int, filling: int, threads: int) -> None:
    """A batch in the last record ends where the log does, by length and CRC: its last byte counts no headers."""
    files = mixed_logs(9)
    names = sorted(files)
    base = 300 * which
    fake = SegmentBuilder(base + 299).batch([b"fake"]).to_bytes()
    segment = SegmentBuilder(base)
    for _ in range(28):
        segment.batch([b"x" * 1000] * 10)
    files[names[which]] = segment.batch([b"x" * filling + fake[:-1]] * 5).to_bytes()
    assert files[names[which]].endswith(fake)
    with serving(files) as server, server.scan(threads=threads, on_gap="skip") as scan:
        found = [record.offset for record in scan.records()]
        plan = scan.plan()
    assert found == [*range(base + 285), *range(base + 300, 1800)]
    assert plan.ends[0].offset == (1785 if which == 5 else 1800)
    assert [(gap.start, gap.stop) for gap in plan.gaps] == ([] if which == 5 else [(base + 285, base + 300)])


@pytest.mark.usefixtures("long_lists")
def test_a_long_list_may_be_read_several_times_at_once() -> None:
    expected = offsets_of(2)
    with serving(mixed_logs(2)) as server, server.scan(threads=2, batch_rows=100) as scan:
        reads = [scan.to_batches() for _ in range(3)]
        found: list[list[int]] = [[], [], []]
        for batches in zip(*reads, strict=True):
            for rows, batch in zip(found, batches, strict=True):
                rows += batch["offset"].to_pylist()
    assert found == [expected] * 3


@pytest.mark.usefixtures("long_lists")
def test_the_threads_of_a_plan_end_with_its_error() -> None:
    files = mixed_logs(9)
    del files[sorted(files)[3]]
    with serving(files) as server, server.scan() as scan, pytest.raises(SegmentGapError) as caught:
        scan.prepare()
    assert caught.value.__traceback__ is not None  # it holds the frames
    assert until(lambda: not threads_named("segreader-plan"))  # one that waits for the network may end a moment later
