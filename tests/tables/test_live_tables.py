"""A live topic as a table: what brokers have now, with the conditions and columns of a query."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from corpus import case
from fake_cluster import FakeCluster, of_corpus

from segreader.cli.main import main
from segreader.duckdb import register
from segreader.errors import OptionError
from segreader.polars import scan as scan_polars
from segreader.tables.dataset import open_dataset

ONE = case("tv2", "txn-open")
CLUSTER = "kafka://b:9092"
EXPECTED = [(record.partition, record.offset, record.key) for record in ONE.truth("committed")]


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A tiered topic whose first segments only the remote tier has."""
    remote = of_corpus(ONE)
    remote.local_start = remote.last_tiered + 1
    found = FakeCluster({ONE.topic: {0: remote}}, topic_ids={ONE.topic: ONE.topic_id})
    monkeypatch.setattr("segreader.live.scan.KafkaCluster", lambda brokers, options=None: found)
    return found


@pytest.mark.parametrize("location", [CLUSTER, ONE.root / "remote"], ids=["brokers", "both"])
def test_duckdb_and_polars_give_the_rows_of_a_consumer_that_a_condition_leaves(location: str | Path) -> None:
    arguments: dict[str, Any] = {"topic": ONE.topic} | ({} if location == CLUSTER else {"bootstrap_servers": "b:9092"})
    connection = duckdb.connect()
    dataset = register(connection, "t", location, **arguments)
    columns = 'partition, "offset", key'
    assert connection.sql(f"select {columns} from t order by 1, 2").fetchall() == EXPECTED
    assert connection.sql("select count(*) from t").fetchall() == [(len(EXPECTED),)]
    middle = EXPECTED[len(EXPECTED) // 2][1]
    late = [row for row in EXPECTED if row[1] >= middle]
    found = connection.sql(f'select {columns} from t where "offset" >= {middle} order by 1, 2').fetchall()
    assert found == late
    frame = scan_polars(location, **arguments).filter(pl.col("offset") >= middle)
    assert frame.select("partition", "offset", "key").collect().rows() == late
    connection.close()
    dataset.close()


def test_a_query_of_the_command_reads_brokers(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    for arguments in (
        f"'{CLUSTER}', '{ONE.topic}'",
        f"'{ONE.root / 'remote'}', '{ONE.topic}', bootstrap_servers := 'b:9092'",
    ):
        assert main(["sql", f'select "offset" as at from topic({arguments}) order by 1']) == 0
        found = [json.loads(line)["at"] for line in capsysbinary.readouterr().out.splitlines()]
        assert found == [offset for _, offset, _ in EXPECTED]


def test_a_live_topic_cannot_be_refreshed() -> None:
    with pytest.raises(OptionError, match="one snapshot"):
        register(duckdb.connect(), "t", CLUSTER, topic=ONE.topic, refresh=True)


def test_a_fragment_of_a_live_topic_does_not_pickle() -> None:
    (fragment,) = open_dataset(CLUSTER, topic=ONE.topic).get_fragments()
    with pytest.raises(OptionError, match="a live topic holds connections to brokers"):
        pickle.dumps(fragment)
