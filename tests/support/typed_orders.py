"""The topics of ``fixtures/schemas`` and what is true of their records, as Python values."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[2] / "fixtures" / "schemas"
REMOTE = HERE / "remote"
SAVED = HERE / "schemas.json"
TOPICS = ("orders-avro", "orders-protobuf", "orders-json", "orders-headers", "orders-bad")

_FORMS: dict[str, Callable[[str], Any]] = {
    "$decimal": Decimal,
    "$timestamp": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$seconds": lambda text: timedelta(seconds=float(text)),
    "$hex": bytes.fromhex,
}


@dataclass(frozen=True, slots=True)
class TrueRecord:
    """One record, and what a reader with its writer's schema gets.

    Args:
        key: text, or an object where keys are Avro.
        value: ``None`` for a tombstone, and where ``bad`` names why it is none (``segreader.typed.ops.Bad``).
        schema_id: that its frame, or its header, names.
        message: full name of its Protobuf message.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    schema_id: int | None
    message: str | None = None
    bad: str | None = None


def truth(topic: str) -> list[TrueRecord]:
    """The records of a topic by partition and offset."""
    with gzip.open(HERE / "truth" / f"{topic}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line, object_hook=_python) for line in lines]
    found = [TrueRecord(timestamp_ms=row.pop("timestamp"), **{"value": None} | row) for row in rows]
    return sorted(found, key=lambda one: (one.partition, one.offset))


def _python(document: dict[str, Any]) -> Any:
    if len(document) == 1:
        name, value = next(iter(document.items()))
        if name in _FORMS:
            return _FORMS[name](value)
    return document
