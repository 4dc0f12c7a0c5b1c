"""What only a stream has beside ``SparkOptions``: how much a trigger reads, and how long it may wait.

Names, forms and checks are those of Spark's kafka source (Spark 4 ``KafkaSourceProvider``); the limit by bytes is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from segreader.errors import OptionError
from segreader.spark import option_values as values
from segreader.spark.options import SparkOptions, parse_options


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of one stream.

    Args:
        read: what it has in common with a batch read.
        max_offsets: read about so many offsets a trigger, or …
        max_bytes: … about so many stored bytes.
        min_offsets: wait until there are so many offsets …
        max_delay_ms: … but at most so long.
    """

    read: SparkOptions
    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 900_000

    @property
    def starts_at_end(self) -> bool:
        """Whether a new query has only what comes after its start."""
        read = self.read
        return read.starts_at_latest and read.starting_times is None and read.starting_offsets is None


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """The options of a stream as values.

    Args:
        options: as Spark gives them: any case of names, text values.

    Raises:
        OptionError: as ``parse_options``; an option has no meaning in a stream, or limits contradict each other.
    """
    read = parse_options(options)
    given = {name.lower(): str(value) for name, value in options.items()}
    if read.ending_offsets is not None or read.ending_times is not None:
        raise OptionError(
            "endingOffsets, endingTimestamp and endingOffsetsByTimestamp have no meaning in a stream",
            hint="A stream continues with new uploads; use spark.read to read up to an end",
        )
    max_offsets = values.optional_count(given, "maxOffsetsPerTrigger")
    max_bytes = values.optional_size(given, "maxBytesPerTrigger")
    min_offsets = values.optional_count(given, "minOffsetsPerTrigger")
    if max_offsets is not None and max_bytes is not None:
        raise OptionError("maxOffsetsPerTrigger and maxBytesPerTrigger exclude each other; give one")
    if max_offsets is not None and min_offsets is not None and min_offsets > max_offsets:
        raise OptionError(
            "minOffsetsPerTrigger is more than maxOffsetsPerTrigger",
            found=min_offsets,
            expected=f"at most {max_offsets}",
        )
    return StreamOptions(
        read=read,
        max_offsets=max_offsets,
        max_bytes=max_bytes,
        min_offsets=min_offsets,
        max_delay_ms=values.delay_ms(given, "maxTriggerDelay", default="15m"),
    )
