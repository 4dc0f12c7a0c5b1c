"""The memory that a worker's tasks decode into, one after another: pages touched once are used again."""

from __future__ import annotations

import threading
from typing import Final

from segreader.format.columns import BufferPool
from segreader.format.kernel import load_kernel

READ_BYTES: Final = 24 << 20
"""For batches that are let go of before the next one but one."""


class _PerThread(threading.local):
    pool: BufferPool | None = None


_KEPT: Final = _PerThread()


def this_pool(max_bytes: int = READ_BYTES) -> BufferPool:
    """The pool of this thread, which keeps at most so many bytes from now on."""
    if _KEPT.pool is None:
        _KEPT.pool = BufferPool(allocate=load_kernel().allocate)
    _KEPT.pool.max_bytes = max_bytes
    return _KEPT.pool
