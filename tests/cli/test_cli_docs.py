"""The pages of the commands list the names that come out, all of them and no others."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from corpus import FIXTURES, case
from pages import CLI, documented, names, page

from segreader.cli.exit_codes import ExitCode
from segreader.cli.file_rows import FileKind
from segreader.cli.main import main
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.records import ProducerRecord

TEXT = page(*CLI)
OF_CONTROL = ("leader_change", "snapshot_header", "snapshot_footer", "kraft_version", "kraft_voters")
CONTROL_RECORDS = "control_records_of_other_types"


@pytest.fixture
def out(capsysbinary: pytest.CaptureFixture[bytes]) -> Any:
    def run(*arguments: object) -> list[dict[str, Any]]:
        main([*map(str, arguments)])
        return [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]

    return run


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A partition in which everything occurs that a row may have a name for."""
    built = SegmentBuilder()
    built.message_set([b"\xff"], magic=1)
    built.batch([ProducerRecord(b"\xff", b"\xff", headers=(("h", b"\xff"),))], producer_id=1, transactional=True)
    built.control(9, b"").marker(1, abort=True).batch([b"open"], producer_id=1, transactional=True)
    built.raw(built.to_bytes()[:30])
    return write_local_tiered(tmp_path, "t", [built])


def test_rows_of_cat(out: Any, log: Path) -> None:
    rows = out("cat", log.parent, "--isolation", "read_uncommitted")

    assert {name for row in rows for name in names(row)} == set(documented("## `segreader cat`"))


def test_columns_of_csv(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["cat", str(log.parent), "-o", "csv"])
    columns = next(csv.reader(io.StringIO(capsys.readouterr().out)))

    sentence = TEXT[TEXT.index("`csv` has the columns") :].split(". ", 1)[0]
    assert columns == re.findall("`([^`]+)`", sentence)[1:]


def test_rows_of_dump(out: Any, log: Path) -> None:
    broken = FIXTURES / "corrupt" / "CorruptRecordError-second-record.log"
    rows = [row for path in sorted([*log.iterdir(), broken]) for row in out("dump", path, "--records")]
    seen: dict[str, set[str]] = {}
    for row in rows:
        seen.setdefault(row["kind"], set()).update(row)
    seen["record"].update(OF_CONTROL)

    for kind in ("file", "batch", "record", "damage", "end"):
        assert seen[kind] == set(documented(f"\n`{kind}`: ")), kind


def test_each_known_control_record_has_its_own_field(out: Any) -> None:
    logs = sorted((FIXTURES / "segments" / CONTROL_RECORDS).rglob("*.log"))
    found = {name for path in logs for row in out("dump", path, "--records") for name in row}

    assert logs
    assert found & set(OF_CONTROL)


def test_entries_of_the_files_beside_a_log(out: Any) -> None:
    table = TEXT[TEXT.index("| file | fields besides `kind` |") :].split("\n\n", 1)[0]
    promised = {
        name: re.findall("`([^`]+)`", fields) for name, fields in re.findall(r"^\| ([a-z-]+) \| (`.*) \|$", table, re.M)
    }
    folders = (case("tv2", "txn-interleaved").remote[0], case("tv2", "txn-interleaved").local[0])
    seen: dict[str, list[str]] = {}
    for path in sorted(path for folder in folders for path in folder.iterdir() if path.suffix != ".log"):
        head, *rows = out("dump", path)
        for row in rows[:-1]:
            seen[head["type"]] = [name for name in row if name != "kind"]

    assert seen == promised
    assert set(seen) == set(FileKind) - {"log"}


def test_rows_of_inspect(out: Any, log: Path) -> None:
    found: set[str] = set()
    for row in out("inspect", log.parent):
        for name in ("magics", "timestamp_types"):
            row[name] = None
        found.update(names(row))

    assert found == set(documented("## `segreader inspect`"))


def test_rows_of_ls(out: Any, log: Path) -> None:
    (log / "unknown").touch()

    for arguments, after in (
        ([], "Without a topic there is one"),
        (["t"], "With a topic, one for each partition"),
        (["t/0", "--all"], "With a partition ("),
    ):
        found = {name for row in out("ls", log.parent, *arguments) for name in names(row)}
        expected = {name for name in documented(after) if not name.startswith("dropped[]")}  # see the next test
        assert found == expected, after


def test_a_dropped_part_in_ls_and_a_plan_have_all_names(out: Any) -> None:
    diverged = case("cluster", "diverged-txn")
    rows = out("ls", diverged.remote_root, "diverged-txn/0")
    (plan,) = out("plan", diverged.remote_root, "diverged-txn")
    plan["partitions"][0]["gaps"].append({"start_offset": 0, "stop_offset": 1, "held_back": None})

    assert {name for row in rows for name in names(row)} == set(documented("With a partition ("))
    assert set(names(plan)) == set(documented("## `segreader plan`"))


def test_facts_of_version(out: Any) -> None:
    assert list(out("version")[0]) == documented("## `segreader version`")


def test_exit_codes() -> None:
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)} == set(ExitCode)


@pytest.mark.parametrize("verb", ["cat", "dump", "inspect", "ls", "offsets", "plan", "verify"])
def test_the_options_named_there_are_those_of_the_command(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([verb, "--help"])
    option = re.compile("--[a-z][a-z-]*")
    shown = set(option.findall(capsys.readouterr().out))
    section = TEXT[TEXT.index(f"## `segreader {verb}`") :].split("\n## ", 1)[0]

    assert set(option.findall(section)) <= shown
    assert shown <= set(option.findall(TEXT))
