"""The progress of a stream: the JSON of Spark's kafka source, and the checkpoint of a query.

``{"orders": {"0": 47737, "1": 47736}}``: of each partition the next offset to read. Spark keeps it as text, gives it
back as a dictionary and compares texts, so the order of names is settled here: topics by name, partitions by number.
Source: ``KafkaSourceOffset``, ``JsonUtils.partitionOffsets`` (Spark 4).

In a checkpoint ``offsets/<n>`` is written before batch n runs, ``commits/<n>`` when its rows are written. The former
holds a version line, a line of metadata, and a line of JSON for each source, ``-`` where a source gave none. Spark is
not needed to read it. Source: ``OffsetSeqLog``, ``CommitLog`` (Spark 4).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from segreader.errors import ObjectNotFoundError, OptionError, shown_count
from segreader.spark.option_values import PartitionOffsets
from segreader.storage.base import ObjectStore, read_whole
from segreader.storage.location import open_store
from segreader.values import dataclass

_VERSION: Final = "v1"
_SHOWN: Final = 200

TopicPartition: TypeAlias = tuple[str, int]
StreamOffsets: TypeAlias = Mapping[TopicPartition, int]
"""The next offset to read, by topic and partition."""

OffsetJson: TypeAlias = dict[str, dict[str, int]]


def to_json(offsets: StreamOffsets) -> OffsetJson:
    """The dictionary that Spark writes into its checkpoint; equal offsets give equal texts."""
    document: OffsetJson = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def flat(offsets: PartitionOffsets) -> dict[TopicPartition, int]:
    """The numbers of an option by topic and partition."""
    return {(topic, partition): offset for topic, of in offsets.items() for partition, offset in of.items()}


def from_json(document: Any) -> dict[TopicPartition, int]:
    """The offsets that a checkpoint holds, whichever of the two sources wrote it.

    Raises:
        OptionError: it is not of that form: another source's.
    """
    expected = '{"orders":{"0":47737,"1":47736}}'
    if not isinstance(document, Mapping):
        raise OptionError("these are no offsets of Kafka partitions", found=document, expected=expected)
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in document.items():
        for partition, offset in partitions.items() if isinstance(partitions, Mapping) else [("", None)]:
            is_partition = isinstance(partition, str) and partition.isascii() and partition.isdecimal()
            if not is_partition or type(offset) is not int or offset < 0:
                raise OptionError(f"these are no offsets of partitions of {topic}", found=partitions, expected=expected)
            offsets[topic, int(partition)] = offset
    return offsets


@dataclass(frozen=True, slots=True)
class QueryPosition:
    """Where the rows of a query end.

    Args:
        batch: number of the last batch that was finished.
        unfinished: number of the batch after it, if it was begun.
        offsets: the next offset of each partition.
    """

    batch: int
    unfinished: int | None
    offsets: OffsetJson

    @property
    def text(self) -> str:
        """The offsets as ``startingOffsets`` takes them, with no spaces, as Spark's kafka source writes them."""
        return json.dumps(self.offsets, separators=(",", ":"))


def read_position(location: str) -> QueryPosition:
    """How far a query is, by the newest batch that its checkpoint calls finished.

    Args:
        location: the directory or URL that was its ``checkpointLocation``.

    Raises:
        ObjectNotFoundError: it is no checkpoint, or no batch was finished yet.
        OptionError: the query has several sources, or its source is not one of Kafka partitions.
    """
    store, prefix = open_store(location)
    try:
        source = store.url(prefix)
        planned, finished = (_numbers(store, f"{prefix}{log}/") for log in ("offsets", "commits"))
        if not planned:
            raise ObjectNotFoundError(
                "no checkpoint of a streaming query is here", source=source, expected="a directory offsets/ with files"
            )
        if not planned & finished:
            raise ObjectNotFoundError(
                "no batch of this query was finished",
                source=source,
                hint="Nothing was written: start the other source with the startingOffsets that this query had",
            )
        batch = max(planned & finished)
        name = f"{prefix}offsets/{batch}"
        offsets = _parse(read_whole(store, name).decode("utf-8", "replace"), store.url(name))
        return QueryPosition(batch, batch + 1 if batch + 1 in planned else None, offsets)
    finally:
        store.close()


def _numbers(store: ObjectStore, directory: str) -> set[int]:
    """The batches that a log of the checkpoint has; temporary files and checksums are none."""
    names = (info.name.removeprefix(directory) for info in store.list_level(directory))
    return {int(name) for name in names if name.isascii() and name.isdecimal()}


def _parse(text: str, source: str) -> OffsetJson:
    version, *lines = text.strip("\n").split("\n")
    if version != _VERSION or len(lines) < 2:
        raise OptionError(
            "the log of offsets has another form than this version knows",
            source=source,
            found=version[:_SHOWN],
            expected=_VERSION,
        )
    offsets = [line for line in lines[1:] if line != "-"]
    if len(offsets) != 1 or len(lines) > 2:
        raise OptionError(
            "the query reads from several sources: only a query with one can be handed over",
            source=source,
            found=shown_count(len(lines) - 1, "source"),
        )
    try:
        return to_json(from_json(json.loads(offsets[0])))
    except ValueError as error:
        raise OptionError(
            "the query's source is not one of Kafka partitions", source=source, found=offsets[0][:_SHOWN]
        ) from error
