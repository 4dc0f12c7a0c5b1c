"""Credentials of stores, brokers and schema registries: options name their provider, which each process asks itself.

Spark shows options in its UI and its event log, in clear, so no option can hold a secret. A variable's name
(``env:VARIABLE``) or a provider's, with ``credentials`` for stores, ``brokerCredentials`` for brokers and
``schemaRegistryCredentials`` for registries, which only the driver asks, can:

- ``default``: what the cloud's own client finds in the process that reads: an identity of the machine or the pod,
  variables, files.
- ``env:PREFIX``: the variables ``PREFIX_KEY``, ``PREFIX_SECRET``, ``PREFIX_ACCOUNT_KEY``, ``PREFIX_SASL_PASSWORD`` …:
  the option after the prefix. Each process that reads must have them.
- ``module:callable``: called with the location, it returns options: a mapping, names as in
  ``docs/reference/options.md``. It is asked again when the store refuses what it gave before.
"""

from __future__ import annotations

import difflib
import importlib
import logging
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from segreader.errors import OptionError
from segreader.storage.options import NAMES, StorageOptions, kind_of, only_for, override, parse_values
from segreader.storage.signed_url import Secret, redact
from segreader.values import dataclass

if TYPE_CHECKING:  # loads the Kafka client, which other reads do without
    from segreader.live.cluster import KafkaCluster

KAFKA: Final = "kafka."
"""What the names of a Kafka client's settings begin with."""

SERVERS: Final = "kafka.bootstrap.servers"
CREDENTIALS: Final = "brokerCredentials"
REGISTRY_CREDENTIALS: Final = "schemaRegistryCredentials"

_FORM: Final = re.compile(r"default|env:[A-Za-z_][A-Za-z0-9_]*|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_REFERENCE: Final = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*")
_VARIABLES_HINT: Final = "Executors get variables by spark.executorEnv.NAME; the driver needs them, too: it "

_SECRETS: Final = frozenset({"sasl.password", "sasl.jaas.config", "sasl.oauthbearer.token", "ssl.key.password"})
_SECRETS_OF_REGISTRY: Final = ("auth", "token")
_OF_PREFIX: Final = {
    name.replace(".", "_"): name for name in ("sasl.username", "sasl.oauthbearer.token.file", *_SECRETS)
}
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
"""Settings of Java's consumer that do not change what is read."""

_PREFIXES_WITHOUT_EFFECT: Final = ("metric.", "metrics.", "sasl.login.", "enable.metrics.push")

logger = logging.getLogger(__name__)


