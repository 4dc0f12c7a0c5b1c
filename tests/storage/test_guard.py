from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segreader.errors import StorageError, UntrustedLocationError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo
from segreader.storage.guard import AddressPolicy, check_peer, check_url
from segreader.storage.http.settings import HttpSettings
from segreader.storage.http.store import HttpStore
from segreader.storage.signed_url import SignedUrl

CLOUDS = AddressPolicy()
CANARY = "c4naryS1gnature"


@pytest.mark.parametrize(
    "url",
    [
        "https://bucket.s3.amazonaws.com/k?X-Amz-Signature=x",
        "https://s3.eu-west-1.amazonaws.com/bucket/k",
        "https://s3.cn-north-1.amazonaws.com.cn/bucket/k",
        "https://b.s3.amazonaws.com:443/k",
        "https://B.S3.AmazonAWS.com./k",
        "https://account.blob.core.windows.net/c/k?sig=x",
        "https://account.blob.core.usgovcloudapi.net/c/k",
        "https://storage.googleapis.com/b/k",
        "https://b.storage.googleapis.com/b/k@1",
        "https://s3.amazonaws.com/b/k",
        "https://a.b.c.s3.amazonaws.com/k",
        "https://s3-external-1.amazonaws.com/b/k",
        "https://s3-eu-west-1.amazonaws.com/b/k",
        "https://a.b.s3-us-west-2.amazonaws.com/k",
        "https://s3-fips-us-gov-west-1.amazonaws.com/b/k",
        "https://b.s3.dualstack.ap-southeast-7.amazonaws.com/k",
        "https://b.s3-fips.dualstack.us-gov-east-1.amazonaws.com/k",
        "https://b.s3-accelerate.amazonaws.com/k",
        "https://b.s3-accelerate.dualstack.amazonaws.com/k",
        "https://ap-123456789012.s3-accesspoint.eu-west-1.amazonaws.com/k",
        "https://ap-123456789012.s3-accesspoint.dualstack.cn-north-1.amazonaws.com.cn/k",
        "https://ap-123456789012.s3-accesspoint-fips.us-gov-west-1.amazonaws.com/k",
        "https://mfzwi23gnjvgw.mrap.accesspoint.s3-global.amazonaws.com/k",
        "https://b--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com/k",
        "https://b.bucket.vpce-1a2b3c4d-5e6f.s3.us-east-1.vpce.amazonaws.com/k",
        "https://bucket.vpce-1a2b3c4d-5e6f-us-east-1a.s3.us-east-1.vpce.amazonaws.com/b/k",
        "https://b.s3.eusc-de-east-1.amazonaws.eu/k",
        "https://b.s3.cn-northwest-1.amazonaws.com.cn/k",
        "https://account-secondary.blob.core.windows.net/c/k",
        "https://account.dfs.core.windows.net/c/k",
        "https://account.blob.core.chinacloudapi.cn/c/k",
        "https://account.z07.blob.storage.azure.net/c/k",
        "https://a.b.storage.googleapis.com/k",
    ],
)
def test_the_clouds_own_urls_pass(url: str) -> None:
    check_url(url, CLOUDS)
    check_url(SignedUrl(url), CLOUDS)


@pytest.mark.parametrize(
    "host",
    [
        "amazonaws.com",
        "amazonaws.com.cn",
        "ec2-203-0-113-7.compute-1.amazonaws.com",
        "ec2-203-0-113-7.eu-west-1.compute.amazonaws.com",
        "ec2-203-0-113-7.cn-north-1.compute.amazonaws.com.cn",
        "i-0123.us-west-2.compute.internal.amazonaws.com",
        "a1b2c3.execute-api.eu-west-1.amazonaws.com",
        "lb-123.eu-west-1.elb.amazonaws.com",
        "s3-123.elb.us-east-1.amazonaws.com",
        "s3.eu-west-1.elb.amazonaws.com",
        "s3.us-east-1.compute.amazonaws.com",
        "b.s3-website-us-east-1.amazonaws.com",
        "b.s3-website.eu-central-1.amazonaws.com",
        "123456789012.s3-control.eu-west-1.amazonaws.com",
        "fn-123456789012.s3-object-lambda.eu-west-1.amazonaws.com",
        "s3-accesspoint.eu-west-1.amazonaws.com",
        "s3express-control.us-east-1.amazonaws.com",
        "vpce-1a2b-3c4d.execute-api.us-east-1.vpce.amazonaws.com",
        "s3.vpce-1a2b-3c4d.vpce-svc-1234.us-east-1.vpce.amazonaws.com",
        "sqs.eu-west-1.amazonaws.com",
        "sts.amazonaws.com",
        "xs3.amazonaws.com",
        "s3x.amazonaws.com",
        "s3.x.amazonaws.com",
        "s3.eu-west-1.amazonaws.com.evil.example",
        "s3.eu-west-1.amazonaws.eu.com",
        "s3.eu-west-1xamazonaws.com",
        "blob.core.windows.net",
        "a.b.blob.core.windows.net",
        "account.web.core.windows.net",
        "account.file.core.windows.net",
        "account.z6.web.core.windows.net",
        "machine.westeurope.cloudapp.azure.com",
        "account.blob.storage.azure.net",
        "app.azurewebsites.net",
        "googleapis.com",
        "xstorage.googleapis.com",
        "run.googleapis.com",
        "www.googleapis.com",
        "storage.cloud.google.com",
        "metadata.google.internal",
    ],
)
def test_a_host_of_a_cloud_that_is_no_store_is_refused(host: str) -> None:
    with pytest.raises(UntrustedLocationError, match="not a cloud's store"):
        check_url(f"https://{host}/k", CLOUDS)
    check_url(f"https://{host}/k", CLOUDS.with_hosts([host]))


