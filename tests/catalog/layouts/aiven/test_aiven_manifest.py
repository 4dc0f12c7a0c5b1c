from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Generator
from itertools import accumulate
from typing import Any

import aiven_vectors as vectors
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from segreader.catalog.layouts.aiven.layout import cut_chunks
from segreader.catalog.layouts.aiven.manifest import (
    ChunkIndex,
    CustomMetadata,
    IndexKind,
    IndexPart,
    decode_chunk_sizes,
    fixed_chunks,
    main_path,
    parse_chunk_sizes,
    parse_custom_metadata,
    parse_directory,
    parse_manifest,
    parse_name,
    read_manifest,
    variable_chunks,
)
from segreader.errors import ManifestError, ObjectNotFoundError, ShortReadError
from segreader.format.checkpoints import LeaderEpoch
from segreader.ranges import ByteRange
from segreader.segment import TopicIdPartition

SECRETS = (vectors.WRAPPED_KEY, vectors.AAD, vectors.DATA_KEY.hex())
TOPIC_ID = "MWJ6FHTfRYy67jzwZdeqSQ"
SEGMENT_ID = "tqimKeZwStOEOwRzT3L5oQ"
FILE = f"00000000000000001000-{SEGMENT_ID}"
OBJECT_KEY = f"orders-{TOPIC_ID}/7/{FILE}"
ALL_FIELDS = "03 00 03 a6e201 01 08 08 7469657265642f 02 4c 4c " + OBJECT_KEY.encode().hex()
LISTS = [
    ([], "00000000"),
    ([7], "0000000100000007"),
    ([1000, 1300, 999, 50], "00000004 000003e7 02 0001 012d 0000 00000032"),
    ([4000000, 4100000, 3999999, 12], "00000004 003d08ff 03 000001 0186a1 000000 0000000c"),
    (
        [221, 212, 219, 223, 268, 211, 216, 215, 227, 211, 208, 218, 224, 133],
        "0000000e 000000d0 01 0d 04 0b 0f 3c 03 08 07 13 03 00 0a 10 00000085",
    ),
    ([1005], "00000001 000003ed"),
    ([80, 91, 69], "00000003 00000050 01 00 0b 00000045"),
]
TEXTS = {
    "KLUv/SAa0QAAAAAADgAAANABDQQLDzwDCAcTAwAKEAAAAIU=": LISTS[4][0],
    "KLUv/SAIQQAAAAAAAQAAA+0=": LISTS[5][0],
    "KLUv/SAPeQAAAAAAAwAAADQBAAsAAAAp": [52, 63, 41],
    "KLUv/SAPeQAAAAAAAwAAAFABAAsAAABF": LISTS[6][0],
}


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


@pytest.mark.parametrize(
    ("path", "topic"),
    [
        (f"orders-{TOPIC_ID}/7/", "orders"),
        (f"tiered/orders-{TOPIC_ID}/7/", "orders"),
        (f"a/b/c-d.e_f-{TOPIC_ID}/7/", "c-d.e_f"),
        (f"x-{'-' * 22}/7/", "x"),
        (f"all kinds:orders-{TOPIC_ID}/7/", "orders"),
    ],
)
def test_the_partition_is_told_by_the_end_of_the_path(path: str, topic: str) -> None:
    found = parse_directory(path)
    assert found is not None
    assert (found.topic, found.partition, len(found.topic_id or "")) == (topic, 7, 22)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        f"orders-{TOPIC_ID}/7",
        f"orders-{TOPIC_ID}/",
        f"orders-{TOPIC_ID}/07/",
        f"orders-{TOPIC_ID}/-1/",
        f"orders-{TOPIC_ID}/2147483648/",
        f"orders-{TOPIC_ID}/\u0667/",
        f"orders-{TOPIC_ID}/7/more/",
        f"orders-7-{TOPIC_ID}/",
        f"-{TOPIC_ID}/7/",
        f"orders-{TOPIC_ID[:-1]}/7/",
        "orders-0/",
    ],
)
def test_no_other_path_is_a_partitions(path: str) -> None:
    assert parse_directory(path) is None


@pytest.mark.parametrize("above", ["", "bucket/", "old/place/"])
def test_a_prefix_without_a_slash_is_taken_off_the_topic_where_it_is_known(above: str) -> None:
    path = f"{above}tieredorders-{TOPIC_ID}/7/"
    assert parse_directory(path) == TopicIdPartition("tieredorders", 7, TOPIC_ID)
    assert parse_directory(path, "tiered") == TopicIdPartition("orders", 7, TOPIC_ID)
    assert parse_directory(path, "old/tiered") == TopicIdPartition("orders", 7, TOPIC_ID)
    assert parse_directory(path, "tiered/") == TopicIdPartition("tieredorders", 7, TOPIC_ID)
    assert parse_directory(path, "tieredorders") == TopicIdPartition("tieredorders", 7, TOPIC_ID)


