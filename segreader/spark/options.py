"""Every option of ``format("segreader")``: its name, and the value that it becomes, checked against the others.

Names and JSON forms are those of Spark's kafka source wherever it has the same thing (Spark 4
``KafkaSourceProvider``, ``JsonUtils``), so that a job moves by changing ``format``. Nothing here looks at
storage. Spark says only later whether a batch is read or a stream: see ``require_batch``.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import field, fields

from segreader.catalog.listing import NEWEST
from segreader.errors import OptionError
from segreader.isolation import IsolationLevel
from segreader.places import place_named
from segreader.plan.cut import DEFAULT_SPLIT_BYTES
from segreader.plan.request import Bounds, Policy, ReadOptions
from segreader.spark.credentials import (
    KAFKA,
    REGISTRY_CREDENTIALS,
    SERVERS,
    Brokers,
    is_reference,
    parse_brokers,
    parse_provider,
)
from segreader.spark.option_values import (
    EARLIEST,
    LATEST,
    MIB,
    Given,
    PartitionOffsets,
    compile_pattern,
    parse_assignment,
    parse_offsets,
    parse_timestamps,
)
from segreader.storage.options import NAMES as STORAGE_NAMES
from segreader.storage.options import Kind, StorageOptions, canonical_name, kind_of, parse_values
from segreader.storage.signed_url import redact
from segreader.stored.source import Catalog
from segreader.typed.decoding import Side, Undecodable
from segreader.values import dataclass

NAMES = (
    "location",
    "path",
    "subscribe",
    "assign",
    "subscribePattern",
    "topicId",
    "startingOffsets",
    "startingOffsetsDefault",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "includeHeaders",
    "rawColumns",
    "schemas",
    "valueSchema",
    "keySchema",
    "valueFields",
    "keyFields",
    "schemaVersion",
    "onUndecodable",
    "schemaRegistryCredentials",
    "isolationLevel",
    "kafka.isolation.level",
    "kafka.bootstrap.servers",
    "brokerCredentials",
    "failOnDataLoss",
    "layout",
    "rsmConfig",
    "metadata",
    "segmentsFrom",
    "logDirectory",
    "leaderEpochs",
    "credentials",
    "verify",
    "splitBytes",
    "minPartitions",
    "maxRecordsPerPartition",
    "batchBytes",
    "batchRecords",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "readBudget",
)
"""Every option but ``storage.<name>``, and ``kafka.<name>``, which are settings of a Kafka client."""

STORAGE = "storage."
"""What the names of storage options begin with."""

_REFUSED = {
    "kafka.key.deserializer": "keys are given as bytes, or decoded by keySchema",
    "kafka.value.deserializer": "values are given as bytes, or decoded by valueSchema",
    "kafka.key.serializer": "keys are given as bytes, or decoded by keySchema",
    "kafka.value.serializer": "values are given as bytes, or decoded by valueSchema",
    "kafka.auto.offset.reset": "use startingOffsets instead",
    "kafka.enable.auto.commit": "nothing is committed to a broker",
    "kafka.interceptor.classes": "no Java consumer runs",
    "tail": "with kafka.bootstrap.servers a read goes on to the broker's end, without it it ends where the uploads do",
}
EARLIER = {"keys": "rsmConfig"}
"""Earlier names of options, which are still taken."""
_WITHOUT_EFFECT = ("groupidprefix", KAFKA, "kafkaconsumer.", "fetchoffset.")
_SCHEMAS = {"both": "schemas", "value": "valueSchema", "key": "keySchema"}
"""Options that say where schemas come from, by the fields of ``SchemaChoice``."""

_SPARKS_OWN = ("paths", "owner", "provider", "option.")
_SECRET = re.compile(r"secret|password|passwd|token|access[._-]?key|account[._-]?key|jaas", re.IGNORECASE)
_SECRET_FIELDS = frozenset(field.name for field in fields(StorageOptions) if "Secret" in str(field.type))
_CANONICAL = {name.lower(): name for name in (*NAMES, *_REFUSED)}
_LONGEST_NAME = 60

LARGEST_BATCH = 256 * MIB
LARGEST_COUNT = 2**31 - 1

logger = logging.getLogger(__name__)

_VIEW = "Make a view: CREATE TEMPORARY VIEW name USING segreader OPTIONS (location '…', subscribe '…')"

OTHERS_FROM_EARLIEST = "startingOffsetsDefault=earliest reads those that it does not name from their first offset"
"""The next step where ``startingOffsets`` lacks a partition."""

_LOCATED = "https://"
"""The kind of store that brokers' locations are read from."""

