"""The pages for operators: Prometheus can read the metrics, their names stay, and health is what it is."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from gateway_process import connected, echo, list_groups, page, require_prometheus, running
from gateway_upstream import relayed, run
from located_broker import CANARY, Leader, asked, flagged, located_over
from servers.process import free_port

from segreader import __version__
from segreader.errors import OptionError
from segreader.gateway.metrics import BOUNDS_S, GatewayMetrics, Refused

pytestmark = pytest.mark.usefixtures("prometheus")

NAMES = {
    "segreader_gateway_connections_total",
    "segreader_gateway_open_connections",
    "segreader_gateway_refused_connections_total",
    "segreader_gateway_requests_total",
    "segreader_gateway_relayed_bytes_total",
    "segreader_gateway_failed_connections_total",
    "segreader_gateway_locations_given_total",
    "segreader_gateway_locations_refused_total",
    "segreader_gateway_index_reads_total",
    "segreader_gateway_index_read_bytes_total",
    "segreader_gateway_signatures_total",
    "segreader_gateway_probe_seconds_bucket",
    "segreader_gateway_probe_seconds_sum",
    "segreader_gateway_probe_seconds_count",
    "segreader_gateway_catalogue_lag_seconds",
    "segreader_gateway_catalogue_errors",
}
"""Those of the first release: dashboards use them."""


@pytest.fixture
def prometheus() -> None:
    require_prometheus()


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every value by name and labels, as Prometheus reads them."""
    from prometheus_client.parser import text_string_to_metric_families

    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_the_names_of_the_first_release_stay_and_process_and_build_are_there() -> None:
    metrics = GatewayMetrics(catalogue=lambda: {"lag_seconds": 1.5, "errors": 0})
    for counts in (metrics.requests, metrics.failed):
        counts["x"] += 1
    metrics.refused[Refused.LOCAL] += 2
    metrics.limits_reached["connections_per_address"] += 3
    found = samples(metrics.text())
    names = {name for name, _ in found}
    assert names >= NAMES
    assert found["segreader_gateway_locations_refused_total", (("cause", "offset is local"),)] == 2
    assert found["segreader_gateway_limits_reached_total", (("limit", "connections_per_address"),)] == 3
    ((_, labels),) = [one for one in found if one[0] == "segreader_gateway_build_info"]
    assert dict(labels) == {
        "version": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "extension": "1",
    }
    if sys.platform == "linux":
        assert found["process_resident_memory_bytes", ()] > 1 << 20
        assert found["process_open_fds", ()] > 0
        assert names >= {"process_max_fds", "process_cpu_seconds_total", "process_start_time_seconds"}


def test_the_page_of_metrics_counts_and_knows_its_paths() -> None:
    async def slow(request: bytes) -> bytes:
        await asyncio.sleep(0.03)
        return echo(request)

    async def test() -> None:
        port = free_port()
        async with running(slow, metrics_listen=("127.0.0.1", port)) as (gateway, _):
            client = await connected(gateway.config.listen_port)
            await client.ask(list_groups())
            while not gateway.metrics.request_s:
                await asyncio.sleep(0.01)
            head, _, body = (await page(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK")
            assert b"text/plain; version=0.0.4" in head
            found = samples(body.decode())
            assert found["segreader_gateway_connections_total", ()] == 1
            assert found["segreader_gateway_requests_total", (("api", "ListGroups"),)] == 1
            relayed_bytes = found["segreader_gateway_relayed_bytes_total", (("direction", "to_brokers"),)]
            assert relayed_bytes == len(list_groups())
            name = "segreader_gateway_request_seconds"
            for bound in (*map(str, BOUNDS_S), "+Inf"):
                is_below = float(bound) < 0.03
                if is_below or float(bound) > 1:
                    assert found[f"{name}_bucket", (("api", "ListGroups"), ("le", bound))] == (not is_below)
            assert found[f"{name}_count", (("api", "ListGroups"),)] == 1
            assert 0.03 <= found[f"{name}_sum", (("api", "ListGroups"),)] < 5
            assert (await page(port, b"GET /other HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404")
            assert await page(port, bytes(20_000)) == b""

    run(test)


def test_a_located_fetch_is_timed_once_and_no_secret_is_in_the_page(tmp_path: Path) -> None:
    made = located_over(tmp_path)

    async def test() -> None:
        async with relayed(Leader(), locating=made.fetch) as around:
            await asked(around, flagged((0, 42)))
            found = samples(around.metrics.text())
            assert found["segreader_gateway_request_seconds_count", (("api", "Fetch"),)] == 1
            text = around.metrics.text() + made.metrics.text()
            assert CANARY not in text
            assert "c4nary" not in text

    run(test)


def test_without_the_package_the_next_step_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    async def test() -> None:
        with pytest.raises(OptionError, match="prometheus-client") as caught:
            async with running(metrics_listen=("127.0.0.1", free_port())):
                pass
        assert "pip install 'prometheus-client" in str(caught.value)

    run(test)


def test_the_pages_of_health() -> None:
    async def test() -> None:
        port = free_port()
        async with running(metrics_listen=("127.0.0.1", port)) as (gateway, _):
            assert (await page(port, b"GET /healthz HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\nok\n")
            assert (await page(port, b"HEAD /healthz HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\n")
            told = await page(port, b"GET /readyz HTTP/1.1\r\n\r\n")
            assert told.startswith(b"HTTP/1.1 200 OK")
            assert told.endswith(b'{"ready": true, "brokers": true, "catalogue": true, "running": true}\n')
            gateway._reached_s = (gateway._reached_s or 0) - 31  # no broker was reached for so long
            told = await page(port, b"GET /readyz HTTP/1.1\r\n\r\n")
            assert told.startswith(b"HTTP/1.1 503 ")
            assert b'"brokers": false' in told
            await (await connected(gateway.config.listen_port)).ask(list_groups())
            assert (await page(port, b"GET /readyz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")

    run(test)
