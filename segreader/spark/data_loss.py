"""What becomes of a stream whose next offsets are not there: the option ``failOnDataLoss``.

Source: ``KafkaMicroBatchStream.reportDataLoss`` (Spark 4).
"""

from __future__ import annotations

import logging

from segreader.errors import (
    AmbiguousTopicError,
    DivergedPositionError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    SegreaderError,
)
from segreader.plan.log import Log
from segreader.plan.split import ReadEnd
from segreader.segment import TopicIdPartition
from segreader.spark.checkpoint import TopicPartition

logger = logging.getLogger(__name__)

_GOES_ON = "With failOnDataLoss=false the stream continues with the offsets that exist"


class DataLossPolicy:
    """Raises where offsets are gone, or says so in the log, once, and lets the stream go on.

    Args:
        fails: the option.
        source: where is read, for people.
    """

    def __init__(self, fails: bool, source: str) -> None:
        self.fails = fails
        self.source = source
        self._noted: set[str] = set()

    def note(self, text: str) -> None:
        """A warning in the log, the first time: a trigger comes every second, and most say the same."""
        if text not in self._noted:
            self._noted.add(text)
            logger.warning("%s", text)

    def check_start(self, name: TopicPartition, log: Log, start: int | None) -> int:
        """The first offset to read of a partition, where ``start`` comes next; its earliest where none does.

        Raises:
            OffsetOutOfRangeError: it is not there, whether gone or not there yet.
        """
        if start is None:
            return log.earliest
        if start < log.earliest:
            self._fail_or_note(
                OffsetOutOfRangeError(
                    f"offsets of {_text(name)} are gone: retention has deleted them, or they are elsewhere",
                    source=self.source,
                    found=f"segments from offset {log.earliest} on",
                    expected=f"offset {start}",
                    hint=_GOES_ON,
                )
            )
        elif start > log.latest:
            hint = "With failOnDataLoss=false the stream waits until that offset is there"
            self._fail_or_note(self._too_early(name, start, log.latest, hint))
        return max(start, log.earliest)

    def ahead(self, name: TopicPartition, start: int, end: int) -> OffsetOutOfRangeError:
        """The error of a batch that ends before it starts, whatever the option says.

        Args:
            start: the offset that comes next.
            end: what Spark before 4.2 has noted as the end of the batch.
        """
        hint = (
            "Spark before 4.2 has noted that end: when the uploads have caught up, start a query with a new checkpoint "
            "at the line that segreader spark offsets prints"
        )
        return self._too_early(name, start, end, hint)

    def missing_partition(self, name: TopicPartition) -> None:
        """A partition with offsets that come next has no segment any more.

        Raises:
            ObjectNotFoundError: by the option.
        """
        self._fail_or_note(
            ObjectNotFoundError(f"{_text(name)} is not here any more", source=self.source, hint=_GOES_ON)
        )

    def short_batch(self, end: ReadEnd, stop: int) -> None:
        """A batch cannot be given the offsets that it was planned with when it was tried before.

        Raises:
            OffsetOutOfRangeError: by the option.
        """
        self._fail_or_note(
            OffsetOutOfRangeError(
                f"offsets of {end.partition} that this batch was planned with are not there any more",
                source=self.source,
                found=end.text,
                expected=f"offsets up to {stop}",
                hint=_GOES_ON,
            )
        )

    def diverged(self, name: TopicPartition, start: int, decided: int) -> None:
        """An election took away what the stream has read, or what had decided it.

        Args:
            start: the offset that comes next.
            decided: below it nothing has changed.

        Raises:
            DivergedPositionError: by the option.
        """
        self._fail_or_note(
            DivergedPositionError(
                f"what this stream has read of {_text(name)} is not its history any more",
                source=self.source,
                offset=decided,
                found=f"offsets up to {decided} that are certain",
                expected=f"everything below {start}",
                hint="An unclean leader election took records or markers away: take back what was written from offset "
                f"{decided} on, and start a query with a new checkpoint there. With failOnDataLoss=false this one goes "
                "on",
            )
        )

    def recreated(self, before: TopicIdPartition, now: TopicIdPartition) -> None:
        """Another topic has taken the name while the stream was reading.

        Raises:
            AmbiguousTopicError: by the option.
        """
        self._fail_or_note(
            AmbiguousTopicError(
                f"topic {now.topic!r} was deleted and created again while a stream was reading it",
                source=self.source,
                found=f"topic id {now.topic_id}",
                expected=before.topic_id,
                hint="Its offsets start again: start a new query with a new checkpoint",
            )
        )

    def _too_early(self, name: TopicPartition, start: int, end: int, hint: str) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"{_text(name)} ends before the offset that comes next: the topic was created again, or what its broker "
            "has is not uploaded yet",
            source=self.source,
            found=f"the end at offset {end}",
            expected=f"offset {start}",
            hint=hint,
        )

    def _fail_or_note(self, error: SegreaderError) -> None:
        if self.fails:
            raise error
        self.note(str(error))


def _text(name: TopicPartition) -> str:
    return f"{name[0]}-{name[1]}"
