"""Partition manifests in both forms: what they say, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from segreader.catalog.layouts.redpanda.manifest import (
    PartitionManifest,
    SegmentMeta,
    parse_binary_manifest,
    parse_json_manifest,
)
from segreader.errors import ManifestError
from segreader.testing.redpanda import UNSET, encode_binary_manifest, encode_json_manifest

START_MS = 1_700_000_000_000


def rows(count: int, *, first: int = 1000, name_format: int = 3) -> list[dict[str, int]]:
    """Segments of many sizes: differences of few and of many bits."""
    made, base, delta = [], first, 3
    for number in range(count):
        size = (number * 0x9E3779B97F4A7C15) % (1 << (10 + number % 50))
        made.append(
            {
                "is_compacted": number % 5 == 4,
                "size_bytes": size,
                "base_offset": base,
                "committed_offset": base + 9 + number % 7,
                "base_timestamp": START_MS + number * 977,
                "max_timestamp": -1 if number % 11 == 3 else START_MS + number * 977 + 500,
                "delta_offset": delta,
                "ntp_revision": 21,
                "archiver_term": UNSET if number % 13 == 5 else number // 6,
                "segment_term": number // 8,
                "delta_offset_end": delta + 1,
                "sname_format": name_format,
                "metadata_size_hint": 76 * (number % 3) if name_format > 2 else 0,
            }
        )
        base, delta = base + 10 + number % 7, delta + 1
    return made


def meta(row: dict[str, int]) -> SegmentMeta:
    """What is to be read of a row."""
    return SegmentMeta(
        base_offset=row["base_offset"],
        committed_offset=row["committed_offset"],
        size_bytes=row["size_bytes"],
        is_compacted=bool(row["is_compacted"]),
        base_timestamp=row["base_timestamp"],
        max_timestamp=row["max_timestamp"],
        delta_offset=row["delta_offset"],
        delta_offset_end=row["delta_offset_end"],
        archiver_term=None if row["archiver_term"] == UNSET else row["archiver_term"],
        segment_term=row["segment_term"],
        name_format=row["sname_format"],
        metadata_size_hint=row["metadata_size_hint"],
    )


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 40, 1024, 1040])
@pytest.mark.parametrize("version", [2, 4])
def test_a_binary_manifest_gives_every_segment(count: int, version: int) -> None:
    written = rows(count)
    manifest = parse_binary_manifest(encode_binary_manifest("tp", 5, 21, written, version=version))

    assert manifest.segments == tuple(map(meta, written))
    assert (manifest.version, manifest.namespace, manifest.topic) == (version, "kafka", "tp")
    assert (manifest.partition, manifest.revision) == (5, 21)
    assert manifest.start_offset == (1000 if count else None)
    assert (manifest.spillover, manifest.archive_start_offset, manifest.start_kafka_offset) == ((), None, None)


def test_a_json_manifest_says_the_same_as_a_binary_one() -> None:
    older, newer = rows(17)[:2], rows(17)[2:]
    facts: dict[str, Any] = {"spillover": older}

    from_json = parse_json_manifest(encode_json_manifest("tp", 5, 21, newer, start_kafka_offset=1010, **facts))
    binary = parse_binary_manifest(encode_binary_manifest("tp", 5, 21, newer, start_kafka_offset=1010, **facts))

    assert [one.base_offset for one in binary.spillover] == [1000, 1010]
    assert from_json.segments == binary.segments
    assert from_json.archive_start_offset == binary.archive_start_offset == 1000
    assert from_json.start_kafka_offset == binary.start_kafka_offset == 1010
    assert from_json.start_offset == binary.start_offset


def test_rewritten_objects_are_told() -> None:
    binary = parse_binary_manifest(encode_binary_manifest("tp", 5, 21, rows(3), replaced=[(7, 2), (9, 3)]))
    text = parse_json_manifest(encode_json_manifest("tp", 5, 21, rows(3), replaced={"7-2-v1.log": {}}))

    assert binary.replaced == ("7-2-v1.log", "9-3-v1.log")
    assert text.replaced == ("7-2-v1.log",)


def test_fields_of_a_newer_version_are_passed_over() -> None:
    data = encode_binary_manifest("tp", 5, 21, rows(3), version=4)
    longer = data[:2] + (len(data) - 6 + 5).to_bytes(4, "little") + data[6:] + b"later"

    assert parse_binary_manifest(longer) == parse_binary_manifest(data)


def test_a_segment_of_the_first_versions_has_its_term_from_its_name_and_no_delta() -> None:
    segment = {"is_compacted": False, "size_bytes": 7, "committed_offset": 20, "base_offset": 10}
    document = encode_json_manifest("tp", 0, 1, [], segments={"10-4-v1.log": segment})
    (read,) = parse_json_manifest(document).segments

    assert (read.segment_term, read.name, read.archiver_term) == (4, "10-4-v1.log", None)
    assert (read.delta_offset, read.base_kafka_offset) == (None, 10)


def test_an_unset_delta_counts_as_none() -> None:
    row = rows(1)[0] | {"delta_offset": UNSET, "delta_offset_end": UNSET}
    (read,) = parse_binary_manifest(encode_binary_manifest("tp", 5, 21, [row])).segments

    assert (read.delta_offset, read.delta_offset_end) == (None, None)
    assert (read.base_kafka_offset, read.next_kafka_offset) == (1000, 1010)


def accepted_or_refused(data: bytes) -> PartitionManifest | None:
    """A value or the one error there is."""
    try:
        return parse_binary_manifest(data, source="b/manifest.bin")
    except ManifestError as error:
        assert error.source == "b/manifest.bin"
        return None


def test_every_cut_of_a_binary_manifest_is_refused() -> None:
    data = encode_binary_manifest("tp", 5, 21, rows(18), replaced=[(7, 2)], version=4)

    assert accepted_or_refused(data) is not None
    assert all(accepted_or_refused(data[:size]) is None for size in range(len(data)))


def test_a_flipped_bit_gives_a_manifest_or_the_error_that_names_it() -> None:
    data = encode_binary_manifest("tp", 5, 21, rows(18), replaced=[(7, 2)], version=4)
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        accepted_or_refused(bytes(flipped))


def test_bytes_behind_a_binary_manifest_are_refused() -> None:
    with pytest.raises(ManifestError, match="1 byte follows"):
        parse_binary_manifest(encode_binary_manifest("tp", 5, 21, rows(2)) + b"\0")


def test_a_row_that_promises_more_than_there_is_allocates_nothing() -> None:
    data = bytearray(encode_binary_manifest("tp", 5, 21, rows(32), version=2))
    at = data.rfind((2).to_bytes(4, "little") + (32).to_bytes(8, "little"))  # rows of the last column, then its size
    data[at : at + 4] = b"\xff\xff\xff\x7f"

    with pytest.raises(ManifestError, match="2147483647 rows"):
        parse_binary_manifest(bytes(data))


@pytest.mark.parametrize(
    "change",
    [
        {"base_offset": -1},
        {"committed_offset": 999},
        {"size_bytes": -1},
        {"delta_offset": -2},
        {"delta_offset": 5000},
        {"sname_format": 4},
        {"segment_term": -3},
    ],
)
def test_a_segment_that_cannot_be_is_refused(change: dict[str, int]) -> None:
    row = rows(1)[0] | change

    with pytest.raises(ManifestError, match=r"contradicts itself.*no segment can be so"):
        parse_binary_manifest(encode_binary_manifest("tp", 5, 21, [row]))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"version":1}',
        b'{"version":2,"namespace":"kafka","topic":"t","partition":0,"revision":1}',
        b'{"version":1,"namespace":"kafka","topic":"t","partition":true,"revision":1}',
        b'{"version":1,"namespace":"kafka","topic":"t","partition":0,"revision":' + b"9" * 5000 + b"}",
        b'{"version":1,"namespace":"kafka","topic":"t","partition":0,"revision":1,"segments":[]}',
        b'{"version":1,"namespace":"kafka","topic":"t","partition":0,"revision":1,"spillover":{"a":1}}',
        b'{"version":1,"namespace":"kafka","topic":"t","partition":0,"revision":1,"segments":{"x":{}}}',
        b'{"version":1,"namespace":"kafka","topic":"t","partition":0,"revision":1,"segments":{"1-1-v1.log":3}}',
    ],
)
def test_json_that_is_no_manifest_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_json_manifest(data, source="b/manifest.json")

    assert caught.value.source == "b/manifest.json"


def test_a_segment_under_another_name_is_refused() -> None:
    document = json.loads(encode_json_manifest("tp", 0, 1, rows(1)))
    document["segments"] = {"77-0-v1.log": next(iter(document["segments"].values()))}

    with pytest.raises(ManifestError, match="is not the name of the segment at 1000"):
        parse_json_manifest(json.dumps(document).encode())
