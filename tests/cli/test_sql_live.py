"""``segreader sql --at`` and ``segreader shell`` over a cluster: its topics are tables, too."""

from __future__ import annotations

import io
import json
import sys

import pytest
from corpus import case
from fake_cluster import FakeCluster, of_corpus

from segreader.cli.main import main

ONE = case("tv2", "txn-open")
ROWS = len(ONE.truth("committed"))


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A tiered topic whose first segments only the remote tier has."""
    remote = of_corpus(ONE)
    remote.local_start = remote.last_tiered + 1
    found = FakeCluster({ONE.topic: {0: remote}}, topic_ids={ONE.topic: ONE.topic_id})
    for module in ("scan", "cluster"):
        monkeypatch.setattr(f"segreader.live.{module}.KafkaCluster", lambda brokers, options=None: found)
    return found


@pytest.mark.parametrize(
    "place",
    [("kafka://b:9092",), (str(ONE.root / "remote"), "--bootstrap-servers", "b:9092")],
    ids=["brokers", "both"],
)
def test_topics_of_a_cluster_are_tables_that_are_listed_read_and_explained(
    capsysbinary: pytest.CaptureFixture[bytes], place: tuple[str, ...]
) -> None:
    count = f'select count(*) as n from "{ONE.topic}"'
    assert main(["sql", "--at", *place, "-o", "ndjson", f"show tables; {count}; explain {count}"]) == 0
    listed, counted, explained = map(json.loads, capsysbinary.readouterr().out.splitlines())
    assert (listed, counted) == ({"name": ONE.topic}, {"n": ROWS})
    assert [one["topic"] for read in explained["reads"] for one in read["partitions"]] == [ONE.topic]


def test_the_shell_lists_topics_of_a_cluster(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f'.topics\nselect count(*) as n from "{ONE.topic}";\n'))
    assert main(["shell", "kafka://b:9092"]) == 0
    assert [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()] == [
        {"topic": ONE.topic},
        {"n": ROWS},
    ]
