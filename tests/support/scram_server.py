"""The server's side of SCRAM, written by RFC 5802 alone, for one user."""

from __future__ import annotations

import base64
import hashlib
import hmac


class ScramServer:
    """Checks a client's proof and proves that it knows the password, too.

    Args:
        lie: ``nonce``, ``signature``, ``early``: what it does wrong.
    """

    def __init__(
        self, username: str, password: str, hash_name: str, *, iterations: int = 4096, lie: str | None = None
    ) -> None:
        self._name = username
        self._hash = hash_name
        self._iterations = iterations
        self._lie = lie
        self._salt = b"salt of the earth"
        self._salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), self._salt, max(1, iterations))
        self._client_first_bare = ""
        self._server_first = ""
        self._nonce = ""

    def answer(self, message: bytes) -> bytes | None:
        """The answer to the client's next message; ``None``: refused."""
        text = message.decode()
        return self._first(text) if not self._server_first else self._final(text)

    def _first(self, text: str) -> bytes:
        assert text.startswith("n,,")
        self._client_first_bare = text[3:]
        name, nonce = self._client_first_bare.split(",")
        assert name == "n=" + self._name.replace("=", "=3D").replace(",", "=2C")
        self._nonce = "other" if self._lie == "nonce" else nonce.removeprefix("r=") + "more"
        if self._lie == "early":
            return b""
        salt = base64.b64encode(self._salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._iterations}"
        return self._server_first.encode()

    def _final(self, text: str) -> bytes | None:
        without_proof, _, proof = text.rpartition(",p=")
        assert without_proof == f"c=biws,r={self._nonce}"
        message = f"{self._client_first_bare},{self._server_first},{without_proof}".encode()
        client_key = self._mac(self._salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._mac(stored_key, message)
        if bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True)) != client_key:
            return None
        key = self._mac(self._salted, b"Server Key" if self._lie != "signature" else b"Other Key")
        return b"v=" + base64.b64encode(self._mac(key, message))

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash).digest()