def is_reference(text: str) -> bool:
    """Whether a value is ``env:VARIABLE``: each process looks it up for itself, and Spark shows the name only."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def parse_provider(text: str, option: str = "credentials") -> str:
    """The name of a provider, as the option ``credentials`` gives it.

    Args:
        option: which option gives it, for messages.

    Raises:
        OptionError: not a name; the text is not shown, it may be a secret.
    """
    name = text.strip()
    if not _FORM.fullmatch(name) or len(name) > 200:
        raise OptionError(
            f"{option} is not the name of a provider",
            expected="default, env:PREFIX or module:callable",
            hint="It is a name, never a value: Spark shows options in its UI and event log in clear",
        )
    return name


def can_renew(provider: str) -> bool:
    """Whether asking the provider again may give other credentials."""
    return provider != "default" and not provider.startswith("env:")


def resolve_storage(
    provider: str, location: str, settings: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> Mapping[str, object]:
    """Storage options of a location in this process: the provider's credentials and the settings of the read.

    Of several locations each is given what its kind of store can have.

    Args:
        provider: its name.
        location: what they are for.
        settings: ``storage.*`` of the read; they override what the provider gives.
        environ: variables; those of this process by default.

    Raises:
        OptionError: the provider is not there, or gives no storage options.
    """
    kind = kind_of(location)
    variables = os.environ if environ is None else environ
    try:
        looked_up = {
            name: _looked_up(name, text, variables, "lists") if is_reference(text) else text
            for name, text in settings.items()
        }
        own = only_for(kind, parse_values(looked_up))
    except OptionError as error:
        raise error.located(source="storage.*") from None
    if provider == "default":
        return own
    if provider.startswith("env:"):
        given: Mapping[str, object] = _of_prefix(
            f"credentials={provider}", NAMES, variables, "{0}KEY and {0}SECRET, or {0}ACCOUNT_KEY", "lists"
        )
    else:
        given = _called(provider, location)
    try:
        return override(own, only_for(kind, parse_values(given)))
    except OptionError as error:
        raise error.located(source=f"credentials={provider}") from None


def _looked_up(name: str, text: str, environ: Mapping[str, str], use: str) -> Secret:
    variable = text.strip().removeprefix("env:")
    if not environ.get(variable):
        raise OptionError(f"{name}=env:{variable} finds no variable in this process", hint=_VARIABLES_HINT + use)
    return Secret(environ[variable])


def _of_prefix(
    named: str, settings: Collection[str], environ: Mapping[str, str], expected: str, use: str
) -> dict[str, str]:
    """The values of variables with a prefix, by the rest of their names in lower case.

    Args:
        named: the option and its value, which ends with the prefix.
        settings: the rests that are looked for.
        expected: variables that it may have, for the error.
        use: what the driver needs them for, for the error.
    """
    begin = f"{named.rpartition('env:')[2].rstrip('_')}_"
    found = {}
    for variable, value in environ.items():
        if variable.startswith(begin) and value and (name := variable.removeprefix(begin).lower()) in settings:
            found[name] = value
    if not found:
        raise OptionError(
            f"{named} finds no variable in this process",
            expected=f"{expected.format(begin)}, and so on",
            hint=_VARIABLES_HINT + use,
        )
    return found


def call_provider(provider: str, location: str, option: str = "credentials") -> object:
    """What a provider of the form ``module:callable`` gives for a location.

    Args:
        option: which option names it, for messages.

    Raises:
        OptionError: it cannot be imported, or fails; the text of its error is not shown.
    """
    module, _, path = provider.partition(":")
    try:
        target: Any = importlib.import_module(module)
        for part in path.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError) as error:
        raise OptionError(
            f"{option}={provider} cannot be imported: {type(error).__name__}",
            hint="The module must be importable on the driver and on every executor",
        ) from None
    try:
        given: object = target(location)
    except Exception as error:
        raise OptionError(f"{option}={provider} failed: {type(error).__name__}") from None  # its text may hold a secret
    return given


def _called(provider: str, location: str) -> Mapping[str, object]:
    given = call_provider(provider, location)
    if isinstance(given, StorageOptions):
        return {name: getattr(given, name) for name in StorageOptions.__slots__ if getattr(given, name) is not None}
    if not isinstance(given, Mapping):
        raise OptionError(
            f"credentials={provider} gives no storage options", found=type(given).__name__, expected="a mapping"
        )
    return given


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers of a read and the settings of their client. Picklable; holds no secret.

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
        own = {
            name: _looked_up(KAFKA + name, text, environ, "plans") if name in _SECRETS else text
            for name, text in self.settings.items()
        }
        return _provided(self, environ) | own

    def connect(self, settings: Mapping[str, object] | None = None) -> KafkaCluster:
        """A client with what this process knows; it connects when it is first asked.

        Args:
            settings: as ``resolve`` gave them; it is asked by default.

        Raises:
            OptionError: as ``resolve``; or settings contradict each other.
        """
        from segreader.live.cluster import KafkaCluster

        return KafkaCluster(self.servers, self.resolve() if settings is None else settings)


def parse_brokers(given: Mapping[str, str]) -> Brokers | None:
    """The brokers that the options name; ``None`` if they name none.

    Args:
        given: options by their names in lower case.

    Raises:
        OptionError: an address or a setting is not valid, one is a secret, or another option contradicts them.
    """
    provider = parse_provider(given.get(CREDENTIALS.lower(), "default"), CREDENTIALS)
    if SERVERS not in given:
        return None
    from segreader.broker.connection_pool import parse_bootstrap
    from segreader.broker.settings import parse_options as parse_settings

    servers = given[SERVERS].strip()
    try:
        if "@" in servers:
            raise OptionError("a broker's address holds no user")
        parse_bootstrap(servers)
    except OptionError as error:
        raise error.located(source=SERVERS) from None
    settings = {name: _checked(name, given[KAFKA + name].strip()) for name in _names_of_settings(given)}
    try:
        parse_settings({name: text for name, text in settings.items() if name not in _SECRETS})
    except OptionError as error:
        raise error.located(source="kafka.*") from None
    if "maxbytespertrigger" in given:
        raise OptionError(
            f"maxBytesPerTrigger and {SERVERS} exclude each other: a broker does not report bytes",
            hint="Limit a trigger with maxOffsetsPerTrigger",
        )
    return Brokers(servers, settings, provider)


def provided_to_registry(provider: str, url: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of ``segreader.schemas.registry`` that a provider gives: secrets, and files of certificates.

    Args:
        provider: its name, other than ``default``, which leaves them to the variables of ``open_schemas``.

    Raises:
        OptionError: it is not there, or gives something else.
    """
    from segreader.typed.sources import OF_ENVIRONMENT

    named = f"{REGISTRY_CREDENTIALS}={provider}"
    if provider.startswith("env:"):
        expected = "{0}AUTH (user:password) or {0}TOKEN"
        found = _of_prefix(named, OF_ENVIRONMENT, environ, expected, "asks the registry")
        return {name: Secret(text) if name in _SECRETS_OF_REGISTRY else text for name, text in found.items()}
    given = call_provider(provider, url, REGISTRY_CREDENTIALS)
    names = (*OF_ENVIRONMENT, "headers")
    if not isinstance(given, Mapping) or not all(name in names for name in given):
        raise OptionError(
            f"{named} gives no arguments of a registry",
            found=type(given).__name__ if not isinstance(given, Mapping) else "other names",
            expected=f"a mapping with {', '.join(names)}",
        )
    return dict(given)


