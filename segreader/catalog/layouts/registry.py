"""Every layout there is, in the order in which they are tried."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence

from segreader.catalog.layouts.base import Layout
from segreader.catalog.layouts.local_tiered import LocalTieredLayout
from segreader.catalog.layouts.log_directory import LogDirectoryLayout
from segreader.errors import OptionError
from segreader.storage.base import ObjectStore


def all_layouts(*, rsm_config: str | os.PathLike[str] | None = None) -> tuple[Layout, ...]:
    """The layouts that are told apart by themselves; an earlier one has what two of them would know."""
    return (LocalTieredLayout(), LogDirectoryLayout())


def choose_layouts(name: str | None, *, rsm_config: str | os.PathLike[str] | None = None) -> tuple[Layout, ...]:
    """All layouts, or the one that ``--layout`` forces.

    Args:
        rsm_config: the broker's properties file, for layouts that need it.

    Raises:
        OptionError: there is none of that name.
    """
    layouts = all_layouts(rsm_config=rsm_config)
    if name is None:
        return layouts
    chosen = tuple(layout for layout in layouts if layout.name == name)
    if not chosen:
        names = [layout.name for layout in layouts]
        near = difflib.get_close_matches(name, names, 1)
        raise OptionError(
            f"unknown layout {name!r}",
            expected=", ".join(names),
            hint=f"Did you mean {near[0]!r}?" if near else None,
        )
    return chosen


def open_view(store: ObjectStore, layouts: Sequence[Layout]) -> ObjectStore:
    """The store as these layouts see it: every segment under names of plain Kafka files."""
    for layout in layouts:
        store = layout.view(store)
    return store


def location_of(rsm_config: str | os.PathLike[str]) -> tuple[str, dict[str, object]]:
    """The location that a broker's properties file names, and its storage options."""
    raise OptionError("say where to read: a location", source=os.fspath(rsm_config))