Times = int | PartitionOffsets
"""One time for all partitions, or one for each; ms since 1970 UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChoice:
    """Which topics are read: names, or a pattern of names, or partitions of each. Exactly one is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The topics by name; none where a pattern chooses."""
        return self.topics if self.assigned is None else tuple(self.assigned)

    def matches(self, topic: str) -> bool:
        """Whether this topic is read; a pattern may match anywhere. Source: Spark 4 ``SubscribePatternStrategy``."""
        if self.pattern is not None:
            return re.search(self.pattern, topic) is not None
        return topic in self.names


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChoice:
    """Which schemas decode keys and values; nothing is known of them yet: see ``typed_values.with_schemas``.

    Args:
        both: where they come from: the URL of a registry, or the path of a file on the driver. Keys are decoded where
            the topics have schemas of keys.
        value, key: where those of one side come from, which are decoded in any case.
        value_fields, key_fields: the fields to decode, with dots between; the empty path is all of them.
        version: of the topic's subject, whose schema gives the columns; ``None``: all versions together.
        on_undecodable: ``fail``, ``null`` or ``keep``.
        credentials: name of what gives those of a registry: see ``segreader.spark.credentials``.
    """

    both: str | None = None
    value: str | None = None
    key: str | None = None
    value_fields: tuple[str, ...] = ("",)
    key_fields: tuple[str, ...] = ("",)
    version: int | str | None = None
    on_undecodable: Undecodable = Undecodable.FAIL
    credentials: str = "default"

    @property
    def is_any(self) -> bool:
        """Whether something is decoded."""
        return (self.both, self.value, self.key) != (None, None, None)

    def place_of(self, side: Side) -> str | None:
        """Where the schemas of a side come from that are given for it alone."""
        return self.value if side is Side.VALUE else self.key

    def fields_of(self, side: Side) -> tuple[str, ...]:
        """The fields to decode of a side."""
        return self.value_fields if side is Side.VALUE else self.key_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """The options of one read, checked against each other; of several starts or ends the one that takes precedence.

    Args:
        locations: directories or URLs that hold the segments; there may be none where brokers are asked.
        brokers: they know where each partition ends, and have what is not uploaded; ``None`` reads what is uploaded.
        choice: which topics.
        topic_ids: which of them, where a topic was deleted and created again: ids, or ``newest``.
        starting_offsets: first offset of each partition; ``None`` reads from the earliest, or by ``starting_times``.
        starting_offsets_default: that of a partition that ``starting_offsets`` does not name; ``None`` refuses one.
        skips_unknown: whether a partition that ``starting_offsets`` names may be gone; the plan notes it. Set by jobs.
        ending_offsets: offset after the last of each partition; ``None`` reads to the end, or by ``ending_times``.
        bounds: the same offsets for every partition, in place of these two; a partition gives what it has of them. Set
            by jobs, by no option; with ``starting_offsets`` it is only the end.
        starting_times: each partition begins with the first record that is not older.
        ending_times: each partition ends before the first record that is not older, or else at its end.
        starts_at_latest: where nothing is as new as ``starting_times``, read nothing instead of failing; or, without
            times, begin at the end: a stream may.
        include_headers, raw_columns: whether the schema has the column ``headers``, and those of the batches.
        schemas: which schemas decode keys and values. Once they are learnt, ``read_options`` has them.
        catalog: how segments are found at the locations, and what is known besides; tasks read the broker's properties
            file and the log directory, too.
        read_options: how records are read, of any columns. ``on_missing`` is as ``on_gap``, but a job may choose it by
            itself.
        storage: settings of the store by name; a secret among them is a reference: ``env:VARIABLE``.
        credentials: name of what gives credentials: see ``segreader.spark.credentials``.
        split_bytes: stored bytes that one task reads.
        may_shrink_splits: whether splits may be smaller where cores would be idle: no size was given.
        min_partitions: at least so many tasks.
        max_records_per_partition: at most so many offsets to a task.
        read_budget: stored bytes that a task may read in a second.
        limits: of triggers, by the options that give them: offsets, bytes, ms.
    """

    locations: tuple[str, ...]
    brokers: Brokers | None = None
    choice: TopicChoice
    topic_ids: tuple[str, ...] = ()
    starting_offsets: PartitionOffsets | None = None
    starting_offsets_default: int | None = None
    skips_unknown: bool = False
    ending_offsets: PartitionOffsets | None = None
    bounds: Bounds | None = None
    starting_times: Times | None = None
    ending_times: Times | None = None
    starts_at_latest: bool = False
    include_headers: bool = False
    raw_columns: bool = False
    schemas: SchemaChoice = field(default_factory=SchemaChoice)
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    catalog: Catalog = field(default_factory=Catalog)
    read_options: ReadOptions = field(default_factory=ReadOptions)
    storage: Mapping[str, str] = field(default_factory=dict)
    credentials: str = "default"
    split_bytes: int = DEFAULT_SPLIT_BYTES
    may_shrink_splits: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    read_budget: int | None = None
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def fail_on_data_loss(self) -> bool:
        """Whether offsets that are gone are an error."""
        return self.read_options.on_gap is Policy.FAIL

    def start_of(self, topic: str, partition: int) -> int:
        """The offset of ``starting_offsets`` for a partition, or the default."""
        default = EARLIEST if self.starting_offsets_default is None else self.starting_offsets_default
        return (self.starting_offsets or {}).get(topic, {}).get(partition, default)

    def may_lack(self, topic: str, partition: int) -> bool:
        """Whether a partition that is asked for may be gone."""
        is_known = partition in (self.starting_offsets or {}).get(topic, {})
        return not self.fail_on_data_loss or (self.skips_unknown and is_known)

    @property
    def location(self) -> str:
        """Where is read, for people."""
        return ", ".join((*self.locations, *([] if self.brokers is None else [self.brokers.servers])))

    @property
    def starts_at_end(self) -> bool:
        """Whether a new query has only what comes after its start: a stream's may."""
        return self.starts_at_latest and self.starting_times is None and self.starting_offsets is None


