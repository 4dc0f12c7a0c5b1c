"""The default partitioner's choice, by Kafka's vectors, two other implementations, and what producers have written."""

from __future__ import annotations

import random

import pytest
from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka
from corpus import CORPUS, case, cases
from kafka.partitioner import murmur2 as murmur2_of_kafka_python

from segreader.plan.partitioner import KeyPartition, murmur2, partition_for_key

KAFKAS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""Source: Kafka 4.0 ``UtilsTest.testMurmur2``."""


@pytest.mark.parametrize("key", KAFKAS, ids=bytes.decode)
def test_the_hash_is_that_of_kafkas_own_test(key: bytes) -> None:
    assert murmur2(key) == KAFKAS[key]


def test_two_other_clients_hash_every_length_the_same() -> None:
    chance = random.Random(7)
    for length in [*range(70), 1000]:
        for key in (chance.randbytes(length), b"\xff" * length, b"\x80" * length):
            unsigned = murmur2(key) & 0xFFFFFFFF
            assert unsigned == murmur2_of_aiokafka(key) & 0xFFFFFFFF == murmur2_of_kafka_python(key) & 0xFFFFFFFF


def test_every_key_that_a_java_producer_wrote_is_in_the_partition_of_its_hash() -> None:
    found = 0
    for one in cases("tv2"):
        if one.topic.startswith("multi"):
            numbers = {record.partition for record in one.truth("uncommitted")}
            for record in one.truth("uncommitted"):
                assert isinstance(record.key, bytes)
                assert partition_for_key(record.key, len(numbers)) == record.partition
                found += 1
    assert found == len(case("tv2", "multi").truth("uncommitted")) == 12_000, CORPUS


def test_a_choice_says_which_partitions_were_counted() -> None:
    there = KeyPartition.of("orders", None, b"21", {0, 1, 2, 3})
    assert there.partition == (-973932308 & 0x7FFFFFFF) % 4
    assert f"only partition {there.partition} is read" in there.text
    assert "4 partitions, by its segments; if it has more, the key may be elsewhere" in there.text
    gone = KeyPartition.of("orders", None, b"21", {0, 1, 2, 3} - {there.partition} | {3})
    assert "--all-partitions" in there.text
    assert gone.partitions == 4
    assert "(1 partition, by its segments;" in KeyPartition.of("orders", None, b"21", {0}).text


def test_a_partition_that_has_no_segments_is_named() -> None:
    chosen = partition_for_key(b"foobar", 6)
    text = KeyPartition.of("orders", None, b"foobar", {5} - {chosen} | {(chosen + 1) % 6, 5}).text
    assert chosen != 5
    assert f"partition {chosen} would be read, and has no segments here" in text
    assert "4 of them without segments here" in text


def test_a_cluster_counts_all_partitions() -> None:
    text = KeyPartition.of("orders", None, b"foobar", range(6), is_counted=True).text
    assert "(6 partitions)" in text
    assert "elsewhere" in text
