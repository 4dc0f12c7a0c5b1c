"""Offsets of a stream: the JSON of Spark's kafka source and its form in here.

``{"orders": {"0": 47737, "1": 47736}}``: of each partition the next offset to read. Spark keeps it as text, gives it
back as a dictionary and compares texts, so the order of names is settled here: topics by name, partitions by number.
Source: ``KafkaSourceOffset``, ``JsonUtils.partitionOffsets`` (Spark 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from segreader.errors import OptionError
from segreader.spark.option_values import PartitionOffsets

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
