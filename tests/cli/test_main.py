"""The program as a whole: it starts light, fails politely, and its exit code says who must act."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from corpus import case
from sample import exhaustive

from segreader import __version__, errors
from segreader.cli.exit_codes import ExitCode, describe, exit_code
from segreader.cli.main import main
from segreader.format.kernel import load_kernel

HEAVY = ("pyarrow", "numpy", "fsspec", "rich", "pyspark")
RUN = "import sys; from segreader.cli.main import main; code = main(sys.argv[1:]); "


def run(*arguments: str, then: str = "sys.exit(code)") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN + then, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        exhaustive(["--version"]),
        exhaustive(["broker", "describe", "--help"]),
        ["broker", "locate", "--help"],
        ["cat", "--help"],
        exhaustive(["dump", "--help"]),
        exhaustive(["inspect", "-h"]),
        exhaustive(["ls", "-h"]),
        exhaustive(["offsets", "-h"]),
        exhaustive(["plan", "-h"]),
        ["spark", "offsets", "-h"],
        ["sql", "-h"],
        exhaustive(["verify", "-h"]),
    ],
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    done = run(*arguments, then=f"print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr); sys.exit(code)")

    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert "segreader" in done.stdout


def test_help_shows_every_command_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out

    assert all(
        f"\n  {verb} " in out
        for verb in (
            "broker",
            "cat",
            "dump",
            "gateway",
            "inspect",
            "ls",
            "offsets",
            "plan",
            "spark",
            "sql",
            "verify",
            "version",
        )
    )
    assert "segreader cat /mnt/tiered --topic orders" in out
    assert "..." not in out.partition("Commands:")[2]


@pytest.mark.parametrize("verb", ["cat", "dump", "inspect", "ls", "offsets", "plan", "spark", "sql", "verify"])
def test_the_help_of_a_command_ends_with_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0

    assert f"\n    segreader {verb} " in capsys.readouterr().out.rpartition("Examples:")[2]


@pytest.mark.parametrize("variable", ["SEGREADER_KERNEL", "SEGREADER_NATIVE_CODECS"])
def test_a_wrong_variable_leads_to_the_list_of_variables(
    variable: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "no such thing")

    assert main(["version"]) == 2
    assert capsys.readouterr().err.rstrip(".\n").endswith("docs/reference/environment.md lists what it may be")


def test_version_says_which_kernel_decodes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"segreader {__version__}\n"

    assert main(["version", "-o", "json"]) == 0
    (facts,) = json.loads(capsys.readouterr().out)
    assert facts["version"] == __version__
    assert facts["kernel"] == load_kernel().NAME
    assert facts["codecs"] == "gzip, snappy, lz4, zstd"
    assert facts["pyarrow"] == importlib.metadata.version("pyarrow")

    monkeypatch.setenv("SEGREADER_KERNEL", "reference")
    assert main(["version", "-o", "table"]) == 0
    assert "kernel     reference\n" in capsys.readouterr().out


def test_a_package_that_is_not_there_has_no_version(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segreader.cli.commands.version._PACKAGES", ("no-such-package",))

    assert main(["version"]) == 0
    assert json.loads(capsys.readouterr().out)["no-such-package"] is None


def test_a_kernel_that_is_not_there_is_an_error_of_the_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEGREADER_KERNEL", "quick")

    assert main(["version"]) == 2
    assert "native or reference" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.OptionError, 2),
        (errors.PlanError, 2),
        (errors.OffsetOutOfRangeError, 2),
        (errors.AmbiguousTopicError, 2),
        (errors.ObjectNotFoundError, 3),
        (errors.AccessDeniedError, 3),
        (errors.UnknownLayoutError, 3),
        (errors.ShortReadError, 4),
        (errors.StorageError, 4),
        (errors.FormatError, 5),
        (errors.CorruptBatchError, 5),
        (errors.TruncatedError, 5),
        (errors.SegmentGapError, 5),
        (FileNotFoundError, 3),
        (PermissionError, 3),
        (OSError, 4),
        (RuntimeError, 70),
    ],
)
def test_each_error_has_its_exit_code(error: type[Exception], code: int) -> None:
    assert exit_code(error("message")) == code


def test_every_error_of_the_library_has_an_exit_code_and_a_next_step() -> None:
    def below(kind: type[errors.SegreaderError]) -> list[type[errors.SegreaderError]]:
        ours = [child for child in kind.__subclasses__() if child.__module__.startswith("segreader.")]
        return [kind, *(deeper for child in ours for deeper in below(child))]

    for kind in below(errors.SegreaderError):
        assert exit_code(kind("it is so")) in (2, 3, 4, 5)
        assert describe(kind("it is so")).startswith("it is so. ")
        assert describe(kind("it is so", hint="Do this")) == "it is so. Do this"


def test_an_error_is_one_line_without_a_traceback_unless_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["cat", str(tmp_path / "nowhere")]

    assert main(asked) == 3
    err = capsys.readouterr().err
    assert err.startswith("segreader: ")
    assert err.count("\n") == 1

    for arguments in (["--debug", *asked], [*asked, "--debug"]):
        assert main(arguments) == 3
        assert "Traceback" in capsys.readouterr().err


def test_a_defect_is_called_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("segreader.scans.scan", fails)

    assert main(["cat", "."]) == ExitCode.INTERNAL
    err = capsys.readouterr().err
    assert "internal error: KeyError: 'lost'" in err
    assert "Traceback" not in err


def test_an_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("segreader.scans.scan", interrupted)

    assert main(["cat", "."]) == 130


@pytest.mark.parametrize(
    "form", ["ndjson", exhaustive("json"), exhaustive("csv"), "table", "parquet", exhaustive("arrow")]
)
def test_a_closed_pipe_ends_quietly_with_exit_code_141(form: str) -> None:
    command = [sys.executable, "-c", RUN + "sys.exit(code)", "cat", str(case("tv2", "multi").remote_root)]
    process = subprocess.Popen(
        [*command, "--topic", "multi", "-o", form], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()

    assert (process.wait(), process.stderr.read()) == (141, b"")
    process.stderr.close()


@pytest.mark.parametrize("arguments", [[], ["no-such-verb"], ["cat"], ["cat", ".", "--no-such-option"], ["dump"]])
def test_a_command_line_that_cannot_be_read_is_exit_code_2(arguments: list[str]) -> None:
    assert main(arguments) == 2


def test_stdout_holds_data_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["cat", str(tmp_path)]) == 3

    assert capsys.readouterr().out == ""


def test_a_cache_that_cannot_be_used_is_noted_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    where = str(case("aiven-zstd", "txn-interleaved").root / "remote")
    cache = {"SEGREADER_CACHE": str(tmp_path / "file" / "cache")}
    command = [sys.executable, "-c", RUN + "sys.exit(code)", "cat", where, "--topic", "txn-interleaved", "-o", "ndjson"]
    expected, done = (
        subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **more})
        for more in ({}, cache)
    )
    assert done.stdout == expected.stdout != ""
    (note,) = set(done.stderr.splitlines()) - set(expected.stderr.splitlines())
    assert note.startswith("note: SEGREADER_CACHE: ")


def redirected(redirection: str, *arguments: str) -> tuple[int, str]:
    """The exit code and both outputs of a command line whose stdout or stderr the system's shell has redirected."""
    words = [sys.executable, "-c", RUN + "sys.exit(code)", *arguments]
    done = subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *words], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


