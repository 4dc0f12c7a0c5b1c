"""Programs from Maven Central, fetched once into a directory that all test runs of this user share.

``SEGREADER_TEST_CACHE`` names the directory; otherwise it is ``segreader-tests`` below the user's cache directory.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from servers.process import NotAvailableError

_HERE = Path(__file__).parent
BROKER = _HERE / "broker.xml"
CONNECTOR = _HERE / "connector.xml"
_FETCH_S = 400


def fetch_jars(pom: Path) -> Path:
    """The directory that holds the dependencies of a POM; fetched at first use, whoever else does so at the time.

    Raises:
        NotAvailableError: Maven is not installed, or cannot reach a repository.
    """
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    place = cache() / f"{pom.stem}-{digest}"
    if not place.is_dir():
        mvn = shutil.which("mvn")
        if mvn is None:
            raise NotAvailableError("Apache Kafka comes from Maven Central, and mvn is not installed")
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f"{place.name}.") as parts:
            _copy_dependencies(mvn, pom, Path(parts) / "jars")
            try:
                os.rename(Path(parts) / "jars", place)
            except OSError:
                if not place.is_dir():
                    raise  # else another process was first, with the same jars
    return place


def _copy_dependencies(mvn: str, pom: Path, place: Path) -> None:
    goal = ("dependency:copy-dependencies", f"-DoutputDirectory={place}")
    command = [mvn, "-B", "-q", "-Dstyle.color=never", "-f", str(pom), *goal]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_S)
    except (subprocess.SubprocessError, OSError) as error:
        raise NotAvailableError(f"Maven could not fetch {pom.name}: {error}") from error
    if done.returncode:
        errors = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise NotAvailableError(f"Maven could not fetch {pom.name}: {errors[0] if errors else done.stdout[-500:]}")


def cache() -> Path:
    """The directory that all test runs of this user share."""
    if named := os.environ.get("SEGREADER_TEST_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "segreader-tests"
