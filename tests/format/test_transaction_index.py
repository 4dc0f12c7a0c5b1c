"""The transaction index: its entries, and which of them a range of offsets needs."""

from __future__ import annotations

import struct

import pytest

from segreader.errors import CorruptIndexError
from segreader.format.index_files import AbortedTransaction, TransactionIndex, parse_transaction_index

DATA = bytes.fromhex(
    "0000 0000000000000fa1 00000000000000b4 00000000000000ce 00000000000000c9"
    "0000 0000000000000fa2 00000000000000c9 00000000000000e6 00000000000000e7"
)
FIRST = AbortedTransaction(producer_id=4001, first_offset=180, last_offset=206, last_stable_offset=201)
SECOND = AbortedTransaction(producer_id=4002, first_offset=201, last_offset=230, last_stable_offset=231)


def row(*fields: int) -> bytes:
    return struct.pack(">hqqqq", *fields)


def test_entries_keep_every_field() -> None:
    index = parse_transaction_index(memoryview(DATA), base_offset=200)

    assert tuple(index) == (FIRST, SECOND)
    assert (len(index), index.trailing_bytes) == (2, 0)


@pytest.mark.parametrize(
    ("start", "upper", "collected", "is_complete"),
    [
        (100, 190, [FIRST], True),
        (100, 201, [FIRST], True),
        (100, 202, [FIRST, SECOND], True),
        (190, 232, [FIRST, SECOND], False),
        (206, 210, [FIRST, SECOND], True),
        (207, 210, [SECOND], True),
        (207, 231, [SECOND], True),
        (231, 232, [], False),
        (0, 180, [], True),
    ],
)
def test_a_range_needs_entries_until_one_found_all_below_its_end_decided(
    start: int, upper: int, collected: list[AbortedTransaction], is_complete: bool
) -> None:
    assert parse_transaction_index(DATA).collect(start, upper) == (collected, is_complete)


def test_no_index_leaves_the_question_to_the_next_segment() -> None:
    assert parse_transaction_index(b"") == TransactionIndex()
    assert TransactionIndex().collect(0, 1) == ([], False)


@pytest.mark.parametrize("size", range(34))
def test_a_cut_last_entry_is_ignored_and_reported(size: int) -> None:
    index = parse_transaction_index(DATA[: 34 + size])

    assert index == TransactionIndex((FIRST,), size)


def test_only_the_first_byte_of_the_version_counts() -> None:
    assert tuple(parse_transaction_index(b"\0\7" + DATA[2:])) == (FIRST, SECOND)
    with pytest.raises(CorruptIndexError, match="version 1") as caught:
        parse_transaction_index(DATA[:34] + b"\1" + DATA[35:])
    assert caught.value.position == 34


@pytest.mark.parametrize(
    "fields",
    [
        (0, -1, 207, 230, 231),
        (0, 4002, -1, 230, 231),
        (0, 4002, 230, 230, 231),
        (0, 4002, 201, 206, 207),
        (0, 4002, 201, 230, 232),
        (0, 4002, 201, 230, -1),
        (0, 0, 0, 0, 0),
    ],
    ids=[
        "no producer",
        "first below 0",
        "marker at first",
        "marker not above the one before",
        "stable beyond",
        "stable below 0",
        "zeros",
    ],
)
def test_an_entry_that_no_broker_writes_is_corrupt(fields: tuple[int, ...]) -> None:
    with pytest.raises(CorruptIndexError) as caught:
        parse_transaction_index(DATA[:34] + row(*fields))

    assert caught.value.position == 34


def test_a_marker_below_its_segment_is_corrupt() -> None:
    with pytest.raises(CorruptIndexError):
        parse_transaction_index(DATA, base_offset=207)
