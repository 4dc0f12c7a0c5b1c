"""Read Kafka topics straight from tiered storage, record for record as a consumer would, with or without brokers.

``segreader.scan(location, topic=…)`` is the front door. Importing this package is light: Arrow and the rest load
when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "AmbiguousTopicError": "errors",
    "BrokerError": "errors",
    "CatalogError": "errors",
    "ClosedError": "errors",
    "CorruptBatchError": "errors",
    "CorruptIndexError": "errors",
    "CorruptRecordError": "errors",
    "FormatError": "errors",
    "LimitExceededError": "errors",
    "ObjectNotFoundError": "errors",
    "OffsetOutOfRangeError": "errors",
    "OptionError": "errors",
    "PlanError": "errors",
    "PositionError": "errors",
    "PositionFormatError": "errors",
    "PositionVersionError": "errors",
    "ForeignPositionError": "errors",
    "RecreatedTopicError": "errors",
    "DeletedPositionError": "errors",
    "DivergedPositionError": "errors",
    "SegreaderError": "errors",
    "StorageError": "errors",
    "TruncatedError": "errors",
    "TruncatedLogError": "errors",
    "SegmentGapError": "errors",
    "ManifestError": "errors",
    "DecryptionError": "errors",
    "UnknownLayoutError": "errors",
    "ByteRange": "ranges",
    "OffsetRange": "ranges",
    "TopicIdPartition": "segment",
    "IsolationLevel": "isolation",
    "AbortedTransactions": "isolation",
    "BatchReady": "format.scanner",
    "Decompressor": "format.compression",
    "Done": "format.scanner",
    "NeedData": "format.scanner",
    "Record": "format.batch",
    "SegmentScanner": "format.scanner",
    "Tail": "format.scanner",
    "iter_records": "format.records",
    "parse_offset_index": "format.index_files",
    "parse_transaction_index": "format.index_files",
    "TimestampType": "format.batch",
    "EndReason": "plan.split",
    "ReadEnd": "plan.split",
    "ReadPlan": "plan.split",
    "Split": "plan.split",
    "LivePart": "plan.live",
    "LivePlan": "plan.live",
    "ConsumerRecord": "read.records",
    "LiveScan": "live.scan",
    "Scan": "scans",
    "ScanMetrics": "read.metrics",
    "scan": "scans",
}

__all__ = [*sorted(_HOMES), "__version__"]

if TYPE_CHECKING:
    from segreader.scans import scan as scan


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'segreader' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"segreader.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
