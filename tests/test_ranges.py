from __future__ import annotations

import pytest

from segreader.ranges import ByteRange, OffsetRange


def test_a_byte_range_is_half_open_and_http_names_its_last_byte() -> None:
    assert (ByteRange(10, 20).size, ByteRange(10, 20).http_header()) == (10, "bytes=10-19")


@pytest.mark.parametrize(("start", "stop"), [(5, 5), (6, 5), (-1, 5)])
def test_an_impossible_byte_range_cannot_be_made(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="not a byte range"):
        ByteRange(start, stop)


def test_an_offset_range_holds_its_start_and_not_its_stop() -> None:
    assert [offset for offset in range(8) if offset in OffsetRange(3, 6)] == [3, 4, 5]
    assert 10**18 in OffsetRange(3)
    with pytest.raises(ValueError, match="not an offset range"):
        OffsetRange(5, 4)
