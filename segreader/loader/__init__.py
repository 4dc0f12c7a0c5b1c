"""Loaders: splits, readers and checkpoints for engines that distribute, stop and restore a load from tiered storage.

A ``LoadQuery`` says what. A ``SplitEnumerator`` finds it and hands it out in splits, a ``ResumableReader`` reads one,
and a ``Position`` is where a reader is. All of them but the readers travel as JSON, and none holds a secret. Nothing
here is any one engine's: ``docs/how-to/loader.md`` shows how they fit several.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

_HOMES = {
    "LoadQuery": "query",
    "LoaderSplit": "splits",
    "LogEnd": "splits",
    "MessageBatch": "partition_consumer",
    "PartitionConsumer": "partition_consumer",
    "Position": "splits",
    "ReaderPool": "reader",
    "SplitEnumerator": "enumerator",
    "ResumableReader": "reader",
    "StartingOffsets": "starting_offsets",
}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from segreader.loader.enumerator import SplitEnumerator as SplitEnumerator
    from segreader.loader.partition_consumer import MessageBatch as MessageBatch
    from segreader.loader.partition_consumer import PartitionConsumer as PartitionConsumer
    from segreader.loader.query import LoadQuery as LoadQuery
    from segreader.loader.reader import ReaderPool as ReaderPool
    from segreader.loader.reader import ResumableReader as ResumableReader
    from segreader.loader.splits import LoaderSplit as LoaderSplit
    from segreader.loader.splits import Position as Position
    from segreader.loader.starting_offsets import StartingOffsets as StartingOffsets
    from segreader.plan.log import LogEnd as LogEnd


def __getattr__(name: str) -> Any:
    if name == "SplitReader":
        warnings.warn("segreader.loader.SplitReader is now ResumableReader", DeprecationWarning, stacklevel=2)
        name = "ResumableReader"
    if name not in _HOMES:
        raise AttributeError(f"module 'segreader.loader' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"segreader.loader.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
