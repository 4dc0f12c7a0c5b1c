"""Kafka's own names for a client's settings, in the Java client's and librdkafka's spelling, and how values are read.

Refuses what it does not know: an option that has no effect looks like one that has. Values are never shown, for one
that was put at the wrong name may be a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from segreader.broker.settings import SaslMechanism, SecurityProtocol, TokenProvider
from segreader.errors import AuthenticationError, OptionError
from segreader.storage.signed_url import Secret

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
    path = Path(_text(value))

    def token() -> str:
        try:
            with path.open("rb") as file:
                return file.read(_LARGEST_TOKEN).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise AuthenticationError(f"the token file {path} cannot be read", found=type(error).__name__) from None

    return token


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
                raise OptionError(f"{name} and {said[known]} say the same; give one")
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
