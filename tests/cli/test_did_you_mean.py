"""A name that is almost right is answered with the one that was meant, and a partition that is not there with those
that are.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import CORPUS, case
from fake_cluster import FakeCluster, of_corpus

from segreader.cli.exit_codes import ExitCode
from segreader.cli.main import main
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered

REMOTE = CORPUS / "tv2" / "remote"


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """The exit code and stderr of a command line that fails."""
    code = main([*map(str, arguments)])
    out, err = capsys.readouterr()
    assert out == ""
    return int(code), err


@pytest.mark.parametrize("command", ["ls", "plan", "cat", "verify", "offsets", "inspect"])
def test_a_topic_with_a_slip_in_its_name_is_named_by_every_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = said(capsys, command, REMOTE, "mutli")

    assert code == ExitCode.NOT_FOUND
    assert "topic 'mutli' is not here; found codec-gzip, codec-kafka-python" in err
    assert err.endswith("Did you mean multi?\n")


@pytest.mark.parametrize("command", ["ls", "plan", "cat", "verify", "offsets", "inspect"])
def test_of_a_partition_that_is_not_there_every_command_says_which_ones_are(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = said(capsys, command, REMOTE, "multi/7")

    assert code == ExitCode.NOT_FOUND
    assert err.endswith("partition 7 of topic 'multi' is not here. multi has partitions 0-3\n")


@pytest.mark.parametrize(
    "command",
    [
        ("ls", "@/no/such"),
        ("plan", REMOTE, "multi", "--prices", "/no/such"),
        ("report", REMOTE, "--json", "/dev/null", "--diff", "/no/such"),
        ("sql", "-f", "/no/such"),
        ("cat", REMOTE, "multi", "--schemas", "/no/such"),
    ],
)
def test_of_a_file_that_is_not_there_every_command_says_to_check_the_path(
    command: tuple[object, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    err = said(capsys, *command)[1]

    assert err.startswith("segreader: /no/such: ")
    assert err.endswith(". Check the path\n")


def test_partitions_with_holes_between_them_are_not_one_range(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for partition in (0, 1, 2, 5, 9):
        write_local_tiered(tmp_path, "orders", [SegmentBuilder().batch([b"v"])], partition=partition)

    assert said(capsys, "ls", tmp_path, "orders/4")[1].endswith("orders has partitions 0-2, 5, 9\n")


def test_a_topic_that_is_like_no_other_is_answered_with_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_local_tiered(tmp_path, "orders", [SegmentBuilder().batch([b"v"])])

    assert "topic 'zzz' is not here; found orders. segreader ls shows" in said(capsys, "ls", tmp_path, "zzz")[1]
    assert said(capsys, "ls", tmp_path, "Orders")[1].endswith("Did you mean orders?\n")


def test_a_command_with_a_slip_in_its_name_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "verfy")[1].endswith("No such command 'verfy'. Did you mean verify?\n")
    assert said(capsys, "zzz")[1].endswith("No such command 'zzz'. segreader --help lists the commands\n")


def test_an_option_with_a_slip_in_its_name_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "'--limitt'. Did you mean '--limit'" in said(capsys, "cat", REMOTE, "--limitt", "3")[1]


def test_a_cluster_is_asked_which_topic_was_meant(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeCluster({"multi": {partition: of_corpus(case("tv2", "multi"), partition) for partition in range(4)}})
    # The importing module first: imported behind the other line it would keep the fake for ever.
    monkeypatch.setattr("segreader.live.scan.KafkaCluster", lambda *_: fake)
    monkeypatch.setattr("segreader.live.cluster.KafkaCluster", lambda *_: fake)
    arguments = ["offsets", "kafka://b:9092"]

    assert said(capsys, *arguments, "mutli")[1].endswith("the cluster has no topic mutli. Did you mean multi?\n")
    assert said(capsys, *arguments, "multi/7")[1].endswith("topic multi has no partition 7. multi has partitions 0-3\n")
