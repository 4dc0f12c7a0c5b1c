"""Places by name on the command line: ``LOCATION``, ``SEGREADER_AT`` and ``segreader places``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typed_orders import REMOTE, SAVED

from segreader.cli.main import main
from segreader.storage.signed_url import Secret
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.stores import MemoryStore

HUSH = "hush-5d20"

Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in a directory with two places, ``prod`` and ``empty``; code, lines of stdout, and stderr."""
    write_local_tiered(tmp_path / "tiered", "orders", [SegmentBuilder(0).batch([b"a", b"b"])], partition=0)
    write_local_tiered(tmp_path / "tiered", "orders", [SegmentBuilder(0).batch([b"c"])], partition=1)
    write_local_tiered(tmp_path / "tiered", "clicks", [SegmentBuilder(0).batch([b"d"])])
    (tmp_path / "none").mkdir()
    (tmp_path / "segreader.toml").write_text('[prod]\nlocation = "tiered"\n[empty]\nlocation = "none"\n')
    monkeypatch.setenv("SEGREADER_CONFIG", str(tmp_path / "segreader.toml"))
    monkeypatch.delenv("SEGREADER_AT", raising=False)
    monkeypatch.chdir(tmp_path)

    def ran(*arguments: str) -> tuple[int, list[str], str]:
        code = main(list(arguments))
        out, err = capsys.readouterr()
        return int(code), out.splitlines(), err

    return ran


def values(ran: tuple[int, list[str], str]) -> list[str]:
    code, lines, err = ran
    assert code == 0, err
    return [json.loads(line)["value"] for line in lines]


def names(ran: tuple[int, list[str], str]) -> list[str]:
    code, lines, err = ran
    assert code == 0, err
    rows = [json.loads(line) for line in lines]
    return [row["topic"] + (f"/{row['partition']}" if "partition" in row else "") for row in rows]


def test_a_place_is_a_location(run: Run) -> None:
    assert names(run("ls", "prod", "-o", "ndjson")) == ["clicks", "orders"]
    assert values(run("cat", "prod", "orders/1")) == ["c"]


def test_a_topic_and_a_partition_may_follow_the_name(run: Run) -> None:
    assert values(run("cat", "prod:orders")) == ["a", "b", "c"]
    assert values(run("cat", "prod:orders/0")) == ["a", "b"]
    assert values(run("cat", "prod:orders", "--partition", "1")) == ["c"]
    assert names(run("ls", "prod:orders", "-o", "ndjson")) == ["orders/0", "orders/1"]


@pytest.mark.parametrize("command", ["plan", "offsets", "verify", "inspect", "ls"])
def test_commands_that_read_a_location_read_a_place(run: Run, command: str) -> None:
    code, lines, err = run(command, "prod:orders", "-o", "json")
    assert code == 0, err
    assert lines


@pytest.mark.parametrize("also", [("clicks",), ("--topic", "clicks")], ids=["argument", "option"])
def test_a_topic_is_named_once(run: Run, also: tuple[str, ...]) -> None:
    code, _, err = run("cat", "prod:orders", *also)
    assert code == 2
    assert "The topic is named twice" in err


def test_options_win_over_the_place(run: Run, tmp_path: Path) -> None:
    (tmp_path / "segreader.toml").write_text('[prod]\nlocation = "tiered"\nlayout = "aiven"\n')
    assert run("ls", "prod", "-o", "ndjson")[0] == 3
    assert names(run("ls", "prod", "--layout", "local-tiered", "-o", "ndjson")) == ["clicks", "orders"]


def test_a_name_that_is_nearly_a_place_is_said(run: Run) -> None:
    for command in (("ls", "prd:orders"), ("sql", "--at", "prd", "show tables"), ("shell", "prd")):
        code, _, err = run(*command)
        assert code == 3, command
        assert "no such place or directory. Did you mean prod?" in err


def test_a_directory_of_the_name_of_a_place_is_named_by_its_path(run: Run, tmp_path: Path) -> None:
    write_local_tiered(tmp_path / "empty", "own", [SegmentBuilder(0).batch([b"z"])])

    assert names(run("ls", "./empty", "-o", "ndjson")) == ["own"]
    _, lines, err = run("ls", "empty", "-o", "ndjson")
    assert "own" not in "".join(lines)
    assert "note: empty is the place in" in err
    assert "./empty is the directory" in err