def parse_options(options: Mapping[str, str], *, on_missing: Policy | None = None) -> SparkOptions:
    """The options as values.

    Args:
        options: as Spark gives them: any case of names, text values.
        on_missing: overrides ``failOnDataLoss``.

    Raises:
        OptionError: an option is unknown, missing or malformed, bears a secret, or contradicts another.
    """
    given = _by_names_of_today(options)
    if "provider" in given and "owner" in given:  # CREATE TABLE: queries of the table get none of its options
        raise OptionError("a table of a catalog cannot be made of segreader: it carries no options", hint=_VIEW)
    require_usable(given, asks_brokers=SERVERS in given)
    brokers = parse_brokers(given)
    locations = _locations(given, is_required=brokers is None)
    choice = _topic_choice(given)
    falls_back = given.word("startingOffsetsByTimestampStrategy", ("error", "latest"), default="error") == "latest"
    default = _starting_default(given)
    starting = _bound(given, "starting", choice, keyword="earliest", is_partial=default is not None)
    ending = _bound(given, "ending", choice, keyword="latest")
    _require_order(starting, ending)
    on_gap = Policy.FAIL if given.boolean("failOnDataLoss", default=True) else Policy.SKIP
    return SparkOptions(
        locations=locations,
        brokers=brokers,
        choice=choice,
        topic_ids=_topic_ids(given, asks_brokers=brokers is not None),
        starting_offsets=starting.offsets,
        starting_offsets_default=None if starting.offsets is None else default,
        ending_offsets=ending.offsets,
        starting_times=starting.times,
        ending_times=ending.times,
        starts_at_latest=starting.is_latest or (falls_back and starting.times is not None),
        include_headers=given.boolean("includeHeaders", default=False),
        raw_columns=given.boolean("rawColumns", default=False),
        schemas=_schemas(given),
        isolation_level=_isolation_level(given),
        catalog=_catalog(given, locations, asks_brokers=brokers is not None),
        read_options=ReadOptions(
            batch_rows=given.size("batchRecords", most=LARGEST_COUNT) or 65536,
            batch_bytes=given.size("batchBytes", most=LARGEST_BATCH) or 4 * MIB,
            check_crcs=given.word("verify", ("crc", "none"), default="crc") == "crc",
            on_gap=on_gap,
            on_missing=on_missing or on_gap,
        ),
        storage=_storage(given, locations),
        credentials=parse_provider(given.get("credentials", "default")),
        split_bytes=given.size("splitBytes") or DEFAULT_SPLIT_BYTES,
        may_shrink_splits="splitbytes" not in given,
        min_partitions=given.count("minPartitions"),
        max_records_per_partition=given.count("maxRecordsPerPartition"),
        read_budget=given.size("readBudget"),
        limits=_limits(given),
    )


