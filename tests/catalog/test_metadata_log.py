from __future__ import annotations

import pickle
import re
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from corpus import CORPUS, Case, cases

from segreader.catalog.metadata_log import PartitionDeleteState, RemoteLogMetadata, Skipped
from segreader.catalog.metadata_topic import read_remote_log_metadata
from segreader.errors import (
    CorruptBatchError,
    CorruptRecordError,
    FormatError,
    ObjectNotFoundError,
    SegmentGapError,
    TruncatedError,
    UnsupportedMagicError,
)
from segreader.format.batch import Record, TimestampType
from segreader.format.checkpoints import LeaderEpoch, LeaderEpochs
from segreader.format.compression import Codec
from segreader.format.remote_log_metadata import metadata_partition
from segreader.segment import Segment, SegmentState, StemFiles, TopicIdPartition
from segreader.storage.local import LocalStore
from segreader.testing.batches import Lies, encode_batch
from segreader.testing.remote_log_metadata import (
    encode_partition_delete,
    encode_segment_metadata,
    encode_segment_update,
)

TOPIC_ID, OTHER_ID = "LWgrMmVrT0a__7a4SasuPA", "i3zTqTLVSd6rNKj_E3MPnA"
ORDERS = TopicIdPartition("orders", 3, TOPIC_ID)
STARTED, FINISHED, DELETING, DELETED = SegmentState
ONE, TWO, THREE = "bCqX9U--S-6U8XUM9II25Q", "wEkiW1CwR9q5affzA5gHgA", "H99E5cBVSNi_FtzjD67YdA"


def started(segment_id: str = ONE, start: int = 0, state: int = 0, of: TopicIdPartition = ORDERS) -> bytes:
    return encode_segment_metadata(
        of.topic,
        of.topic_id or "",
        of.partition,
        segment_id,
        start_offset=start,
        end_offset=start + 99,
        epochs=[(4, start)],
        broker_id=1,
        max_timestamp_ms=77,
        event_timestamp_ms=500,
        log_size=1234,
        state=state,
    )


def update(
    state: int, segment_id: str = ONE, event_ms: int = 1000, custom: bytes | None = None, of: TopicIdPartition = ORDERS
) -> bytes:
    return encode_segment_update(
        of.topic,
        of.topic_id or "",
        of.partition,
        segment_id,
        state,
        broker_id=2,
        event_timestamp_ms=event_ms,
        custom_metadata=custom,
    )


def applied(*values: bytes | None, into: RemoteLogMetadata | None = None) -> RemoteLogMetadata:
    metadata = RemoteLogMetadata() if into is None else into
    for offset, value in enumerate(values):
        metadata.apply_each(0, [(offset, value)])
    return metadata


def states(metadata: RemoteLogMetadata) -> list[SegmentState]:
    return [segment.state for segment in metadata.segments(ORDERS, tuple(SegmentState))]


def test_a_finished_segment_keeps_what_its_start_said_and_takes_what_its_update_says() -> None:
    [segment] = applied(started(), update(1, custom=b"\1\2\3")).segments(ORDERS)

    assert (segment.topic, segment.topic_id, segment.partition, segment.segment_id) == ("orders", TOPIC_ID, ORDERS, ONE)
    assert (segment.base_offset, segment.last_offset, segment.log_size) == (0, 99, 1234)
    assert (segment.broker_id, segment.event_timestamp_ms, segment.custom_metadata) == (2, 1000, b"\1\2\3")
    assert (segment.state, segment.max_timestamp_ms, segment.transaction_index_is_empty) == (FINISHED, 77, False)
    assert segment.epochs == LeaderEpochs((LeaderEpoch(4, 0),))
    assert segment.to_segment(StemFiles("x")) == Segment(
        ORDERS, 0, 1234, StemFiles("x"), ONE, False, 99, segment.epochs, 77, 1000
    )
    assert pickle.loads(pickle.dumps(segment)) == segment


