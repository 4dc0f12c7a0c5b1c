"""Which decoder runs, the compiled one where it was built or the plain Python one, and what it found as an error."""

from __future__ import annotations

import importlib
import os
from array import array
from types import ModuleType
from typing import Final, Protocol, cast

from segreader.errors import (
    VARIABLES_HINT,
    CorruptBatchError,
    CorruptRecordError,
    FormatError,
    LimitExceededError,
    OptionError,
)
from segreader.format import _columns
from segreader.format.batch import CODEC_MASK, CRC_START, HEADER_SIZE
from segreader.format.columns import TABLE_WIDTH, ColumnBuffers, Damage, RunSummary, State, Table
from segreader.format.compression import Decompressor

_RECORD_DAMAGE = {
    Damage.BODY_ENDS: ("the records section ends too early", "{0} more records", "none"),
    Damage.RECORD_LENGTH: ("a record has an impossible length", "length {0}", "0 to {1} bytes"),
    Damage.VARINT: ("a number does not end", "{0} bytes or more", "at most {1}"),
    Damage.RECORD_OVERRUN: ("a record runs past its length", "{0} bytes wanted", "{1} bytes left"),
    Damage.RECORD_UNDERRUN: ("a record is shorter than its length", "{0} bytes too many", "none"),
    Damage.HEADER_COUNT: ("a record has an impossible number of headers", "{0} headers", "0 to {1}"),
    Damage.HEADER_KEY_LENGTH: ("a header key has a negative length", "length {0}", "0 or more"),
}

VARIABLE = "SEGREADER_KERNEL"
"""Environment variable: ``auto`` (default), ``native`` (its absence is an error) or ``reference``."""

_NATIVE: Final = "segreader.format._kernel"


class Kernel(Protocol):
    """The face of ``_columns.py`` and ``_kernel.pyx``."""

    NAME: str

    def allocate(self, size: int) -> bytearray:
        """See ``_columns.allocate``."""

    def scan_batches(
        self, data: memoryview, at: int, data_position: int, table: array[int], max_size: int
    ) -> tuple[int, int]:
        """See ``_columns.scan_batches``."""

    def summarise(self, table: array[int], rows: int) -> RunSummary:
        """See ``_columns.summarise``."""

    def decode_batches(
        self,
        columns: ColumnBuffers,
        data: memoryview,
        data_position: int,
        table: array[int],
        rows: int,
        check_crcs: bool,
        decompressor: Decompressor,
    ) -> int:
        """See ``_columns.decode_batches``."""

    def count_rising(self, values: array[int], strictly: bool) -> int:
        """See ``_columns.count_rising``."""


def load_kernel(name: str | None = None) -> Kernel:
    """The kernel of that name, else the one in ``SEGREADER_KERNEL``, else ``auto``.

    Raises:
        OptionError: the name is unknown, or ``native`` is wanted and was not built.
    """
    return cast(Kernel, load_twin(_NATIVE, _columns.__name__, name))


def kernel_name() -> str:
    """Which decoder runs, ``native`` or ``reference``; raises as ``load_kernel``."""
    return load_kernel().NAME


def load_twin(native: str, reference: str, name: str | None = None) -> ModuleType:
    """The compiled module or its twin in plain Python, chosen by name as a kernel is; raises as ``load_kernel``."""
    is_given = bool(name)
    name = name or os.environ.get(VARIABLE) or "auto"
    if name not in ("auto", "native", "reference"):
        hint = None if is_given else VARIABLES_HINT
        raise OptionError("unknown kernel", found=name, expected="auto, native or reference", hint=hint)
    if name != "reference":
        try:
            # never out of sys.modules: another thread's import may not be done
            return importlib.import_module(native)
        except ImportError as error:
            if name == "native":
                raise OptionError(
                    "the native kernel is not built in this installation",
                    found=str(error),
                    hint="Install segreader with a C compiler at hand, or unset SEGREADER_KERNEL",
                ) from error
    return importlib.import_module(reference)


def damage_error(state: array[int], table: array[int]) -> FormatError:
    """The error for ``Outcome.DAMAGED``, from the state and its row of the table.

    ``position`` is the byte in the segment; inside a compressed batch it is the batch's first byte, and the text
    names the byte of the decompressed body.
    """
    row = state[State.BATCH_ROW] * TABLE_WIDTH
    position, base_offset = table[row + Table.POSITION], table[row + Table.BASE_OFFSET]
    damage = Damage(state[State.DAMAGE])
    found, expected = state[State.DAMAGE_FOUND], state[State.DAMAGE_EXPECTED]
    if damage is Damage.CRC:
        return CorruptBatchError(
            "a batch fails its CRC-32C",
            found=f"{found:08x} computed over bytes {CRC_START} to its end",
            expected=f"{expected:08x} as its header says",
            position=position,
            base_offset=base_offset,
            hint="Read another copy of this segment, or skip the batch: on_corrupt='skip' (command line: --on-corrupt "
            "skip; SQL: on_corrupt := 'skip')",
        )
    if damage is Damage.RECORD_COUNT:
        return CorruptBatchError(
            "a batch has a negative number of records",
            found=f"count {found}",
            expected="0 or more",
            position=position + 57,
            base_offset=base_offset,
        )
    in_body = state[State.DAMAGE_POSITION]
    if table[row + Table.ATTRIBUTES] & CODEC_MASK:
        where = f" (byte {in_body} of the decompressed records)"
    else:
        where, position = "", position + HEADER_SIZE + in_body
    if damage is Damage.RECORDS_REMAIN:
        return CorruptBatchError(
            f"a batch holds more than its count of records says{where}",
            found=f"{found} bytes after record {table[row + Table.RECORD_COUNT]}",
            expected="none",
            position=position,
            base_offset=base_offset,
        )
    if damage is Damage.TIMESTAMP:
        return LimitExceededError(
            f"a record's timestamp does not fit timestamp[us]{where}",
            found=f"{found} ms",
            expected=f"at most {expected} ms",
            position=position,
            base_offset=base_offset,
            hint="Ask for the column timestamp_ms (int64) in place of timestamp",
        )
    message, found_text, expected_text = _RECORD_DAMAGE[damage]
    return CorruptRecordError(
        message + where,
        found=found_text.format(found, expected),
        expected=expected_text.format(found, expected),
        position=position,
        base_offset=base_offset,
    )
