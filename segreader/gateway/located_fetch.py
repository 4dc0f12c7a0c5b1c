"""Answer a flagged Fetch: the broker decides who may read, the catalogue finds the segment, the client gets a location.

The right is never remembered. For every request the broker is asked, on the client's own connection, by a Fetch that
reads nothing: of size zero at the true offset from Kafka 4.2 on, or of the log's end before. Where anything is in
doubt the partition is fetched like any other; errors are the broker's, never the gateway's.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Final

from segreader.broker.location import RANGE, encode_around_range
from segreader.broker.messages import OFFSET_INDEX, TRANSACTION_INDEX, IndexLocation, RemoteLogSegmentLocation
from segreader.broker.protocol import Api, ErrorCode
from segreader.errors import CatalogError, FormatError, StorageError, UnsupportedVersionError
from segreader.format.index_files import OffsetIndex
from segreader.gateway.audit import AuditLog, LocationGiven
from segreader.gateway.fetch_messages import (
    EXTENSION,
    FlaggedFetch,
    MoreTopics,
    PartitionAsked,
    ProbeAnswer,
    ProbedPartition,
    encode_topics,
    pass_fetch,
    whole_answer,
)
from segreader.gateway.metrics import GatewayMetrics, Refused
from segreader.gateway.relay import Relay
from segreader.gateway.remote.catalogue import Catalogue, StoredSegment
from segreader.gateway.remote.plans import RemotePlan, RemotePlanner, epochs_of, epochs_used
from segreader.gateway.remote.signing import ObjectAccess, Signer
from segreader.gateway.rewriting import rewrite_end
from segreader.gateway.wire import FrameSource
from segreader.values import dataclass

_STORE_READS = 4
"""Reads of the store that one request has under way at a time."""

_STEP = 8
"""Locations that are made in one turn: about half a millisecond."""

_FIRST_WITH_ZERO_PROBE = 11
"""Version of ListOffsets that came with Kafka 4.2, whose brokers read nothing remote for a PartitionMaxBytes of 0."""


class LocatedFetch:
    """Answers the flag for all clients of a gateway.

    Args:
        planner: finds segments.
        catalogue: finds their objects.
        signer: makes URLs for them.
        refuses_below_log_start: no location of a segment that begins below the log start.
        clock: seconds since 1970 UTC.
    """

    def __init__(
        self,
        planner: RemotePlanner,
        catalogue: Catalogue,
        signer: Signer,
        *,
        audit: AuditLog,
        metrics: GatewayMetrics,
        refuses_below_log_start: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._planner = planner
        self._catalogue = catalogue
        self._signer = signer
        self._audit = audit
        self._metrics = metrics
        self._refuses_below_log_start = refuses_below_log_start
        self._clock = clock
        self._made: OrderedDict[tuple[str, int, bool], _MadeLocation] = OrderedDict()

    async def answer(self, link: Relay, request: FlaggedFetch) -> None:
        """Send the client the answer to its request. Later requests of this client wait meanwhile."""
        head = request.head
        if request.fields.session_id > 0:
            self._metrics.refused[Refused.IN_SESSION] += len(request.partitions)
            frame = request.encode(request.partitions, head.correlation_id, has_session=True)
            await link.ask(
                Api.FETCH,
                head.version,
                frame,
                head.correlation_id,
                lambda source: link.pass_answer(source, Api.FETCH, head.version),
                held_s=_held_s(request),
            )
            return
        plans: list[RemotePlan] = []
        plain: Sequence[PartitionAsked] = request.partitions
        try:
            await link.find_offers()
            plans, plain, why = await self._planner.plan(link, request)
            self._metrics.refused.update(why)
        except UnsupportedVersionError:
            self._metrics.refused[Refused.UNSUPPORTED] += len(request.partitions)
        if not plans:
            await self._fetch_plainly(link, request, plain, MoreTopics())
            return
        await self._answer_with(link, request, plans, list(plain))

    async def _answer_with(
        self, link: Relay, request: FlaggedFetch, plans: list[RemotePlan], plain: list[PartitionAsked]
    ) -> None:
        offered = link.offered.get(Api.LIST_OFFSETS)
        is_zero = offered is not None and offered.last >= _FIRST_WITH_ZERO_PROBE
        if is_zero:
            probes = [plan.asked.zero_probe() for plan in plans]
        else:
            known = await self._planner.know_ends(link, plans, request.fields.isolation_level)
            plain += [plan.asked for plan in plans if plan not in known]
            self._metrics.refused[Refused.NO_ANSWER] += len(plans) - len(known)
            plans, probes = known, [plan.asked.tail_probe(plan.end_offset) for plan in known]
        probe = await self._probe(link, request, probes)
        head, throttle_ms = request.head, probe.throttle_ms
        if probe.error or (throttle_ms > 0 and not probe.partitions):
            # Over its quota a client gets no topics; the broker reads nothing more from it until that time is over.
            self._metrics.refused[Refused.NO_ANSWER] += len(plans)
            await link.to_client.send(whole_answer(head.correlation_id, throttle_ms, []))
            await link.to_client.flush()
            return
        errors: list[tuple[RemotePlan, ProbedPartition]] = []
        wanted: list[tuple[RemotePlan, ProbedPartition]] = []
        for plan in plans:
            probed = probe.partitions.get((plan.asked.topic, plan.asked.partition))
            cause = self._cause(plan, probed, request, is_zero=is_zero)
            if cause is not None:
                self._metrics.refused[cause] += 1
            if probed is None or (cause is not None and cause is not Refused.PROBE_ERROR):
                plain.append(plan.asked)
            else:
                (errors if cause is Refused.PROBE_ERROR else wanted).append((plan, probed))
        given: list[tuple[str | None, bytes]] = []
        room = asyncio.Semaphore(_STORE_READS)
        found: list[_LocatedPart | Refused] = []
        if len(wanted) == 1:  # without a task of its own: that is most of them
            found.append(await self._locate(request, wanted[0][0], room))
        else:
            for at in range(0, len(wanted), _STEP):
                part = [plan for plan, _ in wanted[at : at + _STEP]]
                found += await asyncio.gather(*(self._locate(request, plan, room) for plan in part))
        following: dict[tuple[str, int], list[bytes]] = {}
        if request.most_segments > 1:
            first = [one for one, at in zip(wanted, found, strict=True) if not isinstance(at, Refused)]
            following = await self._following(link, request, first, room)
        for index, ((plan, probed), location) in enumerate(zip(wanted, found, strict=True), 1):
            if not index % _STEP:
                await asyncio.sleep(0)  # other clients have their turn
            if isinstance(location, Refused) or not self._is_audited(link, request, plan, location):
                self._metrics.refused[location if isinstance(location, Refused) else Refused.AUDIT] += 1
                plain.append(plan.asked)
            else:
                self._metrics.locations_given += 1
                given.append((plan.asked.topic, probed.located(location.encoded(), following.get(plan.key, ()))))
        if plain:
            plain += [plan.asked for plan, _ in errors]  # whose answer tells where the leader is, too
            topics = encode_topics(head.version, given)
            await self._fetch_plainly(link, request, plain, MoreTopics(topics, throttle_ms), waits=not given)
            return
        given += [(plan.asked.topic, probed.refused()) for plan, probed in errors]
        end = await self._end(link, probe, head.version) if errors else None
        topics = encode_topics(head.version, given)
        await link.to_client.send(whole_answer(head.correlation_id, throttle_ms, topics, end))
        await link.to_client.flush()

    async def _following(
        self,
        link: Relay,
        request: FlaggedFetch,
        wanted: Sequence[tuple[RemotePlan, ProbedPartition]],
        room: asyncio.Semaphore,
    ) -> dict[tuple[str, int], list[bytes]]:
        """The locations of segments behind those that are wanted, by partition; the probes allow them, too."""
        ends = []
        for plan, probed in wanted:
            fields = probed.fields
            end = fields.last_stable_offset if request.fields.isolation_level else fields.high_watermark
            ends.append(end if plan.asked.stop_offset is None else min(end, plan.asked.stop_offset))
        plans = await self._planner.following(link, [plan for plan, _ in wanted], ends, request.most_segments)
        found: dict[tuple[str, int], list[bytes]] = {}
        for some, (_, probed) in zip(plans, wanted, strict=True):
            if self._refuses_below_log_start and any(
                plan.segment.base_offset < probed.fields.log_start_offset for plan in some
            ):
                continue
            for at in range(0, len(some), _STEP):
                part = some[at : at + _STEP]
                located = await asyncio.gather(*(self._locate(request, plan, room) for plan in part))
                await asyncio.sleep(0)  # other clients have their turn
                for plan, location in zip(part, located, strict=True):
                    if isinstance(location, Refused) or not self._is_audited(link, request, plan, location):
                        break  # it is asked for by itself, which is counted
                    self._metrics.locations_given += 1
                    found.setdefault(plan.key, []).append(location.encoded())
                else:
                    continue
                break
        return found

    async def _end(self, link: Relay, probe: ProbeAnswer, version: int) -> bytes:
        rewrite = partial(rewrite_end, memoryview(probe.end), Api.FETCH, version, link.addresses, more=EXTENSION)
        end = rewrite()
        return rewrite() if await link.addresses.settle() else end

    async def _probe(self, link: Relay, request: FlaggedFetch, probes: Sequence[PartitionAsked]) -> ProbeAnswer:
        """Ask the broker whether this client may read, who leads and where the logs end; nothing remote is read."""
        probe, version, number = ProbeAnswer(), request.head.version, link.next_id()
        started = time.monotonic()
        frame = request.probe(probes, number)
        await link.ask(Api.FETCH, version, frame, number, lambda source: probe.take(source, version))
        self._metrics.probe_s.add(time.monotonic() - started)
        return probe

    def _cause(
        self, plan: RemotePlan, probed: ProbedPartition | None, request: FlaggedFetch, *, is_zero: bool
    ) -> Refused | None:
        """Why a probed partition gets no location; ``None`` if there is no reason."""
        if probed is None:
            return Refused.NO_ANSWER
        fields = probed.fields
        if fields.error_code:
            is_of_probe = fields.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and not is_zero
            return Refused.OUT_OF_RANGE if is_of_probe else Refused.PROBE_ERROR
        if probed.has_tags or fields.log_start_offset < 0:
            return Refused.OTHER_HISTORY
        end = fields.last_stable_offset if request.fields.isolation_level else fields.high_watermark
        self._planner.told_end(plan, request.fields.isolation_level, end)
        offset = plan.asked.fetch_offset
        if not fields.log_start_offset <= offset < end:
            return Refused.OUT_OF_RANGE
        if self._refuses_below_log_start and plan.segment.base_offset < fields.log_start_offset:
            return Refused.BELOW_LOG_START
        return None

    async def _locate(self, request: FlaggedFetch, plan: RemotePlan, room: asyncio.Semaphore) -> _LocatedPart | Refused:
        """The location of a plan's segment, or why there is none."""
        is_committed = bool(request.fields.isolation_level)
        try:
            is_known, stored = self._catalogue.at_hand(plan.segment, with_transactions=is_committed)
            if not is_known:
                async with room:
                    stored = await self._catalogue.stored(plan.segment, with_transactions=is_committed)
        except (StorageError, CatalogError, FormatError):
            return Refused.STORE
        if stored is None:
            return Refused.FORMAT
        objects = stored.objects
        indexes = [(number, objects.indexes[number]) for number in _HANDED_OUT if number in objects.indexes]
        try:
            access: list[ObjectAccess] = []
            for name in (objects.log, *[place.name for _, place in indexes]):
                if (given := self._signer.at_hand(name)) is None:
                    given = await asyncio.to_thread(self._signer.access, name)
                access.append(given)
        except Exception as error:  # whatever a cloud's library raises; its text may hold what it signed
            if not isinstance(error, StorageError):
                self._metrics.failed[type(error).__name__] += 1
            return Refused.SIGNER
        key = plan.segment.segment_id, plan.last_offset, is_committed
        made = self._made.get(key)
        if made is None or made.stored is not stored or made.access != access:
            places = [
                IndexLocation(number, given.name, given.url, place.start, place.stop)
                for (number, place), given in zip(indexes, access[1:], strict=True)
            ]
            whole = _location(plan, access[0], places, stored.transactions if is_committed else None)
            made = self._made[key] = _MadeLocation(stored, access, whole, *encode_around_range(whole))
            if len(self._made) > _MADE:
                self._made.popitem(last=False)
        start = stored.index.lookup(plan.asked.fetch_offset).position
        return _LocatedPart(made, start, _stop(plan, stored.index, start))

    def _is_audited(self, link: Relay, request: FlaggedFetch, plan: RemotePlan, located: _LocatedPart) -> bool:
        """Hand the audit line over to be written; false if that fails, and so the location must not be given."""
        location = located.made.location
        line = LocationGiven(
            time_ms=int(self._clock() * 1000),
            client_id=request.head.client_id,
            principal=link.login.principal,
            mechanism=link.login.mechanism,
            peer=link.peer,
            topic=plan.topic,
            topic_id=plan.topic_id,
            partition=plan.asked.partition,
            fetch_offset=plan.asked.fetch_offset,
            segment_id=location.segment_id,
            first_offset=location.first_offset,
            last_offset=location.last_offset,
            first_byte=located.start,
            last_byte=located.stop - 1,
            object_name=location.object_location,
            expiry_ms=location.expiry_ms,
        )
        try:
            self._audit.write(line)
        except OSError:
            return False
        return True

    async def _fetch_plainly(
        self,
        link: Relay,
        request: FlaggedFetch,
        partitions: Sequence[PartitionAsked],
        more: MoreTopics,
        *,
        waits: bool = True,
    ) -> None:
        """Fetch these partitions without the flag, and send what comes, with what there is to add."""
        head = request.head

        async def deliver(source: FrameSource) -> None:
            await pass_fetch(source, link.to_client, Api.FETCH, head.version, link.addresses, more)

        frame = request.encode(partitions, head.correlation_id, waits=waits)
        await link.ask(
            Api.FETCH, head.version, frame, head.correlation_id, deliver, held_s=_held_s(request) if waits else 0.0
        )


