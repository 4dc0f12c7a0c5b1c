"""When to read segments at their location, and when to take the broker's records instead.

Source: none but this project (section 4.7 of its broker protocol): KIP-1248 leaves all of it open.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from typing import Final

from segreader.broker.rules.backoff import REMOTE_READS, Backoff, BackoffPolicy, Jitter
from segreader.broker.rules.preferred_replica import METADATA_MAX_AGE_MS
from segreader.errors import (
    AccessDeniedError,
    FormatError,
    LocationExpiredError,
    ObjectNotFoundError,
    SegreaderError,
    UntrustedLocationError,
    WrongAnswerError,
)
from segreader.values import dataclass

RETRIES: Final = 3
"""How often a store that failed is asked again."""

EXPIRY_MARGIN_MS: Final = 30_000
"""A URL that ends within this time is renewed before it is used."""

FALLS_BEFORE_PAUSE: Final = 3
"""After so many falls in a row no location is asked for, for a while."""

PAUSE: Final = BackoffPolicy(first_ms=60_000, limit_ms=600_000, spread=0.0)
"""How long: 60 s, doubling to 10 min."""


class Cause(StrEnum):
    """Why records came from the broker although a location was asked for; metrics count by these names."""

    LOCATION_REJECTED = "location_rejected"
    NO_LOCATION = "no_location"
    STORE_FAILED = "store_failed"
    ACCESS_DENIED = "access_denied"
    EXPIRED = "expired"
    NOT_FOUND = "not_found"
    SEGMENT_CORRUPT = "segment_corrupt"


def cause_of(error: SegreaderError) -> Cause:
    """What went wrong with a location, by the error that reading it raised."""
    if isinstance(error, LocationExpiredError):
        return Cause.EXPIRED
    if isinstance(error, UntrustedLocationError):
        return Cause.LOCATION_REJECTED
    if isinstance(error, AccessDeniedError):
        return Cause.ACCESS_DENIED
    if isinstance(error, ObjectNotFoundError):
        return Cause.NOT_FOUND
    if isinstance(error, (FormatError, WrongAnswerError)):
        return Cause.SEGMENT_CORRUPT
    return Cause.STORE_FAILED


class ExtensionMemory:
    """Which brokers do not know the location extension, so that they are not asked on every Fetch; one per client."""

    __slots__ = ("_max_age_ms", "_without_until_ms")

    def __init__(self, max_age_ms: int = METADATA_MAX_AGE_MS) -> None:
        self._max_age_ms = max_age_ms
        self._without_until_ms: dict[int, int] = {}

    def may_ask(self, node_id: int, now_ms: int) -> bool:
        """Whether a Fetch to this broker may carry the flag."""
        until_ms = self._without_until_ms.get(node_id)
        if until_ms is None or now_ms < until_ms:
            return until_ms is None
        self._without_until_ms.pop(node_id, None)
        return True

    def answered(self, node_id: int, extension_version: int | None, now_ms: int) -> None:
        """Take what an answer to a request *with* the flag announced; ``None`` from a plain broker."""
        if extension_version is None:
            self._without_until_ms[node_id] = now_ms + self._max_age_ms
        else:
            self._without_until_ms.pop(node_id, None)


class RemoteStep(Enum):
    """What to do after a location, or the object it names, was of no use."""

    RETRY = auto()
    """The same bytes again, after ``wait_ms``."""
    REREAD = auto()
    """The object once more, from the store and not from memory."""
    RENEW = auto()
    """Ask for a new location at the next undelivered offset."""
    CHECK_START = auto()
    """The object is gone: ListOffsets -2. An offset below it is out of range; otherwise ask for a new location."""
    FALL_BACK = auto()
    """The broker's records from the next undelivered offset to the end of the segment, without the flag."""


@dataclass(frozen=True, slots=True)
class RemoteDecision:
    """What to do, how long to wait before, and why."""

    step: RemoteStep
    cause: Cause
    wait_ms: int = 0


