"""Segments as Aiven's tiered-storage plugin uploads them: plain, in zstd chunks, encrypted, or both; and its settings.

Written apart from ``segreader.catalog`` on purpose, so that a mistake there is not repeated here. Whatever the plugin
draws at random is made from the names, so that the same log gives the same bytes: nothing here keeps a secret.
Source: ``RemoteStorageManager``, ``SegmentManifestV1``, ``ChunkSizesBinaryCodec``, ``RsaEncryptionProvider`` of the
plugin (1.1).
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import zstandard

from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid
from segreader.testing.records import FIRST_TIMESTAMP_MS

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

_HASH_SIZE = 64
_UPLOAD_MS = 60_000
_CODEC_BITS = 0x07


def aiven_files(
    topic: str,
    segments: Sequence[SegmentBuilder],
    *,
    partition: int = 0,
    topic_id: str | None = None,
    key_prefix: str = "",
    chunk_size: int = 1 << 10,
    compression: bool | Literal["heuristic"] = False,
    encryption: tuple[str, RSAPublicKey] | None = None,
    broker_id: int = 1,
) -> dict[str, bytes]:
    """Key -> bytes, of finished segments: a log, all its indexes in one object, and a manifest for each.

    Args:
        topic_id: made from the topic's name, unless given.
        key_prefix: precedes each key as it is.
        chunk_size: bytes of the plain log in each chunk but the last.
        compression: ``heuristic`` compresses a segment only if its first batch is not compressed.
        encryption: id of a key pair, and its public key, which wraps the data key of every segment.

    What the plugin cannot upload is left out: a segment without an offset, and an empty one in chunks that are
    compressed or encrypted.
    """
    topic_id = topic_id or kafka_uuid(topic)
    files: dict[str, bytes] = {}
    ends = [segment.base_offset for segment in segments[1:]] + [segment.next_offset for segment in segments[-1:]]
    for segment, end in zip(segments, ends, strict=True):
        log = segment.to_bytes()
        is_compressed = _is_compressed(log, compression)
        if end <= segment.base_offset or (not log and (is_compressed or encryption)):
            continue
        segment_id = kafka_uuid(topic, partition, topic_id, segment.base_offset)
        stem = f"{topic}-{topic_id}/{partition}/{segment.base_offset:020d}-{segment_id}"
        seal = None if encryption is None else _Seal(stem, *encryption)
        chunk_index, stored = _store_chunks(log, chunk_size, is_compressed, seal)
        parts, indexes = _store_indexes(segment, seal)
        manifest: dict[str, object] = {
            "version": "1",
            "chunkIndex": chunk_index,
            "segmentIndexes": parts,
            "compression": is_compressed,
        }
        if seal is not None:
            manifest["encryption"] = {"dataKey": seal.wrapped_key, "aad": _base64(seal.aad)}
        manifest["remoteLogSegmentMetadata"] = {
            "remoteLogSegmentId": {
                "topicIdPartition": {"topicId": topic_id, "topicPartition": {"topic": topic, "partition": partition}},
                "id": segment_id,
            },
            "startOffset": segment.base_offset,
            "endOffset": end - 1,
            "maxTimestampMs": _max_timestamp_ms(segment),
            "brokerId": broker_id,
            "eventTimestampMs": FIRST_TIMESTAMP_MS + end + _UPLOAD_MS,
            "segmentLeaderEpochs": _epochs_within(segment, end),
        }
        files[f"{key_prefix}{stem}.log"] = stored
        files[f"{key_prefix}{stem}.indexes"] = indexes
        files[f"{key_prefix}{stem}.rsm-manifest"] = json.dumps(
            manifest, separators=(",", ":"), ensure_ascii=False
        ).encode()
    return files


def write_rsm_config(
    directory: Path,
    *,
    key_prefix: str = "",
    keys: Mapping[str, RSAPrivateKey] | None = None,
    prefix: str = "rsm.config.",
) -> Path:
    """A broker's properties file with the plugin's settings, and the key files it names beside it; its path.

    Args:
        keys: the pairs on the ring, by their ids; the first one is the active one.
        prefix: precedes each setting.
    """
    settings = {
        "chunk.size": str(4 << 20),
        "key.prefix": key_prefix,
        "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
        "storage.root": str(directory),
        "encryption.enabled": "true" if keys else "false",
    }
    if keys:
        settings |= {"encryption.key.pair.id": next(iter(keys)), "encryption.key.pairs": ",".join(keys)}
    for key_id, key in (keys or {}).items():
        private, public = _pem(key)
        for kind, pem in (("private", private), ("public", public)):
            (directory / f"{key_id}.{kind}.pem").write_bytes(pem)
            settings[f"encryption.key.pairs.{key_id}.{kind}.key.file"] = f"{key_id}.{kind}.pem"
    path = directory / "server.properties"
    path.write_text("".join(f"{prefix}{name}={value}\n" for name, value in settings.items()))
    return path


def encode_chunk_sizes(sizes: Sequence[int]) -> bytes:
    """The list of stored sizes: a count, the smallest size but for the last one's, differences to it, the last size."""
    if len(sizes) < 2:
        return struct.pack(f">{1 + len(sizes)}i", len(sizes), *sizes)
    *others, last = sizes
    base = min(others)
    width = max(1, ((max(others) - base).bit_length() + 7) // 8)
    differences = b"".join((size - base).to_bytes(width, "big") for size in others)
    return struct.pack(">iib", len(sizes), base, width) + differences + struct.pack(">i", last)


class _Seal:
    """What encrypts one segment."""

    def __init__(self, stem: str, key_id: str, public_key: RSAPublicKey) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._stem = stem
        self._count = 0
        data_key = self._drawn("data key", 32)
        self.aad = self._drawn("aad", 32)
        self._aes = AESGCM(data_key)
        numbers = public_key.public_numbers()
        size = (numbers.n.bit_length() + 7) // 8
        block = _pad_oaep(data_key, self._drawn("seed", _HASH_SIZE), size)
        wrapped = pow(int.from_bytes(block), numbers.e, numbers.n).to_bytes(size)
        self.wrapped_key = f"{key_id}:{_base64(wrapped)}"

    def close(self, data: bytes) -> bytes:
        """Initialisation vector, encrypted bytes, tag."""
        self._count += 1
        vector = self._drawn(f"iv {self._count}", 12)
        return vector + self._aes.encrypt(vector, data, self.aad)

    def _drawn(self, what: str, size: int) -> bytes:
        return hashlib.shake_256(f"{self._stem}\0{what}".encode()).digest(size)


def _pad_oaep(message: bytes, seed: bytes, size: int) -> bytes:
    """A block of OAEP with SHA3-512 and no label. Source: RFC 8017, section 7.1.1."""
    data = hashlib.sha3_512(b"").digest()
    data += bytes(size - len(message) - 2 * _HASH_SIZE - 2) + b"\1" + message
    masked = _masked(data, seed)
    return b"\0" + _masked(seed, masked) + masked


def _masked(data: bytes, seed: bytes) -> bytes:
    mask = b""
    while len(mask) < len(data):
        mask += hashlib.sha3_512(seed + struct.pack(">I", len(mask) // _HASH_SIZE)).digest()
    return bytes(a ^ b for a, b in zip(data, mask, strict=False))


def _is_compressed(log: bytes, compression: bool | Literal["heuristic"]) -> bool:
    if compression == "heuristic":
        attributes_at = 22 if log[16:17] == b"\2" else 17  # the low byte of two
        return bool(log) and not log[attributes_at] & _CODEC_BITS
    return compression


def _store_chunks(
    log: bytes, chunk_size: int, is_compressed: bool, seal: _Seal | None
) -> tuple[dict[str, object], bytes]:
    """The chunk index, and the stored log."""
    steps: list[Callable[[bytes], bytes]] = []
    if is_compressed:
        steps.append(zstandard.ZstdCompressor().compress)
    if seal is not None:
        steps.append(seal.close)
    chunks = []
    for at in range(0, len(log), chunk_size):
        chunk = log[at : at + chunk_size]
        for step in steps:
            chunk = step(chunk)
        chunks.append(chunk)
    index: dict[str, object] = {
        "type": "variable" if is_compressed else "fixed",
        "originalChunkSize": chunk_size,
        "originalFileSize": len(log),
    }
    if is_compressed:
        sizes = encode_chunk_sizes([len(chunk) for chunk in chunks])
        index["transformedChunks"] = _base64(zstandard.ZstdCompressor().compress(sizes))
    else:
        index["transformedChunkSize"] = chunk_size + (28 if seal else 0)
        index["finalTransformedChunkSize"] = len(chunks[-1]) if chunks else 0
    return index, b"".join(chunks)


def _store_indexes(segment: SegmentBuilder, seal: _Seal | None) -> tuple[dict[str, object], bytes]:
    """The place of each index, and the object with all of them."""
    plain: dict[str, bytes | None] = {
        "offset": segment.index(),
        "timestamp": segment.time_index(),
        "producerSnapshot": segment.snapshot(),
        "leaderEpoch": segment.leader_epoch_checkpoint(),
        "transaction": segment.transaction_index() or None,
    }
    parts: dict[str, object] = {}
    stored = b""
    for kind, data in plain.items():
        if data is None:
            parts[kind] = None
            continue
        part = seal.close(data) if seal is not None and data else data
        parts[kind] = {"position": len(stored), "size": len(part)}
        stored += part
    return parts, stored


def _epochs_within(segment: SegmentBuilder, end: int) -> dict[str, int]:
    """Each leader epoch of the segment, and its first offset there."""
    starts = [(epoch, max(start, segment.base_offset)) for epoch, start in segment.leader_epochs if start < end]
    own = [one for at, one in enumerate(starts) if at + 1 == len(starts) or starts[at + 1][1] > segment.base_offset]
    return {str(epoch): start for epoch, start in own or [(max(segment.leader_epoch, 0), segment.base_offset)]}


def _max_timestamp_ms(segment: SegmentBuilder) -> int:
    times = segment.time_index()
    return int(struct.unpack(">q", times[-12:-4])[0]) if times else -1


def _pem(key: RSAPrivateKey) -> tuple[bytes, bytes]:
    """The private and the public file of a pair."""
    from cryptography.hazmat.primitives import serialization as form

    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    return private, key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
