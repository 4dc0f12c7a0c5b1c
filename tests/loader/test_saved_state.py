"""Queries, splits and positions as text: they come back equal, and what is none of them is told."""

from __future__ import annotations

import json
import os
import pickle
import zlib
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from canaries import CANARIES, leaks
from corpus import case
from growing_log import GrowingLog
from loading import all_splits, at, query_of, read_rest

from segreader.errors import (
    ClosedError,
    DeletedPositionError,
    DivergedPositionError,
    ForeignPositionError,
    ObjectNotFoundError,
    OptionError,
    PositionError,
    PositionFormatError,
    PositionVersionError,
    RecreatedTopicError,
    SegreaderError,
)
from segreader.isolation import IsolationLevel
from segreader.loader import LoaderSplit, LoadQuery, Position, ReaderPool, ResumableReader, SplitEnumerator
from segreader.ranges import OffsetRange
from segreader.testing.records import FIRST_TIMESTAMP_MS

WHOLE = Position(
    topic="orders", topic_id="x" * 22, partition=3, next_offset=7, stop=9, leader_epoch=2, aborted=(), log="a.log",
    log_size=100, batch_position=61, batch_offset=5,
)  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    made = GrowingLog(tmp_path / "tier")
    made.upload("orders", 0, 30)
    made.upload("orders", 0, 30)
    return made


def query(log: GrowingLog, **more: object) -> LoadQuery:
    return LoadQuery(location=str(log.root), topic="orders", **more)  # type: ignore[arg-type]


def test_a_position_comes_back_equal_and_small() -> None:
    bare = Position(topic="orders", partition=0, next_offset=0)
    for position in (WHOLE, bare):
        assert Position.from_json(position.to_json()) == position == pickle.loads(pickle.dumps(position))
    assert len(WHOLE.to_json()) < 300


def test_what_an_earlier_version_saved_names_no_version_of_its_log_and_is_read(log: GrowingLog) -> None:
    split = all_splits(query(log))[0]
    assert str(split.split.log_tag).startswith("mtime:")
    fields = json.loads(split.to_json())
    del fields["log_tag"]
    earlier = LoaderSplit.from_json(json.dumps(fields))
    assert earlier.split == replace(split.split, log_tag=None)
    (path, _) = log.logs()
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))
    with ResumableReader(earlier, query(log)) as reader:
        assert read_rest(reader)["offset"].to_pylist() == list(range(30))
    tagged = replace(WHOLE, log_tag="etag:0123")
    assert Position.from_json(tagged.to_json()) == tagged
    fields = json.loads(tagged.to_json())
    del fields["log_tag"]
    assert Position.from_json(json.dumps(fields)) == WHOLE


def test_fields_of_a_later_minor_version_are_passed_over() -> None:
    document = json.loads(WHOLE.to_json()) | {"weather": {"is": "fine"}}
    assert Position.from_json(json.dumps(document)) == WHOLE


def test_a_query_that_an_earlier_version_saved_skips_gaps_by_its_word(log: GrowingLog) -> None:
    saved = query(log, on_gap="skip").to_json()
    assert LoadQuery.from_json(saved.replace('"on_gap":"skip"', '"on_gap":"report"')).on_gap == "skip"
    with pytest.warns(DeprecationWarning, match="use on_gap='skip'") as caught:
        assert LoadQuery(location=str(log.root), on_gap="report").on_gap == "skip"
    assert [one.filename for one in caught] == [__file__]


Kind = type[Position] | type[LoaderSplit] | type[LoadQuery]


@pytest.mark.parametrize("kind", [Position, LoaderSplit, LoadQuery])
def test_a_newer_version_is_refused_with_what_to_do(kind: Kind) -> None:
    name, newest = {Position: ("position", 1), LoaderSplit: ("split", 1), LoadQuery: ("query", 2)}[kind]
    found = rf"found version {newest + 1}, expected version {newest} or below.*Update segreader"
    with pytest.raises(PositionVersionError, match=found):
        kind.from_json(json.dumps({"kind": name, "version": newest + 1}))


GARBAGE = ["", "{", "[]", "null", "7", '"text"', "{}", '{"kind":"split"}', "\x00\xff", '{"version":1}', "[" * 5000]


