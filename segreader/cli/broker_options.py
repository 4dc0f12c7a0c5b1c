"""The options that name a cluster: for commands that read a live topic, and for ``segreader broker``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from segreader.storage.signed_url import Secret

_F = TypeVar("_F", bound=Callable[..., Any])

_BOOTSTRAP_HELP = (
    "Brokers to ask first, HOST:PORT with commas between: then the topic is read as it is now, its remote "
)
_BOOTSTRAP_HELP += (
    "part from LOCATION, or by locations or records of the brokers. kafka://HOST:PORT as LOCATION says the "
)
_BOOTSTRAP_HELP += "same without a store."

_BROKER_OPTION = click.option(
    "--broker-option",
    "broker_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of the Kafka client by Kafka's name, such as security.protocol=SASL_SSL; may be repeated. NAME=@FILE "
    "and NAME=env:VARIABLE keep a secret out of the process list. docs/reference/options.md lists the names.",
)

_OPTIONS = (
    click.option("--bootstrap-servers", metavar="HOST:PORT,…", help=_BOOTSTRAP_HELP),
    _BROKER_OPTION,
)

_LIVE_SCAN_OPTIONS = (
    click.option(
        "--group", metavar="ID", help="Begin at the offsets that this consumer group has committed. It is only read."
    ),
    click.option(
        "--prefer",
        type=click.Choice(["broker", "store"]),
        default="broker",
        show_default=True,
        help="Where records come from that both have: the brokers, or the store, to spare brokers.",
    ),
    click.option(
        "--no-locations",
        is_flag=True,
        help="Ask the brokers for records where no store is given, not for locations as segreader gateway tells them.",
    ),
)


@dataclass(frozen=True, slots=True)
class LiveChoice:
    """What a command line says of the cluster.

    Args:
        bootstrap_servers: ``None`` where none are named.
        broker_options: by Kafka's names; secrets are not shown.
        group, prefer, locations: as ``segreader.scan``.
    """

    bootstrap_servers: str | None
    broker_options: Mapping[str, Secret] = field(default_factory=dict, repr=False)
    group: str | None = None
    prefer: str = "broker"
    locations: bool = True

    def scan_arguments(self) -> dict[str, Any]:
        """The arguments of ``segreader.scan`` that say the same."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "broker_options": self.broker_options,
            "group": self.group,
            "prefer": self.prefer,
            "locations": self.locations,
        }


def live_options(command: _F) -> Callable[..., Any]:
    """The options of a command that reads a live topic; the command gets them together, as ``live``."""

    @wraps(command)
    def with_live(
        *arguments: Any,
        bootstrap_servers: str | None,
        broker_options: tuple[str, ...],
        group: str | None = None,
        prefer: str = "broker",
        no_locations: bool = False,
        **others: Any,
    ) -> Any:
        live = LiveChoice(bootstrap_servers, parse_broker_options(broker_options), group, prefer, not no_locations)
        return command(*arguments, live=live, **others)

    return _decorated(with_live, (*_OPTIONS, *_LIVE_SCAN_OPTIONS))


def live_offsets_options(command: _F) -> Callable[..., Any]:
    """As ``live_options``, for a command that reads no records."""

    @wraps(command)
    def with_live(
        *arguments: Any, bootstrap_servers: str | None, broker_options: tuple[str, ...], **others: Any
    ) -> Any:
        return command(*arguments, live=LiveChoice(bootstrap_servers, parse_broker_options(broker_options)), **others)

    return _decorated(with_live, _OPTIONS)


def cluster_options(command: _F) -> Callable[..., Any]:
    """As ``live_offsets_options``, for a command that is about a cluster: one must be named."""

    @wraps(command)
    def with_cluster(*arguments: Any, bootstrap_servers: str, broker_options: tuple[str, ...], **others: Any) -> Any:
        live = LiveChoice(bootstrap_servers.removeprefix("kafka://"), parse_broker_options(broker_options))
        return command(*arguments, live=live, **others)

    required = click.option(
        "--bootstrap-servers", required=True, metavar="HOST:PORT,…", help="Brokers to ask first, with commas between."
    )
    return _decorated(with_cluster, (required, _BROKER_OPTION))


def parse_broker_options(texts: tuple[str, ...]) -> dict[str, Secret]:
    """The broker options of a command line; a value may stand in a file or a variable.

    Raises:
        OptionError: one is no ``NAME=VALUE``, or its file or variable is not there.
    """
    if not texts:
        return {}
    from segreader.storage.options import parse_storage_options

    return parse_storage_options(texts)


def _decorated(command: Callable[..., Any], options: tuple[Callable[[Any], Any], ...]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command
