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
    "SchemaAccessError": "errors",
    "SchemaNotFoundError": "errors",
    "SchemaRegistryError": "errors",
    "SegmentGapError": "errors",
    "ManifestError": "errors",
    "DecryptionError": "errors",
    "UndecodableValueError": "errors",
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
    from segreader.errors import AmbiguousTopicError as AmbiguousTopicError
    from segreader.errors import BrokerError as BrokerError
    from segreader.errors import CatalogError as CatalogError
    from segreader.errors import ClosedError as ClosedError
    from segreader.errors import CorruptBatchError as CorruptBatchError
    from segreader.errors import CorruptIndexError as CorruptIndexError
    from segreader.errors import CorruptRecordError as CorruptRecordError
    from segreader.errors import DecryptionError as DecryptionError
    from segreader.errors import DeletedPositionError as DeletedPositionError
    from segreader.errors import DivergedPositionError as DivergedPositionError
    from segreader.errors import ForeignPositionError as ForeignPositionError
    from segreader.errors import FormatError as FormatError
    from segreader.errors import LimitExceededError as LimitExceededError
    from segreader.errors import ManifestError as ManifestError
    from segreader.errors import ObjectNotFoundError as ObjectNotFoundError
    from segreader.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from segreader.errors import OptionError as OptionError
    from segreader.errors import PlanError as PlanError
    from segreader.errors import PositionError as PositionError
    from segreader.errors import PositionFormatError as PositionFormatError
    from segreader.errors import PositionVersionError as PositionVersionError
    from segreader.errors import RecreatedTopicError as RecreatedTopicError
    from segreader.errors import SchemaAccessError as SchemaAccessError
    from segreader.errors import SchemaNotFoundError as SchemaNotFoundError
    from segreader.errors import SchemaRegistryError as SchemaRegistryError
    from segreader.errors import SegmentGapError as SegmentGapError
    from segreader.errors import SegreaderError as SegreaderError
    from segreader.errors import StorageError as StorageError
    from segreader.errors import TruncatedError as TruncatedError
    from segreader.errors import TruncatedLogError as TruncatedLogError
    from segreader.errors import UndecodableValueError as UndecodableValueError
    from segreader.errors import UnknownLayoutError as UnknownLayoutError
    from segreader.format.batch import Record as Record
    from segreader.format.batch import TimestampType as TimestampType
    from segreader.format.compression import Decompressor as Decompressor
    from segreader.format.index_files import parse_offset_index as parse_offset_index
    from segreader.format.index_files import parse_transaction_index as parse_transaction_index
    from segreader.format.records import iter_records as iter_records
    from segreader.format.scanner import BatchReady as BatchReady
    from segreader.format.scanner import Done as Done
    from segreader.format.scanner import NeedData as NeedData
    from segreader.format.scanner import SegmentScanner as SegmentScanner
    from segreader.format.scanner import Tail as Tail
    from segreader.isolation import AbortedTransactions as AbortedTransactions
    from segreader.isolation import IsolationLevel as IsolationLevel
    from segreader.live.scan import LiveScan as LiveScan
    from segreader.plan.live import LivePart as LivePart
    from segreader.plan.live import LivePlan as LivePlan
    from segreader.plan.split import EndReason as EndReason
    from segreader.plan.split import ReadEnd as ReadEnd
    from segreader.plan.split import ReadPlan as ReadPlan
    from segreader.plan.split import Split as Split
    from segreader.ranges import ByteRange as ByteRange
    from segreader.ranges import OffsetRange as OffsetRange
    from segreader.read.metrics import ScanMetrics as ScanMetrics
    from segreader.read.records import ConsumerRecord as ConsumerRecord
    from segreader.scans import Scan as Scan
    from segreader.scans import scan as scan
    from segreader.segment import TopicIdPartition as TopicIdPartition


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'segreader' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"segreader.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
