"""Parts of a topic, and which of them a filter may match: Arrow itself decides.

Filters come as Arrow expressions, which nobody can look into. But Arrow leaves the files of a dataset out whose
partition expression contradicts a filter. So each region becomes a file that is never opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

_LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Region:
    """Records of a partition: offsets ``start <= offset < stop``, none newer than ``newest_ms``, if that is known.

    ``stop`` is ``None`` where the region is open.
    """

    topic: str
    partition: int
    start: int = 0
    stop: int | None = None
    newest_ms: int | None = None


class Regions:
    """Tells the regions of a table that a filter may match.

    Args:
        schema: of the table. Columns that it does not have cannot be in a filter.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._partitions: dict[tuple[str, int], pc.Expression] = {}
        self._format, self._files = ds.IpcFileFormat(), pyarrow.fs.LocalFileSystem()

    def matching(self, predicate: pc.Expression, regions: Sequence[Region]) -> list[Region]:
        """Those that may hold a record for which ``predicate`` is true, in their order. Others hold none."""
        files = [
            self._format.make_fragment(str(at), self._files, partition_expression=self._guarantee(region))
            for at, region in enumerate(regions)
        ]
        dataset = ds.FileSystemDataset(files, self._schema, self._format, self._files)
        try:
            chosen = {int(fragment.path) for fragment in dataset.get_fragments(filter=predicate)}
        except pa.ArrowInvalid:  # a filter may have no value at an offset that no record has: 3 * offset is too large
            return list(regions)
        return [region for at, region in enumerate(regions) if at in chosen]

    def _guarantee(self, region: Region) -> pc.Expression:
        """What is true of every record of a region."""
        told = self._of_partition(region.topic, region.partition)
        for name, low, high in (
            ("offset", region.start, None if region.stop is None or region.stop > _LARGEST else region.stop - 1),
            *_times(region.newest_ms),
        ):
            if name not in self._schema.names:
                continue
            kind, field = self._schema.field(name).type, pc.field(name)
            if low is not None and low == high:
                told = told & (field == pa.scalar(low, kind))
                continue
            if low is not None:
                told = told & (field >= pa.scalar(low, kind))
            if high is not None:
                told = told & (field <= pa.scalar(high, kind))
        return told

    def _of_partition(self, topic: str, partition: int) -> pc.Expression:
        if (topic, partition) not in self._partitions:
            told = pc.scalar(True)
            for name, value in (("topic", topic), ("partition", partition)):
                if name in self._schema.names:
                    told = told & (pc.field(name) == pa.scalar(value, self._schema.field(name).type))
            self._partitions[topic, partition] = told
        return self._partitions[topic, partition]


def _times(newest_ms: int | None) -> list[tuple[str, None, int]]:
    """The largest value of each column of times."""
    if newest_ms is None:
        return []
    columns: list[tuple[str, None, int]] = [("timestamp_ms", None, newest_ms)]
    if newest_ms * 1000 <= _LARGEST:
        columns.append(("timestamp", None, newest_ms * 1000))
    return columns
