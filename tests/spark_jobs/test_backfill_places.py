"""Places by name in a backfill: ``segreader backfill prod:orders``."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest
from growing_log import GrowingLog

from segreader.cli.main import main


@pytest.fixture(autouse=True)
def prod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place with the topic ``orders``, offsets 0 to 2; others with secrets of three kinds."""
    root = tmp_path / "tier"
    root.mkdir()
    GrowingLog(root).upload("orders", 0, 3)
    file = tmp_path / "segreader.toml"
    file.write_text(
        """
        [prod]
        location = "tier"
        [command]
        location = "s3://logs"
        storage_options = {key = "AK", secret = "cmd:echo hush"}
        [two]
        location = "tier"
        bootstrap_servers = "b:9092"
        """
    )
    monkeypatch.setenv("SEGREADER_CONFIG", str(file))
    monkeypatch.delenv("SEGREADER_AT", raising=False)
    monkeypatch.chdir(tmp_path)
    return root


def fill(*arguments: str) -> int:
    return main(["backfill", *arguments, "--target", "out", "--engine", "local", "--processes", "1"])


def offsets() -> list[int]:
    return sorted(ds.dataset("out").to_table(columns=["offset"]).column("offset").to_pylist())


def test_a_place_and_its_topic_are_filled(capsys: pytest.CaptureFixture[str]) -> None:
    assert fill("prod:orders") == 0
    assert offsets() == [0, 1, 2]


def test_the_job_is_that_of_the_location_by_whatever_name(
    prod: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fill("prod", "--topic", "orders") == 0
    for again in (
        ("--location", "prod:orders"),
        (str(prod), "--topic", "orders"),
        ("--location", "tier", "--topic", "orders"),
    ):
        capsys.readouterr()
        assert fill(*again) == 0
        assert "1 of 1 split is done already" in capsys.readouterr().err, again
    monkeypatch.setenv("SEGREADER_AT", "prod")
    assert fill("--topic", "orders") == 0
    assert "1 of 1 split is done already" in capsys.readouterr().err


def test_location_and_topic_are_arguments_as_of_any_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fill("tier", "orders") == 0
    assert offsets() == [0, 1, 2]
    monkeypatch.setenv("SEGREADER_AT", "prod")
    for again in (("orders",), ("prod", "orders"), ("prod:orders",)):
        capsys.readouterr()
        assert fill(*again) == 0
        assert "1 of 1 split is done already" in capsys.readouterr().err, again


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("prod:orders", "--topic", "orders"), "The topic is named twice"),
        (("prod:orders", "--pattern", ".*"), "The topic is named twice"),
        (("tier", "orders", "--topic", "orders"), "The topic is named twice"),
        (("prod:orders", "orders"), "The topic is named twice"),
        (("tier", "orders/0"), "A backfill reads whole topics: orders. --offsets chooses partitions"),
        (("prod", "--location", "tier", "--topic", "orders"), "The location is named twice"),
        (("--location", "prod", "--location", "tier", "--topic", "orders"), "A place is read by itself"),
        (("prod:orders/0",), "A backfill reads whole topics: prod:orders. --offsets chooses partitions"),
        (("command:orders",), "other processes cannot have this secret; found cmd:echo …"),
        (("two:orders", "--on-corrupt", "skip"), "--on-corrupt skip reads a location alone"),
        (("prod:orders", "--to", "delta", "--compact"), "nothing to --compact, which only joins"),
    ],
    ids=[
        "topic",
        "pattern",
        "argument and flag",
        "place and argument",
        "argument's partition",
        "location",
        "two places",
        "partition",
        "command",
        "brokers",
        "compact",
    ],
)
def test_what_contradicts_itself_is_refused(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fill(*arguments) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_name_that_is_nearly_a_place_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert fill("prd:orders") == 3
    assert "no such place or directory. Did you mean prod?" in capsys.readouterr().err
