"""What the leaders of topics say of them: ends, offsets for times, history, and which topics are tiered.

ListOffsets takes one timestamp a partition, so marks are no snapshot: the ends only grow, but by an unclean election.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from segreader.broker.messages import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    EpochEnd,
    EpochWanted,
    ListedOffset,
    OffsetWanted,
    TopicMetadata,
)
from segreader.broker.protocol import describe
from segreader.catalog.listing import NEWEST, number_ranges
from segreader.errors import (
    AuthorizationError,
    BrokerError,
    ObjectNotFoundError,
    ProtocolError,
    TruncatedLogError,
    UnsupportedVersionError,
    nearest_hint,
)
from segreader.format.checkpoints import LeaderEpoch, LeaderEpochs
from segreader.isolation import IsolationLevel
from segreader.live.cluster import Cluster
from segreader.plan.lineage import normalised
from segreader.plan.live import LogMarks
from segreader.segment import TopicIdPartition
from segreader.values import dataclass

_NO_SUCH_TOPIC, _UNSUPPORTED, _FORBIDDEN = 3, 35, 29
_MOST_EPOCHS: Final = 1 << 16


def find_topic(cluster: Cluster, topic: str, topic_id: str | None = None) -> TopicMetadata:
    """A topic as the cluster has it now.

    Args:
        topic_id: refuse another one; a cluster has none but the newest.

    Raises:
        ObjectNotFoundError: there is none of that name, or it is another one. AuthorizationError: it may not be seen.
    """
    found = next((one for one in cluster.metadata([topic]).topics if one.name == topic), None)
    if found is not None and found.error == _FORBIDDEN:
        raise AuthorizationError(
            f"this user may not see topic {topic}", source=cluster.shown, code=_FORBIDDEN, hint="It needs READ on it"
        )
    if found is None or found.error == _NO_SUCH_TOPIC:
        names = [one.name for one in cluster.metadata(None).topics if one.name is not None]
        raise ObjectNotFoundError(
            f"the cluster has no topic {topic}",
            source=cluster.shown,
            hint=nearest_hint(topic, names) or "See what it has with segreader broker describe",
        )
    if found.error:
        raise BrokerError(
            f"topic {topic} cannot be read now", source=cluster.shown, code=found.error, found=describe(found.error)
        )
    if topic_id not in (None, NEWEST, found.topic_id):
        raise ObjectNotFoundError(
            f"the cluster's topic {topic} is another one",
            source=cluster.shown,
            found=f"id {found.topic_id}",
            expected=f"id {topic_id}",
            hint="It was deleted and created again: the old one's segments can be read from the store alone",
        )
    return found


def choose_partitions(topic: TopicMetadata, partitions: Collection[int] | None, shown: str) -> list[int]:
    """The partitions asked for, in order; all by default.

    Raises:
        ObjectNotFoundError: the topic has no such partition.
    """
    there = sorted(one.partition for one in topic.partitions)
    if partitions is None:
        return there
    missing = sorted(set(partitions) - set(there))
    if missing:
        raise ObjectNotFoundError(
            f"topic {topic.name} has no partition {', '.join(map(str, missing))}",
            source=shown,
            hint=f"{topic.name} has partition{'s' * (len(there) > 1)} {number_ranges(there)}",
        )
    return sorted(set(partitions))


def read_marks(
    cluster: Cluster,
    topic: str,
    partitions: Sequence[int],
    isolation_level: IsolationLevel,
) -> dict[int, LogMarks]:
    """Where each partition begins, locally too, how far it is tiered, and where a reader's part of it ends."""
    asked = [
        OffsetWanted(topic, number, mark)
        for number in partitions
        for mark in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, LATEST)
    ]
    answers = cluster.list_offsets(asked, isolation_level)
    found = dict(zip(((one.partition, one.timestamp) for one in asked), answers, strict=True))
    return {
        number: LogMarks(
            _mark(found[number, EARLIEST], cluster),
            _mark(found[number, LATEST], cluster),
            _optional(found[number, EARLIEST_LOCAL], cluster),
            _optional(found[number, LATEST_TIERED], cluster),
            found[number, LATEST].leader_epoch,
        )
        for number in partitions
    }


def read_stable_ends(cluster: Cluster, topic: str, partitions: Sequence[int]) -> dict[int, int]:
    """Of each partition the last stable offset, where a ``read_committed`` reader's part ends."""
    return read_ends(cluster, topic, partitions, IsolationLevel.READ_COMMITTED)


