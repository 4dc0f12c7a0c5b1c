"""Fetch state of one partition: leader, replica and validated position, and what an error changes of them.

The decisions are those of ``rules``; this module asks the cluster what they need to know, waits as they say, and gives
up when the time of an operation is over.
"""

from __future__ import annotations

from segreader.broker.client import BrokerClient, ask_epoch_end
from segreader.broker.messages import EARLIEST, LATEST, EpochEnd, FetchAnswer, FetchedPartition, Node, OffsetWanted
from segreader.broker.network_client import name_cause, naming
from segreader.broker.protocol import ErrorCode, describe, name_of
from segreader.broker.rules.backoff import Backoff, Deadline
from segreader.broker.rules.fetch_errors import (
    REPEATS_OF_SERVER_ERRORS,
    FetchErrorKind,
    OutOfRange,
    RangeVerdict,
    judge,
    kind_of,
)
from segreader.broker.rules.leader import LeaderFinder, LeaderStep
from segreader.broker.rules.preferred_replica import FetchSource, PreferredReplica, ReplicaStep
from segreader.broker.rules.truncation import (
    EpochHistory,
    FetchPosition,
    PositionState,
    ReadPosition,
    Validation,
    Verdict,
)
from segreader.errors import AuthorizationError, BrokerError, ConnectionFailedError, TruncatedLogError
from segreader.isolation import IsolationLevel
from segreader.values import dataclass


@dataclass(slots=True)
class Tries:
    """Deadline of one operation, and what has failed so far; ``error``: the last one that a broker answered with."""

    deadline: Deadline
    backoff: Backoff
    error: int = 0
    server_errors: int = 0
    is_validated: bool = False

    @classmethod
    def of(cls, client: BrokerClient) -> Tries:
        """For an operation that begins now."""
        return cls(client.deadline(), Backoff(client.jitter, client.backoff_policy))


