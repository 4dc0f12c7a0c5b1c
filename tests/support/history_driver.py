"""A driver that does everything that leaves a history, good and bad: ``python history_driver.py CONFIG.json``.

Everything that can be seen of it is left in files below the configuration's ``out``; what it prints is another part.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pyspark
import urllib3
from pyspark.sql import DataFrame, SparkSession
from quick_jvm import QUICK

from segreader.spark import register
from segreader.spark.batch import SegmentReader
from segreader.spark.options import parse_options
from spark_jobs.backfill import main as backfill
from spark_jobs.session import job_session

MARKER = "m4rker"
_MOST_PAGES = 200
_REST = (
    *("jobs", "stages?details=true&withSummaries=true", "sql?details=true&planDescription=true&length=500"),
    *("environment", "allexecutors", "executors", "storage/rdd", "streaming/statistics", "allmiscellaneousprocess"),
)


class Driver:
    """One session and what is done in it.

    Args:
        facts: the configuration: ``out``, ``endpoint``, ``bucket``, ``place`` and ``gone``.
    """

    def __init__(self, spark: SparkSession, facts: dict[str, Any]) -> None:
        self.spark, self.facts = spark, facts
        self.out = Path(facts["out"])
        self.location = f"s3://{facts['bucket']}/{facts['place']}"

    def options(self, topic: str, credentials: str) -> dict[str, str]:
        """Options of the data source; some providers name the endpoint themselves."""
        given = {"location": self.location, "subscribe": topic, "credentials": credentials}
        if not credentials.endswith(("refused", "denied")):
            given |= {"storage.endpoint": self.facts["endpoint"], "storage.region": "us-east-1"}
        return given

    def load(self, topic: str, credentials: str) -> DataFrame:
        return self.spark.read.format("segreader").options(**self.options(topic, credentials)).load()

    def count(self, topic: str, credentials: str) -> None:
        say("rows", self.load(topic, credentials).count())

    def backfill(self, topic: str, target: str, credentials: str) -> None:
        """The job by its command line."""
        given = self.options(topic, credentials)
        arguments = ["--location", self.location, "--topic", topic, "--target", target, "--credentials", credentials]
        for name in ("endpoint", "region"):
            if f"storage.{name}" in given:
                arguments += ["--storage-option", f"{name}={given[f'storage.{name}']}"]
                if "://" in target:
                    arguments += ["--target-option", f"{name}={given[f'storage.{name}']}"]
        say("exit code", backfill(arguments))

    def read(self, credentials: str, name: str) -> None:
        """A read, a view and a write, with all that Spark says of their plans."""
        frame = self.load(MARKER, credentials)
        frame.explain("extended")
        frame.createOrReplaceTempView(f"{MARKER}_{name}")
        frame = self.spark.sql(f"SELECT * FROM {MARKER}_{name}")
        say("rows", frame.count())
        frame.write.parquet(str(self.out / "written" / name))
        (self.out / "explain").mkdir(exist_ok=True)
        (self.out / "explain" / f"{name}.txt").write_text(frame._jdf.queryExecution().toString())
        reader = SegmentReader(parse_options(self.options(MARKER, credentials)), ("offset",))
        (self.out / "pickles").mkdir(exist_ok=True)
        (self.out / "pickles" / f"{name}.reader").write_bytes(pickle.dumps(reader))
        (self.out / "pickles" / f"{name}.splits").write_bytes(pickle.dumps(reader.partitions()))

    def stream(self, topic: str, credentials: str, name: str) -> None:
        """A query up to what is there."""
        reader = self.spark.readStream.format("segreader").options(**self.options(topic, credentials))
        writer = reader.load().writeStream.format("parquet").queryName(f"{MARKER}_{name}")
        writer = writer.option("path", str(self.out / "streamed" / name))
        writer = writer.option("checkpointLocation", str(self.out / "checkpoint" / name))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()

    def live(self, name: str, **secrets: str) -> None:
        """History and live data, by a client of brokers that logs in: a view, a write, a stream and a backfill."""
        given = self.options(MARKER, "env:LAKE_SECRET") | {
            "kafka.bootstrap.servers": self.facts["bootstrap"],
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": MARKER,
            **secrets,
        }
        frame = self.spark.read.format("segreader").options(**given).load()
        frame.createOrReplaceTempView(f"{MARKER}_{name}")
        frame = self.spark.sql(f"SELECT * FROM {MARKER}_{name}")
        say("rows", frame.count())
        frame.write.parquet(str(self.out / "written" / name))
        (self.out / "explain" / f"{name}.txt").write_text(frame._jdf.queryExecution().toString())
        reader = SegmentReader(parse_options(given), ("offset",))
        (self.out / "pickles" / f"{name}.reader").write_bytes(pickle.dumps(reader))
        (self.out / "pickles" / f"{name}.splits").write_bytes(pickle.dumps(reader.partitions()))
        writer = self.spark.readStream.format("segreader").options(**given).load().writeStream.format("parquet")
        writer = writer.queryName(f"{MARKER}_{name}").option("path", str(self.out / "streamed" / name))
        writer = writer.option("checkpointLocation", str(self.out / "checkpoint" / name))
        writer.trigger(availableNow=True).start().awaitTermination()
        arguments = ["--location", self.location, "--topic", MARKER, "--credentials", "env:LAKE_SECRET"]
        arguments += ["--bootstrap-servers", given["kafka.bootstrap.servers"]]
        arguments += ["--target", str(self.out / "live" / name)]
        for option, text in given.items():
            if option.startswith("storage."):
                arguments += ["--storage-option", f"{option.removeprefix('storage.')}={text}"]
            elif option.startswith("kafka.") and "bootstrap" not in option:
                arguments += ["--broker-option", f"{option}={text}"]
            elif option == "brokerCredentials":
                arguments += ["--broker-credentials", text]
        say("exit code", backfill(arguments))

    def vanish(self) -> None:
        """A segment that is deleted between plan and tasks."""
        frame = self.load(f"{MARKER}-gone", "env:LAKE_SECRET")
        say("partitions", frame.rdd.getNumPartitions())
        client = boto3.client(
            "s3",
            endpoint_url=self.facts["endpoint"],
            region_name="us-east-1",
            aws_access_key_id="another",
            aws_secret_access_key="another",
        )
        for name in self.facts["gone"]:
            client.delete_object(Bucket=self.facts["bucket"], Key=name)
        frame.collect()  # of the plan that was made; a count makes another, of what is left

    def crawl(self) -> None:
        """Keep every page of the UI, and what its REST API says."""
        root = str(self.spark.sparkContext.uiWebUrl)
        application = self.spark.sparkContext.applicationId
        wanted, seen = [root + "/"], {root + "/"}
        while wanted and len(seen) < _MOST_PAGES:
            page = keep(wanted.pop(0), self.out / "ui")
            for link in re.findall(r"""href=['"]([^'"#]+)""", page.replace("&amp;", "&")):
                url = root + link if link.startswith("/") else link
                is_page = url.startswith(root) and not re.search(r"/static/|/kill|[.?&]sort=|\.(css|js|png|svg)", url)
                if is_page and url not in seen:
                    seen.add(url)
                    wanted.append(url)
        api = f"{root}/api/v1/applications/{application}/"
        for path in _REST:
            keep(api + path, self.out / "rest")
        stages = json.loads(urllib3.request("GET", api + "stages").data)
        for stage in stages:
            keep(f"{api}stages/{stage['stageId']}/{stage['attemptId']}/taskList?length=999", self.out / "rest")
        keep(f"{root}/api/v1/applications", self.out / "rest")


