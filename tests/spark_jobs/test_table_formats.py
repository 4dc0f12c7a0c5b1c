"""The backfill with ``--sink table`` into Delta and Iceberg: rows, a second run, more to write, tables of others.

Both come from Maven Central and are of one release of Spark; one driver has both, for starting it costs the most.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from corpus import CORPUS, Digest, case
from growing_log import GrowingLog
from kafka_kit.jars import fetch_jars
from servers.pool import skip_or_fail
from servers.process import NotAvailableError

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-jobs")]

ROOT = Path(__file__).parents[2]
SPARK = "4.0.0"
TOPICS = ("nulls", "txn-interleaved")
DRIVER = """
import json, sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from spark_jobs.backfill import main
from spark_jobs.session import job_session

told = []
with job_session("tables", master="local[2]", settings=json.loads(sys.argv[1])) as session:
    spark = session.spark
    for kind, *what in json.loads(sys.argv[2]):
        if kind == "sql":
            told.append([list(row) for row in spark.sql(what[0]).collect()])
        elif kind == "upload":
            from growing_log import GrowingLog
            log = GrowingLog(Path(what[0]))
            log.upload("orders", 0, 10)
            log.upload("orders", 0, 10)
            told.append(None)
        else:
            with redirect_stderr(StringIO()) as heard:
                told.append([main(what[0]), heard.getvalue()])
print("TOLD" + json.dumps(told))
"""


@pytest.fixture(scope="module")
def jars() -> str:
    """What Spark needs for both, with commas."""
    if pyspark.__version__ != SPARK:
        pytest.skip(f"Delta and Iceberg are fetched for Spark {SPARK}, this is {pyspark.__version__}")
    try:
        place = fetch_jars(ROOT / "tests" / "support" / "table_formats.xml")
    except NotAvailableError as error:
        skip_or_fail("maven", error.message)
    return ",".join(str(jar) for jar in sorted(place.glob("*.jar")))


def drive(jars: str, place: Path, *steps: list[Any]) -> list[Any]:
    """What each step gave: exit code and what was said of a job, rows of a query."""
    extensions = (
        "io.delta.sql.DeltaSparkSessionExtension",
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    )
    settings = {
        "spark.jars": jars,
        "spark.sql.extensions": ",".join(extensions),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(place / "lake"),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
    }
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support"), *filter(None, sys.path)])
    line = [sys.executable, "-c", DRIVER, json.dumps(settings), json.dumps(steps)]
    done = subprocess.run(line, cwd=place, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    told: list[Any] = json.loads(done.stdout.partition("TOLD")[2])
    return told


def test_tables_of_delta_and_iceberg_hold_each_record_once_however_often_the_job_runs(
    jars: str, tmp_path: Path
) -> None:
    forms = {
        f"delta.`{tmp_path}/delta`": ["--target", str(tmp_path / "delta"), "--format", "delta"],
        "managed": ["--table", "managed", "--format", "delta"],
        "lake.db.copied": ["--table", "lake.db.copied"],
    }
    topics = [argument for topic in TOPICS for argument in ("--topic", topic)]
    steps: list[list[Any]] = []
    for table, where in forms.items():
        line = ["--location", str(CORPUS / "tv2" / "remote"), *topics, "--sink", "table", *where]
        query = f"SELECT topic, partition, offset, hex(key), hex(value) FROM {table} ORDER BY topic, partition, offset"
        steps += [["job", line], ["job", line], ["sql", query]]
        steps += [["job", [*line, "--isolation", "read_uncommitted"]], ["sql", f"SELECT count(*) FROM {table}"]]
        steps += [["job", [*line, "--force"]], ["job", line], ["sql", f"SELECT count(*) FROM {table}"]]
    told = iter(drive(jars, tmp_path, *steps))
    for table in forms:
        first, second, rows, other, still, forced, again, count = (next(told) for _ in range(8))
        assert first[0] == second[0] == forced[0] == again[0] == 0, table
        assert [tuple(row) for row in rows] == _truth(), table
        assert other[0] == 2
        assert "the table is there already; found what another job wrote" in other[1]
        assert still == count == [[len(rows)]]


def test_a_table_is_not_taken_for_complete_when_there_is_more_by_now(jars: str, tmp_path: Path) -> None:
    log = GrowingLog(tmp_path / "tier")
    log.upload("orders", 0, 10)
    line = ["--location", str(log.root), "--topic", "orders", "--sink", "table", "--table", "lake.db.orders"]
    foreign = ["--location", str(log.root), "--topic", "orders", "--sink", "table", "--table", "theirs"]
    steps: list[list[Any]] = [["job", line], ["upload", str(log.root)], ["job", line]]
    steps += [["sql", "SELECT count(*) FROM lake.db.orders"], ["sql", "CREATE TABLE theirs (n INT) USING delta"]]
    first, _, second, count, _, third = drive(jars, tmp_path, *steps, ["job", [*foreign, "--format", "delta"]])

    assert (first[0], count) == (0, [[10]])
    assert second[0] == 2
    assert "orders-0 with offsets 0 to 9 there, offsets 0 to 19 here" in second[1]
    assert third[0] == 2
    assert "found what this job did not write" in third[1]


def _truth() -> list[tuple[Any, ...]]:
    """The Java consumer's records, in the order of the query."""
    return [
        (topic, record.partition, record.offset, _hex(record.key), _hex(record.value))
        for topic in TOPICS
        for record in case("tv2", topic).truth("committed")
    ]


def _hex(data: bytes | Digest | None) -> str | None:
    assert not isinstance(data, Digest), "the truth keeps long values as hashes: take another topic"
    return None if data is None else data.hex().upper()