def parse_stream_options(options: Mapping[str, str]) -> SparkOptions:
    """The options of a stream as values.

    Args:
        options: as Spark gives them: any case of names, text values.

    Raises:
        OptionError: as ``parse_options``; an option has no meaning in a stream, or limits contradict each other.
    """
    read = parse_options(options)
    if read.ending_offsets is not None or read.ending_times is not None:
        raise OptionError(
            "endingOffsets, endingTimestamp and endingOffsetsByTimestamp have no meaning in a stream",
            hint="A stream continues with new uploads; use spark.read to read up to an end",
        )
    max_offsets, min_offsets = read.limits.get("maxOffsetsPerTrigger"), read.limits.get("minOffsetsPerTrigger")
    max_bytes = read.limits.get("maxBytesPerTrigger")
    if max_offsets is not None and max_bytes is not None:
        raise OptionError("maxOffsetsPerTrigger and maxBytesPerTrigger exclude each other; give one")
    if max_offsets is not None and min_offsets is not None and min_offsets > max_offsets:
        raise OptionError(
            "minOffsetsPerTrigger is more than maxOffsetsPerTrigger",
            found=min_offsets,
            expected=f"at most {max_offsets}",
        )
    return read


def require_batch(options: SparkOptions) -> None:
    """Refuse what only a stream can do; what has no effect in a batch read is logged.

    Raises:
        OptionError: the read would start at the end.
    """
    starts = (options.starting_offsets or {}).values()
    if (options.starts_at_latest and options.starting_times is None) or any(LATEST in one.values() for one in starts):
        raise OptionError(
            "startingOffsets cannot be latest, or -1, in a batch read",
            hint="Give earliest or an offset for each partition",
        )
    if options.limits:
        logger.warning("without effect in a batch read: %s", ", ".join(options.limits))


def _by_names_of_today(options: Mapping[str, str]) -> Given:
    """The options by their names in lower case, those with an earlier name by that of today."""
    given = Given({name.lower(): str(value) for name, value in options.items()})
    for old, new in EARLIER.items():
        if old not in given:
            continue
        if new.lower() in given:
            raise OptionError(f"{old} is the earlier name of {new}: give one of them")
        given[new.lower()] = given.pop(old)
        text = f"the option {old} is deprecated, use {new}"
        warnings.warn(text, DeprecationWarning, stacklevel=3)
        logger.warning("%s", text)
    return _of_place(given)


