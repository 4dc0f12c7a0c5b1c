"""Which broker to fetch a partition from: its leader, or the replica that the leader prefers for this rack (KIP-392).

Source: KIP-392; Kafka 4.3 ``SubscriptionState`` and ``AbstractFetch``. Bounds against peers that send a reader in
circles, and the pause after a replica that let the reader down, are this project's own.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto
from typing import Final

from segreader.broker.messages import FetchedPartition, LeaderAndEpoch
from segreader.broker.protocol import ErrorCode
from segreader.values import dataclass

METADATA_MAX_AGE_MS: Final = 300_000
"""How long a preferred replica is asked before the leader may name one again; ``metadata.max.age.ms``."""

PATIENCE_MS: Final = 2_000
"""How long a replica may bring nothing before the leader is asked."""

AVOIDED_MS: Final = 30_000
"""How long a leader may go on naming a replica that is frozen: ``replica.lag.time.max.ms``."""

REDIRECTS_AT_ONCE: Final = 3
"""How often in a row "ask there instead" is followed without a wait."""

FORGETTING_ERRORS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors of a Fetch after which the leader is asked, with fresh metadata."""


@dataclass(frozen=True, slots=True)
class FetchSource:
    """Where the next Fetch of a partition goes.

    Args:
        node_id: the broker; -1 where no leader is known.
        rack: what to send as the reader's rack: empty where the leader is to answer itself.
        is_preferred: the leader named this replica.
        refresh_metadata: the preferred replica is gone or offline: ask for Metadata, too.
    """

    node_id: int
    rack: str = ""
    is_preferred: bool = False
    refresh_metadata: bool = False


class ReplicaStep(Enum):
    """What an answer asks for, as far as the choice of the broker goes."""

    TAKE = auto()
    """Nothing: the answer's records, location or error are what it is about."""
    FETCH_AT_ONCE = auto()
    """Another broker answers: choose again, without a wait. There are no records."""
    FETCH_AFTER_BACKOFF = auto()
    """Choose again after the usual wait: this was sent around too often. There are no records."""
    REFRESH_METADATA = auto()
    """The replica was forgotten after an error: refresh, back off, choose again (``leader`` rules refine 6 and 74)."""


