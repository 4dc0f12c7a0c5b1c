"""A remote tier that grows while it is read: partitions whose segments are uploaded one by one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid, write_local_tiered

_BATCH = 10


class GrowingLog:
    """Topics below ``root`` as ``LocalTieredStorage`` lays them out; the record at offset n has the value ``b"n"``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._last: dict[tuple[str, int], SegmentBuilder] = {}

    def upload(
        self, topic: str, partition: int, records: int, *, batch: int = 10, open_transaction: bool = False
    ) -> int:
        """Add one segment of so many records; the log's end.

        Args:
            open_transaction: the last batch is of a transaction that nothing ends.
        """
        before = self._last.get((topic, partition))
        segment = SegmentBuilder() if before is None else before.roll()
        for start in range(0, records, _BATCH):
            values = [b"%d" % (segment.next_offset + at) for at in range(min(_BATCH, records - start))]
            is_last = start + _BATCH >= records
            if open_transaction and is_last:
                segment.batch(values, producer_id=7, producer_epoch=0, transactional=True)
            else:
                segment.batch(values)
        return self._write(topic, partition, segment)

    def end_transaction(self, topic: str, partition: int) -> int:
        """Add a segment that holds nothing but the marker of the open transaction; the log's end."""
        segment = self._last[topic, partition].roll()
        return self._write(topic, partition, segment.marker(7))

    def delete_oldest(self, topic: str, partition: int) -> None:
        """What retention does."""
        directory = self._directory(topic, partition)
        oldest = min(path.name[:20] for path in directory.iterdir())
        for path in directory.glob(f"{oldest}-*"):
            path.unlink()

    def delete(self, topic: str, partition: int) -> None:
        """Everything of a partition."""
        shutil.rmtree(self._directory(topic, partition))
        del self._last[topic, partition]

    def logs(self) -> Iterator[Path]:
        """The log files, by name."""
        yield from sorted(self.root.glob("*/*.log"))

    def _directory(self, topic: str, partition: int) -> Path:
        return self.root / f"{topic}-{partition}-{kafka_uuid(topic)}"

    def _write(self, topic: str, partition: int, segment: SegmentBuilder) -> int:
        write_local_tiered(self.root, topic, [segment], partition=partition)
        self._last[topic, partition] = segment
        return segment.next_offset


class LostMarker:
    """Topic ``orders`` whose COMMIT at offset 8, of the records at 0 to 4, an unclean election takes away.

    Another transaction is open from offset 5 on, so ``read_committed`` ends there: the marker lies behind.
    """

    def __init__(self, root: Path, topic: str = "orders", *, decided: bool = False) -> None:
        self.root, self._topic = root, topic
        data = SegmentBuilder(leader_epoch=5).batch([b"a"] * 5, producer_id=7, transactional=True)
        if decided:
            data.marker(7)
        self._data = data.batch([b"b"] * 3, producer_id=8, transactional=True)
        dead = data.roll().marker(7).batch([b"b"] * 2, producer_id=8, transactional=True)
        write_local_tiered(root, topic, [data, dead])

    def elect(self, *, abort: bool = True) -> None:
        """The new leader, of epoch 6, ends both transactions, and uploads."""
        live = self._data.roll().new_leader(6)
        live.marker(7, abort=abort).marker(8, abort=abort).batch([b"c"] * 4)
        write_local_tiered(self.root, self._topic, [live])
