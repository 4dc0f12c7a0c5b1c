"""Where one offset of a live partition is read: which segment and bytes, or the broker, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace

from segreader.broker.location import check_location
from segreader.broker.messages import FetchRequest
from segreader.broker.rules.fallback import RemoteReads
from segreader.errors import OffsetOutOfRangeError
from segreader.live.broker_range import BrokerRange
from segreader.live.cluster import Cluster
from segreader.live.planner import plan_live
from segreader.live.url_cache import now_ms
from segreader.plan.live import LivePart, LivePlan, ReadFrom
from segreader.plan.request import Bounds, Request
from segreader.read.options import ReadOptions
from segreader.storage.signed_url import SignedUrl
from segreader.stored.source import Source


@dataclass(frozen=True, slots=True)
class LocatedOffset:
    """The place of an offset.

    Args:
        read_from: where a read with the same options would take it from.
        log_start, local_start, last_tiered, end: the leader's marks.
        leader_epoch: that wrote it.
        segment: name of its log in the store, or its URL without the query.
        segment_id: of the remote segment.
        first_offset, last_offset: of the segment, if they are known; the last one inclusive.
        start, stop: bytes of it that a read of the one offset would fetch.
        size: bytes of the segment.
        note: what is remarkable.
    """

    topic: str
    partition: int
    offset: int
    read_from: ReadFrom
    log_start: int
    local_start: int | None
    last_tiered: int | None
    end: int
    leader_epoch: int | None = None
    segment: str | None = None
    segment_id: str | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    start: int | None = None
    stop: int | None = None
    size: int | None = None
    note: str | None = None


def locate_offset(
    cluster: Cluster, request: Request, partition: int, offset: int, *, source: Source | None = None
) -> LocatedOffset:
    """Where a read of this offset would take it from. No object is read but indexes of a store that is given.

    Args:
        request: topic, isolation level and preference.
        source: the remote tier; without it the cluster is asked for a location.

    Raises:
        OffsetOutOfRangeError: the offset is deleted, or not there yet.
        as ``plan_live``.
    """
    bounds = Bounds(offset, offset + 1)
    wanted = replace(request, partitions=(partition,), bounds=bounds)
    plan = plan_live(cluster, wanted, ReadOptions(split_bytes=1), source=source)
    if not plan.parts:
        (told,) = plan.partitions_asked
        raise OffsetOutOfRangeError(
            "this offset does not exist yet", source=cluster.shown, offset=offset, found=f"an end at {told.marks.end}"
        )
    found = _of_plan(plan, plan.parts[0], offset)
    (told,) = plan.partitions_asked
    is_remote = told.seam.seam > offset
    if found.read_from is ReadFrom.BROKER and is_remote:
        return _by_location(cluster, plan.parts[0], found)
    return found


def _of_plan(plan: LivePlan, part: LivePart, offset: int) -> LocatedOffset:
    (told,) = plan.partitions_asked
    marks = told.marks
    found = LocatedOffset(
        part.partition.topic,
        part.partition.partition,
        offset,
        part.read_from,
        marks.log_start,
        marks.local_start,
        marks.last_tiered,
        marks.end,
        part.epochs[0][0] if part.epochs else None,
        note="; ".join(plan.notes) or None,
    )
    if not part.splits:
        return found
    split = part.splits[0]
    return replace(
        found,
        segment=split.log,
        first_offset=split.base_offset,
        start=split.positions.start,
        stop=part.splits[-1].positions.stop,
        size=split.log_size,
    )


def _by_location(cluster: Cluster, part: LivePart, found: LocatedOffset) -> LocatedOffset:
    with BrokerRange(cluster, part, locations=RemoteReads(), max_bytes=1) as asked:
        answer = asked.next()
    if answer is None or answer.location is None:
        return replace(found, note="the cluster gives no location: its broker would read the store itself")
    location = answer.location
    reason = check_location(location, answer.answer, answer.offset, FetchRequest(()).storage_formats, now_ms())
    if reason is not None:
        return replace(found, note=f"the cluster's location would be dropped: {reason}")
    shown = location.object_location
    if location.signed_url is not None:
        shown = str(SignedUrl(location.signed_url))
    return replace(
        found,
        read_from=ReadFrom.LOCATION,
        segment=shown,
        segment_id=location.segment_id,
        first_offset=location.first_offset,
        last_offset=location.last_offset,
        start=location.start or 0,
        stop=location.size if location.stop is None else location.stop,
        size=location.size,
    )
