"""One idea has one name: in the command line, in Python, in the jobs and in the gateway. Spark's names stay Kafka's."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import click
import pytest

import segreader
from segreader.cli.commands.cat import cat
from segreader.cli.commands.gateway import gateway
from segreader.gateway.config import _PARSERS as SETTINGS
from segreader.spark.options import NAMES, STORAGE
from spark_jobs.backfill import backfill


@dataclass(frozen=True, slots=True)
class Named:
    """What one idea is called.

    Args:
        flag: of every command line that has it; without dashes it is an argument.
        python: of ``segreader.scan``.
        spark: the options of the data source, which are Kafka's where Kafka has the idea.
        job, gateway: whether the backfill and the gateway have it.
    """

    flag: str
    python: str | None
    spark: tuple[str, ...] = ()
    job: bool = True
    gateway: bool = False


TABLE = {
    "where": Named("--location", "location", ("location", "path"), gateway=True),
    "brokers": Named("--bootstrap-servers", "bootstrap_servers", ("kafka.bootstrap.servers",), gateway=True),
    "client settings": Named("--broker-option", "broker_options"),
    "topic": Named("--topic", "topic", ("subscribe",)),
    "topic id": Named("--topic-id", "topic_id", ("topicId",)),
    "first time": Named("--since", "since", ("startingTimestamp",)),
    "last time": Named("--until", "until", ("endingTimestamp",)),
    "offsets": Named("--offsets", "offsets", ("startingOffsets", "endingOffsets")),
    "isolation": Named("--isolation", "isolation_level", ("isolationLevel", "kafka.isolation.level")),
    "input layout": Named("--layout", "layout", ("layout",), gateway=True),
    "output layout": Named("--output-layout", None),
    "plugin settings": Named("--rsm-config", "rsm_config", ("rsmConfig",), gateway=True),
    "gaps": Named("--on-gap", "on_gap", ("failOnDataLoss",)),
    "vanished segments": Named("--on-missing", "on_missing", ("failOnDataLoss",)),
    "damage": Named("--on-corrupt", "on_corrupt"),
    "store settings": Named("--storage-option", "storage_options", gateway=True),
    "metadata topic": Named("--metadata", "metadata", ("metadata",)),
    "which segments": Named("--segments-from", "segments_from", ("segmentsFrom",)),
    "log directory": Named("--log-directory", "log_directory", ("logDirectory",)),
    "threads": Named("--threads", "threads"),
    "order of partitions": Named("--order", "order", job=False),
    "bytes ahead": Named("--read-ahead-bytes", "read_ahead_bytes"),
    "lineage": Named("--leader-epochs", "leader_epochs", ("leaderEpochs",)),
    "schemas of values": Named("--value-schema", "value", ("valueSchema",)),
    "schemas of keys": Named("--key-schema", "key", ("keySchema",)),
    "schemas of both": Named("--schemas", None, ("schemas",)),
    "registry of both": Named("--schema-registry", None, ("schemas",)),
    "version of a schema": Named("--schema-version", "schema_version", ("schemaVersion",)),
    "undecodable values": Named("--on-undecodable", "on_undecodable", ("onUndecodable",)),
}
OTHERWISE = {
    "--isolation": "isolation_level",
    "--broker-option": "broker_options",
    "--storage-option": "storage_options",
    "--value-schema": "value",
    "--key-schema": "key",
}
"""Where Python's name is not the flag's: a whole word of Kafka's, the plural of what a flag repeats, and the columns
that are decoded by what they are given."""
OF_THE_JOB_ALONE = {"--output-layout"}
TWO_IDEAS = {"--key"}
"""A record's key, as users of kcat look for it, and the private key of a server, as those of TLS are called."""
EARLIER = {
    "cat": (),
    "backfill": ("--start", "--end", "--segment-layout", "--on-data-loss"),
    "gateway": ("--bootstrap", "--storage"),
}
"""Names that are still taken and not shown; each has its warning in the tests of its command."""
COMMANDS = {"cat": cat, "backfill": backfill, "gateway": gateway}


def flags(command: click.Command, *, hidden: bool = False) -> set[str]:
    """The options that help shows, or those that it does not."""
    return {
        name for one in command.params if isinstance(one, click.Option) if one.hidden is hidden for name in one.opts
    }


@pytest.mark.parametrize("named", TABLE.values(), ids=list(TABLE))
def test_one_idea_has_one_name_on_every_face(named: Named) -> None:
    if named.flag == "--location":
        assert "location" in {one.name for one in cat.params if isinstance(one, click.Argument)}
    else:
        assert (named.flag in flags(cat)) == (named.flag not in OF_THE_JOB_ALONE)
    assert (named.flag in flags(backfill)) == named.job
    assert (named.flag in flags(gateway)) == named.gateway
    if named.python is not None:
        assert named.python in inspect.signature(segreader.scan).parameters
        assert named.python == OTHERWISE.get(named.flag, named.flag.removeprefix("--").replace("-", "_"))
    if named.gateway:
        assert OTHERWISE.get(named.flag, named.flag.removeprefix("--").replace("-", "_")) in SETTINGS
    assert set(named.spark) <= set(NAMES)
    assert STORAGE == "storage."


def test_what_two_command_lines_share_is_in_the_table() -> None:
    shared = (flags(cat) & flags(backfill)) | (flags(cat) & flags(gateway)) | (flags(backfill) & flags(gateway))
    assert shared - {"--help", "-h", "--debug"} - TWO_IDEAS <= {named.flag for named in TABLE.values()}


def test_offsets_are_said_in_one_form_on_every_command_line() -> None:
    said = [one.metavar for command in (cat, backfill) for one in command.params if one.name == "offsets"]
    assert [str(text).partition("|")[0] for text in said] == ["A:B", "A:B"]


@pytest.mark.parametrize("name", COMMANDS)
def test_earlier_names_are_taken_and_not_shown(name: str) -> None:
    assert flags(COMMANDS[name], hidden=True) == set(EARLIER[name])
    assert not {flag for one in EARLIER.values() for flag in one} & flags(COMMANDS[name])


@pytest.mark.parametrize("flag", ["--on-gap", "--on-missing", "--on-corrupt"])
def test_what_goes_wrong_fails_or_is_skipped_everywhere(flag: str) -> None:
    for command in COMMANDS.values():
        for one in command.params:
            if flag in one.opts:
                assert isinstance(one.type, click.Choice)
                assert list(one.type.choices) == ["fail", "skip"]
                assert one.default == "fail"
