"""How client and broker prove to each other who they are: certificates (TLS), then a mechanism of SASL.

Certificates and host names are verified unless the settings say otherwise. The mechanisms are PLAIN (RFC 4616), SCRAM
(RFC 5802, 7677) and OAUTHBEARER (RFC 7628); they send no bytes themselves. They are our own, for those of kafka-python
send commas and equal signs of a user name as they are, take any iteration count down to one, and log what the server
says.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from segreader.broker.settings import ClientSettings, SaslMechanism
from segreader.errors import AuthenticationError, BrokerError, ConnectionFailedError, OptionError


def make_context(settings: ClientSettings) -> ssl.SSLContext:
    """A client's context: TLS 1.2 or later, certificates verified, the client's own one loaded.

    Raises:
        OptionError: a file is missing or is no PEM file, or the key's passphrase is wrong.
        AuthenticationError: these settings came from a pickle, which holds no secret.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.verify and settings.verify_hostname
    context.verify_mode = ssl.CERT_REQUIRED if settings.verify else ssl.CERT_NONE
    if settings.verify:
        _trust(context, settings)
    if settings.certificate_file is not None:
        _load_own(context, settings)
    return context


def with_tls(stream: socket.socket, context: ssl.SSLContext, host: str, peer: str) -> ssl.SSLSocket:
    """The stream with TLS on it; the handshake is done.

    Args:
        host: the name that the certificate must bear.
        peer: as errors are to name it.

    Raises:
        AuthenticationError: one side does not accept the other's certificate.
        ConnectionFailedError: the handshake failed, or took too long.
    """
    try:
        return context.wrap_socket(stream, server_hostname=host)
    except (OSError, ValueError) as error:
        raise tls_failure(error, peer) from None


def tls_failure(error: OSError | ValueError, peer: str) -> BrokerError:
    """What an error of the TLS layer means, with the next step."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if "hostname" in error.verify_message.lower() or "ip address" in error.verify_message.lower():
            hint = "Use a name in the certificate, or set ssl.endpoint.identification.algorithm to none"
        elif "expired" in error.verify_message.lower() or "not yet valid" in error.verify_message.lower():
            hint = "Renew the broker's certificate, or check this machine's clock"
        else:
            hint = "Set ssl.ca.location to the PEM file of the authority that signed the broker's certificate"
        return AuthenticationError(
            f"the broker's certificate is not accepted: {error.verify_message}", source=peer, hint=hint
        )
    if isinstance(error, ssl.SSLError):
        reason = error.reason or type(error).__name__
        if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
            return ConnectionFailedError(
                f"no TLS is spoken at this port ({reason})",
                source=peer,
                hint="Use the port of the TLS listener, or another security.protocol",
            )
        if is_refusal_of_certificate(error):
            return AuthenticationError(
                f"the broker does not accept our certificate ({reason})",
                source=peer,
                hint="Set ssl.certificate.location and ssl.key.location to a certificate that the broker trusts",
            )
        if "PROTOCOL_VERSION" in reason or "UNSUPPORTED_PROTOCOL" in reason:
            return ConnectionFailedError(
                f"no common version of TLS ({reason})", source=peer, hint="The broker must offer TLS 1.2 or 1.3"
            )
        return ConnectionFailedError(f"TLS failed: {reason}", source=peer)
    if isinstance(error, TimeoutError):
        return ConnectionFailedError(
            "timed out in the TLS handshake",
            source=peer,
            hint="A listener without TLS waits like this: check port and security.protocol",
        )
    if isinstance(error, OSError):
        return ConnectionFailedError(
            f"closed in the TLS handshake ({type(error).__name__})",
            source=peer,
            hint="A listener without TLS closes like this: check port and security.protocol",
        )
    return ConnectionFailedError("TLS cannot be used with this host name", source=peer)


def is_refusal_of_certificate(error: ssl.SSLError) -> bool:
    """Whether the other side's alert is about our certificate. With TLS 1.3 it comes with the first answer."""
    reason = error.reason or ""
    return "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason or "ACCESS_DENIED" in reason)


def _trust(context: ssl.SSLContext, settings: ClientSettings) -> None:
    try:
        if settings.ca_data is not None:
            context.load_verify_locations(cadata=settings.ca_data)
        if settings.ca_file is not None:
            place = Path(settings.ca_file)
            context.load_verify_locations(
                cafile=None if place.is_dir() else str(place), capath=str(place) if place.is_dir() else None
            )
    except (OSError, ValueError) as error:
        raise OptionError(
            "the certificates to trust cannot be loaded"
            + (f" from {settings.ca_file}" if settings.ca_file is not None and settings.ca_data is None else ""),
            found=_reason(error),
            expected="PEM",
            hint="A JKS or PKCS12 trust store must be converted, as with keytool -exportcert -rfc",
        ) from None
    if settings.ca_data is None and settings.ca_file is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)


