from __future__ import annotations

import base64
import json
import pickle
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import aiven_vectors as vectors
import pytest
import zstandard
from corpus import CORPUS, Case, cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import tries

from segreader.catalog.layouts.aiven.encryption import KeyRing
from segreader.catalog.layouts.aiven.layout import AivenFiles, AivenLayout
from segreader.catalog.layouts.aiven.manifest import MANIFEST
from segreader.catalog.layouts.aiven.settings import RsmConfig
from segreader.catalog.layouts.base import Directory, IncompleteSegment, Layout, PartitionFiles, PartitionPlace
from segreader.errors import (
    DecryptionError,
    ManifestError,
    ObjectChangedError,
    ObjectNotFoundError,
    SegreaderError,
    ShortReadError,
)
from segreader.format.batch import RecordBatchHeader
from segreader.format.checkpoints import LeaderEpoch, parse_leader_epochs, parse_producer_snapshot
from segreader.format.compression import Decompressor
from segreader.format.index_files import parse_offset_index, parse_time_index, parse_transaction_index
from segreader.format.records import iter_records
from segreader.format.scanner import BatchReady, Done, NeedData, SegmentScanner, Tail
from segreader.ranges import ByteRange
from segreader.segment import Segment, SegmentFiles, StemFiles, TopicIdPartition
from segreader.storage.base import ObjectInfo, ObjectStore
from segreader.storage.local import LocalStore

SETS = ("aiven-plain", "aiven-zstd", "aiven-encrypted")
TOPIC_ID = "MWJ6FHTfRYy67jzwZdeqSQ"
DIRECTORY = f"tiered/demo-{TOPIC_ID}/0/"
DEMO = TopicIdPartition("demo", 0, TOPIC_ID)
LOG = f"{vectors.STEM}.log"
CHANGED_VARIANTS = ("encrypted", "compressed", "both")


def find(stored: dict[str, bytes], config: RsmConfig | None = None, directory: str = DIRECTORY) -> PartitionFiles:
    layout, store = AivenLayout(config), vectors.RequestLog(stored)
    files = tuple(ObjectInfo(name, len(data)) for name, data in stored.items() if name.startswith(directory))
    (place,) = layout.places(Directory(directory, files))
    return layout.find(store, place)


def moved(stem: str, variant: str = "plain") -> dict[str, bytes]:
    return vectors.objects(variant, stem)


def test_it_is_a_layout_and_a_value() -> None:
    layout: Layout = AivenLayout()
    assert (layout.name, layout.is_experimental) == ("aiven", False)
    assert pickle.loads(pickle.dumps(layout)) == layout == AivenLayout(None)


@pytest.mark.parametrize("variant", vectors.VARIANTS)
def test_a_segment_is_known_from_its_manifest_alone(variant: str) -> None:
    found = find(vectors.objects(variant))
    assert (found.incomplete, found.foreign, found.notes) == ([], [], [])
    (segment,) = found.segments
    assert segment == Segment(
        partition=DEMO,
        base_offset=500,
        log_size=160,
        files=StemFiles(vectors.STEM, has_transaction_index=False),
        segment_id="tqimKeZwStOEOwRzT3L5oQ",
        last_offset=501,
        epochs=segment.epochs,
        max_timestamp_ms=1700000000001,
        version=1700000100000,
        chunk_size=None if variant == "plain" else vectors.manifest(variant)["chunkIndex"]["originalChunkSize"],
    )
    assert segment.epochs is not None
    assert segment.epochs.entries == (LeaderEpoch(3, 500),)


def test_a_partition_costs_one_listing_and_one_request_a_segment() -> None:
    stored: dict[str, bytes] = {}
    for offset in range(40):
        manifest = vectors.manifest()
        manifest["remoteLogSegmentMetadata"] |= {"startOffset": offset, "segmentLeaderEpochs": {"0": offset}}
        stem = vectors.STEM.replace("00500", f"{offset:05d}")
        stored |= vectors.with_manifest(moved(stem), manifest, stem)
    store = vectors.RequestLog(stored)
    found = AivenLayout().find(store, PartitionPlace(DEMO, (DIRECTORY,), "aiven"))
    assert [segment.base_offset for segment in found.segments] == list(range(40))
    assert store.requests[0] == f"LIST {DIRECTORY}"
    assert len(store.requests) == 41
    assert all(line.startswith("GET rsm-manifest bytes=0-") for line in store.requests[1:])


