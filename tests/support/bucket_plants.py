"""Defects of buckets: every kind of object missing, empty, cut, swapped, stale, repeated, and every field changed.

A bucket is a mapping of names to bytes. A plant is one defect: what was done, and the bucket after it.
"""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import crc32c

Bucket = Mapping[str, bytes]

_BASE = re.compile(r"(?P<directory>.*/)?(?P<base>\d{20})(?P<id>-[A-Za-z0-9_-]{22})?\.[a-z_-]+")
_ROLES: Final = {
    "log": ("log", "SEGMENT", "segment"),
    "index": ("index", "OFFSET", "offset-index"),
    "timeindex": ("timeindex", "TIMESTAMP", "timestamp-index"),
    "txnindex": ("txnindex", "TRANSACTION", "transaction-index"),
    "snapshot": ("snapshot", "PRODUCER_SNAPSHOT", "producer-state"),
    "epochs": ("leader_epoch_checkpoint", "LEADER_EPOCH", "epoch-state"),
    "indexes": ("indexes",),
    "manifest": ("rsm-manifest",),
    "tx": ("tx",),
}
_ROLE_OF_WORD: Final = {word: role for role, words in _ROLES.items() for word in words}
_OF_MANIFEST: Final = {
    "offset": "index",
    "timestamp": "timeindex",
    "producerSnapshot": "snapshot",
    "leaderEpoch": "epochs",
    "transaction": "txnindex",
}
_ROW: Final = {"index": 8, "timeindex": 12, "txnindex": 34, "snapshot": 46}
_HEAD: Final = {"snapshot": 10}
_FIELDS: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = {
    "index": {"relative offset": (0, 4), "position": (4, 4)},
    "timeindex": {"timestamp": (0, 8), "relative offset": (8, 4)},
    "txnindex": {
        "version": (0, 2),
        "producer id": (2, 8),
        "first offset": (10, 8),
        "last offset": (18, 8),
        "last stable offset": (26, 8),
    },
    "snapshot": {
        "producer id": (0, 8),
        "producer epoch": (8, 2),
        "last sequence": (10, 4),
        "last offset": (14, 8),
        "offset delta": (22, 4),
        "timestamp": (26, 8),
        "coordinator epoch": (34, 4),
        "current first offset": (38, 8),
    },
}


@dataclass(frozen=True, slots=True)
class Plant:
    """One defect.

    Args:
        role: of the object that was changed: ``log``, ``index``, … ``set`` for all objects of a segment.
        kind: what was done to it; the same words for every object.
        place: which of the partition's segments: ``first``, ``middle``, ``newest``, ``only``.
        name: of the object.
        detail: which row, field or byte.
        bucket: with the defect in it.
    """

    role: str
    kind: str
    place: str
    name: str
    detail: str
    bucket: Bucket

    def __str__(self) -> str:
        return f"{self.role} {self.kind} ({self.place}): {self.name.rpartition('/')[2]} {self.detail}".rstrip()

    @property
    def label(self) -> str:
        """The kind of defect, without what differs between two of them."""
        return f"{self.place} {self.role} {self.kind}"


@dataclass(frozen=True, slots=True)
class _Object:
    name: str
    role: str
    base: int
    """Which segment of the bucket, in its order."""


def plants(bucket: Bucket, other: Bucket, dice: random.Random) -> list[Plant]:
    """All defects of one partition's objects, in an order that does not depend on ``dice``.

    Args:
        bucket: objects of one partition, sound, segment after segment.
        other: of another partition in the same layout, for objects that were swapped.
        dice: which bytes, where there are too many to take all.
    """
    objects = _objects(bucket)
    bases = sorted({one.base for one in objects})
    found: list[Plant] = []
    for base in bases:
        place = "only" if len(bases) == 1 else {bases[0]: "first", bases[-1]: "newest"}.get(base, "middle")
        of_segment = [one for one in objects if one.base == base]
        found += _of_set(bucket, of_segment, objects, base, place)
        for one in of_segment:
            found += _of_object(bucket, one, objects, other, place, dice)
    return found


def _objects(bucket: Bucket) -> list[_Object]:
    found: list[_Object] = []
    stems: dict[str, int] = {}
    for name in bucket:
        directory, _, file = name.rpartition("/")
        words = file.split(".")
        word = next((word for word in reversed(words) if word in _ROLE_OF_WORD), None)
        if word is None and re.fullmatch(r"[A-Za-z0-9_-]{22}", file):
            word = "log"  # a segment and its indexes in one object
        if word is None:
            continue
        stem = f"{directory}/" + ".".join(one for one in words if _ROLE_OF_WORD.get(one, "log") == "log" != one)
        stem = stem.replace(".segment", "").replace(".SEGMENT", "").replace(".log", "")
        found.append(_Object(name, _ROLE_OF_WORD.get(word, "log"), stems.setdefault(stem, len(stems))))
    return found


