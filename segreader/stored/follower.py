"""What is new in the partitions of a location since they were last looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from segreader.segment import TopicIdPartition
from segreader.storage.base import read_each
from segreader.stored.log import StoredLog
from segreader.stored.source import SourceLog


class Follower:
    """Remembers each partition as it was last listed. Of one whose listing is as before nothing is read.

    A host lists, asks here for the logs, and holds its own state against them: where it is (``StoredLog.latest``,
    ``stable``), and whether what it has read still is the history (``StoredLog.diverged_from``).

    Args:
        see: makes a log of a listing, and reads what the host needs of it; several partitions at a time.
    """

    def __init__(self, see: Callable[[SourceLog], StoredLog]) -> None:
        self._see = see
        self.logs: Mapping[TopicIdPartition, StoredLog] = {}

    def look(self, sources: Sequence[SourceLog]) -> Mapping[TopicIdPartition, StoredLog]:
        """The partitions of these listings that have a segment, or miss one.

        Raises:
            FormatError, StorageError: as ``see``; then what was seen before stays.
        """
        logs = read_each(self._log, sources)
        self.logs = {log.partition: log for log in logs if log.resolved.parts or log.resolved.holes}
        return self.logs

    def _log(self, source: SourceLog) -> StoredLog:
        before = self.logs.get(source.log.partition)
        return before if before is not None and before.source == source else self._see(source)
