from __future__ import annotations

import contextlib
import json
from typing import Any

import aiven_vectors as vectors
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segreader.catalog.layouts.aiven.manifest import IndexKind, IndexPart, parse_manifest, read_manifest
from segreader.errors import ManifestError, ObjectNotFoundError
from segreader.format.checkpoints import LeaderEpoch

SECRETS = (vectors.WRAPPED_KEY, vectors.AAD, vectors.DATA_KEY.hex())


def parse(manifest: Any) -> Any:
    return parse_manifest(json.dumps(manifest).encode())


def changed(path: str, value: object, variant: str = "plain") -> dict[str, Any]:
    """The manifest with another value at a path; ``...`` takes the field out."""
    manifest = vectors.manifest(variant)
    *above, last = path.split(".")
    at = manifest
    for name in above:
        at = at[name]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return manifest


@pytest.mark.parametrize("variant", vectors.VARIANTS)
def test_the_manifests_of_the_worked_example_are_read(variant: str) -> None:
    manifest = parse(vectors.manifest(variant))
    objects = vectors.objects(variant)
    assert manifest.chunks.stored_size == len(objects[f"{vectors.STEM}.log"])
    assert manifest.chunks.original_file_size == 160
    assert manifest.is_compressed == (variant in ("compressed", "both"))
    assert (manifest.encryption is not None) == (variant in ("encrypted", "both"))
    told = manifest.segment
    assert (told.partition.topic, told.partition.partition, told.partition.topic_id) == (
        "demo",
        0,
        "MWJ6FHTfRYy67jzwZdeqSQ",
    )
    assert (told.base_offset, told.last_offset, told.segment_id) == (500, 501, "tqimKeZwStOEOwRzT3L5oQ")
    assert (told.max_timestamp_ms, told.event_timestamp_ms) == (1700000000001, 1700000100000)
    assert told.epochs.entries == (LeaderEpoch(3, 500),)
    assert IndexKind.TRANSACTION not in manifest.parts


def test_the_parts_of_the_indexes_are_where_the_manifest_says() -> None:
    parts = {
        "offset": {"position": 0, "size": 44},
        "timestamp": {"position": 44, "size": 40},
        "producerSnapshot": {"position": 84, "size": 38},
        "leaderEpoch": {"position": 122, "size": 39},
        "transaction": {"position": 161, "size": 62},
    }
    manifest = parse(changed("segmentIndexes", parts, "encrypted"))
    assert manifest.parts == {IndexKind(kind): IndexPart(**part) for kind, part in parts.items()}


@pytest.mark.parametrize("variant", vectors.VARIANTS)
def test_a_cut_manifest_is_refused_at_every_byte(variant: str) -> None:
    data = json.dumps(vectors.manifest(variant)).encode()
    for size in range(len(data)):
        with pytest.raises(ManifestError) as caught:
            parse_manifest(data[:size])
        assert not any(secret in str(caught.value) for secret in SECRETS)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"17",
        b"<Error><Code>AccessDenied</Code></Error>",
        b"\xff\xfe{\x00}\x00",
        b"\xef\xbb\xbf{}",
        b"[" * 200_000,
        b'{"version":' * 100_000,
        b'{"version":' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"version":' + b"9" * 10_000 + b"}",
        b'{"version":1e999}',
        b'{"version":NaN}',
        b'{"version":"1"} {}',
    ],
    ids=range(14),
)
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(data)
    assert len(str(caught.value)) < 500