def _of_set(
    bucket: Bucket, of_segment: list[_Object], objects: list[_Object], base: int, place: str
) -> Iterator[Plant]:
    names = [one.name for one in of_segment]
    log = next((one.name for one in of_segment if one.role == "log"), names[0])

    def plant(kind: str, changed: dict[str, bytes], gone: list[str], detail: str = "") -> Plant:
        left = {name: data for name, data in bucket.items() if name not in gone}
        return Plant("set", kind, place, log, detail, {**left, **changed})

    yield plant("missing", {}, names)
    if not all(_BASE.fullmatch(name) for name in bucket):
        return
    here = int(_BASE.fullmatch(log)["base"])  # type: ignore[index]
    if _BASE.fullmatch(log)["id"]:  # type: ignore[index]
        copied = {_renamed(name, here, segment_id="A" * 21 + "g"): bucket[name] for name in names}
        yield plant("repeated", copied, [])
    yield plant("renamed one offset up", {_renamed(name, here + 1): bucket[name] for name in names}, names)
    theirs = [one.name for one in objects if one.base == base + 1]
    if theirs:
        there = int(_BASE.fullmatch(theirs[0])["base"])  # type: ignore[index]
        swapped = {_renamed(name, there): bucket[name] for name in names}
        swapped |= {_renamed(name, here): bucket[name] for name in theirs}
        yield plant("swapped with the next", swapped, [*names, *theirs])


def _renamed(name: str, base: int, segment_id: str | None = None) -> str:
    directory, _, file = name.rpartition("/")
    rest = file[20:]
    if segment_id is not None:
        rest = f"-{segment_id}{rest[rest.index('.') :]}"
    return f"{directory}/{base:020d}{rest}" if directory else f"{base:020d}{rest}"


def _of_object(
    bucket: Bucket, one: _Object, objects: list[_Object], other: Bucket, place: str, dice: random.Random
) -> Iterator[Plant]:
    data = bucket[one.name]

    def plant(kind: str, changed: bytes | None, detail: str = "", role: str = one.role) -> Plant:
        left = {name: old for name, old in bucket.items() if name != one.name}
        if changed is not None:
            left[one.name] = changed
        return Plant(role, kind, place, one.name, detail, left)

    yield plant("missing", None)
    if data:
        yield plant("empty", b"")
        yield plant("doubled", data + data)
        yield plant("zeros behind", data + bytes(64))
    same = [two for two in objects if two.role == one.role and two.base != one.base]
    for which, two in (
        ("the segment before", next((two for two in reversed(same) if two.base < one.base), None)),
        ("the segment behind", next((two for two in same if two.base > one.base), None)),
    ):
        if two is not None and bucket[two.name] != data:
            yield plant(f"that of {which}", bucket[two.name])
    theirs = [two for two in _objects(other) if two.role == one.role and other[two.name] != data]
    if theirs:
        yield plant("of another partition", other[dice.choice(theirs).name])
    if one.role == "log" and (starts := batch_starts(data)):
        yield from _of_log(data, starts, plant, dice)
    elif one.role in ("manifest", "epochs"):
        yield from _of_text(data, plant, dice)
    elif one.role not in _ROW:
        yield from _of_bytes(data, plant, dice)
        if one.role == "indexes":
            yield from _of_indexes(bucket, one, plant, dice)
    else:
        for kind, changed, detail in small_file_changes(one.role, data, dice):
            yield plant(kind, changed, detail)


def _of_bytes(data: bytes, plant: Callable[..., Plant], dice: random.Random) -> Iterator[Plant]:
    """Of an object whose structure is not looked into."""
    for at in sorted(dice.sample(range(1, len(data)), min(4, len(data) - 1))) if len(data) > 1 else ():
        yield plant("cut", data[:at], f"at {at} of {len(data)}")
        flipped = data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
        yield plant("bit changed", flipped, f"at {at}")