def _of_place(given: Given) -> Given:
    """The options, with those of the place that the location names; what is given wins. Secrets stay references."""
    name = next((name for name in ("location", "path") if given.text(name)), None)
    found = None if name is None else place_named(given.text(name))
    if name is None or found is None:
        return given
    place, rest = found
    own = {
        name: None if place.is_cluster else place.location,
        "layout": place.layout,
        "rsmconfig": place.rsm_config,
        "metadata": place.metadata,
        "segmentsfrom": place.segments_from,
        "logdirectory": place.log_directory,
        "leaderepochs": place.leader_epochs,
    }
    if place.servers is not None and SERVERS not in given:  # other brokers are not sent what is for these
        texts = place.broker_texts(one.removeprefix(KAFKA) for one in given)
        own |= {SERVERS: place.servers} | {KAFKA + one.lower(): text for one, text in texts.items()}
    named = [one.removeprefix(STORAGE) for one in given if one.startswith(STORAGE)]
    if given.get("credentials", "default") != "default":
        named.append("secret")  # another source of them: none of the place's are taken
    own |= {STORAGE + one: text for one, text in place.storage_texts(named).items()}
    if rest is not None:
        if any(given.text(one) for one in ("assign", "subscribe", "subscribePattern")):
            raise OptionError("the topic is named twice", found=f"{rest} behind a place's name", hint="Leave one out")
        topic, _, partition = rest.partition("/")
        own |= {"assign": json.dumps({topic: [int(partition)]})} if partition else {"subscribe": topic}
    del given[name]
    return Given({one: text for one, text in own.items() if text is not None} | given)


def require_usable(given: Mapping[str, str], *, asks_brokers: bool = False) -> None:
    """Refuse what cannot be an option; name in one log line what has no effect.

    Args:
        given: by names in lower case, as Spark gives them.
        asks_brokers: whether ``kafka.<name>`` have an effect: then they are judged elsewhere.

    Raises:
        OptionError: a name is unknown, bears a secret, or asks for what is not done here.
    """
    without_effect = []
    for name, text in given.items():
        shown = _CANONICAL.get(name, name)
        if name in _REFUSED:
            raise OptionError(f"{shown} has no place here: {_REFUSED[name]}")
        if asks_brokers and name.startswith(KAFKA):
            continue
        if name.startswith(STORAGE) and is_reference(text):
            continue
        if _SECRET.search(name) or _is_secret_of_storage(name):
            raise OptionError(
                f"{shown} looks like a secret; Spark shows options in its UI and event log in clear",
                hint="Name a provider with credentials (env:PREFIX or module:callable), or a variable "
                f"({STORAGE}<name>=env:VARIABLE), or give the processes that read an identity; see "
                "docs/how-to/spark.md",
            )
        if shown in NAMES or name.startswith((*_SPARKS_OWN, STORAGE)):
            continue
        if not name.startswith(_WITHOUT_EFFECT):
            raise OptionError(f"unknown option {name[:_LONGEST_NAME]}", hint=_nearest(name))
        without_effect.append(name)
    if without_effect:
        logger.info("without effect here: %s", ", ".join(sorted(without_effect)))


def _is_secret_of_storage(name: str) -> bool:
    field_name = STORAGE_NAMES.get(name.removeprefix(STORAGE).replace("-", "_"))
    return name.startswith(STORAGE) and field_name in _SECRET_FIELDS


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name[:_LONGEST_NAME], [known.lower() for known in NAMES], n=1, cutoff=0.5)
    return f"Did you mean {_CANONICAL[close[0]]}?" if close else f"There are {', '.join(NAMES)}, {STORAGE}<name>"


