"""Splits and parts of a live log are the same after they were written, whichever field of them says something."""

from __future__ import annotations

import json
import pickle
import zlib
from dataclasses import MISSING, fields, replace
from typing import Any

import pytest

from segreader.format.index_files import AbortedTransaction
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.plan.codec import PART, SPLIT, WrongValueError, pack_split, unpack_split
from segreader.plan.live import BEYOND, LivePart, ReadFrom
from segreader.plan.split import END_OF_LOG, LogsAhead, Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import TopicIdPartition

ORDERS = TopicIdPartition("orders", 3, "AAAAAAAAAAAAAAAAAAAAAQ")
ABORTED = AbortedTransactions([AbortedTransaction(7, 12, 15, 16), AbortedTransaction(8, 20, BEYOND, BEYOND)])

BARE_SPLIT = Split(
    partition=TopicIdPartition("t", 0), log="d/0.log", log_size=900, positions=ByteRange(0, 900), offsets=OffsetRange()
)
BARE_PART = LivePart(TopicIdPartition("t", 0), OffsetRange(0, 9), ReadFrom.BROKER)

OF_SPLIT: dict[str, Any] = {
    "partition": ORDERS,
    "log": "d/été.log",
    "log_size": 901,
    "positions": ByteRange(61, 890),
    "offsets": OffsetRange(10, 100),
    "isolation_level": IsolationLevel.READ_UNCOMMITTED,
    "aborted": ABORTED,
    "is_active": True,
    "base_offset": 5,
    "offset_index": "d/0.index",
    "offset_bound": 99,
    "epochs": ((0, 0), (4, 50)),
    "is_padded": True,
    "stop_of_part": 100,
    "first_bound": 12,
    "chunk_size": 4096,
    "log_tag": "etag:0123",
    "timed": 42,
    "reaches": 98,
    "following": LogsAhead("d/1.log", 700, 200, (("elsewhere/2.log", 1, 201), END_OF_LOG)),
}
OF_PART: dict[str, Any] = {
    "partition": ORDERS,
    "offsets": OffsetRange(10, 100),
    "read_from": ReadFrom.STORE,
    "isolation_level": IsolationLevel.READ_UNCOMMITTED,
    "epochs": ((0, 0), (4, 50)),
    "position_epoch": 0,
    "splits": (BARE_SPLIT, Split(**OF_SPLIT)),
    "aborted": AbortedTransactions(),
    "segment_id": "s",
    "size": 0,
    "hole": "no segment has it",
}


def packed_and_back(split: Split) -> Split:
    return unpack_split(pickle.loads(pickle.dumps(pack_split(split, most_logs=2, room_for_logs=300))))


def test_no_field_is_missing_in_the_tables() -> None:
    assert SPLIT.names == set(OF_SPLIT) == {one.name for one in fields(Split)}
    assert PART.names == set(OF_PART) == {one.name for one in fields(LivePart)}


@pytest.mark.parametrize("name", [one.name for one in fields(Split)])
def test_each_field_of_a_split_is_the_same_after_it_was_written(name: str) -> None:
    split = replace(BARE_SPLIT, **{name: OF_SPLIT[name]})

    assert split != BARE_SPLIT
    assert SPLIT.from_json(json.loads(json.dumps(SPLIT.to_json(split)))) == split
    assert packed_and_back(split) == split == pickle.loads(pickle.dumps(split))


@pytest.mark.parametrize("name", [one.name for one in fields(LivePart)])
def test_each_field_of_a_part_is_the_same_after_it_was_written(name: str) -> None:
    part = replace(BARE_PART, **{name: OF_PART[name]})

    assert part != BARE_PART
    assert PART.from_json(json.loads(json.dumps(PART.to_json(part)))) == part
    assert pickle.loads(pickle.dumps(part)) == part


def test_all_fields_at_once_are_the_same_after_they_were_written() -> None:
    split, part = Split(**OF_SPLIT), LivePart(**OF_PART)

    assert SPLIT.from_json(json.loads(json.dumps(SPLIT.to_json(split)))) == split == packed_and_back(split)
    assert PART.from_json(json.loads(json.dumps(PART.to_json(part)))) == part


def test_what_a_table_leaves_out_has_the_default_of_the_class() -> None:
    for form, made in ((SPLIT, BARE_SPLIT), (PART, BARE_PART)):
        document = form.to_json(made)  # type: ignore[arg-type]
        optional = {
            one.name for one in fields(made) if one.default is not MISSING or one.default_factory is not MISSING
        }
        assert optional.isdisjoint(document.keys() - {"isolation_level", "base_offset"})
        assert form.from_json(document) == made


def test_names_that_the_log_does_not_tell_travel_whole() -> None:
    split = replace(BARE_SPLIT, offset_index="elsewhere/0.index", following=(("e/1.log", 9, 9), ("d/2.log", 9, 18)))

    assert packed_and_back(split) == split


def test_a_split_that_travels_names_as_many_logs_behind_it_as_there_is_room_for() -> None:
    logs = tuple((f"d/{at}.log", 9, 9 * at) for at in range(1, 9))
    split = replace(BARE_SPLIT, following=(*logs, END_OF_LOG))

    for most, room, named in ((2, 300, 2), (9, 300, 9), (9, 10, 2), (9, 4, 0)):
        found = unpack_split(pack_split(split, most_logs=most, room_for_logs=room))
        assert found.following == (*logs, END_OF_LOG)[:named]


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("log", 7, "log is no text"),
        ("log", None, "log is no text"),
        ("log", "a\0b", "log is no text"),
        ("log", "\ud800", "log is no text"),
        ("log_size", -1, "log_size is no whole number of 63 bits"),
        ("log_size", True, "log_size is no whole number"),
        ("partition", 1 << 31, "partition is no whole number of 31 bits"),
        ("is_active", 1, "is_active is neither true nor false"),
        ("epochs", [[1]], "epochs are not rows of 2 whole numbers"),
        ("epochs", {}, "epochs are no rows"),
        ("aborted", "%", "aborted are no packed transactions"),
        ("aborted", "AAAA", "aborted are no packed transactions"),
        ("aborted", [[1, 2, 3, 1 << 70]], "aborted are no packed transactions"),
        ("following", "7", "following are no logs"),
        ("following", "[[1, 2, 3]]", "following are no logs|following is no text"),
        ("following", "[" * 100_000, "following are no logs"),
    ],
)
def test_a_field_that_has_an_impossible_value_is_named(name: str, value: object, what: str) -> None:
    with pytest.raises(WrongValueError, match=what):
        SPLIT.from_json(SPLIT.to_json(BARE_SPLIT) | {name: value})


def test_packed_transactions_that_would_fill_the_memory_are_refused() -> None:
    with pytest.raises(ValueError, match="no packed transactions"):
        AbortedTransactions.from_bytes(zlib.compress(bytes(65 << 20)))
    assert AbortedTransactions.from_bytes(ABORTED.to_bytes()) == ABORTED
    assert AbortedTransactions.from_bytes(AbortedTransactions().to_bytes()) == AbortedTransactions()
