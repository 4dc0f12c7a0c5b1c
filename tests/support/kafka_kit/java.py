"""Kafka's own Java clients: the consumer whose records are the truth, and the console consumer as people run it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from kafka_kit.clients import Received
from kafka_kit.jars import BROKER, fetch_jars
from kafka_kit.node import SMALL_JVM, java_command
from servers.process import NotAvailableError, dies_with_us

from spark_jobs.java import find_java_home

_SOURCE = Path(__file__).with_name("Reader.java")
_CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_MODEST_JVM = ("-Xmx192m", *SMALL_JVM[1:])
_APPEND_TIME = 1


class JavaReader:
    """A process that reads topics with the Java consumer, one after the other.

    Args:
        process: runs ``Reader.java``.
        directory: for what it reads.
    """

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self._process = process
        self._out = directory / "records.json"
        self._log = directory / "reader.log"

    def read(
        self,
        bootstrap: str,
        topic: str,
        *,
        isolation: str = "read_committed",
        settings: Mapping[str, str] | None = None,
    ) -> list[Received]:
        """All records of the topic that the consumer gives now, by partition and offset.

        Raises:
            RuntimeError: it was refused them.
        """
        given = {"bootstrap.servers": bootstrap, "isolation.level": isolation, **(settings or {})}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"topic": topic, "out": str(self._out), "settings": given}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": self._log.read_text(errors="replace")[-2000:]}
        if "error" in answer:
            raise RuntimeError(f"the Java consumer cannot read {topic}: {answer['error']}")
        with self._out.open() as rows:
            found = [_received(*json.loads(row)) for row in rows]
        assert len(found) == answer["records"]
        return found


@contextlib.contextmanager
def java_reader(directory: Path) -> Iterator[JavaReader]:
    """A Java consumer at hand until the block ends.

    Raises:
        NotAvailableError: the jars or Java's compiler cannot be had on this machine.
    """
    jars = fetch_jars(BROKER)
    compiler = find_java_home(os.environ) / "bin" / "javac"
    if not (compiler.exists() or shutil.which("javac")):
        raise NotAvailableError("the Java consumer is driven by a program in Java, and this Java has no compiler")
    command = java_command(jars, _MODEST_JVM, str(_SOURCE))
    with (directory / "reader.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            preexec_fn=dies_with_us,
        )
    try:
        yield JavaReader(process, directory)
    finally:
        process.kill()
        process.communicate()  # closes its pipes, too


def console_consumer(bootstrap: str, topic: str, *arguments: str, count: int) -> list[str]:
    """The lines that ``kafka-console-consumer`` prints of the first records of a topic.

    Raises:
        RuntimeError: it ended otherwise, or gave fewer; with what it said.
    """
    wanted = ("--bootstrap-server", bootstrap, "--topic", topic, "--max-messages", str(count), "--timeout-ms", "60000")
    command = java_command(fetch_jars(BROKER), _MODEST_JVM, _CONSOLE, *wanted, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, preexec_fn=dies_with_us)
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != count:
        raise RuntimeError(f"{len(lines)} of {count} lines, exit {done.returncode}:\n{done.stderr[-2000:]}")
    return lines


def _received(
    partition: int,
    offset: int,
    key: str | None,
    value: str | None,
    timestamp_ms: int,
    timestamp_type: int,
    headers: list[tuple[str, str | None]],
) -> Received:
    return Received(
        partition=partition,
        offset=offset,
        key=_bytes(key),
        value=_bytes(value),
        timestamp_ms=timestamp_ms,
        is_log_append_time=timestamp_type == _APPEND_TIME,
        headers=tuple((name, _bytes(one)) for name, one in headers),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
