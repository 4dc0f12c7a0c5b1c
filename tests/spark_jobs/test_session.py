"""Where a program's tasks run, by what it is told: no Spark is started here."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException, PySparkImportError
from servers.process import free_port

from segreader.errors import OptionError
from spark_jobs.session import SETTINGS, describe_job, job_session


class Conf:
    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        if key == "spark.python.unix.domain.socket.enabled":
            raise PySparkException("Cannot modify the value of a static config")
        self.values[key] = value


class Remote:
    """A session of Spark Connect, and what it was asked for."""

    def __init__(self) -> None:
        self.conf = Conf()
        self.asked: list[tuple[str, Any]] = []
        self.is_stopped = False
        self.failure: Exception | None = None

    def getActiveSession(self) -> None:
        return None

    @property
    def builder(self) -> Remote:
        return self

    def remote(self, url: str) -> Remote:
        self.asked.append(("remote", url))
        return self

    def appName(self, name: str) -> Remote:
        self.asked.append(("name", name))
        return self

    def getOrCreate(self) -> Remote:
        if self.failure is not None:
            raise self.failure
        return self

    def stop(self) -> None:
        self.is_stopped = True

    @property
    def sparkContext(self) -> Any:
        raise PySparkException("Attribute `sparkContext` is not supported in Spark Connect")


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Remote:
    remote = Remote()
    monkeypatch.setattr("spark_jobs.session.SparkSession", remote)
    for name in ("SPARK_REMOTE", "grpc_proxy", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    return remote


@pytest.fixture
def server() -> Iterator[str]:
    """The URL of something that listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"sc://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("by_variable", [True, False])
def test_a_url_of_spark_connect_makes_a_client(
    remote: Remote, server: str, by_variable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_variable:
        monkeypatch.setenv("SPARK_REMOTE", server)
    with job_session("job", master=None if by_variable else server, settings={"a": "b"}) as session:
        assert session.spark is remote  # type: ignore[comparison-overlap]
        assert session.log is None
        describe_job(session.spark, "what runs next")
        assert not remote.is_stopped
    assert remote.is_stopped
    assert remote.asked == [("remote", server), ("name", "job")]
    # What only the start of a JVM could set is left as the server has it.
    assert set(remote.conf.values) == {*SETTINGS, "a"} - {"spark.python.unix.domain.socket.enabled"}


@pytest.mark.parametrize(
    ("master", "variable", "message"),
    [
        ("local[2]", "sc://host:15002/;token=canary-4711", "name two places to run; found --master local"),
        (None, "local[2]", "is no URL of a server; found local"),
        (None, "host;token=canary-4711", "is no URL of a server; found host, expected sc://host:port"),
    ],
)
def test_what_contradicts_itself_is_refused_without_its_token(
    remote: Remote, master: str | None, variable: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", variable)
    with pytest.raises(OptionError, match=message) as caught, job_session("job", master=master):
        pass
    assert "canary" not in str(caught.value)
    assert remote.asked == []


def test_a_server_that_is_not_there_is_told_at_once(
    remote: Remote, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = f"sc://127.0.0.1:{free_port()}/;token=canary-4711"
    message = r"127\.0\.0\.1:\d+: no server of Spark Connect answers"
    with pytest.raises(OptionError, match=message) as caught, job_session("job", master=closed):
        pass
    assert "canary" not in str(caught.value)
    monkeypatch.setenv("grpc_proxy", "http://proxy:3128")  # who knows what answers behind it
    with job_session("job", master=closed) as session:
        assert session.spark is remote  # type: ignore[comparison-overlap]


def test_a_client_that_is_not_installed_is_said_so(remote: Remote, server: str) -> None:
    remote.failure = PySparkImportError("grpcio must be installed")
    message = r"grpcio must be installed.*pip install 'pyspark\[connect\]'"
    with pytest.raises(OptionError, match=message), job_session("job", master=server):
        pass
