from __future__ import annotations

import pickle
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import aiven_vectors as vectors
import pytest
from corpus import CORPUS, Case, cases

from segreader.catalog.layouts.aiven.keys import MANIFEST
from segreader.catalog.layouts.aiven.layout import AivenLayout
from segreader.catalog.layouts.aiven.settings import RsmConfig
from segreader.catalog.layouts.base import Directory, IncompleteSegment, Layout, PartitionFiles, PartitionPlace
from segreader.errors import ManifestError
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