def _load_own(context: ssl.SSLContext, settings: ClientSettings) -> None:
    assert settings.certificate_file is not None
    if settings.key_password is None:
        settings.require_secrets()
    # Without a function OpenSSL would ask for the passphrase at the terminal.
    secret = settings.key_password
    try:
        context.load_cert_chain(
            settings.certificate_file,
            settings.key_file,
            password=lambda: "" if secret is None else secret.reveal(),
        )
    except (OSError, ValueError) as error:
        raise OptionError(
            f"our certificate and key cannot be loaded from {settings.certificate_file}",
            found=_reason(error),
            expected="PEM",
            hint="Is the key in the same file, or in ssl.key.location, and is ssl.key.password its passphrase?",
        ) from None


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or type(error).__name__
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


FEWEST_ITERATIONS = 4096
"""Below, a server in the middle could guess passwords cheaply. Source: RFC 7677; Kafka's ``ScramMechanism``."""
MOST_ITERATIONS = 1 << 20
"""Above, a hostile server makes us compute. Kafka's brokers take up to 16384."""

_LONGEST_ANSWER = 64 << 10
_LONGEST_SHOWN = 200


class SaslExchange(Protocol):
    """One authentication: the first message, and the reply to each answer."""

    def first(self) -> bytes:
        """The first message."""
        ...

    def next(self, answer: bytes) -> bytes | None:
        """The next message, or ``None``: the server has shown all that it must.

        Raises:
            AuthenticationError: the server's answer is none, or proves that it does not know the password.
        """
        ...

    def is_secret_in(self, text: str) -> bool:
        """Whether a text that the server chose shows a part of the secret."""
        ...


def start_exchange(settings: ClientSettings) -> SaslExchange:
    """An exchange with the mechanism, the user and the secret of the settings.

    Raises:
        AuthenticationError: the settings came from a pickle, or the token provider failed.
    """
    settings.require_secrets()
    if settings.sasl_mechanism is SaslMechanism.OAUTHBEARER:
        assert settings.token_provider is not None
        return BearerExchange(_ask_for_token(settings.token_provider))
    assert settings.sasl_username is not None
    assert settings.sasl_password is not None
    password = settings.sasl_password.reveal()
    if settings.sasl_mechanism is SaslMechanism.PLAIN:
        return PlainExchange(settings.sasl_username, password)
    name = "sha512" if settings.sasl_mechanism is SaslMechanism.SCRAM_SHA_512 else "sha256"
    return ScramExchange(settings.sasl_username, password, name)


class PlainExchange:
    """User and password as they are. Source: RFC 4616; the broker answers with nothing."""

    def __init__(self, username: str, password: str) -> None:
        if "\0" in username or "\0" in password:
            raise AuthenticationError("PLAIN takes no user or password with a zero character")
        self._password = password
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        """User and password; no identity to act for."""
        return self._message

    def next(self, answer: bytes) -> bytes | None:
        """``None``: one message is all."""
        return None

    def is_secret_in(self, text: str) -> bool:
        """Whether a part of the password is shown."""
        return _shares(self._password, text)


