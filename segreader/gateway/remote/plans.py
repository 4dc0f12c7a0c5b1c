"""Which partitions of a request may get a location: by the catalogue, the local start and the leader's history.

No right is decided here. What must be asked of a broker is asked on the client's own connection, so that the broker
answers this client; offsets and epochs that it returned are kept for others, for they are the same for everybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field
from typing import Final, Generic, Protocol, TypeVar

from segreader.broker import api
from segreader.broker.messages import (
    APACHE_KAFKA_V1,
    EARLIEST_LOCAL,
    LATEST,
    NO_EPOCH,
    ApiVersionRange,
    ApiVersions,
    EpochEnd,
    EpochWanted,
    OffsetWanted,
)
from segreader.broker.protocol import Api, ErrorCode, choose_version
from segreader.catalog.metadata_log import RemoteLogSegmentMetadata
from segreader.errors import SegreaderError
from segreader.gateway.fetch_messages import STEP, FlaggedFetch, PartitionAsked
from segreader.gateway.metrics import Refused
from segreader.gateway.remote.catalogue import Catalogue
from segreader.isolation import IsolationLevel
from segreader.values import dataclass

FRESH_S: Final = 5.0
"""How long a listed offset is used for further decisions."""

MOST_LOCATIONS: Final = 500
"""In one answer, which is made in memory."""

_CACHED = 100_000
_CANDIDATES = 4
_FIRST_WITH_LOCAL_START = 8

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Asking(Protocol):
    """A client's connection, as far as questions go: ``Relay``."""

    @property
    def offered(self) -> Mapping[int, ApiVersionRange]: ...
    async def question(self, api: Api, version: int, encode: Callable[[int], bytes]) -> memoryview: ...


ElsewhereEnds = Callable[[Sequence[EpochWanted]], Sequence[EpochEnd]]


@dataclass(slots=True)
class RemotePlan:
    """A partition that a location may be given for.

    Args:
        last_offset: of the segment, lowered to what the leader has, too.
        end_offset: where the log ends for this client, for a tail probe.
    """

    asked: PartitionAsked
    topic: str
    topic_id: str
    segment: RemoteLogSegmentMetadata
    last_offset: int
    end_offset: int = -1

    @property
    def key(self) -> tuple[str, int]:
        """Topic id and partition."""
        return self.topic_id, self.asked.partition


@dataclass(slots=True)
class _Open:
    """A partition whose segment is still looked for."""

    asked: PartitionAsked
    topic: str
    topic_id: str
    candidates: list[RemoteLogSegmentMetadata]
    ends: dict[int, EpochEnd] = field(default_factory=dict)


class _Recent(Generic[_K, _V]):
    """The newest values by key, bounded."""

    def __init__(self) -> None:
        self._values: OrderedDict[_K, _V] = OrderedDict()

    def get(self, key: _K) -> _V | None:
        if (value := self._values.get(key)) is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: _K, value: _V) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > _CACHED:
            self._values.popitem(last=False)


