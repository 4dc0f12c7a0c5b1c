"""Every option of ``spark.read.format("segreader")``: names, defaults, forms, and what is refused.

Names and JSON forms are those of Spark's kafka source wherever it has the same thing (Spark 4
``KafkaSourceProvider``, ``JsonUtils``), so that a job moves by changing ``format``. Nothing here looks at
storage.
"""

from __future__ import annotations

import difflib
import logging
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from segreader.errors import OptionError
from segreader.isolation import IsolationLevel
from segreader.spark.offsets import EARLIEST, LATEST, PartitionOffsets, parse_assignment, parse_offsets

MIB = 1 << 20
LARGEST_BATCH = 256 * MIB

_NAMES = (
    "location",
    "path",
    "subscribe",
    "assign",
    "subscribePattern",
    "startingOffsets",
    "endingOffsets",
    "includeHeaders",
    "isolationLevel",
    "kafka.isolation.level",
    "failOnDataLoss",
    "layout",
    "keys",
    "splitBytes",
    "batchBytes",
    "batchRecords",
)
_LATER = (
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "readBudget",
    "credentials",
    "verify",
    "rawColumns",
    "tail",
)
_REFUSED = {
    "kafka.bootstrap.servers": "segreader reads the segments themselves and asks no broker",
    "kafka.key.deserializer": "keys are always given as bytes",
    "kafka.value.deserializer": "values are always given as bytes",
    "kafka.auto.offset.reset": "say startingOffsets instead",
    "kafka.enable.auto.commit": "nothing is committed to a broker",
    "kafka.interceptor.classes": "no Java consumer runs",
}
_WITHOUT_EFFECT = ("groupidprefix", "kafka.", "kafkaconsumer.", "fetchoffset.")
_SPARKS_OWN = ("paths", "owner", "provider", "option.")
_SECRET = re.compile(r"secret|password|passwd|token|access[._-]?key|account[._-]?key|jaas", re.IGNORECASE)
_SIZE = re.compile(r"(\d+)\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)
_CANONICAL = {name.lower(): name for name in (*_NAMES, *_LATER, *_REFUSED)}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChoice:
    """Which topics are read: names, or a pattern of names, or partitions of each. Exactly one is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None

    def matches(self, topic: str) -> bool:
        """Whether this topic is read; a pattern must match the whole name."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in (self.topics if self.assigned is None else self.assigned)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """The options of one read, checked against each other.

    Args:
        location: directory or URL that holds the segments.
        choice: which topics.
        starting_offsets: first offset of each partition; ``None`` reads from the earliest.
        ending_offsets: offset after the last of each partition; ``None`` reads to the end.
        include_headers: whether the schema has the column ``headers``.
        layout: which layout to see there; by default it is told from the names.
        keys: path of the broker's properties file that names the keys of encrypted segments; tasks read it, too.
        split_bytes: how many stored bytes one task shall read.
        batch_bytes: close an Arrow batch at this many bytes of records …
        batch_records: … or this many records, whichever comes first.
    """

    location: str
    choice: TopicChoice
    starting_offsets: PartitionOffsets | None = None
    ending_offsets: PartitionOffsets | None = None
    include_headers: bool = False
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    layout: str | None = None
    keys: str | None = None
    split_bytes: int = 128 * MIB
    batch_bytes: int = 4 * MIB
    batch_records: int = 65536


def parse_options(options: Mapping[str, str]) -> SparkOptions:
    """The options as values.

    Args:
        options: as Spark gives them: any case of names, text values.

    Raises:
        OptionError: an option is unknown, missing, malformed, not in this version, or contradicts another.
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    _refuse_unusable(given)
    if not _boolean(given, "failOnDataLoss", default=True):
        raise OptionError(
            "failOnDataLoss=false is not in this version of segreader; offsets that are gone are an error"
        )
    location = _location(given)
    choice = _topic_choice(given)
    starting, ending = _offsets(given, choice)
    return SparkOptions(
        location=location,
        choice=choice,
        starting_offsets=starting,
        ending_offsets=ending,
        include_headers=_boolean(given, "includeHeaders", default=False),
        isolation_level=_isolation_level(given),
        layout=given.get("layout"),
        keys=given.get("keys"),
        split_bytes=_size(given, "splitBytes", default=128 * MIB),
        batch_bytes=_size(given, "batchBytes", default=4 * MIB, most=LARGEST_BATCH),
        batch_records=_size(given, "batchRecords", default=65536, most=2**31 - 1),
    )


def parse_size(text: str, name: str) -> int:
    """A number of bytes from ``1048576``, ``1m``, ``1MiB``; k, m, g, t are powers of 1024 as in Spark.

    Raises:
        OptionError: not a size, or zero.
    """
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) << (10 * " kmgt".index((match[2] or " ").lower())) if match else 0
    if size <= 0:
        raise OptionError(f"{name} is not a size", found=repr(text), expected="a number such as 134217728 or 128m")
    return size