@pytest.mark.parametrize("text", GARBAGE)
@pytest.mark.parametrize("kind", [Position, LoaderSplit, LoadQuery])
def test_garbage_is_refused_and_not_shown(kind: Kind, text: str) -> None:
    with pytest.raises(PositionFormatError, match="not a saved"):
        kind.from_json(text)
    with pytest.raises(PositionFormatError) as caught:
        kind.from_json(json.dumps({"kind": CANARIES["secret"][:10], "secret": CANARIES["secret"]})[:-3])
    assert CANARIES["secret"] not in str(caught.value)


def test_a_text_that_says_one_thing_twice_is_refused(log: GrowingLog) -> None:
    with SplitEnumerator(query(log)) as enumerator:
        enumerator.discover()
        state = enumerator.state()
    twice = state.replace('"next_offset":60', '"next_offset":60,"next_offset":70')
    rows = json.loads(state)["partitions"]
    for wrong in (twice, json.dumps(json.loads(state) | {"partitions": [rows[0], rows[0] | {"next_offset": 70}]})):
        with pytest.raises(PositionFormatError, match="twice"):
            SplitEnumerator(query(log), state=wrong)
    with pytest.raises(PositionFormatError, match="twice"):
        Position.from_json(WHOLE.to_json().replace('"stop":9', '"stop":8,"stop":9'))


def test_the_state_of_another_query_is_refused(log: GrowingLog) -> None:
    log.upload("payments", 0, 10)

    def state_of(asked: LoadQuery) -> str:
        with SplitEnumerator(asked) as enumerator:
            enumerator.discover()
            return enumerator.state()

    late, payments = query(log, offsets="50:"), LoadQuery(location=str(log.root), topic="payments")
    recent = query(log, since=FIRST_TIMESTAMP_MS + 20)
    for asked, other in (
        (query(log), payments), (query(log), late), (query(log, offsets="40:"), late),
        (late, query(log, offsets="5:9")), (query(log), recent), (query(log, since=FIRST_TIMESTAMP_MS), recent),
    ):  # fmt: skip
        with pytest.raises(ForeignPositionError, match="state is of another query") as caught:
            SplitEnumerator(asked, state=state_of(other))
        assert caught.value.hint
    for asked, other in (
        (late, query(log)), (recent, query(log)), (query(log, since=FIRST_TIMESTAMP_MS + 30), recent),
        (query(log, partitions=[0]), query(log)), (query(log), query(log, partitions=[0])), (query(log), query(log)),
    ):  # fmt: skip
        with SplitEnumerator(asked, state=state_of(other)) as enumerator:
            assert enumerator.discover() == []


def test_every_field_of_a_position_with_another_type_is_refused_or_passed_over() -> None:
    document = json.loads(WHOLE.to_json())
    wrong: object
    for name in document:
        for wrong in ({}, [1], [[1, 2]], "x", -1, 1.5, True, 1 << 70):
            try:
                Position.from_json(json.dumps(document | {name: wrong}))
            except PositionError:
                continue
            assert isinstance(wrong, str)
            assert name in ("topic", "topic_id", "log")


def test_a_split_comes_back_equal_with_all_that_was_aborted() -> None:
    for split in all_splits(query_of(case("tv2", "txn-interleaved"), "committed", split_bytes=2000)):
        assert LoaderSplit.from_json(split.to_json()) == split == pickle.loads(pickle.dumps(split))
        document = json.loads(split.to_json())
        wrong: object
        for name in document:
            for wrong in ({}, [1], "x", -1, None):
                try:
                    LoaderSplit.from_json(json.dumps(document | {name: wrong}))
                except PositionError:
                    continue


def test_a_query_comes_back_equal_and_fixes_its_times() -> None:
    given: dict[str, Any] = {"partitions": {2, 1}, "offsets": "5:", "since": "-1h", "until": datetime.now(UTC)}
    made = LoadQuery(location="/data", topic="orders", **given)
    again = LoadQuery.from_json(made.to_json())
    assert again == made == pickle.loads(pickle.dumps(made))
    assert again.partitions == (1, 2)
    assert isinstance(again.since, int)


@pytest.mark.parametrize(
    "location",
    ["https://host/a.log?X-Amz-Signature=" + CANARIES["token"], f"s3://key:{CANARIES['password']}@bucket/prefix"],
)
def test_a_query_refuses_a_location_that_holds_a_credential(location: str) -> None:
    with pytest.raises(OptionError, match="holds a credential") as caught:
        LoadQuery(location=location)
    assert not any(secret in str(caught.value) for secret in CANARIES.values())


