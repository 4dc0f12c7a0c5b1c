"""When the broker's records are taken instead of a segment where it lies: every row of the table."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from segreader.broker.rules.fallback import (
    Cause,
    ExtensionMemory,
    RemoteDecision,
    RemoteReads,
    RemoteStep,
    cause_of,
)
from segreader.errors import (
    AccessDeniedError,
    CorruptBatchError,
    LocationExpiredError,
    ObjectNotFoundError,
    SegreaderError,
    ShortReadError,
    StorageError,
    ThrottledError,
    TruncatedError,
    UntrustedLocationError,
    WrongAnswerError,
)


def reads() -> RemoteReads:
    return RemoteReads(jitter=lambda: 0.5)


def at_segment(segment_id: str = "s") -> RemoteReads:
    """A reader that was just given a location with a long life."""
    remote = reads()
    assert remote.given(segment_id, expiry_ms=None, now_ms=0) is None
    return remote


def steps(remote: RemoteReads, error: SegreaderError, times: int) -> list[RemoteStep]:
    return [remote.failed(error).step for _ in range(times)]


# --- brokers without the extension


def test_a_broker_that_does_not_announce_the_extension_is_not_asked_for_as_long_as_metadata_lives() -> None:
    memory = ExtensionMemory()
    assert memory.may_ask(1, 0)
    memory.answered(1, None, 0)

    assert not memory.may_ask(1, 299_999)
    assert memory.may_ask(1, 300_000)


def test_what_one_broker_does_not_know_another_may() -> None:
    memory = ExtensionMemory()
    memory.answered(1, None, 0)

    assert memory.may_ask(2, 0)


def test_a_broker_that_learnt_the_extension_is_asked_again() -> None:
    memory = ExtensionMemory()
    memory.answered(1, None, 0)
    memory.answered(1, 1, 1)

    assert memory.may_ask(1, 2)


def test_a_later_version_of_the_extension_is_one_that_can_be_used() -> None:
    memory = ExtensionMemory()
    memory.answered(1, 7, 0)

    assert memory.may_ask(1, 1)


# --- the rows about locations and objects


def test_a_location_that_fails_a_check_repeats_its_offset_without_the_flag_and_is_counted() -> None:
    remote = reads()
    remote.fell_back(until=43, now_ms=0)

    assert not remote.may_ask(42, 0)
    assert remote.may_ask(43, 0)


@pytest.mark.parametrize("error", [StorageError(), ThrottledError(), ShortReadError()])
def test_a_store_that_fails_is_asked_three_times_more_and_then_the_broker(error: SegreaderError) -> None:
    remote = at_segment()
    decisions = [remote.failed(error) for _ in range(4)]

    assert [each.step for each in decisions] == [RemoteStep.RETRY] * 3 + [RemoteStep.FALL_BACK]
    assert [each.wait_ms for each in decisions] == [200, 400, 800, 0]


def test_a_store_that_tries_again_by_itself_is_not_asked_again() -> None:
    remote = RemoteReads(jitter=lambda: 0.5, retries=0)
    remote.given("s", expiry_ms=None, now_ms=0)

    assert remote.failed(StorageError()) == RemoteDecision(RemoteStep.FALL_BACK, Cause.STORE_FAILED)


def test_another_segment_has_three_tries_of_its_own() -> None:
    remote = at_segment("s")
    steps(remote, StorageError(), 3)
    remote.given("u", expiry_ms=None, now_ms=0)

    assert remote.failed(StorageError()) == RemoteDecision(RemoteStep.RETRY, Cause.STORE_FAILED, 200)


def test_a_new_location_of_the_same_segment_has_no_more_tries() -> None:
    remote = at_segment("s")
    steps(remote, StorageError(), 3)
    remote.given("s", expiry_ms=None, now_ms=0)

    assert remote.failed(StorageError()).step is RemoteStep.FALL_BACK


@pytest.mark.parametrize("error", [AccessDeniedError(), LocationExpiredError()])
def test_a_refused_or_expired_url_is_renewed_once_and_then_the_broker_is_asked(error: SegreaderError) -> None:
    remote = at_segment()
    assert remote.failed(error).step is RemoteStep.RENEW
    remote.given("s", expiry_ms=None, now_ms=0)

    assert remote.failed(error).step is RemoteStep.FALL_BACK


@pytest.mark.parametrize(("left_ms", "renews"), [(30_001, False), (30_000, True), (0, True), (-1, True)])
def test_a_url_that_ends_within_thirty_seconds_is_renewed_before_it_is_used(left_ms: int, renews: bool) -> None:
    decision = reads().given("s", expiry_ms=1_000_000 + left_ms, now_ms=1_000_000)

    assert decision == (RemoteDecision(RemoteStep.RENEW, Cause.EXPIRED) if renews else None)


def test_a_url_that_ends_while_it_is_read_is_renewed_too() -> None:
    remote = reads()
    assert remote.given("s", expiry_ms=60_000, now_ms=0) is None
    assert remote.expires(60_000, 29_999) is None

    assert remote.expires(60_000, 30_000) == RemoteDecision(RemoteStep.RENEW, Cause.EXPIRED)


def test_a_peer_that_only_gives_urls_about_to_end_does_not_make_the_reader_spin() -> None:
    remote = reads()
    decisions = [remote.given("s", expiry_ms=1, now_ms=0) for _ in range(3)]

    assert [each.step for each in decisions if each] == [RemoteStep.RENEW, RemoteStep.FALL_BACK, RemoteStep.FALL_BACK]


def test_a_missing_object_asks_for_the_log_start_then_for_a_new_location_then_falls_back() -> None:
    remote = at_segment()
    assert remote.failed(ObjectNotFoundError()).step is RemoteStep.CHECK_START
    assert remote.start_checked().step is RemoteStep.RENEW
    remote.given("s", expiry_ms=None, now_ms=0)

    assert remote.failed(ObjectNotFoundError()) == RemoteDecision(RemoteStep.FALL_BACK, Cause.NOT_FOUND)


def test_one_renewal_is_all_a_segment_has_whatever_the_cause() -> None:
    remote = at_segment()
    assert remote.failed(AccessDeniedError()).step is RemoteStep.RENEW

    assert remote.failed(ObjectNotFoundError()).step is RemoteStep.FALL_BACK


@pytest.mark.parametrize("error", [CorruptBatchError(), TruncatedError(), WrongAnswerError()])
def test_damage_is_read_once_more_from_the_store_and_then_from_the_broker(error: SegreaderError) -> None:
    remote = at_segment()

    assert steps(remote, error, 2) == [RemoteStep.REREAD, RemoteStep.FALL_BACK]
    assert cause_of(error) is Cause.SEGMENT_CORRUPT


def test_an_address_that_must_not_be_asked_falls_back_at_once_and_counts_as_rejected() -> None:
    assert at_segment().failed(UntrustedLocationError()) == RemoteDecision(
        RemoteStep.FALL_BACK, Cause.LOCATION_REJECTED
    )


def test_no_location_for_a_remote_offset_falls_back_for_that_offset() -> None:
    remote = reads()
    remote.fell_back(until=43, now_ms=0)

    assert not remote.may_ask(42, 0)
    assert remote.may_ask(43, 0)


def test_a_fall_lasts_to_the_end_of_the_segment() -> None:
    remote = at_segment()
    remote.fell_back(until=100, now_ms=0)

    assert [remote.may_ask(offset, 0) for offset in (50, 99, 100)] == [False, False, True]


# --- many falls in a row


def test_after_three_falls_in_a_row_no_location_is_asked_for_during_a_minute() -> None:
    remote = reads()
    for offset in (1, 2):
        remote.fell_back(until=offset, now_ms=0)
        assert remote.may_ask(offset, 0)
    remote.fell_back(until=3, now_ms=0)

    assert not remote.may_ask(3, 59_999)
    assert remote.may_ask(3, 60_000)


def test_the_pause_doubles_with_each_further_fall_up_to_ten_minutes() -> None:
    remote = reads()
    pauses, now = [], 0
    for offset in range(8):
        remote.fell_back(until=offset, now_ms=now)
        until = next(at for at in range(now, now + 700_000, 1_000) if remote.may_ask(offset, at))
        pauses.append((until - now) // 1_000)
        now = until

    assert pauses == [0, 0, 60, 120, 240, 480, 600, 600]


def test_a_segment_that_is_read_where_it_lies_ends_the_row() -> None:
    remote = reads()
    for offset in (1, 2):
        remote.fell_back(until=offset, now_ms=0)
    remote.finished()
    remote.fell_back(until=3, now_ms=0)

    assert remote.may_ask(3, 0)
    remote.fell_back(until=4, now_ms=0)
    assert remote.may_ask(4, 0)
    remote.fell_back(until=5, now_ms=0)
    assert not remote.may_ask(5, 0)


def test_a_fall_within_what_fell_back_is_the_same_one() -> None:
    remote = reads()
    for offset in (1, 2):
        remote.fell_back(since=offset - 1, until=offset, now_ms=0)
    remote.fell_back(since=1, until=9, now_ms=0)

    assert not remote.may_ask(8, 0)
    assert remote.may_ask(9, 0)
    remote.fell_back(since=9, until=10, now_ms=0)
    assert not remote.may_ask(10, 0)


# --- all of it in any order


FAILURES = [
    None,
    StorageError(),
    AccessDeniedError(),
    ObjectNotFoundError(),
    CorruptBatchError(),
    UntrustedLocationError(),
]


class Sources(RuleBasedStateMachine):
    """Locations and brokers in any order, failing as they like: every offset gets a source."""

    def __init__(self) -> None:
        super().__init__()
        self.remote = reads()
        self.next_offset = 0
        self.now = 0

    @rule(ms=st.integers(0, 100_000))
    def time_goes_by(self, ms: int) -> None:
        self.now += ms

    @rule(
        size=st.integers(1, 20),
        after=st.integers(0, 20),
        life_ms=st.integers(0, 100_000),
        error=st.sampled_from(FAILURES),
    )
    def a_fetch_is_sent(self, size: int, after: int, life_ms: int, error: SegreaderError | None) -> None:
        start = self.next_offset
        if not self.remote.may_ask(start, self.now):
            self.next_offset = start + size  # the broker's records
            return
        stop = start + size
        decision = self.remote.given(f"{stop // 20}", expiry_ms=self.now + life_ms, now_ms=self.now)
        if decision is None and error is not None:
            self.next_offset = min(stop, start + after)
            decision = self.remote.failed(error)
            for _ in range(20):
                if decision.step not in (RemoteStep.RETRY, RemoteStep.REREAD):
                    break
                decision = self.remote.failed(error)
            if decision.step is RemoteStep.CHECK_START:
                decision = self.remote.start_checked()
        if decision is None:
            self.next_offset = stop
            self.remote.finished()
            return
        assert decision.step in (RemoteStep.RENEW, RemoteStep.FALL_BACK)
        if decision.step is RemoteStep.FALL_BACK:
            self.remote.fell_back(until=stop, now_ms=self.now)
            assert not self.remote.may_ask(min(start, stop - 1), self.now)


TestSources = Sources.TestCase