ENDINGS: dict[str, tuple[list[bytes], list[SegmentState]]] = {
    "started": ([started()], [STARTED]),
    "finished": ([started(), update(1)], [FINISHED]),
    "started twice": ([started(), started()], [STARTED]),
    "finished twice": ([started(), update(1), update(1)], [FINISHED]),
    "given up": ([started(), update(2)], [DELETING]),
    "being deleted": ([started(), update(1), update(2), update(2)], [DELETING]),
    "deleted": ([started(), update(1), update(2), update(3)], []),
    "finished without a start": ([update(1)], []),
    "finished after a delete began": ([started(), update(2), update(1)], [DELETING]),
    "finished after it was deleted": ([started(), update(2), update(3), update(1)], []),
    "deleted at a stroke": ([started(), update(1), update(3)], [FINISHED]),
    "started again after it was finished": ([started(), update(1), started()], [FINISHED]),
    "started again after it was deleted": ([started(), update(2), update(3), started()], [STARTED]),
    "an update back to started": ([started(), update(1), update(0)], [FINISHED]),
    "new in another state": ([started(state=1)], []),
}


@pytest.mark.parametrize(("values", "expected"), ENDINGS.values(), ids=ENDINGS)
def test_records_move_a_segment_only_where_kafka_lets_them(values: list[bytes], expected: list[SegmentState]) -> None:
    metadata = applied(*values)

    assert states(metadata) == expected
    assert bool(metadata.segments(ORDERS)) == (expected == [FINISHED])


def test_an_update_takes_the_custom_metadata_away() -> None:
    [segment] = applied(started(), update(1, custom=b"x"), update(1)).segments(ORDERS)

    assert segment.custom_metadata is None


REASONS: dict[Skipped, list[bytes | None]] = {
    Skipped.NULL_VALUE: [None],
    Skipped.UNKNOWN_KIND: [bytes.fromhex("01 09 00 00")],
    Skipped.SNAPSHOT: [b"\1\3\0" + started()[31:47] + started()[48:]],
    Skipped.NOT_STARTED: [started(state=1)],
    Skipped.STARTED_AGAIN: [started(), update(1), started()],
    Skipped.UNKNOWN_SEGMENT: [update(1)],
    Skipped.IMPOSSIBLE_STATE: [started(), update(2), update(1)],
}


@pytest.mark.parametrize(("reason", "values"), REASONS.items(), ids=REASONS)
def test_what_changes_nothing_is_counted_with_its_reason(reason: Skipped, values: list[bytes | None]) -> None:
    metadata = applied(*values)

    assert metadata.skipped == {reason: 1}
    assert metadata.consumed == {0: len(values)}


def test_an_offset_is_applied_once() -> None:
    metadata = applied(started(), update(1), update(2))
    metadata.apply_each(0, [(1, update(1))])

    assert states(metadata) == [DELETING]
    assert metadata.skipped == {Skipped.APPLIED_BEFORE: 1}
    assert metadata.consumed == {0: 3}


def test_bytes_behind_a_message_are_counted_and_the_message_counts() -> None:
    metadata = applied(started() + b"\0", update(1))

    assert (states(metadata), metadata.with_trailing_bytes) == ([FINISHED], 1)


def test_versions_rise_in_the_order_of_finishing_even_when_clocks_go_back() -> None:
    metadata = applied(
        started(ONE), started(TWO), started(THREE), update(1, TWO, 9000), update(1, ONE, 40), update(1, THREE, 9500)
    )

    assert {s.segment_id: s.version for s in metadata.segments(ORDERS)} == {TWO: 9000, ONE: 9001, THREE: 9500}


def test_deleted_ids_are_remembered_or_only_counted() -> None:
    values = started(ONE), started(TWO), update(2, ONE), update(3, ONE)
    remembering = applied(*values)
    counting = applied(*values, into=RemoteLogMetadata(keep_deleted=False))

    assert (remembering.deleted(ORDERS), counting.deleted(ORDERS)) == (frozenset({ONE}), frozenset())
    assert remembering.topics() == counting.topics()
    assert remembering.topics()[0].deleted == 1


def test_a_topic_that_was_created_again_is_two_topics() -> None:
    again = TopicIdPartition("orders", 3, OTHER_ID)
    metadata = applied(
        started(), update(1), update(2), update(3), started(TWO, of=again), update(1, TWO, of=again), update(1, ONE)
    )

    assert [(t.topic_id, dict(t.segments), t.deleted) for t in metadata.topics()] == [
        (TOPIC_ID, {}, 1),
        (OTHER_ID, {FINISHED: 1}, 0),
    ]
    assert metadata.partitions("orders") == [again]
    assert metadata.partitions(with_deleted=True) == [ORDERS, again]
    assert metadata.partitions(topic_id=TOPIC_ID) == metadata.partitions("payments") == []
    assert [segment.segment_id for segment in metadata.segments(again)] == [TWO]