def test_every_host_that_botocore_signs_urls_for_passes() -> None:
    botocore = pytest.importorskip("botocore.session")
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    session, hosts = botocore.get_session(), set()
    forms: list[dict[str, object]] = [{}, {"use_dualstack_endpoint": True}, {"use_fips_endpoint": True}]
    forms += [{"s3": {"addressing_style": "path"}}, {"s3": {"use_accelerate_endpoint": True}}]
    for partition in ("aws", "aws-cn", "aws-us-gov", "aws-eusc"):
        for number, region in enumerate(session.get_available_regions("s3", partition)):
            for form in forms if number < 3 else forms[:1]:  # a region's names differ from another's by the region
                config = Config(signature_version="s3v4", **form)
                client = session.create_client(
                    "s3", region, aws_access_key_id="a", aws_secret_access_key="b", config=config
                )
                for bucket in ("b", "b.c.d", f"arn:aws:s3:{region}:123456789012:accesspoint/a", "b--use1-az4--x-s3"):
                    with contextlib.suppress(BotoCoreError):
                        url = client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "k"})
                        check_url(url, CLOUDS)
                        hosts.add(url.split("/")[2])

    assert len(hosts) > 100


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://b.s3.amazonaws.com/k", "http lets"),
        ("https://b.s3.amazonaws.com:8443/k", "not the port"),
        ("https://b.s3.amazonaws.com:0/k", "names no place"),
        ("https://evil.example/k", "not a cloud's store"),
        ("https://evilamazonaws.com/k", "not a cloud's store"),
        ("https://amazonaws.com.evil.example/k", "not a cloud's store"),
        ("https://evil.example/.amazonaws.com", "not a cloud's store"),
        ("https://localhost/k", "not a cloud's store"),
        ("https://8.8.8.8/k", "not a cloud's store"),
        ("https://user@b.s3.amazonaws.com/k", "user name"),
        ("https://b.s3.amazonaws.com@evil.example/k", "user name"),
        ("https://b.s3.amazonaws.com\\@evil.example/k", "understand differently"),
        ("https://b.s3.amazonaws.com/k\r\nHost: evil", "understand differently"),
        ("https://b.s3.amazonaws.com\t/k", "understand differently"),
        ("https://b.s3.amazonaws.com/a b", "understand differently"),
        (" https://b.s3.amazonaws.com/k", "understand differently"),
        ("https://evil.example#.amazonaws.com/k", "not a cloud's store"),
        ("https://evil.example?.amazonaws.com/k", "not a cloud's store"),
        ("https://evil.example%2f.amazonaws.com/k", "not a host name"),
        ("https://evil\u3002example/k", "not a host name"),
        ("https://\uff11\uff12\uff17.0.0.1/k", "not a host name|not a URL"),
        ("https://b..amazonaws.com/k", "not a host name"),
        ("file:///etc/passwd", "only https"),
        ("ftp://b.s3.amazonaws.com/k", "only https"),
        ("//b.s3.amazonaws.com/k", "only https"),
        ("gopher://127.0.0.1:6379/_x", "only https"),
        ("https:///k", "no place"),
        ("https://:443/k", "no place"),
        ("https://b.s3.amazonaws.com:x/k", "not a URL"),
        ("https://[::1/k", "not a URL"),
        ("", "only https"),
        ("https://b.s3.amazonaws.com/" + "k" * 70_000, "too long"),
        ("https://127.0.0.1/k", "loopback"),
        ("https://127.1/k", "loopback"),
        ("https://0177.0.0.1/k", "loopback"),
        ("https://0x7f000001/k", "loopback"),
        ("https://0x7f.1/k", "loopback"),
        ("https://2130706433/k", "loopback"),
        ("https://[::1]/k", "loopback"),
        ("https://[::ffff:127.0.0.1]/k", "loopback"),
        ("https://[::127.0.0.1]/k", "loopback"),
        ("https://[64:ff9b::7f00:1]/k", "loopback"),
        ("https://[2002:7f00:1::]/k", "loopback"),
        ("https://10.0.0.5/k", "private"),
        ("https://[::ffff:a00:5]/k", "private"),
        ("https://100.64.0.1/k", "private"),
        ("https://[fd12::1]/k", "private"),
        ("https://169.254.1.1/k", "link-local"),
        ("https://[fe80::1]/k", "link-local"),
        ("https://[fe80::1%25eth0]/k", "not a host name"),
        ("https://169.254.169.254/latest", "metadata"),
        ("https://0xa9fea9fe/latest", "metadata"),
        ("https://[::ffff:169.254.169.254]/latest", "metadata"),
        ("https://[fd00:ec2::254]/latest", "metadata"),
        ("https://0.0.0.0/k", "reserved"),
        ("https://0/k", "reserved"),
        ("https://[::]/k", "reserved"),
        ("https://224.0.0.1/k", "multicast"),
        ("https://255.255.255.255/k", "reserved"),
    ],
)
def test_a_url_from_outside_that_leads_elsewhere_is_refused(url: str, why: str) -> None:
    with pytest.raises(UntrustedLocationError, match=why):
        check_url(url, CLOUDS)


