"""Where a new query starts: ``startingOffsets`` and its kin, held against what is there."""

from __future__ import annotations

from collections.abc import Mapping

from segreader.errors import OffsetOutOfRangeError, OptionError
from segreader.spark.data_loss import LossRule
from segreader.spark.followed import FollowedLog, Look
from segreader.spark.option_values import EARLIEST, LATEST
from segreader.spark.options import SparkOptions, StreamOptions
from segreader.spark.stream_offsets import StreamOffsets, TopicPartition, flat


def first_offsets(options: StreamOptions, log: FollowedLog, look: Look, rule: LossRule) -> dict[TopicPartition, int]:
    """The first offset to read of every partition.

    Raises:
        OptionError: the option does not name exactly the partitions that are there.
        OffsetOutOfRangeError: an offset is gone or not there yet, or nothing is as new as a time.
    """
    read = options.read
    if read.starting_times is not None:
        times = read.starting_times
        by_name = dict.fromkeys(look, times) if isinstance(times, int) else flat(times)
        _require_same("startingOffsetsByTimestamp", by_name, look)
        return {name: _at_time(read, log, look, name, time_ms) for name, time_ms in by_name.items()}
    if read.starting_offsets is not None:
        given = flat(read.starting_offsets)
        _require_same("startingOffsets", given, look)
        return {name: _at_offset(look, name, offset, rule) for name, offset in given.items()}
    return {name: seen.stop if options.starts_at_end else seen.earliest for name, seen in look.items()}


def _at_offset(look: Look, name: TopicPartition, offset: int, rule: LossRule) -> int:
    seen = look[name]
    if offset == EARLIEST:
        return seen.earliest
    return seen.stop if offset == LATEST else rule.begin(name, seen, offset)


def _at_time(options: SparkOptions, log: FollowedLog, look: Look, name: TopicPartition, time_ms: int) -> int:
    seen = look[name]
    found = log.first_at(name, seen, time_ms)
    if found is not None:
        return min(found, seen.stop)
    if options.starts_at_latest:
        return seen.stop
    raise OffsetOutOfRangeError(
        f"nothing of {name[0]}-{name[1]} is as new as the time to start from",
        source=options.location,
        found=f"no record from {time_ms} on",
        hint="With startingOffsetsByTimestampStrategy=latest the stream starts at the end then",
    )


def _require_same(option: str, given: StreamOffsets, look: Mapping[TopicPartition, object]) -> None:
    for problem, names in (("lacks", look.keys() - given.keys()), ("names, in vain,", given.keys() - look.keys())):
        if names:
            raise OptionError(
                f"{option} must name exactly the partitions that are read; it {problem} "
                + ", ".join(f"{topic}-{partition}" for topic, partition in sorted(names))
            )
