"""Arguments that commands share: where a topic is, which partitions and records are wanted, which cluster is asked."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

import click

from segreader.cli.output import say
from segreader.errors import ObjectNotFoundError, OptionError
from segreader.values import dataclass

if TYPE_CHECKING:
    from segreader.catalog.listing import Wanted
    from segreader.places import Place
    from segreader.storage.signed_url import Secret
    from segreader.stored.source import Catalog, LocationSource, UrlSource


_F = TypeVar("_F", bound=Callable[..., Any])

_TOPIC = re.compile(r"([^/]+)(?:/([0-9]{1,10}))?")
_LARGEST_PARTITION = (1 << 31) - 1
_FILE_OF_LOG = re.compile(r"[0-9]{20}[.-].*")
_AT = "SEGREADER_AT"


def complete_by(name: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """What the shell offers for a parameter, by a name of ``segreader.cli.completing.OFFERS``."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from segreader.cli.completing import OFFERS

        return list(OFFERS[name](ctx, incomplete))

    return complete


_CATALOG = (
    click.option(
        "--layout",
        metavar="NAME",
        help="Read only this layout, or pattern:REGEX; docs/reference/layouts has a page for each. "
        "Default: recognised by the object names.",
    ),
    click.option(
        "--rsm-config",
        metavar="FILE",
        shell_complete=complete_by("files"),
        help="The broker's properties file, with the keys, prefix and bucket of the plugin (with or "
        "without rsm.config.).",
    ),
    click.option(
        "--metadata",
        metavar="DIR",
        shell_complete=complete_by("files"),
        help="Log directories of __remote_log_metadata: which segments are finished, and which deleted.",
    ),
    click.option(
        "--segments-from",
        type=click.Choice(["listing", "metadata", "both"]),
        help="Which source lists the segments. Default with --metadata: both.",
    ),
    click.option(
        "--log-directory",
        metavar="DIR",
        shell_complete=complete_by("files"),
        help="A broker's log directory, or a copy: read on there where the remote tier ends.",
    ),
    click.option(
        "--leader-epochs",
        metavar="FILE|DIR",
        shell_complete=complete_by("files"),
        help="A leader-epoch-checkpoint of the live log: which history survived an unclean election.",
    ),
)


_PARTITIONS = (
    click.argument("location", required=False, shell_complete=complete_by("locations")),
    click.argument(
        "topic_argument",
        required=False,
        metavar="[TOPIC[/PARTITION]]",
        shell_complete=complete_by("topics_and_partitions"),
    ),
    click.option(
        "--topic",
        metavar="NAME",
        help="Only this topic. Default: every topic there.",
        shell_complete=complete_by("topics"),
    ),
    click.option(
        "--topic-id",
        metavar="ID|newest",
        help="Which topic id, or newest, if the topic was deleted and created again.",
    ),
    click.option(
        "--partition",
        "partitions",
        type=click.IntRange(0),
        multiple=True,
        metavar="N",
        help="Only this partition; can be repeated.",
        shell_complete=complete_by("partitions"),
    ),
)

TIMES_HELP = "2026-11-01T00:00Z, -1h (before now; s m h d w), now, or ms since 1970 UTC"
"""What a time may look like, for the help of options."""


