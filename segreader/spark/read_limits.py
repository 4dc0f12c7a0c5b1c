"""What Spark 4.2 and later have for streams, where this Spark has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from segreader.errors import OptionError
from segreader.spark.options import SparkOptions

try:
    from pyspark.sql.streaming import datasource as _limits
except ImportError:  # Spark 4.0 and 4.1
    _limits = None  # type: ignore[assignment]

HAS_LIMITS = _limits is not None
"""Whether Spark asks a source written in Python how much a trigger shall read."""

if TYPE_CHECKING or HAS_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class SupportsTriggerAvailableNow:
        """Stands where Spark has none: ``Trigger.AvailableNow`` is then one trigger with all that is there."""

    class ReadLimit:
        """Stands where Spark has none; that Spark never hands one over."""

    @dataclass
    class ReadAllAvailable(ReadLimit): ...

    @dataclass
    class ReadMaxBytes(ReadLimit):
        max_bytes: int

    @dataclass
    class ReadMaxRows(ReadLimit):
        max_rows: int

    @dataclass
    class ReadMinRows(ReadLimit):
        min_rows: int


def require_limits(options: SparkOptions) -> None:
    """Refuse what an older Spark would leave out without a word.

    There a trigger is always all that is there, and ``AvailableNow`` is one of them: the rest would stay unread.

    Raises:
        OptionError: a limit is given to Spark 4.0 or 4.1.
    """
    if options.limits and not HAS_LIMITS:
        limit = next(iter(options.limits))
        raise OptionError(
            f"{limit} needs Spark 4.2 or later: before, no Python source is asked how much to read",
            hint="Leave it out: a trigger then reads all that is there",
        )


__all__ = [
    "HAS_LIMITS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "require_limits",
]
