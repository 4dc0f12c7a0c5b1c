"""How a client speaks to a cluster: who it is, what it trusts, and how long it waits.

Options have Kafka's own names, in the spelling of the Java client and of librdkafka. Unknown names are refused: an
option without effect looks like one that works. No error shows a value, which may be a secret at the wrong name, and a
pickle of these settings leaves the secrets out.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from enum import StrEnum
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from segreader.errors import AuthenticationError, OptionError
from segreader.storage.signed_url import Secret
from segreader.values import dataclass

TokenProvider = Callable[[], str]
"""Gives the token to show now; asked for each new connection and each renewal."""

LARGEST_FRAME = 1 << 30
"""No answer above this is taken, whatever the settings say: sizes on the wire are signed 32-bit numbers."""

_LONGEST_TEXT = 32_000


def _own_version() -> str:
    try:
        return version("segreader")
    except PackageNotFoundError:
        return "0"


class SecurityProtocol(StrEnum):
    """The layers between TCP and Kafka's frames. Names as in ``security.protocol``."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether a user is named before the first request."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class SaslMechanism(StrEnum):
    """How a user is proven. Names as in ``sasl.mechanism``."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Everything about a client but where the cluster is.

    A pickle holds no password, no token provider and no passphrase, so nothing secret travels with a Spark job; what
    comes out of it has ``is_without_secrets`` set and refuses to connect with SASL until ``with_secrets`` gave them.

    Args:
        client_id: the name in a broker's request log and quotas.
        software_name, software_version: as ApiVersions tells a broker (KIP-511), in characters that it takes.
        sasl_username, sasl_password: for PLAIN and SCRAM.
        token_provider: for OAUTHBEARER.
        ca_file: PEM file, or a directory as OpenSSL hashes it, trusted in place of the system's certificates.
        ca_data: PEM text, for the same.
        certificate_file, key_file: PEM files of the client's own certificate; the key may be in the first one.
        verify: ``False`` trusts any certificate: anyone on the way can read and change what is read.
        verify_hostname: ``False`` takes a trusted certificate of any host.
        request_timeout_ms: how long one answer may take; a Fetch has its waiting time on top.
        operation_timeout_ms: how long one call may take with all its tries.
        connect_timeout_ms: for the connection and TLS, per broker.
        metadata_max_age_ms: after which leaders are asked for again, and a preferred replica is forgotten.
        retry_backoff_ms, retry_backoff_max_ms: the first and the longest wait before a try.
        max_frame_bytes: largest answer taken, but never less than twice what a Fetch asks for.
        fetch_max_wait_ms, fetch_min_bytes: how long a broker may hold a Fetch until it has so many bytes.
        rack: where this client is, for the choice of a replica nearby (KIP-392).
    """

    client_id: str = "segreader"
    software_name: str = "segreader"
    software_version: str = field(default_factory=_own_version)
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    sasl_mechanism: SaslMechanism | None = None
    sasl_username: str | None = None
    sasl_password: Secret | None = field(default=None, repr=False)
    token_provider: TokenProvider | None = field(default=None, repr=False)
    ca_file: str | None = None
    ca_data: str | None = field(default=None, repr=False)
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: Secret | None = field(default=None, repr=False)
    verify: bool = True
    verify_hostname: bool = True
    request_timeout_ms: int = 30_000
    operation_timeout_ms: int = 60_000
    connect_timeout_ms: int = 10_000
    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    max_frame_bytes: int = 128 << 20
    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    rack: str = ""
    is_without_secrets: bool = False

    def __post_init__(self) -> None:
        for name in ("client_id", "rack"):
            if len(getattr(self, name).encode()) > _LONGEST_TEXT:
                raise OptionError(f"{name} is too long for Kafka's protocol")
        for name in _POSITIVE:
            if not 0 < getattr(self, name) < 1 << 31:
                raise OptionError(f"{name} must be a positive number", found=getattr(self, name))
        for name in ("fetch_max_wait_ms", "fetch_min_bytes"):
            if not 0 <= getattr(self, name) < 1 << 31:
                raise OptionError(f"{name} must not be negative", found=getattr(self, name))
        if self.retry_backoff_ms > self.retry_backoff_max_ms:
            raise OptionError("retry_backoff_ms is above retry_backoff_max_ms")
        if self.max_frame_bytes > LARGEST_FRAME:
            raise OptionError(
                "max_frame_bytes is too large", found=self.max_frame_bytes, expected=f"<= {LARGEST_FRAME}"
            )
        self._check_sasl()
        if self.key_file is not None and self.certificate_file is None:
            raise OptionError("a key without its certificate", hint="Set ssl.certificate.location, too")

    def _check_sasl(self) -> None:
        if not self.security_protocol.has_sasl:
            given = (self.sasl_mechanism, self.sasl_username, self.sasl_password, self.token_provider)
            if any(each is not None for each in given):
                raise OptionError(
                    "a SASL mechanism, user, password or token is given, but "
                    f"security.protocol {self.security_protocol} has no SASL",
                    hint="Set security.protocol to SASL_SSL (or SASL_PLAINTEXT, which shows all to the network)",
                )
            return
        if self.sasl_mechanism is None:
            raise OptionError(
                f"security.protocol {self.security_protocol} needs sasl.mechanism",
                expected=", ".join(SaslMechanism),
            )
        if self.is_without_secrets:
            return
        if self.sasl_mechanism is SaslMechanism.OAUTHBEARER:
            if self.token_provider is None:
                raise OptionError(
                    "OAUTHBEARER needs a token",
                    hint="Set sasl.oauthbearer.token.file, or give a token provider from Python",
                )
        elif not self.sasl_username or self.sasl_password is None:
            raise OptionError(f"{self.sasl_mechanism} needs sasl.username and sasl.password")

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """Settings by Kafka's own option names, as a Java client's or librdkafka's; ``kafka.`` may stand before them.

        Raises:
            OptionError: a name is unknown (the nearest known one is named), or a value is none. No value is shown.
        """
        return cls(**parse_options(options))

    def with_secrets(
        self,
        *,
        sasl_password: Secret | str | None = None,
        token_provider: TokenProvider | None = None,
        key_password: Secret | str | None = None,
    ) -> Self:
        """The same settings with the secrets that a pickle left out."""
        return replace(
            self,
            sasl_password=Secret(sasl_password) if isinstance(sasl_password, str) else sasl_password,
            token_provider=token_provider,
            key_password=Secret(key_password) if isinstance(key_password, str) else key_password,
            is_without_secrets=False,
        )

    def require_secrets(self) -> None:
        """Pass if the secrets are there.

        Raises:
            AuthenticationError: these settings came out of a pickle.
        """
        if self.is_without_secrets:
            raise AuthenticationError(
                "these settings came from a pickle, which holds no secret",
                hint="Give password or token in the process that connects: ClientSettings.with_secrets",
            )

    def frame_limit(self, fetch_bytes: int = 0) -> int:
        """The largest answer to take, in bytes, where a Fetch asks for ``fetch_bytes``."""
        return min(max(self.max_frame_bytes, 2 * fetch_bytes), LARGEST_FRAME)

    def __getstate__(self) -> dict[str, Any]:
        state = {each.name: getattr(self, each.name) for each in fields(self)}
        has_any = any(state[name] is not None for name in _SECRETS)
        state.update(dict.fromkeys(_SECRETS))
        state["is_without_secrets"] = self.is_without_secrets or has_any
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)


