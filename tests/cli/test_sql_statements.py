"""``segreader sql --at``: topics by their names, several statements, files, and what EXPLAIN knows before a read."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from corpus import CORPUS

from segreader.cli.main import main
from segreader.cli.shell.session import StatementOutcome
from segreader.cli.sql_statements import StatementKind, is_complete, split, tokens_of
from segreader.plan.split import ReadPlan
from segreader.read.plan_reader import PlanReader
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered

REMOTE = CORPUS / "tv2" / "remote"
Ask = Callable[..., tuple[int, list[Any], str]]


@pytest.fixture
def ask(capsysbinary: pytest.CaptureFixture[bytes]) -> Ask:
    """Runs ``segreader sql --at``; gives the exit code, the rows, and what stderr has."""

    def run(*arguments: str, at: Path | str = REMOTE) -> tuple[int, list[Any], str]:
        code = main(["sql", "--at", str(at), "-o", "ndjson", *arguments])
        out, err = capsysbinary.readouterr()
        return int(code), [json.loads(line) for line in out.splitlines()], err.decode()

    return run


@pytest.fixture
def read_plans(monkeypatch: pytest.MonkeyPatch) -> list[ReadPlan]:
    """What records were read of meanwhile."""
    read: list[ReadPlan] = []
    before = PlanReader.read

    def noted(self: PlanReader, plan: ReadPlan) -> Any:
        read.append(plan)
        return before(self, plan)

    monkeypatch.setattr(PlanReader, "read", noted)
    return read


def test_a_bare_name_is_a_topic_and_a_partition_stands_in_quotes(ask: Ask) -> None:
    assert ask("select count(*) as n from multi")[1] == [{"n": 12000}]
    assert ask('select count(*) as n from "multi/2"')[1] == [{"n": 2957}]
    assert ask('select count(*) as n from MULTI m join "nulls" using ("offset") where m.partition = 2')[1] == [
        {"n": 56}
    ]
    assert ask("select count(*) as n from multi, topic('" + str(REMOTE) + "', 'nulls')")[1] == [{"n": 12000 * 56}]


def test_a_name_with_dots_is_one_topic(ask: Ask, tmp_path: Path) -> None:
    write_local_tiered(tmp_path, "my.orders", [SegmentBuilder().batch([b"v"] * 3)])
    for name in ("my.orders", '"my.orders"'):
        assert ask(f"select count(*) as n from {name}", at=tmp_path)[1] == [{"n": 3}]


def test_what_a_query_names_itself_hides_a_topic(ask: Ask) -> None:
    one = "with multi as (select * from multi where partition = 1) select count(*) as n from multi"
    assert ask(one)[1] == [{"n": 3021}]
    counting = "with recursive multi(n) as (select 1 union all select n + 1 from multi where n < 3) from multi"
    assert ask(counting)[1] == [{"n": 1}, {"n": 2}, {"n": 3}]
    inner = "select (with multi as (select 7 as n) select n from multi) as a, count(*) as n from multi"
    assert ask(inner)[1] == [{"a": 7, "n": 12000}]


def test_tables_are_listed_and_described(ask: Ask) -> None:
    names = [row["name"] for row in ask("show tables")[1]]
    assert "multi" in names
    assert names == sorted(names)
    assert ask("select count(*) as n from (show tables) where name = 'multi'")[1] == [{"n": 1}]
    columns = {row["column_name"]: row["column_type"] for row in ask("describe multi")[1]}
    assert columns["offset"] == "BIGINT"
    assert {row["column_name"] for row in ask("describe select 1 as a, 2 as b")[1]} == {"a", "b"}
    called = ask(f"describe topic('{REMOTE}', 'multi')")[1]
    assert {row["column_name"]: row["column_type"] for row in called} == columns
    assert [row["max"] for row in ask("summarize select partition from multi")[1]] == ["3"]
    assert ask("show multi")[1] == ask("describe multi")[1]
    assert ask('show "multi/2"')[1] == ask("describe multi")[1]
    for query in ("show all tables", "describe"):
        assert [row["name"] for row in ask(query)[1]] == names
    assert "Did you mean" in ask("show mult")[2]


def test_several_statements_run_in_order_and_the_last_line_counts_all(ask: Ask) -> None:
    code, rows, err = ask("select 1 as a; select ';' as b -- ;\n; select count(*) as c from nulls")
    assert (code, rows) == (0, [{"a": 1}, {"b": ";"}, {"c": 56}])
    assert err.startswith("3 rows, ")
    assert ask("select 1 as a", "--quiet")[2] == ""


def test_nothing_runs_where_one_of_several_statements_is_no_query(ask: Ask) -> None:
    code, rows, err = ask("select 1 as a; create table t as select 1")
    assert (code, rows) == (2, [])
    assert "only queries are run here" in err
    assert ask("select 1; selec 2")[:2] == (2, [])
    assert "holds one result" in ask("select 1; select 2", "-o", "arrow")[2]


def test_statements_come_from_a_file_or_stdin(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "report.sql"
    file.write_bytes("\ufeffselect 1 as a;\nselect 'ü' as b".encode())
    assert ask("--file", str(file))[1] == [{"a": 1}, {"b": "ü"}]
    for arguments in (["-"], ["-f", "-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"select 2 as a;")))
        assert ask(*arguments)[1] == [{"a": 2}]
    assert ask("-f", str(tmp_path / "nowhere.sql"))[0] == 3
    file.write_bytes(b"\xff")
    assert "not UTF-8 text" in ask("-f", str(file))[2]
    assert ask()[0] == ask("select 1", "-f", str(file))[0] == 2


@pytest.mark.parametrize("table", ["multi", "TOPIC"])
@pytest.mark.parametrize(
    "query",
    [
        "pivot (select partition, timestamp_type from {}) on partition using count(*)",
        "from (pivot (from {}) on partition using count(*) group by timestamp_type)",
        "with them as (from {}) pivot them on partition using count(*) group by timestamp_type",
        "select * from {} pivot (count(*) for partition in (0, 1, 2, 3) group by timestamp_type)",
    ],
)
def test_topics_are_pivoted(ask: Ask, query: str, table: str) -> None:
    named = table.replace("TOPIC", f"topic('{REMOTE}', 'multi' /* ) */)")
    code, rows, _ = ask(query.format(named))
    assert code == 0
    assert [{name: row[name] for name in "0123"} for row in rows] == [{"0": 3026, "1": 3021, "2": 2957, "3": 2996}]


@pytest.mark.parametrize(
    "query",
    [
        "create table t as pivot multi on partition using count(*)",
        "copy (pivot multi on partition using count(*)) to 'x.csv'",
        "insert into t pivot multi on partition using count(*)",
        "with t as (select 1) insert into x pivot multi on partition using count(*)",
        "explain analyze pivot multi on partition using count(*)",
        "set threads = 1",
        "pragma version",
        "load httpfs",
        "begin",
    ],
)
def test_what_does_more_than_read_is_refused(ask: Ask, query: str) -> None:
    code, rows, err = ask(query)
    assert (code, rows) == (2, [])
    assert "internal error" not in err


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("select count(*) from mulit", 'Did you mean "multi"?'),
        ("select valu from multi", 'Candidate bindings: "value"'),
        ("select summ(partition) from multi", 'Did you mean "sum"?'),
        ("select * from codec-gzip", 'Write "codec-gzip", in double quotes'),
        ("select offset from multi", 'write "offset"'),
        ("select * from quite_something_else", "There are codec-gzip"),
        ("select value->>'$.id' from multi", "Some texts are not JSON: try_cast(value as json)->>"),
    ],
)
def test_an_error_names_what_was_meant(ask: Ask, query: str, told: str) -> None:
    code, _, err = ask(query)
    assert code == 2
    assert told in err
    assert "LINE 1" not in err


def test_explain_reads_no_record_and_plans_what_the_query_then_reads(ask: Ask, read_plans: list[ReadPlan]) -> None:
    query = 'select count(*) as n from multi where partition = 2 and "offset" >= 2900'
    code, [found], err = ask(f"explain {query}")
    assert code == 0
    assert read_plans == []
    [read] = found["reads"]
    assert [(one["topic"], one["partition"]) for one in read["partitions"]] == [("multi", 2)]
    assert "PYTHON_ARROW_SCAN" in found["duckdb"]
    size, requests = found["cost"]["size"], found["cost"]["requests"]
    assert 0 < requests <= 3
    assert (found["cost"]["money"], found["cost"]["currency"]) == (None, None)
    err = ask(query)[2]
    assert [sum(split.positions.size for split in plan.splits) for plan in read_plans] == [size]
    assert f"read {StatementOutcome(size=size)}".partition("read 0 rows, 0 s, ")[2] in err, "as many bytes as were told"


def test_explain_alone_has_no_line_of_rows_and_seconds(ask: Ask) -> None:
    assert ask("explain select count(*) from multi")[2] == ""
    assert "1 row, " in ask("explain select count(*) from multi; select 1 as a")[2]


def test_explain_prices_every_read_of_a_join(ask: Ask, read_plans: list[ReadPlan]) -> None:
    prices = ("--price", "gib_out=1", "--price", "get_per_1000=1", "--price", "currency=EUR")
    query = 'explain select count(*) from multi a join "nulls" b using ("offset") join multi c using ("offset")'
    _, [found], _ = ask(query, *prices)
    assert sorted(read["table"] for read in found["reads"]) == ["multi", "multi", "nulls"]
    cost = found["cost"]
    assert cost["size"] == sum(read["cost"]["size"] for read in found["reads"])
    requests = cost["requests"] + (cost["planning_requests"] or 0)
    assert cost["money"] == pytest.approx(cost["size"] / (1 << 30) + requests / 1000)
    assert read_plans == []


def test_explain_of_a_pivot_counts_its_two_reads(ask: Ask, read_plans: list[ReadPlan]) -> None:
    _, [found], _ = ask("explain pivot multi on partition using count(*)")
    assert [read["table"] for read in found["reads"]] == ["multi", "multi"]
    assert read_plans == []


def test_explain_of_no_topic_has_no_reads(ask: Ask) -> None:
    assert ask("explain select 1 as a")[1][0]["reads"] == []
    assert ask("explain select 1", "-o", "csv")[0] == 2
    assert "analyzed_plan" in str(ask("explain analyze select count(*) from multi")[1])


def test_explain_reads_no_file_that_the_query_may_not_read(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "names.csv"
    file.write_text("name\nhunter2\n")
    query = f"explain select * from multi, read_csv('{file}')"
    code, rows, err = ask(query)
    assert (code, rows) == (2, [])
    assert "--allow-files" in err
    assert ask(query, "--allow-files")[0] == 0


def test_explain_does_not_wait_for_what_is_not_of_topics(ask: Ask) -> None:
    long = "(select count(*) as n from range(100000000000000) a(x) where x % 7 = 3)"
    code, [found], _ = ask(f"explain select count(*) from multi, {long} where partition = 1")
    assert code == 0
    assert [one["partition"] for read in found["reads"] for one in read["partitions"]] in ([1], [0, 1, 2, 3])


def test_explain_is_a_table_for_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["sql", "-q", "--at", str(REMOTE), "-o", "table", "explain select key from multi where partition = 1"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "read of multi, at most" in shown
    assert "multi-1" in shown
    assert "GET requests" in shown
    assert "PYTHON_ARROW_SCAN" in shown
    file = tmp_path / "plan.txt"
    assert main([*arguments, "--output-file", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert file.read_text().split() == shown.split()


def test_a_place_that_is_not_there_is_an_error_once_it_is_needed(ask: Ask) -> None:
    assert ask("select count(*) from orders", at="/nonexistent")[0] == 3
    assert main(["sql", "show tables"]) == 2


def test_options_of_the_place_reach_every_topic(ask: Ask, tmp_path: Path) -> None:
    code, _, err = ask("select count(*) from multi", "--layout", "no-such-layout")
    assert code != 0
    assert "no-such-layout" in err


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (StatementOutcome(1, 0.0123, 0), "1 row, 0.012 s, read 0 B"),
        (StatementOutcome(249_776, 1.234, 18_400_000), "249,776 rows, 1.2 s, read 18 MB"),
        (StatementOutcome(0, 75.0, 999), "0 rows, 75.0 s, read 999 B"),
        (StatementOutcome(2, 1.0, 1_000), "2 rows, 1.0 s, read 1.0 kB"),
        (StatementOutcome(2, 1.0, 999_700), "2 rows, 1.0 s, read 1.0 MB"),
        (StatementOutcome(2, 1.0, 5 * 10**15), "2 rows, 1.0 s, read 5,000 TB"),
    ],
)
def test_the_last_line_tells_rows_seconds_and_bytes(outcome: StatementOutcome, expected: str) -> None:
    assert str(outcome) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select 1;", True),
        ("select 1; -- more", True),
        ("select ';", False),
        ('select "a;', False),
        ("select $$ a; ", False),
        ("select 1 /* ;", False),
        ("-- ;", False),
        ("", False),
        ("select 'ü' ;", True),
    ],
)
def test_a_text_is_complete_at_a_semicolon_of_its_own(text: str, expected: bool) -> None:
    assert is_complete(text) is expected


def test_tokens_are_counted_in_characters() -> None:
    text = "select 'ü€' as \"ä\", x -- é\nfrom t"
    assert [text[token.start : token.stop] for token in tokens_of(text)] == [token.text for token in tokens_of(text)]
    assert [token.name for token in tokens_of(text) if token.kind == "identifier"] == ["ä", "x", "t"]


def test_a_text_is_split_into_its_statements() -> None:
    with duckdb.connect(":memory:") as connection:
        found = split(connection, "select 1; explain (format json) select 2; ; pivot t on a using sum(b);")
    assert [(one.kind, one.text) for one in found] == [
        (StatementKind.QUERY, "select 1"),
        (StatementKind.EXPLAIN, "select 2"),
        (StatementKind.PIVOT, "pivot t on a using sum(b)"),
    ]


def test_a_place_by_its_name_brings_its_options_and_schemas(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schemas = CORPUS.parent / "schemas"
    config = tmp_path / "segreader.toml"
    config.write_text(
        f'[prod]\nlocation = "{schemas / "remote"}"\nschemas = "{schemas / "schemas.json"}"\n'
        f'[odd]\nlocation = "{REMOTE}"\nlayout = "no-such-layout"\n'
    )
    monkeypatch.setenv("SEGREADER_CONFIG", str(config))
    query = "select count(value.status) as n from \"orders-avro\" where value.status = 'OPEN'"
    assert ask(query, at="prod")[1] == [{"n": 32}]
    assert ask(query.replace("value.status", "value.nope"), at="prod")[0] == 2
    assert "no-such-layout" in ask("select count(*) from multi", at="odd")[2]
    assert "Name the place alone: prod" in ask(query, at="prod:orders-avro")[2]
    assert main(["sql", "-q", "select count(*) from topic('prod', 'orders-avro')"]) == 0


def test_a_table_without_a_place_leads_to_the_options_that_name_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "select 1 from multi"]) == 2
    assert "Name the bucket with --at LOCATION, or write topic('LOCATION', 'multi')" in capsys.readouterr().err
