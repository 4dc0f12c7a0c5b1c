"""What a read of live data cost, by where the bytes came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from segreader.plan.live import ReadFrom
from segreader.read.metrics import ScanMetrics


@dataclass(slots=True)
class SourceMetrics:
    """Of one source.

    Args:
        parts: of the plan that were read from it; a part that fell back counts for both.
        records: delivered.
        bytes_read: stored bytes of the batches that were looked at.
        requests: pieces of objects, or Fetch answers with records.
    """

    parts: int = 0
    records: int = 0
    bytes_read: int = 0
    requests: int = 0


@dataclass(slots=True)
class LiveMetrics(ScanMetrics):
    """Counters of one scan of live data; those of ``ScanMetrics`` are of all sources together.

    Args:
        sources: by ``store``, ``location`` and ``broker``.
        locations_asked, locations_given, locations_rejected: of the location extension, planning included.
        url_refreshes: URLs that were asked for again.
        fallbacks: how often the broker's records were taken in place of the object store's, by cause.
        broker_requests: by the API's name, planning included.
    """

    sources: dict[str, SourceMetrics] = field(default_factory=lambda: {one.value: SourceMetrics() for one in ReadFrom})
    locations_asked: int = 0
    locations_given: int = 0
    locations_rejected: int = 0
    url_refreshes: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    broker_requests: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, int]:
        """What is counted besides ``ScanMetrics``, by flat names: ``broker_records``, ``fallbacks_expired`` …"""
        rows = {
            f"{source}_{name}": getattr(counts, name)
            for source, counts in self.sources.items()
            for name in ("parts", "records", "bytes_read", "requests")
        }
        rows["broker_fetches"] = rows.pop("broker_requests")
        for name in ("locations_asked", "locations_given", "locations_rejected", "url_refreshes"):
            rows[name] = getattr(self, name)
        rows |= {f"fallbacks_{cause}": count for cause, count in sorted(self.fallbacks.items())}
        return rows | {f"broker_requests_{api}": count for api, count in sorted(self.broker_requests.items())}

    def counted(self, source: ReadFrom, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The record batches, with what they cost counted for their source."""
        mine = self.sources[source.value]
        while True:
            before = (self.records, self.bytes_read, self.requests)
            try:
                batch = next(batches, None)
            finally:
                mine.records += self.records - before[0]
                mine.bytes_read += self.bytes_read - before[1]
                mine.requests += self.requests - before[2]
            if batch is None:
                return
            yield batch
