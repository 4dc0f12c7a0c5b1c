"""Segments whose place a broker or a gateway told in a Fetch answer: as splits of a store whose URLs come from there.

The URLs are secrets of this process. They are in no plan; a reader of a part requests its location again, unless the
plan was made here a moment ago.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping

from segreader.broker.messages import RemoteLogSegmentLocation
from segreader.errors import LocationExpiredError, ObjectNotFoundError
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.live.broker_range import FetchedAnswer
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectInfo
from segreader.storage.http.settings import HttpSettings
from segreader.storage.http.store import HttpStore
from segreader.storage.signed_url import SignedUrl

TOLD_FOR_MS = 60_000
"""Reuse a location obtained while planning for at most this long."""

_MOST_TOLD = 4096

AskAgain = Callable[[], RemoteLogSegmentLocation | None]
"""Asks the cluster for a location of the same segment; ``None`` if it gives none."""

TRANSACTION_INDEX = 3
"""Of ``IndexLocation.index_type``."""

LARGEST_INDEX = 256 << 20
"""Bytes of an index that are read at most: the size of it comes from outside."""


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
        self._urls[name] = _url_of(location)
        self._renewals[name] = ask_again
        self._segments[name] = location.segment_id
        return name

    def put_index(self, partition: TopicIdPartition, location: RemoteLogSegmentLocation, url: str) -> str:
        """Take the URL of a segment's transaction index; gives its name."""
        name = name_of(partition, location).removesuffix(".log") + ".txnindex"
        self._urls[name] = SignedUrl(url, None if location.expiry_ms is None else location.expiry_ms / 1000)
        return name

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
        self._urls[name] = _url_of(location)
        return self._urls[name]

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The segments that are being read."""
        return (ObjectInfo(name, -1) for name in sorted(self._urls) if name.startswith(prefix))


def _url_of(location: RemoteLogSegmentLocation) -> SignedUrl:
    assert location.signed_url is not None
    return SignedUrl(location.signed_url, None if location.expiry_ms is None else location.expiry_ms / 1000)


def name_of(partition: TopicIdPartition, location: RemoteLogSegmentLocation) -> str:
    """How a located segment's log is called here: as Kafka's own plugin for local directories calls it."""
    return f"{partition}/{location.first_offset:020d}-{location.segment_id}.log"


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
    settings = HttpSettings(ca_file=options.ca_file, verify=options.verify is not False, policy=address_policy(options))
    urls = UrlCache(on_refresh)
    return urls, HttpStore(urls, settings=settings)


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