def test_what_holds_credentials_does_not_travel(log: GrowingLog) -> None:
    secret = {"key": CANARIES["key"], "secret": CANARIES["secret"]}
    asked = LoadQuery(location="s3://no-such-bucket/tier", topic="orders")
    local = query(log)
    with (
        SplitEnumerator(asked, storage_options=secret) as enumerator,
        ReaderPool(asked, storage_options=secret) as pool,
    ):
        for one in (enumerator, pool, pool.open(all_splits(local)[0])):
            with pytest.raises(TypeError) as caught:
                pickle.dumps(one)
            assert leaks(f"{one!r} {one} {caught.value}") == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"split_bytes": 0}, "split_bytes must be positive"),
        ({"threads": 0}, "threads must be positive"),
        ({"threads": True}, "threads is a number; found True"),
        ({"on_gap": "x"}, "unknown on_gap"),
        ({"columns": ("nothing",)}, "unknown column"),
        ({"offsets": "x"}, "not a range of offsets"),
        ({"offsets": (True, 5)}, "not a range of offsets"),
        ({"offsets": OffsetRange(True, 5)}, "not a range of offsets"),
        ({"isolation_level": "x"}, "unknown isolation level"),
        ({"check_crcs": np.bool_(True)}, "check_crcs is True or False; found np.True_"),
        ({"kernel": "x"}, "unknown kernel; found x"),
        ({"kernel": 5}, "kernel must be text; found int"),
        ({"layout": "aivn"}, "unknown layout.*Did you mean 'aiven'"),
        ({"layout": "pattern:("}, "pattern"),
        ({"layout": 5}, "layout must be text; found int"),
        ({"segments_from": 5}, "segments_from must be text; found int"),
        ({"topic": 5}, "topic must be text; found int"),
        ({"topic": b"multi"}, "topic must be text; found bytes"),
        ({"topic_id": 5}, "topic_id must be text; found int"),
        ({"location": None}, "location must be a path or a URL; found NoneType"),
        ({"location": ""}, "location must be a path or a URL; found an empty text"),
        ({"location": b"s3://key:secret@bucket"}, "location must be a path or a URL; found bytes"),
        ({"metadata": 5}, "metadata must be a path or a URL; found int"),
        ({"partitions": []}, "no partition is named"),
        ({"partitions": "1"}, "partitions are numbers; found '1'"),
        ({"partitions": True}, "partitions are numbers; found True"),
        ({"partitions": -1}, "not the number of a partition; found -1"),
    ],
)
def test_a_query_refuses_wrong_values_when_it_is_made(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said) as caught:
        LoadQuery(**{"location": "/data"} | wrong)
    assert "secret" not in str(caught.value)


def test_numbers_of_numpy_become_ints_in_a_query() -> None:
    made = LoadQuery(
        location="/data",
        partitions=np.int64(1),  # type: ignore[arg-type]
        offsets=(np.int64(0), np.int64(5)),  # type: ignore[arg-type]
        since=np.int64(7),  # type: ignore[arg-type]
        batch_rows=np.int32(3),  # type: ignore[arg-type]
        threads=np.int64(2),  # type: ignore[arg-type]
        read_ahead_bytes=np.int64(1 << 20),  # type: ignore[arg-type]
    )
    assert LoadQuery.from_json(made.to_json()) == made
    numbers = (*(made.partitions or ()), made.since, made.batch_rows, made.threads, made.read_ahead_bytes)
    assert [type(one) for one in numbers] == [int] * 5


def test_a_query_names_no_broker() -> None:
    with pytest.raises(OptionError, match="not brokers"):
        LoadQuery(location="kafka://broker:9092")


def refused(query: LoadQuery, split: LoaderSplit, position: Position, kind: type[SegreaderError]) -> None:
    """Refused when a reader is made, and by one that stands elsewhere, which goes on as if nothing had been."""
    with pytest.raises(kind) as caught:
        ResumableReader(split, query, position=position)
    assert caught.value.hint
    assert caught.value.expected is not None
    with ResumableReader(split, query) as reader:
        reader.read(max_rows=3)
        stood = reader.position
        with pytest.raises(kind):
            reader.restore(position)
        assert reader.position == stood
        assert read_rest(reader)["offset"][0].as_py() >= stood.next_offset


