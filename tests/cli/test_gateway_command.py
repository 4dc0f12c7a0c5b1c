"""``segreader gateway`` as a process: what it refuses before it listens, that it says when it is ready, how it ends."""

from __future__ import annotations

import json
import logging
import re
import signal
from pathlib import Path

import pytest
from fake_broker import one_broker
from gateway_process import line_with, require_prometheus, started, status
from servers.process import free_port

from segreader.broker.client import BrokerClient
from segreader.cli.commands.gateway import _LineFormatter
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


def test_brokers_that_are_away_at_the_start_are_tried_again(tmp_path: Path) -> None:
    require_prometheus()
    port, pages, away, config = free_port(), free_port(), free_port(), tmp_path / "gateway.toml"
    settings = (
        f'bootstrap_servers = "127.0.0.1:{away}"\nlisten = "127.0.0.1:{port}"\nlocation = "{tmp_path}"\n'
        f'url_base = "https://segments.example"\nmetrics_listen = "127.0.0.1:{pages}"\nlog_format = "json"\n'
    )
    config.write_text(settings)
    with started(config) as process:
        try:
            line = json.loads(line_with(process, "next try in"))
            assert (line["level"], line["logger"]) == ("WARNING", "segreader.gateway.server")
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
            assert status(pages, "/healthz") == (200, "ok\n")
            code, text = status(pages, "/readyz")
            assert (code, json.loads(text)) == (
                503,
                {"ready": False, "brokers": False, "catalogue": False, "running": True},
            )
            with one_broker(port=away):
                assert "ready: clients begin at" in json.loads(line_with(process, "ready:"))["message"]
                assert json.loads(status(pages, "/readyz")[1])["brokers"]
            config.write_text(settings + 'certificate = "none.pem"\nkey = "none.pem"\n')
            process.send_signal(signal.SIGHUP)
            assert json.loads(line_with(process, "stays as it was"))["level"] == "ERROR"
            config.write_text(settings + "[limits]\nconnections = 7\n")
            process.send_signal(signal.SIGHUP)
            assert json.loads(line_with(process, "loaded again"))["level"] == "INFO"
            text = status(pages, "/metrics")[1]
            assert re.search(r'^segreader_gateway_reloads_total\{result="failed"\} 1(\.0)?$', text, re.MULTILINE)
            (lag,) = re.findall(r"^segreader_gateway_catalogue_lag_seconds (\S+)$", text, re.MULTILINE)
            assert 0 < float(lag) < 300
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_is_ready_serves_and_ends_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with one_broker() as kafka:
        port, of_broker = free_port(), free_port()
        config = tmp_path / "gateway.toml"
        config.write_text(
            f'bootstrap_servers = "{kafka.bootstrap}"\nlisten = "127.0.0.1:{port}"\nlocation = "{tmp_path}"\n'
            f'url_base = "https://segments.example"\n[ports]\n1 = {of_broker}\n'
        )
        with started(config) as process:
            line = line_with(process, "ready:")
            assert f"clients begin at 127.0.0.1:{port} (broker 1 at {of_broker})" in line
            assert re.match(r"\d{4}-\d\d-\d\dT\S+Z INFO ready: ", line)
            with BrokerClient(f"127.0.0.1:{port}") as client:
                told = client.metadata(["t"])
            assert [(one.host, one.port) for one in told.nodes] == [("127.0.0.1", of_broker)]
            process.send_signal(number)
            rest = process.communicate(timeout=30)[1]
            assert process.returncode == 0, rest
            assert "Traceback" not in rest


def test_a_log_line_is_one_line_with_time_and_level_and_without_secrets() -> None:
    secret = "https://bucket.example/o.log?X-Amz-Signature=c4nary"
    record = logging.LogRecord("segreader.x", logging.WARNING, "", 0, "a\nb %s", (secret,), None)
    text = _LineFormatter("text").format(record)
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING a b https://bucket.example/o.log\?", text)
    shown = _LineFormatter("json").format(record)
    assert json.loads(shown)["message"].startswith("a\nb https://bucket.example/o.log?")
    assert "\n" not in text + shown
    assert "c4nary" not in text + shown