def _names_of_settings(given: Mapping[str, str]) -> list[str]:
    """The settings of the client; an unknown one may be a misspelt one on which security depends."""
    from segreader.broker.settings import NAMES as SETTINGS

    mine = []
    without_effect = []
    for name in sorted(name for name in given if name.startswith(KAFKA)):
        short = name.removeprefix(KAFKA)
        if short in SETTINGS:
            mine.append(short)
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
    if name in _NOT_AS_TEXT:
        raise OptionError(f"{KAFKA}{name} is no text", hint=f"Name a provider of yours: {CREDENTIALS}=module:callable")
    if name in _SECRETS and not is_reference(text):
        raise OptionError(
            f"{KAFKA}{name} is a secret; Spark shows options in its UI and event log in clear",
            expected="env:VARIABLE",
            hint=f"Every process that asks brokers must have the variable; or name a provider with {CREDENTIALS}",
        )
    if redact(text) != text:
        raise OptionError(f"{KAFKA}{name} holds a credential, and Spark shows options in its UI")
    return text


def _provided(brokers: Brokers, environ: Mapping[str, str]) -> dict[str, object]:
    provider = brokers.credentials
    if provider == "default":
        return {}
    if provider.startswith("env:"):
        named = f"{CREDENTIALS}={provider}"
        found = _of_prefix(named, _OF_PREFIX, environ, "{0}SASL_USERNAME and {0}SASL_PASSWORD", "plans")
        return {_OF_PREFIX[name]: Secret(text) for name, text in found.items()}
    given = call_provider(provider, f"kafka://{brokers.servers}", CREDENTIALS)
    if not isinstance(given, Mapping):
        raise OptionError(
            f"{CREDENTIALS}={provider} gives no settings of a Kafka client",
            found=type(given).__name__,
            expected="a mapping by Kafka's names, such as sasl.username and sasl.password",
        )
    return {str(name).lower().removeprefix(KAFKA): _kept(value) for name, value in given.items()}


def _kept(value: object) -> object:
    """A value of a provider, of which no text is shown."""
    if isinstance(value, str):
        return Secret(value)
    return value if isinstance(value, Secret | int) or callable(value) else None  # which is refused with its name