def _locations(given: Given, *, is_required: bool) -> tuple[str, ...]:
    named = {name: text for name in ("location", "path", "paths") if (text := given.text(name))}
    if not named and not is_required:
        for name in ("layout", "rsmConfig", "metadata", "segmentsFrom"):
            if given.text(name):
                raise OptionError(f"{name} has no effect without a location: brokers return the locations of segments")
        return ()
    if not named:
        raise OptionError(
            'location is missing; give .option("location", …) or .load(…)',
            hint="" if any(given.values()) else f"Tables of a catalog carry no options. {_VIEW}",
        )
    lists = {name: _listed_locations(name, text) for name, text in named.items()}
    if len(set(lists.values())) > 1:
        raise OptionError(f"{' and '.join(named)} name different places; give one")
    locations = next(iter(lists.values()))
    for location in locations:
        _require_public("location", location)
    return locations


def _require_public(name: str, place: str) -> None:
    """Refuse a place with a credential in it."""
    if kind_of(place) is Kind.HTTP:
        raise OptionError(
            f"an http {name} is a signed URL, and Spark shows options in its UI",
            found=redact(place),
            hint="Name the bucket: tasks sign URLs themselves",
        )
    if redact(place) != place:
        raise OptionError(
            f"the {name} holds a credential, and Spark shows options in its UI",
            found=redact(place),
            hint="Name what gives credentials with the option credentials",
        )


def _catalog(given: Given, locations: tuple[str, ...], *, asks_brokers: bool) -> Catalog:
    """The layout, the places of metadata topic, log directory and lineage, and whether the listing counts."""
    names = ("metadata", "logDirectory", "leaderEpochs")
    places = {name: text for name in names if (text := given.text(name))}
    for name, place in places.items():
        _require_public(name, place)
        if asks_brokers and name != "metadata":
            raise OptionError(
                f"{name} cannot be used with brokers", hint="Leave it out: the leader provides the lineage"
            )
    segments_from = None
    if given.text("segmentsFrom"):
        segments_from = given.word("segmentsFrom", ("listing", "metadata", "both"), default="both")
    if segments_from in ("metadata", "both") and "metadata" not in places:
        raise OptionError(
            f"segmentsFrom={segments_from} needs the metadata topic",
            hint="Give the directory of its log directories as the option metadata",
        )
    if segments_from == "metadata" and len(locations) > 1:
        raise OptionError(
            "segmentsFrom=metadata needs one location: the metadata topic does not name locations",
            found=", ".join(locations),
            expected="one location, or segmentsFrom=both",
        )
    layout = given.text("layout")
    return Catalog(
        layout=None if layout.lower() in ("", "auto") else layout,
        rsm_config=given.get("rsmconfig"),
        metadata=places.get("metadata"),
        segments_from=segments_from,
        log_directory=places.get("logDirectory"),
        leader_epochs=places.get("leaderEpochs"),
    )


def _listed_locations(name: str, text: str) -> tuple[str, ...]:
    if not text.startswith("["):
        return (text,)
    expected = '["s3://bucket/a","s3://bucket/b"]'
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        raise OptionError(f"{name} is not a JSON list of locations", found=redact(text), expected=expected) from None
    if not listed or not all(isinstance(one, str) and one.strip() for one in listed):
        raise OptionError(f"{name} lists no locations", found=redact(text), expected=expected)
    stripped = tuple(one.strip() for one in listed)
    if len(set(stripped)) < len(stripped):
        raise OptionError(f"{name} names a location twice", found=redact(text))
    return stripped


def _topic_choice(given: Given) -> TopicChoice:
    chosen = [name for name in ("assign", "subscribe", "subscribePattern") if given.text(name)]
    if not chosen:
        raise OptionError("subscribe is missing; give one of assign, subscribe, subscribePattern")
    if len(chosen) > 1:
        raise OptionError(f"{' and '.join(chosen)} exclude each other; give one")
    text = given[chosen[0].lower()]
    match chosen[0]:
        case "assign":
            return TopicChoice(assigned=parse_assignment(text))
        case "subscribe":
            if not (topics := _listed(text)):
                raise OptionError("subscribe names no topic", found=repr(text))
            return TopicChoice(topics=topics)
        case _:
            return TopicChoice(pattern=compile_pattern(text).pattern)


def _listed(text: str) -> tuple[str, ...]:
    """What commas separate, once each."""
    return tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))


