"""How splits, and parts of a live log, leave a process: one table names every field of them.

``SPLIT`` and ``PART`` make JSON objects, for plans of jobs and saved states of loaders. ``pack_split`` makes a few
short values, for pickles: a plan has a hundred thousand of them.

JSON leaves out fields that have their default, and a reader ignores fields that it does not know. A new field of a
class gets a line in the table; a test fails until it has one.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from segreader.format.index_files import AbortedTransaction
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.plan.live import LivePart, ReadFrom
from segreader.plan.split import END_OF_LOG, LogsAhead, Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import TopicIdPartition
from segreader.values import dataclass

_T = TypeVar("_T", Split, LivePart)
_Logs = Sequence[tuple[str, int, int]]


class WrongValueError(ValueError):
    """A field of a saved object has a value that it cannot have.

    Args:
        what: which field, and what it should be.
        found: what it is instead, without the value itself: it may be anything.
    """

    def __init__(self, what: str, found: str) -> None:
        super().__init__(f"{what}, found {found}")
        self.what = what
        self.found = found


def check_whole_number(name: str, value: object, bits: int = 63) -> int:
    """A whole number of so many bits; not below zero."""
    if type(value) is not int or not 0 <= value < 1 << bits:
        raise WrongValueError(f"{name} is no whole number of {bits} bits", type(value).__name__)
    return value


def check_text(name: str, value: object) -> str:
    """A text without characters that no name has."""
    if not isinstance(value, str):
        raise WrongValueError(f"{name} is no text", type(value).__name__)
    if "\0" in value or (not value.isascii() and any("\ud800" <= one <= "\udfff" for one in value)):
        raise WrongValueError(f"{name} is no text", "characters that no name has")
    return value


def check_flag(name: str, value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise WrongValueError(f"{name} is neither true nor false", type(value).__name__)
    return value


def check_rows(name: str, value: object, width: int) -> list[list[int]]:
    """Rows of so many whole numbers."""
    if not isinstance(value, list):
        raise WrongValueError(f"{name} are no rows", type(value).__name__)
    for row in value:
        if not isinstance(row, list) or len(row) != width or any(type(one) is not int for one in row):
            raise WrongValueError(f"{name} are not rows of {width} whole numbers", f"{len(value)} others")
    return value


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class _Kind:
    """What values of a column are.

    Args:
        read: the value that the JSON of a field, by its name, stands for; ``WrongValueError`` where it is none.
        write: the JSON of a value; ``None`` to leave it out.
    """

    read: Callable[[str, Any], Any]
    write: Callable[[Any], Any] = _same


def _read_partition(name: str, value: object) -> int:
    return check_whole_number(name, value, 31)


def _read_transactions(name: str, value: object) -> AbortedTransactions:
    """Those that ``to_bytes`` packed; or rows, as plans of jobs had them up to version 1."""
    try:
        if isinstance(value, list):
            return AbortedTransactions(AbortedTransaction(*row) for row in check_rows(name, value, 4))
        return AbortedTransactions.from_bytes(b64decode(check_text(name, value), validate=True))
    except WrongValueError:
        raise
    except (ValueError, OverflowError, zlib.error) as error:
        raise WrongValueError(f"{name} are no packed transactions", type(error).__name__) from error


def _write_transactions(aborted: AbortedTransactions) -> str:
    return b64encode(aborted.to_bytes()).decode()


def read_logs(name: str, value: Any) -> _Logs:
    """``Split.following`` of the text that ``write_logs`` made; or rows, as plans of jobs had them up to version 1."""
    if isinstance(value, LogsAhead | tuple):
        return value
    try:
        found = json.loads(value) if isinstance(value, str) else value
        return tuple((check_text(name, log), int(size), int(stop)) for log, size, stop in found)
    except (ValueError, TypeError, RecursionError) as error:
        raise WrongValueError(f"{name} are no logs", type(error).__name__) from error


def write_logs(following: _Logs) -> str:
    """The JSON of ``Split.following``: a text, as loaders have saved it from the first version on."""
    return json.dumps(list(following))


def _read_splits(name: str, value: object) -> tuple[Split, ...]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise WrongValueError(f"{name} is no list of objects", type(value).__name__)
    return tuple(map(SPLIT.from_json, value))


_NUMBER = _Kind(check_whole_number)
_PARTITION = _Kind(_read_partition)
_EPOCH = _Kind(check_whole_number, lambda epoch: None if epoch < 0 else epoch)
_TEXT = _Kind(check_text)
_FLAG = _Kind(check_flag, lambda value: value or None)
_EPOCHS = _Kind(
    lambda name, value: tuple((epoch, start) for epoch, start in check_rows(name, value, 2)),
    lambda epochs: [list(one) for one in epochs] or None,
)
_TRANSACTIONS = _Kind(_read_transactions, lambda aborted: _write_transactions(aborted) if len(aborted) else None)
_MAYBE_TRANSACTIONS = _Kind(_read_transactions, _write_transactions)
_LOGS = _Kind(read_logs, lambda following: write_logs(following) if following else None)
_SPLITS = _Kind(_read_splits, lambda splits: [SPLIT.to_json(one) for one in splits] or None)

_REQUIRED: Final = object()
_NONE: Final = AbortedTransactions()

_MAKE: Final[Mapping[str, Callable[..., Any]]] = {
    "partition": TopicIdPartition,
    "positions": ByteRange,
    "offsets": OffsetRange,
    "isolation_level": IsolationLevel,
    "read_from": ReadFrom,
}
"""Of which classes the fields are whose parts have columns of their own."""


@dataclass(frozen=True, slots=True)
class _Column:
    """One value of a form.

    Args:
        key: its name in JSON.
        path: the field that it is, or the part of one after a dot.
        default: what it is where the JSON does not say.
    """

    key: str
    path: str
    kind: _Kind
    default: Any = _REQUIRED


class Form(Generic[_T]):
    """The JSON of one class, by its table of columns."""

    def __init__(self, made: Callable[..., _T], *columns: _Column) -> None:
        self._made: Callable[..., _T] = made
        self._columns = columns
        self._values = attrgetter(*(column.path for column in columns))
        self._writes = [(column.key, None if column.kind.write is _same else column.kind.write) for column in columns]

    @property
    def names(self) -> set[str]:
        """The fields that the table has."""
        return {column.path.partition(".")[0] for column in self._columns}

    def without(self, key: str) -> Form[_T]:
        """The same form, but for one key."""
        return Form(self._made, *(column for column in self._columns if column.key != key))

    def to_json(self, value: _T) -> dict[str, Any]:
        """Everything that the value says, for ``json.dumps``: names and numbers, no client and no secret."""
        document = {}
        for (key, write), one in zip(self._writes, self._values(value), strict=True):
            if one is None:
                continue
            if write is not None and (one := write(one)) is None:
                continue
            document[key] = one
        return document

    def from_json(self, document: Mapping[str, Any]) -> _T:
        """The value that ``to_json`` gave, of this or an earlier version.

        Raises:
            ValueError: it is none; ``WrongValueError`` where one field alone says so.
        """
        values = {}
        for column in self._columns:
            found = document.get(column.key)
            is_left_out = found is None and column.default is not _REQUIRED
            values[column.path] = column.default if is_left_out else column.kind.read(column.key, found)
        made: _T = _value_of(self._made, values)
        return made


def _value_of(made: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """The value of which ``values`` has each field, or the parts of one, by their paths."""
    fields: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        name, _, part = path.partition(".")
        if part:
            parts.setdefault(name, {})[part] = value
        else:
            fields[name] = value
    return made(**fields, **{name: _MAKE[name](**values) for name, values in parts.items()})


_OF_PARTITION: Final = (
    _Column("topic", "partition.topic", _TEXT),
    _Column("topic_id", "partition.topic_id", _TEXT, None),
    _Column("partition", "partition.partition", _PARTITION),
    _Column("start", "offsets.start", _NUMBER),
    _Column("stop", "offsets.stop", _NUMBER, None),
    _Column("isolation_level", "isolation_level.value", _TEXT),
    _Column("epochs", "epochs", _EPOCHS, ()),
)

SPLIT: Final[Form[Split]] = Form(
    Split,
    *_OF_PARTITION,
    _Column("log", "log", _TEXT),
    _Column("log_size", "log_size", _NUMBER),
    _Column("first_byte", "positions.start", _NUMBER),
    _Column("stop_byte", "positions.stop", _NUMBER),
    _Column("aborted", "aborted", _TRANSACTIONS, _NONE),
    _Column("is_active", "is_active", _FLAG, False),
    _Column("base_offset", "base_offset", _NUMBER),
    _Column("offset_index", "offset_index", _TEXT, None),
    _Column("offset_bound", "offset_bound", _NUMBER, None),
    _Column("is_padded", "is_padded", _FLAG, False),
    _Column("stop_of_part", "stop_of_part", _NUMBER, None),
    _Column("first_bound", "first_bound", _NUMBER, None),
    _Column("chunk_size", "chunk_size", _NUMBER, None),
    _Column("log_tag", "log_tag", _TEXT, None),
    _Column("timed", "timed", _NUMBER, None),
    _Column("reaches", "reaches", _NUMBER, None),
    _Column("following", "following", _LOGS, ()),
)

PART: Final[Form[LivePart]] = Form(
    LivePart,
    *_OF_PARTITION,
    _Column("from", "read_from.value", _TEXT),
    _Column("position_epoch", "position_epoch", _EPOCH, -1),
    _Column("segments", "splits", _SPLITS, ()),
    _Column("aborted", "aborted", _MAYBE_TRANSACTIONS, None),
    _Column("segment_id", "segment_id", _TEXT, None),
    _Column("size", "size", _NUMBER, None),
    _Column("hole", "hole", _TEXT, None),
)

# pickles

_BY_ITSELF: Final = frozenset(("offset_index", "aborted", "following"))
_PATHS: Final = tuple(column.path for column in SPLIT._columns if column.path not in _BY_ITSELF)
_PLAIN: Final = attrgetter(*_PATHS)


def pack_split(split: Split, *, most_logs: int, room_for_logs: int) -> tuple[Any, ...]:
    """The split as values of plain types; of the names of other objects only what the log's own does not say.

    Args:
        most_logs: how many logs behind the split are named at most.
        room_for_logs: how many bytes their names may take.
    """
    log, index, following = split.log, split.offset_index, split.following
    return (
        _PLAIN(split),
        None if index is None else _short(index, log[: log.rfind(".") + 1]),
        _short_logs(following, log[: log.rfind("/") + 1], most_logs, room_for_logs) if following else (),
        split.aborted.to_bytes() if len(split.aborted) else b"",
    )


def unpack_split(packed: Sequence[Any]) -> Split:
    """The split of which ``pack_split`` made these values."""
    plain, index, following, aborted = packed
    values = dict(zip(_PATHS, plain, strict=True))
    log: str = values["log"]
    values["offset_index"] = None if index is None else _long(index, log[: log.rfind(".") + 1])
    values["following"] = _long_logs(following, log[: log.rfind("/") + 1])
    values["aborted"] = AbortedTransactions.from_bytes(aborted) if aborted else _NONE
    split: Split = _value_of(Split, values)
    return split


def _short(name: str, start: str) -> str | tuple[str]:
    """What a name has behind a start; all of another name, as a tuple."""
    return name[len(start) :] if name.startswith(start) else (name,)


def _long(short: str | tuple[str], start: str) -> str:
    return start + short if isinstance(short, str) else short[0]


def _short_logs(following: _Logs, folder: str, most: int, room: int) -> tuple[Any, ...]:
    """The logs behind a split as values one after another. ``None``: none follows."""
    values: tuple[Any, ...] = ()
    for log, size, stop in following:
        if not log:
            return (*values, None)
        name = _short(log, folder)
        room -= len(name if isinstance(name, str) else name[0])
        if room < 0 or len(values) == 3 * most:
            break
        values = (*values, name, size, stop)
    return values


def _long_logs(values: Sequence[Any], folder: str) -> _Logs:
    logs = [(_long(values[at], folder), values[at + 1], values[at + 2]) for at in range(0, len(values) // 3 * 3, 3)]
    return (*logs, END_OF_LOG) if len(values) % 3 else tuple(logs)
