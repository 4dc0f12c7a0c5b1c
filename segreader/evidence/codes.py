"""Every kind of finding, by a stable code. ``rules`` has what each means."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from segreader.errors import SegreaderError


class Severity(StrEnum):
    """How grave a finding is; errors and warnings make the exit code 1.

    ``error``: records are lost, unreadable, or would be given wrongly by a reader that believes the file. ``warning``:
    something is not as Kafka leaves it, though no record is in danger. ``info``: a state that a sound cluster goes
    through, or what a check left out.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Code(StrEnum):
    """What kind of finding; the names are stable."""

    MISSING_LOG = "missing-log"
    MISSING_MANIFEST = "missing-manifest"
    MISSING_INDEXES = "missing-indexes"
    MISSING_OFFSET_INDEX = "missing-offset-index"
    MISSING_TIME_INDEX = "missing-time-index"
    MISSING_SNAPSHOT = "missing-snapshot"
    MISSING_LEADER_EPOCHS = "missing-leader-epochs"
    MISSING_FILE = "missing-file"
    ORPHAN_SIDE_FILE = "orphan-side-file"
    FOREIGN_OBJECT = "foreign-object"
    MALFORMED_NAME = "malformed-name"
    STRAY_SEGMENTS = "stray-segments"
    FILE_IN_TRANSIT = "file-in-transit"
    UNFINISHED_UPLOAD = "unfinished-upload"
    ABANDONED_UPLOAD = "abandoned-upload"
    RECREATED_TOPIC = "re-created-topic"
    MIXED_LAYOUTS = "mixed-layouts"
    PARTITION_TWICE = "partition-twice"
    MISSING_PARTITION = "missing-partition"
    NOTE = "note"

    HOLE = "hole"
    COMPACTION_GAP = "compaction-gap"
    DUPLICATE_OFFSETS = "duplicate-offsets"
    DIVERGED_OFFSETS = "diverged-offsets"
    BELOW_LOG_START = "below-log-start"
    CONFLICTING_COPIES = "conflicting-copies"
    UNCHECKED = "unchecked"
    BAD_LEADER_EPOCHS = "bad-leader-epochs"
    EPOCH_MISMATCH = "epoch-mismatch"

    WRONG_BASE_OFFSET = "wrong-base-offset"
    BATCH_OUTSIDE_SEGMENT = "batch-outside-segment"
    OFFSETS_NOT_RISING = "offsets-not-rising"
    TRUNCATED_LOG = "truncated-log"
    EMPTY_LOG = "empty-log"
    ZERO_TAIL = "zero-tail"
    GARBAGE_TAIL = "garbage-tail"
    ACTIVE_TAIL = "active-tail"
    BROKEN_BATCH = "broken-batch"
    CRC_MISMATCH = "crc-mismatch"
    UNDECODABLE_RECORDS = "undecodable-records"
    UNSUPPORTED_MAGIC = "unsupported-magic"
    UNSUPPORTED_CODEC = "unsupported-codec"
    WRONG_MAX_TIMESTAMP = "wrong-max-timestamp"

    CUT_OFFSET_INDEX = "cut-offset-index"
    OFFSET_INDEX_NOT_RISING = "offset-index-not-rising"
    OFFSET_INDEX_ZERO_TAIL = "offset-index-zero-tail"
    INDEX_BEYOND_LOG = "index-beyond-log"
    INDEX_NOT_AT_BATCH = "index-not-at-batch"
    INDEX_WRONG_OFFSET = "index-wrong-offset"
    CUT_TIME_INDEX = "cut-time-index"
    TIME_INDEX_NOT_RISING = "time-index-not-rising"
    TIME_INDEX_ZERO_TAIL = "time-index-zero-tail"
    TIME_INDEX_OUTSIDE_SEGMENT = "time-index-outside-segment"
    TIME_INDEX_WRONG_TIMESTAMP = "time-index-wrong-timestamp"
    TIME_INDEX_WRONG_END = "time-index-wrong-end"

    MISSING_TRANSACTION_INDEX = "missing-transaction-index"
    CUT_TRANSACTION_INDEX = "cut-transaction-index"
    TRANSACTION_INDEX_VERSION = "transaction-index-version"
    TRANSACTION_INDEX_IMPOSSIBLE_ROW = "transaction-index-impossible-row"
    TRANSACTION_INDEX_NOT_RISING = "transaction-index-not-rising"
    TRANSACTION_INDEX_OUTSIDE_SEGMENT = "transaction-index-outside-segment"
    ROW_WITHOUT_MARKER = "row-without-marker"
    MARKER_WITHOUT_ROW = "marker-without-row"
    TRANSACTION_INDEX_MISMATCH = "transaction-index-mismatch"
    CUT_SNAPSHOT = "cut-snapshot"
    SNAPSHOT_VERSION = "snapshot-version"
    SNAPSHOT_CRC = "snapshot-crc"
    SNAPSHOT_TRAILING_BYTES = "snapshot-trailing-bytes"
    SNAPSHOT_CONTRADICTS_LOG = "snapshot-contradicts-log"

    FINISHED_SEGMENT_MISSING = "finished-segment-missing"
    LOG_TOO_SHORT = "log-too-short"
    LOG_TOO_LONG = "log-too-long"
    DELETED_SEGMENT_LEFT = "deleted-segment-left"
    DELETED_TOPIC_LEFT = "deleted-topic-left"
    UNKNOWN_SEGMENT = "unknown-segment"
    METADATA_CONTRADICTS_NAME = "metadata-contradicts-name"
    UNFINISHED_DELETE = "unfinished-delete"
    UNREADABLE_METADATA = "unreadable-metadata"

    BAD_MANIFEST = "bad-manifest"
    MANIFEST_MISMATCH = "manifest-mismatch"
    UNDECRYPTABLE = "undecryptable"
    UNREADABLE_OBJECT = "unreadable-object"
    VANISHED = "vanished"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a code means.

    Args:
        severity: of every finding of this code.
        meaning: half a sentence, for the table in docs/reference/findings.md.
        action: what to do, one or two sentences.
        hides: codes that follow from this one where both are found about one segment.
        raises: what a plan raises with ``on_corrupt="fail"``, because records depend on the object. Where it is
            ``None`` the plan goes on, with a note.
    """

    severity: Severity
    meaning: str
    action: str
    hides: frozenset[Code] = frozenset()
    raises: type[SegreaderError] | None = None
