"""Python's cycle collector, at rest while many values are made.

Hundreds of thousands of values that live on make it look at all of them again and again: a third of the time of
reading a large catalogue. None of them is part of a cycle, so there is nothing for it to find.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """No cycle collection inside, in any thread; afterwards as before. For a second or so, never around a ``yield``."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
