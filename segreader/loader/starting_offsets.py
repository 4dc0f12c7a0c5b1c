"""From a load to live data: the last positions of a load as the first offsets of an ordinary Kafka consumer.

Knows how Spark's kafka source and Flink's write such offsets, and what a cluster can say against them. It imports
neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from itertools import groupby

from segreader.broker.messages import EpochWanted, TopicMetadata
from segreader.errors import (
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    OptionError,
    RecreatedTopicError,
    TruncatedLogError,
    shown_count,
)
from segreader.isolation import IsolationLevel
from segreader.live.cluster import Cluster, KafkaCluster
from segreader.live.marks import find_topic, read_bounds, refuse_other_history
from segreader.loader.enumerator import sorted_positions
from segreader.loader.splits import Position
from segreader.plan.log import LogEnd
from segreader.segment import TopicIdPartition
from segreader.values import dataclass


@dataclass(frozen=True, slots=True)
class StartingOffsets:
    """Offsets at which a Kafka consumer continues after a load, without missing or repeating a record.

    The consumer must read at the ``isolation_level`` of the load: in Kafka's clients it is ``read_uncommitted`` unless
    it is set.

    Args:
        positions: one per partition, by topic and number.
        added: partitions that only the cluster has, from ``check``, at their earliest offsets.
    """

    positions: tuple[Position, ...]
    added: tuple[Position, ...] = ()

    @classmethod
    def of(cls, positions: Iterable[Position]) -> StartingOffsets:
        """The offsets that follow these positions.

        Args:
            positions: ``SplitEnumerator.end_positions()`` of a load that is over, or the positions of all its readers.
                Of several in one partition all but the last must be at the end of their splits.

        Raises:
            OptionError: there are none, they differ in topic id or isolation level, or one split is half read while a
                later one was begun.
        """
        found = sorted_positions(positions)
        if not found:
            raise OptionError("there is no position to continue from", hint="Give end_positions() of the enumerator")
        _require_one("isolation levels", [one.isolation_level.value for one in found])
        for topic, some in _by_topic(found):
            _require_one(f"ids of topic {topic}", [str(one.topic_id) for one in some])
        last: dict[tuple[str, int], Position] = {}
        for one in found:
            before = last.get((one.topic, one.partition))
            if before is not None and before.next_offset < (before.stop or one.next_offset):
                raise OptionError(
                    f"records of {one.topic}-{one.partition} would be missed",
                    offset=before.next_offset,
                    found=f"positions at {before.next_offset} and {one.next_offset}",
                    expected=f"the first one at {before.stop}, the end of its split" if before.stop else "one position",
                    hint="Read that split to its end, or give its position alone",
                )
            last[one.topic, one.partition] = one
        return cls(tuple(last.values()))

    @property
    def isolation_level(self) -> IsolationLevel:
        """The isolation level of the load, which the consumer must use too."""
        return self.positions[0].isolation_level

    @property
    def offsets(self) -> dict[tuple[str, int], int]:
        """The first offset to read by topic and partition, added partitions included."""
        found = {(one.topic, one.partition): one.next_offset for one in (*self.positions, *self.added)}
        return dict(sorted(found.items()))

    def to_spark_json(self) -> str:
        """``{"orders":{"0":23}}``: the option ``startingOffsets`` of Spark's kafka source, and of ours.

        Spark wants every partition that it will read there; ``check`` adds those that are new.
        Source: ``JsonUtils.partitionOffsets``, ``KafkaOffsetReader`` (Spark 4).
        """
        document: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in self.offsets.items():
            document.setdefault(topic, {})[str(partition)] = offset
        return json.dumps(document, separators=(",", ":"))

    def to_flink(self) -> dict[tuple[str, int], int]:
        """Topic and partition to offset: what ``OffsetsInitializer.offsets(Map<TopicPartition, Long>)`` takes.

        In PyFlink: ``{KafkaTopicPartition(*place): offset for place, offset in starting.to_flink().items()}`` for
        ``KafkaOffsetsInitializer.offsets``. A partition that is not named there begins at its earliest offset.
        Source: ``SpecifiedOffsetsInitializer`` (flink-connector-kafka).
        """
        return self.offsets

    def to_flink_json(self) -> str:
        """The same for a job in another language: ``[{"topic":"orders","partition":0,"offset":23}]``."""
        rows = [{"topic": topic, "partition": number, "offset": at} for (topic, number), at in self.offsets.items()]
        return json.dumps(rows, separators=(",", ":"))

    def check(self, bootstrap_servers: str, broker_options: Mapping[str, object] | None = None) -> StartingOffsets:
        """Ask the cluster whether a consumer can start at these offsets now.

        Costs one request about the topic, and one or two to each leader. Retention continues meanwhile, so check last.

        Args:
            bootstrap_servers: ``host:port``, separated by commas.
            broker_options: settings of a Kafka client by Kafka's names; see ``docs/reference/options.md``.

        Returns:
            These offsets, and in ``added`` the partitions that only the cluster has, at their earliest offsets.

        Raises:
            RecreatedTopicError: the cluster's topic has another id. ObjectNotFoundError: it has no such topic or
                partition.
            OffsetOutOfRangeError: a position is before the earliest offset; ``offset`` is the earliest one.
            TruncatedLogError: a position is above the end, or what was read before it, or may have decided it, is no
                longer in the log.
            BrokerError: the cluster cannot be asked.
        """
        with closing(KafkaCluster(bootstrap_servers, broker_options)) as cluster:
            added: list[Position] = []
            for topic, positions in _by_topic(self.positions):
                added += _check_topic(cluster, topic, positions)
        return StartingOffsets(self.positions, tuple(added))


def _require_one(what: str, values: Iterable[str]) -> None:
    if len(different := sorted(set(values))) > 1:
        raise OptionError(
            f"the positions have different {what}", found=" and ".join(different), expected="positions of one load"
        )


def _by_topic(positions: Iterable[Position]) -> list[tuple[str, list[Position]]]:
    return [(topic, list(some)) for topic, some in groupby(positions, lambda one: one.topic)]


def _check_topic(cluster: Cluster, topic: str, positions: Sequence[Position]) -> list[Position]:
    """Refuse what the cluster does not have; the partitions that are not among the positions."""
    there = find_topic(cluster, topic)
    _require_topic_id(cluster, there, positions[0])
    numbers = sorted(one.partition for one in there.partitions)
    if missing := sorted({one.partition for one in positions} - set(numbers)):
        raise ObjectNotFoundError(
            f"the cluster's topic {topic} has no partition {', '.join(map(str, missing))}",
            source=cluster.shown,
            found=shown_count(len(numbers), "partition"),
            hint="Topics never lose partitions: it is another topic, or another cluster",
        )
    bounds = read_bounds(cluster, topic, numbers)
    epochs = {(one.partition, epoch) for one in positions for epoch in _epochs_of(one)}
    asked = [EpochWanted(topic, number, epoch) for number, epoch in sorted(epochs)]
    ends = dict(zip(sorted(epochs), cluster.epoch_ends(asked) if asked else (), strict=True))
    for one in positions:
        partition = TopicIdPartition(topic, one.partition, one.topic_id)
        earliest, latest = bounds[one.partition]
        if one.next_offset < earliest:
            raise OffsetOutOfRangeError(
                f"the cluster no longer has the offsets of {partition} that follow the load",
                source=cluster.shown,
                offset=earliest,
                found=f"{earliest} as the earliest offset",
                expected=f"offset {one.next_offset}",
                hint="Load on from the store past the earliest offset, if it has them, and hand over from there",
            )
        if one.leader_epoch is not None:
            end = ends[one.partition, one.leader_epoch]
            refuse_other_history(end, partition, one.next_offset, one.leader_epoch, cluster.shown)
        if one.next_offset > latest:
            raise TruncatedLogError(
                f"the cluster's log of {partition} ends before what was loaded",
                source=cluster.shown,
                offset=latest,
                found=f"an end at {latest}",
                expected=f"offset {one.next_offset} or more",
                hint="Records were lost in an unclean leader election, or it is another cluster: what was loaded from "
                "the end on is void",
            )
        if (known_end := _log_end_of(one)) is not None:
            epoch = known_end.leader_epoch
            common = latest if epoch is None else ends[one.partition, epoch].end_offset
            _refuse_lost_markers(partition, one, known_end, common, cluster.shown)
    known = {one.partition for one in positions}
    return [
        Position(
            topic=topic,
            topic_id=there.topic_id,
            partition=number,
            next_offset=bounds[number][0],
            isolation_level=positions[0].isolation_level,
        )
        for number in numbers
        if number not in known
    ]


def _log_end_of(position: Position) -> LogEnd | None:
    """Where the log ended whose markers decided what was loaded; ``None`` where none behind the position did."""
    end = position.log_end
    is_committed = position.isolation_level is IsolationLevel.READ_COMMITTED
    return end if is_committed and end is not None and end.offset > position.next_offset else None


def _epochs_of(position: Position) -> set[int]:
    """The epochs whose ends in the cluster tell whether it has what was loaded."""
    end = _log_end_of(position)
    epochs = (position.leader_epoch, None if end is None else end.leader_epoch)
    return {epoch for epoch in epochs if epoch is not None}


def _refuse_lost_markers(partition: TopicIdPartition, position: Position, known: LogEnd, end: int, shown: str) -> None:
    """Raise if the cluster's log has lost offsets whose markers may have decided what was loaded."""
    if end >= known.offset:
        return
    raise TruncatedLogError(
        f"markers that decided what was loaded of {partition} may no longer be in the log",
        source=shown,
        offset=end if end >= 0 else None,
        found=f"offsets up to {end} in common" if end >= 0 else "nothing in common",
        expected=f"offsets up to {known.offset}, by which transactions below {position.next_offset} were decided",
        hint="An unclean leader election took them away: load again what belongs to transactions that are open at the "
        "end of what is common",
    )


def _require_topic_id(cluster: Cluster, there: TopicMetadata, position: Position) -> None:
    if None in (there.topic_id, position.topic_id) or there.topic_id == position.topic_id:
        return
    raise RecreatedTopicError(
        f"the cluster's topic {position.topic} is not the one that was loaded",
        source=cluster.shown,
        found=f"id {there.topic_id}",
        expected=f"id {position.topic_id}",
        hint="It was deleted and created again: read the new one from its earliest offset, beside what was loaded",
    )
