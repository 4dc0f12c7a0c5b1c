"""What a release needs is there before anybody tags one; ``make release`` builds and tries it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))


def test_every_python_that_a_classifier_names_gets_a_wheel() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    built = PROJECT["tool"]["cibuildwheel"]["build"]

    assert [f"cp{version.replace('.', '')}-*" for version in named] == built
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"


def test_the_changelog_has_the_version_that_would_be_released() -> None:
    assert f"## {PROJECT['project']['version']}" in (ROOT / "CHANGELOG.md").read_text()


def test_what_runs_at_every_push_is_what_a_change_must_pass() -> None:
    steps = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["run"]["steps"]

    assert [one["run"] for one in steps if "run" in one] == ["bash .ci/run"]


def test_no_workflow_publishes() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text()
        assert "twine upload" not in text
        assert "pypi-publish" not in text
        assert yaml.safe_load(text)["permissions"] == {"contents": "read"}, path.name


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_every_form_for_a_bug_asks_for_the_version(path: Path) -> None:
    fields = {one.get("id") for one in yaml.safe_load(path.read_text())["body"]}

    assert path.stem == "idea" or {"version", "command"} <= fields