def test_sixteen_manifests_are_asked_for_at_once() -> None:
    stored: dict[str, bytes] = {}
    for offset in range(16):
        manifest = vectors.manifest()
        manifest["remoteLogSegmentMetadata"] |= {"startOffset": offset, "segmentLeaderEpochs": {"0": offset}}
        stem = vectors.STEM.replace("00500", f"{offset:05d}")
        stored |= vectors.with_manifest(moved(stem), manifest, stem)
    together = threading.Barrier(16, timeout=5)

    class Slow(vectors.RequestLog):
        def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
            together.wait()
            return super().read_ranges(name, ranges)

    assert len(AivenLayout().find(Slow(stored), PartitionPlace(DEMO, (DIRECTORY,), "aiven")).segments) == 16


@pytest.mark.parametrize(
    ("kept", "missing"),
    [
        (("log",), ("indexes", "rsm-manifest")),
        (("log", "indexes"), ("rsm-manifest",)),
        (("indexes",), ("log", "rsm-manifest")),
        (("rsm-manifest",), ("log", "indexes")),
        (("indexes", "rsm-manifest"), ("log",)),
        (("log", "rsm-manifest"), ("indexes",)),
    ],
)
def test_a_set_that_is_not_whole_is_told_and_is_no_segment(kept: tuple[str, ...], missing: tuple[str, ...]) -> None:
    stored = {name: data for name, data in vectors.objects().items() if name.rpartition(".")[2] in kept}
    found = find(stored)
    assert found.segments == []
    (incomplete,) = found.incomplete
    assert incomplete == IncompleteSegment(500, incomplete.name, missing, "tqimKeZwStOEOwRzT3L5oQ")
    assert incomplete.name in stored


def test_a_manifest_that_goes_while_it_is_listed_leaves_an_incomplete_set() -> None:
    class Vanishing(vectors.RequestLog):
        def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
            yield from list(super().list(prefix))
            self.stored = {name: data for name, data in self.stored.items() if not name.endswith(MANIFEST)}

    found = AivenLayout().find(Vanishing(vectors.objects()), PartitionPlace(DEMO, (DIRECTORY,), "aiven"))
    assert found.segments == []
    assert [one.missing for one in found.incomplete] == [(MANIFEST,)]


def test_a_log_of_another_size_than_its_chunks_is_refused() -> None:
    for variant in vectors.VARIANTS:
        stored = vectors.objects(variant)
        stored[f"{vectors.STEM}.log"] += b"\0"
        with pytest.raises(ManifestError, match=r"\.log: the log has not the bytes"):
            find(stored)


def test_an_index_outside_of_its_object_is_refused() -> None:
    stored = vectors.objects()
    stored[f"{vectors.STEM}.indexes"] = stored[f"{vectors.STEM}.indexes"][:-1]
    with pytest.raises(ManifestError, match=r"\.indexes: the leaderEpoch index is outside"):
        find(stored)


def test_a_cut_manifest_stops_the_listing_with_its_name() -> None:
    stored = vectors.objects()
    stored[f"{vectors.STEM}.rsm-manifest"] = stored[f"{vectors.STEM}.rsm-manifest"][:-1]
    with pytest.raises(ManifestError, match=r"demo-.*\.rsm-manifest: "):
        find(stored)


def test_objects_of_no_segment_are_foreign() -> None:
    names = [f"{DIRECTORY}readme.txt", f"{vectors.STEM}.bak", f"{DIRECTORY}more/{vectors.STEM.rpartition('/')[2]}.log"]
    found = find({**vectors.objects(), **dict.fromkeys(names, b"")})
    assert sorted(found.foreign) == sorted(names)
    assert len(found.segments) == 1


def test_a_prefix_that_hides_the_topic_is_seen_through_by_the_manifest_or_the_settings() -> None:
    stem = vectors.STEM.replace("tiered/", "tiered")
    found = find(moved(stem), directory=DIRECTORY.replace("tiered/", "tiered"))
    assert [segment.partition for segment in found.segments] == [DEMO]
    assert len(found.notes) == 1
    config = RsmConfig("tiered")
    assert AivenLayout(config).partition_of(f"tiereddemo-{TOPIC_ID}/0/") == DEMO
    assert find(moved(stem), config, DIRECTORY.replace("tiered/", "tiered")).notes == []


