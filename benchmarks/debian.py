"""Programs and libraries out of Debian's packages, unpacked into ``build/debian`` and not installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_CACHE = Path(__file__).parents[1] / "build" / "debian"


class NotAvailableError(Exception):
    """Something to compare with cannot be had on this machine; the text says what and why."""


def unpack(*packages: str) -> Path:
    """The directory that holds the files of these packages, as ``usr/bin/…`` and the like; fetched once.

    Raises:
        NotAvailableError: ``apt-get`` is not here, or cannot fetch them.
    """
    place = _CACHE / packages[0]
    if place.is_dir():
        return place
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise NotAvailableError(f"{packages[0]}: no apt-get is here to fetch it with")
    parts = _CACHE / f"{packages[0]}.parts"
    shutil.rmtree(parts, ignore_errors=True)
    (parts / "deb").mkdir(parents=True)
    try:
        _run(["apt-get", "download", *packages], parts / "deb")
        for package in (parts / "deb").glob("*.deb"):
            _run(["dpkg-deb", "-x", str(package), str(parts / "files")], parts)
    except (subprocess.SubprocessError, OSError) as error:
        raise NotAvailableError(f"{packages[0]}: could not be fetched: {error}") from error
    (parts / "files").rename(place)
    shutil.rmtree(parts)
    return place


def _run(command: list[str], directory: Path) -> None:
    subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=120)
