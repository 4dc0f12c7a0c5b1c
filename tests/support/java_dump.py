"""What ``kafka-dump-log`` printed for a segment's files, as dicts of strings: judge of every header field."""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass, field
from pathlib import Path

_PAIR = re.compile(r"(\w+): (\S+)")
_LIST = re.compile(r"headerKeys: \[(?P<names>.*?)\](?= key: | payload: |$)")
_TEXT = re.compile(r"(?:^| )(?:key: (?P<key>.*?))?(?:(?:^| )payload: (?P<payload>.*))?$", re.DOTALL)


@dataclass(slots=True)
class DumpedBatch:
    """One batch line and the record lines below it.

    A record has the tool's names as keys (``offset keySize valueSize sequence headerKeys key payload``, or
    ``endTxnMarker``) and its time under the name of its type (``CreateTime`` …). Keys and payloads are text.
    """

    fields: dict[str, str]
    records: list[dict[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class DumpedFile:
    """What the tool printed for one file.

    Args:
        path: as the tool named it: ``<topic>/<20 digits>-<segment id>/<20 digits>.<suffix>``.
        batches: of a ``.log``.
        entries: lines of any other file.
        notes: lines that are neither.
        is_complete: false for the file at which the tool failed.
    """

    path: str
    batches: list[DumpedBatch] = field(default_factory=list)
    entries: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_complete: bool = True

    @property
    def topic(self) -> str:
        """The topic whose file it is."""
        return self.path.split("/")[0]

    @property
    def stem(self) -> str:
        """Base offset, and the segment id in the remote tier: the real file's name without its suffix."""
        return self.path.split("/")[1]

    @property
    def suffix(self) -> str:
        """``log``, ``index``, ``timeindex``, ``txnindex`` or ``snapshot``."""
        return self.path.rpartition(".")[2]


def read_dump(path: Path) -> list[DumpedFile]:
    """The files of ``dump/segments.txt.gz``, in the order of the tool."""
    files: list[DumpedFile] = []
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            text = line.rstrip("\n")
            if text.startswith("Dumping "):
                files.append(DumpedFile(text.removeprefix("Dumping ")))
            else:
                _add(files[-1], text)
    return files


def _add(file: DumpedFile, text: str) -> None:
    if text.startswith("| "):
        file.batches[-1].records.append(_record(text.removeprefix("| ")))
    elif text.startswith(("baseOffset: ", "offset: ")) and file.suffix == "log":
        file.batches.append(DumpedBatch(dict(_PAIR.findall(text))))
    elif text.startswith(("offset: ", "timestamp: ", "producerId: ", "version: ")):
        file.entries.append(dict(_PAIR.findall(text)))
    else:
        file.notes.append(text)
        file.is_complete &= not text.startswith("Exception ")


def _record(text: str) -> dict[str, str]:
    """The fields of a record line; keys and payloads may hold anything, so they are cut off first."""
    at = min((p for p in (text.find(" key: "), text.find(" payload: ")) if p >= 0), default=len(text))
    head, tail = text[:at], text[at:]
    fields = dict(_PAIR.findall(_LIST.sub("", head)))
    if names := _LIST.search(head):
        fields["headerKeys"] = names["names"]
    if "crc" in fields:
        fields["crc"] = fields["crc"].rstrip("}")  # up to 3.9 the tool leaves a brace there
    if texts := _TEXT.match(tail.removeprefix(" ")):
        fields |= {name: value for name, value in texts.groupdict().items() if value is not None}
    return fields
