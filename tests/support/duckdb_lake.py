"""DuckDB with the extensions that read tables, as a process of its own.

The extensions come in wheels, for one version of DuckDB, which need not be the one beside these tests. They are fetched
once into a directory that all test runs of this user share, and read from there: nothing is installed into DuckDB.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kafka_kit.jars import cache
from servers.process import NotAvailableError, dies_with_us
from servers.s3 import REGION, S3Server

VERSION = "1.5.5"
EXTENSIONS = ("avro", "httpfs", "iceberg", "delta")
_ZONES = "pytz==2025.2"
_FETCH_S = 300  # without which DuckDB gives Python no times with a zone
_PROGRAM = """
import os, pickle, sys
answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # DuckDB draws a bar where a query takes long
import duckdb

connection = duckdb.connect(config={"autoinstall_known_extensions": False, "threads": 2})
for path in sys.argv[1:]:
    connection.execute(f"LOAD '{path}'")
connection.execute("SET TimeZone = 'America/New_York'")
while True:
    try:
        query, values = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    try:
        told = True, connection.execute(query, values).fetchall()
    except duckdb.Error as error:
        told = False, f"{type(error).__name__}: {error}"
    pickle.dump(told, answers)
    answers.flush()
"""


class DuckDB:
    """A connection in another process.

    Args:
        process: it answers a query that it reads with one value that it writes.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query with ``?`` in it.

        Raises:
            RuntimeError: DuckDB refuses, with its words.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((query, values), self._process.stdin)
        self._process.stdin.flush()
        is_answer, told = pickle.load(self._process.stdout)
        if not is_answer:
            raise RuntimeError(told)
        found: list[tuple[Any, ...]] = told
        return found

    def column(self, query: str, *values: Any) -> list[Any]:
        """The first column of a query."""
        return [row[0] for row in self.rows(query, *values)]

    def may_read(self, server: S3Server) -> None:
        """Give it the key pair of a server."""
        host = server.endpoint.removeprefix("http://")
        self.rows(
            f"CREATE OR REPLACE SECRET stores (TYPE s3, KEY_ID '{server.key}', SECRET '{server.secret}', "
            f"REGION '{REGION}', ENDPOINT '{host}', URL_STYLE 'path', USE_SSL false)"
        )


@contextlib.contextmanager
def started(packages: Path) -> Iterator[DuckDB]:
    """A DuckDB of these packages, until the block ends."""
    files = [
        str(packages / f"duckdb_extension_{name}" / "extensions" / f"v{VERSION}" / f"{name}.duckdb_extension")
        for name in EXTENSIONS
    ]
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    line = [sys.executable, "-S", "-P", "-c", _PROGRAM, *files]  # -S: not the DuckDB beside the tests
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, preexec_fn=dies_with_us
    ) as process:
        try:
            yield DuckDB(process)
        finally:
            process.kill()


def fetch_packages() -> Path:
    """The directory that DuckDB and its extensions are in; fetched at first use, whoever else does so at the time.

    Raises:
        NotAvailableError: there are none for this machine, or the package index cannot be reached.
    """
    place = cache() / f"duckdb-{VERSION}-{sys.implementation.cache_tag}"
    if place.is_dir():
        return place
    wanted = [f"duckdb=={VERSION}", _ZONES, *(f"duckdb-extension-{name}=={VERSION}" for name in EXTENSIONS)]
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f"{place.name}.") as parts:
        made = Path(parts) / "packages"
        _install(wanted, made)
        try:
            os.rename(made, place)
        except OSError:
            if not place.is_dir():
                raise  # else another process was first, with the same packages
    return place


def _install(wanted: Sequence[str], place: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--retries", "1", "--target", str(place), *wanted]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_S)
    except (subprocess.SubprocessError, OSError) as error:
        raise NotAvailableError(f"DuckDB's extensions cannot be fetched: {error}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise NotAvailableError(f"DuckDB's extensions cannot be fetched: {last}")
