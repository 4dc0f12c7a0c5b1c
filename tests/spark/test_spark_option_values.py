from __future__ import annotations

import pytest

from segreader.errors import OptionError
from segreader.spark.option_values import parse_assignment, parse_offsets, parse_timestamps


def test_the_word_that_means_everything_is_no_offsets() -> None:
    assert parse_offsets("Earliest", "startingOffsets", keyword="earliest") is None
    assert parse_offsets(" latest ", "endingOffsets", keyword="latest") is None


@pytest.mark.parametrize(("word", "keyword"), [("latest", "earliest"), ("earliest", "latest")])
def test_the_other_end_is_refused_by_its_name(word: str, keyword: str) -> None:
    with pytest.raises(OptionError, match=f"cannot be {word}"):
        parse_offsets(word, "startingOffsets", keyword=keyword)


def test_offsets_are_read_as_kafkas_source_writes_them() -> None:
    text = '{"orders":{"0":23,"1":-2},"audit":{"0":-2}}'
    offsets = parse_offsets(text, "startingOffsets", keyword="earliest")

    assert offsets == {"orders": {0: 23, 1: -2}, "audit": {0: -2}}


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ('{"orders":{"0":-2}}', "latest"),
        ('{"orders":{"0":-3}}', "latest"),
        ('{"orders":{"0":9223372036854775808}}', "latest"),
        ('{"orders":{"0":true}}', "latest"),
        ('{"orders":{"0":1.5}}', "latest"),
        ('{"orders":{"0":"1"}}', "latest"),
        ('{"orders":{"0":null}}', "latest"),
        ('{"orders":{"-1":1}}', "latest"),
        ('{"orders":{"zero":1}}', "latest"),
        ('{"orders":{"4294967296":1}}', "latest"),
        ('{"orders":{"0":1,"00":2}}', "latest"),
        ('{"orders":{"0":1,"0":2}}', "latest"),
        ('{"orders":{}}', "latest"),
        ('{"orders":[0]}', "latest"),
        ("{}", "latest"),
        ("[]", "latest"),
        ("23", "latest"),
        ("later", "latest"),
        ("", "latest"),
        ("[" * 100_000, "latest"),
    ],
)
def test_what_is_not_an_offset_for_each_partition_is_refused(text: str, keyword: str) -> None:
    with pytest.raises(OptionError, match="endingOffsets"):
        parse_offsets(text, "endingOffsets", keyword=keyword)


def test_a_start_may_be_the_end_for_a_stream() -> None:
    assert parse_offsets('{"orders":{"0":-1}}', "startingOffsets", keyword="earliest") == {"orders": {0: -1}}


def test_times_are_milliseconds_by_partition() -> None:
    text = '{"orders":{"0":1700000000000,"1":0}}'
    assert parse_timestamps(text, "startingOffsetsByTimestamp") == {"orders": {0: 1700000000000, 1: 0}}


@pytest.mark.parametrize("text", ["earliest", "1700000000000", '{"orders":{"0":-1}}', '{"orders":{"0":"5"}}', "{}"])
def test_what_is_not_a_time_for_each_partition_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="startingOffsetsByTimestamp"):
        parse_timestamps(text, "startingOffsetsByTimestamp")


def test_an_assignment_is_partitions_by_topic() -> None:
    assert parse_assignment('{"orders":[1,0],"audit":[0]}') == {"orders": (0, 1), "audit": (0,)}


@pytest.mark.parametrize(
    "text",
    [
        '{"orders":[]}',
        '{"orders":[0,0]}',
        '{"orders":[-1]}',
        '{"orders":["0"]}',
        '{"orders":[[0]]}',
        '{"orders":0}',
        "{}",
        "x",
    ],
)
def test_what_is_not_an_assignment_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="assign"):
        parse_assignment(text)
