"""README's first screen, its tables and its chart. Its code runs in ``test_docs.py``, like that of every page."""

from __future__ import annotations

import json
import re
from inspect import signature
from pathlib import Path

import pytest
from corpus import case, normal
from pages import ROOT, blocks, generator, page, run
from servers.objects import tiered_topics
from servers.pool import ServerPool

import segreader
from segreader.catalog.layouts.registry import all_layouts

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMAND_LINE = page("how-to/command-line")
STORES = [line for code in blocks(COMMAND_LINE, "bash") for line in code.splitlines() if "STORE_" in line]
LONGEST = 120
MAKE_CHART = generator("make_chart")


def test_the_readme_begins_with_the_two_commands() -> None:
    language, code = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)[0]
    assert (language, [line.split("#")[0].strip() for line in code.splitlines()]) == ("sh", ["make demo", "make test"])


def test_the_readme_is_short_and_has_code_of_each_kind() -> None:
    assert len(README.splitlines()) <= LONGEST
    assert {kind: len(blocks(README, kind)) for kind in ("console", "sh", "python", "py", "bash")} == {
        "console": 1,
        "sh": 4,
        "python": 1,
        "py": 2,
        "bash": 1,
    }


def test_the_readme_has_every_layout_and_says_which_are_experimental() -> None:
    said = README.partition("\nLayouts: ")[2].partition("[All layouts]")[0]
    confirmed, _, experimental = said.partition("Experimental, not yet confirmed with a real bucket: ")
    known = {layout.name: layout.is_experimental for layout in all_layouts()}
    named = {
        name: is_experimental
        for text, is_experimental in ((confirmed, False), (experimental, True))
        for name in re.findall(r"`([a-z0-9-]+)`", text)
    }
    assert named == known


def test_the_chart_is_drawn_from_the_result_that_the_readme_names() -> None:
    found = MAKE_CHART.costs(MAKE_CHART.RESULT.read_text(encoding="utf-8"))
    assert MAKE_CHART.CHART.read_text(encoding="utf-8") == MAKE_CHART.chart(found), "run: make pages"
    assert f"]({MAKE_CHART.RESULT.relative_to(ROOT)})" in README
    ratios = sorted(f"{(one.client + one.broker) / one.segreader:.1f}" for one in found)
    text = MAKE_CHART.RESULT.read_text(encoding="utf-8")
    said = re.search(r"takes ([\d.]+) to ([\d.]+) times less CPU", README)
    assert said is not None
    least, most = said.groups()
    row = text.partition("| ours to Parquet, direct sink")[2].partition("| **ratio, CPU** |")[2].partition("\n")[0]
    medians = [float(number) for number in re.findall(r"([\d.]+)\*{0,2} \(", row)]
    assert (least, most) == (f"{min(medians):.1f}", f"{max(medians):.1f}"), ratios


def test_the_index_of_layouts_has_them_in_the_order_in_which_they_are_tried() -> None:
    index = page("reference/layouts/README")
    rows = re.findall(r"^\| \[`([a-z0-9-]+)`\]\(\1\.md\)(, experimental)? \|", index, re.MULTILINE)
    assert [(name, bool(mark)) for name, mark in rows] == [(one.name, one.is_experimental) for one in all_layouts()]


def test_every_argument_of_scan_stands_in_the_options() -> None:
    text = page("reference/options").split("## Live topics")[0]
    rows = re.findall(r"^\| (`[^|]+?)[|:]", text, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(signature(segreader.scan).parameters)


def test_the_log_directory_beside_the_remote_tier_gives_what_the_page_says() -> None:
    beside = [line for code in blocks(COMMAND_LINE, "sh") for line in code.splitlines() if "txn-marker-active" in line]
    records = [len(run(command).stdout.splitlines()) for command in beside]
    assert records == [10, len(case("tv2", "txn-marker-active").truth("committed"))]


def test_the_page_has_a_command_for_each_kind_of_store() -> None:
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
    done = run(f"{command} --key-encoding base64 --value-encoding base64", tmp_path, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    truth = case("tv2", "txn-span").truth("committed")
    assert [normal(json.loads(line)) for line in done.stdout.splitlines()] == truth


def test_the_tables_of_contributing_are_current() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert generator("make_contributing").page(text) == text, "run: make pages"
