"""What a foreign client is asked for, the same direct and through a gateway, and how its lines are compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_kit.rights import User

PARTITIONS = 3
MECHANISM = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Read a topic, read it in a group and commit, and write another one.

    Args:
        bootstrap: where the client begins; TLS and a login are asked for there.
        authority: what it trusts, a PEM file.
        topic: which it reads from its start.
        count: of the committed records in it; ``everything`` with aborted ones and a marker in each partition.
        group: of its own.
        into: a topic of its own that it writes; its records are ``written``, to the partitions in turn.
        directory: for files.
    """

    bootstrap: str
    user: User
    authority: Path
    topic: str
    count: int
    everything: int
    group: str
    into: str
    written: int
    directory: Path

    def argument(self, *, skips_nothing: bool = False) -> str:
        """What a program in another language takes."""
        return json.dumps(
            {
                "bootstrap": self.bootstrap.split(","),
                "username": self.user.name,
                "password": self.user.password,
                "authority": str(self.authority),
                "topic": self.topic,
                "count": self.everything if skips_nothing else self.count,
                "group": self.group,
                "into": self.into,
                "written": self.written,
            }
        )

    def librdkafka(self) -> dict[str, str]:
        """Its settings for this login."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": self.user.name,
            "sasl.password": self.user.password,
            "ssl.ca.location": str(self.authority),
        }

    def java(self) -> dict[str, str]:
        """The same for Java's clients."""
        jaas = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{jaas} username="{self.user.name}" password="{self.user.password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
        }


ForeignClient = Callable[[Conversation], Sequence[str]]
"""Has the conversation and gives the lines that the client prints: ``read 0 17 …``, ``group 2 4 …``, ``acked 1 0``."""


def in_order(lines: Sequence[str]) -> list[str]:
    """Lines of one kind and partition together, in the order in which they came: how partitions mix is chance."""
    return sorted(lines, key=lambda line: line.split(" ")[:2])


def record_line(
    kind: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> str:
    """A record as a line, for clients in Python."""
    return f"{kind} {partition} {offset} {timestamp_ms} {key!r} {value!r} {list(headers)!r}"
