"""What leaders say of whole topics: which are tiered, and every mark of each partition."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from segreader.broker.messages import TopicMetadata
from segreader.errors import BrokerError, ObjectNotFoundError
from segreader.isolation import IsolationLevel
from segreader.live.cluster import Cluster
from segreader.live.marks import find_topic, read_ends, read_marks
from segreader.plan.live import LogMarks

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
    stable = read_ends(cluster, name, numbers, IsolationLevel.READ_COMMITTED)
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
