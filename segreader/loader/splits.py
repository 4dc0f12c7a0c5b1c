"""The unit of work that a host spreads: some offsets of one partition, and the bytes that hold them."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass

from segreader.errors import PositionFormatError
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.loader.position import Position
from segreader.loader.saved import SavedFields, save_log_end, saved_log_end, write_saved
from segreader.plan.packed_aborted import pack_aborted, unpack_aborted
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.read.divergence import LogEnd
from segreader.segment import TopicIdPartition

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
        """Where a reader of it stands before it has read anything."""
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
        split = self.split
        return write_saved(
            _KIND,
            {
                "topic": split.partition.topic,
                "topic_id": split.partition.topic_id,
                "partition": split.partition.partition,
                "start": split.offsets.start,
                "stop": split.offsets.stop,
                "isolation_level": split.isolation_level.value,
                "log": split.log,
                "log_size": split.log_size,
                "first_byte": split.positions.start,
                "stop_byte": split.positions.stop,
                "aborted": b64encode(pack_aborted(split.aborted)).decode() if len(split.aborted) else None,
                "is_active": split.is_active or None,
                "base_offset": split.base_offset,
                "offset_index": split.offset_index,
                "offset_bound": split.offset_bound,
                "epochs": [list(one) for one in split.epochs] or None,
                "is_padded": split.is_padded or None,
                "stop_of_part": split.stop_of_part,
                "first_bound": split.first_bound,
                "chunk_size": split.chunk_size,
                "log_tag": split.log_tag,
                **save_log_end(self.log_end),
                "timed": split.timed,
                "reaches": split.reaches,
                "following": json.dumps(list(split.following)) if split.following else None,
            },
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> LoaderSplit:
        """The split that ``to_json`` of this or an earlier version gave.

        Raises:
            PositionFormatError: it is none.
            PositionVersionError: a newer version wrote it.
        """
        fields = SavedFields(_KIND, text)
        packed = fields.text_or_none("aborted")
        try:
            return cls(
                Split(
                    partition=TopicIdPartition(
                        fields.text("topic"), fields.integer("partition", bits=31), fields.text_or_none("topic_id")
                    ),
                    log=fields.text("log"),
                    log_size=fields.integer("log_size"),
                    positions=ByteRange(fields.integer("first_byte"), fields.integer("stop_byte")),
                    offsets=OffsetRange(fields.integer("start"), fields.integer("stop")),
                    isolation_level=IsolationLevel(fields.text("isolation_level")),
                    aborted=AbortedTransactions()
                    if packed is None
                    else unpack_aborted(b64decode(packed, validate=True)),
                    is_active=fields.flag("is_active"),
                    base_offset=fields.integer("base_offset"),
                    offset_index=fields.text_or_none("offset_index"),
                    offset_bound=fields.integer_or_none("offset_bound"),
                    epochs=tuple((epoch, start) for epoch, start in fields.rows_or_none("epochs", 2) or ()),
                    is_padded=fields.flag("is_padded"),
                    stop_of_part=fields.integer_or_none("stop_of_part"),
                    first_bound=fields.integer_or_none("first_bound"),
                    chunk_size=fields.integer_or_none("chunk_size"),
                    log_tag=fields.text_or_none("log_tag"),
                    timed=fields.integer_or_none("timed"),
                    reaches=fields.integer_or_none("reaches"),
                    following=_following(fields),
                ),
                saved_log_end(fields),
            )
        except PositionFormatError:
            raise
        except (ValueError, zlib.error) as error:
            raise fields.wrong(error) from error


def _following(fields: SavedFields) -> tuple[tuple[str, int, int], ...]:
    text = fields.text_or_none("following")
    return () if text is None else tuple((str(log), int(size), int(stop)) for log, size, stop in json.loads(text))
