"""How to read, apart from what: one value that every reader takes."""

from __future__ import annotations

import difflib
import os
import warnings
from dataclasses import dataclass
from typing import Final

from segreader.errors import OptionError
from segreader.format.columns import DEFAULT_MAX_BYTES, DEFAULT_MAX_ROWS
from segreader.format.compression import DEFAULT_LIMIT
from segreader.plan.cut import DEFAULT_SPLIT_BYTES
from segreader.plan.request import Policy
from segreader.storage.base import ObjectStore, range_size_of

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

_POLICIES: Final = ("on_corrupt", "on_gap", "on_missing")
_NUMBERS: Final = ("split_bytes", "batch_rows", "batch_bytes", "max_batch_bytes")

_REMOTE_BYTES_AHEAD: Final = 256 << 20
_LOCAL_BYTES_AHEAD: Final = 64 << 20
_DECODED_BYTES: Final = 5 << 20
"""Of what is being decoded, by one thread."""

_REMOTE_THREADS: Final = 8
"""At least so many splits of a store on the network are read at a time: they wait more than they decode."""

_VARIABLES: Final = {"threads": "SEGREADER_THREADS", "read_ahead_bytes": "SEGREADER_READ_AHEAD_BYTES"}


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


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """How far a store is read ahead.

    Args:
        threads: that read.
        most_bytes: that wait to be used, or are fetched for what will.
        range_size: of the store; 0 of local files.
    """

    threads: int
    most_bytes: int
    range_size: int

    def held_by(self, size: int) -> int:
        """Bytes that reading so many bytes of an object holds, besides what waits."""
        return min(self.range_size, size) + min(_DECODED_BYTES, 4 * size)


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

    def __post_init__(self) -> None:
        for name in self.columns:
            if name == _ALWAYS_FALSE:
                text = f"the column {name} is deprecated: it is false for every record"
                warnings.warn(text, DeprecationWarning, stacklevel=4)
            elif name not in ALL_COLUMNS:
                near = difflib.get_close_matches(name, ALL_COLUMNS, 1)
                raise OptionError(
                    f"unknown column {name!r}",
                    expected=", ".join(ALL_COLUMNS),
                    hint=f"Did you mean {near[0]!r}?" if near else None,
                )
        if len(set(self.columns)) != len(self.columns):
            raise OptionError("a column is named twice", found=", ".join(self.columns))
        if {"timestamp", "timestamp_ms"} <= set(self.columns):
            raise OptionError("timestamp and timestamp_ms are two forms of one column", hint="Ask for one of them")
        for name in _POLICIES:
            object.__setattr__(self, name, Policy.parse(name, getattr(self, name)))
        for name in _NUMBERS:
            if (value := getattr(self, name)) < 1:
                raise OptionError(f"{name} must be positive", found=value)
        for name in _VARIABLES:
            if (number := getattr(self, name)) is not None and number < 1:
                raise OptionError(f"{name} must be positive", found=number)

    def threads_for(self, *, is_remote: bool) -> int:
        """How many splits are read at a time.

        Raises:
            OptionError: the variable of the environment is no number.
        """
        if (given := self._set("threads")) is not None:
            return given
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(cores, _REMOTE_THREADS) if is_remote else cores

    def most_bytes_ahead(self, *, is_remote: bool) -> int:
        """``read_ahead_bytes``, or its default; raises as ``threads_for``."""
        return self._set("read_ahead_bytes") or (_REMOTE_BYTES_AHEAD if is_remote else _LOCAL_BYTES_AHEAD)

    def ahead_of(self, store: ObjectStore) -> ReadAhead:
        """How far this store is read ahead; raises as ``threads_for``."""
        range_size = range_size_of(store)
        is_remote = bool(range_size)
        return ReadAhead(self.threads_for(is_remote=is_remote), self.most_bytes_ahead(is_remote=is_remote), range_size)

    def _set(self, name: str) -> int | None:
        if (given := getattr(self, name)) is not None:
            return int(given)
        if not (text := os.environ.get(_VARIABLES[name], "").strip()):
            return None
        if not text.isascii() or not text.isdigit() or not int(text):
            raise OptionError(f"{_VARIABLES[name]} must be a positive number", found=repr(text))
        return int(text)
