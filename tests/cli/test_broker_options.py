"""The command line of live topics: its options, its documentation, and what it refuses before it connects."""

from __future__ import annotations

import re

import pytest
from pages import CLI, page

from segreader.broker.settings import NAMES
from segreader.cli.main import main

OPTION = re.compile("--[a-z][a-z-]*")


@pytest.mark.parametrize("verb", ["describe", "locate"])
def test_the_options_of_broker_commands_are_documented(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", verb, "--help"]) == 0

    assert set(OPTION.findall(capsys.readouterr().out)) <= set(OPTION.findall(page(*CLI)))


def test_every_setting_of_the_client_is_documented() -> None:
    text = page("reference/options")
    section = text[text.index("### Settings of the Kafka client") :].split("\n## ", 1)[0]

    assert set(NAMES) <= set(re.findall("`([a-z_.]+)`", section))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cat", "kafka://b:9092"], "a live scan reads one topic"),
        (["cat", "kafka://", "orders"], "a cluster is named by its brokers alone"),
        (["cat", "kafka://user@b:9092", "orders"], "a cluster is named by its brokers alone"),
        (["cat", "kafka://b:9092", "orders", "--bootstrap-servers", "c:9092"], "the brokers are named twice"),
        (["cat", ".", "orders", "--group", "g"], "are of live topics"),
        (["cat", ".", "orders", "--prefer", "store"], "are of live topics"),
        (["plan", "kafka://b:9092", "orders", "--group", "g", "--offsets", "5:"], "both say where to begin"),
        (["plan", "kafka://b:9092", "orders", "--log-directory", "."], "cannot be used with brokers"),
        (["offsets", "kafka://b:9092"], "Name a topic"),
        (["offsets", "kafka://b:9092", "orders", "--records-only"], "Brokers count markers"),
        (["cat", "kafka://b:9092/orders"], "expected kafka://broker:9092, with commas"),
        (["cat", ".", "orders", "--prefer", "store"], "kafka://broker:9092 as the location"),
        (["ls", "kafka://b:9092"], "cat, plan, offsets and broker read from a cluster"),
        (["broker", "describe"], "Missing option '--bootstrap-servers'"),
    ],
)
def test_what_contradicts_itself_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_an_unknown_broker_option_is_refused_without_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["cat", "kafka://b:9092", "orders", "--broker-option", "sasl.pasword=hunter2"])
    told = capsys.readouterr().err

    assert code == 2
    assert "sasl.password" in told
    assert "hunter2" not in told
