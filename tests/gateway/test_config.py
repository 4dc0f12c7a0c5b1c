"""The gateway's configuration: what is missing, unknown or secret is told, and no secret is shown."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from segreader.errors import OptionError
from segreader.gateway.config import _PARSERS, GatewayConfig, Limits, parse_address, parse_life
from segreader.gateway.rewriting import PortPlan
from segreader.testing.aiven import write_rsm_config

LEAST = {"bootstrap_servers": "b1:9092,b2:9092", "listen": "127.0.0.1:19092", "location": "s3://bucket/tiered"}
DOCS = Path(__file__).parents[2] / "docs" / "reference" / "gateway.md"

FILE = """
bootstrap_servers = ["b1:9092", "[::1]:9093"]
listen = "0.0.0.0:19092"
advertised_host = "gw.example.com"
location = "s3://bucket/tiered"
layout = "aiven"
sign_for = "5m"
metrics_listen = "127.0.0.1:9404"
audit_file = "audit.jsonl"
refuses_below_log_start = true
max_lag = "10s"
[ports]
1 = 19101
7 = 19107
[storage_options]
key = "AKIAEXAMPLE"
secret = "env:STORE_SECRET"
region = "eu-north-1"
[client]
security.protocol = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-512"
sasl.username = "gateway"
sasl.password = "@password"
[limits]
connections = 10
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STORE_SECRET", "c4narySecret")
    (tmp_path / "password").write_text("c4naryP4ssword\n")
    path = tmp_path / "gateway.toml"
    path.write_text(FILE.replace("@password", f"@{tmp_path / 'password'}"))
    return path


def test_a_file_says_everything(file: Path) -> None:
    config = GatewayConfig.load(file)
    assert config.bootstrap_servers == ("b1:9092", "[::1]:9093")
    assert (config.listen_host, config.listen_port, config.host_for_clients) == ("0.0.0.0", 19092, "gw.example.com")
    assert config.ports == {1: 19101, 7: 19107}
    assert (config.sign_for_s, config.max_lag_s, config.layout) == (300, 10, "aiven")
    assert config.metrics_listen == ("127.0.0.1", 9404)
    assert config.audit_file == str(file.parent / "audit.jsonl")
    assert config.refuses_below_log_start
    assert config.limits.connections == 10
    assert config.client.sasl_password is not None
    assert config.client.sasl_password.reveal() == "c4naryP4ssword"


def test_what_is_given_weighs_more_than_the_file(file: Path) -> None:
    config = GatewayConfig.load(file, {"sign_for": "1h", "listen": "127.0.0.1:1", "location": None})
    assert (config.sign_for_s, config.listen_port, config.location) == (3600, 1, "s3://bucket/tiered")


def test_no_secret_is_in_the_text_of_a_configuration(file: Path) -> None:
    assert "c4nary" not in repr(GatewayConfig.load(file))


@pytest.mark.parametrize(
    "given",
    [
        {"storage_options": {"secret": "c4nary"}},
        {"storage_options": {"account_key": "c4nary"}},
        {"storage_options": {"sas_token": "c4nary"}},
        {"client": {"sasl.password": "c4nary"}},
        {"client": {"sasl": {"password": "c4nary"}}},
        {"client": {"kafka.sasl.jaas.config": "c4nary"}},
        {"key_password": "c4nary"},
    ],
)
def test_a_secret_that_stands_in_clear_is_refused_and_not_shown(given: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="in plain text") as caught:
        GatewayConfig.load(None, {**LEAST, **given})
    assert "c4nary" not in str(caught.value)


def test_settings_by_earlier_names_are_taken_with_a_warning(tmp_path: Path) -> None:
    earlier = {"bootstrap": "b1:9092,b2:9092", "listen": "127.0.0.1:19092", "storage": "s3://bucket/tiered"}
    with pytest.warns(DeprecationWarning, match="is deprecated, use") as caught:
        assert GatewayConfig.load(None, earlier) == GatewayConfig.load(None, LEAST)
    assert [str(one.message) for one in caught] == [
        "the setting bootstrap is deprecated, use bootstrap_servers",
        "the setting storage is deprecated, use location",
    ]
    with pytest.raises(OptionError, match="storage is the earlier name of location"):
        GatewayConfig.load(None, {**LEAST, "storage": "s3://bucket"})


