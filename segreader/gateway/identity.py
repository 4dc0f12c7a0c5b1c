"""The name that a client logged in by, taken from its SASL exchange with the broker as it passes through.

Only the name is kept: no password, proof or token. It counts once the broker has accepted the login; the rights are
the broker's business in any case, and nothing here opens anything. It is for the audit and for limits.

Source: RFC 4616 (PLAIN), RFC 5802 (SCRAM), RFC 7628 (OAUTHBEARER); KIP-152 and KIP-368 for the requests.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Final

from segreader.broker.api import decode_sasl_authenticate
from segreader.broker.codec import RequestHead, codec_of, request_body
from segreader.broker.protocol import REQUESTS, Api
from segreader.values import dataclass

SASL_APIS: Final = frozenset((Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE))
_LONGEST_NAME = 1024


@dataclass(slots=True)
class _Exchange:
    """One login: its name is that of its first message."""

    mechanism: str
    name: str | None = None
    has_begun: bool = False


class Login:
    """Who the broker took a connection's client for.

    Args:
        subject: of the client's certificate, which is the name until a login has another one.
        admit: called with the principal of each login that the broker accepts, if it has a name: raises BrokerError if
            it has too many connections.
    """

    def __init__(self, subject: str | None = None, admit: Callable[[str], None] = lambda principal: None) -> None:
        self.is_accepted = False
        """Whether the broker has accepted one by SASL."""
        self.principal: str | None = None if subject is None else f"User:{subject}"
        self.mechanism: str | None = None if subject is None else "TLS"
        self._admit = admit
        self._exchange: _Exchange | None = None

    def asked(self, frame: memoryview, head: RequestHead) -> Callable[[memoryview], None] | None:
        """Look into a SASL request; what comes back must be called with the answer's frame.

        Raises:
            ProtocolError: it is no such request.
        """
        reader = request_body(frame, head)
        message = codec_of(REQUESTS[Api(head.api)], head.version, reader.flexible).read(reader)
        if head.api == Api.SASL_HANDSHAKE:
            self._exchange = _Exchange(message.mechanism)
            return None
        exchange = self._exchange
        if exchange is None:
            return None
        if not exchange.has_begun:
            exchange.has_begun = True
            exchange.name = name_in(exchange.mechanism, bytes(message.auth_bytes))
        return lambda answer: self._answered(exchange, head.version, answer)

    def _answered(self, exchange: _Exchange, version: int, frame: memoryview) -> None:
        answer = decode_sasl_authenticate(version, frame)
        if answer.error or not _is_last(exchange.mechanism, bytes(answer.data)):
            return
        principal = None if exchange.name is None else f"User:{exchange.name}"
        if principal is not None and not (self.is_accepted and principal == self.principal):
            self._admit(principal)
        self.is_accepted, self.principal = True, principal
        self.mechanism = exchange.mechanism[:40]


def _is_last(mechanism: str, data: bytes) -> bool:
    """Whether an answer without an error ends the exchange with success."""
    if mechanism.startswith("SCRAM-"):
        return data.startswith(b"v=")
    if mechanism in ("OAUTHBEARER", "GSSAPI"):
        return not data  # a refusal has its reason here, or another step its token
    return True


def name_in(mechanism: str, token: bytes) -> str | None:
    """The user that a login's first message names; ``None`` if it names none that is known here."""
    try:
        if mechanism == "PLAIN":
            name = token.split(b"\0")[1].decode()
        elif mechanism.startswith("SCRAM-"):
            name = _scram_name(token.decode())
        elif mechanism == "OAUTHBEARER":
            name = _subject_of_token(token)
        else:
            return None
    except (ValueError, IndexError, KeyError, TypeError, RecursionError):
        return None
    return name if 0 < len(name) <= _LONGEST_NAME else None


def _scram_name(text: str) -> str:
    # gs2-header: flag "," authzid ","; then n=…,r=…,extensions
    parts = text.split(",")
    (name,) = [part[2:] for part in parts[2:3] if part.startswith("n=")]
    name = name.replace("=2C", ",").replace("=3D", "=")
    # A delegation token logs in as its owner, whom only the broker knows (KIP-48).
    return f"token:{name}" if "tokenauth=true" in parts[4:] else name


def _subject_of_token(token: bytes) -> str:
    (bearer,) = [part for part in token.split(b"\x01") if part[:12].lower() == b"auth=bearer "]
    claims = bearer[12:].split(b".")[1]
    subject = json.loads(base64.urlsafe_b64decode(claims + b"=" * (-len(claims) % 4)))["sub"]
    if not isinstance(subject, str):
        raise TypeError
    return subject
