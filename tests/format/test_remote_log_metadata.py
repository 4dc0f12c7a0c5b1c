from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from contextlib import suppress

import pytest
from corpus import CORPUS
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from segreader.errors import CorruptRecordError, FormatError, OptionError, TruncatedError
from segreader.format.checkpoints import LeaderEpoch, LeaderEpochs
from segreader.format.compression import Decompressor
from segreader.format.records import iter_records
from segreader.format.remote_log_metadata import (
    MetadataRecord,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    TopicIdPartitionEntry,
    UnknownMetadataRecord,
    metadata_partition,
    parse_partition_key,
    parse_remote_log_metadata,
    partition_key,
)
from segreader.format.scanner import BatchReady, NeedData, SegmentScanner
from segreader.testing.remote_log_metadata import (
    encode_partition_delete,
    encode_segment_metadata,
    encode_segment_update,
)

TOPIC_ID, SEGMENT_ID = "LWgrMmVrT0a__7a4SasuPA", "bCqX9U--S-6U8XUM9II25Q"
ORDERS = TopicIdPartitionEntry("orders", TOPIC_ID, 3)
WHO = "07 6f7264657273 2d682b32656b4f46bfffb6b849ab2e3c 00000003 00"
WHICH = "6c2a97f54fbe4bee94f1750cf48236e5 00"

STARTED = bytes.fromhex(
    f"01 00 00 {WHO} {WHICH} 00000000000003e8 00000000000007cf 00000001 0000018bcfe56800 0000018bcfe56be8"
    "03 00000002 00000000000003e8 00 00000005 00000000000005dc 00 00100000 00 00 00"
)
STARTED_EMPTY_INDEX = STARTED[:-1] + bytes.fromhex("01 00 01 01")
STARTED_IN_VERSION_1 = STARTED[:2] + b"\1" + STARTED[3:-1] + bytes.fromhex("02 00 01 01 01 04 00000007")
FINISHED = bytes.fromhex(f"01 01 00 {WHO} {WHICH} 00000001 0000018bcfe56fd0 04 010203 01 00")
FINISHED_PLAIN = bytes.fromhex(f"01 01 00 {WHO} {WHICH} 00000001 0000018bcfe56fd0 00 01 00")
DELETED = bytes.fromhex(f"01 02 00 {WHO} 00000001 0000018bcfe573b8 00 00")
SNAPSHOT = bytes.fromhex("01 03 00 6c2a97f54fbe4bee94f1750cf48236e5") + STARTED[48:]
USUAL = encode_segment_metadata(
    "orders", TOPIC_ID, 3, SEGMENT_ID, start_offset=5, end_offset=9, epochs=[(2, 5)], log_size=7
)
USUAL_EMPTY_INDEX = USUAL[:-1] + bytes.fromhex("01 00 01 01")

RECORD = RemoteLogSegmentMetadataRecord(
    ORDERS,
    SEGMENT_ID,
    start_offset=1000,
    end_offset=1999,
    broker_id=1,
    max_timestamp_ms=1_700_000_000_000,
    event_timestamp_ms=1_700_000_001_000,
    epochs=LeaderEpochs((LeaderEpoch(2, 1000), LeaderEpoch(5, 1500))),
    log_size=1 << 20,
    custom_metadata=None,
    state=0,
)
UPDATE = RemoteLogSegmentMetadataUpdateRecord(ORDERS, SEGMENT_ID, 1, 1_700_000_002_000, b"\1\2\3", 1)

VECTORS: dict[str, tuple[int, bytes, MetadataRecord]] = {
    "A": (118, STARTED, RECORD),
    "A with an empty transaction index": (121, STARTED_EMPTY_INDEX, RECORD._replace(transaction_index_is_empty=True)),
    "B": (66, FINISHED, UPDATE),
    "B without custom metadata": (63, FINISHED_PLAIN, UPDATE._replace(custom_metadata=None)),
    "C": (45, DELETED, RemotePartitionDeleteMetadataRecord(ORDERS, 1, 1_700_000_003_000, 0)),
    "D": (127, STARTED_IN_VERSION_1, RECORD._replace(transaction_index_is_empty=True)),
    "snapshot": (89, SNAPSHOT, RemoteLogSegmentMetadataSnapshotRecord(*RECORD[1:])),
}


@pytest.mark.parametrize(("size", "value", "expected"), VECTORS.values(), ids=VECTORS)
def test_a_value_decodes_to_what_kafka_put_in(size: int, value: bytes, expected: MetadataRecord) -> None:
    assert len(value) == size
    assert parse_remote_log_metadata(value) == expected