def deletion(state: int) -> bytes:
    return encode_partition_delete("orders", TOPIC_ID, 3, state)


@pytest.mark.parametrize("state", [0, 1])
def test_the_segments_of_a_partition_that_is_being_deleted_are_not_readable(state: int) -> None:
    metadata = applied(started(ONE), update(1, ONE), started(TWO), deletion(state))

    assert metadata.segments(ORDERS) == []
    assert states(metadata) == [DELETING, DELETING]
    assert metadata.delete_state(ORDERS) is PartitionDeleteState(state)
    assert metadata.topics()[0].segments == {DELETING: 2}


def test_a_deleted_partition_has_no_segments_left() -> None:
    metadata = applied(started(ONE), update(1, ONE), started(TWO), deletion(0), deletion(2))

    assert states(metadata) == []
    assert metadata.partitions() == []
    assert metadata.deleted(ORDERS) == {ONE, TWO}


def test_only_what_is_asked_for_is_kept_and_the_rest_is_not_decoded() -> None:
    other = TopicIdPartition("orders-eu", 3, OTHER_ID)
    broken = started(of=other)[:-20]
    for wanted in (
        RemoteLogMetadata(topic="orders"),
        RemoteLogMetadata(topic_id=TOPIC_ID),
        RemoteLogMetadata(topic="orders", topic_id=TOPIC_ID, partitions=[3]),
    ):
        metadata = applied(started(), broken, update(1), into=wanted)
        assert metadata.partitions() == [ORDERS]
        assert metadata.consumed == {0: 3}
    assert applied(started(), into=RemoteLogMetadata(partitions=[2])).partitions() == []


def test_records_of_others_take_no_memory() -> None:
    metadata = RemoteLogMetadata(topic="orders")
    value = started(of=TopicIdPartition("orders-eu", 3, OTHER_ID))
    tracemalloc.start()
    for number in range(20_000):
        metadata.apply_each(0, [(number, value[:31] + number.to_bytes(16, "big") + value[47:])])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 20_000


def test_damage_names_metadata_partition_and_offset() -> None:
    with pytest.raises(TruncatedError, match=r"__remote_log_metadata-0: .*byte 6.*offset 1") as raised:
        applied(started(), update(1)[:-1])
    assert (raised.value.source, raised.value.offset) == ("__remote_log_metadata-0", 1)


def test_a_damaged_value_leaves_what_was_known_and_can_be_tried_again() -> None:
    metadata = applied(started())
    with pytest.raises(CorruptRecordError):
        metadata.apply_each(0, [(1, b"\7")])
    metadata.apply_each(0, [(1, update(1))])

    assert states(metadata) == [FINISHED]


# the topic as files


def batch(base_offset: int, *values: bytes | None, codec: Codec = Codec.NONE, control: bool = False) -> bytes:
    records = [
        Record(base_offset + index, 1, TimestampType.CREATE_TIME, b"\0\0\0\1" if control else None, value)
        for index, value in enumerate(values)
    ]
    last = base_offset + len(values) - 1
    return encode_batch(records, base_offset=base_offset, last_offset=last, codec=codec, control=control)


