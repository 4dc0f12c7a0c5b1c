"""The flags of a backfill: ranges of offsets, which layout is which, and the names that flags had before."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from backfill_runs import do, finish, rows_of
from corpus import CORPUS
from growing_log import GrowingLog

from segreader.backfill.job_plan import read_plan
from segreader.backfill.output import OutputLayout
from segreader.cli.main import main as cat
from segreader.errors import OptionError
from segreader.storage.target.store import open_target
from segreader.testing.aiven import write_rsm_config
from spark_jobs.backfill import backfill as command
from spark_jobs.backfill import main
from spark_jobs.backfill_request import parse_ranges, table_place

THREE = '{"orders":{"0":3}}'
NOTHING = ("--offsets", '{"orders":{"0":"3:3"}}')


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.session.job_session", None)


@contextmanager
def killed(name: str, **_: Any) -> Any:
    """In place of a session: the driver dies when its plan is written and Spark is about to start."""
    raise KeyboardInterrupt
    yield


@pytest.fixture
def asked(tmp_path: Path) -> tuple[str, ...]:
    """Topic ``orders`` with offsets 0 to 2; what asks for none of them needs no Spark."""
    root = tmp_path / "tier"
    root.mkdir()
    GrowingLog(root).upload("orders", 0, 3)
    return ("--location", str(root), "--topic", "orders", "--target", str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ('{"a":{"0":"23:500"}}', '{"a":{"0":23}}', '{"a":{"0":500}}'),
        ('{"a":{"0":"7:","1":":9"}}', '{"a":{"0":7,"1":-2}}', '{"a":{"0":-1,"1":9}}'),
        ('{"a":{"0":7},"b":{"3":"-2:-1"}}', '{"a":{"0":7},"b":{"3":-2}}', None),
        ('{"a":{"0":":"}}', None, None),
    ],
)
def test_ranges_are_the_offsets_of_the_kafka_source(text: str, start: str | None, end: str | None) -> None:
    assert parse_ranges(text) == (start, end)


@pytest.mark.parametrize(
    "text", ["7:9", "7", "[]", "{", '{"a":7}', '{"a":{"0":"7"}}', '{"a":{"0":"x:"}}', '{"a":{"0":true}}']
)
def test_what_is_no_range_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(OptionError, match=r'--offsets is neither A:B nor JSON of ranges.*or \{"orders":\{"0":"23:500"'):
        parse_ranges(text)


@pytest.mark.parametrize("text", ["7", "[]", "{", "", "x:", "9:7", "-1:", '{"a":7}', "latest:", ":earliest"])
def test_a_command_line_with_no_range_is_refused_with_both_forms(
    asked: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked, "--offsets", text]) == 2
    assert 'A:B of every partition, with 0 <= A <= B, or {"orders":{"0":"23:500"' in capsys.readouterr().err


@pytest.mark.parametrize(
    "offsets", ["50:250", "150:", ":150", "0:5", "100:100", "260:900", "900:", "5:", ":", "earliest:latest", "0:0"]
)
def test_offsets_of_every_partition_are_read_as_by_cat(
    offsets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one partition retention has taken the first 100 offsets, and one is short."""
    root, out = tmp_path / "tier", tmp_path / "out"
    log = GrowingLog(root)
    for partition, segments in ((0, 3), (1, 3), (2, 1)):
        for _ in range(segments):
            log.upload("orders", partition, 100)
    log.delete_oldest("orders", 1)
    monkeypatch.setattr("spark_jobs.session.job_session", killed)

    code = main(["--location", str(root), "--topic", "orders", "--target", str(out), "--offsets", offsets])
    target = open_target(str(out))
    plan = read_plan(target)
    assert plan is not None
    assert code in (0, 130)
    do(plan, target)
    found = finish(plan, target)
    rows = [(row["partition"], row["offset"], row["value"].decode()) for row in rows_of(out)] if plan.splits else []

    capsys.readouterr()
    of_cat = offsets.replace("earliest", "").replace("latest", "")
    assert cat(["cat", str(root), "orders", "--offsets", of_cat, "-o", "ndjson"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows == sorted((row["partition"], row["offset"], row["value"]) for row in told)
    assert found.is_complete
    assert found.losses == ()


def test_offsets_of_every_partition_name_the_job(asked: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*asked, "--offsets", "3:3"]) == 0
    assert main([*asked, "--offsets", "3:3"]) == 0
    assert main([*asked, "--offsets", "2:2"]) == 2
    assert "offsets 3:3 there, 2:2 here" in capsys.readouterr().err
    assert main([*asked, *NOTHING]) == 2
    assert main([*asked]) == 2


def test_a_range_of_every_partition_and_a_time_may_bound_different_ends(
    asked: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked, "--offsets", "1:", "--until", "now", "--dry-run"]) == 0
    assert "1 - 2" in capsys.readouterr().out
    assert main([*asked, "--offsets", ":2", "--since", "0", "--dry-run"]) == 0
    assert "0 - 1" in capsys.readouterr().out
    assert main([*asked, "--offsets", "2:", "--until", "0", "--dry-run"]) == 0
    assert "none" in capsys.readouterr().out
    for offsets, flag in (("1:", "--since"), (":2", "--until"), ("1:2", "--until")):
        assert main([*asked, "--offsets", offsets, flag, "now"]) == 2
        assert "both name the same end" in capsys.readouterr().err


