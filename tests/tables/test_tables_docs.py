"""The code of docs/tables.md runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
SHELL = [line for line in TEXT.splitlines() if line.startswith("segreader sql") and "s3://" not in line]


@pytest.mark.parametrize("code", BLOCKS)
def test_the_python_of_the_page_runs(code: str) -> None:
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("command", SHELL)
def test_the_commands_of_the_page_run(command: str) -> None:
    ours = command.replace("segreader sql", f"{sys.executable} -m segreader.cli.main sql", 1)
    done = subprocess.run(
        ours, shell=True, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("records") == 4