Place = Callable[..., LocalStore]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A store with the logs given: base offset to bytes, of metadata partition 0 unless told otherwise."""

    def make(logs: dict[int, bytes], number: int = 0) -> LocalStore:
        directory = tmp_path / "meta" / f"__remote_log_metadata-{number}"
        directory.mkdir(parents=True)
        for base, data in logs.items():
            (directory / f"{base:020}.log").write_bytes(data)
            (directory / f"{base:020}.index").write_bytes(bytes(100))
        return LocalStore(tmp_path)

    return make


@pytest.mark.parametrize("codec", Codec)
def test_logs_are_read_in_order_whatever_their_codec(place: Place, codec: Codec) -> None:
    store = place(
        {
            0: batch(0, started(ONE), update(1, ONE), None, codec=codec) + batch(3, started(TWO), codec=codec),
            4: batch(4, update(2, ONE), codec=codec) + batch(5, b"\0" * 6, control=True) + batch(6, update(1, TWO)),
        }
    )
    for prefix in ("meta", "meta/", "meta/__remote_log_metadata-0", "meta/__remote_log_metadata-0/"):
        metadata = read_remote_log_metadata(store, prefix)
        assert [segment.segment_id for segment in metadata.segments(ORDERS)] == [TWO]
        assert states(metadata) == [DELETING, FINISHED]
        assert (metadata.consumed, metadata.notes) == ({0: 7}, [])
        assert metadata.skipped == {Skipped.NULL_VALUE: 1}


@pytest.mark.parametrize(
    ("tail", "note"),
    [
        (b"", None),
        (bytes(5000), "ends in zeros: 5,000 bytes"),
        (batch(2, update(2))[:-1], "ends inside a batch"),
        (batch(2, update(2))[:30], "ends inside a batch: 30 bytes"),
    ],
    ids=["whole", "zeros", "all but a byte", "half a header"],
)
def test_the_newest_log_may_end_as_a_running_brokers_does(place: Place, tail: bytes, note: str | None) -> None:
    metadata = read_remote_log_metadata(place({0: batch(0, started(), update(1)) + tail}), "meta")

    assert states(metadata) == [FINISHED]
    assert metadata.consumed == {0: 2}
    assert len(metadata.notes) == (note is not None)
    assert all(str(note) in text for text in metadata.notes)


def test_a_log_that_another_one_follows_must_be_whole(place: Place) -> None:
    with pytest.raises(TruncatedError, match=r"00000000000000000000.log: .*ends inside a batch, and another"):
        read_remote_log_metadata(place({0: batch(0, started()) + batch(1, update(1))[:-1], 1: b""}), "meta")


def test_a_log_that_is_missing_between_two_is_refused(place: Place) -> None:
    with pytest.raises(SegmentGapError, match=r"00007.log: .*missing; found offset 7 after 0, expected offset 1"):
        read_remote_log_metadata(place({0: batch(0, started()), 7: batch(7, update(1))}), "meta")


def test_records_that_retention_took_are_noted(place: Place) -> None:
    metadata = read_remote_log_metadata(place({5: batch(5, update(1))}), "meta")

    assert metadata.consumed == {0: 6}
    assert "the records before offset 5 are gone" in metadata.notes[0]


def test_a_metadata_partition_that_is_missing_is_noted(place: Place) -> None:
    metadata = read_remote_log_metadata(place({0: b""}, number=2), "meta")

    assert metadata.consumed == {2: 0}
    assert "no directory of metadata partition 0, 1" in metadata.notes[0]


def test_a_base_offset_that_was_changed_is_found_by_its_neighbours(place: Place) -> None:
    data = bytearray(batch(0, started()) + batch(1, update(1)) + batch(2, update(2)))
    size = len(batch(0, started()))
    data[size + 6] = 1  # offset 1 becomes 257
    with pytest.raises(CorruptBatchError, match=r"do not rise; found base offset 2, expected 258 or more") as raised:
        read_remote_log_metadata(place({0: bytes(data)}), "meta")
    assert raised.value.position == size + len(batch(1, update(1)))


def test_a_flipped_bit_under_the_crc_is_found(place: Place) -> None:
    data = bytearray(batch(0, started()))
    data[-9] ^= 1
    with pytest.raises(CorruptBatchError, match=r"__remote_log_metadata-0/0{20}.log: a batch fails its CRC-32C"):
        read_remote_log_metadata(place({0: bytes(data)}), "meta")


def test_a_broken_compressed_body_is_a_typed_error_with_its_place(place: Place) -> None:
    good = batch(0, started())
    data = good + encode_batch(
        [],
        base_offset=1,
        last_offset=1,
        codec=Codec.ZSTD,
        compressor=lambda _: b"no zstd",
        lies=Lies(record_count=1, body=b"x"),
    )
    with pytest.raises(FormatError) as raised:
        read_remote_log_metadata(place({0: data}), "meta")
    assert raised.value.base_offset == 1
    assert raised.value.position is not None
    assert raised.value.position >= len(good)


def test_a_damaged_value_names_its_log_its_offset_and_its_batch(place: Place) -> None:
    good = batch(0, started())
    with pytest.raises(CorruptRecordError, match=r"frame version \(byte 0 of the value\)") as raised:
        read_remote_log_metadata(place({0: good + batch(1, update(1), b"\0" + started()[1:])}), "meta")
    assert (raised.value.position, raised.value.offset) == (len(good), 2)
    assert str(raised.value.source).endswith("meta/__remote_log_metadata-0/00000000000000000000.log")


def test_an_old_message_format_is_refused_by_name(place: Place) -> None:
    data = bytearray(batch(0, started()))
    data[16] = 1
    with pytest.raises(UnsupportedMagicError, match="magic 1, expected magic 2"):
        read_remote_log_metadata(place({0: bytes(data)}), "meta")


@pytest.mark.parametrize("prefix", ["", "meta/deeper", "met"])
def test_a_place_without_the_topic_says_what_was_looked_for(place: Place, prefix: str) -> None:
    with pytest.raises(ObjectNotFoundError, match="no logs of the remote log metadata topic"):
        read_remote_log_metadata(place({0: b""}), prefix)


# brokers


SETS = sorted(path.parent.name for path in CORPUS.glob("*/metadata"))
LOG = re.compile(r"(?P<base>\d{20})-(?P<id>[A-Za-z0-9_-]{22})\.log")


@pytest.mark.parametrize("set_name", SETS)
def test_finished_segments_are_those_whose_logs_are_in_the_remote_tier(set_name: str) -> None:
    metadata = read_remote_log_metadata(LocalStore(CORPUS / set_name), "metadata")
    objects = {
        (int(match["base"]), match["id"]): path.stat().st_size
        for path in (CORPUS / set_name / "remote").rglob("*.log")
        if (match := LOG.fullmatch(path.name))
    }

    finished = [segment for partition in metadata.partitions() for segment in metadata.segments(partition)]
    gone = {name for partition in metadata.partitions(with_deleted=True) for name in metadata.deleted(partition)}
    # the objects of the first topic named "recreated" are still there, though its records say they are deleted
    assert {(s.base_offset, s.segment_id) for s in finished} == {key for key in objects if key[1] not in gone}
    if set_name not in ("aiven-zstd", "aiven-encrypted"):
        assert all(objects[s.base_offset, s.segment_id] == s.log_size for s in finished)
    assert not metadata.skipped
    assert not metadata.notes


@pytest.mark.parametrize("case", [case for case in cases(*SETS) if case.facts["offline"]], ids=str)
def test_finished_segments_of_a_topic_are_as_many_as_its_case_says(case: Case) -> None:
    metadata = read_remote_log_metadata(
        LocalStore(case.root), "metadata", topic=case.topic, topic_id=case.topic_id, keep_deleted=False
    )
    facts = {int(number): facts for number, facts in case.facts["offline"].items()}

    found = {partition.partition: metadata.segments(partition) for partition in metadata.partitions()}
    assert {number: len(segments) for number, segments in found.items()} == {
        number: fact["segments"] for number, fact in facts.items() if fact["segments"]
    }
    for number, segments in found.items():
        stop = max(segment.last_offset for segment in segments) + 1
        assert stop == case.remote_stop(number) or (stop > case.remote_stop(number) and "diverged" in case.topic)
        assert len({segment.version for segment in segments}) == len(segments)


@pytest.mark.parametrize("set_name", SETS)
def test_every_record_is_in_the_metadata_partition_that_its_partition_hashes_to(set_name: str) -> None:
    for number in range(5):
        metadata = read_remote_log_metadata(LocalStore(CORPUS / set_name), f"metadata/__remote_log_metadata-{number}")
        for partition in metadata.partitions(with_deleted=True):
            assert metadata_partition(partition.topic_id or "", partition.partition, 5) == number


def test_a_topic_that_a_broker_deleted_and_created_again_is_known_by_both_ids() -> None:
    metadata = read_remote_log_metadata(LocalStore(CORPUS / "tv2"), "metadata", topic="recreated")

    known = {topic.topic_id: (topic.segments.get(FINISHED, 0), topic.deleted) for topic in metadata.topics()}
    [now] = [topic_id for topic_id, (finished, _) in known.items() if finished]
    assert now == next(case for case in cases("tv2") if case.topic == "recreated").topic_id
    assert metadata.partitions() == [TopicIdPartition("recreated", 0, now)]


def test_a_flipped_byte_anywhere_in_a_log_never_makes_up_a_segment(place: Place) -> None:
    data = batch(0, started(ONE), update(1, ONE)) + batch(2, started(TWO), update(1, TWO))
    store = place({0: data})
    path = store.root / "meta" / "__remote_log_metadata-0" / f"{0:020}.log"
    right = read_remote_log_metadata(store, "meta").segments(ORDERS)
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x11]) + data[position + 1 :])
        with suppress(FormatError):
            found = read_remote_log_metadata(store, "meta").segments(ORDERS)
            assert found == right[: len(found)]
