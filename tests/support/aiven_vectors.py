"""The worked example of the plugin's format as data, a store in memory that writes down its requests, and the objects.

Four variants of one segment of two batches: plain, encrypted, compressed, both. The plugin itself has read all of them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from segreader.errors import ObjectChangedError, ObjectNotFoundError, ShortReadError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo

STEM = "tiered/demo-MWJ6FHTfRYy67jzwZdeqSQ/0/00000000000000000500-tqimKeZwStOEOwRzT3L5oQ"

SEGMENT = bytes.fromhex(
    "00000000000001f4000000440000000302f9f51c530000000000000000018bcfe568000000018bcfe56800ffffffffffffff"
    "ffffffffffffff0000000124000000046b301476616c75652d7a65726f0000000000000001f50000004400000003020636f2"
    "850000000000000000018bcfe568010000018bcfe56801ffffffffffffffffffffffffffff0000000124000000046b311476"
    "616c75652d6f6e652100"
)
OFFSET_INDEX = bytes.fromhex("0000000100000050")
TIME_INDEX = bytes.fromhex("0000018bcfe5680100000001")
SNAPSHOT = bytes.fromhex("000148674bc700000000")
LEADER_EPOCHS = b"0\n1\n3 500\n"

DATA_KEY = bytes(range(0x20))
AAD = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="
WRAPPED_KEY = (
    "jYtSTzZDqpUIG+C3NH835GzAWK8+mS9gXeEWngHEMxVXZY5pk6rGLRnJ9DFYwos0A/KYodyXcN3M2PIJbkKu6xtbUpBCNZChsduH"
    "VFfDcjbUIiMZqWZPq6OrM1twrcUg7xnbFQLAL4reyx3v+XeCHVZQxzicwjkhS6tfCKrKOS5ozL06O/rfMe3GeIjYWRHQQVkBYaDU"
    "6KH1KJolcDUmrvr4cJGch0cv6CxpiYOeEicdVprfn4Y330jJXxegRXngC0VIRQwxSv/B7kk3sGLBozJw9NJ9lXsa4uvoUntPVIzw"
    "npOafNRYpb1CgiXhH2ZlcVad3q2aGV5N2cOzrcp5EQ=="
)
MODULUS = int(
    "c1d211314c0a6d27f74a98699659f3f247aabb9f4d9a6d361b98da33fffde3c39da8a845ca38a1a17e906f23013a24fdeed9"
    "16958e664b4b2ac0dac81c31cb379618b89b99e11669831f7105af5e82befc54604c685553232a5831b855b611bd76ca3ab2"
    "3cc8c2a5b495c0c1958978fc5587609aba22d18d7049252496220c6d8e61df1263b7b853c81c6701197f7fed0b8dfc7cbf8e"
    "0cc806f58d0834b0d2fe579f06d4d9b4d99ee073845f154ab208351cf321d93f0418f582201e1a4c779fb86b2c943b3ce810"
    "167da936ab680cc2274dc3d23a09672d96767ea1a1abe9cc13dc1bcc44bb4f7d292ef637dde8114b06864acf02bf02cb1624"
    "9a5091bda7d7",
    16,
)
PRIVATE_EXPONENT = int(
    "aee3de9f9cfdcb8144a30ae43bc6ef58af525ffa5f0bf97fd967137dd8804005433dec990ce00cf8ac3ba80cee0e89529933"
    "4a2da950a4a02ef3d676bafa3364f50b59890e510ce828693692eaab5d4ef8612a83c7a1366384d2100b454c04b5f17a897c"
    "4b5cdc46a9ac774236acd57edbae4c7d5178199e86b379d089a82f8d17bb13e2dc63be069adc0a42ddb65bfa55b794f05abd"
    "4ea88893f1bf81c0950f2d009fda52d70ab884dde034810f694fa0bd415f7e0cbafeec35bc80aa7eb293afc559340589cfda"
    "277c44093a156a284ab403adfe7b6be553ddf3418d3a14758e443f714b12f9097cc392e98018bab36380e6d7d3eb338cf761"
    "ccaa9079b9",
    16,
)

PLAIN_INDEXES = "AAAAAQAAAFAAAAGLz+VoAQAAAAEAAUhnS8cAAAAAMAoxCjMgNTAwCg=="
SEALED_INDEXES = (
    "sLCwsLCwsLCwsLCw+rL8S57KnvqmylyEDxKQF/2FCVdoFM9YsbGxsbGxsbGxsbGxtfq6PYDk4bZc2wgGLVuQIWZRKE6Jws2GYmnS"
    "9rKysrKysrKysrKysrlIVWQowSedwB9rgPmjwetYDJzQsFIdceYNs7Ozs7Ozs7Ozs7Ozxu2xqVjfzkTZYH1CD5KEYDjfWIqIyygN"
    "tS8="
)
SEALED_LOG = (
    "oKCgoKCgoKCgoKCgJbFi477ETym5UY7G7T/wrcdBbPnh7SkbCQ5FMmIVhqKNyngrzzRdB+gEV1nOUIVKSahpUKQ8P2mQVeA6aKmL"
    "gPvLG3oK0sp+qpciBynvBSGhoaGhoaGhoaGhoaGlxJBux2gQuLF4jDeNSqjXcTFdQ1rp8R1LK9Dk083g1jRjjMwuX73rKH/xk/27"
    "lBbEAEmWe033A33+VQZCeB8+TP3lf7fBoW+dVBx7owdxNKKioqKioqKioqKioqpx5/2yxYQT9kERtT0QcXbLpTzrxoM+5PLja6RR"
    "Rjdbv9XJklz7pPjygO68gUZlFA=="
)
ZSTD_LOG = (
    "KLUv/SBAXQEA+AAAAfQAAABEAAAAAwL59RxTAAGLz+Vo/wAAAAEkAAAEALgjVooGclkACyi1L/0gQLUBALQCAARrMBR2YWx1ZS16"
    "ZXJvAAH1AAAARAAAAAMCBjbyhQABi8/laAH//////wMAK6QAeRnAEii1L/0gIAEBAP///////////wAAAAEkAAAABGsxFHZhbHVl"
    "LW9uZSEA"
)
SEALED_ZSTD_LOG = (
    "oKCgoKCgoKCgoKCgDQRNHp6EE9y5qY6C7MvwrsX8meWy7ivi/BIWMmOfwogAXXgrzzTyyA1oVx4S+fCzxA6WpM5R+XPy3SWZAGiC"
    "9aWzCDOhoaGhoaGhoaGhoaGNddSj817E1cSpo03sU/fDB1AxNj/Eio05RNChJs3g1XJluj6oXbvd2vrxknZ1+rEgl7dphLN/zLMy"
    "VICkR/KBXbR+a9Aaq6YHmeLvpEoAoqKioqKioqKioqKifTs3/20aeu0Jvu5Kw8uOiTReV9rS9HuIh4ZCoA43YDoijPFEhzgE/8Eu"
    "rsGdY7JeTG4QWIRj8CY4"
)

_FIXED = {"type": "fixed", "originalChunkSize": 64, "originalFileSize": 160}
_VARIABLE = {"type": "variable", "originalChunkSize": 64, "originalFileSize": 160}
CHUNK_INDEXES: dict[str, dict[str, Any]] = {
    "plain": {**_FIXED, "transformedChunkSize": 64, "finalTransformedChunkSize": 32},
    "encrypted": {**_FIXED, "transformedChunkSize": 92, "finalTransformedChunkSize": 60},
    "compressed": {**_VARIABLE, "transformedChunks": "KLUv/SAPeQAAAAAAAwAAADQBAAsAAAAp"},
    "both": {**_VARIABLE, "transformedChunks": "KLUv/SAPeQAAAAAAAwAAAFABAAsAAABF"},
}
VARIANTS = tuple(CHUNK_INDEXES)

_PLAIN_SIZES = (8, 12, 10, 10)
_KINDS = ("offset", "timestamp", "producerSnapshot", "leaderEpoch")


def manifest(variant: str = "plain") -> dict[str, Any]:
    """The manifest of a variant, as the plugin's JSON has it."""
    is_encrypted = variant in ("encrypted", "both")
    parts: dict[str, Any] = {"transaction": None}
    position = 0
    for kind, size in zip(_KINDS, _PLAIN_SIZES, strict=True):
        size += 28 if is_encrypted else 0
        parts[kind] = {"position": position, "size": size}
        position += size
    return {
        "version": "1",
        "chunkIndex": dict(CHUNK_INDEXES[variant]),
        "segmentIndexes": parts,
        "compression": variant in ("compressed", "both"),
        **({"encryption": {"dataKey": f"key1:{WRAPPED_KEY}", "aad": AAD}} if is_encrypted else {}),
        "remoteLogSegmentMetadata": {
            "remoteLogSegmentId": {
                "topicIdPartition": {
                    "topicId": "MWJ6FHTfRYy67jzwZdeqSQ",
                    "topicPartition": {"topic": "demo", "partition": 0},
                },
                "id": "tqimKeZwStOEOwRzT3L5oQ",
            },
            "startOffset": 500,
            "endOffset": 501,
            "maxTimestampMs": 1700000000001,
            "brokerId": 1,
            "eventTimestampMs": 1700000100000,
            "segmentLeaderEpochs": {"3": 500},
        },
    }


