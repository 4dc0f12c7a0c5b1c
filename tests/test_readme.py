"""The README's code runs as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from corpus import case, normal
from servers.objects import tiered_topics
from servers.pool import ServerPool

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
PYTHON = [code for language, code in BLOCKS if language == "python" and "register(spark)" not in code]
SHELL = [
    line
    for language, code in BLOCKS
    if language == "sh" and "STORE_" not in code
    for line in code.splitlines()
    if line.startswith("segreader")
]
STORES = [line for language, code in BLOCKS if language == "sh" for line in code.splitlines() if "STORE_" in line]


def run(command: list[str] | str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=variables.pop("cwd", str(ROOT)),
        shell=isinstance(command, str),
        executable="/bin/bash" if isinstance(command, str) else None,
        capture_output=True,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **variables},
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
    assert len(STORES) == 3


@pytest.mark.xdist_group("servers")
@pytest.mark.parametrize(("name", "command"), [*zip(("swift", "azurite", "swift"), STORES, strict=True)])
def test_the_commands_for_stores_print_the_records_of_the_corpus(
    servers: ServerPool, tmp_path: Path, name: str, command: str
) -> None:
    server = servers.get(name)
    objects = tiered_topics("txn-span")
    server.upload({f"records/{key}": data for key, data in objects.items()})
    (tmp_path / "urls.txt").write_text("\n".join(server.signed_url(f"records/{key}") for key in objects))
    options = server.storage_options
    variables = {"STORE_HOST": "/".join(server.endpoint.split("/")[:3])}
    for variable, option in (("KEY", "key"), ("SECRET", "secret"), ("CONNECTION", "connection_string")):
        if option in options:
            variables[f"STORE_{variable}"] = options[option]
    if "endpoint_url" in options:
        variables["SEGREADER_STORAGE_ENDPOINT_URL"] = options["endpoint_url"]
    done = run(f"{command} --key-encoding base64 --value-encoding base64", cwd=str(tmp_path), **variables)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    truth = case("tv2", "txn-span").truth("committed")
    assert [normal(json.loads(line)) for line in done.stdout.splitlines()] == truth
