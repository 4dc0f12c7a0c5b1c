from __future__ import annotations

import random
from pathlib import Path

import pytest
from sample import exhaustive

import segreader
from segreader.errors import CorruptBatchError, SegreaderError
from segreader.read.batch_order import out_of_order
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered


@pytest.mark.parametrize(
    ("bases", "lasts", "wrong"),
    [
        ([0, 5, 9], [4, 8, 9], []),
        ([0, 5, 9], [4, 8, 12], []),
        ([0, 500, 9], [4, 503, 12], [(1, 4)]),  # jumped ahead
        ([0, 5, 1, 9], [4, 8, 2, 12], [(2, 8)]),  # fell back
        ([500, 5], [504, 8], [(0, -1)]),
        ([0, 500, 9, 13, 2], [4, 503, 12, 14, 3], [(1, 4), (4, 14)]),
    ],
)
def test_the_batch_that_breaks_the_order_is_found(
    bases: list[int], lasts: list[int], wrong: list[tuple[int, int]]
) -> None:
    assert out_of_order(bases, lasts, -1) == wrong


def segment(root: Path) -> tuple[SegmentBuilder, Path]:
    built = SegmentBuilder(1000)
    for index in range(20):
        built.batch([b"%d" % index] * 3)
    return built, next(write_local_tiered(root, "orders", [built, built.roll().batch([b"z"])]).glob("*1000-*.log"))


@pytest.mark.parametrize("base", [1, 1000 + 7 * 3 + 1, 1040, 5000, 1 << 40])
def test_a_wrong_base_offset_is_neither_delivered_nor_swallowed(tmp_path: Path, base: int) -> None:
    built, file = segment(tmp_path)
    data, at = bytearray(file.read_bytes()), built.batch_positions[7]
    data[at : at + 8] = base.to_bytes(8, "big")
    file.write_bytes(data)
    seen: list[int] = []
    with pytest.raises(CorruptBatchError, match="between its neighbours") as caught:
        seen.extend(record.offset for record in segreader.scan(tmp_path).records())
    assert caught.value.position == at
    scan = segreader.scan(tmp_path, on_corrupt="skip")
    assert [r.offset for r in scan.records()] == [*range(1000, 1021), *range(1024, 1061)]
    assert [(hole.start, hole.stop) for hole in scan.metrics.holes] == [(at, built.batch_positions[8])]


@pytest.mark.parametrize("flips", [500, exhaustive(3000)])
def test_no_flipped_bit_of_a_segment_changes_what_is_read_without_an_error(tmp_path: Path, flips: int) -> None:
    """Random flips: the leader epoch, which stands outside the CRC, is held against the checkpoint."""
    built, file = segment(tmp_path)
    good, data, chance = segreader.scan(tmp_path).to_arrow(), bytearray(file.read_bytes()), random.Random(5)
    epochs = 0
    for _ in range(flips):
        bit = chance.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
        within = bit // 8 - max(at for at in built.batch_positions if at <= bit // 8)
        try:
            same = segreader.scan(tmp_path, isolation_level="read_uncommitted").to_arrow().equals(good)
            assert same, f"a flip in byte {within} of a batch changed what is read"
            assert within == 12, f"a flip in byte {within} of a batch went unseen"
        except SegreaderError as error:
            assert error.source
            epochs += 12 <= within < 16
        data[bit // 8] ^= 1 << bit % 8
    assert epochs > 0