def test_a_position_of_another_topic_partition_level_or_split_is_refused(log: GrowingLog) -> None:
    first, second = all_splits(query(log))
    here = first.position
    others = [
        Position(topic="payments", partition=0, next_offset=0, topic_id=here.topic_id),
        Position(topic="orders", partition=1, next_offset=0, topic_id=here.topic_id),
        at(second, 31),
        Position(topic="orders", partition=0, next_offset=3, isolation_level=IsolationLevel.READ_UNCOMMITTED),
    ]
    for other in others:
        refused(query(log), first, other, ForeignPositionError)
    with SplitEnumerator(query(log)) as enumerator:
        for other in (others[0], others[1], others[3]):
            with pytest.raises(ForeignPositionError):
                enumerator.splits_from([other])


def test_a_position_of_a_topic_that_was_created_again_is_refused() -> None:
    recreated = case("tv2", "recreated")
    old = query_of(recreated, "uncommitted", topic_id=recreated.facts["old_topic_id"])
    new = query_of(recreated, "uncommitted")
    position = all_splits(old)[0].position
    refused(new, all_splits(new)[0], position, RecreatedTopicError)
    with SplitEnumerator(new) as enumerator, pytest.raises(RecreatedTopicError):
        enumerator.splits_from([position])
    with SplitEnumerator(old) as enumerator:
        enumerator.discover()
        state = enumerator.state()
    with SplitEnumerator(new, state=state) as enumerator, pytest.raises(RecreatedTopicError, match="topic id"):
        enumerator.discover()


def test_a_position_whose_offsets_were_deleted_is_refused_with_the_first_that_is_left(log: GrowingLog) -> None:
    with SplitEnumerator(query(log)) as enumerator:
        first, _ = enumerator.discover()
        log.delete_oldest("orders", 0)
        with pytest.raises(DeletedPositionError) as caught:
            enumerator.splits_from([at(first, 7)])
    assert caught.value.offset == 30
    assert "30" in (caught.value.hint or "")
    with ResumableReader(first, query(log), position=at(first, 7)) as reader, pytest.raises(ObjectNotFoundError):
        reader.read()


def test_offsets_that_were_deleted_before_they_were_handed_out_are_refused_or_told(log: GrowingLog) -> None:
    with SplitEnumerator(query(log)) as enumerator:
        enumerator.discover()
        state = enumerator.state()
    for _ in range(2):
        log.upload("orders", 0, 10)
    for _ in range(3):
        log.delete_oldest("orders", 0)
    with SplitEnumerator(query(log), state=state) as enumerator:
        with pytest.raises(DeletedPositionError):
            enumerator.discover()
        assert enumerator.state() == state
    with SplitEnumerator(query(log, on_gap="skip"), state=state) as enumerator:
        assert [(one.start, one.stop) for one in enumerator.discover()] == [(70, 80)]
        assert any("60 to 69" in note for note in enumerator.notes)


def test_a_position_of_another_history_is_refused() -> None:
    diverged = case("cluster", "diverged")
    query = query_of(diverged, "uncommitted")
    for split in all_splits(query):
        with ResumableReader(split, query) as reader:
            reader.read(max_rows=2)
            here = reader.position
        assert here.leader_epoch is not None
        newer = Position.from_json(json.dumps(json.loads(here.to_json()) | {"leader_epoch": here.leader_epoch + 50}))
        refused(query, split, newer, DivergedPositionError)
    splits = all_splits(query)
    last = splits[-1]
    with SplitEnumerator(query) as enumerator:
        beyond = Position(
            topic="diverged", topic_id=diverged.topic_id, partition=0, next_offset=last.stop + 5,
            isolation_level=query.isolation_level,
        )  # fmt: skip
        with pytest.raises(DivergedPositionError) as caught:
            enumerator.splits_from([beyond])
        assert caught.value.offset == last.stop
        early = Position(
            topic="diverged", topic_id=diverged.topic_id, partition=0, next_offset=last.stop, leader_epoch=0,
            isolation_level=query.isolation_level,
        )  # fmt: skip
        with pytest.raises(DivergedPositionError) as caught:
            enumerator.splits_from([early])
        assert (caught.value.offset or 0) < last.stop