def keep(url: str, directory: Path) -> str:
    """The text of a page, which is kept in a file under its own address."""
    directory.mkdir(exist_ok=True)
    text = urllib3.request("GET", url).data.decode(errors="replace")
    name = re.sub(r"\W+", "-", url.partition("://")[2].partition("/")[2])[:120]
    (directory / f"{len(list(directory.iterdir())):03d}-{name}.txt").write_text(f"{url}\n{text}")
    return text


def say(*parts: object) -> None:
    print(*parts, flush=True)


def attempt(name: str, action: Callable[..., object], *arguments: str, **options: str) -> None:
    """Do it, and print how it went, as a user would see it."""
    say(f"== {name}")
    try:
        action(*arguments, **options)
        say(f"== {name}: done")
    except Exception as error:
        say(f"== {name}: failed", error)


def main() -> None:
    facts = json.loads(Path(sys.argv[1]).read_text())
    out = Path(facts["out"])
    (out / "events").mkdir()
    settings = {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": " ".join(QUICK),
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.task.maxFailures": "2",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{out / 'events'}",
        "spark.python.worker.faulthandler.enabled": "true",
        f"spark.{MARKER}": MARKER,
        f"spark.executorEnv.SPARK_EXECUTOR_ATTRIBUTE_{MARKER.upper()}": MARKER,
        **{
            f"spark.executorEnv.{name}": os.environ[name]
            for name in os.environ
            if name.startswith(("LAKE_", "HISTORY_"))
        },
    }
    if tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 3):
        settings["spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled"] = "true"
    with job_session("history", master="local-cluster[1,2,512]", settings=settings) as session:
        spark = session.spark
        assert session.log is not None
        os.link(session.log, out / "driver.log")
        spark.sparkContext.setLogLevel("INFO")
        register(spark)
        does = Driver(spark, facts)
        broken, mine = f"{MARKER}-broken", "history_keys:"
        bucket = f"s3://{facts['bucket']}/target"
        for name, credentials in (("env", "env:LAKE_SECRET"), ("module", f"{mine}keys")):
            attempt(f"backfill {name}", does.backfill, MARKER, f"{bucket}-{name}", credentials)
            attempt(f"read {name}", does.read, credentials, name)
            attempt(f"stream {name}", does.stream, MARKER, credentials, name)
        attempt("read of damage", does.count, broken, "env:LAKE_SECRET")
        attempt("backfill into a directory", does.backfill, MARKER, str(out / "target"), f"{mine}keys")
        attempt("backfill of damage", does.backfill, broken, str(out / "damaged"), "env:LAKE_SECRET")
        attempt("backfill refused", does.backfill, MARKER, str(out / "refused"), f"{mine}refused")
        attempt("stream of damage", does.stream, broken, f"{mine}keys", "damaged")
        for bad in ("denied", "refused"):
            attempt(f"stream {bad}", does.stream, MARKER, mine + bad, bad)
        for bad in ("denied", "refused", "fails", "nonsense", "crashes"):
            attempt(f"read {bad}", does.count, MARKER, mine + bad)
        attempt("live env", does.live, "live_env", **{"kafka.sasl.password": "env:LAKE_SECRET_SASL_PASSWORD"})
        attempt("live module", does.live, "live_module", brokerCredentials=f"{mine}broker_keys")
        for bad in ("refused", "fails"):
            attempt(f"live {bad}", does.live, f"live_{bad}", brokerCredentials=f"{mine}broker_{bad}")
        attempt("read of what vanished", does.vanish)
        does.crawl()


if __name__ == "__main__":
    main()
