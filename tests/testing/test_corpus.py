"""The corpus is whole, and its truth can be compared with what readers give."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from dataclasses import dataclass

import pytest
from corpus import CORPUS, Case, Digest, NormalRecord, case, cases, normal
from foreign import aiokafka_records

from segreader.format.batch import Record, TimestampType

ISOLATIONS = ("uncommitted", "committed")
READABLE = [case("tv2", "nulls"), case("tv2", "large"), case("tv2", "ts-append"), case("k39", "codec-snappy")]


@dataclass
class Consumed:
    """What a consumer gives: a record and where it comes from."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType | int | str
    leader_epoch: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def consumed(topic: str, record: Record, leader_epoch: int | None = 0) -> Consumed:
    return Consumed(
        topic,
        0,
        record.offset,
        record.timestamp_ms,
        record.timestamp_type,
        leader_epoch,
        record.key,
        record.value,
        record.headers,
    )


def test_the_sets_are_those_of_the_manifest() -> None:
    counts = Counter(case.set_name for case in cases())

    plugins = {"aiven-plain": 7, "aiven-zstd": 7, "aiven-encrypted": 8}
    assert counts == {"tv2": 34, "tv1": 11, "k39": 25, "legacy": 4, "cluster": 5} | plugins
    assert {path.name for path in CORPUS.iterdir()} == {*counts, "manifest.json"}


@pytest.mark.parametrize("case", cases(), ids=str)
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_the_truth_has_as_many_records_as_the_manifest_says(case: Case, isolation: str) -> None:
    truth = case.truth(isolation)
    facts = case.facts[isolation]

    assert len(truth) == facts["records"]
    for record in truth:
        partition = str(record.partition)
        assert facts["start"][partition] <= record.offset < facts["stop"][partition]


@pytest.mark.parametrize("case", cases(), ids=str)
def test_offsets_rise_and_the_committed_truth_is_part_of_the_other(case: Case) -> None:
    places = [(record.partition, record.offset) for record in case.truth()]

    assert places == sorted(set(places))
    assert set(case.truth("committed")) <= set(case.truth())


@pytest.mark.parametrize("case", cases(), ids=str)
def test_the_files_of_a_case_are_there(case: Case) -> None:
    for directory in case.remote:
        stems = {path.name.partition(".")[0] for path in directory.iterdir()}
        for stem in stems:
            names = {path.name.partition(".")[2] for path in directory.glob(f"{stem}.*")}
            assert names - {"txnindex"} == (
                {"log", "indexes", "rsm-manifest"}
                if case.set_name.startswith("aiven")
                else {"log", "index", "timeindex", "snapshot", "leader_epoch_checkpoint"}
            )
    for directory in case.local:
        assert (directory / "partition.metadata").read_text().endswith(case.topic_id)
    assert case.local
    assert all(path.is_relative_to(case.root / "remote") for path in case.remote)
    assert bool(case.remote) == any(facts["segments"] for facts in case.facts["offline"].values())


def test_files_of_no_bytes_are_kept() -> None:
    empty = [path for path in CORPUS.rglob("*.log") if path.stat().st_size == 0]

    assert any("compacted-then-tiered" in str(path) for path in empty)
    assert case("tv2", "compacted-then-tiered").remote_stop(0) > 54  # beyond the segment of 0 bytes


@pytest.mark.parametrize("case", READABLE, ids=str)
def test_what_a_foreign_library_reads_equals_the_truth(case: Case) -> None:
    logs = [log.read_bytes() for log in sorted(case.remote[0].glob("*.log"))]
    read = [normal(consumed(case.topic, record)) for log in logs for record in aiokafka_records(log)]

    assert read == [record for record in case.truth() if record.offset < case.remote_stop(0)]


@pytest.mark.parametrize("case", READABLE[:2], ids=str)
def test_a_line_of_json_and_an_object_have_one_normal_form(case: Case) -> None:
    for log in sorted(case.remote[0].glob("*.log")):
        for record in aiokafka_records(log.read_bytes()):
            given = consumed(case.topic, record)
            assert normal(json.loads(json.dumps(ndjson(given)))) == normal(given)


def ndjson(given: Consumed) -> dict[str, object]:
    def encode(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    assert isinstance(given.timestamp_type, TimestampType)
    return {
        "topic": given.topic,
        "partition": given.partition,
        "offset": given.offset,
        "timestamp": given.timestamp_ms,
        "timestamp_type": given.timestamp_type.java_name,
        "leader_epoch": given.leader_epoch,
        "key": encode(given.key),
        "value": encode(given.value),
        "headers": [{"key": name, "value": encode(value)} for name, value in given.headers],
    }


@pytest.mark.parametrize(("topic", "whole"), [("large", 512), ("multi", 64), ("multi-lane", 64)])
def test_long_payloads_are_compared_by_length_and_hash(topic: str, whole: int) -> None:
    at, above = b"v" * whole, b"v" * (whole + 1)
    given = Consumed(topic, 0, 0, 0, 0, 0, at, above)

    assert normal(given).key == at
    assert normal(given).value == Digest(whole + 1, hashlib.sha256(above).hexdigest())


@pytest.mark.parametrize("kind", [TimestampType.LOG_APPEND_TIME, 1, "LogAppendTime"])
def test_a_timestamp_type_may_be_a_number_or_a_name(kind: TimestampType | int | str) -> None:
    given = Consumed("t", 2, 3, 4, kind, -1, None, b"", (("h", None),))

    assert normal(given) == NormalRecord(2, 3, 4, "LogAppendTime", None, None, b"", (("h", None),))


def test_null_is_not_empty_in_the_normal_form() -> None:
    null, empty = (Consumed("t", 0, 0, 0, 0, 0, None, value) for value in (None, b""))

    assert normal(null) != normal(empty)