_SECRETS = ("sasl_password", "token_provider", "key_password")
_POSITIVE = (
    "request_timeout_ms",
    "operation_timeout_ms",
    "connect_timeout_ms",
    "metadata_max_age_ms",
    "retry_backoff_ms",
    "retry_backoff_max_ms",
    "max_frame_bytes",
)

_LONGEST_NAME = 80
_LARGEST_TOKEN = 1 << 20
_JAAS_LOGIN = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_JAAS_PAIR = re.compile(r"""\s*([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")
_JAAS_MODULES = {"PlainLoginModule": "PLAIN", "ScramLoginModule": "SCRAM"}


def _text(value: object) -> str:
    if isinstance(value, Secret):
        return value.reveal()
    if not isinstance(value, str):
        raise ValueError
    return value


def _secret(value: object) -> Secret:
    return value if isinstance(value, Secret) else Secret(_text(value))


def _number(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(_text(value).strip())


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}[_text(value).strip().lower()]


def _protocol(value: object) -> SecurityProtocol:
    return SecurityProtocol(_text(value).strip().upper())


def _mechanism(value: object) -> SaslMechanism:
    return SaslMechanism(_text(value).strip().upper())


def _identification(value: object) -> bool:
    return {"https": True, "": False, "none": False}[_text(value).strip().lower()]


def _pem(value: object) -> None:
    if _text(value).strip().upper() != "PEM":
        raise ValueError


def _provider(value: object) -> TokenProvider:
    if not callable(value):
        raise ValueError

    def token() -> str:
        given: object = value()
        return str(given[0] if isinstance(given, tuple) else given)

    return token


def _token(value: object) -> TokenProvider:
    secret = _secret(value)
    return secret.reveal


def _token_file(value: object) -> TokenProvider:
    return partial(_read_token, Path(_text(value)))


def _read_token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_TOKEN).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AuthenticationError(f"the token file {path} cannot be read", found=type(error).__name__) from None


NAMES: dict[str, tuple[str | None, Callable[[object], Any], str]] = {
    "client.id": ("client_id", _text, "a text"),
    "client.rack": ("rack", _text, "a text"),
    "security.protocol": ("security_protocol", _protocol, ", ".join(SecurityProtocol)),
    "sasl.mechanism": ("sasl_mechanism", _mechanism, ", ".join(SaslMechanism)),
    "sasl.mechanisms": ("sasl_mechanism", _mechanism, ", ".join(SaslMechanism)),
    "sasl.username": ("sasl_username", _text, "a text"),
    "sasl.password": ("sasl_password", _secret, "a text"),
    "sasl.jaas.config": (None, _text, "PlainLoginModule or ScramLoginModule with username and password"),
    "sasl.oauthbearer.token": ("token_provider", _token, "a text"),
    "sasl.oauthbearer.token.file": ("token_provider", _token_file, "a path"),
    "oauth_cb": ("token_provider", _provider, "a callable"),
    "ssl.ca.location": ("ca_file", _text, "the path of a PEM file or directory"),
    "ssl.ca.pem": ("ca_data", _text, "PEM text"),
    "ssl.truststore.location": ("ca_file", _text, "the path of a PEM file"),
    "ssl.truststore.certificates": ("ca_data", _text, "PEM text"),
    "ssl.truststore.type": (None, _pem, "PEM: convert others, as with keytool and openssl"),
    "ssl.certificate.location": ("certificate_file", _text, "the path of a PEM file"),
    "ssl.key.location": ("key_file", _text, "the path of a PEM file"),
    "ssl.keystore.location": ("certificate_file", _text, "the path of a PEM file with certificates and key"),
    "ssl.keystore.type": (None, _pem, "PEM: convert others, as with keytool and openssl"),
    "ssl.key.password": ("key_password", _secret, "a text"),
    "ssl.endpoint.identification.algorithm": ("verify_hostname", _identification, "https, or none"),
    "enable.ssl.certificate.verification": ("verify", _truth, "true or false"),
    "request.timeout.ms": ("request_timeout_ms", _number, "a number"),
    "default.api.timeout.ms": ("operation_timeout_ms", _number, "a number"),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", _number, "a number"),
    "metadata.max.age.ms": ("metadata_max_age_ms", _number, "a number"),
    "retry.backoff.ms": ("retry_backoff_ms", _number, "a number"),
    "retry.backoff.max.ms": ("retry_backoff_max_ms", _number, "a number"),
    "receive.message.max.bytes": ("max_frame_bytes", _number, "a number"),
    "fetch.max.wait.ms": ("fetch_max_wait_ms", _number, "a number"),
    "fetch.wait.max.ms": ("fetch_max_wait_ms", _number, "a number"),
    "fetch.min.bytes": ("fetch_min_bytes", _number, "a number"),
}
"""Option -> (field of ``ClientSettings``, reader of its value, what the value must be)."""

_HAS_OTHER_WAY = {
    "bootstrap.servers": "the brokers are given apart from the settings",
    "group.id": "the group is named where its committed offsets are asked for",
    "isolation.level": "the isolation level belongs to the read",
    "ssl.keystore.key": "put the key into a file: ssl.key.location",
    "ssl.keystore.certificate.chain": "put the certificates into a file: ssl.certificate.location",
    "ssl.keystore.password": "a PEM store has no password of its own: ssl.key.password",
    "ssl.truststore.password": "a PEM trust store has no password",
    "sasl.login.callback.handler.class": "no Java runs: give a token file or a token provider",
    "sasl.kerberos.service.name": "GSSAPI is not spoken",
}


def parse_options(options: Mapping[str, object]) -> dict[str, Any]:
    """Fields of ``ClientSettings`` from options; ``kafka.`` may stand before each name.

    Raises:
        OptionError: a name is unknown, said twice, or its value is none. No value is shown.
    """
    values: dict[str, Any] = {}
    said: dict[str, str] = {}
    for spelling, value in options.items():
        name = spelling.strip().lower().removeprefix("kafka.")
        if name not in NAMES:
            raise _unknown(name)
        target, read, expected = NAMES[name]
        try:
            parsed = read(value)
        except (ValueError, KeyError):
            raise OptionError(f"{name} has a value that cannot be used", expected=expected) from None
        found = _parse_jaas(parsed) if name == "sasl.jaas.config" else {} if target is None else {target: parsed}
        for known, setting in found.items():
            if known in said:
                raise OptionError(f"{name} and {said[known]} are the same setting; give one of them")
            said[known] = name
            values[known] = setting
    return values


def _parse_jaas(text: str) -> dict[str, Any]:
    """User and password of one JAAS entry. Source: Kafka's ``JaasConfig``, which is Java's configuration syntax."""
    login = _JAAS_LOGIN.match(text)
    module = login[1].rpartition(".")[2] if login else None
    if login is None or module not in _JAAS_MODULES:
        raise OptionError(
            "sasl.jaas.config names no login module that is known here",
            expected=" or ".join(_JAAS_MODULES),
            hint="For OAUTHBEARER give sasl.oauthbearer.token.file",
        )
    pairs: dict[str, str] = {}
    at = login.end()
    while pair := _JAAS_PAIR.match(text, at):
        quoted = pair[2]
        pairs[pair[1].lower()] = re.sub(r"\\(.)", r"\1", quoted[1:-1]) if quoted[0] in "\"'" else quoted
        at = pair.end()
    if text[at:].strip() != ";":
        raise OptionError("sasl.jaas.config cannot be read", expected='a module, required, name="value" …, and a ;')
    if "username" not in pairs or "password" not in pairs:
        raise OptionError("sasl.jaas.config lacks username or password")
    return {"sasl_username": pairs["username"], "sasl_password": Secret(pairs["password"])}


def _unknown(name: str) -> OptionError:
    if name in _HAS_OTHER_WAY:
        return OptionError(f"{name} has no place here: {_HAS_OTHER_WAY[name]}")
    near = difflib.get_close_matches(name[:_LONGEST_NAME], NAMES, 1)
    shown = repr(name) if re.fullmatch(r"[a-z._-]{1,60}", name) else "a name that is not shown"
    return OptionError(
        f"unknown option of a Kafka client: {shown}",
        expected=None if near else ", ".join(NAMES),
        hint=f"Did you mean {near[0]}?" if near else None,
    )