WRONG = [
    ("version", "2", "unknown version"),
    ("version", 1, "unknown version"),
    ("version", ..., "unknown version"),
    ("compression", "false", "compression"),
    ("compression", ..., "compression"),
    ("compression", 0, "compression"),
    ("chunkIndex", ..., "chunkIndex"),
    ("chunkIndex.type", "sliding", "unknown type"),
    ("chunkIndex.type", {"deep": []}, "unknown type"),
    ("chunkIndex.originalChunkSize", 0, "originalChunkSize"),
    ("chunkIndex.originalChunkSize", -64, "originalChunkSize"),
    ("chunkIndex.originalChunkSize", 64.0, "originalChunkSize"),
    ("chunkIndex.originalChunkSize", True, "originalChunkSize"),
    ("chunkIndex.originalChunkSize", 10**400, "originalChunkSize"),
    ("chunkIndex.originalChunkSize", 80, "sizes"),
    ("chunkIndex.originalFileSize", -1, "originalFileSize"),
    ("chunkIndex.originalFileSize", 1 << 31, "originalFileSize"),
    ("chunkIndex.originalFileSize", 161, "sizes"),
    ("chunkIndex.transformedChunkSize", -1, "transformedChunkSize"),
    ("chunkIndex.transformedChunkSize", 65, "sizes"),
    ("chunkIndex.finalTransformedChunkSize", 33, "sizes"),
    ("chunkIndex.finalTransformedChunkSize", "32", "finalTransformedChunkSize"),
    ("segmentIndexes", [], "segmentIndexes"),
    ("segmentIndexes.offset", None, "offset"),
    ("segmentIndexes.producerSnapshot", ..., "producerSnapshot"),
    ("segmentIndexes.offset.position", -1, "position"),
    ("segmentIndexes.offset.size", -1, "size"),
    ("segmentIndexes.transaction", 5, "transaction"),
    ("encryption", "key1", "encryption"),
    ("remoteLogSegmentMetadata", "orders", "remoteLogSegmentMetadata"),
    ("remoteLogSegmentMetadata.startOffset", -1, "startOffset"),
    ("remoteLogSegmentMetadata.endOffset", 499, "ends before it begins"),
    ("remoteLogSegmentMetadata.endOffset", 1 << 63, "endOffset"),
    ("remoteLogSegmentMetadata.maxTimestampMs", None, "maxTimestampMs"),
    ("remoteLogSegmentMetadata.segmentLeaderEpochs", {}, "does not cover"),
    ("remoteLogSegmentMetadata.segmentLeaderEpochs", {"3": 502}, "does not cover"),
    ("remoteLogSegmentMetadata.segmentLeaderEpochs", {"x": 500}, "segmentLeaderEpochs"),
    ("remoteLogSegmentMetadata.segmentLeaderEpochs", {"-1": 500}, "segmentLeaderEpochs"),
    ("remoteLogSegmentMetadata.segmentLeaderEpochs", {"\u0663": 500}, "segmentLeaderEpochs"),
    ("remoteLogSegmentMetadata.segmentLeaderEpochs", {"3": 501, "4": 500}, "not a lineage"),
    ("remoteLogSegmentMetadata.segmentLeaderEpochs", {"3": 500, "03": 501}, "not a lineage"),
    ("remoteLogSegmentMetadata.remoteLogSegmentId.id", 7, "id"),
    ("remoteLogSegmentMetadata.remoteLogSegmentId.topicIdPartition", None, "topicIdPartition"),
]