@pytest.mark.parametrize("value", [STARTED, STARTED_IN_VERSION_1, FINISHED, FINISHED_PLAIN, DELETED])
def test_every_record_of_a_partition_has_its_key(value: bytes) -> None:
    assert partition_key(value) == bytes.fromhex(WHO)
    assert parse_partition_key(partition_key(value)) == ORDERS


@pytest.mark.parametrize("value", [SNAPSHOT, bytes.fromhex("01 04 00"), bytes.fromhex("01 81 01 00")])
def test_a_record_of_no_partition_has_no_key(value: bytes) -> None:
    assert partition_key(value) == b""


def test_tagged_fields_in_inner_structs_are_passed_over() -> None:
    who = bytes.fromhex(WHO)
    tagged = STARTED.replace(who, who[:-1] + bytes.fromhex("01 05 02 ffff"))
    tagged = tagged.replace(
        bytes.fromhex("00000002 00000000000003e8 00"), bytes.fromhex("00000002 00000000000003e8 01 0700")
    )

    assert parse_remote_log_metadata(tagged) == RECORD
    assert parse_remote_log_metadata(tagged, parse_partition_key(partition_key(tagged))) == RECORD


@pytest.mark.parametrize("name", ["o" * 126, "o" * 127, "o" * 249])
def test_a_topic_name_may_be_as_long_as_kafka_allows(name: str) -> None:
    value = encode_segment_update(name, TOPIC_ID, 0, SEGMENT_ID, 2)

    assert parse_partition_key(partition_key(value)) == (name, TOPIC_ID, 0)
    record = parse_remote_log_metadata(value, parse_partition_key(partition_key(value)))
    assert record == parse_remote_log_metadata(value)


def test_epochs_are_ordered_whatever_their_order_on_the_wire() -> None:
    value = encode_segment_metadata(
        "orders", TOPIC_ID, 3, SEGMENT_ID, start_offset=0, end_offset=9, epochs=[(5, 7), (2, 0)]
    )

    record = parse_remote_log_metadata(value)

    assert isinstance(record, RemoteLogSegmentMetadataRecord)
    assert record.epochs == LeaderEpochs((LeaderEpoch(2, 0), LeaderEpoch(5, 7)))


def test_an_unknown_kind_of_message_is_told_and_not_decoded() -> None:
    assert parse_remote_log_metadata(bytes.fromhex("01 07 02 ffff")) == UnknownMetadataRecord(7, 2)


@pytest.mark.parametrize(("value", "expected"), [(STARTED, RECORD), (FINISHED, UPDATE)])
def test_a_newer_version_decodes_if_only_tagged_fields_are_new(value: bytes, expected: MetadataRecord) -> None:
    newer = value[:2] + b"\x09" + value[3:-1] + bytes.fromhex("01 09 01 ff")

    assert parse_remote_log_metadata(newer) == expected


@pytest.mark.parametrize("value", [STARTED, FINISHED, DELETED])
@pytest.mark.parametrize("change", ["one byte more", "one byte less"])
def test_a_newer_version_with_another_layout_is_refused_by_name(value: bytes, change: str) -> None:
    newer = value[:2] + b"\x09" + value[3:]
    with pytest.raises(CorruptRecordError, match=r"unknown version.*version 9"):
        parse_remote_log_metadata(newer + b"\0" if change == "one byte more" else newer[:-1])


@pytest.mark.parametrize("value", [STARTED, FINISHED, FINISHED_PLAIN, DELETED, SNAPSHOT, USUAL])
def test_bytes_behind_the_message_are_counted(value: bytes) -> None:
    for partition in (None, ORDERS):
        record = parse_remote_log_metadata(value + b"\0\1", partition)
        assert not isinstance(record, UnknownMetadataRecord)
        assert record.trailing_bytes == 2


def test_another_frame_version_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="frame version; found version 0, expected version 1"):
        parse_remote_log_metadata(b"\0" + STARTED[1:])


def test_a_cut_value_says_where_it_ends() -> None:
    with pytest.raises(TruncatedError, match=r"ends too early.*byte 98"):
        parse_remote_log_metadata(STARTED[:100])


