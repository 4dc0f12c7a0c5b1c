"""Follows the partitions of a topic at their live end: which records a reader may see that were not there before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from segreader.isolation import IsolationLevel
from segreader.live.cluster import Cluster
from segreader.live.marks import choose_partitions, find_topic, read_ends, require_history
from segreader.live.planner import plan_topics
from segreader.plan.live import LivePlan
from segreader.plan.request import Bounds, LiveEnd, ReadOptions, Request
from segreader.read.metrics import LiveMetrics
from segreader.segment import TopicIdPartition
from segreader.values import dataclass

_TOPIC_EVERY_S: Final = 30.0
"""So often the topic is looked at for partitions that were added."""


@dataclass(slots=True)
class _Position:
    """How far a partition is read, and the leader epoch of the record before; -1 where it is not known."""

    offset: int
    epoch: int = -1


class LiveEnds:
    """Remembers how far each partition is read. ``next_plan`` waits until there is more to read.

    Each round asks the leaders for the ends that the isolation level lets a reader see, so that no transaction is shown
    before it is decided. Whatever was read must still be in the log: its epoch is asked for before reading on.

    Args:
        request: the topic; its bounds are those of the first read, whose plan is ``done``.
        done: what is read before.
        every_s: seconds between two rounds that find nothing.
        sleep, clock: of the machine.
    """

    def __init__(
        self,
        cluster: Cluster,
        request: Request,
        options: ReadOptions,
        done: LivePlan,
        *,
        every_s: float,
        metrics: LiveMetrics,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._options, self._metrics = cluster, options, metrics
        self._end = request.bounds.end
        self._request = replace(request, bounds=Bounds(), last=None, placed_by_key=None)
        self._every_s, self._sleep, self._clock = every_s, sleep, clock
        self._looked_s = clock()
        self._positions: dict[int, _Position] = {}
        self._take(done)

    def plans(self) -> Iterator[LivePlan]:
        """A plan of what is new, again and again; the positions move when the next one is asked for.

        Raises:
            TruncatedLogError: an unclean election took away what was read. OffsetOutOfRangeError: retention deleted
                what was not read yet (``on_gap='fail'``). BrokerError: the cluster cannot be asked, or refuses.
        """
        while True:
            requests = self._requests()
            if requests:
                plan = plan_topics(self._cluster, requests, self._options, metrics=self._metrics)
                yield plan
                self._take(plan)
            else:
                self._sleep(self._every_s)

    def _requests(self) -> list[Request]:
        """What is new of each partition that has something."""
        self._find_added()
        topic, level = self._request.topic or "", self._request.isolation_level
        if self._end is LiveEnd.LATEST_STABLE:
            level = IsolationLevel.READ_COMMITTED
        ends = read_ends(self._cluster, topic, sorted(self._positions), level)
        found = []
        for number, position in sorted(self._positions.items()):
            if ends[number] == position.offset:
                continue
            partition = TopicIdPartition(topic, number, self._request.topic_id)
            require_history(self._cluster, partition, position.offset, position.epoch)
            if ends[number] > position.offset:  # a new leader may know a lower end for a moment
                bounds = Bounds(position.offset or None, ends[number])
                found.append(replace(self._request, partitions=(number,), bounds=bounds))
        return found

    def _find_added(self) -> None:
        """Begin to read partitions that were added to the topic, if all of them are asked for."""
        if self._request.partitions is not None or self._clock() - self._looked_s < _TOPIC_EVERY_S:
            return
        self._looked_s = self._clock()
        topic = find_topic(self._cluster, self._request.topic or "", self._request.topic_id)
        for number in choose_partitions(topic, None, self._cluster.shown):
            self._positions.setdefault(number, _Position(0))

    def _take(self, plan: LivePlan) -> None:
        """The positions behind what a plan reads."""
        for asked in plan.partitions_asked:
            number, stop = asked.partition.partition, asked.seam.stop
            known = self._positions.get(number, _Position(stop))
            epochs = [epoch for epoch, start in asked.leader_epochs if start < stop]
            self._positions[number] = _Position(stop, max(epochs, default=known.epoch))
        if self._request.topic_id is None and plan.partitions_asked:
            topic_id = plan.partitions_asked[0].partition.topic_id
            self._request = replace(self._request, topic_id=topic_id)