class PreferredReplica:
    """Remembers which replica the leader of one partition prefers for this reader, and for how long.

    Ask ``choose`` before each Fetch; tell ``answered`` of each answer, ``delivered`` when the position moved,
    ``connection_failed`` when a request to a broker failed or timed out, ``leader_changed`` when the leader or its
    epoch did.

    Args:
        rack: the reader's, as in ``client.rack``; empty: the leader will name no one.
        lease_ms: how long a replica is asked before the leader may decide again.
        patience_ms: how long it may bring nothing.
        avoided_ms: how long the leader serves itself after a preferred replica could not be reached.
    """

    __slots__ = (
        "_avoided_ms",
        "_expires_ms",
        "_is_leader_checked",
        "_leader_only_until_ms",
        "_lease_ms",
        "_patience_ms",
        "_preferred",
        "_rack",
        "_redirects",
        "_waiting_since_ms",
    )  # fmt: skip

    def __init__(
        self,
        rack: str = "",
        *,
        lease_ms: int = METADATA_MAX_AGE_MS,
        patience_ms: int = PATIENCE_MS,
        avoided_ms: int = AVOIDED_MS,
    ) -> None:
        self._rack = rack
        self._lease_ms = lease_ms
        self._patience_ms = patience_ms
        self._avoided_ms = avoided_ms
        self._preferred = -1
        self._expires_ms = 0
        self._leader_only_until_ms: int | None = None
        self._is_leader_checked = False  # an empty answer of the leader ends its time: the replica was right
        self._waiting_since_ms: int | None = None
        self._redirects = 0

    @property
    def preferred(self) -> int:
        """The replica that is asked now, or -1."""
        return self._preferred

    def choose(
        self, leader: LeaderAndEpoch, now_ms: int, *, alive: Collection[int], offline: Collection[int] = ()
    ) -> FetchSource:
        """Where the next Fetch goes; the same CurrentLeaderEpoch is sent wherever that is.

        Args:
            leader: as Metadata or a hint said.
            alive: the brokers that Metadata lists.
            offline: the partition's offline replicas.
        """
        refresh = False
        if self._preferred >= 0:
            if now_ms > self._expires_ms:
                self._forget()
            elif self._preferred not in alive or self._preferred in offline:
                self._forget()
                refresh = True
            elif self._waiting_since_ms is not None and now_ms - self._waiting_since_ms >= self._patience_ms:
                self._ask_leader_only(now_ms, self._patience_ms, is_check=True)
        if self._preferred >= 0:
            return FetchSource(self._preferred, self._rack, is_preferred=True)
        rack = "" if self._is_leader_only(now_ms) else self._rack
        return FetchSource(leader.leader_id, rack, refresh_metadata=refresh)

    def answered(self, answer: FetchedPartition, *, by: int, now_ms: int) -> ReplicaStep:
        """Take what a broker answered.

        Args:
            by: the broker that answered.
        """
        if by == self._preferred and self._waiting_since_ms is None:
            self._waiting_since_ms = now_ms
        if answer.error == ErrorCode.NONE:
            if answer.preferred_read_replica >= 0:
                return self._named(answer.preferred_read_replica, by, now_ms)
            self._redirects = 0  # followers always answer -1, so the choice stays
            if self._is_leader_checked and not answer.records and answer.location is None:
                self._leader_only_until_ms = None
            return ReplicaStep.TAKE
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE and self._preferred >= 0:
            if by != self._preferred:
                return ReplicaStep.TAKE
            # The leader must answer itself now, or it may name the same replica again, and so for ever.
            self._ask_leader_only(now_ms, self._patience_ms, is_check=True)
            return ReplicaStep.FETCH_AT_ONCE
        if answer.error in FORGETTING_ERRORS:
            self._forget()
            return ReplicaStep.REFRESH_METADATA
        return ReplicaStep.TAKE

    def delivered(self) -> None:
        """The position moved on: the broker that is asked now has something to give."""
        self._waiting_since_ms = None

    def connection_failed(self, node_id: int, now_ms: int) -> bool:
        """A connection to this broker failed, or a request to it timed out: whether that was the preferred replica.

        The leader may go on naming a replica that is frozen until it leaves the in-sync set, so for that time it is
        asked to answer itself.
        """
        if node_id != self._preferred:
            return False
        self._ask_leader_only(now_ms, self._avoided_ms, is_check=False)
        return True

    def leader_changed(self) -> None:
        """Another leader, or another epoch of it: what the old one preferred does not count."""
        self._forget()
        self._leader_only_until_ms = None

    def _named(self, node_id: int, by: int, now_ms: int) -> ReplicaStep:
        self._redirects += 1
        if self._is_leader_only(now_ms):  # some selectors look at no rack; what they name is left alone for now
            return ReplicaStep.FETCH_AFTER_BACKOFF
        if node_id not in (by, self._preferred):
            self._preferred = node_id
            self._expires_ms = now_ms + self._lease_ms
            self._waiting_since_ms = None
        return ReplicaStep.FETCH_AT_ONCE if self._redirects <= REDIRECTS_AT_ONCE else ReplicaStep.FETCH_AFTER_BACKOFF

    def _is_leader_only(self, now_ms: int) -> bool:
        return self._leader_only_until_ms is not None and now_ms < self._leader_only_until_ms

    def _ask_leader_only(self, now_ms: int, for_ms: int, *, is_check: bool) -> None:
        self._forget()
        self._leader_only_until_ms = now_ms + for_ms
        self._is_leader_checked = is_check

    def _forget(self) -> None:
        self._preferred = -1
        self._waiting_since_ms = None


class KnownEnds:
    """The high watermark and the last stable offset of one partition, as far as a reader knows them.

    A follower hears of both later than the leader does, so it may raise them and never lowers them. A leader lowers
    them only from a newer epoch on: after an unclean election the log may be shorter. Source: KIP-392.

    Do not conclude from these that nothing is left to read: only the ends in the very answer that brought no records
    say so.
    """

    __slots__ = ("_epoch", "high_watermark", "last_stable_offset")

    def __init__(self) -> None:
        self._epoch = -1
        self.high_watermark = -1
        self.last_stable_offset = -1

    def told(self, answer: FetchedPartition, *, by_leader: bool, leader_epoch: int) -> None:
        """Take the ends of an answer; one with an error has none.

        Args:
            by_leader: the leader itself answered.
            leader_epoch: the CurrentLeaderEpoch that the request carried.
        """
        if answer.error != ErrorCode.NONE:
            return
        if by_leader and leader_epoch > self._epoch:
            self._epoch = leader_epoch
            self.high_watermark = answer.high_watermark
            self.last_stable_offset = answer.last_stable_offset
            return
        self.high_watermark = max(self.high_watermark, answer.high_watermark)
        self.last_stable_offset = max(self.last_stable_offset, answer.last_stable_offset)