def compile_pattern(text: str) -> re.Pattern[str]:
    """A topic pattern in the syntax that Java and Python share.

    Raises:
        OptionError: it does not compile, or means something else in Java.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # '[a&&b]' and '[[a]b]' are sets of sets in Java only
        try:
            return re.compile(text)
        except (re.error, Warning) as error:
            raise OptionError(
                f"subscribePattern {text!r} does not mean the same in Java and Python: {error}",
                hint=r"Leave out \p{…}, \Q…\E, named groups and sets within sets",
            ) from None


def _refuse_unusable(given: Mapping[str, str]) -> None:
    for name in given:
        shown = _CANONICAL.get(name, name)
        if _SECRET.search(name):
            raise OptionError(
                f"{shown} looks like a secret; Spark shows options in its UI and event log in clear",
                hint="Give credentials to the processes that read, by environment or workload identity",
            )
        if name in _REFUSED:
            raise OptionError(f"{shown} has no place here: {_REFUSED[name]}")
        if shown in _LATER or name.startswith("storage."):
            raise OptionError(f"{shown} is not in this version of segreader", hint=f"There are {_listed(_NAMES)}")
        if shown in _NAMES or name.startswith(_SPARKS_OWN):
            continue
        if name.startswith(_WITHOUT_EFFECT):
            logger.info("option %s has no effect: segreader asks no broker", name)
            continue
        raise OptionError(f"unknown option {name}", hint=_nearest(name))


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name, [known.lower() for known in _NAMES], n=1, cutoff=0.5)
    return f"Did you mean {_CANONICAL[close[0]]}?" if close else f"There are {_listed(_NAMES)}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _location(given: Mapping[str, str]) -> str:
    named = {name: given[name] for name in ("location", "path", "paths") if given.get(name, "").strip()}
    if not named:
        raise OptionError(
            'location is missing; give .option("location", …) or .load(…)',
            hint=""
            if any(given.values())
            else "Catalog tables carry no options; use CREATE TEMPORARY VIEW … USING segreader OPTIONS (…)",
        )
    if len(set(named.values())) > 1:
        raise OptionError(f"{' and '.join(named)} name different places; give one")
    (location,) = set(named.values())
    if "paths" in named or location.lstrip().startswith("["):
        raise OptionError("this version of segreader reads one location at a time", found=location)
    return location


def _topic_choice(given: Mapping[str, str]) -> TopicChoice:
    chosen = [name for name in ("assign", "subscribe", "subscribePattern") if given.get(name.lower(), "").strip()]
    if not chosen:
        raise OptionError("subscribe is missing; give one of assign, subscribe, subscribePattern")
    if len(chosen) > 1:
        raise OptionError(f"{' and '.join(chosen)} exclude each other; give one")
    text = given[chosen[0].lower()]
    match chosen[0]:
        case "assign":
            return TopicChoice(assigned=parse_assignment(text))
        case "subscribe":
            topics = dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip())
            if not topics:
                raise OptionError("subscribe names no topic", found=repr(text))
            return TopicChoice(topics=tuple(topics))
        case _:
            return TopicChoice(pattern=compile_pattern(text).pattern)


def _offsets(given: Mapping[str, str], choice: TopicChoice) -> tuple[PartitionOffsets | None, PartitionOffsets | None]:
    starting = parse_offsets(given.get("startingoffsets", "earliest"), "startingOffsets", keyword="earliest")
    ending = parse_offsets(given.get("endingoffsets", "latest"), "endingOffsets", keyword="latest")
    for name, offsets in (("startingOffsets", starting), ("endingOffsets", ending)):
        if offsets is not None:
            _match_choice(name, offsets, choice)
    for topic, partitions in (starting or {}).items():
        for partition, start in partitions.items():
            stop = (ending or {}).get(topic, {}).get(partition, LATEST)
            if start != EARLIEST and stop != LATEST and start > stop:
                raise OptionError(f"startingOffsets {start} of {topic}-{partition} is beyond endingOffsets {stop}")
    return starting, ending


def _match_choice(name: str, offsets: PartitionOffsets, choice: TopicChoice) -> None:
    """Offsets must name what is chosen, as in Spark; what a name or a pattern covers is known at planning."""
    if foreign := sorted(topic for topic in offsets if not choice.matches(topic)):
        raise OptionError(f"{name} names a topic that is not chosen", found=_listed(foreign))
    wanted = choice.assigned if choice.assigned is not None else dict.fromkeys(choice.topics)
    if missing := sorted(topic for topic in wanted if topic not in offsets):
        raise OptionError(f"{name} does not name the topic {_listed(missing)}")
    for topic, partitions in (choice.assigned or {}).items():
        if set(partitions) != set(offsets[topic]):
            raise OptionError(
                f"{name} must name exactly the assigned partitions of {topic}",
                found=sorted(offsets[topic]),
                expected=sorted(partitions),
            )


def _isolation_level(given: Mapping[str, str]) -> IsolationLevel:
    named = {name: given[name.lower()] for name in ("isolationLevel", "kafka.isolation.level") if name.lower() in given}
    if len(set(named.values())) > 1:
        raise OptionError("isolationLevel and kafka.isolation.level contradict each other; give one")
    for name, text in named.items():
        try:
            return IsolationLevel(text.strip().lower())
        except ValueError:
            expected = " or ".join(IsolationLevel)
            raise OptionError(f"{name} is not an isolation level", found=repr(text), expected=expected) from None
    return IsolationLevel.READ_COMMITTED


def _boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name} is neither true nor false", found=repr(text))
    return text == "true"


def _size(given: Mapping[str, str], name: str, *, default: int, most: int | None = None) -> int:
    if (text := given.get(name.lower())) is None:
        return default
    size = parse_size(text, name)
    if most is not None and size > most:
        raise OptionError(f"{name} is too large", found=size, expected=f"at most {most}")
    return size
