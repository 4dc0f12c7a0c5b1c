"""The remote part of a live partition by the locations that the cluster returns, one for each segment, and their URLs.

Plans keep a location without its URL: which offsets are in which segment and, where the cluster leaves that to the
reader, which transactions were aborted there, by the transaction indexes and one small Fetch. URLs are secrets of this
process: a reader of a part requests its location again, unless the plan was made here a moment ago.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from segreader.broker.messages import (
    LATEST,
    OFFSET_INDEX,
    TRANSACTION_INDEX,
    FetchPartition,
    IndexLocation,
    OffsetWanted,
    RemoteLogSegmentLocation,
)
from segreader.broker.rules.fallback import RemoteReads
from segreader.errors import BrokerError, FormatError, LocationExpiredError, ObjectNotFoundError, StorageError
from segreader.evidence.findings import Findings
from segreader.evidence.transaction_checks import check_transaction_index, settle_transaction_index
from segreader.format.index_files import AbortedTransaction
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.live.cluster import Cluster
from segreader.live.fetching import NOT_OF_THE_DATA, BrokerRange, FetchedAnswer, aborted_at_either
from segreader.live.index_ends import end_in_index
from segreader.plan.live import LivePart, LogMarks, ReadFrom, narrowed, uncovered
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.read.metrics import LiveMetrics
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectInfo, ObjectStore, read_each
from segreader.storage.http.settings import HttpSettings
from segreader.storage.http.store import HttpStore
from segreader.storage.signed_url import SignedUrl
from segreader.values import dataclass

TOLD_FOR_MS = 60_000
"""Reuse a location obtained while planning for at most this long."""

_MOST_TOLD = 4096

_PARTITIONS_AT_ONCE = 250
_LOCATIONS_AT_ONCE = 500
_SEGMENTS_AT_ONCE = 100
"""What a gateway puts into an answer at most, and no more of one partition than its URLs live for."""

AskAgain = Callable[[], RemoteLogSegmentLocation | None]
"""Asks the cluster for a location of the same segment; ``None`` if it gives none."""

_KINDS = {OFFSET_INDEX: "index", TRANSACTION_INDEX: "txnindex"}

_WORTH_AN_INDEX = 128 << 10
"""Bytes of a log that are read without looking up where the last ones wanted end."""

LARGEST_INDEX = 256 << 20
"""Bytes of an index that are read at most: the size of it comes from outside."""

_MOST_SEGMENTS = 1 << 20
_MOST_STEPS = 16


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
    located: tuple[UrlCache, ObjectStore],
    metrics: LiveMetrics,
    *,
    max_batch_bytes: int,
    answers: Sequence[FetchedAnswer] = (),
) -> list[LivePart]:
    """The remote offsets of one partition as parts by location; the broker's if it returns no location.

    Args:
        whole: all of them, as one part.
        answers: what ``locate_remote`` was answered for the partition.
    """
    found: list[_Located] = []
    is_unreadable = False
    try:
        rest = _ask(cluster, whole, located[0], metrics, max_batch_bytes, found, answers)
    except BrokerError as error:  # a lost object is met again, and named, by the read, after the records before it
        if isinstance(error, NOT_OF_THE_DATA):
            raise
        rest = (found[-1].offsets.stop if found else None) or whole.offsets.start
        is_unreadable = True
    is_committed = whole.isolation_level is IsolationLevel.READ_COMMITTED
    parts: list[LivePart] = []
    for run in _runs(found):
        aborted: AbortedTransactions | None = None
        is_known = True
        if is_committed and not all(one.tells_aborted for one in run):
            aborted = _read_aborted(cluster, whole, marks, run, located)
            is_known = aborted is not None
        for one in run:
            parts.append(_part(whole, one, aborted) if is_known or one.tells_aborted else narrowed(whole, one.offsets))
    covered = [part.offsets for part in parts]
    parts += [narrowed(whole, piece) for piece in uncovered(OffsetRange(whole.offsets.start, rest), covered)]
    if rest < whole.stop:
        last = narrowed(whole, OffsetRange(rest, whole.stop))
        parts.append(replace(last, read_from=ReadFrom.LOCATION) if found or is_unreadable else last)
    return sorted(parts, key=lambda part: part.offsets.start)


def _ask(
    cluster: Cluster,
    whole: LivePart,
    urls: UrlCache,
    metrics: LiveMetrics,
    max_batch_bytes: int,
    found: list[_Located],
    answers: Sequence[FetchedAnswer],
) -> int:
    """Put the segments that the cluster names into ``found``; the offset from which on it was not asked any more.

    If it returns none, or a wrong one, it is asked again behind one record batch; but not for long, and not if it
    knows nothing of locations.
    """
    at, steps = whole.offsets.start, 0
    for one in answers:
        if one.offset != at or one.location is None or not _is_good(one.location, one, metrics):
            break
        at = _take(whole, one, one.location, urls, found)
    if at >= whole.stop:
        return whole.stop
    with BrokerRange(
        cluster, whole, at, locations=RemoteReads(), max_bytes=1, max_batch_bytes=max_batch_bytes
    ) as asked:
        while at < whole.stop and len(found) < _MOST_SEGMENTS:
            before = cluster.metrics.locations_asked
            answer = asked.next()
            if answer is None:
                return whole.stop
            location = answer.location
            if location is not None and _is_good(location, answer, metrics):
                at, steps = _take(whole, answer, location, urls, found), 0
                asked.move(at)
                continue
            if location is None and cluster.metrics.locations_asked == before:
                return at  # it was not even asked: it knows nothing of them
            steps += 1
            if steps > _MOST_STEPS:
                return at
            if location is not None:
                with BrokerRange(cluster, whole, at, max_bytes=1, max_batch_bytes=max_batch_bytes) as plain:
                    answer = plain.next()
                if answer is None:
                    return whole.stop
                asked.move(answer.next_offset)
            at = answer.next_offset
    return min(at, whole.stop)  # the last answer may reach beyond


def _take(
    whole: LivePart,
    answer: FetchedAnswer,
    location: RemoteLogSegmentLocation,
    urls: UrlCache,
    found: list[_Located],
) -> int:
    """Add the segment of a good location to ``found``; gives the first offset behind it."""
    stop = min(location.last_offset + 1, whole.stop)
    found.append(_Located(OffsetRange(answer.offset, stop), location, answer.aborted is not None))
    urls.told(whole.partition, answer, now_ms())
    return stop


def locate_remote(
    cluster: Cluster, wanted: Sequence[FetchPartition], isolation_level: IsolationLevel
) -> dict[int, list[FetchedAnswer]]:
    """The locations of many partitions of a topic, in few round trips: as many segments in each as an answer takes.

    What is not located so, for whatever reason, is left to be asked for one by one.

    Args:
        wanted: the first offset and the end of each, remote ones.

    Returns:
        By partition, from the first offset on, each where the one before ends; unchecked.
    """
    found: dict[int, list[FetchedAnswer]] = {}
    is_committed = isolation_level is IsolationLevel.READ_COMMITTED
    growing = [one for one in wanted if one.stop_offset is not None and one.fetch_offset < one.stop_offset]
    while growing:
        following = []
        for at in range(0, len(growing), _PARTITIONS_AT_ONCE):
            some = {one.partition: one for one in growing[at : at + _PARTITIONS_AT_ONCE]}
            most = max(1, min(_SEGMENTS_AT_ONCE, _LOCATIONS_AT_ONCE // len(some)))
            for answer in cluster.locate(list(some.values()), isolation_level, most_segments=most):
                asked = some[answer.partition]
                offset, stop = asked.fetch_offset, asked.stop_offset or 0
                aborted = answer.aborted
                for location in (answer.location, *answer.following):
                    if location is None or not location.first_offset <= offset <= location.last_offset:
                        break
                    data = memoryview(b"")
                    fetched = FetchedAnswer(offset, offset, data, aborted, location, answer, stop)
                    found.setdefault(answer.partition, []).append(fetched)
                    offset, aborted = location.last_offset + 1, None
                    if answer.aborted is not None and is_committed:
                        break  # each segment has a list of its own
                if asked.fetch_offset < offset < stop:
                    following.append(replace(asked, fetch_offset=offset))
        growing = following
    return found


def _is_good(location: RemoteLogSegmentLocation, answer: FetchedAnswer, metrics: LiveMetrics) -> bool:
    is_good = answer.refusal(now_ms()) is None and location.signed_url is not None
    metrics.locations_rejected += not is_good
    return is_good


def _runs(found: list[_Located]) -> list[list[_Located]]:
    """The segments that follow each other without a gap: an index after a gap says nothing of what is before it."""
    runs: list[list[_Located]] = []
    for one in found:
        if runs and runs[-1][-1].offsets.stop == one.offsets.start:
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs


def _part(whole: LivePart, one: _Located, aborted: AbortedTransactions | None) -> LivePart:
    start, stop = one.offsets.start, one.offsets.stop or one.offsets.start
    return replace(
        narrowed(whole, one.offsets),
        read_from=ReadFrom.LOCATION,
        aborted=None if aborted is None or one.tells_aborted else aborted.within(start, stop),
        segment_id=one.location.segment_id,
        size=(one.location.stop or one.location.size) - (one.location.start or 0),
    )


def _read_aborted(
    cluster: Cluster,
    whole: LivePart,
    marks: LogMarks,
    found: list[_Located],
    located: tuple[UrlCache, ObjectStore],
) -> AbortedTransactions | None:
    """The aborted transactions of a run of segments, by their transaction indexes and by the broker for those whose
    marker is after the last one; ``None`` if an index cannot be had."""
    try:
        lists = read_each(lambda one: _read_index(whole, one.location, located), found)
    except (StorageError, FormatError):
        return None
    rows = [row for some in lists for row in some]
    reach = found[-1].location.last_offset + 1
    if any(row.last_stable_offset >= (found[-1].offsets.stop or reach) for row in rows):
        return AbortedTransactions(rows)  # all of it is decided by then
    if reach >= marks.end and _end_of_log(cluster, whole.partition) <= reach:
        return AbortedTransactions(rows)  # nothing follows, no marker either
    first, behind = found[0].offsets.start, min(reach, marks.end - 1)
    try:
        rows += aborted_at_either(cluster, whole.partition, max(first, behind), max(first, behind - 1), rows)
    except BrokerError as error:
        if isinstance(error, NOT_OF_THE_DATA):
            raise
        return None
    return AbortedTransactions(rows)


def _end_of_log(cluster: Cluster, partition: TopicIdPartition) -> int:
    """The leader's high watermark: no transaction that began before the planned end has a marker from there on."""
    wanted = [OffsetWanted(partition.topic, partition.partition, LATEST)]
    (latest,) = cluster.list_offsets(wanted, IsolationLevel.READ_UNCOMMITTED)
    return latest.offset


