"""URLs that end: renewed once for all threads, early where their end is known, and told apart from a plain refusal."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from fault_server import FaultServer
from fault_urls import CANARY, FaultUrls, StandingClock, open_store, read

from segreader.errors import AccessDeniedError, LocationExpiredError, StorageError
from segreader.ranges import ByteRange
from segreader.storage.signed_url import SignedUrl


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


def test_sixteen_ranges_in_flight_renew_an_expired_url_once(server: FaultServer) -> None:
    urls = FaultUrls(server)
    with open_store(server, urls=urls, range_size=20_000, in_flight=16) as store:
        assert read(store, "expired", 0, 1_000_000) == server.data[:1_000_000]

    assert urls.refreshes == 1
    assert store.metrics.refreshes == 1


def test_threads_that_read_apart_share_one_renewal(server: FaultServer) -> None:
    urls = FaultUrls(server)
    found: list[bool] = []
    with open_store(server, urls=urls, in_flight=8) as store:

        def work(number: int) -> None:
            found.append(read(store, "expired", number * 1000, 300_000) == server.data[number * 1000 : 300_000])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert found == [True] * 8
    assert urls.refreshes == 1


def test_a_url_that_ends_during_the_read_is_renewed_and_the_read_goes_on(server: FaultServer) -> None:
    server.signature = CANARY
    urls = FaultUrls(server)
    with open_store(server, urls=urls) as store:
        pieces = store.read_pieces("expired", _whole(server))
        got = [bytes(next(pieces))]
        server.signature = "second"
        got += [bytes(piece) for piece in pieces]

    assert b"".join(got) == server.data
    assert urls.refreshes == 1


def test_the_next_url_is_fetched_when_80_percent_of_a_life_are_over(server: FaultServer) -> None:
    clock = StandingClock()
    urls = FaultUrls(server, life_s=100, now=clock.now)
    with open_store(server, urls=urls, clock=clock) as store:
        read(store, "clean/early", 0, 10)
        clock.at += 79
        read(store, "clean/early", 0, 10)
        before = urls.refreshes
        clock.at += 2
        read(store, "clean/early", 0, 10)
        read(store, "clean/early", 0, 10)

    assert (before, urls.refreshes) == (0, 1)


def test_a_url_that_cannot_live_longer_is_not_fetched_again_and_again(server: FaultServer) -> None:
    clock = StandingClock()
    urls = FaultUrls(server, life_s=100, now=lambda: 1_000_000.0)
    with open_store(server, urls=urls, clock=clock) as store:
        for _ in range(20):
            read(store, "clean/short", 0, 10)
            clock.at += 6

    assert urls.refreshes == 1


def test_an_early_renewal_that_fails_leaves_the_old_url_in_use(server: FaultServer) -> None:
    clock = StandingClock()
    urls = FaultUrls(server, life_s=100, now=clock.now, can_refresh=False)
    with open_store(server, urls=urls, clock=clock) as store:
        read(store, "clean/old", 0, 10)
        clock.at += 90
        assert read(store, "clean/old", 0, 10) == server.data[:10]


def test_a_url_that_has_ended_and_that_nothing_renews_says_so(server: FaultServer) -> None:
    with (
        open_store(server, urls=FaultUrls(server, can_refresh=False)) as store,
        pytest.raises(LocationExpiredError, match="Make a new list"),
    ):
        read(store, "expired")


def test_a_refusal_without_a_word_of_its_reason_is_told_by_the_urls_own_time(server: FaultServer) -> None:
    clock = StandingClock()
    for life_s, kind in ((-1.0, LocationExpiredError), (1000.0, AccessDeniedError)):
        urls = FaultUrls(server, life_s=life_s, now=clock.now, can_refresh=False)
        with open_store(server, urls=urls, clock=clock) as store, pytest.raises(kind):
            read(store, f"status-403x99/told-{kind.__name__}")


def test_a_renewed_url_that_is_refused_too_is_an_error_after_two_requests(server: FaultServer) -> None:
    urls = FaultUrls(server, refreshed="also-bad")
    with open_store(server, urls=urls) as store, pytest.raises(LocationExpiredError):
        read(store, "expired/twice", 0, 1000)

    assert len(server.log("twice")) == 2
    assert urls.refreshes == 1


def test_many_threads_ask_a_provider_that_has_nothing_only_once(server: FaultServer) -> None:
    urls = FaultUrls(server, can_refresh=False)
    with (
        open_store(server, urls=urls, range_size=50_000, in_flight=8) as store,
        pytest.raises(LocationExpiredError),
    ):
        read(store, "expired", 0, 400_000)

    assert urls.refreshes == 1


def test_a_providers_own_exception_does_not_bring_its_text_along(server: FaultServer) -> None:
    class Careless(FaultUrls):
        def url_for(self, name: str) -> SignedUrl:
            raise RuntimeError(f"could not sign with {CANARY}")

    with open_store(server, urls=Careless(server)) as store, pytest.raises(StorageError) as caught:
        read(store, "clean/careless")

    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None


def test_the_url_of_an_object_is_asked_for_once(server: FaultServer) -> None:
    urls = FaultUrls(server)
    with open_store(server, urls=urls) as store:
        store.size("clean/once")
        read(store, "clean/once")
        assert store.url("clean/once") == f"{server.origin}/bkt/clean/once?<redacted>"

    assert urls.asked == ["clean/once"]


def test_what_the_provider_names_is_listed_in_order(server: FaultServer) -> None:
    with open_store(server) as store:
        assert [info.name for info in store.list()] == ["clean/a", "clean/b", "clean/c"]
        assert [info.name for info in store.list("clean/b")] == ["clean/b"]


def _whole(server: FaultServer) -> ByteRange:
    return ByteRange(0, len(server.data))
