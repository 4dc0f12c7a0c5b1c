from __future__ import annotations

import pytest

from segreader.errors import CorruptBatchError, FormatError, TruncatedError, UnsupportedMagicError
from segreader.format.batch import TimestampType, check_common, parse_batch_header

# Written by hand, field by field: a transactional batch with a gap (base 200, last offset delta 4, two records).
GOLDEN = bytes.fromhex(
    "00000000000000c8"  # base offset 200
    "00000042"  # batch length 66
    "00000003"  # partition leader epoch 3
    "02"  # magic
    "4c65bf95"  # crc
    "0010"  # attributes: transactional
    "00000004"  # last offset delta
    "0000018bcfe56800"  # base timestamp
    "0000018bcfe568fa"  # max timestamp: +250
    "0000000000000fa0"  # producer id 4000
    "0007"  # producer epoch
    "00000000"  # base sequence
    "00000002"  # records
    "1000000002610231000e00f40308010100"
)


def test_every_field_of_a_golden_header_is_read() -> None:
    header = parse_batch_header(GOLDEN)
    assert (header.base_offset, header.batch_length, header.size) == (200, 66, len(GOLDEN) == 78 and 78)
    assert (header.partition_leader_epoch, header.magic, header.crc) == (3, 2, 0x4C65BF95)
    assert (header.last_offset_delta, header.last_offset, header.next_offset) == (4, 204, 205)
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_000_250)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 7, 0)
    assert (header.record_count, header.last_sequence) == (2, 4)
    assert (header.is_transactional, header.is_control, header.codec) == (True, False, 0)
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert header.delete_horizon_ms is None


def test_a_header_cut_at_any_byte_is_truncated() -> None:
    for size in range(61):
        with pytest.raises(TruncatedError, match=f"{size} bytes"):
            parse_batch_header(GOLDEN[:size])


def test_every_flipped_bit_of_a_header_is_a_value_or_a_format_error() -> None:
    data = bytearray(GOLDEN)
    for bit in range(8 * 61):
        data[bit // 8] ^= 1 << bit % 8
        try:
            assert parse_batch_header(data) != parse_batch_header(GOLDEN)
        except FormatError as error:
            assert error.position is not None
            assert error.found is not None
        data[bit // 8] ^= 1 << bit % 8


def test_an_unknown_magic_names_its_byte() -> None:
    data = bytearray(GOLDEN)
    data[16] = 3
    with pytest.raises(UnsupportedMagicError, match="magic 3") as caught:
        check_common(data, 0, shift=1000)
    assert (caught.value.position, caught.value.base_offset) == (1016, 200)


def test_a_size_beyond_the_callers_limit_is_refused_before_it_is_held() -> None:
    with pytest.raises(CorruptBatchError, match="larger than the limit"):
        check_common(GOLDEN, 0, max_size=77)