def test_the_last_stable_offset_takes_brokers(asked: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*asked, "--offsets", ":latest-stable"]) == 2
    assert "Give --bootstrap-servers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("earlier", "today", "told"),
    [
        (("--start", THREE, "--end", THREE), NOTHING, ["--start", "--since for a time and --offsets", "--end"]),
        (("--layout", "topic/date", *NOTHING), ("--output-layout", "topic/date", *NOTHING), ["--output-layout"]),
        (("--segment-layout", "local-tiered", *NOTHING), ("--layout", "local-tiered", *NOTHING), ["give --layout"]),
        (("--on-data-loss", "skip", *NOTHING), ("--on-gap", "skip", *NOTHING), ["--on-gap and --on-missing"]),
    ],
)
def test_flags_by_earlier_names_begin_the_same_job_and_warn(
    asked: tuple[str, ...],
    earlier: tuple[str, ...],
    today: tuple[str, ...],
    told: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*asked, *earlier]) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert all("is deprecated" in line for line in warnings)
    assert all(any(one in line for line in warnings) for one in told)
    assert main([*asked, *today]) == 0
    assert "warning" not in capsys.readouterr().err


def test_the_layout_is_that_of_the_location_unless_it_is_one_of_an_output(
    asked: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked, *NOTHING, "--layout", "topic/date/hour", "--segment-layout", "local-tiered"]) == 0
    plan = read_plan(open_target(str(tmp_path / "out")))
    assert plan is not None
    assert plan.output.layout is OutputLayout.HOUR
    assert plan.options["layout"] == "local-tiered"

    assert main([*asked, *NOTHING, "--layout", "local-tiered"]) == 2
    assert "output-layout topic/date/hour there, topic/partition here" in capsys.readouterr().err


def test_a_plan_of_an_earlier_version_names_the_properties_file_as_today(
    asked: tuple[str, ...], tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    config = write_rsm_config(tmp_path)
    assert main([*asked, *NOTHING, "--rsm-config", str(config)]) == 0
    file = tmp_path / "out" / "_job" / "plan.json"
    file.write_text(file.read_text().replace('"rsmConfig":', '"keys":'))
    plan = read_plan(open_target(str(tmp_path / "out")))
    assert plan is not None
    assert plan.options["rsmConfig"] == str(config)
    assert plan.data == file.read_bytes()
    assert not [one for one in recwarn if issubclass(one.category, DeprecationWarning)]


@pytest.mark.parametrize(
    ("twice", "told"),
    [
        (("--layout", "topic/date", "--output-layout", "topic/date"), "--output-layout: give one of them"),
        (("--layout", "aiven", "--segment-layout", "aiven"), "--layout: give one of them"),
        (("--on-data-loss", "skip", "--on-missing", "fail"), "--on-missing: give one of them"),
        (("--start", "earliest", "--since", "-1d"), "--since and --offsets: give one of them"),
        (("--end", "latest", "--offsets", THREE), "--until and --offsets: give one of them"),
        (("--offsets", THREE, "--since", "-1d"), "both name the same end of the range"),
        (("--on-gap", "skip", "--sink", "table", "--table", "t"), "must be the same"),
        (("--on-corrupt", "skip", "--sink", "table", "--table", "t"), "belongs to --sink files"),
        (("--on-corrupt", "skip", "--bootstrap-servers", "b:9092"), "leave out --bootstrap-servers"),
    ],
)
def test_a_question_that_is_answered_twice_is_refused(
    asked: tuple[str, ...], twice: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked, *twice]) == 2
    assert told in capsys.readouterr().err


def test_offsets_and_a_time_may_bound_different_ends(
    asked: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked, "--offsets", '{"orders":{"0":1}}', "--until", "now", "--dry-run"]) == 0
    assert "1 - 2" in capsys.readouterr().out


