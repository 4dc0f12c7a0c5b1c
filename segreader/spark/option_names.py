"""The names of all options: which there are, which have no effect, and why the others are refused."""

from __future__ import annotations

import difflib
import logging
import re
import warnings
from collections.abc import Mapping
from dataclasses import fields

from segreader.errors import OptionError
from segreader.storage.options import NAMES as STORAGE_NAMES
from segreader.storage.options import StorageOptions

NAMES = (
    "location",
    "path",
    "subscribe",
    "assign",
    "subscribePattern",
    "topicId",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "includeHeaders",
    "rawColumns",
    "isolationLevel",
    "kafka.isolation.level",
    "kafka.bootstrap.servers",
    "brokerCredentials",
    "failOnDataLoss",
    "layout",
    "rsmConfig",
    "metadata",
    "segmentsFrom",
    "logDirectory",
    "leaderEpochs",
    "credentials",
    "verify",
    "splitBytes",
    "minPartitions",
    "maxRecordsPerPartition",
    "batchBytes",
    "batchRecords",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "readBudget",
)
"""Every option but ``storage.<name>``, and ``kafka.<name>``, which are settings of a Kafka client."""

STORAGE = "storage."
"""What the names of storage options begin with."""

KAFKA = "kafka."
"""What the names of a Kafka client's settings begin with."""

_REFUSED = {
    "kafka.key.deserializer": "keys are always given as bytes",
    "kafka.value.deserializer": "values are always given as bytes",
    "kafka.key.serializer": "keys are always given as bytes",
    "kafka.value.serializer": "values are always given as bytes",
    "kafka.auto.offset.reset": "use startingOffsets instead",
    "kafka.enable.auto.commit": "nothing is committed to a broker",
    "kafka.interceptor.classes": "no Java consumer runs",
    "tail": "with kafka.bootstrap.servers a read goes on to the broker's end, without it it ends where the uploads do",
}
EARLIER = {"keys": "rsmConfig"}
"""Earlier names of options, which are still taken."""
_WITHOUT_EFFECT = ("groupidprefix", KAFKA, "kafkaconsumer.", "fetchoffset.")
_SPARKS_OWN = ("paths", "owner", "provider", "option.")
_SECRET = re.compile(r"secret|password|passwd|token|access[._-]?key|account[._-]?key|jaas", re.IGNORECASE)
_SECRET_FIELDS = frozenset(field.name for field in fields(StorageOptions) if "Secret" in str(field.type))
_CANONICAL = {name.lower(): name for name in (*NAMES, *_REFUSED)}
_LONGEST_NAME = 60
_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*")

logger = logging.getLogger(__name__)


def by_names_of_today(options: Mapping[str, str]) -> dict[str, str]:
    """The options by their names in lower case, those with an earlier name by that of today.

    Args:
        options: as Spark gives them: any case of names.

    Raises:
        OptionError: an option is given by both names.
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    for old, new in EARLIER.items():
        if old not in given:
            continue
        if new.lower() in given:
            raise OptionError(f"{old} is the earlier name of {new}: give one of them")
        given[new.lower()] = given.pop(old)
        text = f"the option {old} is deprecated, use {new}"
        warnings.warn(text, DeprecationWarning, stacklevel=3)
        logger.warning("%s", text)
    return given


def require_usable(given: Mapping[str, str], *, asks_brokers: bool = False) -> None:
    """Refuse what cannot be an option, and say in one log line what has no effect.

    Args:
        given: by names in lower case, as Spark gives them.
        asks_brokers: whether ``kafka.<name>`` have an effect: then they are judged elsewhere.

    Raises:
        OptionError: a name is unknown, bears a secret, or asks for what is not done here.
    """
    without_effect = []
    for name, text in given.items():
        shown = _CANONICAL.get(name, name)
        if name in _REFUSED:
            raise OptionError(f"{shown} has no place here: {_REFUSED[name]}")
        if asks_brokers and name.startswith(KAFKA):
            continue
        if name.startswith(STORAGE) and is_reference(text):
            continue
        if _SECRET.search(name) or _is_secret_of_storage(name):
            raise OptionError(
                f"{shown} looks like a secret; Spark shows options in its UI and event log in clear",
                hint="Name a provider with credentials (env:PREFIX or module:callable), or a variable "
                f"({STORAGE}<name>=env:VARIABLE), or give the processes that read an identity; see "
                "docs/how-to/spark.md",
            )
        if shown in NAMES or name.startswith((*_SPARKS_OWN, STORAGE)):
            continue
        if not name.startswith(_WITHOUT_EFFECT):
            raise OptionError(f"unknown option {name[:_LONGEST_NAME]}", hint=_nearest(name))
        without_effect.append(name)
    if without_effect:
        logger.info("without effect here: %s", ", ".join(sorted(without_effect)))


def is_reference(text: str) -> bool:
    """Whether a value is ``env:VARIABLE``: each process looks it up for itself, and Spark shows the name only."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def _is_secret_of_storage(name: str) -> bool:
    return STORAGE_NAMES.get(name.removeprefix(STORAGE).replace("-", "_")) in _SECRET_FIELDS and name.startswith(
        STORAGE
    )


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name[:_LONGEST_NAME], [known.lower() for known in NAMES], n=1, cutoff=0.5)
    return f"Did you mean {_CANONICAL[close[0]]}?" if close else f"There are {', '.join(NAMES)}, {STORAGE}<name>"
