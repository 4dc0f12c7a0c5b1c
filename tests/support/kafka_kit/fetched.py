"""Reads on through a ``PartitionFetcher``: what came, as offsets and values, until there is enough of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from segreader.broker.partition_fetcher import PartitionFetcher
from segreader.format.batch import parse_batch_header
from segreader.format.compression import Decompressor
from segreader.format.records import iter_records

_PATIENCE_S = 60.0
_HEADER_SIZE = 61

Pair = tuple[int, bytes | None]


def take(fetcher: PartitionFetcher, count: int, *, then: Callable[[], None] | None = None) -> list[Pair]:
    """The next records, at least ``count`` of them: offset and value.

    Args:
        count: 0 to poll once.
        then: called after every poll that brought records.

    Raises:
        TimeoutError: they do not come.
    """
    found: list[Pair] = []
    until = time.monotonic() + _PATIENCE_S
    while True:
        fresh = list(_poll(fetcher))
        found += fresh
        if fresh and then is not None:
            then()
        if len(found) >= count:
            return found
        if time.monotonic() > until:
            raise TimeoutError(f"{len(found)} of {count} records came, position {fetcher.position.offset}")


def _poll(fetcher: PartitionFetcher) -> Iterator[Pair]:
    answer = fetcher.poll()
    data, at = answer.records, 0
    if data is None:
        return
    while len(data) - at >= _HEADER_SIZE:
        header = parse_batch_header(data, at)
        if at + header.size > len(data):
            return  # cut: it comes again
        if not header.is_control:
            for record in iter_records(data[at : at + header.size], Decompressor()):
                if record.offset >= fetcher.position.offset:
                    yield record.offset, record.value
        fetcher.advance(header.next_offset, header.partition_leader_epoch)
        at += header.size
