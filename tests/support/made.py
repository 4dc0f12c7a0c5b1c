"""The fixtures that recipes make, with what their ``expected.json`` says; laid out where a reader can find them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus import FIXTURES, NormalRecord

from segreader.testing.directory import kafka_uuid

SEGMENTS = FIXTURES / "segments"
CORRUPT = FIXTURES / "corrupt"

_REMOTE_KINDS = ("log", "index", "timeindex", "txnindex")


@dataclass(frozen=True, slots=True)
class MadeLog:
    """One directory of ``segments/``: a broker's log of one partition, whose topic bears the name of the recipe."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def directory(self) -> Path:
        """Where its files lie."""
        return SEGMENTS / self.name

    @property
    def expected(self) -> dict[str, Any]:
        """Its ``expected.json``; what the fields mean: fixtures/README.md."""
        facts: dict[str, Any] = json.loads((self.directory / "expected.json").read_text(encoding="utf-8"))
        return facts

    @property
    def is_cut_short(self) -> bool:
        """Whether something other than a batch stands at the log's end, as only an active segment may have it."""
        return "tail" in self.expected

    @property
    def base_offsets(self) -> list[int]:
        """Of its segments."""
        return sorted(int(log.stem) for log in self.directory.glob("*.log"))

    def records(self, isolation: str = "uncommitted") -> list[NormalRecord]:
        """What a consumer is given: ``uncommitted`` or ``committed``."""
        facts = self.expected
        records = [_normal(line) for line in facts["records"]]
        return [r for r in records if isolation == "uncommitted" or r.offset in facts["committed"]]

    def lay_out_local(self, root: Path) -> Path:
        """Copy it to ``root`` as a broker has it; the partition's directory."""
        return Path(shutil.copytree(self.directory, root / f"{self.name}-0"))

    def lay_out_remote(self, root: Path) -> Path:
        """Copy it to ``root`` as ``LocalTieredStorage`` has it, every segment finished; the partition's directory."""
        directory = root / f"{self.name}-0-{kafka_uuid(self.name)}"
        directory.mkdir()
        for base, following in zip(
            self.base_offsets, [*self.base_offsets[1:], self.expected["log_end_offset"]], strict=True
        ):
            stem = f"{base:020d}-{kafka_uuid(self.name, base)}"
            for kind in _REMOTE_KINDS:
                if (path := self.directory / f"{base:020d}.{kind}").exists():
                    shutil.copy(path, directory / f"{stem}.{kind}")
            shutil.copy(self.directory / f"{following:020d}.snapshot", directory / f"{stem}.snapshot")
            shutil.copy(self.directory / "leader-epoch-checkpoint", directory / f"{stem}.leader_epoch_checkpoint")
        return directory


@dataclass(frozen=True, slots=True)
class CorruptFile:
    """One file of ``corrupt/`` and the error it must raise.

    Args:
        error: name of the class.
        position: where the damaged batch or entry begins, in bytes; the error's position is in it. ``None``: unknown.
        base_offset: of the damaged batch; beside a log, that of the segment.
        records: how many good records come before, in a log.
        log_size: of the log beside an ``.index``, in bytes.
    """

    name: str
    error: str
    position: int | None
    base_offset: int | None
    records: int = 0
    log_size: int | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> Path:
        """The file."""
        return CORRUPT / self.name

    @property
    def kind(self) -> str:
        """``log``, ``index``, ``timeindex``, ``txnindex``, ``snapshot``, ``leader_epoch_checkpoint`` or
        ``partition.metadata``."""
        return self.name.partition(".")[2]

    def lay_out_remote(self, root: Path) -> Path:
        """Copy a log to ``root`` as the only segment of topic ``corrupt`` in ``LocalTieredStorage``."""
        directory = root / f"corrupt-0-{kafka_uuid('corrupt')}"
        directory.mkdir()
        shutil.copy(self.path, directory / f"{0:020d}-{kafka_uuid(self.name)}.log")
        return directory


def made_logs() -> list[MadeLog]:
    """All of ``segments/``."""
    return [MadeLog(path.name) for path in sorted(SEGMENTS.iterdir())]


def corrupt_files(kind: str | None = None) -> list[CorruptFile]:
    """All of ``corrupt/``, or those of one kind (``log``, ``index`` …)."""
    facts = json.loads((CORRUPT / "expected.json").read_text(encoding="utf-8"))
    found = [CorruptFile(name, name.partition("-")[0], **fields) for name, fields in facts.items()]
    return [file for file in found if kind is None or file.kind == kind]


def _normal(line: Mapping[str, Any]) -> NormalRecord:
    return NormalRecord(
        0,
        line["offset"],
        line["timestamp_ms"],
        line.get("timestamp_type", "CreateTime"),
        line.get("leader_epoch", 0),
        _payload(line.get("key")),
        _payload(line.get("value")),
        tuple((name, _payload(value)) for name, value in line.get("headers", ())),
    )


def _payload(given: str | Mapping[str, str] | None) -> bytes | None:
    if given is None:
        return None
    return given.encode() if isinstance(given, str) else bytes.fromhex(given["hex"])
