"""A fragment pickles without a secret, and another process reads what this one would."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from corpus import CORPUS, FIXTURES
from servers.pool import ServerPool

from segreader.errors import CorruptBatchError, ObjectChangedError, OptionError
from segreader.plan.request import Request
from segreader.storage.signed_url import Secret
from segreader.tables.dataset import TopicDataset, open_dataset
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered

ROOT = Path(__file__).parents[2]
REMOTE = CORPUS / "tv2" / "remote"
READ = """
import pickle, sys
import pyarrow as pa
fragments = pickle.load(sys.stdin.buffer)
table = pa.concat_tables(one.to_table() for one in fragments)
with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as stream:
    stream.write_table(table)
"""


def read_elsewhere(data: bytes, cwd: Path, **environ: str) -> pa.Table:
    """What another process, in another directory, reads of pickled fragments."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SEGREADER_"))}
    done = subprocess.run(
        [sys.executable, "-c", READ],
        input=data,
        capture_output=True,
        cwd=cwd,
        env={**known, "PYTHONPATH": str(ROOT), **environ},
    )
    assert done.returncode == 0, done.stderr.decode()
    return pa.ipc.open_stream(done.stdout).read_all()


def through_pickle(dataset: TopicDataset) -> list[Any]:
    return [pickle.loads(pickle.dumps(one)) for one in dataset.get_fragments()]


def test_another_process_reads_pickled_fragments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REMOTE.parent)
    dataset = open_dataset(REMOTE.name, split_bytes=4096)
    fragments = list(dataset.get_fragments())
    assert len(fragments) > 4
    assert read_elsewhere(pickle.dumps(fragments), tmp_path).equals(dataset.to_table())


@pytest.mark.parametrize(
    "arguments", [{"isolation_level": "read_uncommitted"}, {"columns": ["offset", "is_transactional"]}]
)
def test_a_fragment_out_of_a_pickle_reads_as_the_one_that_went_in(arguments: dict[str, Any]) -> None:
    dataset = open_dataset(REMOTE, split_bytes=4096, **arguments)
    odd = pc.bit_wise_and(pc.field("offset"), 1) == 1
    for before, after in zip(dataset.get_fragments(), through_pickle(dataset), strict=True):
        assert after.to_table(filter=odd).equals(before.to_table(filter=odd))
        assert after.count_rows() == before.count_rows()
        assert after.physical_schema.equals(before.physical_schema)


def test_damage_of_the_plan_and_of_the_bytes_is_met_after_a_pickle(tmp_path: Path) -> None:
    sound, second = SegmentBuilder().batch([b"a"]), SegmentBuilder().batch([b"b"]).batch([b"c"])
    damaged = bytearray(second.to_bytes())
    damaged[-2] ^= 1
    write_local_tiered(tmp_path, "t", [sound])
    write_local_tiered(tmp_path, "t", [SegmentBuilder().raw(bytes(damaged))], partition=1)
    first, broken = through_pickle(open_dataset(tmp_path))
    assert first.count_rows() == 1
    with pytest.raises(CorruptBatchError):
        broken.to_table()
    _, skipping = through_pickle(open_dataset(tmp_path, on_corrupt="skip"))
    assert skipping.to_table()["value"].to_pylist() == [b"b"]
    assert (len(skipping.metrics.holes), skipping.metrics.records) == (1, 1)


def test_fragments_pickled_together_open_one_store_and_close_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from segreader.storage.local import LocalStore

    opened, closed = [], []
    init = LocalStore.__init__

    def count(store: LocalStore, *arguments: Any) -> None:
        opened.append(1)
        init(store, *arguments)

    data = pickle.dumps(list(open_dataset(REMOTE, topic="multi").get_fragments()))
    monkeypatch.setattr(LocalStore, "__init__", count)
    monkeypatch.setattr(LocalStore, "close", lambda store: closed.append(1))
    fragments = pickle.loads(data)
    assert (len(fragments) > 1, opened) == (True, [])
    assert sum(one.count_rows() for one in fragments) > 0
    assert (opened, closed) == ([1], [])
    del fragments
    gc.collect()
    assert closed == [1]


SECRET = "hunter2secret"


@pytest.mark.parametrize(
    ("location", "options", "found"),
    [
        ("s3://bucket/logs", {"key": "AKID", "secret": SECRET}, "key, secret"),
        ("s3://bucket/logs", {"aws_access_key_id": "AKID", "aws_secret_access_key": Secret(SECRET)}, "key, secret"),
        ("s3://bucket/logs", {"client_kwargs": {"verify": False}, "key": "AKID", "password": SECRET}, "key, secret"),
        ("memory://logs", {"whatever": SECRET}, "whatever"),
    ],
)
def test_a_secret_in_the_options_is_refused_with_what_to_do_instead(
    location: str, options: dict[str, object], found: str
) -> None:
    from segreader.stored.source import Catalog, SourceAddress

    with pytest.raises(OptionError, match="cannot travel to another process") as caught:
        pickle.dumps(SourceAddress(location, options, Catalog()))
    assert caught.value.found == found
    assert caught.value.hint is not None
    assert ("SEGREADER_STORAGE_KEY" if location.startswith("s3") else "fsspec") in caught.value.hint
    assert SECRET not in str(caught.value) + repr(caught.value.__dict__)


