"""Whether the log still holds what was read, and from where on it does not (KIP-320).

Source: KIP-320; Kafka 4.3 ``SubscriptionState.maybeCompleteValidation`` and ``OffsetsForLeaderEpochUtils``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from struct import Struct

from segreader.broker.messages import NO_EPOCH, EpochEnd, EpochWanted, LeaderAndEpoch
from segreader.broker.protocol import ErrorCode
from segreader.values import dataclass

_LEAST_BATCH = 61
_OVERHEAD = 12
_HEAD = Struct(">qiib")  # base offset, length, leader epoch, magic
_DELTA_POSITION = 23
_DELTA = Struct(">i")


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """What a reader gets next.

    Args:
        offset: of the next record.
        leader_epoch: of the last record read, or of the offset as ListOffsets or OffsetFetch returned it; -1: unknown.
    """

    offset: int
    leader_epoch: int = NO_EPOCH


class PositionState(Enum):
    """What has to be done before the next Fetch."""

    INITIALIZING = auto()
    """There is no position: look one up."""
    FETCHING = auto()
    """The position is good: fetch."""
    AWAIT_VALIDATION = auto()
    """The leader or its epoch changed: ask it where the position's epoch ends."""
    AWAIT_RESET = auto()
    """The position is lost: look one up, or raise."""


class Validation(Enum):
    """What an answer to OffsetForLeaderEpoch says about a position."""

    VALID = auto()
    """The log still holds what was read: fetch on."""
    TRUNCATED = auto()
    """Delivered records are no longer in the log: raise, or continue from ``common`` if the caller allows it."""
    NO_COMMON_HISTORY = auto()
    """The leader knows no such epoch: raise, or reset."""
    REPEAT = auto()
    """Refresh Metadata, back off, ask again."""
    FORBIDDEN = auto()
    """DESCRIBE on the topic is missing: raise."""
    DISCARDED = auto()
    """The position or the leader changed while the answer was under way, so it no longer applies; see the state."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a validation.

    Args:
        validation: the meaning.
        position: the one that was judged.
        common: with ``TRUNCATED`` where the live log parts from what was read, and the epoch before that point.
    """

    validation: Validation
    position: FetchPosition
    common: FetchPosition | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """An OffsetForLeaderEpoch to send to ``leader_id``, and the position it is about."""

    leader_id: int
    wanted: EpochWanted
    position: FetchPosition


