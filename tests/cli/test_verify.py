"""``segreader verify``: what it prints, how it ends, and that its pages know every code and field."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from corpus import case
from pages import page
from planted import TOPIC, TOPIC_ID, Planted

from segreader.cli.exit_codes import ExitCode
from segreader.cli.main import main
from segreader.evidence.rules import RULES, Code
from segreader.testing.directory import local_tiered_files, write_files

TV2 = case("tv2", "multi").remote_root


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes]) -> Any:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = main(["verify", *map(str, arguments)])
        out, err = capsysbinary.readouterr()
        return code, out.decode(), err.decode()

    return run


@pytest.fixture
def damaged(tmp_path: Path) -> Planted:
    """A partition with two defects, beside a sound one."""
    planted = Planted(tmp_path)
    planted.remove(0, "index")
    data = planted.data(1, "log")
    data[100] ^= 1
    planted.put(1, "log", data)
    planted.files |= local_tiered_files("sound", planted.segments)
    write_files(tmp_path, planted.files)
    return planted


def test_a_sound_location_has_exit_code_0(run: Any) -> None:
    code, out, err = run(TV2, "--deep", "-o", "json")

    (checked,) = json.loads(out)
    assert code == ExitCode.OK
    assert checked == {
        "kind": "checked",
        "topics": 34,
        "partitions": 37,
        "segments": 125,
        "size": sum(path.stat().st_size for path in TV2.rglob("*.log")),
        "depth": "deep",
        "errors": 0,
        "warnings": 0,
        "info": 3,
    }
    assert err == (
        "0 errors, 0 warnings, 3 info (shown with --all); "
        "checked 34 topics, 37 partitions, 125 segments, 3.9 MiB; every byte was read\n"
    )


def test_what_was_checked_is_what_was_asked_for(run: Any) -> None:
    code, out, err = run(TV2, "multi/1", "-o", "ndjson")

    checked = json.loads(out.splitlines()[-1])
    assert code == ExitCode.OK
    assert (checked["topics"], checked["partitions"], checked["segments"], checked["depth"]) == (1, 1, 3, "shallow")
    assert "; checked 1 topic, 1 partition, 3 segments, 429.5 KiB; logs were not read: --deep does\n" in err
    fields = page("reference/cli").split("The last object says what was checked:\n", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^\| `([^`]+)` \|", fields, re.MULTILINE) == list(checked)


def test_info_is_shown_when_it_is_asked_for_and_changes_no_exit_code(run: Any) -> None:
    code, out, _ = run(TV2, "--all", "-o", "ndjson")

    assert code == ExitCode.OK
    assert {json.loads(line)["severity"] for line in out.splitlines()[:-1]} == {"info"}


def test_findings_have_exit_code_1_and_the_documented_fields(run: Any, damaged: Planted) -> None:
    code, out, err = run(damaged.root, "--deep", "-o", "json")

    first, second, checked = json.loads(out)
    assert (checked["errors"], checked["warnings"], checked["info"]) == (1, 1, 0)
    assert code == ExitCode.FINDINGS
    assert (first["code"], second["code"]) == ("missing-offset-index", "crc-mismatch")
    assert (second["severity"], second["topic"], second["partition"], second["topic_id"]) == (
        "error",
        TOPIC,
        0,
        TOPIC_ID,
    )
    assert second["object"].endswith(damaged.name(1, "log"))
    assert second["position"] in damaged.segments[1].batch_positions
    assert err.startswith("1 error, 1 warning, 0 info; checked 2 topics, 2 partitions, ")
    section = page("reference/cli").split("## `segreader verify`", 1)[1].split("\n## ", 1)[0]
    fields = section.split("| field | type | meaning |\n", 2)[1]
    assert re.findall(r"^\| `([^`]+)` \|", fields, re.MULTILINE) == list(first)


def test_what_needs_the_logs_is_found_with_deep_only(run: Any, damaged: Planted) -> None:
    code, out, err = run(damaged.root, "-o", "ndjson")

    assert code == ExitCode.FINDINGS
    assert [json.loads(line).get("code") for line in out.splitlines()] == ["missing-offset-index", None]
    assert "--deep" in err


def test_a_table_names_objects_from_the_location_on_and_says_what_to_do(run: Any, damaged: Planted) -> None:
    _, out, _ = run(damaged.root, TOPIC, "-o", "table")

    assert "missing-offset-index" in out
    assert str(damaged.root) not in out
    assert RULES[Code.MISSING_OFFSET_INDEX].action[:40] in out


def test_only_what_is_asked_for_is_verified(run: Any, damaged: Planted) -> None:
    assert run(damaged.root, "sound", "--deep")[0] == ExitCode.OK
    assert run(damaged.root, f"{TOPIC}/0")[0] == ExitCode.FINDINGS


@pytest.mark.parametrize("form", ["json", "ndjson"])
def test_a_name_that_is_not_utf_8_is_escaped(form: str, run: Any, tmp_path: Path) -> None:
    planted = Planted(tmp_path)
    name = f"{next(iter(planted.files)).rpartition('/')[0]}/x\udcff"
    write_files(tmp_path, planted.files | {name: b""})

    code, out, _ = run(tmp_path, "--all", "-o", form)
    found, _ = json.loads(out) if form == "json" else map(json.loads, out.splitlines())
    assert code == ExitCode.FINDINGS
    assert found["object"] == f"{tmp_path}/{name}"


def test_a_partition_that_is_not_there_has_exit_code_3(run: Any, damaged: Planted) -> None:
    assert run(damaged.root, f"{TOPIC}/7")[0] == ExitCode.NOT_FOUND


def test_a_url_cannot_be_verified(run: Any) -> None:
    code, _, err = run("https://bucket.s3.amazonaws.com/00000000000000000000.log?X-Amz-Signature=secret")

    assert code == ExitCode.USAGE
    assert "URL" in err
    assert "secret" not in err


def test_every_code_has_a_rule_and_a_row_in_the_documentation() -> None:
    text = page("reference/findings").split("## Codes", 1)[1]
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \| (.+?) \| (.+) \|$", text, re.MULTILINE)

    assert rows == [(code.value, RULES[code].severity.value, RULES[code].meaning, RULES[code].action) for code in Code]