def test_a_position_that_knows_other_aborted_transactions_is_refused() -> None:
    aborting = case("tv2", "txn-interleaved")
    query = query_of(aborting, "committed")
    count = 0
    for split in all_splits(query):
        with ResumableReader(split, query) as reader:
            while reader.read(max_rows=1) is not None:
                here = reader.position
                if here.aborted and here.next_offset < split.stop:
                    count += 1
                    document = json.loads(here.to_json())
                    for wrong in ([], [[99, 0, here.next_offset + 5, 0], *document["aborted"]]):
                        other = Position.from_json(json.dumps(document | {"aborted": wrong}))
                        refused(query, split, other, DivergedPositionError)
                    break
    assert count


def test_another_batch_where_the_position_points_is_refused(log: GrowingLog) -> None:
    first = all_splits(query(log))[0]
    with ResumableReader(first, query(log)) as reader:
        reader.read(max_rows=13)
        here = json.loads(reader.position.to_json())
    assert here["batch_offset"] == 10
    elsewhere = Position.from_json(json.dumps(here | {"batch_offset": 12}))
    with (
        ResumableReader(first, query(log), position=elsewhere) as reader,
        pytest.raises(DivergedPositionError, match="12"),
    ):
        reader.read()


@pytest.mark.parametrize("on_corrupt", ["fail", "skip"])
def test_a_byte_that_is_not_where_the_next_record_lies_costs_reading_and_no_records(
    log: GrowingLog, on_corrupt: str
) -> None:
    asked = query(log, on_corrupt=on_corrupt)
    split = all_splits(asked)[0]
    with ReaderPool(asked) as pool:
        reader = pool.open(split)
        stops = [reader.position]
        while reader.read(max_rows=1) is not None:
            stops.append(reader.position)
        size = split.split.positions.stop
        bytes_named = {one.batch_position for one in stops[:-1]} | {
            1,
            60,
            61,
            62,
            100,
            size - 1,
            size,
            size + 1,
            1 << 62,
        }
        for stop in stops[::7]:
            for byte in bytes_named:
                told = {"batch_position": byte, "batch_offset": None}
                named = {"log": split.split.log, "log_size": split.split.log_size}
                position = Position.from_json(json.dumps(json.loads(stop.to_json()) | named | told))
                with pool.open(split, position) as reader:
                    offsets = read_rest(reader)["offset"].to_pylist()
                assert offsets == list(range(stop.next_offset, split.stop))


def test_a_split_whose_transactions_unpack_to_far_more_than_it_holds_is_refused(log: GrowingLog) -> None:
    document = json.loads(all_splits(query(log))[0].to_json())
    packer = zlib.compressobj(9)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(65)) + packer.flush()
    for packed in (bomb, bomb[:100], zlib.compress(bytes(24))):
        with pytest.raises(PositionFormatError):
            LoaderSplit.from_json(json.dumps(document | {"aborted": b64encode(packed).decode()}))


@pytest.mark.parametrize("field", ["split_bytes", "batch_rows", "batch_bytes", "max_batch_bytes", "partitions"])
@pytest.mark.parametrize("wrong", [1.5, True, "5", -1, 1 << 70, [[1]], {}])
def test_a_query_with_an_impossible_number_is_refused_when_it_is_made(field: str, wrong: object) -> None:
    document = json.loads(LoadQuery(location="/data").to_json())
    with pytest.raises((OptionError, PositionFormatError)):
        LoadQuery.from_json(json.dumps(document | {field: wrong if wrong != {} else [wrong]}))


def test_after_close_everything_but_the_position_is_refused(log: GrowingLog) -> None:
    split = all_splits(query(log))[0]
    reader = ResumableReader(split, query(log))
    reader.read(max_rows=4)
    reader.close()
    reader.close()
    assert reader.position.next_offset == 4
    for act in (reader.read, reader.pause, reader.resume, lambda: reader.restore(split.position)):
        with pytest.raises(ClosedError, match="closed"):
            act()
    enumerator = SplitEnumerator(query(log))
    enumerator.close()
    enumerator.close()
    with pytest.raises(ClosedError):
        enumerator.discover()
    with pytest.raises(ClosedError):
        enumerator.splits_from([])
