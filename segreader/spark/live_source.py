"""The locations of a read beside its brokers: a source of segments for planners that ask brokers."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence

from segreader.catalog.layouts.base import PartitionPlace
from segreader.errors import ObjectNotFoundError, UnknownLayoutError
from segreader.spark.locations import Locations
from segreader.stored.beside import Known, SourceLog
from segreader.stored.source import Wants


class LocationsSource:
    """The partitions at some locations. Where those of a topic lie is looked up once.

    Args:
        locations: they stay open.
    """

    def __init__(self, locations: Locations) -> None:
        self._locations = locations
        self.store = locations.store
        self.shown = locations.shown
        self._places: dict[str, Sequence[Sequence[PartitionPlace]]] = {}
        self._known: Known | None = None
        self._lock = threading.Lock()

    def logs(
        self,
        *,
        topic: str | None,
        topic_id: str | None,
        partitions: Collection[int] | None,
        wants: Wants | None = None,
    ) -> Iterator[SourceLog]:
        """The partitions of one topic.

        Raises:
            ObjectNotFoundError: nothing is uploaded of those asked for; the brokers have them.
            CatalogError, StorageError: as listing tells.
        """
        if partitions is not None and not partitions:
            return  # a stream that follows brokers lists nothing
        is_there = False
        found, known = self._found(topic or "")
        for places in found:
            one = places[0].partition
            if topic_id in (None, one.topic_id) and (partitions is None or one.partition in partitions):
                is_there = True
                if wants is None or wants(one):
                    yield self._locations.read(places, known)
        if not is_there:
            raise ObjectNotFoundError("nothing of it is uploaded here", source=self.shown)

    def _found(self, topic: str) -> tuple[Sequence[Sequence[PartitionPlace]], Known]:
        with self._lock:
            if self._known is None:
                self._known = Known(self._locations.read_metadata())  # the brokers tell the lineage
            if topic not in self._places:
                try:
                    self._places[topic] = self._locations.places_of(topic)
                except UnknownLayoutError:  # a cluster that has uploaded nothing yet
                    self._places[topic] = ()
            return self._places[topic], self._known