REMOTE = str(case("tv2", "multi").remote_root)
READS = (
    ["ls", REMOTE],
    exhaustive(["ls", REMOTE, "-o", "table"]),
    ["cat", REMOTE, "multi/0"],
    exhaustive(["cat", REMOTE, "multi/0", "-o", "parquet"]),
)


@pytest.mark.parametrize(
    "arguments",
    [
        *READS,
        ["sql", "-q", "select 1"],
        exhaustive(["sql", "-q", "-o", "table", "select 1"]),
        exhaustive(["inspect", REMOTE]),
        exhaustive(["version"]),
    ],
)
def test_a_closed_stdout_is_a_usage_error_in_one_line(arguments: list[str]) -> None:
    told = "segreader: standard output is closed. Redirect it to a file, or to /dev/null\n"

    assert redirected(">&-", *arguments) == (2, told)


def test_a_closed_stdout_does_not_matter_where_the_output_is_a_file(tmp_path: Path) -> None:
    code, err = redirected(">&-", "cat", REMOTE, "multi/0", "--output-file", str(tmp_path / "rows"))

    assert (code, err) == (0, "")
    assert (tmp_path / "rows").read_bytes().count(b"\n") == 3026


@pytest.mark.parametrize("arguments", [["sql", "-q", "-"], exhaustive(["shell", REMOTE])])
def test_a_closed_stdin_is_a_usage_error_in_one_line(arguments: list[str]) -> None:
    told = "segreader: standard input is closed. Give statements, a file or a pipe\n"

    assert redirected("<&-", *arguments) == (2, told)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "2>&- >&-"])
@pytest.mark.parametrize(("arguments", "code"), [(["cat", REMOTE, "nope"], 3), (["cat"], 2)])
def test_an_error_that_cannot_be_told_keeps_its_exit_code(arguments: list[str], code: int, redirection: str) -> None:
    assert redirected(redirection, *arguments) == (code, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [
        *READS,
        exhaustive(["cat", REMOTE, "multi/0", "-o", "json"]),
        ["sql", "-q", "select 1"],
        exhaustive(["version"]),
        exhaustive(["--help"]),
    ],
)
def test_a_full_disk_behind_stdout_is_told_once_by_name(arguments: list[str]) -> None:
    told = "segreader: standard output: No space left on device. Make room there, or write to another place\n"

    assert redirected(">/dev/full", *arguments) == (4, told)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
@pytest.mark.parametrize("form", ["ndjson", exhaustive("json"), exhaustive("csv"), "parquet", exhaustive("table")])
@pytest.mark.parametrize("command", [["cat", REMOTE, "multi"], ["sql", "-q", "--at", REMOTE, "select * from multi"]])
def test_a_full_disk_behind_an_output_file_is_told_by_its_name(
    command: list[str], form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([*command, "--output-file", "/dev/full", "-o", form])

    told = "segreader: /dev/full: No space left on device. Make room there, or write to another place\n"
    assert (code, capsys.readouterr().err) == (4, told)
