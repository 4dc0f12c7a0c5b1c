from __future__ import annotations

import struct

import pytest
from layout_walk import found_below, places_below, stored_in, three_segments

from segreader.catalog.layouts.uber import UberLayout, UberView, parse_segment_file_header
from segreader.errors import FormatError, ManifestError, ObjectChangedError, ObjectNotFoundError, ShortReadError
from segreader.format.compression import Codec
from segreader.ranges import ByteRange
from segreader.segment import TopicIdPartition
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid, local_tiered_files
from segreader.testing.layouts import uber_file, uber_files
from segreader.testing.stores import MemoryStore

LAYOUT = UberLayout()


def only(segment: SegmentBuilder) -> tuple[MemoryStore, str]:
    """A store of one file, and its name."""
    files = uber_files("t", [segment])
    return MemoryStore(files), next(iter(files))


def test_every_part_reads_as_a_plain_file() -> None:
    built = three_segments()
    store = MemoryStore(uber_files("orders-2024", built, partition=11))
    (found,) = found_below(store, LAYOUT)
    assert found.place.partition == TopicIdPartition("orders-2024", 11, kafka_uuid("orders-2024"))
    assert found.bases == [100, 143, 185]
    view = LAYOUT.view(store)
    for segment, one in zip(found.segments, built, strict=True):
        files = segment.files
        assert stored_in(view, files.log) == one.to_bytes()
        assert stored_in(view, files.producer_snapshot) == one.snapshot()
        assert stored_in(view, files.leader_epochs) == one.leader_epoch_checkpoint()
        assert segment.log_size == len(one.to_bytes())
        assert files.sizes == {name: view.size(name) for name in files.sizes}
        assert segment.segment_id == kafka_uuid("orders-2024", 11, one.base_offset)
    assert stored_in(view, found.segments[0].files.transaction_index) == built[0].transaction_index()
    assert stored_in(view, found.segments[0].files.offset_index) == built[0].index()
    assert stored_in(view, found.segments[0].files.time_index) == built[0].time_index()
    assert found.segments[2].files.transaction_index is None
    assert stored_in(view, found.segments[2].files.log.removesuffix("log") + "txnindex") == b""


def test_finding_a_segment_costs_a_header_a_batch_and_an_index_entry() -> None:
    built = three_segments()[0]
    store, name = only(built)
    (place,) = places_below(store, LAYOUT)
    store.requests.clear()
    LAYOUT.find(store, place)
    header = parse_segment_file_header(store.objects[name], len(store.objects[name]))
    log, index = header.part("log")[0], sum(header.part("index"))
    at = log + struct.unpack(">ii", built.index()[-8:])[1]
    assert store.requests == [
        f"LEVEL {place.prefixes[0]}",
        f"GET {name} bytes=0-24",
        f"GET {name} bytes={log}-{log + 60}",
        f"GET {name} bytes={index - 8}-{index - 1}",
        f"GET {name} bytes={at}-{at + 60}",
    ]


def test_a_view_reads_a_header_once_and_of_a_part_only_what_is_wanted() -> None:
    store, name = only(three_segments()[0])
    view = LAYOUT.view(store)
    log = parse_segment_file_header(store.objects[name], len(store.objects[name])).part("log")[0]
    plain = three_segments()[0].to_bytes()
    assert view.read_ranges(f"{name}.log", [ByteRange(0, 5), ByteRange(70, 80)]) == [plain[:5], plain[70:80]]
    assert b"".join(view.read_pieces(f"{name}.log", ByteRange(10, 13), expected_size=len(plain))) == plain[10:13]
    assert store.requests == [
        f"SIZE {name}",
        f"GET {name} bytes=0-24",
        f"GET {name} bytes={log}-{log + 4}",
        f"GET {name} bytes={log + 70}-{log + 79}",
        f"GET {name} bytes={log + 10}-{log + 12}",
    ]


def test_a_view_keeps_few_headers_and_still_answers() -> None:
    segments = [SegmentBuilder(base).batch([b"x"]) for base in range(300)]
    store = MemoryStore(uber_files("t", segments))
    view = UberView(store)
    for _ in range(2):
        assert sum(view.size(f"{name}.log") > 0 for name in store.objects) == 300
    assert len(view._headers) == 256


def test_a_range_past_the_end_of_a_part_never_reads_the_next_one() -> None:
    store, name = only(three_segments()[0])
    view = LAYOUT.view(store)
    size = view.size(f"{name}.index")
    with pytest.raises(ShortReadError):
        view.read_ranges(f"{name}.index", [ByteRange(0, size + 1)])


def test_an_object_that_was_replaced_is_found_out() -> None:
    store, name = only(three_segments()[0])
    view = LAYOUT.view(store)
    view.size(f"{name}.log")
    store.objects[name] += b"x"
    with pytest.raises(ObjectChangedError):
        view.read_ranges(f"{name}.log", [ByteRange(0, 5)])