def test_segreader_at_is_the_location_where_none_is_given(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGREADER_AT", "prod")

    assert names(run("ls", "-o", "ndjson")) == ["clicks", "orders"]
    assert values(run("cat", "orders")) == ["a", "b", "c"]
    assert values(run("cat", "orders/1")) == ["c"]
    assert values(run("cat", "--topic", "clicks")) == ["d"]


def test_segreader_at_may_be_a_directory_or_a_topic(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGREADER_AT", "tiered")
    assert values(run("cat", "orders/0")) == ["a", "b"]
    monkeypatch.setenv("SEGREADER_AT", "prod:orders")
    assert values(run("cat")) == ["a", "b", "c"]


def test_a_path_a_place_or_a_url_is_a_location_beside_segreader_at(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEGREADER_AT", "empty")

    for location in (
        "./tiered",
        str(tmp_path / "tiered"),
        (tmp_path / "tiered").as_uri(),
        "prod",
        "../" + tmp_path.name,
    ):
        assert "orders" in names(run("ls", location, "-o", "ndjson")), location
    assert values(run("cat", "tiered", "orders/1")) == ["c"]
    assert values(run("cat", "tiered", "--topic", "clicks")) == ["d"]


def test_a_file_of_a_log_is_a_location_beside_segreader_at(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGREADER_AT", "prod")
    log = next(Path("tiered").rglob("*clicks*/*.log"))
    log.rename(f"{0:020d}.log")

    code, lines, err = run("inspect", f"{0:020d}.log", "-o", "json")
    assert code == 0, err
    assert json.loads("\n".join(lines))


def test_brokers_or_a_properties_file_take_no_location_from_segreader_at(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEGREADER_AT", "prod")
    (tmp_path / "server.properties").write_text("broker.id=1\n")
    code, _, err = run("ls", "--rsm-config", "server.properties")
    assert code != 0
    assert "server.properties" in err


def test_without_a_location_the_error_says_what_may_be_one(run: Run) -> None:
    code, _, err = run("ls")
    assert code == 2
    assert "Missing argument 'LOCATION'" in err
    assert "SEGREADER_AT names a place" in err


def test_a_place_of_brokers_alone_is_refused_by_what_reads_a_store(run: Run, tmp_path: Path) -> None:
    (tmp_path / "segreader.toml").write_text('[live]\nbootstrap_servers = "b:9092"\n')
    code, _, err = run("ls", "live")
    assert code == 2
    assert "The place live is a cluster, and this command reads a store" in err


def test_schemas_of_a_place_decode_topics_that_have_some(run: Run, tmp_path: Path) -> None:
    (tmp_path / "segreader.toml").write_text(
        f'[typed]\nlocation = "{REMOTE}"\nschemas = "{SAVED}"\n[prod]\nlocation = "tiered"\nschemas = "{SAVED}"\n'
    )
    assert isinstance(values(run("cat", "typed:orders-avro", "--limit", "1"))[0], dict)
    assert values(run("cat", "prod:clicks")) == ["d"]


def test_a_mistake_in_the_file_names_it_and_exits_with_2(run: Run, tmp_path: Path) -> None:
    (tmp_path / "segreader.toml").write_text('[prod]\nlocaton = "tiered"\n')
    code, _, err = run("ls", "prod")
    assert code == 2
    assert f"segreader: {tmp_path / 'segreader.toml'} [prod]: unknown key 'locaton'. Did you mean location?" in err


def test_places_are_listed_without_secrets(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSH", HUSH)
    (tmp_path / "segreader.toml").write_text(
        '[prod]\nlocation = "s3://logs/tiered"\nstorage_options = {region = "eu", key = "AK", secret = "env:HUSH"}\n'
        '[live]\nbootstrap_servers = "b1:9092"\nbroker_options.sasl.password = "env:HUSH"\n'
    )
    monkeypatch.setenv("SEGREADER_AT", "prod")

    code, lines, _ = run("places", "-o", "ndjson")
    assert code == 0
    assert [json.loads(line) for line in lines] == [
        {
            "place": "prod",
            "location": "s3://logs/tiered",
            "bootstrap_servers": None,
            "layout": None,
            "schemas": None,
            "options": ["key", "region", "secret"],
            "is_default": True,
        },
        {
            "place": "live",
            "location": "b1:9092",
            "bootstrap_servers": "b1:9092",
            "layout": None,
            "schemas": None,
            "options": ["sasl.password"],
            "is_default": False,
        },
    ]
    shown = "\n".join(run("places", "-o", "table")[1])
    assert "prod (SEGREADER_AT)" in shown
    assert "s3://logs/tiered" in shown
    assert HUSH not in shown


def test_no_places_are_a_note_with_the_next_step(run: Run, tmp_path: Path) -> None:
    (tmp_path / "segreader.toml").write_text("")
    code, lines, err = run("places", "-o", "ndjson")
    assert (code, lines) == (0, [])
    assert f"note: no places in {tmp_path / 'segreader.toml'}; segreader places --help shows" in err


def test_every_section_is_checked_by_places(run: Run, tmp_path: Path) -> None:
    (tmp_path / "segreader.toml").write_text('[prod]\nlocation = "tiered"\n[dev]\nlocation = 3\n')
    assert names(run("ls", "prod", "-o", "ndjson")) == ["clicks", "orders"]
    code, _, err = run("places")
    assert code == 2
    assert "[dev]: location is not text" in err


def test_sql_takes_a_place_and_segreader_at(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("duckdb")
    count = "select count(*) as n from {}"
    for query, option in (("orders", ("--at", "prod")), ("topic('prod', 'orders')", ()), ("topic('prod:orders')", ())):
        code, lines, err = run("sql", *option, count.format(query), "-o", "ndjson")
        assert (code, lines) == (0, ['{"n":3}']), err
    monkeypatch.setenv("SEGREADER_AT", "prod")
    assert run("sql", count.format("clicks"), "-o", "ndjson")[1] == ['{"n":1}']


def test_a_store_is_opened_with_the_secrets_of_a_place_and_none_is_shown(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    def opened(location: str, *, storage_options: object, **_: object) -> tuple[MemoryStore, str]:
        seen.append(storage_options)
        return MemoryStore({}), ""

    monkeypatch.setattr("segreader.stored.source.open_store", opened)
    monkeypatch.setenv("HUSH", HUSH)
    (tmp_path / "segreader.toml").write_text(
        '[prod]\nlocation = "s3://logs"\nstorage_options = {region = "eu", key = "AK", secret = "env:HUSH"}\n'
    )

    code, lines, err = run("ls", "prod", "--storage-option", "region=us", "--debug")
    assert code == 3
    assert seen == [{"region": Secret("us"), "key": "AK", "secret": Secret(HUSH)}]
    assert HUSH not in err + "".join(lines)