def objects(variant: str = "plain", stem: str = STEM) -> dict[str, bytes]:
    """The three objects of a variant."""
    logs = {"encrypted": SEALED_LOG, "compressed": ZSTD_LOG, "both": SEALED_ZSTD_LOG}
    indexes = SEALED_INDEXES if variant in ("encrypted", "both") else PLAIN_INDEXES
    return {
        f"{stem}.log": base64.b64decode(logs[variant]) if variant in logs else SEGMENT,
        f"{stem}.indexes": base64.b64decode(indexes),
        f"{stem}.rsm-manifest": json.dumps(manifest(variant)).encode(),
    }


def with_manifest(stored: dict[str, bytes], changed: dict[str, Any], stem: str = STEM) -> dict[str, bytes]:
    """The same objects with another manifest."""
    return {**stored, f"{stem}.rsm-manifest": json.dumps(changed).encode()}


def write_private_key(path: Path) -> Path:
    """The example's private key as a PEM file."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    p, q = rsa.rsa_recover_prime_factors(MODULUS, 65537, PRIVATE_EXPONENT)
    key = rsa.RSAPrivateNumbers(
        p=p,
        q=q,
        d=PRIVATE_EXPONENT,
        dmp1=rsa.rsa_crt_dmp1(PRIVATE_EXPONENT, p),
        dmq1=rsa.rsa_crt_dmq1(PRIVATE_EXPONENT, q),
        iqmp=rsa.rsa_crt_iqmp(p, q),
        public_numbers=rsa.RSAPublicNumbers(65537, MODULUS),
    ).private_key()
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


class RequestLog:
    """A store in memory. ``requests`` has a line for each object asked for, and the bytes of it."""

    def __init__(self, stored: dict[str, bytes], piece_size: int = 1 << 20) -> None:
        self.stored = stored
        self.requests: list[str] = []
        self.piece_size = piece_size

    def url(self, name: str) -> str:
        return f"s3://bucket/{name}"

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self.requests.append(f"LIST {prefix}")
        for name in sorted(self.stored):
            if name.startswith(prefix):
                yield ObjectInfo(name, len(self.stored[name]))

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        raise AssertionError("a layout does not walk the tree")

    def size(self, name: str) -> int:
        return len(self._object(name))

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        return [b"".join(bytes(piece) for piece in self.read_pieces(name, wanted)) for wanted in ranges]

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        buffer[:] = self.read_ranges(name, [ByteRange(start, start + len(buffer))])[0]

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        data = self._object(name)
        self.requests.append(f"GET {name.rpartition('.')[2]} {wanted.http_header()}")
        if expected_size not in (None, len(data)):
            raise ObjectChangedError("the object is not the one that was listed", source=self.url(name))
        if wanted.stop > len(data):
            raise ShortReadError("the object ends before the range does", source=self.url(name))
        for start in range(wanted.start, wanted.stop, self.piece_size):
            buffer = bytearray(data[start : min(start + self.piece_size, wanted.stop)])
            yield memoryview(buffer)
            buffer[:] = bytes(len(buffer))  # a piece is valid until the next is asked for

    def close(self) -> None:
        pass

    def _object(self, name: str) -> bytes:
        if name not in self.stored:
            raise ObjectNotFoundError("no such object", source=self.url(name))
        return self.stored[name]
