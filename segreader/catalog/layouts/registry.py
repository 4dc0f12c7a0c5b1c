"""Every layout there is, in the order in which they are tried."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from segreader.catalog.layouts.aiven.layout import AivenLayout
from segreader.catalog.layouts.aiven.settings import RsmConfig
from segreader.catalog.layouts.base import Layout, TranslatedLayout
from segreader.catalog.layouts.confluent import ConfluentLayout
from segreader.catalog.layouts.early_s3 import EarlyS3Layout
from segreader.catalog.layouts.linkedin import LinkedInLayout
from segreader.catalog.layouts.local_tiered import LocalTieredLayout
from segreader.catalog.layouts.log_directory import LogDirectoryLayout
from segreader.catalog.layouts.pattern import PatternLayout
from segreader.catalog.layouts.pinterest import PinterestLayout
from segreader.catalog.layouts.redpanda.layout import RedpandaLayout
from segreader.catalog.layouts.uber import UberLayout
from segreader.errors import OptionError
from segreader.storage.base import ObjectStore

_PATTERN = "pattern:"


def all_layouts(*, rsm_config: RsmConfig | None = None) -> tuple[Layout, ...]:
    """The layouts that are recognised without being named; the first that recognises a directory gets it."""
    return (
        LocalTieredLayout(),
        AivenLayout(rsm_config),
        UberLayout(),
        EarlyS3Layout(),
        RedpandaLayout(),
        ConfluentLayout(),
        LinkedInLayout(),
        PinterestLayout(),
        LogDirectoryLayout(),
    )


def choose_layouts(name: str | None, *, rsm_config: str | os.PathLike[str] | None = None) -> tuple[Layout, ...]:
    """All layouts, or the one that ``--layout`` forces.

    Args:
        name: of a layout, or ``pattern:`` and a regular expression; see ``docs/reference/layouts/pattern.md``.
        rsm_config: the broker's properties file, for layouts that need it.

    Raises:
        OptionError: there is no layout of that name, or the expression or the file is wrong.
    """
    if name is not None and name.startswith(_PATTERN):
        return (PatternLayout.compile(name.removeprefix(_PATTERN)),)
    layouts = all_layouts(rsm_config=None if rsm_config is None else RsmConfig.load(rsm_config))
    if name is None:
        return layouts
    for layout in layouts:
        if layout.name == name:
            return (replace(layout, is_forced=True) if isinstance(layout, PinterestLayout) else layout,)
    names = [*(layout.name for layout in layouts), f"{_PATTERN}REGEX"]
    near = difflib.get_close_matches(name, names, 1)
    raise OptionError(
        f"unknown layout {name!r}",
        expected=", ".join(names),
        hint=f"Did you mean {near[0]!r}?" if near else None,
    )


def open_view(store: ObjectStore, layouts: Sequence[Layout]) -> ObjectStore:
    """The store as these layouts see it: every segment under names of plain Kafka files."""
    for layout in layouts:
        if isinstance(layout, TranslatedLayout):
            store = layout.view(store)
    return store


def location_of(rsm_config: str | os.PathLike[str]) -> tuple[str, Mapping[str, object]]:
    """The location that a broker's properties file names, and its storage options.

    Raises:
        OptionError: the file is wrong, or names no storage that can be read.
    """
    return RsmConfig.load(rsm_config).location()