def _read_index(
    whole: LivePart, location: RemoteLogSegmentLocation, located: tuple[UrlCache, ObjectStore]
) -> list[AbortedTransaction]:
    """The rows of a segment's transaction index: as they came with the location, or else from the store.

    Raises:
        StorageError, FormatError: it cannot be had, or cannot be.
    """
    if location.is_transaction_index_empty:
        return []
    urls, store = located
    data, name = location.transaction_index, name_of(whole.partition, location, _KINDS[TRANSACTION_INDEX])
    if data is None:
        if (placed := urls.put_index(whole.partition, location, TRANSACTION_INDEX)) is None:
            raise StorageError("a location names no transaction index", source=name)
        index = placed[1]
        stop = store.size(name) if index.stop is None else index.stop
        if stop - index.start > LARGEST_INDEX:
            raise StorageError("a transaction index is too large", source=store.url(name), found=stop - index.start)
        data = store.read_ranges(name, [ByteRange(index.start, stop)])[0] if stop > index.start else b""
    found = Findings(store, whole.partition)
    rows = check_transaction_index(found, data, name, location.first_offset, None)
    settle_transaction_index(found)
    return [row for row in rows if location.first_offset <= row.last_offset <= location.last_offset]


def now_ms() -> int:
    """The time by which URLs expire: ms since 1970 UTC."""
    return time.time_ns() // 1_000_000


