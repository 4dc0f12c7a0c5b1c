"""The kinds of findings: for each a stable code, its meaning, severity, what to do, and what merely follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from segreader.errors import CorruptIndexError, SegreaderError
from segreader.values import dataclass


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
    OVERSIZED_FILE = "oversized-file"
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


_OFFSET_INDEX = frozenset({Code.INDEX_BEYOND_LOG, Code.INDEX_NOT_AT_BATCH, Code.INDEX_WRONG_OFFSET})
_TIME_INDEX = frozenset({Code.TIME_INDEX_OUTSIDE_SEGMENT, Code.TIME_INDEX_WRONG_TIMESTAMP, Code.TIME_INDEX_WRONG_END})
_TRANSACTION_INDEX = frozenset(
    {
        Code.TRANSACTION_INDEX_OUTSIDE_SEGMENT,
        Code.ROW_WITHOUT_MARKER,
        Code.MARKER_WITHOUT_ROW,
        Code.TRANSACTION_INDEX_MISMATCH,
    }
)
_OF_MARKERS = frozenset({Code.ROW_WITHOUT_MARKER, Code.MARKER_WITHOUT_ROW, Code.TRANSACTION_INDEX_MISMATCH})
_FOLLOWS = _OFFSET_INDEX | _TIME_INDEX | _TRANSACTION_INDEX | {Code.SNAPSHOT_CONTRADICTS_LOG}

# In a file from which bytes were taken out every later entry is misread.
_OF_CUT_OFFSETS = _OFFSET_INDEX | {Code.OFFSET_INDEX_NOT_RISING, Code.OFFSET_INDEX_ZERO_TAIL}
_OF_CUT_TIMES = _TIME_INDEX | {Code.TIME_INDEX_NOT_RISING, Code.TIME_INDEX_ZERO_TAIL}
_OF_CUT_ROWS = _TRANSACTION_INDEX | {
    Code.TRANSACTION_INDEX_VERSION,
    Code.TRANSACTION_INDEX_IMPOSSIBLE_ROW,
    Code.TRANSACTION_INDEX_NOT_RISING,
}

_ANOTHER_COPY = "Fetch the object again from another copy or replica; until then its records from here on are missing."
_REBUILD_INDEX = (
    "Rebuild it from the log: a broker does so for a local segment whose index is removed; "
    "for a remote one, upload the rebuilt file under the same name. segreader reads without it."
)
_REBUILD_TRANSACTIONS = (
    "Restore the file from another replica. Until then do not trust read_committed results of this partition."
)
_UPLOAD_AGAIN = "Restore the file from another replica's log directory; segreader reads the segment without it."

_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO

RULES: Final[Mapping[Code, Rule]] = {
    Code.MISSING_LOG: Rule(
        _E,
        "a segment's log is missing, but its other files exist",
        "Restore the log: its records are in no other object. If the upload was abandoned, delete the rest.",
    ),
    Code.MISSING_MANIFEST: Rule(
        _E,
        "a segment has no manifest, so the form in which its log is stored is unknown",
        "Restore the manifest; if the upload was abandoned, delete the rest of the segment.",
    ),
    Code.MISSING_INDEXES: Rule(
        _E, "the object with a segment's indexes is missing", "Restore it: brokers cannot serve the segment."
    ),
    Code.MISSING_OFFSET_INDEX: Rule(_W, "a segment has no offset index", _REBUILD_INDEX),
    Code.MISSING_TIME_INDEX: Rule(_W, "a segment has no time index", _REBUILD_INDEX),
    Code.MISSING_SNAPSHOT: Rule(
        _E,
        "a segment has no producer snapshot, which is written last: it counts as an unfinished upload",
        "Restore it from another replica; if the upload was abandoned, delete the rest of the segment.",
    ),
    Code.MISSING_LEADER_EPOCHS: Rule(_W, "a segment has no leader-epoch checkpoint", _UPLOAD_AGAIN),
    Code.MISSING_FILE: Rule(_W, "another file that the layout requires is missing from a segment", _UPLOAD_AGAIN),
    Code.ORPHAN_SIDE_FILE: Rule(
        _W, "an index, snapshot or checkpoint belongs to no log", "Delete it, or restore the log it belongs to."
    ),
    Code.FOREIGN_OBJECT: Rule(
        _W, "an object in a partition's directory does not belong to the layout", "Move it away; nothing reads it."
    ),
    Code.MALFORMED_NAME: Rule(
        _W,
        "a name is almost one of Kafka's, but its digits, its offset or an id are wrong",
        "Rename it as Kafka did. Readers may skip it, or assume a wrong offset.",
    ),
    Code.STRAY_SEGMENTS: Rule(
        _W,
        "segment files are in a directory that is not a partition's",
        "Give the directory its partition's name, or move the files there: nothing reads them where they are.",
    ),
    Code.FILE_IN_TRANSIT: Rule(
        _I,
        "a broker is deleting, cleaning or swapping a file",
        "Nothing: the broker removes it, at the latest when it restarts.",
    ),
    Code.UNFINISHED_UPLOAD: Rule(
        _I,
        "an upload has started but not finished",
        "Nothing while a broker is uploading. If it stays, the upload was abandoned, and you can delete its objects.",
    ),
    Code.ABANDONED_UPLOAD: Rule(
        _I,
        "a set of files is incomplete, and a complete one starts at the same offset: the upload was retried",
        "Nothing; you can delete the objects to save storage.",
    ),
    Code.RECREATED_TOPIC: Rule(
        _I,
        "one topic name has several topic ids: the topic was deleted and created again",
        "Choose one with --topic-id when you read.",
    ),
    Code.MIXED_LAYOUTS: Rule(
        _I,
        "one topic exists in several layouts, such as a broker's log directory beside the remote tier",
        "Choose one with --layout, or give the directory of one, when you read.",
    ),
    Code.PARTITION_TWICE: Rule(
        _W,
        "one partition of one topic is in two places",
        "Give the directory of one when you read, and move the other away: segreader refuses to read both.",
    ),
    Code.MISSING_PARTITION: Rule(
        _I,
        "a partition between 0 and the highest one has no segment here",
        "Nothing if it has no finished segment yet; otherwise look for its directory.",
    ),
    Code.NOTE: Rule(_I, "a note that reading would give too", "See the text."),
    Code.HOLE: Rule(
        _E,
        "offsets between two segments are in no segment",
        "Restore the missing segment; reading stops there unless gaps are skipped.",
    ),
    Code.COMPACTION_GAP: Rule(
        _I,
        "offsets between two segments are in no batch, and the log was compacted",
        "Nothing: the cleaner removed them.",
    ),
    Code.DUPLICATE_OFFSETS: Rule(
        _I,
        "two segments have the same offsets of the same history, as after retries and leader changes",
        "Nothing: each offset is read once.",
    ),
    Code.DIVERGED_OFFSETS: Rule(
        _I,
        "a segment has offsets of a diverged history, as after an unclean election",
        "Nothing for segreader, which leaves them out. Brokers up to 4.3.1 serve them: see docs/how-to/verify.md.",
    ),
    Code.BELOW_LOG_START: Rule(
        _I, "a segment starts before the log start offset", "Nothing: earlier records count as deleted."
    ),
    Code.CONFLICTING_COPIES: Rule(
        _E,
        "two segments of the same history have different batches at the same offsets",
        "One of the two is damaged: compare both with a replica, and delete the wrong one.",
    ),
    Code.UNCHECKED: Rule(
        _I,
        "batches are missing or damaged, so that some copies or transactions could not be compared",
        "Restore what is missing or damaged, then verify again.",
    ),
    Code.BAD_LEADER_EPOCHS: Rule(
        _E,
        "a leader-epoch checkpoint cannot be read, or has no epoch for its segment",
        "Restore it from another segment or replica; without it diverged segments cannot be recognised.",
    ),
    Code.EPOCH_MISMATCH: Rule(
        _E,
        "a batch has another leader epoch than the checkpoint beside it",
        "Restore the checkpoint, or the log, from another replica: one of the two belongs to another history.",
    ),
    Code.WRONG_BASE_OFFSET: Rule(
        _E,
        "the offset in a segment's name is not that of its first batch",
        "Rename the segment's files to the offset of its first batch.",
        _FOLLOWS | {Code.BATCH_OUTSIDE_SEGMENT, Code.EPOCH_MISMATCH, Code.METADATA_CONTRADICTS_NAME},
    ),
    Code.BATCH_OUTSIDE_SEGMENT: Rule(
        _E,
        "a batch's offsets are outside its segment",
        "Restore the log from another replica: no checksum covers base offsets.",
        _FOLLOWS,
    ),
    Code.OFFSETS_NOT_RISING: Rule(
        _E,
        "a batch's offsets are not above those of the batch before it",
        "Restore the log from another replica: no checksum covers base offsets.",
        _FOLLOWS | {Code.BATCH_OUTSIDE_SEGMENT},
    ),
    Code.TRUNCATED_LOG: Rule(_E, "a finished segment's log ends inside a batch", _ANOTHER_COPY, _FOLLOWS),
    Code.EMPTY_LOG: Rule(
        _E,
        "a finished segment's log is empty, and nothing shows that the log cleaner emptied it",
        "Fetch the object again from another copy or replica; reading stops there unless gaps are skipped.",
        _FOLLOWS,
    ),
    Code.ZERO_TAIL: Rule(
        _E,
        "a finished segment's log ends in zeros",
        "Compare it with another replica: remove the zeros if nothing is missing before them. Brokers reject them.",
        _FOLLOWS,
    ),
    Code.GARBAGE_TAIL: Rule(
        _E,
        "bytes that are not a batch follow the segment's last batch",
        "Remove them: every offset of the segment is before them. Brokers reject them.",
    ),
    Code.ACTIVE_TAIL: Rule(
        _I,
        "the newest segment of a log directory ends in a truncated batch or in zeros",
        "Nothing: a broker is writing.",
    ),
    Code.BROKEN_BATCH: Rule(
        _E, "a batch's header is impossible, so nothing after it can be located", _ANOTHER_COPY, _FOLLOWS
    ),
    Code.CRC_MISMATCH: Rule(
        _E,
        "a batch fails its checksum",
        "Fetch the object again from another copy or replica; --on-corrupt skip reads around the batch.",
        _FOLLOWS - _OF_MARKERS | {Code.WRONG_MAX_TIMESTAMP},
    ),
    Code.UNDECODABLE_RECORDS: Rule(
        _E,
        "a batch passes its checksum, but its records cannot be decoded",
        "A producer wrote it so, or it was damaged before the checksum: --on-corrupt skip reads around it.",
    ),
    Code.UNSUPPORTED_MAGIC: Rule(_E, "a batch has a format version that is not 0, 1 or 2", _ANOTHER_COPY, _FOLLOWS),
    Code.UNSUPPORTED_CODEC: Rule(_E, "a batch names a codec that its format version does not have", _ANOTHER_COPY),
    Code.WRONG_MAX_TIMESTAMP: Rule(
        _W,
        "the largest timestamp in a batch's header is not that of its records",
        "A search by time may miss the batch: use a wider time range. Brokers correct the field when they append.",
    ),
    Code.CUT_OFFSET_INDEX: Rule(_E, "an offset index ends inside an entry", _REBUILD_INDEX, _OF_CUT_OFFSETS),
    Code.OFFSET_INDEX_NOT_RISING: Rule(
        _E, "an offset index has entries that do not increase", _REBUILD_INDEX, _OFFSET_INDEX
    ),
    Code.OFFSET_INDEX_ZERO_TAIL: Rule(_W, "a finished segment's offset index was not trimmed", _REBUILD_INDEX),
    Code.INDEX_BEYOND_LOG: Rule(_E, "an offset index points beyond the end of its log", _REBUILD_INDEX),
    Code.INDEX_NOT_AT_BATCH: Rule(
        _E,
        "an offset index points to a byte where no batch starts",
        _REBUILD_INDEX,
        frozenset({Code.INDEX_WRONG_OFFSET}),
    ),
    Code.INDEX_WRONG_OFFSET: Rule(
        _E, "an offset index has another offset than the last one of the batch at its position", _REBUILD_INDEX
    ),
    Code.CUT_TIME_INDEX: Rule(_E, "a time index ends inside an entry", _REBUILD_INDEX, _OF_CUT_TIMES),
    Code.TIME_INDEX_NOT_RISING: Rule(_E, "a time index has entries that do not increase", _REBUILD_INDEX, _TIME_INDEX),
    Code.TIME_INDEX_ZERO_TAIL: Rule(_W, "a finished segment's time index was not trimmed", _REBUILD_INDEX),
    Code.TIME_INDEX_OUTSIDE_SEGMENT: Rule(
        _E,
        "a time index has an offset that is not in its segment",
        _REBUILD_INDEX,
        frozenset({Code.TIME_INDEX_WRONG_END, Code.TIME_INDEX_WRONG_TIMESTAMP}),
    ),
    Code.TIME_INDEX_WRONG_TIMESTAMP: Rule(
        _E,
        "a time index entry is not the largest timestamp up to its offset",
        _REBUILD_INDEX,
        frozenset({Code.TIME_INDEX_WRONG_END}),
    ),
    Code.TIME_INDEX_WRONG_END: Rule(
        _E, "a finished segment's time index does not end with its largest timestamp", _REBUILD_INDEX
    ),
    Code.MISSING_TRANSACTION_INDEX: Rule(
        _E,
        "a transaction index that has rows according to the metadata topic is empty or missing",
        _REBUILD_TRANSACTIONS,
        frozenset({Code.MARKER_WITHOUT_ROW}),
        raises=CorruptIndexError,
    ),
    Code.CUT_TRANSACTION_INDEX: Rule(
        _E,
        "a transaction index ends inside a row: a broker ignores that row, and returns the aborted records",
        _REBUILD_TRANSACTIONS,
        _OF_CUT_ROWS,
        raises=CorruptIndexError,
    ),
    Code.TRANSACTION_INDEX_VERSION: Rule(
        _E,
        "a transaction index has a row of an unknown version",
        _REBUILD_TRANSACTIONS,
        _TRANSACTION_INDEX,
        raises=CorruptIndexError,
    ),
    Code.TRANSACTION_INDEX_IMPOSSIBLE_ROW: Rule(
        _E,
        "a row of a transaction index contradicts itself",
        _REBUILD_TRANSACTIONS,
        _TRANSACTION_INDEX,
        raises=CorruptIndexError,
    ),
    Code.TRANSACTION_INDEX_NOT_RISING: Rule(
        _E,
        "the rows of a transaction index are out of order",
        _REBUILD_TRANSACTIONS,
        raises=CorruptIndexError,
    ),
    Code.TRANSACTION_INDEX_OUTSIDE_SEGMENT: Rule(
        _E,
        "a transaction index names a marker that cannot be in its segment",
        _REBUILD_TRANSACTIONS,
        frozenset({Code.ROW_WITHOUT_MARKER, Code.MARKER_WITHOUT_ROW}),
        raises=CorruptIndexError,
    ),
    Code.ROW_WITHOUT_MARKER: Rule(
        _E,
        "a transaction index names an offset without an ABORT marker of that producer",
        _REBUILD_TRANSACTIONS,
        frozenset({Code.MARKER_WITHOUT_ROW}),
    ),
    Code.MARKER_WITHOUT_ROW: Rule(
        _E, "an ABORT marker ends a transaction that is not in the transaction index", _REBUILD_TRANSACTIONS
    ),
    Code.TRANSACTION_INDEX_MISMATCH: Rule(
        _E,
        "a transaction index has another first offset, or stable offset, than the log",
        _REBUILD_TRANSACTIONS,
        raises=CorruptIndexError,
    ),
    Code.CUT_SNAPSHOT: Rule(
        _E, "a producer snapshot is truncated, or has another number of entries than its count", _REBUILD_TRANSACTIONS
    ),
    Code.SNAPSHOT_VERSION: Rule(_E, "a producer snapshot has an unknown version", _REBUILD_TRANSACTIONS),
    Code.SNAPSHOT_CRC: Rule(_E, "a producer snapshot fails its checksum", _REBUILD_TRANSACTIONS),
    Code.SNAPSHOT_TRAILING_BYTES: Rule(_W, "bytes follow the last entry of a producer snapshot", _REBUILD_TRANSACTIONS),
    Code.SNAPSHOT_CONTRADICTS_LOG: Rule(
        _E,
        "a producer snapshot has other open transactions, or later offsets, than the log",
        _REBUILD_TRANSACTIONS,
        raises=CorruptIndexError,
    ),
    Code.FINISHED_SEGMENT_MISSING: Rule(
        _E,
        "a segment is finished according to the metadata topic, but none of its objects exists",
        "Restore its objects: consumers cannot read these offsets.",
    ),
    Code.LOG_TOO_SHORT: Rule(
        _E, "a log is smaller than its size in the metadata topic", _ANOTHER_COPY, _FOLLOWS | {Code.TRUNCATED_LOG}
    ),
    Code.LOG_TOO_LONG: Rule(
        _W,
        "a log is larger than its size in the metadata topic",
        "Nothing for readers, which ignore the extra bytes; compare the object with another copy.",
        frozenset({Code.GARBAGE_TAIL, Code.ZERO_TAIL}),
    ),
    Code.DELETED_SEGMENT_LEFT: Rule(
        _W,
        "a segment was deleted according to the metadata topic, but its objects exist",
        "Delete the objects: nothing needs them, and without the metadata topic they look live.",
    ),
    Code.DELETED_TOPIC_LEFT: Rule(
        _I,
        "all segments of a partition were deleted according to the metadata topic, but objects exist",
        "Delete the objects if you are sure that they are not needed.",
    ),
    Code.UNKNOWN_SEGMENT: Rule(
        _W,
        "the objects of a segment exist, but the metadata topic does not know it",
        "If the given metadata is complete, the objects belong to another cluster or are left over: delete them.",
    ),
    Code.METADATA_CONTRADICTS_NAME: Rule(
        _E,
        "the metadata topic has another base offset than a segment's name",
        "Rename the objects to match the metadata topic.",
    ),
    Code.UNFINISHED_DELETE: Rule(
        _I, "a segment is being deleted according to the metadata topic", "Nothing while a broker is deleting it."
    ),
    Code.UNREADABLE_METADATA: Rule(
        _E,
        "the given metadata topic cannot be read; verification continued without it",
        "Copy its log directories again, all of them.",
    ),
    Code.BAD_MANIFEST: Rule(
        _E,
        "a manifest is truncated, or contradicts itself, its chunk table, or the name of its object",
        "Restore the manifest: nothing else describes how the log is stored.",
        _FOLLOWS,
    ),
    Code.MANIFEST_MISMATCH: Rule(
        _E, "an object's size differs from its manifest", "Fetch the object again from another copy.", _FOLLOWS
    ),
    Code.UNDECRYPTABLE: Rule(
        _E,
        "an object cannot be decrypted: the key is missing or wrong, or encrypted bytes were changed",
        "Give the keys with --rsm-config; if they are right, restore the object from another copy.",
        _FOLLOWS,
    ),
    Code.UNREADABLE_OBJECT: Rule(_E, "the store does not return an object", "Check permissions and the store."),
    Code.OVERSIZED_FILE: Rule(
        _E,
        "a file beside a log is larger than any of its kind can be, and was not read",
        "Restore the file from another replica: it was damaged, or is not what its name says.",
    ),
    Code.VANISHED: Rule(
        _W,
        "an object was listed, but no longer existed when it was read",
        "Nothing if retention runs; verify again otherwise.",
    ),
}
"""What each code means, in the order of the documentation."""
