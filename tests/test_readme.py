"""The README's code runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
PYTHON = [code for language, code in BLOCKS if language == "python" and "register(spark)" not in code]
SHELL = [
    line for language, code in BLOCKS if language == "sh" for line in code.splitlines() if line.startswith("segreader")
]


def run(command: list[str] | str) -> subprocess.CompletedProcess[bytes]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=ROOT,
        shell=isinstance(command, str),
        executable="/bin/bash" if isinstance(command, str) else None,
        capture_output=True,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize("code", PYTHON)
def test_the_python_of_the_readme_runs(code: str) -> None:
    done = run([sys.executable, "-c", code])
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert done.stdout


@pytest.mark.parametrize("command", SHELL)
def test_the_commands_of_the_readme_run(command: str, tmp_path: Path) -> None:
    done = run(command.replace("part.parquet", str(tmp_path / "part.parquet")))
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert done.stdout or (tmp_path / "part.parquet").stat().st_size


def test_the_readme_begins_with_the_two_commands() -> None:
    language, code = BLOCKS[0]
    assert (language, [line.split("#")[0].strip() for line in code.splitlines()]) == ("sh", ["make demo", "make test"])
    assert len(PYTHON) == 2
    assert len(SHELL) == 4
