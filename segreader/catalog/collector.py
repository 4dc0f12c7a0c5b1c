"""Python's cycle collector, held back while many values are made.

Hundreds of thousands of values that live on make it look at all of them again and again: a third of the time of
reading a large catalogue. None of them is part of a cycle, so there is nothing for it to find.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NEVER: Final = (1 << 31) - 1


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


@contextmanager
def only_young_collected() -> Iterator[None]:
    """No cycle collection among what has lived for a while, in any thread; afterwards as before.

    What a request to a store leaves behind is still found, so it may last as long as a plan does, with all its I/O.
    """
    young, middle, oldest = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)
    try:
        yield
    finally:
        if oldest != _NEVER:  # of two at once the first to begin ends it
            gc.set_threshold(young, middle, oldest)
