"""Decryption of what the plugin encrypts: AES-256-GCM for the bytes, RSA-OAEP with SHA3-512 for the key to them.

``cryptography`` refuses OAEP with SHA-3, so that the padding is taken off here: RFC 8017, section 7.1.2. The
package is loaded when the first key is. Source: ``AesEncryptionProvider``,
``RsaEncryptionProvider`` of the plugin (1.1).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any

from segreader.catalog.layouts.aiven.manifest import EncryptionMetadata
from segreader.errors import DecryptionError, OptionError, install_hint
from segreader.values import dataclass

_HASH_SIZE = 64
_DATA_KEY_SIZE = 32
_LEAST_MODULUS_SIZE = 2 * _HASH_SIZE + 2 + _DATA_KEY_SIZE
_IV_SIZE = 12
_LARGEST_KEY_FILE = 1 << 20
_NO_LABEL = hashlib.sha3_512(b"").digest()


def mgf1(seed: bytes, size: int) -> bytes:
    """A mask of ``size`` bytes. Source: RFC 8017, appendix B.2.1, with SHA3-512."""
    rounds = range(-(-size // _HASH_SIZE))
    return b"".join(hashlib.sha3_512(seed + counter.to_bytes(4)).digest() for counter in rounds)[:size]


def remove_oaep(block: bytes) -> bytes | None:
    """The message in a block of OAEP with SHA3-512 and no label; ``None`` if it is no such block."""
    seed, masked = block[1 : 1 + _HASH_SIZE], block[1 + _HASH_SIZE :]
    seed = _xor(seed, mgf1(masked, _HASH_SIZE))
    data = _xor(masked, mgf1(seed, len(masked)))
    padded = data[_HASH_SIZE:].lstrip(b"\0")
    is_good = hmac.compare_digest(data[:_HASH_SIZE], _NO_LABEL) and block[:1] == b"\0" and padded[:1] == b"\1"
    return padded[1:] if is_good else None


def _xor(one: bytes, two: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, two, strict=True))


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """The numbers of an RSA key, in the form that decrypts fast (RFC 8017, section 3.2). They are not shown."""

    p: int = field(repr=False)
    q: int = field(repr=False)
    exponent_p: int = field(repr=False)
    exponent_q: int = field(repr=False)
    inverse_q: int = field(repr=False)

    @property
    def size(self) -> int:
        """Bytes of the modulus, and of what the key wraps."""
        return ((self.p * self.q).bit_length() + 7) // 8

    def unwrap(self, wrapped: bytes) -> bytes | None:
        """The data key; ``None`` if this key did not wrap it."""
        number = int.from_bytes(wrapped)
        if len(wrapped) != self.size or number >= self.p * self.q:
            return None
        modulo_q = pow(number, self.exponent_q, self.q)
        difference = pow(number, self.exponent_p, self.p) - modulo_q
        block = modulo_q + self.inverse_q * difference % self.p * self.q
        message = remove_oaep(block.to_bytes(self.size))
        return message if message is not None and len(message) == _DATA_KEY_SIZE else None


class KeyRing:
    """The private keys that are at hand, by the ids of their pairs; each file is read when its key is needed first.

    Args:
        files: of the private keys, PEM of PKCS#8 without a password.
    """

    def __init__(self, files: Mapping[str, Path] | None = None) -> None:
        self._files = dict(files or {})
        self._keys: dict[str, PrivateKey] = {}

    def unwrap(self, metadata: EncryptionMetadata) -> bytes:
        """The data key of a segment.

        Raises:
            DecryptionError: the ring has no key of that id, or it is another one.
            OptionError: the key's file cannot be read, or ``cryptography`` is not installed.
        """
        key_id = _shown(metadata.key_id)
        if metadata.key_id not in self._files:
            have = ", ".join(map(_shown, sorted(self._files)))
            raise DecryptionError(
                "the segment is encrypted, and its key is missing",
                found=f"key id {key_id}",
                expected=f"one of {have}" if have else None,
                hint="Name its private key file in the broker's properties file (--rsm-config)"
                if have
                else "Give the broker's properties file with --rsm-config (rsm_config= in the library)",
            )
        key = self._keys.get(metadata.key_id)
        if key is None:
            key = self._keys[metadata.key_id] = load_private_key(metadata.key_id, self._files[metadata.key_id])
        data_key = key.unwrap(metadata.wrapped_key)
        if data_key is None:
            raise DecryptionError(
                f"the key {key_id} does not open the segment's data key",
                hint="Another key pair bore this id when the segment was written, or the manifest was changed",
            )
        return data_key


def load_private_key(key_id: str, file: Path) -> PrivateKey:
    """The RSA key in a PEM file.

    Raises:
        OptionError: there is none in it, or ``cryptography`` is not installed.
    """
    with _package():
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    wrong = f"the private key file of {_shown(key_id)} cannot be used"
    try:
        with file.open("rb") as stream:
            pem = stream.read(_LARGEST_KEY_FILE)
    except OSError as error:
        raise OptionError(wrong, source=str(file), found=error.strerror) from None
    except ValueError:  # a name with a zero in it
        raise OptionError(wrong, found="the name of no file") from None
    try:
        private = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise OptionError(wrong, source=str(file), expected="PEM of PKCS#8, without a password") from None
    if not isinstance(private, RSAPrivateKey):
        raise OptionError(wrong, source=str(file), expected="an RSA key")
    numbers = private.private_numbers()
    key = PrivateKey(numbers.p, numbers.q, numbers.dmp1, numbers.dmq1, numbers.iqmp)
    if key.size < _LEAST_MODULUS_SIZE:
        raise OptionError(
            wrong,
            source=str(file),
            found=f"{8 * key.size} bits",
            expected=f"at least {8 * _LEAST_MODULUS_SIZE} bits",
        )
    return key


class SegmentCipher:
    """Opens what is sealed with the data key of one segment; the key is unwrapped when it is needed first."""

    def __init__(self, metadata: EncryptionMetadata, ring: KeyRing) -> None:
        self._metadata = metadata
        self._ring = ring
        self._aes: Any = None

    def open(self, sealed: memoryview, what: str) -> bytes:
        """The plain bytes of one chunk or index.

        Args:
            sealed: initialisation vector, encrypted bytes, tag.
            what: is opened, for the error.

        Raises:
            DecryptionError: the key is missing or wrong, or a byte was changed.
            OptionError: as ``KeyRing.unwrap``.
        """
        with _package():
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        if self._aes is None:
            self._aes = AESGCM(self._ring.unwrap(self._metadata))
        try:
            opened: bytes = self._aes.decrypt(bytes(sealed[:_IV_SIZE]), sealed[_IV_SIZE:], self._metadata.aad)
        except (InvalidTag, ValueError):  # the latter where there is not even a vector and a tag
            raise DecryptionError(
                f"{what} was changed after it was encrypted: its tag does not fit",
                found=f"key id {_shown(self._metadata.key_id)}, {len(sealed)} bytes",
                hint="Restore the object from a copy, or read the offsets before or after it",
            ) from None
        return opened


def _shown(key_id: str) -> str:
    return repr(key_id[:40])[1:-1]


@contextmanager
def _package() -> Iterator[None]:
    """For imports of ``cryptography``, which many installations lack."""
    try:
        yield
    except ImportError:
        raise OptionError(
            "encrypted segments need a package that is not installed", hint=install_hint("encryption")
        ) from None