def test_a_manifest_without_the_brokers_words_gives_what_the_name_says() -> None:
    manifest = vectors.manifest()
    del manifest["remoteLogSegmentMetadata"]
    (segment,) = find(vectors.with_manifest(vectors.objects(), manifest)).segments
    assert (segment.partition, segment.base_offset, segment.last_offset, segment.epochs) == (DEMO, 500, None, None)


def test_segments_of_the_oldest_layout_are_found_with_their_indexes() -> None:
    stored = vectors.objects()
    del stored[f"{vectors.STEM}.indexes"]
    manifest = vectors.manifest()
    del manifest["segmentIndexes"]
    suffixes = ("index", "timeindex", "snapshot", "leader-epoch-checkpoint")
    stored |= {f"{vectors.STEM}.{suffix}": b"" for suffix in suffixes}
    (segment,) = find(vectors.with_manifest(stored, manifest)).segments
    stem = vectors.STEM
    assert segment.files == SegmentFiles(
        f"{stem}.log", f"{stem}.index", f"{stem}.timeindex", None, f"{stem}.snapshot", f"{stem}.leader-epoch-checkpoint"
    )
    del stored[f"{vectors.STEM}.rsm-manifest"]
    assert [one.missing for one in find(stored).incomplete] == [(MANIFEST,)]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (f"demo-0-{TOPIC_ID}/", ["00000000000000000500-tqimKeZwStOEOwRzT3L5oQ.log"]),  # LocalTieredStorage
        ("demo-0/", ["00000000000000000500.log"]),  # a broker's
        (DIRECTORY, ["00000000000000000500.log"]),
        (DIRECTORY, []),
        ("", []),
        (f"tiered/demo-{TOPIC_ID}/", ["00000000000000000500-tqimKeZwStOEOwRzT3L5oQ.log"]),
    ],
)
def test_directories_of_other_layouts_are_no_places(path: str, names: list[str]) -> None:
    assert AivenLayout().places(Directory(path, tuple(ObjectInfo(path + name, 1) for name in names))) == ()


# What the plugin wrote on a real broker


def places_of(store: ObjectStore, layout: AivenLayout) -> list[PartitionPlace]:
    directories: dict[str, list[ObjectInfo]] = defaultdict(list)
    for info in store.list():
        directories[f"{PurePosixPath(info.name).parent}/"].append(info)
    return [place for path, files in directories.items() for place in layout.places(Directory(path, tuple(files)))]


def config_of(set_name: str) -> RsmConfig:
    return RsmConfig(key_files={name: CORPUS / set_name / f"keys/{name}.private.pem" for name in ("key1", "key2")})


def whole(store: ObjectStore, name: str | None) -> bytes:
    assert name is not None
    size = store.size(name)
    return store.read_ranges(name, [ByteRange(0, size)])[0] if size else b""


def headers_of(log: bytes) -> list[RecordBatchHeader]:
    """Every batch of a log that must end with its last batch, each with a checksum that fits."""
    scanner, headers, decompressor = SegmentScanner(stop=len(log)), [], Decompressor()
    fed = False
    while True:
        answer = scanner.next()
        if isinstance(answer, NeedData):
            scanner.feed(b"" if fed else memoryview(log))
            fed = True
        elif isinstance(answer, BatchReady):
            assert isinstance(answer.header, RecordBatchHeader)
            headers.append(answer.header)
            list(iter_records(answer.data, decompressor))
        elif isinstance(answer, Done):
            assert answer.tail is Tail.END
            return headers


