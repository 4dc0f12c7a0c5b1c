"""The output of ``kafka-dump-log``, parsed: every line finds its place, and it agrees with the files."""

from __future__ import annotations

import pytest
from corpus import CORPUS, case, cases
from foreign import aiokafka_records
from java_dump import DumpedFile, read_dump

SETS = ("tv2", "tv1", "k39", "legacy")


def dump(set_name: str) -> list[DumpedFile]:
    return read_dump(CORPUS / set_name / "dump" / "segments.txt.gz")


def test_a_batch_line_becomes_a_dict_of_strings() -> None:
    log = next(file for file in dump("tv2") if file.topic == "codec-gzip" and file.suffix == "log")
    first = log.batches[0]

    assert first.fields == {
        "baseOffset": "0",
        "lastOffset": "8",
        "count": "9",
        "baseSequence": "0",
        "lastSequence": "8",
        "producerId": "4004",
        "producerEpoch": "0",
        "partitionLeaderEpoch": "0",
        "isTransactional": "false",
        "isControl": "false",
        "deleteHorizonMs": "OptionalLong.empty",
        "position": "0",
        "CreateTime": "1764207443305",
        "size": "387",
        "magic": "2",
        "compresscodec": "gzip",
        "crc": "1822432083",
        "isvalid": "true",
    }
    assert first.records[2] == {
        "offset": "2",
        "CreateTime": "1764207443263",
        "keySize": "4",
        "valueSize": "40",
        "sequence": "2",
        "headerKeys": "trace,n",
        "key": "k000",
        "payload": "maple xenon stone fjord water night ston",
    }


def test_a_message_of_an_old_format_has_no_brace_after_its_crc() -> None:
    log = next(file for file in dump("legacy") if file.topic == "magic-mixed" and file.suffix == "log")

    assert log.batches[0].fields["crc"] == log.batches[0].records[0]["crc"] == "1224941944"
    assert "key" not in log.batches[8].records[0]
    assert log.batches[8].records[0]["payload"] == ""


def test_a_marker_names_its_outcome() -> None:
    markers = [
        record["endTxnMarker"]
        for file in dump("tv1")
        for batch in file.batches
        for record in batch.records
        if batch.fields["isControl"] == "true"
    ]

    assert markers == ["ABORT"]


def test_rows_of_other_files_become_dicts() -> None:
    by_suffix = {file.suffix: file for file in dump("tv1") if file.stem.startswith("0" * 20)}

    assert by_suffix["index"].entries == [{"offset": "9", "position": "466"}]
    assert by_suffix["timeindex"].entries[0] == {"timestamp": "1764182787125", "offset": "9"}
    assert by_suffix["snapshot"].entries[1]["currentTxnFirstOffset"] == "OptionalLong[0]"


@pytest.mark.parametrize("set_name", SETS)
def test_only_the_last_file_may_be_incomplete(set_name: str) -> None:
    """In three sets the tool failed at a segment with an empty offset index, and dumped nothing after it."""
    incomplete = [file for file in dump(set_name) if not file.is_complete]

    assert [file.suffix for file in incomplete] == ([] if set_name == "legacy" else ["timeindex"])
    assert incomplete in ([], dump(set_name)[-1:])


@pytest.mark.parametrize("set_name", SETS)
def test_a_dumped_log_has_as_many_batches_bytes_and_records_as_the_file(set_name: str) -> None:
    for file in dump(set_name):
        if file.suffix != "log":
            continue
        found = case(set_name, file.topic)
        folder = (found.remote or found.local)[0]
        data = (folder / f"{file.stem}.log").read_bytes()
        assert sum(int(batch.fields["size"]) for batch in file.batches) == len(data)
        records = sum(len(batch.records) for batch in file.batches if batch.fields.get("isControl") != "true")
        if file.topic not in ("magic0", "magic-mixed"):  # aiokafka reads no LZ4 in magic 0
            assert records == len(aiokafka_records(data))
        for batch in file.batches:
            if "count" in batch.fields:
                assert int(batch.fields["count"]) == len(batch.records)


def test_every_dumped_topic_is_a_case() -> None:
    for set_name in SETS:
        assert {file.topic for file in dump(set_name)} <= {case.topic for case in cases(set_name)}
