"""What each code means, how grave it is, what to do, and what merely follows from it: the one table of them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from segreader.errors import CorruptIndexError
from segreader.evidence.codes import Code, Rule, Severity

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
    "Restore the file from another replica. Until then read_committed results of this partition are not to be trusted."
)
_UPLOAD_AGAIN = "Restore the file from another replica's log directory; segreader reads the segment without it."

_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO

RULES: Final[Mapping[Code, Rule]] = {
    Code.MISSING_LOG: Rule(
        _E,
        "a segment's other files are there and its log is not",
        "Restore the log: its records are in no other object. If the segment was given up, delete the rest.",
    ),
    Code.MISSING_MANIFEST: Rule(
        _E,
        "a segment has no manifest, so how its log is stored is not known",
        "Restore the manifest; if the upload was given up, delete the rest of the segment.",
    ),
    Code.MISSING_INDEXES: Rule(
        _E, "the object that holds a segment's indexes is not there", "Restore it: brokers cannot serve the segment."
    ),
    Code.MISSING_OFFSET_INDEX: Rule(_W, "a segment has no offset index", _REBUILD_INDEX),
    Code.MISSING_TIME_INDEX: Rule(_W, "a segment has no time index", _REBUILD_INDEX),
    Code.MISSING_SNAPSHOT: Rule(
        _E,
        "a segment has no producer snapshot, which is written last: it counts as an upload that has not finished",
        "Restore it from another replica; if the upload was given up, delete the rest of the segment.",
    ),
    Code.MISSING_LEADER_EPOCHS: Rule(_W, "a segment has no leader-epoch checkpoint", _UPLOAD_AGAIN),
    Code.MISSING_FILE: Rule(_W, "a segment lacks some other file of its layout", _UPLOAD_AGAIN),
    Code.ORPHAN_SIDE_FILE: Rule(
        _W, "an index, snapshot or checkpoint belongs to no log", "Delete it, or restore the log it belongs to."
    ),
    Code.FOREIGN_OBJECT: Rule(
        _W, "an object in a partition's place is no file of the layout", "Move it away; nothing reads it."
    ),
    Code.MALFORMED_NAME: Rule(
        _W,
        "a name is nearly, but not quite, one that Kafka gives: its digits, its offset or an id are wrong",
        "Rename it to what Kafka wrote. Readers may pass it over, or place it at a wrong offset.",
    ),
    Code.STRAY_SEGMENTS: Rule(
        _W,
        "files of segments lie in a directory that is no partition's",
        "Give the directory its partition's name, or move the files there: nothing reads them where they are.",
    ),
    Code.FILE_IN_TRANSIT: Rule(
        _I,
        "a broker is deleting, cleaning or swapping a file",
        "Nothing: the broker removes it, at its next start at the latest.",
    ),
    Code.UNFINISHED_UPLOAD: Rule(
        _I,
        "an upload has begun and has not finished",
        "Nothing while a broker is at it. If it stays, the upload was given up and its objects can be deleted.",
    ),
    Code.ABANDONED_UPLOAD: Rule(
        _I,
        "a set of files is incomplete, and a complete one begins at the same offset: an upload that was tried again",
        "Nothing; the objects cost storage and can be deleted.",
    ),
    Code.RECREATED_TOPIC: Rule(
        _I,
        "one topic name stands for several topic ids: it was deleted and created again",
        "Choose one with --topic-id when you read.",
    ),
    Code.MIXED_LAYOUTS: Rule(
        _I,
        "one topic lies here in several layouts, such as a broker's log directory beside the remote tier",
        "Choose one with --layout, or name the directory of one, when you read.",
    ),
    Code.PARTITION_TWICE: Rule(
        _W,
        "one partition of one topic lies in two places",
        "Name the directory of one when you read, and move the other away: reading both is refused.",
    ),
    Code.MISSING_PARTITION: Rule(
        _I,
        "a partition between 0 and the highest one has no segment here",
        "Nothing if it has no finished segment yet; otherwise look for its directory.",
    ),
    Code.NOTE: Rule(_I, "something that reading would tell, too", "See the text."),
    Code.HOLE: Rule(
        _E,
        "offsets between two segments are in no segment",
        "Restore the missing segment; reading stops there unless gaps are skipped.",
    ),
    Code.COMPACTION_GAP: Rule(
        _I,
        "offsets between two segments are in no batch, and the log was compacted once",
        "Nothing: the cleaner removed them.",
    ),
    Code.DUPLICATE_OFFSETS: Rule(
        _I,
        "two segments hold the same offsets of the same history, as after retries and leader changes",
        "Nothing: each offset is read once.",
    ),
    Code.DIVERGED_OFFSETS: Rule(
        _I,
        "a segment holds offsets of a history that was given up, as after an unclean election",
        "Nothing for segreader, which leaves them out. Brokers up to 4.3.1 serve them: see docs/how-to/verify.md.",
    ),
    Code.BELOW_LOG_START: Rule(
        _I, "a segment begins below the log start offset", "Nothing: records below it count as deleted."
    ),
    Code.CONFLICTING_COPIES: Rule(
        _E,
        "two segments of the same history hold other batches at the same offsets",
        "One of the two is damaged: compare both with a replica, and delete the wrong one.",
    ),
    Code.UNCHECKED: Rule(
        _I,
        "batches are missing or damaged, so that some copies or transactions could not be compared",
        "Restore what is missing or damaged, then verify again.",
    ),
    Code.BAD_LEADER_EPOCHS: Rule(
        _E,
        "a leader-epoch checkpoint cannot be read, or says nothing of its segment",
        "Restore it from another segment or replica; without it diverged segments cannot be told apart.",
    ),
    Code.EPOCH_MISMATCH: Rule(
        _E,
        "a batch was written by another leader epoch than the checkpoint beside it says",
        "Restore the checkpoint, or the log, from another replica: one of the two is of another history.",
    ),
    Code.WRONG_BASE_OFFSET: Rule(
        _E,
        "the offset in a segment's name is not that of its first batch",
        "Rename the segment's files to the offset of its first batch.",
        _FOLLOWS | {Code.BATCH_OUTSIDE_SEGMENT, Code.EPOCH_MISMATCH, Code.METADATA_CONTRADICTS_NAME},
    ),
    Code.BATCH_OUTSIDE_SEGMENT: Rule(
        _E,
        "a batch's offsets lie outside of its segment",
        "Restore the log from another replica: base offsets are under no checksum.",
        _FOLLOWS,
    ),
    Code.OFFSETS_NOT_RISING: Rule(
        _E,
        "a batch's offsets are not above those of the batch before it",
        "Restore the log from another replica: base offsets are under no checksum.",
        _FOLLOWS | {Code.BATCH_OUTSIDE_SEGMENT},
    ),
    Code.TRUNCATED_LOG: Rule(_E, "a finished segment's log ends inside a batch", _ANOTHER_COPY, _FOLLOWS),
    Code.EMPTY_LOG: Rule(
        _E,
        "a finished segment's log has no byte, and nothing shows that the log cleaner emptied it",
        "Fetch the object again from another copy or replica; reading stops there unless gaps are skipped.",
        _FOLLOWS,
    ),
    Code.ZERO_TAIL: Rule(
        _E,
        "a finished segment's log ends in zeros",
        "Compare it with another replica: cut the zeros off if nothing is missing before them. Brokers refuse them.",
        _FOLLOWS,
    ),
    Code.GARBAGE_TAIL: Rule(
        _E,
        "bytes that are no batch follow the segment's last batch",
        "Cut them off: every offset of the segment stands before them. Brokers refuse them.",
    ),
    Code.ACTIVE_TAIL: Rule(
        _I, "the newest segment of a log directory ends in a cut batch or in zeros", "Nothing: a broker is writing."
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
        "a batch passes its checksum, and its records cannot be decoded",
        "A producer wrote it so, or it was damaged before the checksum was made: --on-corrupt skip reads around it.",
    ),
    Code.UNSUPPORTED_MAGIC: Rule(_E, "a batch has a format version that is not 0, 1 or 2", _ANOTHER_COPY, _FOLLOWS),
    Code.UNSUPPORTED_CODEC: Rule(_E, "a batch names a codec that its format version does not have", _ANOTHER_COPY),
    Code.WRONG_MAX_TIMESTAMP: Rule(
        _W,
        "the largest timestamp in a batch's header is not that of its records",
        "Search by time may pass the batch over: give a wider range of times. Brokers correct it when they append.",
    ),
    Code.CUT_OFFSET_INDEX: Rule(_E, "an offset index ends inside an entry", _REBUILD_INDEX, _OF_CUT_OFFSETS),
    Code.OFFSET_INDEX_NOT_RISING: Rule(
        _E, "an offset index has entries that do not rise", _REBUILD_INDEX, _OFFSET_INDEX
    ),
    Code.OFFSET_INDEX_ZERO_TAIL: Rule(_W, "a finished segment's offset index was not trimmed", _REBUILD_INDEX),
    Code.INDEX_BEYOND_LOG: Rule(_E, "an offset index points beyond the end of its log", _REBUILD_INDEX),
    Code.INDEX_NOT_AT_BATCH: Rule(
        _E,
        "an offset index points to a byte at which no batch begins",
        _REBUILD_INDEX,
        frozenset({Code.INDEX_WRONG_OFFSET}),
    ),
    Code.INDEX_WRONG_OFFSET: Rule(
        _E, "an offset index names another offset than the batch at its position ends with", _REBUILD_INDEX
    ),
    Code.CUT_TIME_INDEX: Rule(_E, "a time index ends inside an entry", _REBUILD_INDEX, _OF_CUT_TIMES),
    Code.TIME_INDEX_NOT_RISING: Rule(_E, "a time index has entries that do not rise", _REBUILD_INDEX, _TIME_INDEX),
    Code.TIME_INDEX_ZERO_TAIL: Rule(_W, "a finished segment's time index was not trimmed", _REBUILD_INDEX),
    Code.TIME_INDEX_OUTSIDE_SEGMENT: Rule(
        _E,
        "a time index names an offset that its segment does not have",
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
        "the metadata topic says that a transaction index has rows, and it is empty or is not there",
        _REBUILD_TRANSACTIONS,
        frozenset({Code.MARKER_WITHOUT_ROW}),
        raises=CorruptIndexError,
    ),
    Code.CUT_TRANSACTION_INDEX: Rule(
        _E,
        "a transaction index ends inside a row: a broker passes over it, and shows the records it would hide",
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
        "a transaction index names a marker that its segment cannot hold",
        _REBUILD_TRANSACTIONS,
        frozenset({Code.ROW_WITHOUT_MARKER, Code.MARKER_WITHOUT_ROW}),
        raises=CorruptIndexError,
    ),
    Code.ROW_WITHOUT_MARKER: Rule(
        _E,
        "a transaction index names an offset at which no ABORT marker of that producer stands",
        _REBUILD_TRANSACTIONS,
        frozenset({Code.MARKER_WITHOUT_ROW}),
    ),
    Code.MARKER_WITHOUT_ROW: Rule(
        _E, "an ABORT marker ends a transaction that the transaction index does not have", _REBUILD_TRANSACTIONS
    ),
    Code.TRANSACTION_INDEX_MISMATCH: Rule(
        _E,
        "a transaction index says another first offset, or stable offset, than the log",
        _REBUILD_TRANSACTIONS,
        raises=CorruptIndexError,
    ),
    Code.CUT_SNAPSHOT: Rule(_E, "a producer snapshot is cut, or has not the entries it counts", _REBUILD_TRANSACTIONS),
    Code.SNAPSHOT_VERSION: Rule(_E, "a producer snapshot has an unknown version", _REBUILD_TRANSACTIONS),
    Code.SNAPSHOT_CRC: Rule(_E, "a producer snapshot fails its checksum", _REBUILD_TRANSACTIONS),
    Code.SNAPSHOT_TRAILING_BYTES: Rule(_W, "bytes follow the last entry of a producer snapshot", _REBUILD_TRANSACTIONS),
    Code.SNAPSHOT_CONTRADICTS_LOG: Rule(
        _E,
        "a producer snapshot says other open transactions, or later offsets, than the log",
        _REBUILD_TRANSACTIONS,
        raises=CorruptIndexError,
    ),
    Code.FINISHED_SEGMENT_MISSING: Rule(
        _E,
        "the metadata topic says that a segment is finished, and none of its objects is there",
        "Restore its objects: consumers cannot be given these offsets.",
    ),
    Code.LOG_TOO_SHORT: Rule(
        _E, "a log has fewer bytes than the metadata topic says", _ANOTHER_COPY, _FOLLOWS | {Code.TRUNCATED_LOG}
    ),
    Code.LOG_TOO_LONG: Rule(
        _W,
        "a log has more bytes than the metadata topic says",
        "Nothing for readers, which leave them out; compare the object with another copy.",
        frozenset({Code.GARBAGE_TAIL, Code.ZERO_TAIL}),
    ),
    Code.DELETED_SEGMENT_LEFT: Rule(
        _W,
        "the metadata topic says that a segment was deleted, and its objects are there",
        "Delete the objects: nothing reads them, and a listing alone takes them for live ones.",
    ),
    Code.DELETED_TOPIC_LEFT: Rule(
        _I,
        "the metadata topic says that all segments of a partition were deleted, and objects are there",
        "Delete the objects when you are sure that nobody wants them.",
    ),
    Code.UNKNOWN_SEGMENT: Rule(
        _W,
        "the metadata topic does not know a segment whose objects are there",
        "If the metadata given here is complete, the objects are of another cluster, or left over: delete them.",
    ),
    Code.METADATA_CONTRADICTS_NAME: Rule(
        _E,
        "the metadata topic says another base offset than a segment's name",
        "Rename the objects to what the metadata topic says.",
    ),
    Code.UNFINISHED_DELETE: Rule(
        _I, "the metadata topic says that a segment is being deleted", "Nothing while a broker is at it."
    ),
    Code.UNREADABLE_METADATA: Rule(
        _E,
        "the metadata topic given here cannot be read; verification went on without it",
        "Copy its log directories again, all of them.",
    ),
    Code.BAD_MANIFEST: Rule(
        _E,
        "a manifest is cut, contradicts itself, its chunk table, or the name of its object",
        "Restore the manifest: how the log is stored stands nowhere else.",
        _FOLLOWS,
    ),
    Code.MANIFEST_MISMATCH: Rule(
        _E, "an object has not the size that its manifest says", "Fetch the object again from another copy.", _FOLLOWS
    ),
    Code.UNDECRYPTABLE: Rule(
        _E,
        "an object cannot be decrypted: the key is missing or wrong, or encrypted bytes were changed",
        "Give the keys with --rsm-config; if they are right, restore the object from another copy.",
        _FOLLOWS,
    ),
    Code.UNREADABLE_OBJECT: Rule(_E, "the store does not give an object", "Check permissions and the store."),
    Code.VANISHED: Rule(
        _W, "an object was listed, and was gone when it was read", "Nothing if retention runs; verify again otherwise."
    ),
}
"""What each code means, in the order of the documentation."""
