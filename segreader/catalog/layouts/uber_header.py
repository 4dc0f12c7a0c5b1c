"""The header of a single-file segment: where each part of it begins. Byte table: docs/reference/layouts/uber.md."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from segreader.errors import ManifestError

HEADER_SIZE: Final = 25
PARTS: Final = ("index", "timeindex", "leader_epoch_checkpoint", "snapshot", "txnindex", "log")
"""The parts in the order in which they are stored."""

_HEADER: Final = struct.Struct(">b6i")


@dataclass(frozen=True, slots=True)
class SegmentFileHeader:
    """Where the parts of one file lie, in bytes from its start.

    Args:
        starts: of each of ``PARTS``; a part ends where the next one begins, the log at the end of the file.
        size: bytes of the whole file.
    """

    starts: tuple[int, ...]
    size: int

    def part(self, kind: str) -> tuple[int, int]:
        """Start and size of a part; size 0 where it is absent or empty."""
        index = PARTS.index(kind)
        stop = self.starts[index + 1] if index + 1 < len(self.starts) else self.size
        return self.starts[index], stop - self.starts[index]


def parse_segment_file_header(data: bytes, size: int) -> SegmentFileHeader:
    """Decode the first 25 bytes of a single-file segment.

    Args:
        data: its beginning.
        size: bytes of the whole file.

    Raises:
        ManifestError: it is cut, has another version, or its parts do not lie one after the other inside the file.

    Source: ``LogSegmentDataHeader`` (satishd/kafka).
    """
    if len(data) < HEADER_SIZE:
        raise ManifestError(
            "the header of a segment file is cut",
            found=f"{len(data)} bytes",
            expected=f"{HEADER_SIZE} bytes",
            position=0,
        )
    version, *starts = _HEADER.unpack_from(data)
    if version != 0:
        raise ManifestError(
            "a segment file has an unknown version",
            found=version,
            expected=0,
            position=0,
            hint="If this object is no segment of the HDFS plugin, force another layout",
        )
    if starts[0] != HEADER_SIZE:
        raise ManifestError(
            "the first part of a segment file does not follow its header",
            found=f"byte {starts[0]}",
            expected=f"byte {HEADER_SIZE}",
            position=1,
        )
    for index, (one, two) in enumerate(pairwise([*starts, size])):
        if two < one:
            what = f"the {PARTS[index]} of a segment file ends before it begins"
            raise ManifestError(what, found=f"bytes {one} to {two}", position=1 + 4 * index)
    return SegmentFileHeader(tuple(starts), size)