class ReadPosition:
    """The position of one reader in one partition, and whether it can be trusted.

    Tell ``leader_changed`` whenever the leader or its epoch did. While ``state`` is ``AWAIT_VALIDATION`` send
    ``question()`` to the leader and give the answer to ``answered``. ``advance`` after records were delivered, ``seek``
    to go elsewhere.
    """

    __slots__ = ("_leader", "_partition", "_topic", "position", "state")

    def __init__(
        self, topic: str, partition: int, position: FetchPosition | None = None, leader: LeaderAndEpoch | None = None
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._leader = leader or LeaderAndEpoch()
        self.position = FetchPosition(-1)
        self.state = PositionState.INITIALIZING
        if position is not None:
            self.seek(position)

    def seek(self, position: FetchPosition, *, is_valid: bool = False) -> PositionState:
        """Read from here next.

        Args:
            is_valid: the leader just returned this offset. Otherwise a position with an epoch is validated first.
        """
        if position.offset < 0:
            raise ValueError(f"no offset to read from: {position.offset}")
        self.position = position
        self.state = PositionState.FETCHING
        return self.state if is_valid else self._validate_if_possible()

    def advance(self, next_offset: int, leader_epoch: int) -> None:
        """Records before ``next_offset`` were delivered, the last of them of ``leader_epoch``.

        Raises:
            ValueError: the position would go back.
        """
        if next_offset < self.position.offset:
            raise ValueError(f"offsets never go back: {next_offset} after {self.position.offset}")
        self.position = FetchPosition(next_offset, leader_epoch)

    def leader_changed(self, leader: LeaderAndEpoch) -> PositionState:
        """Another leader or epoch is known: a position whose epoch is known is validated there.

        The same one again, or none, changes nothing. Without an epoch, of the position or of the leader, nothing can be
        validated: the read goes on.
        """
        if leader == self._leader or leader.leader_id < 0:
            return self.state
        self._leader = leader
        if self.state in (PositionState.FETCHING, PositionState.AWAIT_VALIDATION):
            self._validate_if_possible()
        return self.state

    def _validate_if_possible(self) -> PositionState:
        can = self.position.leader_epoch >= 0 and self._leader.leader_id >= 0 and self._leader.leader_epoch >= 0
        self.state = PositionState.AWAIT_VALIDATION if can else PositionState.FETCHING
        return self.state

    def validate(self) -> PositionState:
        """Validate the position now if its epoch is known: after error 1 beyond the end, and where two sources meet."""
        return self._validate_if_possible() if self.position.offset >= 0 else self.state

    def lost(self) -> None:
        """The offset is out of range, and not because of a truncation that a validation could show."""
        self.state = PositionState.AWAIT_RESET

    def question(self) -> Question | None:
        """What to ask the leader now; ``None`` unless the state is ``AWAIT_VALIDATION``."""
        if self.state is not PositionState.AWAIT_VALIDATION:
            return None
        wanted = EpochWanted(self._topic, self._partition, self.position.leader_epoch, self._leader.leader_epoch)
        return Question(self._leader.leader_id, wanted, self.position)

    def answered(self, question: Question, end: EpochEnd) -> Verdict:
        """Judge the position by what the leader answered to ``question``."""
        if question != self.question():
            return Verdict(Validation.DISCARDED, question.position)
        verdict = judge_epoch_end(self.position, end)
        if verdict.validation is Validation.VALID:
            self.state = PositionState.FETCHING
        elif verdict.validation in (Validation.TRUNCATED, Validation.NO_COMMON_HISTORY):
            self.state = PositionState.AWAIT_RESET
        return verdict

    def diverged(self, fetch_offset: int, diverging: tuple[int, int]) -> Verdict:
        """Judge the position by the DivergingEpoch of a Fetch answer.

        Args:
            fetch_offset: what was asked for.
            diverging: (epoch, end offset) of the largest epoch that agrees.
        """
        if fetch_offset != self.position.offset:
            return Verdict(Validation.DISCARDED, FetchPosition(fetch_offset, self.position.leader_epoch))
        epoch, end_offset = diverging
        verdict = judge_epoch_end(self.position, EpochEnd(self._topic, self._partition, 0, epoch, end_offset))
        if verdict.validation is Validation.VALID:  # it says that the logs part, so at the latest at the position
            verdict = Verdict(Validation.TRUNCATED, self.position, FetchPosition(self.position.offset, epoch))
        self.state = PositionState.AWAIT_RESET
        return verdict


def judge_epoch_end(position: FetchPosition, end: EpochEnd) -> Verdict:
    """What the end of an epoch in the leader's log says about a position of that epoch.

    A lower epoch that ends at or behind the position counts as valid, as in the Java client: an epoch without records,
    such as one that ListOffsets told for the log end, is in no log later on. ``end_offset`` may be the log end: it is
    never a promise that records below it can be read.
    """
    if end.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return Verdict(Validation.FORBIDDEN, position)
    if end.error != ErrorCode.NONE:
        return Verdict(Validation.REPEAT, position)
    if end.leader_epoch < 0 or end.end_offset < 0:
        return Verdict(Validation.NO_COMMON_HISTORY, position)
    if end.end_offset < position.offset:
        return Verdict(Validation.TRUNCATED, position, FetchPosition(end.end_offset, end.leader_epoch))
    return Verdict(Validation.VALID, position)


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What of a record batch's header counts here: its offsets, both ends included, and its leader epoch."""

    base_offset: int
    last_offset: int
    leader_epoch: int


def parse_batch_facts(records: memoryview) -> list[tuple[BatchFacts, int]]:
    """The offsets and leader epoch of each whole batch, with the position after it.

    Reads headers only, and stops before a batch that is cut off or damaged: decoding the records reports that. Message
    sets from before Kafka 0.11 have no leader epoch: -1.

    Source: KIP-98; Kafka 4.3 ``DefaultRecordBatch``.
    """
    found: list[tuple[BatchFacts, int]] = []
    position, stop = 0, len(records)
    while stop - position >= _HEAD.size:
        base_offset, length, leader_epoch, magic = _HEAD.unpack_from(records, position)
        after = position + _OVERHEAD + length
        if length <= 0 or after > stop:
            break
        if magic < 2:
            found.append((BatchFacts(base_offset, base_offset, -1), after))
        elif after - position < _LEAST_BATCH:
            break
        else:
            delta = _DELTA.unpack_from(records, position + _DELTA_POSITION)[0]
            found.append((BatchFacts(base_offset, base_offset + delta, leader_epoch), after))
        position = after
    return found


@dataclass(frozen=True, slots=True)
class LiveBatches:
    """How much of an answer belongs to the leader's history.

    Args:
        count: so many batches from the first one on do.
        resume_at: where to fetch again because the next batch does not; ``None`` if all do.
        is_stuck: the very first batch asked for does not, so the same Fetch would bring it again.
    """

    count: int
    resume_at: int | None = None
    is_stuck: bool = False


class EpochHistory:
    """Where the epochs of one partition end in its leader's log, as far as they were asked for.

    A broker does not cut a remote segment at the end of an epoch: after an unclean election its answer may hold batches
    that are no longer part of the log. Before batches of an older epoch than the leader's are delivered, ``unknown``
    tells which epochs to ask OffsetForLeaderEpoch about, ``learn`` takes the answers, and ``live`` how many batches
    may be delivered. Ends are forgotten when the leader's epoch changes. Source: seen at brokers of 4.3.1.
    """

    __slots__ = ("_ends", "_leader_epoch")

    def __init__(self, leader_epoch: int = NO_EPOCH) -> None:
        self._leader_epoch = leader_epoch
        self._ends: dict[int, int] = {}

    def leader_changed(self, leader_epoch: int) -> None:
        """Another epoch leads: what ended where may be otherwise now."""
        if leader_epoch != self._leader_epoch:
            self._leader_epoch = leader_epoch
            self._ends.clear()

    def unknown(self, epochs: Iterable[int]) -> tuple[int, ...]:
        """Which of these the leader has to be asked about, ascending: older than its own, and not asked yet."""
        return tuple(sorted({each for each in epochs if 0 <= each != self._leader_epoch} - self._ends.keys()))

    def learn(self, asked: int, end: EpochEnd) -> None:
        """Take the answer about the epoch ``asked``; it must have no error. An epoch that the leader does not have has
        no live offsets."""
        if end.error != ErrorCode.NONE:
            raise ValueError(f"an answer with error {end.error} has no end offset")
        self._ends[asked] = end.end_offset if end.leader_epoch == asked else -1

    def live(self, fetch_offset: int, batches: Iterable[BatchFacts]) -> LiveBatches:
        """How many of these batches, in their order, the leader's log holds.

        Raises:
            KeyError: ``unknown`` would name one of their epochs.
        """
        count = 0
        next_offset = fetch_offset
        for batch in batches:
            if 0 <= batch.leader_epoch != self._leader_epoch:
                end = self._ends[batch.leader_epoch]
                if batch.last_offset >= end:
                    resume_at = max(next_offset, end)
                    return LiveBatches(count, resume_at, is_stuck=resume_at <= fetch_offset)
            next_offset = max(next_offset, batch.last_offset + 1)
            count += 1
        return LiveBatches(count)
