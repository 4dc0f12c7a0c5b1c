from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segreader.catalog.layouts.aiven.keys import (
    CustomMetadata,
    main_path,
    parse_custom_metadata,
    parse_directory,
    parse_name,
)
from segreader.errors import ManifestError
from segreader.segment import TopicIdPartition

TOPIC_ID = "MWJ6FHTfRYy67jzwZdeqSQ"
SEGMENT_ID = "tqimKeZwStOEOwRzT3L5oQ"
FILE = f"00000000000000001000-{SEGMENT_ID}"
OBJECT_KEY = f"orders-{TOPIC_ID}/7/{FILE}"
ALL_FIELDS = "03 00 03 a6e201 01 08 08 7469657265642f 02 4c 4c " + OBJECT_KEY.encode().hex()


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