@pytest.mark.parametrize(
    "url",
    [
        f"https://evil.example/k?sig={CANARY}",
        f"https://user:{CANARY}@h/k",
        f"https://user:{CANARY}\u2100@h/k",
        f"https://h:{CANARY}/k",
        f"https://h:{CANARY} /k",
        f"file:///k?sig={CANARY}",
    ],
)
def test_a_refusal_shows_no_query_and_no_password(url: str) -> None:
    with pytest.raises(UntrustedLocationError) as caught:
        check_url(url, CLOUDS)
    assert CANARY not in f"{caught.value} {caught.value!r} {vars(caught.value)}"
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@given(st.text(max_size=60), st.sampled_from(["", "https://", "http://[", "https://b.s3.amazonaws.com"]))
def test_any_text_passes_or_is_refused(text: str, prefix: str) -> None:
    try:
        check_url(prefix + text, CLOUDS)
    except UntrustedLocationError:
        return
    assert prefix == "https://b.s3.amazonaws.com"


def test_a_configured_endpoint_may_be_plain_private_and_on_any_port_and_nothing_beside_it_may() -> None:
    policy = CLOUDS.with_endpoint("http://10.0.0.5:9000/bucket?x=1")
    check_url("http://10.0.0.5:9000/bucket/k", policy)
    check_peer("10.0.0.5", policy, url="http://10.0.0.5:9000/bucket/k")
    for other in ("http://10.0.0.5:9001/k", "https://10.0.0.5:9000/k", "http://10.0.0.6:9000/k"):
        with pytest.raises(UntrustedLocationError):
            check_url(other, policy)
    with pytest.raises(UntrustedLocationError, match="private"):
        check_peer("10.0.0.5", policy, url="https://b.s3.amazonaws.com/k")
    with pytest.raises(UntrustedLocationError, match="metadata"):
        check_peer("169.254.169.254", policy, url="http://10.0.0.5:9000/bucket/k")


@pytest.mark.parametrize(
    ("host", "allowed", "refused"),
    [
        ("minio.corp", "https://x.minio.corp/k", "https://minio.corp:9000/k"),
        ("*.minio.corp", "https://minio.corp/k", "http://minio.corp/k"),
        ("minio.corp:9000", "https://minio.corp:9000/k", "https://x.minio.corp:9000/k"),
        ("http://minio.corp:9000", "http://minio.corp:9000/k", "https://minio.corp:9000/k"),
        ("[2606:4700::1]:9000", "https://[2606:4700::1]:9000/k", "https://[2606:4700::1]/k"),
        ("2606:4700::1", "https://[2606:4700:0::1]/k", "https://[2606:4700::2]/k"),
    ],
)
def test_more_hosts_can_be_allowed(host: str, allowed: str, refused: str) -> None:
    policy = CLOUDS.with_hosts([host])
    check_url(allowed, policy)
    check_url("https://b.s3.amazonaws.com/k", policy)
    with pytest.raises(UntrustedLocationError):
        check_url(refused, policy)


