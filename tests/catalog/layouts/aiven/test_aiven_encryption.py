from __future__ import annotations

import base64
import hashlib
import pickle
import sys
from pathlib import Path

import aiven_vectors as vectors
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from segreader.catalog.layouts.aiven.encryption import KeyRing, SegmentCipher, load_private_key, mgf1, remove_oaep
from segreader.catalog.layouts.aiven.manifest import EncryptionMetadata
from segreader.errors import DecryptionError, OptionError

AAD = base64.b64decode(vectors.AAD)
WRAPPED = base64.b64decode(vectors.WRAPPED_KEY)
METADATA = EncryptionMetadata("key1", WRAPPED, AAD)
CHUNK = bytes.fromhex(
    "a2a2a2a2a2a2a2a2a2a2a2a2aa71e7fdb2c58413f64111b53d107176cba53cebc6833ee4f2e36ba45146375b"
    "bfd5c9925cfba4f8f280eebc81466514"
)
PLAIN_CHUNK = bytes.fromhex("ffffffffffffffffff0000000124000000046b311476616c75652d6f6e652100")


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vectors.write_private_key(tmp_path_factory.mktemp("keys") / "key1.pem")


@pytest.fixture
def cipher(key_file: Path) -> SegmentCipher:
    return SegmentCipher(METADATA, KeyRing({"key1": key_file}))


def padded(message: bytes, size: int, seed: bytes = bytes(64)) -> bytes:
    """A block of OAEP, as its RFC says to make one."""
    data = hashlib.sha3_512(b"").digest() + bytes(size - 130 - len(message)) + b"\1" + message
    masked = bytes(a ^ b for a, b in zip(data, mgf1(seed, len(data)), strict=True))
    return b"\0" + bytes(a ^ b for a, b in zip(seed, mgf1(masked, 64), strict=True)) + masked


def test_the_mask_is_the_one_of_the_worked_example() -> None:
    assert mgf1(bytes(range(64)), 32).hex() == "a7ba4138992eca6f097f4bbb54a1e1bb87f64a2c1d072d98701c0676f6872d28"
    assert hashlib.sha3_512(b"").hexdigest().startswith("a69f73cca23a9ac5c8b567dc185a756e97c982164fe25859e0d1dcc14")


def test_the_data_key_of_the_worked_example_is_unwrapped(key_file: Path) -> None:
    block = pow(int.from_bytes(WRAPPED), vectors.PRIVATE_EXPONENT, vectors.MODULUS).to_bytes(256)
    assert block.hex().startswith("005b654286102b5a")
    assert remove_oaep(block) == vectors.DATA_KEY
    assert KeyRing({"key1": key_file}).unwrap(METADATA) == vectors.DATA_KEY


def test_padding_is_taken_off_messages_of_any_size_and_nothing_else() -> None:
    for message in (b"", b"\0", b"\1\1", bytes(range(32))):
        assert remove_oaep(padded(message, 256)) == message
    good = padded(vectors.DATA_KEY, 256)
    for position in range(len(good)):
        wrong = bytearray(good)
        wrong[position] ^= 1
        assert remove_oaep(bytes(wrong)) != vectors.DATA_KEY
    assert remove_oaep(b"\1" + good[1:]) is None


def test_the_chunk_of_the_worked_example_is_opened(cipher: SegmentCipher) -> None:
    assert cipher.open(memoryview(CHUNK), "chunk 2") == PLAIN_CHUNK


def test_each_flipped_byte_of_a_chunk_is_refused(cipher: SegmentCipher) -> None:
    for position in range(len(CHUNK)):
        wrong = bytearray(CHUNK)
        wrong[position] ^= 0x10
        with pytest.raises(DecryptionError, match=r"chunk 2 was changed.*key id key1"):
            cipher.open(memoryview(wrong), "chunk 2")


def test_each_cut_of_a_chunk_is_refused(cipher: SegmentCipher) -> None:
    for size in range(len(CHUNK)):
        with pytest.raises(DecryptionError):
            cipher.open(memoryview(CHUNK)[:size], "chunk 2")


