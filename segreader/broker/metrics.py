"""What a client asked and got, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class ClientMetrics:
    """Counts of one client; they only grow.

    Args:
        requests: by the API's name as Kafka has it: ``Fetch``, ``Metadata`` …
        retries: by the API's name.
        errors: by the error's name as Kafka has it, answers of all partitions together.
        bytes_sent, bytes_received: whole frames.
        connections: opened.
        throttled_ms: that brokers asked to wait.
        fetched_bytes: of record batches, by broker id.
        locations_asked, locations_given, locations_rejected: of the location extension.
    """

    requests: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    bytes_sent: int = 0
    bytes_received: int = 0
    connections: int = 0
    throttled_ms: int = 0
    fetched_bytes: Counter[int] = field(default_factory=Counter)
    locations_asked: int = 0
    locations_given: int = 0
    locations_rejected: int = 0
