"""What every benchmark demands: the native kernel, its rows, and every codec in C."""

from __future__ import annotations

import inspect
import os

import segreader
from segreader.errors import OptionError
from segreader.format import kernel, native_codecs

_CODECS = frozenset(("gzip", "snappy", "lz4", "zstd"))


def demand_native() -> None:
    """End the program where something is not native here, for its figures would be those of another way.

    The processes that it starts demand the native kernel, too.
    """
    os.environ[kernel.VARIABLE] = "native"
    try:
        kernel.load_kernel("native")
    except OptionError as error:
        raise SystemExit(str(error)) from None
    if missing := _CODECS.difference(native_codecs.found()):
        raise SystemExit(f"not native here: {', '.join(sorted(missing))}; see `segreader version`")


def one_thread() -> dict[str, int]:
    """The option of ``segreader.scan`` for one thread, if it has more by default."""
    return {"threads": 1} if "threads" in inspect.signature(segreader.scan).parameters else {}
