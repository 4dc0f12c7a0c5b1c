"""A topic of which history is in the store and the rest at brokers: its segments and its committed offsets."""

from __future__ import annotations

from segreader.testing.builder import SegmentBuilder

TOPIC = "orders"
PRODUCER = 7
COMMITTED = [*range(30), *range(51, 80)]
"""The offsets that a ``read_committed`` reader sees of ``segments()``."""


def segments() -> list[SegmentBuilder]:
    """Four segments: a transaction that is aborted begins in the second one and ends in the third."""
    first = SegmentBuilder(index_interval_bytes=1)
    for _ in range(10):
        first.batch([b"v"] * 2)
    second = first.roll().batch([b"v"] * 10).batch([b"x"] * 10, producer_id=PRODUCER, transactional=True)
    third = second.roll().batch([b"x"] * 10, producer_id=PRODUCER, transactional=True)
    third.marker(PRODUCER, abort=True).batch([b"v"] * 9)
    return [first, second, third, third.roll().batch([b"v"] * 10).batch([b"v"] * 10)]
