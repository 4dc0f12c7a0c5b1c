"""The metadata topic as the brokers give it: read from its start and followed, by a thread of its own.

What its records mean is known to ``metadata_log``; here it is known how far each metadata partition was read, and
when it was last complete. A catalogue that is behind is marked so and never used as current.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Protocol

from segreader.broker.client import BrokerClient
from segreader.broker.messages import EARLIEST, LATEST, FetchedPartition, OffsetWanted
from segreader.broker.partition_fetcher import PartitionFetcher
from segreader.catalog.metadata_log import METADATA_TOPIC, RemoteLogMetadata, RemoteLogSegmentMetadata
from segreader.catalog.metadata_topic import MetadataBatches
from segreader.errors import BrokerError, FormatError, SegreaderError, TruncatedLogError
from segreader.format.batch import parse_batch_header
from segreader.format.remote_log_metadata import metadata_partition
from segreader.isolation import IsolationLevel
from segreader.segment import TopicIdPartition
from segreader.values import dataclass

_log = logging.getLogger(__name__)

_MAX_BYTES = 1 << 20
_BATCH_HEADER = 61
_LONGEST_WAIT_S = 30.0
_EMPTY_ANSWERS = 20
_MOST_NUMBERS = 100_000


class MetadataFetcher(Protocol):
    """What reads one partition: ``PartitionFetcher``."""

    def poll(self) -> FetchedPartition:
        """The next records."""

    def advance(self, next_offset: int, leader_epoch: int) -> None:
        """Where to continue."""

    def close(self) -> None:
        """Give the connection back; ``poll`` takes another one."""


MakeFetcher = Callable[[BrokerClient, int, int], MetadataFetcher]


@dataclass(slots=True)
class _MetadataPartition:
    """How far one metadata partition was read.

    Args:
        complete_s: when its end was last reached, on the consumer's clock; ``None``: never.
        changes: how often records of it were taken.
        error: why it could not be read in the last round.
    """

    batches: MetadataBatches
    fetcher: MetadataFetcher | None = None
    complete_s: float | None = None
    changes: int = 0
    error: SegreaderError | None = field(default=None, repr=False)


def make_fetcher(client: BrokerClient, partition: int, offset: int) -> MetadataFetcher:
    """A fetcher of one metadata partition from ``offset`` on."""
    return PartitionFetcher(
        client,
        METADATA_TOPIC,
        partition,
        offset,
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        rack=client.settings.rack,
        max_bytes=_MAX_BYTES,
        wants_locations=False,
    )


class MetadataConsumer:
    """The present remote tier, from the metadata topic. Use ``start`` and ``close``; all else is for any thread.

    Args:
        client: with READ on the metadata topic. It is not closed here.
        interval_s: between two looks at the topic's ends.
        clock: seconds since an arbitrary start.
    """

    def __init__(
        self,
        client: BrokerClient,
        *,
        make_fetcher: MakeFetcher = make_fetcher,
        interval_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._make_fetcher = make_fetcher
        self._interval_s = interval_s
        self._clock = clock
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._topic_id: str | None = None
        self._metadata = RemoteLogMetadata(keep_deleted=False)
        self._partitions: list[_MetadataPartition] = []
        self._numbers: dict[tuple[str, int, int], int] = {}
        self._era = 0
        self._reported: str | None = None
        self.error: SegreaderError | None = None
        """Why the last round could not even begin; ``None`` if it could."""

    def start(self) -> None:
        """Begin to read."""
        self._thread = threading.Thread(target=self._run, name="remote-log-metadata", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading; the client must be closed before, if a wait is to end at once."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_LONGEST_WAIT_S)

    def segments(self, topic: str, topic_id: str, partition: int) -> list[RemoteLogSegmentMetadata]:
        """The finished segments of a partition, in any order."""
        with self._lock:
            return self._metadata.segments(TopicIdPartition(topic, partition, topic_id))

    def topic_name(self, topic_id: str) -> str | None:
        """The name of a topic with remote segments; an id never gets another one."""
        with self._lock:
            found = self._metadata.partitions(topic_id=topic_id)
        return found[0].topic if found else None

    def changes(self, topic_id: str, partition: int) -> tuple[int, int]:
        """A value that is another one once the segments of this partition may be others."""
        with self._lock:
            known = self._known(topic_id, partition)
            return self._era, 0 if known is None else known.changes

    def lag_s(self, topic_id: str, partition: int) -> float | None:
        """Seconds since everything about this partition was read; ``None``: it never was."""
        with self._lock:
            known = self._known(topic_id, partition)
            return None if known is None or known.complete_s is None else self._clock() - known.complete_s

    def _known(self, topic_id: str, partition: int) -> _MetadataPartition | None:
        """The metadata partition that holds the records of a user partition."""
        if not (count := len(self._partitions)):
            return None
        key = (topic_id, partition, count)
        if (number := self._numbers.get(key)) is None:
            if len(self._numbers) >= _MOST_NUMBERS:
                self._numbers.clear()
            number = self._numbers[key] = metadata_partition(topic_id, partition, count)
        return self._partitions[number]

    def worst_lag_s(self) -> float | None:
        """The largest lag of all metadata partitions; ``None``: one was never complete."""
        with self._lock:
            times = [known.complete_s for known in self._partitions]
            if not times or any(moment is None for moment in times):
                return None
            return self._clock() - min(moment for moment in times if moment is not None)

    def errors(self) -> Mapping[int, SegreaderError]:
        """What went wrong in the last round, by metadata partition."""
        with self._lock:
            return {number: one.error for number, one in enumerate(self._partitions) if one.error is not None}

    def read_round(self) -> None:
        """Read every metadata partition up to where it ends now.

        Errors of one are kept in ``errors``, and do not keep the others from being read.

        Raises:
            BrokerError: the ends cannot be had.
        """
        self._find_partitions()
        asked_s = self._clock()
        ends = self._offsets(LATEST)
        if any(known.fetcher is None for known in self._partitions):
            self._begin(self._offsets(EARLIEST))
        for number, known in enumerate(self._partitions):
            if self._stopped.is_set():
                return
            known.error = None
            try:
                if ends[number] < known.batches.next_offset:
                    raise TruncatedLogError(f"{METADATA_TOPIC}-{number} has lost records", offset=ends[number])
                self._read_to(known, number, ends[number])
            except TruncatedLogError as error:
                self._begin_anew()
                raise error
            except SegreaderError as error:
                known.error = error
                known.fetcher = None
            else:
                with self._lock:
                    known.complete_s = asked_s

    def _run(self) -> None:
        wait_s = self._interval_s
        while not self._stopped.wait(wait_s if self._topic_id is not None or self.error is not None else 0):
            try:
                self.read_round()
                self.error, wait_s = None, self._interval_s
            except SegreaderError as error:
                self.error = error
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            self._tell()

    def _tell(self) -> None:
        """Say once what keeps the catalogue from being complete, and once that nothing does any more."""
        found = self.error or next(iter(self.errors().values()), None)
        report = None if found is None else f"{type(found).__name__}: {found}"
        if report == self._reported or self._stopped.is_set():
            return
        self._reported = report
        if report is None:
            _log.warning("the remote log metadata can be read again")
        else:
            _log.warning("the remote log metadata cannot be read, so no locations are given: %s", report)

    def _find_partitions(self) -> None:
        """Look whether there is a topic, and whether it is still the same one."""
        answered = self._client.metadata([METADATA_TOPIC]).topics if self._topic_id is None or self._is_lost() else ()
        for topic in answered:
            if topic.error:
                raise BrokerError(
                    f"{METADATA_TOPIC} cannot be read",
                    code=topic.error,
                    hint="Is remote.log.storage.system.enable set on the brokers?",
                )
            if topic.topic_id != self._topic_id or len(topic.partitions) != len(self._partitions):
                metadata = RemoteLogMetadata(keep_deleted=False)
                with self._lock:
                    self._era += 1
                    self._topic_id, self._metadata = topic.topic_id, metadata
                    self._partitions = [
                        _MetadataPartition(MetadataBatches(number, metadata)) for number in range(len(topic.partitions))
                    ]

    def _is_lost(self) -> bool:
        return any(known.error is not None for known in self._partitions)

    def _offsets(self, timestamp: int) -> dict[int, int]:
        wanted = [OffsetWanted(METADATA_TOPIC, number, timestamp) for number in range(len(self._partitions))]
        answered = self._client.list_offsets(wanted, IsolationLevel.READ_UNCOMMITTED)
        for one in answered:
            if one.error or one.offset < 0:
                raise BrokerError(f"{METADATA_TOPIC}-{one.partition} has no offset", code=one.error)
        return {one.partition: one.offset for one in answered}

    def _begin(self, starts: Mapping[int, int]) -> None:
        """Fetchers for the partitions that have none; one that lost records starts again from the beginning."""
        for number, known in enumerate(self._partitions):
            if known.fetcher is not None:
                continue
            offset = max(known.batches.next_offset, starts[number])
            known.fetcher = self._make_fetcher(self._client, number, offset)

    def _begin_anew(self) -> None:
        """Forget everything: an unclean election removed records, and what they stated may never have happened."""
        with self._lock:
            self._topic_id, self._partitions, self._era = None, [], self._era + 1

    def _read_to(self, known: _MetadataPartition, number: int, end: int) -> None:
        fetcher = known.fetcher
        assert fetcher is not None
        position, empty = known.batches.next_offset, 0
        while position < end and not self._stopped.is_set():
            answer = fetcher.poll()
            if not answer.records:
                if answer.log_start_offset >= end or answer.high_watermark <= position:
                    break
                if (empty := empty + 1) > _EMPTY_ANSWERS:
                    raise BrokerError(f"{METADATA_TOPIC}-{number}: no records come", offset=position, expected=end)
                continue
            with self._lock:
                known.batches.apply_batches(answer.records)
                known.changes += 1
            reached = known.batches.next_offset
            if reached == position:
                raise BrokerError(f"{METADATA_TOPIC}-{number}: an answer without a whole batch", offset=position)
            position = reached
            fetcher.advance(position, _last_epoch(answer.records))
        fetcher.close()


def _last_epoch(records: memoryview) -> int:
    position, epoch = 0, -1
    with contextlib.suppress(FormatError):
        while position + _BATCH_HEADER <= len(records):
            header = parse_batch_header(records, position)
            if position + header.size > len(records):
                break
            epoch, position = header.partition_leader_epoch, position + header.size
    return epoch
