"""``segreader sql`` answers questions about topics, and says what is wrong with those that it cannot answer."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus import CORPUS, case

import segreader
from segreader.cli.main import main
from segreader.cli.shell.session import DuckEngine
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.records import ProducerRecord

REMOTE = CORPUS / "tv2" / "remote"
Run = Callable[..., tuple[int, bytes, str]]


@pytest.fixture
def sql(capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    def run(query: str, *options: str) -> tuple[int, bytes, str]:
        code = main(["sql", query, *options])
        out, err = capsysbinary.readouterr()
        return int(code), out, err.decode()

    return run


def rows(answer: tuple[int, bytes, str]) -> list[dict[str, Any]]:
    code, out, err = answer
    assert (code, told(err)) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def told(err: str) -> str:
    """What stderr has before the last line, which tells rows, seconds and bytes."""
    *lines, last = err.splitlines()
    assert re.fullmatch(r"[0-9,]+ rows?, [0-9.]+ s, read [0-9.,]+ ([kMG]?B)", last)
    return "".join(f"{line}\n" for line in lines)


def of(topic: str, arguments: str = "") -> str:
    return f"topic('{REMOTE}', '{topic}'{arguments})"


@pytest.fixture
def orders(tmp_path: Path) -> str:
    """A topic of JSON values, one of them no text."""
    values = [json.dumps({"id": at, "who": f"w{at % 3}", "total": at / 4}).encode() for at in range(12)]
    built = SegmentBuilder().batch([ProducerRecord(value, b"k%d" % at) for at, value in enumerate(values)])
    built.batch([ProducerRecord(b"\xff\xfe", b"\xff"), ProducerRecord(None, None)])
    write_local_tiered(tmp_path, "orders", [built])
    return f"topic('{tmp_path}', 'orders'"


def test_everything_is_what_a_java_consumer_was_given(sql: Run) -> None:
    query = "select * from " + of("txn-interleaved", ", decode := 'blob'")
    code, out, _ = sql(query, "-o", "arrow")
    table = pa.ipc.open_stream(out).read_all()
    found = segreader.scan(REMOTE, topic="txn-interleaved")
    assert code == 0
    assert table.cast(found.schema).equals(found.to_arrow())
    assert len(case("tv2", "txn-interleaved").truth("committed")) >= table.num_rows > 0


def test_values_are_text_that_json_functions_take(sql: Run, orders: str) -> None:
    query = f"""select value->>'$.who' as who, sum((value->>'$.total')::double) as total
        from {orders}) where "offset" < 12 group by 1 order by 1"""
    assert rows(sql(query)) == [
        {"who": "w0", "total": 4.5},
        {"who": "w1", "total": 5.5},
        {"who": "w2", "total": 6.5},
    ]


def test_bytes_that_are_no_text_are_refused_with_what_to_do_and_are_there_as_a_blob(sql: Run, orders: str) -> None:
    code, _, err = sql(f"select value from {orders})")
    assert code == 2
    assert "decode := 'blob'" in err
    asked = f"select key, value from {orders}, decode := 'blob') where \"offset\" >= 12"
    assert rows(sql(asked)) == [
        {"key": "/w==", "key_encoding": "base64", "value": "//4=", "value_encoding": "base64"},
        {"key": None, "value": None},
    ]
    assert rows(sql(asked, "--bytes", "hex"))[0] == {"key": "ff", "value": "fffe"}


def test_several_topics_are_joined_by_their_names(sql: Run) -> None:
    query = f"""with late as (select * from {of("multi", ", partitions := [1]")} where "offset" > 10)
        select late."offset" as a, nulls."offset" as b
        from late join {of("nulls")} on late."offset" = nulls."offset" + 10
        order by 1 limit 2"""
    assert rows(sql(query)) == [{"a": 11, "b": 1}, {"a": 12, "b": 2}]
    twice = f'select count(*) as n from {of("multi/0")} join {of("multi/0")} on multi."offset" = multi_2."offset"'
    assert rows(sql(twice)) == [{"n": 3026}]


def test_each_from_has_names_of_its_own(sql: Run) -> None:
    one = f'select multi."offset" as at from {of("multi/0")} where multi."offset" = '
    assert rows(sql(f"{one}1 union all {one}2 order by 1")) == [{"at": 1}, {"at": 2}]
    inner = f"(select max(multi.partition) from {of('multi')})"
    assert rows(sql(f"select {inner} as a, multi.partition as b from {of('multi')} limit 1")) == [{"a": 3, "b": 0}]


@pytest.mark.parametrize("form", ["ndjson", "json", "csv", "table", "parquet", "arrow"])
def test_no_value_is_lost_where_columns_have_one_name(form: str, sql: Run) -> None:
    code, out, _ = sql("select 1 as a, 2 as a, 3 as a_2, 4 as a", "-o", form)
    assert code == 0
    if form == "ndjson":
        assert json.loads(out) == {"a": 1, "a_3": 2, "a_2": 3, "a_4": 4}
    if form == "arrow":
        assert pa.ipc.open_stream(out).schema.names == ["a", "a_3", "a_2", "a_4"]


def test_arguments_are_those_of_scan(sql: Run) -> None:
    level = ", isolation_level := 'read_uncommitted', columns := ['offset', 'is_transactional'], offsets := '2:9'"
    expected = segreader.scan(REMOTE, topic="txn-span", isolation_level="read_uncommitted", offsets="2:9").to_arrow()
    found = rows(sql(f"select * from {of('txn-span', level)}"))
    assert [row["offset"] for row in found] == expected["offset"].to_pylist()
    assert {row["is_transactional"] for row in found} == {True}


def test_each_format_has_the_same_rows(sql: Run, tmp_path: Path) -> None:
    query = f"select partition, count(*) as n, max(timestamp) as newest from {of('multi')} group by 1 order by 1"
    lines = rows(sql(query, "-o", "ndjson"))
    assert json.loads(sql(query, "-o", "json")[1]) == lines
    texts = [{name: str(value) for name, value in row.items()} for row in lines]
    assert list(csv.DictReader(io.StringIO(sql(query, "-o", "csv")[1].decode()))) == texts
    path = tmp_path / "out.parquet"
    assert sql(query, "-q", "-o", "parquet", "--output-file", str(path)) == (0, b"", "")
    assert pq.read_table(path)["n"].to_pylist() == [row["n"] for row in lines]
    assert len(sql(query, "-o", "table")[1].decode().splitlines()) == 5
    assert lines[0]["newest"] == "2025-11-27T01:38:13.252Z"


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ('select offset from topic("x")', 'write "offset"'),
        ("select nope from TOPIC", "nope"),
        ("select 1; drop table x", "only queries"),
        ("", "no statement"),
        ("create table t as select 1", "only queries"),
        ("insert into t values (1)", "only queries"),
        ("attach 'x.db'", "only queries"),
        ("select * from topic()", "takes a location"),
        ("select * from topic(1, 2)", "takes a location"),
        ("select * from topic('REMOTE', 'multi', partitons := [1])", "Did you mean 'partitions'?"),
        ("select * from topic('REMOTE', 'multi/1', partitions := [1])", "named twice"),
        ("select * from topic('REMOTE', 'multi', decode := 'utf7')", "utf8 or blob"),
        ("select * from topic('REMOTE', 'multi', partitions := x)", "not a constant"),
        ("select * from topic('REMOTE', 'multi', since := 'yesterday')", "yesterday"),
        ("select * from read_csv('/etc/passwd')", "--allow-files"),
        ("select partition + topic from TOPIC", "Error"),
    ],
)
def test_what_is_no_query_of_topics_is_refused_with_what_to_do(sql: Run, query: str, told: str) -> None:
    code, out, err = sql(query.replace("TOPIC", of("multi")).replace("REMOTE", str(REMOTE)))
    assert (code, out) == (2, b"")
    assert told in err
    assert "internal error" not in err


def test_other_files_are_read_where_that_is_allowed(sql: Run, tmp_path: Path) -> None:
    path = tmp_path / "names.parquet"
    pq.write_table(pa.table({"partition": [0, 1], "name": ["a", "b"]}), path)
    query = f"select name, count(*) as n from {of('multi')} join '{path}' using (partition) group by 1 order by 1"
    assert sql(query)[0] == 2
    assert [row["name"] for row in rows(sql(query, "--allow-files"))] == ["a", "b"]


def test_errors_met_while_reading_keep_their_text_and_exit_code(sql: Run, tmp_path: Path) -> None:
    assert sql(f"select * from {of('nowhere')}")[0] == 3
    assert sql("select * from topic('/nonexistent', 'a')")[0] == 3
    built = SegmentBuilder()
    for _ in range(20):
        built.batch([b"v" * 100] * 5)
    write_local_tiered(tmp_path, "t", [built])
    log = next(tmp_path.rglob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2 + 100] ^= 1
    log.write_bytes(data)
    code, _, err = sql(f"select sum(\"offset\") from topic('{tmp_path}', 't')")
    plain_code = main(["cat", str(tmp_path), "-o", "ndjson", "--output-file", str(tmp_path / "rows")])
    assert code == plain_code == 5
    assert "fails its CRC-32C" in err
    assert "Traceback" not in err
    code, out, err = sql(f"select count(*) as n from topic('{tmp_path}', 't', on_corrupt := 'skip')")
    assert (code, json.loads(out)) == (1, {"n": 95})
    assert "left out: bytes" in err


def test_what_one_of_several_reads_of_a_topic_lacks_is_told_whichever_comes_last(sql: Run, tmp_path: Path) -> None:
    first = SegmentBuilder().batch([b"v"] * 10)
    second = first.roll().batch([b"v"] * 10)
    write_local_tiered(tmp_path, "t", [first, second.roll().batch([b"v"] * 10)])
    table = f"topic('{tmp_path}', 't', on_gap := 'skip')"
    below, above = (f'select count("offset") as n from {table} where "offset" {one}' for one in ("< 15", "> 20"))
    for query in (f"{below} union all {above}", f"{above} union all {below}"):
        code, out, err = sql(query)
        assert (code, told(err)) == (1, "missing: t-0: no segment has offsets 10 to 19\n")
        assert sorted(out.splitlines()) == [b'{"n":10}', b'{"n":9}']


def test_where_records_end_early_is_told(sql: Run) -> None:
    code, out, err = sql(f"select count(*) as n from {of('txn-marker-active')}")
    assert (code, json.loads(out)["n"]) == (0, 10)
    assert "ends at offset 11" in err


@pytest.fixture
def interrupt_after() -> Iterator[Callable[[float], None]]:
    """Interrupts the main thread after some seconds, also where who started the tests has it ignore that."""
    main_thread, timers = threading.main_thread().ident, list[threading.Timer]()

    def interrupt(seconds: float) -> None:
        timers.append(threading.Timer(seconds, signal.pthread_kill, (main_thread, signal.SIGINT)))
        timers[-1].start()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield interrupt
    for timer in timers:
        timer.join()
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_is_exit_code_130_and_leaves_nothing_behind(
    sql: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupt_after: Callable[[float], None]
) -> None:
    assert rows(sql("select 1 as n")) == [{"n": 1}]  # what takes time once, imports above all, is not interrupted
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(threading.enumerate())
    interrupt_after(0.5)
    many = f"(select value from {of('multi')}, range(100000))"
    assert sql(f"select count(*) from {many} a, {many} b where a.value < b.value") == (130, b"", "")
    assert [one.name for one in set(threading.enumerate()) - before if one.name.startswith("segreader")] == []
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_while_a_query_is_handed_over_ends_it(tmp_path: Path) -> None:
    is_over, has_ended = threading.Event(), threading.Event()

    class Connection:
        def interrupt(self) -> None:
            is_over.set()

    class Interrupted(ThreadPoolExecutor):
        has_been = False

        def submit(self, work: Any, /, *args: Any, **named: Any) -> Any:
            future = super().submit(work, *args, **named)
            if not self.has_been:
                self.has_been = True
                raise KeyboardInterrupt
            return future

    def query() -> None:
        is_over.wait(20)
        has_ended.set()

    with Interrupted(1) as thread:
        engine = DuckEngine(Connection(), thread, str(tmp_path))  # type: ignore[arg-type]
        with pytest.raises(KeyboardInterrupt):
            engine.run(query)
        assert has_ended.is_set()


def test_a_step_of_duckdb_that_hears_of_no_interrupt_does_not_hold_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupt_after: Callable[[float], None]
) -> None:
    class Deaf:
        def interrupt(self) -> None: ...

    monkeypatch.setattr("segreader.cli.shell.session._GRACE_S", 0.1)
    monkeypatch.setattr(os, "_exit", sys.exit)
    (tmp_path / "spill").mkdir()
    is_over, has_begun = threading.Event(), threading.Event()

    def interrupt_once() -> None:  # called while it works: an interrupt before that would be the test's
        if not has_begun.is_set():
            has_begun.set()
            interrupt_after(0.1)

    with ThreadPoolExecutor(1) as thread:
        engine = DuckEngine(Deaf(), thread, str(tmp_path / "spill"))  # type: ignore[arg-type]
        with pytest.raises(SystemExit) as left:
            engine.run(is_over.wait, interrupt_once)
        is_over.set()
    assert left.value.code == 130
    assert not (tmp_path / "spill").exists()


@pytest.mark.parametrize("form", ["ndjson", "json", "csv", "table", "parquet", "arrow"])
def test_a_closed_pipe_is_exit_code_141_in_every_format(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        code = main(["sql", f"select * from {of('multi')}", "-o", form])
    assert code == 141


def test_without_duckdb_the_command_says_what_to_install(sql: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    code, _, err = sql("select 1")
    assert code == 2
    assert "pip install 'duckdb>=2.0,<3' 'prompt-toolkit>=3.0.48,<4'" in err


def test_no_secret_is_in_what_is_told(sql: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # nothing answers at that endpoint: further attempts only wait
    options = ("--storage-option", "key=AKIDsecretid", "--storage-option", "secret=hunter2secret")
    local = ("--storage-option", "endpoint_url=http://127.0.0.1:9")
    code, out, err = sql("select * from topic('s3://bucket/logs', 't')", *options, *local, "--debug")
    assert code == 4
    assert "hunter2secret" not in out.decode() + err
    assert "AKIDsecretid" not in out.decode() + err


def test_the_truth_of_a_case_comes_row_by_row(sql: Run) -> None:
    topic = of("txn-span", ", decode := 'blob'")
    found = rows(sql(f'select partition, "offset", key from {topic} order by 1, 2', "--bytes", "hex"))
    truth = case("tv2", "txn-span").truth("committed")
    assert [(row["partition"], row["offset"], bytes.fromhex(row["key"])) for row in found] == [
        (record.partition, record.offset, record.key) for record in truth
    ]


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ("error('boom')", "Invalid Input Error: boom. "),
        ("('x'||key)::int", "Conversion Error: Could not convert string 'xuser-08268' to INT32. "),
    ],
)
def test_an_error_that_comes_after_rows_is_told_as_one_before_them(sql: Run, result: str, told: str) -> None:
    one = f'case when "offset" = 2900 then {result} end'

    for query in (f"select {one} from multi", f"select max({one}) from multi"):
        query += " where partition = 0"
        code, _, err = sql(query, "-q", "--at", str(REMOTE))
        assert (code, err) == (2, f"segreader: {told}See segreader sql --help for what a topic has\n")


def test_bytes_that_are_no_text_are_refused_in_one_line_also_after_rows(sql: Run) -> None:
    code, _, err = sql("select value from " + of("nulls"), "-q")
    assert (code, err.count("\n")) == (2, 1)
    code, _, err = sql(f"select * from topic('{REMOTE}')", "-q")
    assert code == 2
    assert [line for line in err.splitlines() if not line.startswith(("note: ", "txn-marker-active-0: "))] == [
        "segreader: a key or value is not UTF-8 text. Ask for bytes: topic(…, decode := 'blob')"
    ]


def test_a_query_that_is_not_utf8_is_refused(sql: Run) -> None:
    told = "segreader: the statements are not UTF-8 text. See --help for what it may be\n"

    assert sql("select '\udcff' as a", "-q") == (2, b"", told)
