"""``segreader report``: what it writes, what has changed since, and how it ends."""

from __future__ import annotations

import json
import shlex
import shutil
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from pages import DOCS, ROOT, blocks

from segreader.cli.exit_codes import ExitCode
from segreader.cli.main import main

REMOTE = ROOT / "fixtures" / "corpus" / "tv2" / "remote"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: object) -> tuple[int, str]:
        code = main(["report", *map(str, arguments)])
        out, err = capsys.readouterr()
        assert out == ""
        return code, err

    return run


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """Three topics of the corpus, to be changed."""
    for name in ("txn-span-0-*", "nulls-0-*", "multi-1-*"):
        [partition] = REMOTE.rglob(name)
        shutil.copytree(partition, tmp_path / "bucket" / partition.name)
    return tmp_path / "bucket"


def test_a_sound_bucket_has_a_page_and_exit_code_0(run: Any, tmp_path: Path) -> None:
    code, err = run(REMOTE, "-o", tmp_path / "report.html")

    assert code == ExitCode.OK
    assert err == f"{tmp_path}/report.html: 34 topics, 125 segments, 3.9 MiB; 0 errors, 0 warnings\n"
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_a_damaged_bucket_has_exit_code_1(run: Any, bucket: Path, tmp_path: Path) -> None:
    next(bucket.rglob("*.log")).unlink()
    code, err = run(bucket, "-o", tmp_path / "report.html")

    assert code == ExitCode.FINDINGS
    assert "; 1 error, 0 warnings" in err


