"""From options to a plan: which topics and partitions they name at this location, and the splits of each.

Runs on the driver, in Spark's planner process or in a job that wants to know beforehand what a read will do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from segreader.catalog.listing import read_place
from segreader.catalog.walk import find_places
from segreader.errors import (
    AmbiguousTopicError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    OptionError,
)
from segreader.plan.split import ReadPlan
from segreader.ranges import OffsetRange
from segreader.read.scan import scan
from segreader.read.source import Catalog, LocationSource
from segreader.spark.offsets import EARLIEST, LATEST, PartitionOffsets
from segreader.spark.options import SparkOptions

Partitions = dict[str, dict[int, int]]
"""First offset at hand, by topic and partition."""


def plan_read(options: SparkOptions) -> ReadPlan:
    """What a Spark read with these options reads.

    Raises:
        ObjectNotFoundError: the location, a topic or a partition is not there, or no topic matches.
        OptionError: offsets do not name exactly the partitions that are read, or a start is beyond its end.
        OffsetOutOfRangeError: a start lies before the first segment.
        CatalogError: what lies there does not answer the request.
    """
    chosen = _chosen_partitions(options)
    for name, offsets in (
        ("startingOffsets", options.starting_offsets),
        ("endingOffsets", options.ending_offsets),
    ):
        if offsets is not None:
            _require_same_partitions(name, offsets, chosen)
    plans = []
    for topic, partitions in chosen.items():
        for wanted, same in _by_offsets(topic, partitions, options).items():
            part = scan(
                options.location,
                topic=topic,
                partitions=same,
                offsets=wanted,
                isolation_level=options.isolation_level,
                layout=options.layout,
                rsm_config=options.keys,
                split_bytes=options.split_bytes,
            )
            try:
                plans.append(part.plan())
            except AmbiguousTopicError as error:
                error.hint = "Leave it out, or set location to the directory of one of its partitions"
                raise
    return ReadPlan(
        location=options.location,
        splits=tuple(split for plan in plans for split in plan.splits),
        ends=tuple(one for plan in plans for one in plan.ends),
        gaps=tuple(one for plan in plans for one in plan.gaps),
        dropped=tuple(one for plan in plans for one in plan.dropped),
        notes=tuple(note for plan in plans for note in plan.notes),
    )


def _chosen_partitions(options: SparkOptions) -> Partitions:
    there = _partitions_at(options)
    choice = options.choice
    if choice.pattern is not None:
        chosen = {topic: partitions for topic, partitions in there.items() if choice.matches(topic)}
        if not chosen:
            raise ObjectNotFoundError(
                f"no topic matches {choice.pattern!r}", source=options.location, found=_some(there)
            )
        return chosen
    chosen = {}
    for topic in choice.topics if choice.assigned is None else choice.assigned:
        if topic not in there:
            raise ObjectNotFoundError(f"topic {topic!r} is not here", source=options.location, found=_some(there))
        chosen[topic] = (
            there[topic]
            if choice.assigned is None
            else {partition: there[topic].get(partition, 0) for partition in choice.assigned[topic]}
        )
    return chosen


def open_location(options: SparkOptions) -> LocationSource:
    """The location of a read, as driver and tasks see it."""
    return LocationSource(options.location, catalog=Catalog(layout=options.layout, rsm_config=options.keys))


def _partitions_at(options: SparkOptions) -> Partitions:
    """The first offset of every partition of every topic, whether or not it can be read."""
    source = open_location(options)
    starts: Partitions = defaultdict(dict)
    for place in find_places(source.store, source.prefix, source.layouts):
        log = read_place(source.store, place, source.layouts)
        if log.segments:
            of_topic, number = starts[place.partition.topic], place.partition.partition
            first = log.segments[0].base_offset
            of_topic[number] = min(first, of_topic.get(number, first))
    return {topic: dict(sorted(starts[topic].items())) for topic in sorted(starts)}


def _require_same_partitions(name: str, offsets: PartitionOffsets, chosen: Partitions) -> None:
    named = {f"{topic}-{partition}" for topic, partitions in offsets.items() for partition in partitions}
    there = {f"{topic}-{partition}" for topic, partitions in chosen.items() for partition in partitions}
    if missing := sorted(there - named):
        raise OptionError(f"{name} must name every partition that is read; it lacks {', '.join(missing)}")
    if unknown := sorted(named - there):
        raise OptionError(f"{name} names partitions that are not read: {', '.join(unknown)}")


def _by_offsets(topic: str, partitions: dict[int, int], options: SparkOptions) -> dict[OffsetRange, list[int]]:
    """The partitions of a topic, by the offsets wanted of them."""
    groups: dict[OffsetRange, list[int]] = defaultdict(list)
    for partition, first in partitions.items():
        start = _of(options.starting_offsets, topic, partition, EARLIEST)
        stop = _of(options.ending_offsets, topic, partition, LATEST)
        if start not in (EARLIEST, 0) and start < first:
            raise OffsetOutOfRangeError(
                f"startingOffsets of {topic}-{partition} lies before the first segment",
                source=options.location,
                found=start,
                expected=f"{first} or later, or {EARLIEST} for the earliest",
            )
        if stop != LATEST and max(start, first) > stop:
            raise OptionError(
                f"endingOffsets of {topic}-{partition} lies before its start",
                found=stop,
                expected=max(start, first),
            )
        groups[OffsetRange(max(start, 0), None if stop == LATEST else stop)].append(partition)
    return groups


def _of(offsets: PartitionOffsets | None, topic: str, partition: int, default: int) -> int:
    return default if offsets is None else offsets[topic][partition]


def _some(topics: Iterable[str]) -> str:
    names = sorted(topics)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
