"""``segreader offsets``: what it prints, and what it refuses."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from corpus import Case, case, cases
from pages import page

from segreader.cli.exit_codes import ExitCode
from segreader.cli.main import main
from segreader.cli.options import parse_topic
from segreader.errors import OptionError

DOCS = page("reference/cli-records")
OPEN = case("tv2", "txn-open")


@pytest.fixture
def rows(capsysbinary: pytest.CaptureFixture[bytes]) -> Any:
    def run(*arguments: object, exit_code: int = ExitCode.OK) -> list[dict[str, Any]]:
        assert main(["offsets", *map(str, arguments), "-o", "ndjson"]) == exit_code
        return [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]

    return run


@pytest.mark.parametrize("case", [case("tv2", "multi"), case("k39", "ts-append"), OPEN], ids=str)
def test_every_partition_has_its_ends(rows: Any, case: Case) -> None:
    printed = rows(case.remote_root, case.topic)

    for partition, row in enumerate(printed):
        stop = case.remote_stop(partition)
        lso = min(stop, case.offline_lso(partition))
        assert row == {
            "topic": case.topic,
            "partition": partition,
            "topic_id": case.topic_id,
            "earliest": 0,
            "latest": stop,
            "stable_end": lso,
            "stable_end_reason": "end-of-data" if lso == stop else "open-transaction",
            "timestamps": [],
        }
    assert len(printed) == len(case.remote)


def test_an_open_transaction_holds_the_stable_end_back(rows: Any) -> None:
    (row,) = rows(OPEN.root / "local", "txn-open")

    assert (row["latest"], row["stable_end"]) == (144, 60)
    assert row["stable_end_reason"] == "open-transaction"


def test_a_topic_with_a_partition_gives_that_partition_alone(rows: Any) -> None:
    (row,) = rows(case("tv2", "multi").remote_root, "multi/2")
    assert (row["topic"], row["partition"]) == ("multi", 2)


def test_without_a_topic_every_partition_of_the_location_is_shown(rows: Any) -> None:
    printed = rows(case("k39", "nulls").root / "local")
    local = {one.topic for one in cases("k39") if one.local}
    assert {row["topic"] for row in printed} == local


def test_every_time_gets_its_own_answer_in_the_order_asked_for(rows: Any) -> None:
    one = case("tv2", "codec-none")
    first, *_, last = one.truth()
    after = last.timestamp_ms + 1
    arguments = ("--timestamp", after, "--timestamp", "1970-01-01T00:00Z")

    (row,) = rows(one.remote_root, "codec-none", *arguments)

    assert row["timestamps"] == [
        {"query": after, "offset": None, "timestamp": None, "leader_epoch": None},
        {"query": 0, "offset": 0, "timestamp": first.timestamp_ms, "leader_epoch": 0},
    ]


def test_markers_count_unless_only_records_are_wanted(rows: Any) -> None:
    one = case("tv2", "txn-commit")
    last = max(record.timestamp_ms for record in one.truth())
    arguments = (one.remote_root, "txn-commit", "--timestamp", last + 1)

    (marker,), (record,) = (row["timestamps"] for (row,) in (rows(*arguments), rows(*arguments, "--records-only")))

    assert marker["offset"] not in {record.offset for record in one.truth()}
    assert marker["timestamp"] > last
    assert record["offset"] is None


def test_the_checkpoint_of_the_live_log_decides_which_history_counts(rows: Any) -> None:
    one = case("cluster", "diverged-hanging")
    alone, given = (rows(one.remote_root, one.topic, *more)[0] for more in ((), ("--leader-epochs", one.local[0])))
    assert given["latest"] == one.remote_stop(0) < alone["latest"]


def test_the_table_shows_times_and_why_the_stable_end_is_early(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "offsets",
        str(OPEN.root / "local"),
        "txn-open",
        "--timestamp",
        "0",
        "--timestamp",
        "2100-01-01T00:00Z",
    ]
    assert main([*arguments, "-o", "table"]) == ExitCode.OK

    head, row = capsys.readouterr().out.splitlines()

    assert head.split("  ")[0] == "partition"
    assert "from 1970-01-01T00:00:00.000Z" in head
    assert "from 2100-01-01T00:00:00.000Z" in head
    assert re.match(r"txn-open-0 +0 +144 +60  open transaction +0  2025-\S+Z +none", row)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["orders/x"], ExitCode.USAGE, "orders/x"),
        (["no-such-topic"], ExitCode.NOT_FOUND, "no-such-topic"),
        (["txn-open/7"], ExitCode.NOT_FOUND, "7"),
        (["txn-open", "--timestamp", "yesterday"], ExitCode.USAGE, "yesterday"),
        (["recreated"], ExitCode.USAGE, "topic ids"),
        (["txn-open", "--layout", "nonsense"], ExitCode.USAGE, "nonsense"),
    ],
)
def test_what_cannot_be_answered_is_one_line_that_names_it(
    arguments: list[str], exit_code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["offsets", str(OPEN.remote_root), *arguments]) == exit_code
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1


def test_the_documented_names_are_those_that_come_out(rows: Any) -> None:
    section = DOCS[DOCS.index("## `segreader offsets`") :].split("\n## ", 1)[0]
    documented = re.findall(r"^\| `([a-z_\[\].]+)` \|", section, re.MULTILINE)
    (row,) = rows(OPEN.remote_root, "txn-open", "--timestamp", "0")

    assert documented == [*row, *(f"timestamps[].{name}" for name in row["timestamps"][0])]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, (None, None)),
        ("orders", ("orders", None)),
        ("orders/3", ("orders", 3)),
        ("a.b_c-7/0", ("a.b_c-7", 0)),
        ("orders/007", ("orders", 7)),
        ("orders/2147483647", ("orders", 2147483647)),
    ],
)
def test_a_topic_may_name_one_partition(text: str | None, expected: tuple[str | None, int | None]) -> None:
    assert parse_topic(text) == expected


@pytest.mark.parametrize(
    "text", ["", "/", "/3", "orders/", "orders/-1", "orders/a/3", "orders/3/", "orders/٣", "o/2147483648"]
)
def test_what_names_no_topic_is_refused(text: str) -> None:
    with pytest.raises(OptionError):
        parse_topic(text)


def test_a_partition_of_a_million_digits_is_refused_at_once() -> None:
    with pytest.raises(OptionError):
        parse_topic("o/" + "9" * 1_000_000)
