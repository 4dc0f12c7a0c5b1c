"""``segreader gateway`` as a process: what it refuses before it listens, that it says when it is ready, how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from fake_broker import one_broker
from servers.process import free_port

from segreader.broker.client import BrokerClient
from segreader.cli.exit_codes import ExitCode
from segreader.cli.main import main


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway", "--help"]) == ExitCode.OK
    told = capsys.readouterr().out
    assert "segreader gateway --bootstrap-servers" in told
    assert "READ on __remote_log_metadata" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "bootstrap_servers is missing"),
        (["--bootstrap-servers", "b:1", "--listen", "127.0.0.1:2"], "location is missing"),
        (["--bootstrap-servers", "b", "--listen", "127.0.0.1:2", "--location", "s3://b"], "host:port"),
        (
            ["--bootstrap-servers", "b:1", "--listen", "127.0.0.1:2", "--location", "s3://b", "--sign-for", "2h"],
            "1m to 60m",
        ),
        (["--config", "none.toml"], "cannot be read"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_asked(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gateway", *arguments]) == ExitCode.USAGE
    assert told in capsys.readouterr().err


def test_options_and_settings_by_earlier_names_warn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text('storage = "s3://b"\n')
    asked = ["gateway", "--config", str(config), "--listen", "127.0.0.1:2", "--sign-for", "2h"]
    assert main([*asked, "--bootstrap", "b:1"]) == ExitCode.USAGE
    assert capsys.readouterr().err.splitlines()[:2] == [
        "warning: --bootstrap is deprecated, give --bootstrap-servers",
        "warning: the setting storage is deprecated, use location",
    ]
    config.write_text('bootstrap = "b:1"\n')
    assert main([*asked[:5], "--sign-for", "5m", "--storage", "s3://b", "--location", "s3://b"]) == ExitCode.USAGE
    assert "--storage is the earlier name of --location" in capsys.readouterr().err


def test_brokers_that_do_not_answer_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    config = tmp_path / "gateway.toml"
    config.write_text('[client]\n"default.api.timeout.ms" = 500\n"socket.connection.setup.timeout.ms" = 500\n')
    arguments = ["--bootstrap-servers", f"127.0.0.1:{port}", "--listen", "127.0.0.1:1", "--location", str(tmp_path)]
    assert main(["gateway", "--config", str(config), *arguments]) != ExitCode.OK
    assert "segreader:" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_is_ready_serves_and_ends_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with one_broker() as kafka:
        port, of_broker = free_port(), free_port()
        config = tmp_path / "gateway.toml"
        config.write_text(
            f'bootstrap_servers = "{kafka.bootstrap}"\nlisten = "127.0.0.1:{port}"\nlocation = "{tmp_path}"\n'
            f'url_base = "https://segments.example"\n[ports]\n1 = {of_broker}\n'
        )
        command = [sys.executable, "-m", "segreader.cli.main", "gateway", "--config", str(config)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
            assert process.stderr is not None
            lines: list[str] = []
            while not (lines and lines[-1].startswith("ready:")):
                lines.append(process.stderr.readline())
                assert lines[-1], lines
            assert f"clients begin at 127.0.0.1:{port} (broker 1 at {of_broker})" in lines[-1]
            with BrokerClient(f"127.0.0.1:{port}") as client:
                told = client.metadata(["t"])
            assert [(one.host, one.port) for one in told.nodes] == [("127.0.0.1", of_broker)]
            process.send_signal(number)
            rest = process.communicate(timeout=30)[1]
            assert process.returncode == 0, rest
            assert "Traceback" not in rest
