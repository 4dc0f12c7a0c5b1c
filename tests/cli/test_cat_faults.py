"""``segreader cat`` of URLs whose server, or whose way there, misbehaves: records or an error, and no wrong record."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_server import FaultServer

from segreader.cli.main import main
from segreader.testing.builder import SegmentBuilder

LOG = "00000000000000000000.log"
VALUES = [f"{number:05d}".encode() * 30 for number in range(3000)]


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    built = SegmentBuilder()
    for at in range(0, len(VALUES), 100):
        built.batch(VALUES[at : at + 100])
    with FaultServer(built.to_bytes()) as server:
        yield server


def cat(
    server: FaultServer, scenario: str, list_of_urls: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> tuple[int, list[int], str]:
    """Exit code, offsets and stderr of ``cat @urls.txt``."""
    list_of_urls.write_text(f"{server.origin}/bkt/{scenario}/{scenario}/{LOG}?X-Amz-Signature=canary-signature\n")
    code = main(["cat", f"@{list_of_urls}", f"--storage-option=allow_hosts={server.origin}", "-o", "ndjson"])
    out, err = capsysbinary.readouterr()
    assert b"canary" not in out + err
    return int(code), [json.loads(line)["offset"] for line in out.splitlines()], err.decode()


@pytest.mark.parametrize("scenario", ["clean", "transfer-title", "interim-103x2", "resetevery-64"])
def test_records_come_in_spite_of(
    server: FaultServer, scenario: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, offsets, err = cat(server, scenario, tmp_path / "urls.txt", capsysbinary)

    assert (code, err) == (0, "")
    assert offsets == list(range(len(VALUES)))


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        ("transfer-identity", "found Transfer-Encoding 'identity', expected none, or chunked alone"),
        ("transferbroken-gzipchunked", "found Transfer-Encoding 'gzip, chunked', expected none, or chunked alone"),
        ("transferlater-length", "and a Content-Length, expected none, or chunked alone"),
        ("head-nocolon", "the answer is not HTTP that can be read"),
        ("interim-103x0", "the answer is not HTTP that can be read"),
    ],
)
def test_no_record_but_an_error_comes_from(
    server: FaultServer, scenario: str, said: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, offsets, err = cat(server, scenario, tmp_path / "urls.txt", capsysbinary)

    assert (code, offsets) == (4, [])
    assert said in err


def test_bytes_that_come_one_by_one_end_with_the_tries(
    server: FaultServer, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, offsets, err = cat(server, "byteatatime", tmp_path / "urls.txt", capsysbinary)

    assert (code, offsets) == (4, [])
    # a byte a try; a hedge, which a slow machine may send, drops one
    assert re.search(r"the answer ends early; found [56] bytes, expected 65536 bytes", err)


@pytest.mark.parametrize(
    "host", ["ec2-203-0-113-7.eu-west-1.compute.amazonaws.com", "a1b2c3.execute-api.eu-west-1.amazonaws.com"]
)
def test_a_list_may_not_name_a_machine_or_a_gateway_of_a_cloud(
    host: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    urls = tmp_path / "urls.txt"
    urls.write_text(f"https://{host}/topic-0/{LOG}?X-Amz-Signature=canary-signature\n")

    assert main(["cat", f"@{urls}"]) == 4
    out, err = capsysbinary.readouterr()
    assert out == b""
    assert b"this host is not a cloud's store" in err
    assert b"canary" not in err