def test_what_cannot_start_says_what_is_wrong_by_earlier_names_too(
    asked: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for flags, told in (
        (("--start", "latest"), "cannot be latest"),
        (("--start", "2026-11-01"), "a time without a time zone"),
        (("--end", "soon"), "neither latest, nor JSON, nor a time"),
    ):
        assert main([*asked, *flags]) == 2
        assert told in capsys.readouterr().err


def test_how_far_tasks_read_ahead_is_no_part_of_what_a_job_is(
    asked: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[dict[str, Any]] = []

    def task(*_: object, threads: int, read_ahead_bytes: int, **__: object) -> Any:
        seen.append({"threads": threads, "read_ahead_bytes": read_ahead_bytes})
        raise KeyboardInterrupt

    monkeypatch.setattr("segreader.backfill.job.SplitTask", task)
    assert main([*asked, "--engine", "local"]) == 130
    assert main([*asked, "--engine", "local", "--threads", "3", "--read-ahead-bytes", "4096"]) == 130
    assert seen == [{"threads": None, "read_ahead_bytes": None}, {"threads": 3, "read_ahead_bytes": 4096}]
    for flag in ("--threads", "--read-ahead-bytes"):
        assert main([*asked, flag, "0"]) == 2
        assert main([*asked[:4], "--sink", "table", "--table", "x", flag, "2"]) == 2
        assert f"{flag} belongs to --sink files" in capsys.readouterr().err


_TABLE = ("--to", "delta")
_SPARK_TABLE = ("--sink", "table", "--format", "delta")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--commit-bytes", "1g"), "--commit-bytes belongs to tables, which --to names"),
        (("--partition-by", "topic"), "--partition-by belongs to tables"),
        (("--table", "db.orders"), "--table belongs to --to iceberg"),
        (("--catalog", "prod"), "--catalog belongs to --to iceberg"),
        (("--catalog-option", "uri=x", "--catalog", "a"), "--catalog and --catalog-option belong to --to iceberg"),
        ((*_TABLE, "--table", "db.orders"), "--table belongs to --to iceberg"),
        (("--to", "iceberg", "--table", "db.orders"), "--target belongs to files and Delta"),
        ((*_TABLE, "--output-layout", "topic/partition"), "--output-layout belongs to files"),
        ((*_TABLE, "--layout", "topic/date"), "--output-layout belongs to files"),
        ((*_TABLE, "--hive", "--force"), "--hive and --force belong to files"),
        (("--target-option", "region=eu-west-1"), "--target-option belongs to a bucket"),
        ((*_TABLE, "--target-option", "region=eu-west-1"), "--target-option belongs to a bucket"),
        (("--target-credentials", "default"), "--target-credentials belongs to a bucket"),
        (("--broker-credentials", "env:K"), "--broker-credentials belongs to --bootstrap-servers"),
        (("--broker-option", "a=b"), "--broker-option belongs to --bootstrap-servers"),
        (("--schema-registry-credentials", "env:R"), "--schema-registry-credentials belongs to --schema-registry"),
        (("--prices", "prices.toml"), "--prices belongs to --dry-run"),
        (("--format", "delta"), "--format belongs to --sink table"),
        (("--continue", "--force"), "--continue adds to a target, and --force replaces it"),
        (("--engine", "local", "--master", "local[1]", "--dry-run"), "--master belongs to --engine spark"),
        (("--engine", "spark", "--processes", "2"), "--processes belongs to --engine local"),
        ((*_SPARK_TABLE, "--to", "delta", "--continue"), "--to and --continue belong to --sink files"),
        ((*_SPARK_TABLE, "--commit-bytes", "1g"), "--commit-bytes belongs to --sink files"),
        ((*_SPARK_TABLE, "--catalog", "prod"), "--catalog belongs to --sink files"),
        ((*_SPARK_TABLE, "--prices", "prices.toml"), "--prices belongs to --dry-run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_flag_that_would_have_no_effect_is_refused_in_one_line_that_names_it(
    asked: tuple[str, ...], flags: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked, *flags]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert len([line for line in said.splitlines() if told in line]) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--to", "delta", "--table", "db.orders"), "--table belongs to --to iceberg"),
        (("--table", "db.orders"), "--table belongs to --to iceberg"),
        ((), "say which directory or bucket"),
        (("--to", "iceberg", "--catalog", "prod"), "say which table"),
        (("--sink", "table", "--dry-run"), "say where to write"),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, tuple) else "",
)
def test_a_command_line_without_its_target_says_which_flag_is_missing_or_of_another_target(
    asked: tuple[str, ...], flags: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked[:4], *flags]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ((*_TABLE, "--location", "x", "--topic", "t"), "--location and --topic mean nothing to --compact"),
        ((*_TABLE, "--dry-run"), "--dry-run means nothing to --compact"),
        ((*_TABLE, "--continue", "--commit-bytes", "1g"), "--continue and --commit-bytes mean nothing to --compact"),
        ((*_TABLE, "--on-data-loss", "skip"), "mean nothing to --compact"),
        ((*_TABLE, "--processes", "2"), "run the backfill by itself, and --compact with --to and --target alone"),
        ((*_TABLE, "--engine", "spark"), "--engine means nothing to --compact"),
        ((*_TABLE, "--partition-by", "topic"), "--partition-by means nothing to --compact"),
        ((*_TABLE, "--table", "db.orders"), "--table belongs to --to iceberg"),
        (("--to", "iceberg", "--table", "db.orders"), "--target belongs to files and Delta"),
        ((), "--compact joins the files of a table, which --to iceberg or --to delta names"),
        (("--topic", "t"), "write everything to another --target and point readers there"),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, tuple) else "",
)
def test_compact_refuses_what_means_nothing_to_it_and_says_what_to_run(
    flags: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--compact", "--target", str(tmp_path / "out"), *flags]) == 2
    assert told in capsys.readouterr().err


def test_compact_of_an_iceberg_table_refuses_access_that_its_catalog_gives(capsys: pytest.CaptureFixture[str]) -> None:
    table = ("--to", "iceberg", "--table", "db.orders")
    assert main(["--compact", *table, "--target-option", "region=x", "--credentials", "env:X"]) == 2
    assert "--target-option and --credentials belong to Delta" in capsys.readouterr().err


def test_every_flag_is_one_that_compact_takes_or_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A flag that is added later is refused until somebody says what it means to it."""
    taken = {"--to", "--table", "--catalog", "--catalog-option", "--target", "--target-option"}
    taken |= {"--target-credentials", "--credentials", "--file-bytes", "--compact"}
    for one in command.params:
        if not isinstance(one, click.Option) or one.hidden or one.opts[0] in {*taken, "--help"}:
            continue
        value = one.type.choices[0] if isinstance(one.type, click.Choice) else "1"
        words = [one.opts[0]] if one.is_flag else [one.opts[0], value]
        assert main(["--compact", "--to", "delta", "--target", str(tmp_path), *words]) == 2, one.opts
        assert f"{one.opts[0]} means nothing to --compact" in capsys.readouterr().err


def test_the_credentials_of_a_location_are_those_of_a_delta_table_too(asked: tuple[str, ...]) -> None:
    """As for files, and as the help of --target-credentials says."""

    def place(*more: str) -> str:
        with command.make_context("backfill", [*asked, *_TABLE, *more]) as context:
            found = table_place(context.params)
        assert found is not None
        return found.credentials

    assert place() == "default"
    assert place("--credentials", "env:LAKE") == "env:LAKE"
    assert place("--credentials", "env:LAKE", "--target-credentials", "env:OTHER") == "env:OTHER"


def test_a_dry_run_of_a_table_that_spark_writes_has_the_bill_too(
    asked: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked, *_SPARK_TABLE, "--dry-run"]) == 0
    assert "GET requests over HTTP" in capsys.readouterr().out


def test_a_table_that_spark_writes_is_read_in_splits_of_the_size_asked_for(
    asked: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []

    def write(spark: object, plan: object, options: dict[str, str], **_: object) -> dict[tuple[str, int], Any]:
        seen.append(options.get("splitBytes"))
        return {}

    @contextmanager
    def session(*_: object, **__: object) -> Any:
        yield SimpleNamespace(spark=None)

    monkeypatch.setattr("spark_jobs.session.job_session", session)
    monkeypatch.setattr("spark_jobs.session.explained", session)
    monkeypatch.setattr("spark_jobs.table.write_table", write)
    assert main([*asked, *_SPARK_TABLE, "--split-bytes", "1m"]) == 0
    assert main([*asked, *_SPARK_TABLE]) == 0
    assert seen == [str(1 << 20), str(256 << 20)]


def test_a_catalog_that_nothing_describes_is_given_by_a_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyiceberg")
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    asked = ["--location", str(CORPUS / "tv2" / "remote"), "--topic", "nulls", "--to", "iceberg", "--table", "db.nulls"]
    assert main(asked) == 2
    told = capsys.readouterr().err
    assert "the catalog default is not known; found URI missing" in told
    assert "Give its uri with --catalog-option uri=URI, in .pyiceberg.yaml or in the environment" in told


def test_a_catalog_without_a_place_for_new_tables_is_told_which_flag_gives_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyiceberg")
    asked = ["--location", str(CORPUS / "tv2" / "remote"), "--topic", "nulls", "--to", "iceberg", "--table", "db.nulls"]
    catalog = [f"--catalog-option={name}" for name in ("type=sql", f"uri=sqlite:///{tmp_path}/catalog.db")]
    assert main([*asked, *catalog]) == 2
    assert "Give its warehouse with --catalog-option warehouse=URL" in capsys.readouterr().err
