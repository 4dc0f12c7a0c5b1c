"""The leader-epoch checkpoint: the text, and which epoch covers an offset."""

from __future__ import annotations

import pytest

from segreader.errors import CorruptIndexError
from segreader.format.checkpoints import LeaderEpoch, LeaderEpochs, parse_leader_epochs
from segreader.ranges import OffsetRange

LINEAGE = LeaderEpochs((LeaderEpoch(2, 0), LeaderEpoch(5, 1500)))


@pytest.mark.parametrize(
    "text",
    [
        b"0\n2\n2 0\n5 1500\n",
        b"0\n2\n2 0\n5 1500",
        b"0\r\n2\r\n2 0\r\n5 1500\r\n",
        b"0\r2\r2 0\r5 1500\r",
        b"+0\n02\n2\t 0 \n0005   1500\t\n",
    ],
    ids=["as written", "no last line end", "windows", "old mac", "other spaces and digits"],
)
def test_a_checkpoint_is_read_as_java_reads_it(text: bytes) -> None:
    assert parse_leader_epochs(memoryview(text)) == LINEAGE


@pytest.mark.parametrize("text", [b"", b"0", b"0\n", b"0\n0\n"])
def test_a_checkpoint_that_ends_before_its_entries_has_none(text: bytes) -> None:
    assert parse_leader_epochs(text) == LeaderEpochs()


@pytest.mark.parametrize(
    "text",
    [
        b"1\n0\n",
        b"\n",
        b"0\n\n",
        b" 0\n0\n",
        b"0\n1\n2 0\n5 1500\n",
        b"0\n3\n2 0\n5 1500\n",
        b"0\n2\n2 0\n\n",
        b"0\n1\n2\n",
        b"0\n1\n 2 0\n",
        b"0\n1\n2 0 0\n",
        b"0\n1\n2 zero\n",
        b"0\n1\n-1 0\n",
        b"0\n1\n2 -1\n",
        b"0\n1\n1_0 0\n",
        b"0\n1\n2147483648 0\n",
        b"0\n1\n2 9223372036854775808\n",
        b"0\n1\n2 " + b"9" * 10_000,
        b"0\n2\n5 0\n2 1500\n",
        b"0\n2\n2 0\n2 1500\n",
        b"0\n2\n2 1500\n5 0\n",
        b"0\n1\n\xd9\xa2 0\n",
        b"\xff\xfe",
    ],
)
def test_a_checkpoint_with_any_other_line_is_corrupt(text: bytes) -> None:
    with pytest.raises(CorruptIndexError):
        parse_leader_epochs(text)


def test_the_largest_numbers_are_read() -> None:
    epochs = parse_leader_epochs(b"0\n1\n2147483647 9223372036854775807\n")

    assert epochs.entries == (LeaderEpoch((1 << 31) - 1, (1 << 63) - 1),)


def test_leading_zeros_do_not_count() -> None:
    epochs = parse_leader_epochs(b"0\n1\n2 " + b"0" * 10_000 + b"7")

    assert epochs.entries == (LeaderEpoch(2, 7),)


def test_a_malformed_line_is_named() -> None:
    with pytest.raises(CorruptIndexError, match=r"line 4 .* found b'5'"):
        parse_leader_epochs(b"0\n2\n2 0\n5\n")


@pytest.mark.parametrize(("offset", "epoch"), [(0, 2), (1499, 2), (1500, 5), (1 << 62, 5)])
def test_an_epoch_covers_offsets_up_to_the_next_one(offset: int, epoch: int) -> None:
    assert LINEAGE.epoch_for(offset) == epoch


def test_offsets_below_the_first_epoch_have_none() -> None:
    assert LeaderEpochs((LeaderEpoch(3, 40),)).epoch_for(39) is None
    assert LeaderEpochs().epoch_for(0) is None


def test_an_epoch_ends_where_the_next_higher_one_begins() -> None:
    assert LINEAGE.end_offset(2) == 1500
    assert LINEAGE.end_offset(5) is None
    assert (LINEAGE.end_offset(1), LINEAGE.end_offset(4), LINEAGE.end_offset(6)) == (0, 1500, None)


def test_the_offsets_of_an_epoch_are_a_range_open_for_the_last() -> None:
    assert LINEAGE.offsets_of(2) == OffsetRange(0, 1500)
    assert LINEAGE.offsets_of(5) == OffsetRange(1500)
    assert LINEAGE.offsets_of(3) is None
    assert LINEAGE.offsets_of(1) is None


def test_of_two_epochs_at_one_offset_the_later_covers_it() -> None:
    epochs = LeaderEpochs((LeaderEpoch(1, 0), LeaderEpoch(2, 10), LeaderEpoch(3, 10)))

    assert epochs.epoch_for(10) == 3
    assert epochs.offsets_of(2) == OffsetRange(10, 10)


def test_epochs_that_fall_are_no_lineage() -> None:
    with pytest.raises(ValueError, match="not a lineage"):
        LeaderEpochs((LeaderEpoch(5, 0), LeaderEpoch(2, 1500)))