def test_a_damaged_batch_is_in_the_report_that_reads_every_log(run: Any, bucket: Path, tmp_path: Path) -> None:
    log = next(bucket.glob("multi-1-*/*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    run(bucket, "--json", tmp_path / "deep.json", "--deep")
    given = json.loads((tmp_path / "deep.json").read_text())

    assert given["deep"] is True
    assert "crc-mismatch" in {one["code"] for one in given["findings"]}


def test_the_json_has_every_segment_and_can_be_written_alone(run: Any, tmp_path: Path) -> None:
    run(REMOTE, "--json", tmp_path / "report.json")
    run(REMOTE, "-o", tmp_path / "other.JSON")
    given, other = (json.loads((tmp_path / name).read_text()) for name in ("report.json", "other.JSON"))

    assert (given["format"], given["version"]) == ("segreader-report", 1)
    assert sum(len(one["segments"]) for topic in given["topics"] for one in topic["partitions"]) == 125
    assert given["totals"]["segments"] == 125
    assert given | {"made": 0} == other | {"made": 0}


def test_nothing_has_changed_between_two_reports_of_one_bucket(run: Any, bucket: Path, tmp_path: Path) -> None:
    run(bucket, "--json", tmp_path / "old.json")
    run(
        str(bucket) + "/",
        "-o",
        tmp_path / "report.html",
        "--diff",
        tmp_path / "old.json",
        "--json",
        tmp_path / "new.json",
    )

    changes = json.loads((tmp_path / "new.json").read_text())["changes"]
    assert (changes["topics"], changes["new_findings"], changes["gone_findings"]) == ([], [], [])
    page = (tmp_path / "report.html").read_text()
    assert "No topic, partition or segment has come, gone or grown." in page
    assert "The findings are the same." in page


def test_what_has_come_gone_and_grown_since_is_told(run: Any, bucket: Path, tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    [multi] = bucket.glob("multi-1-*")
    [nulls] = bucket.glob("nulls-0-*")
    [span] = bucket.glob("txn-span-0-*")
    last = sorted(span.glob("*.log"))[-1].stem
    shutil.move(multi, aside / multi.name)
    later = [(one, aside / one.name) for one in span.glob(last + ".*")]
    for one, to in later:
        shutil.move(one, to)
    broken = sorted(span.glob("*.log"))[2]
    whole = broken.read_bytes()
    broken.unlink()
    run(bucket, "--json", tmp_path / "old.json")

    broken.write_bytes(whole)
    for one, to in later:
        shutil.move(to, one)
    shutil.move(aside / multi.name, multi)
    shutil.rmtree(nulls)
    (span / "notes.txt").write_text("new")
    code, _ = run(
        bucket, "-o", tmp_path / "report.html", "--diff", tmp_path / "old.json", "--json", tmp_path / "new.json"
    )

    changes = json.loads((tmp_path / "new.json").read_text())["changes"]
    by_topic = {one["topic"]: one for one in changes["topics"]}
    assert code == ExitCode.FINDINGS
    assert list(by_topic) == ["multi", "txn-span", "nulls"]
    assert (by_topic["multi"]["size_before"], by_topic["multi"]["new_partitions"]) == (None, [1])
    assert by_topic["nulls"]["size_now"] is None
    assert (by_topic["txn-span"]["new_segments"], by_topic["txn-span"]["gone_segments"]) == (2, 0)
    assert [one["code"] for one in changes["new_findings"]] == ["foreign-object", "missing-partition"]
    assert [one["code"] for one in changes["gone_findings"]] == ["missing-log"]
    page = (tmp_path / "report.html").read_text()
    assert "new topic" in page
    assert "+2 segments" in page
    assert "<strong>gone</strong> error <code>missing-log</code>" in page


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        '"x"',
        "\x00",
        '{"format":"segreader-report","version":2}',
        '{"format":"segreader-report","version":1,"location":"x","made":1,"findings":[{}],"topics":[]}',
        '{"format":"segreader-report","version":1,"location":"x","made":1,"findings":[],"topics":[{"topic":[]}]}',
        '{"format":"segreader-report","version":1,"location":"x","made":true,"findings":[],"topics":[]}',
        "[" * 100_000,
        '{"format":"segreader-report","version":1,"location":"x","made":1,"findings":[],"topics":'
        '[{"topic":"t","topic_id":null,"size":1' + "0" * 400 + ',"partitions":[]}]}',
    ],
    ids=[str(number) for number in range(12)],
)
def test_what_is_no_earlier_report_is_refused_before_the_bucket_is_read(run: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "old.json").write_text(text)
    code, err = run(tmp_path / "nothing", "-o", tmp_path / "report.html", "--diff", tmp_path / "old.json")

    assert code == ExitCode.USAGE
    assert "not a report in JSON" in err
    assert "--json FILE" in err


@pytest.mark.parametrize("change", ["location", "findings", "topics"])
def test_a_page_made_from_a_forged_earlier_report_stays_safe(
    run: Any, bucket: Path, tmp_path: Path, change: str
) -> None:
    run(bucket, "--json", tmp_path / "old.json")
    evil = "<script>alert(1)</script>"
    old = json.loads((tmp_path / "old.json").read_text())
    old |= {
        "location": {"location": evil},
        "findings": {
            "findings": [dict.fromkeys(("code", "severity", "object", "explanation"), evil) | {"offset": None}]
        },
        "topics": {"topics": [{"topic": evil, "topic_id": None, "size": 1, "partitions": []}]},
    }[change]
    (tmp_path / "old.json").write_text(json.dumps(old))
    code, _ = run(bucket, "-o", tmp_path / "report.html", "--diff", tmp_path / "old.json")

    assert code == ExitCode.OK
    assert "<script" not in (tmp_path / "report.html").read_text()


def test_a_report_that_cannot_be_written_leaves_the_earlier_one(run: Any, bucket: Path, tmp_path: Path) -> None:
    code, err = run(bucket, "-o", tmp_path / "no" / "report.html")

    assert code == ExitCode.USAGE
    assert "the report cannot be written; found No such file or directory. Name another file" in err
    code, err = run(bucket)
    assert code == ExitCode.USAGE
    assert "-o report.html" in err


@pytest.mark.parametrize("name", ["report.pdf", "report", "html"])
def test_a_page_goes_into_a_file_whose_name_says_that_it_is_one(
    run: Any, bucket: Path, tmp_path: Path, name: str
) -> None:
    code, err = run(bucket, "-o", tmp_path / name)

    assert code == ExitCode.USAGE
    assert f"found {tmp_path}/{name}, expected .html, .htm or .json. Write -o report.html, or -o - for stdout" in err
    assert not (tmp_path / name).exists()
    assert run(bucket, "-o", tmp_path / "report.HTM")[0] == ExitCode.OK


def test_the_page_goes_to_stdout_where_that_is_wanted(bucket: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    code = main(["report", str(bucket), "-o", "-"])
    out, err = capfdbinary.readouterr()

    assert code == ExitCode.OK
    assert out.startswith(b"<!doctype html>")
    assert err.startswith(b"stdout: 3 topics")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_stays_one_and_the_report_is_in_the_file_that_it_names(
    run: Any, bucket: Path, tmp_path: Path, is_there: bool
) -> None:
    file, link = tmp_path / "of-today.json", tmp_path / "newest.json"
    link.symlink_to(file)
    if is_there:
        file.write_text("earlier")
    run(bucket, "--json", link)
    assert link.is_symlink()
    assert json.loads(file.read_text())["topics"]


def test_a_list_of_urls_has_no_report(run: Any, bucket: Path, tmp_path: Path) -> None:
    (tmp_path / "urls").write_text("https://bucket.s3.amazonaws.com/orders-0/00000000000000000000.log?sig=hunter2\n")
    code, err = run(f"@{tmp_path}/urls", "-o", tmp_path / "report.html")

    assert code == ExitCode.USAGE
    assert "a list of URLs has no report" in err
    assert "hunter2" not in err


def test_the_commands_on_the_page_about_reports_run(run: Any, tmp_path: Path) -> None:
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    (tmp_path / "prices.toml").write_text("gib_month = 0.023\n")
    text = (DOCS / "how-to" / "report.md").read_text()
    lines = [line.split(" #")[0] for block in blocks(text, "bash") for line in block.splitlines()]
    commands = [shlex.split(line)[2:] for line in lines if line.startswith("segreader report ")]

    assert len(commands) >= 3
    for command in commands:
        if any(word.startswith("s3://") for word in command):
            continue
        with chdir(tmp_path):
            code, _ = run(*command)
        assert code in (ExitCode.OK, ExitCode.FINDINGS), command