def test_other_additional_data_are_refused(key_file: Path) -> None:
    for aad in (b"", AAD[:-1], AAD[::-1]):
        with pytest.raises(DecryptionError):
            SegmentCipher(EncryptionMetadata("key1", WRAPPED, aad), KeyRing({"key1": key_file})).open(
                memoryview(CHUNK), "chunk 2"
            )


def test_a_missing_key_is_told_with_the_ids_that_are_there(key_file: Path) -> None:
    ring = KeyRing({"key1": key_file, "key0": key_file})
    with pytest.raises(DecryptionError, match=r"key id key9, expected one of key0, key1"):
        ring.unwrap(EncryptionMetadata("key9", WRAPPED, AAD))
    with pytest.raises(DecryptionError, match="--rsm-config"):
        KeyRing().unwrap(METADATA)


def test_a_wrong_key_is_refused_by_its_id(tmp_path: Path) -> None:
    other = rsa.generate_private_key(65537, 2048)
    file = tmp_path / "other.pem"
    file.write_bytes(pem(other))
    with pytest.raises(DecryptionError, match="the key key1 does not open"):
        KeyRing({"key1": file}).unwrap(METADATA)


@pytest.mark.parametrize("wrapped", [b"", WRAPPED[:-1], WRAPPED + b"\0", b"\xff" * 256, bytes(256)])
def test_a_changed_wrapped_key_is_refused_and_not_shown(key_file: Path, wrapped: bytes) -> None:
    with pytest.raises(DecryptionError) as caught:
        KeyRing({"key1": key_file}).unwrap(EncryptionMetadata("key1", wrapped, AAD))
    shown = str(caught.value) + repr(caught.value) + str(pickle.dumps(caught.value))
    assert "jYtSTzZD" not in shown
    assert wrapped[:8] == b"" or repr(wrapped[:8]) not in shown


def pem(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey,
    encryption: serialization.KeySerializationEncryption | None = None,
) -> bytes:
    how = encryption or serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)


def test_files_that_hold_no_usable_key_are_refused_with_their_path(tmp_path: Path, key_file: Path) -> None:
    files = {
        "missing": None,
        "empty": b"",
        "garbage": b"\x00\xff" * 100,
        "cut": key_file.read_bytes()[:300],
        "another-kind": pem(ec.generate_private_key(ec.SECP256R1())),
        "with-a-password": pem(
            serialization.load_pem_private_key(key_file.read_bytes(), None),  # type: ignore[arg-type]
            serialization.BestAvailableEncryption(b"secret"),
        ),
        "too-short": pem(rsa.generate_private_key(65537, 1024)),
    }
    for name, content in files.items():
        file = tmp_path / name
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(OptionError, match="private key file of key1") as caught:
            load_private_key("key1", file)
        assert caught.value.source == str(file)
        assert "BEGIN" not in str(caught.value)


def test_keys_are_not_shown(key_file: Path) -> None:
    key = load_private_key("key1", key_file)
    assert repr(key) == "PrivateKey()"
    assert str(vectors.PRIVATE_EXPONENT)[:12] not in repr(vars(KeyRing({"key1": key_file})))


def test_a_key_file_is_read_once_and_only_when_it_is_needed(tmp_path: Path, key_file: Path) -> None:
    file = tmp_path / "key1.pem"
    ring = KeyRing({"key1": file, "never": tmp_path / "never"})
    file.write_bytes(key_file.read_bytes())
    assert ring.unwrap(METADATA) == vectors.DATA_KEY
    file.unlink()
    assert ring.unwrap(METADATA) == vectors.DATA_KEY


def test_without_the_extra_its_name_is_told(monkeypatch: pytest.MonkeyPatch, key_file: Path) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(OptionError, match=r"pip install 'cryptography"):
        SegmentCipher(METADATA, KeyRing({"key1": key_file})).open(memoryview(CHUNK), "chunk 2")
