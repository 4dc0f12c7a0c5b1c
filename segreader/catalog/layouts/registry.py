"""Every layout there is, in the order in which they are tried."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from segreader.catalog.layouts.aiven.layout import AivenLayout
from segreader.catalog.layouts.aiven.settings import RsmConfig
from segreader.catalog.layouts.base import Layout
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
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectStore, StoreView, VirtualFile, read_listed

_PATTERN = "pattern:"

_ID: Final = r"[A-Za-z0-9_-]{22}"
_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_LASTING: Final = re.compile(
    rf"""\d{{20}}-{_ID}\.(?:index|timeindex|txnindex|snapshot|leader[_-]epoch[_-]checkpoint|indexes|rsm-manifest)
    | \d{{20}}\.(?:index|timeindex)\.(?:{_ID}|{_UUID})
    | \d{{20}}_\d+_v\d+\.(?:offset-index|timestamp-index|transaction-index|producer-state|epoch-state)
    | \d+\.{_UUID}\.(?:OFFSET|TIMESTAMP|TRANSACTION|PRODUCER_SNAPSHOT|LEADER_EPOCH)
    | .*-v1\.log(?:\.\d+)?\.tx | manifest\.(?:bin|json)(?:\..*)?""",
    re.ASCII | re.VERBOSE | re.DOTALL,
)
"""Not what a broker's log directory has: the files of a segment that is written to change, and keep their sizes."""


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


def _is_lasting(name: str) -> bool:
    """Whether an object of this name holds facts about a segment, not records, and is written once."""
    return _LASTING.fullmatch(name.rpartition("/")[2]) is not None


def open_view(store: ObjectStore, layouts: Sequence[Layout]) -> ObjectStore:
    """The store as these layouts see it: every segment under names of plain Kafka files."""
    if os.environ.get("SEGREADER_CACHE"):
        from segreader.storage.cache import with_cache

        store = with_cache(store, _is_lasting)
    translated = [layout for layout in layouts if layout.plain_files is not None]
    return LayoutView(store, translated) if translated else store


class LayoutView(StoreView):
    """A store in which a name shows whose it is: the view of a layout is made for the first name that is one of its."""

    def __init__(self, store: ObjectStore, layouts: Sequence[Layout]) -> None:
        super().__init__(store)
        self._layouts = [(layout.plain_files.fullmatch, layout) for layout in layouts if layout.plain_files is not None]
        self._views: dict[str, StoreView] = {}

    def open(self, name: str) -> VirtualFile | None:
        """The file of this name in the view of its layout."""
        view = self._view_of(name)
        return None if view is None else view.open(name)

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of one range in consecutive pieces; where no layout explains the name, the store's own."""
        if self._view_of(name) is None:
            return read_listed(self.inner, name, wanted, size=expected_size, tag=expected_tag)
        return super().read_pieces(name, wanted, expected_size=expected_size, expected_tag=expected_tag)

    def url(self, name: str) -> str:
        """As the view of its layout, or the store below."""
        return (self._view_of(name) or self.inner).url(name)

    def _view_of(self, name: str) -> StoreView | None:
        for matches, layout in self._layouts:
            if matches(name):
                return self._views.get(layout.name) or self._views.setdefault(layout.name, layout.view(self.inner))
        return None


def location_of(rsm_config: str | os.PathLike[str]) -> tuple[str, Mapping[str, object]]:
    """The location that a broker's properties file names, and its storage options.

    Raises:
        OptionError: the file is wrong, or names no storage that can be read.
    """
    return RsmConfig.load(rsm_config).location()
