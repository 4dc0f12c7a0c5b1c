"""The corpus as tests want it: cases with their files, and the truth in a form to hold readers to."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from segreader.format.batch import TimestampType

FIXTURES = Path(__file__).parents[2] / "fixtures"
CORPUS = FIXTURES / "corpus"

_WHOLE_PAYLOAD = 512  # the truth keeps longer keys and values as length and hash
_WHOLE_PAYLOAD_MULTI = 64  # the same in topics whose name begins with "multi"


class Digest(NamedTuple):
    """What stands for a long key or value."""

    length: int
    sha256: str


Payload = bytes | Digest | None


@dataclass(frozen=True, slots=True)
class NormalRecord:
    """A record of the truth or of a reader, in a form that can be compared. No epoch is ``None``."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str
    leader_epoch: int | None
    key: Payload
    value: Payload
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Case:
    """One topic of one set of the corpus. ``facts`` is its entry in the manifest."""

    set_name: str
    kafka: str
    topic: str
    facts: Mapping[str, Any] = field(repr=False, compare=False, hash=False)

    def __str__(self) -> str:
        return f"{self.set_name}/{self.topic}"

    @property
    def root(self) -> Path:
        """Directory of the set: everything in ``facts`` is relative to it."""
        return CORPUS / self.set_name

    @property
    def topic_id(self) -> str:
        """The id of the topic that the truth is about."""
        return str(self.facts["topic_id"])

    @property
    def remote_root(self) -> Path:
        """Root of the set's ``LocalTieredStorage``, where a reader of all topics starts."""
        return self.root / "remote" / "kafka-tiered-storage"

    @property
    def remote(self) -> tuple[Path, ...]:
        """Directories of the topic's partitions in the remote tier; none where nothing was uploaded."""
        return tuple(self.root / path for path in self.facts["remote"])

    @property
    def local(self) -> tuple[Path, ...]:
        """The topic's log directories on the broker."""
        return tuple(self.root / path for path in self.facts["local"])

    def remote_stop(self, partition: int) -> int:
        """First offset that the remote tier does not have."""
        return int(self.facts["offline"][str(partition)]["remote_stop"])

    def offline_lso(self, partition: int) -> int:
        """First offset that remote files alone cannot give to a ``read_committed`` reader."""
        return int(self.facts["offline"][str(partition)]["lso"])

    def truth(self, isolation: str = "uncommitted") -> list[NormalRecord]:
        """What a Java consumer was given, partition after partition; ``committed`` or ``uncommitted``."""
        path = self.root / self.facts[isolation]["file"]
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return [_from_truth(json.loads(line)) for line in lines]


def cases(*set_names: str, remote: bool | None = None) -> list[Case]:
    """The cases of these sets (all, if none is named), for ``@pytest.mark.parametrize(..., ids=str)``.

    Args:
        remote: only those that have remote segments (true) or have none (false).
    """
    found = [case for case in _all_cases() if not set_names or case.set_name in set_names]
    return [case for case in found if remote is None or bool(case.remote) == remote]


def case(set_name: str, topic: str) -> Case:
    """One case by its name."""
    return next(case for case in cases(set_name) if case.topic == topic)


def normal(record: Any) -> NormalRecord:
    """The comparable form of what a reader gives.

    Args:
        record: an object with ``ConsumerRecord``'s attributes (``topic partition offset timestamp_ms
            timestamp_type leader_epoch key value headers``), or a parsed line of ``segreader cat -o ndjson``.
    """
    if isinstance(record, Mapping):
        return _from_ndjson(record)
    return NormalRecord(
        record.partition,
        record.offset,
        record.timestamp_ms,
        _type_name(record.timestamp_type),
        _epoch(record.leader_epoch),
        _shortened(record.key, record.topic),
        _shortened(record.value, record.topic),
        tuple((name, None if value is None else bytes(value)) for name, value in record.headers),
    )


def _from_ndjson(line: Mapping[str, Any]) -> NormalRecord:
    topic = line["topic"]
    return NormalRecord(
        line["partition"],
        line["offset"],
        line["timestamp"],
        _type_name(line["timestamp_type"]),
        _epoch(line.get("leader_epoch")),
        _shortened(_decoded(line["key"]), topic),
        _shortened(_decoded(line["value"]), topic),
        tuple((header["key"], _decoded(header["value"])) for header in line["headers"]),
    )


def _from_truth(line: Mapping[str, Any]) -> NormalRecord:
    return NormalRecord(
        line["partition"],
        line["offset"],
        line["timestamp"],
        line["timestamp_type"],
        line.get("leader_epoch"),
        _payload(line, "key"),
        _payload(line, "value"),
        tuple((name, _decoded(value)) for name, value in line["headers"]),
    )


def _payload(line: Mapping[str, Any], name: str) -> Payload:
    if f"{name}_sha256" in line:
        return Digest(line[f"{name}_length"], line[f"{name}_sha256"])
    return _decoded(line[name])


def _shortened(data: bytes | None, topic: str) -> Payload:
    whole = _WHOLE_PAYLOAD_MULTI if topic.startswith("multi") else _WHOLE_PAYLOAD
    if data is None or len(data) <= whole:
        return None if data is None else bytes(data)
    return Digest(len(data), hashlib.sha256(data).hexdigest())


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


def _epoch(value: int | None) -> int | None:
    return None if value is None or value < 0 else value


def _type_name(value: TimestampType | int | str) -> str:
    return value if isinstance(value, str) else TimestampType(value).java_name


@cache
def _all_cases() -> tuple[Case, ...]:
    return tuple(_iter_cases())


def _iter_cases() -> Iterator[Case]:
    for entry in json.loads((CORPUS / "manifest.json").read_text())["sets"]:
        manifest = json.loads((CORPUS / entry["manifest"]).read_text())
        for facts in manifest["cases"]:
            yield Case(entry["name"], entry["kafka"], facts["topic"], facts)