class RemotePlanner:
    """Finds the segments for requests of all clients.

    Args:
        elsewhere: asks the leaders for ends of epochs as the gateway itself, where a client's broker is no leader.
        clock: seconds since an arbitrary start.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        elsewhere: ElsewhereEnds | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalogue = catalogue
        self._elsewhere = elsewhere
        self._clock = clock
        self._local_starts: _Recent[tuple[str, int], tuple[int, float]] = _Recent()
        self._ends_of_logs: _Recent[tuple[str, int, int], tuple[int, float]] = _Recent()
        self._epoch_ends: _Recent[tuple[str, int, int, int], EpochEnd] = _Recent()
        self._common_from: _Recent[tuple[str, int], int] = _Recent()
        """From which offset on all of a segment is in the leader's history, too: by its id and the leader's epoch."""

    async def plan(
        self, link: Asking, request: FlaggedFetch
    ) -> tuple[list[RemotePlan], list[PartitionAsked], list[Refused]]:
        """Partitions that may get a location, those that do not, in the client's order, and why not."""
        refused: list[Refused] = []
        found = await self._with_segments(link, request, refused)
        await self._ask_local_starts(link, found)
        still_open = []
        for one in found:
            local = self._local_starts.get((one.topic_id, one.asked.partition))
            if local is None:
                refused.append(Refused.UNKNOWN_LOCAL_START)
            elif one.asked.fetch_offset >= local[0]:
                refused.append(Refused.LOCAL)
            else:
                still_open.append(one)
        plans = await self._with_history(link, still_open, refused)
        planned = {id(plan.asked) for plan in plans}
        return plans, [one for one in request.partitions if id(one) not in planned], refused

    async def following(
        self, link: Asking, plans: Sequence[RemotePlan], stops: Sequence[int], most: int
    ) -> list[list[RemotePlan]]:
        """For each plan those of the segments behind its own, below its stop, while remote and the leader's.

        Args:
            most: segments of each partition, with the first one. ``MOST_LOCATIONS`` are divided up evenly.
        """
        found: list[list[RemotePlan]] = [[plan] for plan in plans]
        room, growing = MOST_LOCATIONS - len(plans), list(range(len(plans)))
        for _ in range(1, most):
            still_open: list[_Open] = []
            number_of: dict[int, int] = {}
            for number in growing[:room]:
                last = found[number][-1]
                offset, local = last.last_offset + 1, self._local_starts.get(last.key)
                if local is None or offset >= min(stops[number], local[0]):
                    continue
                asked = last.asked._replace(fetch_offset=offset)
                candidates = await self._catalogue.holding(last.topic, last.topic_id, asked.partition, offset)
                if candidates:
                    still_open.append(_Open(asked, last.topic, last.topic_id, candidates[:_CANDIDATES]))
                    number_of[id(asked)] = number
                if not len(still_open) % STEP:
                    await asyncio.sleep(0)
            more = await self._with_history(link, still_open, []) if still_open else []
            growing = []
            for plan in more:
                growing.append(number := number_of[id(plan.asked)])
                found[number].append(plan)
            room -= len(more)
            if not growing or room <= 0:
                break
        return [some[1:] for some in found]

    async def know_ends(self, link: Asking, plans: Sequence[RemotePlan], isolation: int) -> list[RemotePlan]:
        """The plans whose log's end is known, for tail probes."""
        now = self._clock()
        missing = [
            plan
            for plan in plans
            if (known := self._ends_of_logs.get((*plan.key, isolation))) is None or now - known[1] > FRESH_S
        ]
        if missing:
            wanted = [(plan.topic, plan.asked, plan.topic_id) for plan in missing]
            for topic_id, partition, offset in await self._list(link, wanted, LATEST, isolation):
                self._ends_of_logs.put((topic_id, partition, isolation), (offset, now))
        for plan in plans:
            known = self._ends_of_logs.get((*plan.key, isolation))
            plan.end_offset = -1 if known is None else known[0]
        return [plan for plan in plans if plan.end_offset >= 0]

    def told_end(self, plan: RemotePlan, isolation: int, end_offset: int) -> None:
        """What a broker said of the log's end just now."""
        self._ends_of_logs.put((*plan.key, isolation), (end_offset, self._clock()))

    async def _with_segments(self, link: Asking, request: FlaggedFetch, refused: list[Refused]) -> list[_Open]:
        ids = {} if request.has_ids else await self._topic_ids(link, request)
        found: list[_Open] = []
        seen: set[tuple[str, int]] = set()
        for index, asked in enumerate(request.partitions, 1):
            if not index % STEP:
                await asyncio.sleep(0)  # other clients have their turn
            told = asked.topic
            topic_id = told if request.has_ids else ids.get(told or "")
            topic = None if topic_id is None else self._catalogue.topic_name(topic_id) if request.has_ids else told
            if topic is None or topic_id is None or (topic_id, asked.partition) in seen:
                refused.append(Refused.NO_SEGMENT)
                continue
            seen.add((topic_id, asked.partition))
            if len(found) >= MOST_LOCATIONS:
                refused.append(Refused.TOO_MANY)
            elif APACHE_KAFKA_V1 not in request.formats:
                refused.append(Refused.FORMAT)
            elif not self._catalogue.is_caught_up(topic_id, asked.partition):
                refused.append(Refused.NOT_CAUGHT_UP)
            else:
                candidates = await self._catalogue.holding(topic, topic_id, asked.partition, asked.fetch_offset)
                if candidates:
                    found.append(_Open(asked, topic, topic_id, candidates[:_CANDIDATES]))
                else:
                    refused.append(Refused.NO_SEGMENT)
        return found

    async def _topic_ids(self, link: Asking, request: FlaggedFetch) -> dict[str, str]:
        """Ids of topics given by name, requested each time: a name may have come back with another id."""
        names = sorted({one.topic for one in request.partitions if one.topic is not None})
        version = choose_version(Api.METADATA, ApiVersions(0, link.offered))
        frame = await link.question(
            Api.METADATA,
            version,
            lambda number: api.encode_metadata(version, names, correlation_id=number, client_id=_client_id(request)),
        )
        told = api.decode_metadata(version, frame)
        return {one.name: one.topic_id for one in told.topics if not one.error and one.name and one.topic_id}

    async def _ask_local_starts(self, link: Asking, found: Sequence[_Open]) -> None:
        """Ask where the logs on the brokers' disks begin. That only grows: an old answer may refuse, not allow more."""
        offered = link.offered.get(Api.LIST_OFFSETS)
        now = self._clock()
        wanted = []
        for one in found:
            key = (one.topic_id, one.asked.partition)
            known = self._local_starts.get(key)
            if offered is None or offered.last < _FIRST_WITH_LOCAL_START:
                self._local_starts.put(key, (1 << 63, now))
            elif known is None or (one.asked.fetch_offset >= known[0] and now - known[1] > FRESH_S):
                wanted.append((one.topic, one.asked, one.topic_id))
        for topic_id, partition, offset in await self._list(link, wanted, EARLIEST_LOCAL, 0) if wanted else ():
            self._local_starts.put((topic_id, partition), (offset, now))

    async def _list(
        self, link: Asking, wanted: Sequence[tuple[str, PartitionAsked, str]], timestamp: int, isolation: int
    ) -> list[tuple[str, int, int]]:
        """Offsets that the client's broker lists: topic id, partition and offset of those without an error."""
        ids = {(topic, asked.partition): topic_id for topic, asked, topic_id in wanted}
        version = choose_version(Api.LIST_OFFSETS, ApiVersions(0, link.offered))
        asked_for = [
            OffsetWanted(topic, asked.partition, timestamp, asked.current_leader_epoch) for topic, asked, _ in wanted
        ]
        level = IsolationLevel.READ_COMMITTED if isolation else IsolationLevel.READ_UNCOMMITTED
        frame = await link.question(
            Api.LIST_OFFSETS,
            version,
            lambda number: api.encode_list_offsets(
                version, asked_for, level, correlation_id=number, client_id="segreader-gateway"
            ),
        )
        told = api.decode_list_offsets(version, frame).offsets
        return [
            (ids[one.topic, one.partition], one.partition, one.offset)
            for one in told
            if not one.error and one.offset >= 0 and (one.topic, one.partition) in ids
        ]

    async def _with_history(self, link: Asking, still_open: list[_Open], refused: list[Refused]) -> list[RemotePlan]:
        plans = [plan for one in still_open if (plan := self._plan_again(one)) is not None]
        if len(plans) == len(still_open):
            return plans
        plans = []
        while still_open:
            await self._ask_ends(link, still_open)
            undecided = []
            for index, one in enumerate(still_open, 1):
                if not index % STEP:
                    await asyncio.sleep(0)
                segment = one.candidates[0]
                epochs = epochs_of(segment)
                first = one.asked.fetch_offset
                known = all(epoch in one.ends for epoch, _ in epochs_used(epochs, first, segment.last_offset))
                stop = common_stop(epochs, first, segment.last_offset, one.ends)
                if stop > first:
                    plans.append(RemotePlan(one.asked, one.topic, one.topic_id, segment, stop - 1))
                    if stop > segment.last_offset and (current := one.asked.current_leader_epoch) != NO_EPOCH:
                        self._common_from.put((segment.segment_id, current), first)
                elif not known:
                    refused.append(Refused.UNKNOWN_HISTORY)
                elif len(one.candidates) > 1:
                    undecided.append(_Open(one.asked, one.topic, one.topic_id, one.candidates[1:], one.ends))
                else:
                    refused.append(Refused.OTHER_HISTORY)
            still_open = undecided
        return plans

    def _plan_again(self, one: _Open) -> RemotePlan | None:
        """The plan by what is known of the first candidate, without a look at its epochs."""
        segment, asked = one.candidates[0], one.asked
        common_from = self._common_from.get((segment.segment_id, asked.current_leader_epoch))
        if common_from is None or asked.fetch_offset < common_from:
            return None
        return RemotePlan(asked, one.topic, one.topic_id, segment, segment.last_offset)

    async def _ask_ends(self, link: Asking, still_open: Sequence[_Open]) -> None:
        """Fill ``ends`` for the first candidate of each: from what is known, from the client's broker, or elsewhere."""
        missing: list[tuple[_Open, int]] = []
        for index, one in enumerate(still_open, 1):
            if not index % STEP:
                await asyncio.sleep(0)
            segment, current = one.candidates[0], one.asked.current_leader_epoch
            for epoch, _ in epochs_used(epochs_of(segment), one.asked.fetch_offset, segment.last_offset):
                if epoch in one.ends:
                    continue
                known = self._epoch_ends.get((one.topic_id, one.asked.partition, current, epoch))
                # The end of the newest epoch is where the log ends, which moves.
                if known is not None and (epoch != current or known.end_offset > segment.last_offset):
                    one.ends[epoch] = known
                else:
                    missing.append((one, epoch))
        while missing:
            # One epoch of each partition at a time: a broker may refuse what is listed twice.
            some: dict[tuple[str, int], tuple[_Open, int]] = {}
            for one, epoch in missing:
                some.setdefault((one.topic, one.asked.partition), (one, epoch))
            await self._ask_some_ends(link, some)
            asked = {(id(one), epoch) for one, epoch in some.values()}
            missing = [(one, epoch) for one, epoch in missing if (id(one), epoch) not in asked]

    async def _ask_some_ends(self, link: Asking, some: Mapping[tuple[str, int], tuple[_Open, int]]) -> None:
        wanted = [
            EpochWanted(topic, partition, epoch, one.asked.current_leader_epoch)
            for (topic, partition), (one, epoch) in some.items()
        ]
        version = choose_version(Api.OFFSET_FOR_LEADER_EPOCH, ApiVersions(0, link.offered))
        frame = await link.question(
            Api.OFFSET_FOR_LEADER_EPOCH,
            version,
            lambda number: api.encode_epoch_ends(version, wanted, correlation_id=number, client_id="segreader-gateway"),
        )
        told = list(api.decode_epoch_ends(version, frame).ends)
        elsewhere = {(one.topic, one.partition) for one in told if one.error == ErrorCode.NOT_LEADER_OR_FOLLOWER}
        not_leader = [one for one in wanted if (one.topic, one.partition) in elsewhere]
        if not_leader and self._elsewhere is not None:
            with contextlib.suppress(SegreaderError):
                told += await asyncio.to_thread(self._elsewhere, not_leader)
        for end in told:
            known = some.get((end.topic, end.partition))
            if known is None or end.error:
                continue
            one, epoch = known
            one.ends[epoch] = end
            if (current := one.asked.current_leader_epoch) != NO_EPOCH:
                self._epoch_ends.put((one.topic_id, one.asked.partition, current, epoch), end)


