"""The records of a part of a live plan in a task: from the store, by location, from a broker.

A part holds names and numbers: no client, no URL, no secret. A task asks for what it needs with a client that its
worker keeps, and tells afterwards which source each record came from.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pyarrow as pa

from segreader.broker.messages import EARLIEST, OffsetWanted
from segreader.errors import OffsetOutOfRangeError
from segreader.live.cluster import Cluster
from segreader.live.locations import open_located
from segreader.live.metrics import LiveMetrics
from segreader.live.reader import LiveReader
from segreader.plan.live import LivePart, ReadFrom, narrowed
from segreader.plan.request import Policy
from segreader.ranges import OffsetRange
from segreader.read.metrics import MissingOffsets
from segreader.read.options import ReadOptions
from segreader.spark.credentials import resolve_storage
from segreader.spark.locations import kept_locations
from segreader.spark.options import SparkOptions
from segreader.spark.worker import this_worker

logger = logging.getLogger(__name__)


def read_part(
    options: SparkOptions, part: LivePart, read_options: ReadOptions, metrics: LiveMetrics
) -> Iterator[pa.RecordBatch]:
    """The records of one part, in offset order, with clients that this worker keeps.

    Args:
        metrics: counts them by source; what retention took since the plan was made is in ``missing`` there, where the
            options let a read go on without it.

    Raises:
        OffsetOutOfRangeError: retention took it (``failOnDataLoss``).
        SegreaderError: as ``LiveReader.read``.
    """
    assert options.brokers is not None
    with ExitStack() as stack:
        cluster = stack.enter_context(this_worker().cluster(options.brokers))
        store = None
        located = None
        if part.read_from is ReadFrom.STORE:
            store = stack.enter_context(kept_locations(options)).store
        elif part.read_from is ReadFrom.LOCATION:
            located = open_located(storage_of_locations(options))
            stack.callback(located[1].close)
        read_options = replace(read_options, on_gap=options.read_options.on_gap)
        reader = LiveReader(cluster, read_options, store=store, located=located, metrics=metrics)
        fails = options.read_options.on_missing is Policy.FAIL
        for batch in _retained(cluster, reader, part, metrics, fails=fails):
            yield _without_positions(batch)
    told = ", ".join(f"{one.records} from the {name}" for name, one in metrics.sources.items() if one.parts)
    logger.info("%s: offsets %d to %d: %s", part.partition, part.offsets.start, part.stop - 1, told)


def _without_positions(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same with no place in a file: what a broker sends has none, and a part may come from both."""
    at = batch.schema.get_field_index("position")
    if at < 0:
        return batch
    field = batch.schema.field(at)
    return batch.set_column(at, field, pa.nulls(len(batch), field.type))


def storage_of_locations(options: SparkOptions) -> dict[str, Any]:
    """The storage options by which URLs that brokers tell are read: which hosts, which certificates.

    A provider of credentials is not asked: the URLs are signed.
    """
    return dict(resolve_storage("default", "https://", options.storage))


def _retained(
    cluster: Cluster, reader: LiveReader, part: LivePart, metrics: LiveMetrics, *, fails: bool
) -> Iterator[pa.RecordBatch]:
    """What is left of a part where retention takes offsets away while it is read."""
    while True:
        try:
            yield from reader.read(part)
            return
        except OffsetOutOfRangeError as error:
            if fails:
                error.hint = "Deleted after the plan was made: load() plans anew, failOnDataLoss=false goes on"
                raise
            place = part.partition
            wanted = [OffsetWanted(place.topic, place.partition, EARLIEST)]
            (first,) = cluster.list_offsets(wanted, part.isolation_level)
            start, stop = reader.delivered, min(first.offset, part.stop)
            if first.error or start >= stop:  # it was not retention
                raise
            metrics.missing.append(MissingOffsets(place, start, stop, str(error)))
        if stop >= part.stop:
            return
        part = replace(narrowed(part, OffsetRange(stop, part.stop)), read_from=ReadFrom.BROKER, splits=(), aborted=None)