_LONGEST_HOLD_S = 600.0
_PLACE_ALONE: Final = 1
"""PartitionMaxBytes of a request that wants to know a place, and no bytes yet."""
_HANDED_OUT = (OFFSET_INDEX, TRANSACTION_INDEX)


def _held_s(request: FlaggedFetch) -> float:
    """How long a broker may hold the answer, in seconds."""
    return float(min(max(request.fields.max_wait_ms, 0) / 1000, _LONGEST_HOLD_S))


_MADE: Final = 4096
"""Segments whose locations are kept encoded: about 3 KB each."""


@dataclass(slots=True)
class _MadeLocation:
    """A location without its range, as long as what it was made of stays.

    Args:
        before, behind: the range where it is encoded.
    """

    stored: StoredSegment
    access: list[ObjectAccess] = field(repr=False)
    location: RemoteLogSegmentLocation
    before: bytes = field(repr=False)
    behind: bytes = field(repr=False)


@dataclass(slots=True)
class _LocatedPart:
    """A location with its range."""

    made: _MadeLocation
    start: int
    stop: int

    def encoded(self) -> bytes:
        """The value of the partition's tag."""
        return b"".join((self.made.before, RANGE.pack(self.start, self.stop), self.made.behind))


def _location(
    plan: RemotePlan, log: ObjectAccess, indexes: list[IndexLocation], transactions: bytes | None
) -> RemoteLogSegmentLocation:
    segment = plan.segment
    return RemoteLogSegmentLocation(
        segment_id=segment.segment_id,
        first_offset=segment.base_offset,
        last_offset=plan.last_offset,
        size=segment.log_size,
        custom_metadata=segment.custom_metadata,
        object_location=log.name,
        signed_url=log.url,
        expiry_ms=log.expiry_ms,
        is_transaction_index_empty=segment.transaction_index_is_empty,
        leader_epochs=tuple(epochs_used(epochs_of(segment), segment.base_offset, plan.last_offset)),
        indexes=tuple(indexes),
        transaction_index=transactions,
    )


def _stop(plan: RemotePlan, index: OffsetIndex, start: int) -> int:
    """Where the bytes end that the request implies: by the offset at which it ends, or else by its bytes."""
    asked, segment = plan.asked, plan.segment
    wanted = plan.last_offset + 1
    if asked.stop_offset is not None:
        wanted = min(wanted, max(asked.stop_offset, asked.fetch_offset + 1))
    stop = index.end_below(wanted) if wanted <= segment.last_offset else None
    if asked.stop_offset is None and asked.partition_max_bytes > _PLACE_ALONE:
        first = index.end_below(asked.fetch_offset + 1) or segment.log_size  # the first batch comes whole
        end = index.end_of(max(start + asked.partition_max_bytes, first)) or segment.log_size
        stop = min(end, stop or segment.log_size)
    return stop or segment.log_size
