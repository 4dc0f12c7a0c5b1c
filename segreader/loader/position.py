"""Where a reader stands: a small value from which another reader, on another machine, goes on exactly there."""

from __future__ import annotations

from dataclasses import dataclass

from segreader.errors import PositionFormatError
from segreader.format.index_files import AbortedTransaction
from segreader.isolation import IsolationLevel
from segreader.loader.saved import SavedFields, save_log_end, saved_log_end, write_saved
from segreader.stored.divergence import LogEnd

__all__ = ["LogEnd", "Position"]

_KIND = "position"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A position in one partition. All records of the query below ``next_offset`` have been returned.

    ``to_json`` returns a few hundred bytes without secrets. The byte in the log only saves reading: it is used for the
    same version of the same log object; otherwise the offset index finds the batch.

    Args:
        topic, topic_id, partition: whose records; the id is ``None`` if the layout has none.
        next_offset: the first offset that was not returned.
        stop: the end of its split; ``None`` if the split has none.
        isolation_level: what was read.
        leader_epoch: of the last batch that was read, to detect a changed history (KIP-320).
        log_end: end of the log when this was planned, for ``read_committed``: markers up to there decided which records
            were returned.
        aborted: the aborted transactions that began before ``next_offset`` and end at or after it: what a
            ``read_committed`` reader must know inside them; ``None`` if they were not looked up.
        log, log_size, log_tag: the log object that was read, and which version of it.
        batch_position: position of the batch with the next record.
        batch_offset: the base offset of that batch, if it was read.
    """

    topic: str
    topic_id: str | None = None
    partition: int
    next_offset: int
    stop: int | None = None
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    leader_epoch: int | None = None
    log_end: LogEnd | None = None
    aborted: tuple[AbortedTransaction, ...] | None = None
    log: str | None = None
    log_size: int | None = None
    batch_position: int | None = None
    batch_offset: int | None = None
    log_tag: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "isolation_level", IsolationLevel(self.isolation_level))
        if min(self.partition, self.next_offset) < 0 or (self.stop is not None and self.stop < self.next_offset):
            raise ValueError(f"not a position: offset {self.next_offset} of {self.partition} before {self.stop}")
        if self.batch_position is not None and (self.log is None or self.log_size is None):
            raise ValueError("a byte without its log")

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.next_offset}"

    def to_json(self) -> str:
        """The position as text, for a checkpoint."""
        aborted = self.aborted
        return write_saved(
            _KIND,
            {
                "topic": self.topic,
                "topic_id": self.topic_id,
                "partition": self.partition,
                "next_offset": self.next_offset,
                "stop": self.stop,
                "isolation_level": self.isolation_level.value,
                "leader_epoch": self.leader_epoch,
                **save_log_end(self.log_end),
                "aborted": None
                if aborted is None
                else [[one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset] for one in aborted],
                "log": self.log,
                "log_size": self.log_size,
                "batch_position": self.batch_position,
                "batch_offset": self.batch_offset,
                "log_tag": self.log_tag,
            },
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Position:
        """The position from the text that ``to_json`` of this or an earlier version returned.

        Raises:
            PositionFormatError: it is none.
            PositionVersionError: a newer version wrote it.
        """
        fields = SavedFields(_KIND, text)
        rows = fields.rows_or_none("aborted", 4)
        try:
            aborted = None
            if rows is not None:
                aborted = tuple(AbortedTransaction(one, first, last, stable) for one, first, last, stable in rows)
            return cls(
                topic=fields.text("topic"),
                topic_id=fields.text_or_none("topic_id"),
                partition=fields.integer("partition", bits=31),
                next_offset=fields.integer("next_offset"),
                stop=fields.integer_or_none("stop"),
                isolation_level=IsolationLevel(fields.text("isolation_level")),
                leader_epoch=fields.integer_or_none("leader_epoch", bits=31),
                log_end=saved_log_end(fields),
                aborted=aborted,
                log=fields.text_or_none("log"),
                log_size=fields.integer_or_none("log_size"),
                batch_position=fields.integer_or_none("batch_position"),
                batch_offset=fields.integer_or_none("batch_offset"),
                log_tag=fields.text_or_none("log_tag"),
            )
        except PositionFormatError:
            raise
        except ValueError as error:
            raise fields.wrong(error) from error
