"""Nothing is found in what real brokers wrote, shallow or deep, with the metadata topic or without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from corpus import CORPUS, FIXTURES
from made import CorruptFile, MadeLog, corrupt_files, made_logs

from segreader.evidence.findings import Finding
from segreader.stored.source import Catalog, LocationSource
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import local_tiered_files, write_files
from segreader.verify.verify import verify

PLACES = [
    *((name, "remote/kafka-tiered-storage") for name in ("tv2", "tv1", "k39", "cluster")),
    *((name, "local") for name in ("tv2", "tv1", "k39", "cluster", "legacy")),
    *((name, "remote") for name in ("aiven-plain", "aiven-zstd", "aiven-encrypted")),
]
STATES: Mapping[str, set[str]] = {
    "tv2": {"re-created-topic", "compaction-gap", "deleted-topic-left"},
    "k39": {"compaction-gap"},
    "cluster": {"diverged-offsets", "duplicate-offsets"},
}
"""What is told of a set as info; of the others nothing is."""

BY_ERROR: Mapping[str, set[str]] = {
    "CorruptBatchError": {"crc-mismatch", "broken-batch", "undecodable-records", "garbage-tail"},
    "CorruptRecordError": {"undecodable-records"},
    "LimitExceededError": {"undecodable-records"},
    "TruncatedError": {"truncated-log", "zero-tail"},
    "UnsupportedCodecError": {"unsupported-codec"},
    "UnsupportedMagicError": {"unsupported-magic"},
}


def found(set_name: str, place: str, *, deep: bool, metadata: bool) -> list[Finding]:
    catalog = Catalog(
        metadata=CORPUS / set_name / "metadata" if metadata else None,
        rsm_config=FIXTURES / "aiven-encrypted.properties" if set_name == "aiven-encrypted" else None,
    )
    return list(verify(LocationSource(str(CORPUS / set_name / place), catalog=catalog), deep=deep))


@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
@pytest.mark.parametrize(("set_name", "place"), PLACES)
def test_nothing_is_found_in_what_brokers_wrote(set_name: str, place: str, deep: bool) -> None:
    findings = found(set_name, place, deep=deep, metadata=False)

    assert [one for one in findings if one.severity != "info"] == []
    assert {one.code.value for one in findings} <= STATES.get(set_name, set())


@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
@pytest.mark.parametrize(("set_name", "place"), [place for place in PLACES if place[1] != "local"])
def test_nothing_is_found_beside_the_metadata_topic(set_name: str, place: str, deep: bool) -> None:
    findings = found(set_name, place, deep=deep, metadata=True)

    assert [one for one in findings if one.severity != "info"] == []
    assert {one.code.value for one in findings} <= STATES.get(set_name, set())


def test_unclean_elections_and_created_topics_are_told() -> None:
    cluster = Counter(one.code.value for one in found("cluster", PLACES[3][1], deep=True, metadata=True))
    again = Counter(one.code.value for one in found("tv2", PLACES[0][1], deep=False, metadata=True))

    assert cluster["diverged-offsets"] >= 4
    assert again == {"re-created-topic": 1, "deleted-topic-left": 1}


@pytest.mark.parametrize("file", [file for file in corrupt_files("log") if "microseconds" not in file.name], ids=str)
def test_every_log_that_is_known_to_be_damaged_is_found_out(file: CorruptFile, tmp_path: Path) -> None:
    files = local_tiered_files("corrupt", [SegmentBuilder(0)])
    write_files(tmp_path, {path: file.path.read_bytes() if path.endswith(".log") else b for path, b in files.items()})

    codes = {one.code.value for one in verify(LocationSource(str(tmp_path)), deep=True) if one.severity == "error"}

    assert codes & BY_ERROR[file.error]


@pytest.mark.parametrize("log", made_logs(), ids=str)
def test_nothing_is_found_in_logs_that_are_sound(log: MadeLog, tmp_path: Path) -> None:
    (log.lay_out_local(tmp_path) / "expected.json").unlink()

    assert [one for one in verify(LocationSource(str(tmp_path)), deep=True) if one.severity != "info"] == []