def test_a_name_of_the_store_below_keeps_its_meaning() -> None:
    files = local_tiered_files("t", three_segments()[:1])
    store = MemoryStore(files | {"t-0/x.log": b"plain"})
    view = LAYOUT.view(store)
    for name, data in store.objects.items():
        assert stored_in(view, name) == data
    with pytest.raises(ObjectNotFoundError):
        view.size(f"t-0-{kafka_uuid('t')}/{kafka_uuid('s')}.log")


def test_a_directory_of_kafkas_own_test_plugin_is_none_of_this_layout() -> None:
    assert places_below(MemoryStore(local_tiered_files("t", three_segments())), LAYOUT) == []


def test_a_segment_whose_first_batches_were_compacted_away_is_read_without_its_index() -> None:
    built = SegmentBuilder(100, index_interval_bytes=1).skip(40)
    for value in range(5):
        built.batch([b"%d" % value])
    store, _ = only(built)
    (found,) = found_below(store, LAYOUT)
    (segment,) = found.segments
    assert segment.base_offset == 140
    assert (segment.files.offset_index, segment.files.time_index) == (None, None)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_the_old_formats_say_their_first_offset(magic: int, codec: Codec) -> None:
    store, _ = only(SegmentBuilder(500).message_set([b"a", b"b", b"c"], magic=magic, codec=codec))
    (found,) = found_below(store, LAYOUT)
    assert found.bases == [500]


def test_a_segment_without_records_is_a_note() -> None:
    store, name = only(SegmentBuilder(3))
    (found,) = found_below(store, LAYOUT)
    assert found.segments == []
    assert found.files.notes == [f"{name} holds an empty log: nothing says its offset, and it holds no record"]


def test_foreign_objects_are_named() -> None:
    store, name = only(SegmentBuilder(3).batch([b"x"]))
    folder = name.rpartition("/")[0]
    store.objects |= {f"{folder}/_SUCCESS": b"", f"{folder}/{kafka_uuid('x')}.tmp": b""}
    (found,) = found_below(store, LAYOUT)
    assert found.bases == [3]
    assert sorted(found.files.foreign) == sorted([f"{folder}/_SUCCESS", f"{folder}/{kafka_uuid('x')}.tmp"])


def header_of(*starts: int, version: int = 0) -> bytes:
    return struct.pack(">b6i", version, *starts)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is cut"),
        (header_of(25, 30, 40, 50, 60, 70)[:24], "is cut"),
        (header_of(25, 30, 40, 50, 60, 70, version=1), "unknown version"),
        (header_of(26, 30, 40, 50, 60, 70), "does not follow its header"),
        (header_of(25, 30, 29, 50, 60, 70), "the timeindex of a segment file ends before it begins"),
        (header_of(25, 30, 40, 50, 60, -1), "the txnindex of a segment file ends before it begins"),
        (header_of(25, 30, 40, 50, 60, 1001), "the log of a segment file ends before it begins"),
    ],
)
def test_a_header_that_cannot_be_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(ManifestError, match=says):
        parse_segment_file_header(data, 1000)


def test_a_broken_header_is_refused_by_the_name_of_its_object() -> None:
    store, name = only(SegmentBuilder(3).batch([b"x"]))
    store.objects[name] = b"\1" + store.objects[name][1:]
    for ask in (lambda: found_below(store, LAYOUT), lambda: LAYOUT.view(store).size(f"{name}.log")):
        with pytest.raises(ManifestError) as caught:
            ask()
        assert caught.value.source == f"memory://bucket/{name}"


def test_a_header_cut_anywhere_or_with_any_bit_flipped_gives_parts_inside_the_file_or_an_error() -> None:
    data = uber_file(three_segments()[0])
    size = len(data)
    for length in range(25):
        with pytest.raises(ManifestError):
            parse_segment_file_header(data[:length], size)
    for bit in range(8 * 25):
        flipped = bytearray(data[:25])
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            header = parse_segment_file_header(bytes(flipped), size)
        except ManifestError:
            continue
        parts = [
            header.part(kind) for kind in ("index", "timeindex", "leader_epoch_checkpoint", "snapshot", "txnindex")
        ]
        assert all(start >= 25 and length >= 0 and start + length <= size for start, length in parts)


def test_a_file_cut_anywhere_or_with_any_header_bit_flipped_is_found_or_refused_with_its_name() -> None:
    built = SegmentBuilder(3).batch([b"x"] * 3)
    store, name = only(built)
    whole = store.objects[name]
    spoiled = [whole[:length] for length in range(len(whole))]
    spoiled += [bytes(b ^ (bit == at // 8) << at % 8 for bit, b in enumerate(whole)) for at in range(8 * 25)]
    for data in spoiled:
        store.objects[name] = data
        try:
            found_below(store, LAYOUT)
        except (ManifestError, FormatError) as error:
            assert name in (error.source or "")
