"""What the splits of a job are read from: segments at a location, or a log that brokers still serve."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from segreader.format.columns import BufferPool
from segreader.plan.live import LivePart, ReadFrom
from segreader.plan.split import Split
from segreader.read.live_metrics import LiveMetrics
from segreader.read.metrics import ScanMetrics
from segreader.read.options import ReadOptions
from segreader.read.split_reader import read_split
from segreader.spark.live_parts import read_part
from segreader.spark.locations import kept_locations
from segreader.spark.options import SparkOptions
from segreader.storage.base import ObjectStore

Readable = Split | LivePart
"""How the records of a split are read."""


@dataclass(frozen=True, slots=True)
class LiveSource:
    """Brokers, and what holds the remote tier beside them.

    Args:
        options: those of the data source.
    """

    options: SparkOptions


JobSource = ObjectStore | LiveSource


class FellBackError(Exception):
    """The object store failed in the midst of a part, and brokers went on.

    The records are right all the same; how many offsets hold none is counted twice then.
    """


@contextmanager
def kept_source(options: SparkOptions) -> Iterator[JobSource]:
    """The source for the time of the block, over clients that this worker keeps."""
    if options.brokers is not None:
        yield LiveSource(options)
        return
    with kept_locations(options) as locations:
        yield locations.store


def metrics_for(read: Readable) -> ScanMetrics:
    """What counts while this is read."""
    return LiveMetrics() if isinstance(read, LivePart) else ScanMetrics()


def from_brokers(read: Readable) -> Readable:
    """The same records, from the brokers alone."""
    if isinstance(read, Split):
        raise TypeError("a split of segments at a location is in no broker")
    return replace(read, read_from=ReadFrom.BROKER, splits=(), aborted=None)


def read_records(
    read: Readable, source: JobSource, options: ReadOptions, metrics: ScanMetrics, pool: BufferPool | None = None
) -> Iterator[pa.RecordBatch]:
    """The records in offset order.

    Args:
        metrics: made by ``metrics_for``.
        pool: as of ``read_split``.

    Raises:
        FellBackError: begin again with ``from_brokers``.
        SegreaderError: as ``read_split`` and ``read_part``.
    """
    if isinstance(read, Split):
        assert not isinstance(source, LiveSource), "splits of a job have one kind of source"
        yield from read_split(read, source, options, metrics=metrics, pool=pool)
        return
    assert isinstance(source, LiveSource), "splits of a job have one kind of source"
    assert isinstance(metrics, LiveMetrics)
    for batch in read_part(source.options, read, options, metrics):
        if metrics.fallbacks:
            raise FellBackError
        yield batch
    if metrics.fallbacks:
        raise FellBackError
