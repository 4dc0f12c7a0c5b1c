"""How answers of ListOffsets are taken, also while a new leader does not know its high watermark yet (KIP-207).

Source: KIP-207, KIP-1005, KIP-1023, KIP-1075; Kafka 4.3 ``OffsetFetcherUtils``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto
from threading import Lock
from typing import Final

from segreader.broker.messages import LATEST, ListedOffset, OffsetWanted
from segreader.broker.protocol import ErrorCode, describe
from segreader.broker.rules.backoff import USUAL, Backoff, BackoffPolicy, Jitter
from segreader.broker.rules.fetch_errors import REPEATS_OF_SERVER_ERRORS
from segreader.errors import AuthorizationError, BrokerError
from segreader.isolation import IsolationLevel
from segreader.values import dataclass

FIRST_VERSION_OF_78: Final = 5
"""Below this version of ListOffsets error 5 means 78."""


class ListedStep(Enum):
    """What one partition's answer asks for."""

    SETTLED = auto()
    """Take it: an offset, none (-1), or error 35 where this version has no such timestamp."""
    ASK_AGAIN_THERE = auto()
    """Back off and ask the same broker, without Metadata: it does not know yet, or was not quick enough."""
    REFRESH_METADATA = auto()
    """Refresh, back off, ask the leader in the metadata."""
    FORBIDDEN = auto()
    """DESCRIBE on the topic is missing: raise when all answers are there."""
    RAISE = auto()
    """Nothing that time mends."""


def step_of(error: int, version: int) -> ListedStep:
    """What an error of one partition asks for, at that version of ListOffsets."""
    if error in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION):
        return ListedStep.SETTLED
    if error in (ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.REQUEST_TIMED_OUT):
        return ListedStep.ASK_AGAIN_THERE
    if error == ErrorCode.LEADER_NOT_AVAILABLE and version < FIRST_VERSION_OF_78:
        return ListedStep.ASK_AGAIN_THERE
    if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return ListedStep.FORBIDDEN
    if error == ErrorCode.INVALID_REQUEST:
        return ListedStep.RAISE
    return ListedStep.REFRESH_METADATA


class LatestTold:
    """Highest LATEST returned per partition; it never goes backwards within one leader epoch.

    Brokers that answer while an election is under way may lag. An answer of a newer epoch may be lower, after an
    unclean election. Thread-safe.
    """

    __slots__ = ("_lock", "_told")

    def __init__(self) -> None:
        self._lock = Lock()
        self._told: dict[tuple[str, int, IsolationLevel], ListedOffset] = {}

    def tell(self, listed: ListedOffset, isolation_level: IsolationLevel) -> ListedOffset:
        """The latest offset to return: ``listed``, or the one returned before if it is larger."""
        if listed.error != ErrorCode.NONE or listed.offset < 0:
            return listed
        with self._lock:
            return self._never_less(listed, (listed.topic, listed.partition, isolation_level))

    def _never_less(self, listed: ListedOffset, key: tuple[str, int, IsolationLevel]) -> ListedOffset:
        before = self._told.get(key)
        if before is not None and listed.offset < before.offset and listed.leader_epoch <= before.leader_epoch:
            return before
        if before is not None and listed.leader_epoch < before.leader_epoch:
            listed = replace(listed, leader_epoch=before.leader_epoch)
        self._told[key] = listed
        return listed

    def forget(self, topic: str) -> None:
        """The topic was created again, or its log was truncated: forget the offsets returned before."""
        with self._lock:
            self._told = {key: each for key, each in self._told.items() if key[0] != topic}


class Look(Enum):
    """What a look-up needs before its next requests."""

    ASK = auto()
    """Send ``requests()``, after ``wait_ms``."""
    REFRESH_THEN_ASK = auto()
    """Refresh Metadata first, then wait, then send ``requests()``."""
    DONE = auto()
    """``results()`` has everything."""


@dataclass(frozen=True, slots=True)
class LookStep:
    """What to do next, and how long to wait before."""

    look: Look
    wait_ms: int = 0


