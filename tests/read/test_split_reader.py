from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from corpus import CORPUS
from sample import exhaustive

import segreader
from segreader.errors import CorruptBatchError, SegreaderError, TruncatedError
from segreader.plan.request import ReadOptions, Request
from segreader.read.batch_order import out_of_order
from segreader.scans import Scan
from segreader.stored.source import Catalog, LocationSource
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_broker_log, write_local_tiered
from segreader.testing.records import ProducerRecord
from segreader.testing.stores import MemoryStore


@pytest.mark.parametrize(
    ("bases", "lasts", "wrong"),
    [
        ([0, 5, 9], [4, 8, 9], []),
        ([0, 5, 9], [4, 8, 12], []),
        ([0, 500, 9, 13], [4, 503, 12, 13], [(1, 4)]),  # jumped ahead
        ([0, 500, 9], [4, 503, 12], [(1, 4), (2, 4)]),  # or the last one fell back
        ([0, 1, 21], [8, 12, 30], [(1, 8)]),  # fell back between the offsets of the one before
        ([0, 20, 25, 50], [4, 28, 32, 52], [(1, 4), (2, 4)]),  # nothing tells, as where batches were removed
        ([0, 5, 1, 9], [4, 8, 2, 12], [(2, 8)]),  # fell back
        ([500, 5], [504, 8], [(0, -1), (1, -1)]),
        ([0, 500, 9, 13, 2], [4, 503, 12, 14, 3], [(1, 4), (4, 14)]),
    ],
)
def test_the_batch_that_breaks_the_order_is_found(
    bases: list[int], lasts: list[int], wrong: list[tuple[int, int]]
) -> None:
    assert out_of_order(bases, lasts, -1) == wrong


def test_what_is_known_of_the_log_tells_which_of_two_batches_is_wrong() -> None:
    bases, lasts = [0, 500, 9], [4, 503, 12]
    assert out_of_order(bases, lasts, -1, most=499) == [(1, 4)]
    assert out_of_order(bases, lasts, -1, following=13) == [(1, 4)]
    assert out_of_order([9, 13], [12, 13], 4, is_doubted=True) == []
    assert out_of_order([9, 14], [12, 14], 4, is_doubted=True) == [(0, 4)]


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


def test_no_flipped_bit_of_a_base_offset_moves_records_to_other_offsets(tmp_path: Path) -> None:
    built = SegmentBuilder()
    for size in (9, 12, 22, 1, 3):
        built.batch([b"%d" % (built.next_offset + number) for number in range(size)])
    file = next(write_local_tiered(tmp_path, "orders", [built, built.roll().batch([b"47"])]).glob("*0000-*.log"))
    data = file.read_bytes()
    bases = [int.from_bytes(data[at : at + 8]) for at in built.batch_positions]

    def read(on_corrupt: str) -> list[int]:
        given: list[int] = []
        with contextlib.suppress(SegreaderError):
            for record in segreader.scan(tmp_path, on_corrupt=on_corrupt).records():
                assert record.value == b"%d" % record.offset
                given.append(record.offset)
        return given

    for base, stop, at in zip(bases, (*bases[1:], 47), built.batch_positions, strict=True):
        for bit in range(8):
            file.write_bytes(data[: at + 7] + bytes([data[at + 7] ^ 1 << bit]) + data[at + 8 :])
            assert read("fail") == list(range(base))
            given = read("skip")
            assert given[:base] == list(range(base))
            assert set(given).isdisjoint(range(base, stop))


def test_an_offset_index_that_lost_a_row_makes_no_sound_batch_wrong(tmp_path: Path) -> None:
    """A split of it then goes on beyond the offsets that another segment takes over."""
    source = CORPUS / "cluster" / "remote" / "kafka-tiered-storage"
    (place,) = source.glob("diverged-mid-0-*")
    files = {f"{place.name}/{file.name}": file.read_bytes() for file in place.iterdir()}
    (index,) = (name for name in files if "/00000000000000000000-1nSv" in name and name.endswith(".index"))
    files[index] = files[index][:8] + files[index][16:]
    for threads in (1, 3):
        options = ReadOptions(split_bytes=1, threads=threads)
        opened = LocationSource("", opened=(MemoryStore(files), ""), catalog=Catalog())
        given = Scan(opened, Request(topic="diverged-mid"), options).to_arrow()
        assert given.num_rows == segreader.scan(source.parent, topic="diverged-mid").to_arrow().num_rows == 48


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


def test_the_end_of_a_live_log_is_not_where_the_index_names_a_batch_behind_it(tmp_path: Path) -> None:
    segment = SegmentBuilder(index_interval_bytes=1)
    for _ in range(5):
        segment.batch([ProducerRecord(b"v" * 50)])
    place = write_broker_log(tmp_path, "orders", [segment])
    (log,) = place.glob("*.log")
    data = bytearray(log.read_bytes())
    size = len(data) // 5
    assert len(list(segreader.scan(tmp_path, topic="orders").records())) == 5
    data[size + 9] ^= 0x20  # the second batch says that it is larger than what follows
    log.write_bytes(data)

    with pytest.raises(TruncatedError):
        list(segreader.scan(tmp_path, topic="orders").records())

    log.write_bytes(data[: size + 100])  # the rest was not written yet, as far as anyone can tell
    (place / f"{log.stem}.index").write_bytes(b"")
    assert len(list(segreader.scan(tmp_path, topic="orders").records())) == 1
