"""``partition.metadata``: two lines, and a topic id that is one."""

from __future__ import annotations

import pytest

from segreader.errors import CorruptIndexError
from segreader.format.checkpoints import PartitionMetadataFile, parse_partition_metadata

TOPIC_ID = "LWgrMmVrT0a__7a4SasuPA"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (f"version: 0\ntopic_id: {TOPIC_ID}", 0),
        (f"version: 0\ntopic_id: {TOPIC_ID}\n", 0),
        (f"version: 0\r\ntopic_id: {TOPIC_ID}\r\n", 0),
        (f"version: 3\ntopic_id:   {TOPIC_ID}==\nmore: x\n", 3),
    ],
)
def test_the_topic_id_is_read_from_any_version(text: str, version: int) -> None:
    assert parse_partition_metadata(text.encode()) == PartitionMetadataFile(version, TOPIC_ID)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"version: 0",
        b"version: -1\ntopic_id: LWgrMmVrT0a__7a4SasuPA",
        b"version: 2147483648\ntopic_id: LWgrMmVrT0a__7a4SasuPA",
        b"version: x\ntopic_id: LWgrMmVrT0a__7a4SasuPA",
        b"version: 0\ntopic_id: LWgrMmVrT0a__7a4SasuP",
        b"version: 0\ntopic_id: LWgrMmVrT0a__7a4SasuPAA",
        b"version: 0\ntopic_id: LWgrMmVrT0a//7a4SasuPA",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"topic_id: LWgrMmVrT0a__7a4SasuPA\nversion: 0",
        b"\xff\xfe\x00",
    ],
)
def test_anything_else_is_corrupt(text: bytes) -> None:
    with pytest.raises(CorruptIndexError):
        parse_partition_metadata(text)


def test_one_topic_id_has_one_text() -> None:
    spare_bits = b"version: 0\ntopic_id: LWgrMmVrT0a__7a4SasuPB"

    assert parse_partition_metadata(spare_bits).topic_id == TOPIC_ID
