"""TLS and proxies: whom the store talks to, and that nothing else is believed or followed."""

from __future__ import annotations

import contextlib
import datetime
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from fault_server import FaultServer
from fault_urls import open_store, read

from segreader.errors import OptionError, StorageError, UntrustedLocationError, WrongAnswerError
from segreader.ranges import ByteRange
from segreader.storage.guard import AddressPolicy

AUTHORITY = trustme.CA()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="module")
def ca_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(path)
    return str(path)


def serving(certificate: trustme.LeafCert) -> FaultServer:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return FaultServer(tls=context)


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    with serving(AUTHORITY.issue_cert("localhost")) as server:
        yield server


def test_a_custom_authority_is_trusted_and_the_bytes_are_right(server: FaultServer, ca_file: str) -> None:
    with open_store(server, allow_http=False, ca_file=ca_file, range_size=50_000, in_flight=4) as store:
        assert read(store, "clean/tls") == server.data[:600_000]


@pytest.mark.parametrize("scenario", ["resetmid", "finmid", "stallmid", "rstbefore", "stallhead", "cuthead"])
def test_tls_connections_that_break_are_taken_up_where_they_broke(
    server: FaultServer, ca_file: str, scenario: str
) -> None:
    with open_store(server, allow_http=False, ca_file=ca_file, idle_timeout_s=0.5) as store:
        assert read(store, f"{scenario}/tls-{scenario}") == server.data[:600_000]

    assert store.metrics.bytes_got == 600_000


def test_a_tls_read_that_is_closed_ends_at_once(server: FaultServer, ca_file: str) -> None:
    def attempt(turn: int) -> bool:
        with open_store(server, ca_file=ca_file, range_size=100_000, in_flight=6, floor_rate=0) as store:
            pieces = store.read_pieces(f"dripbehind/tls-closed-{turn}", ByteRange(0, 1_000_000))
            next(pieces)
            closing = threading.Thread(target=pieces.close)
            closing.start()
            closing.join(1)
            has_ended = not closing.is_alive()
            closing.join()
        return has_ended

    assert any(attempt(turn) for turn in range(5))  # the machine may be busy with something else once


def test_an_authority_that_is_not_trusted_is_refused_before_a_request(server: FaultServer) -> None:
    with open_store(server) as store, pytest.raises(StorageError, match="certificate is not trusted") as caught:
        read(store, "clean/self-signed")

    assert "ca_file" in str(caught.value)
    assert server.log("self-signed") == []


def test_a_certificate_for_another_host_is_refused(ca_file: str) -> None:
    with (
        serving(AUTHORITY.issue_cert("elsewhere.example")) as server,
        open_store(server, ca_file=ca_file) as store,
        pytest.raises(StorageError, match="certificate is not trusted"),
    ):
        read(store, "clean/other-host")
    assert server.log("other-host") == []


def test_a_certificate_that_has_ended_is_refused(ca_file: str) -> None:
    long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    with (
        serving(AUTHORITY.issue_cert("localhost", not_after=long_ago)) as server,
        open_store(server, ca_file=ca_file) as store,
        pytest.raises(StorageError, match="expired"),
    ):
        read(store, "clean/ended")
    assert server.log("ended") == []


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_any_certificate_is_taken_only_when_told_to_and_with_a_warning(server: FaultServer) -> None:
    with pytest.warns(UserWarning, match="not verified"), open_store(server, verify=False) as store:
        assert read(store, "clean/unverified", 0, 10) == server.data[:10]


def test_plain_http_must_be_allowed() -> None:
    with FaultServer() as server, open_store(server, allow_http=False) as store:
        with pytest.raises(UntrustedLocationError, match="only https"):
            read(store, "clean/plain")
        assert server.connections == 0


def test_an_address_that_the_policy_refuses_is_not_asked(server: FaultServer, ca_file: str) -> None:
    """The name is allowed; what it resolves to is this machine."""
    policy = AddressPolicy(allow_clouds=False, host_suffixes=("localhost",), ports=frozenset({server.port}))
    with (
        open_store(server, ca_file=ca_file, policy=policy) as store,
        pytest.raises(UntrustedLocationError, match="loopback"),
    ):
        read(store, "clean/rebound")
    assert server.log("rebound") == []