def _client_id(request: FlaggedFetch) -> str:
    return request.head.client_id or ""


def epochs_of(segment: RemoteLogSegmentMetadata) -> list[tuple[int, int]]:
    """The leader epochs that a segment names, and the first offset of each there."""
    return [(entry.epoch, entry.start_offset) for entry in segment.epochs.entries]


def epochs_used(epochs: Sequence[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    """The epochs, and their first offsets, that offsets ``first`` to ``last`` of a segment lie in.

    An epoch without an offset of its own, which begins where the next one does, is left out.
    """
    used = []
    for index, (epoch, start) in enumerate(epochs):
        stop = epochs[index + 1][1] if index + 1 < len(epochs) else last + 1
        if start < stop and stop > first and start <= last:
            used.append((epoch, start))
    return used


def common_stop(epochs: Sequence[tuple[int, int]], first: int, last: int, ends: Mapping[int, EpochEnd]) -> int:
    """One more than the last offset, from ``first`` on, that the segment and the leader have in common.

    Args:
        epochs: of the segment, each with its first offset there; ascending.
        first: the offset to begin with, which the segment holds.
        last: the segment's last offset.
        ends: what the leader says of each epoch of ``epochs_used``.

    Returns:
        ``first`` if even that one is not common.
    """
    used = epochs_used(epochs, first, last)
    if not used or used[0][1] > first:
        return first
    stop = first
    for index, (epoch, _) in enumerate(used):
        wanted = used[index + 1][1] if index + 1 < len(used) else last + 1
        told = ends.get(epoch)
        if told is None or told.error or told.leader_epoch != epoch or told.end_offset <= stop:
            break
        stop = min(told.end_offset, wanted)
        if told.end_offset < wanted or (told.end_offset > wanted and index + 1 < len(used)):
            break
    return stop
