"""One broker for all tests here, started at first use; they are skipped where it cannot be had."""

from __future__ import annotations

import pyspark
import pytest
from kafka_kit.cluster import Cluster
from kafka_kit.judge import SPARK, Judge, load_connector
from servers.pool import ServerPool, skip_or_fail
from servers.process import NotAvailableError
from spark_session import spark

__all__ = ["spark"]


@pytest.fixture(scope="session")
def kafka(servers: ServerPool) -> Cluster:
    """A cluster of one node with tiered storage. Mark the tests ``xdist_group("broker")``: one broker."""
    cluster: Cluster = servers.get("kafka")
    return cluster


@pytest.fixture(scope="session")
def judge(request: pytest.FixtureRequest) -> Judge:
    """Spark's own source beside ours, on that broker."""
    if pyspark.__version__ != SPARK:
        pytest.skip(
            f"Spark's kafka source is complete in Maven Central for {SPARK} only, this is {pyspark.__version__}"
        )
    kafka, session = (request.getfixturevalue(name) for name in ("kafka", "spark"))
    try:
        load_connector(session)
    except NotAvailableError as error:
        skip_or_fail("kafka", error.message)
    return Judge(session, kafka)
