"""The unit of work that a host spreads: some offsets of one partition, and the bytes that hold them."""

from __future__ import annotations

from dataclasses import dataclass

from segreader.loader.position import Position
from segreader.loader.saved import SavedFields, save_log_end, saved_log_end, write_saved
from segreader.plan.codec import SPLIT, WrongValueError
from segreader.plan.split import Split
from segreader.segment import TopicIdPartition
from segreader.stored.divergence import LogEnd

_KIND = "split"


@dataclass(frozen=True, slots=True)
class LoaderSplit:
    """Offsets ``start <= offset < stop`` of one partition, from one segment. No two splits of an enumerator overlap.

    It holds names and numbers: no client and no secret.

    Args:
        split: what is read; its offsets have an end.
        log_end: where the log ended when it was planned, of ``read_committed``.
    """

    split: Split
    log_end: LogEnd | None = None

    def __post_init__(self) -> None:
        if self.split.offsets.stop is None:
            raise ValueError("a split without an end")

    @property
    def id(self) -> str:
        """A name for it, one of its own among the splits of an enumerator."""
        partition = self.partition
        topic = partition.topic if partition.topic_id is None else f"{partition.topic}.{partition.topic_id}"
        return f"{topic}-{partition.partition}-{self.start}"

    @property
    def partition(self) -> TopicIdPartition:
        """Whose records."""
        return self.split.partition

    @property
    def start(self) -> int:
        """The first offset of it."""
        return self.split.offsets.start

    @property
    def stop(self) -> int:
        """The first offset behind it."""
        return self.split.offsets.stop or 0

    @property
    def size(self) -> int:
        """Stored bytes to read."""
        return self.split.positions.size

    @property
    def position(self) -> Position:
        """The position of a reader that has read nothing yet."""
        return Position(
            topic=self.partition.topic,
            topic_id=self.partition.topic_id,
            partition=self.partition.partition,
            next_offset=self.start,
            stop=self.stop,
            isolation_level=self.split.isolation_level,
            log_end=self.log_end,
            log=self.split.log,
            log_size=self.split.log_size,
            log_tag=self.split.log_tag,
            batch_position=self.split.positions.start,
        )

    def to_json(self) -> str:
        """The split as text."""
        return write_saved(_KIND, SPLIT.to_json(self.split) | save_log_end(self.log_end))

    @classmethod
    def from_json(cls, text: str | bytes) -> LoaderSplit:
        """The split that ``to_json`` of this or an earlier version gave.

        Raises:
            PositionFormatError: it is none.
            PositionVersionError: a newer version wrote it.
        """
        fields = SavedFields(_KIND, text)
        try:
            return cls(SPLIT.from_json(fields.mapping()), saved_log_end(fields))
        except WrongValueError as error:
            raise fields.wrong_value(error) from error
        except ValueError as error:
            raise fields.wrong(error) from error