@pytest.mark.parametrize("set_name", SETS)
def test_every_partition_of_the_plugin_is_found_with_its_truth(set_name: str) -> None:
    layout, store = AivenLayout(), LocalStore(CORPUS / set_name / "remote")
    found = {place.partition: layout.find(store, place) for place in places_of(store, layout)}
    of_corpus = {
        (case.topic, int(PurePosixPath(place).name), case.topic_id): case
        for case in cases(set_name)
        for place in case.facts["remote"]
    }
    assert {key.order: len(files.segments) for key, files in found.items()} == {
        key: case.facts["offline"][str(key[1])]["segments"] for key, case in of_corpus.items()
    }
    for partition, files in found.items():
        assert (files.incomplete, files.foreign, files.notes) == ([], [], [])
        case = of_corpus[partition.order]
        last = max(segment.last_offset or 0 for segment in files.segments)
        assert last + 1 == case.remote_stop(partition.partition)


@pytest.mark.parametrize("set_name", SETS)
def test_every_segment_of_the_plugin_is_a_plain_log_with_its_indexes(set_name: str) -> None:
    layout = AivenLayout(config_of(set_name))
    store = LocalStore(CORPUS / set_name / "remote")
    view = layout.view(store)
    count = 0
    for place in places_of(store, layout):
        for segment in layout.find(store, place).segments:
            log = whole(view, segment.files.log)
            assert len(log) == segment.log_size == view.size(segment.files.log)
            headers = headers_of(log)
            assert headers[0].base_offset >= segment.base_offset
            assert headers[-1].last_offset <= (segment.last_offset or 0)
            assert max(header.max_timestamp for header in headers) == segment.max_timestamp_ms
            starts = {header.base_offset for header in headers}
            positions = {
                entry.position
                for entry in parse_offset_index(whole(view, segment.files.offset_index), segment.base_offset)
            }
            assert all(int.from_bytes(log[position : position + 8]) in starts for position in positions)
            parse_time_index(whole(view, segment.files.time_index), segment.base_offset)
            parse_producer_snapshot(whole(view, segment.files.producer_snapshot))
            epochs = parse_leader_epochs(whole(view, segment.files.leader_epochs))
            assert segment.epochs is not None
            assert epochs.epoch_for(segment.base_offset) == segment.epochs.epoch_for(segment.base_offset)
            if segment.files.transaction_index:
                parse_transaction_index(whole(view, segment.files.transaction_index), segment.base_offset)
            count += 1
    assert count > 20


def test_both_keys_of_the_ring_are_used_and_each_is_needed() -> None:
    config = config_of("aiven-encrypted")
    store = LocalStore(CORPUS / "aiven-encrypted" / "remote")
    opened = {"key1": 0, "key2": 0}
    for key_id in opened:
        layout = AivenLayout(RsmConfig(key_files={key_id: config.key_files[key_id]}))
        view = layout.view(store)
        for place in places_of(store, layout):
            for segment in layout.find(store, place).segments:
                try:
                    whole(view, segment.files.log)
                    opened[key_id] += 1
                except Exception as error:
                    assert f"expected one of {key_id}" in str(error)
    assert min(opened.values()) > 0
    assert sum(opened.values()) == 30


def _cases() -> list[Case]:
    return [case for case in cases("aiven-zstd") if case.facts["remote"]]


def test_the_settings_of_a_broker_lead_to_the_segments(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "rsm.config.key.prefix=tiered/\n"
        "rsm.config.storage.backend.class=io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage\n"
        f"rsm.config.storage.root={CORPUS / 'aiven-zstd' / 'remote'}\n"
    )
    config = RsmConfig.load(path)
    location, _ = config.location()
    layout = AivenLayout(config)
    topics = {place.partition.topic for place in places_of(LocalStore(location), layout)}
    assert topics == {case.topic for case in _cases()}


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> KeyRing:
    return KeyRing({"key1": vectors.write_private_key(tmp_path_factory.mktemp("keys") / "key1.pem")})


def view_of(variant: str, ring: KeyRing, **changed: Any) -> tuple[AivenFiles, vectors.RequestLog]:
    store = vectors.RequestLog(vectors.objects(variant), **changed)
    return AivenFiles(store, ring), store


def whole_file(view: AivenFiles, name: str) -> bytes:
    size = view.size(name)
    return view.read_ranges(name, [ByteRange(0, size)])[0] if size else b""