def _of_log(data: bytes, starts: list[int], plant: Callable[..., Plant], dice: random.Random) -> Iterator[Plant]:
    cuts = starts[1:]
    for at in cuts if len(cuts) <= 6 else sorted({cuts[0], cuts[-1], *dice.sample(cuts, 4)}):
        yield plant("cut between batches", data[:at], f"at {at} of {len(data)}")
    inside = [start + 30 for start in starts] + [start + 70 for start in starts]
    for at in sorted(dice.sample([at for at in inside if at < len(data)], min(3, len(inside) // 2))):
        yield plant("cut inside a batch", data[:at], f"at {at} of {len(data)}")
    for at in sorted({starts[0], starts[-1], dice.choice(starts)} if starts else ()):
        for bit in sorted(dice.sample(range(63), 6)):
            base = struct.unpack_from(">q", data, at)[0] ^ (1 << bit)
            changed = data[:at] + struct.pack(">q", base) + data[at + 8 :]
            yield plant("base offset changed", changed, f"bit {bit} of the batch at {at}")
    if len(starts) > 2:
        at = dice.randrange(1, len(starts) - 1)
        yield plant("batch lost", data[: starts[at]] + data[starts[at + 1] :], f"the one at {starts[at]}")
        yield plant("batch repeated", data[: starts[at + 1]] + data[starts[at] :], f"the one at {starts[at]}")


def batch_starts(data: bytes) -> list[int]:
    """Where the batches of a log begin; nothing if it is not stored as plain batches."""
    starts, at = [], 0
    while at + 12 <= len(data):
        starts.append(at)
        size = int.from_bytes(data[at + 8 : at + 12], "big")
        if size < 14 or at + 12 + size > len(data):
            return []
        at += 12 + size
    return starts


def _of_text(data: bytes, plant: Callable[..., Plant], dice: random.Random) -> Iterator[Plant]:
    lines = data.splitlines(keepends=True)
    for number in range(1, len(lines)):
        yield plant("cut between lines", b"".join(lines[:number]), f"after line {number}")
        yield plant("line lost", b"".join(lines[:number] + lines[number + 1 :]), f"line {number + 1}")
    for at in sorted(dice.sample(range(1, len(data)), min(4, len(data) - 1))) if len(data) > 1 else ():
        yield plant("cut inside a line", data[:at], f"at {at} of {len(data)}")
    for match in re.finditer(rb"\d+", data):
        number = int(match[0])
        for changed in sorted({number + 1, max(0, number - 1), 0, number + 1000} - {number}):
            text = data[: match.start()] + b"%d" % changed + data[match.end() :]
            yield plant("number changed", text, f"{number} at byte {match.start()} to {changed}")


def _of_indexes(bucket: Bucket, one: _Object, plant: Callable[..., Plant], dice: random.Random) -> Iterator[Plant]:
    """Changes inside the one object that has all side files; where they are stored as they are, by their rows."""
    data = bucket[one.name]
    manifest = json.loads(bucket.get(one.name.removesuffix("indexes") + "rsm-manifest", b"{}"))
    if "encryption" in manifest:
        return
    for key, role in _OF_MANIFEST.items():
        where = manifest.get("segmentIndexes", {}).get(key)
        if where is None or role == "epochs":
            continue
        start, stop = where["position"], where["position"] + where["size"]
        for kind, changed, detail in small_file_changes(role, data[start:stop], dice):
            if len(changed) == stop - start:
                yield plant(kind, data[:start] + changed + data[stop:], detail, role=f"indexes: {role}")


def small_file_changes(role: str, data: bytes, dice: random.Random) -> Iterator[tuple[str, bytes, str]]:
    """A side file after each change of its rows: what was done, the bytes, which row and field."""
    head, size = _HEAD.get(role, 0), _ROW[role]
    rows = [data[at : at + size] for at in range(head, len(data) - size + 1, size)]

    def made(changed: list[bytes]) -> bytes:
        body = b"".join(changed)
        return snapshot_of(body) if role == "snapshot" else body

    if not rows:
        return
    chosen = range(len(rows)) if len(rows) <= 8 else sorted({0, len(rows) - 1, *dice.sample(range(len(rows)), 6)})
    for number in chosen:
        yield "row lost", made(rows[:number] + rows[number + 1 :]), f"row {number}"
        yield "row repeated", made(rows[: number + 1] + rows[number:]), f"row {number}"
        yield "rows behind lost", made(rows[:number]), f"from row {number} on"
        yield "cut inside a row", data[: head + number * size + dice.randrange(1, size)], f"in row {number}"
        for field, (at, width) in _FIELDS[role].items():
            old = int.from_bytes(rows[number][at : at + width], "big", signed=True)
            limit = 1 << (8 * width - 1)
            for new in sorted({old + 1, old - 1, 0, -1, old ^ (1 << dice.randrange(8 * width - 1))} - {old}):
                if -limit <= new < limit:
                    changed = rows[number][:at] + new.to_bytes(width, "big", signed=True) + rows[number][at + width :]
                    text = f"row {number}: {old} to {new}"
                    yield f"{field} changed", made([*rows[:number], changed, *rows[number + 1 :]]), text
    if role == "snapshot":
        at = dice.randrange(len(data))
        yield "bit changed", data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :], f"byte {at}"


def snapshot_of(rows: bytes) -> bytes:
    """A producer snapshot of these rows, with its checksum."""
    body = struct.pack(">i", len(rows) // 46) + rows
    return struct.pack(">hI", 1, crc32c.crc32c(body)) + body