class ScramExchange:
    """A proof that both sides know the password, without showing it. Source: RFC 5802, without channel binding.

    Args:
        hash_name: as ``hashlib`` has it.
        nonce: printable, without commas; random by default.
    """

    def __init__(self, username: str, password: str, hash_name: str, nonce: str | None = None) -> None:
        self._password = password.encode()
        self._hash = hash_name
        self._nonce = secrets.token_urlsafe(24) if nonce is None else nonce
        self._first_bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}"
        self._server_signature: bytes | None = None
        self._is_verified = False

    def first(self) -> bytes:
        """The user's name and a nonce."""
        return f"n,,{self._first_bare}".encode()

    def next(self, answer: bytes) -> bytes | None:
        """The proof to the server's first answer, ``None`` to its second, whose signature is checked."""
        attributes = _attributes(answer)
        if "e" in attributes:
            said = printable(attributes["e"])
            raise AuthenticationError("SCRAM was refused" + ("" if self.is_secret_in(said) else f": {said}"))
        if self._server_signature is None:
            return self._prove(answer.decode(), attributes)
        if self._is_verified or not hmac.compare_digest(_decode64(attributes, "v"), self._server_signature):
            raise AuthenticationError(
                "the broker's signature is wrong: it does not know this user's password",
                hint="Something else answers at the broker's address",
            )
        self._is_verified = True
        return None

    def is_secret_in(self, text: str) -> bool:
        """Whether a part of the password is shown."""
        return _shares(self._password.decode(), text)

    def _prove(self, server_first: str, attributes: dict[str, str]) -> bytes:
        nonce = attributes.get("r", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationError("SCRAM: the server's nonce does not start with ours")
        salt = _decode64(attributes, "s")
        count = attributes.get("i", "")
        if not (count.isascii() and count.isdigit() and len(count) < 10):
            raise AuthenticationError("SCRAM: the server's iteration count is not a number")
        if not FEWEST_ITERATIONS <= int(count) <= MOST_ITERATIONS:
            raise AuthenticationError(
                "SCRAM: the server's iteration count is out of bounds",
                found=int(count),
                expected=f"{FEWEST_ITERATIONS} to {MOST_ITERATIONS}",
            )
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, int(count))
        client_key = self._hmac(salted, b"Client Key")
        unproven = f"c=biws,r={nonce}"
        message = f"{self._first_bare},{server_first},{unproven}".encode()
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), message)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash).digest()


class BearerExchange:
    """A token. Source: RFC 7628; Kafka's ``OAuthBearerSaslClient``."""

    def __init__(self, token: str) -> None:
        if not token.isascii() or not token.isprintable() or " " in token or not token:
            raise AuthenticationError("the token has characters that no bearer token has")
        self._token = token
        self._refusal: str | None = None

    def first(self) -> bytes:
        """The token."""
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def next(self, answer: bytes) -> bytes | None:
        """``None`` to an empty answer; the one byte that ends a refused exchange otherwise."""
        if self._refusal is not None:
            raise AuthenticationError(f"the token was refused: {self._refusal}")
        if not answer:
            return None
        try:
            told = json.loads(answer[:_LONGEST_ANSWER])
            status = printable(str(told["status"])) if isinstance(told, dict) and "status" in told else ""
            self._refusal = "no status" if not status or self.is_secret_in(status) else status
        except (ValueError, RecursionError):
            self._refusal = "no reason that can be read"
        return b"\x01"

    def is_secret_in(self, text: str) -> bool:
        """Whether a part of the token is shown."""
        return _shares(self._token, text)


def printable(text: str | None) -> str:
    """A peer's text, short and without control characters."""
    shown = "".join(each if each.isprintable() else "?" for each in (text or "")[: _LONGEST_SHOWN + 1])
    return shown if len(shown) <= _LONGEST_SHOWN else shown[:_LONGEST_SHOWN] + "…"


def _shares(secret: str, text: str) -> bool:
    """Whether eight characters of a secret that follow each other stand in a text, or all of a shorter one."""
    return any(secret[at : at + 8] in text for at in range(max(1, len(secret) - 7)))


def _ask_for_token(provider: Callable[[], str]) -> str:
    try:
        token = provider()
    except AuthenticationError:
        raise
    except Exception as error:
        # The text of another library's error may hold the token or a client's secret.
        raise AuthenticationError("the token provider failed", found=type(error).__name__) from None
    if not isinstance(token, str):
        raise AuthenticationError("the token provider returned no text", found=type(token).__name__)
    return token


def _attributes(message: bytes) -> dict[str, str]:
    if len(message) > _LONGEST_ANSWER:
        raise AuthenticationError("SCRAM: the server's message is too long", found=f"{len(message)} bytes")
    try:
        parts = [part.partition("=") for part in message.decode().split(",")]
    except UnicodeDecodeError:
        raise AuthenticationError("SCRAM: the server's message is not text") from None
    attributes = {name: value for name, equals, value in parts if equals and len(name) == 1}
    if len(attributes) != len(parts):
        raise AuthenticationError("SCRAM: the server's message is not made of attributes, each given once")
    if "m" in attributes:
        raise AuthenticationError("SCRAM: the server asks for an extension that is not known here")
    return attributes


def _decode64(attributes: dict[str, str], name: str) -> bytes:
    try:
        decoded = base64.b64decode(attributes[name], validate=True)
    except (KeyError, binascii.Error, ValueError):
        decoded = b""
    if not decoded:
        raise AuthenticationError(f"SCRAM: the server's message lacks a good {name!r}")
    return decoded
