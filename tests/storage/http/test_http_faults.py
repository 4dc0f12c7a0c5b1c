"""The fault matrix: what the store does when the server misbehaves. Figures: ``docs/explanation/reliability.md``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fault_server import HEADS, LENGTHS, WRONG_CODINGS, FaultServer
from fault_urls import FaultUrls, StandingClock, is_once_within, open_store, read

from segreader.errors import (
    AccessDeniedError,
    ObjectChangedError,
    ObjectNotFoundError,
    ShortReadError,
    StorageError,
    ThrottledError,
    WrongAnswerError,
)
from segreader.storage.base import ObjectInfo, tag_of


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


TIMED = {"stallmid", "stallhead", "drip"}
"""What ends their first request is a timeout: a machine that stands still may end another one so."""


@pytest.mark.parametrize(
    ("scenario", "gets"),
    [
        ("clean", 2),
        ("status-500x2", 4),
        ("status-503x2", 4),
        ("status-429x2", 4),
        ("status-408x2", 4),
        ("status-504x2", 4),
        ("status-502x2", 4),
        ("rstbefore", 3),
        ("resetmid", 3),
        ("finmid", 3),
        ("cuthead", 3),
        ("stallmid", 3),
        ("stallhead", 3),
        ("drip", 3),
        ("r200cr", 2),
        ("weaktag", 2),
        ("chunked", 2),
        ("transfer-upper", 2),
        ("transfer-title", 2),
        ("interim-103x1", 2),
        ("interim-102x3", 2),
        ("interim-100x2", 2),
        ("interim-199x50", 2),
        ("close", 2),
        ("status-403x1", 3),
        ("expired", 3),
        ("expired-400", 3),
        ("token", 3),
    ],
)
def test_the_right_bytes_come_in_spite_of(server: FaultServer, scenario: str, gets: int) -> None:
    times: dict[str, Any] = {"idle_timeout_s": 0.5} if scenario in TIMED else {}

    def attempt(turn: int) -> bool:
        id = f"ok-{scenario}-{turn}"
        with open_store(server, **times) as store:
            assert read(store, f"{scenario}/{id}", 1000, 601_000) == server.data[1000:601_000]
        assert store.metrics.bytes_got == 600_000
        found = len(server.log(id))
        assert found == gets or scenario in TIMED
        return found == gets

    assert is_once_within(2, attempt)


@pytest.mark.parametrize(
    ("scenario", "error", "gets"),
    [
        ("etagchange", ObjectChangedError, 2),
        ("etagchangeignored", ObjectChangedError, 2),
        ("etaggone", ObjectChangedError, 2),
        ("sizechange", ObjectChangedError, 2),
        ("sizeandtagchange", ObjectChangedError, 2),
        ("timechange", ObjectChangedError, 2),
        ("weaktagchange", ObjectChangedError, 2),
        ("shrunk", ObjectChangedError, 2),
        ("full200", WrongAnswerError, 1),
        ("wrongcr", WrongAnswerError, 1),
        ("nocr", WrongAnswerError, 1),
        ("nototal", WrongAnswerError, 1),
        ("lengthlie", WrongAnswerError, 1),
        ("twolengths", WrongAnswerError, 1),
        *((f"length-{name}", WrongAnswerError, 1) for name in LENGTHS),
        *((f"transfer-{name}", WrongAnswerError, 1) for name in WRONG_CODINGS),
        *((f"transferbroken-{name}", WrongAnswerError, 1) for name in WRONG_CODINGS),
        *((f"transferlater-{name}", WrongAnswerError, 2) for name in WRONG_CODINGS),
        *((f"head-{name}", WrongAnswerError, 1) for name in HEADS),
        ("http10", WrongAnswerError, 1),
        ("interim-103x0", WrongAnswerError, 1),
        ("interim-101x1", WrongAnswerError, 1),
        ("html200", WrongAnswerError, 1),
        ("multipart", WrongAnswerError, 1),
        ("gzip", WrongAnswerError, 1),
        ("chunked-long", WrongAnswerError, 1),
        ("redirect-host", WrongAnswerError, 1),
        ("redirect-metadata", WrongAnswerError, 1),
        ("redirect-file", WrongAnswerError, 1),
        ("redirect-moved", WrongAnswerError, 1),
        ("bighead", WrongAnswerError, 1),
        ("longhead", WrongAnswerError, 1),
        ("manyheaders", WrongAnswerError, 1),
        ("garbage", WrongAnswerError, 1),
        ("shortok", ShortReadError, 1),
        ("empty", ShortReadError, 1),
        ("finmidforever", ShortReadError, 10),
        ("chunked-short", ShortReadError, 6),
        ("status-503x99", ThrottledError, 6),
        ("status-500x99", StorageError, 6),
        ("status-403x99", AccessDeniedError, 2),
        ("skewed", AccessDeniedError, 1),
        ("archived", AccessDeniedError, 1),
        ("archivedazure", AccessDeniedError, 1),
        ("truncxml", AccessDeniedError, 1),
        ("hugeerror", AccessDeniedError, 1),
        ("gone-1", ObjectNotFoundError, 2),
    ],
)
def test_no_bytes_but_an_error_come_from(
    server: FaultServer, scenario: str, error: type[StorageError], gets: int
) -> None:
    with open_store(server) as store:
        began = time.monotonic()
        with pytest.raises(StorageError) as caught:
            read(store, f"{scenario}/bad-{scenario}", 1000, 601_000)

    assert type(caught.value) is error
    assert len(server.log(f"bad-{scenario}")) == gets
    assert server.log(f"bad-{scenario}-elsewhere") == []
    assert time.monotonic() - began < 5
    assert caught.value.__context__ is None


def test_a_flipped_bit_is_not_found_here(server: FaultServer) -> None:
    """Nothing in HTTP says so: the CRC of the batch does."""
    with open_store(server) as store:
        assert read(store, "bitflip/flip", 0, 1000) != server.data[:1000]


@pytest.mark.parametrize("how", ["resetmid", "finmid"])
@pytest.mark.parametrize("eighth", range(8))
def test_a_broken_body_goes_on_at_the_last_good_byte(server: FaultServer, how: str, eighth: int) -> None:
    id = f"{how}-at-{eighth}"
    with open_store(server, range_size=1 << 20) as store:
        assert read(store, f"{how}-{eighth}/{id}", 0, 800_000) == server.data[:800_000]

    good = 100_000 * eighth
    assert [request.range for request in server.log(id)] == ["bytes=0-799999", f"bytes={good}-799999"]
    assert store.metrics.bytes_got == 800_000
    assert server.sent[id] == 800_000


@pytest.mark.parametrize("size", range(44))
def test_a_head_cut_at_any_byte_is_asked_for_again(server: FaultServer, size: int) -> None:
    with open_store(server) as store:
        assert read(store, f"cuthead-{size}/cut-{size}", 0, 1000) == server.data[:1000]

    assert len(server.log(f"cut-{size}")) == 2


def test_what_follows_a_broken_body_must_be_the_same_version(server: FaultServer) -> None:
    with open_store(server, range_size=1 << 20) as store:
        read(store, "finmid/tagged", 0, 800_000)

    assert [request.if_match for request in server.log("tagged")] == [None, '"v1"']


def test_every_request_names_its_range_and_takes_no_encoding(server: FaultServer) -> None:
    with open_store(server) as store:
        store.size("clean/plain")
        read(store, "clean/plain", 5, 10)

    assert [request.range for request in server.log("plain")] == ["bytes=0-0", "bytes=5-9"]
    assert [request.method for request in server.log("plain")] == ["GET", "GET"]
    assert {request.headers["accept-encoding"] for request in server.log("plain")} == {"identity"}
    assert store.metrics.log == ["GET clean/plain bytes=0-0", "GET clean/plain bytes=5-9"]


@pytest.mark.parametrize("scenario", ["stallhead", "stallmid"])
def test_a_stall_is_noticed_within_the_idle_time(server: FaultServer, scenario: str) -> None:
    with open_store(server, idle_timeout_s=0.3) as store:
        assert is_once_within(1.3, lambda turn: read(store, f"{scenario}/{scenario}-{turn}", 0, 1000))


@pytest.mark.parametrize("scenario", ["driphead", "continues"])
def test_a_head_that_never_ends_is_given_up(server: FaultServer, scenario: str) -> None:
    def attempt(turn: int) -> bool:
        assert read(store, f"{scenario}/head-{scenario}-{turn}", 0, 1000) == server.data[:1000]
        return len(server.log(f"head-{scenario}-{turn}")) == 2

    with open_store(server, idle_timeout_s=0.2, connect_timeout_s=0.2) as store:
        assert is_once_within(1.6, attempt)


@pytest.mark.parametrize(("range_size", "every"), [(1 << 20, 64), (1 << 20, 128), (300_000, 100)])
def test_a_range_goes_on_as_long_as_its_tries_make_progress(server: FaultServer, range_size: int, every: int) -> None:
    """16 tries of 64 KiB; and a job's retries are not spent on them."""
    id = f"every-{every}"
    with open_store(server, range_size=range_size, tries=2, retry_reserve=0, retry_budget=0) as store:
        assert read(store, f"resetevery-{every}/{id}", 0, 1 << 20) == server.data

    gets = sum(-(-min(range_size, (1 << 20) - at) // (every << 10)) for at in range(0, 1 << 20, range_size))
    assert len(server.log(id)) == gets
    assert server.sent[id] == 1 << 20


@pytest.mark.parametrize("scenario", ["byteatatime", "resetevery-10"])
def test_a_few_bytes_a_try_are_no_progress(server: FaultServer, scenario: str) -> None:
    with open_store(server) as store, pytest.raises(ShortReadError):
        read(store, f"{scenario}/few-{scenario}", 0, 100_000)

    assert len(server.log(f"few-{scenario}")) == 6


def test_a_link_that_breaks_every_2_mib_gives_a_range_of_16_mib(server: FaultServer) -> None:
    with FaultServer(bytes(16 << 20)) as large, open_store(large, range_size=16 << 20) as store:
        assert read(store, "resetevery-2048/large", 0, 16 << 20) == large.data

        assert len(large.log("large")) == 8


@pytest.mark.parametrize(
    "scenario", ["dripheads", "stallheads", "stalls", "dripchunks", "driperrors", "drip-99", "hintsforever"]
)
def test_a_range_that_never_ends_is_given_up_in_its_time(server: FaultServer, scenario: str) -> None:
    """More tries than there is time for: what ends them is ``range_timeout_s``."""
    slow = {"connect_timeout_s": 0.2, "idle_timeout_s": 0.3, "floor_rate": 50_000, "tries": 99, "retry_reserve": 99}

    def attempt(turn: int) -> bool:
        id = f"never-{scenario}-{turn}"
        with open_store(server, range_timeout_s=1.0, **slow) as store:  # type: ignore[arg-type]
            began = time.monotonic()
            with pytest.raises(StorageError) as caught:
                read(store, f"{scenario}/{id}", 0, 300_000)
        assert time.monotonic() - began < 10  # 99 tries would take half a minute
        assert caught.value.__context__ is None
        assert len(server.log(id)) < 99
        return len(server.log(id)) > 1

    assert any(attempt(turn) for turn in range(5))  # a machine that stands still for a second has no time for two


def test_a_slow_answer_may_take_longer_than_a_range_that_makes_no_progress() -> None:

    def attempt(scenario: str, turn: int) -> bool:
        id = f"{scenario}-{turn}"
        times: dict[str, Any] = {"range_timeout_s": 0.4, "idle_timeout_s": 0.3, "floor_rate": 50_000}
        with contextlib.suppress(StorageError), open_store(slow, **times) as store:
            assert read(store, f"{scenario}/{id}", 0, 300_000) == slow.data[:300_000]
            return len(slow.log(id)) == 1
        return False

    with FaultServer(rate=400_000) as slow:  # which a busy machine may hold up for longer than the idle time
        assert any(attempt("clean", turn) for turn in range(5))
        assert any(attempt("chunked", turn) for turn in range(5))


def test_what_a_store_asks_to_wait_does_not_outlast_the_time_of_a_range(server: FaultServer) -> None:
    clock = StandingClock()
    with open_store(server, clock=clock) as store, pytest.raises(ThrottledError, match="in 25 s"):
        read(store, "retryafters-25/waits", 0, 1000)

    assert len(server.log("waits")) == 3
    assert sum(clock.waits) < 60


def test_bytes_that_drip_on_every_try_end_in_an_error(server: FaultServer) -> None:
    with open_store(server, idle_timeout_s=0.5, tries=3) as store, pytest.raises(StorageError, match="too slowly"):
        read(store, "drip-99/drip", 0, 100_000)

    assert len(server.log("drip")) == 3


def test_a_trailer_that_never_ends_does_not_hold_the_read(server: FaultServer) -> None:
    with open_store(server, idle_timeout_s=0.2) as store:
        assert read(store, "trailers/trailers", 0, 1000) == server.data[:1000]


def test_what_the_server_asks_to_wait_is_waited(server: FaultServer) -> None:
    def attempt(turn: int) -> None:
        began = time.monotonic()
        read(store, f"retryafter-1/after-{turn}", 0, 1000)
        assert time.monotonic() - began >= 1

    with open_store(server) as store:
        assert is_once_within(2, attempt)


def test_a_server_that_asks_to_wait_for_an_hour_is_not_waited_for(server: FaultServer) -> None:
    with open_store(server) as store, pytest.raises(ThrottledError, match="in 3600 s"):
        read(store, "retryafter-3600/hour", 0, 1000)


def test_a_job_does_not_try_again_without_end(server: FaultServer) -> None:
    """R2: 503 for ever, many ranges: the retries of the job are bounded, not only those of a range."""
    with open_store(server, retry_reserve=8, backoff_start_s=0) as store:
        for number in range(100):
            with pytest.raises(ThrottledError):
                read(store, f"status-503x99/budget-{number}", 0, 1000)

    assert store.metrics.requests <= 100 * 1.1
    assert store.metrics.throttles == store.metrics.requests


def test_the_size_listed_must_be_the_size_found(server: FaultServer) -> None:
    with open_store(server) as store:
        assert len(read(store, "clean/listed", 0, 1000, expected_size=1 << 20)) == 1000
        with pytest.raises(ObjectChangedError, match="1048577"):
            read(store, "clean/listed", 0, 1000, expected_size=(1 << 20) + 1)
    with open_store(server) as store, pytest.raises(ObjectChangedError):
        read(store, "clean/listed", 0, 1000, expected_size=1000)


class ListedUrls(FaultUrls):
    """URLs of a store that lists its objects with tags."""

    def __init__(self, server: FaultServer, tag: str, modified_ms: int | None = None) -> None:
        super().__init__(server)
        self.tag, self.modified_ms = tag, modified_ms
        self.listed: list[str] = []

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self.listed.append(prefix)
        yield ObjectInfo(prefix + "-beside", 7, None, "etag:other")
        yield ObjectInfo(prefix, len(self.server.data), self.modified_ms, self.tag)


@pytest.mark.parametrize(
    ("scenario", "tag"),
    [("clean", '"v1"'), ("clean", "v1"), ("clean", 'W/"v1"'), ("weaktag", "v1")],
)
def test_the_version_listed_is_known_by_its_tag_however_it_is_quoted(
    server: FaultServer, scenario: str, tag: str
) -> None:
    urls = ListedUrls(server, "")
    with open_store(server, urls=urls) as store:
        listed, id = tag_of("etag", tag), f"pin-{scenario}-{len(tag)}"
        assert read(store, f"{scenario}/{id}", expected_tag=listed) == server.data[:600_000]
    assert (len(server.log(id)), urls.listed) == (2, [])


def test_another_version_than_the_listed_one_is_refused_before_a_byte_of_it_is_taken(server: FaultServer) -> None:
    with open_store(server, urls=ListedUrls(server, "etag:v2")) as store:
        for found in ("etag:v0", "generation:7", "mtime:1"):
            with pytest.raises(ObjectChangedError, match=f"found etag:v1, expected {found}") as caught:
                read(store, "clean/pinned-other", expected_size=1 << 20, expected_tag=found)
            assert "plan again" in (caught.value.hint or "")
    assert store.metrics.bytes_got == 0
    assert len(server.log("pinned-other")) == 3


def test_a_store_that_lists_other_tags_than_it_answers_with_is_believed_while_its_listing_stays(
    server: FaultServer,
) -> None:
    at_ms = 1795255200000  # Sat, 21 Nov 2026 10:00:00 GMT, as the answers say
    for modified_ms in (None, at_ms, at_ms + 999):
        urls = ListedUrls(server, "etag:sealed", modified_ms)
        with open_store(server, urls=urls) as store:
            for _ in range(3):
                assert read(store, "clean/sealed", expected_tag="etag:sealed") == server.data[:600_000]
            assert urls.listed == ["clean/sealed"]
            urls.tag = "etag:anew"
            with pytest.raises(ObjectChangedError, match="expected etag:earlier"):
                read(store, "clean/sealed", expected_tag="etag:earlier")
    behind = ListedUrls(server, "etag:sealed", at_ms - 60_000)  # the listing is a minute late
    with open_store(server, urls=behind) as store, pytest.raises(ObjectChangedError):
        read(store, "clean/sealed", expected_tag="etag:sealed")


def test_an_answer_without_a_tag_is_no_proof_of_another_version(server: FaultServer) -> None:
    urls = ListedUrls(server, "etag:v1")
    with open_store(server, urls=urls) as store:
        assert read(store, "notag/untagged", expected_tag="etag:v1") == server.data[:600_000]
    assert urls.listed == ["notag/untagged"]


def test_a_newer_plan_frees_a_store_of_the_version_that_it_read_before(server: FaultServer) -> None:
    with open_store(server) as store:
        assert read(store, "versions/freed", 0, 9, expected_tag="etag:v1") == server.data[:9]
        with pytest.raises(ObjectChangedError):
            read(store, "versions/freed", 0, 9, expected_tag="etag:v1")
        assert read(store, "versions/freed", 0, 9, expected_tag="etag:v2") == server.data[:9]


@pytest.mark.parametrize("scenario", ["empty", "empty-200"])
def test_an_empty_object_has_size_zero(server: FaultServer, scenario: str) -> None:
    with open_store(server) as store:
        assert store.size(f"{scenario}/size-{scenario}") == 0


def test_a_range_behind_the_end_is_a_short_read(server: FaultServer) -> None:
    with open_store(server) as store:
        with pytest.raises(ShortReadError):
            read(store, "clean/end", 1_048_000, 1_049_000)
        with pytest.raises(ShortReadError):
            read(store, "clean/end", 1_048_576, 1_048_577)


def test_a_whole_object_may_come_as_a_plain_200(server: FaultServer) -> None:
    with open_store(server, range_size=1 << 20) as store:
        assert read(store, "full200/whole", 0, 1 << 20) == server.data


def test_no_server_at_all_is_an_error_that_names_the_place() -> None:
    with FaultServer() as server:
        store = open_store(server, tries=2)
    with pytest.raises(StorageError, match="connection") as caught:
        read(store, "clean/none", 0, 1000)
    store.close()

    assert "127.0.0.1" in str(caught.value)
    assert "canary" not in str(caught.value)