def test_a_host_that_the_policy_does_not_name_is_not_even_connected_to(ca_file: str) -> None:
    with (
        serving(AUTHORITY.issue_cert("localhost")) as server,
        open_store(server, ca_file=ca_file, policy=AddressPolicy()) as store,
    ):
        with pytest.raises(UntrustedLocationError):
            read(store, "clean/unnamed")
        assert server.connections == 0


def test_an_address_that_the_policy_allows_is_asked(server: FaultServer, ca_file: str) -> None:
    policy = AddressPolicy().with_endpoint(server.origin)
    with open_store(server, ca_file=ca_file, policy=policy) as store:
        assert read(store, "clean/allowed", 0, 10) == server.data[:10]


@pytest.mark.parametrize("where", ["host", "metadata", "file", "moved"])
def test_a_redirect_is_not_followed(ca_file: str, where: str) -> None:
    """S2."""
    with serving(AUTHORITY.issue_cert("localhost")) as server:  # its own: others count connections of other tests late
        with open_store(server, ca_file=ca_file) as store, pytest.raises(WrongAnswerError, match="redirects elsewhere"):
            read(store, f"redirect-{where}/redirect-{where}")

        assert server.connections == 1
        assert server.log(f"redirect-{where}-elsewhere") == []


class Proxy:
    """A forward proxy: ``CONNECT`` and absolute URLs, one connection after another."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(65536)
        self.heads.append(head.decode())
        method, target, _ = head.decode().split("\r\n")[0].split(" ")
        place = target if method == "CONNECT" else target.split("/")[2]
        with client, socket.create_connection((place.split(":")[0], int(place.split(":")[1]))) as server:
            if method == "CONNECT":
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                server.sendall(head)
            with contextlib.suppress(OSError):
                while True:
                    for one in select.select([client, server], [], [])[0]:
                        data = one.recv(65536)
                        if not data:
                            return
                        (server if one is client else client).sendall(data)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()


def test_tls_goes_through_the_proxy_of_the_environment(
    server: FaultServer, ca_file: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:pass%20word@127.0.0.1:{proxy.port}")
    with open_store(server, ca_file=ca_file) as store:
        assert read(store, "clean/proxied") == server.data[:600_000]

    assert proxy.heads[0].startswith(f"CONNECT localhost:{server.port}")
    assert "Basic bWU6cGFzcyB3b3Jk" in proxy.heads[0]
    assert "canary" not in "".join(proxy.heads)
    assert "proxy-authorization" not in server.log("proxied")[0].headers


def test_plain_http_goes_through_the_proxy_of_the_environment(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
    with FaultServer() as server, open_store(server) as store:
        assert read(store, "clean/proxied-plain") == server.data[:600_000]

    assert proxy.heads[0].startswith(f"GET {server.origin}/bkt/clean/proxied-plain?")


def test_a_host_of_no_proxy_is_asked_directly(
    server: FaultServer, ca_file: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    with open_store(server, ca_file=ca_file) as store:
        assert read(store, "clean/direct", 0, 10) == server.data[:10]

    assert proxy.heads == []


def test_a_proxy_that_is_not_there_is_an_error_without_its_password(
    server: FaultServer, ca_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:canary-password@127.0.0.1:1")
    with (
        open_store(server, ca_file=ca_file, tries=2) as store,
        pytest.raises(StorageError, match="proxy") as caught,
    ):
        read(store, "clean/no-proxy", 0, 10)

    assert "canary" not in str(caught.value)


def test_a_missing_ca_file_is_told_by_its_name(server: FaultServer, tmp_path: Path) -> None:
    with (
        open_store(server, ca_file=str(tmp_path / "none.pem")) as store,
        pytest.raises(OptionError, match=r"none\.pem"),
    ):
        read(store, "clean/no-ca", 0, 10)
