"""Python's cycle collector in programs that hold large plans.

Hundreds of thousands of values that live on make it look at all of them again and again: a fifth of the time of
planning 100,000 segments. None of them is part of a cycle. How often it runs is a setting of the whole process, so
programs choose it, never a library.
"""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLDS: Final = (500_000, 50, 10)


def collect_seldom() -> None:
    """Have this process look for cycles seldom, and never among what it has imported; call it once, at its start."""
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