@pytest.mark.parametrize("name", ["location", "metadata", "leader_epochs"])
def test_a_place_with_a_credential_in_it_is_refused(name: str) -> None:
    from segreader.stored.source import Catalog, SourceAddress

    place = f"sftp://me:{SECRET}@host/logs"
    location = place if name == "location" else "s3://bucket/logs"
    catalog = Catalog() if name == "location" else Catalog(**{name: place})
    with pytest.raises(OptionError, match=f"{name} holds a credential") as caught:
        pickle.dumps(SourceAddress(location, None, catalog))
    assert SECRET not in str(caught.value)


def test_what_is_no_secret_travels_and_nothing_else() -> None:
    from segreader.stored.source import Catalog, SourceAddress

    options = {"region_name": "eu-west-1", "endpoint": "https://minio.corp", "path_style": "true", "profile": "ours"}
    _, (location, travels, catalog) = SourceAddress("s3://b/logs", options, Catalog(metadata="m")).__reduce__()
    assert location == "s3://b/logs"
    assert travels == {
        "region": "eu-west-1",
        "endpoint_url": "https://minio.corp",
        "addressing_style": "path",
        "profile": "ours",
    }
    assert catalog == Catalog(metadata=str(Path.cwd() / "m"))


def test_a_fragment_of_a_store_that_the_program_opened_is_refused(tmp_path: Path) -> None:
    from segreader.scans import Scan
    from segreader.storage.local import LocalStore
    from segreader.stored.source import LocationSource

    write_local_tiered(tmp_path, "t", [SegmentBuilder().batch([b"a"])])
    opened = LocationSource(str(tmp_path), opened=(LocalStore(tmp_path), ""))
    (fragment,) = TopicDataset(Scan(opened, Request(topic="t"))).get_fragments()
    with pytest.raises(OptionError, match="signed URLs, or of a store that the program opened"):
        pickle.dumps(fragment)


@pytest.mark.xdist_group("servers")
def test_a_bucket_is_read_with_the_credentials_of_the_other_process(
    servers: ServerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = tmp_path / "tier"
    write_local_tiered(tier, "t", [SegmentBuilder().batch([b"a", b"b"])])
    server = servers.get("moto")
    files = [one for one in tier.rglob("*") if one.is_file()]
    server.upload({f"travel/{one.relative_to(tier)}": one.read_bytes() for one in files})
    options = dict(server.storage_options)
    location = f"s3://{server.bucket}/travel"
    (refused,) = open_dataset(location, storage_options=options).get_fragments()
    with pytest.raises(OptionError, match="cannot travel to another process"):
        pickle.dumps(refused)
    secrets = {name: str(options.pop(name)) for name in ("key", "secret")}
    variables = {f"SEGREADER_STORAGE_{name.upper()}": value for name, value in secrets.items()}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    data = pickle.dumps(list(open_dataset(location, storage_options=options).get_fragments()))
    assert not [value for value in secrets.values() if value.encode() in data]
    assert read_elsewhere(data, tmp_path, **variables)["value"].to_pylist() == [b"a", b"b"]


@pytest.mark.parametrize("root", ["tv2", "k39", "aiven-zstd", "aiven-encrypted"])
def test_fragments_of_any_layout_and_of_a_log_directory_are_read_after_a_pickle(root: str) -> None:
    rsm_config = FIXTURES / "aiven-encrypted.properties" if root == "aiven-encrypted" else None
    dataset = open_dataset(CORPUS / root / "remote", log_directory=CORPUS / root / "local", rsm_config=rsm_config)
    for before, after in zip(dataset.get_fragments(), through_pickle(dataset), strict=True):
        assert after.to_table().equals(before.to_table())
    assert dataset.last_plan is not None
    assert {one.log.startswith("log-directory:") for one in dataset.last_plan.splits} == {True, False}


def test_a_segment_that_was_replaced_since_the_pickle_is_an_error(tmp_path: Path) -> None:
    place = write_local_tiered(tmp_path, "t", [SegmentBuilder().batch([b"a"])])
    (fragment,) = through_pickle(open_dataset(tmp_path))
    (log,) = place.glob("*.log")
    os.utime(log, (1, 1))
    with pytest.raises(ObjectChangedError, match="plan again"):
        fragment.to_table()
