"""A Spark session for a program: quiet on one machine, untouched under ``spark-submit``.

Started by plain Python, a program makes its own JVM. Everything that JVM and its workers print then goes to a
log file, because Spark's banner and warnings would bury what the program has to say. Under ``spark-submit``
the JVM is there already and its owner's settings rule. Of a server that speaks Spark Connect (``sc://``) a program is a
client: no JVM is here.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from segreader import errors
from segreader.errors import OptionError, SegreaderError
from spark_jobs.java import find_java_home

LOCAL_MASTER = "local[*,4]"
"""All cores of this machine; four attempts for each task, as on a cluster (``local[*]`` never retries)."""

SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
"""For any master: tasks start sooner (Spark 4.1 and later); a crash of a worker shows its Python stack."""

LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""For one machine: no port is open to others."""


class SparkFailedError(Exception):
    """Spark, its JVM or its server failed: what it was, and where Spark's own output is, without a full stop."""


SPARK_ERRORS = (SparkFailedError, PySparkException, Py4JError, ConnectionRefusedError, ConnectionResetError)
"""What Spark raises. When its JVM was killed, every further call is refused."""

_LAST = 1 << 20
_CONNECT = "sc://"
_CONNECT_PORT = 15002
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")


@dataclass(frozen=True, slots=True)
class JobSession:
    """A session, and where its failures can be looked up.

    Args:
        log: the file that Spark's own output goes to if this process started the JVM.
        server: ``host:port`` of the server of Spark Connect whose client this is.
    """

    spark: SparkSession
    log: Path | None = None
    server: str | None = None


@contextmanager
def job_session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[JobSession]:
    """A session for the time of the block; one that was there before stays.

    The log file is deleted when the block ends well or with an error of this library, and kept otherwise.

    Args:
        name: of the application.
        master: where to run; by default what ``spark-submit`` or the variable ``SPARK_REMOTE`` says, else this machine.
            ``sc://…`` is the URL of a server of Spark Connect, and may hold a token.
        settings: Spark's, on top of ``SETTINGS``; those that are fixed when a JVM starts have no effect on a server.

    Raises:
        OptionError: ``SPARK_REMOTE`` contradicts the master, nothing answers there, or Spark Connect's client is not
            installed.
        ObjectNotFoundError: there is no Java that Spark can use.
        SparkFailedError: Spark's JVM does not start.
    """
    if (running := SparkSession.getActiveSession()) is not None:
        yield JobSession(running)
        return
    wanted = {**SETTINGS, **(settings or {})}
    if (remote := _remote(master)) is not None:
        spark = _connect(remote, name, wanted)
        try:
            yield JobSession(spark, server=_place(remote))
        finally:
            with suppress(*SPARK_ERRORS):  # a server that has gone holds no session
                spark.stop()
        return
    log = None
    if not _has_jvm():
        master = master or LOCAL_MASTER
        if master.startswith("local"):
            wanted = {**LOCAL_SETTINGS, **wanted}
        log = _log_file()
    builder = SparkSession.builder.appName(name).config(map=dict(wanted))
    if master is not None:
        builder = builder.master(master)
    spark = _launch(builder, log) if log is not None else builder.getOrCreate()
    is_explained = False
    try:
        yield JobSession(spark, log)
        is_explained = True
    except SegreaderError:
        is_explained = True
        raise
    finally:
        with suppress(*SPARK_ERRORS):  # a JVM that was killed has stopped; the error of the block says more
            spark.stop()
        if log is not None and is_explained:
            log.unlink(missing_ok=True)


@contextmanager
def explained(session: JobSession) -> Iterator[None]:
    """Raise Spark's error as the one of ours that a task raised, where there is one.

    Raises:
        SegreaderError: of a task or the planner.
        SparkFailedError: anything else that Spark raised, in one line.
    """
    try:
        yield
    except SPARK_ERRORS as error:
        if (told := told_by_a_task(error)) is not None:
            raise told from error
        raise SparkFailedError(_failure(error, session)) from error


def told_by_a_task(error: Exception) -> SegreaderError | None:
    """The error of this library that a task or the planner raised.

    Spark hands it over as text, so only its class, its message and its last sentence, the next step, are left.
    """
    for name, message in reversed(re.findall(r"^segreader\.errors\.(\w+): (.*)$", str(error), re.MULTILINE)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, SegreaderError):
            what, _, step = message.rpartition(". ")
            return kind(what, hint=step) if what else kind(message)
    return None


def map_indexes(
    spark: SparkSession,
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    count: int,
    ddl: str,
    text: str,
) -> DataFrame:
    """What a task makes of the numbers below ``count``, each in a task of its own; ``text`` describes it in the UI."""
    frame = spark.range(0, count, 1, count).mapInArrow(task, ddl)
    describe_job(spark, text)
    return frame


def describe_job(spark: SparkSession, text: str) -> None:
    """Name what runs next in Spark's UI; Spark Connect has no context, and no name then."""
    with suppress(PySparkException):  # of Spark Connect
        spark.sparkContext.setJobDescription(text)


def describe_failure(error: Exception) -> str:
    """What Spark raised, in one line."""
    if isinstance(error, SparkFailedError):
        return str(error)
    if isinstance(error, ConnectionError | Py4JNetworkError):
        return _end_of_the_jvm()
    lines = [line.strip(": \t") for line in str(error).splitlines() if line.strip(": \t")]
    if isinstance(error, Py4JError) and len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        del lines[0]  # the name of an object of Py4J
    return next(iter(lines), type(error).__name__)[:500].rstrip(". ")


