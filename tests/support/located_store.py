"""Segments behind signed URLs, without a network: what a location names, and the faults of stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence

from fake_cluster import Locate, ServedLog, ServedSegment

from segreader.broker.messages import IndexLocation, RemoteLogSegmentLocation
from segreader.errors import ShortReadError
from segreader.live.locations import UrlCache
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo

CANARY = "canary-signature"
HOST = "https://bucket.s3.amazonaws.com"
NEVER = 1 << 42


def url_of(segment: ServedSegment, kind: str = "log", count: int = 0) -> str:
    return f"{HOST}/{segment.segment_id}.{kind}?X-Amz-Signature={CANARY}{count}"


def locations(*, with_index: bool = False, with_rows: bool = False, expiry_ms: int = NEVER) -> Locate:
    """Good locations, each with another signature.

    Args:
        with_index, with_rows: of the transaction index its location, or its bytes.
    """
    given = 0

    def locate(segment: ServedSegment, at: int, last: int) -> RemoteLogSegmentLocation | None:
        nonlocal given
        if not segment.batches:
            return None  # the cleaner emptied it
        given += 1
        start = 0
        for batch in segment.batches:
            if batch.stop > at or batch is segment.batches[-1]:
                break
            start += len(batch.data)
        indexes: tuple[IndexLocation, ...] = ()
        if with_index and segment.transaction_index:
            indexes = (IndexLocation(3, None, url_of(segment, "txnindex"), 0, None),)
        if segment.offset_index:
            indexes += (IndexLocation(0, None, url_of(segment, "index"), 0, None),)
        return RemoteLogSegmentLocation(
            segment.segment_id,
            segment.base_offset,
            last,
            len(segment.data),
            start=start,
            signed_url=url_of(segment, count=given),
            expiry_ms=expiry_ms,
            is_transaction_index_empty=not segment.transaction_index,
            indexes=indexes,
            transaction_index=segment.transaction_index if with_rows and segment.transaction_index else None,
        )

    return locate


class LocatedStore:
    """What URLs lead to.

    Args:
        urls: gives the URL of each name.
        logs: whose segments lie there.
        fault: called before each read with name and URL; it may raise, or give other bytes.
    """

    def __init__(
        self,
        urls: UrlCache,
        logs: Sequence[ServedLog],
        fault: Callable[[str, str], bytes | None] = lambda name, url: None,
    ) -> None:
        self._urls, self._fault = urls, fault
        self._objects = {
            f"{HOST}/{segment.segment_id}.{kind}": data
            for log in logs
            for segment in log.segments
            for kind, data in (
                ("log", segment.data),
                ("txnindex", segment.transaction_index),
                ("index", segment.offset_index),
            )
        }
        self.reads: list[str] = []
        self.fetched: Counter[str] = Counter()
        """Bytes, by the end of the name."""

    def url(self, name: str) -> str:
        return str(self._urls.url_for(name))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._urls.names(prefix)

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._urls.names(prefix)

    def size(self, name: str) -> int:
        return len(self._get(name))

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        for wanted in ranges:
            self._count(name, wanted.stop - wanted.start)
        return [self._get(name)[wanted.start : wanted.stop] for wanted in ranges]

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        self._count(name, len(buffer))
        buffer[:] = self._get(name)[start : start + len(buffer)]

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        data = self._get(name)
        self._count(name, wanted.stop - wanted.start)
        if expected_size not in (None, len(data)):
            raise ShortReadError("another size", source=self.url(name))
        half = (wanted.start + wanted.stop + 1) // 2
        yield from (memoryview(data)[a:b] for a, b in ((wanted.start, half), (half, wanted.stop)) if a < b)

    def close(self) -> None:
        pass

    def _count(self, name: str, size: int) -> None:
        self.fetched[name.rpartition(".")[2]] += size

    def _get(self, name: str) -> bytes:
        self.reads.append(name)
        url = self._urls.url_for(name).reveal()
        other = self._fault(name, url)
        return self._objects[url.partition("?")[0]] if other is None else other
