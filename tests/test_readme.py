"""The README's code runs as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest
from corpus import case, normal
from servers.objects import tiered_topics
from servers.pool import ServerPool

import segreader
from segreader.catalog.layouts.registry import all_layouts

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
PYTHON = [code for language, code in BLOCKS if language == "python" and "register(spark)" not in code]
SHELL = [
    line
    for language, code in BLOCKS
    if language == "sh" and "STORE_" not in code
    for line in code.splitlines()
    if line.startswith("segreader") and not line.startswith("segreader gateway")
]
TOLD = {
    "segreader verify fixtures/corpus/tv2/remote txn-span --deep": "0 errors, 0 warnings, 0 info",
    "segreader cat fixtures/corpus/tv2/remote txn-marker-active": "ends at offset 11, the last stable one",
}
"""What two commands say on stderr; the others say nothing there."""

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
    told = TOLD.get(command.split("#")[0].strip())
    said = done.stderr.decode()
    assert done.returncode == 0
    assert said == "" if told is None else told in said
    if "part.parquet" in command:
        assert (tmp_path / "part.parquet").stat().st_size
    else:
        assert done.stdout or command.startswith("segreader verify")


def test_the_log_directory_beside_the_remote_tier_gives_what_the_readme_says() -> None:
    beside = [command for command in SHELL if "txn-marker-active" in command]
    records = [len(run(command).stdout.splitlines()) for command in beside]
    assert records == [10, len(case("tv2", "txn-marker-active").truth("committed"))]


def test_the_readme_has_every_layout_and_says_which_are_experimental() -> None:
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)`( \(experimental\))? \|", README, re.MULTILINE))
    known = {layout.name: layout.is_experimental for layout in all_layouts()}
    assert {name: bool(mark) for name, mark in rows.items() if name in known} == known


def test_the_index_of_layouts_has_them_in_the_order_in_which_they_are_tried() -> None:
    index = (ROOT / "docs" / "reference" / "layouts" / "README.md").read_text()
    rows = re.findall(r"^\| \[`([a-z0-9-]+)`\]\(\1\.md\)(, experimental)? \|", index, re.MULTILINE)
    assert [(name, bool(mark)) for name, mark in rows] == [(one.name, one.is_experimental) for one in all_layouts()]


def test_every_argument_of_scan_stands_in_the_options() -> None:
    text = (ROOT / "docs" / "reference" / "options.md").read_text().split("## Live topics")[0]
    rows = re.findall(r"^\| (`[^|]+?)[|:]", text, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(signature(segreader.scan).parameters)


def test_the_readme_begins_with_the_two_commands() -> None:
    language, code = BLOCKS[0]
    assert (language, [line.split("#")[0].strip() for line in code.splitlines()]) == ("sh", ["make demo", "make test"])
    assert len(PYTHON) == 3
    assert len(SHELL) == 11
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
