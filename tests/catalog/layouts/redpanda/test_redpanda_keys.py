"""Keys of Redpanda's buckets, against the vectors of Redpanda's own tests and of xxHash."""

from __future__ import annotations

import pytest

from segreader.catalog.layouts.redpanda.keys import PartitionDirectory, is_label, segment_name, xxh32

UUID = "deadbeef-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0x02CC5D05),
        ("a", 0x550D7456),
        ("Nobody inspects the spammish repetition", 0xE2293B2F),
        ("kafka/tp/5_21/10-11-1048576-12-v1.log", 0xD13F1C8E),
    ],
)
def test_xxh32_gives_the_known_hashes(text: str, expected: int) -> None:
    assert xxh32(text.encode()) == expected


@pytest.mark.parametrize("path", ["kafka/tp", "kafka/tp/5_21"])
def test_the_hash_of_a_manifest_is_that_of_redpandas_path_test(path: str) -> None:
    assert xxh32(path.encode()) & 0xF0000000 == 0xE0000000


def test_a_hashed_directory_is_taken_apart() -> None:
    place = PartitionDirectory.parse("e0000000/meta/kafka/tp/5_21/")

    assert place == PartitionDirectory("", "e0000000", "tp", 5, 21)
    assert place.is_hashed
    assert place.topic_id == "21"


def test_a_labelled_directory_below_other_directories_is_taken_apart() -> None:
    place = PartitionDirectory.parse(f"a/b/{UUID}/meta/kafka/my.topic_1/0_7/")

    assert place == PartitionDirectory("a/b/", UUID, "my.topic_1", 0, 7)
    assert not place.is_hashed
    assert place.topic_id == f"{UUID}_7"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "e0000000/meta/kafka/tp/",
        "e0000000/meta/kafka/tp/5/",
        "e0000000/meta/redpanda/controller/0_1/",
        "e1234567/meta/kafka/tp/5_21/",
        "e0000000/kafka/tp/5_21/",
        "meta/kafka/tp/5_21/",
        "e0000000/meta/kafka/tp/5_21",
        "e0000000/meta/kafka/tp/\u0665_21/",
    ],
)
def test_other_directories_are_no_partition(path: str) -> None:
    assert PartitionDirectory.parse(path) is None


def test_a_hashed_segment_key_begins_with_the_hash_of_the_rest() -> None:
    place = PartitionDirectory.parse("e0000000/meta/kafka/tp/5_21/")
    name = segment_name(10, 12, committed_offset=11, size=1048576, name_format=2)

    assert place is not None
    assert place.segment_key(name, None) == "d13f1c8e/kafka/tp/5_21/10-11-1048576-12-v1.log"
    assert place.segment_key(name, 3) == "d13f1c8e/kafka/tp/5_21/10-11-1048576-12-v1.log.3"


def test_a_labelled_segment_key_begins_with_the_cluster_and_the_bucket_below_it() -> None:
    place = PartitionDirectory.parse(f"a/{UUID}/meta/kafka/tp/5_21/")

    assert place is not None
    assert place.segment_key("10-12-v1.log", 2) == f"a/{UUID}/kafka/tp/5_21/10-12-v1.log.2"


def test_the_first_name_format_tells_neither_end_nor_size() -> None:
    assert segment_name(10, 12, committed_offset=11, size=5, name_format=1) == "10-12-v1.log"


@pytest.mark.parametrize(
    ("name", "expected"), [("f0000000", True), (UUID, True), ("f0000001", False), ("meta", False), ("F0000000", False)]
)
def test_a_label_is_a_hash_of_four_bits_or_a_uuid(name: str, expected: bool) -> None:
    assert is_label(name) is expected