class OffsetLookup:
    """One caller's wish for offsets, from the first request to the last answer.

    Send each of ``requests()`` (grouped further by leader as the client likes), give every partition's answer to
    ``answered``, tell ``not_answered`` of what got none; then ask ``next_step`` once.

    Args:
        wanted: any timestamps of any partitions, repeats included.
        isolation_level: what "latest" means.
        latest: the offsets returned before; shared by all look-ups of a client.
        jitter: spreads the waits.
        policy: how they grow.
    """

    __slots__ = ("_answers", "_backoff", "_isolation_level", "_last_errors", "_latest", "_needs_refresh",
                 "_server_errors", "_wanted")  # fmt: skip

    def __init__(
        self,
        wanted: Sequence[OffsetWanted],
        isolation_level: IsolationLevel,
        *,
        latest: LatestTold,
        jitter: Jitter,
        policy: BackoffPolicy = USUAL,
    ) -> None:
        self._wanted = tuple(wanted)
        self._isolation_level = isolation_level
        self._latest = latest
        self._backoff = Backoff(jitter, policy)
        self._answers: dict[tuple[str, int, int], ListedOffset] = {}
        self._last_errors: dict[tuple[str, int, int], ListedOffset] = {}
        self._server_errors = 0
        self._needs_refresh = False

    def requests(self) -> tuple[tuple[OffsetWanted, ...], ...]:
        """What is still to be asked, split so that no request has a partition twice, which gives error 42.

        Set each one's ``current_leader_epoch`` (``dataclasses.replace``) when it is sent.
        """
        rounds: list[dict[tuple[str, int], OffsetWanted]] = []
        seen: set[tuple[str, int, int]] = set()
        for each in self._wanted:
            key = _key(each)
            if key in self._answers or key in seen:
                continue
            seen.add(key)
            place = (each.topic, each.partition)
            free = next((one for one in rounds if place not in one), None)
            if free is None:
                rounds.append(free := {})
            free[place] = each
        return tuple(tuple(one.values()) for one in rounds)

    def answered(self, wanted: OffsetWanted, listed: ListedOffset, *, version: int) -> None:
        """Take one partition's answer to one wish.

        Args:
            version: of the ListOffsets that was spoken.
        """
        key = _key(wanted)
        step = step_of(listed.error, version)
        if listed.error == ErrorCode.UNKNOWN_SERVER_ERROR:
            self._server_errors += 1
            if self._server_errors > REPEATS_OF_SERVER_ERRORS:
                step = ListedStep.RAISE
        if step is ListedStep.RAISE:
            raise self._error(listed, "ListOffsets failed")
        self._last_errors[key] = listed
        if step in (ListedStep.SETTLED, ListedStep.FORBIDDEN):
            if listed.error == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                listed = ListedOffset(listed.topic, listed.partition, ErrorCode.NONE)
            if wanted.timestamp == LATEST:
                listed = self._latest.tell(listed, self._isolation_level)
            self._answers[key] = listed
        elif step is ListedStep.REFRESH_METADATA:
            self._needs_refresh = True

    def not_answered(self, wanted: OffsetWanted, error: int = ErrorCode.NONE) -> None:
        """A request failed with its connection, or its leader is not known: refresh before the next ones.

        Args:
            error: what metadata has of the partition.
        """
        self._needs_refresh = True
        if error:
            self._last_errors[_key(wanted)] = ListedOffset(wanted.topic, wanted.partition, error)

    def next_step(self) -> LookStep:
        """What to do when all answers of a round are there."""
        if not self.requests():
            return LookStep(Look.DONE)
        look = Look.REFRESH_THEN_ASK if self._needs_refresh else Look.ASK
        self._needs_refresh = False
        return LookStep(look, self._backoff.failed())

    def results(self) -> tuple[ListedOffset, ...]:
        """The answers in the order of the wishes; error 35 stays in them, all others are gone.

        Raises:
            AuthorizationError: some topics may not be described; it names them all.
        """
        answers = tuple(self._answers[_key(each)] for each in self._wanted)
        forbidden = sorted({each.topic for each in answers if each.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED})
        if forbidden:
            raise AuthorizationError(
                f"no right to DESCRIBE topic {', '.join(forbidden)}", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
        return answers

    def timed_out(self) -> BrokerError:
        """The error to raise when the deadline is over: the last one of what is still open."""
        for each in self._wanted:
            if _key(each) not in self._answers and (last := self._last_errors.get(_key(each))) is not None:
                return self._error(last, "ListOffsets had no answer in time")
        return BrokerError("ListOffsets had no answer in time")

    def _error(self, listed: ListedOffset, what: str) -> BrokerError:
        place = f"{listed.topic}-{listed.partition}"
        return BrokerError(f"{what} for {place}: {describe(listed.error)}", code=listed.error)


def _key(wanted: OffsetWanted) -> tuple[str, int, int]:
    return (wanted.topic, wanted.partition, wanted.timestamp)