BROKEN = {
    "a null topic": STARTED[:3] + b"\0" + STARTED[10:],
    "a topic that is a path": STARTED.replace(b"orders", b"../../"),
    "a negative partition": STARTED[:26] + b"\xff" + STARTED[27:],
    "offsets that fall": STARTED[:48] + STARTED[56:64] + STARTED[48:56] + STARTED[64:],
    "a negative size": STARTED[:111] + b"\x80" + STARTED[112:],
    "no epochs": STARTED[:84] + b"\1" + STARTED[111:],
    "null epochs": STARTED[:84] + b"\0" + STARTED[111:],
    "epochs that fall back": STARTED[:102] + bytes(8) + STARTED[110:],
    "an unknown state": STARTED[:116] + b"\4" + STARTED[117:],
    "an unknown new state": FINISHED[:-2] + b"\4\0",
    "an unknown delete state": DELETED[:-2] + b"\3\0",
    "a number without end": b"\x81\x80\x80\x80\x80\x80" + STARTED[1:],
}


@pytest.mark.parametrize("value", BROKEN.values(), ids=BROKEN)
def test_an_impossible_value_is_refused(value: bytes) -> None:
    with pytest.raises(CorruptRecordError) as raised:
        parse_remote_log_metadata(value)
    assert raised.value.position is not None


def damaged(data: bytes) -> Iterator[bytes]:
    for size in range(len(data)):
        yield data[:size]
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)


def use(value: bytes) -> None:
    """Both ways to decode a value must say the same: a record, or an error of the same kind."""
    try:
        whole: object = parse_remote_log_metadata(value)
    except FormatError as error:
        whole = type(error)
    try:
        key = partition_key(value)
        parts: object = parse_remote_log_metadata(value, parse_partition_key(key) if key else None)
    except FormatError as error:
        parts = type(error)
    assert parts == whole or {parts, whole} <= {TruncatedError, CorruptRecordError}


@pytest.mark.parametrize(
    "value", [STARTED_IN_VERSION_1, FINISHED, FINISHED_PLAIN, DELETED, SNAPSHOT, USUAL, USUAL_EMPTY_INDEX]
)
def test_damage_gives_a_value_or_a_format_error(value: bytes) -> None:
    use(value)
    for wrong in damaged(value):
        use(wrong)


@given(data=st.binary(max_size=200), prefix=st.sampled_from([b"", b"\1", STARTED[:48], FINISHED[:48], SNAPSHOT[:19]]))
@settings(max_examples=tries(200), deadline=None)
def test_any_bytes_give_a_value_or_a_format_error(data: bytes, prefix: bytes) -> None:
    use(prefix + data)


int64s, int32s = st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 31) - 1)
custom = st.one_of(st.none(), st.binary(max_size=300))
tags = st.dictionaries(st.integers(1, 300), st.binary(max_size=200), max_size=2)


@given(data=st.data())
@settings(max_examples=tries(100), deadline=None)
def test_what_is_encoded_is_decoded(data: st.DataObject) -> None:
    first, last = sorted((data.draw(int64s), data.draw(int64s)))
    starts = sorted(data.draw(st.lists(int64s, min_size=1, max_size=3)))
    epochs = tuple(zip(sorted(data.draw(st.sets(int32s, min_size=3, max_size=3))), starts, strict=False))
    fields = data.draw(custom), data.draw(st.integers(0, 3)), data.draw(tags)
    record = RemoteLogSegmentMetadataRecord(
        ORDERS,
        SEGMENT_ID,
        first,
        last,
        *(data.draw(int32s), data.draw(int64s), data.draw(int64s)),
        LeaderEpochs(tuple(LeaderEpoch(*entry) for entry in epochs)),
        data.draw(int32s),
        *fields[:2],
    )
    update = RemoteLogSegmentMetadataUpdateRecord(ORDERS, SEGMENT_ID, record[4], record[6], *fields[:2])

    started = encode_segment_metadata(
        *ORDERS[:2],
        3,
        SEGMENT_ID,
        start_offset=first,
        end_offset=last,
        epochs=epochs,
        broker_id=record.broker_id,
        max_timestamp_ms=record.max_timestamp_ms,
        event_timestamp_ms=record.event_timestamp_ms,
        log_size=record.log_size,
        custom_metadata=fields[0],
        state=fields[1],
        tags=fields[2],
    )
    updated = encode_segment_update(
        *ORDERS[:2],
        3,
        SEGMENT_ID,
        fields[1],
        broker_id=update.broker_id,
        event_timestamp_ms=update.event_timestamp_ms,
        custom_metadata=fields[0],
        tags=fields[2],
    )
    for partition in (None, ORDERS):
        assert parse_remote_log_metadata(started, partition) == record
        assert parse_remote_log_metadata(updated, partition) == update
    assert parse_remote_log_metadata(encode_partition_delete(*ORDERS, 2)) == (ORDERS, 1, 0, 2, 0)


