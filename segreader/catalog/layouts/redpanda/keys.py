"""The keys of Redpanda's tiered storage: of a partition's manifest, its segments and their side objects.

Two styles: *hashed* keys begin with an xxHash-32 of the rest, *labelled* ones (24.2 on) with the cluster's uuid. A
directory belongs to one style, and everything else is named after it: a topic may be mounted under another name than
its manifest says. Offsets in keys are Redpanda's own, not Kafka's.

Source: Redpanda 24.3 ``partition_path_utils``, ``segment_path_utils``, ``spillover_manifest``.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final, Self

_LABEL: Final = re.compile(r"[0-9a-f]0000000|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
PARTITION_PATH: Final = re.compile(
    rf"(?P<root>(?:[^/]+/)*?)(?P<label>{_LABEL.pattern})/meta/"
    r"kafka/(?P<topic>[A-Za-z0-9._-]{1,249})/(?P<partition>\d{1,10})_(?P<revision>\d{1,19})/",
    re.ASCII,
)
_HASHED_SIZE: Final = 8

_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_MASK: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """A directory that holds a partition's manifests, taken apart.

    Args:
        root: what comes before the first part of Redpanda's key; empty or ending in ``/``.
        label: that first part: eight hex digits, or the cluster's uuid.
        revision: of the topic when it was created: a topic of the same name that is made later has another one.
    """

    root: str
    label: str
    topic: str
    partition: int
    revision: int

    @classmethod
    def parse(cls, path: str) -> Self | None:
        """The parts of a directory's path, which ends in ``/``; ``None`` if it has no partition of a user topic."""
        match = PARTITION_PATH.fullmatch(path)
        return cls.of(match) if match else None

    @classmethod
    def of(cls, match: re.Match[str]) -> Self:
        """The parts of a path that ``PARTITION_PATH`` matches."""
        return cls(match["root"], match["label"], match["topic"], int(match["partition"]), int(match["revision"]))

    @property
    def is_hashed(self) -> bool:
        """Whether keys begin with a hash of the rest; otherwise with the cluster's uuid."""
        return len(self.label) == _HASHED_SIZE

    @property
    def topic_id(self) -> str:
        """What distinguishes this topic from others of its name: its revision, with the cluster's uuid if known."""
        return str(self.revision) if self.is_hashed else f"{self.label}_{self.revision}"

    def segment_key(self, name: str, archiver_term: int | None) -> str:
        """Key of the segment of this name (see ``segment_name``); ``archiver_term`` is that of the uploader."""
        path = f"kafka/{self.topic}/{self.partition}_{self.revision}/{name}"
        label = f"{xxh32(path.encode()):08x}" if self.is_hashed else self.label
        suffix = "" if archiver_term is None else f".{archiver_term}"
        return f"{self.root}{label}/{path}{suffix}"


def is_label(name: str) -> bool:
    """Whether a directory of this name can hold manifests: a hash of four bits and zeros, or a cluster's uuid."""
    return _LABEL.fullmatch(name) is not None


def segment_name(base_offset: int, term: int, *, committed_offset: int, size: int, name_format: int) -> str:
    """Name of a segment's object without its directory; formats 2 and 3 add its last offset and its bytes."""
    if name_format == 1:
        return f"{base_offset}-{term}-v1.log"
    return f"{base_offset}-{committed_offset}-{size}-{term}-v1.log"


def xxh32(data: bytes) -> int:
    """xxHash-32 with seed 0. Source: the xxHash specification, version 0.1.2."""
    one, two, three, four, five = _PRIMES
    stripes, words = len(data) // 16 * 16, len(data) // 4 * 4
    hashed = five
    if stripes:
        lanes = [(one + two) & _MASK, two, 0, -one & _MASK]
        for stripe in struct.iter_unpack("<4I", data[:stripes]):
            lanes = [_rotate(lane + word * two, 13) * one & _MASK for lane, word in zip(lanes, stripe, strict=True)]
        hashed = sum(map(_rotate, lanes, (1, 7, 12, 18)))
    hashed += len(data)
    for (word,) in struct.iter_unpack("<I", data[stripes:words]):
        hashed = _rotate(hashed + word * three, 17) * four
    for byte in data[words:]:
        hashed = _rotate(hashed + byte * five, 11) * one
    hashed &= _MASK
    hashed = (hashed ^ hashed >> 15) * two & _MASK
    hashed = (hashed ^ hashed >> 13) * three & _MASK
    return hashed ^ hashed >> 16


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (32 - bits)) & _MASK