def test_the_brokers_properties_name_the_location(tmp_path: Path) -> None:
    file = write_rsm_config(tmp_path, key_prefix="tiered/")
    brokers = {name: text for name, text in LEAST.items() if name != "location"}
    assert GatewayConfig.load(None, {**brokers, "rsm_config": str(file)}).location == str(tmp_path / "tiered")
    with pytest.raises(OptionError, match="location and rsm_config both name"):
        GatewayConfig.load(None, {**LEAST, "rsm_config": str(file)})
    with pytest.raises(OptionError, match=r"key\.prefix is not a directory"):
        GatewayConfig.load(None, {**brokers, "rsm_config": str(write_rsm_config(tmp_path, key_prefix="tiered"))})


@pytest.mark.parametrize("name", LEAST)
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(OptionError, match=name):
        GatewayConfig.load(None, {key: value for key, value in LEAST.items() if key != name})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"sing_for": "1m"}, "Did you mean sign_for"),
        ({"sign_for": "30s"}, "1m to 60m"),
        ({"sign_for": "61m"}, "1m to 60m"),
        ({"sign_for": "soon"}, "not a time"),
        ({"layout": "other"}, "auto, local-tiered, aiven"),
        ({"certificate": "c.pem"}, "both"),
        ({"listen": "19092"}, "host:port"),
        ({"listen": "0.0.0.0:19092"}, "advertised_host"),
        ({"bootstrap_servers": " , "}, "no broker"),
        ({"bootstrap_servers": "b1"}, "host:port"),
        ({"url_base": "http://127.0.0.1/"}, "allow_http"),
        ({"url_base": "https://user:c4nary@host/"}, "credential"),
        ({"ports": {"1": "x"}}, "ports"),
        ({"limits": {"connection": 1}}, "unknown limit of the gateway: 'connection'. Did you mean connections"),
        ({"limits": {"connections": 0}}, "positive"),
        ({"client": {"sasl.user": "x"}}, "sasl.username"),
        ({"client": {"security.protocol": "SSL", "ssl.certificate.location": "own.pem"}}, "Mutual TLS"),
        ({"is_strict": "yes"}, "true nor false"),
        ({"location": ""}, "location"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_right(given: dict[str, object], told: str) -> None:
    with pytest.raises(OptionError) as caught:
        GatewayConfig.load(None, {**LEAST, **given})
    assert told in str(caught.value)
    assert "c4nary" not in str(caught.value)


def test_a_file_that_is_none_is_refused_without_its_text(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot be read"):
        GatewayConfig.load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("secret = c4nary")
    with pytest.raises(OptionError, match="not TOML") as caught:
        GatewayConfig.load(tmp_path / "bad.toml")
    assert "c4nary" not in str(caught.value)


def test_times_and_addresses() -> None:
    assert [parse_life(text) for text in ("15m", "90 s", "1h", 60)] == [900, 90, 3600, 60]
    assert parse_address("[::1]:9092", "x") == ("::1", 9092)
    assert parse_address(":9092", "x") == ("0.0.0.0", 9092)
    for text in ("host:0", "host:65536", "a b:1", "host", "::1:9092"):
        with pytest.raises(OptionError):
            parse_address(text, "x")


def test_ports_follow_the_node_ids_or_a_table() -> None:
    assert [PortPlan(9092, {}).port_of(node) for node in (0, 3, 60_000, -1)] == [9092, 9095, None, None]
    assert [PortPlan(9092, {7: 10}).port_of(node) for node in (7, 8)] == [10, None]
    with pytest.raises(OptionError, match="two brokers"):
        PortPlan(9092, {1: 10, 2: 10})


def test_every_setting_and_limit_is_in_the_document_and_no_other() -> None:
    text = DOCS.read_text(encoding="utf-8")
    settings = text[text.index("## Settings") : text.index("## Limits")]
    limits = text[text.index("## Limits") :]
    assert re.findall(r"^\| `([a-z_]+)` \|", settings, re.MULTILINE) == list(_PARSERS)
    assert re.findall(r"^\| `([a-z_]+)` \|", limits.split("\n## ")[0], re.MULTILINE) == [
        one.name for one in fields(Limits)
    ]