class PartitionState:
    """Fetch state of one partition: leader, replica, validated position.

    Args:
        topic_id: the one that the read was planned with.
        position: the next offset, with the epoch of the record before it if that is known.
        rack: where the reader is.
        isolation_level: what "beyond the end" means.
    """

    def __init__(
        self,
        client: BrokerClient,
        topic: str,
        partition: int,
        topic_id: str | None,
        position: FetchPosition,
        *,
        rack: str,
        isolation_level: IsolationLevel,
    ) -> None:
        self.leader = client.leader(topic, partition)
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id if topic_id is not None else client.cluster.topic_id(topic)
        self.replica = PreferredReplica(rack, lease_ms=client.settings.metadata_max_age_ms)
        self.reading = ReadPosition(topic, partition, position, self.leader)
        self.history = EpochHistory(self.leader.leader_epoch)
        self._client = client
        self._finder = LeaderFinder(client.cluster, topic, partition, jitter=client.jitter, topic_id=self.topic_id)
        self._isolation_level = isolation_level
        self._lost: tuple[Verdict, EpochEnd] | None = None

    def follow_leader(self) -> None:
        """Take over the leader that the cluster knows now.

        Raises:
            BrokerError: the topic was deleted and made again.
        """
        cluster = self._client.cluster
        cluster.require_same_topic(self.topic, self.topic_id)
        leader = cluster.leader(self.topic, self.partition)
        if leader == self.leader or leader.leader_id < 0:
            return
        self.leader = leader
        self.replica.leader_changed()
        self.reading.leader_changed(leader)
        self.history.leader_changed(leader.leader_epoch)

    def choose(self) -> FetchSource:
        """The broker to ask now."""
        known = self._client.cluster.partition(self.topic, self.partition)
        return self.replica.choose(
            self.leader,
            self._client.now_ms(),
            alive=self._client.cluster.nodes.keys(),
            offline=known.offline if known is not None else (),
        )

    def is_valid(self, tries: Tries) -> bool:
        """Whether the log still holds what was read; asks the leader if that is in doubt. ``False``: look again.

        Raises:
            TruncatedLogError: it does not; also every time again, until the reader goes elsewhere.
        """
        if self.reading.state is PositionState.AWAIT_RESET and self._lost is not None:
            self._require_history(*self._lost)
        question = self.reading.question()
        if question is None:
            return True
        end = ask_epoch_end(self._client, question.wanted, tries.deadline)
        if end is None:
            self.pause(tries, ErrorCode.NETWORK_EXCEPTION)
            return False
        if kind_of(end.error) is FetchErrorKind.LEADER:
            self.leader_refused(
                end.error, tries, by=question.leader_id, sent_epoch=question.wanted.current_leader_epoch
            )
            return False
        verdict = self.reading.answered(question, end)
        if verdict.validation is Validation.REPEAT:
            self.pause(tries, end.error)
            return False
        self._require_history(verdict, end)
        if verdict.validation is Validation.VALID:
            tries.is_validated = True
        return verdict.validation is Validation.VALID

    def takes(self, told: FetchedPartition, answer: FetchAnswer, tries: Tries, *, by: int, sent_epoch: int) -> bool:
        """True if the answer can be returned; otherwise its error has been handled: fetch again.

        Raises:
            AuthorizationError, OffsetOutOfRangeError, TruncatedLogError, BrokerError: as ``PartitionFetcher.poll``.
        """
        step = self.replica.answered(told, by=by, now_ms=self._client.now_ms())
        if step is ReplicaStep.FETCH_AT_ONCE:
            return False
        if step is ReplicaStep.FETCH_AFTER_BACKOFF:
            self.pause(tries, told.error, refresh=False)
            return False
        if told.error == ErrorCode.NONE:
            if told.diverging is not None:
                verdict = self.reading.diverged(self.reading.position.offset, told.diverging)
                self._require_history(verdict, EpochEnd(self.topic, self.partition, 0, *told.diverging))
            self._finder.answered()
            return True
        self._client.metrics.errors[name_of(told.error)] += 1
        self._mend(told, answer, tries, by=by, sent_epoch=sent_epoch)
        return False

    def leader_refused(
        self,
        error: int,
        tries: Tries,
        *,
        by: int,
        sent_epoch: int,
        told: FetchedPartition | None = None,
        nodes: tuple[Node, ...] = (),
    ) -> None:
        """Find the leader after error 6, 74 or 75, by the answer's own hint where it has one (KIP-951)."""
        hint = told.current_leader if told is not None else None
        decision = self._finder.refused(error, by=by, sent_epoch=sent_epoch, hint=hint, nodes=nodes)
        if decision.step is LeaderStep.STOP:
            raise BrokerError(
                f"{self.topic}-{self.partition} no longer exists", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        if decision.step is LeaderStep.ASK_NEW_LEADER:
            self._client.want_refresh(self.topic)
        self._client.metrics.retries["Fetch"] += 1
        refresh = decision.step is LeaderStep.REFRESH_METADATA
        self._wait(tries, decision.wait_ms, error, refresh=refresh, failure=None)

    def pause(
        self, tries: Tries, error: int, *, refresh: bool = True, failure: ConnectionFailedError | None = None
    ) -> None:
        """Wait before another try, with new metadata if that may help.

        Raises:
            BrokerError, ConnectionFailedError: the operation's time is over.
        """
        self._client.metrics.retries["Fetch"] += 1
        self._wait(tries, tries.backoff.failed(), error, refresh=refresh, failure=failure)

    def _wait(
        self, tries: Tries, wait_ms: int, error: int, *, refresh: bool, failure: ConnectionFailedError | None
    ) -> None:
        if error != ErrorCode.NETWORK_EXCEPTION:  # that one is ours: no broker answers with it
            tries.error = error
        error = tries.error or error
        with naming(tries.error):
            has_time = self._client.wait_to_repeat(wait_ms, tries.deadline, [self.topic] if refresh else [])
        if not has_time:
            if failure is not None:
                raise name_cause(failure, tries.error)
            raise BrokerError(
                f"Fetch of {self.topic}-{self.partition} had no answer in time: {describe(error)}", code=error
            )

    def _mend(self, told: FetchedPartition, answer: FetchAnswer, tries: Tries, *, by: int, sent_epoch: int) -> None:
        error, kind = told.error, kind_of(told.error)
        if kind is FetchErrorKind.LEADER:
            self.leader_refused(error, tries, by=by, sent_epoch=sent_epoch, told=told, nodes=answer.nodes)
        elif kind is FetchErrorKind.OUT_OF_RANGE:
            self._out_of_range(tries)
        elif kind is FetchErrorKind.FORBIDDEN:
            raise AuthorizationError(f"no right to READ topic {self.topic}", code=error)
        elif kind is FetchErrorKind.RAISE:
            raise BrokerError(f"Fetch of {self.topic}-{self.partition} failed: {describe(error)}", code=error)
        elif kind is FetchErrorKind.REPEAT_BOUNDED:
            tries.server_errors += 1
            if tries.server_errors > REPEATS_OF_SERVER_ERRORS:
                raise BrokerError(
                    f"Fetch of {self.topic}-{self.partition} fails inside the broker: {describe(error)}",
                    code=error,
                    offset=self.reading.position.offset,
                    hint="See the broker's log; for tiered offsets the remote object may be lost",
                )
            self.pause(tries, error, refresh=False)
        else:
            self.pause(tries, error, refresh=kind is FetchErrorKind.REFRESH)

    def _out_of_range(self, tries: Tries) -> None:
        position = self.reading.position
        wanted = [OffsetWanted(self.topic, self.partition, each) for each in (EARLIEST, LATEST)]
        with naming(ErrorCode.OFFSET_OUT_OF_RANGE):
            earliest, latest = self._client.list_offsets(wanted, self._isolation_level)
        verdict = judge(position, earliest=earliest.offset, latest=latest.offset)
        if verdict.reason is OutOfRange.VALIDATE and (
            tries.is_validated or self.reading.validate() is not PositionState.AWAIT_VALIDATION
        ):
            verdict = RangeVerdict(OutOfRange.BEYOND_END, position, verdict.earliest, verdict.latest)
        if verdict.reason is OutOfRange.VALIDATE or verdict.reason is OutOfRange.IN_RANGE:
            self.pause(tries, ErrorCode.OFFSET_OUT_OF_RANGE, refresh=False)
        else:
            raise verdict.error(f"{self.topic}-{self.partition}")

    def _require_history(self, verdict: Verdict, end: EpochEnd) -> None:
        if verdict.validation is Validation.FORBIDDEN:
            raise AuthorizationError(f"no right to DESCRIBE topic {self.topic}", code=end.error)
        if verdict.validation in (Validation.TRUNCATED, Validation.NO_COMMON_HISTORY):
            self._lost = (verdict, end)
            common = verdict.common
            raise TruncatedLogError(
                "records that were read are no longer in the log: an unclean leader election removed them",
                source=f"{self.topic}-{self.partition}",
                offset=common.offset if common is not None else None,
                found=f"leader epoch {end.leader_epoch} ends at {end.end_offset}",
                expected=f"offset {verdict.position.offset} in epoch {verdict.position.leader_epoch}",
                hint="What was read beyond the common point must be discarded where it went",
            )