def _topic_ids(given: Given, *, asks_brokers: bool) -> tuple[str, ...]:
    text = given.get("topicid")
    if text is None:
        return ()
    if not (ids := _listed(text)):
        raise OptionError("topicId names no topic id", found=repr(text), expected="an id, several, or newest")
    if asks_brokers:
        raise OptionError("topicId cannot be used with brokers", hint="Leave it out: they have one topic of a name")
    return tuple(one.lower() if one.lower() == NEWEST else one for one in ids)


@dataclass(frozen=True, slots=True)
class _Bound:
    """Where a read starts or ends: by offsets, by times, or at the very end of what there is."""

    name: str
    offsets: PartitionOffsets | None = None
    times: Times | None = None
    is_latest: bool = False


def _starting_default(given: Given) -> int | None:
    if not given.text("startingOffsetsDefault"):
        return None
    given.word("startingOffsetsDefault", ("earliest",), default="earliest")
    if not given.text("startingOffsets").startswith("{"):
        raise OptionError(
            "startingOffsetsDefault is of partitions that startingOffsets does not name, and it names none",
            found=f"startingOffsets={given.text('startingOffsets') or 'earliest'}",
            expected='startingOffsets={"orders":{"0":23}}',
        )
    return EARLIEST


def _bound(given: Given, side: str, choice: TopicChoice, *, keyword: str, is_partial: bool = False) -> _Bound:
    """A start or an end: ``…Timestamp`` before ``…OffsetsByTimestamp`` before ``…Offsets``."""
    name = f"{side}Timestamp"
    if (time := given.time(name)) is not None:
        return _Bound(name, times=time)
    name = f"{side}OffsetsByTimestamp"
    if (text := given.get(name.lower())) is not None:
        return _Bound(name, times=_checked(name, parse_timestamps(text, name), choice))
    name = f"{side}Offsets"
    text = given.get(name.lower(), keyword)
    if side == "starting" and text.strip().lower() == "latest":
        return _Bound(name, is_latest=True)
    offsets = parse_offsets(text, name, keyword=keyword)
    return _Bound(name, _checked(name, offsets, choice, is_partial=is_partial))


def _checked(
    name: str, offsets: PartitionOffsets | None, choice: TopicChoice, *, is_partial: bool = False
) -> PartitionOffsets | None:
    """The same; they must name what is chosen, as in Spark. What a name or a pattern covers is known at planning.

    Args:
        is_partial: whether they may lack some of it.

    Raises:
        OptionError: they name something else.
    """
    if offsets is None:
        return None
    if foreign := sorted(topic for topic in offsets if not choice.matches(topic)):
        raise OptionError(f"{name} names a topic that is not chosen", found=", ".join(foreign))
    hint = OTHERS_FROM_EARLIEST if name == "startingOffsets" else None
    missing = sorted(topic for topic in choice.names if topic not in offsets)
    if missing and not is_partial:
        raise OptionError(f"{name} does not name the topic {', '.join(missing)}", hint=hint)
    for topic, partitions in (choice.assigned or {}).items():
        named = set(offsets.get(topic, ()))
        if not named.issubset(partitions) or (not is_partial and len(named) < len(partitions)):
            raise OptionError(
                f"{name} must name {'only' if is_partial else 'exactly the'} assigned partitions of {topic}",
                found=sorted(named),
                expected=sorted(partitions),
                hint=hint if named.issubset(partitions) else None,
            )
    return offsets


def _require_order(starting: _Bound, ending: _Bound) -> None:
    """Refuse a start beyond its end, where both are offsets or both are times."""
    if isinstance(starting.times, int) and isinstance(ending.times, int) and starting.times > ending.times:
        raise OptionError(f"{starting.name} {starting.times} is beyond {ending.name} {ending.times}")
    for starts, ends in ((starting.times, ending.times), (starting.offsets, ending.offsets)):
        if isinstance(starts, int) or isinstance(ends, int):
            continue
        for topic, partitions in (starts or {}).items():
            for partition, start in partitions.items():
                stop = (ends or {}).get(topic, {}).get(partition, LATEST)
                if start not in (EARLIEST, LATEST) and stop != LATEST and start > stop:
                    raise OptionError(f"{starting.name} {start} of {topic}-{partition} is beyond {ending.name} {stop}")


