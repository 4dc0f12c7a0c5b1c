"""Schemas out of the topic that a registry keeps them in: ``_schemas``, of a log directory, a copy, or a cluster.

Source: Confluent Schema Registry 7.8: ``SchemaKey``, ``SchemaValue``, ``DeleteSubjectKey``, ``DeleteSubjectValue``,
``KafkaStoreMessageHandler``. Karapace keeps the same records.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from segreader.errors import SchemaNotFoundError, SchemaRegistryError
from segreader.isolation import IsolationLevel
from segreader.typed.registry import RegisteredVersion, SchemaResolver, gathered, parse_framing
from segreader.typed.schema import Framing, SchemaSet
from segreader.values import dataclass

_RECORDS = ("partition", "offset", "key", "value")


def topic(
    location: str | os.PathLike[str] | None = None,
    *,
    topic: str = "_schemas",
    storage_options: Mapping[str, object] | None = None,
    bootstrap_servers: str | None = None,
    broker_options: Mapping[str, object] | None = None,
    subject: str | Collection[str] | None = None,
    framing: Framing | str = Framing.CONFLUENT,
    message: str | None = None,
) -> SchemasTopic:
    """Schemas of the topic that a registry keeps them in, with no registry: of Confluent's, or of Karapace.

    Nothing is read before a read is planned; then all of the topic is, which is small.

    Args:
        location: a broker's log directory, or a copy of it or of its ``_schemas-0``; ``kafka://host:port``, a cluster.
        topic: its name, ``kafkastore.topic``.
        storage_options, bootstrap_servers, broker_options: as of ``segreader.scan``.
        subject: whose schemas to take: one, or several. By default ``<topic>-value`` and ``<topic>-key``.
        framing, message: as of ``registry``.

    Raises:
        OptionError: the framing is none.
    """
    return SchemasTopic(
        location=None if location is None else os.fspath(location),
        topic=topic,
        storage_options=dict(storage_options or {}),
        bootstrap_servers=bootstrap_servers,
        broker_options=dict(broker_options or {}),
        subjects=(subject,) if isinstance(subject, str) else None if subject is None else tuple(subject),
        framing=parse_framing(framing),
        message=message,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemasTopic:
    """Where the topic is, as ``topic`` says."""

    location: str | None
    topic: str
    storage_options: Mapping[str, object]
    bootstrap_servers: str | None
    broker_options: Mapping[str, object]
    subjects: tuple[str, ...] | None
    framing: Framing
    message: str | None

    def __repr__(self) -> str:
        return f"SchemasTopic({self._shown()!r}, topic={self.topic!r}, subjects={self.subjects!r})"

    def learn(self, topic: str | None) -> SchemaSet:
        """The schemas of a topic, deleted ones among them as far as they are still there; ``None``: of all subjects.

        Raises:
            SchemaNotFoundError: there is no subject for the topic. ObjectNotFoundError: there is no such log.
            SchemaRegistryError: its records are not those of a registry.
            OptionError: a schema is invalid.
        """
        found = RegistryRecords()
        found.take(self._records())
        subjects = self.subjects
        if subjects is None and topic is not None:
            subjects = (f"{topic}-value", f"{topic}-key")
        wanted = [one for one in found.everything() if subjects is None or one.subject in subjects]
        if not wanted and subjects is not None:
            raise SchemaNotFoundError(
                f"the topic {self.topic} has no such subject",
                source=self._shown(),
                found=f"none of {', '.join(subjects)}",
                hint="If subjects are not named after topics, name them: subject=…",
            )
        resolver = SchemaResolver(found.version)
        # What no subject has any more is known by its id alone.
        schemas = ((one if found.has(one) else replace(one, subject=""), resolver.schema(one)) for one in wanted)
        return gathered(schemas, self.framing, self.message)

    def _records(self) -> Iterable[tuple[int, bytes | None, bytes | None]]:
        from segreader.scans import scan

        with scan(
            self.location,
            topic=self.topic,
            storage_options=self.storage_options or None,
            bootstrap_servers=self.bootstrap_servers,
            broker_options=self.broker_options or None,
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            columns=_RECORDS,
            on_gap="skip",  # a compacted topic has them
        ) as scanned:
            for batch in scanned.to_batches():
                offsets, keys, values = (batch.column(name).to_pylist() for name in _RECORDS[1:])
                yield from zip(offsets, keys, values, strict=True)

    def _shown(self) -> str:
        from segreader.storage.signed_url import redact

        return redact(self.location or re.sub(r"[^,]*@", "", self.bootstrap_servers or ""))


class RegistryRecords:
    """What the records of ``_schemas`` say, fed in their order.

    Deleted schemas are kept: records in topics still name their ids. A soft-deleted version is still one of its
    subject. One that was deleted for good is not, and goes from the log when that is compacted.
    """

    def __init__(self) -> None:
        self._all: dict[tuple[str, int, int], RegisteredVersion] = {}
        self._now: dict[tuple[str, int], RegisteredVersion] = {}

    def take(self, records: Iterable[tuple[int, bytes | None, bytes | None]]) -> None:
        """Read records: offset, key and value.

        Raises:
            SchemaRegistryError: one is not a registry's.
        """
        for offset, key, value in records:
            try:
                place = _place(key)
                if place is None:
                    continue
                if value is None:
                    self._now.pop(place, None)
                    continue
                one = RegisteredVersion.parse(json.loads(value), subject=place[0], version=place[1])
            except (ValueError, KeyError, TypeError, RecursionError):
                raise SchemaRegistryError(
                    "the record is not one that a registry keeps schemas in",
                    offset=offset,
                    hint="Check the topic's name",
                ) from None
            except SchemaRegistryError as error:
                raise error.located(offset=offset) from None
            if one is not None:
                self._now[place] = self._all[one.subject, one.version, one.id] = one

    def everything(self) -> list[RegisteredVersion]:
        """All schemas that ever were, as far as the log has them, by subject and version."""
        return [self._all[place] for place in sorted(self._all)]

    def has(self, one: RegisteredVersion) -> bool:
        """Whether it is a version of its subject now."""
        return self._now.get((one.subject, one.version)) == one

    def version(self, subject: str, version: int) -> RegisteredVersion:
        """One version; -1 is the latest. Of one that was deleted for good, what it was.

        Raises:
            SchemaNotFoundError: it is not there.
        """
        if version < 0:
            version = max((known for name, known in self._now if name == subject), default=0)
        found = self._now.get((subject, version))
        if found is None:
            found = next((one for one in self._all.values() if (one.subject, one.version) == (subject, version)), None)
        if found is None:
            raise SchemaNotFoundError("a schema refers to a version that is not there", found=f"{subject} {version}")
        return found


def _place(key: bytes | None) -> tuple[str, int] | None:
    """Subject and version of a record about a schema; ``None`` for records about anything else."""
    found: Any = json.loads(key or b"null")
    if not isinstance(found, dict):
        raise TypeError
    if found["keytype"] != "SCHEMA":
        return None
    subject, version = found["subject"], found["version"]
    if not isinstance(subject, str) or type(version) is not int:
        raise TypeError
    return subject, version
