"""The partition that Kafka's default partitioner chooses for a key: ``murmur2`` of its bytes, modulo the partitions."""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Final

from segreader.errors import shown_count
from segreader.values import dataclass

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_WORD: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash of some bytes, as a signed number.

    Source: Kafka 4.0 ``Utils.murmur2``.
    """
    whole = len(data) & ~3
    h = _SEED ^ len(data)
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = k * _M & _WORD
        k = (k ^ (k >> _R)) * _M & _WORD
        h = (h * _M & _WORD) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _WORD
    h = (h ^ (h >> 13)) * _M & _WORD
    h ^= h >> 15
    return h - (1 << 32) if h > _POSITIVE else h


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a record with this key, by the Java client's default partitioner.

    Args:
        partitions: how many the topic has.

    Source: Kafka 4.0 ``BuiltInPartitioner.partitionForKey``.
    """
    return (murmur2(key) & _POSITIVE) % partitions


@dataclass(frozen=True, slots=True)
class KeyPartition:
    """Which partition of a topic is read for a key, and what that rests on.

    Args:
        topic: its name.
        topic_id: its id, if it is known.
        partition: the one that the default partitioner chose.
        partitions: how many the topic was taken to have.
        seen: the numbers of those that are there. The others have no segments, or none yet.
        is_counted: a cluster said how many there are; else it is one more than the largest number that was seen.
    """

    topic: str
    topic_id: str | None
    partition: int
    partitions: int
    seen: frozenset[int]
    is_counted: bool = False

    @classmethod
    def of(
        cls, topic: str, topic_id: str | None, key: bytes, seen: Collection[int], *, is_counted: bool = False
    ) -> KeyPartition:
        """The partition for a key.

        Args:
            seen: numbers of the partitions that are known; at least one.
        """
        partitions = max(seen) + 1
        return cls(topic, topic_id, partition_for_key(key, partitions), partitions, frozenset(seen), is_counted)

    @property
    def text(self) -> str:
        """What is read, and what that leaves out, for people."""
        counted = shown_count(self.partitions, "partition")
        if not self.is_counted:
            missing = self.partitions - len(self.seen)
            lacking = f", {missing} of them without segments here" if missing else ", by its segments"
            counted = f"{counted}{lacking}; if it has more, the key may be elsewhere"
        here = "is read" if self.partition in self.seen else "would be read, and has no segments here"
        return (
            f"{self.topic}: only partition {self.partition} {here}, where the Java client's default partitioner puts "
            f"this key ({counted}). Other partitioners (librdkafka's default is CRC-32), and earlier numbers of "
            "partitions, put it elsewhere: --all-partitions (all_partitions=True) reads all"
        )