@pytest.mark.parametrize("host", ["", "*", "a b", "http://", "user@h:1", ".", "a/b"])
def test_what_is_no_host_cannot_be_allowed(host: str) -> None:
    with pytest.raises(UntrustedLocationError):
        CLOUDS.with_hosts([host])


@pytest.mark.parametrize("address", ["52.216.1.1", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_a_public_peer_passes(address: str) -> None:
    check_peer(address, CLOUDS)


@pytest.mark.parametrize(
    ("address", "kind", "can_be_allowed"),
    [
        ("127.0.0.1", "loopback", True),
        ("::1", "loopback", True),
        ("192.168.1.1", "private", True),
        ("172.31.0.1", "private", True),
        ("100.127.0.1", "private", True),
        ("fc00::1", "private", True),
        ("fec0::1", "private", True),
        ("169.254.0.9", "link-local", False),
        ("fe80::1%eth0", "link-local", False),
        ("169.254.169.254", "metadata", False),
        ("::ffff:169.254.169.254", "metadata", False),
        ("fd00:ec2::254", "metadata", False),
        ("168.63.129.16", "metadata", False),
        ("100.100.100.200", "metadata", False),
        ("2001:0:808:808::f7f7:f7f7", "reserved", False),
        ("64:ff9b:1::1", "reserved", False),
        ("192.0.2.1", "reserved", False),
        ("240.0.0.1", "reserved", False),
        ("ff02::1", "multicast", False),
        ("no address", "no address", False),
    ],
)
def test_a_peer_that_is_not_public_is_refused_unless_private_ones_are_allowed(
    address: str, kind: str, can_be_allowed: bool
) -> None:
    with pytest.raises(UntrustedLocationError, match=kind):
        check_peer(address, CLOUDS)
    if can_be_allowed:
        check_peer(address, AddressPolicy(allow_private=True))
    else:
        with pytest.raises(UntrustedLocationError, match=kind):
            check_peer(address, AddressPolicy(allow_private=True))


class _Listener:
    """A server on loopback that keeps what is sent to it, and gives each request the same answer."""

    def __init__(self, answer: str = "206 Partial Content\r\nContent-Range: bytes 0-0/1") -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.heard = b""
        self.answer = f"HTTP/1.1 {answer}\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx".encode()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                peer, _ = self.socket.accept()
            except OSError:
                return
            with peer, contextlib.suppress(OSError):
                peer.settimeout(5)
                self.heard += peer.recv(4096)
                peer.sendall(self.answer)

    def __enter__(self) -> _Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


class _OneUrl:
    """Provides one URL for every name."""

    def __init__(self, url: str) -> None:
        self._url = SignedUrl(url)

    def url_for(self, name: str) -> SignedUrl:
        return self._url

    refresh = url_for

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return iter(())


def _read(url: str, settings: HttpSettings) -> bytes:
    with HttpStore(_OneUrl(url), settings=settings) as store:
        return store.read_ranges("k", [ByteRange(0, 1)])[0]


def _resolves_to_loopback(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    def getaddrinfo(host: str, *rest: object, **more: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_name_that_resolves_to_loopback_is_refused_before_a_byte_is_sent(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _Listener() as listener:
        _resolves_to_loopback(monkeypatch, listener.port)
        url = f"{scheme}://innocent.s3.amazonaws.com/k?X-Amz-Signature={CANARY}"
        with pytest.raises(UntrustedLocationError, match="loopback") as caught:
            _read(url, HttpSettings(policy=AddressPolicy(allow_http=True)))
        assert listener.heard == b""
        assert CANARY not in str(caught.value)


def test_the_same_address_is_asked_at_a_configured_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    with _Listener() as listener:
        _resolves_to_loopback(monkeypatch, listener.port)
        url = f"http://minio.corp:{listener.port}/k"
        assert _read(url, HttpSettings(policy=CLOUDS.with_endpoint(url))) == b"x"
        assert listener.heard.startswith(b"GET /k HTTP/1.1\r\n")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("place", ["http://127.0.0.1:{}/k", "http://169.254.169.254/latest", "file:///etc/passwd"])
def test_a_redirect_is_followed_nowhere(status: int, place: str) -> None:
    with _Listener() as elsewhere, _Listener(f"{status} Go\r\nLocation: {place.format(elsewhere.port)}") as first:
        url = f"http://127.0.0.1:{first.port}/k?sig={CANARY}"
        with pytest.raises(StorageError) as caught:
            _read(url, HttpSettings(policy=CLOUDS.with_endpoint(url), hedge_share=0))
        assert first.heard.count(b"GET ") == 1
        assert elsewhere.heard == b""
        assert CANARY not in str(caught.value)
