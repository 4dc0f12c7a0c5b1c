"""From a filter to ranges of offsets: those outside of which nothing of a partition can match.

Found by trying, as a filter tells nothing but whether it may match a region: ranges are halved until their ends and
their middle may match, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import pyarrow.compute as pc

from segreader.ranges import OffsetRange
from segreader.tables.regions import Region, Regions

_END: Final = 1 << 63
"""Beyond every offset: what an open range is cut at to be halved."""

_STEPS: Final = tuple(1 << shift for shift in range(12, 62, 4))
"""How far beyond the last known place to cut: most logs end at one of the first."""

_MOST: Final = 64
"""Ranges to follow at once. Where a filter matches here and there, more of them would cost more than they save."""


def matching_offsets(
    regions: Regions, predicate: pc.Expression, whole: Region, places: Sequence[int]
) -> list[OffsetRange]:
    """Ranges of the offsets of ``whole`` that hold every record that ``predicate`` matches; rising, and apart.

    Args:
        places: offsets to cut at first, such as those where segments begin.
    """
    stop = _END if whole.stop is None else whole.stop
    known = [at for at in places if whole.start < at < stop]
    beyond = [max([whole.start, *known]) + step for step in _STEPS]
    cuts = sorted({whole.start, *known, *(at for at in beyond if at < stop), stop})
    found: list[Region] = []
    if not regions.matching(predicate, [whole]):
        return []
    pending = regions.matching(predicate, _points(whole, whole.start, stop))
    pending = [whole] if len(pending) == 3 else [replace(whole, start=a, stop=b) for a, b in pairwise(cuts)]
    while pending:
        pending = regions.matching(predicate, pending)
        if len(pending) + len(found) > _MOST:
            found += pending
            break
        halves = []
        points = [_points(one, one.start, _END if one.stop is None else one.stop) for one in pending]
        may_match = set(regions.matching(predicate, [point for some in points for point in some]))
        for one, some in zip(pending, points, strict=True):
            last = _END if one.stop is None else one.stop
            if last - one.start == 1 or may_match.issuperset(some):
                found.append(one)
                continue
            middle = one.start + (last - one.start) // 2
            halves += [replace(one, stop=middle), replace(one, start=middle)]
        pending = halves
    return _joined(found, whole)


def _points(region: Region, start: int, stop: int) -> list[Region]:
    """The first, the middle and the last offset of a range, each as a region."""
    return [replace(region, start=at, stop=at + 1) for at in (start, start + (stop - start) // 2, stop - 1)]


def _joined(found: Sequence[Region], whole: Region) -> list[OffsetRange]:
    """The regions as ranges, those that touch as one."""
    ranges: list[OffsetRange] = []
    for one in sorted(found, key=lambda region: region.start):
        stop = None if one.stop is None or (whole.stop is None and one.stop >= _END) else one.stop
        if ranges and ranges[-1].stop == one.start:
            ranges[-1] = OffsetRange(ranges[-1].start, stop)
        else:
            ranges.append(OffsetRange(one.start, stop))
    return ranges
