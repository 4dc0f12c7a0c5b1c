"""What the page on running a gateway shows to copy: settings that load, commands, ports and paths that exist."""

from __future__ import annotations

import configparser
import contextlib
import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from gateway_process import connected, list_groups, running
from gateway_upstream import run
from pages import DOCS, blocks

from segreader.cli.commands.gateway import gateway
from segreader.gateway.config import GatewayConfig, Limits

PAGE = (DOCS / "how-to" / "gateway.md").read_text(encoding="utf-8")
(CONFIG_MAP, DEPLOYMENT, SERVICE) = (found for text in blocks(PAGE, "yaml") for found in yaml.safe_load_all(text))
MOUNTED = CONFIG_MAP["data"]["gateway.toml"]


@pytest.mark.parametrize("text", [*blocks(PAGE, "toml"), MOUNTED])
def test_every_configuration_of_the_page_loads(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_PASSWORD", "c4nary")
    assert GatewayConfig.load(None, tomllib.loads(text)).location == "s3://logs/tiered"


def test_the_unit_starts_reloads_and_has_files_for_all_clients() -> None:
    (text,) = blocks(PAGE, "ini")
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read_string(text)
    service = unit["Service"]
    program, command, option, _ = shlex.split(service["ExecStart"])
    assert (Path(program).name, command) == ("segreader", "gateway")
    assert option in {name for one in gateway.params for name in one.opts}
    assert "-HUP" in service["ExecReload"]
    assert int(service["LimitNOFILE"]) > 2 * Limits().connections + 200
    assert int(service["TimeoutStopSec"]) > 10  # the default of drain


def test_the_container_has_the_extra_of_the_metrics_and_runs_the_command() -> None:
    (text,) = blocks(PAGE, "dockerfile")
    assert "/src[s3,gateway]" in text
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    assert yaml.safe_load(entry)[:3] == ["segreader", "gateway", "--config"]


def test_the_manifests_agree_with_the_configuration_and_with_each_other() -> None:
    config = tomllib.loads(MOUNTED)
    pod = DEPLOYMENT["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    ports: dict[str, Any] = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert config["listen"].endswith(f":{ports['kafka']}")
    assert config["metrics_listen"].endswith(f":{ports['metrics']}")
    assert [one["targetPort"] for one in SERVICE["spec"]["ports"]] == ["kafka"]
    assert [one["port"] for one in SERVICE["spec"]["ports"]] == [ports["kafka"]]  # clients are sent to it
    labels = pod["metadata"]["labels"]
    assert SERVICE["spec"]["selector"] == DEPLOYMENT["spec"]["selector"]["matchLabels"] == labels
    paths = {probe: container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")}
    assert paths == {"livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert {one["name"] for one in container["env"]} == set(re.findall(r"env:(\w+)", MOUNTED))
    mounts = {one["mountPath"] for one in container["volumeMounts"]}
    assert {"/etc/segreader/gateway.toml", "/etc/segreader/tls"} <= mounts
    assert {str(Path(config[name]).parent) for name in ("certificate", "key")} <= mounts
    assert pod["spec"]["terminationGracePeriodSeconds"] > 20


def open_files() -> set[tuple[str, str]]:
    """Those of this process; what else runs in it may close some of its own meanwhile."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted by /proc")
def test_a_client_takes_two_open_files() -> None:
    async def test() -> None:
        async with running() as (found, _):
            before = open_files()
            for _ in range(20):
                await (await connected(found.config.listen_port)).ask(list_groups())
            # Two of the gateway; the client and the broker are in this process, too.
            assert len(open_files() - before) == 20 * 4

    run(test)