def read_ends(
    cluster: Cluster, topic: str, partitions: Sequence[int], isolation_level: IsolationLevel
) -> dict[int, int]:
    """Of each partition where a reader's part ends: the last stable offset, or the high watermark."""
    asked = [OffsetWanted(topic, number, LATEST) for number in partitions]
    return {one.partition: _mark(one, cluster) for one in cluster.list_offsets(asked, isolation_level)}


def read_bounds(cluster: Cluster, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Of each partition the earliest offset, tiered ones included, and the high watermark."""
    asked = [OffsetWanted(topic, number, mark) for number in partitions for mark in (EARLIEST, LATEST)]
    answers = cluster.list_offsets(asked, IsolationLevel.READ_UNCOMMITTED)
    found = {(one.partition, one.timestamp): _mark(told, cluster) for one, told in zip(asked, answers, strict=True)}
    return {number: (found[number, EARLIEST], found[number, LATEST]) for number in partitions}


def offsets_for_time(
    cluster: Cluster, topic: str, partitions: Sequence[int], time_ms: int, isolation_level: IsolationLevel
) -> dict[int, int | None]:
    """For each partition the first offset that is not older; ``None`` if all are. Markers count, as for a broker."""
    asked = [OffsetWanted(topic, number, max(0, time_ms)) for number in partitions]
    answers = cluster.list_offsets(asked, isolation_level)
    found = {one.partition: require_listed(one, cluster) for one in answers}
    return {number: None if offset < 0 else offset for number, offset in found.items()}


def require_listed(listed: ListedOffset, cluster: Cluster) -> int:
    """The offset that a leader listed; below 0 where there is none.

    Raises:
        BrokerError: it cannot be looked up.
    """
    if listed.error:
        raise BrokerError(
            f"an offset of {listed.topic}-{listed.partition} cannot be looked up",
            source=cluster.shown,
            code=listed.error,
            found=describe(listed.error),
        )
    return listed.offset


def _mark(listed: ListedOffset, cluster: Cluster) -> int:
    """A mark that every log has."""
    offset = require_listed(listed, cluster)
    if offset < 0:
        raise ProtocolError(
            f"a broker lists no offset for an end of {listed.topic}-{listed.partition}",
            source=cluster.shown,
            found=offset,
            expected="an offset from 0 on",
        )
    return offset


def _optional(listed: ListedOffset, cluster: Cluster) -> int | None:
    """A mark that older brokers do not tell."""
    return None if listed.error == _UNSUPPORTED else require_listed(listed, cluster)


def require_history(cluster: Cluster, partition: TopicIdPartition, offset: int, epoch: int) -> None:
    """Refuse a position that is not of the live log: an unclean election removed the records before it.

    Args:
        offset: the position, which is the next offset to read.
        epoch: of the last record before it; -1 where it is not known, then nothing is refused.

    Raises:
        TruncatedLogError: with the last common point. Source: KIP-320.
    """
    if epoch < 0:
        return
    (end,) = cluster.epoch_ends([EpochWanted(partition.topic, partition.partition, epoch)])
    refuse_other_history(end, partition, offset, epoch, cluster.shown)


def refuse_other_history(end: EpochEnd, partition: TopicIdPartition, offset: int, epoch: int, shown: str) -> None:
    """As ``require_history``, by the leader's answer about that epoch."""
    if end.end_offset >= offset:
        return
    raise TruncatedLogError(
        f"records before this offset of {partition} are no longer in the log",
        source=shown,
        offset=end.end_offset if end.end_offset >= 0 else None,
        found=f"epoch {end.leader_epoch} ends at {end.end_offset}",
        expected=f"epoch {epoch} up to offset {offset}",
        hint="An unclean leader election took them away: what was read from there on is void; plan again",
    )


def read_lineage_of_leader(cluster: Cluster, topic: str, partition: int, leader_epoch: int, start: int) -> LeaderEpochs:
    """The leader epochs of the live log from the one on that holds ``start``; empty if the leader returns none.

    One request for each epoch, from the newest down.

    Args:
        leader_epoch: of the leader that returned the end of the read: a later one wrote nothing of it.
    """

    def ask(epoch: int) -> EpochEnd:
        (end,) = cluster.epoch_ends([EpochWanted(topic, partition, epoch)])
        return end

    try:
        return walk_epochs(ask, leader_epoch, start)
    except UnsupportedVersionError:
        return LeaderEpochs()


def walk_epochs(ask: Callable[[int], EpochEnd], newest: int, start: int) -> LeaderEpochs:
    """As ``read_lineage_of_leader``.

    An epoch begins where the largest one below it ends. Below its first one a leader answers with the epoch that was
    asked for and the start of its log: then nothing is there.

    Raises:
        ProtocolError: the answers contradict each other.

    Source: ``LeaderEpochFileCache.endOffsetFor`` (4.3).
    """
    if newest < 0:
        return LeaderEpochs()
    answer = ask(newest)
    entries: list[LeaderEpoch] = []
    epoch, end = answer.leader_epoch, answer.end_offset
    for _ in range(_MOST_EPOCHS):
        if epoch <= 0 or end < 0:
            break
        below = ask(epoch - 1)
        if below.leader_epoch >= epoch or below.end_offset > end:
            raise ProtocolError(
                "a leader's epochs contradict each other",
                found=f"epoch {below.leader_epoch} ends at {below.end_offset}",
                expected=f"one below {epoch}, with an end up to {end}",
            )
        begins = max(below.end_offset, 0)
        if entries and begins == entries[-1].start_offset:
            break  # below its first epoch
        entries.append(LeaderEpoch(epoch, begins))
        if below.leader_epoch < 0 or begins <= start:
            return normalised(LeaderEpochs(tuple(reversed(entries))))
        epoch, end = below.leader_epoch, below.end_offset
    else:
        raise ProtocolError("a leader has too many epochs", found=f"more than {_MOST_EPOCHS}")
    if epoch == 0 and end >= 0:
        entries.append(LeaderEpoch(0, 0))
    return normalised(LeaderEpochs(tuple(reversed(entries))))


_TIERED = "remote.storage.enable"


@dataclass(frozen=True, slots=True)
class PartitionMarks:
    """One partition's ends, as its leader returned them one after another.

    Args:
        marks: with the high watermark as its end.
        last_stable: below it every transaction is decided.
        is_tiered: whether remote storage is on, as the configuration says or, where it may not be seen, the marks do;
            ``None``: not known.
    """

    topic: str
    topic_id: str | None
    partition: int
    leader_id: int
    leader_epoch: int
    marks: LogMarks
    last_stable: int
    is_tiered: bool | None


def describe_topics(
    cluster: Cluster, topics: Collection[str] | None = None, *, only_tiered: bool = True
) -> Iterator[PartitionMarks]:
    """The partitions of topics, in order. Of all topics those that are tiered; a topic that is named always.

    Raises:
        ObjectNotFoundError: a topic that is named is not there. BrokerError: the cluster cannot be asked.
    """
    if topics is None:
        found = [one for one in cluster.metadata(None).topics if not one.error and not one.is_internal]
    else:
        found = [find_topic(cluster, name) for name in dict.fromkeys(topics)]
    found = sorted((one for one in found if one.name is not None), key=lambda one: one.name or "")
    tiered = _configured(cluster, [one.name for one in found if one.name is not None])
    for topic in found:
        is_on = tiered.get(topic.name or "")
        if topics is None and only_tiered and is_on is False:
            continue
        rows = list(_partitions(cluster, topic, is_on))
        if topics is not None or not only_tiered or any(row.is_tiered is not False for row in rows):
            yield from rows


def _configured(cluster: Cluster, names: list[str]) -> dict[str, bool]:
    """Whether remote storage is on, for those topics whose configuration may be seen."""
    if not names:
        return {}
    try:
        answers = cluster.topic_configs(names, [_TIERED])
    except BrokerError:
        return {}
    return {one.topic: one.values.get(_TIERED) == "true" for one in answers if not one.error and _TIERED in one.values}


def _partitions(cluster: Cluster, topic: TopicMetadata, is_on: bool | None) -> Iterator[PartitionMarks]:
    name = topic.name or ""
    numbers = sorted(one.partition for one in topic.partitions)
    if not numbers:
        raise ObjectNotFoundError(f"topic {name} has no partitions", source=cluster.shown)
    leaders = {one.partition: one.leader for one in topic.partitions}
    marks = read_marks(cluster, name, numbers, IsolationLevel.READ_UNCOMMITTED)
    stable = read_stable_ends(cluster, name, numbers)
    for number in numbers:
        yield PartitionMarks(
            name,
            topic.topic_id,
            number,
            leaders[number].leader_id,
            leaders[number].leader_epoch,
            marks[number],
            stable[number],
            is_on if is_on is not None else _by_marks(marks[number]),
        )


def _by_marks(marks: LogMarks) -> bool | None:
    """Whether a partition is tiered, by its marks alone: ``None`` where these say nothing."""
    if marks.local_start is None or marks.last_tiered is None:
        return None
    return True if marks.last_tiered >= 0 or marks.local_start > marks.log_start else None
