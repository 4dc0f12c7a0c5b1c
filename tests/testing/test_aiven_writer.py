"""What the kit writes as Aiven's plugin does, held against what the plugin wrote and against the worked example."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import aiven_vectors as vectors
import pytest
import zstandard
from corpus import CORPUS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from segreader.format.compression import Codec
from segreader.testing import SegmentBuilder
from segreader.testing.aiven import aiven_files, encode_chunk_sizes, write_rsm_config
from segreader.testing.directory import kafka_uuid


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> RSAPrivateKey:
    pem = vectors.write_private_key(tmp_path_factory.mktemp("key") / "key.pem").read_bytes()
    private = load_pem_private_key(pem, None)
    assert isinstance(private, RSAPrivateKey)
    return private


def two_segments() -> list[SegmentBuilder]:
    first = SegmentBuilder(500, leader_epoch=3, index_interval_bytes=1)
    first.batch([b"x" * 900], producer_id=1, transactional=True).batch([b"y" * 900])
    second = first.roll().new_leader(5).batch([b"c"]).marker(1, abort=True)
    return [first, second]


def manifests(files: dict[str, bytes]) -> list[dict[str, Any]]:
    return [json.loads(data) for name, data in files.items() if name.endswith(".rsm-manifest")]


def plain_indexes(segment: SegmentBuilder) -> list[bytes]:
    kinds = (segment.index(), segment.time_index(), segment.snapshot(), segment.leader_epoch_checkpoint())
    return [*kinds, segment.transaction_index()]


def shape(value: Any) -> Any:
    """The names of fields in their order, and the kinds of values."""
    if not isinstance(value, dict):
        return type(value).__name__
    return [(name if not name.isdecimal() else "0", shape(inner)) for name, inner in value.items()]


@pytest.mark.parametrize("set_name", ["aiven-plain", "aiven-zstd", "aiven-encrypted"])
def test_a_manifest_has_the_fields_of_a_real_one_in_their_order(set_name: str, key: RSAPrivateKey) -> None:
    real = [json.loads(path.read_bytes()) for path in sorted((CORPUS / set_name).rglob("*.rsm-manifest"))]
    encryption = ("key1", key.public_key()) if set_name == "aiven-encrypted" else None
    written = aiven_files("t", two_segments(), compression=set_name != "aiven-plain", encryption=encryption)
    shapes = [shape(manifest) for manifest in real if len(manifest["remoteLogSegmentMetadata"]) == 7]

    assert shape(manifests(written)[0]) in shapes


def test_names_are_the_prefix_the_path_and_a_suffix() -> None:
    stem = f"tieredt-{kafka_uuid('t')}/2/00000000000000000500-"
    segment_id = kafka_uuid("t", 2, kafka_uuid("t"), 500)
    names = list(aiven_files("t", two_segments()[:1], partition=2, key_prefix="tiered"))

    assert names == [f"{stem}{segment_id}.{suffix}" for suffix in ("log", "indexes", "rsm-manifest")]


def test_a_plain_log_is_kafkas_and_its_indexes_follow_each_other() -> None:
    first, second = two_segments()
    files = list(aiven_files("t", [first, second]).values())

    assert [files[0], files[3]] == [first.to_bytes(), second.to_bytes()]
    assert [files[1], files[4]] == [b"".join(plain_indexes(first)), b"".join(plain_indexes(second))]
    indexes = json.loads(files[2])["segmentIndexes"]
    assert indexes["transaction"] is None
    assert indexes["leaderEpoch"] == {"position": len(files[1]) - 10, "size": 10}
    assert json.loads(files[5])["segmentIndexes"]["transaction"]["size"] == 34


def test_a_manifest_tells_offsets_times_and_leaders() -> None:
    first, second = (one["remoteLogSegmentMetadata"] for one in manifests(aiven_files("t", two_segments())))

    assert (first["startOffset"], first["endOffset"], first["segmentLeaderEpochs"]) == (500, 501, {"3": 500})
    assert (second["startOffset"], second["endOffset"], second["segmentLeaderEpochs"]) == (502, 503, {"5": 502})
    assert first["maxTimestampMs"] == 1_700_000_000_501


def test_a_segment_keeps_the_epochs_that_reach_into_it() -> None:
    first = SegmentBuilder(10, leader_epoch=1).batch([b"a", b"b"])
    second = first.roll().batch([b"c"]).new_leader(4).batch([b"d"])

    told = [
        one["remoteLogSegmentMetadata"]["segmentLeaderEpochs"] for one in manifests(aiven_files("t", [first, second]))
    ]
    assert told == [{"1": 10}, {"1": 12, "4": 13}]


@pytest.mark.parametrize(
    ("sizes", "encoded"),
    [
        ([], "00000000"),
        ([7], "0000000100000007"),
        ([1000, 1300, 999, 50], "00000004 000003e7 02 0001 012d 0000 00000032"),
        ([4000000, 4100000, 3999999, 12], "00000004 003d08ff 03 000001 0186a1 000000 0000000c"),
        ([52, 63, 41], "00000003 00000034 01 00 0b 00000029"),
    ],
)
def test_lists_of_chunks_are_those_of_the_plugin(sizes: list[int], encoded: str) -> None:
    assert encode_chunk_sizes(sizes) == bytes.fromhex(encoded)


@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_chunks_give_the_log_back(compression: bool, is_encrypted: bool, key: RSAPrivateKey) -> None:
    (segment, _) = two_segments()
    encryption = ("key1", key.public_key()) if is_encrypted else None
    stored, indexes, manifest = aiven_files(
        "t", [segment], chunk_size=300, compression=compression, encryption=encryption
    ).values()
    facts = json.loads(manifest)
    chunks = facts["chunkIndex"]
    log = segment.to_bytes()
    count = -(-len(log) // 300)
    if compression:
        sizes = decoded_sizes(chunks["transformedChunks"])
    else:
        sizes = [chunks["transformedChunkSize"]] * (count - 1) + [chunks["finalTransformedChunkSize"]]
    assert (chunks["type"], len(sizes), sum(sizes)) == ("variable" if compression else "fixed", count, len(stored))

    def opened(data: bytes) -> bytes:
        if not is_encrypted:
            return data
        aad = base64.b64decode(facts["encryption"]["aad"])
        return AESGCM(unwrapped(facts["encryption"]["dataKey"])).decrypt(data[:12], data[12:], aad)

    plain = b""
    for size in sizes:
        chunk = opened(stored[:size])
        plain += zstandard.ZstdDecompressor().decompress(chunk, max_output_size=300) if compression else chunk
        stored = stored[size:]
    assert plain == log
    kinds = ("offset", "timestamp", "producerSnapshot", "leaderEpoch")
    for kind, data in zip(kinds, plain_indexes(segment), strict=False):
        part = facts["segmentIndexes"][kind]
        sealed = indexes[part["position"] : part["position"] + part["size"]]
        assert (opened(sealed) if sealed else b"") == data


def decoded_sizes(text: str) -> list[int]:
    data = zstandard.ZstdDecompressor().decompress(base64.b64decode(text))
    count, base, width = struct.unpack_from(">iib", data)
    others = [base + int.from_bytes(data[9 + at * width : 9 + (at + 1) * width]) for at in range(count - 1)]
    return [*others, int.from_bytes(data[-4:])]


def unwrapped(data_key: str) -> bytes:
    """By the arithmetic of RFC 8017, with the example's key."""
    key_id, _, wrapped = data_key.partition(":")
    assert key_id == "key1"
    block = pow(int.from_bytes(base64.b64decode(wrapped)), vectors.PRIVATE_EXPONENT, vectors.MODULUS).to_bytes(256)
    seed = bytes(a ^ b for a, b in zip(block[1:65], mask(block[65:], 64), strict=True))
    data = bytes(a ^ b for a, b in zip(block[65:], mask(seed, 191), strict=True))
    assert (block[0], data[:64]) == (0, hashlib.sha3_512(b"").digest())
    assert data[64:-32].strip(b"\0") == b"\1"
    return data[-32:]


