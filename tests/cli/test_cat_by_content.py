"""``cat --key`` and ``--grep``: records by what they hold, from one partition or from all."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from served_cluster import served_cluster, tiered_log

from segreader.cli.main import main
from segreader.plan.partitioner import partition_for_key
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.records import ProducerRecord
from segreader.testing.stores import MemoryStore

KEYS = [f"key-{number}".encode() for number in range(40)]
PARTITIONS = 4


class Run:
    """Runs the command in this process."""

    def __init__(self, captured: pytest.CaptureFixture[bytes]) -> None:
        self._captured = captured

    def __call__(self, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
        code = main(list(arguments))
        out, err = self._captured.readouterr()
        return int(code), [json.loads(line) for line in out.splitlines()], err.decode()


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    return Run(capsysbinary)


def keyed(keys: Sequence[bytes | None]) -> SegmentBuilder:
    built = SegmentBuilder()
    for key in keys:
        built.batch([ProducerRecord(b"value of " + (key or b"none"), key)])
    return built


@pytest.fixture
def keyed_topic(tmp_path: Path) -> Path:
    """Forty keys twice, each in the partition of the default partitioner."""
    for partition in range(PARTITIONS):
        own = [key for key in KEYS if partition_for_key(key, PARTITIONS) == partition]
        write_local_tiered(tmp_path, "orders", [keyed([*own, *own])], partition=partition)
    return tmp_path


def read_bytes(err: str) -> int:
    return next(int(line.split()[1]) for line in err.splitlines() if line.startswith("bytes_read"))


@pytest.mark.parametrize("key", ["key-7", f"0x{b'key-7'.hex()}"])
def test_a_key_reads_its_partition_alone(keyed_topic: Path, run: Run, key: str) -> None:
    code, rows, err = run("cat", str(keyed_topic), "orders", "--key", key, "--stats")
    partition = partition_for_key(b"key-7", PARTITIONS)
    assert (code, {row["key"] for row in rows}, {row["partition"] for row in rows}) == (0, {"key-7"}, {partition})
    assert len(rows) == 2
    assert f"only partition {partition} is read" in err
    assert "librdkafka" in err
    assert "--all-partitions" in err
    logs = [path.stat().st_size for path in keyed_topic.rglob(f"orders-{partition}-*/*.log")]
    assert read_bytes(err) == sum(logs) > 0


def test_a_key_asks_a_bucket_for_objects_of_its_partition_alone(
    keyed_topic: Path, run: Run, bucket: Callable[[dict[str, bytes]], MemoryStore]
) -> None:
    files = {str(path.relative_to(keyed_topic)): path.read_bytes() for path in keyed_topic.rglob("*") if path.is_file()}
    store = bucket(files)
    run("cat", "s3://bucket", "orders", "--key", "key-7")
    partition = partition_for_key(b"key-7", PARTITIONS)
    asked = {request.split()[1] for request in store.requests if request.startswith("GET")}
    assert asked
    assert all(f"orders-{partition}-" in name for name in asked)


def test_all_partitions_finds_a_key_that_another_partitioner_placed(tmp_path: Path, run: Run) -> None:
    elsewhere = (partition_for_key(b"key-7", 2) + 1) % 2
    for partition in range(2):
        write_local_tiered(
            tmp_path, "orders", [keyed([b"key-7" if partition == elsewhere else b"x"])], partition=partition
        )
    code, rows, err = run("cat", str(tmp_path), "orders", "--key", "key-7")
    assert (code, rows) == (0, [])
    assert "0 of 1 record read matches" in err
    code, rows, err = run("cat", str(tmp_path), "orders", "--key", "key-7", "--all-partitions")
    assert [(row["partition"], row["key"]) for row in rows] == [(elsewhere, "key-7")]
    assert "partition" not in err


def test_partitions_that_are_named_are_read_whatever_the_hash_says(keyed_topic: Path, run: Run) -> None:
    other = (partition_for_key(b"key-7", PARTITIONS) + 1) % PARTITIONS
    code, rows, err = run("cat", str(keyed_topic), f"orders/{other}", "--key", "key-7")
    assert (code, rows) == (0, [])
    assert "default partitioner" not in err


def test_a_null_key_is_no_empty_key(tmp_path: Path, run: Run) -> None:
    write_local_tiered(tmp_path, "orders", [keyed([None, b"", b"k", None])])
    _, rows, err = run("cat", str(tmp_path), "--key", "")
    assert [(row["offset"], row["key"]) for row in rows] == [(1, "")]
    assert "1 of 4 records read match" in err


def test_grep_finds_bytes_in_keys_and_values(tmp_path: Path, run: Run) -> None:
    records = [
        ProducerRecord(b"ab\x00\xffcd", None),
        ProducerRecord(None, b"\x00\xff"),
        ProducerRecord("größer".encode(), b"k"),
        ProducerRecord(None, None),
    ]
    write_local_tiered(tmp_path, "orders", [SegmentBuilder().batch(records)])
    _, rows, err = run("cat", str(tmp_path), "--grep", "0x00ff")
    assert [row["offset"] for row in rows] == [0, 1]
    assert "2 of 4 records read match" in err
    assert [row["offset"] for row in run("cat", str(tmp_path), "--grep", "größ")[1]] == [2]
    assert [row["offset"] for row in run("cat", str(tmp_path), "--grep", "größ", "--key", "k")[1]] == [2]
    assert run("cat", str(tmp_path), "--grep", "größ", "--key", "other")[1] == []


def test_a_limit_counts_the_records_that_match(keyed_topic: Path, run: Run) -> None:
    _, rows, _ = run("cat", str(keyed_topic), "orders", "--grep", "key-1", "--limit", "3")
    assert len(rows) == 3
    assert all(row["key"].startswith("key-1") for row in rows)


@pytest.mark.parametrize("option", ["--key", "--grep"])
def test_hex_that_is_none_is_refused_with_the_way_to_write_it(keyed_topic: Path, run: Run, option: str) -> None:
    code, _, err = run("cat", str(keyed_topic), option, "0xyz")
    assert code == 2
    assert f"({option}) is not hex after 0x" in err
    assert "0x3078797a" in err


def test_all_partitions_without_a_key_is_refused(keyed_topic: Path, run: Run) -> None:
    code, _, err = run("cat", str(keyed_topic), "--all-partitions")
    assert code == 2
    assert "--key" in err


def test_jsonl_is_ndjson(keyed_topic: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    outs = []
    for form in ("jsonl", "ndjson"):
        main(["cat", str(keyed_topic), "orders", "-o", form])
        outs.append(capsysbinary.readouterr().out)
    assert outs[0] == outs[1] != b""


def test_sql_reads_the_partition_of_a_key_on_request(keyed_topic: Path, run: Run) -> None:
    query = f"select partition, count(*) as n from topic('{keyed_topic}', 'orders', with_key := 'key-7') group by all"
    code, rows, err = run("sql", query, "-o", "jsonl")
    partition = partition_for_key(b"key-7", PARTITIONS)
    assert (code, rows) == (0, [{"partition": partition, "n": 2}])
    assert f"only partition {partition} is read" in err


def test_brokers_count_the_partitions_of_a_key(tmp_path: Path, run: Run) -> None:
    logs = {}
    for partition in range(PARTITIONS):
        own = [key for key in KEYS if partition_for_key(key, PARTITIONS) == partition]
        logs[partition] = tiered_log(tmp_path, "orders", [keyed(own)], partition=partition, uploaded=0, local_from=0)
    with served_cluster({"orders": logs}) as cluster:
        code, rows, err = run("cat", f"kafka://{cluster.bootstrap}", "orders", "--key", "key-7")
    partition = partition_for_key(b"key-7", PARTITIONS)
    assert (code, [(row["partition"], row["key"]) for row in rows]) == (0, [(partition, "key-7")])
    assert "(4 partitions)" in err