def _gathered(
    name: str, make: Callable[..., Any], *options: Callable[[Any], Any], also: tuple[str, ...] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the command gets these options together, as ``name``, which ``make`` makes of them.

    Args:
        also: what other decorators give the command, and this one takes in.
    """
    own = (*(one.name for one in getattr(_with(options, lambda: None), "__click_params__", ())), *also)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def gathered(*arguments: Any, **given: Any) -> Any:
            made = make(**{one: given.pop(one) for one in own if one in given})
            return command(*arguments, **{name: made}, **given)

        return _with(options, gathered)

    return decorate


def _with(options: tuple[Callable[[Any], Any], ...], command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


def storage_option(command: _F) -> _F:
    """The option ``--storage-option``, which every command takes that reads buckets."""
    return click.option(
        "--storage-option",
        "storage_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="Credential, endpoint or setting of the store; can be repeated. NAME=@FILE and NAME=env:VARIABLE keep a "
        "secret out of the process list. docs/reference/options.md lists the names.",
    )(command)


at_option = click.option(
    "--at",
    "location",
    metavar="LOCATION",
    envvar=_AT,
    shell_complete=complete_by("locations"),
    help="Where topics are that are named alone: a directory, a bucket, a place of segreader places, kafka://…. "
    f"Default: {_AT}.",
)
"""The option of a command whose topics are named without a location; it gets ``location``."""

at_argument = click.argument("location", metavar="AT", envvar=_AT, shell_complete=complete_by("locations"))
"""The same as an argument."""


def parse_options(texts: tuple[str, ...]) -> dict[str, Secret]:
    """Options given as ``NAME=VALUE``, for a store or a Kafka client; a value may be in a file or a variable.

    Raises:
        OptionError: one is no ``NAME=VALUE``, or its file or variable is not there.
    """
    if not texts:
        return {}
    from segreader.storage.options import parse_storage_options

    return parse_storage_options(texts)


def parse_location(text: str) -> tuple[str | None, list[str] | None]:
    """A location, or the URLs that ``@FILE`` (``-`` is stdin) lists one a line; blank lines and ``#`` are passed over.

    Raises:
        ObjectNotFoundError: there is no such file. OptionError: it lists nothing.
    """
    if text != "-" and not text.startswith("@"):
        return text, None
    name = text.removeprefix("@")
    try:
        lines = sys.stdin.read() if name == "-" else _read(name)
    except OSError as error:
        raise ObjectNotFoundError(
            "the list of URLs cannot be read", source=name, found=error.strerror, hint="Check the path"
        ) from None
    except UnicodeDecodeError:
        raise OptionError("the list of URLs is not text", found=name) from None
    urls = [line.strip() for line in lines.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not urls:
        raise OptionError("the list of URLs is empty", found=name, expected="one URL a line")
    return None, urls


def _read(name: str) -> str:
    with open(name, encoding="utf-8") as file:
        return file.read()


def parse_topic(text: str | None) -> tuple[str | None, int | None]:
    """The topic and the partition that ``orders`` or ``orders/3`` names; ``None`` for what is not said.

    A topic's name has no slash.

    Raises:
        OptionError: it is something else.
    """
    if text is None:
        return None, None
    match = _TOPIC.fullmatch(text)
    partition = int(match[2]) if match and match[2] else None
    if match is None or (partition is not None and partition > _LARGEST_PARTITION):
        shown = repr(text if len(text) <= 300 else text[:300] + "…")
        raise OptionError("not a topic", found=shown, expected="a topic's name, or name/partition as in orders/3")
    return match[1], partition


@dataclass(frozen=True, slots=True)
class Selection:
    """Where a command reads, and which partitions of it.

    Args:
        location: as it was typed, or ``None``; then there are ``urls``, or ``catalog`` names the bucket.
        urls: of ``@FILE``.
        topic, topic_id, partitions: what is asked for; everything by default.
        storage_options: credentials, endpoint and settings.
        catalog: how segments are found.
        live: the cluster and how it is read, of commands that read live topics.
        place: what was named in place of the location, and is in all of these; its schemas are its own.
    """

    location: str | None
    urls: list[str] | None = field(repr=False)
    topic: str | None
    topic_id: str | None
    partitions: tuple[int, ...] | None
    storage_options: Mapping[str, object] = field(repr=False)
    catalog: Catalog
    live: LiveChoice | None = None
    place: Place | None = None

    @property
    def is_narrowed(self) -> bool:
        """Whether more is said than where to read."""
        from segreader.stored.source import Catalog

        return (self.topic, self.topic_id, self.partitions) != (None, None, None) or self.catalog != Catalog()

    @property
    def is_live(self) -> bool:
        """Whether a cluster is named."""
        named = self.live is not None and self.live.bootstrap_servers is not None
        return named or (self.live is not None and _is_cluster(self.location))

    @property
    def wanted(self) -> Wanted:
        """The partitions asked for."""
        from segreader.catalog.listing import Wanted

        return Wanted(self.topic, self.topic_id, self.partitions)

    def open(self) -> LocationSource | UrlSource:
        """The source to read from; raises as ``open_source``."""
        from segreader.stored.source import open_source

        return open_source(self.location, urls=self.urls, storage_options=self.storage_options, catalog=self.catalog)

    def scan_arguments(self) -> dict[str, Any]:
        """The arguments of ``segreader.scan`` that say the same."""
        live = {} if self.live is None else self.live.scan_arguments()
        return (
            live
            | {
                "location": self.location,
                "urls": self.urls,
                "topic": self.topic,
                "topic_id": self.topic_id,
                "partitions": self.partitions,
                "storage_options": self.storage_options,
            }
            | {name.name: getattr(self.catalog, name.name) for name in fields(self.catalog)}
        )


def _is_cluster(location: str | None) -> bool:
    return location is not None and location.lower().startswith("kafka://")


def _catalog(**given: str | None) -> Callable[..., Catalog]:
    def make(place: Place | None = None) -> Catalog:
        from segreader.stored.source import Catalog

        return Catalog(**{name: getattr(place, name, None) if one is None else one for name, one in given.items()})

    return make


catalog_options = _gathered("make_catalog", _catalog, *_CATALOG)
"""The options of ``Catalog``; the command gets them together, as ``make_catalog``, which it calls. What is not given is
taken from the place that the call names."""


def _selection(
    location: str | None,
    topic_argument: str | None,
    topic: str | None,
    topic_id: str | None,
    partitions: tuple[int, ...],
    storage_options: tuple[str, ...],
    make_catalog: Callable[..., Catalog],
    live: LiveChoice | None = None,
) -> Callable[[], Selection]:
    def select() -> Selection:
        where, named = location, topic_argument
        has_brokers = live is not None and live.bootstrap_servers is not None
        if not has_brokers and click.get_current_context().params.get("rsm_config") is None:
            where, named = at_default(where, named, topic)
        place, where, rest = find_place(where)
        if rest is not None and (named is not None or topic is not None):
            raise click.UsageError("The topic is named twice: behind the place's name and by itself. Leave one out")
        catalog = make_catalog(place)
        name, wanted = _topic_and_partitions(rest or named, topic, partitions)
        options: Mapping[str, object] = parse_options(storage_options)
        choice = live
        if place is not None:
            options = place.options(options)
            choice = None if live is None else live.at(place)
        if where is None and catalog.rsm_config is None and (choice is None or choice.bootstrap_servers is None):
            if place is not None:
                raise click.UsageError(f"The place {place.name} is a cluster, and this command reads a store")
            raise click.UsageError(
                "Missing argument 'LOCATION'. It is optional only with an --rsm-config that names a bucket, or if "
                f"{_AT} names a place"
            )
        found, urls = (None, None) if where is None else parse_location(where)
        return Selection(found, urls, name, topic_id, wanted, options, catalog, choice, place)

    return select


def at_default(location: str | None, topic_argument: str | None, topic: str | None) -> tuple[str | None, str | None]:
    """LOCATION and TOPIC of a command line, where ``SEGREADER_AT`` is the location if none is given.

    A single argument is then a TOPIC if it may be one by its form and is no place's name.

    Args:
        topic: of ``--topic``: with it, a single argument is a location.
    """
    at = os.environ.get(_AT)
    if not at or topic_argument is not None:
        return location, topic_argument
    if location is None:
        return at, None
    return (at, location) if topic is None and may_be_topic(location) else (location, None)


def may_be_topic(text: str) -> bool:
    """Whether a text is a topic, or a partition of one, by its form: no path, URL or list, and no place's name."""
    match = _TOPIC.fullmatch(text)
    if match is None or match[1] in (".", "..", "-") or text[0] in "~@" or ":" in text or _FILE_OF_LOG.fullmatch(text):
        return False
    from segreader.places import place_named

    return place_named(text) is None


def find_place(location: str | None) -> tuple[Place | None, str | None, str | None]:
    """The place that an argument names, the location to read, and what follows the name: ``orders`` or ``orders/3``.

    Raises:
        ObjectNotFoundError: it is neither a place nor a directory, and nearly a place's name.
        OptionError: the file of places is not what it should be.
    """
    if location is None:
        return None, None, None
    from segreader import places

    named = places.find_place(location)
    if named is None:
        return None, location, None
    place, rest = named
    if rest is None and os.path.isdir(location):
        say(f"note: {location} is the place in {places.config_file()}; ./{location} is the directory")
    return place, place.location, rest


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """LOCATION, TOPIC and the options that say where and what; the command gets them together, as ``select``.

    Calling it reads ``@FILE`` and files of secrets; usage errors that need neither come first.
    """
    select = _gathered("select", _selection, also=tuple(signature(_selection).parameters))
    return _with((*_PARTITIONS, storage_option), catalog_options(select(command)))


def price_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a price table; the command gets ``price_file`` and ``price_texts``."""
    return _with(_PRICE_OPTIONS, command)


def query_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that ``sql`` and ``shell`` share: what is at AT, what queries may read, how bytes are shown, what
    reading costs.
    """
    from segreader.format.rows import ENCODINGS

    shown = (
        click.option("--allow-files", is_flag=True, help="Also let queries read files, such as 'lookup.parquet'."),
        click.option(
            "--bytes",
            "encoding",
            type=click.Choice(list(ENCODINGS)),
            help="How a BLOB becomes text. auto, the default: UTF-8 where it is printable text, else base64 with a "
            "field that says so.",
        ),
    )
    command = _with((storage_option, _BROKER_OPTION, *shown, *_PRICE_OPTIONS), command)
    return _with(_QUERY_OPTIONS, catalog_options(command))


def _topic_and_partitions(
    argument: str | None, topic: str | None, partitions: tuple[int, ...]
) -> tuple[str | None, tuple[int, ...] | None]:
    """The topic and the partitions that the argument TOPIC and the options name together."""
    name, number = parse_topic(argument)
    if name is not None and topic is not None:
        raise click.UsageError("The topic is named twice: as TOPIC and with --topic. Leave one out")
    if number is not None and partitions:
        raise click.UsageError("Partitions are named twice: in TOPIC and with --partition. Leave one out")
    return name if name is not None else topic, (number,) if number is not None else partitions or None


_BROKER_OPTION = click.option(
    "--broker-option",
    "broker_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of the Kafka client by Kafka's name, such as security.protocol=SASL_SSL; can be repeated. NAME=@FILE "
    "and NAME=env:VARIABLE keep a secret out of the process list. docs/reference/options.md lists the names.",
)

_CLUSTER_OPTIONS = (
    click.option(
        "--bootstrap-servers",
        metavar="HOST:PORT,…",
        help="Bootstrap brokers, HOST:PORT,…: read the topic up to its live end, its remote part from LOCATION, or "
        "through the brokers. kafka://HOST:PORT as LOCATION does the same without a store.",
    ),
    _BROKER_OPTION,
)

_PRICE_OPTIONS = (
    click.option(
        "--prices",
        "price_file",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="A price table in JSON or TOML: get_per_1000 (GET requests), gib_out (bytes), gib_month (storage), "
        "currency.",
    ),
    click.option(
        "--price",
        "price_texts",
        multiple=True,
        metavar="NAME=VALUE",
        help="One entry of the price table; can be repeated. There are no built-in prices, because they change.",
    ),
)

_QUERY_OPTIONS = (
    click.option("--schemas", metavar="FILE|URL", help="Schemas that decode keys and values of the topics at AT."),
    click.option("--bootstrap-servers", metavar="HOST:PORT,…", help="Brokers, to read topics up to their live end."),
)

_LIVE_SCAN_OPTIONS = (
    click.option(
        "--group", metavar="ID", help="Start at the committed offsets of this consumer group. Nothing is committed."
    ),
    click.option(
        "--prefer",
        type=click.Choice(["broker", "store"]),
        default="broker",
        show_default=True,
        help="Which tier to read records from if both have them: brokers, or the store to spare them.",
    ),
    click.option(
        "--no-locations",
        is_flag=True,
        help="Without a store, read all records from the brokers: do not ask them, or a gateway, for locations.",
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
    broker_options: Mapping[str, object] = field(default_factory=dict, repr=False)
    group: str | None = None
    prefer: str = "broker"
    locations: bool = True

    def scan_arguments(self) -> dict[str, Any]:
        """The arguments of ``segreader.scan`` that say the same."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def at(self, place: Place) -> LiveChoice:
        """The same with the brokers of a place, unless others are named."""
        if self.bootstrap_servers is None and place.servers is not None:
            options = place.client_options(self.broker_options)
            return replace(self, bootstrap_servers=place.bootstrap_servers, broker_options=options)
        return self


def _live(bootstrap_servers: str | None, broker_options: tuple[str, ...], **others: Any) -> LiveChoice:
    locations = not others.pop("no_locations", False)
    return LiveChoice(bootstrap_servers, parse_options(broker_options), locations=locations, **others)


def _cluster(bootstrap_servers: str, broker_options: tuple[str, ...]) -> LiveChoice:
    return _live(bootstrap_servers.removeprefix("kafka://"), broker_options)


live_options = _gathered("live", _live, *_CLUSTER_OPTIONS, *_LIVE_SCAN_OPTIONS)
"""The options of a command that reads a live topic; the command gets them together, as ``live``."""

live_offsets_options = _gathered("live", _live, *_CLUSTER_OPTIONS)
"""As ``live_options``, for a command that reads no records."""

cluster_options = _gathered(
    "live",
    _cluster,
    click.option(
        "--bootstrap-servers", required=True, metavar="HOST:PORT,…", help="Bootstrap brokers, separated by commas."
    ),
    _BROKER_OPTION,
)
"""As ``live_offsets_options``, for a command that is about a cluster: one must be named."""


class _OnGap(click.Choice):  # type: ignore[type-arg]
    """``fail`` or ``skip``; ``report`` is the earlier name of ``skip``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "report":
            say("warning: --on-gap report is deprecated, give --on-gap skip")
            return "skip"
        return super().convert(value, param, ctx)


_RECORD_OPTIONS = (
    click.option("--offsets", metavar="A:B", help="Only offsets from A to B, B exclusive; either can be omitted."),
    click.option(
        "--since",
        metavar="T",
        help=f"Start at the first record that is not older than T: {TIMES_HELP}.",
    ),
    click.option(
        "--until",
        metavar="T",
        help="Stop before the first record that is not older than T. Each time becomes one offset per partition: if "
        "times are out of order, some records may be outside the window.",
    ),
    click.option(
        "--isolation",
        "isolation_level",
        type=click.Choice(["read_committed", "read_uncommitted"]),
        default="read_committed",
        show_default=True,
        help="Which records to read, as isolation.level of a consumer.",
    ),
    click.option(
        "--on-gap",
        type=_OnGap(["fail", "skip"]),
        default="fail",
        show_default=True,
        help="If offsets between two segments are missing: fail (exit code 5), or skip them with a note on stderr "
        "(exit code 1).",
    ),
    click.option(
        "--on-corrupt",
        type=click.Choice(["fail", "skip"]),
        default="fail",
        show_default=True,
        help="At damage: print the records before it and fail (exit code 5), or skip it with a note on stderr (exit "
        "code 1).",
    ),
)

scan_options = _gathered("asked", dict, *_RECORD_OPTIONS)
"""The command gets these options together, as ``asked``: arguments of ``segreader.scan``."""


def _typed(
    key: str | None, value: str | None, known: str | None, schema_registry: str | None, **others: Any
) -> dict[str, Any]:
    if known is not None and schema_registry is not None:
        raise OptionError("--schemas and --schema-registry both say where schemas come from", hint="Leave one out")
    return {"key": key, "value": value, "schemas": known or schema_registry, **others}


_SCHEMA_HELP = "a registry (http…), a schema (.avsc, .proto, .desc, JSON Schema), or a file of segreader schemas pull"

schema_options = _gathered(
    "typed",
    _typed,
    click.option("--value-schema", "value", metavar="SOURCE", help=f"Decode values by the schemas of {_SCHEMA_HELP}."),
    click.option("--key-schema", "key", metavar="SOURCE", help="The same for keys."),
    click.option(
        "--schemas",
        "known",
        metavar="FILE",
        help="Decode values, and keys if they have schemas, by what segreader schemas pull saved.",
    ),
    click.option("--schema-registry", metavar="URL", help="The same by the schemas of a registry."),
    click.option(
        "--message",
        metavar="NAME",
        help="The Protobuf message that values are, by its full name. Default: the first one of its file.",
    ),
    click.option(
        "--schema-version",
        metavar="N|latest",
        help="The version of the topic's schema that gives the fields. Default: the fields of all versions.",
    ),
    click.option(
        "--on-undecodable",
        type=click.Choice(["fail", "null", "keep"]),
        default="fail",
        show_default=True,
        help="If a key or value is not what its schema says: print the records before it and fail (exit code 5); make "
        "it null, or keep its bytes in value_raw and the reason in value_error, with a note on stderr (exit code 1).",
    ),
)
"""How keys and values are decoded; the command gets these together, as ``typed``, for ``typed_arguments``."""


def typed_arguments(typed: Mapping[str, Any], topic: str | None, place: Place | None = None) -> dict[str, Any]:
    """The arguments of ``segreader.scan`` that say what ``schema_options`` do.

    Args:
        place: whose schemas decode the topic where the options name none.

    Raises:
        OptionError, SchemaRegistryError: schemas cannot be had.
    """
    given = dict(typed)
    schemas, message, version = given.pop("schemas"), given.pop("message"), given["schema_version"]
    if version is not None and version != "latest":
        given["schema_version"] = int(version) if version.isdecimal() else version
    if schemas is not None:
        from segreader.typed.reader_schema import learn_sides

        for side, known in learn_sides(schemas, topic).items():
            given[side] = given[side] or known
    elif place is not None and topic is not None and not (given["key"] or given["value"]):
        from segreader.typed.reader_schema import learn_subjects

        own = place.schemas or place.schema_registry
        given |= {} if own is None else learn_subjects(own, topic)
    if message is not None:
        from segreader.typed.reader_schema import with_message

        if given["value"] is None:
            raise OptionError("--message is of values with Protobuf schemas", hint="Give --schemas or --value-schema")
        given["value"] = with_message(given["value"], topic, message, given["schema_version"])
    return given


def ahead_options(what: str) -> Callable[[_F], _F]:
    """How far a command reads ahead; it gets ``threads`` and ``read_ahead_bytes``.

    Args:
        what: is read at a time.
    """
    of_threads = click.option(
        "--threads",
        type=click.IntRange(1),
        metavar="N",
        help=f"How many {what} are read at a time; the output is the same. Default: one per core, at least 8 for a "
        "store on the network.",
    )
    of_bytes = click.option(
        "--read-ahead-bytes",
        type=click.IntRange(1),
        metavar="N",
        help="Limit on what is read ahead of the output. Default: 256 MiB, 64 MiB for local files.",
    )
    return lambda command: of_threads(of_bytes(command))
