from __future__ import annotations

import base64
import contextlib
from collections.abc import Generator
from itertools import accumulate

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from segreader.catalog.layouts.aiven.chunks import (
    ChunkIndex,
    cut_chunks,
    decode_chunk_sizes,
    fixed_chunks,
    parse_chunk_sizes,
    variable_chunks,
)
from segreader.errors import ManifestError, ShortReadError
from segreader.ranges import ByteRange

LISTS = [
    ([], "00000000"),
    ([7], "0000000100000007"),
    ([1000, 1300, 999, 50], "00000004 000003e7 02 0001 012d 0000 00000032"),
    ([4000000, 4100000, 3999999, 12], "00000004 003d08ff 03 000001 0186a1 000000 0000000c"),
    (
        [221, 212, 219, 223, 268, 211, 216, 215, 227, 211, 208, 218, 224, 133],
        "0000000e 000000d0 01 0d 04 0b 0f 3c 03 08 07 13 03 00 0a 10 00000085",
    ),
    ([1005], "00000001 000003ed"),
    ([80, 91, 69], "00000003 00000050 01 00 0b 00000045"),
]
TEXTS = {
    "KLUv/SAa0QAAAAAADgAAANABDQQLDzwDCAcTAwAKEAAAAIU=": LISTS[4][0],
    "KLUv/SAIQQAAAAAAAQAAA+0=": LISTS[5][0],
    "KLUv/SAPeQAAAAAAAwAAADQBAAsAAAAp": [52, 63, 41],
    "KLUv/SAPeQAAAAAAAwAAAFABAAsAAABF": LISTS[6][0],
}


@pytest.mark.parametrize(("sizes", "data"), LISTS)
def test_lists_of_the_plugin_are_decoded(sizes: list[int], data: str) -> None:
    assert list(parse_chunk_sizes(bytes.fromhex(data))) == sizes


@pytest.mark.parametrize("text", TEXTS)
def test_texts_of_the_plugin_are_decoded(text: str) -> None:
    assert list(decode_chunk_sizes(text)) == TEXTS[text]


@pytest.mark.parametrize(("sizes", "data"), LISTS)
def test_a_list_cut_or_made_longer_is_refused(sizes: list[int], data: str) -> None:
    whole = bytes.fromhex(data)
    for size in range(len(whole)):
        with pytest.raises(ManifestError):
            parse_chunk_sizes(whole[:size])
    with pytest.raises(ManifestError):
        parse_chunk_sizes(whole + b"\0")


@pytest.mark.parametrize(
    "data",
    [
        "ffffffff",  # a negative count
        "7fffffff 00000001 01 00 00000001",  # a count that the bytes do not bear out
        "00000001 ffffffff",  # a negative size
        "00000002 ffffffff 01 00 00000001",  # a negative base
        "00000002 00000001 00 00000001",  # no bytes for a size
        "00000002 00000001 05 0000000000 00000001",  # five bytes for a size
        "00000002 7fffffff 04 ffffffff 00000001",  # more than any chunk has
    ],
)
def test_a_list_that_lies_is_refused(data: str) -> None:
    with pytest.raises(ManifestError, match="malformed"):
        parse_chunk_sizes(bytes.fromhex(data))


def framed(data: bytes, **how: bool) -> str:
    return base64.b64encode(zstandard.ZstdCompressor(**how).compress(data)).decode()  # type: ignore[arg-type]


def test_a_list_that_would_take_more_than_ten_mebibytes_is_refused_before_it_is_made() -> None:
    with pytest.raises(ManifestError, match="too long"):
        decode_chunk_sizes(framed(bytes((10 << 20) + 1)))
    with pytest.raises(ManifestError, match="too long"):
        decode_chunk_sizes(framed(bytes.fromhex(LISTS[2][1]), write_content_size=False))


@pytest.mark.parametrize(
    "text", ["", "?", "KLUv", "KLUv/SAIQQAAAAAAAQAAA+0", "ÄÖÜ=", framed(b""), framed(b"x") + "AAAA"]
)
def test_a_text_that_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        decode_chunk_sizes(text)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_list_or_refused(data: bytes) -> None:
    with contextlib.suppress(ManifestError):
        parse_chunk_sizes(data)


