"""Any set of plain files whose names a regular expression with named groups takes apart.

For own exports, snapshots of disks, and plugins that no layout knows. The expression must match an object's name to its
end, from the beginning of a directory on: the path of the location is no part of it. What it does not match is foreign.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from segreader.catalog.layouts.base import (
    Directory,
    Layout,
    Names,
    PartitionFiles,
    PartitionPlace,
    parse_offset,
    parse_partition,
)
from segreader.catalog.layouts.file_sets import FileName, assemble, gather, kafka_id, list_prefixes, narrowest
from segreader.errors import OptionError
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectStore
from segreader.values import dataclass

_TOKEN: Final = re.compile(
    r"""\\. | \[\^?\]?(?:\\.|[^\]\\])*\] | (?P<open>\((?:\?(?:>|P<\w+>|[aiLmsux-]*:|<?[=!]))?)
    | (?P<close>\)) | (?P<repeat>(?:[*+]|\{\d*,\})[?+]?) | .""",
    re.VERBOSE | re.DOTALL,
)

NAME: Final = "pattern"
GROUPS: Final = ("topic", "topic_id", "partition", "offset", "segment_id", "type")
LONGEST_NAME: Final = 1024
"""Longer names are not matched: the time of a match grows with them."""

_KINDS: Final = {
    "log": ("log", "segment"),
    "index": ("index", "offset-index", "offset"),
    "timeindex": ("timeindex", "time-index", "timestamp-index", "timestamp"),
    "txnindex": ("txnindex", "txn-index", "transaction-index", "transaction"),
    "snapshot": ("snapshot", "producer-snapshot", "producer-state"),
    "leader_epoch_checkpoint": ("leader-epoch-checkpoint", "leader-epoch", "epoch-state"),
}
_KIND_OF: Final = {word: kind for kind, words in _KINDS.items() for word in words}
_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


@dataclass(frozen=True, slots=True)
class PatternLayout(Layout):
    """What one expression matches. Make it with ``compile``."""

    regex: re.Pattern[str]
    name = NAME
    names = Names()

    @classmethod
    def compile(cls, text: str) -> PatternLayout:
        """A layout from the text of an expression, in Python's syntax.

        Groups: ``partition`` and ``type``, ``topic`` or ``topic_id`` or both, ``offset`` or ``segment_id`` or both.

        Raises:
            OptionError: it is no expression, lacks groups or names unknown ones, or may take exponential time.
        """
        try:
            regex = re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise OptionError("the pattern is not a valid regular expression", found=text, hint=str(error)) from None
        groups = set(regex.groupindex)
        missing = [
            " or ".join(f"(?P<{name}>…)" for name in names)
            for names in (("topic", "topic_id"), ("partition",), ("offset", "segment_id"), ("type",))
            if groups.isdisjoint(names)
        ]
        if missing or not groups.issubset(GROUPS):
            raise OptionError(
                "the pattern has not the groups that a layout needs",
                found=", ".join(sorted(groups)) or "no named group",
                expected=" and ".join(missing) or f"only {', '.join(GROUPS)}",
                hint="Name the parts of an object's name, such as (?P<topic>.+)-(?P<partition>[0-9]+)",
            )
        if (nested := find_nested_repeat(text)) is not None:
            raise OptionError(
                "the pattern repeats a group that repeats itself, which may take exponential time",
                found=nested,
                hint="Use one repetition, such as .*/ for any directories, or an atomic group (?>…)",
            )
        return cls(regex)

    def claim(self, directory: Directory, store: ObjectStore | None) -> Sequence[PartitionPlace]:
        """The partitions of everything below, at any depth; without a store of the files that the directory shows."""
        found: dict[TopicIdPartition, set[str]] = defaultdict(set)
        for info in directory.files if store is None else store.list(directory.path):
            if (name := self.parse(info.name)) is not None:
                found[name.partition].add(info.name[: info.name.rfind("/") + 1])
        return [
            PartitionPlace(partition, narrowest(directories, directory.path), NAME)
            for partition, directories in sorted(found.items(), key=lambda item: item[0].order)
        ]

    def find(self, store: ObjectStore, place: PartitionPlace) -> PartitionFiles:
        """The sets of files of one partition.

        A set with a segment id is a finished one. Without ids the files may be a broker's: its last segment may end in
        a cut batch, and its snapshots, which are of other offsets than those of the remote tier, are ignored.
        """
        gathered = gather(list_prefixes(store, place.prefixes), self.parse, place.partition)
        has_ids = "segment_id" in self.regex.groupindex
        if not has_ids:
            for one in gathered.sets.values():
                one.files.pop("snapshot", None)
            gathered.sets = {key: one for key, one in gathered.sets.items() if one.files}
        found = assemble(store, gathered)
        segments = sorted(found.segments, key=lambda one: one.base_offset)
        if segments and not has_ids:
            segments[-1] = replace(segments[-1], is_active=True)
        return replace(found, segments=segments)

    def parse(self, name: str) -> FileName | None:
        """The parts of an object's name; ``None`` if the expression does not match, or its groups make no sense."""
        if (match := self._match(name)) is None:
            return None
        groups = match.groupdict()
        topic, topic_id, segment_id = groups.get("topic"), groups.get("topic_id"), groups.get("segment_id")
        kind = _KIND_OF.get((groups["type"] or "").lower().replace("_", "-"))
        number = parse_partition(groups["partition"] or "", is_padded=True)
        offset = groups.get("offset")
        base = parse_offset(offset) if offset else None
        if kind is None or number is None or not (topic or topic_id) or (base is None and (offset or not segment_id)):
            return None
        if topic_id and not _ID.fullmatch(topic_id):
            return None
        partition = TopicIdPartition(topic or topic_id or "", number, kafka_id(topic_id) if topic_id else None)
        directory = name[: name.rfind("/") + 1] if segment_id is None else ""
        if segment_id is not None and _ID.fullmatch(segment_id):
            segment_id = kafka_id(segment_id)
        return FileName(partition, kind, f"{directory}{base}/{segment_id}", base, segment_id)

    def _match(self, name: str) -> re.Match[str] | None:
        """Of the name's shortest end that matches; topics hold no ``/``."""
        if len(name) > LONGEST_NAME:
            return None
        start = len(name)
        while start > 0:
            start = name.rfind("/", 0, start - 1) + 1
            if match := self.regex.fullmatch(name[start:]):
                return match
        return None


def find_nested_repeat(text: str) -> str | None:
    """The first group of a valid expression that is repeated without bound and holds such a repetition.

    Atomic groups and possessive repetitions do not backtrack, and do not count.
    """
    open_groups: list[tuple[int, bool]] = []
    holds = [False]
    closed: tuple[int, bool] | None = None
    for token in _TOKEN.finditer(text):
        repeat = token["repeat"]
        if repeat is not None and not repeat.endswith("+", 1):
            if closed is not None and closed[1]:
                return text[closed[0] : token.end()]
            holds[-1] = True
        closed = None
        if token["open"] is not None:
            open_groups.append((token.start(), token["open"] == "(?>"))
            holds.append(False)
        elif token["close"] is not None and open_groups:
            start, is_atomic = open_groups.pop()
            inner = holds.pop() and not is_atomic
            closed = (start, inner)
            holds[-1] = holds[-1] or inner
    return None