@pytest.mark.parametrize("variant", vectors.VARIANTS)
def test_every_variant_is_the_same_segment(variant: str, ring: KeyRing) -> None:
    view, _ = view_of(variant, ring)
    assert whole_file(view, LOG) == vectors.SEGMENT
    assert whole_file(view, f"{vectors.STEM}.index") == vectors.OFFSET_INDEX
    assert whole_file(view, f"{vectors.STEM}.timeindex") == vectors.TIME_INDEX
    assert whole_file(view, f"{vectors.STEM}.snapshot") == vectors.SNAPSHOT
    assert whole_file(view, f"{vectors.STEM}.leader_epoch_checkpoint") == vectors.LEADER_EPOCHS
    assert [entry.position for entry in parse_offset_index(vectors.OFFSET_INDEX, 500)] == [80]


@pytest.mark.parametrize("variant", vectors.VARIANTS)
def test_an_index_that_was_never_written_is_not_there(variant: str, ring: KeyRing) -> None:
    view, _ = view_of(variant, ring)
    with pytest.raises(ObjectNotFoundError):
        view.size(f"{vectors.STEM}.txnindex")


@pytest.mark.parametrize("piece_size", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("variant", vectors.VARIANTS)
def test_every_range_of_a_log_is_cut_exactly(variant: str, piece_size: int, ring: KeyRing) -> None:
    view, _ = view_of(variant, ring, piece_size=piece_size)
    for start in range(0, 160, 9):
        for stop in range(start + 1, 161, 13):
            pieces = [bytes(piece) for piece in view.read_pieces(LOG, ByteRange(start, stop))]
            assert b"".join(pieces) == vectors.SEGMENT[start:stop]
            buffer = bytearray(stop - start)
            view.read_into(LOG, start, memoryview(buffer))
            assert buffer == vectors.SEGMENT[start:stop]


@pytest.mark.parametrize(
    ("variant", "wanted", "request_"),
    [
        ("encrypted", ByteRange(70, 131), "bytes=92-243"),
        ("encrypted", ByteRange(0, 1), "bytes=0-91"),
        ("encrypted", ByteRange(63, 65), "bytes=0-183"),
        ("encrypted", ByteRange(128, 160), "bytes=184-243"),
        ("both", ByteRange(70, 131), "bytes=80-239"),
        ("both", ByteRange(64, 128), "bytes=80-170"),
        ("compressed", ByteRange(64, 65), "bytes=52-114"),
        ("plain", ByteRange(70, 131), "bytes=70-130"),
    ],
)
def test_a_range_costs_one_request_of_the_chunks_that_hold_it(
    variant: str, wanted: ByteRange, request_: str, ring: KeyRing
) -> None:
    view, store = view_of(variant, ring)
    assert b"".join(map(bytes, view.read_pieces(LOG, wanted))) == vectors.SEGMENT[wanted.start : wanted.stop]
    manifest_size = len(store.stored[f"{vectors.STEM}.rsm-manifest"])
    assert store.requests == [f"GET rsm-manifest bytes=0-{manifest_size - 1}", f"GET log {request_}"]


@pytest.mark.parametrize("variant", vectors.VARIANTS)
def test_the_manifest_of_a_segment_is_fetched_once(variant: str, ring: KeyRing) -> None:
    view, store = view_of(variant, ring)
    for _ in range(3):
        whole_file(view, LOG)
        whole_file(view, f"{vectors.STEM}.index")
        whole_file(view, f"{vectors.STEM}.snapshot")
    assert sum("rsm-manifest" in line for line in store.requests) == 1


def test_threads_that_want_one_segment_share_its_manifest(ring: KeyRing) -> None:
    view, store = view_of("both", ring)
    threads = [threading.Thread(target=whole, args=(view, LOG)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum("rsm-manifest" in line for line in store.requests) == 1


def test_a_manifest_that_could_not_be_read_is_asked_for_again(ring: KeyRing) -> None:
    view, store = view_of("both", ring)
    manifest = store.stored.pop(f"{vectors.STEM}.rsm-manifest")
    with pytest.raises(ObjectNotFoundError):
        view.size(LOG)
    store.stored[f"{vectors.STEM}.rsm-manifest"] = manifest
    assert whole_file(view, LOG) == vectors.SEGMENT


def test_old_manifests_are_forgotten(ring: KeyRing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segreader.catalog.layouts.aiven.layout._KEPT_CHUNKS", 600)
    stems = [vectors.STEM.replace("tiered/", f"{number}/") for number in range(3)]
    store = vectors.RequestLog({k: v for stem in stems for k, v in vectors.objects("compressed", stem).items()})
    view = AivenFiles(store, ring)
    for stem in (*stems, stems[2], stems[1], stems[0]):
        view.size(f"{stem}.log")
    assert [line.startswith("GET rsm-manifest") for line in store.requests] == [True] * 4


def test_an_index_costs_one_request_of_its_own_bytes(ring: KeyRing) -> None:
    view, store = view_of("encrypted", ring)
    view.size(LOG)
    store.requests.clear()
    whole_file(view, f"{vectors.STEM}.timeindex")
    assert store.requests == ["GET indexes bytes=36-75"]


def test_names_of_other_files_mean_what_they_mean_in_the_store(ring: KeyRing) -> None:
    stored = {"readme": b"text", "orders-0/00000000000000000000.log": b"log", **vectors.objects("both")}
    view = AivenFiles(vectors.RequestLog(stored), ring)
    for name in ("readme", "orders-0/00000000000000000000.log", f"{vectors.STEM}.indexes"):
        assert whole_file(view, name) == stored[name]
    assert [info.name for info in view.list("orders")] == ["orders-0/00000000000000000000.log"]


@pytest.mark.parametrize("variant", ["encrypted", "both"])
def test_each_flipped_byte_of_an_encrypted_log_is_refused_with_key_chunk_and_object(
    variant: str, ring: KeyRing
) -> None:
    view, store = view_of(variant, ring)
    view.size(LOG)
    good = store.stored[LOG]
    chunk_of = [
        chunk
        for chunk, size in enumerate((92, 92, 60) if variant == "encrypted" else (80, 91, 69))
        for _ in range(size)
    ]
    for position, chunk in enumerate(chunk_of):
        wrong = bytearray(good)
        wrong[position] ^= 0xFF
        store.stored[LOG] = bytes(wrong)
        seen = b""
        with pytest.raises(DecryptionError) as caught:
            for piece in view.read_pieces(LOG, ByteRange(0, 160)):
                seen += piece
        assert seen == vectors.SEGMENT[: 64 * chunk]
        assert caught.value.source == f"s3://bucket/{LOG}"
        assert caught.value.position == chunk_of.index(chunk)
        assert f"chunk {chunk} " in str(caught.value)
        assert "key id key1" in str(caught.value)


def test_each_flipped_byte_of_an_encrypted_index_is_refused(ring: KeyRing) -> None:
    view, store = view_of("encrypted", ring)
    good = store.stored[f"{vectors.STEM}.indexes"]
    for position in range(36, 76):
        wrong = bytearray(good)
        wrong[position] ^= 1
        store.stored[f"{vectors.STEM}.indexes"] = bytes(wrong)
        assert whole_file(view, f"{vectors.STEM}.index") == vectors.OFFSET_INDEX
        with pytest.raises(DecryptionError, match=r"\.indexes: the timestamp index was changed"):
            whole_file(view, f"{vectors.STEM}.timeindex")


@pytest.mark.parametrize("variant", CHANGED_VARIANTS)
def test_a_cut_log_is_no_log(variant: str, ring: KeyRing) -> None:
    view, store = view_of(variant, ring)
    good = store.stored[LOG]
    for size in range(0, len(good), 11):
        store.stored[LOG] = good[:size]
        with pytest.raises((ObjectChangedError, ShortReadError)):
            whole_file(view, LOG)


def test_a_flipped_byte_of_a_compressed_log_gives_other_bytes_or_an_error(ring: KeyRing) -> None:
    view, store = view_of("compressed", ring)
    good = store.stored[LOG]
    for position in range(len(good)):
        wrong = bytearray(good)
        wrong[position] ^= 0x55
        store.stored[LOG] = bytes(wrong)
        try:
            assert len(whole_file(view, LOG)) == 160  # the batches' own checksums find it
        except ManifestError as error:
            assert error.source == f"s3://bucket/{LOG}"


@pytest.mark.parametrize("declares", [True, False])
@pytest.mark.parametrize("size", [0, 63, 65, 1 << 30])
def test_a_chunk_that_is_not_as_long_as_it_must_be_is_refused_before_memory_is_taken(
    size: int, declares: bool, ring: KeyRing
) -> None:
    content = bytes(min(size, 1 << 20))
    frame = zstandard.ZstdCompressor(write_content_size=declares).compress(content)
    if size > len(content):  # four bytes of content size say so
        frame = b"\x28\xb5\x2f\xfd\xa0" + size.to_bytes(4, "little") + b"\x03\x00\x00\x00"
    manifest = vectors.manifest("compressed")
    manifest["chunkIndex"] = {
        "type": "fixed",
        "originalChunkSize": 64,
        "originalFileSize": 64,
        "transformedChunkSize": len(frame),
        "finalTransformedChunkSize": len(frame),
    }
    stored = vectors.with_manifest({**vectors.objects(), LOG: frame}, manifest)
    with pytest.raises(ManifestError, match="chunk 0"):
        whole_file(AivenFiles(vectors.RequestLog(stored), ring), LOG)


def test_a_frame_of_a_few_bytes_cannot_claim_a_gibibyte(ring: KeyRing) -> None:
    frame = b"\x28\xb5\x2f\xfd\xa0" + (1 << 30).to_bytes(4, "little") + b"\x03\x00\x00\x00"
    manifest = vectors.manifest("compressed")
    manifest["chunkIndex"] = {
        "type": "fixed",
        "originalChunkSize": 1 << 30,
        "originalFileSize": 1 << 30,
        "transformedChunkSize": len(frame),
        "finalTransformedChunkSize": len(frame),
    }
    stored = vectors.with_manifest({**vectors.objects(), LOG: frame}, manifest)
    with pytest.raises(ManifestError, match="chunk 0"):
        next(iter(AivenFiles(vectors.RequestLog(stored), ring).read_pieces(LOG, ByteRange(0, 10))))


def test_a_frame_with_something_behind_it_is_refused(ring: KeyRing) -> None:
    frame = zstandard.ZstdCompressor().compress(bytes(64))
    manifest = vectors.manifest("compressed")
    size = 2 * len(frame)
    manifest["chunkIndex"] = {
        "type": "fixed",
        "originalChunkSize": 64,
        "originalFileSize": 64,
        "transformedChunkSize": size,
        "finalTransformedChunkSize": size,
    }
    stored = vectors.with_manifest({**vectors.objects(), LOG: 2 * frame}, manifest)
    with pytest.raises(ManifestError, match="chunk 0"):
        whole_file(AivenFiles(vectors.RequestLog(stored), ring), LOG)


def test_swapped_chunks_are_found_by_their_place_or_by_the_batches(ring: KeyRing) -> None:
    view, store = view_of("encrypted", ring)
    log = store.stored[LOG]
    store.stored[LOG] = log[92:184] + log[:92] + log[184:]
    assert whole_file(view, LOG) != vectors.SEGMENT  # no tag covers a chunk's number: the batches' checksums find it


def test_a_missing_key_is_told_with_the_object(ring: KeyRing) -> None:
    view, _ = view_of("both", KeyRing())
    assert view.size(LOG) == 160
    with pytest.raises(DecryptionError, match=r"\.log: the segment is encrypted.*key id key1"):
        whole_file(view, LOG)


def test_a_segment_that_has_gone_is_not_found_and_is_not_said_to_have_aborted_nothing(ring: KeyRing) -> None:
    view = AivenFiles(vectors.RequestLog({}), ring)
    for suffix in ("log", "index", "snapshot"):
        with pytest.raises(ObjectNotFoundError):
            view.size(f"{vectors.STEM}.{suffix}")
    with pytest.raises(ObjectChangedError, match="has gone"):
        view.size(f"{vectors.STEM}.txnindex")


def test_a_transaction_index_that_has_gone_is_no_empty_one(ring: KeyRing) -> None:
    manifest = vectors.manifest()
    manifest["segmentIndexes"]["transaction"] = {"position": 40, "size": 34}
    view = AivenFiles(vectors.RequestLog(vectors.with_manifest({LOG: vectors.SEGMENT}, manifest)), ring)
    with pytest.raises(ObjectChangedError, match="has gone"):
        whole_file(view, f"{vectors.STEM}.txnindex")
    with pytest.raises(ObjectNotFoundError):
        whole_file(view, f"{vectors.STEM}.snapshot")


def test_an_index_range_outside_of_its_object_is_a_short_read(ring: KeyRing) -> None:
    view, store = view_of("plain", ring)
    store.stored[f"{vectors.STEM}.indexes"] = store.stored[f"{vectors.STEM}.indexes"][:30]
    with pytest.raises(ShortReadError):
        whole_file(view, f"{vectors.STEM}.leader_epoch_checkpoint")


@pytest.mark.parametrize("variant", ["plain", "encrypted"])
def test_indexes_of_the_oldest_layout_are_objects_of_their_own(variant: str, ring: KeyRing) -> None:
    stored = vectors.objects(variant)
    indexes = stored.pop(f"{vectors.STEM}.indexes")
    manifest = vectors.manifest(variant)
    for kind, suffix in (("offset", "index"), ("leaderEpoch", "leader-epoch-checkpoint")):
        part = manifest["segmentIndexes"][kind]
        stored[f"{vectors.STEM}.{suffix}"] = indexes[part["position"] : part["position"] + part["size"]]
    del manifest["segmentIndexes"]
    view = AivenFiles(vectors.RequestLog(vectors.with_manifest(stored, manifest)), ring)
    assert whole_file(view, LOG) == vectors.SEGMENT
    assert whole_file(view, f"{vectors.STEM}.index") == vectors.OFFSET_INDEX
    assert whole_file(view, f"{vectors.STEM}.leader-epoch-checkpoint") == vectors.LEADER_EPOCHS
    with pytest.raises(ObjectNotFoundError):
        view.size(f"{vectors.STEM}.txnindex")


def test_an_empty_segment_has_no_bytes(ring: KeyRing) -> None:
    manifest = vectors.manifest()
    manifest["chunkIndex"] |= {"originalFileSize": 0, "finalTransformedChunkSize": 0}
    view = AivenFiles(vectors.RequestLog(vectors.with_manifest({LOG: b""}, manifest)), ring)
    assert view.size(LOG) == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=tries(40))
@given(st.data())
def test_a_file_in_chunks_of_any_size_is_the_file(data: st.DataObject) -> None:
    content = data.draw(st.binary(min_size=1, max_size=300))
    chunk_size = data.draw(st.integers(1, 120))
    compressor = zstandard.ZstdCompressor()
    chunks = [compressor.compress(content[at : at + chunk_size]) for at in range(0, len(content), chunk_size)]
    binary = len(chunks).to_bytes(4)
    if len(chunks) > 1:
        base = min(map(len, chunks[:-1]))
        binary += base.to_bytes(4) + b"\2" + b"".join((len(chunk) - base).to_bytes(2) for chunk in chunks[:-1])
    binary += len(chunks[-1]).to_bytes(4)
    manifest = vectors.manifest("compressed")
    manifest["chunkIndex"] = {
        "type": "variable",
        "originalChunkSize": chunk_size,
        "originalFileSize": len(content),
        "transformedChunks": base64.b64encode(compressor.compress(binary)).decode(),
    }
    store = vectors.RequestLog(
        {LOG: b"".join(chunks), f"{vectors.STEM}.rsm-manifest": json.dumps(manifest).encode()},
        piece_size=data.draw(st.integers(1, 50)),
    )
    view = AivenFiles(store)
    start = data.draw(st.integers(0, len(content) - 1))
    stop = data.draw(st.integers(start + 1, len(content)))
    assert b"".join(map(bytes, view.read_pieces(LOG, ByteRange(start, stop)))) == content[start:stop]
    sizes = list(map(len, chunks))
    first, last = start // chunk_size, (stop - 1) // chunk_size
    assert store.requests[-1] == f"GET log bytes={sum(sizes[:first])}-{sum(sizes[: last + 1]) - 1}"


def test_no_error_shows_a_key(ring: KeyRing, tmp_path: Path) -> None:
    view, store = view_of("both", KeyRing({"key1": tmp_path / "missing.pem"}))
    for name in (LOG, f"{vectors.STEM}.index"):
        with pytest.raises(SegreaderError) as caught:
            whole_file(view, name)
        assert vectors.WRAPPED_KEY[:20] not in f"{caught.value!s}{caught.value!r}"
    assert store.requests