def _schemas(given: Given) -> SchemaChoice:
    places = {name: given.text(option) or None for name, option in _SCHEMAS.items()}
    for name, place in places.items():
        if place is not None and redact(place) != place:
            raise OptionError(
                f"{_SCHEMAS[name]} holds a credential, and Spark shows options in its UI",
                found=redact(place),
                hint=f"Name what gives credentials with the option {REGISTRY_CREDENTIALS}",
            )
    for side in Side:
        if f"{side}fields" in given and places["both"] is None and places[side] is None:
            raise OptionError(f"{side}Fields needs {side}Schema or schemas, which have these fields")
    for name in ("schemaVersion", "onUndecodable"):
        if given.text(name) and not any(places.values()):
            raise OptionError(f"{name} needs valueSchema, keySchema or schemas: it is of decoded keys and values")
    return SchemaChoice(
        **places,
        value_fields=_fields(given, "valueFields"),
        key_fields=_fields(given, "keyFields"),
        version=_schema_version(given),
        on_undecodable=Undecodable(given.word("onUndecodable", tuple(Undecodable), default=Undecodable.FAIL)),
        credentials=parse_provider(given.get(REGISTRY_CREDENTIALS.lower(), "default"), REGISTRY_CREDENTIALS),
    )


def _fields(given: Given, name: str) -> tuple[str, ...]:
    if name.lower() not in given:
        return ("",)
    if not (paths := _listed(given.text(name))):
        raise OptionError(f"{name} names no field", found=repr(given.text(name)), expected="id, customer.name")
    return paths


def _schema_version(given: Given) -> int | str | None:
    text = given.text("schemaVersion").lower()
    if text in ("", "latest"):
        return text or None
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:10]) <= LARGEST_COUNT):
        raise OptionError("schemaVersion is neither the number of a version nor latest", found=repr(text[:40]))
    return int(text)


def _isolation_level(given: Given) -> IsolationLevel:
    named = {name: given[name.lower()] for name in ("isolationLevel", "kafka.isolation.level") if name.lower() in given}
    if len({text.strip().lower() for text in named.values()}) > 1:
        raise OptionError("isolationLevel and kafka.isolation.level contradict each other; give one")
    for name, text in named.items():
        try:
            return IsolationLevel(text.strip().lower())
        except ValueError:
            expected = " or ".join(IsolationLevel)
            raise OptionError(f"{name} is not an isolation level", found=repr(text), expected=expected) from None
    return IsolationLevel.READ_COMMITTED


def _storage(given: Given, locations: Iterable[str]) -> dict[str, str]:
    """The settings of the store by their own names; a secret is a reference, or was refused before."""
    settings = {name.removeprefix(STORAGE): text for name, text in given.items() if name.startswith(STORAGE)}
    for name, text in settings.items():
        if is_reference(text):
            canonical_name(name)
            continue
        if redact(text) != text:
            raise OptionError(f"{STORAGE}{name} holds a credential, and Spark shows options in its UI")
        errors = []
        for location in locations or (_LOCATED,):
            try:
                parse_values({name: text}, kind_of(location))
                break
            except OptionError as error:
                errors.append(error)
        else:
            raise errors[0]
    return {canonical_name(name): text for name, text in settings.items()}


def _limits(given: Given) -> dict[str, int]:
    limits = {
        "maxOffsetsPerTrigger": given.count("maxOffsetsPerTrigger"),
        "minOffsetsPerTrigger": given.count("minOffsetsPerTrigger"),
        "maxBytesPerTrigger": given.size("maxBytesPerTrigger"),
        "maxTriggerDelay": given.delay_ms("maxTriggerDelay"),
    }
    return {name: limit for name, limit in limits.items() if limit is not None}
