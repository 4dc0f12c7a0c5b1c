"""Logs: their ends, batches and names. Each defect is planted into a sound partition, and nothing else is found."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from planted import Planted, sound_log

from segreader.format.compression import Codec
from segreader.testing.batches import Lies
from segreader.testing.builder import SegmentBuilder


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return Planted(tmp_path)


def with_crc(batch: bytes | bytearray) -> bytes:
    """The batch with the checksum that its bytes have."""
    return bytes(batch[:17]) + struct.pack(">I", crc32c(bytes(batch[21:]))) + bytes(batch[21:])


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("left_out", [1, 30, 61, 75])
def test_a_finished_log_that_ends_inside_a_batch_is_truncated(planted: Planted, number: int, left_out: int) -> None:
    planted.put(number, "log", planted.data(number, "log")[:-left_out])

    assert planted.codes_of_both() == {"truncated-log"}


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("batch", [0, 1, 5, 11])
def test_a_finished_log_that_lacks_whole_batches_is_truncated(planted: Planted, number: int, batch: int) -> None:
    planted.put(number, "log", planted.data(number, "log")[: planted.segments[number].batch_positions[batch]])

    assert planted.codes_of_both() == {"truncated-log"}


def test_zeros_at_the_end_of_a_finished_log(planted: Planted) -> None:
    planted.put(1, "log", planted.data(1, "log") + bytes(4096))

    assert planted.codes_of_both() == {"zero-tail"}


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("with_index", [True, False])
def test_many_zeros_at_the_end_of_a_finished_log(planted: Planted, number: int, with_index: bool) -> None:
    planted.put(number, "log", planted.data(number, "log") + bytes(20 << 20))
    if not with_index:
        planted.put(number, "index", b"")

    assert "zero-tail" in planted.codes()


def test_a_last_batch_of_which_many_bytes_are_lost(tmp_path: Path) -> None:
    first = SegmentBuilder(0, index_interval_bytes=1).batch([b"0"])
    planted = Planted(tmp_path, [first.batch([b"1"]).batch([bytes(20 << 20)])])
    whole = planted.data(0, "log")
    assert planted.codes() == set()
    planted.put(0, "log", whole[:-5])
    assert planted.codes() == {"truncated-log"}


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("size", [5, 17, 40, 400])
def test_garbage_at_the_end_of_a_finished_log(planted: Planted, number: int, size: int) -> None:
    planted.put(number, "log", planted.data(number, "log") + b"\xa5" * size)

    codes = planted.codes_of_both()

    assert codes == ({"garbage-tail"} if number == 0 or size >= 8 else {"truncated-log"})


@pytest.mark.parametrize("batch", [0, 5, -1])
def test_a_flipped_bit_in_records_fails_the_checksum_and_only_deep_sees_it(planted: Planted, batch: int) -> None:
    data = planted.data(1, "log")
    data[planted.segments[1].batch_positions[batch] + 65] ^= 1
    planted.put(1, "log", data)

    assert planted.codes() == set()
    assert planted.codes(deep=True) == {"crc-mismatch"}


def test_what_is_under_the_checksum_is_found_with_its_place(planted: Planted) -> None:
    data, start = planted.data(1, "log"), planted.segments[1].batch_positions[3]
    data[start + 70] ^= 0x10
    planted.put(1, "log", data)

    (finding,) = planted.find(deep=True)

    assert (finding.position, finding.offset) == (start, planted.segments[1].base_offset + 6)
    assert finding.object.endswith(planted.name(1, "log"))


@pytest.mark.parametrize("batch", [2, 11])
def test_an_impossible_size_hides_all_that_follows(planted: Planted, batch: int) -> None:
    data, at = planted.data(1, "log"), planted.segments[1].batch_positions[batch]
    data[at + 8 : at + 12] = struct.pack(">i", 13)
    planted.put(1, "log", data)

    assert planted.codes(deep=True) == {"broken-batch"}


def test_an_unknown_magic_is_told(planted: Planted) -> None:
    data = planted.data(1, "log")
    data[planted.segments[1].batch_positions[3] + 16] = 7
    planted.put(1, "log", data)

    assert planted.codes(deep=True) == {"unsupported-magic"}


def planted_batch(root: Path, lies: Lies, codec: int = Codec.NONE) -> Planted:
    """A log whose second batch lies."""
    segment = SegmentBuilder(0, index_interval_bytes=200).batch([b"a"]).batch([b"b", b"c"], codec=codec, lies=lies)
    return Planted(root, [segment.batch([b"d"])])


def test_records_that_do_not_decode_under_a_right_checksum(tmp_path: Path) -> None:
    assert planted_batch(tmp_path, Lies(record_count=3)).codes(deep=True) == {"undecodable-records"}


def test_a_body_that_does_not_decompress(tmp_path: Path) -> None:
    planted = Planted(tmp_path, [SegmentBuilder(0).batch([b"a" * 200], codec=Codec.ZSTD).batch([b"b"])])
    data = planted.data(0, "log")
    size = struct.unpack_from(">i", data, 8)[0] + 12
    broken = bytearray(data[:size])
    broken[61:65] = b"\xff" * 4
    planted.put(0, "log", with_crc(broken) + data[size:])

    assert planted.codes(deep=True) == {"undecodable-records"}


def test_a_codec_that_does_not_exist(tmp_path: Path) -> None:
    planted = Planted(tmp_path, [SegmentBuilder(0).batch([b"a"]).batch([b"b"])])
    data = planted.data(0, "log")
    at = planted.segments[0].batch_positions[1]
    broken = data[at:]
    broken[22] |= 6
    planted.put(0, "log", data[:at] + with_crc(broken))

    assert planted.codes(deep=True) == {"unsupported-codec"}


def test_batches_whose_offsets_go_back(planted: Planted) -> None:
    data, positions = planted.data(1, "log"), planted.segments[1].batch_positions
    data[positions[4] : positions[4] + 8] = struct.pack(">q", planted.segments[1].base_offset + 1)
    planted.put(1, "log", data)

    assert planted.codes(deep=True) == {"offsets-not-rising"}


def test_a_batch_beyond_the_end_of_its_log_in_a_log_directory_is_outside(tmp_path: Path) -> None:
    planted = Planted(tmp_path)
    data = planted.data(1, "log")
    at = planted.segments[1].batch_positions[-1]
    data[at : at + 8] = struct.pack(">q", 200)
    name = "orders-0/{:020d}.log".format
    planted.files = {name(one.base_offset): one.to_bytes() for one in planted.segments}
    planted.files[name(30)] = bytes(data)

    assert "batch-outside-segment" in planted.codes(deep=True)


def test_a_largest_timestamp_that_is_not_the_records(tmp_path: Path) -> None:
    planted = planted_batch(tmp_path, Lies(max_timestamp=5))
    planted.put(0, "timeindex", b"")

    assert "wrong-max-timestamp" in planted.codes(deep=True)


@pytest.mark.parametrize("base_offset", [0, 29, 31, 40, 60])
def test_an_offset_in_the_name_that_lies_is_told(tmp_path: Path, base_offset: int) -> None:
    planted = Planted(tmp_path, sound_log())
    planted.rename(1, base_offset)

    codes = planted.codes_of_both()

    assert codes == {"wrong-base-offset"}


def test_the_last_segment_under_a_higher_offset_is_told(planted: Planted) -> None:
    planted.rename(2, 63)

    assert planted.codes_of_both() == {"wrong-base-offset"}


def test_many_findings_of_one_kind_are_counted_and_not_all_shown(tmp_path: Path) -> None:
    segment = SegmentBuilder(0)
    for _ in range(100):
        segment.batch([b"x"])
    planted = Planted(tmp_path, [segment])
    data = planted.data(0, "log")
    for at in segment.batch_positions:
        data[at + 65] ^= 1
    planted.put(0, "log", data)

    found = planted.find(deep=True)

    assert len(found) == 21
    assert found[-1].explanation == "and 80 more of this kind"
