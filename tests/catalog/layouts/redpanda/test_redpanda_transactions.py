"""Lists of aborted transactions, and the index of Kafka's that is made of one."""

from __future__ import annotations

import pytest

from segreader.catalog.layouts.redpanda.batches import RedpandaSegment, iter_batches
from segreader.catalog.layouts.redpanda.transactions import (
    TransactionRange,
    aborted_in_segment,
    encode_entries,
    parse_transaction_ranges,
)
from segreader.errors import ManifestError
from segreader.format.index_files import AbortedTransaction, parse_transaction_index
from segreader.isolation import AbortedTransactions
from segreader.testing.builder import SegmentBuilder
from segreader.testing.redpanda import (
    ARCHIVAL_METADATA,
    TX_FENCE,
    encode_transaction_ranges,
    internal_batch,
    redpanda_files,
    to_stored,
)


def entries(data: bytes, *ranges: TransactionRange, base: int = 0, delta: int = 0) -> list[AbortedTransaction]:
    """Kafka's entries for a segment and what is listed beside it."""
    return aborted_in_segment(iter_batches([memoryview(data)], RedpandaSegment(len(data), base, delta)), sorted(ranges))


def batches(builder: SegmentBuilder) -> list[bytes]:
    """What was appended, one by one."""
    data = builder.to_bytes()
    return [data[a:b] for a, b in zip(builder.batch_positions, [*builder.batch_positions[1:], len(data)], strict=True)]


def test_a_list_is_read_and_each_transaction_counted_once() -> None:
    data = encode_transaction_ranges([(20, 25, 8), (10, 12, 7), (20, 25, 8)])

    assert parse_transaction_ranges(data) == (TransactionRange(10, 12, 7), TransactionRange(20, 25, 8))


def test_a_list_without_ranges_is_empty() -> None:
    assert parse_transaction_ranges(b'{"version":1,"compat_version":1}') == ()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"version":2,"compat_version":2,"ranges":[]}',
        b'{"version":1,"compat_version":1,"ranges":7}',
        b'{"version":1,"compat_version":1,"ranges":[7]}',
        b'{"version":1,"compat_version":1,"ranges":[{}]}',
        b'{"version":1,"compat_version":1,"ranges":[{"pid.id":1,"pid.epoch":0,"first":9,"last":8}]}',
        b'{"version":1,"compat_version":1,"ranges":[{"pid.id":-1,"pid.epoch":0,"first":7,"last":8}]}',
        b'{"version":1,"compat_version":1,"ranges":[{"pid.id":1,"pid.epoch":0,"first":7,"last":9223372036854775808}]}',
    ],
)
def test_a_list_that_cannot_be_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_transaction_ranges(data, source="b/x.tx")

    assert caught.value.source == "b/x.tx"


def test_offsets_are_translated_where_the_batches_lie_and_the_marker_is_the_end() -> None:
    builder = SegmentBuilder(1).batch([b"a"], producer_id=7, transactional=True)
    builder.batch([b"b"], producer_id=7, transactional=True).marker(7, abort=True)
    one, two, marker = batches(builder)
    data = (
        internal_batch(TX_FENCE, 0, producer_id=7)
        + to_stored(one, 0)
        + internal_batch(ARCHIVAL_METADATA, 2)
        + to_stored(two, 1)
        + internal_batch(ARCHIVAL_METADATA, 4)
        + to_stored(marker, 2)
    )

    assert entries(data, TransactionRange(0, 3, 7)) == [AbortedTransaction(7, 1, 3, 4)]


def test_a_transaction_that_goes_on_ends_at_its_last_batch_here() -> None:
    builder = SegmentBuilder(10).batch([b"a"]).batch([b"b"], producer_id=7, transactional=True)
    builder.batch([b"c"], producer_id=7, transactional=True).batch([b"d"])
    data = b"".join(to_stored(batch, 0) for batch in batches(builder))

    assert entries(data, TransactionRange(11, 40, 7)) == [AbortedTransaction(7, 11, 12, 13)]
    assert entries(data, TransactionRange(2, 40, 7)) == [AbortedTransaction(7, 11, 12, 13)]


def test_a_single_offset_makes_an_entry_that_kafkas_index_can_hold() -> None:
    builder = SegmentBuilder(10).batch([b"a"]).batch([b"b"], producer_id=7, transactional=True)
    data = b"".join(to_stored(batch, 0) for batch in batches(builder))
    made = entries(data, TransactionRange(11, 40, 7))

    assert parse_transaction_index(encode_entries(made), 10).entries == tuple(made)
    assert AbortedTransactions(made).covers(7, 11)


def test_a_transaction_at_offset_0_is_covered_or_refused() -> None:
    alone = SegmentBuilder().batch([b"a"], producer_id=7, transactional=True)
    followed = SegmentBuilder().batch([b"a"], producer_id=7, transactional=True).batch([b"b"])

    with pytest.raises(ManifestError, match="records at offset 0"):
        entries(to_stored(alone.to_bytes(), 0), TransactionRange(0, 9, 7))
    assert entries(b"".join(to_stored(batch, 0) for batch in batches(followed)), TransactionRange(0, 9, 7)) == [
        AbortedTransaction(7, 0, 1, 2)
    ]


def test_a_transaction_that_has_no_batch_here_makes_no_entry() -> None:
    data = b"".join(to_stored(batch, 0) for batch in batches(SegmentBuilder(10).batch([b"a"])))

    assert entries(data, TransactionRange(2, 40, 7)) == []


def test_a_committed_transaction_after_an_aborted_one_is_not_covered() -> None:
    builder = SegmentBuilder(10)
    for abort in (True, False, True):
        builder.batch([b"a"], producer_id=7, transactional=True).marker(7, abort=abort)
    data = b"".join(to_stored(batch, 0) for batch in batches(builder))
    made = AbortedTransactions(entries(data, TransactionRange(10, 10, 7), TransactionRange(14, 14, 7)))

    assert made.entries == (AbortedTransaction(7, 10, 11, 12), AbortedTransaction(7, 14, 15, 16))
    assert [made.covers(7, offset) for offset in (10, 12, 14)] == [True, False, True]


def test_the_stable_offset_of_an_entry_is_where_a_later_one_begins() -> None:
    builder = SegmentBuilder(10).batch([b"a"], producer_id=7, transactional=True)
    builder.batch([b"b"], producer_id=8, transactional=True).marker(8, abort=True).marker(7, abort=True)
    data = b"".join(to_stored(batch, 0) for batch in batches(builder))
    made = entries(data, TransactionRange(10, 10, 7), TransactionRange(11, 11, 8))

    assert made == [AbortedTransaction(8, 11, 12, 10), AbortedTransaction(7, 10, 13, 14)]
    assert parse_transaction_index(encode_entries(made), 10).collect(10, 12) == (made, True)


def test_the_list_of_a_segment_names_transactions_that_reach_into_it() -> None:
    first = SegmentBuilder().batch([b"a"]).batch([b"b"], producer_id=7, transactional=True)
    second = first.roll().batch([b"c"], producer_id=7, transactional=True).marker(7, abort=True)
    third = second.roll().batch([b"d"])
    lists = {name: data for name, data in redpanda_files("t", [first, second, third]).items() if name.endswith(".tx")}

    assert len(lists) == 2
    assert {parse_transaction_ranges(data) for data in lists.values()} == {(TransactionRange(2, 5, 7),)}