def test_a_name_is_taken_apart() -> None:
    name = parse_name(f"tiered/{OBJECT_KEY}.rsm-manifest")
    assert name is not None
    assert name == (f"tiered/{OBJECT_KEY}", 1000, SEGMENT_ID, "rsm-manifest")
    assert main_path(TopicIdPartition("orders", 7, TOPIC_ID), 1000, SEGMENT_ID) == OBJECT_KEY


@pytest.mark.parametrize(
    "name",
    [
        f"{FILE}.log",
        f"orders-{TOPIC_ID}/7/{FILE}",
        f"orders-{TOPIC_ID}/7/1000-{SEGMENT_ID}.log",
        f"orders-{TOPIC_ID}/7/99999999999999999999-{SEGMENT_ID}.log",
        f"orders-{TOPIC_ID}/7/\u0660{FILE[1:]}.log",
        f"orders-7-{TOPIC_ID}/{FILE}.log",
        f"orders-{TOPIC_ID}/7/{FILE}.log.tmp",
        "orders-0/00000000000000000000.log",
    ],
)
def test_no_other_name_is_a_segments(name: str) -> None:
    assert parse_name(name) is None


def test_custom_metadata_of_the_plugin_is_decoded() -> None:
    all_fields = parse_custom_metadata(bytes.fromhex(ALL_FIELDS))
    assert all_fields == CustomMetadata(14483, "tiered/", OBJECT_KEY)
    assert parse_custom_metadata(bytes.fromhex("010003a6e201")) == CustomMetadata(14483)
    assert parse_custom_metadata(bytes.fromhex("01010101")) == CustomMetadata(object_prefix="")
    assert parse_custom_metadata(b"") == CustomMetadata()


def test_a_field_of_a_later_version_is_passed_over() -> None:
    assert parse_custom_metadata(bytes.fromhex("020003a6e2010905ffffffffff")) == CustomMetadata(14483)


@pytest.mark.parametrize(
    "data",
    [
        "02 00 03 a6e201",  # one field is missing
        "01 00 03 a6e201 00",  # something follows
        "02 01 01 01 00 01 02",  # tags fall
        "02 00 01 02 00 01 02",  # a tag comes twice
        "01 00 03 a7e201",  # the size is negative
        "01 00 01 80",  # a number without an end
        "01 01 01 00",  # a null
        "01 01 03 03 ff ff",  # no UTF-8
        "01 01 02 03 61",  # a text that is cut
        "ffffffffff",
    ],
)
def test_malformed_custom_metadata_is_refused(data: str) -> None:
    with pytest.raises(ManifestError, match="custom metadata"):
        parse_custom_metadata(bytes.fromhex(data))


def test_custom_metadata_cut_at_each_byte_is_refused() -> None:
    whole = bytes.fromhex(ALL_FIELDS)
    for size in range(1, len(whole)):
        with pytest.raises(ManifestError):
            parse_custom_metadata(whole[:size])


@given(st.binary(max_size=64))
def test_any_bytes_are_custom_metadata_or_refused(data: bytes) -> None:
    with contextlib.suppress(ManifestError):
        parse_custom_metadata(data)


@pytest.mark.parametrize(("sizes", "data"), LISTS)
def test_lists_of_the_plugin_are_decoded(sizes: list[int], data: str) -> None:
    assert list(parse_chunk_sizes(bytes.fromhex(data))) == sizes


@pytest.mark.parametrize("text", TEXTS)
def test_texts_of_the_plugin_are_decoded(text: str) -> None:
    assert list(decode_chunk_sizes(text)) == TEXTS[text]


@pytest.mark.parametrize(("sizes", "data"), LISTS)
def test_a_list_cut_or_made_longer_is_refused(sizes: list[int], data: str) -> None:
    whole = bytes.fromhex(data)
    for size in range(len(whole)):
        with pytest.raises(ManifestError):
            parse_chunk_sizes(whole[:size])
    with pytest.raises(ManifestError):
        parse_chunk_sizes(whole + b"\0")


@pytest.mark.parametrize(
    "data",
    [
        "ffffffff",  # a negative count
        "7fffffff 00000001 01 00 00000001",  # a count that the bytes do not bear out
        "00000001 ffffffff",  # a negative size
        "00000002 ffffffff 01 00 00000001",  # a negative base
        "00000002 00000001 00 00000001",  # no bytes for a size
        "00000002 00000001 05 0000000000 00000001",  # five bytes for a size
        "00000002 7fffffff 04 ffffffff 00000001",  # more than any chunk has
    ],
)
def test_a_list_that_lies_is_refused(data: str) -> None:
    with pytest.raises(ManifestError, match="malformed"):
        parse_chunk_sizes(bytes.fromhex(data))


def framed(data: bytes, **how: bool) -> str:
    return base64.b64encode(zstandard.ZstdCompressor(**how).compress(data)).decode()  # type: ignore[arg-type]