@given(st.data())
def test_a_range_maps_to_the_chunks_that_hold_its_bytes(data: st.DataObject) -> None:
    """Against brute force: each byte of the file carries its chunk, each byte of the object too."""
    chunk_size = data.draw(st.integers(1, 9))
    file_size = data.draw(st.integers(1, 40))
    count = -(-file_size // chunk_size)
    if data.draw(st.booleans()):
        one, last = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))
        sizes = [one] * (count - 1) + [last]
        index = fixed_chunks(chunk_size, file_size, one, last)
    else:
        sizes = data.draw(st.lists(st.integers(1, 12), min_size=count, max_size=count))
        index = variable_chunks(chunk_size, file_size, sizes)
    start = data.draw(st.integers(0, file_size - 1))
    wanted = ByteRange(start, data.draw(st.integers(start + 1, file_size)))

    chunk_of_byte = [position // chunk_size for position in range(file_size)]
    chunk_of_stored_byte = [chunk for chunk, size in enumerate(sizes) for _ in range(size)]
    touched = set(chunk_of_byte[wanted.start : wanted.stop])
    stored = index.stored_range(index.chunks_of(wanted))

    assert list(index.chunks_of(wanted)) == sorted(touched)
    assert [at for at, chunk in enumerate(chunk_of_stored_byte) if chunk in touched] == list(
        range(stored.start, stored.stop)
    )
    assert list(index.stored_sizes(range(count))) == sizes
    assert index.stored_size == sum(sizes)
    assert [index.original_range(chunk).size for chunk in range(count)] == [
        chunk_of_byte.count(chunk) for chunk in range(count)
    ]


def test_the_chunks_of_the_worked_example_lie_where_it_says() -> None:
    index = fixed_chunks(64, 160, 92, 60)
    assert [index.stored_range(range(at, at + 1)) for at in range(3)] == [
        ByteRange(0, 92),
        ByteRange(92, 184),
        ByteRange(184, 244),
    ]
    assert index.stored_range(index.chunks_of(ByteRange(70, 131))) == ByteRange(92, 244)


def test_an_empty_file_has_no_chunks() -> None:
    for index in (fixed_chunks(64, 0, 64, 0), variable_chunks(64, 0, [])):
        assert (len(index), index.stored_size) == (0, 0)


@pytest.mark.parametrize(("file_size", "stored", "last"), [(0, 64, 1), (1, 64, 0), (65, 0, 1), (64, 64, 0)])
def test_fixed_sizes_that_do_not_fit_the_file_are_refused(file_size: int, stored: int, last: int) -> None:
    with pytest.raises(ManifestError, match="contradict"):
        fixed_chunks(64, file_size, stored, last)


@pytest.mark.parametrize("sizes", [[], [1], [1, 2, 3, 4], [1, 0, 2]])
def test_variable_sizes_that_do_not_fit_the_file_are_refused(sizes: list[int]) -> None:
    with pytest.raises(ManifestError):
        variable_chunks(64, 160, sizes)


def test_an_index_of_two_billion_chunks_takes_no_memory() -> None:
    index: ChunkIndex = fixed_chunks(1, (1 << 31) - 1, 29, 29)
    assert index.stored_range(range(1 << 30, (1 << 30) + 1)) == ByteRange(29 << 30, (29 << 30) + 29)


@given(st.lists(st.integers(1, 9), max_size=8), st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_chunks_are_cut_alike_from_pieces_of_any_size(sizes: list[int], piece_sizes: list[int]) -> None:
    data = bytes(range(sum(sizes)))

    def pieces() -> Generator[memoryview, None, None]:
        position = turn = 0
        while position < len(data):
            size = piece_sizes[turn % len(piece_sizes)]
            buffer = bytearray(data[position : position + size])
            yield memoryview(buffer)
            buffer[:] = bytes(len(buffer))
            position, turn = position + size, turn + 1

    starts = accumulate(sizes, initial=0)
    assert [bytes(chunk) for chunk in cut_chunks(pieces(), sizes)] == [
        data[start : start + size] for start, size in zip(starts, sizes, strict=False)
    ]


def test_pieces_that_end_too_early_are_a_short_read() -> None:
    pieces = (memoryview(b"abc") for _ in range(1))
    with pytest.raises(ShortReadError):
        list(cut_chunks(pieces, [4]))