class RemoteReads:
    """Decides for one partition whether to ask for locations, and what to do when one is of no use.

    ``may_ask`` before a Fetch; ``given`` with each location that passed its checks; ``failed`` with each error of
    reading it; ``finished`` when its part was delivered; ``no_location`` and ``rejected`` when there was none to read.

    Args:
        jitter: spreads the waits before a store is asked again; by default they are what they are on average.
        retries: how often that is; 0 where the store itself tries again.
    """

    __slots__ = ("_asked_at", "_backoff", "_broker_until", "_falls", "_pause_until_ms", "_pauses", "_renewed",
                 "_renewed_at", "_reread", "_retries", "_segment")  # fmt: skip

    def __init__(self, *, jitter: Jitter = lambda: 0.5, retries: int = RETRIES) -> None:
        self._retries = retries
        self._backoff = Backoff(jitter, REMOTE_READS)
        self._segment: str | None = None
        self._renewed = False
        self._renewed_at = self._asked_at = -1
        self._reread = False
        self._broker_until = 0
        self._falls = 0
        self._pauses = 0
        self._pause_until_ms: int | None = None

    def may_ask(self, offset: int, now_ms: int) -> bool:
        """Whether the Fetch at ``offset`` may carry the flag: not within what fell back, and not during a pause."""
        self._asked_at = offset
        if offset < self._broker_until:
            return False
        if self._pause_until_ms is not None:
            if now_ms < self._pause_until_ms:
                return False
            self._pause_until_ms = None
        return True

    def given(self, segment_id: str, *, expiry_ms: int | None, now_ms: int) -> RemoteDecision | None:
        """A location passed its checks: ``None`` to read it, or what to do because its URL is about to end."""
        if segment_id != self._segment:
            self._segment = segment_id
            # A server that names another segment at the same offset each time would be asked for ever.
            self._renewed = self._renewed_at >= self._asked_at >= 0
            self._reread = False
            self._backoff.succeeded()
        return self.expires(expiry_ms, now_ms)

    def expires(self, expiry_ms: int | None, now_ms: int) -> RemoteDecision | None:
        """What to do before the next request to a URL that ends then; ``None`` while there is time."""
        if expiry_ms is None or expiry_ms - now_ms > EXPIRY_MARGIN_MS:
            return None
        return self._renew(Cause.EXPIRED)

    def failed(self, error: SegreaderError) -> RemoteDecision:
        """Decide what to do about an error of reading the segment of the last location.

        After ``FALL_BACK`` the caller calls ``fell_back`` with the segment's end.
        """
        cause = cause_of(error)
        if cause in (Cause.ACCESS_DENIED, Cause.EXPIRED):
            return self._renew(cause)
        if cause is Cause.NOT_FOUND:
            return RemoteDecision(RemoteStep.FALL_BACK if self._renewed else RemoteStep.CHECK_START, cause)
        if cause is Cause.SEGMENT_CORRUPT:
            step, self._reread = (RemoteStep.FALL_BACK if self._reread else RemoteStep.REREAD), True
            return RemoteDecision(step, cause)
        if cause is Cause.STORE_FAILED and self._backoff.failures < self._retries:
            return RemoteDecision(RemoteStep.RETRY, cause, self._backoff.failed())
        return RemoteDecision(RemoteStep.FALL_BACK, cause)

    def start_checked(self) -> RemoteDecision:
        """After ``CHECK_START`` and an offset that is still retained: a new location once, then the broker."""
        return self._renew(Cause.NOT_FOUND)

    def fell_back(self, *, until: int, now_ms: int, since: int | None = None) -> None:
        """Records come from the broker before offset ``until``: the end of the segment, exclusive, or the next offset
        where no segment is known.

        Args:
            since: the first offset of these; one within what fell back already begins no other fall.
        """
        is_known = since is not None and since < self._broker_until
        self._broker_until = max(self._broker_until, until)
        self._segment = None
        if is_known:
            return
        self._falls += 1
        if self._falls >= FALLS_BEFORE_PAUSE:
            self._pauses += 1
            self._pause_until_ms = now_ms + PAUSE.wait_ms(self._pauses, lambda: 0.5)

    def finished(self) -> None:
        """A segment's part was read from the store and delivered: the location works again."""
        self._falls = self._pauses = 0
        self._segment, self._renewed_at = None, -1
        self._backoff.succeeded()

    def _renew(self, cause: Cause) -> RemoteDecision:
        if self._renewed:
            return RemoteDecision(RemoteStep.FALL_BACK, cause)
        self._renewed, self._renewed_at = True, self._asked_at
        return RemoteDecision(RemoteStep.RENEW, cause)