def mask(seed: bytes, size: int) -> bytes:
    return b"".join(hashlib.sha3_512(seed + at.to_bytes(4)).digest() for at in range(3))[:size]


def test_the_same_log_gives_the_same_bytes_and_no_two_segments_share_a_key(key: RSAPrivateKey) -> None:
    def write() -> dict[str, bytes]:
        return aiven_files("t", two_segments(), compression=True, encryption=("key1", key.public_key()))

    assert write() == write()
    assert len({unwrapped(one["encryption"]["dataKey"]) for one in manifests(write())}) == 2


def test_the_heuristic_leaves_compressed_batches_alone() -> None:
    first = SegmentBuilder().batch([b"a"], codec=Codec.LZ4)
    second = first.roll().batch([b"b"])
    third = second.roll().message_set([b"c"], codec=Codec.GZIP)
    told = [one["compression"] for one in manifests(aiven_files("t", [first, second, third], compression="heuristic"))]

    assert told == [False, True, False]


def test_what_the_plugin_cannot_upload_is_not_there(key: RSAPrivateKey) -> None:
    first = SegmentBuilder().batch([b"a"])
    hollow = first.roll().skip(4)
    last = hollow.roll().batch([b"b"])
    log = [first, hollow, last, last.roll()]

    assert len(manifests(aiven_files("t", log))) == 3
    assert len(manifests(aiven_files("t", log, compression=True))) == 2
    assert len(manifests(aiven_files("t", log, encryption=("key1", key.public_key())))) == 2
    empty = manifests(aiven_files("t", log))[1]["chunkIndex"]
    assert (empty["originalFileSize"], empty["finalTransformedChunkSize"]) == (0, 0)


def test_the_settings_name_key_files_that_lie_beside_them(tmp_path: Path, key: RSAPrivateKey) -> None:
    text = write_rsm_config(tmp_path, key_prefix="tiered/", keys={"key1": key}).read_text()
    settings = dict(line.split("=", 1) for line in text.splitlines())

    assert settings["rsm.config.key.prefix"] == "tiered/"
    pem = (tmp_path / settings["rsm.config.encryption.key.pairs.key1.private.key.file"]).read_bytes()
    private = load_pem_private_key(pem, None)
    assert isinstance(private, RSAPrivateKey)
    assert private.private_numbers() == key.private_numbers()
