"""Which decoder runs: the compiled one where it was built, or the plain Python one. Never a secret."""

from __future__ import annotations

import importlib
import os
import sys
from array import array
from collections.abc import Callable
from typing import Final, Protocol, cast

from segreader.errors import OptionError
from segreader.format import _columns
from segreader.format.columns import ColumnBuffers

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

    def decode_batches(
        self,
        columns: ColumnBuffers,
        data: memoryview,
        data_position: int,
        table: array[int],
        rows: int,
        checksum: Callable[[memoryview], int] | None,
        decompress: Callable[[int, memoryview], memoryview],
    ) -> int:
        """See ``_columns.decode_batches``."""

    def count_rising(self, values: array[int], strictly: bool) -> int:
        """See ``_columns.count_rising``."""


def load_kernel(name: str | None = None) -> Kernel:
    """The kernel of that name; without one, what ``SEGREADER_KERNEL`` says, and ``auto`` where it says nothing.

    Raises:
        OptionError: the name is unknown, or ``native`` is asked for and was not built.
    """
    name = name or os.environ.get(VARIABLE) or "auto"
    if name not in ("auto", "native", "reference"):
        raise OptionError("unknown kernel", found=name, expected="auto, native or reference")
    if name != "reference":
        try:
            return cast(Kernel, sys.modules.get(_NATIVE) or importlib.import_module(_NATIVE))
        except ImportError as error:
            if name == "native":
                raise OptionError(
                    "the native kernel is not built in this installation",
                    found=str(error),
                    hint="Install segreader with a C compiler at hand, or unset SEGREADER_KERNEL",
                ) from error
    return cast(Kernel, _columns)