def test_a_list_that_would_take_more_than_ten_mebibytes_is_refused_before_it_is_made() -> None:
    with pytest.raises(ManifestError, match="too long"):
        decode_chunk_sizes(framed(bytes((10 << 20) + 1)))
    with pytest.raises(ManifestError, match="too long"):
        decode_chunk_sizes(framed(bytes.fromhex(LISTS[2][1]), write_content_size=False))


@pytest.mark.parametrize(
    "text", ["", "?", "KLUv", "KLUv/SAIQQAAAAAAAQAAA+0", "ÄÖÜ=", framed(b""), framed(b"x") + "AAAA"]
)
def test_a_text_that_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        decode_chunk_sizes(text)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_list_or_refused(data: bytes) -> None:
    with contextlib.suppress(ManifestError):
        parse_chunk_sizes(data)


@given(st.data())
def test_a_range_maps_to_the_chunks_that_hold_its_bytes(data: st.DataObject) -> None:
    """Against brute force: each byte of the file carries its chunk, each byte of the object too."""
    chunk_size = data.draw(st.integers(1, 9))
    file_size = data.draw(st.integers(1, 40))
    count = -(-file_size // chunk_size)
    if data.draw(st.booleans()):
        one, last = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))
        sizes = [one] * (count - 1) + [last]
        index = fixed_chunks(chunk_size, file_size, one, last)
    else:
        sizes = data.draw(st.lists(st.integers(1, 12), min_size=count, max_size=count))
        index = variable_chunks(chunk_size, file_size, sizes)
    start = data.draw(st.integers(0, file_size - 1))
    wanted = ByteRange(start, data.draw(st.integers(start + 1, file_size)))

    chunk_of_byte = [position // chunk_size for position in range(file_size)]
    chunk_of_stored_byte = [chunk for chunk, size in enumerate(sizes) for _ in range(size)]
    touched = set(chunk_of_byte[wanted.start : wanted.stop])
    stored = index.stored_range(index.chunks_of(wanted))

    assert list(index.chunks_of(wanted)) == sorted(touched)
    assert [at for at, chunk in enumerate(chunk_of_stored_byte) if chunk in touched] == list(
        range(stored.start, stored.stop)
    )
    assert list(index.stored_sizes(range(count))) == sizes
    assert index.stored_size == sum(sizes)
    assert [index.original_range(chunk).size for chunk in range(count)] == [
        chunk_of_byte.count(chunk) for chunk in range(count)
    ]


def test_the_chunks_of_the_worked_example_lie_where_it_says() -> None:
    index = fixed_chunks(64, 160, 92, 60)
    assert [index.stored_range(range(at, at + 1)) for at in range(3)] == [
        ByteRange(0, 92),
        ByteRange(92, 184),
        ByteRange(184, 244),
    ]
    assert index.stored_range(index.chunks_of(ByteRange(70, 131))) == ByteRange(92, 244)


def test_an_empty_file_has_no_chunks() -> None:
    for index in (fixed_chunks(64, 0, 64, 0), variable_chunks(64, 0, [])):
        assert (len(index), index.stored_size) == (0, 0)


@pytest.mark.parametrize(("file_size", "stored", "last"), [(0, 64, 1), (1, 64, 0), (65, 0, 1), (64, 64, 0)])
def test_fixed_sizes_that_do_not_fit_the_file_are_refused(file_size: int, stored: int, last: int) -> None:
    with pytest.raises(ManifestError, match="contradict"):
        fixed_chunks(64, file_size, stored, last)


@pytest.mark.parametrize("sizes", [[], [1], [1, 2, 3, 4], [1, 0, 2]])
def test_variable_sizes_that_do_not_fit_the_file_are_refused(sizes: list[int]) -> None:
    with pytest.raises(ManifestError):
        variable_chunks(64, 160, sizes)


def test_an_index_of_two_billion_chunks_takes_no_memory() -> None:
    index: ChunkIndex = fixed_chunks(1, (1 << 31) - 1, 29, 29)
    assert index.stored_range(range(1 << 30, (1 << 30) + 1)) == ByteRange(29 << 30, (29 << 30) + 29)


@given(st.lists(st.integers(1, 9), max_size=8), st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_chunks_are_cut_alike_from_pieces_of_any_size(sizes: list[int], piece_sizes: list[int]) -> None:
    data = bytes(range(sum(sizes)))

    def pieces() -> Generator[memoryview, None, None]:
        position = turn = 0
        while position < len(data):
            size = piece_sizes[turn % len(piece_sizes)]
            buffer = bytearray(data[position : position + size])
            yield memoryview(buffer)
            buffer[:] = bytes(len(buffer))
            position, turn = position + size, turn + 1

    starts = accumulate(sizes, initial=0)
    assert [bytes(chunk) for chunk in cut_chunks(pieces(), sizes)] == [
        data[start : start + size] for start, size in zip(starts, sizes, strict=False)
    ]


def test_pieces_that_end_too_early_are_a_short_read() -> None:
    pieces = (memoryview(b"abc") for _ in range(1))
    with pytest.raises(ShortReadError):
        list(cut_chunks(pieces, [4]))