class UrlCache:
    """The URLs of the segments that are being read, by name, and how each is renewed. Called from many threads."""

    def __init__(self, on_refresh: Callable[[], None] = lambda: None) -> None:
        self._urls: dict[str, SignedUrl] = {}
        self._renewals: dict[str, AskAgain] = {}
        self._segments: dict[str, str] = {}
        self._told: OrderedDict[tuple[TopicIdPartition, int], tuple[FetchedAnswer, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._on_refresh = on_refresh

    def put(self, partition: TopicIdPartition, location: RemoteLogSegmentLocation, ask_again: AskAgain) -> str:
        """Take a location with a signed URL; gives the name of its log."""
        name = name_of(partition, location)
        self._urls[name] = _url_of(location.signed_url, location)
        self._renewals[name] = ask_again
        self._segments[name] = location.segment_id
        return name

    def put_index(
        self, partition: TopicIdPartition, location: RemoteLogSegmentLocation, index_type: int
    ) -> tuple[str, IndexLocation] | None:
        """Take an index of a segment by its URL; gives its name, too. ``None`` if the location has none."""
        index = next((one for one in location.indexes if one.index_type == index_type), None)
        if index is None or index.signed_url is None:
            return None
        name = name_of(partition, location, _KINDS[index_type])
        self._urls[name] = _url_of(index.signed_url, location)
        return name, index

    def told(self, partition: TopicIdPartition, answer: FetchedAnswer, at_ms: int) -> None:
        """Keep an answer with a location for who reads it in a moment."""
        with self._lock:
            self._told[partition, answer.offset] = (answer, at_ms)
            if len(self._told) > _MOST_TOLD:
                self._told.popitem(last=False)

    def recall(self, partition: TopicIdPartition, offset: int, at_ms: int) -> FetchedAnswer | None:
        """The answer for this offset, if it came a moment ago; it is given once."""
        with self._lock:
            answer, told_ms = self._told.pop((partition, offset), (None, 0))
        return answer if 0 <= at_ms - told_ms <= TOLD_FOR_MS else None

    def url_for(self, name: str) -> SignedUrl:
        """The URL as it is known now."""
        try:
            return self._urls[name]
        except KeyError:
            raise ObjectNotFoundError("no location of this segment is known here", source=name) from None

    def refresh(self, name: str) -> SignedUrl:
        """Another URL for the same segment, asked of the cluster.

        Raises:
            LocationExpiredError: it gives none, or one of another segment.
        """
        with self._lock:  # a partition's fetcher is used by one thread at a time
            self._on_refresh()
            location = self._renewals[name]() if name in self._renewals else None
        if location is None or location.signed_url is None or location.segment_id != self._segments[name]:
            raise LocationExpiredError(
                "the cluster gives no other URL for this segment",
                source=str(self._urls.get(name, name)),
                hint="Read these offsets from the broker",
            )
        self._urls[name] = _url_of(location.signed_url, location)
        return self._urls[name]

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The segments that are being read."""
        return (ObjectInfo(name, -1) for name in sorted(self._urls) if name.startswith(prefix))


def _url_of(url: str | None, location: RemoteLogSegmentLocation) -> SignedUrl:
    assert url is not None
    return SignedUrl(url, None if location.expiry_ms is None else location.expiry_ms / 1000)


def name_of(partition: TopicIdPartition, location: RemoteLogSegmentLocation, kind: str = "log") -> str:
    """How a located segment's log or index is called here: as Kafka's own plugin for local directories calls it."""
    return f"{partition}/{location.first_offset:020d}-{location.segment_id}.{kind}"


def open_located(
    storage_options: Mapping[str, object] | None, on_refresh: Callable[[], None] = lambda: None
) -> tuple[UrlCache, HttpStore]:
    """A store for URLs from outside: https only, hosts of the clouds and those of ``allow_hosts``, public addresses.

    Args:
        storage_options: what is allowed besides, and which certificates are trusted; see ``docs/reference/options.md``.

    Raises:
        OptionError: an option is unknown.
    """
    from segreader.storage.options import address_policy, find_storage_options

    options = find_storage_options("https://", storage_options)
    settings = HttpSettings(policy=address_policy(options)).with_options(options)
    urls = UrlCache(on_refresh)
    return urls, HttpStore(urls, settings=settings)


def with_end(
    partition: TopicIdPartition,
    location: RemoteLogSegmentLocation,
    stop: int,
    located: tuple[UrlCache, ObjectStore],
) -> RemoteLogSegmentLocation:
    """The location with the end of the bytes that hold the offsets below ``stop``, by its offset index; as it is if
    that cannot be had, or if little is behind them."""
    named = location.size if location.stop is None else location.stop
    if stop > location.last_offset or named - (location.start or 0) <= _WORTH_AN_INDEX:
        return location
    urls, store = located
    if (placed := urls.put_index(partition, location, OFFSET_INDEX)) is None:
        return location
    try:
        end = end_in_index(store, *placed, location, stop)
    except (StorageError, FormatError):
        return location
    return replace(location, stop=end) if end is not None and (location.start or 0) < end < named else location


def located_split(
    partition: TopicIdPartition,
    location: RemoteLogSegmentLocation,
    name: str,
    offsets: OffsetRange,
    isolation_level: IsolationLevel,
    epochs: tuple[tuple[int, int], ...],
    aborted: AbortedTransactions | None,
    *,
    to_the_end: bool = False,
) -> Split:
    """What a reader takes: the bytes named by the location, and the offsets wanted of them.

    Args:
        epochs: of the live log; those of the location are used where there are none.
        to_the_end: read on behind ``location.stop``, because a batch goes on there.
    """
    stop = location.size if location.stop is None or to_the_end else location.stop
    return Split(
        partition=partition,
        log=name,
        log_size=location.size,
        positions=ByteRange(location.start or 0, stop),
        offsets=offsets,
        isolation_level=isolation_level,
        aborted=AbortedTransactions() if aborted is None else aborted,
        base_offset=location.first_offset,
        epochs=epochs or location.leader_epochs,
        stop_of_part=location.last_offset + 1,
        first_bound=offsets.start if location.start else None,  # or records before it would be lost without a word
    )
