"""What a read is asked for, as values: which records of which partitions (``Request``), and how (``ReadOptions``)."""

from __future__ import annotations

import difflib
import os
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from operator import index
from typing import Any, Final, Self

from segreader.errors import VARIABLES_HINT, OptionError
from segreader.format.columns import DEFAULT_MAX_BYTES, DEFAULT_MAX_ROWS
from segreader.format.compression import DEFAULT_LIMIT
from segreader.isolation import IsolationLevel
from segreader.plan.cut import DEFAULT_SPLIT_BYTES
from segreader.ranges import OffsetRange
from segreader.typed.decoding import Decoding, Side
from segreader.values import dataclass

Time = int | str | datetime | None

_AGO = re.compile(r"-(\d{1,9})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_BOUNDS = re.compile(r"(\d*|earliest):(\d*|latest|latest-stable)")


def whole_number(value: Any) -> int | None:
    """The ``int`` that a value is, numpy's among them; ``None`` if it is no whole number, as a truth value is not."""
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:
        return None


def require_text(name: str, given: object) -> None:
    """Refuse what is neither text nor left out.

    Raises:
        OptionError: it is something else.
    """
    if given is not None and not isinstance(given, str):
        raise OptionError(f"{name} must be text", found=type(given).__name__)


def path_of(name: str, given: object) -> str:
    """A path or a URL as text.

    Raises:
        OptionError: it is neither, or empty.
    """
    path = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(path, str) or not path.strip():
        found = "an empty text" if isinstance(path, str) else type(given).__name__
        raise OptionError(f"{name} must be a path or a URL", found=found)
    return path


class Policy(StrEnum):
    """What to do at damage, at a gap, or where a segment vanished: raise, or continue without it."""

    FAIL = "fail"
    SKIP = "skip"

    @classmethod
    def parse(cls, name: str, word: str) -> Self:
        """The policy of this word.

        Args:
            name: the option, for the message.

        Raises:
            OptionError: it is another word.
        """
        try:
            return cls(word)
        except ValueError:
            raise OptionError(f"unknown {name}", found=word, expected="fail or skip") from None


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Times ``since_ms <= time < until_ms``; either may be open."""

    since_ms: int | None = None
    until_ms: int | None = None


def parse_time_range(since: Time, until: Time, now: datetime | None = None) -> TimeRange | None:
    """The times asked for, ``None`` if neither is.

    Raises:
        OptionError: one is no time, or they are the wrong way round.
    """
    if since is None and until is None:
        return None
    now = now or datetime.now(UTC)
    times = TimeRange(parse_time(since, now), parse_time(until, now))
    if times.since_ms is not None and times.until_ms is not None and times.since_ms > times.until_ms:
        raise OptionError("since is after until", found=f"{since} and {until}")
    return times


def parse_time(value: Time, now: datetime) -> int | None:
    """A time in ms: a ``datetime``, ms since 1970, ``2026-11-01T00:00Z``, or ``-90m`` before ``now`` (s m h d w).

    Raises:
        OptionError: it is none of these, or a clock time without a time zone.
    """
    if value is None:
        return None
    if (number := whole_number(value)) is not None:
        return number
    if not isinstance(value, str | datetime):
        raise _no_time(value)
    if isinstance(value, str):
        if re.fullmatch(r"\d{1,18}", value):
            return int(value)
        if value == "now":
            return _milliseconds(now)
        if match := _AGO.fullmatch(value):
            try:
                return _milliseconds(now - timedelta(**{_UNITS[match[2]]: int(match[1])}))
            except OverflowError:
                raise _no_time(value) from None
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise _no_time(value) from None
    if value.tzinfo is None:
        raise OptionError(
            "a time without a time zone", found=value.isoformat(), hint=f"Write {value.isoformat()}Z for UTC"
        )
    return _milliseconds(value)


def _milliseconds(value: datetime) -> int:
    return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _no_time(value: object) -> OptionError:
    return OptionError(
        "not a time", found=repr(value), expected="2026-11-01T00:00Z, -1h (s m h d w), now, or ms since 1970 UTC"
    )


class LiveEnd(StrEnum):
    """Where a read without a last offset ends."""

    LATEST = "latest"
    LATEST_STABLE = "latest-stable"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds asked for, the same for every partition.

    Args:
        start: the first offset; ``None`` for the first there is.
        stop: the first one not wanted; ``None`` for ``end``.
        end: ``latest``: what the isolation level lets a reader see; ``latest-stable``: the last stable offset in both.
        times: within these times besides.
        group: the consumer group whose committed offsets are the start.
    """

    start: int | None = None
    stop: int | None = None
    end: LiveEnd = LiveEnd.LATEST
    times: TimeRange | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        if self.group is not None and self.start is not None:
            raise OptionError(
                "a first offset and a group both say where to begin", hint="Leave one out: offsets=':B' with a group"
            )
        if self.group == "":
            raise OptionError("the name of the group is empty")


def pair_of(offsets: OffsetRange | tuple[int | None, int | None]) -> tuple[int | None, int | None]:
    """The two offsets of a pair or a range.

    Raises:
        ValueError: it is none; a ``range`` of two numbers looks like one.
    """
    if isinstance(offsets, range):
        raise ValueError(offsets)
    start, stop = (offsets.start, offsets.stop) if isinstance(offsets, OffsetRange) else offsets
    return _offset_of(start), _offset_of(stop)


def _offset_of(value: object) -> int | None:
    if (number := whole_number(value)) is None and value is not None:
        raise ValueError(value)
    return number


def parse_bounds(
    offsets: OffsetRange | tuple[int | None, int | None] | str | None,
    times: TimeRange | None = None,
    group: str | None = None,
) -> Bounds:
    """Bounds from ``A:B``, where A may be ``earliest`` and B ``latest`` or ``latest-stable``, a pair, or a range.

    Raises:
        OptionError: it is none of these.
    """
    if offsets is None:
        return Bounds(times=times, group=group)
    start: int | None
    stop: int | None
    end = LiveEnd.LATEST
    try:
        if isinstance(offsets, str):
            if (match := _BOUNDS.fullmatch(offsets.strip())) is None:
                raise ValueError(offsets)
            first, last = match[1], match[2]
            start = int(first) if first.isdecimal() else None
            stop = int(last) if last.isdecimal() else None
            end = LiveEnd(last) if last in (*LiveEnd,) else end
        else:
            start, stop = pair_of(offsets)
        OffsetRange(start or 0, stop)
    except (ValueError, TypeError, IndexError) as error:
        raise OptionError(
            "not a range of offsets",
            found=repr(offsets),
            expected="A:B with 0 <= A <= B; B is exclusive, and may be latest or latest-stable",
        ) from error
    return Bounds(start, stop, end, times, group)


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which records of those that are read are given: all conditions must hold.

    Args:
        key: the key has exactly these bytes.
        contains: the key or the value contains these bytes.
    """

    key: bytes | None = None
    contains: bytes | None = None

    def __post_init__(self) -> None:
        if self.key is None and self.contains is None:
            raise ValueError("a filter without a condition")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at."""
        return ("key",) if self.contains is None else ("key", "value")


def parse_bytes(name: str, given: bytes | str | None) -> bytes | None:
    """Bytes that are searched for: bytes as they are, the UTF-8 of a text, or, after ``0x``, its hex digits.

    A key that is the text ``0x…`` itself is given as bytes, or in hex.

    Args:
        name: the option, for the message.

    Raises:
        OptionError: it is neither, not hex after ``0x``, or has no UTF-8.
    """
    if given is None or isinstance(given, bytes):
        return given
    if not isinstance(given, str):
        raise OptionError(f"{name} is text or bytes", found=type(given).__name__)
    try:
        encoded = given.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise OptionError(f"{name} is not UTF-8", found=repr(given), hint="Give it as bytes, or in hex") from None
    if not given.startswith("0x"):
        return encoded
    try:
        return bytes.fromhex(given[2:])
    except ValueError:
        hint = f"Write text that begins with 0x in hex, too: 0x{encoded.hex()}"
        raise OptionError(f"{name} is not hex after 0x", found=repr(given), hint=hint) from None


_MOST: Final = (1 << 63) - 1
_MOST_ROWS: Final = (1 << 31) - 1
"""Of one record batch: Arrow counts the bytes of its columns in 32 bits."""


def _count(name: str, given: object, most: int = _MOST) -> int:
    if (number := whole_number(given)) is None:
        raise OptionError(f"{name} is a number", found=repr(given)[:80])
    if number < 1:
        raise OptionError(f"{name} must be positive", found=number)
    if number > most:
        raise OptionError(f"{name} is too large", found=number, expected=f"at most {most}")
    return number


def parse_partitions(given: Collection[int] | int | None) -> tuple[int, ...] | None:
    """The partitions asked for, by one number or several; ``None``: all.

    Raises:
        OptionError: one is no number.
    """
    if given is None:
        return None
    if (number := whole_number(given)) is not None:
        return (number,)
    found = []
    for one in given if isinstance(given, Iterable) else (given,):
        if (number := whole_number(one)) is None:
            raise OptionError("partitions are numbers", found=repr(one)[:80])
        found.append(number)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Which records are asked for.

    Args:
        topic: its name; every topic by default, but of a cluster, which is asked for one.
        topic_id: which topic of that name, or ``newest``. A cluster refuses another than its own.
        partitions: which; all by default.
        prefers_store: take what both tiers have from the object store.
        placed_by_key: of each topic only the partition where the default partitioner puts this key. ``Scan`` and
            ``LiveScan`` heed it; those who plan by themselves name ``partitions``.
        last: only so many records at the end of each partition; of these two, too.
    """

    topic: str | None = None
    topic_id: str | None = None
    partitions: tuple[int, ...] | None = None
    bounds: Bounds = field(default_factory=Bounds)
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    prefers_store: bool = False
    placed_by_key: bytes | None = None
    last: int | None = None

    def __post_init__(self) -> None:
        require_text("topic", self.topic)
        require_text("topic_id", self.topic_id)
        object.__setattr__(self, "partitions", parse_partitions(self.partitions))
        if self.last is not None:
            object.__setattr__(self, "last", _count("last", self.last))


DEFAULT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers")
EXTRA_COLUMNS = (
    "timestamp_ms",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "sequence",
    "is_transactional",
    "compression",
    "batch_base_offset",
    "position",
)
ALL_COLUMNS = DEFAULT_COLUMNS + EXTRA_COLUMNS
_ALWAYS_FALSE = "is_control"
"""A column of the first version: no reader is given control records. It can be asked for until the next one."""

_SIDES: Final = tuple(side.value for side in Side)
_KEPT_COLUMNS: Final = tuple(f"{side}_{what}" for side in _SIDES for what in ("raw", "error"))
"""What ``on_undecodable="keep"`` adds: the bytes of undecodable keys and values, and what is wrong with each."""

_POLICIES: Final = ("on_corrupt", "on_gap", "on_missing")
_NUMBERS: Final = ("split_bytes", "batch_rows", "batch_bytes", "max_batch_bytes")

_REMOTE_BYTES_AHEAD: Final = 256 << 20
_LOCAL_BYTES_AHEAD: Final = 64 << 20
_REMOTE_THREADS: Final = 8
"""At least so many splits of a store on the network are read at a time: they wait more than they decode."""

_VARIABLES: Final = {"threads": "SEGREADER_THREADS", "read_ahead_bytes": "SEGREADER_READ_AHEAD_BYTES"}


class Order(StrEnum):
    """The order in which record batches of several partitions come.

    ``TOTAL`` is by topic, partition and offset. With ``PARTITION`` those of each partition are in order of offset, and
    partitions alternate as they are ready.
    """

    TOTAL = "total"
    PARTITION = "partition"

    @classmethod
    def parse(cls, word: str) -> Self:
        """The order of this word.

        Raises:
            OptionError: it is another word.
        """
        try:
            return cls(word)
        except ValueError:
            raise OptionError("unknown order", found=word, expected="total or partition") from None


def parse_on_gap(on_gap: str, *, stacklevel: int = 3) -> Policy:
    """The policy of this word; ``report``, the earlier name of ``skip``, is taken with a warning.

    Args:
        stacklevel: of the warning: the function that the caller of this one was called from by default.

    Raises:
        OptionError: it is another word.
    """
    if on_gap == "report":
        warnings.warn("on_gap='report' is deprecated, use on_gap='skip'", DeprecationWarning, stacklevel=stacklevel)
        return Policy.SKIP
    return Policy.parse("on_gap", on_gap)


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _unknown_column(name: str, kept: Sequence[str]) -> OptionError:
    side = name.partition(".")[0]
    if name in _KEPT_COLUMNS:
        hint: str | None = f"on_undecodable='keep' gives it, beside schemas for {name.partition('_')[0]}"
    elif side in _SIDES and side != name:
        hint = f"Fields need a source of schemas: {side}=…"
    else:
        near = difflib.get_close_matches(name, (*ALL_COLUMNS, *kept), 1)
        hint = f"Did you mean {near[0]!r}?" if near else None
    return OptionError(f"unknown column {name!r}", expected=", ".join((*ALL_COLUMNS, *kept)), hint=hint)


def split_columns(columns: Iterable[str]) -> tuple[tuple[str, ...], dict[Side, tuple[str, ...]]]:
    """The columns that are named, or a field of which is, and the paths of the fields of each side.

    ``value.customer`` asks for the column ``value`` with no more than its field ``customer``; ``value`` for all of it.

    Raises:
        OptionError: no column is named, one twice, or one by something else than text.
    """
    if isinstance(columns, str):
        raise OptionError("columns are a list of names", found=repr(columns), hint=f"Write {[columns]}")
    columns = tuple(columns) if isinstance(columns, Iterable) else (columns,)
    for column in columns:
        if not isinstance(column, str):
            raise OptionError("columns are a list of names", found=repr(column)[:80])
    if not columns:
        raise OptionError("no column is named", hint="To count records, ask for partition, which costs nothing")
    if len(set(columns)) != len(columns):
        raise OptionError("a column is named twice", found=", ".join(columns))
    names: dict[str, None] = {}
    paths: dict[Side, dict[str, None]] = {side: {} for side in Side}
    for column in columns:
        name, dot, path = column.partition(".")
        if name not in _SIDES or (dot and not path):
            names[column] = None
            continue
        names[name] = None
        paths[Side(name)][path] = None
    return tuple(names), {side: tuple(some) for side, some in paths.items() if some}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How records are planned and become Arrow record batches.

    Args:
        columns: which, in this order; columns left out are not built.
        split_bytes: target size of a split, in stored bytes.
        batch_rows: rows at which a record batch is closed.
        batch_bytes: or bytes of keys, values and headers, whichever is reached first.
        check_crcs: whether a batch must pass its CRC-32C, as ``check.crcs`` of the Java consumer.
        on_corrupt: ``fail``: raise at the first damage, after the records before it; ``skip``: leave the damaged
            part out and count it in the metrics.
        on_gap: ``fail``: raise where offsets between two segments are in none; ``skip``: go on behind them. Of a live
            topic, offsets that were deleted, or that neither store nor broker can read.
        on_missing: ``fail``: raise if a segment vanishes between plan and read, as retention does; ``skip``: go on and
            count its offsets in the metrics.
        max_batch_bytes: largest batch to hold, stored or decompressed.
        kernel: ``native`` or ``reference``; ``None`` takes what is there.
        threads: how many splits are read at a time; with one, each after the one before it. ``None`` takes
            ``SEGREADER_THREADS``, or else one for each core, and for a store on the network at least 8.
        read_ahead_bytes: of record batches that wait to be taken, and of ranges that are fetched for them; ``None``
            takes ``SEGREADER_READ_AHEAD_BYTES``, or else 256 MiB, and 64 MiB for local files.
        order: ``total``: by topic, partition and offset; ``partition``: each partition by offset, whichever is ready.
        key, value: how keys and values are decoded; ``None`` leaves them bytes.
        where: which records are given; it looks at the bytes of keys and values, before they are decoded.

    Raises:
        OptionError: a value is unknown, with the nearest known one.
    """

    columns: tuple[str, ...] = DEFAULT_COLUMNS
    split_bytes: int = DEFAULT_SPLIT_BYTES
    batch_rows: int = DEFAULT_MAX_ROWS
    batch_bytes: int = DEFAULT_MAX_BYTES
    check_crcs: bool = True
    on_corrupt: Policy = Policy.FAIL
    on_gap: Policy = Policy.FAIL
    on_missing: Policy = Policy.FAIL
    max_batch_bytes: int = DEFAULT_LIMIT
    kernel: str | None = None
    threads: int | None = None
    read_ahead_bytes: int | None = None
    order: Order = Order.TOTAL
    key: Decoding | None = None
    value: Decoding | None = None
    where: RecordFilter | None = None

    def __post_init__(self) -> None:
        kept = [name for one in self.decodings for name in one.columns[1:]]
        for name in self.columns:
            if name == _ALWAYS_FALSE:
                text = f"the column {name} is deprecated: it is false for every record"
                warnings.warn(text, DeprecationWarning, stacklevel=5)
            elif name not in ALL_COLUMNS and name not in kept:
                raise _unknown_column(name, kept)
        if len(set(self.columns)) != len(self.columns):
            raise OptionError("a column is named twice", found=", ".join(self.columns))
        if {"timestamp", "timestamp_ms"} <= set(self.columns):
            raise OptionError("timestamp and timestamp_ms are two forms of one column", hint="Ask for one of them")
        if not isinstance(self.check_crcs, bool):
            raise OptionError("check_crcs is True or False", found=repr(self.check_crcs)[:80])
        for name in _POLICIES:
            object.__setattr__(self, name, Policy.parse(name, getattr(self, name)))
        object.__setattr__(self, "order", Order.parse(self.order))
        for name in _NUMBERS:
            most = _MOST_ROWS if name == "batch_rows" else _MOST
            object.__setattr__(self, name, _count(name, getattr(self, name), most))
        for name in _VARIABLES:
            if (number := getattr(self, name)) is not None:
                object.__setattr__(self, name, _count(name, number))

    @property
    def decodings(self) -> tuple[Decoding, ...]:
        """How keys and values are decoded, of those that are."""
        return tuple(one for one in (self.key, self.value) if one is not None)

    def threads_for(self, *, is_remote: bool, default: int | None = None) -> int:
        """How many splits are read at a time.

        Args:
            default: where neither the option nor the environment has a number.

        Raises:
            OptionError: the variable of the environment is no number.
        """
        if (given := self._set("threads") or default) is not None:
            return given
        return max(usable_cores(), _REMOTE_THREADS) if is_remote else usable_cores()

    def most_bytes_ahead(self, *, is_remote: bool, default: int | None = None) -> int:
        """``read_ahead_bytes``, or its default; as ``threads_for``."""
        return self._set("read_ahead_bytes") or default or (_REMOTE_BYTES_AHEAD if is_remote else _LOCAL_BYTES_AHEAD)

    def _set(self, name: str) -> int | None:
        if (given := getattr(self, name)) is not None:
            return int(given)
        if not (text := os.environ.get(_VARIABLES[name], "").strip()):
            return None
        if not text.isascii() or not text.isdigit() or not int(text):
            raise OptionError(f"{_VARIABLES[name]} must be a positive number", found=repr(text), hint=VARIABLES_HINT)
        return int(text)
