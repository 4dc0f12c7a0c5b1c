"""Commands on a bucket and on a signed URL that somebody typed, and what they tell of their cost."""

from __future__ import annotations

import json

import pytest
from corpus import case, normal
from servers.objects import TIERED, tiered_topics
from servers.pool import ServerPool

from segreader.cli.main import main
from segreader.storage.http.pacing import HedgePolicy

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
    stations = sum(float(stats[f"cpu_{name}_s"]) for name in ("read", "crc", "decompress", "records", "arrow"))
    assert 0 < stations < float(stats["cpu_seconds"])
    assert 0 < float(stats["first_record_s"]) <= float(stats["seconds"])
    query = url.partition("?")[2]
    assert query
    assert not any(part.encode() in told for part in query.split("&") if len(part) > 12)


def test_a_plan_counts_the_requests_that_it_took_and_foretells_those_of_the_read(
    servers: ServerPool, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HedgePolicy, "allow", lambda _: False)  # a slow answer is not asked for twice
    server = servers.get("swift")
    server.upload({f"planned/{key}": data for key, data in tiered_topics("txn-span").items()})
    options = [f"--storage-option={name}={value}" for name, value in server.storage_options.items()]
    location = ["s3://segments/planned", "txn-span", *options]

    assert main(["plan", *location, "-o", "json"]) == 0
    out, _ = capsysbinary.readouterr()
    (plan,) = json.loads(out)
    assert main(["cat", *location, "--stats", "-o", "ndjson"]) == 0
    _, told = capsysbinary.readouterr()
    stats = dict(line.split() for line in told.decode().splitlines())

    cost = plan["cost"]
    assert cost["requests"] == cost["objects"] == len(list(TIERED.glob("txn-span-*/*.log")))
    assert int(stats["requests"]) == cost["planning_requests"] + cost["requests"]
    assert int(stats["bytes_read"]) == cost["size"]
    assert main(["ls", *location, "-o", "ndjson"]) == 0
    (partition,) = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert partition["segments"] == cost["objects"]
    secret = str(server.storage_options["secret"]).encode()
    assert secret not in out
