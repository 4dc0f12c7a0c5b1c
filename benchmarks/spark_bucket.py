"""A made bucket in the place of the one that options of the Spark source name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import segreader.spark.batch
import segreader.spark.locations
from segreader.spark.locations import Locations
from segreader.spark.options import SparkOptions
from segreader.storage.base import ObjectStore

OPTIONS = {"location": "s3://bucket", "subscribePattern": ".*"}


def read_from(open_bucket: Callable[[], ObjectStore]) -> None:
    """Let all reads of this process be from the bucket: those of the driver, and those of tasks."""

    def open_location(options: SparkOptions, location: str) -> tuple[ObjectStore, str]:
        return open_bucket(), ""

    @contextmanager
    def kept_locations(options: SparkOptions) -> Iterator[Locations]:
        yield Locations(options)

    segreader.spark.locations.open_location = open_location
    segreader.spark.batch.kept_locations = kept_locations  # type: ignore[attr-defined]