def _failure(error: Exception, session: JobSession) -> str:
    """``describe_failure``, with what is known of the JVM or server, and where its own output is."""
    if session.server is not None:
        if (problem := _unanswered(session.server)) is not None:
            return f"the server of Spark Connect at {session.server} is gone ({problem})"
        return f"{describe_failure(error)}; the log of the server of Spark Connect at {session.server} has more"
    what = describe_failure(error)
    if (memory := re.search(r"OutOfMemoryError: ([^\n]*)", f"{error}\n{_text(session.log)}")) is not None:
        what = f"Spark's JVM ran out of memory ({memory[1].strip()}): give it more, as by SPARK_DRIVER_MEMORY=4g"
    return f"{what}; what it printed is in {session.log or 'the log of the driver'}"


def _end_of_the_jvm() -> str:
    """How the JVM has ended, as far as this process can know: it is the parent of one that it started itself."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(5)
            if code == -signal.SIGKILL:
                return "Spark's JVM was killed (signal 9: by somebody, or by the system when memory ran out)"
            return f"Spark's JVM has ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"
    return "Spark's JVM has died, or was killed"


def _text(log: Path | None) -> str:
    """The last MiB of what a JVM printed."""
    try:
        with log.open("rb") if log else open(os.devnull, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _remote(master: str | None) -> str | None:
    """The server of Spark Connect that is to run tasks; ``None`` where Spark runs them otherwise."""
    named = os.environ.get("SPARK_REMOTE")
    if master is not None and not master.startswith(_CONNECT):
        if named:
            raise OptionError(
                "--master and the variable SPARK_REMOTE name two places to run",
                found=f"--master {master}, SPARK_REMOTE {named.partition(';')[0]}",
                hint="Unset SPARK_REMOTE, or leave out --master",
            )
        return None
    if master is None and named and not named.startswith(_CONNECT):
        raise OptionError(
            "SPARK_REMOTE is no URL of a server",
            found=named.partition(";")[0],
            expected=f"{_CONNECT}host:port",
            hint="Unset it to run on this machine",
        )
    return master or named


def _connect(remote: str, name: str, settings: Mapping[str, str]) -> SparkSession:
    """A session of a server. What its JVM was started with is not asked to be changed."""
    _require_answer(remote)
    try:
        session = SparkSession.builder.remote(remote).appName(name).getOrCreate()
    except ImportError as error:
        raise OptionError(
            f"{_CONNECT} needs packages that are not installed: {error}", hint="pip install 'pyspark[connect]'"
        ) from None
    for key, value in settings.items():
        with suppress(PySparkException):  # fixed when the server was started
            session.conf.set(key, value)
    return session


def _require_answer(remote: str) -> None:
    """Raise if nothing listens at a server's URL: its client would try for many minutes, without a word.

    Behind a proxy only the client knows.
    """
    if any(os.environ.get(name) for name in _PROXIES):
        return
    place = _place(remote)
    if (problem := _unanswered(place)) is not None:
        raise OptionError(
            "no server of Spark Connect answers", source=place, found=problem, hint="Check --master or SPARK_REMOTE"
        )


def _place(remote: str) -> str:
    """``host:port`` of a server's URL, which may hold a token."""
    parts = urlsplit(remote)
    return f"{parts.hostname or ''}:{parts.port or _CONNECT_PORT}"


def _unanswered(place: str) -> str | None:
    """Why nothing answers at ``host:port``; ``None`` if something does."""
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        return str(error)
    return None


def _has_jvm() -> bool:
    """Whether ``spark-submit`` or earlier code of this process has started the JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._gateway is not None


def _log_file() -> Path:
    handle, name = tempfile.mkstemp(prefix="segreader-spark-", suffix=".log")
    os.close(handle)
    return Path(name)


def _launch(builder: SparkSession.Builder, log: Path) -> SparkSession:
    """Start the JVM; it inherits this environment, and the log file as its stderr.

    Raises:
        SparkFailedError: it does not start; the log file says more.
    """
    try:
        os.environ["JAVA_HOME"] = str(find_java_home(os.environ))
    except SegreaderError:
        log.unlink(missing_ok=True)
        raise
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        with _stderr_to(log):
            spark = builder.getOrCreate()
    except SPARK_ERRORS as error:
        what = _first_complaint(_text(log)) or describe_failure(error)
        raise SparkFailedError(f"Spark's JVM did not start: {what}; what it printed is in {log}") from error
    _quieten(spark, log)
    return spark


def _first_complaint(printed: str) -> str | None:
    """What a JVM says first of why it does not start: of its arguments, its classes, or an address."""
    found = re.search(r"^(?:Error: |Exception in thread .*?: |\S*(?:Exception|Error): )(.*)$", printed, re.MULTILINE)
    return found[0].removeprefix("Error: ")[:300].rstrip(". ") if found else None


def _quieten(spark: SparkSession, log: Path) -> None:
    """Let the log have the traceback of the thread that hears the JVM's counts: it ends when the JVM does."""
    server = getattr(spark.sparkContext, "_accumulatorServer", None)

    def tell(*_: object) -> None:
        with suppress(OSError), log.open("a") as file:
            traceback.print_exc(file=file)

    if server is not None:
        server.handle_error = tell


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Let file descriptor 2 be the log file for a while: what a process started meanwhile inherits."""
    sys.stderr.flush()
    ours = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(ours, 2)
        os.close(ours)
