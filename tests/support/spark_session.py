"""One Spark session for the whole test process: ``from spark_session import spark`` in a conftest.

The first directory that asks for it starts the JVM, later ones are given the same session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_jvm import spark_variables

from spark_jobs.session import job_session

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with two cores, four attempts a task, and the repository on the path of its workers."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)  # read by workers; must stand before the JVM starts
    os.environ.update(spark_variables())
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.driver.memory": "1g",
    }
    with job_session("segreader tests", master="local[2,4]", settings=settings) as session:
        yield session.spark