@pytest.mark.parametrize(("partition", "expected"), list(enumerate([1, 18, 30, 2, 37, 24])))
def test_the_metadata_partition_is_the_one_kafka_chooses(partition: int, expected: int) -> None:
    assert metadata_partition(TOPIC_ID, partition, 50) == expected


@pytest.mark.parametrize(("count", "expected"), [(5, 2), (1, 0)])
def test_the_metadata_partition_depends_on_their_number(count: int, expected: int) -> None:
    assert metadata_partition(TOPIC_ID, 3, count) == expected


@pytest.mark.parametrize(("topic_id", "partition", "count"), [("short", 0, 5), (TOPIC_ID, -1, 5), (TOPIC_ID, 0, 0)])
def test_the_metadata_partition_of_nothing_is_refused(topic_id: str, partition: int, count: int) -> None:
    with pytest.raises(OptionError):
        metadata_partition(topic_id, partition, count)


SEGMENT_STATES = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)


def java_text(record: MetadataRecord, *, says_index: bool) -> str:
    """The record as Java's ``toString`` prints it; 4.1 and later say whether the transaction index is empty."""
    assert isinstance(record, RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord)
    who = record.partition
    segment = (
        f"remoteLogSegmentId=RemoteLogSegmentId{{topicIdPartition={who.topic_id}:{who.topic}-{who.partition}, "
        f"id={record.segment_id}}}"
    )
    size = None if record.custom_metadata is None else len(record.custom_metadata)
    custom = "Optional.empty" if size is None else f"Optional[CustomMetadata{{{size} bytes}}]"
    state = SEGMENT_STATES[record.state]
    if isinstance(record, RemoteLogSegmentMetadataUpdateRecord):
        return (
            f"RemoteLogSegmentMetadataUpdate{{{segment}, customMetadata={custom}, state={state}, "
            f"eventTimestampMs={record.event_timestamp_ms}, brokerId={record.broker_id}}}"
        )
    epochs = ", ".join(f"{entry.epoch}={entry.start_offset}" for entry in record.epochs)
    index = f", txnIdxEmpty={str(record.transaction_index_is_empty).lower()}" if says_index else ""
    return (
        f"RemoteLogSegmentMetadata{{{segment}, startOffset={record.start_offset}, endOffset={record.end_offset}, "
        f"brokerId={record.broker_id}, maxTimestampMs={record.max_timestamp_ms}, "
        f"eventTimestampMs={record.event_timestamp_ms}, segmentLeaderEpochs={{{epochs}}}, "
        f"segmentSizeInBytes={record.log_size}, customMetadata={custom}, state={state}{index}}}"
    )


DUMPS = sorted(path.parents[1].name for path in CORPUS.glob("*/dump/metadata.txt.gz"))


@pytest.mark.parametrize("set_name", DUMPS)
def test_every_value_of_a_broker_is_what_kafkas_dump_tool_prints(set_name: str) -> None:
    printed: dict[str, list[tuple[str, str]]] = {}
    with gzip.open(CORPUS / set_name / "dump/metadata.txt.gz", "rt") as lines:
        for line in lines:
            if line.startswith("Dumping "):
                records = printed.setdefault(line.split("/")[-2], [])
            elif found := re.match(r"\| offset: (\d+) .*? payload: (.*)\n", line):
                records.append((found[1], found[2]))

    decoded: dict[str, list[tuple[str, str]]] = {}
    for directory in (CORPUS / set_name / "metadata").iterdir():
        records = decoded.setdefault(directory.name, [])
        log = (directory / f"{0:020}.log").read_bytes()
        for offset, value in values(log):
            says_index = "txnIdxEmpty" in dict(printed[directory.name])[str(offset)]
            records.append((str(offset), java_text(parse_remote_log_metadata(value), says_index=says_index)))

    assert decoded == printed
    assert sum(map(len, decoded.values())) >= 50


def values(log: bytes) -> Iterator[tuple[int, bytes]]:
    scanner, decompressor = SegmentScanner(stop=len(log)), Decompressor()
    while isinstance(answer := scanner.next(), BatchReady | NeedData):
        if isinstance(answer, NeedData):
            scanner.feed(log[answer.range.start : answer.range.stop])
            continue
        for record in iter_records(answer.data, decompressor):
            assert record.value is not None
            yield record.offset, record.value


def test_a_value_that_fits_no_known_key_is_never_an_index_error() -> None:
    for size in range(len(USUAL)):
        with suppress(FormatError):
            parse_remote_log_metadata(USUAL[:size], ORDERS)