@pytest.mark.parametrize(("path", "value", "word"), WRONG, ids=[f"{path}={value!r:.20}" for path, value, _ in WRONG])
def test_a_wrong_field_is_refused_by_name(path: str, value: object, word: str) -> None:
    with pytest.raises(ManifestError, match=word) as caught:
        parse(changed(path, value))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("variant", "path", "value"),
    [
        ("encrypted", "chunkIndex.transformedChunkSize", 64),
        ("encrypted", "chunkIndex.finalTransformedChunkSize", 32),
        ("encrypted", "encryption", ...),
        ("encrypted", "encryption.aad", ...),
        ("encrypted", "encryption.aad", "?"),
        ("encrypted", "encryption.dataKey", vectors.WRAPPED_KEY),
        ("encrypted", "encryption.dataKey", f":{vectors.WRAPPED_KEY}"),
        ("encrypted", "encryption.dataKey", f"a:b:{vectors.WRAPPED_KEY}"),
        ("encrypted", "encryption.dataKey", f"key1:{vectors.WRAPPED_KEY}!"),
        ("encrypted", "segmentIndexes.offset.size", 27),
        ("compressed", "chunkIndex.transformedChunks", "AAAA"),
        ("compressed", "chunkIndex.originalFileSize", 200),
        ("compressed", "compression", False),
        ("both", "compression", False),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused_without_a_word_of_its_keys(
    variant: str, path: str, value: object
) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(changed(path, value, variant))
    for secret in SECRETS:
        assert secret[:16] not in str(caught.value)


def test_what_is_encrypted_is_not_shown_by_the_value_either() -> None:
    text = repr(parse(vectors.manifest("both")))
    assert "key1" in text
    assert not any(secret in text for secret in (*SECRETS, "jYtSTzZD"))


@pytest.mark.parametrize("path", ["remoteLogSegmentMetadata", "segmentIndexes", "segmentIndexes.transaction"])
def test_what_older_plugins_did_not_write_may_be_missing(path: str) -> None:
    parse(changed(path, ...))
    parse(changed(path, None))


def test_fields_of_later_versions_are_passed_over() -> None:
    assert parse(changed("chunkIndex.colour", "green")) == parse(changed("more", {"a": [1]}))


def test_the_first_epoch_begins_with_the_segment() -> None:
    epochs = {"12": 501, "3": 7}
    manifest = parse(changed("remoteLogSegmentMetadata.segmentLeaderEpochs", epochs))
    assert manifest.segment.epochs.entries == (LeaderEpoch(3, 500), LeaderEpoch(12, 501))


def test_an_empty_index_in_an_encrypted_segment_has_no_bytes() -> None:
    manifest = parse(changed("segmentIndexes.producerSnapshot.size", 0, "encrypted"))
    assert manifest.parts[IndexKind.PRODUCER_SNAPSHOT].size == 0


def test_a_cut_manifest_names_its_object() -> None:
    stored = vectors.objects()
    name = f"{vectors.STEM}.rsm-manifest"
    stored[name] = stored[name][:40]
    with pytest.raises(ManifestError) as caught:
        read_manifest(vectors.RequestLog(stored), vectors.STEM)
    assert caught.value.source == f"s3://bucket/{name}"


def test_an_empty_or_huge_manifest_is_refused_unread() -> None:
    store = vectors.RequestLog({**vectors.objects(), f"{vectors.STEM}.rsm-manifest": b""})
    with pytest.raises(ManifestError, match="0 bytes"):
        read_manifest(store, vectors.STEM)
    with pytest.raises(ManifestError, match="not the size"):
        read_manifest(store, vectors.STEM, 1 << 40)
    assert store.requests == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("remoteLogSegmentId.topicIdPartition.topicPartition.topic", "orders"),
        ("remoteLogSegmentId.topicIdPartition.topicPartition.partition", 1),
        ("remoteLogSegmentId.topicIdPartition.topicId", "AAAAAAAAAAAAAAAAAAAAAA"),
        ("remoteLogSegmentId.id", "AAAAAAAAAAAAAAAAAAAAAA"),
        ("startOffset", 499),
    ],
)
def test_a_manifest_of_another_segment_is_refused(path: str, value: object) -> None:
    stored = vectors.with_manifest(vectors.objects(), changed(f"remoteLogSegmentMetadata.{path}", value))
    with pytest.raises(ManifestError, match="another segment"):
        read_manifest(vectors.RequestLog(stored), vectors.STEM)


def test_a_manifest_that_is_not_there_is_not_found() -> None:
    with pytest.raises(ObjectNotFoundError):
        read_manifest(vectors.RequestLog({}), vectors.STEM)


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_a_manifest_or_refused(data: bytes) -> None:
    with contextlib.suppress(ManifestError):
        parse_manifest(data)


@given(st.data())
def test_any_value_in_any_place_gives_a_manifest_or_is_refused(data: st.DataObject) -> None:
    variant = data.draw(st.sampled_from(vectors.VARIANTS))
    manifest = vectors.manifest(variant)
    at: Any = manifest
    while True:
        name = data.draw(st.sampled_from(sorted(at)))
        if not isinstance(at[name], dict) or not at[name] or data.draw(st.booleans()):
            break
        at = at[name]
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    at[name] = data.draw(
        scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.text(max_size=3), scalars, max_size=2)
    )
    with contextlib.suppress(ManifestError):
        parse(manifest)
