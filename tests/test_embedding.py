"""The code of docs/how-to/loader.md and asyncio.md runs as it stands there, and gives what the corpus says."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
import typed_orders
from corpus import Case, NormalRecord, case, cases
from fake_cluster import of_corpus
from pages import ROOT, blocks, page
from served_cluster import served_cluster

from segreader.errors import RecreatedTopicError

BLOCKS = blocks(page("how-to/loader", "how-to/asyncio"), "python")
"""In the pages' order: a load, a reader that dies, new segments, a partition, the hand-over, typed values, asyncio,
a driver."""

TRANSACTIONAL = [one for one in cases("tv2", remote=True) if one.topic.startswith("txn-")]


def run(number: int, monkeypatch: pytest.MonkeyPatch, **replaced: str) -> dict[str, Any]:
    """The names that a block leaves."""
    monkeypatch.chdir(ROOT)
    source = BLOCKS[number]
    for old, new in replaced.items():
        assert old in source
        source = source.replace(old, new)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, f"docs/how-to/loader.md[{number}]", "exec"), names)
    return names


def truth(of: Case) -> list[NormalRecord]:
    """What remote files alone can give of a case, committed."""
    return [
        record
        for record in of.truth("committed")
        if record.offset < min(of.remote_stop(record.partition), of.offline_lso(record.partition))
    ]


def test_the_pages_have_the_code_that_is_tested_here() -> None:
    assert len(BLOCKS) == 8


def test_the_load_in_threads_has_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    names = run(0, monkeypatch)
    assert len(names["tasks"]) > 4
    offsets = names["table"]["offset"].to_pylist()
    assert offsets == [record.offset for record in truth(case("tv2", "txn-span"))]


def test_the_reader_that_dies_at_every_record_has_each_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run(1, monkeypatch)
    assert names["offsets"] == [record.offset for record in truth(case("tv2", "txn-interleaved"))]
    assert "each once: True" in capsys.readouterr().out


def test_a_second_look_finds_nothing_that_was_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    names = run(2, monkeypatch)
    assert len(names["first"]) >= 4
    assert names["later"] == []


def test_the_partition_consumer_has_every_record_of_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    names = run(3, monkeypatch)
    multi = case("tv2", "multi")
    assert names["rows"] == sum(record.partition == 2 for record in truth(multi))
    assert names["next_offset"] == multi.remote_stop(2)


def test_the_hand_over_begins_where_the_remote_tier_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    multi = case("tv2", "multi")
    logs = {number: of_corpus(multi, number) for number in range(4)}
    with served_cluster({"multi": logs}) as serving:
        with pytest.raises(RecreatedTopicError):  # the served one has an id of its own
            run(4, monkeypatch, **{"localhost:9092": serving.bootstrap})
        serving.cluster.topic_ids["multi"] = multi.topic_id
        names = run(4, monkeypatch, **{"localhost:9092": serving.bootstrap})
    assert names["checked"].to_flink() == {("multi", number): multi.remote_stop(number) for number in range(4)}
    assert names["checked"].added == ()


def test_the_typed_load_has_every_order_with_its_fields(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run(5, monkeypatch)
    true = typed_orders.truth("orders-avro")
    assert [row["offset"] for row in names["rows"]] == [one.offset for one in true]
    assert [row["value"] and row["value"]["id"] for row in names["rows"]] == [
        one.value and one.value["id"] for one in true
    ]
    assert "struct<id: int64 not null, items: list<item: struct<price: double not null>" in capsys.readouterr().out


def test_the_two_scans_at_once_have_all_records(monkeypatch: pytest.MonkeyPatch) -> None:
    names = run(6, monkeypatch)
    assert names["counts"] == [len(truth(case("tv2", "txn-span"))), len(truth(case("tv2", "multi")))]


def test_the_driver_gives_the_records_that_the_page_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    names = run(7, monkeypatch)
    expected = [record for record in truth(case("tv2", "txn-span")) if 30 <= record.offset < 150]
    assert [record.offset for record in names["records"]] == [record.offset for record in expected]
    assert len(expected) > 50


def test_the_driver_is_about_forty_lines() -> None:
    (body,) = re.findall(r"^async def read_committed.*?(?=^async def get)", BLOCKS[7], re.MULTILINE | re.DOTALL)
    assert len(body.strip().splitlines()) <= 40


@pytest.mark.parametrize("one", TRANSACTIONAL, ids=str)
def test_the_driver_gives_what_the_java_consumer_was_given_from_any_offset_on(
    one: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = run(7, monkeypatch)
    (directory,) = one.remote
    stop = min(one.remote_stop(0), one.offline_lso(0))
    expected = truth(one)

    async def read(start: int) -> list[tuple[int, bytes | None, bytes | None, int]]:
        found = names["read_committed"](names["get"], names["segments_of"](directory), start, stop)
        return [(record.offset, record.key, record.value, record.timestamp_ms) async for record in found]

    for start in range(0, stop + 1, max(1, stop // 12)):
        seen = asyncio.run(read(start))
        wanted = [record for record in expected if record.offset >= start]
        assert [(offset, at) for offset, _, _, at in seen] == [(r.offset, r.timestamp_ms) for r in wanted]
        assert [key for _, key, _, _ in seen] == [r.key for r in wanted]
