"""The brokers of a read, by Kafka's own names for a client's settings: ``kafka.bootstrap.servers`` and its kin.

Spark shows options, so a secret among them is only referred to: as ``env:VARIABLE``, or by a provider named with
``brokerCredentials``, as ``credentials`` names one for stores. Each process that asks brokers looks it up for itself.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from segreader.broker.connection_pool import parse_bootstrap
from segreader.broker.settings import NAMES as SETTINGS
from segreader.broker.settings import parse_options as parse_settings
from segreader.errors import OptionError
from segreader.live.cluster import KafkaCluster
from segreader.spark.credentials import call_provider, parse_provider
from segreader.spark.option_names import KAFKA, is_reference
from segreader.storage.signed_url import Secret, redact

SERVERS: Final = "kafka.bootstrap.servers"
CREDENTIALS: Final = "brokerCredentials"

_SECRETS: Final = frozenset({"sasl.password", "sasl.jaas.config", "sasl.oauthbearer.token", "ssl.key.password"})
_OF_PREFIX: Final = ("sasl.username", "sasl.oauthbearer.token.file", *sorted(_SECRETS))
_NOT_AS_TEXT: Final = frozenset({"oauth_cb"})
_HELD_BY_THE_READ: Final = frozenset({"bootstrap.servers", "isolation.level"})
_WITHOUT_EFFECT: Final = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "check.crcs",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "exclude.internal.topics",
        "fetch.max.bytes",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "partition.assignment.strategy",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "security.providers",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "ssl.enabled.protocols",
        "ssl.protocol",
    }
)
"""Settings of Java's consumer that change nothing of what is read."""

_PREFIXES_WITHOUT_EFFECT: Final = ("metric.", "metrics.", "sasl.login.", "enable.metrics.push")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Brokers:
    """Who is asked, and how. Picklable, and without a secret.

    Args:
        servers: ``host:port``, separated by commas.
        settings: of the client, by Kafka's names; those that are secret are references.
        credentials: name of what gives the others.
    """

    servers: str
    settings: Mapping[str, str] = field(default_factory=dict)
    credentials: str = "default"

    def resolve(self, environ: Mapping[str, str] | None = None) -> dict[str, object]:
        """The settings with the secrets that this process has.

        Args:
            environ: variables; those of this process by default.

        Raises:
            OptionError: a variable or the provider is not there, or gives no settings of a client.
        """
        environ = os.environ if environ is None else environ
        own = {name: _looked_up(name, text, environ) for name, text in self.settings.items()}
        return _provided(self, environ) | own

    def connect(self, settings: Mapping[str, object] | None = None) -> KafkaCluster:
        """A client with what this process knows; it connects when it is first asked.

        Args:
            settings: as ``resolve`` gave them; it is asked by default.

        Raises:
            OptionError: as ``resolve``; or settings contradict each other.
        """
        return KafkaCluster(self.servers, self.resolve() if settings is None else settings)


def parse_brokers(given: Mapping[str, str]) -> Brokers | None:
    """The brokers that the options name; ``None`` if they name none.

    Args:
        given: options by their names in lower case.

    Raises:
        OptionError: an address or a setting is not valid, one is a secret, or another option contradicts them.
    """
    brokers = _named(given)
    if brokers is not None and "maxbytespertrigger" in given:
        raise OptionError(
            f"maxBytesPerTrigger and {SERVERS} exclude each other: a broker does not report bytes",
            hint="Limit a trigger with maxOffsetsPerTrigger",
        )
    return brokers


def _named(given: Mapping[str, str]) -> Brokers | None:
    provider = parse_provider(given.get(CREDENTIALS.lower(), "default"), CREDENTIALS)
    if SERVERS not in given:
        return None
    servers = given[SERVERS].strip()
    try:
        if "@" in servers:
            raise OptionError("a broker's address holds no user")
        parse_bootstrap(servers)
    except OptionError as error:
        raise error.located(source=SERVERS) from None
    settings = {}
    for name in names_of_settings(given):
        settings[name.removeprefix(KAFKA)] = _checked(name, given[name].strip())
    known = {name: text for name, text in settings.items() if name not in _SECRETS}
    try:
        parse_settings(known)
    except OptionError as error:
        raise error.located(source="kafka.*") from None
    return Brokers(servers, settings, provider)


