"""``with_key`` and ``grep``: the records of a whole read that match, whoever decodes them and whatever lies between."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from corpus import FIXTURES, Case, cases
from fake_cluster import FakeCluster, of_corpus
from plain_urls import PLAIN, plain_logs, serving
from sample import at_edges

import segreader
from segreader.errors import CorruptBatchError
from segreader.isolation import IsolationLevel
from segreader.live.scan import LiveScan
from segreader.plan.partitioner import partition_for_key
from segreader.plan.request import ReadOptions, RecordFilter, Request
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered

SCHEMAS = str(FIXTURES / "schemas" / "schemas.json")
TYPED = FIXTURES / "schemas" / "remote"


def matching(records: list[Any], text: bytes) -> list[Any]:
    return [one for one in records if any(side is not None and text in side for side in (one.key, one.value))]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("one", at_edges(cases("tv2", "k39", "aiven-plain", remote=True)), ids=str)
def test_what_is_found_is_what_a_whole_read_has(one: Case, isolation: str) -> None:
    chance = random.Random(f"{one} {isolation}")
    asked: dict[str, Any] = {"topic": one.topic, "topic_id": one.topic_id, "isolation_level": isolation}
    whole = list(segreader.scan(one.root / "remote", **asked).records())
    record = chance.choice(whole) if whole else None
    text = b"v" if record is None else (record.value or b"")[:3]
    how: dict[str, Any] = {
        "kernel": chance.choice(["native", "reference"]),
        "threads": chance.choice([1, 4]),
        "split_bytes": 500,
    }
    with segreader.scan(one.root / "remote", **asked, **how, grep=text, batch_rows=7) as scan:
        assert list(scan.records()) == matching(whole, text)
        assert scan.looked_at == len(whole)
    if record is not None and record.key is not None:
        keyed = segreader.scan(one.root / "remote", **asked, **how, with_key=record.key)
        assert list(keyed.records()) == [other for other in whole if other.key == record.key]


@pytest.mark.parametrize("one", at_edges([one for one in cases("tv2", "cluster") if one.local]), ids=str)
def test_what_brokers_have_is_found_too(one: Case) -> None:
    numbers = [int(path.name.rpartition("-")[2]) for path in one.local]
    logs = {one.topic: {number: of_corpus(one, number) for number in numbers}}

    def scan(where: RecordFilter | None) -> LiveScan:
        cluster = FakeCluster(logs, topic_ids={one.topic: one.topic_id})
        request = Request(topic=one.topic, isolation_level=IsolationLevel.READ_COMMITTED)
        return LiveScan(lambda: cluster, request, options=ReadOptions(where=where))

    whole = list(scan(None).records())
    assert list(scan(RecordFilter(contains=b"a")).records()) == matching(whole, b"a")


@pytest.mark.parametrize(
    "columns", [("offset",), ("topic", "partition"), ("value", "key", "offset"), ("headers",)], ids="-".join
)
def test_columns_that_are_not_asked_for_are_looked_at_and_not_given(columns: tuple[str, ...]) -> None:
    one = next(one for one in cases("tv2") if one.topic == "multi")
    whole = segreader.scan(one.root / "remote", topic="multi").to_arrow()
    rows = [row for row in whole.to_pylist() if b"birch" in row["value"]]
    found = segreader.scan(one.root / "remote", topic="multi", grep="birch", columns=columns).to_arrow()
    assert found.schema.names == list(columns)
    assert found.to_pylist() == [{name: row[name] for name in columns} for row in rows]


@pytest.mark.parametrize("threads", [1, 4])
def test_keys_and_values_with_schemas_are_chosen_by_their_bytes(threads: int) -> None:
    def read(**asked: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (
            segreader.scan(TYPED, topic="orders-avro", threads=threads, **asked).to_arrow().to_pylist()
        )
        return found

    raw, typed = read(), read(key=SCHEMAS, value=SCHEMAS)
    for text in (b"a", raw[7]["key"][5:8], b"not there"):
        expected = [
            made for made, row in zip(typed, raw, strict=True) if text in row["key"] or text in (row["value"] or b"")
        ]
        assert read(key=SCHEMAS, value=SCHEMAS, grep=text) == expected
    key = raw[7]["key"]
    expected = [made for made, row in zip(typed, raw, strict=True) if row["key"] == key]
    assert read(key=SCHEMAS, value=SCHEMAS, with_key=key, all_partitions=True) == expected != []


def test_undecodable_values_that_are_not_asked_for_are_no_error() -> None:
    raw = segreader.scan(TYPED, topic="orders-bad").to_arrow().to_pylist()
    bad = segreader.scan(TYPED, topic="orders-bad", value=SCHEMAS, on_undecodable="keep").to_arrow().to_pylist()
    good = next(row for row, made in zip(raw, bad, strict=True) if made["value_error"] is None)
    assert any(made["value_error"] for made in bad)
    found = segreader.scan(TYPED, topic="orders-bad", value=SCHEMAS, grep=good["value"]).to_arrow()
    assert good["offset"] in found.column("offset").to_pylist()


def test_keys_that_a_program_placed_itself_are_found_in_all_partitions() -> None:
    rows = segreader.scan(TYPED, topic="orders-avro", columns=("partition", "key")).to_arrow().to_pylist()
    elsewhere = next(row["key"] for row in rows if partition_for_key(row["key"], 2) != row["partition"])
    missed = segreader.scan(TYPED, topic="orders-avro", with_key=elsewhere)
    assert missed.to_arrow().num_rows == 0
    assert "Other partitioners" in missed.plan().notes[0]
    found = segreader.scan(TYPED, topic="orders-avro", with_key=elsewhere, all_partitions=True)
    assert found.to_arrow().num_rows == sum(row["key"] == elsewhere for row in rows)


@pytest.mark.parametrize(
    "one", [one for one in PLAIN if one.topic in ("txn-span", "txn-interleaved", "multi")], ids=str
)
def test_a_list_of_urls_is_searched_as_a_directory_is(one: Case) -> None:
    files = plain_logs(one, "log", "index", "txnindex")
    whole = list(segreader.scan(one.root / "remote", topic=one.topic, topic_id=one.topic_id).records())
    with serving(files) as served:
        for text in (b"a", b"not there"):
            with served.scan(grep=text) as scan:
                assert [r.value for r in scan.records()] == [r.value for r in matching(whole, text)]


@pytest.mark.parametrize("threads", [1, 3])
def test_damage_is_met_whatever_is_searched(tmp_path: Path, threads: int) -> None:
    built = SegmentBuilder()
    for text in (b"needle", b"hay", b"needle", b"hay"):
        built.batch([text])
    data = bytearray(built.to_bytes())
    data[built.batch_positions[1] + 62] ^= 1
    write_local_tiered(tmp_path, "orders", [SegmentBuilder().raw(bytes(data))])
    given: list[int] = []
    with pytest.raises(CorruptBatchError):
        for batch in segreader.scan(tmp_path, grep="needle", threads=threads).to_batches():
            given += batch.column("offset").to_pylist()
    assert given == [0]
    lax = segreader.scan(tmp_path, grep="needle", on_corrupt="skip", threads=threads)
    assert lax.to_arrow().column("offset").to_pylist() == [0, 2]
    assert len(lax.metrics.holes) == 1


def test_a_batch_without_a_match_is_not_given(tmp_path: Path) -> None:
    built = SegmentBuilder()
    for _ in range(10):
        built.batch([b"hay"] * 10)
    write_local_tiered(tmp_path, "orders", [built])
    assert list(segreader.scan(tmp_path, grep="needle", batch_rows=5).to_batches()) == []
    table: pa.Table = segreader.scan(tmp_path, grep="needle").to_arrow()
    assert (table.num_rows, table.schema.names) == (0, segreader.scan(tmp_path).schema.names)
