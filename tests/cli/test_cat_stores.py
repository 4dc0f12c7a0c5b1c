"""``segreader cat`` on a signed URL that somebody typed, and what it tells of its cost."""

from __future__ import annotations

import json

import pytest
from corpus import case, normal
from servers.objects import tiered_topics
from servers.pool import ServerPool

from segreader.cli.main import main

pytestmark = pytest.mark.xdist_group("servers")


@pytest.mark.parametrize("name", ["swift", "azurite"])
def test_a_signed_url_of_one_segment_prints_its_records(
    servers: ServerPool, name: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    server, objects = servers.get(name), tiered_topics("txn-span")
    server.upload({f"one/{key}": data for key, data in objects.items()})
    log = sorted(key for key in objects if key.endswith(".log"))[1]
    url = server.signed_url(f"one/{log}")
    arguments = ["--isolation", "read_uncommitted", "--value-encoding", "base64", "--key-encoding", "base64"]
    assert main(["cat", url, *arguments, "--stats"]) == 0
    printed, told = capsysbinary.readouterr()
    records = [normal(json.loads(line)) for line in printed.splitlines()]
    first, last = records[0].offset, records[-1].offset
    truth = case("tv2", "txn-span").truth("uncommitted")
    assert records == [record for record in truth if first <= record.offset <= last]
    stats = dict(line.split() for line in told.decode().splitlines())
    assert int(stats["records"]) == len(records)
    assert int(stats["requests"]) >= 1
    query = url.partition("?")[2]
    assert query
    assert not any(part.encode() in told for part in query.split("&") if len(part) > 12)
