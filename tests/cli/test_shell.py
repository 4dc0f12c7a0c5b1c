"""``segreader shell`` from a pipe, and what its commands print."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from corpus import CORPUS

from segreader.cli.main import main
from segreader.cli.shell.completion import COMMANDS, proposals
from segreader.cli.shell.dialogue import one_line, pieces
from segreader.cli.shell.terminal import history_file, may_hold_a_secret
from segreader.errors import OptionError

REMOTE = CORPUS / "tv2" / "remote"
Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shell(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Shell:
    def run(typed: str, *options: str, at: Path | str = REMOTE) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        code = main(["shell", str(at), *options])
        out, err = capsysbinary.readouterr()
        return int(code), out.decode(), err.decode()

    return run


def test_a_pipe_is_read_statement_by_statement(shell: Shell) -> None:
    code, out, err = shell("select count(*) as n\n  from multi -- ; not yet\n;\nselect ';' as b; select 3 as c")
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [{"n": 12000}, {"b": ";"}, {"c": 3}]
    assert err.count("1 row, ") == 3


def test_the_first_error_of_a_pipe_ends_it_with_its_exit_code(shell: Shell) -> None:
    code, out, err = shell("select 1 as a;\nselect nope from multi;\nselect 2 as b;")
    assert (code, out) == (2, '{"a":1}\n')
    assert 'Candidate bindings: "topic", "offset"' in err
    assert shell("select 1;", at="/nonexistent")[0] == 0, "nothing there was asked for"
    assert shell("show tables;", at="/nonexistent")[0] == 3


def test_topics_and_their_columns_are_shown(shell: Shell) -> None:
    code, out, _ = shell(".topics\n")
    assert shell(".tables\n")[1] == out
    rows = {row["topic"]: row for row in map(json.loads, out.splitlines())}
    assert code == 0
    topic_id = rows["multi"].pop("topic_id")
    assert rows["multi"] == {"topic": "multi", "partitions": 4, "segments": 12, "size": 1708699}
    shown = shell(".topics\n", "-o", "table")[1].splitlines()
    assert shown[0].split() == ["topic", "partitions", "segments", "size", "(KiB)"]
    assert ["multi", "4", "12", "1,668.7"] in [line.split() for line in shown]
    schema = shell(".schema multi\n", "-o", "table")[1].splitlines()
    assert ["multi", "offset", "BIGINT"] in [line.split() for line in schema]
    columns = [json.loads(line) for line in shell(".schema multi\n")[1].splitlines()]
    assert {"table": "multi", "column": "offset", "type": "BIGINT"} in columns
    assert f"multi,{topic_id},4,12,1708699" in shell(".mode csv\n.topics\n")[1].splitlines()
    assert shell(".mode csv\n.schema multi\n")[1].startswith("table,column,type\nmulti,")
    assert json.loads(shell(".mode json\n.schema multi\n")[1]) == columns
    every = shell(".schema\n")[1].splitlines()
    assert {json.loads(line)["table"] for line in every} >= {"multi", "nulls"}


def test_topics_of_one_name_are_shown_with_their_ids(shell: Shell) -> None:
    rows = [json.loads(line) for line in shell(".topics\n")[1].splitlines()]
    ids = {row["topic_id"] for row in rows if row["topic"] == "recreated"}
    shown = shell(".topics\n", "-o", "table")[1].splitlines()
    assert len(ids) == 2
    assert {line.split()[1] for line in shown if line.startswith("recreated ")} == ids


def test_a_plan_says_what_a_query_would_read_and_costs(shell: Shell) -> None:
    query = '.plan select * from multi where partition = 3 and "offset" < 100'
    code, out, err = shell(query, "--price", "get_per_1000=0.5", "--price", "currency=EUR")
    [found] = map(json.loads, out.splitlines())
    assert (code, err) == (0, "")
    assert [(one["topic"], one["partition"]) for one in found["reads"][0]["partitions"]] == [("multi", 3)]
    assert found["cost"]["currency"] == "EUR"
    assert found["cost"]["money"] == pytest.approx(found["cost"]["requests"] * 0.5 / 1000)
    assert found["duckdb"] is None
    table = shell(query, "-o", "table")[1]
    assert "GET requests" in table
    assert "╭" not in table, "DuckDB's own plan stands with EXPLAIN alone"
    assert "╭" in shell(f"explain {query.removeprefix('.plan ')};", "-o", "table")[1]


def test_the_mode_and_the_timer_change_what_follows(shell: Shell) -> None:
    code, out, err = shell(".mode csv\nselect 1 as a;\n.timer off\n.mode json\nselect 2 as a;\n")
    assert (code, out) == (0, 'a\n1\n[\n{"a":2}\n]\n')
    assert err.count("row") == 1


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (".mode xml", "table or ndjson or json or csv. .help lists the commands"),
        (".timer maybe", "on or off"),
        (".tpoics", "Did you mean .topics?"),
        (".plan", ".plan lacks its QUERY"),
        (".plan explain select 1", "not one query to explain"),
        (".export rows.xls select 1", ".jsonl. Write it as in .export rows.csv SELECT"),
        (".export my rows.csv select 1", "found my, expected .parquet"),
        (".export my rows.csv select 1", '.export "my rows.csv" SELECT'),
        (".export 'my rows.csv'", ".export lacks its QUERY"),
        (".export rows.csv", ".export lacks its QUERY"),
        (".export rows.csv explain select 1", "not a query to export"),
        (".schema nope", "does not exist"),
    ],
)
def test_a_wrong_command_says_what_it_takes(shell: Shell, typed: str, told: str) -> None:
    code, out, err = shell(typed)
    assert (code, out) == (2, "")
    assert told in err


def test_rows_are_exported_whole_or_not_at_all(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    code, out, err = shell(f'.export {path} select * from "multi/2";\n')
    assert (code, out) == (0, "")
    assert pq.read_table(path).num_rows == 2957
    assert f"{path}: 2,957 rows, " in err
    assert shell(f".export {path} select nope from multi\n")[0] == 2
    assert pq.read_table(path).num_rows == 2957
    assert [one.name for one in tmp_path.iterdir()] == ["rows.parquet"]
    for name in ("rows.csv", "rows.json", "rows.ndjson", "rows.jsonl", "rows.arrow"):
        assert shell(f".export {tmp_path / name} select 1 as a")[0] == 0
    assert (tmp_path / "rows.jsonl").read_text() == '{"a":1}\n'
    for quote in "'\"":
        path = tmp_path / f"my {ord(quote)} rows.csv"
        assert shell(f".export {quote}{path}{quote} select ' ' as \"a b\"")[0] == 0
        assert path.read_text() == "a b\n \n"
    code, _, err = shell(f".export {tmp_path / 'no' / 'rows.csv'} select 1")
    assert (code, err) == (3, f"segreader: {tmp_path}/no/rows.csv.part: No such file or directory. Check the path\n")


def test_help_names_every_command_and_quit_ends(shell: Shell) -> None:
    code, out, _ = shell(".help\n.quit\nselect 1;\n")
    assert code == 0
    assert [name for name in COMMANDS if name not in out] == []
    assert "{" not in out


def test_a_statement_is_whole_at_its_semicolon_and_a_command_at_its_line() -> None:
    lines = ["\n", ".mode csv\n", "select 1,\n", "';' -- ;\n", "; \n", "select 2; select 3;\n", "select 4"]
    assert list(pieces(lines)) == [
        ".mode csv\n",
        "select 1,\n';' -- ;\n; \n",
        "select 2; select 3;\n",
        "select 4",
    ]
    assert list(pieces(["-- all\n", ".mode csv\n", "select 1; -- one\n"])) == [".mode csv\n", "select 1; -- one\n"]


FIELDS = {"orders": ["key", "value", "offset", "value.customer", "value.customer.id"], "pay-ments": ["amount"]}


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (".to", [".topics"]),
        (".mode n", ["ndjson"]),
        (".timer ", ["on", "off"]),
        (".schema or", ["orders"]),
        (".quit x", []),
        ("select * from ", ["orders", '"pay-ments"']),
        ("select * from pay", ['"pay-ments"']),
        ('select * from "pa', ['"pay-ments"']),
        (".plan select * from or", ["orders"]),
        (".export a.csv select * from or", ["orders"]),
        (".export 'a b.csv' select * from or", ["orders"]),
        (".export a.csv", []),
        ("select * from orders where off", ['"offset"']),
        ("select value.cust", []),
        ("select * from orders where value.cust", ["value.customer", "value.customer.id"]),
        ("select * from orders o where o.value.customer.", ["o.value.customer.id"]),
        ("select * from orders as o where O.KE", ["O.key"]),
        ('select * from "pay-ments" where am', ["amount"]),
        ("select * from orders where key = 'val", []),
        ("sho", ["show tables"]),
        ("select ord", ["order by", "orders"]),
    ],
)
def test_what_may_follow_is_proposed(before: str, expected: list[str]) -> None:
    assert [one.text for one in proposals(before, list(FIELDS), FIELDS.__getitem__)] == expected


def test_a_proposal_replaces_the_word_that_was_begun() -> None:
    [one] = proposals('select * from "pa', list(FIELDS), FIELDS.__getitem__)
    assert one.replaces == len('"pa')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select * from orders;", False),
        ("select key from orders where key = 'a';", False),
        ("from topic('s3://AKIAABCDEFGHIJKL:x@b', 'o');", True),
        ("from topic('https://h/x?X-Amz-Signature=abc', 'o');", True),
        ("select 'password=hunter2';", True),
        ("from topic('/a', 'b', broker_options := {'sasl.jaas.config': 'x'});", True),
        ("select 'AKIAIOSFODNN7EXAMPLE';", True),
    ],
)
def test_what_looks_like_a_secret_is_not_remembered(text: str, expected: bool) -> None:
    assert may_hold_a_secret(text) is expected


def test_history_is_where_state_belongs() -> None:
    assert history_file({"XDG_STATE_HOME": "/s", "HOME": "/h"}) == Path("/s/segreader/history")
    assert history_file({"HOME": "/h"}) == Path("/h/.local/state/segreader/history")


def test_an_error_is_one_line_without_secrets() -> None:
    shown = one_line(OptionError("two\n  lines of https://h/x?sig=hunter2", hint="look"))
    assert "\n" not in shown
    assert "hunter2" not in shown


def test_a_command_line_that_has_no_shell_loads_no_editor() -> None:
    program = (
        "import sys, segreader.cli.commands.shell, segreader.cli.shell.dialogue; print('prompt_toolkit' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"


def test_typed_topics_have_their_fields_as_columns(shell: Shell) -> None:
    at: Sequence[str] = ("--schemas", str(CORPUS.parent / "schemas" / "schemas.json"))
    remote = CORPUS.parent / "schemas" / "remote"
    query = 'select value.status, count(*) as n from "orders-avro" where value is not null group by 1 order by 1;\n'
    code, out, _ = shell(f'{query}select value.id from "orders-avro" order by 1 limit 1;', *at, at=remote)
    assert code == 0
    assert {"status", "n"} == set(json.loads(out.splitlines()[0]))
    assert set(json.loads(out.splitlines()[-1])) == {"id"}


@pytest.mark.parametrize("typed", [b"\xff;\n", b"select '\xff' as a;\n", b".schema \xff\n", b".\xff\n"])
@pytest.mark.parametrize("on_error", ["strict", "surrogateescape"])
def test_what_is_not_utf8_is_refused_from_a_pipe(
    typed: bytes, on_error: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"select 1 as a;\n" + typed), "utf-8", on_error))

    assert main(["shell", str(REMOTE)]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "segreader: stdin: the statements are not UTF-8 text. See --help for what it may be"
    )
