"""The remote part of a live partition by the locations that the cluster tells, one for each segment.

What is told at planning is kept without its URLs: which offsets lie in which segment, and, where the cluster leaves
that to the reader, which transactions were aborted there, by the transaction indexes and one small Fetch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from segreader.broker.location import IndexLocation, RemoteLogSegmentLocation
from segreader.broker.location_codec import check_location
from segreader.broker.messages import FetchRequest
from segreader.errors import FormatError, StorageError
from segreader.format.transaction_index import AbortedTransaction, parse_transaction_index
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.plan.live import LivePart, LogMarks, ReadFrom, epochs_after
from segreader.ranges import ByteRange, OffsetRange
from segreader.read.broker_range import BrokerRange
from segreader.read.cluster import Cluster
from segreader.read.live_metrics import LiveMetrics
from segreader.read.live_store import aborted_across
from segreader.read.located import LARGEST_INDEX, TRANSACTION_INDEX, LocatedUrls, now_ms
from segreader.storage.base import ObjectStore

_FORMATS = FetchRequest(()).storage_formats
_MOST_SEGMENTS = 1 << 20


@dataclass(frozen=True, slots=True)
class _Located:
    """One segment as it was told, and the offsets wanted of it. ``aborted``: whether the answer lists them."""

    offsets: OffsetRange
    location: RemoteLogSegmentLocation
    tells_aborted: bool


def plan_locations(
    cluster: Cluster,
    whole: LivePart,
    marks: LogMarks,
    located: tuple[LocatedUrls, ObjectStore],
    metrics: LiveMetrics,
    *,
    max_batch_bytes: int,
) -> list[LivePart]:
    """The remote offsets of one partition as parts by location; the broker's where it tells no location.

    Args:
        whole: all of them, as one part.
    """
    found: list[_Located] = []
    next_offset = whole.offsets.start
    with BrokerRange(cluster, whole, wants_locations=True, max_batch_bytes=max_batch_bytes) as asked:
        while next_offset < whole.stop and len(found) < _MOST_SEGMENTS:
            answer = asked.next()
            if answer is None:
                next_offset = whole.stop
                break
            location = answer.location
            if location is None:
                break  # a plain broker
            reason = check_location(location, answer.answer, next_offset, _FORMATS, now_ms())
            if reason is not None or location.signed_url is None:
                metrics.locations_rejected += 1
                break
            stop = min(location.last_offset + 1, whole.stop)
            found.append(_Located(OffsetRange(next_offset, stop), location, answer.aborted is not None))
            asked.move(stop)
            next_offset = stop
    is_committed = whole.isolation_level is IsolationLevel.READ_COMMITTED
    aborted: AbortedTransactions | None = None
    if is_committed and not all(one.tells_aborted for one in found):
        aborted = _read_aborted(cluster, whole, marks, found, located)
        if aborted is None:  # indexes that would say it cannot be read
            told = next((at for at, one in enumerate(found) if not one.tells_aborted), len(found))
            next_offset = found[told].offsets.start
            found = found[:told]
    parts = [_part(whole, one, aborted) for one in found]
    if next_offset < whole.stop:
        rest = OffsetRange(next_offset, whole.stop)
        read_from = ReadFrom.LOCATION if found else ReadFrom.BROKER
        parts.append(
            replace(
                whole,
                offsets=rest,
                read_from=read_from,
                epochs=epochs_after(whole.epochs, rest.start),
                position_epoch=_epoch_before(whole, rest.start),
            )
        )
    return parts


def _part(whole: LivePart, one: _Located, aborted: AbortedTransactions | None) -> LivePart:
    start, stop = one.offsets.start, one.offsets.stop or one.offsets.start
    mine = None if aborted is None or one.tells_aborted else aborted.within(start, stop)
    return replace(
        whole,
        offsets=one.offsets,
        read_from=ReadFrom.LOCATION,
        epochs=epochs_after(whole.epochs, start),
        position_epoch=_epoch_before(whole, start),
        aborted=mine,
        segment_id=one.location.segment_id,
        size=(one.location.stop or one.location.size) - (one.location.start or 0),
    )


def _epoch_before(whole: LivePart, offset: int) -> int:
    return max((epoch for epoch, start in whole.epochs if start < offset), default=whole.position_epoch)


def _read_aborted(
    cluster: Cluster,
    whole: LivePart,
    marks: LogMarks,
    found: list[_Located],
    located: tuple[LocatedUrls, ObjectStore],
) -> AbortedTransactions | None:
    """The aborted transactions of all segments together, by their transaction indexes and by the broker for those whose
    marker lies behind the last one; ``None`` if an index cannot be had."""
    rows: list[AbortedTransaction] = []
    for one in found:
        if one.location.is_transaction_index_empty:
            continue
        index = next((each for each in one.location.indexes if each.index_type == TRANSACTION_INDEX), None)
        if index is None or index.signed_url is None:
            return None
        try:
            rows += _read_index(whole, one.location, index, index.signed_url, located)
        except (StorageError, FormatError):
            return None
    reach = found[-1].location.last_offset + 1
    rows += aborted_across(cluster, whole.partition, max(found[0].offsets.start, min(reach, marks.end - 1)))
    return AbortedTransactions(rows)


def _read_index(
    whole: LivePart,
    location: RemoteLogSegmentLocation,
    index: IndexLocation,
    url: str,
    located: tuple[LocatedUrls, ObjectStore],
) -> list[AbortedTransaction]:
    urls, store = located
    name = urls.put_index(whole.partition, location, url)
    stop = store.size(name) if index.stop is None else index.stop
    if stop - index.start > LARGEST_INDEX:
        raise StorageError("a transaction index is too large", source=store.url(name), found=stop - index.start)
    data = store.read_ranges(name, [ByteRange(index.start, stop)])[0] if stop > index.start else b""
    rows = parse_transaction_index(data, location.first_offset)
    return [row for row in rows if location.first_offset <= row.last_offset <= location.last_offset]
