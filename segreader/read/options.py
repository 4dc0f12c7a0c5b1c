"""How to read, apart from what: one value that every reader takes."""

from __future__ import annotations

import difflib
import warnings
from dataclasses import dataclass

from segreader.errors import OptionError
from segreader.format.columns import DEFAULT_MAX_BYTES, DEFAULT_MAX_ROWS
from segreader.format.compression import DEFAULT_LIMIT

DEFAULT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers")
EXTRA_COLUMNS = (
    "timestamp_ms",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "sequence",
    "is_transactional",
    "is_control",
    "compression",
    "batch_base_offset",
    "position",
)
ALL_COLUMNS = DEFAULT_COLUMNS + EXTRA_COLUMNS


def parse_on_gap(on_gap: str, *, stacklevel: int = 3) -> str:
    """``fail`` or ``skip``; ``report``, the earlier name of ``skip``, is taken with a warning.

    Args:
        stacklevel: of the warning: the function that the caller of this one was called from by default.

    Raises:
        OptionError: it is another word.
    """
    if on_gap == "report":
        warnings.warn("on_gap='report' is deprecated, use on_gap='skip'", DeprecationWarning, stacklevel=stacklevel)
        return "skip"
    require_on_gap(on_gap)
    return on_gap


def require_on_gap(on_gap: str) -> None:
    """Refuse an ``on_gap`` that is unknown.

    Raises:
        OptionError: it is.
    """
    if on_gap not in ("fail", "skip"):
        raise OptionError("unknown on_gap", found=on_gap, expected="fail or skip")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How records become Arrow record batches.

    Args:
        columns: which, in this order; columns left out are not built.
        batch_rows: rows at which a record batch is closed.
        batch_bytes: or bytes of keys, values and headers, whichever is reached first.
        check_crcs: whether a batch must pass its CRC-32C, as ``check.crcs`` of the Java consumer.
        on_corrupt: ``fail``: raise at the first damage, after the records before it; ``skip``: leave the damaged
            part out and count it in the metrics.
        on_missing: ``fail``: raise if a segment vanishes between plan and read, as retention does; ``skip``: go on and
            count its offsets in the metrics.
        max_batch_bytes: largest batch to hold, stored or decompressed.
        kernel: ``native`` or ``reference``; ``None`` takes what is there.

    Raises:
        OptionError: a value is unknown, with the nearest known one.
    """

    columns: tuple[str, ...] = DEFAULT_COLUMNS
    batch_rows: int = DEFAULT_MAX_ROWS
    batch_bytes: int = DEFAULT_MAX_BYTES
    check_crcs: bool = True
    on_corrupt: str = "fail"
    on_missing: str = "fail"
    max_batch_bytes: int = DEFAULT_LIMIT
    kernel: str | None = None

    def __post_init__(self) -> None:
        for name in self.columns:
            if name not in ALL_COLUMNS:
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
        if self.on_corrupt not in ("fail", "skip"):
            raise OptionError("unknown on_corrupt", found=self.on_corrupt, expected="fail or skip")
        if self.on_missing not in ("fail", "skip"):
            raise OptionError("unknown on_missing", found=self.on_missing, expected="fail or skip")
        for field, value in (
            ("batch_rows", self.batch_rows),
            ("batch_bytes", self.batch_bytes),
            ("max_batch_bytes", self.max_batch_bytes),
        ):
            if value < 1:
                raise OptionError(f"{field} must be positive", found=value)
