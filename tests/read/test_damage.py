"""What damage may never do: lose records in silence, invent them, or show what was aborted."""

from __future__ import annotations

from pathlib import Path

import pytest

import segreader
from segreader.errors import (
    CorruptBatchError,
    FormatError,
    ObjectNotFoundError,
    SegreaderError,
    UnknownLayoutError,
)
from segreader.format.compression import Codec
from segreader.plan.split import EndReason
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_broker_log, write_local_tiered


def lay_out(root: Path, *segments: SegmentBuilder, changes: dict[int, bytes] | None = None) -> Path:
    """Write a partition; ``changes`` are bytes to put into the first segment's log."""
    log = min(write_local_tiered(root, "orders", segments).glob("*.log"))
    data = bytearray(log.read_bytes())
    for at, new in (changes or {}).items():
        data[at : at + len(new)] = new
    log.write_bytes(data)
    return log


def read(scan: segreader.Scan | segreader.LiveScan) -> tuple[list[int], SegreaderError | None]:
    """The offsets that come before the end or an error, and the error."""
    seen: list[int] = []
    try:
        for record in scan.records():
            seen.append(record.offset)
    except SegreaderError as error:
        return seen, error
    return seen, None


@pytest.mark.parametrize("kernel", ["native", "reference"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_large_message_set_goes_on_after_each_full_batch(tmp_path: Path, codec: Codec, kernel: str) -> None:
    built = SegmentBuilder(0).message_set([b"x" * 40] * 3000, magic=1, codec=codec)
    lay_out(tmp_path, built)
    for rows in (10_000, 700):
        assert read(segreader.scan(tmp_path, kernel=kernel, batch_rows=rows)) == (list(range(3000)), None)


@pytest.mark.parametrize("kernel", ["native", "reference"])
def test_old_and_new_batches_alternate_whatever_the_batch_size(tmp_path: Path, kernel: str) -> None:
    built = SegmentBuilder(0).message_set([b"a"] * 3, magic=0).batch([b"b"] * 3, codec=Codec.LZ4)
    built.message_set([b"c"] * 6, magic=1, codec=Codec.GZIP).batch([b"d"])
    write_broker_log(tmp_path, "orders", [built])
    for rows in (1, 2, 5, 100):
        assert read(segreader.scan(tmp_path, kernel=kernel, batch_rows=rows)) == (list(range(13)), None)


def test_a_marker_at_a_wrong_offset_swallows_nothing(tmp_path: Path) -> None:
    built = SegmentBuilder(0)
    for _ in range(3):
        built.batch([b"x"])
    built.batch([b"t"], producer_id=4, transactional=True).marker(4)
    for _ in range(5):
        built.batch([b"y"])
    lay_out(tmp_path, built, changes={built.batch_positions[4]: (1 << 40).to_bytes(8, "big")})
    seen, error = read(segreader.scan(tmp_path, on_corrupt="skip"))
    assert (seen, error) == ([0, 1, 2, 3, 5, 6, 7, 8, 9], None)


@pytest.mark.parametrize("batch", range(11))
def test_a_wrong_offset_is_seen_where_batches_are_as_large_as_pieces(tmp_path: Path, batch: int) -> None:
    built = SegmentBuilder(0)
    for index in range(12):
        built.batch([bytes([index]) * 700_000])
    lay_out(tmp_path, built, changes={built.batch_positions[batch]: (1 << 40).to_bytes(8, "big")})
    for offsets in (None, "0:11"):
        seen, error = read(segreader.scan(tmp_path, offsets=offsets))
        assert seen == list(range(batch))
        assert isinstance(error, CorruptBatchError)
        assert error.position == built.batch_positions[batch]
    seen, error = read(segreader.scan(tmp_path, on_corrupt="skip"))
    assert (seen, error) == ([offset for offset in range(12) if offset != batch], None)


def test_a_last_offset_is_not_believed_before_its_crc(tmp_path: Path) -> None:
    built = SegmentBuilder(0)
    for _ in range(5):
        built.batch([b"x"])
    wrong = {built.batch_positions[4] + 23: (1 << 20).to_bytes(4, "big")}
    lay_out(tmp_path, built, built.roll().batch([b"z"]), changes=wrong)
    seen, error = read(segreader.scan(tmp_path))
    assert seen == [0, 1, 2, 3]
    assert "CRC" in str(error)
    assert read(segreader.scan(tmp_path, on_corrupt="skip")) == ([0, 1, 2, 3, 5], None)


def test_damage_behind_the_wanted_range_does_not_fail_the_read(tmp_path: Path) -> None:
    built = SegmentBuilder(0)
    for _ in range(20):
        built.batch([b"x"])
    lay_out(tmp_path, built, changes={built.batch_positions[15]: (3).to_bytes(8, "big")})
    assert read(segreader.scan(tmp_path, offsets="0:5")) == ([0, 1, 2, 3, 4], None)


@pytest.mark.parametrize("write", [write_local_tiered, write_broker_log])
def test_behind_damage_nothing_aborted_is_shown(tmp_path: Path, write: object) -> None:
    built = SegmentBuilder(0, index_interval_bytes=1)
    for _ in range(5):
        built.batch([b"x"])
    built.batch([b"no"], producer_id=7, transactional=True).marker(7, abort=True).batch([b"y"])
    place = (write_local_tiered if write is write_local_tiered else write_broker_log)(tmp_path, "orders", [built])
    log = next(place.glob("*.log"))
    for snapshot in place.glob("*.snapshot"):
        snapshot.write_bytes(b"damaged")
    data = bytearray(log.read_bytes())
    at = built.batch_positions[3]
    data[at + 8 : at + 12] = (5).to_bytes(4, "big")
    log.write_bytes(data)
    seen, error = read(segreader.scan(tmp_path))
    assert seen == [0, 1, 2]
    assert isinstance(error, FormatError)
    for offsets, on_corrupt in (("5:", "fail"), ("5:", "skip"), (None, "skip")):
        scan = segreader.scan(tmp_path, offsets=offsets, on_corrupt=on_corrupt)
        seen, error = read(scan)
        assert not {5, 6, 7} & set(seen)
        assert isinstance(error, FormatError) is (on_corrupt == "fail")
        assert scan.plan().ends[0].reason is EndReason.DAMAGE


def test_a_missing_partition_is_told_also_without_a_topic(tmp_path: Path) -> None:
    lay_out(tmp_path, SegmentBuilder(0).batch([b"x"]))
    with pytest.raises(ObjectNotFoundError, match="partition 7"):
        segreader.scan(tmp_path, partitions=[0, 7]).plan()


def test_urls_that_name_no_segment_are_no_empty_table() -> None:
    with pytest.raises(UnknownLayoutError, match="no URL of the list"):
        segreader.scan(urls=["https://127.0.0.1:9/blob/123?sig=x"]).plan()