def names_of_settings(given: Mapping[str, str]) -> list[str]:
    """The options that are settings of the client, where brokers are named.

    Raises:
        OptionError: one is unknown: it may be a misspelt one on which security depends.
    """
    if SERVERS not in given:
        return []
    mine = []
    without_effect = []
    for name in sorted(name for name in given if name.startswith(KAFKA)):
        short = name.removeprefix(KAFKA)
        if short in SETTINGS:
            mine.append(name)
        elif short in _WITHOUT_EFFECT or short.startswith(_PREFIXES_WITHOUT_EFFECT):
            without_effect.append(name)
        elif short not in _HELD_BY_THE_READ:
            close = difflib.get_close_matches(short[:60], [*SETTINGS, *_WITHOUT_EFFECT], n=1, cutoff=0.6)
            shown = name[:60] if re.fullmatch(r"[a-z0-9._-]+", name) else "an option kafka.…"
            raise OptionError(
                f"{shown} is no setting of a client that is known here",
                hint=f"Did you mean {KAFKA}{close[0]}?" if close else "docs/reference/options.md lists them",
            )
    if without_effect:
        logger.info("without effect, for no Java consumer runs: %s", ", ".join(without_effect))
    return mine


def _checked(name: str, text: str) -> str:
    short = name.removeprefix(KAFKA)
    if short in _NOT_AS_TEXT:
        raise OptionError(f"{name} is no text", hint=f"Name a provider of yours: {CREDENTIALS}=module:callable")
    if short in _SECRETS and not is_reference(text):
        raise OptionError(
            f"{name} is a secret; Spark shows options in its UI and event log in clear",
            expected="env:VARIABLE",
            hint=f"Every process that asks brokers must have the variable; or name a provider with {CREDENTIALS}",
        )
    if redact(text) != text:
        raise OptionError(f"{name} holds a credential, and Spark shows options in its UI")
    return text


def _looked_up(name: str, text: str, environ: Mapping[str, str]) -> object:
    if name not in _SECRETS:
        return text
    variable = text.removeprefix("env:")
    if not environ.get(variable):
        raise OptionError(
            f"{KAFKA}{name}=env:{variable} finds no variable in this process",
            hint="Executors get variables by spark.executorEnv.NAME; the driver needs them, too: it plans",
        )
    return Secret(environ[variable])


def _provided(brokers: Brokers, environ: Mapping[str, str]) -> dict[str, object]:
    provider = brokers.credentials
    if provider == "default":
        return {}
    if provider.startswith("env:"):
        begin = f"{provider.removeprefix('env:').rstrip('_')}_"
        variables = {name: begin + name.upper().replace(".", "_") for name in _OF_PREFIX}
        found: dict[str, object] = {
            name: Secret(environ[variable]) for name, variable in variables.items() if environ.get(variable)
        }
        if not found:
            raise OptionError(
                f"{CREDENTIALS}={provider} finds no variable in this process",
                expected=f"{begin}SASL_USERNAME and {begin}SASL_PASSWORD, and so on",
                hint="Executors get variables by spark.executorEnv.NAME; the driver needs them, too: it plans",
            )
        return found
    given = call_provider(provider, f"kafka://{brokers.servers}", CREDENTIALS)
    if not isinstance(given, Mapping):
        raise OptionError(
            f"{CREDENTIALS}={provider} gives no settings of a Kafka client",
            found=type(given).__name__,
            expected="a mapping by Kafka's names, such as sasl.username and sasl.password",
        )
    return {str(name).lower().removeprefix(KAFKA): _kept(value) for name, value in given.items()}


def _kept(value: object) -> object:
    """A value of a provider, where no text of it is shown."""
    if isinstance(value, str):
        return Secret(value)
    return value if isinstance(value, Secret | int) or callable(value) else None  # which is refused with its name
